//! Where the jobs of a session have their checkpoints, and where they begin.

use super::Session;
use crate::error::{Error, code};
use crate::runtime::{CheckpointOptions, CheckpointStart, below, is_in, is_used};

impl Session {
    /// From where the jobs to come begin, where the setting `execution.checkpoint.dir` is set: the n-th job of a session
    /// has the folder `job-n` there. With [`CheckpointStart::Newest`] jobs that an earlier run has not come to begin
    /// anew; [`CheckpointStart::From`] is about the job in whose folder that checkpoint is, others begin at their
    /// newest.
    pub fn set_checkpoint_start(&mut self, start: CheckpointStart) {
        self.checkpoint_start = start;
    }

    /// Whether the jobs to come may go on from checkpoints of another plan that kept something they have no use for, or
    /// lack something that they keep, which then begins anew. Where nothing is lost they do so anyway.
    pub fn allow_dropped_state(&mut self, allow: bool) {
        self.drops_state = allow;
    }

    /// How the next job is checkpointed; `None`: not at all.
    pub(super) fn checkpoints(&self, statement: &str) -> Result<Option<CheckpointOptions>, Error> {
        let Some(dir) = self.settings.checkpoint_dir() else {
            return match &self.checkpoint_start {
                CheckpointStart::Anew => Ok(None),
                CheckpointStart::Newest | CheckpointStart::From(_) => Err(nowhere()),
            };
        };
        let number = self.jobs.0.started() + 1;
        let folder = below(&dir, &format!("job-{number}"));
        // An earlier run may have had jobs before this one and not have come to it.
        let is_later = || Ok::<bool, Error>(number > 1 && !is_used(&folder)?);
        let start = match &self.checkpoint_start {
            CheckpointStart::From(path) if is_in(path, &folder) => CheckpointStart::From(path.clone()),
            CheckpointStart::From(_) | CheckpointStart::Newest if is_later()? => CheckpointStart::Anew,
            CheckpointStart::From(_) => CheckpointStart::Newest,
            start => start.clone(),
        };
        Ok(Some(CheckpointOptions {
            folder,
            interval: self.settings.checkpoint_interval(),
            retained: self.settings.checkpoints_retained(),
            start,
            drops_state: self.drops_state,
            statement: statement.to_owned(),
        }))
    }
}

fn nowhere() -> Error {
    Error::usage(code::NO_CHECKPOINT, "there is no folder with checkpoints to go on from")
        .hint("Add --checkpoint-dir, or SET 'execution.checkpoint.dir' to the folder of the earlier run.")
}

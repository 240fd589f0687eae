//! Where the jobs of a session have their checkpoints, and where they begin.

use std::path::Path;

use super::Session;
use crate::catalog::Table;
use crate::error::{Error, code};
use crate::plan::{Operation, SinkTarget, StreamPlan};
use crate::runtime::{
    CheckpointOptions, CheckpointStart, below, is_in, is_of_a_job, is_seen_in, is_there, is_used,
};

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
    pub(super) fn checkpoints(
        &self,
        plan: &StreamPlan,
        statement: &str,
    ) -> Result<Option<CheckpointOptions>, Error> {
        let Some(dir) = self.settings.checkpoint_dir() else {
            return match &self.checkpoint_start {
                CheckpointStart::Anew => Ok(None),
                CheckpointStart::Newest | CheckpointStart::From(_) => Err(nowhere()),
            };
        };
        let number = self.jobs.0.started() + 1;
        if let CheckpointStart::From(path) = &self.checkpoint_start {
            // Whoever names one does not want to go on from another.
            if !is_of_a_job(path, &dir) {
                return Err(elsewhere(path, &dir));
            }
            // Later jobs need not have it any more.
            if number == 1 && !is_there(path)? {
                let message = format!("there is no checkpoint \"{}\"", path.display());
                return Err(Error::run(code::NO_CHECKPOINT, message).hint(NAMED));
            }
        }
        tables(plan).try_for_each(|table| keeps_apart(table, &dir))?;
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

const NAMED: &str = "Name a folder job-…/chk-… below that of --checkpoint-dir.";

fn elsewhere(path: &Path, dir: &Path) -> Error {
    let (path, dir) = (path.display(), dir.display());
    let message = format!("\"{path}\" is not a checkpoint in \"{dir}\"");
    Error::usage(code::NO_CHECKPOINT, message).hint(NAMED)
}

/// All that a plan reads and writes.
fn tables(plan: &StreamPlan) -> impl Iterator<Item = &Table> {
    plan.nodes.iter().filter_map(|node| match &node.operation {
        Operation::Source(source) => Some(source.table.as_ref()),
        Operation::Sink(sink) => match &sink.target {
            SinkTarget::Table(table) => Some(table.as_ref()),
            SinkTarget::Result => None,
        },
        _ => None,
    })
}

/// Whoever reads the folder of a table would take checkpoints in it for rows.
fn keeps_apart(table: &Table, dir: &Path) -> Result<(), Error> {
    let folder = table.options.get("path").filter(|_| table.connector == "filesystem").map(Path::new);
    match folder.filter(|folder| is_seen_in(dir, folder)) {
        Some(folder) => {
            let (dir, name, folder) = (dir.display(), &table.name, folder.display());
            let message = format!(
                "can't write checkpoints into \"{dir}\": it is in \"{folder}\", and who reads table \"{name}\" would \
                 take them for its rows"
            );
            Err(Error::usage(code::UNWRITTEN_CHECKPOINT, message)
                .hint("Name a folder beside it, or one whose name begins with a dot."))
        }
        None => Ok(()),
    }
}

fn nowhere() -> Error {
    Error::usage(code::NO_CHECKPOINT, "there is no folder with checkpoints to go on from")
        .hint("Add --checkpoint-dir, or SET 'execution.checkpoint.dir' to the folder of the earlier run.")
}

//! How a running job is told to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::channel::{Signal, lock};
use super::checkpoint::{self, CheckpointStatus};
use crate::connector::CancelToken;
use crate::error::{Error, Phase};

/// Told once, and seen by all parts of a job.
#[derive(Debug, Clone, Default)]
pub(super) struct Flag(Arc<AtomicBool>);

impl Flag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What the parts of a job look at to know whether they go on.
#[derive(Debug, Clone, Default)]
pub(super) struct Stops {
    pub(super) cancel: CancelToken,
    /// Readers stop as if their input had ended here.
    pub(super) drain: Flag,
    /// Sources give nothing: the job is about to be stopped behind a checkpoint.
    pub(super) mute: Flag,
}

/// Ends a job from anywhere. A clone is about the same job.
#[derive(Debug, Clone)]
pub struct JobControl {
    pub(super) stops: Stops,
    signals: Arc<[Arc<Signal>]>,
    failure: Arc<Mutex<Option<Error>>>,
    /// What is asked of its checkpoints, and known of them.
    pub(super) checkpoints: Arc<checkpoint::Shared>,
    takes_checkpoints: bool,
}

impl JobControl {
    /// `signals`: what those sleep on who have to look.
    pub(super) fn new(stops: Stops, signals: Arc<[Arc<Signal>]>) -> Self {
        let (failure, checkpoints) = (Arc::default(), Arc::default());
        Self { stops, signals, failure, checkpoints, takes_checkpoints: false }
    }

    /// The same of a job with checkpoints.
    pub(super) fn with_checkpoints(self) -> Self {
        Self { takes_checkpoints: true, ..self }
    }

    /// What is known of its checkpoints; `None`: it takes none.
    pub fn checkpoints(&self) -> Option<CheckpointStatus> {
        self.takes_checkpoints.then(|| self.checkpoints.status())
    }

    /// Takes a checkpoint and stops the job behind it, so that another run goes on from there: what was written until then
    /// is visible. A job without checkpoints is just [stopped](Self::stop).
    pub fn suspend(&self) {
        match self.takes_checkpoints {
            true => self.checkpoints.suspend(),
            false => self.stop(),
        }
    }

    /// Stops the job; its sinks leave nothing that looks finished. It then fails with "interrupted".
    pub fn stop(&self) {
        self.fail(Error::interrupted());
    }

    /// Lets the job end as if its input had ended where its sources are now: they read no more, what was read
    /// goes all the way, windows fire, sinks are finished. What a sender has sent and no source has read is not
    /// part of it.
    pub fn drain(&self) {
        self.stops.drain.set();
        self.wake();
    }

    /// Whether it was told to drain.
    pub fn is_draining(&self) -> bool {
        self.stops.drain.is_set()
    }

    /// What made it fail, if it has; that it was stopped, too.
    pub fn failure(&self) -> Option<Error> {
        lock(&self.failure).clone()
    }

    /// Whether the job was stopped by its user.
    pub fn is_stopped(&self) -> bool {
        lock(&self.failure).as_ref().is_some_and(|error| error.phase() == Phase::Interrupted)
    }

    /// Stops the job with this error, unless it has failed already.
    pub(super) fn fail(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
        self.stops.cancel.cancel();
        self.wake();
    }

    fn wake(&self) {
        self.signals.iter().for_each(|signal| signal.notify());
    }
}

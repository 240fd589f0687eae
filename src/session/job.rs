//! Handles of running statements.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use arrow::datatypes::SchemaRef;

use super::Origin;
use crate::error::{Error, Phase};
use crate::plan::{Guarantee, Operation, SinkTarget, StreamPlan};
use crate::runtime::{CheckpointStatus, JobControl, JobSnapshot, JobSummary, Monitor, RunningJob};
use crate::stream::StreamBatch;

/// A job of a session: the `INSERT` or the statement set of [`super::Outcome::Insert`], which runs on threads of
/// its own whether or not somebody holds the handle, or the job of a query ([`QueryHandle::job`]).
///
/// A clone is about the same job. A session that is dropped stops its inserts.
///
/// # Examples
/// ```
/// # fn main() -> Result<(), tidegate::Error> {
/// use tidegate::session::{JobState, Outcome, Session};
///
/// let mut session = Session::new();
/// let script = "
///     CREATE TABLE ticks (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000');
///     CREATE TABLE nowhere (n BIGINT) WITH ('connector' = 'blackhole');
///     INSERT INTO nowhere SELECT n FROM ticks;";
/// let mut job = None;
/// for statement in session.parse("example", script)? {
///     if let Outcome::Insert(started) = session.execute(&statement)? {
///         job = Some(started);
///     }
/// }
/// let job = job.expect("the last statement is an insert");
/// assert_eq!((job.name(), job.is_bounded()), ("nowhere", false));
/// while job.metrics().sources[0].rows_read == 0 {
///     std::thread::yield_now();
/// }
/// // Its input does not end: it is ended here, and what was read is written.
/// job.drain();
/// let summary = job.wait()?;
/// assert_eq!(job.state(), JobState::Finished);
/// assert_eq!(summary.rows_in, summary.rows_out);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct JobHandle(Arc<Shared>);

struct Shared {
    facts: Facts,
    control: JobControl,
    monitor: Monitor,
    /// What came of it, once it is over.
    ending: Mutex<Option<Result<JobSummary, Error>>>,
    ended: Condvar,
}

/// What is known of a job from its start.
pub(super) struct Facts {
    pub(super) number: u64,
    pub(super) name: String,
    /// The tables that it writes; none: a query.
    pub(super) tables: Vec<String>,
    pub(super) plan: Arc<StreamPlan>,
    /// The statement as written.
    pub(super) text: String,
    /// Of an insert with checkpoints.
    pub(super) guarantee: Option<Guarantee>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// It works.
    Running,
    /// Its sources read no more; what they have read goes all the way.
    Draining,
    /// It has come to its end; its sinks are finished.
    Finished,
    /// It was stopped.
    Stopped,
    /// An error has ended it.
    Failed,
}

impl JobState {
    /// Its name: `running`, `draining`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// Whether it works no more.
    pub fn is_over(self) -> bool {
        match self {
            Self::Running | Self::Draining => false,
            Self::Finished | Self::Stopped | Self::Failed => true,
        }
    }

    fn of_failure(error: &Error) -> Self {
        if error.phase() == Phase::Interrupted { Self::Stopped } else { Self::Failed }
    }
}

impl std::fmt::Debug for JobHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "job {} ({}), {}", self.number(), self.name(), self.state().name())
    }
}

impl JobHandle {
    pub(super) fn new(facts: Facts, running: &RunningJob) -> Self {
        Self(Arc::new(Shared {
            facts,
            control: running.control(),
            monitor: running.monitor(),
            ending: Mutex::default(),
            ended: Condvar::new(),
        }))
    }

    /// Its number in the session, from 1.
    pub fn number(&self) -> u64 {
        self.0.facts.number
    }

    /// Its name: that of the setting `pipeline.name` when it was started, else the tables that it writes, or
    /// `query`.
    pub fn name(&self) -> &str {
        &self.0.facts.name
    }

    /// The tables that it writes, in the order of the inserts; none: a query.
    pub fn tables(&self) -> &[String] {
        &self.0.facts.tables
    }

    /// The statement that it runs, as written.
    pub fn statement(&self) -> &str {
        &self.0.facts.text
    }

    /// What a person should know though it runs.
    pub fn warnings(&self) -> &[String] {
        &self.0.facts.plan.warnings
    }

    /// Whether it ends by itself.
    pub fn is_bounded(&self) -> bool {
        let plan = &self.0.facts.plan;
        plan.sinks.iter().all(|&sink| plan.nodes.get(sink).is_some_and(|node| node.properties.bounded))
    }

    pub(super) fn plan(&self) -> &StreamPlan {
        &self.0.facts.plan
    }

    /// How far it is.
    pub fn state(&self) -> JobState {
        match &*self.ending() {
            Some(Ok(_)) => return JobState::Finished,
            Some(Err(error)) => return JobState::of_failure(error),
            None => {}
        }
        match self.0.control.failure() {
            Some(error) => JobState::of_failure(&error),
            None if self.0.control.is_draining() => JobState::Draining,
            None => JobState::Running,
        }
    }

    /// All that is measured, now. No task waits for it.
    pub fn metrics(&self) -> JobSnapshot {
        self.0.monitor.snapshot()
    }

    /// Tells how far it is: progress, splits, addresses, and what it does over some time.
    pub fn monitor(&self) -> &Monitor {
        &self.0.monitor
    }

    /// Stops it; its sinks leave nothing that looks finished. Does not wait.
    pub fn stop(&self) {
        if self.ending().is_none() {
            self.0.control.stop();
        }
    }

    /// Lets it end as if its input had ended where its sources are now: they read no more, what they have read
    /// goes all the way, windows fire, sinks are finished. Does not wait.
    ///
    /// What a sender has sent and no source has read yet is not part of it.
    pub fn drain(&self) {
        self.0.control.drain();
    }

    /// Takes a checkpoint and stops behind it, so that another run goes on from there; what was written until then is
    /// visible. A job without checkpoints is just [stopped](Self::stop). Does not wait.
    pub fn suspend(&self) {
        if self.ending().is_none() {
            self.0.control.suspend();
        }
    }

    /// What is known of its checkpoints; `None`: it takes none.
    pub fn checkpoints(&self) -> Option<CheckpointStatus> {
        self.0.control.checkpoints()
    }

    /// How often rows count when a run of it goes on from a checkpoint; `None`: it takes none, or is a query.
    pub fn guarantee(&self) -> Option<&Guarantee> {
        self.0.facts.guarantee.as_ref()
    }

    /// Whether it was stopped behind a checkpoint.
    pub fn is_suspended(&self) -> bool {
        self.checkpoints().is_some_and(|status| status.is_suspended)
    }

    /// Whether it was told to drain.
    pub fn is_drained(&self) -> bool {
        self.0.control.is_draining()
    }

    /// Waits for its end and sums up; what was written is visible then. The job of a query is over when its rows
    /// were taken and [`QueryHandle::finish`] was called, or the handle dropped.
    ///
    /// # Errors
    /// What made it fail, or that it was stopped.
    pub fn wait(&self) -> Result<JobSummary, Error> {
        let mut ending = self.ending();
        loop {
            if let Some(ended) = &*ending {
                return ended.clone();
            }
            ending = self.0.ended.wait(ending).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same for some time only; `None`: it is not over yet.
    ///
    /// # Errors
    /// Those of [`JobHandle::wait`].
    pub fn wait_for(&self, longest: Duration) -> Option<Result<JobSummary, Error>> {
        let waited = self.0.ended.wait_timeout_while(self.ending(), longest, |ending| ending.is_none());
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(ending, _)| ending).clone()
    }

    fn ending(&self) -> MutexGuard<'_, Option<Result<JobSummary, Error>>> {
        self.0.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, ended: Result<JobSummary, Error>) {
        self.ending().get_or_insert(ended);
        self.0.ended.notify_all();
    }

    /// Waits for the job on a thread of its own.
    pub(super) fn run(&self, running: RunningJob, origin: &Origin) -> Result<(), Error> {
        let (job, origin) = (self.clone(), origin.clone());
        let wait = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| running.finish()));
            let ended = ended.unwrap_or_else(|_| Err(Error::internal("job", "the sum of it failed")));
            job.end(ended.map_err(|error| origin.mark(error)));
        };
        let started = std::thread::Builder::new().name(format!("job {}", self.number())).spawn(wait);
        started.map(|_| ()).map_err(|error| {
            let error = Error::internal("session", error);
            self.end(Err(error.clone()));
            error
        })
    }
}

/// A query that runs.
///
/// Take its rows with [`QueryHandle::next_batch`] until there are none, then call
/// [`QueryHandle::finish`]. A handle that is dropped stops its query.
#[must_use = "a query whose handle is dropped is stopped"]
pub struct QueryHandle {
    /// `None` once it is finished.
    running: Option<RunningJob>,
    job: JobHandle,
    schema: SchemaRef,
    updating: bool,
    origin: Origin,
    /// As an iterator or stream of batches it has come to its end.
    pub(super) is_exhausted: bool,
}

impl QueryHandle {
    pub(super) fn new(running: RunningJob, job: JobHandle, origin: &Origin) -> Result<Self, Error> {
        let plan = job.plan();
        let sink = plan.sinks.first().and_then(|&id| plan.nodes.get(id));
        let Some(node) = sink else {
            return Err(Error::internal("session", "a query's plan has no sink"));
        };
        let (schema, updating) = (node.schema.clone(), node.properties.updating);
        let (origin, is_exhausted) = (origin.clone(), false);
        Ok(Self { running: Some(running), job, schema, updating, origin, is_exhausted })
    }

    /// The columns of its rows.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether it ends by itself.
    pub fn is_bounded(&self) -> bool {
        self.job.is_bounded()
    }

    /// Whether its rows may be changes of rows that it gave before.
    pub fn is_updating(&self) -> bool {
        self.updating
    }

    /// What a person should know though the query runs.
    pub fn warnings(&self) -> &[String] {
        self.job.warnings()
    }

    /// The next rows; waits for them. `None` at the end, also after it was drained.
    ///
    /// # Errors
    /// What made the query fail, or that it was stopped.
    pub fn next_batch(&mut self) -> Result<Option<StreamBatch>, Error> {
        match &mut self.running {
            Some(running) => running.next_batch().map_err(|error| self.origin.mark(error)),
            None => Ok(None),
        }
    }

    /// The next rows, for an executor that is not to wait for them.
    ///
    /// # Errors
    /// What made the query fail, or that it was stopped.
    pub async fn next_batch_async(&mut self) -> Result<Option<StreamBatch>, Error> {
        std::future::poll_fn(|cx| self.poll_batch(cx)).await
    }

    pub(super) fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<StreamBatch>, Error>> {
        match &mut self.running {
            Some(running) => running.poll_batch(cx).map_err(|error| self.origin.mark(error)),
            None => Poll::Ready(Ok(None)),
        }
    }

    /// Ready when [`QueryHandle::end`] does not wait.
    pub(super) fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.running.as_ref().map_or(Poll::Ready(()), |running| running.poll_over(cx))
    }

    /// Waits for its end, with everything that it writes beside its rows, and sums up.
    pub(super) fn end(&mut self) -> Result<JobSummary, Error> {
        let Some(running) = self.running.take() else { return self.job.wait() };
        let ended = running.finish().map_err(|error| self.origin.mark(error));
        self.job.end(ended.clone());
        ended
    }

    /// Its job, which tells from elsewhere how far it is, and can be stopped from there.
    pub fn job(&self) -> &JobHandle {
        &self.job
    }

    /// Waits for its end and sums up. Rows that were not taken are lost.
    ///
    /// # Errors
    /// What made the query fail, or that it was stopped.
    pub fn finish(mut self) -> Result<JobSummary, Error> {
        self.end()
    }
}

impl Drop for QueryHandle {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.job.stop();
            drop(running);
            let failure = self.job.0.control.failure().unwrap_or_else(Error::interrupted);
            self.job.end(Err(self.origin.mark(failure)));
        }
    }
}

/// The tables that a plan writes, in the order of the inserts; none of a query.
pub(super) fn inserted_tables(plan: &StreamPlan) -> Vec<String> {
    let target = |&id: &usize| match &plan.nodes.get(id)?.operation {
        Operation::Sink(sink) => match &sink.target {
            SinkTarget::Table(table) => Some(table.name.clone()),
            SinkTarget::Result => None,
        },
        _ => None,
    };
    plan.sinks.iter().filter_map(target).collect()
}

//! Checkpoints: from time to time a job is [cut](super::cut), the cut is written while the job goes on, and then its
//! sinks make visible what they had written until the cut.
//!
//! Invariant: what is visible is covered by a checkpoint, and a checkpoint is whole or not there.

mod compare;
mod folder;
mod objects;
mod place;
mod store;
#[cfg(test)]
mod store_tests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub(crate) use self::place::{below, is_in, is_of_a_job, is_seen_in, is_there, is_used};
use self::store::{About, Store, Stored};
use super::channel::lock;
use super::control::JobControl;
use super::cut::pause::{Pause, Standstill};
use super::cut::{JobCut, Shape};
use super::graph;
use super::job::{JobClock, JobOptions};
use super::task::Task;
use crate::connector::Connectors;
use crate::error::{Error, code};
use crate::plan::StreamPlan;

/// How a job is checkpointed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// The folder of this job's checkpoints, or the URL of a place in an object store: `memory:///…` of this process,
    /// and with the feature `object-stores` `s3://…`, `gs://…` and `az://…`.
    pub folder: PathBuf,
    /// Time from one to the next.
    pub interval: Duration,
    /// How many are kept; ≥ 1.
    pub retained: usize,
    /// Where the job begins.
    pub start: CheckpointStart,
    /// It goes on with another plan, too, where that has no use for some of what was kept, or lacks some.
    pub drops_state: bool,
    /// The statement as written.
    pub statement: String,
}

/// Where a job begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointStart {
    /// At the start of its input. There must be no checkpoints of an earlier run.
    Anew,
    /// At the newest checkpoint that is whole.
    Newest,
    /// At this one.
    From(PathBuf),
}

/// What is known of a job's checkpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Complete ones in this run.
    pub completed: u64,
    /// Those that could not be written.
    pub failed: u64,
    /// The number of the last complete one.
    pub last: Option<u64>,
    /// When it was taken, microseconds since the epoch.
    pub last_taken_us: i64,
    /// What it is written as, bytes.
    pub last_bytes: u64,
    /// For how long tasks stood still for it, microseconds.
    pub last_pause_us: u64,
    /// The longest of these times in this run, microseconds.
    pub longest_pause_us: u64,
    /// The part of it until the last task stood still, microseconds.
    pub last_gather_us: u64,
    /// The longest of these times in this run, microseconds.
    pub longest_gather_us: u64,
    /// The rest of it, in which tasks told what they keep, microseconds.
    pub last_tell_us: u64,
    /// The longest of these times in this run, microseconds.
    pub longest_tell_us: u64,
    /// From the cut until all was written, microseconds.
    pub last_duration_us: u64,
    /// Why the last one failed, if none succeeded since.
    pub failure: Option<String>,
    /// The number of the one where this run began.
    pub restored: Option<u64>,
    /// The job was stopped behind a checkpoint, to go on from there.
    pub is_suspended: bool,
}

impl CheckpointStatus {
    /// For programs.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "completed": self.completed,
            "failed": self.failed,
            "restored": self.restored,
            "last": self.last,
            "last_taken_us": self.last.map(|_| self.last_taken_us),
            "last_bytes": self.last_bytes,
            "last_pause_us": self.last_pause_us,
            "longest_pause_us": self.longest_pause_us,
            "last_gather_us": self.last_gather_us,
            "longest_gather_us": self.longest_gather_us,
            "last_tell_us": self.last_tell_us,
            "longest_tell_us": self.longest_tell_us,
            "last_duration_us": self.last_duration_us,
            "failure": self.failure,
        })
    }
}

/// Where an earlier run of a job was cut.
pub(super) struct Restored {
    pub(super) cut: JobCut,
    number: u64,
}

/// Where a job begins, and the folder of its checkpoints, which is this run's alone.
pub(super) struct Beginning {
    store: Store,
    pub(super) restored: Option<Restored>,
}

/// Takes the checkpoints of a job.
pub(super) struct Checkpointer {
    store: Store,
    about: About,
    shape: Shape,
    retained: usize,
    interval: Duration,
    clock: JobClock,
    pause: Arc<Pause>,
    shared: Arc<Shared>,
    control: JobControl,
}

/// What others see and ask of it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    status: CheckpointStatus,
    /// The number of the next one.
    next: u64,
    suspend: bool,
    /// All tasks are over.
    is_over: bool,
}

/// Finds where a job begins.
///
/// # Errors
/// `K001` if there is no checkpoint where one is asked for, `K002` if it is not whole, `K003` if it is of another
/// query, and if there are some where none is asked for.
pub(super) fn begin(
    options: &CheckpointOptions,
    plan: &StreamPlan,
    connectors: &Connectors,
    job: &JobOptions,
) -> Result<Beginning, Error> {
    let store = Store::open(&options.folder)?;
    let stored = match &options.start {
        CheckpointStart::Anew if store.list()?.is_empty() => return Ok(Beginning { store, restored: None }),
        CheckpointStart::Anew => return Err(in_use(&options.folder)),
        CheckpointStart::Newest => store.newest()?.0,
        CheckpointStart::From(path) => Store::load(path)?,
    };
    let number = stored.number;
    let is_same = stored.about.plan == plan.explain();
    let cut = if is_same { stored.cut } else { carried_over(stored, plan, options.drops_state)? };
    // Those behind it tell of what comes anew, otherwise.
    store.forget_behind(number)?;
    let restored = Restored { number, cut };
    let restored = match restored.cut.shape.parallelism == job.parallelism || restored.cut.is_exhausted {
        true => restored,
        false => exhausted(&restored, &store, options, plan, connectors, job)?,
    };
    Ok(Beginning { store, restored: Some(restored) })
}

/// The job with nothing on its way, so that other tasks can take it up: a checkpoint of its own.
fn exhausted(
    restored: &Restored,
    store: &Store,
    options: &CheckpointOptions,
    plan: &StreamPlan,
    connectors: &Connectors,
    job: &JobOptions,
) -> Result<Restored, Error> {
    let (cut, mut tasks) = graph::exhaust(plan, connectors, job, &restored.cut)?;
    let number = restored.number + 1;
    let about = About {
        taken_us: job.clock.0.wall_us(),
        is_over: cut.is_over(),
        ..about(options, plan, cut.shape.parallelism)
    };
    store.write(number, &about, &cut)?;
    store.prune(options.retained)?;
    tasks.iter_mut().try_for_each(Task::commit)?;
    Ok(Restored { number, cut })
}

fn in_use(folder: &Path) -> Error {
    let message = format!("\"{}\" has checkpoints of an earlier run", folder.display());
    Error::run(code::FOREIGN_CHECKPOINT, message)
        .hint("Add --resume to go on from the newest, or name another folder.")
}

/// The cut of another plan as one of this plan, if that goes on with all of it or `drops_state`.
fn carried_over(stored: Stored, plan: &StreamPlan, drops_state: bool) -> Result<JobCut, Error> {
    let Stored { path, about, cut, .. } = stored;
    let foreign = |what: &str, hint: &str| {
        let message = format!("checkpoint \"{}\" is of another query: {what}", path.display());
        Err(Error::run(code::FOREIGN_CHECKPOINT, message).hint(hint))
    };
    let anew = "Run the statement that it is of, or begin anew with another folder for checkpoints.";
    let now = plan.outline();
    let changes = compare::compare(&about.parts, &now);
    if changes.are_none(&about.parts, &now) {
        // It is told in other words, or about something else.
        return Ok(cut);
    }
    let lines = about.plan.lines();
    let text = plan.explain();
    let change = lines.zip(text.lines()).find(|(before, now)| before != now);
    let change = change.map_or_else(
        || "it has other operators".to_owned(),
        |(before, now)| format!("then \"{}\", now \"{}\"", before.trim(), now.trim()),
    );
    if let Some(fault) = changes.faults.first() {
        return foreign(fault, anew);
    }
    if let Some(loss) = changes.losses.first().filter(|_| !drops_state) {
        let more = match changes.losses.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let hint = "Add --allow-dropped-state to go on without what was kept there, run the statement that it is of, or \
                    begin anew with another folder for checkpoints.";
        return foreign(&format!("{loss}{more}"), hint);
    }
    let stop = "Run the statement that it is of with --resume, stop it with Ctrl-C, and go on with the other one from there.";
    if cut.is_over() {
        return foreign(&format!("{change}; that one has come to its end"), anew);
    }
    if !cut.is_exhausted {
        return foreign(&format!("{change}; rows of that one are on their way between its operators"), stop);
    }
    match changes.translate(cut, &about.parts, &now) {
        Ok(cut) => Ok(cut),
        Err(table) => foreign(&format!("rows of {table} wait in it, with other columns"), anew),
    }
}

fn about(options: &CheckpointOptions, plan: &StreamPlan, parallelism: usize) -> About {
    About {
        statement: options.statement.clone(),
        plan: plan.explain(),
        parts: plan.outline(),
        parallelism: parallelism as u64,
        taken_us: 0,
        is_over: false,
    }
}

impl Checkpointer {
    /// For a job whose tasks take part in `pause`.
    pub(super) fn new(
        options: &CheckpointOptions,
        plan: &StreamPlan,
        shape: Shape,
        clock: JobClock,
        pause: Arc<Pause>,
        control: JobControl,
        beginning: Beginning,
    ) -> Self {
        let restored = beginning.restored.map(|restored| restored.number);
        let shared = Arc::clone(&control.checkpoints);
        {
            let mut asked = lock(&shared.state);
            asked.status.restored = restored;
            asked.next = restored.unwrap_or(0) + 1;
        }
        Self {
            store: beginning.store,
            about: about(options, plan, shape.parallelism),
            shape,
            retained: options.retained,
            interval: options.interval,
            clock,
            pause,
            shared,
            control,
        }
    }

    /// Writes the first checkpoint of a job that has not begun: so that there is always one, and it is known at once
    /// that there can be one.
    ///
    /// # Errors
    /// `K004` if it can't be written.
    pub(super) fn first(&self, cut: &JobCut) -> Result<(), Error> {
        self.counted(|| self.write(cut, Standstill::default(), Instant::now()))
    }

    /// What fails counts as a checkpoint that could not be written.
    fn counted(&self, take: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        take().inspect_err(|error| {
            let mut asked = lock(&self.shared.state);
            asked.status.failed += 1;
            asked.status.failure = Some(error.message().to_owned());
        })
    }

    /// Takes checkpoints until the job is over, on a thread of its own.
    ///
    /// # Errors
    /// An internal error if there can't be another thread.
    pub(super) fn start(self: Arc<Self>) -> Result<JoinHandle<()>, Error> {
        let run = move || self.run();
        let started = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(run);
        started.map_err(|error| Error::internal("checkpoint", error))
    }

    fn run(&self) {
        let mut due = Instant::now() + self.interval;
        loop {
            let mut asked = lock(&self.shared.state);
            loop {
                if asked.is_over || self.control.stops.cancel.is_cancelled() {
                    return;
                }
                let left = due.saturating_duration_since(Instant::now());
                if left.is_zero() || asked.suspend {
                    break;
                }
                let waited = self.shared.changed.wait_timeout(asked, left.min(Duration::from_millis(100)));
                asked = waited.map_or_else(|poisoned| poisoned.into_inner().0, |(asked, _)| asked);
            }
            let suspends = asked.suspend;
            drop(asked);
            match self.counted(|| self.take(suspends)) {
                Ok(()) if suspends => {
                    lock(&self.shared.state).status.is_suspended = true;
                    self.control.stop();
                    return;
                }
                // Who wants to stop behind a checkpoint does not want to stop without.
                Err(error) if suspends => return self.control.fail(error),
                Ok(()) | Err(_) => {}
            }
            due = Instant::now() + self.interval;
        }
    }

    /// One checkpoint.
    fn take(&self, suspends: bool) -> Result<(), Error> {
        let begun = Instant::now();
        if suspends {
            // With nothing on its way also another plan can go on from there.
            self.control.stops.mute.set();
        }
        let cut = self.pause.cut(self.clock.0.elapsed_us(), self.shape, suspends)?;
        let Some((cut, pause)) = cut else { return Ok(()) };
        self.write(&cut, pause, begun)?;
        self.pause.commit()
    }

    fn write(&self, cut: &JobCut, pause: Standstill, begun: Instant) -> Result<(), Error> {
        let number = lock(&self.shared.state).next;
        let taken_us = self.clock.0.wall_us();
        let about = About { taken_us, is_over: cut.is_over(), ..self.about.clone() };
        let bytes = self.store.write(number, &about, cut)?;
        // It is there, also where older ones can't be removed.
        lock(&self.shared.state).next = number + 1;
        self.store.prune(self.retained)?;
        let mut asked = lock(&self.shared.state);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (gather_us, tell_us) = (micros(pause.gather), micros(pause.tell));
        let (pause_us, before) = (gather_us.saturating_add(tell_us), &asked.status);
        asked.status = CheckpointStatus {
            completed: asked.status.completed + 1,
            last: Some(number),
            last_taken_us: taken_us,
            last_bytes: bytes,
            last_pause_us: pause_us,
            longest_pause_us: before.longest_pause_us.max(pause_us),
            last_gather_us: gather_us,
            longest_gather_us: before.longest_gather_us.max(gather_us),
            last_tell_us: tell_us,
            longest_tell_us: before.longest_tell_us.max(tell_us),
            last_duration_us: micros(begun.elapsed()),
            failure: None,
            ..asked.status.clone()
        };
        Ok(())
    }

    /// The last checkpoint of a job whose tasks are all over; then its sinks are finished.
    ///
    /// # Errors
    /// `K004` if it can't be written, `F003` if a sink can't be finished.
    pub(super) fn finish(&self) -> Result<(), Error> {
        let begun = Instant::now();
        self.counted(|| match self.pause.cut(self.clock.0.elapsed_us(), self.shape, true)? {
            Some((cut, pause)) => self.write(&cut, pause, begun),
            None => Ok(()),
        })?;
        for mut sink in self.pause.take_sinks() {
            sink.commit()?;
            sink.close()?;
        }
        Ok(())
    }
}

impl Shared {
    pub(super) fn status(&self) -> CheckpointStatus {
        lock(&self.state).status.clone()
    }

    /// Asks for a checkpoint and a stop behind it.
    pub(super) fn suspend(&self) {
        lock(&self.state).suspend = true;
        self.changed.notify_all();
    }

    /// All tasks are over.
    pub(super) fn end(&self) {
        lock(&self.state).is_over = true;
        self.changed.notify_all();
    }
}

impl std::fmt::Debug for Checkpointer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checkpoints in {:?}", self.store)
    }
}

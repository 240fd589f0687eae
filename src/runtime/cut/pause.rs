//! The moment at which a job is cut: all of its tasks come to the end of a piece of work and wait, each tells what
//! it keeps, in its own thread, and all go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{JobCut, Shape, TaskCut};
use crate::connector::CancelToken;
use crate::error::Error;
use crate::runtime::channel::{Signal, lock};
use crate::runtime::sink::SinkEnd;

/// Longest sleep between two looks at whether the job was cancelled.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Where the tasks of a job and whoever cuts it meet.
pub(in crate::runtime) struct Pause {
    /// A task has something to do here.
    wanted: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    cancel: CancelToken,
    /// What the tasks sleep on.
    signals: Vec<Arc<Signal>>,
}

struct State {
    phase: Phase,
    /// Tasks that run, those of them that wait, and those that were cut.
    running: usize,
    waiting: usize,
    cut: usize,
    /// Tasks do all that there is to do before they wait, and whether there was something.
    exhausts: bool,
    has_worked: bool,
    tasks: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Tasks work.
    Work,
    /// Tasks come to the end of their pieces of work.
    Gather,
    /// All wait, and tell what they keep.
    Tell,
}

/// For how long the tasks of a job stood still.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::runtime) struct Standstill {
    /// Until the last one had come to the end of its piece of work.
    pub(in crate::runtime) gather: Duration,
    /// From then on, until the last one had told what it keeps.
    pub(in crate::runtime) tell: Duration,
}

/// A task, as whoever cuts the job sees it.
#[derive(Default)]
struct Part {
    /// What it told; of a task that is over, for ever.
    cut: Option<Result<TaskCut, Error>>,
    is_over: bool,
    /// It writes a table.
    has_sink: bool,
    /// Its sink is to make visible what was prepared.
    is_to_commit: bool,
    /// The sink of a task that is over.
    sink: Option<SinkEnd>,
}

impl Pause {
    pub(in crate::runtime) fn new(signals: Vec<Arc<Signal>>, cancel: CancelToken) -> Self {
        let running = signals.len();
        let tasks = (0..running).map(|_| Part::default()).collect();
        let state = State {
            phase: Phase::Work,
            running,
            waiting: 0,
            cut: 0,
            exhausts: false,
            has_worked: false,
            tasks,
        };
        let (wanted, changed) = (AtomicBool::new(false), Condvar::new());
        Self { wanted, state: Mutex::new(state), changed, cancel, signals }
    }

    /// Whether tasks have something to do here. Asked between any two pieces of work.
    pub(in crate::runtime) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, LONGEST_SLEEP);
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
    }

    /// Wakes everybody.
    fn turn_to(&self, state: &mut State, phase: Phase) {
        state.phase = phase;
        let commits = state.tasks.iter().any(|part| part.is_to_commit);
        self.wanted.store(phase != Phase::Work || commits, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether the sink of this task is to make visible what was prepared.
    pub(in crate::runtime) fn is_to_commit(&self, task: usize) -> bool {
        lock(&self.state).tasks[task].is_to_commit
    }

    /// It has done so.
    pub(in crate::runtime) fn committed(&self, task: usize) {
        let mut state = lock(&self.state);
        state.tasks[task].is_to_commit = false;
        let phase = state.phase;
        self.turn_to(&mut state, phase);
    }

    /// Whether tasks are to gather.
    pub(in crate::runtime) fn gathers(&self) -> bool {
        lock(&self.state).phase != Phase::Work
    }

    /// Whether tasks are to do all that there is to do before they wait.
    pub(in crate::runtime) fn exhausts(&self) -> bool {
        lock(&self.state).exhausts
    }

    /// Waits with the other tasks, and tells what this one keeps.
    /// `has_worked`: before that it found something to do.
    pub(in crate::runtime) fn take_part(
        &self,
        task: usize,
        has_worked: bool,
        tell: impl FnOnce() -> Result<TaskCut, Error>,
    ) {
        let mut state = lock(&self.state);
        state.has_worked |= has_worked;
        if state.phase != Phase::Gather {
            return;
        }
        state.waiting += 1;
        self.changed.notify_all();
        while state.phase == Phase::Gather && !self.cancel.is_cancelled() {
            state = self.wait(state);
        }
        if state.phase == Phase::Tell {
            drop(state);
            let told = tell();
            state = lock(&self.state);
            state.tasks[task].cut = Some(told);
            state.cut += 1;
            self.changed.notify_all();
            while state.phase == Phase::Tell && !self.cancel.is_cancelled() {
                state = self.wait(state);
            }
        }
        state.waiting -= 1;
        self.changed.notify_all();
    }

    /// A task is over.
    pub(in crate::runtime) fn leave(&self, task: usize, cut: TaskCut, sink: Option<SinkEnd>) {
        let mut state = lock(&self.state);
        state.running -= 1;
        // It told others of its end.
        state.has_worked = true;
        let part = &mut state.tasks[task];
        (part.cut, part.is_over, part.is_to_commit, part.sink) = (Some(Ok(cut)), true, false, sink);
        self.changed.notify_all();
    }

    /// Cuts the job. `None`: it was stopped meanwhile. Tells for how long tasks stood still. `exhausts`: with nothing on its way
    /// but what waits for other inputs; sources give nothing then.
    ///
    /// # Errors
    /// What a task says that can't tell what it keeps.
    pub(in crate::runtime) fn cut(
        &self,
        elapsed_us: i64,
        shape: Shape,
        exhausts: bool,
    ) -> Result<Option<(JobCut, Standstill)>, Error> {
        let begun = Instant::now();
        let mut state = lock(&self.state);
        state.cut = 0;
        state.exhausts = exhausts;
        loop {
            state.has_worked = false;
            self.turn_to(&mut state, Phase::Gather);
            self.signals.iter().for_each(|signal| signal.notify());
            while state.waiting < state.running && !self.cancel.is_cancelled() {
                state = self.wait(state);
            }
            if !(exhausts && state.has_worked) || self.cancel.is_cancelled() {
                break;
            }
            // Others may have more to do for it.
            self.turn_to(&mut state, Phase::Work);
            while state.waiting > 0 && !self.cancel.is_cancelled() {
                state = self.wait(state);
            }
        }
        let gather = begun.elapsed();
        self.turn_to(&mut state, Phase::Tell);
        while state.cut < state.running && !self.cancel.is_cancelled() {
            state = self.wait(state);
        }
        // Before anybody goes on: who comes to his end then tells of another moment.
        let told = state.tasks.iter_mut().map(|part| {
            // Nobody but the caller holds what the others told: it goes when it is written, and not in the next cut.
            let cut = if part.is_over { part.cut.clone() } else { part.cut.take() };
            let cut = cut.unwrap_or_else(|| Ok(TaskCut::default()));
            part.has_sink = matches!(&cut, Ok(cut) if cut.sink.is_some());
            cut
        });
        let tasks = told.collect::<Result<_, Error>>();
        let standstill = Standstill { gather, tell: begun.elapsed().saturating_sub(gather) };
        self.turn_to(&mut state, Phase::Work);
        while state.waiting > 0 && !self.cancel.is_cancelled() {
            state = self.wait(state);
        }
        if self.cancel.is_cancelled() {
            return Ok(None);
        }
        Ok(Some((
            JobCut { elapsed_us, shape, is_exhausted: exhausts, begins: None, tasks: tasks? },
            standstill,
        )))
    }

    /// Has the sinks make visible what was prepared, and waits for it.
    ///
    /// # Errors
    /// What the sink of a task that is over says.
    pub(in crate::runtime) fn commit(&self) -> Result<(), Error> {
        let mut state = lock(&self.state);
        for part in &mut state.tasks {
            match &mut part.sink {
                Some(sink) => sink.commit()?,
                None => part.is_to_commit = part.has_sink && !part.is_over,
            }
        }
        self.turn_to(&mut state, Phase::Work);
        self.signals.iter().for_each(|signal| signal.notify());
        while state.tasks.iter().any(|part| part.is_to_commit) && !self.cancel.is_cancelled() {
            state = self.wait(state);
        }
        Ok(())
    }

    /// The sinks of tasks that are over.
    pub(in crate::runtime) fn take_sinks(&self) -> Vec<SinkEnd> {
        lock(&self.state).tasks.iter_mut().filter_map(|part| part.sink.take()).collect()
    }
}

//! A plan that moves only when it is told to: its tasks and readers in the caller's thread, one
//! piece of work at a time.

#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::channel::{Received, Receiver};
use super::control::Stops;
use super::cut::{JobCut, Shape, TaskCut, bytes};
use super::graph::{self, SourceHandle};
use super::job::{JobOptions, panic_text, summarise};
use super::measure::{Activity, JobCells, JobSnapshot};
use super::metrics::{JobSummary, OperatorReport, TaskReport};
use super::source::{SplitReaders, SplitStatus};
use super::task::{Task, Worked};
use crate::connector::Connectors;
use crate::error::Error;
use crate::operator::KeyFilter;
use crate::plan::StreamPlan;
use crate::stream::{Clock, StreamBatch, StreamElement, Watermark};

/// The order in which a [`Stepped`] job does its pieces of work.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// `None`: all in turn.
    state: Option<u64>,
}

impl Schedule {
    /// Seed 0: one piece of work each, in turn. Any other seed: an order drawn from it, in which now
    /// this one is far ahead and now that one.
    pub fn new(seed: u64) -> Self {
        Self { state: (seed != 0).then_some(seed) }
    }

    /// A number below `bound`, or `in_turn` where nothing is drawn. SplitMix64.
    pub(crate) fn draw(&mut self, bound: usize, in_turn: usize) -> usize {
        let Some(state) = &mut self.state else { return in_turn };
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed % bound.max(1) as u64) as usize
    }

    /// How much work one does before the next has its turn.
    fn stint(&mut self) -> usize {
        match self.draw(4, 0) {
            3 => 1 + self.draw(32, 0),
            _ => 1 + self.draw(3, 0),
        }
    }
}

/// A task, or what it left when it was over.
enum Slot {
    Runs(Box<Task>),
    Over(String, Box<TaskReport>, Option<Watermark>, Box<TaskCut>),
}

/// A plan whose tasks and readers run in the caller's thread.
///
/// The tasks, operators, channels, merges and readers are those of a [`super::Job`]; only who calls
/// them differs. Nothing here waits: a source that has nothing to read now is asked again by the
/// next [`Stepped::settle`].
pub struct Stepped {
    slots: Vec<Slot>,
    readers: Vec<SplitReaders>,
    result: Option<Receiver>,
    rows: Vec<StreamBatch>,
    is_held: bool,
    sources: Vec<SourceHandle>,
    cells: Arc<JobCells>,
    stops: Stops,
    schedule: Schedule,
    failure: Option<Error>,
    started: Instant,
    clock: Arc<dyn Clock>,
    takes_cuts: bool,
    /// Who has the next single piece of work: a task, or behind them a reader.
    next: usize,
    shape: Shape,
}

impl Stepped {
    /// Opens the plan's sources and sinks. Nothing is read yet.
    ///
    /// # Errors
    /// Those of [`super::Job::start`].
    pub fn start(
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
        schedule: Schedule,
    ) -> Result<Self, Error> {
        Self::start_or_resume(plan, connectors, options, schedule, None)
    }

    /// Goes on where an earlier run of the plan was [cut](Self::cut), also with another parallelism.
    ///
    /// # Errors
    /// Those of [`Stepped::start`]; `K003` if the cut is of another plan.
    pub fn resume(
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
        schedule: Schedule,
        cut: &[u8],
    ) -> Result<Self, Error> {
        Self::start_or_resume(plan, connectors, options, schedule, Some(&bytes::read(&mut &*cut)?))
    }

    fn start_or_resume(
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
        schedule: Schedule,
        resumes: Option<&JobCut>,
    ) -> Result<Self, Error> {
        let stops = Stops::default();
        let exhausted = match resumes {
            Some(cut) if cut.shape.parallelism != options.parallelism => {
                let (cut, mut tasks) = graph::exhaust(plan, connectors, options, cut)?;
                tasks.iter_mut().try_for_each(Task::commit)?;
                Some(cut)
            }
            _ => None,
        };
        let mut graph = graph::build(plan, connectors, options, &stops, exhausted.as_ref().or(resumes))?;
        super::task::limit_memory(&mut graph.tasks, &options.memory);
        let slot = |(number, task): (usize, Task)| match graph.left.remove(&number) {
            None => Slot::Runs(Box::new(task)),
            Some(left) => {
                let (name, report) = (task.name.clone(), Box::new(task.report()));
                Slot::Over(name, report, task.watermark(), Box::new(left))
            }
        };
        Ok(Self {
            slots: graph.tasks.into_iter().enumerate().map(slot).collect(),
            shape: graph.shape,
            readers: graph.readers,
            result: graph.result.map(|(receiver, _)| receiver),
            rows: Vec::new(),
            is_held: false,
            sources: graph.sources,
            cells: graph.cells,
            stops,
            schedule,
            failure: None,
            started: Instant::now(),
            clock: Arc::clone(&options.clock.0),
            takes_cuts: options.takes_cuts,
            next: 0,
        })
    }

    /// All that it keeps now, written as a checkpoint has it. It goes on as if it had not been asked; rows of a
    /// SELECT that were taken are not part of it.
    ///
    /// # Errors
    /// What an operator or a sink says that can't be part of a checkpoint, and what stopped the job.
    pub fn cut(&mut self) -> Result<Vec<u8>, Error> {
        let (elapsed_us, shape) = (self.clock.elapsed_us(), self.shape);
        let mut cut = JobCut { elapsed_us, shape, ..JobCut::default() };
        for slot in &mut self.slots {
            if let Slot::Runs(task) = slot {
                task.settle(&self.stops.cancel)?;
            }
        }
        for slot in &mut self.slots {
            cut.tasks.push(match slot {
                Slot::Runs(task) => task.cut()?,
                Slot::Over(.., left) => left.as_ref().clone(),
            });
        }
        // Of a task that is over, too, rows of the query were taken since.
        let waiting = self.result.as_ref().map_or_else(Vec::new, Receiver::waiting);
        for sink in cut.tasks.iter_mut().filter_map(|task| task.sink.as_mut()) {
            if !sink.pending.is_empty() {
                sink.pending.clone_from(&waiting);
            }
        }
        let mut written = Vec::new();
        bytes::write(&cut, &mut written)?;
        Ok(written)
    }

    /// Has its sinks make visible what the last [cut](Self::cut) has, as they do when a checkpoint is written.
    ///
    /// # Errors
    /// What a sink says that can't.
    pub fn commit(&mut self) -> Result<(), Error> {
        self.slots.iter_mut().try_for_each(|slot| match slot {
            Slot::Runs(task) => task.commit(),
            Slot::Over(..) => Ok(()),
        })
    }

    /// Takes its own place as another process would after a stop: goes on from a [cut](Self::cut), with the rows that
    /// nobody has taken yet.
    ///
    /// # Errors
    /// Those of [`Stepped::cut`] and [`Stepped::resume`].
    pub fn restart(
        &mut self,
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
    ) -> Result<(), Error> {
        let cut = self.cut()?;
        let next = Self::resume(plan, connectors, options, self.schedule.clone(), &cut)?;
        let before = std::mem::replace(self, next);
        (self.rows, self.is_held) = (before.rows, before.is_held);
        Ok(())
    }

    /// Takes its own place as another process would after a crash: all work since a [cut](Self::cut) of it is lost, and
    /// it goes on from there. Rows that nobody has taken yet are lost, too.
    ///
    /// # Errors
    /// Those of [`Stepped::resume`].
    pub fn crash(
        &mut self,
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
        cut: &[u8],
    ) -> Result<(), Error> {
        let next = Self::resume(plan, connectors, options, self.schedule.clone(), cut)?;
        let before = std::mem::replace(self, next);
        self.is_held = before.is_held;
        Ok(())
    }

    /// Works until nothing makes progress any more: whatever can be read now is read and has gone as
    /// far as it can. Whether there was anything to do.
    ///
    /// # Errors
    /// What stopped the job, now and whenever it is asked again.
    pub fn settle(&mut self) -> Result<bool, Error> {
        let mut worked = false;
        // In the first quiet round the readers said that there is nothing; in the second the tasks
        // took note of it.
        let mut quiet = 0;
        while quiet < 2 {
            match self.turn()? {
                true => (worked, quiet) = (true, 0),
                false => quiet += 1,
            }
        }
        Ok(worked)
    }

    /// One turn or more of everybody. Whether there was anything to do.
    ///
    /// # Errors
    /// What stopped the job, now and whenever it is asked again.
    pub fn turn(&mut self) -> Result<bool, Error> {
        self.unless_failed(Self::round)
    }

    /// The smallest thing that can be done: one piece of work of one task or reader. Whether there was any.
    ///
    /// # Errors
    /// What stopped the job, now and whenever it is asked again.
    pub fn step(&mut self) -> Result<bool, Error> {
        self.unless_failed(|job| {
            let workers = job.slots.len() + job.readers.len();
            // Twice: see `settle`.
            for _ in 0..2 * workers {
                if job.next == 0 {
                    for readers in &mut job.readers {
                        readers.look();
                    }
                }
                let worker = job.next;
                job.next = (worker + 1) % workers;
                let worked = job.work(worker)?;
                if job.take_result() || worked {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    fn unless_failed(&mut self, work: impl FnOnce(&mut Self) -> Result<bool, Error>) -> Result<bool, Error> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let worked = work(self);
        if let Err(error) = &worked {
            self.stops.cancel.cancel();
            self.failure = Some(error.clone());
            // Sinks learn that they don't end well.
            self.slots.retain(|slot| matches!(slot, Slot::Over(..)));
            self.readers.clear();
        }
        worked
    }

    /// Everybody has one turn or more.
    fn round(&mut self) -> Result<bool, Error> {
        let mut worked = false;
        for readers in &mut self.readers {
            worked |= readers.look();
        }
        let workers = self.slots.len() + self.readers.len();
        let mut order: Vec<usize> = (0..workers).collect();
        for place in (1..workers).rev() {
            order.swap(place, self.schedule.draw(place + 1, place));
        }
        for worker in order {
            for _ in 0..self.schedule.stint() {
                let goes_on = self.work(worker)?;
                worked |= goes_on;
                worked |= self.take_result();
                if !goes_on {
                    break;
                }
            }
        }
        Ok(worked)
    }

    /// A piece of work of a task, or behind them of a reader. Whether there was any.
    fn work(&mut self, worker: usize) -> Result<bool, Error> {
        match worker.checked_sub(self.slots.len()) {
            Some(readers) => Ok(self.read(readers)),
            None => self.run(worker),
        }
    }

    /// One batch of each split of a source that can be read now. Whether there was any.
    fn read(&mut self, readers: usize) -> bool {
        let schedule = &mut self.schedule;
        self.readers[readers].read(|waiting| schedule.draw(waiting, 0))
    }

    fn run(&mut self, slot: usize) -> Result<bool, Error> {
        let Slot::Runs(task) = &mut self.slots[slot] else { return Ok(false) };
        let clock = Arc::clone(&task.cells);
        let clock = &clock.clock;
        if !task.has_room() {
            // It was full, if only since its last turn.
            clock.was(Activity::BackPressured);
        }
        // What it holds back for others may go on at any moment; here it does not wait for time to pass.
        let held_back = task.holds_back();
        let schedule = &mut self.schedule;
        let step = catch_unwind(AssertUnwindSafe(|| {
            let worked = task.step(&self.stops.cancel)?;
            if task.holds_back() && schedule.draw(3, 0) == 0 {
                task.hand_on()?;
            }
            Ok(worked)
        }));
        match step.unwrap_or_else(|panic| Err(Error::internal(&task.name, panic_text(panic.as_ref()))))? {
            Worked::Done => {
                clock.turn_to(if task.has_room() { Activity::Idle } else { Activity::BackPressured });
                Ok(true)
            }
            Worked::Full => {
                clock.turn_to(Activity::BackPressured);
                Ok(held_back)
            }
            Worked::Waiting => {
                clock.turn_to(Activity::Idle);
                Ok(held_back)
            }
            Worked::Over => {
                task.end();
                let left = if self.takes_cuts { task.last_cut()? } else { TaskCut::default() };
                self.slots[slot] =
                    Slot::Over(task.name.clone(), Box::new(task.report()), task.watermark(), Box::new(left));
                Ok(true)
            }
        }
    }

    /// Takes what the query has given. Whether there was any.
    fn take_result(&mut self) -> bool {
        if self.is_held {
            return false;
        }
        let mut taken = false;
        while let Some(receiver) = &self.result {
            match receiver.receive() {
                Received::Element(StreamElement::Batch(batch)) => self.rows.push(batch),
                Received::Element(StreamElement::End) => self.result = None,
                Received::Element(
                    StreamElement::Watermark(_) | StreamElement::Status(_) | StreamElement::Latency(_),
                ) => {}
                Received::Empty | Received::Closed => break,
            }
            taken = true;
        }
        taken
    }

    /// The rows of a SELECT since they were last taken, in their order.
    pub fn take_rows(&mut self) -> Vec<StreamBatch> {
        std::mem::take(&mut self.rows)
    }

    /// Lets its sources end where they are now; see [`super::JobControl::drain`].
    pub fn drain(&mut self) {
        self.stops.drain.set();
    }

    /// While it is held, nobody takes the rows of the SELECT: its tasks are back-pressured as soon as
    /// the last channel is full.
    pub fn hold(&mut self, hold: bool) {
        self.is_held = hold;
    }

    /// Whether everything was read and written.
    pub fn is_over(&self) -> bool {
        self.failure.is_none() && self.slots.iter().all(|slot| matches!(slot, Slot::Over(..)))
    }

    /// Checks that every operator accounts for every row that it took so far. Cheaper than a summary.
    ///
    /// # Errors
    /// An internal error that names the operator.
    pub fn check_counts(&self) -> Result<(), Error> {
        let running = self.slots.iter().filter_map(|slot| match slot {
            Slot::Runs(task) => task.unaccounted(),
            Slot::Over(_, report, ..) => {
                let wrong = |operator: &&OperatorReport| !operator.counts.account_for(operator.rows_in);
                let wrong = report.operators.iter().find(wrong);
                wrong.map(|operator| (operator.name.as_str(), operator.rows_in, operator.counts))
            }
        });
        match running.into_iter().next() {
            None => Ok(()),
            Some((name, rows_in, counts)) => {
                Err(Error::internal(name, format!("{rows_in} rows came, and of them {counts:?}")))
            }
        }
    }

    /// What it has done so far.
    pub fn summary(&self) -> JobSummary {
        let reports = self.slots.iter().map(|slot| match slot {
            Slot::Runs(task) => (task.name.clone(), task.report()),
            Slot::Over(name, report, ..) => (name.clone(), report.as_ref().clone()),
        });
        summarise(&self.sources, reports.collect(), self.started.elapsed())
    }

    /// All that is measured, now, by the job's clock.
    pub fn snapshot(&mut self) -> JobSnapshot {
        for slot in &mut self.slots {
            if let Slot::Runs(task) = slot {
                task.publish(true);
            }
        }
        JobSnapshot::take(&self.cells, &self.sources)
    }

    /// The same with the windows that have groups of this key.
    pub fn snapshot_of_key(&mut self, filter: &KeyFilter) -> JobSnapshot {
        let number = self.cells.questions.ask(filter);
        self.snapshot();
        JobSnapshot::take_of_key(&self.cells, &self.sources, number).0
    }

    /// The splits of all sources, source by source, in their order.
    pub fn splits(&self) -> Vec<SplitStatus> {
        self.sources.iter().flat_map(|source| source.counters.splits.list(&source.name)).collect()
    }

    /// The next moment after now at which time alone changes something, or one before that; `None`: as it is
    /// now, nothing does. Microseconds of the job's clock, as [`Clock::elapsed_us`].
    pub fn next_due_us(&self) -> Option<i64> {
        let running = || {
            self.slots.iter().filter_map(|slot| match slot {
                Slot::Runs(task) => Some(task),
                Slot::Over(..) => None,
            })
        };
        let (now_us, wall_us) = (self.clock.elapsed_us(), self.clock.wall_us());
        let own = running().filter_map(|task| task.next_due_us());
        // Where the watermark goes with the clock, it comes to each end of a window.
        let lags: Vec<i64> = running().filter_map(|task| task.clock_lag_us()).collect();
        let until = |watermark: i64| {
            let lags = lags.iter().map(move |lag| watermark.saturating_add(*lag).saturating_sub(wall_us));
            lags.filter(|left| *left > 0).map(|left| now_us.saturating_add(left)).min()
        };
        let reached = running().flat_map(|task| task.next_watermarks()).filter_map(until);
        own.chain(reached).filter(|due| *due > now_us).min()
    }

    /// The last watermark that came to the sink of the query, or the lowest of its sinks, before the
    /// end of the input.
    pub fn watermark(&self) -> Option<Watermark> {
        let watermarks = self.slots.iter().filter_map(|slot| match slot {
            Slot::Runs(task) => task.ends_in_sink().then(|| task.watermark()),
            Slot::Over(_, report, watermark, _) => report.arrived.is_some().then_some(*watermark),
        });
        watermarks.min().flatten()
    }

    /// The watermark of a table as it is read here, before its end; `None` if it is not read.
    pub fn table_watermark(&self, table: &str) -> Option<Option<Watermark>> {
        let reader = format!("source {table}");
        self.slots.iter().find_map(|slot| match slot {
            Slot::Runs(task) => (task.name == reader).then(|| task.watermark()),
            Slot::Over(name, _, watermark, _) => (*name == reader).then_some(*watermark),
        })
    }
}

//! A running plan.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::channel::{Received, Receiver, Signal};
use super::checkpoint::{self, CheckpointOptions, Checkpointer};
use super::control::{JobControl, Stops};
use super::cut::JobCut;
use super::cut::pause::Pause;
use super::graph::{self, SourceHandle};
use super::measure::{JobCells, JobSnapshot, LatencyGranularity};
use super::memory::MemoryLimit;
use super::metrics::{JobSummary, OperatorReport, OperatorSummary, TaskReport};
use super::source::{SplitReaders, SplitStatus};
use super::task::{self, PausePoint, Task, all_arrived};
use crate::connector::Connectors;
use crate::error::Error;
pub(super) use crate::error::panic_text;
use crate::operator::{KeyFilter, RowCounts};
use crate::plan::StreamPlan;
use crate::stream::{Clock, StreamBatch, StreamElement, SystemClock};

/// How long those wait who look again whether a job has come to something.
const LOOK: Duration = Duration::from_millis(2);
const LONGEST_LOOK: Duration = Duration::from_millis(50);

/// How a job runs. None of it changes what it computes of tables that end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobOptions {
    /// Subtasks of what stands behind an exchange, and readers of a source; ≥ 1.
    pub parallelism: usize,
    /// Most rows of a batch that a source makes; ≥ 1.
    pub batch_rows: usize,
    /// How long written rows may wait before a sink shows them.
    pub buffer_timeout: Duration,
    /// How often watermarks move that move periodically, and not with each row.
    pub watermark_interval: Duration,
    /// Time between two latency markers of a source; zero: none.
    pub latency_interval: Duration,
    /// What latency markers are told apart by.
    pub latency_granularity: LatencyGranularity,
    /// Without it operators count and time nothing but their rows: there to see what measuring costs.
    pub measures: bool,
    /// Its tasks can be cut: sources tell where they leave their splits.
    pub takes_cuts: bool,
    /// Picks the channels that markers take.
    pub seed: u64,
    /// What sources take the time from: idleness, and how far rows are ahead.
    pub clock: JobClock,
    /// Rows that a channel holds before its sender has to wait, ≥ 1; `None`: some batches.
    pub channel_rows: Option<usize>,
    /// Memory that its state shares with other jobs, and the limit on it.
    pub memory: MemoryLimit,
    /// Checkpoints that are taken of it; `None`: none.
    pub checkpoints: Option<CheckpointOptions>,
}

/// The clock of a job. Two are equal if they are one.
#[derive(Debug, Clone)]
pub struct JobClock(pub Arc<dyn Clock>);

impl Default for JobClock {
    fn default() -> Self {
        Self(Arc::new(SystemClock::default()))
    }
}

impl PartialEq for JobClock {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for JobClock {}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            parallelism: 1,
            batch_rows: 8_192,
            buffer_timeout: Duration::from_millis(100),
            watermark_interval: Duration::from_millis(200),
            latency_interval: Duration::from_millis(200),
            latency_granularity: LatencyGranularity::default(),
            measures: true,
            takes_cuts: false,
            seed: 0,
            clock: JobClock::default(),
            channel_rows: None,
            memory: MemoryLimit::default(),
            checkpoints: None,
        }
    }
}

impl JobOptions {
    /// Rows that a channel holds before its sender has to wait.
    pub(super) fn channel_rows(&self) -> usize {
        self.channel_rows.unwrap_or_else(|| (self.batch_rows * 4).max(1_024)).max(1)
    }
}

/// Starts plans.
#[derive(Debug)]
pub struct Job;

impl Job {
    /// Opens the plan's sources and sinks and starts its tasks.
    ///
    /// # Errors
    /// `F001`, `F003` if a source or sink can't be opened; `P002` if the plan asks for what can't
    /// run yet.
    pub fn start(
        plan: &StreamPlan,
        connectors: &Connectors,
        options: &JobOptions,
    ) -> Result<RunningJob, Error> {
        let started = Instant::now();
        let stops = Stops::default();
        let takes_cuts = options.takes_cuts || options.checkpoints.is_some();
        let options = &JobOptions { takes_cuts, ..options.clone() };
        let asked = options.checkpoints.as_ref();
        let begun = asked.map(|asked| checkpoint::begin(asked, plan, connectors, options)).transpose()?;
        let restored = begun.as_ref().and_then(|begun| begun.restored.as_ref());
        let cut = restored.map(|restored| &restored.cut);
        let is_anew = cut.is_none();
        let mut graph = graph::build(plan, connectors, options, &stops, cut)?;
        task::limit_memory(&mut graph.tasks, &options.memory);
        let mut signals: Vec<_> = graph.tasks.iter().map(|task| Arc::clone(&task.signal)).collect();
        let pause = asked.map(|_| Arc::new(Pause::new(signals.clone(), stops.cancel.clone())));
        signals.extend(graph.result.iter().map(|(_, signal)| Arc::clone(signal)));
        let mut control = JobControl::new(stops, signals.into());
        let mut checkpoints = None;
        if let (Some(asked), Some(pause), Some(begun)) = (asked, &pause, begun) {
            control = control.with_checkpoints();
            let (clock, pause, control) = (options.clock.clone(), Arc::clone(pause), control.clone());
            let taker = Checkpointer::new(asked, plan, graph.shape, clock, pause, control, begun);
            graph.tasks.iter_mut().for_each(Task::defer_sink);
            if is_anew {
                let elapsed_us = options.clock.0.elapsed_us();
                let tasks = graph.tasks.iter_mut().map(Task::cut).collect::<Result<_, _>>()?;
                taker.first(&JobCut { elapsed_us, shape: graph.shape, tasks, ..JobCut::default() })?;
            }
            checkpoints = Some(Arc::new(taker));
        }
        graph.readers.into_iter().try_for_each(SplitReaders::start)?;
        let taking = checkpoints.clone().map(Checkpointer::start).transpose()?;
        let running = Arc::new(AtomicUsize::new(graph.tasks.len()));
        let reader = graph.result.as_ref().map(|(_, signal)| Arc::clone(signal)).unwrap_or_default();
        let mut tasks = Vec::with_capacity(graph.tasks.len());
        for (number, task) in graph.tasks.into_iter().enumerate() {
            let name = task.name.clone();
            let on_failure = control.clone();
            let point = pause.clone().map(|pause| PausePoint { pause, task: number });
            let (running, at_end) = (Arc::clone(&running), Arc::clone(&reader));
            let handle = std::thread::Builder::new().name(name.clone()).spawn(move || {
                let run =
                    catch_unwind(AssertUnwindSafe(|| task.run(&on_failure.stops.cancel, point.as_ref())));
                let result =
                    run.unwrap_or_else(|panic| Err(Error::internal(&name, panic_text(panic.as_ref()))));
                let report = result.map_err(|error| on_failure.fail(error)).ok();
                running.fetch_sub(1, Ordering::AcqRel);
                at_end.notify();
                report
            });
            match handle {
                Ok(handle) => tasks.push(handle),
                Err(error) => {
                    control.stop();
                    return Err(Error::internal("runtime", error));
                }
            }
        }
        let (sources, cells) = (graph.sources.into(), graph.cells);
        let checkpoints = checkpoints.zip(taking);
        let result = graph.result;
        Ok(RunningJob { tasks, control, result, reader, running, sources, cells, started, checkpoints })
    }
}

/// What is there of a result.
enum Taken {
    Batch(StreamBatch),
    End,
    Nothing,
}

/// A job that runs. Dropping it stops the job.
#[derive(Debug)]
pub struct RunningJob {
    tasks: Vec<JoinHandle<Option<TaskReport>>>,
    control: JobControl,
    result: Option<(Receiver, Arc<Signal>)>,
    /// What the reader of the result sleeps on, also when there is no result any more.
    reader: Arc<Signal>,
    /// Tasks that are not at their end.
    running: Arc<AtomicUsize>,
    sources: Arc<[SourceHandle]>,
    cells: Arc<JobCells>,
    started: Instant,
    /// What takes its checkpoints, on a thread of its own.
    checkpoints: Option<(Arc<Checkpointer>, JoinHandle<()>)>,
}

impl std::fmt::Debug for SourceHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl RunningJob {
    /// The next rows of a SELECT; waits for them. `None` at the end, and for a job without result.
    ///
    /// # Errors
    /// What stopped the job, if it failed.
    pub fn next_batch(&mut self) -> Result<Option<StreamBatch>, Error> {
        loop {
            match self.take_batch()? {
                Taken::Batch(batch) => return Ok(Some(batch)),
                Taken::End => return Ok(None),
                Taken::Nothing => self.reader.wait(Duration::from_millis(100)),
            }
        }
    }

    /// The same without waiting: the task of `cx` is woken when there is more.
    ///
    /// # Errors
    /// What stopped the job, if it failed.
    pub fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<StreamBatch>, Error>> {
        // What comes between the two looks wakes it.
        for is_last in [false, true] {
            match self.take_batch()? {
                Taken::Batch(batch) => return Poll::Ready(Ok(Some(batch))),
                Taken::End => return Poll::Ready(Ok(None)),
                Taken::Nothing if is_last => {}
                Taken::Nothing => self.reader.wake_by(cx.waker()),
            }
        }
        Poll::Pending
    }

    /// Ready when all tasks are at their end, so that `finish` does not wait.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        for is_last in [false, true] {
            match self.running.load(Ordering::Acquire) {
                0 => return Poll::Ready(()),
                _ if is_last => {}
                _ => self.reader.wake_by(cx.waker()),
            }
        }
        Poll::Pending
    }

    fn take_batch(&mut self) -> Result<Taken, Error> {
        let Some((receiver, _)) = &self.result else { return Ok(Taken::End) };
        loop {
            if let Some(error) = self.control.failure() {
                return Err(error);
            }
            match receiver.receive() {
                Received::Element(StreamElement::Batch(batch)) => return Ok(Taken::Batch(batch)),
                Received::Element(StreamElement::End) => {
                    self.result = None;
                    return Ok(Taken::End);
                }
                Received::Element(
                    StreamElement::Watermark(_) | StreamElement::Status(_) | StreamElement::Latency(_),
                ) => {}
                Received::Empty | Received::Closed => return Ok(Taken::Nothing),
            }
        }
    }

    /// Ends the job from another thread.
    pub fn control(&self) -> JobControl {
        self.control.clone()
    }

    /// Reads how far the job is, from another thread.
    pub fn monitor(&self) -> Monitor {
        Monitor { sources: Arc::clone(&self.sources), cells: Arc::clone(&self.cells) }
    }

    /// Waits for all tasks. Rows of a SELECT that were not taken are dropped.
    ///
    /// # Errors
    /// What stopped the job, if it failed or was stopped.
    pub fn finish(mut self) -> Result<JobSummary, Error> {
        self.result = None;
        let mut reports = Vec::with_capacity(self.tasks.len());
        for task in self.tasks.drain(..) {
            let name = task.thread().name().unwrap_or("task").to_owned();
            match task.join() {
                Ok(Some(report)) => reports.push((name, report)),
                Ok(None) => {}
                Err(panic) => self.control.fail(Error::internal(&name, panic_text(panic.as_ref()))),
            }
        }
        if let Some((checkpoints, taking)) = self.checkpoints.take() {
            self.control.checkpoints.end();
            if let Err(panic) = taking.join() {
                self.control.fail(Error::internal("checkpoint", panic_text(panic.as_ref())));
            }
            if self.control.failure().is_none()
                && let Err(error) = checkpoints.finish()
            {
                self.control.fail(error);
            }
        }
        self.release_readers();
        match self.control.failure() {
            Some(error) => Err(error),
            None => Ok(summarise(&self.sources, reports, self.started.elapsed())),
        }
    }

    /// Tells readers that may still wait for rows that nobody wants them.
    fn release_readers(&self) {
        self.control.stops.cancel.cancel();
    }
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        if self.tasks.iter().any(|task| !task.is_finished()) {
            self.control.stop();
        }
        for task in self.tasks.drain(..) {
            // What it left is of no interest to anybody any more.
            let _ = task.join();
        }
        if let Some((_, taking)) = self.checkpoints.take() {
            self.control.checkpoints.end();
            let _ = taking.join();
        }
        self.release_readers();
    }
}

/// Reads how far a job is.
#[derive(Debug, Clone)]
pub struct Monitor {
    sources: Arc<[SourceHandle]>,
    cells: Arc<JobCells>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Rows that the sources have read.
    pub rows_in: u64,
    /// Bytes that the sources have read.
    pub bytes_read: u64,
    /// Bytes that there are to read, where all sources know.
    pub bytes_total: Option<u64>,
}

impl Monitor {
    /// How far the job is now.
    pub fn progress(&self) -> Progress {
        let mut progress = Progress { bytes_total: Some(0), ..Progress::default() };
        for source in self.sources.iter() {
            progress.rows_in += source.counters.rows_read.load(Ordering::Relaxed);
            progress.bytes_read += source.counters.bytes_read.load(Ordering::Relaxed);
            progress.bytes_total = progress.bytes_total.zip(source.bytes_total).map(|(sum, more)| sum + more);
        }
        progress
    }
}

impl Monitor {
    /// The splits of all sources, source by source, in their order. Of splits that are at an end
    /// only the last thousand are listed.
    pub fn splits(&self) -> Vec<SplitStatus> {
        self.sources.iter().flat_map(|source| source.counters.splits.list(&source.name)).collect()
    }

    /// The sources that wait for connections, and where: `'port' = '0'` takes any that is free.
    pub fn listening(&self) -> Vec<(String, SocketAddr)> {
        let listening = |source: &SourceHandle| Some((source.name.clone(), source.listens_on?));
        self.sources.iter().filter_map(listening).collect()
    }

    /// All that is measured, now. No task waits for it.
    pub fn snapshot(&self) -> JobSnapshot {
        JobSnapshot::take(&self.cells, &self.sources)
    }

    /// The same with the windows that have groups of this key, and the operators that were too busy to
    /// look for it for so long. Each of them goes through its keys for it.
    #[doc(hidden)]
    pub fn snapshot_of_key(&self, filter: &KeyFilter, longest: Duration) -> (JobSnapshot, Vec<String>) {
        let number = self.cells.questions.ask(filter);
        let until = Instant::now() + longest;
        loop {
            self.cells.tasks.iter().for_each(|task| task.signal.notify());
            let (snapshot, silent) = JobSnapshot::take_of_key(&self.cells, &self.sources, number);
            if silent.is_empty() || Instant::now() >= until {
                return (snapshot, silent);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Two snapshots, the second one so much later by the job's clock, or when the job is over.
    pub fn observe(&self, over: Duration) -> (JobSnapshot, JobSnapshot) {
        let before = self.snapshot();
        let over_us = u64::try_from(over.as_micros()).unwrap_or(u64::MAX);
        loop {
            let now = self.snapshot();
            if now.is_over || now.elapsed_us.saturating_sub(before.elapsed_us) >= over_us {
                return (before, now);
            }
            let left = Duration::from_micros(over_us - (now.elapsed_us - before.elapsed_us));
            std::thread::sleep(left.clamp(LOOK, LONGEST_LOOK));
        }
    }
}

pub(super) fn summarise(
    sources: &[SourceHandle],
    reports: Vec<(String, TaskReport)>,
    wall: Duration,
) -> JobSummary {
    let (names, reports): (Vec<_>, Vec<_>) = reports.into_iter().unzip();
    let count = |read: fn(&SourceHandle) -> u64| sources.iter().map(read).sum::<u64>();
    let mut summary = JobSummary {
        rows_in: count(|source| source.counters.rows_read.load(Ordering::Relaxed)),
        rows_out: 0,
        late: 0,
        partly_late: 0,
        null_time: count(|source| source.counters.null_time.load(Ordering::Relaxed)),
        future: count(|source| source.counters.future.load(Ordering::Relaxed)),
        truncations: count(|source| source.counters.truncations.load(Ordering::Relaxed)),
        malformed: count(|source| source.counters.malformed.load(Ordering::Relaxed)),
        filtered: 0,
        watermark: reports.iter().filter_map(|report| report.watermark).min(),
        wall,
        latency: all_arrived(&reports).summary(),
        rejected_samples: sources.iter().flat_map(|source| source.counters.samples()).collect(),
        operators: sources.iter().map(source_summary).collect(),
        late_rows: reports.iter().filter_map(|report| report.late_rows.clone()).collect(),
        tasks: Vec::new(),
    };
    for (name, report) in names.into_iter().zip(&reports) {
        let [busy, idle, back_pressured] = report.times;
        summary.tasks.push((name, busy, idle, back_pressured));
        if report.arrived.is_some() {
            summary.rows_out += report.operators.last().map_or(0, |sink| sink.rows_in);
        }
    }
    let operators: Vec<OperatorReport> = reports.into_iter().flat_map(|report| report.operators).collect();
    for operator in &operators {
        summary.late += operator.counts.late;
        summary.partly_late += operator.counts.partly_late;
        summary.null_time += operator.counts.null_time;
        summary.future += operator.counts.future;
        summary.filtered += operator.counts.filtered;
    }
    summary.operators.extend(together(operators));
    summary.operators.sort_by_key(|operator| operator.node);
    summary
}

/// A source takes what it reads; what it does not give is malformed or without time.
fn source_summary(source: &SourceHandle) -> OperatorSummary {
    let read = source.counters.rows_read.load(Ordering::Relaxed);
    let malformed = source.counters.malformed.load(Ordering::Relaxed);
    let null_time = source.counters.null_time.load(Ordering::Relaxed);
    let future = source.counters.future.load(Ordering::Relaxed);
    let given = read - malformed - null_time - future;
    OperatorSummary {
        node: source.node,
        name: source.name.clone(),
        subtasks: 1,
        rows_in: read,
        rows_out: given,
        counts: RowCounts { used: given, null_time, future, filtered: malformed, ..RowCounts::default() },
        latency: None,
    }
}

/// The subtasks of each operator as one line; the two phases of an aggregation stay apart.
fn together(reports: Vec<OperatorReport>) -> Vec<OperatorSummary> {
    let mut groups: Vec<(OperatorReport, usize)> = Vec::new();
    for report in reports {
        let same =
            groups.iter_mut().find(|(group, _)| group.node == report.node && group.name == report.name);
        match same {
            None => groups.push((report, 1)),
            Some((group, subtasks)) => {
                *subtasks += 1;
                group.rows_in += report.rows_in;
                group.rows_out += report.rows_out;
                group.latency.add(&report.latency);
                group.counts.add(&report.counts);
            }
        }
    }
    groups
        .into_iter()
        .map(|(report, subtasks)| OperatorSummary {
            node: report.node,
            latency: report.latency.summary(),
            name: report.name,
            subtasks,
            rows_in: report.rows_in,
            rows_out: report.rows_out,
            counts: report.counts,
        })
        .collect()
}

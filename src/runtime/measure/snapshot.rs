//! What is known of a job at one moment.

use std::sync::atomic::Ordering;

use super::super::graph::SourceHandle;
use super::super::source::SplitStatus;
use super::cells::{JobCells, OperatorCell, TaskCells};
use super::disorder::Disorder;
use super::latency::LatencySummary;
use super::times::TaskTimes;
use crate::operator::{OpenWindow, RowCounts, StateSize};
use crate::stream::{Clock, Watermark};

/// A job at one moment. Taking it makes no task wait.
#[derive(Debug, Clone, PartialEq)]
pub struct JobSnapshot {
    /// When: microseconds since 1970-01-01T00:00:00Z by the job's clock.
    pub as_of_us: i64,
    /// Since the start of the job, microseconds by the job's clock.
    pub elapsed_us: u64,
    /// All tasks are at their end.
    pub is_over: bool,
    /// Its tasks; one before those that read from it.
    pub tasks: Vec<TaskSnapshot>,
    /// The channels between them.
    pub channels: Vec<ChannelSnapshot>,
    /// Its sources.
    pub sources: Vec<SourceSnapshot>,
}

/// A task: a chain of operators that run in turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSnapshot {
    /// Its name.
    pub name: String,
    /// Time in which one of its operators worked, microseconds. The three add up to `total_us`.
    pub busy_us: u64,
    /// Time in which it waited for rows, microseconds.
    pub idle_us: u64,
    /// Time in which it waited for those who take its rows, microseconds.
    pub back_pressured_us: u64,
    /// From its start up to now or to its end, microseconds.
    pub total_us: u64,
    /// It is at its end.
    pub is_over: bool,
    /// It writes late rows.
    pub is_late: bool,
    /// Its operators, in the order in which rows pass them.
    pub operators: Vec<OperatorSnapshot>,
}

/// An operator in one task.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorSnapshot {
    /// Index of its node in the plan.
    pub node: usize,
    /// Its name.
    pub name: String,
    /// Which of its subtasks, from 0.
    pub subtask: usize,
    /// Rows that came in.
    pub rows_in: u64,
    /// Rows that went out.
    pub rows_out: u64,
    /// Batches that came in.
    pub batches_in: u64,
    /// Batches that went out.
    pub batches_out: u64,
    /// Bytes that came in, about; of a source those that it read.
    pub bytes_in: u64,
    /// Bytes that went out, about.
    pub bytes_out: u64,
    /// Time in which it worked, microseconds. The three add up to the time of its task.
    pub busy_us: u64,
    /// Time in which it had no rows, microseconds: nothing came, or an operator before it worked.
    pub idle_us: u64,
    /// Time in which it could not give its rows, microseconds: the channel was full, or an operator
    /// behind it in the task worked.
    pub back_pressured_us: u64,
    /// What became of the rows.
    pub counts: RowCounts,
    /// The last watermark that came in, before the end; `None` before the first.
    pub watermark_in: Option<Watermark>,
    /// The last watermark that went out, before the end; `None` before the first.
    pub watermark_out: Option<Watermark>,
    /// How long `watermark_in` is what it is, microseconds.
    pub watermark_age_us: Option<u64>,
    /// What it keeps.
    pub state: StateSize,
    /// Bytes of it that are on disk.
    pub spilled_bytes: u64,
    /// Its open windows, those that close first; 64 of them at most.
    pub windows: Vec<OpenWindow>,
    /// Markers from all sources to it.
    pub latency: Option<LatencySummary>,
    /// Markers by their origin: node and subtask of the source; `None` where they are not told apart.
    pub latency_by_source: Vec<(Option<(u32, u32)>, LatencySummary)>,
    /// Where the time of its rows went.
    pub times: RowTimes,
}

impl OperatorSnapshot {
    /// Whether it gives rows to a table or to the caller.
    pub fn is_sink(&self) -> bool {
        self.name.starts_with("Sink(")
    }
}

/// Where the time of rows went at an operator. Weighted by rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowTimes {
    /// At a source: from the read of a row to its way into the chain. At the first operator of
    /// another task: in the channel, and until the other inputs were as far.
    pub wait: Option<LatencySummary>,
    /// In the operator, or in the sink.
    pub compute: Option<LatencySummary>,
    /// Held until event time released it; counted from the first row since the last release.
    pub held: Option<LatencySummary>,
    /// At a sink: from the read of a row to its being written.
    pub total: Option<LatencySummary>,
}

/// A channel between tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelSnapshot {
    /// The task that gives; index into [`JobSnapshot::tasks`].
    pub from: usize,
    /// The task that takes; `None`: the caller.
    pub to: Option<usize>,
    /// It carries late rows.
    pub is_late: bool,
    /// Rows that wait in it.
    pub rows: usize,
    /// With so many rows it is full.
    pub capacity_rows: usize,
    /// The last watermark that was taken from it.
    pub watermark: Option<Watermark>,
    /// It does not count for the watermark of the task that takes.
    pub is_idle: bool,
    /// Its end was taken.
    pub is_ended: bool,
}

impl ChannelSnapshot {
    /// Rows that wait ÷ capacity, at most 1.
    pub fn usage(&self) -> f64 {
        (self.rows as f64 / self.capacity_rows.max(1) as f64).min(1.0)
    }
}

/// A table that is read.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceSnapshot {
    /// Index of its node in the plan.
    pub node: usize,
    /// Its name: `Source(t)`.
    pub name: String,
    /// Rows read, those rejected included.
    pub rows_read: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Rows that were not given on.
    pub dropped: LateCounts,
    /// Time that readers spent to read rows, microseconds.
    pub read_us: u64,
    /// How far behind the clock the event time of the last row was when it was read, microseconds.
    pub fetch_event_time_lag_us: Option<i64>,
    /// Its splits; of those at an end the last thousand.
    pub splits: Vec<SplitStatus>,
    /// How far its rows are out of order.
    pub disorder: Disorder,
}

/// Rows that a source did not give on, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LateCounts {
    /// Could not be read.
    pub malformed: u64,
    /// Without event time.
    pub null_time: u64,
    /// Too far ahead of their arrival.
    pub future: u64,
}

impl JobSnapshot {
    pub(in crate::runtime) fn take(cells: &JobCells, sources: &[SourceHandle]) -> Self {
        let now_us = cells.clock.elapsed_us();
        let sources: Vec<_> = sources.iter().map(source).collect();
        let tasks: Vec<_> = cells.tasks.iter().map(|one| task(one, &sources, cells.clock.as_ref())).collect();
        let channel = |(from, to, is_late, probe): &(usize, Option<usize>, bool, _)| {
            let probe: &super::super::channel::ChannelProbe = probe;
            let (rows, capacity_rows) = probe.rows();
            ChannelSnapshot {
                from: *from,
                to: *to,
                is_late: *is_late,
                rows,
                capacity_rows,
                watermark: probe.watermark(),
                is_idle: probe.is_idle(),
                is_ended: probe.is_ended(),
            }
        };
        Self {
            as_of_us: cells.clock.wall_us(),
            elapsed_us: now_us.saturating_sub(cells.started_us).max(0).unsigned_abs(),
            is_over: tasks.iter().all(|task| task.is_over),
            channels: cells.channels.iter().map(channel).collect(),
            tasks,
            sources,
        }
    }

    /// The same with the windows that have groups of the key that question `number` was about, and the
    /// operators that have not answered it: they have no windows here.
    pub(in crate::runtime) fn take_of_key(
        cells: &JobCells,
        sources: &[SourceHandle],
        number: u64,
    ) -> (Self, Vec<String>) {
        let mut snapshot = Self::take(cells, sources);
        let mut silent = Vec::new();
        for (task, cells) in snapshot.tasks.iter_mut().zip(&cells.tasks) {
            for (operator, cell) in task.operators.iter_mut().zip(&cells.operators) {
                let answer = cell.answered(number);
                if answer.is_none() && cell.answers && !task.is_over {
                    silent.push(format!("{}[{}]", cell.name, cell.subtask));
                }
                operator.windows = answer.filter(|_| !task.is_over).unwrap_or_default();
            }
        }
        (snapshot, silent)
    }

    /// All operators, task by task.
    pub fn operators(&self) -> impl Iterator<Item = &OperatorSnapshot> {
        self.tasks.iter().flat_map(|task| &task.operators)
    }
}

fn source(handle: &SourceHandle) -> SourceSnapshot {
    let counters = &handle.counters;
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let splits = counters.splits.list(&handle.name);
    SourceSnapshot {
        node: handle.node,
        name: handle.name.clone(),
        rows_read: read(&counters.rows_read),
        bytes_read: read(&counters.bytes_read),
        dropped: LateCounts {
            malformed: read(&counters.malformed),
            null_time: read(&counters.null_time),
            future: read(&counters.future),
        },
        read_us: read(&counters.read_us),
        fetch_event_time_lag_us: splits.iter().filter_map(|split| split.lag_us).min(),
        splits,
        disorder: counters.disorder.read(),
    }
}

fn task(cells: &TaskCells, sources: &[SourceSnapshot], clock: &dyn Clock) -> TaskSnapshot {
    let times = cells.clock.read();
    let now_us = clock.elapsed_us();
    let operators = cells.operators.iter().enumerate();
    let operators = operators.map(|(place, cell)| {
        let mut operator = operator(cell, place, &times, now_us);
        let source = sources.iter().find(|source| source.node == cell.node);
        if let Some(source) = source.filter(|_| place == 0 && cells.is_source) {
            let LateCounts { malformed, null_time, future } = source.dropped;
            operator.rows_in = source.rows_read;
            operator.bytes_in = source.bytes_read;
            operator.counts = RowCounts {
                used: operator.rows_out,
                filtered: malformed,
                null_time,
                future,
                held: source.rows_read.saturating_sub(operator.rows_out + malformed + null_time + future),
                ..RowCounts::default()
            };
        }
        operator
    });
    TaskSnapshot {
        name: cells.name.clone(),
        busy_us: times.all_busy_us(),
        idle_us: times.idle_us,
        back_pressured_us: times.back_pressured_us,
        total_us: times.total_us,
        is_over: times.is_over,
        is_late: cells.is_late,
        operators: operators.collect(),
    }
}

fn operator(cell: &OperatorCell, place: usize, times: &TaskTimes, now_us: i64) -> OperatorSnapshot {
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let watermark = |cell: &std::sync::atomic::AtomicI64| {
        Some(Watermark(cell.load(Ordering::Relaxed))).filter(|known| *known > Watermark::MIN)
    };
    let (before, rest) = times.busy_us.split_at(place.min(times.busy_us.len()));
    let (own, behind) = rest.split_first().map_or((0, &[][..]), |(own, behind)| (*own, behind));
    let recorders = cell.latency.read();
    let since_us = cell.watermark_since_us.load(Ordering::Relaxed);
    OperatorSnapshot {
        node: cell.node,
        name: cell.name.clone(),
        subtask: cell.subtask,
        rows_in: read(&cell.rows_in),
        rows_out: read(&cell.rows_out),
        batches_in: read(&cell.batches_in),
        batches_out: read(&cell.batches_out),
        bytes_in: read(&cell.bytes_in),
        bytes_out: read(&cell.bytes_out),
        busy_us: own,
        idle_us: times.idle_us + before.iter().sum::<u64>(),
        back_pressured_us: times.back_pressured_us + behind.iter().sum::<u64>(),
        counts: cell.counts(),
        watermark_in: watermark(&cell.watermark_in),
        watermark_out: watermark(&cell.watermark_out),
        watermark_age_us: (since_us > i64::MIN)
            .then(|| now_us.saturating_sub(since_us).max(0).unsigned_abs()),
        state: cell.state(),
        spilled_bytes: read(&cell.spilled),
        windows: cell.windows(),
        latency: recorders.all_markers().summary(),
        latency_by_source: recorders
            .markers
            .iter()
            .filter_map(|(origin, recorder)| Some((*origin, recorder.summary()?)))
            .collect(),
        times: RowTimes {
            wait: recorders.wait.summary(),
            compute: recorders.compute.summary(),
            held: recorders.held.summary(),
            total: recorders.total.summary(),
        },
    }
}

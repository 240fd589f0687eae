//! What tasks count while they run, and the summary of a job.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::channel::lock;
use super::measure::{DisorderCell, LatencyRecorder, LatencySummary};
use super::source::SplitBoard;
use crate::connector::RejectedRow;
use crate::operator::RowCounts;
use crate::stream::Watermark;

/// How many rejected rows a job keeps to show.
const SAMPLES: usize = 5;

/// Counters of a source that are read while it runs.
#[derive(Debug, Default)]
pub(super) struct SourceCounters {
    /// Rows read, those rejected included.
    pub(super) rows_read: AtomicU64,
    /// Rows that could not be read.
    pub(super) malformed: AtomicU64,
    /// Rows without event time that the source dropped.
    pub(super) null_time: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    /// Rows too far ahead of their arrival, which the source dropped.
    pub(super) future: AtomicU64,
    /// Files that were cut short while they were read.
    pub(super) truncations: AtomicU64,
    /// Time that readers spent to read rows, microseconds.
    pub(super) read_us: AtomicU64,
    /// How far rows are out of order.
    pub(super) disorder: DisorderCell,
    pub(super) splits: SplitBoard,
    samples: Mutex<Vec<RejectedSample>>,
}

impl SourceCounters {
    pub(super) fn reject(&self, split: &str, rows: Vec<RejectedRow>) {
        self.malformed.fetch_add(rows.len() as u64, Ordering::Relaxed);
        let mut samples = lock(&self.samples);
        let room = SAMPLES.saturating_sub(samples.len());
        samples
            .extend(rows.into_iter().take(room).map(|row| RejectedSample { split: split.to_owned(), row }));
    }

    pub(super) fn samples(&self) -> Vec<RejectedSample> {
        lock(&self.samples).clone()
    }
}

/// A row that could not be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedSample {
    /// The split: a path.
    pub split: String,
    /// The row.
    pub row: RejectedRow,
}

/// What one subtask of an operator did.
#[derive(Debug, Clone)]
pub(super) struct OperatorReport {
    pub(super) node: usize,
    pub(super) name: String,
    pub(super) rows_in: u64,
    pub(super) rows_out: u64,
    pub(super) counts: RowCounts,
    pub(super) latency: LatencyRecorder,
}

impl OperatorReport {
    pub(super) fn new(node: usize, name: &str) -> Self {
        Self {
            node,
            name: name.to_owned(),
            rows_in: 0,
            rows_out: 0,
            counts: RowCounts::default(),
            latency: LatencyRecorder::new(),
        }
    }
}

/// What a task leaves when it ends.
#[derive(Debug, Default, Clone)]
pub(super) struct TaskReport {
    pub(super) operators: Vec<OperatorReport>,
    /// Busy, idle, back-pressured.
    pub(super) times: [Duration; 3],
    /// The last watermark before the end of the input, if it reads a table.
    pub(super) watermark: Option<Watermark>,
    /// Markers that came to a sink.
    pub(super) arrived: Option<LatencyRecorder>,
    /// A table that the task wrote late rows to, and how many.
    pub(super) late_rows: Option<(String, u64)>,
}

/// All subtasks of an operator together.
#[derive(Debug, Clone)]
pub struct OperatorSummary {
    /// Index of the node in the plan.
    pub node: usize,
    /// Its name.
    pub name: String,
    /// How many subtasks ran it.
    pub subtasks: usize,
    /// Rows it took.
    pub rows_in: u64,
    /// Rows it gave.
    pub rows_out: u64,
    /// What became of the rows it took.
    pub counts: RowCounts,
    /// From the sources to it.
    pub latency: Option<LatencySummary>,
}

impl OperatorSummary {
    /// Whether every row that it took is accounted for.
    pub fn reconciles(&self) -> bool {
        self.counts.account_for(self.rows_in)
    }
}

/// What a job did.
#[derive(Debug, Clone)]
pub struct JobSummary {
    /// Rows that the sources read, those rejected included.
    pub rows_in: u64,
    /// Rows that the sinks took.
    pub rows_out: u64,
    /// Late for all of their windows.
    pub late: u64,
    /// Late for some of their windows.
    pub partly_late: u64,
    /// Without event time.
    pub null_time: u64,
    /// Too far ahead.
    pub future: u64,
    /// Could not be read.
    pub malformed: u64,
    /// Files that were cut short while they were read, and were begun anew.
    pub truncations: u64,
    /// Removed by conditions and limits.
    pub filtered: u64,
    /// The last watermark that the rows gave; `None` without event time or rows.
    pub watermark: Option<Watermark>,
    /// From start to end.
    pub wall: Duration,
    /// From the sources to the sinks.
    pub latency: Option<LatencySummary>,
    /// The first rows that could not be read.
    pub rejected_samples: Vec<RejectedSample>,
    /// Operators in plan order.
    pub operators: Vec<OperatorSummary>,
    /// Tables that took late rows, with the number of rows; no part of `rows_out`.
    pub late_rows: Vec<(String, u64)>,
    /// Where the tasks' time went, in plan order: (task, busy, idle, back-pressured).
    pub tasks: Vec<(String, Duration, Duration, Duration)>,
}

impl JobSummary {
    /// Whether every operator accounts for every row that it took.
    pub fn reconciles(&self) -> bool {
        self.operators.iter().all(OperatorSummary::reconciles)
    }

    /// The same for programs. Shape: an object of numbers; `watermark` as text or null; lists of operators, of
    /// tables that took late rows, of rows that could not be read.
    pub fn to_json(&self) -> Value {
        let us = |length: Duration| u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        let latency = self.latency.map(|one| {
            json!({ "p50_us": one.p50_us, "p95_us": one.p95_us, "p99_us": one.p99_us, "max_us": one.max_us })
        });
        let operator = |one: &OperatorSummary| {
            json!({
                "node": one.node,
                "operator": one.name,
                "subtasks": one.subtasks,
                "rows_in": one.rows_in,
                "rows_out": one.rows_out,
                "used": one.counts.used,
                "late": one.counts.late,
                "partly_late": one.counts.partly_late,
                "null_time": one.counts.null_time,
                "future": one.counts.future,
                "filtered": one.counts.filtered,
                "held": one.counts.held,
            })
        };
        let late_rows = self.late_rows.iter().map(|(table, rows)| json!({ "table": table, "rows": rows }));
        let rejected = self.rejected_samples.iter().map(|sample| {
            let row = &sample.row;
            json!({ "split": sample.split, "line": row.line, "reason": row.reason, "text": row.text })
        });
        json!({
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "late": self.late,
            "partly_late": self.partly_late,
            "null_time": self.null_time,
            "future": self.future,
            "malformed": self.malformed,
            "filtered": self.filtered,
            "truncations": self.truncations,
            "watermark": self.watermark.map(|watermark| super::moment_text(watermark.0)),
            "wall_us": us(self.wall),
            "latency": latency,
            "reconciles": self.reconciles(),
            "late_rows": late_rows.collect::<Vec<_>>(),
            "rejected": rejected.collect::<Vec<_>>(),
            "operators": self.operators.iter().map(operator).collect::<Vec<_>>(),
        })
    }
}

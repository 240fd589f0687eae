//! The elements of a stream.

use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;

use super::watermark::{RunningWatermark, Watermark};

/// What travels through a channel, in order. Closed on purpose: match it without a wildcard.
#[derive(Debug, Clone)]
pub enum StreamElement {
    /// Rows.
    Batch(StreamBatch),
    /// Event time has passed this point; strictly increasing.
    Watermark(Watermark),
    /// The stream went idle, or woke up.
    Status(StreamStatus),
    /// A probe; never overtakes the batches before it.
    Latency(LatencyMarker),
    /// The last element, after `Watermark::MAX`; nothing follows.
    End,
}

/// Whether a stream takes part in event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamStatus {
    /// Its watermark counts.
    Active,
    /// It is left out of the minimum.
    Idle,
}

/// Rows, with what each row needs beside its columns.
#[derive(Debug, Clone)]
pub struct StreamBatch {
    /// The user's columns.
    pub rows: RecordBatch,
    /// What each row does to the result; `None`: all rows are inserts. A `-U` stands right before
    /// its `+U`, in the same batch.
    pub kinds: Option<RowKinds>,
    /// The watermark that held just before each row; `None`: the stream has no event time.
    pub running: Option<RunningWatermark>,
    /// When the source read the oldest of these rows.
    pub arrived: Instant,
}

impl StreamBatch {
    /// Inserts, without event time.
    pub fn inserts(rows: RecordBatch, arrived: Instant) -> Self {
        Self { rows, kinds: None, running: None, arrived }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// `length` rows from `offset`, without a copy.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Self {
            rows: self.rows.slice(offset, length),
            kinds: self.kinds.as_ref().map(|kinds| kinds.slice(offset, length)),
            running: self.running.as_ref().map(|running| running.slice(offset, length)),
            arrived: self.arrived,
        }
    }
}

/// What a row does to the result so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RowKind {
    /// `+I`: a new row.
    Insert,
    /// `-U`: the old form of a row that changes.
    UpdateBefore,
    /// `+U`: the new form of it.
    UpdateAfter,
    /// `-D`: the row is gone.
    Delete,
}

impl RowKind {
    /// `+I`, `-U`, `+U` or `-D`.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Insert => "+I",
            Self::UpdateBefore => "-U",
            Self::UpdateAfter => "+U",
            Self::Delete => "-D",
        }
    }
}

/// One row kind a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowKinds(Arc<[RowKind]>, usize, usize);

impl RowKinds {
    /// Takes one kind a row.
    pub fn new(kinds: impl Into<Arc<[RowKind]>>) -> Self {
        let kinds = kinds.into();
        let length = kinds.len();
        Self(kinds, 0, length)
    }

    /// One kind a row.
    pub fn values(&self) -> &[RowKind] {
        &self.0[self.1..self.1 + self.2]
    }

    /// The kinds of `length` rows from `offset`, without a copy.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        debug_assert!(offset + length <= self.2, "slice past the end");
        Self(Arc::clone(&self.0), self.1 + offset, length)
    }
}

/// A probe that a source sends to measure how long rows take to a place downstream.
#[derive(Debug, Clone, Copy)]
pub struct LatencyMarker {
    /// The plan node of the source that made it.
    pub source: u32,
    /// The source's subtask.
    pub subtask: u32,
    /// When it was made; monotonic.
    pub made: Instant,
}

//! What a job measures while it runs: written by the thread that owns the work, read by anybody.
//!
//! Counters are atomics with one writer. Where a reader needs several of them to agree (the times of a
//! task), it reads again until they do; the writer never waits for it. Histograms stand behind a
//! lock that the writer only tries: what it can't record now it records with the next value.
//!
//! Invariant: nothing is measured per row, but for a sample of the rows' lateness.

mod cells;
mod disorder;
mod latency;
mod snapshot;
mod times;

pub(super) use cells::{JobCells, OperatorCell, Questions, TaskCells, add};
pub use disorder::{Disorder, DisorderStep};
pub(super) use disorder::{DisorderCell, DisorderProbe};
pub use latency::{LatencyGranularity, LatencySummary};
pub(super) use latency::{LatencyRecorder, MarkerClock, Measured, Recorders};
pub use snapshot::{
    ChannelSnapshot, JobSnapshot, LateCounts, OperatorSnapshot, RowTimes, SourceSnapshot, TaskSnapshot,
};
pub(super) use times::{Activity, TaskClock};

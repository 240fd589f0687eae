//! Jobs: tasks on threads, row-bounded measured channels, latency markers, metrics.
//!
//! A [`Job`] turns a plan into tasks. A task is a thread: it merges its inputs into one stream in an
//! order that is a function of the rows alone (`merge`), drives a chain of operators, and hands the
//! result on. Readers of splits run on threads of their own (`source`), because they block.
//!
//! [`Stepped`] runs the same tasks and readers one piece of work at a time in the caller's thread, in
//! an order that a seed tells, for tests on a clock that stands still.
//!
//! Invariant: no SQL text and no session; a job is made from a `StreamPlan` and nothing else. Every
//! queue has a bound in rows.

mod channel;
mod checkpoint;
mod control;
mod cut;
mod diagnose;
mod exchange;
mod graph;
mod job;
mod measure;
mod memory;
mod merge;
mod meter;
mod metrics;
mod sink;
mod source;
mod stepped;
mod task;
#[cfg(test)]
mod tests;

pub use checkpoint::{CheckpointOptions, CheckpointStart, CheckpointStatus};
pub(crate) use checkpoint::{below, is_in, is_of_a_job, is_seen_in, is_there, is_used};
#[doc(hidden)]
pub use control::JobControl;
pub use diagnose::{
    Bottleneck, BottleneckKind, Diagnosis, Finding, FindingKind, Holder, OperatorLoad, Pool, Pressure,
    WatermarkAt, WindowAt, diagnose,
};
pub(crate) use diagnose::{delay_text, interval_sql, length_text, moment_text};
#[doc(hidden)]
pub use job::{Job, JobClock, JobOptions, RunningJob};
pub use job::{Monitor, Progress};
pub use measure::{
    ChannelSnapshot, Disorder, DisorderStep, JobSnapshot, LateCounts, LatencyGranularity, LatencySummary,
    OperatorSnapshot, RowTimes, SourceSnapshot, TaskSnapshot,
};
#[doc(hidden)]
pub use memory::{MemoryLimit, StateMemory, machine_memory};
pub use metrics::{JobSummary, OperatorSummary, RejectedSample};
pub use source::{SplitState, SplitStatus};
#[doc(hidden)]
pub use stepped::{Schedule, Stepped};

pub use crate::operator::{OpenWindow, RowCounts, StateSize};

//! Jobs: tasks on threads, row-bounded measured channels, latency markers, metrics.
//!
//! Invariant: no SQL text and no session; a job is made from a `StreamPlan` and nothing else.

//! Statements to a [`StreamPlan`]: the planner as a library.
//!
//! Invariant: a pure function of (statement, catalog, settings). No file, no clock, no task.

mod function;
mod stream_plan;

pub use stream_plan::*;

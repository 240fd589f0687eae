//! Statements to a [`StreamPlan`]: the planner as a library.
//!
//! Invariant: a pure function of (statement, catalog, settings). No file, no clock, no task.

mod function;
mod local_schema;
mod stream_plan;

pub use local_schema::{grouping_id, grouping_id_type, local_schema};
pub use stream_plan::*;

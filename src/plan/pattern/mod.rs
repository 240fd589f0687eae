//! MATCH_RECOGNIZE: its clause, and its node in a logical plan.
//!
//! Invariant: whether rows are in event-time order is not decided here but in lowering.

mod bind;
mod node;
mod shape;
mod values;

pub(super) use bind::{Clause, bind_pattern};
pub(super) use node::{PatternNode, Value, ValueKind, VariableDefinition, value_column};

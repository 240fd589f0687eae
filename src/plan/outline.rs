//! What a plan is made of, in words: what a later plan is compared with that is to go on with its state.
//!
//! Invariant: nothing here is read by the plan itself.

use super::explain::{columns, details};
use super::{NodeId, Operation, PlanNode, SinkTarget, StreamPlan};

/// A node of a plan in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlanPart {
    pub(crate) name: String,
    /// What EXPLAIN says that it does.
    pub(crate) does: String,
    /// The columns that it gives, with their types.
    pub(crate) columns: String,
    pub(crate) inputs: Vec<NodeId>,
    pub(crate) role: Role,
}

/// What a part means to those who go on with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    /// It reads this table.
    Reads(String),
    /// It writes this table, or is the end of a query.
    Writes(String),
    /// What it gives depends on rows before.
    Keeps,
    /// Each row for itself.
    Passes,
}

impl StreamPlan {
    /// Its nodes, in their order.
    pub(crate) fn outline(&self) -> Vec<PlanPart> {
        let part = |node: &PlanNode| {
            let input = node.inputs.first().and_then(|input| self.nodes.get(*input));
            PlanPart {
                name: node.operation.name().to_owned(),
                does: details(node, input.map(|input| input.schema.as_ref())),
                columns: columns(&node.schema),
                inputs: node.inputs.clone(),
                role: role(&node.operation),
            }
        };
        self.nodes.iter().map(part).collect()
    }
}

fn role(operation: &Operation) -> Role {
    match operation {
        Operation::Source(source) => Role::Reads(source.table.name.clone()),
        Operation::Sink(sink) => match &sink.target {
            SinkTarget::Result => Role::Writes(String::new()),
            SinkTarget::Table(table) => Role::Writes(table.name.clone()),
        },
        Operation::Values(_)
        | Operation::Calc(_)
        | Operation::Expand(_)
        | Operation::LookupJoin(_)
        | Operation::Unnest(_)
        | Operation::Union
        | Operation::Exchange(_)
        | Operation::LateRows(_) => Role::Passes,
        Operation::WindowRows(_)
        | Operation::WindowAggregate(_)
        | Operation::GroupChanges(_)
        | Operation::WindowChanges(_)
        | Operation::Normalize(_)
        | Operation::WindowJoin(_)
        | Operation::TemporalJoin(_)
        | Operation::RegularJoin(_)
        | Operation::IntervalJoin(_)
        | Operation::Over(_)
        | Operation::TopN(_)
        | Operation::MatchRecognize(_)
        | Operation::TemporalSort(_)
        | Operation::Limit(_)
        | Operation::Sort(_) => Role::Keeps,
    }
}

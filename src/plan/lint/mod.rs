//! What a plan does that its author may not mean: shown by EXPLAIN, and alone by `tidegate explain
//! --lint`.
//!
//! A [`Lint`] has a code, a place in the query and a way out. [`of_time`] looks at event time,
//! [`of_tables`] at what connectors know of the tables without reading their rows.
//!
//! Invariant: nothing is refused here; what can't run is an error of planning.

mod tables;
mod time;

use std::sync::Arc;

use serde_json::{Value, json};

use super::places::Places;
use super::{NodeId, Operation, SourceNode, StreamPlan};
use crate::error::{Code, Error, SourceText, Span};

pub(super) use tables::of_tables;
pub(super) use time::of_time;

/// Something that a person may not mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lint {
    /// Its kind: `L001` to `L006`.
    pub code: Code,
    /// What was found: lower case, without period.
    pub message: String,
    /// Where it stands in the query; `None` where it stands in a view.
    pub span: Option<Span>,
    /// What to do: sentences that start with a verb.
    pub hint: String,
}

impl Lint {
    fn new(code: Code, message: String, span: Option<Span>, hint: String) -> Self {
        Self { code, message, span, hint }
    }

    /// Two lines for EXPLAIN: code, place and message; then the way out.
    pub fn text(&self) -> String {
        let place = match self.span {
            Some(span) => format!(" at {}:{}", span.start.line, span.start.column),
            None => String::new(),
        };
        format!("lint[{}]{place}: {}\n  hint: {}\n", self.code.0, self.message, self.hint)
    }

    /// As people read it: code, message, the line of SQL with a caret, the hint.
    pub fn render(&self, source: &Arc<SourceText>) -> String {
        self.as_error().in_source(source).render_as("lint")
    }

    /// As an error, which knows how to show its place in the text.
    pub(crate) fn as_error(&self) -> Error {
        Error::plan(self.code, self.message.clone()).at(self.span).hint(self.hint.clone())
    }

    /// For programs.
    pub fn to_json(&self) -> Value {
        json!({
            "code": self.code.0,
            "message": self.message,
            "line": self.span.map(|span| span.start.line),
            "column": self.span.map(|span| span.start.column),
            "hint": self.hint,
        })
    }
}

/// What the passes look at: the nodes of one query, and where its parts stand.
struct Query<'a> {
    plan: &'a StreamPlan,
    places: &'a Places,
    /// The nodes of the query, in plan order.
    nodes: Vec<NodeId>,
}

impl<'a> Query<'a> {
    fn of(plan: &'a StreamPlan, sink: NodeId, places: &'a Places) -> Self {
        let (mut nodes, mut open) = (Vec::new(), vec![sink]);
        while let Some(node) = open.pop() {
            if !nodes.contains(&node) {
                nodes.push(node);
                open.extend(&plan.nodes[node].inputs);
            }
        }
        nodes.sort_unstable();
        Self { plan, places, nodes }
    }

    /// The tables that it reads.
    fn sources(&self) -> impl Iterator<Item = (NodeId, &'a SourceNode)> {
        self.nodes.iter().filter_map(|node| match &self.plan.nodes[*node].operation {
            Operation::Source(source) => Some((*node, source)),
            _ => None,
        })
    }

    /// Where the query names the table.
    fn place_of(&self, source: &SourceNode) -> Option<Span> {
        self.places.of_name(&source.table.name)
    }
}

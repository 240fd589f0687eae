//! A cut through a job: all that its tasks keep, and what is on its way between them, at one moment at which
//! none of them works.
//!
//! Barriers that wait at an input would hold up rows that come before others in event time, and so change in what
//! order rows are merged. Here nobody waits for a barrier: what is on its way is part of the cut, and is given
//! again, in its place, before anything new.
//!
//! Invariant: nothing here knows files. What a cut is written as is a function of the cut ([`bytes`]).

pub(super) mod bytes;
pub(super) mod pause;

use serde_json::Value;

use super::source::{LeftSplit, SplitMark};
use crate::error::{Error, code};
use crate::operator::{OperatorState, RowCounts};
use crate::plan::NodeId;
use crate::stream::StreamElement;

/// A job between two pieces of work.
#[derive(Debug, Clone, Default)]
pub(super) struct JobCut {
    /// What the job's clock showed, microseconds.
    pub(super) elapsed_us: i64,
    pub(super) shape: Shape,
    /// In the order of the graph.
    pub(super) tasks: Vec<TaskCut>,
}

/// How the tasks of a plan are laid out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Subtasks of what stands behind an exchange.
    pub(super) parallelism: usize,
    /// Exchanges have tasks of their own, though there may be one of each.
    pub(super) is_spread: bool,
}

/// A task between two pieces of work.
#[derive(Debug, Clone, Default)]
pub(super) struct TaskCut {
    pub(super) name: String,
    /// The node at which its rows come together.
    pub(super) stage: NodeId,
    /// It has given its end.
    pub(super) is_over: bool,
    /// Those who take its side outputs were told of its end.
    pub(super) is_closed: bool,
    /// The last watermark of its merged input before the end.
    pub(super) watermark: Option<i64>,
    pub(super) merge: MergeCut,
    pub(super) links: Vec<LinkCut>,
    /// Of a task that ends in a sink.
    pub(super) sink: Option<SinkCut>,
    /// The node of the table that it reads.
    pub(super) source: Option<NodeId>,
    /// How the splits of the table are left.
    pub(super) splits: Vec<SplitMark>,
}

/// What a merge keeps.
#[derive(Debug, Clone, Default)]
pub(super) struct MergeCut {
    pub(super) given: i64,
    pub(super) is_idle: bool,
    pub(super) is_ended: bool,
    pub(super) inputs: Vec<InputCut>,
    /// Where the inputs of the second stream begin.
    pub(super) second_from: Option<usize>,
}

/// An input of a merge.
#[derive(Debug, Clone, Default)]
pub(super) struct InputCut {
    pub(super) bound: i64,
    pub(super) is_finished: bool,
    pub(super) is_idle: bool,
    /// Nothing follows what was on its way: it comes from a run with other subtasks.
    pub(super) is_left_over: bool,
    /// What was on its way.
    pub(super) pending: Vec<StreamElement>,
}

/// An operator of a task.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkCut {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) rows_in: u64,
    pub(super) rows_out: u64,
    pub(super) counts: RowCounts,
    /// The last watermark that it gave.
    pub(super) said: Option<i64>,
    pub(super) state: OperatorState,
}

/// A sink.
#[derive(Debug, Clone, Default)]
pub(super) struct SinkCut {
    pub(super) node: NodeId,
    pub(super) rows: u64,
    /// What the table's sink wants to know; `None`: nothing.
    pub(super) prepared: Option<Value>,
    /// Rows of a query that its caller has not taken.
    pub(super) pending: Vec<StreamElement>,
}

/// `K003`: the cut is not one of this job.
pub(super) fn foreign(what: impl std::fmt::Display) -> Error {
    Error::run(code::FOREIGN_CHECKPOINT, format!("the checkpoint is of another query: {what}"))
        .hint("Run the query that it is of, or begin anew with another folder for checkpoints.")
}

impl JobCut {
    /// The task that read the table of a node.
    pub(super) fn of_source(&self, node: NodeId) -> Option<&TaskCut> {
        self.tasks.iter().find(|task| task.source == Some(node))
    }

    /// What the sink of a node was prepared with.
    pub(super) fn prepared(&self, node: NodeId) -> Option<&Value> {
        let mut sinks = self.tasks.iter().filter_map(|task| task.sink.as_ref());
        sinks.find(|sink| sink.node == node)?.prepared.as_ref()
    }

    /// Whether all of it has come to its end.
    pub(super) fn is_over(&self) -> bool {
        self.tasks.iter().all(|task| task.is_over)
    }
}

impl TaskCut {
    /// How the splits are left that it read.
    pub(super) fn left_splits(&self) -> Vec<LeftSplit<'_>> {
        let ends = |element: &StreamElement| matches!(element, StreamElement::End);
        let is_over = |input: Option<&InputCut>| {
            self.is_over
                || self.merge.is_ended
                || input.is_some_and(|input| input.is_finished || input.pending.iter().any(ends))
        };
        let inputs = self.splits.iter().enumerate();
        inputs
            .map(|(place, mark)| LeftSplit { mark, is_over: is_over(self.merge.inputs.get(place)) })
            .collect()
    }
}

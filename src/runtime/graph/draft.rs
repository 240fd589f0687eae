//! Tasks whose end is not known yet.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::Builder;
use crate::plan::NodeId;
use crate::runtime::channel::{Receiver, Sender, Signal};
use crate::runtime::exchange::Outputs;
use crate::runtime::measure::{OperatorCell, TaskCells, TaskClock};
use crate::runtime::merge::{Inputs, Merge, MergeOrder, Second};
use crate::runtime::meter::Meter;
use crate::runtime::metrics::OperatorReport;
use crate::runtime::sink::SinkEnd;
use crate::runtime::task::{ChannelInputs, End, Link, LooseLink, Markers, Place, Task, TaskProgress};
use crate::stream::micros;

/// A task whose end is not known yet.
pub(super) struct Draft {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) signal: Arc<Signal>,
    pub(super) inputs: Box<dyn Inputs>,
    pub(super) order: MergeOrder,
    /// Of the merged input.
    pub(super) schema: SchemaRef,
    /// What gives it rows, where that is a node of the plan: node and name.
    pub(super) head: Option<(NodeId, String)>,
    pub(super) chain: Vec<LooseLink>,
    pub(super) markers: Option<Markers>,
    /// Where rows go that the source can't read.
    pub(super) rejects: Option<Arc<Sender>>,
    /// The table, if the task writes late rows.
    pub(super) late_table: Option<String>,
    pub(super) reads_table: bool,
    /// Of a join: the other stream that its task takes.
    pub(super) second: Option<Second>,
    /// Its inputs are the subtasks of one stage.
    pub(super) in_step: bool,
}

/// Where the chain of a task ends.
pub(super) enum Ending {
    Outputs(Outputs),
    /// The node and its name.
    Sink(SinkEnd, NodeId, String),
}

impl Builder<'_> {
    pub(super) fn draft(
        &self,
        name: &str,
        stage: NodeId,
        inputs: Box<dyn Inputs>,
        order: MergeOrder,
        schema: &SchemaRef,
    ) -> Draft {
        Draft {
            name: name.to_owned(),
            place: Place { stage, subtask: 0, keys: Vec::new() },
            signal: Arc::new(Signal::default()),
            inputs,
            order,
            schema: Arc::clone(schema),
            head: None,
            chain: Vec::new(),
            markers: None,
            rejects: None,
            late_table: None,
            reads_table: false,
            second: None,
            in_step: false,
        }
    }

    pub(super) fn joined(
        &self,
        name: &str,
        stage: NodeId,
        receivers: Vec<Receiver>,
        signal: Arc<Signal>,
        order: MergeOrder,
        schema: &SchemaRef,
    ) -> Draft {
        let mut draft = self.draft(name, stage, Box::new(ChannelInputs::new(receivers)), order, schema);
        draft.signal = signal;
        draft
    }

    /// Where the operators of a task tell what they do.
    fn cells(&self, draft: &Draft, ending: &Ending) -> Arc<TaskCells> {
        let granularity = self.options.latency_granularity;
        let cell = |node, name: &str, answers| {
            Arc::new(OperatorCell::new(node, name, draft.place.subtask, answers, granularity))
        };
        let mut operators: Vec<_> = draft.head.iter().map(|(node, name)| cell(*node, name, false)).collect();
        let links = draft.chain.iter().map(LooseLink::facts);
        operators.extend(links.map(|(node, name)| cell(node, name, true)));
        match ending {
            Ending::Sink(_, node, name) => operators.push(cell(*node, name, false)),
            Ending::Outputs(_) if operators.is_empty() => operators.push(cell(0, &draft.name, false)),
            Ending::Outputs(_) => {}
        }
        let clock = TaskClock::new(Arc::clone(&self.options.clock.0), operators.len());
        let is_measured = self.options.measures;
        let clock = if is_measured { clock } else { clock.off() };
        Arc::new(TaskCells {
            name: draft.name.clone(),
            clock,
            operators,
            is_measured,
            questions: Arc::clone(&self.graph.cells.questions),
            signal: Arc::clone(&draft.signal),
            is_source: draft.head.is_some(),
            is_late: draft.late_table.is_some(),
        })
    }

    pub(super) fn complete(&mut self, draft: Draft, ending: Ending) {
        let batch_rows = self.options.batch_rows;
        let cells = self.cells(&draft, &ending);
        let first = usize::from(draft.head.is_some());
        let places = draft.chain.into_iter().zip(first..);
        let mut chain: Vec<Link> = places.map(|(link, place)| link.at(&cells, place)).collect();
        let clock = Arc::clone(&self.options.clock.0);
        let now_us = clock.elapsed_us();
        let mut has_timers = false;
        chain.iter_mut().for_each(|link| has_timers |= link.open(now_us));
        let end = match ending {
            Ending::Outputs(outputs) => End::Outputs(outputs),
            Ending::Sink(sink, node, name) => {
                let meter = Meter::new(&cells, cells.operators.len() - 1);
                End::Sink(sink, Box::new(OperatorReport::new(node, &name)), Box::new(meter))
            }
        };
        self.graph.tasks.push(Task {
            name: draft.name,
            place: draft.place,
            signal: draft.signal,
            input: Merge::new(draft.inputs, draft.order, draft.schema, batch_rows)
                .in_step(draft.in_step)
                .of_two(draft.second),
            chain,
            end,
            intake: Meter::new(&cells, 0),
            cells,
            markers: draft.markers,
            rejects: draft.rejects,
            late_table: draft.late_table,
            source: draft.head.as_ref().filter(|_| draft.reads_table).map(|(node, _)| *node),
            reads_table: draft.reads_table,
            progress: TaskProgress::new(now_us),
            timers: has_timers.then_some(clock),
            flush_interval_us: micros(self.options.buffer_timeout).max(1_000),
        });
    }
}

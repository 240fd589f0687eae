//! A plan to tasks: cut at exchanges and where streams come together, chain what lies between.
//!
//! A stage is the subtasks of a node, [drafts](draft) of tasks whose end is not known yet: operators are added to
//! them until an [exchange](exchange), a join or a sink ends them. What begins with a table is in [source].
//!
//! Invariant: nothing moves here. Sources and sinks are opened; rows are read only of the tables of lookups.

mod draft;
mod exchange;
mod resume;
mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use self::draft::{Draft, Ending};
use super::channel::{ChannelProbe, Receiver, Sender, Signal, channel};
use super::control::Stops;
use super::cut::{JobCut, Shape, TaskCut};
use super::job::JobOptions;
use super::measure::{JobCells, Questions};
use super::merge::MergeOrder;
use super::metrics::SourceCounters;
use super::sink::SinkEnd;
use super::source::{AlignmentGroup, ListedRows, SplitReaders};
use super::task::{LooseLink, Task};
use crate::catalog::Table;
use crate::connector::{Connectors, Sink};
use crate::error::Error;
use crate::operator;
use crate::plan::{NodeId, Operation, PlanNode, SinkNode, SinkTarget, StreamPlan};

/// The tasks of a plan, ready to run, and what a job reads from outside.
pub(super) struct Graph {
    pub(super) tasks: Vec<Task>,
    /// What the rows of a SELECT come out of, with the signal that their reader sleeps on.
    pub(super) result: Option<(Receiver, Arc<Signal>)>,
    pub(super) sources: Vec<SourceHandle>,
    /// Of each source, who reads its splits.
    pub(super) readers: Vec<SplitReaders>,
    pub(super) cells: Arc<JobCells>,
    pub(super) shape: Shape,
    /// What tasks left that were over when an earlier run was cut, by their places.
    pub(super) left: BTreeMap<usize, TaskCut>,
}

/// What is read of a source while it runs.
#[derive(Clone)]
pub(super) struct SourceHandle {
    pub(super) node: NodeId,
    pub(super) name: String,
    pub(super) counters: Arc<SourceCounters>,
    /// Bytes of all splits, where all are known.
    pub(super) bytes_total: Option<u64>,
    /// Where it waits for connections.
    pub(super) listens_on: Option<std::net::SocketAddr>,
}

/// Builds the tasks of `plan`; opens sources and sinks. Nothing moves until somebody runs the tasks
/// and the readers. `resumes`: what an earlier run of the plan left.
pub(super) fn build(
    plan: &StreamPlan,
    connectors: &Connectors,
    options: &JobOptions,
    stops: &Stops,
    resumes: Option<&JobCut>,
) -> Result<Graph, Error> {
    let clock = &options.clock.0;
    let shift_us = resumes.map_or(0, |cut| clock.elapsed_us().saturating_sub(cut.elapsed_us));
    build_with(plan, connectors, options, stops, resumes, Begin { shift_us, is_muted: false })
}

/// Has the tasks of an earlier run, laid out as they were, finish what was on its way; nothing is read. What they keep
/// then, and the tasks, whose sinks have to be told when a checkpoint of that is there.
///
/// # Errors
/// Those of [`build`], and what stops a task.
pub(super) fn exhaust(
    plan: &StreamPlan,
    connectors: &Connectors,
    options: &JobOptions,
    cut: &JobCut,
) -> Result<(JobCut, Vec<Task>), Error> {
    let (parallelism, stops) = (cut.shape.parallelism, Stops::default());
    let options = JobOptions { parallelism, measures: false, takes_cuts: true, ..options.clone() };
    let begin = Begin { shift_us: 0, is_muted: true };
    // Whoever takes the rows of a query listens until all is cut.
    let mut graph = build_with(plan, connectors, &options, &stops, Some(cut), begin)?;
    graph.tasks.iter_mut().for_each(Task::defer_sink);
    let mut goes_on = true;
    while goes_on {
        goes_on = false;
        // The last one first: less is on its way at once.
        for task in graph.tasks.iter_mut().rev() {
            goes_on |= task.exhaust(&stops.cancel)?;
        }
    }
    let tasks = graph.tasks.iter_mut().map(Task::cut).collect::<Result<_, _>>()?;
    Ok((JobCut { elapsed_us: cut.elapsed_us, shape: cut.shape, tasks }, graph.tasks))
}

/// How tasks begin.
struct Begin {
    /// How much later the job's clock shows a moment of an earlier run now.
    shift_us: i64,
    /// Nothing is read.
    is_muted: bool,
}

fn build_with(
    plan: &StreamPlan,
    connectors: &Connectors,
    options: &JobOptions,
    stops: &Stops,
    resumes: Option<&JobCut>,
    Begin { shift_us, is_muted }: Begin,
) -> Result<Graph, Error> {
    let clock = &options.clock.0;
    let is_spread = options.parallelism > 1 || resumes.is_some_and(|cut| cut.shape.is_spread);
    let shape = Shape { parallelism: options.parallelism, is_spread };
    let questions = Arc::new(Questions::default());
    let cells = |tasks, channels| {
        let (started_us, questions) = (clock.elapsed_us(), Arc::clone(&questions));
        Arc::new(JobCells { clock: Arc::clone(clock), started_us, tasks, questions, channels })
    };
    let mut builder = Builder {
        plan,
        connectors,
        options,
        stops,
        resumes,
        shift_us,
        is_muted,
        graph: Graph {
            tasks: Vec::new(),
            result: None,
            sources: Vec::new(),
            readers: Vec::new(),
            cells: cells(Vec::new(), Vec::new()),
            shape,
            left: BTreeMap::new(),
        },
        groups: BTreeMap::new(),
        late: BTreeMap::new(),
    };
    for sink in &plan.sinks {
        builder.sink(*sink)?;
    }
    // After the operators, whose second outputs they read.
    for sink in &plan.late_sinks {
        builder.late_sink(*sink)?;
    }
    let mut graph = builder.graph;
    if let Some(cut) = resumes {
        graph.left = match cut.shape == shape {
            true => resume::restore(&mut graph.tasks, cut, shift_us)?,
            false => resume::respread(&mut graph.tasks, plan, cut, shift_us)?,
        };
    }
    let tasks = graph.tasks.iter().map(|task| Arc::clone(&task.cells)).collect();
    graph.cells = cells(tasks, channels(&graph.tasks));
    Ok(graph)
}

/// The channels of all tasks: from a task, to a task or the caller, of late rows.
fn channels(tasks: &[Task]) -> Vec<(usize, Option<usize>, bool, ChannelProbe)> {
    let mut channels = Vec::new();
    for (from, task) in tasks.iter().enumerate() {
        for (is_late, probe) in task.outputs() {
            let to = tasks.iter().position(|task| probe.leads_to(&task.signal));
            channels.push((from, to, is_late, probe));
        }
    }
    channels
}

struct Builder<'a> {
    plan: &'a StreamPlan,
    connectors: &'a Connectors,
    options: &'a JobOptions,
    stops: &'a Stops,
    /// What an earlier run left.
    resumes: Option<&'a JobCut>,
    /// How much later the job's clock shows a moment of it now.
    shift_us: i64,
    /// Nothing is read.
    is_muted: bool,
    graph: Graph,
    /// Sources that keep together in event time.
    groups: BTreeMap<String, Arc<AlignmentGroup>>,
    /// The second outputs of nodes.
    late: BTreeMap<NodeId, SideInput>,
}

/// The second output of a node, of all of its subtasks, and what its reader sleeps on.
#[derive(Default)]
struct SideInput {
    signal: Arc<Signal>,
    receivers: Vec<Receiver>,
}

/// The subtasks of a node, all alike.
type Stage = Vec<Draft>;

impl Builder<'_> {
    fn node(&self, id: NodeId) -> Result<&PlanNode, Error> {
        self.plan
            .nodes
            .get(id)
            .ok_or_else(|| Error::internal("runtime", format!("the plan has no node {id}")))
    }

    fn input_of(&self, node: &PlanNode) -> Result<NodeId, Error> {
        let input = node.inputs.first().copied();
        input.ok_or_else(|| Error::internal("runtime", "a plan node lacks its input"))
    }

    fn sink(&mut self, id: NodeId) -> Result<(), Error> {
        let node = self.node(id)?.clone();
        let Operation::Sink(sink) = &node.operation else {
            return Err(Error::internal("runtime", format!("plan node {id} is no sink")));
        };
        let stage = self.stage(self.input_of(&node)?)?;
        let draft = self.gather(id, stage, &node.schema, is_aligned(&node), "sink")?;
        let end = match &sink.target {
            SinkTarget::Result => {
                let reader = Arc::new(Signal::default());
                let (sender, receiver) = channel(self.options.channel_rows(), &draft.signal, &reader);
                self.graph.result = Some((receiver, reader));
                SinkEnd::Result(sender)
            }
            SinkTarget::Table(table) => {
                SinkEnd::table(self.table_sink(id, table, &node.schema)?, sink.upsert)
            }
        };
        let name = match &sink.target {
            SinkTarget::Result => "Sink(result)".to_owned(),
            SinkTarget::Table(table) => format!("Sink({})", table.name),
        };
        self.complete(draft, Ending::Sink(end, id, name));
        Ok(())
    }

    /// The table of a node, opened for writing.
    fn table_sink(&self, id: NodeId, table: &Table, schema: &SchemaRef) -> Result<Box<dyn Sink>, Error> {
        let connector = self.connectors.get(&table.connector)?;
        match self.resumes.and_then(|cut| cut.prepared(id)) {
            None => connector.sink(table, Arc::clone(schema)),
            Some(prepared) => connector.resume_sink(table, Arc::clone(schema), prepared),
        }
    }

    /// A sink of late rows: it takes them as they come, so that no reader of it can wait in a circle.
    fn late_sink(&mut self, id: NodeId) -> Result<(), Error> {
        let node = self.node(id)?.clone();
        let Operation::Sink(SinkNode { target: SinkTarget::Table(table), .. }) = &node.operation else {
            return Err(Error::internal("runtime", format!("plan node {id} is no sink of late rows")));
        };
        let mut drafts = Vec::new();
        for input in &node.inputs {
            drafts.extend(self.stage(*input)?);
        }
        let mut draft = self.gather(id, drafts, &node.schema, false, "late rows")?;
        draft.in_step = false;
        draft.late_table = Some(table.name.clone());
        let end = SinkEnd::table(self.table_sink(id, table, &node.schema)?, false);
        self.complete(draft, Ending::Sink(end, id, format!("Sink({})", table.name)));
        Ok(())
    }

    /// The way from a subtask of the node, which sleeps on `signal`, to the sink of its late rows.
    fn late_sender(&mut self, id: NodeId, signal: &Arc<Signal>) -> Sender {
        let rows = self.options.channel_rows();
        let side = self.late.entry(id).or_default();
        let (sender, receiver) = channel(rows, signal, &side.signal);
        side.receivers.push(receiver);
        sender
    }

    /// The open subtasks whose output is that of node `id`.
    fn stage(&mut self, id: NodeId) -> Result<Stage, Error> {
        let node = self.node(id)?.clone();
        match &node.operation {
            Operation::Source(source) => Ok(vec![self.source(id, source, &node)?]),
            Operation::Values(rows) => {
                let inputs = Box::new(ListedRows::new(rows, self.options.batch_rows));
                let mut draft = self.draft("values", id, inputs, MergeOrder::Aligned, &node.schema);
                draft.markers = self.markers(id);
                draft.head = Some((id, "Values".to_owned()));
                Ok(vec![draft])
            }
            Operation::Union => {
                let mut receivers = Vec::new();
                let signal = Arc::new(Signal::default());
                for input in &node.inputs {
                    for draft in self.stage(*input)? {
                        receivers.push(self.connect(draft, &signal));
                    }
                }
                let order = order_of(is_aligned(&node));
                let mut draft = self.joined("union", id, receivers, signal, order, &node.schema);
                draft.head = Some((id, "Union".to_owned()));
                Ok(vec![draft])
            }
            Operation::Exchange(distribution) => self.exchange(id, &node, distribution),
            Operation::WindowAggregate(aggregate) => self.window_aggregate(id, &node, aggregate),
            Operation::WindowJoin(_)
            | Operation::IntervalJoin(_)
            | Operation::TemporalJoin(_)
            | Operation::RegularJoin(_) => self.join(id, &node),
            Operation::LookupJoin(join) => {
                let [first, second] = node.inputs.as_slice() else {
                    return Err(Error::internal("runtime", "a lookup lacks its table"));
                };
                let rows = self.whole(*second)?;
                let schema = Arc::clone(&self.node(*second)?.schema);
                let table = Arc::new(operator::LookupTable::try_new(join, &schema, &rows)?);
                let input = Arc::clone(&self.node(*first)?.schema);
                let mut stage = self.stage(*first)?;
                for draft in &mut stage {
                    let operator = operator::create_lookup(&node, &input, Arc::clone(&table))?;
                    draft.chain.push(LooseLink::new(id, operator, None));
                }
                Ok(stage)
            }
            Operation::Calc(_)
            | Operation::WindowRows(_)
            | Operation::Over(_)
            | Operation::TopN(_)
            | Operation::MatchRecognize(_)
            | Operation::Unnest(_)
            | Operation::Expand(_)
            | Operation::GroupChanges(_)
            | Operation::WindowChanges(_)
            | Operation::Normalize(_) => {
                let mut stage = self.stage(self.input_of(&node)?)?;
                self.chain(&mut stage, id, &node)?;
                Ok(stage)
            }
            Operation::TemporalSort(_) | Operation::Sort(_) | Operation::Limit(_) => {
                let input = self.input_of(&node)?;
                let schema = Arc::clone(&self.node(input)?.schema);
                let stage = self.stage(input)?;
                let mut stage = vec![self.gather(id, stage, &schema, node.properties.bounded, "gather")?];
                self.chain(&mut stage, id, &node)?;
                Ok(stage)
            }
            Operation::LateRows(late) => {
                let Some(side) = self.late.remove(&late.of) else {
                    return Err(Error::internal("runtime", "late rows of a node that gives none"));
                };
                let order = MergeOrder::Arrival;
                Ok(vec![self.joined("late rows", id, side.receivers, side.signal, order, &node.schema)])
            }
            Operation::Sink(_) => Err(Error::internal("runtime", "a sink is read from")),
        }
    }

    fn chain(&mut self, stage: &mut Stage, id: NodeId, node: &PlanNode) -> Result<(), Error> {
        let input = Arc::clone(&self.node(self.input_of(node)?)?.schema);
        self.link(stage, id, node, &input)
    }

    /// Adds the operator of a node to each subtask.
    fn link(
        &mut self,
        stage: &mut Stage,
        id: NodeId,
        node: &PlanNode,
        input: &SchemaRef,
    ) -> Result<(), Error> {
        for draft in stage {
            let late = node.late.as_ref().map(|_| self.late_sender(id, &draft.signal));
            draft.chain.push(LooseLink::new(id, operator::create(node, input)?, late));
        }
        Ok(())
    }
}

/// Whether the rows of a node's inputs come in an order that is a function of the rows. Those of a
/// changelog don't: each row may give changes, so an input that has none for long would be waited for
/// while the others' channels are full. The changes of a key are in one input and stay in order.
fn is_aligned(node: &PlanNode) -> bool {
    node.properties.bounded && !node.properties.updating
}

fn order_of(aligned: bool) -> MergeOrder {
    if aligned { MergeOrder::Aligned } else { MergeOrder::Arrival }
}

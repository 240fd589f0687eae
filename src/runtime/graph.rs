//! A plan to tasks: cut at exchanges and where streams come together, chain what lies between.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::channel::{ChannelProbe, Receiver, Sender, Signal, channel};
use super::control::Stops;
use super::exchange::Outputs;
use super::job::JobOptions;
use super::measure::{JobCells, MarkerClock, OperatorCell, Questions, TaskCells, TaskClock};
use super::merge::{Inputs, Merge, MergeOrder, Second};
use super::meter::Meter;
use super::metrics::{OperatorReport, SourceCounters};
use super::sink::SinkEnd;
use super::source::{
    Aligned, AlignmentGroup, ListedRows, Reading, SourceShape, SplitInputs, SplitPipeline, SplitReaders,
    read_whole,
};
use super::task::{ChannelInputs, End, Link, LooseLink, Markers, Task, TaskProgress};
use crate::connector::{Connectors, INGESTION_TIME, ReadRequest, Source};
use crate::error::{Error, code};
use crate::operator;
use crate::plan::{
    AggregatePhase, Distribution, NodeId, Operation, PlanNode, SinkNode, SinkTarget, SourceNode, StreamPlan,
    WindowAggregateNode, WindowSource,
};
use crate::stream::{StreamBatch, StreamElement, micros};

/// The tasks of a plan, ready to run, and what a job reads from outside.
pub(super) struct Graph {
    pub(super) tasks: Vec<Task>,
    /// What the rows of a SELECT come out of, with the signal that their reader sleeps on.
    pub(super) result: Option<(Receiver, Arc<Signal>)>,
    pub(super) sources: Vec<SourceHandle>,
    /// Of each source, who reads its splits.
    pub(super) readers: Vec<SplitReaders>,
    pub(super) cells: Arc<JobCells>,
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
/// and the readers.
pub(super) fn build(
    plan: &StreamPlan,
    connectors: &Connectors,
    options: &JobOptions,
    stops: &Stops,
) -> Result<Graph, Error> {
    let clock = &options.clock.0;
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
        graph: Graph {
            tasks: Vec::new(),
            result: None,
            sources: Vec::new(),
            readers: Vec::new(),
            cells: cells(Vec::new(), Vec::new()),
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

/// A task whose end is not known yet.
struct Draft {
    name: String,
    signal: Arc<Signal>,
    inputs: Box<dyn Inputs>,
    order: MergeOrder,
    /// Of the merged input.
    schema: SchemaRef,
    /// What gives it rows, where that is a node of the plan: node and name.
    head: Option<(NodeId, String)>,
    subtask: usize,
    chain: Vec<LooseLink>,
    markers: Option<Markers>,
    /// Where rows go that the source can't read.
    rejects: Option<Arc<Sender>>,
    /// The table, if the task writes late rows.
    late_table: Option<String>,
    reads_table: bool,
    /// Of a join: the other stream that its task takes.
    second: Option<Second>,
    /// Its inputs are the subtasks of one stage.
    in_step: bool,
}

/// Where the chain of a task ends.
enum Ending {
    Outputs(Outputs),
    /// The node and its name.
    Sink(SinkEnd, NodeId, String),
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
        let draft = self.gather(stage, &node.schema, is_aligned(&node), "sink")?;
        let end = match &sink.target {
            SinkTarget::Result => {
                let reader = Arc::new(Signal::default());
                let (sender, receiver) = channel(self.options.channel_rows(), &draft.signal, &reader);
                self.graph.result = Some((receiver, reader));
                SinkEnd::Result(sender)
            }
            SinkTarget::Table(table) => {
                let connector = self.connectors.get(&table.connector)?;
                SinkEnd::table(connector.sink(table, Arc::clone(&node.schema))?, sink.upsert)
            }
        };
        let name = match &sink.target {
            SinkTarget::Result => "Sink(result)".to_owned(),
            SinkTarget::Table(table) => format!("Sink({})", table.name),
        };
        self.complete(draft, Ending::Sink(end, id, name));
        Ok(())
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
        let mut draft = self.gather(drafts, &node.schema, false, "late rows")?;
        draft.in_step = false;
        draft.late_table = Some(table.name.clone());
        let connector = self.connectors.get(&table.connector)?;
        let end = SinkEnd::table(connector.sink(table, Arc::clone(&node.schema))?, false);
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
                let mut draft = self.draft("values", inputs, MergeOrder::Aligned, &node.schema);
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
                let mut draft = self.joined("union", receivers, signal, order, &node.schema);
                draft.head = Some((id, "Union".to_owned()));
                Ok(vec![draft])
            }
            Operation::Exchange(distribution) => self.exchange(&node, distribution),
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
                let mut stage = vec![self.gather(stage, &schema, node.properties.bounded, "gather")?];
                self.chain(&mut stage, id, &node)?;
                Ok(stage)
            }
            Operation::LateRows(late) => {
                let Some(side) = self.late.remove(&late.of) else {
                    return Err(Error::internal("runtime", "late rows of a node that gives none"));
                };
                let order = MergeOrder::Arrival;
                Ok(vec![self.joined("late rows", side.receivers, side.signal, order, &node.schema)])
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

    fn exchange(&mut self, node: &PlanNode, distribution: &Distribution) -> Result<Stage, Error> {
        let input = self.input_of(node)?;
        let stage = self.stage(input)?;
        match distribution {
            Distribution::Single => {
                Ok(vec![self.gather(stage, &node.schema, node.properties.bounded, "gather")?])
            }
            Distribution::Hash(_) if self.options.parallelism == 1 && stage.len() == 1 => Ok(stage),
            Distribution::Hash(keys) => Ok(self.spread(stage, keys, &node.schema, node.properties.bounded)),
        }
    }

    /// Aggregates once, or before and behind the exchange where that gives the same result.
    fn window_aggregate(
        &mut self,
        id: NodeId,
        node: &PlanNode,
        aggregate: &WindowAggregateNode,
    ) -> Result<Stage, Error> {
        let exchange = self.node(self.input_of(node)?)?.clone();
        let is_hashed = matches!(exchange.operation, Operation::Exchange(Distribution::Hash(_)));
        if self.options.parallelism == 1 || !is_hashed || !has_exact_parts(aggregate) {
            let mut stage = self.stage(self.input_of(node)?)?;
            self.chain(&mut stage, id, node)?;
            return Ok(stage);
        }
        let input = self.input_of(&exchange)?;
        let input_schema = Arc::clone(&self.node(input)?.schema);
        let mut stage = self.stage(input)?;
        let states = crate::plan::local_schema(aggregate, &input_schema)?;
        let local = with_phase(node, aggregate, AggregatePhase::Local, Arc::clone(&states));
        self.link(&mut stage, id, &local, &input_schema)?;
        // Behind the slice's start stand the keys and the grouping id.
        let keys = aggregate.keys.len() + usize::from(aggregate.grouping_sets.is_some());
        let keys: Vec<usize> = (1..=keys).collect();
        let mut stage = self.spread(stage, &keys, &states, node.properties.bounded);
        let last = with_phase(node, aggregate, AggregatePhase::Final, Arc::clone(&node.schema));
        // The local phase has judged what is late.
        let last = PlanNode { late: None, ..last };
        self.link(&mut stage, id, &last, &states)?;
        Ok(stage)
    }

    /// All rows of a table that ends, behind the conditions and projections over it.
    fn whole(&self, id: NodeId) -> Result<Vec<RecordBatch>, Error> {
        let node = self.node(id)?;
        match &node.operation {
            Operation::Source(source) => {
                let (_, pipelines, _) = self.open(source, node)?;
                let mut rows = Vec::new();
                for pipeline in pipelines {
                    rows.extend(
                        read_whole(pipeline, &self.stops.cancel)?.into_iter().map(|batch| batch.rows),
                    );
                }
                Ok(rows)
            }
            Operation::Calc(_) => {
                let below = self.input_of(node)?;
                let mut calc = operator::create(node, &self.node(below)?.schema)?;
                let (mut out, mut rows) = (operator::Output::default(), Vec::new());
                for batch in self.whole(below)? {
                    calc.process_batch(StreamBatch::inserts(batch, Instant::now()), &mut out)?;
                    for element in out.drain() {
                        if let StreamElement::Batch(batch) = element {
                            rows.push(batch.rows);
                        }
                    }
                }
                Ok(rows)
            }
            _ => Err(Error::internal("runtime", "a lookup in what is no table")),
        }
    }

    /// Opens a table for a node.
    #[allow(clippy::type_complexity, reason = "the parts of one source")]
    fn open(
        &self,
        node: &SourceNode,
        plan_node: &PlanNode,
    ) -> Result<(Box<dyn Source>, Vec<SplitPipeline>, Arc<SourceShape>), Error> {
        let table = &node.table;
        check_runnable(node)?;
        let connector = self.connectors.get(&table.connector)?;
        let request = ReadRequest {
            schema: Arc::clone(&node.read_schema),
            metadata: node.read.iter().map(|column| metadata_key(table, *column)).collect(),
            key: node.key.clone(),
            batch_rows: self.options.batch_rows,
            threads: self.options.parallelism.max(1),
            in_turn: table.bounded && node.watermark.is_none(),
            cancel: self.stops.cancel.clone(),
        };
        let mut source: Box<dyn Source> = connector.source(table, &request)?;
        let clock = Arc::clone(&self.options.clock.0);
        let interval = self.options.watermark_interval;
        let shape =
            Arc::new(SourceShape::try_new(node, plan_node, clock, interval)?.measured(self.options.measures));
        let pipelines: Vec<_> = source
            .splits()?
            .into_iter()
            .map(|reader| SplitPipeline::new(reader, Arc::clone(&shape)))
            .collect();
        Ok((source, pipelines, shape))
    }

    fn source(&mut self, id: NodeId, node: &SourceNode, plan_node: &PlanNode) -> Result<Draft, Error> {
        let table = &node.table;
        let (source, pipelines, shape) = self.open(node, plan_node)?;
        let alignment = node.watermark.as_ref().and_then(|spec| spec.alignment.as_ref());
        let aligned = alignment.map(|alignment| {
            let group = self.groups.entry(alignment.group.clone()).or_default();
            group.join(&shape.counters);
            Aligned::new(group, alignment)
        });
        let grows = !table.bounded && source.discovers_every().is_some();
        let bytes: Option<u64> = pipelines.iter().map(SplitPipeline::bytes_total).sum();
        let bytes = bytes.filter(|_| !grows);
        self.graph.sources.push(SourceHandle {
            node: id,
            name: format!("Source({})", table.name),
            counters: Arc::clone(&shape.counters),
            bytes_total: bytes,
            listens_on: source.listens_on(),
        });
        // A reader of an unbounded split waits for rows: each has a thread of its own. Those that
        // come while the query runs don't.
        let threads = match table.bounded || grows {
            true => self.options.parallelism.max(1),
            false => pipelines.len(),
        };
        let signal = Arc::new(Signal::default());
        let rejects = plan_node.late.as_ref().map(|_| Arc::new(self.late_sender(id, &signal)));
        let reading = Reading {
            threads,
            in_turn: table.bounded && !shape.has_time(),
            goes_on: !table.bounded,
            task: Arc::clone(&signal),
            stops: self.stops.clone(),
            name: table.name.clone(),
            rejects: rejects.clone(),
            aligned,
        };
        let (inputs, readers) = SplitInputs::new(source, pipelines, &shape, reading)?;
        self.graph.readers.push(readers);
        let name = format!("source {}", table.name);
        let mut draft = self.draft(&name, Box::new(inputs), order_of(table.bounded), &plan_node.schema);
        draft.signal = signal;
        draft.head = Some((id, format!("Source({})", table.name)));
        draft.markers = self.markers(id);
        draft.rejects = rejects;
        draft.reads_table = true;
        Ok(draft)
    }

    fn markers(&self, id: NodeId) -> Option<Markers> {
        let interval = match self.options.measures {
            true => self.options.latency_interval,
            false => Duration::ZERO,
        };
        let source = u32::try_from(id).unwrap_or(u32::MAX);
        (!interval.is_zero()).then(|| Markers { clock: MarkerClock::new(interval), source })
    }

    fn draft(&self, name: &str, inputs: Box<dyn Inputs>, order: MergeOrder, schema: &SchemaRef) -> Draft {
        Draft {
            name: name.to_owned(),
            signal: Arc::new(Signal::default()),
            inputs,
            order,
            schema: Arc::clone(schema),
            head: None,
            subtask: 0,
            chain: Vec::new(),
            markers: None,
            rejects: None,
            late_table: None,
            reads_table: false,
            second: None,
            in_step: false,
        }
    }

    fn joined(
        &self,
        name: &str,
        receivers: Vec<Receiver>,
        signal: Arc<Signal>,
        order: MergeOrder,
        schema: &SchemaRef,
    ) -> Draft {
        let mut draft = self.draft(name, Box::new(ChannelInputs::new(receivers)), order, schema);
        draft.signal = signal;
        draft
    }

    /// One subtask of a stage; several are brought together in a new task.
    fn gather(
        &mut self,
        stage: Stage,
        schema: &SchemaRef,
        bounded: bool,
        name: &str,
    ) -> Result<Draft, Error> {
        let mut stage = stage;
        if stage.len() == 1
            && let Some(only) = stage.pop()
        {
            return Ok(only);
        }
        let signal = Arc::new(Signal::default());
        let receivers = stage.into_iter().map(|draft| self.connect(draft, &signal)).collect();
        let mut draft = self.joined(name, receivers, signal, order_of(bounded), schema);
        draft.in_step = true;
        Ok(draft)
    }

    /// The subtasks of a node of two inputs, each with both inputs' rows of its keys.
    fn join(&mut self, id: NodeId, node: &PlanNode) -> Result<Stage, Error> {
        let [first, second] = node.inputs.as_slice() else {
            return Err(Error::internal("runtime", "a join lacks an input"));
        };
        let exchanges = [self.node(*first)?.clone(), self.node(*second)?.clone()];
        let is_hashed =
            exchanges.iter().all(|node| matches!(node.operation, Operation::Exchange(Distribution::Hash(_))));
        let count = if is_hashed { self.options.parallelism.max(1) } else { 1 };
        let signals: Vec<_> = (0..count).map(|_| Arc::new(Signal::default())).collect();
        let mut receivers: Vec<Vec<Receiver>> = (0..count).map(|_| Vec::new()).collect();
        let mut from = 0;
        for exchange in &exchanges {
            from = receivers[0].len();
            let stage = self.stage(self.input_of(exchange)?)?;
            match &exchange.operation {
                Operation::Exchange(Distribution::Hash(keys)) if count > 1 => {
                    self.spread_to(stage, keys, &signals, &mut receivers);
                }
                Operation::Exchange(_) => {
                    for draft in stage {
                        receivers[0].push(self.connect(draft, &signals[0]));
                    }
                }
                _ => return Err(Error::internal("runtime", "the input of a join is no exchange")),
            }
        }
        let (schema, order) = (Arc::clone(&exchanges[0].schema), order_of(is_aligned(node)));
        let ends = receivers.into_iter().zip(signals).enumerate();
        let mut stage: Stage = ends
            .map(|(number, (receivers, signal))| {
                let mut draft = self.joined(&format!("join {number}"), receivers, signal, order, &schema);
                draft.in_step = true;
                draft.second = Some(Second { from, schema: Arc::clone(&exchanges[1].schema) });
                draft
            })
            .collect();
        self.link(&mut stage, id, node, &schema)?;
        Ok(stage)
    }

    /// As many new subtasks as the job's parallelism, each with the rows of its keys.
    fn spread(&mut self, stage: Stage, keys: &[usize], schema: &SchemaRef, bounded: bool) -> Stage {
        let count = self.options.parallelism;
        let signals: Vec<_> = (0..count).map(|_| Arc::new(Signal::default())).collect();
        let mut receivers: Vec<Vec<Receiver>> = (0..count).map(|_| Vec::new()).collect();
        self.spread_to(stage, keys, &signals, &mut receivers);
        let ends = receivers.into_iter().zip(signals).enumerate();
        ends.map(|(number, (receivers, signal))| {
            let name = format!("subtask {number}");
            let mut draft = self.joined(&name, receivers, signal, order_of(bounded), schema);
            draft.in_step = true;
            draft.subtask = number;
            draft
        })
        .collect()
    }

    /// Ends each task of a stage in a channel to each of those that sleep on `signals`.
    fn spread_to(
        &mut self,
        stage: Stage,
        keys: &[usize],
        signals: &[Arc<Signal>],
        receivers: &mut [Vec<Receiver>],
    ) {
        for draft in stage {
            let mut senders = Vec::with_capacity(signals.len());
            for (target, signal) in signals.iter().enumerate() {
                let (sender, receiver) = channel(self.options.channel_rows(), &draft.signal, signal);
                senders.push(sender);
                receivers[target].push(receiver);
            }
            let outputs = Outputs::hash(senders, keys.to_vec(), self.options.seed);
            self.complete(draft, Ending::Outputs(outputs));
        }
    }

    /// Ends a task in a channel to the task that sleeps on `receiver`.
    fn connect(&mut self, draft: Draft, receiver: &Arc<Signal>) -> Receiver {
        let (sender, end) = channel(self.options.channel_rows(), &draft.signal, receiver);
        self.complete(draft, Ending::Outputs(Outputs::single(sender)));
        end
    }

    /// Where the operators of a task tell what they do.
    fn cells(&self, draft: &Draft, ending: &Ending) -> Arc<TaskCells> {
        let granularity = self.options.latency_granularity;
        let cell = |node, name: &str, answers| {
            Arc::new(OperatorCell::new(node, name, draft.subtask, answers, granularity))
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

    fn complete(&mut self, draft: Draft, ending: Ending) {
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
            reads_table: draft.reads_table,
            progress: TaskProgress::new(now_us),
            timers: has_timers.then_some(clock),
            flush_interval_us: micros(self.options.buffer_timeout).max(1_000),
        });
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

fn metadata_key(table: &crate::catalog::Table, column: usize) -> Option<String> {
    match &table.columns.get(column)?.kind {
        crate::catalog::ColumnKind::Metadata { key, .. } => Some(key.clone()),
        // The connector leaves a place for it.
        crate::catalog::ColumnKind::ProcessingTime => Some(INGESTION_TIME.to_owned()),
        crate::catalog::ColumnKind::Physical | crate::catalog::ColumnKind::Computed { .. } => None,
    }
}

/// Whether pre-aggregated parts give the same result as all rows at once, to the last digit.
fn has_exact_parts(aggregate: &WindowAggregateNode) -> bool {
    let is_assigned = matches!(aggregate.window, WindowSource::Assign { .. });
    let is_single = aggregate.phase == AggregatePhase::Single;
    let all_exact = aggregate.aggregates.iter().all(|call| !call.order_sensitive && !call.inexact);
    is_assigned && is_single && all_exact && !aggregate.is_updating()
}

fn with_phase(
    node: &PlanNode,
    aggregate: &WindowAggregateNode,
    phase: AggregatePhase,
    schema: SchemaRef,
) -> PlanNode {
    let aggregate = WindowAggregateNode { phase, ..aggregate.clone() };
    PlanNode { operation: Operation::WindowAggregate(Box::new(aggregate)), schema, ..node.clone() }
}

/// What a plan may ask of a source and this version can't do yet.
fn check_runnable(node: &SourceNode) -> Result<(), Error> {
    let Some(watermark) = &node.watermark else { return Ok(()) };
    let refuse = |what: &str| {
        Err(Error::plan(code::NOT_SUPPORTED, format!("table \"{}\": {what} can't run yet", node.table.name)))
    };
    if watermark.max_ahead_us.is_some() && node.table.bounded {
        return refuse("MAX AHEAD on a table that ends");
    }
    Ok(())
}

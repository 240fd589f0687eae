//! Where rows go from one stage to the next.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;

use super::draft::{Draft, Ending};
use super::{Builder, Stage, is_aligned, order_of};
use crate::error::Error;
use crate::plan::{AggregatePhase, Distribution, NodeId, Operation, PlanNode, WindowAggregateNode};
use crate::runtime::channel::{Receiver, Signal, channel};
use crate::runtime::exchange::{Outputs, Pace};
use crate::runtime::job::JobOptions;
use crate::runtime::merge::Second;
use crate::runtime::task::Place;

impl Builder<'_> {
    pub(super) fn exchange(
        &mut self,
        id: NodeId,
        node: &PlanNode,
        distribution: &Distribution,
    ) -> Result<Stage, Error> {
        let input = self.input_of(node)?;
        let stage = self.stage(input)?;
        match distribution {
            Distribution::Single => {
                Ok(vec![self.gather(id, stage, &node.schema, node.properties.bounded, "gather")?])
            }
            Distribution::Hash(_) if !self.graph.shape.is_spread && stage.len() == 1 => Ok(stage),
            Distribution::Hash(keys) => {
                Ok(self.spread(id, stage, keys, &node.schema, node.properties.bounded))
            }
        }
    }

    /// Aggregates once, or before and behind the exchange where that gives the same result.
    pub(super) fn window_aggregate(
        &mut self,
        id: NodeId,
        node: &PlanNode,
        aggregate: &WindowAggregateNode,
    ) -> Result<Stage, Error> {
        let exchange_id = self.input_of(node)?;
        let exchange = self.node(exchange_id)?.clone();
        let is_hashed = matches!(exchange.operation, Operation::Exchange(Distribution::Hash(_)));
        let is_split = aggregate.phase == AggregatePhase::Single && aggregate.has_exact_parts();
        if !self.graph.shape.is_spread || !is_hashed || !is_split {
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
        let mut stage = self.spread(exchange_id, stage, &keys, &states, node.properties.bounded);
        let last = with_phase(node, aggregate, AggregatePhase::Final, Arc::clone(&node.schema));
        // The local phase has judged what is late.
        let last = PlanNode { late: None, ..last };
        self.link(&mut stage, id, &last, &states)?;
        Ok(stage)
    }

    /// One subtask of a stage; several are brought together in a new task.
    pub(super) fn gather(
        &mut self,
        id: NodeId,
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
        let ends = (stage.len(), 1);
        let receivers = stage.into_iter().map(|draft| {
            let (sender, receiver) = channel(self.options.channel_rows(), &draft.signal, &signal);
            self.complete(draft, Ending::Outputs(Outputs::one_of(sender, self.pace(ends, bounded))));
            receiver
        });
        let receivers = receivers.collect();
        let mut draft = self.joined(name, id, receivers, signal, order_of(bounded), schema);
        draft.in_step = true;
        Ok(draft)
    }

    /// The subtasks of a node of two inputs, each with both inputs' rows of its keys.
    pub(super) fn join(&mut self, id: NodeId, node: &PlanNode) -> Result<Stage, Error> {
        let [first, second] = node.inputs.as_slice() else {
            return Err(Error::internal("runtime", "a join lacks an input"));
        };
        let exchanges = [self.node(*first)?.clone(), self.node(*second)?.clone()];
        let is_hashed =
            exchanges.iter().all(|node| matches!(node.operation, Operation::Exchange(Distribution::Hash(_))));
        let count = if is_hashed { self.options.parallelism.max(1) } else { 1 };
        let signals: Vec<_> = (0..count).map(|_| Arc::new(Signal::default())).collect();
        let mut receivers: Vec<Vec<Receiver>> = (0..count).map(|_| Vec::new()).collect();
        let (mut from, mut all_keys) = (0, Vec::new());
        for exchange in &exchanges {
            from = receivers[0].len();
            let stage = self.stage(self.input_of(exchange)?)?;
            match &exchange.operation {
                Operation::Exchange(Distribution::Hash(keys)) if count > 1 => {
                    let bounded = exchange.properties.bounded;
                    self.spread_to(stage, keys, bounded, &signals, &mut receivers);
                    all_keys.push(keys.clone());
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
                let mut draft = self.joined(&format!("join {number}"), id, receivers, signal, order, &schema);
                draft.in_step = true;
                draft.place = Place { stage: id, subtask: number, keys: all_keys.clone() };
                draft.second = Some(Second { from, schema: Arc::clone(&exchanges[1].schema) });
                draft
            })
            .collect();
        self.link(&mut stage, id, node, &schema)?;
        Ok(stage)
    }

    /// As many new subtasks as the job's parallelism, each with the rows of its keys.
    fn spread(
        &mut self,
        id: NodeId,
        stage: Stage,
        keys: &[usize],
        schema: &SchemaRef,
        bounded: bool,
    ) -> Stage {
        let count = self.options.parallelism;
        let signals: Vec<_> = (0..count).map(|_| Arc::new(Signal::default())).collect();
        let mut receivers: Vec<Vec<Receiver>> = (0..count).map(|_| Vec::new()).collect();
        self.spread_to(stage, keys, bounded, &signals, &mut receivers);
        let ends = receivers.into_iter().zip(signals).enumerate();
        ends.map(|(number, (receivers, signal))| {
            let name = format!("subtask {number}");
            let mut draft = self.joined(&name, id, receivers, signal, order_of(bounded), schema);
            draft.in_step = true;
            draft.place = Place { stage: id, subtask: number, keys: vec![keys.to_vec()] };
            draft
        })
        .collect()
    }

    /// Ends each task of a stage in a channel to each of those that sleep on `signals`.
    fn spread_to(
        &mut self,
        stage: Stage,
        keys: &[usize],
        bounded: bool,
        signals: &[Arc<Signal>],
        receivers: &mut [Vec<Receiver>],
    ) {
        let ends = (stage.len(), signals.len());
        for draft in stage {
            let mut senders = Vec::with_capacity(signals.len());
            for (target, signal) in signals.iter().enumerate() {
                let (sender, receiver) = channel(self.options.channel_rows(), &draft.signal, signal);
                senders.push(sender);
                receivers[target].push(receiver);
            }
            let pace = self.pace(ends, bounded);
            let outputs = Outputs::hash(senders, keys.to_vec(), pace, self.options.seed);
            self.complete(draft, Ending::Outputs(outputs));
        }
    }

    /// How much so many tasks hold back of what they give to so many others.
    fn pace(&self, ends: (usize, usize), bounded: bool) -> Pace {
        let JobOptions { batch_rows, buffer_timeout, clock, .. } = self.options;
        Pace::new(ends, *batch_rows, *buffer_timeout, Arc::clone(&clock.0), bounded)
    }

    /// Ends a task in a channel to the task that sleeps on `receiver`.
    pub(super) fn connect(&mut self, draft: Draft, receiver: &Arc<Signal>) -> Receiver {
        let (sender, end) = channel(self.options.channel_rows(), &draft.signal, receiver);
        self.complete(draft, Ending::Outputs(Outputs::single(sender)));
        end
    }
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

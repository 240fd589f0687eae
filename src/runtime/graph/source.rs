//! Tasks that begin with a table, and tables that are read whole.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use super::draft::Draft;
use super::{Builder, SourceHandle, order_of};
use crate::catalog::{ColumnKind, Table};
use crate::connector::{INGESTION_TIME, ReadRequest, Source};
use crate::error::{Error, code};
use crate::operator;
use crate::plan::{NodeId, Operation, PlanNode, SourceNode};
use crate::runtime::channel::Signal;
use crate::runtime::cut::{TaskCut, foreign};
use crate::runtime::measure::MarkerClock;
use crate::runtime::source::{
    Aligned, Muted, Reading, SourceShape, SplitInputs, SplitPipeline, read_whole, resumed,
};
use crate::runtime::task::Markers;
use crate::stream::{StreamBatch, StreamElement};

impl Builder<'_> {
    /// All rows of a table that ends, behind the conditions and projections over it.
    pub(super) fn whole(&self, id: NodeId) -> Result<Vec<RecordBatch>, Error> {
        let node = self.node(id)?;
        match &node.operation {
            Operation::Source(source) => {
                let (_, pipelines, _) = self.open(source, node, None)?;
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
        left: Option<&TaskCut>,
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
        let shape = SourceShape::try_new(node, plan_node, clock, interval)?.measured(self.options.measures);
        let shape = Arc::new(shape.with_marks(self.options.takes_cuts));
        let left = left.map_or_else(Vec::new, TaskCut::left_splits);
        let pipelines = resumed(source.splits()?, &left, self.shift_us, &shape)?;
        Ok((source, pipelines, shape))
    }

    pub(super) fn source(
        &mut self,
        id: NodeId,
        node: &SourceNode,
        plan_node: &PlanNode,
    ) -> Result<Draft, Error> {
        let table = &node.table;
        let left = self.resumes.and_then(|cut| cut.of_source(id));
        if self.is_muted {
            return self.muted(id, node, plan_node, left);
        }
        let (source, pipelines, shape) = self.open(node, plan_node, left)?;
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
        let mut draft = self.draft(&name, id, Box::new(inputs), order_of(table.bounded), &plan_node.schema);
        draft.signal = signal;
        draft.head = Some((id, format!("Source({})", table.name)));
        draft.markers = self.markers(id);
        draft.rejects = rejects;
        draft.reads_table = true;
        Ok(draft)
    }

    /// What stands for a table that is not read.
    fn muted(
        &mut self,
        id: NodeId,
        node: &SourceNode,
        plan_node: &PlanNode,
        left: Option<&TaskCut>,
    ) -> Result<Draft, Error> {
        let name = format!("source {}", node.table.name);
        let left = left.ok_or_else(|| foreign(format!("it has no task \"{name}\"")))?;
        let inputs = Box::new(Muted::new(left.merge.inputs.len(), left.splits.clone()));
        let order = order_of(node.table.bounded);
        let mut draft = self.draft(&name, id, inputs, order, &plan_node.schema);
        draft.head = Some((id, format!("Source({})", node.table.name)));
        draft.rejects = plan_node.late.as_ref().map(|_| Arc::new(self.late_sender(id, &draft.signal)));
        draft.reads_table = true;
        Ok(draft)
    }

    pub(super) fn markers(&self, id: NodeId) -> Option<Markers> {
        let interval = match self.options.measures {
            true => self.options.latency_interval,
            false => Duration::ZERO,
        };
        let source = u32::try_from(id).unwrap_or(u32::MAX);
        (!interval.is_zero()).then(|| Markers { clock: MarkerClock::new(interval), source })
    }
}

fn metadata_key(table: &Table, column: usize) -> Option<String> {
    match &table.columns.get(column)?.kind {
        ColumnKind::Metadata { key, .. } => Some(key.clone()),
        // The connector leaves a place for it.
        ColumnKind::ProcessingTime => Some(INGESTION_TIME.to_owned()),
        ColumnKind::Physical | ColumnKind::Computed { .. } => None,
    }
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

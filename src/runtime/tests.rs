//! Jobs over plans made by hand: what reaches the caller and the sinks when all goes well, when
//! something fails, and when the user stops it.

use std::sync::{Arc, Mutex};

use arrow::array::{AsArray, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use datafusion_physical_expr::expressions::col;

use super::channel::lock;
use super::{Job, JobOptions};
use crate::catalog::{Column, ColumnKind, Options, Table, TableFacts};
use crate::connector::{
    Connector, Connectors, Lines, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader,
};
use crate::error::{Error, Phase, code};
use crate::plan::{Operation, PlanNode, SinkNode, SinkTarget, SourceNode, StreamPlan, StreamProperties};
use crate::stream::StreamBatch;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true)]))
}

pub(super) fn rows(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter_values(values))]).unwrap()
}

pub(super) fn node(operation: Operation, inputs: Vec<usize>) -> PlanNode {
    let properties = StreamProperties {
        bounded: true,
        updating: false,
        watermark: false,
        time_attributes: vec![],
        key: None,
    };
    PlanNode { operation, inputs, schema: schema(), properties, late: None }
}

pub(super) fn table() -> Arc<Table> {
    let column =
        Column { name: "v".into(), data_type: DataType::Int64, nullable: true, kind: ColumnKind::Physical };
    Arc::new(Table {
        name: "t".into(),
        columns: vec![column],
        watermark: None,
        primary_key: vec![],
        options: Options::default(),
        connector: "test".into(),
        bounded: true,
        temporary: false,
    })
}

pub(super) fn source() -> PlanNode {
    let output = vec![col("v", &schema()).unwrap()];
    let source = SourceNode {
        table: table(),
        read: vec![0],
        read_schema: schema(),
        output,
        watermark: None,
        with_origin: false,
        changelog: false,
        key: Vec::new(),
    };
    node(Operation::Source(source), vec![])
}

pub(super) fn plan(first: PlanNode, target: SinkTarget) -> StreamPlan {
    let sink = node(Operation::Sink(SinkNode { target, upsert: false }), vec![0]);
    StreamPlan { nodes: vec![first, sink], sinks: vec![1], ..StreamPlan::default() }
}

/// What the splits of the test connector do, and what its sink was told.
#[derive(Clone, Default)]
pub(super) struct Test {
    pub(super) splits: Vec<Vec<Step>>,
    pub(super) told: Arc<Mutex<Vec<String>>>,
}

#[derive(Clone)]
pub(super) enum Step {
    Rows(Vec<i64>),
    Fail,
    Panic,
    /// Rows without end.
    Forever,
}

struct Script {
    name: String,
    steps: std::vec::IntoIter<Step>,
}

impl Connector for Test {
    fn name(&self) -> &'static str {
        "test"
    }

    fn check(&self, _table: &Table) -> Result<TableFacts, Error> {
        Ok(TableFacts {
            is_source: true,
            is_sink: true,
            bounded: true,
            takes_changelog: false,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Ok(schema())
    }

    fn source(&self, _table: &Table, _request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(self.clone()))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(self.clone()))
    }
}

impl Source for Test {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let splits = self.splits.iter().enumerate();
        let script = |(number, steps): (usize, &Vec<Step>)| {
            Box::new(Script { name: format!("split {number}"), steps: steps.clone().into_iter() })
                as Box<dyn SplitReader>
        };
        Ok(splits.map(script).collect())
    }
}

impl SplitReader for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self) -> Result<Read, Error> {
        let batch = |values: Vec<i64>| SplitBatch {
            rows: rows(values),
            lines: Lines::From(1),
            rejected: vec![],
            kinds: None,
        };
        match self.steps.next() {
            None => Ok(Read::End),
            Some(Step::Rows(values)) => Ok(Read::Rows(batch(values))),
            Some(Step::Fail) => Err(Error::run(code::UNREADABLE, "the disk is on fire")),
            Some(Step::Panic) => panic!("a reader lost its mind"),
            Some(Step::Forever) => {
                self.steps = vec![Step::Forever].into_iter();
                Ok(Read::Rows(batch(vec![1])))
            }
        }
    }
}

impl Sink for Test {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        let values = batch.rows.column(0).as_primitive::<Int64Type>().values().to_vec();
        lock(&self.told).push(format!("{values:?}"));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        lock(&self.told).push("finish".into());
        Ok(())
    }

    fn abort(&mut self) {
        lock(&self.told).push("abort".into());
    }
}

impl Test {
    pub(super) fn connectors(&self) -> Connectors {
        let mut connectors = Connectors::empty();
        connectors.add(Arc::new(self.clone()));
        connectors
    }
}

fn start(plan: &StreamPlan, test: &Test) -> super::RunningJob {
    Job::start(plan, &test.connectors(), &JobOptions::default()).unwrap()
}

fn values_of(job: &mut super::RunningJob) -> Result<Vec<i64>, Error> {
    let mut values = Vec::new();
    while let Some(batch) = job.next_batch()? {
        values.extend(batch.rows.column(0).as_primitive::<Int64Type>().values());
    }
    Ok(values)
}

#[test]
fn splits_without_event_time_are_read_in_their_order() {
    let first = vec![Step::Rows(vec![1, 2]), Step::Rows(vec![3])];
    let second = vec![Step::Rows(vec![4])];
    let test = Test { splits: vec![first, second, vec![], vec![Step::Rows(vec![5])]], ..Test::default() };
    let mut job = start(&plan(source(), SinkTarget::Result), &test);
    assert_eq!(values_of(&mut job).unwrap(), [1, 2, 3, 4, 5]);
    let summary = job.finish().unwrap();
    assert_eq!((summary.rows_in, summary.rows_out), (5, 5));
    assert!(summary.reconciles());
}

#[test]
fn values_come_in_batches_of_the_asked_size() {
    let plan = plan(node(Operation::Values(rows(0..10)), vec![]), SinkTarget::Result);
    let options = JobOptions { batch_rows: 4, ..JobOptions::default() };
    let mut job = Job::start(&plan, &Connectors::empty(), &options).unwrap();
    let mut sizes = Vec::new();
    while let Some(batch) = job.next_batch().unwrap() {
        sizes.push(batch.num_rows());
    }
    assert_eq!(sizes, [4, 4, 2]);
    let summary = job.finish().unwrap();
    assert!(summary.latency.is_some_and(|latency| latency.markers >= 1), "no marker came through");
}

#[test]
fn the_end_of_the_input_commits_the_sink() {
    let test = Test { splits: vec![vec![Step::Rows(vec![7])]], ..Test::default() };
    start(&plan(source(), SinkTarget::Table(table())), &test).finish().unwrap();
    assert_eq!(*lock(&test.told), ["[7]", "finish"]);
}

#[test]
fn a_failed_source_aborts_the_sink_and_says_why() {
    let test = Test { splits: vec![vec![Step::Rows(vec![7]), Step::Fail]], ..Test::default() };
    let error = start(&plan(source(), SinkTarget::Table(table())), &test).finish().unwrap_err();
    assert_eq!((error.code(), error.exit_code()), ("F001", 1));
    assert!(error.message().contains("the disk is on fire"));
    assert_eq!(lock(&test.told).last().map(String::as_str), Some("abort"));
    assert!(!lock(&test.told).contains(&"finish".to_owned()));
}

#[test]
fn a_panic_is_an_internal_error_and_no_hang() {
    let test = Test { splits: vec![vec![Step::Panic]], ..Test::default() };
    let mut job = start(&plan(source(), SinkTarget::Result), &test);
    let error = values_of(&mut job).unwrap_err();
    assert_eq!(error.phase(), Phase::Internal);
    assert!(error.message().contains("a reader lost its mind"));
    assert!(job.finish().is_err());
}

#[test]
fn a_cancelled_job_ends_and_aborts_its_sink() {
    let test = Test { splits: vec![vec![Step::Forever]], ..Test::default() };
    let job = start(&plan(source(), SinkTarget::Table(table())), &test);
    job.control().stop();
    let error = job.finish().unwrap_err();
    assert_eq!((error.phase(), error.exit_code()), (Phase::Interrupted, 130));
    assert_eq!(lock(&test.told).last().map(String::as_str), Some("abort"));
}

#[test]
fn a_caller_who_leaves_ends_the_job() {
    let test = Test { splits: vec![vec![Step::Forever]], ..Test::default() };
    let mut job = start(&plan(source(), SinkTarget::Result), &test);
    assert!(job.next_batch().unwrap().is_some());
    job.finish().unwrap();
}

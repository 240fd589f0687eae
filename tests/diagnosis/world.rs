//! Jobs on a clock that stands still: sources that give what they are told, work that takes the time
//! that it is told to take.

use std::collections::VecDeque;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion_physical_expr::PhysicalExpr;
use tidegate::Error;
use tidegate::catalog::{Catalog, Options, Relation, Table, TableFacts};
use tidegate::connector::{
    Connector, Connectors, Lines, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader,
};
use tidegate::plan::{ExprRef, Operation, Planner, StreamPlan};
use tidegate::runtime::{
    Diagnosis, JobClock, JobOptions, JobSnapshot, OperatorSnapshot, Schedule, Stepped, diagnose,
};
use tidegate::sql::{self, Statement};
use tidegate::stream::{Clock, StreamBatch, VirtualClock};

/// 2024-05-01 09:00:00 UTC, milliseconds.
pub(crate) const NINE: i64 = 1_714_554_000_000;

/// Rows of a batch: (k, v, ts in ms).
pub(crate) type Rows = Vec<(i64, i64, i64)>;

/// What one split gives next. Without anything it is empty.
pub(crate) type Feed = Arc<Mutex<VecDeque<Rows>>>;

/// Tables `t (k BIGINT, v BIGINT, ts TIMESTAMP(3))` with some splits, and sinks that take their time.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) feeds: Vec<Feed>,
    /// How long a batch is written and read.
    pub(crate) write_time: Duration,
    pub(crate) read_time: Duration,
}

impl World {
    pub(crate) fn new(splits: usize) -> Self {
        Self {
            clock: Arc::new(VirtualClock::new(NINE * 1_000)),
            feeds: (0..splits).map(|_| Feed::default()).collect(),
            write_time: Duration::ZERO,
            read_time: Duration::ZERO,
        }
    }

    pub(crate) fn give(&self, split: usize, rows: Rows) {
        self.feeds[split].lock().unwrap().push_back(rows);
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Starts the last statement of a script. `change` may give work another length.
    pub(crate) fn start(
        &self,
        script: &str,
        parallelism: usize,
        change: impl FnOnce(&mut StreamPlan),
    ) -> Run {
        let mut connectors = Connectors::empty();
        connectors.add(Arc::new(self.clone()));
        let planner = Planner::new(Arc::new(connectors.clone()));
        let mut catalog = Catalog::new();
        let mut plan = StreamPlan::default();
        for spanned in sql::parse(script).unwrap() {
            match &spanned.statement {
                Statement::CreateTable(create) => {
                    let table = planner.create_table(create, &catalog).unwrap();
                    catalog.add(Relation::Table(table.into()), false).unwrap();
                }
                Statement::Insert(insert) => plan = planner.plan_inserts(&[insert], &catalog).unwrap(),
                Statement::Query(query) => plan = planner.plan_query(query, &catalog).unwrap(),
                other => panic!("{other:?}"),
            }
        }
        change(&mut plan);
        let options = JobOptions {
            parallelism,
            batch_rows: 64,
            channel_rows: Some(1),
            clock: JobClock(Arc::clone(&self.clock) as Arc<dyn Clock>),
            ..JobOptions::default()
        };
        let job = Stepped::start(&plan, &connectors, &options, Schedule::new(0)).unwrap();
        Run { job, plan }
    }

    /// An expression that is `inner` and takes this long for a row.
    pub(crate) fn slow(&self, inner: &ExprRef, time: Duration) -> ExprRef {
        Arc::new(Slow { inner: Arc::clone(inner), time, clock: Arc::clone(&self.clock) })
    }

    /// Makes the projection of the plan's first calc slow.
    pub(crate) fn slow_projection(&self, plan: &mut StreamPlan, time: Duration) {
        let calc = plan.nodes.iter_mut().find_map(|node| match &mut node.operation {
            Operation::Calc(calc) => Some(calc),
            _ => None,
        });
        let first = &mut calc.expect("a calc").project[0];
        *first = self.slow(first, time);
    }

    /// Makes the evaluation of the aggregation's first key slow.
    pub(crate) fn slow_key(&self, plan: &mut StreamPlan, time: Duration) {
        let aggregate = plan.nodes.iter_mut().find_map(|node| match &mut node.operation {
            Operation::WindowAggregate(aggregate) => Some(aggregate),
            _ => None,
        });
        let first = &mut aggregate.expect("an aggregation").keys[0];
        *first = self.slow(first, time);
    }
}

/// A job, and what is found out about it.
pub(crate) struct Run {
    pub(crate) job: Stepped,
    pub(crate) plan: StreamPlan,
}

impl Run {
    pub(crate) fn settle(&mut self) {
        self.job.settle().unwrap();
    }

    /// What is known now. Times add up in all tasks, and rows in all operators.
    pub(crate) fn snapshot(&mut self) -> JobSnapshot {
        let snapshot = self.job.snapshot();
        check(&snapshot);
        snapshot
    }

    pub(crate) fn diagnose(&mut self, before: Option<&JobSnapshot>) -> Diagnosis {
        let now = self.snapshot();
        let diagnosis = diagnose(&self.plan, before, &now);
        for load in &diagnosis.operators {
            let sum = load.busy + load.idle + load.back_pressured;
            assert!((sum - 1.0).abs() < 0.01, "{load:?}");
        }
        diagnosis
    }
}

/// busy + idle + back-pressured is the time of each task and of each of its operators, no share is
/// above it, and rows in = used + late + ….
pub(crate) fn check(snapshot: &JobSnapshot) {
    for task in &snapshot.tasks {
        assert_eq!(task.busy_us + task.idle_us + task.back_pressured_us, task.total_us, "{}", task.name);
        for one in &task.operators {
            assert_eq!(one.busy_us + one.idle_us + one.back_pressured_us, task.total_us, "{}", one.name);
        }
    }
}

pub(crate) fn operator<'a>(snapshot: &'a JobSnapshot, name: &str) -> &'a OperatorSnapshot {
    snapshot.operators().find(|operator| operator.name == name).unwrap_or_else(|| panic!("no {name}"))
}

impl Connector for World {
    fn name(&self) -> &'static str {
        "world"
    }

    fn check(&self, _table: &Table) -> Result<TableFacts, Error> {
        Ok(TableFacts {
            is_source: true,
            is_sink: true,
            bounded: false,
            takes_changelog: true,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Ok(Arc::new(Schema::empty()))
    }

    fn source(&self, _table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Ok(Box::new(Splits(self.clone(), request.schema.clone())))
    }

    fn sink(&self, _table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Ok(Box::new(self.clone()))
    }
}

struct Splits(World, SchemaRef);

impl Source for Splits {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let split = |(number, feed): (usize, &Feed)| {
            Box::new(Split {
                name: format!("split {number}"),
                feed: Arc::clone(feed),
                schema: self.1.clone(),
                world: self.0.clone(),
            }) as Box<dyn SplitReader>
        };
        Ok(self.0.feeds.iter().enumerate().map(split).collect())
    }
}

struct Split {
    name: String,
    feed: Feed,
    schema: SchemaRef,
    world: World,
}

impl SplitReader for Split {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self) -> Result<Read, Error> {
        let Some(rows) = self.feed.lock().unwrap().pop_front() else { return Ok(Read::Empty) };
        self.world.clock.advance(self.world.read_time);
        let columns = self.schema.fields().iter().map(|field| -> ArrayRef {
            match field.name().as_str() {
                "k" => Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
                "v" => Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
                _ => Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.2))),
            }
        });
        let rows = RecordBatch::try_new(self.schema.clone(), columns.collect()).unwrap();
        Ok(Read::Rows(SplitBatch { rows, kinds: None, lines: Lines::From(1), rejected: vec![] }))
    }
}

impl Sink for World {
    fn write(&mut self, _batch: &StreamBatch) -> Result<(), Error> {
        self.clock.advance(self.write_time);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self) {}
}

/// Takes its time.
#[derive(Debug)]
struct Slow {
    inner: ExprRef,
    time: Duration,
    clock: Arc<VirtualClock>,
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slow({})", self.inner)
    }
}

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Slow {}

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl PhysicalExpr for Slow {
    fn data_type(&self, schema: &Schema) -> datafusion_common::Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> datafusion_common::Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> datafusion_common::Result<datafusion_expr::ColumnarValue> {
        self.clock.advance(self.time * batch.num_rows() as u32);
        self.inner.evaluate(batch)
    }

    fn children(&self) -> Vec<&ExprRef> {
        vec![&self.inner]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<ExprRef>) -> datafusion_common::Result<ExprRef> {
        let (time, clock) = (self.time, Arc::clone(&self.clock));
        Ok(Arc::new(Self { inner: Arc::clone(&children[0]), time, clock }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

//! Operators alone, over batches that are made before: keys, firing, joins, first rows.
//!
//! `cargo bench --bench operators`; `cargo bench --bench operators -- keys` for a part. Windows are in `window`.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::Planner;
use tidegate::catalog::Catalog;
use tidegate::operator::{Output, create};
use tidegate::plan::{Operation, PlanNode};
use tidegate::stream::{RunningWatermark, StreamBatch, StreamElement, Watermark};

const BATCH_ROWS: i64 = 8_192;
/// Rows a second of event time.
const RATE: i64 = 10_000;
const TABLES: &str = "
    CREATE TABLE a (ts TIMESTAMP(3), k BIGINT, l BIGINT, name STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
    WITH ('connector' = 'none');
    CREATE TABLE b (ts TIMESTAMP(3), k BIGINT, l BIGINT, name STRING, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL '1' SECOND)
    WITH ('connector' = 'none');";

/// A node with the columns that it reads of each input.
struct Case {
    node: PlanNode,
    inputs: Vec<SchemaRef>,
}

impl Case {
    /// The node of a query that `is` looks for.
    fn new(sql: &str, is: impl Fn(&Operation) -> bool) -> Self {
        let planner = Planner::default();
        let mut catalog = Catalog::new();
        planner.define(TABLES, &mut catalog).expect("tables");
        let plan = planner.plan(sql, &catalog).expect("a plan");
        let node = plan.nodes.iter().find(|node| is(&node.operation)).cloned().expect("the node");
        let inputs = node.inputs.iter().map(|input| plan.nodes[*input].schema.clone()).collect();
        Self { node, inputs }
    }

    /// Gives the operator batches of its inputs in turn, each followed by its watermark; rows that came out.
    fn run(&self, inputs: &[Vec<StreamBatch>]) -> usize {
        let mut operator = create(&self.node, &self.inputs[0]).expect("an operator");
        let (mut out, mut given, mut last) = (Output::default(), 0, Watermark::MIN);
        let count = |out: &mut Output| -> usize {
            let rows = out.drain().map(|element| match element {
                StreamElement::Batch(batch) => batch.num_rows(),
                _ => 0,
            });
            rows.sum()
        };
        for number in 0..inputs[0].len() {
            for (input, batches) in inputs.iter().enumerate() {
                let batch = self.columns(input, &batches[number]);
                match input {
                    0 => operator.process_batch(batch, &mut out),
                    _ => operator.process_second(batch, &mut out),
                }
                .expect("a batch");
            }
            let watermark =
                inputs[0][number].running.as_ref().and_then(RunningWatermark::last).unwrap_or(last);
            if watermark > last {
                last = watermark;
                operator.process_watermark(watermark, &mut out).expect("a watermark");
            }
            given += count(&mut out);
        }
        operator.process_watermark(Watermark::MAX, &mut out).expect("a watermark");
        operator.finish(&mut out).expect("an end");
        given + count(&mut out)
    }

    /// The columns of a batch that an input has.
    fn columns(&self, input: usize, batch: &StreamBatch) -> StreamBatch {
        let schema = &self.inputs[input];
        let columns = schema.fields().iter().map(|field| {
            let column = batch.rows.column_by_name(field.name()).expect("a column of the table");
            Arc::clone(column)
        });
        let rows = RecordBatch::try_new(schema.clone(), columns.collect()).expect("the columns of the input");
        StreamBatch { rows, ..batch.clone() }
    }
}

/// The columns of both tables.
fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("k", DataType::Int64, true),
        Field::new("l", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

/// `rows` rows in order of time, with keys that look random.
fn batches(rows: i64, keys: i64, seed: u64) -> Vec<StreamBatch> {
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut batches = Vec::new();
    for from in (0..rows).step_by(BATCH_ROWS as usize) {
        let range = from..(from + BATCH_ROWS).min(rows);
        let ms = |row: i64| row * 1_000 / RATE;
        let keys: Vec<i64> = range.clone().map(|_| (random() % keys as u64) as i64).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(range.clone().map(ms))),
            Arc::new(Int64Array::from(keys.clone())),
            Arc::new(Int64Array::from_iter_values(keys.iter().map(|key| key * 7))),
            Arc::new(StringArray::from_iter_values(keys.iter().map(|key| format!("item-{key}")))),
            Arc::new(Int64Array::from_iter_values(range.clone().map(|row| row % 1_000))),
        ];
        let rows = RecordBatch::try_new(schema(), columns).expect("columns of one length");
        let running: Vec<i64> = range.map(|row| (ms(row - 1) - 1_000) * 1_000).collect();
        batches.push(StreamBatch {
            running: Some(RunningWatermark::new(running)),
            ..StreamBatch::inserts(rows, Instant::now())
        });
    }
    batches
}

/// All keys are in one window: what it costs to find the number of a row's key.
fn keys(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("keys_count");
    group.sample_size(10);
    for (keys, rows) in [(100, 2_000_000), (10_000_000, 10_000_000)] {
        let batches = [batches(rows, keys, 42)];
        group.throughput(Throughput::Elements(rows as u64));
        for (name, columns) in [("int", "k"), ("text", "name"), ("int_int_text", "k, l, name")] {
            let sql = format!(
                "SELECT window_start, {columns}, COUNT(*) AS c
                 FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' HOUR))
                 GROUP BY window_start, window_end, {columns}"
            );
            let case = Case::new(&sql, |operation| matches!(operation, Operation::WindowAggregate(_)));
            group.bench_function(BenchmarkId::new(name, keys), |bencher| {
                bencher.iter(|| case.run(&batches));
            });
        }
    }
    group.finish();
}

/// About as many results as rows: what it costs to give them.
fn firing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("firing");
    group.sample_size(10);
    let batches = [batches(1_000_000, 1_000_000, 42)];
    group.throughput(Throughput::Elements(1_000_000));
    let sql = "SELECT window_start, k, COUNT(*) AS c, SUM(v) AS s
               FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND))
               GROUP BY window_start, window_end, k";
    let case = Case::new(sql, |operation| matches!(operation, Operation::WindowAggregate(_)));
    group.bench_function("tumble_1s", |bencher| bencher.iter(|| case.run(&batches)));
    group.finish();
}

/// Each row meets those of its key in the second before: of 1,000 keys ten, of a million next to none.
fn interval_join(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("interval_join_1s");
    group.sample_size(10);
    let sql = "SELECT a.k, a.v, b.v AS other FROM a JOIN b
               ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL '1' SECOND AND b.ts";
    let case = Case::new(sql, |operation| matches!(operation, Operation::IntervalJoin(_)));
    for keys in [1_000, 1_000_000] {
        let inputs = [batches(500_000, keys, 42), batches(500_000, keys, 43)];
        group.throughput(Throughput::Elements(1_000_000));
        group.bench_function(BenchmarkId::new("keys", keys), |bencher| bencher.iter(|| case.run(&inputs)));
    }
    group.finish();
}

/// The first ten rows of each key as they change, and its last row.
fn first_rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("first_rows");
    group.sample_size(10);
    for (name, order, most) in [("top_10", "v DESC", 10), ("last", "ts DESC", 1)] {
        let sql = format!(
            "SELECT k, v, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {order}) AS place FROM a)
             WHERE place <= {most}"
        );
        let case = Case::new(&sql, |operation| matches!(operation, Operation::TopN(_)));
        for keys in [1_000, 1_000_000] {
            let inputs = [batches(1_000_000, keys, 42)];
            group.throughput(Throughput::Elements(1_000_000));
            group.bench_function(BenchmarkId::new(name, keys), |bencher| bencher.iter(|| case.run(&inputs)));
        }
    }
    group.finish();
}

criterion_group!(benches, keys, firing, interval_join, first_rows);
criterion_main!(benches);

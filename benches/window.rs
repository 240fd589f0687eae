//! Window aggregation alone: pre-generated batches through one operator.
//!
//! `cargo bench --bench window`; `cargo bench --bench window -- tumble` for a part.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use datafusion_expr::AggregateUDF;
use datafusion_functions_aggregate::average::avg_udaf;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{CastExpr, Column};
use tidegate::operator::{Output, create};
use tidegate::plan::{
    AggregateCall, AggregatePhase, EmitMode, ExprRef, Operation, PlanNode, StreamProperties,
    WindowAggregateNode, WindowKind, WindowSource, WindowSpec, local_schema,
};
use tidegate::stream::{RunningWatermark, StreamBatch, TimeUnit, Watermark};

const BATCH_ROWS: i64 = 8_192;
const SECOND_US: i64 = 1_000_000;

/// Columns: time, key as a number, value, key as a text.
fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(ArrowUnit::Millisecond, None), true),
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ]))
}

fn column(index: usize) -> ExprRef {
    Arc::new(Column::new(input().field(index).name(), index))
}

fn call(function: Arc<AggregateUDF>, arg: ExprRef) -> AggregateCall {
    let built = AggregateExprBuilder::new(function, vec![arg]).schema(input()).alias("x").build();
    AggregateCall {
        function: Arc::new(built.expect("an aggregate")),
        filter: None,
        order_sensitive: false,
        inexact: false,
    }
}

fn node(kind: WindowKind, key: usize, phase: AggregatePhase) -> PlanNode {
    let window = WindowSpec { kind, offset_us: 0, zone: None, unit: TimeUnit::Millisecond };
    let float: ExprRef = Arc::new(CastExpr::new(column(2), DataType::Float64, None));
    let node = WindowAggregateNode {
        window: match kind {
            WindowKind::Session { .. } => WindowSource::Session { time: 0, window, partition: vec![key] },
            _ => WindowSource::Assign { time: 0, window },
        },
        keys: vec![column(key)],
        grouping_sets: None,
        aggregates: vec![call(count_udaf(), column(2)), call(sum_udaf(), column(2)), call(avg_udaf(), float)],
        allowed_lateness_us: 0,
        emit: EmitMode::OnWindowClose,
        phase,
    };
    let bound = |name: &str| Field::new(name, DataType::Timestamp(ArrowUnit::Millisecond, None), false);
    let schema = match phase {
        AggregatePhase::Local => local_schema(&node, &input()).expect("a schema"),
        AggregatePhase::Single | AggregatePhase::Final => Arc::new(Schema::new(vec![
            bound("window_start"),
            bound("window_end"),
            bound("window_time"),
            Field::new("k", input().field(key).data_type().clone(), true),
            Field::new("c", DataType::Int64, true),
            Field::new("s", DataType::Int64, true),
            Field::new("a", DataType::Float64, true),
        ])),
    };
    let properties = StreamProperties {
        bounded: true,
        updating: false,
        watermark: true,
        time_attributes: vec![],
        key: None,
    };
    PlanNode {
        operation: Operation::WindowAggregate(Box::new(node)),
        inputs: vec![0],
        schema,
        properties,
        late: None,
    }
}

/// `rows` rows over `keys` keys, `rows_per_second` of event time, with a watermark 5 s behind.
fn batches(rows: i64, keys: i64, rows_per_second: i64) -> Vec<StreamBatch> {
    let mut state = 42u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut batches = Vec::new();
    for from in (0..rows).step_by(BATCH_ROWS as usize) {
        let range = from..(from + BATCH_ROWS).min(rows);
        let ms = |row: i64| row * 1_000 / rows_per_second;
        let keys: Vec<i64> = range.clone().map(|_| (random() % keys as u64) as i64).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(range.clone().map(ms))),
            Arc::new(Int64Array::from(keys.clone())),
            Arc::new(Int64Array::from_iter_values(range.clone().map(|row| row % 1_000))),
            Arc::new(StringArray::from_iter_values(keys.iter().map(|key| format!("item-{key}")))),
        ];
        let rows = RecordBatch::try_new(input(), columns).expect("columns of one length");
        let running: Vec<i64> = range.map(|row| ms(row - 1) * 1_000 - 5 * SECOND_US).collect();
        batches.push(StreamBatch {
            running: Some(RunningWatermark::new(running)),
            ..StreamBatch::inserts(rows, Instant::now())
        });
    }
    batches
}

fn run(node: &PlanNode, batches: &[StreamBatch]) -> u64 {
    let mut operator = create(node, &input()).expect("an operator");
    let mut out = Output::default();
    let mut last = Watermark::MIN;
    let mut given = 0;
    for batch in batches {
        let watermark = batch.running.as_ref().and_then(RunningWatermark::last).unwrap_or(last);
        operator.process_batch(batch.clone(), &mut out).expect("a batch");
        if watermark > last {
            last = watermark;
            operator.process_watermark(watermark, &mut out).expect("a watermark");
        }
        given += out.drain().count() as u64;
    }
    operator.process_watermark(Watermark::MAX, &mut out).expect("a watermark");
    operator.finish(&mut out).expect("an end");
    given + out.drain().count() as u64
}

fn tumble(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tumble_10s_count_sum_avg");
    group.sample_size(10);
    let kind = WindowKind::Tumble { size_us: 10 * SECOND_US };
    for (keys, rows_per_second) in [(1_000, 10_000), (100_000, 100_000)] {
        let batches = batches(2_000_000, keys, rows_per_second);
        group.throughput(Throughput::Elements(2_000_000));
        for (name, key, phase) in [
            ("int_key", 1, AggregatePhase::Single),
            ("text_key", 3, AggregatePhase::Single),
            ("int_key_local", 1, AggregatePhase::Local),
        ] {
            let node = node(kind, key, phase);
            group.bench_function(BenchmarkId::new(name, keys), |bencher| {
                bencher.iter(|| run(&node, &batches));
            });
        }
    }
    group.finish();
}

fn hop(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hop_slide_1s_count_sum_avg");
    group.sample_size(10);
    for slides in [2, 60, 3_600] {
        let kind = WindowKind::Hop { slide_us: SECOND_US, size_us: slides * SECOND_US };
        let node = node(kind, 1, AggregatePhase::Single);
        // 2,000 rows a second: 500 seconds of event time, 100 keys.
        let batches = batches(1_000_000, 100, 2_000);
        group.throughput(Throughput::Elements(1_000_000));
        group.bench_function(BenchmarkId::new("size_over_slide", slides), |bencher| {
            bencher.iter(|| run(&node, &batches));
        });
    }
    group.finish();
}

fn session(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("session_count_sum_avg");
    group.sample_size(10);
    // 10 rows a second for each of 1,000 keys: one long session each. One row a second for each of
    // 100,000 keys: about as many sessions as rows.
    for (keys, rows_per_second, gap_us) in
        [(1_000, 10_000, 5 * SECOND_US), (100_000, 100_000, SECOND_US / 10)]
    {
        let batches = batches(2_000_000, keys, rows_per_second);
        group.throughput(Throughput::Elements(2_000_000));
        for (name, key) in [("int_key", 1), ("text_key", 3)] {
            let node = node(WindowKind::Session { gap_us }, key, AggregatePhase::Single);
            group.bench_function(BenchmarkId::new(name, keys), |bencher| {
                bencher.iter(|| run(&node, &batches));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, tumble, hop, session);
criterion_main!(benches);

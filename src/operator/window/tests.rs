//! Window aggregation against an evaluation row by row, and its edges.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion_expr::AggregateUDF;
use datafusion_functions_aggregate::array_agg::array_agg_udaf;
use datafusion_functions_aggregate::average::avg_udaf;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::first_last::first_value_udaf;
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Column, lit};
use proptest::prelude::*;

use crate::operator::{Operator, Output, RowCounts, create};
use crate::plan::*;
use crate::stream::{RunningWatermark, StreamBatch, StreamElement, TimeUnit, Watermark};

const MS: i64 = 1_000;

/// A row: time in ms, key, value.
type Row = (Option<i64>, Option<&'static str>, Option<i64>);

fn input() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(ArrowUnit::Millisecond, None), true),
        Field::new("k", DataType::Utf8, true),
        Field::new("v", DataType::Int64, true),
    ]))
}

fn column(index: usize) -> ExprRef {
    Arc::new(Column::new(input().field(index).name(), index))
}

fn call_over(
    schema: &SchemaRef,
    function: Arc<AggregateUDF>,
    arg: ExprRef,
    name: &str,
) -> AggregateExprBuilder {
    AggregateExprBuilder::new(function, vec![arg]).schema(schema.clone()).alias(name)
}

fn call(function: Arc<AggregateUDF>, name: &str) -> AggregateCall {
    let built = call_over(&input(), function, column(2), name).build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

fn filtered(call: AggregateCall) -> AggregateCall {
    let condition = BinaryExpr::new(column(2), datafusion_expr::Operator::Gt, lit(2i64));
    AggregateCall { filter: Some(Arc::new(condition)), ..call }
}

fn average() -> AggregateCall {
    let float: ExprRef = Arc::new(CastExpr::new(column(2), DataType::Float64, None));
    let built = call_over(&input(), avg_udaf(), float, "a").build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

fn distinct_count() -> AggregateCall {
    let built = call_over(&input(), count_udaf(), column(2), "d").distinct().build().unwrap();
    AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
}

/// count, sum, min, max, avg, count distinct, count filtered.
fn plain_calls() -> Vec<AggregateCall> {
    vec![
        call(count_udaf(), "c"),
        call(sum_udaf(), "s"),
        call(min_udaf(), "mi"),
        call(max_udaf(), "ma"),
        average(),
        distinct_count(),
        filtered(call(count_udaf(), "f")),
    ]
}

fn ordered_calls() -> Vec<AggregateCall> {
    let mut calls = vec![call(first_value_udaf(), "fi"), call(array_agg_udaf(), "aa")];
    calls.iter_mut().for_each(|call| call.order_sensitive = true);
    calls
}

fn assign(kind: WindowKind, offset_us: i64) -> WindowSource {
    let window = WindowSpec { kind, offset_us, zone: None, unit: TimeUnit::Millisecond };
    WindowSource::Assign { time: 0, window }
}

fn node(window: WindowSource, keys: Vec<ExprRef>, aggregates: Vec<AggregateCall>) -> WindowAggregateNode {
    WindowAggregateNode {
        window,
        keys,
        grouping_sets: None,
        aggregates,
        allowed_lateness_us: 0,
        emit: EmitMode::OnWindowClose,
        phase: AggregatePhase::Single,
    }
}

fn output(node: &WindowAggregateNode, input: &SchemaRef) -> SchemaRef {
    let mut fields = Vec::new();
    let is_global = matches!(&node.window,
        WindowSource::Assign { window, .. } if window.kind == WindowKind::Global);
    if !is_global {
        for name in ["window_start", "window_end"] {
            fields.push(Field::new(name, DataType::Timestamp(ArrowUnit::Millisecond, None), false));
        }
        let time = match &node.window {
            WindowSource::Assign { time, .. } => input.field(*time).data_type().clone(),
            WindowSource::Attached { .. } => DataType::Timestamp(ArrowUnit::Millisecond, None),
        };
        fields.push(Field::new("window_time", time, false));
    }
    for (index, key) in node.keys.iter().enumerate() {
        fields.push(Field::new(format!("k{index}"), key.data_type(input).unwrap(), true));
    }
    if let Some(sets) = &node.grouping_sets {
        fields.push(Field::new("__grouping_id", grouping_id_type(node.keys.len(), sets), false));
    }
    for call in &node.aggregates {
        fields.push(call.function.field().as_ref().clone().with_nullable(true));
    }
    Arc::new(Schema::new(fields))
}

fn plan_node(operation: Operation, schema: SchemaRef) -> PlanNode {
    let properties = StreamProperties {
        bounded: true,
        updating: false,
        watermark: true,
        time_attributes: vec![],
        key: None,
    };
    PlanNode { operation, inputs: vec![0], schema, properties }
}

fn operator(node: &WindowAggregateNode) -> Box<dyn Operator> {
    let schema = output(node, &input());
    create(&plan_node(Operation::WindowAggregate(Box::new(node.clone())), schema), &input()).unwrap()
}

/// For each row the watermark before it, ms, and the one after the last: the greatest time so far
/// minus `delay`.
fn running(rows: &[Row], delay: i64) -> Vec<i64> {
    let mut watermark = i64::MIN;
    let mut all = vec![watermark];
    for (time, ..) in rows {
        if let Some(time) = time {
            watermark = watermark.max((time - delay) * MS);
        }
        all.push(watermark);
    }
    all
}

fn record_batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(rows.iter().map(|row| row.0).collect::<Vec<_>>())),
        Arc::new(StringArray::from(rows.iter().map(|row| row.1).collect::<Vec<_>>())),
        Arc::new(Int64Array::from(rows.iter().map(|row| row.2).collect::<Vec<_>>())),
    ];
    RecordBatch::try_new(input(), columns).unwrap()
}

fn stream_batch(rows: &[Row], running: &[i64]) -> StreamBatch {
    StreamBatch {
        rows: record_batch(rows),
        kinds: None,
        running: Some(RunningWatermark::new(running.to_vec())),
        arrived: Instant::now(),
    }
}

fn lines(batch: &RecordBatch) -> Vec<String> {
    let options = FormatOptions::new().with_null("NULL");
    let columns: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).unwrap())
        .collect();
    (0..batch.num_rows())
        .map(|row| columns.iter().map(|column| column.value(row).to_string()).collect::<Vec<_>>().join(","))
        .collect()
}

/// Takes the rows that were given; checks that each comes before the watermark that closes it.
fn drain(out: &mut Output, into: &mut Vec<String>) {
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            into.extend(lines(&batch.rows));
        }
    }
}

/// Runs rows cut in batches of `cut`, with a watermark after each batch.
fn run(operator: &mut dyn Operator, rows: &[Row], delay: i64, cut: usize) -> (Vec<String>, RowCounts) {
    let running = running(rows, delay);
    let (mut out, mut given, mut last) = (Output::default(), Vec::new(), i64::MIN);
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        operator.process_batch(stream_batch(&rows[from..to], &running[from..to]), &mut out).unwrap();
        if running[to] > last {
            last = running[to];
            operator.process_watermark(Watermark(last), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    operator.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    (given, out.counts)
}

fn run_node(node: &WindowAggregateNode, rows: &[Row], delay: i64, cut: usize) -> (Vec<String>, RowCounts) {
    run(operator(node).as_mut(), rows, delay, cut)
}

/// Runs `locals` local phases, each on its share of the rows, and a final one.
fn run_two_phase(
    node: &WindowAggregateNode,
    rows: &[Row],
    delay: i64,
    cut: usize,
    locals: usize,
) -> (Vec<String>, RowCounts) {
    let local = WindowAggregateNode { phase: AggregatePhase::Local, ..node.clone() };
    let schema = local_schema(&local, &input()).unwrap();
    let local = plan_node(Operation::WindowAggregate(Box::new(local)), schema.clone());
    let mut locals: Vec<_> =
        (0..locals).map(|_| (create(&local, &input()).unwrap(), Output::default())).collect();
    let last = WindowAggregateNode { phase: AggregatePhase::Final, ..node.clone() };
    let last = plan_node(Operation::WindowAggregate(Box::new(last)), output(node, &input()));
    let mut last = create(&last, &schema).unwrap();
    let (mut out, mut given) = (Output::default(), Vec::new());

    let running = running(rows, delay);
    let mut watermark = i64::MIN;
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        let count = locals.len();
        for (index, (local, local_out)) in locals.iter_mut().enumerate() {
            let mine: Vec<usize> = (from..to).filter(|row| row % count == index).collect();
            let own: Vec<Row> = mine.iter().map(|row| rows[*row]).collect();
            let own_running: Vec<i64> = mine.iter().map(|row| running[*row]).collect();
            local.process_batch(stream_batch(&own, &own_running), local_out).unwrap();
            for element in local_out.drain() {
                if let StreamElement::Batch(batch) = element {
                    last.process_batch(batch, &mut out).unwrap();
                }
            }
        }
        if running[to] > watermark {
            watermark = running[to];
            for (local, local_out) in &mut locals {
                local.process_watermark(Watermark(watermark), local_out).unwrap();
                local_out.drain();
            }
            last.process_watermark(Watermark(watermark), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
    }
    last.process_watermark(Watermark::MAX, &mut out).unwrap();
    last.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    let mut counts = RowCounts::default();
    for (_, local_out) in &locals {
        counts.used += local_out.counts.used;
        counts.late += local_out.counts.late;
        counts.null_time += local_out.counts.null_time;
        counts.partly_late += local_out.counts.partly_late;
    }
    (given, counts)
}

fn stamp(ms: i64) -> String {
    let text = chrono::DateTime::from_timestamp_millis(ms).unwrap();
    let text = text.format("%Y-%m-%dT%H:%M:%S%.3f").to_string();
    text.strip_suffix(".000").map_or(text.clone(), str::to_owned)
}

/// The windows of a time, ms, by plain enumeration.
fn windows_of(kind: WindowKind, offset: i64, time: i64) -> Vec<(i64, i64)> {
    let floor = |length: i64| (time - offset).div_euclid(length) * length + offset;
    match kind {
        WindowKind::Tumble { size_us } => vec![(floor(size_us / MS), floor(size_us / MS) + size_us / MS)],
        WindowKind::Hop { slide_us, size_us } => {
            let (slide, size) = (slide_us / MS, size_us / MS);
            let last = floor(slide);
            let starts = (0..size / slide).rev().map(|step| last - step * slide);
            starts
                .map(|start| (start, start + size))
                .filter(|(start, end)| *start <= time && time < *end)
                .collect()
        }
        WindowKind::Cumulate { step_us, size_us } => {
            let (step, size) = (step_us / MS, size_us / MS);
            let start = floor(size);
            (1..=size / step).map(|n| (start, start + n * step)).filter(|(_, end)| time < *end).collect()
        }
        WindowKind::Session { .. } | WindowKind::Global => unreachable!("not enumerated here"),
    }
}

struct Expected {
    lines: Vec<String>,
    counts: RowCounts,
}

type Group = (Option<&'static str>, Vec<Option<i64>>);

/// What comes out, computed row by row. `sets`: for each grouping set whether the key is NULL.
fn expected(
    kind: WindowKind,
    offset: i64,
    rows: &[Row],
    delay: i64,
    describe: impl Fn(&[Option<i64>]) -> String,
) -> Expected {
    let running = running(rows, delay);
    let mut windows: BTreeMap<(i64, i64), Vec<Group>> = BTreeMap::new();
    let mut counts = RowCounts::default();
    for ((time, key, value), running) in rows.iter().zip(&running) {
        let Some(time) = time else {
            counts.null_time += 1;
            continue;
        };
        let all = windows_of(kind, offset, *time);
        let open: Vec<_> = all.iter().filter(|(_, end)| *running < (end - 1) * MS).collect();
        match open.len() {
            0 => counts.late += 1,
            some => {
                counts.used += 1;
                counts.partly_late += u64::from(some < all.len());
            }
        }
        for (start, end) in open {
            let groups = windows.entry((*end, *start)).or_default();
            match groups.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => values.push(*value),
                None => groups.push((*key, vec![*value])),
            }
        }
    }
    let mut lines = Vec::new();
    for ((end, start), groups) in windows {
        for (key, values) in groups {
            let bounds = format!("{},{},{}", stamp(start), stamp(end), stamp(end - 1));
            lines.push(format!("{bounds},{},{}", key.unwrap_or("NULL"), describe(&values)));
        }
    }
    Expected { lines, counts }
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or("NULL".into(), |value| value.to_string())
}

fn describe_plain(values: &[Option<i64>]) -> String {
    let known: Vec<i64> = values.iter().copied().flatten().collect();
    let sum = (!known.is_empty()).then(|| known.iter().sum::<i64>());
    let average = sum.map(|sum| format!("{:?}", sum as f64 / known.len() as f64));
    format!(
        "{},{},{},{},{},{},{}",
        known.len(),
        text(sum),
        text(known.iter().min()),
        text(known.iter().max()),
        text(average),
        known.iter().collect::<BTreeSet<_>>().len(),
        known.iter().filter(|value| **value > 2).count(),
    )
}

fn describe_ordered(values: &[Option<i64>]) -> String {
    let all: Vec<String> = values.iter().map(|value| text(*value)).collect();
    format!("{},[{}]", text(values[0]), all.join(", "))
}

fn kinds() -> impl Strategy<Value = (WindowKind, i64)> {
    let size = 1i64..8;
    prop_oneof![
        size.clone().prop_map(|size| (WindowKind::Tumble { size_us: size * MS }, size)),
        (size.clone(), 1i64..9).prop_map(|(slide, n)| {
            (WindowKind::Hop { slide_us: slide * MS, size_us: n * slide * MS }, n * slide)
        }),
        (size, 1i64..9).prop_map(|(step, n)| {
            (WindowKind::Cumulate { step_us: step * MS, size_us: n * step * MS }, n * step)
        }),
    ]
    .prop_flat_map(|(kind, size)| (Just(kind), (1 - size)..size))
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let key = prop::sample::select(vec![None, Some("a"), Some("b"), Some("c")]);
    let row = (prop::option::weighted(0.95, 0i64..12), key, prop::option::weighted(0.8, 0i64..5));
    prop::collection::vec(row, 0..60).prop_map(|rows| {
        // Time goes on by about one ms a row, from before 1970, with disorder and a jump.
        let moved = |(index, (time, key, value)): (usize, (Option<i64>, _, _))| {
            let jump = if index > 40 { 100 } else { 0 };
            (time.map(|time| time + index as i64 - 30 + jump), key, value)
        };
        rows.into_iter().enumerate().map(moved).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_305),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_what_row_by_row_gives(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
    ) {
        let expected = expected(kind, offset, &rows, delay, describe_plain);
        let node = node(assign(kind, offset * MS), vec![column(1)], plain_calls());
        let (given, counts) = run_node(&node, &rows, delay, cut);
        prop_assert_eq!(&given, &expected.lines);
        prop_assert_eq!(counts, expected.counts);

        let (given, counts) = run_two_phase(&node, &rows, delay, cut, 1);
        prop_assert_eq!(&given, &expected.lines);
        prop_assert_eq!(counts, expected.counts);

        let (mut given, counts) = run_two_phase(&node, &rows, delay, cut, 3);
        given.sort();
        let mut lines = expected.lines;
        lines.sort();
        prop_assert_eq!(given, lines);
        prop_assert_eq!(counts, expected.counts);
    }

    #[test]
    fn ordered_aggregates_see_rows_as_they_arrive(
        (kind, offset) in kinds(), rows in rows(), delay in 0i64..6, cut in 1usize..40,
    ) {
        let expected = expected(kind, offset, &rows, delay, describe_ordered);
        let node = node(assign(kind, offset * MS), vec![column(1)], ordered_calls());
        let (given, counts) = run_node(&node, &rows, delay, cut);
        prop_assert_eq!(&given, &expected.lines);
        prop_assert_eq!(counts, expected.counts);
    }
}

const TEN: WindowKind = WindowKind::Tumble { size_us: 10 * MS };

fn at(times: &[i64]) -> Vec<Row> {
    times.iter().map(|time| (Some(*time), Some("a"), Some(1))).collect()
}

#[test]
fn late_is_told_to_the_unit() {
    // Watermarks after the rows: 8, 9 = end - 1: the window [0, 10) has closed.
    let node = node(assign(TEN, 0), vec![], vec![call(count_udaf(), "c")]);
    for cut in [1, 2, 3] {
        let (given, counts) = run_node(&node, &at(&[0, 10, 9]), 2, cut);
        assert_eq!(counts, RowCounts { used: 3, ..RowCounts::default() }, "one unit before the close");
        assert_eq!(given[0], format!("{},{},{},2", stamp(0), stamp(10), stamp(9)));
        let (given, counts) = run_node(&node, &at(&[0, 11, 9]), 2, cut);
        assert_eq!(counts, RowCounts { used: 2, late: 1, ..RowCounts::default() }, "at the close");
        assert_eq!(given[0], format!("{},{},{},1", stamp(0), stamp(10), stamp(9)));
    }
}

#[test]
fn rows_without_time_are_counted() {
    let node = node(assign(TEN, 0), vec![], vec![call(count_udaf(), "c")]);
    let (given, counts) = run_node(&node, &[(None, None, Some(1)), (Some(1), None, Some(1))], 0, 5);
    assert_eq!(given.len(), 1);
    assert_eq!(counts, RowCounts { used: 1, null_time: 1, ..RowCounts::default() });
}

#[test]
fn no_row_no_window() {
    let node = node(assign(TEN, 0), vec![], vec![call(count_udaf(), "c")]);
    assert_eq!(run_node(&node, &[], 0, 1), (vec![], RowCounts::default()));
}

#[test]
fn years_1_and_9999() {
    let year_1 = -62_135_596_800_000;
    let year_10000 = 253_402_300_800_000;
    let day = WindowKind::Tumble { size_us: 86_400_000 * MS };
    let node = node(assign(day, 0), vec![], vec![call(count_udaf(), "c")]);
    let (given, counts) = run_node(&node, &at(&[year_1, year_10000 - 1]), 0, 8);
    assert_eq!(
        given,
        [
            "0001-01-01T00:00:00,0001-01-02T00:00:00,0001-01-01T23:59:59.999,1",
            "9999-12-31T00:00:00,+10000-01-01T00:00:00,9999-12-31T23:59:59.999,1",
        ]
    );
    assert_eq!(counts.used, 2);
}

#[test]
fn cumulate_repeats_quiet_steps() {
    // The steps that conformance/cumulate_quiet_steps expects, in ms for seconds.
    let kind = WindowKind::Cumulate { step_us: 5 * MS, size_us: 30 * MS };
    let node = node(assign(kind, 0), vec![], vec![call(count_udaf(), "c")]);
    for cut in [1, 3] {
        let (given, _) = run_node(&node, &at(&[6, 26, 65]), 2, cut);
        let line = |start, end, count| format!("{},{},{},{count}", stamp(start), stamp(end), stamp(end - 1));
        assert_eq!(
            given,
            [
                line(0, 10, 1),
                line(0, 15, 1),
                line(0, 20, 1),
                line(0, 25, 1),
                line(0, 30, 2),
                line(60, 70, 1),
                line(60, 75, 1),
                line(60, 80, 1),
                line(60, 85, 1),
                line(60, 90, 1),
            ]
        );
    }
}

#[test]
fn hop_over_many_slices_drops_its_state() {
    // 3,600 slices a window, a row in each of 10,000 slices: every window counts what it should.
    let kind = WindowKind::Hop { slide_us: MS, size_us: 3_600 * MS };
    let node = node(assign(kind, 0), vec![column(1)], vec![call(count_udaf(), "c")]);
    let times: Vec<i64> = (0..10_000).collect();
    let mut operator = operator(&node);
    let mut out = Output::default();
    let rows = at(&times);
    let running = running(&rows, 0);
    operator.process_batch(stream_batch(&rows, &running[..rows.len()]), &mut out).unwrap();
    operator.process_watermark(Watermark(9_999 * MS), &mut out).unwrap();
    let mut given = Vec::new();
    drain(&mut out, &mut given);
    assert_eq!(given.len(), 10_000);
    for (index, line) in given.iter().enumerate() {
        let count: usize = line.rsplit(',').next().unwrap().parse().unwrap();
        assert_eq!(count, (index + 1).min(3_600));
    }
    assert!(operator.state().windows < 3_600, "{:?}", operator.state());
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    assert_eq!(operator.state().windows, 0);
    assert_eq!(operator.state().rows, 0);
}

#[test]
fn the_global_window_gives_one_row_for_nothing() {
    let none =
        node(assign(WindowKind::Global, 0), vec![], vec![call(count_udaf(), "c"), call(sum_udaf(), "s")]);
    assert_eq!(run_node(&none, &[], 0, 1).0, ["0,NULL"]);
    let rows: Vec<Row> =
        vec![(None, Some("a"), Some(1)), (Some(5), Some("b"), Some(2)), (Some(1), None, None)];
    for cut in [1, 3] {
        let (given, counts) = run_node(&none, &rows, 0, cut);
        assert_eq!(given, ["2,3"]);
        assert_eq!(counts, RowCounts { used: 3, ..RowCounts::default() });
        assert_eq!(run_two_phase(&none, &rows, 0, cut, 2).0, ["2,3"]);
    }
    let keyed = node(assign(WindowKind::Global, 0), vec![column(1)], vec![call(count_udaf(), "c")]);
    assert_eq!(run_node(&keyed, &[], 0, 1).0, Vec::<String>::new());
    let rolled = WindowAggregateNode { grouping_sets: Some(vec![vec![false], vec![true]]), ..keyed };
    assert_eq!(run_node(&rolled, &[], 0, 1).0, ["NULL,1,0"]);
    assert_eq!(run_node(&rolled, &rows, 0, 2).0, ["a,0,1", "NULL,1,2", "b,0,1", "NULL,0,0"]);
}

#[test]
fn grouping_sets_come_in_the_order_of_rows() {
    // conformance/tumble_cube, with v as the second key.
    let rows: Vec<Row> =
        vec![(Some(1), Some("a"), Some(7)), (Some(2), Some("a"), Some(8)), (Some(3), Some("b"), Some(7))];
    let sets = vec![vec![false, false], vec![false, true], vec![true, false], vec![true, true]];
    let cube = WindowAggregateNode {
        grouping_sets: Some(sets),
        ..node(assign(TEN, 0), vec![column(1), column(2)], vec![call(count_udaf(), "c")])
    };
    let expected = [
        "a,7,0,1",
        "a,NULL,1,2",
        "NULL,7,2,2",
        "NULL,NULL,3,3",
        "a,8,0,1",
        "NULL,8,2,1",
        "b,7,0,1",
        "b,NULL,1,1",
    ];
    let bounds = format!("{},{},{}", stamp(0), stamp(10), stamp(9));
    let expected: Vec<String> = expected.iter().map(|line| format!("{bounds},{line}")).collect();
    for cut in [1, 2, 3] {
        assert_eq!(run_node(&cube, &rows, 5, cut).0, expected);
        assert_eq!(run_two_phase(&cube, &rows, 5, cut, 1).0, expected);
    }
}

#[test]
fn equal_grouping_sets_are_told_apart() {
    let sets = vec![vec![true], vec![false], vec![true]];
    assert_eq!((0..3).map(|index| grouping_id(&sets, index)).collect::<Vec<_>>(), [1, 0, 3]);
    let node = WindowAggregateNode {
        grouping_sets: Some(sets),
        ..node(assign(WindowKind::Global, 0), vec![column(1)], vec![call(count_udaf(), "c")])
    };
    assert_eq!(run_node(&node, &at(&[1]), 0, 1).0, ["NULL,1,1", "a,0,1", "NULL,3,1"]);
}

#[test]
fn session_is_refused() {
    let node = node(assign(WindowKind::Session { gap_us: 1 }, 0), vec![], vec![call(count_udaf(), "c")]);
    let schema = output(&node, &input());
    let plan = plan_node(Operation::WindowAggregate(Box::new(node)), schema);
    assert_eq!(create(&plan, &input()).map(|_| ()).unwrap_err().code(), "P002");
}

#[test]
fn a_sum_in_a_removed_row_can_not_fail() {
    // SUM(10 / v) FILTER (WHERE v > 2): the row with v = 0 is not divided.
    let quotient: ExprRef =
        Arc::new(BinaryExpr::new(lit(10i64), datafusion_expr::Operator::Divide, column(2)));
    let sum = call_over(&input(), sum_udaf(), quotient, "q").build().unwrap();
    let sum = AggregateCall { function: Arc::new(sum), filter: None, order_sensitive: false, inexact: false };
    let rows: Vec<Row> = vec![(Some(1), None, Some(0)), (Some(2), None, Some(5))];
    let guarded = node(assign(TEN, 0), vec![], vec![filtered(sum.clone())]);
    let (given, _) = run_node(&guarded, &rows, 5, 2);
    assert!(given[0].ends_with(",2"), "{given:?}");
    let bare = node(assign(TEN, 0), vec![], vec![sum]);
    let error = operator(&bare)
        .process_batch(stream_batch(&rows, &[i64::MIN, i64::MIN]), &mut Output::default())
        .unwrap_err();
    assert_eq!((error.code(), error.message()), ("R002", "division by zero"));
}

#[test]
fn nulls_and_empty_filters_as_in_field_report_b050() {
    let rows: Vec<Row> = vec![
        (Some(1), Some("a"), None),
        (Some(2), Some("a"), None),
        (Some(3), Some("b"), Some(5)),
        (Some(4), Some("b"), None),
        (Some(5), None, Some(7)),
        (Some(6), None, Some(7)),
    ];
    let mut calls = plain_calls();
    let none = BinaryExpr::new(column(2), datafusion_expr::Operator::Gt, lit(100i64));
    calls.push(AggregateCall { filter: Some(Arc::new(none)), ..call(sum_udaf(), "sf") });
    let node = node(assign(TEN, 0), vec![column(1)], calls);
    for cut in [1, 6] {
        let (given, _) = run_node(&node, &rows, 5, cut);
        let tails: Vec<&str> = given.iter().map(|line| line.splitn(4, ',').nth(3).unwrap()).collect();
        assert_eq!(
            tails,
            ["a,0,NULL,NULL,NULL,NULL,0,0,NULL", "b,1,5,5,5,5.0,1,1,NULL", "NULL,2,14,7,7,7.0,1,2,NULL"]
        );
    }
}

#[test]
fn nan_and_signed_zero_as_in_field_report_b047() {
    let schema: SchemaRef = Arc::new(Schema::new(vec![
        Field::new("ts", DataType::Timestamp(ArrowUnit::Millisecond, None), true),
        Field::new("k", DataType::Utf8, true),
        Field::new("v", DataType::Float64, true),
    ]));
    let value: ExprRef = Arc::new(Column::new("v", 2));
    let build = |function, distinct| {
        let built = call_over(&schema, function, value.clone(), "x").with_distinct(distinct).build().unwrap();
        AggregateCall { function: Arc::new(built), filter: None, order_sensitive: false, inexact: false }
    };
    let calls = vec![build(min_udaf(), false), build(max_udaf(), false), build(count_udaf(), true)];
    let nan = f64::NAN;
    let values =
        [("x", nan), ("x", 1.0), ("y", 1.0), ("y", nan), ("z", nan), ("z", -nan), ("w", -0.0), ("w", 0.0)];
    let rows = RecordBatch::try_new(
        schema.clone(),
        vec![
            Arc::new(TimestampMillisecondArray::from(vec![1i64; 8])),
            Arc::new(StringArray::from_iter_values(values.map(|value| value.0))),
            Arc::new(Float64Array::from_iter_values(values.map(|value| value.1))),
        ],
    )
    .unwrap();
    let by_key = node(assign(TEN, 0), vec![column(1)], calls);
    let by_value = node(assign(TEN, 0), vec![value.clone()], vec![build(count_udaf(), false)]);
    let give = |node: &WindowAggregateNode| {
        let plan = plan_node(Operation::WindowAggregate(Box::new(node.clone())), output(node, &schema));
        let mut operator = create(&plan, &schema).unwrap();
        let (mut out, mut given) = (Output::default(), Vec::new());
        operator.process_batch(StreamBatch::inserts(rows.clone(), Instant::now()), &mut out).unwrap();
        operator.process_watermark(Watermark::MAX, &mut out).unwrap();
        drain(&mut out, &mut given);
        given.iter().map(|line| line.splitn(4, ',').nth(3).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(give(&by_value), ["NaN,4", "1.0,2", "0.0,2"], "GROUP BY: one NaN, one zero");
    println!("{:?}", give(&by_key));
}

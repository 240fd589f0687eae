//! The edges of windows: times, NULL, nothing, the ends of time, grouping sets.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Float64Array, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit as ArrowUnit};
use arrow::record_batch::RecordBatch;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::min_max::max_udaf;
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};

use super::property::windows_of;
use super::{
    assign, call, call_over, distinct_count, filtered, node, operator, output, plain_calls, run_node,
    run_two_phase,
};
use crate::operator::testing::{MS, Row, column, drain, input, plan_node, running, stamp, stream_batch};
use crate::operator::{Output, RowCounts, create};
use crate::plan::*;
use crate::stream::{RunningWatermark, StreamBatch, StreamElement, TimeUnit, Watermark};

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
fn the_ends_of_time_are_told() {
    let far = (1 << 62) / MS;
    for kind in [
        TEN,
        WindowKind::Hop { slide_us: 5 * MS, size_us: 15 * MS },
        WindowKind::Cumulate { step_us: 5 * MS, size_us: 15 * MS },
    ] {
        let node = node(assign(kind, 3 * MS), vec![], vec![call(count_udaf(), "c")]);
        for cut in [1, 2] {
            let (given, counts) = run_node(&node, &at(&[-far, far]), 0, cut);
            let windows = |time| windows_of(kind, 3, time).len();
            assert_eq!(given.len(), windows(-far) + windows(far));
            assert_eq!(counts.used, 2);
        }
        for beyond in [i64::MIN / MS, -far - 1, far + 1, i64::MAX / MS] {
            let batch = stream_batch(&at(&[0, beyond]), &[i64::MIN; 2]);
            let error = operator(&node).process_batch(batch, &mut Output::default()).unwrap_err();
            assert_eq!(error.code(), "R002");
        }
    }
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
    // 600 slices a window, a row in each of 2,000 slices: every window counts what it should.
    let kind = WindowKind::Hop { slide_us: MS, size_us: 600 * MS };
    let node = node(assign(kind, 0), vec![column(1)], vec![call(count_udaf(), "c")]);
    let times: Vec<i64> = (0..2_000).collect();
    let mut operator = operator(&node);
    let mut out = Output::default();
    let rows = at(&times);
    let running = running(&rows, 0);
    operator.process_batch(stream_batch(&rows, &running[..rows.len()]), &mut out).unwrap();
    operator.process_watermark(Watermark(1_999 * MS), &mut out).unwrap();
    let mut given = Vec::new();
    drain(&mut out, &mut given);
    assert_eq!(given.len(), 2_000);
    for (index, line) in given.iter().enumerate() {
        let count: usize = line.rsplit(',').next().unwrap().parse().unwrap();
        assert_eq!(count, (index + 1).min(600));
    }
    assert!(operator.state().windows < 600, "{:?}", operator.state());
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    assert_eq!(operator.state().windows, 0);
    assert_eq!(operator.state().rows, 0);
}

#[test]
fn a_closed_window_owns_nothing() {
    // Field report B073: 200 windows of 500 rows, every row a new key, 5 s of delay.
    let kind = WindowKind::Tumble { size_us: 60_000 * MS };
    let node = node(assign(kind, 0), vec![column(2)], vec![filtered(call(max_udaf(), "m"))]);
    let (mut operator, mut out) = (operator(&node), Output::default());
    let mut after_ten = 0;
    for window in 0..200 {
        let row = |row: i64| (Some(window * 60_000 + row * 10), None, Some(window * 500 + row));
        let rows: Vec<Row> = (0..500).map(row).collect();
        let running: Vec<i64> = rows.iter().map(|row| (row.0.unwrap() - 5_000) * MS).collect();
        operator.process_batch(stream_batch(&rows, &running), &mut out).unwrap();
        operator.process_watermark(Watermark(*running.last().unwrap()), &mut out).unwrap();
        // The one before has waited for the delay.
        let state = operator.state();
        assert!(state.windows <= 2 && state.rows <= 1_000, "window {window}: {state:?}");
        if window == 9 {
            after_ten = state.bytes;
        }
        assert!(window < 10 || 2 * state.bytes <= 3 * after_ten, "window {window}: {state:?}");
    }
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    assert_eq!((operator.state().windows, operator.state().rows), (0, 0));
    let mut given = Vec::new();
    drain(&mut out, &mut given);
    assert_eq!(given.len(), 100_000);
}

#[test]
fn only_what_needs_arrival_order_has_its_own_windows() {
    let kind = WindowKind::Hop { slide_us: MS, size_us: 8 * MS };
    let mut sum = call(sum_udaf(), "s");
    sum.inexact = true;
    for (call, parts) in [(sum, 1), (super::ordered_calls().remove(1), 8)] {
        let mut operator = operator(&node(assign(kind, 0), vec![], vec![call]));
        operator.process_batch(stream_batch(&at(&[3]), &[0]), &mut Output::default()).unwrap();
        assert_eq!(operator.state().windows, parts);
    }
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

/// Rows that carry their window: start, end, key.
fn attached(rows: &[(i64, i64, &str)]) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("window_start", DataType::Timestamp(ArrowUnit::Millisecond, None), false),
        Field::new("window_end", DataType::Timestamp(ArrowUnit::Millisecond, None), false),
        Field::new("k", DataType::Utf8, true),
    ]));
    RecordBatch::try_new(
        schema,
        vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.0))),
            Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.1))),
            Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2))),
        ],
    )
    .unwrap()
}

#[test]
fn attached_windows_close_by_their_end() {
    let source =
        WindowSource::Attached { start: 0, end: 1, unit: TimeUnit::Millisecond, zone: None, copies: None };
    let rows = attached(&[(0, 20, "a"), (10, 20, "a"), (0, 10, "b"), (0, 20, "a"), (0, 10, "c")]);
    let schema = rows.schema();
    let count = call_over(&schema, count_udaf(), lit(1i64), "c").build().unwrap();
    let count =
        AggregateCall { function: Arc::new(count), filter: None, order_sensitive: false, inexact: false };
    let node = node(source, vec![Arc::new(Column::new("k", 2))], vec![count]);
    let plan = plan_node(Operation::WindowAggregate(Box::new(node.clone())), output(&node, &schema));
    // The watermark before the last row has closed [0, 10), one unit less has not.
    for (last, c_is_late) in [(9 * MS, true), (9 * MS - 1, false)] {
        let mut operator = create(&plan, &schema).unwrap();
        let (mut out, mut given) = (Output::default(), Vec::new());
        let running = RunningWatermark::new(vec![i64::MIN, 0, 0, last, last]);
        let batch =
            StreamBatch { running: Some(running), ..StreamBatch::inserts(rows.clone(), Instant::now()) };
        operator.process_batch(batch, &mut out).unwrap();
        operator.process_watermark(Watermark::MAX, &mut out).unwrap();
        drain(&mut out, &mut given);
        let line = |start, end, tail| format!("{},{},{},{tail}", stamp(start), stamp(end), stamp(end - 1));
        let mut expected = vec![line(0, 10, "b,1"), line(0, 20, "a,2"), line(10, 20, "a,1")];
        if !c_is_late {
            expected.insert(1, line(0, 10, "c,1"));
        }
        assert_eq!(given, expected);
        assert_eq!(out.counts.late, u64::from(c_is_late));
    }
}

#[test]
fn a_result_is_never_late_for_the_same_windows_downstream() {
    // The running watermark of a result is before its window_time.
    let node = node(assign(TEN, 0), vec![], vec![call(count_udaf(), "c")]);
    let mut operator = operator(&node);
    let mut out = Output::default();
    operator.process_batch(stream_batch(&at(&[1, 15, 27]), &[0, 0, 0]), &mut out).unwrap();
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    let running: Vec<i64> = out
        .drain()
        .filter_map(|element| match element {
            StreamElement::Batch(batch) => batch.running,
            _ => None,
        })
        .flat_map(|running| running.values().to_vec())
        .collect();
    assert_eq!(running, [8 * MS, 18 * MS, 28 * MS]);
}

#[test]
fn a_watermark_ahead_of_the_running_one_judges_too() {
    // An idle source was left out: its rows come behind the operator's watermark.
    let node = node(assign(TEN, 0), vec![], vec![call(count_udaf(), "c")]);
    let mut operator = operator(&node);
    let mut out = Output::default();
    operator.process_watermark(Watermark(9 * MS), &mut out).unwrap();
    operator.process_batch(stream_batch(&at(&[9, 10]), &[0, 0]), &mut out).unwrap();
    assert_eq!((out.counts.late, out.counts.used), (1, 1));
}

#[test]
fn states_of_single_rows_give_the_same() {
    // 50,000 rows with as many keys: aggregating them before the exchange is given up.
    let rows: Vec<Row> =
        (0..50_000).map(|row| (Some(row / 5_000), Some(["a", "b"][row as usize % 2]), Some(row))).collect();
    let count = filtered(call(count_udaf(), "c"));
    for aggregates in [vec![call(sum_udaf(), "s"), count.clone()], vec![distinct_count(), count]] {
        let node = node(assign(TEN, 0), vec![column(2)], aggregates);
        let one = run_node(&node, &rows, 3, 8_192);
        assert_eq!(one.0.len(), 50_000);
        assert_eq!(run_two_phase(&node, &rows, 3, 8_192, 1), one);
    }
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
            [
                "a,0,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL",
                "b,1,5,5,5,5.0,1,1,1,5,NULL",
                "NULL,2,14,7,7,7.0,1,2,1,7,NULL"
            ]
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
    let by_key = node(assign(TEN, 0), vec![column(1)], vec![build(count_udaf(), true)]);
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
    assert_eq!(give(&by_key), ["x,2", "y,2", "z,1", "w,1"], "COUNT(DISTINCT) agrees");
}

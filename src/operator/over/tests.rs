//! OVER against an evaluation row by row.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_functions_aggregate::bit_and_or_xor::bit_or_udaf;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::min_max::max_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use proptest::prelude::*;

use crate::operator::testing::{
    MS, Row, Step, column, input, plan_node, respread, run, running, stream_batch,
};
use crate::operator::{Operator, RowCounts, create};
use crate::plan::*;
use crate::stream::TimeUnit;

const ROW: OverFrame =
    OverFrame { unit: FrameUnit::Rows, start: FrameBound::Unbounded, end: FrameBound::Offset(0) };

fn call(function: OverFunction, frame: OverFrame) -> OverCall {
    OverCall { function, frame, text: "call".to_owned() }
}

fn count(frame: OverFrame) -> OverCall {
    let function =
        AggregateExprBuilder::new(count_udaf(), vec![column(2)]).schema(input()).alias("c").build();
    let aggregate = AggregateCall {
        function: Arc::new(function.unwrap()),
        filter: None,
        order_sensitive: true,
        inexact: true,
    };
    call(OverFunction::Aggregate(aggregate), frame)
}

fn by_time(calls: Vec<OverCall>, limit: Option<RankLimit>) -> Box<dyn Operator> {
    operator(by_time_node(calls, limit))
}

fn by_time_node(calls: Vec<OverCall>, limit: Option<RankLimit>) -> OverNode {
    let trigger = OverTrigger::EventTime { time: 0, unit: TimeUnit::Millisecond };
    OverNode { trigger, partition: vec![1], order: vec![], latest_first: false, calls, limit, identity: None }
}

fn operator(node: OverNode) -> Box<dyn Operator> {
    create(&over_node(node), &input()).unwrap()
}

fn over_node(node: OverNode) -> PlanNode {
    let output = output(node.calls.len());
    plan_node(Operation::Over(Box::new(node)), output)
}

/// Rows in three parts of two batches each, with a watermark after each batch.
fn thirds(rows: &[Row], delay: i64) -> [Vec<Step>; 3] {
    let (running, sixth) = (running(rows, delay), rows.len() / 6);
    [0, 1, 2].map(|part| {
        let batches = [2 * part, 2 * part + 1].map(|batch| {
            let (from, to) = (batch * sixth, if batch == 5 { rows.len() } else { (batch + 1) * sixth });
            let rows = Step::First(stream_batch(&rows[from..to], &running[from..to]));
            [rows, Step::Watermark(running[to])]
        });
        batches.into_iter().flatten().collect()
    })
}

/// Rows of seven keys, whose times go back a little.
fn rows_of_seven_keys() -> Vec<Row> {
    let names = [Some("a"), Some("b"), Some("c"), Some("dd"), Some("eee"), Some("f"), Some("")];
    (0..120).map(|row| (Some(row / 2 - row * 7 % 5), names[row as usize * 5 % 7], Some(row))).collect()
}

#[test]
fn keys_go_on_in_other_subtasks() {
    let rows = rows_of_seven_keys();
    let (mut expected, late) = expected(&rows, 3);
    expected.sort();
    assert!(late > 0);
    let node = over_node(by_time_node(all_calls(), None));
    let given = respread(&node, &input(), [&[1], &[]], &thirds(&rows, 3));
    let mut given = cells(&given);
    given.sort();
    assert_eq!(given, expected);
}

#[test]
fn what_is_known_of_rows_goes_on_in_other_subtasks() {
    let rows: Vec<Row> = rows_of_seven_keys()
        .into_iter()
        .map(|(time, key, value)| (time, key, value.filter(|value| value % 3 > 0)))
        .collect();
    let lag = OverFunction::Shift {
        value: column(2),
        by: 2,
        default: datafusion_common::ScalarValue::Int64(Some(-1)),
        ignores_nulls: true,
    };
    let aggregate = |function: Arc<datafusion_expr::AggregateUDF>, distinct: bool| {
        let built = AggregateExprBuilder::new(function, vec![column(2)]).schema(input()).alias("c");
        let function = Arc::new(built.with_distinct(distinct).build().unwrap());
        let call = AggregateCall { function, filter: None, order_sensitive: true, inexact: true };
        OverFunction::Aggregate(call)
    };
    let (max, any) = (max_udaf, bit_or_udaf);
    let last = |ignores_nulls| OverFunction::End { value: column(2), is_last: true, ignores_nulls };
    let nth = OverFunction::Nth { value: column(2), n: 2, ignores_nulls: true };
    let calls = vec![
        call(lag, ROW),
        call(aggregate(max(), false), ROW),
        call(aggregate(max(), false), rows_frame(-4, 0)),
        call(aggregate(any(), false), ROW),
        call(aggregate(any(), false), rows_frame(-4, 0)),
        call(aggregate(count_udaf(), true), range_frame(20)),
        call(last(true), ROW),
        call(last(false), rows_frame(-3, -1)),
        call(nth, ROW),
    ];
    let given = respread(&over_node(by_time_node(calls, None)), &input(), [&[1], &[]], &thirds(&rows, 10));
    assert_eq!(given.len(), rows.len());
    // Of the last row of a key by time, worked out from all of its rows.
    let own = rows.iter().filter(|row| row.1 == Some("a"));
    let mut own: Vec<(i64, Option<i64>)> = own.map(|row| (row.0.unwrap(), row.2)).collect();
    own.sort_by_key(|row| row.0);
    let known: Vec<i64> = own.iter().filter_map(|row| row.1).collect();
    let (end, value) = *own.last().unwrap();
    let text = |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
    let before = known.len() - usize::from(value.is_some());
    let last_five = own[own.len() - 5..].iter().filter_map(|row| row.1);
    let expected = [
        text(value),
        text(known[..before].iter().rev().nth(1).copied()),
        text(known.iter().max().copied()),
        text(last_five.clone().max()),
        text(known.iter().copied().reduce(|one, other| one | other)),
        text(last_five.reduce(|one, other| one | other)),
        own.iter().filter(|row| row.0 >= end - 20 && row.1.is_some()).count().to_string(),
        text(known.last().copied()),
        text(own[own.len() - 2].1),
        text(known.get(1).copied()),
    ];
    let line = given.iter().filter_map(|line| line.split_once(",a,")).map(|(_, cells)| cells);
    assert!(
        line.clone().any(|cells| cells == expected.join(",")),
        "{expected:?} is none of {:?}",
        line.collect::<Vec<_>>()
    );
}

#[test]
fn partitions_go_on_in_other_subtasks() {
    let rows = rows_of_seven_keys();
    let node = OverNode {
        trigger: OverTrigger::End,
        order: vec![SortKey { expr: column(2), descending: true, nulls_first: false }],
        ..by_time_node(vec![call(OverFunction::RowNumber, ROW)], Some(RankLimit { call: 0, most: 2 }))
    };
    let given = respread(&over_node(node), &input(), [&[1], &[]], &thirds(&rows, 3));
    // Row n has the key 5n mod 7, so each key has every seventh row.
    let mut expected: Vec<String> = (106..120)
        .map(|row| format!("{},{row},{}", rows[row as usize].1.unwrap(), if row < 113 { 2 } else { 1 }))
        .collect();
    expected.sort();
    let mut given = cells(&given);
    given.sort();
    assert_eq!(given, expected);
}

#[test]
fn partitions_stay_in_the_order_in_which_they_were_seen() {
    let node = OverNode {
        trigger: OverTrigger::End,
        order: vec![SortKey { expr: column(2), descending: false, nulls_first: false }],
        ..by_time_node(vec![call(OverFunction::RowNumber, ROW)], Some(RankLimit { call: 0, most: 1 }))
    };
    // The first partition that is seen loses its first row before the state is handed on.
    let mut rows: Vec<Row> = vec![(Some(0), Some("z"), Some(9)), (Some(0), Some("a"), Some(1))];
    rows.extend((0..40_000).map(|row| (Some(row), Some("z"), Some(row % 3))));
    let (given, _) = run(operator(node).as_mut(), &rows, 0, 8_192);
    assert_eq!(cells(&given), ["z,0,1", "a,1,1"]);
}

fn output(calls: usize) -> SchemaRef {
    let mut fields: Vec<Field> = input().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.extend((0..calls).map(|call| Field::new(format!("c{call}"), DataType::Int64, true)));
    Arc::new(Schema::new(fields))
}

fn rows_frame(start: i64, end: i64) -> OverFrame {
    OverFrame { unit: FrameUnit::Rows, start: FrameBound::Offset(start), end: FrameBound::Offset(end) }
}

fn range_frame(start_ms: i64) -> OverFrame {
    let start = FrameBound::Offset(-start_ms * MS);
    OverFrame { unit: FrameUnit::Range, start, end: FrameBound::Offset(0) }
}

/// The cells behind the time, which formats in many ways.
fn cells(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.split_once(',').unwrap().1.to_owned()).collect()
}

/// What rows give, row by row: those that are not late, by time; of each the number, rank, dense
/// rank, the value two rows before, and counts over four frames.
fn expected(rows: &[Row], delay: i64) -> (Vec<String>, u64) {
    let mut late = 0;
    let mut kept: Vec<(i64, &str, i64)> = Vec::new();
    for ((time, key, value), running) in rows.iter().zip(running(rows, delay)) {
        if time.unwrap() * MS <= running {
            late += 1;
        } else {
            kept.push((time.unwrap(), key.unwrap(), value.unwrap()));
        }
    }
    kept.sort_by_key(|row| row.0);
    let given = kept.iter().enumerate().map(|(index, (time, key, value))| {
        let own: Vec<(usize, i64, i64)> = kept
            .iter()
            .enumerate()
            .filter(|(_, row)| row.1 == *key)
            .map(|(index, row)| (index, row.0, row.2))
            .collect();
        let place = own.iter().position(|row| row.0 == index).unwrap();
        let rank = own.iter().filter(|row| row.1 < *time).count() + 1;
        let mut times: Vec<i64> = own.iter().filter(|row| row.1 < *time).map(|row| row.1).collect();
        times.dedup();
        let before = place.checked_sub(2).map_or("NULL".to_owned(), |place| own[place].2.to_string());
        let up_to_peers = own.iter().filter(|row| row.1 <= *time).count();
        let last_three = (place + 1).min(3);
        let lagging = (place + 1).saturating_sub(1).min(2);
        let in_range = own.iter().filter(|row| row.1 <= *time && row.1 >= *time - 4).count();
        format!(
            "{key},{value},{},{rank},{},{before},{up_to_peers},{last_three},{lagging},{in_range}",
            place + 1,
            times.len() + 1,
        )
    });
    (given.collect(), late)
}

fn all_calls() -> Vec<OverCall> {
    let shift = OverFunction::Shift {
        value: column(2),
        by: 2,
        default: datafusion_common::ScalarValue::Int64(None),
        ignores_nulls: false,
    };
    let peers = OverFrame { unit: FrameUnit::Range, ..ROW };
    vec![
        call(OverFunction::RowNumber, ROW),
        call(OverFunction::Rank, ROW),
        call(OverFunction::DenseRank, ROW),
        call(shift, ROW),
        count(peers),
        count(rows_frame(-2, 0)),
        count(rows_frame(-2, -1)),
        count(range_frame(4)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_306),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_what_row_by_row_gives(
        jitter in prop::collection::vec((0i64..8, 0usize..3), 0..40), delay in 0i64..6, cut in 1usize..20,
    ) {
        let keys = ["a", "b", "c"];
        let row = |(row, (jitter, key)): (i64, &(i64, usize))| -> Row {
            (Some(row / 2 - jitter), Some(keys[*key]), Some(row))
        };
        let rows: Vec<Row> = (0i64..).zip(&jitter).map(row).collect();
        let (given, counts) = run(by_time(all_calls(), None).as_mut(), &rows, delay, cut);
        let (expected, late) = expected(&rows, delay);
        prop_assert_eq!(cells(&given), expected);
        prop_assert_eq!((counts.late, counts.held), (late, 0));
    }
}

#[test]
fn of_the_first_rows_only_a_number_is_kept() {
    let limit = Some(RankLimit { call: 0, most: 1 });
    let rows: Vec<Row> = vec![
        (Some(5), Some("a"), Some(1)),
        (Some(4), Some("a"), Some(2)),
        (Some(4), Some("a"), Some(3)),
        (None, Some("a"), Some(4)),
        (Some(6), None, Some(5)),
        (Some(20), Some("a"), Some(6)),
        (Some(21), None, Some(7)),
        (Some(10), Some("b"), Some(8)),
    ];
    for cut in 1..=rows.len() {
        let mut over = by_time(vec![call(OverFunction::RowNumber, ROW)], limit);
        let (given, counts) = run(over.as_mut(), &rows, 5, cut);
        assert_eq!(cells(&given), ["a,2,1", "NULL,5,1"], "batches of {cut}");
        let expected = RowCounts { used: 2, late: 1, null_time: 1, filtered: 4, ..RowCounts::default() };
        assert_eq!(counts, expected);
        assert_eq!(over.state().rows, 0);
    }
}

#[test]
fn keys_that_no_frame_reaches_are_forgotten() {
    let mut over = by_time(vec![count(range_frame(10))], None);
    let names: Vec<String> = (0..1_000).map(|name| format!("k{name}")).collect();
    let names: &'static [String] = names.leak();
    let rows: Vec<Row> =
        (0..1_000).map(|row| (Some(row), Some(names[row as usize].as_str()), Some(0))).collect();
    let before = running(&rows, 0);
    let mut out = crate::operator::Output::default();
    for (row, one) in rows.iter().enumerate() {
        let batch = crate::operator::testing::stream_batch(&[*one], &before[row..=row]);
        over.process_batch(batch, &mut out).unwrap();
        over.process_watermark(crate::stream::Watermark(before[row + 1]), &mut out).unwrap();
        let state = over.state();
        assert!(state.windows <= 12 && state.rows <= 12, "{state:?}");
    }
}

#[test]
fn the_latest_of_equal_rows_may_be_the_first() {
    let rows: Vec<Row> = vec![
        (Some(7), Some("b"), Some(1)),
        (Some(5), Some("a"), Some(2)),
        (Some(7), Some("b"), Some(3)),
        (Some(6), Some("a"), Some(4)),
    ];
    for (latest_first, expected) in [(false, ["b,1,1", "a,4,1"]), (true, ["b,3,1", "a,4,1"])] {
        let order = vec![SortKey { expr: column(0), descending: true, nulls_first: false }];
        let node = OverNode {
            trigger: OverTrigger::End,
            partition: vec![1],
            order,
            latest_first,
            calls: vec![call(OverFunction::RowNumber, ROW)],
            limit: Some(RankLimit { call: 0, most: 1 }),
            identity: None,
        };
        for cut in 1..=rows.len() {
            let (given, counts) = run(operator(node.clone()).as_mut(), &rows, 0, cut);
            assert_eq!(cells(&given), expected, "batches of {cut}");
            assert_eq!((counts.used, counts.filtered, counts.held), (2, 2, 0));
        }
    }
}

#[test]
fn rows_that_cannot_be_first_are_dropped_early() {
    let node = OverNode {
        trigger: OverTrigger::End,
        partition: vec![1],
        order: vec![SortKey { expr: column(2), descending: true, nulls_first: false }],
        latest_first: false,
        calls: vec![call(OverFunction::RowNumber, ROW)],
        limit: Some(RankLimit { call: 0, most: 2 }),
        identity: None,
    };
    let mut over = operator(node);
    let rows: Vec<Row> = (0..200_000).map(|row| (Some(row), Some("a"), Some(row % 1_000))).collect();
    let (given, counts) = run(over.as_mut(), &rows, 0, 4_096);
    // The first two of the 200 rows with 999.
    assert_eq!(cells(&given), ["a,999,1", "a,999,2"]);
    assert!(given[0].contains("00:00:00.999") && given[1].contains("00:00:01.999"), "{given:?}");
    assert_eq!((counts.used, counts.filtered), (2, 199_998));
}

//! Bounds, lateness and rows that join sessions, each at its edge.

use datafusion_functions_aggregate::count::count_udaf;

use super::super::super::tests::{call, ordered_calls};
use super::{aggregate, run_cut, session_rows, sessions};
use crate::operator::testing::{MS, Row, column, stamp, stream_batch};
use crate::operator::{Output, RowCounts};
use crate::plan::WindowAggregateNode;
use crate::stream::Watermark;

fn counted(partition: Vec<usize>) -> WindowAggregateNode {
    let keys = partition.iter().map(|index| column(*index)).collect();
    sessions(10, partition, keys, vec![call(count_udaf(), "c")])
}

fn at(times: &[i64]) -> Vec<Row> {
    times.iter().map(|time| (Some(*time), Some("a"), Some(*time))).collect()
}

fn line(start: i64, end: i64, rest: &str) -> String {
    format!("{},{},{},{rest}", stamp(start), stamp(end), stamp(end - 1))
}

/// What comes out, whatever the batches.
fn give(node: &WindowAggregateNode, rows: &[Row], delay: i64) -> (Vec<String>, RowCounts) {
    let whole = run_cut(aggregate(node).as_mut(), rows, delay, &[rows.len()]);
    for cuts in [&[1][..], &[2], &[1, 3]] {
        assert_eq!(run_cut(aggregate(node).as_mut(), rows, delay, cuts), whole, "cut by {cuts:?}");
    }
    whole
}

#[test]
fn one_gap_apart_merges_and_one_unit_more_does_not() {
    let (given, _) = give(&counted(vec![1]), &at(&[0, 10]), 100);
    assert_eq!(given, [line(0, 20, "a,2")]);
    let (given, _) = give(&counted(vec![1]), &at(&[0, 11]), 100);
    assert_eq!(given, [line(0, 10, "a,1"), line(11, 21, "a,1")]);
    // The same the other way round, and before 1970.
    let (given, _) = give(&counted(vec![1]), &at(&[-5, -15]), 100);
    assert_eq!(given, [line(-15, 5, "a,2")]);
    let (given, _) = give(&counted(vec![1]), &at(&[-5, -16]), 100);
    assert_eq!(given, [line(-16, -6, "a,1"), line(-5, 5, "a,1")]);
}

#[test]
fn a_row_joins_two_sessions() {
    let (given, counts) = give(&counted(vec![1]), &at(&[0, 18, 9]), 100);
    assert_eq!(given, [line(0, 28, "a,3")]);
    assert_eq!(counts.used, 3);
    // Exactly one gap from both.
    let (given, _) = give(&counted(vec![1]), &at(&[0, 20, 10]), 100);
    assert_eq!(given, [line(0, 30, "a,3")]);
    // One unit too far from the first; then from the second.
    let (given, _) = give(&counted(vec![1]), &at(&[0, 20, 11]), 100);
    assert_eq!(given, [line(0, 10, "a,1"), line(11, 30, "a,2")]);
    let (given, _) = give(&counted(vec![1]), &at(&[0, 20, 9]), 100);
    assert_eq!(given, [line(0, 19, "a,2"), line(20, 30, "a,1")]);
}

#[test]
fn sessions_before_the_latest_grow_and_join() {
    // Four sessions: 0, 20, 40, 100. 10 joins the first two, 30 the third to them.
    let (given, _) = give(&counted(vec![1]), &at(&[0, 20, 40, 100, 10, 30]), 1000);
    assert_eq!(given, [line(0, 50, "a,5"), line(100, 110, "a,1")]);
    // One that grows at its start, then one that is new between two others.
    let (given, _) = give(&counted(vec![1]), &at(&[50, 100, 45, 10, 75]), 1000);
    let expected = [line(10, 20, "a,1"), line(45, 60, "a,2"), line(75, 85, "a,1"), line(100, 110, "a,1")];
    assert_eq!(given, expected);
}

#[test]
fn joined_rows_stay_in_the_order_of_arrival() {
    let node = sessions(10, vec![1], vec![column(1)], ordered_calls());
    let (given, _) = give(&node, &at(&[18, 0, 20, 9, 3]), 100);
    assert_eq!(given, [line(0, 30, "a,18,[18, 0, 20, 9, 3]")]);
}

#[test]
fn a_late_row_that_touches_an_open_session_is_used() {
    // After 20 the watermark is 20: 12 and its own session [12, 22) are not late; 11 is ≤ 20 and
    // [11, 21) ends with the unit 20: late if alone, but 16 has kept [16, 30) open.
    let (given, counts) = give(&counted(vec![1]), &at(&[20, 16, 11]), 0);
    assert_eq!(given, [line(11, 30, "a,3")]);
    assert_eq!(counts, RowCounts { used: 3, ..RowCounts::default() });
    // [9, 19) does not reach 20 and is over.
    let (given, counts) = give(&counted(vec![1]), &at(&[20, 9]), 0);
    assert_eq!(given, [line(20, 30, "a,1")]);
    assert_eq!(counts, RowCounts { used: 1, late: 1, ..RowCounts::default() });
}

#[test]
fn late_is_told_to_the_unit() {
    // The watermark is 29 after the second row, of another key: [20, 30) is over at 29.
    let rows = |time| {
        vec![(Some(20), Some("a"), Some(1)), (Some(29), Some("b"), Some(1)), (Some(time), Some("a"), Some(1))]
    };
    let (given, counts) = give(&counted(vec![1]), &rows(19), 0);
    assert_eq!(given, [line(20, 30, "a,1"), line(29, 39, "b,1")]);
    assert_eq!(counts, RowCounts { used: 2, late: 1, ..RowCounts::default() });
    // A row whose own session ends later does not open the old one again.
    let (given, counts) = give(&counted(vec![1]), &rows(21), 0);
    assert_eq!(given, [line(20, 30, "a,1"), line(21, 31, "a,1"), line(29, 39, "b,1")]);
    assert_eq!(counts, RowCounts { used: 3, ..RowCounts::default() });
    // One unit earlier it is open.
    let (given, _) = give(&counted(vec![1]), &rows(19), 1);
    assert_eq!(given, [line(19, 30, "a,2"), line(29, 39, "b,1")]);
}

#[test]
fn a_session_that_is_over_inside_a_batch_takes_no_more_rows() {
    // 40 closes [0, 10); 35 is a session of its own; 9 is late though [0, 10) came in the same batch.
    let (given, counts) = give(&counted(vec![1]), &at(&[0, 40, 9, 35]), 0);
    assert_eq!(given, [line(0, 10, "a,1"), line(35, 50, "a,2")]);
    assert_eq!(counts, RowCounts { used: 3, late: 1, ..RowCounts::default() });
}

#[test]
fn null_is_a_key_and_no_time_is_none() {
    let rows: Vec<Row> = vec![
        (Some(0), None, Some(1)),
        (None, Some("a"), Some(1)),
        (Some(5), Some("a"), Some(1)),
        (Some(8), None, Some(1)),
    ];
    let (given, counts) = give(&counted(vec![1]), &rows, 0);
    assert_eq!(given, [line(5, 15, "a,1"), line(0, 18, "NULL,2")]);
    assert_eq!(counts, RowCounts { used: 3, null_time: 1, ..RowCounts::default() });
}

#[test]
fn whole_numbers_and_several_columns_are_keys() {
    let rows: Vec<Row> = vec![
        (Some(0), Some("a"), Some(1)),
        (Some(1), Some("a"), Some(2)),
        (Some(2), Some("a"), None),
        (Some(3), Some("b"), Some(1)),
        (Some(4), Some("a"), Some(1)),
        (Some(5), Some("b"), None),
    ];
    let (given, _) = give(&counted(vec![2]), &rows, 0);
    assert_eq!(given, [line(1, 11, "2,1"), line(0, 14, "1,3"), line(2, 15, "NULL,0")]);
    let (given, _) = give(&counted(vec![1, 2]), &rows, 0);
    let expected = [
        line(1, 11, "a,2,1"),
        line(2, 12, "a,NULL,0"),
        line(3, 13, "b,1,1"),
        line(0, 14, "a,1,2"),
        line(5, 15, "b,NULL,0"),
    ];
    assert_eq!(given, expected);
}

#[test]
fn keys_inside_sessions_of_all_rows() {
    // The order is that of the groups' first rows in the session.
    let node = sessions(10, vec![], vec![column(1)], vec![call(count_udaf(), "c")]);
    let rows: Vec<Row> = vec![
        (Some(5), Some("b"), Some(1)),
        (Some(0), Some("a"), Some(1)),
        (Some(14), Some("b"), Some(1)),
        (Some(90), Some("a"), Some(1)),
    ];
    let (given, _) = give(&node, &rows, 20);
    assert_eq!(given, [line(0, 24, "b,2"), line(0, 24, "a,1"), line(90, 100, "a,1")]);
}

#[test]
fn grouping_sets() {
    let mut node = sessions(10, vec![1], vec![column(1), column(2)], vec![call(count_udaf(), "c")]);
    node.grouping_sets = Some(vec![vec![false, false], vec![false, true]]);
    let rows: Vec<Row> =
        vec![(Some(0), Some("a"), Some(7)), (Some(1), Some("a"), Some(8)), (Some(2), Some("a"), Some(7))];
    let (given, _) = give(&node, &rows, 20);
    assert_eq!(given, [line(0, 12, "a,7,0,2"), line(0, 12, "a,NULL,1,3"), line(0, 12, "a,8,0,1")]);
}

#[test]
fn years_1_and_9999() {
    let (year_1, year_9999) = (-62_135_596_800_000, 253_402_300_799_999);
    let (given, counts) = give(&counted(vec![1]), &at(&[year_1, year_9999]), 0);
    assert_eq!(given.len(), 2);
    assert!(given[0].starts_with("0001-01-01T00:00:00,0001-01-01T00:00:00.010,"), "{}", given[0]);
    assert!(given[1].starts_with("9999-12-31T23:59:59.999,+10000-01-01T00:00:00.009,"), "{}", given[1]);
    assert_eq!(counts.used, 2);
}

#[test]
fn a_watermark_ahead_of_the_running_one_judges_too() {
    // An idle source was left out: its rows come behind the operator's watermark.
    let mut operator = aggregate(&counted(vec![1]));
    let mut out = Output::default();
    operator.process_watermark(Watermark(9 * MS), &mut out).unwrap();
    operator.process_batch(stream_batch(&at(&[0, 1]), &[0, 0]), &mut out).unwrap();
    assert_eq!((out.counts.late, out.counts.used), (1, 1));
}

#[test]
fn no_row_no_session() {
    assert_eq!(run_cut(aggregate(&counted(vec![])).as_mut(), &[], 0, &[1]), (vec![], RowCounts::default()));
}

#[test]
fn rows_wait_for_their_session() {
    let mut operator = session_rows(10, vec![1]);
    let (mut out, mut given) = (Output::default(), Vec::new());
    let rows: Vec<Row> = vec![(Some(0), Some("a"), Some(1)), (Some(4), Some("b"), Some(2))];
    operator.process_batch(stream_batch(&rows, &[i64::MIN, 0]), &mut out).unwrap();
    assert_eq!((out.counts.held, out.counts.used), (2, 0));
    operator.process_watermark(Watermark(9 * MS), &mut out).unwrap();
    crate::operator::testing::drain(&mut out, &mut given);
    assert_eq!(given, [format!("{},a,1,{},{},{}", stamp(0), stamp(0), stamp(10), stamp(9))]);
    assert_eq!((out.counts.held, out.counts.used), (1, 1));
}

#[test]
fn a_silent_key_closes_on_the_time_of_others_as_in_field_report_b034() {
    let rows: Vec<Row> = [(0, "quiet"), (3, "busy"), (12, "busy"), (20, "busy")]
        .map(|(time, key)| (Some(time), Some(key), Some(1)))
        .to_vec();
    let mut operator = aggregate(&counted(vec![1]));
    let (mut out, mut given) = (Output::default(), Vec::new());
    operator.process_batch(stream_batch(&rows[..3], &[i64::MIN, 0, 3 * MS]), &mut out).unwrap();
    operator.process_watermark(Watermark(12 * MS), &mut out).unwrap();
    crate::operator::testing::drain(&mut out, &mut given);
    assert_eq!(given, [line(0, 10, "quiet,1")], "out while the other is open");
    operator.process_batch(stream_batch(&rows[3..], &[12 * MS]), &mut out).unwrap();
    operator.process_watermark(Watermark::MAX, &mut out).unwrap();
    crate::operator::testing::drain(&mut out, &mut given);
    assert_eq!(given[1..], [line(3, 30, "busy,3")]);
}

//! Interval joins against an evaluation of all pairs.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion_expr::Operator as Comparison;
use datafusion_physical_expr::expressions::{BinaryExpr, Column};
use proptest::prelude::*;

use crate::operator::testing::{
    MS, Row, drain, input, pieces, plan_node, respread, running, some_rows, stream_batch, three_parts,
};
use crate::operator::{Operator, Output, RowCounts, create};
use crate::plan::{ExprRef, IntervalJoinNode, JoinKind, Operation, PlanNode};
use crate::stream::{StreamElement, Watermark};

const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

#[derive(Debug, Clone, Copy)]
struct Bounds {
    lower: Option<i64>,
    upper: Option<i64>,
    with_condition: bool,
}

fn columns(nullable: bool) -> Vec<Field> {
    input().fields().iter().map(|field| field.as_ref().clone().with_nullable(nullable)).collect()
}

fn join(kind: JoinKind, bounds: Bounds) -> Box<dyn Operator> {
    create(&node(kind, bounds), &input()).unwrap()
}

fn node(kind: JoinKind, bounds: Bounds) -> PlanNode {
    let pair: SchemaRef = Arc::new(Schema::new([columns(true), columns(true)].concat()));
    let less: ExprRef = Arc::new(BinaryExpr::new(
        Arc::new(Column::new("v", 2)),
        Comparison::Lt,
        Arc::new(Column::new("v", 5)),
    ));
    let node = IntervalJoinNode {
        kind,
        times: [0, 0],
        lower_us: bounds.lower.map(|ms| ms * MS),
        upper_us: bounds.upper.map(|ms| ms * MS),
        keys: [vec![1], vec![1]],
        null_is_equal: false,
        condition: bounds.with_condition.then_some(less),
        pair: Arc::clone(&pair),
        first_width: 3,
        delay_us: bounds.upper.unwrap_or(0).max(-bounds.lower.unwrap_or(0)).max(0) * MS,
    };
    let schema = if kind.gives_pairs() { pair } else { Arc::new(Schema::new(columns(true))) };
    plan_node(Operation::IntervalJoin(Box::new(node)), schema)
}

/// Runs rows cut in groups of `cut`; of a group the rows of one input come first, then a watermark.
fn run(
    join: &mut dyn Operator,
    rows: &[(usize, Row)],
    delay: i64,
    cut: usize,
    second_first: bool,
) -> (Vec<String>, RowCounts) {
    let before = running(&rows.iter().map(|row| row.1).collect::<Vec<_>>(), delay);
    let (mut out, mut given, mut last) = (Output::default(), Vec::new(), i64::MIN);
    for from in (0..rows.len()).step_by(cut) {
        let to = rows.len().min(from + cut);
        for input in if second_first { [1, 0] } else { [0, 1] } {
            let own: Vec<usize> = (from..to).filter(|row| rows[*row].0 == input).collect();
            let batch: Vec<Row> = own.iter().map(|row| rows[*row].1).collect();
            let running: Vec<i64> = own.iter().map(|row| before[*row]).collect();
            match input {
                0 => join.process_batch(stream_batch(&batch, &running), &mut out).unwrap(),
                _ => join.process_second(stream_batch(&batch, &running), &mut out).unwrap(),
            }
        }
        if before[to] > last {
            last = before[to];
            join.process_watermark(Watermark(last), &mut out).unwrap();
        }
        drain(&mut out, &mut given);
    }
    join.process_watermark(Watermark::MAX, &mut out).unwrap();
    join.finish(&mut out).unwrap();
    drain(&mut out, &mut given);
    assert_eq!((join.state().rows, join.state().windows), (0, 0));
    (values(&given), out.counts)
}

/// The values of the rows of a result.
fn values(lines: &[String]) -> Vec<String> {
    let values = |line: &String| {
        let cells: Vec<&str> = line.split(',').collect();
        cells.chunks(3).map(|row| row[2]).collect::<Vec<_>>().join(",")
    };
    lines.iter().map(values).collect()
}

/// The values of the rows that come out, in no order, and the number of late rows.
fn expected(rows: &[(usize, Row)], delay: i64, kind: JoinKind, bounds: Bounds) -> (Vec<String>, u64) {
    let all: Vec<Row> = rows.iter().map(|row| row.1).collect();
    let before = running(&all, delay);
    let in_time: Vec<&(usize, Row)> = rows
        .iter()
        .zip(&before)
        .filter(|(row, running)| row.1.0.unwrap() * MS > **running)
        .map(|(row, _)| row)
        .collect();
    let late = (rows.len() - in_time.len()) as u64;
    let meets = |first: &Row, second: &Row| {
        let apart = second.0.unwrap() - first.0.unwrap();
        first.1.is_some()
            && first.1 == second.1
            && bounds.lower.is_none_or(|lower| apart >= lower)
            && bounds.upper.is_none_or(|upper| apart <= upper)
            && (!bounds.with_condition || first.2 < second.2)
    };
    let side = |input: usize| in_time.iter().filter(move |row| row.0 == input).map(|row| row.1);
    let value = |row: &Row| row.2.unwrap().to_string();
    let mut given = Vec::new();
    for first in side(0) {
        let partners: Vec<Row> = side(1).filter(|second| meets(&first, second)).collect();
        match kind {
            JoinKind::Semi if !partners.is_empty() => given.push(value(&first)),
            JoinKind::Anti if partners.is_empty() => given.push(value(&first)),
            JoinKind::Semi | JoinKind::Anti => {}
            _ => {
                given.extend(partners.iter().map(|second| format!("{},{}", value(&first), value(second))));
                if partners.is_empty() && kind.keeps_first() {
                    given.push(format!("{},NULL", value(&first)));
                }
            }
        }
    }
    for second in side(1).filter(|_| kind.keeps_second()) {
        if !side(0).any(|first| meets(&first, &second)) {
            given.push(format!("NULL,{}", value(&second)));
        }
    }
    given.sort();
    (given, late)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_306),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_all_pairs_in_one_order(
        jitter in prop::collection::vec((0usize..2, 0i64..8, 0usize..4), 0..40),
        delay in 0i64..6,
        (lower, width) in (-5i64..5, 0i64..7),
        (has_lower, has_upper, with_condition) in any::<(bool, bool, bool)>(),
        (kind, cut, second_first) in (0usize..6, 1usize..20, any::<bool>()),
    ) {
        let keys = [Some("a"), Some("b"), Some("c"), None];
        let rows: Vec<(usize, Row)> = (0i64..)
            .zip(&jitter)
            .map(|(row, (input, jitter, key))| (*input, (Some(row / 2 - jitter), keys[*key], Some(row))))
            .collect();
        let (has_lower, has_upper) = (has_lower || !has_upper, has_upper || !has_lower);
        let bounds = Bounds {
            lower: has_lower.then_some(lower),
            upper: has_upper.then_some(lower + width),
            with_condition,
        };
        let kind = KINDS[kind];
        let (given, counts) = run(join(kind, bounds).as_mut(), &rows, delay, cut, second_first);
        let (one_by_one, _) = run(join(kind, bounds).as_mut(), &rows, delay, 1, false);
        prop_assert_eq!(&given, &one_by_one);
        let (expected, late) = expected(&rows, delay, kind, bounds);
        let mut given = given;
        given.sort();
        prop_assert_eq!(given, expected);
        prop_assert_eq!((counts.late, counts.held), (late, 0));
    }
}

#[test]
fn other_numbers_of_subtasks_take_up_the_state() {
    let rows = some_rows(240);
    for (kind, with_condition) in KINDS.into_iter().zip([true, false].into_iter().cycle()) {
        let bounds = Bounds { lower: Some(-6), upper: Some(4), with_condition };
        let parts = three_parts(&rows, 2, 5);
        let mut given = values(&respread(&node(kind, bounds), &input(), [&[1], &[1]], &parts));
        given.sort();
        assert_eq!(given, expected(&rows, 2, kind, bounds).0, "{kind:?}");
    }
}

#[test]
fn state_is_the_rows_of_the_interval() {
    let bounds = Bounds { lower: Some(-10), upper: Some(10), with_condition: false };
    let mut join = join(JoinKind::Full, bounds);
    let (mut out, mut given) = (Output::default(), 0);
    for time in 0..5_000_i64 {
        for input in [0, 1] {
            let batch = stream_batch(&[(Some(time), Some("k"), Some(time))], &[(time - 1) * MS]);
            match input {
                0 => join.process_batch(batch, &mut out).unwrap(),
                _ => join.process_second(batch, &mut out).unwrap(),
            }
        }
        join.process_watermark(Watermark(time * MS), &mut out).unwrap();
        for element in out.drain() {
            match element {
                StreamElement::Batch(batch) => given += batch.num_rows(),
                StreamElement::Watermark(watermark) => assert_eq!(watermark.0, (time - 10) * MS),
                _ => unreachable!("a join gives rows and watermarks"),
            }
        }
        assert!(join.state().rows <= 2 * 11, "{:?}", join.state());
    }
    // Each row has 21 partners, but for those near the ends.
    assert_eq!(given, 5_000 * 21 - 2 * (1..=10).sum::<usize>());
}

/// 300 rows with 300 others at one time: no more than some batches of pairs are there at once.
#[test]
fn many_pairs_come_piece_by_piece() {
    for (with_condition, rows) in [(false, 90_000), (true, 300 * 299 / 2)] {
        let bounds = Bounds { lower: Some(0), upper: Some(0), with_condition };
        let mut join = join(JoinKind::Inner, bounds);
        let mut out = Output::default();
        let own: Vec<Row> = (0..300).map(|v| (Some(5), Some("k"), Some(v))).collect();
        join.process_batch(stream_batch(&own, &[0; 300]), &mut out).unwrap();
        join.process_second(stream_batch(&own, &[0; 300]), &mut out).unwrap();
        join.process_watermark(Watermark::MAX, &mut out).unwrap();
        let (pieces, given) = pieces(join.as_mut(), &mut out, 5 * 8_192);
        assert_eq!(given, rows);
        assert!(pieces >= 2, "{pieces} pieces");
        assert_eq!(join.state().rows, 0);
    }
}

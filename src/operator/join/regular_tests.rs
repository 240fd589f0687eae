//! Joins of rows that come and go, against an evaluation of what is left.

use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion_expr::Operator as Comparison;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, Column, lit};
use proptest::prelude::*;

use crate::operator::testing::{
    MS, Row, input, lines, pieces, plan_node, record_batch, respread, some_rows, three_parts, with_deletes,
};
use crate::operator::{Operator, Output, create};
use crate::plan::{ExprRef, Horizon, JoinKind, Operation, PlanNode, RegularJoinNode, StateTtl, TtlClock};
use crate::stream::{RowKind, RowKinds, StreamBatch, StreamElement, Watermark};
use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};

const KINDS: [JoinKind; 6] =
    [JoinKind::Inner, JoinKind::Left, JoinKind::Right, JoinKind::Full, JoinKind::Semi, JoinKind::Anti];

/// Input, what it does, key, value.
type Change = (usize, RowKind, Option<&'static str>, i64);

fn join(kind: JoinKind, with_condition: bool, updating: bool) -> Box<dyn Operator> {
    operator(conditioned(kind, with_condition, updating), kind)
}

fn conditioned(kind: JoinKind, with_condition: bool, updating: bool) -> RegularJoinNode {
    let columns = || input().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<Field>>();
    let pair: SchemaRef = Arc::new(Schema::new([columns(), columns()].concat()));
    let less: ExprRef = Arc::new(BinaryExpr::new(
        Arc::new(Column::new("v", 2)),
        Comparison::Lt,
        Arc::new(Column::new("v", 5)),
    ));
    let less = with_condition.then_some(less);
    node(kind, less, pair, updating)
}

fn node(kind: JoinKind, condition: Option<ExprRef>, pair: SchemaRef, updating: bool) -> RegularJoinNode {
    RegularJoinNode {
        kind,
        keys: [vec![1], vec![1]],
        null_is_equal: false,
        condition,
        pair,
        first_width: 3,
        updating: [updating; 2],
        ttl: None,
        horizons: [None; 2],
    }
}

fn operator(node: RegularJoinNode, kind: JoinKind) -> Box<dyn Operator> {
    create(&planned(node, kind), &input()).unwrap()
}

fn planned(node: RegularJoinNode, kind: JoinKind) -> PlanNode {
    let schema = if kind.gives_pairs() { Arc::clone(&node.pair) } else { input() };
    plan_node(Operation::RegularJoin(Box::new(node)), schema)
}

/// What is given, as key and value of each side.
fn run(join: &mut dyn Operator, changes: &[Change], cuts: &[usize]) -> Vec<(RowKind, String)> {
    let (mut out, mut given, mut from) = (Output::default(), Vec::new(), 0);
    for to in cuts.iter().copied().chain([changes.len()]) {
        for part in changes[from..to].chunk_by(|one, other| one.0 == other.0) {
            let rows: Vec<Row> = part.iter().map(|change| (None, change.2, Some(change.3))).collect();
            let mut batch = StreamBatch::inserts(record_batch(&rows), Instant::now());
            if part.iter().any(|change| change.1 != Insert) {
                batch.kinds = Some(RowKinds::new(part.iter().map(|change| change.1).collect::<Vec<_>>()));
            }
            match part[0].0 {
                0 => join.process_batch(batch, &mut out).unwrap(),
                _ => join.process_second(batch, &mut out).unwrap(),
            }
        }
        from = to;
    }
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            let kinds = batch.kinds.map(|kinds| kinds.values().to_vec());
            let kinds = kinds.unwrap_or_else(|| vec![Insert; batch.rows.num_rows()]);
            let short = |line: String| {
                let cells: Vec<&str> = line.split(',').collect();
                cells.chunks(3).map(|side| format!("{}{}", side[1], side[2])).collect::<Vec<_>>().join(" ")
            };
            given.extend(kinds.into_iter().zip(lines(&batch.rows).into_iter().map(short)));
        }
    }
    given
}

fn expected(left: &[Vec<(Option<&str>, i64)>; 2], kind: JoinKind, with_condition: bool) -> Vec<String> {
    let meets = |first: &(Option<&str>, i64), second: &(Option<&str>, i64)| {
        first.0.is_some() && first.0 == second.0 && (!with_condition || first.1 < second.1)
    };
    let text = |row: &(Option<&str>, i64)| format!("{}{}", row.0.unwrap_or("NULL"), row.1);
    let mut rows = Vec::new();
    for first in &left[0] {
        let partners: Vec<_> = left[1].iter().filter(|second| meets(first, second)).collect();
        match kind {
            JoinKind::Semi | JoinKind::Anti => {
                if partners.is_empty() == (kind == JoinKind::Anti) {
                    rows.push(text(first));
                }
            }
            _ if partners.is_empty() && kind.keeps_first() => rows.push(format!("{} NULLNULL", text(first))),
            _ => rows.extend(partners.iter().map(|second| format!("{} {}", text(first), text(second)))),
        }
    }
    for second in left[1].iter().filter(|_| kind.keeps_second()) {
        if !left[0].iter().any(|first| meets(first, second)) {
            rows.push(format!("NULLNULL {}", text(second)));
        }
    }
    rows.sort();
    rows
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_306),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_left_is_the_join_of_what_is_left(
        choices in prop::collection::vec(
            (0usize..2, 0usize..4, 0i64..3, 0usize..3, any::<prop::sample::Index>()), 0..50),
        (kind, with_condition, updating, cut) in (0usize..6, any::<bool>(), any::<bool>(), 1usize..20),
    ) {
        let keys = [Some("a"), Some("b"), Some("c"), None];
        let mut left: [Vec<(Option<&str>, i64)>; 2] = Default::default();
        let mut changes: Vec<Change> = Vec::new();
        for (input, key, value, what, which) in &choices {
            let row = (keys[*key], *value);
            if *what == 0 && updating && !left[*input].is_empty() {
                let row = left[*input].swap_remove(which.index(left[*input].len()));
                changes.push((*input, Delete, row.0, row.1));
            } else {
                left[*input].push(row);
                changes.push((*input, Insert, row.0, row.1));
            }
        }
        let kind = KINDS[kind];
        let cuts: Vec<usize> = (cut..changes.len()).step_by(cut).collect();
        let given = run(join(kind, with_condition, updating).as_mut(), &changes, &cuts);
        let one_by_one: Vec<usize> = (1..changes.len()).collect();
        prop_assert_eq!(&given, &run(join(kind, with_condition, updating).as_mut(), &changes, &one_by_one));
        let mut rows: Vec<String> = Vec::new();
        for (what, line) in given {
            if what == Insert {
                rows.push(line);
                continue;
            }
            let place = rows.iter().position(|known| *known == line);
            prop_assert!(place.is_some(), "{} goes and was not there", line);
            rows.remove(place.unwrap());
        }
        rows.sort();
        prop_assert_eq!(rows, expected(&left, kind, with_condition));
    }
}

#[test]
fn other_numbers_of_subtasks_take_up_the_state() {
    let ttl = StateTtl { us: 6 * MS, by: TtlClock::EventTime { time: Some(0) } };
    // Of those that go several are equal.
    let equal = |(input, (time, key, value)): (usize, Row)| {
        (input, (time.map(|_| 0), key, value.map(|value| value % 4)))
    };
    for (number, kind) in KINDS.into_iter().enumerate() {
        let mut going = three_parts(&some_rows(300).into_iter().map(equal).collect::<Vec<_>>(), 2, 5);
        with_deletes(&mut going);
        let mut forgetting = conditioned(kind, number % 2 == 0, false);
        forgetting.ttl = Some([ttl; 2]);
        let mut bounded = near_node(kind, 0);
        bounded.horizons[1] = Some(Horizon { time: 0, behind_us: 3 * MS });
        let cases = [
            (conditioned(kind, number % 2 == 1, true), going),
            (forgetting, three_parts(&some_rows(300), 2, 5)),
            (bounded, three_parts(&some_rows(300), 2, 5)),
        ];
        for (node, parts) in cases {
            let given = respread(&planned(node, kind), &input(), [&[1], &[1]], &parts);
            assert!(given.len() > 30, "{kind:?}: {given:?}");
        }
    }
}

#[test]
fn a_row_without_partner_finds_one_and_loses_it() {
    let changes = [
        (0, Insert, Some("a"), 1),
        (1, Insert, Some("a"), 2),
        (1, UpdateBefore, Some("a"), 2),
        (1, UpdateAfter, Some("b"), 2),
        (0, Delete, Some("a"), 1),
    ];
    let mut left = join(JoinKind::Left, false, true);
    let given = run(left.as_mut(), &changes, &[]);
    let expected = [
        (Insert, "a1 NULLNULL"),
        (Delete, "a1 NULLNULL"),
        (Insert, "a1 a2"),
        (Delete, "a1 a2"),
        (Insert, "a1 NULLNULL"),
        (Delete, "a1 NULLNULL"),
    ];
    assert_eq!(given, expected.map(|(kind, line)| (kind, line.to_owned())));
    assert_eq!(left.state().rows, 1, "b2 is left");
}

/// Rows of one input, whose times go on with the watermark but for late ones, and of the other, whose times are
/// always after it: the first row is within 3 ms before the second one's time.
fn near(kind: JoinKind, prunes: bool, other: usize) -> Box<dyn Operator> {
    let mut node = near_node(kind, other);
    node.horizons[1 - other] = prunes.then_some(Horizon { time: 0, behind_us: 3 * MS });
    operator(node, kind)
}

fn near_node(kind: JoinKind, other: usize) -> RegularJoinNode {
    let columns = || input().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<Field>>();
    let pair: SchemaRef = Arc::new(Schema::new([columns(), columns()].concat()));
    let time = |input: usize| -> ExprRef { Arc::new(Column::new("ts", 3 * input)) };
    let (row, window) = (time(1 - other), time(other));
    let three: ExprRef = Arc::new(CastExpr::new(lit(3i64), DataType::Duration(TimeUnit::Millisecond), None));
    let start = Arc::new(BinaryExpr::new(Arc::clone(&window), Comparison::Minus, three));
    let from: ExprRef = Arc::new(BinaryExpr::new(Arc::clone(&row), Comparison::GtEq, start));
    let to: ExprRef = Arc::new(BinaryExpr::new(row, Comparison::LtEq, window));
    let condition: ExprRef = Arc::new(BinaryExpr::new(from, Comparison::And, to));
    node(kind, Some(condition), pair, false)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_310),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_nothing_can_join_is_not_missed(
        steps in prop::collection::vec((0u8..4, 0usize..4, 0i64..8), 0..60),
        kind in 0usize..6,
        other in 0usize..2,
    ) {
        let names = [Some("a"), Some("b"), Some("c"), None];
        let kind = KINDS[kind];
        let mut joins = [near(kind, true, other), near(kind, false, other)];
        let mut outs = [Output::default(), Output::default()];
        let mut watermark = 0;
        for (number, (does, key, time)) in steps.iter().enumerate() {
            for (join, out) in joins.iter_mut().zip(&mut outs) {
                let value = Some(number as i64);
                let batch = |time| StreamBatch::inserts(record_batch(&[(time, names[*key], value)]), Instant::now());
                match does {
                    0 => join.process_watermark(Watermark((watermark + 1 + time) * MS), out).unwrap(),
                    1 if other == 0 => join.process_batch(batch(Some(watermark + 1 + time)), out).unwrap(),
                    1 => join.process_second(batch(Some(watermark + 1 + time)), out).unwrap(),
                    _ => {
                        // Any time, or none.
                        let time = (*time > 0).then_some(watermark + time - 5);
                        match other {
                            0 => join.process_second(batch(time), out).unwrap(),
                            _ => join.process_batch(batch(time), out).unwrap(),
                        }
                    }
                }
            }
            if *does == 0 {
                watermark += 1 + time;
            }
        }
        let [prunes, keeps] = &mut outs;
        let given = |out: &mut Output| {
            let (mut changes, mut all) = (Vec::new(), Vec::new());
            for element in out.drain() {
                if let StreamElement::Batch(batch) = element {
                    changes.extend(batch.kinds.map(|kinds| kinds.values().to_vec()).unwrap_or_default());
                    all.extend(lines(&batch.rows));
                }
            }
            (changes, all)
        };
        prop_assert_eq!(given(prunes), given(keeps));
        prop_assert_eq!(prunes.counts, keeps.counts);
        let [prunes, _] = &mut joins;
        let windows = steps.iter().filter(|step| step.0 == 1).count();
        prunes.process_watermark(Watermark((watermark + 20) * MS), &mut outs[0]).unwrap();
        prop_assert!(prunes.state().rows <= windows, "no row of the other input is left");
    }
}

/// A batch of 300 rows meets 300 others: no more than some batches of pairs are there at once. Rows that go do so behind
/// all of them.
#[test]
fn many_pairs_come_piece_by_piece() {
    for (with_condition, pairs) in [(false, 90_000), (true, 300 * 299 / 2)] {
        let mut join = join(JoinKind::Inner, with_condition, true);
        let mut out = Output::default();
        let own: Vec<Row> = (0..300).map(|v| (None, Some("k"), Some(v))).collect();
        let batch = |kind| StreamBatch {
            kinds: Some(RowKinds::new(vec![kind; 300])),
            ..StreamBatch::inserts(record_batch(&own), Instant::now())
        };
        join.process_batch(batch(Insert), &mut out).unwrap();
        for kind in [Insert, Delete, Insert] {
            join.process_second(batch(kind), &mut out).unwrap();
            let (pieces, given) = pieces(join.as_mut(), &mut out, 5 * 8_192);
            assert_eq!(given, pairs, "{kind:?}");
            assert!(pieces >= 3, "{pieces} pieces");
            assert_eq!(join.state().rows, if kind == Delete { 300 } else { 600 });
        }
    }
}

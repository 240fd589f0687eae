//! Any changes, cut anywhere, leave the first rows of what is left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::datatypes::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::operator::create;
use crate::operator::testing::{
    MS, Row, column, input, lines, plan_node, record_batch, respread, some_rows, three_parts, with_deletes,
};
use crate::plan::{Operation, PlanNode, SortKey, TtlClock};
use crate::stream::StreamElement;

fn node(rank: RankKind, most: u64, gives_rank: bool, updating: bool) -> TopNNode {
    let order = vec![SortKey { expr: column(2), descending: true, nulls_first: false }];
    TopNNode {
        partition: vec![1],
        order,
        latest_first: false,
        time: None,
        rank,
        most,
        gives_rank,
        updating,
        identity: None,
        ttl: None,
    }
}

fn operator(node: TopNNode) -> Box<dyn Operator> {
    create(&planned(node), &input()).unwrap()
}

fn planned(node: TopNNode) -> PlanNode {
    let mut fields = input().fields().to_vec();
    if node.gives_rank {
        fields.push(Arc::new(Field::new("r", DataType::Int64, false)));
    }
    plan_node(Operation::TopN(Box::new(node)), Arc::new(Schema::new(fields)))
}

type Change = (RowKind, Row);

/// What is given for changes that are cut after each `cut`; both forms of an update stay together.
fn run(operator: &mut dyn Operator, changes: &[Change], cut: usize) -> Vec<(RowKind, String)> {
    let (mut out, mut given, mut from) = (Output::default(), Vec::new(), 0);
    while from < changes.len() {
        let mut to = changes.len().min(from + cut);
        to += usize::from(changes[to - 1].0 == RowKind::UpdateBefore);
        let rows: Vec<Row> = changes[from..to].iter().map(|change| change.1).collect();
        let kinds: Vec<RowKind> = changes[from..to].iter().map(|change| change.0).collect();
        let mut batch = StreamBatch::inserts(record_batch(&rows), Instant::now());
        batch.kinds = kinds.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(kinds));
        operator.process_batch(batch, &mut out).unwrap();
        from = to;
    }
    operator.finish(&mut out).unwrap();
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            let kinds = batch.kinds.as_ref().map(|kinds| kinds.values().to_vec());
            let kinds = kinds.unwrap_or_else(|| vec![RowKind::Insert; batch.rows.num_rows()]);
            given.extend(kinds.into_iter().zip(lines(&batch.rows)));
        }
    }
    given
}

/// The rows that changes leave.
fn folded(changes: &[(RowKind, String)]) -> Result<Vec<String>, String> {
    let mut left: Vec<String> = Vec::new();
    for (kind, line) in changes {
        match kind {
            RowKind::Insert | RowKind::UpdateAfter => left.push(line.clone()),
            RowKind::UpdateBefore | RowKind::Delete => {
                let place = left.iter().position(|known| known == line);
                left.remove(place.ok_or_else(|| format!("{line} goes and was not there"))?);
            }
        }
    }
    left.sort();
    Ok(left)
}

/// The first rows of those that are there, in the order of arrival, as SQL says.
fn expected(live: &[Row], rank: RankKind, most: u64, gives_rank: bool) -> Vec<String> {
    let mut partitions: BTreeMap<&str, Vec<Row>> = BTreeMap::new();
    live.iter().for_each(|row| partitions.entry(row.1.unwrap()).or_default().push(*row));
    let mut lines = Vec::new();
    for rows in partitions.values_mut() {
        rows.sort_by_key(|row| std::cmp::Reverse(row.2));
        for (place, (ts, key, value)) in rows.iter().enumerate() {
            let before: Vec<i64> =
                rows[..place].iter().filter_map(|row| row.2).filter(|other| Some(*other) > *value).collect();
            let mut others = before.clone();
            others.dedup();
            let number = match rank {
                RankKind::RowNumber => place + 1,
                RankKind::Rank => before.len() + 1,
                RankKind::DenseRank => others.len() + 1,
            };
            if number as u64 <= most {
                let ts = crate::operator::testing::stamp(ts.unwrap());
                let line = format!("{ts},{},{}", key.unwrap(), value.unwrap());
                lines.push(if gives_rank { format!("{line},{number}") } else { line });
            }
        }
    }
    lines.sort();
    lines
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_307),
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_first_rows_of_what_is_left(
        choices in prop::collection::vec((0usize..2, 0i64..5, 0u8..4, any::<prop::sample::Index>()), 0..60),
        kind in 0usize..3,
        most in 0u64..4,
        gives_rank in any::<bool>(),
        updating in any::<bool>(),
        cut in 1usize..20,
    ) {
        let rank = [RankKind::RowNumber, RankKind::Rank, RankKind::DenseRank][kind];
        let names = ["a", "b"];
        let (mut live, mut changes): (Vec<Row>, Vec<Change>) = (Vec::new(), Vec::new());
        for (number, (key, value, does, which)) in choices.iter().enumerate() {
            let row: Row = (Some(number as i64), Some(names[*key]), Some(*value));
            match does {
                // The new form of a row comes last.
                2 if updating && !live.is_empty() => {
                    let old = live.remove(which.index(live.len()));
                    changes.push((RowKind::UpdateBefore, old));
                    changes.push((RowKind::UpdateAfter, row));
                    live.push(row);
                }
                3 if updating && !live.is_empty() => {
                    let old = live.remove(which.index(live.len()));
                    changes.push((RowKind::Delete, old));
                }
                _ => {
                    changes.push((RowKind::Insert, row));
                    live.push(row);
                }
            }
        }
        let mut top = operator(node(rank, most, gives_rank, updating));
        let given = run(top.as_mut(), &changes, cut);
        let all_at_once = run(operator(node(rank, most, gives_rank, updating)).as_mut(), &changes, 1_000);
        prop_assert_eq!(&given, &all_at_once);
        match folded(&given) {
            Ok(left) => prop_assert_eq!(left, expected(&live, rank, most, gives_rank)),
            Err(why) => prop_assert!(false, "{}", why),
        }
        if updating {
            prop_assert_eq!(top.state().rows, live.len());
        } else if rank == RankKind::RowNumber {
            prop_assert!(top.state().rows <= 2 * most as usize, "no more than what comes out is kept");
        }
    }
}

#[test]
fn rows_by_arrival_are_not_kept_once_they_came_out() {
    let first = TopNNode { order: Vec::new(), ..node(RankKind::RowNumber, 1, false, false) };
    assert!(!first.changes());
    let mut top = operator(first);
    let rows: Vec<Change> =
        (0..100).map(|value| (RowKind::Insert, (Some(value), Some("a"), Some(value)))).collect();
    assert_eq!(run(top.as_mut(), &rows, 7).len(), 1);
    assert_eq!(top.state().rows, 0);
}

#[test]
fn other_numbers_of_subtasks_take_up_the_state() {
    // One input of two, and of equal values several.
    let rows = some_rows(300)
        .into_iter()
        .map(|(_, (time, key, value))| (0, (time, key, value.map(|value| value * 7 % 10))));
    let rows: Vec<(usize, Row)> = rows.collect();
    let order = |node: TopNNode| TopNNode { order: Vec::new(), ..node };
    let ttl = |node: TopNNode| {
        let by = TtlClock::EventTime { time: Some(0) };
        TopNNode { ttl: Some(StateTtl { us: 5 * MS, by }), ..node }
    };
    let nodes = [
        node(RankKind::RowNumber, 3, true, false),
        node(RankKind::DenseRank, 2, false, false),
        node(RankKind::Rank, 2, true, true),
        ttl(node(RankKind::RowNumber, 2, true, false)),
        order(node(RankKind::RowNumber, 1, false, false)),
        ttl(order(node(RankKind::RowNumber, 1, false, false))),
        TopNNode { latest_first: true, ..order(node(RankKind::RowNumber, 1, false, false)) },
    ];
    for node in nodes {
        let mut parts = three_parts(&rows, 2, 5);
        if node.updating {
            with_deletes(&mut parts);
        }
        let given = respread(&planned(node), &input(), [&[1], &[]], &parts);
        assert!(given.len() >= 8, "of each key a row: {given:?}");
    }
}

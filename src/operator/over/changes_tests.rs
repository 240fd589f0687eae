use std::time::Instant;

use arrow::datatypes::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::operator::create;
use crate::operator::testing::{Row, Step, column, input, lines, plan_node, record_batch, respread};
use crate::plan::{FrameBound, FrameUnit, Operation, OverFrame, OverFunction, OverTrigger, PlanNode};
use crate::stream::StreamElement;

/// The number of the row, and the value of the one behind it.
fn over() -> Box<dyn Operator> {
    create(&node(), &input()).unwrap()
}

fn node() -> PlanNode {
    let frame = OverFrame { unit: FrameUnit::Rows, start: FrameBound::Unbounded, end: FrameBound::Offset(0) };
    let call = |function| OverCall { function, frame, text: "call".to_owned() };
    let default = datafusion_common::ScalarValue::Int64(None);
    let next = OverFunction::Shift { value: column(2), by: -1, default, ignores_nulls: false };
    let node = OverNode {
        trigger: OverTrigger::Change,
        partition: vec![1],
        order: vec![SortKey { expr: column(2), descending: false, nulls_first: true }],
        latest_first: false,
        calls: vec![call(OverFunction::RowNumber), call(next)],
        limit: None,
        identity: Some(vec![0, 1, 2]),
    };
    let mut fields: Vec<Field> = input().fields().iter().map(|field| field.as_ref().clone()).collect();
    fields.extend(["n", "next"].map(|name| Field::new(name, DataType::Int64, true)));
    plan_node(Operation::Over(Box::new(node)), Arc::new(Schema::new(fields)))
}

type Change = (RowKind, &'static str, i64);

fn run(operator: &mut dyn Operator, changes: &[Change], cut: usize) -> Vec<(RowKind, String)> {
    let mut out = Output::default();
    let mut given = Vec::new();
    for part in changes.chunks(cut) {
        let rows: Vec<Row> = part.iter().map(|(_, key, value)| (None, Some(*key), Some(*value))).collect();
        let mut batch = StreamBatch::inserts(record_batch(&rows), Instant::now());
        batch.kinds = Some(RowKinds::new(part.iter().map(|change| change.0).collect::<Vec<_>>()));
        operator.process_batch(batch, &mut out).unwrap();
    }
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            let kinds = batch.kinds.map(|kinds| kinds.values().to_vec());
            let kinds = kinds.unwrap_or_else(|| vec![RowKind::Insert; batch.rows.num_rows()]);
            given.extend(kinds.into_iter().zip(lines(&batch.rows)));
        }
    }
    given
}

#[test]
fn a_row_that_changes_is_one_change() {
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
    let changes = [
        (Insert, "a", 1),
        (Insert, "a", 3),
        (UpdateBefore, "a", 3),
        (UpdateAfter, "a", 2),
        (UpdateBefore, "a", 1),
        (UpdateAfter, "b", 1),
    ];
    let expected = [
        (Insert, "NULL,a,1,1,NULL"),
        (Insert, "NULL,a,3,2,NULL"),
        (UpdateBefore, "NULL,a,1,1,NULL"),
        (UpdateAfter, "NULL,a,1,1,3"),
        (UpdateBefore, "NULL,a,3,2,NULL"),
        (UpdateAfter, "NULL,a,2,2,NULL"),
        (UpdateBefore, "NULL,a,1,1,3"),
        (UpdateAfter, "NULL,a,1,1,2"),
        (Delete, "NULL,a,1,1,2"),
        (UpdateBefore, "NULL,a,2,2,NULL"),
        (UpdateAfter, "NULL,a,2,1,NULL"),
        (Insert, "NULL,b,1,1,NULL"),
    ];
    let expected: Vec<_> = expected.iter().map(|(kind, line)| (*kind, (*line).to_owned())).collect();
    for cut in [2, 4, 6] {
        let mut operator = over();
        assert_eq!(run(operator.as_mut(), &changes, cut), expected, "batches of {cut}");
        assert_eq!(operator.state().rows, 2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_306),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_left_is_computed_of_what_is_left(
        choices in prop::collection::vec((0usize..3, 0i64..4, any::<bool>(), any::<prop::sample::Index>()), 0..40),
        cut in 1usize..20,
    ) {
        let names = ["a", "b", "c"];
        let (mut live, mut changes): (Vec<(&str, i64)>, Vec<Change>) = (Vec::new(), Vec::new());
        for (key, value, goes, which) in &choices {
            if *goes && !live.is_empty() {
                let (key, value) = live.swap_remove(which.index(live.len()));
                changes.push((RowKind::Delete, key, value));
            } else {
                live.push((names[*key], *value));
                changes.push((RowKind::Insert, names[*key], *value));
            }
        }
        let mut left: Vec<String> = Vec::new();
        for (kind, line) in run(over().as_mut(), &changes, cut) {
            match kind {
                RowKind::Insert | RowKind::UpdateAfter => left.push(line),
                RowKind::Delete | RowKind::UpdateBefore => {
                    let place = left.iter().position(|known| *known == line);
                    prop_assert!(place.is_some(), "{line} goes and was not there");
                    left.remove(place.unwrap());
                }
            }
        }
        left.sort();
        // Rows that are equal can't be told apart, so which of them has which number does not matter.
        live.sort_unstable();
        let mut expected: Vec<String> = Vec::new();
        for rows in live.chunk_by(|one, other| one.0 == other.0) {
            for (place, (key, value)) in rows.iter().enumerate() {
                let next = rows.get(place + 1).map_or("NULL".to_owned(), |next| next.1.to_string());
                expected.push(format!("NULL,{key},{value},{},{next}", place + 1));
            }
        }
        expected.sort();
        prop_assert_eq!(left, expected);
    }
}

#[test]
fn partitions_go_on_in_other_subtasks() {
    use RowKind::{Delete, Insert};
    let names = ["a", "b", "c", "dd", "e", "f", ""];
    let rows = |kind: RowKind, value: i64| {
        let rows: Vec<Row> = names.iter().map(|name| (None, Some(*name), Some(value))).collect();
        let mut batch = StreamBatch::inserts(record_batch(&rows), Instant::now());
        batch.kinds = Some(RowKinds::new(vec![kind; rows.len()]));
        Step::First(batch)
    };
    let parts = [
        vec![rows(Insert, 5), rows(Insert, 7)],
        vec![rows(Insert, 6)],
        vec![rows(Delete, 7), rows(Insert, 5)],
    ];
    let given = respread(&node(), &input(), [&[1], &[]], &parts);
    let (mut left, mut gone) = (Vec::new(), Vec::new());
    for line in &given {
        let (kind, row) = line.split_once(' ').unwrap();
        if matches!(kind, "+I" | "+U") { left.push(row) } else { gone.push(row) }
    }
    for row in gone {
        left.remove(left.iter().position(|known| *known == row).unwrap());
    }
    let of = |name: &&str| ["5,1,5", "5,2,6", "6,3,NULL"].map(|cells| format!("NULL,{name},{cells}"));
    let mut expected: Vec<String> = names.iter().flat_map(of).collect();
    expected.sort();
    left.sort_unstable();
    assert_eq!(left, expected);
}

//! Aggregation of changelogs against what is left.

use std::collections::BTreeMap;

use arrow::datatypes::{Field, Schema};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::min_max::max_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use proptest::prelude::*;

use super::*;
use crate::operator::create;
use crate::operator::testing::{
    self, Row, column, input, lines, plan_node, record_batch, respread, stream_batch,
};
use crate::plan::{AggregateCall, Operation, PlanNode, TtlClock};
use crate::stream::StreamElement;

fn group(keys: Vec<usize>) -> Box<dyn Operator> {
    create(&node(keys, None), &input()).unwrap()
}

fn node(keys: Vec<usize>, ttl: Option<StateTtl>) -> PlanNode {
    let call = |function: Arc<datafusion_expr::AggregateUDF>, distinct: bool| {
        let mut builder = AggregateExprBuilder::new(function, vec![column(2)]).schema(input()).alias("a");
        if distinct {
            builder = builder.distinct();
        }
        let function = Arc::new(builder.build().unwrap());
        AggregateCall { function, filter: None, order_sensitive: false, inexact: false }
    };
    let aggregates = vec![call(count_udaf(), false), call(max_udaf(), false), call(count_udaf(), true)];
    let mut fields: Vec<Field> = keys.iter().map(|key| input().field(*key).clone()).collect();
    fields.extend(["c", "m", "d"].map(|name| Field::new(name, DataType::Int64, true)));
    let node = Operation::GroupChanges(Box::new(GroupChangesNode { keys, whole: vec![], aggregates, ttl }));
    plan_node(node, Arc::new(Schema::new(fields)))
}

type Change = (RowKind, &'static str, i64);

fn run(operator: &mut dyn Operator, changes: &[Change], cuts: &[usize]) -> Vec<(RowKind, String)> {
    let mut out = Output::default();
    let (mut from, mut given) = (0, Vec::new());
    for to in cuts.iter().copied().chain([changes.len()]) {
        let part = &changes[from..to];
        let rows: Vec<Row> = part.iter().map(|(_, key, value)| (None, Some(*key), Some(*value))).collect();
        let mut batch = StreamBatch::inserts(record_batch(&rows), Instant::now());
        batch.kinds = Some(RowKinds::new(part.iter().map(|change| change.0).collect::<Vec<_>>()));
        operator.process_batch(batch, &mut out).unwrap();
        from = to;
    }
    operator.finish(&mut out).unwrap();
    for element in out.drain() {
        if let StreamElement::Batch(batch) = element {
            let kinds = batch.kinds.map(|kinds| kinds.values().to_vec());
            let kinds = kinds.unwrap_or_else(|| vec![RowKind::Insert; batch.rows.num_rows()]);
            given.extend(kinds.into_iter().zip(lines(&batch.rows)));
        }
    }
    given
}

use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};

#[test]
fn a_group_comes_changes_and_goes() {
    let changes = [
        (Insert, "a", 1),
        (Insert, "a", 5),
        (UpdateBefore, "a", 5),
        (UpdateAfter, "a", 3),
        (UpdateBefore, "a", 3),
        (UpdateAfter, "b", 3),
        (Delete, "a", 1),
        (Insert, "c", 7),
        (UpdateBefore, "c", 7),
        (UpdateAfter, "c", 7),
    ];
    let expected = [
        (Insert, "a,1,1,1"),
        (UpdateBefore, "a,1,1,1"),
        (UpdateAfter, "a,2,5,2"),
        (UpdateBefore, "a,2,5,2"),
        (UpdateAfter, "a,2,3,2"),
        (UpdateBefore, "a,2,3,2"),
        (UpdateAfter, "a,1,1,1"),
        (Insert, "b,1,3,1"),
        (Delete, "a,1,1,1"),
        (Insert, "c,1,7,1"),
    ];
    let expected: Vec<_> = expected.iter().map(|(kind, line)| (*kind, (*line).to_owned())).collect();
    for cuts in [vec![], vec![1, 2, 4, 6, 7, 8], vec![4], vec![7]] {
        let mut operator = group(vec![1]);
        assert_eq!(run(operator.as_mut(), &changes, &cuts), expected, "{cuts:?}");
        assert_eq!(operator.state().rows, 2);
    }
}

#[test]
fn the_group_of_all_rows_stays() {
    let nothing = run(group(vec![]).as_mut(), &[], &[]);
    assert_eq!(nothing, [(Insert, "0,NULL,0".to_owned())]);
    let given = run(group(vec![]).as_mut(), &[(Insert, "a", 2), (Delete, "a", 2)], &[1]);
    let expected = [(Insert, "1,2,1"), (UpdateBefore, "1,2,1"), (UpdateAfter, "0,NULL,0")];
    assert_eq!(given, expected.map(|(kind, line)| (kind, line.to_owned())));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_306),
        ..ProptestConfig::default()
    })]

    #[test]
    fn what_is_left_is_the_aggregate_of_what_is_left(
        choices in prop::collection::vec((0usize..3, 0i64..4, any::<bool>(), any::<prop::sample::Index>()), 0..60),
        cut in 1usize..20,
    ) {
        let names = ["a", "b", "c"];
        let (mut live, mut changes): (Vec<(&str, i64)>, Vec<Change>) = (Vec::new(), Vec::new());
        for (key, value, goes, which) in &choices {
            if *goes && !live.is_empty() {
                let (key, value) = live.swap_remove(which.index(live.len()));
                changes.push((Delete, key, value));
            } else {
                live.push((names[*key], *value));
                changes.push((Insert, names[*key], *value));
            }
        }
        let cuts: Vec<usize> = (cut..changes.len()).step_by(cut).collect();
        let given = run(group(vec![1]).as_mut(), &changes, &cuts);
        let mut left: Vec<String> = Vec::new();
        for (kind, line) in given {
            match kind {
                Insert | UpdateAfter => left.push(line),
                Delete | UpdateBefore => {
                    let place = left.iter().position(|known| *known == line);
                    prop_assert!(place.is_some(), "{line} goes and was not there");
                    left.remove(place.unwrap());
                }
            }
        }
        left.sort();
        let mut groups: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
        live.iter().for_each(|(key, value)| groups.entry(*key).or_default().push(*value));
        let expected: Vec<String> = groups
            .into_iter()
            .map(|(key, mut values)| {
                let (count, max) = (values.len(), values.iter().max().copied().unwrap());
                values.sort_unstable();
                values.dedup();
                format!("{key},{count},{max},{}", values.len())
            })
            .collect();
        prop_assert_eq!(left, expected);
    }
}

#[test]
fn groups_go_on_in_other_subtasks() {
    const KEYS: [Option<&str>; 7] =
        [Some("a"), Some("b"), Some("c"), None, Some("dd"), Some("eee"), Some("")];
    // Rows that come, then those of the part before that go and others that come.
    let row = |value: i64| (None, KEYS[value as usize % KEYS.len()], Some(value % 5));
    let changes = |rows: &[Row], kind: RowKind| {
        let mut batch = stream_batch(rows, &vec![i64::MIN; rows.len()]);
        batch.kinds = Some(RowKinds::new(vec![kind; rows.len()]));
        testing::Step::First(batch)
    };
    let part = |from: i64| -> Vec<testing::Step> {
        let gone: Vec<Row> = (from - 20..from).filter(|value| *value >= 0).map(row).collect();
        let new: Vec<Row> = (from..from + 20).map(row).collect();
        vec![changes(&gone[..gone.len() / 2], Delete), changes(&new, Insert)]
    };
    let given = respread(&node(vec![1], None), &input(), [&[1], &[]], &[part(0), part(20), part(40)]);
    // 60 rows came and 20 went, each changes a COUNT; no group is empty but at first.
    assert_eq!(given.iter().filter(|line| line.starts_with("+I")).count(), KEYS.len());
    assert_eq!(given.iter().filter(|line| line.starts_with("+U")).count(), 80 - KEYS.len());

    // By event time each group is forgotten where the watermark is 10 behind its last row, in whichever subtask.
    let ttl = StateTtl { us: 10, by: TtlClock::EventTime { time: Some(0) } };
    let at = |ms: i64, running: i64| {
        let rows: Vec<Row> = KEYS.iter().map(|key| (Some(ms), *key, Some(1))).collect();
        testing::Step::First(stream_batch(&rows, &[running; KEYS.len()]))
    };
    let parts = [vec![at(1, 0), at(1, 0)], vec![at(1, 1_009)], vec![at(2, 1_019)]];
    let given = respread(&node(vec![1], Some(ttl)), &input(), [&[1], &[]], &parts);
    assert_eq!(given.iter().filter(|line| line.starts_with("+I")).count(), 2 * KEYS.len());
    assert_eq!(given.iter().filter(|line| line.starts_with("+U")).count(), 2 * KEYS.len());
}

//! Matches against a search that goes through all readings of all rows.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::Operator as Op;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, Column, lit};
use proptest::prelude::*;

use crate::operator::testing::{
    MS, Row, column, input, plan_node, respread, run, running, some_rows, stream_batch, three_parts,
};
use crate::operator::{Operator, Output, create};
use crate::plan::*;
use crate::stream::{StreamElement, TimeUnit, Watermark};

/// A variable: least and greatest number of rows, greedy; its values are at least `from` and below `to`;
/// above the last value of the first variable if `grows`.
#[derive(Debug, Clone)]
struct Variable {
    min: u32,
    max: Option<u32>,
    is_greedy: bool,
    from: i64,
    to: i64,
    grows: bool,
}

fn plain(from: i64, to: i64) -> Variable {
    Variable { min: 1, max: Some(1), is_greedy: true, from, to, grows: false }
}

fn compare(left: ExprRef, op: Op, right: ExprRef) -> ExprRef {
    Arc::new(BinaryExpr::new(left, op, right))
}

fn row_value(variable: Option<usize>, from_last: bool) -> MatchValue {
    let value = column(2);
    MatchValue { variable, kind: MatchValueKind::Row { from_last, offset: 0, value } }
}

/// The measures are the first and last value and the number of rows, then the time.
fn node(variables: &[Variable], within_us: Option<i64>, skip: AfterMatch) -> MatchRecognizeNode {
    let variable = |(index, one): (usize, &Variable)| {
        let schema = Schema::new(vec![
            Field::new("v", DataType::Int64, true),
            Field::new("__value_0", DataType::Int64, true),
        ]);
        let condition = compare(Arc::new(Column::new("v", 0)), Op::Gt, Arc::new(Column::new("__value_0", 1)));
        PatternVariable {
            name: format!("V{index}"),
            min: one.min,
            max: one.max,
            is_greedy: one.is_greedy,
            row_condition: Some(compare(
                compare(column(2), Op::GtEq, lit(one.from)),
                Op::And,
                compare(column(2), Op::Lt, lit(one.to)),
            )),
            match_condition: one.grows.then(|| MatchCondition {
                columns: vec![2],
                values: vec![row_value(Some(0), true)],
                schema: Arc::new(schema),
                condition,
            }),
            text: None,
        }
    };
    let count = AggregateExprBuilder::new(count_udaf(), vec![column(2)]).schema(input()).alias("n").build();
    let count = AggregateCall {
        function: Arc::new(count.unwrap()),
        filter: None,
        order_sensitive: true,
        inexact: true,
    };
    let time = MatchValueKind::Row { from_last: true, offset: 0, value: column(0) };
    let types = [DataType::Int64, DataType::Int64, DataType::Int64, input().field(0).data_type().clone()];
    let fields =
        types.into_iter().enumerate().map(|(index, kind)| Field::new(format!("__value_{index}"), kind, true));
    MatchRecognizeNode {
        time: 0,
        unit: TimeUnit::Millisecond,
        partition: vec![1],
        order: vec![],
        variables: variables.iter().enumerate().map(variable).collect(),
        within_us,
        skip,
        values: vec![
            row_value(None, false),
            row_value(None, true),
            MatchValue { variable: None, kind: MatchValueKind::Aggregate(count) },
            MatchValue { variable: None, kind: time },
        ],
        values_schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
        measures: (0..4)
            .map(|index| Arc::new(Column::new(&format!("__value_{index}"), index)) as ExprRef)
            .collect(),
        gives_time: true,
        text: String::new(),
    }
}

fn operator(node: &MatchRecognizeNode) -> Box<dyn Operator> {
    create(&planned(node), &input()).unwrap()
}

fn planned(node: &MatchRecognizeNode) -> PlanNode {
    plan_node(Operation::MatchRecognize(Box::new(node.clone())), output())
}

fn output() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Utf8, true),
        Field::new("first", DataType::Int64, true),
        Field::new("last", DataType::Int64, true),
        Field::new("n", DataType::Int64, true),
        Field::new("t", input().field(0).data_type().clone(), true),
    ]))
}

/// Key, first and last value, number of rows.
fn cells(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| line.rsplit_once(',').unwrap().0.to_owned()).collect()
}

/// The first reading of the rows from the first on that is whole, in the order of preference.
fn search(
    variables: &[Variable],
    rows: &[(i64, i64)],
    within: Option<i64>,
    variable: usize,
    counts: &mut Vec<u32>,
) -> bool {
    let Some(one) = variables.get(variable) else { return true };
    let read: u32 = counts.iter().sum();
    let leaves = counts[variable] >= one.min;
    if !one.is_greedy && leaves && search(variables, rows, within, variable + 1, counts) {
        return true;
    }
    if let Some((time, value)) = rows.get(read as usize)
        && one.max.is_none_or(|max| counts[variable] < max)
        && within.is_none_or(|within| time - rows[0].0 < within)
        && (one.from..one.to).contains(value)
    {
        // The last row of the first variable, this one included.
        let firsts = counts[0] + u32::from(variable == 0);
        let grows = firsts > 0 && *value > rows[firsts as usize - 1].1;
        if !one.grows || grows {
            counts[variable] += 1;
            if search(variables, rows, within, variable, counts) {
                return true;
            }
            counts[variable] -= 1;
        }
    }
    one.is_greedy && leaves && search(variables, rows, within, variable + 1, counts)
}

/// What is to be found, by key and place, and how many rows are late, used and neither.
fn expected(
    variables: &[Variable],
    rows: &[Row],
    delay: i64,
    within: Option<i64>,
    skip: AfterMatch,
) -> (Vec<String>, [u64; 3]) {
    let mut late = 0;
    let mut kept: Vec<(i64, &str, i64)> = Vec::new();
    for ((time, key, value), running) in rows.iter().zip(running(rows, delay)) {
        match time.unwrap() * MS <= running {
            true => late += 1,
            false => kept.push((time.unwrap(), key.unwrap(), value.unwrap())),
        }
    }
    kept.sort_by_key(|row| row.0);
    let (mut given, mut used) = (Vec::new(), 0);
    for key in ["a", "b"] {
        let own: Vec<(i64, i64)> = kept.iter().filter(|row| row.1 == key).map(|row| (row.0, row.2)).collect();
        let mut is_used = vec![false; own.len()];
        let mut start = 0;
        while start < own.len() {
            let mut counts = vec![0; variables.len()];
            if !search(variables, &own[start..], within, 0, &mut counts) {
                start += 1;
                continue;
            }
            let length = counts.iter().sum::<u32>() as usize;
            let last = start + length - 1;
            given.push(format!("{key},{},{},{length}", own[start].1, own[last].1));
            is_used[start..=last].fill(true);
            start += match skip {
                AfterMatch::PastLastRow => length,
                AfterMatch::ToNextRow => 1,
                AfterMatch::ToFirst(_) | AfterMatch::ToLast(_) => unreachable!("not among the cases"),
            };
        }
        used += is_used.iter().filter(|used| **used).count() as u64;
    }
    (given, [late, used, kept.len() as u64 - used])
}

fn variable() -> impl Strategy<Value = Variable> {
    let count = prop_oneof![
        Just((1, Some(1))),
        Just((0, Some(1))),
        Just((0, None)),
        Just((1, None)),
        Just((2, Some(3))),
        Just((0, Some(2))),
    ];
    (count, any::<bool>(), 0i64..3, 2i64..6, any::<bool>()).prop_map(
        |((min, max), is_greedy, from, to, grows)| Variable { min, max, is_greedy, from, to, grows },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_307),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_what_a_search_finds(
        variables in prop::collection::vec(variable(), 1..4), last in 0i64..4, only_rows in any::<bool>(),
        rows in prop::collection::vec((0i64..8, 0usize..2, 0i64..5), 0..40), delay in 0i64..6,
        within in prop::option::of(1i64..12), to_next in any::<bool>(), cut in 1usize..20,
    ) {
        let mut variables = variables;
        variables.push(plain(last, 6));
        if only_rows {
            variables.iter_mut().for_each(|one| one.grows = false);
        }
        let keys = ["a", "b"];
        let row = |(row, (jitter, key, value)): (i64, &(i64, usize, i64))| -> Row {
            (Some(row / 2 - jitter), Some(keys[*key]), Some(*value))
        };
        let rows: Vec<Row> = (0i64..).zip(&rows).map(row).collect();
        let skip = if to_next { AfterMatch::ToNextRow } else { AfterMatch::PastLastRow };
        let node = node(&variables, within.map(|within| within * MS), skip);
        let (given, counts) = run(operator(&node).as_mut(), &rows, delay, cut);
        let (at_once, _) = run(operator(&node).as_mut(), &rows, delay, rows.len().max(1));
        prop_assert_eq!(&given, &at_once);
        let mut found = cells(&given);
        // Of a key in their order.
        found.sort_by(|one, other| one[..1].cmp(&other[..1]));
        let (expected, [late, used, unused]) = expected(&variables, &rows, delay, within, skip);
        prop_assert_eq!(found, expected);
        prop_assert_eq!([counts.late, counts.used, counts.filtered, counts.held], [late, used, unused, 0]);
    }
}

fn greedy(min: u32, from: i64, to: i64) -> Variable {
    Variable { min, max: None, ..plain(from, to) }
}

#[test]
fn no_match_comes_behind_the_watermark() {
    // The match 1 2 3 could become one of four rows until 0 comes at 9; its time is 3.
    let variables = [plain(1, 2), greedy(0, 2, 9), plain(3, 9)];
    let node = node(&variables, None, AfterMatch::PastLastRow);
    let rows: Vec<Row> = [(1, 1), (2, 2), (3, 3), (9, 0), (20, 0)]
        .into_iter()
        .map(|(time, value)| (Some(time), Some("a"), Some(value)))
        .collect();
    let before = running(&rows, 0);
    let (mut operator, mut out) = (operator(&node), Output::default());
    let mut given = Vec::new();
    for row in 0..rows.len() {
        operator.process_batch(stream_batch(&rows[row..=row], &before[row..=row]), &mut out).unwrap();
        operator.process_watermark(Watermark(before[row + 1]), &mut out).unwrap();
        for element in out.drain() {
            given.push(match element {
                StreamElement::Batch(batch) => cells(&crate::operator::testing::lines(&batch.rows)).join(" "),
                StreamElement::Watermark(watermark) => (watermark.0 / MS).to_string(),
                other => panic!("{other:?}"),
            });
        }
    }
    assert_eq!(given, ["1", "2", "a,1,3,3", "9", "20"]);
    assert_eq!((operator.state().rows, operator.state().windows), (0, 0));
}

#[test]
fn with_within_rows_and_keys_are_forgotten() {
    let variables = [greedy(1, 0, 9), plain(9, 10)];
    let node = node(&variables, Some(10 * MS), AfterMatch::ToNextRow);
    let mut operator = operator(&node);
    let names: Vec<String> = (0..500).map(|name| format!("k{}", name / 5)).collect();
    let names: &'static [String] = names.leak();
    let rows: Vec<Row> =
        (0..500).map(|row| (Some(row), Some(names[row as usize].as_str()), Some(0))).collect();
    let before = running(&rows, 0);
    let mut out = Output::default();
    for (row, one) in rows.iter().enumerate() {
        operator.process_batch(stream_batch(&[*one], &before[row..=row]), &mut out).unwrap();
        operator.process_watermark(Watermark(before[row + 1]), &mut out).unwrap();
        let state = operator.state();
        assert!(state.windows <= 4 && state.rows <= 11, "{state:?}");
    }
}

#[test]
fn a_condition_that_fails_matters_only_where_it_is_asked() {
    // 10 / v > 1 of the second row of a match only: that of the first one is not asked.
    let mut node = node(&[plain(0, 9), plain(0, 9)], None, AfterMatch::PastLastRow);
    let quotient = compare(lit(10i64), Op::Divide, column(2));
    node.variables[1].row_condition = Some(compare(quotient, Op::Gt, lit(1i64)));
    let row = |value| -> Row { (Some(value), Some("a"), Some(value)) };
    let (given, _) = run(operator(&node).as_mut(), &[row(0), row(1)], 0, 2);
    assert_eq!(cells(&given), ["a,0,1,2"]);
    let mut operator = operator(&node);
    let mut out = Output::default();
    operator
        .process_batch(stream_batch(&[row(0), (Some(1), Some("a"), Some(0))], &[i64::MIN; 2]), &mut out)
        .unwrap();
    let error = operator.process_watermark(Watermark(5 * MS), &mut out).unwrap_err();
    assert_eq!((error.code(), error.message()), ("R002", "division by zero"));
}

#[test]
fn other_numbers_of_subtasks_take_up_the_state() {
    let rows = some_rows(300).into_iter().filter(|(_, row)| row.1.is_some());
    let rows: Vec<(usize, Row)> =
        rows.map(|(_, (time, key, value))| (0, (time, key, value.map(|value| value * 7 % 10)))).collect();
    let grows = Variable { min: 1, max: None, is_greedy: true, from: 0, to: 10, grows: true };
    let some = |min, max, is_greedy, from| Variable { min, max, is_greedy, from, to: 10, grows: false };
    let cases = [
        (vec![plain(0, 5), grows.clone(), plain(0, 3)], None, AfterMatch::PastLastRow),
        (
            vec![some(1, None, true, 2), some(0, Some(2), false, 0), plain(5, 10)],
            Some(20 * MS),
            AfterMatch::ToNextRow,
        ),
        (vec![plain(0, 10), some(0, None, false, 1), plain(8, 9)], None, AfterMatch::PastLastRow),
    ];
    for (variables, within_us, skip) in cases {
        let node = node(&variables, within_us, skip);
        let given = respread(&planned(&node), &input(), [&[1], &[]], &three_parts(&rows, 2, 5));
        assert!(given.len() > 10, "{given:?}");
    }
}

//! DataFusion's accumulators as this operator drives them: sealed, merged, sent.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion_functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion_functions_aggregate::approx_percentile_cont::approx_percentile_cont_udaf;
use datafusion_functions_aggregate::bit_and_or_xor::{bit_and_udaf, bit_or_udaf, bit_xor_udaf};
use datafusion_functions_aggregate::bool_and_or::{bool_and_udaf, bool_or_udaf};
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::median::median_udaf;
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate::stddev::stddev_udaf;
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, lit};

use super::{assign, call, call_over, filtered, node, run_node, run_two_phase};
use crate::operator::testing::{MS, Row, column, input};
use crate::plan::{AggregateCall, ExprRef, WindowKind};

fn plain(built: AggregateExprBuilder) -> AggregateCall {
    AggregateCall {
        function: Arc::new(built.build().unwrap()),
        filter: None,
        order_sensitive: false,
        inexact: false,
    }
}

fn float() -> ExprRef {
    Arc::new(CastExpr::new(column(2), DataType::Float64, None))
}

fn rows(count: i64) -> Vec<Row> {
    // A fixed shuffle of times and values, some NULL, three keys.
    let mixed = |row: i64| (row * 7_919 + 13) % 101;
    let value = |row: i64| (mixed(row) > 10).then(|| mixed(row) % 17);
    (0..count)
        .map(|row| {
            (Some(row / 2 - mixed(row) % 5), Some(["a", "b", "c"][mixed(row) as usize % 3]), value(row))
        })
        .collect()
}

#[test]
fn merged_states_give_what_windows_of_their_own_give() {
    let is_high: ExprRef = Arc::new(BinaryExpr::new(column(2), datafusion_expr::Operator::Gt, lit(3i64)));
    let text = |function, name| plain(call_over(&input(), function, column(1), name));
    let distinct = |function, arg, name| plain(call_over(&input(), function, arg, name).distinct());
    let calls = vec![
        text(min_udaf(), "min_text"),
        text(max_udaf(), "max_text"),
        text(approx_distinct_udaf(), "approx_distinct"),
        distinct(count_udaf(), column(1), "count_distinct_text"),
        distinct(sum_udaf(), column(2), "sum_distinct"),
        call(median_udaf(), "median"),
        call(bit_and_udaf(), "bit_and"),
        call(bit_or_udaf(), "bit_or"),
        call(bit_xor_udaf(), "bit_xor"),
        plain(call_over(&input(), bool_and_udaf(), is_high.clone(), "bool_and")),
        plain(call_over(&input(), bool_or_udaf(), is_high, "bool_or")),
    ];
    let rows = rows(400);
    for kind in [
        WindowKind::Hop { slide_us: 5 * MS, size_us: 35 * MS },
        WindowKind::Cumulate { step_us: 5 * MS, size_us: 35 * MS },
    ] {
        let shared = node(assign(kind, 0), vec![column(1)], calls.clone());
        let mut own = shared.clone();
        own.aggregates.push(AggregateCall { order_sensitive: true, ..call(count_udaf(), "own") });
        let (given, counts) = run_node(&own, &rows, 0, 50);
        assert!(counts.partly_late > 0);
        let given: Vec<&str> = given.iter().map(|line| line.rsplit_once(',').unwrap().0).collect();
        assert_eq!(run_node(&shared, &rows, 0, 50).0, given);
        assert_eq!(run_node(&shared, &rows, 0, 1).0, given);
        assert_eq!(run_two_phase(&shared, &rows, 0, 50, 1).0, given);
    }
}

#[test]
fn sketches_do_not_see_batches() {
    let percentile = AggregateExprBuilder::new(approx_percentile_cont_udaf(), vec![float(), lit(0.7f64)])
        .schema(input())
        .alias("p");
    let node = node(assign(WindowKind::Tumble { size_us: 10_000 * MS }, 0), vec![], vec![plain(percentile)]);
    let rows: Vec<Row> = (0..5_000).map(|row| (Some(1), None, Some(row * 7_919 % 100_003))).collect();
    let whole = run_node(&node, &rows, 3, 5_000);
    for cut in [1, 7, 1_024, 4_999] {
        assert_eq!(run_node(&node, &rows, 3, cut), whole, "batches of {cut}");
    }
}

#[test]
fn a_deviation_is_the_same_for_any_cut() {
    // Values 1..=8 in one window of four slices: the sample deviation is sqrt(6).
    let kind = WindowKind::Hop { slide_us: 2 * MS, size_us: 8 * MS };
    let node = node(assign(kind, 0), vec![], vec![plain(call_over(&input(), stddev_udaf(), float(), "sd"))]);
    let rows: Vec<Row> = (0..8).map(|row| (Some(row), None, Some(row + 1))).collect();
    let whole = run_node(&node, &rows, 9, 8);
    let deviation: f64 = whole.0[3].rsplit(',').next().unwrap().parse().unwrap();
    assert!((deviation - 6f64.sqrt()).abs() < 1e-12, "{deviation}");
    for cut in [1, 3] {
        assert_eq!(run_node(&node, &rows, 9, cut), whole);
    }
}

#[test]
fn a_group_without_a_value_has_none_among_many_groups() {
    // Enough that sealed states are taken up in several pieces; the filter keeps what is above 2.
    let rows: Vec<Row> = (0..20_000).map(|row| (Some(0), None, Some(19_999 - row))).collect();
    let calls = [max_udaf(), min_udaf(), sum_udaf()].map(|function| filtered(call(function, "value")));
    let kind = WindowKind::Cumulate { step_us: 5 * MS, size_us: 10 * MS };
    let (given, _) = run_node(&node(assign(kind, 0), vec![column(2)], calls.to_vec()), &rows, 0, 20_000);
    let groups: Vec<&str> = given.iter().map(|line| line.splitn(4, ',').nth(3).unwrap()).collect();
    let value =
        |key: i64| if key > 2 { format!("{key},{key},{key},{key}") } else { format!("{key},NULL,NULL,NULL") };
    let expected: Vec<String> = (0..2).flat_map(|_| (0..20_000).rev().map(value)).collect();
    assert_eq!(groups, expected);
}

//! Aggregates together, against what they are of the rows that are left.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, AsArray, UInt32Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion_expr::{AggregateUDF, Operator as Comparison};
use datafusion_functions_aggregate::bit_and_or_xor::bit_or_udaf;
use datafusion_functions_aggregate::count::count_udaf;
use datafusion_functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion_functions_aggregate::sum::sum_udaf;
use datafusion_physical_expr::aggregate::AggregateExprBuilder;
use datafusion_physical_expr::expressions::{BinaryExpr, CastExpr, lit};
use proptest::prelude::*;

use super::{Aggregates, GROUPS, Step};
use crate::operator::testing::{Row, column, input, record_batch};
use crate::operator::{OperatorState, StateReader, StateWriter};
use crate::plan::{AggregateCall, ExprRef};

fn call(function: Arc<AggregateUDF>, arg: ExprRef, distinct: bool, above: Option<i64>) -> AggregateCall {
    let built = AggregateExprBuilder::new(function, vec![arg]).schema(input()).alias("a");
    let function = Arc::new(built.with_distinct(distinct).build().unwrap());
    let filter = |above: i64| -> ExprRef { Arc::new(BinaryExpr::new(column(2), Comparison::Gt, lit(above))) };
    AggregateCall { function, filter: above.map(filter), order_sensitive: false, inexact: false }
}

fn aggregates() -> Aggregates {
    let text = || -> ExprRef { Arc::new(CastExpr::new(column(2), DataType::Utf8, None)) };
    let double = || -> ExprRef { Arc::new(CastExpr::new(column(2), DataType::Float64, None)) };
    let calls = [
        call(count_udaf(), column(2), true, None),
        call(count_udaf(), column(2), true, Some(1)),
        call(count_udaf(), column(2), false, Some(1)),
        call(count_udaf(), column(2), true, Some(100)),
        call(count_udaf(), text(), true, None),
        call(max_udaf(), text(), false, None),
        call(min_udaf(), text(), true, Some(1)),
        call(min_udaf(), column(2), false, None),
        call(sum_udaf(), column(2), false, None),
        call(sum_udaf(), double(), true, None),
        call(bit_or_udaf(), column(2), false, None),
    ];
    Aggregates::try_new(&calls, &input()).unwrap()
}

fn expected(values: &[i64]) -> Vec<Option<String>> {
    let different =
        |above: i64| values.iter().filter(|value| **value > above).collect::<BTreeSet<_>>().len().to_string();
    let above = || values.iter().filter(|value| **value > 1);
    vec![
        Some(different(i64::MIN)),
        Some(different(1)),
        Some(above().count().to_string()),
        Some("0".to_owned()),
        Some(different(i64::MIN)),
        values.iter().map(i64::to_string).max(),
        above().map(i64::to_string).min(),
        values.iter().min().map(i64::to_string),
        (!values.is_empty()).then(|| values.iter().sum::<i64>().to_string()),
        (!values.is_empty())
            .then(|| values.iter().collect::<BTreeSet<_>>().into_iter().sum::<i64>().to_string()),
        values.iter().copied().reduce(|one, other| one | other).map(|value| value.to_string()),
    ]
}

/// A column of numbers or texts.
fn shown(column: &dyn Array, row: usize) -> Option<String> {
    column.is_valid(row).then(|| match column.data_type() {
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        _ => column.as_primitive::<Int64Type>().value(row).to_string(),
    })
}

/// Others with the same states, by way of bytes, if groups 0, 1 and 2 are all.
fn handed_on(from: &mut Aggregates) -> Aggregates {
    let mut state = StateWriter::default();
    state.columns(GROUPS, vec![Arc::new(UInt32Array::from(vec![2, 0, 1]))], &[]).unwrap();
    from.snapshot(&[2, 0, 1], &mut state).unwrap();
    let mut bytes = Vec::new();
    state.finish().write(&mut bytes).unwrap();
    let state = OperatorState::read(&mut bytes.as_slice()).unwrap();
    let mut again = aggregates();
    again.restore(&[2, 0, 1], &mut StateReader::same(state, 0)).unwrap();
    again
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_311),
        ..ProptestConfig::default()
    })]

    #[test]
    fn values_are_those_of_the_rows_that_are_left(
        choices in prop::collection::vec(
            (0u8..10, 0u32..3, prop::option::weighted(0.9, 0i64..5), any::<prop::sample::Index>()),
            0..80,
        ),
        cut in 1usize..20,
    ) {
        let mut aggregates = aggregates();
        let mut left: [Vec<Option<i64>>; 3] = Default::default();
        for (number, part) in choices.chunks(cut).enumerate() {
            if number % 3 > 0 {
                let again = handed_on(&mut aggregates);
                // Every other time these go on, which are as they were.
                aggregates = if number % 3 == 1 { again } else { aggregates };
            }
            let (mut rows, mut steps, mut wanted): (Vec<Row>, Vec<Step>, Vec<Vec<Option<String>>>) =
                (Vec::new(), Vec::new(), Vec::new());
            for (does, group, value, which) in part {
                let (own, row) = (&mut left[*group as usize], rows.len() as u32);
                match does {
                    0 => {
                        own.clear();
                        steps.push(Step::Clear { group: *group });
                    }
                    1..=4 if !own.is_empty() => {
                        let value = own.swap_remove(which.index(own.len()));
                        rows.push((None, None, value));
                        steps.push(Step::Remove { group: *group, row });
                    }
                    _ => {
                        own.push(*value);
                        rows.push((None, None, *value));
                        steps.push(Step::Add { group: *group, row });
                    }
                }
                steps.push(Step::Give { group: *group });
                wanted.push(expected(&own.iter().copied().flatten().collect::<Vec<_>>()));
            }
            let given = aggregates.run(&steps, &record_batch(&rows), 3).unwrap();
            for (row, wanted) in wanted.into_iter().enumerate() {
                let given: Vec<_> = given.iter().map(|column| shown(column, row)).collect();
                prop_assert_eq!(given, wanted);
            }
        }
        for group in 0..3 {
            aggregates.run(&[Step::Clear { group }], &record_batch(&[]), 3).unwrap();
        }
        let (cleared, more) = (aggregates.size(), 64);
        for _ in 0..more {
            let rows: Vec<Row> = (0..8).map(|value| (None, None, Some(value))).collect();
            let add = (0..8).map(|row| Step::Add { group: 0, row });
            let steps: Vec<Step> = add.chain([Step::Clear { group: 0 }]).collect();
            aggregates.run(&steps, &record_batch(&rows), 3).unwrap();
        }
        prop_assert!(aggregates.size() <= cleared + 4_096, "what is cleared is used again");
    }
}

#[test]
fn a_row_that_never_came_can_not_go() {
    let rows = record_batch(&[(None, None, Some(3)), (None, None, Some(2))]);
    let steps = [Step::Add { group: 0, row: 0 }, Step::Remove { group: 0, row: 1 }];
    assert!(aggregates().run(&steps, &rows, 1).is_err());
}

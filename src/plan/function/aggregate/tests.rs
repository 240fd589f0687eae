//! The aggregates as an operator uses them: grouped, one by one, and in two phases.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray,
};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::EmitTo;
use datafusion_physical_expr::aggregate::{AggregateExprBuilder, AggregateFunctionExpr};
use datafusion_physical_expr::expressions::{col, lit};

fn build(name: &str, column: &ArrayRef, separator: Option<&str>, distinct: bool) -> AggregateFunctionExpr {
    let schema = Arc::new(Schema::new(vec![Field::new("v", column.data_type().clone(), true)]));
    let function = Arc::clone(&crate::plan::function::registry("UTC").aggregates[name]);
    let mut args = vec![col("v", &schema).unwrap()];
    args.extend(separator.map(lit));
    let builder = AggregateExprBuilder::new(function, args).schema(schema).alias("a");
    if distinct { builder.distinct() } else { builder }.build().unwrap()
}

/// All rows as one group: grouped, by the single accumulator, and as two halves that are merged.
fn try_answer(name: &str, column: ArrayRef, separator: Option<&str>) -> Result<ScalarValue> {
    let aggregate = build(name, &column, separator, false);
    let columns = |rows: ArrayRef| {
        let mut columns = vec![Arc::clone(&rows)];
        columns.extend(separator.map(|text| Arc::new(StringArray::from(vec![text; rows.len()])) as ArrayRef));
        columns
    };
    let mut single = aggregate.create_accumulator()?;
    single.update_batch(&columns(Arc::clone(&column)))?;
    let answer = single.evaluate();

    let half = column.len() / 2;
    let halves = [column.slice(0, half), column.slice(half, column.len() - half)];
    let mut merged = aggregate.create_accumulator()?;
    for rows in &halves {
        let mut part = aggregate.create_accumulator()?;
        part.update_batch(&columns(Arc::clone(rows)))?;
        let state = part.state()?.iter().map(|value| value.to_array()).collect::<Result<Vec<_>>>()?;
        let fields = aggregate.state_fields()?;
        assert_eq!(state.len(), fields.len());
        for (column, field) in state.iter().zip(&fields) {
            assert_eq!(column.data_type(), field.data_type(), "state of {name}");
        }
        merged.merge_batch(&state)?;
    }
    agree(name, &answer, &merged.evaluate());

    if aggregate.groups_accumulator_supported() {
        let mut grouped = aggregate.create_groups_accumulator()?;
        grouped.update_batch(&columns(Arc::clone(&column)), &vec![0; column.len()], None, 1)?;
        agree(name, &answer, &grouped.evaluate(EmitTo::All).and_then(|a| ScalarValue::try_from_array(&a, 0)));

        let mut merged = aggregate.create_groups_accumulator()?;
        // A group exists only where there is a row of it.
        for rows in halves.iter().filter(|rows| !rows.is_empty()) {
            let mut part = aggregate.create_groups_accumulator()?;
            part.update_batch(&columns(Arc::clone(rows)), &vec![0; rows.len()], None, 1)?;
            merged.merge_batch(&part.state(EmitTo::All)?, &[0], 1)?;
        }
        agree(name, &answer, &merged.evaluate(EmitTo::All).and_then(|a| ScalarValue::try_from_array(&a, 0)));
    }
    let answer = answer?;
    assert_eq!(&answer.data_type(), aggregate.field().data_type(), "{name}");
    Ok(answer)
}

fn agree(name: &str, one: &Result<ScalarValue>, other: &Result<ScalarValue>) {
    match (one, other) {
        (Ok(one), Ok(other)) => assert_eq!(one, other, "{name}"),
        (Err(_), Err(_)) => {}
        _ => panic!("{name}: {one:?} and {other:?}"),
    }
}

fn answer(name: &str, column: ArrayRef) -> ScalarValue {
    try_answer(name, column, None).unwrap()
}

fn big(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn decimals(values: Vec<Option<i128>>, precision: u8, scale: i8) -> ArrayRef {
    Arc::new(Decimal128Array::from(values).with_precision_and_scale(precision, scale).unwrap())
}

#[test]
fn sums_are_exact_or_an_error() {
    assert_eq!(answer("sum", big(vec![Some(1), None, Some(2)])), 3_i64.into());
    assert_eq!(answer("sum", big(vec![None, None])), ScalarValue::Int64(None));
    // Past the end and back again.
    assert_eq!(answer("sum", big(vec![Some(i64::MAX), Some(1), Some(-1)])), i64::MAX.into());
    let error = try_answer("sum", big(vec![Some(i64::MAX), Some(1)]), None).unwrap_err().to_string();
    assert!(error.contains("sum of BIGINT overflows"), "{error}");
}

#[test]
fn sums_of_decimals_stay_overflowed() {
    let most = 10_i128.pow(38) - 1;
    assert_eq!(
        answer("sum", decimals(vec![Some(10), Some(20), Some(1)], 10, 2)),
        ScalarValue::Decimal128(Some(31), 38, 2)
    );
    let error = try_answer("sum", decimals(vec![Some(most), Some(most), Some(1_000)], 38, 3), None);
    assert!(error.unwrap_err().to_string().contains("sum of DECIMAL overflows"));
    // Back in range whatever the order.
    for order in [[most, most, -most], [most, -most, most], [-most, most, most]] {
        let column = decimals(order.into_iter().map(Some).collect(), 38, 3);
        assert_eq!(answer("sum", column), ScalarValue::Decimal128(Some(most), 38, 3));
    }
}

#[test]
fn averages() {
    assert_eq!(answer("avg", big(vec![Some(1), Some(2), None])), 1.5.into());
    // The sum is 2^63, past BIGINT; the average is not.
    assert_eq!(answer("avg", big(vec![Some(i64::MAX), Some(1)])), 4_611_686_018_427_387_904.0.into());
    assert_eq!(answer("avg", big(vec![None])), ScalarValue::Float64(None));
    assert_eq!(
        answer("avg", decimals(vec![Some(625), Some(0), Some(0)], 20, 2)),
        ScalarValue::Decimal128(Some(2_083_333), 24, 6)
    );
    assert_eq!(answer("mean", Arc::new(Float64Array::from(vec![1.0, 2.0]))), 1.5.into());
}

#[test]
fn distinct_sums_and_averages() {
    for (name, expected) in [("sum", ScalarValue::Int64(Some(6))), ("avg", ScalarValue::Float64(Some(2.0)))] {
        let column = big(vec![Some(1), Some(2), Some(3), Some(3), None]);
        let aggregate = build(name, &column, None, true);
        assert!(!aggregate.groups_accumulator_supported());
        let mut merged = aggregate.create_accumulator().unwrap();
        for rows in [column.slice(0, 3), column.slice(2, 3)] {
            let mut part = aggregate.create_accumulator().unwrap();
            part.update_batch(&[rows]).unwrap();
            let state: Vec<_> = part.state().unwrap().iter().map(|value| value.to_array().unwrap()).collect();
            assert_eq!(state[0].data_type(), aggregate.state_fields().unwrap()[0].data_type());
            merged.merge_batch(&state).unwrap();
        }
        assert_eq!(merged.evaluate().unwrap(), expected);
    }
}

#[test]
fn filters_and_groups_that_saw_nothing() {
    for name in ["sum", "avg", "min", "first_value", "last_value"] {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 5.0, 7.0]));
        for column in [big(vec![Some(1), Some(5), Some(7)]), column] {
            let aggregate = build(name, &column, None, false);
            let mut grouped = aggregate.create_groups_accumulator().unwrap();
            let filter = BooleanArray::from(vec![Some(false), Some(true), None]);
            grouped.update_batch(&[column], &[0, 1, 2], Some(&filter), 3).unwrap();
            let result = grouped.evaluate(EmitTo::All).unwrap();
            assert_eq!(
                (result.is_null(0), result.is_null(1), result.is_null(2)),
                (true, false, true),
                "{name}"
            );
        }
    }
}

#[test]
fn emitting_the_oldest_groups_keeps_the_others() {
    let column = big(vec![Some(1), Some(2), Some(3)]);
    let aggregate = build("avg", &column, None, false);
    let mut grouped = aggregate.create_groups_accumulator().unwrap();
    grouped.update_batch(&[column], &[0, 1, 1], None, 2).unwrap();
    let first = grouped.evaluate(EmitTo::First(1)).unwrap();
    assert_eq!(ScalarValue::try_from_array(&first, 0).unwrap(), 1.0.into());
    grouped.update_batch(&[big(vec![Some(4)])], &[0], None, 1).unwrap();
    let rest = grouped.evaluate(EmitTo::All).unwrap();
    assert_eq!(ScalarValue::try_from_array(&rest, 0).unwrap(), 3.0.into());
}

#[test]
fn texts_are_joined_as_strings() {
    let column = || Arc::new(StringArray::from(vec![Some("b"), None, Some("a")])) as ArrayRef;
    assert_eq!(try_answer("listagg", column(), Some("|")).unwrap(), "b|a".into());
    assert_eq!(answer("first_value", column()), "b".into());
    assert_eq!(answer("last_value", column()), "a".into());
    assert_eq!(answer("max", column()), "b".into());
    assert_eq!(answer("approx_count_distinct", column()), 2_i64.into());
}

#[test]
fn floats_have_one_order() {
    for values in [[f64::NAN, 1.0], [1.0, f64::NAN]] {
        let column = || Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
        assert_eq!(answer("min", column()), 1.0.into());
        let ScalarValue::Float64(Some(max)) = answer("max", column()) else { panic!("NULL") };
        assert!(max.is_nan());
    }
    assert_eq!(answer("max", Arc::new(Int32Array::from(vec![3, 7]))), ScalarValue::Int32(Some(7)));
}

#[test]
fn all_nan_are_one_distinct_value() {
    let column: ArrayRef = Arc::new(Float64Array::from(vec![f64::NAN, f64::NAN, 0.0, f64::NAN]));
    let aggregate = build("count", &column, None, true);
    let mut single = aggregate.create_accumulator().unwrap();
    single.update_batch(&[Arc::clone(&column)]).unwrap();
    assert_eq!(single.evaluate().unwrap(), 2_i64.into());
    if aggregate.groups_accumulator_supported() {
        let mut grouped = aggregate.create_groups_accumulator().unwrap();
        grouped.update_batch(&[column], &[0, 0, 0, 0], None, 1).unwrap();
        let counts = grouped.evaluate(EmitTo::All).unwrap();
        assert_eq!(ScalarValue::try_from_array(&counts, 0).unwrap(), 2_i64.into());
    }
}

#[test]
fn names_are_those_of_sql() {
    let column = big(vec![Some(1)]);
    assert_eq!(build("sum", &column, None, false).fun().name(), "sum");
    assert_eq!(build("avg", &column, None, false).fun().name(), "avg");
    assert_eq!(build("max", &column, None, false).field().data_type(), &DataType::Int64);
}

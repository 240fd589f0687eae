//! Each form against a map of plain values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, IntervalUnit, Schema, TimeUnit};
use datafusion_common::ScalarValue;

use super::group_keys;

/// NULL and three values of each type: what differs in one bit, at both ends, or in its length.
fn values(data_type: &DataType) -> ArrayRef {
    let texts: Vec<Vec<&str>> = match data_type {
        DataType::Boolean => vec![vec!["true", "false", "true"]],
        DataType::Int8 => vec![vec!["-128", "127", "0"]],
        DataType::Float64 => vec![vec!["-1.5", "0", "NaN"]],
        DataType::Utf8 => vec![vec!["", "a", "a\u{0}"]],
        DataType::Binary => vec![vec!["", "ab", "b"]],
        DataType::Date32 => vec![vec!["1969-12-31", "1970-01-01", "9999-12-31"]],
        DataType::Timestamp(..) => {
            vec![vec!["1969-12-31 23:59:59.999", "1970-01-01 00:00:00", "2026-01-01 00:00:00"]]
        }
        DataType::Decimal128(..) => vec![vec!["-0.01", "0.00", "999999999999999999999.99"]],
        DataType::Interval(_) => vec![vec!["1 month", "30 days", "0 days"]],
        _ => vec![vec!["-9223372036854775808", "9223372036854775807", "0"]],
    };
    let scalar = |text: &str| ScalarValue::try_from_string(text.to_owned(), data_type).unwrap();
    let all = texts.concat().into_iter().map(scalar).chain([ScalarValue::try_from(data_type).unwrap()]);
    ScalarValue::iter_to_array(all).unwrap()
}

/// `rows` rows of columns of these types, by a fixed sequence.
fn columns(types: &[DataType], rows: usize) -> Vec<ArrayRef> {
    let mut state = 7_u64;
    let each = types.iter().map(|data_type| {
        let places = (0..rows).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32 % 4
        });
        take(&values(data_type), &UInt32Array::from_iter_values(places), None).unwrap()
    });
    each.collect()
}

fn row(columns: &[ArrayRef], row: usize) -> Vec<ScalarValue> {
    columns.iter().map(|column| ScalarValue::try_from_array(column, row).unwrap()).collect()
}

fn check(types: &[DataType]) {
    let fields: Vec<Field> = types.iter().map(|data_type| Field::new("k", data_type.clone(), true)).collect();
    let schema = Schema::new(fields);
    let columns = columns(types, 300);
    let mut known: HashMap<Vec<ScalarValue>, usize> = HashMap::new();
    let mut firsts = Vec::new();
    let expected: Vec<usize> = (0..300)
        .map(|place| {
            let next = known.len();
            *known.entry(row(&columns, place)).or_insert_with(|| {
                firsts.push(place);
                next
            })
        })
        .collect();
    for cut in [1, 7, 300] {
        let mut keys = group_keys(&schema).unwrap();
        let (mut ids, mut all) = (vec![99], Vec::new());
        for from in (0..300).step_by(cut) {
            // A slice begins anywhere in its buffers.
            let part: Vec<ArrayRef> =
                columns.iter().map(|column| column.slice(from, cut.min(300 - from))).collect();
            keys.intern(&part, &mut ids).unwrap();
            all.extend_from_slice(&ids);
        }
        assert_eq!(all, expected, "{types:?} in batches of {cut}");
        assert_eq!(keys.len(), firsts.len());
        assert!(keys.size() > 0);
        let shown = keys.columns().unwrap();
        let taken = keys.into_columns().unwrap();
        for (group, first) in firsts.iter().enumerate() {
            assert_eq!(row(&shown, group), row(&columns, *first), "{types:?}");
        }
        assert_eq!(shown, taken);
        for (column, data_type) in shown.iter().zip(types) {
            assert_eq!(column.data_type(), data_type);
        }
    }
}

#[test]
fn keys_of_one_column_are_numbered_as_they_come() {
    let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some(Arc::from("Europe/Berlin")));
    let interval = DataType::Interval(IntervalUnit::MonthDayNano);
    for data_type in [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int64,
        DataType::Float64,
        DataType::Date32,
        zoned,
        DataType::Decimal128(23, 2),
        interval,
        DataType::Utf8,
        DataType::Binary,
        DataType::Utf8View,
    ] {
        check(&[data_type]);
    }
}

#[test]
fn keys_of_several_columns_are_numbered_as_they_come() {
    let timestamp = DataType::Timestamp(TimeUnit::Nanosecond, None);
    check(&[DataType::Int64, DataType::Int64]);
    check(&[DataType::Boolean, DataType::Int8, DataType::Date32, DataType::Float64]);
    check(&[timestamp.clone(), DataType::Int64, DataType::Int8]);
    check(&[DataType::Utf8, DataType::Int64]);
    check(&[DataType::Utf8, DataType::Utf8, timestamp]);
}

#[test]
fn lists_and_structs_are_keys_too() {
    let list = DataType::new_list(DataType::Int64, true);
    let fields = Schema::new(vec![Field::new("k", list.clone(), true)]);
    let values = ScalarValue::new_list(
        &[ScalarValue::Int64(Some(1)), ScalarValue::Int64(None)],
        &DataType::Int64,
        true,
    );
    let one = ScalarValue::List(values).to_array().unwrap();
    let null = ScalarValue::try_from(&list).unwrap().to_array().unwrap();
    let both = arrow::compute::concat(&[&one, &null, &one]).unwrap();
    let mut keys = group_keys(&fields).unwrap();
    let mut ids = Vec::new();
    keys.intern(&[both], &mut ids).unwrap();
    assert_eq!(ids, [0, 1, 0]);
    assert_eq!(keys.into_columns().unwrap()[0].len(), 2);
}

//! Calling functions in tests as the planner would: by name, arguments coerced.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field};
use chrono::NaiveDateTime;
use datafusion_common::config::ConfigOptions;
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs};

use super::FunctionRegistry;

pub(super) fn registry_in(zone: &str) -> FunctionRegistry {
    super::registry(zone)
}

fn invoke(zone: &str, name: &str, args: Vec<ColumnarValue>, rows: usize) -> Result<ColumnarValue> {
    let function = Arc::clone(&registry_in(zone).scalars[name]);
    let fields: Vec<_> = args.iter().map(|arg| Arc::new(Field::new("arg", arg.data_type(), true))).collect();
    let fields = fields_with_udf(&fields, function.as_ref())?;
    let args = args
        .iter()
        .zip(&fields)
        .map(|(arg, field)| arg.cast_to(field.data_type(), None))
        .collect::<Result<Vec<_>>>()?;
    let scalars: Vec<Option<&ScalarValue>> = args
        .iter()
        .map(|arg| match arg {
            ColumnarValue::Scalar(value) => Some(value),
            ColumnarValue::Array(_) => None,
        })
        .collect();
    let return_field = function
        .return_field_from_args(ReturnFieldArgs { arg_fields: &fields, scalar_arguments: &scalars })?;
    let result = function.invoke_with_args(ScalarFunctionArgs {
        args: args.clone(),
        arg_fields: fields.clone(),
        number_rows: rows,
        return_field: Arc::clone(&return_field),
        config_options: Arc::new(ConfigOptions::default()),
    })?;
    assert_eq!(&result.data_type(), return_field.data_type(), "{name}");
    Ok(result)
}

/// Calls a function with columns.
pub(super) fn call(name: &str, args: Vec<ColumnarValue>, rows: usize) -> ArrayRef {
    invoke("UTC", name, args, rows).unwrap().into_array(rows).unwrap()
}

/// Calls a function with constants, and with columns of the same values: both must agree.
pub(super) fn try_one(name: &str, args: &[ScalarValue]) -> Result<ScalarValue> {
    try_in("UTC", name, args)
}

fn try_in(zone: &str, name: &str, args: &[ScalarValue]) -> Result<ScalarValue> {
    let constants = args.iter().cloned().map(ColumnarValue::Scalar).collect();
    let ColumnarValue::Scalar(result) = invoke(zone, name, constants, 1)? else {
        panic!("{name} of constants gave a column")
    };
    // The first argument as a column: units and patterns stay constants.
    if let Some((first, rest)) = args.split_first()
        && !matches!(name, "timestampadd" | "timestampdiff")
    {
        let mut columns = vec![ColumnarValue::Array(first.to_array_of_size(2)?)];
        columns.extend(rest.iter().cloned().map(ColumnarValue::Scalar));
        let column = invoke(zone, name, columns, 2)?.into_array(2)?;
        for row in 0..2 {
            assert_eq!(ScalarValue::try_from_array(&column, row)?, result, "{name} of a column, row {row}");
        }
    }
    Ok(result)
}

pub(super) fn one(name: &str, args: &[ScalarValue]) -> ScalarValue {
    try_one(name, args).unwrap()
}

pub(super) fn call_in(zone: &str, name: &str, args: &[ScalarValue]) -> ScalarValue {
    try_in(zone, name, args).unwrap()
}

pub(super) fn text(text: &str) -> ScalarValue {
    ScalarValue::Utf8(Some(text.to_owned()))
}

pub(super) fn null() -> ScalarValue {
    ScalarValue::Utf8(None)
}

fn microseconds(text: &str) -> i64 {
    NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap().and_utc().timestamp_micros()
}

/// TIMESTAMP(6).
pub(super) fn timestamp(text: &str) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(microseconds(text)), None)
}

/// TIMESTAMP(3).
pub(super) fn timestamp_ms(text: &str) -> ScalarValue {
    ScalarValue::TimestampMillisecond(Some(microseconds(text).div_euclid(1_000)), None)
}

/// TIMESTAMP_LTZ(6) from UTC text.
pub(super) fn timestamp_in(text: &str, zone: &str) -> ScalarValue {
    ScalarValue::TimestampMicrosecond(Some(microseconds(text)), Some(zone.into()))
}

/// TIMESTAMP_LTZ(3) in UTC.
pub(super) fn instant(milliseconds: i64) -> ScalarValue {
    ScalarValue::TimestampMillisecond(Some(milliseconds), Some("UTC".into()))
}

pub(super) fn date(text: &str) -> ScalarValue {
    ScalarValue::Date32(Some(
        i32::try_from(microseconds(&format!("{text} 00:00:00")).div_euclid(86_400_000_000)).unwrap(),
    ))
}

#[test]
fn every_function_is_there_under_its_flink_name() {
    let registry = registry_in("UTC");
    for name in [
        "abs",
        "ascii",
        "btrim",
        "cardinality",
        "ceil",
        "char_length",
        "character_length",
        "chr",
        "coalesce",
        "concat",
        "concat_ws",
        "convert_tz",
        "cos",
        "current_date",
        "current_timestamp",
        "date_format",
        "dayofmonth",
        "dayofweek",
        "dayofyear",
        "element",
        "exp",
        "floor",
        "from_unixtime",
        "greatest",
        "hour",
        "ifnull",
        "initcap",
        "instr",
        "json_exists",
        "json_value",
        "least",
        "left",
        "ln",
        "localtimestamp",
        "locate",
        "log10",
        "log2",
        "lower",
        "lpad",
        "ltrim",
        "md5",
        "minute",
        "month",
        "now",
        "nullif",
        "overlay",
        "pi",
        "position",
        "power",
        "quarter",
        "radians",
        "rand",
        "regexp",
        "regexp_extract",
        "regexp_replace",
        "repeat",
        "replace",
        "reverse",
        "right",
        "round",
        "rpad",
        "rtrim",
        "second",
        "sha256",
        "sha512",
        "sign",
        "sqrt",
        "split_index",
        "startswith",
        "endswith",
        "substring",
        "to_date",
        "to_timestamp",
        "to_timestamp_ltz",
        "translate",
        "truncate",
        "unix_timestamp",
        "upper",
        "uuid",
        "week",
        "year",
    ] {
        assert!(registry.scalars.contains_key(name), "no function {name}");
    }
    for name in [
        "approx_count_distinct",
        "approx_distinct",
        "array_agg",
        "avg",
        "count",
        "first_value",
        "last_value",
        "listagg",
        "max",
        "min",
        "percentile",
        "stddev_pop",
        "stddev_samp",
        "string_agg",
        "sum",
        "var_pop",
        "var_samp",
    ] {
        assert!(registry.aggregates.contains_key(name), "no aggregate {name}");
    }
    assert!(registry.windows.contains_key("row_number"));
    assert_eq!(registry.scalars["left"].signature().type_signature.get_example_types()[0][0], DataType::Utf8);
}

//! `truncate` and `sign`, exact for integers and decimals.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, Int64Type};
use datafusion_common::{Result, plan_err};
use datafusion_expr::ScalarUDF;

use super::scalar::{Arguments, Function, Integer};

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    let truncate = Function::coercing("truncate", number_and_places, truncated_type, truncate).udf();
    vec![
        ("truncate", Arc::clone(&truncate)),
        ("trunc", truncate),
        ("sign", Function::coercing("sign", number, same_type, sign).udf()),
    ]
}

fn number(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [number] => Ok(vec![known_number(number)?]),
        other => plan_err!("sign takes one number, not {} arguments", other.len()),
    }
}

fn number_and_places(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [number] => Ok(vec![known_number(number)?]),
        [number, _] => Ok(vec![known_number(number)?, DataType::Int64]),
        other => plan_err!("truncate takes a number and a number of digits, not {} arguments", other.len()),
    }
}

fn known_number(data_type: &DataType) -> Result<DataType> {
    match data_type {
        DataType::Decimal128(_, _) | DataType::Float32 | DataType::Float64 => Ok(data_type.clone()),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => Ok(data_type.clone()),
        DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64 => Ok(DataType::Int64),
        DataType::Null | DataType::Float16 => Ok(DataType::Float64),
        other => plan_err!("{other} is no number"),
    }
}

fn same_type(types: &[DataType]) -> Result<DataType> {
    Ok(types[0].clone())
}

/// −1, 0 or 1 in the type of the argument; NaN stays NaN.
fn sign(args: &Arguments<'_>) -> Result<ArrayRef> {
    let values = args.array(0)?;
    Ok(match values.data_type() {
        DataType::Float64 => Arc::new(
            values
                .as_primitive::<Float64Type>()
                .unary::<_, Float64Type>(|value| if value == 0.0 { value } else { value.signum() }),
        ),
        DataType::Float32 => Arc::new(
            values
                .as_primitive::<Float32Type>()
                .unary::<_, Float32Type>(|value| if value == 0.0 { value } else { value.signum() }),
        ),
        DataType::Decimal128(_, scale) => {
            let one = 10_i128.pow(u32::from(scale.max(&0).unsigned_abs()));
            keep_type(values.as_primitive::<Decimal128Type>(), |value| value.signum() * one)
        }
        other => {
            let wide = cast(&values, &DataType::Int64)?;
            let signs = wide.as_primitive::<Int64Type>().unary::<_, Int64Type>(i64::signum);
            cast(&signs, other)?
        }
    })
}

fn keep_type<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    op: impl Fn(T::Native) -> T::Native,
) -> ArrayRef {
    Arc::new(values.unary::<_, T>(op).with_data_type(values.data_type().clone()))
}

/// Of decimals the scale is kept: a type can't depend on a value.
fn truncated_type(types: &[DataType]) -> Result<DataType> {
    Ok(types[0].clone())
}

/// Cut, not rounded, to a number of digits after the point; a negative number cuts before it.
fn truncate(args: &Arguments<'_>) -> Result<ArrayRef> {
    let values = args.array(0)?;
    let places = if args.len() > 1 { args.integer(1)? } else { Integer::Constant(Some(0)) };
    Ok(match values.data_type() {
        DataType::Float64 => {
            let cut = |value: f64, places| cut_float(value, places);
            apply(values.as_primitive::<Float64Type>(), places, cut)
        }
        DataType::Float32 => {
            let cut = |value: f32, places| cut_float(f64::from(value), places) as f32;
            apply(values.as_primitive::<Float32Type>(), places, cut)
        }
        DataType::Decimal128(_, scale) => {
            let scale = i64::from(*scale);
            let cut = move |value: i128, places: i64| cut_digits(value, scale.saturating_sub(places));
            apply(values.as_primitive::<Decimal128Type>(), places, cut)
        }
        other => {
            let wide = cast(&values, &DataType::Int64)?;
            let cut =
                |value: i64, places: i64| cut_digits(i128::from(value), 0_i64.saturating_sub(places)) as i64;
            cast(&apply(wide.as_primitive::<Int64Type>(), places, cut), other)?
        }
    })
}

fn apply<T: ArrowPrimitiveType>(
    values: &PrimitiveArray<T>,
    places: Integer<'_>,
    cut: impl Fn(T::Native, i64) -> T::Native,
) -> ArrayRef {
    if let Integer::Constant(Some(places)) = places {
        return keep_type(values, |value| cut(value, places));
    }
    let out = (0..values.len()).map(|row| {
        let places = places.get(row)?;
        values.is_valid(row).then(|| cut(values.value(row), places))
    });
    Arc::new(out.collect::<PrimitiveArray<T>>().with_data_type(values.data_type().clone()))
}

/// The last `digits` digits made 0.
fn cut_digits(value: i128, digits: i64) -> i128 {
    match u32::try_from(digits) {
        Err(_) if digits < 0 => value,
        Ok(0) => value,
        Ok(digits) if digits <= 38 => {
            let unit = 10_i128.pow(digits);
            value / unit * unit
        }
        _ => 0,
    }
}

/// A cut of the shortest decimal that stands for the float, so that 4.35 to two digits is 4.35.
fn cut_float(value: f64, places: i64) -> f64 {
    if !value.is_finite() || places > 308 {
        return value;
    }
    if places < -308 {
        return 0.0_f64.copysign(value);
    }
    let text = format!("{value}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    if places >= 0 {
        let places = places.unsigned_abs() as usize;
        if fraction.len() <= places {
            return value;
        }
        return format!("{whole}.{}", &fraction[..places]).parse().unwrap_or(value);
    }
    let digits = places.unsigned_abs() as usize;
    let sign = if value < 0.0 { "-" } else { "" };
    let whole = whole.trim_start_matches('-');
    if whole.len() <= digits {
        return 0.0_f64.copysign(value);
    }
    format!("{sign}{}{}", &whole[..whole.len() - digits], "0".repeat(digits)).parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;

    use super::super::tests::one;
    use super::*;

    fn decimal(value: i128, precision: u8, scale: i8) -> ScalarValue {
        ScalarValue::Decimal128(Some(value), precision, scale)
    }

    // The expectations are answers of Flink 2.3; the scale of decimals is kept.
    #[test]
    fn truncate_cuts() {
        assert_eq!(one("truncate", &[decimal(42_345, 5, 3), 2.into()]), decimal(42_340, 5, 3));
        assert_eq!(one("truncate", &[decimal(-42_345, 5, 3), 1.into()]), decimal(-42_300, 5, 3));
        assert_eq!(one("truncate", &[decimal(42_345, 5, 3)]), decimal(42_000, 5, 3));
        assert_eq!(one("truncate", &[decimal(42_345, 5, 3), (-1).into()]), decimal(40_000, 5, 3));
        assert_eq!(one("truncate", &[42.345.into(), 2.into()]), 42.34.into());
        assert_eq!(
            one("truncate", &[ScalarValue::Int32(Some(42)), (-1).into()]),
            ScalarValue::Int32(Some(40))
        );
        assert_eq!(one("truncate", &[ScalarValue::Float64(None), 2.into()]), ScalarValue::Float64(None));
    }

    #[test]
    fn floats_are_cut_as_written() {
        assert_eq!(cut_float(4.35, 2), 4.35);
        assert_eq!(cut_float(-4.359, 2), -4.35);
        assert_eq!(cut_float(1e300, 2), 1e300);
        assert_eq!(cut_float(1e-300, 2), 0.0);
        assert_eq!(cut_float(1234.5, -2), 1200.0);
        assert_eq!(cut_float(-99.0, -2), 0.0);
        assert_eq!(cut_float(f64::INFINITY, -2), f64::INFINITY);
    }

    #[test]
    fn sign_keeps_the_type() {
        assert_eq!(one("sign", &[ScalarValue::Int32(Some(-3))]), ScalarValue::Int32(Some(-1)));
        assert_eq!(one("sign", &[decimal(-150, 5, 2)]), decimal(-100, 5, 2));
        assert_eq!(one("sign", &[2.5.into()]), 1.0.into());
        assert_eq!(one("sign", &[0.0.into()]), 0.0.into());
        assert_eq!(one("sign", &[i64::MIN.into()]), ScalarValue::Int64(Some(-1)));
    }
}

//! `CURRENT_TIMESTAMP` and the like: the wall clock when a batch is evaluated, never a constant.
//!
//! The one place among the functions where the wall clock is read.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Date32Array, Int64Array, Time32MillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{Datelike, NaiveDateTime, Timelike, Utc};
use datafusion_common::{Result, internal_err};
use datafusion_expr::ScalarUDF;

use super::super::scalar::{Arguments, Function, SESSION_ZONE};
use super::wall_clock::{from_naive, local, zone};

/// How long ago an instant was, microseconds, ≥ 0: what `_latency` is called by inside.
pub(crate) const LATENCY: &str = "__latency";

/// The functions with their names; `zone` is the session's time zone.
pub(super) fn all(zone: &str) -> Vec<(&'static str, Arc<ScalarUDF>)> {
    let make = |name, return_type, body| {
        (name, Function::new(name, &[&[]], return_type, body).volatile().in_zone(zone).udf())
    };
    vec![
        make("current_timestamp", |_| Ok(instant_type()), now),
        make("now", |_| Ok(instant_type()), now),
        make("current_row_timestamp", |_| Ok(instant_type()), now),
        make("localtimestamp", |_| Ok(DataType::Timestamp(TimeUnit::Millisecond, None)), local_now),
        make("current_date", |_| Ok(DataType::Date32), today),
        make("curdate", |_| Ok(DataType::Date32), today),
        make("current_time", |_| Ok(DataType::Time32(TimeUnit::Millisecond)), time_of_day),
        make("proctime", |_| Ok(instant_type()), now),
        make("localtime", |_| Ok(DataType::Time32(TimeUnit::Millisecond)), time_of_day),
        (LATENCY, Function::coercing(LATENCY, instant, |_| Ok(DataType::Int64), since).volatile().udf()),
    ]
}

fn instant_type() -> DataType {
    DataType::Timestamp(TimeUnit::Millisecond, Some(SESSION_ZONE.into()))
}

/// The wall clock, UTC.
pub(super) fn clock() -> NaiveDateTime {
    Utc::now().naive_utc()
}

fn shown(args: &Arguments<'_>) -> Result<NaiveDateTime> {
    match local(clock(), &zone(args.zone)?) {
        Some(shown) => Ok(shown),
        None => internal_err!("the wall clock is beyond the calendar"),
    }
}

fn milliseconds(args: &Arguments<'_>, time: NaiveDateTime) -> Result<ArrayRef> {
    let now = from_naive(time, TimeUnit::Millisecond);
    Ok(cast(&Int64Array::from(vec![now; args.rows]), args.return_type)?)
}

fn now(args: &Arguments<'_>) -> Result<ArrayRef> {
    milliseconds(args, clock())
}

fn instant(types: &[DataType]) -> Result<Vec<DataType>> {
    Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())); types.len()])
}

fn since(args: &Arguments<'_>) -> Result<ArrayRef> {
    let now = from_naive(clock(), TimeUnit::Microsecond).unwrap_or(i64::MAX);
    let then = cast(&args.array(0)?, &DataType::Int64)?;
    let passed =
        then.as_primitive::<Int64Type>().unary::<_, Int64Type>(|then| now.saturating_sub(then).max(0));
    Ok(Arc::new(passed))
}

fn local_now(args: &Arguments<'_>) -> Result<ArrayRef> {
    milliseconds(args, shown(args)?)
}

fn today(args: &Arguments<'_>) -> Result<ArrayRef> {
    let days = shown(args)?.date().num_days_from_ce() - 719_163;
    Ok(Arc::new(Date32Array::from(vec![days; args.rows])))
}

fn time_of_day(args: &Arguments<'_>) -> Result<ArrayRef> {
    let seconds = i32::try_from(shown(args)?.num_seconds_from_midnight()).unwrap_or(0);
    Ok(Arc::new(Time32MillisecondArray::from(vec![seconds * 1_000; args.rows])))
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;
    use datafusion_expr::Volatility;

    use super::super::super::tests::{one, registry_in};
    use super::*;

    #[test]
    fn the_clock_has_the_session_zone_and_is_no_constant() {
        let before = Utc::now().timestamp_millis();
        let ScalarValue::TimestampMillisecond(Some(now), Some(zone)) = one("current_timestamp", &[]) else {
            panic!("not a TIMESTAMP_LTZ(3)")
        };
        assert!((before..=Utc::now().timestamp_millis()).contains(&now));
        assert_eq!(zone.as_ref(), "UTC");
        let registry = registry_in("Asia/Shanghai");
        let function = &registry.scalars["now"];
        assert_eq!(function.signature().volatility, Volatility::Volatile);
        assert_eq!(
            function.inner().return_type(&[]).unwrap(),
            DataType::Timestamp(TimeUnit::Millisecond, Some("Asia/Shanghai".into()))
        );
    }

    #[test]
    fn the_date_is_counted_from_1970() {
        let ScalarValue::Date32(Some(days)) = one("current_date", &[]) else { panic!("not a DATE") };
        let today = Utc::now().timestamp().div_euclid(86_400);
        assert!((today - 1..=today).contains(&i64::from(days)));
    }
}

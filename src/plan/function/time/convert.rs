//! The casts that DataFusion does otherwise than SQL:
//!
//! * to text: a timestamp with all digits of its type and a space in the middle, in its zone;
//! * to TIMESTAMP and TIMESTAMP_LTZ: through the wall clock of the zone, rounded down, and a local
//!   time that a zone shows twice or never is no error.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::NaiveDateTime;
use datafusion_common::cast::as_string_array;
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::ScalarUDF;

use super::super::scalar::{Arguments, Function, ReturnType, SESSION_ZONE, string};
use super::pattern::{Pattern, read_sql_time};
use super::wall_clock::{WallClock, from_naive, instant, zone as find_zone};

/// The name that `CAST(x AS STRING)` is called by inside.
pub(in crate::plan::function) const CAST_TEXT: &str = "cast_text";
/// The names that `CAST(x AS TIMESTAMP(p))` is called by inside: for p ≤ 3, ≤ 6 and ≤ 9, then
/// those of TRY_CAST.
pub(in crate::plan::function) const CAST_TIMESTAMP: [&str; 6] = [
    "cast_timestamp_3",
    "cast_timestamp_6",
    "cast_timestamp_9",
    "try_cast_timestamp_3",
    "try_cast_timestamp_6",
    "try_cast_timestamp_9",
];
/// The same for `CAST(x AS TIMESTAMP_LTZ(p))`.
pub(in crate::plan::function) const CAST_TIMESTAMP_LTZ: [&str; 6] = [
    "cast_timestamp_ltz_3",
    "cast_timestamp_ltz_6",
    "cast_timestamp_ltz_9",
    "try_cast_timestamp_ltz_3",
    "try_cast_timestamp_ltz_6",
    "try_cast_timestamp_ltz_9",
];

/// The functions with their names; `zone` is the session's time zone.
pub(super) fn all(zone: &str) -> Vec<(&'static str, Arc<ScalarUDF>)> {
    const UNITS: [ReturnType; 3] = [
        |_| Ok(DataType::Timestamp(TimeUnit::Millisecond, None)),
        |_| Ok(DataType::Timestamp(TimeUnit::Microsecond, None)),
        |_| Ok(DataType::Timestamp(TimeUnit::Nanosecond, None)),
    ];
    const LTZ_UNITS: [ReturnType; 3] = [
        |_| Ok(DataType::Timestamp(TimeUnit::Millisecond, Some(SESSION_ZONE.into()))),
        |_| Ok(DataType::Timestamp(TimeUnit::Microsecond, Some(SESSION_ZONE.into()))),
        |_| Ok(DataType::Timestamp(TimeUnit::Nanosecond, Some(SESSION_ZONE.into()))),
    ];
    let mut functions = vec![(CAST_TEXT, Function::coercing(CAST_TEXT, any, string, to_text).udf())];
    for (names, units) in [(CAST_TIMESTAMP, UNITS), (CAST_TIMESTAMP_LTZ, LTZ_UNITS)] {
        for (index, name) in names.into_iter().enumerate() {
            let body = if index < 3 {
                |args: &Arguments<'_>| to_time(args, false)
            } else {
                |args: &Arguments<'_>| to_time(args, true)
            };
            let function = Function::coercing(name, castable, units[index % 3], body);
            functions.push((name, function.in_zone(zone).udf()));
        }
    }
    functions
}

fn any(types: &[DataType]) -> Result<Vec<DataType>> {
    Ok(types.to_vec())
}

fn castable(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [DataType::Utf8View | DataType::LargeUtf8 | DataType::Null] => Ok(vec![DataType::Utf8]),
        [DataType::Utf8 | DataType::Timestamp(_, _) | DataType::Date32] => Ok(types.to_vec()),
        [other] => plan_err!("{other} can't be cast to a timestamp"),
        other => plan_err!("a cast takes one value, not {}", other.len()),
    }
}

fn to_text(args: &Arguments<'_>) -> Result<ArrayRef> {
    let values = args.array(0)?;
    let DataType::Timestamp(unit, _) = values.data_type() else {
        return Ok(cast(&values, &DataType::Utf8)?);
    };
    let pattern = Pattern::new(match unit {
        TimeUnit::Second => "yyyy-MM-dd HH:mm:ss",
        TimeUnit::Millisecond => "yyyy-MM-dd HH:mm:ss.SSS",
        TimeUnit::Microsecond => "yyyy-MM-dd HH:mm:ss.SSSSSS",
        TimeUnit::Nanosecond => "yyyy-MM-dd HH:mm:ss.SSSSSSSSS",
    })?;
    let clock = WallClock::new(&values)?;
    let mut out = StringBuilder::with_capacity(args.rows, args.rows * 24);
    for row in 0..args.rows {
        match clock.get(row) {
            Some(time) => {
                pattern.write(time, &mut out).expect("a string builder takes any text");
                out.append_value("");
            }
            None => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

fn to_time(args: &Arguments<'_>, safe: bool) -> Result<ArrayRef> {
    let values = args.array(0)?;
    let DataType::Timestamp(unit, target_zone) = args.return_type else {
        return exec_err!("a cast to {} is no cast to a timestamp", args.return_type);
    };
    let target_zone = target_zone.as_deref().map(find_zone).transpose()?;
    // From what the clock shows in the source to what is stored in the target.
    let store = |shown: NaiveDateTime| match &target_zone {
        Some(zone) => from_naive(instant(shown, zone)?, *unit),
        None => from_naive(shown, *unit),
    };
    let mut out = Vec::with_capacity(args.rows);
    if values.data_type() == &DataType::Utf8 {
        let texts = as_string_array(&values)?;
        for text in texts {
            let stored = text.and_then(|text| store(read_sql_time(text)?));
            if let (Some(text), None, false) = (text, stored, safe) {
                return exec_err!("\"{text}\" can't be cast to a timestamp");
            }
            out.push(stored);
        }
    } else {
        let clock = WallClock::new(&values)?;
        for row in 0..args.rows {
            // Between two instants no wall clock is needed.
            let stored = match (&clock.zone, &target_zone) {
                (Some(_), Some(_)) => clock.instant(row).and_then(|time| from_naive(time, *unit)),
                _ => clock.get(row).and_then(store),
            };
            if stored.is_none() && values.is_valid(row) && !safe {
                return exec_err!("row {row}: a time is beyond the range of {}", args.return_type);
            }
            out.push(stored);
        }
    }
    Ok(cast(&Int64Array::from(out), args.return_type)?)
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;

    use super::super::super::tests::{
        call_in, date, instant, null, one, text, timestamp, timestamp_in, timestamp_ms, try_one,
    };

    // The expectations are answers of Flink 2.3.
    #[test]
    fn to_text_all_digits_of_the_type_in_the_zone() {
        assert_eq!(one("cast_text", &[timestamp_ms("2024-12-30 00:00:00")]), text("2024-12-30 00:00:00.000"));
        assert_eq!(
            one("cast_text", &[timestamp_in("2024-03-05 15:59:59.999", "Asia/Shanghai")]),
            text("2024-03-05 23:59:59.999000")
        );
        assert_eq!(one("cast_text", &[7.into()]), text("7"));
        assert_eq!(one("cast_text", &[2.5.into()]), text("2.5"));
        assert_eq!(one("cast_text", &[ScalarValue::Null]), null());
    }

    #[test]
    fn to_timestamps_rounds_down_and_minds_the_zone() {
        assert_eq!(
            one("cast_timestamp_3", &[timestamp("1969-12-31 23:59:59.999999")]),
            timestamp_ms("1969-12-31 23:59:59.999")
        );
        assert_eq!(
            one("cast_timestamp_3", &[timestamp_in("2024-03-05 16:00:00", "Asia/Shanghai")]),
            timestamp_ms("2024-03-06 00:00:00")
        );
        assert_eq!(one("cast_timestamp_3", &[date("2024-03-05")]), timestamp_ms("2024-03-05 00:00:00"));
        assert_eq!(one("cast_timestamp_3", &[text("2024-02-29")]), timestamp_ms("2024-02-29 00:00:00"));
        assert!(try_one("cast_timestamp_3", &[text("x")]).is_err());
        assert_eq!(one("try_cast_timestamp_3", &[text("x")]), ScalarValue::TimestampMillisecond(None, None));
        assert!(try_one("cast_timestamp_9", &[timestamp("9999-12-31 00:00:00")]).is_err());
        let cast = |value: &str| call_in("Europe/Berlin", "cast_timestamp_ltz_3", &[timestamp(value)]);
        let at = |utc_ms| ScalarValue::TimestampMillisecond(Some(utc_ms), Some("Europe/Berlin".into()));
        // Shown twice: the earlier one, 00:30 UTC. Never shown: as if not put forward, 01:30 UTC.
        assert_eq!(cast("2024-10-27 02:30:00"), at(1_729_989_000_000));
        assert_eq!(cast("2024-03-31 02:30:00"), at(1_711_848_600_000));
        assert_eq!(one("cast_timestamp_ltz_3", &[text("1970-01-01 00:00:01")]), instant(1_000));
    }
}

//! Times to text and back: `date_format`, `to_timestamp`, `to_date`, `from_unixtime`, ….

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int64Array, StringArray, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{Datelike, NaiveDateTime};
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::ScalarUDF;

use super::super::scalar::{Arguments, Cached, Function, SESSION_ZONE, Text, bigint, string};
use super::now;
use super::pattern::{Pattern, read_sql_time};
use super::wall_clock::{WallClock, from_naive, instant, local, to_naive, zone as find_zone};

const UTF8: DataType = DataType::Utf8;
const INT64: DataType = DataType::Int64;

/// The functions with their names; `zone` is the session's time zone.
pub(super) fn all(zone: &str) -> Vec<(&'static str, Arc<ScalarUDF>)> {
    let text_and_pattern: &[&[DataType]] = &[&[UTF8], &[UTF8, UTF8]];
    let unix: &[&[DataType]] = &[&[], &[UTF8], &[UTF8, UTF8]];
    let ltz = |_: &[DataType]| Ok(DataType::Timestamp(TimeUnit::Millisecond, Some(SESSION_ZONE.into())));
    let plain = |_: &[DataType]| Ok(DataType::Timestamp(TimeUnit::Millisecond, None));
    let convert: &[&[DataType]] = &[&[UTF8, UTF8, UTF8]];
    vec![
        ("date_format", Function::coercing("date_format", format_types, string, date_format).udf()),
        ("to_timestamp", Function::new("to_timestamp", text_and_pattern, plain, to_timestamp).udf()),
        (
            "to_timestamp_ltz",
            Function::coercing("to_timestamp_ltz", ltz_types, ltz, to_timestamp_ltz).in_zone(zone).udf(),
        ),
        ("to_date", Function::new("to_date", text_and_pattern, |_| Ok(DataType::Date32), to_date).udf()),
        (
            "from_unixtime",
            Function::new("from_unixtime", &[&[INT64], &[INT64, UTF8]], string, from_unixtime)
                .in_zone(zone)
                .udf(),
        ),
        (
            "unix_timestamp",
            Function::new("unix_timestamp", unix, bigint, unix_timestamp).volatile().in_zone(zone).udf(),
        ),
        ("convert_tz", Function::new("convert_tz", convert, string, convert_tz).udf()),
    ]
}

fn format_types(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [DataType::Timestamp(_, _) | DataType::Date32, _] => Ok(vec![types[0].clone(), UTF8]),
        [DataType::Utf8 | DataType::Utf8View | DataType::Null, _] => Ok(vec![UTF8, UTF8]),
        [other, _] => plan_err!("date_format needs a date, a timestamp or text, not {other}"),
        other => plan_err!("date_format takes a time and a pattern, not {} arguments", other.len()),
    }
}

/// A time written by a Java pattern; text is read as `yyyy-MM-dd HH:mm:ss` first.
fn date_format(args: &Arguments<'_>) -> Result<ArrayRef> {
    let patterns = args.text(1)?;
    if args.value(0).data_type() == UTF8 {
        let text = args.text(0)?;
        return write(args.rows, &patterns, |row| read_sql_time(text.get(row)?));
    }
    let times = args.array(0)?;
    let clock = WallClock::new(&times)?;
    write(args.rows, &patterns, |row| clock.get(row))
}

fn write(
    rows: usize,
    patterns: &Text<'_>,
    time: impl Fn(usize) -> Option<NaiveDateTime>,
) -> Result<ArrayRef> {
    let mut out = StringBuilder::with_capacity(rows, rows * 20);
    let mut pattern = Cached::new();
    for row in 0..rows {
        match (time(row), patterns.get(row)) {
            (Some(time), Some(text)) => {
                let written = pattern.get(text, Pattern::new)?.write(time, &mut out);
                written.expect("a string builder takes any text");
                out.append_value("");
            }
            _ => out.append_null(),
        }
    }
    Ok(Arc::new(out.finish()))
}

/// Reads text by the pattern in argument `at`, or as an SQL time if there is none.
fn read<'a>(args: &Arguments<'a>, at: usize) -> Result<Vec<Option<NaiveDateTime>>> {
    let text = args.text(0)?;
    if args.len() <= at {
        return Ok((0..args.rows).map(|row| read_sql_time(text.get(row)?)).collect());
    }
    let patterns = args.text(at)?;
    let mut pattern = Cached::new();
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        out.push(match (text.get(row), patterns.get(row)) {
            (Some(text), Some(letters)) => pattern.get(letters, Pattern::new)?.read(text),
            _ => None,
        });
    }
    Ok(out)
}

/// Text to TIMESTAMP(3), NULL where it is no time.
fn to_timestamp(args: &Arguments<'_>) -> Result<ArrayRef> {
    let times = read(args, 1)?;
    let numbers = times.into_iter().map(|time| from_naive(time?, TimeUnit::Millisecond));
    Ok(cast(&numbers.collect::<Int64Array>(), args.return_type)?)
}

/// Text to DATE, NULL where it is none.
fn to_date(args: &Arguments<'_>) -> Result<ArrayRef> {
    let times = read(args, 1)?;
    let days = times.into_iter().map(|time| Some(time?.date().num_days_from_ce() - 719_163));
    Ok(Arc::new(days.collect::<Date32Array>()))
}

fn ltz_types(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [DataType::Utf8 | DataType::Utf8View, ..] if types.len() <= 3 => Ok(vec![UTF8; types.len()]),
        [first] if first.is_numeric() || first.is_null() => Ok(vec![INT64]),
        [first, _] if first.is_numeric() || first.is_null() => Ok(vec![INT64, INT64]),
        _ => plan_err!("to_timestamp_ltz takes a number and 0 or 3, or text with a pattern and a zone"),
    }
}

/// A number of seconds (0) or milliseconds (3) since 1970, or text, to TIMESTAMP_LTZ(3).
fn to_timestamp_ltz(args: &Arguments<'_>) -> Result<ArrayRef> {
    if args.value(0).data_type() == UTF8 {
        let zone_name = if args.len() > 2 { args.text(2)?.get(0).unwrap_or(args.zone) } else { "UTC" };
        let zone = find_zone(zone_name)?;
        let times = read(args, 1)?;
        let numbers = times.into_iter().map(|time| from_naive(instant(time?, &zone)?, TimeUnit::Millisecond));
        return Ok(cast(&numbers.collect::<Int64Array>(), args.return_type)?);
    }
    let numbers = args.integer(0)?;
    let precision = if args.len() > 1 { Some(args.integer(1)?) } else { None };
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let precision = match &precision {
            Some(precision) => precision.get(row),
            None => Some(3),
        };
        out.push(match (numbers.get(row), precision) {
            (Some(number), Some(3)) => Some(number),
            (Some(number), Some(0)) => match number.checked_mul(1_000) {
                Some(milliseconds) => Some(milliseconds),
                None => return exec_err!("to_timestamp_ltz: {number} seconds are beyond the calendar"),
            },
            (Some(_), Some(other)) => {
                return exec_err!(
                    "the precision {other} of to_timestamp_ltz is neither 0 (seconds) nor 3 (milliseconds)"
                );
            }
            _ => None,
        });
    }
    Ok(cast(&Int64Array::from(out), args.return_type)?)
}

/// Seconds since 1970 as text in the session's zone.
fn from_unixtime(args: &Arguments<'_>) -> Result<ArrayRef> {
    let seconds = args.integer(0)?;
    let zone = find_zone(args.zone)?;
    let patterns = if args.len() > 1 { args.text(1)? } else { Text::Constant(Some("yyyy-MM-dd HH:mm:ss")) };
    write(args.rows, &patterns, |row| local(to_naive(seconds.get(row)?, TimeUnit::Second)?, &zone))
}

/// Seconds since 1970 of now, or of a text in the session's zone; NULL where it is no time.
fn unix_timestamp(args: &Arguments<'_>) -> Result<ArrayRef> {
    if args.len() == 0 {
        return Ok(Arc::new(Int64Array::from(vec![now::clock().and_utc().timestamp(); args.rows])));
    }
    let zone = find_zone(args.zone)?;
    let times = read(args, 1)?;
    let seconds = times.into_iter().map(|time| Some(instant(time?, &zone)?.and_utc().timestamp()));
    Ok(Arc::new(seconds.collect::<Int64Array>()))
}

/// A time as text in one zone to text in another; NULL where it is no time.
fn convert_tz(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, from, to) = (args.text(0)?, args.text(1)?, args.text(2)?);
    let (mut from_zone, mut to_zone) = (Cached::new(), Cached::new());
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let (Some(text), Some(from), Some(to)) = (text.get(row), from.get(row), to.get(row)) else {
            out.push(None);
            continue;
        };
        let (from, to) = (from_zone.get(from, find_zone)?, to_zone.get(to, find_zone)?);
        let time = read_sql_time(text).and_then(|time| local(instant(time, from)?, to));
        out.push(time.map(|time| {
            let mut shown = String::new();
            write!(shown, "{}", time.format("%Y-%m-%d %H:%M:%S")).expect("a string takes any text");
            shown
        }));
    }
    Ok(Arc::new(StringArray::from(out)))
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;

    use super::super::super::tests::{
        call_in, date, instant, null, one, text, timestamp, timestamp_in, timestamp_ms, try_one,
    };

    // The expectations are answers of Flink 2.3, apart from those about text that is no time.
    #[test]
    fn text_to_times() {
        let read = |value: &str| one("to_timestamp", &[text(value)]);
        assert_eq!(read("2024-02-29 10:11:12.1234567"), timestamp_ms("2024-02-29 10:11:12.123"));
        assert_eq!(read("2024-02-29"), timestamp_ms("2024-02-29 00:00:00"));
        assert_eq!(read("nonsense"), ScalarValue::TimestampMillisecond(None, None));
        assert_eq!(
            one("to_timestamp", &[text("29/02/2024 10:11"), text("dd/MM/yyyy HH:mm")]),
            timestamp_ms("2024-02-29 10:11:00")
        );
        assert_eq!(one("to_date", &[text("29.02.2024"), text("dd.MM.yyyy")]), date("2024-02-29"));
        assert_eq!(one("to_date", &[text("nonsense")]), ScalarValue::Date32(None));
    }

    #[test]
    fn numbers_to_times_and_back() {
        assert_eq!(one("from_unixtime", &[0.into()]), text("1970-01-01 00:00:00"));
        assert_eq!(one("from_unixtime", &[(-1).into()]), text("1969-12-31 23:59:59"));
        assert_eq!(one("from_unixtime", &[86_399.into(), text("HH:mm")]), text("23:59"));
        assert_eq!(one("unix_timestamp", &[text("2024-02-29 10:11:12")]), 1_709_201_472_i64.into());
        assert_eq!(
            one("unix_timestamp", &[text("29/02/2024"), text("dd/MM/yyyy")]),
            1_709_164_800_i64.into()
        );
        assert_eq!(one("unix_timestamp", &[text("x")]), ScalarValue::Int64(None));
        assert_eq!(
            one("to_timestamp_ltz", &[1_709_596_800_i64.into(), 0.into()]),
            instant(1_709_596_800_000)
        );
        assert_eq!(
            one("to_timestamp_ltz", &[1_709_596_800_123_i64.into(), 3.into()]),
            instant(1_709_596_800_123)
        );
        assert!(try_one("to_timestamp_ltz", &[1.into(), 6.into()]).is_err());
        assert!(try_one("to_timestamp_ltz", &[i64::MAX.into(), 0.into()]).is_err());
    }

    #[test]
    fn texts_are_read_and_written_in_the_session_zone() {
        let shanghai = |name, args: &[ScalarValue]| call_in("Asia/Shanghai", name, args);
        assert_eq!(shanghai("from_unixtime", &[0.into()]), text("1970-01-01 08:00:00"));
        assert_eq!(shanghai("unix_timestamp", &[text("1970-01-01 08:00:00")]), 0_i64.into());
        assert_eq!(
            one("convert_tz", &[text("1970-01-01 00:00:00"), text("UTC"), text("America/Los_Angeles")]),
            text("1969-12-31 16:00:00")
        );
        assert!(try_one("convert_tz", &[text("1970-01-01"), text("UTC"), text("Mars")]).is_err());
    }

    #[test]
    fn times_to_text() {
        assert_eq!(one("date_format", &[text("2024-02-29 10:11:12"), text("yyyyMMdd")]), text("20240229"));
        assert_eq!(
            one(
                "date_format",
                &[timestamp_in("2024-03-05 16:00:00", "Asia/Shanghai"), text("yyyy-MM-dd HH")]
            ),
            text("2024-03-06 00")
        );
        assert_eq!(one("date_format", &[timestamp("2024-03-05 16:00:00"), null()]), null());
        assert_eq!(one("date_format", &[date("2024-03-05"), text("EEE HH")]), text("Tue 00"));
        assert!(try_one("date_format", &[date("2024-03-05"), text("b")]).is_err());
    }
}

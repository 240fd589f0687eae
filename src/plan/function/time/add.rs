//! `TIMESTAMPADD(unit, n, ts)` and `TIMESTAMPDIFF(unit, from, to)`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};
use chrono::{Datelike, Duration, Months, NaiveDateTime};
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::ScalarUDF;

use super::super::scalar::{Arguments, Function, bigint};
use super::wall_clock::{WallClock, from_naive};

/// The name of `TIMESTAMPADD`.
pub(in crate::plan::function) const TIMESTAMP_ADD: &str = "timestampadd";
/// The name of `TIMESTAMPDIFF`.
pub(in crate::plan::function) const TIMESTAMP_DIFF: &str = "timestampdiff";

/// The functions with their names; the unit comes as text.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    vec![
        (TIMESTAMP_ADD, Function::coercing(TIMESTAMP_ADD, add_types, third_type, add).udf()),
        (TIMESTAMP_DIFF, Function::coercing(TIMESTAMP_DIFF, diff_types, bigint, diff).udf()),
    ]
}

fn time_type(data_type: &DataType) -> Result<DataType> {
    match data_type {
        DataType::Timestamp(_, _) | DataType::Date32 => Ok(data_type.clone()),
        DataType::Utf8 | DataType::Utf8View | DataType::Null => {
            Ok(DataType::Timestamp(TimeUnit::Microsecond, None))
        }
        other => plan_err!("a date or timestamp is needed, not {other}"),
    }
}

fn add_types(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [_, _, time] => Ok(vec![DataType::Utf8, DataType::Int64, time_type(time)?]),
        other => plan_err!("timestampadd takes a unit, a number and a time, not {} arguments", other.len()),
    }
}

fn diff_types(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [_, from, to] => Ok(vec![DataType::Utf8, time_type(from)?, time_type(to)?]),
        other => plan_err!("timestampdiff takes a unit and two times, not {} arguments", other.len()),
    }
}

fn third_type(types: &[DataType]) -> Result<DataType> {
    Ok(types[2].clone())
}

enum Unit {
    Months(i64),
    Microseconds(i64),
}

fn unit(args: &Arguments<'_>) -> Result<Unit> {
    let Some(name) = args.constant_text(0) else {
        return exec_err!("the unit must be a word such as HOUR");
    };
    let name = name.to_ascii_uppercase();
    let name = name.strip_prefix("SQL_TSI_").unwrap_or(&name);
    Ok(match name.strip_suffix('S').unwrap_or(name) {
        "YEAR" => Unit::Months(12),
        "QUARTER" => Unit::Months(3),
        "MONTH" => Unit::Months(1),
        "WEEK" => Unit::Microseconds(7 * 86_400_000_000),
        "DAY" => Unit::Microseconds(86_400_000_000),
        "HOUR" => Unit::Microseconds(3_600_000_000),
        "MINUTE" => Unit::Microseconds(60_000_000),
        "SECOND" => Unit::Microseconds(1_000_000),
        "MILLISECOND" => Unit::Microseconds(1_000),
        "MICROSECOND" => Unit::Microseconds(1),
        other => return exec_err!("TIMESTAMPADD and TIMESTAMPDIFF don't know the unit {other}"),
    })
}

/// A month later than the 31st is the last of a shorter month. A DATE stays one: parts of days fall away.
fn add(args: &Arguments<'_>) -> Result<ArrayRef> {
    let unit = unit(args)?;
    let counts = args.integer(1)?;
    let times = args.array(2)?;
    let clock = WallClock::new(&times)?;
    let mut out = Vec::with_capacity(args.rows);
    for row in 0..args.rows {
        let (Some(instant), Some(count)) = (clock.instant(row), counts.get(row)) else {
            out.push(None);
            continue;
        };
        let moved = match unit {
            Unit::Months(months) => clock
                .get(row)
                .and_then(|shown| add_months(shown, count.checked_mul(months)?))
                .and_then(|shown| clock.to_instant(shown)),
            Unit::Microseconds(size) => {
                count.checked_mul(size).and_then(|by| instant.checked_add_signed(Duration::microseconds(by)))
            }
        };
        match moved {
            Some(moved) => out.push(Some(moved)),
            None => return exec_err!("TIMESTAMPADD: {instant} moved by {count} is beyond the calendar"),
        }
    }
    if times.data_type() == &DataType::Date32 {
        let days = out.into_iter().map(|time| Some(time?.date().num_days_from_ce() - 719_163));
        return Ok(Arc::new(days.collect::<Date32Array>()));
    }
    let DataType::Timestamp(stored, _) = times.data_type() else {
        return exec_err!("TIMESTAMPADD of {}", times.data_type());
    };
    let numbers = out.into_iter().map(|time| from_naive(time?, *stored)).collect::<Int64Array>();
    Ok(cast(&numbers, times.data_type())?)
}

fn add_months(time: NaiveDateTime, months: i64) -> Option<NaiveDateTime> {
    let count = Months::new(u32::try_from(months.unsigned_abs()).ok()?);
    if months >= 0 { time.checked_add_months(count) } else { time.checked_sub_months(count) }
}

/// Whole units from the first time to the second; negative if the second is earlier.
fn diff(args: &Arguments<'_>) -> Result<ArrayRef> {
    let unit = unit(args)?;
    let (from, to) = (args.array(1)?, args.array(2)?);
    let (from, to) = (WallClock::new(&from)?, WallClock::new(&to)?);
    let between = |row| match unit {
        Unit::Months(months) => Some(months_between(from.get(row)?, to.get(row)?) / months),
        Unit::Microseconds(size) => Some((to.instant(row)? - from.instant(row)?).num_microseconds()? / size),
    };
    Ok(Arc::new((0..args.rows).map(between).collect::<Int64Array>()))
}

/// Whole months, where the last day of a month completes it.
fn months_between(from: NaiveDateTime, to: NaiveDateTime) -> i64 {
    let index = |time: NaiveDateTime| i64::from(time.year()) * 12 + i64::from(time.month0());
    if to < from {
        return -months_between(to, from);
    }
    let months = index(to) - index(from);
    match add_months(from, months) {
        Some(reached) if reached > to => months - 1,
        _ => months,
    }
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;

    use super::super::super::tests::{date, one, text, timestamp, timestamp_in};

    // The expectations are answers of Flink 2.3.
    #[test]
    fn adds_calendar_and_clock_units() {
        let from = || timestamp("2024-01-31 00:00:00");
        let add = |unit: &str, count: i64| one("timestampadd", &[text(unit), count.into(), from()]);
        assert_eq!(add("MONTH", 1), timestamp("2024-02-29 00:00:00"));
        assert_eq!(add("WEEK", -1), timestamp("2024-01-24 00:00:00"));
        assert_eq!(add("QUARTER", 1), timestamp("2024-04-30 00:00:00"));
        let leap = || date("2024-02-29");
        assert_eq!(one("timestampadd", &[text("DAY"), 1.into(), leap()]), date("2024-03-01"));
        assert_eq!(one("timestampadd", &[text("YEAR"), 1.into(), leap()]), date("2025-02-28"));
        // Midnight of 1 March in Berlin, and midnight of 1 April, which is in summer time.
        let berlin = |time| timestamp_in(time, "Europe/Berlin");
        assert_eq!(
            one("timestampadd", &[text("MONTH"), 1.into(), berlin("2024-02-29 23:00:00")]),
            berlin("2024-03-31 22:00:00")
        );
    }

    #[test]
    fn counts_whole_units_between() {
        let diff = |unit: &str, from: ScalarValue, to: ScalarValue| {
            let ScalarValue::Int64(Some(units)) = one("timestampdiff", &[text(unit), from, to]) else {
                panic!("NULL")
            };
            units
        };
        let (january, february) = (timestamp("2024-01-31 00:00:00"), timestamp("2024-02-29 00:00:00"));
        assert_eq!(diff("MONTH", january.clone(), february.clone()), 1);
        assert_eq!(diff("MONTH", february, january), -1);
        assert_eq!(diff("DAY", timestamp("2024-02-29 12:00:00"), timestamp("2024-02-28 13:00:00")), 0);
        assert_eq!(
            diff("SECOND", timestamp("2024-02-29 12:00:00"), timestamp("2024-02-28 12:00:01.5")),
            -86_398
        );
        assert_eq!(diff("WEEK", date("2024-02-01"), date("2024-02-20")), 2);
        assert_eq!(diff("QUARTER", date("2024-01-01"), date("2024-08-01")), 2);
        // Flink says 1 year from 2024-02-29 to 2025-02-28: the last day of the month completes it.
        assert_eq!(diff("YEAR", date("2024-02-29"), date("2025-02-28")), 1);
    }
}

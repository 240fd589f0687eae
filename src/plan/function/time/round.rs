//! `FLOOR(ts TO unit)` and `CEIL(ts TO unit)`.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimeUnit};
use chrono::{Datelike, Duration, Months, NaiveDate, NaiveDateTime, Timelike};
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::ScalarUDF;

use super::super::scalar::{Arguments, Function};
use super::wall_clock::{WallClock, from_naive, local, per_second};

/// The name that `FLOOR(ts TO unit)` is called by inside.
pub(in crate::plan::function) const FLOOR_TO: &str = "floor_to";
/// The name that `CEIL(ts TO unit)` is called by inside.
pub(in crate::plan::function) const CEIL_TO: &str = "ceil_to";

/// The functions with their names: `floor_to(ts, 'unit')`, `ceil_to(ts, 'unit')`.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    vec![
        (FLOOR_TO, Function::coercing(FLOOR_TO, time_and_unit, same_type, |args| round(args, false)).udf()),
        (CEIL_TO, Function::coercing(CEIL_TO, time_and_unit, same_type, |args| round(args, true)).udf()),
    ]
}

fn same_type(types: &[DataType]) -> Result<DataType> {
    Ok(types[0].clone())
}

fn time_and_unit(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [DataType::Timestamp(_, _) | DataType::Date32, _] => Ok(vec![types[0].clone(), DataType::Utf8]),
        [DataType::Null | DataType::Utf8, _] => {
            Ok(vec![DataType::Timestamp(TimeUnit::Microsecond, None), DataType::Utf8])
        }
        other => plan_err!("FLOOR and CEIL to a unit need a date or timestamp, not {}", other[0]),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Months(u32),
    Week,
    Seconds(i64),
    Millisecond,
}

fn unit(args: &Arguments<'_>) -> Result<Unit> {
    let Some(name) = args.constant_text(1) else {
        return exec_err!("the unit of FLOOR or CEIL must be a word such as HOUR");
    };
    Ok(match name.to_ascii_uppercase().as_str() {
        "MILLENNIUM" => Unit::Months(12_000),
        "CENTURY" => Unit::Months(1_200),
        "DECADE" => Unit::Months(120),
        "YEAR" => Unit::Months(12),
        "QUARTER" => Unit::Months(3),
        "MONTH" => Unit::Months(1),
        "WEEK" => Unit::Week,
        "DAY" => Unit::Seconds(86_400),
        "HOUR" => Unit::Seconds(3_600),
        "MINUTE" => Unit::Seconds(60),
        "SECOND" => Unit::Seconds(1),
        "MILLISECOND" => Unit::Millisecond,
        other => return exec_err!("FLOOR and CEIL don't know the unit {other}"),
    })
}

fn round(args: &Arguments<'_>, up: bool) -> Result<ArrayRef> {
    let unit = unit(args)?;
    let times = args.array(0)?;
    let stored = match times.data_type() {
        DataType::Timestamp(stored, None) => match step(unit, *stored) {
            Some(step) => return round_numbers(&times, step, up),
            None => *stored,
        },
        DataType::Timestamp(stored, _) => *stored,
        _ => TimeUnit::Second,
    };
    let clock = WallClock::new(&times)?;
    let rounded = |row| {
        let (instant, shown) = (clock.instant(row)?, clock.get(row)?);
        let floor = floor(shown, unit)?;
        let target = if up && floor != shown { next(floor, unit)? } else { floor };
        // Stay on the same side of a clock change where the hour is shown twice.
        let near = instant.checked_add_signed(target - shown)?;
        let same = clock.zone.as_ref().is_none_or(|zone| local(near, zone) == Some(target));
        if same { Some(near) } else { clock.to_instant(target) }
    };
    if times.data_type() == &DataType::Date32 {
        let days = (0..args.rows).map(|row| {
            let seconds = from_naive(rounded(row)?, TimeUnit::Second)?;
            i32::try_from(seconds.div_euclid(86_400)).ok()
        });
        return Ok(Arc::new(days.collect::<arrow::array::Date32Array>()));
    }
    let numbers = (0..args.rows).map(|row| from_naive(rounded(row)?, stored)).collect::<Int64Array>();
    Ok(cast(&numbers, times.data_type())?)
}

/// The unit in stored numbers, where it is always the same.
fn step(unit: Unit, stored: TimeUnit) -> Option<i64> {
    match unit {
        Unit::Seconds(seconds) => Some(seconds * per_second(stored)),
        Unit::Millisecond => Some((per_second(stored) / 1_000).max(1)),
        Unit::Months(_) | Unit::Week => None,
    }
}

fn round_numbers(times: &ArrayRef, step: i64, up: bool) -> Result<ArrayRef> {
    let values = cast(times, &DataType::Int64)?;
    let values = values.as_primitive::<Int64Type>();
    let rounded = values.unary_opt::<_, Int64Type>(|value| {
        let floor = value.checked_sub(value.rem_euclid(step))?;
        if up && floor != value { floor.checked_add(step) } else { Some(floor) }
    });
    Ok(cast(&rounded, times.data_type())?)
}

fn floor(time: NaiveDateTime, unit: Unit) -> Option<NaiveDateTime> {
    let date = time.date();
    match unit {
        Unit::Months(12_000) => start_of_year((date.year() - 1).div_euclid(1_000) * 1_000 + 1),
        Unit::Months(1_200) => start_of_year((date.year() - 1).div_euclid(100) * 100 + 1),
        Unit::Months(120) => start_of_year(date.year().div_euclid(10) * 10),
        Unit::Months(months) => {
            let month = date.month0() / months * months + 1;
            NaiveDate::from_ymd_opt(date.year(), month, 1)?.and_hms_opt(0, 0, 0)
        }
        // Weeks start on Sunday, as in Flink.
        Unit::Week => {
            let days = Duration::days(i64::from(date.weekday().num_days_from_sunday()));
            date.checked_sub_signed(days)?.and_hms_opt(0, 0, 0)
        }
        Unit::Seconds(seconds) => {
            let of_day = i64::from(time.num_seconds_from_midnight());
            date.and_hms_opt(0, 0, 0)?.checked_add_signed(Duration::seconds(of_day / seconds * seconds))
        }
        Unit::Millisecond => time.with_nanosecond(time.nanosecond() / 1_000_000 * 1_000_000),
    }
}

fn start_of_year(year: i32) -> Option<NaiveDateTime> {
    NaiveDate::from_ymd_opt(year, 1, 1)?.and_hms_opt(0, 0, 0)
}

fn next(floor: NaiveDateTime, unit: Unit) -> Option<NaiveDateTime> {
    match unit {
        Unit::Months(months) => floor.checked_add_months(Months::new(months)),
        Unit::Week => floor.checked_add_signed(Duration::days(7)),
        Unit::Seconds(seconds) => floor.checked_add_signed(Duration::seconds(seconds)),
        Unit::Millisecond => floor.checked_add_signed(Duration::milliseconds(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{one, text, timestamp, timestamp_in};

    // The expectations are answers of Flink 2.3.
    #[test]
    fn rounds_to_calendar_units() {
        let cases = [
            ("floor_to", "WEEK", "2024-02-25 00:00:00"),
            ("ceil_to", "WEEK", "2024-03-03 00:00:00"),
            ("floor_to", "QUARTER", "2024-01-01 00:00:00"),
            ("ceil_to", "QUARTER", "2024-04-01 00:00:00"),
            ("ceil_to", "MONTH", "2024-03-01 00:00:00"),
            ("ceil_to", "YEAR", "2025-01-01 00:00:00"),
            ("floor_to", "HOUR", "2024-02-29 23:00:00"),
            ("ceil_to", "DAY", "2024-03-01 00:00:00"),
        ];
        for (name, unit, expected) in cases {
            let result = one(name, &[timestamp("2024-02-29 23:59:59.999"), text(unit)]);
            assert_eq!(result, timestamp(expected), "{name} {unit}");
        }
        let start = || timestamp("2024-01-01 00:00:00");
        assert_eq!(one("ceil_to", &[start(), text("YEAR")]), start());
        assert_eq!(one("ceil_to", &[start(), text("HOUR")]), start());
    }

    #[test]
    fn rounds_before_1970() {
        let time = || timestamp("1969-12-31 23:59:59.999");
        assert_eq!(one("floor_to", &[time(), text("HOUR")]), timestamp("1969-12-31 23:00:00"));
        assert_eq!(one("floor_to", &[time(), text("MONTH")]), timestamp("1969-12-01 00:00:00"));
        assert_eq!(one("ceil_to", &[time(), text("DAY")]), timestamp("1970-01-01 00:00:00"));
    }

    #[test]
    fn rounds_instants_in_their_zone() {
        let shanghai = |time| timestamp_in(time, "Asia/Shanghai");
        assert_eq!(
            one("floor_to", &[shanghai("2024-03-05 15:59:59.999"), text("DAY")]),
            shanghai("2024-03-04 16:00:00")
        );
        // 02:30 is shown twice in Berlin on this day; both keep their own hour.
        let berlin = |time| timestamp_in(time, "Europe/Berlin");
        let floor = |time| one("floor_to", &[berlin(time), text("HOUR")]);
        assert_eq!(floor("2024-10-27 00:30:00"), berlin("2024-10-27 00:00:00"));
        assert_eq!(floor("2024-10-27 01:30:00"), berlin("2024-10-27 01:00:00"));
        assert_eq!(
            one("floor_to", &[berlin("2024-10-27 12:00:00"), text("DAY")]),
            berlin("2024-10-26 22:00:00")
        );
    }
}

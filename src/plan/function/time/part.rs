//! `year(ts)`, `hour(ts)` and the like, which `EXTRACT(… FROM ts)` is too. All give BIGINT.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{DatePart, cast, date_part};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use datafusion_common::{Result, exec_err, plan_err};
use datafusion_expr::ScalarUDF;

use super::super::scalar::{Arguments, Body, Function, bigint};
use super::wall_clock::{WallClock, per_second};

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    let parts: [(&[&'static str], Body); 18] = [
        (&["year"], |args| arrow_part(args, DatePart::Year)),
        (&["isoyear"], |args| arrow_part(args, DatePart::YearISO)),
        (&["quarter"], |args| arrow_part(args, DatePart::Quarter)),
        (&["month"], |args| arrow_part(args, DatePart::Month)),
        (&["week", "weekofyear"], |args| arrow_part(args, DatePart::WeekISO)),
        (&["dayofyear"], |args| arrow_part(args, DatePart::DayOfYear)),
        (&["dayofmonth", "day"], |args| arrow_part(args, DatePart::Day)),
        (&["dayofweek"], |args| arrow_part(args, DatePart::DayOfWeekSunday1)),
        (&["isodayofweek"], |args| arrow_part(args, DatePart::DayOfWeekMonday1)),
        (&["hour"], |args| of_day(args, 24, 3_600, DatePart::Hour)),
        (&["minute"], |args| of_day(args, 60, 60, DatePart::Minute)),
        (&["second"], |args| of_day(args, 60, 1, DatePart::Second)),
        (&["millisecond"], |args| arrow_part(args, DatePart::Millisecond)),
        (&["microsecond"], |args| arrow_part(args, DatePart::Microsecond)),
        (&["epoch"], epoch),
        (&["decade"], |args| of_year(args, |year| year.div_euclid(10))),
        (&["century"], |args| of_year(args, |year| (year - 1).div_euclid(100) + 1)),
        (&["millennium"], |args| of_year(args, |year| (year - 1).div_euclid(1_000) + 1)),
    ];
    let mut functions = Vec::new();
    for (names, body) in parts {
        for name in names {
            functions.push((*name, Function::coercing(name, one_time, bigint, body).udf()));
        }
    }
    functions
}

/// One date, time, timestamp or interval; text is read as a timestamp.
fn one_time(types: &[DataType]) -> Result<Vec<DataType>> {
    match types {
        [
            DataType::Timestamp(_, _)
            | DataType::Date32
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Interval(_)
            | DataType::Duration(_),
        ] => Ok(types.to_vec()),
        [DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8 | DataType::Null] => {
            Ok(vec![DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None)])
        }
        [other] => plan_err!("a date or time is needed, not {other}"),
        other => plan_err!("one date or time is needed, not {} arguments", other.len()),
    }
}

fn arrow_part(args: &Arguments<'_>, part: DatePart) -> Result<ArrayRef> {
    let parts = date_part(&args.array(0)?, part)?;
    Ok(cast(&parts, &DataType::Int64)?)
}

/// Parts of a day of timestamps without zone are plain arithmetic.
fn of_day(args: &Arguments<'_>, modulus: i64, seconds: i64, part: DatePart) -> Result<ArrayRef> {
    let times = args.array(0)?;
    let DataType::Timestamp(unit, None) = times.data_type() else {
        return arrow_part(args, part);
    };
    let step = seconds * per_second(*unit);
    let values = cast(&times, &DataType::Int64)?;
    let parts = values
        .as_primitive::<Int64Type>()
        .unary::<_, Int64Type>(|value| value.div_euclid(step).rem_euclid(modulus));
    Ok(Arc::new(parts))
}

fn of_year(args: &Arguments<'_>, of: impl Fn(i64) -> i64) -> Result<ArrayRef> {
    let years = date_part(&args.array(0)?, DatePart::Year)?;
    let parts = years.as_primitive::<Int32Type>().unary::<_, Int64Type>(|year| of(i64::from(year)));
    Ok(Arc::new(parts))
}

/// Whole seconds since 1970-01-01 00:00:00 UTC, rounded down.
fn epoch(args: &Arguments<'_>) -> Result<ArrayRef> {
    let times = args.array(0)?;
    let times = match times.data_type() {
        DataType::Timestamp(_, _) | DataType::Date32 => times,
        other => return exec_err!("EPOCH of {other}"),
    };
    let clock = WallClock::new(&times)?;
    let seconds = (0..args.rows).map(|row| Some(clock.instant(row)?.and_utc().timestamp()));
    Ok(Arc::new(seconds.collect::<Int64Array>()))
}

#[cfg(test)]
mod tests {
    use datafusion_common::ScalarValue;

    use super::super::super::tests::{one, timestamp, timestamp_in};

    #[test]
    fn parts_of_a_time() {
        let time = || timestamp("2024-02-29 23:59:59.999");
        // Answers of Flink 2.3.
        let expected = [
            ("year", 2024),
            ("quarter", 1),
            ("month", 2),
            ("week", 9),
            ("dayofyear", 60),
            ("dayofmonth", 29),
            ("dayofweek", 5),
            ("isodayofweek", 4),
            ("hour", 23),
            ("minute", 59),
            ("second", 59),
            ("millisecond", 999),
            ("microsecond", 999_000),
            ("epoch", 1_709_251_199),
            ("decade", 202),
            ("century", 21),
            ("millennium", 3),
        ];
        for (name, value) in expected {
            assert_eq!(one(name, &[time()]), ScalarValue::Int64(Some(value)), "{name}");
        }
        assert_eq!(one("isoyear", &[timestamp("2024-12-30 23:59:59.999")]), 2025_i64.into());
    }

    #[test]
    fn parts_before_1970() {
        let time = || timestamp("1900-03-01 12:30:01.5");
        for (name, value) in [("year", 1900), ("dayofyear", 60), ("hour", 12), ("minute", 30), ("second", 1)]
        {
            assert_eq!(one(name, &[time()]), ScalarValue::Int64(Some(value)), "{name}");
        }
        // 1900-03-01 was a Thursday.
        assert_eq!(one("dayofweek", &[time()]), 5_i64.into());
        assert_eq!(one("epoch", &[timestamp("1969-12-31 23:59:59.999")]), (-1_i64).into());
    }

    #[test]
    fn instants_are_read_in_their_zone() {
        // 2024-03-05 16:00 UTC is midnight in Shanghai.
        let time = || timestamp_in("2024-03-05 16:00:00", "Asia/Shanghai");
        assert_eq!(one("hour", &[time()]), 0_i64.into());
        assert_eq!(one("dayofmonth", &[time()]), 6_i64.into());
    }
}

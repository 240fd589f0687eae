//! Between stored numbers, instants and what a clock on the wall shows.

use std::str::FromStr;

use arrow::array::timezone::Tz;
use arrow::array::{Array, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Date32Type, TimeUnit};
use chrono::{DateTime, Duration, LocalResult, NaiveDate, NaiveDateTime, Offset, TimeZone};
use datafusion_common::{Result, exec_err};

/// Units a second.
pub(super) fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// A stored number as date and time, UTC.
pub(super) fn to_naive(value: i64, unit: TimeUnit) -> Option<NaiveDateTime> {
    let per_second = per_second(unit);
    let nanos = value.rem_euclid(per_second) * (1_000_000_000 / per_second);
    let nanos = u32::try_from(nanos).ok()?;
    Some(DateTime::from_timestamp(value.div_euclid(per_second), nanos)?.naive_utc())
}

/// A date and time, UTC, as stored; what is finer than the unit is cut off, downwards.
pub(super) fn from_naive(time: NaiveDateTime, unit: TimeUnit) -> Option<i64> {
    let per_second = per_second(unit);
    let time = time.and_utc();
    let fraction = i64::from(time.timestamp_subsec_nanos()) / (1_000_000_000 / per_second);
    time.timestamp().checked_mul(per_second)?.checked_add(fraction)
}

/// A zone by its name.
pub(super) fn zone(name: &str) -> Result<Tz> {
    match Tz::from_str(name) {
        Ok(zone) => Ok(zone),
        Err(_) => exec_err!("\"{name}\" is no time zone"),
    }
}

/// What the clock in a zone shows at an instant.
pub(super) fn local(instant: NaiveDateTime, zone: &Tz) -> Option<NaiveDateTime> {
    instant.checked_add_offset(zone.offset_from_utc_datetime(&instant).fix())
}

/// The instant at which the clock in a zone shows `local`: the earlier one where it shows it twice;
/// where it never does, as if the clock had not been put forward yet.
pub(super) fn instant(local: NaiveDateTime, zone: &Tz) -> Option<NaiveDateTime> {
    let offset = match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(offset, _) => offset,
        LocalResult::None => (1..=200).find_map(|quarters| {
            let before = local.checked_sub_signed(Duration::minutes(15 * quarters))?;
            match zone.offset_from_local_datetime(&before) {
                LocalResult::Single(offset) | LocalResult::Ambiguous(_, offset) => Some(offset),
                LocalResult::None => None,
            }
        })?,
    };
    local.checked_sub_offset(offset.fix())
}

/// A column of dates or timestamps as the clock on the wall shows them.
pub(super) struct WallClock {
    values: Int64Array,
    unit: TimeUnit,
    /// Of instants only.
    pub(super) zone: Option<Tz>,
    is_date: bool,
}

impl WallClock {
    /// Of a DATE, TIMESTAMP or TIMESTAMP_LTZ column.
    pub(super) fn new(column: &dyn Array) -> Result<Self> {
        match column.data_type() {
            DataType::Timestamp(unit, zone_name) => Ok(Self {
                values: cast(column, &DataType::Int64)?.as_primitive().clone(),
                unit: *unit,
                zone: zone_name.as_deref().map(zone).transpose()?,
                is_date: false,
            }),
            DataType::Date32 => {
                let days = column.as_primitive::<Date32Type>();
                let values = days.unary(i64::from);
                Ok(Self { values, unit: TimeUnit::Second, zone: None, is_date: true })
            }
            other => exec_err!("{other} is no date and no timestamp"),
        }
    }

    /// What the clock shows; `None` is NULL, or beyond what a calendar can hold.
    pub(super) fn get(&self, row: usize) -> Option<NaiveDateTime> {
        let instant = self.instant(row)?;
        match &self.zone {
            Some(zone) => local(instant, zone),
            None => Some(instant),
        }
    }

    /// The instant, UTC; of a column without zone the same as [`Self::get`].
    pub(super) fn instant(&self, row: usize) -> Option<NaiveDateTime> {
        if self.values.is_null(row) {
            return None;
        }
        let value = self.values.value(row);
        if self.is_date {
            let days = Duration::try_days(value)?;
            return NaiveDate::from_ymd_opt(1970, 1, 1)?.and_hms_opt(0, 0, 0)?.checked_add_signed(days);
        }
        to_naive(value, self.unit)
    }

    /// Back from the clock to an instant.
    pub(super) fn to_instant(&self, shown: NaiveDateTime) -> Option<NaiveDateTime> {
        match &self.zone {
            Some(zone) => instant(shown, zone),
            None => Some(shown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> NaiveDateTime {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap()
    }

    #[test]
    fn times_before_1970_are_floored() {
        assert_eq!(to_naive(-1, TimeUnit::Millisecond), Some(time("1969-12-31 23:59:59.999")));
        assert_eq!(from_naive(time("1969-12-31 23:59:59.9999"), TimeUnit::Millisecond), Some(-1));
        assert_eq!(from_naive(time("0001-01-01 00:00:00"), TimeUnit::Second), Some(-62_135_596_800));
        assert_eq!(from_naive(time("9999-12-31 23:59:59"), TimeUnit::Nanosecond), None);
    }

    #[test]
    fn a_clock_that_is_put_forward_or_back() {
        let berlin = zone("Europe/Berlin").unwrap();
        // 2024-03-31 02:30 is never shown: as if still +01:00.
        assert_eq!(instant(time("2024-03-31 02:30:00"), &berlin), Some(time("2024-03-31 01:30:00")));
        // 2024-10-27 02:30 is shown twice, first at +02:00.
        assert_eq!(instant(time("2024-10-27 02:30:00"), &berlin), Some(time("2024-10-27 00:30:00")));
        assert_eq!(local(time("2024-10-27 01:30:00"), &berlin), Some(time("2024-10-27 02:30:00")));
        // Samoa left out a whole day: 2011-12-30. As if still -10:00.
        let apia = zone("Pacific/Apia").unwrap();
        assert_eq!(instant(time("2011-12-30 12:00:00"), &apia), Some(time("2011-12-30 22:00:00")));
        assert!(zone("Mars/Olympus").is_err());
    }
}

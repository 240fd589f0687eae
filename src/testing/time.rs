//! Times and durations as a test file writes them.

use crate::connector::format::time_text::{parse_timestamp, push_timestamp};
use crate::stream::Watermark;
use arrow::datatypes::TimeUnit;

/// `2024-05-01 09:00:00.5` in UTC, in microseconds since 1970; `None` if it is no time.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let reading = parse_timestamp(text.as_bytes())?;
    let offset_us = i64::from(reading.offset.unwrap_or(0)) * 1_000_000;
    reading.in_unit(TimeUnit::Microsecond)?.checked_sub(offset_us)
}

/// The inverse of [`parse_time`], without zeros at the end of the fraction.
pub(super) fn show_time(us: i64) -> String {
    let fraction = us.rem_euclid(1_000_000);
    show(us.div_euclid(1_000_000), fraction as u32 * 1_000)
}

/// A watermark; `none` before the first.
pub(super) fn show_watermark(watermark: Option<Watermark>) -> String {
    watermark.map_or_else(|| "none".to_owned(), |watermark| show_time(watermark.0))
}

/// A wall clock reading, without zeros at the end of the fraction.
pub(super) fn show(seconds: i64, nanos: u32) -> String {
    let mut out = Vec::new();
    push_timestamp(&mut out, seconds, TimeUnit::Second, b' ');
    let mut text = String::from_utf8_lossy(&out).into_owned();
    if nanos > 0 {
        let digits = format!("{nanos:09}");
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
    text
}

/// `1 minute 30 seconds`, in microseconds; `None` if it is no duration.
pub(super) fn parse_duration<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<i64> {
    let mut words = words.into_iter();
    let mut total: i64 = 0;
    let mut any = false;
    while let Some(word) = words.next() {
        let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
        let (number, unit) = word.split_at(digits);
        let unit = if unit.is_empty() { words.next()? } else { unit };
        let number: i64 = number.parse().ok()?;
        let unit_us = match unit.to_ascii_lowercase().as_str() {
            "us" | "microsecond" | "microseconds" => 1,
            "ms" | "millisecond" | "milliseconds" => 1_000,
            "s" | "second" | "seconds" => 1_000_000,
            "min" | "minute" | "minutes" => 60_000_000,
            "h" | "hour" | "hours" => 3_600_000_000,
            "d" | "day" | "days" => 86_400_000_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit_us)?)?;
        any = true;
    }
    any.then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_shown() {
        for (text, us) in [
            ("1970-01-01 00:00:00", 0),
            ("1969-12-31 23:59:59.999", -1_000),
            ("2024-05-01 09:00:00.5", 1_714_554_000_500_000),
        ] {
            assert_eq!(parse_time(text), Some(us));
            assert_eq!(show_time(us), text);
        }
        assert_eq!(parse_time("2024-05-01T11:00:00+02:00"), parse_time("2024-05-01 09:00:00"));
        assert_eq!(parse_time("yesterday"), None);
    }

    #[test]
    fn durations() {
        let parse = |text: &str| parse_duration(text.split_whitespace());
        assert_eq!(parse("30 seconds"), Some(30_000_000));
        assert_eq!(parse("1 min 30s"), Some(90_000_000));
        assert_eq!(parse("1ms"), Some(1_000));
        for text in ["", "30", "seconds", "-1 s", "3 fortnights", "9223372036854775807 d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}

//! Dates and times as text, read and written by hand: formats spend much of their time here.
//!
//! What is read: `2024-05-01 09:00:01`, with a `T` instead of the space, with a fraction of any
//! length (digits past the column's precision are cut, never rounded), without seconds, or the date
//! alone (midnight). An offset (`Z`, `+02:00`, `+0200`, `+02`) is kept apart, so that the caller
//! decides whether the column can take it. Days, hours, minutes and seconds that do not exist are
//! refused: nothing ever moves to another day. Years have four digits, or up to six with a sign.

use arrow::datatypes::TimeUnit;

/// A wall clock reading, and the offset written beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClockReading {
    /// Seconds since 1970-01-01T00:00:00 on the same clock.
    pub(crate) seconds: i64,
    /// Nanoseconds into the second.
    pub(crate) nanos: u32,
    /// The offset from UTC in seconds, if one was written.
    pub(crate) offset: Option<i32>,
    /// What stood between date and time: `T`, a space, or 0 if there was no time.
    pub(crate) separator: u8,
}

/// Ticks per second of a unit.
pub(crate) fn ticks(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

impl ClockReading {
    /// The reading in `unit`, rounded down; `None` if it does not fit.
    #[inline]
    pub(crate) fn in_unit(self, unit: TimeUnit) -> Option<i64> {
        // Constants of each unit: a division by what is not known takes long.
        let fraction = match unit {
            TimeUnit::Second => 0,
            TimeUnit::Millisecond => self.nanos / 1_000_000,
            TimeUnit::Microsecond => self.nanos / 1_000,
            TimeUnit::Nanosecond => self.nanos,
        };
        // Before 1970 the product alone can be out of range where the sum is not.
        let value = i128::from(self.seconds) * i128::from(ticks(unit)) + i128::from(fraction);
        i64::try_from(value).ok()
    }
}

/// Days from 1970-01-01 of a day of the proleptic Gregorian calendar.
///
/// Source: Howard Hinnant, "chrono-compatible low-level date algorithms".
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`].
pub(crate) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn two_digits(text: &[u8]) -> Option<(u32, &[u8])> {
    let [high @ b'0'..=b'9', low @ b'0'..=b'9', rest @ ..] = text else { return None };
    Some((u32::from(high - b'0') * 10 + u32::from(low - b'0'), rest))
}

fn expect(text: &[u8], byte: u8) -> Option<&[u8]> {
    match text {
        [first, rest @ ..] if *first == byte => Some(rest),
        _ => None,
    }
}

/// A date, as days from 1970-01-01, and what follows it.
fn date_prefix(text: &[u8]) -> Option<(i64, &[u8])> {
    let (sign, unsigned) = match text {
        [b'-', rest @ ..] => (Some(-1), rest),
        [b'+', rest @ ..] => (Some(1), rest),
        _ => (None, text),
    };
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(4..=6).contains(&digits) {
        return None;
    }
    let year = unsigned[..digits].iter().fold(0, |year, byte| year * 10 + i64::from(byte - b'0'));
    let year = year * sign.unwrap_or(1);
    let rest = expect(&unsigned[digits..], b'-')?;
    let (month, rest) = two_digits(rest)?;
    let rest = expect(rest, b'-')?;
    let (day, rest) = two_digits(rest)?;
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    Some((days_from_civil(year, month, day), rest))
}

/// A time of day, as seconds and nanoseconds, and what follows it.
fn time_prefix(text: &[u8]) -> Option<(u32, u32, &[u8])> {
    let (hour, rest) = two_digits(text)?;
    let rest = expect(rest, b':')?;
    let (minute, rest) = two_digits(rest)?;
    if hour > 23 || minute > 59 {
        return None;
    }
    let Some(rest) = expect(rest, b':') else { return Some((hour * 3_600 + minute * 60, 0, rest)) };
    let (second, rest) = two_digits(rest)?;
    if second > 59 {
        return None;
    }
    let seconds = hour * 3_600 + minute * 60 + second;
    let Some(rest) = expect(rest, b'.') else { return Some((seconds, 0, rest)) };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    let kept = digits.min(9);
    let fraction = rest[..kept].iter().fold(0, |value, byte| value * 10 + u32::from(byte - b'0'));
    Some((seconds, fraction * 10_u32.pow(9 - kept as u32), &rest[digits..]))
}

/// An offset from UTC in seconds; the whole of `text`.
fn offset(text: &[u8]) -> Option<i32> {
    let (sign, rest) = match text {
        [b'Z' | b'z'] => return Some(0),
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hour, rest) = two_digits(rest)?;
    let minute = match rest {
        [] => 0,
        _ => match two_digits(expect(rest, b':').unwrap_or(rest))? {
            (minute, []) => minute,
            _ => return None,
        },
    };
    (hour <= 18 && minute <= 59).then_some(sign * (hour * 3_600 + minute * 60) as i32)
}

/// The day that was read last. Times that follow one another are of the same day most often.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastDay {
    text: [u8; 10],
    days: i64,
}

impl Default for LastDay {
    fn default() -> Self {
        Self { text: *b"1970-01-01", days: 0 }
    }
}

/// [`parse_timestamp`], faster for the usual form: `2024-05-01 09:00:01`, with a fraction and `Z` or without.
#[inline]
pub(crate) fn parse_timestamp_after(text: &[u8], last: &mut LastDay) -> Option<ClockReading> {
    usual_timestamp(text, last).or_else(|| parse_timestamp(text))
}

#[inline]
fn usual_timestamp(text: &[u8], last: &mut LastDay) -> Option<ClockReading> {
    let (date, rest) = text.split_first_chunk::<10>()?;
    let (separator, rest) = rest.split_first().filter(|(byte, _)| matches!(byte, b' ' | b'T'))?;
    let (clock, rest) = rest.split_first_chunk::<8>()?;
    let seconds = clock_seconds(*clock)?;
    let (fraction, offset) = match rest {
        [fraction @ .., b'Z'] => (fraction, Some(0)),
        fraction => (fraction, None),
    };
    let nanos = match fraction {
        [] => 0,
        [b'.', digits @ ..] if (1..=9).contains(&digits.len()) => {
            let mut value = 0;
            for byte in digits {
                let digit = u32::from(byte.wrapping_sub(b'0'));
                if digit > 9 {
                    return None;
                }
                value = value * 10 + digit;
            }
            const SHIFTS: [u32; 10] =
                [0, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
            value * SHIFTS[digits.len()]
        }
        _ => return None,
    };
    if *date != last.text {
        let (days, []) = date_prefix(date)? else { return None };
        *last = LastDay { text: *date, days };
    }
    let seconds = last.days * 86_400 + i64::from(seconds);
    Some(ClockReading { seconds, nanos, offset, separator: *separator })
}

/// The seconds of `09:00:01`, all eight bytes at once.
#[inline]
fn clock_seconds(clock: [u8; 8]) -> Option<u32> {
    let parts = u64::from_le_bytes(clock) ^ u64::from_le_bytes(*b"00:00:00");
    // A digit is at most 9 and a colon 0 now: what is more sets the high bit of its byte.
    let others = (parts.wrapping_add(0x7676_7f76_767f_7676) | parts) & 0x8080_8080_8080_8080;
    if others != 0 {
        return None;
    }
    let pairs = parts * 10 + (parts >> 8);
    let [hour, minute, second] = [0, 24, 48].map(|shift| (pairs >> shift) as u32 & 0xff);
    (hour <= 23 && minute <= 59 && second <= 59).then_some(hour * 3_600 + minute * 60 + second)
}

/// A timestamp; `None` if it is none. See the module.
pub(crate) fn parse_timestamp(text: &[u8]) -> Option<ClockReading> {
    let text = text.trim_ascii();
    let (days, rest) = date_prefix(text)?;
    let (separator, rest) = match rest {
        [] => return Some(ClockReading { seconds: days * 86_400, nanos: 0, offset: None, separator: 0 }),
        [byte @ (b' ' | b'T'), rest @ ..] => (*byte, rest),
        [b't', rest @ ..] => (b'T', rest),
        _ => return None,
    };
    let (seconds, nanos, rest) = time_prefix(rest)?;
    let offset = match rest {
        [] => None,
        _ => Some(offset(rest)?),
    };
    Some(ClockReading { seconds: days * 86_400 + i64::from(seconds), nanos, offset, separator })
}

/// A date, as days from 1970-01-01; `None` if it is none.
pub(crate) fn parse_date(text: &[u8]) -> Option<i32> {
    match date_prefix(text.trim_ascii())? {
        (days, []) => i32::try_from(days).ok(),
        _ => None,
    }
}

/// A time of day in nanoseconds; `None` if it is none.
pub(crate) fn parse_time(text: &[u8]) -> Option<i64> {
    match time_prefix(text.trim_ascii())? {
        (seconds, nanos, []) => Some(i64::from(seconds) * 1_000_000_000 + i64::from(nanos)),
        _ => None,
    }
}

fn push_two(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&[b'0' + (value / 10 % 10) as u8, b'0' + (value % 10) as u8]);
}

/// Appends `value` with at least `width` digits.
fn push_padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut start = digits.len();
    while value > 0 || digits.len() - start < width {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends `2024-03-05`. Years beyond 0000–9999 get their sign or their further digits.
pub(crate) fn push_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_from_days(days);
    if year < 0 {
        out.push(b'-');
    }
    push_padded(out, year.unsigned_abs(), 4);
    out.push(b'-');
    push_two(out, month);
    out.push(b'-');
    push_two(out, day);
}

/// Appends `2024-03-05T00:00:10.000`: as many digits of fraction as the unit has.
pub(crate) fn push_timestamp(out: &mut Vec<u8>, value: i64, unit: TimeUnit, separator: u8) {
    let ticks = ticks(unit);
    let seconds = value.div_euclid(ticks);
    let fraction = value.rem_euclid(ticks);
    push_date(out, seconds.div_euclid(86_400));
    out.push(separator);
    push_clock(out, seconds.rem_euclid(86_400) as u32);
    let width = match unit {
        TimeUnit::Second => return,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    };
    out.push(b'.');
    push_padded(out, fraction as u64, width);
}

fn push_clock(out: &mut Vec<u8>, seconds: u32) {
    push_two(out, seconds / 3_600);
    out.push(b':');
    push_two(out, seconds / 60 % 60);
    out.push(b':');
    push_two(out, seconds % 60);
}

/// Appends `10:11:12`, with a fraction of 3, 6 or 9 digits where there is one.
pub(crate) fn push_time(out: &mut Vec<u8>, value: i64, unit: TimeUnit) {
    let ticks = ticks(unit);
    push_clock(out, value.div_euclid(ticks).rem_euclid(86_400) as u32);
    let nanos = (value.rem_euclid(ticks) * (1_000_000_000 / ticks)) as u64;
    let (fraction, width) = match nanos {
        0 => return,
        _ if nanos.is_multiple_of(1_000_000) => (nanos / 1_000_000, 3),
        _ if nanos.is_multiple_of(1_000) => (nanos / 1_000, 6),
        _ => (nanos, 9),
    };
    out.push(b'.');
    push_padded(out, fraction, width);
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Datelike, NaiveDate};
    use proptest::prelude::*;

    use super::*;

    fn millis(text: &str) -> Option<i64> {
        parse_timestamp(text.as_bytes())?.in_unit(TimeUnit::Millisecond)
    }

    #[test]
    fn the_usual_form() {
        let mut last = LastDay::default();
        for text in ["2024-05-01 09:00:01", "2024-05-01T09:00:01.5", "2024-05-01 09:00:01.123456789Z"] {
            let usual = usual_timestamp(text.as_bytes(), &mut last);
            assert_eq!(usual, parse_timestamp(text.as_bytes()), "{text}");
            assert!(usual.is_some(), "{text}");
        }
    }

    #[test]
    fn texts_of_a_time() {
        let second = 1_714_554_001_000;
        assert_eq!(millis("2024-05-01 09:00:01"), Some(second));
        assert_eq!(millis("2024-05-01T09:00:01"), Some(second));
        assert_eq!(millis("2024-05-01 09:00:01.123456789"), Some(second + 123));
        assert_eq!(millis("2024-05-01 09:00:01.1239"), Some(second + 123));
        assert_eq!(millis("2024-05-01 09:00:01.5"), Some(second + 500));
        assert_eq!(millis("2024-05-01 09:00"), Some(second - 1_000));
        assert_eq!(millis("2024-05-01"), Some(second - 9 * 3_600_000 - 1_000));
        assert_eq!(millis("1969-12-31 23:59:59.9999"), Some(-1));
        assert_eq!(millis("0001-01-01 00:00:00"), Some(-62_135_596_800_000));
        assert_eq!(millis("9999-12-31 23:59:59.999"), Some(253_402_300_799_999));
        assert_eq!(millis("10000-01-01 00:00:00"), Some(253_402_300_800_000));
    }

    #[test]
    fn offsets_are_kept_apart() {
        let offset = |text: &str| parse_timestamp(text.as_bytes()).map(|reading| reading.offset);
        assert_eq!(offset("2024-05-01T09:00:01Z"), Some(Some(0)));
        assert_eq!(offset("2024-05-01T11:00:01+02:00"), Some(Some(7_200)));
        assert_eq!(offset("2024-05-01T11:00:01-0330"), Some(Some(-12_600)));
        assert_eq!(offset("2024-05-01T11:00:01+02"), Some(Some(7_200)));
        assert_eq!(offset("2024-05-01T11:00:01"), Some(None));
        for bad in ["+2", "+02:", "+02:0", "+19:00", "+02:60", "+02:00x", "UTC", " Z"] {
            assert_eq!(offset(&format!("2024-05-01T11:00:01{bad}")), None, "{bad}");
        }
    }

    #[test]
    fn times_that_do_not_exist() {
        for bad in [
            "2019-02-30 00:00:00",
            "2019-02-29 00:00:00",
            "1900-02-29 00:00:00",
            "2024-05-01 24:00:00",
            "2016-12-31 23:59:60",
            "2024-13-01 00:00:00",
            "2024-00-01 00:00:00",
            "2024-05-00 00:00:00",
            "2024-05-01 09:60:00",
            "2024-05-01 09:00:00.",
            "2024-05-01 9:00:00",
            "2024-5-1 09:00:00",
            "24-05-01 09:00:00",
            "2024-05-01_09:00:00",
            "2024-05-01 09:00:01 x",
            "1714554001000",
            "",
        ] {
            assert_eq!(millis(bad), None, "{bad}");
        }
        assert!(millis("2000-02-29 00:00:00").is_some());
    }

    #[test]
    fn nanoseconds_have_limits() {
        let reading = parse_timestamp(b"2262-04-11 23:47:16.854775807").unwrap();
        assert_eq!(reading.in_unit(TimeUnit::Nanosecond), Some(i64::MAX));
        let reading = parse_timestamp(b"1677-09-21 00:12:43.145224192").unwrap();
        assert_eq!(reading.in_unit(TimeUnit::Nanosecond), Some(i64::MIN));
        let reading = parse_timestamp(b"2262-04-11 23:47:16.854775808").unwrap();
        assert_eq!(reading.in_unit(TimeUnit::Nanosecond), None);
    }

    #[test]
    fn times_of_day() {
        assert_eq!(parse_time(b"10:11:12.5"), Some(36_672_500_000_000));
        assert_eq!(parse_time(b"24:00:00"), None);
        let text = |value, unit| {
            let mut out = Vec::new();
            push_time(&mut out, value, unit);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(36_672_000, TimeUnit::Millisecond), "10:11:12");
        assert_eq!(text(36_672_500, TimeUnit::Millisecond), "10:11:12.500");
        assert_eq!(text(36_672_000_001, TimeUnit::Microsecond), "10:11:12.000001");
        assert_eq!(text(1, TimeUnit::Nanosecond), "00:00:00.000000001");
    }

    proptest! {
        #[test]
        fn days_agree_with_chrono(days in -3_000_000i64..3_000_000) {
            let (year, month, day) = civil_from_days(days);
            let date = NaiveDate::from_num_days_from_ce_opt((days + 719_163) as i32).unwrap();
            prop_assert_eq!((year, month, day), (i64::from(date.year()), date.month(), date.day()));
            prop_assert_eq!(days_from_civil(year, month, day), days);
        }

        #[test]
        fn the_usual_form_is_read_like_any_other(
            time in "(2024|1969|0000|9999)-[01][0-9]-[0-3][0-9][ T][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,10})?Z?",
            mutation in proptest::option::weighted(0.5, (any::<prop::sample::Index>(), any::<u8>())),
            other in "20[0-9]{2}-0[1-9]-[0-2][1-9] 00:00:00",
        ) {
            let mut text = time.into_bytes();
            if let Some((place, byte)) = mutation {
                let place = place.index(text.len());
                text[place] = byte;
            }
            let mut last = LastDay::default();
            usual_timestamp(other.as_bytes(), &mut last);
            for _ in 0..2 {
                prop_assert_eq!(parse_timestamp_after(&text, &mut last), parse_timestamp(&text));
            }
        }

        #[test]
        fn timestamps_agree_with_chrono(value in -62_135_596_800_000_000i64..253_402_300_800_000_000) {
            let time = DateTime::from_timestamp_micros(value).unwrap();
            let mut out = Vec::new();
            push_timestamp(&mut out, value, TimeUnit::Microsecond, b'T');
            let expected = time.format("%Y-%m-%dT%H:%M:%S%.6f").to_string();
            prop_assert_eq!(std::str::from_utf8(&out).unwrap(), &expected);
            let reading = parse_timestamp(&out).unwrap();
            prop_assert_eq!(reading.in_unit(TimeUnit::Microsecond), Some(value));
            prop_assert_eq!(reading.in_unit(TimeUnit::Millisecond), Some(value.div_euclid(1_000)));
        }

        #[test]
        fn any_written_time_is_read(value in any::<i64>(), nanos in any::<bool>()) {
            // Six digits of year reach further than chrono; milliseconds reach further still.
            let (value, unit) = if nanos { (value, TimeUnit::Nanosecond) } else { (value / 1_000, TimeUnit::Microsecond) };
            let mut out = Vec::new();
            push_timestamp(&mut out, value, unit, b' ');
            prop_assert_eq!(parse_timestamp(&out).and_then(|reading| reading.in_unit(unit)), Some(value));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9:. TZ]{0,40}") {
            let _ = (parse_timestamp(text.as_bytes()), parse_date(text.as_bytes()), parse_time(text.as_bytes()));
        }
    }
}

//! Java's date patterns, such as `yyyy-MM-dd HH:mm:ss.SSS`: writing and reading.

use std::fmt::Write;

use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion_common::{Result, exec_err};

/// A pattern taken apart.
pub(super) struct Pattern {
    items: Vec<Item>,
}

enum Item {
    Literal(String),
    /// The letter and how often it stands there.
    Field(char, usize),
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

impl Pattern {
    /// Takes a pattern apart.
    ///
    /// # Errors
    /// A letter that means nothing, or that we don't know; a quote that is not closed.
    pub(super) fn new(pattern: &str) -> Result<Self> {
        let mut items = Vec::new();
        let mut literal = String::new();
        let mut characters = pattern.chars().peekable();
        while let Some(character) = characters.next() {
            if character == '\'' {
                if characters.next_if_eq(&'\'').is_some() {
                    literal.push('\'');
                    continue;
                }
                loop {
                    match characters.next() {
                        Some('\'') if characters.next_if_eq(&'\'').is_some() => literal.push('\''),
                        Some('\'') => break,
                        Some(quoted) => literal.push(quoted),
                        None => return exec_err!("a quote is not closed in the date pattern \"{pattern}\""),
                    }
                }
            } else if character.is_ascii_alphabetic() {
                if !"GyuMLdDHhkKmsSaEQ".contains(character) {
                    return exec_err!(
                        "the date pattern \"{pattern}\" has the unknown letter \"{character}\""
                    );
                }
                let mut count = 1;
                while characters.next_if_eq(&character).is_some() {
                    count += 1;
                }
                if !literal.is_empty() {
                    items.push(Item::Literal(std::mem::take(&mut literal)));
                }
                items.push(Item::Field(character, count));
            } else {
                literal.push(character);
            }
        }
        if !literal.is_empty() {
            items.push(Item::Literal(literal));
        }
        Ok(Self { items })
    }

    /// Writes a time.
    pub(super) fn write(&self, time: NaiveDateTime, out: &mut impl Write) -> std::fmt::Result {
        for item in &self.items {
            match item {
                Item::Literal(text) => out.write_str(text)?,
                Item::Field(letter, count) => write_field(time, *letter, *count, out)?,
            }
        }
        Ok(())
    }

    /// Reads a time; `None` if the text does not fit. What the pattern lacks is 1970-01-01 00:00:00;
    /// a day beyond the end of its month is the last one, as in Java.
    pub(super) fn read(&self, text: &str) -> Option<NaiveDateTime> {
        let mut read = Read { rest: text, ..Read::default() };
        for (index, item) in self.items.iter().enumerate() {
            match item {
                Item::Literal(literal) => read.rest = read.rest.strip_prefix(literal.as_str())?,
                Item::Field(letter, count) => {
                    // A number stops at its own width only where another number follows at once.
                    let joined =
                        matches!(self.items.get(index + 1), Some(Item::Field(next, _)) if *next != 'a');
                    read.field(*letter, *count, joined)?;
                }
            }
        }
        read.rest.is_empty().then(|| read.finish())?
    }
}

fn write_field(time: NaiveDateTime, letter: char, count: usize, out: &mut impl Write) -> std::fmt::Result {
    let number = match letter {
        'y' | 'u' if count == 2 => i64::from(time.year().rem_euclid(100)),
        'y' | 'u' => i64::from(time.year()),
        'M' | 'L' if count == 3 => return out.write_str(&MONTHS[time.month0() as usize][..3]),
        'M' | 'L' if count > 3 => return out.write_str(MONTHS[time.month0() as usize]),
        'M' | 'L' => i64::from(time.month()),
        'Q' => i64::from(time.month0() / 3 + 1),
        'd' => i64::from(time.day()),
        'D' => i64::from(time.ordinal()),
        'H' => i64::from(time.hour()),
        'k' => i64::from(if time.hour() == 0 { 24 } else { time.hour() }),
        'K' => i64::from(time.hour() % 12),
        'h' => i64::from(time.hour12().1),
        'm' => i64::from(time.minute()),
        's' => i64::from(time.second()),
        'S' => {
            let digits = format!("{:09}", time.nanosecond() % 1_000_000_000);
            return out.write_str(&digits[..count.min(9)]);
        }
        'a' => return out.write_str(if time.hour() < 12 { "AM" } else { "PM" }),
        'G' => return out.write_str(if time.year() > 0 { "AD" } else { "BC" }),
        // `E`: the letters were checked when the pattern was made.
        _ => {
            let day = DAYS[time.weekday().num_days_from_monday() as usize];
            return out.write_str(if count > 3 { day } else { &day[..3] });
        }
    };
    write_number(number, count, out)
}

/// Writes a number with that many digits at least.
fn write_number(number: i64, count: usize, out: &mut impl Write) -> std::fmt::Result {
    let mut digits = [b'0'; 4];
    let Some(digits) = digits.get_mut(..count) else { return write!(out, "{number:0count$}") };
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit += rest.rem_euclid(10) as u8;
        rest = rest.div_euclid(10);
    }
    match (rest, std::str::from_utf8(digits)) {
        (0, Ok(digits)) => out.write_str(digits),
        // More digits, or a sign.
        _ => write!(out, "{number:0count$}"),
    }
}

#[derive(Default)]
struct Read<'a> {
    rest: &'a str,
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    hour: Option<u32>,
    hour_of_half: Option<u32>,
    afternoon: Option<bool>,
    minute: Option<u32>,
    second: Option<u32>,
    nanos: Option<u32>,
}

impl<'a> Read<'a> {
    fn field(&mut self, letter: char, count: usize, joined: bool) -> Option<()> {
        match letter {
            'y' | 'u' if count == 2 => self.year = Some(2000 + i32::try_from(self.number(2, 2)?).ok()?),
            'y' | 'u' => {
                let most = if joined { count.max(4) } else { 9 };
                self.year = Some(i32::try_from(self.number(count.min(4), most)?).ok()?);
            }
            'M' | 'L' if count >= 3 => {
                let name = |month: &'a str| if count == 3 { &month[..3] } else { month };
                let index = MONTHS.iter().position(|month| self.word(name(month)))?;
                self.month = Some(index as u32 + 1);
            }
            'M' | 'L' => self.month = Some(self.two_digits(count, joined)?),
            'd' => self.day = Some(self.two_digits(count, joined)?),
            'D' => self.day_of_year = Some(self.number(count.min(3), 3)?),
            'H' => self.hour = Some(self.two_digits(count, joined)?),
            'k' => self.hour = Some(self.two_digits(count, joined)? % 24),
            'K' | 'h' => self.hour_of_half = Some(self.two_digits(count, joined)? % 12),
            'm' => self.minute = Some(self.two_digits(count, joined)?),
            's' => self.second = Some(self.two_digits(count, joined)?),
            'S' => {
                let digits = count.min(9);
                self.nanos = Some(self.number(digits, digits)? * 10_u32.pow(9 - digits as u32));
            }
            'a' => {
                self.afternoon =
                    Some(if self.word("AM") { false } else { self.word("PM").then_some(true)? })
            }
            'G' => (self.word("AD") || self.word("BC")).then_some(())?,
            'Q' => drop(self.two_digits(count, joined)?),
            _ => {
                let name = |day: &'a str| if count > 3 { day } else { &day[..3] };
                DAYS.iter().position(|day| self.word(name(day)))?;
            }
        }
        Some(())
    }

    /// One letter: one or two digits, two letters: two; one letter before another number: one.
    fn two_digits(&mut self, count: usize, joined: bool) -> Option<u32> {
        let most = if joined { count.min(2) } else { 2 };
        self.number(count.min(2), most.max(1))
    }

    fn number(&mut self, least: usize, most: usize) -> Option<u32> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if digits < least {
            return None;
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.parse().ok()
    }

    fn word(&mut self, word: &str) -> bool {
        match self.rest.get(..word.len()) {
            Some(start) if start.eq_ignore_ascii_case(word) => {
                self.rest = &self.rest[word.len()..];
                true
            }
            _ => false,
        }
    }

    fn finish(&self) -> Option<NaiveDateTime> {
        let year = self.year.unwrap_or(1970);
        let date = match self.day_of_year {
            Some(day) if self.month.is_none() && self.day.is_none() => NaiveDate::from_yo_opt(year, day)?,
            _ => {
                let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
                let last =
                    (28..=31).rev().find(|last| NaiveDate::from_ymd_opt(year, month, *last).is_some())?;
                if day > 31 {
                    return None;
                }
                NaiveDate::from_ymd_opt(year, month, day.min(last))?
            }
        };
        let hour = match (self.hour, self.hour_of_half, self.afternoon) {
            (Some(hour), _, _) => hour,
            (None, Some(hour), afternoon) => hour + if afternoon == Some(true) { 12 } else { 0 },
            (None, None, _) => 0,
        };
        date.and_hms_nano_opt(
            hour,
            self.minute.unwrap_or(0),
            self.second.unwrap_or(0),
            self.nanos.unwrap_or(0),
        )
    }
}

/// Reads `2024-02-29 10:11:12.123`, with or without the time, its seconds and its fraction; single
/// digits, a `T` in the middle and a final `Z` do as well.
pub(super) fn read_sql_time(text: &str) -> Option<NaiveDateTime> {
    let text = text.trim();
    let (date, time) = match text.split_once([' ', 'T']) {
        Some((date, time)) => (date, time.trim_start().strip_suffix('Z').unwrap_or(time.trim_start())),
        None => (text, ""),
    };
    let mut parts = date.splitn(3, '-');
    let year = digits(parts.next()?, 9)?;
    let month = digits(parts.next()?, 2)?;
    let day = digits(parts.next()?, 2)?;
    let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
    if time.is_empty() {
        return date.and_hms_opt(0, 0, 0);
    }
    let (whole, fraction) = match time.split_once('.') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (time, ""),
    };
    let mut parts = whole.splitn(3, ':');
    let hour = digits(parts.next()?, 2)?;
    let minute = digits(parts.next()?, 2)?;
    let second = parts.next().map_or(Some(0), |second| digits(second, 2))?;
    let nanos = match fraction.len() {
        0 => 0,
        length @ 1..=9 => digits(fraction, 9)? * 10_u32.pow(9 - length as u32),
        _ if fraction.bytes().all(|byte| byte.is_ascii_digit()) => digits(&fraction[..9], 9)?,
        _ => return None,
    };
    date.and_hms_nano_opt(hour, minute, second, nanos)
}

fn digits(text: &str, most: usize) -> Option<u32> {
    let fits = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> NaiveDateTime {
        read_sql_time(text).unwrap()
    }

    fn written(pattern: &str, moment: &str) -> String {
        let mut out = String::new();
        Pattern::new(pattern).unwrap().write(time(moment), &mut out).unwrap();
        out
    }

    // The expectations are answers of Flink 2.3.
    #[test]
    fn writes_every_letter() {
        assert_eq!(
            written("yy-M-d H:m:s a h EEE EEEE MMM MMMM D SSS SSSSSS 'at' Q", "2024-02-29 10:11:12.123"),
            "24-2-29 10:11:12 AM 10 Thu Thursday Feb February 60 123 123000 at 1"
        );
        assert_eq!(written("yyyy/MM/dd HH:mm:ss.SSS", "1969-12-31 23:59:59.999"), "1969/12/31 23:59:59.999");
        assert_eq!(written("yyyyMMdd", "0001-01-02"), "00010102");
        assert_eq!(written("hh 'o''clock' a '' kk", "2024-01-01 00:30:00"), "12 o'clock AM ' 24");
        assert!(Pattern::new("yyyy 'x").is_err());
        assert!(Pattern::new("yyyy b").is_err());
    }

    #[test]
    fn numbers_have_so_many_digits_at_least() {
        for number in [-1_000, -10, -1, 0, 7, 42, 999, 2_024, 10_000] {
            for count in 1..7 {
                let mut out = String::new();
                write_number(number, count, &mut out).unwrap();
                assert_eq!(out, format!("{number:0count$}"));
            }
        }
    }

    #[test]
    fn reads_by_pattern() {
        let read = |pattern: &str, text: &str| Pattern::new(pattern).unwrap().read(text);
        assert_eq!(read("dd/MM/yyyy HH:mm", "29/02/2024 10:11"), Some(time("2024-02-29 10:11:00")));
        assert_eq!(read("dd/MM/yyyy HH:mm", "30/02/2024 10:11"), Some(time("2024-02-29 10:11:00")));
        assert_eq!(read("dd/MM/yyyy HH:mm", "32/02/2024 10:11"), None);
        assert_eq!(read("yyyy", "2024"), Some(time("2024-01-01")));
        assert_eq!(
            read("yyyy-MM-dd HH:mm:ss.S", "2024-02-29 10:11:12.5"),
            Some(time("2024-02-29 10:11:12.5"))
        );
        assert_eq!(read("yyyyMMddHHmmss", "20240229101112"), Some(time("2024-02-29 10:11:12")));
        assert_eq!(read("d-MMM-yy h:mm a", "9-feb-24 1:05 PM"), Some(time("2024-02-09 13:05:00")));
        assert_eq!(read("yyyy-MM-dd", "2024-02-29 x"), None);
        assert_eq!(read("yyyy-MM-dd", "2024-13-01"), None);
        assert_eq!(read("yyyy-MM-dd HH", "2024-01-01 24"), None);
    }

    #[test]
    fn reads_sql_times() {
        assert_eq!(read_sql_time("2024-02-29 10:11:12.1234567").unwrap().nanosecond(), 123_456_700);
        assert_eq!(time("2024-2-9 1:2:3"), time("2024-02-09 01:02:03"));
        assert_eq!(time("2024-02-29T10:11:12Z"), time("2024-02-29 10:11:12"));
        assert_eq!(time("2024-02-29 10:11"), time("2024-02-29 10:11:00"));
        for text in ["nonsense", "", "2024-02-30", "2024-02-29 25:00:00", "2024-02-29 10:11:12.", "2024-02"] {
            assert_eq!(read_sql_time(text), None, "{text}");
        }
    }
}

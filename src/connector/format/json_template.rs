//! Lines that look like the one before: the same bytes stand between their values.
//!
//! Most files were written by one program, so what stands between two values (comma, blanks, key, colon) is
//! the same line after line. A template is these pieces, each with the column that the value behind it
//! fills. It was made of a line that was checked in full, so a line with the same pieces around values that are
//! whole is JSON, too. What is not as expected ends the walk, with nothing appended of it; the reader goes on
//! from there.

use super::column::{Column, Values};
use super::json_read::{Filled, Scratch, decode};
use super::json_scan::{Cursor, plain_end};
use super::number::{Digits, digits_at};

/// The pieces of a line, and what its values mean.
#[derive(Debug, Clone)]
pub(super) struct Template {
    steps: Vec<Step>,
    /// From the end of the last value to the end of the line.
    end: Piece,
    /// Columns without a value in the line, which become NULL.
    lacking: Vec<usize>,
}

/// A value and what stands before it.
#[derive(Debug, Clone)]
struct Step {
    before: Piece,
    target: Option<(usize, Filled)>,
}

/// Bytes that are expected. The first 16 are compared as one number.
#[derive(Debug, Clone)]
struct Piece {
    text: Vec<u8>,
    head: u128,
    mask: u128,
}

/// A value of a line that was read in full: its range, and the column that its key means.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeenValue {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) target: Option<(usize, Filled)>,
}

/// How far a line is as expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// All of it, with its line end: this many bytes.
    Whole(usize),
    /// Up to this byte, the end of this many values.
    Until { at: usize, values: usize },
}

const HEAD: usize = size_of::<u128>();

impl Piece {
    fn new(text: &[u8]) -> Self {
        let mut head = [0; HEAD];
        let mut mask = [0; HEAD];
        for (place, byte) in text.iter().take(HEAD).enumerate() {
            (head[place], mask[place]) = (*byte, 0xff);
        }
        Self { text: text.to_vec(), head: u128::from_le_bytes(head), mask: u128::from_le_bytes(mask) }
    }

    /// Where the piece ends, if it stands at `at`.
    #[inline]
    fn end_at(&self, data: &[u8], at: usize) -> Option<usize> {
        let length = self.text.len();
        if let Some(window) = data.get(at..at + HEAD) {
            let window = u128::from_le_bytes(window.try_into().expect("the slice has 16 bytes"));
            if (window ^ self.head) & self.mask != 0 {
                return None;
            }
            if length <= HEAD {
                return Some(at + length);
            }
        }
        data.get(at..at + length).filter(|found| *found == self.text).map(|_| at + length)
    }
}

impl Template {
    /// The template of a line that was read in full, without its end; `None` if it is of no use.
    pub(super) fn of(line: &[u8], seen: &[SeenValue], lacking: Vec<usize>) -> Option<Self> {
        let last = seen.last()?.end;
        let starts = std::iter::once(0).chain(seen.iter().map(|value| value.end));
        let steps = seen.iter().zip(starts).map(|(value, start)| Step {
            before: Piece::new(&line[start..value.start]),
            target: value.target,
        });
        let mut end = line[last..].to_vec();
        end.push(b'\n');
        Some(Self { steps: steps.collect(), end: Piece::new(&end), lacking })
    }

    /// The columns that the first values of the line fill.
    pub(super) fn targets(&self, values: usize) -> impl Iterator<Item = (usize, Filled)> {
        self.steps[..values].iter().filter_map(|step| step.target)
    }

    /// Appends the values of the line at the start of `data`, the next of row `row`, as far as it is as
    /// expected. `data` is valid UTF-8 and ends with a line end.
    #[inline]
    pub(super) fn walk(
        &self,
        data: &[u8],
        row: usize,
        columns: &mut [Column],
        scratch: &mut Scratch,
    ) -> Walk {
        let mut at = 0;
        for (values, step) in self.steps.iter().enumerate() {
            let end = step.before.end_at(data, at).and_then(|start| match step.target {
                Some((column, _)) => take(&mut columns[column], data, start, row, scratch),
                None => skip(data, start),
            });
            match end {
                Some(end) => at = end,
                None => return Walk::Until { at, values },
            }
        }
        match self.end.end_at(data, at) {
            Some(end) => {
                for column in &self.lacking {
                    // It may be NULL, or this were no template.
                    columns[*column].append_empty();
                }
                Walk::Whole(end)
            }
            None => Walk::Until { at, values: self.steps.len() },
        }
    }
}

/// Appends the value at `at`; its end. `None`: nothing was appended.
#[inline]
fn take(column: &mut Column, data: &[u8], at: usize, row: usize, scratch: &mut Scratch) -> Option<usize> {
    match (&mut column.values, *data.get(at)?) {
        (Values::Int64(values), b'-' | b'0'..=b'9') => {
            if let Some((value, end)) = integer(data, at) {
                values.push(value);
                column.close_value();
                return Some(end);
            }
        }
        (Values::Text(values), b'"') => {
            if let Some(end) = plain_end(data, at + 1) {
                values.push(&data[at + 1..end]).ok()?;
                column.close_value();
                return Some(end + 1);
            }
        }
        (Values::Timestamp { .. }, b'"') => {
            if let Some(end) = plain_end(data, at + 1) {
                column.append_text(&data[at + 1..end]).ok()?;
                return Some(end + 1);
            }
        }
        (Values::Float64(values), b'-' | b'0'..=b'9') => {
            if let Some((value, end)) = double(data, at) {
                values.push(value);
                column.close_value();
                return Some(end);
            }
        }
        _ => {}
    }
    take_any(column, data, at, row, scratch)
}

/// [`take`] of any value, within its line.
fn take_any(column: &mut Column, data: &[u8], at: usize, row: usize, scratch: &mut Scratch) -> Option<usize> {
    let mut cursor = cursor_at(data, at);
    match decode(column, &mut cursor, scratch) {
        Ok(()) => Some(cursor.at),
        Err(_) => {
            column.truncate(row);
            None
        }
    }
}

/// The end of the value at `at`, which nobody reads.
#[inline]
fn skip(data: &[u8], at: usize) -> Option<usize> {
    match *data.get(at)? {
        b'"' => {
            if let Some(end) = plain_end(data, at + 1) {
                return Some(end + 1);
            }
        }
        b'-' | b'0'..=b'9' => {
            if let Some((_, end)) = integer(data, at) {
                return Some(end);
            }
        }
        _ => {}
    }
    let mut cursor = cursor_at(data, at);
    cursor.skip_value().ok().map(|_| cursor.at)
}

/// A cursor at a value that goes no further than the line. Between the parts of an object or array blanks may
/// stand, and line ends are no blanks here.
fn cursor_at(data: &[u8], at: usize) -> Cursor<'_> {
    let end = match data[at] {
        b'{' | b'[' => memchr::memchr(b'\n', &data[at..]).map(|length| at + length),
        _ => None,
    };
    Cursor { text: &data[..end.unwrap_or(data.len())], at }
}

/// A whole number of few digits as JSON has it, and its end.
#[inline]
fn integer(data: &[u8], at: usize) -> Option<(i64, usize)> {
    let negative = data[at] == b'-';
    let start = at + usize::from(negative);
    let Digits { value, end } = digits_at(data, start)?;
    let is_long_zero = data[start] == b'0' && end > start + 1;
    if is_long_zero || matches!(data.get(end), Some(b'.' | b'e' | b'E')) {
        return None;
    }
    let value = value as i64;
    Some((if negative { -value } else { value }, end))
}

/// A number without an exponent and with few digits, and its end.
#[inline]
fn double(data: &[u8], at: usize) -> Option<(f64, usize)> {
    /// Exact as a DOUBLE.
    const POWERS: [f64; 16] =
        [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let negative = data[at] == b'-';
    let start = at + usize::from(negative);
    let whole = digits_at(data, start)?;
    if data[start] == b'0' && whole.end > start + 1 {
        return None;
    }
    let (digits, places, end) = match data.get(whole.end) {
        Some(b'.') => {
            let fraction = digits_at(data, whole.end + 1)?;
            let places = fraction.end - whole.end - 1;
            let shift = 10_u64.checked_pow(u32::try_from(places).ok()?)?;
            (whole.value.checked_mul(shift)?.checked_add(fraction.value)?, places, fraction.end)
        }
        _ => (whole.value, 0, whole.end),
    };
    // Both numbers are exact, so their quotient is rounded once, as it must be.
    if digits >= 1 << 53 || matches!(data.get(end), Some(b'e' | b'E')) {
        return None;
    }
    let value = digits as f64 / POWERS.get(places)?;
    Some((if negative { -value } else { value }, end))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::ArrayRef;
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::column::TimeRules;
    use super::super::json_read::JsonReader;
    use super::super::rows::{OnError, Rows};
    use super::super::text::{Decoder, TextFormat};
    use crate::connector::RejectedRow;
    use crate::error::Error;

    fn schema() -> Schema {
        let x = Field::new("x", DataType::Int64, true);
        Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8, true),
            Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
            Field::new("d", DataType::Float64, true),
            Field::new("r", DataType::Struct(vec![x].into()), true),
            Field::new("n", DataType::Int32, false),
            Field::new("often", DataType::Boolean, true),
        ])
    }

    #[derive(Debug, Default, PartialEq)]
    struct Found {
        columns: Vec<ArrayRef>,
        lines: Vec<u64>,
        rejected: Vec<RejectedRow>,
        error: Option<Error>,
    }

    fn rows(on_error: OnError) -> Rows {
        Rows::new("in.json", &schema(), TimeRules::default(), on_error, 1_000).unwrap()
    }

    fn found(mut rows: Rows, error: Option<Error>) -> Found {
        if error.is_some() {
            return Found { error, ..Found::default() };
        }
        let len = rows.len();
        let (columns, lines, rejected) = rows.take().unwrap();
        Found { columns, lines: (0..len).map(|row| lines.of(row)).collect(), rejected, error }
    }

    /// The text as it is read, given in pieces of `step` bytes.
    fn read(text: &[u8], on_error: OnError, step: usize) -> Found {
        let format = TextFormat::Json { fail_on_missing: false };
        let mut decoder = Decoder::new(&format, "in.json", &[], &schema(), &[]);
        let mut rows = rows(on_error);
        let (mut start, mut end) = (0, 0);
        while start < text.len() {
            end = (end + step).min(text.len());
            match decoder.feed(&text[start..end], end == text.len(), &mut rows) {
                Ok(used) => start += used,
                Err(error) => return found(rows, Some(error)),
            }
        }
        found(rows, None)
    }

    /// Each line by a reader that saw no other.
    fn read_one_by_one(text: &[u8], on_error: OnError) -> Found {
        let schema = schema();
        let mut rows = rows(on_error);
        for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
            let names = schema.fields().iter().map(|field| field.name().as_str());
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            if let Err(error) = JsonReader::new(names, false).line(line, number, &mut rows) {
                return found(rows, Some(error));
            }
        }
        found(rows, None)
    }

    fn line() -> impl Strategy<Value = Vec<u8>> {
        let a = select(vec![
            "1",
            "1",
            "-7",
            "-0",
            "007",
            "12345678",
            "1234567890123456",
            "99999999999999999",
            "9223372036854775808",
            "1.0",
            "1e2",
            "null",
            "\"5\"",
            "-",
        ]);
        let b = select(vec![
            "\"x\"",
            "\"\"",
            "\"q\\\"\\u00e9\"",
            "\"é漢\"",
            "5",
            "null",
            "{\"k\": 1}",
            "\"eight by \"",
        ]);
        let t = select(vec![
            "\"2024-05-01 09:00:01\"",
            "\"2024-05-01T09:00:01.123\"",
            "\"2024-05-02 23:59:59.9999\"",
            "\"2024-02-30 00:00:00\"",
            "\"2024-05-01 09:60:01\"",
            "\"2024-05-01 09:00:01Z\"",
            "\" 2024-05-01\"",
            "5",
        ]);
        let d = select(vec![
            "0.1",
            "-0",
            "123456.789",
            "1e5",
            "01.5",
            "0.30000000000000004",
            "9007199254740993",
            "-1.",
        ]);
        let r = select(vec!["{\"x\":1}", "{ \"x\" : 2 }", "null", "{}", "{\"x\":\"z\"}", "[1]"]);
        let u = select(vec!["[1, 2]", "{\"y\":[]}", "\"s\\n\"", "1.5", "true", "nul", "-2"]);
        let n = select(vec!["3", "3", "null", "2147483648", "-3"]);
        let often = select(vec!["", "", ",\"often\":true", ",\"a\":8", ",\"A\":9", ",\"often\" : false "]);
        let is_spaced = any::<bool>();
        let mutation = proptest::option::weighted(0.3, (any::<prop::sample::Index>(), 0..3, any::<u8>()));
        (a, b, t, d, r, u, n, often, is_spaced, mutation).prop_map(
            |(a, b, t, d, r, u, n, often, is_spaced, mutation)| {
                let mut line = format!(
                    "{{\"a\":{a},\"b\":{b},\"t\":{t},\"unread\":{u},\"d\":{d},\"r\":{r},\"a longer key\":{u},\"n\":{n}{often}}}"
                );
                if is_spaced {
                    line = line.replace(",\"", ", \"").replace("\":", "\": ");
                }
                let mut line = line.into_bytes();
                if let Some((place, how, byte)) = mutation {
                    let place = place.index(line.len());
                    match how {
                        0 => line[place] = byte,
                        1 => line.insert(place, byte),
                        _ => drop(line.remove(place)),
                    }
                }
                line
            },
        )
    }

    #[test]
    fn a_template_reads_what_it_was_made_of() {
        let text = b"{\"a\":1,\"n\":2}\n{\"a\":12,\"n\":34}\n{\"a\":null,\"n\":5}\n{\"n\":6,\"a\":7}\n{\"a\":8,\"n\":9} \n";
        let names = ["a", "n"];
        let mut reader = JsonReader::new(names.into_iter(), false);
        let fields: Vec<_> = names.iter().map(|name| Field::new(*name, DataType::Int64, true)).collect();
        let rules = TimeRules::default();
        let mut rows = Rows::new("t", &Schema::new(fields), rules, OnError::Fail, 100).unwrap();
        let mut start = 0;
        for number in 1..=5 {
            start += reader.next_line(&text[start..], true, number, &mut rows).unwrap();
        }
        assert_eq!(start, text.len());
        let (columns, ..) = rows.take().unwrap();
        let expected: [ArrayRef; 2] = [
            Arc::new(arrow::array::Int64Array::from(vec![Some(1), Some(12), None, Some(7), Some(8)])),
            Arc::new(arrow::array::Int64Array::from(vec![2, 34, 5, 6, 9])),
        ];
        assert_eq!(columns, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn lines_are_read_as_if_each_were_the_only_one(
            lines in proptest::collection::vec(line(), 1..12),
            step in 1usize..400,
            ends in any::<bool>(),
        ) {
            let mut text = lines.join(&b'\n');
            if ends {
                text.push(b'\n');
            }
            for on_error in [OnError::Side, OnError::Null, OnError::Fail] {
                prop_assert_eq!(read(&text, on_error, step), read_one_by_one(&text, on_error));
            }
        }
    }
}

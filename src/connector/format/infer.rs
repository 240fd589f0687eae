//! Column types from a sample of the data, for tables without a column list.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
use serde_json::Value;

use super::csv_read::{CsvOptions, is_blank};
use super::csv_scan::{CsvScanner, decode_field};
use super::number::{parse_double, parse_integer};
use super::time_text::{parse_date, parse_timestamp};

/// Names and types, in the order of the data; or why there are none.
pub(crate) type InferredColumns = Result<Vec<(String, DataType)>, String>;

/// What the values of a column have been so far.
#[derive(Debug, Clone, PartialEq)]
enum Guess {
    Nothing,
    Boolean,
    Integer,
    Double,
    Date,
    /// Finer than milliseconds; with an offset.
    Timestamp {
        fine: bool,
        instant: bool,
    },
    Text,
    List(Box<Guess>),
    Row(Vec<(String, Guess)>),
}

impl Guess {
    fn of_text(text: &str, with_numbers: bool) -> Self {
        let bytes = text.as_bytes();
        if with_numbers {
            if bytes.is_empty() {
                return Self::Nothing;
            }
            if matches!(bytes, b"true" | b"false" | b"TRUE" | b"FALSE" | b"True" | b"False") {
                return Self::Boolean;
            }
            // 007 is a name.
            let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
            let is_padded = digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit();
            let is_plain = digits.iter().all(u8::is_ascii_digit);
            if !is_padded && is_plain && parse_integer(bytes).is_ok() {
                return Self::Integer;
            }
            let is_number = digits.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'.');
            if !is_padded && (is_number || text == "NaN") && parse_double(bytes).is_ok() {
                return Self::Double;
            }
        }
        if parse_date(bytes).is_some() {
            return Self::Date;
        }
        match parse_timestamp(bytes) {
            Some(reading) => {
                Self::Timestamp { fine: reading.nanos % 1_000_000 != 0, instant: reading.offset.is_some() }
            }
            None => Self::Text,
        }
    }

    fn of_json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_i64() => Self::Integer,
            Value::Number(_) => Self::Double,
            Value::String(text) => Self::of_text(text, false),
            Value::Array(items) => {
                let item = items.iter().fold(Self::Nothing, |guess, item| guess.or(Self::of_json(item)));
                Self::List(Box::new(item))
            }
            Value::Object(fields) => {
                Self::Row(fields.iter().map(|(name, value)| (name.clone(), Self::of_json(value))).collect())
            }
        }
    }

    /// The narrowest type that holds both.
    fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, guess) | (guess, Self::Nothing) => guess,
            (Self::Integer, Self::Double) | (Self::Double, Self::Integer) => Self::Double,
            (Self::Timestamp { fine: a, instant: true }, Self::Timestamp { fine: b, instant: true }) => {
                Self::Timestamp { fine: a || b, instant: true }
            }
            (Self::Timestamp { fine: a, instant: false }, Self::Timestamp { fine: b, instant: false }) => {
                Self::Timestamp { fine: a || b, instant: false }
            }
            (Self::Date, Self::Timestamp { fine, instant: false })
            | (Self::Timestamp { fine, instant: false }, Self::Date) => {
                Self::Timestamp { fine, instant: false }
            }
            (Self::List(a), Self::List(b)) => Self::List(Box::new(a.or(*b))),
            (Self::Row(a), Self::Row(b)) => Self::Row(merge(a, b)),
            (a, b) if a == b => a,
            _ => Self::Text,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Nothing | Self::Text => DataType::Utf8,
            Self::Boolean => DataType::Boolean,
            Self::Integer => DataType::Int64,
            Self::Double => DataType::Float64,
            Self::Date => DataType::Date32,
            Self::Timestamp { fine, instant } => {
                let unit = if fine { TimeUnit::Microsecond } else { TimeUnit::Millisecond };
                DataType::Timestamp(unit, instant.then(|| Arc::from("UTC")))
            }
            Self::List(item) => DataType::List(Arc::new(Field::new("item", item.data_type(), true))),
            Self::Row(fields) if fields.is_empty() => DataType::Utf8,
            Self::Row(fields) => DataType::Struct(Fields::from(
                fields
                    .into_iter()
                    .map(|(name, guess)| Field::new(name, guess.data_type(), true))
                    .collect::<Vec<_>>(),
            )),
        }
    }
}

/// The fields of both, in the order in which they were first seen.
fn merge(mut into: Vec<(String, Guess)>, from: Vec<(String, Guess)>) -> Vec<(String, Guess)> {
    for (name, guess) in from {
        match into.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = std::mem::replace(known, Guess::Nothing).or(guess),
            None => into.push((name, guess)),
        }
    }
    into
}

/// The columns of JSON lines.
///
/// `sample`: whole lines from the start of the file, or all of it (`is_all`). Lines that are no JSON
/// objects are left to the reader to complain about.
pub(crate) fn json_columns(sample: &[u8], is_all: bool) -> InferredColumns {
    let sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let whole = if is_all { sample.len() } else { memchr::memrchr(b'\n', sample).map_or(0, |end| end + 1) };
    let mut columns = Vec::new();
    for line in sample[..whole].split(|byte| *byte == b'\n') {
        if let Ok(Value::Object(fields)) = serde_json::from_slice::<Value>(line) {
            let row = fields.iter().map(|(name, value)| (name.clone(), Guess::of_json(value))).collect();
            columns = merge(columns, row);
        }
    }
    if columns.is_empty() {
        return Err("no line at its start is a JSON object".to_owned());
    }
    Ok(columns.into_iter().map(|(name, guess)| (name, guess.data_type())).collect())
}

/// The columns of CSV.
///
/// When nothing is said about a header, the first line is one if all its fields are texts that are
/// neither empty nor alike. Without a header columns are called `column_1`, `column_2`, ….
pub(crate) fn csv_columns(sample: &[u8], is_all: bool, options: &CsvOptions) -> InferredColumns {
    let mut sample = sample.strip_prefix(b"\xef\xbb\xbf").unwrap_or(sample);
    let mut scanner = CsvScanner::new(options.syntax);
    let mut names: Option<Vec<String>> = None;
    let mut guesses: Vec<Guess> = Vec::new();
    while !sample.is_empty() {
        if options.allow_comments && sample[0] == b'#' {
            let end = memchr::memchr(b'\n', sample).map_or(sample.len(), |end| end + 1);
            sample = &sample[end..];
            continue;
        }
        let Some(length) = scanner.record(sample, is_all) else { break };
        let record = &sample[..length];
        sample = &sample[length..];
        let fields = scanner.fields().iter().map(|field| {
            let mut text = Vec::new();
            decode_field(&mut text, &record[field.start..field.end], field.quoted, options.syntax);
            (String::from_utf8_lossy(&text).into_owned(), field.quoted)
        });
        let fields: Vec<_> = fields.collect();
        let blank = is_blank(scanner.fields(), record, fields.len().max(2));
        scanner.reset();
        if blank {
            continue;
        }
        if names.is_none() {
            let is_header = options.header.unwrap_or_else(|| looks_like_header(&fields));
            guesses = vec![Guess::Nothing; fields.len()];
            if is_header {
                names = Some(fields.iter().map(|(text, _)| text.trim().to_owned()).collect());
                continue;
            }
            names = Some((1..=fields.len()).map(|number| format!("column_{number}")).collect());
        }
        for (guess, (text, quoted)) in guesses.iter_mut().zip(&fields) {
            let is_null = !quoted && options.null_literal.as_ref() == Some(text);
            if !is_null {
                *guess = std::mem::replace(guess, Guess::Nothing).or(Guess::of_text(text.trim(), true));
            }
        }
    }
    let names = names.ok_or("it has no lines")?;
    Ok(names.into_iter().zip(guesses).map(|(name, guess)| (name, guess.data_type())).collect())
}

fn looks_like_header(fields: &[(String, bool)]) -> bool {
    let is_name = |(text, _): &(String, bool)| Guess::of_text(text.trim(), true) == Guess::Text;
    let is_unique =
        |index: usize| fields[..index].iter().all(|(text, _)| !text.eq_ignore_ascii_case(&fields[index].0));
    fields.iter().all(is_name) && (0..fields.len()).all(is_unique)
}

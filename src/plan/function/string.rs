//! Text functions as Flink has them. Positions count characters from 1.

use std::fmt::Write;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, StringArray, StringBuilder};
use arrow::datatypes::DataType;
use datafusion_common::Result;
use datafusion_expr::ScalarUDF;

use super::scalar::{Arguments, Function, int, string};

/// The functions with their names.
pub(super) fn all() -> Vec<(&'static str, Arc<ScalarUDF>)> {
    const UTF8: DataType = DataType::Utf8;
    const INT64: DataType = DataType::Int64;
    let substring =
        Function::new("substring", &[&[UTF8, INT64], &[UTF8, INT64, INT64]], string, substring).udf();
    let pads: &[&[DataType]] = &[&[UTF8, INT64], &[UTF8, INT64, UTF8]];
    vec![
        ("substring", Arc::clone(&substring)),
        ("substr", substring),
        ("lpad", Function::new("lpad", pads, string, |args| pad(args, true)).udf()),
        ("rpad", Function::new("rpad", pads, string, |args| pad(args, false)).udf()),
        ("left", Function::new("left", &[&[UTF8, INT64]], string, left).udf()),
        ("right", Function::new("right", &[&[UTF8, INT64]], string, right).udf()),
        ("locate", Function::new("locate", &[&[UTF8, UTF8], &[UTF8, UTF8, INT64]], int, locate).udf()),
        ("split_index", Function::new("split_index", &[&[UTF8, UTF8, INT64]], string, split_index).udf()),
    ]
}

/// The byte at which character `index` starts, or the text's end.
fn byte_of(text: &str, index: usize) -> usize {
    if text.is_ascii() {
        return index.min(text.len());
    }
    text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte)
}

fn characters(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().count() }
}

fn collect_text<'a>(rows: usize, of: impl Fn(usize) -> Option<&'a str>) -> ArrayRef {
    Arc::new((0..rows).map(of).collect::<StringArray>())
}

/// A negative start counts from the end; one before the first character gives the empty text, 0 is 1.
fn substring(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, start) = (args.text(0)?, args.integer(1)?);
    let length = if args.len() > 2 { Some(args.integer(2)?) } else { None };
    Ok(collect_text(args.rows, |row| {
        let (text, start) = (text.get(row)?, start.get(row)?);
        let length = match length {
            Some(length) => Some(length.get(row)?),
            None => None,
        };
        slice(text, start, length)
    }))
}

fn slice(text: &str, start: i64, length: Option<i64>) -> Option<&str> {
    let length = match length {
        Some(length) if length < 0 => return None,
        Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    let skipped = if start >= 0 {
        usize::try_from(start - i64::from(start > 0)).unwrap_or(usize::MAX)
    } else {
        match characters(text).checked_sub(usize::try_from(start.unsigned_abs()).unwrap_or(usize::MAX)) {
            Some(skipped) => skipped,
            None => return Some(""),
        }
    };
    let rest = &text[byte_of(text, skipped)..];
    Some(&rest[..byte_of(rest, length)])
}

/// Filled up, or cut, to a length; NULL if the length is negative or there is nothing to fill with.
fn pad(args: &Arguments<'_>, left: bool) -> Result<ArrayRef> {
    let (text, length) = (args.text(0)?, args.integer(1)?);
    let fill = if args.len() > 2 { Some(args.text(2)?) } else { None };
    let mut out = StringBuilder::with_capacity(args.rows, args.rows * 16);
    for row in 0..args.rows {
        let fill = match &fill {
            Some(fill) => fill.get(row),
            None => Some(" "),
        };
        let (Some(text), Some(length), Some(fill)) = (text.get(row), length.get(row), fill) else {
            out.append_null();
            continue;
        };
        let Ok(length) = usize::try_from(length) else {
            out.append_null();
            continue;
        };
        if length > i32::MAX as usize {
            return datafusion_common::exec_err!("length {length} of lpad or rpad is more than 2147483647");
        }
        let missing = length.saturating_sub(characters(text));
        if missing > 0 && fill.is_empty() {
            out.append_null();
            continue;
        }
        let padding = fill.chars().cycle().take(missing);
        if !left {
            write_text(&mut out, &text[..byte_of(text, length)]);
        }
        padding.for_each(|character| write_char(&mut out, character));
        if left {
            write_text(&mut out, &text[..byte_of(text, length)]);
        }
        out.append_value("");
    }
    Ok(Arc::new(out.finish()))
}

fn write_text(out: &mut StringBuilder, text: &str) {
    out.write_str(text).expect("a string builder takes any text");
}

fn write_char(out: &mut StringBuilder, character: char) {
    out.write_char(character).expect("a string builder takes any text");
}

/// The first characters; none if the number is negative.
fn left(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, count) = (args.text(0)?, args.integer(1)?);
    Ok(collect_text(args.rows, |row| {
        let (text, count) = (text.get(row)?, count.get(row)?);
        Some(&text[..byte_of(text, usize::try_from(count.max(0)).unwrap_or(usize::MAX))])
    }))
}

/// The last characters; none if the number is negative.
fn right(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, count) = (args.text(0)?, args.integer(1)?);
    Ok(collect_text(args.rows, |row| {
        let (text, count) = (text.get(row)?, count.get(row)?);
        let count = usize::try_from(count.max(0)).unwrap_or(usize::MAX);
        Some(&text[byte_of(text, characters(text).saturating_sub(count))..])
    }))
}

/// Where the first text stands in the second, from a position on; 0 if nowhere.
fn locate(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (part, text) = (args.text(0)?, args.text(1)?);
    let from = if args.len() > 2 { Some(args.integer(2)?) } else { None };
    let position = |row| {
        let (part, text) = (part.get(row)?, text.get(row)?);
        let from = match &from {
            Some(from) => from.get(row)?,
            None => 1,
        };
        let skipped = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
        let start = byte_of(text, skipped);
        let found = text[start..].find(part).map_or(0, |byte| characters(&text[..start + byte]) + 1);
        Some(i32::try_from(found).unwrap_or(i32::MAX))
    };
    Ok(Arc::new((0..args.rows).map(position).collect::<Int32Array>()))
}

/// Piece `index`, counted from 0, of a text cut at a separator; NULL if there is no such piece.
fn split_index(args: &Arguments<'_>) -> Result<ArrayRef> {
    let (text, separator, index) = (args.text(0)?, args.text(1)?, args.integer(2)?);
    Ok(collect_text(args.rows, |row| {
        let (text, separator, index) = (text.get(row)?, separator.get(row)?, index.get(row)?);
        let index = usize::try_from(index).ok()?;
        if text.is_empty() {
            return None;
        }
        if separator.is_empty() {
            return (index == 0).then_some(text);
        }
        text.split(separator).nth(index)
    }))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{null, one, text};
    use super::*;

    // The expectations are answers of Flink 2.3.
    #[test]
    fn substring_counts_negative_starts_from_the_end() {
        let cases = [
            ("hello", 0, Some(2), Some("he")),
            ("hello", -3, Some(2), Some("ll")),
            ("hello", -9, None, Some("")),
            ("hello", -9, Some(5), Some("")),
            ("hello", 2, Some(-1), None),
            ("", 1, Some(2), Some("")),
            ("hello", 9, None, Some("")),
            ("Grüße 日本 😀", -3, None, Some("本 😀")),
            ("Grüße 日本 😀", 2, Some(3), Some("rüß")),
            ("hello", i64::MIN, None, Some("")),
            ("hello", i64::MAX, Some(i64::MAX), Some("")),
        ];
        for (text, start, length, expected) in cases {
            assert_eq!(slice(text, start, length), expected, "{text} {start} {length:?}");
        }
    }

    #[test]
    fn pads_and_cuts() {
        assert_eq!(one("lpad", &[text("abc"), 2.into(), text("x")]), text("ab"));
        assert_eq!(one("lpad", &[text("abc"), (-1).into(), text("x")]), null());
        assert_eq!(one("lpad", &[text("abc"), 5.into(), text("")]), null());
        assert_eq!(one("rpad", &[text("abc"), 6.into(), text("xy")]), text("abcxyx"));
        assert_eq!(one("lpad", &[text("日本"), 3.into(), text("é")]), text("é日本"));
        assert_eq!(one("lpad", &[null(), 3.into(), text("é")]), null());
        assert_eq!(one("left", &[text("abc"), (-1).into()]), text(""));
        assert_eq!(one("right", &[text("a日本"), 2.into()]), text("日本"));
        assert_eq!(one("left", &[text("abc"), 9.into()]), text("abc"));
    }

    #[test]
    fn finds_and_splits() {
        let int = |value| datafusion_common::ScalarValue::Int32(Some(value));
        assert_eq!(one("locate", &[text("b"), text("abcb")]), int(2));
        assert_eq!(one("locate", &[text("b"), text("abcb"), 3.into()]), int(4));
        assert_eq!(one("locate", &[text("b"), text("abcb"), 0.into()]), int(2));
        assert_eq!(one("locate", &[text(""), text("abc")]), int(1));
        assert_eq!(one("locate", &[text("本"), text("日本")]), int(2));
        assert_eq!(one("locate", &[text("x"), text("abc")]), int(0));
        assert_eq!(one("split_index", &[text("a,b,,c"), text(","), 2.into()]), text(""));
        assert_eq!(one("split_index", &[text("a,b"), text(","), 5.into()]), null());
        assert_eq!(one("split_index", &[text("a,b"), text(","), (-1).into()]), null());
        assert_eq!(one("split_index", &[text(""), text(","), 0.into()]), null());
    }
}

//! Values as the cells of a table: one line, no control characters, NULL unlike any text.

use std::borrow::Cow;

use arrow::array::Array;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use crate::error::Error;

/// The cells of a batch, row by row.
pub(super) fn rows(batch: &RecordBatch) -> Result<Vec<Vec<String>>, Error> {
    let mut rows = vec![Vec::with_capacity(batch.num_columns()); batch.num_rows()];
    for column in batch.columns() {
        let options = options(column.data_type());
        let fault = |error| Error::internal("table output", error);
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options).map_err(fault)?;
        let nulls = column.logical_nulls();
        let is_text = is_text(column.data_type());
        for (index, row) in rows.iter_mut().enumerate() {
            row.push(match &nulls {
                Some(nulls) if nulls.is_null(index) => "NULL".to_owned(),
                _ => cell(&formatter.value(index).to_string(), is_text),
            });
        }
    }
    Ok(rows)
}

/// Whether a column's cells stand at the right.
pub(super) fn is_right_aligned(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn options(data_type: &DataType) -> FormatOptions<'static> {
    let (local, zoned) = match data_type {
        DataType::Timestamp(unit, zone) => {
            let utc = matches!(zone.as_deref(), Some("UTC" | "+00:00" | "Z"));
            match (unit, utc) {
                (TimeUnit::Second, true) => ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%SZ"),
                (TimeUnit::Second, false) => ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S%:z"),
                (TimeUnit::Millisecond, true) => ("%Y-%m-%d %H:%M:%S%.3f", "%Y-%m-%d %H:%M:%S%.3fZ"),
                (TimeUnit::Millisecond, false) => ("%Y-%m-%d %H:%M:%S%.3f", "%Y-%m-%d %H:%M:%S%.3f%:z"),
                (TimeUnit::Microsecond, true) => ("%Y-%m-%d %H:%M:%S%.6f", "%Y-%m-%d %H:%M:%S%.6fZ"),
                (TimeUnit::Microsecond, false) => ("%Y-%m-%d %H:%M:%S%.6f", "%Y-%m-%d %H:%M:%S%.6f%:z"),
                (TimeUnit::Nanosecond, true) => ("%Y-%m-%d %H:%M:%S%.9f", "%Y-%m-%d %H:%M:%S%.9fZ"),
                (TimeUnit::Nanosecond, false) => ("%Y-%m-%d %H:%M:%S%.9f", "%Y-%m-%d %H:%M:%S%.9f%:z"),
            }
        }
        _ => ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f%:z"),
    };
    FormatOptions::new()
        .with_display_error(true)
        .with_null("NULL")
        .with_timestamp_format(Some(local))
        .with_timestamp_tz_format(Some(zoned))
        .with_time_format(Some("%H:%M:%S%.f"))
}

/// A value's text on one line. A text that could be taken for NULL stands in quotes.
fn cell(text: &str, is_text: bool) -> String {
    if is_text && text.trim_matches('\'') == "NULL" {
        return format!("'{text}'");
    }
    if !text.chars().any(is_hidden) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Characters that move the cursor or turn the direction of the text.
fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The columns of a terminal that a text takes.
pub(super) fn width(text: &str) -> usize {
    text.width()
}

/// The text, or as much of it as fits with a mark behind it; never a part of a character.
pub(super) fn fit(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    let mut kept = 0;
    for (start, grapheme) in text.grapheme_indices(true) {
        let end = start + grapheme.len();
        if width(&text[..end]) + 1 > most {
            break;
        }
        kept = end;
    }
    Cow::Owned(format!("{}…", &text[..kept]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_unlike_any_text() {
        assert_eq!(cell("NULL", true), "'NULL'");
        assert_eq!(cell("'NULL'", true), "''NULL''");
        assert_eq!(cell("null", true), "null");
        assert_eq!(cell("", true), "");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(cell("tab\tnew\nline", true), "tab\\tnew\\nline");
        assert_eq!(cell("\u{1b}[31m", true), "\\u{1b}[31m");
        assert_eq!(cell("a\u{202e}b", true), "a\\u{202e}b");
        assert_eq!(cell("👩‍👩‍👧", true), "👩‍👩‍👧");
    }

    #[test]
    fn a_cut_ends_at_a_character_with_a_mark() {
        assert_eq!(fit("abcdef", 6), "abcdef");
        assert_eq!(fit("abcdef", 5), "abcd…");
        // Each of these takes two columns: three do not fit beside the mark.
        assert_eq!(fit("漢字漢字", 6), "漢字…");
        assert_eq!(width(&fit("漢字漢字", 6)), 5);
        assert_eq!(fit("👩‍👩‍👧👩‍👩‍👧", 3), "👩‍👩‍👧…");
        assert_eq!(fit("e\u{301}te\u{301}", 2), "e\u{301}…");
    }
}

//! Writes CSV that the reader of the same options reads back.

use arrow::datatypes::{DataType, Schema, SchemaRef};

use super::cell::Cells;
use super::csv_read::CsvOptions;
use super::csv_scan::CsvSyntax;
use super::options::TimeStyle;
use crate::error::Error;
use crate::stream::StreamBatch;

/// How CSV is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvStyle {
    /// Between fields.
    pub delimiter: u8,
    /// Around fields that need it; `None`: around none.
    pub quote: Option<u8>,
    /// Before a quote inside a field; `None`: the quote is doubled.
    pub escape: Option<u8>,
    /// A first line with the column names.
    pub header: bool,
    /// What NULL is written as. `None`: nothing, which a reader takes for the empty text in a
    /// STRING column and for NULL in others.
    pub null_literal: Option<String>,
}

impl Default for CsvStyle {
    /// Commas, double quotes, a header, NULL as nothing.
    fn default() -> Self {
        Self { delimiter: b',', quote: Some(b'"'), escape: None, header: true, null_literal: None }
    }
}

/// Writes rows as CSV, lines ending with LF.
///
/// A field is quoted if it holds a delimiter, a quote or a line end, if it is a text that would be
/// taken for NULL or a comment, or if the line would be empty without. Timestamps are
/// `2024-03-05 00:00:10.000`, with `Z` for instants; nested values are JSON, BYTES base64.
#[derive(Debug, Clone)]
pub struct CsvWriter {
    style: CsvStyle,
    header: Option<Vec<u8>>,
    /// The header is written, or need not be.
    is_begun: bool,
    texts: Vec<bool>,
    time: TimeStyle,
    scratch: Vec<u8>,
}

impl CsvWriter {
    /// A writer of rows of this schema; the header comes with the first batch.
    pub fn new(schema: &SchemaRef, style: CsvStyle) -> Self {
        Self::with_times(schema, style, TimeStyle::Text(b' '))
    }

    pub(crate) fn with_times(schema: &Schema, style: CsvStyle, time: TimeStyle) -> Self {
        let texts = schema.fields().iter().map(|field| matches!(field.data_type(), DataType::Utf8)).collect();
        let mut writer = Self { style, header: None, is_begun: false, texts, time, scratch: Vec::new() };
        if writer.style.header {
            let mut header = Vec::new();
            let start = header.len();
            for (index, field) in schema.fields().iter().enumerate() {
                if index > 0 {
                    header.push(writer.style.delimiter);
                }
                push_field(&mut header, field.name().as_bytes(), true, &writer.style, index == 0);
            }
            end_line(&mut header, start, &writer.style);
            writer.header = Some(header);
        }
        writer
    }

    /// The style of a table's options. A header is written only if the table asks for it.
    pub(crate) fn style_of(options: &CsvOptions) -> CsvStyle {
        let CsvSyntax { delimiter, quote, escape } = options.syntax;
        CsvStyle {
            delimiter,
            quote,
            escape,
            header: options.header == Some(true),
            null_literal: options.null_literal.clone(),
        }
    }

    /// What follows is the start of another file, or goes on within one.
    pub fn begin_again(&mut self, is_start: bool) {
        self.is_begun = !is_start;
    }

    /// Appends the header, if it is wanted and was not written.
    pub fn write_header(&mut self, out: &mut Vec<u8>) {
        if let Some(header) = self.header.as_ref().filter(|_| !self.is_begun) {
            out.extend_from_slice(header);
            self.is_begun = true;
        }
    }

    /// Appends the rows of a batch.
    ///
    /// # Errors
    /// An internal error for a column type that has no text.
    pub fn write(&mut self, batch: &StreamBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        self.write_header(out);
        let cells = batch.rows.columns().iter().map(|column| Cells::new(column.as_ref(), self.time));
        let cells = cells.collect::<Result<Vec<_>, _>>()?;
        for row in 0..batch.num_rows() {
            let start = out.len();
            for (index, (cells, is_text)) in cells.iter().zip(&self.texts).enumerate() {
                if index > 0 {
                    out.push(self.style.delimiter);
                }
                if cells.is_null(row) {
                    out.extend_from_slice(self.style.null_literal.as_deref().unwrap_or("").as_bytes());
                    continue;
                }
                self.scratch.clear();
                cells.push_text(row, &mut self.scratch);
                push_field(out, &self.scratch, *is_text, &self.style, index == 0);
            }
            end_line(out, start, &self.style);
        }
        Ok(())
    }
}

/// Ends a line; one that would be empty gets quotes, because empty lines are no rows.
fn end_line(out: &mut Vec<u8>, start: usize, style: &CsvStyle) {
    if let (true, Some(quote)) = (out.len() == start, style.quote) {
        // With the empty text as the null literal, quotes would make it a text.
        if style.null_literal.as_deref() != Some("") {
            out.extend_from_slice(&[quote, quote]);
        }
    }
    out.push(b'\n');
}

fn push_field(out: &mut Vec<u8>, value: &[u8], is_text: bool, style: &CsvStyle, is_first: bool) {
    let Some(quote) = style.quote else {
        out.extend_from_slice(value);
        return;
    };
    let is_special = |byte: &u8| {
        *byte == style.delimiter
            || *byte == quote
            || matches!(byte, b'\n' | b'\r')
            || Some(*byte) == style.escape
    };
    let is_null_literal = style.null_literal.as_ref().is_some_and(|literal| literal.as_bytes() == value);
    let is_comment = is_first && value.first() == Some(&b'#');
    // Blanks around a text survive without quotes here, but not in every other reader.
    let has_blank_ends = is_text && value != value.trim_ascii();
    if !(is_null_literal || is_comment || has_blank_ends || value.iter().any(is_special)) {
        out.extend_from_slice(value);
        return;
    }
    out.push(quote);
    for byte in value {
        if *byte == quote || Some(*byte) == style.escape {
            out.push(style.escape.unwrap_or(quote));
        }
        out.push(*byte);
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use arrow::array::{ArrayRef, Int32Array, RecordBatch, StringArray, TimestampMillisecondArray};

    use super::*;

    fn text(columns: Vec<(&str, ArrayRef)>, style: CsvStyle) -> String {
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let mut writer = CsvWriter::new(&rows.schema(), style);
        let mut out = Vec::new();
        let batch = StreamBatch::inserts(rows, Instant::now());
        writer.write(&batch, &mut out).unwrap();
        writer.write(&batch.slice(0, 0), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn quotes_where_they_are_needed() {
        let texts = StringArray::from(vec![
            Some("a,b"),
            Some("\"q\""),
            Some("two\nlines"),
            Some("#x"),
            Some(" y"),
            None,
        ]);
        let columns: Vec<(&str, ArrayRef)> =
            vec![("s,t", Arc::new(texts)), ("ts", Arc::new(TimestampMillisecondArray::from(vec![0; 6])))];
        assert_eq!(
            text(columns, CsvStyle::default()),
            "\"s,t\",ts\n\"a,b\",1970-01-01 00:00:00.000\n\"\"\"q\"\"\",1970-01-01 00:00:00.000\n\
             \"two\nlines\",1970-01-01 00:00:00.000\n\"#x\",1970-01-01 00:00:00.000\n\
             \" y\",1970-01-01 00:00:00.000\n,1970-01-01 00:00:00.000\n"
        );
    }

    #[test]
    fn lines_are_never_empty() {
        let column =
            || -> Vec<(&str, ArrayRef)> { vec![("v", Arc::new(Int32Array::from(vec![None, Some(1)])))] };
        let plain = CsvStyle { header: false, ..CsvStyle::default() };
        assert_eq!(text(column(), plain.clone()), "\"\"\n1\n");
        let literal = CsvStyle { null_literal: Some("1".to_owned()), ..plain };
        assert_eq!(text(column(), literal), "1\n\"1\"\n");
    }
}

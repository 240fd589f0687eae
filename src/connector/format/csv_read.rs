//! Reads CSV straight into Arrow buffers.
//!
//! Rules: a field that is empty and not quoted is NULL, but for a STRING it is the empty text; a
//! quoted empty field is the empty text of a STRING and NULL for other types. With a null literal a
//! field that is it, and is not quoted, is NULL for every type. Lines without characters are no rows.
//! ARRAY, MAP and ROW values are JSON texts, BYTES are base64.
//!
//! With a header the columns are found by name, in any order, and further fields are left alone;
//! without one they stand in the order of the table. When nothing is said, the first line is a
//! header if all column names of the table stand in it.

use super::column::{Column, Fault, Values};
use super::csv_scan::{CsvScanner, CsvSyntax, Field, decode_field};
use super::json_read::append_json;
use super::rows::{RowFault, Rows};
use crate::error::{Error, code, did_you_mean};

/// How a CSV table is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvOptions {
    pub(crate) syntax: CsvSyntax,
    /// `None`: look.
    pub(crate) header: Option<bool>,
    pub(crate) null_literal: Option<String>,
    pub(crate) allow_comments: bool,
}

/// Decodes CSV.
#[derive(Debug)]
pub(crate) struct CsvReader {
    options: CsvOptions,
    scanner: CsvScanner,
    /// The table's physical columns.
    table: Vec<String>,
    /// For each requested column, where it stands in the table.
    wanted: Vec<usize>,
    /// For each requested column, its field; known after the first record.
    places: Vec<usize>,
    expected: usize,
    started: bool,
    scratch: Vec<u8>,
}

impl CsvReader {
    /// A reader of the columns at `wanted` of a table with these physical columns.
    pub(crate) fn new(options: CsvOptions, table: Vec<String>, wanted: Vec<usize>) -> Self {
        let scanner = CsvScanner::new(options.syntax);
        let (places, expected) = (wanted.clone(), table.len());
        Self { options, scanner, table, wanted, places, expected, started: false, scratch: Vec::new() }
    }

    /// Decodes complete records until the batch is full; the number of bytes used.
    ///
    /// `line`: the number of the line at `data[0]`; moved on.
    ///
    /// # Errors
    /// `F002` under the policy `fail`, or if the header lacks a column.
    pub(crate) fn feed(
        &mut self,
        data: &[u8],
        is_last: bool,
        line: &mut u64,
        rows: &mut Rows,
        split: &str,
    ) -> Result<usize, Error> {
        let mut used = 0;
        while used < data.len() && !rows.is_full() {
            let rest = &data[used..];
            if self.options.allow_comments && self.scanner.is_at_start() && rest[0] == b'#' {
                match memchr::memchr(b'\n', rest) {
                    Some(end) => used += end + 1,
                    None if is_last => used = data.len(),
                    None => break,
                }
                *line += 1;
                continue;
            }
            let Some(length) = self.scanner.record(rest, is_last) else { break };
            let number = *line;
            let record = &rest[..length];
            *line += self.line_ends(record);
            used += length;
            self.record(record, number, rows, split)?;
            self.scanner.reset();
        }
        Ok(used)
    }

    fn line_ends(&self, record: &[u8]) -> u64 {
        if self.scanner.fields().iter().any(|field| field.quoted) || self.options.syntax.escape.is_some() {
            memchr::memchr_iter(b'\n', record).count() as u64
        } else {
            1
        }
    }

    fn record(&mut self, record: &[u8], line: u64, rows: &mut Rows, split: &str) -> Result<(), Error> {
        // In a single column an empty line is NULL, if the empty text is said to be.
        let is_null_row = self.table.len() == 1 && self.options.null_literal.as_deref() == Some("");
        if !is_null_row && is_blank(self.scanner.fields(), record, self.table.len()) {
            return Ok(());
        }
        let text = trim_line_end(record);
        if let Err(error) = std::str::from_utf8(record) {
            self.started = true;
            let fault = RowFault::broken(format!("byte {}: not UTF-8", error.valid_up_to() + 1));
            return rows.reject(line, text, fault);
        }
        if !self.started {
            self.started = true;
            if self.take_header(record, split)? {
                return Ok(());
            }
        }
        if let Some(fault) = self.scanner.fault() {
            return rows.reject(line, text, RowFault::broken(fault));
        }
        let found = self.scanner.fields().len();
        if found != self.expected {
            let fault = RowFault::broken(format!(
                "{found} {} where {} {} expected",
                if found == 1 { "field" } else { "fields" },
                self.expected,
                if self.expected == 1 { "is" } else { "are" }
            ));
            let hint = match (line, self.options.header) {
                (1, None) => "Set 'csv.header' = 'true' if the first line holds column names.",
                _ => "Set 'errors' = 'side' or 'skip' to go on without such rows.",
            };
            return rows.reject(line, text, fault.hint(hint));
        }
        match self.fields(record, rows) {
            Ok(()) => {
                rows.end_row(line, record.len());
                Ok(())
            }
            Err(fault) => rows.reject(line, text, fault),
        }
    }

    /// Whether the first record is a header; if so, finds the columns in it.
    fn take_header(&mut self, record: &[u8], split: &str) -> Result<bool, Error> {
        if self.options.header == Some(false) {
            return Ok(false);
        }
        let names: Vec<String> = self
            .scanner
            .fields()
            .iter()
            .map(|field| field_text(record, field, self.options.syntax))
            .collect();
        let place = |column: &String| {
            names
                .iter()
                .position(|name| name.trim() == column)
                .or_else(|| names.iter().position(|name| name.trim().eq_ignore_ascii_case(column)))
        };
        if self.options.header.is_none() && !self.table.iter().all(|column| place(column).is_some()) {
            return Ok(false);
        }
        self.places.clear();
        for index in &self.wanted {
            let column = &self.table[*index];
            let found = place(column).ok_or_else(|| {
                let error = Error::run(
                    code::MALFORMED,
                    format!("{split} line 1, the header has no column \"{column}\""),
                );
                match did_you_mean(column, names.iter().map(String::as_str)) {
                    Some(near) => error.hint(format!("Use \"{near}\", or change the header.")),
                    None => error.hint(format!("Use columns of the header: {}.", names.join(", "))),
                }
            })?;
            self.places.push(found);
        }
        self.expected = names.len();
        Ok(true)
    }

    fn fields(&mut self, record: &[u8], rows: &mut Rows) -> Result<(), RowFault> {
        let nulls_misfits = rows.nulls_misfits();
        for (column, place) in rows.columns().iter_mut().zip(&self.places) {
            let field = self.scanner.fields()[*place];
            let raw = &record[field.start..field.end];
            let result = if field.coded {
                self.scratch.clear();
                decode_field(&mut self.scratch, raw, field.quoted, self.options.syntax);
                append(column, &self.scratch, field.quoted, raw, &self.options)
            } else {
                append(column, raw, field.quoted, raw, &self.options)
            };
            if let Err(fault) = result {
                if nulls_misfits && column.append_null().is_ok() {
                    continue;
                }
                let shown = format!("\"{}\"", field_text(record, &field, self.options.syntax));
                return Err(RowFault::value(column.field.name(), column.field.data_type(), &shown, fault));
            }
        }
        Ok(())
    }
}

/// Appends a field's value. On an error nothing was appended.
#[inline]
fn append(
    column: &mut Column,
    value: &[u8],
    quoted: bool,
    raw: &[u8],
    options: &CsvOptions,
) -> Result<(), Fault> {
    if !quoted && options.null_literal.as_ref().is_some_and(|literal| literal.as_bytes() == raw) {
        return column.append_null();
    }
    match &column.values {
        Values::Text(_) => column.append_text(value),
        _ if value.is_empty() => column.append_null(),
        Values::List { .. } | Values::Map { .. } | Values::Row(_) => {
            let len = column.len();
            append_json(column, value).inspect_err(|_| column.truncate(len))
        }
        _ => column.append_text(value),
    }
}

fn field_text(record: &[u8], field: &Field, syntax: CsvSyntax) -> String {
    let mut text = Vec::new();
    decode_field(&mut text, &record[field.start..field.end], field.quoted, syntax);
    String::from_utf8_lossy(&text).into_owned()
}

/// A line without characters; with several columns, also one of blanks only.
pub(super) fn is_blank(fields: &[Field], record: &[u8], columns: usize) -> bool {
    match fields {
        [field] if !field.quoted => {
            let text = &record[field.start..field.end];
            text.is_empty() || (columns > 1 && text.iter().all(u8::is_ascii_whitespace))
        }
        _ => false,
    }
}

fn trim_line_end(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

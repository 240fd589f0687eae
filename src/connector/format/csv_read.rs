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
//!
//! Lines without quotes and escapes are read field by field as they come; what does not fit is read again
//! with all care.

use super::column::{Column, Fault, Values};
use super::csv_scan::{CsvScanner, CsvSyntax, Field, decode_field, plain_field_end};
use super::json_read::append_json;
use super::number::{Digits, digits_at};
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
#[derive(Debug, Clone)]
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
    /// For each field of a record the column that it is, if one; `None`: a field is several columns.
    targets: Option<Vec<Option<usize>>>,
    checked: Checked,
}

/// The first bytes of what is to be decoded, which were looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Checked {
    bytes: usize,
    /// They are whole lines of valid UTF-8 without quotes.
    is_plain: bool,
}

impl CsvReader {
    /// A reader of the columns at `wanted` of a table with these physical columns.
    pub(crate) fn new(options: CsvOptions, table: Vec<String>, wanted: Vec<usize>) -> Self {
        let scanner = CsvScanner::new(options.syntax);
        let (places, expected) = (wanted.clone(), table.len());
        let mut reader = Self {
            options,
            scanner,
            table,
            wanted,
            places,
            expected,
            started: false,
            scratch: Vec::new(),
            targets: None,
            checked: Checked::default(),
        };
        reader.find_targets();
        reader
    }

    /// Finds out which column each field is.
    fn find_targets(&mut self) {
        let mut targets = vec![None; self.expected];
        let is_taken = |(column, place): (usize, &usize)| {
            targets.get_mut(*place).is_some_and(|target| target.replace(column).is_none())
        };
        let is_clear = self.places.iter().enumerate().all(is_taken);
        self.targets = is_clear.then_some(targets);
    }

    /// Which field each wanted column is, and how many there are: what a header has told; `None`: it did not come yet.
    pub(crate) fn header(&self) -> Option<(&[usize], usize)> {
        self.started.then_some((self.places.as_slice(), self.expected))
    }

    /// Goes on behind a header that another reader of the same columns has read.
    pub(crate) fn resume(&mut self, places: Vec<usize>, fields: usize) {
        (self.places, self.expected, self.started) = (places, fields, true);
        self.find_targets();
    }

    /// Forgets what it knows of the bytes that come; the columns stay.
    pub(crate) fn go_on(&mut self) {
        self.scanner.reset();
        self.checked = Checked::default();
    }

    /// Where the last whole record of `data` ends, which begins with one; 0 if none does. Line ends end records
    /// where no quote or escape is; else it has to be looked at each of them.
    pub(crate) fn end_of_records(&self, data: &[u8]) -> usize {
        let CsvSyntax { quote, escape, .. } = self.options.syntax;
        let has = |byte: Option<u8>| byte.is_some_and(|byte| memchr::memchr(byte, data).is_some());
        if !has(quote) && !has(escape) {
            return memchr::memrchr(b'\n', data).map_or(0, |end| end + 1);
        }
        let mut scanner = CsvScanner::new(self.options.syntax);
        let mut end = 0;
        while end < data.len() {
            let rest = &data[end..];
            let length = match self.options.allow_comments && rest[0] == b'#' {
                true => memchr::memchr(b'\n', rest).map(|end| end + 1),
                false => scanner.record(rest, false),
            };
            let Some(length) = length else { break };
            scanner.reset();
            end += length;
        }
        end
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
            if self.started && self.scanner.is_at_start() {
                if used >= self.checked.bytes {
                    self.check(data, used);
                }
                let lines = &data[used..self.checked.bytes];
                if self.checked.is_plain
                    && let Some(length) = self.plain_record(lines, rows)
                {
                    rows.end_row(*line, length);
                    *line += 1;
                    used += length;
                    continue;
                }
            }
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
        self.checked.bytes = self.checked.bytes.saturating_sub(used);
        Ok(used)
    }

    /// Looks at the whole lines of `data` from `start` on.
    fn check(&mut self, data: &[u8], start: usize) {
        let bytes = memchr::memrchr(b'\n', &data[start..]).map_or(start, |end| start + end + 1);
        let lines = &data[start..bytes];
        let has_quotes =
            self.options.syntax.quote.is_some_and(|quote| memchr::memchr(quote, lines).is_some());
        let is_plain = !has_quotes && std::str::from_utf8(lines).is_ok();
        self.checked = Checked { bytes, is_plain };
    }

    /// Appends the record at the start of `lines`, which are plain and end with a line end; its length with its
    /// end. `None`: nothing was appended, it must be read with care.
    #[inline]
    fn plain_record(&self, lines: &[u8], rows: &mut Rows) -> Option<usize> {
        let targets = self.targets.as_ref().filter(|targets| targets.len() > 1)?;
        let first = *lines.first()?;
        if self.options.syntax.escape.is_some() || (first == b'#' && self.options.allow_comments) {
            return None;
        }
        let row = rows.len();
        let length = self.plain_fields(lines, targets, rows.columns());
        if length.is_none() {
            rows.columns().iter_mut().for_each(|column| column.truncate(row));
        }
        length
    }

    /// [`Self::plain_record`], which may leave parts of a record.
    #[inline]
    fn plain_fields(&self, lines: &[u8], targets: &[Option<usize>], columns: &mut [Column]) -> Option<usize> {
        let delimiter = self.options.syntax.delimiter;
        let has_literal = self.options.null_literal.is_some();
        let mut at = 0;
        for (place, target) in targets.iter().enumerate() {
            let is_last = place + 1 == targets.len();
            let column = target.map(|column| &mut columns[column]);
            let expected = if is_last { b'\n' } else { delimiter };
            if !has_literal
                && let Some(Column { values: Values::Int64(_), .. }) = &column
                && let Some((value, end)) = plain_integer(lines, at)
                && lines.get(end) == Some(&expected)
            {
                column.into_iter().for_each(|column| column.append_integer(value));
                at = end + 1;
                continue;
            }
            let end = plain_field_end(lines, at, delimiter);
            if let Some(column) = column {
                let has_return = is_last && end > at && lines[end - 1] == b'\r';
                let value = &lines[at..end - usize::from(has_return)];
                append(column, value, false, value, &self.options).ok()?;
            }
            if lines.get(end) != Some(&expected) {
                return None;
            }
            at = end + 1;
        }
        Some(at)
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
        self.find_targets();
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

/// The whole number of few digits at `at`, and where it ends.
#[inline]
fn plain_integer(data: &[u8], at: usize) -> Option<(i64, usize)> {
    let is_negative = data.get(at) == Some(&b'-');
    let Digits { value, end } = digits_at(data, at + usize::from(is_negative))?;
    let value = value as i64;
    Some((if is_negative { -value } else { value }, end))
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

#[cfg(test)]
mod tests {
    use arrow::array::ArrayRef;
    use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::super::column::TimeRules;
    use super::super::rows::OnError;
    use super::super::text::{Decoder, TextFormat};
    use super::*;
    use crate::connector::RejectedRow;

    /// Columns, the lines of their rows, and rejected rows; or the error.
    type Found = Result<(Vec<ArrayRef>, Vec<u64>, Vec<RejectedRow>), Error>;

    fn schema() -> Schema {
        Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
            Field::new("s", DataType::Utf8, true),
            Field::new("n", DataType::Int64, false),
        ])
    }

    fn found(rows: &mut Rows) -> Found {
        let len = rows.len();
        let (columns, lines, rejected) = rows.take()?;
        Ok((columns, (0..len).map(|row| lines.of(row)).collect(), rejected))
    }

    /// The text as it is read in pieces of `step` bytes, or each line by a reader that saw no other.
    fn read(text: &[u8], options: &CsvOptions, on_error: OnError, step: Option<usize>) -> Found {
        let table = ["a", "unread", "t", "s", "n"].map(str::to_owned);
        let format = TextFormat::Csv(options.clone());
        let decoder = || Decoder::new(&format, "in.csv", &table, &schema(), &[]);
        let mut rows = Rows::new("in.csv", &schema(), TimeRules::default(), on_error, 1_000)?;
        match step {
            Some(step) => {
                let (mut decoder, mut start, mut end) = (decoder(), 0, 0);
                while start < text.len() {
                    end = (end + step).min(text.len());
                    start += decoder.feed(&text[start..end], end == text.len(), &mut rows)?;
                }
            }
            None => {
                for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
                    let mut decoder = decoder();
                    decoder.go_on_at(number);
                    decoder.feed(line, true, &mut rows)?;
                }
            }
        }
        found(&mut rows)
    }

    fn line() -> impl Strategy<Value = Vec<u8>> {
        let integer = || {
            select(vec![
                "1",
                "1",
                "-7",
                "007",
                " 5",
                "+5",
                "1234567890123456",
                "99999999999999999999",
                "1.0",
                "",
                "x",
            ])
        };
        let unread = select(vec!["", "x", "a text of more than thirty-two bytes, no", "é", "\"q, \"\"\""]);
        let time =
            select(vec!["2024-05-01 09:00:01.5", "2024-05-01T09:00:01", "2024-02-30 00:00:00", "", "5"]);
        let text = select(vec![
            "",
            "x",
            "漢",
            "\r",
            "\"a,b\"",
            "a\"b",
            "NULL",
            "a text of more than thirty-two bytes",
        ]);
        let end = select(vec!["", "", "\r", ",9", ","]);
        let mutation = proptest::option::weighted(0.2, (any::<prop::sample::Index>(), any::<u8>()));
        (integer(), unread, time, text, integer(), end, mutation).prop_map(
            |(a, unread, t, s, n, end, mutation)| {
                let mut line = format!("{a},{unread},{t},{s},{n}{end}").into_bytes();
                // A quote that is not closed goes on behind the line.
                if let Some((place, byte)) = mutation.filter(|_| !line.contains(&b'"')) {
                    let place = place.index(line.len());
                    line[place] = if matches!(byte, b'"' | b'\n') { b'#' } else { byte };
                }
                line
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]
        #[test]
        fn records_are_read_as_if_each_were_the_only_one(
            lines in proptest::collection::vec(line(), 1..12),
            step in 1usize..300,
            ends in any::<bool>(),
            null_literal in select(vec![None, Some("NULL"), Some("1"), Some("")]),
            allow_comments in any::<bool>(),
        ) {
            let mut text = lines.join(&b'\n');
            if ends {
                text.push(b'\n');
            }
            let options = CsvOptions {
                syntax: CsvSyntax { delimiter: b',', quote: Some(b'"'), escape: None },
                header: Some(false),
                null_literal: null_literal.map(str::to_owned),
                allow_comments,
            };
            for on_error in [OnError::Side, OnError::Null, OnError::Fail] {
                let expected = read(&text, &options, on_error, None);
                prop_assert_eq!(read(&text, &options, on_error, Some(step)), expected);
            }
        }
    }
}

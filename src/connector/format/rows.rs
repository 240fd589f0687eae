//! The rows of a batch that is being read, and what becomes of those that do not fit.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Schema};

use super::column::{Column, Fault, TimeRules};
use super::type_name::{sql_type_name, with_article};
use crate::connector::{Lines, RejectedRow};
use crate::error::{Error, code};
use crate::stream::{BATCH_BYTES, RowKind, RowKinds};

/// Values longer than this are cut in messages.
const MAX_SHOWN_CHARS: usize = 80;
/// Rejected rows keep this much of their text.
const MAX_KEPT_BYTES: usize = 1 << 20;

/// What becomes of a row that can't be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OnError {
    /// The query fails. Default.
    #[default]
    Fail,
    /// It is counted.
    Skip,
    /// It is kept for the side table.
    Side,
    /// A value of the wrong type becomes NULL; a row that can't be parsed is counted.
    /// Flink's `ignore-parse-errors`.
    Null,
}

/// Why a row does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowFault {
    what: String,
    hint: Option<String>,
}

impl RowFault {
    /// A row that is not of the format.
    pub(crate) fn broken(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// The same with a way out.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A value that does not fit its column. `shown`: the value, with quotes if it is a text.
    pub(crate) fn value(column: &str, data_type: &DataType, shown: &str, fault: Fault) -> Self {
        let name = sql_type_name(data_type);
        let shown = shorten(shown);
        let (what, hint) = match fault {
            Fault::NotOfType => (format!("{shown} is not {}", with_article(data_type)), None),
            Fault::OutOfRange => (format!("{shown} is out of range for {name}"), None),
            Fault::HasOffset => (
                format!("{shown} has an offset from UTC and is not {}", with_article(data_type)),
                Some(format!("Declare the column as {}.", name.replace("TIMESTAMP", "TIMESTAMP_LTZ"))),
            ),
            Fault::SkippedLocalTime => {
                (format!("{shown} does not exist: the clocks of the session's zone skip it"), None)
            }
            Fault::BareNumber => (
                format!("{shown} is a number and not {}", with_article(data_type)),
                Some(
                    "Say what it counts: 'timestamp-format' = 'epoch-seconds', 'epoch-millis' or \
                     'epoch-micros'."
                        .to_owned(),
                ),
            ),
            Fault::Null => ("NULL in a NOT NULL column".to_owned(), None),
        };
        Self { what: format!("column \"{column}\": {what}"), hint }
    }
}

/// At most [`MAX_SHOWN_CHARS`] characters, on one line.
pub(crate) fn shorten(text: &str) -> String {
    let mut out = String::new();
    for (count, character) in text.chars().enumerate() {
        if count == MAX_SHOWN_CHARS {
            out.push('…');
            break;
        }
        match character {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            control if control.is_control() => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// Rows that are being read.
#[derive(Debug)]
pub(crate) struct Rows {
    split: String,
    on_error: OnError,
    limit: usize,
    columns: Vec<Column>,
    lines: Vec<u64>,
    /// Of a changelog, one a row.
    kinds: Vec<RowKind>,
    rejected: Vec<RejectedRow>,
    bytes: usize,
    /// Why the record that is read now may be cut off; such a one never fails the query.
    cut_off: Option<&'static str>,
}

impl Rows {
    /// No rows yet. `schema`: the physical columns to decode. `limit`: most rows of a batch.
    ///
    /// # Errors
    /// `P002` if a text format can't hold a column's type.
    pub(crate) fn new(
        split: &str,
        schema: &Schema,
        rules: TimeRules,
        on_error: OnError,
        limit: usize,
    ) -> Result<Self, Error> {
        let columns = schema.fields().iter().map(|field| {
            Column::new(Arc::clone(field), rules).ok_or_else(|| {
                Error::run(
                    code::NOT_SUPPORTED,
                    format!(
                        "column \"{}\": the type {} can't be read from text",
                        field.name(),
                        sql_type_name(field.data_type())
                    ),
                )
            })
        });
        Ok(Self {
            split: split.to_owned(),
            on_error,
            limit: limit.max(1),
            columns: columns.collect::<Result<_, _>>()?,
            lines: Vec::new(),
            kinds: Vec::new(),
            rejected: Vec::new(),
            bytes: 0,
            cut_off: None,
        })
    }

    /// Whether the batch must be taken before more rows are read.
    pub(crate) fn is_full(&self) -> bool {
        self.lines.len() >= self.limit || self.rejected.len() >= self.limit || self.bytes >= BATCH_BYTES
    }

    /// Whether nothing was read since the last batch.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.rejected.is_empty()
    }

    /// Finished rows in the batch.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The columns, for a decoder to append to.
    pub(crate) fn columns(&mut self) -> &mut [Column] {
        &mut self.columns
    }

    /// Whether values of the wrong type become NULL.
    pub(crate) fn nulls_misfits(&self) -> bool {
        self.on_error == OnError::Null
    }

    /// Ends a row of `size` bytes: every column has one value more.
    pub(crate) fn end_row(&mut self, line: u64, size: usize) {
        self.lines.push(line);
        self.bytes += size;
        debug_assert!(self.columns.iter().all(|column| column.len() == self.lines.len()));
    }

    /// Ends the rows of a change of `size` bytes, each with what it does.
    pub(crate) fn end_change(&mut self, line: u64, size: usize, kinds: &[RowKind]) {
        self.lines.extend(std::iter::repeat_n(line, kinds.len()));
        self.kinds.extend_from_slice(kinds);
        self.bytes += size;
        debug_assert!(self.columns.iter().all(|column| column.len() == self.lines.len()));
    }

    /// What each row of the batch does; `None`: they are no changes, or all of them are new.
    pub(crate) fn take_kinds(&mut self) -> Option<RowKinds> {
        let kinds = std::mem::take(&mut self.kinds);
        kinds.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(kinds))
    }

    /// Takes back what was appended of a row, and does with it what the policy says.
    ///
    /// # Errors
    /// `F002` under the policy `fail`.
    pub(crate) fn reject(&mut self, line: u64, text: &[u8], fault: RowFault) -> Result<(), Error> {
        let rows = self.lines.len();
        self.columns.iter_mut().for_each(|column| column.truncate(rows));
        if let Some(why) = self.cut_off {
            self.push_rejected(line, text, why.to_owned());
            return Ok(());
        }
        if self.on_error == OnError::Fail {
            let error = Error::run(code::MALFORMED, format!("{} line {line}, {}", self.split, fault.what));
            return Err(error.hint(fault.hint.unwrap_or_else(|| {
                "Set 'errors' = 'side' or 'skip' to go on without such rows.".to_owned()
            })));
        }
        self.push_rejected(line, text, fault.what);
        Ok(())
    }

    /// What is read from now on may be cut off, for this reason: what does not fit is counted,
    /// whatever the policy. The sender is at fault and not the data.
    pub(crate) fn expect_cut_off(&mut self, why: Option<&'static str>) {
        self.cut_off = why;
    }

    /// Counts a record that was cut off, whatever the policy.
    pub(crate) fn reject_cut_off(&mut self, line: u64, text: &[u8], why: &str) {
        self.push_rejected(line, text, why.to_owned());
    }

    fn push_rejected(&mut self, line: u64, text: &[u8], reason: String) {
        let keep = self.on_error == OnError::Side;
        let text = if keep {
            String::from_utf8_lossy(&text[..text.len().min(MAX_KEPT_BYTES)]).into_owned()
        } else {
            String::new()
        };
        self.bytes += text.len();
        self.rejected.push(RejectedRow { line, text, reason, keep });
    }

    /// The batch: its columns, their lines, and the rejected rows.
    ///
    /// # Errors
    /// An internal error if the columns don't fit together.
    pub(crate) fn take(&mut self) -> Result<(Vec<ArrayRef>, Lines, Vec<RejectedRow>), Error> {
        self.bytes = 0;
        let lines = std::mem::take(&mut self.lines);
        self.lines.reserve(lines.len());
        let columns = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>, _>>();
        let columns = columns.map_err(|error| Error::internal("decoder", error))?;
        Ok((columns, compact(lines), std::mem::take(&mut self.rejected)))
    }
}

/// Line numbers as a range where they are one.
fn compact(lines: Vec<u64>) -> Lines {
    match lines.first() {
        Some(first) if lines.windows(2).all(|pair| pair[0] + 1 == pair[1]) => Lines::From(*first),
        Some(_) => Lines::Each(lines),
        None => Lines::From(1),
    }
}

//! Rows that a source does not pass on, in the columns of its second output.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray, new_null_array};
use arrow::record_batch::RecordBatch;

use super::batch_of;
use crate::connector::RejectedRow;
use crate::error::Error;
use crate::operator::late::times;
use crate::plan::LateOutput;

/// Makes rows of a source's second output.
pub(super) struct Rejects<'a> {
    pub(super) late: &'a LateOutput,
    pub(super) table: &'a str,
    pub(super) split: &'a str,
}

impl Rejects<'_> {
    /// Rows that can't be read, of which the text is left; those that are to be kept.
    pub(super) fn malformed(&self, rejected: &[RejectedRow]) -> Result<RecordBatch, Error> {
        let texts: Vec<&str> = rejected.iter().filter(|row| row.keep).map(|row| row.text.as_str()).collect();
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(&texts));
        let fields = self.late.schema.fields().iter().take(self.late.columns.len());
        let columns = fields.map(|field| new_null_array(field.data_type(), texts.len())).collect();
        self.rows("malformed", columns, text, &[])
    }

    /// Rows whose time is too far ahead. `rows` are in the columns of the source, `before` is the watermark
    /// of the split just before each.
    pub(super) fn future(&self, rows: &RecordBatch, before: &[i64]) -> Result<RecordBatch, Error> {
        let columns = self.late.columns.iter().map(|column| Arc::clone(rows.column(*column))).collect();
        self.rows("future", columns, Arc::new(StringArray::new_null(rows.num_rows())), before)
    }

    fn rows(
        &self,
        reason: &str,
        mut columns: Vec<ArrayRef>,
        text: ArrayRef,
        watermarks: &[i64],
    ) -> Result<RecordBatch, Error> {
        let count = text.len();
        let same = |text: &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, count)))
        };
        for field in &self.late.schema.fields()[self.late.columns.len()..] {
            columns.push(match field.name().as_str() {
                "late_reason" => same(reason),
                "late_operator" => same(&self.late.operator),
                "late_source" => same(self.table),
                "late_split" => same(self.split),
                "late_text" => Arc::clone(&text),
                "late_watermark" => {
                    let known = |row| watermarks.get(row).copied().filter(|known| *known > i64::MIN);
                    times((0..count).map(known), field.data_type())?
                }
                other => return Err(Error::internal("source", format!("no column \"{other}\""))),
            });
        }
        batch_of(&self.late.schema, columns, count)
    }
}

//! Rows as blocks: a line for each column.

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::cells;
use crate::error::Error;

/// Writes rows as blocks.
pub(super) struct ExpandedWriter {
    names: Vec<String>,
    width: usize,
    rows: u64,
}

impl ExpandedWriter {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let width = names.iter().map(|name| cells::width(name)).max().unwrap_or(0);
        Self { names, width, rows: 0 }
    }

    pub(super) fn write(
        &mut self,
        batch: &RecordBatch,
        out: &mut dyn Write,
    ) -> Result<io::Result<()>, Error> {
        let rows = cells::rows(batch)?;
        Ok(rows.iter().try_for_each(|row| self.block(row, out)))
    }

    fn block(&mut self, row: &[String], out: &mut dyn Write) -> io::Result<()> {
        self.rows += 1;
        writeln!(out, "-[ row {} ]{}", self.rows, "-".repeat(self.width))?;
        for (name, cell) in self.names.iter().zip(row) {
            let gap = self.width.saturating_sub(cells::width(name));
            writeln!(out, "{name}{:gap$} | {cell}", "")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    #[test]
    fn a_line_for_each_column() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 22]));
        let batch = RecordBatch::try_from_iter_with_nullable([("漢字", texts, true), ("n", numbers, true)])
            .expect("equal lengths");
        let mut writer = ExpandedWriter::new(&batch.schema());
        let mut out = Vec::new();
        writer.write(&batch, &mut out).expect("formats").expect("writes");
        assert_eq!(
            String::from_utf8(out).expect("is text"),
            "-[ row 1 ]----\n漢字 | a\nn    | 1\n-[ row 2 ]----\n漢字 | NULL\nn    | 22\n"
        );
    }
}

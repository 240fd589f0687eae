//! A result that changes, drawn again in its place.

use std::io::{BufWriter, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::Stop;
use super::table::TableWriter;

/// Lines of the terminal that are not for rows: the frame, a note, the status, the cursor's.
const OTHER_LINES: usize = 7;
/// Lines of a terminal that does not tell its height.
const LINES: usize = 24;

/// A table that takes the place of what it drew before.
pub(in super::super) struct LiveTable<'a> {
    schema: SchemaRef,
    out: &'a mut BufWriter<Box<dyn Write>>,
    /// Lines that stand on the screen.
    drawn: usize,
}

impl<'a> LiveTable<'a> {
    pub(super) fn new(schema: &SchemaRef, out: &'a mut BufWriter<Box<dyn Write>>) -> Self {
        Self { schema: SchemaRef::clone(schema), out, drawn: 0 }
    }

    /// Rows that fit on the screen.
    pub(in super::super) fn room() -> usize {
        let size = console::Term::stdout().size_checked();
        size.map_or(LINES, |(lines, _)| usize::from(lines)).saturating_sub(OTHER_LINES).max(3)
    }

    /// Draws these rows, the last ones of a result that has `total`.
    pub(in super::super) fn draw(&mut self, rows: &[RecordBatch], total: usize) -> Result<(), Stop> {
        let width = console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        let text = frame(&self.schema, rows, total, width)?;
        if self.drawn > 0 {
            write!(self.out, "\x1b[{}A\r\x1b[J", self.drawn)?;
        }
        self.out.write_all(text.as_bytes())?;
        self.drawn = text.matches('\n').count();
        Ok(self.out.flush()?)
    }
}

/// The table as it stands on the screen.
fn frame(
    schema: &SchemaRef,
    rows: &[RecordBatch],
    total: usize,
    width: Option<usize>,
) -> Result<String, Stop> {
    let mut table = TableWriter::new(schema, width);
    let mut bytes = Vec::new();
    for batch in rows {
        table.write(batch, &mut bytes)??;
    }
    table.end(&mut bytes)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    let shown: usize = rows.iter().map(RecordBatch::num_rows).sum();
    if shown < total {
        text += &format!("… {} rows that changed longer ago\n", total - shown);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::*;

    #[test]
    fn rows_that_do_not_fit_are_counted() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let batch = RecordBatch::try_from_iter([("n", numbers)]).expect("one column");
        let table = "+---+\n| n |\n+---+\n| 1 |\n| 2 |\n+---+\n";
        let drawn = |total| frame(&batch.schema(), std::slice::from_ref(&batch), total, None).ok();
        assert_eq!(drawn(2), Some(table.to_owned()));
        assert_eq!(drawn(5), Some(format!("{table}… 3 rows that changed longer ago\n")));
    }
}

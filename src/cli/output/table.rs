//! Rows in a frame, for people.
//!
//! A stream has no end at which widths could be known: rows are collected until the stream pauses
//! or there are many, then printed. Where a later row needs a wider column, the frame is closed and
//! a new header follows.

use std::io::{self, Write};

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::cells;
use crate::error::Error;

/// Rows that are collected before they are printed.
const CHUNK_ROWS: usize = 1_000;
/// A column is never cut below this, whatever the terminal.
const LEAST_CUT: usize = 8;

/// Prints rows in a frame.
pub(super) struct TableWriter {
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    /// Of the terminal, if rows are cut to fit it.
    line_width: Option<usize>,
    rows: Vec<Vec<String>>,
    has_header: bool,
}

impl TableWriter {
    pub(super) fn new(schema: &SchemaRef, line_width: Option<usize>) -> Self {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
        Self {
            widths: names.iter().map(|name| cells::width(name)).collect(),
            right: schema.fields().iter().map(|field| cells::is_right_aligned(field.data_type())).collect(),
            names,
            line_width,
            rows: Vec::new(),
            has_header: false,
        }
    }

    /// Takes rows; prints when there are many.
    pub(super) fn write(
        &mut self,
        batch: &RecordBatch,
        out: &mut dyn Write,
    ) -> Result<io::Result<()>, Error> {
        self.rows.extend(cells::rows(batch)?);
        if self.rows.len() < CHUNK_ROWS {
            return Ok(Ok(()));
        }
        Ok(self.print(out))
    }

    /// Prints what was collected.
    pub(super) fn print(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.rows);
        let widths = self.widths_for(&rows);
        if !self.has_header || widths != self.widths {
            if self.has_header {
                self.rule(out)?;
            }
            self.widths = widths;
            self.header(out)?;
        }
        rows.iter().try_for_each(|row| self.line(row, &self.right, out))
    }

    /// Prints what was collected and closes the frame.
    pub(super) fn end(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.print(out)?;
        if !self.has_header {
            self.widths = self.widths_for(&[]);
            return self.header(out);
        }
        self.rule(out)
    }

    /// Columns as wide as needed and never narrower than they are. Where the frame was wrong once,
    /// it gets some room.
    fn widths_for(&self, rows: &[Vec<String>]) -> Vec<usize> {
        let mut widths = self.widths.clone();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cells::width(cell));
            }
        }
        if self.has_header {
            for (width, before) in widths.iter_mut().zip(&self.widths) {
                if *width > *before {
                    *width = width.next_multiple_of(8);
                }
            }
        }
        if let Some(line_width) = self.line_width {
            shrink(&mut widths, line_width.saturating_sub(3 * self.names.len() + 1));
        }
        widths
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.has_header = true;
        self.rule(out)?;
        self.line(&self.names, &self.right, out)?;
        self.rule(out)
    }

    fn rule(&self, out: &mut dyn Write) -> io::Result<()> {
        for width in &self.widths {
            write!(out, "+{:-<1$}", "", width + 2)?;
        }
        writeln!(out, "+")
    }

    fn line(&self, cells: &[String], right: &[bool], out: &mut dyn Write) -> io::Result<()> {
        for ((cell, &width), &right) in cells.iter().zip(&self.widths).zip(right) {
            let shown = cells::fit(cell, width);
            let gap = width.saturating_sub(cells::width(&shown));
            match right {
                true => write!(out, "| {:gap$}{shown} ", "")?,
                false => write!(out, "| {shown}{:gap$} ", "")?,
            }
        }
        writeln!(out, "|")
    }
}

/// Takes from the widest columns until the sum fits, or nothing can be cut any more.
fn shrink(widths: &mut [usize], most: usize) {
    while widths.iter().sum::<usize>() > most {
        match widths.iter_mut().filter(|width| **width > LEAST_CUT).max() {
            Some(widest) => *widest -= 1,
            None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, StringArray};

    use super::*;

    fn batch(texts: &[Option<&str>], numbers: &[i64]) -> RecordBatch {
        let texts: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        RecordBatch::try_from_iter([("s", texts), ("n", numbers)]).expect("equal lengths")
    }

    fn shown(batches: &[RecordBatch], line_width: Option<usize>) -> String {
        let mut table = TableWriter::new(&batches[0].schema(), line_width);
        let mut out = Vec::new();
        for batch in batches {
            table.write(batch, &mut out).expect("formats").expect("writes");
            table.print(&mut out).expect("writes");
        }
        table.end(&mut out).expect("writes");
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn right_edges_stand_in_one_column() {
        let rows = batch(
            &[Some("abc"), Some("数据库"), Some("e\u{301}te\u{301}"), Some("👩‍👩‍👧"), None],
            &[1, 22, 333, 4, 5],
        );
        assert_eq!(
            shown(&[rows], None),
            "+--------+-----+\n\
             | s      |   n |\n\
             +--------+-----+\n\
             | abc    |   1 |\n\
             | 数据库 |  22 |\n\
             | e\u{301}te\u{301}    | 333 |\n\
             | 👩‍👩‍👧     |   4 |\n\
             | NULL   |   5 |\n\
             +--------+-----+\n"
        );
    }

    #[test]
    fn an_empty_result_has_a_header() {
        assert_eq!(shown(&[batch(&[], &[])], None), "+---+---+\n| s | n |\n+---+---+\n");
    }

    #[test]
    fn a_wider_row_closes_the_frame_and_opens_another() {
        let narrow = batch(&[Some("a")], &[1]);
        let wide = batch(&[Some("abc")], &[2]);
        assert_eq!(
            shown(&[narrow.clone(), narrow.clone(), wide, narrow], None),
            "+---+---+\n| s | n |\n+---+---+\n| a | 1 |\n| a | 1 |\n+---+---+\n\
             +----------+---+\n| s        | n |\n+----------+---+\n| abc      | 2 |\n| a        | 1 |\n+----------+---+\n"
        );
    }

    #[test]
    fn a_narrow_terminal_cuts_the_widest_column() {
        let rows = batch(&[Some("漢字漢字漢字漢字漢字")], &[7]);
        // 20 columns: 7 of the frame, 1 for n, 12 for s: five characters of two, and the mark.
        assert_eq!(
            shown(&[rows], Some(20)),
            "+--------------+---+\n| s            | n |\n+--------------+---+\n| 漢字漢字漢…  | 7 |\n+--------------+---+\n"
        );
    }
}

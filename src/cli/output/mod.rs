//! Rows to standard output, in the format that was asked for.

mod cells;
mod table;

use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use self::table::TableWriter;
use super::args::Format;
use crate::connector::format::{CsvStyle, CsvWriter, JsonLines, JsonStyle};
use crate::error::{Error, code};
use crate::stream::StreamBatch;

/// Why nothing more can be written.
#[derive(Debug)]
pub(super) enum Stop {
    /// The reader of the output has gone. A normal end.
    Closed,
    /// Something went wrong.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        if error.code() == code::CLOSED_PIPE.0 { Self::Closed } else { Self::Failed(error) }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => {
                Self::Failed(Error::run(code::UNWRITABLE, format!("can't write to standard output: {error}")))
            }
        }
    }
}

/// Standard output: buffered, flushed when the stream of rows pauses.
pub(super) struct Output {
    out: BufWriter<Stdout>,
    format: Format,
    line_width: Option<usize>,
    has_results: bool,
}

impl Output {
    /// In this format, or in the one that fits: a table on a terminal, JSON elsewhere.
    pub(super) fn new(format: Option<Format>) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let format = format.unwrap_or(if is_terminal { Format::Table } else { Format::Json });
        let line_width = || console::Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        Self {
            out: BufWriter::with_capacity(64 * 1024, io::stdout()),
            format,
            line_width: if is_terminal { line_width() } else { None },
            has_results: false,
        }
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Starts a result with these columns.
    pub(super) fn rows(&mut self, schema: &SchemaRef) -> Result<RowWriter<'_>, Stop> {
        if self.has_results && self.format == Format::Table {
            writeln!(self.out)?;
        }
        self.has_results = true;
        let encoder = match self.format {
            Format::Table => Encoder::Table(TableWriter::new(schema, self.line_width)),
            Format::Json => Encoder::Json(JsonLines::new(schema, JsonStyle::Rows)),
            Format::ChangelogJson => Encoder::Json(JsonLines::new(schema, JsonStyle::Changelog)),
            Format::Csv => {
                let mut encoder = CsvWriter::new(schema, CsvStyle::default());
                let mut header = Vec::new();
                encoder.write_header(&mut header);
                self.out.write_all(&header)?;
                Encoder::Csv(encoder)
            }
        };
        Ok(RowWriter { out: &mut self.out, encoder, bytes: Vec::new(), is_dirty: true })
    }

    /// Writes a text and a line end.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Stop> {
        self.has_results = true;
        writeln!(self.out, "{}", text.trim_end_matches('\n'))?;
        Ok(self.out.flush()?)
    }

    /// Writes rows that are all at hand.
    pub(super) fn batch(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let mut writer = self.rows(&batch.schema())?;
        writer.write(&StreamBatch::inserts(batch.clone(), Instant::now()))?;
        writer.end()
    }
}

enum Encoder {
    Table(TableWriter),
    Json(JsonLines),
    Csv(CsvWriter),
}

/// Writes the rows of one result.
pub(super) struct RowWriter<'a> {
    out: &'a mut BufWriter<Stdout>,
    encoder: Encoder,
    bytes: Vec<u8>,
    is_dirty: bool,
}

impl RowWriter<'_> {
    /// Takes rows with what they do to the result.
    pub(super) fn write(&mut self, batch: &StreamBatch) -> Result<(), Stop> {
        self.is_dirty = true;
        match &mut self.encoder {
            Encoder::Table(table) => return Ok(table.write(&batch.rows, self.out)??),
            Encoder::Json(encoder) => encoder.write(batch, &mut self.bytes)?,
            Encoder::Csv(encoder) => encoder.write(batch, &mut self.bytes)?,
        }
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    /// The rows pause: shows what there is.
    pub(super) fn pause(&mut self) -> Result<(), Stop> {
        if std::mem::take(&mut self.is_dirty) {
            if let Encoder::Table(table) = &mut self.encoder {
                table.print(self.out)?;
            }
            self.out.flush()?;
        }
        Ok(())
    }

    /// The last row has come.
    pub(super) fn end(mut self) -> Result<(), Stop> {
        if let Encoder::Table(table) = &mut self.encoder {
            table.end(self.out)?;
        }
        Ok(self.out.flush()?)
    }
}

//! Rows to standard output or a file, in the format that was asked for.

mod cells;
mod expanded;
mod live;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::time::Instant;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use self::expanded::ExpandedWriter;
use self::table::TableWriter;
use super::args::Format;
use crate::connector::format::{CsvStyle, CsvWriter, JsonLines, JsonStyle};
use crate::error::{Error, code};
use crate::stream::StreamBatch;

pub(super) use live::LiveTable;

/// Bytes that are written at once.
const BUFFER: usize = 64 * 1024;

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

/// Standard output or a file: buffered, flushed when the stream of rows pauses.
pub(super) struct Output {
    out: BufWriter<Box<dyn Write>>,
    format: Format,
    is_terminal: bool,
    has_results: bool,
    /// Tables are blocks: a line for each column.
    is_expanded: bool,
    /// Rows of a table that are shown of a result that ends.
    most_rows: Option<usize>,
}

impl Output {
    /// In this format, or in the one that fits: a table on a terminal, JSON elsewhere.
    pub(super) fn new(format: Option<Format>) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let format = format.unwrap_or(if is_terminal { Format::Table } else { Format::Json });
        Self {
            out: BufWriter::with_capacity(BUFFER, Box::new(io::stdout())),
            format,
            is_terminal,
            has_results: false,
            is_expanded: false,
            most_rows: None,
        }
    }

    pub(super) fn set_format(&mut self, format: Format) {
        self.format = format;
    }

    pub(super) fn is_expanded(&self) -> bool {
        self.is_expanded
    }

    pub(super) fn set_expanded(&mut self, is_expanded: bool) {
        self.is_expanded = is_expanded;
    }

    pub(super) fn set_most_rows(&mut self, most: Option<usize>) {
        self.most_rows = most;
    }

    /// Writes to a file from now on, or to standard output again.
    pub(super) fn redirect(&mut self, file: Option<&str>) -> Result<(), Stop> {
        self.out.flush()?;
        let out: Box<dyn Write> = match file {
            Some(file) => Box::new(File::create(file).map_err(|error| {
                Error::run(code::UNWRITABLE, format!("can't write \"{file}\": {error}"))
                    .hint("Check the folder and the permissions.")
            })?),
            None => Box::new(io::stdout()),
        };
        self.out = BufWriter::with_capacity(BUFFER, out);
        self.is_terminal = file.is_none() && io::stdout().is_terminal();
        self.has_results = false;
        Ok(())
    }

    /// Columns of the terminal as it is now, if rows go to one.
    pub(super) fn line_width(&self) -> Option<usize> {
        let size = if self.is_terminal { console::Term::stdout().size_checked() } else { None };
        size.map(|(_, columns)| usize::from(columns)).filter(|columns| *columns > 0)
    }

    /// Whether a table can be drawn again in its place.
    pub(super) fn is_live(&self) -> bool {
        self.is_terminal && self.format == Format::Table && !self.is_expanded
    }

    /// A table that is drawn again and again in its place.
    pub(super) fn live(&mut self, schema: &SchemaRef) -> LiveTable<'_> {
        self.has_results = true;
        LiveTable::new(schema, &mut self.out)
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Starts a result with these columns. `ends`: by itself, so that rows beyond those that are shown
    /// can be counted.
    pub(super) fn rows(&mut self, schema: &SchemaRef, ends: bool) -> Result<RowWriter<'_>, Stop> {
        let line_width = self.line_width();
        if self.has_results && self.format == Format::Table {
            writeln!(self.out)?;
        }
        self.has_results = true;
        let encoder = match self.format {
            Format::Table if self.is_expanded => Encoder::Expanded(ExpandedWriter::new(schema)),
            Format::Table => Encoder::Table(TableWriter::new(schema, line_width)),
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
        let most = self.most_rows.filter(|_| ends && self.format == Format::Table);
        let room = most.unwrap_or(usize::MAX);
        Ok(RowWriter { out: &mut self.out, encoder, bytes: Vec::new(), is_dirty: true, room, left_out: 0 })
    }

    /// Writes a text and a line end.
    pub(super) fn text(&mut self, text: &str) -> Result<(), Stop> {
        self.has_results = true;
        writeln!(self.out, "{}", text.trim_end_matches('\n'))?;
        Ok(self.out.flush()?)
    }

    /// Writes rows that are all at hand.
    pub(super) fn batch(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        let mut writer = self.rows(&batch.schema(), true)?;
        writer.write(&StreamBatch::inserts(batch.clone(), Instant::now()))?;
        writer.end()
    }
}

enum Encoder {
    Table(TableWriter),
    Expanded(ExpandedWriter),
    Json(JsonLines),
    Csv(CsvWriter),
}

/// Writes the rows of one result.
pub(super) struct RowWriter<'a> {
    out: &'a mut BufWriter<Box<dyn Write>>,
    encoder: Encoder,
    bytes: Vec<u8>,
    is_dirty: bool,
    /// Rows that are still shown, and how many were not.
    room: usize,
    left_out: usize,
}

impl RowWriter<'_> {
    /// Takes rows with what they do to the result.
    pub(super) fn write(&mut self, batch: &StreamBatch) -> Result<(), Stop> {
        self.is_dirty = true;
        let shown = batch.num_rows().min(self.room);
        self.room = self.room.saturating_sub(shown);
        self.left_out += batch.num_rows() - shown;
        let cut;
        let batch = match shown < batch.num_rows() {
            true => {
                cut = batch.slice(0, shown);
                &cut
            }
            false => batch,
        };
        match &mut self.encoder {
            Encoder::Table(table) => return Ok(table.write(&batch.rows, self.out)??),
            Encoder::Expanded(blocks) => return Ok(blocks.write(&batch.rows, self.out)??),
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
        if self.left_out > 0 {
            let more = self.left_out;
            writeln!(self.out, "… {more} more rows; \\rows 0 shows all, \\o FILE writes them to a file")?;
        }
        Ok(self.out.flush()?)
    }
}

//! The text writers behind one door, for sinks.

use arrow::datatypes::Schema;

use super::csv_write::CsvWriter;
use super::json_write::{JsonLines, JsonStyle};
use super::options::{FormatOptions, Kind};
use super::raw::RawWriter;
use crate::error::{Error, code};
use crate::stream::StreamBatch;

/// Writes rows as text.
#[derive(Debug)]
pub(crate) enum Encoder {
    Json(JsonLines),
    Csv(CsvWriter),
    Raw(RawWriter),
}

impl Encoder {
    /// The writer of a text format.
    ///
    /// # Errors
    /// `P002` for a format that is no text.
    pub(crate) fn new(options: &FormatOptions, schema: &Schema) -> Result<Self, Error> {
        Ok(match (options.kind, options.csv()) {
            (Kind::Csv, Some(csv)) => {
                Self::Csv(CsvWriter::with_times(schema, CsvWriter::style_of(csv), options.time_style))
            }
            (Kind::Raw, _) => Self::Raw(RawWriter),
            (Kind::Json, _) => Self::Json(JsonLines::with_times(schema, JsonStyle::Rows, options.time_style)),
            (Kind::ChangelogJson, _) => {
                Self::Json(JsonLines::with_times(schema, JsonStyle::Changelog, options.time_style))
            }
            (kind @ (Kind::Parquet | Kind::Csv | Kind::DebeziumJson), _) => {
                let message = format!("format \"{}\" can't be written as text", kind.name());
                return Err(Error::run(code::NOT_SUPPORTED, message));
            }
        })
    }

    /// Appends what stands before the first row.
    pub(crate) fn start(&mut self, out: &mut Vec<u8>) {
        if let Self::Csv(writer) = self {
            writer.write_header(out);
        }
    }

    /// What follows is the start of another file, or goes on within one.
    pub(crate) fn begin_again(&mut self, is_start: bool) {
        if let Self::Csv(writer) = self {
            writer.begin_again(is_start);
        }
    }

    /// Appends a batch.
    ///
    /// # Errors
    /// An internal error for a column type that has no text.
    pub(crate) fn write(&mut self, batch: &StreamBatch, out: &mut Vec<u8>) -> Result<(), Error> {
        match self {
            Self::Json(writer) => writer.write(batch, out),
            Self::Csv(writer) => writer.write(batch, out),
            Self::Raw(writer) => {
                writer.write(batch, out);
                Ok(())
            }
        }
    }
}

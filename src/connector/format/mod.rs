//! Formats: bytes to rows and rows to bytes.
//!
//! Readers are driven by the schema: only requested columns are decoded, straight into Arrow
//! buffers, and a row that does not fit leaves no trace in them. Writers append to a byte buffer.
//! What a writer writes, the reader of the same options reads back.
//!
//! Times are read as `2024-05-01 09:00:01` or with a `T`, with or without seconds and fraction, or as
//! the date alone (midnight). More digits than the column has are cut, never rounded. An offset (`Z`,
//! `+02:00`) fits TIMESTAMP_LTZ only; without one, TIMESTAMP_LTZ is read in the session's time zone,
//! the earlier instant where the clocks show a time twice. Numbers are times only if
//! `'timestamp-format'` says what they count. Days, hours and seconds that do not exist are errors.
//!
//! Numbers are exact: DECIMAL never passes through a float (digits beyond the scale are rounded half
//! up), and an integer column takes neither a fraction nor a number that is out of range.
//!
//! A row that does not fit stops the query and names file, line, column, text and type (`'errors' =
//! 'fail'`), goes to the side table with its text (`'side'`) or is counted (`'skip'`). Flink's
//! `'json.ignore-parse-errors'` and `'csv.ignore-parse-errors'` make a value of the wrong type NULL
//! and count only rows that can't be parsed at all.
//!
//! Invariant: no files, no pipes; what a format does never depends on how its input was cut.

mod base64;
mod cell;
mod column;
mod csv_read;
mod csv_scan;
mod csv_write;
mod debezium;
mod encoder;
mod infer;
mod json_read;
mod json_scan;
mod json_template;
mod json_write;
mod number;
pub(crate) mod options;
mod raw;
#[cfg(test)]
mod round_trip_tests;
mod rows;
mod text;
pub(crate) mod time_text;
mod type_name;

pub use csv_write::{CsvStyle, CsvWriter};
pub use json_write::{JsonLines, JsonStyle};

pub(crate) use cell::RowText;
pub(crate) use encoder::Encoder;
pub(crate) use infer::{InferredColumns, csv_columns, json_columns};
pub(crate) use options::{FormatOptions, Kind};
pub(crate) use rows::Rows;
pub(crate) use text::{Decoder, TextFormat};
pub(crate) use type_name::sql_type_name;

//! Formats: bytes to rows and rows to bytes.
//!
//! Readers are driven by the schema: only requested columns are decoded, straight into Arrow
//! buffers, and a row that does not fit leaves no trace in them. Writers append to a byte buffer.
//! What a writer writes, the reader of the same options reads back.
//!
//! Invariant: no files, no pipes; what a format does never depends on how its input was cut.

mod base64;
mod cell;
mod column;
mod csv_read;
mod csv_scan;
mod csv_write;
mod encoder;
mod infer;
mod json_read;
mod json_scan;
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

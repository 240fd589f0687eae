//! The format `raw`: a line is the value of the only column, STRING or BYTES.

use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;

use super::rows::{RowFault, Rows};
use crate::error::Error;
use crate::stream::StreamBatch;

/// Takes a line as it is. A line without characters is an empty value, not nothing.
pub(crate) fn read_line(line: &[u8], number: u64, is_text: bool, rows: &mut Rows) -> Result<(), Error> {
    if is_text && std::str::from_utf8(line).is_err() {
        return rows.reject(number, line, RowFault::broken("not UTF-8"));
    }
    // Without a requested column only the rows count.
    let fault = rows.columns().first_mut().and_then(|column| {
        let fault = column.append_bytes(line).err()?;
        Some(RowFault::value(column.field.name(), column.field.data_type(), "the line", fault))
    });
    if let Some(fault) = fault {
        return rows.reject(number, line, fault);
    }
    rows.end_row(number, line.len());
    Ok(())
}

/// Writes the first column's values, one a line; NULL is an empty line.
#[derive(Debug, Default)]
pub(crate) struct RawWriter;

impl RawWriter {
    /// Appends the batch.
    pub(crate) fn write(&mut self, batch: &StreamBatch, out: &mut Vec<u8>) {
        let column = batch.rows.column(0);
        for row in 0..column.len() {
            if column.is_valid(row) {
                match column.data_type() {
                    DataType::Binary => out.extend_from_slice(column.as_binary::<i32>().value(row)),
                    _ => out.extend_from_slice(column.as_string::<i32>().value(row).as_bytes()),
                }
            }
            out.push(b'\n');
        }
    }
}

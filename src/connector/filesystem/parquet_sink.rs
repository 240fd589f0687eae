//! Writes rows as Parquet.

use std::fs::File;
use std::io;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::placement::{Placement, unwritable};
use crate::connector::Sink;
use crate::error::{Error, code};
use crate::stream::StreamBatch;

/// A Parquet file.
pub(super) struct ParquetSink {
    placement: Placement,
    schema: SchemaRef,
    writer: Option<ArrowWriter<File>>,
    rows: u64,
}

impl ParquetSink {
    pub(super) fn new(placement: Placement, schema: SchemaRef) -> Result<Self, Error> {
        if placement.is_stream() {
            return Err(Error::run(
                code::UNWRITABLE,
                format!("can't write \"{}\": a Parquet file can't be written to a pipe", placement.shown()),
            )
            .hint("Use format 'json' or 'csv' for pipes."));
        }
        let file = placement.file()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, schema.clone(), Some(properties))
            .map_err(|error| failed(placement.shown(), error))?;
        Ok(Self { placement, schema, writer: Some(writer), rows: 0 })
    }
}

impl Sink for ParquetSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        self.rows += batch.num_rows() as u64;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows =
            RecordBatch::try_new_with_options(self.schema.clone(), batch.rows.columns().to_vec(), &options)
                .map_err(|error| {
                Error::run(code::UNWRITABLE, format!("can't write \"{}\": {error}", self.placement.shown()))
            })?;
        let Some(writer) = &mut self.writer else {
            return Err(Error::internal("parquet sink", "written to after its end"));
        };
        writer.write(&rows).map_err(|error| failed(self.placement.shown(), error))
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        if let Some(writer) = self.writer.take() {
            writer.close().map_err(|error| failed(self.placement.shown(), error))?;
        }
        self.placement.commit(self.rows == 0)
    }

    fn abort(&mut self) {
        self.writer = None;
        self.placement.discard();
    }
}

/// `F003` with the system's reason where there is one.
fn failed(path: &str, error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(error) => unwritable(path, &error),
            Err(other) => Error::run(code::UNWRITABLE, format!("can't write \"{path}\": {other}")),
        },
        other => Error::run(code::UNWRITABLE, format!("can't write \"{path}\": {other}")),
    }
}

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
use serde_json::Value;

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
        let mut sink = Self { placement, schema, writer: None, rows: 0 };
        if sink.placement.is_begun() {
            sink.begin()?;
        }
        Ok(sink)
    }

    /// Begins a file.
    fn begin(&mut self) -> Result<(), Error> {
        let file = self.placement.file()?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let writer = ArrowWriter::try_new(file, self.schema.clone(), Some(properties));
        self.writer = Some(writer.map_err(|error| failed(self.placement.shown(), error))?);
        Ok(())
    }

    fn close(&mut self) -> Result<(), Error> {
        match self.writer.take() {
            Some(writer) => writer.close().map(drop).map_err(|error| failed(self.placement.shown(), error)),
            None => Ok(()),
        }
    }
}

impl Sink for ParquetSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        if self.writer.is_none() && self.placement.has_parts() {
            self.begin()?;
        }
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
        self.close()?;
        self.placement.commit(self.rows == 0)
    }

    fn prepare(&mut self) -> Result<Option<Value>, Error> {
        if !self.placement.has_parts() {
            let message = format!(
                "the one Parquet file \"{}\" can't be part of a checkpoint: it is whole only at its end",
                self.placement.shown()
            );
            return Err(Error::plan(code::NOT_SUPPORTED, message).hint(
                "Use the path of a folder, which gets a part with each checkpoint, or format 'json'.",
            ));
        }
        if self.rows > 0 {
            self.close()?;
        }
        let prepared = self.placement.prepare(self.rows == 0)?;
        self.rows = 0;
        Ok(prepared)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.placement.commit_parts()
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

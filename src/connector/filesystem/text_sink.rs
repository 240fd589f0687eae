//! Writes rows as text into a file or pipe.

use std::fs::File;
use std::io::{self, Write};

use arrow::datatypes::Schema;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::placement::{Placement, unwritable};
use crate::connector::Sink;
use crate::connector::format::{Encoder, FormatOptions};
use crate::connector::input::Compression;
use crate::error::Error;
use crate::stream::StreamBatch;

/// Bytes that are gathered before a file is written to.
const BUFFER: usize = 256 << 10;

/// A file of a text format.
pub(super) struct TextSink {
    placement: Placement,
    encoder: Encoder,
    compression: Compression,
    out: Out,
    buffer: Vec<u8>,
    rows: u64,
}

/// The way to the file.
enum Out {
    /// A pipe whose reader may not be there yet: waiting for it must not keep the query from starting.
    Unopened,
    Plain(File),
    Gzip(GzEncoder<File>),
    Zstd(zstd::stream::write::Encoder<'static, File>),
    Closed,
}

impl Out {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Unopened | Self::Closed => Err(io::Error::other("the file is closed")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
            Self::Unopened | Self::Closed => Ok(()),
        }
    }

    /// Writes what compression still holds.
    fn finish(&mut self) -> io::Result<()> {
        match std::mem::replace(self, Self::Closed) {
            Self::Plain(mut file) => file.flush(),
            Self::Gzip(encoder) => encoder.finish().map(drop),
            Self::Zstd(encoder) => encoder.finish().map(drop),
            Self::Unopened | Self::Closed => Ok(()),
        }
    }
}

impl TextSink {
    pub(super) fn new(
        placement: Placement,
        format: &FormatOptions,
        compression: Compression,
        schema: &Schema,
    ) -> Result<Self, Error> {
        let (encoder, buffer) = (Encoder::new(format, schema)?, Vec::new());
        let mut sink = Self { placement, encoder, compression, out: Out::Unopened, buffer, rows: 0 };
        if !sink.placement.is_stream() && !sink.placement.has_parts() {
            sink.open()?;
        }
        sink.begin();
        Ok(sink)
    }

    /// The same in the place of one that was prepared.
    pub(super) fn resumed(
        placement: Placement,
        format: &FormatOptions,
        compression: Compression,
        schema: &Schema,
        prepared: &Value,
    ) -> Result<Self, Error> {
        let (encoder, buffer) = (Encoder::new(format, schema)?, Vec::new());
        let mut sink = Self { placement, encoder, compression, out: Out::Unopened, buffer, rows: 0 };
        sink.rows = prepared.get("rows").and_then(Value::as_u64).unwrap_or(0);
        let is_new = sink.placement.has_parts() || prepared.get("length").and_then(Value::as_u64) == Some(0);
        match is_new {
            true => sink.begin(),
            false => sink.encoder.begin_again(false),
        }
        Ok(sink)
    }

    /// What stands before the rows of a file.
    fn begin(&mut self) {
        self.encoder.begin_again(true);
        self.encoder.start(&mut self.buffer);
    }

    fn open(&mut self) -> Result<(), Error> {
        let file = self.placement.file()?;
        let failed = |error: io::Error| unwritable(self.placement.shown(), &error);
        self.out = match self.compression {
            Compression::Gzip => Out::Gzip(GzEncoder::new(file, flate2::Compression::default())),
            Compression::Zstd => Out::Zstd(zstd::stream::write::Encoder::new(file, 0).map_err(failed)?),
            Compression::None | Compression::Auto => Out::Plain(file),
        };
        Ok(())
    }

    /// Writes all that is held back: what follows would be compressed by itself.
    fn close(&mut self) -> Result<(), Error> {
        self.drain()?;
        self.out.finish().map_err(|error| unwritable(self.placement.shown(), &error))?;
        self.out = Out::Unopened;
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Error> {
        if matches!(self.out, Out::Unopened) && (self.placement.is_stream() || !self.buffer.is_empty()) {
            self.open()?;
        }
        if self.buffer.is_empty() {
            return Ok(());
        }
        let result = self.out.write_all(&self.buffer);
        self.buffer.clear();
        result.map_err(|error| unwritable(self.placement.shown(), &error))
    }
}

impl Sink for TextSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        self.rows += batch.num_rows() as u64;
        self.encoder.write(batch, &mut self.buffer)?;
        if self.placement.is_stream() {
            return self.flush();
        }
        if self.buffer.len() >= BUFFER { self.drain() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if !self.placement.is_stream() {
            return Ok(());
        }
        self.drain()?;
        self.out.flush().map_err(|error| unwritable(self.placement.shown(), &error))
    }

    fn finish(&mut self) -> Result<(), Error> {
        if self.placement.is_closed() {
            return Ok(());
        }
        // Of a folder the next part may not have been begun.
        if !self.placement.has_parts() || self.rows > 0 {
            self.close()?;
        }
        self.placement.commit(self.rows == 0)
    }

    fn prepare(&mut self) -> Result<Option<Value>, Error> {
        if self.placement.is_stream() {
            self.flush()?;
            return Ok(None);
        }
        let has_parts = self.placement.has_parts();
        if !has_parts && !self.placement.is_closed() || self.rows > 0 {
            self.close()?;
        }
        let mut prepared = self.placement.prepare(self.rows == 0)?;
        if has_parts {
            if self.rows > 0 {
                self.begin();
            }
            self.rows = 0;
        } else if let Some(prepared) = &mut prepared {
            prepared["rows"] = self.rows.into();
        }
        Ok(prepared)
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.placement.commit_parts()
    }

    fn abort(&mut self) {
        self.buffer = Vec::new();
        self.out = Out::Closed;
        self.placement.discard();
    }
}

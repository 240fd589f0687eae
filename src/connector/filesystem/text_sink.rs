//! Writes rows as text into a file or pipe.

use std::fs::File;
use std::io::{self, Write};

use arrow::datatypes::Schema;
use flate2::write::GzEncoder;

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
        let mut encoder = Encoder::new(format, schema)?;
        let mut buffer = Vec::new();
        encoder.start(&mut buffer);
        let mut sink = Self { placement, encoder, compression, out: Out::Unopened, buffer, rows: 0 };
        if !sink.placement.is_stream() {
            sink.open()?;
        }
        Ok(sink)
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

    fn drain(&mut self) -> Result<(), Error> {
        if matches!(self.out, Out::Unopened) {
            self.open()?;
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
        self.drain()?;
        self.out.finish().map_err(|error| unwritable(self.placement.shown(), &error))?;
        self.placement.commit(self.rows == 0)
    }

    fn abort(&mut self) {
        self.buffer = Vec::new();
        self.out = Out::Closed;
        self.placement.discard();
    }
}

//! Reads the text of a file, pipe or terminal as rows.

use super::assembly::{Assembly, SplitFacts};
use super::format::{Decoder, FormatOptions, Rows, TextFormat};
use super::input::Input;
use super::{CancelToken, ReadRequest, SplitBatch, SplitReader};
use crate::error::{Error, code};

const FIRST_BUFFER: usize = 256 << 10;
const MAX_RECORD: usize = 1 << 30;

/// Opens the bytes of a split; called on the reader's thread when its first rows are wanted.
pub(crate) type Open = Box<dyn FnOnce() -> Result<Input, Error> + Send>;

/// A split of a text format.
pub(crate) struct TextSplit {
    facts: SplitFacts,
    assembly: Assembly,
    decoder: Decoder,
    rows: Rows,
    cancel: CancelToken,
    input: State,
    buffer: Vec<u8>,
    /// The part of the buffer that is not decoded.
    start: usize,
    end: usize,
    bytes_read: u64,
}

enum State {
    Unopened(Open),
    Open(Input),
    /// All bytes are in the buffer.
    Read,
}

impl TextSplit {
    /// A split that is opened when it is first read. `table`: the table's physical columns.
    ///
    /// # Errors
    /// `P002` if the format can't hold a column's type.
    pub(crate) fn new(
        facts: SplitFacts,
        open: Open,
        format: &TextFormat,
        options: &FormatOptions,
        table: &[String],
        request: &ReadRequest,
    ) -> Result<Self, Error> {
        let assembly = Assembly::new(request);
        let schema = assembly.physical();
        let rows = Rows::new(&facts.path, schema, options.rules, options.on_error, request.batch_rows)?;
        let decoder = Decoder::new(format, &facts.path, table, schema);
        Ok(Self {
            facts,
            assembly,
            decoder,
            rows,
            cancel: request.cancel.clone(),
            input: State::Unopened(open),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            bytes_read: 0,
        })
    }

    fn take(&mut self) -> Result<Option<SplitBatch>, Error> {
        let rows = self.rows.len();
        let (columns, lines, rejected) = self.rows.take()?;
        let rows = self.assembly.batch(columns, rows, &lines, &self.facts)?;
        Ok(Some(SplitBatch { rows, lines, rejected }))
    }

    /// Reads more bytes behind those that are not decoded yet.
    fn fill(&mut self) -> Result<(), Error> {
        if matches!(self.input, State::Unopened(_))
            && let State::Unopened(open) = std::mem::replace(&mut self.input, State::Read)
        {
            self.input = State::Open(open()?);
        }
        let State::Open(input) = &mut self.input else { return Ok(()) };
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.end >= MAX_RECORD {
                return Err(Error::run(
                    code::MALFORMED,
                    format!("{}: a line is longer than {MAX_RECORD} bytes", self.facts.path),
                )
                .hint("Check that the file is of this format, and not compressed in an unknown way."));
            }
            // Thousands of small files may be open at once. One byte more shows that a file has ended.
            let first = self.facts.size.map_or(FIRST_BUFFER, |size| {
                usize::try_from(size)
                    .map_or(FIRST_BUFFER, |size| size.saturating_add(1).clamp(4 << 10, FIRST_BUFFER))
            });
            self.buffer.resize((self.buffer.len() * 2).max(first), 0);
        }
        let count = input.read(&mut self.buffer[self.end..])?;
        self.bytes_read = input.bytes_read();
        self.end += count;
        if count == 0 {
            self.input = State::Read;
        }
        Ok(())
    }

    fn is_stream(&self) -> bool {
        matches!(&self.input, State::Open(input) if input.is_stream)
    }
}

impl SplitReader for TextSplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    fn next(&mut self) -> Result<Option<SplitBatch>, Error> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::interrupted());
            }
            let is_last = matches!(self.input, State::Read);
            let data = &self.buffer[self.start..self.end];
            self.start += self.decoder.feed(data, is_last, &mut self.rows)?;
            if is_last && self.start == self.end {
                self.buffer = Vec::new();
                (self.start, self.end) = (0, 0);
            }
            if self.rows.is_full() || (self.is_stream() && !self.rows.is_empty()) {
                return self.take();
            }
            if is_last {
                return if self.rows.is_empty() { Ok(None) } else { self.take() };
            }
            self.fill()?;
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes_read, self.facts.size)
    }
}

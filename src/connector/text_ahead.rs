//! Decodes a large text file by several threads: cut into chunks at the ends of records, in the order of the file.
//!
//! The one who asks for rows reads the bytes, cuts them and counts the lines, so that each chunk is decoded
//! as if all before it had been. Memory is bounded by the chunks in flight.

use std::collections::VecDeque;

use super::assembly::{Assembly, SplitFacts};
use super::format::{Decoder, Rows};
use super::ordered::Ordered;
use super::text_split::{ByteSource, Got, taken, too_long};
use super::{Read, SplitBatch};
use crate::error::Error;

/// A chunk is as long as most batches are, and not longer or shorter than this.
const SHORTEST_CHUNK: usize = 64 << 10;
const LONGEST_CHUNK: usize = 4 << 20;

/// The rest of a file that is decoded ahead.
pub(super) struct TextAhead {
    input: State,
    /// What was read and not cut off yet.
    rest: Vec<u8>,
    /// Knows where records end.
    decoder: Decoder,
    line: u64,
    chunk_bytes: usize,
    max_record: usize,
    most_in_flight: usize,
    work: Ordered<Chunk, Decoded>,
    /// Batches of the chunk that was taken last.
    ready: VecDeque<SplitBatch>,
    /// Bytes of the text, and the line behind, up to where chunks were cut.
    cut: (u64, u64),
    /// The same of the chunk that was taken last: its start and its end.
    taken: [(u64, u64); 2],
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
    bytes_read: u64,
}

enum State {
    Open(Box<dyn ByteSource>),
    /// It can't be read any further; that is said behind the rows before.
    Failed(Error),
    Read,
}

/// Whole records.
struct Chunk {
    buffer: Vec<u8>,
    end: usize,
    /// The number of its first line.
    line: u64,
    /// Bytes of the text and line at its start and its end.
    places: [(u64, u64); 2],
}

struct Decoded {
    batches: Vec<SplitBatch>,
    buffer: Vec<u8>,
    places: [(u64, u64); 2],
}

/// What one thread needs.
pub(super) struct Worker {
    pub(super) decoder: Decoder,
    pub(super) rows: Rows,
    pub(super) assembly: Assembly,
    pub(super) facts: SplitFacts,
}

impl Worker {
    fn decode(&mut self, chunk: Chunk) -> Result<Decoded, Error> {
        let Chunk { buffer, end, line, places } = chunk;
        let Self { decoder, rows, assembly, facts } = self;
        decoder.go_on_at(line);
        let (mut start, mut batches) = (0, Vec::with_capacity(1));
        while start < end {
            start += decoder.feed(&buffer[start..end], true, rows)?;
            if !rows.is_empty() {
                batches.push(taken(rows, assembly, facts)?);
            }
        }
        Ok(Decoded { batches, buffer, places })
    }
}

impl TextAhead {
    /// Goes on with what is in `rest` and then in `input`. The workers' decoders have read all before it, which was
    /// so many bytes of the text, `batch_bytes` of them for a batch.
    ///
    /// # Errors
    /// An internal error if a thread can't be started.
    pub(super) fn start(
        input: Box<dyn ByteSource>,
        rest: &[u8],
        (decoded, batch_bytes): (u64, usize),
        max_record: usize,
        workers: Vec<Worker>,
    ) -> Result<Self, Error> {
        let first = workers.first().ok_or_else(|| Error::internal("source", "nobody to read ahead"))?;
        let (decoder, name) = (first.decoder.clone(), format!("decode {}", first.facts.path));
        let most_in_flight = workers.len() + 2;
        let workers = workers.into_iter().map(|mut worker| move |chunk: Chunk| worker.decode(chunk));
        Ok(Self {
            bytes_read: input.bytes_read(),
            input: State::Open(input),
            rest: rest.to_vec(),
            line: decoder.line(),
            cut: (decoded, decoder.line()),
            taken: [(decoded, decoder.line()); 2],
            decoder,
            // A little less than a batch takes, so that most chunks make one batch and not a small second one.
            chunk_bytes: (batch_bytes - batch_bytes / 32).clamp(SHORTEST_CHUNK, LONGEST_CHUNK),
            max_record,
            most_in_flight,
            work: Ordered::start(&name, workers)?,
            ready: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// Bytes of the text, and the line behind them, from where a later reader goes on: with rows that were given
    /// already, where these are the first ones of a chunk.
    pub(super) fn position(&self) -> (u64, u64) {
        self.taken[usize::from(self.is_at_end())]
    }

    /// Whether all rows of the chunk were given.
    pub(super) fn is_at_end(&self) -> bool {
        self.ready.is_empty()
    }

    pub(super) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The next rows.
    pub(super) fn next(&mut self) -> Result<Read, Error> {
        loop {
            while self.work.in_flight() < self.most_in_flight && matches!(self.input, State::Open(_)) {
                match self.chunk() {
                    Ok(Some(chunk)) => self.work.give(chunk),
                    Ok(None) => self.input = State::Read,
                    Err(error) => self.input = State::Failed(error),
                }
            }
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Read::Rows(batch));
            }
            let Some(decoded) = self.work.take() else {
                return match std::mem::replace(&mut self.input, State::Read) {
                    State::Failed(error) => Err(error),
                    State::Open(_) | State::Read => Ok(Read::End),
                };
            };
            let Decoded { batches, buffer, places } = decoded?;
            self.taken = places;
            self.ready.extend(batches);
            // One that grew for a long record is not kept.
            if buffer.len() <= 2 * self.chunk_bytes {
                self.spare.push(buffer);
            }
        }
    }

    /// Reads the next chunk; `None` at the end of the file.
    fn chunk(&mut self) -> Result<Option<Chunk>, Error> {
        let State::Open(input) = &mut self.input else { return Ok(None) };
        let mut buffer = self.spare.pop().unwrap_or_default();
        let mut filled = self.rest.len();
        if buffer.len() < filled + self.chunk_bytes / 2 {
            buffer = vec![0; filled + self.chunk_bytes];
        }
        buffer[..filled].copy_from_slice(&self.rest);
        let end = loop {
            let mut is_last = false;
            while filled < buffer.len() && !is_last {
                match input.read(&mut buffer[filled..])? {
                    Got::Bytes(count) => filled += count,
                    Got::End => is_last = true,
                    _ => return Err(Error::internal("source", "a file that is no file")),
                }
            }
            self.bytes_read = input.bytes_read();
            if is_last {
                self.input = State::Read;
                break filled;
            }
            match self.decoder.end_of_records(&buffer[..filled]) {
                0 if filled >= self.max_record => return Err(too_long(self.decoder.split())),
                // A new buffer comes from the system as zeros.
                0 => {
                    let mut larger = vec![0; buffer.len() * 2];
                    larger[..filled].copy_from_slice(&buffer[..filled]);
                    buffer = larger;
                }
                end => break end,
            }
        };
        self.rest.clear();
        self.rest.extend_from_slice(&buffer[end..filled]);
        let line = self.line;
        self.line += memchr::memchr_iter(b'\n', &buffer[..end]).count() as u64;
        let before = self.cut;
        self.cut = (before.0 + end as u64, self.line);
        Ok((end > 0).then_some(Chunk { buffer, end, line, places: [before, self.cut] }))
    }
}

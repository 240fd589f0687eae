//! Reads the text of a file, pipe, connection or terminal as rows.

use serde_json::Value;

use super::assembly::{Assembly, SplitFacts};
use super::format::{Decoder, FormatOptions, Rows, TextFormat};
use super::text_ahead::{TextAhead, Worker};
use super::{CancelToken, Position, Read, ReadRequest, SplitBatch, SplitReader};
use crate::error::{Error, code};

const FIRST_BUFFER: usize = 256 << 10;
const MAX_RECORD: usize = 1 << 30;
/// A file is read ahead by several threads if at least so much of it follows its first batch.
const WORTH_AHEAD: u64 = 1 << 20;

/// Where the bytes of a split come from.
pub(crate) trait ByteSource: Send {
    /// Reads some bytes.
    ///
    /// # Errors
    /// `F001` with the name and the system's reason.
    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error>;

    /// Bytes of the medium itself that were read.
    fn bytes_read(&self) -> u64;

    /// What tells its bytes from others that may have their name later.
    fn identity(&self) -> Option<Value> {
        None
    }

    /// Goes on behind so many bytes, which an earlier reader has read, and which were those of `identity`. Called before all
    /// reads.
    ///
    /// # Errors
    /// `F001` if they can't be read, `K003` if they are not there any more.
    fn skip(&mut self, name: &str, bytes: u64, identity: Option<&Value>) -> Result<(), Error> {
        let _ = identity;
        let mut buffer = vec![0; 256 << 10];
        let mut left = bytes;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
            match self.read(&mut buffer[..most])? {
                Got::Bytes(count) => left -= count as u64,
                _ => return Err(shorter(name, bytes)),
            }
        }
        Ok(())
    }

    /// A read may wait: what is there must be given on before the next one.
    fn waits(&self) -> bool;

    /// All bytes are those of a file that is there and has an end, as they stand in it.
    fn is_plain_file(&self) -> bool {
        false
    }
}

/// A text that ends before the place up to which it was read before.
pub(crate) fn shorter(name: &str, bytes: u64) -> Error {
    let message = format!("{name}: it is shorter than the {bytes} bytes up to which it was read before");
    Error::run(code::FOREIGN_CHECKPOINT, message)
        .hint("Restore what was there, or begin anew with another folder for checkpoints.")
}

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    /// This many bytes, at least one.
    Bytes(usize),
    /// None now.
    Nothing,
    /// The bytes so far were all of one text; what follows is another: a file took the other's name.
    NextText,
    /// What was read is gone and not followed by the rest of it: the file was truncated.
    Truncated,
    /// The sender is gone, perhaps in the middle of a line.
    Hangup,
    /// No connection now; what follows is another text.
    Disconnected,
    /// Nothing will follow.
    End,
}

/// Opens the bytes of a split; called on the reader's thread when its first rows are wanted.
pub(crate) type Open = Box<dyn FnOnce() -> Result<Box<dyn ByteSource>, Error> + Send>;

/// A split of a text format.
pub(crate) struct TextSplit {
    facts: SplitFacts,
    assembly: Assembly,
    decoder: Decoder,
    /// A decoder for each text: it knows header and line.
    fresh: Box<dyn Fn() -> Decoder + Send>,
    /// No rows, for each thread that decodes.
    fresh_rows: Box<dyn Fn() -> Result<Rows, Error> + Send>,
    rows: Rows,
    /// Threads that may decode it, and what they do once they are wanted.
    threads: usize,
    ahead: Option<TextAhead>,
    cancel: CancelToken,
    input: State,
    buffer: Vec<u8>,
    /// The part of the buffer that is not decoded.
    start: usize,
    end: usize,
    bytes_read: u64,
    truncations: u64,
    /// What is in the buffer ends its text; another follows.
    text_ends: bool,
    /// Longest line, and whether a longer one ends the split or the query.
    max_record: usize,
    drops_long: bool,
    /// More may be written to it while it is read: its size is not known.
    grows: bool,
    /// Bytes of the text that were decoded.
    decoded: u64,
    /// Where an earlier reader of it has come to, until it is opened.
    resumes: Option<Position>,
}

enum State {
    Unopened(Open),
    Open(Box<dyn ByteSource>),
    /// All bytes are in the buffer.
    Read,
}

/// Why a line is not whole.
const HUNG_UP: &str = "the connection was closed in the middle of the line";
const CUT_SHORT: &str = "the file was cut short in the middle of the line";

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
        let schema = std::sync::Arc::clone(assembly.physical());
        let (rules, on_error, batch_rows) = (options.rules, options.on_error, request.batch_rows);
        let fresh_rows = {
            let (path, schema) = (facts.path.clone(), std::sync::Arc::clone(&schema));
            Box::new(move || Rows::new(&path, &schema, rules, on_error, batch_rows))
        };
        let (format, path, table) = (format.clone(), facts.path.clone(), table.to_vec());
        let key = request.key.clone();
        let fresh = Box::new(move || Decoder::new(&format, &path, &table, &schema, &key));
        Ok(Self {
            facts,
            assembly,
            decoder: fresh(),
            fresh,
            rows: fresh_rows()?,
            fresh_rows,
            threads: 1,
            ahead: None,
            cancel: request.cancel.clone(),
            input: State::Unopened(open),
            buffer: Vec::new(),
            start: 0,
            end: 0,
            bytes_read: 0,
            truncations: 0,
            text_ends: false,
            max_record: MAX_RECORD,
            drops_long: false,
            grows: false,
            decoded: 0,
            resumes: None,
        })
    }

    /// The same of a file that more is written to.
    pub(crate) fn that_grows(mut self) -> Self {
        self.grows = true;
        self
    }

    /// The same where a line of more than `bytes` is rejected and ends the split.
    pub(crate) fn with_longest_line(mut self, bytes: usize) -> Self {
        self.max_record = bytes;
        self.drops_long = true;
        self
    }

    /// The same, decoded by up to so many threads where it is a large file.
    pub(crate) fn with_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The number of the line that is decoded next.
    pub(super) fn next_line(&self) -> u64 {
        self.decoder.line()
    }

    /// The first line of what is read has this number.
    pub(super) fn begin_at(&mut self, line: u64) {
        self.decoder.go_on_at(line);
    }

    fn take(&mut self) -> Result<Read, Error> {
        taken(&mut self.rows, &self.assembly, &self.facts).map(Read::Rows)
    }

    /// Lets several threads decode what follows the first batch, if that is worth it.
    fn look_ahead(&mut self) -> Result<(), Error> {
        let State::Open(input) = &self.input else { return Ok(()) };
        let used = input.bytes_read().saturating_sub((self.end - self.start) as u64);
        let left = self.facts.size.map_or(0, |size| size.saturating_sub(used));
        let threads = std::mem::replace(&mut self.threads, 1);
        if threads < 2 || self.grows || !input.is_plain_file() || left < WORTH_AHEAD {
            return Ok(());
        }
        let State::Open(input) = std::mem::replace(&mut self.input, State::Read) else { return Ok(()) };
        let worker = |_| {
            let (assembly, facts) = (self.assembly.clone(), self.facts.clone());
            Ok(Worker { decoder: self.decoder.clone(), rows: (self.fresh_rows)()?, assembly, facts })
        };
        let workers = (0..threads).map(worker).collect::<Result<Vec<_>, Error>>()?;
        let rest = &self.buffer[self.start..self.end];
        let batch_bytes = usize::try_from(used).unwrap_or(usize::MAX);
        let begun = (self.decoded, batch_bytes);
        self.ahead = Some(TextAhead::start(input, rest, begun, self.max_record, workers)?);
        self.buffer = Vec::new();
        (self.start, self.end) = (0, 0);
        Ok(())
    }

    /// The rows at hand; `otherwise` if there are none.
    fn take_or(&mut self, otherwise: Read) -> Result<Read, Error> {
        if self.rows.is_empty() { Ok(otherwise) } else { self.take() }
    }

    /// Reads more bytes behind those that are not decoded yet.
    fn fill(&mut self) -> Result<Got, Error> {
        if matches!(self.input, State::Unopened(_))
            && let State::Unopened(open) = std::mem::replace(&mut self.input, State::Read)
        {
            let mut input = open()?;
            if let Some(position) = self.resumes.take() {
                let bytes = position.number("bytes")?;
                input.skip(&self.facts.path, bytes, position.0.get("of"))?;
                self.decoder.resume(&position)?;
                self.decoded = bytes;
            }
            self.input = State::Open(input);
        }
        let State::Open(input) = &mut self.input else { return Ok(Got::End) };
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            // Thousands of small files may be open at once. One byte more shows that a file has ended.
            let first = self.facts.size.filter(|_| !self.grows).map_or(FIRST_BUFFER, |size| {
                usize::try_from(size)
                    .map_or(FIRST_BUFFER, |size| size.saturating_add(1).clamp(4 << 10, FIRST_BUFFER))
            });
            // A new buffer comes from the system as zeros; nobody has to write them.
            let mut larger = vec![0; (self.buffer.len() * 2).max(first)];
            larger[..self.end].copy_from_slice(&self.buffer[..self.end]);
            self.buffer = larger;
        }
        let got = input.read(&mut self.buffer[self.end..])?;
        self.bytes_read = input.bytes_read();
        if let Got::Bytes(count) = got {
            self.end += count;
        }
        Ok(got)
    }

    /// Decodes what is in the buffer, until the batch is full.
    fn decode(&mut self, is_last: bool) -> Result<(), Error> {
        let data = &self.buffer[self.start..self.end];
        let used = self.decoder.feed(data, is_last, &mut self.rows)?;
        self.start += used;
        self.decoded += used as u64;
        Ok(())
    }

    /// The text has ended where it need not be whole.
    fn cut_text(&mut self, why: &'static str, may_be_whole: bool) -> Result<(), Error> {
        if self.start < self.end {
            if may_be_whole && self.decoder.knows_whole_records() {
                self.rows.expect_cut_off(Some(why));
                let decoded = self.decode(true);
                self.rows.expect_cut_off(None);
                decoded?;
            } else {
                let rest = &self.buffer[self.start..self.end];
                self.rows.reject_cut_off(self.decoder.line(), rest, why);
            }
        }
        self.begin_text();
        Ok(())
    }

    fn begin_text(&mut self) {
        self.decoder = (self.fresh)();
        self.decoded = 0;
        (self.start, self.end) = (0, 0);
    }

    /// Gives memory back where nothing is left to decode: many files may be quiet at once.
    fn rest(&mut self) {
        if self.start == self.end {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    fn is_too_long(&mut self) -> Result<bool, Error> {
        if self.end - self.start < self.max_record {
            return Ok(false);
        }
        if !self.drops_long {
            return Err(too_long(&self.facts.path));
        }
        let why = format!("the line is longer than {} bytes", self.max_record);
        self.rows.reject_cut_off(self.decoder.line(), &self.buffer[self.start..self.end], &why);
        self.begin_text();
        self.input = State::Read;
        Ok(true)
    }
}

/// The rows at hand as a batch.
pub(super) fn taken(rows: &mut Rows, assembly: &Assembly, facts: &SplitFacts) -> Result<SplitBatch, Error> {
    let count = rows.len();
    let kinds = rows.take_kinds();
    let (columns, lines, rejected) = rows.take()?;
    let rows = assembly.batch(columns, count, &lines, facts)?;
    Ok(SplitBatch { rows, lines, rejected, kinds })
}

/// A record without an end.
pub(super) fn too_long(split: &str) -> Error {
    Error::run(code::MALFORMED, format!("{split}: a line is longer than {MAX_RECORD} bytes"))
        .hint("Check that the file is of this format, and not compressed in an unknown way.")
}

impl SplitReader for TextSplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    fn next(&mut self) -> Result<Read, Error> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::interrupted());
            }
            if let Some(ahead) = &mut self.ahead {
                let read = ahead.next();
                self.bytes_read = ahead.bytes_read();
                return read;
            }
            let is_last = matches!(self.input, State::Read);
            self.decode(is_last || self.text_ends)?;
            if is_last {
                self.rest();
            }
            let gives_at_once = matches!(&self.input, State::Open(input) if input.waits());
            if self.rows.is_full() || (gives_at_once && !self.rows.is_empty()) {
                if self.threads > 1 {
                    self.look_ahead()?;
                }
                return self.take();
            }
            if is_last {
                return self.take_or(Read::End);
            }
            if std::mem::take(&mut self.text_ends) {
                self.begin_text();
            }
            if self.is_too_long()? {
                continue;
            }
            match self.fill()? {
                Got::Bytes(_) => {}
                Got::Nothing => {
                    self.rest();
                    return self.take_or(Read::Empty);
                }
                Got::NextText => self.text_ends = true,
                Got::Truncated => {
                    self.truncations += 1;
                    self.cut_text(CUT_SHORT, false)?;
                }
                Got::Disconnected => {
                    self.cut_text(HUNG_UP, true)?;
                    return self.take_or(Read::Disconnected);
                }
                Got::Hangup => {
                    self.cut_text(HUNG_UP, true)?;
                    self.input = State::Read;
                }
                Got::End => self.input = State::Read,
            }
        }
    }

    fn position(&self) -> Option<Position> {
        if let Some(resumes) = &self.resumes {
            return Some(resumes.clone());
        }
        // What a pipe or a connection gave does not come again.
        if self.facts.size.is_none() && !self.grows {
            return Some(Position::lost());
        }
        let (bytes, line) = match &self.ahead {
            Some(ahead) => ahead.position(),
            None => (self.decoded, self.decoder.line()),
        };
        let mut position = self.decoder.position(line);
        position["bytes"] = bytes.into();
        if self.ahead.as_ref().is_some_and(|ahead| !ahead.is_at_end()) {
            position["before"] = true.into();
        }
        let of = match &self.input {
            State::Open(input) => input.identity(),
            State::Unopened(_) | State::Read => None,
        };
        if let Some(of) = of {
            position["of"] = of;
        }
        Some(Position(position))
    }

    fn seek(&mut self, position: &Position) -> Result<(), Error> {
        position.number("bytes")?;
        position.number("line")?;
        self.resumes = Some(position.clone());
        Ok(())
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.bytes_read, self.facts.size.filter(|_| !self.grows))
    }

    fn truncations(&self) -> u64 {
        self.truncations
    }
}

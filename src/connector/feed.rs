//! The connector `feed`: tables whose rows, watermarks and silences a test gives one by one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef};
use serde_json::json;

use super::assembly::{SplitFacts, file_metadata};
use super::filesystem::physical_columns;
use super::format::options::{JSON_KEYS, TEXT_KEYS};
use super::format::{FormatOptions, JsonLines, JsonStyle, Kind, TextFormat};
use super::options::OptionReader;
use super::stdio::no_columns;
use super::text_split::{ByteSource, Got, TextSplit};
use super::{Connector, Position, Read, ReadRequest, Sink, Source, SplitReader};
use crate::catalog::{Options, Table, TableFacts};
use crate::error::{Error, code};
use crate::stream::{StreamBatch, Watermark};

/// Tables that a test feeds. A clone is the same set of tables.
///
/// Rows are lines of JSON, read as the format `json` reads them; a split keeps the order in which they
/// came. Every reader of a table reads all of it. What is inserted into a table is kept for the test,
/// and read like rows that were pushed.
#[derive(Debug, Clone, Default)]
pub struct Feed(Arc<Mutex<BTreeMap<String, Content>>>);

#[derive(Debug, Default)]
struct Content {
    splits: Vec<FedSplit>,
    bounded: bool,
    ended: bool,
    inserted: Vec<StreamBatch>,
}

#[derive(Debug, Default)]
struct FedSplit {
    name: String,
    events: Vec<FeedEvent>,
    disconnected: bool,
}

/// What comes out of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedEvent {
    /// Lines of JSON that are read together, as far as a batch holds them.
    Lines(String),
    /// No row up to this time will come.
    Watermark(Watermark),
    /// The split says by itself that it is idle.
    Idle,
    /// It says that it is not any more.
    Active,
    /// Nothing will come any more.
    End,
}

impl Content {
    fn split(&mut self, name: &str) -> &mut FedSplit {
        let place = self.splits.iter().position(|split| split.name == name).unwrap_or_else(|| {
            self.splits.push(FedSplit { name: name.to_owned(), ..FedSplit::default() });
            self.splits.len() - 1
        });
        &mut self.splits[place]
    }
}

impl Feed {
    /// No tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// The table will end: it is read like a file. To be said before it is created.
    pub fn bound(&self, table: &str) {
        self.content().entry(table.to_owned()).or_default().bounded = true;
    }

    /// Adds a split, unless it is there.
    pub fn add_split(&self, table: &str, split: &str) {
        self.content().entry(table.to_owned()).or_default().split(split);
    }

    /// Lets something come out of a split; the split is added if it is not there.
    pub fn give(&self, table: &str, split: &str, event: FeedEvent) {
        self.content().entry(table.to_owned()).or_default().split(split).events.push(event);
    }

    /// Takes back what came last into a split: nobody who still reads has read it.
    pub fn take_back(&self, table: &str, split: &str) {
        self.content().entry(table.to_owned()).or_default().split(split).events.pop();
    }

    /// Takes the connection of a split away, or gives it back.
    pub fn disconnect(&self, table: &str, split: &str, disconnected: bool) {
        self.content().entry(table.to_owned()).or_default().split(split).disconnected = disconnected;
    }

    /// Ends all splits of a table; no others will come.
    pub fn end(&self, table: &str) {
        let mut content = self.content();
        let table = content.entry(table.to_owned()).or_default();
        table.ended = true;
        table.splits.iter_mut().for_each(|split| split.events.push(FeedEvent::End));
    }

    /// Takes the rows that were inserted into a table since they were last taken.
    pub fn take_inserted(&self, table: &str) -> Vec<StreamBatch> {
        self.content().get_mut(table).map(|table| std::mem::take(&mut table.inserted)).unwrap_or_default()
    }

    /// The tables that something was inserted into and not taken.
    pub fn untaken(&self) -> Vec<String> {
        let content = self.content();
        let untaken = content.iter().filter(|(_, table)| !table.inserted.is_empty());
        untaken.map(|(name, _)| name.clone()).collect()
    }

    /// No code that holds the lock can leave the content half changed.
    fn content(&self) -> MutexGuard<'_, BTreeMap<String, Content>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The options that a fed table has: those of the format `json`. The format itself may be named.
fn read_options(options: &Options) -> Result<FormatOptions, Error> {
    let reader = OptionReader::new("connector \"feed\"", options, &[TEXT_KEYS, JSON_KEYS])?;
    FormatOptions::read(reader, Kind::Json, false)
}

impl Connector for Feed {
    fn name(&self) -> &'static str {
        "feed"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        read_options(&table.options)?.check_columns(table)?;
        let bounded = self.content().get(&table.name).is_some_and(|content| content.bounded);
        Ok(TableFacts {
            is_source: true,
            is_sink: true,
            bounded,
            takes_changelog: true,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(no_columns("feed"))
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        file_metadata()
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let mut content = self.content();
        let fed = content.entry(table.name.clone()).or_default();
        if fed.splits.is_empty() {
            fed.split(&table.name);
        }
        Ok(Box::new(FeedSource {
            feed: self.clone(),
            table: table.name.clone(),
            columns: physical_columns(table),
            options: read_options(&table.options)?,
            request: request.clone(),
            known: 0,
            goes_on: !fed.bounded && !fed.ended,
        }))
    }

    fn sink(&self, table: &Table, schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        let options = read_options(&table.options)?;
        let writer = JsonLines::with_times(&schema, JsonStyle::Rows, options.time_style);
        Ok(Box::new(FeedSink { feed: self.clone(), table: table.name.clone(), writer }))
    }

    fn dropped(&self, table: &Table) {
        self.content().remove(&table.name);
    }
}

struct FeedSource {
    feed: Feed,
    table: String,
    columns: Vec<String>,
    options: FormatOptions,
    request: ReadRequest,
    /// Splits that were given out.
    known: usize,
    goes_on: bool,
}

impl FeedSource {
    /// The splits that were not given out yet.
    fn new_splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let content = self.feed.content();
        let Some(table) = content.get(&self.table) else { return Ok(Vec::new()) };
        self.goes_on = !table.bounded && !table.ended;
        let names: Vec<String> = table.splits[self.known..].iter().map(|split| split.name.clone()).collect();
        self.known = table.splits.len();
        drop(content);
        names.into_iter().map(|name| self.split(name)).collect()
    }

    fn split(&self, name: String) -> Result<Box<dyn SplitReader>, Error> {
        let text: Arc<Mutex<VecDeque<u8>>> = Arc::default();
        let bytes = FedBytes(Arc::clone(&text));
        let lines = TextSplit::new(
            SplitFacts { path: name.clone(), ..SplitFacts::default() },
            Box::new(move || Ok(Box::new(bytes))),
            &TextFormat::Json { fail_on_missing: false },
            &self.options,
            &self.columns,
            &self.request,
        )?;
        let (feed, table) = (self.feed.clone(), self.table.clone());
        Ok(Box::new(FeedSplit { feed, table, name, read: 0, span: [1, 1], lines, text }))
    }
}

impl Source for FeedSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        self.new_splits()
    }

    fn discovers_every(&self) -> Option<Duration> {
        self.goes_on.then_some(Duration::from_millis(10))
    }

    fn discover(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        self.new_splits()
    }
}

struct FeedSplit {
    feed: Feed,
    table: String,
    name: String,
    /// Events that were read.
    read: usize,
    /// The lines of the last one that had some: the first, and the one behind the last.
    span: [u64; 2],
    lines: TextSplit,
    /// What `lines` reads.
    text: Arc<Mutex<VecDeque<u8>>>,
}

impl FeedSplit {
    /// The next event, or whether the split is connected.
    fn next_event(&mut self) -> Result<FeedEvent, bool> {
        let mut content = self.feed.content();
        let Some(table) = content.get_mut(&self.table) else { return Ok(FeedEvent::End) };
        let split = table.split(&self.name);
        if split.disconnected {
            return Err(false);
        }
        let event = split.events.get(self.read).cloned().ok_or(true)?;
        self.read += 1;
        Ok(event)
    }
}

impl SplitReader for FeedSplit {
    fn name(&self) -> &str {
        &self.name
    }

    /// Behind an event; where its lines are read in several batches, before it.
    fn position(&self) -> Option<Position> {
        Some(Position(match self.is_within() {
            false => json!({ "events": self.read, "line": self.span[1] }),
            true => json!({ "events": self.read - 1, "line": self.span[0], "before": true }),
        }))
    }

    fn seek(&mut self, position: &Position) -> Result<(), Error> {
        let line = position.number("line")?;
        self.read = position.number("events")? as usize;
        self.span = [line, line];
        self.lines.begin_at(line);
        Ok(())
    }

    fn next(&mut self) -> Result<Read, Error> {
        loop {
            match self.lines.next()? {
                Read::Empty => {}
                other => return Ok(other),
            }
            match self.next_event() {
                Ok(FeedEvent::Lines(lines)) => {
                    let count = lines.bytes().filter(|byte| *byte == b'\n').count() as u64 + 1;
                    self.span = [self.span[1], self.span[1] + count];
                    let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
                    text.extend(lines.into_bytes());
                    text.push_back(b'\n');
                }
                Ok(FeedEvent::Watermark(watermark)) => return Ok(Read::Watermark(watermark)),
                Ok(FeedEvent::Idle) => return Ok(Read::Idle),
                Ok(FeedEvent::Active) => return Ok(Read::Active),
                Ok(FeedEvent::End) => return Ok(Read::End),
                Err(true) => return Ok(Read::Empty),
                Err(false) => return Ok(Read::Disconnected),
            }
        }
    }
}

impl FeedSplit {
    /// Whether rows of the last lines are still to be given.
    fn is_within(&self) -> bool {
        self.lines.next_line() < self.span[1]
    }
}

/// The lines that came and were not read.
struct FedBytes(Arc<Mutex<VecDeque<u8>>>);

impl ByteSource for FedBytes {
    fn read(&mut self, buffer: &mut [u8]) -> Result<Got, Error> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = text.len().min(buffer.len());
        for (place, byte) in buffer.iter_mut().zip(text.drain(..count)) {
            *place = byte;
        }
        Ok(if count == 0 { Got::Nothing } else { Got::Bytes(count) })
    }

    fn bytes_read(&self) -> u64 {
        0
    }

    fn waits(&self) -> bool {
        true
    }
}

struct FeedSink {
    feed: Feed,
    table: String,
    writer: JsonLines,
}

impl Sink for FeedSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        let mut text = Vec::new();
        self.writer.write(batch, &mut text)?;
        let text = String::from_utf8(text).map_err(|error| Error::internal("feed", error))?;
        let mut content = self.feed.content();
        let table = content.entry(self.table.clone()).or_default();
        table.inserted.push(batch.clone());
        if batch.kinds.is_none() && batch.num_rows() > 0 {
            let name = self.table.as_str();
            if table.ended {
                return Err(Error::run(code::UNWRITABLE, format!("the table \"{name}\" was ended")));
            }
            table.split(name).events.push(FeedEvent::Lines(text.trim_end().to_owned()));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&mut self) {}
}

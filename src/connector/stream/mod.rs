//! The connector `stream`: tables that a program feeds while queries read them.
//!
//! A program registers a [`StreamTable`] with its session and gets a [`StreamInput`]; or it hands over an
//! iterator or asynchronous stream of batches, which is then read on a thread of its own.

mod hub;
mod input;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use futures_core::Stream;

use self::hub::{Event, Given, Hub, ReaderHandle};
use super::assembly::{Assembly, SplitFacts, source_metadata};
use super::options::OptionReader;
use super::stdio::no_sink;
use super::{
    CancelToken, Connector, Lines, Position, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader,
};
use crate::catalog::{Options, ReadRecovery, Table, TableFacts, TableRecovery, TableStatistics};
use crate::error::{Error, code};
use crate::stream::Watermark;

pub use input::StreamInput;

/// The connector's name.
pub(crate) const STREAM_CONNECTOR: &str = "stream";

/// Rows that wait until somebody reads them, where nobody says how many.
const CAPACITY_ROWS: usize = 65_536;
/// How long a reader waits before it says that there is nothing.
const WAIT: Duration = Duration::from_millis(50);

/// A table that a program feeds: its columns, and how its event time is told.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
/// use tidegate::connector::StreamTable;
///
/// let columns = Schema::new(vec![
///     Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
///     Field::new("price", DataType::Int64, true),
/// ]);
/// let bids = StreamTable::new("bids", Arc::new(columns))
///     .watermark("ts", "ts - INTERVAL '5' SECOND")
///     .idle_after(Duration::from_secs(30));
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct StreamTable {
    name: String,
    schema: SchemaRef,
    /// The time column and the watermark's expression.
    time: Option<(String, String)>,
    computed: Vec<(String, String)>,
    idle_after: Option<Duration>,
    bounded: bool,
    capacity_rows: usize,
}

impl StreamTable {
    /// A table of that name without event time. Types that SQL has no name for are converted when they
    /// are read: dictionaries and views to plain text, seconds to milliseconds.
    pub fn new(name: impl Into<String>, schema: SchemaRef) -> Self {
        Self {
            name: name.into(),
            schema,
            time: None,
            computed: Vec::new(),
            idle_after: None,
            bounded: false,
            capacity_rows: CAPACITY_ROWS,
        }
    }

    /// A column that is computed of the others, by an expression in SQL. It can be the event time.
    pub fn computed(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.computed.push((name.into(), expression.into()));
        self
    }

    /// The column of the event time, whose watermark is what [`StreamInput::advance`] says and nothing
    /// else.
    pub fn event_time(self, column: impl Into<String>) -> Self {
        self.watermark(column, "NULL")
    }

    /// The column of the event time, with a watermark that moves with the rows by an expression in SQL:
    /// `ts - INTERVAL '5' SECOND`. [`StreamInput::advance`] can move it further.
    pub fn watermark(mut self, column: impl Into<String>, expression: impl Into<String>) -> Self {
        self.time = Some((column.into(), expression.into()));
        self
    }

    /// A split that has been empty for so long is idle: event time does not wait for it.
    pub fn idle_after(mut self, time: Duration) -> Self {
        self.idle_after = Some(time);
        self
    }

    /// Says that the stream will end: queries may sort it, join it and sum it up without windows. Its
    /// splits are then read in the order of event time, so that one without rows holds up the others.
    pub fn bounded(mut self) -> Self {
        self.bounded = true;
        self
    }

    /// Rows of a split that wait to be read before the pusher has to wait, ≥ 1; 65,536 unless told
    /// otherwise. The last batch may go beyond it.
    pub fn capacity_rows(mut self, rows: usize) -> Self {
        self.capacity_rows = rows.max(1);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table as a statement.
    ///
    /// # Errors
    /// `W009` for idleness without event time.
    pub(crate) fn statement(&self) -> Result<String, Error> {
        let mut parts = Vec::new();
        for (name, expression) in &self.computed {
            parts.push(format!("{} AS ({expression}\n)", quoted(name)));
        }
        match (&self.time, self.idle_after) {
            (Some((column, expression)), idle_after) => {
                let mut clause = format!("WATERMARK FOR {} AS {expression}\n", quoted(column));
                if let Some(time) = idle_after {
                    let (seconds, micros) = (time.as_secs(), time.subsec_micros());
                    let _ = write!(clause, " IDLE AFTER INTERVAL '{seconds}.{micros:06}' SECOND");
                }
                parts.push(clause);
            }
            (None, Some(_)) => {
                let message = format!("the stream \"{}\" has idle_after and no event time", self.name);
                return Err(Error::plan(code::INVALID_WATERMARK, message)
                    .hint("Name its time column with event_time or watermark, or leave idle_after out."));
            }
            (None, None) => {}
        }
        let columns = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        Ok(format!(
            "CREATE TEMPORARY TABLE {}{columns} WITH ('connector' = '{STREAM_CONNECTOR}', 'name' = {})",
            quoted(&self.name),
            format_args!("'{}'", self.name.replace('\'', "''")),
        ))
    }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// What an iterator or asynchronous stream can give to a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StreamEvent {
    /// Rows.
    Rows(RecordBatch),
    /// See [`StreamInput::advance`].
    Watermark(Watermark),
    /// See [`StreamInput::idle`].
    Idle,
    /// See [`StreamInput::active`].
    Active,
}

impl From<RecordBatch> for StreamEvent {
    fn from(rows: RecordBatch) -> Self {
        Self::Rows(rows)
    }
}

impl From<Watermark> for StreamEvent {
    fn from(watermark: Watermark) -> Self {
        Self::Watermark(watermark)
    }
}

/// The tables that a program feeds, by name. A clone is the same set of tables.
#[derive(Debug, Clone, Default)]
pub(crate) struct Streams(Arc<Registry>);

#[derive(Debug, Default)]
struct Registry(Mutex<BTreeMap<String, Arc<Hub>>>);

impl Drop for Registry {
    fn drop(&mut self) {
        let hubs = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        hubs.values().for_each(|hub| hub.detach());
    }
}

impl Streams {
    fn hubs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Hub>>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream and gives its only handle.
    ///
    /// # Errors
    /// `C005` if there is one of that name.
    pub(crate) fn add(&self, table: &StreamTable) -> Result<StreamInput, Error> {
        let mut hubs = self.hubs();
        if hubs.contains_key(&table.name) {
            let message = format!("there is a stream \"{}\" already", table.name);
            return Err(Error::plan(code::ALREADY_EXISTS, message)
                .hint("Choose another name, or drop its table first."));
        }
        let hub = Arc::new(Hub::new(table.clone()));
        let input = StreamInput::new(&hub, 0);
        hubs.insert(table.name.clone(), hub);
        Ok(input)
    }

    /// Takes a stream away.
    pub(crate) fn remove(&self, name: &str) {
        // The lock must be free when handles are dropped.
        let hub = self.hubs().remove(name);
        if let Some(hub) = hub {
            hub.drop_table();
        }
    }

    /// Feeds a stream from an iterator.
    pub(crate) fn pull_iter<T, E>(
        input: StreamInput,
        rows: impl Iterator<Item = Result<T, E>> + Send + 'static,
    ) where
        T: Into<StreamEvent>,
        E: Display,
    {
        input.pull_iter(rows);
    }

    /// Feeds a stream from an asynchronous one.
    pub(crate) fn pull_stream<T, E>(
        input: StreamInput,
        rows: impl Stream<Item = Result<T, E>> + Send + 'static,
    ) where
        T: Into<StreamEvent>,
        E: Display,
    {
        input.pull_stream(rows);
    }

    fn hub(&self, options: &Options) -> Result<Arc<Hub>, Error> {
        let reader = OptionReader::new("connector \"stream\"", options, &[&["name"]])?;
        let name = reader.required("name", "'bids'")?;
        self.hubs().get(name).cloned().ok_or_else(|| {
            reader
                .invalid("name", "is no stream of this program")
                .hint("Register it with Session::register_stream first.")
        })
    }
}

/// What is wrong with pushed rows.
fn type_fault(table: &StreamTable, rows: &RecordBatch) -> Option<Error> {
    let fault = |what: String, hint: String| {
        Some(Error::run(code::MALFORMED, format!("stream \"{}\": {what}", table.name)).hint(hint))
    };
    let given = rows.schema_ref();
    if Arc::ptr_eq(given, &table.schema) {
        return None;
    }
    for field in table.schema.fields() {
        let (name, wanted) = (field.name(), field.data_type());
        let Ok(place) = given.index_of(name) else {
            let names: Vec<_> = given.fields().iter().map(|field| format!("\"{}\"", field.name())).collect();
            let what = format!("the rows have no column \"{name}\", only {}", names.join(", "));
            return fault(what, "Push the columns that the stream was registered with.".to_owned());
        };
        let data_type = given.field(place).data_type();
        if data_type != wanted {
            let what = format!("column \"{name}\" is {data_type} and not {wanted}");
            return fault(what, format!("Cast it to {wanted} before you push it."));
        }
        if !field.is_nullable() && rows.column(place).null_count() > 0 {
            let what = format!("NULL in column \"{name}\", which is NOT NULL");
            return fault(what, "Register the column as nullable, or leave such rows out.".to_owned());
        }
    }
    if given.fields().len() > table.schema.fields().len() {
        let is_more = |name: &&String| table.schema.index_of(name).is_err();
        let more = given.fields().iter().map(|field| field.name()).find(is_more);
        let what = match more {
            Some(name) => format!("the rows have a column \"{name}\" that it has not"),
            None => "the rows have a column twice".to_owned(),
        };
        return fault(what, "Push the columns that the stream was registered with.".to_owned());
    }
    None
}

impl Connector for Streams {
    fn name(&self) -> &'static str {
        STREAM_CONNECTOR
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let bounded = self.hub(&table.options)?.table().bounded;
        Ok(TableFacts::source(bounded))
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        Ok(Arc::clone(self.hub(options)?.schema()))
    }

    fn options(&self) -> Vec<&'static str> {
        vec!["name"]
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        source_metadata()
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        let has_several_splits = self.hub(&table.options).is_ok_and(|hub| hub.splits() > 1);
        TableStatistics { has_several_splits, ..TableStatistics::default() }
    }

    /// Nobody can give again what was read.
    fn recovery(&self, _table: &Table) -> TableRecovery {
        TableRecovery { read: ReadRecovery::Lost, ..TableRecovery::default() }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let hub = self.hub(&table.options)?;
        let assembly = Assembly::new(request);
        let places = assembly.physical().fields().iter().map(|field| {
            hub.schema().index_of(field.name()).map_err(|_| {
                let message = format!("stream \"{}\" has no column \"{}\"", hub.table().name, field.name());
                Error::run(code::INVALID_TABLE, message).hint("Declare the columns that it has.")
            })
        });
        let places = places.collect::<Result<Vec<_>, _>>()?;
        let reader = Arc::new(hub.open(&request.cancel)?);
        let (batch_rows, cancel) = (request.batch_rows.max(1), request.cancel.clone());
        Ok(Box::new(StreamSource { hub, reader, places, assembly, batch_rows, cancel }))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(no_sink(&table.name, STREAM_CONNECTOR))
    }

    fn dropped(&self, table: &Table) {
        if let Some(name) = table.options.get("name") {
            self.remove(name);
        }
    }
}

struct StreamSource {
    hub: Arc<Hub>,
    reader: Arc<ReaderHandle>,
    places: Vec<usize>,
    assembly: Assembly,
    batch_rows: usize,
    cancel: CancelToken,
}

impl Source for StreamSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let count = self.hub.splits();
        let split = |split: usize| {
            Box::new(StreamSplit {
                facts: SplitFacts { path: self.hub.split_name(split), ..SplitFacts::default() },
                told: self.reader.told(split),
                reader: Arc::clone(&self.reader),
                split,
                places: self.places.clone(),
                assembly: self.assembly.clone(),
                batch_rows: self.batch_rows,
                cancel: self.cancel.clone(),
                // A thread that reads several splits can't wait for one of them.
                wait: if count == 1 { WAIT } else { Duration::ZERO },
                pending: None,
                row: 0,
            }) as Box<dyn SplitReader>
        };
        Ok((0..count).map(split).collect())
    }
}

struct StreamSplit {
    facts: SplitFacts,
    /// What the split had said before this reader came.
    told: VecDeque<Event>,
    reader: Arc<ReaderHandle>,
    split: usize,
    places: Vec<usize>,
    assembly: Assembly,
    batch_rows: usize,
    cancel: CancelToken,
    wait: Duration,
    /// What is left of a batch that was larger than wanted.
    pending: Option<RecordBatch>,
    row: u64,
}

impl StreamSplit {
    fn next_event(&mut self) -> Given {
        if let Some(event) = self.told.pop_front() {
            return Given::Event(event);
        }
        match self.pending.take() {
            Some(rows) => Given::Event(Event::Rows(rows)),
            None => self.reader.next(self.split, self.wait),
        }
    }

    /// The rows as requested, the columns converted where SQL has another type for them.
    fn read(&mut self, rows: &RecordBatch) -> Result<Read, Error> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let columns = self.places_of(rows)?.into_iter().zip(self.assembly.physical().fields());
        let columns = columns.map(|(place, field)| {
            let column = rows.column(place);
            match column.data_type() == field.data_type() {
                true => Ok(Arc::clone(column)),
                false => cast_with_options(column, field.data_type(), &options).map_err(|error| {
                    let message = format!("{}: column \"{}\": {error}", self.facts.path, field.name());
                    Error::run(code::MALFORMED, message)
                        .hint("Push values that the type of the column in SQL can hold.")
                }),
            }
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let lines = Lines::From(self.row + 1);
        self.row += rows.num_rows() as u64;
        let rows = self.assembly.batch(columns, rows.num_rows(), &lines, &self.facts)?;
        Ok(Read::Rows(SplitBatch { rows, kinds: None, lines, rejected: Vec::new() }))
    }

    /// Where the columns stand in rows, which may have them in another order than the table.
    fn places_of(&self, rows: &RecordBatch) -> Result<Vec<usize>, Error> {
        let fields = self.assembly.physical().fields();
        let stands_there = |(place, name): (&usize, &String)| {
            rows.schema_ref().fields().get(*place).is_some_and(|field| field.name() == name)
        };
        if self.places.iter().zip(fields.iter().map(|field| field.name())).all(stands_there) {
            return Ok(self.places.clone());
        }
        let place = |name: &String| rows.schema_ref().index_of(name);
        let places = fields.iter().map(|field| place(field.name()));
        places.collect::<Result<_, _>>().map_err(|error| Error::internal("stream", error))
    }
}

impl SplitReader for StreamSplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    /// What it gave does not come again.
    fn position(&self) -> Option<Position> {
        Some(Position::lost())
    }

    fn seek(&mut self, _position: &Position) -> Result<(), Error> {
        Ok(())
    }

    fn next(&mut self) -> Result<Read, Error> {
        loop {
            if self.cancel.is_cancelled() {
                return Err(Error::interrupted());
            }
            let Given::Event(event) = self.next_event() else { return Ok(Read::Empty) };
            match event {
                Event::Rows(rows) if rows.num_rows() == 0 => {}
                Event::Rows(rows) if rows.num_rows() > self.batch_rows => {
                    let rest = rows.num_rows() - self.batch_rows;
                    self.pending = Some(rows.slice(self.batch_rows, rest));
                    return self.read(&rows.slice(0, self.batch_rows));
                }
                Event::Rows(rows) => return self.read(&rows),
                Event::Watermark(watermark) => return Ok(Read::Watermark(watermark)),
                Event::Idle => return Ok(Read::Idle),
                Event::Active => return Ok(Read::Active),
                Event::End => return Ok(Read::End),
                Event::Fail(error) => return Err(error),
            }
        }
    }
}

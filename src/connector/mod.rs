//! The ways in and out: sources, sinks and formats, behind traits and a registry.
//!
//! Invariant: nothing here knows operators or plans. A reader may block; it runs on a thread of its own.

mod assembly;
mod batch_rows;
mod datagen;
mod feed;
mod filesystem;
#[doc(hidden)]
pub mod format;
mod input;
mod lines;
mod memory;
mod nexmark;
mod options;
mod ordered;
mod position;
mod print;
mod pump;
mod random;
#[cfg(test)]
mod recovery_tests;
mod socket;
mod stdio;
pub(crate) mod stream;
#[cfg(test)]
mod testing;
mod text_ahead;
mod text_split;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::record_batch::RecordBatch;

use lines::{Formats, WithFormats};

use crate::catalog::{ConnectorCatalog, Options, Table, TableFacts, TableRecovery, TableStatistics};
use crate::error::{Error, code, did_you_mean};
use crate::stream::{RowKinds, StreamBatch, Watermark};

use assembly::{Assembly, SplitFacts};

pub use assembly::INGESTION_TIME;
pub use datagen::Datagen;
#[doc(hidden)]
pub use feed::{Feed, FeedEvent};
pub use filesystem::Filesystem;
pub(crate) use filesystem::local_path;
pub use lines::{DecodedLines, Format, LineDecoder, LineEncoder};
pub use memory::Memory;
pub use nexmark::Nexmark;
pub use options::OptionReader;
pub use position::Position;
pub use print::{Blackhole, Print};
pub use socket::Socket;
pub use stdio::{Stdin, Stdout};
pub use stream::{StreamEvent, StreamInput, StreamTable};

/// A kind of table: the value of `'connector'`. A program adds its own with
/// [`Session::register_connector`](crate::session::Session::register_connector).
///
/// ```
/// use std::sync::Arc;
/// use tidegate::arrow::array::{ArrayRef, Int64Array, RecordBatch};
/// use tidegate::catalog::{Table, TableFacts};
/// use tidegate::connector::{Connector, Lines, OptionReader, Read, ReadRequest, Source, SplitReader};
/// use tidegate::{Error, Session};
///
/// /// One row: the value of the option `'is'`.
/// struct One;
///
/// fn value(table: &Table) -> Result<i64, Error> {
///     let options = OptionReader::new("connector \"one\"", &table.options, &[&["is"]])?;
///     Ok(options.integer("is", 0..=9)?.unwrap_or(1))
/// }
///
/// impl Connector for One {
///     fn name(&self) -> &'static str {
///         "one"
///     }
///     fn check(&self, table: &Table) -> Result<TableFacts, Error> {
///         value(table)?;
///         Ok(TableFacts::source(true))
///     }
///     fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
///         Ok(Box::new(OneSplit(Some(value(table)?), request.clone())))
///     }
/// }
///
/// struct OneSplit(Option<i64>, ReadRequest);
///
/// impl Source for OneSplit {
///     fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
///         Ok(vec![Box::new(OneSplit(self.0.take(), self.1.clone()))])
///     }
/// }
///
/// impl SplitReader for OneSplit {
///     fn name(&self) -> &str {
///         "one"
///     }
///     fn next(&mut self) -> Result<Read, Error> {
///         let Some(value) = self.0.take() else { return Ok(Read::End) };
///         let column: ArrayRef = Arc::new(Int64Array::from(vec![value]));
///         let rows = RecordBatch::try_from_iter([("n", column)]).expect("one column");
///         Ok(Read::Rows(self.1.select(&rows, Lines::From(1))?))
///     }
/// }
///
/// let mut session = Session::new();
/// session.register_connector(Arc::new(One))?;
/// session.run("CREATE TABLE seven (n BIGINT) WITH ('connector' = 'one', 'is' = '7')")?;
/// assert_eq!(session.query("SELECT n FROM seven")?.into_iter().count(), 1);
/// let error = session.run("CREATE TABLE ten (n BIGINT) WITH ('connector' = 'one', 'is' = '10')").err();
/// assert_eq!(error.expect("too large").code(), "C002");
/// # Ok::<(), Error>(())
/// ```
pub trait Connector: Send + Sync {
    /// The value of `'connector'`.
    fn name(&self) -> &'static str;

    /// See [`ConnectorCatalog::check`].
    ///
    /// # Errors
    /// `C001`–`C004` with the place of the option.
    fn check(&self, table: &Table) -> Result<TableFacts, Error>;

    /// See [`ConnectorCatalog::infer_schema`].
    ///
    /// # Errors
    /// `C006` if it can't tell, `F001` if the data can't be read.
    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        let _ = options;
        Err(stdio::no_columns(self.name()))
    }

    /// The options of its own that it knows, for whoever completes them.
    fn options(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Metadata columns that it can fill.
    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        Vec::new()
    }

    /// See [`ConnectorCatalog::statistics`].
    fn statistics(&self, _table: &Table) -> TableStatistics {
        TableStatistics::default()
    }

    /// What becomes of the table's rows when a run goes on from a checkpoint: what its [`SplitReader::position`] and
    /// its [`Sink::prepare`] come to. What is there of itself is what those do where a connector does not say.
    fn recovery(&self, _table: &Table) -> TableRecovery {
        TableRecovery::default()
    }

    /// Opens the table for reading.
    ///
    /// # Errors
    /// `F001` if there is nothing to read; `P003` if it is no source.
    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let _ = request;
        Err(stdio::no_source(&table.name, self.name()))
    }

    /// Opens the table for writing. `schema`: the columns that will be written, in order.
    ///
    /// # Errors
    /// `F003` if it can't be written; `P003` if it is no sink.
    fn sink(&self, table: &Table, schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        let _ = schema;
        Err(stdio::no_sink(&table.name, self.name()))
    }

    /// Opens the table for writing in the place of a sink that told `prepared` by [`Sink::prepare`] and is gone: what
    /// that one had written until then becomes visible if it is not, what it wrote later goes.
    ///
    /// # Errors
    /// Those of [`Connector::sink`]; `K003` if what was written is not there any more.
    fn resume_sink(
        &self,
        table: &Table,
        schema: SchemaRef,
        prepared: &serde_json::Value,
    ) -> Result<Box<dyn Sink>, Error> {
        let _ = prepared;
        self.sink(table, schema)
    }

    /// The table was dropped. What it holds outside the session stays; a side table's rows go.
    fn dropped(&self, _table: &Table) {}
}

/// What a query wants of a source.
#[derive(Clone)]
pub struct ReadRequest {
    /// The columns to deliver, in this order, with exactly these types.
    pub schema: SchemaRef,
    /// For each of them: `Some(key)` if it is a metadata column.
    pub metadata: Vec<Option<String>>,
    /// Of a changelog: the names of the columns that tell rows apart, all of them in `schema`. With them a
    /// change need not say how its row was before. Empty: nothing does.
    pub key: Vec<String>,
    /// Most rows of a batch, ≥ 1; one more where an update has two.
    pub batch_rows: usize,
    /// Threads that may decode what is read, ≥ 1: of all splits together, or of each where they are read one
    /// after another.
    pub threads: usize,
    /// Splits are read one after another.
    pub in_turn: bool,
    /// Set when the query is to stop; a reader that waits looks at it.
    pub cancel: CancelToken,
}

impl ReadRequest {
    /// Rows as they were requested, of rows that have all columns of the table: the wanted columns, in
    /// order, and a place for what the source stamps by itself. `lines`: where they stand in the split.
    ///
    /// # Errors
    /// `C006` if a column is missing or of another type.
    pub fn select(&self, rows: &RecordBatch, lines: Lines) -> Result<SplitBatch, Error> {
        let assembly = Assembly::new(self);
        let column = |field: &Arc<Field>| {
            let column = rows.column_by_name(field.name());
            let column = column.filter(|column| column.data_type() == field.data_type());
            column.cloned().ok_or_else(|| {
                let (name, data_type) = (field.name(), field.data_type());
                let message = format!("the source has no column \"{name}\" of type {data_type}");
                Error::run(code::INVALID_TABLE, message).hint("Declare the columns that it has.")
            })
        };
        let columns = assembly.physical().fields().iter().map(column).collect::<Result<_, _>>()?;
        let rows = assembly.batch(columns, rows.num_rows(), &lines, &SplitFacts::default())?;
        Ok(SplitBatch { rows, kinds: None, lines, rejected: Vec::new() })
    }
}

/// Tells the parts of a job to stop.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks everybody to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether somebody asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Whether it is of the same job.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A table opened for reading.
pub trait Source: Send {
    /// Its splits in their order: files sorted by name, partitions by number. Called once.
    ///
    /// # Errors
    /// `F001` if one can't be opened.
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error>;

    /// How often to look for more splits while the table is read; `None`: there are no others, and
    /// the table ends with its last split. Asked again after each look.
    fn discovers_every(&self) -> Option<Duration> {
        None
    }

    /// The splits that have come since the last call, in their order. Does not wait.
    ///
    /// # Errors
    /// `F001` if it can't look any more.
    fn discover(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        Ok(Vec::new())
    }

    /// Where it waits for connections, once its splits were asked for.
    fn listens_on(&self) -> Option<SocketAddr> {
        None
    }
}

/// Reads one split: a file, a partition, a connection. The order of its rows is arrival order.
pub trait SplitReader: Send {
    /// What a person knows it by: a path.
    fn name(&self) -> &str;

    /// The next rows, at most `batch_rows`.
    ///
    /// A reader of a table that does not end waits for rows for 50 ms at most, so that its split can
    /// be told idle. One that was found by [`Source::discover`] does not wait at all: many of them
    /// share a thread.
    ///
    /// # Errors
    /// `F001` while reading, `F002` for a row that does not fit, under the policy `fail`.
    fn next(&mut self) -> Result<Read, Error>;

    /// Bytes read so far and in all, where known, for progress.
    fn progress(&self) -> (u64, Option<u64>) {
        (0, None)
    }

    /// Where its next row stands, for a reader of the same split that goes on there one day. `None`: that one reads
    /// from the start, and rows up to the last line that was used are dropped.
    fn position(&self) -> Option<Position> {
        None
    }

    /// Goes on at a position that a reader of the same split told. Called once, before the first read.
    ///
    /// # Errors
    /// `F001` if what was read before is not there any more, `K002` for the position of another reader.
    fn seek(&mut self, position: &Position) -> Result<(), Error> {
        let _ = position;
        Err(Error::internal(self.name(), "it tells no positions"))
    }

    /// How often what it reads was cut short, so that it began anew: a file that was truncated.
    fn truncations(&self) -> u64 {
        0
    }
}

/// What a split has to give.
#[derive(Debug, Clone)]
pub enum Read {
    /// Rows.
    Rows(SplitBatch),
    /// There is nothing to read now; more may come.
    Empty,
    /// There is nobody to read from now; the reader tries to get through again.
    Disconnected,
    /// No rows, and none up to this time will come: the split knows more than its rows say.
    Watermark(Watermark),
    /// No rows, and the split says by itself that it does not count until it has some.
    Idle,
    /// No rows yet, but the split counts again.
    Active,
    /// Nothing will come any more.
    End,
}

#[cfg(test)]
impl Read {
    /// The rows; `None` for all else.
    fn rows(self) -> Option<SplitBatch> {
        match self {
            Self::Rows(batch) => Some(batch),
            Self::Empty | Self::Disconnected | Self::End => None,
            Self::Watermark(_) | Self::Idle | Self::Active => None,
        }
    }
}

/// Rows of a split, and what was wrong between them.
#[derive(Debug, Clone)]
pub struct SplitBatch {
    /// Columns as requested.
    pub rows: RecordBatch,
    /// Where the rows stand in the split.
    pub lines: Lines,
    /// Rows that could not be read, under the policies `skip` and `side`.
    pub rejected: Vec<RejectedRow>,
    /// What each row does; `None`: all of them are new. A `-U` stands right before its `+U`.
    pub kinds: Option<RowKinds>,
}

/// Where the rows of a batch stand in their split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lines {
    /// One after another from this line or row number, from 1.
    From(u64),
    /// One number a row.
    Each(Vec<u64>),
}

impl Lines {
    /// The line or row number of row `index` of the batch.
    pub fn of(&self, index: usize) -> u64 {
        match self {
            Self::From(first) => first + index as u64,
            Self::Each(lines) => lines[index],
        }
    }
}

/// A row that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRow {
    /// Its line, from 1.
    pub line: u64,
    /// Its text; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// What was wrong.
    pub reason: String,
    /// Keep it for the side table (policy `side`), or only count it (`skip`).
    pub keep: bool,
}

/// A table opened for writing. What was written becomes visible by `finish`, or never.
pub trait Sink: Send {
    /// Takes rows in order.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error>;

    /// Gives what was written to a reader that waits, where the medium can (pipes, terminals).
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    fn flush(&mut self) -> Result<(), Error>;

    /// The end of the rows: commit. Called once, nothing after it.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    fn finish(&mut self) -> Result<(), Error>;

    /// For a checkpoint: makes all rows so far safe, though nobody need see them yet, and tells what
    /// [`Connector::resume_sink`] needs to know. `None`: it can't take rows back, so those behind a checkpoint come again after a crash.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason; `P002` if the table can't be part of a checkpoint.
    fn prepare(&mut self) -> Result<Option<serde_json::Value>, Error> {
        self.flush()?;
        Ok(None)
    }

    /// The checkpoint that it was prepared for is complete: makes visible what was prepared. May be called again.
    ///
    /// # Errors
    /// `F003` with the path and the system's reason.
    fn commit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The query failed or was stopped: leave nothing that looks finished.
    fn abort(&mut self);
}

/// The connectors of a session, by name, and the formats that were added to them.
#[derive(Clone, Default)]
pub struct Connectors {
    known: BTreeMap<&'static str, Arc<dyn Connector>>,
    /// Those that read or write lines, with the formats that were added.
    with_formats: BTreeMap<&'static str, Arc<dyn Connector>>,
    formats: Formats,
}

impl Connectors {
    /// No connectors.
    pub fn empty() -> Self {
        Self::default()
    }

    /// All connectors that come with Tidegate.
    pub fn standard() -> Self {
        let mut connectors = Self::empty();
        connectors.add(Arc::new(Filesystem));
        connectors.add(Arc::new(Stdin));
        connectors.add(Arc::new(Stdout));
        connectors.add(Arc::new(Print));
        connectors.add(Arc::new(Blackhole));
        connectors.add(Arc::new(Memory::new()));
        connectors.add(Arc::new(Datagen));
        connectors.add(Arc::new(Nexmark));
        connectors.add(Arc::new(Socket));
        connectors
    }

    /// Adds one; one of the same name is replaced.
    pub fn add(&mut self, connector: Arc<dyn Connector>) {
        self.known.insert(connector.name(), connector);
        self.bring_together();
    }

    /// Adds a format to all connectors that read or write lines, also to those that come later.
    ///
    /// # Errors
    /// `C005` if there is a format of that name, `C002` for an option that does not begin with it.
    pub fn add_format(&mut self, format: Arc<dyn Format>) -> Result<(), Error> {
        lines::check_format(format.as_ref(), &self.formats, &format::options::names())?;
        self.formats.insert(format.name(), format);
        self.bring_together();
        Ok(())
    }

    fn bring_together(&mut self) {
        let suited = self.known.iter().filter(|(_, connector)| WithFormats::suits(connector.as_ref()));
        let with_formats = suited.filter(|_| !self.formats.is_empty()).map(|(name, connector)| {
            let wrapped = WithFormats::new(Arc::clone(connector), self.formats.clone());
            (*name, Arc::new(wrapped) as Arc<dyn Connector>)
        });
        self.with_formats = with_formats.collect();
    }

    fn find(&self, name: &str) -> Option<&Arc<dyn Connector>> {
        self.with_formats.get(name).or_else(|| self.known.get(name))
    }

    /// The names of all connectors.
    pub fn names(&self) -> Vec<&'static str> {
        self.known.keys().copied().collect()
    }

    /// The options that tables can have, of any connector and format, and of the planner.
    pub fn option_names(&self) -> Vec<&'static str> {
        let own = self.known.keys().filter_map(|name| self.find(name)).flat_map(|found| found.options());
        let formats = format::options::TEXT_KEYS
            .iter()
            .chain(format::options::JSON_KEYS)
            .chain(format::options::CSV_KEYS)
            .chain(format::options::DEBEZIUM_KEYS)
            .copied();
        let mut names: Vec<_> = own.chain(formats).chain(options::PLANNER).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The connector of that name.
    ///
    /// # Errors
    /// `C004` with the nearest name.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Connector>, Error> {
        self.find(name).ok_or_else(|| {
            let error = Error::plan(code::UNKNOWN_CONNECTOR, format!("unknown connector \"{name}\""));
            match did_you_mean(name, self.known.keys().copied()) {
                Some(near) => error.hint(format!("Use '{near}'.")),
                None => {
                    let known = self.names();
                    error.hint(format!("Use one of {}.", known.join(", ")))
                }
            }
        })
    }
}

impl ConnectorCatalog for Connectors {
    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let place = table.options.entry("connector").and_then(|entry| entry.value_span);
        self.get(&table.connector).map_err(|error| error.at(place))?.check(table)
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        let name = options.get("connector").unwrap_or("filesystem");
        let place = options.entry("connector").and_then(|entry| entry.value_span);
        self.get(name).map_err(|error| error.at(place))?.infer_schema(options)
    }

    fn metadata_type(&self, connector: &str, key: &str) -> Option<DataType> {
        let metadata = self.find(connector)?.metadata();
        metadata.into_iter().find(|(name, _)| *name == key).map(|(_, data_type)| data_type)
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        self.find(&table.connector).map(|known| known.statistics(table)).unwrap_or_default()
    }

    fn recovery(&self, table: &Table) -> Option<TableRecovery> {
        self.find(&table.connector).map(|known| known.recovery(table))
    }
}

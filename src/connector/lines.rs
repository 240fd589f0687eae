//! Formats that a program brings along, in every connector that reads or writes lines of text.
//!
//! A connector that has the format `raw` gives and takes lines; what stands here makes rows of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Array, AsArray, BinaryArray, BooleanArray, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use serde_json::Value;

use super::format::options::TEXT_KEYS;
use super::options::OptionReader;
use super::{
    Connector, Lines, Position, Read, ReadRequest, RejectedRow, Sink, Source, SplitBatch, SplitReader,
};
use crate::catalog::{
    Column, ColumnKind, OptionEntry, Options, Table, TableFacts, TableRecovery, TableStatistics,
};
use crate::error::{Error, code, did_you_mean, panic_text};
use crate::stream::StreamBatch;

/// A format of a program's own: the value of `'format'` in every connector that reads or writes lines
/// (`filesystem`, `stdin`, `stdout`, `socket`, and those of the program that know the format `raw`).
/// Added with [`Session::register_format`](crate::session::Session::register_format).
///
/// Rows are lines. A program whose rows are cut otherwise writes a [`Connector`].
pub trait Format: Send + Sync {
    /// The value of `'format'`.
    fn name(&self) -> &'static str;

    /// The options that it has. Each begins with its name and a dot: `logfmt.separator`. Others of that
    /// form are errors.
    fn options(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Whether tables of it can be read, and whether they can be written.
    fn directions(&self) -> (bool, bool);

    /// Checks options and columns of a table. Opens nothing.
    ///
    /// # Errors
    /// `C002` for an option, `C006` for a column that it can't hold.
    fn check(&self, options: OptionReader<'_>, table: &Table) -> Result<(), Error> {
        let _ = (options, table);
        Ok(())
    }

    /// What reads the lines of one split. `schema`: the columns to give, in this order, with these types.
    ///
    /// # Errors
    /// As [`Format::check`].
    fn decoder(&self, options: OptionReader<'_>, schema: &SchemaRef) -> Result<Box<dyn LineDecoder>, Error> {
        let _ = (options, schema);
        Err(Error::internal(self.name(), "the format has no decoder"))
    }

    /// What writes rows of these columns.
    ///
    /// # Errors
    /// As [`Format::check`].
    fn encoder(&self, options: OptionReader<'_>, schema: &SchemaRef) -> Result<Box<dyn LineEncoder>, Error> {
        let _ = (options, schema);
        Err(Error::internal(self.name(), "the format has no encoder"))
    }
}

/// Reads lines. What it gives must not depend on how lines are brought together in calls.
pub trait LineDecoder: Send {
    /// The rows of some lines, which come without their line ends.
    ///
    /// # Errors
    /// What can't be put down to a line.
    fn decode(&mut self, lines: &BinaryArray) -> Result<DecodedLines, Error>;
}

/// Writes lines.
pub trait LineEncoder: Send {
    /// The lines of some rows, without line ends. A line must not have one in it.
    ///
    /// # Errors
    /// `F002` for a value that can't be written.
    fn encode(&mut self, batch: &StreamBatch) -> Result<BinaryArray, Error>;
}

/// What was made of lines.
#[derive(Debug, Clone)]
pub struct DecodedLines {
    /// A row for each line that was not rejected, in the order of the lines.
    pub rows: RecordBatch,
    /// Indexes of the lines that are no rows, ascending, with what is wrong. The option `'errors'` says
    /// what becomes of them.
    pub rejected: Vec<(usize, String)>,
}

/// The formats that were added, by name.
pub(super) type Formats = BTreeMap<&'static str, Arc<dyn Format>>;

/// The column of lines.
const LINE: &str = "line";

/// A connector of lines that knows further formats.
pub(super) struct WithFormats {
    inner: Arc<dyn Connector>,
    formats: Formats,
}

impl WithFormats {
    /// Whether a connector can take further formats.
    pub(super) fn suits(connector: &dyn Connector) -> bool {
        connector.options().contains(&"format")
    }

    pub(super) fn new(inner: Arc<dyn Connector>, formats: Formats) -> Self {
        Self { inner, formats }
    }

    fn format(&self, options: &Options) -> Option<&Arc<dyn Format>> {
        let name = options.get("format")?;
        self.formats.values().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// The nearest of the formats where none is known by the name.
    fn with_near_format(&self, options: &Options, error: Error) -> Error {
        let name = options.get("format").unwrap_or_default();
        match did_you_mean(name, self.formats.keys().copied()) {
            Some(near) if error.code() == code::UNKNOWN_CONNECTOR.0 => error.hint(format!("Use '{near}'.")),
            _ => error,
        }
    }
}

/// The same table as one of lines. Options of the format are taken out; those that it does not have are
/// errors.
fn table_of_lines(table: &Table, format: &dyn Format) -> Result<Table, Error> {
    let prefix = format!("{}.", format.name());
    let known = format.options();
    let mut kept = Vec::new();
    for entry in table.options.entries() {
        let key = entry.key.as_str();
        if key == "format" {
            kept.push(OptionEntry { value: "raw".to_owned(), ..entry.clone() });
        } else if !key.starts_with(&prefix) {
            kept.push(entry.clone());
        } else if !known.contains(&key) {
            let message = format!("unknown option \"{key}\" of format \"{}\"", format.name());
            let error = Error::plan(code::UNKNOWN_OPTION, message).at(entry.key_span);
            return Err(match did_you_mean(key, known.iter().copied()) {
                Some(near) => error.hint(format!("Use '{near}', or remove the option.")),
                None if known.is_empty() => error.hint("Remove it: this format has no options."),
                None => error.hint(format!("Use one of {}.", known.join(", "))),
            });
        }
    }
    let line = Column {
        name: LINE.to_owned(),
        data_type: DataType::Binary,
        nullable: false,
        kind: ColumnKind::Physical,
    };
    let metadata = table.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Metadata { .. }));
    Ok(Table {
        columns: std::iter::once(line).chain(metadata.cloned()).collect(),
        watermark: None,
        primary_key: Vec::new(),
        options: Options::new(kept),
        ..table.clone()
    })
}

fn line_schema() -> Field {
    Field::new(LINE, DataType::Binary, false)
}

impl Connector for WithFormats {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let Some(format) = self.format(&table.options) else {
            return self.inner.check(table).map_err(|error| self.with_near_format(&table.options, error));
        };
        let facts = self.inner.check(&table_of_lines(table, format.as_ref())?)?;
        format.check(OptionReader::of(&table.options), table)?;
        let (reads, writes) = format.directions();
        Ok(TableFacts {
            is_source: facts.is_source && reads,
            is_sink: facts.is_sink && writes,
            takes_changelog: false,
            ..facts
        })
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        let Some(format) = self.format(options) else { return self.inner.infer_schema(options) };
        let message = format!("a table of format \"{}\" has no columns of its own", format.name());
        Err(Error::plan(code::INVALID_TABLE, message).hint("List the columns in CREATE TABLE."))
    }

    fn options(&self) -> Vec<&'static str> {
        let own = self.formats.values().flat_map(|format| format.options());
        self.inner.options().into_iter().chain(own).collect()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        self.inner.metadata()
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        let lines = self.format(&table.options).map(|format| table_of_lines(table, format.as_ref()));
        match lines {
            None => self.inner.statistics(table),
            Some(Ok(lines)) => {
                let TableStatistics { has_several_splits, .. } = self.inner.statistics(&lines);
                TableStatistics { has_several_splits, ..TableStatistics::default() }
            }
            Some(Err(_)) => TableStatistics::default(),
        }
    }

    fn recovery(&self, table: &Table) -> TableRecovery {
        match self.format(&table.options).map(|format| table_of_lines(table, format.as_ref())) {
            Some(Ok(lines)) => self.inner.recovery(&lines),
            None | Some(Err(_)) => self.inner.recovery(table),
        }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let Some(format) = self.format(&table.options) else { return self.inner.source(table, request) };
        let key = |index: usize| request.metadata.get(index).and_then(Option::as_ref);
        let fields = request.schema.fields();
        let of_lines = (0..fields.len()).filter(|index| key(*index).is_some());
        let (mut schema, mut metadata) = (vec![Arc::new(line_schema())], vec![None]);
        for index in of_lines {
            schema.push(Arc::clone(&fields[index]));
            metadata.push(key(index).cloned());
        }
        let physical = fields.iter().enumerate().filter(|(index, _)| key(*index).is_none());
        let shape = Shape {
            format: Arc::clone(format),
            options: table.options.clone(),
            physical: Arc::new(Schema::new(physical.map(|(_, field)| Arc::clone(field)).collect::<Vec<_>>())),
            is_metadata: (0..fields.len()).map(|index| key(index).is_some()).collect(),
            schema: Arc::clone(&request.schema),
            on_error: OptionReader::of(&table.options)
                .choice("errors", &["fail", "side", "skip"])?
                .unwrap_or(0),
        };
        let request = ReadRequest { schema: Arc::new(Schema::new(schema)), metadata, ..request.clone() };
        let inner = self.inner.source(&table_of_lines(table, format.as_ref())?, &request)?;
        Ok(Box::new(LineSource { inner, shape: Arc::new(shape) }))
    }

    fn sink(&self, table: &Table, schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        self.open_sink(table, schema, &|table, schema| self.inner.sink(table, schema))
    }

    fn resume_sink(
        &self,
        table: &Table,
        schema: SchemaRef,
        prepared: &Value,
    ) -> Result<Box<dyn Sink>, Error> {
        self.open_sink(table, schema, &|table, schema| self.inner.resume_sink(table, schema, prepared))
    }

    fn dropped(&self, table: &Table) {
        self.inner.dropped(table);
    }
}

/// Opens the sink of a table.
type OpenSink<'a> = &'a dyn Fn(&Table, SchemaRef) -> Result<Box<dyn Sink>, Error>;

impl WithFormats {
    /// A sink of one of the formats over one of lines, which `open` opens.
    fn open_sink(
        &self,
        table: &Table,
        schema: SchemaRef,
        open: OpenSink<'_>,
    ) -> Result<Box<dyn Sink>, Error> {
        let Some(format) = self.format(&table.options) else { return open(table, schema) };
        let encoder = format.encoder(OptionReader::of(&table.options), &schema)?;
        let lines = Arc::new(Schema::new(vec![line_schema()]));
        let inner = open(&table_of_lines(table, format.as_ref())?, Arc::clone(&lines))?;
        Ok(Box::new(LineSink { name: format.name(), inner, encoder, lines }))
    }
}

/// What all splits of a table have in common.
struct Shape {
    format: Arc<dyn Format>,
    options: Options,
    /// The columns that the format gives.
    physical: SchemaRef,
    /// For each requested column, whether it comes beside the lines.
    is_metadata: Vec<bool>,
    schema: SchemaRef,
    /// `'errors'`: fail, side or skip.
    on_error: usize,
}

struct LineSource {
    inner: Box<dyn Source>,
    shape: Arc<Shape>,
}

impl LineSource {
    fn wrapped(&self, splits: Vec<Box<dyn SplitReader>>) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let wrap = |inner: Box<dyn SplitReader>| -> Result<Box<dyn SplitReader>, Error> {
            let Shape { format, options, physical, .. } = self.shape.as_ref();
            let decoder = format.decoder(OptionReader::of(options), physical)?;
            Ok(Box::new(LineSplit { inner, decoder, shape: Arc::clone(&self.shape) }))
        };
        splits.into_iter().map(wrap).collect()
    }
}

impl Source for LineSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let splits = self.inner.splits()?;
        self.wrapped(splits)
    }

    fn discovers_every(&self) -> Option<Duration> {
        self.inner.discovers_every()
    }

    fn discover(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let splits = self.inner.discover()?;
        self.wrapped(splits)
    }

    fn listens_on(&self) -> Option<SocketAddr> {
        self.inner.listens_on()
    }
}

struct LineSplit {
    inner: Box<dyn SplitReader>,
    decoder: Box<dyn LineDecoder>,
    shape: Arc<Shape>,
}

impl LineSplit {
    fn read(&mut self, batch: SplitBatch) -> Result<SplitBatch, Error> {
        let lines = batch.rows.column(0).as_binary::<i32>();
        let name = self.shape.format.name();
        let decoded = guarded(name, || self.decoder.decode(lines))?;
        let wrong = |what: String| {
            Error::run(code::MALFORMED, format!("the format \"{name}\" {what}"))
                .hint("Give a row of the wanted columns for each line that is not rejected.")
        };
        let DecodedLines { rows, rejected } = decoded;
        if rows.num_rows() + rejected.len() != lines.len() {
            let (rows, lost) = (rows.num_rows(), rejected.len());
            return Err(wrong(format!("gave {rows} rows and {lost} rejected of {} lines", lines.len())));
        }
        let given: Vec<_> = rows.schema_ref().fields().iter().map(|field| field.data_type()).collect();
        let wanted: Vec<_> = self.shape.physical.fields().iter().map(|field| field.data_type()).collect();
        if given != wanted {
            return Err(wrong("gave other columns than were wanted".to_owned()));
        }
        let mut kept = vec![true; lines.len()];
        let mut all = batch.rejected;
        for (index, reason) in rejected {
            let Some(place) = kept.get_mut(index).filter(|kept| **kept) else {
                return Err(wrong(format!("rejected line {index} of {}, or twice", lines.len())));
            };
            *place = false;
            all.push(self.rejected(batch.lines.of(index), lines.value(index), reason)?);
        }
        all.sort_by_key(|row| row.line);
        let (mut own, mut metadata) = (rows.columns().iter(), batch.rows.columns()[1..].iter());
        let mask = BooleanArray::from(kept.clone());
        let columns = self.shape.is_metadata.iter().map(|is_metadata| {
            let missing = || Error::internal("lines", "a column is missing");
            match is_metadata {
                false => own.next().cloned().ok_or_else(missing),
                true => {
                    let column = metadata.next().ok_or_else(missing)?;
                    filter(column, &mask).map_err(|error| Error::internal("lines", error))
                }
            }
        });
        let columns = columns.collect::<Result<Vec<_>, Error>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let rows = RecordBatch::try_new_with_options(Arc::clone(&self.shape.schema), columns, &options)
            .map_err(|error| wrong(format!("gave a column that does not fit: {error}")))?;
        let lines = match kept.iter().all(|kept| *kept) {
            true => batch.lines,
            false => {
                let kept = kept.iter().enumerate().filter(|(_, kept)| **kept);
                Lines::Each(kept.map(|(index, _)| batch.lines.of(index)).collect())
            }
        };
        Ok(SplitBatch { rows, kinds: None, lines, rejected: all })
    }

    fn rejected(&self, line: u64, text: &[u8], reason: String) -> Result<RejectedRow, Error> {
        if self.shape.on_error == 0 {
            let message = format!("{} line {line}, {reason}", self.inner.name());
            return Err(Error::run(code::MALFORMED, message)
                .hint("Set 'errors' = 'side' or 'skip' to go on without such rows."));
        }
        let keep = self.shape.on_error == 1;
        let text = if keep { String::from_utf8_lossy(text).into_owned() } else { String::new() };
        Ok(RejectedRow { line, text, reason, keep })
    }
}

impl SplitReader for LineSplit {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn next(&mut self) -> Result<Read, Error> {
        match self.inner.next()? {
            Read::Rows(batch) => self.read(batch).map(Read::Rows),
            other => Ok(other),
        }
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.inner.progress()
    }

    fn truncations(&self) -> u64 {
        self.inner.truncations()
    }

    fn position(&self) -> Option<Position> {
        self.inner.position()
    }

    fn seek(&mut self, position: &Position) -> Result<(), Error> {
        self.inner.seek(position)
    }
}

struct LineSink {
    name: &'static str,
    inner: Box<dyn Sink>,
    encoder: Box<dyn LineEncoder>,
    lines: SchemaRef,
}

impl Sink for LineSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        let lines = guarded(self.name, || self.encoder.encode(batch))?;
        if lines.len() != batch.num_rows() || lines.iter().flatten().any(|line| line.contains(&b'\n')) {
            let message = format!("the format \"{}\" did not give one line for each row", self.name);
            return Err(Error::run(code::MALFORMED, message).hint("Escape line ends within values."));
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.lines), vec![Arc::new(lines)]);
        let rows = rows.map_err(|error| Error::internal("lines", error))?;
        self.inner.write(&StreamBatch::inserts(rows, batch.arrived))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.inner.flush()
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.inner.finish()
    }

    fn prepare(&mut self) -> Result<Option<Value>, Error> {
        self.inner.prepare()
    }

    fn commit(&mut self) -> Result<(), Error> {
        self.inner.commit()
    }

    fn abort(&mut self) {
        self.inner.abort();
    }
}

/// Calls a format; a panic in it becomes an error that names it.
fn guarded<T>(name: &str, call: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let message = format!("the format \"{name}\" panicked: {}", panic_text(panic.as_ref()));
        Err(Error::run(code::EVALUATION, message).hint("Reject lines that it can't read."))
    })
}

/// Whether a name or an option of a format is taken by those that come with Tidegate.
pub(super) fn check_format(format: &dyn Format, formats: &Formats, built_in: &[&str]) -> Result<(), Error> {
    let name = format.name();
    if formats.contains_key(name) || built_in.iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Err(Error::plan(code::ALREADY_EXISTS, format!("there is a format \"{name}\" already"))
            .hint("Give yours another name."));
    }
    let prefix = format!("{name}.");
    match format.options().into_iter().find(|key| !key.starts_with(&prefix) || TEXT_KEYS.contains(key)) {
        Some(key) => {
            let message = format!("the option \"{key}\" of format \"{name}\" does not begin with its name");
            Err(Error::plan(code::INVALID_OPTION, message).hint(format!("Call it \"{prefix}{key}\".")))
        }
        None => Ok(()),
    }
}

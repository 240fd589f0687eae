//! The connector `filesystem`: tables that are files.
//!
//! Reading: `'path'` is a file, a pipe, a folder (all files in it, at any depth; names that start
//! with `.` or `_` and files in progress are skipped) or a pattern. Each file is a split, in the
//! order of paths. Gzip and zstd are recognised by their first bytes.
//!
//! Writing: a path whose extension is that of a format (`.json`, `.csv.gz`, …) is one file; any
//! other is a folder that gets one more part file with each INSERT. A file that exists is replaced
//! only with `'sink.overwrite' = 'true'`. Files appear whole, when the query is done, or not at all; with
//! checkpoints a folder gets a part with each of them.
//! Pipes and devices are written as rows come.

#[cfg(test)]
mod ahead_tests;
mod coerce;
#[cfg(test)]
mod csv_tests;
mod follow;
#[cfg(test)]
mod follow_tests;
#[cfg(test)]
mod input_tests;
#[cfg(test)]
mod json_tests;
mod listing;
mod parquet_columns;
mod parquet_sink;
mod parquet_split;
mod parquet_statistics;
#[cfg(test)]
mod parquet_tests;
mod parts;
#[cfg(test)]
mod pipe_tests;
mod placement;
#[cfg(test)]
mod sink_tests;
mod text_sink;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde_json::Value;

pub(crate) use self::listing::local_path;
use self::listing::{FoundFile, find_files, is_glob};
pub(super) use self::placement::unwritable;
use self::placement::{Place, Placement};
use self::text_sink::TextSink;
use super::assembly::{SplitFacts, file_metadata};
use super::format::options::kind_of;
use super::format::{FormatOptions, InferredColumns, Kind, TextFormat, csv_columns, json_columns};
use super::input::{Compression, Input};
use super::options::OptionReader;
use super::pump::pumped;
use super::text_split::{ByteSource, Open, TextSplit};
use super::{Connector, ReadRequest, Sink, Source, SplitReader};
use crate::catalog::{
    ColumnKind, Options, ReadRecovery, Table, TableFacts, TableRecovery, TableStatistics, WriteRecovery,
};
use crate::error::{Code, Error, code};

const KEYS: &[&str] =
    &["path", "format", "compression", "sink.overwrite", "source.monitor-interval", "bounded"];
/// Bytes that inference looks at.
const SAMPLE_BYTES: usize = 4 << 20;

/// Files, folders, patterns and pipes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filesystem;

/// The options of a table, checked.
struct Settings {
    path: String,
    format: FormatOptions,
    compression: Compression,
    overwrite: bool,
    /// `'source.monitor-interval'`: the table goes on.
    monitor: Option<Duration>,
    /// `'bounded'`, for pipes.
    bounded: Option<bool>,
}

impl Settings {
    fn read(options: &Options) -> Result<Self, Error> {
        let kind = kind_of(options, options.get("path"));
        let [text_keys, format_keys] = kind.as_ref().map_or([&[][..], &[][..]], |(kind, _)| kind.keys());
        // A wrong format would make all of its options look unknown.
        let wrong_format = options.entry("format").is_some().then_some(()).and(kind.as_ref().err());
        if let Some(error) = wrong_format {
            return Err(error.clone());
        }
        let reader = OptionReader::new("connector \"filesystem\"", options, &[KEYS, text_keys, format_keys])?;
        let path = reader.required("path", "'folder/file.json'")?;
        let (kind, is_tsv) = kind?;
        let compression = Compression::read(reader)?;
        if kind == Kind::Parquet && matches!(compression, Compression::Gzip | Compression::Zstd) {
            return Err(reader
                .invalid("compression", "does not go with format \"parquet\", which compresses by itself")
                .hint("Remove the option."));
        }
        Ok(Self {
            path: path.to_owned(),
            format: FormatOptions::read(reader, kind, is_tsv)?,
            compression,
            overwrite: reader.boolean("sink.overwrite")? == Some(true),
            monitor: monitor_interval(reader)?,
            bounded: reader.boolean("bounded")?,
        })
    }
}

fn monitor_interval(reader: OptionReader<'_>) -> Result<Option<Duration>, Error> {
    let key = "source.monitor-interval";
    let Some(interval_us) = reader.duration_us(key)? else { return Ok(None) };
    if interval_us < 1_000 {
        return Err(reader.invalid(key, "is shorter than 1 ms").hint("Use an interval such as '1 s'."));
    }
    if reader.text("bounded").is_some() {
        return Err(reader
            .invalid("bounded", "does not go with 'source.monitor-interval', which reads on for ever")
            .hint("Keep one of the two."));
    }
    Ok(Some(Duration::from_micros(interval_us.unsigned_abs())))
}

/// Whether the path is a named pipe.
fn is_pipe(path: &str) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        std::fs::metadata(local_path(path)).is_ok_and(|facts| facts.file_type().is_fifo())
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        false
    }
}

/// Whether all that a path names are files: of a pipe or device nobody knows what was read.
fn can_be_read_again(path: &str) -> bool {
    let is_file = |facts: &std::fs::Metadata| facts.is_file() || facts.is_dir();
    match is_glob(local_path(path)) {
        true => find_files(path).unwrap_or_default().iter().all(|file| file.facts.size.is_some()),
        false => std::fs::metadata(local_path(path)).as_ref().map_or(true, is_file),
    }
}

impl Settings {
    /// Whether the table ends. A pipe ends when its writers close it, and nobody knows whether they
    /// ever will.
    fn is_bounded(&self) -> bool {
        self.monitor.is_none() && self.bounded.unwrap_or_else(|| !is_pipe(&self.path))
    }
}

impl Connector for Filesystem {
    fn name(&self) -> &'static str {
        "filesystem"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let settings = Settings::read(&table.options)?;
        settings.format.check_columns(table)?;
        Ok(TableFacts {
            is_source: settings.format.is_readable(),
            is_sink: !is_glob(&settings.path) && settings.format.is_writable(),
            bounded: settings.is_bounded(),
            takes_changelog: settings.format.takes_changelog(),
            gives_changelog: settings.format.gives_changelog(),
            upserts: settings.format.takes_changelog(),
        })
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        let settings = Settings::read(options)?;
        let place = options.entry("path").and_then(|entry| entry.value_span);
        infer(&settings).map_err(|error| before_running(error).at(place))
    }

    fn options(&self) -> Vec<&'static str> {
        KEYS.to_vec()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        file_metadata()
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        let Ok(settings) = Settings::read(&table.options) else { return TableStatistics::default() };
        let files = find_files(&settings.path).unwrap_or_default();
        let path = local_path(&settings.path);
        let grows = settings.monitor.is_some() && (is_glob(path) || Path::new(path).is_dir());
        let frequent = match settings.format.kind {
            Kind::Parquet => parquet_statistics::frequent_values(&files),
            _ => Vec::new(),
        };
        TableStatistics { has_several_splits: grows || files.len() > 1, frequent }
    }

    fn recovery(&self, table: &Table) -> TableRecovery {
        let Ok(settings) = Settings::read(&table.options) else { return TableRecovery::default() };
        let read = if can_be_read_again(&settings.path) { ReadRecovery::Again } else { ReadRecovery::Lost };
        let written = match Place::of(local_path(&settings.path)) {
            Ok(Place::Stream) => WriteRecovery::Repeated,
            Ok(Place::File) if settings.format.kind == Kind::Parquet => WriteRecovery::Refused,
            // What can't be looked at can't be written either.
            Ok(Place::Folder | Place::File) | Err(_) => WriteRecovery::TakenBack,
        };
        TableRecovery { read, written }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let settings = Settings::read(&table.options)?;
        let columns = physical_columns(table);
        let monitor = settings.monitor;
        let files = FileSource { settings, columns, bounded: table.bounded, request: request.clone() };
        Ok(match monitor {
            Some(interval) => Box::new(follow::FollowedFiles::new(files, interval)),
            None => Box::new(files),
        })
    }

    fn sink(&self, table: &Table, schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        open_sink(table, schema, None)
    }

    fn resume_sink(
        &self,
        table: &Table,
        schema: SchemaRef,
        prepared: &Value,
    ) -> Result<Box<dyn Sink>, Error> {
        open_sink(table, schema, Some(prepared))
    }
}

/// The sink of a table; `prepared`: in the place of one that told this.
fn open_sink(table: &Table, schema: SchemaRef, prepared: Option<&Value>) -> Result<Box<dyn Sink>, Error> {
    let settings = Settings::read(&table.options)?;
    let path = local_path(&settings.path);
    let extension = match settings.compression.for_writing(path) {
        Compression::Gzip => format!("{}.gz", settings.format.kind.name()),
        Compression::Zstd => format!("{}.zst", settings.format.kind.name()),
        _ => settings.format.kind.name().to_owned(),
    };
    let placement = match prepared {
        None => Placement::open(path, &extension, settings.overwrite)?,
        Some(prepared) => Placement::resume(path, &extension, settings.overwrite, prepared)?,
    };
    if settings.format.kind == Kind::Parquet {
        return Ok(Box::new(parquet_sink::ParquetSink::new(placement, schema)?));
    }
    let compression = settings.compression.for_writing(path);
    let format = &settings.format;
    Ok(Box::new(match prepared {
        None => TextSink::new(placement, format, compression, &schema)?,
        Some(prepared) => TextSink::resumed(placement, format, compression, &schema, prepared)?,
    }))
}

/// The names of a table's physical columns, in order.
pub(super) fn physical_columns(table: &Table) -> Vec<String> {
    let physical = table.columns.iter().filter(|column| matches!(column.kind, ColumnKind::Physical));
    physical.map(|column| column.name.clone()).collect()
}

/// A table of files, opened for reading.
struct FileSource {
    settings: Settings,
    columns: Vec<String>,
    bounded: bool,
    request: ReadRequest,
}

impl Source for FileSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let files = find_files(&self.settings.path)?;
        let at_once = if self.request.in_turn { 1 } else { files.len().max(1) };
        let threads = self.request.threads / at_once;
        files.into_iter().map(|file| self.split(file, threads)).collect()
    }
}

impl FileSource {
    /// `threads`: that may decode it.
    fn split(&self, file: FoundFile, threads: usize) -> Result<Box<dyn SplitReader>, Error> {
        if self.settings.format.text.is_none() {
            return Ok(Box::new(parquet_split::ParquetSplit::new(
                file.path,
                file.facts,
                &self.request,
                threads,
            )));
        }
        let compression = self.settings.compression;
        let name = file.facts.path.clone();
        let open = move || Input::open(&file.path, &name, compression);
        let open: Open = if file.facts.size.is_none() && !self.bounded {
            pumped(&file.facts.path, open)
        } else {
            Box::new(move || Ok(Box::new(open()?) as Box<dyn ByteSource>))
        };
        Ok(Box::new(self.text_split(file.facts, open)?.with_threads(threads)))
    }

    /// A split of the table's text format.
    fn text_split(&self, facts: SplitFacts, open: Open) -> Result<TextSplit, Error> {
        let format = &self.settings.format;
        let Some(text) = &format.text else {
            return Err(Error::internal("filesystem", "a Parquet file is no text"));
        };
        TextSplit::new(facts, open, text, format, &self.columns, &self.request)
    }
}

/// The same error, as one of planning.
fn before_running(error: Error) -> Error {
    let plan = Error::plan(Code(error.code()), error.message());
    match error.hint_text() {
        Some(hint) => plan.hint(hint),
        None => plan,
    }
}

/// The columns of the first file that is not empty.
fn infer(settings: &Settings) -> Result<SchemaRef, Error> {
    let files = find_files(&settings.path)?;
    let Some(first) = files.iter().find(|file| file.facts.size != Some(0)).or(files.first()) else {
        return Err(no_columns(&settings.path, "the folder has no files"));
    };
    if first.facts.size.is_none() {
        return Err(no_columns(&settings.path, "it is a pipe, whose rows can be read only once"));
    }
    if settings.format.kind == Kind::Parquet {
        return parquet_split::read_schema(&first.path, &first.facts.path);
    }
    let (sample, is_all) = sample(&first.path, &first.facts.path, settings.compression)?;
    columns_of(&sample, is_all, &settings.format)
        .and_then(distinct)
        .map(to_schema)
        .map_err(|why| no_columns(&first.facts.path, &why))
}

/// The columns that a sample of a text format shows.
pub(super) fn columns_of(sample: &[u8], is_all: bool, format: &FormatOptions) -> InferredColumns {
    match &format.text {
        Some(TextFormat::Json { .. }) => json_columns(sample, is_all),
        Some(TextFormat::Csv(options)) => csv_columns(sample, is_all, options),
        Some(TextFormat::Raw) => Ok(vec![("line".to_owned(), DataType::Utf8)]),
        Some(TextFormat::Debezium { .. }) => Err("changes of a table don't tell its columns".to_owned()),
        None => Err("its rows can't be read".to_owned()),
    }
}

fn distinct(columns: Vec<(String, DataType)>) -> InferredColumns {
    for (index, (name, _)) in columns.iter().enumerate() {
        if columns[..index].iter().any(|(other, _)| other == name) {
            return Err(format!("two columns are called \"{name}\""));
        }
    }
    Ok(columns)
}

fn to_schema(columns: Vec<(String, DataType)>) -> SchemaRef {
    let fields = columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn no_columns(path: &str, why: &str) -> Error {
    Error::plan(code::INVALID_TABLE, format!("can't tell the columns of \"{path}\": {why}"))
        .hint("List the columns in CREATE TABLE.")
}

/// The start of a file, decompressed, and whether it is all of it.
fn sample(path: &Path, name: &str, compression: Compression) -> Result<(Vec<u8>, bool), Error> {
    let mut input = Input::open(path, name, compression)?;
    let mut sample = vec![0; SAMPLE_BYTES];
    let mut filled = 0;
    while filled < sample.len() {
        match input.read_some(&mut sample[filled..])? {
            0 => {
                sample.truncate(filled);
                return Ok((sample, true));
            }
            count => filled += count,
        }
    }
    Ok((sample, false))
}

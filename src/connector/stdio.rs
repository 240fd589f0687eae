//! The connectors `stdin` and `stdout`: text through the process's own pipes.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::datatypes::{DataType, SchemaRef};

use super::assembly::{SplitFacts, source_metadata};
use super::filesystem::physical_columns;
use super::format::options::kind_of;
use super::format::{CsvStyle, CsvWriter, Encoder, FormatOptions, Kind};
use super::input::{Compression, Input};
use super::options::OptionReader;
use super::pump::pumped;
use super::text_split::{ByteSource, Open, TextSplit};
use super::{Connector, ReadRequest, Sink, Source, SplitReader};
use crate::catalog::{Options, ReadRecovery, Table, TableFacts, TableRecovery};
use crate::error::{Error, code};
use crate::stream::StreamBatch;

/// Rows from standard input, in a text format. It can be read once.
///
/// It counts as bounded, because a pipe ends; `'bounded' = 'false'` says that this one does not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdin;

/// Rows to standard output, in a text format or as `changelog-json`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stdout;

const STDIN_KEYS: &[&str] = &["format", "compression", "bounded"];

struct StdinSettings {
    format: FormatOptions,
    compression: Compression,
    bounded: bool,
}

impl StdinSettings {
    fn read(options: &Options) -> Result<Self, Error> {
        let (kind, _) = kind_of(options, None)?;
        let [text, own] = kind.keys();
        let reader = OptionReader::new("connector \"stdin\"", options, &[STDIN_KEYS, text, own])?;
        no_parquet(reader, kind)?;
        no_changelog(reader, kind)?;
        Ok(Self {
            format: FormatOptions::read(reader, kind, false)?,
            compression: Compression::read(reader)?,
            bounded: reader.boolean("bounded")? != Some(false),
        })
    }
}

fn no_parquet(reader: OptionReader<'_>, kind: Kind) -> Result<(), Error> {
    if kind == Kind::Parquet {
        return Err(reader.invalid("format", "can't go through a pipe").hint("Use 'json' or 'csv'."));
    }
    Ok(())
}

/// Changelogs can't be read.
pub(super) fn no_changelog(reader: OptionReader<'_>, kind: Kind) -> Result<(), Error> {
    if kind == Kind::ChangelogJson {
        return Err(reader.invalid("format", "can only be written").hint("Use 'json' or 'csv'."));
    }
    Ok(())
}

impl Connector for Stdin {
    fn name(&self) -> &'static str {
        "stdin"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let settings = StdinSettings::read(&table.options)?;
        settings.format.check_columns(table)?;
        Ok(TableFacts {
            is_source: true,
            is_sink: false,
            bounded: settings.bounded,
            takes_changelog: false,
            gives_changelog: settings.format.gives_changelog(),
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(Error::plan(code::INVALID_TABLE, "the columns of standard input can't be told beforehand")
            .hint("List the columns in CREATE TABLE."))
    }

    fn options(&self) -> Vec<&'static str> {
        STDIN_KEYS.to_vec()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        let mut keys = source_metadata();
        keys.push(("file.line", DataType::Int64));
        keys
    }

    /// Nobody can give again what was read.
    fn recovery(&self, _table: &Table) -> TableRecovery {
        TableRecovery { read: ReadRecovery::Lost, ..TableRecovery::default() }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let settings = StdinSettings::read(&table.options)?;
        let columns = physical_columns(table);
        Ok(Box::new(StdinSource { settings, columns, request: request.clone() }))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(no_sink(&table.name, "stdin"))
    }
}

/// `P003`: the table can't be written.
pub(super) fn no_sink(table: &str, connector: &str) -> Error {
    Error::plan(code::INVALID_QUERY, format!("table \"{table}\" can't be written: it is a \"{connector}\""))
        .hint("Insert into a table of a connector that writes, such as 'filesystem' or 'stdout'.")
}

/// `P003`: the table can't be read.
pub(super) fn no_source(table: &str, connector: &str) -> Error {
    Error::plan(code::INVALID_QUERY, format!("table \"{table}\" can't be read: it is a \"{connector}\""))
        .hint("Read from a table of a connector that reads, such as 'filesystem' or 'stdin'.")
}

/// `C006`: no columns to be found.
pub(super) fn no_columns(connector: &str) -> Error {
    Error::plan(
        code::INVALID_TABLE,
        format!("a table of connector \"{connector}\" has no columns of its own"),
    )
    .hint("List the columns in CREATE TABLE.")
}

struct StdinSource {
    settings: StdinSettings,
    columns: Vec<String>,
    request: ReadRequest,
}

/// A second reader would get what the first one left, or nothing, and not say so.
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Source for StdinSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let Some(text) = &self.settings.format.text else { return Ok(Vec::new()) };
        let compression = self.settings.compression;
        let open = move || {
            if TAKEN.swap(true, Ordering::Relaxed) {
                return Err(Error::run(code::UNREADABLE, "standard input is read already")
                    .hint("Read it once, in one query; a statement set can write several tables from it."));
            }
            Input::new("standard input", io::stdin(), true, compression)
        };
        let facts = SplitFacts { path: "standard input".to_owned(), ..SplitFacts::default() };
        let open: Open = match self.settings.bounded {
            true => Box::new(move || Ok(Box::new(open()?) as Box<dyn ByteSource>)),
            false => pumped("standard input", open),
        };
        let split = TextSplit::new(facts, open, text, &self.settings.format, &self.columns, &self.request)?;
        Ok(vec![Box::new(split)])
    }
}

fn stdout_format(options: &Options) -> Result<FormatOptions, Error> {
    let (kind, _) = match options.get("format") {
        None => (Kind::Json, false),
        Some(_) => kind_of(options, None)?,
    };
    let [text, own] = kind.keys();
    let reader = OptionReader::new("connector \"stdout\"", options, &[&["format"], text, own])?;
    no_parquet(reader, kind)?;
    FormatOptions::read(reader, kind, false)
}

impl Connector for Stdout {
    fn name(&self) -> &'static str {
        "stdout"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let format = stdout_format(&table.options)?;
        format.check_columns(table)?;
        let takes_changelog = format.takes_changelog();
        Ok(TableFacts {
            is_source: false,
            is_sink: true,
            bounded: true,
            takes_changelog,
            gives_changelog: false,
            upserts: takes_changelog,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(no_columns("stdout"))
    }

    fn source(&self, table: &Table, _request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        Err(no_source(&table.name, "stdout"))
    }

    fn sink(&self, table: &Table, schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        let format = stdout_format(&table.options)?;
        let encoder = match format.csv() {
            // Unlike a file, a terminal or pipe gets a header unless told otherwise.
            Some(csv) => {
                let style = CsvStyle { header: csv.header != Some(false), ..CsvWriter::style_of(csv) };
                Encoder::Csv(CsvWriter::with_times(&schema, style, format.time_style))
            }
            None => Encoder::new(&format, &schema)?,
        };
        Ok(Box::new(StdoutSink { encoder, buffer: Vec::new() }))
    }
}

struct StdoutSink {
    encoder: Encoder,
    buffer: Vec<u8>,
}

impl Sink for StdoutSink {
    fn write(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        self.encoder.write(batch, &mut self.buffer)?;
        write_stdout(&mut self.buffer)
    }

    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.encoder.start(&mut self.buffer);
        write_stdout(&mut self.buffer)
    }

    fn abort(&mut self) {
        self.buffer.clear();
    }
}

/// Writes and empties the buffer. Several sinks of one process may write: whole buffers don't mix.
///
/// # Errors
/// `F004` if the reader has gone, `F003` otherwise.
pub(super) fn write_stdout(buffer: &mut Vec<u8>) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    let result = out.write_all(buffer).and_then(|()| out.flush());
    buffer.clear();
    result.map_err(|error| super::filesystem::unwritable("standard output", &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connector::testing::table;

    #[test]
    fn what_the_pipes_can_do() {
        let columns = [("v", DataType::Int32)];
        let facts = Stdin.check(&table(&columns, &[("format", "json")])).unwrap();
        assert!(facts.is_source && !facts.is_sink && facts.bounded);
        let facts = Stdin.check(&table(&columns, &[("format", "csv"), ("bounded", "false")])).unwrap();
        assert!(!facts.bounded);
        assert_eq!(Stdin.check(&table(&columns, &[])).unwrap_err().code(), "C003");
        assert_eq!(Stdin.check(&table(&columns, &[("format", "parquet")])).unwrap_err().code(), "C002");
        assert!(!Stdout.check(&table(&columns, &[])).unwrap().takes_changelog);
        let facts = Stdout.check(&table(&columns, &[("format", "changelog-json")])).unwrap();
        assert!(facts.takes_changelog && facts.is_sink && !facts.is_source);
        assert_eq!(Stdout.check(&table(&columns, &[("formt", "json")])).unwrap_err().code(), "C001");
    }
}

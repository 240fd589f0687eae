//! Reads a Parquet file: only the requested columns, cast to the table's types where that is exact.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;

use super::coerce::{coerce, sql_type};
use super::parquet_columns::ParquetColumns;
use crate::connector::assembly::{Assembly, SplitFacts};
use crate::connector::format::sql_type_name;
use crate::connector::input::unreadable;
use crate::connector::{CancelToken, Lines, Read, ReadRequest, SplitBatch, SplitReader};
use crate::error::{Error, code, did_you_mean};

/// A Parquet file as a split.
pub(super) struct ParquetSplit {
    path: PathBuf,
    facts: SplitFacts,
    assembly: Assembly,
    batch_rows: usize,
    threads: usize,
    cancel: CancelToken,
    state: State,
    rows: u64,
    total: u64,
}

enum State {
    Unopened,
    Open(ParquetColumns),
    Read,
}

impl ParquetSplit {
    /// `threads`: that may read it.
    pub(super) fn new(path: PathBuf, facts: SplitFacts, request: &ReadRequest, threads: usize) -> Self {
        Self {
            path,
            facts,
            assembly: Assembly::new(request),
            batch_rows: request.batch_rows.max(1),
            threads,
            cancel: request.cancel.clone(),
            state: State::Unopened,
            rows: 0,
            total: 0,
        }
    }

    fn open(&mut self) -> Result<(), Error> {
        let name = &self.facts.path;
        let file = File::open(&self.path).map_err(|error| unreadable(name, &error))?;
        // A file without a byte has no rows, like any other format's.
        if self.facts.size == Some(0) {
            self.state = State::Read;
            return Ok(());
        }
        let metadata = load(&file, name)?;
        self.total = u64::try_from(metadata.metadata().file_metadata().num_rows()).unwrap_or(0);
        let columns = metadata.schema().fields();
        let wanted = self.assembly.physical().fields().iter();
        let wanted =
            wanted.map(|field| find_column(columns, field.name(), name)).collect::<Result<Vec<_>, _>>()?;
        let (batch_rows, threads) = (self.batch_rows, self.threads);
        let columns = ParquetColumns::open(&self.path, name, file, &metadata, &wanted, batch_rows, threads)?;
        self.state = State::Open(columns);
        Ok(())
    }
}

impl SplitReader for ParquetSplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    fn next(&mut self) -> Result<Read, Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        if matches!(self.state, State::Unopened) {
            self.open()?;
        }
        let State::Open(reader) = &mut self.state else { return Ok(Read::End) };
        let Some(batch) = reader.next() else {
            self.state = State::Read;
            return Ok(Read::End);
        };
        let (columns, rows) = batch.map_err(|error| damaged(&self.facts.path, error))?;
        let fields = self.assembly.physical().fields();
        let columns = fields.iter().zip(&columns).map(|(field, column)| {
            let column = coerce(column, field.data_type()).map_err(|why| {
                Error::run(code::MALFORMED, format!("{}, column \"{}\" {why}", self.facts.path, field.name()))
                    .hint("Declare the column with the type that it has in the file, and CAST in the query.")
            })?;
            if !field.is_nullable() && column.null_count() > 0 {
                return Err(Error::run(
                    code::MALFORMED,
                    format!(
                        "{}, column \"{}\" holds NULL and is declared NOT NULL",
                        self.facts.path,
                        field.name()
                    ),
                ));
            }
            Ok(column)
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let lines = Lines::From(self.rows + 1);
        self.rows += rows as u64;
        let rows = self.assembly.batch(columns, rows, &lines, &self.facts)?;
        Ok(Read::Rows(SplitBatch { rows, lines, rejected: Vec::new(), kinds: None }))
    }

    fn progress(&self) -> (u64, Option<u64>) {
        let size = self.facts.size.unwrap_or(0);
        let done = match self.state {
            State::Unopened => 0,
            State::Open(_) => {
                (u128::from(size) * u128::from(self.rows) / u128::from(self.total.max(1))) as u64
            }
            State::Read => size,
        };
        (done, self.facts.size)
    }
}

/// The columns of a file in types of SQL.
///
/// # Errors
/// `C006` for a column that SQL has no type for.
pub(super) fn read_schema(path: &Path, name: &str) -> Result<SchemaRef, Error> {
    let file = File::open(path).map_err(|error| unreadable(name, &error))?;
    let metadata = load(&file, name)?;
    let fields = metadata.schema().fields().iter().map(|field| {
        let data_type = sql_type(field.data_type()).ok_or_else(|| {
            Error::plan(
                code::INVALID_TABLE,
                format!(
                    "\"{name}\", column \"{}\": {} is no type of SQL",
                    field.name(),
                    sql_type_name(field.data_type())
                ),
            )
            .hint("List the other columns in CREATE TABLE.")
        })?;
        Ok(Field::new(field.name(), data_type, true))
    });
    Ok(Arc::new(Schema::new(fields.collect::<Result<Vec<_>, Error>>()?)))
}

/// A file's metadata. INT96 timestamps are read as microseconds: in nanoseconds, which the
/// reader would choose, everything after 2262 would be lost.
pub(super) fn load(file: &File, name: &str) -> Result<ArrowReaderMetadata, Error> {
    let failed = |error| damaged(name, error);
    let metadata = ArrowReaderMetadata::load(file, ArrowReaderOptions::new()).map_err(failed)?;
    let has_int96 = metadata
        .parquet_schema()
        .columns()
        .iter()
        .any(|column| column.physical_type() == PhysicalType::INT96);
    if !has_int96 {
        return Ok(metadata);
    }
    // Only INT96 makes a timestamp of nanoseconds out of a column without a logical type.
    let roots = metadata.parquet_schema();
    let fields = metadata.schema().fields().iter().enumerate().map(|(index, field)| {
        let is_int96 = (0..roots.num_columns()).any(|leaf| {
            roots.get_column_root_idx(leaf) == index
                && roots.column(leaf).physical_type() == PhysicalType::INT96
        });
        if is_int96 {
            Arc::new(field.as_ref().clone().with_data_type(in_micros(field.data_type())))
        } else {
            Arc::clone(field)
        }
    });
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let options = ArrowReaderOptions::new().with_schema(Arc::new(schema));
    ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options).map_err(failed)
}

fn in_micros(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        DataType::List(item) => {
            DataType::List(Arc::new(item.as_ref().clone().with_data_type(in_micros(item.data_type()))))
        }
        DataType::Struct(fields) => DataType::Struct(
            fields
                .iter()
                .map(|field| field.as_ref().clone().with_data_type(in_micros(field.data_type())))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn find_column(columns: &arrow::datatypes::Fields, name: &str, file: &str) -> Result<usize, Error> {
    let exact = columns.iter().position(|column| column.name() == name);
    let found = exact.or_else(|| columns.iter().position(|column| column.name().eq_ignore_ascii_case(name)));
    found.ok_or_else(|| {
        let error = Error::run(code::MALFORMED, format!("{file} has no column \"{name}\""));
        let names: Vec<_> = columns.iter().map(|column| column.name().as_str()).collect();
        match did_you_mean(name, names.iter().copied()) {
            Some(near) => error.hint(format!("Use \"{near}\".")),
            None => error.hint(format!("Use columns of the file: {}.", names.join(", "))),
        }
    })
}

pub(super) fn damaged(name: &str, error: ParquetError) -> Error {
    Error::run(code::UNREADABLE, format!("can't read \"{name}\": {error}"))
        .hint("Check that the file is complete and is Parquet.")
}

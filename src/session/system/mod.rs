//! The tables `system.…`: what is measured of the jobs of a session, as rows.
//!
//! As a bounded table each is one moment, the one at which the query starts. A query block with `EMIT
//! CHANGES [EVERY …]` reads it again and again: then each round adds the rows of another moment.
//! Jobs that read nothing but these tables are not in them.

mod cells;
mod rows;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_expr::{Expr, lit};

use super::Jobs;
use crate::catalog::{
    Column, ColumnKind, NullTime, Options, ReadRecovery, SYSTEM_CONNECTOR, SYSTEM_EVERY, Table, TableFacts,
    TableRecovery, WatermarkSpec,
};
use crate::connector::{
    Connector, INGESTION_TIME, Lines, Position, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader,
};
use crate::error::{Error, code};
use crate::runtime::JobClock;
use crate::stream::TimeUnit;
use rows::{ALL, Definition};

/// The time column of all of them.
const AS_OF: &str = "as_of";

/// The tables of a session whose time zone is `zone`.
pub(super) fn tables(zone: &str) -> Vec<Table> {
    ALL.iter().map(|definition| table(definition, zone)).collect()
}

fn table(definition: &Definition, zone: &str) -> Table {
    let column = |(name, kind): &(&str, cells::Kind)| Column {
        name: (*name).to_owned(),
        data_type: kind.data_type(zone),
        nullable: *name != AS_OF,
        kind: ColumnKind::Physical,
    };
    let millisecond = datafusion_common::ScalarValue::new_interval_mdn(0, 0, 1_000_000);
    Table {
        name: format!("system.{}", definition.name),
        columns: definition.columns.iter().map(column).collect(),
        // All rows of a moment have the same time.
        watermark: Some(WatermarkSpec {
            column: AS_OF.to_owned(),
            unit: TimeUnit::Millisecond,
            expr: Box::new(
                Expr::Column(datafusion_common::Column::new_unqualified(AS_OF)) - lit(millisecond),
            ),
            sql: format!("{AS_OF} - INTERVAL '0.001' SECOND"),
            idle_after_us: None,
            then_advance: false,
            max_ahead_us: None,
            null_time: NullTime::default(),
        }),
        primary_key: Vec::new(),
        options: Options::default(),
        connector: SYSTEM_CONNECTOR.to_owned(),
        bounded: true,
        temporary: true,
    }
}

/// What reads them.
#[derive(Clone)]
pub(super) struct SystemTables {
    jobs: Jobs,
    clock: Arc<Mutex<JobClock>>,
}

impl SystemTables {
    pub(super) fn new(jobs: Jobs, clock: JobClock) -> Self {
        Self { jobs, clock: Arc::new(Mutex::new(clock)) }
    }

    fn clock(&self) -> MutexGuard<'_, JobClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams to come read again by this clock.
    pub(super) fn set_clock(&self, clock: &JobClock) {
        *self.clock() = clock.clone();
    }
}

fn definition(table: &Table) -> Result<&'static Definition, Error> {
    let name = table.name.strip_prefix("system.");
    ALL.iter().find(|definition| Some(definition.name) == name).ok_or_else(|| {
        Error::plan(code::UNKNOWN_CONNECTOR, "the connector \"system\" is that of the tables system.…")
            .hint("Select from system.jobs, system.operators or another of them; they are always there.")
    })
}

/// How often a stream of the table reads it, microseconds; `None`: it is read once.
fn every_us(table: &Table) -> Option<i64> {
    table.options.get(SYSTEM_EVERY)?.parse().ok()
}

impl Connector for SystemTables {
    fn name(&self) -> &'static str {
        SYSTEM_CONNECTOR
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let bounded = every_us(table).is_none();
        let place = table.options.entry("connector").and_then(|entry| entry.value_span);
        definition(table).map_err(|error| error.at(place))?;
        Ok(TableFacts {
            is_source: true,
            is_sink: false,
            bounded,
            takes_changelog: false,
            gives_changelog: false,
            upserts: false,
        })
    }

    fn infer_schema(&self, _options: &Options) -> Result<SchemaRef, Error> {
        Err(Error::plan(code::INVALID_TABLE, "the tables system.… are always there")
            .hint("Select from system.jobs, system.operators or another of them."))
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        vec![(
            INGESTION_TIME,
            DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, Some("UTC".into())),
        )]
    }

    /// Nobody can give again what was read.
    fn recovery(&self, _table: &Table) -> TableRecovery {
        TableRecovery { read: ReadRecovery::Lost, ..TableRecovery::default() }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let mut reader = SystemReader {
            name: table.name.clone(),
            definition: definition(table)?,
            jobs: self.jobs.clone(),
            request: request.clone(),
            clock: self.clock().clone(),
            every_us: every_us(table),
            due_us: i64::MIN,
            waiting: VecDeque::new(),
        };
        if reader.every_us.is_none() {
            // The moment at which the query starts, without the query itself.
            reader.look()?;
        }
        Ok(Box::new(SystemSource(Some(reader))))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(Error::plan(code::INVALID_QUERY, format!("\"{}\" can't be written", table.name))
            .hint("Insert into a table of your own."))
    }
}

struct SystemSource(Option<SystemReader>);

impl Source for SystemSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        Ok(self.0.take().map(|reader| Box::new(reader) as Box<dyn SplitReader>).into_iter().collect())
    }
}

/// Reads a table: once, or again and again.
struct SystemReader {
    name: String,
    definition: &'static Definition,
    jobs: Jobs,
    request: ReadRequest,
    clock: JobClock,
    every_us: Option<i64>,
    /// When it is read next.
    due_us: i64,
    /// What was read and not given yet.
    waiting: VecDeque<RecordBatch>,
}

impl SystemReader {
    /// Reads the table as it is now.
    fn look(&mut self) -> Result<(), Error> {
        let columns = self.definition.columns;
        let mut rows = Vec::new();
        for job in self.jobs.observed() {
            (self.definition.rows)(&job, &mut rows);
        }
        let schema = &self.request.schema;
        let wanted = schema.fields().iter().zip(&self.request.metadata).map(|(field, metadata)| {
            if metadata.is_some() {
                // The source stamps it, with its own clock.
                let none: ArrayRef =
                    Arc::new(TimestampMillisecondArray::from(vec![0; rows.len()]).with_timezone("UTC"));
                return cast(&none, field.data_type()).map_err(|error| Error::internal("system", error));
            }
            let place = columns.iter().position(|(name, _)| name == field.name());
            let place = place.ok_or_else(|| Error::internal("system", format!("no {}", field.name())))?;
            cells::column(columns[place].1, field.data_type(), rows.iter().map(|row| &row[place]))
        });
        let wanted = wanted.collect::<Result<Vec<_>, Error>>()?;
        let batch = RecordBatch::try_new(Arc::clone(schema), wanted)
            .map_err(|error| Error::internal("system", error))?;
        let most = self.request.batch_rows.max(1);
        let starts = (0..batch.num_rows()).step_by(most);
        self.waiting.extend(starts.map(|start| batch.slice(start, most.min(batch.num_rows() - start))));
        Ok(())
    }
}

impl SplitReader for SystemReader {
    fn name(&self) -> &str {
        &self.name
    }

    /// What it gave does not come again.
    fn position(&self) -> Option<Position> {
        Some(Position::lost())
    }

    fn seek(&mut self, _position: &Position) -> Result<(), Error> {
        Ok(())
    }

    fn next(&mut self) -> Result<Read, Error> {
        if self.request.cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        if let Some(every_us) = self.every_us.filter(|_| self.waiting.is_empty()) {
            let now_us = self.clock.0.elapsed_us();
            if now_us >= self.due_us {
                // Rounds that were missed are not made up for.
                let last = if self.due_us == i64::MIN { now_us } else { self.due_us };
                let missed = (now_us - last) / every_us;
                self.due_us = last.saturating_add((missed + 1).saturating_mul(every_us));
                self.look()?;
            }
        }
        Ok(match (self.waiting.pop_front(), self.every_us) {
            (Some(rows), _) => {
                Read::Rows(SplitBatch { rows, lines: Lines::From(1), rejected: Vec::new(), kinds: None })
            }
            (None, Some(_)) => Read::Empty,
            (None, None) => Read::End,
        })
    }
}

//! The connector `nexmark`: the events of an auction house, the same for the same seed.
//!
//! An event has a number, from 0, and is a function of the seed and that number: the same whichever table
//! reads it, in whatever split and batch, with whatever other columns. Of 50 events one is a new person,
//! three are new auctions, 46 are bids. A column that is not read is not made.
//!
//! `'table'` says which events are rows: `person`, `auction`, `bid`, with columns of their own, or `events`,
//! all of them, with a `ROW` for each kind. `settings` has the other options, `docs/connectors.md` says what
//! they mean.
//!
//! Source: the generators of Apache Beam's and Flink's Nexmark suites, for the proportions, the columns and
//! how values are distributed; the values are others.

mod column;
mod field;
mod layout;
mod model;
mod settings;
mod text;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arrow::datatypes::{DataType, SchemaRef};

use self::column::Column;
use self::field::Texts;
use self::layout::{Event, Walk};
use self::model::Model;
use self::settings::{KEYS, Settings};
use super::assembly::{Assembly, SplitFacts, source_metadata};
use super::batch_rows::BatchRows;
use super::stdio::no_sink;
use super::{CancelToken, Connector, Lines, Read, ReadRequest, Sink, Source, SplitBatch, SplitReader};
use crate::catalog::{Options, Table, TableFacts, TableStatistics};
use crate::error::Error;

/// Generated persons, auctions and bids.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nexmark;

impl Connector for Nexmark {
    fn name(&self) -> &'static str {
        "nexmark"
    }

    fn check(&self, table: &Table) -> Result<TableFacts, Error> {
        let settings = Settings::read(&table.options)?;
        for column in column::physical(table) {
            Column::new(settings.kind, &column.name, &column.data_type)?;
        }
        Ok(TableFacts::source(settings.bounded))
    }

    fn infer_schema(&self, options: &Options) -> Result<SchemaRef, Error> {
        Ok(column::schema(Settings::read(options)?.kind))
    }

    fn options(&self) -> Vec<&'static str> {
        KEYS.to_vec()
    }

    fn metadata(&self) -> Vec<(&'static str, DataType)> {
        source_metadata()
    }

    fn statistics(&self, table: &Table) -> TableStatistics {
        let has_several_splits = Settings::read(&table.options).is_ok_and(|settings| settings.splits > 1);
        TableStatistics { has_several_splits, ..TableStatistics::default() }
    }

    fn source(&self, table: &Table, request: &ReadRequest) -> Result<Box<dyn Source>, Error> {
        let settings = Settings::read(&table.options)?;
        Ok(Box::new(NexmarkSource { settings, request: request.clone() }))
    }

    fn sink(&self, table: &Table, _schema: SchemaRef) -> Result<Box<dyn Sink>, Error> {
        Err(no_sink(&table.name, "nexmark"))
    }
}

struct NexmarkSource {
    settings: Settings,
    request: ReadRequest,
}

impl Source for NexmarkSource {
    fn splits(&mut self) -> Result<Vec<Box<dyn SplitReader>>, Error> {
        let settings = &self.settings;
        let layout = settings.parameters.layout;
        let assembly = Assembly::new(&self.request);
        let fields = assembly.physical().fields().iter();
        let columns = fields.map(|field| Column::new(settings.kind, field.name(), field.data_type()));
        let columns: Arc<[Column]> = columns.collect::<Result<_, _>>()?;
        let model = Model::new(settings.parameters);
        let made: Vec<_> = columns.iter().flat_map(Column::fields).collect();
        let texts = Texts::new(&model, &made);
        let rows = settings.events.map(|events| layout.rows(settings.kind, events));
        let started = Arc::new(OnceLock::new());
        let split = |number: u64| {
            let path = match settings.splits {
                1 => "nexmark".to_owned(),
                _ => format!("nexmark[{number}]"),
            };
            Box::new(NexmarkSplit {
                facts: SplitFacts { path, ..SplitFacts::default() },
                settings: settings.clone(),
                columns: Arc::clone(&columns),
                model: model.clone(),
                texts: texts.clone(),
                assembly: assembly.clone(),
                started: Arc::clone(&started),
                batch_rows: BatchRows::new(self.request.batch_rows),
                cancel: self.request.cancel.clone(),
                rows,
                next: number,
                walk: Walk::new(layout, settings.kind, number, settings.splits),
                events: Vec::new(),
                given: 0,
            }) as Box<dyn SplitReader>
        };
        Ok((0..settings.splits).map(split).collect())
    }
}

struct NexmarkSplit {
    facts: SplitFacts,
    settings: Settings,
    columns: Arc<[Column]>,
    model: Model,
    texts: Texts,
    assembly: Assembly,
    started: Arc<OnceLock<Instant>>,
    batch_rows: BatchRows,
    cancel: CancelToken,
    /// Rows of the table, of all splits.
    rows: Option<u64>,
    /// The table's row that comes next.
    next: u64,
    walk: Walk,
    /// Those of the batch.
    events: Vec<Event>,
    /// Rows of this split so far.
    given: u64,
}

impl SplitReader for NexmarkSplit {
    fn name(&self) -> &str {
        &self.facts.path
    }

    fn next(&mut self) -> Result<Read, Error> {
        if self.cancel.is_cancelled() {
            return Err(Error::interrupted());
        }
        let Settings { kind, splits, pace, parameters, .. } = &self.settings;
        // Rows of this split before row `end` of the table.
        let before = |end: u64| end.saturating_sub(self.next).div_ceil(*splits);
        let left = self.rows.map_or(u64::MAX, before);
        if left == 0 {
            return Ok(Read::End);
        }
        let due = match pace {
            None => u64::MAX,
            Some(pace) => {
                let events = pace.due(self.started.get_or_init(Instant::now).elapsed());
                before(parameters.layout.rows(*kind, events))
            }
        };
        let count = left.min(due).min(self.batch_rows.next());
        if count == 0 {
            return Ok(Read::Empty);
        }
        self.events.clear();
        self.events.extend((0..count).map(|_| self.walk.next()));
        self.next += count * splits;
        let columns = self.columns.iter().map(|column| column.array(&self.model, &self.texts, &self.events));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let lines = Lines::From(self.given + 1);
        self.given += count;
        let rows = self.assembly.batch(columns, count as usize, &lines, &self.facts)?;
        self.batch_rows.follow(&rows);
        Ok(Read::Rows(SplitBatch { rows, kinds: None, lines, rejected: Vec::new() }))
    }
}

#[cfg(test)]
mod tests;

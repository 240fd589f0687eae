//! EMIT COMPLETE: the whole result in place of the one before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::{Int64Type, SchemaRef, UInt32Type};
use arrow::record_batch::RecordBatch;

use super::super::placement::PartKey;
use super::super::results::{Bounds, ResultBatches, constant};
use super::changes::give;
use super::groups::KeyFormat;
use super::window::Window;
use crate::error::Error;
use crate::operator::state::{batch, misfit, with_schema};
use crate::operator::{Output, StateReader, StateWriter};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, Watermark};

/// The results of windows that are gone, and what was given last.
pub(super) struct Complete {
    batches: ResultBatches,
    has_bounds: bool,
    gone: BTreeMap<PartKey, (Bounds, usize, Vec<ArrayRef>)>,
    given: Given,
    /// Rows have come since.
    pub(super) is_dirty: bool,
}

impl Complete {
    pub(super) fn new(schema: &SchemaRef, has_bounds: bool, unit_us: i64) -> Self {
        let batches = ResultBatches::new(schema, has_bounds, unit_us);
        Self { batches, has_bounds, gone: BTreeMap::new(), given: Given::default(), is_dirty: false }
    }

    /// Keeps the results of a window that takes no more rows.
    pub(super) fn keep(&mut self, key: PartKey, window: &mut Window, keys: &KeyFormat) -> Result<(), Error> {
        let (groups, columns) = window.results(keys)?;
        self.gone.insert(key, (window.bounds, groups, columns));
        Ok(())
    }

    /// Deletes what was given and gives the whole result, by window end, then as keys were first seen.
    /// The same result is not given again.
    pub(super) fn round(
        &mut self,
        windows: &mut BTreeMap<PartKey, Window>,
        keys: &KeyFormat,
        running: i64,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        self.is_dirty = false;
        let mut result = Output::default();
        let mut gone = self.gone.iter().peekable();
        for (key, window) in windows.iter_mut() {
            while let Some((_, (bounds, groups, columns))) = gone.next_if(|(other, _)| *other < key) {
                self.batches.add(*bounds, (*groups, columns.clone()), arrived, &mut result)?;
            }
            self.batches.add(window.bounds, window.results(keys)?, arrived, &mut result)?;
        }
        for (_, (bounds, groups, columns)) in gone {
            self.batches.add(*bounds, (*groups, columns.clone()), arrived, &mut result)?;
        }
        self.batches.flush(arrived, &mut result)?;
        let stamp = self.has_bounds.then_some(running);
        self.given.replace(result, stamp, arrived, out);
        Ok(())
    }

    /// Hands on what it keeps; there is one subtask.
    pub(super) fn write(&self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("is_dirty", self.is_dirty.into());
        let mut gone = Vec::with_capacity(self.gone.len());
        for (key, (bounds, groups, columns)) in &self.gone {
            let numbers = [key.end, key.start, bounds.start, bounds.end, bounds.close];
            let mut all: Vec<ArrayRef> = numbers.iter().map(|number| constant(*number, *groups)).collect();
            all.extend(columns.iter().cloned());
            gone.push(batch(all)?);
        }
        if !gone.is_empty() {
            state.table("gone", gone, &[]);
        }
        self.given.write(state)
    }

    /// Takes up what [`Complete::write`] handed on.
    pub(super) fn read(&mut self, state: &StateReader) -> Result<(), Error> {
        self.is_dirty = state.highest("is_dirty") == Some(1);
        self.given.read(self.batches.schema(), state)?;
        let Some(columns) = state.columns("gone")? else { return Ok(()) };
        let wrong = || misfit("results have other columns");
        let (places, results) = columns.split_at_checked(5).ok_or_else(wrong)?;
        let places = places
            .iter()
            .map(|column| Some(column.as_primitive_opt::<Int64Type>()?.values().as_ref()))
            .collect::<Option<Vec<&[i64]>>>()
            .ok_or_else(wrong)?;
        let of = |row: usize| (PartKey { end: places[0][row], start: places[1][row] }, row);
        let mut from = 0;
        while from < places[0].len() {
            let (key, first) = of(from);
            let groups = (from..places[0].len()).take_while(|row| of(*row).0 == key).count();
            let bounds = Bounds { start: places[2][first], end: places[3][first], close: places[4][first] };
            let columns = results.iter().map(|column| column.slice(from, groups)).collect();
            self.gone.insert(key, (bounds, groups, columns));
            from += groups;
        }
        Ok(())
    }

    /// Windows, rows and bytes that it keeps.
    pub(super) fn size(&self) -> (usize, usize, usize) {
        let rows = self.gone.values().map(|(_, groups, _)| groups).sum();
        let columns = self.gone.values().flat_map(|(_, _, columns)| columns);
        let gone: usize = columns.map(|column| column.get_array_memory_size()).sum();
        (self.gone.len(), rows, gone + self.given.size())
    }
}

/// The whole result that was given last.
#[derive(Default)]
pub(in crate::operator::window) struct Given(Vec<RecordBatch>);

impl Given {
    /// Deletes what was given and gives `result`, if it is not the same. `running`: the watermark just
    /// before, for a result with windows.
    pub(in crate::operator::window) fn replace(
        &mut self,
        mut result: Output,
        running: Option<i64>,
        arrived: Instant,
        out: &mut Output,
    ) {
        let batches: Vec<RecordBatch> = result
            .drain()
            .filter_map(|element| match element {
                StreamElement::Batch(batch) => Some(batch.rows),
                _ => None,
            })
            .collect();
        if batches == self.0 {
            return;
        }
        let stamped = |rows: RecordBatch, kinds: Option<RowKinds>| StreamBatch {
            running: running.map(|running| RunningWatermark::constant(Watermark(running), rows.num_rows())),
            kinds,
            rows,
            arrived,
        };
        for rows in self.0.drain(..) {
            let kinds = RowKinds::new(vec![RowKind::Delete; rows.num_rows()]);
            give(&stamped(rows, Some(kinds)), out);
        }
        for rows in &batches {
            give(&stamped(rows.clone(), None), out);
        }
        self.0 = batches;
    }

    /// Hands on what was given, as it was cut into batches; there is one subtask.
    pub(in crate::operator::window) fn write(&self, state: &mut StateWriter) -> Result<(), Error> {
        if self.0.is_empty() {
            return Ok(());
        }
        let lengths = UInt32Array::from_iter_values(self.0.iter().map(|rows| rows.num_rows() as u32));
        state.columns("given_lengths", vec![Arc::new(lengths)], &[])?;
        state.table("given", self.0.clone(), &[]);
        Ok(())
    }

    /// Takes up what [`Given::write`] handed on.
    pub(in crate::operator::window) fn read(
        &mut self,
        schema: &SchemaRef,
        state: &StateReader,
    ) -> Result<(), Error> {
        let Some(rows) = state.table("given")? else { return Ok(()) };
        let rows = with_schema(schema, rows)?;
        let lengths = state.columns("given_lengths")?.unwrap_or_default();
        let lengths = lengths.first().and_then(|lengths| lengths.as_primitive_opt::<UInt32Type>());
        let mut from = 0;
        for length in lengths.map_or(&[][..], |lengths| lengths.values()) {
            let length = (*length as usize).min(rows.num_rows() - from);
            self.0.push(rows.slice(from, length));
            from += length;
        }
        Ok(())
    }

    /// Memory in bytes.
    pub(in crate::operator::window) fn size(&self) -> usize {
        self.0.iter().map(RecordBatch::get_array_memory_size).sum()
    }
}

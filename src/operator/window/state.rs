//! The groups of slices and windows as tables of a checkpoint: one table a part, so that its rows are groups and
//! nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::record_batch::RecordBatch;

use super::kept::{Kept, rows_of, sealed_of};
use super::part::part;
use super::placement::PartKey;
use super::recipe::Recipe;
use super::results::{constant, numbers};
use super::table::Sealed;
use super::{Cumulated, WindowAggregate};
use crate::error::Error;
use crate::operator::state::{batch_of, misfit};
use crate::operator::{StateReader, StateWriter};

impl WindowAggregate {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        state.number("rows_seen", self.rows_seen as i64);
        let keys = &self.recipe.spread_keys;
        let mut counts = Vec::with_capacity(self.open.len());
        for (key, part) in &mut self.open {
            let (name, rows) = (format!("open.{}.{}", key.end, key.start), part.rows());
            let table = match part.table() {
                Ok(table) => table,
                Err(away) => {
                    counts.push(count(*key, rows, &away.first)?);
                    state.spilled(&name, Arc::clone(&away.rows), keys);
                    continue;
                }
            };
            let pieces = table.share(&self.recipe)?;
            if let Some(first) = pieces.first() {
                counts.push(count(*key, rows, &first.keys)?);
            }
            state.table(&name, pieces.iter().map(rows_of).collect::<Result<_, _>>()?, keys);
        }
        if !counts.is_empty() {
            state.table("open", counts, keys);
        }
        if !self.slices.is_empty() {
            state.number("next_hop", self.next_hop);
        }
        for (index, kept) in self.slices.iter() {
            put(state, &format!("slices.{index}"), kept, keys)?;
        }
        if let Some(running) = &self.running {
            state.number("running.next_end", running.next_end);
            state.number("running.last_end", running.last_end);
            put(state, "running", &running.kept, keys)?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, state: &StateReader) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        let mut ids = std::mem::take(&mut self.ids);
        let rows = counted_rows(state, &self.recipe)?;
        for name in state.names("open.") {
            let wrong = || misfit(format_args!("there is no part \"{name}\""));
            let number = |text: &str| text.parse::<i64>().map_err(|_| wrong());
            let (end, start) = name.split_once('.').ok_or_else(wrong)?;
            let key = PartKey { end: number(end)?, start: number(start)? };
            if let Some(sealed) = read(state, &format!("open.{name}"), &self.recipe)? {
                let how = (&self.recipe, self.is_ranked);
                let table = part(&mut self.open, key, self.batches, how, &mut ids)?;
                table.merge(&sealed, &mut ids)?;
                table.count_rows(rows.get(&key).copied().unwrap_or(0));
            }
        }
        for name in state.names("slices.") {
            let index = name.parse().map_err(|_| misfit(format_args!("there is no slice \"{name}\"")))?;
            if let Some(sealed) = read(state, &format!("slices.{name}"), &self.recipe)? {
                self.slices.add(&self.recipe, index, Kept::Here(sealed), &mut ids)?;
            }
        }
        self.next_hop = state.lowest("next_hop").unwrap_or(i64::MIN);
        self.ids = ids;
        if let Some(sealed) = read(state, "running", &self.recipe)? {
            let end = |name: &str| state.lowest(name).ok_or_else(|| misfit("windows without an end"));
            let (next_end, last_end) = (end("running.next_end")?, end("running.last_end")?);
            self.running = Some(Cumulated { kept: Kept::Here(sealed), next_end, last_end });
        }
        if self.next_end().is_some() {
            self.arrived = Some(state.arrived());
        }
        Ok(())
    }
}

fn put(state: &mut StateWriter, name: &str, kept: &Kept, keys: &[usize]) -> Result<(), Error> {
    match kept {
        Kept::Here(sealed) => state.table(name, vec![rows_of(sealed)?], keys),
        Kept::Away(away) => state.spilled(name, Arc::clone(&away.rows), keys),
    }
    Ok(())
}

/// How many rows a part took, beside the keys of its first group: the end, the start, the number.
fn count(key: PartKey, rows: u64, first: &[ArrayRef]) -> Result<RecordBatch, Error> {
    let mut columns: Vec<ArrayRef> = first.iter().map(|keys| keys.slice(0, 1)).collect();
    columns.extend([constant(key.end, 1), constant(key.start, 1), numbers(vec![rows])]);
    batch_of(columns, 1)
}

/// The rows of each part.
fn counted_rows(state: &StateReader, recipe: &Recipe) -> Result<BTreeMap<PartKey, u64>, Error> {
    let mut rows = BTreeMap::new();
    let Some(columns) = state.columns("open")? else { return Ok(rows) };
    let wrong = || misfit("parts have other columns");
    let [ends, starts, counts] = columns.get(recipe.group_schema.fields().len()..).ok_or_else(wrong)? else {
        return Err(wrong());
    };
    let ends = ends.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let starts = starts.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let counts = counts.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
    for ((end, start), count) in ends.values().iter().zip(starts.values()).zip(counts.values()) {
        *rows.entry(PartKey { end: *end, start: *start }).or_default() += count;
    }
    Ok(rows)
}

/// The groups of a table; `None`: there are none of this subtask. Of several subtasks' those that have the same key stand
/// there several times, but each of them in the rows of one subtask alone.
fn read(state: &StateReader, name: &str, recipe: &Recipe) -> Result<Option<Sealed>, Error> {
    let Some(rows) = state.table(name)?.filter(|rows| rows.num_rows() > 0) else { return Ok(None) };
    let mut sealed = sealed_of(&rows, recipe)?;
    if sealed.first_rows.is_empty() {
        // Groups that are numbered in the order in which they came.
        sealed.first_rows = (0..sealed.groups as u64).collect();
    }
    Ok(Some(sealed))
}

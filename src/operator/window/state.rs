//! The groups of slices and windows as tables of a checkpoint: one table a part, so that its rows are groups and
//! nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::record_batch::RecordBatch;

use super::placement::PartKey;
use super::recipe::Recipe;
use super::results::{constant, numbers};
use super::table::Sealed;
use super::{Cumulated, WindowAggregate, part};
use crate::error::Error;
use crate::operator::state::{batch_of, misfit};
use crate::operator::{StateReader, StateWriter};

impl WindowAggregate {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        state.number("rows_seen", self.rows_seen as i64);
        let keys = &self.recipe.spread_keys;
        let mut counts = Vec::with_capacity(self.open.len());
        for (key, table) in &mut self.open {
            let pieces = table.share(&self.recipe)?;
            if let Some(first) = pieces.first() {
                counts.push(count(*key, table.rows(), first)?);
            }
            let name = format!("open.{}.{}", key.end, key.start);
            state.table(&name, pieces.into_iter().map(rows_of).collect::<Result<_, _>>()?, keys);
        }
        if !counts.is_empty() {
            state.table("open", counts, keys);
        }
        if !self.slices.is_empty() {
            state.number("next_hop", self.next_hop);
        }
        for (index, sealed) in self.slices.iter() {
            state.table(&format!("slices.{index}"), vec![rows_of(sealed.clone())?], keys);
        }
        if let Some(running) = &self.running {
            state.number("running.next_end", running.next_end);
            state.number("running.last_end", running.last_end);
            state.table("running", vec![rows_of(running.sealed.clone())?], keys);
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
                let table = part(&mut self.open, key, &self.recipe, self.is_ranked)?;
                table.merge(&sealed, &mut ids)?;
                table.count_rows(rows.get(&key).copied().unwrap_or(0));
            }
        }
        for name in state.names("slices.") {
            let index = name.parse().map_err(|_| misfit(format_args!("there is no slice \"{name}\"")))?;
            if let Some(sealed) = read(state, &format!("slices.{name}"), &self.recipe)? {
                self.slices.add(&self.recipe, index, sealed, &mut ids)?;
            }
        }
        self.next_hop = state.lowest("next_hop").unwrap_or(i64::MIN);
        self.ids = ids;
        if let Some(sealed) = read(state, "running", &self.recipe)? {
            let end = |name: &str| state.lowest(name).ok_or_else(|| misfit("windows without an end"));
            let (next_end, last_end) = (end("running.next_end")?, end("running.last_end")?);
            self.running = Some(Cumulated { sealed, next_end, last_end });
        }
        if self.next_end().is_some() {
            self.arrived = Some(state.arrived());
        }
        Ok(())
    }
}

/// Groups: keys, when each was first seen if that is known, states.
fn rows_of(sealed: Sealed) -> Result<RecordBatch, Error> {
    let mut columns = sealed.keys;
    if !sealed.first_rows.is_empty() {
        columns.push(Arc::new(UInt64Array::new(sealed.first_rows, None)));
    }
    columns.extend(sealed.states.into_iter().flatten());
    batch_of(columns, sealed.groups)
}

/// How many rows a part took, beside the keys of its first group: the end, the start, the number.
fn count(key: PartKey, rows: u64, first: &Sealed) -> Result<RecordBatch, Error> {
    let mut columns: Vec<ArrayRef> = first.keys.iter().map(|keys| keys.slice(0, 1)).collect();
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
    let columns = rows.columns();
    let keys = recipe.group_schema.fields().len();
    let states: usize = recipe.calls.iter().map(|call| call.state_columns).sum();
    let wrong = || misfit("groups have other columns");
    let first_rows = match columns.len().checked_sub(keys + states) {
        // Groups that are numbered in the order in which they came.
        Some(0) => (0..rows.num_rows() as u64).collect(),
        Some(1) => columns[keys].as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?.values().clone(),
        _ => return Err(wrong()),
    };
    let mut own = columns[columns.len() - states..].iter().cloned();
    Ok(Some(Sealed {
        groups: rows.num_rows(),
        keys: columns[..keys].to_vec(),
        first_rows,
        states: recipe.calls.iter().map(|call| own.by_ref().take(call.state_columns).collect()).collect(),
    }))
}

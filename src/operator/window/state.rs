//! The groups of slices and windows as tables of a checkpoint.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array, UInt64Array};
use arrow::compute::take;
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::record_batch::RecordBatch;

use super::placement::PartKey;
use super::recipe::Recipe;
use super::results::{constant, numbers};
use super::table::{Sealed, merge};
use super::{Cumulated, WindowAggregate, part};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::state::{batch, misfit};
use crate::operator::{StateReader, StateWriter};

/// Columns that stand behind the keys: where the part is, and its rows.
const PART_COLUMNS: usize = 3;

/// Groups of a part that were read.
struct Part {
    key: PartKey,
    /// Rows that the part took.
    rows: u64,
    sealed: Sealed,
}

impl WindowAggregate {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        state.number("rows_seen", self.rows_seen as i64);
        let keys = self.recipe.spread_keys.clone();
        let mut open = Vec::with_capacity(self.open.len());
        for (key, table) in &mut self.open {
            open.push(rows_of(*key, table.rows(), table.copy(&self.recipe)?)?);
        }
        put(state, "open", open, &keys);
        let place = |index: i64| PartKey { end: 0, start: index };
        let slices = self.slices.iter().map(|(index, sealed)| rows_of(place(index), 0, sealed.clone()));
        let slices = slices.collect::<Result<Vec<_>, _>>()?;
        if !slices.is_empty() {
            state.number("next_hop", self.next_hop);
            put(state, "slices", slices, &keys);
        }
        if let Some(running) = &self.running {
            let place = PartKey { end: running.next_end, start: running.last_end };
            put(state, "running", vec![rows_of(place, 0, running.sealed.clone())?], &keys);
        }
        Ok(())
    }

    pub(super) fn read(&mut self, state: &StateReader) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        let mut ids = std::mem::take(&mut self.ids);
        for read in parts(state, "open", &self.recipe)? {
            let table = part(&mut self.open, read.key, &self.recipe, self.is_ranked)?;
            table.merge(&read.sealed, &mut ids)?;
            table.count_rows(read.rows);
        }
        for read in parts(state, "slices", &self.recipe)? {
            self.slices.add(&self.recipe, read.key.start, read.sealed.compact()?, &mut ids)?;
        }
        self.next_hop = state.lowest("next_hop").unwrap_or(i64::MIN);
        let running = parts(state, "running", &self.recipe)?;
        if let Some(Part { key, .. }) = running.first() {
            let (next_end, last_end) = (key.end, key.start);
            let sealed = match running.as_slice() {
                [only] => only.sealed.compact()?,
                several => merge(&self.recipe, several.iter().map(|part| &part.sealed), &mut ids)?.seal()?,
            };
            self.running = Some(Cumulated { sealed, next_end, last_end });
        }
        self.ids = ids;
        if self.next_end().is_some() {
            self.arrived = Some(state.arrived());
        }
        Ok(())
    }
}

impl Sealed {
    /// The same without the rest of the columns that it is a piece of.
    fn compact(&self) -> Result<Self, Error> {
        let rows = UInt32Array::from_iter_values(0..self.groups as u32);
        let copy = |column: &ArrayRef| take(column, &rows, None).map_err(|error| arrow_failure(&error));
        Ok(Self {
            groups: self.groups,
            keys: self.keys.iter().map(copy).collect::<Result<_, _>>()?,
            first_rows: self.first_rows.clone(),
            states: self
                .states
                .iter()
                .map(|state| state.iter().map(copy).collect::<Result<_, _>>())
                .collect::<Result<_, _>>()?,
        })
    }
}

fn put(state: &mut StateWriter, name: &str, parts: Vec<RecordBatch>, keys: &[usize]) {
    if !parts.is_empty() {
        state.table(name, parts, keys);
    }
}

/// The groups of a part: keys, the part's end and start, its rows beside the first group, when each group was first
/// seen if that is known, states.
fn rows_of(key: PartKey, rows: u64, sealed: Sealed) -> Result<RecordBatch, Error> {
    let groups = sealed.groups;
    let mut columns = sealed.keys;
    columns.push(constant(key.end, groups));
    columns.push(constant(key.start, groups));
    let mut all = vec![0; groups];
    if let Some(first) = all.first_mut() {
        *first = rows;
    }
    columns.push(numbers(all));
    if !sealed.first_rows.is_empty() {
        columns.push(numbers(sealed.first_rows));
    }
    columns.extend(sealed.states.into_iter().flatten());
    batch(columns)
}

/// The parts of a table, in the order in which they were kept. One that several subtasks had stands there several
/// times.
fn parts(state: &StateReader, name: &str, recipe: &Recipe) -> Result<Vec<Part>, Error> {
    let Some(columns) = state.columns(name)? else { return Ok(Vec::new()) };
    let keys = recipe.group_schema.fields().len();
    let states: usize = recipe.calls.iter().map(|call| call.state_columns).sum();
    let wrong = || misfit("groups have other columns");
    let has_first_rows = match columns.len().checked_sub(keys + PART_COLUMNS + states) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(wrong()),
    };
    let long = |place: usize| columns[place].as_primitive_opt::<Int64Type>().ok_or_else(wrong);
    let count = |place: usize| columns[place].as_primitive_opt::<UInt64Type>().ok_or_else(wrong);
    let (ends, starts) = (long(keys)?.values(), long(keys + 1)?.values());
    let rows: &UInt64Array = count(keys + 2)?;
    let first_rows = has_first_rows.then(|| count(keys + PART_COLUMNS)).transpose()?;
    let mut parts = Vec::new();
    let mut from = 0;
    while from < rows.len() {
        let key = PartKey { end: ends[from], start: starts[from] };
        let rest = ends[from..].iter().zip(&starts[from..]);
        let groups = rest.take_while(|(end, start)| (**end, **start) == (key.end, key.start)).count();
        let slice = |column: &ArrayRef| column.slice(from, groups);
        let mut own = columns[columns.len() - states..].iter().map(slice);
        let sealed = Sealed {
            groups,
            keys: columns[..keys].iter().map(slice).collect(),
            // Groups that are numbered in the order in which they came.
            first_rows: first_rows.map_or_else(
                || (0..groups as u64).collect(),
                |rows| rows.values()[from..from + groups].to_vec(),
            ),
            states: recipe.calls.iter().map(|call| own.by_ref().take(call.state_columns).collect()).collect(),
        };
        parts.push(Part { key, rows: rows.values()[from..from + groups].iter().sum(), sealed });
        from += groups;
    }
    Ok(parts)
}

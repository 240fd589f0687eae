//! What a live aggregation keeps, as tables of a checkpoint.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt8Array, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type, UInt64Type};

use super::super::placement::PartKey;
use super::super::results::{constant, numbers};
use super::LiveAggregate;
use super::kept::{Distincts, KeptStates};
use super::window::Window;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::state::{batch, misfit};
use crate::operator::{StateReader, StateWriter};

/// The table of groups. Its columns: the keys, then those of [`META_COLUMNS`], then states.
const GROUPS: &str = "groups";
/// The window's end and start; its rows, beside its first group; whether the group has been given and whether its
/// result may differ from that, as bits.
const META_COLUMNS: usize = 4;
const IS_GIVEN: u8 = 1;
const IS_PENDING: u8 = 2;
/// The values that groups have been given with, of those whose result may differ.
const BEFORE: &str = "before";

impl LiveAggregate {
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        state.number("rows_seen", self.rows_seen as i64);
        state.optional("next_round", self.rounds.next_us);
        let mut tables = Vec::with_capacity(self.windows.len());
        let mut distincts = Distincts::default();
        let (mut before, mut values) = (Vec::new(), Vec::new());
        let mut first = 0;
        for (key, window) in &mut self.windows {
            let count = window.groups.len();
            let all: Vec<u32> = (0..count as u32).collect();
            let mut columns = window.groups.keys(&self.key_format, &all)?;
            columns.extend([constant(key.end, count), constant(key.start, count)]);
            let mut rows = vec![0; count];
            if let Some(first) = rows.first_mut() {
                *first = window.rows;
            }
            columns.push(numbers(rows));
            columns.push(Arc::new(UInt8Array::from(window.flags())));
            columns.extend(window.groups.states()?.write(&all, first, &mut distincts)?);
            tables.push(batch(columns)?);
            before.extend(window.before.groups.iter().map(|group| first + group));
            values.extend(window.before.values.iter().cloned());
            first += count as u32;
        }
        if tables.is_empty() {
            return self.complete.as_ref().map_or(Ok(()), |complete| complete.write(state));
        }
        state.table(GROUPS, tables, &self.recipe.spread_keys);
        distincts.write(GROUPS, state)?;
        if !before.is_empty() {
            let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt32Array::from(before))];
            columns.extend(joined(&values)?);
            state.columns_of(GROUPS, BEFORE, columns)?;
        }
        self.complete.as_ref().map_or(Ok(()), |complete| complete.write(state))
    }

    pub(super) fn read(&mut self, state: &mut StateReader) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.rows_seen = state.highest("rows_seen").unwrap_or(0) as u64;
        self.rounds.next_us = state.moment("next_round").or(self.rounds.next_us);
        if let Some(complete) = &mut self.complete {
            complete.read(state)?;
        }
        let Some(columns) = state.columns(GROUPS)? else { return Ok(()) };
        let wrong = || misfit("groups have other columns");
        let keys = self.recipe.group_schema.fields().len();
        if columns.len() < keys + META_COLUMNS {
            return Err(wrong());
        }
        let bounds = |place: usize| columns[place].as_primitive_opt::<Int64Type>().ok_or_else(wrong);
        let (ends, starts) = (bounds(keys)?.values(), bounds(keys + 1)?.values());
        let rows = columns[keys + 2].as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?.values();
        let flags = columns[keys + 3].as_primitive_opt::<UInt8Type>().ok_or_else(wrong)?.values();
        let key_of = |row: usize| PartKey { end: ends[row], start: starts[row] };
        // Windows that several subtasks had stand there several times.
        let mut order: Vec<u32> = (0..ends.len() as u32).collect();
        // A group that has been given stands before those that have not.
        order.sort_by_key(|row| (key_of(*row as usize), flags[*row as usize] & IS_GIVEN == 0));
        let key_rows = self.key_format.rows(&[columns[..keys].to_vec()])?;
        let states = KeptStates::read(columns[keys + META_COLUMNS..].to_vec(), state)?;
        let mut group_of = vec![0; ends.len()];
        for run in order.chunk_by(|one, other| key_of(*one as usize) == key_of(*other as usize)) {
            let key = key_of(run[0] as usize);
            self.open(key)?;
            let Some(window) = self.windows.get_mut(&key) else { continue };
            let groups: Vec<u32> = run.iter().map(|row| window.groups.group(&key_rows, 0, *row)).collect();
            window.groups.states()?.read(run, &groups, &states)?;
            window.rows = run.iter().map(|row| rows[*row as usize]).sum();
            let flags = run.iter().map(|row| flags[*row as usize]);
            window.restore_flags(groups.iter().copied().zip(flags));
            run.iter().zip(&groups).for_each(|(row, group)| group_of[*row as usize] = *group);
        }
        if let Some(before) = state.columns(BEFORE)? {
            let (of, values) = before.split_first().ok_or_else(wrong)?;
            let mut of_windows: BTreeMap<PartKey, Vec<u32>> = BTreeMap::new();
            for (place, row) in (0..).zip(of.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?.values()) {
                of_windows.entry(key_of(*row as usize)).or_default().push(place);
            }
            for (key, places) in of_windows {
                let Some(window) = self.windows.get_mut(&key) else { continue };
                let rows = of.as_primitive::<UInt32Type>();
                let group = |place: &u32| group_of[rows.value(*place as usize) as usize];
                window.before.groups = places.iter().map(group).collect();
                let places = UInt32Array::from(places);
                let values = values.iter().map(|column| take(column, &places, None));
                let values = values.collect::<Result<_, _>>().map_err(|error| arrow_failure(&error))?;
                window.before.values = vec![values];
            }
        }
        self.arrived = Some(state.arrived());
        Ok(())
    }
}

impl Window {
    /// What was given of each group, as bits.
    fn flags(&self) -> Vec<u8> {
        let flag = |(group, is_pending): (usize, bool)| {
            (if group < self.given { IS_GIVEN } else { 0 }) | (if is_pending { IS_PENDING } else { 0 })
        };
        let pending = self.is_pending.iter().copied().chain(std::iter::repeat(false));
        (0..self.groups.len()).zip(pending).map(flag).collect()
    }

    fn restore_flags(&mut self, flags: impl Iterator<Item = (u32, u8)>) {
        self.is_pending = vec![false; self.groups.len()];
        for (group, flags) in flags {
            self.given += usize::from(flags & IS_GIVEN);
            if flags & IS_PENDING != 0 {
                self.is_pending[group as usize] = true;
                self.pending.push(group);
            }
        }
    }
}

/// Columns of several pieces, one after another.
pub(in crate::operator::window) fn joined(pieces: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>, Error> {
    let Some(first) = pieces.first() else { return Ok(Vec::new()) };
    let column = |index: usize| {
        let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece[index].as_ref()).collect();
        concat(&pieces).map_err(|error| arrow_failure(&error))
    };
    (0..first.len()).map(column).collect()
}

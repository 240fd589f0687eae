//! What MATCH_RECOGNIZE keeps, for a checkpoint.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::datatypes::UInt32Type;

use super::{Group, Kept, MatchRecognize};
use crate::error::Error;
use crate::operator::state::misfit;
use crate::operator::{RowCounts, StateReader, StateWriter};
use crate::stream::event_times;

const ROWS: &str = "rows";
const OF_ROWS: &str = "rows.kept";
const READINGS: &str = "readings";

/// What a row is: the watermark has not passed it, or it may be part of a match, and is part of one.
const HELD: i64 = 0;
const KEPT: i64 = 1;
const USED: i64 = 2;

impl MatchRecognize {
    /// Hands on the rows, those of a key in their order, and the readings of the attempts that begin with the first
    /// of them. When these are over follows.
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        state.number("given", self.given);
        state.number("next_row", self.next_row as i64);
        let rows = self.store.len();
        let (mut slots, mut numbers, mut what) =
            (Vec::with_capacity(rows), Vec::with_capacity(rows), Vec::with_capacity(rows));
        // Of each reading the place of the first row, how many rows are read, the next variable, and the rows that each variable has.
        let width = self.pattern.width();
        let mut readings = vec![Vec::new(); 3 + width];
        for group in &self.groups {
            if let Some(attempt) = &group.attempt {
                for (next, counts) in attempt.readings(width) {
                    let head = [slots.len() as u32, group.read as u32, next];
                    let values = head.iter().chain(counts);
                    readings.iter_mut().zip(values).for_each(|(column, value)| column.push(*value));
                }
            }
            for row in &group.rows {
                slots.push(row.slot);
                numbers.push(row.number as i64);
                what.push(if row.is_used { USED } else { KEPT });
            }
        }
        for ((_, number), (slot, _)) in &self.held {
            slots.push(*slot);
            numbers.push(*number as i64);
            what.push(HELD);
        }
        let more: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(numbers)), Arc::new(Int64Array::from(what))];
        self.store.snapshot(state, ROWS, self.keys.places(), slots, more)?;
        let readings = readings.into_iter().map(|column| Arc::new(UInt32Array::from(column)) as ArrayRef);
        state.columns_of(OF_ROWS, READINGS, readings.collect())
    }

    /// Takes up what was handed on.
    pub(super) fn read(&mut self, state: &StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.given = state.lowest("given").unwrap_or(i64::MIN);
        self.next_row = state.highest("next_row").unwrap_or(0) as u64;
        counts.held = 0;
        let Some(taken_up) = self.store.restore(state, ROWS)? else { return Ok(()) };
        let [numbers, what] = taken_up.numbers()?;
        let (times, _) = event_times(taken_up.rows.column(self.node.time))?;
        let keys = self.keys.rows(&taken_up.rows)?;
        self.truths = self.conditions.of_rows(&taken_up.rows);
        let (mut of, mut held) = (Vec::with_capacity(numbers.len()), Vec::new());
        for (row, (number, time)) in numbers.iter().zip(times.iter()).enumerate() {
            let (number, time, slot) = (*number as u64, *time, row as u32);
            let group = self.numbers.number(&keys, row);
            if self.groups.len() <= group as usize {
                self.groups.resize_with(self.numbers.bound(), Group::default);
            }
            of.push(group);
            let own = &mut self.groups[group as usize];
            if what[row] == HELD {
                own.waiting += 1;
                held.push((time, number, slot, group));
            } else {
                own.rows.push_back(Kept { slot, time, number, is_used: what[row] == USED });
            }
        }
        // Several subtasks may have given a number.
        held.sort_unstable();
        for (time, _, slot, group) in held {
            self.held.insert((time, self.next_row), (slot, group));
            self.next_row += 1;
        }
        counts.held = of.len() as u64;
        if !of.is_empty() {
            self.arrived = Some(state.arrived());
        }
        self.read_attempts(state, &of)?;
        for group in 0..self.groups.len() as u32 {
            self.settle(group);
        }
        Ok(())
    }

    /// `of`: the group of each row.
    fn read_attempts(&mut self, state: &StateReader, of: &[u32]) -> Result<(), Error> {
        let Some(columns) = state.columns(READINGS)? else { return Ok(()) };
        let columns = columns.iter().filter_map(|column| column.as_primitive_opt::<UInt32Type>());
        let columns: Vec<&UInt32Array> = columns.collect();
        let [first, read, next, counts @ ..] = columns.as_slice() else {
            return Err(misfit("attempts without their rows"));
        };
        if counts.len() != self.pattern.width() {
            return Err(misfit("attempts of another pattern"));
        }
        for row in 0..first.len() {
            let group = of.get(first.value(row) as usize).ok_or_else(|| misfit("attempts without rows"))?;
            let group = &mut self.groups[*group as usize];
            group.read = read.value(row) as usize;
            let counts = counts.iter().map(|count| count.value(row));
            group.attempt.get_or_insert_default().add_reading(next.value(row), counts);
        }
        Ok(())
    }
}

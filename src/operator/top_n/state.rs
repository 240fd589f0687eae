//! What Top-N keeps, for a checkpoint.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;

use super::order::OrderKeys;
use super::{Entry, KeyRows, NONE, Partition, TopN};
use crate::error::Error;
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};

/// The table of rows, and that of what is told of them.
const ROWS: &str = "rows";
const OF_ROWS: &str = "rows.kept";
/// The table of rows that came out and are not kept: their keys.
const FIRST: &str = "first";

impl TopN {
    /// Hands on the rows of all partitions with the order of their arrival. Which are the first ones follows.
    pub(super) fn write(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("next_row", self.next_row);
        let mut of: Vec<u32> = Vec::with_capacity(self.store.len());
        let mut entries: Vec<&Entry> = Vec::with_capacity(self.store.len());
        for (number, partition) in self.partitions.iter().enumerate() {
            entries.extend(partition.top.iter().chain(&partition.rest));
            of.resize(entries.len(), number as u32);
        }
        let arrivals = Int64Array::from_iter_values(entries.iter().map(|entry| entry.arrival));
        let arrivals: ArrayRef = Arc::new(arrivals);
        let places = self.partition.places();
        let table = if self.is_final {
            let mut columns = self.partition.columns(&self.numbers, &of)?;
            columns.extend(self.order.columns(entries.iter().map(|entry| &entry.key))?);
            columns.push(arrivals);
            state.columns(FIRST, columns, &(0..places.len()).collect::<Vec<_>>())?;
            FIRST
        } else {
            let slots = entries.iter().map(|entry| entry.slot);
            self.store.snapshot(state, ROWS, places, slots, vec![arrivals])?;
            OF_ROWS
        };
        match &mut self.expiry {
            Some(expiry) => expiry.snapshot(table, &of, state),
            None => Ok(()),
        }
    }

    /// Takes up what was handed on.
    pub(super) fn read(&mut self, state: &StateReader) -> Result<(), Error> {
        self.next_row = state.highest("next_row").unwrap_or(0);
        let of = if self.is_final {
            let Some(mut columns) = state.columns(FIRST)? else { return Ok(()) };
            let width = self.partition.places().len();
            let arrivals = columns.pop().ok_or_else(|| misfit("first rows without arrival"))?;
            let (keys, order) =
                columns.split_at_checked(width).ok_or_else(|| misfit("first rows without keys"))?;
            let keys = self.partition.keys_of(keys)?;
            let order = self.order.keys_of(order)?;
            self.put_all(&keys, &order, arrivals_of(&arrivals)?, |_| NONE)
        } else {
            let Some(taken_up) = self.store.restore(state, ROWS)? else { return Ok(()) };
            let keys = self.partition.rows(&taken_up.rows)?;
            let order = self.order.keys(&taken_up.rows)?;
            let [arrivals] = taken_up.numbers()?;
            if let Some(identities) = &mut self.identities {
                let rows = identities.format.rows(&taken_up.rows)?;
                // Of rows that are equal the last one goes first.
                let mut by_arrival: Vec<usize> = (0..arrivals.len()).collect();
                by_arrival.sort_by_key(|row| arrivals[*row].abs());
                for row in by_arrival {
                    let entry = Entry { key: order.key(row), arrival: arrivals[row], slot: row as u32 };
                    identities.add(&rows, row, entry);
                }
            }
            self.put_all(&keys, &order, arrivals, |row| row as u32)
        };
        match &mut self.expiry {
            Some(expiry) => expiry.restore(&of, state),
            None => Ok(()),
        }
    }

    /// Puts rows into their partitions; gives the numbers of these.
    fn put_all(
        &mut self,
        keys: &KeyRows,
        order: &OrderKeys,
        arrivals: &[i64],
        slot: impl Fn(usize) -> u32,
    ) -> Vec<u32> {
        let mut of = Vec::with_capacity(arrivals.len());
        for (row, arrival) in arrivals.iter().copied().enumerate() {
            let number = self.numbers.number(keys, row);
            if self.partitions.len() <= number as usize {
                self.partitions.resize_with(self.numbers.bound(), Partition::default);
            }
            let entry = Entry { key: order.key(row), arrival, slot: slot(row) };
            let moves = &mut self.scratch.moves;
            moves.clear();
            self.partitions[number as usize].shift(self.limit, None, Some(entry), moves);
            of.push(number);
        }
        of
    }
}

fn arrivals_of(column: &ArrayRef) -> Result<&[i64], Error> {
    let column = column.as_primitive_opt::<Int64Type>();
    column.map(|column| column.values().as_ref()).ok_or_else(|| misfit("arrivals that are no numbers"))
}

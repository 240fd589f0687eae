//! Rows that are kept one by one, though they came in batches.

use std::cell::Cell;

use arrow::array::ArrayRef;
use arrow::compute::interleave_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

mod away;
mod state;

use self::away::{Batch, Source, read};
pub(super) use self::away::{PutAway, SMALLEST_PART, put_away_of_two};
pub(super) use self::state::{TakenUp, hand_on, shared, take_up};
use super::evaluate::arrow_failure;
use super::{BATCH_ROWS, StateReader, StateWriter};
use crate::error::Error;
use crate::stream::{bytes_of, rows_of_width};

/// Rows by the number of their slot. A batch is let go with the last of its rows; where few rows of
/// many batches are left, they are brought together, so memory follows the rows that are kept. Rows that were put away
/// keep their slots; of those that are asked for the columns are read again, each time.
pub(super) struct RowStore {
    schema: SchemaRef,
    slots: Vec<Place>,
    free_slots: Vec<u32>,
    batches: Vec<Option<Stored>>,
    free_batches: Vec<u32>,
    /// Rows that are kept.
    live: usize,
    /// Of these, those that are put away.
    away: usize,
    /// Rows of all batches that are in memory.
    stored: usize,
    /// How often rows came or were asked for.
    uses: Cell<u64>,
    /// Bytes of a row that came last, about.
    row_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    /// `NOWHERE`: the slot is free.
    batch: u32,
    row: u32,
}

struct Stored {
    batch: Batch,
    left: usize,
    /// When some of its rows came or were asked for last, see [`RowStore::uses`].
    used: Cell<u64>,
}

const NOWHERE: u32 = u32::MAX;

/// How many rows of a column of each of these stores make a batch: fewer where they are wide.
pub(super) fn rows_of_batch<const N: usize>(stores: [&RowStore; N]) -> usize {
    rows_of_width(stores.iter().map(|store| store.row_bytes).sum(), BATCH_ROWS)
}

impl RowStore {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        Self {
            schema: schema.clone(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            batches: Vec::new(),
            free_batches: Vec::new(),
            live: 0,
            away: 0,
            stored: 0,
            uses: Cell::new(0),
            row_bytes: 0,
        }
    }

    /// Keeps all rows of a batch; gives their slots.
    pub(super) fn add(&mut self, rows: RecordBatch) -> Result<Vec<u32>, Error> {
        if self.stored > 2 * (self.live - self.away) + 4 * rows_of_batch([&*self]) {
            self.compact()?;
        }
        let count = rows.num_rows();
        if count == 0 {
            return Ok(Vec::new());
        }
        self.row_bytes = bytes_of(&rows).div_ceil(count);
        let batch = self.put(Batch::Here(rows), count);
        let slots = (0..count as u32).map(|row| {
            let place = Place { batch, row };
            match self.free_slots.pop() {
                Some(slot) => {
                    self.slots[slot as usize] = place;
                    slot
                }
                None => {
                    self.slots.push(place);
                    self.slots.len() as u32 - 1
                }
            }
        });
        let slots = slots.collect();
        self.live += count;
        Ok(slots)
    }

    fn put(&mut self, batch: Batch, left: usize) -> u32 {
        match &batch {
            Batch::Here(_) => self.stored += left,
            Batch::Away(_) => self.away += left,
        }
        let stored = Some(Stored { batch, left, used: Cell::new(self.use_again()) });
        match self.free_batches.pop() {
            Some(batch) => {
                self.batches[batch as usize] = stored;
                batch
            }
            None => {
                self.batches.push(stored);
                self.batches.len() as u32 - 1
            }
        }
    }

    /// A number that is higher than those before.
    fn use_again(&self) -> u64 {
        self.uses.set(self.uses.get() + 1);
        self.uses.get()
    }

    /// Lets a row go.
    pub(super) fn release(&mut self, slot: u32) {
        self.leave(slot);
        self.free_slots.push(slot);
        self.live -= 1;
    }

    /// Takes a row out of its batch, which is let go with the last one.
    fn leave(&mut self, slot: u32) {
        let place = std::mem::replace(&mut self.slots[slot as usize], Place { batch: NOWHERE, row: 0 });
        debug_assert_ne!(place.batch, NOWHERE, "a row that is let go twice");
        let stored = &mut self.batches[place.batch as usize];
        let Some(one) = stored else { return };
        one.left -= 1;
        if let Batch::Away(_) = &one.batch {
            self.away -= 1;
        }
        if one.left == 0 {
            if let Batch::Here(rows) = &one.batch {
                self.stored -= rows.num_rows();
            }
            *stored = None;
            self.free_batches.push(place.batch);
        }
    }

    /// Where a kept row is: its batch, and its place there. Not for rows that were put away.
    pub(super) fn row(&self, slot: u32) -> Result<(&RecordBatch, usize), Error> {
        let place = self.slots[slot as usize];
        match self.batches.get(place.batch as usize) {
            Some(Some(Stored { batch: Batch::Here(rows), .. })) => Ok((rows, place.row as usize)),
            _ => Err(Error::internal("rows", "a kept row without its batch")),
        }
    }

    /// The rows of some slots as one batch, in that order.
    pub(super) fn gather(&self, slots: &[u32]) -> Result<RecordBatch, Error> {
        if self.schema.fields().is_empty() || slots.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(slots.len()));
            let columns =
                self.schema.fields().iter().map(|field| arrow::array::new_empty_array(field.data_type()));
            return RecordBatch::try_new_with_options(self.schema.clone(), columns.collect(), &options)
                .map_err(|error| arrow_failure(&error));
        }
        let mut numbers = vec![NOWHERE; self.batches.len()];
        let mut sources: Vec<Source> = Vec::new();
        let mut picks = Vec::with_capacity(slots.len());
        let uses = self.use_again();
        for slot in slots {
            let place = self.slots[*slot as usize];
            let number = &mut numbers[place.batch as usize];
            if *number == NOWHERE {
                let Some(stored) = &self.batches[place.batch as usize] else {
                    return Err(Error::internal("rows", "a kept row without its batch"));
                };
                stored.used.set(uses);
                *number = sources.len() as u32;
                sources.push(Source::new(&stored.batch));
            }
            picks.push((*number as usize, sources[*number as usize].place(place.row)));
        }
        let away = read(&self.schema, &sources)?;
        let mut away = away.iter();
        let batches = sources.iter().filter_map(|source| match source {
            Source::Here(rows) => Some(*rows),
            Source::Away(..) => away.next(),
        });
        interleave_record_batch(&batches.collect::<Vec<_>>(), &picks).map_err(|error| arrow_failure(&error))
    }

    /// Moves the rows that are left in memory into batches of their own.
    fn compact(&mut self) -> Result<(), Error> {
        let here = (0_u32..).zip(&self.slots).filter_map(|(slot, place)| {
            let stored = self.batches.get(place.batch as usize)?.as_ref()?;
            matches!(stored.batch, Batch::Here(_)).then_some((place.batch, place.row, slot))
        });
        let mut kept: Vec<(u32, u32, u32)> = here.collect();
        kept.sort_unstable();
        let slots: Vec<u32> = kept.into_iter().map(|(.., slot)| slot).collect();
        self.move_each(&slots, |_, rows| Ok(Batch::Here(rows)))
    }

    /// Puts rows, in this order, into new batches. An old one is let go with the last of its rows, so that little is there
    /// twice where their order is that of the batches.
    fn move_each(
        &mut self,
        slots: &[u32],
        batch: impl Fn(&SchemaRef, RecordBatch) -> Result<Batch, Error>,
    ) -> Result<(), Error> {
        for slots in slots.chunks(rows_of_batch([&*self])) {
            let rows = batch(&self.schema, self.gather(slots)?)?;
            slots.iter().for_each(|slot| self.leave(*slot));
            let batch = self.put(rows, slots.len());
            for (slot, row) in slots.iter().zip(0..) {
                self.slots[*slot as usize] = Place { batch, row };
            }
        }
        Ok(())
    }

    /// Hands on the rows of these slots, each once, and `more` of each: columns. `keys`: see [`StateWriter::table`]. The
    /// batches go as they are, with rows that are not kept any more.
    pub(super) fn snapshot(
        &self,
        state: &mut StateWriter,
        name: &str,
        keys: &[usize],
        slots: impl IntoIterator<Item = u32>,
        more: Vec<ArrayRef>,
    ) -> Result<(), Error> {
        // Those in memory, then those that are away.
        let mut numbers = vec![0; self.batches.len()];
        let (mut here, mut away) = (Vec::new(), Vec::new());
        for (batch, stored) in self.batches.iter().enumerate() {
            match stored.as_ref().map(|stored| &stored.batch) {
                Some(Batch::Here(rows)) => here.push((batch, rows)),
                Some(Batch::Away(rows)) => away.push((batch, rows)),
                None => {}
            }
        }
        let batches = here.iter().map(|(batch, _)| *batch).chain(away.iter().map(|(batch, _)| *batch));
        for (number, batch) in batches.enumerate() {
            numbers[batch] = number;
        }
        let (here, away) = (here.into_iter().map(|(_, rows)| rows), away.into_iter().map(|(_, rows)| rows));
        let kept_rows = slots.into_iter().map(|slot| {
            let place = self.slots[slot as usize];
            (numbers[place.batch as usize], place.row as usize)
        });
        hand_on(state, name, (&self.schema, keys), here, away, kept_rows, more)
    }

    /// Takes up, with nothing kept yet, the rows that were handed on; `None`: nothing was.
    pub(super) fn restore(&mut self, state: &StateReader, name: &str) -> Result<Option<TakenUp>, Error> {
        let taken_up = take_up(state, name, &self.schema)?;
        if let Some(taken_up) = &taken_up {
            self.add(taken_up.rows.clone())?;
        }
        Ok(taken_up)
    }

    /// The slots of all rows.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let slots = (0..).zip(&self.slots);
        slots.filter(|(_, place)| place.batch != NOWHERE).map(|(slot, _)| slot)
    }

    /// How many rows are kept.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Slots are below this.
    pub(super) fn bound(&self) -> usize {
        self.slots.len()
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let rows = self.batches.iter().flatten().map(|stored| stored.batch.size());
        rows.sum::<usize>() + self.slots.capacity() * size_of::<Place>()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;
    use crate::operator::testing::{Row, input, lines, record_batch};

    #[test]
    fn few_rows_of_many_batches_are_brought_together() {
        let mut store = RowStore::new(&input());
        let rows: Vec<Row> = (0..4096).map(|value| (None, Some("k"), Some(value))).collect();
        let mut kept = Vec::new();
        for round in 0..40 {
            let slots = store.add(record_batch(&rows)).unwrap();
            for (row, slot) in slots.into_iter().enumerate() {
                if row == round { kept.push(slot) } else { store.release(slot) }
            }
            assert!(store.stored <= 2 * store.live + 4 * BATCH_ROWS + 4096, "{} rows", store.stored);
        }
        let given = lines(&store.gather(&kept).unwrap());
        let expected: Vec<String> = (0..40).map(|value| format!("NULL,k,{value}")).collect();
        assert_eq!((given, store.len()), (expected, 40));
        kept.into_iter().for_each(|slot| store.release(slot));
        assert_eq!((store.len(), store.stored), (0, 0));
    }

    #[test]
    fn rows_are_taken_up_in_the_order_in_which_they_were_handed_on() {
        let mut store = RowStore::new(&input());
        let mut kept = Vec::new();
        // Batches of one row, of many, and of one.
        for rows in [0..1, 1..2, 2..1002, 1002..1003] {
            let rows: Vec<Row> = rows.map(|value| (None, None, Some(value))).collect();
            kept.extend(store.add(record_batch(&rows)).unwrap());
        }
        let gone = kept.split_off(1002);
        gone.into_iter().chain(kept.drain(3..1000)).for_each(|slot| store.release(slot));
        kept.reverse();
        let mut state = StateWriter::default();
        let numbers = Int64Array::from_iter_values(0..kept.len() as i64);
        store.snapshot(&mut state, "rows", &[], kept.iter().copied(), vec![Arc::new(numbers)]).unwrap();
        let mut again = RowStore::new(&input());
        let state = StateReader::same(state.finish(), 0);
        let taken_up = again.restore(&state, "rows").unwrap().unwrap();
        let expected = ["NULL,NULL,1001", "NULL,NULL,1000", "NULL,NULL,2", "NULL,NULL,1", "NULL,NULL,0"];
        assert_eq!(lines(&taken_up.rows), expected);
        assert_eq!(lines(&again.gather(&[0, 1, 2, 3, 4]).unwrap()), expected);
        assert_eq!(taken_up.numbers().unwrap(), [[0, 1, 2, 3, 4]]);
        assert!(again.restore(&state, "others").unwrap().is_none());
    }
}

//! Which rows those are that go.

use crate::error::Error;
use crate::operator::keys::{KeyFormat, KeyNumbers, KeyRows};

use super::order::Entry;

/// Finds rows by the columns that tell them apart.
pub(super) struct Identities {
    pub(super) format: KeyFormat,
    numbers: KeyNumbers,
    slots: Vec<Vec<u32>>,
    /// By slot: the number, and where the row is.
    rows: Vec<Option<(u32, Entry)>>,
}

impl Identities {
    pub(super) fn new(format: KeyFormat) -> Self {
        Self { format, numbers: KeyNumbers::default(), slots: Vec::new(), rows: Vec::new() }
    }

    /// Notes a row that has come.
    pub(super) fn add(&mut self, keys: &KeyRows, row: usize, entry: Entry) {
        let number = self.numbers.number(keys, row);
        if self.slots.len() <= number as usize {
            self.slots.resize_with(self.numbers.bound(), Vec::new);
        }
        self.slots[number as usize].push(entry.slot);
        let slot = entry.slot as usize;
        if self.rows.len() <= slot {
            self.rows.resize(slot + 1, None);
        }
        self.rows[slot] = Some((number, entry));
    }

    /// Where a row is that is equal to that of a batch: the one that came last. `None`: there is none.
    pub(super) fn find(&self, keys: &KeyRows, row: usize) -> Result<Option<Entry>, Error> {
        let Some(number) = self.numbers.find(keys, row) else { return Ok(None) };
        let Some(slot) = self.slots[number as usize].last() else { return Ok(None) };
        match self.rows.get(*slot as usize) {
            Some(Some((_, entry))) => Ok(Some(entry.clone())),
            _ => Err(Error::internal("TopN", "a row that is nowhere")),
        }
    }

    /// Forgets a row.
    pub(super) fn remove(&mut self, slot: u32) {
        let Some((number, _)) = self.rows.get_mut(slot as usize).and_then(Option::take) else { return };
        let slots = &mut self.slots[number as usize];
        slots.retain(|known| *known != slot);
        if slots.is_empty() {
            self.numbers.release(number);
        }
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<Option<(u32, Entry)>>();
        self.numbers.size() + self.slots.capacity() * size_of::<Vec<u32>>() + rows
    }
}

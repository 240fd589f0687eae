//! Keys of one column of text or bytes.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, StringArray};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::GroupKeys;
use crate::error::{Error, code};
use crate::operator::evaluate::arrow_failure;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Binary,
}

/// The keys lie one after another, as in the column that they become.
pub(super) struct Bytes {
    kind: Kind,
    table: HashTable<Slot>,
    bytes: Vec<u8>,
    /// Where each key begins, and where the last one ends.
    offsets: Vec<i32>,
    /// The group of NULL, whose text is empty.
    null: Option<u32>,
    hasher: FixedState,
}

struct Slot {
    hash: u64,
    number: u32,
}

impl Bytes {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            kind,
            table: HashTable::new(),
            bytes: Vec::new(),
            offsets: vec![0],
            null: None,
            hasher: FixedState::default(),
        }
    }

    fn add<'a>(
        &mut self,
        keys: impl Iterator<Item = Option<&'a [u8]>>,
        ids: &mut Vec<usize>,
    ) -> Result<(), Error> {
        for key in keys {
            ids.push(match key {
                Some(key) => self.number(key)?,
                None => self.number_of_null(),
            });
        }
        Ok(())
    }

    fn number(&mut self, key: &[u8]) -> Result<usize, Error> {
        let hash = self.hasher.hash_one(key);
        let (offsets, bytes) = (&mut self.offsets, &mut self.bytes);
        let same = |slot: &Slot| {
            let place = slot.number as usize;
            slot.hash == hash && bytes[offsets[place] as usize..offsets[place + 1] as usize] == *key
        };
        match self.table.entry(hash, same, |slot| slot.hash) {
            Entry::Occupied(entry) => Ok(entry.get().number as usize),
            Entry::Vacant(entry) => {
                let end = i32::try_from(bytes.len() + key.len()).map_err(|_| too_long())?;
                let number = offsets.len() - 1;
                entry.insert(Slot { hash, number: number as u32 });
                bytes.extend_from_slice(key);
                offsets.push(end);
                Ok(number)
            }
        }
    }

    fn number_of_null(&mut self) -> usize {
        let offsets = &mut self.offsets;
        let number = *self.null.get_or_insert_with(|| {
            offsets.push(offsets[offsets.len() - 1]);
            offsets.len() as u32 - 2
        });
        number as usize
    }

    fn column(&self, bytes: Vec<u8>, offsets: Vec<i32>) -> Result<ArrayRef, Error> {
        let groups = offsets.len() - 1;
        let null = self.null.map(|null| null as usize);
        let nulls = null.map(|null| (0..groups).map(|group| group != null).collect::<NullBuffer>());
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        let values = Buffer::from_vec(bytes);
        let column: Result<ArrayRef, _> = match self.kind {
            Kind::Text => StringArray::try_new(offsets, values, nulls).map(|column| Arc::new(column) as _),
            Kind::Binary => BinaryArray::try_new(offsets, values, nulls).map(|column| Arc::new(column) as _),
        };
        column.map_err(|error| arrow_failure(&error))
    }
}

impl GroupKeys for Bytes {
    fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<usize>) -> Result<(), Error> {
        ids.clear();
        match self.kind {
            Kind::Text => {
                let column = columns[0].as_string::<i32>();
                self.add(column.iter().map(|key| key.map(str::as_bytes)), ids)
            }
            Kind::Binary => self.add(columns[0].as_binary::<i32>().iter(), ids),
        }
    }

    fn expect(&mut self, groups: usize) {
        self.table.reserve(groups, |slot| slot.hash);
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn size(&self) -> usize {
        self.table.capacity() * size_of::<Slot>() + self.bytes.capacity() + self.offsets.capacity() * 4
    }

    fn columns(&self) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.column(self.bytes.clone(), self.offsets.clone())?])
    }

    fn into_columns(mut self: Box<Self>) -> Result<Vec<ArrayRef>, Error> {
        let (bytes, offsets) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.offsets));
        Ok(vec![self.column(bytes, offsets)?])
    }
}

fn too_long() -> Error {
    Error::run(code::EVALUATION, "the keys of one window have more than 2 GiB of text")
        .hint("Make the window shorter, or group by a shorter text.")
}

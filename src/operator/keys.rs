//! Keys of rows as bytes, and numbers for them that are given back: of keys that come and go, row by row. Groups of
//! windows, which are thrown away whole, have [`super::group_keys`].

use std::hash::BuildHasher;

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::evaluate::{arrow_failure, one_nan_and_zero};
use super::group_keys::{PackedKey, Packing};
use crate::error::{Error, code};

/// Turns the key columns of rows into what is equal where the keys are: a NULL is equal to another, and so is a
/// NaN. Columns of fixed widths that fit into one number become that, others bytes.
pub(super) struct KeyFormat {
    columns: Vec<usize>,
    form: Form,
    hasher: FixedState,
}

enum Form {
    /// There are no columns, so one key.
    One,
    Packed(Packing),
    Bytes(RowConverter),
}

/// The keys of the rows of a batch.
pub(super) struct KeyRows {
    keys: Keys,
    hashes: Vec<u64>,
}

enum Keys {
    One,
    Packed(Vec<PackedKey>),
    Bytes(Rows),
}

impl KeyFormat {
    /// # Errors
    /// `P002` for keys of types that can't be compared.
    pub(super) fn try_new(columns: &[usize], schema: &Schema) -> Result<Self, Error> {
        let types: Vec<_> = columns.iter().map(|column| schema.field(*column).data_type()).collect();
        let form = match Packing::for_columns(&types) {
            _ if types.is_empty() => Form::One,
            Some(packing) => Form::Packed(packing),
            None => {
                let fields = types.into_iter().map(|data_type| SortField::new(data_type.clone()));
                Form::Bytes(RowConverter::new(fields.collect()).map_err(|error| {
                    Error::plan(
                        code::NOT_SUPPORTED,
                        format!("rows can't be told apart by such keys: {error}"),
                    )
                    .hint("Use a column of another type, or a part of it.")
                })?)
            }
        };
        Ok(Self { columns: columns.to_vec(), form, hasher: FixedState::default() })
    }

    /// The keys of the rows of a batch.
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<KeyRows, Error> {
        let columns = self.columns.iter().map(|column| one_nan_and_zero(batch.column(*column).clone()));
        self.keys_of(&columns.collect::<Vec<_>>())
    }

    /// The keys of rows from the columns that [`KeyFormat::columns`] gave.
    pub(super) fn keys_of(&self, columns: &[ArrayRef]) -> Result<KeyRows, Error> {
        Ok(match &self.form {
            Form::One => KeyRows { keys: Keys::One, hashes: Vec::new() },
            Form::Packed(packing) => {
                let mut keys = Vec::new();
                packing.pack(columns, &mut keys);
                let hashes = keys.iter().map(|key| self.hasher.hash_one(key)).collect();
                KeyRows { keys: Keys::Packed(keys), hashes }
            }
            Form::Bytes(converter) => {
                let rows = converter.convert_columns(columns).map_err(|error| arrow_failure(&error))?;
                let hashes = rows.iter().map(|row| self.hasher.hash_one(row.as_ref())).collect();
                KeyRows { keys: Keys::Bytes(rows), hashes }
            }
        })
    }

    /// The places of the key's columns.
    pub(super) fn places(&self) -> &[usize] {
        &self.columns
    }

    /// The columns of the keys of these numbers.
    pub(super) fn columns(&self, numbers: &KeyNumbers, of: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        match &self.form {
            Form::One => Ok(Vec::new()),
            Form::Packed(packing) => {
                packing.columns(of.iter().map(|number| numbers.packed[*number as usize]))
            }
            Form::Bytes(converter) => {
                let parser = converter.parser();
                let rows = of.iter().map(|number| parser.parse(&numbers.bytes[*number as usize].1));
                converter.convert_rows(rows).map_err(|error| arrow_failure(&error))
            }
        }
    }
}

impl KeyRows {
    /// The rows whose keys are that of a row of others of the same types, one column at least.
    pub(super) fn equal_to<'a>(&'a self, others: &'a Self, other: usize) -> impl Iterator<Item = usize> + 'a {
        let hash = others.hashes[other];
        let alike = self.hashes.iter().enumerate().filter(move |(_, own)| **own == hash);
        alike.map(|(row, _)| row).filter(move |row| match (&self.keys, &others.keys) {
            (Keys::Packed(keys), Keys::Packed(others)) => keys[*row] == others[other],
            (Keys::Bytes(keys), Keys::Bytes(others)) => keys.row(*row) == others.row(other),
            _ => false,
        })
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let keys = match &self.keys {
            Keys::One => 0,
            Keys::Packed(keys) => keys.capacity() * size_of::<PackedKey>(),
            Keys::Bytes(keys) => keys.size(),
        };
        keys + self.hashes.capacity() * size_of::<u64>()
    }

    /// A key as bytes, with its hash.
    fn bytes(&self, row: usize) -> (u64, &[u8]) {
        match &self.keys {
            Keys::Bytes(rows) => (self.hashes[row], rows.row(row).data()),
            Keys::One | Keys::Packed(_) => (0, &[]),
        }
    }
}

/// Numbers for keys, from 0 in the order in which they were first seen. A number that is let go is
/// given again.
#[derive(Default)]
pub(super) struct KeyNumbers {
    table: HashTable<Slot>,
    hasher: FixedState,
    /// By number: the key, in one of two forms, as bytes with its hash.
    packed: Vec<PackedKey>,
    bytes: Vec<(u64, Box<[u8]>)>,
    free: Vec<u32>,
    /// Of all keys that are bytes.
    key_bytes: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The upper half of the key's hash: mostly others need not be looked at.
    tag: u32,
    number: u32,
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl KeyNumbers {
    /// The number of a row's key; a new one if it has none.
    #[inline]
    pub(super) fn number(&mut self, keys: &KeyRows, row: usize) -> u32 {
        match self.find(keys, row) {
            Some(number) => number,
            None => self.add(keys, row),
        }
    }

    /// The number of a row's key, if it has one.
    #[inline]
    pub(super) fn find(&self, keys: &KeyRows, row: usize) -> Option<u32> {
        let found = match &keys.keys {
            Keys::Packed(rows) => {
                let (hash, key) = (keys.hashes[row], &rows[row]);
                let tag = tag(hash);
                self.table.find(hash, |slot| slot.tag == tag && self.packed[slot.number as usize] == *key)
            }
            Keys::One | Keys::Bytes(_) => {
                let (hash, key) = keys.bytes(row);
                let tag = tag(hash);
                self.table.find(hash, |slot| slot.tag == tag && *self.bytes[slot.number as usize].1 == *key)
            }
        };
        found.map(|slot| slot.number)
    }

    /// Gives a number to the key of a row that has none.
    fn add(&mut self, keys: &KeyRows, row: usize) -> u32 {
        let free = self.free.pop();
        let number = free.unwrap_or(self.bound() as u32);
        match &keys.keys {
            Keys::Packed(rows) => {
                put(&mut self.packed, number, rows[row]);
                let (hash, hasher, packed) = (keys.hashes[row], &self.hasher, &self.packed);
                let slot = Slot { tag: tag(hash), number };
                self.table.insert_unique(hash, slot, |slot| hasher.hash_one(packed[slot.number as usize]));
            }
            Keys::One | Keys::Bytes(_) => {
                let (hash, key) = keys.bytes(row);
                self.key_bytes += key.len();
                put(&mut self.bytes, number, (hash, key.into()));
                let (slot, bytes) = (Slot { tag: tag(hash), number }, &self.bytes);
                self.table.insert_unique(hash, slot, |slot| bytes[slot.number as usize].0);
            }
        }
        number
    }

    /// Forgets a key.
    pub(super) fn release(&mut self, number: u32) {
        let hash = match self.packed.get(number as usize) {
            Some(key) => self.hasher.hash_one(key),
            None => self.bytes[number as usize].0,
        };
        let Ok(entry) = self.table.find_entry(hash, |slot| slot.number == number) else { return };
        entry.remove();
        if let Some((_, key)) = self.bytes.get_mut(number as usize) {
            self.key_bytes -= std::mem::take(key).len();
        }
        self.free.push(number);
    }

    /// The numbers of all keys, ascending.
    pub(super) fn all(&self) -> Vec<u32> {
        let mut all: Vec<u32> = self.table.iter().map(|slot| slot.number).collect();
        all.sort_unstable();
        all
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Numbers are below this.
    pub(super) fn bound(&self) -> usize {
        self.packed.len().max(self.bytes.len())
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let table = self.table.capacity() * (size_of::<Slot>() + 1) + self.free.capacity() * size_of::<u32>();
        let packed = self.packed.capacity() * size_of::<PackedKey>();
        table + packed + self.bytes.capacity() * size_of::<(u64, Box<[u8]>)>() + self.key_bytes
    }
}

/// Puts the key of a number in its place, which is one that is there or the next.
fn put<K>(keys: &mut Vec<K>, number: u32, key: K) {
    match keys.get_mut(number as usize) {
        Some(place) => *place = key,
        None => keys.push(key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testing::{input, record_batch};

    #[test]
    fn a_key_that_is_let_go_gives_its_number_to_another() {
        // Text is kept as bytes, a number packed.
        for column in [1, 2] {
            let format = KeyFormat::try_new(&[column], &input()).unwrap();
            let batch = record_batch(&[
                (None, Some("a"), Some(1)),
                (None, None, None),
                (None, Some("a"), Some(1)),
                (None, Some("b"), Some(0)),
            ]);
            let rows = format.rows(&batch).unwrap();
            let mut numbers = KeyNumbers::default();
            let given: Vec<u32> = (0..3).map(|row| numbers.number(&rows, row)).collect();
            assert_eq!(given, [0, 1, 0]);
            numbers.release(0);
            numbers.release(0);
            assert_eq!((numbers.len(), numbers.find(&rows, 0)), (1, None));
            assert_eq!(numbers.number(&rows, 3), 0);
            assert_eq!(numbers.number(&rows, 0), 2);
            assert_eq!((numbers.number(&rows, 1), numbers.len(), numbers.bound()), (1, 3, 3));
            let kept = arrow::array::UInt32Array::from(vec![0, 1, 3]);
            let expected = arrow::compute::take(batch.column(column), &kept, None).unwrap();
            assert_eq!(format.columns(&numbers, &[2, 1, 0]).unwrap(), [expected]);
        }
    }

    #[test]
    fn no_columns_are_one_key() {
        let format = KeyFormat::try_new(&[], &input()).unwrap();
        let rows = format.rows(&record_batch(&[(None, None, None), (None, Some("a"), None)])).unwrap();
        let mut numbers = KeyNumbers::default();
        assert_eq!([numbers.number(&rows, 0), numbers.number(&rows, 1)], [0, 0]);
        assert!(format.columns(&numbers, &[0]).unwrap().is_empty());
    }
}

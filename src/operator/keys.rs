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
use crate::error::{Error, code};

/// Turns the key columns of rows into bytes that are equal where the keys are: a NULL is equal to
/// another, and so is a NaN.
pub(super) struct KeyFormat {
    columns: Vec<usize>,
    /// `None`: there are no columns, so one key.
    converter: Option<RowConverter>,
    hasher: FixedState,
}

/// The keys of the rows of a batch.
pub(super) struct KeyRows {
    rows: Option<Rows>,
    hashes: Vec<u64>,
}

impl KeyFormat {
    /// # Errors
    /// `P002` for keys of types that can't be compared.
    pub(super) fn try_new(columns: &[usize], schema: &Schema) -> Result<Self, Error> {
        let fields = columns.iter().map(|column| SortField::new(schema.field(*column).data_type().clone()));
        let converter = match columns.is_empty() {
            true => None,
            false => Some(RowConverter::new(fields.collect()).map_err(|error| {
                Error::plan(code::NOT_SUPPORTED, format!("rows can't be told apart by such keys: {error}"))
                    .hint("Use a column of another type, or a part of it.")
            })?),
        };
        Ok(Self { columns: columns.to_vec(), converter, hasher: FixedState::default() })
    }

    /// The keys of the rows of a batch.
    pub(super) fn rows(&self, batch: &RecordBatch) -> Result<KeyRows, Error> {
        let Some(converter) = &self.converter else { return Ok(KeyRows { rows: None, hashes: Vec::new() }) };
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|column| one_nan_and_zero(batch.column(*column).clone())).collect();
        let rows = converter.convert_columns(&columns).map_err(|error| arrow_failure(&error))?;
        let hashes = rows.iter().map(|row| self.hasher.hash_one(row.as_ref())).collect();
        Ok(KeyRows { rows: Some(rows), hashes })
    }
}

impl KeyFormat {
    /// The columns of the keys of these numbers.
    pub(super) fn columns(&self, numbers: &KeyNumbers, of: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let Some(converter) = &self.converter else { return Ok(Vec::new()) };
        let parser = converter.parser();
        let rows = of.iter().map(|number| parser.parse(&numbers.keys[*number as usize].1));
        converter.convert_rows(rows).map_err(|error| arrow_failure(&error))
    }
}

impl KeyRows {
    fn key(&self, row: usize) -> (u64, &[u8]) {
        match &self.rows {
            Some(rows) => (self.hashes[row], rows.row(row).data()),
            None => (0, &[]),
        }
    }
}

/// Numbers for keys, from 0 in the order in which they were first seen. A number that is let go is
/// given again.
#[derive(Default)]
pub(super) struct KeyNumbers {
    table: HashTable<u32>,
    keys: Vec<(u64, Box<[u8]>)>,
    free: Vec<u32>,
    bytes: usize,
}

impl KeyNumbers {
    /// The number of a row's key; a new one if it has none.
    pub(super) fn number(&mut self, keys: &KeyRows, row: usize) -> u32 {
        let (hash, key) = keys.key(row);
        let known = &mut self.keys;
        if let Some(number) = self.table.find(hash, |number| *known[*number as usize].1 == *key) {
            return *number;
        }
        self.bytes += key.len();
        let number = match self.free.pop() {
            Some(number) => {
                known[number as usize] = (hash, key.into());
                number
            }
            None => {
                known.push((hash, key.into()));
                known.len() as u32 - 1
            }
        };
        self.table.insert_unique(hash, number, |number| known[*number as usize].0);
        number
    }

    /// The number of a row's key, if it has one.
    pub(super) fn find(&self, keys: &KeyRows, row: usize) -> Option<u32> {
        let (hash, key) = keys.key(row);
        self.table.find(hash, |number| *self.keys[*number as usize].1 == *key).copied()
    }

    /// Forgets a key.
    pub(super) fn release(&mut self, number: u32) {
        let (hash, key) = &mut self.keys[number as usize];
        if let Ok(entry) = self.table.find_entry(*hash, |other| *other == number) {
            entry.remove();
            self.bytes -= key.len();
            *key = Box::default();
            self.free.push(number);
        }
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Numbers are below this.
    pub(super) fn bound(&self) -> usize {
        self.keys.len()
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.keys.capacity() * size_of::<(u64, Box<[u8]>)>() + self.table.capacity() * 5 + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testing::{input, record_batch};

    #[test]
    fn a_key_that_is_let_go_gives_its_number_to_another() {
        let format = KeyFormat::try_new(&[1], &input()).unwrap();
        let batch = record_batch(&[
            (None, Some("a"), None),
            (None, None, None),
            (None, Some("a"), None),
            (None, Some("b"), None),
        ]);
        let rows = format.rows(&batch).unwrap();
        let mut numbers = KeyNumbers::default();
        let given: Vec<u32> = (0..3).map(|row| numbers.number(&rows, row)).collect();
        assert_eq!(given, [0, 1, 0]);
        numbers.release(0);
        assert_eq!(numbers.len(), 1);
        assert_eq!(numbers.number(&rows, 3), 0);
        assert_eq!(numbers.number(&rows, 0), 2);
        assert_eq!((numbers.number(&rows, 1), numbers.len()), (1, 3));
    }
}

//! Keys of any columns, as rows of bytes that are equal where the keys are.

use std::hash::BuildHasher;

use arrow::array::ArrayRef;
use arrow::datatypes::Schema;
use arrow::row::{RowConverter, Rows, SortField};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::GroupKeys;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;

pub(super) struct Encoded {
    converter: RowConverter,
    table: HashTable<Slot>,
    keys: Rows,
    /// Scratch space: the keys of a batch.
    batch: Rows,
    hasher: FixedState,
}

struct Slot {
    hash: u64,
    number: u32,
}

impl Encoded {
    pub(super) fn try_new(schema: &Schema) -> Result<Self, Error> {
        let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(|error| arrow_failure(&error))?;
        let (keys, batch) = (converter.empty_rows(0, 0), converter.empty_rows(0, 0));
        Ok(Self { converter, table: HashTable::new(), keys, batch, hasher: FixedState::default() })
    }
}

impl GroupKeys for Encoded {
    fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<usize>) -> Result<(), Error> {
        ids.clear();
        self.batch.clear();
        self.converter.append(&mut self.batch, columns).map_err(|error| arrow_failure(&error))?;
        let keys = &mut self.keys;
        for row in &self.batch {
            let hash = self.hasher.hash_one(row.data());
            let same = |slot: &Slot| slot.hash == hash && keys.row(slot.number as usize) == row;
            ids.push(match self.table.entry(hash, same, |slot| slot.hash) {
                Entry::Occupied(entry) => entry.get().number as usize,
                Entry::Vacant(entry) => {
                    let number = keys.num_rows();
                    entry.insert(Slot { hash, number: number as u32 });
                    keys.push(row);
                    number
                }
            });
        }
        Ok(())
    }

    fn expect(&mut self, groups: usize) {
        self.table.reserve(groups, |slot| slot.hash);
    }

    fn len(&self) -> usize {
        self.keys.num_rows()
    }

    fn size(&self) -> usize {
        self.table.capacity() * size_of::<Slot>() + self.keys.size() + self.converter.size()
    }

    fn columns(&self) -> Result<Vec<ArrayRef>, Error> {
        self.converter.convert_rows(&self.keys).map_err(|error| arrow_failure(&error))
    }

    fn into_columns(self: Box<Self>) -> Result<Vec<ArrayRef>, Error> {
        self.columns()
    }
}

//! The groups of a window: their keys, numbered as they were first seen, and their states.

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

use super::super::recipe::{Recipe, Rows};
use super::accumulator::Use;
use super::aggregates::Aggregates;
use crate::error::{Error, code};
use crate::operator::evaluate::arrow_failure;

/// Turns keys into bytes that are equal where the keys are, and back.
pub(in crate::operator::window) struct KeyFormat {
    /// `None`: there are no keys, so one group.
    converter: Option<RowConverter>,
    hasher: FixedState,
}

/// The keys of some rows as bytes, once for each grouping set.
pub(in crate::operator::window) struct KeyRows {
    sets: Vec<(arrow::row::Rows, Vec<u64>)>,
}

impl KeyFormat {
    /// # Errors
    /// `P002` for keys of types that have no such form.
    pub(in crate::operator::window) fn try_new(recipe: &Recipe) -> Result<Self, Error> {
        let fields = recipe.group_schema.fields();
        let sort_fields: Vec<SortField> =
            fields.iter().map(|field| SortField::new(field.data_type().clone())).collect();
        let converter = match fields.is_empty() {
            true => None,
            false => Some(RowConverter::new(sort_fields).map_err(|error| {
                Error::plan(code::NOT_SUPPORTED, format!("can't group by such keys: {error}"))
                    .hint("Group by a column of another type, or by a part of it.")
            })?),
        };
        Ok(Self { converter, hasher: FixedState::default() })
    }

    /// The keys of rows, for each set of `sets` its key columns.
    pub(in crate::operator::window) fn rows(&self, sets: &[Vec<ArrayRef>]) -> Result<KeyRows, Error> {
        let Some(converter) = &self.converter else { return Ok(KeyRows { sets: Vec::new() }) };
        let sets = sets.iter().map(|columns| {
            let rows = converter.convert_columns(columns).map_err(|error| arrow_failure(&error))?;
            let hashes = rows.iter().map(|row| self.hasher.hash_one(row.as_ref())).collect();
            Ok((rows, hashes))
        });
        Ok(KeyRows { sets: sets.collect::<Result<_, Error>>()? })
    }

    /// The hash of a key from its bytes.
    pub(in crate::operator::window) fn hash(&self, key: &[u8]) -> u64 {
        if self.converter.is_some() { self.hasher.hash_one(key) } else { 0 }
    }

    /// The columns of keys from their bytes.
    pub(in crate::operator::window) fn columns<'a>(
        &self,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<ArrayRef>, Error> {
        let Some(converter) = &self.converter else { return Ok(Vec::new()) };
        let parser = converter.parser();
        converter.convert_rows(keys.map(|key| parser.parse(key))).map_err(|error| arrow_failure(&error))
    }
}

impl KeyRows {
    /// The key of a row in a grouping set and its hash; nothing where there are no keys.
    pub(in crate::operator::window) fn key(
        &self,
        set: usize,
        row: u32,
    ) -> Option<(arrow::row::Row<'_>, u64)> {
        let (rows, hashes) = self.sets.get(set)?;
        Some((rows.row(row as usize), hashes[row as usize]))
    }
}

/// The groups of a window.
pub(super) struct Groups {
    table: HashTable<u32>,
    hashes: Vec<u64>,
    /// The keys' bytes, one after another, and where each ends.
    keys: Vec<u8>,
    ends: Vec<usize>,
    aggregates: Aggregates,
}

impl Groups {
    pub(super) fn new(recipe: &Recipe, input: &SchemaRef) -> Result<Self, Error> {
        let aggregates = Aggregates::try_new(recipe, input)?;
        Ok(Self {
            table: HashTable::new(),
            hashes: Vec::new(),
            keys: Vec::new(),
            ends: Vec::new(),
            aggregates,
        })
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The group of a row in a grouping set; a new one if the key has none.
    pub(super) fn group(&mut self, keys: &KeyRows, set: usize, row: u32) -> u32 {
        let Some((key, hash)) = keys.key(set, row) else {
            if self.ends.is_empty() {
                self.ends.push(0);
            }
            return 0;
        };
        let key: &[u8] = key.as_ref();
        let is_it = |group: &u32| bytes(&self.keys, &self.ends, *group) == key;
        if let Some(group) = self.table.find(hash, is_it) {
            return *group;
        }
        let group = self.ends.len() as u32;
        let known = &self.hashes;
        self.table.insert_unique(hash, group, |group| known.get(*group as usize).copied().unwrap_or(hash));
        self.hashes.push(hash);
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len());
        group
    }

    /// Adds rows.
    pub(super) fn update(&mut self, uses: &[Use], rows: &Rows) -> Result<(), Error> {
        self.aggregates.grow(self.len())?;
        self.aggregates.update(uses, rows)
    }

    /// Adds rows; gives the values of each row's group before and after it, a column an aggregate.
    pub(super) fn update_each(
        &mut self,
        uses: &[Use],
        rows: &Rows,
    ) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), Error> {
        self.aggregates.grow(self.len())?;
        self.aggregates.update_each(uses, rows)
    }

    /// The keys of some groups.
    pub(super) fn keys(&self, format: &KeyFormat, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        format.columns(groups.iter().map(|group| bytes(&self.keys, &self.ends, *group)))
    }

    /// The present values of some groups, a column an aggregate.
    pub(super) fn values(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        self.aggregates.grow(self.len())?;
        self.aggregates.values(groups)
    }

    /// Room for as many states as groups, before [`Groups::states`] are written or read.
    pub(super) fn states(&mut self) -> Result<&mut Aggregates, Error> {
        self.aggregates.grow(self.len())?;
        Ok(&mut self.aggregates)
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let keys = self.keys.capacity() + (self.ends.capacity() + self.hashes.capacity()) * size_of::<u64>();
        let table = self.table.capacity() * size_of::<u32>();
        keys + table + self.aggregates.size()
    }
}

fn bytes<'a>(keys: &'a [u8], ends: &[usize], group: u32) -> &'a [u8] {
    let group = group as usize;
    let start = if group == 0 { 0 } else { ends[group - 1] };
    &keys[start..ends[group]]
}

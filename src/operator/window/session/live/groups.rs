//! The groups of all sessions: their keys and their states.

use std::hash::BuildHasher;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use super::super::super::live::accumulator::Use;
use super::super::super::live::aggregates::Aggregates;
use super::super::super::live::groups::{KeyFormat, KeyRows};
use super::super::super::recipe::{Recipe, Rows};
use crate::error::Error;

/// A group of a session.
pub(super) struct Group {
    session: u64,
    hash: u64,
    key: Box<[u8]>,
    /// When its first row arrived; of one row by grouping set. No other group has it.
    pub(super) first: u64,
    /// What was given of it last is what it is now: values, and bounds of its session.
    pub(super) is_given: bool,
}

/// The groups of all sessions, by number. Numbers of groups that are gone are given again.
pub(super) struct Groups {
    table: HashTable<u32>,
    hasher: FixedState,
    groups: Vec<Group>,
    free: Vec<u32>,
    key_bytes: usize,
    /// Groups that a row goes to.
    sets: u64,
    aggregates: Aggregates,
}

impl Groups {
    pub(super) fn new(recipe: &Recipe, schema: &SchemaRef) -> Result<Self, Error> {
        let aggregates = Aggregates::try_new(recipe, schema)?;
        let (table, hasher) = (HashTable::new(), FixedState::default());
        let (groups, free, sets) = (Vec::new(), Vec::new(), recipe.groups_of_a_row());
        Ok(Self { table, hasher, groups, free, key_bytes: 0, sets, aggregates })
    }

    /// Whether the states of two sessions make the one of both.
    pub(super) fn join(&self) -> bool {
        self.aggregates.join()
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.len() - self.free.len()
    }

    pub(super) fn of(&self, group: u32) -> &Group {
        &self.groups[group as usize]
    }

    pub(super) fn of_mut(&mut self, group: u32) -> &mut Group {
        &mut self.groups[group as usize]
    }

    /// The group of a row in a session; `None`: there is none.
    fn find(&self, session: u64, hash: u64, key: &[u8]) -> Option<u32> {
        let is_it = |group: &u32| {
            let group = &self.groups[*group as usize];
            group.session == session && *group.key == *key
        };
        self.table.find(hash, is_it).copied()
    }

    /// The group of a row in a grouping set of a session, and whether it is new. `arrival`: of the row.
    pub(super) fn group(
        &mut self,
        session: u64,
        keys: &KeyRows,
        (set, row): (usize, u32),
        arrival: u64,
    ) -> (u32, bool) {
        let key = keys.key(set, row);
        let (key, key_hash) = key.as_ref().map_or((&[][..], 0), |(key, hash)| (key.as_ref(), *hash));
        let hash = self.hasher.hash_one((session, key_hash));
        if let Some(group) = self.find(session, hash, key) {
            return (group, false);
        }
        self.key_bytes += key.len();
        let first = arrival * self.sets + set as u64;
        let group = Group { session, hash, key: key.into(), first, is_given: false };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        self.insert(number);
        (number, true)
    }

    /// Takes up a group that was kept, with the key of a row of its table.
    pub(super) fn restore(
        &mut self,
        session: u64,
        keys: &KeyRows,
        row: u32,
        first: u64,
        is_given: bool,
    ) -> u32 {
        let (group, _) = self.group(session, keys, (0, row), 0);
        let known = self.of_mut(group);
        (known.first, known.is_given) = (first, is_given);
        group
    }

    /// Room for as many states as groups, where they are written or read.
    pub(super) fn states(&mut self) -> Result<&mut Aggregates, Error> {
        self.aggregates.grow(self.groups.len())?;
        Ok(&mut self.aggregates)
    }

    fn insert(&mut self, number: u32) {
        let groups = &self.groups;
        let hash = groups[number as usize].hash;
        self.table.insert_unique(hash, number, |group| groups[*group as usize].hash);
    }

    fn remove(&mut self, number: u32) {
        let hash = self.groups[number as usize].hash;
        if let Ok(entry) = self.table.find_entry(hash, |group| *group == number) {
            entry.remove();
        }
    }

    /// Forgets a group.
    pub(super) fn forget(&mut self, number: u32) -> Result<(), Error> {
        self.remove(number);
        self.key_bytes -= std::mem::take(&mut self.groups[number as usize].key).len();
        self.free.push(number);
        let groups = self.groups.len();
        self.aggregates.grow(groups)?;
        self.aggregates.clear(number)
    }

    /// Makes a group one of another session; gives its number if the session had none of that key.
    pub(super) fn join_to(
        &mut self,
        session: u64,
        number: u32,
        keys: &KeyFormat,
    ) -> Result<Option<u32>, Error> {
        let group = &self.groups[number as usize];
        let hash = self.hasher.hash_one((session, keys.hash(&group.key)));
        if let Some(known) = self.find(session, hash, &group.key) {
            let first = group.first.min(self.groups[known as usize].first);
            self.groups[known as usize].first = first;
            let groups = self.groups.len();
            self.aggregates.grow(groups)?;
            self.aggregates.join_groups(known, number);
            self.forget(number)?;
            return Ok(None);
        }
        self.remove(number);
        let group = &mut self.groups[number as usize];
        (group.session, group.hash) = (session, hash);
        self.insert(number);
        Ok(Some(number))
    }

    /// Adds rows.
    pub(super) fn update(&mut self, uses: &[Use], rows: &Rows) -> Result<(), Error> {
        self.aggregates.grow(self.groups.len())?;
        self.aggregates.update(uses, rows)
    }

    /// Adds rows; gives the values of each row's group before and after it, a column an aggregate.
    pub(super) fn update_each(
        &mut self,
        uses: &[Use],
        rows: &Rows,
    ) -> Result<(Vec<ArrayRef>, Vec<ArrayRef>), Error> {
        self.aggregates.grow(self.groups.len())?;
        self.aggregates.update_each(uses, rows)
    }

    /// The keys of some groups.
    pub(super) fn keys(&self, format: &KeyFormat, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        format.columns(groups.iter().map(|group| &*self.groups[*group as usize].key))
    }

    /// The present values of some groups, a column an aggregate.
    pub(super) fn values(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        self.aggregates.grow(self.groups.len())?;
        self.aggregates.values(groups)
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let table = self.table.capacity() * size_of::<u32>() + self.groups.capacity() * size_of::<Group>();
        self.key_bytes + table + self.aggregates.size()
    }
}

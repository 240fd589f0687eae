//! A part of the state to which rows may still come.

use std::collections::BTreeMap;

use super::kept::{Away, Kept};
use super::placement::PartKey;
use super::recipe::Recipe;
use super::table::Table;
use crate::error::Error;
use crate::operator::{KeyFilter, SpillStore};

/// A table, or one that was put away: it comes back as it was with the next row for it, or when it is needed.
pub(super) struct Part {
    groups: Groups,
    /// Rows that it took.
    rows: u64,
    /// How many batches the operator had taken when rows last came for it.
    written: u64,
}

enum Groups {
    Here(Table),
    Away(Away),
}

impl Part {
    /// Groups that it has.
    pub(super) fn len(&self) -> usize {
        match &self.groups {
            Groups::Here(table) => table.len(),
            Groups::Away(away) => away.groups,
        }
    }

    /// Rows that it took.
    pub(super) fn rows(&self) -> u64 {
        match &self.groups {
            Groups::Here(table) => table.rows(),
            Groups::Away(_) => self.rows,
        }
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        match &self.groups {
            Groups::Here(table) => table.size(),
            Groups::Away(_) => size_of::<Self>(),
        }
    }

    /// Bytes that were put away.
    pub(super) fn spilled(&self) -> u64 {
        match &self.groups {
            Groups::Here(_) => 0,
            Groups::Away(away) => away.rows.bytes(),
        }
    }

    /// The table, if it is in memory, or what was put away.
    pub(super) fn table(&mut self) -> Result<&mut Table, &Away> {
        match &mut self.groups {
            Groups::Here(table) => Ok(table),
            Groups::Away(away) => Err(away),
        }
    }

    /// Takes the table.
    pub(super) fn into_table(
        self,
        recipe: &Recipe,
        ranked: bool,
        ids: &mut Vec<usize>,
    ) -> Result<Table, Error> {
        match self.groups {
            Groups::Here(table) => Ok(table),
            Groups::Away(away) => away.table(recipe, ranked, ids),
        }
    }

    /// Takes the groups, sealed.
    pub(super) fn seal(self) -> Result<Kept, Error> {
        match self.groups {
            Groups::Here(table) => table.seal().map(Kept::Here),
            Groups::Away(away) => Ok(Kept::Away(away)),
        }
    }

    /// Groups with a value in the key at `place`.
    pub(super) fn count_matching(
        &self,
        recipe: &Recipe,
        place: usize,
        filter: &KeyFilter,
    ) -> Result<usize, Error> {
        match &self.groups {
            Groups::Here(table) => table.count_matching(place, filter),
            Groups::Away(away) => away.count_matching(recipe, place, filter),
        }
    }
}

/// The table of a part to which rows come, in memory; a new one if it has none.
pub(super) fn part<'a>(
    open: &'a mut BTreeMap<PartKey, Part>,
    key: PartKey,
    batches: u64,
    (recipe, is_ranked): (&Recipe, bool),
    ids: &mut Vec<usize>,
) -> Result<&'a mut Table, Error> {
    if !open.contains_key(&key) {
        let before = open.range(..key).next_back().map_or(0, |(_, part)| part.len());
        let mut table = Table::try_new(recipe, is_ranked)?;
        table.expect(before);
        open.insert(key, Part { groups: Groups::Here(table), rows: 0, written: 0 });
    }
    let Some(part) = open.get_mut(&key) else {
        return Err(Error::internal("WindowAggregate", "a part that is not there"));
    };
    part.written = batches;
    if let Groups::Away(away) = &part.groups {
        let mut table = away.table(recipe, is_ranked, ids)?;
        table.count_rows(part.rows);
        part.groups = Groups::Here(table);
    }
    match &mut part.groups {
        Groups::Here(table) => Ok(table),
        Groups::Away(_) => Err(Error::internal("WindowAggregate", "a part that did not come back")),
    }
}

/// Puts parts away to which no rows came in the last batches, until that gave up so many bytes; the bytes.
pub(super) fn put_away(
    open: &mut BTreeMap<PartKey, Part>,
    wanted: usize,
    written_before: u64,
    store: &dyn SpillStore,
) -> Result<usize, Error> {
    let mut cold: Vec<(u64, PartKey)> = open
        .iter()
        .filter(|(_, part)| part.written < written_before && matches!(part.groups, Groups::Here(_)))
        .map(|(key, part)| (part.written, *key))
        .collect();
    cold.sort_unstable();
    let mut given_up = 0;
    for (_, key) in cold {
        if given_up >= wanted {
            break;
        }
        let Some(part) = open.remove(&key) else { continue };
        let (rows, size, written) = (part.rows(), part.size(), part.written);
        let groups = match part.groups {
            Groups::Here(table) => Groups::Away(table.seal()?.put_away(store)?),
            away @ Groups::Away(_) => away,
        };
        given_up += size;
        open.insert(key, Part { groups, rows, written });
    }
    Ok(given_up)
}

//! A window whose results can be read while it takes rows.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::SchemaRef;

use super::super::key_filter;
use super::super::recipe::{Recipe, Rows};
use super::super::results::Bounds;
use super::accumulator::Use;
use super::changes::{Change, Changes, Place, changed};
use super::groups::{Groups, KeyFormat, KeyRows};
use crate::error::Error;
use crate::operator::KeyFilter;
use crate::operator::evaluate::arrow_failure;

/// The groups of a window, and what of them has been given.
pub(super) struct Window {
    pub(super) bounds: Bounds,
    pub(super) groups: Groups,
    /// The watermark has passed its end.
    pub(super) is_closed: bool,
    /// Rows that it took.
    pub(super) rows: u64,
    /// Groups below this number have been given; numbers grow, and all are given together.
    pub(super) given: usize,
    /// Groups whose result may differ from what was given, in no special order.
    pub(super) pending: Vec<u32>,
    /// Whether a group is among them.
    pub(super) is_pending: Vec<bool>,
    /// Groups among them that have been given, and their values then.
    pub(super) before: Before,
}

#[derive(Default)]
pub(super) struct Before {
    pub(super) groups: Vec<u32>,
    pub(super) values: Vec<Vec<ArrayRef>>,
}

impl Before {
    /// The values by ascending group. `like`: columns of the same types.
    fn by_group(self, like: &[ArrayRef]) -> Result<Vec<ArrayRef>, Error> {
        let mut order: Vec<u32> = (0..self.groups.len() as u32).collect();
        order.sort_unstable_by_key(|place| self.groups[*place as usize]);
        let order = UInt32Array::from(order);
        let column = |(index, like): (usize, &ArrayRef)| {
            let pieces: Vec<&dyn Array> = self.values.iter().map(|values| values[index].as_ref()).collect();
            match pieces.is_empty() {
                true => Ok(like.slice(0, 0)),
                false => take(&concat(&pieces)?, &order, None),
            }
        };
        like.iter().enumerate().map(column).collect::<Result<_, _>>().map_err(|error| arrow_failure(&error))
    }
}

/// The rows of a batch, as groups take them.
pub(super) struct Batch<'a> {
    pub(super) rows: &'a Rows,
    pub(super) keys: &'a KeyRows,
    /// For each grouping set the number of its key columns in the changes.
    pub(super) key_columns: &'a [u32],
}

impl Window {
    pub(super) fn new(
        bounds: Bounds,
        is_closed: bool,
        recipe: &Recipe,
        input: &SchemaRef,
    ) -> Result<Self, Error> {
        Ok(Self {
            bounds,
            groups: Groups::new(recipe, input)?,
            is_closed,
            rows: 0,
            given: 0,
            pending: Vec::new(),
            is_pending: Vec::new(),
            before: Before::default(),
        })
    }

    fn uses(&mut self, batch: &Batch<'_>, rows: &[u32]) -> Vec<Use> {
        self.rows += rows.len() as u64;
        let sets = batch.key_columns.len();
        let mut uses = Vec::with_capacity(rows.len() * sets);
        for row in rows {
            for set in 0..sets {
                uses.push(Use { group: self.groups.group(batch.keys, set, *row), row: *row });
            }
        }
        uses
    }

    /// Takes rows; what they change waits until it is asked for, if anybody will ask.
    pub(super) fn update(
        &mut self,
        batch: &Batch<'_>,
        rows: &[u32],
        keeps_changes: bool,
    ) -> Result<(), Error> {
        let uses = self.uses(batch, rows);
        if keeps_changes {
            self.note(&uses)?;
        }
        self.groups.update(&uses, batch.rows)
    }

    /// Notes the groups of rows, and the values that they have been given with.
    fn note(&mut self, uses: &[Use]) -> Result<(), Error> {
        self.is_pending.resize(self.groups.len(), false);
        let mut known = Vec::new();
        for one in uses {
            let is_pending = &mut self.is_pending[one.group as usize];
            if !std::mem::replace(is_pending, true) {
                self.pending.push(one.group);
                if (one.group as usize) < self.given {
                    known.push(one.group);
                }
            }
        }
        if !known.is_empty() {
            self.before.values.push(self.groups.values(&known)?);
            self.before.groups.extend(known);
        }
        Ok(())
    }

    /// Takes rows; each that changes a result gives that change. `running`: the watermark before a row.
    pub(super) fn update_each(
        &mut self,
        batch: &Batch<'_>,
        rows: &[u32],
        running: impl Fn(u32) -> i64,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        debug_assert!(self.pending.is_empty(), "what was collected has been given");
        let uses = self.uses(batch, rows);
        let (before, after) = self.groups.update_each(&uses, batch.rows)?;
        let has_changed = changed(&before, &after, uses.len())?;
        let (before, after) = (changes.add_values(before), changes.add_values(after));
        for (index, (one, has_changed)) in uses.iter().zip(has_changed).enumerate() {
            let is_new = one.group as usize >= self.given;
            if is_new {
                self.given = one.group as usize + 1;
            } else if !has_changed {
                continue;
            }
            let set = index % batch.key_columns.len();
            let place = |columns: u32| Place { columns, row: index as u32 };
            changes.push(Change {
                order: one.row,
                bounds: self.bounds,
                keys: Place { columns: batch.key_columns[set], row: one.row },
                before: (!is_new).then(|| place(before)),
                after: Some(place(after)),
                running: running(one.row),
            });
        }
        Ok(())
    }

    /// Gives what has changed since it was given last, by group as they were first seen.
    pub(super) fn flush(
        &mut self,
        keys: &KeyFormat,
        running: i64,
        changes: &mut Changes,
    ) -> Result<(), Error> {
        let mut groups = std::mem::take(&mut self.pending);
        if groups.is_empty() {
            return Ok(());
        }
        groups.sort_unstable();
        let before = std::mem::take(&mut self.before);
        groups.iter().for_each(|group| self.is_pending[*group as usize] = false);
        let key_columns = changes.add_keys(self.groups.keys(keys, &groups)?);
        let after = self.groups.values(&groups)?;
        let known = groups.partition_point(|group| (*group as usize) < self.given);
        let before = before.by_group(&after)?;
        let now: Vec<ArrayRef> = after.iter().map(|column| column.slice(0, known)).collect();
        let has_changed = changed(&before, &now, known)?;
        let (before, after) = (changes.add_values(before), changes.add_values(after));
        // New groups stand behind those that have been given.
        let all = has_changed.into_iter().chain(std::iter::repeat(true));
        for (row, _) in (0..groups.len()).zip(all).filter(|(_, has_changed)| *has_changed) {
            let place = |columns: u32| Place { columns, row: row as u32 };
            changes.push(Change {
                order: 0,
                bounds: self.bounds,
                keys: place(key_columns),
                before: (row < known).then(|| place(before)),
                after: Some(place(after)),
                running,
            });
        }
        self.given = self.groups.len();
        Ok(())
    }

    /// Groups with a value in the key at `place`.
    pub(super) fn count_matching(
        &self,
        keys: &KeyFormat,
        place: usize,
        filter: &KeyFilter,
    ) -> Result<usize, Error> {
        let groups: Vec<u32> = (0..self.groups.len() as u32).collect();
        let columns = self.groups.keys(keys, &groups)?;
        columns.get(place).map_or(Ok(0), |keys| key_filter::count(keys, filter))
    }

    /// All groups with their present values, as they were first seen.
    pub(super) fn results(&mut self, keys: &KeyFormat) -> Result<(usize, Vec<ArrayRef>), Error> {
        let groups: Vec<u32> = (0..self.groups.len() as u32).collect();
        let mut columns = self.groups.keys(keys, &groups)?;
        columns.extend(self.groups.values(&groups)?);
        Ok((groups.len(), columns))
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let before = self.before.values.iter().flatten();
        let before: usize = before.map(|column| column.get_array_memory_size()).sum();
        self.groups.size() + before + self.pending.capacity() * 4 + self.is_pending.capacity()
    }
}

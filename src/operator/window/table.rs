//! Groups and their states: a key table of one slice or window, and its sealed form.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;

use super::grouped::{Column, GroupStates, results_of};
use super::key_filter;
use super::recipe::{Recipe, Rows};
use crate::error::Error;
use crate::operator::KeyFilter;
use crate::operator::evaluate::arrow_failure;
use crate::operator::group_keys::{CHUNK, GroupKeys, group_keys};

/// Room for so many groups is made before they come, at most.
const MOST_EXPECTED: usize = 8192;

/// The groups of one slice or window. Used until its result or state is taken, then thrown away.
pub(super) struct Table {
    /// `None`: one group without a key.
    groups: Option<Box<dyn GroupKeys>>,
    states: Vec<Box<dyn GroupStates>>,
    /// For each group when its first row arrived; `None` if groups are numbered in that order.
    first_rows: Option<Column<u64>>,
    /// Rows that it took; of merged states none.
    rows: u64,
}

/// Groups with the states of their accumulators as columns: what is merged, sent and kept.
#[derive(Clone)]
pub(super) struct Sealed {
    pub(super) groups: usize,
    /// Keys, then the grouping id if there is one.
    pub(super) keys: Vec<ArrayRef>,
    pub(super) first_rows: ScalarBuffer<u64>,
    /// For each aggregate its state columns.
    pub(super) states: Vec<Vec<ArrayRef>>,
}

/// Group columns, then aggregates, in the order in which the groups were first seen.
pub(super) type Results = (usize, Vec<ArrayRef>);

impl Table {
    /// An empty table. `ranked`: it keeps when the first row of each group arrived, because groups
    /// are not numbered in that order (merged states, grouping sets) or somebody else needs it.
    pub(super) fn try_new(recipe: &Recipe, ranked: bool) -> Result<Self, Error> {
        let groups = if recipe.group_schema.fields().is_empty() {
            None
        } else {
            Some(group_keys(&recipe.group_schema)?)
        };
        let states = recipe.calls.iter().map(|call| call.form.states(call)).collect::<Result<_, _>>()?;
        Ok(Self { groups, states, first_rows: ranked.then(Column::default), rows: 0 })
    }

    /// Makes room for about as many groups as its neighbour has.
    pub(super) fn expect(&mut self, groups: usize) {
        if let Some(own) = &mut self.groups {
            own.expect(groups.min(MOST_EXPECTED));
        }
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.groups.as_ref().map_or(1, |groups| groups.len())
    }

    /// Rows that it took.
    pub(super) fn rows(&self) -> u64 {
        self.rows
    }

    /// Takes note of rows whose states were merged.
    pub(super) fn count_rows(&mut self, rows: u64) {
        self.rows += rows;
    }

    /// Groups with a value in the key at `place`.
    ///
    /// # Errors
    /// An internal error if the keys can't be shown.
    pub(super) fn count_matching(&self, place: usize, filter: &KeyFilter) -> Result<usize, Error> {
        let Some(groups) = &self.groups else { return Ok(0) };
        let keys = groups.columns()?;
        keys.get(place).map_or(Ok(0), |keys| key_filter::count(keys, filter))
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let groups = self.groups.as_ref().map_or(0, |groups| groups.size());
        let first_rows = self.first_rows.as_ref().map_or(0, Column::size);
        groups + first_rows + self.states.iter().map(|states| states.size()).sum::<usize>()
    }

    /// Adds rows. `ids` is scratch space.
    ///
    /// # Errors
    /// `R002` if an aggregate fails on a row.
    pub(super) fn update(&mut self, recipe: &Recipe, rows: &Rows, ids: &mut Vec<usize>) -> Result<(), Error> {
        if rows.len == 0 {
            return Ok(());
        }
        self.rows += rows.len as u64;
        if recipe.sets.is_empty() {
            self.intern(&rows.keys, rows.len, ids)?;
            self.note_first_rows(ids, |row| rows.arrival.of(row));
            return self.accumulate(rows, ids);
        }
        let per_row = recipe.groups_of_a_row();
        for (index, set) in recipe.sets.iter().enumerate() {
            let keys = recipe.masked(&rows.keys, rows.len, set)?;
            self.intern(&keys, rows.len, ids)?;
            self.note_first_rows(ids, |row| rows.arrival.of(row) * per_row + index as u64);
            self.accumulate(rows, ids)?;
        }
        Ok(())
    }

    fn intern(&mut self, keys: &[ArrayRef], len: usize, ids: &mut Vec<usize>) -> Result<(), Error> {
        match &mut self.groups {
            Some(groups) => groups.intern(keys, ids),
            None => {
                ids.clear();
                ids.resize(len, 0);
                Ok(())
            }
        }
    }

    /// Takes the smaller of what is known and `first_row` for each row's group. New groups have
    /// ascending ids in row order.
    fn note_first_rows(&mut self, ids: &[usize], first_row: impl Fn(usize) -> u64) {
        let groups = self.len();
        let Some(first_rows) = &mut self.first_rows else { return };
        if first_rows.len() == groups {
            return;
        }
        for (row, id) in ids.iter().enumerate() {
            if *id == first_rows.len() {
                first_rows.push(first_row(row));
                if first_rows.len() == groups {
                    return;
                }
            }
        }
    }

    fn accumulate(&mut self, rows: &Rows, ids: &[usize]) -> Result<(), Error> {
        let groups = self.len();
        for ((states, args), filter) in self.states.iter_mut().zip(&rows.args).zip(&rows.filters) {
            states.update(args, ids, filter.as_ref(), groups)?;
        }
        Ok(())
    }

    /// Adds sealed groups.
    ///
    /// # Errors
    /// `R002` if an aggregate fails on a state.
    pub(super) fn merge(&mut self, sealed: &Sealed, ids: &mut Vec<usize>) -> Result<(), Error> {
        if sealed.groups == 0 {
            return Ok(());
        }
        self.intern(&sealed.keys, sealed.groups, ids)?;
        let groups = self.len();
        if let Some(first_rows) = &mut self.first_rows {
            first_rows.grow(groups, u64::MAX);
            first_rows
                .update(ids, &sealed.first_rows, None, |known, first_row| *known = first_row.min(*known));
        }
        for (states, more) in self.states.iter_mut().zip(&sealed.states) {
            states.merge(more, ids, groups)?;
        }
        Ok(())
    }

    /// Takes the groups and their states; the buffers are moved where a column is one chunk.
    pub(super) fn seal(mut self) -> Result<Sealed, Error> {
        let groups = self.len();
        let keys = self.take_keys()?;
        let states = self.states.iter_mut().map(|states| states.take()).collect::<Result<_, _>>()?;
        let first_rows = self.first_rows.as_mut().map(Column::take).unwrap_or_default();
        Ok(Sealed { groups, keys, first_rows, states })
    }

    /// The same as [`Table::seal`] of a table that goes on, in pieces of a chunk of groups. What is copied are accumulators
    /// of DataFusion, and keys of several columns or of text.
    pub(super) fn share(&mut self, recipe: &Recipe) -> Result<Vec<Sealed>, Error> {
        let groups = self.len();
        let calls = recipe.calls.iter().zip(&mut self.states);
        let states = calls.map(|(call, states)| states.share(call, groups));
        let states = states.collect::<Result<Vec<_>, _>>()?;
        let first_rows = self.first_rows.as_mut().map(Column::share).unwrap_or_default();
        let keys = match &self.groups {
            Some(keys) => keys.pieces()?,
            None => vec![Vec::new()],
        };
        let (mut pieces, mut first) = (Vec::new(), 0);
        for keys in keys {
            // Each begins with the first group of a chunk.
            let end = first + keys.first().map_or(groups, |keys| keys.len());
            let from = first;
            loop {
                let many = CHUNK.min(end - first);
                pieces.push(Sealed {
                    groups: many,
                    keys: keys.iter().map(|keys| keys.slice(first - from, many)).collect(),
                    first_rows: first_rows.get(first / CHUNK).cloned().unwrap_or_default(),
                    states: states.iter().map(|states| states.piece(first, many)).collect(),
                });
                first += many;
                if first == end {
                    break;
                }
            }
        }
        Ok(pieces)
    }

    /// Takes the results.
    ///
    /// # Errors
    /// `R002` if a result does not fit its type.
    pub(super) fn results(mut self) -> Result<Results, Error> {
        let groups = self.len();
        let mut columns = self.take_keys()?;
        for states in &mut self.states {
            columns.push(states.results()?);
        }
        let Some(first_rows) = &mut self.first_rows else { return Ok((groups, columns)) };
        Ok((groups, in_order(columns, &first_rows.take())?))
    }

    fn take_keys(&mut self) -> Result<Vec<ArrayRef>, Error> {
        self.groups.take().map_or(Ok(Vec::new()), GroupKeys::into_columns)
    }
}

impl Sealed {
    /// The results of the groups, which stay as they are.
    pub(super) fn results(&self, recipe: &Recipe) -> Result<Results, Error> {
        let mut columns = self.keys.clone();
        for (call, state) in recipe.calls.iter().zip(&self.states) {
            columns.push(results_of(call, state, self.groups)?);
        }
        Ok((self.groups, in_order(columns, &self.first_rows)?))
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let columns = self.keys.iter().chain(self.states.iter().flatten());
        columns.map(|column| column.get_array_memory_size()).sum::<usize>() + self.first_rows.len() * 8
    }
}

/// The rows of `columns` by ascending `first_rows`.
fn in_order(columns: Vec<ArrayRef>, first_rows: &[u64]) -> Result<Vec<ArrayRef>, Error> {
    if first_rows.is_sorted() {
        return Ok(columns);
    }
    let mut order: Vec<(u64, u32)> = first_rows.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let order = UInt32Array::from_iter_values(order.into_iter().map(|(_, group)| group));
    columns.iter().map(|column| take(column, &order, None).map_err(|error| arrow_failure(&error))).collect()
}

//! Groups and their accumulators: a key table of one slice or window, and its sealed form.

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::buffer::ScalarBuffer;
use arrow::compute::take;
use datafusion_expr::{EmitTo, GroupsAccumulator};

use super::key_filter;
use super::recipe::{Recipe, Rows};
use crate::error::Error;
use crate::operator::KeyFilter;
use crate::operator::evaluate::{arrow_failure, failure};
use crate::operator::group_keys::{GroupKeys, group_keys};

/// The groups of one slice or window. Used until its result or state is taken, then thrown away.
pub(super) struct Table {
    /// `None`: one group without a key.
    groups: Option<Box<dyn GroupKeys>>,
    accumulators: Vec<Box<dyn GroupsAccumulator>>,
    /// For each group when its first row arrived; `None` if groups are numbered in that order.
    first_rows: Option<Vec<u64>>,
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
        let accumulators =
            recipe.calls.iter().map(super::recipe::Call::accumulator).collect::<Result<_, _>>()?;
        Ok(Self { groups, accumulators, first_rows: ranked.then(Vec::new), rows: 0 })
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
        groups + self.accumulators.iter().map(|accumulator| accumulator.size()).sum::<usize>()
    }

    /// Adds rows. `ids` is scratch space.
    ///
    /// # Errors
    /// `R002` if an accumulator fails: a sum that does not fit its type.
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
        for ((accumulator, args), filter) in self.accumulators.iter_mut().zip(&rows.args).zip(&rows.filters) {
            accumulator.update_batch(args, ids, filter.as_ref(), groups).map_err(failure)?;
        }
        Ok(())
    }

    /// Adds sealed groups.
    ///
    /// # Errors
    /// `R002` if an accumulator fails: a sum that does not fit its type.
    pub(super) fn merge(&mut self, sealed: &Sealed, ids: &mut Vec<usize>) -> Result<(), Error> {
        if sealed.groups == 0 {
            return Ok(());
        }
        self.intern(&sealed.keys, sealed.groups, ids)?;
        let groups = self.len();
        if let Some(first_rows) = &mut self.first_rows {
            first_rows.resize(groups, u64::MAX);
            for (id, first_row) in ids.iter().zip(sealed.first_rows.iter()) {
                first_rows[*id] = first_rows[*id].min(*first_row);
            }
        }
        for (accumulator, state) in self.accumulators.iter_mut().zip(&sealed.states) {
            accumulator.merge_batch(state, ids, groups).map_err(failure)?;
        }
        Ok(())
    }

    /// Takes the groups and the states of their accumulators; the buffers are moved, not copied.
    pub(super) fn seal(mut self) -> Result<Sealed, Error> {
        let groups = self.len();
        let keys = self.take_keys()?;
        let states = self
            .accumulators
            .iter_mut()
            .map(|accumulator| accumulator.state(EmitTo::All).map_err(failure))
            .collect::<Result<_, _>>()?;
        let first_rows = self.first_rows.take().unwrap_or_default().into();
        Ok(Sealed { groups, keys, first_rows, states })
    }

    /// The same as [`Table::seal`] of a table that goes on, in pieces. What has to be copied are the accumulators, and
    /// when the groups were first seen.
    pub(super) fn share(&mut self, recipe: &Recipe) -> Result<Vec<Sealed>, Error> {
        let groups = self.len();
        let mut states = Vec::with_capacity(recipe.calls.len());
        for (call, accumulator) in recipe.calls.iter().zip(&mut self.accumulators) {
            // A state is given up when it is given.
            let state = accumulator.state(EmitTo::All).map_err(failure)?;
            *accumulator = call.accumulator_of(&state, groups)?;
            states.push(state);
        }
        let whole = Sealed {
            groups,
            keys: Vec::new(),
            first_rows: self.first_rows.clone().unwrap_or_default().into(),
            states,
        };
        let Some(keys) = &self.groups else { return Ok(vec![whole]) };
        let mut from = 0;
        let piece = |keys: Vec<ArrayRef>| {
            let groups = keys.first().map_or(0, |keys| keys.len());
            let piece = Sealed { keys, ..whole.slice(from, groups) };
            from += groups;
            piece
        };
        Ok(keys.pieces()?.into_iter().map(piece).collect())
    }

    /// Takes the results.
    ///
    /// # Errors
    /// `R002` if an accumulator fails: a result that does not fit its type.
    pub(super) fn results(mut self) -> Result<Results, Error> {
        let groups = self.len();
        let mut columns = self.take_keys()?;
        for accumulator in &mut self.accumulators {
            columns.push(accumulator.evaluate(EmitTo::All).map_err(failure)?);
        }
        let Some(first_rows) = &self.first_rows else { return Ok((groups, columns)) };
        Ok((groups, in_order(columns, first_rows)?))
    }

    fn take_keys(&mut self) -> Result<Vec<ArrayRef>, Error> {
        self.groups.take().map_or(Ok(Vec::new()), GroupKeys::into_columns)
    }
}

impl Sealed {
    /// Some of the groups.
    fn slice(&self, from: usize, groups: usize) -> Self {
        let slice = |column: &ArrayRef| column.slice(from, groups);
        Self {
            groups,
            keys: self.keys.iter().map(slice).collect(),
            first_rows: match self.first_rows.is_empty() {
                true => ScalarBuffer::default(),
                false => self.first_rows.slice(from, groups),
            },
            states: self.states.iter().map(|state| state.iter().map(slice).collect()).collect(),
        }
    }

    /// The results of the groups, which stay as they are.
    pub(super) fn results(&self, recipe: &Recipe) -> Result<Results, Error> {
        let mut columns = self.keys.clone();
        for (call, state) in recipe.calls.iter().zip(&self.states) {
            let mut accumulator = call.accumulator_of(state, self.groups)?;
            columns.push(accumulator.evaluate(EmitTo::All).map_err(failure)?);
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

//! Aggregates of different values: each is added when its first row comes and removed with the last.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;

use super::kept::{count_column, counts, keep, kept};
use super::{Reversible, Step};
use crate::error::Error;
use crate::operator::state::misfit;
use crate::operator::value_sets::ValueSets;
use crate::operator::{StateReader, StateWriter};

/// The values of one column that some aggregates count once, each those of the rows that its FILTER keeps.
pub(super) struct DistinctValues {
    /// Of one aggregate how often each value is there; of several one more than the number of its counts.
    values: ValueSets<u64>,
    /// How many aggregates there are.
    members: usize,
    /// Of several: for each value how often it is there, an entry an aggregate.
    counts: Vec<u64>,
    free: Vec<u64>,
}

impl DistinctValues {
    /// Of no aggregate yet.
    pub(super) fn try_new(arg: &DataType) -> Result<Self, Error> {
        Ok(Self { values: ValueSets::try_new(arg)?, members: 0, counts: Vec::new(), free: Vec::new() })
    }

    /// One more aggregate, before any row; its place among them.
    pub(super) fn join(&mut self) -> usize {
        self.members += 1;
        self.members - 1
    }

    pub(super) fn grow(&mut self, groups: usize) {
        self.values.grow(groups);
    }

    /// The steps of each aggregate: rows that bring the first of a value, or take the last. `kept`: for each the
    /// rows that its FILTER keeps, if it has one.
    pub(super) fn pass(
        &mut self,
        steps: &[Step],
        arg: &ArrayRef,
        kept: &[Option<&BooleanArray>],
    ) -> Result<Vec<Vec<Step>>, Error> {
        let values = self.values.values(arg)?;
        let mut passed: Vec<Vec<Step>> = kept.iter().map(|_| Vec::with_capacity(steps.len())).collect();
        let keeps = |member: usize, row: u32| kept[member].is_none_or(|kept| kept.value(row as usize));
        let is_read = |row: u32| (0..kept.len()).any(|member| keeps(member, row));
        let (members, counts, free) = (self.members, &mut self.counts, &mut self.free);
        for step in steps {
            match *step {
                Step::Add { row, .. } | Step::Remove { row, .. } if !is_read(row) => {}
                Step::Add { group, row } => {
                    let Some(known) = self.values.add(group, &values, row as usize) else { continue };
                    let own = counts_of(known, members, counts, free);
                    for (member, count) in
                        own.iter_mut().enumerate().filter(|(member, _)| keeps(*member, row))
                    {
                        *count += 1;
                        if *count == 1 {
                            passed[member].push(*step);
                        }
                    }
                }
                Step::Remove { group, row } => {
                    let mut is_known = true;
                    let gone = self.values.remove(group, &values, row as usize, |known| {
                        let own = counts_of(known, members, counts, free);
                        for (member, count) in
                            own.iter_mut().enumerate().filter(|(member, _)| keeps(*member, row))
                        {
                            is_known &= *count > 0;
                            *count = count.saturating_sub(1);
                            if *count == 0 {
                                passed[member].push(*step);
                            }
                        }
                        let goes = own.iter().all(|count| *count == 0);
                        if goes && members > 1 {
                            free.push(*known);
                        }
                        goes
                    });
                    gone?;
                    if !is_known {
                        return Err(Error::internal("aggregate", "a row goes that never came"));
                    }
                }
                Step::Clear { group } => {
                    self.values.clear(group, |known| {
                        if members > 1 {
                            let mut known = known;
                            counts_of(&mut known, members, counts, free).fill(0);
                            free.push(known);
                        }
                    });
                    passed.iter_mut().for_each(|passed| passed.push(*step));
                }
                Step::Give { .. } => passed.iter_mut().for_each(|passed| passed.push(*step)),
            }
        }
        Ok(passed)
    }

    /// Hands on the values of groups, as [`Reversible::snapshot`] does states.
    pub(super) fn snapshot(&self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let (places, values, known) = self.values.columns(groups)?;
        let mut columns = vec![values];
        let count = |known: &u64, member: usize| match self.members {
            1 => *known,
            members => self.counts[(*known as usize - 1) * members + member],
        };
        for member in 0..self.members {
            columns.push(count_column(known.iter().map(|known| count(known, member)).collect()));
        }
        keep(state, "values", places, columns)
    }

    /// Takes up values that [`DistinctValues::snapshot`] handed on.
    pub(super) fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "values", groups)?;
        let (values, columns) = columns.split_first().ok_or_else(|| misfit("no values"))?;
        let all = (0..self.members).map(|member| counts(columns, member)).collect::<Result<Vec<_>, _>>()?;
        let values = self.values.values(values)?;
        for (row, group) in groups.into_iter().enumerate() {
            let Some(known) = self.values.add(group, &values, row) else { continue };
            let own = counts_of(known, self.members, &mut self.counts, &mut self.free);
            own.iter_mut().zip(&all).for_each(|(own, all)| *own = all[row]);
        }
        Ok(())
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.values.size() + (self.counts.capacity() + self.free.capacity()) * size_of::<u64>()
    }
}

/// The counts of a value, an entry an aggregate; new ones if it has none.
fn counts_of<'a>(
    known: &'a mut u64,
    members: usize,
    counts: &'a mut Vec<u64>,
    free: &mut Vec<u64>,
) -> &'a mut [u64] {
    if members == 1 {
        return std::slice::from_mut(known);
    }
    if *known == 0 {
        *known = free.pop().unwrap_or_else(|| {
            counts.resize(counts.len() + members, 0);
            (counts.len() / members) as u64
        });
    }
    let from = (*known as usize - 1) * members;
    &mut counts[from..from + members]
}

/// Another aggregate of one argument, which counts no NULL, over different values.
pub(super) struct Distinct {
    inner: Box<dyn Reversible>,
    values: DistinctValues,
}

impl Distinct {
    pub(super) fn try_new(inner: Box<dyn Reversible>, arg: &DataType) -> Result<Self, Error> {
        let mut values = DistinctValues::try_new(arg)?;
        values.join();
        Ok(Self { inner, values })
    }
}

impl Reversible for Distinct {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.values.grow(groups);
        self.inner.grow(groups)
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let arg = args.first().ok_or_else(|| Error::internal("aggregate", "an argument lacks"))?;
        let passed = self.values.pass(steps, arg, &[None])?;
        self.inner.run(passed.first().map_or(&[], Vec::as_slice), args)
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        state.scoped("distinct", |state| self.values.snapshot(groups, state))?;
        self.inner.snapshot(groups, state)
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        state.scoped("distinct", |state| self.values.restore(groups, state))?;
        self.inner.restore(groups, state)
    }

    fn size(&self) -> usize {
        self.inner.size() + self.values.size()
    }
}

//! SUM and AVG of integers: sums of 128 bits, which as many rows as there are numbers can't overflow.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Decimal128Array, Int64Array, PrimitiveArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Decimal128Type, Int64Type, UInt64Type};

use super::super::recipe::Call;
use super::seen::Seen;
use super::{Column, GroupStates, Shared, misfit, taken};
use crate::error::Error;
use crate::operator::evaluate::failure;
use crate::plan::{Finish, finished_sums};

/// The sum of each group.
#[derive(Debug)]
pub(super) struct Sums {
    finish: Finish,
    sums: Column<i128>,
    /// Of AVG: the rows of each group.
    counts: Option<Column<i64>>,
    seen: Seen,
}

impl Sums {
    /// Of integers.
    pub(super) fn new(finish: Finish) -> Self {
        let counts = finish.is_avg().then(Column::default);
        Self { finish, sums: Column::default(), counts, seen: Seen::default() }
    }

    fn grow(&mut self, groups: usize) {
        self.sums.grow(groups, 0);
        if let Some(counts) = &mut self.counts {
            counts.grow(groups, 0);
        }
    }

    fn add_integers<T: ArrowPrimitiveType>(
        &mut self,
        values: &ArrayRef,
        ids: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) where
        T::Native: Into<i128>,
    {
        let (taken, before) = (taken(values, filter), self.sums.len());
        let values = values.as_primitive::<T>().values();
        self.grow(groups);
        self.seen.note(ids, taken.as_ref(), before, groups);
        self.sums.update(ids, values, taken.as_ref(), |sum, value| *sum += value.into());
        if let Some(counts) = &mut self.counts {
            counts.visit(ids, taken.as_ref(), |count| *count += 1);
        }
    }
}

impl GroupStates for Sums {
    fn update(
        &mut self,
        args: &[ArrayRef],
        ids: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<(), Error> {
        let values = args.first().ok_or_else(misfit)?;
        match values.data_type() {
            DataType::Int64 => self.add_integers::<Int64Type>(values, ids, filter, groups),
            DataType::UInt64 => self.add_integers::<UInt64Type>(values, ids, filter, groups),
            _ => return Err(misfit()),
        }
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], ids: &[usize], groups: usize) -> Result<(), Error> {
        let state = states.first().ok_or_else(misfit)?;
        let sums = state.as_primitive_opt::<Decimal128Type>().ok_or_else(misfit)?.values();
        let (taken, before) = (taken(state, None), self.sums.len());
        self.grow(groups);
        self.seen.note(ids, taken.as_ref(), before, groups);
        self.sums.update(ids, sums, taken.as_ref(), |sum, more| *sum += more);
        let Some(counts) = &mut self.counts else { return Ok(()) };
        let more = states.get(1).and_then(|state| state.as_primitive_opt::<Int64Type>());
        let more = more.ok_or_else(misfit)?.values();
        counts.update(ids, more, taken.as_ref(), |count, more| *count += more);
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<ArrayRef>, Error> {
        let counts = self.counts.as_mut().map(Column::take);
        Ok(columns(self.sums.take(), counts, self.seen.take()))
    }

    fn share(&mut self, _: &Call, _: usize) -> Result<Shared, Error> {
        let sums = self.sums.share();
        let counts: Vec<Option<_>> = match &mut self.counts {
            Some(counts) => counts.share().into_iter().map(Some).collect(),
            None => vec![None; sums.len()],
        };
        let seen = self.seen.share(sums.len());
        let chunks = sums.into_iter().zip(counts).zip(seen);
        Ok(Shared::Chunks(chunks.map(|((sums, counts), seen)| columns(sums, counts, seen)).collect()))
    }

    fn results(&mut self) -> Result<ArrayRef, Error> {
        let counts = self.counts.as_mut().map(Column::take).unwrap_or_default();
        finished_sums(self.finish, &self.sums.take(), &[], &counts, self.seen.take()).map_err(failure)
    }

    fn size(&self) -> usize {
        self.sums.size() + self.counts.as_ref().map_or(0, Column::size) + self.seen.size()
    }
}

/// The results of states.
pub(super) fn results_of(finish: Finish, state: &[ArrayRef]) -> Result<ArrayRef, Error> {
    let sums = state.first().and_then(|state| state.as_primitive_opt::<Decimal128Type>());
    let sums = sums.ok_or_else(misfit)?;
    let counts = state.get(1).and_then(|state| state.as_primitive_opt::<Int64Type>());
    let counts: &[i64] = counts.map_or(&[], |counts| counts.values());
    finished_sums(finish, sums.values(), &[], counts, sums.nulls().cloned()).map_err(failure)
}

/// The columns of a state, as those of our SUM and AVG in DataFusion.
fn columns(
    sums: ScalarBuffer<i128>,
    counts: Option<ScalarBuffer<i64>>,
    seen: Option<NullBuffer>,
) -> Vec<ArrayRef> {
    let sums: Decimal128Array =
        PrimitiveArray::new(sums, seen.clone()).with_data_type(DataType::Decimal128(38, 0));
    let counts = counts.map(|counts| Arc::new(Int64Array::new(counts, seen)) as ArrayRef);
    std::iter::once(Arc::new(sums) as ArrayRef).chain(counts).collect()
}

//! COUNT.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use arrow::datatypes::Int64Type;

use super::super::recipe::Call;
use super::{Column, GroupStates, Shared, misfit, taken};
use crate::error::Error;

/// How many rows each group has had.
#[derive(Debug, Default)]
pub(super) struct Counts(Column<i64>);

impl GroupStates for Counts {
    fn update(
        &mut self,
        args: &[ArrayRef],
        ids: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<(), Error> {
        self.0.grow(groups, 0);
        let taken = taken(args.first().ok_or_else(misfit)?, filter);
        self.0.visit(ids, taken.as_ref(), |count| *count += 1);
        Ok(())
    }

    fn merge(&mut self, states: &[ArrayRef], ids: &[usize], groups: usize) -> Result<(), Error> {
        let counts = states.first().and_then(|state| state.as_primitive_opt::<Int64Type>());
        let counts = counts.filter(|counts| counts.null_count() == 0).ok_or_else(misfit)?;
        self.0.grow(groups, 0);
        self.0.update(ids, counts.values(), None, |count, more| *count += more);
        Ok(())
    }

    fn take(&mut self) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.results()?])
    }

    fn share(&mut self, _: &Call, _: usize) -> Result<Shared, Error> {
        let array = |counts| vec![Arc::new(Int64Array::new(counts, None)) as ArrayRef];
        Ok(Shared::Chunks(self.0.share().into_iter().map(array).collect()))
    }

    fn results(&mut self) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Int64Array::new(self.0.take(), None)))
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

//! Aggregates whose states are those of DataFusion's accumulators.

use arrow::array::{ArrayRef, BooleanArray};
use datafusion_expr::{EmitTo, GroupsAccumulator};

use super::super::recipe::Call;
use super::{GroupStates, Shared};
use crate::error::Error;
use crate::operator::evaluate::failure;

/// An accumulator for all groups.
pub(super) struct Other(Box<dyn GroupsAccumulator>);

impl Other {
    pub(super) fn try_new(call: &Call) -> Result<Self, Error> {
        Ok(Self(call.accumulator()?))
    }
}

impl GroupStates for Other {
    fn update(
        &mut self,
        args: &[ArrayRef],
        ids: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<(), Error> {
        self.0.update_batch(args, ids, filter, groups).map_err(failure)
    }

    fn merge(&mut self, states: &[ArrayRef], ids: &[usize], groups: usize) -> Result<(), Error> {
        self.0.merge_batch(states, ids, groups).map_err(failure)
    }

    fn take(&mut self) -> Result<Vec<ArrayRef>, Error> {
        self.0.state(EmitTo::All).map_err(failure)
    }

    fn share(&mut self, call: &Call, groups: usize) -> Result<Shared, Error> {
        // A state is given up when it is given.
        let state = self.take()?;
        self.0 = call.accumulator_of(&state, groups)?;
        Ok(Shared::Whole(state))
    }

    fn results(&mut self) -> Result<ArrayRef, Error> {
        self.0.evaluate(EmitTo::All).map_err(failure)
    }

    fn size(&self) -> usize {
        self.0.size()
    }
}

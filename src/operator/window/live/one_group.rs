//! The accumulator of many groups for one group.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::{Accumulator, EmitTo, GroupsAccumulator};
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

/// Whether the function's accumulator for one group answers otherwise than the one for many, which
/// windows without changes use: `corr` of values that overflow, and in the last digits.
pub(super) fn is_two_minded(function: &AggregateFunctionExpr) -> bool {
    function.fun().name() == "corr" && function.groups_accumulator_supported()
}

/// Answers as windows without changes do. Its state is sums, which are the same after they were
/// taken out and put back.
#[derive(Debug)]
pub(super) struct OneGroup {
    function: Arc<AggregateFunctionExpr>,
    state: Vec<ArrayRef>,
}

impl OneGroup {
    pub(super) fn try_new(function: &Arc<AggregateFunctionExpr>) -> Result<Self> {
        let state = function.create_groups_accumulator()?.state(EmitTo::All)?;
        Ok(Self { function: Arc::clone(function), state })
    }

    fn accumulator(&self) -> Result<Box<dyn GroupsAccumulator>> {
        let mut accumulator = self.function.create_groups_accumulator()?;
        let groups = self.state.first().map_or(0, |column| column.len());
        accumulator.merge_batch(&self.state, &vec![0; groups], 1)?;
        Ok(accumulator)
    }
}

impl Accumulator for OneGroup {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let rows = values.first().map_or(0, |column| column.len());
        let mut accumulator = self.accumulator()?;
        accumulator.update_batch(values, &vec![0; rows], None, 1)?;
        self.state = accumulator.state(EmitTo::All)?;
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        ScalarValue::try_from_array(&self.accumulator()?.evaluate(EmitTo::All)?, 0)
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.state.iter().map(|column| column.get_array_memory_size()).sum::<usize>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let mut accumulator = self.accumulator()?;
        accumulator.state(EmitTo::All)?.iter().map(|column| ScalarValue::try_from_array(column, 0)).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |column| column.len());
        let mut accumulator = self.accumulator()?;
        accumulator.merge_batch(states, &vec![0; rows], 1)?;
        self.state = accumulator.state(EmitTo::All)?;
        Ok(())
    }
}

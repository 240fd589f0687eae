//! Any aggregate: an accumulator for each group.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::super::steady::{Steady, is_unsteady};
use super::accumulator::{Accumulators, Input, Use};
use super::kept::next;
use super::one_group::{OneGroup, is_two_minded};
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, failure};

/// An accumulator and its present value for each group.
///
/// A value is read by `evaluate`, which must not consume the state: OVER windows that only grow rely
/// on that, too.
pub(super) struct AnyStates {
    function: Arc<AggregateFunctionExpr>,
    arg_types: Arc<[DataType]>,
    groups: Vec<Group>,
}

struct Group {
    accumulator: Box<dyn Accumulator>,
    /// `None`: rows have come since it was read.
    value: Option<ScalarValue>,
}

impl Group {
    fn value(&mut self) -> Result<ScalarValue, Error> {
        if let Some(value) = &self.value {
            return Ok(value.clone());
        }
        let value = self.accumulator.evaluate().map_err(failure)?;
        self.value = Some(value.clone());
        Ok(value)
    }

    fn update(&mut self, rows: &[ArrayRef]) -> Result<(), Error> {
        self.value = None;
        self.accumulator.update_batch(rows).map_err(failure)
    }
}

impl AnyStates {
    pub(super) fn new(function: Arc<AggregateFunctionExpr>, arg_types: Arc<[DataType]>) -> Self {
        Self { function, arg_types, groups: Vec::new() }
    }

    fn group(&self) -> Result<Group, Error> {
        let accumulator: Box<dyn Accumulator> = match is_two_minded(&self.function) {
            true => Box::new(OneGroup::try_new(&self.function).map_err(failure)?),
            false if is_unsteady(self.function.fun()) => {
                Box::new(Steady::new(&self.function, &self.arg_types))
            }
            false => self.function.create_accumulator().map_err(failure)?,
        };
        Ok(Group { accumulator, value: None })
    }

    fn array(&self, values: Vec<ScalarValue>) -> Result<ArrayRef, Error> {
        if values.is_empty() {
            return Ok(arrow::array::new_empty_array(self.function.field().data_type()));
        }
        ScalarValue::iter_to_array(values).map_err(failure)
    }
}

impl Accumulators for AnyStates {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        while self.groups.len() < groups {
            let group = self.group()?;
            self.groups.push(group);
        }
        Ok(())
    }

    fn update(&mut self, uses: &[Use], input: Input<'_>) -> Result<(), Error> {
        let uses = uses.iter().enumerate().filter(|(place, one)| input.keeps(*place, one.row));
        let mut uses: Vec<Use> = uses.map(|(_, one)| *one).collect();
        // Each group gets its rows at once; they stay in their order.
        uses.sort_by_key(|one| one.group);
        let rows = UInt32Array::from_iter_values(uses.iter().map(|one| one.row));
        let args = input
            .args
            .iter()
            .map(|arg| take(arg, &rows, None).map_err(|error| arrow_failure(&error)))
            .collect::<Result<Vec<_>, _>>()?;
        let mut from = 0;
        for run in uses.chunk_by(|one, other| one.group == other.group) {
            let own: Vec<ArrayRef> = args.iter().map(|arg| arg.slice(from, run.len())).collect();
            self.groups[run[0].group as usize].update(&own)?;
            from += run.len();
        }
        Ok(())
    }

    fn update_each(&mut self, uses: &[Use], input: Input<'_>) -> Result<(ArrayRef, ArrayRef), Error> {
        let (mut before, mut after) = (Vec::with_capacity(uses.len()), Vec::with_capacity(uses.len()));
        for (place, one) in uses.iter().enumerate() {
            let group = &mut self.groups[one.group as usize];
            before.push(group.value()?);
            if input.keeps(place, one.row) {
                let row: Vec<ArrayRef> =
                    input.args.iter().map(|arg| arg.slice(one.row as usize, 1)).collect();
                group.update(&row)?;
            }
            after.push(group.value()?);
        }
        Ok((self.array(before)?, self.array(after)?))
    }

    fn joins(&self) -> bool {
        false
    }

    fn join(&mut self, _into: u32, _from: u32) {}

    fn clear(&mut self, group: u32) -> Result<(), Error> {
        self.groups[group as usize] = self.group()?;
        Ok(())
    }

    fn values(&mut self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let values = groups.iter().map(|group| self.groups[*group as usize].value());
        let values = values.collect::<Result<_, _>>()?;
        self.array(values)
    }

    fn write(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        let mut columns: Vec<Vec<ScalarValue>> = Vec::new();
        for group in groups {
            let mut fresh = self.group()?.accumulator;
            let known = &mut self.groups[*group as usize].accumulator;
            // A state is given up when it is given.
            let state = known.state().map_err(failure)?;
            let arrays = state.iter().map(ScalarValue::to_array).collect::<Result<Vec<_>, _>>();
            fresh.merge_batch(&arrays.map_err(failure)?).map_err(failure)?;
            *known = fresh;
            columns.resize_with(state.len(), Vec::new);
            columns.iter_mut().zip(state).for_each(|(column, value)| column.push(value));
        }
        columns.into_iter().map(|column| ScalarValue::iter_to_array(column).map_err(failure)).collect()
    }

    fn read(
        &mut self,
        columns: &mut std::slice::Iter<'_, ArrayRef>,
        rows: &[u32],
        groups: &[u32],
    ) -> Result<(), Error> {
        let width = self.group()?.accumulator.state().map_err(failure)?.len();
        let columns = (0..width).map(|_| next(columns)).collect::<Result<Vec<_>, _>>()?;
        for (row, group) in rows.iter().zip(groups) {
            let state: Vec<ArrayRef> = columns.iter().map(|column| column.slice(*row as usize, 1)).collect();
            self.groups[*group as usize].accumulator.merge_batch(&state).map_err(failure)?;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let group =
            |group: &Group| group.accumulator.size() + group.value.as_ref().map_or(0, ScalarValue::size);
        self.groups.iter().map(group).sum()
    }
}

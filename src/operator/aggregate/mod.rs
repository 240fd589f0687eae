//! Aggregates from which rows can be taken away again: for frames that move and for changelogs.
//!
//! What is to be done comes as a list of [`Step`]s over the rows of a batch, so that an aggregate is
//! called once for many rows. Rows that are taken away are rows that were added.
//!
//! Invariant: after any steps a group's value is that of the rows that are left, as if the others had
//! never been there; only sums of floats may differ in their last digits.

mod any;
mod distinct;
mod ends;
mod extreme;
mod sums;

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion_common::ScalarValue;

use self::any::AnyStates;
use self::distinct::Distinct;
use self::ends::Ends;
pub(super) use self::ends::Place;
use self::extreme::Extremes;
use super::evaluate::{evaluate, evaluate_condition, failure, one_nan_and_zero};
use crate::error::Error;
use crate::plan::{AggregateCall, ExprRef};

/// What is to be done with a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A row comes.
    Add { group: u32, row: u32 },
    /// A row goes.
    Remove { group: u32, row: u32 },
    /// The group's value is asked for.
    Give { group: u32 },
    /// The group is empty again.
    Clear { group: u32 },
}

/// The states of one aggregate, by the number of the group.
pub(super) trait Reversible: Send {
    /// Makes room for so many groups.
    fn grow(&mut self, groups: usize) -> Result<(), Error>;

    /// Does the steps in their order; gives a value for each [`Step::Give`].
    ///
    /// # Errors
    /// `R002` if the aggregate fails on a row, or a value does not fit its type.
    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error>;

    /// Memory in bytes, estimated.
    fn size(&self) -> usize;
}

/// An aggregate call with its states.
pub(super) struct Aggregate {
    args: Vec<ExprRef>,
    filter: Option<ExprRef>,
    states: Box<dyn Reversible>,
}

impl Aggregate {
    /// `removes`: whether rows may be taken away.
    pub(super) fn try_new(call: &AggregateCall, input: &SchemaRef, removes: bool) -> Result<Self, Error> {
        let function = &call.function;
        let all = function.all_expressions();
        let args: Vec<ExprRef> = all.args.into_iter().chain(all.order_by_exprs).collect();
        let types = args.iter().map(|arg| arg.data_type(input));
        let types: Vec<DataType> =
            types.collect::<Result<_, _>>().map_err(|error| Error::internal("aggregate", error))?;
        let is_distinct = function.is_distinct();
        let name = function.fun().name();
        let of_common_type = || -> Option<Box<dyn Reversible>> {
            let [arg] = types.as_slice() else { return None };
            match name {
                "count" => Some(sums::count()),
                "sum" => sums::sum(false, arg),
                "avg" => sums::sum(true, arg),
                "min" => Extremes::of(false, arg, removes),
                "max" => Extremes::of(true, arg, removes),
                _ => None,
            }
        };
        let states = match (of_common_type(), is_distinct) {
            (Some(states), false) => states,
            // The least of different values is the least of all.
            (Some(states), true) if matches!(name, "min" | "max") => states,
            (Some(states), true) => Box::new(Distinct::try_new(states, &types[0])?),
            (None, _) => Box::new(AnyStates::new(Arc::clone(function), removes)),
        };
        Ok(Self { args, filter: call.filter.clone(), states })
    }

    /// The first, n-th or last value of frames.
    pub(super) fn value_of_frame(
        value: &ExprRef,
        input: &SchemaRef,
        place: Place,
        ignores_nulls: bool,
        removes: bool,
    ) -> Result<Self, Error> {
        let data_type = value.data_type(input).map_err(|error| Error::internal("aggregate", error))?;
        let states = Box::new(Ends { place, ignores_nulls, removes, data_type, groups: Vec::new() });
        Ok(Self { args: vec![Arc::clone(value)], filter: None, states })
    }

    /// Does the steps over the rows of a batch. Rows that its FILTER removes are not added.
    pub(super) fn run(
        &mut self,
        steps: &[Step],
        rows: &RecordBatch,
        groups: usize,
    ) -> Result<ArrayRef, Error> {
        let args = self.args.iter().map(|arg| evaluate(arg, rows).map(one_nan_and_zero_if_float));
        let args = args.collect::<Result<Vec<_>, _>>()?;
        self.states.grow(groups)?;
        let Some(filter) = &self.filter else { return self.states.run(steps, &args) };
        let kept: BooleanArray = evaluate_condition(filter, rows)?;
        let steps: Vec<Step> = steps
            .iter()
            .filter(|step| match step {
                Step::Add { row, .. } | Step::Remove { row, .. } => kept.value(*row as usize),
                Step::Give { .. } | Step::Clear { .. } => true,
            })
            .copied()
            .collect();
        self.states.run(&steps, &args)
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.states.size()
    }
}

fn one_nan_and_zero_if_float(values: ArrayRef) -> ArrayRef {
    if values.data_type().is_floating() { one_nan_and_zero(values) } else { values }
}

fn scalar(values: &ArrayRef, row: u32) -> Result<ScalarValue, Error> {
    ScalarValue::try_from_array(values, row as usize).map_err(failure)
}

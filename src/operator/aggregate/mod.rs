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
mod kept;
mod replayed;
mod sums;
#[cfg(test)]
mod tests;
mod texts;
mod together;

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
pub(super) use self::kept::{GROUPS, count_column, counts, keep, kept};
use self::replayed::{Replayed, needs_rows};
use self::texts::Texts;
pub(super) use self::together::Aggregates;
use super::evaluate::{evaluate, evaluate_condition, failure, one_nan_and_zero};
use super::{StateReader, StateWriter};
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

    /// Hands on the states of these groups, which are the rows of the table [`GROUPS`] in their order.
    ///
    /// # Errors
    /// `P002` if they can't be written.
    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error>;

    /// Takes up what [`Reversible::snapshot`] handed on. `groups`: the numbers of the rows of [`GROUPS`], of which
    /// nothing is known yet.
    ///
    /// # Errors
    /// `K002` for states of another aggregate.
    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error>;

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
        let (args, types) = reads(call, input)?;
        let states = states(call, &types, removes);
        let states = match needs_firsts(call, &states) {
            true => Box::new(Distinct::try_new(states.0, &types[0])?),
            false => states.0,
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
        let steps = together::filtered(steps, &kept);
        self.states.run(&steps, &args)
    }

    /// See [`Reversible::snapshot`].
    pub(super) fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        self.states.grow(bound(groups))?;
        self.states.snapshot(groups, state)
    }

    /// See [`Reversible::restore`].
    pub(super) fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        self.states.grow(bound(groups))?;
        self.states.restore(groups, state)
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.states.size()
    }
}

/// The numbers of groups are below this.
fn bound(groups: &[u32]) -> usize {
    groups.iter().max().map_or(0, |most| *most as usize + 1)
}

/// What an aggregate reads of a row: its arguments and, where it has them, the keys of its ORDER BY, with their
/// types.
fn reads(call: &AggregateCall, input: &SchemaRef) -> Result<(Vec<ExprRef>, Vec<DataType>), Error> {
    let all = call.function.all_expressions();
    let args: Vec<ExprRef> = all.args.into_iter().chain(all.order_by_exprs).collect();
    let types = args.iter().map(|arg| arg.data_type(input));
    let types = types.collect::<Result<_, _>>().map_err(|error| Error::internal("aggregate", error))?;
    Ok((args, types))
}

/// The states of an aggregate of arguments of these types, and whether they are those of a common function, which
/// counts no NULL. `removes`: whether rows may be taken away.
fn states(call: &AggregateCall, types: &[DataType], removes: bool) -> (Box<dyn Reversible>, bool) {
    let function = &call.function;
    let is_text = |arg: &DataType| *arg == DataType::Utf8 && function.field().data_type() == arg;
    let of_common_type = || -> Option<Box<dyn Reversible>> {
        let [arg] = types else { return None };
        match function.fun().name() {
            "count" => Some(sums::count()),
            "sum" => sums::sum(false, arg),
            "avg" => sums::sum(true, arg),
            name @ ("min" | "max") if removes && is_text(arg) => Some(Box::new(Texts::new(name == "max"))),
            "min" => Extremes::of(false, arg, removes),
            "max" => Extremes::of(true, arg, removes),
            _ => None,
        }
    };
    if let Some(states) = of_common_type() {
        return (states, true);
    }
    let states: Box<dyn Reversible> = match !removes && needs_rows(function.fun()) {
        true => Box::new(Replayed::new(Arc::clone(function), types)),
        false => Box::new(AnyStates::new(Arc::clone(function), types, removes)),
    };
    (states, false)
}

/// Whether an aggregate with such states is to be given the first row and the last of each value.
fn needs_firsts(call: &AggregateCall, (_, is_common): &(Box<dyn Reversible>, bool)) -> bool {
    // The least of different values is the least of all.
    *is_common && call.function.is_distinct() && !matches!(call.function.fun().name(), "min" | "max")
}

fn one_nan_and_zero_if_float(values: ArrayRef) -> ArrayRef {
    if values.data_type().is_floating() { one_nan_and_zero(values) } else { values }
}

fn scalar(values: &ArrayRef, row: u32) -> Result<ScalarValue, Error> {
    ScalarValue::try_from_array(values, row as usize).map_err(failure)
}

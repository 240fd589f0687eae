//! The states of one aggregate for all groups of a window, which can be read at any time.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef};

use super::super::recipe::Call;
use super::any::AnyStates;
use super::texts::Texts;
use super::typed::{self, States};
use crate::error::Error;

/// A row that a group counts.
#[derive(Debug, Clone, Copy)]
pub(in crate::operator::window) struct Use {
    pub(in crate::operator::window) group: u32,
    /// Of the evaluated columns.
    pub(in crate::operator::window) row: u32,
}

/// What an aggregate reads of rows.
#[derive(Debug, Clone, Copy)]
pub(in crate::operator::window) struct Input<'a> {
    pub(in crate::operator::window) args: &'a [ArrayRef],
    pub(in crate::operator::window) filter: Option<&'a BooleanArray>,
    /// Of different values: for each use of a row bits of aggregates that it is to be counted by, and which one
    /// is this aggregate's.
    pub(in crate::operator::window) firsts: Option<(&'a [u64], u32)>,
}

impl Input<'_> {
    /// Whether the aggregate counts a row: its FILTER keeps it and, of different values, it is the first one of
    /// its group with that value. `place`: of the use of the row.
    #[inline]
    pub(in crate::operator::window) fn keeps(&self, place: usize, row: u32) -> bool {
        match (self.firsts, self.filter) {
            (Some((firsts, bit)), _) => firsts[place] >> bit & 1 == 1,
            (None, Some(filter)) => filter.is_valid(row as usize) && filter.value(row as usize),
            (None, None) => true,
        }
    }
}

/// The states of one aggregate, by the number of the group. A value is read without a change.
pub(in crate::operator::window) trait Accumulators: Send {
    /// Makes room for so many groups.
    fn grow(&mut self, groups: usize) -> Result<(), Error>;

    /// Adds rows, in their order.
    ///
    /// # Errors
    /// `R002` if the aggregate fails on a row.
    fn update(&mut self, uses: &[Use], input: Input<'_>) -> Result<(), Error>;

    /// Adds rows, in their order; gives the value of each row's group before and after it.
    ///
    /// # Errors
    /// `R002` if the aggregate fails on a row, or a value does not fit its type.
    fn update_each(&mut self, uses: &[Use], input: Input<'_>) -> Result<(ArrayRef, ArrayRef), Error>;

    /// Whether the states of two groups make the one of all their rows, exactly and in any order.
    fn joins(&self) -> bool;

    /// Adds what `from` has to `into`, where states [join](Accumulators::joins).
    fn join(&mut self, into: u32, from: u32);

    /// Makes a group what it was without rows.
    ///
    /// # Errors
    /// `R002` if the aggregate has no such state.
    fn clear(&mut self, group: u32) -> Result<(), Error>;

    /// The values of some groups.
    ///
    /// # Errors
    /// `R002` if a value does not fit its type.
    fn values(&mut self, groups: &[u32]) -> Result<ArrayRef, Error>;

    /// The states of some groups as columns.
    ///
    /// # Errors
    /// `R002` if an accumulator does not give its state.
    fn write(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error>;

    /// Takes its columns off `columns`, and the states in these rows of them up, each into the group beside it, of
    /// which nothing is known yet.
    ///
    /// # Errors
    /// `K002` for the columns of another aggregate.
    fn read(
        &mut self,
        columns: &mut std::slice::Iter<'_, ArrayRef>,
        rows: &[u32],
        groups: &[u32],
    ) -> Result<(), Error>;

    /// Memory in bytes, estimated.
    fn size(&self) -> usize;
}

/// Whether an aggregate of one argument is one of rows with values that its group has not had before.
pub(super) fn is_of_firsts(call: &Call, arg: &DataType) -> bool {
    call.function.is_distinct() && call.function.fun().name() == "count" && !arg.is_nested()
}

/// No group yet. Count, sum, avg, min and max of common types have states of a fixed size; the others
/// have an accumulator for each group. Those [of firsts](is_of_firsts) must be told which rows these are.
pub(super) fn accumulators(call: &Call, input: &SchemaRef) -> Result<Box<dyn Accumulators>, Error> {
    let name = call.function.fun().name();
    let types = call.arg_types(input)?;
    if let [arg] = types.as_slice()
        // The least of different values is the least of all.
        && (!call.function.is_distinct() || is_of_firsts(call, arg) || matches!(name, "min" | "max"))
        && let Some(states) = of_common_type(call, arg)
    {
        return Ok(states);
    }
    Ok(Box::new(AnyStates::new(call.function.clone(), types.into())))
}

fn of_common_type(call: &Call, arg: &DataType) -> Option<Box<dyn Accumulators>> {
    match call.function.fun().name() {
        "count" => Some(Box::new(States::new(typed::Count))),
        "sum" => typed::sum(false, arg),
        "avg" => typed::sum(true, arg),
        name @ ("min" | "max") if *arg == DataType::Utf8 && *call.function.field().data_type() == *arg => {
            Some(Box::new(Texts::new(name == "max")))
        }
        "min" => typed::extreme(false, arg),
        "max" => typed::extreme(true, arg),
        _ => None,
    }
}

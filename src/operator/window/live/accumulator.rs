//! The states of one aggregate for all groups of a window, which can be read at any time.

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::datatypes::{DataType, SchemaRef};

use super::super::recipe::Call;
use super::any::AnyStates;
use super::typed::{self, States};
use crate::error::Error;

/// A row that a group counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Use {
    pub(super) group: u32,
    /// Of the evaluated columns.
    pub(super) row: u32,
}

/// What an aggregate reads of rows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) args: &'a [ArrayRef],
    pub(super) filter: Option<&'a BooleanArray>,
}

impl Input<'_> {
    /// Whether the aggregate's FILTER keeps a row.
    pub(super) fn keeps(&self, row: u32) -> bool {
        self.filter.is_none_or(|filter| filter.is_valid(row as usize) && filter.value(row as usize))
    }
}

/// The states of one aggregate, by the number of the group. A value is read without a change.
pub(super) trait Accumulators: Send {
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

    /// The values of some groups.
    ///
    /// # Errors
    /// `R002` if a value does not fit its type.
    fn values(&mut self, groups: &[u32]) -> Result<ArrayRef, Error>;

    /// Memory in bytes, estimated.
    fn size(&self) -> usize;
}

/// No group yet. Count, sum, avg, min and max of common types have states of a fixed size; the others
/// have an accumulator for each group.
pub(super) fn accumulators(call: &Call, input: &SchemaRef) -> Result<Box<dyn Accumulators>, Error> {
    if let [arg] = call.arg_types(input)?.as_slice()
        && !call.function.is_distinct()
        && let Some(states) = of_common_type(call, arg)
    {
        return Ok(states);
    }
    Ok(Box::new(AnyStates::new(call.function.clone())))
}

fn of_common_type(call: &Call, arg: &DataType) -> Option<Box<dyn Accumulators>> {
    match call.function.fun().name() {
        "count" => Some(Box::new(States::new(typed::Count))),
        "sum" => typed::sum(false, arg),
        "avg" => typed::sum(true, arg),
        "min" => typed::extreme(false, arg),
        "max" => typed::extreme(true, arg),
        _ => None,
    }
}

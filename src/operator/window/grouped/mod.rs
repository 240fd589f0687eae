//! The states of aggregates, group by group.
//!
//! COUNT, SUM and AVG of integers, and MIN and MAX of integers, decimals and times have states of their own, which can be handed on
//! without a copy while rows go on to come; all else has DataFusion's accumulators. A state looks the same either way.

mod column;
mod counts;
mod extremes;
mod other;
mod seen;
mod sums;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::DataType;
use datafusion_expr::EmitTo;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

pub(super) use self::column::Column;
use self::counts::Counts;
use self::other::Other;
use self::sums::Sums;
use super::recipe::Call;
use crate::error::Error;
use crate::operator::evaluate::failure;
use crate::operator::group_keys::CHUNK;
use crate::plan::Finish;

/// The states of one aggregate, by the number of the group.
pub(super) trait GroupStates: Send {
    /// Adds rows: `ids` are the numbers of their groups, of which there are `groups` now.
    ///
    /// # Errors
    /// `R002` if the aggregate fails on a row.
    fn update(
        &mut self,
        args: &[ArrayRef],
        ids: &[usize],
        filter: Option<&BooleanArray>,
        groups: usize,
    ) -> Result<(), Error>;

    /// Adds states, as columns. Groups that are new are among `ids`.
    ///
    /// # Errors
    /// `R002` if the aggregate fails on a state.
    fn merge(&mut self, states: &[ArrayRef], ids: &[usize], groups: usize) -> Result<(), Error>;

    /// Takes the states of all groups, as columns.
    ///
    /// # Errors
    /// `R002` if an accumulator does not give its state.
    fn take(&mut self) -> Result<Vec<ArrayRef>, Error>;

    /// The states of all groups, which stay. `call`: whose they are.
    ///
    /// # Errors
    /// `R002` if an accumulator does not give its state.
    fn share(&mut self, call: &Call, groups: usize) -> Result<Shared, Error>;

    /// Takes the results.
    ///
    /// # Errors
    /// `R002` if a result does not fit its type.
    fn results(&mut self) -> Result<ArrayRef, Error>;

    /// Memory in bytes, estimated.
    fn size(&self) -> usize;
}

/// States that were handed on.
pub(super) enum Shared {
    /// The columns.
    Whole(Vec<ArrayRef>),
    /// The columns of each chunk of groups.
    Chunks(Vec<Vec<ArrayRef>>),
}

impl Shared {
    /// The states of the groups from `first` on, which is the first of a chunk; not more than that has.
    pub(super) fn piece(&self, first: usize, groups: usize) -> Vec<ArrayRef> {
        match self {
            Self::Whole(columns) => columns.iter().map(|column| column.slice(first, groups)).collect(),
            Self::Chunks(chunks) => chunks[first / CHUNK].clone(),
        }
    }
}

/// Which states an aggregate has.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Form {
    Count,
    /// Of integers.
    Sum(Finish),
    /// Of a type of fixed width that is no float.
    Extreme {
        is_max: bool,
        data_type: DataType,
    },
    /// DataFusion's.
    Other,
}

impl Form {
    /// Of an aggregate.
    ///
    /// # Errors
    /// `R002` if it does not tell the types of its state.
    pub(super) fn of(function: &AggregateFunctionExpr) -> Result<Self, Error> {
        if function.is_distinct() {
            return Ok(Self::Other);
        }
        let result = function.field().data_type().clone();
        let states = function.state_fields().map_err(failure)?;
        let states: Vec<&DataType> = states.iter().map(|field| field.data_type()).collect();
        // Ours keeps the exact sum, and tells so by the type; decimals have one column more.
        let is_exact = states.first() == Some(&&DataType::Decimal128(38, 0));
        Ok(match (function.fun().name(), states.len(), result) {
            // COUNT(a, b) counts the rows that have both.
            ("count", 1, DataType::Int64) if function.expressions().len() == 1 => Self::Count,
            ("sum", 1, DataType::Int64) if is_exact => Self::Sum(Finish::SumSigned),
            ("sum", 1, DataType::UInt64) if is_exact => Self::Sum(Finish::SumUnsigned),
            ("avg", 2, DataType::Float64) if is_exact => Self::Sum(Finish::AvgInteger),
            (name @ ("min" | "max"), 1, data_type) if extremes::has(&data_type) => {
                Self::Extreme { is_max: name == "max", data_type }
            }
            _ => Self::Other,
        })
    }

    /// The states of no group yet.
    ///
    /// # Errors
    /// `R002` if there is no accumulator.
    pub(super) fn states(&self, call: &Call) -> Result<Box<dyn GroupStates>, Error> {
        Ok(match self {
            Self::Count => Box::new(Counts::default()),
            Self::Sum(finish) => Box::new(Sums::new(*finish)),
            Self::Extreme { is_max, data_type } => extremes::states(*is_max, data_type)?,
            Self::Other => Box::new(Other::try_new(call)?),
        })
    }
}

/// The rows that an aggregate takes: those that are not NULL and that its filter keeps; `None`: all.
fn taken(values: &ArrayRef, filter: Option<&BooleanArray>) -> Option<BooleanBuffer> {
    let nulls = values.logical_nulls().filter(|nulls| nulls.null_count() > 0);
    let valid = nulls.map(|nulls| nulls.into_inner());
    let kept = filter.map(|filter| match filter.nulls() {
        Some(nulls) => filter.values() & nulls.inner(),
        None => filter.values().clone(),
    });
    match (valid, kept) {
        (Some(valid), Some(kept)) => Some(&valid & &kept),
        (valid, kept) => valid.or(kept),
    }
}

/// The results of states, which stay as they are.
///
/// # Errors
/// `R002` if a result does not fit its type.
pub(super) fn results_of(call: &Call, state: &[ArrayRef], groups: usize) -> Result<ArrayRef, Error> {
    match (&call.form, state) {
        (Form::Count | Form::Extreme { .. }, [values]) => Ok(Arc::clone(values)),
        (Form::Sum(finish), state) => sums::results_of(*finish, state),
        _ => call.accumulator_of(state, groups)?.evaluate(EmitTo::All).map_err(failure),
    }
}

fn misfit() -> Error {
    Error::internal("WindowAggregate", "a state or an argument has another type")
}

#[cfg(test)]
mod tests;

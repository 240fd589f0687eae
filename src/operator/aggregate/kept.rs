//! States of groups as columns, for checkpoints.
//!
//! The groups themselves are rows of a table that the operator keeps before, [`GROUPS`]; states are rows of other
//! tables, whose first column is the place of their group there.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, Float64Array, Int64Array, PrimitiveArray,
    UInt32Array, UInt64Array, new_empty_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt32Type, UInt64Type};
use datafusion_common::ScalarValue;

use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, failure};
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};
use crate::plan::ExactSum;

/// The table of the groups that an operator keeps.
pub(in crate::operator) const GROUPS: &str = "groups";

/// Keeps states of groups, those of the places in [`GROUPS`].
pub(in crate::operator) fn keep(
    state: &mut StateWriter,
    name: &str,
    places: impl IntoIterator<Item = u32>,
    columns: Vec<ArrayRef>,
) -> Result<(), Error> {
    let places: ArrayRef = Arc::new(UInt32Array::from_iter_values(places));
    state.columns_of(GROUPS, name, std::iter::once(places).chain(columns).collect())
}

/// What [`keep`] kept: the group of each row, and the columns. `groups`: the number of each row of [`GROUPS`].
pub(in crate::operator) fn kept(
    state: &StateReader,
    name: &str,
    groups: &[u32],
) -> Result<(Vec<u32>, Vec<ArrayRef>), Error> {
    let lacks = || misfit(format_args!("no states \"{name}\""));
    let mut columns = state.columns(name)?.ok_or_else(lacks)?.into_iter();
    let places = columns.next().ok_or_else(lacks)?;
    let places = places.as_primitive_opt::<UInt32Type>().ok_or_else(lacks)?;
    let group = |place: &u32| groups.get(*place as usize).copied().ok_or_else(lacks);
    Ok((places.values().iter().map(group).collect::<Result<_, _>>()?, columns.collect()))
}

/// A column of what was kept.
pub(super) fn numbers<T: ArrowPrimitiveType>(
    columns: &[ArrayRef],
    place: usize,
) -> Result<&PrimitiveArray<T>, Error> {
    let column = columns.get(place).and_then(|column| column.as_primitive_opt::<T>());
    column.ok_or_else(|| misfit("states of another type"))
}

/// A column of counts.
pub(in crate::operator) fn counts(columns: &[ArrayRef], place: usize) -> Result<&[u64], Error> {
    numbers::<UInt64Type>(columns, place).map(|counts| counts.values().as_ref())
}

/// Counts as a column.
pub(in crate::operator) fn count_column(counts: Vec<u64>) -> ArrayRef {
    Arc::new(UInt64Array::from(counts))
}

/// Values as a column of a type.
pub(super) fn value_column(values: Vec<ScalarValue>, data_type: &DataType) -> Result<ArrayRef, Error> {
    if values.is_empty() {
        return Ok(new_empty_array(data_type));
    }
    let column = ScalarValue::iter_to_array(values).map_err(failure)?;
    if column.data_type() == data_type {
        return Ok(column);
    }
    cast(&column, data_type).map_err(|error| arrow_failure(&error))
}

/// A state of a fixed size, which is a row of columns.
pub(in crate::operator) trait Kept: Sized {
    fn columns(states: &[Self]) -> Vec<ArrayRef>;

    /// # Errors
    /// `K002` for other columns.
    fn of_columns(columns: &[ArrayRef]) -> Result<Vec<Self>, Error>;
}

/// A column of a part of each state.
pub(super) fn part<S>(states: &[S], part: impl Fn(&S) -> i64) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(states.iter().map(part)))
}

/// A column of a part of each state.
pub(super) fn float_part<S>(states: &[S], part: impl Fn(&S) -> f64) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(states.iter().map(part)))
}

/// A column of parts.
pub(super) fn parts(columns: &[ArrayRef], place: usize) -> Result<&[i64], Error> {
    numbers::<Int64Type>(columns, place).map(|parts| parts.values().as_ref())
}

/// A column of parts.
pub(super) fn float_parts(columns: &[ArrayRef], place: usize) -> Result<&[f64], Error> {
    numbers::<Float64Type>(columns, place).map(|parts| parts.values().as_ref())
}

impl Kept for i64 {
    fn columns(states: &[Self]) -> Vec<ArrayRef> {
        vec![part(states, |state| *state)]
    }

    fn of_columns(columns: &[ArrayRef]) -> Result<Vec<Self>, Error> {
        parts(columns, 0).map(<[i64]>::to_vec)
    }
}

impl Kept for (ExactSum, i64) {
    fn columns(states: &[Self]) -> Vec<ArrayRef> {
        let low = states.iter().map(|(sum, _)| sum.parts().0);
        vec![
            Arc::new(Decimal128Array::from_iter_values(low)),
            part(states, |(sum, _)| sum.parts().1),
            part(states, |(_, count)| *count),
        ]
    }

    fn of_columns(columns: &[ArrayRef]) -> Result<Vec<Self>, Error> {
        let low = numbers::<Decimal128Type>(columns, 0)?.values();
        let (carries, counts) = (parts(columns, 1)?, parts(columns, 2)?);
        let sums = low.iter().zip(carries).map(|(low, carry)| ExactSum::of_parts(*low, *carry));
        Ok(sums.zip(counts.iter().copied()).collect())
    }
}

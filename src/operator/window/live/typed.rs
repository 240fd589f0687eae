//! States of a fixed size: count, sum, avg, min, max of common types.
//!
//! Their values are those of the functions that a window's tables use: exact sums, and one total
//! order of floats.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, Decimal128Array, Float64Array, Int64Array, PrimitiveArray, UInt64Array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::accumulator::{Accumulators, Input, Use};
use super::kept::next;
use crate::error::Error;
use crate::operator::evaluate::failure;
use crate::operator::state::misfit;
use crate::plan::{ExactSum, Finish, Finished};

/// How an aggregate counts rows of one type.
pub(in crate::operator) trait Kernel: Send {
    /// What it keeps of a group.
    type State: Copy + Default + Send;
    /// The column of its argument.
    type Column<'a>;
    /// A value of the result, or NULL.
    type Value: Copy;

    fn column<'a>(&self, args: &'a [ArrayRef]) -> Result<Self::Column<'a>, Error>;

    /// Adds a row, unless it is NULL.
    fn add(&self, state: &mut Self::State, column: &Self::Column<'_>, row: usize);

    /// Adds the rows of another state.
    fn join(&self, state: &mut Self::State, other: Self::State);

    /// Whether a state that was joined is the same as one that had the rows one by one.
    fn joins(&self) -> bool {
        true
    }

    /// # Errors
    /// `R002` if the result does not fit its type.
    fn value(&self, state: &Self::State) -> Result<Self::Value, Error>;

    fn array(&self, values: Vec<Self::Value>) -> Result<ArrayRef, Error>;
}

/// A kernel whose states are rows of columns, for checkpoints.
pub(super) trait StateColumns: Kernel {
    fn state_columns(&self, states: Vec<Self::State>) -> Result<Vec<ArrayRef>, Error>;

    /// Takes its columns off `columns`; the state of each row.
    fn read_states(&self, columns: &mut Columns<'_>) -> Result<Vec<Self::State>, Error>;
}

type Columns<'a> = std::slice::Iter<'a, ArrayRef>;

/// The next column of states.
fn numbers<'a, T: ArrowPrimitiveType>(columns: &mut Columns<'a>) -> Result<&'a PrimitiveArray<T>, Error> {
    next(columns)?.as_primitive_opt::<T>().ok_or_else(|| misfit("states of another type"))
}

/// The states of all groups.
pub(super) struct States<K: Kernel> {
    kernel: K,
    states: Vec<K::State>,
}

impl<K: Kernel> States<K> {
    pub(super) fn new(kernel: K) -> Self {
        Self { kernel, states: Vec::new() }
    }
}

impl<K: StateColumns> Accumulators for States<K> {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.states.resize(groups.max(self.states.len()), K::State::default());
        Ok(())
    }

    fn update(&mut self, uses: &[Use], input: Input<'_>) -> Result<(), Error> {
        let column = self.kernel.column(input.args)?;
        for (place, one) in uses.iter().enumerate() {
            if input.keeps(place, one.row) {
                self.kernel.add(&mut self.states[one.group as usize], &column, one.row as usize);
            }
        }
        Ok(())
    }

    fn update_each(&mut self, uses: &[Use], input: Input<'_>) -> Result<(ArrayRef, ArrayRef), Error> {
        let column = self.kernel.column(input.args)?;
        let (mut before, mut after) = (Vec::with_capacity(uses.len()), Vec::with_capacity(uses.len()));
        for (place, one) in uses.iter().enumerate() {
            let state = &mut self.states[one.group as usize];
            let value = self.kernel.value(state)?;
            before.push(value);
            after.push(match input.keeps(place, one.row) {
                false => value,
                true => {
                    self.kernel.add(state, &column, one.row as usize);
                    self.kernel.value(state)?
                }
            });
        }
        Ok((self.kernel.array(before)?, self.kernel.array(after)?))
    }

    fn joins(&self) -> bool {
        self.kernel.joins()
    }

    fn join(&mut self, into: u32, from: u32) {
        let other = self.states[from as usize];
        self.kernel.join(&mut self.states[into as usize], other);
    }

    fn clear(&mut self, group: u32) -> Result<(), Error> {
        self.states[group as usize] = K::State::default();
        Ok(())
    }

    fn values(&mut self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let value = |group: &u32| self.kernel.value(&self.states[*group as usize]);
        self.kernel.array(groups.iter().map(value).collect::<Result<_, _>>()?)
    }

    fn write(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        self.kernel.state_columns(groups.iter().map(|group| self.states[*group as usize]).collect())
    }

    fn read(&mut self, columns: &mut Columns<'_>, rows: &[u32], groups: &[u32]) -> Result<(), Error> {
        let states = self.kernel.read_states(columns)?;
        for (row, group) in rows.iter().zip(groups) {
            self.states[*group as usize] = states[*row as usize];
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.states.capacity() * size_of::<K::State>()
    }
}

fn wrong_type() -> Error {
    Error::internal("WindowAggregate", "an argument has another type than planned")
}

fn primitive<T: ArrowPrimitiveType>(args: &[ArrayRef]) -> Result<&PrimitiveArray<T>, Error> {
    args.first().and_then(|arg| arg.as_primitive_opt::<T>()).ok_or_else(wrong_type)
}

/// Rows that are not NULL.
pub(in crate::operator) struct Count;

impl Kernel for Count {
    type State = i64;
    type Column<'a> = Option<NullBuffer>;
    type Value = i64;

    fn column(&self, args: &[ArrayRef]) -> Result<Option<NullBuffer>, Error> {
        Ok(args.first().ok_or_else(wrong_type)?.logical_nulls())
    }

    fn add(&self, state: &mut i64, nulls: &Option<NullBuffer>, row: usize) {
        *state += i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
    }

    fn join(&self, state: &mut i64, other: i64) {
        *state += other;
    }

    fn value(&self, state: &i64) -> Result<i64, Error> {
        Ok(*state)
    }

    fn array(&self, values: Vec<i64>) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Int64Array::from(values)))
    }
}

impl StateColumns for Count {
    fn state_columns(&self, states: Vec<i64>) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.array(states)?])
    }

    fn read_states(&self, columns: &mut Columns<'_>) -> Result<Vec<i64>, Error> {
        Ok(numbers::<Int64Type>(columns)?.values().to_vec())
    }
}

/// SUM or AVG of a type; `None` for types that have no states of their own.
pub(super) fn sum(is_avg: bool, arg: &DataType) -> Option<Box<dyn Accumulators>> {
    let finish = Finish::of(is_avg, arg);
    Some(match (finish, arg) {
        (Some(finish), DataType::Int64) => Box::new(States::new(Exact::<Int64Type>::new(finish))),
        (Some(finish), DataType::UInt64) => Box::new(States::new(Exact::<UInt64Type>::new(finish))),
        (Some(finish), DataType::Decimal128(..)) => {
            Box::new(States::new(Exact::<Decimal128Type>::new(finish)))
        }
        (None, DataType::Float64) => Box::new(States::new(FloatSum { is_avg })),
        _ => return None,
    })
}

/// An exact sum, or the average from it.
pub(in crate::operator) struct Exact<T>(Finish, PhantomData<fn() -> T>);

impl<T> Exact<T> {
    pub(in crate::operator) fn new(finish: Finish) -> Self {
        Self(finish, PhantomData)
    }
}

impl<T: ArrowPrimitiveType> Kernel for Exact<T>
where
    T::Native: Into<i128>,
{
    type State = (ExactSum, i64);
    type Column<'a> = &'a PrimitiveArray<T>;
    type Value = Option<Finished>;

    fn column<'a>(&self, args: &'a [ArrayRef]) -> Result<&'a PrimitiveArray<T>, Error> {
        primitive(args)
    }

    fn add(&self, (sum, count): &mut (ExactSum, i64), column: &&PrimitiveArray<T>, row: usize) {
        if column.is_valid(row) {
            sum.add(column.value(row).into());
            *count += 1;
        }
    }

    fn join(&self, (sum, count): &mut (ExactSum, i64), (more, more_rows): (ExactSum, i64)) {
        sum.merge(more);
        *count += more_rows;
    }

    fn value(&self, (sum, count): &(ExactSum, i64)) -> Result<Option<Finished>, Error> {
        (*count > 0).then(|| self.0.finish(*sum, *count)).transpose().map_err(failure)
    }

    fn array(&self, values: Vec<Option<Finished>>) -> Result<ArrayRef, Error> {
        let values = values.into_iter();
        Ok(match self.0.data_type() {
            DataType::Int64 => Arc::new(Int64Array::from_iter(values.map(|value| match value {
                Some(Finished::Signed(value)) => Some(value),
                _ => None,
            }))),
            DataType::UInt64 => Arc::new(UInt64Array::from_iter(values.map(|value| match value {
                Some(Finished::Unsigned(value)) => Some(value),
                _ => None,
            }))),
            DataType::Float64 => Arc::new(Float64Array::from_iter(values.map(|value| match value {
                Some(Finished::Double(value)) => Some(value),
                _ => None,
            }))),
            decimal => {
                let values = values.map(|value| match value {
                    Some(Finished::Decimal(value)) => Some(value),
                    _ => None,
                });
                Arc::new(Decimal128Array::from_iter(values).with_data_type(decimal))
            }
        })
    }
}

impl<T: ArrowPrimitiveType> StateColumns for Exact<T>
where
    T::Native: Into<i128>,
{
    fn state_columns(&self, states: Vec<Self::State>) -> Result<Vec<ArrayRef>, Error> {
        let sums = || states.iter().map(|(sum, _)| sum.parts());
        Ok(vec![
            Arc::new(Decimal128Array::from_iter_values(sums().map(|(low, _)| low))),
            Arc::new(Int64Array::from_iter_values(sums().map(|(_, carry)| carry))),
            Arc::new(Int64Array::from_iter_values(states.iter().map(|(_, count)| *count))),
        ])
    }

    fn read_states(&self, columns: &mut Columns<'_>) -> Result<Vec<Self::State>, Error> {
        let low = numbers::<Decimal128Type>(columns)?.values();
        let (carry, count) = (numbers::<Int64Type>(columns)?, numbers::<Int64Type>(columns)?);
        let sums = low.iter().zip(carry.values()).map(|(low, carry)| ExactSum::of_parts(*low, *carry));
        Ok(sums.zip(count.values().iter().copied()).collect())
    }
}

/// SUM or AVG of DOUBLE.
struct FloatSum {
    is_avg: bool,
}

impl Kernel for FloatSum {
    type State = (f64, i64);
    type Column<'a> = &'a Float64Array;
    type Value = Option<f64>;

    fn column<'a>(&self, args: &'a [ArrayRef]) -> Result<&'a Float64Array, Error> {
        primitive(args)
    }

    fn add(&self, (sum, count): &mut (f64, i64), column: &&Float64Array, row: usize) {
        if column.is_valid(row) {
            *sum += column.value(row);
            *count += 1;
        }
    }

    fn join(&self, (sum, count): &mut (f64, i64), (more, more_rows): (f64, i64)) {
        *sum += more;
        *count += more_rows;
    }

    /// Its last digits tell in which order rows were added.
    fn joins(&self) -> bool {
        false
    }

    fn value(&self, (sum, count): &(f64, i64)) -> Result<Option<f64>, Error> {
        Ok((*count > 0).then(|| if self.is_avg { *sum / *count as f64 } else { *sum }))
    }

    fn array(&self, values: Vec<Option<f64>>) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Float64Array::from(values)))
    }
}

impl StateColumns for FloatSum {
    fn state_columns(&self, states: Vec<(f64, i64)>) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![
            Arc::new(Float64Array::from_iter_values(states.iter().map(|(sum, _)| *sum))),
            Arc::new(Int64Array::from_iter_values(states.iter().map(|(_, count)| *count))),
        ])
    }

    fn read_states(&self, columns: &mut Columns<'_>) -> Result<Vec<(f64, i64)>, Error> {
        let (sums, counts) = (numbers::<Float64Type>(columns)?, numbers::<Int64Type>(columns)?);
        Ok(sums.values().iter().copied().zip(counts.values().iter().copied()).collect())
    }
}

/// A total order; of floats NaN is the last and all NaN are one.
trait Ordered: Copy + Default + Send {
    fn is_less(self, other: Self) -> bool;

    fn normal(self) -> Self {
        self
    }
}

macro_rules! ordered {
    ($($native:ty),*) => {$(
        impl Ordered for $native {
            fn is_less(self, other: Self) -> bool {
                self < other
            }
        }
    )*};
}

ordered!(i8, i16, i32, i64, u8, u16, u32, u64, i128);

macro_rules! ordered_float {
    ($($native:ty),*) => {$(
        impl Ordered for $native {
            fn is_less(self, other: Self) -> bool {
                self.total_cmp(&other).is_lt()
            }

            fn normal(self) -> Self {
                if self.is_nan() { <$native>::NAN } else { self }
            }
        }
    )*};
}

ordered_float!(f32, f64);

/// MIN or MAX of a type; `None` for types that have no states of their own.
pub(super) fn extreme(is_max: bool, arg: &DataType) -> Option<Box<dyn Accumulators>> {
    fn of<T: ArrowPrimitiveType>(is_max: bool, arg: &DataType) -> Option<Box<dyn Accumulators>>
    where
        T::Native: Ordered,
    {
        let kernel = Extreme::<T> { is_max, data_type: arg.clone(), of: PhantomData };
        Some(Box::new(States::new(kernel)))
    }
    match arg {
        DataType::Int8 => of::<Int8Type>(is_max, arg),
        DataType::Int16 => of::<Int16Type>(is_max, arg),
        DataType::Int32 => of::<Int32Type>(is_max, arg),
        DataType::Int64 => of::<Int64Type>(is_max, arg),
        DataType::UInt8 => of::<UInt8Type>(is_max, arg),
        DataType::UInt16 => of::<UInt16Type>(is_max, arg),
        DataType::UInt32 => of::<UInt32Type>(is_max, arg),
        DataType::UInt64 => of::<UInt64Type>(is_max, arg),
        DataType::Float32 => of::<Float32Type>(is_max, arg),
        DataType::Float64 => of::<Float64Type>(is_max, arg),
        DataType::Decimal128(..) => of::<Decimal128Type>(is_max, arg),
        DataType::Date32 => of::<Date32Type>(is_max, arg),
        DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(is_max, arg),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(is_max, arg),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(is_max, arg),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(is_max, arg),
        _ => None,
    }
}

/// MIN or MAX.
struct Extreme<T> {
    is_max: bool,
    data_type: DataType,
    of: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> Kernel for Extreme<T>
where
    T::Native: Ordered,
{
    type State = Option<T::Native>;
    type Column<'a> = &'a PrimitiveArray<T>;
    type Value = Option<T::Native>;

    fn column<'a>(&self, args: &'a [ArrayRef]) -> Result<&'a PrimitiveArray<T>, Error> {
        primitive(args)
    }

    fn add(&self, best: &mut Option<T::Native>, column: &&PrimitiveArray<T>, row: usize) {
        if column.is_null(row) {
            return;
        }
        self.join(best, Some(column.value(row).normal()));
    }

    fn join(&self, best: &mut Option<T::Native>, other: Option<T::Native>) {
        let is_better = match (*best, other) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(best), Some(other)) if self.is_max => best.is_less(other),
            (Some(best), Some(other)) => other.is_less(best),
        };
        if is_better {
            *best = other;
        }
    }

    fn value(&self, best: &Option<T::Native>) -> Result<Option<T::Native>, Error> {
        Ok(*best)
    }

    fn array(&self, values: Vec<Option<T::Native>>) -> Result<ArrayRef, Error> {
        Ok(Arc::new(PrimitiveArray::<T>::from_iter(values).with_data_type(self.data_type.clone())))
    }
}

impl<T: ArrowPrimitiveType> StateColumns for Extreme<T>
where
    T::Native: Ordered,
{
    fn state_columns(&self, states: Vec<Option<T::Native>>) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.array(states)?])
    }

    fn read_states(&self, columns: &mut Columns<'_>) -> Result<Vec<Option<T::Native>>, Error> {
        Ok(numbers::<T>(columns)?.iter().collect())
    }
}

//! COUNT, SUM and AVG of common types.

use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, Float64Array, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int64Type, UInt64Type};
use std::sync::Arc;

use super::kept::{Kept, float_part, float_parts, keep, kept, part, parts};
use super::{Reversible, Step};
use crate::error::Error;
use crate::operator::window::{Count, Exact, Kernel};
use crate::operator::{StateReader, StateWriter};
use crate::plan::Finish;

/// How a row is taken away from a state again.
trait Inverse: Kernel<State: Kept> {
    fn remove(&self, state: &mut Self::State, column: &Self::Column<'_>, row: usize);
}

/// The states of all groups.
struct Sums<K: Kernel> {
    kernel: K,
    states: Vec<K::State>,
}

impl<K: Inverse> Reversible for Sums<K> {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.states.resize(groups.max(self.states.len()), K::State::default());
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let column = self.kernel.column(args)?;
        let mut values = Vec::new();
        for step in steps {
            match *step {
                Step::Add { group, row } => {
                    self.kernel.add(&mut self.states[group as usize], &column, row as usize);
                }
                Step::Remove { group, row } => {
                    self.kernel.remove(&mut self.states[group as usize], &column, row as usize);
                }
                Step::Give { group } => values.push(self.kernel.value(&self.states[group as usize])?),
                Step::Clear { group } => self.states[group as usize] = K::State::default(),
            }
        }
        self.kernel.array(values)
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let states: Vec<K::State> = groups.iter().map(|group| self.states[*group as usize]).collect();
        keep(state, "sums", 0..groups.len() as u32, K::State::columns(&states))
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "sums", groups)?;
        for (group, state) in groups.into_iter().zip(K::State::of_columns(&columns)?) {
            self.states[group as usize] = state;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.states.capacity() * size_of::<K::State>()
    }
}

pub(super) fn count() -> Box<dyn Reversible> {
    Box::new(Sums { kernel: Count, states: Vec::new() })
}

/// SUM or AVG of a type; `None` for types that have no states of their own.
pub(super) fn sum(is_avg: bool, arg: &DataType) -> Option<Box<dyn Reversible>> {
    fn exact<T: ArrowPrimitiveType>(finish: Finish) -> Box<dyn Reversible>
    where
        T::Native: Into<i128>,
    {
        Box::new(Sums { kernel: Exact::<T>::new(finish), states: Vec::new() })
    }
    Some(match (Finish::of(is_avg, arg), arg) {
        (Some(finish), DataType::Int64) => exact::<Int64Type>(finish),
        (Some(finish), DataType::UInt64) => exact::<UInt64Type>(finish),
        (Some(finish), DataType::Decimal128(..)) => exact::<Decimal128Type>(finish),
        (None, DataType::Float64) => Box::new(Sums { kernel: Floats { is_avg }, states: Vec::new() }),
        _ => return None,
    })
}

impl Inverse for Count {
    fn remove(&self, state: &mut i64, nulls: &Self::Column<'_>, row: usize) {
        *state -= i64::from(nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)));
    }
}

impl<T: ArrowPrimitiveType> Inverse for Exact<T>
where
    T::Native: Into<i128>,
{
    fn remove(&self, (sum, count): &mut Self::State, column: &&PrimitiveArray<T>, row: usize) {
        if arrow::array::Array::is_valid(column, row) {
            sum.subtract(column.value(row).into());
            *count -= 1;
        }
    }
}

/// SUM or AVG of DOUBLE. What is not finite is counted, so that it can go again.
struct Floats {
    is_avg: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct FloatSum {
    sum: f64,
    /// What the additions rounded away.
    lost: f64,
    finite: i64,
    nan: i64,
    above: i64,
    below: i64,
}

impl FloatSum {
    fn change(&mut self, value: f64, sign: i64) {
        if value.is_nan() {
            self.nan += sign;
        } else if value == f64::INFINITY {
            self.above += sign;
        } else if value == f64::NEG_INFINITY {
            self.below += sign;
        } else {
            self.finite += sign;
            if self.finite == 0 {
                (self.sum, self.lost) = (0.0, 0.0);
                return;
            }
            // Neumaier's sum: a large value that comes and goes leaves the small ones.
            let value = if sign > 0 { value } else { -value };
            let next = self.sum + value;
            self.lost += match self.sum.abs() >= value.abs() {
                true => (self.sum - next) + value,
                false => (value - next) + self.sum,
            };
            self.sum = next;
        }
    }

    fn count(&self) -> i64 {
        self.finite + self.nan + self.above + self.below
    }

    fn value(&self) -> f64 {
        match (self.nan > 0, self.above > 0, self.below > 0) {
            (true, ..) | (_, true, true) => f64::NAN,
            (_, true, _) => f64::INFINITY,
            (_, _, true) => f64::NEG_INFINITY,
            _ if self.lost.is_finite() => self.sum + self.lost,
            _ => self.sum,
        }
    }
}

impl Kept for FloatSum {
    fn columns(states: &[Self]) -> Vec<ArrayRef> {
        vec![
            float_part(states, |state| state.sum),
            float_part(states, |state| state.lost),
            part(states, |state| state.finite),
            part(states, |state| state.nan),
            part(states, |state| state.above),
            part(states, |state| state.below),
        ]
    }

    fn of_columns(columns: &[ArrayRef]) -> Result<Vec<Self>, Error> {
        let (sum, lost) = (float_parts(columns, 0)?, float_parts(columns, 1)?);
        let (finite, nan) = (parts(columns, 2)?, parts(columns, 3)?);
        let (above, below) = (parts(columns, 4)?, parts(columns, 5)?);
        let state = |row: usize| Self {
            sum: sum[row],
            lost: lost[row],
            finite: finite[row],
            nan: nan[row],
            above: above[row],
            below: below[row],
        };
        Ok((0..sum.len()).map(state).collect())
    }
}

impl Kernel for Floats {
    type State = FloatSum;
    type Column<'a> = &'a Float64Array;
    type Value = Option<f64>;

    fn column<'a>(&self, args: &'a [ArrayRef]) -> Result<&'a Float64Array, Error> {
        let column = args.first().and_then(|arg| arg.as_primitive_opt::<Float64Type>());
        column.ok_or_else(|| Error::internal("aggregate", "an argument is no DOUBLE"))
    }

    fn add(&self, state: &mut FloatSum, column: &&Float64Array, row: usize) {
        if arrow::array::Array::is_valid(column, row) {
            state.change(column.value(row), 1);
        }
    }

    fn join(&self, state: &mut FloatSum, other: FloatSum) {
        for part in [other.sum, other.lost] {
            state.change(part, 1);
        }
        state.finite += other.finite - 2;
        state.nan += other.nan;
        state.above += other.above;
        state.below += other.below;
    }

    /// Its last digits tell in which order rows were added.
    fn joins(&self) -> bool {
        false
    }

    fn value(&self, state: &FloatSum) -> Result<Option<f64>, Error> {
        let count = state.count();
        let value = if self.is_avg { state.value() / count as f64 } else { state.value() };
        Ok((count > 0).then_some(value))
    }

    fn array(&self, values: Vec<Option<f64>>) -> Result<ArrayRef, Error> {
        Ok(Arc::new(Float64Array::from(values)))
    }
}

impl Inverse for Floats {
    fn remove(&self, state: &mut FloatSum, column: &&Float64Array, row: usize) {
        if arrow::array::Array::is_valid(column, row) {
            state.change(column.value(row), -1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(numbers: &[f64], steps: &[Step]) -> Vec<Option<f64>> {
        let mut sum = sum(false, &DataType::Float64).unwrap();
        sum.grow(1).unwrap();
        let args: Vec<ArrayRef> = vec![Arc::new(Float64Array::from(numbers.to_vec()))];
        sum.run(steps, &args).unwrap().as_primitive::<Float64Type>().iter().collect()
    }

    #[test]
    fn what_went_leaves_nothing_behind() {
        let (add, remove) = (|row| Step::Add { group: 0, row }, |row| Step::Remove { group: 0, row });
        let give = Step::Give { group: 0 };
        let numbers = [1.5, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let steps = [add(0), add(1), remove(1), give, add(3), give, add(4), remove(3), give, remove(4), give];
        let expected = [Some(1.5), Some(f64::INFINITY), Some(f64::NEG_INFINITY), Some(1.5)];
        assert_eq!(values(&numbers, &steps), expected);
        let given = values(&numbers, &[give, add(2), give, remove(2), give, add(0), give]);
        assert!(given[1].unwrap().is_nan());
        assert_eq!([given[0], given[2], given[3]], [None, None, Some(1.5)]);
    }
}

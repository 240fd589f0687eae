//! VAR and STDDEV of rows that only come.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::Float64Type;
use std::sync::Arc;

use super::kept::{Kept, float_part, float_parts, keep, kept, part, parts};
use super::{Reversible, Step};
use crate::error::Error;
use crate::operator::{StateReader, StateWriter};

/// VAR or STDDEV. Its values are those of DataFusion's accumulators, whose states can't be taken up without a change
/// in the last digits.
///
/// Source: Welford's algorithm.
pub(super) struct Moments {
    is_deviation: bool,
    /// Whether rows are a sample, else all that there are.
    is_sample: bool,
    groups: Vec<Moment>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Moment {
    count: i64,
    mean: f64,
    /// The sum of the squares of what rows differ from the mean.
    squares: f64,
}

impl Moments {
    /// `None` for other functions.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (is_deviation, is_sample) = match name {
            "var" => (false, true),
            "var_pop" => (false, false),
            "stddev" => (true, true),
            "stddev_pop" => (true, false),
            _ => return None,
        };
        Some(Self { is_deviation, is_sample, groups: Vec::new() })
    }

    fn value(&self, of: Moment) -> Option<f64> {
        let variance = match (of.count, self.is_sample) {
            (0, _) | (1, true) => return None,
            (1, false) => 0.0,
            (count, is_sample) => of.squares / (count - i64::from(is_sample)) as f64,
        };
        Some(if self.is_deviation { variance.sqrt() } else { variance })
    }
}

impl Moment {
    fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }
}

impl Reversible for Moments {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.groups.resize(groups.max(self.groups.len()), Moment::default());
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let column = args.first().and_then(|arg| arg.as_primitive_opt::<Float64Type>());
        let column = column.ok_or_else(|| Error::internal("aggregate", "an argument is no DOUBLE"))?;
        let mut values = Vec::new();
        for step in steps {
            match *step {
                Step::Add { group, row } if column.is_valid(row as usize) => {
                    self.groups[group as usize].add(column.value(row as usize));
                }
                Step::Add { .. } => {}
                Step::Remove { .. } => {
                    return Err(Error::internal("aggregate", "a row goes that was to stay"));
                }
                Step::Give { group } => values.push(self.value(self.groups[group as usize])),
                Step::Clear { group } => self.groups[group as usize] = Moment::default(),
            }
        }
        Ok(Arc::new(Float64Array::from(values)))
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let states: Vec<Moment> = groups.iter().map(|group| self.groups[*group as usize]).collect();
        keep(state, "moments", 0..groups.len() as u32, Moment::columns(&states))
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "moments", groups)?;
        for (group, moment) in groups.into_iter().zip(Moment::of_columns(&columns)?) {
            self.groups[group as usize] = moment;
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Moment>()
    }
}

impl Kept for Moment {
    fn columns(states: &[Self]) -> Vec<ArrayRef> {
        vec![
            part(states, |state| state.count),
            float_part(states, |state| state.mean),
            float_part(states, |state| state.squares),
        ]
    }

    fn of_columns(columns: &[ArrayRef]) -> Result<Vec<Self>, Error> {
        let (counts, means) = (parts(columns, 0)?, float_parts(columns, 1)?);
        let squares = float_parts(columns, 2)?;
        let state = |row: usize| Self { count: counts[row], mean: means[row], squares: squares[row] };
        Ok((0..counts.len()).map(state).collect())
    }
}

#[cfg(test)]
mod tests {
    use datafusion_expr::Accumulator;
    use datafusion_functions_aggregate::{stddev, variance};
    use datafusion_physical_expr::aggregate::AggregateExprBuilder;
    use datafusion_physical_expr::expressions::CastExpr;

    use super::*;
    use crate::operator::testing::{column, input};

    #[test]
    fn values_are_datafusions_to_the_last_digit() {
        let functions = [
            variance::var_samp_udaf(),
            variance::var_pop_udaf(),
            stddev::stddev_udaf(),
            stddev::stddev_pop_udaf(),
        ];
        let numbers = [Some(0.1), None, Some(-7.3), Some(1e9), Some(0.1), Some(f64::MIN_POSITIVE)];
        let values: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
        for function in functions {
            let mut moments = Moments::of(function.name()).unwrap();
            moments.grow(1).unwrap();
            let double = Arc::new(CastExpr::new(column(2), arrow::datatypes::DataType::Float64, None));
            let built = AggregateExprBuilder::new(function, vec![double]).schema(input()).alias("a");
            let mut expected: Box<dyn Accumulator> = built.build().unwrap().create_accumulator().unwrap();
            for row in 0..numbers.len() {
                expected.update_batch(&[values.slice(row, 1)]).unwrap();
                let steps = [Step::Add { group: 0, row: row as u32 }, Step::Give { group: 0 }];
                let given = moments.run(&steps, &[Arc::clone(&values)]).unwrap();
                let expected = expected.evaluate().unwrap().to_array().unwrap();
                assert_eq!(given.as_primitive::<Float64Type>(), expected.as_primitive::<Float64Type>());
            }
        }
    }
}

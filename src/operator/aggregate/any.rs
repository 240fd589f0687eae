//! Any aggregate: an accumulator for each group or, where it can't take rows away, the rows.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::kept::{keep, kept, value_column};
use super::{Reversible, Step, scalar};
use crate::error::{Error, code};
use crate::operator::evaluate::failure;
use crate::operator::{StateReader, StateWriter};
use crate::plan::is_registered;

pub(super) struct AnyStates {
    function: Arc<AggregateFunctionExpr>,
    /// Of its arguments.
    types: Vec<DataType>,
    removes: bool,
    groups: Vec<Group>,
}

enum Group {
    /// Rows only come.
    State(Box<dyn Accumulator>),
    /// Rows may go: the arguments of each, in the order in which they came.
    Rows(VecDeque<Vec<ScalarValue>>),
}

impl AnyStates {
    pub(super) fn new(function: Arc<AggregateFunctionExpr>, types: &[DataType], removes: bool) -> Self {
        Self { function, types: types.to_vec(), removes, groups: Vec::new() }
    }

    fn group(&self) -> Result<Group, Error> {
        if self.removes {
            return Ok(Group::Rows(VecDeque::new()));
        }
        Ok(Group::State(self.function.create_accumulator().map_err(failure)?))
    }

    /// The state of an accumulator, which gives it up: a fresh one goes on from it.
    fn state_of(&self, accumulator: &mut Box<dyn Accumulator>) -> Result<Vec<ScalarValue>, Error> {
        let function = &self.function;
        let name = function.fun().name();
        let values = accumulator.state().map_err(|error| match is_registered(function.fun()) {
            false => failure(error),
            true => Error::plan(
                code::NOT_SUPPORTED,
                format!("aggregate \"{name}\" can't be part of a checkpoint: {}", failure(error).message()),
            )
            .hint("Let its accumulator give its state, and merge it."),
        })?;
        let columns = values.iter().map(|value| value.to_array().map_err(failure));
        let mut fresh = function.create_accumulator().map_err(failure)?;
        fresh.merge_batch(&columns.collect::<Result<Vec<_>, _>>()?).map_err(failure)?;
        *accumulator = fresh;
        Ok(values)
    }

    fn value(&mut self, group: u32) -> Result<ScalarValue, Error> {
        match &mut self.groups[group as usize] {
            Group::State(accumulator) => accumulator.evaluate().map_err(failure),
            Group::Rows(rows) => {
                let mut accumulator = self.function.create_accumulator().map_err(failure)?;
                if let Some(width) = rows.front().map(Vec::len) {
                    let column = |index: usize| {
                        ScalarValue::iter_to_array(rows.iter().map(|row| row[index].clone())).map_err(failure)
                    };
                    let args = (0..width).map(column).collect::<Result<Vec<_>, _>>()?;
                    accumulator.update_batch(&args).map_err(failure)?;
                }
                accumulator.evaluate().map_err(failure)
            }
        }
    }
}

impl Reversible for AnyStates {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        while self.groups.len() < groups {
            let group = self.group()?;
            self.groups.push(group);
        }
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let row_of = |row: u32| args.iter().map(|arg| scalar(arg, row)).collect::<Result<Vec<_>, _>>();
        let mut values = Vec::new();
        for step in steps {
            match *step {
                Step::Add { group, row } => match &mut self.groups[group as usize] {
                    Group::State(accumulator) => {
                        let row: Vec<ArrayRef> = args.iter().map(|arg| arg.slice(row as usize, 1)).collect();
                        accumulator.update_batch(&row).map_err(failure)?;
                    }
                    Group::Rows(rows) => rows.push_back(row_of(row)?),
                },
                Step::Remove { group, row } => {
                    let row = row_of(row)?;
                    let Group::Rows(rows) = &mut self.groups[group as usize] else {
                        return Err(Error::internal("aggregate", "a row goes that was to stay"));
                    };
                    // Mostly it is the first one.
                    let Some(place) = rows.iter().position(|known| *known == row) else {
                        return Err(Error::internal("aggregate", "a row goes that never came"));
                    };
                    rows.remove(place);
                }
                Step::Give { group } => values.push(self.value(group)?),
                Step::Clear { group } => self.groups[group as usize] = self.group()?,
            }
        }
        match values.is_empty() {
            true => Ok(new_empty_array(self.function.field().data_type())),
            false => ScalarValue::iter_to_array(values).map_err(failure),
        }
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let types: Vec<DataType> = match self.removes {
            true => self.types.clone(),
            false => {
                let fields = self.function.state_fields().map_err(failure)?;
                fields.iter().map(|field| field.data_type().clone()).collect()
            }
        };
        let (mut places, mut columns) = (Vec::new(), vec![Vec::new(); types.len()]);
        let mut push = |place: usize, row: Vec<ScalarValue>| {
            places.push(place as u32);
            columns.iter_mut().zip(row).for_each(|(column, value)| column.push(value));
        };
        for (place, group) in groups.iter().enumerate() {
            let mut group =
                std::mem::replace(&mut self.groups[*group as usize], Group::Rows(VecDeque::new()));
            let kept = match &mut group {
                Group::Rows(rows) => {
                    rows.iter().for_each(|row| push(place, row.clone()));
                    Ok(())
                }
                Group::State(accumulator) => self.state_of(accumulator).map(|values| push(place, values)),
            };
            self.groups[groups[place] as usize] = group;
            kept?;
        }
        let columns = columns.into_iter().zip(&types).map(|(values, of)| value_column(values, of));
        keep(state, "values", places, columns.collect::<Result<_, _>>()?)
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "values", groups)?;
        for (row, group) in groups.into_iter().enumerate() {
            match &mut self.groups[group as usize] {
                Group::State(accumulator) => {
                    let state: Vec<ArrayRef> = columns.iter().map(|column| column.slice(row, 1)).collect();
                    accumulator.merge_batch(&state).map_err(failure)?;
                }
                Group::Rows(rows) => {
                    let values = columns.iter().map(|column| scalar(column, row as u32));
                    rows.push_back(values.collect::<Result<_, _>>()?);
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let row = |row: &Vec<ScalarValue>| row.iter().map(ScalarValue::size).sum::<usize>();
        let group = |group: &Group| match group {
            Group::State(accumulator) => accumulator.size(),
            Group::Rows(rows) => rows.iter().map(row).sum(),
        };
        self.groups.iter().map(group).sum()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use datafusion_common::not_impl_err;
    use datafusion_expr::{Volatility, create_udaf};

    use super::*;
    use crate::catalog::Catalog;
    use crate::operator::StateReader;
    use crate::operator::aggregate::GROUPS;
    use crate::plan::{Operation, Planner};

    /// Counts rows; gives its state if it is told so.
    #[derive(Debug)]
    struct Counting {
        rows: i64,
        has_state: bool,
    }

    impl Accumulator for Counting {
        fn update_batch(&mut self, values: &[ArrayRef]) -> datafusion_common::Result<()> {
            self.rows += values[0].len() as i64;
            Ok(())
        }

        fn evaluate(&mut self) -> datafusion_common::Result<ScalarValue> {
            Ok(ScalarValue::from(self.rows))
        }

        fn size(&self) -> usize {
            size_of_val(self)
        }

        fn state(&mut self) -> datafusion_common::Result<Vec<ScalarValue>> {
            match self.has_state {
                // It is given up.
                true => Ok(vec![ScalarValue::from(std::mem::take(&mut self.rows))]),
                false => not_impl_err!("no state"),
            }
        }

        fn merge_batch(&mut self, states: &[ArrayRef]) -> datafusion_common::Result<()> {
            self.rows += states[0].as_primitive::<Int64Type>().values().iter().sum::<i64>();
            Ok(())
        }
    }

    /// The states of an aggregate of a program's own, over rows that only come.
    fn registered(has_state: bool) -> AnyStates {
        let function = create_udaf(
            "counting",
            vec![DataType::Int64],
            Arc::new(DataType::Int64),
            Volatility::Immutable,
            Arc::new(move |_| Ok(Box::new(Counting { rows: 0, has_state }))),
            Arc::new(vec![DataType::Int64]),
        );
        let planner = Planner::default().with_udaf(function).unwrap();
        let plan = planner.plan("SELECT counting(v) FROM (VALUES (1)) AS t(v)", &Catalog::new()).unwrap();
        let function = plan.nodes.iter().find_map(|node| match &node.operation {
            Operation::WindowAggregate(node) => Some(Arc::clone(&node.aggregates[0].function)),
            _ => None,
        });
        AnyStates::new(function.unwrap(), &[DataType::Int64], false)
    }

    fn values(states: &mut AnyStates, steps: &[Step]) -> Vec<i64> {
        let column: ArrayRef = Arc::new(Int64Array::from(vec![7]));
        states.grow(2).unwrap();
        states.run(steps, &[column]).unwrap().as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn an_accumulator_that_gives_up_its_state_goes_on_as_it_was() {
        let mut counting = registered(true);
        values(&mut counting, &[Step::Add { group: 1, row: 0 }, Step::Add { group: 1, row: 0 }]);
        let mut state = StateWriter::default();
        state.columns(GROUPS, vec![Arc::new(Int64Array::from(vec![5, 6]))], &[]).unwrap();
        counting.snapshot(&[1, 0], &mut state).unwrap();
        let mut again = registered(true);
        again.grow(2).unwrap();
        again.restore(&[0, 1], &mut StateReader::same(state.finish(), 0)).unwrap();
        let steps = |group: u32| [Step::Add { group, row: 0 }, Step::Give { group }];
        assert_eq!(values(&mut counting, &[steps(0), steps(1)].concat()), [1, 3]);
        assert_eq!(values(&mut again, &[steps(0), steps(1)].concat()), [3, 1]);
    }

    #[test]
    fn an_aggregate_without_a_state_is_named() {
        let mut counting = registered(false);
        values(&mut counting, &[Step::Add { group: 0, row: 0 }]);
        let mut state = StateWriter::default();
        state.columns(GROUPS, vec![Arc::new(Int64Array::from(vec![5]))], &[]).unwrap();
        let error = counting.snapshot(&[0], &mut state).unwrap_err();
        assert_eq!(error.code(), "P002");
        assert!(
            error.message().starts_with("aggregate \"counting\" can't be part of a checkpoint"),
            "{error}"
        );
        assert_eq!(values(&mut counting, &[Step::Give { group: 0 }]), [1], "it goes on");
    }
}

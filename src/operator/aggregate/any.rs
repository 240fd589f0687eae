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
use crate::error::Error;
use crate::operator::evaluate::failure;
use crate::operator::{StateReader, StateWriter};

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
        let values = accumulator.state().map_err(failure)?;
        let columns = values.iter().map(|value| value.to_array().map_err(failure));
        let mut fresh = self.function.create_accumulator().map_err(failure)?;
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

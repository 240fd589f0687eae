//! Any aggregate: an accumulator for each group or, where it can't take rows away, the rows.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, new_empty_array};
use datafusion_common::ScalarValue;
use datafusion_expr::Accumulator;
use datafusion_physical_expr::aggregate::AggregateFunctionExpr;

use super::{Reversible, Step, scalar};
use crate::error::Error;
use crate::operator::evaluate::failure;

pub(super) struct AnyStates {
    function: Arc<AggregateFunctionExpr>,
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
    pub(super) fn new(function: Arc<AggregateFunctionExpr>, removes: bool) -> Self {
        Self { function, removes, groups: Vec::new() }
    }

    fn group(&self) -> Result<Group, Error> {
        if self.removes {
            return Ok(Group::Rows(VecDeque::new()));
        }
        Ok(Group::State(self.function.create_accumulator().map_err(failure)?))
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

    fn size(&self) -> usize {
        let row = |row: &Vec<ScalarValue>| row.iter().map(ScalarValue::size).sum::<usize>();
        let group = |group: &Group| match group {
            Group::State(accumulator) => accumulator.size(),
            Group::Rows(rows) => rows.iter().map(row).sum(),
        };
        self.groups.iter().map(group).sum()
    }
}

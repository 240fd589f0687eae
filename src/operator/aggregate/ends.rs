//! The first, the n-th and the last value of a frame.

use std::collections::VecDeque;

use arrow::array::{Array, ArrayRef, new_empty_array};
use arrow::datatypes::DataType;
use datafusion_common::ScalarValue;

use super::kept::{keep, kept, value_column};
use super::{Reversible, Step, scalar};
use crate::error::Error;
use crate::operator::evaluate::failure;
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};

/// FIRST_VALUE, NTH_VALUE or LAST_VALUE. Rows go in the order in which they came.
pub(super) struct Ends {
    pub(super) place: Place,
    pub(super) ignores_nulls: bool,
    pub(super) removes: bool,
    pub(super) data_type: DataType,
    pub(super) groups: Vec<VecDeque<ScalarValue>>,
}

/// Which value of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::operator) enum Place {
    /// Counted from 0.
    FromFirst(usize),
    Last,
}

impl Ends {
    fn counts(&self, values: &ArrayRef, row: u32) -> bool {
        !self.ignores_nulls || values.is_valid(row as usize)
    }
}

impl Reversible for Ends {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.groups.resize_with(groups.max(self.groups.len()), VecDeque::new);
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let column = args.first().ok_or_else(|| Error::internal("aggregate", "an argument lacks"))?;
        let none = ScalarValue::try_from(&self.data_type).map_err(failure)?;
        let mut values = Vec::new();
        for step in steps {
            match *step {
                Step::Add { group, row } if self.counts(column, row) => {
                    let known = &mut self.groups[group as usize];
                    match (self.removes, self.place) {
                        (true, _) => known.push_back(scalar(column, row)?),
                        (false, Place::FromFirst(place)) if known.len() > place => {}
                        (false, Place::Last) if !known.is_empty() => known[0] = scalar(column, row)?,
                        (false, _) => known.push_back(scalar(column, row)?),
                    }
                }
                Step::Remove { group, row } if self.counts(column, row) => {
                    self.groups[group as usize].pop_front();
                }
                Step::Add { .. } | Step::Remove { .. } => {}
                Step::Give { group } => {
                    let known = &self.groups[group as usize];
                    let value = match self.place {
                        Place::FromFirst(place) => known.get(place),
                        Place::Last => known.back(),
                    };
                    values.push(value.unwrap_or(&none).clone());
                }
                Step::Clear { group } => self.groups[group as usize].clear(),
            }
        }
        match values.is_empty() {
            true => Ok(new_empty_array(&self.data_type)),
            false => ScalarValue::iter_to_array(values).map_err(failure),
        }
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for (place, group) in groups.iter().enumerate() {
            let known = &self.groups[*group as usize];
            places.extend(std::iter::repeat_n(place as u32, known.len()));
            values.extend(known.iter().cloned());
        }
        keep(state, "values", places, vec![value_column(values, &self.data_type)?])
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "values", groups)?;
        let values = columns.first().ok_or_else(|| misfit("no values"))?;
        for (row, group) in groups.into_iter().enumerate() {
            self.groups[group as usize].push_back(scalar(values, row as u32)?);
        }
        Ok(())
    }

    fn size(&self) -> usize {
        self.groups.iter().flatten().map(ScalarValue::size).sum()
    }
}

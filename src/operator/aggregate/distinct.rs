//! Aggregates of different values: each is added when its first row comes and removed with the last.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use foldhash::fast::RandomState;
use std::collections::HashMap;

use super::{Reversible, Step};
use crate::error::{Error, code};
use crate::operator::evaluate::arrow_failure;

/// Another aggregate, over different values.
pub(super) struct Distinct {
    inner: Box<dyn Reversible>,
    converter: RowConverter,
    /// Of each group, how often each value is there.
    groups: Vec<HashMap<Box<[u8]>, u64, RandomState>>,
    bytes: usize,
}

impl Distinct {
    pub(super) fn try_new(inner: Box<dyn Reversible>, types: &[DataType]) -> Result<Self, Error> {
        let fields = types.iter().map(|data_type| SortField::new(data_type.clone())).collect();
        let converter = RowConverter::new(fields).map_err(|error| {
            Error::plan(code::NOT_SUPPORTED, format!("DISTINCT can't tell such values apart: {error}"))
        })?;
        Ok(Self { inner, converter, groups: Vec::new(), bytes: 0 })
    }
}

impl Reversible for Distinct {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.groups.resize_with(groups.max(self.groups.len()), HashMap::default);
        self.inner.grow(groups)
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let rows = self.converter.convert_columns(args).map_err(|error| arrow_failure(&error))?;
        let mut passed = Vec::with_capacity(steps.len());
        for step in steps {
            match *step {
                Step::Add { group, row } => {
                    let (value, known) = (rows.row(row as usize), &mut self.groups[group as usize]);
                    if let Some(count) = known.get_mut(value.data()) {
                        *count += 1;
                        continue;
                    }
                    known.insert(value.data().into(), 1);
                    self.bytes += value.data().len();
                }
                Step::Remove { group, row } => {
                    let (value, known) = (rows.row(row as usize), &mut self.groups[group as usize]);
                    match known.get_mut(value.data()) {
                        Some(count) if *count > 1 => {
                            *count -= 1;
                            continue;
                        }
                        Some(_) => drop(known.remove(value.data())),
                        None => return Err(Error::internal("aggregate", "a row goes that never came")),
                    }
                    self.bytes -= value.data().len();
                }
                Step::Clear { group } => {
                    let known = std::mem::take(&mut self.groups[group as usize]);
                    self.bytes -= known.keys().map(|value| value.len()).sum::<usize>();
                }
                Step::Give { .. } => {}
            }
            passed.push(*step);
        }
        self.inner.run(&passed, args)
    }

    fn size(&self) -> usize {
        let entry = size_of::<Box<[u8]>>() + size_of::<u64>();
        let entries: usize = self.groups.iter().map(HashMap::capacity).sum();
        self.inner.size() + entries * entry + self.bytes
    }
}

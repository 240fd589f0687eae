//! Aggregates of different values: each is added when its first row comes and removed with the last.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::{Reversible, Step};
use crate::error::Error;
use crate::operator::value_sets::ValueSets;

/// Another aggregate of one argument, which counts no NULL, over different values.
pub(super) struct Distinct {
    inner: Box<dyn Reversible>,
    /// How often each value is there.
    values: ValueSets<u64>,
}

impl Distinct {
    pub(super) fn try_new(inner: Box<dyn Reversible>, arg: &DataType) -> Result<Self, Error> {
        Ok(Self { inner, values: ValueSets::try_new(arg)? })
    }
}

impl Reversible for Distinct {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.values.grow(groups);
        self.inner.grow(groups)
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let arg = args.first().ok_or_else(|| Error::internal("aggregate", "an argument lacks"))?;
        let values = self.values.values(arg)?;
        let mut passed = Vec::with_capacity(steps.len());
        for step in steps {
            let passes = match *step {
                Step::Add { group, row } => match self.values.add(group, &values, row as usize) {
                    Some(count) => {
                        *count += 1;
                        *count == 1
                    }
                    None => false,
                },
                Step::Remove { group, row } => {
                    let gone = self.values.remove(group, &values, row as usize, |count| {
                        *count -= 1;
                        *count == 0
                    });
                    gone?.unwrap_or(false)
                }
                Step::Clear { group } => {
                    self.values.clear(group);
                    true
                }
                Step::Give { .. } => true,
            };
            if passes {
                passed.push(*step);
            }
        }
        self.inner.run(&passed, args)
    }

    fn size(&self) -> usize {
        self.inner.size() + self.values.size()
    }
}

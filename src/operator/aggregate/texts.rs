//! MIN and MAX of text.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringBuilder};

use super::kept::{count_column, counts, keep, kept};
use super::{Reversible, Step};
use crate::error::Error;
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};

/// The least or the greatest text of each group, by its bytes, of rows that may go: how often each text is there.
pub(super) struct Texts {
    is_max: bool,
    groups: Vec<BTreeMap<Box<str>, u64>>,
    bytes: usize,
}

impl Texts {
    pub(super) fn new(is_max: bool) -> Self {
        Self { is_max, groups: Vec::new(), bytes: 0 }
    }
}

impl Reversible for Texts {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.groups.resize_with(groups.max(self.groups.len()), BTreeMap::new);
        Ok(())
    }

    fn run(&mut self, steps: &[Step], args: &[ArrayRef]) -> Result<ArrayRef, Error> {
        let column = args.first().and_then(|arg| arg.as_string_opt::<i32>());
        let column = column.ok_or_else(|| Error::internal("aggregate", "an argument has another type"))?;
        let mut values = StringBuilder::new();
        for step in steps {
            match *step {
                Step::Add { row, .. } | Step::Remove { row, .. } if column.is_null(row as usize) => {}
                Step::Add { group, row } => {
                    let (text, texts) = (column.value(row as usize), &mut self.groups[group as usize]);
                    match texts.get_mut(text) {
                        Some(count) => *count += 1,
                        None => {
                            self.bytes += text.len();
                            texts.insert(text.into(), 1);
                        }
                    }
                }
                Step::Remove { group, row } => {
                    let (text, texts) = (column.value(row as usize), &mut self.groups[group as usize]);
                    match texts.get_mut(text) {
                        Some(count) if *count > 1 => *count -= 1,
                        Some(_) => {
                            self.bytes -= text.len();
                            texts.remove(text);
                        }
                        None => return Err(Error::internal("aggregate", "a row goes that never came")),
                    }
                }
                Step::Give { group } => {
                    let texts = &self.groups[group as usize];
                    let best = if self.is_max { texts.keys().next_back() } else { texts.keys().next() };
                    values.append_option(best);
                }
                Step::Clear { group } => {
                    let texts = std::mem::take(&mut self.groups[group as usize]);
                    self.bytes -= texts.keys().map(|text| text.len()).sum::<usize>();
                }
            }
        }
        Ok(Arc::new(values.finish()))
    }

    fn snapshot(&mut self, groups: &[u32], state: &mut StateWriter) -> Result<(), Error> {
        let (mut places, mut values, mut counts) = (Vec::new(), StringBuilder::new(), Vec::new());
        for (place, group) in groups.iter().enumerate() {
            for (text, count) in &self.groups[*group as usize] {
                places.push(place as u32);
                values.append_value(text);
                counts.push(*count);
            }
        }
        keep(state, "values", places, vec![Arc::new(values.finish()), count_column(counts)])
    }

    fn restore(&mut self, groups: &[u32], state: &mut StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "values", groups)?;
        let counts = counts(&columns, 1)?;
        let texts = columns[0].as_string_opt::<i32>().ok_or_else(|| misfit("texts of another type"))?;
        for ((group, text), count) in groups.into_iter().zip(texts.iter().flatten()).zip(counts) {
            self.bytes += text.len();
            self.groups[group as usize].insert(text.into(), *count);
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let entry = 2 * (size_of::<Box<str>>() + size_of::<u64>());
        let texts: usize = self.groups.iter().map(BTreeMap::len).sum();
        self.groups.capacity() * size_of::<BTreeMap<Box<str>, u64>>() + texts * entry + self.bytes
    }
}

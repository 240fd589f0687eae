//! MIN and MAX of text.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringArray, StringBuilder};

use super::accumulator::{Accumulators, Input, Use};
use super::kept::next;
use crate::error::Error;
use crate::operator::state::misfit;

/// The least or the greatest text of each group, by its bytes.
pub(super) struct Texts {
    is_max: bool,
    best: Vec<Option<String>>,
}

impl Texts {
    pub(super) fn new(is_max: bool) -> Self {
        Self { is_max, best: Vec::new() }
    }

    fn add(&mut self, group: u32, text: &str) {
        match &mut self.best[group as usize] {
            Some(best) if (if self.is_max { best.as_str() < text } else { text < best.as_str() }) => {
                best.clear();
                best.push_str(text);
            }
            Some(_) => {}
            none => *none = Some(text.to_owned()),
        }
    }

    fn update_row(&mut self, place: usize, one: &Use, texts: &StringArray, input: &Input<'_>) {
        let row = one.row as usize;
        if texts.is_valid(row) && input.keeps(place, one.row) {
            self.add(one.group, texts.value(row));
        }
    }
}

fn texts<'a>(input: &Input<'a>) -> Result<&'a StringArray, Error> {
    let column = input.args.first().and_then(|arg| arg.as_string_opt());
    column.ok_or_else(|| Error::internal("WindowAggregate", "an argument has another type than planned"))
}

impl Accumulators for Texts {
    fn grow(&mut self, groups: usize) -> Result<(), Error> {
        self.best.resize(groups.max(self.best.len()), None);
        Ok(())
    }

    fn update(&mut self, uses: &[Use], input: Input<'_>) -> Result<(), Error> {
        let texts = texts(&input)?;
        for (place, one) in uses.iter().enumerate() {
            self.update_row(place, one, texts, &input);
        }
        Ok(())
    }

    fn update_each(&mut self, uses: &[Use], input: Input<'_>) -> Result<(ArrayRef, ArrayRef), Error> {
        let texts = texts(&input)?;
        let (mut before, mut after) = (StringBuilder::new(), StringBuilder::new());
        for (place, one) in uses.iter().enumerate() {
            before.append_option(self.best[one.group as usize].as_deref());
            self.update_row(place, one, texts, &input);
            after.append_option(self.best[one.group as usize].as_deref());
        }
        Ok((Arc::new(before.finish()), Arc::new(after.finish())))
    }

    fn joins(&self) -> bool {
        true
    }

    fn join(&mut self, into: u32, from: u32) {
        if let Some(text) = self.best[from as usize].take() {
            self.add(into, &text);
            self.best[from as usize] = Some(text);
        }
    }

    fn clear(&mut self, group: u32) -> Result<(), Error> {
        self.best[group as usize] = None;
        Ok(())
    }

    fn values(&mut self, groups: &[u32]) -> Result<ArrayRef, Error> {
        let values = groups.iter().map(|group| self.best[*group as usize].as_deref());
        Ok(Arc::new(values.collect::<StringArray>()))
    }

    fn write(&mut self, groups: &[u32]) -> Result<Vec<ArrayRef>, Error> {
        Ok(vec![self.values(groups)?])
    }

    fn read(
        &mut self,
        columns: &mut std::slice::Iter<'_, ArrayRef>,
        rows: &[u32],
        groups: &[u32],
    ) -> Result<(), Error> {
        let texts = next(columns)?.as_string_opt::<i32>().ok_or_else(|| misfit("texts of another type"))?;
        for (row, group) in rows.iter().zip(groups) {
            let row = *row as usize;
            self.best[*group as usize] = texts.is_valid(row).then(|| texts.value(row).to_owned());
        }
        Ok(())
    }

    fn size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::capacity);
        self.best.capacity() * size_of::<Option<String>>() + self.best.iter().map(text).sum::<usize>()
    }
}

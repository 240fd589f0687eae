//! LAG and LEAD that leave out NULLs.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array};
use arrow::compute::{concat, interleave, take};
use arrow::datatypes::SchemaRef;
use datafusion_common::ScalarValue;

use super::compute::Work;
use crate::error::Error;
use crate::operator::aggregate::{keep, kept};
use crate::operator::evaluate::{arrow_failure, evaluate, failure};
use crate::operator::state::misfit;
use crate::operator::{StateReader, StateWriter};
use crate::plan::ExprRef;

/// `LAG(value, by, default) IGNORE NULLS`; below zero LEAD, which needs all rows of the partition at once.
pub(super) struct ShiftOverNulls {
    value: ExprRef,
    by: i64,
    default: ScalarValue,
    /// Of each group its last values that were not NULL, `by` at most.
    before: Vec<Option<ArrayRef>>,
}

impl ShiftOverNulls {
    pub(super) fn new(value: &ExprRef, by: i64, default: &ScalarValue) -> Self {
        Self { value: Arc::clone(value), by, default: default.clone(), before: Vec::new() }
    }

    /// Makes room for so many groups.
    pub(super) fn grow(&mut self, groups: usize) {
        self.before.resize(groups, None);
    }

    /// Forgets a group.
    pub(super) fn clear(&mut self, group: u32) {
        self.before[group as usize] = None;
    }

    /// The values of the new rows.
    pub(super) fn run(&mut self, work: &Work<'_>) -> Result<ArrayRef, Error> {
        let values = evaluate(&self.value, work.rows)?;
        let nulls = values.logical_nulls();
        let is_known = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let empty = new_empty_array(values.data_type());
        let mut pieces: Vec<ArrayRef> = vec![Arc::clone(&values), self.default.to_array().map_err(failure)?];
        let mut picks: Vec<(usize, usize)> = Vec::with_capacity(values.len());
        let mut known: Vec<usize> = Vec::new();
        for part in work.parts {
            let before = self.before[part.group as usize].as_ref().unwrap_or(&empty);
            let (piece, earlier) = (pieces.len(), before.len());
            known.clear();
            known.extend((part.new..part.to).filter(|row| is_known(*row)));
            // How many of the known values are before the row.
            let mut passed = earlier;
            for row in part.new..part.to {
                let counts = is_known(row);
                let wanted = match self.by {
                    0 => None,
                    by if by > 0 => usize::try_from(passed as i128 - i128::from(by)).ok(),
                    by => usize::try_from(passed as i128 + i128::from(counts) - i128::from(by) - 1).ok(),
                };
                picks.push(match wanted {
                    None if self.by == 0 => (0, row),
                    Some(place) if place < earlier => (piece, place),
                    Some(place) => known.get(place - earlier).map_or((1, 0), |row| (0, *row)),
                    None => (1, 0),
                });
                passed += usize::from(counts);
            }
            let kept = usize::try_from(self.by.max(0)).unwrap_or(usize::MAX);
            let last: Option<ArrayRef> = match known.is_empty() || kept == 0 {
                true => None,
                false => {
                    let of_all = |place: usize| match place.checked_sub(earlier) {
                        None => (0, place),
                        Some(place) => (1, known[place]),
                    };
                    let all = earlier + known.len();
                    let places: Vec<_> = (all.saturating_sub(kept)..all).map(of_all).collect();
                    let sources: [&dyn Array; 2] = [before.as_ref(), values.as_ref()];
                    Some(interleave(&sources, &places).map_err(|error| arrow_failure(&error))?)
                }
            };
            if earlier > 0 {
                pieces.push(Arc::clone(before));
            }
            if last.is_some() {
                self.before[part.group as usize] = last;
            }
        }
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        interleave(&pieces, &picks).map_err(|error| arrow_failure(&error))
    }

    /// Hands on the values of groups that are the rows of a table.
    pub(super) fn snapshot(
        &self,
        groups: &[u32],
        input: &SchemaRef,
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        let data_type = self.value.data_type(input).map_err(failure)?;
        let empty = new_empty_array(&data_type);
        let mut pieces: Vec<&dyn Array> = vec![empty.as_ref()];
        let mut places = Vec::new();
        for (place, group) in groups.iter().enumerate() {
            if let Some(values) = &self.before[*group as usize] {
                places.extend(std::iter::repeat_n(place as u32, values.len()));
                pieces.push(values.as_ref());
            }
        }
        let values = concat(&pieces).map_err(|error| arrow_failure(&error))?;
        keep(state, "before", places, vec![values])
    }

    /// Takes up values that [`ShiftOverNulls::snapshot`] handed on.
    pub(super) fn restore(&mut self, groups: &[u32], state: &StateReader) -> Result<(), Error> {
        let (groups, columns) = kept(state, "before", groups)?;
        let values = columns.first().ok_or_else(|| misfit("no values"))?;
        let mut from = 0;
        for run in groups.chunk_by(|one, other| one == other) {
            let rows = UInt32Array::from_iter_values(from..from + run.len() as u32);
            let own = take(values, &rows, None).map_err(|error| arrow_failure(&error))?;
            self.before[run[0] as usize] = Some(own);
            from += run.len() as u32;
        }
        Ok(())
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let values = |values: &ArrayRef| values.get_array_memory_size();
        self.before.iter().flatten().map(values).sum::<usize>()
            + self.before.capacity() * size_of::<Option<ArrayRef>>()
    }
}

//! Which groups have had a value.

use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};

use super::Column;

/// Nothing is kept as long as each row has a value: then each group has one.
#[derive(Debug, Default)]
pub(super) struct Seen(Option<Column<u8>>);

impl Seen {
    /// Takes note of rows; `taken`: those that have a value. There were `before` groups, and are `groups` now.
    pub(super) fn note(
        &mut self,
        ids: &[usize],
        taken: Option<&BooleanBuffer>,
        before: usize,
        groups: usize,
    ) {
        if self.0.is_none() && taken.is_none() {
            return;
        }
        let seen = self.0.get_or_insert_with(|| {
            let mut seen = Column::default();
            seen.grow(before, 1);
            seen
        });
        seen.grow(groups, 0);
        seen.visit(ids, taken, |seen| *seen = 1);
    }

    /// Takes what is known, for all groups.
    pub(super) fn take(&mut self) -> Option<NullBuffer> {
        self.0.take().map(|mut seen| nulls(&seen.take()))
    }

    /// For each of so many chunks.
    pub(super) fn share(&mut self, chunks: usize) -> Vec<Option<NullBuffer>> {
        match &mut self.0 {
            None => vec![None; chunks],
            Some(seen) => seen.share().iter().map(|seen| Some(nulls(seen))).collect(),
        }
    }

    pub(super) fn size(&self) -> usize {
        self.0.as_ref().map_or(0, Column::size)
    }
}

fn nulls(seen: &ScalarBuffer<u8>) -> NullBuffer {
    NullBuffer::new(BooleanBuffer::collect_bool(seen.len(), |group| seen[group] != 0))
}

//! Sealed slices that hop windows share, and merged blocks of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::kept::{Kept, merge};
use super::recipe::Recipe;
use super::table::Results;
use crate::error::Error;
use crate::operator::SpillStore;

/// Sealed slices by number, and the merged states of blocks of 2, 4, 8, … neighbours that start at
/// a multiple of their length.
///
/// A window of n slices is at most 2·log₂ n blocks; a block is merged once, from its halves. So
/// what a firing costs grows with the groups and log n. A slice and the blocks that it is in are
/// dropped when no window to come needs them.
#[derive(Default)]
pub(super) struct Slices {
    slices: BTreeMap<i64, Arc<Kept>>,
    /// By (number of the first slice, log₂ of the length ≥ 1).
    blocks: BTreeMap<(i64, u32), Arc<Kept>>,
    /// The longest block so far, log₂.
    highest: u32,
}

impl Slices {
    pub(super) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.slices.len()
    }

    /// The slices with their numbers, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &Kept)> {
        self.slices.iter().map(|(index, kept)| (*index, kept.as_ref()))
    }

    /// Adds what windows to come count for slice `index`.
    pub(super) fn add(
        &mut self,
        recipe: &Recipe,
        index: i64,
        kept: Kept,
        ids: &mut Vec<usize>,
    ) -> Result<(), Error> {
        let kept = match self.slices.get(&index) {
            None => kept,
            Some(before) => Kept::Here(merge(recipe, [before.as_ref(), &kept], ids)?.seal()?),
        };
        self.slices.insert(index, Arc::new(kept));
        for level in 1..=self.highest {
            self.blocks.remove(&((index >> level) << level, level));
        }
        Ok(())
    }

    /// The results of the slices `from..to`, merged; `None` if there is none.
    pub(super) fn window(
        &mut self,
        recipe: &Recipe,
        from: i64,
        to: i64,
        ids: &mut Vec<usize>,
    ) -> Result<Option<Results>, Error> {
        let mut parts = Vec::new();
        for (first, level) in cover(from, to) {
            parts.extend(self.block(recipe, first, level, ids)?);
        }
        match parts.as_slice() {
            [] => Ok(None),
            [one] => one.results(recipe, ids).map(Some),
            many => merge(recipe, many.iter().map(Arc::as_ref), ids)?.results().map(Some),
        }
    }

    /// The block of 2^`level` slices from `first`; `None` if it is empty.
    fn block(
        &mut self,
        recipe: &Recipe,
        first: i64,
        level: u32,
        ids: &mut Vec<usize>,
    ) -> Result<Option<Arc<Kept>>, Error> {
        if level == 0 {
            return Ok(self.slices.get(&first).cloned());
        }
        if let Some(known) = self.blocks.get(&(first, level)) {
            return Ok(Some(Arc::clone(known)));
        }
        if self.slices.range(first..first + (1 << level)).next().is_none() {
            return Ok(None);
        }
        let left = self.block(recipe, first, level - 1, ids)?;
        let right = self.block(recipe, first + (1 << (level - 1)), level - 1, ids)?;
        let block = match (left, right) {
            (Some(left), Some(right)) => {
                Arc::new(Kept::Here(merge(recipe, [left.as_ref(), right.as_ref()], ids)?.seal()?))
            }
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return Ok(None),
        };
        self.highest = self.highest.max(level);
        self.blocks.insert((first, level), Arc::clone(&block));
        Ok(Some(block))
    }

    /// Drops what only windows that start before slice `from` need.
    pub(super) fn drop_before(&mut self, from: i64) {
        while let Some(first) = self.slices.first_entry().filter(|first| *first.key() < from) {
            first.remove();
        }
        while let Some(first) = self.blocks.first_entry().filter(|first| first.key().0 < from) {
            first.remove();
        }
    }

    /// Groups that are kept, and bytes with those of blocks.
    pub(super) fn size(&self) -> (usize, usize) {
        let groups = self.slices.values().map(|one| one.groups()).sum();
        (groups, self.slices.values().chain(self.blocks.values()).map(|one| one.size()).sum())
    }

    /// Bytes that were put away.
    pub(super) fn spilled(&self) -> u64 {
        self.slices.values().chain(self.blocks.values()).map(|one| one.spilled()).sum()
    }

    /// Puts slices and blocks away, the largest first, until that gave up so many bytes; the bytes. Each of them is read
    /// again for a few of the windows that it is in.
    pub(super) fn put_away(&mut self, wanted: usize, store: &dyn SpillStore) -> Result<usize, Error> {
        let mut here: Vec<(usize, Arc<Kept>)> = self
            .slices
            .values()
            .chain(self.blocks.values())
            .filter(|kept| matches!(kept.as_ref(), Kept::Here(_)))
            .map(|kept| (kept.size(), Arc::clone(kept)))
            .collect();
        here.sort_by_key(|(size, _)| Reverse(*size));
        let mut given_up = 0;
        for (size, kept) in here {
            if given_up >= wanted {
                break;
            }
            let mut all = self.slices.values().chain(self.blocks.values());
            let Kept::Here(sealed) = kept.as_ref() else { continue };
            // A block of one slice is that slice, and may be done.
            if !all.any(|other| Arc::ptr_eq(other, &kept)) {
                continue;
            }
            let away = Arc::new(Kept::Away(sealed.put_away(store)?));
            for other in self.slices.values_mut().chain(self.blocks.values_mut()) {
                if Arc::ptr_eq(other, &kept) {
                    *other = Arc::clone(&away);
                }
            }
            given_up += size;
        }
        Ok(given_up)
    }
}

/// The fewest blocks that make up `from..to`, ascending: first slice and log₂ of the length.
fn cover(from: i64, to: i64) -> impl Iterator<Item = (i64, u32)> {
    let mut at = from;
    std::iter::from_fn(move || {
        let left = to.checked_sub(at).filter(|left| *left > 0)?;
        let block = (at, at.trailing_zeros().min(left.ilog2()));
        at += 1 << block.1;
        Some(block)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_few_blocks_that_touch() {
        for from in -70..70 {
            for length in [1, 2, 3, 60, 3_600] {
                let mut at = from;
                let mut blocks = 0;
                for (first, level) in cover(from, from + length) {
                    assert_eq!(first, at);
                    assert_eq!(first % (1 << level), 0, "aligned, below 0 too");
                    at += 1 << level;
                    blocks += 1;
                }
                assert_eq!(at, from + length);
                assert!(blocks <= 2 * (length.ilog2() + 1), "{blocks} blocks for {length} slices");
            }
        }
        assert_eq!(cover(5, 5).count(), 0);
        assert_eq!(cover(0, 8).collect::<Vec<_>>(), [(0, 3)]);
        assert_eq!(cover(-3, 2).collect::<Vec<_>>(), [(-3, 0), (-2, 1), (0, 1)]);
    }
}

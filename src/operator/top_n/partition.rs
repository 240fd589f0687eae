//! The rows of a partition, in order, and which of them are the first ones.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::order::{Entry, OrderKey};
use crate::plan::RankKind;

#[derive(Default)]
pub(super) struct Partition {
    /// The rows that come out, in order.
    pub(super) top: Vec<Entry>,
    /// Those behind them, of a changelog.
    pub(super) rest: BTreeSet<Entry>,
}

/// How many rows come out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) rank: RankKind,
    pub(super) most: usize,
    /// Rows behind the first ones are kept.
    pub(super) keeps_all: bool,
}

/// What a change does to the rows of a partition.
#[derive(Default)]
pub(super) struct Moves {
    /// Where the first rows begin to differ; `usize::MAX`: nowhere.
    pub(super) from: usize,
    pub(super) left: Vec<u32>,
    pub(super) entered: Vec<u32>,
    /// Rows that are not kept any more.
    pub(super) dropped: Vec<u32>,
    /// Both forms of a row that is updated.
    pub(super) forms: Option<(u32, u32)>,
}

impl Moves {
    pub(super) fn clear(&mut self) {
        self.from = usize::MAX;
        self.left.clear();
        self.entered.clear();
        self.dropped.clear();
        self.forms = None;
    }

    /// Leaves out rows that both leave and enter.
    pub(super) fn settle(&mut self) {
        if self.left.iter().any(|slot| self.entered.contains(slot)) {
            let left = self.left.clone();
            self.left.retain(|slot| !self.entered.contains(slot));
            self.entered.retain(|slot| !left.contains(slot));
        }
    }
}

impl Limit {
    /// Whether a row whose key compares so with the last of `top`, and that is not before it, is among the first
    /// ones.
    pub(super) fn fits(self, top: &[Entry], compares: Ordering) -> bool {
        match self.rank {
            _ if top.is_empty() => self.most > 0,
            RankKind::RowNumber => top.len() < self.most,
            RankKind::Rank => compares == Ordering::Equal || top.len() < self.most,
            RankKind::DenseRank => compares == Ordering::Equal || distinct(top) < self.most,
        }
    }

    fn fits_key(self, top: &[Entry], key: &OrderKey) -> bool {
        let compares = top.last().map_or(Ordering::Greater, |last| key.cmp(&last.key));
        self.fits(top, compares)
    }

    /// Whether the last row is not among the first ones any more.
    fn is_over_full(self, top: &[Entry]) -> bool {
        let Some(last) = top.last() else { return false };
        match self.rank {
            RankKind::RowNumber => top.len() > self.most,
            RankKind::Rank => top.partition_point(|entry| entry.key < last.key) >= self.most,
            RankKind::DenseRank => distinct(top) > self.most,
        }
    }

    /// Writes the slots and ranks of the rows from a place on to `ranks`, in place of what it held.
    pub(super) fn ranks(self, top: &[Entry], from: usize, ranks: &mut Vec<(u32, i64)>) {
        ranks.clear();
        let Some(first) = top.get(from) else { return };
        if self.rank == RankKind::RowNumber {
            ranks.extend(top[from..].iter().map(|entry| entry.slot).zip(from as i64 + 1..));
            return;
        }
        let mut rank = top.partition_point(|entry| entry.key < first.key) as i64 + 1;
        let mut dense = match self.rank {
            RankKind::DenseRank => distinct(&top[..=from]) as i64,
            RankKind::RowNumber | RankKind::Rank => 0,
        };
        for (place, entry) in (from..).zip(&top[from..]) {
            if place > from && top[place - 1].key != entry.key {
                rank = place as i64 + 1;
                dense += 1;
            }
            ranks.push((entry.slot, if self.rank == RankKind::Rank { rank } else { dense }));
        }
    }
}

/// How many sort keys there are.
fn distinct(top: &[Entry]) -> usize {
    top.chunk_by(|one, other| one.key == other.key).count()
}

impl Partition {
    pub(super) fn is_empty(&self) -> bool {
        self.top.is_empty() && self.rest.is_empty()
    }

    /// The first place where a change may make a difference.
    pub(super) fn first_change(&self, gone: Option<&Entry>, new: Option<&Entry>) -> usize {
        let gone = gone.and_then(|gone| self.top.binary_search(gone).ok());
        let new = new.map(|new| self.top.partition_point(|known| known < new));
        gone.into_iter().chain(new).min().unwrap_or(self.top.len())
    }

    /// Takes a row out and puts one in; whether the new one is kept.
    pub(super) fn shift(
        &mut self,
        limit: Limit,
        gone: Option<&Entry>,
        new: Option<Entry>,
        moves: &mut Moves,
    ) -> bool {
        if let Some(gone) = gone {
            if let Ok(place) = self.top.binary_search(gone) {
                self.top.remove(place);
                moves.from = moves.from.min(place);
                moves.left.push(gone.slot);
            } else {
                self.rest.remove(gone);
            }
            moves.dropped.push(gone.slot);
        }
        // What comes is put where it belongs, before rows move up.
        let mut is_kept = false;
        let first = moves.left.len();
        if let Some(new) = new {
            let place = self.top.partition_point(|known| *known < new);
            let is_last = place == self.top.len();
            let is_behind_rest = is_last && self.rest.first().is_some_and(|first| *first < new);
            if !is_behind_rest && (!is_last || limit.fits_key(&self.top, &new.key)) {
                if limit.rank == RankKind::RowNumber && self.top.len() >= limit.most {
                    self.drop_last(limit, moves);
                }
                moves.from = moves.from.min(place);
                moves.entered.push(new.slot);
                if self.top.capacity() == 0 {
                    self.top.reserve_exact(limit.most.min(4));
                }
                self.top.insert(place, new);
                is_kept = true;
            } else if limit.keeps_all {
                self.rest.insert(new);
                is_kept = true;
            } else {
                moves.dropped.push(new.slot);
            }
        }
        while let Some(next) = self.rest.first() {
            if !limit.fits_key(&self.top, &next.key) {
                break;
            }
            if let Some(next) = self.rest.pop_first() {
                moves.from = moves.from.min(self.top.len());
                moves.entered.push(next.slot);
                self.top.push(next);
            }
        }
        while limit.is_over_full(&self.top) {
            self.drop_last(limit, moves);
        }
        moves.left[first..].reverse();
        is_kept
    }

    /// Takes out the last of the first rows.
    fn drop_last(&mut self, limit: Limit, moves: &mut Moves) {
        let Some(last) = self.top.pop() else { return };
        moves.from = moves.from.min(self.top.len());
        moves.left.push(last.slot);
        if limit.keeps_all {
            self.rest.insert(last);
        } else {
            moves.dropped.push(last.slot);
        }
    }
}

//! Rows whose keys have no number yet.
//!
//! A number for a key, and a group for its rows, cost more than all else that is done with a row. Where few rows of the
//! other input come, most rows are gone before one has their key. So the keys of a batch lie here as they are, until rows
//! come that may be equal: few of them are compared with each, for many all get their numbers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::operator::keys::KeyRows;

/// So many keys can be compared in the time in which one gets a number and gives it back.
const COMPARED_FOR_ONE: usize = 128;
/// After so many rows that got their numbers all the same it looks whether others did not.
const TRIAL_ROWS: usize = 65_536;
/// So many rows of a batch tell when most of them are over.
const SAMPLE: usize = 64;

/// The rows of an input whose keys have no number: in the order in which they came.
#[derive(Default)]
pub(super) struct Later {
    batches: VecDeque<Batch>,
    /// The number of the batch that comes next.
    next: u64,
    /// When most rows of a batch are over, and its number.
    due: BinaryHeap<Reverse<(i64, u64)>>,
    /// Rows that are here, and those of their batches.
    rows: usize,
    held: usize,
    /// So many keys may be compared before giving all of them a number would have been less work.
    credit: usize,
    /// Rows that have left it: with a number, and because they are over.
    numbered: usize,
    gone: usize,
}

struct Batch {
    number: u64,
    keys: KeyRows,
    /// By row: its slot; `NOWHERE`: it is not here.
    slots: Vec<u32>,
    /// By row: when nothing can join it any more. Empty: that is never so.
    over: Vec<i64>,
    /// Rows that are here.
    left: usize,
}

/// A row that leaves: its slot, its key and when nothing can join it any more.
pub(super) struct Leaving<'a> {
    pub(super) slot: u32,
    pub(super) keys: &'a KeyRows,
    pub(super) row: usize,
    pub(super) over: Option<i64>,
}

pub(super) const NOWHERE: u32 = u32::MAX;

impl Batch {
    /// Takes a row out, if it is here.
    fn leave(&mut self, row: usize) -> Option<Leaving<'_>> {
        let slot = std::mem::replace(&mut self.slots[row], NOWHERE);
        if slot == NOWHERE {
            return None;
        }
        self.left -= 1;
        Some(Leaving { slot, keys: &self.keys, row, over: self.over.get(row).copied() })
    }

    /// When most of its rows are over; `None`: none ever is.
    fn due(&self) -> Option<i64> {
        let here = || self.slots.iter().zip(&self.over).filter(|(slot, _)| **slot != NOWHERE);
        let mut sample: Vec<i64> =
            here().step_by(self.left.div_ceil(SAMPLE).max(1)).map(|(_, over)| *over).collect();
        sample.sort_unstable();
        sample.get(sample.len().saturating_sub(1 + sample.len() / 8)).copied()
    }
}

impl Later {
    /// Whether it is worth it: most rows are gone before their key is needed.
    pub(super) fn pays(&self) -> bool {
        self.numbered < TRIAL_ROWS || self.numbered / 2 < self.gone
    }

    /// Adds the rows of a batch that have a slot. `over`: by row, when nothing can join it any more; empty: that is never
    /// so.
    pub(super) fn add(&mut self, keys: KeyRows, slots: Vec<u32>, over: Vec<i64>) {
        let left = slots.iter().filter(|slot| **slot != NOWHERE).count();
        if left == 0 {
            return;
        }
        self.rows += left;
        self.held += slots.len();
        self.credit += COMPARED_FOR_ONE * left;
        let batch = Batch { number: self.next, keys, slots, over, left };
        self.due.extend(batch.due().map(|due| Reverse((due, self.next))));
        self.next += 1;
        self.batches.push_back(batch);
    }

    /// Takes rows out that are over, of each batch most of them at once and so perhaps later than they could be.
    pub(super) fn prune(&mut self, watermark: i64, mut gone: impl FnMut(u32)) {
        while let Some(Reverse((_, number))) = self.due.peek().copied().filter(|due| due.0.0 <= watermark) {
            self.due.pop();
            let Ok(place) = self.batches.binary_search_by_key(&number, |batch| batch.number) else {
                continue;
            };
            let batch = &mut self.batches[place];
            let before = batch.left;
            for (slot, over) in batch.slots.iter_mut().zip(&batch.over) {
                if *slot != NOWHERE && *over <= watermark {
                    gone(std::mem::replace(slot, NOWHERE));
                    batch.left -= 1;
                }
            }
            self.rows -= before - batch.left;
            self.gone += before - batch.left;
            match batch.left {
                0 => {
                    self.held -= batch.slots.len();
                    self.batches.remove(place);
                }
                _ => self.due.extend(batch.due().map(|due| Reverse((due, number)))),
            }
        }
    }

    /// Whether few rows of many batches are left: they cost more than numbers would.
    pub(super) fn is_sparse(&self) -> bool {
        self.held > 4 * self.rows + TRIAL_ROWS
    }

    /// Takes those out that may be equal to some of these rows, and perhaps others, in their order.
    pub(super) fn take(&mut self, keys: &KeyRows, rows: &[usize], mut give: impl FnMut(Leaving)) {
        if self.rows == 0 || rows.is_empty() {
            return;
        }
        let compared = self.rows.saturating_mul(rows.len());
        self.credit = self.credit.min(COMPARED_FOR_ONE * self.rows);
        if compared > self.credit {
            return self.take_all(give);
        }
        self.credit -= compared;
        let before = self.rows;
        for batch in &mut self.batches {
            for row in rows {
                let equal: Vec<usize> = batch.keys.equal_to(keys, *row).collect();
                for row in equal {
                    if let Some(leaving) = batch.leave(row) {
                        give(leaving);
                        self.rows -= 1;
                    }
                }
            }
        }
        self.numbered += before - self.rows;
        if self.rows < before {
            self.batches.retain(|batch| batch.left > 0);
            self.held = self.batches.iter().map(|batch| batch.slots.len()).sum();
        }
    }

    /// Takes all of them out, in their order.
    pub(super) fn take_all(&mut self, mut give: impl FnMut(Leaving)) {
        self.numbered += self.rows;
        for mut batch in self.batches.drain(..) {
            for row in 0..batch.slots.len() {
                if let Some(leaving) = batch.leave(row) {
                    give(leaving);
                }
            }
        }
        self.due.clear();
        (self.rows, self.held, self.credit) = (0, 0, 0);
    }

    /// The slots of all rows that are here.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        let slots = self.batches.iter().flat_map(|batch| batch.slots.iter().copied());
        slots.filter(|slot| *slot != NOWHERE)
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        let bytes = |batch: &Batch| {
            let over = batch.over.capacity() * size_of::<i64>();
            batch.keys.size() + batch.slots.capacity() * size_of::<u32>() + over
        };
        self.batches.iter().map(bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use arrow::record_batch::RecordBatch;

    use super::*;
    use crate::operator::keys::KeyFormat;
    use crate::operator::testing::{Row, input, record_batch};

    fn batch(values: impl IntoIterator<Item = i64>) -> RecordBatch {
        let rows: Vec<Row> = values.into_iter().map(|value| (None, None, Some(value))).collect();
        record_batch(&rows)
    }

    fn keys(values: impl IntoIterator<Item = i64>) -> KeyRows {
        KeyFormat::try_new(&[2], &input()).unwrap().rows(&batch(values)).unwrap()
    }

    /// Rows with the keys 0, 1, … in the slots 0, 1, …, and when they are over.
    fn add(later: &mut Later, over: &[i64]) {
        later.add(keys(0..over.len() as i64), (0..over.len() as u32).collect(), over.to_vec());
    }

    fn taken(later: &mut Later, asked: impl IntoIterator<Item = i64>) -> Vec<u32> {
        let asked: Vec<i64> = asked.into_iter().collect();
        let rows: Vec<usize> = (0..asked.len()).collect();
        let mut slots = Vec::new();
        later.take(&keys(asked), &rows, |leaving| slots.push(leaving.slot));
        slots
    }

    fn pruned(later: &mut Later, watermark: i64) -> Vec<u32> {
        let mut slots = Vec::new();
        later.prune(watermark, |slot| slots.push(slot));
        slots
    }

    #[test]
    fn rows_of_few_keys_are_found_and_the_others_stay() {
        let mut later = Later::default();
        later.add(keys([1, 2, 1, 3]), vec![10, 11, 12, NOWHERE], Vec::new());
        later.add(keys([3, 1]), vec![13, 14], Vec::new());
        assert_eq!(taken(&mut later, [5]), [0; 0]);
        assert_eq!(taken(&mut later, [1]), [10, 12, 14]);
        assert_eq!(taken(&mut later, [1]), [0; 0]);
        assert_eq!(later.slots().collect::<Vec<_>>(), [11, 13]);
        assert_eq!(pruned(&mut later, i64::MAX), [0; 0], "rows that stay for ever");
        assert_eq!(taken(&mut later, [3]), [13]);
        assert_eq!(taken(&mut later, [2]), [11]);
        assert_eq!((later.slots().count(), later.size()), (0, 0));
    }

    #[test]
    fn for_many_rows_all_are_taken_at_once() {
        let mut later = Later::default();
        add(&mut later, &[7; 100]);
        let (asked, mut over) = (keys(1_000..1_129), Vec::new());
        later.take(&asked, &(0..129).collect::<Vec<_>>(), |leaving| over.push((leaving.slot, leaving.over)));
        assert_eq!(over, (0..100).map(|slot| (slot, Some(7))).collect::<Vec<_>>());
        assert_eq!((later.slots().count(), pruned(&mut later, 7)), (0, Vec::new()));
    }

    #[test]
    fn comparing_again_and_again_ends_when_it_was_as_much_work() {
        let mut later = Later::default();
        add(&mut later, &[7; 100]);
        let rounds = (0..1_000).take_while(|_| taken(&mut later, [-1]).is_empty()).count();
        assert_eq!((rounds, later.slots().count()), (COMPARED_FOR_ONE, 0));
    }

    #[test]
    fn rows_go_when_most_of_their_batch_are_over() {
        let mut later = Later::default();
        // The last one is far in the future.
        let over: Vec<i64> = (0..79).chain([1_000_000]).collect();
        add(&mut later, &over);
        add(&mut later, &[60]);
        assert_eq!(pruned(&mut later, 20), [0; 0], "few of them");
        assert_eq!(pruned(&mut later, 60), [0]);
        assert_eq!(taken(&mut later, [5]), [5]);
        let expected: Vec<u32> = (0..79).filter(|slot| *slot != 5).collect();
        assert_eq!(pruned(&mut later, 78), expected);
        assert_eq!(later.slots().collect::<Vec<_>>(), [79]);
        assert_eq!(pruned(&mut later, 1_000_000), [79]);
        assert_eq!((later.slots().count(), later.size()), (0, 0));
    }

    #[test]
    fn few_rows_that_are_left_of_many_batches_are_told() {
        let mut later = Later::default();
        let mut over = [0; 1024];
        over[0] = 100;
        for number in 0..2 * TRIAL_ROWS / 1024 {
            assert!(!later.is_sparse() || number > TRIAL_ROWS / 1024);
            add(&mut later, &over);
            assert_eq!(pruned(&mut later, 0).len(), 1023);
        }
        assert!(later.is_sparse());
        let mut left = Vec::new();
        later.take_all(|leaving| left.push((leaving.slot, leaving.row, leaving.over)));
        assert_eq!(left, vec![(0, 0, Some(100)); 2 * TRIAL_ROWS / 1024]);
        assert!(!later.is_sparse());
    }

    #[test]
    fn it_pays_where_rows_go_before_they_are_asked_for() {
        let mut later = Later::default();
        let over = vec![0; TRIAL_ROWS];
        for _ in 0..2 {
            add(&mut later, &over);
            assert_eq!(pruned(&mut later, 0).len(), TRIAL_ROWS);
        }
        add(&mut later, &over);
        assert_eq!(taken(&mut later, 0..200).len(), TRIAL_ROWS);
        assert!(later.pays());
        for _ in 0..4 {
            add(&mut later, &over);
            taken(&mut later, 0..200);
        }
        assert!(!later.pays());
    }
}

//! One attempt to find a match from a row on, in the order of preference.
//!
//! An attempt has several readings of the same rows: which variable took how many of them. They stand
//! in the order in which a match is preferred: a greedy variable rather takes a row, a reluctant one
//! rather leaves it to the next. The first reading that is whole, when all before it are given up, is
//! the match.

use std::collections::HashSet;

use crate::error::Error;
use crate::plan::PatternVariable;

/// A reading that needs no further row.
const WHOLE: u32 = u32::MAX;

/// What a pattern lets a variable do.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    min: u32,
    max: Option<u32>,
    is_greedy: bool,
}

/// The variables of a pattern in their order.
#[derive(Debug)]
pub(super) struct Pattern {
    bounds: Vec<Bounds>,
    /// Conditions read rows alone: of two readings that may go on in the same way, the first is enough.
    merges: bool,
    /// The rows that a match has at least.
    pub(super) least_rows: usize,
}

/// The readings of an attempt.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    /// The variable that may take the next row, or `WHOLE`, which is the last one then.
    next: Vec<u32>,
    /// For each of them how many rows each variable has.
    counts: Vec<u32>,
}

/// Room for the work of a step, which is used again.
#[derive(Debug, Default)]
pub(super) struct Room {
    new: Attempt,
    own: Vec<u32>,
    seen: HashSet<(u32, u32)>,
}

/// What is known of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// It depends on further rows.
    Open,
    /// There is no match.
    Failed,
    /// The match: how many rows each variable has.
    Matched(&'a [u32]),
}

impl Pattern {
    pub(super) fn new(variables: &[PatternVariable]) -> Self {
        let bounds =
            variables.iter().map(|one| Bounds { min: one.min, max: one.max, is_greedy: one.is_greedy });
        let least = variables.iter().map(|one| one.min as usize).sum();
        let merges = variables.iter().all(|one| one.match_condition.is_none());
        Self { bounds: bounds.collect(), merges, least_rows: least }
    }

    /// How many variables there are.
    pub(super) fn width(&self) -> usize {
        self.bounds.len()
    }

    /// An attempt that has no row yet.
    pub(super) fn begin(&self, attempt: &mut Attempt, room: &mut Room) {
        attempt.next.clear();
        attempt.counts.clear();
        room.own.clear();
        room.own.resize(self.bounds.len(), 0);
        self.go_on(0, &room.own, attempt);
    }

    /// Takes the next row. `is_met`: whether a variable may take it as the last of these counts.
    pub(super) fn step(
        &self,
        attempt: &mut Attempt,
        room: &mut Room,
        mut is_met: impl FnMut(usize, &[u32]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let Room { new, own, seen } = room;
        new.next.clear();
        new.counts.clear();
        seen.clear();
        let merges = self.merges && attempt.next.len() > 1;
        for (variable, counts) in attempt.next.iter().zip(attempt.counts.chunks(self.bounds.len())) {
            if *variable == WHOLE {
                new.next.push(WHOLE);
                new.counts.extend(counts);
                break;
            }
            let index = *variable as usize;
            own.clear();
            own.extend(counts);
            own[index] += 1;
            if merges && !seen.insert((*variable, self.progress(index, own[index]))) {
                continue;
            }
            if is_met(index, own)? && self.go_on(index, own, new) {
                break;
            }
        }
        std::mem::swap(attempt, new);
        Ok(())
    }

    /// How far a variable is: beyond its least number of rows all numbers are alike where there is no
    /// greatest.
    fn progress(&self, variable: usize, count: u32) -> u32 {
        match self.bounds[variable].max {
            Some(_) => count,
            None => count.min(self.bounds[variable].min.max(1)),
        }
    }

    /// Adds the ways to go on from a variable; `true`: one of them is whole, so none behind it counts.
    fn go_on(&self, variable: usize, counts: &[u32], to: &mut Attempt) -> bool {
        let Some(bounds) = self.bounds.get(variable) else {
            to.next.push(WHOLE);
            to.counts.extend(counts);
            return true;
        };
        let takes = bounds.max.is_none_or(|max| counts[variable] < max);
        let leaves = counts[variable] >= bounds.min;
        if !bounds.is_greedy && leaves && self.go_on(variable + 1, counts, to) {
            return true;
        }
        if takes {
            to.next.push(variable as u32);
            to.counts.extend(counts);
        }
        bounds.is_greedy && leaves && self.go_on(variable + 1, counts, to)
    }
}

impl Attempt {
    pub(super) fn outcome(&self) -> Outcome<'_> {
        match self.next.first() {
            None => Outcome::Failed,
            Some(&WHOLE) => Outcome::Matched(&self.counts),
            Some(_) => Outcome::Open,
        }
    }

    /// No further row can belong to it.
    pub(super) fn close(&mut self) {
        let rows = self.next.len();
        let width = self.counts.len().checked_div(rows).unwrap_or(0);
        if self.next.last() == Some(&WHOLE) {
            self.counts.drain(..(rows - 1) * width);
            self.next = vec![WHOLE];
        } else {
            self.next.clear();
            self.counts.clear();
        }
    }

    /// The rows of the match if no reading that is preferred comes to one.
    pub(super) fn whole_rows(&self) -> Option<usize> {
        let width = self.counts.len().checked_div(self.next.len())?;
        let is_whole = self.next.last() == Some(&WHOLE);
        is_whole.then(|| self.counts[self.counts.len() - width..].iter().map(|count| *count as usize).sum())
    }

    /// The next variable of each reading, and how many rows each of the `width` variables has.
    pub(super) fn readings(&self, width: usize) -> impl Iterator<Item = (u32, &[u32])> {
        self.next.iter().copied().zip(self.counts.chunks(width))
    }

    /// Adds a reading behind the others, as [`Attempt::readings`] gave it.
    pub(super) fn add_reading(&mut self, next: u32, counts: impl Iterator<Item = u32>) {
        self.next.push(next);
        self.counts.extend(counts);
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        (self.next.capacity() + self.counts.capacity()) * size_of::<u32>()
    }
}

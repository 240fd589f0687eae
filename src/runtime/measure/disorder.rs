//! How far rows are out of order: the curve from a watermark's delay to the share of late rows.

use std::sync::{Mutex, TryLockError};

use super::super::channel::lock;
use arrow::buffer::{NullBuffer, ScalarBuffer};

/// The first rows of a split are all looked at, then one of [`STRIDE`].
const ALL_ROWS: u64 = 65_536;
const STRIDE: u64 = 64;
/// Shares of rows whose delay is told.
const SHARES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

const MS: u64 = 1_000;
const SECOND: u64 = 1_000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// Delays that a person would write, microseconds, growing.
const DELAYS: [u64; 43] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    MS,
    2 * MS,
    5 * MS,
    10 * MS,
    20 * MS,
    50 * MS,
    100 * MS,
    200 * MS,
    500 * MS,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    4 * HOUR,
    6 * HOUR,
    8 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    3 * DAY,
    5 * DAY,
    7 * DAY,
    14 * DAY,
];
/// For each number of bits the first of [`DELAYS`] that is no shorter than the least number that has so many.
const FIRST_OF_BITS: [u8; 65] = {
    let mut firsts = [0; 65];
    let (mut bits, mut place) = (1, 0);
    while bits <= 64 {
        while place < DELAYS.len() && DELAYS[place] < 1 << (bits - 1) {
            place += 1;
        }
        firsts[bits] = place as u8;
        bits += 1;
    }
    firsts
};
/// Of one number of bits there are at most two of [`DELAYS`].
const PADDED_DELAYS: [u64; DELAYS.len() + 2] = {
    let mut padded = [u64::MAX; DELAYS.len() + 2];
    let mut place = 0;
    while place < DELAYS.len() {
        padded[place] = DELAYS[place];
        place += 1;
    }
    padded
};

/// The place of the shortest of [`DELAYS`] that is long enough; behind the last one if none is. Asked for many
/// rows, whose delays can't be foretold: without branches.
fn place_of(behind: u64) -> usize {
    let first = usize::from(FIRST_OF_BITS[(u64::BITS - behind.leading_zeros()) as usize]);
    first + usize::from(PADDED_DELAYS[first] < behind) + usize::from(PADDED_DELAYS[first + 1] < behind)
}

/// Out-of-order times of the rows of a source.
#[derive(Debug, Default)]
pub(in crate::runtime) struct DisorderCell(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    /// Rows behind the latest row of the split, by the shortest of [`DELAYS`] that is long enough; at last those
    /// for which none is.
    behind: [u64; DELAYS.len() + 1],
    /// The furthest, microseconds.
    furthest: u64,
    rows: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self { behind: [0; DELAYS.len() + 1], furthest: 0, rows: 0 }
    }
}

impl Seen {
    fn see(&mut self, behind: u64) {
        self.furthest = self.furthest.max(behind);
        self.behind[place_of(behind)] += 1;
    }

    fn add(&mut self, other: &Self) {
        self.furthest = self.furthest.max(other.furthest);
        self.rows += other.rows;
        self.behind.iter_mut().zip(other.behind).for_each(|(sum, count)| *sum += count);
    }
}

/// How far the rows of one split are out of order, as far as it was looked at.
#[derive(Debug)]
pub(in crate::runtime) struct DisorderProbe {
    latest: i64,
    rows: u64,
    /// What was not added to the cell yet.
    seen: Seen,
}

impl Default for DisorderProbe {
    fn default() -> Self {
        Self { latest: i64::MIN, rows: 0, seen: Seen::default() }
    }
}

impl DisorderProbe {
    fn walk(&mut self, times: &[i64]) {
        let mut rest = times;
        while let Some(first) = rest.first() {
            let to_next = if self.rows < ALL_ROWS { 1 } else { STRIDE - self.rows % STRIDE };
            if self.rows < ALL_ROWS || to_next == STRIDE {
                self.seen.rows += 1;
                if *first < self.latest {
                    self.seen.see(self.latest.saturating_sub(*first).unsigned_abs());
                }
            }
            let (run, behind) = rest.split_at(rest.len().min(to_next as usize));
            self.latest = run.iter().fold(self.latest, |latest, time| latest.max(*time));
            self.rows += run.len() as u64;
            rest = behind;
        }
    }

    /// Rows from the next one to look at on, of a batch of so many.
    fn looks(&self, rows: usize) -> impl Iterator<Item = usize> + use<> {
        let all = ALL_ROWS.saturating_sub(self.rows).min(rows as u64) as usize;
        let place = self.rows + all as u64;
        let next = all + (place.next_multiple_of(STRIDE) - place) as usize;
        (0..all).chain((next..rows).step_by(STRIDE as usize))
    }

    /// The same where the highest time before each row is known: no row is walked past. `highest`: it is
    /// `delay_us` later than these; `latest`: after the last row.
    pub(in crate::runtime) fn look_at(
        &mut self,
        times: &[i64],
        highest: &[i64],
        delay_us: i64,
        latest: i64,
        cell: &DisorderCell,
    ) {
        for row in self.looks(times.len()) {
            self.seen.rows += 1;
            let before = highest[row].saturating_add(delay_us);
            if highest[row] > i64::MIN && times[row] < before {
                self.seen.see(before.saturating_sub(times[row]).unsigned_abs());
            }
        }
        self.rows += times.len() as u64;
        self.latest = self.latest.max(latest);
        self.record(cell);
    }

    /// The highest time so far.
    pub(in crate::runtime) fn latest(&self) -> i64 {
        self.latest
    }

    /// Looks at the rows of a batch. Which ones does not depend on the batch.
    pub(in crate::runtime) fn look(
        &mut self,
        times: &ScalarBuffer<i64>,
        nulls: Option<&NullBuffer>,
        cell: &DisorderCell,
    ) {
        match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => self.walk(times),
            Some(nulls) => {
                let known: Vec<i64> = nulls.valid_indices().map(|row| times[row]).collect();
                self.walk(&known);
            }
        }
        self.record(cell);
    }

    /// Adds what was seen to what others read, unless somebody reads now.
    fn record(&mut self, cell: &DisorderCell) {
        if self.seen.rows == 0 {
            return;
        }
        let mut all = match cell.0.try_lock() {
            Ok(all) => all,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        all.add(&self.seen);
        self.seen = Seen::default();
    }
}

/// How far the rows of a source are out of order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disorder {
    /// Rows that were looked at: the first ones all, then one of sixty-four.
    pub rows: u64,
    /// Of them, those with an event time before that of a row that came earlier.
    pub out_of_order: u64,
    /// For growing shares of the rows, a delay of the watermark with which these are not late: the next one
    /// that a person would write.
    pub steps: Vec<DisorderStep>,
}

/// A delay and what it costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DisorderStep {
    /// How far the watermark is behind the latest row, microseconds; also the latency that it adds.
    pub delay_us: u64,
    /// Share of the rows that are further behind: late, where a window ends with the watermark.
    pub late_share: f64,
}

impl DisorderCell {
    pub(in crate::runtime) fn read(&self) -> Disorder {
        let seen = lock(&self.0);
        let out_of_order: u64 = seen.behind.iter().sum();
        let in_order = seen.rows.saturating_sub(out_of_order);
        // Without a delay only the rows in order are in time, with the longest one all.
        let longest = seen.furthest.div_ceil(DAY).saturating_mul(DAY);
        let delays = std::iter::once(0).chain(DELAYS).chain([longest]);
        let counts = std::iter::once(in_order).chain(seen.behind);
        let in_time = counts.scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        let curve: Vec<(u64, u64)> = delays.zip(in_time).collect();
        let mut steps: Vec<DisorderStep> = Vec::new();
        for share in SHARES.iter().filter(|_| seen.rows > 0) {
            let wanted = (seen.rows as f64 * share).ceil() as u64;
            let Some((delay_us, in_time)) = curve.iter().copied().find(|(_, in_time)| *in_time >= wanted)
            else {
                continue;
            };
            let late_share = seen.rows.saturating_sub(in_time) as f64 / seen.rows as f64;
            if steps.last().is_none_or(|last| last.delay_us < delay_us) {
                steps.push(DisorderStep { delay_us, late_share });
            }
        }
        Disorder { rows: seen.rows, out_of_order, steps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(batches: &[&[i64]]) -> Disorder {
        let cell = DisorderCell::default();
        let mut probe = DisorderProbe::default();
        for batch in batches {
            probe.look(&batch.to_vec().into(), None, &cell);
        }
        cell.read()
    }

    #[test]
    fn rows_in_order_need_no_delay() {
        let disorder = curve(&[&[1, 2, 2, 3]]);
        assert_eq!((disorder.rows, disorder.out_of_order), (4, 0));
        assert_eq!(disorder.steps, [DisorderStep { delay_us: 0, late_share: 0.0 }]);
        assert_eq!(curve(&[]).steps, []);
    }

    #[test]
    fn delays_are_those_that_a_person_would_write() {
        assert!(DELAYS.is_sorted());
        for behind in DELAYS.iter().flat_map(|delay| [delay - 1, *delay, delay + 1]).chain([0, u64::MAX]) {
            assert_eq!(place_of(behind), DELAYS.partition_point(|delay| *delay < behind), "{behind}");
        }
        for (behind, written) in [
            (1, 1),
            (3_001, 5 * MS),
            (SECOND, SECOND),
            (SECOND + 1, 2 * SECOND),
            (30 * SECOND, 30 * SECOND),
            (31 * SECOND, MINUTE),
            (17_716_741_000, 6 * HOUR),
            (13 * HOUR, DAY),
            (20 * DAY + 1, 21 * DAY),
        ] {
            let disorder = curve(&[&[behind as i64, 0]]);
            let steps: Vec<_> = disorder.steps.iter().map(|step| (step.delay_us, step.late_share)).collect();
            assert_eq!(steps, [(0, 0.5), (written, 0.0)], "{behind}");
        }
    }

    #[test]
    fn the_curve_tells_what_a_delay_buys() {
        // Ten rows: one is 10 behind, one 100.
        let rows = [100, 200, 190, 300, 200, 400, 500, 600, 700, 800];
        let disorder = curve(&[&rows]);
        assert_eq!((disorder.rows, disorder.out_of_order), (10, 2));
        // Eight rows are in order, nine are at most 10 behind, all at most 100.
        let expected = [(0, 0.2), (10, 0.1), (100, 0.0)];
        let steps: Vec<_> = disorder.steps.iter().map(|step| (step.delay_us, step.late_share)).collect();
        assert_eq!(steps, expected);
        // However it is cut.
        let (first, second) = rows.split_at(3);
        assert_eq!(curve(&[first, second]), disorder);
    }

    #[test]
    fn of_many_rows_one_in_a_stride_is_looked_at_however_they_are_cut() {
        let rows: Vec<i64> =
            (0..ALL_ROWS as i64 + 6_400).map(|row| row - i64::from(row % 3 == 0) * 5).collect();
        let whole = curve(&[&rows]);
        assert_eq!(whole.rows, ALL_ROWS + 100);
        let cut: Vec<&[i64]> = rows.chunks(7).collect();
        assert_eq!(curve(&cut), whole);
    }
    #[test]
    fn what_is_known_before_is_not_walked_past_again() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as i64
        };
        let rows: Vec<i64> = (0..ALL_ROWS as i64 + 5_000).map(|row| row * 10 + random() % 1_000).collect();
        let (cell, mut probe) = (DisorderCell::default(), DisorderProbe::default());
        let (delay, mut reached) = (300, i64::MIN);
        for batch in rows.chunks(999) {
            let mut before = Vec::new();
            for time in batch {
                before.push(reached);
                reached = reached.max(time - delay);
            }
            probe.look_at(batch, &before, delay, reached + delay, &cell);
        }
        assert_eq!(cell.read(), curve(&[&rows]));
        assert_eq!(Some(probe.latest()), rows.iter().max().copied());
    }
}

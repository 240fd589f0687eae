//! How far rows are out of order: the curve from a watermark's delay to the share of late rows.

use std::sync::{Mutex, TryLockError};

use arrow::buffer::{NullBuffer, ScalarBuffer};
use hdrhistogram::Histogram;

use super::super::channel::lock;

/// The first rows of a split are all looked at, then one of [`STRIDE`].
const ALL_ROWS: u64 = 65_536;
const STRIDE: u64 = 16;
/// Values that wait while somebody reads.
const MOST_PENDING: usize = 65_536;
/// Shares of rows whose delay is told.
const SHARES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

/// Out-of-order times of the rows of a source.
#[derive(Debug, Default)]
pub(in crate::runtime) struct DisorderCell(Mutex<Seen>);

#[derive(Debug)]
struct Seen {
    /// Microseconds behind the latest row of the split, of rows that are behind it.
    behind: Histogram<u64>,
    rows: u64,
}

impl Default for Seen {
    fn default() -> Self {
        Self { behind: Histogram::new(2).expect("two digits are in range"), rows: 0 }
    }
}

/// How far the rows of one split are out of order, as far as it was looked at.
#[derive(Debug)]
pub(in crate::runtime) struct DisorderProbe {
    latest: i64,
    rows: u64,
    looked_at: u64,
    pending: Vec<u64>,
}

impl Default for DisorderProbe {
    fn default() -> Self {
        Self { latest: i64::MIN, rows: 0, looked_at: 0, pending: Vec::new() }
    }
}

impl DisorderProbe {
    fn walk(&mut self, times: &[i64]) {
        let mut rest = times;
        while let Some(first) = rest.first() {
            let to_next = if self.rows < ALL_ROWS { 1 } else { STRIDE - self.rows % STRIDE };
            if self.rows < ALL_ROWS || to_next == STRIDE {
                self.looked_at += 1;
                if *first < self.latest {
                    self.pending.push(self.latest.saturating_sub(*first).unsigned_abs());
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
            self.looked_at += 1;
            let before = highest[row].saturating_add(delay_us);
            if highest[row] > i64::MIN && times[row] < before {
                self.pending.push(before.saturating_sub(times[row]).unsigned_abs());
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

    fn record(&mut self, cell: &DisorderCell) {
        let mut seen = match cell.0.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.pending.len() < MOST_PENDING => return,
            Err(TryLockError::WouldBlock) => lock(&cell.0),
        };
        seen.rows += std::mem::take(&mut self.looked_at);
        for behind in self.pending.drain(..) {
            // It grows: every value has a place.
            let _ = seen.behind.record(behind);
        }
    }
}

/// How far the rows of a source are out of order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disorder {
    /// Rows that were looked at: the first ones all, then one of sixteen.
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

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Delays that a person would write: units in microseconds, and how many of each.
const DELAYS: [(u64, &[u64]); 6] = [
    (1, &[1, 2, 5, 10, 20, 50, 100, 200, 500]),
    (1_000, &[1, 2, 5, 10, 20, 50, 100, 200, 500]),
    (SECOND, &[1, 2, 5, 10, 15, 30]),
    (60 * SECOND, &[1, 2, 5, 10, 15, 30]),
    (3_600 * SECOND, &[1, 2, 3, 4, 6, 8, 12]),
    (DAY, &[1, 2, 3, 5, 7, 14]),
];

/// The shortest delay that a person would write and that is not shorter.
fn round_up(delay_us: u64) -> u64 {
    if delay_us == 0 {
        return 0;
    }
    let mut delays = DELAYS.iter().flat_map(|(unit, counts)| counts.iter().map(move |count| count * unit));
    delays.find(|delay| *delay >= delay_us).unwrap_or_else(|| delay_us.div_ceil(DAY).saturating_mul(DAY))
}

impl DisorderCell {
    pub(in crate::runtime) fn read(&self) -> Disorder {
        let seen = lock(&self.0);
        let out_of_order = seen.behind.len();
        let in_order = seen.rows.saturating_sub(out_of_order);
        let mut steps: Vec<DisorderStep> = Vec::new();
        for share in SHARES.iter().filter(|_| seen.rows > 0) {
            let wanted = (seen.rows as f64 * share).ceil() as u64;
            let delay_us = match wanted.saturating_sub(in_order) {
                0 => 0,
                behind => {
                    let quantile = behind as f64 / out_of_order.max(1) as f64;
                    round_up(seen.behind.value_at_quantile(quantile.min(1.0)))
                }
            };
            let up_to = if delay_us == 0 { 0 } else { seen.behind.count_between(0, delay_us) };
            let late_share = (out_of_order.saturating_sub(up_to)) as f64 / seen.rows as f64;
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
        let hour = 3_600 * SECOND;
        for (delay, written) in [
            (0, 0),
            (1, 1),
            (3_001, 5_000),
            (SECOND, SECOND),
            (SECOND + 1, 2 * SECOND),
            (16 * SECOND, 30 * SECOND),
            (31 * SECOND, 60 * SECOND),
            (17_716_741_000, 6 * hour),
            (13 * hour, DAY),
            (20 * DAY + 1, 21 * DAY),
        ] {
            assert_eq!(round_up(delay), written, "{delay}");
        }
        let lengths: Vec<u64> =
            DELAYS.iter().flat_map(|(unit, counts)| counts.iter().map(move |count| count * unit)).collect();
        assert!(lengths.is_sorted());
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
    fn of_many_rows_every_sixteenth_is_looked_at_however_they_are_cut() {
        let rows: Vec<i64> =
            (0..ALL_ROWS as i64 + 1_600).map(|row| row - i64::from(row % 3 == 0) * 5).collect();
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

//! Rows that wait for the watermark.

/// Rows by time, input and arrival. Rows mostly come nearly in order: they lie in sorted runs, few of them, each
/// more than twice as long as the next one when that came.
#[derive(Default)]
pub(super) struct Waiting {
    runs: Vec<Run>,
    arrivals: u64,
}

#[derive(Default)]
struct Run {
    rows: Vec<WaitingRow>,
    /// Those before it are taken.
    from: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingRow {
    pub(super) time: i64,
    /// Of the two inputs' rows of one time those of the first come first.
    order: u64,
    pub(super) slot: u32,
    pub(super) group: u32,
}

/// The bit of an order that tells the input.
const SECOND: u64 = 1 << 63;

impl WaitingRow {
    pub(super) fn input(&self) -> usize {
        usize::from(self.order & SECOND != 0)
    }

    fn place(&self) -> (i64, u64) {
        (self.time, self.order)
    }
}

impl Run {
    fn len(&self) -> usize {
        self.rows.len() - self.from
    }

    /// Lets go the rows that are taken.
    fn trim(&mut self) {
        self.rows.drain(..self.from);
        self.from = 0;
    }
}

impl Waiting {
    /// Adds rows of an input in the order of their arrival: time, slot and group.
    pub(super) fn add(&mut self, input: usize, rows: impl Iterator<Item = (i64, u32, u32)>) {
        let second = if input == 0 { 0 } else { SECOND };
        let orders = second | self.arrivals..;
        let row = |((time, slot, group), order)| WaitingRow { time, order, slot, group };
        let mut run = Run { rows: rows.zip(orders).map(row).collect(), from: 0 };
        self.arrivals += run.len() as u64;
        if run.len() == 0 {
            return;
        }
        run.rows.sort_by_key(|row| row.time);
        while let Some(mut before) = self.runs.pop_if(|before| before.len() <= 2 * run.len()) {
            before.trim();
            before.rows.extend_from_slice(&run.rows);
            // Of two runs a stable sort is a merge.
            before.rows.sort_by_key(WaitingRow::place);
            run = before;
        }
        self.runs.push(run);
    }

    /// Takes the rows up to a time, in order.
    pub(super) fn take(&mut self, until: i64) -> Vec<WaitingRow> {
        let mut taken = Vec::new();
        let mut several = false;
        for run in &mut self.runs {
            let waiting = &run.rows[run.from..];
            let due = waiting.partition_point(|row| row.time <= until);
            several |= due > 0 && !taken.is_empty();
            taken.extend_from_slice(&waiting[..due]);
            run.from += due;
            if run.from > run.rows.len() / 2 {
                run.trim();
            }
        }
        self.runs.retain(|run| run.len() > 0);
        if several {
            taken.sort_by_key(WaitingRow::place);
        }
        taken
    }

    /// The slots of an input's rows, as they will be taken.
    pub(super) fn slots(&self, input: usize) -> Vec<u32> {
        let rows = self.runs.iter().flat_map(|run| &run.rows[run.from..]);
        let mut rows: Vec<WaitingRow> = rows.filter(|row| row.input() == input).copied().collect();
        rows.sort_by_key(WaitingRow::place);
        rows.into_iter().map(|row| row.slot).collect()
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.runs.iter().map(|run| run.rows.capacity() * size_of::<WaitingRow>()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_309),
            ..ProptestConfig::default()
        })]

        /// Against an ordered map.
        #[test]
        fn rows_come_out_by_time_input_and_arrival(
            batches in prop::collection::vec(
                (0usize..2, prop::collection::vec(0i64..12, 0..9), 0i64..12),
                0..30,
            ),
        ) {
            let (mut waiting, mut known) = (Waiting::default(), BTreeMap::new());
            let mut arrival = 0u32;
            // Rows are up to 12 ahead of the watermark.
            for (batch, (input, aheads, step)) in batches.iter().enumerate() {
                let base = batch as i64 * 3;
                let times: Vec<i64> = aheads.iter().map(|ahead| base + ahead).collect();
                let first = arrival;
                waiting.add(*input, times.iter().zip(first..).map(|(time, slot)| (*time, slot, slot + 1)));
                for time in times {
                    known.insert((time, *input, arrival), arrival + 1);
                    arrival += 1;
                }
                let until = if batch + 1 == batches.len() { i64::MAX } else { base + step };
                let left = known.split_off(&(until.saturating_add(1), 0, 0));
                let expected: Vec<_> = known.into_iter().collect();
                known = left;
                let taken = waiting.take(until);
                let taken: Vec<_> =
                    taken.iter().map(|row| ((row.time, row.input(), row.slot), row.group)).collect();
                prop_assert_eq!(taken, expected);
                let rows: usize = known.len();
                prop_assert_eq!(waiting.runs.iter().map(Run::len).sum::<usize>(), rows);
            }
            prop_assert!(waiting.runs.is_empty());
        }
    }

    #[test]
    fn there_are_few_runs() {
        let mut waiting = Waiting::default();
        for row in 0..10_000u32 {
            waiting.add(0, std::iter::once((i64::from(row ^ 5), row, 0)));
            assert!(waiting.runs.len() <= 15, "{} runs", waiting.runs.len());
        }
        assert_eq!(waiting.take(i64::MAX).len(), 10_000);
    }
}

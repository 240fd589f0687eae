//! Which rows of a batch are used, and in which parts of the state they go. The late test.

use std::collections::HashMap;

use arrow::array::UInt32Array;
use arrow::buffer::{NullBuffer, ScalarBuffer};
use foldhash::fast::RandomState;

use super::assigner::{Assigner, Ends, Kind};
use crate::error::{Error, code};
use crate::operator::late::{Missed, Rejected};
use crate::plan::{WindowAggregateNode, WindowSource};
use crate::stream::{RunningWatermark, StreamBatch, event_times};

/// A part of the state: rows of a slice that count for the same windows.
///
/// `end` is the end of the first of these windows, so parts are ordered by when they are needed;
/// `start` is the start of the slice. Where windows share no slices it is the window itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct PartKey {
    pub(super) end: i64,
    pub(super) start: i64,
}

/// Event times whose windows can be told apart: beyond them, bounds would overflow.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 62)..=1 << 62;

/// Rows of so many slices are placed together.
const FEW_SLICES: usize = 8;

/// Where the rows of a batch go.
#[derive(Debug, Default)]
pub(super) struct Placement {
    /// The rows that are used, ascending; `None`: all.
    pub(super) kept: Option<UInt32Array>,
    /// Those rows ordered by part, then arrival; a row may come more than once. `None`: as they are.
    pub(super) order: Option<UInt32Array>,
    /// The parts with their number of rows, in the order of `order`.
    pub(super) parts: Vec<(PartKey, usize)>,
    /// Rows that are late for all of their windows.
    pub(super) late: u64,
    /// Rows that are late for some of their windows.
    pub(super) partly_late: u64,
    /// Rows without event time.
    pub(super) null_time: u64,
    /// The late rows and those without event time, if they are wanted.
    pub(super) rejected: Vec<Rejected>,
}

impl Placement {
    /// All rows in one part.
    fn all(key: PartKey, rows: usize) -> Self {
        Self { parts: vec![(key, rows)], ..Self::default() }
    }
}

/// Places rows.
pub(super) struct Placer {
    source: WindowSource,
    pub(super) assigner: Assigner,
    /// How long after its close a window takes rows.
    lateness_us: i64,
    /// Each window has a part of its own, a row goes into all of its windows: for aggregates that
    /// must see rows in arrival order, and for windows that are read while they take rows.
    separate: bool,
    /// Whether rows that are not used are wanted.
    rejects: bool,
    /// The windows of rows that carry one of them each, by the time in that column.
    copies: Option<(usize, Assigner)>,
}

/// The part that the last rows went to, to place a run of rows of one slice with few comparisons.
struct Current {
    start: i64,
    end: i64,
    /// A running watermark below this closes none of the slice's windows.
    closes_us: i64,
}

impl Placer {
    /// `rejects`: whether rows that are not used are wanted.
    pub(super) fn try_new(node: &WindowAggregateNode, rejects: bool) -> Result<Self, Error> {
        let assigner = match &node.window {
            WindowSource::Assign { window, .. } => Assigner::try_new(window)?,
            WindowSource::Attached { unit, zone, .. } => Assigner::attached(unit.us(), *zone),
            WindowSource::Session { .. } => {
                return Err(Error::internal("WindowAggregate", "sessions are not made of slices"));
            }
        };
        let separate = matches!(assigner.kind(), Kind::Hop | Kind::Cumulate)
            && (node.is_updating() || node.aggregates.iter().any(|call| call.order_sensitive));
        let lateness_us = node.allowed_lateness_us;
        let copies = match &node.window {
            WindowSource::Attached { copies: Some((time, window)), .. } if rejects => {
                Some((*time, Assigner::try_new(window)?))
            }
            _ => None,
        };
        Ok(Self { source: node.window.clone(), assigner, lateness_us, separate, rejects, copies })
    }

    /// Whether windows are made of several parts: slices that they share.
    pub(super) fn is_sliced(&self) -> bool {
        !self.separate && matches!(self.assigner.kind(), Kind::Hop | Kind::Cumulate)
    }

    /// The watermark from which on rows are late for the window that ends at `end`.
    pub(super) fn late_from(&self, end: i64) -> i64 {
        self.assigner.close(end).saturating_add(self.lateness_us)
    }

    /// Places the rows of a batch. `floor`: the last watermark that the operator was given; a row
    /// is judged by it where it is ahead of the running one.
    pub(super) fn place(&mut self, batch: &StreamBatch, floor: i64) -> Result<Placement, Error> {
        let rows = batch.num_rows();
        let (source, kind) = (self.source.clone(), self.assigner.kind());
        match source {
            _ if kind == Kind::Global => Ok(Placement::all(PartKey { end: i64::MAX, start: 0 }, rows)),
            WindowSource::Assign { time, .. } => {
                let (times, nulls) = event_times(batch.rows.column(time))?;
                let running = Running { values: batch.running.as_ref(), floor };
                self.place_times(times, nulls.as_ref(), &running)
            }
            WindowSource::Session { .. } => {
                Err(Error::internal("WindowAggregate", "sessions are not made of slices"))
            }
            WindowSource::Attached { start, end, .. } => {
                let (starts, no_start) = event_times(batch.rows.column(start))?;
                let (ends, no_end) = event_times(batch.rows.column(end))?;
                let nulls = NullBuffer::union(no_start.as_ref(), no_end.as_ref());
                let running = Running { values: batch.running.as_ref(), floor };
                let times = match &self.copies {
                    Some((time, _)) => Some(event_times(batch.rows.column(*time))?.0),
                    None => None,
                };
                Ok(self.place_attached(&starts, &ends, nulls.as_ref(), times.as_deref(), &running))
            }
        }
    }

    fn place_times(
        &mut self,
        times: ScalarBuffer<i64>,
        nulls: Option<&NullBuffer>,
        running: &Running<'_>,
    ) -> Result<Placement, Error> {
        let times = if self.assigner.has_zone() {
            times.iter().map(|time| self.assigner.local(*time)).collect::<Vec<_>>().into()
        } else {
            times
        };
        let may_share = !self.separate && nulls.is_none_or(|nulls| nulls.null_count() == 0);
        match may_share.then(|| self.few_parts(&times, running)).flatten() {
            Some(placement) => Ok(placement),
            None => self.place_each(&times, nulls, running),
        }
    }

    fn place_each(
        &self,
        times: &[i64],
        nulls: Option<&NullBuffer>,
        running: &Running<'_>,
    ) -> Result<Placement, Error> {
        let mut placing = Placing::default();
        let mut current = self.current(self.assigner.slice_start(0));
        for (row, time) in times.iter().copied().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                placing.placement.null_time += 1;
                if self.rejects {
                    placing.placement.rejected.push(Rejected::without_time(row, running.of(row)));
                }
                continue;
            }
            if time < current.start || time >= current.end {
                check_time(time)?;
                current = self.current(self.assigner.slice_start(time));
            }
            let running = running.of(row);
            if running < current.closes_us && !self.separate {
                placing.put(row, PartKey { end: current.end, start: current.start });
                continue;
            }
            let ends = self.assigner.ends(current.start);
            let Some(open) = self.assigner.first_open(ends, running.saturating_sub(self.lateness_us)) else {
                placing.placement.late += 1;
                if self.rejects {
                    let window = (self.assigner.window_start(ends.last), ends.last);
                    placing.placement.rejected.push(self.missed(row, running, window));
                }
                continue;
            };
            if open > ends.first {
                placing.placement.partly_late += 1;
            }
            if self.separate {
                for end in (Ends { first: open, ..ends }).iter() {
                    placing.put(row, PartKey { end, start: self.assigner.window_start(end) });
                }
            } else {
                placing.put(row, PartKey { end: open, start: current.start });
            }
        }
        Ok(placing.finish(times.len()))
    }

    /// A row that is late for `window` and those before it.
    fn missed(&self, row: usize, watermark: i64, window: (i64, i64)) -> Rejected {
        let by_us = self.assigner.past_end(watermark, self.assigner.close(window.1));
        Rejected { row: row as u32, watermark, late: Some(Missed { window: Some(window), by_us }) }
    }

    fn current(&self, start: i64) -> Current {
        let end = self.assigner.ends(start).first;
        Current { start, end, closes_us: self.late_from(end) }
    }

    /// The parts of all rows, if they are few and none of their windows has closed.
    fn few_parts(&self, times: &[i64], running: &Running<'_>) -> Option<Placement> {
        let (low, high) = min_max(times)?;
        if !TIMES.contains(&low) || !TIMES.contains(&high) {
            return None;
        }
        let first = self.current(self.assigner.slice_start(low));
        if running.last() >= first.closes_us {
            return None;
        }
        if high < first.end {
            return Some(Placement::all(PartKey { end: first.end, start: first.start }, times.len()));
        }
        let key = |slice: usize| {
            let start = first.start + slice as i64 * (first.end - first.start);
            PartKey { start, end: start + (first.end - first.start) }
        };
        let slices = usize::try_from((high - first.start) / (first.end - first.start)).ok()? + 1;
        (slices <= FEW_SLICES).then(|| place_in_slices(times, slices, key))
    }

    /// Whether a window that ends at `end` is the last of those that a row of that time is in.
    fn is_last(&mut self, time: Option<i64>, end: i64) -> bool {
        let (Some((_, windows)), Some(time)) = (&mut self.copies, time) else { return true };
        let time = windows.local(time);
        windows.ends(windows.slice_start(time)).last == end
    }

    /// `times`: of rows that stand here once for each of their windows.
    fn place_attached(
        &mut self,
        starts: &[i64],
        ends: &[i64],
        nulls: Option<&NullBuffer>,
        times: Option<&[i64]>,
        running: &Running<'_>,
    ) -> Placement {
        let mut placing = Placing::default();
        let mut last = None;
        for (row, (start, end)) in starts.iter().zip(ends).enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                placing.placement.null_time += 1;
                if self.rejects {
                    placing.placement.rejected.push(Rejected::without_time(row, running.of(row)));
                }
                continue;
            }
            let late_from = match last {
                Some((known, late_from)) if known == *end => late_from,
                _ => {
                    let late_from = self.late_from(*end);
                    last = Some((*end, late_from));
                    late_from
                }
            };
            if running.of(row) >= late_from {
                placing.placement.late += 1;
                if self.rejects && self.is_last(times.map(|times| times[row]), *end) {
                    let missed = self.missed(row, running.of(row), (*start, *end));
                    placing.placement.rejected.push(missed);
                }
            } else {
                placing.put(row, PartKey { end: *end, start: *start });
            }
        }
        placing.finish(starts.len())
    }
}

/// Places all rows, each in one of some slices that follow each other.
fn place_in_slices(times: &[i64], slices: usize, key: impl Fn(usize) -> PartKey) -> Placement {
    let mut of_rows = vec![0_u8; times.len()];
    for slice in 1..slices {
        let start = key(slice).start;
        of_rows.iter_mut().zip(times).for_each(|(of_row, time)| *of_row += u8::from(*time >= start));
    }
    // Parts have the order in which they are first met.
    let mut met: Vec<(usize, usize)> =
        (0..slices).filter_map(|slice| Some((memchr::memchr(slice as u8, &of_rows)?, slice))).collect();
    met.sort_unstable();
    let mut parts = [0_u8; FEW_SLICES];
    met.iter().zip(0..).for_each(|((_, slice), part)| parts[*slice] = part);
    of_rows.iter_mut().for_each(|of_row| *of_row = parts[usize::from(*of_row)]);
    let mut counts = [0_usize; FEW_SLICES];
    of_rows.iter().for_each(|part| counts[usize::from(*part)] += 1);
    let order = (!of_rows.is_sorted()).then(|| {
        let mut next = [0_usize; FEW_SLICES];
        for part in 1..met.len() {
            next[part] = next[part - 1] + counts[part - 1];
        }
        let mut order = vec![0; times.len()];
        for (row, part) in (0..).zip(&of_rows) {
            let place = &mut next[usize::from(*part)];
            order[*place] = row;
            *place += 1;
        }
        order.into()
    });
    let parts = met.iter().zip(counts).map(|((_, slice), count)| (key(*slice), count)).collect();
    Placement { order, parts, ..Placement::default() }
}

/// Fails for a time whose windows could not be told apart.
pub(super) fn check_time(time: i64) -> Result<(), Error> {
    if TIMES.contains(&time) { Ok(()) } else { Err(beyond(time)) }
}

fn beyond(time: i64) -> Error {
    let years = time / 31_556_952_000_000 + 1_970;
    Error::run(
        code::EVALUATION,
        format!("event time in about the year {years} is beyond -144,000 to 148,000"),
    )
    .hint("Filter such rows, or check the unit of the timestamps: seconds, milliseconds, microseconds.")
}

/// The watermark before each row: what came with the rows, but not behind what the operator knows.
pub(super) struct Running<'a> {
    pub(super) values: Option<&'a RunningWatermark>,
    pub(super) floor: i64,
}

impl Running<'_> {
    pub(super) fn of(&self, row: usize) -> i64 {
        self.values.map_or(self.floor, |running| running.values()[row].max(self.floor))
    }

    fn last(&self) -> i64 {
        let last = self.values.and_then(RunningWatermark::last);
        last.map_or(self.floor, |watermark| watermark.0.max(self.floor))
    }
}

/// Collects where rows go.
#[derive(Default)]
struct Placing {
    placement: Placement,
    /// The rows that are used.
    kept: Vec<u32>,
    /// For each use of a row its part, and its index in `kept`.
    uses: Vec<(u32, u32)>,
    parts: HashMap<PartKey, u32, RandomState>,
    last: Option<(PartKey, u32)>,
}

impl Placing {
    fn put(&mut self, row: usize, key: PartKey) {
        if self.kept.last() != Some(&(row as u32)) {
            self.kept.push(row as u32);
        }
        let part = match self.last {
            Some((known, part)) if known == key => part,
            _ => {
                let parts = &mut self.placement.parts;
                let part = *self.parts.entry(key).or_insert_with(|| {
                    parts.push((key, 0));
                    parts.len() as u32 - 1
                });
                self.last = Some((key, part));
                part
            }
        };
        self.placement.parts[part as usize].1 += 1;
        self.uses.push((part, self.kept.len() as u32 - 1));
    }

    fn finish(self, rows: usize) -> Placement {
        let Self { mut placement, kept, uses, .. } = self;
        let is_in_order = uses.len() == kept.len() && uses.is_sorted_by_key(|(part, _)| *part);
        if !is_in_order {
            let mut next: Vec<usize> = placement
                .parts
                .iter()
                .scan(0, |sum, (_, count)| {
                    let first = *sum;
                    *sum += count;
                    Some(first)
                })
                .collect();
            let mut order = vec![0; uses.len()];
            for (part, row) in uses {
                let place = &mut next[part as usize];
                order[*place] = row;
                *place += 1;
            }
            placement.order = Some(order.into());
        }
        if kept.len() < rows {
            placement.kept = Some(kept.into());
        }
        placement
    }
}

fn min_max(values: &[i64]) -> Option<(i64, i64)> {
    let first = *values.first()?;
    Some(values.iter().fold((first, first), |(low, high), value| (low.min(*value), high.max(*value))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::operator::testing::MS;
    use crate::plan::{WindowKind, WindowSpec};
    use crate::stream::TimeUnit;

    fn placer(kind: WindowKind) -> Placer {
        let spec = WindowSpec { kind, offset_us: 0, zone: None, unit: TimeUnit::Millisecond };
        Placer {
            assigner: Assigner::try_new(&spec).unwrap(),
            source: WindowSource::Assign { time: 0, window: spec },
            lateness_us: 0,
            separate: false,
            rejects: false,
            copies: None,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 300,
            failure_persistence: None,
            rng_seed: proptest::test_runner::RngSeed::Fixed(20_240_311),
            ..ProptestConfig::default()
        })]

        /// Row by row.
        #[test]
        fn rows_of_few_slices_go_where_each_of_them_does(
            times in prop::collection::vec(-40i64..60, 1..80),
            watermark in -60i64..40,
            kind in 0usize..3,
        ) {
            let kind = [
                WindowKind::Tumble { size_us: 20 * MS },
                WindowKind::Hop { slide_us: 20 * MS, size_us: 60 * MS },
                WindowKind::Cumulate { step_us: 20 * MS, size_us: 60 * MS },
            ][kind];
            let placer = placer(kind);
            let times: Vec<i64> = times.iter().map(|time| time * MS).collect();
            let running = Running { values: None, floor: watermark * MS };
            if let Some(few) = placer.few_parts(&times, &running) {
                let each = placer.place_each(&times, None, &running).unwrap();
                prop_assert_eq!(few.parts, each.parts);
                prop_assert_eq!(few.order, each.order);
                prop_assert_eq!((few.kept, each.kept), (None, None));
                prop_assert_eq!((each.late, each.partly_late), (0, 0));
            }
        }
    }

    #[test]
    fn a_closed_window_or_many_slices_are_looked_at_row_by_row() {
        let placer = placer(WindowKind::Tumble { size_us: 10 * MS });
        let few = |times: &[i64], watermark: i64| {
            let times: Vec<i64> = times.iter().map(|time| time * MS).collect();
            placer
                .few_parts(&times, &Running { values: None, floor: watermark * MS })
                .map(|few| few.parts.len())
        };
        assert_eq!((few(&[1, 5], 0), few(&[21, 1, 5, 11], 0)), (Some(1), Some(3)));
        assert_eq!((few(&[1, 21], 9), few(&[1, 21], 8)), (None, Some(2)));
        assert_eq!((few(&[1, 75], 0), few(&[1, 85], 0)), (Some(2), None));
    }
}

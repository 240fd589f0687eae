//! Latency: markers that ride behind the rows, and the times that rows spend at each place.

use std::collections::BTreeMap;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::channel::lock;
use crate::stream::{LatencyMarker, micros};

/// The longest latency that is told apart; longer ones are counted as this long.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Values that wait while somebody reads. A read takes microseconds; more than this never wait.
const MOST_PENDING: usize = 4_096;

/// What markers are told apart by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LatencyGranularity {
    /// Markers of all sources in one.
    Single,
    /// By their source.
    #[default]
    Operator,
    /// By their source and its subtask.
    Subtask,
}

impl LatencyGranularity {
    /// Its name: `single`, `operator` or `subtask`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Operator => "operator",
            Self::Subtask => "subtask",
        }
    }

    /// The one of that name.
    pub fn of(name: &str) -> Option<Self> {
        [Self::Single, Self::Operator, Self::Subtask].into_iter().find(|one| one.name() == name)
    }

    fn origin(self, marker: LatencyMarker) -> Option<(u32, u32)> {
        match self {
            Self::Single => None,
            Self::Operator => Some((marker.source, 0)),
            Self::Subtask => Some((marker.source, marker.subtask)),
        }
    }
}

/// Times, in microseconds, two to three digits of each.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct LatencyRecorder {
    histogram: Histogram<u64>,
    saturated: u64,
}

impl LatencyRecorder {
    /// Grows with what it records, so that one that is not used costs nothing.
    pub(in crate::runtime) fn new() -> Self {
        let histogram = Histogram::new(3).expect("three digits are in range");
        Self { histogram, saturated: 0 }
    }

    /// Records a time, for this many rows. One that is too long is counted as the longest, and seen.
    pub(in crate::runtime) fn record(&mut self, time: Duration, count: u64) {
        if time > LONGEST {
            self.saturated += count;
        }
        let us = u64::try_from(time.min(LONGEST).as_micros()).unwrap_or(u64::MAX);
        // A value up to an hour always has a place: the histogram grows.
        let _ = self.histogram.record_n(us, count);
    }

    pub(in crate::runtime) fn add(&mut self, other: &Self) {
        self.saturated += other.saturated;
        // Of one kind, and it grows: nothing can be out of range.
        let _ = self.histogram.add(&other.histogram);
    }

    pub(in crate::runtime) fn summary(&self) -> Option<LatencySummary> {
        (!self.histogram.is_empty()).then(|| LatencySummary {
            markers: self.histogram.len(),
            p50_us: self.histogram.value_at_quantile(0.50),
            p95_us: self.histogram.value_at_quantile(0.95),
            p99_us: self.histogram.value_at_quantile(0.99),
            max_us: self.histogram.max(),
            saturated: self.saturated,
        })
    }
}

/// How long markers took from the sources to a place, or rows at a place, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencySummary {
    /// How many markers came, or how many rows.
    pub markers: u64,
    /// Half of them took at most this long.
    pub p50_us: u64,
    /// 95 of 100 took at most this long.
    pub p95_us: u64,
    /// 99 of 100 took at most this long.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Longer than an hour, counted as an hour.
    pub saturated: u64,
}

/// Decides when a source sends its next marker.
#[derive(Debug)]
pub(in crate::runtime) struct MarkerClock {
    interval_us: i64,
    due_us: Option<i64>,
}

impl MarkerClock {
    pub(in crate::runtime) fn new(interval: Duration) -> Self {
        Self { interval_us: micros(interval), due_us: None }
    }

    /// Whether a marker is due behind rows that were handed on now, by the job's clock; behind the first
    /// ones it is.
    pub(in crate::runtime) fn is_due(&mut self, now_us: i64) -> bool {
        if self.due_us.is_some_and(|due_us| now_us < due_us) {
            return false;
        }
        self.due_us = Some(now_us.saturating_add(self.interval_us));
        true
    }
}

/// What an operator measures.
#[derive(Debug, Clone, Copy)]
pub(in crate::runtime) enum Measured {
    /// A marker came, this long after it was made.
    Marker(LatencyMarker, Duration),
    /// Rows waited before the operator: read and not taken, or in a channel.
    Wait(Duration, u64),
    /// The operator worked on rows.
    Compute(Duration, u64),
    /// Rows were held until the watermark released them; the oldest of them this long.
    Held(Duration, u64),
    /// Rows came to the sink this long after they were read.
    Total(Duration, u64),
}

/// The histograms of an operator.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct Recorders {
    granularity: LatencyGranularity,
    pub(in crate::runtime) markers: BTreeMap<Option<(u32, u32)>, LatencyRecorder>,
    pub(in crate::runtime) wait: LatencyRecorder,
    pub(in crate::runtime) compute: LatencyRecorder,
    pub(in crate::runtime) held: LatencyRecorder,
    pub(in crate::runtime) total: LatencyRecorder,
}

impl Recorders {
    fn new(granularity: LatencyGranularity) -> Self {
        let new = LatencyRecorder::new;
        let markers = BTreeMap::new();
        Self { granularity, markers, wait: new(), compute: new(), held: new(), total: new() }
    }

    fn take(&mut self, measured: Measured) {
        match measured {
            Measured::Marker(marker, time) => {
                let recorder = self.markers.entry(self.granularity.origin(marker));
                recorder.or_insert_with(LatencyRecorder::new).record(time, 1);
            }
            Measured::Wait(time, rows) => self.wait.record(time, rows),
            Measured::Compute(time, rows) => self.compute.record(time, rows),
            Measured::Held(time, rows) => self.held.record(time, rows),
            Measured::Total(time, rows) => self.total.record(time, rows),
        }
    }

    /// Markers of all origins.
    pub(in crate::runtime) fn all_markers(&self) -> LatencyRecorder {
        let mut all = LatencyRecorder::new();
        self.markers.values().for_each(|one| all.add(one));
        all
    }
}

/// The histograms of an operator where others can read them. Its writer never waits.
#[derive(Debug)]
pub(in crate::runtime) struct LatencyCell(Mutex<Recorders>);

impl LatencyCell {
    pub(in crate::runtime) fn new(granularity: LatencyGranularity) -> Self {
        Self(Mutex::new(Recorders::new(granularity)))
    }

    /// Records; what can't be recorded because somebody reads stays in `pending` for the next time.
    pub(in crate::runtime) fn record(&self, measured: Measured, pending: &mut Vec<Measured>) {
        let mut recorders = match self.0.try_lock() {
            Ok(recorders) => recorders,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if pending.len() < MOST_PENDING => {
                pending.push(measured);
                return;
            }
            Err(TryLockError::WouldBlock) => lock(&self.0),
        };
        for measured in pending.drain(..) {
            recorders.take(measured);
        }
        recorders.take(measured);
    }

    /// Records what is still pending.
    pub(in crate::runtime) fn flush(&self, pending: &mut Vec<Measured>) {
        let mut recorders = lock(&self.0);
        pending.drain(..).for_each(|measured| recorders.take(measured));
    }

    pub(in crate::runtime) fn read(&self) -> Recorders {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_has_a_place() {
        let mut recorder = LatencyRecorder::new();
        for time in [Duration::ZERO, Duration::from_micros(1), Duration::from_secs(60 * 10)] {
            recorder.record(time, 1);
        }
        // Twenty-five years, and more than a histogram can hold.
        recorder.record(Duration::from_secs(800_000_000), 2);
        recorder.record(Duration::MAX, 1);
        let summary = recorder.summary().unwrap();
        assert_eq!((summary.markers, summary.saturated), (6, 3));
        // Three digits of an hour.
        assert!(summary.max_us.abs_diff(3_600_000_000) <= 3_600_000, "{}", summary.max_us);
        assert!(summary.p50_us.abs_diff(600_000_000) <= 600_000, "{}", summary.p50_us);
    }

    #[test]
    fn a_reader_makes_nobody_wait_and_nothing_is_lost() {
        let cell = LatencyCell::new(LatencyGranularity::Single);
        let mut pending = Vec::new();
        let reader = lock(&cell.0);
        cell.record(Measured::Compute(Duration::from_micros(5), 7), &mut pending);
        assert_eq!(pending.len(), 1);
        drop(reader);
        cell.record(Measured::Compute(Duration::from_micros(9), 1), &mut pending);
        assert!(pending.is_empty());
        assert_eq!(cell.read().compute.summary().unwrap().markers, 8);
    }

    #[test]
    fn markers_are_told_apart_as_far_as_wanted() {
        let made = std::time::Instant::now();
        let markers =
            [(0, 0), (0, 1), (3, 0)].map(|(source, subtask)| LatencyMarker { source, subtask, made });
        for (granularity, kinds) in [
            (LatencyGranularity::Single, 1),
            (LatencyGranularity::Operator, 2),
            (LatencyGranularity::Subtask, 3),
        ] {
            let mut recorders = Recorders::new(granularity);
            markers.iter().for_each(|marker| recorders.take(Measured::Marker(*marker, Duration::ZERO)));
            assert_eq!(recorders.markers.len(), kinds);
            assert_eq!(recorders.all_markers().summary().unwrap().markers, 3);
            assert_eq!(LatencyGranularity::of(granularity.name()), Some(granularity));
        }
    }

    #[test]
    fn the_first_marker_follows_the_first_rows() {
        let mut clock = MarkerClock::new(Duration::from_millis(200));
        assert!(clock.is_due(1_000));
        assert!(!clock.is_due(200_999));
        assert!(clock.is_due(201_000));
    }
}

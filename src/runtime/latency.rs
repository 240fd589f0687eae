//! Latency markers: made by sources, recorded by every operator, ended by sinks.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::stream::LatencyMarker;

/// The longest latency that is told apart; longer ones are counted as this long.
const LONGEST: Duration = Duration::from_secs(3_600);

/// The latencies from sources to one place, in microseconds. Takes memory from the first marker on.
#[derive(Debug, Clone)]
pub(super) struct LatencyRecorder {
    histogram: Option<Histogram<u64>>,
    saturated: u64,
}

impl LatencyRecorder {
    pub(super) fn new() -> Self {
        Self { histogram: None, saturated: 0 }
    }

    /// Records the way of a marker up to now.
    pub(super) fn record(&mut self, marker: LatencyMarker) {
        let latency = marker.made.elapsed();
        if latency > LONGEST {
            self.saturated += 1;
        }
        let histogram = self.histogram.get_or_insert_with(|| {
            let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
            Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
        });
        histogram.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX));
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.saturated += other.saturated;
        match (&mut self.histogram, &other.histogram) {
            (_, None) => {}
            (None, Some(histogram)) => self.histogram = Some(histogram.clone()),
            // The bounds are equal, so nothing can be out of range.
            (Some(sum), Some(histogram)) => drop(sum.add(histogram)),
        }
    }

    pub(super) fn summary(&self) -> Option<LatencySummary> {
        let histogram = self.histogram.as_ref()?;
        Some(LatencySummary {
            markers: histogram.len(),
            p50_us: histogram.value_at_quantile(0.50),
            p99_us: histogram.value_at_quantile(0.99),
            max_us: histogram.max(),
            saturated: self.saturated,
        })
    }
}

/// How long markers took from the sources to a place, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencySummary {
    /// How many markers came.
    pub markers: u64,
    /// Half of them took at most this long.
    pub p50_us: u64,
    /// 99 of 100 took at most this long.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
    /// Longer than an hour, counted as an hour.
    pub saturated: u64,
}

/// Decides when a source sends its next marker.
#[derive(Debug)]
pub(super) struct MarkerClock {
    interval: Duration,
    due: Option<Instant>,
}

impl MarkerClock {
    /// An interval of zero: no markers.
    pub(super) fn new(interval: Duration) -> Self {
        Self { interval, due: None }
    }

    /// Whether a marker is due; the first one is due at once.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        if self.interval.is_zero() || self.due.is_some_and(|due| now < due) {
            return false;
        }
        self.due = Some(now + self.interval);
        true
    }

    /// How long a source without rows may sleep before it owes a marker.
    pub(super) fn until_due(&self, now: Instant) -> Duration {
        if self.interval.is_zero() {
            return Duration::from_secs(3_600);
        }
        self.due.map_or(Duration::ZERO, |due| due.saturating_duration_since(now))
    }
}

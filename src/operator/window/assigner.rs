//! Which windows a time belongs to, and when they close.
//!
//! Windows are cut on a clock: UTC, or the wall clock of a zone. Everything here but
//! [`Assigner::close`] is in microseconds on that clock.

use chrono_tz::Tz;

use super::zone::ZoneClock;
use crate::error::Error;
use crate::plan::{WindowKind, WindowSpec};

/// Cuts time into slices: the pieces of which windows are made.
#[derive(Debug, Clone)]
pub(crate) struct Assigner {
    kind: Kind,
    /// Length of a slice.
    slice_us: i64,
    /// Length of the longest window.
    size_us: i64,
    offset_us: i64,
    unit_us: i64,
    zone: Option<ZoneClock>,
}

/// How windows are made of slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A window is a slice.
    Tumble,
    /// A window is a fixed number of slices; one starts with each slice.
    Hop,
    /// Windows share a start and grow by a slice.
    Cumulate,
    /// One window without bounds.
    Global,
}

/// The windows that a slice is part of, by their ends: `first`, `first + step`, … `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) step: i64,
}

impl Ends {
    /// All of them, ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = i64> {
        std::iter::successors(Some(self.first), move |end| {
            end.checked_add(self.step).filter(|next| *next <= self.last)
        })
    }

    fn count(self) -> i64 {
        (self.last.saturating_sub(self.first)) / self.step + 1
    }
}

impl Assigner {
    /// # Errors
    /// An internal error for SESSION, whose windows are no function of the time alone.
    pub(crate) fn try_new(spec: &WindowSpec) -> Result<Self, Error> {
        let (kind, slice_us, size_us) = match spec.kind {
            WindowKind::Tumble { size_us } => (Kind::Tumble, size_us, size_us),
            WindowKind::Hop { slide_us, size_us } => (Kind::Hop, slide_us, size_us),
            WindowKind::Cumulate { step_us, size_us } => (Kind::Cumulate, step_us, size_us),
            WindowKind::Global => (Kind::Global, i64::MAX, i64::MAX),
            WindowKind::Session { .. } => {
                return Err(Error::internal("Assigner", "sessions are made by rows, not by the time"));
            }
        };
        if slice_us <= 0 || size_us % slice_us != 0 {
            return Err(Error::internal(
                "Assigner",
                format!("windows of {size_us} µs can't be made of slices of {slice_us} µs"),
            ));
        }
        Ok(Self {
            kind,
            slice_us,
            size_us,
            offset_us: spec.offset_us,
            unit_us: spec.unit.us(),
            zone: spec.zone.and_then(ZoneClock::unless_utc),
        })
    }

    /// For windows that rows carry: nothing is assigned, but their ends close.
    pub(crate) fn attached(unit_us: i64, zone: Option<Tz>) -> Self {
        Self {
            kind: Kind::Tumble,
            slice_us: 1,
            size_us: 1,
            offset_us: 0,
            unit_us,
            zone: zone.and_then(ZoneClock::unless_utc),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn slice_us(&self) -> i64 {
        self.slice_us
    }

    pub(crate) fn unit_us(&self) -> i64 {
        self.unit_us
    }

    /// Whether windows are cut by another clock than UTC.
    pub(crate) fn has_zone(&self) -> bool {
        self.zone.is_some()
    }

    /// What the clock shows at `instant`.
    pub(crate) fn local(&mut self, instant: i64) -> i64 {
        match &mut self.zone {
            None => instant,
            Some(clock) => clock.local(instant),
        }
    }

    /// Start of the slice that `time` is in: rounded down, before 1970 too.
    pub(crate) fn slice_start(&self, time: i64) -> i64 {
        self.floor(time, self.slice_us)
    }

    fn floor(&self, time: i64, length: i64) -> i64 {
        let steps = time.saturating_sub(self.offset_us).div_euclid(length);
        steps.saturating_mul(length).saturating_add(self.offset_us)
    }

    /// The number of the slice that starts at `start`; neighbours differ by 1.
    pub(crate) fn slice_index(&self, start: i64) -> i64 {
        start.saturating_sub(self.offset_us).div_euclid(self.slice_us)
    }

    /// Start of the slice of that number.
    pub(crate) fn slice_of(&self, index: i64) -> i64 {
        index.saturating_mul(self.slice_us).saturating_add(self.offset_us)
    }

    /// The windows that the slice is part of.
    pub(crate) fn ends(&self, slice_start: i64) -> Ends {
        let first = slice_start.saturating_add(self.slice_us);
        let last = match self.kind {
            Kind::Tumble | Kind::Global => first,
            Kind::Hop => slice_start.saturating_add(self.size_us),
            Kind::Cumulate => self.floor(slice_start, self.size_us).saturating_add(self.size_us),
        };
        Ends { first, last, step: self.slice_us }
    }

    /// Start of the window that ends at `end`.
    pub(crate) fn window_start(&self, end: i64) -> i64 {
        match self.kind {
            Kind::Tumble | Kind::Hop | Kind::Global => end.saturating_sub(self.size_us),
            Kind::Cumulate => self.floor(end.saturating_sub(1), self.size_us),
        }
    }

    /// The watermark, in UTC, with which the window that ends at `end` closes: its last instant,
    /// one unit before its end.
    pub(crate) fn close(&self, end: i64) -> i64 {
        let last = end.saturating_sub(self.unit_us);
        match &self.zone {
            None => last,
            Some(clock) => clock.last_instant(last, self.unit_us),
        }
    }

    /// How far a watermark is past the end of a window that closes at `close`; not below zero.
    pub(crate) fn past_end(&self, watermark: i64, close: i64) -> i64 {
        watermark.saturating_sub(close.saturating_add(self.unit_us)).max(0)
    }

    /// The end of the first of `ends` that the watermark `running` has not closed.
    pub(crate) fn first_open(&self, ends: Ends, running: i64) -> Option<i64> {
        let is_open = |end: i64| running < self.close(end);
        if is_open(ends.first) {
            return Some(ends.first);
        }
        if !is_open(ends.last) {
            return None;
        }
        // `closed` has closed, `open` has not.
        let (mut closed, mut open) = (0, ends.count() - 1);
        while open - closed > 1 {
            let middle = closed + (open - closed) / 2;
            if is_open(ends.first + middle * ends.step) { open = middle } else { closed = middle }
        }
        Some(ends.first + open * ends.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::TimeUnit;

    fn assigner(kind: WindowKind, offset_us: i64) -> Assigner {
        Assigner::try_new(&WindowSpec { kind, offset_us, zone: None, unit: TimeUnit::Microsecond }).unwrap()
    }

    #[test]
    fn times_before_1970_round_down() {
        let tumble = assigner(WindowKind::Tumble { size_us: 10 }, 0);
        assert_eq!([-11, -10, -1, 0, 9, 10].map(|time| tumble.slice_start(time)), [-20, -10, -10, 0, 0, 10]);
        let shifted = assigner(WindowKind::Tumble { size_us: 10 }, -3);
        assert_eq!([-4, -3, 6, 7].map(|time| shifted.slice_start(time)), [-13, -3, -3, 7]);
    }

    #[test]
    fn ends_of_hop_and_cumulate() {
        let hop = assigner(WindowKind::Hop { slide_us: 5, size_us: 15 }, 0);
        assert_eq!(hop.ends(10).iter().collect::<Vec<_>>(), [15, 20, 25]);
        assert_eq!(hop.window_start(15), 0);
        let cumulate = assigner(WindowKind::Cumulate { step_us: 5, size_us: 15 }, 0);
        assert_eq!(cumulate.ends(0).iter().collect::<Vec<_>>(), [5, 10, 15]);
        assert_eq!(cumulate.ends(10).iter().collect::<Vec<_>>(), [15]);
        assert_eq!([5, 15, 20].map(|end| cumulate.window_start(end)), [0, 0, 15]);
    }

    #[test]
    fn a_window_is_open_up_to_its_last_unit() {
        let hop = assigner(WindowKind::Hop { slide_us: 5, size_us: 15 }, 0);
        let ends = hop.ends(0);
        assert_eq!(
            [3, 4, 8, 9, 13, 14].map(|running| hop.first_open(ends, running)),
            [Some(5), Some(10), Some(10), Some(15), Some(15), None]
        );
    }

    #[test]
    fn the_ends_of_time_do_not_panic() {
        for kind in [
            WindowKind::Tumble { size_us: 10 },
            WindowKind::Hop { slide_us: 5, size_us: 15 },
            WindowKind::Cumulate { step_us: 5, size_us: 15 },
            WindowKind::Global,
        ] {
            let assigner = assigner(kind, 3);
            for time in [i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX] {
                let ends = assigner.ends(assigner.slice_start(time));
                assert!(ends.iter().count() <= 3);
                assigner.first_open(ends, time);
                assigner.window_start(ends.last);
            }
        }
    }
}

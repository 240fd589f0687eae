//! The wall clock of a zone.

use chrono::offset::{LocalResult, Offset, TimeZone};
use chrono::{DateTime, NaiveDateTime};
use chrono_tz::Tz;

use crate::stream::EventTime;

/// Offsets of a zone are looked up once for this long a stretch of time, if it has no transition.
const STRETCH_US: i64 = 15 * 60 * 1_000_000;

/// The wall clock of a zone: local time is held as microseconds, as if it were UTC.
#[derive(Debug, Clone)]
pub(crate) struct ZoneClock {
    zone: Tz,
    /// A stretch `[start, start + STRETCH_US)` without a transition, and the offset in it.
    stretch: Option<(i64, i64)>,
}

impl ZoneClock {
    pub(crate) fn new(zone: Tz) -> Self {
        Self { zone, stretch: None }
    }

    /// The clock of a zone that is not UTC, whose wall clock shows the instant itself.
    pub(crate) fn unless_utc(zone: Tz) -> Option<Self> {
        (zone != Tz::UTC).then(|| Self::new(zone))
    }

    /// What the clock on the wall shows at `instant`.
    pub(crate) fn local(&mut self, instant: EventTime) -> i64 {
        let start = instant.div_euclid(STRETCH_US).saturating_mul(STRETCH_US);
        let offset = match self.stretch {
            Some((known, offset)) if known == start => offset,
            _ => {
                let offset = self.offset(start);
                if self.offset(start.saturating_add(STRETCH_US)) == offset {
                    self.stretch = Some((start, offset));
                    offset
                } else {
                    self.offset(instant)
                }
            }
        };
        instant.saturating_add(offset)
    }

    /// Local time minus UTC at `instant`. Beyond the years that chrono knows: 0.
    fn offset(&self, instant: EventTime) -> i64 {
        DateTime::from_timestamp_micros(instant).map_or(0, |utc| {
            let offset = self.zone.offset_from_utc_datetime(&utc.naive_utc());
            i64::from(offset.fix().local_minus_utc()) * 1_000_000
        })
    }

    /// The last instant at which the clock shows `local` or less: all that follow show more.
    ///
    /// Where the clock is put back, a local time comes twice: the second time counts. Where it is
    /// put forward, the instant before the jump, to the `unit`.
    pub(crate) fn last_instant(&self, local: i64, unit_us: i64) -> EventTime {
        let Some(naive) = DateTime::from_timestamp_micros(local).map(|utc| utc.naive_utc()) else {
            return local;
        };
        match self.zone.from_local_datetime(&naive) {
            LocalResult::Single(time) => time.timestamp_micros(),
            LocalResult::Ambiguous(one, other) => one.timestamp_micros().max(other.timestamp_micros()),
            LocalResult::None => self.before_jump(&naive, unit_us),
        }
    }

    /// The instant before the jump that leaves out the local time `skipped`, found by halving.
    fn before_jump(&self, skipped: &NaiveDateTime, unit_us: i64) -> EventTime {
        const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;
        let local = skipped.and_utc().timestamp_micros();
        let shows = |instant: i64| instant.saturating_add(self.offset(instant));
        // Zones have moved across the date line: offsets stay within two days of UTC.
        let (mut before, mut after) = (local.saturating_sub(2 * DAY_US), local.saturating_add(2 * DAY_US));
        while after.saturating_sub(before) > 1 {
            let middle = before + (after - before) / 2;
            if shows(middle) <= local { before = middle } else { after = middle }
        }
        after.saturating_sub(unit_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::str::FromStr;

    const HOUR: i64 = 3_600_000_000;

    fn us(text: &str) -> i64 {
        DateTime::parse_from_rfc3339(text).unwrap().timestamp_micros()
    }

    #[test]
    fn new_york_goes_forward_and_back() {
        let mut clock = ZoneClock::new(chrono_tz::America::New_York);
        assert_eq!(clock.local(us("2024-03-10T06:59:59Z")), us("2024-03-10T01:59:59Z"));
        assert_eq!(clock.local(us("2024-03-10T07:00:00Z")), us("2024-03-10T03:00:00Z"));
        assert_eq!(clock.local(us("2024-11-03T05:30:00Z")), us("2024-11-03T01:30:00Z"));
        assert_eq!(clock.local(us("2024-11-03T06:30:00Z")), us("2024-11-03T01:30:00Z"));
        // 02:30 does not exist: the last instant of 01:59:59.999 counts.
        assert_eq!(clock.last_instant(us("2024-03-10T02:30:00Z"), 1_000), us("2024-03-10T06:59:59.999Z"));
        // 01:30 comes twice: 05:30Z and 06:30Z.
        assert_eq!(clock.last_instant(us("2024-11-03T01:30:00Z"), 1_000), us("2024-11-03T06:30:00Z"));
        assert_eq!(clock.last_instant(us("2024-11-03T02:00:00Z"), 1_000), us("2024-11-03T07:00:00Z"));
    }

    #[test]
    fn a_day_that_a_zone_left_out() {
        // Samoa went from 2011-12-29 24:00 (-10) to 2011-12-31 00:00 (+14) at 10:00Z.
        let clock = ZoneClock::new(chrono_tz::Pacific::Apia);
        assert_eq!(clock.last_instant(us("2011-12-30T12:00:00Z"), 1_000), us("2011-12-30T09:59:59.999Z"));
    }

    #[test]
    fn far_years_and_every_zone_are_safe() {
        for zone in chrono_tz::TZ_VARIANTS {
            let mut clock = ZoneClock::new(zone);
            for text in ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "1900-01-01T00:00:00Z"] {
                let instant = us(text);
                let local = clock.local(instant);
                assert!((local - instant).abs() < 27 * HOUR, "{zone} {text}");
                assert!(clock.last_instant(local, 1) >= instant, "{zone} {text}");
            }
            for extreme in [i64::MIN, i64::MAX] {
                clock.local(extreme);
                clock.last_instant(extreme, 1);
            }
        }
    }

    #[test]
    fn no_instant_comes_after_its_local_time_has_passed() {
        // Every 20 minutes of the years around 2024, in zones with odd transitions.
        for name in ["America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata"] {
            let mut clock = ZoneClock::new(Tz::from_str(name).unwrap());
            let mut instant = us("2023-12-31T00:00:00Z");
            while instant < us("2025-01-02T00:00:00Z") {
                let local = clock.local(instant);
                let last = clock.last_instant(local, 1_000);
                assert!(last >= instant, "{name}: {instant} shows {local}, which ended at {last}");
                instant += HOUR / 3;
            }
        }
    }
}

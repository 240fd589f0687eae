//! The clock behind everything that waits for time to pass: the system's, or one that tests move.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A length of time in microseconds; more than there can be are as many as there can be.
pub(crate) fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// This moment, to measure latency from; what a job does never depends on it.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Tells the time.
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since 1970-01-01T00:00:00Z. May be set back or forth by whoever sets clocks.
    fn wall_us(&self) -> i64;

    /// Microseconds since some moment of the past. Never goes back.
    fn elapsed_us(&self) -> i64;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(now())
    }
}

impl Clock for SystemClock {
    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(after) => micros(after),
            Err(before) => -micros(before.duration()),
        }
    }

    fn elapsed_us(&self) -> i64 {
        micros(self.0.elapsed())
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct VirtualClock {
    start_us: i64,
    passed_us: AtomicI64,
}

impl VirtualClock {
    /// A clock that shows `wall_us`, microseconds since 1970-01-01T00:00:00Z.
    pub fn new(wall_us: i64) -> Self {
        Self { start_us: wall_us, passed_us: AtomicI64::new(0) }
    }

    /// Lets time pass.
    pub fn advance(&self, time: Duration) {
        self.passed_us.fetch_add(micros(time), Ordering::AcqRel);
    }
}

impl Clock for VirtualClock {
    fn wall_us(&self) -> i64 {
        self.start_us.saturating_add(self.elapsed_us())
    }

    fn elapsed_us(&self) -> i64 {
        self.passed_us.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_moves_when_it_is_told_to() {
        let clock = VirtualClock::new(1_000);
        assert_eq!((clock.wall_us(), clock.elapsed_us()), (1_000, 0));
        clock.advance(Duration::from_millis(2));
        assert_eq!((clock.wall_us(), clock.elapsed_us()), (3_000, 2_000));
    }
}

//! When a split that has nothing to give is told idle.

/// Looks at one split from probe to probe, as `IDLE AFTER` has it.
///
/// A split that gave something since the last probe is active. The first probe that finds it empty
/// starts the timer, and when it has been empty for longer than the timeout it is idle. Time in
/// which it was not empty, or in which we did not want its rows, does not count.
#[derive(Debug)]
pub(super) struct IdleTimer {
    timeout_us: i64,
    empty_since_us: Option<i64>,
    is_idle: bool,
}

impl IdleTimer {
    pub(super) fn new(timeout_us: i64) -> Self {
        Self { timeout_us, empty_since_us: None, is_idle: false }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// The split gave a row.
    pub(super) fn wake(&mut self) {
        self.is_idle = false;
        self.empty_since_us = None;
    }

    /// For some time nobody took rows of the split.
    pub(super) fn pause(&mut self) {
        self.empty_since_us = None;
    }

    /// One look. True when the split becomes idle by it.
    pub(super) fn probe(&mut self, now_us: i64, is_empty: bool) -> bool {
        if self.is_idle {
            return false;
        }
        if !is_empty {
            self.empty_since_us = None;
            return false;
        }
        let since_us = *self.empty_since_us.get_or_insert(now_us);
        self.is_idle = now_us - since_us > self.timeout_us;
        self.is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_quiet_probe_starts_the_timer() {
        let mut timer = IdleTimer::new(100);
        // However late it comes.
        assert!(!timer.probe(5_000, true));
        assert!(!timer.probe(5_100, true));
        assert!(timer.probe(5_101, true));
        // It becomes idle once.
        assert!(!timer.probe(9_000, true) && timer.is_idle());
        timer.wake();
        assert!(!timer.is_idle() && !timer.probe(9_001, true));
    }

    #[test]
    fn activity_and_pauses_start_it_anew() {
        let mut timer = IdleTimer::new(100);
        assert!(!timer.probe(0, true));
        timer.wake();
        assert!(!timer.probe(150, true));
        assert!(!timer.probe(240, true));
        // Not empty: rows wait to be taken.
        assert!(!timer.probe(250, false));
        assert!(!timer.probe(1_000, true));
        // Back-pressure.
        timer.pause();
        assert!(!timer.probe(5_000, true));
        assert!(!timer.probe(5_100, true));
        assert!(timer.probe(5_101, true));
    }
}

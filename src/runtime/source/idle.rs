//! When a split that has nothing to give is told idle.

/// Looks at one split from probe to probe, as `IDLE AFTER` has it.
///
/// A split that gave something since the last probe is active. The first probe that finds it empty
/// starts the timer, and when it has been empty for longer than the timeout it is idle. A row starts
/// it anew. Time in which we did not want rows or did not look for them does not count: the timer
/// stands still meanwhile, or a source that is held up now and then would never be idle.
#[derive(Debug)]
pub(super) struct IdleTimer {
    timeout_us: i64,
    /// Less what does not count.
    empty_since_us: Option<i64>,
    /// When it was last known to be empty.
    seen_empty_us: i64,
    /// Nobody took rows since then.
    is_paused: bool,
    is_idle: bool,
}

/// A timer as a checkpoint has it. Moments of the job's clock, microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in super::super) struct TimerMark {
    pub(in super::super) empty_since_us: Option<i64>,
    pub(in super::super) seen_empty_us: i64,
    pub(in super::super) is_paused: bool,
    pub(in super::super) is_idle: bool,
}

impl TimerMark {
    /// The same on a clock that shows the moments so much later: the time between two runs does not count.
    pub(super) fn later_by(self, shift_us: i64) -> Self {
        Self {
            empty_since_us: self.empty_since_us.map(|since_us| since_us.saturating_add(shift_us)),
            seen_empty_us: self.seen_empty_us.saturating_add(shift_us),
            ..self
        }
    }
}

impl IdleTimer {
    /// One that goes on where another one was left.
    pub(super) fn left_at(timeout_us: i64, mark: TimerMark) -> Self {
        let TimerMark { empty_since_us, seen_empty_us, is_paused, is_idle } = mark;
        Self { timeout_us, empty_since_us, seen_empty_us, is_paused, is_idle }
    }

    /// How it is left now.
    pub(super) fn mark(&self) -> TimerMark {
        let Self { empty_since_us, seen_empty_us, is_paused, is_idle, .. } = *self;
        TimerMark { empty_since_us, seen_empty_us, is_paused, is_idle }
    }

    pub(super) fn new(timeout_us: i64) -> Self {
        Self { timeout_us, empty_since_us: None, seen_empty_us: 0, is_paused: false, is_idle: false }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// When it is idle if nothing comes before, or later.
    pub(super) fn due_us(&self) -> Option<i64> {
        let since_us = self.empty_since_us.filter(|_| !self.is_idle)?;
        Some(since_us.saturating_add(self.timeout_us).saturating_add(1))
    }

    /// The split gave a row.
    pub(super) fn wake(&mut self) {
        self.is_idle = false;
        self.empty_since_us = None;
    }

    /// The split says by itself that it is idle.
    pub(super) fn told(&mut self) {
        self.is_idle = true;
    }

    /// For some time nobody took rows of the split.
    pub(super) fn pause(&mut self) {
        self.is_paused = true;
    }

    /// One look. `found_empty_us`: when somebody last found nothing to read there, if nothing waits
    /// to be taken. True when the split becomes idle by it.
    pub(super) fn probe(&mut self, now_us: i64, found_empty_us: Option<i64>) -> bool {
        if self.is_idle {
            return false;
        }
        let Some(found_empty_us) = found_empty_us else {
            self.empty_since_us = None;
            return false;
        };
        if std::mem::take(&mut self.is_paused)
            && let Some(since_us) = &mut self.empty_since_us
        {
            *since_us = since_us.saturating_add(found_empty_us.saturating_sub(self.seen_empty_us));
        }
        self.seen_empty_us = found_empty_us;
        let since_us = *self.empty_since_us.get_or_insert(now_us);
        self.is_idle = found_empty_us.saturating_sub(since_us) > self.timeout_us;
        self.is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look at a split that is found empty at the same moment.
    fn empty(timer: &mut IdleTimer, now_us: i64) -> bool {
        timer.probe(now_us, Some(now_us))
    }

    #[test]
    fn the_first_quiet_probe_starts_the_timer() {
        let mut timer = IdleTimer::new(100);
        // However late it comes.
        assert!(!empty(&mut timer, 5_000));
        assert!(!empty(&mut timer, 5_100));
        assert!(empty(&mut timer, 5_101));
        // It becomes idle once.
        assert!(!empty(&mut timer, 9_000) && timer.is_idle());
        assert_eq!(timer.due_us(), None);
        timer.wake();
        assert!(!timer.is_idle() && !empty(&mut timer, 9_001));
        assert_eq!(timer.due_us(), Some(9_102));
    }

    #[test]
    fn activity_starts_it_anew() {
        let mut timer = IdleTimer::new(100);
        assert!(!empty(&mut timer, 0));
        timer.wake();
        assert!(!empty(&mut timer, 150));
        assert!(!empty(&mut timer, 240));
        // Not empty: rows wait to be taken.
        assert!(!timer.probe(250, None));
        assert!(!empty(&mut timer, 1_000));
        assert!(!empty(&mut timer, 1_100));
        assert!(empty(&mut timer, 1_101));
    }

    #[test]
    fn time_in_which_nobody_takes_rows_does_not_count() {
        let mut timer = IdleTimer::new(100);
        assert!(!empty(&mut timer, 1_000));
        assert!(!empty(&mut timer, 1_060));
        // Back-pressure, from some moment after 1060 to some moment before 5000.
        timer.pause();
        timer.pause();
        assert!(!empty(&mut timer, 5_000));
        // 60 and 40.
        assert!(!empty(&mut timer, 5_040));
        assert!(empty(&mut timer, 5_041));
    }

    #[test]
    fn a_split_that_is_held_up_now_and_then_becomes_idle() {
        let mut timer = IdleTimer::new(100);
        assert!(!empty(&mut timer, 0));
        let idle_at = (1..100).map(|step| step * 10).find(|now_us| {
            timer.pause();
            empty(&mut timer, *now_us) || empty(&mut timer, now_us + 5)
        });
        // Of each ten five count.
        assert_eq!(idle_at, Some(210));
    }

    #[test]
    fn what_nobody_looked_at_is_not_known_to_be_empty() {
        let mut timer = IdleTimer::new(100);
        assert!(!timer.probe(10, Some(5)));
        // The reader is busy with other splits.
        assert!(!timer.probe(5_000, Some(5)));
        assert!(!timer.probe(5_010, Some(110)));
        assert!(timer.probe(5_020, Some(111)));
    }
}

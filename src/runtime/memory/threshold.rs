//! From how much state on some of it is put away.
//!
//! Operators tell what they use, and the process needs more than that: what the allocator holds back, what is on its way.
//! So less state is kept when the process has grown beyond the limit: not at once what it takes to come below
//! it again, because memory that was freed is used again before the process grows.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits below this say nothing of the process.
const LEAST: u64 = 64 << 20;

/// A part of the limit, in sixteenths of it.
#[derive(Debug, Default)]
pub(super) struct Threshold {
    /// What the process had when the first job began.
    base: OnceLock<u64>,
    /// The most that it had more than that when it was looked at.
    most: AtomicU64,
    /// How many sixteenths less are kept.
    less: AtomicU64,
}

/// Sixteenths of the limit that are kept at first, and at least.
const FIRST: u64 = 13;
const LAST: u64 = 8;

impl Threshold {
    /// A job begins. `resident`: what the process has, bytes.
    pub(super) fn begin(&self, resident: impl FnOnce() -> Option<u64>) {
        self.base.get_or_init(|| resident().unwrap_or(u64::MAX));
    }

    /// Looks at the process, of which much is state.
    pub(super) fn adapt(&self, limit: u64, resident: impl FnOnce() -> Option<u64>) {
        if limit < LEAST || self.less.load(Ordering::Relaxed) == FIRST - LAST {
            return;
        }
        let (Some(base), Some(resident)) = (self.base.get(), resident()) else { return };
        let grown = resident.saturating_sub(*base);
        if grown <= limit {
            return;
        }
        // Once for each step that it grows.
        let before = self.most.fetch_max(grown, Ordering::Relaxed).max(limit);
        if grown / (limit / 64) > before / (limit / 64) {
            let less = |less: u64| (less < FIRST - LAST).then_some(less + 1);
            // It stays where it is at the end.
            let _ = self.less.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// Bytes of state that are kept of a limit.
    pub(super) fn of(&self, limit: u64) -> u64 {
        let sixteenths = FIRST - self.less.load(Ordering::Relaxed);
        limit / 16 * sixteenths + limit % 16 * sixteenths / 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    #[test]
    fn less_is_kept_with_each_step_that_the_process_grows_beyond_the_limit() {
        let threshold = Threshold::default();
        let limit = 640 * MB;
        threshold.begin(|| Some(100 * MB));
        let kept_of = |resident: u64| {
            threshold.adapt(limit, || Some(resident * MB));
            threshold.of(limit) / MB
        };
        assert_eq!(kept_of(740), 520);
        assert_eq!(kept_of(755), 480);
        assert_eq!(kept_of(755), 480, "it has not grown");
        assert_eq!(kept_of(745), 480, "it has become smaller");
        assert_eq!(kept_of(900), 440);
        let last: Vec<u64> = (0..5).map(|step| kept_of(1_000 + step * 100)).collect();
        assert_eq!(last, [400, 360, 320, 320, 320]);
    }

    #[test]
    fn what_is_not_known_changes_nothing() {
        let limit = 640 * MB;
        let threshold = Threshold::default();
        threshold.begin(|| None);
        threshold.adapt(limit, || Some(10_000 * MB));
        let threshold = Threshold::default();
        threshold.begin(|| Some(MB));
        threshold.adapt(limit, || None);
        threshold.adapt(MB, || Some(10_000 * MB));
        assert_eq!((threshold.of(limit), threshold.of(MB), threshold.of(15)), (520 * MB, 13 * MB / 16, 12));
    }
}

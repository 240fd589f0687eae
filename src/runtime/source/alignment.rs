//! Tables of one group that keep together in event time: who is ahead waits before it reads on.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::channel::lock;
use super::super::metrics::SourceCounters;
use crate::plan::Alignment;

/// The sources of a job that name the same group.
#[derive(Debug)]
pub(in super::super) struct AlignmentGroup {
    members: Mutex<Vec<Arc<SourceCounters>>>,
    /// The lowest watermark of the group when it was last looked for.
    lowest: AtomicI64,
}

impl Default for AlignmentGroup {
    fn default() -> Self {
        Self { members: Mutex::default(), lowest: AtomicI64::new(i64::MIN) }
    }
}

impl AlignmentGroup {
    /// Takes in a source.
    pub(in super::super) fn join(&self, member: &Arc<SourceCounters>) {
        lock(&self.members).push(Arc::clone(member));
    }

    /// The lowest watermark of the splits that have one, are not idle and not at their end.
    fn lowest(&self) -> i64 {
        let members = lock(&self.members);
        let lowest = members.iter().filter_map(|member| member.splits.lowest_watermark()).min();
        // Where nobody counts now, somebody may later.
        let known = lowest.map_or(i64::MIN, |watermark| watermark.0);
        self.lowest.store(known, Ordering::Relaxed);
        lowest.map_or(i64::MAX, |watermark| watermark.0)
    }
}

/// A source's place in its group.
#[derive(Debug, Clone)]
pub(in super::super) struct Aligned {
    group: Arc<AlignmentGroup>,
    max_drift_us: i64,
    /// How often one that waits looks whether it may go on.
    pub(super) interval: Duration,
}

impl Aligned {
    pub(in super::super) fn new(group: &Arc<AlignmentGroup>, alignment: &Alignment) -> Self {
        let interval = u64::try_from(alignment.update_interval_us).unwrap_or_default();
        Self {
            group: Arc::clone(group),
            max_drift_us: alignment.max_drift_us,
            interval: Duration::from_micros(interval),
        }
    }

    /// Whether a split that has come to `watermark` has to wait for others.
    pub(super) fn is_ahead(&self, watermark: i64) -> bool {
        let is_ahead = |lowest: i64| watermark > lowest.saturating_add(self.max_drift_us);
        watermark > i64::MIN
            && is_ahead(self.group.lowest.load(Ordering::Relaxed))
            && is_ahead(self.group.lowest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Clock, VirtualClock};

    #[test]
    fn a_group_that_was_all_idle_keeps_together_afterwards() {
        let (group, source) = (Arc::new(AlignmentGroup::default()), Arc::new(SourceCounters::default()));
        group.join(&source);
        let clock: Arc<dyn Clock> = Arc::new(VirtualClock::default());
        let [fast, slow] = ["fast", "slow"].map(|name| source.splits.add(name, &clock));
        let one = Alignment { group: "g".to_owned(), max_drift_us: 10, update_interval_us: 1 };
        let aligned = Aligned::new(&group, &one);
        fast.set_watermark(100);
        slow.set_watermark(50);
        assert!(aligned.is_ahead(100) && !aligned.is_ahead(60) && aligned.is_ahead(61));
        fast.set_idle(true);
        slow.set_idle(true);
        assert!(!aligned.is_ahead(100), "nobody counts");
        slow.set_idle(false);
        assert!(aligned.is_ahead(100));
    }
}

//! Where the time of a task goes: from moment to moment it does one thing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};

use crate::stream::Clock;

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum Activity {
    /// It waits for its inputs.
    Idle,
    /// It waits for those who take its rows.
    BackPressured,
    /// It is at its end.
    Over,
    /// The operator at this place of its chain works.
    Works(usize),
}

const IDLE: usize = 0;
const BACK_PRESSURED: usize = 1;
const OVER: usize = 2;
const WORKS: usize = 3;

impl Activity {
    fn code(self) -> usize {
        match self {
            Self::Idle => IDLE,
            Self::BackPressured => BACK_PRESSURED,
            Self::Over => OVER,
            Self::Works(place) => WORKS + place,
        }
    }
}

/// How much of its time a task has spent on what, microseconds of the job's clock.
///
/// One thread writes. A wait that goes on counts up to the moment of reading, so that a task that
/// stands still for a minute shows it while it stands.
#[derive(Debug)]
pub(in crate::runtime) struct TaskClock {
    clock: Arc<dyn Clock>,
    /// Without it time is not looked at.
    is_on: bool,
    started_us: i64,
    /// Odd while the writer changes something.
    version: AtomicU64,
    activity: AtomicUsize,
    since_us: AtomicI64,
    /// By the code of the activity.
    spent_us: Box<[AtomicU64]>,
}

/// Where the time of a task went, microseconds. `idle + back_pressured + sum(busy)` is the time from
/// its start to the moment of reading or, if it is over, to its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::runtime) struct TaskTimes {
    pub(in crate::runtime) idle_us: u64,
    pub(in crate::runtime) back_pressured_us: u64,
    /// By the place in the chain.
    pub(in crate::runtime) busy_us: Vec<u64>,
    pub(in crate::runtime) total_us: u64,
    pub(in crate::runtime) is_over: bool,
}

impl TaskTimes {
    pub(in crate::runtime) fn all_busy_us(&self) -> u64 {
        self.busy_us.iter().sum()
    }
}

impl TaskClock {
    /// A task with this many places in its chain; it waits.
    pub(in crate::runtime) fn new(clock: Arc<dyn Clock>, places: usize) -> Self {
        let now = clock.elapsed_us();
        Self {
            clock,
            is_on: true,
            started_us: now,
            version: AtomicU64::new(0),
            activity: AtomicUsize::new(IDLE),
            since_us: AtomicI64::new(now),
            spent_us: (0..WORKS + places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The same, which looks at no time.
    pub(in crate::runtime) fn off(self) -> Self {
        Self { is_on: false, ..self }
    }

    /// What the job's clock shows, also where nothing is measured.
    pub(in crate::runtime) fn elapsed_us(&self) -> i64 {
        self.clock.elapsed_us()
    }

    pub(in crate::runtime) fn now_us(&self) -> i64 {
        if self.is_on { self.clock.elapsed_us() } else { 0 }
    }

    /// From now on the task does this.
    pub(in crate::runtime) fn turn_to(&self, activity: Activity) {
        let is_end = activity == Activity::Over;
        if (self.is_on || is_end) && self.activity.load(Ordering::Relaxed) != activity.code() {
            self.turn_at(activity, self.clock.elapsed_us());
        }
    }

    /// From `now` on the task does this; `now` is the time that the clock shows.
    pub(in crate::runtime) fn turn_at(&self, activity: Activity, now: i64) {
        let before = self.activity.load(Ordering::Relaxed);
        if !self.is_on && activity != Activity::Over {
            return;
        }
        if before != activity.code() && before != OVER {
            self.spend(before, now, activity.code());
        }
    }

    /// What it did since the last turn is seen to have been something else.
    pub(in crate::runtime) fn was(&self, activity: Activity) {
        let now = self.clock.elapsed_us();
        self.spend(activity.code(), now, activity.code());
    }

    fn spend(&self, on: usize, now: i64, next: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let spent = now.saturating_sub(self.since_us.load(Ordering::Relaxed)).max(0) as u64;
        if let Some(sum) = self.spent_us.get(on).filter(|_| on != OVER) {
            sum.store(sum.load(Ordering::Relaxed) + spent, Ordering::Relaxed);
        }
        self.activity.store(next, Ordering::Relaxed);
        self.since_us.store(now, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Where its time went up to now.
    pub(in crate::runtime) fn read(&self) -> TaskTimes {
        let (mut spent, mut activity, mut since, mut now);
        loop {
            let before = self.version.load(Ordering::Acquire);
            activity = self.activity.load(Ordering::Relaxed);
            since = self.since_us.load(Ordering::Relaxed);
            spent = self.spent_us.iter().map(|sum| sum.load(Ordering::Relaxed)).collect::<Vec<_>>();
            now = self.clock.elapsed_us();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                break;
            }
            std::hint::spin_loop();
        }
        let is_over = activity == OVER;
        let end = if is_over { since } else { now.max(since) };
        if let Some(sum) = spent.get_mut(activity).filter(|_| !is_over) {
            *sum += end.saturating_sub(since) as u64;
        }
        TaskTimes {
            idle_us: spent[IDLE],
            back_pressured_us: spent[BACK_PRESSURED],
            busy_us: spent.split_off(WORKS),
            total_us: end.saturating_sub(self.started_us).max(0) as u64,
            is_over,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stream::VirtualClock;

    fn clock() -> (Arc<VirtualClock>, TaskClock) {
        let clock = Arc::new(VirtualClock::new(0));
        let task = TaskClock::new(Arc::clone(&clock) as Arc<dyn Clock>, 2);
        (clock, task)
    }

    #[test]
    fn each_moment_is_spent_on_one_thing() {
        let (clock, task) = clock();
        let pass = |ms| clock.advance(Duration::from_millis(ms));
        pass(1);
        task.turn_to(Activity::Works(0));
        pass(2);
        task.turn_to(Activity::Works(1));
        pass(4);
        task.turn_to(Activity::BackPressured);
        pass(8);
        task.turn_to(Activity::Over);
        pass(16);
        let times = task.read();
        assert_eq!((times.idle_us, times.back_pressured_us), (1_000, 8_000));
        assert_eq!(times.busy_us, [2_000, 4_000]);
        assert_eq!((times.total_us, times.is_over), (15_000, true));
    }

    #[test]
    fn a_wait_counts_while_it_lasts() {
        let (clock, task) = clock();
        task.turn_to(Activity::BackPressured);
        for second in 1..=60 {
            clock.advance(Duration::from_secs(1));
            let times = task.read();
            assert_eq!(times.back_pressured_us, second * 1_000_000);
            assert_eq!(times.total_us, second * 1_000_000);
        }
    }

    #[test]
    fn a_turn_that_never_came_is_named_afterwards() {
        let (clock, task) = clock();
        clock.advance(Duration::from_millis(3));
        task.was(Activity::BackPressured);
        clock.advance(Duration::from_millis(4));
        assert_eq!(task.read().back_pressured_us, 7_000);
    }

    #[test]
    fn readers_see_times_that_add_up_while_the_task_runs() {
        let clock = Arc::new(crate::stream::SystemClock::default());
        let task = Arc::new(TaskClock::new(clock, 2));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let writer = {
            let (task, stop) = (Arc::clone(&task), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    for activity in [Activity::Works(0), Activity::Works(1), Activity::Idle] {
                        task.turn_to(activity);
                    }
                }
            })
        };
        for _ in 0..20_000 {
            let times = task.read();
            assert_eq!(times.idle_us + times.back_pressured_us + times.all_busy_us(), times.total_us);
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }
}

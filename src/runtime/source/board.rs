//! What the splits of a source do, for whoever asks while it runs.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::super::channel::lock;
use crate::stream::{Clock, Watermark};

/// Splits that are at an end and still listed; of more only the number is kept.
const LISTED_FINISHED: usize = 1_000;

/// What a split does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitState {
    /// It gives rows.
    Active,
    /// There is nothing to read, and there was before.
    Empty,
    /// It could be read, and we don't: what was read of it still waits.
    Paused,
    /// It waits for others to catch up in event time.
    Aligned,
    /// Its turn has not come.
    Unassigned,
    /// There is nobody to read from.
    Disconnected,
    /// There is nothing to read, and there never was.
    NeverSpoke,
    /// It is at its end.
    Finished,
}

const STATES: [SplitState; 8] = [
    SplitState::Active,
    SplitState::Empty,
    SplitState::Paused,
    SplitState::Aligned,
    SplitState::Unassigned,
    SplitState::Disconnected,
    SplitState::NeverSpoke,
    SplitState::Finished,
];

impl SplitState {
    /// Its name: `active`, `never_spoke`, ….
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Empty => "empty",
            Self::Paused => "paused",
            Self::Aligned => "aligned",
            Self::Unassigned => "unassigned",
            Self::Disconnected => "disconnected",
            Self::NeverSpoke => "never_spoke",
            Self::Finished => "finished",
        }
    }

    fn code(self) -> u8 {
        STATES.iter().position(|state| *state == self).map_or(0, |place| place as u8)
    }
}

/// One split of a running job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitStatus {
    /// The table that it belongs to, as the plan names its source: `Source(t)`.
    pub source: String,
    /// What a person knows it by: a path, an address.
    pub split: String,
    /// What it does.
    pub state: SplitState,
    /// It was told idle: it does not count for the watermark until its next row.
    pub idle: bool,
    /// How far its event time has come; `None` before the first row, and without event time.
    pub watermark: Option<Watermark>,
    /// How long it has been in this state, microseconds by the job's clock.
    pub since_us: u64,
    /// Rows that were read of it.
    pub rows: u64,
    /// The event time of its last row.
    pub last_time: Option<i64>,
    /// The highest event time among its rows.
    pub latest_time: Option<i64>,
    /// How far behind the clock the event time of its last row was when it was read, microseconds;
    /// below 0: ahead of it.
    pub lag_us: Option<i64>,
}

/// The place of one split on the board.
#[derive(Debug)]
pub(super) struct SplitCell {
    name: String,
    state: AtomicU8,
    idle: AtomicBool,
    watermark: AtomicI64,
    clock: Arc<dyn Clock>,
    since_us: AtomicI64,
    rows: AtomicU64,
    last_time: AtomicI64,
    latest_time: AtomicI64,
    /// When the last row was read, by the wall clock.
    read_at_us: AtomicI64,
}

impl SplitCell {
    pub(super) fn set(&self, state: SplitState) {
        if self.state.swap(state.code(), Ordering::Relaxed) != state.code() {
            self.since_us.store(self.clock.elapsed_us(), Ordering::Relaxed);
        }
    }

    /// Rows were read at `wall_us`.
    pub(super) fn rows_read(&self, rows: u64, wall_us: i64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.read_at_us.store(wall_us, Ordering::Relaxed);
    }

    /// The event times of the last row, and of the latest.
    pub(super) fn set_times(&self, last: i64, latest: i64) {
        self.last_time.store(last, Ordering::Relaxed);
        self.latest_time.fetch_max(latest, Ordering::Relaxed);
    }

    pub(super) fn state(&self) -> SplitState {
        STATES[usize::from(self.state.load(Ordering::Relaxed)) % STATES.len()]
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed)
    }

    pub(super) fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Relaxed);
    }

    pub(super) fn set_watermark(&self, watermark: i64) {
        self.watermark.store(watermark, Ordering::Relaxed);
    }
}

/// The splits of a source.
#[derive(Debug, Default)]
pub(in super::super) struct SplitBoard {
    cells: Mutex<Vec<Arc<SplitCell>>>,
    finished: AtomicU64,
}

impl SplitBoard {
    pub(super) fn add(&self, name: &str, clock: &Arc<dyn Clock>) -> Arc<SplitCell> {
        let cell = Arc::new(SplitCell {
            name: name.to_owned(),
            state: AtomicU8::new(SplitState::Unassigned.code()),
            idle: AtomicBool::new(false),
            watermark: AtomicI64::new(Watermark::MIN.0),
            clock: Arc::clone(clock),
            since_us: AtomicI64::new(clock.elapsed_us()),
            rows: AtomicU64::new(0),
            last_time: AtomicI64::new(i64::MIN),
            latest_time: AtomicI64::new(i64::MIN),
            read_at_us: AtomicI64::new(0),
        });
        lock(&self.cells).push(Arc::clone(&cell));
        cell
    }

    /// A split is at its end.
    pub(super) fn finish(&self, cell: &SplitCell) {
        cell.set(SplitState::Finished);
        cell.set_idle(false);
        if self.finished.fetch_add(1, Ordering::Relaxed) as usize % LISTED_FINISHED == LISTED_FINISHED - 1 {
            lock(&self.cells).retain(|cell| cell.state() != SplitState::Finished);
        }
    }

    /// The lowest watermark of the splits that have one, are not idle and not at their end.
    pub(super) fn lowest_watermark(&self) -> Option<Watermark> {
        let counts = |cell: &&Arc<SplitCell>| {
            !cell.idle.load(Ordering::Relaxed) && cell.state() != SplitState::Finished
        };
        let cells = lock(&self.cells);
        let watermarks = cells.iter().filter(counts).map(|cell| cell.watermark.load(Ordering::Relaxed));
        watermarks.filter(|watermark| *watermark > Watermark::MIN.0).min().map(Watermark)
    }

    /// The splits in their order; of those at an end only the last ones.
    pub(in super::super) fn list(&self, source: &str) -> Vec<SplitStatus> {
        let cells = lock(&self.cells);
        let known = |time: &AtomicI64| Some(time.load(Ordering::Relaxed)).filter(|time| *time > i64::MIN);
        let status = |cell: &Arc<SplitCell>| SplitStatus {
            source: source.to_owned(),
            split: cell.name.clone(),
            state: cell.state(),
            idle: cell.idle.load(Ordering::Relaxed),
            watermark: Some(Watermark(cell.watermark.load(Ordering::Relaxed)))
                .filter(|watermark| *watermark > Watermark::MIN),
            since_us: cell
                .clock
                .elapsed_us()
                .saturating_sub(cell.since_us.load(Ordering::Relaxed))
                .max(0)
                .unsigned_abs(),
            rows: cell.rows.load(Ordering::Relaxed),
            last_time: known(&cell.last_time),
            latest_time: known(&cell.latest_time),
            lag_us: known(&cell.last_time)
                .map(|time| cell.read_at_us.load(Ordering::Relaxed).saturating_sub(time)),
        };
        cells.iter().map(status).collect()
    }
}

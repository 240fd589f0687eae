//! The memory that the state of jobs takes, and the limit on it.
//!
//! Each operator's share is told by its task, as often as its metrics are, and again after so many rows that the
//! limit is not passed by far in between: nothing is done for a row.
//!
//! Invariant: what is put away, and when, changes no result.

mod machine;
mod spill;
mod threshold;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::spill::{FileStore, SpillFolder};
use self::threshold::Threshold;
use super::channel::lock;
use crate::error::{Error, code};
use crate::operator::{Operator, StateSize};

pub use machine::memory as machine_memory;

/// Most rows that an operator takes between two looks at what it keeps.
const MOST_ROWS: u64 = 65_536;

/// So much of what was put away may come back at once, however small the limit.
const SMALLEST_SHARE: usize = 1 << 20;

/// What the operators of all jobs keep that share this.
#[derive(Debug, Default)]
pub struct StateMemory {
    bytes: AtomicU64,
    threshold: Threshold,
    shares: Mutex<Shares>,
}

#[derive(Debug, Default)]
struct Shares {
    next: u64,
    of: BTreeMap<u64, Told>,
}

/// What an operator of a task told last.
#[derive(Debug, Clone, Default)]
struct Told {
    /// The job's first share, and the plan's node.
    operator: (u64, usize),
    size: StateSize,
    rows_in: u64,
    /// Rows that it had taken, and rows and keys that it kept, when it had taken half as many or fewer.
    half: (u64, usize),
    /// It can't put more away.
    is_stuck: bool,
}

/// The limit of a job on what all of the jobs keep that share the memory.
#[derive(Debug, Clone, Default)]
pub struct MemoryLimit {
    /// What the jobs share.
    pub memory: Arc<StateMemory>,
    /// Bytes; `None`: no limit.
    pub bytes: Option<u64>,
    /// The folder below which state is put away; `None`: the system's for temporary files.
    pub folder: Option<PathBuf>,
}

impl PartialEq for MemoryLimit {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.bytes == other.bytes && self.folder == other.folder
    }
}

impl Eq for MemoryLimit {}

impl StateMemory {
    /// Bytes that all of them keep.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether state is to be put away to stay below a limit.
    fn is_to_spill(&self, limit: u64) -> bool {
        let bytes = self.bytes();
        if bytes > limit / 2 {
            self.threshold.adapt(limit, machine::resident);
        }
        bytes > self.threshold.of(limit)
    }
}

/// The limit as the operators of one job have it.
#[derive(Debug)]
pub(super) struct JobMemory {
    limit: MemoryLimit,
    job: u64,
    folder: Arc<SpillFolder>,
}

impl JobMemory {
    pub(super) fn new(limit: &MemoryLimit) -> Self {
        let job = lock(&limit.memory.shares).next;
        limit.memory.threshold.begin(machine::resident);
        Self { limit: limit.clone(), job, folder: SpillFolder::new(limit.folder.clone()) }
    }
}

/// An operator's share of the memory.
#[derive(Debug)]
pub(super) struct Share {
    limit: MemoryLimit,
    store: FileStore,
    most_rows: u64,
    number: u64,
    told: Told,
    /// See [`Told::half`]: what it becomes next.
    next_half: (u64, usize),
}

impl Share {
    /// Of an operator of a job.
    pub(super) fn new(JobMemory { limit, job, folder }: &JobMemory, node: usize) -> Self {
        let mut shares = lock(&limit.memory.shares);
        let number = shares.next;
        shares.next += 1;
        // What a row adds is some hundred bytes; a small limit is looked at often.
        let most_rows = limit.bytes.map_or(MOST_ROWS, |bytes| (bytes >> 10).clamp(1, MOST_ROWS));
        let told = Told { operator: (*job, node), ..Told::default() };
        let share = limit.bytes.map_or(usize::MAX, |bytes| usize::try_from(bytes / 8).unwrap_or(usize::MAX));
        let store = FileStore { folder: Arc::clone(folder), share: share.max(SMALLEST_SHARE) };
        Self { limit: limit.clone(), store, most_rows, number, told, next_half: (0, 0) }
    }

    /// Looks at what an operator keeps, if it was just asked or has taken many rows since: tells others, and keeps to the
    /// limit.
    ///
    /// # Errors
    /// `R012` if all is more than the limit and this operator can't put enough away.
    pub(super) fn watch(
        &mut self,
        operator: &mut dyn Operator,
        size: Option<StateSize>,
        rows_in: u64,
    ) -> Result<(), Error> {
        let Some(limit) = self.limit.bytes else { return Ok(()) };
        let size = match size {
            Some(size) => size,
            None if rows_in - self.told.rows_in >= self.most_rows => operator.state(),
            None => return Ok(()),
        };
        if rows_in >= 2 * self.next_half.0 {
            self.told.half = std::mem::replace(&mut self.next_half, (rows_in, size.rows));
        }
        self.told.is_stuck = false;
        self.tell(size, rows_in);
        match self.limit.memory.is_to_spill(limit) {
            true => self.keep_to(limit, operator),
            false => Ok(()),
        }
    }

    /// The same of an operator that has nothing to do, if all is more than the limit.
    ///
    /// # Errors
    /// As [`Share::watch`].
    pub(super) fn watch_idle(&mut self, operator: &mut dyn Operator) -> Result<(), Error> {
        if self.limit.bytes.is_none_or(|limit| !self.limit.memory.is_to_spill(limit)) {
            return Ok(());
        }
        let size = operator.state();
        self.watch(operator, Some(size), self.told.rows_in)
    }

    fn tell(&mut self, size: StateSize, rows_in: u64) {
        let memory = &self.limit.memory;
        let before = self.told.size.bytes as u64;
        memory.bytes.fetch_add(size.bytes as u64, Ordering::Relaxed);
        memory.bytes.fetch_sub(before, Ordering::Relaxed);
        (self.told.size, self.told.rows_in) = (size, rows_in);
        lock(&memory.shares).of.insert(self.number, self.told.clone());
    }

    fn keep_to(&mut self, limit: u64, operator: &mut dyn Operator) -> Result<(), Error> {
        // A little more, so that it is not asked again at once.
        let memory = &self.limit.memory;
        let wanted = memory.bytes().saturating_sub(memory.threshold.of(limit)).saturating_add(limit / 8);
        let given_up = operator.spill(usize::try_from(wanted).unwrap_or(usize::MAX - 1), &self.store)?;
        let size = if given_up > 0 { operator.state() } else { self.told.size };
        self.told.is_stuck = true;
        self.tell(size, self.told.rows_in);
        if self.limit.memory.bytes() <= limit {
            return Ok(());
        }
        let bytes = self.limit.memory.bytes();
        let shares = lock(&self.limit.memory.shares);
        // The one that keeps most fails, or puts something away when it looks next; and others that may put something
        // away get some time for it.
        let most = shares.of.values().map(|told| told.size.bytes).max().unwrap_or(0);
        let others = shares.of.values().filter(|told| !told.is_stuck);
        let others: u64 = others.map(|told| told.size.bytes as u64).sum();
        if self.told.size.bytes < most
            || (bytes <= limit.saturating_add(limit / 8) && bytes.saturating_sub(others) <= limit)
        {
            return Ok(());
        }
        let own = shares.of.values().filter(|told| told.operator == self.told.operator);
        let (mut rows, mut of_half, mut keys, mut of_keys, mut held) = (0, 0, 0, 0, 0);
        for told in own {
            rows += told.rows_in;
            of_half += told.half.0;
            keys += told.size.rows;
            of_keys += told.half.1;
            held += told.size.bytes as u64;
        }
        let (limit, name) = (bytes_text(limit), operator.name());
        let others = match bytes - held {
            0 => String::new(),
            others => format!(", and other operators keep {}", bytes_text(others)),
        };
        let (last, more) = (rows - of_half, keys.saturating_sub(of_keys));
        let message = format!(
            "state has come to its limit of {limit}: {name} keeps {keys} rows or keys, {}{others}; its last {last} rows \
             of {rows} added {more} of them",
            bytes_text(held)
        );
        Err(Error::run(code::STATE_LIMIT, message).hint(
            "Group by a window or a shorter one, let keys expire with SET 'state.ttl', or allow more with \
             SET 'state.memory-limit'.",
        ))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let memory = &self.limit.memory;
        memory.bytes.fetch_sub(self.told.size.bytes as u64, Ordering::Relaxed);
        lock(&memory.shares).of.remove(&self.number);
    }
}

/// Bytes as people write them: `512 MB`, by 1,024s.
fn bytes_text(bytes: u64) -> String {
    let units = ["bytes", "KB", "MB", "GB", "TB"];
    let mut unit = 0;
    let mut of = 1_u64;
    while unit + 1 < units.len() && bytes >= of << 10 {
        (unit, of) = (unit + 1, of << 10);
    }
    let tenths = (u128::from(bytes) * 10 / u128::from(of)) as u64;
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole} {}", units[unit]),
        (whole, rest) => format!("{whole}.{rest} {}", units[unit]),
    }
}

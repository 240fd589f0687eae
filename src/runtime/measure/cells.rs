//! The counters of operators, tasks and jobs where others can read them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};

use super::super::channel::{ChannelProbe, Signal, lock};
use super::latency::{LatencyCell, LatencyGranularity, Measured};
use super::times::TaskClock;
use crate::operator::{KeyFilter, OpenWindow, Operator, RowCounts, StateSize};
use crate::stream::{Clock, Watermark};

/// Open windows that an operator tells of.
const MOST_WINDOWS: usize = 64;

/// One operator of one task.
#[derive(Debug)]
pub(in crate::runtime) struct OperatorCell {
    /// Of the plan.
    pub(in crate::runtime) node: usize,
    pub(in crate::runtime) name: String,
    pub(in crate::runtime) subtask: usize,
    pub(in crate::runtime) rows_in: AtomicU64,
    pub(in crate::runtime) rows_out: AtomicU64,
    pub(in crate::runtime) batches_in: AtomicU64,
    pub(in crate::runtime) batches_out: AtomicU64,
    pub(in crate::runtime) bytes_in: AtomicU64,
    pub(in crate::runtime) bytes_out: AtomicU64,
    pub(in crate::runtime) watermark_in: AtomicI64,
    pub(in crate::runtime) watermark_out: AtomicI64,
    /// When the watermark of its input last rose, by the job's clock.
    pub(in crate::runtime) watermark_since_us: AtomicI64,
    /// As [`RowCounts`] has them: used, late, without time, future, filtered, held, partly late.
    counts: [AtomicU64; 7],
    /// Windows, rows, bytes.
    state: [AtomicU64; 3],
    /// Bytes of the state that are on disk.
    pub(in crate::runtime) spilled: AtomicU64,
    windows: Mutex<Vec<OpenWindow>>,
    /// It is an operator of the chain, and answers questions; no source and no sink.
    pub(in crate::runtime) answers: bool,
    /// The number of the question that was answered last, and the windows of its key.
    answer: Mutex<(u64, Vec<OpenWindow>)>,
    pub(in crate::runtime) latency: LatencyCell,
}

impl OperatorCell {
    pub(in crate::runtime) fn new(
        node: usize,
        name: &str,
        subtask: usize,
        answers: bool,
        granularity: LatencyGranularity,
    ) -> Self {
        Self {
            node,
            name: name.to_owned(),
            subtask,
            rows_in: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
            batches_in: AtomicU64::new(0),
            batches_out: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            watermark_in: AtomicI64::new(Watermark::MIN.0),
            watermark_out: AtomicI64::new(Watermark::MIN.0),
            watermark_since_us: AtomicI64::new(i64::MIN),
            counts: Default::default(),
            state: Default::default(),
            spilled: AtomicU64::new(0),
            windows: Mutex::new(Vec::new()),
            answers,
            answer: Mutex::default(),
            latency: LatencyCell::new(granularity),
        }
    }

    pub(in crate::runtime) fn set_counts(&self, counts: &RowCounts) {
        let values = [
            counts.used,
            counts.late,
            counts.null_time,
            counts.future,
            counts.filtered,
            counts.held,
            counts.partly_late,
        ];
        for (cell, value) in self.counts.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    pub(in crate::runtime) fn counts(&self) -> RowCounts {
        let [used, late, null_time, future, filtered, held, partly_late] =
            std::array::from_fn(|index| self.counts[index].load(Ordering::Relaxed));
        RowCounts { used, late, null_time, future, filtered, held, partly_late }
    }

    pub(in crate::runtime) fn set_state(&self, state: StateSize) {
        for (cell, value) in self.state.iter().zip([state.windows, state.rows, state.bytes]) {
            cell.store(value as u64, Ordering::Relaxed);
        }
    }

    pub(in crate::runtime) fn state(&self) -> StateSize {
        let [windows, rows, bytes] =
            std::array::from_fn(|index| self.state[index].load(Ordering::Relaxed) as usize);
        StateSize { windows, rows, bytes }
    }

    /// Tells of the open windows, unless somebody reads them right now: then the next time. An operator
    /// that can't tell has none.
    pub(in crate::runtime) fn set_windows(&self, operator: &mut dyn Operator) {
        let mut windows = match self.windows.try_lock() {
            Ok(windows) => windows,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        *windows = operator.open_windows(MOST_WINDOWS, None).unwrap_or_default();
    }

    /// Answers a question of this number.
    pub(in crate::runtime) fn answer(&self, number: u64, operator: &mut dyn Operator, filter: &KeyFilter) {
        let windows = operator.open_windows(MOST_WINDOWS, Some(filter)).unwrap_or_default();
        *lock(&self.answer) = (number, windows);
    }

    /// What it answered to the question of this number, if it did.
    pub(in crate::runtime) fn answered(&self, number: u64) -> Option<Vec<OpenWindow>> {
        let answer = lock(&self.answer);
        (answer.0 == number).then(|| answer.1.clone())
    }

    pub(in crate::runtime) fn windows(&self) -> Vec<OpenWindow> {
        lock(&self.windows).clone()
    }

    pub(in crate::runtime) fn measure(&self, measured: Measured, pending: &mut Vec<Measured>) {
        self.latency.record(measured, pending);
    }
}

/// What somebody asks all operators of a job.
#[derive(Debug, Default)]
pub(in crate::runtime) struct Questions {
    /// The number of the last question; 0: there was none.
    number: AtomicU64,
    filter: Mutex<Option<KeyFilter>>,
}

impl Questions {
    /// Asks which windows have groups of a key. The number of the question.
    pub(in crate::runtime) fn ask(&self, filter: &KeyFilter) -> u64 {
        *lock(&self.filter) = Some(filter.clone());
        self.number.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// A question that is newer than the one of this number.
    pub(in crate::runtime) fn since(&self, number: u64) -> Option<(u64, KeyFilter)> {
        let last = self.number.load(Ordering::Acquire);
        if last == number {
            return None;
        }
        Some((last, lock(&self.filter).clone()?))
    }
}

/// Adds to a counter that has one writer.
pub(in crate::runtime) fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// One task: its time, its operators in the order of the chain, where its rows go.
#[derive(Debug)]
pub(in crate::runtime) struct TaskCells {
    pub(in crate::runtime) name: String,
    pub(in crate::runtime) clock: TaskClock,
    pub(in crate::runtime) operators: Vec<Arc<OperatorCell>>,
    /// Its operators are measured.
    pub(in crate::runtime) is_measured: bool,
    /// What the operators are asked.
    pub(in crate::runtime) questions: Arc<Questions>,
    /// What the task sleeps on.
    pub(in crate::runtime) signal: Arc<Signal>,
    /// It reads a table.
    pub(in crate::runtime) is_source: bool,
    /// It writes late rows.
    pub(in crate::runtime) is_late: bool,
}

/// What is measured of a job.
#[derive(Debug)]
pub(in crate::runtime) struct JobCells {
    pub(in crate::runtime) clock: Arc<dyn Clock>,
    pub(in crate::runtime) started_us: i64,
    pub(in crate::runtime) tasks: Vec<Arc<TaskCells>>,
    pub(in crate::runtime) questions: Arc<Questions>,
    /// From a task, to a task or to the caller, of late rows.
    pub(in crate::runtime) channels: Vec<(usize, Option<usize>, bool, ChannelProbe)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_state_come_back() {
        let cell = OperatorCell::new(1, "x", 0, true, LatencyGranularity::Single);
        let counts =
            RowCounts { used: 1, late: 2, null_time: 3, future: 4, filtered: 5, held: 6, partly_late: 7 };
        cell.set_counts(&counts);
        assert_eq!(cell.counts(), counts);
        let state = StateSize { windows: 1, rows: 2, bytes: 3 };
        cell.set_state(state);
        assert_eq!(cell.state(), state);
    }
}

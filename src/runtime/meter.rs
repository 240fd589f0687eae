//! What an operator tells of its work, from inside its task.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::measure::{Activity, Measured, OperatorCell, Recorders, TaskCells, add};
use crate::operator::{Operator, RowCounts, StateSize};
use crate::stream::{LatencyMarker, StreamBatch, StreamElement, Watermark, bytes_of};

/// How often an operator is asked what it keeps: it may have to go through all of it.
const PUBLISH_US: i64 = 100_000;

/// The place of an operator in the chain of its task.
pub(super) struct Meter {
    task: Arc<TaskCells>,
    place: usize,
    is_on: bool,
    cell: Arc<OperatorCell>,
    pending: Vec<Measured>,
    /// Since when it holds rows that it has not given.
    holds_since_us: Option<i64>,
    published_us: i64,
    is_dirty: bool,
    /// The last question that it answered.
    answered: u64,
}

impl Meter {
    pub(super) fn new(task: &Arc<TaskCells>, place: usize) -> Self {
        Self {
            task: Arc::clone(task),
            place,
            is_on: task.is_measured,
            cell: Arc::clone(&task.operators[place]),
            pending: Vec::new(),
            holds_since_us: None,
            published_us: i64::MIN,
            is_dirty: false,
            answered: 0,
        }
    }

    /// From now on this operator works. Gives the time.
    pub(super) fn enter(&self) -> i64 {
        let now = self.task.clock.now_us();
        self.task.clock.turn_at(Activity::Works(self.place), now);
        now
    }

    /// Rows come in.
    pub(super) fn takes(&mut self, batch: &StreamBatch) -> i64 {
        if !self.is_on {
            return 0;
        }
        add(&self.cell.rows_in, batch.num_rows() as u64);
        add(&self.cell.batches_in, 1);
        add(&self.cell.bytes_in, bytes_of(&batch.rows) as u64);
        self.enter()
    }

    /// Rows or a watermark go out.
    pub(super) fn gives(&self, element: &StreamElement) {
        match element {
            _ if !self.is_on => {}
            StreamElement::Batch(batch) => {
                add(&self.cell.rows_out, batch.num_rows() as u64);
                add(&self.cell.batches_out, 1);
                add(&self.cell.bytes_out, bytes_of(&batch.rows) as u64);
            }
            StreamElement::Watermark(watermark) if *watermark < Watermark::MAX => {
                self.cell.watermark_out.store(watermark.0, Ordering::Relaxed);
            }
            StreamElement::Watermark(_)
            | StreamElement::Status(_)
            | StreamElement::Latency(_)
            | StreamElement::End => {}
        }
    }

    /// The rows that came in at `started_us` are done; `gave`: whether rows came of them.
    pub(super) fn worked(&mut self, started_us: i64, rows: u64, gave: bool) {
        if !self.is_on {
            return;
        }
        let now = self.task.clock.now_us();
        self.cell.measure(Measured::Compute(passed(started_us, now), rows), &mut self.pending);
        if !gave {
            self.holds_since_us.get_or_insert(started_us);
        }
        self.is_dirty = true;
    }

    /// Event time comes in.
    pub(super) fn hears(&self, watermark: Watermark) -> i64 {
        let now = self.enter();
        if watermark < Watermark::MAX {
            self.cell.watermark_in.store(watermark.0, Ordering::Relaxed);
            self.cell.watermark_since_us.store(now, Ordering::Relaxed);
        }
        now
    }

    /// What came in at `started_us` has released these rows.
    pub(super) fn released(&mut self, started_us: i64, rows: u64) {
        if rows == 0 || !self.is_on {
            return;
        }
        let now = self.task.clock.now_us();
        self.cell.measure(Measured::Compute(passed(started_us, now), rows), &mut self.pending);
        if let Some(since) = self.holds_since_us.take() {
            self.cell.measure(Measured::Held(passed(since, started_us), rows), &mut self.pending);
        }
        self.is_dirty = true;
    }

    /// Rows that came in at `started_us` are written.
    pub(super) fn wrote(&mut self, started_us: i64, rows: u64, read: Instant, counts: &RowCounts) {
        if !self.is_on {
            return;
        }
        let now = self.task.clock.now_us();
        self.cell.measure(Measured::Compute(passed(started_us, now), rows), &mut self.pending);
        self.cell.measure(Measured::Total(read.elapsed(), rows), &mut self.pending);
        self.cell.set_counts(counts);
        add(&self.cell.rows_out, rows);
    }

    pub(super) fn marker(&mut self, marker: LatencyMarker) {
        let latency = marker.made.elapsed();
        self.cell.measure(Measured::Marker(marker, latency), &mut self.pending);
    }

    /// Rows were taken that had waited since then.
    pub(super) fn waited(&mut self, since: Instant, rows: u64) {
        if !self.is_on {
            return;
        }
        self.cell.measure(Measured::Wait(since.elapsed(), rows), &mut self.pending);
    }

    pub(super) fn counts(&self, counts: &RowCounts) {
        if !self.is_on {
            return;
        }
        self.cell.set_counts(counts);
    }

    /// What was counted before a restart counts on.
    pub(super) fn restore(&self, rows_in: u64, rows_out: u64, counts: &RowCounts) {
        if self.is_on {
            self.cell.rows_in.store(rows_in, Ordering::Relaxed);
            self.cell.rows_out.store(rows_out, Ordering::Relaxed);
            self.cell.set_counts(counts);
        }
    }

    /// Tells what the operator keeps, if it was not told just now, and answers what is asked. What it keeps, if it was
    /// asked.
    pub(super) fn publish(&mut self, operator: &mut dyn Operator, is_urgent: bool) -> Option<StateSize> {
        if !self.is_on {
            return None;
        }
        if let Some((number, filter)) = self.task.questions.since(self.answered) {
            self.answered = number;
            self.cell.answer(number, operator, &filter);
        }
        if !self.is_dirty && !is_urgent {
            return None;
        }
        let now = self.task.clock.now_us();
        if is_urgent || now >= self.published_us.saturating_add(PUBLISH_US) {
            self.published_us = now;
            self.is_dirty = false;
            let size = operator.state();
            self.cell.set_state(size);
            self.cell.spilled.store(operator.spilled(), Ordering::Relaxed);
            self.cell.set_windows(operator);
            return Some(size);
        }
        None
    }

    /// Its histograms, without what is pending.
    pub(super) fn recorders(&self) -> Recorders {
        self.cell.latency.read()
    }

    /// Records what is pending.
    pub(super) fn flush(&mut self) {
        self.cell.latency.flush(&mut self.pending);
    }
}

fn passed(from_us: i64, to_us: i64) -> Duration {
    Duration::from_micros(to_us.saturating_sub(from_us).max(0).unsigned_abs())
}

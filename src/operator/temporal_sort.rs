//! Rows in event-time order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::record_batch::RecordBatch;

use super::evaluate::arrow_failure;
use super::sort::sort_indices;
use super::{BATCH_ROWS, Operator, Output, StateSize};
use crate::error::Error;
use crate::plan::{SortKey, TemporalSortNode};
use crate::stream::{RunningWatermark, StreamBatch, TimeUnit, Watermark, event_times};

/// Gives rows in event-time order as the watermark passes them; equal times by the further keys,
/// then in arrival order.
///
/// Wakes on: watermarks. State: the rows that the watermark has not passed. A row is late if a row
/// at or after its time has gone out before it: no sooner, so a row behind the watermark that can
/// still take its place in the order does. It then goes out with the next advance of the
/// watermark. What has gone out is told from the running watermarks alone, not from when a
/// `Watermark` came, so batch cuts don't matter.
///
/// Source: Flink's sort by rowtime.
pub(super) struct TemporalSort {
    time: usize,
    unit: TimeUnit,
    rest: Vec<SortKey>,
    /// By time, then arrival.
    held: BTreeMap<(i64, u64), Held>,
    batches: HashMap<u64, Stored>,
    next_row: u64,
    next_batch: u64,
    /// Rows that went out by the running watermark of the last row: the greatest time of them.
    released: Option<i64>,
    /// The running watermark of the last row.
    running: i64,
    /// Accepted rows that have not gone out by the running watermark: times, lowest first.
    ahead: BTreeMap<i64, u64>,
    arrived: Option<Instant>,
}

struct Held {
    batch: u64,
    row: usize,
    /// It goes out with the first watermark ≥ this.
    from: i64,
    /// The running watermark of the row in the output.
    running: i64,
}

struct Stored {
    rows: RecordBatch,
    left: usize,
}

impl TemporalSort {
    pub(super) fn new(node: &TemporalSortNode) -> Self {
        Self {
            time: node.time,
            unit: node.unit,
            rest: node.rest.clone(),
            held: BTreeMap::new(),
            batches: HashMap::new(),
            next_row: 0,
            next_batch: 0,
            released: None,
            running: i64::MIN,
            ahead: BTreeMap::new(),
            arrived: None,
        }
    }

    /// The running watermark has come to `running`: what it has passed counts as gone out.
    fn advance(&mut self, running: i64) {
        if running <= self.running {
            return;
        }
        self.running = running;
        while let Some(first) = self.ahead.first_entry() {
            if *first.key() > running {
                break;
            }
            let (time, _) = first.remove_entry();
            self.released = self.released.max(Some(time));
        }
    }

    fn release(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let mut due = Vec::new();
        let mut waiting = Vec::new();
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > watermark && watermark != i64::MAX {
                break;
            }
            let (key, row) = first.remove_entry();
            if row.from <= watermark { due.push((key.0, row)) } else { waiting.push((key, row)) }
        }
        self.held.extend(waiting);
        let chunk_rows = if self.rest.is_empty() { BATCH_ROWS } else { due.len().max(1) };
        for chunk in due.chunks(chunk_rows) {
            self.give(chunk, out)?;
        }
        Ok(())
    }

    fn give(&mut self, due: &[(i64, Held)], out: &mut Output) -> Result<(), Error> {
        let mut slots: HashMap<u64, usize> = HashMap::new();
        let mut sources: Vec<RecordBatch> = Vec::new();
        let mut picks = Vec::with_capacity(due.len());
        for (_, row) in due {
            let stored = self
                .batches
                .get_mut(&row.batch)
                .ok_or_else(|| Error::internal("TemporalSort", "a held row without its batch"))?;
            let slot = *slots.entry(row.batch).or_insert_with(|| {
                sources.push(stored.rows.clone());
                sources.len() - 1
            });
            picks.push((slot, row.row));
            stored.left -= 1;
            if stored.left == 0 {
                self.batches.remove(&row.batch);
            }
        }
        let sources: Vec<&RecordBatch> = sources.iter().collect();
        let mut rows = interleave_record_batch(&sources, &picks).map_err(|error| arrow_failure(&error))?;
        if !self.rest.is_empty() {
            let times: ArrayRef = Arc::new(Int64Array::from_iter_values(due.iter().map(|(time, _)| *time)));
            let order = sort_indices(&self.rest, &rows, &[times], None)?;
            rows = take_record_batch(&rows, &order).map_err(|error| arrow_failure(&error))?;
        }
        let running: Vec<i64> = due.iter().map(|(_, row)| row.running).collect();
        let Some(arrived) = self.arrived else { return Ok(()) };
        out.counts.held -= due.len() as u64;
        out.counts.used += due.len() as u64;
        let batch = StreamBatch { rows, kinds: None, running: Some(RunningWatermark::new(running)), arrived };
        for start in (0..due.len()).step_by(BATCH_ROWS) {
            out.batch(batch.slice(start, BATCH_ROWS.min(due.len() - start)));
        }
        Ok(())
    }
}

impl Operator for TemporalSort {
    fn name(&self) -> &'static str {
        "TemporalSort"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("TemporalSort", "the input is no stream of inserts"));
        }
        let (times, nulls) = event_times(batch.rows.column(self.time))?;
        let mut kept = 0;
        for (row, time) in times.iter().copied().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                out.counts.null_time += 1;
                continue;
            }
            if let Some(running) = &batch.running {
                self.advance(running.values()[row]);
            }
            if self.released.is_some_and(|released| time <= released) {
                out.counts.late += 1;
                continue;
            }
            let behind = time <= self.running;
            let held = Held {
                batch: self.next_batch,
                row,
                from: if behind { self.running.saturating_add(1) } else { time },
                running: if behind { self.running } else { time.saturating_sub(self.unit.us()) },
            };
            self.held.insert((time, self.next_row), held);
            *self.ahead.entry(time).or_default() += 1;
            self.next_row += 1;
            kept += 1;
        }
        if kept > 0 {
            self.arrived = self.arrived.max(Some(batch.arrived));
            self.batches.insert(self.next_batch, Stored { rows: batch.rows, left: kept });
            self.next_batch += 1;
            out.counts.held += kept as u64;
        }
        Ok(())
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.advance(watermark.0);
        self.release(watermark.0, out)?;
        out.watermark(watermark);
        Ok(())
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.release(i64::MAX, out)
    }

    fn state(&self) -> StateSize {
        let bytes = self.batches.values().map(|stored| stored.rows.get_array_memory_size()).sum();
        StateSize { windows: 0, rows: self.held.len(), bytes }
    }
}

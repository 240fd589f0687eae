//! Rows of two inputs that are in the same window.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::UInt32Array;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::matching::{Matcher, Pairs, beside, chosen};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::window::WindowAssigner;
use crate::operator::{BATCH_ROWS, Operator, Output, StateSize};
use crate::plan::{JoinKind, WindowBounds, WindowJoinNode};
use crate::stream::{StreamBatch, Watermark, event_times};

/// Joins the rows of each window when it closes.
///
/// Wakes on: watermarks. State: the rows of open windows; a window's are dropped together. Order: by
/// window; in it pairs as the rows of the first input came, then what has no pair. A row is late if
/// the running watermark had closed its window; late rows are nobody's partner and never padded.
///
/// Source: Flink's window join.
pub(in crate::operator) struct WindowJoin {
    kind: JoinKind,
    windows: [WindowBounds; 2],
    matcher: Matcher,
    assigner: WindowAssigner,
    inputs: [SchemaRef; 2],
    schema: SchemaRef,
    /// By end, then start.
    open: BTreeMap<(i64, i64), OpenWindow>,
    watermark: i64,
}

#[derive(Default)]
struct OpenWindow {
    rows: [Vec<RecordBatch>; 2],
    arrived: Option<Instant>,
}

impl OpenWindow {
    fn num_rows(&self) -> usize {
        self.rows.iter().flatten().map(RecordBatch::num_rows).sum()
    }
}

impl WindowJoin {
    pub(in crate::operator) fn try_new(node: &WindowJoinNode, schema: &SchemaRef) -> Result<Self, Error> {
        let (first, second) = node.pair.fields().split_at(node.first_width);
        Ok(Self {
            kind: node.kind,
            windows: node.windows,
            matcher: Matcher::try_new(&node.keys, node.null_is_equal, node.condition.as_ref(), &node.pair)?,
            assigner: WindowAssigner::attached(node.unit.us(), node.zone),
            inputs: [first, second].map(|fields| Arc::new(Schema::new(fields.to_vec()))),
            schema: Arc::clone(schema),
            open: BTreeMap::new(),
            watermark: i64::MIN,
        })
    }

    fn take(&mut self, input: usize, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowJoin", "the input is no stream of inserts"));
        }
        let WindowBounds { start, end } = self.windows[input];
        let (starts, no_start) = event_times(batch.rows.column(start))?;
        let (ends, no_end) = event_times(batch.rows.column(end))?;
        // The rows of each window; a batch has few, and rows of one mostly follow each other.
        let mut parts: Vec<((i64, i64), Vec<u32>)> = Vec::new();
        for row in 0..batch.num_rows() {
            let is_null = |nulls: &Option<arrow::buffer::NullBuffer>| {
                nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            };
            if is_null(&no_start) || is_null(&no_end) {
                out.counts.null_time += 1;
                continue;
            }
            let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
            if running.max(self.watermark) >= self.assigner.close(ends[row]) {
                out.counts.late += 1;
                continue;
            }
            let window = (ends[row], starts[row]);
            let place = parts.iter().rposition(|(known, _)| *known == window);
            let place = place.unwrap_or_else(|| {
                parts.push((window, Vec::new()));
                parts.len() - 1
            });
            parts[place].1.push(row as u32);
        }
        for (window, rows) in parts {
            out.counts.held += rows.len() as u64;
            let rows = match rows.len() == batch.num_rows() {
                true => batch.rows.clone(),
                false => take_record_batch(&batch.rows, &UInt32Array::from(rows))
                    .map_err(|error| arrow_failure(&error))?,
            };
            let open = self.open.entry(window).or_default();
            open.arrived = open.arrived.max(Some(batch.arrived));
            open.rows[input].push(rows);
        }
        Ok(())
    }

    fn close(&self, window: OpenWindow, out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = window.arrived else { return Ok(()) };
        let together = |input: usize| {
            concat_batches(&self.inputs[input], &window.rows[input]).map_err(|error| arrow_failure(&error))
        };
        let (first, second) = (together(0)?, together(1)?);
        let pairs = self.matcher.pairs(&first, &second)?;
        self.count(&pairs, out);
        let unmet = |met: &[bool]| -> Vec<u32> {
            met.iter().enumerate().filter(|(_, met)| !**met).map(|(row, _)| row as u32).collect()
        };
        let mut give = |rows: RecordBatch| out.batch(StreamBatch::inserts(rows, arrived));
        if !self.kind.gives_pairs() {
            let wanted = self.kind == JoinKind::Semi;
            let rows = pairs.first_met.iter().enumerate().filter(|(_, met)| **met == wanted);
            let rows: Vec<u32> = rows.map(|(row, _)| row as u32).collect();
            for rows in rows.chunks(BATCH_ROWS) {
                give(chosen(&first, &UInt32Array::from(rows.to_vec()), &self.schema)?);
            }
            return Ok(());
        }
        for (rows, others) in pairs.first.chunks(BATCH_ROWS).zip(pairs.second.chunks(BATCH_ROWS)) {
            let (rows, others) = (UInt32Array::from(rows.to_vec()), UInt32Array::from(others.to_vec()));
            give(beside(&first, &rows, &second, &others, &self.schema)?);
        }
        if self.kind.keeps_first() {
            for rows in unmet(&pairs.first_met).chunks(BATCH_ROWS) {
                let (rows, none) = (UInt32Array::from(rows.to_vec()), UInt32Array::new_null(rows.len()));
                give(beside(&first, &rows, &second, &none, &self.schema)?);
            }
        }
        if self.kind.keeps_second() {
            for rows in unmet(&pairs.second_met).chunks(BATCH_ROWS) {
                let (rows, none) = (UInt32Array::from(rows.to_vec()), UInt32Array::new_null(rows.len()));
                give(beside(&first, &none, &second, &rows, &self.schema)?);
            }
        }
        Ok(())
    }

    /// A row is used if it is in the result or decided what is: otherwise the join has removed it.
    fn count(&self, pairs: &Pairs, out: &mut Output) {
        let met = |met: &[bool]| met.iter().filter(|met| **met).count() as u64;
        let (first, second) = (pairs.first_met.len() as u64, pairs.second_met.len() as u64);
        let first_used = match self.kind {
            JoinKind::Left | JoinKind::Full => first,
            JoinKind::Inner | JoinKind::Right | JoinKind::Semi => met(&pairs.first_met),
            JoinKind::Anti => first - met(&pairs.first_met),
        };
        let second_used = if self.kind.keeps_second() { second } else { met(&pairs.second_met) };
        let all = first + second;
        out.counts.held -= all;
        out.counts.used += first_used + second_used;
        out.counts.filtered += all - first_used - second_used;
    }
}

impl Operator for WindowJoin {
    fn name(&self) -> &'static str {
        "WindowJoin"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(0, batch, out)
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(1, batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        while let Some(first) = self.open.first_entry() {
            if self.assigner.close(first.key().0) > watermark.0 {
                break;
            }
            let window = first.remove();
            self.close(window, out)?;
        }
        self.watermark = watermark.0;
        out.watermark(watermark);
        Ok(())
    }

    fn state(&self) -> StateSize {
        let rows = self.open.values().map(OpenWindow::num_rows).sum();
        let batches = self.open.values().flat_map(|window| window.rows.iter().flatten());
        StateSize {
            windows: self.open.len(),
            rows,
            bytes: batches.map(RecordBatch::get_array_memory_size).sum(),
        }
    }
}

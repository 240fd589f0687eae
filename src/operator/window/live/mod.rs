//! Window aggregation whose results change after they were given: EMIT CHANGES, COMPLETE and EARLY,
//! ALLOW LATENESS.
//!
//! Each window has [groups](groups) of its own with [states](accumulator) that can be read without
//! being emptied. A [window](window) knows which of its groups differ from what was given;
//! [`Changes`](changes) makes rows of a changelog of them, [`Complete`](complete) the whole result.
//!
//! Windows close between two rows, where the running watermark passes their end, and not when the
//! operator is told of a watermark: so the changes of a key are a function of the rows. Only what
//! EVERY gives between is one of processing time.
//!
//! Invariant: final results are those of [`WindowAggregate`](super::WindowAggregate); only when they
//! come, and what comes before them, is decided here.

pub(super) mod accumulator;
pub(super) mod aggregates;
mod any;
pub(super) mod changes;
pub(super) mod complete;
pub(super) mod groups;
pub(super) mod kept;
mod one_group;
pub(super) mod rounds;
mod state;
mod texts;
mod typed;
mod window;

pub(in crate::operator) use changes::{changed, give as give_changes};
pub(in crate::operator) use typed::{Count, Exact, Kernel};

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Instant;

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;

use super::assigner::Kind;
use super::key_filter::KeyNames;
use super::placement::{PartKey, Placement, Placer, Running};
use super::recipe::{Arrival, Recipe};
use super::results::Bounds;
use super::results_of_nothing;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::late::LateRows;
use crate::operator::{
    KeyFilter, OpenWindow, Operator, Output, RowCounts, StateReader, StateSize, StateWriter,
};
use crate::plan::{EmitMode, WindowAggregateNode};
use crate::stream::{StreamBatch, Watermark};
use changes::{Change, Changes, Place};
use complete::Complete;
use groups::KeyFormat;
use rounds::Rounds;
use window::{Batch, Window};

/// Aggregates per window and key; results change as rows come.
///
/// Wakes on: batches, watermarks, timers. State: the groups of each window until it has closed and
/// its lateness is over; EMIT COMPLETE keeps all results. Order: changes as their rows come; results of
/// a window that closes by when the key was first seen in it. Watermark: forwarded after the results.
pub(super) struct LiveAggregate {
    recipe: Recipe,
    /// One for the columns of each grouping set; one where there are none.
    key_format: KeyFormat,
    key_names: KeyNames,
    placer: Placer,
    late: Option<LateRows>,
    input: SchemaRef,
    mode: EmitMode,
    windows: BTreeMap<PartKey, Window>,
    /// When each window closes and, where lateness is allowed, when that is over.
    deadlines: BinaryHeap<Reverse<(i64, PartKey)>>,
    changes: Changes,
    complete: Option<Complete>,
    /// How far event time has come.
    watermark: i64,
    rounds: Rounds,
    rows_seen: u64,
    arrived: Option<Instant>,
}

impl LiveAggregate {
    pub(super) fn try_new(
        node: &WindowAggregateNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let recipe = Recipe::try_new(node, input)?;
        let placer = Placer::try_new(node, late.is_some())?;
        let has_bounds = placer.assigner.kind() != Kind::Global;
        let unit_us = placer.assigner.unit_us();
        let complete = matches!(node.emit, EmitMode::Complete { .. })
            .then(|| Complete::new(schema, has_bounds, unit_us));
        Ok(Self {
            key_format: KeyFormat::try_new(&recipe)?,
            key_names: KeyNames::of(schema, if has_bounds { 3 } else { 0 }, node.keys.len()),
            changes: Changes::new(schema, has_bounds, unit_us),
            recipe,
            placer,
            late,
            input: input.clone(),
            mode: node.emit,
            windows: BTreeMap::new(),
            deadlines: BinaryHeap::new(),
            complete,
            watermark: i64::MIN,
            rounds: Rounds::new(node.emit),
            rows_seen: 0,
            arrived: None,
        })
    }

    fn is_global(&self) -> bool {
        self.placer.assigner.kind() == Kind::Global
    }

    fn arrived(&self) -> Instant {
        // Without a row there is no arrival to measure latency from; now is one.
        self.arrived.unwrap_or_else(Instant::now)
    }

    /// Brings event time to `watermark`: closes windows and forgets those whose lateness is over.
    fn advance(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        while let Some(Reverse((time, key))) = self.deadlines.peek().copied()
            && time <= watermark
        {
            self.deadlines.pop();
            // Just before, time had not come to it.
            self.watermark = self.watermark.max(time.saturating_sub(self.placer.assigner.unit_us()));
            self.pass(time, key, out)?;
        }
        self.watermark = self.watermark.max(watermark);
        self.flush(out)
    }

    /// A window closes, or its lateness is over.
    fn pass(&mut self, time: i64, key: PartKey, out: &mut Output) -> Result<(), Error> {
        let Some(window) = self.windows.get_mut(&key) else { return Ok(()) };
        if let Some(complete) = &mut self.complete {
            let closes = !std::mem::replace(&mut window.is_closed, true);
            if closes && self.mode.every_us().is_none() {
                let (keys, arrived) = (&self.key_format, self.arrived.unwrap_or_else(Instant::now));
                complete.round(&mut self.windows, keys, self.watermark, arrived, out)?;
            }
        } else {
            window.flush(&self.key_format, self.watermark, &mut self.changes)?;
            window.is_closed = true;
            if self.changes.is_full() {
                self.flush(out)?;
            }
        }
        let over = self.placer.late_from(key.end);
        if time < over {
            self.deadlines.push(Reverse((over, key)));
        } else if let Some(mut window) = self.windows.remove(&key)
            && let Some(complete) = &mut self.complete
        {
            complete.keep(key, &mut window, &self.key_format)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Output) -> Result<(), Error> {
        let arrived = self.arrived();
        self.changes.flush(arrived, out)
    }

    /// Gives what has changed since the last round.
    fn round(&mut self, out: &mut Output) -> Result<(), Error> {
        let arrived = self.arrived();
        if let Some(complete) = &mut self.complete {
            if complete.is_dirty {
                complete.round(&mut self.windows, &self.key_format, self.watermark, arrived, out)?;
            }
            return Ok(());
        }
        for window in self.windows.values_mut() {
            window.flush(&self.key_format, self.watermark, &mut self.changes)?;
            if self.changes.is_full() {
                self.changes.flush(arrived, out)?;
            }
        }
        self.changes.flush(arrived, out)
    }

    fn process_rows(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let first = self.rows_seen;
        self.rows_seen += batch.num_rows() as u64;
        let placement = self.placer.place(batch, self.watermark)?;
        let kept = placement.kept.as_ref().map_or(batch.num_rows(), |kept| kept.values().len());
        out.counts.late += placement.late;
        out.counts.partly_late += placement.partly_late;
        out.counts.null_time += placement.null_time;
        out.counts.used += kept as u64;
        if let Some(late) = &self.late {
            late.give(batch, &placement.rejected, out)?;
        }
        if kept == 0 {
            return Ok(());
        }
        let rows = match &placement.kept {
            None => self.recipe.evaluate(&batch.rows, Arrival::From(first))?,
            Some(kept) => {
                let used = take_record_batch(&batch.rows, kept).map_err(|error| arrow_failure(&error))?;
                self.recipe.evaluate(&used, Arrival::From(first))?
            }
        };
        let keys = self.recipe.keys_of_sets(&rows)?;
        let key_rows = self.key_format.rows(&keys)?;
        let running = Running { values: batch.running.as_ref(), floor: self.watermark };
        // The watermark before each row that is used.
        let running: Vec<i64> = match &placement.kept {
            None => (0..kept).map(|row| running.of(row)).collect(),
            Some(kept) => kept.values().iter().map(|row| running.of(*row as usize)).collect(),
        };
        if let Some(complete) = &mut self.complete {
            complete.is_dirty = true;
        }
        let parts = rows_of_parts(&placement);
        let cuts = self.cuts(&placement, &running);
        for (index, from) in cuts.iter().enumerate() {
            let to = cuts.get(index + 1).copied().unwrap_or(kept);
            self.advance(running[*from], out)?;
            let key_columns: Vec<u32> =
                keys.iter().map(|columns| self.changes.add_keys(columns.clone())).collect();
            let batch = Batch { rows: &rows, keys: &key_rows, key_columns: &key_columns };
            for (key, all) in &parts {
                let start = all.partition_point(|row| (*row as usize) < *from);
                let end = all.partition_point(|row| (*row as usize) < to);
                if start < end {
                    self.take(*key, &batch, &all[start..end], &running)?;
                }
            }
            self.flush(out)?;
        }
        Ok(())
    }

    /// Adds rows to a window between two deadlines.
    fn take(&mut self, key: PartKey, batch: &Batch<'_>, rows: &[u32], running: &[i64]) -> Result<(), Error> {
        if !self.windows.contains_key(&key) {
            self.open(key)?;
        }
        let Some(window) = self.windows.get_mut(&key) else { return Ok(()) };
        let gives_each = match self.mode {
            EmitMode::OnWindowClose | EmitMode::Early { .. } => window.is_closed,
            EmitMode::Changes { every_us } => every_us.is_none(),
            EmitMode::Complete { .. } => false,
        };
        if gives_each {
            window.update_each(batch, rows, |row| running[row as usize], &mut self.changes)
        } else {
            window.update(batch, rows, self.complete.is_none())
        }
    }

    fn open(&mut self, key: PartKey) -> Result<(), Error> {
        let is_global = self.is_global();
        let close = if is_global { i64::MAX } else { self.placer.assigner.close(key.end) };
        let is_closed = close <= self.watermark;
        let start = if is_global { 0 } else { key.start };
        let bounds = Bounds { start, end: key.end, close };
        self.windows.insert(key, Window::new(bounds, is_closed, &self.recipe, &self.input)?);
        if !is_global {
            let deadline = if is_closed { self.placer.late_from(key.end) } else { close };
            self.deadlines.push(Reverse((deadline, key)));
        }
        Ok(())
    }

    /// The rows before which a window may close or be forgotten, ascending; the first one always.
    fn cuts(&self, placement: &Placement, running: &[i64]) -> Vec<usize> {
        let mut cuts = vec![0];
        let (Some(first), Some(last)) = (running.first(), running.last()) else { return cuts };
        if first == last || self.is_global() {
            return cuts;
        }
        let ends = placement.parts.iter().map(|(key, _)| key.end);
        let known = self.deadlines.iter().map(|Reverse((_, key))| key.end);
        for end in ends.chain(known) {
            let close = self.placer.assigner.close(end);
            let over = self.placer.late_from(end);
            for time in [close, over] {
                if *first < time && time <= *last {
                    cuts.push(running.partition_point(|running| *running < time));
                }
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// The global window of no rows has what SQL says of nothing.
    fn give_nothing(&mut self, out: &mut Output) -> Result<(), Error> {
        let (groups, mut columns) = results_of_nothing(&self.recipe)?;
        let values = columns.split_off(self.recipe.group_schema.fields().len());
        let (keys, values) = (self.changes.add_keys(columns), self.changes.add_values(values));
        for row in 0..groups as u32 {
            self.changes.push(Change {
                order: 0,
                bounds: Bounds { start: 0, end: i64::MAX, close: i64::MAX },
                keys: Place { columns: keys, row },
                before: None,
                after: Some(Place { columns: values, row }),
                running: self.watermark,
            });
        }
        self.flush(out)
    }
}

/// The rows of each part, ascending, as numbers of rows that are used. The parts are ordered: of one
/// row, the window that ends first is changed first.
fn rows_of_parts(placement: &Placement) -> Vec<(PartKey, Vec<u32>)> {
    let order: Option<&UInt32Array> = placement.order.as_ref();
    let mut offset = 0;
    let rows = |(key, len): &(PartKey, usize)| {
        let own = offset..offset + len;
        offset += len;
        let own = match order {
            None => (own.start as u32..own.end as u32).collect(),
            Some(order) => order.values()[own].to_vec(),
        };
        (*key, own)
    };
    let mut parts: Vec<(PartKey, Vec<u32>)> = placement.parts.iter().map(rows).collect();
    parts.sort_unstable_by_key(|(key, _)| *key);
    parts
}

impl Operator for LiveAggregate {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn open(&mut self, now_us: i64) {
        self.rounds.open(now_us);
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowAggregate", "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        self.process_rows(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.advance(watermark.0, out)?;
        out.watermark(watermark);
        Ok(())
    }

    fn next_timer(&self) -> Option<i64> {
        self.rounds.next_us
    }

    fn process_timer(&mut self, now_us: i64, out: &mut Output) -> Result<(), Error> {
        if !self.rounds.is_due(now_us) {
            return Ok(());
        }
        self.round(out)
    }

    fn next_watermark(&self) -> Option<i64> {
        self.deadlines.peek().map(|Reverse((time, _))| *time)
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        if !self.is_global() {
            self.advance(i64::MAX, out)?;
        } else if self.windows.is_empty() {
            self.give_nothing(out)?;
        }
        self.round(out)
    }

    fn open_windows(&mut self, most: usize, of: Option<&KeyFilter>) -> Result<Vec<OpenWindow>, Error> {
        let place = of.map(|filter| self.key_names.place(filter));
        let mut found = Vec::new();
        for window in self.windows.values().filter(|_| self.placer.assigner.kind() != Kind::Global) {
            let groups = match (of, place) {
                (Some(filter), Some(Some(place))) => {
                    window.count_matching(&self.key_format, place, filter)?
                }
                (Some(_), _) => 0,
                (None, _) => window.groups.len(),
            };
            if groups == 0 {
                continue;
            }
            let Bounds { start, end, close } = window.bounds;
            found.push(OpenWindow {
                start,
                end,
                fires_at: if window.is_closed { self.placer.late_from(end) } else { close },
                groups,
                rows: of.is_none().then_some(window.rows),
                is_fired: window.is_closed,
                key: None,
            });
        }
        found.sort_by_key(|window| (window.fires_at, window.end));
        found.truncate(most);
        Ok(found)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        counts.held = 0;
        self.read(state)
    }

    fn state(&self) -> StateSize {
        let (windows, rows, bytes) = self.complete.as_ref().map_or((0, 0, 0), Complete::size);
        StateSize {
            windows: windows + self.windows.len(),
            rows: rows + self.windows.values().map(|window| window.groups.len()).sum::<usize>(),
            bytes: bytes + self.windows.values().map(Window::size).sum::<usize>(),
        }
    }
}

//! Aggregates per window and key.
//!
//! Rows are put in *parts* of the state ([`placement`]): a slice of time, or a window where windows
//! share no slices. Each part has a key table of its own ([`table`]), so the window is never in a
//! hash key and a window's state is dropped whole. When a window closes, its parts are taken:
//! TUMBLE gives the results of one, HOP merges blocks of sealed slices ([`slices`]), CUMULATE merges
//! the new slice into what it has.
//!
//! Where results change after they were given, windows have [state that can be read](live).
//!
//! Sessions are made by the rows themselves and have operators of their own ([`session`]).
//!
//! A row that is late for the first windows of its slice goes into another part of the slice, one
//! that only the open windows count. So nothing depends on when a watermark comes between rows.
//!
//! Invariant: which rows a window counts is decided when the row comes, from its running watermark.

mod assigner;
mod grouped;
mod kept;
mod key_filter;
mod live;
mod local;
mod part;
mod placement;
mod recipe;
mod results;
mod session;
mod slices;
mod state;
mod steady;
mod table;
#[cfg(test)]
mod tests;
mod zone;

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::ArrayRef;
use arrow::compute::take_record_batch;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::evaluate::{arrow_failure, failure};
use super::late::LateRows;
use super::{
    KeyFilter, OpenWindow, Operator, Output, RowCounts, SpillStore, StateReader, StateSize, StateWriter,
};
use crate::error::{Error, code};
use crate::plan::{AggregatePhase, WindowAggregateNode, WindowSource};
use crate::stream::{StreamBatch, Watermark};
use assigner::{Assigner, Ends, Kind};
use kept::{Kept, merge};
use key_filter::KeyNames;
use part::{Part, part};
use placement::{PartKey, Placer};
use recipe::{Arrival, Recipe};
use results::{Bounds, ResultBatches};
use slices::Slices;
use table::{Results, Table};

pub(super) use assigner::{Assigner as WindowAssigner, Kind as AssignerKind};
pub(super) use live::{Count, Exact, Kernel, changed, give_changes};
pub(super) use results::timestamps;
pub(super) use session::SessionRows;
pub(super) use steady::is_unsteady;

/// A part is cold if the last so many batches had no row for it.
const COLD_BATCHES: u64 = 32;

/// The operator of a window aggregation, for its phase.
pub(super) fn create(
    node: &WindowAggregateNode,
    schema: &SchemaRef,
    input: &SchemaRef,
    late: Option<LateRows>,
) -> Result<Box<dyn Operator>, Error> {
    if let WindowSource::Session { time, window, partition } = &node.window {
        let window = (*time, window, partition.as_slice());
        if node.is_updating() {
            return Ok(Box::new(session::LiveSessions::try_new(node, window, schema, input, late)?));
        }
        return Ok(Box::new(session::SessionAggregate::try_new(node, window, schema, input, late)?));
    }
    if node.is_updating() {
        return Ok(Box::new(live::LiveAggregate::try_new(node, schema, input, late)?));
    }
    match node.phase {
        AggregatePhase::Local => Ok(Box::new(local::LocalAggregate::try_new(node, schema, input, late)?)),
        AggregatePhase::Single | AggregatePhase::Final => {
            Ok(Box::new(WindowAggregate::try_new(node, schema, input, late)?))
        }
    }
}

/// Aggregates per window and key; each window's results come once, when it closes.
///
/// Wakes on: watermarks. State: a key table for each slice that an open window counts; dropped with
/// the last of these windows. Order: by window end, then by when the key was first seen in the
/// window. Watermark: forwarded after the results. The global window gives its results at the end.
pub(super) struct WindowAggregate {
    recipe: Recipe,
    key_names: KeyNames,
    placer: Placer,
    /// The second output, if somebody wants it.
    late: Option<LateRows>,
    /// Takes the states of a local phase instead of rows.
    is_final: bool,
    /// Results need to be put in the order in which their groups were first seen.
    is_ranked: bool,
    open: BTreeMap<PartKey, Part>,
    /// HOP: the slices that have been counted by a window and will be by another.
    slices: Slices,
    /// HOP: the end of the window after the last one that fired, while `slices` has something.
    next_hop: i64,
    /// CUMULATE: the state of the windows that have begun, and the end of the next one.
    running: Option<Cumulated>,
    results: ResultBatches,
    watermark: i64,
    rows_seen: u64,
    /// Batches that it took.
    batches: u64,
    arrived: Option<Instant>,
    ids: Vec<usize>,
}

/// The states of windows that grow, with the end of the next of them and of the longest.
struct Cumulated {
    kept: Kept,
    next_end: i64,
    last_end: i64,
}

impl WindowAggregate {
    fn try_new(
        node: &WindowAggregateNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let is_final = node.phase == AggregatePhase::Final;
        let recipe = if is_final {
            let types = (1..=node.keys.len())
                .map(|column| input.fields().get(column).map(|field| field.data_type().clone()))
                .collect::<Option<Vec<DataType>>>()
                .ok_or_else(|| {
                    Error::internal("WindowAggregate", "the input is not that of a local phase")
                })?;
            Recipe::with_key_types(node, types, input)?
        } else {
            Recipe::try_new(node, input)?
        };
        if let Err(error) = Table::try_new(&recipe, false) {
            return Err(Error::plan(code::NOT_SUPPORTED, error.message().to_owned())
                .hint("Group by a column of another type, or by a part of it."));
        }
        let placer = Placer::try_new(node, late.is_some())?;
        let is_global = placer.assigner.kind() == Kind::Global;
        let is_ranked = is_final || placer.is_sliced() || !recipe.sets.is_empty();
        let results = ResultBatches::new(schema, !is_global, placer.assigner.unit_us());
        Ok(Self {
            key_names: KeyNames::of(schema, if is_global { 0 } else { 3 }, node.keys.len()),
            recipe,
            placer,
            late,
            is_final,
            is_ranked,
            open: BTreeMap::new(),
            slices: Slices::default(),
            next_hop: i64::MIN,
            running: None,
            results,
            watermark: i64::MIN,
            rows_seen: 0,
            batches: 0,
            arrived: None,
            ids: Vec::new(),
        })
    }

    fn assigner(&self) -> &Assigner {
        &self.placer.assigner
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
        let mut ids = std::mem::take(&mut self.ids);
        for (key, rows) in placed_rows(&self.recipe, &batch.rows, first, &placement)? {
            let how = (&self.recipe, self.is_ranked);
            let table = part(&mut self.open, key, self.batches, how, &mut ids)?;
            table.update(&self.recipe, &rows, &mut ids)?;
        }
        self.ids = ids;
        Ok(())
    }

    /// Takes the states of a local phase, which has judged what is late.
    fn process_states(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        out.counts.used += batch.num_rows() as u64;
        let mut ids = std::mem::take(&mut self.ids);
        for (key, sealed) in local::parts(&self.recipe, &batch.rows)? {
            let how = (&self.recipe, self.is_ranked);
            part(&mut self.open, key, self.batches, how, &mut ids)?.merge(&sealed, &mut ids)?;
        }
        self.ids = ids;
        Ok(())
    }

    /// The end of the next window that has something to give.
    fn next_end(&self) -> Option<i64> {
        let open = self.open.first_key_value().map(|(key, _)| key.end);
        let hop = (!self.slices.is_empty()).then_some(self.next_hop);
        let cumulated = self.running.as_ref().map(|running| running.next_end);
        [open, hop, cumulated].into_iter().flatten().min()
    }

    /// Fires all windows that the watermark closes, in order of their end.
    fn fire(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = self.arrived else { return Ok(()) };
        while let Some(end) = self.next_end() {
            let close = self.assigner().close(end);
            if close > watermark {
                break;
            }
            if !self.placer.is_sliced() {
                let Some((key, part)) = self.open.pop_first() else { break };
                let table = part.into_table(&self.recipe, self.is_ranked, &mut self.ids)?;
                let bounds = Bounds { start: key.start, end: key.end, close };
                self.results.add(bounds, table.results()?, arrived, out)?;
                continue;
            }
            let bounds = Bounds { start: self.assigner().window_start(end), end, close };
            let results = match self.assigner().kind() {
                Kind::Cumulate => self.fire_cumulate(end)?,
                Kind::Hop | Kind::Tumble | Kind::Global => self.fire_hop(end)?,
            };
            if let Some(results) = results {
                self.results.add(bounds, results, arrived, out)?;
            }
        }
        self.results.flush(arrived, out)
    }

    /// The parts that count from the window that ends at `end` on.
    fn take_parts(&mut self, end: i64) -> Result<Vec<(i64, Kept)>, Error> {
        let mut parts = Vec::new();
        while let Some(first) = self.open.first_entry().filter(|first| first.key().end == end) {
            let (key, part) = first.remove_entry();
            parts.push((key.start, part.seal()?));
        }
        Ok(parts)
    }

    fn fire_hop(&mut self, end: i64) -> Result<Option<Results>, Error> {
        let parts = self.take_parts(end)?;
        let mut ids = std::mem::take(&mut self.ids);
        for (start, kept) in parts {
            let index = self.assigner().slice_index(start);
            self.slices.add(&self.recipe, index, kept, &mut ids)?;
        }
        let assigner = &self.placer.assigner;
        let from = assigner.slice_index(assigner.window_start(end));
        let results = self.slices.window(&self.recipe, from, assigner.slice_index(end), &mut ids)?;
        self.ids = ids;
        match end.checked_add(assigner.slice_us()) {
            Some(next) => {
                self.slices.drop_before(from.saturating_add(1));
                self.next_hop = next;
            }
            None => self.slices = Slices::default(),
        }
        Ok(results)
    }

    fn fire_cumulate(&mut self, end: i64) -> Result<Option<Results>, Error> {
        let parts = self.take_parts(end)?;
        let before = self.running.take();
        let last_end = match (&before, parts.first()) {
            (Some(before), _) => before.last_end,
            (None, Some((start, _))) => self.assigner().ends(*start).last,
            (None, None) => return Ok(None),
        };
        let kept = match before {
            Some(before) if parts.is_empty() => before.kept,
            before => {
                let all = before.iter().map(|before| &before.kept).chain(parts.iter().map(|(_, part)| part));
                Kept::Here(merge(&self.recipe, all, &mut self.ids)?.seal()?)
            }
        };
        let results = kept.results(&self.recipe, &mut self.ids)?;
        if let Some(next_end) = end.checked_add(self.assigner().slice_us()).filter(|next| *next <= last_end) {
            self.running = Some(Cumulated { kept, next_end, last_end });
        }
        Ok(Some(results))
    }

    /// Groups and rows that each open window has, by its end; those apart that it shares with windows
    /// before it.
    fn held(&self) -> BTreeMap<i64, (usize, u64)> {
        let mut held: BTreeMap<i64, (usize, u64)> = BTreeMap::new();
        let kept = (!self.slices.is_empty()).then_some((self.next_hop, 0, 0));
        let running = self.running.as_ref().map(|running| (running.next_end, running.kept.groups(), 0));
        let open = self.open.iter().map(|(key, part)| (key.end, part.len(), part.rows()));
        for (end, groups, rows) in kept.into_iter().chain(running).chain(open) {
            let sum = held.entry(end).or_default();
            sum.0 += groups;
            sum.1 += rows;
        }
        held
    }

    /// The open windows, by their end, that count a group with this key, and how many such groups the
    /// parts have that they count.
    fn held_of(&self, filter: &KeyFilter) -> Result<BTreeMap<i64, (usize, u64)>, Error> {
        let Some(place) = self.key_names.place(filter) else { return Ok(BTreeMap::new()) };
        let mut held: BTreeMap<i64, (usize, u64)> = BTreeMap::new();
        let (assigner, is_sliced) = (&self.placer.assigner, self.placer.is_sliced());
        let mut count = |groups: usize, ends: Ends| {
            ends.iter().filter(|_| groups > 0).for_each(|end| held.entry(end).or_default().0 += groups);
        };
        for (key, part) in &self.open {
            let groups = part.count_matching(&self.recipe, place, filter)?;
            let last = if is_sliced { assigner.ends(key.start).last } else { key.end };
            count(groups, Ends { first: key.end, last, step: assigner.slice_us() });
        }
        let kept = |kept: &Kept| kept.count_matching(&self.recipe, place, filter);
        for (index, slice) in self.slices.iter() {
            let last = assigner.ends(assigner.slice_of(index)).last;
            count(kept(slice)?, Ends { first: self.next_hop, last, step: assigner.slice_us() });
        }
        if let Some(running) = &self.running {
            let ends = Ends { first: running.next_end, last: running.last_end, step: assigner.slice_us() };
            count(kept(&running.kept)?, ends);
        }
        Ok(held)
    }

    /// The global window: what came, or what SQL says of nothing.
    fn fire_global(&mut self, out: &mut Output) -> Result<(), Error> {
        // Without a row there is no arrival to measure latency from; the end of the input is one.
        let arrived = self.arrived.unwrap_or_else(Instant::now);
        let bounds = Bounds { start: 0, end: i64::MAX, close: i64::MAX };
        let results = match self.open.pop_first() {
            Some((_, part)) => part.into_table(&self.recipe, self.is_ranked, &mut self.ids)?.results()?,
            None => results_of_nothing(&self.recipe)?,
        };
        self.results.add(bounds, results, arrived, out)?;
        self.results.flush(arrived, out)
    }
}

/// One row for each grouping set without a key.
fn results_of_nothing(recipe: &Recipe) -> Result<Results, Error> {
    let mut columns: Vec<ArrayRef> = recipe
        .group_schema
        .fields()
        .iter()
        .map(|field| arrow::array::new_empty_array(field.data_type()))
        .collect();
    let mut groups = usize::from(columns.is_empty());
    for set in recipe.sets.iter().filter(|set| set.is_null.iter().all(|is_null| *is_null)) {
        let keys = &columns[..columns.len() - 1];
        let nulls: Vec<ArrayRef> =
            keys.iter().map(|key| arrow::array::new_null_array(key.data_type(), 1)).collect();
        for (column, added) in columns.iter_mut().zip(recipe.masked(&nulls, 1, set)?) {
            *column = arrow::compute::concat(&[column.as_ref(), added.as_ref()])
                .map_err(|error| arrow_failure(&error))?;
        }
        groups += 1;
    }
    for call in &recipe.calls {
        let mut accumulator = call.function.create_accumulator().map_err(failure)?;
        let value = accumulator.evaluate().map_err(failure)?;
        columns.push(value.to_array_of_size(groups).map_err(failure)?);
    }
    Ok((groups, columns))
}

/// The evaluated rows of each part of a placement. Rows that are not used are not evaluated.
fn placed_rows(
    recipe: &Recipe,
    batch: &RecordBatch,
    first: u64,
    placement: &placement::Placement,
) -> Result<Vec<(PartKey, recipe::Rows)>, Error> {
    let rows = match &placement.kept {
        None => recipe.evaluate(batch, Arrival::From(first))?,
        Some(kept) => {
            let batch = take_record_batch(batch, kept).map_err(|error| arrow_failure(&error))?;
            let numbers: Vec<u64> = kept.values().iter().map(|row| first + u64::from(*row)).collect();
            recipe.evaluate(&batch, Arrival::Each(numbers.into()))?
        }
    };
    let rows = match &placement.order {
        None => rows,
        Some(order) => rows.take(order)?,
    };
    if let [(key, _)] = placement.parts.as_slice() {
        return Ok(vec![(*key, rows)]);
    }
    let mut offset = 0;
    let slice = |(key, len): &(PartKey, usize)| {
        let part = rows.slice(offset, *len);
        offset += len;
        (*key, part)
    };
    Ok(placement.parts.iter().map(slice).collect())
}

impl Operator for WindowAggregate {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowAggregate", "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        self.batches += 1;
        if self.is_final { self.process_states(&batch, out) } else { self.process_rows(&batch, out) }
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.watermark = watermark.0;
        if self.assigner().kind() != Kind::Global {
            self.fire(watermark.0, out)?;
        }
        out.watermark(watermark);
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        self.next_end().map(|end| self.assigner().close(end))
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        if self.assigner().kind() == Kind::Global { self.fire_global(out) } else { self.fire(i64::MAX, out) }
    }

    fn open_windows(&mut self, most: usize, of: Option<&KeyFilter>) -> Result<Vec<OpenWindow>, Error> {
        if self.assigner().kind() == Kind::Global {
            return Ok(Vec::new());
        }
        let held = match of {
            None => self.held(),
            Some(filter) => self.held_of(filter)?,
        };
        let (assigner, has_rows) = (self.assigner(), of.is_none() && !self.is_final);
        let window = |(end, (groups, rows)): (i64, (usize, u64))| OpenWindow {
            start: match self.open.keys().find(|key| key.end == end && !self.placer.is_sliced()) {
                Some(key) => key.start,
                None => assigner.window_start(end),
            },
            end,
            fires_at: assigner.close(end),
            groups,
            rows: has_rows.then_some(rows),
            is_fired: false,
            key: None,
        };
        Ok(held.into_iter().take(most).map(window).collect())
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        counts.held = 0;
        self.read(state)
    }

    fn spill(&mut self, wanted: usize, store: &dyn SpillStore) -> Result<usize, Error> {
        let mut given_up = self.slices.put_away(wanted, store)?;
        if given_up < wanted
            && let Some(running) = &mut self.running
            && let Kept::Here(sealed) = &running.kept
        {
            let (size, away) = (sealed.size(), sealed.put_away(store)?);
            (running.kept, given_up) = (Kept::Away(away), given_up + size);
        }
        if given_up < wanted {
            let written_before = match wanted {
                usize::MAX => u64::MAX,
                _ => self.batches.saturating_sub(COLD_BATCHES),
            };
            given_up += part::put_away(&mut self.open, wanted - given_up, written_before, store)?;
        }
        Ok(given_up)
    }

    fn spilled(&self) -> u64 {
        let running = self.running.as_ref().map_or(0, |running| running.kept.spilled());
        self.slices.spilled() + running + self.open.values().map(Part::spilled).sum::<u64>()
    }

    fn state(&self) -> StateSize {
        let (mut rows, mut bytes) = self.slices.size();
        for part in self.open.values() {
            rows += part.len();
            bytes += part.size();
        }
        if let Some(running) = &self.running {
            rows += running.kept.groups();
            bytes += running.kept.size();
        }
        let windows = self.open.len() + self.slices.len() + usize::from(self.running.is_some());
        StateSize { windows, rows, bytes }
    }
}

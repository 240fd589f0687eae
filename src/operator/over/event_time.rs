//! OVER by event time: rows get their values when the watermark has passed them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::compute::{filter_record_batch, take};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::compute::{Computer, Part, Work};
use crate::error::Error;
use crate::operator::aggregate::GROUPS;
use crate::operator::evaluate::arrow_failure;
use crate::operator::in_time::in_time;
use crate::operator::keys::{KeyFormat, KeyNumbers};
use crate::operator::late::LateRows;
use crate::operator::state::misfit;
use crate::operator::store::RowStore;
use crate::operator::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::plan::{OverNode, RankLimit};
use crate::stream::{RunningWatermark, StreamBatch, TimeUnit, Watermark, event_times};

/// Gives rows with the values of their calls, in event-time order, ties in the order of arrival.
///
/// Wakes on: watermarks. State: the rows that the watermark has not passed; of each key the rows that
/// frames still reach, and the states of aggregates. A key is forgotten where all frames are of a
/// bounded time. A row at or behind the running watermark is late.
///
/// Source: Flink's OVER aggregation by row time.
pub(super) struct OverEventTime {
    time: usize,
    unit: TimeUnit,
    input: SchemaRef,
    schema: SchemaRef,
    partition: Vec<usize>,
    keys: KeyFormat,
    numbers: KeyNumbers,
    groups: Vec<Group>,
    computer: Computer,
    limit: Option<RankLimit>,
    /// Rows of the groups and rows that wait.
    store: RowStore,
    /// Rows that wait, by time, then arrival: their slot and group.
    held: BTreeMap<(i64, u64), (u32, u32)>,
    next_row: u64,
    /// How far back frames reach; `None`: without end.
    reach_us: Option<i64>,
    /// When groups can be forgotten.
    deadlines: BTreeSet<(i64, u32)>,
    watermark: i64,
    arrived: Option<Instant>,
    late: Option<LateRows>,
}

/// The table of the rows that are kept: of each group those that come again, then those that wait, in order.
const ROWS: &str = "rows";

#[derive(Default)]
struct Group {
    /// The slots of the rows that come again with the next ones.
    retained: VecDeque<u32>,
    /// Rows that wait.
    waiting: u32,
    last_time: i64,
}

/// A row whose time has come.
struct Due {
    time: i64,
    slot: u32,
    group: u32,
}

/// Whether a group has all the rows that it gives, if its calls are one row number.
fn is_full(computer: &Computer, limit: Option<RankLimit>, group: u32) -> bool {
    limit.is_some_and(|limit| {
        computer.is_row_number(limit.call)
            && computer.progress(group).rows >= limit.most.max(0).unsigned_abs()
    })
}

impl OverEventTime {
    pub(super) fn try_new(
        node: &OverNode,
        (time, unit): (usize, TimeUnit),
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let computer = Computer::try_new(&node.calls, input)?;
        Ok(Self {
            time,
            unit,
            input: input.clone(),
            schema: schema.clone(),
            partition: node.partition.clone(),
            keys: KeyFormat::try_new(&node.partition, input)?,
            numbers: KeyNumbers::default(),
            groups: Vec::new(),
            reach_us: computer.reach_us(),
            computer,
            limit: node.limit,
            store: RowStore::new(input),
            held: BTreeMap::new(),
            next_row: 0,
            deadlines: BTreeSet::new(),
            watermark: i64::MIN,
            arrived: None,
            late,
        })
    }

    fn take(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let keys = self.keys.rows(&batch.rows)?;
        let (numbers, groups, computer) = (&mut self.numbers, &mut self.groups, &mut self.computer);
        let limit = self.limit;
        let place = |row, time| {
            let group = numbers.number(&keys, row);
            if groups.len() <= group as usize {
                groups.resize_with(numbers.bound(), Group::default);
                computer.grow(numbers.bound());
            }
            if is_full(computer, limit, group) {
                return None;
            }
            groups[group as usize].waiting += 1;
            Some((time, group))
        };
        let late = self.late.as_ref();
        let Some((rows, places)) = in_time(batch, self.time, self.watermark, late, out, place)? else {
            return Ok(());
        };
        self.arrived = self.arrived.max(Some(batch.arrived));
        for (slot, (time, group)) in self.store.add(rows)?.into_iter().zip(places) {
            self.held.insert((time, self.next_row), (slot, group));
            self.next_row += 1;
        }
        Ok(())
    }

    /// Gives the rows that the watermark has passed; rows of one time together.
    fn release(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let mut due: Vec<Due> = Vec::new();
        while let Some(first) = self.held.first_entry() {
            let time = first.key().0;
            if time > watermark {
                break;
            }
            if due.len() >= BATCH_ROWS && due.last().is_some_and(|last| last.time < time) {
                let chunk = std::mem::take(&mut due);
                self.give(&chunk, out)?;
                continue;
            }
            let (slot, group) = first.remove();
            due.push(Due { time, slot, group });
        }
        self.give(&due, out)
    }

    fn give(&mut self, due: &[Due], out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = self.arrived.filter(|_| !due.is_empty()) else { return Ok(()) };
        let mut order: Vec<u32> = (0..due.len() as u32).collect();
        order.sort_by_key(|place| due[*place as usize].group);
        let mut slots = Vec::with_capacity(due.len());
        let mut parts = Vec::new();
        for run in order.chunk_by(|one, other| due[*one as usize].group == due[*other as usize].group) {
            let group = due[run[0] as usize].group;
            let from = slots.len();
            slots.extend(&self.groups[group as usize].retained);
            let new = slots.len();
            slots.extend(run.iter().map(|place| due[*place as usize].slot));
            parts.push(Part { group, from, new, to: slots.len() });
        }
        let rows = self.store.gather(&slots)?;
        let (times, _) = event_times(rows.column(self.time))?;
        let work = Work::new(&rows, &parts, Some(&times), |row| times[row] != times[row - 1]);
        let columns = self.computer.run(&work)?;
        self.emit(&rows, columns, (due, &order, &parts), arrived, out)?;
        for part in &parts {
            self.settle(part, &slots, times[part.to - 1]);
        }
        Ok(())
    }

    /// Gives the new rows with their values, in the order of `due`.
    fn emit(
        &self,
        rows: &RecordBatch,
        values: Vec<ArrayRef>,
        (due, order, parts): (&[Due], &[u32], &[Part]),
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        // Where each due row is in the work, and among the new rows of it.
        let (mut places, mut numbers) = (vec![0; due.len()], vec![0; due.len()]);
        let new = parts.iter().flat_map(|part| part.new..part.to);
        for ((number, due), place) in order.iter().enumerate().zip(new) {
            places[*due as usize] = place as u32;
            numbers[*due as usize] = number as u32;
        }
        let (places, numbers) = (UInt32Array::from(places), UInt32Array::from(numbers));
        let picked = |column: &ArrayRef, places: &UInt32Array| {
            take(column, places, None).map_err(|error| arrow_failure(&error))
        };
        let mut columns: Vec<ArrayRef> =
            rows.columns().iter().map(|column| picked(column, &places)).collect::<Result<_, _>>()?;
        for column in &values {
            columns.push(picked(column, &numbers)?);
        }
        let width = rows.num_columns();
        let mut given = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal("Over", error))?;
        let mut running: Vec<i64> = due.iter().map(|due| due.time.saturating_sub(self.unit.us())).collect();
        if let Some(limit) = self.limit {
            let ranks = given.column(width + limit.call).as_primitive::<Int64Type>();
            let kept: BooleanArray = ranks.values().iter().map(|rank| Some(*rank <= limit.most)).collect();
            given = filter_record_batch(&given, &kept).map_err(|error| arrow_failure(&error))?;
            let mut kept = kept.values().iter();
            running.retain(|_| kept.next().unwrap_or(false));
        }
        out.counts.held -= due.len() as u64;
        out.counts.used += running.len() as u64;
        out.counts.filtered += (due.len() - running.len()) as u64;
        let count = running.len();
        let batch =
            StreamBatch { rows: given, kinds: None, running: Some(RunningWatermark::new(running)), arrived };
        for start in (0..count).step_by(BATCH_ROWS) {
            out.batch(batch.slice(start, BATCH_ROWS.min(count - start)));
        }
        Ok(())
    }

    /// Keeps of a group's rows those that frames still reach.
    fn settle(&mut self, part: &Part, slots: &[u32], last_time: i64) {
        let retained = self.computer.retain(part.group) as usize;
        let group = &mut self.groups[part.group as usize];
        group.waiting -= (part.to - part.new) as u32;
        let (gone, kept) = slots[part.from..part.to].split_at(part.to - part.from - retained);
        gone.iter().for_each(|slot| self.store.release(*slot));
        group.retained.clear();
        group.retained.extend(kept);
        if let Some(reach_us) = self.reach_us {
            self.deadlines.remove(&(group.last_time.saturating_add(reach_us), part.group));
            self.deadlines.insert((last_time.saturating_add(reach_us), part.group));
        }
        group.last_time = last_time;
    }

    /// Forgets groups whose rows no frame of a further row reaches.
    fn forget(&mut self, watermark: i64) {
        while let Some((_, number)) = self.deadlines.first().copied().filter(|first| first.0 <= watermark) {
            self.deadlines.pop_first();
            let group = &mut self.groups[number as usize];
            for slot in group.retained.drain(..) {
                self.store.release(slot);
            }
            self.computer.clear(number);
            if group.waiting == 0 {
                self.numbers.release(number);
            }
        }
    }
}

impl Operator for OverEventTime {
    fn name(&self) -> &'static str {
        "Over"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("Over", "the input is no stream of inserts"));
        }
        self.take(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.release(watermark.0, out)?;
        self.forget(watermark.0);
        self.watermark = self.watermark.max(watermark.0);
        out.watermark(watermark);
        Ok(())
    }

    /// Groups by key, and of each how far its values are; the rows that come again, and those that wait.
    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let groups = self.numbers.all();
        let mut columns = self.keys.columns(&self.numbers, &groups)?;
        let keys: Vec<usize> = (0..columns.len()).collect();
        let last_time = |number: &u32| {
            let time = self.groups[*number as usize].last_time;
            let deadline = (time.saturating_add(self.reach_us?), *number);
            self.deadlines.contains(&deadline).then_some(time)
        };
        columns.push(Arc::new(groups.iter().map(last_time).collect::<Int64Array>()));
        state.columns(GROUPS, columns, &keys)?;
        let retained = groups.iter().flat_map(|number| &self.groups[*number as usize].retained).copied();
        let slots: Vec<u32> = retained.chain(self.held.values().map(|(slot, _)| *slot)).collect();
        let waits = (0..slots.len()).map(|place| Some(place >= slots.len() - self.held.len()));
        let waits: BooleanArray = waits.collect();
        self.store.snapshot(state, ROWS, &self.partition, slots, vec![Arc::new(waits)])?;
        state.number("watermark", self.watermark);
        self.computer.snapshot(&groups, &self.input, state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        let lacks = || misfit("no groups");
        let columns = state.columns(GROUPS)?.ok_or_else(lacks)?;
        let (last_times, keys) = columns.split_last().ok_or_else(lacks)?;
        let last_times = last_times.as_primitive_opt::<Int64Type>().ok_or_else(lacks)?;
        let keys = self.keys.keys_of(keys)?;
        let groups: Vec<u32> = (0..last_times.len()).map(|row| self.numbers.number(&keys, row)).collect();
        self.groups.resize_with(self.numbers.bound(), Group::default);
        self.computer.grow(self.numbers.bound());
        for (number, last_time) in groups.iter().zip(last_times) {
            if let (Some(time), Some(reach_us)) = (last_time, self.reach_us) {
                self.groups[*number as usize].last_time = time;
                self.deadlines.insert((time.saturating_add(reach_us), *number));
            }
        }
        let taken_up = self.store.restore(state, ROWS)?.ok_or_else(lacks)?;
        let [waits] = taken_up.flags()?;
        let keys = self.keys.rows(&taken_up.rows)?;
        let (times, _) = event_times(taken_up.rows.column(self.time))?;
        for (row, (time, waits)) in times.iter().zip(waits.values()).enumerate() {
            let number = self.numbers.find(&keys, row).ok_or_else(lacks)?;
            let (slot, group) = (row as u32, &mut self.groups[number as usize]);
            if !waits {
                group.retained.push_back(slot);
                continue;
            }
            group.waiting += 1;
            self.held.insert((*time, self.next_row), (slot, number));
            self.next_row += 1;
        }
        if !self.held.is_empty() {
            self.arrived = Some(state.arrived());
        }
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        counts.held = self.held.len() as u64;
        self.computer.restore(&groups, state)
    }

    fn state(&self) -> StateSize {
        StateSize {
            windows: self.numbers.len(),
            rows: self.store.len(),
            bytes: self.store.size() + self.numbers.size() + self.computer.size(),
        }
    }
}

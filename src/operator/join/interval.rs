//! Rows of two inputs whose times are not far apart.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::SIDES;
use super::padding::side_by_side;
use super::waiting::{Waiting, WaitingRow};
use crate::error::Error;
use crate::operator::evaluate::evaluate_condition;
use crate::operator::in_time::in_time;
use crate::operator::keys::{KeyFormat, KeyNumbers, KeyRows};
use crate::operator::late::LateRows;
use crate::operator::store::{RowStore, put_away_of_two, rows_of_batch};
use crate::operator::{
    BATCH_ROWS, Operator, Output, RowCounts, SpillStore, StateReader, StateSize, StateWriter,
};
use crate::plan::{ExprRef, IntervalJoinNode, JoinKind};
use crate::stream::{RunningWatermark, StreamBatch, Watermark, event_times};

/// Joins rows as the watermark passes them, in the order of their times.
///
/// Wakes on: watermarks, which pass many rows piece by piece. State: the rows that the watermark has not passed, and of those that it has
/// the ones that later rows may still join: as many as there are in the interval. Order: by the later
/// time of a pair; a row without partner comes when none can come any more. A row at or behind the
/// running watermark is late: it is nobody's partner and never padded.
///
/// Source: Flink's interval join, but for the order.
pub(in crate::operator) struct IntervalJoin {
    kind: JoinKind,
    sides: [Side; 2],
    lower_us: Option<i64>,
    upper_us: Option<i64>,
    delay_us: i64,
    null_is_equal: bool,
    condition: Option<ExprRef>,
    pair: SchemaRef,
    schema: SchemaRef,
    numbers: KeyNumbers,
    groups: Vec<Group>,
    /// Rows that the watermark has not passed.
    waiting: Waiting,
    watermark: i64,
    /// The last watermark that was given.
    given: i64,
    arrived: Option<Instant>,
    found: Vec<Found>,
    /// So many are given at once: fewer of wide rows.
    most_pairs: usize,
    /// Rows that the next watermark passes.
    passing: Option<Passing>,
    /// How often rows were given or looked at for it since it was called.
    flushes: usize,
    late: Option<[LateRows; 2]>,
}

struct Side {
    time: usize,
    keys: KeyFormat,
    key_columns: Vec<usize>,
    store: RowStore,
    /// By slot: the row has been in a pair.
    met: Vec<bool>,
    /// Rows that the watermark has passed, with the time from which nothing can join them.
    passed: VecDeque<(i64, u32, u32)>,
}

/// The rows of a key that the watermark has passed, by time: time and slot.
#[derive(Default)]
struct Group {
    rows: [VecDeque<(i64, u32)>; 2],
    waiting: u32,
}

/// A watermark on its way: it is as far as the rows that it has passed.
struct Passing {
    rows: std::vec::IntoIter<WaitingRow>,
    watermark: Watermark,
}

/// The group of rows that nothing is equal to.
const ALONE: u32 = u32::MAX;

/// What comes out, in order.
enum Found {
    /// Slots of rows whose condition is not looked at yet.
    Pair(u32, u32),
    /// Nothing can join the row of this input any more.
    Gone(usize, u32),
}

impl IntervalJoin {
    pub(in crate::operator) fn try_new(
        node: &IntervalJoinNode,
        schema: &SchemaRef,
        late: Option<[LateRows; 2]>,
    ) -> Result<Self, Error> {
        let (first, second) = node.pair.fields().split_at(node.first_width);
        let side = |input: usize, fields: &[Arc<arrow::datatypes::Field>]| -> Result<Side, Error> {
            let schema = Arc::new(Schema::new(fields.to_vec()));
            Ok(Side {
                time: node.times[input],
                keys: KeyFormat::try_new(&node.keys[input], &schema)?,
                key_columns: node.keys[input].clone(),
                store: RowStore::new(&schema),
                met: Vec::new(),
                passed: VecDeque::new(),
            })
        };
        Ok(Self {
            kind: node.kind,
            sides: [side(0, first)?, side(1, second)?],
            lower_us: node.lower_us,
            upper_us: node.upper_us,
            delay_us: node.delay_us,
            null_is_equal: node.null_is_equal,
            condition: node.condition.clone(),
            pair: Arc::clone(&node.pair),
            schema: Arc::clone(schema),
            numbers: KeyNumbers::default(),
            groups: Vec::new(),
            waiting: Waiting::default(),
            watermark: i64::MIN,
            given: i64::MIN,
            arrived: None,
            found: Vec::new(),
            most_pairs: BATCH_ROWS,
            passing: None,
            flushes: 0,
            late,
        })
    }

    fn take(&mut self, input: usize, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("IntervalJoin", "the input is no stream of inserts"));
        }
        let side = &mut self.sides[input];
        let keys = side.keys(&batch.rows, self.null_is_equal)?;
        let (numbers, groups) = (&mut self.numbers, &mut self.groups);
        let place = |row, time| {
            let group = keys.group(row, numbers, groups);
            if group != ALONE {
                groups[group as usize].waiting += 1;
            }
            Some((time, group))
        };
        let late = self.late.as_ref().map(|late| &late[input]);
        let Some((rows, places)) = in_time(batch, side.time, self.watermark, late, out, place)? else {
            return Ok(());
        };
        self.arrived = self.arrived.max(Some(batch.arrived));
        let slots = side.store.add(rows)?;
        side.met.resize(side.store.bound(), false);
        let rows = slots.into_iter().zip(places);
        self.waiting.add(input, rows.map(|(slot, (time, group))| (time, slot, group)));
        Ok(())
    }

    /// Brings event time on to the watermark that is on its way, or until there are some rows: at each time first
    /// its rows, then those that are gone.
    fn advance(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(mut passing) = self.passing.take() else { return Ok(()) };
        self.flushes = 0;
        self.most_pairs = rows_of_batch([&self.sides[0].store, &self.sides[1].store]);
        for row in passing.rows.by_ref() {
            self.forget(row.time.saturating_sub(1), out)?;
            self.pass(row, out)?;
            if self.found.len() >= self.most_pairs {
                self.flush(out)?;
            }
            if self.flushes >= 4 {
                self.passing = Some(passing);
                return Ok(());
            }
        }
        let watermark = passing.watermark;
        self.forget(watermark.0, out)?;
        self.flush(out)?;
        self.watermark = self.watermark.max(watermark.0);
        let delayed = match watermark {
            Watermark::MAX => watermark,
            Watermark(time) => Watermark(time.saturating_sub(self.delay_us)),
        };
        if delayed.0 > self.given {
            self.given = delayed.0;
            out.watermark(delayed);
        }
        Ok(())
    }

    /// Forgets the rows that nothing can join after that time.
    fn forget(&mut self, time: i64, out: &mut Output) -> Result<(), Error> {
        let due = |side: &Side| side.passed.front().map(|one| one.0);
        loop {
            let input = match (due(&self.sides[0]), due(&self.sides[1])) {
                (Some(first), second) if first <= time && second.is_none_or(|second| first <= second) => 0,
                (_, Some(second)) if second <= time => 1,
                _ => return Ok(()),
            };
            self.forget_oldest(input);
            if self.found.len() >= self.most_pairs {
                self.flush(out)?;
            }
        }
    }

    /// The last time of the other input's rows that one of this time joins.
    fn until(&self, input: usize, time: i64) -> i64 {
        match input {
            0 => self.upper_us.map_or(i64::MAX, |upper| time.saturating_add(upper)),
            _ => self.lower_us.map_or(i64::MAX, |lower| time.saturating_sub(lower)),
        }
    }

    /// The watermark passes a row: it is joined with those before it.
    fn pass(&mut self, row: WaitingRow, out: &mut Output) -> Result<(), Error> {
        let (input, WaitingRow { time, slot, group, .. }) = (row.input(), row);
        let until = self.until(input, time);
        self.sides[input].passed.push_back((until.max(time), slot, group));
        if group == ALONE {
            return Ok(());
        }
        let from = match input {
            0 => self.lower_us.map_or(i64::MIN, |lower| time.saturating_add(lower)),
            _ => self.upper_us.map_or(i64::MIN, |upper| time.saturating_sub(upper)),
        };
        let own = &mut self.groups[group as usize];
        own.waiting -= 1;
        own.rows[input].push_back((time, slot));
        let mut place = own.rows[1 - input].partition_point(|(other, _)| *other < from);
        while let Some((_, other)) = self.groups[group as usize].rows[1 - input]
            .get(place)
            .copied()
            .filter(|(other, _)| *other <= until)
        {
            self.found.push(if input == 0 { Found::Pair(slot, other) } else { Found::Pair(other, slot) });
            if self.found.len() >= self.most_pairs {
                self.flush(out)?;
            }
            place += 1;
        }
        Ok(())
    }

    /// Nothing can join the oldest row of an input any more.
    fn forget_oldest(&mut self, input: usize) {
        let Some((_, slot, group)) = self.sides[input].passed.pop_front() else { return };
        self.found.push(Found::Gone(input, slot));
        if group == ALONE {
            return;
        }
        let own = &mut self.groups[group as usize];
        let first = own.rows[input].pop_front();
        debug_assert_eq!(first.map(|first| first.1), Some(slot), "rows go in the order of their times");
        if own.waiting == 0 && own.rows.iter().all(VecDeque::is_empty) {
            self.numbers.release(group);
        }
    }

    /// Gives what was found.
    fn flush(&mut self, out: &mut Output) -> Result<(), Error> {
        self.flushes += 1;
        let found = std::mem::take(&mut self.found);
        let Some(arrived) = self.arrived.filter(|_| !found.is_empty()) else { return Ok(()) };
        let mut is_pair = self.conditions(&found)?.into_iter();
        let mut rows: Vec<[Option<u32>; 2]> = Vec::new();
        let mut gone = Vec::new();
        for one in &found {
            match *one {
                Found::Pair(first, second) => {
                    if !is_pair.next().unwrap_or(true) {
                        continue;
                    }
                    let first_met = std::mem::replace(&mut self.sides[0].met[first as usize], true);
                    self.sides[1].met[second as usize] = true;
                    match self.kind {
                        JoinKind::Semi if !first_met => rows.push([Some(first), None]),
                        JoinKind::Semi | JoinKind::Anti => {}
                        _ => rows.push([Some(first), Some(second)]),
                    }
                }
                Found::Gone(input, slot) => {
                    let met = std::mem::take(&mut self.sides[input].met[slot as usize]);
                    let keeps = if input == 0 { self.kind.keeps_first() } else { self.kind.keeps_second() };
                    if keeps && !met {
                        rows.push(if input == 0 { [Some(slot), None] } else { [None, Some(slot)] });
                    }
                    let is_used = match (self.kind, input) {
                        (JoinKind::Anti, 0) => !met,
                        _ => met || keeps,
                    };
                    out.counts.held -= 1;
                    *(if is_used { &mut out.counts.used } else { &mut out.counts.filtered }) += 1;
                    gone.push((input, slot));
                }
            }
        }
        for rows in rows.chunks(self.most_pairs) {
            let stores = [&self.sides[0].store, &self.sides[1].store];
            let given = side_by_side(stores, rows, self.kind, &self.schema)?;
            let running = Some(RunningWatermark::constant(Watermark(self.given), given.num_rows()));
            out.batch(StreamBatch { rows: given, kinds: None, running, arrived });
        }
        for (input, slot) in gone {
            self.sides[input].store.release(slot);
        }
        Ok(())
    }

    /// Of each pair whether it meets the condition; nothing: there is none.
    fn conditions(&self, found: &[Found]) -> Result<Vec<bool>, Error> {
        let Some(condition) = &self.condition else { return Ok(Vec::new()) };
        let pairs = found.iter().filter_map(|one| match one {
            Found::Pair(first, second) => Some((*first, *second)),
            Found::Gone(..) => None,
        });
        let (first, second): (Vec<u32>, Vec<u32>) = pairs.unzip();
        if first.is_empty() {
            return Ok(Vec::new());
        }
        let mut columns = self.sides[0].store.gather(&first)?.columns().to_vec();
        columns.extend_from_slice(self.sides[1].store.gather(&second)?.columns());
        let options = RecordBatchOptions::new().with_row_count(Some(first.len()));
        let pairs = RecordBatch::try_new_with_options(Arc::clone(&self.pair), columns, &options)
            .map_err(|error| Error::internal("IntervalJoin", error))?;
        let met: BooleanArray = evaluate_condition(condition, &pairs)?;
        Ok(met.values().iter().collect())
    }

    /// Takes up the rows of an input.
    fn restore_side(&mut self, input: usize, state: &StateReader, name: &str) -> Result<(), Error> {
        let side = &mut self.sides[input];
        let Some(taken_up) = side.store.restore(state, name)? else { return Ok(()) };
        let [met, is_passed] = taken_up.flags()?;
        let keys = side.keys(&taken_up.rows, self.null_is_equal)?;
        let (times, _) = event_times(taken_up.rows.column(side.time))?;
        side.met = met.values().iter().collect();
        let (mut passed, mut waiting) = (Vec::new(), Vec::new());
        for (row, time) in times.iter().copied().enumerate() {
            let group = keys.group(row, &mut self.numbers, &mut self.groups);
            let row = (time, row as u32, group);
            if is_passed.value(row.1 as usize) {
                passed.push(row);
                continue;
            }
            waiting.push(row);
            if group != ALONE {
                self.groups[group as usize].waiting += 1;
            }
        }
        // Those of several subtasks are in the order of their times each.
        passed.sort_by_key(|row| row.0);
        for (time, slot, group) in passed {
            let until = self.until(input, time).max(time);
            self.sides[input].passed.push_back((until, slot, group));
            if group != ALONE {
                self.groups[group as usize].rows[input].push_back((time, slot));
            }
        }
        self.waiting.add(input, waiting.into_iter());
        Ok(())
    }
}

impl Side {
    fn keys(&self, rows: &RecordBatch, null_is_equal: bool) -> Result<SideKeys, Error> {
        let nulls = self.key_columns.iter().filter(|_| !null_is_equal);
        let nulls = nulls.filter_map(|key| rows.column(*key).logical_nulls()).collect();
        Ok(SideKeys { rows: self.keys.rows(rows)?, nulls })
    }
}

/// The keys of the rows of a batch, and where they are equal to none.
struct SideKeys {
    rows: KeyRows,
    nulls: Vec<NullBuffer>,
}

impl SideKeys {
    #[inline]
    fn group(&self, row: usize, numbers: &mut KeyNumbers, groups: &mut Vec<Group>) -> u32 {
        if self.nulls.iter().any(|nulls| nulls.is_null(row)) {
            return ALONE;
        }
        let group = numbers.number(&self.rows, row);
        if groups.len() <= group as usize {
            groups.resize_with(numbers.bound(), Group::default);
        }
        group
    }
}

impl Operator for IntervalJoin {
    fn name(&self) -> &'static str {
        "IntervalJoin"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(0, &batch, out)
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(1, &batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.passing = Some(Passing { rows: self.waiting.take(watermark.0).into_iter(), watermark });
        self.advance(out)
    }

    fn is_at_work(&self) -> bool {
        self.passing.is_some()
    }

    fn go_on(&mut self, out: &mut Output) -> Result<(), Error> {
        self.advance(out)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        state.number("given", self.given);
        for (input, (side, name)) in self.sides.iter().zip(SIDES).enumerate() {
            // In the order of their times: those that the watermark has passed, then those that it has not.
            let mut slots: Vec<u32> = side.passed.iter().map(|(_, slot, _)| *slot).collect();
            slots.extend(self.waiting.slots(input));
            let met: BooleanArray = slots.iter().map(|slot| Some(side.met[*slot as usize])).collect();
            let is_passed: BooleanArray =
                (0..slots.len()).map(|place| Some(place < side.passed.len())).collect();
            let more: Vec<ArrayRef> = vec![Arc::new(met), Arc::new(is_passed)];
            side.store.snapshot(state, name, &side.key_columns, slots, more)?;
        }
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        self.given = state.lowest("given").unwrap_or(i64::MIN);
        for (input, name) in SIDES.into_iter().enumerate() {
            self.restore_side(input, state, name)?;
        }
        counts.held = self.sides.iter().map(|side| side.store.len() as u64).sum();
        if counts.held > 0 {
            self.arrived = Some(state.arrived());
        }
        Ok(())
    }

    fn next_piece(&self) -> Option<i64> {
        // Rows that nothing has joined are given when they go, all of those that an input keeps, if event time comes so far.
        let kept = [self.kind.keeps_first(), self.kind.keeps_second()];
        let next = self.sides.iter().zip(kept).filter_map(|(side, is_kept)| {
            let last = side.passed.len().checked_sub(1).filter(|_| is_kept)?;
            side.passed
                .get(last.min(rows_of_batch([&self.sides[0].store, &self.sides[1].store])))
                .map(|(until, ..)| *until)
        });
        next.min()
    }

    fn spill(&mut self, wanted: usize, store: &dyn SpillStore) -> Result<usize, Error> {
        put_away_of_two(self.sides.each_mut().map(|side| &mut side.store), wanted, store)
    }

    fn spilled(&self) -> u64 {
        self.sides.iter().map(|side| side.store.spilled()).sum()
    }

    fn state(&self) -> StateSize {
        let side = |side: &Side| {
            let passed = side.passed.capacity() * size_of::<(i64, u32, u32)>();
            // Those of a key have their times and slots in its group, too.
            let grouped = side.passed.len() * size_of::<(i64, u32)>();
            side.store.size() + side.met.capacity() + passed + grouped
        };
        let groups = self.groups.capacity() * size_of::<Group>();
        let waiting = self.waiting.size();
        StateSize {
            windows: self.numbers.len(),
            rows: self.sides.iter().map(|side| side.store.len()).sum(),
            bytes: self.sides.iter().map(side).sum::<usize>() + self.numbers.size() + groups + waiting,
        }
    }
}

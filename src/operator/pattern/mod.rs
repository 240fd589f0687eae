//! MATCH_RECOGNIZE: matches of a pattern over the rows of a key, in event-time order.
//!
//! An [attempt] reads the rows from one on; the [conditions] tell which variable may take a row. Of each
//! key there is one attempt at a time, from the first row that may still begin a match: where it fails,
//! the next begins with the row behind that one.
//!
//! Invariant: matches are a function of the rows that are not late and of their order, never of when
//! watermarks came; so is the order in which they are given.

mod attempt;
mod conditions;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, new_empty_array};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::ScalarValue;

use self::attempt::{Attempt, Outcome, Pattern, Room};
use self::conditions::{Conditions, Rows, Truth, ValueReader};
use super::evaluate::{evaluate, failure};
use super::in_time::in_time;
use super::keys::{KeyFormat, KeyNumbers};
use super::late::LateRows;
use super::sort::{Ties, sort_indices};
use super::store::RowStore;
use super::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::error::{Error, code};
use crate::plan::{AfterMatch, MatchRecognizeNode};
use crate::stream::{RunningWatermark, StreamBatch, Watermark};

/// Gives a row for each match, when no row that may come can change it.
///
/// Wakes on: watermarks. State: the rows that the watermark has not passed, and of each key those from
/// the first on that may begin a match; with WITHIN no longer than that time. A key without rows is
/// forgotten. Order: that of the rows and times that decide matches. A row at or behind the running
/// watermark is late. Watermark: where a match has a time, that of the matches which are not decided
/// is waited for.
///
/// Source: SQL:2016 row pattern recognition, in the subset that Flink runs.
pub(super) struct MatchRecognize {
    node: MatchRecognizeNode,
    pattern: Pattern,
    conditions: Conditions,
    values: Vec<ValueReader>,
    schema: SchemaRef,
    keys: KeyFormat,
    numbers: KeyNumbers,
    groups: Vec<Group>,
    /// Attempts that are over, and room for a step: their memory is used again.
    spare: Vec<Attempt>,
    room: Room,
    store: RowStore,
    /// What is known of kept rows, by slot.
    truths: Vec<Truth>,
    /// Rows that the watermark has not passed, by time, then arrival: their slot and group.
    held: BTreeMap<(i64, u64), (u32, u32)>,
    next_row: u64,
    /// When attempts are over: time, number of the first row, group.
    deadlines: BTreeSet<(i64, u64, u32)>,
    /// Times that matches of groups have at least which are not decided.
    undecided: BTreeSet<(i64, u32)>,
    /// Matches to be given: a column for each key, then for each value.
    found: Vec<Vec<ScalarValue>>,
    found_rows: usize,
    watermark: i64,
    /// The last watermark that was given.
    given: i64,
    arrived: Option<Instant>,
    late: Option<LateRows>,
}

/// A row that may be part of a match.
#[derive(Debug)]
struct Kept {
    slot: u32,
    time: i64,
    /// Rows of a key have ascending ones, in the order of their arrival among rows of one time.
    number: u64,
    is_used: bool,
}

#[derive(Default)]
struct Group {
    /// From the first on that may begin a match.
    rows: VecDeque<Kept>,
    /// From the first row on; `None`: it has not begun.
    attempt: Option<Attempt>,
    /// Rows that the attempt has read.
    read: usize,
    /// Rows that the watermark has not passed.
    waiting: u32,
    deadline: Option<(i64, u64)>,
    undecided: Option<i64>,
}

/// How far event time is.
#[derive(Debug, Clone, Copy)]
enum Now {
    /// No row before this time comes any more.
    At(i64),
    /// No row comes any more.
    End,
}

impl MatchRecognize {
    pub(super) fn try_new(
        node: &MatchRecognizeNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let reader = |value| ValueReader::try_new(value, input);
        Ok(Self {
            pattern: Pattern::new(&node.variables),
            conditions: Conditions::try_new(&node.variables, input)?,
            values: node.values.iter().map(reader).collect::<Result<_, _>>()?,
            schema: schema.clone(),
            keys: KeyFormat::try_new(&node.partition, input)?,
            numbers: KeyNumbers::default(),
            groups: Vec::new(),
            spare: Vec::new(),
            room: Room::default(),
            store: RowStore::new(input),
            truths: Vec::new(),
            held: BTreeMap::new(),
            next_row: 0,
            deadlines: BTreeSet::new(),
            undecided: BTreeSet::new(),
            found: vec![Vec::new(); node.partition.len() + node.values.len()],
            found_rows: 0,
            watermark: i64::MIN,
            given: i64::MIN,
            arrived: None,
            late,
            node: node.clone(),
        })
    }

    fn take(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let keys = self.keys.rows(&batch.rows)?;
        let (numbers, groups) = (&mut self.numbers, &mut self.groups);
        let place = |row, time| {
            let group = numbers.number(&keys, row);
            if groups.len() <= group as usize {
                groups.resize_with(numbers.bound(), Group::default);
            }
            groups[group as usize].waiting += 1;
            Some((time, group))
        };
        let late = self.late.as_ref();
        let Some((rows, places)) = in_time(batch, self.node.time, self.watermark, late, out, place)? else {
            return Ok(());
        };
        self.arrived = self.arrived.max(Some(batch.arrived));
        let truths = self.conditions.of_rows(&rows);
        let slots = self.store.add(rows)?;
        self.truths.resize(self.store.bound(), Truth::default());
        for ((slot, truth), (time, group)) in slots.into_iter().zip(truths).zip(places) {
            self.truths[slot as usize] = truth;
            self.held.insert((time, self.next_row), (slot, group));
            self.next_row += 1;
        }
        Ok(())
    }

    /// Hands on the rows that the watermark has passed, in their order.
    fn release(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let mut due: Vec<((i64, u64), (u32, u32))> = Vec::new();
        while let Some(first) = self.held.first_entry() {
            if first.key().0 > watermark {
                break;
            }
            due.push(first.remove_entry());
        }
        if !self.node.order.is_empty() && due.len() > 1 {
            let slots: Vec<u32> = due.iter().map(|(_, (slot, _))| *slot).collect();
            let rows = self.store.gather(&slots)?;
            let times: ArrayRef =
                Arc::new(Int64Array::from_iter_values(due.iter().map(|((time, _), _)| *time)));
            let order = sort_indices(&self.node.order, &rows, &[times], Ties::EarliestFirst, None)?;
            due = order.values().iter().map(|place| due[*place as usize]).collect();
        }
        for ((time, number), (slot, group)) in due {
            self.expire(time, out)?;
            let own = &mut self.groups[group as usize];
            own.waiting -= 1;
            own.rows.push_back(Kept { slot, time, number, is_used: false });
            self.advance(group, Now::At(time), out)?;
        }
        self.expire(watermark, out)?;
        if watermark == i64::MAX {
            let mut open: Vec<(i64, u64, u32)> = (0..self.groups.len() as u32)
                .filter_map(|group| {
                    let first = self.groups[group as usize].rows.front()?;
                    Some((first.time, first.number, group))
                })
                .collect();
            open.sort_unstable();
            for (.., group) in open {
                self.advance(group, Now::End, out)?;
            }
        }
        self.give(out)
    }

    /// Ends the attempts that no row at or after `time` can belong to.
    fn expire(&mut self, time: i64, out: &mut Output) -> Result<(), Error> {
        while let Some((.., group)) = self.deadlines.first().copied().filter(|first| first.0 <= time) {
            let deadline = self.deadlines.first().map_or(time, |first| first.0);
            self.advance(group, Now::At(deadline), out)?;
        }
        Ok(())
    }

    /// Goes on with the attempts of a group as far as its rows and the time decide.
    fn advance(&mut self, number: u32, now: Now, out: &mut Output) -> Result<(), Error> {
        while let Some(first) = self.groups[number as usize].rows.front() {
            let deadline = self.node.within_us.map(|within| first.time.saturating_add(within));
            let is_over = match now {
                Now::End => true,
                Now::At(time) => deadline.is_some_and(|deadline| deadline <= time),
            };
            let group = &mut self.groups[number as usize];
            let mut read = group.read;
            let mut attempt = group.attempt.take().unwrap_or_else(|| {
                let mut attempt = self.spare.pop().unwrap_or_default();
                self.pattern.begin(&mut attempt, &mut self.room);
                read = 0;
                attempt
            });
            let group = &self.groups[number as usize];
            let rows = Rows { key: number, store: &self.store, rows: &group.rows };
            while attempt.outcome() == Outcome::Open {
                match group.rows.get(read) {
                    Some(row) if deadline.is_none_or(|deadline| row.time < deadline) => {
                        let (conditions, truth) = (&mut self.conditions, self.truths[row.slot as usize]);
                        self.pattern.step(&mut attempt, &mut self.room, |variable, counts| {
                            conditions.is_met(variable, truth, &rows, counts)
                        })?;
                        read += 1;
                    }
                    Some(_) => attempt.close(),
                    None if is_over => attempt.close(),
                    None => break,
                }
            }
            let gone = match attempt.outcome() {
                Outcome::Open => {
                    let group = &mut self.groups[number as usize];
                    group.read = read;
                    group.attempt = Some(attempt);
                    break;
                }
                Outcome::Failed => 1,
                Outcome::Matched(counts) => {
                    let total = counts.iter().map(|count| *count as usize).sum();
                    for (column, key) in self.found.iter_mut().zip(&self.node.partition) {
                        let (batch, at) = self.store.row(group.rows[0].slot)?;
                        column.push(ScalarValue::try_from_array(batch.column(*key), at).map_err(failure)?);
                    }
                    let columns = self.found[self.node.partition.len()..].iter_mut();
                    for (column, value) in columns.zip(&mut self.values) {
                        column.push(value.scalar(&rows, counts)?);
                        value.forget(number);
                    }
                    self.found_rows += 1;
                    let gone = skipped(&self.node, counts)?;
                    self.groups[number as usize]
                        .rows
                        .iter_mut()
                        .take(total)
                        .for_each(|row| row.is_used = true);
                    gone
                }
            };
            self.spare.push(attempt);
            let group = &mut self.groups[number as usize];
            for row in group.rows.drain(..gone) {
                self.store.release(row.slot);
                out.counts.held -= 1;
                *(if row.is_used { &mut out.counts.used } else { &mut out.counts.filtered }) += 1;
            }
            if self.found_rows >= BATCH_ROWS {
                self.give(out)?;
            }
        }
        self.settle(number);
        Ok(())
    }

    /// Notes when something happens next to a group; forgets one without rows.
    fn settle(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        let first = group.rows.front();
        let deadline = first
            .zip(self.node.within_us)
            .map(|(first, within)| (first.time.saturating_add(within), first.number));
        if group.deadline != deadline {
            if let Some((time, first)) = std::mem::replace(&mut group.deadline, deadline) {
                self.deadlines.remove(&(time, first, number));
            }
            self.deadlines.extend(deadline.map(|(time, first)| (time, first, number)));
        }
        if self.node.gives_time {
            // A match that is there already if others fail, or one that begins behind the first row.
            let whole = group.attempt.as_ref().and_then(Attempt::whole_rows).map(|rows| rows - 1);
            let places = whole.into_iter().chain([self.pattern.least_rows]);
            let undecided = places.filter_map(|place| Some(group.rows.get(place)?.time)).min();
            if group.undecided != undecided {
                if let Some(time) = std::mem::replace(&mut group.undecided, undecided) {
                    self.undecided.remove(&(time, number));
                }
                self.undecided.extend(undecided.map(|time| (time, number)));
            }
        }
        if group.rows.is_empty() && group.waiting == 0 {
            self.conditions.forget(number);
            self.numbers.release(number);
        }
    }

    /// Gives the matches that were found.
    fn give(&mut self, out: &mut Output) -> Result<(), Error> {
        let count = std::mem::take(&mut self.found_rows);
        let Some(arrived) = self.arrived.filter(|_| count > 0) else { return Ok(()) };
        let keys = self.node.partition.len();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        for (column, field) in self.found[..keys].iter_mut().zip(self.schema.fields()) {
            columns.push(array(std::mem::take(column), field.data_type())?);
        }
        let values = self.found[keys..].iter_mut().zip(self.node.values_schema.fields());
        let values = values.map(|(column, field)| array(std::mem::take(column), field.data_type()));
        let values = RecordBatch::try_new_with_options(
            self.node.values_schema.clone(),
            values.collect::<Result<_, _>>()?,
            &RecordBatchOptions::new().with_row_count(Some(count)),
        );
        let values = values.map_err(|error| Error::internal("MatchRecognize", error))?;
        for measure in &self.node.measures {
            columns.push(evaluate(measure, &values)?);
        }
        let rows = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal("MatchRecognize", error))?;
        let running = Some(RunningWatermark::new(vec![self.given; count]));
        let batch = StreamBatch { rows, kinds: None, running, arrived };
        for start in (0..count).step_by(BATCH_ROWS) {
            out.batch(batch.slice(start, BATCH_ROWS.min(count - start)));
        }
        Ok(())
    }
}

/// How many rows no further match begins with.
fn skipped(node: &MatchRecognizeNode, counts: &[u32]) -> Result<usize, Error> {
    let rows = |counts: &[u32]| counts.iter().map(|count| *count as usize).sum::<usize>();
    let (variable, row) = match node.skip {
        AfterMatch::PastLastRow => return Ok(rows(counts)),
        AfterMatch::ToNextRow => return Ok(1),
        AfterMatch::ToFirst(variable) => (variable, rows(&counts[..variable])),
        AfterMatch::ToLast(variable) => (variable, rows(&counts[..=variable]).saturating_sub(1)),
    };
    let name = &node.variables[variable].name;
    let message = match (counts[variable], row) {
        (0, _) => format!("AFTER MATCH SKIP goes to \"{name}\", which has no row in a match"),
        (_, 0) => format!(
            "AFTER MATCH SKIP goes to \"{name}\", which is the first row of a match: it would be found for ever"
        ),
        _ => return Ok(row),
    };
    Err(Error::run(code::EVALUATION, message)
        .hint("Use AFTER MATCH SKIP TO NEXT ROW, or a variable that always has a row behind the first."))
}

fn array(values: Vec<ScalarValue>, data_type: &arrow::datatypes::DataType) -> Result<ArrayRef, Error> {
    match values.is_empty() {
        true => Ok(new_empty_array(data_type)),
        false => ScalarValue::iter_to_array(values).map_err(failure),
    }
}

impl Operator for MatchRecognize {
    fn name(&self) -> &'static str {
        "MatchRecognize"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("MatchRecognize", "the input is no stream of inserts"));
        }
        self.take(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.release(watermark.0, out)?;
        self.watermark = self.watermark.max(watermark.0);
        let undecided = self.undecided.first().map(|(time, _)| time.saturating_sub(self.node.unit.us()));
        let given = undecided.map_or(watermark.0, |time| time.min(watermark.0));
        if given > self.given {
            self.given = given;
            out.watermark(Watermark(given));
        }
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        let held = self.held.first_key_value().map(|((time, _), _)| *time);
        held.into_iter().chain(self.deadlines.first().map(|(time, ..)| *time)).min()
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.read(state, counts)
    }

    fn state(&self) -> StateSize {
        let attempts = self.groups.iter().filter_map(|group| group.attempt.as_ref());
        let attempts: usize = attempts.map(Attempt::size).sum();
        let truths = self.truths.capacity() * size_of::<Truth>();
        StateSize {
            windows: self.numbers.len(),
            rows: self.store.len(),
            bytes: self.store.size() + self.numbers.size() + self.conditions.size() + truths + attempts,
        }
    }
}

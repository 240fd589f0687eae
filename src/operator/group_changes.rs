//! Aggregation of a changelog.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array, UInt64Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::aggregate::{Aggregates, GROUPS, Step};
use super::evaluate::{arrow_failure, one_nan_and_zero};
use super::expiry::{Expiry, written_at};
use super::keys::{KeyFormat, KeyNumbers};
use super::state::misfit;
use super::window::{changed, give_changes};
use super::{Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::error::Error;
use crate::plan::{GroupChangesNode, StateTtl};
use crate::stream::{RowKind, RowKinds, StreamBatch, Watermark};

/// Aggregates per key over rows that come, change and go.
///
/// Wakes on: batches; for groups of all rows the end, if there was no row. State: the groups that have rows. Order:
/// each change as its row comes; an update whose forms are of one group is one change. A group whose last
/// row goes is deleted; groups of all rows, which have no key, stay. Watermark: forwarded unchanged.
pub(super) struct GroupChanges {
    keys: Vec<usize>,
    format: KeyFormat,
    numbers: KeyNumbers,
    aggregates: Aggregates,
    /// Rows of each group.
    rows: Vec<u64>,
    schema: SchemaRef,
    input: SchemaRef,
    /// Numbers of the grouping sets without keys.
    whole: Vec<u64>,
    /// Which groups of all rows have been given: the one without keys, or that of each such set.
    given: Vec<bool>,
    arrived: Option<Instant>,
    ttl: Option<StateTtl>,
    expiry: Option<Expiry>,
}

/// What a row, or both forms of one, do to a group.
struct Transition {
    /// A row with the group's key.
    row: u32,
    before: bool,
    after: bool,
}

impl GroupChanges {
    pub(super) fn try_new(
        node: &GroupChangesNode,
        schema: &SchemaRef,
        input: &SchemaRef,
    ) -> Result<Self, Error> {
        Ok(Self {
            keys: node.keys.clone(),
            format: KeyFormat::try_new(&node.keys, input)?,
            numbers: KeyNumbers::default(),
            aggregates: Aggregates::try_new(&node.aggregates, input)?,
            rows: Vec::new(),
            schema: schema.clone(),
            input: input.clone(),
            whole: node.whole.clone(),
            given: vec![false; if node.keys.is_empty() { 1 } else { node.whole.len() }],
            arrived: None,
            ttl: node.ttl,
            expiry: node.ttl.map(Expiry::new),
        })
    }

    /// The steps of a batch's rows, each transition between two values, and what becomes of the groups.
    fn transitions(&mut self, batch: &StreamBatch) -> Result<(Vec<Step>, Vec<Transition>), Error> {
        let written = written_at(self.ttl, batch)?;
        let keys = self.format.rows(&batch.rows)?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let (mut steps, mut transitions) = (Vec::new(), Vec::new());
        let whole = self.whole_groups(batch)?;
        let mut row = 0;
        while row < batch.num_rows() {
            let mut group = self.numbers.number(&keys, row);
            self.rows.resize(self.numbers.bound().max(self.rows.len()), 0);
            if let Some(expiry) = &mut self.expiry {
                let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
                if expiry.is_over(group, running) {
                    steps.push(Step::Clear { group });
                    self.forget(group);
                    group = self.numbers.number(&keys, row);
                }
                if let Some(expiry) = &mut self.expiry {
                    expiry.write(group, written.get(row).copied().unwrap_or(i64::MIN));
                }
            }
            let kind = kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
            // Both forms of a row that stays in its group are one step.
            let in_place = kind == RowKind::UpdateBefore && self.numbers.number(&keys, row + 1) == group;
            let count = self.rows[group as usize];
            let whole = if self.keys.is_empty() { Some(0) } else { whole.as_ref().and_then(|of| of[row]) };
            let before = whole.map_or(count > 0, |whole| self.given[whole]);
            steps.push(Step::Give { group });
            let last = row as u32 + u32::from(in_place);
            match kind {
                RowKind::Insert | RowKind::UpdateAfter => {
                    steps.push(Step::Add { group, row: last });
                    self.rows[group as usize] += 1;
                }
                RowKind::UpdateBefore | RowKind::Delete => {
                    steps.push(Step::Remove { group, row: row as u32 });
                    if in_place {
                        steps.push(Step::Add { group, row: last });
                    } else {
                        self.rows[group as usize] = count
                            .checked_sub(1)
                            .ok_or_else(|| Error::internal("GroupAggregate", "a row goes that never came"))?;
                    }
                }
            }
            steps.push(Step::Give { group });
            let after = whole.is_some() || self.rows[group as usize] > 0;
            if let Some(whole) = whole {
                self.given[whole] = true;
            }
            if !after {
                steps.push(Step::Clear { group });
                self.numbers.release(group);
            }
            transitions.push(Transition { row: last, before, after });
            row = last as usize + 1;
        }
        Ok((steps, transitions))
    }

    /// Of each row which group of all rows it is in, if the last key tells grouping sets apart and one has no keys.
    fn whole_groups(&self, batch: &StreamBatch) -> Result<Option<Vec<Option<usize>>>, Error> {
        let Some(last) = self.keys.last().filter(|_| !self.whole.is_empty()) else { return Ok(None) };
        let numbers = arrow::compute::cast(batch.rows.column(*last), &DataType::UInt64)
            .map_err(|error| arrow_failure(&error))?;
        let numbers = numbers.as_primitive::<UInt64Type>().values();
        let place = |number: &u64| self.whole.iter().position(|known| known == number);
        Ok(Some(numbers.iter().map(place).collect()))
    }

    /// Forgets a group whose aggregates are cleared.
    fn forget(&mut self, group: u32) {
        self.rows[group as usize] = 0;
        self.numbers.release(group);
        if self.keys.is_empty() {
            self.given[0] = false;
        }
        if let Some(expiry) = &mut self.expiry {
            expiry.forget(group);
        }
    }

    /// Forgets groups that no row has changed for long. What was given of them stays.
    fn expire(&mut self, over: &[u32]) -> Result<(), Error> {
        if over.is_empty() {
            return Ok(());
        }
        let steps: Vec<Step> = over.iter().map(|group| Step::Clear { group: *group }).collect();
        let (nothing, groups) = (RecordBatch::new_empty(self.input.clone()), self.rows.len());
        self.aggregates.run(&steps, &nothing, groups)?;
        over.iter().for_each(|group| self.forget(*group));
        Ok(())
    }

    fn process(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let (steps, transitions) = self.transitions(batch)?;
        let groups = self.rows.len();
        let values = self.aggregates.run(&steps, &batch.rows, groups)?;
        let count = transitions.len() as u32;
        let places = |from: u32| UInt32Array::from_iter_values((0..count).map(|index| 2 * index + from));
        let picked = |from: u32| -> Result<Vec<ArrayRef>, Error> {
            let places = places(from);
            let pick = |column: &ArrayRef| take(column, &places, None).map_err(|error| arrow_failure(&error));
            values.iter().map(pick).collect()
        };
        let has_changed = changed(&picked(0)?, &picked(1)?, transitions.len())?;
        let (mut kinds, mut rows, mut places) = (Vec::new(), Vec::new(), Vec::new());
        let mut push = |kind: RowKind, row: u32, place: usize| {
            kinds.push(kind);
            rows.push(row);
            places.push(place as u32);
        };
        for (index, one) in transitions.iter().enumerate() {
            let (before, after) = (2 * index, 2 * index + 1);
            match (one.before, one.after) {
                (false, true) => push(RowKind::Insert, one.row, after),
                (true, false) => push(RowKind::Delete, one.row, before),
                (true, true) if has_changed[index] => {
                    push(RowKind::UpdateBefore, one.row, before);
                    push(RowKind::UpdateAfter, one.row, after);
                }
                (true, true) | (false, false) => {}
            }
        }
        if kinds.is_empty() {
            return Ok(());
        }
        let (rows, places) = (UInt32Array::from(rows), UInt32Array::from(places));
        let pick = |column: &ArrayRef, places: &UInt32Array| {
            take(column, places, None).map_err(|error| arrow_failure(&error))
        };
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for key in &self.keys {
            columns.push(pick(&one_nan_and_zero(batch.rows.column(*key).clone()), &rows)?);
        }
        for values in &values {
            columns.push(pick(values, &places)?);
        }
        self.give(columns, kinds, batch.arrived, out)
    }

    fn give(
        &self,
        columns: Vec<ArrayRef>,
        kinds: Vec<RowKind>,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        let options = RecordBatchOptions::new().with_row_count(Some(kinds.len()));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal("GroupAggregate", error))?;
        let kinds = kinds.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(kinds));
        give_changes(&StreamBatch { rows, kinds, running: None, arrived }, out);
        Ok(())
    }
}

impl Operator for GroupChanges {
    fn name(&self) -> &'static str {
        "GroupAggregate"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        out.counts.used += batch.num_rows() as u64;
        if batch.num_rows() > 0 {
            self.arrived = self.arrived.max(Some(batch.arrived));
        }
        self.process(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        if let Some(expiry) = &mut self.expiry {
            let over = expiry.at_watermark(watermark.0);
            self.expire(&over)?;
        }
        out.watermark(watermark);
        Ok(())
    }

    fn next_timer(&self) -> Option<i64> {
        self.expiry.as_ref().and_then(Expiry::next_timer)
    }

    fn process_timer(&mut self, now_us: i64, _out: &mut Output) -> Result<(), Error> {
        let Some(expiry) = &mut self.expiry else { return Ok(()) };
        let over = expiry.at_timer(now_us);
        self.expire(&over)
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        if self.arrived.is_some() || self.given.is_empty() {
            return Ok(());
        }
        // What SQL says of nothing.
        self.given.fill(true);
        let nothing = RecordBatch::new_empty(self.input.clone());
        let give = vec![Step::Give { group: 0 }; self.given.len()];
        let values = self.aggregates.run(&give, &nothing, 1)?;
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.fields().len());
        if let Some((_, keys)) = self.keys.split_last() {
            let fields = self.schema.fields();
            columns.extend((0..keys.len()).map(|key| new_null_array(fields[key].data_type(), give.len())));
            let numbers: ArrayRef = Arc::new(UInt64Array::from(self.whole.clone()));
            let numbers = arrow::compute::cast(&numbers, fields[keys.len()].data_type());
            columns.push(numbers.map_err(|error| arrow_failure(&error))?);
        }
        columns.extend(values);
        // Without a row there is no arrival to measure latency from; now is one.
        let arrived = self.arrived.unwrap_or_else(Instant::now);
        self.give(columns, vec![RowKind::Insert; give.len()], arrived, out)
    }

    /// Groups by key, and how many rows each has.
    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let groups = self.numbers.all();
        let mut columns = self.format.columns(&self.numbers, &groups)?;
        // A stream with groups of all rows is not spread.
        let keys: Vec<usize> = if self.whole.is_empty() { (0..columns.len()).collect() } else { Vec::new() };
        let rows = groups.iter().map(|group| self.rows[*group as usize]);
        columns.push(Arc::new(UInt64Array::from_iter_values(rows)));
        state.columns(GROUPS, columns, &keys)?;
        self.aggregates.snapshot(&groups, state)?;
        if let Some(expiry) = &mut self.expiry {
            expiry.snapshot(GROUPS, &groups, state)?;
        }
        state.columns("given", vec![Arc::new(BooleanArray::from(self.given.clone()))], &[])?;
        state.number("has_rows", i64::from(self.arrived.is_some()));
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        let lacks = || misfit("no groups");
        let columns = state.columns(GROUPS)?.ok_or_else(lacks)?;
        let (rows, keys) = columns.split_last().ok_or_else(lacks)?;
        let rows = rows.as_primitive_opt::<UInt64Type>().ok_or_else(lacks)?;
        let keys = self.format.keys_of(keys)?;
        let groups: Vec<u32> = (0..rows.len()).map(|row| self.numbers.number(&keys, row)).collect();
        self.rows.resize(self.numbers.bound(), 0);
        groups.iter().zip(rows.values()).for_each(|(group, rows)| self.rows[*group as usize] = *rows);
        self.aggregates.restore(&groups, state)?;
        if let Some(expiry) = &mut self.expiry {
            expiry.restore(&groups, state)?;
        }
        let given = state.columns("given")?.ok_or_else(lacks)?;
        let given = given.first().and_then(|given| given.as_boolean_opt()).ok_or_else(lacks)?;
        self.given.iter_mut().zip(given.values()).for_each(|(known, given)| *known = given);
        if state.highest("has_rows") == Some(1) {
            self.arrived = Some(state.arrived());
        }
        counts.held = 0;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let aggregates = self.aggregates.size();
        let expiry = self.expiry.as_ref().map_or(0, Expiry::size);
        let bytes = aggregates + self.numbers.size() + self.rows.capacity() * size_of::<u64>() + expiry;
        StateSize { windows: 0, rows: self.numbers.len(), bytes }
    }
}

#[cfg(test)]
#[path = "group_changes_tests.rs"]
mod tests;

//! OVER by anything but time: values of rows that change with each row that comes, changes or goes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array};
use arrow::compute::{SortOptions, interleave, take, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{RowConverter, Rows, SortField};

use super::compute::{Computer, Part, Work};
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate, one_nan_and_zero};
use crate::operator::keys::{KeyFormat, KeyNumbers};
use crate::operator::state::misfit;
use crate::operator::store::RowStore;
use crate::operator::window::{changed, give_changes};
use crate::operator::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::plan::{OverCall, OverNode, SortKey};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, Watermark, event_times};

/// Gives each row with the values of its calls, and takes away those that a later row changes.
///
/// Wakes on: batches. State: all rows that have not gone, and their values. Each row, or both forms of one, makes the
/// values of its partition again. Order: each change as its row comes. Ties are in the order of arrival. Watermark:
/// forwarded unchanged; a change has the running watermark of its row.
///
/// Source: Flink's OVER that is not by time.
pub(super) struct OverChanges {
    /// The columns of PARTITION BY, and their format.
    partition: (Vec<usize>, KeyFormat),
    order: Vec<SortKey>,
    sorter: Option<RowConverter>,
    latest_first: bool,
    calls: Vec<OverCall>,
    /// Columns that tell rows apart, and their format; `None`: rows only come.
    identity: Option<(Vec<usize>, RowConverter)>,
    numbers: KeyNumbers,
    partitions: Vec<Partition>,
    store: RowStore,
    next_row: i64,
    input: SchemaRef,
    schema: SchemaRef,
}

/// The rows of a partition in order, and their values, a column a call.
#[derive(Default)]
struct Partition {
    rows: Vec<Entry>,
    values: Vec<ArrayRef>,
}

/// A row in the order of its partition.
struct Entry {
    key: Box<[u8]>,
    /// The later the greater or, where the latest is first, the smaller.
    arrival: i64,
    slot: u32,
    identity: Box<[u8]>,
}

/// What is to be given.
#[derive(Default)]
struct Given {
    /// Values of partitions before and after changes, a list a call.
    pieces: Vec<Vec<ArrayRef>>,
    changes: Vec<Change>,
    /// Slots of rows that go, free when their changes are given.
    gone: Vec<u32>,
    /// Values in the pieces.
    held: usize,
}

/// A row of the result: its slot, the piece and place of its values, and the row of the batch that made it.
struct Change {
    kind: RowKind,
    slot: u32,
    values: (usize, usize),
    row: u32,
}

impl OverChanges {
    pub(super) fn try_new(node: &OverNode, schema: &SchemaRef, input: &SchemaRef) -> Result<Self, Error> {
        let converter = |fields: Vec<SortField>| match fields.is_empty() {
            true => Ok(None),
            false => RowConverter::new(fields).map(Some).map_err(|error| arrow_failure(&error)),
        };
        let order = node.order.iter().map(|key| {
            let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
            let data_type = key.expr.data_type(input).map_err(|error| Error::internal("Over", error))?;
            Ok(SortField::new_with_options(data_type, options))
        });
        let identity = match &node.identity {
            None => None,
            Some(columns) => {
                let fields = columns.iter().map(|at| SortField::new(input.field(*at).data_type().clone()));
                converter(fields.collect())?.map(|converter| (columns.clone(), converter))
            }
        };
        Ok(Self {
            partition: (node.partition.clone(), KeyFormat::try_new(&node.partition, input)?),
            order: node.order.clone(),
            sorter: converter(order.collect::<Result<_, Error>>()?)?,
            latest_first: node.latest_first,
            calls: node.calls.clone(),
            identity,
            numbers: KeyNumbers::default(),
            partitions: Vec::new(),
            store: RowStore::new(input),
            next_row: 0,
            input: Arc::clone(input),
            schema: Arc::clone(schema),
        })
    }

    fn process(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let keys = self.partition.1.rows(&batch.rows)?;
        let order = self.sort_keys(&batch.rows)?;
        let identities = self.identities(&batch.rows)?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let kind = |row: usize| kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
        let comes = |row: &u32| matches!(kind(*row as usize), RowKind::Insert | RowKind::UpdateAfter);
        let new = UInt32Array::from_iter_values((0..batch.num_rows() as u32).filter(comes));
        let new = take_record_batch(&batch.rows, &new).map_err(|error| arrow_failure(&error))?;
        let mut slots = self.store.add(new)?.into_iter();
        let mut given = Given { pieces: vec![Vec::new(); self.calls.len()], ..Given::default() };
        let mut row = 0;
        while row < batch.num_rows() {
            let number = self.numbers.number(&keys, row);
            let partitions = self.numbers.bound().max(self.partitions.len());
            self.partitions.resize_with(partitions, Partition::default);
            let is_pair = kind(row) == RowKind::UpdateBefore && self.numbers.number(&keys, row + 1) == number;
            let entry = |row: usize| Entry {
                key: bytes(&order, row),
                arrival: 0,
                slot: 0,
                identity: bytes(&identities, row),
            };
            let gone = (!comes(&(row as u32))).then(|| entry(row));
            let last = row + usize::from(is_pair);
            let new = comes(&(last as u32)).then(|| entry(last));
            let new = match new {
                None => None,
                Some(new) => {
                    self.next_row += 1;
                    let arrival = if self.latest_first { -self.next_row } else { self.next_row };
                    let slot = slots.next().ok_or_else(|| Error::internal("Over", "a row has no place"))?;
                    Some(Entry { arrival, slot, ..new })
                }
            };
            self.change(number, gone.as_ref(), new, last as u32, &mut given)?;
            if given.held > 16 * BATCH_ROWS {
                self.give(batch, &mut given, out)?;
            }
            row = last + 1;
        }
        out.counts.used += batch.num_rows() as u64;
        self.give(batch, &mut given, out)
    }

    fn sort_keys(&self, rows: &RecordBatch) -> Result<Option<Rows>, Error> {
        let Some(sorter) = &self.sorter else { return Ok(None) };
        let columns = self.order.iter().map(|key| evaluate(&key.expr, rows).map(one_nan_and_zero));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        sorter.convert_columns(&columns).map(Some).map_err(|error| arrow_failure(&error))
    }

    fn identities(&self, rows: &RecordBatch) -> Result<Option<Rows>, Error> {
        let Some((columns, converter)) = &self.identity else { return Ok(None) };
        let columns: Vec<ArrayRef> = columns.iter().map(|column| Arc::clone(rows.column(*column))).collect();
        converter.convert_columns(&columns).map(Some).map_err(|error| arrow_failure(&error))
    }

    /// Takes a row out of its partition and puts one in; notes what has changed.
    fn change(
        &mut self,
        number: u32,
        gone: Option<&Entry>,
        new: Option<Entry>,
        row: u32,
        given: &mut Given,
    ) -> Result<(), Error> {
        let Partition { mut rows, values: before } = std::mem::take(&mut self.partitions[number as usize]);
        let old_len = rows.len();
        let mut left = None;
        if let Some(gone) = gone {
            let first = rows.partition_point(|known| known.key < gone.key);
            let equal = rows[first..].iter().take_while(|known| known.key == gone.key);
            let place = equal.enumerate().find(|(_, known)| known.identity == gone.identity);
            let place = place.map(|(place, _)| first + place);
            let place = place.ok_or_else(|| Error::internal("Over", "a row goes that never came"))?;
            left = Some((place, rows.remove(place).slot));
        }
        let mut entered = None;
        if let Some(new) = new {
            let place = rows.partition_point(|known| (&known.key, known.arrival) < (&new.key, new.arrival));
            entered = Some((place, new.slot));
            rows.insert(place, new);
        }
        let values = self.compute(&rows)?;
        let piece = given.piece(&before);
        let next = given.piece(&values);
        let mut push = |kind: RowKind, slot: u32, values: (usize, usize)| {
            given.changes.push(Change { kind, slot, values, row });
        };
        match (left, entered) {
            (Some((old, gone)), Some((new, slot))) => {
                push(RowKind::UpdateBefore, gone, (piece, old));
                push(RowKind::UpdateAfter, slot, (next, new));
            }
            (Some((old, gone)), None) => push(RowKind::Delete, gone, (piece, old)),
            (None, Some((new, slot))) => push(RowKind::Insert, slot, (next, new)),
            (None, None) => {}
        }
        let old = (0..old_len).filter(|place| left.is_none_or(|(left, _)| left != *place));
        let new = (0..rows.len()).filter(|place| entered.is_none_or(|(entered, _)| entered != *place));
        let stay: Vec<(usize, usize)> = old.zip(new).collect();
        if !stay.is_empty() && !self.calls.is_empty() {
            let old = UInt32Array::from_iter_values(stay.iter().map(|(old, _)| *old as u32));
            let new = UInt32Array::from_iter_values(stay.iter().map(|(_, new)| *new as u32));
            let of = |values: &[ArrayRef], places: &UInt32Array| -> Result<Vec<ArrayRef>, Error> {
                let of =
                    |column: &ArrayRef| take(column, places, None).map_err(|error| arrow_failure(&error));
                values.iter().map(of).collect()
            };
            let has_changed = changed(&of(&before, &old)?, &of(&values, &new)?, stay.len())?;
            for ((old, new), _) in stay.iter().zip(has_changed).filter(|(_, has_changed)| *has_changed) {
                let slot = rows[*new].slot;
                push(RowKind::UpdateBefore, slot, (piece, *old));
                push(RowKind::UpdateAfter, slot, (next, *new));
            }
        }
        given.gone.extend(left.map(|(_, slot)| slot));
        if rows.is_empty() {
            self.numbers.release(number);
            return Ok(());
        }
        self.partitions[number as usize] = Partition { rows, values };
        Ok(())
    }

    /// The values of a partition's rows, a column a call.
    fn compute(&self, entries: &[Entry]) -> Result<Vec<ArrayRef>, Error> {
        if entries.is_empty() {
            let empty = |call: usize| {
                let field = self.schema.field(self.input.fields().len() + call);
                arrow::array::new_empty_array(field.data_type())
            };
            return Ok((0..self.calls.len()).map(empty).collect());
        }
        let slots: Vec<u32> = entries.iter().map(|entry| entry.slot).collect();
        let rows = self.store.gather(&slots)?;
        let times = match self.order.as_slice() {
            [only] => event_times(&evaluate(&only.expr, &rows)?).ok().map(|(times, _)| times),
            _ => None,
        };
        let parts = [Part { group: 0, from: 0, new: 0, to: entries.len() }];
        let work = Work::new(&rows, &parts, times.as_deref(), |row| entries[row].key != entries[row - 1].key);
        let mut computer = Computer::try_new(&self.calls, &self.input)?;
        computer.grow(1);
        computer.run(&work)
    }

    /// Gives what has changed, and frees the rows that have gone.
    fn give(&mut self, batch: &StreamBatch, given: &mut Given, out: &mut Output) -> Result<(), Error> {
        let Given { pieces, changes, gone, .. } = given.take(self.calls.len());
        if !changes.is_empty() {
            let slots: Vec<u32> = changes.iter().map(|change| change.slot).collect();
            let mut columns = self.store.gather(&slots)?.columns().to_vec();
            let places: Vec<(usize, usize)> = changes.iter().map(|change| change.values).collect();
            for pieces in &pieces {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                columns.push(interleave(&pieces, &places).map_err(|error| arrow_failure(&error))?);
            }
            let options = RecordBatchOptions::new().with_row_count(Some(changes.len()));
            let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
                .map_err(|error| Error::internal("Over", error))?;
            let kinds: Vec<RowKind> = changes.iter().map(|change| change.kind).collect();
            let kinds = kinds.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(kinds));
            let running = batch.running.as_ref().map(|running| {
                let before = |change: &Change| running.values()[change.row as usize];
                RunningWatermark::new(changes.iter().map(before).collect::<Vec<_>>())
            });
            give_changes(&StreamBatch { rows, kinds, running, arrived: batch.arrived }, out);
        }
        gone.into_iter().for_each(|slot| self.store.release(slot));
        Ok(())
    }
}

/// A row as bytes; none without such columns.
fn bytes(rows: &Option<Rows>, row: usize) -> Box<[u8]> {
    rows.as_ref().map_or_else(Box::default, |rows| Box::from(rows.row(row).data()))
}

impl Given {
    /// Keeps values that changes refer to; gives their number.
    fn piece(&mut self, values: &[ArrayRef]) -> usize {
        let number = self.pieces.first().map_or(0, Vec::len);
        for (pieces, values) in self.pieces.iter_mut().zip(values) {
            self.held += values.len();
            pieces.push(Arc::clone(values));
        }
        number
    }

    fn take(&mut self, calls: usize) -> Self {
        std::mem::replace(self, Self { pieces: vec![Vec::new(); calls], ..Self::default() })
    }
}

impl Operator for OverChanges {
    fn name(&self) -> &'static str {
        "Over"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.process(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        out.watermark(watermark);
        Ok(())
    }

    /// The rows, by partition, in order, each with its arrival. Their values are computed again.
    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let partitions = self.numbers.all();
        let entries = || partitions.iter().flat_map(|number| &self.partitions[*number as usize].rows);
        let slots: Vec<u32> = entries().map(|entry| entry.slot).collect();
        let arrivals = Int64Array::from_iter_values(entries().map(|entry| entry.arrival));
        state.number("next_row", self.next_row);
        self.store.snapshot(state, "rows", &self.partition.0, slots, vec![Arc::new(arrivals)])
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        let lacks = || misfit("no rows of partitions");
        let taken_up = self.store.restore(state, "rows")?.ok_or_else(lacks)?;
        let [arrivals] = taken_up.numbers()?;
        let rows = &taken_up.rows;
        let keys = self.partition.1.rows(rows)?;
        let (order, identities) = (self.sort_keys(rows)?, self.identities(rows)?);
        for (row, arrival) in arrivals.iter().enumerate() {
            let number = self.numbers.number(&keys, row);
            self.partitions.resize_with(self.numbers.bound(), Partition::default);
            let (key, identity) = (bytes(&order, row), bytes(&identities, row));
            let entry = Entry { key, arrival: *arrival, slot: row as u32, identity };
            self.partitions[number as usize].rows.push(entry);
        }
        for number in 0..self.partitions.len() {
            let values = self.compute(&self.partitions[number].rows)?;
            self.partitions[number].values = values;
        }
        self.next_row = state.highest("next_row").unwrap_or(0);
        counts.held = 0;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let entry = |entry: &Entry| size_of::<Entry>() + entry.key.len() + entry.identity.len();
        let partition = |of: &Partition| {
            let values: usize = of.values.iter().map(|values| values.get_array_memory_size()).sum();
            values + of.rows.iter().map(entry).sum::<usize>()
        };
        let partitions: usize = self.partitions.iter().map(partition).sum();
        StateSize {
            windows: 0,
            rows: self.store.len(),
            bytes: self.store.size() + self.numbers.size() + partitions,
        }
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;

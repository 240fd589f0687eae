//! The changelog of a table with a PRIMARY KEY, so that each change takes away what is there.

use arrow::array::UInt32Array;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;

use super::evaluate::arrow_failure;
use super::keys::{KeyFormat, KeyNumbers};
use super::store::RowStore;
use super::window::give_changes;
use super::{Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::error::Error;
use crate::plan::NormalizeNode;
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch};

/// Keeps the last row of each key. A row that comes replaces the one that is there, if there is one; one that
/// goes takes it away, whatever it says of the other columns.
///
/// Wakes on: batches. State: a row for each key. Order: kept. Watermark: forwarded unchanged.
///
/// Source: Flink's changelog normalization.
pub(super) struct Normalize {
    format: KeyFormat,
    numbers: KeyNumbers,
    /// By number: the slot of the row that is there.
    slots: Vec<u32>,
    store: RowStore,
}

const NONE: u32 = u32::MAX;

impl Normalize {
    pub(super) fn try_new(node: &NormalizeNode, schema: &SchemaRef) -> Result<Self, Error> {
        Ok(Self {
            format: KeyFormat::try_new(&node.key, schema)?,
            numbers: KeyNumbers::default(),
            slots: Vec::new(),
            store: RowStore::new(schema),
        })
    }
}

impl Operator for Normalize {
    fn name(&self) -> &'static str {
        "Normalize"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let keys = self.format.rows(&batch.rows)?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let kind = |row: usize| kinds.map_or(RowKind::Insert, |kinds| kinds[row]);
        let comes = |row: usize| matches!(kind(row), RowKind::Insert | RowKind::UpdateAfter);
        let new: Vec<u32> = (0..batch.num_rows()).filter(|row| comes(*row)).map(|row| row as u32).collect();
        let rows = match new.len() == batch.num_rows() {
            true => batch.rows.clone(),
            false => take_record_batch(&batch.rows, &UInt32Array::from(new))
                .map_err(|error| arrow_failure(&error))?,
        };
        let mut new = self.store.add(rows)?.into_iter();
        let (mut kinds_out, mut slots_out, mut origins, mut gone) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let number = self.numbers.number(&keys, row);
            self.slots.resize(self.numbers.bound().max(self.slots.len()), NONE);
            let there = self.slots[number as usize];
            let mut push = |kind: RowKind, slot: u32| {
                kinds_out.push(kind);
                slots_out.push(slot);
                origins.push(row);
            };
            if comes(row) {
                let slot = new.next().ok_or_else(|| Error::internal("Normalize", "a row without a slot"))?;
                match there {
                    NONE => push(RowKind::Insert, slot),
                    there => {
                        push(RowKind::UpdateBefore, there);
                        push(RowKind::UpdateAfter, slot);
                        gone.push(there);
                    }
                }
                self.slots[number as usize] = slot;
                out.counts.used += 1;
                continue;
            }
            // What comes next replaces a row of its key.
            if kind(row) == RowKind::UpdateBefore && self.numbers.number(&keys, row + 1) == number {
                out.counts.used += 1;
                continue;
            }
            self.numbers.release(number);
            match there {
                // It is not there: it went before, or nobody said that it came.
                NONE => out.counts.filtered += 1,
                there => {
                    push(RowKind::Delete, there);
                    gone.push(there);
                    self.slots[number as usize] = NONE;
                    out.counts.used += 1;
                }
            }
        }
        if !kinds_out.is_empty() {
            let running = batch.running.as_ref().map(|running| {
                let running = running.values();
                RunningWatermark::new(origins.iter().map(|row| running[*row]).collect::<Vec<_>>())
            });
            let rows = self.store.gather(&slots_out)?;
            let kinds =
                kinds_out.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(kinds_out));
            give_changes(&StreamBatch { rows, kinds, running, arrived: batch.arrived }, out);
        }
        gone.into_iter().for_each(|slot| self.store.release(slot));
        Ok(())
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let slots = self.slots.iter().copied().filter(|slot| *slot != NONE);
        self.store.snapshot(state, "rows", self.format.places(), slots, Vec::new())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        counts.held = 0;
        let Some(taken_up) = self.store.restore(state, "rows")? else { return Ok(()) };
        let keys = self.format.rows(&taken_up.rows)?;
        for row in 0..taken_up.rows.num_rows() {
            // Each has a key of its own.
            let number = self.numbers.number(&keys, row);
            self.slots.resize(self.numbers.bound(), NONE);
            self.slots[number as usize] = row as u32;
        }
        Ok(())
    }

    fn state(&self) -> StateSize {
        let bytes = self.store.size() + self.numbers.size() + self.slots.capacity() * size_of::<u32>();
        StateSize { windows: 0, rows: self.store.len(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{
        Row, input, lines, plan_node, record_batch, respread, some_rows, three_parts, with_deletes,
    };
    use crate::plan::Operation;
    use crate::stream::StreamElement;
    use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};

    #[test]
    fn a_row_replaces_what_is_there_and_goes_by_its_key() {
        let changes: [(RowKind, &'static str, Option<i64>); 11] = [
            (Insert, "a", Some(1)),
            (Insert, "a", Some(2)),
            (UpdateBefore, "a", None),
            (UpdateAfter, "a", Some(3)),
            (Insert, "b", Some(4)),
            (UpdateBefore, "b", None),
            (UpdateAfter, "c", Some(5)),
            (Delete, "x", Some(9)),
            (Delete, "a", None),
            (Delete, "a", None),
            (Insert, "a", Some(6)),
        ];
        let expected = [
            "+I a,1", "-U a,1", "+U a,2", "-U a,2", "+U a,3", "+I b,4", "-D b,4", "+I c,5", "-D a,3",
            "+I a,6",
        ];
        for cut in [11, 4, 2, 1] {
            let node = plan_node(Operation::Normalize(NormalizeNode { key: vec![1] }), input());
            let mut operator = create(&node, &input()).unwrap();
            let (mut out, mut given, mut from) = (Output::default(), Vec::new(), 0);
            while from < changes.len() {
                let mut to = changes.len().min(from + cut);
                to += usize::from(changes[to - 1].0 == UpdateBefore);
                let rows: Vec<Row> =
                    changes[from..to].iter().map(|change| (None, Some(change.1), change.2)).collect();
                let mut batch = StreamBatch::inserts(record_batch(&rows), Instant::now());
                batch.kinds =
                    Some(RowKinds::new(changes[from..to].iter().map(|change| change.0).collect::<Vec<_>>()));
                operator.process_batch(batch, &mut out).unwrap();
                from = to;
            }
            operator.finish(&mut out).unwrap();
            for element in out.drain() {
                let StreamElement::Batch(batch) = element else { continue };
                let kinds = batch.kinds.as_ref().map(|kinds| kinds.values().to_vec());
                let kinds = kinds.unwrap_or_else(|| vec![Insert; batch.rows.num_rows()]);
                let lines = lines(&batch.rows).into_iter().map(|line| line.replace("NULL,", ""));
                given.extend(kinds.iter().zip(lines).map(|(kind, line)| format!("{} {line}", kind.symbol())));
            }
            assert_eq!(given, expected, "{cut} rows a batch");
            assert_eq!((operator.state().rows, out.counts.filtered), (2, 2));
        }
    }

    #[test]
    fn other_numbers_of_subtasks_take_up_the_state() {
        let node = plan_node(Operation::Normalize(NormalizeNode { key: vec![1] }), input());
        let rows: Vec<(usize, Row)> = some_rows(120).into_iter().map(|(_, row)| (0, row)).collect();
        let mut parts = three_parts(&rows, 2, 5);
        with_deletes(&mut parts);
        let given = respread(&node, &input(), [&[1], &[]], &parts);
        let of = |kind: RowKind| {
            given.iter().filter(|line| line.starts_with(&format!("{} ", kind.symbol()))).count()
        };
        // What came for a key that has a row replaces it.
        assert_eq!(of(Insert) + of(UpdateAfter), 120);
        assert_eq!(of(UpdateBefore), of(UpdateAfter));
        assert!(of(Insert) > 8 && of(Delete) > 0, "{given:?}");
    }
}

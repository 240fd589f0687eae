//! The first rows of each partition, as they change.

mod identities;
mod order;
mod partition;
mod state;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::{Int64Array, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use self::identities::Identities;
use self::order::{Entry, Order, OrderKeys};
use self::partition::{Limit, Moves, Partition};
use super::evaluate::arrow_failure;
use super::expiry::{Expiry, written_at};
use super::keys::{KeyFormat, KeyNumbers, KeyRows};
use super::late::{LateRows, Rejected};
use super::store::RowStore;
use super::window::give_changes;
use super::{Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::error::Error;
use crate::plan::{RankKind, StateTtl, TopNNode};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, Watermark, event_times};

/// Gives the first rows of each partition: new ones, those that are displaced and, where the rank is
/// read, those whose rank changes.
///
/// Wakes on: batches. State: of rows that only come the first ones of each partition; of a changelog all
/// rows. With a time to live partitions are forgotten that long after the last row that changed them.
/// Order: each change as its row comes; both forms of a row that is updated are one change. Ties are in
/// the order of arrival. Watermark: forwarded unchanged; a change has the running watermark of its row.
///
/// Source: Flink's continuous Top-N and deduplication.
pub(super) struct TopN {
    name: &'static str,
    partition: KeyFormat,
    order: Order,
    latest_first: bool,
    time: Option<usize>,
    limit: Limit,
    gives_rank: bool,
    /// One row of each partition: a new one is another form of it.
    replaces: bool,
    /// A row that has come out stays out: it need not be kept.
    is_final: bool,
    identities: Option<Identities>,
    numbers: KeyNumbers,
    partitions: Vec<Partition>,
    store: RowStore,
    next_row: i64,
    /// Slots of rows that go, free after the batch.
    gone: Vec<u32>,
    scratch: Scratch,
    schema: SchemaRef,
    late: Option<LateRows>,
    ttl: Option<StateTtl>,
    expiry: Option<Expiry>,
}

/// What is used again for each row.
#[derive(Default)]
struct Scratch {
    moves: Moves,
    /// Where ranks are given: slots and ranks before and after a change, from the first place that it may touch.
    first: usize,
    before: Vec<(u32, i64)>,
    after: Vec<(u32, i64)>,
}

/// A row of the result: its slot, rank and the row of the batch that made it.
type Change = (RowKind, u32, i64, u32);

const NONE: u32 = u32::MAX;

impl TopN {
    pub(super) fn try_new(
        node: &TopNNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let identities = match node.updating {
            false => None,
            true => {
                let all: Vec<usize> = (0..input.fields().len()).collect();
                let format = KeyFormat::try_new(node.identity.as_ref().unwrap_or(&all), input)?;
                Some(Identities::new(format))
            }
        };
        Ok(Self {
            name: if node.is_deduplication() { "Deduplicate" } else { "TopN" },
            partition: KeyFormat::try_new(&node.partition, input)?,
            order: Order::try_new(&node.order, input)?,
            latest_first: node.latest_first,
            time: node.time,
            limit: Limit {
                rank: node.rank,
                most: usize::try_from(node.most).unwrap_or(usize::MAX),
                keeps_all: node.updating,
            },
            gives_rank: node.gives_rank,
            replaces: node.is_deduplication(),
            is_final: !node.changes(),
            identities,
            numbers: KeyNumbers::default(),
            partitions: Vec::new(),
            store: RowStore::new(input),
            next_row: 0,
            gone: Vec::new(),
            scratch: Scratch::default(),
            schema: schema.clone(),
            late,
            ttl: node.ttl,
            expiry: node.ttl.map(Expiry::new),
        })
    }

    fn process(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let nulls = match self.time {
            Some(time) => event_times(batch.rows.column(time))?.1,
            None => None,
        };
        let has_time = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        let running = |row: usize| batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
        if let (Some(late), Some(_)) = (&self.late, &nulls) {
            let without = (0..batch.num_rows()).filter(|row| !has_time(*row));
            let without: Vec<_> = without.map(|row| Rejected::without_time(row, running(row))).collect();
            late.give(batch, &without, out)?;
        }
        let written = written_at(self.ttl, batch)?;
        let keys = self.partition.rows(&batch.rows)?;
        let order = self.order.keys(&batch.rows)?;
        let identities = match &self.identities {
            Some(identities) => Some(identities.format.rows(&batch.rows)?),
            None => None,
        };
        let slots = self.keep(batch, &keys, &order, &has_time)?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let comes = |row: usize| {
            kinds.is_none_or(|kinds| matches!(kinds[row], RowKind::Insert | RowKind::UpdateAfter))
        };
        let mut changes: Vec<Change> = Vec::new();
        for row in 0..batch.num_rows() {
            if !has_time(row) {
                out.counts.null_time += 1;
                continue;
            }
            let is_before = kinds.is_some_and(|kinds| kinds[row] == RowKind::UpdateBefore);
            let is_after = kinds.is_some_and(|kinds| kinds[row] == RowKind::UpdateAfter);
            if comes(row) && !is_after && slots[row] == NONE {
                out.counts.filtered += 1;
                continue;
            }
            let number = self.number(&keys, row, running(row));
            // The first form of a row that stays in its partition waits for the second.
            if is_before && has_time(row + 1) && self.numbers.number(&keys, row + 1) == number {
                continue;
            }
            let pair = is_after && has_time(row - 1) && self.numbers.number(&keys, row - 1) == number;
            let leaves = match (comes(row), pair) {
                (true, false) => None,
                (true, true) => Some(row - 1),
                (false, _) => Some(row),
            };
            let mut gone = None;
            if let Some(leaves) = leaves {
                gone = self.identify(identities.as_ref(), leaves)?;
                match (&gone, &self.expiry) {
                    (Some(_), _) => out.counts.used += 1,
                    // Its partition is forgotten.
                    (None, Some(_)) => out.counts.late += 1,
                    (None, None) => return Err(Error::internal(self.name, "a row goes that never came")),
                }
            }
            let new = (comes(row) && slots[row] != NONE).then(|| self.entry(&order, row, slots[row]));
            if let (Some(new), Some(known), Some(rows)) = (&new, &mut self.identities, &identities) {
                known.add(rows, row, new.clone());
            }
            let forms = gone.as_ref().filter(|_| pair).map(|gone| (gone.slot, slots[row]));
            let is_kept = self.shift(number, gone.as_ref(), new, forms);
            if comes(row) {
                match is_kept {
                    true => out.counts.used += 1,
                    false => out.counts.filtered += 1,
                }
            }
            if (is_kept || leaves.is_some())
                && let Some(expiry) = &mut self.expiry
            {
                expiry.write(number, written.get(row).copied().unwrap_or(i64::MIN));
            }
            self.diff(row as u32, &mut changes);
            let partition = &mut self.partitions[number as usize];
            if self.is_final
                && is_kept
                && let Some(last) = partition.top.last_mut()
            {
                self.gone.push(std::mem::replace(&mut last.slot, NONE));
            }
            if partition.is_empty() {
                self.release(number);
            }
        }
        self.give(batch, &changes, out)?;
        for slot in std::mem::take(&mut self.gone) {
            self.store.release(slot);
        }
        Ok(())
    }

    /// The number of a row's partition, which is empty if its time to live is over.
    fn number(&mut self, keys: &KeyRows, row: usize, running: i64) -> u32 {
        let number = self.numbers.number(keys, row);
        if self.partitions.len() <= number as usize {
            self.partitions.resize_with(self.numbers.bound(), Partition::default);
        }
        if self.expiry.as_ref().is_some_and(|expiry| expiry.is_over(number, running)) {
            self.clear(number);
            return self.numbers.number(keys, row);
        }
        number
    }

    /// Forgets a partition with its rows.
    fn clear(&mut self, number: u32) {
        let Partition { top, rest } = std::mem::take(&mut self.partitions[number as usize]);
        for entry in top.into_iter().chain(rest) {
            self.drop_row(entry.slot);
        }
        self.release(number);
    }

    fn release(&mut self, number: u32) {
        self.numbers.release(number);
        if let Some(expiry) = &mut self.expiry {
            expiry.forget(number);
        }
    }

    /// A row is not kept any more. Changes may still be given of it.
    fn drop_row(&mut self, slot: u32) {
        if let Some(identities) = &mut self.identities {
            identities.remove(slot);
        }
        if slot != NONE {
            self.gone.push(slot);
        }
    }

    /// Stores the rows that may come out; their slots. Rows that only come are compared with what is there
    /// before the batch: it can only become harder to be among the first.
    fn keep(
        &mut self,
        batch: &StreamBatch,
        keys: &KeyRows,
        order: &OrderKeys,
        has_time: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<u32>, Error> {
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let comes = |row: usize| {
            kinds.is_none_or(|kinds| matches!(kinds[row], RowKind::Insert | RowKind::UpdateAfter))
        };
        let mut kept: Vec<u32> = Vec::new();
        for row in (0..batch.num_rows()).filter(|row| comes(*row) && has_time(*row)) {
            // With a time to live what is there may be gone when the row is used.
            if self.limit.keeps_all || self.expiry.is_some() || self.may_enter(keys, order, row) {
                kept.push(row as u32);
            }
        }
        let mut slots = vec![NONE; batch.num_rows()];
        if kept.is_empty() {
            return Ok(slots);
        }
        let rows = match kept.len() == batch.num_rows() {
            true => batch.rows.clone(),
            false => take_record_batch(&batch.rows, &UInt32Array::from(kept.clone()))
                .map_err(|error| arrow_failure(&error))?,
        };
        for (row, slot) in kept.iter().zip(self.store.add(rows)?) {
            slots[*row as usize] = slot;
        }
        Ok(slots)
    }

    /// Whether a row would be among the first ones now.
    fn may_enter(&self, keys: &KeyRows, order: &OrderKeys, row: usize) -> bool {
        let most = self.limit.most;
        let Some(number) = self.numbers.find(keys, row) else { return most > 0 };
        let Some(partition) = self.partitions.get(number as usize) else { return most > 0 };
        let Some(last) = partition.top.last() else { return most > 0 };
        match order.cmp(row, &last.key) {
            Ordering::Less => true,
            Ordering::Equal => {
                self.latest_first || self.limit.rank != RankKind::RowNumber || partition.top.len() < most
            }
            Ordering::Greater => self.limit.fits(&partition.top, Ordering::Greater),
        }
    }

    fn entry(&mut self, order: &OrderKeys, row: usize, slot: u32) -> Entry {
        self.next_row += 1;
        let arrival = if self.latest_first { -self.next_row } else { self.next_row };
        Entry { key: order.key(row), arrival, slot }
    }

    /// The entry of a row that goes; `None`: it is not there.
    fn identify(&self, rows: Option<&KeyRows>, row: usize) -> Result<Option<Entry>, Error> {
        match (&self.identities, rows) {
            (Some(identities), Some(rows)) => identities.find(rows, row),
            _ => Err(Error::internal(self.name, "a row goes of rows that only come")),
        }
    }

    /// Takes a row out of its partition and puts one in; whether the new one is kept. `forms`: both are of one row.
    fn shift(
        &mut self,
        number: u32,
        gone: Option<&Entry>,
        new: Option<Entry>,
        forms: Option<(u32, u32)>,
    ) -> bool {
        let Scratch { moves, first, before, after } = &mut self.scratch;
        let partition = &mut self.partitions[number as usize];
        moves.clear();
        moves.forms = forms;
        if self.gives_rank {
            *first = partition.first_change(gone, new.as_ref());
            self.limit.ranks(&partition.top, *first, before);
        }
        let is_kept = partition.shift(self.limit, gone, new, moves);
        if self.gives_rank {
            self.limit.ranks(&partition.top, moves.from, after);
        }
        for place in 0..self.scratch.moves.dropped.len() {
            self.drop_row(self.scratch.moves.dropped[place]);
        }
        is_kept
    }

    /// What has changed among the first rows of a partition.
    fn diff(&mut self, row: u32, changes: &mut Vec<Change>) {
        let Scratch { moves, first, before, after } = &mut self.scratch;
        if moves.from == usize::MAX {
            return;
        }
        let mut update = |old: (u32, i64), new: (u32, i64)| {
            changes.push((RowKind::UpdateBefore, old.0, old.1, row));
            changes.push((RowKind::UpdateAfter, new.0, new.1, row));
        };
        let before = match self.gives_rank {
            true => before.get(moves.from - *first..).unwrap_or_default(),
            false => &[],
        };
        if self.gives_rank && self.limit.rank == RankKind::RowNumber {
            // Each rank has one row.
            for (old, new) in before.iter().zip(after.iter()) {
                if old != new {
                    update(*old, *new);
                }
            }
            let less = before.get(after.len()..).unwrap_or_default().iter();
            changes.extend(less.map(|old| (RowKind::Delete, old.0, old.1, row)));
            let more = after.get(before.len()..).unwrap_or_default().iter();
            changes.extend(more.map(|new| (RowKind::Insert, new.0, new.1, row)));
            return;
        }
        moves.settle();
        let (left, entered) = (&moves.left, &moves.entered);
        let after = if self.gives_rank { after.as_slice() } else { &[] };
        let rank_of = |ranks: &[(u32, i64)], slot: u32| {
            ranks.iter().find(|known| known.0 == slot).map_or(0, |known| known.1)
        };
        // Of one row for each key the next is another form; of several only the two forms of an update.
        match (left.as_slice(), entered.as_slice()) {
            ([old], [new]) if self.replaces || moves.forms == Some((*old, *new)) => {
                update((*old, rank_of(before, *old)), (*new, rank_of(after, *new)));
            }
            _ => {
                changes.extend(left.iter().map(|old| (RowKind::Delete, *old, rank_of(before, *old), row)));
                changes.extend(entered.iter().map(|new| (RowKind::Insert, *new, rank_of(after, *new), row)));
            }
        }
        // Those that stay are in the same order, and may have another rank.
        let old = before.iter().filter(|(slot, _)| !left.contains(slot));
        let new = after.iter().filter(|(slot, _)| !entered.contains(slot));
        for (old, new) in old.zip(new).filter(|(old, new)| old.1 != new.1) {
            changes.push((RowKind::UpdateBefore, old.0, old.1, row));
            changes.push((RowKind::UpdateAfter, new.0, new.1, row));
        }
    }

    fn give(&self, batch: &StreamBatch, changes: &[Change], out: &mut Output) -> Result<(), Error> {
        if changes.is_empty() {
            return Ok(());
        }
        let slots: Vec<u32> = changes.iter().map(|change| change.1).collect();
        let rows = self.store.gather(&slots)?;
        let mut columns = rows.columns().to_vec();
        if self.gives_rank {
            columns.push(Arc::new(Int64Array::from_iter_values(changes.iter().map(|change| change.2))));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(changes.len()));
        let rows = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal(self.name, error))?;
        let kinds: Vec<RowKind> = changes.iter().map(|change| change.0).collect();
        let kinds = kinds.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(kinds));
        let running = batch.running.as_ref().map(|running| {
            let running = running.values();
            RunningWatermark::new(changes.iter().map(|change| running[change.3 as usize]).collect::<Vec<_>>())
        });
        give_changes(&StreamBatch { rows, kinds, running, arrived: batch.arrived }, out);
        Ok(())
    }

    /// Forgets partitions whose time to live is over.
    fn expire(&mut self, over: Vec<u32>) {
        for number in over {
            self.clear(number);
        }
        for slot in std::mem::take(&mut self.gone) {
            self.store.release(slot);
        }
    }
}

impl Operator for TopN {
    fn name(&self) -> &'static str {
        self.name
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.process(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        if let Some(expiry) = &mut self.expiry {
            let over = expiry.at_watermark(watermark.0);
            self.expire(over);
        }
        out.watermark(watermark);
        Ok(())
    }

    fn next_timer(&self) -> Option<i64> {
        self.expiry.as_ref().and_then(Expiry::next_timer)
    }

    fn process_timer(&mut self, now_us: i64, _out: &mut Output) -> Result<(), Error> {
        if let Some(expiry) = &mut self.expiry {
            let over = expiry.at_timer(now_us);
            self.expire(over);
        }
        Ok(())
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        counts.held = 0;
        self.read(state)
    }

    fn state(&self) -> StateSize {
        let identities = self.identities.as_ref().map_or(0, Identities::size);
        let expiry = self.expiry.as_ref().map_or(0, Expiry::size);
        StateSize {
            windows: 0,
            rows: self.store.len(),
            bytes: self.store.size() + self.numbers.size() + identities + expiry,
        }
    }
}

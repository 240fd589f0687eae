//! The first rows of each partition, as they change.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, UInt32Array};
use arrow::compute::{SortOptions, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use arrow::row::{RowConverter, Rows, SortField};

use super::evaluate::{arrow_failure, evaluate, one_nan_and_zero};
use super::expiry::{Expiry, written_at};
use super::keys::{KeyFormat, KeyNumbers, KeyRows};
use super::late::{LateRows, Rejected};
use super::store::RowStore;
use super::window::give_changes;
use super::{Operator, Output, StateSize};
use crate::error::Error;
use crate::plan::{RankKind, SortKey, StateTtl, TopNNode};
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
    order: Vec<SortKey>,
    sorter: Option<RowConverter>,
    /// The sort key of all rows where there is no ORDER BY.
    same: Arc<[u8]>,
    latest_first: bool,
    time: Option<usize>,
    rank: RankKind,
    most: usize,
    gives_rank: bool,
    keeps_all: bool,
    /// One row of each partition: a new one is another form of it.
    replaces: bool,
    /// A row that has come out stays out: it need not be kept.
    is_final: bool,
    identities: Option<Identities>,
    numbers: KeyNumbers,
    partitions: Vec<Partition>,
    store: RowStore,
    /// By slot: where the row is.
    places: Vec<Option<Entry>>,
    next_row: i64,
    /// Slots of rows that go, free after the batch.
    gone: Vec<u32>,
    schema: SchemaRef,
    late: Option<LateRows>,
    ttl: Option<StateTtl>,
    expiry: Option<Expiry>,
}

/// A row in the order of its partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    key: Arc<[u8]>,
    /// The later the greater or, where the latest is first, the smaller.
    arrival: i64,
    slot: u32,
}

#[derive(Default)]
struct Partition {
    /// The rows that come out, in order.
    top: Vec<Entry>,
    /// Those behind them, of a changelog.
    rest: BTreeSet<Entry>,
}

/// Finds the slots of rows that go.
struct Identities {
    format: KeyFormat,
    numbers: KeyNumbers,
    slots: Vec<Vec<u32>>,
    /// By slot: the number.
    of: Vec<u32>,
}

/// What a row does to the first rows of its partition.
#[derive(Default)]
struct Moves {
    /// Where they begin to differ.
    from: usize,
    left: Vec<u32>,
    entered: Vec<u32>,
    /// Both forms of a row that is updated.
    forms: Option<(u32, u32)>,
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
                Some(Identities { format, numbers: KeyNumbers::default(), slots: Vec::new(), of: Vec::new() })
            }
        };
        let fields = node.order.iter().map(|key| {
            let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
            let data_type = key.expr.data_type(input).map_err(|error| Error::internal("TopN", error))?;
            Ok(SortField::new_with_options(data_type, options))
        });
        let fields = fields.collect::<Result<Vec<_>, Error>>()?;
        let sorter = match fields.is_empty() {
            true => None,
            false => Some(RowConverter::new(fields).map_err(|error| arrow_failure(&error))?),
        };
        Ok(Self {
            name: if node.is_deduplication() { "Deduplicate" } else { "TopN" },
            partition: KeyFormat::try_new(&node.partition, input)?,
            order: node.order.clone(),
            sorter,
            same: Arc::from([].as_slice()),
            latest_first: node.latest_first,
            time: node.time,
            rank: node.rank,
            most: usize::try_from(node.most).unwrap_or(usize::MAX),
            gives_rank: node.gives_rank,
            keeps_all: node.updating,
            replaces: node.is_deduplication(),
            is_final: !node.changes(),
            identities,
            numbers: KeyNumbers::default(),
            partitions: Vec::new(),
            store: RowStore::new(input),
            places: Vec::new(),
            next_row: 0,
            gone: Vec::new(),
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
        let order = self.sort_keys(&batch.rows)?;
        let identities = match &self.identities {
            Some(identities) => Some(identities.format.rows(&batch.rows)?),
            None => None,
        };
        let slots = self.keep(batch, &keys, order.as_ref(), &has_time)?;
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
            let new = (comes(row) && slots[row] != NONE).then(|| self.entry(order.as_ref(), row, slots[row]));
            let before = self.snapshot(number);
            let forms = gone.as_ref().filter(|_| pair).map(|gone| (gone.slot, slots[row]));
            let mut moves = Moves { from: usize::MAX, forms, ..Moves::default() };
            let is_kept = self.shift(number, gone, new, &mut moves);
            if comes(row) {
                match is_kept {
                    true => out.counts.used += 1,
                    false => out.counts.filtered += 1,
                }
                if is_kept && let (Some(identities), Some(rows)) = (&mut self.identities, &identities) {
                    identities.add(rows, row, slots[row]);
                }
            }
            if (is_kept || leaves.is_some())
                && let Some(expiry) = &mut self.expiry
            {
                expiry.write(number, written.get(row).copied().unwrap_or(i64::MIN));
            }
            self.diff(number, &before, &moves, row as u32, &mut changes);
            let partition = &mut self.partitions[number as usize];
            if self.is_final
                && is_kept
                && let Some(last) = partition.top.last_mut()
            {
                self.gone.push(std::mem::replace(&mut last.slot, NONE));
            }
            if partition.top.is_empty() && partition.rest.is_empty() {
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
            self.places[slot as usize] = None;
            identities.remove(slot);
        }
        if slot != NONE {
            self.gone.push(slot);
        }
    }

    fn sort_keys(&self, rows: &RecordBatch) -> Result<Option<Rows>, Error> {
        let Some(sorter) = &self.sorter else { return Ok(None) };
        let columns = self.order.iter().map(|key| evaluate(&key.expr, rows).map(one_nan_and_zero));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        sorter.convert_columns(&columns).map(Some).map_err(|error| arrow_failure(&error))
    }

    /// Stores the rows that may come out; their slots. Rows that only come are compared with what is there
    /// before the batch: it can only become harder to be among the first.
    fn keep(
        &mut self,
        batch: &StreamBatch,
        keys: &KeyRows,
        order: Option<&Rows>,
        has_time: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<u32>, Error> {
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let comes = |row: usize| {
            kinds.is_none_or(|kinds| matches!(kinds[row], RowKind::Insert | RowKind::UpdateAfter))
        };
        let mut kept: Vec<u32> = Vec::new();
        for row in (0..batch.num_rows()).filter(|row| comes(*row) && has_time(*row)) {
            // With a time to live what is there may be gone when the row is used.
            if self.keeps_all || self.expiry.is_some() || self.may_enter(keys, order, row) {
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
        if self.identities.is_some() {
            self.places.resize(self.store.bound().max(self.places.len()), None);
        }
        Ok(slots)
    }

    /// Whether a row would be among the first ones now.
    fn may_enter(&self, keys: &KeyRows, order: Option<&Rows>, row: usize) -> bool {
        let Some(number) = self.numbers.find(keys, row) else { return self.most > 0 };
        let Some(partition) = self.partitions.get(number as usize) else { return self.most > 0 };
        let Some(last) = partition.top.last() else { return self.most > 0 };
        let key = order.map(|order| order.row(row));
        let key = key.as_ref().map_or(&[][..], |key| key.data());
        match key.cmp(&last.key) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => {
                self.latest_first || self.rank != RankKind::RowNumber || partition.top.len() < self.most
            }
            std::cmp::Ordering::Greater => self.fits(&partition.top, key),
        }
    }

    /// Whether a row with that sort key, which is not before the last of `top`, is among the first ones.
    fn fits(&self, top: &[Entry], key: &[u8]) -> bool {
        let Some(last) = top.last() else { return self.most > 0 };
        match self.rank {
            RankKind::RowNumber => top.len() < self.most,
            RankKind::Rank => *last.key == *key || top.len() < self.most,
            RankKind::DenseRank => *last.key == *key || distinct(top) < self.most,
        }
    }

    fn entry(&mut self, order: Option<&Rows>, row: usize, slot: u32) -> Entry {
        let key = match order {
            Some(order) => Arc::from(order.row(row).data()),
            None => Arc::clone(&self.same),
        };
        self.next_row += 1;
        let arrival = if self.latest_first { -self.next_row } else { self.next_row };
        Entry { key, arrival, slot }
    }

    /// The entry of a row that goes; `None`: it is not there.
    fn identify(&mut self, rows: Option<&KeyRows>, row: usize) -> Result<Option<Entry>, Error> {
        let (Some(identities), Some(rows)) = (&mut self.identities, rows) else {
            return Err(Error::internal(self.name, "a row goes of rows that only come"));
        };
        let Some(number) = identities.numbers.find(rows, row) else { return Ok(None) };
        let slot = identities.slots[number as usize].last().copied();
        Ok(slot.and_then(|slot| self.places[slot as usize].clone()))
    }

    /// The first rows before a change, where they are needed to tell what has changed.
    fn snapshot(&self, number: u32) -> Vec<(u32, i64)> {
        if !self.gives_rank {
            return Vec::new();
        }
        self.ranked(&self.partitions[number as usize].top, 0)
    }

    /// The slots and ranks of rows from a place on.
    fn ranked(&self, top: &[Entry], from: usize) -> Vec<(u32, i64)> {
        let mut ranked = Vec::with_capacity(top.len().saturating_sub(from));
        let (mut rank, mut dense) = (0, 0);
        for (place, entry) in top.iter().enumerate() {
            if place == 0 || top[place - 1].key != entry.key {
                rank = place as i64 + 1;
                dense += 1;
            }
            if place >= from {
                ranked.push((
                    entry.slot,
                    match self.rank {
                        RankKind::RowNumber => place as i64 + 1,
                        RankKind::Rank => rank,
                        RankKind::DenseRank => dense,
                    },
                ));
            }
        }
        ranked
    }

    /// Takes a row out of its partition and puts one in; whether the new one is kept.
    fn shift(&mut self, number: u32, gone: Option<Entry>, new: Option<Entry>, moves: &mut Moves) -> bool {
        let mut partition = std::mem::take(&mut self.partitions[number as usize]);
        if let Some(gone) = gone {
            if let Ok(place) = partition.top.binary_search(&gone) {
                partition.top.remove(place);
                moves.from = moves.from.min(place);
                moves.left.push(gone.slot);
            } else {
                partition.rest.remove(&gone);
            }
            self.drop_row(gone.slot);
        }
        // What comes is put where it belongs, before rows move up.
        let mut is_kept = false;
        if let Some(new) = new {
            let place = partition.top.partition_point(|known| *known < new);
            let is_last = place == partition.top.len();
            let is_behind_rest = is_last && partition.rest.first().is_some_and(|first| *first < new);
            if self.identities.is_some() {
                self.places[new.slot as usize] = Some(new.clone());
            }
            if !is_behind_rest && (!is_last || self.fits(&partition.top, &new.key)) {
                moves.from = moves.from.min(place);
                moves.entered.push(new.slot);
                partition.top.insert(place, new);
                is_kept = true;
            } else if self.keeps_all {
                partition.rest.insert(new);
                is_kept = true;
            } else {
                self.drop_row(new.slot);
            }
        }
        while let Some(first) = partition.rest.first() {
            if !self.fits(&partition.top, &first.key) {
                break;
            }
            if let Some(first) = partition.rest.pop_first() {
                moves.from = moves.from.min(partition.top.len());
                moves.entered.push(first.slot);
                partition.top.push(first);
            }
        }
        let first = moves.left.len();
        while self.is_over_full(&partition.top) {
            let Some(last) = partition.top.pop() else { break };
            moves.from = moves.from.min(partition.top.len());
            moves.left.push(last.slot);
            if self.keeps_all {
                partition.rest.insert(last);
            } else {
                self.drop_row(last.slot);
            }
        }
        moves.left[first..].reverse();
        self.partitions[number as usize] = partition;
        is_kept
    }

    /// Whether the last row is not among the first ones any more.
    fn is_over_full(&self, top: &[Entry]) -> bool {
        let Some(last) = top.last() else { return false };
        match self.rank {
            RankKind::RowNumber => top.len() > self.most,
            RankKind::Rank => top.partition_point(|entry| entry.key < last.key) >= self.most,
            RankKind::DenseRank => distinct(top) > self.most,
        }
    }

    /// What has changed among the first rows of a partition.
    fn diff(&self, number: u32, before: &[(u32, i64)], moves: &Moves, row: u32, changes: &mut Vec<Change>) {
        if moves.from == usize::MAX {
            return;
        }
        let mut update = |old: (u32, i64), new: (u32, i64)| {
            changes.push((RowKind::UpdateBefore, old.0, old.1, row));
            changes.push((RowKind::UpdateAfter, new.0, new.1, row));
        };
        let top = &self.partitions[number as usize].top;
        if self.gives_rank && self.rank == RankKind::RowNumber {
            // Each rank has one row.
            let after = self.ranked(top, moves.from);
            let before = before.get(moves.from..).unwrap_or_default();
            for (old, new) in before.iter().zip(&after) {
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
        let stays = |slot: &u32, others: &[u32]| !others.contains(slot);
        let left: Vec<u32> = moves.left.iter().copied().filter(|slot| stays(slot, &moves.entered)).collect();
        let entered: Vec<u32> =
            moves.entered.iter().copied().filter(|slot| stays(slot, &moves.left)).collect();
        let after = if self.gives_rank { self.ranked(top, moves.from) } else { Vec::new() };
        let rank_of = |ranks: &[(u32, i64)], slot: u32| {
            ranks.iter().find(|known| known.0 == slot).map_or(0, |known| known.1)
        };
        // Of one row for each key the next is another form; of several only the two forms of an update.
        match (left.as_slice(), entered.as_slice()) {
            ([old], [new]) if self.replaces || moves.forms == Some((*old, *new)) => {
                update((*old, rank_of(before, *old)), (*new, rank_of(&after, *new)));
            }
            _ => {
                changes.extend(left.iter().map(|old| (RowKind::Delete, *old, rank_of(before, *old), row)));
                changes.extend(entered.iter().map(|new| (RowKind::Insert, *new, rank_of(&after, *new), row)));
            }
        }
        // Those that stay are in the same order, and may have another rank.
        let old = before.iter().skip(moves.from).filter(|(slot, _)| !left.contains(slot));
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

/// How many sort keys there are.
fn distinct(top: &[Entry]) -> usize {
    top.chunk_by(|one, other| one.key == other.key).count()
}

impl Identities {
    fn add(&mut self, rows: &KeyRows, row: usize, slot: u32) {
        let number = self.numbers.number(rows, row);
        if self.slots.len() <= number as usize {
            self.slots.resize_with(self.numbers.bound(), Vec::new);
        }
        self.slots[number as usize].push(slot);
        if self.of.len() <= slot as usize {
            self.of.resize(slot as usize + 1, NONE);
        }
        self.of[slot as usize] = number;
    }

    fn remove(&mut self, slot: u32) {
        let Some(number) = self.of.get(slot as usize).copied().filter(|number| *number != NONE) else {
            return;
        };
        self.of[slot as usize] = NONE;
        let slots = &mut self.slots[number as usize];
        slots.retain(|known| *known != slot);
        if slots.is_empty() {
            self.numbers.release(number);
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

    fn state(&self) -> StateSize {
        let identities = self.identities.as_ref().map_or(0, |identities| {
            identities.numbers.size() + identities.slots.capacity() * size_of::<Vec<u32>>()
        });
        let places = self.places.capacity() * size_of::<Option<Entry>>();
        let expiry = self.expiry.as_ref().map_or(0, Expiry::size);
        StateSize {
            windows: 0,
            rows: self.store.len(),
            bytes: self.store.size() + self.numbers.size() + places + identities + expiry,
        }
    }
}

#[cfg(test)]
#[path = "top_n_tests.rs"]
mod tests;

//! Rows of two inputs, whenever they come.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, BooleanArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

mod later;
mod state;

use self::later::{Later, Leaving, NOWHERE};
use super::padding::side_by_side;
use super::slots::Slots;
use super::waiting::Waiting;
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate_condition};
use crate::operator::expiry::{Expiry, written_at};
use crate::operator::keys::{KeyFormat, KeyNumbers, KeyRows};
use crate::operator::store::{RowStore, put_away_of_two, rows_of_batch};
use crate::operator::{Operator, Output, RowCounts, SpillStore, StateReader, StateSize, StateWriter};
use crate::plan::{ExprRef, Horizon, JoinKind, RegularJoinNode, StateTtl, TtlClock};
use crate::stream::{RowKind, RowKinds, StreamBatch, Watermark, event_times};

/// Joins each row with all that have come of the other input, and takes results away when rows go or a
/// row without partner finds one.
///
/// Wakes on: batches, which it joins piece by piece. State: all rows of both inputs that have not gone, but those that nothing to come can
/// join; with a time to live only as long, and by event time rows make no pair whose times are that far apart. Order: as rows come. Watermark:
/// forwarded; it says nothing of the rows.
pub(in crate::operator) struct RegularJoin {
    kind: JoinKind,
    sides: [Side; 2],
    null_is_equal: bool,
    condition: Option<ExprRef>,
    pair: SchemaRef,
    schema: SchemaRef,
    numbers: KeyNumbers,
    /// Of each key the slots of its rows in both inputs.
    groups: Vec<[Slots; 2]>,
    ttl: Option<[StateTtl; 2]>,
    /// Rows of a batch that are kept and not joined yet.
    work: Option<Work>,
}

/// A batch that is joined piece by piece.
struct Work {
    input: usize,
    arrivals: Vec<Arrival>,
    /// Those before it are joined.
    from: usize,
    arrived: Instant,
}

struct Side {
    keys: KeyFormat,
    key_columns: Vec<usize>,
    store: RowStore,
    /// By slot.
    rows: Vec<Kept>,
    /// Finds a row that goes; `None`: rows only come.
    identities: Option<Identities>,
    expiry: Option<Expiry>,
    horizon: Option<Horizon>,
    /// With a horizon: the rows, by when nothing can join them any more.
    over: Waiting,
    /// Rows whose keys nobody has needed yet, where they may wait: they only come, and for ever or up to a horizon.
    later: Option<Later>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Kept {
    /// How many rows of the other input it is in a pair with.
    partners: u32,
    /// Its place in the group.
    place: u32,
    group: u32,
    /// The number of rows that are equal to it.
    identity: u32,
    /// Its time.
    written: i64,
}

/// Slots of rows that are equal in all columns.
struct Identities {
    format: KeyFormat,
    numbers: KeyNumbers,
    slots: Vec<Vec<u32>>,
}

/// The group of rows that nothing is equal to.
const ALONE: u32 = u32::MAX;

/// The group of rows whose keys have no number yet.
const LATER: u32 = u32::MAX - 1;

/// A row of a batch with the slot that it has.
struct Arrival {
    /// Its place in the batch.
    row: usize,
    comes: bool,
    slot: u32,
    group: u32,
    running: i64,
    /// It goes, and its time to live is over: nothing is said of it.
    is_over: bool,
}

/// Whether a row of that time is forgotten, by event time, at a row with this running watermark.
fn is_over(ttl: Option<&[StateTtl; 2]>, written: i64, running: i64) -> bool {
    match ttl {
        // A row before the first watermark, whose time is not known, is never too old.
        Some([ttl, _]) if ttl.by != TtlClock::Clock && written != i64::MIN => {
            written.saturating_add(ttl.us) <= running
        }
        _ => false,
    }
}

/// A row of the result: what becomes of it, and its rows of both inputs.
type Change = (RowKind, [Option<u32>; 2]);

impl RegularJoin {
    pub(in crate::operator) fn try_new(node: &RegularJoinNode, schema: &SchemaRef) -> Result<Self, Error> {
        let (first, second) = node.pair.fields().split_at(node.first_width);
        let side = |input: usize, fields: &[Arc<Field>]| -> Result<Side, Error> {
            let schema = Arc::new(Schema::new(fields.to_vec()));
            let all: Vec<usize> = (0..fields.len()).collect();
            let identities = match node.updating[input] {
                false => None,
                true => Some(Identities {
                    format: KeyFormat::try_new(&all, &schema)?,
                    numbers: KeyNumbers::default(),
                    slots: Vec::new(),
                }),
            };
            let may_wait = identities.is_none() && node.ttl.is_none() && !node.keys[input].is_empty();
            Ok(Side {
                keys: KeyFormat::try_new(&node.keys[input], &schema)?,
                key_columns: node.keys[input].clone(),
                store: RowStore::new(&schema),
                rows: Vec::new(),
                identities,
                expiry: node.ttl.map(|ttl| Expiry::new(ttl[input])),
                horizon: node.horizons[input],
                over: Waiting::default(),
                later: may_wait.then(Later::default),
            })
        };
        Ok(Self {
            kind: node.kind,
            sides: [side(0, first)?, side(1, second)?],
            null_is_equal: node.null_is_equal,
            condition: node.condition.clone(),
            pair: Arc::clone(&node.pair),
            schema: Arc::clone(schema),
            numbers: KeyNumbers::default(),
            groups: Vec::new(),
            ttl: node.ttl,
            work: None,
        })
    }

    /// Whether rows of an input are in the result though they have no partner.
    fn keeps(&self, input: usize) -> bool {
        if input == 0 { self.kind.keeps_first() } else { self.kind.keeps_second() }
    }

    /// Whether a row of an input is in the result as long as it has no partner.
    fn says_alone(&self, input: usize) -> bool {
        match (self.kind.gives_pairs(), input) {
            (true, _) => self.keeps(input),
            (false, 0) => self.kind == JoinKind::Anti,
            (false, _) => false,
        }
    }

    fn take(&mut self, input: usize, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let (arrivals, late) = self.arrivals(input, batch)?;
        self.note_horizon(input, &batch.rows, &arrivals)?;
        out.counts.used += batch.num_rows() as u64 - late;
        out.counts.late += late;
        self.work = Some(Work { input, arrivals, from: 0, arrived: batch.arrived });
        self.join_some(out)
    }

    /// Joins rows of the batch that is at work, until there are some pairs: it may have any number of them.
    fn join_some(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(mut work) = self.work.take() else { return Ok(()) };
        let (input, arrivals, from) = (work.input, &work.arrivals, work.from);
        let (mut pairs, most) = (0, 4 * self.pairs_a_batch());
        let several = arrivals[from..].iter().position(|arrival| {
            pairs += self.others(input, arrival).count();
            pairs > most
        });
        let to = several.map_or(arrivals.len(), |several| from + several.max(1));
        self.join(input, arrivals, from..to, work.arrived, out)?;
        if to < arrivals.len() {
            work.from = to;
            self.work = Some(work);
            return Ok(());
        }
        for gone in arrivals.iter().filter(|arrival| !arrival.comes) {
            self.sides[input].store.release(gone.slot);
            // Not sooner: a later row of the batch may have the key.
            if gone.group != ALONE && self.groups[gone.group as usize].iter().all(Slots::is_empty) {
                self.numbers.release(gone.group);
            }
        }
        Ok(())
    }

    /// Keeps the rows that come, finds those that go.
    fn arrivals(&mut self, input: usize, batch: &StreamBatch) -> Result<(Vec<Arrival>, u64), Error> {
        let (keeps_alone, says_alone) = (self.keeps(input), self.says_alone(input));
        let keys = self.sides[input].keys.rows(&batch.rows)?;
        let is_alone = self.sides[input].alone(&batch.rows, self.null_is_equal);
        // A row that nothing is equal to and that is not padded comes to nothing.
        let rows: Vec<usize> = (0..batch.num_rows()).filter(|row| keeps_alone || !is_alone(*row)).collect();
        self.number_later(1 - input, Some((&keys, &rows)));
        self.look_at_later(input);
        let side = &mut self.sides[input];
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let comes = |row: usize| {
            kinds.is_none_or(|kinds| matches!(kinds[row], RowKind::Insert | RowKind::UpdateAfter))
        };
        let new = if rows.len() == batch.num_rows() && kinds.is_none() {
            batch.rows.clone()
        } else {
            let new = rows.iter().filter(|row| comes(**row)).map(|row| *row as u32);
            let new = UInt32Array::from_iter_values(new);
            take_record_batch(&batch.rows, &new).map_err(|error| arrow_failure(&error))?
        };
        let mut slots = side.store.add(new)?.into_iter();
        side.rows.resize(side.store.bound().max(side.rows.len()), Kept::default());
        let written = written_at(self.ttl.map(|ttl| ttl[input]), batch)?;
        let whole = match &side.identities {
            Some(identities) => Some(identities.format.rows(&batch.rows)?),
            None => None,
        };
        let (mut arrivals, mut late) = (Vec::with_capacity(if says_alone { rows.len() } else { 0 }), 0);
        let mut waiting = vec![NOWHERE; if side.later.is_some() { batch.num_rows() } else { 0 }];
        for row in rows {
            let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
            let comes = comes(row);
            let slot = if comes { slots.next() } else { None };
            let Some(slot) = side.identify(whole.as_ref(), row, slot) else {
                if self.ttl.is_none() {
                    return Err(Error::internal("Join", "a row goes that never came"));
                }
                late += 1;
                continue;
            };
            if let (true, Some(expiry)) = (comes, &mut side.expiry) {
                expiry.write(slot, written.get(row).copied().unwrap_or(i64::MIN));
            }
            let group = match &side.later {
                _ if is_alone(row) => ALONE,
                Some(_) => self.numbers.find(&keys, row).unwrap_or(LATER),
                None => self.numbers.number(&keys, row),
            };
            let groups = self.numbers.bound().max(self.groups.len());
            self.groups.resize_with(groups, Default::default);
            let kept = &mut side.rows[slot as usize];
            if comes {
                let written = written.get(row).copied().unwrap_or(i64::MIN);
                *kept = Kept { written, group, identity: kept.identity, ..Kept::default() };
            }
            let is_over = !comes && is_over(self.ttl.as_ref(), kept.written, running);
            late += u64::from(is_over);
            if group == LATER {
                waiting[row] = slot;
            }
            // It has no partner, and nothing is to be said of that.
            if group != LATER || says_alone {
                arrivals.push(Arrival { row, comes, slot, group, running, is_over });
            }
        }
        if let Some(later) = &mut side.later {
            let over = match side.horizon {
                Some(horizon) => over_times(horizon, &batch.rows)?,
                None => Vec::new(),
            };
            later.add(keys, waiting, over);
        }
        Ok((arrivals, late))
    }

    /// Gives the keys of an input's rows numbers that had none: those that may be equal to some rows of the other, or all.
    /// If a key has a number, all rows with it are in its group.
    fn number_later(&mut self, input: usize, asked: Option<(&KeyRows, &[usize])>) {
        let Self { sides, numbers, groups, .. } = self;
        let Side { later: Some(later), rows, over, .. } = &mut sides[input] else { return };
        let mut numbered = Vec::new();
        let number = |leaving: Leaving| {
            let Leaving { slot, keys, row, over } = leaving;
            let group = numbers.number(keys, row);
            groups.resize_with(numbers.bound().max(groups.len()), Default::default);
            let own = &mut groups[group as usize][input];
            let kept = &mut rows[slot as usize];
            (kept.group, kept.place) = (group, own.as_slice().len() as u32);
            own.push(slot);
            numbered.extend(over.map(|over| (over, slot, group)));
        };
        match asked {
            Some((keys, rows)) => later.take(keys, rows, number),
            None => later.take_all(number),
        }
        over.add(0, numbered.into_iter());
    }

    /// Rows of an input do not wait for their numbers where that costs more.
    fn look_at_later(&mut self, input: usize) {
        let Some(later) = &self.sides[input].later else { return };
        let pays = later.pays();
        if !pays || later.is_sparse() {
            self.number_later(input, None);
        }
        if !pays {
            self.sides[input].later = None;
        }
    }

    /// Notes when nothing can join the rows of a batch any more.
    fn note_horizon(&mut self, input: usize, rows: &RecordBatch, arrivals: &[Arrival]) -> Result<(), Error> {
        let side = &mut self.sides[input];
        let Some(horizon) = side.horizon else { return Ok(()) };
        let over = over_times(horizon, rows)?;
        let known = arrivals.iter().filter(|arrival| arrival.group != LATER);
        side.over.add(0, known.map(|arrival| (over[arrival.row], arrival.slot, arrival.group)));
        Ok(())
    }

    /// The slots of the other input's rows with the key of a row.
    fn others(&self, input: usize, arrival: &Arrival) -> impl Iterator<Item = u32> + '_ {
        let others: &[u32] = match arrival.group {
            _ if arrival.is_over => &[],
            ALONE | LATER => &[],
            group => self.groups[group as usize][1 - input].as_slice(),
        };
        let own = self.sides[input].rows[arrival.slot as usize];
        let (comes, running, rows, ttl) =
            (arrival.comes, arrival.running, &self.sides[1 - input].rows, self.ttl.as_ref());
        // A pair is one whichever of the two is taken first.
        others.iter().copied().filter(move |other| {
            let other = rows[*other as usize];
            let is_gone = !comes && is_over(ttl, other.written, running);
            !is_gone && !is_over(ttl, own.written, other.written) && !is_over(ttl, other.written, own.written)
        })
    }

    fn join(
        &mut self,
        input: usize,
        arrivals: &[Arrival],
        range: Range<usize>,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        let arrivals = &arrivals[range];
        let mut meets = self.meets(input, arrivals)?.into_iter();
        let (mut changes, most): (Vec<Change>, _) = (Vec::new(), self.pairs_a_batch());
        let (mut partners, gives_pairs) = (Vec::new(), self.kind.gives_pairs());
        let (says_alone, keeps_other) = (self.says_alone(input), self.keeps(1 - input));
        let row = |slot: u32, other: Option<u32>| match input {
            0 => [Some(slot), other],
            _ => [other, Some(slot)],
        };
        let other_alone = |other: u32| if input == 0 { [None, Some(other)] } else { [Some(other), None] };
        for arrival in arrivals {
            partners.clear();
            partners.extend(self.others(input, arrival).filter(|_| meets.next().unwrap_or(true)));
            let (kind, opposite) = match arrival.comes {
                true => (RowKind::Insert, RowKind::Delete),
                false => (RowKind::Delete, RowKind::Insert),
            };
            for other in &partners {
                let count = &mut self.sides[1 - input].rows[*other as usize].partners;
                // The other row has its first partner now, or has lost its last.
                let turns = if arrival.comes { *count == 0 } else { *count == 1 };
                *count = if arrival.comes { *count + 1 } else { *count - 1 };
                if gives_pairs {
                    if arrival.comes && turns && keeps_other {
                        changes.push((opposite, other_alone(*other)));
                    }
                    changes.push((kind, row(arrival.slot, Some(*other))));
                    if !arrival.comes && turns && keeps_other {
                        changes.push((opposite, other_alone(*other)));
                    }
                } else if input == 1 && turns {
                    let kind = if self.kind == JoinKind::Semi { kind } else { opposite };
                    changes.push((kind, other_alone(*other)));
                }
            }
            let is_given = match (gives_pairs, input) {
                (false, 0) if self.kind == JoinKind::Semi => !partners.is_empty(),
                _ => says_alone && partners.is_empty(),
            };
            if is_given && !arrival.is_over {
                changes.push((kind, row(arrival.slot, None)));
            }
            self.settle(input, arrival, partners.len() as u32);
            if changes.len() >= most {
                self.give(&std::mem::take(&mut changes), arrived, out)?;
            }
        }
        self.give(&changes, arrived, out)
    }

    /// Of each row and each of the other input's with its key whether the two meet the condition;
    /// nothing: there is no condition.
    fn meets(&self, input: usize, arrivals: &[Arrival]) -> Result<Vec<bool>, Error> {
        let Some(condition) = &self.condition else { return Ok(Vec::new()) };
        let (mut own, mut other) = (Vec::new(), Vec::new());
        for arrival in arrivals {
            let before = other.len();
            other.extend(self.others(input, arrival));
            own.extend(std::iter::repeat_n(arrival.slot, other.len() - before));
        }
        if own.is_empty() {
            return Ok(Vec::new());
        }
        let (first, second) = if input == 0 { (&own, &other) } else { (&other, &own) };
        let mut columns = self.sides[0].store.gather(first)?.columns().to_vec();
        columns.extend_from_slice(self.sides[1].store.gather(second)?.columns());
        let options = RecordBatchOptions::new().with_row_count(Some(own.len()));
        let pairs = RecordBatch::try_new_with_options(Arc::clone(&self.pair), columns, &options)
            .map_err(|error| Error::internal("Join", error))?;
        let met: BooleanArray = evaluate_condition(condition, &pairs)?;
        Ok(met.values().iter().collect())
    }

    /// Notes that a row is there, or no longer.
    fn settle(&mut self, input: usize, arrival: &Arrival, partners: u32) {
        let rows = &mut self.sides[input].rows;
        if arrival.group == ALONE || arrival.group == LATER {
            return;
        }
        let group = &mut self.groups[arrival.group as usize];
        if arrival.comes {
            let place = group[input].as_slice().len() as u32;
            let kept = &mut rows[arrival.slot as usize];
            (kept.partners, kept.place) = (partners, place);
            group[input].push(arrival.slot);
            return;
        }
        let place = rows[arrival.slot as usize].place;
        group[input].swap_remove(place as usize);
        if let Some(moved) = group[input].as_slice().get(place as usize) {
            rows[*moved as usize].place = place;
        }
    }

    /// Forgets rows of an input whose time to live is over. What was given of them stays.
    fn expire(&mut self, input: usize, over: Vec<u32>) {
        for slot in over {
            let side = &mut self.sides[input];
            let Kept { group, identity, .. } = side.rows[slot as usize];
            if let Some(identities) = &mut side.identities {
                let equal = &mut identities.slots[identity as usize];
                equal.retain(|known| *known != slot);
                if equal.is_empty() {
                    identities.numbers.release(identity);
                }
            }
            let gone = Arrival { row: 0, comes: false, slot, group, running: i64::MIN, is_over: true };
            self.settle(input, &gone, 0);
            self.sides[input].store.release(slot);
            if group != ALONE && self.groups[group as usize].iter().all(Slots::is_empty) {
                self.numbers.release(group);
            }
        }
    }

    /// Forgets rows of an input that only come and that nothing can join any more.
    fn prune(&mut self, input: usize, watermark: i64) {
        let Side { store, later, over, .. } = &mut self.sides[input];
        if let Some(later) = later {
            later.prune(watermark, |slot| store.release(slot));
        }
        for row in over.take(watermark) {
            store.release(row.slot);
            if row.group == ALONE {
                continue;
            }
            let group = &mut self.groups[row.group as usize];
            group[input].remove(row.slot);
            if group.iter().all(Slots::is_empty) {
                self.numbers.release(row.group);
            }
        }
    }

    /// How many pairs are given at once.
    fn pairs_a_batch(&self) -> usize {
        rows_of_batch([&self.sides[0].store, &self.sides[1].store])
    }

    fn give(&self, changes: &[Change], arrived: Instant, out: &mut Output) -> Result<(), Error> {
        let stores = [&self.sides[0].store, &self.sides[1].store];
        for changes in changes.chunks(self.pairs_a_batch()) {
            let rows: Vec<[Option<u32>; 2]> = changes.iter().map(|change| change.1).collect();
            let rows = side_by_side(stores, &rows, self.kind, &self.schema)?;
            let kinds: Vec<RowKind> = changes.iter().map(|change| change.0).collect();
            let kinds = kinds.contains(&RowKind::Delete).then(|| RowKinds::new(kinds));
            out.batch(StreamBatch { rows, kinds, running: None, arrived });
        }
        Ok(())
    }
}

/// Of each row of a batch when nothing can join it any more.
fn over_times(horizon: Horizon, rows: &RecordBatch) -> Result<Vec<i64>, Error> {
    let (times, nulls) = event_times(rows.column(horizon.time))?;
    let mut over: Vec<i64> = times.iter().map(|time| time.saturating_add(horizon.behind_us)).collect();
    if let Some(nulls) = nulls {
        over.iter_mut().zip(&nulls).filter(|(_, valid)| !valid).for_each(|(over, _)| *over = i64::MIN);
    }
    Ok(over)
}

impl Side {
    /// Whether a row of a batch is equal to none of the other input.
    fn alone(&self, rows: &RecordBatch, null_is_equal: bool) -> impl Fn(usize) -> bool + use<> {
        let keys = self.key_columns.iter().filter(|_| !null_is_equal);
        let nulls: Vec<_> = keys.filter_map(|key| rows.column(*key).logical_nulls()).collect();
        move |row| nulls.iter().any(|nulls| nulls.is_null(row))
    }

    /// The slot of a row: the one that it has got or, where it goes, that of an equal one.
    fn identify(&mut self, rows: Option<&KeyRows>, row: usize, slot: Option<u32>) -> Option<u32> {
        let (Some(identities), Some(rows)) = (&mut self.identities, rows) else {
            return slot;
        };
        let number = identities.numbers.number(rows, row);
        let slots = identities.numbers.bound().max(identities.slots.len());
        identities.slots.resize_with(slots, Vec::new);
        let equal = &mut identities.slots[number as usize];
        match slot {
            Some(slot) => {
                equal.push(slot);
                self.rows[slot as usize].identity = number;
                Some(slot)
            }
            None => {
                let slot = equal.pop();
                if equal.is_empty() {
                    identities.numbers.release(number);
                }
                if let (Some(slot), Some(expiry)) = (slot, &mut self.expiry) {
                    expiry.forget(slot);
                }
                slot
            }
        }
    }
}

impl Operator for RegularJoin {
    fn name(&self) -> &'static str {
        "Join"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(0, &batch, out)
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(1, &batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        for input in 0..2 {
            let expiry = self.sides[input].expiry.as_mut();
            let over = expiry.map_or_else(Vec::new, |expiry| expiry.at_watermark(watermark.0));
            self.expire(input, over);
            self.prune(input, watermark.0);
        }
        out.watermark(watermark);
        Ok(())
    }

    fn is_at_work(&self) -> bool {
        self.work.is_some()
    }

    fn go_on(&mut self, out: &mut Output) -> Result<(), Error> {
        self.join_some(out)
    }

    fn next_timer(&self) -> Option<i64> {
        self.sides.iter().filter_map(|side| side.expiry.as_ref()?.next_timer()).min()
    }

    fn process_timer(&mut self, now_us: i64, _out: &mut Output) -> Result<(), Error> {
        for input in 0..2 {
            let expiry = self.sides[input].expiry.as_mut();
            let over = expiry.map_or_else(Vec::new, |expiry| expiry.at_timer(now_us));
            self.expire(input, over);
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

    fn spill(&mut self, wanted: usize, store: &dyn SpillStore) -> Result<usize, Error> {
        put_away_of_two(self.sides.each_mut().map(|side| &mut side.store), wanted, store)
    }

    fn spilled(&self) -> u64 {
        self.sides.iter().map(|side| side.store.spilled()).sum()
    }

    fn state(&self) -> StateSize {
        let side = |side: &Side| {
            let identities = side.identities.as_ref().map_or(0, |identities| {
                identities.numbers.size() + identities.slots.capacity() * size_of::<Vec<u32>>()
            });
            let later = side.later.as_ref().map_or(0, Later::size);
            let kept = side.rows.capacity() * size_of::<Kept>();
            side.store.size() + kept + identities + later + side.over.size()
        };
        let several: usize = self.groups.iter().flatten().map(Slots::size).sum();
        let groups = self.groups.capacity() * size_of::<[Slots; 2]>() + several;
        StateSize {
            windows: 0,
            rows: self.sides.iter().map(|side| side.store.len()).sum(),
            bytes: self.sides.iter().map(side).sum::<usize>() + self.numbers.size() + groups,
        }
    }
}

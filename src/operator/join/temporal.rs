//! Rows with the version of another table that was valid at their time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, BooleanArray, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

mod state;

use super::padding::side_by_side;
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate_condition};
use crate::operator::keys::{KeyFormat, KeyNumbers};
use crate::operator::late::{LateRows, Missed, Rejected};
use crate::operator::store::{RowStore, rows_of_batch};
use crate::operator::{Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::plan::{ExprRef, JoinKind, TemporalJoinNode};
use crate::stream::{RunningWatermark, StreamBatch, TimeUnit, Watermark, event_times};

/// Joins each row of the first input with the row of the second one of its key with the greatest time
/// that is not after its own; of equal times the one that came last.
///
/// Wakes on: watermarks. State: the rows of both inputs that the watermark has not passed, and of each key
/// the last version that it has. Order: by the time of the first input's rows. Rows behind the watermark are
/// taken as long as they can still have their place: a row is late if the version that it needs
/// may be gone, a version if a row at or after its time has been given with another one. What has been given is
/// told from the running watermarks alone: rows are judged in the order of those, once the watermark has passed them.
///
/// Source: Flink's event-time temporal join.
pub(in crate::operator) struct TemporalJoin {
    kind: JoinKind,
    unit: TimeUnit,
    sides: [Side; 2],
    condition: Option<ExprRef>,
    pair: SchemaRef,
    schema: SchemaRef,
    numbers: KeyNumbers,
    keys: Vec<Key>,
    /// Rows that the watermark has not passed: by time, versions first, arrival.
    waiting: BTreeMap<(i64, Phase, u64), Waiting>,
    next_row: u64,
    /// Rows that are not judged yet, and their batches.
    came: Vec<Came>,
    batches: Vec<StreamBatch>,
    watermark: i64,
    arrived: Option<Instant>,
    found: Vec<Found>,
    /// Slots of versions that are no longer valid, but may be in `found`.
    replaced: Vec<u32>,
    late: Option<[LateRows; 2]>,
}

struct Side {
    time: usize,
    keys: KeyFormat,
    key_columns: Vec<usize>,
    store: RowStore,
}

#[derive(Debug, Clone, Copy, Default)]
struct Key {
    /// The slot of the version that is valid at the watermark.
    version: Option<u32>,
    /// When it became valid.
    valid_from: Option<i64>,
    /// There was an earlier version, which is gone.
    has_history: bool,
    /// The greatest time of the rows that were given with a version.
    given: Option<i64>,
    /// Rows that have not been given or become valid.
    waiting: u32,
}

/// A row that is not judged yet.
struct Came {
    running: i64,
    input: usize,
    batch: usize,
    row: u32,
    time: i64,
    key: u32,
    slot: u32,
}

/// A row that waits for the watermark.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    slot: u32,
    key: u32,
    /// The watermark just before it.
    running: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Version,
    Row,
}

/// A row whose time has come, and the version that was valid then.
struct Found {
    /// The watermark just before it in the output.
    running: i64,
    slot: u32,
    version: Option<u32>,
}

/// The key of rows that nothing is equal to.
const ALONE: u32 = u32::MAX;

impl Phase {
    fn of(input: usize) -> Self {
        if input == 1 { Self::Version } else { Self::Row }
    }

    fn input(self) -> usize {
        usize::from(self == Self::Version)
    }
}

impl TemporalJoin {
    pub(in crate::operator) fn try_new(
        node: &TemporalJoinNode,
        schema: &SchemaRef,
        late: Option<[LateRows; 2]>,
    ) -> Result<Self, Error> {
        let (first, second) = node.pair.fields().split_at(node.first_width);
        let side = |input: usize, fields: &[Arc<Field>]| -> Result<Side, Error> {
            let schema = Arc::new(Schema::new(fields.to_vec()));
            Ok(Side {
                time: node.times[input],
                keys: KeyFormat::try_new(&node.keys[input], &schema)?,
                key_columns: node.keys[input].clone(),
                store: RowStore::new(&schema),
            })
        };
        Ok(Self {
            kind: node.kind,
            unit: node.unit,
            sides: [side(0, first)?, side(1, second)?],
            condition: node.condition.clone(),
            pair: Arc::clone(&node.pair),
            schema: Arc::clone(schema),
            numbers: KeyNumbers::default(),
            keys: Vec::new(),
            waiting: BTreeMap::new(),
            next_row: 0,
            came: Vec::new(),
            batches: Vec::new(),
            watermark: i64::MIN,
            arrived: None,
            found: Vec::new(),
            replaced: Vec::new(),
            late,
        })
    }

    fn take(&mut self, input: usize, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("TemporalJoin", "the input is no stream of inserts"));
        }
        let side = &mut self.sides[input];
        let (times, nulls) = event_times(batch.rows.column(side.time))?;
        let keys = side.keys.rows(&batch.rows)?;
        let key_nulls: Vec<_> =
            side.key_columns.iter().filter_map(|key| batch.rows.column(*key).logical_nulls()).collect();
        let mut rejected = Vec::new();
        let (mut kept, first) = (Vec::new(), self.came.len());
        for (row, time) in times.iter().copied().enumerate() {
            let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
            let running = running.max(self.watermark);
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                out.counts.null_time += 1;
                rejected.push(Rejected::without_time(row, running));
                continue;
            }
            let is_alone = key_nulls.iter().any(|nulls| nulls.is_null(row));
            if is_alone && (input == 1 || !self.kind.keeps_first()) {
                out.counts.filtered += 1;
                continue;
            }
            let key = if is_alone { ALONE } else { self.numbers.number(&keys, row) };
            if key != ALONE {
                self.keys.resize(self.numbers.bound(), Key::default());
                self.keys[key as usize].waiting += 1;
            }
            kept.push(row as u32);
            let (batch, row) = (self.batches.len(), row as u32);
            self.came.push(Came { running, input, batch, row, time, key, slot: 0 });
        }
        if let Some(late) = &self.late {
            late[input].give(batch, &rejected, out)?;
        }
        if kept.is_empty() {
            return Ok(());
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        out.counts.held += kept.len() as u64;
        let rows = match kept.len() == batch.num_rows() {
            true => batch.rows.clone(),
            false => take_record_batch(&batch.rows, &UInt32Array::from(kept))
                .map_err(|error| arrow_failure(&error))?,
        };
        for (came, slot) in self.came[first..].iter_mut().zip(side.store.add(rows)?) {
            came.slot = slot;
        }
        self.batches.push(batch.clone());
        Ok(())
    }

    /// Judges the rows that came before the watermark was there, in their true order. Those with the
    /// same watermark before them may not all have come yet.
    fn judge(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let mut came = std::mem::take(&mut self.came);
        came.sort_by_key(|came| (came.running, came.input));
        let left = came.split_off(came.partition_point(|came| came.running < watermark));
        let batches = std::mem::take(&mut self.batches);
        let mut rejected: Vec<Vec<Rejected>> = batches.iter().map(|_| Vec::new()).collect();
        let mut inputs = vec![0; batches.len()];
        self.keep(left, &batches);
        for row in came {
            self.advance(row.running, out)?;
            inputs[row.batch] = row.input;
            let known = self.keys.get(row.key as usize).copied().unwrap_or_default();
            let missed = match row.input {
                0 => known.valid_from.filter(|valid_from| known.has_history && row.time < *valid_from),
                _ => known.given.filter(|given| row.time <= *given),
            };
            let Some(missed) = missed else {
                let waiting = Waiting { slot: row.slot, key: row.key, running: row.running };
                self.waiting.insert((row.time, Phase::of(row.input), self.next_row), waiting);
                self.next_row += 1;
                continue;
            };
            out.counts.held -= 1;
            out.counts.late += 1;
            let late = Missed { window: None, by_us: missed.saturating_sub(row.time) };
            rejected[row.batch].push(Rejected { row: row.row, watermark: row.running, late: Some(late) });
            self.sides[row.input].store.release(row.slot);
            self.leave(row.key);
        }
        let Some(late) = &self.late else { return Ok(()) };
        for ((batch, rejected), input) in batches.iter().zip(&rejected).zip(inputs) {
            if !rejected.is_empty() {
                late[input].give(batch, rejected, out)?;
            }
        }
        Ok(())
    }

    /// Leaves rows, with those of the batches that they are from, for another watermark.
    fn keep(&mut self, mut left: Vec<Came>, batches: &[StreamBatch]) {
        let mut numbers = vec![None; batches.len()];
        for row in &mut left {
            let number = numbers[row.batch].get_or_insert_with(|| {
                self.batches.push(batches[row.batch].clone());
                self.batches.len() - 1
            });
            row.batch = *number;
        }
        self.came = left;
    }

    /// One row of a key waits no longer; a key without a version that nobody waits for is forgotten.
    fn leave(&mut self, key: u32) {
        let Some(known) = self.keys.get_mut(key as usize) else { return };
        known.waiting -= 1;
        if known.waiting == 0 && known.version.is_none() {
            *known = Key::default();
            self.numbers.release(key);
        }
    }

    /// Brings event time to `watermark`: at each time first the versions, then the rows.
    fn advance(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let most_pairs = rows_of_batch([&self.sides[0].store, &self.sides[1].store]);
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= watermark) {
            let ((time, phase, _), Waiting { slot, key, running }) = first.remove_entry();
            let known = self.keys.get_mut(key as usize);
            match (phase, known) {
                (Phase::Version, Some(known)) => {
                    out.counts.held -= 1;
                    out.counts.used += 1;
                    // One that came late may have been replaced already.
                    if known.valid_from.is_none_or(|valid_from| valid_from <= time) {
                        let replaced = known.version.replace(slot);
                        known.has_history |= replaced.is_some();
                        self.replaced.extend(replaced);
                        known.valid_from = Some(time);
                    } else {
                        known.has_history = true;
                        self.replaced.push(slot);
                    }
                }
                (Phase::Version, None) => return Err(Error::internal("TemporalJoin", "a version of no key")),
                (Phase::Row, known) => {
                    let is_valid = |known: &Key| known.valid_from.is_some_and(|from| from <= time);
                    let version = known.as_deref().copied().filter(is_valid).and_then(|known| known.version);
                    if let Some(known) = known.filter(|_| version.is_some()) {
                        known.given = known.given.max(Some(time));
                    }
                    let running = running.max(time.saturating_sub(self.unit.us()));
                    self.found.push(Found { running, slot, version });
                }
            }
            self.leave(key);
            if self.found.len() >= most_pairs {
                self.flush(out)?;
            }
        }
        Ok(())
    }

    /// Gives what was found.
    fn flush(&mut self, out: &mut Output) -> Result<(), Error> {
        let mut found = std::mem::take(&mut self.found);
        self.check_conditions(&mut found)?;
        let all = found.len() as u64;
        let slots: Vec<u32> = found.iter().map(|one| one.slot).collect();
        found.retain(|one| one.version.is_some() || self.kind.keeps_first());
        out.counts.held -= all;
        out.counts.used += found.len() as u64;
        out.counts.filtered += all - found.len() as u64;
        if let Some(arrived) = self.arrived.filter(|_| !found.is_empty()) {
            let stores = [&self.sides[0].store, &self.sides[1].store];
            let rows: Vec<[Option<u32>; 2]> = found.iter().map(|one| [Some(one.slot), one.version]).collect();
            let rows = side_by_side(stores, &rows, self.kind, &self.schema)?;
            let running: Vec<i64> = found.iter().map(|one| one.running).collect();
            let running = Some(RunningWatermark::new(running));
            out.batch(StreamBatch { rows, kinds: None, running, arrived });
        }
        slots.into_iter().for_each(|slot| self.sides[0].store.release(slot));
        for slot in self.replaced.drain(..) {
            self.sides[1].store.release(slot);
        }
        Ok(())
    }

    /// Takes versions away that do not meet the condition.
    fn check_conditions(&self, found: &mut [Found]) -> Result<(), Error> {
        let Some(condition) = &self.condition else { return Ok(()) };
        let pairs = found.iter().filter_map(|one| Some((one.slot, one.version?)));
        let (first, second): (Vec<u32>, Vec<u32>) = pairs.unzip();
        if first.is_empty() {
            return Ok(());
        }
        let mut columns = self.sides[0].store.gather(&first)?.columns().to_vec();
        columns.extend_from_slice(self.sides[1].store.gather(&second)?.columns());
        let options = RecordBatchOptions::new().with_row_count(Some(first.len()));
        let pairs = RecordBatch::try_new_with_options(Arc::clone(&self.pair), columns, &options)
            .map_err(|error| Error::internal("TemporalJoin", error))?;
        let met: BooleanArray = evaluate_condition(condition, &pairs)?;
        let mut met = met.values().iter();
        for one in found.iter_mut().filter(|one| one.version.is_some()) {
            if !met.next().unwrap_or(true) {
                one.version = None;
            }
        }
        Ok(())
    }
}

impl Operator for TemporalJoin {
    fn name(&self) -> &'static str {
        "TemporalJoin"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(0, &batch, out)
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(1, &batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.judge(watermark.0, out)?;
        self.advance(watermark.0, out)?;
        self.flush(out)?;
        self.watermark = self.watermark.max(watermark.0);
        out.watermark(watermark);
        Ok(())
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        self.write(state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.read(state, counts)
    }

    fn state(&self) -> StateSize {
        StateSize {
            windows: self.numbers.len(),
            rows: self.sides.iter().map(|side| side.store.len()).sum(),
            bytes: self.sides.iter().map(|side| side.store.size()).sum::<usize>() + self.numbers.size(),
        }
    }
}

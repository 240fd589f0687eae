//! When state of a key that is not written any more is forgotten: `SET 'state.ttl'`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::datatypes::{Int64Type, UInt32Type};

use super::state::misfit;
use super::{StateReader, StateWriter};
use crate::error::Error;
use crate::plan::{StateTtl, TtlClock};
use crate::stream::{StreamBatch, event_times};

/// Remembers when keys were last written.
///
/// By event time a key is over when the watermark has passed the time of its last row by the time to live;
/// "now" is the watermark just before a row, so what is forgotten is a function of the rows. By the clock it is what the last timer said; keys that were written since then are stamped by
/// the next one, which is asked for at once.
pub(super) struct Expiry {
    ttl: StateTtl,
    /// By key: when it was last written; `UNKNOWN`: never, or it is forgotten.
    written: Vec<i64>,
    /// By key: whether it is in `due`.
    is_queued: Vec<bool>,
    due: BinaryHeap<Reverse<(i64, u32)>>,
    /// Written since the last timer.
    fresh: Vec<u32>,
}

const UNKNOWN: i64 = i64::MIN;

impl Expiry {
    pub(super) fn new(ttl: StateTtl) -> Self {
        let (written, is_queued) = (Vec::new(), Vec::new());
        Self { ttl, written, is_queued, due: BinaryHeap::new(), fresh: Vec::new() }
    }

    fn is_by_clock(&self) -> bool {
        self.ttl.by == TtlClock::Clock
    }

    /// Whether a key is to be forgotten before a row with this running watermark is used.
    pub(super) fn is_over(&self, key: u32, running: i64) -> bool {
        let written = self.written.get(key as usize).copied().unwrap_or(UNKNOWN);
        !self.is_by_clock() && written != UNKNOWN && self.is_past(written, running)
    }

    fn is_past(&self, written: i64, now: i64) -> bool {
        written.saturating_add(self.ttl.us) <= now
    }

    /// A key was written by a row of this time, see [`written_at`].
    pub(super) fn write(&mut self, key: u32, time: i64) {
        let index = key as usize;
        if self.written.len() <= index {
            self.written.resize(index + 1, UNKNOWN);
            self.is_queued.resize(index + 1, false);
        }
        if self.is_by_clock() {
            self.fresh.push(key);
            return;
        }
        self.written[index] = self.written[index].max(time);
        // A row before the first watermark, whose time is not known, is never too old.
        if self.written[index] != UNKNOWN {
            self.queue(key);
        }
    }

    fn queue(&mut self, key: u32) {
        let index = key as usize;
        if !self.is_queued[index] {
            self.is_queued[index] = true;
            self.due.push(Reverse((self.written[index].saturating_add(self.ttl.us), key)));
        }
    }

    /// A key is gone.
    pub(super) fn forget(&mut self, key: u32) {
        if let Some(written) = self.written.get_mut(key as usize) {
            *written = UNKNOWN;
        }
    }

    /// Event time has come to a watermark: the keys that are over.
    pub(super) fn at_watermark(&mut self, watermark: i64) -> Vec<u32> {
        if self.is_by_clock() { Vec::new() } else { self.over(watermark) }
    }

    /// Processing time has come to `now_us`: the keys that are over.
    pub(super) fn at_timer(&mut self, now_us: i64) -> Vec<u32> {
        for key in std::mem::take(&mut self.fresh) {
            self.written[key as usize] = now_us;
            self.queue(key);
        }
        self.over(now_us)
    }

    /// When the next timer is wanted.
    pub(super) fn next_timer(&self) -> Option<i64> {
        if !self.is_by_clock() {
            return None;
        }
        if !self.fresh.is_empty() {
            return Some(UNKNOWN);
        }
        self.due.peek().map(|Reverse((due, _))| *due)
    }

    fn over(&mut self, now: i64) -> Vec<u32> {
        let mut over = Vec::new();
        while let Some(Reverse((due, key))) = self.due.peek().copied() {
            if due > now {
                break;
            }
            self.due.pop();
            self.is_queued[key as usize] = false;
            let written = self.written[key as usize];
            if written == UNKNOWN {
                continue;
            }
            if self.is_past(written, now) {
                self.written[key as usize] = UNKNOWN;
                over.push(key);
            } else {
                self.queue(key);
            }
        }
        over.sort_unstable();
        over
    }

    /// When a key was last written; `i64::MIN`: never, or it is not known.
    pub(super) fn written(&self, key: u32) -> i64 {
        self.written.get(key as usize).copied().unwrap_or(UNKNOWN)
    }

    /// Hands on when these keys, the rows of a table that was kept before, were written. Nothing of other keys is
    /// known afterwards.
    pub(super) fn snapshot(
        &mut self,
        table: &str,
        keys: &[u32],
        state: &mut StateWriter,
    ) -> Result<(), Error> {
        let mut places = vec![None; self.written.len()];
        for (place, key) in keys.iter().enumerate() {
            if let Some(known) = places.get_mut(*key as usize) {
                *known = Some(place);
            }
        }
        self.fresh.retain(|key| places[*key as usize].is_some());
        let (is_queued, mut due) = (&mut self.is_queued, vec![None; keys.len()]);
        self.due.retain(|Reverse((time, key))| {
            match places[*key as usize] {
                Some(place) => due[place] = Some(*time),
                None => is_queued[*key as usize] = false,
            }
            places[*key as usize].is_some()
        });
        let mut is_fresh = vec![false; keys.len()];
        self.fresh.iter().filter_map(|key| places[*key as usize]).for_each(|place| is_fresh[place] = true);
        let written = |key: &u32| self.written.get(*key as usize).copied().filter(|time| *time != UNKNOWN);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(0..keys.len() as u32)),
            Arc::new(keys.iter().map(written).collect::<Int64Array>()),
            Arc::new(Int64Array::from(due)),
            Arc::new(BooleanArray::from(is_fresh)),
        ];
        state.columns_of(table, "written", columns)
    }

    /// Takes up what [`Expiry::snapshot`] handed on. `keys`: those of the rows of the table.
    pub(super) fn restore(&mut self, keys: &[u32], state: &StateReader) -> Result<(), Error> {
        let lacks = || misfit("nobody knows when keys were written");
        let columns = state.columns("written")?.ok_or_else(lacks)?;
        let [places, written, due, is_fresh] = columns.as_slice() else { return Err(lacks()) };
        let places = places.as_primitive_opt::<UInt32Type>().ok_or_else(lacks)?;
        let written = written.as_primitive_opt::<Int64Type>().ok_or_else(lacks)?;
        let due = due.as_primitive_opt::<Int64Type>().ok_or_else(lacks)?;
        let is_fresh = is_fresh.as_boolean_opt().ok_or_else(lacks)?;
        let shift = if self.is_by_clock() { state.clock_shift_us() } else { 0 };
        let bound = keys.iter().max().map_or(0, |most| *most as usize + 1);
        self.written.resize(bound, UNKNOWN);
        self.is_queued.resize(bound, false);
        for row in 0..places.len() {
            let key = *keys.get(places.value(row) as usize).ok_or_else(lacks)?;
            if written.is_valid(row) {
                self.written[key as usize] = written.value(row).saturating_add(shift);
            }
            if due.is_valid(row) {
                self.is_queued[key as usize] = true;
                self.due.push(Reverse((due.value(row).saturating_add(shift), key)));
            }
            if is_fresh.value(row) {
                self.fresh.push(key);
            }
        }
        Ok(())
    }

    /// Memory in bytes, estimated.
    pub(super) fn size(&self) -> usize {
        self.written.capacity() * 9 + self.due.capacity() * 16 + self.fresh.capacity() * 4
    }
}

/// When each row of a batch writes its key, as [`Expiry::write`] takes it: its event time; the watermark before
/// it where it has none or that is later. Without a time to live, or by the clock, nothing.
pub(super) fn written_at(ttl: Option<StateTtl>, batch: &StreamBatch) -> Result<Vec<i64>, Error> {
    let Some(StateTtl { by: TtlClock::EventTime { time }, .. }) = ttl else { return Ok(Vec::new()) };
    let running = |row: usize| batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
    let Some(time) = time else { return Ok((0..batch.num_rows()).map(running).collect()) };
    let (times, nulls) = event_times(batch.rows.column(time))?;
    let at = |row: usize| match nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
        true => running(row),
        false => times[row].max(running(row)),
    };
    Ok((0..batch.num_rows()).map(at).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_event_time_a_key_goes_when_the_watermark_has_passed_its_last_row_by_the_ttl() {
        let mut expiry = Expiry::new(StateTtl { us: 10, by: TtlClock::EventTime { time: None } });
        expiry.write(0, -2);
        expiry.write(1, 5);
        expiry.write(1, 3);
        expiry.write(2, i64::MIN);
        assert!(!expiry.is_over(2, 1_000));
        assert!(!expiry.is_over(1, 14));
        assert!(expiry.is_over(1, 15));
        assert_eq!(expiry.at_watermark(8), [0]);
        expiry.write(1, 9);
        assert_eq!(expiry.at_watermark(18), Vec::<u32>::new());
        assert_eq!(expiry.at_watermark(19), [1]);
        assert!(!expiry.is_over(1, 100), "a key that is forgotten is not over once more");
        assert_eq!((expiry.next_timer(), expiry.due.len()), (None, 0));
    }

    #[test]
    fn by_the_clock_a_key_is_stamped_by_the_next_timer() {
        let mut expiry = Expiry::new(StateTtl { us: 10, by: TtlClock::Clock });
        expiry.write(3, 0);
        assert_eq!(expiry.next_timer(), Some(i64::MIN), "at once");
        assert_eq!(expiry.at_timer(100), Vec::<u32>::new());
        assert_eq!(expiry.next_timer(), Some(110));
        assert!(!expiry.is_over(3, 1_000), "a watermark is no clock");
        expiry.write(3, 0);
        assert_eq!(expiry.at_timer(105), Vec::<u32>::new());
        assert_eq!(expiry.at_timer(110), Vec::<u32>::new());
        assert_eq!(expiry.at_timer(115), [3]);
        assert_eq!(expiry.next_timer(), None);
    }

    /// What one of these keeps of its keys, in another one, whose clock is 1,000 µs on.
    fn restored(mut expiry: Expiry, keys: &[u32], again: &[u32]) -> Expiry {
        let mut state = StateWriter::default();
        state.columns("groups", vec![Arc::new(UInt32Array::from(keys.to_vec()))], &[]).unwrap();
        expiry.snapshot("groups", keys, &mut state).unwrap();
        let mut restored = Expiry::new(expiry.ttl);
        restored.restore(again, &StateReader::same(state.finish(), 1_000)).unwrap();
        restored
    }

    #[test]
    fn times_are_kept_and_those_of_keys_that_are_gone_are_not() {
        let mut expiry = Expiry::new(StateTtl { us: 10, by: TtlClock::EventTime { time: None } });
        expiry.write(0, 1);
        expiry.write(1, 5);
        expiry.write(1, 7);
        expiry.write(2, 6);
        expiry.forget(0);
        let mut restored = restored(expiry, &[1, 2], &[4, 3]);
        assert_eq!(restored.due.len(), 2);
        assert_eq!(restored.at_watermark(15), Vec::<u32>::new());
        assert_eq!(restored.at_watermark(16), [3]);
        assert_eq!(restored.at_watermark(17), [4], "event time is no clock");
    }

    #[test]
    fn moments_of_the_clock_move_with_it() {
        let mut expiry = Expiry::new(StateTtl { us: 10, by: TtlClock::Clock });
        expiry.write(0, 0);
        expiry.at_timer(100);
        assert_eq!(expiry.next_timer(), Some(110));
        let mut before = restored(expiry, &[0], &[2]);
        assert_eq!(before.next_timer(), Some(1_110));
        before.write(1, 0);
        let mut after = restored(before, &[2, 1], &[0, 1]);
        assert_eq!(after.next_timer(), Some(i64::MIN), "one waits for its stamp");
        assert_eq!(after.at_timer(2_109), Vec::<u32>::new());
        assert_eq!(after.at_timer(2_110), [0]);
        assert_eq!(after.next_timer(), Some(2_119));
    }
}

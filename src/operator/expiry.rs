//! When state of a key that is not written any more is forgotten: `SET 'state.ttl'`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

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
}

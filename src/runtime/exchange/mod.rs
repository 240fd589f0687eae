//! Where a task's output goes: to nobody, to one task, or spread over several by key.
//!
//! What goes to several tasks, or to one from several, is [held] back until pieces of some size are together. It goes on with all that came
//! before it, in order; when, is no part of any result.

mod held;
#[cfg(test)]
mod tests;

use arrow::array::{RecordBatchOptions, UInt32Array};
use arrow::compute::take_arrays;
use arrow::record_batch::RecordBatch;

use self::held::Held;
pub(super) use self::held::Pace;
use super::channel::{ChannelProbe, Sender};
use crate::error::Error;
use crate::operator::spread::{hash_keys, subtask_of};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement};

/// The outputs of a task.
pub(super) struct Outputs {
    senders: Vec<Sender>,
    /// What they have not been given yet, where anything is held back.
    held: Option<Box<Held>>,
    /// Picks the channel that a marker takes; seeded, so that a run can be repeated.
    marker_state: u64,
}

impl Outputs {
    /// No output: the task ends in a sink.
    pub(super) fn none() -> Self {
        Self { senders: Vec::new(), held: None, marker_state: 0 }
    }

    /// Everything to one task.
    pub(super) fn single(sender: Sender) -> Self {
        Self { senders: vec![sender], ..Self::none() }
    }

    /// Everything to one task to which others give, too.
    pub(super) fn one_of(sender: Sender, pace: Pace) -> Self {
        Self { senders: vec![sender], held: Some(Box::new(Held::new(pace, Vec::new(), 1))), marker_state: 1 }
    }

    /// Rows by the hash of `keys`; everything else, but for markers, to all.
    pub(super) fn hash(senders: Vec<Sender>, keys: Vec<usize>, pace: Pace, seed: u64) -> Self {
        let held = (senders.len() > 1).then(|| Box::new(Held::new(pace, keys, senders.len())));
        Self { senders, held, marker_state: seed | 1 }
    }

    pub(super) fn probes(&self) -> Vec<ChannelProbe> {
        self.senders.iter().map(Sender::probe).collect()
    }

    /// Whether all receivers keep up.
    pub(super) fn have_room(&self) -> bool {
        self.senders.iter().all(Sender::has_room)
    }

    /// Whether anybody still listens; true where there is nobody to listen.
    pub(super) fn are_open(&self) -> bool {
        self.senders.is_empty() || self.senders.iter().any(Sender::is_open)
    }

    /// Takes an element; never waits. It is given to those who listen at once, or held back for a while.
    pub(super) fn send(&mut self, element: StreamElement) -> Result<(), Error> {
        let picked = match &element {
            StreamElement::Latency(_) if self.held.is_some() => {
                self.next_random() as usize % self.senders.len()
            }
            _ => 0,
        };
        let Some(held) = &mut self.held else {
            // There is one at most.
            self.senders.iter().for_each(|sender| sender.send(element.clone()));
            return Ok(());
        };
        match element {
            StreamElement::Batch(batch) => {
                // It had waited for a watermark, and none came.
                if held.is_enough() {
                    self.hand_on()?;
                }
                let Some(held) = &mut self.held else { return Ok(()) };
                held.add_rows(batch);
                match held.is_enough() && !held.waits_for_watermark() {
                    true => self.hand_on(),
                    false => Ok(()),
                }
            }
            StreamElement::Watermark(watermark) => {
                held.add_watermark(watermark);
                if held.is_enough() { self.hand_on() } else { Ok(()) }
            }
            StreamElement::Latency(marker) => {
                held.add_marker(picked, marker);
                Ok(())
            }
            element @ (StreamElement::Status(_) | StreamElement::End) => {
                self.hand_on()?;
                self.senders.iter().for_each(|sender| sender.send(element.clone()));
                Ok(())
            }
        }
    }

    /// Whether something is held back.
    pub(super) fn hold_back(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.is_empty())
    }

    /// When something has been held back for long enough, microseconds of the job's clock.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.held.as_deref().and_then(Held::due_us)
    }

    /// Gives what has been held back for long enough. `is_at_rest`: the task has nothing else to do.
    pub(super) fn hand_on_due(&mut self, is_at_rest: bool) -> Result<(), Error> {
        match self.held.as_ref().is_some_and(|held| held.is_due(is_at_rest)) {
            true => self.hand_on(),
            false => Ok(()),
        }
    }

    /// Gives what is held back.
    pub(super) fn hand_on(&mut self) -> Result<(), Error> {
        let Self { senders, held: Some(held), .. } = self else { return Ok(()) };
        held.hand_on(|target, share, since| senders[target].send_all(share, since))
    }

    fn next_random(&mut self) -> u64 {
        self.marker_state ^= self.marker_state << 13;
        self.marker_state ^= self.marker_state >> 7;
        self.marker_state ^= self.marker_state << 17;
        self.marker_state
    }
}

/// Gives the rows of each of so many subtasks, where there are any. `hashes` is scratch space.
pub(super) fn spread(
    batch: &StreamBatch,
    keys: &[usize],
    count: usize,
    hashes: &mut Vec<u64>,
    mut give: impl FnMut(usize, StreamBatch),
) -> Result<(), Error> {
    let fault = |error| Error::internal("exchange", error);
    let rows = batch.num_rows();
    let columns: Vec<_> = keys.iter().map(|key| batch.rows.column(*key).clone()).collect();
    hash_keys(&columns, rows, hashes)?;
    let mut parts: Vec<Vec<u32>> = (0..count).map(|_| Vec::with_capacity(rows / count + 1)).collect();
    for (row, hash) in hashes.iter().enumerate() {
        parts[subtask_of(*hash, count)].push(row as u32);
    }
    for (target, part) in parts.into_iter().enumerate() {
        if part.is_empty() {
            continue;
        }
        if part.len() == rows {
            give(target, batch.clone());
            continue;
        }
        let part = UInt32Array::from(part);
        let columns = take_arrays(batch.rows.columns(), &part, None).map_err(fault)?;
        let options = RecordBatchOptions::new().with_row_count(Some(part.len()));
        let rows =
            RecordBatch::try_new_with_options(batch.rows.schema(), columns, &options).map_err(fault)?;
        let pick = |row: &u32| *row as usize;
        let kinds = batch.kinds.as_ref().map(RowKinds::values);
        let running = batch.running.as_ref().map(|running| {
            let values = part.values().iter().map(|row| running.values()[pick(row)]);
            RunningWatermark::new(values.collect::<Vec<i64>>())
        });
        let kinds = kinds
            .map(|kinds| RowKinds::new(kinds_of(part.values(), |row| kinds[row as usize], |row| row + 1)));
        give(target, StreamBatch { rows, kinds, running, arrived: batch.arrived });
    }
    Ok(())
}

/// The kinds of some rows, ascending: where the halves of an update part, one deletes, one inserts. `next`: the row behind one.
fn kinds_of<R: Copy + PartialEq>(
    rows: &[R],
    kind: impl Fn(R) -> RowKind,
    next: impl Fn(R) -> R,
) -> Vec<RowKind> {
    let kind = |(place, row): (usize, &R)| match kind(*row) {
        RowKind::UpdateBefore if rows.get(place + 1) != Some(&next(*row)) => RowKind::Delete,
        RowKind::UpdateAfter if place == 0 || next(rows[place - 1]) != *row => RowKind::Insert,
        kind => kind,
    };
    rows.iter().enumerate().map(kind).collect()
}

//! Where a task's output goes: to nobody, to one task, or spread over several by key.

use arrow::array::{RecordBatchOptions, UInt32Array};
use arrow::compute::take_arrays;
use arrow::record_batch::RecordBatch;

use super::channel::{ChannelProbe, Sender};
use crate::error::Error;
use crate::operator::spread::{hash_keys, subtask_of};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement};

/// The outputs of a task.
pub(super) struct Outputs {
    senders: Vec<Sender>,
    /// Columns whose hash picks the sender; `None`: there is one sender.
    keys: Option<Vec<usize>>,
    hashes: Vec<u64>,
    /// Picks the channel that a marker takes; seeded, so that a run can be repeated.
    marker_state: u64,
}

impl Outputs {
    /// No output: the task ends in a sink.
    pub(super) fn none() -> Self {
        Self { senders: Vec::new(), keys: None, hashes: Vec::new(), marker_state: 0 }
    }

    /// Everything to one task.
    pub(super) fn single(sender: Sender) -> Self {
        Self { senders: vec![sender], ..Self::none() }
    }

    /// Rows by the hash of `keys`; everything else, but for markers, to all.
    pub(super) fn hash(senders: Vec<Sender>, keys: Vec<usize>, seed: u64) -> Self {
        Self { senders, keys: Some(keys), hashes: Vec::new(), marker_state: seed | 1 }
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

    /// Hands on an element; never waits.
    pub(super) fn send(&mut self, element: StreamElement) -> Result<(), Error> {
        match element {
            StreamElement::Batch(batch) if self.senders.len() > 1 => self.spread(&batch),
            StreamElement::Latency(marker) if self.senders.len() > 1 => {
                let picked = self.next_random() as usize % self.senders.len();
                self.senders[picked].send(StreamElement::Latency(marker));
                Ok(())
            }
            element => {
                for sender in &self.senders {
                    sender.send(element.clone());
                }
                Ok(())
            }
        }
    }

    fn spread(&mut self, batch: &StreamBatch) -> Result<(), Error> {
        let keys = self.keys.as_deref().unwrap_or(&[]);
        spread(batch, keys, self.senders.len(), &mut self.hashes, |target, part| {
            self.senders[target].send(StreamElement::Batch(part));
        })
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
    let mut parts: Vec<Vec<u32>> = vec![Vec::with_capacity(rows / count + 1); count];
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
        let kinds = batch.kinds.as_ref();
        let running = batch.running.as_ref().map(|running| {
            let values = part.values().iter().map(|row| running.values()[pick(row)]);
            RunningWatermark::new(values.collect::<Vec<i64>>())
        });
        give(
            target,
            StreamBatch {
                rows,
                kinds: kinds.map(|kinds| RowKinds::new(kinds_of(kinds.values(), part.values()))),
                running,
                arrived: batch.arrived,
            },
        );
    }
    Ok(())
}

/// The kinds of some rows, ascending: where the halves of an update part, one deletes, one inserts.
fn kinds_of(kinds: &[RowKind], rows: &[u32]) -> Vec<RowKind> {
    let kind = |(place, row): (usize, &u32)| match kinds[*row as usize] {
        RowKind::UpdateBefore if rows.get(place + 1) != Some(&(row + 1)) => RowKind::Delete,
        RowKind::UpdateAfter if place == 0 || rows[place - 1] + 1 != *row => RowKind::Insert,
        kind => kind,
    };
    rows.iter().enumerate().map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_an_update_that_part_delete_and_insert() {
        use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
        let kinds = [Insert, UpdateBefore, UpdateAfter, UpdateBefore, UpdateAfter, Delete];
        assert_eq!(kinds_of(&kinds, &[0, 1, 2, 3, 5]), [Insert, UpdateBefore, UpdateAfter, Delete, Delete]);
        assert_eq!(kinds_of(&kinds, &[4]), [Insert]);
        assert_eq!(kinds_of(&kinds, &[2, 3, 4]), [Insert, UpdateBefore, UpdateAfter]);
    }
}

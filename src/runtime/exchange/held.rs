//! Rows on their way to several tasks, kept until pieces of some size are together.
//!
//! A batch that is cut for 64 tasks gives each of them little, and each piece costs its receiver a wake-up and the fixed
//! part of what operators do. So batches wait here, whole, and are cut together; of the watermarks between them only the last
//! one goes on, behind the rows. What waited goes on when it is enough, when it has waited for so long, and before the task
//! does anything but work: see [`super::Outputs`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatchOptions;
use arrow::compute::interleave;
use arrow::record_batch::RecordBatch;

use super::{kinds_of, spread};
use crate::error::Error;
use crate::operator::spread::{hash_keys, subtask_of};
use crate::stream::{
    Clock, LatencyMarker, RowKind, RowKinds, RunningWatermark, StreamBatch, StreamElement, Watermark, micros,
};

/// A watermark alone waits for this many more, whatever the number of receivers.
const FEWEST_TURNS: usize = 4;
/// For this many receivers one more.
const TARGETS_A_TURN: usize = 4;
/// This part of a full batch is a piece of good size.
const PIECES_A_BATCH: usize = 8;

/// How much is kept together, and for how long.
pub(in crate::runtime) struct Pace {
    /// So many rows are enough.
    rows: usize,
    /// And so many batches or watermarks, however few rows there are.
    turns: usize,
    /// They wait no longer than this,
    longest_us: i64,
    /// by this clock,
    clock: Arc<dyn Clock>,
    /// and for so long also while there is nothing else to do: the input ends and is read as fast as it can be.
    is_patient: bool,
}

impl Pace {
    /// Of one of `senders` tasks that give to `targets` others.
    pub(in crate::runtime) fn new(
        (senders, targets): (usize, usize),
        batch_rows: usize,
        longest: Duration,
        clock: Arc<dyn Clock>,
        is_patient: bool,
    ) -> Self {
        // All of them together keep no more than one of them would.
        let pieces = targets * batch_rows.div_ceil(PIECES_A_BATCH) / senders.max(1);
        let turns = FEWEST_TURNS + targets / TARGETS_A_TURN;
        Self { rows: pieces.max(batch_rows), turns, longest_us: micros(longest), clock, is_patient }
    }
}

/// See the module.
pub(super) struct Held {
    pace: Pace,
    /// Columns whose hash picks the target.
    keys: Vec<usize>,
    targets: usize,
    batches: Vec<StreamBatch>,
    rows: usize,
    /// Behind so many of the batches, for a target.
    markers: Vec<(usize, usize, LatencyMarker)>,
    /// Behind all of them.
    watermark: Option<Watermark>,
    turns: usize,
    /// Nothing but markers came behind the last rows.
    ends_in_rows: bool,
    /// Since when the first of it waits: by the clock of the job, and for those who measure.
    since: Option<(i64, Instant)>,
    /// Scratch space.
    hashes: Vec<u64>,
}

impl Held {
    pub(super) fn new(pace: Pace, keys: Vec<usize>, targets: usize) -> Self {
        Self {
            pace,
            keys,
            targets,
            batches: Vec::new(),
            rows: 0,
            markers: Vec::new(),
            watermark: None,
            turns: 0,
            ends_in_rows: false,
            since: None,
            hashes: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_none()
    }

    /// Whether so much is together that it is to go on now.
    pub(super) fn is_enough(&self) -> bool {
        self.rows >= self.pace.rows || self.turns >= self.pace.turns
    }

    /// When it has waited for long enough, microseconds of the job's clock.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.since.map(|(since_us, _)| since_us.saturating_add(self.pace.longest_us))
    }

    /// Whether it has waited for long enough; where the task has nothing else to do, for a moment may be enough.
    pub(super) fn is_due(&self, is_at_rest: bool) -> bool {
        let hurries = is_at_rest && (self.is_enough() || !self.pace.is_patient);
        self.due_us().is_some_and(|due_us| hurries || self.pace.clock.elapsed_us() >= due_us)
    }

    fn begin(&mut self) {
        if self.since.is_none() {
            self.since = Some((self.pace.clock.elapsed_us(), Instant::now()));
        }
    }

    /// Whether a watermark is to follow before it goes on, though it is enough.
    pub(super) fn waits_for_watermark(&self) -> bool {
        self.ends_in_rows && self.batches.last().is_some_and(|batch| batch.running.is_some())
    }

    /// Whether the rows can't stand in one batch with those before them: a row that is given several times comes again.
    pub(super) fn is_ahead_of(&self, batch: &StreamBatch) -> bool {
        let first = batch.running.as_ref().and_then(|running| running.values().first().copied());
        let last = self.batches.last().and_then(|last| last.running.as_ref()?.last());
        first.zip(last).is_some_and(|(first, last)| first < last.0)
    }

    pub(super) fn add_rows(&mut self, batch: StreamBatch) {
        if batch.num_rows() == 0 {
            return;
        }
        self.begin();
        self.ends_in_rows = true;
        self.rows += batch.num_rows();
        self.turns += usize::from(batch.running.is_none());
        self.batches.push(batch);
    }

    /// Rows that come later may go on before it: each of them tells its own watermark.
    pub(super) fn add_watermark(&mut self, watermark: Watermark) {
        self.begin();
        self.ends_in_rows = false;
        self.turns += 1;
        self.watermark = Some(watermark);
    }

    pub(super) fn add_marker(&mut self, target: usize, marker: LatencyMarker) {
        self.begin();
        self.markers.push((self.batches.len(), target, marker));
    }

    /// Gives each target its share, in order, and tells since when the first of it has waited.
    pub(super) fn hand_on(
        &mut self,
        mut give: impl FnMut(usize, Vec<StreamElement>, Instant),
    ) -> Result<(), Error> {
        let Some((_, since)) = self.since.take() else { return Ok(()) };
        let batches = std::mem::take(&mut self.batches);
        (self.rows, self.turns, self.ends_in_rows) = (0, 0, false);
        let mut pieces: Vec<Option<StreamBatch>> = vec![None; self.targets];
        let mut markers = vec![Vec::new(); self.targets];
        match batches.as_slice() {
            [batch] => {
                spread(batch, &self.keys, self.targets, &mut self.hashes, |target, piece| {
                    pieces[target] = Some(piece);
                })?;
                for (behind, target, marker) in self.markers.drain(..) {
                    let rows =
                        pieces[target].as_ref().filter(|_| behind > 0).map_or(0, StreamBatch::num_rows);
                    markers[target].push((rows, marker));
                }
            }
            batches => {
                let parts = self.part(batches)?;
                for (part, given) in parts.iter().zip(&mut pieces).filter(|(part, _)| !part.is_empty()) {
                    *given = Some(piece(batches, part)?);
                }
                for (behind, target, marker) in self.markers.drain(..) {
                    let rows = parts[target].partition_point(|(batch, _)| *batch < behind);
                    markers[target].push((rows, marker));
                }
            }
        }
        let mut shares: Vec<_> =
            pieces.into_iter().zip(markers).map(|(piece, markers)| share(piece, markers)).collect();
        if let Some(watermark) = self.watermark.take() {
            shares.iter_mut().for_each(|share| share.push(StreamElement::Watermark(watermark)));
        }
        for (target, share) in shares.into_iter().enumerate().filter(|(_, share)| !share.is_empty()) {
            give(target, share, since);
        }
        Ok(())
    }

    /// The rows of each target, as number of the batch and of the row in it.
    fn part(&mut self, batches: &[StreamBatch]) -> Result<Vec<Vec<(usize, usize)>>, Error> {
        let rows: usize = batches.iter().map(StreamBatch::num_rows).sum();
        let mut parts: Vec<Vec<_>> =
            (0..self.targets).map(|_| Vec::with_capacity(rows / self.targets + 1)).collect();
        for (number, batch) in batches.iter().enumerate() {
            let columns: Vec<_> = self.keys.iter().map(|key| batch.rows.column(*key).clone()).collect();
            hash_keys(&columns, batch.num_rows(), &mut self.hashes)?;
            for (row, hash) in self.hashes.iter().enumerate() {
                parts[subtask_of(*hash, self.targets)].push((number, row));
            }
        }
        Ok(parts)
    }
}

/// Some rows of several batches, one at least, as one batch. They are gathered at once, not after the batches were brought
/// together: that takes as many instructions, but more memory and so more time.
fn piece(batches: &[StreamBatch], part: &[(usize, usize)]) -> Result<StreamBatch, Error> {
    let fault = |error| Error::internal("exchange", error);
    let schema = batches[0].rows.schema();
    let column = |place: usize| {
        let columns: Vec<_> = batches.iter().map(|batch| batch.rows.column(place).as_ref()).collect();
        interleave(&columns, part).map_err(fault)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(part.len()));
    let rows = RecordBatch::try_new_with_options(schema, columns, &options).map_err(fault)?;
    let kinds: Vec<_> = batches.iter().map(|batch| batch.kinds.as_ref().map(RowKinds::values)).collect();
    let kinds = kinds.iter().any(Option::is_some).then(|| {
        let kind = |(batch, row): (usize, usize)| kinds[batch].map_or(RowKind::Insert, |kinds| kinds[row]);
        RowKinds::new(kinds_of(part, kind, |(batch, row)| (batch, row + 1)))
    });
    let mut running =
        batches.iter().all(|batch| batch.running.is_some()).then(|| Vec::with_capacity(part.len()));
    let mut arrived = batches[part[0].0].arrived;
    for part in part.chunk_by(|one, other| one.0 == other.0) {
        let batch = &batches[part[0].0];
        arrived = arrived.min(batch.arrived);
        if let (Some(all), Some(of_batch)) = (&mut running, &batch.running) {
            let values = of_batch.values();
            all.extend(part.iter().map(|(_, row)| values[*row]));
        }
    }
    let running = running.map(RunningWatermark::new);
    Ok(StreamBatch { rows, kinds, running, arrived })
}

/// Rows, and markers that stand behind so many of them.
fn share(piece: Option<StreamBatch>, markers: Vec<(usize, LatencyMarker)>) -> Vec<StreamElement> {
    let mut share = Vec::with_capacity(2 + markers.len());
    let Some(mut rest) = piece else {
        share.extend(markers.into_iter().map(|(_, marker)| StreamElement::Latency(marker)));
        return share;
    };
    let mut given = 0;
    for (rows, marker) in markers {
        if rows > given {
            let (before, behind) = (rest.slice(0, rows - given), rest.num_rows() - (rows - given));
            share.push(StreamElement::Batch(before));
            rest = rest.slice(rows - given, behind);
            given = rows;
        }
        share.push(StreamElement::Latency(marker));
    }
    if rest.num_rows() > 0 {
        share.push(StreamElement::Batch(rest));
    }
    share
}

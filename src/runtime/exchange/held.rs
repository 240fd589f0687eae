//! Rows on their way to several tasks, kept until pieces of some size are together.
//!
//! A batch that is cut for 64 tasks gives each of them little, and each piece costs its receiver a wake-up and the fixed
//! part of what operators do. So batches wait here, whole. Those that would give small pieces are cut together; those that
//! would not only spare wake-ups. Of the watermarks between them only the last one goes on, behind the rows. What waited goes on when it is enough, when it has waited for so long, and before the task
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
/// So many full batches are enough, however few receivers there are.
const FEWEST_BATCHES: usize = 4;

/// How much is kept together, and for how long.
pub(in crate::runtime) struct Pace {
    /// So many rows are cut together at least, where there are as many.
    group_rows: usize,
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
        let group_rows = targets * batch_rows.div_ceil(PIECES_A_BATCH);
        // All of them together keep not much more than one of them would.
        let rows = (group_rows.max(FEWEST_BATCHES * batch_rows) / senders.max(1)).max(batch_rows);
        let turns = FEWEST_TURNS + targets / TARGETS_A_TURN;
        Self { group_rows, rows, turns, longest_us: micros(longest), clock, is_patient }
    }
}

/// See the module.
pub(super) struct Held {
    pace: Pace,
    /// Columns whose hash picks the target.
    keys: Vec<usize>,
    targets: usize,
    /// Batches that are cut together.
    groups: Vec<Vec<StreamBatch>>,
    /// The room of the last group's rows, batches and room of all, see [`StreamBatch::load`].
    group_load: usize,
    batches: usize,
    load: usize,
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
            groups: Vec::new(),
            group_load: 0,
            batches: 0,
            load: 0,
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
        self.load >= self.pace.rows || self.turns >= self.pace.turns
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

    fn last(&self) -> Option<&StreamBatch> {
        self.groups.last().and_then(|group| group.last())
    }

    /// Whether a watermark is to follow before it goes on, though it is enough.
    pub(super) fn waits_for_watermark(&self) -> bool {
        self.ends_in_rows && self.last().is_some_and(|batch| batch.running.is_some())
    }

    /// Whether the rows can stand in one batch with those before them: not where a row is given several times and comes
    /// again.
    fn fits(&self, batch: &StreamBatch) -> bool {
        match (self.last().map(|last| &last.running), &batch.running) {
            (Some(Some(last)), Some(running)) => {
                running.values().first().copied().map(Watermark) >= last.last()
            }
            (Some(None), None) => true,
            (Some(_), _) | (None, _) => false,
        }
    }

    pub(super) fn add_rows(&mut self, batch: StreamBatch) {
        if batch.num_rows() == 0 {
            return;
        }
        self.begin();
        self.ends_in_rows = true;
        self.turns += usize::from(batch.running.is_none());
        if self.group_load >= self.pace.group_rows || self.targets == 1 || !self.fits(&batch) {
            self.groups.push(Vec::new());
            self.group_load = 0;
        }
        self.batches += 1;
        let load = batch.load();
        self.load += load;
        self.group_load += load;
        if let Some(group) = self.groups.last_mut() {
            group.push(batch);
        }
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
        self.markers.push((self.batches, target, marker));
    }

    /// Gives each target its share, in order, and tells since when the first of it has waited.
    pub(super) fn hand_on(
        &mut self,
        mut give: impl FnMut(usize, Vec<StreamElement>, Instant),
    ) -> Result<(), Error> {
        let Some((_, since)) = self.since.take() else { return Ok(()) };
        let (groups, markers) = (std::mem::take(&mut self.groups), std::mem::take(&mut self.markers));
        (self.group_load, self.batches, self.load) = (0, 0, 0);
        (self.turns, self.ends_in_rows) = (0, false);
        let mut shares: Vec<Vec<StreamElement>> = (0..self.targets).map(|_| Vec::new()).collect();
        let mut markers = markers.into_iter().peekable();
        let mut before = 0;
        for group in groups {
            let cut = self.cut(&group)?;
            let mut placed = Vec::new();
            while let Some((behind, target, marker)) =
                markers.next_if(|(behind, ..)| *behind <= before + group.len())
            {
                placed.push((target, cut.rows_of(target, behind - before), marker));
            }
            before += group.len();
            for (target, (piece, share)) in cut.pieces.into_iter().zip(&mut shares).enumerate() {
                let markers = placed.iter().filter(|(picked, ..)| *picked == target);
                add_to(share, piece, markers.map(|(_, rows, marker)| (*rows, *marker)));
            }
        }
        for (_, target, marker) in markers {
            shares[target].push(StreamElement::Latency(marker));
        }
        if let Some(watermark) = self.watermark.take() {
            shares.iter_mut().for_each(|share| share.push(StreamElement::Watermark(watermark)));
        }
        for (target, share) in shares.into_iter().enumerate().filter(|(_, share)| !share.is_empty()) {
            give(target, share, since);
        }
        Ok(())
    }

    /// The rows of each target.
    fn cut(&mut self, batches: &[StreamBatch]) -> Result<Cut, Error> {
        if let [batch] = batches {
            let mut pieces = vec![None; self.targets];
            match pieces.as_mut_slice() {
                [all] => *all = Some(batch.clone()),
                pieces => spread(batch, &self.keys, self.targets, &mut self.hashes, |target, piece| {
                    pieces[target] = Some(piece);
                })?,
            }
            return Ok(Cut { pieces, parts: None });
        }
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
        let gather = |part: &Vec<_>| (!part.is_empty()).then(|| piece(batches, part)).transpose();
        let pieces = parts.iter().map(gather).collect::<Result<_, _>>()?;
        Ok(Cut { pieces, parts: Some(parts) })
    }
}

/// Some batches, cut for all targets.
struct Cut {
    pieces: Vec<Option<StreamBatch>>,
    /// Of several batches: the rows of each target, as number of the batch and of the row in it.
    parts: Option<Vec<Vec<(usize, usize)>>>,
}

impl Cut {
    /// How many rows of the first so many batches a target has.
    fn rows_of(&self, target: usize, batches: usize) -> usize {
        match &self.parts {
            Some(parts) => parts[target].partition_point(|(batch, _)| *batch < batches),
            None if batches == 0 => 0,
            None => self.pieces[target].as_ref().map_or(0, StreamBatch::num_rows),
        }
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

/// Adds rows, and markers that stand behind so many of them.
fn add_to(
    share: &mut Vec<StreamElement>,
    piece: Option<StreamBatch>,
    markers: impl Iterator<Item = (usize, LatencyMarker)>,
) {
    let mut rest = piece;
    let mut given = 0;
    for (rows, marker) in markers {
        if let Some(piece) = rest.take_if(|_| rows > given) {
            let (before, behind) = (rows - given, piece.num_rows() - (rows - given));
            share.push(StreamElement::Batch(piece.slice(0, before)));
            rest = (behind > 0).then(|| piece.slice(before, behind));
            given = rows;
        }
        share.push(StreamElement::Latency(marker));
    }
    share.extend(rest.map(StreamElement::Batch));
}

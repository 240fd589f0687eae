//! Rows of two inputs that are in the same window.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::UInt32Array;
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::SIDES;
use super::matching::{Built, Matcher, Probing, beside, chosen};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::late::{LateRows, Missed, Rejected};
use crate::operator::store::{PutAway, SMALLEST_PART, hand_on, take_up};
use crate::operator::window::WindowAssigner;
use crate::operator::{
    BATCH_ROWS, Operator, Output, RowCounts, SpillStore, SpilledRows, StateReader, StateSize, StateWriter,
};
use crate::plan::{JoinKind, WindowBounds, WindowJoinNode};
use crate::stream::{BATCH_BYTES, StreamBatch, Watermark, bytes_of, event_times};

/// Joins the rows of each window when it closes; without windows all rows at the end.
///
/// Wakes on: watermarks, the end. State: the rows of open windows; a window's are dropped together. Order: by
/// window; in it pairs as the rows of the first input came, then what has no pair; where rows of the second input were put
/// away, first with some of these, then with the next ones. A row is late if
/// the running watermark had closed its window; late rows are nobody's partner and never padded.
///
/// Source: Flink's window join.
pub(in crate::operator) struct WindowJoin {
    kind: JoinKind,
    windows: Option<[WindowBounds; 2]>,
    keys: [Vec<usize>; 2],
    matcher: Matcher,
    assigner: WindowAssigner,
    inputs: [SchemaRef; 2],
    schema: SchemaRef,
    /// By end, then start.
    open: BTreeMap<(i64, i64), OpenWindow>,
    watermark: i64,
    /// Up to where windows are closed now.
    reached: Option<Reached>,
    closing: Option<Closing>,
    /// See [`SpillStore::share`].
    share: usize,
    late: Option<[LateRows; 2]>,
}

/// How far the input has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    Watermark(Watermark),
    /// To its end: there may be rows behind the last watermark, of what gives rows at the end.
    End,
}

/// A window whose pairs are given piece by piece: those of the rows of its first input, which are read piece by piece, with a
/// block of its second, which is in memory; then with the next block. What was not put away is one block.
struct Closing {
    first: Buffer,
    /// Those that were not begun with the block.
    pieces: SpilledRows,
    probing: Option<Probing>,
    /// Rows of the first input before `probing`.
    at: usize,
    /// For each row of the first input whether it is in a pair.
    first_met: Vec<bool>,
    block: Built,
    /// Rows of the second input behind the block.
    blocks: Peekable<SpilledRows>,
    /// Most bytes of a block.
    share: usize,
    arrived: Instant,
}

#[derive(Default)]
struct OpenWindow {
    buffers: [Buffer; 2],
    arrived: Option<Instant>,
}

/// The rows of an input in a window, as they came: first those that were put away.
#[derive(Default)]
struct Buffer {
    away: Vec<PutAway>,
    here: Vec<RecordBatch>,
}

/// The window of all rows where there are none.
const WITHOUT: (i64, i64) = (i64::MAX, 0);

impl OpenWindow {
    fn num_rows(&self) -> usize {
        let away = self.buffers.iter().flat_map(|buffer| &buffer.away).map(|away| away.count);
        away.chain(self.here().map(RecordBatch::num_rows)).sum()
    }

    /// Batches that are in memory.
    fn here(&self) -> impl Iterator<Item = &RecordBatch> {
        self.buffers.iter().flat_map(|buffer| &buffer.here)
    }

    /// Memory in bytes, estimated.
    fn size(&self) -> usize {
        self.here().map(RecordBatch::get_array_memory_size).sum()
    }
}

impl Buffer {
    /// All rows, in pieces; small batches are brought together.
    fn pieces(&self, schema: &SchemaRef) -> SpilledRows {
        let away = self.away.clone().into_iter().flat_map(|away| match away.pieces() {
            Ok(pieces) => pieces,
            Err(error) => Box::new(std::iter::once(Err(error))),
        });
        let (mut here, schema) = (self.here.clone().into_iter().peekable(), Arc::clone(schema));
        let together = std::iter::from_fn(move || {
            let mut piece = vec![here.next()?];
            let (mut rows, mut bytes) = (piece[0].num_rows(), bytes_of(&piece[0]));
            while let Some(next) = here
                .next_if(|next| rows + next.num_rows() <= BATCH_ROWS && bytes + bytes_of(next) <= BATCH_BYTES)
            {
                rows += next.num_rows();
                bytes += bytes_of(&next);
                piece.push(next);
            }
            Some(concat_batches(&schema, &piece).map_err(|error| arrow_failure(&error)))
        });
        Box::new(away.chain(together))
    }

    /// Puts the rows that are in memory away.
    fn put_away(&mut self, schema: &SchemaRef, store: &dyn SpillStore) -> Result<(), Error> {
        if !self.here.is_empty() {
            self.away.push(PutAway::new(schema, self.here.iter(), store)?);
            self.here.clear();
        }
        Ok(())
    }
}

impl WindowJoin {
    pub(in crate::operator) fn try_new(
        node: &WindowJoinNode,
        schema: &SchemaRef,
        late: Option<[LateRows; 2]>,
    ) -> Result<Self, Error> {
        let (first, second) = node.pair.fields().split_at(node.first_width);
        Ok(Self {
            kind: node.kind,
            windows: node.windows,
            keys: node.keys.clone(),
            matcher: Matcher::try_new(&node.keys, node.null_is_equal, node.condition.as_ref(), &node.pair)?,
            assigner: WindowAssigner::attached(node.unit.us(), node.zone),
            inputs: [first, second].map(|fields| Arc::new(Schema::new(fields.to_vec()))),
            schema: Arc::clone(schema),
            open: BTreeMap::new(),
            watermark: i64::MIN,
            reached: None,
            closing: None,
            share: usize::MAX,
            late,
        })
    }

    fn take(&mut self, input: usize, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("WindowJoin", "the input is no stream of inserts"));
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let Some(windows) = self.windows else {
            let rows = (0..batch.num_rows() as u32).collect();
            return self.keep(input, &batch, vec![(WITHOUT, rows)], out);
        };
        let WindowBounds { start, end } = windows[input];
        let (starts, no_start) = event_times(batch.rows.column(start))?;
        let (ends, no_end) = event_times(batch.rows.column(end))?;
        // The rows of each window; a batch has few, and rows of one mostly follow each other.
        let mut parts: Vec<((i64, i64), Vec<u32>)> = Vec::new();
        let mut rejected = Vec::new();
        for row in 0..batch.num_rows() {
            let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
            let watermark = running.max(self.watermark);
            let is_null = |nulls: &Option<arrow::buffer::NullBuffer>| {
                nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
            };
            if is_null(&no_start) || is_null(&no_end) {
                out.counts.null_time += 1;
                rejected.push(Rejected::without_time(row, watermark));
                continue;
            }
            let close = self.assigner.close(ends[row]);
            if watermark >= close {
                out.counts.late += 1;
                let window = Some((starts[row], ends[row]));
                let late = Missed { window, by_us: self.assigner.past_end(watermark, close) };
                rejected.push(Rejected { row: row as u32, watermark, late: Some(late) });
                continue;
            }
            let window = (ends[row], starts[row]);
            let place = parts.iter().rposition(|(known, _)| *known == window);
            let place = place.unwrap_or_else(|| {
                parts.push((window, Vec::new()));
                parts.len() - 1
            });
            parts[place].1.push(row as u32);
        }
        if let Some(late) = &self.late {
            late[input].give(&batch, &rejected, out)?;
        }
        self.keep(input, &batch, parts, out)
    }

    /// Keeps the rows of each window.
    fn keep(
        &mut self,
        input: usize,
        batch: &StreamBatch,
        parts: Vec<((i64, i64), Vec<u32>)>,
        out: &mut Output,
    ) -> Result<(), Error> {
        for (window, rows) in parts {
            out.counts.held += rows.len() as u64;
            self.keep_in(window, input, &batch.rows, rows, batch.arrived)?;
        }
        Ok(())
    }

    /// Keeps rows of a batch in a window.
    fn keep_in(
        &mut self,
        window: (i64, i64),
        input: usize,
        batch: &RecordBatch,
        rows: Vec<u32>,
        arrived: Instant,
    ) -> Result<(), Error> {
        let rows = match rows.len() == batch.num_rows() {
            true => batch.clone(),
            false => {
                take_record_batch(batch, &UInt32Array::from(rows)).map_err(|error| arrow_failure(&error))?
            }
        };
        let open = self.open.entry(window).or_default();
        open.arrived = open.arrived.max(Some(arrived));
        open.buffers[input].here.push(rows);
        Ok(())
    }

    /// The windows of rows that were in time, each with its rows in order.
    fn windows_of(&self, input: usize, rows: &RecordBatch) -> Result<BTreeMap<(i64, i64), Vec<u32>>, Error> {
        let all = 0..rows.num_rows() as u32;
        let mut windows: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        match self.windows {
            None if rows.num_rows() > 0 => {
                windows.insert(WITHOUT, all.collect());
            }
            None => {}
            Some(bounds) => {
                let WindowBounds { start, end } = bounds[input];
                let (starts, ends) = (event_times(rows.column(start))?.0, event_times(rows.column(end))?.0);
                for row in all {
                    let window = (ends[row as usize], starts[row as usize]);
                    windows.entry(window).or_default().push(row);
                }
            }
        }
        Ok(windows)
    }

    /// Whether a window is over.
    fn is_due(&self, (end, _): (i64, i64), reached: Reached) -> bool {
        match reached {
            Reached::Watermark(reached) => self.windows.is_some() && self.assigner.close(end) <= reached.0,
            Reached::End => true,
        }
    }

    /// Gives windows that are over, until there are some rows or pairs to look at, or all of them and then the watermark.
    fn close_some(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(reached) = self.reached else { return Ok(()) };
        let mut looked_at = 0;
        while looked_at < 4 * BATCH_ROWS {
            let Some(mut closing) = self.closing.take() else {
                match self.open.first_key_value().filter(|(window, _)| self.is_due(**window, reached)) {
                    Some(_) => {
                        let (_, window) = self.open.pop_first().unwrap_or_default();
                        self.closing = self.begin(window)?;
                        continue;
                    }
                    None => {
                        self.reached = None;
                        if let Reached::Watermark(reached) = reached {
                            self.watermark = reached.0;
                            out.watermark(reached);
                        }
                        return Ok(());
                    }
                }
            };
            match self.step(&mut closing, out)? {
                Some(pairs) => {
                    looked_at += pairs;
                    self.closing = Some(closing);
                }
                None => self.closing = self.next_block(closing, out)?,
            }
        }
        Ok(())
    }

    /// The rows of a window that is over; `None`: it has none.
    fn begin(&self, window: OpenWindow) -> Result<Option<Closing>, Error> {
        let Some(arrived) = window.arrived else { return Ok(None) };
        let [first, second] = window.buffers;
        let share = if second.away.is_empty() { usize::MAX } else { self.share };
        let mut blocks = second.pieces(&self.inputs[1]).peekable();
        let block = self.block(&mut blocks, share)?;
        let pieces = first.pieces(&self.inputs[0]);
        let (probing, at, first_met) = (None, 0, Vec::new());
        Ok(Some(Closing { first, pieces, probing, at, first_met, block, blocks, share, arrived }))
    }

    /// The next rows of the second input.
    fn block(&self, pieces: &mut Peekable<SpilledRows>, share: usize) -> Result<Built, Error> {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while bytes < share
            && let Some(piece) = pieces.next()
        {
            let piece = piece?;
            bytes += bytes_of(&piece);
            rows.push(piece);
        }
        self.matcher.build(concat_batches(&self.inputs[1], &rows).map_err(|error| arrow_failure(&error))?)
    }

    /// Gives the next pairs, and tells how many it looked at. `None`: there are no more with this block.
    fn step(&self, closing: &mut Closing, out: &mut Output) -> Result<Option<usize>, Error> {
        let Closing { pieces, probing, at, first_met, block, blocks, arrived, .. } = closing;
        let mut give = |rows: RecordBatch| out.batch(StreamBatch::inserts(rows, *arrived));
        let mut begun = match probing.take() {
            Some(begun) => begun,
            None => match pieces.next() {
                Some(rows) => self.matcher.probe(rows?, block)?,
                None => return Ok(None),
            },
        };
        if let Some(pairs) = self.matcher.next(&mut begun, block)? {
            if self.kind.gives_pairs() && !pairs.first.is_empty() {
                let (rows, others) = (UInt32Array::from(pairs.first), UInt32Array::from(pairs.second));
                give(beside(&begun.rows, &rows, &block.rows, &others, &self.schema)?);
            }
            *probing = Some(begun);
            return Ok(Some(pairs.looked_at));
        }
        let end = *at + begun.met.len();
        first_met.resize(first_met.len().max(end), false);
        let known = &mut first_met[*at..end];
        known.iter_mut().zip(&begun.met).for_each(|(known, met)| *known |= met);
        if !self.kind.gives_pairs() && blocks.peek().is_none() {
            for rows in those(known, self.kind == JoinKind::Semi).chunks(BATCH_ROWS) {
                give(chosen(&begun.rows, &UInt32Array::from(rows.to_vec()), &self.schema)?);
            }
        }
        *at = end;
        Ok(Some(1))
    }

    /// All pairs with a block were given. Behind the last one comes what has none: `None`.
    fn next_block(&self, mut closing: Closing, out: &mut Output) -> Result<Option<Closing>, Error> {
        let second_used = |met: bool| met || self.kind.keeps_second();
        count(closing.block.met.iter().map(|met| second_used(*met)), out);
        let is_last = closing.blocks.peek().is_none();
        if is_last {
            let first_used = |met: bool| match self.kind {
                JoinKind::Left | JoinKind::Full => true,
                JoinKind::Inner | JoinKind::Right | JoinKind::Semi => met,
                JoinKind::Anti => !met,
            };
            count(closing.first_met.iter().map(|met| first_used(*met)), out);
        }
        if self.kind.gives_pairs() {
            self.give_alone(&closing, is_last, out)?;
        }
        if is_last {
            return Ok(None);
        }
        closing.block = self.block(&mut closing.blocks, closing.share)?;
        (closing.pieces, closing.at) = (closing.first.pieces(&self.inputs[0]), 0);
        Ok(Some(closing))
    }

    /// Gives the rows that are in no pair, where they are kept: of the block, and behind the last one of the first input.
    fn give_alone(&self, closing: &Closing, is_last: bool, out: &mut Output) -> Result<(), Error> {
        let Closing { first, first_met, block, arrived, .. } = closing;
        let mut give = |rows: RecordBatch| out.batch(StreamBatch::inserts(rows, *arrived));
        if is_last && self.kind.keeps_first() && first_met.contains(&false) {
            let mut before = 0;
            for piece in first.pieces(&self.inputs[0]) {
                let piece = piece?;
                let met = &first_met[before..before + piece.num_rows()];
                before += piece.num_rows();
                for rows in those(met, false).chunks(BATCH_ROWS) {
                    let (rows, none) = (UInt32Array::from(rows.to_vec()), UInt32Array::new_null(rows.len()));
                    give(beside(&piece, &rows, &block.rows, &none, &self.schema)?);
                }
            }
        }
        if self.kind.keeps_second() {
            let nothing = RecordBatch::new_empty(Arc::clone(&self.inputs[0]));
            for rows in those(&block.met, false).chunks(BATCH_ROWS) {
                let (rows, none) = (UInt32Array::from(rows.to_vec()), UInt32Array::new_null(rows.len()));
                give(beside(&nothing, &none, &block.rows, &rows, &self.schema)?);
            }
        }
        Ok(())
    }
}

/// Rows that were held and are not any more: each is used if it is in the result or decided what is; otherwise the join
/// has removed it.
fn count(used: impl ExactSizeIterator<Item = bool>, out: &mut Output) {
    let all = used.len() as u64;
    let used = used.filter(|used| *used).count() as u64;
    out.counts.held -= all;
    out.counts.used += used;
    out.counts.filtered += all - used;
}

/// The rows that have met others, or have not.
fn those(met: &[bool], wanted: bool) -> Vec<u32> {
    met.iter().zip(0..).filter(|(met, _)| **met == wanted).map(|(_, row)| row).collect()
}

impl Operator for WindowJoin {
    fn name(&self) -> &'static str {
        "WindowJoin"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(0, batch, out)
    }

    fn process_second(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(1, batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.reached = Some(Reached::Watermark(watermark));
        self.close_some(out)
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        self.reached = Some(Reached::End);
        self.close_some(out)
    }

    fn is_at_work(&self) -> bool {
        self.reached.is_some()
    }

    fn go_on(&mut self, out: &mut Output) -> Result<(), Error> {
        self.close_some(out)
    }

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        state.number("watermark", self.watermark);
        for (input, name) in SIDES.into_iter().enumerate() {
            // By window, in the order of arrival; the numbers of those in memory come first.
            let buffers = || self.open.values().map(|window| &window.buffers[input]);
            let (here, away) =
                (buffers().flat_map(|buffer| &buffer.here), buffers().flat_map(|buffer| &buffer.away));
            let (mut next_here, mut next_away) = (0.., here.clone().count()..);
            let mut batches: Vec<(usize, usize)> = Vec::new();
            for buffer in buffers() {
                batches.extend(next_away.by_ref().zip(buffer.away.iter().map(|away| away.count)));
                batches.extend(next_here.by_ref().zip(buffer.here.iter().map(RecordBatch::num_rows)));
            }
            let rows = batches.into_iter().flat_map(|(batch, rows)| (0..rows).map(move |row| (batch, row)));
            let table = (&self.inputs[input], self.keys[input].as_slice());
            hand_on(state, name, table, here, away, rows, Vec::new())?;
        }
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        counts.held = 0;
        let arrived = state.arrived();
        for (input, name) in SIDES.into_iter().enumerate() {
            let Some(taken_up) = take_up(state, name, &self.inputs[input])? else { continue };
            counts.held += taken_up.rows.num_rows() as u64;
            for (window, rows) in self.windows_of(input, &taken_up.rows)? {
                self.keep_in(window, input, &taken_up.rows, rows, arrived)?;
            }
        }
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        self.windows?;
        self.open.first_key_value().map(|((end, _), _)| self.assigner.close(*end))
    }

    fn spill(&mut self, wanted: usize, store: &dyn SpillStore) -> Result<usize, Error> {
        self.share = store.share();
        // The largest first, so that there are few files; last of all that which closes first.
        let windows = self.open.iter().enumerate().filter(|(_, (_, window))| window.here().next().is_some());
        let mut cold: Vec<(bool, Reverse<usize>, (i64, i64))> =
            windows.map(|(place, (key, window))| (place == 0, Reverse(window.size()), *key)).collect();
        let all: usize = cold.iter().map(|(_, size, _)| size.0).sum();
        if wanted != usize::MAX && all < wanted / SMALLEST_PART {
            return Ok(0);
        }
        cold.sort_unstable();
        let mut given_up = 0;
        for (_, _, key) in cold {
            if given_up >= wanted {
                break;
            }
            let Some(window) = self.open.get_mut(&key) else { continue };
            let before = window.size();
            for (buffer, schema) in window.buffers.iter_mut().zip(&self.inputs) {
                buffer.put_away(schema, store)?;
            }
            given_up += before - window.size();
        }
        Ok(given_up)
    }

    fn spilled(&self) -> u64 {
        let buffers = self.open.values().flat_map(|window| &window.buffers);
        buffers.flat_map(|buffer| &buffer.away).map(|away| away.rows.bytes()).sum()
    }

    fn state(&self) -> StateSize {
        let rows = self.open.values().map(OpenWindow::num_rows).sum();
        let bytes = self.open.values().map(OpenWindow::size).sum();
        StateSize { windows: self.open.len(), rows, bytes }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
    use arrow::datatypes::{DataType, Field, TimeUnit as ArrowUnit};

    use super::*;
    use crate::operator::checked::Put;
    use crate::operator::testing::{Step, drain, pieces, plan_node, respread};
    use crate::operator::{RowCounts, Spilled, create};
    use crate::plan::{Operation, PlanNode};
    use crate::stream::{RunningWatermark, TimeUnit};

    /// Input, running watermark (ms), window's end (ms), key, value; windows are 10 ms long.
    type Row = (usize, i64, i64, Option<i64>, i64);

    fn side(nullable: bool) -> Vec<Field> {
        let bound = DataType::Timestamp(ArrowUnit::Millisecond, None);
        vec![
            Field::new("window_start", bound.clone(), nullable),
            Field::new("window_end", bound, nullable),
            Field::new("k", DataType::Int64, true),
            Field::new("v", DataType::Int64, nullable),
        ]
    }

    fn batch(rows: &[&Row]) -> StreamBatch {
        let times = |of: fn(&Row) -> i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| of(row))))
        };
        let columns: Vec<ArrayRef> = vec![
            times(|row| row.2 - 10),
            times(|row| row.2),
            Arc::new(rows.iter().map(|row| row.3).collect::<Int64Array>()),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.4))),
        ];
        let running = rows.iter().map(|row| row.1 * 1_000).collect::<Vec<_>>();
        StreamBatch {
            rows: RecordBatch::try_new(Arc::new(Schema::new(side(false))), columns).unwrap(),
            kinds: None,
            running: Some(RunningWatermark::new(running)),
            arrived: Instant::now(),
        }
    }

    fn node(kind: JoinKind, has_windows: bool) -> PlanNode {
        let fields = |nullable: bool| Arc::new(Schema::new([side(nullable), side(nullable)].concat()));
        let node = WindowJoinNode {
            kind,
            windows: has_windows.then_some([WindowBounds { start: 0, end: 1 }; 2]),
            unit: TimeUnit::Millisecond,
            zone: None,
            keys: [vec![2], vec![2]],
            null_is_equal: false,
            condition: None,
            pair: fields(false),
            first_width: 4,
        };
        let schema = if kind.gives_pairs() { fields(true) } else { Arc::new(Schema::new(side(false))) };
        plan_node(Operation::WindowJoin(Box::new(node)), schema)
    }

    /// The result as `v,v` lines; `second_first`: which input is read first between watermarks; `store`: where all rows are
    /// put away as soon as they have come.
    fn run(
        kind: JoinKind,
        rows: &[Row],
        cut: usize,
        second_first: bool,
        store: Option<&dyn SpillStore>,
    ) -> (Vec<String>, RowCounts) {
        let mut join = create(&node(kind, true), &Arc::new(Schema::new(side(false)))).unwrap();
        let (mut out, mut given) = (Output::default(), Vec::new());
        let mut watermark = i64::MIN;
        for (number, group) in rows.chunks(cut).enumerate() {
            for input in if second_first { [1, 0] } else { [0, 1] } {
                let own: Vec<&Row> = group.iter().filter(|row| row.0 == input).collect();
                match input {
                    0 => join.process_batch(batch(&own), &mut out).unwrap(),
                    _ => join.process_second(batch(&own), &mut out).unwrap(),
                }
            }
            if let Some(store) = store {
                join.spill(usize::MAX, store).unwrap();
            }
            let next = rows.get((number + 1) * cut).map_or(i64::MAX, |row| row.1 * 1_000);
            if next > watermark {
                watermark = next;
                join.process_watermark(Watermark(next), &mut out).unwrap();
            }
            drain(&mut out, &mut given);
        }
        assert_eq!(join.state(), StateSize::default());
        (values(&given), out.counts)
    }

    /// Of what is there no more than one piece may be in memory.
    #[derive(Debug)]
    struct BlockOfOne;

    impl SpillStore for BlockOfOne {
        fn put(&self, rows: &mut dyn Iterator<Item = RecordBatch>) -> Result<Arc<dyn Spilled>, Error> {
            Put.put(rows)
        }

        fn share(&self) -> usize {
            1
        }
    }

    fn values(lines: &[String]) -> Vec<String> {
        let value = |line: &String| {
            let cells: Vec<&str> = line.split(',').collect();
            cells.chunks(4).map(|side| side[3]).collect::<Vec<_>>().join(",")
        };
        lines.iter().map(value).collect()
    }

    /// In the first window key 1 has two pairs, 2 and 3 have none and NULL is equal to nothing. The
    /// rows 5 and 15 come when it has closed: at 9 ms, not sooner.
    const ROWS: [Row; 10] = [
        (0, 0, 10, Some(1), 1),
        (1, 0, 10, Some(1), 11),
        (0, 1, 10, Some(2), 2),
        (1, 2, 10, Some(3), 12),
        (1, 3, 10, None, 13),
        (0, 3, 10, None, 3),
        (1, 8, 10, Some(1), 14),
        (0, 9, 10, Some(3), 5),
        (1, 9, 10, Some(2), 15),
        (0, 9, 20, Some(1), 6),
    ];

    #[test]
    fn each_kind_gives_its_rows_whatever_the_cut_and_the_order_of_reading() {
        let cases: [(JoinKind, &[&str], u64); 6] = [
            (JoinKind::Inner, &["1,11", "1,14"], 3),
            (JoinKind::Left, &["1,11", "1,14", "2,NULL", "3,NULL", "6,NULL"], 6),
            (JoinKind::Right, &["1,11", "1,14", "NULL,12", "NULL,13"], 5),
            (JoinKind::Full, &["1,11", "1,14", "2,NULL", "3,NULL", "NULL,12", "NULL,13", "6,NULL"], 8),
            (JoinKind::Semi, &["1"], 3),
            (JoinKind::Anti, &["2", "3", "6"], 5),
        ];
        for (kind, expected, used) in cases {
            for cut in 1..=ROWS.len() {
                for second_first in [false, true] {
                    let (given, counts) = run(kind, &ROWS, cut, second_first, None);
                    assert_eq!(given, expected, "{kind:?}, batches of {cut}");
                    assert_eq!((counts.used, counts.late, counts.held), (used, 2, 0), "{kind:?}");
                    // The same rows, whatever is in memory at once.
                    let (mut given, counts) = run(kind, &ROWS, cut, second_first, Some(&BlockOfOne));
                    let mut expected = expected.to_vec();
                    given.sort();
                    expected.sort_unstable();
                    assert_eq!(given, expected, "{kind:?}, batches of {cut}, put away");
                    assert_eq!((counts.used, counts.late, counts.held), (used, 2, 0), "{kind:?}");
                }
            }
        }
    }

    #[test]
    fn other_numbers_of_subtasks_take_up_the_state() {
        // 30 windows of 10 ms, keys 0 to 6, a watermark behind each eight rows; none is late.
        let rows: Vec<Row> = (0..600)
            .map(|row| (row as usize % 2, row / 2 - 12, row / 20 * 10 + 10, Some(row * 5 % 7), row))
            .collect();
        let meets = |first: &&Row, second: &&Row, has_windows: bool| {
            first.3 == second.3 && (!has_windows || first.2 == second.2)
        };
        for has_windows in [true, false] {
            let mut parts = [Vec::new(), Vec::new(), Vec::new()];
            for (number, group) in rows.chunks(8).enumerate() {
                let part = &mut parts[number / 25];
                let own = |input: usize| group.iter().filter(|row| row.0 == input).collect::<Vec<_>>();
                part.push(Step::First(batch(&own(0))));
                part.push(Step::Second(batch(&own(1))));
                part.push(Step::Watermark(group[7].1 * 1_000));
            }
            let sides = [0, 1].map(|input| rows.iter().filter(move |row| row.0 == input).collect::<Vec<_>>());
            let mut expected = Vec::new();
            for first in &sides[0] {
                let partners = sides[1].iter().filter(|second| meets(first, second, has_windows));
                expected.extend(partners.map(|second| format!("{},{}", first.4, second.4)));
            }
            let input = Arc::new(Schema::new(side(false)));
            let given = respread(&node(JoinKind::Inner, has_windows), &input, [&[2], &[2]], &parts);
            let mut given = values(&given);
            given.sort();
            expected.sort();
            assert_eq!(given, expected);
        }
    }

    /// 300 rows of a key with 300 others: no more than some batches of pairs are there at once, the watermark comes last.
    #[test]
    fn many_pairs_come_piece_by_piece() {
        for (kind, has_windows, rows) in [
            (JoinKind::Inner, true, 90_000),
            (JoinKind::Inner, false, 90_000),
            (JoinKind::Full, true, 90_002),
            (JoinKind::Semi, true, 300),
            (JoinKind::Anti, false, 1),
        ] {
            let mut join = create(&node(kind, has_windows), &Arc::new(Schema::new(side(false)))).unwrap();
            let mut out = Output::default();
            let own = |input: usize| -> Vec<Row> {
                let alone = (input, 0, 10, Some(1 + input as i64), 0);
                (0..300).map(|v| (input, 0, 10, Some(0), v)).chain([alone]).collect()
            };
            join.process_batch(batch(&own(0).iter().collect::<Vec<_>>()), &mut out).unwrap();
            join.process_second(batch(&own(1).iter().collect::<Vec<_>>()), &mut out).unwrap();
            join.process_watermark(Watermark::MAX, &mut out).unwrap();
            let at_watermark = pieces(join.as_mut(), &mut out, 5 * BATCH_ROWS);
            join.finish(&mut out).unwrap();
            let at_end = pieces(join.as_mut(), &mut out, 5 * BATCH_ROWS);
            let (all, nothing) = ((90_000 / (4 * BATCH_ROWS) + 1, rows), (1, 0));
            let expected = if has_windows { (all, nothing) } else { (nothing, all) };
            assert_eq!((at_watermark, at_end), expected, "{kind:?}");
            assert_eq!(join.state(), StateSize::default());
            assert_eq!(out.counts.used + out.counts.filtered, 602);
        }
    }
}

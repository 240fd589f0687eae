//! OVER in windows when they close, and over all of a bounded input at its end.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat, filter_record_batch, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use std::sync::Arc;

use super::arrived::Arrived;
use super::compute::{Computer, Part, Work};
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate, one_nan_and_zero};
use crate::operator::keys::{KeyFormat, KeyNumbers};
use crate::operator::late::{LateRows, Missed, Rejected};
use crate::operator::sort::Ties;
use crate::operator::state::{misfit, with_schema};
use crate::operator::store::shared;
use crate::operator::window::WindowAssigner;
use crate::operator::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
use crate::plan::{OverCall, OverFunction, OverNode, OverTrigger, RankLimit, SortKey, WindowBounds};
use crate::stream::{StreamBatch, Watermark, event_times};

/// Gives the rows of a window with the values of their calls when it closes.
///
/// Wakes on: watermarks; without windows on the end. State: the rows of open windows; where only the
/// first rows of each partition come out, a small multiple of those. Order: by window, then
/// partitions as they were first seen, then ORDER BY; ties in the order of arrival. A row is late if
/// the running watermark had closed its window.
///
/// Source: Flink's window Top-N and window deduplication.
pub(super) struct OverAtClose {
    bounds: Option<(WindowBounds, WindowAssigner)>,
    partition: Vec<usize>,
    keys: KeyFormat,
    order: Vec<SortKey>,
    ties: Ties,
    calls: Vec<OverCall>,
    limit: Option<RankLimit>,
    input: SchemaRef,
    schema: SchemaRef,
    /// By end, then start.
    open: BTreeMap<(i64, i64), OpenWindow>,
    watermark: i64,
    /// Up to where windows are closed now.
    reached: Option<Reached>,
    giving: Option<Giving>,
    late: Option<LateRows>,
}

/// How far the input has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    Watermark(Watermark),
    End,
}

/// A window of which no more than the first rows of each partition come out, with their numbers: piece by piece.
struct Giving {
    rows: Arrived,
    /// Their places, in the order in which they come out.
    order: Vec<u32>,
    numbers: Vec<i64>,
    /// Those before it are given.
    from: usize,
    /// Rows of a piece.
    piece: usize,
    arrived: Instant,
}

/// Pieces that are given before others may go on.
const PIECES_AT_ONCE: usize = 4;

#[derive(Default)]
struct OpenWindow {
    partitions: KeyNumbers,
    rows: Arrived,
    /// Rows that were left when the others were last dropped.
    pruned: usize,
    arrived: Option<Instant>,
}

impl OverAtClose {
    pub(super) fn try_new(
        node: &OverNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let bounds = match node.trigger {
            OverTrigger::WindowClose { bounds, unit, zone } => {
                Some((bounds, WindowAssigner::attached(unit.us(), zone)))
            }
            OverTrigger::EventTime { .. } | OverTrigger::End | OverTrigger::Change => None,
        };
        Ok(Self {
            bounds,
            partition: node.partition.clone(),
            keys: KeyFormat::try_new(&node.partition, input)?,
            order: node.order.clone(),
            ties: if node.latest_first { Ties::LatestFirst } else { Ties::EarliestFirst },
            calls: node.calls.clone(),
            limit: node.limit,
            input: input.clone(),
            schema: schema.clone(),
            open: BTreeMap::new(),
            watermark: i64::MIN,
            reached: None,
            giving: None,
            late,
        })
    }

    fn take(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        // The rows of each window; a batch has few, and rows of one mostly follow each other.
        let mut parts: Vec<((i64, i64), Vec<u32>)> = Vec::new();
        match &self.bounds {
            None => parts.push(((i64::MAX, 0), (0..batch.num_rows() as u32).collect())),
            Some((bounds, assigner)) => {
                let (starts, no_start) = event_times(batch.rows.column(bounds.start))?;
                let (ends, no_end) = event_times(batch.rows.column(bounds.end))?;
                let mut rejected = Vec::new();
                for row in 0..batch.num_rows() {
                    let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
                    let watermark = running.max(self.watermark);
                    let is_null =
                        |nulls: &Option<NullBuffer>| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                    if is_null(&no_start) || is_null(&no_end) {
                        out.counts.null_time += 1;
                        rejected.push(Rejected::without_time(row, watermark));
                        continue;
                    }
                    let close = assigner.close(ends[row]);
                    if watermark >= close {
                        out.counts.late += 1;
                        let window = Some((starts[row], ends[row]));
                        let late = Missed { window, by_us: assigner.past_end(watermark, close) };
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
                    late.give(batch, &rejected, out)?;
                }
            }
        }
        let keys = self.keys.rows(&batch.rows)?;
        for (window, rows) in parts.into_iter().filter(|(_, rows)| !rows.is_empty()) {
            out.counts.held += rows.len() as u64;
            let open = self.open.entry(window).or_default();
            open.arrived = open.arrived.max(Some(batch.arrived));
            let numbers = rows.iter().map(|row| open.partitions.number(&keys, *row as usize));
            let numbers = UInt32Array::from_iter_values(numbers);
            let rows = match rows.len() == batch.num_rows() {
                true => batch.rows.clone(),
                false => take_record_batch(&batch.rows, &UInt32Array::from(rows))
                    .map_err(|error| arrow_failure(&error))?,
            };
            open.rows.push(rows, numbers);
            self.prune(window, out)?;
        }
        Ok(())
    }

    /// The greatest row number that comes out, if the calls are no more than that.
    fn most_rows(&self) -> Option<usize> {
        let limit = self.limit?;
        let is_number = matches!(self.calls.as_slice(), [OverCall { function: OverFunction::RowNumber, .. }]);
        is_number.then(|| usize::try_from(limit.most.max(0)).unwrap_or(usize::MAX))
    }

    /// Drops rows of a window that can't be among the first ones.
    fn prune(&mut self, window: (i64, i64), out: &mut Output) -> Result<(), Error> {
        let Some(most) = self.most_rows() else { return Ok(()) };
        let Some(mut open) = self.open.remove(&window) else { return Ok(()) };
        if open.rows.len() > 2 * open.pruned + 4 * open.rows.batch_rows() {
            let (numbers, order) = open.rows.ordered(&self.order, self.ties)?;
            let mut kept: Vec<u32> = Vec::new();
            for part in partitions(&numbers, &order) {
                kept.extend(&order.values()[part.from..part.to.min(part.from.saturating_add(most))]);
            }
            kept.sort_unstable();
            let dropped = open.rows.len() - kept.len();
            out.counts.held -= dropped as u64;
            out.counts.filtered += dropped as u64;
            open.pruned = kept.len();
            open.rows.retain(&kept)?;
        }
        self.open.insert(window, open);
        Ok(())
    }

    /// Gives windows that are over, until there are some rows, or all of them and then the watermark.
    fn close_some(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(reached) = self.reached else { return Ok(()) };
        loop {
            if let Some(giving) = self.giving.take() {
                self.giving = self.give_some(giving, out)?;
                if self.giving.is_some() {
                    return Ok(());
                }
            }
            let is_due = |end: i64| match (reached, &self.bounds) {
                (Reached::End, _) => true,
                (Reached::Watermark(watermark), Some((_, assigner))) => assigner.close(end) <= watermark.0,
                (Reached::Watermark(_), None) => false,
            };
            let due = self.open.first_key_value().is_some_and(|((end, _), _)| is_due(*end));
            let Some((_, window)) = due.then(|| self.open.pop_first()).flatten() else { break };
            self.close(window, out)?;
        }
        self.reached = None;
        if let Reached::Watermark(watermark) = reached {
            if self.bounds.is_some() {
                self.watermark = watermark.0;
            }
            out.watermark(watermark);
        }
        Ok(())
    }

    /// Gives some rows of a window, and what is left of it.
    fn give_some(&self, mut giving: Giving, out: &mut Output) -> Result<Option<Giving>, Error> {
        for _ in 0..PIECES_AT_ONCE {
            let to = giving.order.len().min(giving.from + giving.piece);
            if giving.from == to {
                return Ok(None);
            }
            let rows = giving.rows.chosen(&self.input, &giving.order[giving.from..to])?;
            let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
            columns.push(Arc::new(Int64Array::from(giving.numbers[giving.from..to].to_vec())));
            let given = RecordBatch::try_new(self.schema.clone(), columns)
                .map_err(|error| Error::internal("Over", error))?;
            out.batch(StreamBatch::inserts(given, giving.arrived));
            giving.from = to;
        }
        Ok(Some(giving))
    }

    fn close(&mut self, open: OpenWindow, out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = open.arrived else { return Ok(()) };
        let (numbers, order) = open.rows.ordered(&self.order, self.ties)?;
        let parts = partitions(&numbers, &order);
        let all = open.rows.len();
        if let Some(most) = self.most_rows() {
            let (mut first, mut numbers) = (Vec::new(), Vec::new());
            for part in parts {
                let count = most.min(part.to - part.from);
                first.extend_from_slice(&order.values()[part.from..part.from + count]);
                numbers.extend(1..=count as i64);
            }
            out.counts.held -= all as u64;
            out.counts.used += first.len() as u64;
            out.counts.filtered += (all - first.len()) as u64;
            let piece = open.rows.batch_rows();
            let (rows, order) = (open.rows, first);
            self.giving = Some(Giving { rows, order, numbers, from: 0, piece, arrived });
            return Ok(());
        }
        let rows = open.rows.chosen(&self.input, order.values())?;
        drop(open.rows);
        let times = match self.order.as_slice() {
            [only] => event_times(&evaluate(&only.expr, &rows)?).ok().map(|(times, _)| times),
            _ => None,
        };
        let peers = self.peers(&rows)?;
        let work = Work::new(&rows, &parts, times.as_deref(), |row| match &peers {
            Some(peers) => peers.row(row) != peers.row(row - 1),
            None => false,
        });
        let mut computer = Computer::try_new(&self.calls, &self.input)?;
        computer.grow(open.partitions.bound());
        let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
        columns.extend(computer.run(&work)?);
        let mut given = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal("Over", error))?;
        if let Some(limit) = self.limit {
            let ranks = given.column(rows.num_columns() + limit.call).as_primitive::<Int64Type>();
            let kept: BooleanArray = ranks.values().iter().map(|rank| Some(*rank <= limit.most)).collect();
            given = filter_record_batch(&given, &kept).map_err(|error| arrow_failure(&error))?;
        }
        let count = given.num_rows();
        out.counts.held -= all as u64;
        out.counts.used += count as u64;
        out.counts.filtered += (all - count) as u64;
        for start in (0..count).step_by(BATCH_ROWS) {
            let rows = given.slice(start, BATCH_ROWS.min(count - start));
            out.batch(StreamBatch::inserts(rows, arrived));
        }
        Ok(())
    }

    /// The window of each row.
    fn windows(&self, rows: &RecordBatch) -> Result<Vec<(i64, i64)>, Error> {
        let Some((bounds, _)) = &self.bounds else { return Ok(vec![(i64::MAX, 0); rows.num_rows()]) };
        let (starts, _) = event_times(rows.column(bounds.start))?;
        let (ends, _) = event_times(rows.column(bounds.end))?;
        Ok(ends.iter().copied().zip(starts.iter().copied()).collect())
    }

    /// The values of ORDER BY, equal where rows are peers; `None`: all rows are.
    fn peers(&self, rows: &RecordBatch) -> Result<Option<arrow::row::Rows>, Error> {
        if self.order.is_empty() {
            return Ok(None);
        }
        let columns = self.order.iter().map(|key| evaluate(&key.expr, rows).map(one_nan_and_zero));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        let fields = columns.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(|error| arrow_failure(&error))?;
        converter.convert_columns(&columns).map(Some).map_err(|error| arrow_failure(&error))
    }
}

/// The partitions of rows that are ordered by partition.
fn partitions(numbers: &UInt32Array, order: &UInt32Array) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut from = 0;
    let group = |place: &u32| numbers.value(*place as usize);
    for run in order.values().chunk_by(|one, other| group(one) == group(other)) {
        parts.push(Part { group: group(&run[0]), from, new: from, to: from + run.len() });
        from += run.len();
    }
    parts
}

impl Operator for OverAtClose {
    fn name(&self) -> &'static str {
        "Over"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("Over", "the input is no stream of inserts"));
        }
        self.take(&batch, out)
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

    /// The partitions of open windows as they were first seen, and the rows of windows in the order of arrival.
    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let (mut ends, mut starts) = (Vec::new(), Vec::new());
        let mut pieces = vec![self.keys.columns(&KeyNumbers::default(), &[])?];
        for ((end, start), open) in &self.open {
            let all: Vec<u32> = (0..open.partitions.bound() as u32).collect();
            pieces.push(self.keys.columns(&open.partitions, &all)?);
            ends.resize(ends.len() + all.len(), *end);
            starts.resize(starts.len() + all.len(), *start);
        }
        let column = |place: usize| -> Result<ArrayRef, Error> {
            let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece[place].as_ref()).collect();
            concat(&pieces).map_err(|error| arrow_failure(&error))
        };
        let keys: Vec<usize> = (0..self.partition.len()).collect();
        let mut columns = keys.iter().map(|key| column(*key)).collect::<Result<Vec<_>, _>>()?;
        columns.push(Arc::new(Int64Array::from(ends)));
        columns.push(Arc::new(Int64Array::from(starts)));
        state.columns("partitions", columns, &keys)?;
        let rows = self.open.values().flat_map(|open| open.rows.batches());
        state.table("rows", shared(&self.input, rows)?, &self.partition);
        state.number("watermark", self.watermark);
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        let lacks = || misfit("no rows of windows");
        let partitions = state.columns("partitions")?.ok_or_else(lacks)?;
        let [keys @ .., ends, starts] = partitions.as_slice() else { return Err(lacks()) };
        let ends = ends.as_primitive_opt::<Int64Type>().ok_or_else(lacks)?.values();
        let starts = starts.as_primitive_opt::<Int64Type>().ok_or_else(lacks)?.values();
        let keys = self.keys.keys_of(keys)?;
        for (row, window) in ends.iter().copied().zip(starts.iter().copied()).enumerate() {
            let open = self.open.entry(window).or_default();
            open.partitions.number(&keys, row);
            open.arrived = Some(state.arrived());
        }
        let rows = with_schema(&self.input, state.table("rows")?.ok_or_else(lacks)?)?;
        let (keys, windows) = (self.keys.rows(&rows)?, self.windows(&rows)?);
        let mut from = 0;
        for run in windows.chunk_by(|one, other| one == other) {
            let places = from..from + run.len();
            let open = self.open.get_mut(&run[0]).ok_or_else(lacks)?;
            let number = |row: usize| open.partitions.find(&keys, row).ok_or_else(lacks);
            let numbers = places.clone().map(number).collect::<Result<Vec<_>, _>>()?;
            let places = UInt32Array::from_iter_values(places.map(|place| place as u32));
            let own = take_record_batch(&rows, &places).map_err(|error| arrow_failure(&error))?;
            open.rows.push(own, UInt32Array::from(numbers));
            from += run.len();
        }
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        counts.held = rows.num_rows() as u64;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let size = |open: &OpenWindow| {
            let rows: usize = open.rows.batches().map(RecordBatch::get_array_memory_size).sum();
            rows + open.partitions.size()
        };
        let giving = self.giving.iter().flat_map(|giving| giving.rows.batches());
        let giving: usize = giving.map(RecordBatch::get_array_memory_size).sum();
        StateSize {
            windows: self.open.len(),
            rows: self.open.values().map(|open| open.rows.len()).sum(),
            bytes: self.open.values().map(size).sum::<usize>() + giving,
        }
    }
}

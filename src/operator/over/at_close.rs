//! OVER in windows when they close, and over all of a bounded input at its end.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat, concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use std::sync::Arc;

use super::compute::{Computer, Part, Work};
use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate, one_nan_and_zero};
use crate::operator::keys::{KeyFormat, KeyNumbers};
use crate::operator::late::{LateRows, Missed, Rejected};
use crate::operator::sort::{Ties, sort_indices};
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
    late: Option<LateRows>,
}

#[derive(Default)]
struct OpenWindow {
    partitions: KeyNumbers,
    /// Rows with the number of their partition, in the order of arrival.
    rows: Vec<(RecordBatch, UInt32Array)>,
    num_rows: usize,
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
            open.num_rows += rows.len();
            let numbers = rows.iter().map(|row| open.partitions.number(&keys, *row as usize));
            let numbers = UInt32Array::from_iter_values(numbers);
            let rows = match rows.len() == batch.num_rows() {
                true => batch.rows.clone(),
                false => take_record_batch(&batch.rows, &UInt32Array::from(rows))
                    .map_err(|error| arrow_failure(&error))?,
            };
            open.rows.push((rows, numbers));
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
        if open.num_rows > 2 * open.pruned + 4 * BATCH_ROWS {
            let (rows, numbers, order) = self.ordered(&mut open)?;
            let mut kept: Vec<u32> = Vec::new();
            for part in partitions(&numbers, &order) {
                kept.extend(&order.values()[part.from..part.to.min(part.from.saturating_add(most))]);
            }
            kept.sort_unstable();
            let dropped = rows.num_rows() - kept.len();
            out.counts.held -= dropped as u64;
            out.counts.filtered += dropped as u64;
            (open.num_rows, open.pruned) = (kept.len(), kept.len());
            let kept = UInt32Array::from(kept);
            let numbers =
                arrow::compute::take(&numbers, &kept, None).map_err(|error| arrow_failure(&error))?;
            let rows = take_record_batch(&rows, &kept).map_err(|error| arrow_failure(&error))?;
            open.rows.push((rows, numbers.as_primitive().clone()));
        }
        self.open.insert(window, open);
        Ok(())
    }

    /// All rows of a window in the order of arrival, their partitions, and their places by partition
    /// and ORDER BY.
    fn ordered(&self, open: &mut OpenWindow) -> Result<(RecordBatch, UInt32Array, UInt32Array), Error> {
        let (rows, numbers): (Vec<_>, Vec<_>) = std::mem::take(&mut open.rows).into_iter().unzip();
        let rows = concat_batches(&self.input, &rows).map_err(|error| arrow_failure(&error))?;
        let pieces: Vec<&dyn Array> = numbers.iter().map(|numbers| numbers as &dyn Array).collect();
        let numbers = concat(&pieces).map_err(|error| arrow_failure(&error))?;
        let order = sort_indices(&self.order, &rows, &[Arc::clone(&numbers)], self.ties, None)?;
        Ok((rows, numbers.as_primitive().clone(), order))
    }

    fn close(&self, mut open: OpenWindow, out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = open.arrived else { return Ok(()) };
        let (rows, numbers, mut order) = self.ordered(&mut open)?;
        let mut parts = partitions(&numbers, &order);
        let all = rows.num_rows();
        if let Some(most) = self.most_rows() {
            let first = |part: &Part| part.from..part.to.min(part.from.saturating_add(most));
            let kept = parts.iter().flat_map(|part| order.values()[first(part)].iter().copied());
            let kept = UInt32Array::from_iter_values(kept);
            parts = partitions(&numbers, &kept);
            order = kept;
        }
        let rows = take_record_batch(&rows, &order).map_err(|error| arrow_failure(&error))?;
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
        if let Some((_, assigner)) = &self.bounds {
            let assigner = assigner.clone();
            while let Some(first) = self.open.first_entry() {
                if assigner.close(first.key().0) > watermark.0 {
                    break;
                }
                let window = first.remove();
                self.close(window, out)?;
            }
            self.watermark = watermark.0;
        }
        out.watermark(watermark);
        Ok(())
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        while let Some((_, window)) = self.open.pop_first() {
            self.close(window, out)?;
        }
        Ok(())
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
        let rows = self.open.values().flat_map(|open| open.rows.iter().map(|(rows, _)| rows));
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
            open.rows.push((own, UInt32Array::from(numbers)));
            open.num_rows += run.len();
            from += run.len();
        }
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        counts.held = rows.num_rows() as u64;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let size = |open: &OpenWindow| {
            let rows: usize = open.rows.iter().map(|(rows, _)| rows.get_array_memory_size()).sum();
            rows + open.partitions.size()
        };
        StateSize {
            windows: self.open.len(),
            rows: self.open.values().map(|open| open.num_rows).sum(),
            bytes: self.open.values().map(size).sum(),
        }
    }
}

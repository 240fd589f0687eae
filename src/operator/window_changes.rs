//! Aggregation of a changelog per window.

use std::collections::BTreeMap;
use std::time::Instant;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::aggregate::{Aggregates, Step};
use super::keys::{KeyFormat, KeyNumbers};
use super::late::{LateRows, Missed, Rejected};
use super::window::{WindowAssigner, timestamps};
use super::{BATCH_ROWS, Operator, Output, StateSize};
use crate::error::Error;
use crate::plan::{WindowBounds, WindowChangesNode};
use crate::stream::{RowKind, RunningWatermark, StreamBatch, Watermark, event_times};

/// Aggregates rows that come and go per window and key, and gives what is true of a window when it closes.
///
/// Wakes on: watermarks. State: groups of open windows. Order: windows by their end, groups as they were
/// first seen. A change is late if the running watermark had closed its window: what was given stays.
///
/// Source: Flink's window aggregation over a changelog.
pub(super) struct WindowChanges {
    bounds: WindowBounds,
    assigner: WindowAssigner,
    /// The bounds, then the keys.
    format: KeyFormat,
    numbers: KeyNumbers,
    aggregates: Aggregates,
    groups: Vec<Group>,
    /// The groups of each open window, by end, then start.
    open: BTreeMap<(i64, i64), Vec<u32>>,
    watermark: i64,
    schema: SchemaRef,
    input: SchemaRef,
    arrived: Option<Instant>,
    late: Option<LateRows>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Group {
    rows: u64,
    is_listed: bool,
}

impl WindowChanges {
    pub(super) fn try_new(
        node: &WindowChangesNode,
        schema: &SchemaRef,
        input: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let columns: Vec<usize> =
            [node.bounds.start, node.bounds.end].into_iter().chain(node.keys.iter().copied()).collect();
        Ok(Self {
            bounds: node.bounds,
            assigner: WindowAssigner::attached(node.unit.us(), node.zone),
            format: KeyFormat::try_new(&columns, input)?,
            numbers: KeyNumbers::default(),
            aggregates: Aggregates::try_new(&node.aggregates, input)?,
            groups: Vec::new(),
            open: BTreeMap::new(),
            watermark: i64::MIN,
            schema: schema.clone(),
            input: input.clone(),
            arrived: None,
            late,
        })
    }

    fn take(&mut self, batch: &StreamBatch, out: &mut Output) -> Result<(), Error> {
        let (starts, no_start) = event_times(batch.rows.column(self.bounds.start))?;
        let (ends, no_end) = event_times(batch.rows.column(self.bounds.end))?;
        let keys = self.format.rows(&batch.rows)?;
        let kinds = batch.kinds.as_ref().map(|kinds| kinds.values());
        let (mut steps, mut rejected) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let running = batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
            let watermark = running.max(self.watermark);
            if [&no_start, &no_end].into_iter().flatten().any(|nulls| nulls.is_null(row)) {
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
            out.counts.used += 1;
            let number = self.numbers.number(&keys, row);
            self.groups.resize(self.numbers.bound().max(self.groups.len()), Group::default());
            let group = &mut self.groups[number as usize];
            if !group.is_listed {
                group.is_listed = true;
                self.open.entry((ends[row], starts[row])).or_default().push(number);
            }
            match kinds.map_or(RowKind::Insert, |kinds| kinds[row]) {
                RowKind::Insert | RowKind::UpdateAfter => {
                    group.rows += 1;
                    steps.push(Step::Add { group: number, row: row as u32 });
                }
                RowKind::UpdateBefore | RowKind::Delete => {
                    group.rows = group
                        .rows
                        .checked_sub(1)
                        .ok_or_else(|| Error::internal("WindowAggregate", "a row goes that never came"))?;
                    steps.push(Step::Remove { group: number, row: row as u32 });
                }
            }
        }
        if let Some(late) = &self.late {
            late.give(batch, &rejected, out)?;
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        self.run(&steps, &batch.rows).map(|_| ())
    }

    fn run(&mut self, steps: &[Step], rows: &RecordBatch) -> Result<Vec<ArrayRef>, Error> {
        let groups = self.groups.len();
        self.aggregates.run(steps, rows, groups)
    }

    /// Gives the groups of the windows that a watermark closes.
    fn close(&mut self, watermark: i64, out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = self.arrived else { return Ok(()) };
        let (mut given, mut closes, mut listed) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(first) = self.open.first_entry() {
            let close = self.assigner.close(first.key().0);
            if close > watermark {
                break;
            }
            for number in first.remove() {
                listed.push(number);
                if self.groups[number as usize].rows > 0 {
                    given.push(number);
                    closes.push(close);
                }
            }
        }
        if listed.is_empty() {
            return Ok(());
        }
        let steps = given.iter().map(|group| Step::Give { group: *group });
        let steps: Vec<Step> =
            steps.chain(listed.iter().map(|group| Step::Clear { group: *group })).collect();
        let nothing = RecordBatch::new_empty(self.input.clone());
        let values = self.run(&steps, &nothing)?;
        if !given.is_empty() {
            let mut keys = self.format.columns(&self.numbers, &given)?.into_iter();
            let mut columns: Vec<ArrayRef> = keys.by_ref().take(2).collect();
            let time_type = self.schema.field(2).data_type();
            let times = match time_type {
                DataType::Timestamp(_, Some(_)) => closes.clone(),
                _ => {
                    let (ends, _) = event_times(&columns[1])?;
                    ends.iter().map(|end| end.saturating_sub(self.assigner.unit_us())).collect()
                }
            };
            columns.push(timestamps(times, time_type)?);
            columns.extend(keys);
            columns.extend(values);
            let rows = RecordBatch::try_new(self.schema.clone(), columns)
                .map_err(|error| Error::internal("WindowAggregate", error))?;
            let before = closes.iter().map(|close| close.saturating_sub(self.assigner.unit_us()));
            let running = Some(RunningWatermark::new(before.collect::<Vec<_>>()));
            let count = rows.num_rows();
            let batch = StreamBatch { rows, kinds: None, running, arrived };
            for start in (0..count).step_by(BATCH_ROWS) {
                out.batch(batch.slice(start, BATCH_ROWS.min(count - start)));
            }
        }
        for number in listed {
            self.groups[number as usize] = Group::default();
            self.numbers.release(number);
        }
        Ok(())
    }
}

impl Operator for WindowChanges {
    fn name(&self) -> &'static str {
        "WindowAggregate"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        self.take(&batch, out)
    }

    fn process_watermark(&mut self, watermark: Watermark, out: &mut Output) -> Result<(), Error> {
        self.close(watermark.0, out)?;
        self.watermark = self.watermark.max(watermark.0);
        out.watermark(watermark);
        Ok(())
    }

    fn next_watermark(&self) -> Option<i64> {
        self.open.first_key_value().map(|((end, _), _)| self.assigner.clone().close(*end))
    }

    fn state(&self) -> StateSize {
        let aggregates = self.aggregates.size();
        let groups = self.groups.capacity() * size_of::<Group>();
        let bytes = aggregates + self.numbers.size() + groups;
        StateSize { windows: self.open.len(), rows: self.numbers.len(), bytes }
    }
}

//! Aggregation of a changelog per window.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, UInt64Array};
use arrow::datatypes::{DataType, SchemaRef, UInt64Type};
use arrow::record_batch::RecordBatch;

use super::aggregate::{Aggregates, GROUPS, Step};
use super::keys::{KeyFormat, KeyNumbers};
use super::late::{LateRows, Missed, Rejected};
use super::state::misfit;
use super::window::{WindowAssigner, timestamps};
use super::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
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

    /// Groups by window and key, those of a window as they were first seen, and how many rows each has.
    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        let groups: Vec<u32> = self.open.values().flatten().copied().collect();
        let mut columns = self.format.columns(&self.numbers, &groups)?;
        let keys: Vec<usize> = (2..columns.len()).collect();
        let rows = groups.iter().map(|group| self.groups[*group as usize].rows);
        columns.push(Arc::new(UInt64Array::from_iter_values(rows)));
        state.columns(GROUPS, columns, &keys)?;
        state.number("watermark", self.watermark);
        self.aggregates.snapshot(&groups, state)
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        let lacks = || misfit("no groups of windows");
        let columns = state.columns(GROUPS)?.ok_or_else(lacks)?;
        let (rows, keys) = columns.split_last().ok_or_else(lacks)?;
        let rows = rows.as_primitive_opt::<UInt64Type>().ok_or_else(lacks)?.values();
        let [start, end, ..] = keys else { return Err(lacks()) };
        let ((starts, _), (ends, _)) = (event_times(start)?, event_times(end)?);
        let keys = self.format.keys_of(keys)?;
        let mut groups = Vec::with_capacity(rows.len());
        for (row, rows) in rows.iter().enumerate() {
            let number = self.numbers.number(&keys, row);
            self.groups.resize(self.numbers.bound().max(self.groups.len()), Group::default());
            self.groups[number as usize] = Group { rows: *rows, is_listed: true };
            self.open.entry((ends[row], starts[row])).or_default().push(number);
            groups.push(number);
        }
        self.aggregates.restore(&groups, state)?;
        if !groups.is_empty() {
            self.arrived = Some(state.arrived());
        }
        self.watermark = state.lowest("watermark").unwrap_or(i64::MIN);
        counts.held = 0;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let aggregates = self.aggregates.size();
        let groups = self.groups.capacity() * size_of::<Group>();
        let bytes = aggregates + self.numbers.size() + groups;
        StateSize { windows: self.open.len(), rows: self.numbers.len(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{TimestampMillisecondArray, UInt32Array};
    use arrow::datatypes::{Field, Schema};
    use datafusion_functions_aggregate::count::count_udaf;
    use datafusion_physical_expr::aggregate::AggregateExprBuilder;

    use super::*;
    use crate::operator::testing::{self, MS, Row, column, input, plan_node, record_batch, respread, stamp};
    use crate::plan::{AggregateCall, Operation, PlanNode};
    use crate::stream::{RowKinds, TimeUnit};

    /// The time, key and value of a row, then the start and end of its window of 10 ms.
    fn windowed() -> SchemaRef {
        let mut fields = input().fields().to_vec();
        let bound = |name: &str| Arc::new(input().field(0).clone().with_name(name));
        fields.extend(["start", "end"].map(bound));
        Arc::new(Schema::new(fields))
    }

    fn rows(rows: &[(i64, &'static str, RowKind)]) -> testing::Step {
        let plain: Vec<Row> = rows.iter().map(|row| (Some(row.0), Some(row.1), Some(row.0))).collect();
        let mut columns = record_batch(&plain).columns().to_vec();
        for shift in [0, 10] {
            let bound = rows.iter().map(|row| row.0 / 10 * 10 + shift);
            columns.push(Arc::new(TimestampMillisecondArray::from_iter_values(bound)));
        }
        let mut batch =
            StreamBatch::inserts(RecordBatch::try_new(windowed(), columns).unwrap(), Instant::now());
        batch.kinds = Some(RowKinds::new(rows.iter().map(|row| row.2).collect::<Vec<_>>()));
        batch.running = Some(RunningWatermark::new(vec![i64::MIN; rows.len()]));
        testing::Step::First(batch)
    }

    fn node() -> PlanNode {
        let count = AggregateExprBuilder::new(count_udaf(), vec![column(2)]).schema(windowed()).alias("c");
        let count = AggregateCall {
            function: Arc::new(count.build().unwrap()),
            filter: None,
            order_sensitive: false,
            inexact: false,
        };
        let bounds = WindowBounds { start: 3, end: 4 };
        let node = WindowChangesNode {
            bounds,
            unit: TimeUnit::Millisecond,
            zone: None,
            keys: vec![1],
            aggregates: vec![count],
        };
        let mut fields: Vec<Field> = [3, 4, 0].map(|time| windowed().field(time).clone()).to_vec();
        fields.push(input().field(1).clone());
        fields.push(Field::new("c", DataType::Int64, true));
        plan_node(Operation::WindowChanges(Box::new(node)), Arc::new(Schema::new(fields)))
    }

    #[test]
    fn windows_go_on_in_other_subtasks() {
        use RowKind::{Delete, Insert};
        let names = ["a", "b", "c", "d", "e", "f"];
        let all = |time: i64| rows(&names.map(|name| (time, name, Insert)));
        let parts = [
            vec![all(1), all(11), rows(&[(2, "a", Insert), (12, "b", Insert)])],
            vec![rows(&[(1, "c", Delete), (2, "a", Delete)]), testing::Step::Watermark(9 * MS), all(3)],
            vec![rows(&[(11, "d", Delete), (13, "b", Insert)])],
        ];
        let given = respread(&node(), &windowed(), [&[1], &[]], &parts);
        let line = |start: i64, (name, count): &(&str, i64)| {
            let bounds = [start, start + 10, start + 9].map(stamp).join(",");
            format!("+I {bounds},{name},{count}")
        };
        // What came at 3 was late.
        let first = [("a", 1), ("b", 1), ("d", 1), ("e", 1), ("f", 1)];
        let second = [("a", 1), ("b", 3), ("c", 1), ("e", 1), ("f", 1)];
        let expected = first.iter().map(|one| line(0, one)).chain(second.iter().map(|one| line(10, one)));
        assert_eq!(given, expected.collect::<Vec<_>>());
    }

    #[test]
    fn groups_of_a_window_stay_in_the_order_in_which_they_were_seen() {
        let operator = || crate::operator::plain(&node(), &windowed()).unwrap();
        let (mut first, mut out) = (operator(), Output::default());
        let testing::Step::First(batch) = rows(&["z", "a", "m"].map(|name| (1, name, RowKind::Insert)))
        else {
            unreachable!("rows are of the first input");
        };
        let order = UInt32Array::from(vec![2, 0, 1]);
        let batch = crate::operator::calc::take_rows(&batch, &order).unwrap();
        first.process_batch(batch, &mut out).unwrap();
        let mut state = StateWriter::default();
        first.snapshot(&mut state).unwrap();
        let mut again = operator();
        again.restore(&mut StateReader::same(state.finish(), 0), &mut RowCounts::default()).unwrap();
        again.process_watermark(Watermark::MAX, &mut out).unwrap();
        let mut given = Vec::new();
        crate::operator::testing::drain(&mut out, &mut given);
        let keys: Vec<_> = given.iter().filter_map(|line| line.split(',').nth(3)).collect();
        assert_eq!(keys, ["m", "z", "a"]);
    }
}

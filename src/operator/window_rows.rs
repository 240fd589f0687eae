//! Rows with their windows.

use arrow::array::UInt32Array;
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::calc::take_rows;
use super::late::{LateRows, Rejected};
use super::window::{AssignerKind, WindowAssigner, timestamps};
use super::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::error::Error;
use crate::plan::WindowRowsNode;
use crate::stream::{RowKind, RowKinds, StreamBatch, event_times};

/// Adds `window_start`, `window_end` and `window_time` to each row, once for each of its windows in
/// order of their ends. Nothing is late here.
///
/// Wakes on: batches. State: none. Order: kept. Watermark: forwarded unchanged.
pub(super) struct WindowRows {
    time: usize,
    assigner: WindowAssigner,
    schema: SchemaRef,
    /// The second output, if somebody wants it: rows without event time.
    late: Option<LateRows>,
}

impl WindowRows {
    pub(super) fn try_new(
        node: &WindowRowsNode,
        schema: &SchemaRef,
        late: Option<LateRows>,
    ) -> Result<Self, Error> {
        let assigner = WindowAssigner::try_new(&node.window)?;
        if assigner.kind() == AssignerKind::Global {
            return Err(Error::internal("WindowRows", "the global window has no bounds"));
        }
        Ok(Self { time: node.time, assigner, schema: schema.clone(), late })
    }
}

impl Operator for WindowRows {
    fn name(&self) -> &'static str {
        "WindowRows"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let (times, nulls) = event_times(batch.rows.column(self.time))?;
        let mut picks: Vec<u32> = Vec::with_capacity(times.len());
        let (mut starts, mut ends, mut closes) = (Vec::new(), Vec::new(), Vec::new());
        let mut used = 0;
        for (row, time) in times.iter().copied().enumerate() {
            if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            used += 1;
            let time = self.assigner.local(time);
            for end in self.assigner.ends(self.assigner.slice_start(time)).iter() {
                picks.push(row as u32);
                starts.push(self.assigner.window_start(end));
                ends.push(end);
            }
        }
        out.counts.used += used;
        out.counts.null_time += times.len() as u64 - used;
        if let (Some(late), Some(nulls)) = (&self.late, &nulls) {
            late.give(&batch, &without_time(nulls, &batch), out)?;
        }
        let at = self.schema.fields().len() - 3;
        let time_type = self.schema.field(at + 2).data_type();
        if matches!(time_type, DataType::Timestamp(_, Some(_))) {
            closes.extend(ends.iter().map(|end| self.assigner.close(*end)));
        } else {
            closes.extend(ends.iter().map(|end| end.saturating_sub(self.assigner.unit_us())));
        }
        let one_each = picks.len() == batch.num_rows() && used == times.len() as u64;
        let mut batch = if one_each { batch } else { take_rows(&batch, &UInt32Array::from(picks))? };
        if let Some(kinds) = batch.kinds.as_ref().filter(|_| !one_each) {
            // Both forms of an update need not stand side by side any more.
            let alone = kinds.values().iter().map(|kind| match kind {
                RowKind::Insert | RowKind::UpdateAfter => RowKind::Insert,
                RowKind::UpdateBefore | RowKind::Delete => RowKind::Delete,
            });
            batch.kinds = Some(RowKinds::new(alone.collect::<Vec<_>>()));
        }
        let mut columns = batch.rows.columns().to_vec();
        columns.push(timestamps(starts, self.schema.field(at).data_type())?);
        columns.push(timestamps(ends, self.schema.field(at + 1).data_type())?);
        columns.push(timestamps(closes, time_type)?);
        let rows = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal("WindowRows", error))?;
        out.batch(StreamBatch { rows, ..batch });
        Ok(())
    }

    /// It keeps nothing.
    fn snapshot(&mut self, _state: &mut StateWriter) -> Result<(), Error> {
        Ok(())
    }

    fn restore(&mut self, _state: &mut StateReader, _counts: &mut RowCounts) -> Result<(), Error> {
        Ok(())
    }
}

fn without_time(nulls: &NullBuffer, batch: &StreamBatch) -> Vec<Rejected> {
    let before = |row: usize| batch.running.as_ref().map_or(i64::MIN, |running| running.values()[row]);
    let rows = nulls.iter().enumerate().filter(|(_, is_valid)| !is_valid);
    rows.map(|(row, _)| Rejected::without_time(row, before(row))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema, TimeUnit as ArrowUnit};

    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{MS, Row, input, plan_node, run, stamp};
    use crate::plan::{Operation, WindowKind, WindowSpec};
    use crate::stream::TimeUnit;

    fn windows(kind: WindowKind, rows: &[Row]) -> (Vec<String>, crate::operator::RowCounts) {
        let window = WindowSpec { kind, offset_us: 0, zone: None, unit: TimeUnit::Millisecond };
        let mut fields: Vec<Field> = input().fields().iter().map(|field| field.as_ref().clone()).collect();
        for name in ["window_start", "window_end", "window_time"] {
            fields.push(Field::new(name, DataType::Timestamp(ArrowUnit::Millisecond, None), false));
        }
        let node = plan_node(
            Operation::WindowRows(WindowRowsNode { time: 0, window, partition: vec![] }),
            Arc::new(Schema::new(fields)),
        );
        let one = run(create(&node, &input()).unwrap().as_mut(), rows, 0, 1);
        let all = run(create(&node, &input()).unwrap().as_mut(), rows, 0, rows.len());
        assert_eq!(one, all);
        one
    }

    fn line(time: i64, value: i64, start: i64, end: i64) -> String {
        format!("{},NULL,{value},{},{},{}", stamp(time), stamp(start), stamp(end), stamp(end - 1))
    }

    #[test]
    fn each_row_once_for_each_of_its_windows() {
        let rows = [(Some(7), None, Some(1)), (None, None, Some(2)), (Some(-1), None, Some(3))];
        let (given, counts) = windows(WindowKind::Tumble { size_us: 5 * MS }, &rows);
        assert_eq!(given, [line(7, 1, 5, 10), line(-1, 3, -5, 0)], "a late row passes");
        assert_eq!((counts.used, counts.null_time, counts.late), (2, 1, 0));
        let (given, _) = windows(WindowKind::Hop { slide_us: 5 * MS, size_us: 10 * MS }, &rows);
        let expected = [line(7, 1, 0, 10), line(7, 1, 5, 15), line(-1, 3, -10, 0), line(-1, 3, -5, 5)];
        assert_eq!(given, expected);
        let (given, _) = windows(WindowKind::Cumulate { step_us: 5 * MS, size_us: 10 * MS }, &rows[..1]);
        assert_eq!(given, [line(7, 1, 0, 10)]);
    }
}

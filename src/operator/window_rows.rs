//! Rows with their windows.

use arrow::array::UInt32Array;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::calc::take_rows;
use super::window::{AssignerKind, WindowAssigner, timestamps};
use super::{Operator, Output};
use crate::error::Error;
use crate::plan::WindowRowsNode;
use crate::stream::{StreamBatch, event_times};

/// Adds `window_start`, `window_end` and `window_time` to each row, once for each of its windows in
/// order of their ends. Nothing is late here.
///
/// Wakes on: batches. State: none. Order: kept. Watermark: forwarded unchanged.
pub(super) struct WindowRows {
    time: usize,
    assigner: WindowAssigner,
    schema: SchemaRef,
}

impl WindowRows {
    pub(super) fn try_new(node: &WindowRowsNode, schema: &SchemaRef) -> Result<Self, Error> {
        let assigner = WindowAssigner::try_new(&node.window)?;
        if assigner.kind() == AssignerKind::Global {
            return Err(Error::internal("WindowRows", "the global window has no bounds"));
        }
        Ok(Self { time: node.time, assigner, schema: schema.clone() })
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
        let at = self.schema.fields().len() - 3;
        let time_type = self.schema.field(at + 2).data_type();
        if matches!(time_type, DataType::Timestamp(_, Some(_))) {
            closes.extend(ends.iter().map(|end| self.assigner.close(*end)));
        } else {
            closes.extend(ends.iter().map(|end| end.saturating_sub(self.assigner.unit_us())));
        }
        let one_each = picks.len() == batch.num_rows() && used == times.len() as u64;
        let batch = if one_each { batch } else { take_rows(&batch, &UInt32Array::from(picks))? };
        let mut columns = batch.rows.columns().to_vec();
        columns.push(timestamps(starts, self.schema.field(at).data_type())?);
        columns.push(timestamps(ends, self.schema.field(at + 1).data_type())?);
        columns.push(timestamps(closes, time_type)?);
        let rows = RecordBatch::try_new(self.schema.clone(), columns)
            .map_err(|error| Error::internal("WindowRows", error))?;
        out.batch(StreamBatch { rows, ..batch });
        Ok(())
    }
}

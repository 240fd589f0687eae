//! Filter, then projection.

use arrow::array::{BooleanArray, UInt32Array};
use arrow::compute::{filter_record_batch, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::evaluate::{arrow_failure, evaluate, evaluate_condition};
use super::{Operator, Output};
use crate::error::Error;
use crate::plan::{CalcNode, ExprRef};
use crate::stream::{RowKinds, RunningWatermark, StreamBatch};

/// Keeps the rows for which the filter is true (NULL counts as false) and computes columns of them.
///
/// Wakes on: batches. State: none. Order: kept. Watermark: forwarded unchanged. An expression of
/// the projection sees only rows that passed the filter. Columns that are passed on are not copied.
pub(super) struct Calc {
    filter: Option<ExprRef>,
    project: Vec<ExprRef>,
    schema: SchemaRef,
}

impl Calc {
    pub(super) fn new(node: &CalcNode, schema: &SchemaRef) -> Self {
        Self { filter: node.filter.clone(), project: node.project.clone(), schema: schema.clone() }
    }

    fn project(&self, rows: &RecordBatch) -> Result<RecordBatch, Error> {
        let columns = self.project.iter().map(|expr| evaluate(expr, rows)).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal("Calc", error))
    }
}

impl Operator for Calc {
    fn name(&self) -> &'static str {
        "Calc"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let batch = match &self.filter {
            None => batch,
            Some(condition) => {
                let mask = evaluate_condition(condition, &batch.rows)?;
                let rows = batch.num_rows();
                let kept = keep(batch, &mask)?;
                out.counts.filtered += (rows - kept.num_rows()) as u64;
                kept
            }
        };
        if batch.num_rows() == 0 {
            return Ok(());
        }
        out.counts.used += batch.num_rows() as u64;
        let rows = self.project(&batch.rows)?;
        out.batch(StreamBatch { rows, ..batch });
        Ok(())
    }
}

/// The rows whose bit is set, with what stands beside them. `mask` has no NULL.
fn keep(batch: StreamBatch, mask: &BooleanArray) -> Result<StreamBatch, Error> {
    let kept = mask.true_count();
    if kept == mask.len() {
        return Ok(batch);
    }
    if kept == 0 {
        return Ok(batch.slice(0, 0));
    }
    let rows = filter_record_batch(&batch.rows, mask).map_err(|error| arrow_failure(&error))?;
    let positions = || mask.values().set_indices();
    let running = batch.running.as_ref().map(|running| {
        let values = running.values();
        RunningWatermark::new(positions().map(|row| values[row]).collect::<Vec<_>>())
    });
    let kinds = batch.kinds.as_ref().map(|kinds| {
        let values = kinds.values();
        RowKinds::new(positions().map(|row| values[row]).collect::<Vec<_>>())
    });
    Ok(StreamBatch { rows, kinds, running, arrived: batch.arrived })
}

/// The rows at `indices` in that order, with what stands beside them. The running watermark must
/// not fall: `indices` are ascending, repeats allowed.
pub(super) fn take_rows(batch: &StreamBatch, indices: &UInt32Array) -> Result<StreamBatch, Error> {
    let rows = take_record_batch(&batch.rows, indices).map_err(|error| arrow_failure(&error))?;
    let running = batch.running.as_ref().map(|running| {
        let values = running.values();
        RunningWatermark::new(indices.values().iter().map(|row| values[*row as usize]).collect::<Vec<_>>())
    });
    let kinds = batch.kinds.as_ref().map(|kinds| {
        let values = kinds.values();
        RowKinds::new(indices.values().iter().map(|row| values[*row as usize]).collect::<Vec<_>>())
    });
    Ok(StreamBatch { rows, kinds, running, arrived: batch.arrived })
}

//! Fired windows as batches.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array, UInt64Array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_expr::Aggregate;

use super::table::Results;
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::{BATCH_ROWS, Output};
use crate::stream::{RunningWatermark, StreamBatch, TimeUnit};

/// The bounds of a window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// On the clock that cuts the windows.
    pub(super) start: i64,
    /// On the clock that cuts the windows.
    pub(super) end: i64,
    /// UTC: its last instant.
    pub(super) close: i64,
}

/// Collects the results of windows and gives them in batches that are neither tiny nor huge.
pub(super) struct ResultBatches {
    schema: SchemaRef,
    /// Columns for the bounds of windows before the groups': 3, or 0 for the global window.
    bound_columns: usize,
    unit_us: i64,
    windows: Vec<(Bounds, Results)>,
    rows: usize,
}

impl ResultBatches {
    pub(super) fn new(schema: &SchemaRef, has_bounds: bool, unit_us: i64) -> Self {
        let bound_columns = if has_bounds { 3 } else { 0 };
        Self { schema: schema.clone(), bound_columns, unit_us, windows: Vec::new(), rows: 0 }
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds the results of a window that closes no sooner than the one before it.
    pub(super) fn add(
        &mut self,
        bounds: Bounds,
        results: Results,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        if results.0 == 0 {
            return Ok(());
        }
        self.rows += results.0;
        self.windows.push((bounds, results));
        if self.rows >= BATCH_ROWS { self.flush(arrived, out) } else { Ok(()) }
    }

    /// Gives what was collected.
    pub(super) fn flush(&mut self, arrived: Instant, out: &mut Output) -> Result<(), Error> {
        let windows = std::mem::take(&mut self.windows);
        let rows = std::mem::take(&mut self.rows);
        if windows.is_empty() {
            return Ok(());
        }
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        if self.bound_columns > 0 {
            columns.push(self.bound(&windows, rows, 0, |bounds| bounds.start)?);
            columns.push(self.bound(&windows, rows, 1, |bounds| bounds.end)?);
            let is_instant = matches!(self.schema.field(2).data_type(), DataType::Timestamp(_, Some(_)));
            let unit_us = self.unit_us;
            columns.push(self.bound(&windows, rows, 2, |bounds| {
                if is_instant { bounds.close } else { bounds.end.saturating_sub(unit_us) }
            })?);
        }
        for column in 0..self.schema.fields().len() - self.bound_columns {
            let mut parts: Vec<&dyn arrow::array::Array> = Vec::with_capacity(windows.len());
            for (_, (_, columns)) in &windows {
                let part = columns
                    .get(column)
                    .ok_or_else(|| Error::internal("WindowAggregate", "fewer columns than planned"))?;
                parts.push(part.as_ref());
            }
            let column = match windows.as_slice() {
                [(_, (_, columns))] => Arc::clone(&columns[column]),
                _ => concat(&parts).map_err(|error| arrow_failure(&error))?,
            };
            columns.push(self.as_planned(column, columns.len())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal("WindowAggregate", error))?;
        let running = (self.bound_columns > 0).then(|| {
            let before = |bounds: &Bounds| bounds.close.saturating_sub(self.unit_us);
            RunningWatermark::new(spread(&windows, rows, before))
        });
        let batch = StreamBatch { rows: batch, kinds: None, running, arrived };
        for start in (0..rows).step_by(BATCH_ROWS) {
            out.batch(batch.slice(start, BATCH_ROWS.min(rows - start)));
        }
        Ok(())
    }

    /// The grouping id in the type that the plan gives it; other columns as they are.
    fn as_planned(&self, column: ArrayRef, index: usize) -> Result<ArrayRef, Error> {
        let field = self.schema.field(index);
        if field.name() != Aggregate::INTERNAL_GROUPING_ID || column.data_type() == field.data_type() {
            return Ok(column);
        }
        cast(&column, field.data_type()).map_err(|error| arrow_failure(&error))
    }

    fn bound(
        &self,
        windows: &[(Bounds, Results)],
        rows: usize,
        column: usize,
        value: impl Fn(&Bounds) -> i64,
    ) -> Result<ArrayRef, Error> {
        timestamps(spread(windows, rows, value), self.schema.field(column).data_type())
    }
}

/// The value of each window, once for each of its rows.
fn spread(windows: &[(Bounds, Results)], rows: usize, value: impl Fn(&Bounds) -> i64) -> Vec<i64> {
    let mut values = Vec::with_capacity(rows);
    for (bounds, (groups, _)) in windows {
        values.resize(values.len() + groups, value(bounds));
    }
    values
}

/// A timestamp column of microseconds, in the unit of its type.
pub(in crate::operator) fn timestamps(values: Vec<i64>, data_type: &DataType) -> Result<ArrayRef, Error> {
    let Some(unit) = TimeUnit::of(data_type) else {
        return Err(Error::internal("window", format!("{data_type} can't hold the bounds of windows")));
    };
    let values = match unit {
        TimeUnit::Millisecond => values.into_iter().map(|us| us.div_euclid(1_000)).collect(),
        TimeUnit::Microsecond => values,
    };
    cast(&Int64Array::from(values), data_type).map_err(|error| arrow_failure(&error))
}

/// A column of numbers that are the same in each row.
pub(super) fn constant(value: i64, rows: usize) -> ArrayRef {
    Arc::new(Int64Array::from_value(value, rows))
}

/// A column of row numbers.
pub(super) fn numbers(values: Vec<u64>) -> ArrayRef {
    Arc::new(UInt64Array::from(values))
}

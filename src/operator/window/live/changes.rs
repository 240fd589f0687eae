//! Changes of results as batches of a changelog.

use std::time::Instant;

use arrow::array::{Array, ArrayRef};
use arrow::compute::kernels::cmp::distinct;
use arrow::compute::{cast, interleave};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_expr::Aggregate;

use super::super::results::{Bounds, timestamps};
use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::{BATCH_ROWS, Output};
use crate::stream::{RowKind, RowKinds, RunningWatermark, StreamBatch};

/// A row of columns that were added to [`Changes`].
#[derive(Debug, Clone, Copy)]
pub(in crate::operator::window) struct Place {
    pub(in crate::operator::window) columns: u32,
    pub(in crate::operator::window) row: u32,
}

/// A result that is new, one that has changed, or one that is gone.
#[derive(Debug, Clone, Copy)]
pub(in crate::operator::window) struct Change {
    /// Changes are given in this order.
    pub(in crate::operator::window) order: u32,
    pub(in crate::operator::window) bounds: Bounds,
    pub(in crate::operator::window) keys: Place,
    /// The values that were given before; `None`: the result is new.
    pub(in crate::operator::window) before: Option<Place>,
    /// The values that it has now; `None`: it is gone.
    pub(in crate::operator::window) after: Option<Place>,
    /// The watermark that held just before it.
    pub(in crate::operator::window) running: i64,
}

/// Collects changes and gives them as rows: `+I`, `-U` and `+U`, or `-D`.
pub(in crate::operator::window) struct Changes {
    schema: SchemaRef,
    /// Columns for the bounds of windows before the groups': 3, or 0 for the global window.
    bound_columns: usize,
    unit_us: i64,
    keys: Vec<Vec<ArrayRef>>,
    values: Vec<Vec<ArrayRef>>,
    changes: Vec<Change>,
}

impl Changes {
    pub(in crate::operator::window) fn new(schema: &SchemaRef, has_bounds: bool, unit_us: i64) -> Self {
        let bound_columns = if has_bounds { 3 } else { 0 };
        let (keys, values, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self { schema: schema.clone(), bound_columns, unit_us, keys, values, changes }
    }

    pub(in crate::operator::window) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Adds columns of keys that changes refer to; gives their number.
    pub(in crate::operator::window) fn add_keys(&mut self, columns: Vec<ArrayRef>) -> u32 {
        self.keys.push(columns);
        self.keys.len() as u32 - 1
    }

    /// Adds columns of aggregates that changes refer to; gives their number.
    pub(in crate::operator::window) fn add_values(&mut self, columns: Vec<ArrayRef>) -> u32 {
        self.values.push(columns);
        self.values.len() as u32 - 1
    }

    pub(in crate::operator::window) fn push(&mut self, change: Change) {
        self.changes.push(change);
    }

    /// Whether there are enough for a batch.
    pub(in crate::operator::window) fn is_full(&self) -> bool {
        self.changes.len() >= BATCH_ROWS
    }

    /// Gives what was collected.
    pub(in crate::operator::window) fn flush(
        &mut self,
        arrived: Instant,
        out: &mut Output,
    ) -> Result<(), Error> {
        let mut changes = std::mem::take(&mut self.changes);
        let (keys, values) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.values));
        if changes.is_empty() {
            return Ok(());
        }
        if !changes.is_sorted_by_key(|change| change.order) {
            changes.sort_by_key(|change| change.order);
        }
        let mut rows = Rows::default();
        for change in &changes {
            match (change.before, change.after) {
                (None, None) => {}
                (None, Some(after)) => rows.push(RowKind::Insert, change, after),
                (Some(before), None) => rows.push(RowKind::Delete, change, before),
                (Some(before), Some(after)) => {
                    rows.push(RowKind::UpdateBefore, change, before);
                    rows.push(RowKind::UpdateAfter, change, after);
                }
            }
        }
        let batch = StreamBatch {
            rows: self.record_batch(&rows, &keys, &values)?,
            kinds: rows.kinds.iter().any(|kind| *kind != RowKind::Insert).then(|| RowKinds::new(rows.kinds)),
            running: (self.bound_columns > 0).then(|| RunningWatermark::new(rows.running)),
            arrived,
        };
        give(&batch, out);
        Ok(())
    }

    fn record_batch(
        &self,
        rows: &Rows,
        keys: &[Vec<ArrayRef>],
        values: &[Vec<ArrayRef>],
    ) -> Result<RecordBatch, Error> {
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        if self.bound_columns > 0 {
            let fields = self.schema.fields();
            let column = |value: &dyn Fn(&Bounds) -> i64, data_type: &DataType| {
                timestamps(rows.bounds.iter().map(value).collect(), data_type)
            };
            columns.push(column(&|bounds| bounds.start, fields[0].data_type())?);
            columns.push(column(&|bounds| bounds.end, fields[1].data_type())?);
            let is_instant = matches!(fields[2].data_type(), DataType::Timestamp(_, Some(_)));
            let unit_us = self.unit_us;
            let time = move |bounds: &Bounds| {
                if is_instant { bounds.close } else { bounds.end.saturating_sub(unit_us) }
            };
            columns.push(column(&time, fields[2].data_type())?);
        }
        for (sets, places) in [(keys, &rows.keys), (values, &rows.values)] {
            for index in 0..sets.first().map_or(0, Vec::len) {
                let pieces: Vec<&dyn Array> = sets.iter().map(|set| set[index].as_ref()).collect();
                let column = interleave(&pieces, places).map_err(|error| arrow_failure(&error))?;
                columns.push(self.as_planned(column, columns.len())?);
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.kinds.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|error| Error::internal("WindowAggregate", error))
    }

    /// The grouping id in the type that the plan gives it; other columns as they are.
    fn as_planned(&self, column: ArrayRef, index: usize) -> Result<ArrayRef, Error> {
        let field = self.schema.field(index);
        if field.name() != Aggregate::INTERNAL_GROUPING_ID || column.data_type() == field.data_type() {
            return Ok(column);
        }
        cast(&column, field.data_type()).map_err(|error| arrow_failure(&error))
    }
}

/// What the rows of a batch are made of.
#[derive(Default)]
struct Rows {
    kinds: Vec<RowKind>,
    bounds: Vec<Bounds>,
    keys: Vec<(usize, usize)>,
    values: Vec<(usize, usize)>,
    running: Vec<i64>,
}

impl Rows {
    fn push(&mut self, kind: RowKind, change: &Change, values: Place) {
        self.kinds.push(kind);
        self.bounds.push(change.bounds);
        self.keys.push((change.keys.columns as usize, change.keys.row as usize));
        self.values.push((values.columns as usize, values.row as usize));
        self.running.push(change.running);
    }
}

/// Gives a batch in pieces that are not huge, and cut between updates.
pub(in crate::operator) fn give(batch: &StreamBatch, out: &mut Output) {
    let rows = batch.num_rows();
    let mut from = 0;
    while from < rows {
        let mut to = rows.min(from + BATCH_ROWS);
        if let Some(kinds) = &batch.kinds
            && kinds.values()[to - 1] == RowKind::UpdateBefore
        {
            to += 1;
        }
        out.batch(batch.slice(from, to - from));
        from = to;
    }
}

/// Which rows are not the same in both. The columns are of equal types, their NULLs equal.
pub(in crate::operator) fn changed(
    before: &[ArrayRef],
    after: &[ArrayRef],
    rows: usize,
) -> Result<Vec<bool>, Error> {
    let mut changed = vec![false; rows];
    for (before, after) in before.iter().zip(after) {
        if before.data_type().is_nested() {
            for (row, changed) in changed.iter_mut().enumerate() {
                *changed |= before.slice(row, 1).as_ref() != after.slice(row, 1).as_ref();
            }
            continue;
        }
        let differs = distinct(before, after).map_err(|error| arrow_failure(&error))?;
        for (changed, differs) in changed.iter_mut().zip(differs.values()) {
            *changed |= differs;
        }
    }
    Ok(changed)
}

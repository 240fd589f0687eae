//! All rows of a bounded input, sorted.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::evaluate::{arrow_failure, evaluate};
use super::{BATCH_ROWS, Operator, Output, StateSize};
use crate::error::Error;
use crate::plan::{SortKey, SortNode};
use crate::stream::StreamBatch;

/// Gives its rows in the order of the keys when the input has ended; ties keep arrival order.
///
/// Wakes on: the end. State: all rows; with a limit, a small multiple of it. Watermark: forwarded
/// unchanged, so the rows that come after it carry none.
pub(super) struct Sort {
    keys: Vec<SortKey>,
    fetch: Option<usize>,
    schema: SchemaRef,
    /// In arrival order.
    rows: Vec<RecordBatch>,
    held: usize,
    arrived: Option<Instant>,
}

impl Sort {
    pub(super) fn new(node: &SortNode, schema: &SchemaRef) -> Self {
        Self {
            keys: node.keys.clone(),
            fetch: node.fetch,
            schema: schema.clone(),
            rows: Vec::new(),
            held: 0,
            arrived: None,
        }
    }

    /// All held rows as one batch, in arrival order, and the order of the result over it.
    fn ordered(&mut self) -> Result<(RecordBatch, UInt32Array), Error> {
        let rows = concat_batches(&self.schema, &std::mem::take(&mut self.rows))
            .map_err(|error| arrow_failure(&error))?;
        let order = sort_indices(&self.keys, &rows, &[], self.fetch)?;
        Ok((rows, order))
    }

    /// Forgets rows that can't be among the first `fetch`.
    fn prune(&mut self, out: &mut Output) -> Result<(), Error> {
        let (rows, order) = self.ordered()?;
        let mut kept = order.values().to_vec();
        kept.sort_unstable();
        let dropped = rows.num_rows() - kept.len();
        let rows =
            take_record_batch(&rows, &UInt32Array::from(kept)).map_err(|error| arrow_failure(&error))?;
        self.held = rows.num_rows();
        self.rows.push(rows);
        out.counts.held -= dropped as u64;
        out.counts.filtered += dropped as u64;
        Ok(())
    }
}

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "Sort"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        if batch.kinds.is_some() {
            return Err(Error::internal("Sort", "the input is no stream of inserts"));
        }
        self.arrived = self.arrived.max(Some(batch.arrived));
        self.held += batch.num_rows();
        out.counts.held += batch.num_rows() as u64;
        if batch.num_rows() > 0 {
            self.rows.push(batch.rows);
        }
        match self.fetch {
            Some(fetch) if self.held > fetch.saturating_mul(2).max(4 * BATCH_ROWS) => self.prune(out),
            _ => Ok(()),
        }
    }

    fn finish(&mut self, out: &mut Output) -> Result<(), Error> {
        let Some(arrived) = self.arrived else { return Ok(()) };
        let (rows, order) = self.ordered()?;
        out.counts.held -= self.held as u64;
        out.counts.used += order.len() as u64;
        out.counts.filtered += (self.held - order.len()) as u64;
        self.held = 0;
        for start in (0..order.len()).step_by(BATCH_ROWS) {
            let chunk = order.slice(start, BATCH_ROWS.min(order.len() - start));
            let rows = take_record_batch(&rows, &chunk).map_err(|error| arrow_failure(&error))?;
            out.batch(StreamBatch::inserts(rows, arrived));
        }
        Ok(())
    }

    fn state(&self) -> StateSize {
        let bytes = self.rows.iter().map(RecordBatch::get_array_memory_size).sum();
        StateSize { windows: 0, rows: self.held, bytes }
    }
}

/// The order of `rows` by `before`, then by `keys`, then by position; at most `fetch` of it.
pub(super) fn sort_indices(
    keys: &[SortKey],
    rows: &RecordBatch,
    before: &[ArrayRef],
    fetch: Option<usize>,
) -> Result<UInt32Array, Error> {
    let length = u32::try_from(rows.num_rows())
        .map_err(|_| Error::internal("Sort", "more than 4,294,967,295 rows at once"))?;
    let ascending = |values: ArrayRef| SortColumn { values, options: None };
    let mut columns: Vec<SortColumn> = before.iter().cloned().map(ascending).collect();
    for key in keys {
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        columns.push(SortColumn { values: evaluate(&key.expr, rows)?, options: Some(options) });
    }
    columns.push(ascending(Arc::new(UInt32Array::from_iter_values(0..length))));
    lexsort_to_indices(&columns, fetch).map_err(|error| arrow_failure(&error))
}

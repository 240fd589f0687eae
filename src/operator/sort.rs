//! All rows of a bounded input, sorted.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices, take_record_batch};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::evaluate::{arrow_failure, evaluate, one_nan_and_zero};
use super::state::with_schema;
use super::{BATCH_ROWS, Operator, Output, RowCounts, StateReader, StateSize, StateWriter};
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
        let order = sort_indices(&self.keys, &rows, &[], Ties::EarliestFirst, self.fetch)?;
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

    fn snapshot(&mut self, state: &mut StateWriter) -> Result<(), Error> {
        if !self.rows.is_empty() {
            state.table("rows", self.rows.clone(), &[]);
        }
        Ok(())
    }

    fn restore(&mut self, state: &mut StateReader, counts: &mut RowCounts) -> Result<(), Error> {
        if let Some(rows) = state.table("rows")? {
            self.held = rows.num_rows();
            self.rows = vec![with_schema(&self.schema, rows)?];
            self.arrived = Some(state.arrived());
        }
        counts.held = self.held as u64;
        Ok(())
    }

    fn state(&self) -> StateSize {
        let bytes = self.rows.iter().map(RecordBatch::get_array_memory_size).sum();
        StateSize { windows: 0, rows: self.held, bytes }
    }
}

/// The order of rows that are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ties {
    /// That of arrival.
    EarliestFirst,
    /// The other way round.
    LatestFirst,
}

/// The order of `rows` by `before`, then by `keys`, then by position; at most `fetch` of it.
pub(super) fn sort_indices(
    keys: &[SortKey],
    rows: &RecordBatch,
    before: &[ArrayRef],
    ties: Ties,
    fetch: Option<usize>,
) -> Result<UInt32Array, Error> {
    let values = keys.iter().map(|key| evaluate(&key.expr, rows)).collect::<Result<_, _>>()?;
    sort_columns(keys, values, before, ties, fetch, rows.num_rows())
}

/// The same of so many rows, whose keys have these values.
pub(super) fn sort_columns(
    keys: &[SortKey],
    values: Vec<ArrayRef>,
    before: &[ArrayRef],
    ties: Ties,
    fetch: Option<usize>,
    rows: usize,
) -> Result<UInt32Array, Error> {
    let length =
        u32::try_from(rows).map_err(|_| Error::internal("Sort", "more than 4,294,967,295 rows at once"))?;
    let ascending = |values: ArrayRef| SortColumn { values, options: None };
    let mut columns: Vec<SortColumn> = before.iter().cloned().map(ascending).collect();
    for (key, values) in keys.iter().zip(values) {
        let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
        columns.push(SortColumn { values: one_nan_and_zero(values), options: Some(options) });
    }
    columns.push(ascending(match ties {
        Ties::EarliestFirst => Arc::new(UInt32Array::from_iter_values(0..length)),
        Ties::LatestFirst => Arc::new(UInt32Array::from_iter_values((0..length).rev())),
    }));
    lexsort_to_indices(&columns, fetch).map_err(|error| arrow_failure(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{Row, column, input, plan_node, run};
    use crate::plan::Operation;

    fn sorted(
        rows: &[Row],
        descending: bool,
        nulls_first: bool,
        fetch: Option<usize>,
        cut: usize,
    ) -> Vec<String> {
        let keys = vec![SortKey { expr: column(2), descending, nulls_first }];
        let node = plan_node(Operation::Sort(SortNode { keys, fetch }), input());
        let mut sort = create(&node, &input()).unwrap();
        let (given, counts) = run(sort.as_mut(), rows, 0, cut);
        assert_eq!(counts.held, 0);
        assert_eq!(counts.used, given.len() as u64);
        assert_eq!(counts.used + counts.filtered, rows.len() as u64);
        let tails = given.iter().map(|line| line.split_once(',').map_or("", |(_, tail)| tail).to_owned());
        tails.collect()
    }

    #[test]
    fn ties_keep_arrival_order_and_nulls_stand_where_asked() {
        let rows: Vec<Row> = vec![
            (None, Some("a"), Some(2)),
            (None, Some("b"), None),
            (None, Some("c"), Some(1)),
            (None, Some("d"), Some(2)),
        ];
        for cut in [1, 3, 4] {
            assert_eq!(sorted(&rows, false, false, None, cut), ["c,1", "a,2", "d,2", "b,NULL"]);
            assert_eq!(sorted(&rows, true, true, None, cut), ["b,NULL", "a,2", "d,2", "c,1"]);
            assert_eq!(sorted(&rows, false, false, Some(2), cut), ["c,1", "a,2"]);
            assert_eq!(sorted(&rows, false, false, Some(0), cut), Vec::<String>::new());
            assert_eq!(sorted(&[], false, false, None, cut), Vec::<String>::new());
        }
    }

    #[test]
    fn a_limit_keeps_few_rows_and_gives_the_same() {
        // 100,000 rows whose value falls: the last ones come first; three of each value.
        let rows: Vec<Row> = (0..100_000i64).map(|row| (None, None, Some((99_999 - row) / 3))).collect();
        let given = sorted(&rows, false, false, Some(4), 8192);
        assert_eq!(given, ["NULL,0", "NULL,0", "NULL,0", "NULL,1"]);
    }
}

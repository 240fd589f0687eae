//! Rows of two stores side by side.

use std::sync::Arc;

use arrow::array::UInt32Array;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::error::Error;
use crate::operator::evaluate::arrow_failure;
use crate::operator::store::RowStore;
use crate::plan::JoinKind;

/// The result's rows from the slots of their rows in both inputs; where there is none, NULL. Where the kind
/// gives no pairs, those of the first input alone.
pub(super) fn side_by_side(
    stores: [&RowStore; 2],
    rows: &[[Option<u32>; 2]],
    kind: JoinKind,
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    let inputs = if kind.gives_pairs() { 2 } else { 1 };
    for (input, store) in stores.into_iter().enumerate().take(inputs) {
        let present: Vec<u32> = rows.iter().filter_map(|row| row[input]).collect();
        let gathered = store.gather(&present)?;
        if present.len() == rows.len() {
            columns.extend_from_slice(gathered.columns());
            continue;
        }
        let mut next = 0;
        let mut place = |_: u32| {
            next += 1;
            next - 1
        };
        let places: UInt32Array = rows.iter().map(|row| row[input].map(&mut place)).collect();
        for column in gathered.columns() {
            let padded = arrow::compute::take(column, &places, None);
            columns.push(padded.map_err(|error| arrow_failure(&error))?);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| Error::internal("Join", error))
}

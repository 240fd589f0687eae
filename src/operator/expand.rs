//! Rows once for each grouping set.

use std::sync::Arc;

use arrow::array::{ArrayRef, new_null_array};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::ScalarValue;

use super::evaluate::failure;
use super::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::error::Error;
use crate::plan::{ExpandNode, grouping_id};
use crate::stream::StreamBatch;

/// Gives each row once for each grouping set: its columns, the keys, NULL where the set has them not, and the
/// number of the set.
///
/// Wakes on: batches. State: none. Order: of each set that of the rows. Watermark: forwarded unchanged.
pub(super) struct Expand {
    keys: Vec<usize>,
    /// Which keys are NULL in each set, and its number.
    sets: Vec<(Vec<bool>, ScalarValue)>,
    schema: SchemaRef,
}

impl Expand {
    pub(super) fn try_new(node: &ExpandNode, schema: &SchemaRef) -> Result<Self, Error> {
        let Some(id) = schema.fields().last() else {
            return Err(Error::internal("Expand", "the plan lacks the number of the set"));
        };
        let set = |index: usize| {
            let number = ScalarValue::UInt64(Some(grouping_id(&node.sets, index)));
            Ok((node.sets[index].clone(), number.cast_to(id.data_type()).map_err(failure)?))
        };
        let sets = (0..node.sets.len()).map(set).collect::<Result<_, Error>>()?;
        Ok(Self { keys: node.keys.clone(), sets, schema: Arc::clone(schema) })
    }
}

impl Operator for Expand {
    fn name(&self) -> &'static str {
        "Expand"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let count = batch.num_rows();
        out.counts.used += count as u64;
        for (nulls, number) in &self.sets {
            let mut columns: Vec<ArrayRef> = batch.rows.columns().to_vec();
            for (key, is_null) in self.keys.iter().zip(nulls) {
                let column = batch.rows.column(*key);
                columns.push(match is_null {
                    true => new_null_array(column.data_type(), count),
                    false => Arc::clone(column),
                });
            }
            columns.push(number.to_array_of_size(count).map_err(failure)?);
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let rows = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
                .map_err(|error| Error::internal("Expand", error))?;
            out.batch(StreamBatch { rows, ..batch.clone() });
        }
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

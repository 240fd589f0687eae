//! The items of an array as rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;

use super::calc::take_rows;
use super::evaluate::arrow_failure;
use super::{Operator, Output, RowCounts, StateReader, StateWriter};
use crate::error::Error;
use crate::plan::UnnestNode;
use crate::stream::{RowKind, RowKinds, StreamBatch};

/// Gives each row once for each item of its array, with the item behind its columns. An array of none, or
/// none at all, gives no row, or one with NULL.
///
/// Wakes on: batches. State: none. Order: kept, items in theirs. Watermark: forwarded unchanged. A row
/// that changes is taken away and added again, item by item.
pub(super) struct Unnest {
    column: usize,
    keeps_empty: bool,
    schema: SchemaRef,
}

impl Unnest {
    pub(super) fn new(node: &UnnestNode, schema: &SchemaRef) -> Self {
        Self { column: node.column, keeps_empty: node.keeps_empty, schema: schema.clone() }
    }
}

impl Operator for Unnest {
    fn name(&self) -> &'static str {
        "Unnest"
    }

    fn process_batch(&mut self, batch: StreamBatch, out: &mut Output) -> Result<(), Error> {
        let arrays = batch.rows.column(self.column);
        let Some(arrays) = arrays.as_list_opt::<i32>() else {
            return Err(Error::internal("Unnest", "the column is no array"));
        };
        let offsets = arrays.value_offsets();
        let (mut rows, mut items) = (Vec::new(), Vec::new());
        for row in 0..batch.num_rows() {
            let before = rows.len();
            if arrays.is_valid(row) {
                for item in offsets[row]..offsets[row + 1] {
                    rows.push(row as u32);
                    items.push(Some(item as u32));
                }
            }
            if rows.len() == before && self.keeps_empty {
                rows.push(row as u32);
                items.push(None);
            }
            let given = if rows.len() > before { &mut out.counts.used } else { &mut out.counts.filtered };
            *given += 1;
        }
        let items: ArrayRef =
            take(arrays.values(), &UInt32Array::from(items), None).map_err(|error| arrow_failure(&error))?;
        let mut given = take_rows(&batch, &UInt32Array::from(rows))?;
        given.kinds = given.kinds.map(|kinds| {
            let apart = |kind: &RowKind| match kind {
                RowKind::Insert | RowKind::UpdateAfter => RowKind::Insert,
                RowKind::Delete | RowKind::UpdateBefore => RowKind::Delete,
            };
            RowKinds::new(kinds.values().iter().map(apart).collect::<Vec<_>>())
        });
        let mut columns = given.rows.columns().to_vec();
        columns.push(items);
        given.rows = RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .map_err(|error| Error::internal("Unnest", error))?;
        out.batch(given);
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

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use arrow::array::{Int64Array, ListArray};
    use arrow::datatypes::{DataType, Field, Int64Type, Schema};

    use super::*;
    use crate::operator::create;
    use crate::operator::testing::{drain, plan_node};
    use crate::plan::Operation;

    fn unnested(
        keeps_empty: bool,
        kinds: Option<Vec<RowKind>>,
    ) -> (Vec<String>, Option<RowKinds>, (u64, u64)) {
        let lists = vec![Some(vec![Some(7), None]), Some(vec![]), None, Some(vec![Some(8)])];
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let list = Field::new("xs", lists.data_type().clone(), true);
        let input = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true), list.clone()]));
        let item = Field::new("x", DataType::Int64, true);
        let output = Arc::new(Schema::new(vec![Field::new("v", DataType::Int64, true), list, item]));
        let node = Operation::Unnest(UnnestNode { column: 1, keeps_empty });
        let mut unnest = create(&plan_node(node, output), &input).unwrap();
        let rows =
            RecordBatch::try_new(input, vec![Arc::new(Int64Array::from(vec![1, 2, 3, 4])), lists]).unwrap();
        let mut out = Output::default();
        let mut batch = StreamBatch::inserts(rows, Instant::now());
        batch.kinds = kinds.map(RowKinds::new);
        // The rows from the second on: offsets do not start at 0.
        let later = batch.slice(1, 3);
        unnest.process_batch(batch.slice(0, 1), &mut out).unwrap();
        unnest.process_batch(later, &mut out).unwrap();
        let last = out.elements.iter().rev().find_map(|element| match element {
            crate::stream::StreamElement::Batch(batch) => batch.kinds.clone(),
            _ => None,
        });
        let mut given = Vec::new();
        drain(&mut out, &mut given);
        let short = |line: &String| format!("{} {}", &line[..1], line.rsplit(',').next().unwrap());
        (given.iter().map(short).collect(), last, (out.counts.used, out.counts.filtered))
    }

    #[test]
    fn an_item_is_a_row() {
        assert_eq!(unnested(false, None), (vec!["1 7".into(), "1 NULL".into(), "4 8".into()], None, (2, 2)));
        let (rows, _, counts) = unnested(true, None);
        assert_eq!(
            (rows, counts),
            (vec!["1 7".into(), "1 NULL".into(), "2 NULL".into(), "3 NULL".into(), "4 8".into()], (4, 0))
        );
    }

    #[test]
    fn rows_of_a_changelog_go_and_come() {
        use RowKind::{Delete, Insert, UpdateAfter, UpdateBefore};
        let kinds = vec![Insert, Insert, UpdateBefore, UpdateAfter];
        let (_, kinds, _) = unnested(true, Some(kinds));
        assert_eq!(kinds.unwrap().values(), [Insert, Delete, Insert]);
    }
}

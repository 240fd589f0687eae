//! What flows between the two phases of a window aggregation.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_expr::Aggregate;

use super::WindowAggregateNode;
use crate::error::Error;

/// The grouping id's column type: the smallest unsigned integer that holds a bit for each key and
/// the number of the repeat of a grouping set.
///
/// Source: DataFusion's `Aggregate::grouping_id_type`, which its `grouping()` reads.
pub fn grouping_id_type(keys: usize, sets: &[Vec<bool>]) -> DataType {
    let repeats = (0..sets.len()).map(|index| grouping_set_ordinal(sets, index)).max().unwrap_or(0);
    Aggregate::grouping_id_type(keys, repeats)
}

/// The grouping id of the set at `index`: a bit for each key that is NULL in it, the last key
/// lowest, and above them how many equal sets stand before it.
pub fn grouping_id(sets: &[Vec<bool>], index: usize) -> u64 {
    let set = &sets[index];
    let mask = set.iter().fold(0u64, |mask, is_null| (mask << 1) | u64::from(*is_null));
    let ordinal = grouping_set_ordinal(sets, index) as u64;
    if set.len() < 64 { mask | (ordinal << set.len()) } else { mask }
}

fn grouping_set_ordinal(sets: &[Vec<bool>], index: usize) -> usize {
    sets[..index].iter().filter(|set| **set == sets[index]).count()
}

/// The columns that the `Local` phase of an aggregation gives and the `Final` phase takes.
///
/// Shape: `__slice_start` (`BIGINT` microseconds, on the clock that cuts the windows), the keys,
/// `__grouping_id` if there are grouping sets, `__first_row` (when the group's first row arrived,
/// as a number that grows), `__first_end` (the end of the first window that the states count for),
/// the accumulators' states. So key `i` is column `1 + i`.
///
/// # Errors
/// An internal error if a key's type or an aggregate's state can't be told.
pub fn local_schema(node: &WindowAggregateNode, input: &SchemaRef) -> Result<SchemaRef, Error> {
    let wrong = |error| Error::internal("local_schema", error);
    let mut fields = vec![Arc::new(Field::new("__slice_start", DataType::Int64, false))];
    for (index, key) in node.keys.iter().enumerate() {
        let data_type = key.data_type(input).map_err(wrong)?;
        fields.push(Arc::new(Field::new(format!("__key_{index}"), data_type, true)));
    }
    if let Some(sets) = &node.grouping_sets {
        let data_type = grouping_id_type(node.keys.len(), sets);
        fields.push(Arc::new(Field::new(Aggregate::INTERNAL_GROUPING_ID, data_type, false)));
    }
    fields.push(Arc::new(Field::new("__first_row", DataType::UInt64, false)));
    fields.push(Arc::new(Field::new("__first_end", DataType::Int64, false)));
    for (call, aggregate) in node.aggregates.iter().enumerate() {
        for (part, field) in aggregate.function.state_fields().map_err(wrong)?.iter().enumerate() {
            let named = field.as_ref().clone().with_name(format!("__state_{call}_{part}"));
            fields.push(Arc::new(named.with_nullable(true)));
        }
    }
    Ok(Arc::new(Schema::new(fields)))
}

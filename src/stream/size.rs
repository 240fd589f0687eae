//! How much data rows are, and how much room they take where room is counted in rows.

use arrow::array::{Array, ArrayRef, AsArray, OffsetSizeTrait};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use super::element::StreamBatch;

/// Rows up to this width count as one.
const ROW_BYTES: usize = 512;
/// Batches have about so many bytes at most, so that few wide rows don't fill the memory.
pub(crate) const BATCH_BYTES: usize = 4 << 20;

/// How much data the rows are, about: without what the columns share with other batches.
pub(crate) fn bytes_of(rows: &RecordBatch) -> usize {
    rows.columns().iter().map(column_bytes).sum()
}

/// How many rows of that width make a batch, one at least and `most` at most.
pub(crate) fn rows_of_width(bytes: usize, most: usize) -> usize {
    (BATCH_BYTES / bytes.max(1)).clamp(1, most.max(1))
}

impl StreamBatch {
    /// The room that it takes, in rows: wide ones count as several.
    pub(crate) fn load(&self) -> usize {
        self.num_rows().max(bytes_of(&self.rows) / ROW_BYTES)
    }
}

fn column_bytes(column: &ArrayRef) -> usize {
    let count = column.len();
    match column.data_type() {
        DataType::Utf8 => of_offsets(column.as_string::<i32>().offsets()),
        DataType::Binary => of_offsets(column.as_binary::<i32>().offsets()),
        DataType::Boolean => count.div_ceil(8),
        DataType::List(_) => {
            let list = column.as_list::<i32>();
            let (first, last) = ends(list.offsets());
            count * 4 + column_bytes(&list.values().slice(first, last - first))
        }
        DataType::Map(..) => {
            let map = column.as_map();
            let (first, last) = ends(map.offsets());
            let entries = map.entries().slice(first, last - first);
            count * 4 + entries.columns().iter().map(column_bytes).sum::<usize>()
        }
        DataType::Struct(_) => column.as_struct().columns().iter().map(column_bytes).sum(),
        other => count * other.primitive_width().unwrap_or(16),
    }
}

fn ends<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> (usize, usize) {
    let end = |offset: Option<&O>| offset.map_or(0, |offset| offset.as_usize());
    (end(offsets.first()), end(offsets.last()))
}

fn of_offsets<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>) -> usize {
    let (first, last) = ends(offsets);
    (offsets.len() - 1) * size_of::<O>() + (last - first)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use arrow::array::{BooleanArray, Int32Array, Int64Array, ListArray, StringArray, StructArray};
    use arrow::datatypes::{Field, Int64Type};

    use super::*;

    fn rows(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn bytes_are_those_of_the_rows_of_a_slice() {
        let rows = rows(vec![
            ("a", Arc::new(Int32Array::from_iter_values(0..100))),
            ("b", Arc::new(StringArray::from_iter_values((0..100).map(|_| "four")))),
            ("c", Arc::new(BooleanArray::from(vec![true; 100]))),
        ]);
        assert_eq!(bytes_of(&rows), 400 + 800 + 13);
        assert_eq!(bytes_of(&rows.slice(10, 8)), 32 + 64 + 1);
    }

    #[test]
    fn bytes_of_nested_columns_are_those_of_their_values() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..10).map(|_| "x".repeat(100))));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10));
        let fields = [("t", &texts), ("n", &numbers)];
        let fields = fields.map(|(name, column)| {
            (Arc::new(Field::new(name, column.data_type().clone(), true)), Arc::clone(column))
        });
        let lists = (0..10).map(|_| Some(vec![Some(1); 50]));
        let rows = rows(vec![
            ("s", Arc::new(StructArray::from(fields.to_vec()))),
            ("l", Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))),
        ]);
        assert_eq!(bytes_of(&rows), 10 * (104 + 8) + 10 * (4 + 400));
        assert_eq!(bytes_of(&rows.slice(3, 2)), 2 * (104 + 8) + 2 * (4 + 400));
    }

    #[test]
    fn a_wide_row_counts_as_several() {
        let narrow = rows(vec![("a", Arc::new(Int32Array::from_iter_values(0..100)))]);
        assert_eq!(StreamBatch::inserts(narrow, Instant::now()).load(), 100);
        let wide = StringArray::from_iter_values((0..10).map(|_| "x".repeat(5116)));
        assert_eq!(StreamBatch::inserts(rows(vec![("a", Arc::new(wide))]), Instant::now()).load(), 100);
    }

    #[test]
    fn a_batch_of_wide_rows_has_fewer() {
        assert_eq!(rows_of_width(100, 8192), 8192);
        assert_eq!(rows_of_width(4096, 8192), 1024);
        assert_eq!(rows_of_width(64 << 20, 8192), 1);
        assert_eq!((rows_of_width(0, 8192), rows_of_width(0, 0)), (8192, 1));
    }
}

//! The order of the rows of a partition.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, Rows, SortField};

use crate::error::Error;
use crate::operator::evaluate::{arrow_failure, evaluate, one_nan_and_zero};
use crate::operator::group_keys::fixed_width;
use crate::plan::SortKey;

/// A row in the order of its partition.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) key: OrderKey,
    /// The later the greater or, where the latest is first, the smaller.
    pub(super) arrival: i64,
    pub(super) slot: u32,
}

/// The values of ORDER BY of a row. Those of one operator are all of one kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OrderKey {
    /// Bytes of a fixed number, no more than these have, in the order of the bytes.
    Inline([u64; 3]),
    Bytes(Arc<[u8]>),
}

const INLINE_BYTES: usize = size_of::<[u64; 3]>();

/// Makes keys of rows.
pub(super) struct Order {
    keys: Vec<SortKey>,
    /// `None`: there is no ORDER BY, and all rows are equal.
    converter: Option<RowConverter>,
    /// How many bytes a key has, if they are inline.
    inline_bytes: Option<usize>,
}

/// The keys of the rows of a batch.
pub(super) struct OrderKeys {
    rows: Option<Rows>,
    is_inline: bool,
}

impl Order {
    pub(super) fn try_new(keys: &[SortKey], input: &SchemaRef) -> Result<Self, Error> {
        let (mut fields, mut bytes) = (Vec::with_capacity(keys.len()), Some(0));
        for key in keys {
            let options = SortOptions { descending: key.descending, nulls_first: key.nulls_first };
            let data_type = key.expr.data_type(input).map_err(|error| Error::internal("TopN", error))?;
            // Before each value stands a byte that tells NULL.
            bytes = bytes.zip(fixed_width(&data_type)).map(|(bytes, width)| bytes + 1 + width);
            fields.push(SortField::new_with_options(data_type, options));
        }
        let converter = match fields.is_empty() {
            true => None,
            false => Some(RowConverter::new(fields).map_err(|error| arrow_failure(&error))?),
        };
        let inline_bytes = bytes.filter(|bytes| *bytes <= INLINE_BYTES);
        Ok(Self { keys: keys.to_vec(), converter, inline_bytes })
    }

    /// The keys of rows.
    pub(super) fn keys(&self, rows: &RecordBatch) -> Result<OrderKeys, Error> {
        let columns = self.keys.iter().map(|key| evaluate(&key.expr, rows).map(one_nan_and_zero));
        self.keys_of(&columns.collect::<Result<Vec<_>, _>>()?)
    }

    /// The keys of rows from the columns that [`Order::columns`] gave.
    pub(super) fn keys_of(&self, columns: &[ArrayRef]) -> Result<OrderKeys, Error> {
        let is_inline = self.inline_bytes.is_some();
        let Some(converter) = &self.converter else { return Ok(OrderKeys { rows: None, is_inline }) };
        let rows = converter.convert_columns(columns).map_err(|error| arrow_failure(&error))?;
        Ok(OrderKeys { rows: Some(rows), is_inline })
    }

    /// The columns of ORDER BY of these keys.
    pub(super) fn columns<'a>(
        &self,
        keys: impl Iterator<Item = &'a OrderKey>,
    ) -> Result<Vec<ArrayRef>, Error> {
        let Some(converter) = &self.converter else { return Ok(Vec::new()) };
        let mut inline = Vec::new();
        let mut bytes: Vec<&[u8]> = Vec::new();
        for key in keys {
            match key {
                OrderKey::Bytes(key) => bytes.push(key),
                OrderKey::Inline(words) => inline.extend(words.map(u64::to_be_bytes)),
            }
        }
        let inline = inline.as_flattened();
        if let Some(width) = self.inline_bytes {
            bytes.extend(inline.chunks_exact(INLINE_BYTES).map(|key| &key[..width]));
        }
        let parser = converter.parser();
        let rows = bytes.iter().map(|key| parser.parse(key));
        converter.convert_rows(rows).map_err(|error| arrow_failure(&error))
    }
}

impl OrderKeys {
    fn inline(&self, row: usize) -> [u64; 3] {
        let mut bytes = [0; INLINE_BYTES];
        if let Some(rows) = &self.rows {
            let row = rows.row(row);
            bytes[..row.data().len()].copy_from_slice(row.data());
        }
        let word = |from: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[from..from + 8]);
            u64::from_be_bytes(word)
        };
        [word(0), word(8), word(16)]
    }

    /// The key of a row.
    pub(super) fn key(&self, row: usize) -> OrderKey {
        match &self.rows {
            Some(rows) if !self.is_inline => OrderKey::Bytes(Arc::from(rows.row(row).data())),
            _ => OrderKey::Inline(self.inline(row)),
        }
    }

    /// How the key of a row compares with another.
    pub(super) fn cmp(&self, row: usize, other: &OrderKey) -> Ordering {
        match (other, &self.rows) {
            (OrderKey::Bytes(other), Some(rows)) => rows.row(row).data().cmp(other),
            (OrderKey::Bytes(other), None) => [].as_slice().cmp(other),
            (OrderKey::Inline(other), _) => self.inline(row).cmp(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::testing::{Row, column, input, record_batch};

    /// The numbers of rows in the order of their keys.
    fn sorted(columns: &[(usize, bool)], rows: &[Row]) -> Vec<usize> {
        let key = |(index, descending): &(usize, bool)| SortKey {
            expr: column(*index),
            descending: *descending,
            nulls_first: *descending,
        };
        let keys: Vec<SortKey> = columns.iter().map(key).collect();
        let format = Order::try_new(&keys, &input()).unwrap();
        let keys = format.keys(&record_batch(rows)).unwrap();
        let all: Vec<OrderKey> = (0..rows.len()).map(|row| keys.key(row)).collect();
        let again = format.keys_of(&format.columns(all.iter()).unwrap()).unwrap();
        assert_eq!((0..rows.len()).map(|row| again.key(row)).collect::<Vec<_>>(), all);
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|row| keys.key(*row));
        for (row, other) in order.iter().zip(order.iter().skip(1)) {
            assert_ne!(keys.cmp(*row, &keys.key(*other)), Ordering::Greater);
            assert_eq!(keys.cmp(*row, &keys.key(*row)), Ordering::Equal);
        }
        order
    }

    #[test]
    fn keys_are_in_the_order_of_their_values() {
        let rows: Vec<Row> = vec![
            (Some(7), Some("b"), Some(-1)),
            (Some(-7), Some("bb"), Some(i64::MAX)),
            (None, None, Some(i64::MIN)),
            (Some(7), Some("a"), None),
            (Some(-7), Some("b"), Some(0)),
        ];
        // Inline.
        assert_eq!(sorted(&[(2, false)], &rows), [2, 0, 4, 1, 3]);
        assert_eq!(sorted(&[(0, true), (2, false)], &rows), [2, 0, 3, 4, 1]);
        // Bytes.
        assert_eq!(sorted(&[(1, false), (2, true)], &rows), [3, 4, 0, 1, 2]);
        // No order: as they come.
        assert_eq!(sorted(&[], &rows), [0, 1, 2, 3, 4]);
    }
}

//! How many rows a batch gets that a connector makes by itself.

use arrow::record_batch::RecordBatch;

use crate::stream::{bytes_of, rows_of_width};

/// Rows of the first batch at most: how wide they are shows there.
const FIRST: usize = 1024;

/// As many rows as asked for, fewer where they are wide.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchRows {
    most: usize,
    next: usize,
}

impl BatchRows {
    /// At most `most`, one at least.
    pub(super) fn new(most: usize) -> Self {
        let most = most.max(1);
        Self { most, next: most.min(FIRST) }
    }

    /// Rows of the next batch.
    pub(super) fn next(self) -> u64 {
        self.next as u64
    }

    /// The one after these rows has as many as fit.
    pub(super) fn follow(&mut self, rows: &RecordBatch) {
        if rows.num_rows() > 0 {
            self.next = rows_of_width(bytes_of(rows).div_ceil(rows.num_rows()), self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};

    use super::*;

    fn texts(rows: usize, length: usize) -> RecordBatch {
        let texts = StringArray::from_iter_values((0..rows).map(|_| "x".repeat(length)));
        RecordBatch::try_from_iter([("t", Arc::new(texts) as ArrayRef)]).unwrap()
    }

    #[test]
    fn a_batch_has_as_many_rows_as_those_before_are_narrow() {
        let mut rows = BatchRows::new(8192);
        assert_eq!(rows.next(), 1024);
        rows.follow(&texts(1024, 60));
        assert_eq!(rows.next(), 8192);
        rows.follow(&texts(100, 4092));
        assert_eq!(rows.next(), 1024);
        rows.follow(&texts(0, 0));
        assert_eq!(rows.next(), 1024);
        assert_eq!((BatchRows::new(7).next(), BatchRows::new(0).next()), (7, 1));
    }
}

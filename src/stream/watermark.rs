//! Watermarks: how far event time has come.

use arrow::buffer::ScalarBuffer;

/// No further row with an event time ≤ this is expected. Microseconds since the epoch, UTC.
///
/// Source: Flink's meaning (RisingWave and Arroyo mean `<`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watermark(pub i64);

impl Watermark {
    /// Nothing is known about time yet.
    pub const MIN: Self = Self(i64::MIN);
    /// The input has ended.
    pub const MAX: Self = Self(i64::MAX);
}

/// For each row of a batch, the watermark that held just before it. Never falling.
///
/// It is what makes lateness a property of the row and not of the batch it came in: slices are
/// views, filters keep the values of the rows that stay.
#[derive(Debug, Clone, PartialEq)]
pub struct RunningWatermark(ScalarBuffer<i64>);

impl RunningWatermark {
    /// Takes one value a row; each is ≥ the one before it.
    pub fn new(values: impl Into<ScalarBuffer<i64>>) -> Self {
        let values = values.into();
        debug_assert!(values.windows(2).all(|pair| pair[0] <= pair[1]), "running watermark fell");
        Self(values)
    }

    /// The same watermark before each of `rows` rows.
    pub fn constant(watermark: Watermark, rows: usize) -> Self {
        Self(vec![watermark.0; rows].into())
    }

    /// One value a row, microseconds.
    pub fn values(&self) -> &ScalarBuffer<i64> {
        &self.0
    }

    /// The values of `length` rows from `offset`, without a copy.
    pub fn slice(&self, offset: usize, length: usize) -> Self {
        Self(self.0.slice(offset, length))
    }

    /// The watermark before the last row; the highest of the batch. `None` without rows.
    pub fn last(&self) -> Option<Watermark> {
        self.0.last().copied().map(Watermark)
    }
}

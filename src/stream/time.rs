//! Event time inside the engine: `i64` microseconds since the epoch, UTC.

use arrow::array::{Array, AsArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, TimeUnit as ArrowUnit, TimestampMicrosecondType, TimestampMillisecondType};

use crate::error::Error;

/// Microseconds since 1970-01-01T00:00:00Z; negative before.
pub type EventTime = i64;

/// The step of a time attribute: what "one unit before the window's end" means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimeUnit {
    /// `TIMESTAMP(0..=3)`.
    Millisecond,
    /// `TIMESTAMP(4..=6)`.
    Microsecond,
}

impl TimeUnit {
    /// The unit's length in microseconds: 1,000 or 1.
    pub fn us(self) -> i64 {
        match self {
            Self::Millisecond => 1_000,
            Self::Microsecond => 1,
        }
    }

    /// The unit of a column type; `None` if the type can't be a time attribute.
    pub fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Timestamp(ArrowUnit::Millisecond, _) => Some(Self::Millisecond),
            DataType::Timestamp(ArrowUnit::Microsecond, _) => Some(Self::Microsecond),
            _ => None,
        }
    }
}

/// The event times of a timestamp column, in microseconds, and which of them are NULL.
///
/// Shape: one value a row; the value of a NULL row is unspecified. Microsecond columns are not copied.
///
/// # Errors
/// An internal error if the column is no `TIMESTAMP(p ≤ 6)`. A millisecond value that does not fit
/// microseconds (beyond the year 292,000) saturates.
pub fn event_times(column: &dyn Array) -> Result<(ScalarBuffer<i64>, Option<NullBuffer>), Error> {
    match column.data_type() {
        DataType::Timestamp(ArrowUnit::Millisecond, _) => {
            let array = column.as_primitive::<TimestampMillisecondType>();
            let values = array.values().iter().map(|ms| ms.saturating_mul(1_000)).collect::<Vec<_>>();
            Ok((values.into(), array.nulls().cloned()))
        }
        DataType::Timestamp(ArrowUnit::Microsecond, _) => {
            let array = column.as_primitive::<TimestampMicrosecondType>();
            Ok((array.values().clone(), array.nulls().cloned()))
        }
        other => Err(Error::internal("event_times", format!("{other} is no time attribute"))),
    }
}

//! Values of the tables `system.…`, and columns of them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, StringArray, TimestampMicrosecondArray,
    TimestampMillisecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit};

use crate::error::Error;
use crate::stream::Watermark;

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `STRING`.
    Text,
    /// `INT`.
    Small,
    /// `BIGINT`.
    Count,
    /// `DOUBLE`.
    Share,
    /// `BOOLEAN`.
    Flag,
    /// `TIMESTAMP(6)`: event time, on the clock of the rows.
    Time,
    /// `TIMESTAMP_LTZ(3)`.
    Instant,
}

impl Kind {
    pub(super) fn data_type(self, zone: &str) -> DataType {
        match self {
            Self::Text => DataType::Utf8,
            Self::Small => DataType::Int32,
            Self::Count => DataType::Int64,
            Self::Share => DataType::Float64,
            Self::Flag => DataType::Boolean,
            Self::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Instant => DataType::Timestamp(TimeUnit::Millisecond, Some(zone.into())),
        }
    }
}

/// A value; whole numbers, times in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Text(String),
    Whole(i64),
    Share(f64),
    Flag(bool),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Whole(i64::try_from(count).unwrap_or(i64::MAX))
    }
}

impl From<usize> for Cell {
    fn from(count: usize) -> Self {
        Self::from(count as u64)
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Cell {
    fn from(share: f64) -> Self {
        Self::Share(share)
    }
}

impl From<bool> for Cell {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl From<Watermark> for Cell {
    fn from(watermark: Watermark) -> Self {
        Self::Whole(watermark.0)
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A column of a kind. `wanted`: the type that the reader wants, which differs in the zone at most.
pub(super) fn column<'a>(
    kind: Kind,
    wanted: &DataType,
    cells: impl Iterator<Item = &'a Cell>,
) -> Result<ArrayRef, Error> {
    let whole = |cell: &Cell| match cell {
        Cell::Whole(value) => Some(*value),
        _ => None,
    };
    let column: ArrayRef = match kind {
        Kind::Text => Arc::new(
            cells
                .map(|cell| match cell {
                    Cell::Text(text) => Some(text.as_str()),
                    _ => None,
                })
                .collect::<StringArray>(),
        ),
        Kind::Small => Arc::new(
            cells
                .map(|cell| whole(cell).map(|value| i32::try_from(value).unwrap_or(i32::MAX)))
                .collect::<Int32Array>(),
        ),
        Kind::Count => Arc::new(cells.map(whole).collect::<Int64Array>()),
        Kind::Share => Arc::new(
            cells
                .map(|cell| match cell {
                    Cell::Share(share) => Some(*share),
                    _ => None,
                })
                .collect::<Float64Array>(),
        ),
        Kind::Flag => Arc::new(
            cells
                .map(|cell| match cell {
                    Cell::Flag(flag) => Some(*flag),
                    _ => None,
                })
                .collect::<BooleanArray>(),
        ),
        Kind::Time => Arc::new(cells.map(whole).collect::<TimestampMicrosecondArray>()),
        Kind::Instant => {
            let millis = cells.map(|cell| whole(cell).map(|us| us.div_euclid(1_000)));
            Arc::new(millis.collect::<TimestampMillisecondArray>().with_timezone("UTC"))
        }
    };
    cast(&column, wanted).map_err(|error| Error::internal("system", error))
}

//! Late rows: the second output of time operators.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Int64Array, IntervalMonthDayNanoArray, StringArray, UInt32Array, new_null_array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, IntervalMonthDayNano};
use arrow::record_batch::RecordBatch;

use super::Output;
use super::evaluate::arrow_failure;
use crate::error::Error;
use crate::plan::LateOutput;
use crate::stream::{StreamBatch, TimeUnit};

const DAY_US: i64 = 86_400_000_000;

/// A row that an operator can't use, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rejected {
    /// Its place in the batch.
    pub(super) row: u32,
    /// The watermark just before it.
    pub(super) watermark: i64,
    /// `None`: it has no event time.
    pub(super) late: Option<Missed>,
}

/// What a late row has missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missed {
    /// The last of its windows, on the clock that cuts windows.
    pub(super) window: Option<(i64, i64)>,
    /// How far the watermark is past the end of that window or, without windows, past the row.
    pub(super) by_us: i64,
}

impl Rejected {
    pub(super) fn without_time(row: usize, watermark: i64) -> Self {
        Self { row: row as u32, watermark, late: None }
    }
}

/// Makes rows of the second output.
#[derive(Debug)]
pub(super) struct LateRows {
    output: Arc<LateOutput>,
    /// The input's columns, in the order of the output's first ones; `None`: it has none of that name.
    columns: Vec<Option<usize>>,
    source: Option<usize>,
    split: Option<usize>,
}

impl LateRows {
    pub(super) fn new(output: &Arc<LateOutput>) -> Self {
        let mut columns: Vec<Option<usize>> = output.columns.iter().copied().map(Some).collect();
        columns.resize(output.width(), None);
        Self { output: Arc::clone(output), columns, source: output.source, split: output.split }
    }

    /// Those of each of two inputs.
    pub(super) fn of_two(output: &Arc<LateOutput>) -> [Self; 2] {
        let first = Self::new(output);
        let second = match &output.second {
            None => Self::new(output),
            Some(second) => Self {
                output: Arc::clone(output),
                columns: second.columns.clone(),
                source: second.source,
                split: second.split,
            },
        };
        [first, second]
    }

    /// Gives the rejected rows of a batch, in their order.
    pub(super) fn give(
        &self,
        batch: &StreamBatch,
        rejected: &[Rejected],
        out: &mut Output,
    ) -> Result<(), Error> {
        if rejected.is_empty() {
            return Ok(());
        }
        let places = UInt32Array::from_iter_values(rejected.iter().map(|rejected| rejected.row));
        let picked = |column: usize| {
            take(batch.rows.column(column), &places, None).map_err(|error| arrow_failure(&error))
        };
        let fields = self.output.schema.fields();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(fields.len());
        for (column, field) in self.columns.iter().zip(fields) {
            columns.push(match column {
                Some(column) => picked(*column)?,
                None => new_null_array(field.data_type(), rejected.len()),
            });
        }
        for field in &fields[self.columns.len()..] {
            columns.push(match field.name().as_str() {
                "late_reason" => {
                    let reason = |rejected: &Rejected| rejected.late.map_or("null_time", |_| "late");
                    Arc::new(StringArray::from_iter_values(rejected.iter().map(reason)))
                }
                "late_operator" => {
                    let name = std::iter::repeat_n(self.output.operator.as_str(), rejected.len());
                    Arc::new(StringArray::from_iter_values(name))
                }
                "late_window_start" => {
                    let start = |rejected: &Rejected| Some(rejected.late?.window?.0);
                    times(rejected.iter().map(start), field.data_type())?
                }
                "late_window_end" => {
                    let end = |rejected: &Rejected| Some(rejected.late?.window?.1);
                    times(rejected.iter().map(end), field.data_type())?
                }
                "late_watermark" => {
                    let known = |rejected: &Rejected| {
                        Some(rejected.watermark).filter(|watermark| *watermark > i64::MIN)
                    };
                    times(rejected.iter().map(known), field.data_type())?
                }
                "late_by" => {
                    let by = |rejected: &Rejected| Some(interval(rejected.late?.by_us));
                    Arc::new(IntervalMonthDayNanoArray::from_iter(rejected.iter().map(by)))
                }
                "late_source" => self.origin(self.source, &picked, rejected.len())?,
                "late_split" => self.origin(self.split, &picked, rejected.len())?,
                other => return Err(Error::internal("late rows", format!("no column \"{other}\""))),
            });
        }
        let rows = RecordBatch::try_new(Arc::clone(&self.output.schema), columns)
            .map_err(|error| Error::internal("late rows", error))?;
        out.late(StreamBatch::inserts(rows, batch.arrived));
        Ok(())
    }

    fn origin(
        &self,
        column: Option<usize>,
        picked: &impl Fn(usize) -> Result<ArrayRef, Error>,
        rows: usize,
    ) -> Result<ArrayRef, Error> {
        match column {
            Some(column) => cast(&picked(column)?, &DataType::Utf8).map_err(|error| arrow_failure(&error)),
            None => Ok(Arc::new(StringArray::new_null(rows))),
        }
    }
}

/// Microseconds as a column of timestamps.
pub(crate) fn times(
    values: impl Iterator<Item = Option<i64>>,
    data_type: &DataType,
) -> Result<ArrayRef, Error> {
    let Some(unit) = TimeUnit::of(data_type) else {
        return Err(Error::internal("late rows", format!("{data_type} is no time attribute")));
    };
    let values: Int64Array = values.map(|value| value.map(|us| us.div_euclid(unit.us()))).collect();
    cast(&values, data_type).map_err(|error| arrow_failure(&error))
}

/// Days and the rest, so that thousands of years fit.
fn interval(us: i64) -> IntervalMonthDayNano {
    let days = i32::try_from(us / DAY_US).unwrap_or(i32::MAX);
    IntervalMonthDayNano::new(0, days, us % DAY_US * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_thousands_of_years() {
        assert_eq!(interval(15 * 60_000_000), IntervalMonthDayNano::new(0, 0, 900_000_000_000));
        assert_eq!(interval(DAY_US + 1), IntervalMonthDayNano::new(0, 1, 1_000));
        assert_eq!(interval(0), IntervalMonthDayNano::new(0, 0, 0));
        assert_eq!(interval(5_000 * 366 * DAY_US).days, 5_000 * 366);
    }

    #[test]
    fn times_before_1970_round_down() {
        let kind = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
        let column = times([Some(-1), Some(1_999), None].into_iter(), &kind).unwrap();
        let expected = arrow::array::TimestampMillisecondArray::from(vec![Some(-1), Some(1), None]);
        assert_eq!(column.as_ref(), &expected as &dyn arrow::array::Array);
    }
}

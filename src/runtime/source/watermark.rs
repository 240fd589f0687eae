//! The watermark of a split: the running maximum of an expression over its rows.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use crate::error::Error;
use crate::operator::evaluate::evaluate;
use crate::plan::{ExprRef, SourceWatermark};
use crate::stream::event_times;

/// What rows ask the watermark to be, in microseconds.
#[derive(Debug, Clone)]
pub(super) enum WatermarkRule {
    /// The event time less a constant: no expression is evaluated.
    Delay(i64),
    /// Anything else.
    Expression(ExprRef),
}

impl WatermarkRule {
    /// The rule of a watermark declaration.
    pub(super) fn of(spec: &SourceWatermark, time_type: &DataType) -> Self {
        match spec.constant_delay_us(time_type) {
            Some(delay_us) => Self::Delay(delay_us),
            None => Self::Expression(Arc::clone(&spec.watermark)),
        }
    }

    /// One value a row; NULL asks for nothing.
    pub(super) fn wanted(
        &self,
        rows: &RecordBatch,
        times: &ScalarBuffer<i64>,
        time_nulls: Option<&NullBuffer>,
    ) -> Result<(ScalarBuffer<i64>, Option<NullBuffer>), Error> {
        match self {
            Self::Delay(0) => Ok((times.clone(), time_nulls.cloned())),
            Self::Delay(delay_us) => {
                let values: Vec<i64> = times.iter().map(|time| time.saturating_sub(*delay_us)).collect();
                Ok((values.into(), time_nulls.cloned()))
            }
            Self::Expression(expr) => {
                let array: ArrayRef = evaluate(expr, rows)?;
                event_times(array.as_ref())
            }
        }
    }
}

/// For each row the watermark just before it, and the one after the last. `current` is the one
/// before the first.
pub(super) fn run(wanted: &ScalarBuffer<i64>, nulls: Option<&NullBuffer>, current: i64) -> (Vec<i64>, i64) {
    let mut highest = current;
    let mut before = Vec::with_capacity(wanted.len());
    match nulls.filter(|nulls| nulls.null_count() > 0) {
        None => before.extend(wanted.iter().map(|value| {
            let just_before = highest;
            highest = highest.max(*value);
            just_before
        })),
        Some(nulls) => before.extend(wanted.iter().zip(nulls.iter()).map(|(value, is_valid)| {
            let just_before = highest;
            if is_valid {
                highest = highest.max(*value);
            }
            just_before
        })),
    }
    (before, highest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_sees_the_watermark_of_the_rows_before_it() {
        let (before, after) = run(&vec![5, 3, 9, 9, 1].into(), None, 4);
        assert_eq!((before, after), (vec![4, 5, 5, 9, 9], 9));
    }

    #[test]
    fn null_asks_for_nothing() {
        let nulls = NullBuffer::from(vec![true, false, true]);
        let (before, after) = run(&vec![5, 100, 7].into(), Some(&nulls), i64::MIN);
        assert_eq!((before, after), (vec![i64::MIN, 5, 5], 7));
    }
}

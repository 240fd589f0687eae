//! Watermarks that lie a fixed length of time behind the rows.

use arrow::datatypes::{DataType, IntervalMonthDayNano};
use datafusion_common::ScalarValue;
use datafusion_expr::Operator as BinaryOperator;
use datafusion_physical_expr::expressions::{BinaryExpr, Literal};

use super::SourceWatermark;
use crate::stream::TimeUnit;

impl SourceWatermark {
    /// How far the watermark lies behind the times of rows, microseconds, if that is one length:
    /// the declaration is `time` or `time - INTERVAL`. `time_type`: the type of the time.
    pub fn constant_delay_us(&self, time_type: &DataType) -> Option<i64> {
        if self.watermark.eq(&self.time) {
            return Some(0);
        }
        let binary = self.watermark.downcast_ref::<BinaryExpr>()?;
        if *binary.op() != BinaryOperator::Minus || !binary.left().eq(&self.time) {
            return None;
        }
        let literal = binary.right().downcast_ref::<Literal>()?;
        let ScalarValue::IntervalMonthDayNano(Some(interval)) = literal.value() else { return None };
        let IntervalMonthDayNano { months, days, nanoseconds } = *interval;
        let is_zoned = matches!(time_type, DataType::Timestamp(_, Some(_)));
        if months != 0 || (days != 0 && is_zoned) {
            // A day of a zone may have 23 hours.
            return None;
        }
        let unit_ns = match self.unit {
            TimeUnit::Millisecond => 1_000_000,
            TimeUnit::Microsecond => 1_000,
        };
        let whole_units = nanoseconds / unit_ns * unit_ns;
        i64::from(days).checked_mul(86_400_000_000)?.checked_add(whole_units / 1_000)
    }
}

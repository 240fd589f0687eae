//! The sum behind SUM and AVG: exact at any size, whatever the order of the rows.

use arrow::datatypes::{DataType, i256};
use datafusion_common::{Result, ScalarValue, exec_err, internal_err};

/// A sum of 128-bit numbers that can't overflow: `carry · 2¹²⁸ + low`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ExactSum {
    /// The lower 128 bits.
    pub(super) low: i128,
    /// How often the lower bits went round, upwards counted positive.
    pub(super) carry: i64,
}

impl ExactSum {
    /// Adds a number.
    pub(crate) fn add(&mut self, value: i128) {
        add(&mut self.low, &mut self.carry, value);
    }

    /// Takes a number away again.
    pub(crate) fn subtract(&mut self, value: i128) {
        let (low, wrapped) = self.low.overflowing_sub(value);
        self.low = low;
        if wrapped {
            self.carry += if value < 0 { 1 } else { -1 };
        }
    }

    /// Adds another sum.
    pub(crate) fn merge(&mut self, other: Self) {
        self.add(other.low);
        self.carry += other.carry;
    }

    /// The lower 128 bits, and how often they went round.
    #[cfg(feature = "runtime")]
    pub(crate) fn parts(self) -> (i128, i64) {
        (self.low, self.carry)
    }

    /// The sum of these parts.
    #[cfg(feature = "runtime")]
    pub(crate) fn of_parts(low: i128, carry: i64) -> Self {
        Self { low, carry }
    }

    fn to_i256(self) -> i256 {
        let sign = if self.low < 0 { -1 } else { 0 };
        i256::from_parts(self.low as u128, i128::from(self.carry) + sign)
    }

    fn to_i128(self) -> Option<i128> {
        (self.carry == 0).then_some(self.low)
    }
}

/// `low += value`, counting in `carry` when the 128 bits go round.
pub(super) fn add(low: &mut i128, carry: &mut i64, value: i128) {
    let (sum, wrapped) = low.overflowing_add(value);
    *low = sum;
    if wrapped {
        *carry += if value < 0 { -1 } else { 1 };
    }
}

/// What a sum becomes in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Finish {
    /// SUM of signed integers: BIGINT.
    SumSigned,
    /// SUM of unsigned integers.
    SumUnsigned,
    /// SUM of decimals: `DECIMAL(38, scale)`.
    SumDecimal {
        /// Scale of the input and the result.
        scale: i8,
    },
    /// AVG of integers: DOUBLE.
    AvgInteger,
    /// AVG of decimals.
    AvgDecimal {
        /// Digits after the point that the result has more than the input.
        more_digits: u8,
        /// Precision of the result.
        precision: u8,
        /// Scale of the result.
        scale: i8,
    },
}

/// A finished number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Finished {
    /// BIGINT.
    Signed(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// The digits of a decimal.
    Decimal(i128),
    /// DOUBLE.
    Double(f64),
}

impl Finish {
    /// For SUM or AVG of a type; `None` if DataFusion's own accumulators are fine for it.
    pub(crate) fn of(is_avg: bool, input: &DataType) -> Option<Self> {
        match (is_avg, input) {
            (false, DataType::Int64) => Some(Self::SumSigned),
            (false, DataType::UInt64) => Some(Self::SumUnsigned),
            (false, DataType::Decimal128(_, scale)) => Some(Self::SumDecimal { scale: *scale }),
            (true, DataType::Int64 | DataType::UInt64) => Some(Self::AvgInteger),
            (true, DataType::Decimal128(precision, scale)) => {
                let to = scale.saturating_add(4).min(38);
                Some(Self::AvgDecimal {
                    more_digits: (to - scale).unsigned_abs(),
                    precision: precision.saturating_add(4).min(38),
                    scale: to,
                })
            }
            _ => None,
        }
    }

    /// The result's type.
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::SumSigned => DataType::Int64,
            Self::SumUnsigned => DataType::UInt64,
            Self::SumDecimal { scale } => DataType::Decimal128(38, scale),
            Self::AvgInteger => DataType::Float64,
            Self::AvgDecimal { precision, scale, .. } => DataType::Decimal128(precision, scale),
        }
    }

    /// Whether the number of rows is needed.
    pub(crate) fn is_avg(self) -> bool {
        matches!(self, Self::AvgInteger | Self::AvgDecimal { .. })
    }

    /// Whether sums can go beyond 128 bits. A sum of 64-bit integers can't: it had 2⁶⁴ rows.
    pub(super) fn is_wide(self) -> bool {
        matches!(self, Self::SumDecimal { .. } | Self::AvgDecimal { .. })
    }

    /// The result from the sum and the number of its terms, which is at least 1.
    ///
    /// # Errors
    /// The result does not fit its type.
    pub(crate) fn finish(self, sum: ExactSum, count: i64) -> Result<Finished> {
        match self {
            Self::SumSigned => match sum.to_i128().and_then(|sum| i64::try_from(sum).ok()) {
                Some(sum) => Ok(Finished::Signed(sum)),
                None => exec_err!("sum of BIGINT overflows: {} does not fit 64 bits", sum.low),
            },
            Self::SumUnsigned => match sum.to_i128().and_then(|sum| u64::try_from(sum).ok()) {
                Some(sum) => Ok(Finished::Unsigned(sum)),
                None => exec_err!("sum of unsigned integers overflows: {} does not fit 64 bits", sum.low),
            },
            Self::SumDecimal { scale } => match sum.to_i128() {
                Some(sum) if sum.unsigned_abs() < 10_u128.pow(38) => Ok(Finished::Decimal(sum)),
                _ => exec_err!("sum of DECIMAL overflows: it does not fit DECIMAL(38, {scale})"),
            },
            Self::AvgInteger => Ok(Finished::Double(sum.low as f64 / count as f64)),
            Self::AvgDecimal { more_digits, precision, scale } => {
                let Some(digits) = divide_rounded(sum.to_i256(), more_digits, count) else {
                    return internal_err!("avg of DECIMAL over {count} rows");
                };
                match digits.to_i128() {
                    Some(digits) if digits.unsigned_abs() < 10_u128.pow(u32::from(precision)) => {
                        Ok(Finished::Decimal(digits))
                    }
                    _ => exec_err!("avg of DECIMAL overflows: it does not fit DECIMAL({precision}, {scale})"),
                }
            }
        }
    }

    /// A finished number, or NULL, as a value of the result's type.
    pub(super) fn scalar(self, value: Option<Finished>) -> Result<ScalarValue> {
        Ok(match (self, value) {
            (_, Some(Finished::Signed(value))) => ScalarValue::Int64(Some(value)),
            (_, Some(Finished::Unsigned(value))) => ScalarValue::UInt64(Some(value)),
            (_, Some(Finished::Double(value))) => ScalarValue::Float64(Some(value)),
            (Self::AvgDecimal { precision, scale, .. }, Some(Finished::Decimal(value))) => {
                ScalarValue::Decimal128(Some(value), precision, scale)
            }
            (Self::SumDecimal { scale }, Some(Finished::Decimal(value))) => {
                ScalarValue::Decimal128(Some(value), 38, scale)
            }
            (_, Some(Finished::Decimal(_))) => return internal_err!("{self:?} gave a decimal"),
            (_, None) => ScalarValue::try_from(&self.data_type())?,
        })
    }
}

/// `sum · 10^more_digits / count`, half away from zero.
fn divide_rounded(sum: i256, more_digits: u8, count: i64) -> Option<i256> {
    let scaled = sum.checked_mul(i256::from_i128(10_i128.pow(u32::from(more_digits))))?;
    let count = i256::from_i128(i128::from(count));
    let quotient = scaled.checked_div(count)?;
    let rest = scaled.checked_sub(quotient.checked_mul(count)?)?;
    let twice = rest.wrapping_abs().checked_mul(i256::from_i128(2))?;
    match (twice >= count, scaled.is_negative()) {
        (false, _) => Some(quotient),
        (true, false) => quotient.checked_add(i256::ONE),
        (true, true) => quotient.checked_sub(i256::ONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[i128]) -> ExactSum {
        let mut sum = ExactSum::default();
        values.iter().for_each(|value| sum.add(*value));
        sum
    }

    #[test]
    fn a_sum_past_128_bits_comes_back() {
        let big = 10_i128.pow(38) - 1;
        assert_eq!(sum(&[big, big, -big]), ExactSum { low: big, carry: 0 });
        assert_eq!(sum(&[-big, -big, big, big]), ExactSum::default());
        assert_eq!(sum(&[big, big]).carry, 1);
        assert_eq!(sum(&[-big, -big]).carry, -1);
        let mut taken = sum(&[big, big, -7]);
        taken.subtract(big);
        assert_eq!(taken, ExactSum { low: big - 7, carry: 0 });
        let mut merged = sum(&[big, big]);
        merged.merge(sum(&[-big, -big, 3]));
        assert_eq!(merged, ExactSum { low: 3, carry: 0 });
    }

    #[test]
    fn results_that_do_not_fit_are_errors() {
        let max = i128::from(i64::MAX);
        assert_eq!(Finish::SumSigned.finish(sum(&[max]), 1).unwrap(), Finished::Signed(i64::MAX));
        assert!(Finish::SumSigned.finish(sum(&[max, 1]), 2).is_err());
        assert!(Finish::SumUnsigned.finish(sum(&[-1]), 1).is_err());
        let most = 10_i128.pow(38) - 1;
        let finish = Finish::SumDecimal { scale: 3 };
        assert_eq!(finish.finish(sum(&[most]), 1).unwrap(), Finished::Decimal(most));
        assert!(finish.finish(sum(&[most, 1]), 2).is_err());
        assert!(finish.finish(sum(&[most, most, most, most]), 4).is_err());
    }

    #[test]
    fn averages_are_rounded_half_away_from_zero() {
        // DECIMAL(10, 2): 0.10 + 0.20 + 0.01 = 0.31, / 3 = 0.103333
        let finish = Finish::of(true, &DataType::Decimal128(10, 2)).unwrap();
        assert_eq!(finish.data_type(), DataType::Decimal128(14, 6));
        assert_eq!(finish.finish(sum(&[31]), 3).unwrap(), Finished::Decimal(103_333));
        // 0.02 / 3 = 0.00666…
        assert_eq!(finish.finish(sum(&[2]), 3).unwrap(), Finished::Decimal(6_667));
        assert_eq!(finish.finish(sum(&[-2]), 3).unwrap(), Finished::Decimal(-6_667));
        // 0.01 / 20000 = 0.0000005
        assert_eq!(finish.finish(sum(&[1]), 20_000).unwrap(), Finished::Decimal(1));
        assert_eq!(finish.finish(sum(&[-1]), 20_000).unwrap(), Finished::Decimal(-1));
        assert_eq!(finish.finish(sum(&[1]), 20_001).unwrap(), Finished::Decimal(0));
    }

    #[test]
    fn the_average_of_big_decimals_does_not_overflow_between() {
        let most = 10_i128.pow(34) - 1;
        let finish = Finish::of(true, &DataType::Decimal128(34, 0)).unwrap();
        let mut total = ExactSum::default();
        (0..100_000).for_each(|_| total.add(most));
        assert_eq!(finish.finish(total, 100_000).unwrap(), Finished::Decimal(most * 10_000));
    }
}

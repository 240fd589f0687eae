//! Numbers that look random and are the same everywhere: a function of seed, column and row.
//!
//! Only integer arithmetic and the four basic operations of IEEE 754 are used, which give the same
//! bits on every platform; `pow`, `exp` and `ln` of the standard library don't.

/// A stream of numbers, one a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stream(u64);

impl Stream {
    /// The stream `number` of a seed.
    pub(crate) fn new(seed: u64, number: u64) -> Self {
        Self(mix(seed ^ mix(number.wrapping_add(1))))
    }

    /// The number of a row.
    pub(crate) fn at(self, row: u64) -> u64 {
        mix(self.0.wrapping_add(row.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
}

/// Source: splitmix64's finaliser (Steele, Lea, Flood 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Uniform in `min..=max`.
pub(crate) fn in_range(random: u64, min: i64, max: i64) -> i64 {
    let span = (i128::from(max) - i128::from(min) + 1) as u128;
    let offset = (u128::from(random) * span) >> 64;
    (i128::from(min) + offset as i128) as i64
}

/// Uniform in `0..limit`; 0 if that is empty.
pub(crate) fn below(random: u64, limit: u64) -> u64 {
    ((u128::from(random) * u128::from(limit)) >> 64) as u64
}

/// Uniform in `0.0..1.0`.
pub(crate) fn unit(random: u64) -> f64 {
    (random >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Ranks by Zipf's law: rank `k` (from 0) comes with probability proportional to `(k + 1)^-skew`.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(ranks: usize, skew: f64) -> Self {
        let mut sum = 0.0;
        let cumulated = (1..=ranks).map(|rank| {
            sum += exp(-skew * ln(rank as f64));
            sum
        });
        Self { cumulated: cumulated.collect() }
    }

    pub(crate) fn rank(&self, random: u64) -> usize {
        let total = self.cumulated.last().copied().unwrap_or(1.0);
        let wanted = unit(random) * total;
        self.cumulated.partition_point(|sum| *sum <= wanted).min(self.cumulated.len().saturating_sub(1))
    }
}

const LN_2: f64 = std::f64::consts::LN_2;

/// The logarithm of a number ≥ 1.
fn ln(value: f64) -> f64 {
    let mut exponent = 0.0;
    let mut mantissa = value;
    while mantissa > 1.5 {
        mantissa *= 0.5;
        exponent += 1.0;
    }
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let (mut power, mut sum) = (z, 0.0);
    for odd in (1..40).step_by(2) {
        sum += power / f64::from(odd);
        power *= square;
    }
    2.0 * sum + exponent * LN_2
}

/// The exponential of a number ≤ 0.
pub(crate) fn exp(value: f64) -> f64 {
    let mut halvings = 0;
    let mut rest = value;
    while rest < -LN_2 {
        rest += LN_2;
        halvings += 1;
        if halvings > 1_000 {
            return 0.0;
        }
    }
    let (mut term, mut sum) = (1.0, 1.0);
    for index in 1..20 {
        term *= rest / f64::from(index);
        sum += term;
    }
    for _ in 0..halvings {
        sum *= 0.5;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_near_those_of_the_library() {
        for value in [1.0, 1.5, 2.0, 3.0, 1_000.0, 1e6] {
            assert!((ln(value) - value.ln()).abs() < 1e-12, "{value}");
        }
        for value in [0.0, -0.1, -1.0, -30.0] {
            assert!((exp(value) / f64::exp(value) - 1.0).abs() < 1e-12, "{value}");
        }
    }

    #[test]
    fn ranges_are_inclusive_and_filled() {
        let stream = Stream::new(1, 0);
        let mut seen = [0; 3];
        for row in 0..300 {
            let value = in_range(stream.at(row), -1, 1);
            seen[(value + 1) as usize] += 1;
        }
        assert!(seen.iter().all(|count| *count > 60), "{seen:?}");
        assert_eq!(in_range(u64::MAX, i64::MIN, i64::MAX), i64::MAX);
        assert_eq!(in_range(0, i64::MIN, i64::MAX), i64::MIN);
        assert_eq!(in_range(u64::MAX, 5, 5), 5);
    }

    #[test]
    fn zipf_follows_its_law() {
        // Of 3 ranks with skew 1 the first has 6/11, the second 3/11, the third 2/11.
        let zipf = Zipf::new(3, 1.0);
        let stream = Stream::new(7, 0);
        let mut seen = [0_i32; 3];
        for row in 0..11_000 {
            seen[zipf.rank(stream.at(row))] += 1;
        }
        for (count, expected) in seen.iter().zip([6_000, 3_000, 2_000]) {
            assert!((count - expected).abs() < 200, "{seen:?}");
        }
    }
}

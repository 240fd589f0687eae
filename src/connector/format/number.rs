//! Numbers as text: integers and decimals exactly, never through a float.

/// Why a text is no value of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NumberFault {
    /// It is no number, or one with a fraction where none can be.
    NotANumber,
    /// It is one, too large for the type.
    OutOfRange,
}

/// Digits in a row, as a number, and where they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digits {
    pub(crate) value: u64,
    pub(crate) end: usize,
}

/// The digits that stand at `at`; `None` if there are none, or more than 16.
#[inline]
pub(crate) fn digits_at(data: &[u8], at: usize) -> Option<Digits> {
    let (high, count) = up_to_eight_digits(data, at);
    if count < 8 {
        return (count > 0).then_some(Digits { value: high, end: at + count });
    }
    let (low, count) = up_to_eight_digits(data, at + 8);
    let end = at + 8 + count;
    let is_longer = count == 8 && data.get(end).is_some_and(u8::is_ascii_digit);
    const SHIFTS: [u64; 9] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
    (!is_longer).then(|| Digits { value: high * SHIFTS[count] + low, end })
}

/// The number that the digits at `at` are, and how many they are; of more than eight the first eight.
#[inline]
fn up_to_eight_digits(data: &[u8], at: usize) -> (u64, usize) {
    let Some(window) = data.get(at..at + 8) else {
        let digits = data[at.min(data.len())..].iter().take_while(|byte| byte.is_ascii_digit());
        return digits.fold((0, 0), |(value, count), byte| (value * 10 + u64::from(byte - b'0'), count + 1));
    };
    let word = u64::from_le_bytes(window.try_into().expect("the slice has 8 bytes"));
    let digits = word ^ 0x3030_3030_3030_3030;
    // Of the bytes that are no digits only the lowest is found for sure, and only that one counts.
    let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let count = (others.trailing_zeros() / 8) as usize;
    // As eight digits with zeros in front; then pairs, fours and all eight in one step each.
    let padded = digits.checked_shl(64 - 8 * count as u32).unwrap_or(0);
    let pairs = padded.wrapping_mul(10).wrapping_add(padded >> 8);
    let high = (pairs & 0x0000_00ff_0000_00ff).wrapping_mul(0x000f_4240_0000_0064);
    let low = ((pairs >> 16) & 0x0000_00ff_0000_00ff).wrapping_mul(0x0000_2710_0000_0001);
    (high.wrapping_add(low) >> 32, count)
}

/// A whole number. A fraction or exponent is fine where the value is whole: `1e2`, `3.0`.
pub(crate) fn parse_integer(text: &[u8]) -> Result<i64, NumberFault> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    // 18 digits can't overflow.
    if (1..=18).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) {
        let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
        return Ok(if negative { -value } else { value });
    }
    match parse_decimal(text, 0)? {
        (value, true) => i64::try_from(value).map_err(|_| NumberFault::OutOfRange),
        (_, false) => Err(NumberFault::NotANumber),
    }
}

/// A decimal as an integer of `10^-scale`, rounded half away from zero, and whether it was exact.
pub(crate) fn parse_decimal(text: &[u8], scale: i8) -> Result<(i128, bool), NumberFault> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let mantissa_end = rest.iter().position(|byte| matches!(byte, b'e' | b'E')).unwrap_or(rest.len());
    let (mantissa, exponent) = rest.split_at(mantissa_end);
    let exponent = match exponent {
        [] => 0,
        [_, digits @ ..] => parse_exponent(digits)?,
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let (whole, fraction) = (&mantissa[..point], mantissa.get(point + 1..).unwrap_or(&[]));
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return Err(NumberFault::NotANumber);
    }
    // The value is all digits * 10^shift, in units of 10^-scale.
    let shift = exponent - fraction.len() as i64 + i64::from(scale);
    let count = (whole.len() + fraction.len()) as i64;
    let kept = if shift < 0 { count + shift } else { count };
    let mut value = 0_i128;
    let mut exact = true;
    let mut round_up = false;
    for (index, digit) in whole.iter().chain(fraction).map(|byte| byte - b'0').enumerate() {
        let index = index as i64;
        if index < kept {
            value = value
                .checked_mul(10)
                .and_then(|value| value.checked_add(i128::from(digit)))
                .ok_or(NumberFault::OutOfRange)?;
        } else {
            round_up |= index == kept && digit >= 5;
            exact &= digit == 0;
        }
    }
    if shift > 0 && value != 0 {
        let factor = u32::try_from(shift).ok().and_then(|shift| 10_i128.checked_pow(shift));
        value = factor.and_then(|factor| value.checked_mul(factor)).ok_or(NumberFault::OutOfRange)?;
    }
    value = value.checked_add(i128::from(round_up)).ok_or(NumberFault::OutOfRange)?;
    Ok((if negative { -value } else { value }, exact))
}

/// The digits after `e`, clamped to ±100,000: beyond that nothing fits anyway.
fn parse_exponent(text: &[u8]) -> Result<i64, NumberFault> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NumberFault::NotANumber);
    }
    let value = digits.iter().fold(0_i64, |value, digit| (value * 10 + i64::from(digit - b'0')).min(100_000));
    Ok(if negative { -value } else { value })
}

/// A DOUBLE. `NaN`, `Infinity` and `-Infinity` are values, in any case of letters.
pub(crate) fn parse_double(text: &[u8]) -> Result<f64, NumberFault> {
    let text = std::str::from_utf8(text).map_err(|_| NumberFault::NotANumber)?;
    let value = text.parse::<f64>().map_err(|_| NumberFault::NotANumber)?;
    let is_word = || text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    if value.is_infinite() && !is_word() { Err(NumberFault::OutOfRange) } else { Ok(value) }
}

/// A FLOAT; see [`parse_double`].
pub(crate) fn parse_float(text: &[u8]) -> Result<f32, NumberFault> {
    let text = std::str::from_utf8(text).map_err(|_| NumberFault::NotANumber)?;
    let value = text.parse::<f32>().map_err(|_| NumberFault::NotANumber)?;
    let is_word = || text.bytes().any(|byte| matches!(byte, b'n' | b'N'));
    if value.is_infinite() && !is_word() { Err(NumberFault::OutOfRange) } else { Ok(value) }
}

/// Appends an integer.
pub(crate) fn push_integer(out: &mut Vec<u8>, value: i64) {
    push_unsigned(out, value < 0, value.unsigned_abs());
}

fn push_unsigned(out: &mut Vec<u8>, negative: bool, mut value: u64) {
    let mut digits = [0_u8; 21];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    if negative {
        start -= 1;
        digits[start] = b'-';
    }
    out.extend_from_slice(&digits[start..]);
}

/// Appends a decimal with all digits of its scale.
pub(crate) fn push_decimal(out: &mut Vec<u8>, value: i128, scale: i8) {
    if value < 0 {
        out.push(b'-');
    }
    let mut digits = [0_u8; 40];
    let mut start = digits.len();
    let mut rest = value.unsigned_abs();
    while rest > 0 {
        start -= 1;
        digits[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let digits = &digits[start..];
    let Ok(scale) = usize::try_from(scale) else {
        out.extend_from_slice(if digits.is_empty() { b"0" } else { digits });
        if !digits.is_empty() {
            out.extend(std::iter::repeat_n(b'0', usize::from(scale.unsigned_abs())));
        }
        return;
    };
    let whole = digits.len().saturating_sub(scale);
    out.extend_from_slice(if whole == 0 { b"0" } else { &digits[..whole] });
    if scale > 0 {
        out.push(b'.');
        out.extend(std::iter::repeat_n(b'0', scale.saturating_sub(digits.len())));
        out.extend_from_slice(&digits[whole..]);
    }
}

/// Appends a float in the shortest form that reads back to the same value, as JSON has it.
///
/// NaN and infinities are the caller's business.
pub(crate) fn push_double(out: &mut Vec<u8>, value: f64) {
    use std::io::Write;
    let size = value.abs();
    // Writing to a vector can't fail.
    let _ = if size != 0.0 && !(1e-5..1e16).contains(&size) {
        write!(out, "{value:e}")
    } else {
        write!(out, "{value:?}")
    };
}

/// The same for a FLOAT.
pub(crate) fn push_float(out: &mut Vec<u8>, value: f32) {
    use std::io::Write;
    let size = value.abs();
    let _ = if size != 0.0 && !(1e-5..1e16).contains(&size) {
        write!(out, "{value:e}")
    } else {
        write!(out, "{value:?}")
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn integers() {
        assert_eq!(parse_integer(b"34"), Ok(34));
        assert_eq!(parse_integer(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_integer(b"9223372036854775807"), Ok(i64::MAX));
        assert_eq!(parse_integer(b"9223372036854775808"), Err(NumberFault::OutOfRange));
        assert_eq!(parse_integer(b"1e2"), Ok(100));
        assert_eq!(parse_integer(b"3.0"), Ok(3));
        assert_eq!(parse_integer(b"1.5"), Err(NumberFault::NotANumber));
        assert_eq!(parse_integer(b"1e400"), Err(NumberFault::OutOfRange));
        for bad in ["", "-", "12a", "a", ".", "1e", "0x1", "1_0", " 1", "--1", "e5"] {
            assert_eq!(parse_integer(bad.as_bytes()), Err(NumberFault::NotANumber), "{bad}");
        }
    }

    #[test]
    fn decimals() {
        assert_eq!(parse_decimal(b"12.345", 2), Ok((1_235, false)));
        assert_eq!(parse_decimal(b"-12.345", 2), Ok((-1_235, false)));
        assert_eq!(parse_decimal(b"12.344999", 2), Ok((1_234, false)));
        assert_eq!(parse_decimal(b"1e2", 2), Ok((10_000, true)));
        assert_eq!(parse_decimal(b"0.005", 2), Ok((1, false)));
        assert_eq!(parse_decimal(b"0.0049", 2), Ok((0, false)));
        assert_eq!(parse_decimal(b"5e-400", 2), Ok((0, false)));
        assert_eq!(parse_decimal(b"0e400", 2), Ok((0, true)));
        assert_eq!(
            parse_decimal(b"99999999999999999999999999999999999999", 0),
            Ok((10_i128.pow(38) - 1, true))
        );
        assert_eq!(parse_decimal(b"1e39", 0), Err(NumberFault::OutOfRange));
        // More digits than an i128 has, but not more than the scale keeps.
        assert_eq!(
            parse_decimal(b"0.00000000000000000000000000000000000000000000000000001", 2),
            Ok((0, false))
        );
    }

    #[test]
    fn floats() {
        assert!(parse_double(b"NaN").unwrap().is_nan());
        assert_eq!(parse_double(b"-Infinity"), Ok(f64::NEG_INFINITY));
        assert_eq!(parse_double(b"1e999"), Err(NumberFault::OutOfRange));
        let text = |value| {
            let mut out = Vec::new();
            push_double(&mut out, value);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text(1.0), "1.0");
        assert_eq!(text(-0.0), "-0.0");
        assert_eq!(text(0.1), "0.1");
        assert_eq!(text(1e300), "1e300");
        assert_eq!(text(1.5e-9), "1.5e-9");
    }

    proptest! {
        #[test]
        fn decimals_round_trip(value in any::<i128>(), scale in 0i8..38) {
            let value = value % 10_i128.pow(38);
            let mut out = Vec::new();
            push_decimal(&mut out, value, scale);
            prop_assert_eq!(parse_decimal(&out, scale), Ok((value, true)));
        }

        #[test]
        fn integers_round_trip(value in any::<i64>()) {
            let mut out = Vec::new();
            push_integer(&mut out, value);
            let expected = value.to_string();
            prop_assert_eq!(&out, expected.as_bytes());
            prop_assert_eq!(parse_integer(&out), Ok(value));
        }

        #[test]
        fn digits_in_a_row(text in "[0-9]{0,20}[^0-9]{0,3}[0-9]{0,9}") {
            let count = text.bytes().take_while(u8::is_ascii_digit).count();
            let expected = (1..=16)
                .contains(&count)
                .then(|| Digits { value: text[..count].parse().unwrap(), end: count });
            prop_assert_eq!(digits_at(text.as_bytes(), 0), expected);
            let behind = format!("ab{text}");
            let expected = expected.map(|digits| Digits { end: count + 2, ..digits });
            prop_assert_eq!(digits_at(behind.as_bytes(), 2), expected);
        }

        #[test]
        fn floats_round_trip(value in any::<f64>()) {
            prop_assume!(value.is_finite());
            let mut out = Vec::new();
            push_double(&mut out, value);
            prop_assert_eq!(parse_double(&out).map(f64::to_bits), Ok(value.to_bits()));
        }
    }
}

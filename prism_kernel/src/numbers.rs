//! Exact numbers from their text, as `kernels/numbers.py` defines them: none passes through a double.

use memchr::memchr2;

/// More digits than any column type holds, and fewer than 128 bits do.
const MOST_DIGITS: i64 = 38;
/// Beyond any count of digits in a line: an exponent of this size decides alone.
const LARGE_EXPONENT: i64 = 1 << 56;

/// Whether a text is a number to every column: `-?\d+(\.\d+)?([eE][+-]?\d+)?`. Leading zeros do no harm.
pub fn is_numeric(text: &[u8]) -> bool {
    Parts::of(text).is_some()
}

/// The value as a double, rounded to nearest; infinite if it is too large.
pub fn double(number: &[u8]) -> f64 {
    if let Some(short) = short_double(number) {
        return short;
    }
    // The standard library reads exponents of up to five digits exactly.
    if memchr2(b'e', b'E', number).is_some_and(|exponent| number.len() - exponent > 5) {
        return Parts::of(number).map_or(f64::NAN, |parts| parts.double());
    }
    std::str::from_utf8(number).map_or(f64::NAN, parsed)
}

/// A number of at most 15 digits without an exponent. Doubles hold its digits and the power of ten exactly, so the one
/// division rounds to nearest (Clinger, "How to read floating point numbers accurately", 1990).
#[inline(always)]
fn short_double(number: &[u8]) -> Option<f64> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let negative = number.first() == Some(&b'-');
    let text = &number[usize::from(negative)..];
    if text.len() > POWERS.len() {
        return None;
    }
    let (mut digits, mut count, mut point) = (0u64, 0, None);
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit <= 9 {
            digits = digits * 10 + u64::from(digit);
            count += 1;
        } else if *byte == b'.' && point.is_none() {
            point = Some(count);
        } else {
            return None;
        }
    }
    let power = POWERS.get(count - point.unwrap_or(count))?;
    let number = digits as f64 / power;
    (count < POWERS.len()).then_some(if negative { -number } else { number })
}

fn parsed(number: &str) -> f64 {
    number.parse().unwrap_or(f64::NAN)
}

/// The integer part of a number × 10^shift, None if it has too many digits, and whether the number has no other part.
#[inline(always)]
pub fn scaled(number: &[u8], shift: i64) -> (Option<i128>, bool) {
    match short_integer(number) {
        Some(short) if shift == 0 => (Some(i128::from(short)), true),
        _ => scaled_parts(number, shift),
    }
}

#[inline(always)]
fn short_integer(text: &[u8]) -> Option<i64> {
    let negative = text.first() == Some(&b'-');
    let digits = &text[usize::from(negative)..];
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut number = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number * 10 + i64::from(digit);
    }
    Some(if negative { -number } else { number })
}

fn scaled_parts(number: &[u8], shift: i64) -> (Option<i128>, bool) {
    let Some(parts) = Parts::of(number) else { return (None, false) };
    let mut digits = parts.significant();
    let significant = digits.clone().count() as i64;
    if significant == 0 {
        return (Some(0), true);
    }
    let point = significant - parts.fraction.len() as i64 + parts.exponent() + shift;
    if point > MOST_DIGITS {
        return (None, false);
    }
    let mut integer = 0i128;
    for _ in 0..point {
        integer = integer * 10 + digits.next().map_or(0, |digit| i128::from(digit - b'0'));
    }
    (Some(if parts.negative { -integer } else { integer }), digits.all(|digit| *digit == b'0'))
}

struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    negative_exponent: bool,
    exponent: &'a [u8],
}

impl<'a> Parts<'a> {
    #[inline(always)]
    fn of(text: &'a [u8]) -> Option<Self> {
        let negative = text.first() == Some(&b'-');
        let (whole, mut rest) = digits(&text[usize::from(negative)..])?;
        let mut parts = Parts { negative, whole, fraction: b"", negative_exponent: false, exponent: b"" };
        if let [b'.', after @ ..] = rest {
            (parts.fraction, rest) = digits(after)?;
        }
        if let [b'e' | b'E', after @ ..] = rest {
            parts.negative_exponent = after.first() == Some(&b'-');
            let signed = matches!(after.first(), Some(b'+' | b'-'));
            (parts.exponent, rest) = digits(&after[usize::from(signed)..])?;
        }
        rest.is_empty().then_some(parts)
    }

    /// The digits after leading zeros.
    fn significant(&self) -> impl Iterator<Item = &'a u8> + Clone {
        self.whole.iter().chain(self.fraction).skip_while(|digit| **digit == b'0')
    }

    /// The value as a double, for an exponent of any size.
    fn double(&self) -> f64 {
        let digits: String = self.significant().map(|digit| char::from(*digit)).collect();
        let point = digits.len() as i64 - self.fraction.len() as i64 + self.exponent();
        let sign = if self.negative { "-" } else { "" };
        // Beyond these bounds each number is infinite, or zero.
        parsed(&format!("{sign}0.{digits}0e{}", point.clamp(-400, 400)))
    }

    fn exponent(&self) -> i64 {
        let size =
            self.exponent.iter().fold(0i64, |size, digit| (size * 10 + i64::from(digit - b'0')).min(LARGE_EXPONENT));
        if self.negative_exponent {
            -size
        } else {
            size
        }
    }
}

/// The digits at the beginning of a text, at least one, and the rest.
#[inline(always)]
fn digits(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then(|| text.split_at(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact() {
        for (text, shift, expected) in [
            ("0", 0, (Some(0), true)),
            ("-12", 0, (Some(-12), true)),
            ("9007199254740993.0", 0, (Some(9_007_199_254_740_993), true)),
            ("1e18", 0, (Some(1_000_000_000_000_000_000), true)),
            ("1.5", 0, (Some(1), false)),
            ("-1.5", 1, (Some(-15), true)),
            ("0.001", 2, (Some(0), false)),
            ("123456789012345678901234567890", 0, (Some(123_456_789_012_345_678_901_234_567_890), true)),
            ("1e39", 0, (None, false)),
            ("1e-99999999999999999999", 0, (Some(0), false)),
            ("1e99999999999999999999", 0, (None, false)),
            ("0e99999999999999999999", 0, (Some(0), true)),
            ("007", 1, (Some(70), true)),
        ] {
            assert_eq!(scaled(text.as_bytes(), shift), expected, "{text}");
        }
    }

    #[test]
    fn doubles_are_rounded_to_nearest_for_exponents_of_any_size() {
        let zeros = "0".repeat(700_000);
        for (text, expected) in [
            ("-1.5e3", -1500.0),
            ("1e00000000308", 1e308),
            ("1e400", f64::INFINITY),
            ("-1e99999999999999999999", f64::NEG_INFINITY),
            ("1e-99999999999999999999", 0.0),
            ("0e99999999999999999999", 0.0),
            ("2.4703282292062328e-000324", 5e-324),
            (&format!("1{zeros}e-700000"), 1.0),
            (&format!("-0.{zeros}17e700001"), -1.7),
        ] {
            assert_eq!(double(text.as_bytes()), expected, "{text:.30}");
        }
        assert!(double(b"-0e100000").is_sign_negative());
    }

    #[test]
    fn short_numbers_are_the_doubles_that_the_standard_library_reads() {
        for text in [
            "0",
            "-0",
            "7",
            "-1.5",
            "0.1",
            "0.30000000000004",
            "123456789012345",
            "0.00000000000001",
            "9.99999999999999",
        ] {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(short_double(text.as_bytes()).map(f64::to_bits), Some(expected.to_bits()), "{text}");
        }
        let mut digits = 1u64;
        for _ in 0..10_000 {
            digits = digits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut text = (digits >> 15).to_string();
            text.truncate(1 + (digits >> 60) as usize % 15);
            text.insert(text.len() - (digits >> 32) as usize % text.len(), '.');
            let expected: f64 = text.parse().unwrap();
            assert_eq!(short_double(text.as_bytes()).map(f64::to_bits), Some(expected.to_bits()), "{text}");
        }
        for text in ["1234567890123456", "0.1234567890123456", "1e5", "1.2.3", "", "-"] {
            assert_eq!(short_double(text.as_bytes()).filter(|number| *number != 0.0), None, "{text}");
        }
    }

    #[test]
    fn texts_are_numbers_only_as_a_whole() {
        for text in ["0", "-7", "007", "1.50", "1e5", "1E+5", "1.0e-5"] {
            assert!(is_numeric(text.as_bytes()), "{text}");
        }
        for text in ["", "-", "+1", "1.", ".5", "1e", "1e+", " 1", "1 ", "0x1", "1_0", "\u{661}", "NaN"] {
            assert!(!is_numeric(text.as_bytes()), "{text}");
        }
    }
}

//! The value rules of the column types, as `kernels/values.py` defines them.

use crate::numbers::{double, is_numeric, scaled};
use crate::scan::{Kind, Marks, Value};
use crate::text::{compact, unescape};
use crate::times::{parse_date, parse_timestamp, unix_time, Instant, TimeOptions};

/// Why a value is not stored as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    Unfit,
    OutOfRange,
    NotFinite,
    TooLong,
    /// A text lost its end. All other misfits are stored as null.
    Cut,
}

impl Misfit {
    pub const ALL: [Misfit; 5] = [Misfit::Unfit, Misfit::OutOfRange, Misfit::NotFinite, Misfit::TooLong, Misfit::Cut];

    pub fn name(self) -> &'static str {
        match self {
            Misfit::Unfit => "unfit",
            Misfit::OutOfRange => "out_of_range",
            Misfit::NotFinite => "not_finite",
            Misfit::TooLong => "too_long",
            Misfit::Cut => "cut",
        }
    }
}

/// The meaning of a time for a column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    Milliseconds(i64),
    Day(i32),
    /// Milliseconds of an instant; the column stores its day in the table's zone.
    DayOf(i64),
    /// Only the exact rule in Python can tell.
    Undecided,
}

/// Appends a text, or the JSON text of another value, cut at a character to `length` bytes.
#[inline(always)]
pub fn append_text(value: &Value, length: usize, out: &mut Vec<u8>) -> Result<(), Misfit> {
    let from = out.len();
    if value.kind != Kind::Text {
        append_compact(value, out)?;
    } else if value.marks.has(Marks::ESCAPES) {
        unescape(value.content(), out);
    } else {
        out.extend_from_slice(value.content());
    }
    if out.len() - from <= length {
        return Ok(());
    }
    let mut end = from + length;
    while out[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    out.truncate(end);
    Err(Misfit::Cut)
}

/// Appends the JSON text of a value, or nothing if it has more than `length` bytes.
#[inline(always)]
pub fn append_json(value: &Value, length: usize, out: &mut Vec<u8>) -> Result<(), Misfit> {
    let from = out.len();
    append_compact(value, out)?;
    if out.len() - from <= length {
        return Ok(());
    }
    out.truncate(from);
    Err(Misfit::TooLong)
}

#[inline(always)]
fn append_compact(value: &Value, out: &mut Vec<u8>) -> Result<(), Misfit> {
    if value.marks.has(Marks::CONSTANTS) {
        return Err(Misfit::NotFinite);
    }
    if value.marks.has(Marks::SPACES) {
        compact(value.raw, out);
    } else {
        out.extend_from_slice(value.raw);
    }
    Ok(())
}

pub fn boolean(value: &Value, text: &[u8]) -> Result<bool, Misfit> {
    match (value.kind, text) {
        (Kind::True, _) | (Kind::Text, b"true" | b"t") => Ok(true),
        (Kind::False, _) | (Kind::Text, b"false" | b"f") => Ok(false),
        _ => Err(misfit_of(value)),
    }
}

/// Numbers without their fraction.
#[inline(always)]
pub fn whole<T: TryFrom<i128>>(value: &Value, text: &[u8]) -> Result<T, Misfit> {
    let number = number(value, text).ok_or_else(|| misfit_of(value))?;
    scaled(number, 0).0.and_then(|whole| T::try_from(whole).ok()).ok_or(Misfit::OutOfRange)
}

/// Digits after the scale are dropped.
pub fn decimal(value: &Value, text: &[u8], precision: u8, scale: i8) -> Result<i128, Misfit> {
    let number = number(value, text).ok_or_else(|| misfit_of(value))?;
    let units = scaled(number, i64::from(scale)).0.ok_or(Misfit::OutOfRange)?;
    let is_within = units.unsigned_abs() < 10u128.pow(u32::from(precision));
    if is_within {
        Ok(units)
    } else {
        Err(Misfit::OutOfRange)
    }
}

/// A finite double.
#[inline(always)]
pub fn float(value: &Value, text: &[u8]) -> Result<f64, Misfit> {
    let Some(number) = number(value, text) else {
        let is_named = value.kind == Kind::Text && matches!(text, b"NaN" | b"Infinity" | b"-Infinity");
        return Err(if is_named { Misfit::NotFinite } else { misfit_of(value) });
    };
    let number = double(number);
    if number.is_finite() {
        Ok(number)
    } else {
        Err(Misfit::NotFinite)
    }
}

/// A double that is finite as stored in single precision.
pub fn single(value: &Value, text: &[u8]) -> Result<f32, Misfit> {
    let number = float(value, text)? as f32;
    if number.is_finite() {
        Ok(number)
    } else {
        Err(Misfit::NotFinite)
    }
}

#[inline(always)]
pub fn timestamp(value: &Value, text: &[u8], options: TimeOptions) -> Result<Time, Misfit> {
    let written = if value.kind == Kind::Text { parse_timestamp(text, options.offset) } else { None };
    match written {
        Some(Instant::At(instant)) => Ok(Time::Milliseconds(instant)),
        Some(Instant::InNamedZone) => Ok(Time::Undecided),
        None => number(value, text)
            .and_then(|number| unix_time(number, options.unit))
            .map(Time::Milliseconds)
            .ok_or_else(|| misfit_of(value)),
    }
}

/// Days; those of instants are the days of the table's zone.
pub fn date(value: &Value, text: &[u8], options: TimeOptions) -> Result<Time, Misfit> {
    if value.kind == Kind::Text {
        if let Some(day) = parse_date(text) {
            return Ok(Time::Day(day));
        }
    }
    Ok(match timestamp(value, text, options)? {
        Time::Milliseconds(instant) => Time::DayOf(instant),
        other => other,
    })
}

/// A number, or a text that is one to every column.
#[inline(always)]
fn number<'a>(value: &Value, text: &'a [u8]) -> Option<&'a [u8]> {
    let is_number = value.kind == Kind::Number || (value.kind == Kind::Text && is_numeric(text));
    is_number.then_some(text)
}

fn misfit_of(value: &Value) -> Misfit {
    if value.kind == Kind::Constant {
        Misfit::NotFinite
    } else {
        Misfit::Unfit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scanner;

    fn with<T>(json: &str, rule: impl Fn(&Value, &[u8]) -> T) -> T {
        let value = Scanner::new(json.as_bytes()).value(0).unwrap();
        let text = if value.kind == Kind::Text { value.content() } else { value.raw };
        rule(&value, text)
    }

    #[test]
    fn whole_numbers_are_exact_and_bounded() {
        assert_eq!(with("\"32767.9\"", whole::<i16>), Ok(i16::MAX));
        assert_eq!(with("32768", whole::<i16>), Err(Misfit::OutOfRange));
        assert_eq!(with("-9223372036854775808.0", whole::<i64>), Ok(i64::MIN));
        assert_eq!(with("9223372036854775808", whole::<i64>), Err(Misfit::OutOfRange));
        assert_eq!(with("true", whole::<i64>), Err(Misfit::Unfit));
        assert_eq!(with("NaN", whole::<i64>), Err(Misfit::NotFinite));
    }

    #[test]
    fn floats_are_finite_as_stored() {
        assert_eq!(with("3.402823567797336e38", single), Ok(f32::MAX));
        assert_eq!(with("3.4028235677973366e38", single), Err(Misfit::NotFinite));
        assert_eq!(with("1e309", float), Err(Misfit::NotFinite));
        assert_eq!(with("\"-Infinity\"", float), Err(Misfit::NotFinite));
        assert_eq!(with("\"inf\"", float), Err(Misfit::Unfit));
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let mut out = b"before".to_vec();
        assert_eq!(with("\"a\u{e9}\u{1f600}\"", |value, _| append_text(value, 6, &mut Vec::new())), Err(Misfit::Cut));
        let value = Scanner::new("\"a\u{e9}\"".as_bytes()).value(0).unwrap();
        assert_eq!(append_text(&value, 2, &mut out), Err(Misfit::Cut));
        assert_eq!(out, b"beforea");
        assert_eq!(append_json(&value, 4, &mut out), Err(Misfit::TooLong));
        assert_eq!(append_json(&value, 5, &mut out), Ok(()));
        assert_eq!(out, "beforea\"a\u{e9}\"".as_bytes());
    }

    #[test]
    fn decimals_drop_digits_and_keep_their_precision() {
        let rule = |value: &Value, text: &[u8]| decimal(value, text, 4, 2);
        assert_eq!(with("-12.349", rule), Ok(-1234));
        assert_eq!(with("100", rule), Err(Misfit::OutOfRange));
        assert_eq!(with("1e38", |value, text| decimal(value, text, 38, 0)), Err(Misfit::OutOfRange));
    }
}

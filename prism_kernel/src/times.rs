//! Times and days, as `kernels/times.py` defines them: milliseconds and days since the epoch.

use crate::numbers::{double, scaled};

const DAY: i64 = 86_400_000;
/// The first and the last millisecond of the years 1 to 9999.
const YEARS: std::ops::RangeInclusive<i128> = -62_135_596_800_000..=253_402_300_799_999;
/// Greater numbers of a column in seconds are milliseconds.
const SECONDS_LIMIT: i128 = 1_500_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Seconds,
    Milliseconds,
    Microseconds,
}

/// How the times of a column are written.
#[derive(Clone, Copy, Debug)]
pub struct TimeOptions {
    /// Milliseconds east of UTC of times without an offset.
    pub offset: i64,
    pub unit: Unit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instant {
    At(i64),
    /// A local time in a named zone, which only Python's database of zones can place.
    InNamedZone,
}

/// The instant of unix time, or None beyond the years 1 to 9999.
pub fn unix_time(number: &[u8], unit: Unit) -> Option<i64> {
    match scaled(number, 0) {
        (Some(whole), true) => whole_unix_time(whole, unit),
        (Some(_), false) => fractional_unix_time(double(number), unit),
        (None, _) => None,
    }
}

fn whole_unix_time(value: i128, unit: Unit) -> Option<i64> {
    in_years(match unit {
        Unit::Microseconds => value.div_euclid(1000),
        Unit::Seconds if value <= SECONDS_LIMIT => value.saturating_mul(1000),
        _ => value,
    })
}

/// Rounded to microseconds, half to even, then down: the meaning of the number as a double.
fn fractional_unix_time(value: f64, unit: Unit) -> Option<i64> {
    if value.is_nan() || value.abs() >= 1e18 {
        return None;
    }
    if value.fract() == 0.0 {
        return whole_unix_time(value as i128, unit);
    }
    let microseconds = match unit {
        Unit::Seconds if value <= SECONDS_LIMIT as f64 => value * 1e6,
        Unit::Microseconds => value,
        _ => value * 1e3,
    };
    in_years((microseconds.round_ties_even() as i128).div_euclid(1000))
}

fn in_years(instant: i128) -> Option<i64> {
    YEARS.contains(&instant).then_some(instant as i64)
}

/// An ISO date, with hyphens or without.
pub fn parse_date(text: &[u8]) -> Option<i32> {
    let mut reader = Reader(text);
    let day = reader.date(text.len() == 8)?;
    reader.0.is_empty().then_some(day as i32)
}

/// An ISO 8601 time, rounded down to milliseconds; None for other text.
#[inline(always)]
pub fn parse_timestamp(text: &[u8], source_offset: i64) -> Option<Instant> {
    if let Some(instant) = parse_usual(text) {
        return Some(Instant::At(instant));
    }
    let basic = text.len() > 8 && text[4] != b'-';
    let mut reader = Reader(text);
    let midnight = reader.date(basic)? * DAY;
    let clock = reader.clock(basic)?;
    let zone = reader.zone(basic)?;
    if basic && clock.is_none() {
        return None;
    }
    let has_clock = clock.is_some();
    let clock = clock.unwrap_or_default();
    let local = midnight + clock.milliseconds()?;
    let offset = match zone {
        Zone::None => source_offset,
        _ if !has_clock => return None,
        Zone::Offset(offset) => offset?,
        Zone::Named => return Some(Instant::InNamedZone),
    };
    // A leap second ends a day of UTC.
    if clock.second == 60 && (local.div_euclid(1000) * 1000 - offset).rem_euclid(DAY) != 0 {
        return None;
    }
    in_years(i128::from(local - offset)).map(Instant::At)
}

/// `YYYY-MM-DDThh:mm:ss.fffZ`, the form of most logs; None for other text, and for times that need a closer look.
#[inline(always)]
fn parse_usual(text: &[u8]) -> Option<i64> {
    let text: &[u8; 24] = text.try_into().ok()?;
    if [4, 7, 10, 13, 16, 19, 23].map(|place| text[place]) != *b"--T::.Z" {
        return None;
    }
    let mut largest = 0;
    let mut number = |from: usize, to: usize| {
        text[from..to].iter().fold(0, |number, byte| {
            let digit = byte.wrapping_sub(b'0');
            largest = digit.max(largest);
            number * 10 + i64::from(digit)
        })
    };
    let (year, month, day) = (number(0, 4), number(5, 7), number(8, 10));
    let (hour, minute, second, milliseconds) = (number(11, 13), number(14, 16), number(17, 19), number(20, 23));
    if largest > 9 || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let midnight = days_since_epoch(year, month, day)? * DAY;
    Some(midnight + ((hour * 60 + minute) * 60 + second) * 1000 + milliseconds)
}

#[derive(Clone, Copy, Default)]
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
    milliseconds: i64,
    has_fraction: bool,
}

impl Clock {
    /// Milliseconds since midnight; None for a time that no clock shows.
    fn milliseconds(&self) -> Option<i64> {
        let is_past_midnight = self.hour == 24 && (self.minute > 0 || self.second > 0 || self.has_fraction);
        if self.hour > 24 || self.minute > 59 || self.second > 60 || is_past_midnight {
            return None;
        }
        Some(((self.hour * 60 + self.minute) * 60 + self.second) * 1000 + self.milliseconds)
    }
}

enum Zone {
    None,
    /// None if the offset has no meaning, such as +99:00.
    Offset(Option<i64>),
    Named,
}

/// The rest of a text.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline(always)]
    fn number(&mut self, digits: usize) -> Option<i64> {
        let mut number = 0;
        for byte in self.0.get(..digits)? {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            number = number * 10 + i64::from(digit);
        }
        self.0 = &self.0[digits..];
        Some(number)
    }

    #[inline(always)]
    fn takes(&mut self, byte: u8) -> bool {
        if self.0.first() != Some(&byte) {
            return false;
        }
        self.0 = &self.0[1..];
        true
    }

    #[inline(always)]
    fn date(&mut self, basic: bool) -> Option<i64> {
        let year = self.number(4)?;
        if !basic && !self.takes(b'-') {
            return None;
        }
        let month = self.number(2)?;
        if !basic && !self.takes(b'-') {
            return None;
        }
        let day = self.number(2)?;
        days_since_epoch(year, month, day)
    }

    /// `T hh[:mm[:ss[.fraction]]]`, or no time at all; None for a broken one.
    #[inline(always)]
    fn clock(&mut self, basic: bool) -> Option<Option<Clock>> {
        let begins = match self.0.first() {
            Some(b'T') => true,
            Some(b't') => !basic,
            // A space may also begin a zone, which a date alone cannot have.
            Some(b' ') => !basic,
            _ => false,
        };
        if !begins {
            return Some(None);
        }
        self.0 = &self.0[1..];
        let mut clock = Clock { hour: self.number(2)?, ..Clock::default() };
        if self.goes_on(basic) {
            clock.minute = self.number(2)?;
            if self.goes_on(basic) {
                clock.second = self.number(2)?;
                if self.takes(b'.') || self.takes(b',') {
                    self.fraction(&mut clock)?;
                }
            }
        }
        Some(Some(clock))
    }

    #[inline(always)]
    fn goes_on(&mut self, basic: bool) -> bool {
        if basic {
            self.0.first().is_some_and(u8::is_ascii_digit)
        } else {
            self.takes(b':')
        }
    }

    fn fraction(&mut self, clock: &mut Clock) -> Option<()> {
        let count = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if !(1..=9).contains(&count) {
            return None;
        }
        let (digits, rest) = self.0.split_at(count);
        let digit = |place: usize| digits.get(place).map_or(0, |byte| i64::from(byte - b'0'));
        clock.milliseconds = (digit(0) * 10 + digit(1)) * 10 + digit(2);
        clock.has_fraction = digits.iter().any(|byte| *byte != b'0');
        self.0 = rest;
        Some(())
    }

    /// `Z`, `±hh`, `±hhmm` or `±hh:mm`, and suffixes in brackets; None for other text.
    #[inline(always)]
    fn zone(&mut self, basic: bool) -> Option<Zone> {
        let offset = self.offset(basic)?;
        if self.0.is_empty() {
            return Some(offset);
        }
        let suffix = self.suffix()?;
        Some(if matches!(offset, Zone::None) { suffix } else { offset })
    }

    #[inline(always)]
    fn offset(&mut self, basic: bool) -> Option<Zone> {
        if self.takes(b'Z') || (!basic && self.takes(b'z')) {
            return Some(Zone::Offset(Some(0)));
        }
        if !basic && self.0.starts_with(b" UTC") {
            self.0 = &self.0[4..];
            return Some(Zone::Offset(Some(0)));
        }
        let is_spaced = !basic && self.takes(b' ');
        match self.0.first() {
            Some(b'+' | b'-') => {}
            _ => return (!is_spaced).then_some(Zone::None),
        }
        let sign = if self.0[0] == b'-' { -60_000 } else { 60_000 };
        self.0 = &self.0[1..];
        let hours = self.number(2)?;
        let mut minutes = 0;
        if self.takes(b':') || self.0.first().is_some_and(u8::is_ascii_digit) {
            minutes = self.number(2)?;
        }
        let is_sound = hours < 24 && minutes < 60;
        Some(Zone::Offset(is_sound.then_some((hours * 60 + minutes) * sign)))
    }

    /// `[Europe/Berlin][u-ca=gregory]`, as RFC 9557 has it. The first suffix without `=` names the zone.
    fn suffix(&mut self) -> Option<Zone> {
        let mut zone = None;
        while !self.0.is_empty() {
            if !self.takes(b'[') {
                return None;
            }
            let end = self.0.iter().position(|byte| *byte == b']')?;
            let name = &self.0[..end];
            self.0 = &self.0[end + 1..];
            let found = match name {
                [b'+' | b'-', rest @ ..] => Zone::Offset(offset_name(name[0], rest)?),
                [b'A'..=b'Z' | b'a'..=b'z' | b'_', rest @ ..] if rest.iter().all(is_of_name) => Zone::Named,
                _ => return None,
            };
            if zone.is_none() && !name.contains(&b'=') {
                zone = Some(found);
            }
        }
        Some(zone.unwrap_or(Zone::Offset(None)))
    }
}

/// `hh:mm` after a sign; the inner None stands for an offset without meaning.
fn offset_name(sign: u8, text: &[u8]) -> Option<Option<i64>> {
    let mut reader = Reader(text);
    let hours = reader.number(2)?;
    let minutes = if reader.takes(b':') { reader.number(2)? } else { return None };
    let is_sound = hours < 24 && minutes < 60;
    let factor = if sign == b'-' { -60_000 } else { 60_000 };
    reader.0.is_empty().then_some(is_sound.then_some((hours * 60 + minutes) * factor))
}

fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._+:/=-".contains(byte)
}

/// Days of the proleptic Gregorian calendar (Hinnant, "chrono-compatible low-level date algorithms").
#[inline(always)]
fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    const LENGTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = LENGTHS.get(usize::try_from(month - 1).ok()?)? + i64::from(month == 2 && is_leap);
    if year < 1 || !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is their last one.
    let shifted = year - i64::from(month <= 2);
    let (era, year_of_era) = (shifted / 400, shifted % 400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_form_is_read_at_once_and_odd_times_are_left() {
        assert_eq!(parse_usual(b"2018-10-24T00:00:23.456Z"), Some(1_540_339_223_456));
        assert_eq!(parse_usual(b"0001-01-01T00:00:00.000Z"), Some(-62_135_596_800_000));
        assert_eq!(parse_usual(b"9999-12-31T23:59:59.999Z"), Some(253_402_300_799_999));
        for text in [
            "0000-01-01T00:00:00.000Z",
            "2018-13-24T00:00:23.456Z",
            "2018-02-29T00:00:23.456Z",
            "2018-10-24T24:00:00.000Z",
            "2018-10-24T00:60:23.456Z",
            "2016-12-31T23:59:60.000Z",
            "2018-10-24T00:00:2:.456Z",
            "2018-10-24T00:00:23,456Z",
            "2018-10-24 00:00:23.456Z",
            "2018-10-24T00:00:23.456z",
            "2018-10-24T00:00:23.45Z",
        ] {
            assert_eq!(parse_usual(text.as_bytes()), None, "{text}");
        }
    }

    fn at(text: &str) -> Option<Instant> {
        parse_timestamp(text.as_bytes(), 9 * 3_600_000)
    }

    #[test]
    fn times_are_instants() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T09:00:00", 0),
            ("1970-01-01", -32_400_000),
            ("1969-12-31 23:59:59.999999999Z", -1),
            ("1970-01-01T01:00:00,5+01:00", 500),
            ("1970-01-01t00z", 0),
            ("1970-01-01 00:00 UTC", 0),
            ("1970-01-01 00:00 +0000", 0),
            ("19700101T000001Z", 1000),
            ("19700101T0000", -32_400_000),
            ("1969-12-31T24:00:00Z", 0),
            ("1969-12-31T23:59:60Z", 0),
            ("1970-01-01T09:00:00[+09:00]", 0),
            ("1970-01-01T00:00:00Z[Europe/Berlin][u-ca=gregory]", 0),
            ("0001-01-01T00:00:00Z", -62_135_596_800_000),
            ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ] {
            assert_eq!(at(text), Some(Instant::At(expected)), "{text}");
        }
        assert_eq!(at("1970-01-01T00:00:00[Europe/Berlin]"), Some(Instant::InNamedZone));
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "1970",
            "1970-02-29",
            "1970-13-01",
            "1970-00-01",
            "0000-01-01",
            "1970-01-01Z",
            "1970-01-01T",
            "19700101",
            "1970-01-01T24:00:01Z",
            "1970-01-01T24:00:00.0001Z",
            "1970-01-01T12:59:60Z",
            "1970-01-01T00:60:00Z",
            "1970-01-01T00:00:61Z",
            "1970-01-01T00:00:00.1234567890Z",
            "1970-01-01T00:00:00.Z",
            "1970-01-01T00:00:00 ",
            "1970-01-01T00:00:00+24:00",
            "1970-01-01T00:00:00[!Europe/Berlin]",
            "1970-01-01T00:00:00[u-ca=gregory]",
            "1970-01-01T00:00:00[]",
            "9999-12-31T23:59:59-01:00",
            "1970-01-01T00:00:00+01:0",
            "19700101 000000Z",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_instants_in_their_unit() {
        assert_eq!(unix_time(b"1.0005", Unit::Seconds), Some(1000));
        assert_eq!(unix_time(b"-0.0005", Unit::Seconds), Some(-1));
        assert_eq!(unix_time(b"1500000000001", Unit::Seconds), Some(1_500_000_000_001));
        assert_eq!(unix_time(b"-1", Unit::Microseconds), Some(-1));
        assert_eq!(unix_time(b"1e3", Unit::Milliseconds), Some(1000));
        assert_eq!(unix_time(b"1e300", Unit::Milliseconds), None);
    }

    #[test]
    fn dates_have_both_forms() {
        assert_eq!(parse_date(b"2000-03-01"), Some(11_017));
        assert_eq!(parse_date(b"20000301"), Some(11_017));
        assert_eq!(parse_date(b"2000-3-1"), None);
        assert_eq!(parse_date(b"2000-03-011"), None);
    }
}

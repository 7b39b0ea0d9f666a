//! Well-formedness of JSON, as `kernels/json/rows.py` and Python's scanner define it, and where values lie.

use crate::text::is_space;

/// The deepest nesting of a line, the line's own object included.
pub const DEPTH_LIMIT: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Null,
    True,
    False,
    Text,
    Number,
    Object,
    Array,
    /// NaN, Infinity or -Infinity without quotes: no JSON, but Python's scanner takes them.
    Constant,
}

/// A value as written, with what its scan found out about the text.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    pub kind: Kind,
    pub raw: &'a [u8],
    /// A backslash in a text. Nested values do not say.
    pub has_escapes: bool,
    /// The value is a constant, or holds one.
    pub has_constants: bool,
    /// Insignificant whitespace inside a nested value.
    pub has_spaces: bool,
}

impl<'a> Value<'a> {
    /// Null, or no value at all.
    pub const NOTHING: Value<'static> =
        Value { kind: Kind::Null, raw: b"", has_escapes: false, has_constants: false, has_spaces: false };

    /// A number as the line could contain it.
    pub fn number(raw: &'a [u8]) -> Self {
        Value { kind: Kind::Number, raw, ..Value::NOTHING }
    }

    /// The bytes between the quotes of a text, escapes as written.
    pub fn content(&self) -> &'a [u8] {
        &self.raw[1..self.raw.len() - 1]
    }
}

/// The text is no JSON.
#[derive(Debug)]
pub struct Malformed;

type Scanned<T> = Result<T, Malformed>;

pub struct Scanner<'a> {
    pub text: &'a [u8],
    pub at: usize,
    /// An escape stands for a part of a surrogate pair.
    pub has_surrogates: bool,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Scanner { text, at: 0, has_surrogates: false }
    }

    /// The next byte. 0 stands for the end, because no JSON has one outside a text.
    #[inline(always)]
    pub fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    #[inline(always)]
    pub fn takes(&mut self, byte: u8) -> bool {
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    /// Skips whitespace; whether there was any.
    #[inline(always)]
    pub fn skip_space(&mut self) -> bool {
        // Most documents have none, and each byte of JSON's syntax is greater than a space.
        if self.peek() > b' ' {
            return false;
        }
        let from = self.at;
        while self.at < self.text.len() && is_space(self.text[self.at]) {
            self.at += 1;
        }
        self.at != from
    }

    /// A text, from after its opening quote to after its closing one: the content, and whether it has escapes.
    #[inline(always)]
    pub fn string(&mut self) -> Scanned<(&'a [u8], bool)> {
        let (text, from, mut has_escapes) = (self.text, self.at, false);
        loop {
            self.at = find_special(text, self.at);
            match text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok((&text[from..self.at - 1], has_escapes));
                }
                Some(b'\\') => {
                    has_escapes = true;
                    self.escape()?;
                }
                _ => return Err(Malformed),
            }
        }
    }

    fn escape(&mut self) -> Scanned<()> {
        match self.text.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.text.get(self.at + 2..self.at + 6).ok_or(Malformed)?;
                if !digits.iter().all(u8::is_ascii_hexdigit) {
                    return Err(Malformed);
                }
                self.has_surrogates |= digits[0] | 0x20 == b'd' && digits[1] >= b'8';
                self.at += 6;
            }
            _ => return Err(Malformed),
        }
        Ok(())
    }

    #[inline(always)]
    fn word(&mut self, word: &[u8]) -> Scanned<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Malformed);
        }
        self.at += word.len();
        Ok(())
    }

    #[inline(always)]
    fn digits(&mut self) -> Scanned<()> {
        let from = self.at;
        while self.at < self.text.len() && self.text[self.at].is_ascii_digit() {
            self.at += 1;
        }
        if self.at > from {
            Ok(())
        } else {
            Err(Malformed)
        }
    }

    #[inline(always)]
    fn number(&mut self) -> Scanned<()> {
        self.takes(b'-');
        // Digits after a leading zero are left over, and so malformed.
        if !self.takes(b'0') {
            self.digits()?;
        }
        if self.takes(b'.') {
            self.digits()?;
        }
        if self.peek() | 0x20 == b'e' {
            self.at += 1;
            if matches!(self.peek(), b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Any value. `depth` counts the objects and arrays around it.
    #[inline(always)]
    pub fn value(&mut self, depth: usize) -> Scanned<Value<'a>> {
        let from = self.at;
        let mut value = Value::NOTHING;
        match self.peek() {
            b'"' => {
                self.at += 1;
                value.kind = Kind::Text;
                value.has_escapes = self.string()?.1;
            }
            b'{' | b'[' => {
                value.kind = if self.peek() == b'{' { Kind::Object } else { Kind::Array };
                self.nested(&mut value, depth + 1)?;
            }
            b't' => {
                self.word(b"true")?;
                value.kind = Kind::True;
            }
            b'f' => {
                self.word(b"false")?;
                value.kind = Kind::False;
            }
            b'n' => self.word(b"null")?,
            b'N' => self.constant(&mut value, b"NaN")?,
            b'I' => self.constant(&mut value, b"Infinity")?,
            b'-' if self.text.get(self.at + 1) == Some(&b'I') => self.constant(&mut value, b"-Infinity")?,
            b'-' | b'0'..=b'9' => {
                self.number()?;
                value.kind = Kind::Number;
            }
            _ => return Err(Malformed),
        }
        value.raw = &self.text[from..self.at];
        Ok(value)
    }

    fn constant(&mut self, value: &mut Value, word: &[u8]) -> Scanned<()> {
        self.word(word)?;
        value.kind = Kind::Constant;
        value.has_constants = true;
        Ok(())
    }

    /// An object or an array. Recursion ends at the limit of the depth.
    fn nested(&mut self, outer: &mut Value, depth: usize) -> Scanned<()> {
        if depth > DEPTH_LIMIT {
            return Err(Malformed);
        }
        let is_object = self.peek() == b'{';
        let close = if is_object { b'}' } else { b']' };
        self.at += 1;
        outer.has_spaces |= self.skip_space();
        if self.takes(close) {
            return Ok(());
        }
        loop {
            if is_object {
                if !self.takes(b'"') {
                    return Err(Malformed);
                }
                self.string()?;
                outer.has_spaces |= self.skip_space();
                if !self.takes(b':') {
                    return Err(Malformed);
                }
                outer.has_spaces |= self.skip_space();
            }
            match self.peek() {
                b'{' | b'[' => self.nested(outer, depth + 1)?,
                _ => outer.has_constants |= self.value(depth)?.has_constants,
            }
            outer.has_spaces |= self.skip_space();
            if self.takes(close) {
                return Ok(());
            }
            if !self.takes(b',') {
                return Err(Malformed);
            }
            outer.has_spaces |= self.skip_space();
        }
    }
}

/// The first quote, backslash or control character from `at` on; the length of the text if there is none.
#[inline(always)]
fn find_special(text: &[u8], mut at: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{
            __m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
        };
        while at + 16 <= text.len() {
            // SAFETY: each x86-64 has SSE2, and sixteen bytes lie between `at` and the end of the text.
            let found = unsafe {
                let bytes = _mm_loadu_si128(text.as_ptr().add(at).cast::<__m128i>());
                let quotes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
                let backslashes = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
                let controls = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1f)), bytes);
                _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quotes, backslashes), controls))
            };
            if found != 0 {
                return at + found.trailing_zeros() as usize;
            }
            at += 16;
        }
    }
    while at < text.len() && !matches!(text[at], b'"' | b'\\' | 0..=0x1f) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str) -> Option<Value<'_>> {
        let mut scanner = Scanner::new(text.as_bytes());
        let value = scanner.value(0).ok()?;
        scanner.is_at_end().then_some(value)
    }

    #[test]
    fn values_have_their_kinds() {
        for (text, kind) in [
            ("null", Kind::Null),
            ("true", Kind::True),
            ("\"a\\u00e9\"", Kind::Text),
            ("-0.5E+3", Kind::Number),
            ("{\"a\":[1,{}]}", Kind::Object),
            ("[ ]", Kind::Array),
            ("-Infinity", Kind::Constant),
        ] {
            let value = scanned(text).unwrap();
            assert_eq!((value.kind, value.raw), (kind, text.as_bytes()));
        }
    }

    #[test]
    fn malformed_values_are_refused() {
        for text in [
            "",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "-",
            "tru",
            "\"a",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"a\nb\"",
            "[1,]",
            "{\"a\"}",
            "{a:1}",
            "[1 2]",
            "nan",
            "-Inf",
            "[",
            "{\"a\":1,}",
            "'a'",
        ] {
            assert!(scanned(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_special_character_is_found_at_each_place() {
        for length in 0..40 {
            for special in [b'"', b'\\', 0, 0x1f] {
                let mut text = vec![b'a'; length];
                text.push(special);
                text.extend_from_slice("bä \u{7f}".as_bytes());
                assert_eq!(find_special(&text, 0), length);
            }
        }
    }

    #[test]
    fn nesting_ends_at_the_limit() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(scanned(&nested(DEPTH_LIMIT)).is_some());
        assert!(scanned(&nested(DEPTH_LIMIT + 1)).is_none());
    }
}

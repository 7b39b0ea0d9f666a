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

/// What a scan finds out about the text of a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Marks(u8);

impl Marks {
    pub const NONE: Marks = Marks(0);
    /// A backslash in a text. It means nothing for nested values.
    pub const ESCAPES: Marks = Marks(1);
    /// The value is a constant, or holds one.
    pub const CONSTANTS: Marks = Marks(2);
    /// Insignificant whitespace inside a nested value.
    pub const SPACES: Marks = Marks(4);

    #[inline(always)]
    pub fn has(self, mark: Marks) -> bool {
        self.0 & mark.0 != 0
    }

    #[inline(always)]
    pub fn and(self, other: Marks) -> Marks {
        Marks(self.0 | other.0)
    }

    /// These marks if a condition holds.
    #[inline(always)]
    fn when(self, holds: bool) -> Marks {
        Marks(if holds { self.0 } else { 0 })
    }
}

/// A value as written. Lines are full of them, so it is small, and each part is written and read alone.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    pub raw: &'a [u8],
    pub kind: Kind,
    pub marks: Marks,
}

impl<'a> Value<'a> {
    /// Null, or no value at all.
    pub const NOTHING: Value<'static> = Value { raw: b"", kind: Kind::Null, marks: Marks::NONE };

    /// A number as the line could contain it.
    pub fn number(raw: &'a [u8]) -> Self {
        Value { raw, kind: Kind::Number, marks: Marks::NONE }
    }

    /// Whether a line has the value, which may be null.
    #[inline(always)]
    pub fn is_written(&self) -> bool {
        !self.raw.is_empty()
    }

    /// The bytes between the quotes of a text, escapes as written.
    #[inline(always)]
    pub fn content(&self) -> &'a [u8] {
        &self.raw[1..self.raw.len() - 1]
    }
}

/// The text is no JSON.
#[derive(Debug)]
pub struct Malformed;

type Scanned<T> = Result<T, Malformed>;

/// Calls that are not inlined get a copy of the scanner, so that the compiler keeps this one in registers.
#[derive(Clone, Copy)]
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
        let (text, from) = (self.text, self.at);
        self.at = find_special(text, from);
        let has_escapes = self.peek() == b'\\';
        if has_escapes {
            let mut copy = *self;
            copy.escaped()?;
            *self = copy;
        }
        if !self.takes(b'"') {
            return Err(Malformed);
        }
        Ok((&text[from..self.at - 1], has_escapes))
    }

    /// The rest of a text, from its first escape to its closing quote.
    #[inline(never)]
    fn escaped(&mut self) -> Scanned<()> {
        while self.peek() == b'\\' {
            self.escape()?;
            self.at = find_special(self.text, self.at);
        }
        Ok(())
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
    fn word(&mut self, word: &[u8], kind: Kind) -> Scanned<Kind> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Malformed);
        }
        self.at += word.len();
        Ok(kind)
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
    fn number(&mut self) -> Scanned<Kind> {
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
        Ok(Kind::Number)
    }

    /// Any value. `depth` counts the objects and arrays around it.
    #[inline(always)]
    pub fn value(&mut self, depth: usize) -> Scanned<Value<'a>> {
        let from = self.at;
        let (kind, marks) = self.any(depth)?;
        Ok(Value { raw: &self.text[from..self.at], kind, marks })
    }

    /// Takes any value, as `value` does.
    #[inline(always)]
    pub fn any(&mut self, depth: usize) -> Scanned<(Kind, Marks)> {
        let kind = match self.peek() {
            b'{' => Kind::Object,
            b'[' => Kind::Array,
            _ => return self.scalar(),
        };
        let mut copy = *self;
        let marks = copy.nested(depth)?;
        *self = copy;
        Ok((kind, marks))
    }

    /// A value other than an object or an array.
    #[inline(always)]
    fn scalar(&mut self) -> Scanned<(Kind, Marks)> {
        let kind = match self.peek() {
            b'"' => {
                self.at += 1;
                let (_, has_escapes) = self.string()?;
                return Ok((Kind::Text, Marks::ESCAPES.when(has_escapes)));
            }
            b'-' if self.text.get(self.at + 1) == Some(&b'I') => self.word(b"-Infinity", Kind::Constant)?,
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.word(b"true", Kind::True)?,
            b'f' => self.word(b"false", Kind::False)?,
            b'n' => self.word(b"null", Kind::Null)?,
            b'N' => self.word(b"NaN", Kind::Constant)?,
            b'I' => self.word(b"Infinity", Kind::Constant)?,
            _ => return Err(Malformed),
        };
        Ok((kind, Marks::CONSTANTS.when(kind == Kind::Constant)))
    }

    /// An object or an array, with all values inside.
    #[inline(never)]
    fn nested(&mut self, depth: usize) -> Scanned<Marks> {
        let mut scanner = *self;
        let (mut marks, mut level) = (Marks::NONE, depth);
        // A bit for each open bracket, the innermost in the lowest place: whether it is an object's.
        let mut objects = 0u128;
        loop {
            let is_object = scanner.peek() == b'{';
            let (mut is_closed, spaces) = scanner.opened(if is_object { b'}' } else { b']' }, level)?;
            marks = marks.and(spaces);
            objects = (objects << 1) | u128::from(is_object);
            level += 1;
            loop {
                if is_closed {
                    level -= 1;
                    objects >>= 1;
                    if level == depth {
                        *self = scanner;
                        return Ok(marks);
                    }
                } else {
                    if objects & 1 == 1 {
                        marks = marks.and(scanner.inner_key()?.2);
                    }
                    if matches!(scanner.peek(), b'{' | b'[') {
                        break;
                    }
                    marks = marks.and(scanner.scalar()?.1);
                }
                let (ends, spaces) = scanner.ended(if objects & 1 == 1 { b'}' } else { b']' })?;
                is_closed = ends;
                marks = marks.and(spaces);
            }
        }
    }

    /// Takes an opening bracket inside `depth` others; whether the closing one comes next.
    #[inline(always)]
    pub fn opened(&mut self, close: u8, depth: usize) -> Scanned<(bool, Marks)> {
        if depth >= DEPTH_LIMIT {
            return Err(Malformed);
        }
        self.at += 1;
        let spaces = self.space();
        Ok((self.takes(close), spaces))
    }

    /// Takes the key of an object inside a value, and the colon after it: the key, and whether it has escapes.
    #[inline(always)]
    pub fn inner_key(&mut self) -> Scanned<(&'a [u8], bool, Marks)> {
        if !self.takes(b'"') {
            return Err(Malformed);
        }
        let (key, has_escapes) = self.string()?;
        let before = self.space();
        if !self.takes(b':') {
            return Err(Malformed);
        }
        Ok((key, has_escapes, before.and(self.space())))
    }

    /// Takes what follows a value inside brackets, a comma or the closing bracket; whether it is the latter.
    #[inline(always)]
    pub fn ended(&mut self, close: u8) -> Scanned<(bool, Marks)> {
        let before = self.space();
        if self.takes(close) {
            return Ok((true, before));
        }
        if !self.takes(b',') {
            return Err(Malformed);
        }
        Ok((false, before.and(self.space())))
    }

    /// Skips whitespace inside a value.
    #[inline(always)]
    fn space(&mut self) -> Marks {
        Marks::SPACES.when(self.skip_space())
    }
}

/// The first quote, backslash or control character from `at` on; the length of the text if there is none.
#[inline(always)]
pub fn find_special(text: &[u8], mut at: usize) -> usize {
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

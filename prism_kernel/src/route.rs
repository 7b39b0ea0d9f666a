//! Whether a line belongs to the table that reads it, as `kernels/json/routing.py` decides it.

use std::collections::HashSet;

use memchr::memchr;
use memchr::memmem::Finder;
use simdutf8::basic::from_utf8;

use crate::paths::Step;
use crate::scan::{Kind, Malformed, Marks, Scanner, Value};
use crate::text::{has_lone_surrogate, unescape};

/// The most values whose bytes are looked for before a line is scanned.
const MOST_SOUGHT: usize = 8;

/// The share of a table in lines that several tables read.
pub struct Route {
    /// The first key on the way to the value that decides.
    key: Vec<u8>,
    steps: Vec<Step>,
    /// The values of the table; with `otherwise`, the values of the other tables.
    values: HashSet<Vec<u8>>,
    /// The table takes all other lines, and lines without a readable value.
    otherwise: bool,
    /// A line without any of these bytes has none of the values, unless it has escapes. None: there are too many.
    sought: Option<Vec<Finder<'static>>>,
}

impl Route {
    pub fn new(key: Vec<u8>, steps: Vec<Step>, values: Vec<Vec<u8>>, otherwise: bool) -> Self {
        let is_short = values.len() <= MOST_SOUGHT && values.iter().all(|value| !value.is_empty());
        let sought = is_short.then(|| values.iter().map(|value| Finder::new(value).into_owned()).collect());
        Route { key, steps, values: values.into_iter().collect(), otherwise, sought }
    }

    /// Whether a line belongs to the table. `is_text` says that the line is known to be UTF-8.
    ///
    /// The scan ends at the first value that is not in the list: whatever follows it, the line is then as good as one
    /// without a readable value.
    pub fn owns(&self, line: &[u8], is_text: bool) -> bool {
        if self.has_no_value(line) {
            return self.otherwise;
        }
        let mut scanner = Scanner::new(line);
        let is_listed = match self.first(&mut scanner) {
            Ok(Some(value)) => self.lists(value) && self.is_sound_after(&mut scanner, line, is_text),
            Ok(None) | Err(Malformed) => false,
        };
        is_listed != self.otherwise
    }

    fn has_no_value(&self, line: &[u8]) -> bool {
        match &self.sought {
            Some(sought) => sought.iter().all(|value| value.find(line).is_none()) && memchr(b'\\', line).is_none(),
            None => false,
        }
    }

    /// The value of the first occurrence of the key. The scanner is after it.
    fn first<'a>(&self, scanner: &mut Scanner<'a>) -> Result<Option<Value<'a>>, Malformed> {
        scanner.skip_space();
        if scanner.peek() != b'{' {
            return Ok(None);
        }
        let (mut is_closed, _) = scanner.opened(b'}', 0)?;
        while !is_closed {
            let (is_key, value) = member(scanner, &self.key, 1)?;
            if is_key {
                return Ok(Some(value));
            }
            is_closed = scanner.ended(b'}')?.0;
        }
        Ok(None)
    }

    fn lists(&self, mut value: Value) -> bool {
        for step in &self.steps {
            match inside(step, value) {
                Ok(Some(found)) => value = found,
                Ok(None) | Err(Malformed) => return false,
            }
        }
        match value.kind {
            Kind::Text if value.marks.has(Marks::ESCAPES) => self.values.contains(&unescaped(value.content())),
            Kind::Text => self.values.contains(value.content()),
            Kind::Number | Kind::True | Kind::False => self.values.contains(value.raw),
            Kind::Null | Kind::Object | Kind::Array | Kind::Constant => false,
        }
    }

    /// Whether the rest of the line is well-formed and has the key no second time.
    fn is_sound_after(&self, scanner: &mut Scanner, line: &[u8], is_text: bool) -> bool {
        matches!(self.is_alone(scanner), Ok(true))
            && (is_text || from_utf8(line).is_ok())
            && !(scanner.has_surrogates && has_lone_surrogate(line))
    }

    fn is_alone(&self, scanner: &mut Scanner) -> Result<bool, Malformed> {
        while !scanner.ended(b'}')?.0 {
            if member(scanner, &self.key, 1)?.0 {
                return Ok(false);
            }
        }
        scanner.skip_space();
        Ok(scanner.is_at_end())
    }
}

/// Takes a key with its value; whether the key is the given one.
fn member<'a>(scanner: &mut Scanner<'a>, key: &[u8], depth: usize) -> Result<(bool, Value<'a>), Malformed> {
    let (found, has_escapes, _) = scanner.inner_key()?;
    let is_key = if has_escapes { unescaped(found) == key } else { found == key };
    Ok((is_key, scanner.value(depth)?))
}

/// The value at a step of a well-formed value. None if there is none, or if the key occurs twice.
fn inside<'a>(step: &Step, value: Value<'a>) -> Result<Option<Value<'a>>, Malformed> {
    let mut scanner = Scanner::new(value.raw);
    let mut found = None;
    match (step, value.kind) {
        (Step::Key(key), Kind::Object) => {
            let (mut is_closed, _) = scanner.opened(b'}', 0)?;
            while !is_closed {
                let (is_key, inner) = member(&mut scanner, key, 1)?;
                if is_key && found.replace(inner).is_some() {
                    return Ok(None);
                }
                is_closed = scanner.ended(b'}')?.0;
            }
        }
        (Step::Place(place), Kind::Array) => {
            let (mut is_closed, _) = scanner.opened(b']', 0)?;
            let mut at = 0;
            while !is_closed && found.is_none() {
                let inner = scanner.value(1)?;
                found = (at == *place).then_some(inner);
                is_closed = scanner.ended(b']')?.0;
                at += 1;
            }
        }
        _ => {}
    }
    Ok(found)
}

fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    unescape(text, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(otherwise: bool) -> Route {
        let values = ["x", "1", "true", "\u{e9}"].map(|value| value.as_bytes().to_vec());
        Route::new(b"e".to_vec(), vec![Step::Key(b"kind".to_vec())], values.to_vec(), otherwise)
    }

    #[test]
    fn a_line_belongs_to_one_of_two_tables() {
        for (line, is_listed) in [
            (r#"{"a":1,"e":{"kind":"x"}}"#, true),
            (r#" { "e" : { "z":[] , "kind" : 1 } , "a" : {} } "#, true),
            (r#"{"\u0065":{"kind":true}}"#, true),
            (r#"{"e":{"kind":"\u00e9"}}"#, true),
            (r#"{"e":{"kind":"y"}}"#, false),
            (r#"{"e":{"kind":1.0}}"#, false),
            (r#"{"e":{"kind":["x"]}}"#, false),
            (r#"{"e":{"kind":null}}"#, false),
            (r#"{"e":{"kind":"x","kind":"x"}}"#, false),
            (r#"{"e":{"kind":"x"},"e":{"kind":"x"}}"#, false),
            (r#"{"e":{"kind":"x"}"#, false),
            (r#"{"e":{"kind":"x"},}"#, false),
            (r#"{"e":{"kind":"x"}} {"#, false),
            (r#"{"e":{"kind":"x"},"b":"\ud800"}"#, false),
            (r#"{"e":"x"}"#, false),
            ("{}", false),
            ("[]", false),
            ("", false),
            (r#"{"a" 1,"e":{"kind":"x"}}"#, false),
        ] {
            assert_eq!(route(false).owns(line.as_bytes(), true), is_listed, "{line}");
            assert_eq!(route(true).owns(line.as_bytes(), true), !is_listed, "{line}");
        }
        assert!(!route(false).owns(b"{\"e\":{\"kind\":\"x\"},\"b\":\"\xff\"}", false));
    }
}

//! Whether a line belongs to the table that reads it, as `kernels/json/routing.py` decides it.

use std::collections::HashSet;

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
    /// The values, and the sign of an escape. A line without any of them has none of the values. None: there are too many.
    sought: Option<Vec<Finder<'static>>>,
}

impl Route {
    pub fn new(key: Vec<u8>, steps: Vec<Step>, values: Vec<Vec<u8>>, otherwise: bool) -> Self {
        let is_short = values.len() <= MOST_SOUGHT && values.iter().all(|value| !value.is_empty());
        let wanted = values.iter().map(Vec::as_slice).chain([b"\\".as_slice()]);
        let sought = is_short.then(|| wanted.map(|bytes| Finder::new(bytes).into_owned()).collect());
        Route { key, steps, values: values.into_iter().collect(), otherwise, sought }
    }

    /// Divides the lines of a block, from the first to the last. `is_text` says that the block is known to be UTF-8.
    pub fn lines<'a>(&'a self, data: &'a [u8], is_text: bool) -> RoutedLines<'a> {
        let begun = |finder: &'a Finder<'static>| Occurrences::new(finder, data);
        let sought = self.sought.as_ref().map(|finders| finders.iter().map(begun).collect());
        RoutedLines { route: self, data, is_text, sought }
    }

    /// Whether a line belongs to the table. `is_text` says that the line is known to be UTF-8.
    ///
    /// The scan ends at the first value that is not in the list: whatever follows it, the line is then as good as one
    /// without a readable value.
    fn owns(&self, line: &[u8], is_text: bool) -> bool {
        let mut scanner = Scanner::new(line);
        let is_listed = match self.first(&mut scanner) {
            Ok(Some(value)) => self.lists(value) && self.is_sound_after(&mut scanner, line, is_text),
            Ok(None) | Err(Malformed) => false,
        };
        is_listed != self.otherwise
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

/// The lines of one block, and what they belong to.
pub struct RoutedLines<'a> {
    route: &'a Route,
    data: &'a [u8],
    is_text: bool,
    sought: Option<Vec<Occurrences<'a>>>,
}

impl RoutedLines<'_> {
    /// Whether a line of the block belongs to the table. Lines come in their order.
    pub fn owns(&mut self, start: usize, end: usize) -> bool {
        if self.sought.as_mut().is_some_and(|sought| !sought.iter_mut().any(|one| one.begins_in(start, end))) {
            return self.route.otherwise;
        }
        self.route.owns(&self.data[start..end], self.is_text)
    }
}

/// Where a value or an escape occurs next. A search runs over many lines, because it takes longer to begin than to go on.
struct Occurrences<'a> {
    finder: &'a Finder<'static>,
    data: &'a [u8],
    /// The first occurrence that was not passed, or the end of the block.
    next: usize,
}

impl<'a> Occurrences<'a> {
    fn new(finder: &'a Finder<'static>, data: &'a [u8]) -> Self {
        let mut made = Occurrences { finder, data, next: 0 };
        made.find_from(0);
        made
    }

    /// Whether an occurrence begins in a line. `start` never falls.
    fn begins_in(&mut self, start: usize, end: usize) -> bool {
        if self.next < start {
            self.find_from(start);
        }
        self.next < end
    }

    fn find_from(&mut self, start: usize) {
        let found = self.finder.find(&self.data[start..]);
        self.next = found.map_or(self.data.len(), |place| start + place);
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
            for otherwise in [false, true] {
                let owned = route(otherwise).lines(line.as_bytes(), true).owns(0, line.len());
                assert_eq!(owned, is_listed != otherwise, "{line}");
            }
        }
        let line = b"{\"e\":{\"kind\":\"x\"},\"b\":\"\xff\"}";
        assert!(!route(false).lines(line, false).owns(0, line.len()));
    }

    #[test]
    fn lines_of_a_block_are_as_lines_alone() {
        let lines = [
            r#"{"e":{"kind":"y"}}"#,
            r#"{"e":{"kind":"x"}}"#,
            r#"{"e":{"kind":"y"},"a":"x"}"#,
            r#"{"e":{"kind":"\u0078"}}"#,
            "",
            r#"{"e":{"kind":1}}"#,
            r#"{"e":{"kind":"y"}}"#,
        ];
        let block = lines.join("\n");
        let (table, mut start, mut owned) = (route(false), 0, Vec::new());
        let mut routed = table.lines(block.as_bytes(), true);
        for line in lines {
            owned.push(routed.owns(start, start + line.len()));
            assert_eq!(owned.last(), Some(&table.lines(line.as_bytes(), true).owns(0, line.len())), "{line}");
            start += line.len() + 1;
        }
        assert_eq!(owned, [false, true, false, true, false, true, false]);
    }
}

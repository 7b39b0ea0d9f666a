//! Reads one line: decides whether it is well-formed, and finds the values of its columns.
//!
//! Every case of bad input is decided here, as `kernels/json/rows.py` and `lines.py` decide it, in their order.

use crate::collect::Collector;
use crate::layout::{ColumnLayout, Found, Layout};
use crate::scan::{Kind, Malformed, Scanner, Value};
use crate::text::{has_lone_surrogate, is_too_deep, unescape};
use crate::undefined::{shown_key, FieldKind, UndefinedFields};

/// Why a line is no row, with the deciding column or field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejection {
    pub reason: &'static str,
    pub column: Option<String>,
}

impl Rejection {
    fn of(reason: &'static str) -> Self {
        Rejection { reason, column: None }
    }

    pub fn bad_utf8() -> Self {
        Rejection::of("bad_utf8")
    }

    fn not_object() -> Self {
        Rejection::of("not_object")
    }

    fn duplicate_key(column: &str) -> Self {
        Rejection { reason: "duplicate_key", column: Some(column.to_owned()) }
    }

    fn undefined_field(key: String) -> Self {
        Rejection { reason: "undefined_field", column: Some(key) }
    }
}

impl From<Malformed> for Rejection {
    fn from(_: Malformed) -> Self {
        Rejection::of("bad_json")
    }
}

/// The longest key, and the most keys of a line, that are remembered from one line for the next.
const LONGEST_REMEMBERED: usize = 64;
const MOST_REMEMBERED: usize = 512;

struct Field<'a> {
    key: &'a [u8],
    has_escapes: bool,
    kind: FieldKind,
}

/// A key without escapes.
struct Remembered<'a> {
    /// The key with its quotes and the colon.
    written: &'a [u8],
    key: &'a [u8],
    /// Its place, if columns read it.
    known: Option<usize>,
}

/// Where a column finds its value.
enum Place {
    /// Among the values of keys, by slot.
    Slot(usize),
    /// Among the values that were searched for.
    Searched(usize),
}

/// Reads line after line of one block.
pub struct LineReader<'a> {
    layout: &'a Layout,
    /// Values of the current line by slot.
    values: Vec<Value<'a>>,
    /// Where each column finds its value.
    places: Vec<Place>,
    /// Fields without a column, if the line is to be searched for them.
    others: Vec<Field<'a>>,
    /// Values of the current line for the columns that search theirs.
    found: Vec<Found<'a>>,
    /// The number of the current line as text, if a column reads it.
    number: Vec<u8>,
    /// Gathers keys for the columns that collect some.
    pub collector: Option<Collector<'a>>,
    /// Keys of the last line in order: those of the next line are mostly the same.
    remembered: Vec<Remembered<'a>>,
    scratch: Vec<u8>,
}

impl<'a> LineReader<'a> {
    pub fn new(layout: &'a Layout, collector: Option<Collector<'a>>) -> Self {
        let mut searched = 0..;
        let place = |column: &ColumnLayout| match column.only_slot() {
            Some(slot) => Place::Slot(slot),
            None => Place::Searched(searched.next().unwrap_or_default()),
        };
        LineReader {
            layout,
            collector,
            values: vec![Value::NOTHING; layout.owners.len()],
            places: layout.columns.iter().map(place).collect(),
            others: Vec::new(),
            found: Vec::new(),
            number: Vec::new(),
            remembered: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Finds the values of all columns of a line in UTF-8, and counts its undefined fields.
    #[inline(always)]
    pub fn read(
        &mut self,
        line: &'a [u8],
        number: i64,
        searches: bool,
        undefined: &mut UndefinedFields,
    ) -> Result<(), Rejection> {
        self.check(line, searches)?;
        self.find(number)?;
        if self.others.is_empty() {
            Ok(())
        } else {
            self.note(number, undefined)
        }
    }

    #[inline(always)]
    fn check(&mut self, line: &'a [u8], searches: bool) -> Result<(), Rejection> {
        let mut scanner = Scanner::new(line);
        let scanned = self.scan(&mut scanner, searches);
        let is_well_formed = !matches!(scanned, Err(Rejection { reason: "bad_json", .. }));
        if !is_well_formed && is_too_deep(line) {
            return Err(Rejection::of("too_deep"));
        }
        if is_well_formed && scanner.has_surrogates && has_lone_surrogate(line) {
            return Err(Rejection::bad_utf8());
        }
        scanned
    }

    /// Scans the whole line for the values of known keys.
    #[inline(always)]
    fn scan(&mut self, scanner: &mut Scanner<'a>, searches: bool) -> Result<(), Rejection> {
        self.values.fill(Value::NOTHING);
        self.others.clear();
        if let Some(collector) = &mut self.collector {
            collector.begin_line();
        }
        scanner.skip_space();
        if !scanner.takes(b'{') {
            scanner.value(0)?;
            return ended(scanner).and(Err(Rejection::not_object()));
        }
        scanner.skip_space();
        if scanner.takes(b'}') {
            return ended(scanner);
        }
        let mut doubled = None;
        for place in 0.. {
            let (key, known) = self.key(scanner, place)?;
            let value = scanner.value(1)?;
            if let Some(known) = known {
                let is_doubled = self.put(known, value);
                doubled = doubled.or(is_doubled.then_some(known));
            } else if searches {
                self.keep_other(key, value.kind);
            }
            scanner.skip_space();
            if scanner.takes(b'}') {
                break;
            }
            if !scanner.takes(b',') {
                return Err(Malformed.into());
            }
            scanner.skip_space();
        }
        ended(scanner)?;
        match doubled {
            Some(known) => Err(Rejection::duplicate_key(self.owner(known))),
            None => Ok(()),
        }
    }

    /// Keeps the value of a key; whether the line had the key before.
    #[inline(always)]
    fn put(&mut self, known: usize, value: Value<'a>) -> bool {
        match &mut self.collector {
            None => {
                let place = &mut self.values[known];
                let is_doubled = place.is_written();
                *place = value;
                is_doubled
            }
            Some(collector) => collector.put(known, value.raw, value.kind, value.marks, &mut self.values),
        }
    }

    fn owner(&self, known: usize) -> &'a str {
        match &self.collector {
            None => &self.layout.owners[known],
            Some(collector) => collector.owner(known),
        }
    }

    /// The place of a key that columns read: its slot, or its place in the collector.
    fn place_of(layout: &Layout, collector: &mut Option<Collector<'a>>, key: &[u8]) -> Option<usize> {
        match collector {
            None => layout.slots.get(key).copied(),
            Some(collector) => collector.place(key),
        }
    }

    /// Takes a key and the colon after it. Returns the key, and its place if columns read it.
    #[inline(always)]
    fn key(&mut self, scanner: &mut Scanner<'a>, place: usize) -> Result<(&'a [u8], Option<usize>), Malformed> {
        let from = scanner.at;
        if let Some(before) = self.remembered.get(place) {
            if begins_with(&scanner.text[from..], before.written) {
                scanner.at += before.written.len();
                scanner.skip_space();
                return Ok((before.key, before.known));
            }
        }
        if !scanner.takes(b'"') {
            return Err(Malformed);
        }
        let (key, has_escapes) = scanner.string()?;
        scanner.skip_space();
        if !scanner.takes(b':') {
            return Err(Malformed);
        }
        let written = &scanner.text[from..scanner.at];
        scanner.skip_space();
        if has_escapes {
            self.scratch.clear();
            unescape(key, &mut self.scratch);
            return Ok((key, Self::place_of(self.layout, &mut self.collector, &self.scratch)));
        }
        let known = Self::place_of(self.layout, &mut self.collector, key);
        if key.len() <= LONGEST_REMEMBERED && place < MOST_REMEMBERED {
            self.remembered.truncate(place);
            if self.remembered.len() == place {
                self.remembered.push(Remembered { written, key, known });
            }
        }
        Ok((key, known))
    }

    fn keep_other(&mut self, key: &'a [u8], kind: Kind) {
        let kind = match kind {
            Kind::Null | Kind::Constant => return,
            Kind::Text => FieldKind::Text,
            Kind::Number => FieldKind::Number,
            Kind::True | Kind::False => FieldKind::Boolean,
            Kind::Object | Kind::Array => FieldKind::Nested,
        };
        self.others.push(Field { key, has_escapes: key.contains(&b'\\'), kind });
    }

    #[inline(always)]
    fn find(&mut self, number: i64) -> Result<(), Rejection> {
        self.found.clear();
        for (column, place) in self.layout.columns.iter().zip(&self.places) {
            if let Place::Searched(_) = place {
                let found = column.find(&self.values, &mut self.collector);
                let found = found.map_err(|_| Rejection::duplicate_key(&column.name))?;
                if let Found::LineNumber = found {
                    self.number = number.to_string().into_bytes();
                }
                self.found.push(found);
            }
        }
        Ok(())
    }

    /// Hands over the values of the current line, column by column.
    #[inline(always)]
    pub fn row(&self, mut take: impl FnMut(&Value)) {
        for place in &self.places {
            let made;
            take(match place {
                Place::Slot(slot) => &self.values[*slot],
                Place::Searched(place) => {
                    made = self.searched(*place);
                    &made
                }
            });
        }
    }

    fn searched(&self, place: usize) -> Value<'_> {
        match &self.found[place] {
            Found::Value(value) => *value,
            Found::LineNumber => Value::number(&self.number),
            Found::Collected(place) => {
                self.collector.as_ref().map_or(Value::NOTHING, |collector| collector.object(*place).value())
            }
        }
    }

    /// Whether a column has no value in the current line. Line numbers and collected keys are values.
    #[inline(always)]
    pub fn is_missing(&self, column: usize) -> bool {
        match self.places[column] {
            Place::Slot(slot) => self.values[slot].kind == Kind::Null,
            Place::Searched(place) => matches!(&self.found[place], Found::Value(value) if value.kind == Kind::Null),
        }
    }

    /// Counts the undefined fields of a line. A table that freezes its columns has no row of the line.
    fn note(&mut self, number: i64, undefined: &mut UndefinedFields) -> Result<(), Rejection> {
        let mut first = None;
        for field in &self.others {
            let key = if field.has_escapes {
                self.scratch.clear();
                unescape(field.key, &mut self.scratch);
                shown_key(&self.scratch)
            } else {
                shown_key(field.key)
            };
            // An empty key gives way to the next one.
            if first.as_ref().is_none_or(String::is_empty) {
                first = Some(key.clone());
            }
            undefined.add(key, field.kind, number);
        }
        match first {
            Some(key) if self.layout.freezes => Err(Rejection::undefined_field(key)),
            _ => Ok(()),
        }
    }
}

/// As `starts_with`, without the call of a function, because keys are short.
#[inline(always)]
fn begins_with(text: &[u8], start: &[u8]) -> bool {
    const WORD: usize = 8;
    let Some(text) = text.get(..start.len()) else { return false };
    let (Some(text_end), Some(start_end)) = (text.last_chunk::<WORD>(), start.last_chunk::<WORD>()) else {
        return text.iter().zip(start).all(|(left, right)| left == right);
    };
    let mut words = text.chunks_exact(WORD).zip(start.chunks_exact(WORD));
    words.all(|(left, right)| left == right) && text_end == start_end
}

/// Nothing but whitespace may follow.
#[inline(always)]
fn ended(scanner: &mut Scanner) -> Result<(), Rejection> {
    scanner.skip_space();
    if scanner.is_at_end() {
        Ok(())
    } else {
        Err(Malformed.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::columns::Type;
    use crate::layout::{ColumnLayout, Source, Step};

    fn layout(freezes: bool) -> Layout {
        let column = |name: &str, sources| ColumnLayout { name: name.to_owned(), kind: Type::Int64, sources };
        Layout {
            columns: vec![
                column("a", vec![Source::Key { slot: 0, steps: vec![] }]),
                column("inner", vec![Source::Key { slot: 1, steps: vec![Step::Key(b"x".to_vec())] }]),
            ],
            slots: HashMap::from([(b"a".to_vec(), 0), (b"o".to_vec(), 1)]),
            owners: vec!["a".to_owned(), "inner".to_owned()],
            patterns: vec![],
            rest: None,
            partition: None,
            freezes,
        }
    }

    fn reason(line: &str, freezes: bool) -> String {
        let layout = layout(freezes);
        let mut reader = LineReader::new(&layout, None);
        match reader.read(line.as_bytes(), 1, true, &mut UndefinedFields::default()) {
            Ok(()) => "a row".to_owned(),
            Err(Rejection { reason, column }) => format!("{reason} {}", column.unwrap_or_default()).trim().to_owned(),
        }
    }

    #[test]
    fn lines_are_rejected_for_the_first_reason() {
        let deep = format!("{{\"z\":{}", "[".repeat(128));
        for (line, expected) in [
            ("{}", "a row"),
            (" { \"a\" : 1 , \"z\" : [ ] } \r", "a row"),
            ("{\"a\":1,}", "bad_json"),
            ("{\"a\":1} x", "bad_json"),
            ("{\"a\" 1}", "bad_json"),
            ("", "bad_json"),
            ("[1]", "not_object"),
            ("[1] 2", "bad_json"),
            ("\"\\ud800\"", "bad_utf8"),
            ("{\"a\":1,\"\\u0061\":2}", "duplicate_key a"),
            ("{\"a\":1,\"a\":2", "bad_json"),
            ("{\"a\":1,\"a\":2,\"z\":\"\\udc00\"}", "bad_utf8"),
            ("{\"o\":{\"x\":1,\"x\":2}}", "duplicate_key inner"),
            ("{\"z\":1,\"z\":2}", "a row"),
            (&deep, "too_deep"),
        ] {
            assert_eq!(reason(line, false), expected, "{line}");
        }
    }

    #[test]
    fn frozen_columns_refuse_other_fields() {
        assert_eq!(reason("{\"\":1,\"z\":2}", true), "undefined_field z");
        assert_eq!(reason("{\"\":1}", true), "undefined_field");
        assert_eq!(reason("{\"z\":null,\"y\":NaN}", true), "a row");
    }
}

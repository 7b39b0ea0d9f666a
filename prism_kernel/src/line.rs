//! Reads one line: decides whether it is well-formed, and finds the values of its columns.
//!
//! Every case of bad input is decided here, as `kernels/json/rows.py` and `lines.py` decide it, in their order.

use std::collections::{HashMap, HashSet};

use crate::collect::Collector;
use crate::layout::{ColumnLayout, ColumnType, Found, Layout};
use crate::nested::{first_doubled, undefined_keys, Shape, Tape};
use crate::paths::Picked;
use crate::scan::{Kind, Malformed, Marks, Scanner, Value};
use crate::text::{has_lone_surrogate, is_too_deep, unescape};
use crate::undefined::{shown_key, FieldKind, UndefinedFields, MOST_KEYS};

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

/// Nested columns keep the memory of so many slots from one line for the next. Lines that are set aside end no part of a
/// block, so each of them may leave the memory of its values in another column.
const MOST_SLOTS_KEPT: usize = 4 << 20;

struct Field<'a> {
    key: &'a [u8],
    has_escapes: bool,
    kind: FieldKind,
}

/// A key of a line.
#[derive(Clone, Copy)]
struct Key<'a> {
    /// The key with its quotes and the colon.
    written: &'a [u8],
    /// Between the quotes.
    name: &'a [u8],
    /// Its place, if columns read it.
    known: Option<usize>,
    inside: Option<Inside>,
}

/// What is read inside of the value of a key while the line is scanned.
#[derive(Clone, Copy)]
enum Inside {
    /// The root of the paths that lead into the value.
    Paths(usize),
    /// The number of a nested column.
    Parts(usize),
}

/// Where a column finds its value.
#[derive(Clone, Copy)]
enum Place {
    /// Among the values of keys, by slot.
    Slot(usize),
    /// Among the values that were searched for.
    Searched(usize),
}

/// A nested column, and the parts of its value in the current line.
struct NestedColumn<'a> {
    layout: &'a ColumnLayout,
    shape: &'a Shape,
    place: Place,
    tape: Tape<'a>,
    /// The line was scanned with the value in it, so leaves have their places in the line.
    is_of_line: bool,
}

/// Reads line after line of one block.
pub struct LineReader<'a> {
    layout: &'a Layout,
    /// Values of the current line by slot.
    values: Vec<Value<'a>>,
    /// Values inside of those.
    picked: Picked<'a>,
    /// The current line.
    line: &'a [u8],
    /// Where each column without parts finds its value.
    places: Vec<Place>,
    /// The columns that search their values.
    searched: Vec<&'a ColumnLayout>,
    nested: Vec<NestedColumn<'a>>,
    /// The nested column that alone reads the value of a slot.
    nested_slots: HashMap<usize, usize>,
    /// Where the time of the row is.
    time: Option<Place>,
    /// Fields without a column, if the line is to be searched for them.
    others: Vec<Field<'a>>,
    /// Values around the current line, which records of documents have.
    pub outer: Vec<Value<'a>>,
    /// Values of the current line for the columns that search theirs.
    found: Vec<Found<'a>>,
    /// The number of the current line as text, if a column reads it.
    number: Vec<u8>,
    /// Gathers keys for the columns that collect some.
    pub collector: Option<Collector<'a>>,
    /// Keys of the last line in order: those of the next line are mostly the same.
    remembered: Vec<Key<'a>>,
    scratch: Vec<u8>,
}

impl NestedColumn<'_> {
    /// Takes the value of a line under scan. Other values of the line took some of the most slots already: if the rest is
    /// too few, the value is walked again once it is known which columns come before.
    fn scan(&mut self, scanner: &mut Scanner, taken: &mut usize, most: usize) -> Result<(Kind, Marks), Malformed> {
        let before = *taken - self.tape.slots;
        let found = self.tape.walk(scanner, 1, most.saturating_sub(*taken))?;
        if self.tape.is_too_large && *taken > 0 {
            self.tape.clear();
        }
        *taken = before + self.tape.slots;
        Ok(found)
    }

    /// Walks through a value, unless the scan did. The columns before leave `slots_left` for it.
    fn read(&mut self, value: Value, slots_left: usize) -> Result<(), Rejection> {
        self.is_of_line = self.tape.is_walked;
        if self.tape.slots > slots_left {
            self.tape.give_up();
        } else if !self.is_of_line {
            if value.is_written() {
                self.tape.walk(&mut Scanner::new(value.raw), 0, slots_left)?;
            } else {
                self.tape.be_null();
            }
        }
        let doubled = if self.tape.has_doubled { first_doubled(self.shape, value) } else { None };
        doubled.map_or(Ok(()), |path| Err(Rejection::duplicate_key(&format!("{}{path}", self.layout.name))))
    }
}

impl<'a> LineReader<'a> {
    pub fn new(layout: &'a Layout, collector: Option<Collector<'a>>) -> Self {
        let (mut places, mut searched, mut nested, mut time) = (Vec::new(), Vec::new(), Vec::new(), None);
        let mut nested_slots = HashMap::new();
        for (number, column) in layout.columns.iter().enumerate() {
            let place = match column.only_slot() {
                Some(slot) => Place::Slot(slot),
                None => {
                    searched.push(column);
                    Place::Searched(searched.len() - 1)
                }
            };
            time = if layout.partition == Some(number) { Some(place) } else { time };
            match &column.kind {
                ColumnType::Flat(_) => places.push(place),
                ColumnType::Nested(shape) => {
                    if let Some(slot) = column.only_slot() {
                        nested_slots.entry(slot).or_insert(nested.len());
                    }
                    let tape = Tape::new(shape);
                    nested.push(NestedColumn { layout: column, shape, place, tape, is_of_line: false });
                }
            }
        }
        LineReader {
            layout,
            collector,
            values: vec![Value::NOTHING; layout.owners.len()],
            picked: Picked::new(&layout.paths),
            line: b"",
            places,
            searched,
            nested,
            nested_slots,
            time,
            others: Vec::new(),
            outer: Vec::new(),
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
        if !self.nested.is_empty() {
            self.read_nested()?;
        }
        let mut first = if self.others.is_empty() { None } else { self.note(number, undefined) };
        if searches && self.nested.iter().any(|column| column.tape.has_undefined) {
            let inside = self.note_parts(number, undefined);
            first = first.or(inside);
        }
        match first {
            Some(key) if self.layout.freezes => Err(Rejection::undefined_field(key)),
            _ => Ok(()),
        }
    }

    #[inline(always)]
    fn check(&mut self, line: &'a [u8], searches: bool) -> Result<(), Rejection> {
        self.line = line;
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
        self.picked.clear();
        self.others.clear();
        let mut slots_kept = 0;
        for column in &mut self.nested {
            column.tape.clear();
            slots_kept += column.tape.slots_kept;
        }
        if slots_kept > MOST_SLOTS_KEPT {
            self.nested.iter_mut().for_each(|column| column.tape.forget());
        }
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
        let (mut doubled, mut taken) = (None, 0);
        for place in 0.. {
            let key = self.key(scanner, place)?;
            let from = scanner.at;
            let (kind, marks) = match key.inside {
                None => scanner.any(1)?,
                Some(inside) => {
                    let mut copy = *scanner;
                    let found = match inside {
                        Inside::Paths(root) => self.picked.scan(root, &mut copy, 1)?,
                        Inside::Parts(number) => {
                            self.nested[number].scan(&mut copy, &mut taken, self.layout.most_slots)?
                        }
                    };
                    *scanner = copy;
                    found
                }
            };
            if let Some(known) = key.known {
                let is_doubled = self.put(known, &scanner.text[from..scanner.at], kind, marks);
                doubled = doubled.or(is_doubled.then_some(known));
            } else if searches {
                self.keep_other(key.name, kind);
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

    /// Keeps the value of a key; whether the line had the key before. The value comes in parts, because the compiler
    /// puts it into memory as a whole, and a processor waits where it writes parts and reads the whole.
    #[inline(always)]
    fn put(&mut self, known: usize, raw: &'a [u8], kind: Kind, marks: Marks) -> bool {
        match &mut self.collector {
            None => {
                let place = &mut self.values[known];
                let is_doubled = place.is_written();
                *place = Value { raw, kind, marks };
                is_doubled
            }
            Some(collector) => collector.put(known, raw, kind, marks, &mut self.values),
        }
    }

    fn owner(&self, known: usize) -> &'a str {
        match &self.collector {
            None => &self.layout.owners[known],
            Some(collector) => collector.owner(known),
        }
    }

    /// The place of a key that columns read, its slot or its place in the collector, and what is read inside of its value.
    fn place_of(&mut self, key: &[u8]) -> (Option<usize>, Option<Inside>) {
        let (place, slot) = match &mut self.collector {
            None => {
                let slot = self.layout.slots.get(key).copied();
                (slot, slot)
            }
            Some(collector) => {
                let place = collector.place(key);
                (place, place.and_then(|place| collector.slot(place)))
            }
        };
        let paths = slot.and_then(|slot| self.layout.paths.root(slot)).map(Inside::Paths);
        let parts = || slot.and_then(|slot| self.nested_slots.get(&slot).copied()).map(Inside::Parts);
        (place, paths.or_else(parts))
    }

    /// Takes a key and the colon after it.
    #[inline(always)]
    fn key(&mut self, scanner: &mut Scanner<'a>, place: usize) -> Result<Key<'a>, Malformed> {
        if let Some(key) = self.remembered.get(place) {
            if begins_with(&scanner.text[scanner.at..], key.written) {
                scanner.at += key.written.len();
                scanner.skip_space();
                return Ok(*key);
            }
        }
        let mut copy = *scanner;
        let key = self.new_key(&mut copy, place)?;
        *scanner = copy;
        Ok(key)
    }

    #[inline(never)]
    fn new_key(&mut self, scanner: &mut Scanner<'a>, place: usize) -> Result<Key<'a>, Malformed> {
        let from = scanner.at;
        if !scanner.takes(b'"') {
            return Err(Malformed);
        }
        let (name, has_escapes) = scanner.string()?;
        scanner.skip_space();
        if !scanner.takes(b':') {
            return Err(Malformed);
        }
        let written = &scanner.text[from..scanner.at];
        scanner.skip_space();
        if has_escapes {
            let mut unescaped = Vec::new();
            unescape(name, &mut unescaped);
            let (known, inside) = self.place_of(&unescaped);
            return Ok(Key { written, name, known, inside });
        }
        let (known, inside) = self.place_of(name);
        let key = Key { written, name, known, inside };
        if name.len() <= LONGEST_REMEMBERED && place < MOST_REMEMBERED {
            self.remembered.truncate(place);
            if self.remembered.len() == place {
                self.remembered.push(key);
            }
        }
        Ok(key)
    }

    fn keep_other(&mut self, key: &'a [u8], kind: Kind) {
        if let Some(kind) = FieldKind::of(kind) {
            self.others.push(Field { key, has_escapes: key.contains(&b'\\'), kind });
        }
    }

    #[inline(always)]
    fn find(&mut self, number: i64) -> Result<(), Rejection> {
        self.found.clear();
        for column in &self.searched {
            let found = column.find(&self.values, &self.picked, &self.outer, &mut self.collector);
            let found = found.map_err(|_| Rejection::duplicate_key(&column.name))?;
            if let Found::LineNumber = found {
                self.number = number.to_string().into_bytes();
            }
            self.found.push(found);
        }
        Ok(())
    }

    /// Walks through the values of nested columns that the scan did not walk through. A key that is read and occurs twice
    /// sets the line aside.
    #[inline(never)]
    fn read_nested(&mut self) -> Result<(), Rejection> {
        let mut nested = std::mem::take(&mut self.nested);
        let mut slots_left = self.layout.most_slots;
        let read = nested.iter_mut().try_for_each(|column| {
            column.read(self.value_at(column.place), slots_left)?;
            slots_left -= column.tape.slots;
            Ok(())
        });
        self.nested = nested;
        read
    }

    /// Counts keys inside of structs that no field reads, each once a line, and returns the path of the first one. Keys
    /// inside of maps are not counted, because keys of maps are data.
    #[inline(never)]
    fn note_parts(&self, number: i64, undefined: &mut UndefinedFields) -> Option<String> {
        let (mut first, mut known) = (None, HashSet::new());
        for column in self.nested.iter().filter(|column| column.tape.has_undefined) {
            for (path, key, kind) in undefined_keys(column.shape, self.value_at(column.place)) {
                if known.len() >= MOST_KEYS {
                    break;
                }
                let within = format!("{}{path}", column.layout.name);
                first = first.or_else(|| Some(format!("{within}.{key}")));
                let is_new = known.insert((within.clone(), key.clone(), kind));
                if is_new && !within.contains('{') {
                    undefined.add(within, key, kind, number);
                }
            }
        }
        first
    }

    /// Hands over the values of the columns without parts in the current line, column by column.
    #[inline(always)]
    pub fn row(&self, mut take: impl FnMut(&Value)) {
        for place in &self.places {
            let made;
            take(match place {
                Place::Slot(slot) => &self.values[*slot],
                Place::Searched(place) => {
                    made = self.value_of(*place);
                    &made
                }
            });
        }
    }

    /// The parts of nested columns in the current line, each with the text in which its leaves have their places.
    pub fn nested_row(&self) -> impl Iterator<Item = (&Tape<'a>, &[u8])> {
        self.nested.iter().map(|column| {
            let text = if column.is_of_line { self.line } else { self.value_at(column.place).raw };
            (&column.tape, text)
        })
    }

    fn value_at(&self, place: Place) -> Value<'_> {
        match place {
            Place::Slot(slot) => self.values[slot],
            Place::Searched(place) => self.value_of(place),
        }
    }

    fn value_of(&self, place: usize) -> Value<'_> {
        match &self.found[place] {
            Found::Value(value) => *value,
            Found::LineNumber => Value::number(&self.number),
            Found::Collected(place) => {
                self.collector.as_ref().map_or(Value::NOTHING, |collector| collector.object(*place).value())
            }
        }
    }

    /// Whether the time has no value in the current line. Line numbers and collected keys are values.
    #[inline(always)]
    pub fn is_time_missing(&self) -> bool {
        match self.time {
            None => false,
            Some(Place::Slot(slot)) => self.values[slot].kind == Kind::Null,
            Some(Place::Searched(place)) => {
                matches!(&self.found[place], Found::Value(value) if value.kind == Kind::Null)
            }
        }
    }

    /// Counts the undefined fields of a line, and returns the first one.
    fn note(&mut self, number: i64, undefined: &mut UndefinedFields) -> Option<String> {
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
            undefined.add(String::new(), key, field.kind, number);
        }
        first
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
    use super::*;
    use crate::columns::Type;
    use crate::layout::{ColumnLayout, Source};
    use crate::paths::{Paths, Step};

    fn layout(freezes: bool) -> Layout {
        let kind = || ColumnType::Flat(Type::Int64);
        let column = |name: &str, sources| ColumnLayout { name: name.to_owned(), kind: kind(), sources };
        let mut paths = Paths::default();
        let path = paths.add(1, vec![Step::Key(b"x".to_vec())]);
        Layout {
            columns: vec![column("a", vec![Source::Key(0)]), column("inner", vec![Source::Inside(path)])],
            paths,
            slots: HashMap::from([(b"a".to_vec(), 0), (b"o".to_vec(), 1)]),
            owners: vec!["a".to_owned(), "inner".to_owned()],
            patterns: vec![],
            rest: None,
            partition: None,
            freezes,
            route: None,
            most_slots: usize::MAX,
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
    fn a_text_begins_with_each_of_its_beginnings_and_with_no_other_text() {
        let text = b"\"request_id_of_a_user\":1";
        for length in 0..=text.len() {
            assert!(begins_with(text, &text[..length]));
            for place in 0..length {
                let mut other = text[..length].to_vec();
                other[place] ^= 1;
                assert!(!begins_with(text, &other));
            }
        }
        assert!(!begins_with(text, b"\"request_id_of_a_user\":12"));
    }

    #[test]
    fn keys_of_the_last_line_are_known_with_any_whitespace() {
        let layout = layout(false);
        let mut reader = LineReader::new(&layout, None);
        for line in ["{\"a\":1,\"o\":{\"x\":2}}", "{\"a\": 1,\"o\" :{\"x\":2}}", "{\"a\":\t1, \"o\":{\"x\":2}}"] {
            assert_eq!(reader.read(line.as_bytes(), 1, true, &mut UndefinedFields::default()), Ok(()));
            let mut row = Vec::new();
            reader.row(|value| row.push(value.raw.to_vec()));
            assert_eq!(row, [b"1", b"2"]);
        }
    }

    #[test]
    fn frozen_columns_refuse_other_fields() {
        assert_eq!(reason("{\"\":1,\"z\":2}", true), "undefined_field z");
        assert_eq!(reason("{\"\":1}", true), "undefined_field");
        assert_eq!(reason("{\"z\":null,\"y\":NaN}", true), "a row");
    }
}

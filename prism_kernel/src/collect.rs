//! Columns that collect keys: which keys of a line they take, and the objects made of those.

use std::collections::HashMap;

use crate::layout::Layout;
use crate::scan::{Kind, Marks, Value};
use crate::text::write_text;

/// Returns the patterns that match a key, in their order, or None if they cannot be judged.
pub type Matching<'a> = dyn Fn(&str) -> Option<Vec<usize>> + 'a;

/// What a column collects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collected {
    /// Keys that match a pattern, whether a column names them or not.
    Matched(usize),
    /// Keys that neither a column nor a pattern names.
    Rest,
}

/// A key of the block that columns read.
struct Key {
    /// The key as the text of JSON, with its quotes.
    written: Vec<u8>,
    slot: Option<usize>,
    patterns: Vec<usize>,
    /// The last line with this key.
    line: u64,
}

impl Key {
    fn is_part_of(&self, collected: Collected) -> bool {
        match collected {
            Collected::Matched(pattern) => self.patterns.contains(&pattern),
            Collected::Rest => self.slot.is_none() && self.patterns.is_empty(),
        }
    }
}

/// An object made of some keys of a line.
pub struct Object {
    text: Vec<u8>,
    marks: Marks,
}

impl Object {
    pub fn value(&self) -> Value<'_> {
        Value { raw: &self.text, kind: Kind::Object, marks: self.marks }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.marks = Marks::NONE;
    }
}

/// Collects the keys of line after line of one block. A key is judged once.
pub struct Collector<'a> {
    layout: &'a Layout,
    matching: &'a Matching<'a>,
    /// Places in `keys`; None for keys that no column reads.
    places: HashMap<Vec<u8>, Option<usize>>,
    keys: Vec<Key>,
    line: u64,
    /// Keys of the current line with their values, in order.
    members: Vec<(usize, Value<'a>)>,
    /// Objects of the current line, and used ones of earlier lines.
    objects: Vec<Object>,
    used: usize,
    /// A key could not be judged: the block has no result.
    pub has_failed: bool,
}

impl<'a> Collector<'a> {
    pub fn new(layout: &'a Layout, matching: &'a Matching<'a>) -> Self {
        Collector {
            layout,
            matching,
            places: HashMap::new(),
            keys: Vec::new(),
            line: 0,
            members: Vec::new(),
            objects: Vec::new(),
            used: 0,
            has_failed: false,
        }
    }

    pub fn begin_line(&mut self) {
        self.line += 1;
        self.members.clear();
        self.used = 0;
    }

    /// The place of a key that columns read.
    pub fn place(&mut self, key: &[u8]) -> Option<usize> {
        if let Some(place) = self.places.get(key) {
            return *place;
        }
        let place = self.judged(key);
        self.places.insert(key.to_owned(), place);
        place
    }

    fn judged(&mut self, key: &[u8]) -> Option<usize> {
        let slot = self.layout.slots.get(key).copied();
        let patterns = if self.layout.patterns.is_empty() { Some(Vec::new()) } else { self.matched(key) };
        let Some(patterns) = patterns else {
            self.has_failed = true;
            return None;
        };
        if slot.is_none() && patterns.is_empty() && self.layout.rest.is_none() {
            return None;
        }
        let mut written = Vec::with_capacity(key.len() + 2);
        write_text(key, &mut written);
        self.keys.push(Key { written, slot, patterns, line: 0 });
        Some(self.keys.len() - 1)
    }

    fn matched(&self, key: &[u8]) -> Option<Vec<usize>> {
        (self.matching)(std::str::from_utf8(key).ok()?)
    }

    /// Takes a key with the parts of its value; whether the line had the key before. Values of slots go into `values`,
    /// too.
    pub fn put(&mut self, place: usize, raw: &'a [u8], kind: Kind, marks: Marks, values: &mut [Value<'a>]) -> bool {
        let value = Value { raw, kind, marks };
        let key = &mut self.keys[place];
        let is_doubled = key.line == self.line;
        key.line = self.line;
        if let Some(slot) = key.slot {
            values[slot] = value;
        }
        if key.slot.is_none() || !key.patterns.is_empty() {
            self.members.push((place, value));
        }
        is_doubled
    }

    /// The slot of a key.
    pub fn slot(&self, place: usize) -> Option<usize> {
        self.keys[place].slot
    }

    /// The column that a second occurrence of a key is reported for.
    pub fn owner(&self, place: usize) -> &'a str {
        let key = &self.keys[place];
        let owner = match (key.slot, key.patterns.first()) {
            (Some(slot), _) => self.layout.owners.get(slot),
            (None, Some(pattern)) => self.layout.patterns.get(*pattern),
            (None, None) => self.layout.rest.as_ref(),
        };
        owner.map_or("", String::as_str)
    }

    /// Makes the object of the current line's keys, and returns its place, or None if no key belongs to it.
    pub fn gather(&mut self, collected: Collected) -> Option<usize> {
        if self.used == self.objects.len() {
            self.objects.push(Object { text: Vec::new(), marks: Marks::NONE });
        }
        let object = &mut self.objects[self.used];
        object.clear();
        for (place, value) in &self.members {
            let key = &self.keys[*place];
            if key.is_part_of(collected) {
                object.text.push(if object.text.is_empty() { b'{' } else { b',' });
                object.text.extend_from_slice(&key.written);
                object.text.push(b':');
                object.text.extend_from_slice(value.raw);
                object.marks = object.marks.and(value.marks);
            }
        }
        if object.text.is_empty() {
            return None;
        }
        object.text.push(b'}');
        self.used += 1;
        Some(self.used - 1)
    }

    /// An object of the current line.
    pub fn object(&self, place: usize) -> &Object {
        &self.objects[place]
    }
}

//! Counts of fields without a column, as `kernels/json/undefined.py` defines them.

use std::collections::HashMap;

use crate::scan::Kind;

/// The most keys of one block; further keys are not counted.
pub const MOST_KEYS: usize = 500;
/// The most characters of a stored key.
const LONGEST_KEY: usize = 200;
const KINDS: usize = 4;

/// The kind of a field's value. Null and constants such as NaN have none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FieldKind {
    Text,
    Number,
    Boolean,
    Nested,
}

impl FieldKind {
    pub fn of(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Null | Kind::Constant => None,
            Kind::Text => Some(FieldKind::Text),
            Kind::Number => Some(FieldKind::Number),
            Kind::True | Kind::False => Some(FieldKind::Boolean),
            Kind::Object | Kind::Array => Some(FieldKind::Nested),
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            FieldKind::Text => "text",
            FieldKind::Number => "number",
            FieldKind::Boolean => "boolean",
            FieldKind::Nested => "nested",
        }
    }
}

/// Fields of one place, key and kind.
pub struct UndefinedField {
    /// The path of the struct around them. Empty for keys of lines.
    pub within: String,
    pub key: String,
    pub kind: FieldKind,
    pub count: u64,
    /// The number of the first line with one.
    pub line: i64,
}

#[derive(Default)]
pub struct UndefinedFields {
    /// Places in `found`, by path, stored key, and kind.
    places: HashMap<(String, String), [Option<usize>; KINDS]>,
    pub found: Vec<UndefinedField>,
}

impl UndefinedFields {
    pub fn add(&mut self, within: String, key: String, kind: FieldKind, line: i64) {
        let field = (within, key);
        if self.places.len() >= MOST_KEYS && !self.places.contains_key(&field) {
            return;
        }
        let (within, key) = field.clone();
        let place = &mut self.places.entry(field).or_default()[kind as usize];
        match place {
            Some(place) => self.found[*place].count += 1,
            None => {
                *place = Some(self.found.len());
                self.found.push(UndefinedField { within, key, kind, count: 1, line });
            }
        }
    }
}

/// Whether fields of this line are counted: the first thousand lines of an object, then 64 of every 1,024.
pub fn is_sampled(line: i64) -> bool {
    line <= 1_000 || line / 64 % 16 == 0
}

/// A key as stored: at most 200 characters, without characters that PostgreSQL refuses.
pub fn shown_key(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key).replace('\0', "\u{fffd}");
    match key.char_indices().nth(LONGEST_KEY) {
        Some((end, _)) => format!("{}…", &key[..end]),
        None => key,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_by_key_and_kind() {
        let mut fields = UndefinedFields::default();
        for (key, kind, line) in [("a", FieldKind::Text, 3), ("a", FieldKind::Text, 5), ("a", FieldKind::Number, 6)] {
            fields.add(String::new(), key.to_owned(), kind, line);
        }
        let found: Vec<_> = fields.found.iter().map(|field| (field.kind, field.count, field.line)).collect();
        assert_eq!(found, [(FieldKind::Text, 2, 3), (FieldKind::Number, 1, 6)]);
    }

    #[test]
    fn keys_beyond_the_limit_are_left_out() {
        let mut fields = UndefinedFields::default();
        for number in 0..MOST_KEYS + 10 {
            fields.add(String::new(), number.to_string(), FieldKind::Text, 1);
        }
        fields.add(String::new(), "0".to_owned(), FieldKind::Nested, 2);
        assert_eq!(fields.found.len(), MOST_KEYS + 1);
    }

    #[test]
    fn keys_are_stored_short_and_without_zeros() {
        assert_eq!(shown_key(b"a\0b"), "a\u{fffd}b");
        assert_eq!(shown_key("é".repeat(200).as_bytes()), "é".repeat(200));
        assert_eq!(shown_key("é".repeat(201).as_bytes()), format!("{}…", "é".repeat(200)));
    }
}

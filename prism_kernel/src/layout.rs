//! What a table reads of a line: its columns, where each finds its value, and which keys are known.

use std::collections::HashMap;

use crate::collect::{Collected, Collector};
use crate::columns::Type;
use crate::scan::{Kind, Malformed, Scanner, Value};
use crate::text::unescape;

pub enum Step {
    Key(Vec<u8>),
    Place(usize),
}

/// A place to look for the value of a column.
pub enum Source {
    /// The value of a key, or a place inside it at the end of a path.
    Key { slot: usize, steps: Vec<Step> },
    /// Many keys together, as one object.
    Collected(Collected),
    /// A JSON text that all lines share.
    Shared(Vec<u8>),
    /// The number of the line.
    LineNumber,
}

pub struct ColumnLayout {
    pub name: String,
    pub kind: Type,
    /// The first source with a value other than null counts.
    pub sources: Vec<Source>,
}

impl ColumnLayout {
    /// The slot of a column that reads the whole value of one key, as most do.
    #[inline(always)]
    pub fn only_slot(&self) -> Option<usize> {
        match self.sources.as_slice() {
            [Source::Key { slot, steps }] if steps.is_empty() => Some(*slot),
            _ => None,
        }
    }
}

pub struct Layout {
    pub columns: Vec<ColumnLayout>,
    /// The slot of each known key.
    pub slots: HashMap<Vec<u8>, usize>,
    /// The column that a second occurrence of a key is reported for, by slot.
    pub owners: Vec<String>,
    /// The column that a second occurrence of a key is reported for, by the first pattern that matches the key.
    pub patterns: Vec<String>,
    /// The column that collects all keys without another column.
    pub rest: Option<String>,
    /// The column with the time of a row.
    pub partition: Option<usize>,
    /// Lines with a field without a column are quarantined.
    pub freezes: bool,
}

impl Layout {
    /// Whether columns may have more text than the block, because lines share texts.
    pub fn shares_texts(&self) -> bool {
        self.columns.iter().flat_map(|column| &column.sources).any(|source| matches!(source, Source::Shared(_)))
    }

    /// Whether columns read keys that are not known in advance.
    pub fn collects(&self) -> bool {
        self.rest.is_some() || !self.patterns.is_empty()
    }
}

/// A value for a column.
#[derive(Clone, Copy)]
pub enum Found<'a> {
    Value(Value<'a>),
    LineNumber,
    /// The place of an object that the collector of the line has.
    Collected(usize),
}

/// A key on the path of a column occurs twice in one object.
pub struct DoubledKey;

impl ColumnLayout {
    /// Looks for the value in the values of a line's keys, by slot, and among its collected keys.
    pub fn find<'a>(
        &'a self,
        values: &[Value<'a>],
        collector: &mut Option<Collector<'a>>,
    ) -> Result<Found<'a>, DoubledKey> {
        for source in &self.sources {
            let value = match source {
                Source::LineNumber => return Ok(Found::LineNumber),
                Source::Collected(collected) => {
                    match collector.as_mut().and_then(|collector| collector.gather(*collected)) {
                        Some(place) => return Ok(Found::Collected(place)),
                        None => continue,
                    }
                }
                Source::Shared(json) => Scanner::new(json).value(0).unwrap_or(Value::NOTHING),
                Source::Key { slot, steps } => {
                    let mut value = values[*slot];
                    for step in steps {
                        value = step.inside(value)?;
                    }
                    value
                }
            };
            if value.kind != Kind::Null {
                return Ok(Found::Value(value));
            }
        }
        Ok(Found::Value(Value::NOTHING))
    }
}

impl Step {
    /// The value at this step of a well-formed value, or nothing.
    fn inside<'a>(&self, value: Value<'a>) -> Result<Value<'a>, DoubledKey> {
        let mut scanner = Scanner::new(value.raw);
        let found = match (self, value.kind) {
            (Step::Key(key), Kind::Object) => member(&mut scanner, key),
            (Step::Place(place), Kind::Array) => element(&mut scanner, *place).map(Ok),
            _ => return Ok(Value::NOTHING),
        };
        found.unwrap_or(Ok(Value::NOTHING))
    }
}

/// The outer error never comes of a value that was scanned before.
fn member<'a>(scanner: &mut Scanner<'a>, wanted: &[u8]) -> Result<Result<Value<'a>, DoubledKey>, Malformed> {
    let mut found = None;
    let mut is_doubled = false;
    scanner.at += 1;
    scanner.skip_space();
    while scanner.takes(b'"') {
        let (key, has_escapes) = scanner.string()?;
        let is_wanted = if has_escapes { unescaped(key) == wanted } else { key == wanted };
        scanner.skip_space();
        scanner.takes(b':');
        scanner.skip_space();
        if is_wanted {
            is_doubled |= found.replace(scanner.value(0)?).is_some();
        } else {
            scanner.pass();
        }
        scanner.skip_space();
        scanner.takes(b',');
        scanner.skip_space();
    }
    Ok(if is_doubled { Err(DoubledKey) } else { Ok(found.unwrap_or(Value::NOTHING)) })
}

fn element<'a>(scanner: &mut Scanner<'a>, place: usize) -> Result<Value<'a>, Malformed> {
    scanner.at += 1;
    scanner.skip_space();
    let mut at = 0;
    while scanner.peek() != b']' {
        if at == place {
            return scanner.value(0);
        }
        scanner.pass();
        at += 1;
        scanner.skip_space();
        scanner.takes(b',');
        scanner.skip_space();
    }
    Ok(Value::NOTHING)
}

fn unescaped(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    unescape(key, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found<'a>(json: &'a str, steps: &[Step]) -> Option<&'a str> {
        let mut value = Scanner::new(json.as_bytes()).value(0).unwrap();
        for step in steps {
            value = step.inside(value).ok()?;
        }
        Some(std::str::from_utf8(value.raw).unwrap())
    }

    #[test]
    fn a_path_leads_through_objects_and_arrays() {
        let steps = [Step::Key(b"a".to_vec()), Step::Place(1), Step::Key("\u{e9}".into())];
        assert_eq!(found(r#"{"b":1, "a" : [0, {"x":[] , "\u00e9": "y" }]}"#, &steps), Some("\"y\""));
        assert_eq!(found(r#"{"a":[0]}"#, &steps), Some(""));
        assert_eq!(found(r#"{"a":{"1":0}}"#, &steps), Some(""));
        assert_eq!(found(r#"[]"#, &steps), Some(""));
    }

    #[test]
    fn a_doubled_key_matters_on_the_path_alone() {
        let steps = [Step::Key(b"a".to_vec())];
        assert_eq!(found(r#"{"a":1,"\u0061":2}"#, &steps), None);
        assert_eq!(found(r#"{"b":1,"b":2,"a":3}"#, &steps), Some("3"));
    }
}

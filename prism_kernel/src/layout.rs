//! What a table reads of a line: its columns, where each finds its value, and which keys are known.

use std::collections::HashMap;

use crate::collect::{Collected, Collector};
use crate::columns::Type;
use crate::nested::Shape;
use crate::paths::{Paths, Picked};
use crate::route::Route;
use crate::scan::{Kind, Scanner, Value};

/// A place to look for the value of a column.
pub enum Source {
    /// The value of a key, by slot.
    Key(usize),
    /// A place inside the value of a key: the nodes of the path.
    Inside(Vec<usize>),
    /// Many keys together, as one object.
    Collected(Collected),
    /// A JSON text that all lines share.
    Shared(Vec<u8>),
    /// The number of the line.
    LineNumber,
    /// A value around the line, by its number.
    Outer(usize),
}

/// The type of a column, with or without parts.
pub enum ColumnType {
    Flat(Type),
    Nested(Shape),
}

pub struct ColumnLayout {
    pub name: String,
    pub kind: ColumnType,
    /// The first source with a value other than null counts.
    pub sources: Vec<Source>,
}

impl ColumnLayout {
    /// The slot of a column that reads the whole value of one key, as most do.
    #[inline(always)]
    pub fn only_slot(&self) -> Option<usize> {
        match self.sources.as_slice() {
            [Source::Key(slot)] => Some(*slot),
            _ => None,
        }
    }
}

pub struct Layout {
    pub columns: Vec<ColumnLayout>,
    /// The slot of each known key.
    pub slots: HashMap<Vec<u8>, usize>,
    /// The paths inside of values.
    pub paths: Paths,
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
    /// The share of the table, if several tables read the lines.
    pub route: Option<Route>,
    /// The most slots that elements and entries take in the nested columns of a row. A value beyond them is null.
    pub most_slots: usize,
}

impl Layout {
    /// Whether columns may have more text than the block, because lines share texts.
    pub fn shares_texts(&self) -> bool {
        let is_shared = |source| matches!(source, &Source::Shared(_) | &Source::Outer(_));
        self.columns.iter().flat_map(|column| &column.sources).any(is_shared)
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
    /// Looks for the value in the values of a line's keys, by slot, inside of them, and among its collected keys.
    pub fn find<'a>(
        &'a self,
        values: &[Value<'a>],
        picked: &Picked<'a>,
        outer: &[Value<'a>],
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
                Source::Outer(number) => outer.get(*number).copied().unwrap_or(Value::NOTHING),
                Source::Shared(json) => Scanner::new(json).value(0).unwrap_or(Value::NOTHING),
                Source::Key(slot) => values[*slot],
                Source::Inside(path) => picked.value(path)?,
            };
            if value.kind != Kind::Null {
                return Ok(Found::Value(value));
            }
        }
        Ok(Found::Value(Value::NOTHING))
    }
}

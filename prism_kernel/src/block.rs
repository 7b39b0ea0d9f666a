//! Reads a block of whole lines into columns.

use std::fmt;

use arrow_schema::ArrowError;
use memchr::memchr;
use simdutf8::basic::from_utf8;

use crate::collect::{Collector, Matching};
use crate::columns::{Column, ColumnBuilder};
use crate::layout::{ColumnLayout, ColumnType, Layout};
use crate::line::{LineReader, Rejection};
use crate::nested::NestedBuilder;
use crate::scan::{Scanner, Value};
use crate::undefined::{is_sampled, UndefinedField, UndefinedFields};

/// The result of one block: each line that is not blank is a row, rejected, or a line of another table.
pub struct BlockRows {
    /// Where lines begin and end, without their line ends, and their numbers.
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
    pub numbers: Vec<i64>,
    /// Positions of the lines that are rows.
    pub kept: Vec<i64>,
    pub columns: Vec<Column>,
    /// Rows without a value for the time.
    pub absent: Vec<bool>,
    /// Positions of the other lines of the table.
    pub rejected: Vec<(i64, Rejection)>,
    /// Positions of lines of other tables.
    pub elsewhere: Vec<i64>,
    pub undefined: Vec<UndefinedField>,
    /// Reading ended before the last line, because the values so far fill their memory.
    pub is_cut: bool,
}

/// Why a block has no result.
#[derive(Debug)]
pub enum Unread {
    /// Offsets of texts have 32 bits.
    TooLong(usize),
    TooMuchText,
    /// A key could not be held against the patterns.
    Unmatched,
    Arrow(ArrowError),
}

impl fmt::Display for Unread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::TooLong(length) => write!(out, "a block of {length} bytes"),
            Unread::TooMuchText => write!(out, "a column with more than 2 GiB of text"),
            Unread::Unmatched => write!(out, "no answer for a key from the patterns"),
            Unread::Arrow(error) => write!(out, "{error}"),
        }
    }
}

/// After this many lines, columns make room for the rest of the block.
const SAMPLE: i64 = 128;

/// The values around all lines from a number on, as JSON texts.
pub type Around = (i64, Vec<Vec<u8>>);

/// Reads whole lines, with the values `outer` around them, up to the one whose nested values bring their slots to
/// `most_slots`. `matching` is asked once for each key, if columns collect keys by patterns.
pub fn read_block(
    layout: &Layout,
    data: &[u8],
    first_line: i64,
    outer: &[Around],
    matching: &Matching,
    most_slots: usize,
) -> Result<BlockRows, Unread> {
    if i32::try_from(data.len()).is_err() {
        return Err(Unread::TooLong(data.len()));
    }
    let is_text = from_utf8(data).is_ok();
    let shares_texts = layout.shares_texts();
    let mut reader = LineReader::new(layout, layout.collects().then(|| Collector::new(layout, matching)));
    let mut builders = Builders::new(layout);
    let mut undefined = UndefinedFields::default();
    let mut rows = BlockRows {
        starts: Vec::new(),
        ends: Vec::new(),
        numbers: Vec::new(),
        kept: Vec::new(),
        columns: Vec::new(),
        absent: Vec::new(),
        rejected: Vec::new(),
        elsewhere: Vec::new(),
        undefined: Vec::new(),
        is_cut: false,
    };
    let mut routed = layout.route.as_ref().map(|route| route.lines(data, is_text));
    let mut around = outer.iter().peekable();
    let mut lines = filled_lines(data, first_line);
    while let Some((number, start, end)) = lines.next() {
        while let Some((_, texts)) = around.next_if(|(first, _)| *first <= number) {
            reader.outer.clear();
            reader.outer.extend(texts.iter().map(|text| Scanner::new(text).value(0).unwrap_or(Value::NOTHING)));
        }
        let line = &data[start..end];
        let position = rows.starts.len() as i64;
        rows.starts.push(start as i64);
        rows.ends.push(end as i64);
        rows.numbers.push(number);
        if routed.as_mut().is_some_and(|routed| !routed.owns(start, end)) {
            rows.elsewhere.push(position);
            continue;
        }
        let read = if is_text || from_utf8(line).is_ok() {
            reader.read(line, number, layout.freezes || is_sampled(number), &mut undefined)
        } else {
            Err(Rejection::bad_utf8())
        };
        match read {
            Ok(()) => {
                rows.kept.push(position);
                rows.absent.push(reader.is_time_missing());
                builders.push(&reader);
            }
            Err(rejection) => rows.rejected.push((position, rejection)),
        }
        if position == SAMPLE {
            builders.reserve(end, data.len());
        }
        if shares_texts && builders.is_any_full() {
            return Err(Unread::TooMuchText);
        }
        if reader.collector.as_ref().is_some_and(|collector| collector.has_failed) {
            return Err(Unread::Unmatched);
        }
        if builders.slots() >= most_slots {
            rows.is_cut = lines.next().is_some();
            break;
        }
    }
    rows.columns = builders.finish(layout).map_err(Unread::Arrow)?;
    rows.undefined = undefined.found;
    Ok(rows)
}

/// The columns of a block under construction, those without parts apart from the others.
struct Builders<'a> {
    flat: Vec<ColumnBuilder>,
    nested: Vec<NestedBuilder<'a>>,
}

impl<'a> Builders<'a> {
    fn new(layout: &'a Layout) -> Self {
        let mut builders = Builders { flat: Vec::new(), nested: Vec::new() };
        for column in &layout.columns {
            match &column.kind {
                ColumnType::Flat(kind) => builders.flat.push(ColumnBuilder::new(kind)),
                ColumnType::Nested(shape) => builders.nested.push(NestedBuilder::new(shape)),
            }
        }
        builders
    }

    /// Adds the row of the current line.
    #[inline(always)]
    fn push(&mut self, reader: &LineReader) {
        let mut columns = self.flat.iter_mut();
        reader.row(|value| {
            if let Some(column) = columns.next() {
                column.push(value);
            }
        });
        for (column, (tape, text)) in self.nested.iter_mut().zip(reader.nested_row()) {
            column.push(tape, text);
        }
    }

    fn reserve(&mut self, part: usize, whole: usize) {
        self.flat.iter_mut().for_each(|column| column.reserve(part, whole));
        self.nested.iter_mut().for_each(|column| column.reserve(part, whole));
    }

    /// The slots of the elements and entries in nested columns.
    fn slots(&self) -> usize {
        self.nested.iter().map(|column| column.slots).sum()
    }

    fn is_any_full(&self) -> bool {
        self.flat.iter().any(ColumnBuilder::is_full) || self.nested.iter().any(NestedBuilder::is_full)
    }

    fn finish(self, layout: &Layout) -> Result<Vec<Column>, ArrowError> {
        let (mut flat, mut nested) = (self.flat.into_iter(), self.nested.into_iter());
        let finished = |column: &ColumnLayout| match column.kind {
            ColumnType::Flat(_) => flat.next().map(ColumnBuilder::finish),
            ColumnType::Nested(_) => nested.next().map(NestedBuilder::finish),
        };
        layout.columns.iter().filter_map(finished).collect()
    }
}

/// The lines that are not blank, as JSON sees it.
fn filled_lines(data: &[u8], first_line: i64) -> impl Iterator<Item = (i64, usize, usize)> + '_ {
    lines(data, first_line).filter(|(_, start, end)| !is_blank(&data[*start..*end]))
}

/// The lines that are not empty: number, start and end.
pub fn lines(data: &[u8], first_line: i64) -> impl Iterator<Item = (i64, usize, usize)> + '_ {
    let mut next = 0;
    let mut number = first_line - 1;
    std::iter::from_fn(move || {
        while next < data.len() {
            let start = next;
            let stop = memchr(b'\n', &data[start..]).map_or(data.len(), |length| start + length);
            next = stop + 1;
            number += 1;
            let end = if data[start..stop].ends_with(b"\r") { stop - 1 } else { stop };
            if start < end {
                return Some((number, start, end));
            }
        }
        None
    })
}

#[inline(always)]
fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_have_a_number_and_no_place() {
        let data = b"a\r\n \t\r\n\r\nb \r\r\n\n{";
        let found: Vec<_> = filled_lines(data, 5).collect();
        assert_eq!(found, [(5, 0, 1), (8, 9, 12), (10, 15, 16)]);
        let found: Vec<_> = lines(data, 5).collect();
        assert_eq!(found, [(5, 0, 1), (6, 3, 5), (8, 9, 12), (10, 15, 16)]);
        assert_eq!(lines(b"", 1).count(), 0);
    }
}

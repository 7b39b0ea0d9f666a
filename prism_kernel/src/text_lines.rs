//! Divides lines of text at a delimiter, and writes their fields as JSON lines, as `kernels/text_lines` defines it.
//!
//! A line keeps its number: an empty line, a header, and a line that cannot be divided leave an empty one.

use memchr::{memchr, memchr2};
use simdutf8::basic::from_utf8;

use crate::block::lines;
use crate::text::write_text;

/// How lines are divided. Quote and escape are None for none.
pub struct TextFormat {
    pub delimiter: u8,
    pub quote: Option<u8>,
    pub escape: Option<u8>,
    /// Fields that stand for null.
    pub nulls: Vec<Vec<u8>>,
}

/// Divides the lines of objects with known names of fields.
pub struct TextDivider {
    format: TextFormat,
    /// For each field with a name, the key of JSON with its colon. None for fields that the table does not read.
    keys: Vec<Option<Vec<u8>>>,
    longest_null: usize,
}

/// Why a line has no fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    Utf8,
    Text,
}

impl Broken {
    pub fn reason(self) -> &'static str {
        match self {
            Broken::Utf8 => "bad_utf8",
            Broken::Text => "bad_text",
        }
    }
}

/// The lines of a block as JSON lines.
#[derive(Default)]
pub struct Divided {
    pub json: Vec<u8>,
    /// Where lines that are not empty begin and end in the block, and their numbers.
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
    pub numbers: Vec<i64>,
    /// Positions of lines without fields.
    pub broken: Vec<(usize, Broken)>,
}

impl TextDivider {
    /// `fields` are the names in order, each with whether the table reads it.
    pub fn new(format: TextFormat, fields: Vec<(String, bool)>) -> Self {
        let written = |name: String| {
            let mut key = Vec::new();
            write_text(name.as_bytes(), &mut key);
            key.push(b':');
            key
        };
        let keys = fields.into_iter().map(|(name, is_read)| is_read.then(|| written(name))).collect();
        let longest_null = format.nulls.iter().map(Vec::len).max().unwrap_or(0);
        TextDivider { format, keys, longest_null }
    }

    /// Divides whole lines; `first_line` is the number of the first one, and lines before `from` are no records.
    pub fn divide(&self, data: &[u8], first_line: i64, from: i64) -> Divided {
        let mut divided = Divided { json: Vec::with_capacity(2 * data.len()), ..Divided::default() };
        let is_text = from_utf8(data).is_ok();
        let mut next = first_line;
        let mut literal = Vec::new();
        for (number, start, end) in lines(data, first_line).filter(|(number, ..)| *number >= from) {
            while next < number {
                divided.json.push(b'\n');
                next += 1;
            }
            let line = &data[start..end];
            let begin = divided.json.len();
            let written = if is_text || from_utf8(line).is_ok() {
                self.write(line, &mut divided.json, &mut literal)
            } else {
                Err(Broken::Utf8)
            };
            if let Err(broken) = written {
                divided.json.truncate(begin);
                divided.broken.push((divided.numbers.len(), broken));
            }
            divided.json.push(b'\n');
            next += 1;
            divided.starts.push(start as i64);
            divided.ends.push(end as i64);
            divided.numbers.push(number);
        }
        if divided.json.is_empty() {
            divided.json.push(b'\n');
        }
        divided
    }

    /// Writes the fields of a line as a JSON object. `literal` is room for a field with escapes.
    fn write(&self, line: &[u8], out: &mut Vec<u8>, literal: &mut Vec<u8>) -> Result<(), Broken> {
        let mut at = 0;
        let mut is_first = true;
        out.push(b'{');
        for key in &self.keys {
            let (field, end) = if self.format.quote.is_some_and(|quote| line.get(at) == Some(&quote)) {
                self.quoted(line, at + 1, literal)?
            } else {
                let end = memchr(self.format.delimiter, &line[at..]).map_or(line.len(), |length| at + length);
                (&line[at..end], end)
            };
            if end < line.len() && line[end] != self.format.delimiter {
                return Err(Broken::Text);
            }
            if let Some(key) = key.as_ref().filter(|_| !self.is_null(field)) {
                if !is_first {
                    out.push(b',');
                }
                is_first = false;
                out.extend_from_slice(key);
                write_field(field, out);
            }
            if end >= line.len() {
                break;
            }
            at = end + 1;
        }
        out.push(b'}');
        Ok(())
    }

    /// The field that begins after a quote, and the place after its other quote.
    fn quoted<'a>(&self, line: &'a [u8], start: usize, literal: &'a mut Vec<u8>) -> Result<(&'a [u8], usize), Broken> {
        let quote = self.format.quote.unwrap_or(b'"');
        let escape = self.format.escape.unwrap_or(quote);
        let (mut from, mut at) = (start, start);
        literal.clear();
        loop {
            at += memchr2(quote, escape, &line[at..]).ok_or(Broken::Text)?;
            let following = line.get(at + 1);
            let is_escape = line[at] != quote;
            if !is_escape && following != Some(&quote) {
                break;
            }
            if following.is_none() {
                return Err(Broken::Text);
            }
            // The sign itself goes, and the character after it stays, whatever it is.
            literal.extend_from_slice(&line[from..at]);
            from = at + 1;
            at += 2;
        }
        let end = at + 1;
        if from == start {
            return Ok((&line[start..at], end));
        }
        literal.extend_from_slice(&line[from..at]);
        Ok((literal, end))
    }

    fn is_null(&self, field: &[u8]) -> bool {
        field.len() <= self.longest_null && self.format.nulls.iter().any(|null| null == field)
    }
}

/// Writes a field as a text of JSON. Most have no character that JSON escapes.
fn write_field(field: &[u8], out: &mut Vec<u8>) {
    // A fold looks at many bytes at once, and `any` at one after the other.
    if field.iter().fold(false, |found, byte| found | matches!(byte, 0..=0x1f | b'"' | b'\\')) {
        return write_text(field, out);
    }
    out.push(b'"');
    out.extend_from_slice(field);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn divider(quote: Option<u8>, escape: Option<u8>) -> TextDivider {
        let format = TextFormat { delimiter: b',', quote, escape, nulls: vec![b"-".to_vec(), Vec::new()] };
        let fields = [("a", true), ("b", false), ("c", true)];
        TextDivider::new(format, fields.map(|(name, is_read)| (name.to_owned(), is_read)).to_vec())
    }

    fn json(divider: &TextDivider, data: &[u8], from: i64) -> String {
        String::from_utf8(divider.divide(data, 1, from).json).unwrap()
    }

    #[test]
    fn fields_with_a_name_that_are_read_and_not_null_are_written() {
        let plain = divider(Some(b'"'), None);
        assert_eq!(
            json(&plain, b"1,2,3,\"open\n-,2\n\n\"x\"\"\ty\",,-", 1),
            "{\"a\":\"1\",\"c\":\"3\"}\n{}\n\n{\"a\":\"x\\\"\\ty\"}\n"
        );
    }

    #[test]
    fn escapes_count_in_quotes_alone() {
        let escaped = divider(Some(b'"'), Some(b'\\'));
        assert_eq!(json(&escaped, b"\\N,\"\\\\\",\"\\\"\"\"\"\n", 1), "{\"a\":\"\\\\N\",\"c\":\"\\\"\\\"\"}\n");
    }

    #[test]
    fn a_header_leaves_an_empty_line_and_a_broken_line_has_its_reason() {
        let found = divider(Some(b'"'), Some(b'\\')).divide(b"a,b,c\n\"a\n\"a\"b\n\"\\\n\xff\n1", 1, 2);
        assert_eq!(found.json, b"\n\n\n\n\n{\"a\":\"1\"}\n");
        assert_eq!(found.numbers, [2, 3, 4, 5, 6]);
        assert_eq!(found.starts, [6, 9, 14, 17, 19]);
        let broken: Vec<_> = found.broken.iter().map(|(place, why)| (*place, why.reason())).collect();
        assert_eq!(broken, [(0, "bad_text"), (1, "bad_text"), (2, "bad_text"), (3, "bad_utf8")]);
        assert_eq!(divider(None, None).divide(b"\n", 1, 1).json, b"\n");
    }
}

//! Finds the records of documents, as `kernels/documents/scanner.py` does, byte by byte.
//!
//! The scanner knows brackets, strings, and the keys on the way to the records. It judges no record.

use memchr::memchr;

use crate::scan::{find_special, Scanner};
use crate::text::{has_lone_surrogate, is_space, unescape};

/// The most bytes of a record.
pub const LONGEST: i64 = 16 << 20;
/// The most bytes of a value around records, as each record has a copy of it.
const LONGEST_OUTER: i64 = 1 << 20;
const LONGEST_INDENT: usize = 1 << 10;
const DEEPEST: usize = 1 << 20;

/// The fate of a piece.
pub const RECORD: i64 = 0;
pub const NO_RECORDS: i64 = 1;
pub const DOUBLED: i64 = 2;

/// The kind of the piece whose first byte is still needed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Held {
    Gap,
    Unit,
    Record,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Value,
    Key,
    InKey,
    Colon,
    Inside,
    Bare,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Skip,
    Record,
    Unit,
    Outer,
    Null,
}

/// A value of a key around records.
#[derive(Clone)]
pub enum OuterValue {
    Missing,
    Found(Vec<u8>),
    Doubled,
    TooLong,
}

/// The step of an object with records, and the values of its outer keys.
pub type Row = (usize, Vec<OuterValue>);

/// What the value of a key is for.
#[derive(Clone, Copy)]
enum Target {
    Nothing,
    Way(usize),
    Slot(usize),
}

struct Frame {
    /// The place on the way; None for the sequence of documents.
    step: Option<usize>,
    is_object: bool,
    is_doubled: bool,
    values: Vec<OuterValue>,
    was_seen: bool,
    has_record: bool,
}

/// The result of one buffer. Positions are places in the buffer; a start of -1 lies before it.
#[derive(Default)]
pub struct Scan {
    pub starts: Vec<i64>,
    pub ends: Vec<i64>,
    pub flags: Vec<i64>,
    pub rows: Vec<Row>,
    pub begun: Vec<(usize, usize)>,
    pub settled: i64,
    pub is_damaged: bool,
    pub stopped: usize,
    /// The records as lines, with blank lines for other pieces.
    pub lines: Vec<u8>,
}

pub struct DocumentScanner {
    steps: Vec<Option<Vec<u8>>>,
    /// The place of the first key on the way.
    first_key: Option<usize>,
    /// The outer keys of each step.
    slots: Vec<Vec<Vec<u8>>>,
    frames: Vec<Frame>,
    brackets: Vec<u8>,
    state: State,
    purpose: Purpose,
    flag: i64,
    slot: usize,
    in_string: bool,
    is_escaped: bool,
    target: Target,
    is_second: bool,
    token: i64,
    is_own_line: bool,
    spaces: Vec<u8>,
    depth: usize,
    pub held: Held,
    pub hold: i64,
    pub indent: Option<Vec<u8>>,
    scratch: Vec<u8>,
}

impl DocumentScanner {
    /// `outer` are the sorted keys whose values are wanted, each with its step.
    pub fn new(steps: Vec<Option<Vec<u8>>>, outer: Vec<(usize, Vec<u8>)>) -> Self {
        let mut slots = vec![Vec::new(); steps.len()];
        for (step, key) in outer {
            slots[step].push(key);
        }
        let top = Frame {
            step: None,
            is_object: false,
            is_doubled: false,
            values: Vec::new(),
            was_seen: false,
            has_record: false,
        };
        DocumentScanner {
            first_key: steps.iter().position(Option::is_some),
            steps,
            slots,
            frames: vec![top],
            brackets: Vec::new(),
            state: State::Value,
            purpose: Purpose::Skip,
            flag: RECORD,
            slot: 0,
            in_string: false,
            is_escaped: false,
            target: Target::Nothing,
            is_second: false,
            token: -1,
            is_own_line: true,
            spaces: Vec::new(),
            depth: 1,
            held: Held::Gap,
            hold: 0,
            indent: Some(Vec::new()),
            scratch: Vec::new(),
        }
    }

    pub fn keep_from(&self, end: i64) -> i64 {
        [self.hold, self.token].into_iter().filter(|place| *place >= 0).fold(end, i64::min)
    }

    pub fn moved(&mut self, count: i64) {
        self.hold -= if self.hold >= 0 { count } else { 0 };
        self.token -= if self.token >= 0 { count } else { 0 };
    }

    pub fn let_go(&mut self, end: i64) {
        if self.held != Held::Record && end - self.hold > LONGEST {
            self.hold = -1;
        }
        if end - self.token > LONGEST {
            self.token = -1;
        }
    }

    pub fn resume(&mut self) {
        self.frames.truncate(self.depth);
        self.held = Held::Gap;
        self.hold = 0;
        self.brackets.clear();
        self.in_string = false;
        self.is_escaped = false;
        self.state = State::Value;
        self.token = -1;
        self.is_own_line = true;
        self.spaces = self.indent.clone().unwrap_or_default();
    }

    pub fn abandon(&self) -> Vec<Row> {
        self.frames.iter().rev().filter_map(row).collect()
    }

    /// Judges the end of the content: all documents must have ended.
    pub fn finish(&mut self, end: i64) -> Scan {
        let mut scan = Scan { settled: -1, ..Scan::default() };
        if self.state == State::Bare && self.frames.len() == 1 && self.purpose == Purpose::Record {
            self.end_value(&mut scan, end, b"");
        }
        scan.is_damaged |= self.frames.len() > 1 || self.state != State::Value;
        scan
    }

    /// Scans a buffer from a place to its end, or to damage.
    pub fn scan(&mut self, buffer: &[u8], mut at: usize) -> Scan {
        let mut scan = Scan { settled: -1, ..Scan::default() };
        while at < buffer.len() && !scan.is_damaged {
            at = match self.state {
                State::Value => self.value(&mut scan, buffer, at),
                State::Key => self.key(&mut scan, buffer, at),
                State::InKey => self.in_key(&mut scan, buffer, at),
                State::Colon => self.colon(&mut scan, buffer, at),
                State::Inside => self.inside(&mut scan, buffer, at),
                State::Bare => self.bare(&mut scan, buffer, at),
            };
        }
        scan.stopped = at;
        write_lines(buffer, &mut scan);
        scan
    }

    /// Between values, or before one.
    fn value(&mut self, scan: &mut Scan, buffer: &[u8], at: usize) -> usize {
        let byte = buffer[at];
        let frame = self.innermost();
        let is_array = frame.step.is_some() && !frame.is_object;
        match byte {
            b'\n' => {
                self.is_own_line = true;
                self.spaces.clear();
            }
            b' ' | b'\t' | b'\r' => {
                self.spaces.push(byte);
                self.is_own_line &= self.spaces.len() <= LONGEST_INDENT;
                self.spaces.truncate(LONGEST_INDENT + 1);
            }
            b',' if !frame.is_object => self.is_own_line = false,
            b']' if is_array => self.close(scan, at),
            b']' | b'}' => scan.is_damaged = true,
            b',' | b':' if frame.is_object => scan.is_damaged = true,
            _ => {
                self.begin_value(scan, buffer, at);
                return if matches!(self.state, State::Inside | State::Bare) { at } else { at + 1 };
            }
        }
        at + 1
    }

    fn begin_value(&mut self, scan: &mut Scan, buffer: &[u8], at: usize) {
        let byte = buffer[at];
        let (is_object, is_doubled, step) = {
            let frame = self.innermost();
            (frame.is_object, frame.is_doubled || (frame.is_object && self.is_second), frame.step)
        };
        let target = match (is_object, self.target) {
            (false, _) => step.map_or(0, |step| step + 1),
            (true, Target::Way(target)) => target,
            (true, Target::Slot(slot)) => {
                self.slot = slot;
                self.token = at as i64;
                return self.pass_over(byte, Purpose::Outer);
            }
            (true, Target::Nothing) => return self.pass_over(byte, Purpose::Skip),
        };
        let is_nested = matches!(byte, b'{' | b'[');
        if !is_object {
            self.hold_from(Held::Unit, at);
        }
        if is_object && !is_doubled && self.first_key != Some(target - 1) && byte == b'n' {
            self.token = at as i64;
            self.pass_over(byte, Purpose::Null);
        } else if target == self.steps.len() {
            self.begin_record(scan, at, byte, is_doubled);
        } else if byte == if self.steps[target].is_none() { b'[' } else { b'{' } {
            self.frames.push(Frame {
                step: Some(target),
                is_object: byte == b'{',
                is_doubled,
                values: vec![OuterValue::Missing; self.slots[target].len()],
                was_seen: false,
                has_record: false,
            });
            self.state = if byte == b'{' { State::Key } else { State::Value };
            self.is_own_line = false;
            if byte == b'[' {
                self.hold_from(Held::Gap, at + 1);
            }
        } else if (!is_object && !is_nested) || (is_object && is_doubled) {
            self.begin_record(scan, at, byte, is_doubled);
        } else {
            self.pass_over_unit(if is_doubled { DOUBLED } else { NO_RECORDS });
            if byte != b'"' && !is_nested {
                self.state = State::Bare;
            }
        }
    }

    fn begin_record(&mut self, scan: &mut Scan, at: usize, byte: u8, is_doubled: bool) {
        self.hold_from(Held::Record, at);
        self.flag = if is_doubled { DOUBLED } else { RECORD };
        for frame in &mut self.frames {
            if let (Some(step), false, false) = (frame.step, frame.values.is_empty(), frame.has_record) {
                frame.has_record = true;
                scan.begun.push((scan.starts.len(), step));
            }
        }
        self.pass_over(byte, Purpose::Record);
    }

    fn pass_over(&mut self, byte: u8, purpose: Purpose) {
        self.purpose = purpose;
        self.state = if matches!(byte, b'"' | b'{' | b'[') { State::Inside } else { State::Bare };
    }

    /// The held unit has no records: its rest is passed over.
    fn pass_over_unit(&mut self, flag: i64) {
        self.brackets.clear();
        self.brackets.resize(self.frames.len() - self.depth, b'}');
        self.frames.truncate(self.depth);
        self.purpose = Purpose::Unit;
        self.flag = flag;
        self.state = State::Inside;
    }

    fn hold_from(&mut self, held: Held, at: usize) {
        self.held = held;
        self.hold = at as i64;
        self.depth = self.frames.len();
        if !self.is_own_line {
            self.indent = None;
        } else if self.indent.as_ref() != Some(&self.spaces) {
            self.indent = Some(self.spaces.clone());
        }
    }

    /// Inside of a value: to its end, or to the end of the buffer.
    fn inside(&mut self, scan: &mut Scan, buffer: &[u8], mut at: usize) -> usize {
        while at < buffer.len() {
            if self.in_string {
                at = self.in_value_string(scan, buffer, at);
                if scan.is_damaged {
                    return at;
                }
                if !self.in_string && self.brackets.is_empty() {
                    self.end_value(scan, at as i64, buffer);
                    return at;
                }
                continue;
            }
            let byte = buffer[at];
            at += 1;
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    self.brackets.push(if byte == b'{' { b'}' } else { b']' });
                    if self.brackets.len() > DEEPEST {
                        scan.is_damaged = true;
                        return at;
                    }
                }
                b'}' | b']' => {
                    if self.brackets.last() != Some(&byte) {
                        scan.is_damaged = true;
                        return at - 1;
                    }
                    self.brackets.pop();
                    if self.brackets.is_empty() {
                        self.end_value(scan, at as i64, buffer);
                        return at;
                    }
                }
                _ => {}
            }
        }
        at
    }

    /// To the byte after the closing quote, or to the end of the buffer.
    fn in_value_string(&mut self, scan: &mut Scan, buffer: &[u8], mut at: usize) -> usize {
        loop {
            if self.is_escaped && at < buffer.len() {
                self.is_escaped = false;
                at += usize::from(buffer[at] != b'\n');
            }
            at = find_special(buffer, at);
            match buffer.get(at) {
                None => return at,
                Some(b'"') => {
                    self.in_string = false;
                    return at + 1;
                }
                Some(b'\\') => self.is_escaped = true,
                Some(b'\n') => {
                    scan.is_damaged = true;
                    return at;
                }
                Some(_) => {}
            }
            at += 1;
        }
    }

    fn bare(&mut self, scan: &mut Scan, buffer: &[u8], at: usize) -> usize {
        let ends = |byte: &u8| is_space(*byte) || matches!(byte, b',' | b']' | b'}' | b'[' | b'{' | b'"');
        match buffer[at..].iter().position(ends) {
            None => buffer.len(),
            Some(length) => {
                self.end_value(scan, (at + length) as i64, buffer);
                at + length
            }
        }
    }

    fn end_value(&mut self, scan: &mut Scan, end: i64, buffer: &[u8]) {
        match self.purpose {
            Purpose::Skip => {}
            Purpose::Record => {
                if end - self.hold > LONGEST {
                    scan.is_damaged = true;
                    return;
                }
                self.emit(scan, end, self.flag);
            }
            Purpose::Unit => {
                if !self.brackets.is_empty() {
                    self.state = State::Inside;
                    return;
                }
                self.emit(scan, end, self.flag);
            }
            Purpose::Outer => {
                let value = if self.token >= 0 && end - self.token <= LONGEST_OUTER {
                    OuterValue::Found(buffer[self.token as usize..end as usize].to_vec())
                } else {
                    OuterValue::TooLong
                };
                let slot = self.slot;
                let place = &mut self.innermost_mut().values[slot];
                *place = if matches!(place, OuterValue::Missing) { value } else { OuterValue::Doubled };
            }
            Purpose::Null => {
                if self.token < 0 || &buffer[self.token as usize..end as usize] != b"null" {
                    self.token = -1;
                    return self.pass_over_unit(NO_RECORDS);
                }
            }
        }
        self.token = -1;
        self.end_in_frame(scan, end);
    }

    fn emit(&mut self, scan: &mut Scan, end: i64, flag: i64) {
        scan.starts.push(self.hold);
        scan.ends.push(end);
        scan.flags.push(flag);
        self.is_own_line = false;
        self.hold_from(Held::Gap, end as usize);
    }

    /// A value ended: the next thing is a key, or another value.
    fn end_in_frame(&mut self, scan: &mut Scan, end: i64) {
        self.state = if self.innermost().is_object { State::Key } else { State::Value };
        self.is_own_line = false;
        if self.frames.len() == 1 {
            scan.settled = end;
        }
    }

    /// The innermost array or object on the way ends at its bracket.
    fn close(&mut self, scan: &mut Scan, at: usize) {
        let end = at as i64 + 1;
        if let Some(frame) = self.frames.pop() {
            scan.rows.extend(row(&frame));
            if frame.is_object && !frame.was_seen && frame.step == self.first_key {
                self.emit(scan, end, if frame.is_doubled { DOUBLED } else { NO_RECORDS });
            } else if self.held == Held::Gap || self.frames.len() == self.depth {
                self.is_own_line = false;
                self.hold_from(Held::Gap, at + 1);
            }
        }
        self.end_in_frame(scan, end);
    }

    fn key(&mut self, scan: &mut Scan, buffer: &[u8], at: usize) -> usize {
        match buffer[at] {
            b'"' => {
                self.state = State::InKey;
                self.token = at as i64;
                self.is_escaped = false;
            }
            b'}' => self.close(scan, at),
            byte => scan.is_damaged = byte != b',' && !is_space(byte),
        }
        at + 1
    }

    fn in_key(&mut self, scan: &mut Scan, buffer: &[u8], mut at: usize) -> usize {
        if self.is_escaped {
            self.is_escaped = false;
            if buffer[at] != b'\n' {
                return at + 1;
            }
        }
        at = find_special(buffer, at);
        match buffer.get(at) {
            None => return at,
            Some(b'\\') => self.is_escaped = true,
            Some(b'\n') => scan.is_damaged = true,
            Some(b'"') => {
                let written = (self.token >= 0).then(|| &buffer[self.token as usize + 1..at]);
                self.found_key(written);
                self.token = -1;
                self.state = State::Colon;
            }
            Some(_) => {}
        }
        at + 1
    }

    fn found_key(&mut self, written: Option<&[u8]>) {
        self.target = Target::Nothing;
        let (Some(written), Some(step)) = (written, self.innermost().step) else { return };
        let key = if written.contains(&b'\\') {
            if !is_text(written) {
                return;
            }
            self.scratch.clear();
            unescape(written, &mut self.scratch);
            self.scratch.as_slice()
        } else {
            written
        };
        if self.steps[step].as_deref() == Some(key) {
            self.target = Target::Way(step + 1);
            let frame = self.innermost_mut();
            let was_seen = std::mem::replace(&mut frame.was_seen, true);
            self.is_second = was_seen;
        } else if let Some(slot) = self.slots[step].iter().position(|wanted| wanted == key) {
            self.target = Target::Slot(slot);
        }
    }

    fn colon(&mut self, scan: &mut Scan, buffer: &[u8], at: usize) -> usize {
        match buffer[at] {
            b':' => {
                self.state = State::Value;
                self.is_own_line = false;
            }
            byte => scan.is_damaged = !is_space(byte),
        }
        at + 1
    }

    fn innermost(&self) -> &Frame {
        &self.frames[self.frames.len() - 1]
    }

    fn innermost_mut(&mut self) -> &mut Frame {
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }
}

fn row(frame: &Frame) -> Option<Row> {
    frame.step.filter(|_| frame.has_record).map(|step| (step, frame.values.clone()))
}

/// Whether the escapes of a key are well-formed. No wanted key has half a surrogate pair.
fn is_text(written: &[u8]) -> bool {
    let mut quoted = Vec::with_capacity(written.len() + 2);
    quoted.push(b'"');
    // Control characters are no JSON, and do no harm in a key.
    quoted.extend(written.iter().map(|byte| if *byte < 0x20 { b' ' } else { *byte }));
    quoted.push(b'"');
    let mut scanner = Scanner::new(&quoted);
    scanner.value(0).is_ok() && scanner.is_at_end() && !has_lone_surrogate(&quoted)
}

/// Writes the records of a buffer as lines. Whitespace between tokens may have newlines, which become spaces.
fn write_lines(buffer: &[u8], scan: &mut Scan) {
    let size: i64 = scan.starts.iter().zip(&scan.ends).map(|(start, end)| end - start.max(&0) + 1).sum();
    let mut lines = Vec::with_capacity(size as usize);
    for ((start, end), flag) in scan.starts.iter().zip(&scan.ends).zip(&scan.flags) {
        if *flag == RECORD {
            let from = lines.len();
            lines.extend_from_slice(&buffer[*start as usize..*end as usize]);
            let mut at = from;
            while let Some(found) = memchr(b'\n', &lines[at..]) {
                lines[at + found] = b' ';
                at += found + 1;
            }
        }
        lines.push(b'\n');
    }
    scan.lines = lines;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(path: &[&str], content: &str) -> Vec<(String, i64)> {
        let steps = path.iter().map(|step| (*step != "*").then(|| step.as_bytes().to_vec())).collect();
        let mut scanner = DocumentScanner::new(steps, Vec::new());
        let scan = scanner.scan(content.as_bytes(), 0);
        let texts = scan.starts.iter().zip(&scan.ends).map(|(start, end)| &content[*start as usize..*end as usize]);
        texts.map(str::to_owned).zip(scan.flags).collect()
    }

    #[test]
    fn records_are_found_on_their_way() {
        let found = records(&["r", "*"], r#"{"x":{"r":[1]},"\u0072":[{"a":"]}"},2],"y":1}{"y":0}"#);
        assert_eq!(found[0], (r#"{"a":"]}"}"#.to_owned(), RECORD));
        assert_eq!(found[1], ("2".to_owned(), RECORD));
        assert_eq!(found[2], (r#"{"y":0}"#.to_owned(), NO_RECORDS));
    }

    #[test]
    fn a_second_array_is_marked() {
        let found = records(&["r", "*"], r#"{"r":[{}],"r":[{"b":1}]}"#);
        assert_eq!(found, [("{}".to_owned(), RECORD), (r#"{"b":1}"#.to_owned(), DOUBLED)]);
    }

    #[test]
    fn newlines_of_a_record_become_spaces() {
        let scan = DocumentScanner::new(Vec::new(), Vec::new()).scan(b"{\n}\n{}", 0);
        assert_eq!(scan.lines, b"{ }\n{}\n");
    }
}

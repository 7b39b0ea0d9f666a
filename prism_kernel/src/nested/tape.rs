//! The parts of one value, found in one walk.

use super::{Map, Part, Shape, Struct};
use crate::rules::Misfit;
use crate::scan::{Kind, Malformed, Marks, Scanner, Value};
use crate::text::unescape;

/// A leaf as written, by its place in the text.
#[derive(Clone, Copy)]
pub struct Leaf {
    at: u32,
    length: u32,
    kind: Kind,
    marks: Marks,
}

impl Leaf {
    const NOTHING: Leaf = Leaf { at: 0, length: 0, kind: Kind::Null, marks: Marks::NONE };

    #[inline(always)]
    pub fn value(self, text: &[u8]) -> Value<'_> {
        Value { raw: &text[self.at as usize..(self.at + self.length) as usize], kind: self.kind, marks: self.marks }
    }
}

/// A struct, a list or a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The number of elements or entries; 0 for a struct.
    Held(u32),
    Null,
    Misfit(Misfit),
}

/// The parts of one value, level by level. A struct has one entry in each of its fields, a null struct too. A list has one
/// for each element.
pub struct Tape<'a> {
    shape: &'a Shape,
    pub leaves: Vec<Vec<Leaf>>,
    pub levels: Vec<Vec<Level>>,
    /// Whether a value was walked through.
    pub is_walked: bool,
    /// A key that is read occurs twice, unless `search` finds that nothing reads it.
    pub has_doubled: bool,
    /// A key that no field reads has a value.
    pub has_undefined: bool,
    /// The elements and entries take more slots than are left. The value is null, and nothing inside of it counts.
    pub is_too_large: bool,
    /// The slots of the elements and entries so far, and those that they may take.
    pub slots: usize,
    slots_left: usize,
    /// The most slots of a value whose memory is kept for the next ones.
    pub slots_kept: usize,
    /// The field that the last struct of a level had after a field, because the next struct mostly has the same order.
    following: Vec<Vec<usize>>,
    scratch: Vec<u8>,
}

impl<'a> Tape<'a> {
    pub fn new(shape: &'a Shape) -> Self {
        let mut following = vec![Vec::new(); shape.levels.len()];
        remember_fields(&shape.root, &mut following);
        Tape {
            shape,
            leaves: vec![Vec::new(); shape.leaves.len()],
            levels: vec![Vec::new(); shape.levels.len()],
            is_walked: false,
            has_doubled: false,
            has_undefined: false,
            is_too_large: false,
            slots: 0,
            slots_left: 0,
            slots_kept: 0,
            following,
            scratch: Vec::new(),
        }
    }

    pub fn clear(&mut self) {
        self.slots_kept = self.slots_kept.max(self.slots);
        self.leaves.iter_mut().for_each(Vec::clear);
        self.levels.iter_mut().for_each(Vec::clear);
        (self.is_walked, self.has_doubled, self.has_undefined) = (false, false, false);
        (self.is_too_large, self.slots) = (false, 0);
    }

    /// Takes any value as the scanner does, and keeps its parts. The places of leaves count from the scanner's text.
    /// Gives up where elements and entries take more than `slots_left`.
    pub fn walk(&mut self, scanner: &mut Scanner, depth: usize, slots_left: usize) -> Result<(Kind, Marks), Malformed> {
        (self.is_walked, self.slots_left) = (true, slots_left);
        let (shape, from) = (self.shape, *scanner);
        match self.part(&shape.root, scanner, depth) {
            Err(Malformed) if self.slots > slots_left => {
                *scanner = from;
                let found = scanner.any(depth)?;
                self.give_up();
                Ok(found)
            }
            walked => walked,
        }
    }

    /// Gives the memory of all values back.
    #[cold]
    pub fn forget(&mut self) {
        self.leaves.iter_mut().for_each(|leaves| *leaves = Vec::new());
        self.levels.iter_mut().for_each(|levels| *levels = Vec::new());
        self.slots_kept = 0;
    }

    /// Forgets the parts of a value that is too large, and their memory.
    #[cold]
    pub fn give_up(&mut self) {
        self.forget();
        (self.has_doubled, self.has_undefined, self.is_too_large, self.slots) = (false, false, true, 0);
        let shape = self.shape;
        self.null(&shape.root);
    }

    /// Counts an element or entry. Ends the walk if there are too many, which `walk` tells from malformed text.
    #[inline(always)]
    fn count_slots(&mut self, level: usize) -> Result<(), Malformed> {
        self.slots += self.shape.levels[level];
        if self.slots > self.slots_left {
            return Err(Malformed);
        }
        Ok(())
    }

    /// Has no value.
    pub fn be_null(&mut self) {
        self.is_walked = true;
        let shape = self.shape;
        self.null(&shape.root);
    }

    fn part(&mut self, part: &'a Part, scanner: &mut Scanner, depth: usize) -> Result<(Kind, Marks), Malformed> {
        match (part, scanner.peek()) {
            (Part::Leaf(place), _) => {
                let from = scanner.at;
                let (kind, marks) = scanner.any(depth)?;
                let (at, length) = (from as u32, (scanner.at - from) as u32);
                self.leaves[*place].push(Leaf { at, length, kind, marks });
                Ok((kind, marks))
            }
            (Part::Struct(of), b'{') => Ok((Kind::Object, self.fields(of, scanner, depth)?)),
            (Part::List(level, element), b'[') => {
                Ok((Kind::Array, self.elements(*level, &element.part, scanner, depth)?))
            }
            (Part::Map(of), b'{') => Ok((Kind::Object, self.entries(of, scanner, depth)?)),
            (Part::Struct(_) | Part::List(..) | Part::Map(_), _) => {
                let (kind, marks) = scanner.any(depth)?;
                self.without_parts(part, kind);
                Ok((kind, marks))
            }
        }
    }

    /// Keeps a level whose value is null or has another form.
    fn without_parts(&mut self, part: &'a Part, kind: Kind) {
        self.null(part);
        let misfit = match kind {
            Kind::Null => return,
            Kind::Constant => Misfit::NotFinite,
            _ => Misfit::Unfit,
        };
        if let Some(last) = part.level().and_then(|level| self.levels[level].last_mut()) {
            *last = Level::Misfit(misfit);
        }
    }

    fn null(&mut self, part: &'a Part) {
        match part {
            Part::Leaf(place) => self.leaves[*place].push(Leaf::NOTHING),
            Part::List(level, _) | Part::Map(Map { level, .. }) => self.levels[*level].push(Level::Null),
            Part::Struct(of) => {
                self.levels[of.level].push(Level::Null);
                for field in &of.fields {
                    self.null(&field.named.part);
                }
            }
        }
    }

    fn fields(&mut self, of: &'a Struct, scanner: &mut Scanner, depth: usize) -> Result<Marks, Malformed> {
        let number = self.levels[of.level].len();
        self.levels[of.level].push(Level::Held(0));
        let (mut is_closed, mut marks) = scanner.opened(b'}', depth)?;
        let (mut before, mut read) = (0, 0);
        while !is_closed {
            let (key, has_escapes, spaces) = scanner.inner_key()?;
            marks = marks.and(spaces);
            match self.field(of, before, key, has_escapes) {
                Some(place) => {
                    before = place + 1;
                    let part = &of.fields[place].named.part;
                    if self.count(part) > number {
                        self.has_doubled = true;
                        marks = marks.and(scanner.any(depth + 1)?.1);
                    } else {
                        let from = *scanner;
                        marks = marks.and(self.part(part, scanner, depth + 1)?.1);
                        read += 1 + self.others(of, place, from, depth + 1)?;
                    }
                }
                None => {
                    let (kind, found) = scanner.any(depth + 1)?;
                    self.has_undefined |= !matches!(kind, Kind::Null | Kind::Constant);
                    marks = marks.and(found);
                }
            }
            let (ends, spaces) = scanner.ended(b'}')?;
            is_closed = ends;
            marks = marks.and(spaces);
        }
        if read < of.fields.len() {
            for field in &of.fields {
                if self.count(&field.named.part) == number {
                    self.null(&field.named.part);
                }
            }
        }
        Ok(marks)
    }

    /// Keeps a value for the other fields that read its key, and returns how many these are.
    #[inline(always)]
    fn others(&mut self, of: &'a Struct, place: usize, from: Scanner, depth: usize) -> Result<usize, Malformed> {
        if of.readers.len() == of.fields.len() {
            return Ok(0);
        }
        let readers = of.readers.get(&of.fields[place].key).map_or(&[][..], Vec::as_slice);
        for other in readers.iter().filter(|reader| **reader != place) {
            let mut scanner = from;
            self.part(&of.fields[*other].named.part, &mut scanner, depth)?;
        }
        Ok(readers.len() - 1)
    }

    /// The first field that reads a key. `before` is the place after the one of the struct's last field.
    #[inline(always)]
    fn field(&mut self, of: &'a Struct, before: usize, key: &[u8], has_escapes: bool) -> Option<usize> {
        let guess = self.following[of.level][before];
        if !has_escapes && of.fields.get(guess).is_some_and(|field| field.key == key) {
            return Some(guess);
        }
        let found = self.searched(of, key, has_escapes)?;
        self.following[of.level][before] = found;
        Some(found)
    }

    #[inline(never)]
    fn searched(&mut self, of: &'a Struct, key: &[u8], has_escapes: bool) -> Option<usize> {
        let mut key = key;
        if has_escapes {
            self.scratch.clear();
            unescape(key, &mut self.scratch);
            key = &self.scratch;
        }
        of.readers.get(key).and_then(|readers| readers.first()).copied()
    }

    fn elements(
        &mut self,
        level: usize,
        element: &'a Part,
        scanner: &mut Scanner,
        depth: usize,
    ) -> Result<Marks, Malformed> {
        let number = self.levels[level].len();
        self.levels[level].push(Level::Held(0));
        let (mut is_closed, mut marks) = scanner.opened(b']', depth)?;
        let mut count = 0;
        while !is_closed {
            self.count_slots(level)?;
            marks = marks.and(self.part(element, scanner, depth + 1)?.1);
            count += 1;
            let (ends, spaces) = scanner.ended(b']')?;
            is_closed = ends;
            marks = marks.and(spaces);
        }
        self.levels[level][number] = Level::Held(count);
        Ok(marks)
    }

    fn entries(&mut self, of: &'a Map, scanner: &mut Scanner, depth: usize) -> Result<Marks, Malformed> {
        let number = self.levels[of.level].len();
        self.levels[of.level].push(Level::Held(0));
        let (mut is_closed, mut marks) = scanner.opened(b'}', depth)?;
        let (mut count, mut is_too_long, mut has_any_escapes) = (0, false, false);
        while !is_closed {
            self.count_slots(of.level)?;
            let from = scanner.at;
            let (key, has_escapes, spaces) = scanner.inner_key()?;
            let (at, length) = (from as u32, key.len() as u32 + 2);
            let marks_of_key = if has_escapes { Marks::ESCAPES } else { Marks::NONE };
            self.leaves[of.key].push(Leaf { at, length, kind: Kind::Text, marks: marks_of_key });
            has_any_escapes |= has_escapes;
            is_too_long |= key.len() > of.longest && self.length(key, has_escapes) > of.longest;
            marks = marks.and(spaces).and(self.part(&of.value.part, scanner, depth + 1)?.1);
            count += 1;
            let (ends, spaces) = scanner.ended(b'}')?;
            is_closed = ends;
            marks = marks.and(spaces);
        }
        self.levels[of.level][number] = Level::Held(count);
        self.has_doubled |= self.has_equal_keys(of, count as usize, scanner.text, has_any_escapes);
        if is_too_long {
            let keys = &mut self.leaves[of.key];
            keys.truncate(keys.len() - count as usize);
            self.take_back(&of.value.part, count as usize);
            self.levels[of.level][number] = Level::Misfit(Misfit::TooLong);
        }
        Ok(marks)
    }

    fn length(&mut self, key: &[u8], has_escapes: bool) -> usize {
        if !has_escapes {
            return key.len();
        }
        self.scratch.clear();
        unescape(key, &mut self.scratch);
        self.scratch.len()
    }

    /// Whether two of the last keys of a map are equal.
    fn has_equal_keys(&self, of: &Map, count: usize, text: &[u8], has_escapes: bool) -> bool {
        const FEW: usize = 8;
        let keys = &self.leaves[of.key];
        let keys = &keys[keys.len() - count..];
        if count <= FEW && !has_escapes {
            let mut places = 1..count;
            return places
                .any(|place| keys[..place].iter().any(|before| before.value(text).raw == keys[place].value(text).raw));
        }
        let unescaped = |key: &Leaf| {
            let mut out = Vec::new();
            unescape(key.value(text).content(), &mut out);
            out
        };
        let mut keys: Vec<_> = keys.iter().map(unescaped).collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Forgets the last values of a part, and what they hold.
    fn take_back(&mut self, part: &'a Part, count: usize) {
        let Some(level) = part.level() else {
            if let Part::Leaf(place) = part {
                let values = &mut self.leaves[*place];
                values.truncate(values.len() - count);
            }
            return;
        };
        let levels = &mut self.levels[level];
        let held = |level: &Level| if let Level::Held(held) = level { *held as usize } else { 0 };
        let inner = levels[levels.len() - count..].iter().map(held).sum();
        levels.truncate(levels.len() - count);
        match part {
            Part::Leaf(_) => {}
            Part::Struct(of) => of.fields.iter().for_each(|field| self.take_back(&field.named.part, count)),
            Part::List(_, element) => self.take_back(&element.part, inner),
            Part::Map(of) => {
                let keys = &mut self.leaves[of.key];
                keys.truncate(keys.len() - inner);
                self.take_back(&of.value.part, inner);
            }
        }
    }

    /// The number of values that a part has.
    #[inline(always)]
    fn count(&self, part: &Part) -> usize {
        match part {
            Part::Leaf(place) => self.leaves[*place].len(),
            Part::List(level, _) | Part::Struct(Struct { level, .. }) | Part::Map(Map { level, .. }) => {
                self.levels[*level].len()
            }
        }
    }
}

/// Guesses at first that structs have their fields in the order of Arrow.
fn remember_fields(part: &Part, following: &mut [Vec<usize>]) {
    match part {
        Part::Leaf(_) => {}
        Part::Struct(of) => {
            following[of.level] = (0..=of.fields.len()).collect();
            of.fields.iter().for_each(|field| remember_fields(&field.named.part, following));
        }
        Part::List(_, element) => remember_fields(&element.part, following),
        Part::Map(of) => remember_fields(&of.value.part, following),
    }
}

impl Part {
    /// The place of a struct, a list or a map.
    pub fn level(&self) -> Option<usize> {
        match self {
            Part::Leaf(_) => None,
            Part::List(level, _) | Part::Struct(Struct { level, .. }) | Part::Map(Map { level, .. }) => Some(*level),
        }
    }
}

//! Values inside of values, at the ends of paths. One walk through a value checks it and finds them all.

use crate::layout::DoubledKey;
use crate::scan::{Kind, Malformed, Marks, Scanner, Value};
use crate::text::unescape;

#[derive(PartialEq, Eq)]
pub enum Step {
    Key(Vec<u8>),
    Place(usize),
}

/// A place inside of a value, with the steps that lead on from there.
#[derive(Default)]
struct Node {
    keys: Vec<(Vec<u8>, usize)>,
    places: Vec<(usize, usize)>,
}

impl Node {
    fn after(&self, step: &Step) -> Option<usize> {
        match step {
            Step::Key(key) => self.after_key(key),
            Step::Place(place) => self.after_place(*place),
        }
    }

    #[inline(always)]
    fn after_key(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().find(|(known, _)| known == key).map(|(_, node)| *node)
    }

    fn after_place(&self, place: usize) -> Option<usize> {
        self.places.iter().find(|(known, _)| *known == place).map(|(_, node)| *node)
    }
}

/// The paths of all columns, as a tree for each key at their beginnings.
#[derive(Default)]
pub struct Paths {
    nodes: Vec<Node>,
    /// The root of the tree of each slot that has one.
    roots: Vec<Option<usize>>,
}

impl Paths {
    /// Adds a path inside of the value of a slot. Returns its nodes from the first step to the last.
    pub fn add(&mut self, slot: usize, steps: Vec<Step>) -> Vec<usize> {
        if self.roots.len() <= slot {
            self.roots.resize(slot + 1, None);
        }
        let mut node = match self.roots[slot] {
            Some(root) => root,
            None => self.new_node(),
        };
        self.roots[slot] = Some(node);
        let add_step = |step| {
            node = self.child(node, step);
            node
        };
        steps.into_iter().map(add_step).collect()
    }

    fn child(&mut self, node: usize, step: Step) -> usize {
        if let Some(child) = self.nodes[node].after(&step) {
            return child;
        }
        let child = self.new_node();
        match step {
            Step::Key(key) => self.nodes[node].keys.push((key, child)),
            Step::Place(place) => self.nodes[node].places.push((place, child)),
        }
        child
    }

    fn new_node(&mut self) -> usize {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    /// The root of the paths inside of a slot's value.
    pub fn root(&self, slot: usize) -> Option<usize> {
        self.roots.get(slot).copied().flatten()
    }
}

/// The values of one line at all nodes.
pub struct Picked<'a> {
    paths: &'a Paths,
    values: Vec<Value<'a>>,
    /// Whether a node's key occurs twice.
    doubled: Vec<bool>,
    scratch: Vec<u8>,
}

impl<'a> Picked<'a> {
    pub fn new(paths: &'a Paths) -> Self {
        let count = paths.nodes.len();
        Picked { paths, values: vec![Value::NOTHING; count], doubled: vec![false; count], scratch: Vec::new() }
    }

    pub fn clear(&mut self) {
        self.values.fill(Value::NOTHING);
        self.doubled.fill(false);
    }

    /// The value at the end of a path, or nothing. No key of the path may occur twice.
    pub fn value(&self, path: &[usize]) -> Result<Value<'a>, DoubledKey> {
        if path.iter().any(|node| self.doubled[*node]) {
            return Err(DoubledKey);
        }
        Ok(path.last().map_or(Value::NOTHING, |node| self.values[*node]))
    }

    /// Takes any value as the scanner does, and keeps what paths from `node` on lead to.
    pub fn scan(&mut self, node: usize, scanner: &mut Scanner<'a>, depth: usize) -> Result<(Kind, Marks), Malformed> {
        let node = &self.paths.nodes[node];
        match scanner.peek() {
            b'{' if !node.keys.is_empty() => Ok((Kind::Object, self.object(node, scanner, depth)?)),
            b'[' if !node.places.is_empty() => Ok((Kind::Array, self.array(node, scanner, depth)?)),
            _ => scanner.any(depth),
        }
    }

    fn object(&mut self, node: &'a Node, scanner: &mut Scanner<'a>, depth: usize) -> Result<Marks, Malformed> {
        let (mut is_closed, mut marks) = scanner.opened(b'}', depth)?;
        while !is_closed {
            let (key, has_escapes, spaces) = scanner.inner_key()?;
            let child = if has_escapes { node.after_key(self.unescaped(key)) } else { node.after_key(key) };
            marks = marks.and(spaces).and(self.member(child, scanner, depth + 1)?);
            let (ends, spaces) = scanner.ended(b'}')?;
            is_closed = ends;
            marks = marks.and(spaces);
        }
        Ok(marks)
    }

    fn array(&mut self, node: &'a Node, scanner: &mut Scanner<'a>, depth: usize) -> Result<Marks, Malformed> {
        let (mut is_closed, mut marks) = scanner.opened(b']', depth)?;
        let mut place = 0;
        while !is_closed {
            marks = marks.and(self.member(node.after_place(place), scanner, depth + 1)?);
            let (ends, spaces) = scanner.ended(b']')?;
            is_closed = ends;
            marks = marks.and(spaces);
            place += 1;
        }
        Ok(marks)
    }

    /// Takes a value inside of another one, and keeps it if it has a node.
    #[inline(always)]
    fn member(&mut self, node: Option<usize>, scanner: &mut Scanner<'a>, depth: usize) -> Result<Marks, Malformed> {
        let mut copy = *scanner;
        let (kind, marks) = match node {
            None => copy.any(depth)?,
            Some(node) => self.scan(node, &mut copy, depth)?,
        };
        if let Some(node) = node {
            self.doubled[node] |= self.values[node].is_written();
            self.values[node] = Value { raw: &scanner.text[scanner.at..copy.at], kind, marks };
        }
        *scanner = copy;
        Ok(marks)
    }

    fn unescaped(&mut self, key: &[u8]) -> &[u8] {
        self.scratch.clear();
        unescape(key, &mut self.scratch);
        &self.scratch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(json: &str, steps: Vec<Step>) -> Option<String> {
        let mut paths = Paths::default();
        let path = paths.add(0, steps);
        let mut picked = Picked::new(&paths);
        let mut scanner = Scanner::new(json.as_bytes());
        picked.scan(paths.root(0).unwrap(), &mut scanner, 0).unwrap();
        assert!(scanner.is_at_end(), "{json}");
        let value = picked.value(&path).ok()?;
        Some(String::from_utf8(value.raw.to_vec()).unwrap())
    }

    fn key(name: &str) -> Step {
        Step::Key(name.into())
    }

    #[test]
    fn a_path_leads_through_objects_and_arrays() {
        let steps = || vec![key("a"), Step::Place(1), key("\u{e9}")];
        for (json, expected) in [
            (r#"{"b":1, "a" : [0, {"x":[] , "\u00e9": "y" }]}"#, "\"y\""),
            (r#"{"a":[0]}"#, ""),
            (r#"{"a":{"1":0}}"#, ""),
            (r#"{}"#, ""),
            ("[]", ""),
            ("null", ""),
        ] {
            assert_eq!(found(json, steps()).as_deref(), Some(expected), "{json}");
        }
    }

    #[test]
    fn a_doubled_key_matters_on_the_path_alone() {
        assert_eq!(found(r#"{"a":1,"\u0061":2}"#, vec![key("a")]), None);
        assert_eq!(found(r#"{"a":{"b":1,"b":1}}"#, vec![key("a"), key("b")]), None);
        assert_eq!(found(r#"{"a":{"b":1},"a":0}"#, vec![key("a"), key("b")]), None);
        assert_eq!(found(r#"{"b":1,"b":2,"a":3}"#, vec![key("a")]).as_deref(), Some("3"));
    }

    #[test]
    fn paths_of_one_key_are_found_in_one_walk() {
        let mut paths = Paths::default();
        let path = paths.add(2, vec![key("a"), key("b")]);
        let outer = paths.add(2, vec![key("a")]);
        assert_eq!((outer[0], paths.root(2), paths.root(1)), (path[0], Some(0), None));
        let mut picked = Picked::new(&paths);
        picked.scan(0, &mut Scanner::new(br#"{"a":{ "b":NaN}}"#), 0).unwrap();
        let (outer, inner) = (picked.value(&outer).ok().unwrap(), picked.value(&path).ok().unwrap());
        assert_eq!((outer.raw, inner.raw), (&br#"{ "b":NaN}"#[..], &b"NaN"[..]));
        assert!(outer.marks.has(Marks::SPACES) && outer.marks.has(Marks::CONSTANTS));
        picked.clear();
        assert!(!picked.value(&path).ok().unwrap().is_written());
    }

    #[test]
    fn a_walk_refuses_what_the_scanner_refuses() {
        let mut paths = Paths::default();
        paths.add(0, vec![key("a"), Step::Place(0)]);
        let walk = |json: &str| Picked::new(&paths).scan(0, &mut Scanner::new(json.as_bytes()), 0).is_ok();
        for json in
            [r#"{"a":1,}"#, r#"{"a" 1}"#, r#"{"a":[1,]}"#, r#"{"a":[1 2]}"#, r#"{"a":[}"#, r#"{"a":["#, "{", "{a:1}"]
        {
            assert!(!walk(json), "{json}");
        }
        let nested = |depth: usize| "{\"a\":[".repeat(depth) + &"]}".repeat(depth);
        assert!(walk(&nested(64)) && !walk(&nested(65)));
    }
}

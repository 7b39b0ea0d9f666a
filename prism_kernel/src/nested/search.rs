//! Looks for keys that set a line aside or are told, in the order in which `kernels/nested.py` reads: a level, then its parts by
//! their ids. Few lines have such a key, so nothing here is quick.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::{Part, Shape};
use crate::scan::{Kind, Malformed, Scanner, Value};
use crate::text::unescape;
use crate::undefined::{shown_key, FieldKind, MOST_KEYS};

/// The path below the column of the first key that is read and occurs twice.
pub fn first_doubled(shape: &Shape, value: Value) -> Option<String> {
    doubled_in(&shape.root, value, "")
}

/// A key without escapes, and its value.
type Entry<'a> = (Vec<u8>, Value<'a>);

fn doubled_in(part: &Part, value: Value, path: &str) -> Option<String> {
    if let (Part::Struct(of), Kind::Object) = (part, value.kind) {
        let entries = entries(value).unwrap_or_default();
        let readers = doubled(entries.iter().map(|(key, _)| key).filter(|key| of.readers.contains_key(*key)));
        if let Some(first) = readers.and_then(|key| of.readers.get(key)?.first()) {
            return Some(format!("{path}.{}", of.fields[*first].name));
        }
    }
    if let (Part::Map(_), Kind::Object) = (part, value.kind) {
        if doubled(entries(value).unwrap_or_default().iter().map(|(key, _)| key)).is_some() {
            return Some(format!("{path}{{}}"));
        }
    }
    parts_below(part, value, path).into_iter().find_map(|(part, value, path)| doubled_in(part, value, &path))
}

/// A key that no field reads: the path of the struct below the column, the key as it is shown, and the kind.
pub type UndefinedKey = (String, String, FieldKind);

/// The first keys that no field reads and that have a value, each once.
pub fn undefined_keys(shape: &Shape, value: Value) -> Vec<UndefinedKey> {
    let (mut found, mut known) = (Vec::new(), HashSet::new());
    visit_undefined(&shape.root, value, "", &mut |key| {
        if known.insert(key.clone()) {
            found.push(key);
        }
        found.len() < MOST_KEYS
    });
    found
}

/// Hands over key after key, until `take` returns false. Returns false then, too.
fn visit_undefined(part: &Part, value: Value, path: &str, take: &mut dyn FnMut(UndefinedKey) -> bool) -> bool {
    if let (Part::Struct(of), Kind::Object) = (part, value.kind) {
        for (key, value) in entries(value).unwrap_or_default() {
            if let (false, Some(kind)) = (of.readers.contains_key(&key), FieldKind::of(value.kind)) {
                if !take((path.to_owned(), shown_key(&key), kind)) {
                    return false;
                }
            }
        }
    }
    parts_below(part, value, path).into_iter().all(|(part, value, path)| visit_undefined(part, value, &path, take))
}

/// The values that are read of a level, each with its part and its path, in the order of reading.
fn parts_below<'a>(part: &'a Part, value: Value<'a>, path: &str) -> Vec<(&'a Part, Value<'a>, Rc<str>)> {
    match (part, value.kind) {
        (Part::Struct(of), Kind::Object) => {
            let entries: HashMap<_, _> = entries(value).unwrap_or_default().into_iter().collect();
            let read = of.fields.iter().filter_map(|field| {
                let value = entries.get(&field.key)?;
                Some((&field.named.part, *value, Rc::from(format!("{path}.{}", field.name))))
            });
            read.collect()
        }
        (Part::List(_, element), Kind::Array) => {
            let path: Rc<str> = Rc::from(format!("{path}[]"));
            let elements = elements(value).unwrap_or_default().into_iter();
            elements.map(|value| (&element.part, value, path.clone())).collect()
        }
        (Part::Map(of), Kind::Object) => {
            let entries = entries(value).unwrap_or_default();
            // Nothing reads the values of a map that is null because of a key.
            if entries.iter().any(|(key, _)| key.len() > of.longest) {
                return Vec::new();
            }
            let path: Rc<str> = Rc::from(format!("{path}{{}}"));
            entries.into_iter().map(|(_, value)| (&of.value.part, value, path.clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// The first key that was there before.
fn doubled<'a>(keys: impl Iterator<Item = &'a Vec<u8>>) -> Option<&'a Vec<u8>> {
    let mut known = HashSet::new();
    keys.into_iter().find(|key| !known.insert(*key))
}

fn entries(value: Value<'_>) -> Result<Vec<Entry<'_>>, Malformed> {
    let mut scanner = Scanner::new(value.raw);
    let (mut is_closed, _) = scanner.opened(b'}', 0)?;
    let mut found = Vec::new();
    while !is_closed {
        let (written, _, _) = scanner.inner_key()?;
        let mut key = Vec::new();
        unescape(written, &mut key);
        found.push((key, scanner.value(1)?));
        is_closed = scanner.ended(b'}')?.0;
    }
    Ok(found)
}

fn elements(value: Value<'_>) -> Result<Vec<Value<'_>>, Malformed> {
    let mut scanner = Scanner::new(value.raw);
    let (mut is_closed, _) = scanner.opened(b']', 0)?;
    let mut found = Vec::new();
    while !is_closed {
        found.push(scanner.value(1)?);
        is_closed = scanner.ended(b']')?.0;
    }
    Ok(found)
}

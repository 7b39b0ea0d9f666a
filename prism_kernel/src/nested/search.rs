//! Finds keys that set a line aside or are counted, in the order in which `kernels/nested.py` reads: a level, then its parts by
//! their ids. Few lines have such a key, so nothing here is quick.

use std::collections::{HashMap, HashSet};

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
    let mut found = None;
    each_below(part, value, path, &mut |part, value, path| {
        found = doubled_in(part, value, path);
        found.is_none()
    });
    found
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
    each_below(part, value, path, &mut |part, value, path| visit_undefined(part, value, path, take))
}

/// Hands over the values that are read of a level, each with its part and its path, in the order of reading, until `take`
/// returns false. Returns false then, too. Elements come one by one, because a list may have millions.
fn each_below(part: &Part, value: Value, path: &str, take: &mut dyn FnMut(&Part, Value, &str) -> bool) -> bool {
    match (part, value.kind) {
        (Part::Struct(of), Kind::Object) => {
            let entries: HashMap<_, _> = entries(value).unwrap_or_default().into_iter().collect();
            of.fields.iter().all(|field| match entries.get(&field.key) {
                Some(value) => take(&field.named.part, *value, &format!("{path}.{}", field.name)),
                None => true,
            })
        }
        (Part::List(_, element), Kind::Array) => {
            let path = format!("{path}[]");
            each_element(value, |value| take(&element.part, value, &path)).unwrap_or(true)
        }
        (Part::Map(of), Kind::Object) => {
            let entries = entries(value).unwrap_or_default();
            // Nothing reads the values of a map that is null because of a key.
            if entries.iter().any(|(key, _)| key.len() > of.longest) {
                return true;
            }
            let path = format!("{path}{{}}");
            entries.into_iter().all(|(_, value)| take(&of.value.part, value, &path))
        }
        _ => true,
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

fn each_element(value: Value, mut take: impl FnMut(Value) -> bool) -> Result<bool, Malformed> {
    let mut scanner = Scanner::new(value.raw);
    let (mut is_closed, _) = scanner.opened(b']', 0)?;
    while !is_closed {
        if !take(scanner.value(1)?) {
            return Ok(false);
        }
        is_closed = scanner.ended(b']')?.0;
    }
    Ok(true)
}

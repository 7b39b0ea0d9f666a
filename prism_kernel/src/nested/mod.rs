//! Columns of structs, lists and maps, as `kernels/nested.py` defines them.
//!
//! `Shape` is the type of a column. A `Tape` has the parts of one value by level, as found in one walk through its text.
//! `NestedBuilder` takes tape after tape and makes the Arrow array. `search` finds keys that set a line aside or are counted.

mod build;
mod search;
mod tape;

use std::collections::HashMap;

use crate::columns::Type;

pub use build::NestedBuilder;
pub use search::{first_doubled, undefined_keys};
pub use tape::Tape;

/// The type of a nested column.
pub struct Shape {
    pub root: Part,
    /// The types of all leaves, by their places.
    leaves: Vec<Type>,
    /// The slots of one element or entry, by the levels; 0 for structs. Their number is that of structs, lists and maps.
    levels: Vec<usize>,
}

/// A part of a type. The numbers are places among the leaves or the levels of the shape.
pub enum Part {
    Leaf(usize),
    Struct(Struct),
    List(usize, Box<Named>),
    Map(Map),
}

/// A part with its name and its id in objects.
pub struct Named {
    pub stored_name: String,
    pub id: i64,
    pub part: Part,
}

pub struct Struct {
    level: usize,
    fields: Vec<Member>,
    /// The fields that read a key, the first one first. Mostly one.
    readers: HashMap<Vec<u8>, Vec<usize>>,
}

/// A field of a struct, in the order of Arrow.
pub struct Member {
    pub key: Vec<u8>,
    /// The name in paths.
    pub name: String,
    pub named: Named,
}

pub struct Map {
    level: usize,
    /// The most bytes of a key.
    longest: usize,
    key: usize,
    /// Names and ids of the key and the value.
    key_name: (String, i64),
    value: Box<Named>,
}

/// Gives each part its place. Parts are made from the inside out.
#[derive(Default)]
pub struct Shaper {
    leaves: Vec<Type>,
    levels: Vec<usize>,
}

impl Shaper {
    pub fn leaf(&mut self, kind: Type) -> Part {
        self.leaves.push(kind);
        Part::Leaf(self.leaves.len() - 1)
    }

    /// A struct. `order` has the places of its fields in the order of the table file.
    pub fn of_fields(&mut self, fields: Vec<Member>, order: &[usize]) -> Part {
        let mut readers = HashMap::<_, Vec<_>>::new();
        for place in order {
            if let Some(member) = fields.get(*place) {
                readers.entry(member.key.clone()).or_default().push(*place);
            }
        }
        Part::Struct(Struct { level: self.level(0), fields, readers })
    }

    pub fn list(&mut self, element: Named) -> Part {
        Part::List(self.level(element.part.slots()), Box::new(element))
    }

    pub fn map(&mut self, longest: usize, key_name: (String, i64), value: Named) -> Part {
        let Part::Leaf(key) = self.leaf(Type::Text { length: longest }) else { unreachable!("texts are leaves") };
        let level = self.level(1 + value.part.slots());
        Part::Map(Map { level, longest, key, key_name, value: Box::new(value) })
    }

    fn level(&mut self, slots: usize) -> usize {
        self.levels.push(slots);
        self.levels.len() - 1
    }

    pub fn shape(self, root: Part) -> Shape {
        Shape { root, leaves: self.leaves, levels: self.levels }
    }
}

impl Part {
    /// The slots of one value in Arrow's arrays, without those of its elements and entries.
    fn slots(&self) -> usize {
        match self {
            Part::Struct(of) => 1 + of.fields.iter().map(|field| field.named.part.slots()).sum::<usize>(),
            Part::Leaf(_) | Part::List(..) | Part::Map(_) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::Array;

    use super::*;
    use crate::scan::{Scanner, Value};

    fn named(stored_name: &str, part: Part) -> Named {
        Named { stored_name: stored_name.to_owned(), id: 1, part }
    }

    fn member(key: &str, name: &str, part: Part) -> Member {
        Member { key: key.into(), name: name.to_owned(), named: named(name, part) }
    }

    /// struct<n: bigint, twin: bigint, m: map<string(2), list<bigint>>>, whose fields `n` and `twin` read one key.
    fn shape() -> Shape {
        let mut shaper = Shaper::default();
        let number = shaper.leaf(Type::Int64);
        let list = shaper.list(named("element", number));
        let map = shaper.map(2, ("key".to_owned(), 1), named("value", list));
        let (first, second) = (shaper.leaf(Type::Int64), shaper.leaf(Type::Int64));
        let fields = vec![member("n", "n", first), member("n", "twin", second), member("m", "m", map)];
        let root = shaper.of_fields(fields, &[1, 0, 2]);
        shaper.shape(root)
    }

    fn walked<'a>(shape: &'a Shape, json: &str) -> Tape<'a> {
        walked_up_to(shape, json, usize::MAX)
    }

    fn walked_up_to<'a>(shape: &'a Shape, json: &str, most_slots: usize) -> Tape<'a> {
        let mut tape = Tape::new(shape);
        let mut scanner = Scanner::new(json.as_bytes());
        tape.walk(&mut scanner, 0, most_slots).unwrap();
        assert!(scanner.is_at_end(), "{json}");
        tape
    }

    #[test]
    fn each_level_has_as_many_values_as_the_levels_around_it_ask_for() {
        let shape = shape();
        let mut builder = NestedBuilder::new(&shape);
        let values = [
            r#"{"m":{"k":[1, 2],"j":null}, "n":7}"#,
            "null",
            r#"{"m":{"long":[1],"k":[2]}}"#,
            r#"{"m":{"k":["x",true],"j":1}}"#,
            "[]",
        ];
        for json in values {
            builder.push(&walked(&shape, json), json.as_bytes());
        }
        let column = builder.finish().unwrap();
        let rows = column.array.as_struct();
        assert_eq!((rows.len(), rows.null_count()), (5, 2));
        let numbers = |place: usize| rows.column(place).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        assert_eq!(numbers(0), [Some(7), None, None, None, None]);
        assert_eq!(numbers(1), numbers(0));
        let map = rows.column(2).as_map();
        assert_eq!(map.offsets().to_vec(), [0, 2, 2, 2, 4, 4]);
        let lists = map.values().as_list::<i32>();
        assert_eq!(
            lists.values().as_primitive::<Int64Type>().iter().collect::<Vec<_>>(),
            [Some(1), Some(2), None, None]
        );
        let mut misfits = Vec::new();
        for note in &column.notes {
            for (place, rows) in note.misfits.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
                misfits.push((note.path.as_str(), place, rows.clone()));
            }
        }
        misfits.sort();
        assert_eq!(misfits, [("", 0, vec![4]), (".m{}", 0, vec![3]), (".m{}", 3, vec![2]), (".m{}[]", 0, vec![3])]);
    }

    #[test]
    fn a_value_with_more_slots_than_may_be_is_null_and_walked_to_its_end() {
        let shape = shape();
        // Two entries of two slots, with three numbers and two in their lists. The last map is null because of a key.
        for (json, slots) in [
            (r#"{"m":{"k":[1,2,3],"j":[4,null]}}"#, 9),
            (r#"{"m":{"long":[1,2]},"n":1,"n":2}"#, 4),
            (r#"{"m":{"k":[1],"k":[]},"m":{"a":[2]}}"#, 5),
            (r#"{"n":[1,2],"z":[[]]}"#, 0),
        ] {
            assert!(!walked_up_to(&shape, json, slots).is_too_large, "{json}");
            if slots > 0 {
                let tape = walked_up_to(&shape, json, slots - 1);
                assert!(tape.is_too_large && !tape.has_doubled && !tape.has_undefined, "{json}");
                let mut builder = NestedBuilder::new(&shape);
                builder.push(&tape, json.as_bytes());
                let column = builder.finish().unwrap();
                assert!(column.array.is_null(0));
                let misfits: Vec<_> = column.notes.iter().filter(|note| !note.misfits[3].is_empty()).collect();
                assert_eq!((misfits.len(), misfits[0].path.as_str()), (1, ""));
            }
        }
        assert!(Tape::new(&shape).walk(&mut Scanner::new(br#"{"m":{"k":[1,}}"#), 0, 1).is_err());
    }

    #[test]
    fn slots_of_a_column_are_those_of_what_it_holds() {
        let shape = shape();
        let mut builder = NestedBuilder::new(&shape);
        for (json, slots) in [(r#"{"m":{"k":[1,2]}}"#, 4), (r#"{"m":{"long":[1,2],"k":[]}}"#, 0), ("null", 0)] {
            let before = builder.slots;
            builder.push(&walked(&shape, json), json.as_bytes());
            assert_eq!(builder.slots - before, slots, "{json}");
        }
    }

    #[test]
    fn keys_that_occur_twice_or_that_no_field_reads_are_found_in_the_order_of_reading() {
        let shape = shape();
        for (json, doubled, undefined) in [
            (r#"{"n":1,"m":{"k":[]}}"#, None, None),
            (r#"{"n":1,"n":2,"z":1}"#, Some(".twin"), Some(".z")),
            (r#"{"m":{"k":[],"\u006b":[]}}"#, Some(".m{}"), None),
            (r#"{"z":null,"y":NaN}"#, None, None),
        ] {
            let tape = walked(&shape, json);
            let value: Value = Scanner::new(json.as_bytes()).value(0).unwrap();
            assert_eq!(first_doubled(&shape, value).as_deref(), doubled, "{json}");
            let keys = undefined_keys(&shape, value);
            let shown = keys.first().map(|(path, key, _)| format!("{path}.{key}"));
            assert_eq!(shown.as_deref(), undefined, "{json}");
            assert_eq!((tape.has_doubled, tape.has_undefined), (doubled.is_some(), undefined.is_some()), "{json}");
        }
    }
}

//! The footer of an object: its columns, and where their pages stand.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};

use super::thrift::{Thrift, TRUE};
use super::{refused, Result};

const MAGIC: &[u8; 4] = b"PAR1";
const UTF8: i64 = 0;

/// The key of a column in all objects.
pub enum Key {
    Id(i64),
    Name(String),
}

/// How values are laid out in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Physical {
    Boolean,
    Int32,
    Int64,
    Float,
    Double,
    Bytes,
    Fixed(usize),
    #[default]
    Other,
}

pub struct Leaf {
    pub physical: Physical,
    /// None for a type that the kernel does not know.
    pub kind: Option<DataType>,
    pub is_optional: bool,
    /// The level of definition of its values.
    pub defined: u8,
    /// The lists and maps around it.
    pub repeated: u8,
}

/// A column, or a part of one.
pub struct Node {
    name: String,
    pub id: Option<i64>,
    pub form: Form,
    /// The level of definition from which on it is not null.
    pub defined: u8,
}

pub enum Form {
    /// The place among the leaves.
    Leaf(usize),
    Struct(Vec<Node>),
    List(Box<Node>),
    /// The key and the value.
    Map(Box<[Node; 2]>),
    /// Groups that prism_assets does not write.
    Other,
}

pub struct Chunk {
    pub codec: i64,
    pub pages: Range<usize>,
    pub value_count: usize,
    pub decoded_bytes: usize,
}

pub struct Group {
    pub row_count: usize,
    pub chunks: Vec<Chunk>,
}

pub struct Footer {
    columns: Vec<Node>,
    pub leaves: Vec<Leaf>,
    pub groups: Vec<Group>,
}

impl Footer {
    /// Reads the footer at the end of a whole object.
    pub fn read(body: &[u8]) -> Result<Self> {
        let Some((rest, end)) = body.split_last_chunk::<8>() else { return refused("the object is too short") };
        let length = u32::from_le_bytes([end[0], end[1], end[2], end[3]]) as usize;
        if end[4..] != MAGIC[..] || length > rest.len() {
            return refused("the object has no footer");
        }
        let (mut elements, mut groups) = (Vec::new(), Vec::new());
        Thrift::new(&rest[rest.len() - length..]).fields(|thrift, number, kind| match number {
            2 => thrift.items(|item| {
                elements.push(element_of(item)?);
                Ok(())
            }),
            4 => thrift.items(|item| {
                groups.push(group_of(item)?);
                Ok(())
            }),
            _ => thrift.skip(kind),
        })?;
        let mut elements = elements.into_iter();
        let root = elements.next().map_or(0, |root| root.children);
        let mut leaves = Vec::new();
        let columns = nodes_of(&mut elements, root, Around::default(), &mut leaves)?;
        if elements.next().is_some() || groups.iter().any(|group| group.chunks.len() != leaves.len()) {
            return refused("the columns are unknown");
        }
        Ok(Footer { columns, leaves, groups })
    }

    /// The column with a key. Refuses a key of two columns.
    pub fn column_of(&self, key: &Key) -> Result<Option<&Node>> {
        let mut columns = self.columns.iter().filter(|column| match key {
            Key::Id(id) => column.id == Some(*id) && !column.name.starts_with("_p_"),
            Key::Name(name) => column.name == *name,
        });
        let found = columns.next();
        if columns.next().is_some() {
            return refused("two columns have one key");
        }
        Ok(found)
    }

    /// The place of the leaf that is the column with a key.
    pub fn place_of(&self, key: &Key) -> Result<Option<usize>> {
        match self.column_of(key)?.map(|column| &column.form) {
            None => Ok(None),
            Some(Form::Leaf(place)) => Ok(Some(*place)),
            Some(_) => refused("the column is nested"),
        }
    }
}

/// An element of the schema: a leaf, or a group of the elements after it.
struct Element {
    name: String,
    id: Option<i64>,
    repetition: i64,
    converted: Option<i64>,
    children: usize,
    physical: Physical,
    kind: Option<DataType>,
}

const OPTIONAL: i64 = 1;
const REPEATED: i64 = 2;
const MAP: i64 = 1;
const LIST: i64 = 3;
/// The deepest nesting of groups. Types have sixteen levels, each of at most two groups.
const MOST_GROUPS: usize = 40;

/// What is around an element: groups, and how many of these are optional or repeated, and repeated.
#[derive(Clone, Copy, Default)]
struct Around {
    groups: usize,
    defined: u8,
    repeated: u8,
}

fn nodes_of(
    elements: &mut dyn Iterator<Item = Element>,
    count: usize,
    around: Around,
    leaves: &mut Vec<Leaf>,
) -> Result<Vec<Node>> {
    (0..count).map(|_| Ok(node_of(elements, around, leaves)?.0)).collect()
}

/// The node of the next element, and whether the element is repeated.
fn node_of(
    elements: &mut dyn Iterator<Item = Element>,
    around: Around,
    leaves: &mut Vec<Leaf>,
) -> Result<(Node, bool)> {
    let Some(element) = elements.next() else { return refused("the schema ends early") };
    if around.groups > MOST_GROUPS {
        return refused("the columns are nested too deep");
    }
    let inside = Around {
        groups: around.groups + 1,
        defined: around.defined + u8::from(element.repetition != 0),
        repeated: around.repeated + u8::from(element.repetition == REPEATED),
    };
    let is_repeated = element.repetition == REPEATED;
    let form = if element.children == 0 {
        leaves.push(Leaf {
            physical: element.physical,
            kind: element.kind,
            is_optional: element.repetition == OPTIONAL,
            defined: inside.defined,
            repeated: inside.repeated,
        });
        Form::Leaf(leaves.len() - 1)
    } else {
        let mut parts = Vec::new();
        let mut has_repeated = false;
        for _ in 0..element.children {
            let (part, is_repeated) = node_of(elements, inside, leaves)?;
            has_repeated |= is_repeated;
            parts.push(part);
        }
        form_of(element.converted, parts, has_repeated)
    };
    let form = if is_repeated && element.children == 0 { Form::Other } else { form };
    Ok((Node { name: element.name, id: element.id, form, defined: inside.defined }, is_repeated))
}

/// The form of a group. Lists and maps are groups with one repeated group of their parts, as Arrow writes them.
fn form_of(converted: Option<i64>, mut parts: Vec<Node>, has_repeated: bool) -> Form {
    if !has_repeated {
        return if converted == Some(LIST) || converted == Some(MAP) { Form::Other } else { Form::Struct(parts) };
    }
    let inside = match (parts.pop().map(|part| part.form), parts.is_empty()) {
        (Some(Form::Struct(inside)), true) => inside,
        _ => return Form::Other,
    };
    match (converted, <[Node; 1]>::try_from(inside)) {
        (Some(LIST), Ok([element])) => Form::List(Box::new(element)),
        (Some(MAP), Err(inside)) => match <[Node; 2]>::try_from(inside) {
            Ok(parts) => Form::Map(Box::new(parts)),
            Err(_) => Form::Other,
        },
        _ => Form::Other,
    }
}

fn element_of(thrift: &mut Thrift) -> Result<Element> {
    let (mut physical, mut length, mut repetition, mut converted) = (None, 0, 0, None);
    let (mut name, mut id, mut logical, mut children) = (String::new(), None, None, 0);
    thrift.fields(|thrift, number, kind| {
        match number {
            1 => physical = Some(thrift.integer()?),
            2 => length = thrift.size()?,
            3 => repetition = thrift.integer()?,
            4 => name = String::from_utf8_lossy(thrift.bytes()?).into_owned(),
            5 => children = thrift.size()?,
            6 => converted = Some(thrift.integer()?),
            9 => id = Some(thrift.integer()?),
            10 => logical = Some(logical_of(thrift)?),
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    let physical = match physical {
        Some(0) => Physical::Boolean,
        Some(1) => Physical::Int32,
        Some(2) => Physical::Int64,
        Some(4) => Physical::Float,
        Some(5) => Physical::Double,
        Some(6) => Physical::Bytes,
        Some(7) => Physical::Fixed(length),
        _ => Physical::Other,
    };
    let kind = match (physical, logical) {
        (Physical::Boolean, None) => Some(DataType::Boolean),
        (Physical::Int32, None) if converted.is_none() => Some(DataType::Int32),
        (Physical::Int64, None) if converted.is_none() => Some(DataType::Int64),
        (Physical::Float, None) => Some(DataType::Float32),
        (Physical::Double, None) => Some(DataType::Float64),
        (Physical::Bytes, Some(Logical::Text)) => Some(DataType::Utf8),
        (Physical::Bytes, None) if converted == Some(UTF8) => Some(DataType::Utf8),
        (Physical::Int32, Some(Logical::Date)) => Some(DataType::Date32),
        (Physical::Int32, Some(Logical::Integer(16))) => Some(DataType::Int16),
        (Physical::Int64, Some(Logical::Instant(unit))) => Some(DataType::Timestamp(unit, Some(Arc::from("UTC")))),
        (Physical::Fixed(1..=16), Some(Logical::Decimal(precision @ 1..=38, scale))) => {
            Some(DataType::Decimal128(precision, scale))
        }
        _ => None,
    };
    Ok(Element { name, id, repetition, converted, children, physical, kind })
}

enum Logical {
    Text,
    Date,
    Integer(u8),
    Instant(TimeUnit),
    Decimal(u8, i8),
    Other,
}

fn logical_of(thrift: &mut Thrift) -> Result<Logical> {
    let mut found = Logical::Other;
    thrift.fields(|thrift, number, kind| {
        match number {
            1 => {
                thrift.skip(kind)?;
                found = Logical::Text;
            }
            5 => {
                let (mut scale, mut precision) = (0, 0);
                thrift.fields(|thrift, number, kind| {
                    match number {
                        1 => scale = thrift.integer()?,
                        2 => precision = thrift.integer()?,
                        _ => thrift.skip(kind)?,
                    }
                    Ok(())
                })?;
                if let (Ok(precision), Ok(scale)) = (u8::try_from(precision), i8::try_from(scale)) {
                    found = Logical::Decimal(precision, scale);
                }
            }
            6 => {
                thrift.skip(kind)?;
                found = Logical::Date;
            }
            8 => {
                let (mut is_utc, mut unit) = (false, None);
                thrift.fields(|thrift, number, kind| {
                    match number {
                        1 => is_utc = kind == TRUE,
                        2 => {
                            return thrift.fields(|thrift, number, kind| {
                                unit = match number {
                                    1 => Some(TimeUnit::Millisecond),
                                    2 => Some(TimeUnit::Microsecond),
                                    _ => None,
                                };
                                thrift.skip(kind)
                            })
                        }
                        _ => thrift.skip(kind)?,
                    }
                    Ok(())
                })?;
                if let (true, Some(unit)) = (is_utc, unit) {
                    found = Logical::Instant(unit);
                }
            }
            10 => {
                let (mut width, mut is_signed) = (0, false);
                thrift.fields(|thrift, number, kind| {
                    match number {
                        1 => width = thrift.byte()?,
                        2 => is_signed = kind == TRUE,
                        _ => thrift.skip(kind)?,
                    }
                    Ok(())
                })?;
                if is_signed {
                    found = Logical::Integer(width);
                }
            }
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(found)
}

fn group_of(thrift: &mut Thrift) -> Result<Group> {
    let (mut row_count, mut chunks) = (0, Vec::new());
    thrift.fields(|thrift, number, kind| {
        match number {
            1 => thrift.items(|item| {
                chunks.push(chunk_of(item)?);
                Ok(())
            })?,
            3 => row_count = thrift.size()?,
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    Ok(Group { row_count, chunks })
}

fn chunk_of(thrift: &mut Thrift) -> Result<Chunk> {
    let mut chunk = Chunk { codec: -1, pages: 0..0, value_count: 0, decoded_bytes: 0 };
    let (mut is_elsewhere, mut first, mut dictionary, mut length) = (false, 0, None, 0);
    thrift.fields(|thrift, number, kind| {
        match number {
            3 => thrift.fields(|thrift, number, kind| {
                match number {
                    4 => chunk.codec = thrift.integer()?,
                    5 => chunk.value_count = thrift.size()?,
                    6 => chunk.decoded_bytes = thrift.size()?,
                    7 => length = thrift.size()?,
                    9 => first = thrift.size()?,
                    11 => dictionary = Some(thrift.size()?),
                    _ => thrift.skip(kind)?,
                }
                Ok(())
            })?,
            // The path of another file, or the keys of an encryption.
            1 | 8 | 9 => {
                is_elsewhere = true;
                thrift.skip(kind)?;
            }
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    let start = dictionary.filter(|place| *place > 0).map_or(first, |place| place.min(first));
    let Some(end) = start.checked_add(length).filter(|_| !is_elsewhere) else {
        return refused("the pages are in another place");
    };
    chunk.pages = start..end;
    Ok(chunk)
}

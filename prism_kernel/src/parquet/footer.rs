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
    name: String,
    id: Option<i64>,
    pub physical: Physical,
    /// None for a type that the kernel does not know.
    pub kind: Option<DataType>,
    pub is_optional: bool,
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
        let (mut leaves, mut groups, mut nested) = (Vec::new(), Vec::new(), false);
        Thrift::new(&rest[rest.len() - length..]).fields(|thrift, number, kind| match number {
            2 => {
                let mut is_root = true;
                thrift.items(|item| {
                    let (leaf, is_group) = leaf_of(item)?;
                    if !is_root {
                        nested |= is_group;
                        leaves.push(leaf);
                    }
                    is_root = false;
                    Ok(())
                })
            }
            4 => thrift.items(|item| {
                groups.push(group_of(item)?);
                Ok(())
            }),
            _ => thrift.skip(kind),
        })?;
        if nested || groups.iter().any(|group| group.chunks.len() != leaves.len()) {
            return refused("the columns are nested");
        }
        Ok(Footer { leaves, groups })
    }

    /// The place of the column with a key. Refuses a key of two columns.
    pub fn place_of(&self, key: &Key) -> Result<Option<usize>> {
        let mut places = self.leaves.iter().enumerate().filter(|(_, leaf)| match key {
            Key::Id(id) => leaf.id == Some(*id) && !leaf.name.starts_with("_p_"),
            Key::Name(name) => leaf.name == *name,
        });
        let found = places.next().map(|(place, _)| place);
        if places.next().is_some() {
            return refused("two columns have one key");
        }
        Ok(found)
    }
}

fn leaf_of(thrift: &mut Thrift) -> Result<(Leaf, bool)> {
    let (mut physical, mut length, mut repetition, mut converted) = (None, 0, 0, None);
    let (mut name, mut id, mut logical, mut is_group) = (String::new(), None, None, false);
    thrift.fields(|thrift, number, kind| {
        match number {
            1 => physical = Some(thrift.integer()?),
            2 => length = thrift.size()?,
            3 => repetition = thrift.integer()?,
            4 => name = String::from_utf8_lossy(thrift.bytes()?).into_owned(),
            5 => is_group = thrift.integer()? > 0,
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
    let kind = kind.filter(|_| repetition < 2);
    Ok((Leaf { name, id, physical, kind, is_optional: repetition == 1 }, is_group))
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

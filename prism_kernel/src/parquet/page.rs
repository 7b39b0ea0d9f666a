//! Pages of one column of a row group, unpacked, with their levels and encoded values apart.

use zstd_safe::DCtx;

use super::footer::{Chunk, Leaf};
use super::thrift::Thrift;
use super::{refused, Result};

const UNCOMPRESSED: i64 = 0;
const ZSTD: i64 = 6;
const DATA: i64 = 0;
const DICTIONARY: i64 = 2;
const PLAIN: i64 = 0;
const RLE: i64 = 3;
const CODES: [i64; 2] = [2, 8];

/// How the values of a page are encoded.
#[derive(Clone, Copy, PartialEq)]
pub enum Encoding {
    Plain,
    Codes,
}

/// An unpacked page.
pub struct Page<'a> {
    pub is_dictionary: bool,
    /// Values of a dictionary, or rows.
    pub count: usize,
    pub encoding: Encoding,
    pub content: &'a [u8],
}

#[derive(Default)]
struct Header {
    kind: i64,
    decoded: usize,
    stored: usize,
    count: usize,
    encoding: i64,
    levels: i64,
}

/// Unpacks pages one after the other into the same memory.
pub struct Unpacker {
    zstd: DCtx<'static>,
    content: Vec<u8>,
}

impl Unpacker {
    pub fn new() -> Self {
        Unpacker { zstd: DCtx::create(), content: Vec::new() }
    }

    /// Takes the next page off `rest`.
    pub fn next<'a, 'body: 'a>(&'a mut self, rest: &mut &'body [u8], chunk: &Chunk) -> Result<Page<'a>> {
        let mut thrift = Thrift::new(rest);
        let header = header_of(&mut thrift)?;
        let Some((stored, after)) = thrift.rest.split_at_checked(header.stored) else {
            return refused("a page is longer than its column");
        };
        *rest = after;
        if header.decoded > chunk.decoded_bytes {
            return refused("a page is longer than the footer says");
        }
        let content = match chunk.codec {
            UNCOMPRESSED => stored,
            ZSTD => {
                self.content.clear();
                if self.content.try_reserve(header.decoded).is_err() {
                    return refused("no memory for a page");
                }
                let unpacked = self.zstd.decompress(&mut self.content, stored);
                unpacked.or_else(|code| refused(zstd_safe::get_error_name(code)))?;
                self.content.as_slice()
            }
            _ => return refused("the compression is unknown"),
        };
        if content.len() != header.decoded {
            return refused("a page has another length than its header says");
        }
        let encoding = match header.encoding {
            PLAIN => Encoding::Plain,
            code if CODES.contains(&code) => Encoding::Codes,
            _ => return refused("the encoding is unknown"),
        };
        let is_dictionary = header.kind == DICTIONARY;
        if !is_dictionary && (header.kind != DATA || header.levels != RLE) {
            return refused("the kind of page is unknown");
        }
        Ok(Page { is_dictionary, count: header.count, encoding, content })
    }
}

fn header_of(thrift: &mut Thrift) -> Result<Header> {
    let mut header = Header { kind: -1, encoding: -1, ..Header::default() };
    thrift.fields(|thrift, number, kind| {
        match number {
            1 => header.kind = thrift.integer()?,
            2 => header.decoded = thrift.size()?,
            3 => header.stored = thrift.size()?,
            5 | 7 => thrift.fields(|thrift, number, kind| {
                match number {
                    1 => header.count = thrift.size()?,
                    2 => header.encoding = thrift.integer()?,
                    3 if kind == 5 => header.levels = thrift.integer()?,
                    _ => thrift.skip(kind)?,
                }
                Ok(())
            })?,
            _ => thrift.skip(kind)?,
        }
        Ok(())
    })?;
    // A dictionary of the first version calls its plain values by another name.
    if header.kind == DICTIONARY && CODES.contains(&header.encoding) {
        header.encoding = PLAIN;
    }
    Ok(header)
}

/// Takes the levels off the front of a page: which rows have a value. None if all rows have one.
pub fn validity_of(content: &mut &[u8], count: usize, leaf: &Leaf) -> Result<Option<Vec<bool>>> {
    if !leaf.is_optional {
        return Ok(None);
    }
    let levels = level_bytes(content)?;
    let mut found = Vec::new();
    read_runs(levels, 1, count, &mut found, |level| level == 1)?;
    Ok(found.contains(&false).then_some(found))
}

/// Takes levels of at most `most` off the front of a page of a nested column.
pub fn levels_of(content: &mut &[u8], count: usize, most: u8) -> Result<Vec<u8>> {
    let mut found = Vec::new();
    // The count comes from the object and is not trusted with memory.
    found.try_reserve_exact(count).or_else(|_| refused("no memory for levels"))?;
    if most == 0 {
        found.resize(count, 0);
        return Ok(found);
    }
    let width = 8 - most.leading_zeros() as u8;
    read_runs(level_bytes(content)?, width, count, &mut found, |level| level as u8)?;
    if found.iter().any(|level| *level > most) {
        return refused("a level is greater than the greatest");
    }
    Ok(found)
}

fn level_bytes<'a>(content: &mut &'a [u8]) -> Result<&'a [u8]> {
    let Some((length, rest)) = content.split_first_chunk::<4>() else { return refused("a page has no levels") };
    let Some((levels, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else {
        return refused("the levels are longer than their page");
    };
    *content = rest;
    Ok(levels)
}

/// Takes numbers of dictionary values off a page.
pub fn codes_of(content: &[u8], count: usize) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    if count == 0 {
        return Ok(found);
    }
    let Some((width, runs)) = content.split_first() else { return refused("a page has no codes") };
    read_runs(runs, *width, count, &mut found, |code| code)?;
    Ok(found)
}

/// Reads runs of one number, and groups of eight numbers packed by bits.
fn read_runs<T: Copy>(
    bytes: &[u8],
    width: u8,
    count: usize,
    found: &mut Vec<T>,
    item: impl Fn(u32) -> T,
) -> Result<()> {
    if width > 32 {
        return refused("numbers are too wide");
    }
    let width = usize::from(width);
    let mut thrift = Thrift::new(bytes);
    found.reserve(count);
    while found.len() < count {
        let head = thrift.varint()? as usize;
        let left = count - found.len();
        if head & 1 == 0 {
            let mut word = [0; 4];
            for byte in &mut word[..width.div_ceil(8)] {
                *byte = thrift.byte()?;
            }
            if head == 0 {
                return refused("a run is empty");
            }
            found.resize(found.len() + left.min(head >> 1), item(u32::from_le_bytes(word)));
        } else {
            let size = (head >> 1).saturating_mul(width);
            // The last group may end early.
            let (packed, rest) = thrift.rest.split_at(size.min(thrift.rest.len()));
            let wanted = left.min((head >> 1).saturating_mul(8));
            if packed.len() * 8 < wanted * width || wanted == 0 {
                return refused("packed numbers end too early");
            }
            unpack(packed, width, wanted, |number| found.push(item(number)));
            thrift.rest = rest;
        }
    }
    Ok(())
}

fn unpack(packed: &[u8], width: usize, count: usize, mut push: impl FnMut(u32)) {
    let mask = (1u64 << width) - 1;
    let (mut held, mut bits, mut bytes) = (0u64, 0, packed.iter());
    for _ in 0..count {
        while bits < width {
            held |= u64::from(*bytes.next().unwrap_or(&0)) << bits;
            bits += 8;
        }
        push((held & mask) as u32);
        held >>= width;
        bits -= width;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(bytes: &[u8], count: usize) -> Option<Vec<u32>> {
        codes_of(bytes, count).ok()
    }

    #[test]
    fn codes_come_in_runs_and_in_packed_groups() {
        assert_eq!(
            codes(&[3, 6, 5, 3, 0b1000_1000, 0b1100_0110, 0b1111_1010], 11),
            Some(vec![5, 5, 5, 0, 1, 2, 3, 4, 5, 6, 7])
        );
        assert_eq!(codes(&[0, 8], 3), Some(vec![0, 0, 0]));
        assert_eq!(codes(&[9, 2, 0x01, 0x01], 1), Some(vec![257]));
    }

    #[test]
    fn codes_that_end_early_or_never_come_are_refused() {
        for bytes in [&[][..], &[3], &[3, 3], &[3, 0, 1], &[33, 2, 1], &[1, 1]] {
            assert_eq!(codes(bytes, 2), None);
        }
    }
}

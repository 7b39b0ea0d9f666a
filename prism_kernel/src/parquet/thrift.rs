//! The compact protocol of Thrift, as much as footers and page headers need.

use super::{refused, Result};

pub const TRUE: u8 = 1;
const FALSE: u8 = 2;
const LIST: u8 = 9;
const SET: u8 = 10;
const STRUCT: u8 = 12;
const DEEPEST: usize = 16;

/// Reads values from the front of some bytes.
pub struct Thrift<'a> {
    pub rest: &'a [u8],
    depth: usize,
}

impl<'a> Thrift<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Thrift { rest: bytes, depth: 0 }
    }

    /// Calls `field` with the number and kind of each field of a struct. It reads or skips the value.
    pub fn fields(&mut self, mut field: impl FnMut(&mut Self, i16, u8) -> Result<()>) -> Result<()> {
        self.enter()?;
        let mut number = 0i16;
        loop {
            let head = self.byte()?;
            if head == 0 {
                self.depth -= 1;
                return Ok(());
            }
            number = match head >> 4 {
                0 => self.integer()? as i16,
                step => number.wrapping_add(i16::from(step)),
            };
            field(self, number, head & 15)?;
        }
    }

    /// Calls `item` for each element of a list.
    pub fn items(&mut self, mut item: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let (count, _) = self.list()?;
        (0..count).try_for_each(|_| item(self))
    }

    pub fn integer(&mut self) -> Result<i64> {
        let number = self.varint()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// A length or position, which is never negative.
    pub fn size(&mut self) -> Result<usize> {
        usize::try_from(self.integer()?).or_else(|_| refused("a size is negative"))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.varint()? as usize;
        self.take(count)
    }

    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn skip(&mut self, kind: u8) -> Result<()> {
        match kind {
            TRUE | FALSE => {}
            3 => drop(self.byte()?),
            4..=6 => drop(self.varint()?),
            7 => drop(self.take(8)?),
            8 => drop(self.bytes()?),
            LIST | SET => {
                self.enter()?;
                let (count, kind) = self.list()?;
                for _ in 0..count {
                    // Booleans of a list take a byte each.
                    self.skip(if kind <= FALSE { 3 } else { kind })?;
                }
                self.depth -= 1;
            }
            STRUCT => self.fields(|thrift, _, kind| thrift.skip(kind))?,
            _ => return refused("a kind of field is unknown"),
        }
        Ok(())
    }

    /// Lists nest in lists, and structs in structs. Recursion without a bound would end the process.
    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return refused("a value is too deep");
        }
        Ok(())
    }

    fn list(&mut self) -> Result<(usize, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? as usize } else { usize::from(head >> 4) };
        if count > self.rest.len() {
            return refused("a list is longer than its bytes");
        }
        Ok((count, head & 15))
    }

    pub fn varint(&mut self) -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        refused("a number is too long")
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let Some((front, rest)) = self.rest.split_at_checked(count) else { return refused("the bytes end too early") };
        self.rest = rest;
        Ok(front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag_and_fields_are_counted_by_steps() {
        // field 1: i32 -2; field 3: "ab"; field 4: [1, 2]; stop
        let bytes = [0x15, 0x03, 0x28, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0];
        let mut found = Vec::new();
        Thrift::new(&bytes)
            .fields(|thrift, number, kind| {
                match number {
                    1 => found.push(thrift.integer()?),
                    4 => thrift.items(|item| {
                        found.push(item.integer()?);
                        Ok(())
                    })?,
                    _ => thrift.skip(kind)?,
                }
                Ok(())
            })
            .unwrap();
        assert_eq!(found, [-2, 1, 2]);
    }

    #[test]
    fn bytes_that_end_and_structs_without_end_are_refused() {
        for bytes in
            [&[0x15][..], &[0x18, 200, 1, b'a'], &[0x1C; 100], &[0x19; 1 << 20], &[0x19, 0xF5, 255, 255, 255, 15]]
        {
            assert!(Thrift::new(bytes).skip(STRUCT).is_err());
        }
    }
}

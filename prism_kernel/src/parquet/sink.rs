//! Arrays under construction, one for a column of all inputs.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType,
};
use arrow_array::{ArrayRef, BooleanArray, GenericStringArray, OffsetSizeTrait, PrimitiveArray};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use hashbrown::HashTable;

use super::footer::Physical;
use super::{refused, Result};

/// Values of one Rust type, as pages hold them and as an array takes them.
pub trait Value<'a>: Copy + Default {
    /// Reads plain values of a page.
    fn plain(content: &'a [u8], count: usize, physical: Physical) -> Result<Vec<Self>>;
}

macro_rules! plain_numbers {
    ($($kind:ty, $stored:ty;)*) => {$(
        impl Value<'_> for $kind {
            fn plain(content: &[u8], count: usize, _: Physical) -> Result<Vec<Self>> {
                const WIDTH: usize = size_of::<$stored>();
                let Some(bytes) = count.checked_mul(WIDTH).and_then(|size| content.get(..size)) else {
                    return refused("a page has too few values");
                };
                let number = |bytes: &[u8]| <$stored>::from_le_bytes(bytes.try_into().unwrap_or_default()) as $kind;
                Ok(bytes.chunks_exact(WIDTH).map(number).collect())
            }
        }
    )*};
}

plain_numbers! { i16, i32; i32, i32; i64, i64; f32, f32; f64, f64; }

impl Value<'_> for bool {
    fn plain(content: &[u8], count: usize, _: Physical) -> Result<Vec<Self>> {
        if content.len() < count.div_ceil(8) {
            return refused("a page has too few values");
        }
        Ok((0..count).map(|place| content[place / 8] >> (place % 8) & 1 == 1).collect())
    }
}

impl Value<'_> for i128 {
    fn plain(content: &[u8], count: usize, physical: Physical) -> Result<Vec<Self>> {
        let Physical::Fixed(width @ 1..=16) = physical else { return refused("the width of decimals is unknown") };
        let Some(bytes) = count.checked_mul(width).and_then(|size| content.get(..size)) else {
            return refused("a page has too few values");
        };
        let number = |bytes: &[u8]| {
            let mut whole = [if bytes[0] >= 128 { 255 } else { 0 }; 16];
            whole[16 - bytes.len()..].copy_from_slice(bytes);
            i128::from_be_bytes(whole)
        };
        Ok(bytes.chunks_exact(width).map(number).collect())
    }
}

impl<'a> Value<'a> for &'a [u8] {
    fn plain(mut content: &'a [u8], count: usize, _: Physical) -> Result<Vec<Self>> {
        // The count comes from the page and is not trusted with memory: a text takes at least four bytes.
        let mut found = Vec::with_capacity(count.min(content.len() / 4));
        for _ in 0..count {
            let Some((length, rest)) = content.split_first_chunk::<4>() else {
                return refused("a page has too few values");
            };
            let Some((text, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else {
                return refused("a text is longer than its page");
            };
            found.push(text);
            content = rest;
        }
        Ok(found)
    }
}

/// Takes values of rows. Null rows have any value.
pub trait Sink {
    type Value<'a>: Value<'a>;

    fn add(&mut self, values: &[Self::Value<'_>], valid: Option<&[bool]>) -> Result<()>;

    /// Adds rows by their codes in the dictionary of their input. `known` is memory of the sink for each of its values.
    fn add_codes(
        &mut self,
        codes: &[u32],
        dictionary: &[Self::Value<'_>],
        known: &mut Vec<i32>,
        valid: Option<&[bool]>,
    ) -> Result<()>;

    fn add_nulls(&mut self, count: usize);
    /// The array; for texts with a dictionary, the numbers and the dictionary.
    fn finish(self) -> Result<(ArrayRef, Option<ArrayRef>)>;
}

fn add_validity(nulls: &mut NullBufferBuilder, count: usize, valid: Option<&[bool]>) {
    match valid {
        None => nulls.append_n_non_nulls(count),
        Some(valid) => valid.iter().for_each(|is_valid| nulls.append(*is_valid)),
    }
}

pub struct Numbers<T> {
    values: Vec<T>,
    nulls: NullBufferBuilder,
    kind: DataType,
}

impl<T> Numbers<T> {
    pub fn new(kind: DataType, rows: usize) -> Result<Self> {
        Ok(Numbers { values: reserved(rows)?, nulls: NullBufferBuilder::new(rows), kind })
    }
}

/// An empty vector with room. Footers are not trusted: a failure is no end of the process.
fn reserved<T>(count: usize) -> Result<Vec<T>> {
    let mut found = Vec::new();
    found.try_reserve_exact(count).or_else(|_| refused("no memory for a column"))?;
    Ok(found)
}

/// The array of values that Arrow holds as they are.
pub trait Plain: Copy + Default + for<'a> Value<'a> {
    fn array(values: Vec<Self>, nulls: Option<NullBuffer>, kind: &DataType) -> Result<ArrayRef>;
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>, kind: &DataType) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls).with_data_type(kind.clone()))
}

macro_rules! plain_arrays {
    ($($native:ty: $($pattern:pat => $kind:ty),*;)*) => {$(
        impl Plain for $native {
            fn array(values: Vec<Self>, nulls: Option<NullBuffer>, kind: &DataType) -> Result<ArrayRef> {
                match kind {
                    $($pattern => Ok(primitive::<$kind>(values, nulls, kind)),)*
                    _ => refused("the type is unknown"),
                }
            }
        }
    )*};
}

plain_arrays! {
    i16: DataType::Int16 => Int16Type;
    i32: DataType::Int32 => Int32Type, DataType::Date32 => Date32Type;
    i64: DataType::Int64 => Int64Type,
         DataType::Timestamp(TimeUnit::Millisecond, _) => TimestampMillisecondType,
         DataType::Timestamp(TimeUnit::Microsecond, _) => TimestampMicrosecondType;
    f32: DataType::Float32 => Float32Type;
    f64: DataType::Float64 => Float64Type;
    i128: DataType::Decimal128(..) => Decimal128Type;
}

impl Plain for bool {
    fn array(values: Vec<Self>, nulls: Option<NullBuffer>, _: &DataType) -> Result<ArrayRef> {
        Ok(Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)))
    }
}

impl<T: Plain> Sink for Numbers<T> {
    type Value<'a> = T;

    fn add(&mut self, values: &[T], valid: Option<&[bool]>) -> Result<()> {
        self.values.extend_from_slice(values);
        add_validity(&mut self.nulls, values.len(), valid);
        Ok(())
    }

    fn add_codes(&mut self, codes: &[u32], dictionary: &[T], _: &mut Vec<i32>, valid: Option<&[bool]>) -> Result<()> {
        for (place, code) in codes.iter().enumerate() {
            let is_null = valid.is_some_and(|valid| !valid[place]);
            let Some(value) = dictionary.get(*code as usize).copied().or(is_null.then(T::default)) else {
                return refused("a code is beyond its dictionary");
            };
            self.values.push(value);
        }
        add_validity(&mut self.nulls, codes.len(), valid);
        Ok(())
    }

    fn add_nulls(&mut self, count: usize) {
        self.values.resize(self.values.len() + count, T::default());
        self.nulls.append_n_nulls(count);
    }

    fn finish(mut self) -> Result<(ArrayRef, Option<ArrayRef>)> {
        Ok((T::array(self.values, self.nulls.finish(), &self.kind)?, None))
    }
}

/// Texts one after the other. `O` is the width of their positions.
pub struct Texts<O> {
    ends: Vec<O>,
    bytes: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl<O: OffsetSizeTrait> Texts<O> {
    pub fn new(rows: usize, bytes: usize) -> Result<Self> {
        let mut ends = reserved(rows + 1)?;
        ends.push(O::default());
        Ok(Texts { ends, bytes: reserved(bytes)?, nulls: NullBufferBuilder::new(rows) })
    }

    fn push(&mut self, text: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(text);
        let Some(end) = O::from_usize(self.bytes.len()) else { return refused("texts are too long for one array") };
        self.ends.push(end);
        Ok(())
    }

    fn array(mut self) -> Result<ArrayRef> {
        let ends = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        let made = GenericStringArray::<O>::try_new(ends, Buffer::from_vec(self.bytes), self.nulls.finish());
        Ok(Arc::new(made.or_else(|error| refused(error.to_string()))?))
    }
}

impl<O: OffsetSizeTrait> Sink for Texts<O> {
    type Value<'a> = &'a [u8];

    fn add(&mut self, values: &[&[u8]], valid: Option<&[bool]>) -> Result<()> {
        // A null has an empty text.
        values.iter().try_for_each(|text| self.push(text))?;
        add_validity(&mut self.nulls, values.len(), valid);
        Ok(())
    }

    /// A short dictionary could grow to gigabytes of texts.
    fn add_codes(&mut self, codes: &[u32], _: &[&[u8]], _: &mut Vec<i32>, valid: Option<&[bool]>) -> Result<()> {
        if valid.is_none_or(|valid| valid.contains(&true)) {
            return refused("texts of a dictionary keep it");
        }
        self.add_nulls(codes.len());
        Ok(())
    }

    fn add_nulls(&mut self, count: usize) {
        self.ends.resize(self.ends.len() + count, self.ends[self.ends.len() - 1]);
        self.nulls.append_n_nulls(count);
    }

    fn finish(self) -> Result<(ArrayRef, Option<ArrayRef>)> {
        Ok((self.array()?, None))
    }
}

/// Texts as numbers of a dictionary. Only texts of wanted rows come into the dictionary.
pub struct CodedTexts {
    codes: Numbers<i32>,
    texts: Texts<i32>,
    known: HashTable<i32>,
    hasher: RandomState,
}

impl CodedTexts {
    pub fn new(rows: usize) -> Result<Self> {
        Ok(CodedTexts {
            codes: Numbers::new(DataType::Int32, rows)?,
            texts: Texts::new(0, 0)?,
            known: HashTable::new(),
            hasher: RandomState::new(),
        })
    }

    fn code_of(&mut self, text: &[u8]) -> Result<i32> {
        let (texts, hasher) = (&self.texts, &self.hasher);
        let stored = |code: i32| {
            let start = texts.ends[code as usize] as usize;
            &texts.bytes[start..texts.ends[code as usize + 1] as usize]
        };
        let hash = hasher.hash_one(text);
        if let Some(code) = self.known.find(hash, |code| stored(*code) == text) {
            return Ok(*code);
        }
        let code = (texts.ends.len() - 1) as i32;
        self.known.insert_unique(hash, code, |code| hasher.hash_one(stored(*code)));
        self.texts.push(text)?;
        self.texts.nulls.append_non_null();
        Ok(code)
    }
}

impl Sink for CodedTexts {
    type Value<'a> = &'a [u8];

    fn add(&mut self, values: &[&[u8]], valid: Option<&[bool]>) -> Result<()> {
        for (place, text) in values.iter().enumerate() {
            let code = if valid.is_some_and(|valid| !valid[place]) { 0 } else { self.code_of(text)? };
            self.codes.values.push(code);
        }
        add_validity(&mut self.codes.nulls, values.len(), valid);
        Ok(())
    }

    fn add_codes(
        &mut self,
        codes: &[u32],
        dictionary: &[&[u8]],
        known: &mut Vec<i32>,
        valid: Option<&[bool]>,
    ) -> Result<()> {
        known.resize(dictionary.len(), -1);
        for (place, code) in codes.iter().enumerate() {
            if valid.is_some_and(|valid| !valid[place]) {
                self.codes.values.push(0);
                continue;
            }
            let (Some(text), Some(found)) = (dictionary.get(*code as usize), known.get_mut(*code as usize)) else {
                return refused("a code is beyond its dictionary");
            };
            if *found < 0 {
                *found = self.code_of(text)?;
            }
            self.codes.values.push(*found);
        }
        add_validity(&mut self.codes.nulls, codes.len(), valid);
        Ok(())
    }

    fn add_nulls(&mut self, count: usize) {
        self.codes.add_nulls(count);
    }

    fn finish(self) -> Result<(ArrayRef, Option<ArrayRef>)> {
        let (codes, _) = self.codes.finish()?;
        Ok((codes, Some(self.texts.array()?)))
    }
}

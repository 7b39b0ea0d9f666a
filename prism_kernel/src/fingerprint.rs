//! Fingerprints of rows, value for value as `kernels/fingerprint.py` defines them. They are stored: none may change.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType,
};
use arrow_array::{Array, ArrayAccessor, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, TimeUnit};

const GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;
const FIRST: u64 = 0xBF58_476D_1CE4_E5B9;
const SECOND: u64 = 0x94D0_49BB_1331_11EB;

/// Columns of this type have no fingerprint here.
#[derive(Debug)]
pub struct UnknownType(pub DataType);

/// The sum of the fingerprints of rows, modulo 2^64. Each column comes with its id and the ids of its parts, each before
/// the ids of its own parts.
pub fn fingerprint(columns: &[(ArrayRef, Vec<u64>)], row_count: usize) -> Result<u64, UnknownType> {
    let mut rows = vec![0; row_count];
    for (array, ids) in columns {
        add_column(&mut rows, array, &mut ids.iter().copied())?;
    }
    Ok(rows.into_iter().fold(0, |sum: u64, row| sum.wrapping_add(mix(row))))
}

/// Adds to each row, or to each value around a part, what its value gives.
fn add_column(rows: &mut [u64], array: &ArrayRef, ids: &mut dyn Iterator<Item = u64>) -> Result<(), UnknownType> {
    let Some(id) = ids.next() else { return Err(UnknownType(array.data_type().clone())) };
    let salt = mix(id);
    match array.data_type() {
        DataType::Utf8 => add(rows, array.as_string::<i32>(), salt, |text: &str| hash_of_text(text.as_bytes())),
        DataType::LargeUtf8 => add(rows, array.as_string::<i64>(), salt, |text: &str| hash_of_text(text.as_bytes())),
        DataType::Boolean => add(rows, array.as_boolean(), salt, u64::from),
        DataType::Int16 => numbers::<Int16Type>(rows, array, salt, |number| i64::from(number) as u64),
        DataType::Int32 => numbers::<Int32Type>(rows, array, salt, |number| i64::from(number) as u64),
        DataType::Date32 => numbers::<Date32Type>(rows, array, salt, |number| i64::from(number) as u64),
        DataType::Int64 => numbers::<Int64Type>(rows, array, salt, |number| number as u64),
        DataType::Float32 => numbers::<Float32Type>(rows, array, salt, |number| double_bits(f64::from(number))),
        DataType::Float64 => numbers::<Float64Type>(rows, array, salt, double_bits),
        DataType::Decimal128(..) => numbers::<Decimal128Type>(rows, array, salt, |number| {
            mix(number as u64).wrapping_add((number >> 64) as u64)
        }),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            numbers::<TimestampMillisecondType>(rows, array, salt, |number| number as u64);
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            numbers::<TimestampMicrosecondType>(rows, array, salt, |number| milliseconds(number) as u64);
        }
        DataType::Struct(_) => {
            let structs = array.as_struct();
            let mut own = vec![mix(1 ^ salt); array.len()];
            for part in structs.columns() {
                add_column(&mut own, part, ids)?;
            }
            add_own(rows, array, |place| own[place]);
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let (offsets, first, count) = held(lists.value_offsets());
            let values = lists.values().slice(first, count);
            let mut own = vec![0; count];
            add_column(&mut own, &values, ids)?;
            let nulls = nulls_of(&values);
            let sum_of = |start: usize, end: usize| {
                let valid = (start..end).filter(|place| is_valid(nulls, *place));
                sum(valid.map(|place| mix(own[place].wrapping_add((place - start + 1) as u64))))
            };
            add_own(rows, array, |place| {
                let (start, end) = (offsets[place] as usize - first, offsets[place + 1] as usize - first);
                mix((end - start) as u64 ^ salt).wrapping_add(sum_of(start, end))
            });
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            let (offsets, first, count) = held(maps.value_offsets());
            let mut own = vec![0; count];
            add_column(&mut own, &maps.keys().slice(first, count), ids)?;
            add_column(&mut own, &maps.values().slice(first, count), ids)?;
            add_own(rows, array, |place| {
                let (start, end) = (offsets[place] as usize - first, offsets[place + 1] as usize - first);
                let entries = sum(own[start..end].iter().map(|entry| mix(*entry)));
                mix((end - start) as u64 ^ salt).wrapping_add(entries)
            });
        }
        other => return Err(UnknownType(other.clone())),
    }
    Ok(())
}

/// The offsets of lists, their first value, and the number of their values.
fn held(offsets: &[i32]) -> (&[i32], usize, usize) {
    let first = offsets.first().map_or(0, |first| *first as usize);
    let end = offsets.last().map_or(0, |end| *end as usize);
    (offsets, first, end - first)
}

fn sum(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0, u64::wrapping_add)
}

/// Adds to each row what its struct, list or map gives. A null gives nothing.
fn add_own(rows: &mut [u64], array: &ArrayRef, own: impl Fn(usize) -> u64) {
    let nulls = nulls_of(array);
    for (place, row) in rows.iter_mut().enumerate().take(array.len()) {
        if is_valid(nulls, place) {
            *row = row.wrapping_add(own(place));
        }
    }
}

/// The bits of valid values. None if all are valid, which spares a call for each value.
fn nulls_of<A: Array + ?Sized>(array: &A) -> Option<&NullBuffer> {
    array.nulls().filter(|nulls| nulls.null_count() > 0)
}

#[inline(always)]
fn is_valid(nulls: Option<&NullBuffer>, place: usize) -> bool {
    nulls.is_none_or(|nulls| nulls.is_valid(place))
}

fn numbers<T: ArrowPrimitiveType>(rows: &mut [u64], array: &ArrayRef, salt: u64, word: impl Fn(T::Native) -> u64) {
    add(rows, array.as_primitive::<T>(), salt, word);
}

/// Adds to each row what its value gives. A null gives nothing.
#[inline(always)]
fn add<A: ArrayAccessor>(rows: &mut [u64], array: A, salt: u64, word: impl Fn(A::Item) -> u64) {
    let nulls = nulls_of(&array);
    for (place, row) in rows.iter_mut().enumerate().take(array.len()) {
        if is_valid(nulls, place) {
            *row = row.wrapping_add(mix(word(array.value(place)) ^ salt));
        }
    }
}

/// The finalizer of splitmix64 (Steele, Lea and Flood, 2014).
#[inline(always)]
fn mix(word: u64) -> u64 {
    let mut word = word.wrapping_add(GAMMA);
    word = (word ^ (word >> 30)).wrapping_mul(FIRST);
    word = (word ^ (word >> 27)).wrapping_mul(SECOND);
    word ^ (word >> 31)
}

/// The length, then all bytes eight at a time, little-endian, the last ones filled up with zeros.
#[inline(always)]
fn hash_of_text(text: &[u8]) -> u64 {
    let mut hash = mix(text.len() as u64);
    let mut rest = text;
    while let Some((word, after)) = rest.split_first_chunk() {
        hash = fold(hash, u64::from_le_bytes(*word));
        rest = after;
    }
    if !rest.is_empty() {
        hash = fold(hash, last_word(text, rest));
    }
    hash
}

/// The last bytes of a text as a word. A copy of one to seven bytes would be the call of a function.
#[inline(always)]
fn last_word(text: &[u8], rest: &[u8]) -> u64 {
    match text.last_chunk() {
        Some(word) => u64::from_le_bytes(*word) >> (64 - 8 * rest.len()),
        None => rest.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)),
    }
}

#[inline(always)]
fn fold(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(FIRST);
    hash ^ (hash >> 31)
}

/// Both zeros have the bits of the positive one.
fn double_bits(number: f64) -> u64 {
    (number + 0.0).to_bits()
}

/// Fractions of a millisecond, which no object has, give another hash.
fn milliseconds(microseconds: i64) -> i64 {
    if microseconds.rem_euclid(1000) == 0 {
        microseconds.div_euclid(1000)
    } else {
        microseconds
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, StringArray};

    use super::*;

    #[test]
    fn the_order_of_rows_and_null_columns_do_not_count() {
        let of = |numbers: Vec<Option<i64>>, texts: Vec<Option<&str>>| {
            let count = numbers.len();
            let columns: [(ArrayRef, Vec<u64>); 2] =
                [(Arc::new(Int64Array::from(numbers)), vec![1]), (Arc::new(StringArray::from(texts)), vec![2])];
            fingerprint(&columns, count).unwrap()
        };
        let whole = of(vec![Some(1), Some(2)], vec![Some("a"), None]);
        assert_eq!(whole, of(vec![Some(2), Some(1)], vec![None, Some("a")]));
        assert_ne!(whole, of(vec![Some(2), Some(1)], vec![Some("a"), None]));
        assert_eq!(of(vec![None], vec![None]), mix(0));
    }

    #[test]
    fn a_text_is_hashed_by_length_and_words() {
        assert_ne!(hash_of_text(b""), hash_of_text(b"\0"));
        assert_ne!(hash_of_text(b"12345678"), hash_of_text(b"12345678\0"));
        let text = b"abcdefghijklmnopqrstuvwxyz";
        for length in 0..text.len() {
            let expected = text[..length].chunks(8).fold(mix(length as u64), |hash, part| {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                fold(hash, u64::from_le_bytes(word))
            });
            assert_eq!(hash_of_text(&text[..length]), expected);
        }
    }
}

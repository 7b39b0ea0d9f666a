//! Arrays of Python, also slices of nested ones. The Arrow crate slices the fields of a struct inside of a sliced struct
//! twice, so structs, lists and maps are put together here.

use std::sync::Arc;

use arrow_array::{make_array, Array, ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

/// The array of some rows of data.
pub fn array_of(data: &ArrayData, start: usize, count: usize) -> Result<ArrayRef, ArrowError> {
    let nulls = data.nulls().map(|nulls| nulls.slice(start, count));
    let from = data.offset() + start;
    Ok(match data.data_type() {
        DataType::Struct(fields) => {
            let parts = data.child_data().iter().map(|part| array_of(part, from, count));
            Arc::new(StructArray::try_new(fields.clone(), parts.collect::<Result<_, _>>()?, nulls)?)
        }
        DataType::List(element) => {
            Arc::new(ListArray::try_new(element.clone(), offsets(data, from, count), whole(data)?, nulls)?)
        }
        DataType::Map(entry, is_sorted) => {
            let entries = whole(data)?;
            let Some(entries) = entries.as_any().downcast_ref::<StructArray>() else {
                return Err(ArrowError::SchemaError("the entries of a map are no structs".to_owned()));
            };
            let offsets = offsets(data, from, count);
            Arc::new(MapArray::try_new(entry.clone(), offsets, entries.clone(), nulls, *is_sorted)?)
        }
        _ => make_array(data.slice(start, count)),
    })
}

/// All elements of lists, or all entries of maps.
fn whole(data: &ArrayData) -> Result<ArrayRef, ArrowError> {
    match data.child_data() {
        [values] => array_of(values, 0, values.len()),
        _ => Err(ArrowError::SchemaError("a list without elements".to_owned())),
    }
}

fn offsets(data: &ArrayData, from: usize, count: usize) -> OffsetBuffer<i32> {
    match data.buffers() {
        [offsets, ..] if count > 0 => OffsetBuffer::new(ScalarBuffer::new(offsets.clone(), from, count + 1)),
        _ => OffsetBuffer::new_empty(),
    }
}

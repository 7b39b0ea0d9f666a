//! The boundary of `parquet`: stored objects come in as arrays of bytes, joined columns go out.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::Array;
use arrow_schema::DataType;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::{guarded, imported, ArrowArray};
use crate::parquet::{column_of, nested_of, Input, Key, Refused, Wanted, WantedForm};

/// Bytes, row group, number of rows, and wanted rows.
type Given<'py> = (Bound<'py, PyAny>, usize, usize, Option<Bound<'py, PyAny>>);

/// Row groups of stored objects, and the wanted rows of each.
#[pyclass(frozen)]
pub struct ParquetInputs {
    inputs: Vec<Input>,
}

#[pymethods]
impl ParquetInputs {
    /// `inputs`: the bytes of an object as an array of uint8, a row group, its number of rows, and the wanted rows in
    /// ascending order as an array of int64, or None for all. Raises ValueError for objects that the kernel leaves to Arrow.
    #[new]
    fn new(inputs: Vec<Given<'_>>) -> PyResult<Self> {
        let mut found: Vec<Input> = Vec::with_capacity(inputs.len());
        for (body, group, count, rows) in &inputs {
            let body = typed(body, &DataType::UInt8)?.as_primitive::<UInt8Type>().clone();
            let rows = match rows {
                Some(rows) => Some(typed(rows, &DataType::Int64)?.as_primitive::<Int64Type>().clone()),
                None => None,
            };
            let input = guarded(|| Input::new(body, *group, *count, rows, found.last()))?.map_err(error_of)?;
            found.push(input);
        }
        Ok(ParquetInputs { inputs: found })
    }

    /// The wanted rows of all inputs in one array, and the dictionary that its numbers mean, if there is one. `key`: the
    /// id or the name of the column. None if no input has it. Raises ValueError for columns that the kernel leaves to Arrow.
    fn column(
        &self,
        py: Python<'_>,
        key: &Bound<'_, PyAny>,
        coded: bool,
    ) -> PyResult<Option<(ArrowArray, Option<ArrowArray>)>> {
        let key = match key.extract::<i64>() {
            Ok(id) => Key::Id(id),
            Err(_) => Key::Name(key.extract()?),
        };
        let found = py.detach(|| guarded(|| column_of(&self.inputs, &key, coded)))?.map_err(error_of)?;
        Ok(found.map(|joined| (ArrowArray(joined.values), joined.dictionary.map(ArrowArray))))
    }

    /// The wanted rows of a nested column of all inputs in one array. `wanted`: name, id, form and parts of the column; a
    /// leaf has, instead of parts, whether it keeps a dictionary. None if no input has it. Raises ValueError as `column`.
    fn nested(&self, py: Python<'_>, wanted: &Bound<'_, PyTuple>) -> PyResult<Option<ArrowArray>> {
        let wanted = wanted_of(wanted)?;
        let found = py.detach(|| guarded(|| nested_of(&self.inputs, &wanted)))?.map_err(error_of)?;
        Ok(found.map(ArrowArray))
    }
}

fn wanted_of(described: &Bound<'_, PyTuple>) -> PyResult<Wanted> {
    let (name, id, form, more): (String, i64, String, Bound<'_, PyAny>) = described.extract()?;
    let parts = || {
        let parts: Vec<Bound<'_, PyTuple>> = more.extract()?;
        parts.iter().map(wanted_of).collect::<PyResult<Vec<_>>>()
    };
    let form = match form.as_str() {
        "leaf" => WantedForm::Leaf { coded: more.extract()? },
        "struct" => WantedForm::Struct(parts()?),
        "list" => {
            <[Wanted; 1]>::try_from(parts()?).map(|[element]| WantedForm::List(Box::new(element))).map_err(unknown)?
        }
        "map" => <[Wanted; 2]>::try_from(parts()?).map(|parts| WantedForm::Map(Box::new(parts))).map_err(unknown)?,
        _ => return Err(PyValueError::new_err("the form is unknown")),
    };
    Ok(Wanted { name, id, form })
}

fn unknown(_: Vec<Wanted>) -> PyErr {
    PyValueError::new_err("a list has one part, and a map has two")
}

fn typed(object: &Bound<'_, PyAny>, kind: &DataType) -> PyResult<arrow_array::ArrayRef> {
    let array = imported(object)?;
    if array.data_type() != kind || array.null_count() > 0 {
        return Err(PyTypeError::new_err(format!("no array of {kind} without nulls")));
    }
    Ok(array)
}

fn error_of(refused: Refused) -> PyErr {
    PyValueError::new_err(refused.0)
}

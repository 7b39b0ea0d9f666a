//! The boundary to Python: layouts come in, Arrow arrays go out through the C data interface.

mod arrays;
mod documents;
mod nested;
mod parquet;
mod text_lines;

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;

use arrow_array::ffi::{from_ffi, to_ffi, FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array};
use memchr::memchr_iter;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::block::{read_block, Around, BlockRows};
use crate::collect::Collected;
use crate::columns::{Notes, Pending, Type};
use crate::fingerprint::fingerprint;
use crate::layout::{ColumnLayout, ColumnType, Layout, Source};
use crate::paths::{Paths, Step};
use crate::route::Route;
use crate::rules::Misfit;
use crate::times::{TimeOptions, Unit};

/// Grows with each change of what Python and the module say to each other, so that neither meets an older half.
const SEAM: u32 = 11;

/// Reads blocks of lines for the columns of one table.
#[pyclass(frozen)]
struct Reader {
    layout: Layout,
    matching: Py<PyAny>,
}

#[pymethods]
impl Reader {
    /// `columns`: (name, type, sources) of each. A type is a tuple of its name and its parameters. A struct, a list or a map
    /// has its parts instead of parameters: (key, name, name in objects, id, place in the table file, type). A source is
    /// ("key", key, steps), ("shared", JSON text), ("line",), ("outer", number), ("pattern", number) or ("rest",). A second
    /// occurrence of a key is reported for a column: `owners` has it for each key that columns name, `patterns` for each
    /// pattern, `rest` for all other keys. `patterns` also has the function that returns the numbers of the patterns that
    /// match a key. `route`: the share of the table in the lines. `most_slots`: a nested value is null if its elements and
    /// entries, with those of the columns before, take more of them.
    #[new]
    #[pyo3(signature = (columns, owners, *, patterns, rest, partition, freezes, route, most_slots))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        columns: Vec<(String, Bound<'_, PyTuple>, Vec<Bound<'_, PyTuple>>)>,
        owners: Vec<(String, String)>,
        patterns: (Vec<String>, Py<PyAny>),
        rest: Option<String>,
        partition: Option<usize>,
        freezes: bool,
        route: Option<Share<'_>>,
        most_slots: usize,
    ) -> PyResult<Self> {
        let (keys, owners): (Vec<_>, Vec<_>) = owners.into_iter().unzip();
        let slots = keys.into_iter().enumerate().map(|(slot, key)| (key.into_bytes(), slot)).collect();
        let mut paths = Paths::default();
        let columns = columns
            .into_iter()
            .map(|(name, kind, sources)| {
                let sources =
                    sources.iter().map(|source| source_of(source, &slots, &mut paths)).collect::<PyResult<_>>()?;
                Ok(ColumnLayout { name, kind: column_type(&kind)?, sources })
            })
            .collect::<PyResult<Vec<_>>>()?;
        if partition.is_some_and(|time| time >= columns.len()) {
            return Err(PyValueError::new_err("the partition column is none of the columns"));
        }
        let (patterns, matching) = patterns;
        let route = route.map(route_of).transpose()?;
        let layout = Layout { columns, slots, paths, owners, patterns, rest, partition, freezes, route, most_slots };
        Ok(Reader { layout, matching })
    }

    /// Reads whole lines; `first_line` is the number of the first one. `outer` has the JSON texts around all lines from a
    /// number on. Ends with the line whose nested values bring the slots of elements and entries to `most_slots`.
    fn read(
        &self,
        py: Python<'_>,
        data: &[u8],
        first_line: i64,
        outer: Vec<Around>,
        most_slots: usize,
    ) -> PyResult<Rows> {
        py.detach(|| guarded(|| self.read_detached(data, first_line, &outer, most_slots)))?.map(Rows::from)
    }
}

impl Reader {
    /// Reads without the interpreter, which only a new key needs that has to be held against patterns.
    fn read_detached(&self, data: &[u8], first_line: i64, outer: &[Around], most_slots: usize) -> PyResult<BlockRows> {
        let failure = RefCell::new(None);
        let matching = |key: &str| {
            let asked: PyResult<Vec<usize>> = Python::attach(|py| self.matching.call1(py, (key,))?.extract(py));
            asked.map_err(|error| failure.replace(Some(error))).ok()
        };
        read_block(&self.layout, data, first_line, outer, &matching, most_slots)
            .map_err(|error| failure.take().unwrap_or_else(|| PyValueError::new_err(error.to_string())))
    }
}

/// The rows of a block, and its other lines. Positions of lines and rows begin at 0.
#[pyclass(frozen, get_all)]
struct Rows {
    /// Where lines that are not blank begin and end in the block, and their numbers.
    starts: ArrowArray,
    ends: ArrowArray,
    numbers: ArrowArray,
    /// Positions of the lines that are rows.
    kept: ArrowArray,
    columns: Vec<ArrowArray>,
    /// Whether a row has no value for the time.
    absent: ArrowArray,
    /// Column, path of the part below it, reason and rows.
    misfits: Vec<(usize, String, &'static str, ArrowArray)>,
    /// Instants whose days the column or a part of it stores.
    instants: Vec<(Part, ArrowArray)>,
    /// Texts for the exact rule in Python.
    undecided: Vec<(Part, Vec<String>)>,
    /// Position of a line, reason, and the deciding column or field.
    rejected: Vec<(i64, &'static str, Option<String>)>,
    /// Positions of lines of other tables.
    elsewhere: ArrowArray,
    /// Path of a struct, key, kind, count and first line of fields that no column reads.
    undefined: Vec<(String, String, &'static str, u64, i64)>,
    /// Whether lines are left, which the next call reads.
    is_cut: bool,
}

impl From<BlockRows> for Rows {
    fn from(rows: BlockRows) -> Self {
        let (mut misfits, mut instants, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
        let mut columns = Vec::new();
        for (place, column) in rows.columns.into_iter().enumerate() {
            columns.push(ArrowArray(column.array));
            for Notes { path, places, misfits: by_reason, instants: of_days, undecided: texts } in column.notes {
                for (misfit, found) in Misfit::ALL.into_iter().zip(by_reason).filter(|(_, found)| !found.is_empty()) {
                    misfits.push((place, path.clone(), misfit.name(), integers(found)));
                }
                if !of_days.rows.is_empty() {
                    let Pending { rows, entries, values } = of_days;
                    instants.push((part_of(place, &path, &places, rows, entries), integers(values)));
                }
                if !texts.rows.is_empty() {
                    let Pending { rows, entries, values } = texts;
                    undecided.push((part_of(place, &path, &places, rows, entries), values));
                }
            }
        }
        Rows {
            starts: integers(rows.starts),
            ends: integers(rows.ends),
            numbers: integers(rows.numbers),
            kept: integers(rows.kept),
            columns,
            absent: ArrowArray(Arc::new(BooleanArray::from(rows.absent))),
            misfits,
            instants,
            undecided,
            elsewhere: integers(rows.elsewhere),
            rejected: rows.rejected.into_iter().map(|(line, why)| (line, why.reason, why.column)).collect(),
            undefined: rows
                .undefined
                .into_iter()
                .map(|field| (field.within, field.key, field.kind.name(), field.count, field.line))
                .collect(),
            is_cut: rows.is_cut,
        }
    }
}

/// Column, path of a part below it, places of the part and of those around it among the parts of each level, places of
/// values in the array of the part, and their rows.
type Part = (usize, String, Vec<usize>, ArrowArray, ArrowArray);

fn part_of(column: usize, path: &str, places: &[usize], rows: Vec<i64>, entries: Vec<i64>) -> Part {
    let rows = integers(rows);
    let entries = if entries.is_empty() { rows.clone() } else { integers(entries) };
    (column, path.to_owned(), places.to_vec(), entries, rows)
}

fn integers(values: Vec<i64>) -> ArrowArray {
    ArrowArray(Arc::new(Int64Array::from(values)))
}

/// An array that pyarrow takes over without a copy, by `pa.array`.
#[pyclass(frozen)]
#[derive(Clone)]
struct ArrowArray(ArrayRef);

#[pymethods]
impl ArrowArray {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema; // The interface leaves other types to the consumer.
        let (array, schema) = to_ffi(&self.0.to_data()).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok((
            PyCapsule::new(py, schema, Some(c"arrow_schema".to_owned()))?,
            PyCapsule::new(py, array, Some(c"arrow_array".to_owned()))?,
        ))
    }
}

/// The sum of the fingerprints of rows, modulo 2^64. Each column is an Arrow array with its id and the ids of its parts,
/// each before the ids of its own parts.
#[pyfunction(name = "fingerprint")]
fn fingerprint_of(py: Python<'_>, columns: Vec<(Bound<'_, PyAny>, Vec<u64>)>, row_count: usize) -> PyResult<u64> {
    let columns = columns.into_iter().map(|(array, ids)| Ok((imported(&array)?, ids))).collect::<PyResult<Vec<_>>>()?;
    py.detach(|| guarded(|| fingerprint(&columns, row_count)))?
        .map_err(|unknown| PyTypeError::new_err(format!("no fingerprint of {}", unknown.0)))
}

fn imported(object: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        object.call_method0("__arrow_c_array__")?.extract()?;
    if schema.name()? != Some(c"arrow_schema") || array.name()? != Some(c"arrow_array") {
        return Err(PyTypeError::new_err("no Arrow array"));
    }
    // SAFETY: capsules of these names hold these structures, by Arrow's PyCapsule interface. The array moves out of its
    // capsule, which then holds a released one.
    let data = unsafe {
        let schema = FFI_ArrowSchema::from_raw(schema.pointer().cast());
        let array = FFI_ArrowArray::from_raw(array.pointer().cast());
        from_ffi(array, &schema)
    };
    // Arrow may lay out decimals at any eighth byte, such as in a mapped file. Rust needs every sixteenth.
    let aligned = data.map(|mut data| {
        data.align_buffers();
        data
    });
    guarded(|| aligned.and_then(|data| arrays::array_of(&data, 0, data.len())))?
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Turns a panic into an exception, so that Python can read the block its own way.
fn guarded<T>(work: impl FnOnce() -> T) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| PyRuntimeError::new_err(message_of(&*panic)))
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the compiled reader panicked: {}", text.unwrap_or("no message"))
}

fn column_type(kind: &Bound<'_, PyTuple>) -> PyResult<ColumnType> {
    match nested::shape_of(kind)? {
        Some(shape) => Ok(ColumnType::Nested(shape)),
        None => Ok(ColumnType::Flat(type_of(kind)?)),
    }
}

fn type_of(kind: &Bound<'_, PyTuple>) -> PyResult<Type> {
    let name: String = kind.get_item(0)?.extract()?;
    let number = |place: usize| kind.get_item(place)?.extract::<i64>();
    let length = || kind.get_item(1)?.extract::<usize>();
    let times = || {
        let unit = match kind.get_item(2)?.extract::<String>()?.as_str() {
            "seconds" => Unit::Seconds,
            "milliseconds" => Unit::Milliseconds,
            "microseconds" => Unit::Microseconds,
            other => return Err(PyValueError::new_err(format!("no unit of times: {other}"))),
        };
        Ok(TimeOptions { offset: number(1)?, unit })
    };
    Ok(match name.as_str() {
        "text" => Type::Text { length: length()? },
        "json" => Type::Json { length: length()? },
        "boolean" => Type::Boolean,
        "int16" => Type::Int16,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "float32" => Type::Float32,
        "float64" => Type::Float64,
        "decimal" => Type::Decimal { precision: kind.get_item(1)?.extract()?, scale: kind.get_item(2)?.extract()? },
        "timestamp" => Type::Timestamp(times()?),
        "date" => Type::Date(times()?),
        other => return Err(PyValueError::new_err(format!("no type: {other}"))),
    })
}

fn source_of(source: &Bound<'_, PyTuple>, slots: &HashMap<Vec<u8>, usize>, paths: &mut Paths) -> PyResult<Source> {
    match source.get_item(0)?.extract::<String>()?.as_str() {
        "line" => Ok(Source::LineNumber),
        "outer" => Ok(Source::Outer(source.get_item(1)?.extract()?)),
        "rest" => Ok(Source::Collected(Collected::Rest)),
        "pattern" => Ok(Source::Collected(Collected::Matched(source.get_item(1)?.extract()?))),
        "shared" => Ok(Source::Shared(source.get_item(1)?.extract::<String>()?.into_bytes())),
        "key" => {
            let key: String = source.get_item(1)?.extract()?;
            let slot = *slots.get(key.as_bytes()).ok_or_else(|| PyValueError::new_err(format!("no owner of {key}")))?;
            let steps: Vec<_> = source.get_item(2)?.try_iter()?.map(|step| step_of(&step?)).collect::<PyResult<_>>()?;
            Ok(if steps.is_empty() { Source::Key(slot) } else { Source::Inside(paths.add(slot, steps)) })
        }
        other => Err(PyValueError::new_err(format!("no source: {other}"))),
    }
}

/// Key and steps to the value of a line, values of the table, and whether they are those of all other tables instead.
type Share<'py> = (String, Vec<Bound<'py, PyAny>>, Vec<String>, bool);

fn route_of((key, steps, values, otherwise): Share<'_>) -> PyResult<Route> {
    let steps = steps.iter().map(step_of).collect::<PyResult<_>>()?;
    let values = values.into_iter().map(String::into_bytes).collect();
    Ok(Route::new(key.into_bytes(), steps, values, otherwise))
}

fn step_of(step: &Bound<'_, PyAny>) -> PyResult<Step> {
    match step.extract::<usize>() {
        Ok(place) => Ok(Step::Place(place)),
        Err(_) => Ok(Step::Key(step.extract::<String>()?.into_bytes())),
    }
}

/// Counts the line ends of a block.
#[pyfunction]
fn count_line_ends(py: Python<'_>, data: &[u8]) -> usize {
    py.detach(|| memchr_iter(b'\n', data).count())
}

#[pymodule]
fn prism_kernel(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SEAM", SEAM)?;
    module.add_class::<Reader>()?;
    module.add_class::<documents::DocumentScanner>()?;
    module.add_class::<parquet::ParquetInputs>()?;
    module.add_class::<text_lines::TextDivider>()?;
    module.add_function(wrap_pyfunction!(count_line_ends, module)?)?;
    module.add_function(wrap_pyfunction!(fingerprint_of, module)?)
}

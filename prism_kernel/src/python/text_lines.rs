//! The divider of text lines for Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{guarded, integers, ArrowArray};
use crate::text_lines::{Divided, TextDivider as Divider, TextFormat};

/// Divides blocks of text lines.
#[pyclass(frozen)]
pub struct TextDivider(Divider);

#[pymethods]
impl TextDivider {
    /// `signs` are delimiter, quote and escape; `fields` are names in order, each with whether the table reads it.
    #[new]
    fn new(signs: (u8, Option<u8>, Option<u8>), nulls: Vec<String>, fields: Vec<(String, bool)>) -> Self {
        let (delimiter, quote, escape) = signs;
        let nulls = nulls.into_iter().map(String::into_bytes).collect();
        TextDivider(Divider::new(TextFormat { delimiter, quote, escape, nulls }, fields))
    }

    /// Divides whole lines; `first_line` is the number of the first one, and lines before `from` are no records.
    fn divide(&self, py: Python<'_>, data: &[u8], first_line: i64, from: i64) -> PyResult<DividedLines> {
        py.detach(|| guarded(|| self.0.divide(data, first_line, from))).map(DividedLines)
    }
}

/// The lines of a block; see `text_lines.rs`.
#[pyclass(frozen)]
pub struct DividedLines(Divided);

#[pymethods]
impl DividedLines {
    #[getter]
    fn json<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.json)
    }

    #[getter]
    fn starts(&self) -> ArrowArray {
        integers(self.0.starts.clone())
    }

    #[getter]
    fn ends(&self) -> ArrowArray {
        integers(self.0.ends.clone())
    }

    #[getter]
    fn numbers(&self) -> ArrowArray {
        integers(self.0.numbers.clone())
    }

    /// Position of a line, and why it has no fields.
    #[getter]
    fn broken(&self) -> Vec<(usize, &'static str)> {
        self.0.broken.iter().map(|(place, why)| (*place, why.reason())).collect()
    }
}

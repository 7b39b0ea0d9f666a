//! The scanner of documents for Python.

use std::sync::Mutex;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use super::{guarded, integers, ArrowArray};
use crate::documents::{DocumentScanner as Scanner, OuterValue, Row, Scan as Found};

/// Finds the records of documents, buffer after buffer.
#[pyclass(frozen)]
pub struct DocumentScanner(Mutex<Scanner>);

impl DocumentScanner {
    fn with<T>(&self, work: impl FnOnce(&mut Scanner) -> T) -> PyResult<T> {
        let mut scanner = self.0.lock().map_err(|_| PyRuntimeError::new_err("an earlier call panicked"))?;
        guarded(|| work(&mut scanner))
    }
}

#[pymethods]
impl DocumentScanner {
    /// `steps` are keys on the way to the records, and None for every element; `outer` are (step, key).
    #[new]
    fn new(steps: Vec<Option<String>>, outer: Vec<(usize, String)>) -> Self {
        let steps = steps.into_iter().map(|step| step.map(String::into_bytes)).collect();
        let outer = outer.into_iter().map(|(step, key)| (step, key.into_bytes())).collect();
        DocumentScanner(Mutex::new(Scanner::new(steps, outer)))
    }

    fn scan(&self, py: Python<'_>, buffer: &[u8], at: usize) -> PyResult<Scan> {
        py.detach(|| self.with(|scanner| scanner.scan(buffer, at))).map(Scan)
    }

    fn finish(&self, end: i64) -> PyResult<Scan> {
        self.with(|scanner| scanner.finish(end)).map(Scan)
    }

    fn keep_from(&self, end: i64) -> PyResult<i64> {
        self.with(|scanner| scanner.keep_from(end))
    }

    fn let_go(&self, end: i64) -> PyResult<()> {
        self.with(|scanner| scanner.let_go(end))
    }

    fn moved(&self, count: i64) -> PyResult<()> {
        self.with(|scanner| scanner.moved(count))
    }

    fn resume(&self) -> PyResult<()> {
        self.with(Scanner::resume)
    }

    fn abandon<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        rows_of(py, &self.with(|scanner| scanner.abandon())?)
    }

    #[getter]
    fn held(&self) -> PyResult<u8> {
        self.with(|scanner| scanner.held as u8)
    }

    #[getter]
    fn hold(&self) -> PyResult<i64> {
        self.with(|scanner| scanner.hold)
    }

    #[getter]
    fn indent<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.with(|scanner| scanner.indent.as_deref().map(|indent| PyBytes::new(py, indent)))
    }
}

/// What a buffer holds; see `documents.rs`.
#[pyclass(frozen)]
pub struct Scan(Found);

#[pymethods]
impl Scan {
    #[getter]
    fn starts(&self) -> ArrowArray {
        integers(self.0.starts.clone())
    }

    #[getter]
    fn ends(&self) -> ArrowArray {
        integers(self.0.ends.clone())
    }

    #[getter]
    fn flags(&self) -> ArrowArray {
        integers(self.0.flags.clone())
    }

    /// (step, values); a value is bytes, None for a missing one, 1 for a doubled one, or 2 for one that is too long.
    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        rows_of(py, &self.0.rows)
    }

    #[getter]
    fn begun(&self) -> Vec<(usize, usize)> {
        self.0.begun.clone()
    }

    #[getter]
    fn settled(&self) -> i64 {
        self.0.settled
    }

    #[getter]
    fn is_damaged(&self) -> bool {
        self.0.is_damaged
    }

    #[getter]
    fn stopped(&self) -> usize {
        self.0.stopped
    }

    #[getter]
    fn lines<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.lines)
    }
}

fn rows_of<'py>(py: Python<'py>, rows: &[Row]) -> PyResult<Bound<'py, PyList>> {
    let written = |value: &OuterValue| -> PyResult<Py<PyAny>> {
        Ok(match value {
            OuterValue::Missing => py.None(),
            OuterValue::Found(text) => PyBytes::new(py, text).into_any().unbind(),
            OuterValue::Doubled => 1u8.into_pyobject(py)?.into_any().unbind(),
            OuterValue::TooLong => 2u8.into_pyobject(py)?.into_any().unbind(),
        })
    };
    let rows = rows
        .iter()
        .map(|(step, values)| Ok((*step, values.iter().map(written).collect::<PyResult<Vec<_>>>()?)))
        .collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, rows)
}

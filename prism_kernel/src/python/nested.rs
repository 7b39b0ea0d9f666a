//! Types of nested columns, as Python describes them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::type_of;
use crate::columns::Type;
use crate::nested::{Member, Named, Part, Shape, Shaper};

/// Key, name, name in objects, id, place in the table file, and type.
type Described<'py> = (String, String, String, i64, usize, Bound<'py, PyTuple>);

/// The shape of a struct, a list or a map; None for other types.
pub fn shape_of(kind: &Bound<'_, PyTuple>) -> PyResult<Option<Shape>> {
    let mut shaper = Shaper::default();
    Ok(level_of(kind, &mut shaper)?.map(|root| shaper.shape(root)))
}

fn level_of(kind: &Bound<'_, PyTuple>, shaper: &mut Shaper) -> PyResult<Option<Part>> {
    let name: String = kind.get_item(0)?.extract()?;
    if !matches!(name.as_str(), "struct" | "list" | "map") {
        return Ok(None);
    }
    let mut parts: Vec<Described<'_>> = kind.get_item(1)?.extract()?;
    Ok(Some(match (name.as_str(), parts.len()) {
        ("struct", _) => {
            let mut order: Vec<_> = (0..parts.len()).collect();
            order.sort_by_key(|place| parts[*place].4);
            let fields = parts.into_iter().map(|part| member_of(part, shaper)).collect::<PyResult<_>>()?;
            shaper.of_fields(fields, &order)
        }
        ("list", 1) => {
            let element = member_of(parts.remove(0), shaper)?.named;
            shaper.list(element)
        }
        ("map", 2) => {
            let (_, _, key_name, id, _, key) = parts.remove(0);
            let Type::Text { length } = type_of(&key)? else {
                return Err(PyValueError::new_err("keys of maps are texts"));
            };
            let value = member_of(parts.remove(0), shaper)?.named;
            shaper.map(length, (key_name, id), value)
        }
        _ => return Err(PyValueError::new_err(format!("a {name} with {} parts", parts.len()))),
    }))
}

fn member_of((key, name, stored_name, id, _, kind): Described<'_>, shaper: &mut Shaper) -> PyResult<Member> {
    let part = match level_of(&kind, shaper)? {
        Some(part) => part,
        None => shaper.leaf(type_of(&kind)?),
    };
    Ok(Member { key: key.into_bytes(), name, named: Named { stored_name, id, part } })
}

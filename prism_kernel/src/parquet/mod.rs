//! Columns of many stored Parquet objects, decoded straight into one array each.
//!
//! Only pages as prism_assets stores them are known: version 1 of data pages, plain values or
//! dictionaries, zstd or nothing. Any other page is an error, and Arrow reads the column instead. The caller compares the
//! fingerprint of the rows with the recorded one, so that a wrong value never reaches an object.

mod column;
mod footer;
mod nested;
mod page;
mod sink;
mod thrift;

use std::sync::Arc;

use arrow_array::{Int64Array, UInt8Array};

pub use column::column_of;
pub use footer::{Footer, Key};
pub use nested::{nested_of, Wanted, WantedForm};

/// Why the kernel leaves a column to Arrow.
#[derive(Debug)]
pub struct Refused(pub String);

type Result<T> = std::result::Result<T, Refused>;

fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(Refused(why.into()))
}

/// One row group of an object, and the wanted rows of it in ascending order. `None` stands for all rows.
pub struct Input {
    pub body: UInt8Array,
    pub footer: Arc<Footer>,
    pub group: usize,
    pub rows: Option<Int64Array>,
}

impl Input {
    /// Refuses another number of rows than `row_count`, because a column of nulls claims any number in a few bytes, and
    /// wanted rows that are not ascending. The row groups of an object share its footer: each with its own would take the
    /// square of their number.
    pub fn new(
        body: UInt8Array,
        group: usize,
        row_count: usize,
        rows: Option<Int64Array>,
        before: Option<&Input>,
    ) -> Result<Self> {
        let footer = match before {
            Some(before) if before.body.values().inner().ptr_eq(body.values().inner()) => before.footer.clone(),
            _ => Arc::new(Footer::read(body.values())?),
        };
        let Some(found) = footer.groups.get(group) else { return refused("no such row group") };
        if found.row_count != row_count {
            return refused("the row group has another number of rows");
        }
        if let Some(rows) = &rows {
            let values = rows.values();
            let is_inside = values.first().is_none_or(|first| *first >= 0)
                && values.last().is_none_or(|last| (*last as usize) < found.row_count);
            if !is_inside || !values.windows(2).all(|pair| pair[0] < pair[1]) {
                return refused("the wanted rows are not ascending rows of the row group");
            }
        }
        Ok(Input { body, footer, group, rows })
    }

    fn wanted_count(&self) -> usize {
        self.rows.as_ref().map_or(self.footer.groups[self.group].row_count, |rows| rows.values().len())
    }
}

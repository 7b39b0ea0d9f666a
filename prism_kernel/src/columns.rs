//! Columns under construction, and the Arrow arrays that come out of them.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, StringArray, TimestampMillisecondArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use crate::rules::{self, Misfit, Time};
use crate::scan::{Kind, Marks, Value};
use crate::text::unescape;
use crate::times::TimeOptions;

/// The type of a column without parts, or of a leaf of a nested column.
#[derive(Clone, Debug)]
pub enum Type {
    Text { length: usize },
    Json { length: usize },
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    Decimal { precision: u8, scale: i8 },
    Timestamp(TimeOptions),
    Date(TimeOptions),
}

/// Columns make room in advance for lines of at least this many bytes.
const SHORT_LINE: usize = 64;

enum Values {
    Text { offsets: Vec<i32>, bytes: Vec<u8> },
    Boolean(Vec<bool>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>),
}

impl Values {
    fn of(kind: &Type) -> Self {
        match kind {
            Type::Text { .. } | Type::Json { .. } => Values::Text { offsets: vec![0], bytes: Vec::new() },
            Type::Boolean => Values::Boolean(Vec::new()),
            Type::Int16 => Values::Int16(Vec::new()),
            Type::Int32 | Type::Date(_) => Values::Int32(Vec::new()),
            Type::Int64 | Type::Timestamp(_) => Values::Int64(Vec::new()),
            Type::Float32 => Values::Float32(Vec::new()),
            Type::Float64 => Values::Float64(Vec::new()),
            Type::Decimal { .. } => Values::Decimal(Vec::new()),
        }
    }

    /// Fills the place of a null. A text that was begun ends here.
    #[inline(always)]
    fn fill(&mut self) {
        match self {
            Values::Text { offsets, bytes } => offsets.push(bytes.len() as i32),
            Values::Boolean(values) => values.push(false),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) => values.push(0),
            Values::Int64(values) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal(values) => values.push(0),
        }
    }
}

/// Rows of a column that wait for Python, with the value of each.
#[derive(Default)]
pub struct Pending<T> {
    pub rows: Vec<i64>,
    pub values: Vec<T>,
    /// The places of the values in the array of their leaf, if lists or maps are around it. Else these are the rows.
    pub entries: Vec<i64>,
}

impl<T> Pending<T> {
    fn push(&mut self, row: i64, value: T) {
        self.rows.push(row);
        self.values.push(value);
    }
}

pub struct ColumnBuilder {
    kind: Type,
    values: Values,
    rows: usize,
    /// Whether rows have values, up to the last null.
    valid: Vec<bool>,
    scratch: Vec<u8>,
    notes: Notes,
}

impl ColumnBuilder {
    pub fn new(kind: &Type) -> Self {
        ColumnBuilder {
            kind: kind.clone(),
            values: Values::of(kind),
            rows: 0,
            valid: Vec::new(),
            scratch: Vec::new(),
            notes: Notes::default(),
        }
    }

    /// Makes room for the rest of a block. The rows so far come from `part` of `whole` bytes.
    pub fn reserve(&mut self, part: usize, whole: usize) {
        let rest = whole - part;
        // A sixteenth more, because texts may get longer.
        let more = |count: usize| (count as f64 / part as f64 * rest as f64 * 17.0 / 16.0) as usize;
        let rows = more(self.rows).min(rest / SHORT_LINE);
        match &mut self.values {
            Values::Text { offsets, bytes } => {
                offsets.reserve(rows);
                bytes.reserve(more(bytes.len()));
            }
            Values::Boolean(values) => values.reserve(rows),
            Values::Int16(values) => values.reserve(rows),
            Values::Int32(values) => values.reserve(rows),
            Values::Int64(values) => values.reserve(rows),
            Values::Float32(values) => values.reserve(rows),
            Values::Float64(values) => values.reserve(rows),
            Values::Decimal(values) => values.reserve(rows),
        }
    }

    /// Adds the value of the next row.
    #[inline(always)]
    pub fn push(&mut self, value: &Value) {
        if value.kind == Kind::Null {
            self.null();
            return;
        }
        match self.store(value) {
            Ok(true) => self.rows += 1,
            Ok(false) => self.null(),
            Err(misfit) => {
                self.notes.misfits[misfit as usize].push(self.rows as i64);
                if misfit == Misfit::Cut {
                    self.values.fill();
                    self.rows += 1;
                } else {
                    self.null();
                }
            }
        }
    }

    #[inline(always)]
    fn null(&mut self) {
        self.values.fill();
        self.valid.resize(self.rows, true);
        self.valid.push(false);
        self.rows += 1;
    }

    /// Stores a value; false if it waits for Python and is null till then.
    #[inline(always)]
    fn store(&mut self, value: &Value) -> Result<bool, Misfit> {
        if let Values::Text { offsets, bytes } = &mut self.values {
            match self.kind {
                Type::Json { length } => rules::append_json(value, length, bytes)?,
                Type::Text { length } => rules::append_text(value, length, bytes)?,
                _ => unreachable!("only texts are stored as texts"),
            }
            offsets.push(bytes.len() as i32);
            return Ok(true);
        }
        let mut text = value.raw;
        if value.kind == Kind::Text {
            text = value.content();
            if value.marks.has(Marks::ESCAPES) {
                self.scratch.clear();
                unescape(text, &mut self.scratch);
                text = &self.scratch;
            }
        }
        let row = self.rows as i64;
        match (&mut self.values, &self.kind) {
            (Values::Boolean(values), _) => values.push(rules::boolean(value, text)?),
            (Values::Int16(values), _) => values.push(rules::whole(value, text)?),
            (Values::Float32(values), _) => values.push(rules::single(value, text)?),
            (Values::Float64(values), _) => values.push(rules::float(value, text)?),
            (Values::Int32(values), Type::Int32) => values.push(rules::whole(value, text)?),
            (Values::Int64(values), Type::Int64) => values.push(rules::whole(value, text)?),
            (Values::Decimal(values), Type::Decimal { precision, scale }) => {
                values.push(rules::decimal(value, text, *precision, *scale)?);
            }
            (Values::Int64(values), Type::Timestamp(options)) => match rules::timestamp(value, text, *options)? {
                Time::Milliseconds(instant) => values.push(instant),
                _ => return Ok(self.leave_undecided(row, value)),
            },
            (Values::Int32(values), Type::Date(options)) => match rules::date(value, text, *options)? {
                Time::Day(day) => values.push(day),
                Time::DayOf(instant) => {
                    self.notes.instants.push(row, instant);
                    return Ok(false);
                }
                _ => return Ok(self.leave_undecided(row, value)),
            },
            _ => unreachable!("each type has its values"),
        }
        Ok(true)
    }

    #[cold]
    fn leave_undecided(&mut self, row: i64, value: &Value) -> bool {
        let mut text = Vec::new();
        unescape(value.content(), &mut text);
        self.notes.undecided.push(row, String::from_utf8_lossy(&text).into_owned());
        false
    }

    /// Whether the column has more text than 32 bits can count.
    pub fn is_full(&self) -> bool {
        matches!(&self.values, Values::Text { bytes, .. } if i32::try_from(bytes.len()).is_err())
    }

    /// The array of all values, and the rows that are not stored as they were written.
    pub fn finish(self) -> Result<Column, ArrowError> {
        if self.is_full() {
            return Err(ArrowError::InvalidArgumentError("a column with more than 2 GiB of text".to_owned()));
        }
        let mut valid = self.valid;
        let nulls = (!valid.is_empty()).then(|| {
            valid.resize(self.rows, true);
            NullBuffer::new(BooleanBuffer::from(valid))
        });
        let array: ArrayRef = match (self.values, &self.kind) {
            (Values::Text { offsets, bytes }, _) => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let bytes = Buffer::from_vec(bytes);
                // SAFETY: the offsets grow and end at the length of the bytes, which 32 bits can count. The bytes are pieces of lines that
                // were checked to be UTF-8, cut at characters only, and characters that escapes stand for.
                Arc::new(unsafe { StringArray::new_unchecked(offsets, bytes, nulls) })
            }
            (Values::Boolean(values), _) => Arc::new(BooleanArray::new(BooleanBuffer::from(values), nulls)),
            (Values::Int16(values), _) => Arc::new(Int16Array::try_new(values.into(), nulls)?),
            (Values::Float32(values), _) => Arc::new(Float32Array::try_new(values.into(), nulls)?),
            (Values::Float64(values), _) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
            (Values::Int32(values), Type::Date(_)) => Arc::new(Date32Array::try_new(values.into(), nulls)?),
            (Values::Int32(values), _) => Arc::new(Int32Array::try_new(values.into(), nulls)?),
            (Values::Int64(values), Type::Timestamp(_)) => {
                Arc::new(TimestampMillisecondArray::try_new(values.into(), nulls)?.with_timezone("UTC"))
            }
            (Values::Int64(values), _) => Arc::new(Int64Array::try_new(values.into(), nulls)?),
            (Values::Decimal(values), Type::Decimal { precision, scale }) => {
                let array = Decimal128Array::try_new(values.into(), nulls)?;
                Arc::new(array.with_precision_and_scale(*precision, *scale)?)
            }
            (Values::Decimal(_), _) => unreachable!("only decimals are stored as decimals"),
        };
        Ok(Column { array, notes: vec![self.notes] })
    }
}

/// Rows of a column, or of a part of one, that are not stored as they were written.
#[derive(Default)]
pub struct Notes {
    /// The path of the part below its column, such as `.id` or `[].sku`.
    pub path: String,
    /// The places of the part and of the parts around it, among the parts of each level.
    pub places: Vec<usize>,
    /// Rows by `Misfit`.
    pub misfits: [Vec<i64>; Misfit::ALL.len()],
    /// Instants whose day in the table's zone is wanted.
    pub instants: Pending<i64>,
    /// Texts that only the exact rule in Python can judge.
    pub undecided: Pending<String>,
}

/// A finished column of a block.
pub struct Column {
    pub array: ArrayRef,
    pub notes: Vec<Notes>,
}

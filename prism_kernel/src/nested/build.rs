//! Nested columns under construction.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, Field, FieldRef, Fields};

use super::tape::{Level, Tape};
use super::{Map, Named, Part, Shape, Struct};
use crate::columns::{Column, ColumnBuilder, Notes};
use crate::rules::Misfit;

/// The key of ids in the metadata of fields, as Arrow reads and writes them in Parquet.
const FIELD_ID: &str = "PARQUET:field_id";

/// Structs, lists or maps of one place in a type.
#[derive(Default)]
struct LevelBuilder {
    valid: Vec<bool>,
    has_nulls: bool,
    /// The elements of all lists so far.
    held: usize,
    /// Where lists end.
    ends: Vec<i32>,
    /// Rows of the column, by `Misfit`, each once.
    misfits: [Vec<i64>; Misfit::ALL.len()],
}

impl LevelBuilder {
    #[inline(always)]
    fn push(&mut self, level: Level, row: i64) {
        let is_held = matches!(level, Level::Held(_));
        self.valid.push(is_held);
        self.has_nulls |= !is_held;
        match level {
            Level::Held(count) => self.held += count as usize,
            Level::Null => {}
            Level::Misfit(misfit) => {
                let rows = &mut self.misfits[misfit as usize];
                if rows.last() != Some(&row) {
                    rows.push(row);
                }
            }
        }
        self.ends.push(self.held as i32);
    }

    fn nulls(&mut self) -> Option<NullBuffer> {
        let valid = std::mem::take(&mut self.valid);
        self.has_nulls.then(|| NullBuffer::new(BooleanBuffer::from(valid)))
    }

    fn offsets(&mut self) -> Result<OffsetBuffer<i32>, ArrowError> {
        if i32::try_from(self.held).is_err() {
            return Err(ArrowError::InvalidArgumentError("a column with too many elements".to_owned()));
        }
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        offsets.append(&mut self.ends);
        Ok(OffsetBuffer::new(ScalarBuffer::from(offsets)))
    }
}

pub struct NestedBuilder<'a> {
    shape: &'a Shape,
    leaves: Vec<ColumnBuilder>,
    levels: Vec<LevelBuilder>,
    rows: i64,
    /// The slots of all elements and entries.
    pub slots: usize,
    /// The slots of a row without those.
    slots_of_row: usize,
    /// Rows whose value was too large.
    too_large: Vec<i64>,
}

impl<'a> NestedBuilder<'a> {
    pub fn new(shape: &'a Shape) -> Self {
        NestedBuilder {
            shape,
            leaves: shape.leaves.iter().map(ColumnBuilder::new).collect(),
            levels: shape.levels.iter().map(|_| LevelBuilder::default()).collect(),
            rows: 0,
            slots: 0,
            slots_of_row: shape.root.slots(),
            too_large: Vec::new(),
        }
    }

    /// Adds the value of the next row, whose leaves lie in a text.
    pub fn push(&mut self, tape: &Tape, text: &[u8]) {
        let mut slots = 0;
        for (builder, levels) in self.levels.iter_mut().zip(&tape.levels) {
            slots += levels.len();
            levels.iter().for_each(|level| builder.push(*level, self.rows));
        }
        for (builder, leaves) in self.leaves.iter_mut().zip(&tape.leaves) {
            slots += leaves.len();
            leaves.iter().for_each(|leaf| builder.push(&leaf.value(text)));
        }
        self.slots += slots - self.slots_of_row;
        if tape.is_too_large {
            self.too_large.push(self.rows);
        }
        self.rows += 1;
    }

    /// Makes room for the rest of a block, as columns do.
    pub fn reserve(&mut self, part: usize, whole: usize) {
        self.leaves.iter_mut().for_each(|leaf| leaf.reserve(part, whole));
    }

    /// Whether the column has more text or elements than 32 bits can count.
    pub fn is_full(&self) -> bool {
        let has_too_many = |level: &LevelBuilder| i32::try_from(level.held).is_err();
        self.leaves.iter().any(ColumnBuilder::is_full) || self.levels.iter().any(has_too_many)
    }

    pub fn finish(self) -> Result<Column, ArrowError> {
        let mut finishing = Finishing {
            leaves: self.leaves.into_iter().map(Some).collect(),
            levels: self.levels,
            above: Vec::new(),
            places: Vec::new(),
            notes: Vec::new(),
        };
        let array = finishing.array(&self.shape.root, "")?;
        let mut misfits: [Vec<i64>; Misfit::ALL.len()] = Default::default();
        misfits[Misfit::TooLong as usize] = self.too_large;
        finishing.notes.push(Notes { misfits, ..Notes::default() });
        Ok(Column { array, notes: finishing.notes })
    }
}

/// Makes arrays from the outside in.
struct Finishing {
    leaves: Vec<Option<ColumnBuilder>>,
    levels: Vec<LevelBuilder>,
    /// Where the lists around the current part begin and end, the outermost first.
    above: Vec<OffsetBuffer<i32>>,
    /// The places of the current part and of the parts around it, among the parts of each level.
    places: Vec<usize>,
    notes: Vec<Notes>,
}

impl Finishing {
    fn array(&mut self, part: &Part, path: &str) -> Result<ArrayRef, ArrowError> {
        match part {
            Part::Leaf(place) => self.leaf(*place, path),
            Part::Struct(of) => self.of_fields(of, path),
            Part::List(level, element) => self.list(*level, element, path),
            Part::Map(of) => self.map(of, path),
        }
    }

    fn leaf(&mut self, place: usize, path: &str) -> Result<ArrayRef, ArrowError> {
        let Some(builder) = self.leaves[place].take() else { unreachable!("each leaf is one part") };
        let Column { array, notes } = builder.finish()?;
        for mut note in notes {
            if !self.above.is_empty() {
                note.instants.entries.clone_from(&note.instants.rows);
                note.undecided.entries.clone_from(&note.undecided.rows);
            }
            for rows in note.misfits.iter_mut().chain([&mut note.instants.rows, &mut note.undecided.rows]) {
                self.to_rows(rows);
            }
            note.misfits.iter_mut().for_each(Vec::dedup);
            note.path = path.to_owned();
            note.places.clone_from(&self.places);
            self.notes.push(note);
        }
        Ok(array)
    }

    /// Replaces places among the values of the current part by the rows of the column.
    fn to_rows(&self, places: &mut [i64]) {
        for offsets in self.above.iter().rev() {
            for place in places.iter_mut() {
                *place = offsets.partition_point(|start| i64::from(*start) <= *place) as i64 - 1;
            }
        }
    }

    fn note_level(&mut self, level: usize, path: &str) {
        let misfits = std::mem::take(&mut self.levels[level].misfits);
        self.notes.push(Notes { path: path.to_owned(), misfits, ..Notes::default() });
    }

    fn below(&mut self, place: usize, named: &Named, path: &str) -> Result<(FieldRef, ArrayRef), ArrowError> {
        self.places.push(place);
        let array = self.array(&named.part, path)?;
        self.places.pop();
        Ok((field(&named.stored_name, named.id, &array, true), array))
    }

    fn of_fields(&mut self, of: &Struct, path: &str) -> Result<ArrayRef, ArrowError> {
        self.note_level(of.level, path);
        let nulls = self.levels[of.level].nulls();
        let members = of.fields.iter().enumerate();
        let parts = members.map(|(place, field)| self.below(place, &field.named, &format!("{path}.{}", field.name)));
        let (fields, arrays): (Vec<_>, Vec<_>) = parts.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok(Arc::new(StructArray::try_new(Fields::from(fields), arrays, nulls)?))
    }

    fn list(&mut self, level: usize, element: &Named, path: &str) -> Result<ArrayRef, ArrowError> {
        self.note_level(level, path);
        let nulls = self.levels[level].nulls();
        self.above.push(self.levels[level].offsets()?);
        let (field, array) = self.below(0, element, &format!("{path}[]"))?;
        let Some(offsets) = self.above.pop() else { unreachable!("the offsets were pushed") };
        Ok(Arc::new(ListArray::try_new(field, offsets, array, nulls)?))
    }

    fn map(&mut self, of: &Map, path: &str) -> Result<ArrayRef, ArrowError> {
        let inside = format!("{path}{{}}");
        // A key that is too long counts for the values.
        let too_long = std::mem::take(&mut self.levels[of.level].misfits[Misfit::TooLong as usize]);
        self.note_level(of.level, path);
        let mut misfits: [Vec<i64>; Misfit::ALL.len()] = Default::default();
        misfits[Misfit::TooLong as usize] = too_long;
        self.notes.push(Notes { path: inside.clone(), misfits, ..Notes::default() });
        let nulls = self.levels[of.level].nulls();
        self.above.push(self.levels[of.level].offsets()?);
        let keys = self.leaf(of.key, path)?;
        let (value, values) = self.below(1, &of.value, &inside)?;
        let Some(offsets) = self.above.pop() else { unreachable!("the offsets were pushed") };
        let (name, id) = &of.key_name;
        let fields = Fields::from(vec![field(name, *id, &keys, false), value]);
        let entries = StructArray::try_new(fields.clone(), vec![keys, values], None)?;
        let entry = Field::new_struct("entries", fields, false);
        Ok(Arc::new(MapArray::try_new(Arc::new(entry), offsets, entries, nulls, false)?))
    }
}

fn field(name: &str, id: i64, array: &ArrayRef, is_nullable: bool) -> FieldRef {
    let metadata = HashMap::from([(FIELD_ID.to_owned(), id.to_string())]);
    Arc::new(Field::new(name, array.data_type().clone(), is_nullable).with_metadata(metadata))
}

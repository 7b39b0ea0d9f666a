//! Nested columns of all inputs: each leaf in one array, and the structs, lists and maps around the leaves from their
//! levels (Dremel, Melnik and others, 2010).
//!
//! Parts are matched by id. A part that an input lacks is null in its rows.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, ListArray, MapArray, NullArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::column::{each_page, joined, text_bytes, Join, JoinedColumn};
use super::footer::{Form, Key, Leaf, Node};
use super::page::{codes_of, levels_of, Encoding, Page, Unpacker};
use super::sink::{Sink, Value};
use super::{refused, Input, Result};

/// The key of ids in the metadata of fields, as Arrow reads and writes them in Parquet.
const FIELD_ID: &str = "PARQUET:field_id";

/// The most levels of a page. A page claims any number in a few bytes.
const MOST_LEVELS: usize = 1 << 24;

/// A part as the output has it.
pub struct Wanted {
    pub name: String,
    pub id: i64,
    pub form: WantedForm,
}

pub enum WantedForm {
    /// Texts that are `coded` keep a dictionary.
    Leaf {
        coded: bool,
    },
    Struct(Vec<Wanted>),
    List(Box<Wanted>),
    /// The key and the value.
    Map(Box<[Wanted; 2]>),
}

/// The wanted rows of all inputs in one array. None if no input has the column. Inputs without the column have nulls.
pub fn nested_of(inputs: &[Input], wanted: &Wanted) -> Result<Option<ArrayRef>> {
    let key = Key::Id(wanted.id);
    let roots: Vec<_> = inputs.iter().map(|input| input.footer.column_of(&key)).collect::<Result<_>>()?;
    if roots.iter().all(Option::is_none) {
        return Ok(None);
    }
    let mut assembly = Assembly { inputs, levels: Vec::new() };
    let array = assembly.array(wanted, &roots, &[])?;
    let rows: usize = inputs.iter().map(Input::wanted_count).sum();
    if array.len() != rows {
        return refused("a nested column has another number of rows");
    }
    Ok(Some(array))
}

/// The structs, lists or maps of one place in one input.
#[derive(Clone, Default)]
struct Segment {
    valid: Vec<bool>,
    /// How many elements each list has; nothing for structs.
    counts: Vec<u32>,
}

impl Segment {
    fn nulls(count: usize, is_list: bool) -> Self {
        Segment { valid: vec![false; count], counts: vec![0; if is_list { count } else { 0 }] }
    }

    fn elements(&self) -> usize {
        self.counts.iter().map(|count| *count as usize).sum()
    }
}

/// A struct, list or map of the output on the way to the current part.
struct LevelColumn<'a> {
    is_list: bool,
    /// The node of each input that has it.
    nodes: Vec<Option<&'a Node>>,
    /// Found with the first leaf inside.
    segments: Vec<Option<Segment>>,
}

struct Assembly<'a> {
    inputs: &'a [Input],
    levels: Vec<LevelColumn<'a>>,
}

type Nodes<'a> = [Option<&'a Node>];

impl<'a> Assembly<'a> {
    /// The array of a part. `above` has the places of the levels around it, the outermost first.
    fn array(&mut self, wanted: &Wanted, nodes: &Nodes<'a>, above: &[usize]) -> Result<ArrayRef> {
        match &wanted.form {
            WantedForm::Leaf { coded } => self.leaf(*coded, nodes, above),
            WantedForm::Struct(parts) => {
                let below = self.push(nodes, above, false);
                let mut arrays = Vec::with_capacity(parts.len());
                for part in parts {
                    let inside = children(nodes, |form| match form {
                        Form::Struct(fields) => Some(fields.iter().find(|field| field.id == Some(part.id))),
                        _ => None,
                    })?;
                    arrays.push(self.array(part, &inside, &below)?);
                }
                let fields = parts.iter().zip(&arrays).map(|(part, array)| field(part, array, true));
                let (_, nulls) = self.pop()?;
                made(StructArray::try_new(fields.collect::<Fields>(), arrays, nulls))
            }
            WantedForm::List(element) => {
                let below = self.push(nodes, above, true);
                let inside = children(nodes, |form| match form {
                    Form::List(element) => Some(Some(&**element)),
                    _ => None,
                })?;
                let array = self.array(element, &inside, &below)?;
                let (offsets, nulls) = self.pop()?;
                made(ListArray::try_new(field(element, &array, true), offsets, array, nulls))
            }
            WantedForm::Map(parts) => {
                let below = self.push(nodes, above, true);
                let mut arrays = Vec::with_capacity(2);
                for (place, part) in parts.iter().enumerate() {
                    let inside = children(nodes, |form| match form {
                        Form::Map(parts) => Some(Some(&parts[place])),
                        _ => None,
                    })?;
                    arrays.push(self.array(part, &inside, &below)?);
                }
                let fields: Fields =
                    [field(&parts[0], &arrays[0], false), field(&parts[1], &arrays[1], true)].into_iter().collect();
                let (offsets, nulls) = self.pop()?;
                let entries =
                    StructArray::try_new(fields.clone(), arrays, None).or_else(|error| refused(error.to_string()))?;
                let entry = Arc::new(Field::new_struct("entries", fields, false));
                made(MapArray::try_new(entry, offsets, entries, nulls, false))
            }
        }
    }

    fn push(&mut self, nodes: &Nodes<'a>, above: &[usize], is_list: bool) -> Vec<usize> {
        let place = self.levels.len();
        let level = LevelColumn { is_list, nodes: nodes.to_vec(), segments: vec![None; self.inputs.len()] };
        self.levels.push(level);
        above.iter().copied().chain([place]).collect()
    }

    /// Takes the last level: the offsets of its lists, and which are null.
    fn pop(&mut self) -> Result<(OffsetBuffer<i32>, Option<NullBuffer>)> {
        let Some(level) = self.levels.pop() else { return refused("a level is missing") };
        let (mut valid, mut offsets, mut end) = (Vec::new(), vec![0], 0);
        for segment in level.segments {
            let Some(segment) = segment else { return refused("no leaf shows which structs are null") };
            valid.extend_from_slice(&segment.valid);
            for count in segment.counts {
                end += count as usize;
                let Ok(end) = i32::try_from(end) else { return refused("lists have too many elements") };
                offsets.push(end);
            }
        }
        let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
        Ok((OffsetBuffer::new(ScalarBuffer::from(offsets)), nulls))
    }

    fn leaf(&mut self, coded: bool, nodes: &Nodes<'a>, above: &[usize]) -> Result<ArrayRef> {
        let mut places = Vec::with_capacity(nodes.len());
        let mut shared: Option<&DataType> = None;
        for (input, node) in self.inputs.iter().zip(nodes) {
            let Some(node) = node else {
                places.push(None);
                continue;
            };
            let Form::Leaf(place) = node.form else { return refused("a leaf has parts in an input") };
            match (&input.footer.leaves[place].kind, shared) {
                (None, _) => return refused("the type is unknown"),
                (Some(kind), Some(other)) if kind != other => return refused("the inputs have two types"),
                (kind, _) => shared = kind.as_ref(),
            }
            places.push(Some(place));
        }
        let Some(kind) = shared else {
            let mut count = 0;
            for number in 0..self.inputs.len() {
                count += self.missing(number, above)?;
            }
            return Ok(Arc::new(NullArray::new(count)));
        };
        let sizes = self.inputs.iter().zip(&places).filter_map(|(input, place)| {
            let chunk = &input.footer.groups[input.group].chunks[(*place)?];
            Some(if input.rows.is_some() { 0 } else { chunk.value_count })
        });
        let bytes = self.inputs.iter().zip(&places).map(|(input, place)| text_bytes(input, *place)).sum();
        let join = JoinLeaf { assembly: self, places: &places, above };
        let JoinedColumn { values, dictionary } = joined(kind, coded, sizes.sum(), bytes, join)?;
        match dictionary {
            Some(texts) => {
                let codes = arrow_array::cast::AsArray::as_primitive::<Int32Type>(&values).clone();
                made(DictionaryArray::try_new(codes, texts))
            }
            None => Ok(values),
        }
    }

    /// The number of values that a part has in an input that lacks it. Levels around it that are missing, too, are null.
    fn missing(&mut self, number: usize, above: &[usize]) -> Result<usize> {
        let mut count = self.inputs[number].wanted_count();
        for place in above {
            let level = &mut self.levels[*place];
            if level.nodes[number].is_none() && level.segments[number].is_none() {
                level.segments[number] = Some(Segment::nulls(count, level.is_list));
            }
            let Some(segment) = &level.segments[number] else {
                return refused("the first field of a struct is missing in an input");
            };
            if level.is_list {
                count = segment.elements();
            }
        }
        Ok(count)
    }
}

/// The nodes of a part below those of the part around it. `child` returns None for a node of another form.
fn children<'a>(
    nodes: &Nodes<'a>,
    child: impl Fn(&'a Form) -> Option<Option<&'a Node>>,
) -> Result<Vec<Option<&'a Node>>> {
    let below = |node: &Option<&'a Node>| match node {
        None => Ok(None),
        Some(node) => child(&node.form).map_or_else(|| refused("a part has another form in an input"), Ok),
    };
    nodes.iter().map(below).collect()
}

fn field(wanted: &Wanted, array: &ArrayRef, is_nullable: bool) -> FieldRef {
    let metadata = HashMap::from([(FIELD_ID.to_owned(), wanted.id.to_string())]);
    Arc::new(Field::new(&wanted.name, array.data_type().clone(), is_nullable).with_metadata(metadata))
}

fn made<A: Array + 'static>(array: std::result::Result<A, arrow_schema::ArrowError>) -> Result<ArrayRef> {
    Ok(Arc::new(array.or_else(|error| refused(error.to_string()))?))
}

/// Joins one leaf of all inputs, and finds the levels around it where no leaf before has.
struct JoinLeaf<'b, 'a> {
    assembly: &'b mut Assembly<'a>,
    places: &'b [Option<usize>],
    above: &'b [usize],
}

impl Join for JoinLeaf<'_, '_> {
    fn join<S: Sink>(self, mut sink: S) -> Result<JoinedColumn> {
        let (mut first, mut others) = (Unpacker::new(), Unpacker::new());
        let inputs = self.assembly.inputs;
        for (number, (input, place)) in inputs.iter().zip(self.places).enumerate() {
            let Some(place) = place else {
                sink.add_nulls(self.assembly.missing(number, self.above)?);
                continue;
            };
            let leaf = &input.footer.leaves[*place];
            let mut trackers = Trackers::of(self.assembly, number, self.above, leaf)?;
            let mut rows = Rows { wanted: input.rows.as_ref().map(|rows| &rows.values()[..]), row: -1, left: 0 };
            rows.left = input.footer.groups[input.group].chunks[*place].value_count;
            let mut known = Vec::new();
            if rows.left > 0 {
                each_page::<S>(input, *place, &mut first, &mut others, |page, dictionary| {
                    add(page, leaf, &mut rows, &mut trackers, dictionary, &mut known, &mut sink)?;
                    Ok(rows.left == 0)
                })?;
            }
            if rows.row + 1 != input.footer.groups[input.group].row_count as i64 {
                return refused("a nested column has another number of rows");
            }
            for (place, tracker) in trackers.found {
                self.assembly.levels[place].segments[number] = Some(tracker.segment);
            }
        }
        let (values, dictionary) = sink.finish()?;
        Ok(JoinedColumn { values, dictionary })
    }
}

/// The rows that no page has given yet.
struct Rows<'a> {
    /// The wanted ones of them.
    wanted: Option<&'a [i64]>,
    /// The current row.
    row: i64,
    /// The levels to come.
    left: usize,
}

/// Finds the structs or lists of one place from the levels of a leaf inside.
struct Tracker {
    is_list: bool,
    /// The level of definition from which on there is one, null or not.
    exists: u8,
    /// The level of definition from which on it is not null.
    defined: u8,
    /// The lists around it.
    repeated: u8,
    segment: Segment,
}

impl Tracker {
    fn add(&mut self, definitions: &[u8], repetitions: Option<&[u8]>) {
        for (place, definition) in definitions.iter().enumerate() {
            let repetition = repetitions.map_or(0, |repetitions| repetitions[place]);
            if repetition <= self.repeated && *definition >= self.exists {
                self.segment.valid.push(*definition >= self.defined);
                if self.is_list {
                    self.segment.counts.push(u32::from(*definition > self.defined));
                }
            } else if self.is_list && repetition == self.repeated + 1 && *definition > self.defined {
                if let Some(count) = self.segment.counts.last_mut() {
                    *count += 1;
                }
            }
        }
    }
}

struct Trackers {
    found: Vec<(usize, Tracker)>,
    /// The level of definition from which on the leaf has a value, null or not.
    exists: u8,
}

impl Trackers {
    fn of(assembly: &Assembly, number: usize, above: &[usize], leaf: &Leaf) -> Result<Self> {
        let (mut found, mut exists, mut repeated) = (Vec::new(), 0, 0);
        for place in above {
            let level = &assembly.levels[*place];
            let Some(node) = level.nodes[number] else { return refused("a level is missing") };
            if level.segments[number].is_none() {
                let (is_list, defined) = (level.is_list, node.defined);
                found.push((*place, Tracker { is_list, exists, defined, repeated, segment: Segment::default() }));
            }
            if level.is_list {
                (exists, repeated) = (node.defined + 1, repeated + 1);
            }
        }
        if leaf.repeated != repeated {
            return refused("the levels of a leaf are unknown");
        }
        Ok(Trackers { found, exists })
    }
}

fn add<S: Sink>(
    page: &Page,
    leaf: &Leaf,
    rows: &mut Rows,
    trackers: &mut Trackers,
    dictionary: &[S::Value<'_>],
    known: &mut Vec<i32>,
    sink: &mut S,
) -> Result<()> {
    if page.is_dictionary || page.count > rows.left.min(MOST_LEVELS) {
        return refused("a page has an unexpected number of values");
    }
    rows.left -= page.count;
    let mut content = page.content;
    let mut repetitions = match leaf.repeated {
        0 => None,
        most => Some(levels_of(&mut content, page.count, most)?),
    };
    let mut definitions = levels_of(&mut content, page.count, leaf.defined)?;
    let stored = definitions.iter().filter(|level| **level == leaf.defined).count();
    let kept = kept(rows, repetitions.as_deref(), page.count);
    let takes = |place: usize| kept.as_ref().is_none_or(|kept| kept[place]);
    let spread = Spread { definitions: &definitions, defined: leaf.defined, exists: trackers.exists, takes: &takes };
    let valid = spread.valid();
    let validity = valid.contains(&false).then_some(&valid[..]);
    match page.encoding {
        // All lists of the page are empty.
        _ if valid.is_empty() => {}
        Encoding::Plain => {
            let values = spread.over(S::Value::plain(content, stored, leaf.physical)?);
            sink.add(&values, validity)?;
        }
        Encoding::Codes => sink.add_codes(&spread.over(codes_of(content, stored)?), dictionary, known, validity)?,
    }
    if trackers.found.is_empty() {
        return Ok(());
    }
    if let Some(kept) = &kept {
        let mut places = kept.iter();
        definitions.retain(|_| *places.next().unwrap_or(&false));
        let mut places = kept.iter();
        repetitions.iter_mut().for_each(|levels| levels.retain(|_| *places.next().unwrap_or(&false)));
    }
    for (_, tracker) in &mut trackers.found {
        tracker.add(&definitions, repetitions.as_deref());
    }
    Ok(())
}

/// Which levels of a page belong to wanted rows. None if all do.
fn kept(rows: &mut Rows, repetitions: Option<&[u8]>, count: usize) -> Option<Vec<bool>> {
    let Some(mut wanted) = rows.wanted else {
        let begun = repetitions.map_or(count, |levels| levels.iter().filter(|level| **level == 0).count());
        rows.row += begun as i64;
        return None;
    };
    let mut kept = Vec::with_capacity(count);
    for place in 0..count {
        rows.row += i64::from(repetitions.is_none_or(|levels| levels[place] == 0));
        while wanted.first().is_some_and(|row| *row < rows.row) {
            wanted = &wanted[1..];
        }
        kept.push(wanted.first() == Some(&rows.row));
    }
    rows.wanted = Some(wanted);
    Some(kept)
}

/// Where the values of a page belong.
struct Spread<'a> {
    definitions: &'a [u8],
    defined: u8,
    exists: u8,
    takes: &'a dyn Fn(usize) -> bool,
}

impl Spread<'_> {
    fn valid(&self) -> Vec<bool> {
        let levels = self.definitions.iter().enumerate();
        let here = levels.filter(|(place, level)| **level >= self.exists && (self.takes)(*place));
        here.map(|(_, level)| *level == self.defined).collect()
    }

    /// One value for each place in the array of the leaf. Nulls get an empty one.
    fn over<T: Copy + Default>(&self, stored: Vec<T>) -> Vec<T> {
        let mut stored = stored.into_iter();
        let mut found = Vec::with_capacity(self.definitions.len());
        for (place, level) in self.definitions.iter().enumerate() {
            let value = if *level == self.defined { stored.next().unwrap_or_default() } else { T::default() };
            if *level >= self.exists && (self.takes)(place) {
                found.push(value);
            }
        }
        found
    }
}

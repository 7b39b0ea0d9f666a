//! One column of all inputs.

use arrow_array::ArrayRef;
use arrow_schema::DataType;

use super::footer::{Key, Leaf};
use super::page::{codes_of, validity_of, Encoding, Page, Unpacker};
use super::sink::{CodedTexts, Numbers, Sink, Texts, Value};
use super::{refused, Input, Result};

/// Texts of more bytes get 64-bit positions.
const LARGE: usize = 1 << 30;

pub struct JoinedColumn {
    pub values: ArrayRef,
    /// The texts that `values` numbers.
    pub dictionary: Option<ArrayRef>,
}

/// The wanted rows of all inputs in one array. None if no input has the column. Texts that are `coded` keep a
/// dictionary. Inputs without the column have nulls.
pub fn column_of(inputs: &[Input], key: &Key, coded: bool) -> Result<Option<JoinedColumn>> {
    let mut found = Vec::with_capacity(inputs.len());
    let mut shared: Option<&DataType> = None;
    for input in inputs {
        let place = input.footer.place_of(key)?;
        found.push(place);
        let Some(place) = place else { continue };
        match (&input.footer.leaves[place].kind, shared) {
            (None, _) => return refused("the type is unknown"),
            (Some(kind), Some(other)) if kind != other => return refused("the inputs have two types"),
            (kind, _) => shared = kind.as_ref(),
        }
    }
    let Some(kind) = shared else { return Ok(None) };
    let rows = inputs.iter().map(Input::wanted_count).sum();
    let bytes = inputs.iter().zip(&found).map(|(input, place)| text_bytes(input, *place)).sum();
    joined(kind, coded, rows, bytes, JoinColumn { inputs, places: &found }).map(Some)
}

/// Joins the values of all inputs in one sink.
pub trait Join {
    fn join<S: Sink>(self, sink: S) -> Result<JoinedColumn>;
}

/// Joins values of a type, with the sink of the type. `bytes` are about the bytes of texts.
pub fn joined(kind: &DataType, coded: bool, rows: usize, bytes: usize, join: impl Join) -> Result<JoinedColumn> {
    let of = kind.clone();
    match kind {
        DataType::Utf8 if coded => join.join(CodedTexts::new(rows)?),
        DataType::Utf8 if bytes > LARGE => join.join(Texts::<i64>::new(rows, bytes)?),
        DataType::Utf8 => join.join(Texts::<i32>::new(rows, bytes)?),
        DataType::Boolean => join.join(Numbers::<bool>::new(of, rows)?),
        DataType::Int16 => join.join(Numbers::<i16>::new(of, rows)?),
        DataType::Int32 | DataType::Date32 => join.join(Numbers::<i32>::new(of, rows)?),
        DataType::Int64 | DataType::Timestamp(..) => join.join(Numbers::<i64>::new(of, rows)?),
        DataType::Float32 => join.join(Numbers::<f32>::new(of, rows)?),
        DataType::Float64 => join.join(Numbers::<f64>::new(of, rows)?),
        DataType::Decimal128(..) => join.join(Numbers::<i128>::new(of, rows)?),
        _ => refused("the type is unknown"),
    }
}

/// About how many bytes the wanted texts of an input take.
pub fn text_bytes(input: &Input, place: Option<usize>) -> usize {
    let Some(place) = place else { return 0 };
    let group = &input.footer.groups[input.group];
    let all = group.chunks[place].decoded_bytes;
    let share = input.wanted_count() as f64 / group.row_count.max(1) as f64;
    (all as f64 * share) as usize
}

struct JoinColumn<'a> {
    inputs: &'a [Input],
    places: &'a [Option<usize>],
}

impl Join for JoinColumn<'_> {
    fn join<S: Sink>(self, mut sink: S) -> Result<JoinedColumn> {
        let (mut first, mut others) = (Unpacker::new(), Unpacker::new());
        for (input, place) in self.inputs.iter().zip(self.places) {
            match place {
                Some(place) => read(input, *place, &mut sink, &mut first, &mut others)?,
                None => sink.add_nulls(input.wanted_count()),
            }
        }
        let (values, dictionary) = sink.finish()?;
        Ok(JoinedColumn { values, dictionary })
    }
}

fn read<S: Sink>(input: &Input, place: usize, sink: &mut S, first: &mut Unpacker, others: &mut Unpacker) -> Result<()> {
    let group = &input.footer.groups[input.group];
    if group.chunks[place].value_count != group.row_count {
        return refused("the column has another number of rows");
    }
    if group.row_count == 0 {
        return Ok(());
    }
    let leaf = &input.footer.leaves[place];
    let mut rows = Rows { wanted: input.rows.as_ref().map(|rows| &rows.values()[..]), next: 0, end: group.row_count };
    let mut known = Vec::new();
    each_page::<S>(input, place, first, others, |page, dictionary| {
        add(page, leaf, &mut rows, dictionary, &mut known, sink)?;
        Ok(rows.next >= rows.end)
    })
}

/// Hands over the pages of one column with their dictionary, until `add` returns true. The first page may be the
/// dictionary of the others, and keeps its own memory.
pub fn each_page<S: Sink>(
    input: &Input,
    place: usize,
    first: &mut Unpacker,
    others: &mut Unpacker,
    mut add: impl FnMut(&Page, &[S::Value<'_>]) -> Result<bool>,
) -> Result<()> {
    let (leaf, chunk) = (&input.footer.leaves[place], &input.footer.groups[input.group].chunks[place]);
    let Some(mut pages) = input.body.values().get(chunk.pages.clone()) else {
        return refused("the pages are beyond the object");
    };
    let page = first.next(&mut pages, chunk)?;
    let mut dictionary = Vec::new();
    if page.is_dictionary {
        if page.count > chunk.value_count {
            return refused("a dictionary has more values than the column");
        }
        dictionary = S::Value::plain(page.content, page.count, leaf.physical)?;
    } else if add(&page, &[])? {
        return Ok(());
    }
    while !add(&others.next(&mut pages, chunk)?, &dictionary)? {}
    Ok(())
}

/// The rows that no page has given yet.
struct Rows<'a> {
    /// The wanted ones of them.
    wanted: Option<&'a [i64]>,
    next: usize,
    end: usize,
}

fn add<S: Sink>(
    page: &Page,
    leaf: &Leaf,
    rows: &mut Rows,
    dictionary: &[S::Value<'_>],
    known: &mut Vec<i32>,
    sink: &mut S,
) -> Result<()> {
    if page.is_dictionary || page.count == 0 || page.count > rows.end - rows.next {
        return refused("a page has an unexpected number of rows");
    }
    let mut content = page.content;
    let mut valid = validity_of(&mut content, page.count, leaf)?;
    let stored = valid.as_ref().map_or(page.count, |valid| valid.iter().filter(|is_valid| **is_valid).count());
    let start = rows.next as i64;
    rows.next += page.count;
    let wanted = rows.wanted.map(|wanted| {
        let (here, later) = wanted.split_at(wanted.partition_point(|row| *row < rows.next as i64));
        rows.wanted = Some(later);
        here
    });
    match page.encoding {
        Encoding::Plain => {
            let values = spread(S::Value::plain(content, stored, leaf.physical)?, valid.as_deref());
            match wanted {
                Some(wanted) => {
                    valid = valid.map(|valid| picked(&valid, wanted, start));
                    sink.add(&picked(&values, wanted, start), valid.as_deref())
                }
                None => sink.add(&values, valid.as_deref()),
            }
        }
        Encoding::Codes => {
            let mut codes = spread(codes_of(content, stored)?, valid.as_deref());
            if let Some(wanted) = wanted {
                valid = valid.map(|valid| picked(&valid, wanted, start));
                codes = picked(&codes, wanted, start);
            }
            sink.add_codes(&codes, dictionary, known, valid.as_deref())
        }
    }
}

/// One value for each row. Rows without a value get an empty one.
fn spread<T: Copy + Default>(stored: Vec<T>, valid: Option<&[bool]>) -> Vec<T> {
    let Some(valid) = valid else { return stored };
    let mut stored = stored.into_iter();
    valid.iter().map(|is_valid| if *is_valid { stored.next().unwrap_or_default() } else { T::default() }).collect()
}

fn picked<T: Copy>(values: &[T], rows: &[i64], start: i64) -> Vec<T> {
    rows.iter().map(|row| values[(row - start) as usize]).collect()
}

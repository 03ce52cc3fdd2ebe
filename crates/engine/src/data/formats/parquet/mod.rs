//! Read Parquet files with flat columns of numbers, booleans and texts: plain or dictionary
//! encoding, uncompressed or by snappy, gzip or zstd.
//!
//! Written by hand, since the reader of a file from elsewhere must neither panic nor believe the
//! sizes that a header states: all pages together may expand as far as any compressed file may, and
//! no further.

mod codec;
mod page;
mod thrift;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::page::{Physical, Values};
use self::thrift::{Reader, Value};
use super::packed::limit;
use super::{At, FormatError};
use crate::data::{Category, Column, ColumnSpec, Table};

const MAGIC: &[u8] = b"PAR1";

/// What a value costs in memory, at least.
const CELL: u64 = 16;

/// The table of a Parquet file: numbers (of zeros and ones, binary) and categories; nulls and NaN
/// are missing.
pub fn parse(bytes: &[u8], file: &str) -> Result<Table, FormatError> {
    let damaged = |at: usize, problem: &str| FormatError::Damaged {
        file: file.into(),
        at: At::Byte(at as u64),
        format: "Parquet",
        problem: problem.into(),
    };
    if !bytes.starts_with(MAGIC) || bytes.len() < 12 {
        let found =
            String::from_utf8_lossy(&bytes[..bytes.len().min(4)]).escape_default().to_string();
        return Err(FormatError::Magic {
            file: file.into(),
            at: At::Byte(0),
            found: format!("`{found}`"),
            expected: "PAR1".into(),
        });
    }
    let tail = bytes.len() - 8;
    if &bytes[tail + 4..] != MAGIC {
        return Err(damaged(tail + 4, "it does not end in PAR1, so it is cut short"));
    }
    let size = u32::from_le_bytes(bytes[tail..tail + 4].try_into().unwrap_or_default()) as usize;
    let start = tail
        .checked_sub(size)
        .filter(|start| *start >= 4)
        .ok_or_else(|| damaged(tail, "its footer is longer than the file"))?;
    let footer = Reader::new(&bytes[..tail], start)
        .structure()
        .map_err(|(at, problem)| damaged(at, problem))?;
    let leaves = leaves(&footer, start, file)?;
    let rows = footer.field(3).size().unwrap_or(0);
    if rows == 0 || leaves.is_empty() {
        return Err(FormatError::Empty { file: file.into() });
    }
    let mut budget = Budget { left: limit(bytes.len() as u64) };
    let (mut specs, mut columns) = (Vec::new(), Vec::new());
    for (place, leaf) in leaves.iter().enumerate() {
        let complain = |(at, problem): (usize, String)| {
            damaged(at, &format!("column `{}`: {problem}", leaf.name))
        };
        let mut chunks = CellReader { present: Vec::new(), values: Values::none(leaf.physical) };
        for group in footer.field(4).list() {
            let of_group = group.field(3).size().unwrap_or(0);
            let Some(chunk) = group.field(1).list().get(place) else {
                return Err(damaged(start, "a row group lacks a column"));
            };
            let before = chunks.present.len();
            read_chunk(&bytes[..start], chunk.field(3), leaf, of_group, &mut chunks, &mut budget)
                .map_err(|error| match error {
                Refusal::Page(at, problem) => complain((at, problem)),
                Refusal::Expands => FormatError::Expands {
                    file: file.into(),
                    bytes: bytes.len() as u64,
                    limit: limit(bytes.len() as u64),
                },
            })?;
            if chunks.present.len() - before != of_group {
                return Err(damaged(
                    start,
                    "a column chunk has another number of values than its row group has rows",
                ));
            }
        }
        if chunks.present.len() != rows {
            return Err(damaged(start, "the row groups have another number of rows than the file"));
        }
        let (spec, column) = column(leaf, chunks, file)?;
        specs.push(spec);
        columns.push(column);
    }
    Ok(Table::from_columns(file, specs, columns)?)
}

/// A column as the schema has it.
struct Leaf {
    name: String,
    physical: Physical,
    optional: bool,
    /// What a whole number is multiplied by: decimals are whole numbers of this.
    unit: f64,
}

/// The columns of the schema, all directly below its root.
fn leaves(footer: &Value<'_>, start: usize, file: &str) -> Result<Vec<Leaf>, FormatError> {
    let elements = footer.field(2).list();
    let read = |element: &Value<'_>| {
        let name = element.field(4).text().unwrap_or_default();
        let refuse = |found: &str, expected: &str| {
            let (at, found) = (At::Byte(start as u64), format!("column {name}: {found}"));
            Err(FormatError::Field { file: file.into(), at, found, expected: expected.into() })
        };
        if element.field(5).size().unwrap_or(0) > 0 || element.field(3).whole() == Some(2) {
            return refuse("nested values", "a flat column: unnest it, or leave it out");
        }
        let converted = element.field(6).whole();
        let signed = !matches!(converted, Some(11..=14));
        let physical = match element.field(1).whole() {
            Some(0) => Physical::Boolean,
            Some(1) => Physical::Int32 { signed },
            Some(2) => Physical::Int64 { signed },
            Some(4) => Physical::Float,
            Some(5) => Physical::Double,
            Some(6) if converted != Some(5) => Physical::Bytes,
            Some(3) => {
                return refuse("INT96", "a number, a boolean or a text: write times as numbers");
            }
            _ => {
                return refuse(
                    "bytes of a fixed length or decimals as bytes",
                    "a number, a boolean or a text",
                );
            }
        };
        let scale =
            element.field(7).whole().filter(|_| converted == Some(5)).unwrap_or(0).clamp(0, 38);
        let unit = (0..scale).fold(1.0, |unit, _| unit * 10.0);
        Ok(Leaf { name, physical, optional: element.field(3).whole() == Some(1), unit })
    };
    elements.iter().skip(1).map(read).collect()
}

/// A column's values: which rows have one, and those values.
struct CellReader {
    present: Vec<bool>,
    values: Values,
}

enum Refusal {
    Page(usize, String),
    Expands,
}

/// How many bytes the content of a file may still take.
struct Budget {
    left: u64,
}

impl Budget {
    fn spend(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.left = self.left.checked_sub(bytes).ok_or(Refusal::Expands)?;
        Ok(())
    }
}

/// Append the pages of one column chunk.
fn read_chunk(
    bytes: &[u8],
    meta: &Value<'_>,
    leaf: &Leaf,
    rows: usize,
    cells: &mut CellReader,
    budget: &mut Budget,
) -> Result<(), Refusal> {
    let offset = |id: i16| meta.field(id).size().filter(|at| *at >= MAGIC.len());
    let data = offset(9).ok_or(Refusal::Page(0, "its place is not stated".into()))?;
    let mut at = offset(11).filter(|at| *at < data).unwrap_or(data);
    let codec = meta.field(4).whole().unwrap_or(0);
    let mut dictionary: Option<Values> = None;
    let mut left = rows;
    while left > 0 {
        let page = at;
        let refuse = |problem: String| Refusal::Page(page, problem);
        let mut reader = Reader::new(bytes, at);
        let header =
            reader.structure().map_err(|(at, problem)| Refusal::Page(at, problem.into()))?;
        let size = |id: i16| {
            header.field(id).size().ok_or_else(|| Refusal::Page(page, "a page has no size".into()))
        };
        let (full, packed) = (size(2)?, size(3)?);
        let body =
            reader.take(packed).map_err(|(at, problem)| Refusal::Page(at, problem.into()))?;
        at = reader.at;
        budget.spend(full as u64)?;
        match header.field(1).whole() {
            Some(2) => {
                let count = header.field(7).field(1).size().unwrap_or(0);
                budget.spend((count as u64).saturating_mul(CELL))?;
                let content = codec::expand(codec, body, full).map_err(refuse)?;
                dictionary = Some(page::plain(&content, leaf.physical, count).map_err(refuse)?);
            }
            Some(kind @ (0 | 3)) => {
                let about = header.field(if kind == 0 { 5 } else { 8 });
                let count = about.field(1).size().filter(|count| (1..=left).contains(count));
                let count = count.ok_or_else(|| {
                    refuse(format!("a page does not have from 1 to {left} values"))
                })?;
                budget.spend((count as u64).saturating_mul(CELL))?;
                let (levels, content) = if kind == 0 {
                    split_first_version(
                        codec::expand(codec, body, full).map_err(refuse)?,
                        leaf.optional,
                    )
                    .map_err(refuse)?
                } else {
                    split_second_version(about, codec, body, full).map_err(refuse)?
                };
                let present: Vec<bool> = if leaf.optional {
                    page::hybrid(&levels, 1, count)
                        .map_err(refuse)?
                        .iter()
                        .map(|level| *level == 1)
                        .collect()
                } else {
                    vec![true; count]
                };
                let there = present.iter().filter(|there| **there).count();
                let encoding = about.field(if kind == 0 { 2 } else { 4 }).whole().unwrap_or(-1);
                cells.values.extend(
                    page::values(&content, encoding, leaf.physical, dictionary.as_ref(), there)
                        .map_err(refuse)?,
                );
                cells.present.extend(present);
                left -= count;
            }
            _ => {} // an index page, or one of a kind to come: neither has values
        }
    }
    Ok(())
}

/// The levels and the values of a page of the first version, whose levels are packed with the
/// values.
fn split_first_version(content: Vec<u8>, optional: bool) -> Result<(Vec<u8>, Vec<u8>), String> {
    if !optional {
        return Ok((Vec::new(), content));
    }
    let size = content
        .get(..4)
        .map(|four| u32::from_le_bytes(four.try_into().unwrap_or_default()) as usize);
    let end = size
        .and_then(|size| size.checked_add(4))
        .filter(|end| *end <= content.len())
        .ok_or("its levels are cut short")?;
    Ok((content[4..end].to_vec(), content[end..].to_vec()))
}

/// The levels and the values of a page of the second version, whose levels stand before the packed
/// values.
fn split_second_version(
    about: &Value<'_>,
    codec: i64,
    body: &[u8],
    full: usize,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    let (definition, repetition) =
        (about.field(5).size().unwrap_or(0), about.field(6).size().unwrap_or(0));
    let start =
        definition.checked_add(repetition).filter(|start| *start <= body.len() && *start <= full);
    let start = start.ok_or("its levels are cut short")?;
    let codec = if about.field(7) == &Value::Bool(false) { 0 } else { codec };
    let packed = &body[start..];
    let content =
        if packed.is_empty() { Vec::new() } else { codec::expand(codec, packed, full - start)? };
    Ok((body[repetition..start].to_vec(), content))
}

/// A column of a table: nulls and NaN are missing, numbers that are all 0 or 1 are binary, as in a
/// CSV file.
fn column(leaf: &Leaf, cells: CellReader, file: &str) -> Result<(ColumnSpec, Column), FormatError> {
    let present = cells.present;
    match cells.values {
        Values::Words(words) => {
            let (mut levels, mut places) = (Vec::new(), BTreeMap::new());
            let mut words = words.into_iter();
            let mut place = |word: Arc<str>| {
                *places.entry(word).or_insert_with_key(|word| {
                    levels.push(word.to_string());
                    levels.len() - 1
                })
            };
            let cells = present
                .iter()
                .map(|there| there.then(|| words.next()).flatten().map(&mut place))
                .collect();
            Ok((ColumnSpec::category(&leaf.name), Column::Category(Category { levels, cells })))
        }
        Values::Numbers(numbers) => {
            let mut numbers = numbers.into_iter().map(|number| number / leaf.unit);
            let cells: Vec<Option<f64>> = present
                .iter()
                .map(|there| {
                    there.then(|| numbers.next()).flatten().filter(|number| !number.is_nan())
                })
                .collect();
            if let Some(row) =
                cells.iter().position(|cell| cell.is_some_and(|number| number.is_infinite()))
            {
                let at = At::Row(row as u64 + 1);
                return Err(FormatError::NotFinite {
                    file: format!("{file}, column `{}`", leaf.name),
                    at,
                    found: cells[row].unwrap_or(f64::NAN),
                });
            }
            let mut observed = cells.iter().flatten().peekable();
            if observed.peek().is_some() && observed.all(|number| *number == 0.0 || *number == 1.0)
            {
                let cells = cells.iter().map(|cell| cell.map(|number| number as usize)).collect();
                return Ok((
                    ColumnSpec::binary(&leaf.name),
                    Column::Category(Category { levels: vec!["0".into(), "1".into()], cells }),
                ));
            }
            Ok((ColumnSpec::number(&leaf.name), Column::Number(cells)))
        }
    }
}

#[cfg(test)]
mod tests;

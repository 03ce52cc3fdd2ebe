//! Read a file into named columns, or say which line is wrong and what to do.

use std::io::Read;

use thiserror::Error;

use super::formats::At;
use super::{ColumnSpec, Kind, Schema};
use crate::suggest::column_hint;

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum TableError {
    /// Bytes that are not text, or a failing disk.
    #[error("{file}, line {line}: cannot be read ({problem}): save the file as UTF-8 text")]
    Unreadable {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What the reader said.
        problem: String,
    },
    /// No rows.
    #[error(
        "{file}: there are no rows: a site needs at least one, so leave the site out or check the \
         file"
    )]
    Empty {
        /// The file.
        file: String,
    },
    /// Fewer rows than sites.
    #[error("{file}: {rows} rows cannot be split into {parts} sites: ask for 1 to {rows}")]
    Parts {
        /// The file.
        file: String,
        /// How many rows there are.
        rows: usize,
        /// How many sites were asked for.
        parts: usize,
    },
    /// A header without one of the columns.
    #[error("{file}, line {line}: there is no column `{column}`: {hint}the header has {header}")]
    NoColumn {
        /// The file.
        file: String,
        /// The header's line.
        line: u64,
        /// The column.
        column: String,
        /// A nearby name, or nothing.
        hint: String,
        /// What the header has.
        header: String,
    },
    /// A header with one column twice.
    #[error("{file}, line {line}: the column `{column}` stands there twice: rename one of the two")]
    Twice {
        /// The file.
        file: String,
        /// The header's line.
        line: u64,
        /// The column.
        column: String,
    },
    /// A line that is too short or too long.
    #[error(
        "{file}, line {line}: {found} fields where {expected} are expected: check the separator, \
         decimal commas and the line's end"
    )]
    Fields {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// How many fields the line has.
        found: usize,
        /// How many it should have.
        expected: usize,
    },
    /// Columns in memory that are not equally long.
    #[error(
        "{file}: the column `{column}` has {found} rows where the first has {expected}: give every \
         column the same length"
    )]
    Length {
        /// The client.
        file: String,
        /// The column.
        column: String,
        /// Its rows.
        found: usize,
        /// The first column's.
        expected: usize,
    },
    /// A field that does not fit its column.
    #[error("{file}, line {line}, column `{column}`: `{found}` is not {expected}")]
    Field {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// The column.
        column: String,
        /// What stands there.
        found: String,
        /// What would be right.
        expected: String,
    },
}

/// Levels and, for each row, which of them it has.
#[derive(Clone, Debug, PartialEq)]
pub struct Category {
    /// The levels: as declared, else in order of appearance.
    pub levels: Vec<String>,
    /// The level's place in `levels`, or nothing where it is missing.
    pub cells: Vec<Option<usize>>,
}

impl Category {
    /// Numbers as levels, by how they are written.
    pub(crate) fn of_numbers(cells: &[Option<f64>]) -> Category {
        let mut found = Category { levels: Vec::new(), cells: Vec::with_capacity(cells.len()) };
        for cell in cells {
            let place = cell.map(|value| {
                let level = value.to_string();
                found.levels.iter().position(|known| *known == level).unwrap_or_else(|| {
                    found.levels.push(level);
                    found.levels.len() - 1
                })
            });
            found.cells.push(place);
        }
        found
    }
}

/// One column's values.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Numbers, or nothing where they are missing.
    Number(Vec<Option<f64>>),
    /// Levels. A binary column has the levels `0` and `1`.
    Category(Category),
}

impl Column {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        match self {
            Column::Number(cells) => cells.len(),
            Column::Category(category) => category.cells.len(),
        }
    }

    /// How many values are missing.
    pub fn missing(&self) -> usize {
        match self {
            Column::Number(cells) => cells.iter().filter(|cell| cell.is_none()).count(),
            Column::Category(category) => {
                category.cells.iter().filter(|cell| cell.is_none()).count()
            }
        }
    }

    /// Whether the value of a row is missing.
    pub(crate) fn is_missing(&self, row: usize) -> bool {
        match self {
            Column::Number(cells) => cells[row].is_none(),
            Column::Category(category) => category.cells[row].is_none(),
        }
    }
}

/// One site's rows, in named columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    file: String,
    specs: Vec<ColumnSpec>,
    columns: Vec<Column>,
    lines: Vec<At>,
}

impl Table {
    /// Read a file or a stream. `file` is the name that errors give.
    pub fn read(mut reader: impl Read, file: &str, schema: &Schema) -> Result<Self, TableError> {
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes).map_err(|error| error.to_string());
        read.map_err(|problem| TableError::Unreadable { file: file.into(), line: 1, problem })?;
        Self::parse(utf8(&bytes, file)?, file, schema)
    }

    /// Read a text. `file` is the name that errors give.
    pub fn parse(text: &str, file: &str, schema: &Schema) -> Result<Self, TableError> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .delimiter(schema.separator)
            .from_reader(text.as_bytes());
        let mut places: Option<Vec<usize>> =
            (!schema.header).then(|| (0..schema.columns.len()).collect());
        let mut width = schema.columns.len();
        let mut columns: Vec<Column> = schema.columns.iter().map(empty).collect();
        let mut lines = Vec::new();
        let mut record = csv::StringRecord::new();
        let (mut line, mut counted) = (1, 0);
        loop {
            let more = reader.read_record(&mut record).map_err(|error| TableError::Unreadable {
                file: file.into(),
                line,
                problem: error.to_string(),
            })?;
            if !more {
                break;
            }
            // The reader's own count lags behind blank lines and carriage returns.
            let from = record.position().map_or(counted, |position| position.byte() as usize);
            let blank = text[from..].len() - text[from..].trim_start_matches(['\r', '\n']).len();
            line += newlines(&text[counted..from + blank]);
            counted = from + blank;
            let Some(places) = &places else {
                places = Some(find(&record, file, line, schema)?);
                width = record.len();
                continue;
            };
            if record.len() != width {
                return Err(TableError::Fields {
                    file: file.into(),
                    line,
                    found: record.len(),
                    expected: width,
                });
            }
            for ((column, spec), place) in columns.iter_mut().zip(&schema.columns).zip(places) {
                push(column, spec, &record[*place], schema).map_err(|expected| {
                    TableError::Field {
                        file: file.into(),
                        line,
                        column: spec.name.clone(),
                        found: record[*place].into(),
                        expected: format!("{expected}; write a missing value as {}", marks(schema)),
                    }
                })?;
            }
            lines.push(At::Line(line));
        }
        if lines.is_empty() {
            return Err(TableError::Empty { file: file.into() });
        }
        Ok(Table { file: file.into(), specs: schema.columns.clone(), columns, lines })
    }

    /// A table from its columns, all equally long, of a file that has rows and no lines.
    pub(crate) fn from_columns(
        file: &str,
        specs: Vec<ColumnSpec>,
        columns: Vec<Column>,
    ) -> Result<Self, TableError> {
        let rows = columns.first().map_or(0, Column::rows);
        if rows == 0 {
            return Err(TableError::Empty { file: file.into() });
        }
        if let Some(spec) = specs
            .iter()
            .enumerate()
            .find(|(k, spec)| specs[..*k].iter().any(|other| other.name == spec.name))
            .map(|(_, spec)| spec)
        {
            return Err(TableError::Twice {
                file: file.into(),
                line: 1,
                column: spec.name.clone(),
            });
        }
        debug_assert!(
            columns.iter().all(|column| column.rows() == rows),
            "columns of one table are equally long"
        );
        Ok(Table {
            file: file.into(),
            specs,
            columns,
            lines: (1..=rows as u64).map(At::Row).collect(),
        })
    }

    /// The same with more columns, as long as the others.
    pub(crate) fn with_columns(&self, more: Vec<(ColumnSpec, Column)>) -> Table {
        let mut table = self.clone();
        let (specs, columns): (Vec<_>, Vec<_>) = more.into_iter().unzip();
        table.specs.extend(specs);
        table.columns.extend(columns);
        table
    }

    /// The name of the file that the rows came from.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// How many rows there are: at least one.
    pub fn rows(&self) -> usize {
        self.lines.len()
    }

    /// Where in the file a row came from.
    pub(crate) fn place(&self, row: usize) -> At {
        self.lines[row]
    }

    /// The declared columns, in order.
    pub fn specs(&self) -> &[ColumnSpec] {
        &self.specs
    }

    /// The declaration and the values of a column.
    pub fn column(&self, name: &str) -> Option<(&ColumnSpec, &Column)> {
        self.specs.iter().zip(&self.columns).find(|(spec, _)| spec.name == name)
    }

    /// The table without a column.
    pub fn without(&self, column: &str) -> Table {
        let keep = |k: &usize| self.specs[*k].name != column;
        let (specs, columns) = (0..self.specs.len())
            .filter(keep)
            .map(|k| (self.specs[k].clone(), self.columns[k].clone()))
            .unzip();
        Table { file: self.file.clone(), specs, columns, lines: self.lines.clone() }
    }

    /// The table with the columns and the kinds of a schema: zeros and ones become numbers where
    /// others have other numbers, and numbers levels where others
    /// have words.
    pub(crate) fn with_kinds(&self, schema: &Schema) -> Result<Table, TableError> {
        let (mut specs, mut columns) = (Vec::new(), Vec::new());
        for wanted in &schema.columns {
            let Some((spec, column)) = self.column(&wanted.name) else { continue };
            let same = std::mem::discriminant(&wanted.kind) == std::mem::discriminant(&spec.kind);
            columns.push(match (&wanted.kind, column) {
                (_, column) if same || column.missing() == self.rows() => column.clone(),
                (Kind::Number, Column::Category(category)) if spec.kind == Kind::Binary => {
                    Column::Number(
                        category.cells.iter().map(|cell| cell.map(|level| level as f64)).collect(),
                    )
                }
                (Kind::Category { .. }, Column::Category(_)) => column.clone(),
                (Kind::Category { .. }, Column::Number(cells)) => {
                    Column::Category(Category::of_numbers(cells))
                }
                (_, column) => {
                    let row = (0..self.rows()).find(|row| !column.is_missing(*row)).unwrap_or(0);
                    let line = match self.lines[row] {
                        At::Line(at) | At::Row(at) | At::Byte(at) => at,
                    };
                    let found = match column {
                        Column::Number(cells) => cells[row].unwrap_or_default().to_string(),
                        Column::Category(category) => category.cells[row]
                            .map_or_else(String::new, |level| category.levels[level].clone()),
                    };
                    let expected = if wanted.kind == Kind::Binary { "0 or 1" } else { "a number" };
                    let expected = format!(
                        "{expected}, as other rows have in this column: write it alike everywhere"
                    );
                    return Err(TableError::Field {
                        file: self.file.clone(),
                        line,
                        column: wanted.name.clone(),
                        found,
                        expected,
                    });
                }
            });
            specs.push(wanted.clone());
        }
        Ok(Table { file: self.file.clone(), specs, columns, lines: self.lines.clone() })
    }

    /// The table of some declared columns, each read anew as the text of its values would be; those
    /// that are not there are left out. `missing` are the words that mean "missing".
    pub(crate) fn reread(
        &self,
        specs: &[ColumnSpec],
        missing: &[String],
    ) -> Result<Table, TableError> {
        let schema = Schema { missing: missing.to_vec(), ..Schema::new(specs.to_vec()) };
        let (mut kept, mut columns) = (Vec::new(), Vec::new());
        for spec in specs {
            let Some((own, values)) = self.column(&spec.name) else { continue };
            let words = matches!(&spec.kind, Kind::Category { levels } if levels.is_empty());
            if own == spec && !words {
                kept.push(spec.clone());
                columns.push(values.clone());
                continue;
            }
            let mut column = empty(spec);
            for row in 0..self.rows() {
                let field = match values {
                    Column::Number(cells) => cells[row].map(|value| value.to_string()),
                    Column::Category(category) => {
                        category.cells[row].map(|level| category.levels[level].clone())
                    }
                };
                let Some(field) = field else {
                    match &mut column {
                        Column::Number(cells) => cells.push(None),
                        Column::Category(category) => category.cells.push(None),
                    }
                    continue;
                };
                push(&mut column, spec, &field, &schema).map_err(|expected| {
                    let line = match self.lines[row] {
                        At::Line(at) | At::Row(at) | At::Byte(at) => at,
                    };
                    TableError::Field {
                        file: self.file.clone(),
                        line,
                        column: spec.name.clone(),
                        found: field.clone(),
                        expected,
                    }
                })?;
            }
            kept.push(spec.clone());
            columns.push(column);
        }
        Ok(Table { file: self.file.clone(), specs: kept, columns, lines: self.lines.clone() })
    }

    /// Cut the rows, in their order, into parts whose sizes differ by one at most.
    pub fn split(&self, parts: usize) -> Result<Vec<Table>, TableError> {
        let rows = self.rows();
        if parts == 0 || parts > rows {
            return Err(TableError::Parts { file: self.file.clone(), rows, parts });
        }
        Ok((0..parts as u64)
            .map(|part| {
                let bound = |part: u64| (part * rows as u64 / parts as u64) as u32;
                self.select(&(bound(part)..bound(part + 1)).collect::<Vec<_>>())
            })
            .collect())
    }

    /// The table of some rows, in this order.
    pub fn select(&self, rows: &[u32]) -> Table {
        let places = || rows.iter().map(|row| *row as usize);
        let pick = |column: &Column| match column {
            Column::Number(cells) => Column::Number(places().map(|row| cells[row]).collect()),
            Column::Category(category) => Column::Category(Category {
                levels: category.levels.clone(),
                cells: places().map(|row| category.cells[row]).collect(),
            }),
        };
        Table {
            file: self.file.clone(),
            specs: self.specs.clone(),
            columns: self.columns.iter().map(pick).collect(),
            lines: places().map(|row| self.lines[row]).collect(),
        }
    }
}

/// Bytes as text, or the line where they are none.
pub(crate) fn utf8<'a>(bytes: &'a [u8], file: &str) -> Result<&'a str, TableError> {
    let wrong = |line: u64, problem: &str| {
        Err(TableError::Unreadable { file: file.into(), line, problem: problem.into() })
    };
    let zeros = bytes.iter().take(100).filter(|byte| **byte == 0).count();
    if bytes.starts_with(&[0xff, 0xfe])
        || bytes.starts_with(&[0xfe, 0xff])
        || (bytes.len() > 1 && 3 * zeros > bytes.len().min(100))
    {
        return wrong(1, "it is UTF-16 text");
    }
    std::str::from_utf8(bytes).or_else(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        wrong(line, "it is not UTF-8 text, perhaps Latin-1 or Windows-1252")
    })
}

/// A column before its first row.
fn empty(spec: &ColumnSpec) -> Column {
    let levels = match &spec.kind {
        Kind::Number => return Column::Number(Vec::new()),
        Kind::Binary => vec!["0".into(), "1".into()],
        Kind::Category { levels } => levels.iter().map(|(_, level)| level.clone()).collect(),
    };
    Column::Category(Category { levels, cells: Vec::new() })
}

/// Where the header has each declared column.
fn find(
    header: &csv::StringRecord,
    file: &str,
    line: u64,
    schema: &Schema,
) -> Result<Vec<usize>, TableError> {
    let place = |spec: &ColumnSpec| {
        let mut found = header
            .iter()
            .enumerate()
            .filter(|(_, name)| *name == spec.name)
            .map(|(place, _)| place);
        let place = found.next().ok_or_else(|| TableError::NoColumn {
            file: file.into(),
            line,
            column: spec.name.clone(),
            hint: column_hint(&spec.name, header),
            header: header.iter().collect::<Vec<_>>().join(", "),
        })?;
        match found.next() {
            Some(_) => {
                Err(TableError::Twice { file: file.into(), line, column: spec.name.clone() })
            }
            None => Ok(place),
        }
    };
    schema.columns.iter().map(place).collect()
}

/// Append one field, or say what was expected.
fn push(
    column: &mut Column,
    spec: &ColumnSpec,
    field: &str,
    schema: &Schema,
) -> Result<(), String> {
    let number = field.parse::<f64>().ok().filter(|value| value.is_finite());
    let missing = schema.missing.iter().any(|mark| mark == field)
        || number.is_some_and(|value| spec.missing.contains(&value));
    match column {
        Column::Number(cells) if missing => cells.push(None),
        Column::Category(category) if missing => category.cells.push(None),
        Column::Number(cells) => {
            let value = number.ok_or("a finite number")?;
            if let Some((low, high)) =
                spec.range.filter(|(low, high)| value < *low || value > *high)
            {
                return Err(format!("within {low} to {high}"));
            }
            cells.push(Some(value));
        }
        Column::Category(category) => {
            let is =
                |code: &str| code == field || (number.is_some() && code.parse().ok() == number);
            let level = match &spec.kind {
                Kind::Category { levels } if levels.is_empty() => {
                    category.levels.iter().position(|level| level == field).unwrap_or_else(|| {
                        category.levels.push(field.into());
                        category.levels.len() - 1
                    })
                }
                Kind::Category { levels } => {
                    levels.iter().position(|(code, _)| is(code)).ok_or_else(|| {
                        let known: Vec<String> = levels
                            .iter()
                            .map(|(code, level)| format!("{code} ({level})"))
                            .collect();
                        format!("one of {}", known.join(", "))
                    })?
                }
                Kind::Binary | Kind::Number => {
                    category.levels.iter().position(|level| is(level)).ok_or("0 or 1")?
                }
            };
            category.cells.push(Some(level));
        }
    }
    Ok(())
}

fn newlines(text: &str) -> u64 {
    text.bytes().filter(|byte| *byte == b'\n').count() as u64
}

/// The marks for missing values, for a message.
fn marks(schema: &Schema) -> String {
    let marks: Vec<&str> = schema
        .missing
        .iter()
        .take(3)
        .map(|mark| if mark.is_empty() { "an empty field" } else { mark.as_str() })
        .collect();
    if marks.is_empty() { "(the schema allows none)".into() } else { marks.join(" or ") }
}

#[cfg(test)]
mod tests;

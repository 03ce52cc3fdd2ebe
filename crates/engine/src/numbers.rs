//! Read tables of plain numbers from CSV files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::data::{Column, Kind, MISSING, Table, utf8};

/// A table of numbers, with the names of its columns if the file has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    /// The header line, if there is one.
    pub names: Option<Vec<String>>,
    /// The cells, row by row.
    pub cells: Vec<f64>,
    /// How many columns there are.
    pub columns: usize,
}

impl Numbers {
    /// The columns' names: those of the header, else x1, x2 and so on.
    pub(crate) fn column_names(&self) -> Vec<String> {
        let numbered = || (1..=self.columns).map(|k| format!("x{k}")).collect();
        self.names.clone().unwrap_or_else(numbered)
    }
}

/// The numbers of a table in memory; words and missing values are refused.
pub fn of(table: &Table) -> Result<Numbers, String> {
    let (names, columns) =
        (table.specs().iter().map(|spec| spec.name.clone()).collect(), table.specs().len());
    let mut cells = vec![0.0; table.rows() * columns];
    for (at, spec) in table.specs().iter().enumerate() {
        let Some((_, column)) = table.column(&spec.name) else { continue };
        for row in 0..table.rows() {
            let cell = match column {
                Column::Number(values) => values[row],
                Column::Category(values) if spec.kind == Kind::Binary => {
                    values.cells[row].map(|level| level as f64)
                }
                Column::Category(_) => return Err(format!("the column `{}` has words", spec.name)),
            };
            cells[row * columns + at] = cell.ok_or_else(|| {
                format!("row {} of the column `{}` is missing", row + 1, spec.name)
            })?;
        }
    }
    Ok(Numbers { names: Some(names), cells, columns })
}

/// Read a CSV file whose cells are finite numbers; a first line with a word in it is a header.
pub fn read(path: &Path) -> Result<Numbers, String> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| format!("{name} cannot be read: {error}"))?;
    read_from(file, &name)
}

/// Read such a table from anywhere; `file` is what complaints call it.
pub(crate) fn read_from(mut source: impl Read, file: &str) -> Result<Numbers, String> {
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes).map_err(|error| format!("{file} cannot be read: {error}"))?;
    let text = utf8(&bytes, file).map_err(|error| error.to_string())?;
    let mut reader = reader(text);
    let mut numbers = Numbers { names: None, cells: Vec::new(), columns: 0 };
    for (at, record) in reader.records().enumerate() {
        let record = record.map_err(|error| format!("{file} cannot be read: {error}"))?;
        let line = record.position().map_or(at as u64 + 1, csv::Position::line);
        if at == 0 {
            numbers.columns = record.len();
            let is_number = |cell: &str| cell.parse::<f64>().is_ok();
            // A row of numbers with a gap is no header.
            let is_gap = |cell: &str| is_number(cell) || MISSING.contains(&cell);
            if record.iter().any(|cell| !is_number(cell))
                && !(record.iter().any(is_number) && record.iter().all(is_gap))
            {
                numbers.names = Some(record.iter().map(str::to_owned).collect());
                continue;
            }
        }
        if record.len() != numbers.columns {
            return Err(format!(
                "{file}, line {line} has {} cells, where the first line has {}; is there a decimal \
                 comma?",
                record.len(),
                numbers.columns
            ));
        }
        for (column, cell) in record.iter().enumerate() {
            match cell.parse::<f64>() {
                Ok(value) if value.is_finite() => numbers.cells.push(value),
                _ => {
                    let name = numbers
                        .names
                        .as_ref()
                        .map_or_else(String::new, |names| format!(" ({})", names[column]));
                    let why = why_not(cell);
                    return Err(format!(
                        "{file}, line {line}, column {}{name}: \"{cell}\" is not a finite \
                         number{why}",
                        column + 1
                    ));
                }
            }
        }
    }
    if numbers.cells.is_empty() { Err(format!("{file} has no rows")) } else { Ok(numbers) }
}

/// The line of a file in which a row of such a table stands, both counted from 1.
pub fn line_of(path: &Path, row: usize) -> Option<u64> {
    let bytes = std::fs::read(path).ok()?;
    let text = utf8(&bytes, "").ok()?;
    let header = read_from(text.as_bytes(), "").ok()?.names.is_some();
    let mut records = reader(text).into_records();
    let record = records.nth(row - 1 + usize::from(header))?.ok()?;
    record.position().map(csv::Position::line)
}

/// Fields of a text, without comments.
fn reader(text: &str) -> csv::Reader<&[u8]> {
    csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(csv::Trim::All)
        .comment(Some(b'#'))
        .from_reader(text.as_bytes())
}

/// What a cell may be that is no number.
fn why_not(cell: &str) -> &'static str {
    let comma = |sign: char| {
        cell.contains(sign) && cell.chars().all(|c| c.is_ascii_digit() || "+-.,;".contains(c))
    };
    match cell {
        _ if MISSING.contains(&cell) => {
            ": a value is missing; drop the row, or state a formula, which imputes it"
        }
        _ if cell.parse::<f64>().is_ok() => ": numbers go up to 1.8e308",
        _ if comma(';') => {
            ": fields are separated by commas here; state a formula, with which semicolons will do"
        }
        _ if comma(',') => ": write decimals with a point",
        _ => "",
    }
}

//! Read tables of plain numbers from CSV files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::data::{Column, Kind, Table};

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

/// The numbers of a table in memory; words and missing values are refused.
pub fn of(table: &Table) -> Result<Numbers, String> {
    let (names, columns) = (table.specs().iter().map(|spec| spec.name.clone()).collect(), table.specs().len());
    let mut cells = vec![0.0; table.rows() * columns];
    for (at, spec) in table.specs().iter().enumerate() {
        let Some((_, column)) = table.column(&spec.name) else { continue };
        for row in 0..table.rows() {
            let cell = match column {
                Column::Number(values) => values[row],
                Column::Category(values) if spec.kind == Kind::Binary => values.cells[row].map(|level| level as f64),
                Column::Category(_) => return Err(format!("the column `{}` has words", spec.name)),
            };
            cells[row * columns + at] = cell.ok_or_else(|| format!("row {} of the column `{}` is missing", row + 1, spec.name))?;
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
pub fn read_from(source: impl Read, file: &str) -> Result<Numbers, String> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).comment(Some(b'#')).from_reader(source);
    let mut numbers = Numbers { names: None, cells: Vec::new(), columns: 0 };
    for (at, record) in reader.records().enumerate() {
        let record = record.map_err(|error| format!("{file} cannot be read: {error}"))?;
        let line = record.position().map_or(at as u64 + 1, csv::Position::line);
        if at == 0 {
            numbers.columns = record.len();
            if record.iter().any(|cell| cell.parse::<f64>().is_err()) {
                numbers.names = Some(record.iter().map(str::to_owned).collect());
                continue;
            }
        }
        if record.len() != numbers.columns {
            return Err(format!("{file}, line {line} has {} cells, where the first line has {}", record.len(), numbers.columns));
        }
        for (column, cell) in record.iter().enumerate() {
            match cell.parse::<f64>() {
                Ok(value) if value.is_finite() => numbers.cells.push(value),
                _ => return Err(format!("{file}, line {line}, column {}: \"{cell}\" is not a finite number", column + 1)),
            }
        }
    }
    if numbers.cells.is_empty() { Err(format!("{file} has no rows")) } else { Ok(numbers) }
}

//! Take rows that are in memory already as tables: what their columns are is told from their
//! values, as it is of a text file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Category, Column, ColumnSpec, MISSING, Table, TableError};

/// Clients' tables that are in memory, by the clients' names.
pub type Tables = BTreeMap<String, Arc<Table>>;

/// The values of one column, row by row.
#[derive(Clone, Debug, PartialEq)]
pub enum Values<'a> {
    /// Numbers; NaN where they are missing.
    Numbers(Cow<'a, [f64]>),
    /// Words; nothing, or one of [`MISSING`], where they are missing.
    Words(Vec<Option<String>>),
}

impl Values<'_> {
    fn rows(&self) -> usize {
        match self {
            Values::Numbers(cells) => cells.len(),
            Values::Words(cells) => cells.len(),
        }
    }
}

/// A client's table from its columns. Numbers that are all 0 or 1 are binary.
pub fn table(client: &str, columns: Vec<(String, Values<'_>)>) -> Result<Table, TableError> {
    let rows = columns.first().map_or(0, |(_, values)| values.rows());
    let (mut specs, mut all) = (Vec::new(), Vec::new());
    for (name, values) in columns {
        if values.rows() != rows {
            return Err(TableError::Length {
                file: client.into(),
                column: name,
                found: values.rows(),
                expected: rows,
            });
        }
        let (spec, column) = match values {
            Values::Numbers(cells) => numbers(client, &name, &cells)?,
            Values::Words(cells) => (ColumnSpec::category(&name), Column::Category(words(cells))),
        };
        specs.push(spec);
        all.push(column);
    }
    Table::from_columns(client, specs, all)
}

fn numbers(client: &str, name: &str, cells: &[f64]) -> Result<(ColumnSpec, Column), TableError> {
    if let Some(row) = cells.iter().position(|v| v.is_infinite()) {
        let (file, column, found) = (client.into(), name.into(), cells[row].to_string());
        return Err(TableError::Field {
            file,
            line: row as u64 + 1,
            column,
            found,
            expected: "a finite number (NaN is missing)".into(),
        });
    }
    if cells.iter().all(|v| v.is_nan() || *v == 0.0 || *v == 1.0) {
        let cells = cells.iter().map(|v| (!v.is_nan()).then_some(*v as usize)).collect();
        return Ok((
            ColumnSpec::binary(name),
            Column::Category(Category { levels: vec!["0".into(), "1".into()], cells }),
        ));
    }
    Ok((
        ColumnSpec::number(name),
        Column::Number(cells.iter().map(|v| Some(*v).filter(|v| !v.is_nan())).collect()),
    ))
}

fn words(cells: Vec<Option<String>>) -> Category {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut levels = Vec::new();
    let mut place = |word: String| match places.get(&word) {
        Some(place) => *place,
        None => {
            levels.push(word.clone());
            places.insert(word, levels.len() - 1);
            levels.len() - 1
        }
    };
    let there = |word: Option<String>| word.filter(|word| !MISSING.contains(&word.trim()));
    let cells = cells.into_iter().map(|word| there(word).map(&mut place)).collect();
    Category { levels, cells }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_in_memory_is_the_table_of_the_file() {
        let text = "age,ill,sex\n41.5,0,f\n?,1,m\n63,?,f\n";
        let schema = crate::data::formats::csv::infer(text, "north").unwrap();
        let read = Table::parse(text, "north", &schema).unwrap();
        let words = ["f", "m", "f"].map(|w| Some(w.to_owned())).to_vec();
        let made = table(
            "north",
            vec![
                ("age".into(), Values::Numbers(Cow::Borrowed(&[41.5, f64::NAN, 63.0]))),
                ("ill".into(), Values::Numbers(vec![0.0, 1.0, f64::NAN].into())),
                ("sex".into(), Values::Words(words)),
            ],
        );
        let made = made.unwrap();
        assert_eq!(made.specs(), read.specs());
        for spec in read.specs() {
            assert_eq!(made.column(&spec.name), read.column(&spec.name));
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let says = |columns: Vec<(String, Values<'_>)>, part: &str| {
            let error = table("north", columns).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        let numbers = |name: &str, cells: &[f64]| {
            (name.to_owned(), Values::Numbers(Cow::Owned(cells.to_vec())))
        };
        says(vec![], "there are no rows");
        says(
            vec![numbers("a", &[1.0, 2.0]), numbers("b", &[1.0])],
            "column `b` has 1 rows where the first has 2",
        );
        says(vec![numbers("a", &[1.0, f64::INFINITY])], "`inf` is not a finite number");
        says(vec![numbers("a", &[1.0]), numbers("a", &[1.0])], "stands there twice");
    }
}

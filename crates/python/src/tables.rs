//! Take clients' rows from Python: columns of numbers are read where they lie, words are copied.

use std::borrow::Cow;
use std::sync::Arc;

use consilience_engine::data::Table;
use consilience_engine::data::memory::{Tables, Values, table};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::errors::{Failure, Raised};

/// One column.
#[derive(FromPyObject)]
pub enum ColumnCells<'py> {
    /// An array of 64-bit numbers, contiguous or not.
    Numbers(PyReadonlyArray1<'py, f64>),
    /// Words, or nothing.
    Words(Vec<Option<String>>),
}

/// The clients and the columns of each.
pub type Columns<'py> = Vec<(String, Vec<(String, ColumnCells<'py>)>)>;

/// The engine's tables.
pub fn tables(columns: &Columns<'_>) -> Result<Tables, Failure> {
    let mut all = Tables::new();
    for (client, columns) in columns {
        all.insert(client.clone(), Arc::new(one_table(client, columns)?));
    }
    Ok(all)
}

/// The engine's table of these columns. `name` is what complaints call it.
pub fn one_table(name: &str, columns: &[(String, ColumnCells<'_>)]) -> Result<Table, Failure> {
    let columns = columns.iter().map(|(name, cells)| (name.clone(), values(cells))).collect();
    table(name, columns).map_err(|e| Failure::new(Raised::Data, e))
}

fn values<'a>(cells: &'a ColumnCells<'_>) -> Values<'a> {
    match cells {
        ColumnCells::Numbers(array) => Values::Numbers(
            array.as_slice().map_or_else(|_| Cow::Owned(array.as_array().to_vec()), Cow::Borrowed),
        ),
        ColumnCells::Words(words) => Values::Words(words.clone()),
    }
}

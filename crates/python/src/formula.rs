//! Find which columns a formula uses before any is converted.

use consilience_engine::data::formula::{FormulaError, used};
use pyo3::prelude::*;

use crate::errors::{Failure, Raised};

/// The columns that a formula uses of these clients' columns.
#[pyfunction]
pub fn needed(formula: &str, columns: Vec<(String, Vec<String>)>) -> PyResult<Vec<String>> {
    let wrong = |error: FormulaError| {
        let fix = match &error {
            FormulaError::Absent { column, .. } => {
                format!(
                    "rename the site's own column, or give it `{column}` with missing values: \
                     numpy.full(rows, numpy.nan)"
                )
            }
            _ => "correct the formula, or the names of the columns".into(),
        };
        Failure::field(Raised::Data, "target.formula", error.to_string(), fix)
    };
    Ok(used(formula, &columns).map_err(wrong)?)
}

//! Targets whose clients are normal: by a mean and a matrix each, or by squared distances to rows.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, Isotropic, Model};

use super::{Explains, ModelRow, Predicts, Reads, RowModel};

/// A mean and a matrix of every client.
pub const GAUSSIAN: ModelRow = ModelRow {
    name: "gaussian",
    title: "Gaussian",
    says: "a mean and a precision or covariance of every client",
    reads: Reads::Moments,
    explains: Explains::Nothing,
    by_formula: false,
    fields: &[],
    example: "",
};

/// Half the squared distances to rows.
pub const ISOTROPIC: ModelRow = ModelRow {
    name: "isotropic",
    title: "squared distances to the rows",
    says: "rows around an unknown mean, with variance 1 in every column",
    reads: Reads::Rows(|_| Ok(Arc::new(Distances))),
    explains: Explains::Nothing,
    by_formula: false,
    fields: &[],
    example: "",
};

#[derive(Debug)]
struct Distances;

impl RowModel for Distances {
    fn row(&self) -> &'static ModelRow {
        &ISOTROPIC
    }

    fn potential(&self, design: Design, _response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        let columns = design.columns();
        let mut cells = vec![0.0; design.rows() * columns];
        for (row, cells) in cells.chunks_exact_mut(columns).enumerate() {
            design.add_row(row, 1.0, cells);
        }
        Ok(Arc::new(Isotropic::new(cells, columns)?))
    }

    fn predicts(&self) -> Option<Predicts> {
        None
    }

    fn expect(&self, _predictors: &mut [f64], _beside: &[f64]) {}
}

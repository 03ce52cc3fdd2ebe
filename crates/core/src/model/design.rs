//! Hold a client's features, dense or sparse.

use crate::linalg::{add_scaled, dot};

use crate::error::DataError;

/// A table of features: one row an observation, one column a feature.
#[derive(Clone, Debug)]
pub struct Design {
    columns: usize,
    rows: usize,
    cells: Cells,
}

#[derive(Clone, Debug)]
enum Cells {
    /// Row by row, all columns.
    Dense(Vec<f64>),
    /// Compressed rows: row `j` has the entries `starts[j]..starts[j + 1]`.
    Sparse { starts: Vec<usize>, columns: Vec<u32>, values: Vec<f64> },
}

impl Design {
    /// A dense table from its cells, row by row.
    pub fn dense(cells: Vec<f64>, columns: usize) -> Result<Self, DataError> {
        if columns == 0 || cells.is_empty() {
            return Err(DataError::Empty);
        }
        if !cells.len().is_multiple_of(columns) {
            return Err(DataError::Shape { found: cells.len(), columns });
        }
        if let Some(at) = cells.iter().position(|v| !v.is_finite()) {
            return Err(DataError::NotFinite { row: at / columns, column: at % columns, value: cells[at] });
        }
        Ok(Design { columns, rows: cells.len() / columns, cells: Cells::Dense(cells) })
    }

    /// A sparse table from rows of (column, value) pairs with ascending columns.
    pub fn sparse(rows: impl IntoIterator<Item = Vec<(u32, f64)>>, columns: usize) -> Result<Self, DataError> {
        let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        for (row, entries) in rows.into_iter().enumerate() {
            let mut least = 0;
            for (column, value) in entries {
                if column < least || column as usize >= columns {
                    return Err(DataError::Column { row, column: column as usize, columns });
                }
                if !value.is_finite() {
                    return Err(DataError::NotFinite { row, column: column as usize, value });
                }
                least = column + 1;
                indices.push(column);
                values.push(value);
            }
            starts.push(indices.len());
        }
        if starts.len() == 1 || columns == 0 {
            return Err(DataError::Empty);
        }
        Ok(Design { columns, rows: starts.len() - 1, cells: Cells::Sparse { starts, columns: indices, values } })
    }

    /// How many observations there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many features there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The inner product of a row with `x`.
    #[inline(always)]
    pub fn row_dot(&self, row: usize, x: &[f64]) -> f64 {
        match &self.cells {
            Cells::Dense(cells) => dot(&cells[row * self.columns..(row + 1) * self.columns], x),
            Cells::Sparse { starts, columns, values } => {
                let entries = starts[row]..starts[row + 1];
                columns[entries.clone()].iter().zip(&values[entries]).map(|(c, v)| v * x[*c as usize]).sum()
            }
        }
    }

    /// `out += scale * row`.
    #[inline(always)]
    pub fn add_row(&self, row: usize, scale: f64, out: &mut [f64]) {
        match &self.cells {
            Cells::Dense(cells) => add_scaled(scale, &cells[row * self.columns..(row + 1) * self.columns], out),
            Cells::Sparse { starts, columns, values } => {
                let entries = starts[row]..starts[row + 1];
                for (c, v) in columns[entries.clone()].iter().zip(&values[entries]) {
                    out[*c as usize] += scale * v;
                }
            }
        }
    }

    /// The squared norm of a row.
    pub fn row_norm_squared(&self, row: usize) -> f64 {
        match &self.cells {
            Cells::Dense(cells) => crate::linalg::norm_squared(&cells[row * self.columns..(row + 1) * self.columns]),
            Cells::Sparse { starts, values, .. } => values[starts[row]..starts[row + 1]].iter().map(|v| v * v).sum(),
        }
    }
}

//! Hold a client's features, dense or sparse.

use super::real::Real;
use crate::error::DataError;
use crate::linalg::{add_scaled, dot, norm_squared};

/// A table of features: one row an observation, one column a feature.
#[derive(Clone, Debug)]
pub struct Design<T = f64> {
    columns: usize,
    rows: usize,
    cells: Storage<T>,
}

#[derive(Clone, Debug)]
enum Storage<T> {
    /// Row by row, all columns.
    Dense(Vec<T>),
    /// Compressed rows: row `j` has the entries `starts[j]..starts[j + 1]`.
    Sparse { starts: Vec<usize>, columns: Vec<u32>, values: Vec<T> },
}

/// What a row holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entries<'a, T> {
    /// One value for each column.
    Dense(&'a [T]),
    /// Values at columns in ascending order, as many of the one as of the other.
    Sparse(&'a [u32], &'a [T]),
}

/// A dense table is kept as a sparse one if at most one cell in so many holds something: then it is
/// read faster, too.
const SPARSE: usize = 3;

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
            return Err(DataError::NotFinite {
                row: at / columns,
                column: at % columns,
                value: cells[at],
            });
        }
        let rows = cells.len() / columns;
        if SPARSE * cells.iter().filter(|v| **v != 0.0).count() <= cells.len() {
            let entries = |row: &[f64]| {
                (0u32..).zip(row.iter().copied()).filter(|(_, v)| *v != 0.0).collect()
            };
            return Design::sparse(cells.chunks_exact(columns).map(entries), columns);
        }
        Ok(Design { columns, rows, cells: Storage::Dense(cells) })
    }

    /// A sparse table from rows of (column, value) pairs with ascending columns.
    pub fn sparse(
        rows: impl IntoIterator<Item = Vec<(u32, f64)>>,
        columns: usize,
    ) -> Result<Self, DataError> {
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
        Ok(Design {
            columns,
            rows: starts.len() - 1,
            cells: Storage::Sparse { starts, columns: indices, values },
        })
    }

    /// The same table with numbers of 32 bits.
    pub(super) fn narrowed(&self) -> Design<f32> {
        let narrow = |values: &[f64]| values.iter().map(|v| *v as f32).collect();
        let cells = match &self.cells {
            Storage::Dense(cells) => Storage::Dense(narrow(cells)),
            Storage::Sparse { starts, columns, values } => Storage::Sparse {
                starts: starts.clone(),
                columns: columns.clone(),
                values: narrow(values),
            },
        };
        Design { columns: self.columns, rows: self.rows, cells }
    }

    /// The inner product of a row with `x`.
    #[inline(always)]
    pub fn row_dot(&self, row: usize, x: &[f64]) -> f64 {
        match self.row(row) {
            Entries::Dense(cells) => dot(cells, x),
            Entries::Sparse(columns, values) => {
                columns.iter().zip(values).map(|(c, v)| v * x[*c as usize]).sum()
            }
        }
    }

    /// One entry of a row.
    pub fn cell(&self, row: usize, column: usize) -> f64 {
        match self.row(row) {
            Entries::Dense(cells) => cells[column],
            Entries::Sparse(columns, values) => {
                let mut entries = columns.iter().zip(values);
                entries.find(|(c, _)| **c as usize == column).map_or(0.0, |(_, value)| *value)
            }
        }
    }

    /// `out += scale * row`.
    #[inline(always)]
    pub fn add_row(&self, row: usize, scale: f64, out: &mut [f64]) {
        match self.row(row) {
            Entries::Dense(cells) => add_scaled(scale, cells, out),
            Entries::Sparse(columns, values) => {
                for (c, v) in columns.iter().zip(values) {
                    out[*c as usize] += scale * v;
                }
            }
        }
    }

    /// The squared norm of a row.
    pub(crate) fn row_norm_squared(&self, row: usize) -> f64 {
        match self.row(row) {
            Entries::Dense(cells) => norm_squared(cells),
            Entries::Sparse(_, values) => values.iter().map(|v| v * v).sum(),
        }
    }
}

impl<T: Real> Design<T> {
    /// How many observations there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many features there are.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All cells of a row into `out`, each by way of a function.
    pub(super) fn cells_of<U: Real>(&self, row: usize, out: &mut [U], into: impl Fn(T) -> U) {
        match self.row(row) {
            Entries::Dense(values) => {
                for (slot, value) in out.iter_mut().zip(values) {
                    *slot = into(*value);
                }
            }
            Entries::Sparse(columns, values) => {
                out.fill(U::default());
                for (column, value) in columns.iter().zip(values) {
                    out[*column as usize] = into(*value);
                }
            }
        }
    }

    /// Have what a row holds come into the cache.
    #[inline(always)]
    pub(super) fn touch(&self, row: usize) {
        const LINE: usize = 64;
        let mut seen = 0;
        let mut see = |word: u32| seen ^= word;
        let lines = |values: &[T]| {
            let mut seen = 0;
            for value in values.iter().step_by(LINE / size_of::<T>()) {
                seen ^= value.widen().to_bits() as u32;
            }
            seen
        };
        match self.row(row) {
            Entries::Dense(cells) => see(lines(cells)),
            Entries::Sparse(columns, values) => {
                columns.iter().step_by(LINE / size_of::<u32>()).for_each(|column| see(*column));
                see(lines(values));
            }
        }
        std::hint::black_box(seen);
    }

    /// What a row holds.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> Entries<'_, T> {
        match &self.cells {
            Storage::Dense(cells) => {
                Entries::Dense(&cells[row * self.columns..(row + 1) * self.columns])
            }
            Storage::Sparse { starts, columns, values } => {
                let entries = starts[row]..starts[row + 1];
                Entries::Sparse(&columns[entries.clone()], &values[entries])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dense_table_with_few_entries_is_kept_as_a_sparse_one() {
        let cells = vec![0.0, 2.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.5];
        let few = Design::dense(cells.clone(), 3).unwrap();
        assert!(matches!(few.row(2), Entries::Sparse([0, 2], [-1.0, 0.5])));
        assert_eq!((few.rows(), few.columns(), few.row_dot(2, &[1.0, 7.0, 4.0])), (3, 3, 1.0));
        let many = Design::dense(cells.iter().map(|v| v + 1.0).collect(), 3).unwrap();
        assert!(matches!(many.row(1), Entries::Dense([1.0, 1.0, 1.0])));
        assert!(matches!(few.narrowed().row(0), Entries::Sparse([1], [2.0])));
    }
}

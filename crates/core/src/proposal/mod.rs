//! Shape a proposal after the posterior, by few questions to the sites.
//!
//! A federation computes a Metropolis ratio exactly, since the log posterior is a sum over sites.
//! What it needs is a proposal that resembles the posterior: the optimum and its curvature by
//! [`Newton`]'s method, a Gaussian that fits on average by [`Averaged`] steps, maps of single axes
//! where the posterior is not Gaussian, and nodes along the coordinate on which the width of others
//! depends ([`Conditionals`]). Everything here is a pure machine: it says what it
//! must know next, and goes on when it is told.

mod averaged;
mod axes;
mod newton;
mod nodes;
mod points;
mod student;

pub use averaged::{Averaged, AveragedAnswer};
pub use axes::{AxisMap, FAR, PROFILE, axes, conditional_axes, scale_axes};
pub use newton::{LADDER, Newton, NewtonAnswer};
pub use nodes::{Conditionals, MOST_NODED, NODES, NodeAnswer};
pub use points::Potentials;
pub use student::Proposal;

use nalgebra::{DMatrix, DVector};

use crate::snapshot::{SnapshotError, Visit};

/// A matrix given row by row (which is column by column where it is symmetric), made symmetric.
fn symmetric(cells: &[f64], d: usize) -> DMatrix<f64> {
    let m = DMatrix::from_column_slice(d, d, cells);
    (&m + m.transpose()) * 0.5
}

/// The upper triangle of a matrix given row by row (or, where it is symmetric, column by column),
/// row by row.
pub fn triangle(cells: &[f64], dim: usize) -> impl Iterator<Item = f64> {
    (0..dim).flat_map(move |row| cells[row * dim + row..(row + 1) * dim].iter().copied())
}

/// The symmetric matrix of an upper triangle.
pub(crate) fn from_triangle(triangle: &[f64], dim: usize) -> Vec<f64> {
    let mut cells = vec![0.0; dim * dim];
    let mut next = triangle.iter();
    for row in 0..dim {
        for (column, value) in (row..dim).zip(&mut next) {
            cells[row * dim + column] = *value;
            cells[column * dim + row] = *value;
        }
    }
    cells
}

/// The columns of the matrix whose upper triangle this is, row by row, and whose lower is nothing.
pub(crate) fn upper_columns(triangle: &[f64], dim: usize) -> Vec<f64> {
    let mut columns = vec![0.0; dim * dim];
    let mut next = triangle.iter();
    for row in 0..dim {
        for (column, value) in (row..dim).zip(&mut next) {
            columns[column * dim + row] = *value;
        }
    }
    columns
}

/// A matrix of known size as part of a snapshot.
fn visit_matrix(
    visit: &mut Visit<'_>,
    what: &'static str,
    matrix: &mut DMatrix<f64>,
) -> Result<(), SnapshotError> {
    visit.vector(what, matrix.as_mut_slice())
}

/// `H^-1 g`, with the eigenvalues of `H` replaced by their absolute values, at least `least`.
fn solve(hessian: &DMatrix<f64>, gradient: &[f64], least: f64) -> DVector<f64> {
    let g = DVector::from_column_slice(gradient);
    if let Some(cholesky) = hessian.clone().cholesky()
        && cholesky.l().diagonal().iter().all(|l| l * l >= least)
    {
        return cholesky.solve(&g);
    }
    let eigen = hessian.clone().symmetric_eigen();
    let turned = eigen.eigenvectors.tr_mul(&g);
    let scaled = turned.zip_map(&eigen.eigenvalues, |t, value| t / value.abs().max(least));
    &eigen.eigenvectors * scaled
}

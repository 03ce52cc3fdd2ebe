//! Shape a proposal after the posterior, by few questions to the sites.
//!
//! A federation computes a Metropolis ratio exactly, since the log posterior is a sum over sites.
//! What it needs is a proposal that resembles the posterior: the optimum and its curvature by
//! [`Newton`]'s method, a Gaussian that fits on average by [`Averaged`] steps, and maps of single
//! axes where the posterior is not Gaussian. Everything here is a pure machine: it says what it
//! must know next, and goes on when it is told.

mod averaged;
mod axes;
mod newton;
mod student;

pub use averaged::{Averaged, AveragedAnswer};
pub use axes::{AxisMap, FAR, PROFILE, axes};
pub use newton::{LADDER, Newton, NewtonAnswer};
pub use student::Proposal;

use nalgebra::{DMatrix, DVector};

/// A matrix given row by row (which is column by column where it is symmetric), made symmetric.
fn symmetric(cells: &[f64], d: usize) -> DMatrix<f64> {
    let m = DMatrix::from_column_slice(d, d, cells);
    (&m + m.transpose()) * 0.5
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

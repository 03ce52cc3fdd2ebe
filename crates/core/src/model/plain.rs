//! Hide a model's shortcuts, to measure what they save and to test their answers.

use super::{Likelihood, Rows};

/// The same potential by its required methods alone: it remembers no point and takes no steps by
/// itself, and draws have the same bits.
#[derive(Clone, Debug)]
pub struct Plain<P>(pub P);

impl<P: Likelihood> Likelihood for Plain<P> {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn scratch(&self) -> usize {
        self.0.scratch()
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        self.0.value(x, rows, scratch)
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.0.add_gradient(x, rows, scale, out, scratch);
    }

    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.0.add_gradient_difference(x, z, rows, scale, out, scratch);
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.0.add_hessian_vector(x, v, rows, scale, out, scratch);
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        self.0.row_smoothness(row)
    }
}

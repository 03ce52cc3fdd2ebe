//! Stand in for a client whose rows are elsewhere: its size is known, its potential is not.

use super::{Likelihood, Offers, Rows};

/// The potential of somebody else's rows. What nobody here can compute is NaN, which every receiver
/// refuses.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    dim: usize,
    rows: usize,
    offers: Offers,
}

impl Absent {
    /// A client of so many rows, in so many parameters.
    pub fn new(dim: usize, rows: usize) -> Self {
        Absent { dim, rows, offers: Offers::default() }
    }

    /// The same where whoever has the rows offers this.
    pub fn offering(self, offers: Offers) -> Self {
        Absent { offers, ..self }
    }
}

impl Likelihood for Absent {
    fn dim(&self) -> usize {
        self.dim
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn scratch(&self) -> usize {
        0
    }

    fn value(&self, _x: &[f64], _rows: Rows<'_>, _scratch: &mut [f64]) -> f64 {
        f64::NAN
    }

    fn add_gradient(
        &self,
        _x: &[f64],
        _rows: Rows<'_>,
        _scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        out.fill(f64::NAN);
    }

    fn add_gradient_difference(
        &self,
        _x: &[f64],
        _z: &[f64],
        _rows: Rows<'_>,
        _scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        out.fill(f64::NAN);
    }

    fn add_hessian_vector(
        &self,
        _x: &[f64],
        _v: &[f64],
        _rows: Rows<'_>,
        _scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        out.fill(f64::NAN);
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        f64::NAN
    }

    fn offers(&self) -> Offers {
        self.offers
    }
}

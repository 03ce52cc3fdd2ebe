//! Stand in for a client whose rows are elsewhere: its size is known, its potential is not.

use super::{Likelihood, Offers, Reach, RowReach, Rows};
use crate::linalg::norm_squared;

/// The potential of somebody else's rows. What nobody here can compute is NaN, which every receiver
/// refuses.
#[derive(Clone, Copy, Debug)]
pub struct Absent {
    dim: usize,
    rows: usize,
    offers: Offers,
    /// How large one of its rows can be, where whoever has them says so.
    row: Option<RowReach>,
}

impl Absent {
    /// A client of so many rows, in so many parameters.
    pub fn new(dim: usize, rows: usize) -> Self {
        Absent { dim, rows, offers: Offers::default(), row: None }
    }

    /// The same where whoever has the rows offers this.
    pub fn offering(self, offers: Offers) -> Self {
        Absent { offers, ..self }
    }

    /// The same where whoever has the rows says how large one can be.
    pub fn reaching(self, row: RowReach) -> Self {
        Absent { row: Some(row), ..self }
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

    /// `|U(x)| <= N (loss + C |x|)`, by the mean value theorem, and `|grad U| <= N C`.
    fn reach(&self, x: &[f64]) -> Option<Reach> {
        let (rows, row) = (self.rows as f64, self.row?);
        let value = rows * (row.loss + row.gradient * norm_squared(x).sqrt());
        Some(Reach { value, gradient: rows * row.gradient })
    }
}

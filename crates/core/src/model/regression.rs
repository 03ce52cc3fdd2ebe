//! Write a regression on one linear predictor by the loss of a single row.
//!
//! Whoever adds such a model says how a row's loss depends on the predictor `t = a . x` and on the
//! response `y`, with two derivatives; values, gradients, Hessians and averages over a whole
//! client follow. [`super::Glm`] is the same for linear and logistic regression, made faster.

use super::abreast::{add_losses, add_slopes};
use super::glm::GAUSS_HERMITE;
use super::{Abreast, Design, Likelihood, Rows};
use crate::ask::Sum;
use crate::error::DataError;
use crate::linalg::add_scaled;

/// The loss of one row, given its linear predictor `t` and its response `y`.
///
/// Use the elementary functions of [`crate::simd`]: they have the same bits on every machine. Mark
/// loss and slope `#[inline(always)]`: those at many points are then computed side by side.
pub trait PointLoss: std::fmt::Debug + Send + Sync {
    /// Minus the log-likelihood, without the terms that do not depend on `t`.
    fn loss(&self, t: f64, y: f64) -> f64;

    /// Its derivative in `t`.
    fn slope(&self, t: f64, y: f64) -> f64;

    /// Its second derivative in `t`.
    fn bend(&self, t: f64, y: f64) -> f64;

    /// Replace eight predictors by their losses, each with the bits of [`PointLoss::loss`].
    #[inline(always)]
    fn losses(&self, t: &mut [f64; 8], y: &[f64; 8]) {
        for lane in 0..8 {
            t[lane] = self.loss(t[lane], y[lane]);
        }
    }

    /// The largest second derivative over all `t`; infinite where there is none.
    fn most_bend(&self) -> f64 {
        f64::INFINITY
    }

    /// Whether this can be a response.
    fn accepts(&self, y: f64) -> bool {
        y.is_finite()
    }

    /// Which responses there are, in words.
    fn responses(&self) -> &'static str {
        "finite numbers"
    }
}

/// A regression on one linear predictor: `U_ij(x) = loss(a_j . x, y_j)`.
#[derive(Clone, Debug)]
pub struct Regression<L> {
    design: Design,
    response: Vec<f64>,
    loss: L,
}

impl<L: PointLoss> Regression<L> {
    /// From features and one response a row.
    pub fn new(design: Design, response: Vec<f64>, loss: L) -> Result<Self, DataError> {
        if response.len() != design.rows() {
            return Err(DataError::Responses { responses: response.len(), rows: design.rows() });
        }
        if let Some(row) = response.iter().position(|y| !loss.accepts(*y)) {
            let allowed = loss.responses().into();
            return Err(DataError::Label { row, label: response[row], allowed });
        }
        Ok(Regression { design, response, loss })
    }

    /// `out += scale a a'` of a row `a`, with room for one.
    fn add_square(&self, j: usize, scale: f64, row: &mut [f64], out: &mut [f64]) {
        row.fill(0.0);
        self.design.add_row(j, 1.0, row);
        for (a, out) in row.iter().zip(out.chunks_exact_mut(row.len())) {
            add_scaled(scale * a, row, out);
        }
    }

    /// Do something with each of these rows and its predictor, in ascending order.
    #[inline(always)]
    fn each(&self, x: &[f64], rows: Rows<'_>, mut visit: impl FnMut(usize, f64, f64)) {
        for block in rows.blocks(self.design.rows()) {
            for j in block.iter() {
                visit(*j, self.design.row_dot(*j, x), self.response[*j]);
            }
        }
    }
}

impl<L: PointLoss + 'static> Likelihood for Regression<L> {
    fn dim(&self) -> usize {
        self.design.columns()
    }

    fn rows(&self) -> usize {
        self.design.rows()
    }

    fn scratch(&self) -> usize {
        0
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, _scratch: &mut [f64]) -> f64 {
        let mut total = 0.0;
        self.each(x, rows, |_, t, y| total += self.loss.loss(t, y));
        total
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        self.each(x, rows, |j, t, y| self.design.add_row(j, scale * self.loss.slope(t, y), out));
    }

    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        self.each(x, rows, |j, t, y| {
            let there = self.loss.slope(self.design.row_dot(j, z), y);
            self.design.add_row(j, scale * (self.loss.slope(t, y) - there), out);
        });
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        self.each(x, rows, |j, t, y| {
            let along = self.design.row_dot(j, v);
            self.design.add_row(j, scale * self.loss.bend(t, y) * along, out);
        });
    }

    fn add_hessian(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        let mut row = vec![0.0; self.design.columns()];
        self.each(x, rows, |j, t, y| {
            self.add_square(j, scale * self.loss.bend(t, y), &mut row, out);
        });
    }

    /// The predictor of a row is Gaussian under the law: an integral on a line.
    fn add_average(
        &self,
        law: (&[f64], &[f64]),
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        let (d, (mean, spread)) = (self.design.columns(), law);
        let (gradient, hessian) = out.split_at_mut(d);
        let mut row = vec![0.0; d];
        self.each(mean, rows, |j, centre, y| {
            let along = spread.chunks_exact(d).map(|a| self.design.row_dot(j, a).powi(2));
            let deviation = along.sum::<f64>().sqrt();
            let (mut slope, mut bend) = (0.0, 0.0);
            for (z, weight) in GAUSS_HERMITE {
                for t in [centre + deviation * z, centre - deviation * z] {
                    slope += weight * self.loss.slope(t, y);
                    bend += weight * self.loss.bend(t, y);
                }
            }
            self.design.add_row(j, scale * slope, gradient);
            self.add_square(j, scale * bend, &mut row, hessian);
        });
    }

    fn abreast(&self) -> Option<&dyn Abreast> {
        Some(self)
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        self.loss.most_bend() * self.design.row_norm_squared(row)
    }
}

impl<L: PointLoss + 'static> Abreast for Regression<L> {
    fn coordinates(&self) -> usize {
        self.design.columns()
    }

    fn takes(&self, sum: &Sum<'_>, _rows: Rows<'_>) -> bool {
        matches!(sum, Sum::Value { .. } | Sum::Gradient { .. } | Sum::GradientAndValue { .. })
    }

    fn add_values(&self, points: &[f64], rows: Rows<'_>, out: &mut [f64]) {
        add_losses((&self.design, &self.response, &self.loss), points, rows, out);
    }

    fn add_gradients(
        &self,
        points: &[f64],
        rows: Rows<'_>,
        scale: &[f64],
        out: &mut [f64],
        _scratch: &mut [f64],
    ) {
        add_slopes((&self.design, &self.response, &self.loss), points, rows, scale, out);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::super::{Glm, GlmFamily, Model, Single, tests::normals};
    use super::*;
    use crate::simd::{sigmoid, softplus};

    /// Logistic regression, written in the plain way.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::model) struct Bernoulli;

    impl PointLoss for Bernoulli {
        fn loss(&self, t: f64, y: f64) -> f64 {
            softplus(t) - y * t
        }

        fn slope(&self, t: f64, y: f64) -> f64 {
            sigmoid(t) - y
        }

        fn bend(&self, t: f64, _y: f64) -> f64 {
            let p = sigmoid(t);
            p * (1.0 - p)
        }

        fn most_bend(&self) -> f64 {
            0.25
        }

        fn accepts(&self, y: f64) -> bool {
            y == 0.0 || y == 1.0
        }

        fn responses(&self) -> &'static str {
            "0 or 1"
        }
    }

    #[test]
    fn the_plain_way_gives_the_numbers_of_the_fast_one() {
        let design = || Design::dense(normals(1, 39), 3).unwrap();
        let y: Vec<f64> = (0..13).map(|j| f64::from(u8::from(j % 3 == 0))).collect();
        let plain: Arc<dyn Model> =
            Arc::new(Regression::new(design(), y.clone(), Bernoulli).unwrap());
        let fast: Arc<dyn Model> = Arc::new(Glm::new(design(), y, GlmFamily::Bernoulli).unwrap());
        let (x, mut plain, mut fast) = (normals(2, 3), Single::new(&plain), Single::new(&fast));
        assert_eq!(plain.value(&x), fast.value(&x));
        assert_eq!(plain.gradient(&x), fast.gradient(&x));
    }

    #[test]
    fn wrong_responses_are_refused_with_their_row() {
        let design = || Design::dense(vec![1.0, 2.0], 1).unwrap();
        let bad = Regression::new(design(), vec![0.0, 2.0], Bernoulli).unwrap_err();
        assert_eq!(bad.to_string(), "row 1 has the label 2: labels must be 0 or 1");
        assert!(Regression::new(design(), vec![0.0], Bernoulli).is_err());
    }
}

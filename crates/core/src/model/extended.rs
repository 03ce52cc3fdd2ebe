//! Write a regression that has parameters beside its coefficients, such as a scale or cut points,
//! by the loss of a single row.
//!
//! Whoever adds such a model says how a row's loss depends on the predictor `t = a . x`, on the
//! parameters beside it and on the response `y`, with first and second derivatives, all on the
//! natural scale. What potentials are functions of follows by [`Transforms`], and so do sums over
//! rows. Coefficients come first, the others behind them.

use std::sync::Arc;

use super::adjustment::Adjustment;
use super::transform::Transforms;
use super::{Design, Likelihood, PointLoss, RegressionRows, Rows};
use crate::error::DataError;
use crate::linalg::{add_scaled, dot};
use crate::simd::{Kernel, run_vectorised};

/// The loss of one row, given its linear predictor `t`, the parameters beside the coefficients on
/// their natural scale, and its response `y`.
///
/// Use the elementary functions of [`crate::simd`]: they have the same bits on every machine.
pub trait ExtendedLoss: std::fmt::Debug + Send + Sync {
    /// How many parameters there are beside the coefficients, and what holds them in their place;
    /// ranges start at the first of them.
    fn beside(&self) -> (usize, Transforms);

    /// Minus the log-likelihood. Mark it `#[inline(always)]`: many are then computed side by side
    /// in wide registers.
    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64;

    /// Replace predictors by their losses, each with the bits of [`ExtendedLoss::loss`].
    fn losses(&self, t: &mut [f64], beside: &[f64], y: f64) {
        run_vectorised(Losses { of: self, t, beside, y });
    }

    /// Its derivatives into `slopes`: in `t`, then in the others. And the second derivatives into
    /// `bends`, a symmetric matrix of all of them, row by row.
    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]);

    /// How far apart predictors may be in a sum that stands for an integral of `exp(-loss)` along
    /// them: a sixth of the distance from the real line within which it is analytic and bounded
    /// gives the error `exp(-12 pi)`.
    fn reach(&self, _beside: &[f64]) -> f64 {
        0.25
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

/// The losses of one row at many predictors.
struct Losses<'a, L: ?Sized> {
    of: &'a L,
    t: &'a mut [f64],
    beside: &'a [f64],
    y: f64,
}

impl<L: ExtendedLoss + ?Sized> Kernel for Losses<'_, L> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        for t in self.t.iter_mut() {
            *t = self.of.loss(*t, self.beside, self.y);
        }
    }
}

/// A loss of which parts overflowed against each other is that of an impossible row: whoever
/// proposed the point is refused, and not told that the row is no number.
#[inline(always)]
pub fn settled(loss: f64) -> f64 {
    if loss.is_nan() { f64::INFINITY } else { loss }
}

impl ExtendedLoss for Arc<dyn ExtendedLoss> {
    fn beside(&self) -> (usize, Transforms) {
        (**self).beside()
    }

    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
        (**self).loss(t, beside, y)
    }

    fn losses(&self, t: &mut [f64], beside: &[f64], y: f64) {
        (**self).losses(t, beside, y);
    }

    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        (**self).derive(t, beside, y, slopes, bends);
    }

    fn reach(&self, beside: &[f64]) -> f64 {
        (**self).reach(beside)
    }

    fn accepts(&self, y: f64) -> bool {
        (**self).accepts(y)
    }

    fn responses(&self) -> &'static str {
        (**self).responses()
    }
}

/// A loss that has no parameters beside the coefficients.
#[derive(Clone, Copy, Debug)]
pub struct Unextended<L>(pub L);

impl<L: PointLoss> ExtendedLoss for Unextended<L> {
    fn beside(&self) -> (usize, Transforms) {
        (0, Transforms::default())
    }

    #[inline(always)]
    fn loss(&self, t: f64, _beside: &[f64], y: f64) -> f64 {
        self.0.loss(t, y)
    }

    fn derive(&self, t: f64, _beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        slopes[0] = self.0.slope(t, y);
        bends[0] = self.0.bend(t, y);
    }

    fn accepts(&self, y: f64) -> bool {
        self.0.accepts(y)
    }

    fn responses(&self) -> &'static str {
        self.0.responses()
    }
}

/// A regression with parameters beside its coefficients: `U_ij(x, u) = loss(a_j . x, s(u), y_j)`.
#[derive(Clone, Debug)]
pub struct Extended<L> {
    design: Design,
    response: Vec<f64>,
    loss: L,
    beside: usize,
    transforms: Transforms,
    adjustment: Adjustment,
}

/// What sums over rows are made in: the parameters beside the coefficients on their natural scale,
/// the derivatives of one row, their sums, a direction, and one row.
struct Room<'a> {
    natural: &'a mut [f64],
    slopes: &'a mut [f64],
    bends: &'a mut [f64],
    sum: &'a mut [f64],
    image: &'a mut [f64],
    row: &'a mut [f64],
}

impl<L: ExtendedLoss> Extended<L> {
    /// From features and one response a row.
    pub fn new(design: Design, response: Vec<f64>, loss: L) -> Result<Self, DataError> {
        if response.len() != design.rows() {
            return Err(DataError::Responses { responses: response.len(), rows: design.rows() });
        }
        if let Some(row) = response.iter().position(|y| !loss.accepts(*y)) {
            let allowed = loss.responses().into();
            return Err(DataError::Label { row, label: response[row], allowed });
        }
        let (beside, transforms) = loss.beside();
        let adjustment = Adjustment::default();
        Ok(Extended { design, response, loss, beside, transforms, adjustment })
    }

    /// The same with offsets and weights of rows.
    pub fn adjusted(self, adjustment: Adjustment) -> Result<Self, DataError> {
        adjustment.check(self.design.rows())?;
        Ok(Extended { adjustment, ..self })
    }

    /// The derivatives of a row's loss: see [`ExtendedLoss::derive`].
    #[inline(always)]
    fn derive(&self, row: usize, at: (f64, &[f64], f64), slopes: &mut [f64], bends: &mut [f64]) {
        self.adjustment.derive(&self.loss, row, at, slopes, bends);
    }

    /// How many places of scratch its own sums need.
    fn places(&self) -> usize {
        let m = self.beside;
        3 * m + (1 + m) + (1 + m) * (1 + m) + self.design.columns()
    }

    /// The room, with the parameters at this point.
    fn room<'a>(&self, x: &[f64], scratch: &'a mut [f64]) -> Room<'a> {
        let m = self.beside;
        let (natural, rest) = scratch.split_at_mut(m);
        let (slopes, rest) = rest.split_at_mut(1 + m);
        let (bends, rest) = rest.split_at_mut((1 + m) * (1 + m));
        let (sum, rest) = rest.split_at_mut(m);
        let (image, rest) = rest.split_at_mut(m);
        let row = &mut rest[..self.design.columns()];
        natural.copy_from_slice(&x[self.design.columns()..]);
        self.transforms.outward(natural);
        sum.fill(0.0);
        image.fill(0.0);
        Room { natural, slopes, bends, sum, image, row }
    }

    /// Do something with each of these rows and its predictor, in ascending order.
    #[inline(always)]
    fn each(&self, x: &[f64], rows: Rows<'_>, mut visit: impl FnMut(usize, f64, f64)) {
        let coefficients = &x[..self.design.columns()];
        for block in rows.blocks(self.design.rows()) {
            for j in block.iter() {
                visit(*j, self.design.row_dot(*j, coefficients), self.response[*j]);
            }
        }
    }
}

impl<L: ExtendedLoss> RegressionRows for Extended<L> {
    fn columns(&self) -> usize {
        self.design.columns()
    }

    fn row(&self, row: usize, out: &mut [f64]) -> f64 {
        out.fill(0.0);
        self.design.add_row(row, 1.0, out);
        self.response[row]
    }
}

impl<L: ExtendedLoss + 'static> Likelihood for Extended<L> {
    fn dim(&self) -> usize {
        self.design.columns() + self.beside
    }

    fn rows(&self) -> usize {
        self.design.rows()
    }

    fn scratch(&self) -> usize {
        self.places() + 2 * self.dim()
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        let room = self.room(x, scratch);
        let mut total = 0.0;
        self.each(x, rows, |j, t, y| {
            total += self.adjustment.loss(&self.loss, j, t, room.natural, y);
        });
        total
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (own, beside) = out.split_at_mut(self.design.columns());
        let Room { natural, slopes, bends, sum, .. } = self.room(x, scratch);
        self.each(x, rows, |j, t, y| {
            self.derive(j, (t, natural, y), slopes, bends);
            self.design.add_row(j, scale * slopes[0], own);
            add_scaled(1.0, &slopes[1..], sum);
        });
        self.transforms.pull_back(&x[own.len()..], sum);
        add_scaled(scale, sum, beside);
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
        let (columns, m) = (self.design.columns(), self.beside);
        let (own, beside) = out.split_at_mut(columns);
        let Room { natural, slopes, bends, sum, image, .. } = self.room(x, scratch);
        let u = &x[columns..];
        // the direction of the parameters beside, on the natural scale
        let mut along_beside = [0.0; MOST_BESIDE];
        let along_beside = &mut along_beside[..m];
        along_beside.copy_from_slice(&v[columns..]);
        self.transforms.push_forward(u, along_beside);
        self.each(x, rows, |j, t, y| {
            self.derive(j, (t, natural, y), slopes, bends);
            let along = self.design.row_dot(j, &v[..columns]);
            let weight = bends[0] * along + dot(&bends[1..=m], along_beside);
            self.design.add_row(j, scale * weight, own);
            for k in 0..m {
                let bend = &bends[(1 + k) * (1 + m)..(2 + k) * (1 + m)];
                image[k] += bend[0] * along + dot(&bend[1..], along_beside);
            }
            add_scaled(1.0, &slopes[1..], sum);
        });
        self.transforms.pull_back(u, image);
        self.transforms.bends(u, sum, |k, bend| image[k] += bend * v[columns + k]);
        add_scaled(scale, image, beside);
    }

    fn add_hessian(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (columns, m, d) = (self.design.columns(), self.beside, self.dim());
        let u = &x[columns..];
        let Room { natural, slopes, bends, sum, row, .. } = self.room(x, scratch);
        // what belongs to the parameters beside, on the natural scale: with coefficients, then
        // among themselves
        let mut across = vec![0.0; m * columns];
        let mut among = vec![0.0; m * m];
        self.each(x, rows, |j, t, y| {
            self.derive(j, (t, natural, y), slopes, bends);
            row.fill(0.0);
            self.design.add_row(j, 1.0, row);
            for (a, out) in row.iter().zip(out.chunks_exact_mut(d)) {
                add_scaled(scale * bends[0] * a, row, &mut out[..columns]);
            }
            for k in 0..m {
                let bend = &bends[(1 + k) * (1 + m)..(2 + k) * (1 + m)];
                add_scaled(bend[0], row, &mut across[k * columns..(k + 1) * columns]);
                add_scaled(1.0, &bend[1..], &mut among[k * m..(k + 1) * m]);
            }
            add_scaled(1.0, &slopes[1..], sum);
        });
        let mut one = vec![0.0; m];
        for c in 0..columns {
            (0..m).for_each(|k| one[k] = across[k * columns + c]);
            self.transforms.pull_back(u, &mut one);
            for k in 0..m {
                out[c * d + columns + k] += scale * one[k];
                out[(columns + k) * d + c] += scale * one[k];
            }
        }
        for row in among.chunks_exact_mut(m.max(1)) {
            self.transforms.pull_back(u, row);
        }
        for l in 0..m {
            (0..m).for_each(|k| one[k] = among[k * m + l]);
            self.transforms.pull_back(u, &mut one);
            (0..m).for_each(|k| out[(columns + k) * d + columns + l] += scale * one[k]);
        }
        self.transforms.bends(u, sum, |k, bend| out[(columns + k) * (d + 1)] += scale * bend);
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        f64::INFINITY
    }

    fn observed(&self) -> Option<&dyn RegressionRows> {
        Some(self)
    }
}

/// The most parameters that a model has beside its coefficients.
pub const MOST_BESIDE: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Model, Transform, contract, tests::normals};
    use super::*;
    use crate::simd::ln;

    /// A scale, and two places that rise: a made-up loss that uses all of them.
    #[derive(Clone, Copy, Debug)]
    struct Made;

    impl ExtendedLoss for Made {
        fn beside(&self) -> (usize, Transforms) {
            (3, Transforms::new([(0..1, Transform::Positive), (1..3, Transform::Ordered)]))
        }

        fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
            let [s, c, e] = [beside[0], beside[1], beside[2]];
            0.5 * ((y - t - c) / s).powi(2) + ln(s) + 0.3 * (e - y) * (e - y)
        }

        fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
            let [s, c, e] = [beside[0], beside[1], beside[2]];
            let (r, w) = (y - t - c, 1.0 / (s * s));
            slopes.copy_from_slice(&[-r * w, (1.0 - r * r * w) / s, -r * w, 0.6 * (e - y)]);
            let across = 2.0 * r * w / s;
            let scale = (3.0 * r * r * w - 1.0) * w;
            bends.copy_from_slice(&[
                w, across, w, 0.0, //
                across, scale, across, 0.0, //
                w, across, w, 0.0, //
                0.0, 0.0, 0.0, 0.6,
            ]);
        }
    }

    #[test]
    fn it_keeps_what_models_promise() {
        let design = Design::dense(normals(1, 26), 2).unwrap();
        let model: Arc<dyn Model> = Arc::new(Extended::new(design, normals(2, 13), Made).unwrap());
        assert_eq!(model.dim(), 5);
        contract::check(&model).unwrap_or_else(|broken| panic!("{broken}"));
    }

    #[test]
    fn responses_that_cannot_be_are_refused() {
        let design = || Design::dense(vec![1.0, 2.0], 1).unwrap();
        assert!(Extended::new(design(), vec![1.0], Made).is_err());
        let bad = Extended::new(design(), vec![1.0, f64::NAN], Made).unwrap_err();
        assert!(bad.to_string().starts_with("row 1 has the label NaN"), "{bad}");
    }
}

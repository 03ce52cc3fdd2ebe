//! Integrate the effects of groups out of a regression: `(1 | group)`.
//!
//! Rows of a group share an effect `tau v` with `v ~ N(0, 1)`, which is added to their linear
//! predictor. Given the coefficients, the parameters `s` beside them and `tau`, groups are
//! independent of each other, so that
//!
//! ```text
//! U_g(beta, s, tau) = -log integral exp(-phi_g(v)) dv,
//! phi_g(v) = sum_j loss(a_j . beta + tau v, s, y_j) + v^2 / 2 + log(2 pi) / 2
//! ```
//!
//! is a function of what all sites share: no effect is sampled, kept or sent. What a site wants to
//! know of its own groups it draws from their law given the draws of the posterior
//! ([`GroupEffects::draw`]): pairs of both have the law of the whole model.
//!
//! The integral is a sum over equidistant points around the mode. For analytic integrands that
//! vanish at both ends its error is exponentially small in the number of points: with the spacing
//! below it is lost in rounding. It does not depend on where the first point lies, so derivatives
//! may take the points as fixed: with `E` the mean over the law of `v` given the rows,
//! `grad U = E grad phi` and `hess U = E hess phi - cov(grad phi)`.
//!
//! What the contract of models calls a row is a group here.

use std::f64::consts::TAU;

use super::adjustment::Adjustment;
use super::transform::{Transform, Transforms};
use super::{Design, ExtendedLoss, Likelihood, Rows};
use crate::error::DataError;
use crate::linalg::add_scaled;
use crate::rng::Stream;
use crate::simd::{exp, ln};

/// Points on each side of the mode, at most.
const MOST: usize = 400;
/// Points are left out whose weight is below `exp(-36)`, 2e-16.
const NEGLIGIBLE: f64 = 36.0;
/// Points in units of the width of the law of `v`: the error of a Gaussian is `exp(-55)`.
const SPACING: f64 = 0.6;
/// How many widths from the mode points reach at least.
const FARTHEST: f64 = 9.0;

/// The negative log-likelihood of rows in groups, without the groups' effects. Parameters are the
/// coefficients, those beside them, and the standard deviation of effects, which is positive.
#[derive(Clone, Debug)]
pub struct GroupEffects<L> {
    design: Design,
    response: Vec<f64>,
    loss: L,
    /// How many parameters there are beside the coefficients, `tau` included.
    beside: usize,
    /// What holds these in their place.
    transforms: Transforms,
    /// The rows, group by group.
    order: Vec<u32>,
    /// Where groups begin among these, and where the last ends.
    starts: Vec<usize>,
    adjustment: Adjustment,
}

/// One group at one point: its rows' predictors without the effect, and the law of `v`.
struct Law<'a> {
    predictors: &'a [f64],
    /// `v` and its probability.
    points: &'a [[f64; 2]],
    at: Natural<'a>,
    /// `U_g`.
    value: f64,
    /// Between points.
    spacing: f64,
}

/// Where laws are made, and where.
struct Room<'a> {
    predictors: &'a mut [f64],
    points: &'a mut [[f64; 2]],
    natural: Natural<'a>,
    derivatives: Derivatives<'a>,
}

/// Parameters beside the coefficients on their natural scale, and `tau`.
#[derive(Clone, Copy)]
struct Natural<'a> {
    beside: &'a [f64],
    tau: f64,
}

/// Those of one row's loss: in its predictor, then in the parameters beside.
struct Derivatives<'a> {
    slopes: &'a mut [f64],
    bends: &'a mut [f64],
}

impl<L: ExtendedLoss + 'static> GroupEffects<L> {
    /// From features, responses, and the group of every row: groups are numbered from 0 without
    /// gaps.
    pub fn new(
        design: Design,
        response: Vec<f64>,
        loss: L,
        group_of: &[u32],
    ) -> Result<Self, DataError> {
        if response.len() != design.rows() || group_of.len() != design.rows() {
            let responses = response.len().min(group_of.len());
            return Err(DataError::Responses { responses, rows: design.rows() });
        }
        if let Some(row) = response.iter().position(|y| !loss.accepts(*y)) {
            let allowed = loss.responses().into();
            return Err(DataError::Label { row, label: response[row], allowed });
        }
        let groups = group_of.iter().max().map_or(0, |last| *last as usize + 1);
        let mut starts = vec![0; groups + 1];
        group_of.iter().for_each(|group| starts[*group as usize + 1] += 1);
        (0..groups).for_each(|group| starts[group + 1] += starts[group]);
        let mut order: Vec<u32> = (0..design.rows() as u32).collect();
        order.sort_by_key(|row| group_of[*row as usize]); // stable: rows stay in ascending order
        let (own, held) = loss.beside();
        let last = [(own..own + 1, Transform::Positive)];
        let transforms = Transforms::new(held.groups().iter().cloned().chain(last));
        let (beside, adjustment) = (own + 1, Adjustment::default());
        Ok(GroupEffects { design, response, loss, beside, transforms, order, starts, adjustment })
    }

    /// The same with offsets and weights of rows.
    pub fn adjusted(self, adjustment: Adjustment) -> Result<Self, DataError> {
        adjustment.check(self.design.rows())?;
        Ok(GroupEffects { adjustment, ..self })
    }

    /// The derivatives of a row's loss where the effect of its group is added: see
    /// [`ExtendedLoss::derive`].
    #[inline(always)]
    fn derive(&self, row: u32, t: f64, at: Natural<'_>, v: f64, room: &mut Derivatives<'_>) {
        let (row, y) = (row as usize, self.response[row as usize]);
        let at = (t + at.tau * v, at.beside, y);
        self.adjustment.derive(&self.loss, row, at, room.slopes, room.bends);
    }

    fn rows_of(&self, group: usize) -> &[u32] {
        &self.order[self.starts[group]..self.starts[group + 1]]
    }

    fn largest_group(&self) -> usize {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// `phi_g(v)` without derivatives.
    fn phi(&self, rows: &[u32], predictors: &[f64], at: Natural<'_>, v: f64) -> f64 {
        let mut sum = 0.5 * v * v + 0.5 * TAU.ln();
        for (row, t) in rows.iter().zip(predictors) {
            let (row, y) = (*row as usize, self.response[*row as usize]);
            sum += self.adjustment.loss(&self.loss, row, t + at.tau * v, at.beside, y);
        }
        sum
    }

    /// The first and second derivative of `phi_g` in `v`.
    fn bent(
        &self,
        rows: &[u32],
        predictors: &[f64],
        at: Natural<'_>,
        v: f64,
        room: &mut Derivatives<'_>,
    ) -> (f64, f64) {
        let (mut slope, mut bend) = (v, 1.0);
        for (row, t) in rows.iter().zip(predictors) {
            self.derive(*row, *t, at, v, room);
            slope += at.tau * room.slopes[0];
            bend += at.tau * at.tau * room.bends[0];
        }
        (slope, bend)
    }

    /// Where `phi_g` is smallest, to a hundredth of its width: Newton's method within what is known
    /// to hold the place. And the width.
    fn mode(
        &self,
        rows: &[u32],
        predictors: &[f64],
        at: Natural<'_>,
        room: &mut Derivatives<'_>,
    ) -> (f64, f64) {
        let (mut v, mut least, mut most) = (0.0, f64::NEG_INFINITY, f64::INFINITY);
        let mut width = 1.0;
        for _ in 0..100 {
            let (slope, bend) = self.bent(rows, predictors, at, v, room);
            // Where the loss is not convex the bend may be less than the prior's.
            let bend = bend.max(0.1);
            width = 1.0 / bend.sqrt();
            if slope > 0.0 {
                most = v;
            } else {
                least = v;
            }
            let step = -slope / bend;
            if step.abs() <= 0.01 * width || !step.is_finite() {
                break;
            }
            let (next, middle) = (v + step, 0.5 * (least + most));
            v = if next > least && next < most || !middle.is_finite() { next } else { middle };
        }
        (v, width)
    }

    /// The law of a group's `v` at a point, by points that are so many times as near as integrals
    /// need: in this room, whose derivatives are lent out again.
    fn law<'a, 'r>(
        &self,
        group: usize,
        x: &[f64],
        finer: f64,
        room: &'a mut Room<'r>,
    ) -> (Law<'a>, &'a mut Derivatives<'r>) {
        let (rows, at) = (self.rows_of(group), room.natural);
        let predictors = &mut room.predictors[..rows.len()];
        for (t, row) in predictors.iter_mut().zip(rows) {
            *t = self.design.row_dot(*row as usize, &x[..self.design.columns()]);
        }
        let (mode, width) = self.mode(rows, predictors, at, &mut room.derivatives);
        let most = room.points.len() / 2;
        let spacing = (SPACING * width).min(self.loss.reach(at.beside) / at.tau) / finer;
        // Where effects are so large that a row's loss is a step, points must last to both ends.
        let spacing = spacing.max(FARTHEST * width / most as f64);
        let lowest = self.phi(rows, predictors, at, mode);
        let (mut count, mut total) = (0, 0.0);
        for (side, first) in [(1.0, 0), (-1.0, 1)] {
            for k in first..most {
                let v = mode + side * spacing * k as f64;
                let above = self.phi(rows, predictors, at, v) - lowest;
                let weight = exp(-above);
                room.points[count] = [v, weight];
                count += 1;
                total += weight;
                if above > NEGLIGIBLE {
                    break;
                }
            }
        }
        let points = &mut room.points[..count];
        points.iter_mut().for_each(|point| point[1] /= total);
        let value = lowest - ln(spacing * total);
        (Law { predictors, points, at, value, spacing }, &mut room.derivatives)
    }

    /// Room for laws at this point.
    fn room<'a>(&self, x: &[f64], points: usize, scratch: &'a mut [f64]) -> Room<'a> {
        let m = self.beside;
        let (natural, rest) = scratch.split_at_mut(m);
        natural.copy_from_slice(&x[self.design.columns()..]);
        self.transforms.outward(natural);
        let (slopes, rest) = rest.split_at_mut(m);
        let (bends, rest) = rest.split_at_mut(m * m);
        let (predictors, rest) = rest.split_at_mut(self.largest_group());
        Room {
            predictors,
            points: &mut rest.as_chunks_mut().0[..points],
            natural: Natural { beside: &natural[..m - 1], tau: natural[m - 1] },
            derivatives: Derivatives { slopes, bends },
        }
    }

    /// How many places that takes.
    fn places(&self, points: usize) -> usize {
        2 * self.beside + self.beside * self.beside + self.largest_group() + 2 * points
    }

    /// Do something with the law of each of these groups, in ascending order.
    fn each(
        &self,
        x: &[f64],
        groups: Rows<'_>,
        scratch: &mut [f64],
        mut visit: impl FnMut(&[u32], Law<'_>, &mut Derivatives<'_>),
    ) {
        let mut room = self.room(x, 2 * MOST, scratch);
        for block in groups.blocks(self.starts.len() - 1) {
            for group in block.iter() {
                let (law, derivatives) = self.law(*group, x, 1.0, &mut room);
                visit(self.rows_of(*group), law, derivatives);
            }
        }
    }

    /// The effects of all groups, on the scale of the linear predictor: drawn from their law given
    /// the parameters. A point of the law is drawn, and a triangle of the points' spacing is laid
    /// around it, which widens the law's variance by less than a thousandth.
    pub fn draw(&self, x: &[f64], stream: &mut Stream) -> Vec<f64> {
        const FINER: usize = 12;
        let mut scratch = vec![0.0; self.places(2 * MOST * FINER)];
        let mut room = self.room(x, 2 * MOST * FINER, &mut scratch);
        let draw = |group: usize| {
            let (law, _) = self.law(group, x, FINER as f64, &mut room);
            let mut left = stream.uniform();
            let drawn = law.points.iter().find(|[_, probability]| {
                left -= probability;
                left < 0.0
            });
            let v = drawn.or(law.points.first()).map_or(0.0, |[v, _]| *v);
            law.at.tau * (v + law.spacing * (stream.uniform() - stream.uniform()))
        };
        (0..self.starts.len() - 1).map(draw).collect()
    }
}

impl<L: ExtendedLoss + 'static> Likelihood for GroupEffects<L> {
    fn dim(&self) -> usize {
        self.design.columns() + self.beside
    }

    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    fn scratch(&self) -> usize {
        // The two vectors at the end are for a difference of gradients, and one for a gradient.
        self.places(2 * MOST) + self.beside + 2 * Likelihood::dim(self)
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        let mut total = 0.0;
        self.each(x, rows, scratch, |_, law, _| total += law.value);
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
        let (sum, scratch) = scratch.split_at_mut(self.beside);
        let m = sum.len() - 1;
        sum.fill(0.0);
        self.each(x, rows, scratch, |rows, law, room| {
            for (row, t) in rows.iter().zip(law.predictors) {
                let mut slope = 0.0;
                for [v, p] in law.points {
                    self.derive(*row, *t, law.at, *v, room);
                    slope += p * room.slopes[0];
                    add_scaled(*p, &room.slopes[1..], &mut sum[..m]);
                    sum[m] += p * room.slopes[0] * v;
                }
                self.design.add_row(*row as usize, scale * slope, own);
            }
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
        let d = Likelihood::dim(self);
        let mut hessian = vec![0.0; d * d];
        self.add_hessian(x, rows, scale, &mut hessian, scratch);
        for (v, row) in v.iter().zip(hessian.chunks_exact(d)) {
            add_scaled(*v, row, out);
        }
    }

    fn add_hessian(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (d, columns, m) = (Likelihood::dim(self), self.design.columns(), self.beside - 1);
        // On the natural scale: the gradient of phi at every point of a group, their mean, the sum
        // over groups, one row's own part, and the Hessian.
        let (mut gradients, mut mean) = (vec![0.0; 2 * MOST * d], vec![0.0; d]);
        let (mut sum, mut a) = (vec![0.0; d], vec![0.0; d]);
        let mut natural = vec![0.0; d * d];
        // A row's Hessian in its predictor, the parameters beside and tau, on average.
        let k = m + 2;
        let mut bends = vec![0.0; k * k];
        self.each(x, rows, scratch, |rows, law, room| {
            let gradients = &mut gradients[..law.points.len() * d];
            gradients.fill(0.0);
            for (row, t) in rows.iter().zip(law.predictors) {
                a.fill(0.0);
                self.design.add_row(*row as usize, 1.0, &mut a[..columns]);
                bends.fill(0.0);
                for ([v, p], gradient) in law.points.iter().zip(gradients.chunks_exact_mut(d)) {
                    self.derive(*row, *t, law.at, *v, room);
                    add_scaled(room.slopes[0], &a[..columns], &mut gradient[..columns]);
                    add_scaled(1.0, &room.slopes[1..], &mut gradient[columns..d - 1]);
                    gradient[d - 1] += room.slopes[0] * v;
                    for i in 0..=m {
                        let bend = &room.bends[i * (m + 1)..(i + 1) * (m + 1)];
                        add_scaled(*p, bend, &mut bends[i * k..i * k + m + 1]);
                        bends[i * k + m + 1] += p * bend[0] * v;
                    }
                    bends[k * k - 1] += p * room.bends[0] * v * v;
                }
                (0..=m).for_each(|i| bends[(k - 1) * k + i] = bends[i * k + k - 1]);
                for i in 0..columns {
                    let out = &mut natural[i * d..(i + 1) * d];
                    add_scaled(bends[0] * a[i], &a[..columns], &mut out[..columns]);
                    add_scaled(a[i], &bends[1..k], &mut out[columns..]);
                }
                for i in 1..k {
                    let out = &mut natural[(columns + i - 1) * d..(columns + i) * d];
                    add_scaled(bends[i * k], &a[..columns], &mut out[..columns]);
                    add_scaled(1.0, &bends[i * k + 1..(i + 1) * k], &mut out[columns..]);
                }
            }
            mean.fill(0.0);
            for ([_, p], gradient) in law.points.iter().zip(gradients.chunks_exact(d)) {
                add_scaled(*p, gradient, &mut mean);
            }
            add_scaled(1.0, &mean, &mut sum);
            for ([_, p], gradient) in law.points.iter().zip(gradients.chunks_exact_mut(d)) {
                add_scaled(-1.0, &mean, gradient);
                for (own, out) in gradient.iter().zip(natural.chunks_exact_mut(d)) {
                    add_scaled(-p * own, gradient, out);
                }
            }
        });
        self.transforms.pull_back_hessian(&x[columns..], &sum[columns..], &mut natural, d);
        add_scaled(scale, &natural, out);
    }

    /// Nobody knows one: the law of an effect moves with the parameters.
    fn row_smoothness(&self, _group: usize) -> f64 {
        f64::NAN
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::regression::tests::Bernoulli;
    use super::super::tests::normals;
    use super::super::{Model, Regression, Single, Unextended, contract};
    use super::*;
    use crate::rng::{ClientId, Purpose, Seed};

    /// Normal responses of an unknown standard deviation: integrals are known.
    #[derive(Clone, Copy, Debug)]
    struct Normal;

    impl ExtendedLoss for Normal {
        fn beside(&self) -> (usize, Transforms) {
            (1, Transforms::new([(0..1, Transform::Positive)]))
        }

        fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
            0.5 * ((t - y) / beside[0]).powi(2) + ln(beside[0])
        }

        fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
            let (s, r) = (beside[0], t - y);
            slopes.copy_from_slice(&[r / s.powi(2), 1.0 / s - r * r / s.powi(3)]);
            let across = -2.0 * r / s.powi(3);
            let own = 3.0 * r * r / s.powi(4) - 1.0 / s.powi(2);
            bends.copy_from_slice(&[1.0 / s.powi(2), across, across, own]);
        }

        fn reach(&self, _beside: &[f64]) -> f64 {
            f64::INFINITY
        }
    }

    const GROUPS: [u32; 13] = [0, 3, 1, 1, 2, 0, 1, 2, 2, 2, 1, 2, 2];

    fn design() -> Design {
        Design::dense(normals(1, 39), 3).unwrap()
    }

    fn binary() -> GroupEffects<Unextended<Bernoulli>> {
        let y = (0..13).map(|j| f64::from(u8::from(j % 3 == 0))).collect();
        GroupEffects::new(design(), y, Unextended(Bernoulli), &GROUPS).unwrap()
    }

    #[test]
    fn groups_keep_what_models_promise() {
        let normal = GroupEffects::new(design(), normals(3, 13), Normal, &GROUPS).unwrap();
        let models: [(Arc<dyn Model>, usize); 2] = [(Arc::new(binary()), 4), (Arc::new(normal), 5)];
        for (model, dim) in models {
            assert_eq!((model.dim(), model.rows()), (dim, 4));
            contract::check(&model).unwrap();
        }
    }

    /// Responses of a group are Gaussian: variance `s^2` on the diagonal and `tau^2` everywhere.
    /// For n of them with sum r and sum of squares q of the residuals, `2 U = (q - tau^2 r^2 / (s^2
    /// + n tau^2)) / s^2 + n log s^2 + log(1 + n tau^2 / s^2)`.
    #[test]
    fn gaussian_effects_are_integrated_exactly() {
        let (x, y) = (normals(2, 3), normals(3, 13));
        let model: Arc<dyn Model> =
            Arc::new(GroupEffects::new(design(), y.clone(), Normal, &GROUPS).unwrap());
        for (log_s, log_tau) in [(-0.3, -3.0), (0.5, -0.5), (0.0, 0.0), (-2.0, 1.0), (1.0, 2.5)] {
            let at = [&x[..], &[log_s, log_tau]].concat();
            let (s2, tau2) = (f64::exp(2.0 * log_s), f64::exp(2.0 * log_tau));
            let of_group = |group| {
                let rows = (0..13).filter(|row| GROUPS[*row] == group);
                let left: Vec<f64> = rows.map(|row| y[row] - design().row_dot(row, &x)).collect();
                let (n, r) = (left.len() as f64, left.iter().sum::<f64>());
                let q: f64 = left.iter().map(|r| r * r).sum();
                let quadratic = (q - tau2 * r * r / (s2 + n * tau2)) / s2;
                0.5 * (quadratic + n * s2.ln() + (1.0 + n * tau2 / s2).ln())
            };
            let exact: f64 = (0..4).map(of_group).sum();
            let found = Single::new(&model).value(&at);
            assert!((found - exact).abs() < 1e-11 * (1.0 + exact.abs()), "{found} is not {exact}");
        }
    }

    /// By Simpson's rule on a grid that has nothing to do with the mode.
    #[test]
    fn effects_of_binary_rows_are_integrated_to_ten_digits() {
        let model = binary();
        let mut scratch = vec![0.0; Likelihood::scratch(&model)];
        for log_tau in [-2.0, 0.0, 1.0, 2.0] {
            let x = [0.4, -1.1, 0.7, log_tau];
            for group in 0..4u32 {
                let rows = model.rows_of(group as usize);
                let predictors: Vec<f64> =
                    rows.iter().map(|row| model.design.row_dot(*row as usize, &x[..3])).collect();
                let (n, least, most) = (20_000, -12.0, 12.0);
                let h = (most - least) / f64::from(n);
                let density = |k: i32| {
                    let u = least + h * f64::from(k);
                    let at = Natural { beside: &[], tau: f64::exp(log_tau) };
                    (-model.phi(rows, &predictors, at, u)).exp()
                };
                let weight = |k: i32| match k {
                    0 => 1.0,
                    _ if k == n => 1.0,
                    _ => 2.0 + 2.0 * f64::from(k % 2),
                };
                let integral: f64 = (0..=n).map(|k| weight(k) * density(k)).sum::<f64>() * h / 3.0;
                let found = Likelihood::value(&model, &x, Rows::Some(&[group]), &mut scratch);
                assert!((found + integral.ln()).abs() < 1e-10, "{log_tau}, {group}: {found}");
            }
        }
    }

    /// Without effects the model is the regression; a group of one row has its marginal law.
    #[test]
    fn without_effects_groups_are_rows() {
        let plain: Arc<dyn Model> = Arc::new(
            Regression::new(
                design(),
                (0..13).map(|j| f64::from(u8::from(j % 3 == 0))).collect(),
                Bernoulli,
            )
            .unwrap(),
        );
        let grouped: Arc<dyn Model> = Arc::new(binary());
        let (x, far) = ([0.4, -1.1, 0.7], [0.4, -1.1, 0.7, -30.0]);
        let (a, b) = (Single::new(&plain).value(&x), Single::new(&grouped).value(&far));
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    /// Means and variances of drawn effects against those of Gaussian conditionals, within 4.9
    /// standard errors.
    #[test]
    fn effects_are_drawn_from_their_law() {
        let (x, y) = (normals(2, 3), normals(3, 13));
        let model = GroupEffects::new(design(), y.clone(), Normal, &GROUPS).unwrap();
        let (s2, tau2, draws) = (0.5, 0.7f64.powi(2), 20_000);
        let at = [x[0], x[1], x[2], 0.5 * f64::ln(s2), 0.7f64.ln()];
        let mut sums = [[0.0; 2]; 4];
        for k in 0..draws {
            let mut stream = Seed::new(3).stream(Purpose::Data, ClientId(1), k);
            for (sum, effect) in sums.iter_mut().zip(model.draw(&at, &mut stream)) {
                *sum = [sum[0] + effect, sum[1] + effect * effect];
            }
        }
        for (group, sum) in sums.iter().enumerate() {
            let rows = (0..13).filter(|row| GROUPS[*row] as usize == group);
            let left: Vec<f64> = rows.map(|row| y[row] - design().row_dot(row, &x)).collect();
            let variance = 1.0 / (1.0 / tau2 + left.len() as f64 / s2);
            let mean = variance / s2 * left.iter().sum::<f64>();
            let n = draws as f64;
            let (found, second) = (sum[0] / n, sum[1] / n);
            let error = (variance / n).sqrt();
            assert!((found - mean).abs() < 4.9 * error, "{group}: {found} is not {mean}");
            let spread = second - found * found;
            let error = variance * (2.0 / n).sqrt();
            assert!((spread - variance).abs() < 4.9 * error, "{group}: {spread}, {variance}");
        }
    }

    #[test]
    fn wrong_responses_and_groups_are_refused() {
        let bad = |y: Vec<f64>, groups: &[u32]| {
            GroupEffects::new(
                Design::dense(vec![1.0; 2], 1).unwrap(),
                y,
                Unextended(Bernoulli),
                groups,
            )
            .unwrap_err()
            .to_string()
        };
        assert_eq!(bad(vec![0.0, 2.0], &[0, 0]), "row 1 has the label 2: labels must be 0 or 1");
        assert!(bad(vec![0.0, 1.0], &[0]).contains('1'));
    }
}

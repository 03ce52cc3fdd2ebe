//! Integrate values of columns that are missing out of a regression: `mi(x)`.
//!
//! Some columns `x_1 .. x_J` of the design are not known in every row. Given the others, `z`, which
//! are, they are normal and independent of each other,
//!
//! ```text
//! x_j | z ~ N(mu_j, s_j^2),   mu_j = a_j + b_j . z,
//! ```
//!
//! and `a`, `b`, `s` are parameters beside those of the regression. A row that knows `x_j` adds its
//! log-density. In a row that lacks the columns `M` what they add to the predictor is normal, so
//! that one integral on a line is left, whatever the number of them:
//!
//! ```text
//! U = F(t, h) = -log E exp(-loss(t + sqrt(2 h) u, s, y)),   u ~ N(0, 1),
//! t = sum_{k not in M} x_k beta_k + sum_{j in M} beta_j mu_j,   2 h = sum_{j in M} beta_j^2 s_j^2.
//! ```
//!
//! No missing value is sampled, kept or sent, and the posterior of all that is shared is that of
//! the model in which each is a parameter. The integral is a sum over equidistant points around the
//! mode of the integrand, whose error is exponentially small ([`super::GroupEffects`]). With `E`
//! the mean over the law of `u` given the row, and `l` the loss, `F_t = E l'` and, by parts,
//! `F_h = E (l'' - l'^2)`: nothing is divided by `h`, which is 0 where coefficients are.
//!
//! Parameters: coefficients; those of the loss; `a_1, b_1, a_2, b_2, ..`; `s_1, s_2, ..`.

use std::f64::consts::TAU;

use super::transform::{Transform, Transforms};
use super::{Design, ExtendedLoss, Likelihood, Rows};
use crate::error::DataError;
use crate::linalg::add_scaled;
use crate::simd::{exp, ln};

/// What stands in a cell of a design whose value nobody knows.
pub const ABSENT: f64 = f64::MAX;

/// Points on each side of the mode, at most.
const MOST: usize = 400;
/// Points are left out whose weight is below `exp(-36)`, 2e-16.
const NEGLIGIBLE: f64 = 36.0;
/// Points in units of the width of the law of `u`: the error of a Gaussian is `exp(-55)`.
const SPACING: f64 = 0.6;
/// How many widths from the mode points reach at least.
const FARTHEST: f64 = 9.0;
/// The most columns that may be incomplete.
const MOST_COLUMNS: usize = 64;

/// Which columns of a design lack values: so many from the first on. All behind them are known, as
/// is a column of ones before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// The first.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl Lacking {
    /// How many parameters their laws have, where the design has so many columns.
    pub fn parameters(self, columns: usize) -> usize {
        self.count * (self.given(columns) + 2)
    }

    /// How many columns they are explained by, beside an intercept.
    pub fn given(self, columns: usize) -> usize {
        columns.saturating_sub(self.first + self.count)
    }

    /// How many columns a design has that makes so many parameters, where the loss has `own` of
    /// them.
    pub fn columns(self, dim: usize, own: usize) -> usize {
        let less = dim + self.count * (self.first + self.count);
        less.saturating_sub(own + 2 * self.count) / (1 + self.count)
    }

    /// The mean of a column given a row of the design, by the parameters of laws.
    pub fn mean(self, design: &Design, row: usize, laws: &[f64], which: usize) -> f64 {
        let given = self.given(design.columns());
        let own = &laws[which * (given + 1)..(which + 1) * (given + 1)];
        let behind = self.first + self.count;
        let each = own[1..].iter().enumerate();
        own[0] + each.map(|(k, b)| b * design.cell(row, behind + k)).sum::<f64>()
    }

    /// Its standard deviation, by the same.
    pub fn sd(self, columns: usize, laws: &[f64], which: usize) -> f64 {
        laws[self.count * (self.given(columns) + 1) + which]
    }
}

/// The negative log-likelihood of rows in which some columns are missing.
#[derive(Clone, Debug)]
pub struct Incomplete<L> {
    /// With 0 where a value is missing.
    design: Design,
    response: Vec<f64>,
    loss: L,
    lacking: Lacking,
    /// Which of these columns are missing in each row, one bit each.
    missing: Vec<u64>,
    offset: Vec<f64>,
    /// How many parameters the loss has, and how many there are behind the coefficients.
    own: usize,
    beside: usize,
    transforms: Transforms,
}

/// Where sums are made: parameters behind the coefficients on their natural scale, the derivatives
/// of one loss, points of an integral, and the means of incomplete columns.
struct Room<'a> {
    natural: &'a mut [f64],
    slopes: &'a mut [f64],
    bends: &'a mut [f64],
    points: &'a mut [[f64; 2]],
    means: &'a mut [f64],
}

/// One row: its predictor without what is missing, the root of `2 h`, how many points its integral
/// has, and its value.
#[derive(Clone, Copy)]
struct Law {
    t: f64,
    tau: f64,
    points: usize,
    value: f64,
}

impl<L: ExtendedLoss + 'static> Incomplete<L> {
    /// From features, [`ABSENT`] where they are missing, and one response a row.
    pub fn new(
        design: &Design,
        response: Vec<f64>,
        loss: L,
        lacking: Lacking,
    ) -> Result<Self, DataError> {
        let (rows, columns) = (design.rows(), design.columns());
        if response.len() != rows {
            return Err(DataError::Responses { responses: response.len(), rows });
        }
        if let Some(row) = response.iter().position(|y| !loss.accepts(*y)) {
            let allowed = loss.responses().into();
            return Err(DataError::Label { row, label: response[row], allowed });
        }
        let last = lacking.first + lacking.count;
        if last > columns || lacking.count > MOST_COLUMNS {
            return Err(DataError::Column { row: 0, column: last, columns });
        }
        let (mut cells, mut missing) = (Vec::with_capacity(rows * columns), Vec::new());
        for row in 0..rows {
            let mut bits = 0;
            for column in 0..columns {
                let cell = design.cell(row, column);
                let is_absent = cell == ABSENT;
                if is_absent && !(lacking.first..last).contains(&column) {
                    return Err(DataError::NotFinite { row, column, value: cell });
                }
                if is_absent {
                    bits |= 1 << (column - lacking.first);
                }
                cells.push(if is_absent { 0.0 } else { cell });
            }
            missing.push(bits);
        }
        let design = Design::dense(cells, columns)?;
        let (own, held) = loss.beside();
        let beside = own + lacking.parameters(columns);
        let deviations = (beside - lacking.count..beside, Transform::Positive);
        let transforms = Transforms::new(held.groups().iter().cloned().chain([deviations]));
        let offset = Vec::new();
        Ok(Incomplete { design, response, loss, lacking, missing, offset, own, beside, transforms })
    }

    /// The same where this is added to the predictor of every row; an empty list adds nothing.
    pub fn offset(self, offset: Vec<f64>) -> Result<Self, DataError> {
        if !offset.is_empty() && offset.len() != self.design.rows() {
            return Err(DataError::Responses { responses: offset.len(), rows: self.design.rows() });
        }
        Ok(Incomplete { offset, ..self })
    }

    /// How many places of scratch its own sums need, that of a gradient included.
    fn places(&self) -> usize {
        let own = 1 + self.own;
        2 * self.beside + own + own * own + 4 * MOST + self.lacking.count
    }

    fn room<'a>(&self, x: &[f64], scratch: &'a mut [f64]) -> Room<'a> {
        let own = 1 + self.own;
        let (natural, rest) = scratch.split_at_mut(self.beside);
        natural.copy_from_slice(&x[self.design.columns()..]);
        self.transforms.outward(natural);
        let (slopes, rest) = rest.split_at_mut(own);
        let (bends, rest) = rest.split_at_mut(own * own);
        let (points, rest) = rest.split_at_mut(4 * MOST);
        let means = &mut rest[..self.lacking.count];
        Room { natural, slopes, bends, points: points.as_chunks_mut().0, means }
    }

    /// Whether a row lacks one of the incomplete columns.
    fn lacks(&self, row: usize, which: usize) -> bool {
        self.missing[row] >> which & 1 == 1
    }

    fn phi(&self, row: usize, (t, tau): (f64, f64), beside: &[f64], u: f64) -> f64 {
        self.loss.loss(t + tau * u, beside, self.response[row]) + 0.5 * u * u
    }

    /// A row's law at a point. The room has its means then, and the points of its integral, with
    /// their probabilities.
    fn law(&self, row: usize, x: &[f64], room: &mut Room<'_>) -> Law {
        let Lacking { first, count } = self.lacking;
        let columns = self.design.columns();
        let laws = &room.natural[self.own..];
        let mut t = self.design.row_dot(row, &x[..columns]);
        t += self.offset.get(row).unwrap_or(&0.0);
        let mut variance = 0.0;
        for j in 0..count {
            room.means[j] = self.lacking.mean(&self.design, row, laws, j);
            if self.lacks(row, j) {
                let along = x[first + j] * self.lacking.sd(columns, laws, j);
                t += x[first + j] * room.means[j];
                variance += along * along;
            }
        }
        let tau = variance.sqrt();
        let beside = &room.natural[..self.own];
        if tau == 0.0 {
            room.points[0] = [0.0, 1.0];
            let value = self.loss.loss(t, beside, self.response[row]);
            return Law { t, tau, points: 1, value };
        }
        let (mode, width) = self.mode(row, (t, tau), beside, room.slopes, room.bends);
        let spacing = (SPACING * width).min(self.loss.reach(beside) / tau);
        // Where the loss is a step along so wide a law, points must last to both ends.
        let spacing = spacing.max(FARTHEST * width / MOST as f64);
        let lowest = self.phi(row, (t, tau), beside, mode);
        let (mut points, mut total) = (0, 0.0);
        for (side, from) in [(1.0, 0), (-1.0, 1)] {
            for k in from..MOST {
                let u = mode + side * spacing * k as f64;
                let above = self.phi(row, (t, tau), beside, u) - lowest;
                let weight = exp(-above);
                room.points[points] = [u, weight];
                points += 1;
                total += weight;
                if above > NEGLIGIBLE {
                    break;
                }
            }
        }
        room.points[..points].iter_mut().for_each(|point| point[1] /= total);
        let value = lowest + 0.5 * ln(TAU) - ln(spacing * total);
        Law { t, tau, points, value }
    }

    /// Where `phi` is smallest, to a hundredth of its width: Newton's method within what is known
    /// to hold the place. And the width.
    fn mode(
        &self,
        row: usize,
        (t, tau): (f64, f64),
        beside: &[f64],
        slopes: &mut [f64],
        bends: &mut [f64],
    ) -> (f64, f64) {
        let (mut u, mut least, mut most) = (0.0, f64::NEG_INFINITY, f64::INFINITY);
        let mut width = 1.0;
        for _ in 0..100 {
            self.loss.derive(t + tau * u, beside, self.response[row], slopes, bends);
            let slope = u + tau * slopes[0];
            // Where the loss is not convex the bend may be less than the prior's.
            let bend = (1.0 + tau * tau * bends[0]).max(0.1);
            width = 1.0 / bend.sqrt();
            if slope > 0.0 {
                most = u;
            } else {
                least = u;
            }
            let step = -slope / bend;
            if step.abs() <= 0.01 * width || !step.is_finite() {
                break;
            }
            let (next, middle) = (u + step, 0.5 * (least + most));
            u = if next > least && next < most || !middle.is_finite() { next } else { middle };
        }
        (u, width)
    }

    /// Do something with the law of each of these rows, in ascending order.
    fn each(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scratch: &mut [f64],
        mut visit: impl FnMut(usize, Law, &mut Room<'_>),
    ) {
        let mut room = self.room(x, scratch);
        for block in rows.blocks(self.design.rows()) {
            for row in block.iter() {
                let law = self.law(*row, x, &mut room);
                visit(*row, law, &mut room);
            }
        }
    }

    /// What a row knows of incomplete columns: each with its distance from its mean, and its
    /// deviation.
    fn known<'r>(
        &'r self,
        row: usize,
        natural: &'r [f64],
        means: &'r [f64],
    ) -> impl Iterator<Item = (usize, f64, f64)> + 'r {
        let Lacking { first, count } = self.lacking;
        let laws = &natural[self.own..];
        (0..count).filter(move |j| !self.lacks(row, *j)).map(move |j| {
            let error = self.design.cell(row, first + j) - means[j];
            (j, error, self.lacking.sd(self.design.columns(), laws, j))
        })
    }

    /// Where the law of an incomplete column begins among the parameters behind the coefficients,
    /// and where its deviation stands.
    fn places_of(&self, j: usize) -> (usize, usize) {
        let given = self.lacking.given(self.design.columns());
        (self.own + j * (given + 1), self.own + self.lacking.count * (given + 1) + j)
    }

    /// Add `weight (1, z)` of a row.
    fn add_given(&self, row: usize, weight: f64, out: &mut [f64]) {
        let Lacking { first, count } = self.lacking;
        out[0] += weight;
        for (k, out) in out[1..=self.lacking.given(self.design.columns())].iter_mut().enumerate() {
            *out += weight * self.design.cell(row, first + count + k);
        }
    }
}

impl<L: ExtendedLoss + 'static> Likelihood for Incomplete<L> {
    fn dim(&self) -> usize {
        self.design.columns() + self.beside
    }

    fn rows(&self) -> usize {
        self.design.rows()
    }

    fn scratch(&self) -> usize {
        self.places() + 2 * Likelihood::dim(self)
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        let mut total = 0.0;
        self.each(x, rows, scratch, |row, law, room| {
            total += law.value;
            for (_, error, sd) in self.known(row, room.natural, room.means) {
                total += 0.5 * (error / sd) * (error / sd) + ln(sd);
            }
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
        let (columns, first) = (self.design.columns(), self.lacking.first);
        let (coefficients, beside) = out.split_at_mut(columns);
        let sums = scratch.len() - self.beside;
        let (scratch, sum) = scratch.split_at_mut(sums);
        sum.fill(0.0);
        self.each(x, rows, scratch, |row, law, room| {
            let (mut slope, mut along) = (0.0, 0.0); // F_t, F_h
            for [u, p] in &room.points[..law.points] {
                let t = law.t + law.tau * u;
                let own = &room.natural[..self.own];
                self.loss.derive(t, own, self.response[row], room.slopes, room.bends);
                slope += p * room.slopes[0];
                along += p * (room.bends[0] - room.slopes[0] * room.slopes[0]);
                add_scaled(*p, &room.slopes[1..], &mut sum[..self.own]);
            }
            self.design.add_row(row, scale * slope, coefficients);
            for j in (0..self.lacking.count).filter(|j| self.lacks(row, *j)) {
                let (from, at) = self.places_of(j);
                let (beta, sd) = (x[first + j], room.natural[at]);
                coefficients[first + j] += scale * (slope * room.means[j] + along * beta * sd * sd);
                self.add_given(row, slope * beta, &mut sum[from..]);
                sum[at] += along * beta * beta * sd;
            }
            for (j, error, sd) in self.known(row, room.natural, room.means) {
                let (from, at) = self.places_of(j);
                self.add_given(row, -error / (sd * sd), &mut sum[from..]);
                sum[at] += (1.0 - (error / sd) * (error / sd)) / sd;
            }
        });
        self.transforms.pull_back(&x[columns..], sum);
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
        let (d, columns) = (Likelihood::dim(self), self.design.columns());
        let (first, m) = (self.lacking.first, self.own);
        // On the natural scale: the Hessian, and the gradient behind the coefficients. A row's
        // loss is a function of t, h and the parameters of the loss: its gradient and Hessian in
        // these (`k` of them), and the gradients of t and h in all parameters.
        let k = m + 2;
        let mut natural = vec![0.0; d * d];
        let mut gradient = vec![0.0; self.beside];
        let (mut inner, mut curved) = (vec![0.0; k], vec![0.0; k * k]);
        let (mut of_t, mut of_h) = (vec![0.0; d], vec![0.0; d]);
        // In t, tau and the parameters of the loss: the mean and the covariance of derivatives.
        let mut one = vec![0.0; k];
        let mut mean = vec![0.0; k];
        self.each(x, rows, scratch, |row, law, room| {
            curved.fill(0.0);
            mean.fill(0.0);
            let mut along = 0.0;
            for [u, p] in &room.points[..law.points] {
                let t = law.t + law.tau * u;
                let own = &room.natural[..m];
                self.loss.derive(t, own, self.response[row], room.slopes, room.bends);
                let (slope, bend) = (room.slopes[0], room.bends[0]);
                along += p * (bend - slope * slope);
                one[0] = slope;
                one[1] = slope * u;
                one[2..].copy_from_slice(&room.slopes[1..]);
                add_scaled(*p, &one, &mut mean);
                // second derivatives of the loss, and the squares of first ones
                for a in 0..k {
                    let (row_a, by_a) = if a < 2 { (0, [1.0, *u][a]) } else { (a - 1, 1.0) };
                    for b in 0..k {
                        let (row_b, by_b) = if b < 2 { (0, [1.0, *u][b]) } else { (b - 1, 1.0) };
                        let bend = room.bends[row_a * (m + 1) + row_b] * by_a * by_b;
                        curved[a * k + b] += p * (bend - one[a] * one[b]);
                    }
                }
            }
            for a in 0..k {
                for b in 0..k {
                    curved[a * k + b] += mean[a] * mean[b];
                }
            }
            // from tau to h: d tau / d h = 1 / tau
            inner.copy_from_slice(&mean);
            inner[1] = along;
            if law.tau > 0.0 {
                for b in (0..k).filter(|b| *b != 1) {
                    curved[k + b] /= law.tau;
                    curved[b * k + 1] /= law.tau;
                }
                curved[k + 1] = (curved[k + 1] - along) / (law.tau * law.tau);
            } else {
                // h is 0 where its gradient is: what is left out counts for nothing
                for b in 0..k {
                    (curved[k + b], curved[b * k + 1]) = (0.0, 0.0);
                }
            }
            of_t.fill(0.0);
            of_h.fill(0.0);
            self.design.add_row(row, 1.0, &mut of_t[..columns]);
            for j in (0..self.lacking.count).filter(|j| self.lacks(row, *j)) {
                let (from, at) = self.places_of(j);
                let (beta, sd) = (x[first + j], room.natural[at]);
                of_t[first + j] = room.means[j];
                self.add_given(row, beta, &mut of_t[columns + from..]);
                of_h[first + j] = beta * sd * sd;
                of_h[columns + at] = beta * beta * sd;
                // second derivatives of t and h
                let (i, s) = (first + j, columns + at);
                let given = self.lacking.given(columns) + 1;
                let line = &mut natural[i * d + columns + from..];
                self.add_given(row, inner[0], line);
                for l in 0..given {
                    let z = if l == 0 { 1.0 } else { self.design.cell(row, columns - given + l) };
                    natural[(columns + from + l) * d + i] += inner[0] * z;
                }
                natural[i * d + i] += along * sd * sd;
                natural[i * d + s] += 2.0 * along * beta * sd;
                natural[s * d + i] += 2.0 * along * beta * sd;
                natural[s * d + s] += along * beta * beta;
            }
            let own = |a: usize| columns + a - 2;
            for a in 0..d {
                let (t, h) = (of_t[a], of_h[a]);
                if t == 0.0 && h == 0.0 {
                    continue;
                }
                let line = &mut natural[a * d..(a + 1) * d];
                add_scaled(curved[0] * t + curved[1] * h, &of_t, line);
                add_scaled(curved[1] * t + curved[k + 1] * h, &of_h, line);
                for b in 2..k {
                    line[own(b)] += curved[b] * t + curved[k + b] * h;
                }
            }
            for a in 2..k {
                let line = &mut natural[own(a) * d..(own(a) + 1) * d];
                add_scaled(curved[a * k], &of_t, line);
                add_scaled(curved[a * k + 1], &of_h, line);
                for b in 2..k {
                    line[own(b)] += curved[a * k + b];
                }
            }
            add_scaled(inner[0], &of_t[columns..], &mut gradient);
            add_scaled(inner[1], &of_h[columns..], &mut gradient);
            add_scaled(1.0, &inner[2..], &mut gradient[..m]);
            for (j, error, sd) in self.known(row, room.natural, room.means) {
                let (from, at) = self.places_of(j);
                let given = self.lacking.given(columns) + 1;
                let z = |l: usize| match l {
                    0 => 1.0,
                    _ => self.design.cell(row, columns - given + l),
                };
                let (weight, across) = (1.0 / (sd * sd), 2.0 * error / (sd * sd * sd));
                for l in 0..given {
                    let place = columns + from + l;
                    let line = &mut natural[place * d + columns + from..];
                    self.add_given(row, weight * z(l), line);
                    natural[place * d + columns + at] += across * z(l);
                    natural[(columns + at) * d + place] += across * z(l);
                }
                let e = (error / sd) * (error / sd);
                natural[(columns + at) * (d + 1)] += (3.0 * e - 1.0) * weight;
                self.add_given(row, -error * weight, &mut gradient[from..]);
                gradient[at] += (1.0 - e) / sd;
            }
        });
        self.transforms.pull_back_hessian(&x[columns..], &gradient, &mut natural, d);
        add_scaled(scale, &natural, out);
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        f64::INFINITY
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::regression::tests::Bernoulli;
    use super::super::tests::normals;
    use super::super::{GAUSS_HERMITE, Model, Single, Unextended, contract};
    use super::*;

    /// A number around its predictor, with a scale.
    #[derive(Clone, Copy, Debug)]
    struct Normal;

    impl ExtendedLoss for Normal {
        fn beside(&self) -> (usize, Transforms) {
            (1, Transforms::new([(0..1, Transform::Positive)]))
        }

        fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
            0.5 * ((y - t) / beside[0]).powi(2) + ln(beside[0])
        }

        fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
            let (s, w) = (beside[0], 1.0 / (beside[0] * beside[0]));
            let z = (y - t) / s;
            slopes.copy_from_slice(&[-z / s, (1.0 - z * z) / s]);
            bends.copy_from_slice(&[w, 2.0 * z * w, 2.0 * z * w, (3.0 * z * z - 1.0) * w]);
        }

        fn reach(&self, _beside: &[f64]) -> f64 {
            f64::INFINITY
        }
    }

    const ROWS: usize = 13;
    const LACKING: Lacking = Lacking { first: 1, count: 2 };

    /// Ones, two incomplete columns, two others; every pattern of what is missing.
    fn design() -> Design {
        let mut cells = normals(1, 5 * ROWS);
        for (row, cells) in cells.chunks_exact_mut(5).enumerate() {
            cells[0] = 1.0;
            for j in 0..2 {
                if row >> j & 1 == 1 {
                    cells[1 + j] = ABSENT;
                }
            }
        }
        Design::dense(cells, 5).unwrap()
    }

    fn classes() -> Vec<f64> {
        (0..ROWS).map(|j| f64::from(u8::from(j % 3 == 0))).collect()
    }

    fn models() -> [Arc<dyn Model>; 2] {
        let numbers = Incomplete::new(&design(), normals(2, ROWS), Normal, LACKING).unwrap();
        let coins = Incomplete::new(&design(), classes(), Unextended(Bernoulli), LACKING).unwrap();
        [Arc::new(numbers.offset(normals(3, ROWS)).unwrap()), Arc::new(coins)]
    }

    #[test]
    fn it_keeps_what_models_promise() {
        // Where the logarithm of a deviation moves by 0.3, an average over 64 points is rough.
        let rough: contract::Promise = |model| contract::averages(model, 0.25);
        let promises = [
            contract::gradients,
            contract::hessian_products,
            contract::rows_add_up,
            contract::differences,
            contract::rows_ignored,
            contract::grouping,
            contract::hessians,
            rough,
            contract::walks,
            contract::smoothness,
        ];
        assert_eq!(promises.len(), contract::PROMISES.len());
        for model in models() {
            let broken = promises.iter().find_map(|promise| promise(&model).err());
            assert!(broken.is_none(), "{}", broken.unwrap());
        }
    }

    #[test]
    fn parameters_are_counted_both_ways() {
        for columns in 3..9 {
            for own in 0..3 {
                let dim = columns + own + LACKING.parameters(columns);
                assert_eq!(LACKING.columns(dim, own), columns);
            }
        }
        assert_eq!(models().map(|model| model.dim()), [5 + 1 + 2 * 4, 5 + 2 * 4]);
    }

    /// A row's value is that of the integral over all that it lacks, in as many dimensions: closed
    /// for normal responses, by Gauss and Hermite else.
    #[test]
    fn values_are_those_of_the_whole_integral() {
        let (design, lacking) = (design(), LACKING);
        let x: Vec<f64> = normals(7, 13).iter().map(|z| 0.6 * z).collect();
        let mut coins = Single::new(&models()[1]);
        let mut x14 = x.clone();
        x14.insert(5, 0.3f64.ln());
        let mut numbers = Single::new(&models()[0]);
        let mut laws = x[5..].to_vec();
        laws[6..].iter_mut().for_each(|s| *s = s.exp());
        let (y, classes, offset) = (normals(2, ROWS), classes(), normals(3, ROWS));
        let (mut normal, mut logistic) = (0.0, 0.0);
        for row in 0..ROWS {
            let (mut t, mut missing) = (0.0, Vec::new());
            for column in 0..5 {
                let cell = design.cell(row, column);
                let which = column.wrapping_sub(1);
                if which >= 2 {
                    t += x[column] * cell;
                    continue;
                }
                let (mu, sd) = (lacking.mean(&design, row, &laws, which), laws[6 + which]);
                if cell == ABSENT {
                    missing.push((x[column] * mu, x[column] * sd));
                } else {
                    t += x[column] * cell;
                    let known = 0.5 * ((cell - mu) / sd).powi(2) + sd.ln();
                    normal += known;
                    logistic += known;
                }
            }
            let centre: f64 = t + missing.iter().map(|(m, _)| m).sum::<f64>();
            let spread: f64 = 0.09 + missing.iter().map(|(_, s)| s * s).sum::<f64>();
            let error = y[row] - centre - offset[row];
            normal += 0.5 * error * error / spread + 0.5 * spread.ln();
            let mut points = vec![(t, 1.0)];
            for (m, s) in missing {
                let nodes = GAUSS_HERMITE.iter().flat_map(|(z, w)| [(*z, *w), (-z, *w)]);
                let nodes: Vec<(f64, f64)> = nodes.collect();
                points = points
                    .iter()
                    .flat_map(|(t, p)| nodes.iter().map(move |(z, w)| (t + m + s * z, p * w)))
                    .collect();
            }
            let of = |t: f64| {
                if classes[row] == 1.0 { 1.0 / (1.0 + (-t).exp()) } else { 1.0 / (1.0 + t.exp()) }
            };
            logistic -= points.iter().map(|(t, p)| p * of(*t)).sum::<f64>().ln();
        }
        assert!((numbers.value(&x14) - normal).abs() < 1e-10, "{normal}");
        assert!((coins.value(&x) - logistic).abs() < 1e-8, "{logistic}");
    }

    /// Where coefficients of incomplete columns are 0 nothing is divided by it.
    #[test]
    fn nothing_is_lost_where_coefficients_are_zero() {
        for model in models() {
            let mut x: Vec<f64> = normals(9, model.dim()).iter().map(|z| 0.4 * z).collect();
            for small in [0.0, 1e-9, 1e-5] {
                (x[1], x[2]) = (small, -small);
                let mut single = Single::new(&model);
                let v = normals(10, x.len());
                let mut product = vec![0.0; x.len()];
                single.add_hessian_vector(&x, &v, 1.0, &mut product);
                let h = 1e-5;
                let moved =
                    |by: f64| -> Vec<f64> { x.iter().zip(&v).map(|(x, v)| x + by * v).collect() };
                let (up, down) = (single.gradient(&moved(h)), single.gradient(&moved(-h)));
                for (k, found) in product.iter().enumerate() {
                    let expected = (up[k] - down[k]) / (2.0 * h);
                    let wrong = (found - expected).abs() / (1.0 + expected.abs());
                    assert!(wrong < 1e-6, "{small}, {k}: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn only_incomplete_columns_may_lack_values() {
        let cells = vec![1.0, 2.0, ABSENT, 1.0, 0.5, 0.25];
        let design = Design::dense(cells, 3).unwrap();
        let lacking = Lacking { first: 1, count: 1 };
        assert!(Incomplete::new(&design, vec![0.0, 1.0], Normal, lacking).is_err());
        let lacking = Lacking { first: 2, count: 1 };
        assert!(Incomplete::new(&design, vec![0.0, 1.0], Normal, lacking).is_ok());
        assert!(Incomplete::new(&design, vec![0.0], Normal, lacking).is_err());
    }
}

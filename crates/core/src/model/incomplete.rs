//! Integrate values of columns that are missing out of a regression: `mi(x)`; with effects of
//! groups beside them, `mi(x) + (1 | ward)`.
//!
//! Some columns `x_1 .. x_J` of the design are not known in every row. Given the others, `z`, which
//! are, they are jointly normal, one after another:
//!
//! ```text
//! x_j | z, x_1 .. x_{j-1} ~ N(mu_j + sum_{i<j} c_ji x_i, s_j^2),   mu_j = a_j + b_j . z,
//! ```
//!
//! and `a`, `b`, `c`, `s` are parameters beside those of the regression. Let a row lack the columns
//! `M` and know the others, `O`. Given what it knows, `x_M` is normal with a mean `m` and a
//! covariance `V` that follow from the laws, and what `x_M` adds to the predictor is normal, so
//! that one integral on a line is left, whatever the number of columns:
//!
//! ```text
//! U = F(t, h) + G,   F(t, h) = -log E exp(-loss(t + sqrt(2 h) u, s, y)),   u ~ N(0, 1),
//! t = sum_{k not in M} x_k beta_k + beta_M . m,   2 h = beta_M . V beta_M,
//! ```
//!
//! where `G` is minus the log-density of `x_O`. No missing value is sampled, kept or sent, and the
//! posterior of all that is shared is that of the model in which each is a parameter. The integral
//! is a sum over equidistant points around the mode of the integrand, whose error is exponentially
//! small ([`super::GroupEffects`]). With `E` the mean over the law of `u` given the row, and `l`
//! the loss, `F_t = E l'` and, by parts, `F_h = E (l'' - l'^2)`: nothing is divided by `h`, which
//! is 0 where coefficients are. `m`, `V` and `G` are differentiated by hyper-dual numbers.
//!
//! With effects of groups, `tau v` with `v ~ N(0, 1)` is added to the predictors of a group's rows,
//! and integrated out in the same way around the integrals of its rows:
//!
//! ```text
//! U_g = sum_j G_j - log integral exp(-phi_g(v)) dv,
//! phi_g(v) = sum_j F_j(t_j + tau v, h_j) + v^2 / 2 + log(2 pi) / 2.
//! ```
//!
//! What the contract of models calls a row is a group then.
//!
//! Parameters: coefficients; those of the loss; `tau`, if there are groups; the laws' `a_1, b_1,
//! a_2, b_2, c_21, ..`; `s_1, s_2, ..`.

use std::f64::consts::TAU;

use super::dual::{HyperDual, Scalar};
use super::transform::{Transform, Transforms};
use super::{Design, DrawEffects, ExtendedLoss, Likelihood, Rows};
use crate::error::DataError;
use crate::linalg::add_scaled;
use crate::rng::Stream;
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
    /// The most columns that may be incomplete.
    pub const MOST: usize = 16;

    /// How many parameters their laws have, where the design has so many columns.
    pub fn parameters(self, columns: usize) -> usize {
        self.start_of(columns, self.count) + self.count
    }

    /// How many columns they are explained by, beside an intercept and each other.
    pub fn given(self, columns: usize) -> usize {
        columns.saturating_sub(self.first + self.count)
    }

    /// How many columns a design has that makes so many parameters, where the loss has `own` of
    /// them, with a standard deviation of effects if there are groups.
    pub fn columns(self, dim: usize, own: usize) -> usize {
        let less = dim + self.count * (self.first + self.count);
        less.saturating_sub(own + 2 * self.count + self.pairs()) / (1 + self.count)
    }

    /// How many pairs of incomplete columns there are.
    fn pairs(self) -> usize {
        self.count * self.count.saturating_sub(1) / 2
    }

    /// Where the law of a column begins among the parameters of laws: an intercept, the
    /// coefficients of known columns, those of the incomplete ones before it.
    fn start_of(self, columns: usize, which: usize) -> usize {
        which * (self.given(columns) + 1) + which * which.saturating_sub(1) / 2
    }

    /// How many numbers the laws of a row depend on: coefficients, means and deviations of the
    /// incomplete columns, and the coefficients of each other.
    fn locals(self) -> usize {
        3 * self.count + self.pairs()
    }

    /// These numbers, for a row.
    fn local(self, design: &Design, row: usize, x: &[f64], laws: &[f64], out: &mut [f64]) {
        let (columns, n) = (design.columns(), self.count);
        let (given, behind) = (self.given(columns), self.first + self.count);
        let deviations = self.start_of(columns, n);
        for j in 0..n {
            let own = &laws[self.start_of(columns, j)..];
            let each = own[1..=given].iter().enumerate();
            out[j] = x[self.first + j];
            out[n + j] = own[0] + each.map(|(k, b)| b * design.cell(row, behind + k)).sum::<f64>();
            out[2 * n + j] = laws[deviations + j];
            let from = 3 * n + j * j.saturating_sub(1) / 2;
            out[from..from + j].copy_from_slice(&own[given + 1..given + 1 + j]);
        }
    }

    /// What is missing in a row adds a normal number to its predictor: its mean and its standard
    /// deviation, given what the row knows of incomplete columns. By coefficients and the
    /// parameters of laws on their natural scale.
    pub fn adds(self, design: &Design, row: usize, x: &[f64], laws: &[f64]) -> [f64; 2] {
        let mut local = vec![0.0; self.locals()];
        self.local(design, row, x, laws, &mut local);
        let mut known = [0.0; Lacking::MOST];
        let mut missing = 0;
        for (j, known) in known[..self.count].iter_mut().enumerate() {
            match design.cell(row, self.first + j) {
                ABSENT => missing |= 1 << j,
                cell => *known = cell,
            }
        }
        let [mean, variance, _] = parts(&local, &known[..self.count], missing);
        [mean, variance.sqrt()]
    }
}

/// What the laws of incomplete columns make of a row: the mean and the variance of what the missing
/// ones add to its predictor, and minus the log-density of those that it knows; by the numbers of
/// [`Lacking::local`].
fn parts<T: Scalar>(local: &[T], known: &[f64], missing: u64) -> [T; 3] {
    const N: usize = Lacking::MOST;
    let (n, zero) = (known.len(), T::of(0.0));
    let lacks = |j: usize| missing >> j & 1 == 1;
    let (mut places, mut count) = ([0; N], 0);
    for j in (0..n).filter(|j| lacks(*j)) {
        (places[j], count) = (count, count + 1);
    }
    let mut g = zero;
    // `x_j - mu_j - sum c_ji x_i` is `k_j + a_j . x_M`; the precision of `x_M` is the sum of
    // `a_j a_j' / s_j^2`
    let (mut k, mut weights) = ([zero; N], [zero; N]);
    let (mut a, mut precision, mut pull) = ([[zero; N]; N], [[zero; N]; N], [zero; N]);
    for j in 0..n {
        let s = local[2 * n + j];
        weights[j] = T::of(1.0) / (s * s);
        g = g + s.ln();
        k[j] = zero - local[n + j];
        match lacks(j) {
            true => a[j][places[j]] = T::of(1.0),
            false => k[j] = k[j] + T::of(known[j]),
        }
        for i in 0..j {
            let c = local[3 * n + j * (j - 1) / 2 + i];
            match lacks(i) {
                true => a[j][places[i]] = zero - c,
                false => k[j] = k[j] - c * T::of(known[i]),
            }
        }
        for p in 0..count {
            let weighted = weights[j] * a[j][p];
            pull[p] = pull[p] - weighted * k[j];
            for q in 0..=p {
                precision[p][q] = precision[p][q] + weighted * a[j][q];
            }
        }
    }
    // by the factor of the precision, whose entries replace it
    let (mut mean, mut spread) = ([zero; N], [zero; N]);
    for (j, p) in (0..n).filter(|j| lacks(*j)).zip(0..count) {
        for q in 0..p {
            let sum = (0..q).fold(precision[p][q], |s, i| s - precision[p][i] * precision[q][i]);
            precision[p][q] = sum / precision[q][q];
        }
        let square = (0..p).fold(precision[p][p], |s, i| s - precision[p][i] * precision[p][i]);
        precision[p][p] = square.sqrt();
        g = g + precision[p][p].ln();
        let solved = |from: T, of: &[T; N]| {
            (0..p).fold(from, |s, i| s - precision[p][i] * of[i]) / precision[p][p]
        };
        mean[p] = solved(pull[p], &mean);
        spread[p] = solved(local[j], &spread);
    }
    for p in (0..count).rev() {
        let sum = (p + 1..count).fold(mean[p], |s, i| s - precision[i][p] * mean[i]);
        mean[p] = sum / precision[p][p];
    }
    let (mut t, mut variance) = (zero, zero);
    for (j, p) in (0..n).filter(|j| lacks(*j)).zip(0..count) {
        t = t + local[j] * mean[p];
        variance = variance + spread[p] * spread[p];
    }
    for j in 0..n {
        let error = (0..count).fold(k[j], |s, p| s + a[j][p] * mean[p]);
        g = g + T::of(0.5) * weights[j] * error * error;
    }
    [t, variance, g]
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
    /// The rows, group by group; where there are no groups each is one.
    order: Vec<u32>,
    /// Where groups begin among these, and where the last ends.
    starts: Vec<usize>,
    grouped: bool,
    /// How many parameters the loss has, and how many there are behind the coefficients.
    own: usize,
    beside: usize,
    transforms: Transforms,
}

/// Where sums are made: parameters behind the coefficients on their natural scale, the derivatives
/// of one loss, points of a row's integral and of a group's, what the laws make of a group's rows,
/// and of one.
struct Room<'a> {
    natural: &'a mut [f64],
    slopes: &'a mut [f64],
    bends: &'a mut [f64],
    points: &'a mut [[f64; 2]],
    outer: &'a mut [[f64; 2]],
    rows: &'a mut [[f64; 2]],
    local: &'a mut [f64],
}

/// The derivatives of `F` at a predictor: in `t`, in `h`, and its second one in `t`.
#[derive(Clone, Copy, Default)]
struct Bent {
    slope: f64,
    along: f64,
    bend: f64,
}

/// The law of one group at a point: how many points its integral has, how far apart, and `U_g`.
#[derive(Clone, Copy)]
struct Law {
    points: usize,
    spacing: f64,
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
        if last > columns || lacking.count > Lacking::MOST {
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
        let (order, starts) = ((0..rows as u32).collect(), (0..=rows).collect());
        let (offset, transforms) = (Vec::new(), Transforms::default());
        let model = Incomplete {
            design,
            response,
            loss,
            lacking,
            missing,
            offset,
            order,
            starts,
            grouped: false,
            own: 0,
            beside: 0,
            transforms,
        };
        Ok(model.held())
    }

    /// The same with what holds its parameters in their place.
    fn held(self) -> Self {
        let (own, held) = self.loss.beside();
        let scale = own..own + usize::from(self.grouped);
        let beside = scale.end + self.lacking.parameters(self.design.columns());
        let deviations = beside - self.lacking.count..beside;
        let last = [(scale, Transform::Positive), (deviations, Transform::Positive)];
        let last = last.into_iter().filter(|(places, _)| !places.is_empty());
        let transforms = Transforms::new(held.groups().iter().cloned().chain(last));
        Incomplete { own, beside, transforms, ..self }
    }

    /// The same with an effect of the group of every row: groups are numbered from 0 without gaps.
    pub fn grouped(self, group_of: &[u32]) -> Result<Self, DataError> {
        if group_of.len() != self.design.rows() {
            return Err(DataError::Responses {
                responses: group_of.len(),
                rows: self.design.rows(),
            });
        }
        let (order, starts) = super::group_effects::in_groups(group_of);
        Ok(Incomplete { order, starts, grouped: true, ..self }.held())
    }

    /// The same where this is added to the predictor of every row; an empty list adds nothing.
    pub fn offset(self, offset: Vec<f64>) -> Result<Self, DataError> {
        if !offset.is_empty() && offset.len() != self.design.rows() {
            return Err(DataError::Responses { responses: offset.len(), rows: self.design.rows() });
        }
        Ok(Incomplete { offset, ..self })
    }

    fn rows_of(&self, group: usize) -> &[u32] {
        &self.order[self.starts[group]..self.starts[group + 1]]
    }

    fn largest_group(&self) -> usize {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// How many points the integral over a group's effect has at most.
    fn outer_points(&self) -> usize {
        if self.grouped { 2 * MOST } else { 1 }
    }

    /// How many places of scratch its own sums need, that of a gradient included.
    fn places(&self) -> usize {
        let own = 1 + self.own;
        let points = 2 * (2 * MOST + self.outer_points() + self.largest_group());
        2 * self.beside + own + own * own + points + 2 * self.lacking.locals()
    }

    fn room<'a>(&self, x: &[f64], scratch: &'a mut [f64]) -> Room<'a> {
        let own = 1 + self.own;
        let (natural, rest) = scratch.split_at_mut(self.beside);
        natural.copy_from_slice(&x[self.design.columns()..]);
        self.transforms.outward(natural);
        let (slopes, rest) = rest.split_at_mut(own);
        let (bends, rest) = rest.split_at_mut(own * own);
        let (points, rest) = rest.split_at_mut(4 * MOST);
        let (outer, rest) = rest.split_at_mut(2 * self.outer_points());
        let (rows, rest) = rest.split_at_mut(2 * self.largest_group());
        let local = &mut rest[..2 * self.lacking.locals()];
        let pairs = |of: &'a mut [f64]| of.as_chunks_mut().0;
        let (points, outer, rows) = (pairs(points), pairs(outer), pairs(rows));
        Room { natural, slopes, bends, points, outer, rows, local }
    }

    /// Where the laws of columns begin behind the coefficients.
    fn laws(&self) -> usize {
        self.own + usize::from(self.grouped)
    }

    /// The standard deviation of effects; 0 where there are none.
    fn scale(&self, natural: &[f64]) -> f64 {
        if self.grouped { natural[self.own] } else { 0.0 }
    }

    /// What a row knows of incomplete columns, 0 where it does not.
    fn known(&self, row: usize) -> [f64; Lacking::MOST] {
        let mut known = [0.0; Lacking::MOST];
        for (j, known) in known[..self.lacking.count].iter_mut().enumerate() {
            *known = self.design.cell(row, self.lacking.first + j);
        }
        known
    }

    /// A row's predictor without effects, the root of `2 h`, and `G`.
    fn made(&self, row: usize, x: &[f64], natural: &[f64], local: &mut [f64]) -> [f64; 3] {
        let local = &mut local[..self.lacking.locals()];
        self.lacking.local(&self.design, row, x, &natural[self.laws()..], local);
        let known = self.known(row);
        let [adds, variance, g] = parts(local, &known[..self.lacking.count], self.missing[row]);
        let t = self.design.row_dot(row, &x[..self.design.columns()]);
        [t + self.offset.get(row).unwrap_or(&0.0) + adds, variance.sqrt(), g]
    }

    fn phi(&self, row: usize, (t, tau): (f64, f64), beside: &[f64], u: f64) -> f64 {
        self.loss.loss(t + tau * u, beside, self.response[row]) + 0.5 * u * u
    }

    /// `F` of a row: the points of its integral, with their probabilities, how many, and its value.
    fn integral(
        &self,
        row: usize,
        (t, tau): (f64, f64),
        beside: &[f64],
        room: (&mut [f64], &mut [f64], &mut [[f64; 2]]),
    ) -> (usize, f64) {
        let (slopes, bends, places) = room;
        if tau == 0.0 {
            places[0] = [0.0, 1.0];
            return (1, self.loss.loss(t, beside, self.response[row]));
        }
        let (mode, width) = self.mode(row, (t, tau), beside, slopes, bends);
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
                places[points] = [u, weight];
                points += 1;
                total += weight;
                if above > NEGLIGIBLE {
                    break;
                }
            }
        }
        places[..points].iter_mut().for_each(|point| point[1] /= total);
        (points, lowest + 0.5 * ln(TAU) - ln(spacing * total))
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
        newton(|u| {
            self.loss.derive(t + tau * u, beside, self.response[row], slopes, bends);
            (u + tau * slopes[0], 1.0 + tau * tau * bends[0])
        })
    }

    /// The value of `F` at a predictor, and its derivatives; `add` is told those of the loss at
    /// every point of the integral, with its place and its probability.
    fn bent(
        &self,
        row: usize,
        (t, tau): (f64, f64),
        room: &mut Room<'_>,
        mut add: impl FnMut(&[f64], &[f64], f64, f64),
    ) -> Bent {
        let Room { natural, slopes, bends, points, .. } = room;
        let beside = &natural[..self.own];
        let places = (&mut **slopes, &mut **bends, &mut **points);
        let (count, _) = self.integral(row, (t, tau), beside, places);
        let mut sums = Bent::default();
        for [u, p] in &points[..count] {
            self.loss.derive(t + tau * u, beside, self.response[row], slopes, bends);
            sums.slope += p * slopes[0];
            sums.along += p * (bends[0] - slopes[0] * slopes[0]);
            add(slopes, bends, *u, *p);
        }
        sums.bend = sums.along + sums.slope * sums.slope;
        sums
    }

    /// `phi_g(v)`, or the row's own `F` where there are no groups.
    fn value_at(&self, group: usize, v: f64, room: &mut Room<'_>) -> f64 {
        let shift = self.scale(room.natural) * v;
        let beside = &room.natural[..self.own];
        let mut sum = if self.grouped { 0.5 * (v * v + ln(TAU)) } else { 0.0 };
        for (row, [t, tau]) in self.rows_of(group).iter().zip(&*room.rows) {
            let places = (&mut *room.slopes, &mut *room.bends, &mut *room.points);
            sum += self.integral(*row as usize, (t + shift, *tau), beside, places).1;
        }
        sum
    }

    /// The law of a group at a point: the room has what the laws make of its rows then, and the
    /// points of its integral, with their probabilities.
    fn law(&self, group: usize, x: &[f64], room: &mut Room<'_>) -> Law {
        let mut known = 0.0;
        for (k, row) in self.rows_of(group).iter().enumerate() {
            let [t, tau, g] = self.made(*row as usize, x, room.natural, room.local);
            room.rows[k] = [t, tau];
            known += g;
        }
        if !self.grouped {
            room.outer[0] = [0.0, 1.0];
            let value = known + self.value_at(group, 0.0, room);
            return Law { points: 1, spacing: 0.0, value };
        }
        let scale = self.scale(room.natural);
        let (mode, width) = newton(|v| {
            let (mut slope, mut bend) = (v, 1.0);
            for (k, row) in self.rows_of(group).iter().enumerate() {
                let [t, tau] = room.rows[k];
                let bent = self.bent(*row as usize, (t + scale * v, tau), room, |_, _, _, _| {});
                slope += scale * bent.slope;
                bend += scale * scale * bent.bend;
            }
            (slope, bend)
        });
        let reach = self.loss.reach(&room.natural[..self.own]);
        let spacing = (SPACING * width).min(reach / scale).max(FARTHEST * width / MOST as f64);
        let lowest = self.value_at(group, mode, room);
        let (mut points, mut total) = (0, 0.0);
        for (side, from) in [(1.0, 0), (-1.0, 1)] {
            for k in from..MOST {
                let v = mode + side * spacing * k as f64;
                let above = self.value_at(group, v, room) - lowest;
                let weight = exp(-above);
                room.outer[points] = [v, weight];
                points += 1;
                total += weight;
                if above > NEGLIGIBLE {
                    break;
                }
            }
        }
        room.outer[..points].iter_mut().for_each(|point| point[1] /= total);
        Law { points, spacing, value: known + lowest - ln(spacing * total) }
    }

    /// Do something with the law of each of these groups, in ascending order.
    fn each(
        &self,
        x: &[f64],
        groups: Rows<'_>,
        scratch: &mut [f64],
        mut visit: impl FnMut(usize, Law, &mut Room<'_>),
    ) {
        let mut room = self.room(x, scratch);
        for block in groups.blocks(self.starts.len() - 1) {
            for group in block.iter() {
                let law = self.law(*group, x, &mut room);
                visit(*group, law, &mut room);
            }
        }
    }

    /// Where a number of [`Lacking::local`] comes from: the first of its parameters, behind all
    /// coefficients from the number of columns on, and how many there are; those of a mean count
    /// with 1 and the row's known columns, others alone.
    fn source(&self, which: usize) -> (usize, usize) {
        let (columns, n) = (self.design.columns(), self.lacking.count);
        let laws = columns + self.laws();
        let given = self.lacking.given(columns);
        let start = |j: usize| laws + self.lacking.start_of(columns, j);
        if which < n {
            (self.lacking.first + which, 1)
        } else if which < 2 * n {
            (start(which - n), given + 1)
        } else if which < 3 * n {
            (start(n) + which - 2 * n, 1)
        } else {
            let (mut j, mut i) = (1, which - 3 * n);
            while i >= j {
                (i, j) = (i - j, j + 1);
            }
            (start(j) + given + 1 + i, 1)
        }
    }

    /// By how much a number of [`Lacking::local`] moves with the `k`-th of its parameters.
    fn share(&self, row: usize, k: usize) -> f64 {
        if k == 0 {
            return 1.0;
        }
        self.design.cell(row, self.lacking.first + self.lacking.count + k - 1)
    }

    /// Add what a derivative in a number of [`Lacking::local`] is in the parameters.
    fn spread(&self, row: usize, which: usize, by: f64, out: &mut [f64]) {
        let (from, count) = self.source(which);
        for (k, out) in out[from..from + count].iter_mut().enumerate() {
            *out += by * self.share(row, k);
        }
    }

    /// The derivatives of a row's parts in two of the numbers of [`Lacking::local`], and in both.
    fn derived(&self, row: usize, local: &[f64], (p, q): (usize, usize)) -> [HyperDual; 3] {
        const ALL: usize = 3 * Lacking::MOST + Lacking::MOST * (Lacking::MOST - 1) / 2;
        let mut with = [HyperDual::of(0.0); ALL];
        for (with, value) in with.iter_mut().zip(local) {
            with.value = *value;
        }
        with[p].first[0] = 1.0;
        with[q].first[1] = 1.0;
        let known = self.known(row);
        parts(&with[..local.len()], &known[..self.lacking.count], self.missing[row])
    }

    /// Add `by_t`, `by_h` and `by_g` times the gradients of a row's `t`, `h` and `G` in all numbers
    /// of [`Lacking::local`].
    fn add_slopes(&self, row: usize, local: &[f64], by: [f64; 3], out: &mut [f64]) {
        let n = self.lacking.count;
        if self.missing[row] == 0 {
            // `G` alone, by hand
            let known = self.known(row);
            for j in 0..n {
                let (s, from) = (local[2 * n + j], 3 * n + j * j.saturating_sub(1) / 2);
                let c = &local[from..from + j];
                let error = known[j] - local[n + j];
                let error = c.iter().zip(&known).fold(error, |error, (c, x)| error - c * x);
                let pull = -by[2] * error / (s * s);
                out[n + j] += pull;
                out[2 * n + j] += by[2] * (1.0 - (error / s) * (error / s)) / s;
                out[from..from + j].iter_mut().zip(&known).for_each(|(out, x)| *out += pull * x);
            }
            return;
        }
        for p in (0..local.len()).step_by(2) {
            let q = (p + 1).min(local.len() - 1);
            let [t, variance, g] = self.derived(row, local, (p, q));
            for (k, place) in [p, q].into_iter().enumerate().take(1 + usize::from(q > p)) {
                let halved = 0.5 * variance.first[k];
                out[place] += by[0] * t.first[k] + by[1] * halved + by[2] * g.first[k];
            }
        }
    }
}

/// Where a function is smallest of which slope and bend are known, to a hundredth of its width:
/// Newton's method within what is known to hold the place. And the width.
fn newton(mut at: impl FnMut(f64) -> (f64, f64)) -> (f64, f64) {
    let (mut u, mut least, mut most) = (0.0, f64::NEG_INFINITY, f64::INFINITY);
    let mut width = 1.0;
    for _ in 0..100 {
        let (slope, bend) = at(u);
        // Where the loss is not convex the bend may be less than the prior's.
        let bend = bend.max(0.1);
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

impl<L: ExtendedLoss + 'static> DrawEffects for Incomplete<L> {
    fn effects(&self) -> usize {
        usize::from(self.grouped)
    }

    /// A point of the law is drawn, a triangle of the points' spacing is laid around it, and what
    /// is drawn is drawn towards the mean so that its variance is that of the law.
    fn draw(&self, x: &[f64], stream: &mut Stream) -> Vec<f64> {
        let mut scratch = vec![0.0; self.places()];
        let mut all = Vec::new();
        self.each(x, Rows::All, &mut scratch, |_, law, room| {
            let points = &room.outer[..law.points];
            let mut left = stream.uniform();
            let drawn = points.iter().find(|[_, probability]| {
                left -= probability;
                left < 0.0
            });
            let [v, _] = drawn.or(points.first()).copied().unwrap_or_default();
            let moved = v + law.spacing * (stream.uniform() - stream.uniform());
            let (mut mean, mut square) = (0.0, 0.0);
            for [v, p] in points {
                mean += p * v;
                square += p * v * v;
            }
            let variance = square - mean * mean;
            let wider = variance + law.spacing * law.spacing / 6.0;
            let v = mean + (moved - mean) * (variance / wider).sqrt();
            all.push(self.scale(room.natural) * v);
        });
        all
    }
}

impl<L: ExtendedLoss + 'static> Likelihood for Incomplete<L> {
    fn dim(&self) -> usize {
        self.design.columns() + self.beside
    }

    fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    fn scratch(&self) -> usize {
        self.places() + 3 * Likelihood::dim(self)
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
        let (columns, d) = (self.design.columns(), Likelihood::dim(self));
        let (scratch, sum) = scratch.split_at_mut(self.places());
        let sum = &mut sum[..d];
        sum.fill(0.0);
        self.each(x, rows, scratch, |group, law, room| {
            for (k, row) in self.rows_of(group).iter().enumerate() {
                let (row, [t, tau]) = (*row as usize, room.rows[k]);
                let (mut slope, mut along, shift) = (0.0, 0.0, self.scale(room.natural));
                for point in 0..law.points {
                    let [v, probability] = room.outer[point];
                    let own = &mut sum[columns..columns + self.own];
                    let add = |slopes: &[f64], _: &[f64], _: f64, p: f64| {
                        add_scaled(probability * p, &slopes[1..], own);
                    };
                    let bent = self.bent(row, (t + shift * v, tau), room, add);
                    slope += probability * bent.slope;
                    along += probability * bent.along;
                    if self.grouped {
                        sum[columns + self.own] += probability * bent.slope * v;
                    }
                }
                self.design.add_row(row, slope, &mut sum[..columns]);
                let (local, slopes) = room.local.split_at_mut(self.lacking.locals());
                let laws = &room.natural[self.laws()..];
                self.lacking.local(&self.design, row, x, laws, local);
                slopes.fill(0.0);
                self.add_slopes(row, local, [slope, along, 1.0], slopes);
                for (which, by) in slopes.iter().enumerate() {
                    self.spread(row, which, *by, sum);
                }
            }
        });
        self.transforms.pull_back(&x[columns..], &mut sum[columns..]);
        add_scaled(scale, sum, out);
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
        let (d, columns, m) = (Likelihood::dim(self), self.design.columns(), self.own);
        let n = self.lacking.locals();
        // On the natural scale: the Hessian, and the gradient. `F` of a row is a function of t, h,
        // the parameters of the loss and the scale of effects: `k` numbers. Its gradient and its
        // Hessian in these, at one point of the group's integral and on average; and the gradients
        // of t and h in all parameters.
        let k = m + 2 + usize::from(self.grouped);
        let mut natural = vec![0.0; d * d];
        let mut gradient = vec![0.0; d];
        let (mut inner, mut curved) = (vec![0.0; k], vec![0.0; k * k]);
        let (mut mean, mut bends) = (vec![0.0; k], vec![0.0; k * k]);
        let (mut of_t, mut of_h, mut of_g) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
        // the gradient of phi_g at every point
        let mut gradients = Vec::new();
        let own = |a: usize| columns + a - 2;
        self.each(x, rows, scratch, |group, law, room| {
            gradients.clear();
            gradients.resize(law.points * d, 0.0);
            for (member, row) in self.rows_of(group).iter().enumerate() {
                let (row, [t, tau]) = (*row as usize, room.rows[member]);
                let scale = self.scale(room.natural);
                let (local, slopes) = room.local.split_at_mut(n);
                let laws = &room.natural[self.laws()..];
                self.lacking.local(&self.design, row, x, laws, local);
                for (of, by) in [
                    (&mut of_t, [1.0, 0.0, 0.0]),
                    (&mut of_h, [0.0, 1.0, 0.0]),
                    (&mut of_g, [0.0, 0.0, 1.0]),
                ] {
                    of.fill(0.0);
                    slopes.fill(0.0);
                    self.add_slopes(row, local, by, slopes);
                    for (which, by) in slopes.iter().enumerate() {
                        self.spread(row, which, *by, of);
                    }
                }
                self.design.add_row(row, 1.0, &mut of_t[..columns]);
                mean.fill(0.0);
                bends.fill(0.0);
                for point in 0..law.points {
                    let [v, probability] = room.outer[point];
                    self.curved(row, (t + scale * v, tau), room, &mut inner, &mut curved);
                    if self.grouped {
                        let last = k - 1;
                        inner[last] = v * inner[0];
                        for a in 0..last {
                            curved[a * k + last] = v * curved[a * k];
                            curved[last * k + a] = v * curved[a * k];
                        }
                        curved[last * k + last] = v * v * curved[0];
                    }
                    add_scaled(probability, &inner, &mut mean);
                    add_scaled(probability, &curved, &mut bends);
                    let gradient = &mut gradients[point * d..(point + 1) * d];
                    add_scaled(inner[0], &of_t, gradient);
                    add_scaled(inner[1], &of_h, gradient);
                    add_scaled(1.0, &inner[2..], &mut gradient[columns..columns + k - 2]);
                }
                // second derivatives of t, h and G
                for p in 0..n {
                    for q in p..n {
                        let [t, variance, g] = self.derived(row, &room.local[..n], (p, q));
                        let by = mean[0] * t.second + 0.5 * mean[1] * variance.second + g.second;
                        if by == 0.0 {
                            continue;
                        }
                        let ((a, of_a), (b, of_b)) = (self.source(p), self.source(q));
                        for i in 0..of_a {
                            for j in 0..of_b {
                                let by = by * self.share(row, i) * self.share(row, j);
                                natural[(a + i) * d + b + j] += by;
                                if p != q {
                                    natural[(b + j) * d + a + i] += by;
                                }
                            }
                        }
                    }
                }
                for a in 0..d {
                    let (t, h) = (of_t[a], of_h[a]);
                    if t == 0.0 && h == 0.0 {
                        continue;
                    }
                    let line = &mut natural[a * d..(a + 1) * d];
                    add_scaled(bends[0] * t + bends[1] * h, &of_t, line);
                    add_scaled(bends[1] * t + bends[k + 1] * h, &of_h, line);
                    for b in 2..k {
                        line[own(b)] += bends[b] * t + bends[k + b] * h;
                    }
                }
                for a in 2..k {
                    let line = &mut natural[own(a) * d..(own(a) + 1) * d];
                    add_scaled(bends[a * k], &of_t, line);
                    add_scaled(bends[a * k + 1], &of_h, line);
                    for b in 2..k {
                        line[own(b)] += bends[a * k + b];
                    }
                }
                add_scaled(mean[0], &of_t, &mut gradient);
                add_scaled(mean[1], &of_h, &mut gradient);
                add_scaled(1.0, &of_g, &mut gradient);
                add_scaled(1.0, &mean[2..], &mut gradient[columns..columns + k - 2]);
            }
            if self.grouped {
                less_covariance(&room.outer[..law.points], &mut gradients, &mut of_t, &mut natural);
            }
        });
        let behind = &gradient[columns..];
        self.transforms.pull_back_hessian(&x[columns..], behind, &mut natural, d);
        add_scaled(scale, &natural, out);
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        if self.grouped { f64::NAN } else { f64::INFINITY }
    }
}

/// Take the covariance of gradients at these points off a Hessian. What is left of the gradients is
/// their distance to the mean.
fn less_covariance(
    points: &[[f64; 2]],
    gradients: &mut [f64],
    mean: &mut [f64],
    hessian: &mut [f64],
) {
    let d = mean.len();
    mean.fill(0.0);
    for ([_, p], gradient) in points.iter().zip(gradients.chunks_exact(d)) {
        add_scaled(*p, gradient, mean);
    }
    for ([_, p], gradient) in points.iter().zip(gradients.chunks_exact_mut(d)) {
        add_scaled(-1.0, mean, gradient);
        for (own, out) in gradient.iter().zip(hessian.chunks_exact_mut(d)) {
            add_scaled(-p * own, gradient, out);
        }
    }
}

impl<L: ExtendedLoss + 'static> Incomplete<L> {
    /// The gradient of a row's `F` in t, h and the parameters of the loss, and its Hessian, in
    /// lines as long as `inner`.
    fn curved(
        &self,
        row: usize,
        (t, tau): (f64, f64),
        room: &mut Room<'_>,
        inner: &mut [f64],
        curved: &mut [f64],
    ) {
        let (m, k) = (self.own, inner.len());
        let all = m + 2;
        inner.fill(0.0);
        curved.fill(0.0);
        // first in t, tau and the parameters of the loss
        let bent = self.bent(row, (t, tau), room, |slopes, bends, u, p| {
            let (slope, place) = (slopes[0], |a: usize| if a < 2 { 0 } else { a - 1 });
            let by = |a: usize| if a == 1 { u } else { 1.0 };
            let one = |a: usize| if a < 2 { slope * by(a) } else { slopes[a - 1] };
            for a in 0..all {
                inner[a] += p * one(a);
                for b in 0..all {
                    let bend = bends[place(a) * (m + 1) + place(b)] * by(a) * by(b);
                    curved[a * k + b] += p * (bend - one(a) * one(b));
                }
            }
        });
        for a in 0..all {
            for b in 0..all {
                curved[a * k + b] += inner[a] * inner[b];
            }
        }
        // from tau to h: d tau / d h = 1 / tau
        inner[1] = bent.along;
        if tau > 0.0 {
            for b in (0..all).filter(|b| *b != 1) {
                curved[k + b] /= tau;
                curved[b * k + 1] /= tau;
            }
            curved[k + 1] = (curved[k + 1] - bent.along) / (tau * tau);
        } else {
            // h is 0 where its gradient is: what is left out counts for nothing
            for b in 0..all {
                (curved[k + b], curved[b * k + 1]) = (0.0, 0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::regression::tests::Bernoulli;
    use super::super::tests::normals;
    use super::super::{GroupEffects, Model, Single, Unextended, contract};
    use super::*;
    use crate::rng::{ClientId, Purpose, Seed};

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
    const GROUPS: [u32; ROWS] = [0, 3, 1, 1, 2, 0, 1, 2, 2, 2, 1, 2, 2];

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

    fn numbers(offset: Vec<f64>) -> Incomplete<Normal> {
        let model = Incomplete::new(&design(), normals(2, ROWS), Normal, LACKING).unwrap();
        model.offset(offset).unwrap()
    }

    fn coins(offset: Vec<f64>) -> Incomplete<Unextended<Bernoulli>> {
        let loss = Unextended(Bernoulli);
        let model = Incomplete::new(&design(), classes(), loss, LACKING).unwrap();
        model.offset(offset).unwrap()
    }

    fn models() -> [Arc<dyn Model>; 2] {
        [Arc::new(numbers(normals(3, ROWS))), Arc::new(coins(Vec::new()))]
    }

    fn in_groups() -> [Arc<dyn Model>; 2] {
        let numbers = numbers(normals(3, ROWS)).grouped(&GROUPS).unwrap();
        [Arc::new(numbers), Arc::new(coins(Vec::new()).grouped(&GROUPS).unwrap())]
    }

    #[test]
    fn it_keeps_what_models_promise() {
        // all but averages, which are the same sums over Hessians as those of any model
        let promises: [contract::Promise; 9] = [
            contract::gradients,
            contract::hessian_products,
            contract::rows_add_up,
            contract::differences,
            contract::rows_ignored,
            contract::grouping,
            contract::hessians,
            contract::walks,
            contract::smoothness,
        ];
        assert_eq!(promises.len() + 1, contract::PROMISES.len());
        for model in models() {
            let broken = promises.iter().find_map(|promise| promise(&model).err());
            assert!(broken.is_none(), "{}", broken.unwrap());
        }
        for model in in_groups() {
            assert_eq!(model.rows(), 4);
            let broken = promises.iter().find_map(|promise| promise(&model).err());
            assert!(broken.is_none(), "{}", broken.unwrap());
        }
    }

    #[test]
    fn parameters_are_counted_both_ways() {
        for lacking in [LACKING, Lacking { first: 0, count: 1 }, Lacking { first: 1, count: 4 }] {
            for columns in lacking.first + lacking.count..9 {
                for own in 0..3 {
                    let dim = columns + own + lacking.parameters(columns);
                    assert_eq!(lacking.columns(dim, own), columns);
                }
            }
        }
        // two laws of three numbers and a deviation, and a coefficient of each other
        assert_eq!(models().map(|model| model.dim()), [5 + 1 + 2 * 4 + 1, 5 + 2 * 4 + 1]);
        assert_eq!(in_groups().map(|model| model.dim()), [5 + 2 + 9, 5 + 1 + 9]);
    }

    /// The loss of a row over all values of what it lacks: what is known and `e` make the columns
    /// one after another.
    fn whole(row: usize, x: &[f64], laws: &[f64], loss: impl Fn(f64) -> f64) -> f64 {
        let design = design();
        let z = [design.cell(row, 3), design.cell(row, 4)];
        let t0 = x[0] + x[3] * z[0] + x[4] * z[1];
        let mean = [0, 3].map(|k| laws[k] + laws[k + 1] * z[0] + laws[k + 2] * z[1]);
        let (c, s) = (laws[6], [laws[7].exp(), laws[8].exp()]);
        let cells = [1, 2].map(|k| design.cell(row, k));
        let (n, end) = (500, 10.0);
        let h = 2.0 * end / f64::from(n);
        let grid = || (0..n).map(|k| h * (f64::from(k) + 0.5) - end);
        let density = |e: f64| (-0.5 * e * e).exp();
        // values of a column, with their densities up to sqrt(2 pi)
        let column = |cell: f64, mean: f64, s: f64| -> Vec<(f64, f64)> {
            match cell {
                ABSENT => grid()
                    .map(|e| (mean + s * e, h * density(e) / std::f64::consts::TAU.sqrt()))
                    .collect(),
                cell => vec![(cell, density((cell - mean) / s) / s)],
            }
        };
        let mut sum = 0.0;
        for (first, p) in column(cells[0], mean[0], s[0]) {
            for (second, q) in column(cells[1], mean[1] + c * first, s[1]) {
                sum += p * q * (-loss(t0 + x[1] * first + x[2] * second)).exp();
            }
        }
        -sum.ln()
    }

    /// A row's value is that of the integral over all that it lacks, in as many dimensions.
    #[test]
    fn values_are_those_of_the_whole_integral() {
        let x: Vec<f64> = normals(7, 14).iter().map(|z| 0.6 * z).collect();
        let mut with_sigma = x.clone();
        with_sigma.insert(5, 0.3f64.ln());
        let (y, classes, offset) = (normals(2, ROWS), classes(), normals(3, ROWS));
        let (numbers, coins) = (numbers(offset.clone()), coins(Vec::new()));
        let mut scratch = vec![0.0; numbers.scratch().max(coins.scratch())];
        for row in 0..ROWS {
            let at = [row as u32];
            let found = numbers.value(&with_sigma, Rows::Some(&at), &mut scratch);
            let loss = |t: f64| 0.5 * ((y[row] - t - offset[row]) / 0.3).powi(2) + 0.3f64.ln();
            let expected = whole(row, &x, &x[5..], loss);
            assert!((found - expected).abs() < 1e-9, "{row}: {found} is not {expected}");
            let found = coins.value(&x, Rows::Some(&at), &mut scratch);
            let sign = 1.0 - 2.0 * classes[row];
            let expected = whole(row, &x, &x[5..], |t| (1.0 + (sign * t).exp()).ln());
            assert!((found - expected).abs() < 1e-9, "{row}: {found} is not {expected}");
        }
    }

    /// `exp(-U)` of a group's rows given its effect, without what their columns are known to be, on
    /// a grid that has nothing to do with the mode.
    fn by_effect(group: u32, x: &[f64], tau: f64) -> Vec<(f64, f64)> {
        let rows: Vec<u32> =
            (0..ROWS as u32).filter(|row| GROUPS[*row as usize] == group).collect();
        let point = |k: i32| {
            let v = -10.0 + 0.01 * f64::from(k);
            let model = coins(vec![tau * v; ROWS]);
            let mut scratch = vec![0.0; model.scratch()];
            let value = model.value(x, Rows::Some(&rows), &mut scratch);
            (v, (-value - 0.5 * v * v).exp() * 0.01 / TAU.sqrt())
        };
        (0..2000).map(point).collect()
    }

    #[test]
    fn effects_of_groups_are_integrated_around_rows() {
        let x: Vec<f64> = normals(7, 14).iter().map(|z| 0.6 * z).collect();
        for tau in [0.3f64, 1.4] {
            let mut with = x.clone();
            with.insert(5, tau.ln());
            let model = coins(Vec::new()).grouped(&GROUPS).unwrap();
            let mut scratch = vec![0.0; model.scratch()];
            for group in 0..4 {
                let found = model.value(&with, Rows::Some(&[group]), &mut scratch);
                let sum: f64 = by_effect(group, &x, tau).iter().map(|(_, p)| p).sum();
                let expected = -sum.ln();
                assert!((found - expected).abs() < 1e-9, "{tau}, {group}: {found}, {expected}");
            }
        }
    }

    /// Where nothing may be missing it is the regression with effects of groups.
    #[test]
    fn without_incomplete_columns_it_is_a_model_of_groups() {
        let design = Design::dense(normals(1, 3 * ROWS), 3).unwrap();
        let none = Lacking { first: 3, count: 0 };
        let (loss, at) = (Unextended(Bernoulli), [0.4, -1.1, 0.7, 0.2]);
        let model = Incomplete::new(&design, classes(), loss, none).unwrap();
        let model: Arc<dyn Model> = Arc::new(model.grouped(&GROUPS).unwrap());
        let other = GroupEffects::new(design, classes(), loss, &GROUPS).unwrap();
        let other: Arc<dyn Model> = Arc::new(other);
        let (mut one, mut two) = (Single::new(&model), Single::new(&other));
        assert!((one.value(&at) - two.value(&at)).abs() < 1e-11);
        let both = one.gradient(&at).into_iter().zip(two.gradient(&at));
        both.for_each(|(a, b)| assert!((a - b).abs() < 1e-11, "{a} is not {b}"));
    }

    /// Means and variances of drawn effects against sums over a grid, within 4.9 standard errors.
    #[test]
    fn effects_are_drawn_from_their_law() {
        let x: Vec<f64> = normals(7, 14).iter().map(|z| 0.6 * z).collect();
        let (tau, draws) = (1.4f64, 1_000);
        let mut with = x.clone();
        with.insert(5, tau.ln());
        let model = coins(Vec::new()).grouped(&GROUPS).unwrap();
        assert_eq!((model.effects(), coins(Vec::new()).effects()), (1, 0));
        let mut all = vec![Vec::new(); 4];
        for k in 0..draws {
            let mut stream = Seed::new(3).stream(Purpose::Data, ClientId(1), k);
            let drawn = model.draw(&with, &mut stream);
            all.iter_mut().zip(drawn).for_each(|(all, effect)| all.push(effect));
        }
        for (group, drawn) in all.iter().enumerate() {
            let law = by_effect(group as u32, &x, tau);
            let whole: f64 = law.iter().map(|(_, p)| p).sum();
            let mean: f64 = law.iter().map(|(v, p)| tau * v * p / whole).sum();
            let variance: f64 = law.iter().map(|(v, p)| (tau * v - mean).powi(2) * p / whole).sum();
            let n = draws as f64;
            let found = drawn.iter().sum::<f64>() / n;
            let spread = drawn.iter().map(|b| (b - found).powi(2)).sum::<f64>() / n;
            assert!((found - mean).abs() < 4.9 * (variance / n).sqrt(), "{group}: {found}, {mean}");
            let error = variance * (2.5 / n).sqrt();
            assert!((spread - variance).abs() < 4.9 * error, "{group}: {spread}, {variance}");
        }
    }

    /// Where coefficients of incomplete columns are 0 nothing is divided by it.
    #[test]
    fn nothing_is_lost_where_coefficients_are_zero() {
        for model in models().into_iter().chain(in_groups()) {
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

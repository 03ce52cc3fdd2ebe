//! Integrate the effects of groups out of a regression: `(1 | group)`, `(x | group)`.
//!
//! Rows of a group share effects `b = L v` with `v ~ N(0, 1)`, which are added to their linear
//! predictor: an intercept `b_0`, a slope `b_1 z_j` along a column `z`, or both. Given the
//! coefficients, the parameters `s` beside them and those of the effects `e`, groups are
//! independent of each other, so that
//!
//! ```text
//! U_g(beta, s, e) = -log integral exp(-phi_g(v)) dv,
//! phi_g(v) = sum_j loss(a_j . beta + c_j . v, s, y_j) + |v|^2 / 2 + dim(v) log(2 pi) / 2
//! ```
//!
//! is a function of what all sites share: no effect is sampled, kept or sent. What a site wants to
//! know of its own groups it draws from their law given the draws of the posterior
//! ([`DrawEffects`]): pairs of both have the law of the whole model.
//!
//! | what varies | `e` | `c_j` |
//! |---|---|---|
//! | intercept | `tau` | `tau` |
//! | slope | `tau` | `tau z_j` |
//! | both, independent | `tau_0, tau_1` | `(tau_0, tau_1 z_j)` |
//! | both | `tau_0, tau_1, rho` | `(tau_0 + tau_1 rho z_j, tau_1 sqrt(1 - rho^2) z_j)` |
//!
//! The integral is a sum over equidistant points around the mode, on a line or in a plane. For
//! analytic integrands that vanish at all ends its error is exponentially small in the number of
//! points: with the spacing below it is lost in rounding. It does not depend on where the first
//! point lies, so derivatives may take the points as fixed: with `E` the mean over the law of `v`
//! given the rows, `grad U = E grad phi` and `hess U = E hess phi - cov(grad phi)`.
//!
//! What the contract of models calls a row is a group here.

use std::array::from_fn;
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
/// The same along each axis of a plane.
const MOST_IN_PLANE: usize = 64;
/// Points are left out whose weight is below `exp(-36)`, 2e-16.
const NEGLIGIBLE: f64 = 36.0;
/// The same in a plane, 4e-11: what the distance between points there costs at most.
const NEGLIGIBLE_IN_PLANE: f64 = 24.0;
/// Points in units of the width of the law of `v`: the error of a Gaussian is `exp(-55)`.
const SPACING: f64 = 0.6;
/// The same in a plane, where the error is `exp(-24)`.
const SPACING_IN_PLANE: f64 = 0.9;
/// How much farther than on a line points may be apart in a plane for the poles of a loss: the
/// error is `exp(-6 pi)`.
const WIDER_IN_PLANE: f64 = 2.0;
/// How many widths from the mode points reach at least.
const FARTHEST: f64 = 9.0;
/// The most parameters that effects have.
const MOST_OF_EFFECTS: usize = 3;
/// At how many places losses are computed side by side.
const TOGETHER: usize = 16;
/// A number for each of these.
type Block = [f64; TOGETHER];

/// Rows in groups whose effects are integrated out, and can be drawn given what all share.
pub trait DrawEffects: Send + Sync {
    /// How many effects a group has.
    fn effects(&self) -> usize;

    /// The effects of all groups, on the scale of the linear predictor: drawn from their law given
    /// the parameters; those of a group stand side by side.
    fn draw(&self, x: &[f64], stream: &mut Stream) -> Vec<f64>;
}

/// What differs between groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varying {
    /// The intercept.
    Intercept,
    /// The slope along a column.
    Slope,
    /// Both, independently of each other.
    Independent,
    /// Both, with a correlation.
    Correlated,
}

impl Varying {
    /// How many standard deviations there are; a correlation may follow.
    pub fn effects(self) -> usize {
        match self {
            Varying::Intercept | Varying::Slope => 1,
            Varying::Independent | Varying::Correlated => 2,
        }
    }

    /// How many parameters the law of effects has.
    pub fn parameters(self) -> usize {
        self.effects() + usize::from(self == Varying::Correlated)
    }

    /// The variance of what is added to the predictor of a row whose column has this value, by the
    /// parameters on their natural scale.
    pub fn variance_at(self, effects: &[f64], z: f64) -> f64 {
        let [a, b] = self.loading(effects, z);
        a * a + b * b
    }

    /// What is added to the predictor of such a row, for each entry of `v`.
    fn loading(self, effects: &[f64], z: f64) -> [f64; 2] {
        match (self, effects) {
            (Varying::Intercept, [tau, ..]) => [*tau, 0.0],
            (Varying::Slope, [tau, ..]) => [tau * z, 0.0],
            (Varying::Independent, [first, second, ..]) => [*first, second * z],
            (Varying::Correlated, [first, second, rho]) => {
                [first + second * rho * z, second * root(*rho) * z]
            }
            _ => [f64::NAN; 2],
        }
    }

    /// The derivatives of that in the parameters, at `v`.
    fn directions(self, effects: &[f64], z: f64, v: [f64; 2]) -> [f64; MOST_OF_EFFECTS] {
        match (self, effects) {
            (Varying::Intercept, _) => [v[0], 0.0, 0.0],
            (Varying::Slope, _) => [z * v[0], 0.0, 0.0],
            (Varying::Independent, _) => [v[0], z * v[1], 0.0],
            (Varying::Correlated, [_, second, rho]) => {
                let turned = v[0] - rho / root(*rho) * v[1];
                [v[0], z * (rho * v[0] + root(*rho) * v[1]), z * second * turned]
            }
            _ => [f64::NAN; MOST_OF_EFFECTS],
        }
    }

    /// The second derivatives: in the second deviation and the correlation, and in the correlation
    /// twice. There are no others.
    fn curls(self, effects: &[f64], z: f64, v: [f64; 2]) -> Option<[f64; 2]> {
        let (Varying::Correlated, [_, second, rho]) = (self, effects) else { return None };
        let root = root(*rho);
        Some([z * (v[0] - rho / root * v[1]), -z * second * v[1] / (root * root * root)])
    }

    /// The effects of a group with this `v`.
    fn effects_of(self, effects: &[f64], v: [f64; 2]) -> [f64; 2] {
        let at = |z: f64| {
            let c = self.loading(effects, z);
            c[0] * v[0] + c[1] * v[1]
        };
        match self {
            Varying::Intercept => [at(0.0), 0.0],
            Varying::Slope => [at(1.0), 0.0],
            Varying::Independent | Varying::Correlated => [at(0.0), at(1.0) - at(0.0)],
        }
    }
}

/// The rows, group by group, and where groups begin among these, and where the last ends.
pub(super) fn in_groups(group_of: &[u32]) -> (Vec<u32>, Vec<usize>) {
    let groups = group_of.iter().max().map_or(0, |last| *last as usize + 1);
    let mut starts = vec![0; groups + 1];
    group_of.iter().for_each(|group| starts[*group as usize + 1] += 1);
    (0..groups).for_each(|group| starts[group + 1] += starts[group]);
    let mut order: Vec<u32> = (0..group_of.len() as u32).collect();
    order.sort_by_key(|row| group_of[*row as usize]); // stable: rows stay in ascending order
    (order, starts)
}

/// `sqrt(1 - rho^2)`.
fn root(rho: f64) -> f64 {
    ((1.0 - rho) * (1.0 + rho)).sqrt()
}

/// The negative log-likelihood of rows in groups, without the groups' effects. Parameters are the
/// coefficients, those beside them, and those of the law of effects: standard deviations, which are
/// positive, and a correlation.
#[derive(Clone, Debug)]
pub struct GroupEffects<L> {
    design: Design,
    response: Vec<f64>,
    loss: L,
    /// How many parameters there are beside the coefficients, those of effects included.
    beside: usize,
    /// What holds these in their place.
    transforms: Transforms,
    varying: Varying,
    /// The column along which slopes vary; empty where none do.
    along: Vec<f64>,
    /// The rows, group by group.
    order: Vec<u32>,
    /// Where groups begin among these, and where the last ends.
    starts: Vec<usize>,
    adjustment: Adjustment,
}

/// One group at one point: its rows' predictors without the effect, and the law of `v`.
struct Law<'a> {
    predictors: &'a [f64],
    /// What is added to these, for each entry of `v`.
    loadings: &'a [[f64; 2]],
    points: &'a [Point],
    at: Natural<'a>,
    /// `U_g`.
    value: f64,
    grid: Grid,
}

/// A place of the integral: `v`, and its probability.
type Point = [f64; 3];

/// Where the points of a law lie.
#[derive(Clone, Copy, Debug)]
enum Grid {
    /// So far apart.
    Line(f64),
    /// Around the mode, so far apart along two axes in which the law is round there: with `C` such
    /// that `C C'` is the curvature, by its entries `C_00, C_10, C_11`, `u = C' (v - mode)`.
    Plane { mode: [f64; 2], factor: [f64; 3], spacing: [f64; 2] },
}

/// What is known of `phi_g` along one line of a plane: its places are numbered, and blocks of them
/// are asked for together.
struct Along {
    /// Which block stands where: the `n`-th at `n` modulo the length.
    blocks: [i32; 16],
    values: [Block; 16],
}

impl Default for Along {
    fn default() -> Self {
        Along { blocks: [i32::MIN; 16], values: [[0.0; TOGETHER]; 16] }
    }
}

impl Along {
    /// The value at place `k`; `ask` is told the places of a block.
    fn at(&mut self, k: i32, ask: impl FnOnce([i32; TOGETHER]) -> Block) -> f64 {
        let together = TOGETHER as i32;
        let (block, place) = (k.div_euclid(together), k.rem_euclid(together) as usize);
        let slot = block.rem_euclid(self.blocks.len() as i32) as usize;
        if self.blocks[slot] != block {
            self.values[slot] = ask(from_fn(|place| block * together + place as i32));
            self.blocks[slot] = block;
        }
        self.values[slot][place]
    }
}

/// Where laws are made, and where.
struct Room<'a> {
    predictors: &'a mut [f64],
    loadings: &'a mut [[f64; 2]],
    points: &'a mut [Point],
    natural: Natural<'a>,
    derivatives: Derivatives<'a>,
}

/// Parameters beside the coefficients on their natural scale, and those of effects.
#[derive(Clone, Copy)]
struct Natural<'a> {
    beside: &'a [f64],
    effects: &'a [f64],
}

/// A group's rows, their predictors without its effects, and what these add.
#[derive(Clone, Copy)]
struct Members<'a> {
    rows: &'a [u32],
    predictors: &'a [f64],
    loadings: &'a [[f64; 2]],
}

impl Members<'_> {
    /// Every row with its predictor at `v`.
    fn at(&self, v: [f64; 2]) -> impl Iterator<Item = (u32, f64, [f64; 2])> + '_ {
        let each = self.rows.iter().zip(self.predictors).zip(self.loadings);
        each.map(move |((row, t), c)| (*row, t + (c[0] * v[0] + c[1] * v[1]), *c))
    }
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
        let (order, starts) = in_groups(group_of);
        let (beside, adjustment) = (0, Adjustment::default());
        let (transforms, varying, along) = (Transforms::default(), Varying::Intercept, Vec::new());
        let model = GroupEffects {
            design,
            response,
            loss,
            beside,
            transforms,
            varying,
            along,
            order,
            starts,
            adjustment,
        };
        Ok(model.held())
    }

    /// The same with what holds its parameters in their place.
    fn held(self) -> Self {
        let (own, held) = self.loss.beside();
        let deviations = own..own + self.varying.effects();
        let beside = own + self.varying.parameters();
        let last = [
            (deviations.clone(), Transform::Positive),
            (deviations.end..beside, Transform::Correlation),
        ];
        let transforms = Transforms::new(held.groups().iter().cloned().chain(last));
        GroupEffects { transforms, beside, ..self }
    }

    /// The same where this differs between groups, along a column that has this value in every row.
    pub fn varying(self, varying: Varying, along: Vec<f64>) -> Result<Self, DataError> {
        if along.len() != self.design.rows() {
            return Err(DataError::Responses { responses: along.len(), rows: self.design.rows() });
        }
        Ok(GroupEffects { varying, along, ..self }.held())
    }

    /// The same with offsets and weights of rows.
    pub fn adjusted(self, adjustment: Adjustment) -> Result<Self, DataError> {
        adjustment.check(self.design.rows())?;
        Ok(GroupEffects { adjustment, ..self })
    }

    /// The value of the column along which slopes vary.
    fn along(&self, row: u32) -> f64 {
        self.along.get(row as usize).copied().unwrap_or(0.0)
    }

    /// The derivatives of a row's loss at a predictor with the effects of its group: see
    /// [`ExtendedLoss::derive`].
    #[inline(always)]
    fn derive(&self, row: u32, t: f64, at: Natural<'_>, room: &mut Derivatives<'_>) {
        let (row, y) = (row as usize, self.response[row as usize]);
        let at = (t, at.beside, y);
        self.adjustment.derive(&self.loss, row, at, room.slopes, room.bends);
    }

    fn rows_of(&self, group: usize) -> &[u32] {
        &self.order[self.starts[group]..self.starts[group + 1]]
    }

    fn largest_group(&self) -> usize {
        self.starts.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }

    /// `phi_g` at so many places, each with the bits that it would have alone.
    fn phis(&self, of: Members<'_>, at: Natural<'_>, places: &[[f64; 2]; TOGETHER]) -> Block {
        let constant = 0.5 * self.varying.effects() as f64 * TAU.ln();
        let mut sums = places.map(|v| 0.5 * (v[0] * v[0] + v[1] * v[1]) + constant);
        for ((row, t), c) in of.rows.iter().zip(of.predictors).zip(of.loadings) {
            let (row, y) = (*row as usize, self.response[*row as usize]);
            let mut losses = places.map(|v| t + (c[0] * v[0] + c[1] * v[1]));
            self.adjustment.losses(&self.loss, row, &mut losses, at.beside, y);
            sums.iter_mut().zip(losses).for_each(|(sum, loss)| *sum += loss);
        }
        sums
    }

    /// `phi_g(v)`.
    fn phi(&self, of: Members<'_>, at: Natural<'_>, v: [f64; 2]) -> f64 {
        self.phis(of, at, &[v; TOGETHER])[0]
    }

    /// The gradient of `phi_g` in `v`, and its second derivatives: of the first entry, of both, of
    /// the second.
    fn bent(
        &self,
        of: Members<'_>,
        at: Natural<'_>,
        v: [f64; 2],
        room: &mut Derivatives<'_>,
    ) -> ([f64; 2], [f64; 3]) {
        let (mut slope, mut bend) = (v, [1.0, 0.0, 1.0]);
        for (row, t, c) in of.at(v) {
            self.derive(row, t, at, room);
            let (first, second) = (room.slopes[0], room.bends[0]);
            slope = [slope[0] + c[0] * first, slope[1] + c[1] * first];
            bend[0] += c[0] * c[0] * second;
            bend[1] += c[0] * c[1] * second;
            bend[2] += c[1] * c[1] * second;
        }
        (slope, bend)
    }

    /// Where `phi_g` is smallest on a line, to a hundredth of its width: Newton's method within
    /// what is known to hold the place. And the width.
    fn mode(&self, of: Members<'_>, at: Natural<'_>, room: &mut Derivatives<'_>) -> (f64, f64) {
        let (mut v, mut least, mut most) = (0.0, f64::NEG_INFINITY, f64::INFINITY);
        let mut width = 1.0;
        for _ in 0..100 {
            let ([slope, _], [bend, ..]) = self.bent(of, at, [v, 0.0], room);
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

    /// Where `phi_g` is smallest in a plane, to a hundredth of its width, by Newton's method with
    /// shorter steps where a whole one does not go down; and the factor of the curvature there, by
    /// its entries `C_00, C_10, C_11`.
    fn mode_in_plane(
        &self,
        of: Members<'_>,
        at: Natural<'_>,
        room: &mut Derivatives<'_>,
    ) -> ([f64; 2], [f64; 3]) {
        let (mut v, mut factor) = ([0.0; 2], [1.0, 0.0, 1.0]);
        let mut here = self.phi(of, at, v);
        for _ in 0..100 {
            let (slope, bend) = self.bent(of, at, v, room);
            // Where the loss is not convex the bend may be less than the prior's.
            let first = bend[0].max(0.1).sqrt();
            let across = bend[1] / first;
            let second = (bend[2] - across * across).max(0.1).sqrt();
            factor = [first, across, second];
            let y = slope[0] / first;
            let y = [y, (slope[1] - across * y) / second];
            let decrease = y[0] * y[0] + y[1] * y[1];
            if decrease <= 1e-4 || !decrease.is_finite() {
                break;
            }
            let step = -y[1] / second;
            let step = [(-y[0] - across * step) / first, step];
            let shorter = |k: i32| 0.5f64.powi(k);
            let tried = (0..40).map(shorter).find_map(|share| {
                let next = [v[0] + share * step[0], v[1] + share * step[1]];
                let there = self.phi(of, at, next);
                (there <= here - 1e-4 * share * decrease).then_some((next, there))
            });
            let Some((next, there)) = tried else { break };
            (v, here) = (next, there);
        }
        (v, factor)
    }

    /// The law of a group's `v` at a point, by points that are so many times as near on a line as
    /// integrals need: in this room, whose derivatives are lent out again.
    fn law<'a, 'r>(
        &self,
        group: usize,
        x: &[f64],
        finer: f64,
        room: &'a mut Room<'r>,
    ) -> (Law<'a>, &'a mut Derivatives<'r>) {
        let (rows, at) = (self.rows_of(group), room.natural);
        let predictors = &mut room.predictors[..rows.len()];
        let loadings = &mut room.loadings[..rows.len()];
        for ((t, c), row) in predictors.iter_mut().zip(loadings.iter_mut()).zip(rows) {
            *t = self.design.row_dot(*row as usize, &x[..self.design.columns()]);
            *c = self.varying.loading(at.effects, self.along(*row));
        }
        let of = Members { rows, predictors, loadings };
        let (count, total, lowest, grid) = match self.varying.effects() {
            1 => self.line(of, at, finer, room.points, &mut room.derivatives),
            _ => self.plane(of, at, room.points, &mut room.derivatives),
        };
        let points = &mut room.points[..count];
        points.iter_mut().for_each(|point| point[2] /= total);
        let cell = match grid {
            Grid::Line(spacing) => spacing,
            Grid::Plane { factor, spacing, .. } => {
                spacing[0] / factor[0] * (spacing[1] / factor[2])
            }
        };
        let value = lowest - ln(cell * total);
        (Law { predictors, loadings, points, at, value, grid }, &mut room.derivatives)
    }

    /// Points on a line, with weights over that of the mode: how many, their sum, `phi_g` there.
    fn line(
        &self,
        of: Members<'_>,
        at: Natural<'_>,
        finer: f64,
        points: &mut [Point],
        room: &mut Derivatives<'_>,
    ) -> (usize, f64, f64, Grid) {
        let (mode, width) = self.mode(of, at, room);
        let most = points.len() / 2;
        let steepest = of.loadings.iter().map(|c| c[0].abs()).fold(0.0, f64::max);
        let spacing = (SPACING * width).min(self.loss.reach(at.beside) / steepest) / finer;
        // Where effects are so large that a row's loss is a step, points must last to both ends.
        let spacing = spacing.max(FARTHEST * width / most as f64);
        let lowest = self.phi(of, at, [mode, 0.0]);
        let (mut count, mut total) = (0, 0.0);
        for (side, first) in [(1.0, 0), (-1.0, 1)] {
            'side: for start in (first..most).step_by(TOGETHER) {
                let places: [[f64; 2]; TOGETHER] =
                    from_fn(|k| [mode + side * spacing * (start + k) as f64, 0.0]);
                let phis = self.phis(of, at, &places);
                for (v, phi) in places.into_iter().zip(phis).take(most - start) {
                    let above = phi - lowest;
                    let weight = exp(-above);
                    points[count] = [v[0], 0.0, weight];
                    count += 1;
                    total += weight;
                    if above > NEGLIGIBLE {
                        break 'side;
                    }
                }
            }
        }
        (count, total, lowest, Grid::Line(spacing))
    }

    /// Points in a plane, likewise: line by line, each from its own lowest point, which is next to
    /// that of the line before.
    fn plane(
        &self,
        of: Members<'_>,
        at: Natural<'_>,
        points: &mut [Point],
        room: &mut Derivatives<'_>,
    ) -> (usize, f64, f64, Grid) {
        let (mode, factor) = self.mode_in_plane(of, at, room);
        let [first, across, second] = factor;
        // how steep predictors are along both axes
        let steep = |c: &[f64; 2]| [c[0] / first, (c[1] - c[0] * across / first) / second];
        let steepest = of
            .loadings
            .iter()
            .map(steep)
            .fold([0.0f64; 2], |most, c| [most[0].max(c[0].abs()), most[1].max(c[1].abs())]);
        let reach = WIDER_IN_PLANE * self.loss.reach(at.beside);
        let spacing = steepest
            .map(|steep| SPACING_IN_PLANE.min(reach / steep).max(FARTHEST / MOST_IN_PLANE as f64));
        let place = |i: i32, k: i32| {
            let v = spacing[1] * f64::from(k) / second;
            [mode[0] + (spacing[0] * f64::from(i) - across * v) / first, mode[1] + v]
        };
        let lowest = self.phi(of, at, mode);
        let most = MOST_IN_PLANE as i32;
        let (mut count, mut total) = (0, 0.0);
        for (side, start) in [(1, 0), (-1, 1)] {
            let mut centre = 0;
            for i in (start..=most).map(|i| side * i) {
                let mut along = Along::default();
                let mut above =
                    |k: i32| along.at(k, |ks| self.phis(of, at, &ks.map(|k| place(i, k)))) - lowest;
                let mut least = above(centre);
                for way in [1, -1] {
                    let mut next = above(centre + way);
                    while next < least {
                        (centre, least) = (centre + way, next);
                        next = above(centre + way);
                    }
                }
                if least > NEGLIGIBLE_IN_PLANE {
                    break;
                }
                for (way, first) in [(1, 0), (-1, 1)] {
                    for k in (first..=most).map(|k| centre + way * k) {
                        let above = above(k);
                        let ([a, b], weight) = (place(i, k), exp(-above));
                        points[count] = [a, b, weight];
                        count += 1;
                        total += weight;
                        if above > NEGLIGIBLE_IN_PLANE {
                            break;
                        }
                    }
                }
            }
        }
        (count, total, lowest, Grid::Plane { mode, factor, spacing })
    }

    /// The most points of a law, where those on a line are so many times as near.
    fn most_points(&self, finer: usize) -> usize {
        match self.varying.effects() {
            1 => 2 * MOST * finer,
            _ => (2 * MOST_IN_PLANE + 1) * (2 * MOST_IN_PLANE + 1),
        }
    }

    /// Room for laws at this point.
    fn room<'a>(&self, x: &[f64], points: usize, scratch: &'a mut [f64]) -> Room<'a> {
        let (m, largest) = (self.beside, self.largest_group());
        let (natural, rest) = scratch.split_at_mut(m);
        natural.copy_from_slice(&x[self.design.columns()..]);
        self.transforms.outward(natural);
        let (beside, effects) = natural.split_at(m - self.varying.parameters());
        let own = 1 + beside.len();
        let (slopes, rest) = rest.split_at_mut(own);
        let (bends, rest) = rest.split_at_mut(own * own);
        let (predictors, rest) = rest.split_at_mut(largest);
        let (loadings, rest) = rest.split_at_mut(2 * largest);
        Room {
            predictors,
            loadings: loadings.as_chunks_mut().0,
            points: &mut rest.as_chunks_mut().0[..points],
            natural: Natural { beside, effects },
            derivatives: Derivatives { slopes, bends },
        }
    }

    /// How many places that takes.
    fn places(&self, points: usize) -> usize {
        2 * self.beside + self.beside * self.beside + 3 * self.largest_group() + 3 * points
    }

    /// Do something with the law of each of these groups, in ascending order.
    fn each(
        &self,
        x: &[f64],
        groups: Rows<'_>,
        scratch: &mut [f64],
        mut visit: impl FnMut(&[u32], Law<'_>, &mut Derivatives<'_>),
    ) {
        let mut room = self.room(x, self.most_points(1), scratch);
        for block in groups.blocks(self.starts.len() - 1) {
            for group in block.iter() {
                let (law, derivatives) = self.law(*group, x, 1.0, &mut room);
                visit(self.rows_of(*group), law, derivatives);
            }
        }
    }
}

impl<L: ExtendedLoss + 'static> DrawEffects for GroupEffects<L> {
    fn effects(&self) -> usize {
        self.varying.effects()
    }

    /// A point of the law is drawn, and a triangle of the points' spacing is laid around it. On a
    /// line this widens the law's variance by less than a thousandth; in a plane, where points are
    /// farther apart, what is drawn is drawn towards the mean so that variances are those of the
    /// law.
    fn draw(&self, x: &[f64], stream: &mut Stream) -> Vec<f64> {
        const FINER: usize = 12;
        let points = self.most_points(FINER);
        let mut scratch = vec![0.0; self.places(points)];
        let mut room = self.room(x, points, &mut scratch);
        let mut all = Vec::new();
        for group in 0..self.starts.len() - 1 {
            let (law, _) = self.law(group, x, FINER as f64, &mut room);
            let mut left = stream.uniform();
            let drawn = law.points.iter().find(|[_, _, probability]| {
                left -= probability;
                left < 0.0
            });
            let [a, b, _] = drawn.or(law.points.first()).copied().unwrap_or_default();
            let mut triangle = || stream.uniform() - stream.uniform();
            let v = match law.grid {
                Grid::Line(spacing) => [a + spacing * triangle(), b],
                Grid::Plane { mode, factor: [first, across, second], spacing } => {
                    let of = |v: [f64; 2]| {
                        let [a, b] = [v[0] - mode[0], v[1] - mode[1]];
                        [first * a + across * b, second * b]
                    };
                    let u = of([a, b]);
                    let drawn = [0, 1].map(|k| {
                        let (mut mean, mut square) = (0.0, 0.0);
                        for [a, b, p] in law.points {
                            let u = of([*a, *b])[k];
                            mean += p * u;
                            square += p * u * u;
                        }
                        let variance = square - mean * mean;
                        let wider = variance + spacing[k] * spacing[k] / 6.0;
                        let moved = u[k] + spacing[k] * triangle();
                        mean + (moved - mean) * (variance / wider).sqrt()
                    });
                    let v = drawn[1] / second;
                    [mode[0] + (drawn[0] - across * v) / first, mode[1] + v]
                }
            };
            let effects = self.varying.effects_of(law.at.effects, v);
            all.extend_from_slice(&effects[..self.varying.effects()]);
        }
        all
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
        self.places(self.most_points(1)) + self.beside + 2 * Likelihood::dim(self)
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
        let m = sum.len() - self.varying.parameters();
        sum.fill(0.0);
        self.each(x, rows, scratch, |rows, law, room| {
            for ((row, t), c) in rows.iter().zip(law.predictors).zip(law.loadings) {
                let (mut slope, z) = (0.0, self.along(*row));
                for [a, b, p] in law.points {
                    self.derive(*row, t + (c[0] * a + c[1] * b), law.at, room);
                    slope += p * room.slopes[0];
                    add_scaled(*p, &room.slopes[1..], &mut sum[..m]);
                    let directions = self.varying.directions(law.at.effects, z, [*a, *b]);
                    for (sum, along) in sum[m..].iter_mut().zip(directions) {
                        *sum += p * room.slopes[0] * along;
                    }
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
        let (d, columns) = (Likelihood::dim(self), self.design.columns());
        let effects = self.varying.parameters();
        let m = self.beside - effects;
        // On the natural scale: the gradient of phi at every point of a group, their mean, the sum
        // over groups, one row's own part, and the Hessian.
        let (mut gradients, mut mean) = (Vec::new(), vec![0.0; d]);
        let (mut sum, mut a) = (vec![0.0; d], vec![0.0; d]);
        let mut natural = vec![0.0; d * d];
        // A row's Hessian in its predictor, the parameters beside and those of effects, on average.
        let k = m + 1 + effects;
        let mut bends = vec![0.0; k * k];
        self.each(x, rows, scratch, |rows, law, room| {
            gradients.clear();
            gradients.resize(law.points.len() * d, 0.0);
            for ((row, t), c) in rows.iter().zip(law.predictors).zip(law.loadings) {
                a.fill(0.0);
                self.design.add_row(*row as usize, 1.0, &mut a[..columns]);
                bends.fill(0.0);
                let z = self.along(*row);
                let each = law.points.iter().zip(gradients.chunks_exact_mut(d));
                for ([v, w, p], gradient) in each {
                    self.derive(*row, t + (c[0] * v + c[1] * w), law.at, room);
                    let (slope, bend) = (room.slopes[0], room.bends[0]);
                    let directions = self.varying.directions(law.at.effects, z, [*v, *w]);
                    let directions = &directions[..effects];
                    add_scaled(slope, &a[..columns], &mut gradient[..columns]);
                    add_scaled(1.0, &room.slopes[1..], &mut gradient[columns..columns + m]);
                    add_scaled(slope, directions, &mut gradient[columns + m..]);
                    for i in 0..=m {
                        let bend = &room.bends[i * (m + 1)..(i + 1) * (m + 1)];
                        add_scaled(*p, bend, &mut bends[i * k..i * k + m + 1]);
                        let out = &mut bends[i * k + m + 1..(i + 1) * k];
                        add_scaled(p * bend[0], directions, out);
                    }
                    for (i, along) in directions.iter().enumerate() {
                        let from = (m + 1 + i) * k + m + 1;
                        let out = &mut bends[from..from + effects];
                        add_scaled(p * bend * along, directions, out);
                    }
                    if let Some([across, twice]) = self.varying.curls(law.at.effects, z, [*v, *w]) {
                        bends[k * k - 1] += p * slope * twice;
                        bends[k * k - 2] += p * slope * across;
                        bends[k * k - 1 - k] += p * slope * across;
                    }
                }
                for i in 0..=m {
                    (m + 1..k).for_each(|j| bends[j * k + i] = bends[i * k + j]);
                }
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
            for ([_, _, p], gradient) in law.points.iter().zip(gradients.chunks_exact(d)) {
                add_scaled(*p, gradient, &mut mean);
            }
            add_scaled(1.0, &mean, &mut sum);
            for ([_, _, p], gradient) in law.points.iter().zip(gradients.chunks_exact_mut(d)) {
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

    const ALL: [Varying; 3] = [Varying::Slope, Varying::Independent, Varying::Correlated];

    fn normal() -> GroupEffects<Normal> {
        GroupEffects::new(design(), normals(3, 13), Normal, &GROUPS).unwrap()
    }

    #[test]
    fn slopes_keep_what_models_promise() {
        let z = || normals(8, 13);
        let binary = binary().varying(Varying::Correlated, z()).unwrap();
        let normals = ALL.map(|varying| normal().varying(varying, z()).unwrap());
        let normals = normals.into_iter().map(|model| Arc::new(model) as Arc<dyn Model>);
        // all but averages, which are the same sums over Hessians as those of any model
        let promises: [contract::Promise; 6] = [
            contract::gradients,
            contract::hessian_products,
            contract::rows_add_up,
            contract::differences,
            contract::hessians,
            contract::walks,
        ];
        for (model, dim) in normals.zip([5, 6, 7]).chain([(Arc::new(binary) as _, 6)]) {
            assert_eq!(model.dim(), dim);
            for promise in promises {
                promise(&model).unwrap_or_else(|e| panic!("{dim}: {e}"));
            }
        }
    }

    /// Responses of a group are Gaussian with the covariance `s^2 1 + Z T Z'`: its determinant and
    /// the quadratic form by elimination.
    #[test]
    fn gaussian_slopes_are_integrated_exactly() {
        let (x, y, z) = (normals(2, 3), normals(3, 13), normals(8, 13));
        for varying in ALL {
            let model: Arc<dyn Model> = Arc::new(normal().varying(varying, z.clone()).unwrap());
            for (log_s, first, second, u) in [
                (-0.3, -3.0, -1.0, 0.3),
                (0.5, -0.5, 0.4, -1.2),
                (0.0, 0.0, 0.0, 0.0),
                (-1.0, 1.0, -2.0, 2.0),
                (1.0, 1.5, 1.0, -0.5),
            ] {
                let (a, b, rho) = (f64::exp(first), f64::exp(second), f64::tanh(u));
                let (effects, covariance): (&[f64], [f64; 3]) = match varying {
                    Varying::Intercept => continue,
                    Varying::Slope => (&[second], [0.0, 0.0, b * b]),
                    Varying::Independent => (&[first, second], [a * a, 0.0, b * b]),
                    Varying::Correlated => (&[first, second, u], [a * a, rho * a * b, b * b]),
                };
                let at = [&x[..], &[log_s], effects].concat();
                let mut exact = 0.0;
                for group in 0..4 {
                    let rows: Vec<usize> = (0..13).filter(|row| GROUPS[*row] == group).collect();
                    let mut left: Vec<f64> =
                        rows.iter().map(|j| y[*j] - design().row_dot(*j, &x)).collect();
                    let entry = |j: &usize, k: &usize| {
                        let own = if j == k { f64::exp(2.0 * log_s) } else { 0.0 };
                        let [one, both, two] = covariance;
                        own + one + both * (z[*j] + z[*k]) + two * z[*j] * z[*k]
                    };
                    let mut matrix: Vec<Vec<f64>> =
                        rows.iter().map(|j| rows.iter().map(|k| entry(j, k)).collect()).collect();
                    for j in 0..rows.len() {
                        exact += 0.5 * (matrix[j][j].ln() + left[j] * left[j] / matrix[j][j]);
                        for k in j + 1..rows.len() {
                            let share = matrix[k][j] / matrix[j][j];
                            left[k] -= share * left[j];
                            for l in j..rows.len() {
                                matrix[k][l] -= share * matrix[j][l];
                            }
                        }
                    }
                }
                let found = Single::new(&model).value(&at);
                let near = (found - exact).abs() < 1e-9 * (1.0 + exact.abs());
                assert!(near, "{varying:?}: {found} is not {exact}");
            }
        }
    }

    /// By Simpson's rule in both directions, on a grid that has nothing to do with the mode.
    #[test]
    fn slopes_of_binary_rows_are_integrated_to_nine_digits() {
        let z = normals(8, 13);
        let model = binary().varying(Varying::Correlated, z.clone()).unwrap();
        let mut scratch = vec![0.0; Likelihood::scratch(&model)];
        for (first, second, u) in [(-1.0, -1.0, 0.4), (0.5, 0.2, -0.8), (1.2, 0.7, 1.1)] {
            let x = [0.4, -1.1, 0.7, first, second, u];
            let (a, b, rho) = (f64::exp(first), f64::exp(second), f64::tanh(u));
            for group in 0..4u32 {
                let rows = model.rows_of(group as usize);
                let (n, end) = (400, 8.5);
                let h = 2.0 * end / f64::from(n);
                let weight = |k: i32| match k {
                    0 => 1.0,
                    _ if k == n => 1.0,
                    _ => 2.0 + 2.0 * f64::from(k % 2),
                };
                let mut integral = 0.0;
                for (i, k) in (0..=n).flat_map(|i| (0..=n).map(move |k| (i, k))) {
                    let v = [i, k].map(|i| h * f64::from(i) - end);
                    let (own, slope) =
                        (a * v[0], b * (rho * v[0] + (1.0 - rho * rho).sqrt() * v[1]));
                    let loss = |row: &u32| {
                        let j = *row as usize;
                        let t = model.design.row_dot(j, &x[..3]) + own + slope * z[j];
                        // minus the logarithm of the probability of 0 or 1
                        (1.0 + t.exp()).ln() - model.response[j] * t
                    };
                    let loss: f64 = rows.iter().map(loss).sum();
                    let square = v[0] * v[0] + v[1] * v[1];
                    integral += weight(i) * weight(k) * (-loss - 0.5 * square).exp();
                }
                let integral = integral * h * h / 9.0 / TAU;
                let found = Likelihood::value(&model, &x, Rows::Some(&[group]), &mut scratch);
                let off = found + integral.ln();
                assert!(off.abs() < 1e-9, "{x:?}, {group}: {found} is off by {off:e}");
            }
        }
    }

    /// Means, variances and the covariance of drawn intercepts and slopes against those of the
    /// Gaussian conditional, within 4.9 standard errors.
    #[test]
    fn slopes_are_drawn_from_their_law() {
        let (x, y, z) = (normals(2, 3), normals(3, 13), normals(8, 13));
        let model = normal().varying(Varying::Correlated, z.clone()).unwrap();
        let (s2, a, b, rho, draws) = (0.5, 0.7, 1.1, 0.4f64, 4_000);
        let at = [&x[..], &[0.5 * f64::ln(s2), f64::ln(a), f64::ln(b), rho.atanh()]].concat();
        let mut all = vec![Vec::new(); 8];
        for k in 0..draws {
            let mut stream = Seed::new(3).stream(Purpose::Data, ClientId(1), k);
            let drawn = model.draw(&at, &mut stream);
            all.iter_mut().zip(drawn).for_each(|(all, effect)| all.push(effect));
        }
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let n = draws as f64;
        for group in 0..4 {
            // the precision of intercept and slope, and what the rows say of both
            let below = a * a * b * b * (1.0 - rho * rho);
            let mut precision = [b * b / below, -rho * a * b / below, a * a / below];
            let mut said = [0.0; 2];
            for j in (0..13).filter(|row| GROUPS[*row] as usize == group) {
                let left = y[j] - design().row_dot(j, &x);
                precision = [
                    precision[0] + 1.0 / s2,
                    precision[1] + z[j] / s2,
                    precision[2] + z[j] * z[j] / s2,
                ];
                said = [said[0] + left / s2, said[1] + left * z[j] / s2];
            }
            let whole = precision[0] * precision[2] - precision[1] * precision[1];
            let variance = [precision[2] / whole, precision[0] / whole];
            let both = -precision[1] / whole;
            let exact =
                [variance[0] * said[0] + both * said[1], both * said[0] + variance[1] * said[1]];
            let drawn = [&all[2 * group], &all[2 * group + 1]];
            for k in 0..2 {
                let found = mean(drawn[k]);
                let error = (variance[k] / n).sqrt();
                assert!((found - exact[k]).abs() < 4.9 * error, "{group}: {found}, {exact:?}");
                let square: Vec<f64> = drawn[k].iter().map(|b| (b - found).powi(2)).collect();
                let error = variance[k] * (2.0 / n).sqrt();
                assert!((mean(&square) - variance[k]).abs() < 4.9 * error, "{group}: {k}");
            }
            let centre = [mean(drawn[0]), mean(drawn[1])];
            let products: Vec<f64> = drawn[0]
                .iter()
                .zip(drawn[1])
                .map(|(a, b)| (a - centre[0]) * (b - centre[1]))
                .collect();
            let error = ((variance[0] * variance[1] + both * both) / n).sqrt();
            assert!((mean(&products) - both).abs() < 4.9 * error, "{group}");
        }
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
                let tau = f64::exp(log_tau);
                let loadings = vec![[tau, 0.0]; rows.len()];
                let of = Members { rows, predictors: &predictors, loadings: &loadings };
                let (n, least, most) = (20_000, -12.0, 12.0);
                let h = (most - least) / f64::from(n);
                let density = |k: i32| {
                    let u = least + h * f64::from(k);
                    let at = Natural { beside: &[], effects: &[tau] };
                    (-model.phi(of, at, [u, 0.0])).exp()
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

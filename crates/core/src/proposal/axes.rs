//! Bend single axes of a proposal where the posterior is not Gaussian along them.
//!
//! One heavy one-sided direction, a rare indicator say, ruins the weights of every Gaussian
//! proposal. The axes are those in which the averaged precision and the mode's Hessian are both
//! diagonal ([`axes`]), or, where many are a little skewed, each parameter given narrower ones
//! ([`conditional_axes`]); along each the potential is asked for at ten points,
//! `r = +-1, 2, 3, 4.5, 6` standard deviations from the mean. What belongs to the other axes is
//! taken out of this profile: its slope and curvature on average are made those of a standard
//! normal. Where the law `exp(-f)` of what is left is far from normal, a normal coordinate `z`
//! becomes `T(z) = F^-1(Phi(z))`, a piecewise linear function whose slope stands in the proposal's
//! density.

use nalgebra::DMatrix;

use super::symmetric;
use crate::simd::{exp, ln};

/// Where profiles are asked for, in standard deviations from the mean.
pub const PROFILE: [f64; 10] = [-6.0, -4.5, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.5, 6.0];

/// A law further than this from a standard normal, in total variation, is worth a map.
pub const FAR: f64 = 0.04;

/// The knots of a profile: the same with the mean in the middle, where it is 0.
const KNOTS: [f64; 11] = [-6.0, -4.5, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.5, 6.0];
/// A map is tabulated from `-EDGE` to `EDGE` in steps of `1/FINE`.
const EDGE: f64 = 6.0;
const FINE: usize = 100;
/// Integrals run from `-FARTHEST` to `FARTHEST` in steps of `STEP`.
const FARTHEST: f64 = 12.0;
const STEP: f64 = 0.005;
/// Beyond the outermost knots a profile rises at least so steeply, and is bent at least so much.
const LEAST_SLOPE: f64 = 0.3;
const LEAST_BEND: f64 = 0.02;
/// A map is nowhere flatter than this.
const FLATTEST: f64 = 1e-4;
/// Where the law of an axis itself is known, its tails fall at least so steeply; they are followed
/// down to `exp(-TAIL)`, on a grid of so many points to either side.
const FLATTEST_TAIL: f64 = 0.2;
const TAIL: f64 = 30.0;
const POINTS: f64 = 4000.0;
/// The share of a wide normal law in a mixed one, and how wide it is.
const SHARE: f64 = 0.1;
const WIDER: f64 = 1.6;

/// The axes `A` with `A A' = P^-1`, in which the Hessian at the mode is diagonal too: column by
/// column. `None` if the precision is not positive definite.
pub fn axes(precision: &[f64], hessian: &[f64], dim: usize) -> Option<Vec<f64>> {
    let lower = symmetric(precision, dim).cholesky()?.unpack();
    let root = lower.transpose().solve_upper_triangular(&DMatrix::identity(dim, dim))?;
    let seen = root.tr_mul(&symmetric(hessian, dim)) * &root;
    let turned = ((&seen + seen.transpose()) * 0.5).symmetric_eigen().eigenvectors;
    Some((root * turned).as_slice().to_vec())
}

/// The axes `A` with `A A' = P^-1` in which every parameter depends on narrower ones and on itself
/// alone: column by column. `None` if the precision is not positive definite.
///
/// Where a few rows tell of a parameter (a rare indicator's, say) it is wide, and the last axes are
/// those of such parameters given all others: each is skewed by itself.
pub fn conditional_axes(precision: &[f64], dim: usize) -> Option<Vec<f64>> {
    let covariance = symmetric(precision, dim).cholesky()?.inverse();
    let mut order: Vec<usize> = (0..dim).collect();
    order.sort_by(|a, b| covariance[(*a, *a)].total_cmp(&covariance[(*b, *b)]));
    let sorted = DMatrix::from_fn(dim, dim, |i, j| covariance[(order[i], order[j])]);
    let lower = sorted.cholesky()?.unpack();
    let mut axes = vec![0.0; dim * dim];
    for (column, axis) in axes.chunks_exact_mut(dim.max(1)).enumerate() {
        for (row, parameter) in order.iter().enumerate() {
            axis[*parameter] = lower[(row, column)];
        }
    }
    Some(axes)
}

/// Axes of which the first alone moves parameter `scale`, column by column: along it the others
/// move as the Gaussian of this precision has them on average given `scale`, and the other axes are
/// those of [`axes`] for their law given it. The first is at most `longest` long in `scale`. `None`
/// if the precision is not positive definite.
pub fn scale_axes(
    precision: &[f64],
    hessian: &[f64],
    dim: usize,
    scale: usize,
    longest: f64,
) -> Option<Vec<f64>> {
    let covariance = symmetric(precision, dim).cholesky()?.inverse();
    let deviation = covariance[(scale, scale)].sqrt();
    let length = longest.min(deviation) / (deviation * deviation);
    let mut columns: Vec<f64> = covariance.column(scale).iter().map(|c| c * length).collect();
    let others: Vec<usize> = (0..dim).filter(|k| *k != scale).collect();
    let part = |of: &[f64]| -> Vec<f64> {
        others.iter().flat_map(|row| others.iter().map(move |k| of[row * dim + k])).collect()
    };
    let rest = dim - 1;
    if rest > 0 {
        for axis in axes(&part(precision), &part(hessian), rest)?.chunks_exact(rest) {
            let (before, after) = axis.split_at(scale);
            columns.extend(before.iter().chain(&[0.0]).chain(after));
        }
    }
    Some(columns)
}

/// A monotone map of one coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisMap {
    /// `T` at the points of its table.
    values: Vec<f64>,
}

impl AxisMap {
    /// The map for a profile, `U(m + r a) - U(m)` at the points of [`PROFILE`], and how far the law
    /// of the axis is from normal, in total variation. `None` where a value is no number.
    pub fn new(profile: &[f64; 10]) -> Option<(Self, f64)> {
        if !profile.iter().all(|f| f.is_finite()) {
            return None;
        }
        let mut values = [0.0; 11];
        values[..5].copy_from_slice(&profile[..5]);
        values[6..].copy_from_slice(&profile[5..]);
        let values = alone(values);
        let law = Law::new(&Spline::new(&KNOTS, &values));
        Some((law.map(), law.distance()))
    }

    /// The map for a law that is known to be `exp(-f)` with these values of `f` at these knots and
    /// exponential tails beyond them, mixed with a wide normal law. `None` where a value is no
    /// number.
    pub(super) fn of_law(knots: &[f64], values: &[f64]) -> Option<Self> {
        if !values.iter().all(|f| f.is_finite()) {
            return None;
        }
        let spline = Spline { least: (FLATTEST_TAIL, 0.0), ..Spline::new(knots, values) };
        // both tails down to exp(-TAIL) of what they are at the outermost knots
        let reach = [knots[0], knots[knots.len() - 1]].map(|edge| {
            let steep = (edge.signum() * spline.slope(edge)).max(FLATTEST_TAIL);
            edge.abs() + TAIL / steep
        });
        let reach = reach[0].max(reach[1]);
        Some(Law::on(&spline, reach, reach / POINTS).mixed().map())
    }

    /// `T(z)`, and its slope there.
    #[inline]
    pub fn apply(&self, z: f64) -> (f64, f64) {
        let place = (z + EDGE) * FINE as f64;
        let left = (place.max(0.0) as usize).min(self.values.len() - 2);
        let slope = (self.values[left + 1] - self.values[left]) * FINE as f64;
        (self.values[left] + slope * (place - left as f64) / FINE as f64, slope)
    }
}

/// A profile without what belongs to other axes.
fn alone(mut values: [f64; 11]) -> [f64; 11] {
    let spline = Spline::new(&KNOTS, &values);
    let (mut whole, mut first, mut second) = (0.0, 0.0, 0.0);
    for k in -1800..=1800 {
        let z = f64::from(k) * STEP;
        let (weight, f) = (exp(-0.5 * z * z), spline.at(z.clamp(-EDGE, EDGE)));
        whole += weight;
        first += weight * z * f;
        second += weight * (z * z - 1.0) * f;
    }
    let (slope, missing) = (first / whole, 1.0 - second / whole);
    let bend = spline.bend(5.0).min(spline.bend(-5.0)).max(0.0);
    let missing = missing.max(-0.5 * bend);
    for (value, r) in values.iter_mut().zip(KNOTS) {
        *value += 0.5 * missing * r * r - slope * r;
    }
    values
}

/// A natural cubic spline through the knots.
struct Spline<'a> {
    knots: &'a [f64],
    values: &'a [f64],
    /// Second derivatives at the knots.
    bends: Vec<f64>,
    /// How steep it is at least beyond the outermost knots, and how much it is bent there.
    least: (f64, f64),
}

impl<'a> Spline<'a> {
    fn new(knots: &'a [f64], values: &'a [f64]) -> Self {
        // Thomas's algorithm on the equations for the second derivatives, which are 0 at both ends.
        let last = knots.len() - 1;
        let (mut bends, mut upper) = (vec![0.0; last + 1], vec![0.0; last + 1]);
        for k in 1..last {
            let (left, right) = (knots[k] - knots[k - 1], knots[k + 1] - knots[k]);
            let rise = (values[k + 1] - values[k]) / right - (values[k] - values[k - 1]) / left;
            let pivot = 2.0 * (left + right) - left * upper[k - 1];
            upper[k] = right / pivot;
            bends[k] = (6.0 * rise - left * bends[k - 1]) / pivot;
        }
        for k in (1..last).rev() {
            bends[k] -= upper[k] * bends[k + 1];
        }
        Spline { knots, values, bends, least: (LEAST_SLOPE, LEAST_BEND) }
    }

    /// The piece that `r` lies in, and the shares of its ends.
    fn piece(&self, r: f64) -> (usize, f64, f64, f64) {
        let (knots, last) = (self.knots, self.knots.len() - 1);
        let k = knots[1..last].iter().filter(|knot| r >= **knot).count();
        let width = knots[k + 1] - knots[k];
        (k, width, (knots[k + 1] - r) / width, (r - knots[k]) / width)
    }

    /// The spline between the outermost knots; beyond them a parabola that rises.
    fn at(&self, r: f64) -> f64 {
        let edge = r.clamp(self.knots[0], self.knots[self.knots.len() - 1]);
        if r != edge {
            let (side, beyond) = (r.signum(), r.abs() - edge.abs());
            let slope = (side * self.slope(edge)).max(self.least.0);
            return self.at(edge) + slope * beyond + 0.5 * self.least.1 * beyond * beyond;
        }
        let (k, width, a, b) = self.piece(r);
        let bent = (a * a * a - a) * self.bends[k] + (b * b * b - b) * self.bends[k + 1];
        a * self.values[k] + b * self.values[k + 1] + bent * width * width / 6.0
    }

    fn slope(&self, r: f64) -> f64 {
        let (k, width, a, b) = self.piece(r);
        let bent = (3.0 * b * b - 1.0) * self.bends[k + 1] - (3.0 * a * a - 1.0) * self.bends[k];
        (self.values[k + 1] - self.values[k]) / width + bent * width / 6.0
    }

    fn bend(&self, r: f64) -> f64 {
        let (k, _, a, b) = self.piece(r);
        a * self.bends[k] + b * self.bends[k + 1]
    }
}

/// The law `exp(-f)` on a fine grid, and a standard normal on one of its own.
struct Law {
    density: Vec<f64>,
    /// The grid runs from `-reach` to `reach` in such steps.
    reach: f64,
    step: f64,
    normal: Vec<f64>,
}

/// The normal's point number `k`.
fn grid(k: usize) -> f64 {
    k as f64 * STEP - FARTHEST
}

/// The same density with the mass 1.
fn scaled(raw: &[f64], step: f64) -> Vec<f64> {
    let whole: f64 = raw.iter().sum::<f64>() * step;
    raw.iter().map(|p| p / whole).collect()
}

impl Law {
    /// On the grid of the normal.
    fn new(f: &Spline<'_>) -> Self {
        Law::on(f, FARTHEST, STEP)
    }

    fn on(f: &Spline<'_>, reach: f64, step: f64) -> Self {
        let points = (2.0 * reach / step) as usize + 1;
        let heights: Vec<f64> = (0..points).map(|k| -f.at(k as f64 * step - reach)).collect();
        let top = heights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let density: Vec<f64> = heights.iter().map(|h| exp(h - top)).collect();
        let points = (2.0 * FARTHEST / STEP) as usize + 1;
        let normal: Vec<f64> = (0..points).map(|k| exp(-0.5 * grid(k) * grid(k))).collect();
        Law { density: scaled(&density, step), reach, step, normal: scaled(&normal, STEP) }
    }

    /// The grid's point number `k`.
    fn place(&self, k: usize) -> f64 {
        k as f64 * self.step - self.reach
    }

    /// The same mixed with a normal law that is wider than a standard one.
    fn mixed(self) -> Self {
        let wide = |k: usize| {
            let r = self.place(k) / WIDER;
            exp(-0.5 * r * r)
        };
        let wide: Vec<f64> = (0..self.density.len()).map(wide).collect();
        let both = self.density.iter().zip(scaled(&wide, self.step));
        let density = both.map(|(p, q)| (1.0 - SHARE) * p + SHARE * q).collect();
        Law { density, ..self }
    }

    /// How far it is from normal, where both are on one grid.
    fn distance(&self) -> f64 {
        let off: f64 = self.density.iter().zip(&self.normal).map(|(p, q)| (p - q).abs()).sum();
        0.5 * STEP * off
    }

    /// `F^-1(Phi(z))` at the points of the table: below 0 by what lies below, above by what lies
    /// above, so that neither tail is lost beside 1.
    fn map(&self) -> AxisMap {
        let points = 2 * EDGE as usize * FINE + 1;
        let below = |density: &[f64], step: f64| logarithms(density.iter(), step);
        let above = |density: &[f64], step: f64| {
            let mut sums = logarithms(density.iter().rev(), step);
            sums.reverse();
            sums
        };
        let lower = (below(&self.density, self.step), below(&self.normal, STEP));
        let upper = (above(&self.density, self.step), above(&self.normal, STEP));
        let per_point = (1.0 / (STEP * FINE as f64)).round() as usize;
        let first = ((FARTHEST - EDGE) / STEP).round() as usize;
        let mut values: Vec<f64> = (0..points)
            .map(|k| {
                let place = first + k * per_point;
                if 2 * k < points {
                    self.crossing(&lower.0, lower.1[place])
                } else {
                    self.falling(&upper.0, upper.1[place])
                }
            })
            .collect();
        let least = FLATTEST / FINE as f64;
        for k in 1..values.len() {
            values[k] = values[k].max(values[k - 1] + least);
        }
        AxisMap { values }
    }

    /// Where a rising table reaches a level, on the grid and between its points.
    fn crossing(&self, table: &[f64], level: f64) -> f64 {
        let right = table.partition_point(|value| *value < level).clamp(1, table.len() - 1);
        self.between(right, table[right - 1], table[right], level)
    }

    /// The same for a falling one.
    fn falling(&self, table: &[f64], level: f64) -> f64 {
        let right = table.partition_point(|value| *value > level).clamp(1, table.len() - 1);
        self.between(right, table[right - 1], table[right], level)
    }

    fn between(&self, right: usize, before: f64, after: f64, level: f64) -> f64 {
        let share = if after == before { 0.5 } else { (level - before) / (after - before) };
        self.place(right - 1) + share.clamp(0.0, 1.0) * self.step
    }
}

/// The logarithms of sums up to each place.
fn logarithms<'a>(density: impl Iterator<Item = &'a f64>, step: f64) -> Vec<f64> {
    let mut sum = 0.0;
    density
        .map(|p| {
            sum += p * step;
            ln(f64::max(sum, f64::MIN_POSITIVE))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(f: impl Fn(f64) -> f64) -> [f64; 10] {
        PROFILE.map(|r| f(r) - f(0.0))
    }

    #[test]
    fn a_normal_axis_is_left_alone() {
        // Whatever its slope and its width: these belong to the mean and to the other axes.
        for (slope, bend) in [(0.0, 1.0), (0.3, 1.0), (0.0, 1.4), (-0.2, 0.7)] {
            let (map, distance) =
                AxisMap::new(&profile(|r| slope * r + 0.5 * bend * r * r)).unwrap();
            assert!(distance < 0.005, "{distance}");
            for z in [-3.0, -1.0, -0.2, 0.0, 0.5, 2.0, 4.0] {
                let (x, slope) = map.apply(z);
                assert!((x - z).abs() < 0.02 && (slope - 1.0).abs() < 0.05, "{z}: {x}, {slope}");
            }
        }
    }

    /// A skewed axis, as a rare indicator has it: mapped normals have the law of the axis. The
    /// means of some functions are taken on a fine grid of z, and by the law itself.
    #[test]
    fn mapped_normals_have_the_law_of_the_axis() {
        let skewed = |r: f64| 4.0 * (exp(-0.6 * r) - 1.0 + 0.6 * r) + 0.1 * r * r;
        let (map, distance) = AxisMap::new(&profile(skewed)).unwrap();
        assert!(distance > FAR, "{distance}");
        let mut values = [0.0; 11];
        let asked = profile(skewed);
        values[..5].copy_from_slice(&asked[..5]);
        values[6..].copy_from_slice(&asked[5..]);
        let values = alone(values);
        let law = Law::new(&Spline::new(&KNOTS, &values));
        for f in [(|x| x) as fn(f64) -> f64, |x| x * x, |x| x * x * x, |x| f64::from(x > 1.5)] {
            let exact: f64 =
                law.density.iter().enumerate().map(|(k, p)| STEP * p * f(grid(k))).sum();
            let mapped: f64 = law
                .normal
                .iter()
                .enumerate()
                .map(|(k, p)| STEP * p * f(map.apply(grid(k)).0))
                .sum();
            assert!((mapped - exact).abs() < 0.01 * (1.0 + exact.abs()), "{mapped} is not {exact}");
        }
    }

    /// The slope that is said is that of the map, everywhere, so that densities are exact.
    #[test]
    fn the_slope_is_that_of_the_map() {
        let (map, _) = AxisMap::new(&profile(|r| 3.0 * exp(-0.5 * r) + r + 0.3 * r * r)).unwrap();
        for k in -900..900 {
            let z = f64::from(k) * 0.01 + 0.003;
            let ((a, slope), (b, _)) = (map.apply(z), map.apply(z + 0.004));
            assert!(slope > 0.0 && ((b - a) / 0.004 - slope).abs() < 1e-9 * (1.0 + slope), "{z}");
        }
    }

    #[test]
    fn axes_make_both_matrices_diagonal() {
        let (p, h) = ([2.0, 0.5, 0.5, 1.0], [3.0, -0.4, -0.4, 0.6]);
        let a = DMatrix::from_column_slice(2, 2, &axes(&p, &h, 2).unwrap());
        let (p, h) = (symmetric(&p, 2), symmetric(&h, 2));
        assert!((a.tr_mul(&p) * &a - DMatrix::identity(2, 2)).amax() < 1e-12);
        assert!((a.tr_mul(&h) * &a)[(0, 1)].abs() < 1e-12);
        assert!(axes(&[-1.0], &[1.0], 1).is_none());
    }

    #[test]
    fn conditional_axes_go_from_narrow_to_wide_parameters() {
        let precision = [1.0, 0.3, -0.2, 0.3, 4.0, 0.5, -0.2, 0.5, 2.0];
        let a = DMatrix::from_column_slice(3, 3, &conditional_axes(&precision, 3).unwrap());
        let covariance = symmetric(&precision, 3).try_inverse().unwrap();
        assert!((&a * a.transpose() - &covariance).amax() < 1e-12);
        // The second parameter is the narrowest, then the third: they do not know later axes.
        assert_eq!([a[(1, 1)], a[(1, 2)], a[(2, 2)]], [0.0; 3]);
        // Along its own axis a parameter has its law given all others.
        assert!((a[(0, 2)].powi(-2) - precision[0]).abs() < 1e-12);
        assert!(conditional_axes(&[-1.0], 1).is_none());
    }

    /// One parameter moves along the first axis alone, and the axes are those of the covariance
    /// where the first is not shortened.
    #[test]
    fn one_parameter_moves_along_the_first_axis_alone() {
        let precision = [1.0, 0.3, -0.2, 0.3, 4.0, 0.5, -0.2, 0.5, 2.0];
        let hessian = [1.5, 0.1, -0.4, 0.1, 3.0, 0.2, -0.4, 0.2, 2.5];
        let covariance = symmetric(&precision, 3).try_inverse().unwrap();
        for scale in 0..3 {
            let of = |longest: f64| {
                let columns = scale_axes(&precision, &hessian, 3, scale, longest).unwrap();
                DMatrix::from_column_slice(3, 3, &columns)
            };
            let a = of(9.0);
            assert!((&a * a.transpose() - &covariance).amax() < 1e-12);
            assert_eq!([a[(scale, 1)], a[(scale, 2)]], [0.0; 2]);
            let short = of(0.1);
            assert!((short[(scale, 0)] - 0.1).abs() < 1e-12);
            assert_eq!(short.columns(1, 2), a.columns(1, 2));
        }
        assert!(scale_axes(&[-1.0], &[1.0], 1, 0, 1.0).is_none());
    }

    /// A law with a long exponential tail to the left, as that of the logarithm of a scale: mapped
    /// normals have its tails, but for the share that is mixed in.
    #[test]
    fn long_tails_are_followed() {
        let knots = [-8.0, -6.0, -4.0, -2.5, -1.25, 0.0, 1.25, 2.5, 4.0];
        let law = |r: f64| 0.8 * (exp(0.9 * r) - 1.0) - 0.5 * r;
        let map = AxisMap::of_law(&knots, &knots.map(law)).unwrap();
        let (step, mut whole, mut below) = (0.001, 0.0, [0.0; 3]);
        let places = [-6.0, -15.0, -25.0];
        for k in -80_000..20_000 {
            let r = f64::from(k) * step;
            let p = exp(-law(r)) * step;
            whole += p;
            below.iter_mut().zip(places).for_each(|(sum, x)| *sum += if r < x { p } else { 0.0 });
        }
        for (place, mass) in places.into_iter().zip(below) {
            let mass = 0.9 * mass / whole;
            let z = crate::measure::normal_quantile(mass);
            let found = map.apply(z).0;
            assert!((found - place).abs() < 0.25, "{place}: {found}");
        }
        assert!(AxisMap::of_law(&knots, &[f64::NAN; 9]).is_none());
    }

    #[test]
    fn what_is_no_number_is_no_profile() {
        assert!(AxisMap::new(&[f64::NAN; 10]).is_none());
    }
}

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
        let law = Law::new(&Spline::new(&alone(values)));
        Some((law.map(), law.distance()))
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
    let spline = Spline::new(&values);
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
struct Spline {
    values: [f64; 11],
    /// Second derivatives at the knots.
    bends: [f64; 11],
}

impl Spline {
    fn new(values: &[f64; 11]) -> Self {
        // Thomas's algorithm on the equations for the second derivatives, which are 0 at both ends.
        let (mut bends, mut upper) = ([0.0; 11], [0.0; 11]);
        for k in 1..10 {
            let (left, right) = (KNOTS[k] - KNOTS[k - 1], KNOTS[k + 1] - KNOTS[k]);
            let rise = (values[k + 1] - values[k]) / right - (values[k] - values[k - 1]) / left;
            let pivot = 2.0 * (left + right) - left * upper[k - 1];
            upper[k] = right / pivot;
            bends[k] = (6.0 * rise - left * bends[k - 1]) / pivot;
        }
        for k in (1..10).rev() {
            bends[k] -= upper[k] * bends[k + 1];
        }
        Spline { values: *values, bends }
    }

    /// The piece that `r` lies in, and the shares of its ends.
    fn piece(r: f64) -> (usize, f64, f64, f64) {
        let k = KNOTS[1..10].iter().filter(|knot| r >= **knot).count();
        let width = KNOTS[k + 1] - KNOTS[k];
        (k, width, (KNOTS[k + 1] - r) / width, (r - KNOTS[k]) / width)
    }

    /// The spline between the outermost knots; beyond them a parabola that rises.
    fn at(&self, r: f64) -> f64 {
        if r.abs() > EDGE {
            let side = r.signum();
            let (edge, beyond) = (side * EDGE, r.abs() - EDGE);
            let slope = (side * self.slope(edge)).max(LEAST_SLOPE);
            return self.at(edge) + slope * beyond + 0.5 * LEAST_BEND * beyond * beyond;
        }
        let (k, width, a, b) = Self::piece(r);
        let bent = (a * a * a - a) * self.bends[k] + (b * b * b - b) * self.bends[k + 1];
        a * self.values[k] + b * self.values[k + 1] + bent * width * width / 6.0
    }

    fn slope(&self, r: f64) -> f64 {
        let (k, width, a, b) = Self::piece(r);
        let bent = (3.0 * b * b - 1.0) * self.bends[k + 1] - (3.0 * a * a - 1.0) * self.bends[k];
        (self.values[k + 1] - self.values[k]) / width + bent * width / 6.0
    }

    fn bend(&self, r: f64) -> f64 {
        let (k, _, a, b) = Self::piece(r);
        a * self.bends[k] + b * self.bends[k + 1]
    }
}

/// The law `exp(-f)` on a fine grid, and a standard normal on the same one.
struct Law {
    density: Vec<f64>,
    normal: Vec<f64>,
}

/// The grid's point number `k`.
fn grid(k: usize) -> f64 {
    k as f64 * STEP - FARTHEST
}

impl Law {
    fn new(f: &Spline) -> Self {
        let points = (2.0 * FARTHEST / STEP) as usize + 1;
        let heights: Vec<f64> = (0..points).map(|k| -f.at(grid(k))).collect();
        let top = heights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let scaled = |raw: Vec<f64>| {
            let whole: f64 = raw.iter().sum::<f64>() * STEP;
            raw.iter().map(|p| p / whole).collect::<Vec<f64>>()
        };
        Law {
            density: scaled(heights.iter().map(|h| exp(h - top)).collect()),
            normal: scaled((0..points).map(|k| exp(-0.5 * grid(k) * grid(k))).collect()),
        }
    }

    fn distance(&self) -> f64 {
        let off: f64 = self.density.iter().zip(&self.normal).map(|(p, q)| (p - q).abs()).sum();
        0.5 * STEP * off
    }

    /// `F^-1(Phi(z))` at the points of the table: below 0 by what lies below, above by what lies
    /// above, so that neither tail is lost beside 1.
    fn map(&self) -> AxisMap {
        let points = 2 * EDGE as usize * FINE + 1;
        let below = |density: &[f64]| logarithms(density.iter());
        let above = |density: &[f64]| {
            let mut sums = logarithms(density.iter().rev());
            sums.reverse();
            sums
        };
        let lower = (below(&self.density), below(&self.normal));
        let upper = (above(&self.density), above(&self.normal));
        let per_point = (1.0 / (STEP * FINE as f64)).round() as usize;
        let first = ((FARTHEST - EDGE) / STEP).round() as usize;
        let mut values: Vec<f64> = (0..points)
            .map(|k| {
                let place = first + k * per_point;
                if 2 * k < points {
                    crossing(&lower.0, lower.1[place])
                } else {
                    falling(&upper.0, upper.1[place])
                }
            })
            .collect();
        let least = FLATTEST / FINE as f64;
        for k in 1..values.len() {
            values[k] = values[k].max(values[k - 1] + least);
        }
        AxisMap { values }
    }
}

/// The logarithms of sums up to each place.
fn logarithms<'a>(density: impl Iterator<Item = &'a f64>) -> Vec<f64> {
    let mut sum = 0.0;
    density
        .map(|p| {
            sum += p * STEP;
            ln(f64::max(sum, f64::MIN_POSITIVE))
        })
        .collect()
}

/// Where a rising table reaches a level, on the grid and between its points.
fn crossing(table: &[f64], level: f64) -> f64 {
    let right = table.partition_point(|value| *value < level).clamp(1, table.len() - 1);
    between(right, table[right - 1], table[right], level)
}

/// The same for a falling one.
fn falling(table: &[f64], level: f64) -> f64 {
    let right = table.partition_point(|value| *value > level).clamp(1, table.len() - 1);
    between(right, table[right - 1], table[right], level)
}

fn between(right: usize, before: f64, after: f64, level: f64) -> f64 {
    let share = if after == before { 0.5 } else { (level - before) / (after - before) };
    grid(right - 1) + share.clamp(0.0, 1.0) * STEP
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
        let law = Law::new(&Spline::new(&alone(values)));
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

    #[test]
    fn what_is_no_number_is_no_profile() {
        assert!(AxisMap::new(&[f64::NAN; 10]).is_none());
    }
}

//! Put the law of a privacy loss on a grid, with every error on the safe side.
//!
//! "Connect the dots" (Doroshenko et al. 2022): of an interval of losses `(lo, lo + h]` the mass
//! `a` of P and the mass `b` of Q go to its two ends so that both are kept,
//!
//! ```text
//! up = (a - b exp(lo)) / (1 - exp(-h)),   down = a - up,
//! ```
//!
//! whose curve delta(epsilon) is the true one at grid points and a chord, above it, between them.
//! The paper differences the curve twice and loses digits; here masses are differences of small
//! tails.

use super::release::{Pair, Split};
use crate::measure::normal_quantile;

/// The masses of P on the grid `k h`, `k = first, first + 1, ...`, and at infinity.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    pub(super) first: i64,
    pub(super) masses: Vec<f64>,
    pub(super) infinite: f64,
}

/// What relative error a normal tail of this size may have. The tail's argument `x` is off by a few
/// units in its last place, which moves the tail by `x^2` such units, and `x^2 <= -2 log(tail)`.
fn slack(tail: f64) -> f64 {
    let tail = tail.max(1e-300);
    (8.0 - 8.0 * libm::log(tail)) * f64::EPSILON * tail
}

/// The losses of a pair on a grid of width `h`; up to a mass of `tail` is taken for infinite.
pub(super) fn discretise(pair: &Pair, h: f64, tail: f64) -> Losses {
    let (low, high) = pair.range(-normal_quantile(tail / 2.0));
    let first = (low / h).floor() as i64;
    let last = (high / h).ceil() as i64;
    let mut masses = vec![0.0; (last - first + 1) as usize];
    let share = -libm::expm1(-h);
    let mut left = pair.split(first as f64 * h);
    // Losses below the grid are counted as its lowest point, which is more.
    masses[0] = left.below[0] + slack(left.below[0]);
    for (place, k) in (first..last).enumerate() {
        let right = pair.split((k + 1) as f64 * h);
        let (a, b, error) = interval(&left, &right, k);
        // Rounding may have made a too small, or b too large: the error is added to the mass, and
        // all of it goes up.
        let rate = libm::exp(k as f64 * h);
        let error = error[0] + rate * error[1];
        let up = ((a - b * rate + error) / share).clamp(0.0, a);
        masses[place] += a - up;
        masses[place + 1] += up + error;
        left = right;
    }
    if pair.atom() > 0.0 {
        masses[(-first) as usize] += pair.atom() * (1.0 + 8.0 * f64::EPSILON);
    }
    Losses { first, masses, infinite: left.above[0] + slack(left.above[0]) }
}

/// The masses of P and Q between two grid points, and how far each may be off, by the tails that
/// are small: above from loss 0 on, below up to it.
fn interval(left: &Split, right: &Split, k: i64) -> (f64, f64, [f64; 2]) {
    let mass = |of: usize| {
        if k >= 0 {
            (left.above[of] - right.above[of], slack(left.above[of]))
        } else {
            (right.below[of] - left.below[of], slack(right.below[of]))
        }
    };
    let ((a, a_error), (b, b_error)) = (mass(0), mass(1));
    (a.max(0.0), b.max(0.0), [a_error, b_error])
}

/// The mean and the variance of a pair's loss under P, to a percent or so: what a grid is chosen
/// by.
pub(super) fn moments(pair: &Pair) -> (f64, f64) {
    // Points that are dense near 0: a loss may be tiny nearly always and large now and then.
    let (low, high) = pair.range(8.0);
    let reach = high.max(-low);
    const SIDE: i32 = 400;
    let point = |k: i32| reach * libm::sinh(0.045 * f64::from(k)) / libm::sinh(0.045 * 400.0);
    let (mut mass, mut first, mut second) = (pair.atom(), 0.0, 0.0);
    let mut left = pair.split(point(-SIDE));
    for k in -SIDE..SIDE {
        let right = pair.split(point(k + 1));
        let (a, ..) = interval(&left, &right, i64::from(k));
        let middle = 0.5 * (point(k) + point(k + 1));
        mass += a;
        first += a * middle;
        second += a * middle * middle;
        left = right;
    }
    let mean = first / mass;
    (mean, (second / mass - mean * mean).max(1e-300))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// delta at epsilon of what is on the grid.
    fn delta(losses: &Losses, h: f64, epsilon: f64) -> f64 {
        let mut sum = losses.infinite;
        for (place, mass) in losses.masses.iter().enumerate() {
            let loss = (losses.first + place as i64) as f64 * h;
            if loss > epsilon {
                sum += mass * -(epsilon - loss).exp_m1();
            }
        }
        sum
    }

    #[test]
    fn the_curve_is_kept_at_grid_points_and_above_the_truth_between() {
        for pair in [
            Pair::Gaussian { mu: 0.7 },
            Pair::Remove { mu: 1.3, q: 0.2 },
            Pair::Add { mu: 1.3, q: 0.2 },
            Pair::Replace { mu: 0.9, q: 0.3 },
            Pair::Fixed { mu: 0.8, q: 0.25 },
        ] {
            let h = 0.01;
            let losses = discretise(&pair, h, 1e-14);
            for epsilon in [-0.5, 0.0, 0.1, 0.5, 0.505, 1.0, 1.007] {
                let Split { above, .. } = pair.split(epsilon);
                let exact = above[0] - epsilon.exp() * above[1]
                    + if epsilon < 0.0 { pair.atom() * -epsilon.exp_m1() } else { 0.0 };
                let exact = if matches!(pair, Pair::Fixed { .. }) && epsilon < 0.0 {
                    // `above` of a number below 0 counts the atom already.
                    above[0] - epsilon.exp() * above[1]
                } else {
                    exact
                };
                let ours = delta(&losses, h, epsilon);
                assert!(ours >= exact - 1e-15, "{pair:?} {epsilon}: {ours} below {exact}");
                let chord = if (epsilon / h).fract() == 0.0 { 1e-12 } else { h * h };
                assert!(ours <= exact + chord + 1e-13, "{pair:?} {epsilon}: {ours}, {exact}");
            }
        }
    }

    #[test]
    fn moments_are_those_of_the_gaussian_loss() {
        for mu in [1e-3, 0.5, 3.0] {
            let (mean, variance) = moments(&Pair::Gaussian { mu });
            assert!((mean / (mu * mu / 2.0) - 1.0).abs() < 0.02, "{mu}: {mean}");
            assert!((variance / (mu * mu) - 1.0).abs() < 0.02, "{mu}: {variance}");
        }
    }
}

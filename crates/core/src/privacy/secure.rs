//! Add up integer levels of which each hides behind a mask, and the sum behind noise that all drew.
//!
//! ```text
//! grid     G = sqrt(2 T / gamma) / r                                   public
//! client   l_i = floor(H_i / G + u) + Skellam((r^2 - b/6) / b)         u uniform, all private
//! server   sum_i l_i modulo 2^k, the nearest to 0, times G
//! ```
//!
//! The noise sets the scale, so that no norm is told. Rounding at random has a variance of 1/6 on
//! average, Skellam noise the rest: the sum has variance `r^2` in levels, which is the Langevin
//! noise. Nobody sees more than the sum, so that the noise of all honest clients hides a row.
//!
//! Coordinates are rounded and noised each by itself, so that Renyi divergences of coordinates add
//! up: one row moves the sum by at most `D` in Euclidean norm, and a round costs at most
//! `c_alpha alpha D^2 / (2 s_h^2)` at order alpha, with `s_h` the deviation of the honest clients'
//! Skellam noise. `c_alpha` is 1 for a normal, and is found numerically here: the largest over all
//! fractions that a coordinate can have and all distances that a row can move it by.

use super::PrivacyError;
use crate::rng::Stream;

/// `r`: how many levels the deviation of the noise in a sum has, where there are few clients.
pub const RESOLUTION: f64 = 64.0;
/// Sums of more bits are not made: levels are added up in doubles, and sent in 32 bits at most.
pub const MOST_BITS: u32 = 31;
/// By how much the levels may cost more than normal noise.
const MOST_FACTOR: f64 = 1.05;
/// Beyond so many deviations from the middle nothing is computed at an order.
const REACH: f64 = 8.0;

/// A sum of which nobody sees the parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SecureSum {
    /// `C`: the largest norm of one row's gradient, which bounds what is summed.
    pub row_gradient: f64,
    /// `r`: the deviation of the noise in the sum, in levels.
    pub resolution: f64,
}

impl SecureSum {
    /// The sum over so many clients, with as many levels as they need.
    pub fn new(row_gradient: f64, clients: usize) -> Self {
        let least = 2.0 * (clients as f64).sqrt(); // rounding is a part of the noise, and not all
        SecureSum { row_gradient, resolution: RESOLUTION.max(least) }
    }

    /// `G`: how far levels are apart, on the scale of gradients.
    pub fn grid(&self, step: f64, temperature: f64) -> f64 {
        (2.0 * temperature / step).sqrt() / self.resolution
    }

    /// The variance of the Skellam noise that each of so many clients draws, in squares of levels.
    pub fn variance(&self, clients: usize) -> f64 {
        let b = clients as f64;
        (self.resolution * self.resolution - b / 6.0) / b // rounding is the other b/6
    }

    /// `k`: the sum over so many rows fits into as many bits, with eight deviations of the noise.
    pub fn bits(&self, rows: u64, step: f64, temperature: f64) -> u32 {
        let most = self.row_gradient * rows as f64 / self.grid(step, temperature);
        let values = 2.0 * (most + 8.0 * self.resolution) + 1.0;
        values.log2().ceil() as u32
    }
}

/// The number nearest to 0 that is as much modulo `2^bits`, for whole numbers below `2^53`.
pub fn nearest(sum: f64, bits: u32) -> f64 {
    let modulus = f64::from(bits).exp2();
    let rest = sum.rem_euclid(modulus);
    if rest >= modulus / 2.0 { rest - modulus } else { rest }
}

/// Skellam noise, the difference of two Poisson numbers of the same mean, by its law.
#[derive(Clone)]
pub(crate) struct Skellam {
    /// `P(|X| >= k)` for k = 1, 2, ..., in units of `2^-127`. A double has as many digits of a
    /// small one as of a large one: every number comes with its probability to 13 digits or more.
    survival: Vec<u128>,
}

impl Skellam {
    /// The noise of this variance.
    pub(crate) fn new(variance: f64) -> Self {
        let law = skellam(variance);
        let mut survival = Vec::new();
        let mut above = 0.0;
        for mass in law[1..].iter().rev() {
            above += 2.0 * mass;
            // from the tail on; what is below 2^-100 never happens
            if above > (-100f64).exp2() {
                survival.push((above * 127f64.exp2()) as u128);
            }
        }
        survival.reverse();
        Skellam { survival }
    }

    /// A number, from four words. Every entry of the table is looked at, whatever comes out.
    pub(crate) fn draw(&self, stream: &mut Stream) -> i64 {
        let mut words = [0; 4];
        stream.words(&mut words);
        let drawn = words.iter().fold(0, |all: u128, word| (all << 32) | u128::from(*word));
        let (size, sign) = (drawn >> 1, (drawn & 1) as i64);
        let magnitude: i64 = self.survival.iter().map(|least| i64::from(size < *least)).sum();
        magnitude * (1 - 2 * sign)
    }
}

/// `P(X = k)`, `k = 0, 1, ...`, of the difference of two Poisson numbers with this variance: by
/// Miller's recurrence for Bessel functions, downward, where it is stable.
fn skellam(variance: f64) -> Vec<f64> {
    let kept = (30.0 * variance.sqrt() + 60.0).ceil() as usize;
    let first = kept + kept / 4 + 30;
    let mut law = vec![0.0; first + 2];
    law[first] = 1e-290;
    for k in (1..=first).rev() {
        law[k - 1] = law[k + 1] + 2.0 * k as f64 / variance * law[k];
        if law[k - 1] > 1e250 {
            law[k - 1..].iter_mut().for_each(|mass| *mass *= 1e-250);
        }
    }
    law.truncate(kept + 1);
    let all = law[0] + 2.0 * law[1..].iter().rev().sum::<f64>();
    law.iter_mut().for_each(|mass| *mass /= all);
    law
}

/// What one secure sum tells of a row, by Renyi divergences.
#[derive(Clone, Debug, PartialEq)]
pub struct SecureRelease {
    /// Orders, and what a round costs at each.
    costs: Vec<(f64, f64)>,
    /// `s_h` against how far a row moves the sum: that of a Gaussian mechanism, but for `c_alpha`.
    ratio: f64,
}

impl SecureRelease {
    /// A sum of which this variance (in squares of levels) is Skellam noise of honest clients, and
    /// that one row moves by `shift` levels at most.
    pub fn new(variance: f64, shift: f64) -> Result<Self, PrivacyError> {
        let ratio = variance.sqrt() / shift;
        if !(ratio > 0.0 && ratio.is_finite() && variance >= 1.0) {
            return Err(PrivacyError::Noise { ratio });
        }
        let law = skellam(variance);
        let mut orders = Vec::new();
        let mut beyond = 0.4;
        while beyond < 2000.0 && (1.0 + beyond) * shift <= REACH * variance.sqrt() {
            orders.push(1.0 + beyond);
            beyond *= 1.25;
        }
        let mut costs = Vec::new();
        let mut least = f64::INFINITY;
        for (order, factor) in orders.iter().zip(factors(&law, variance, shift, &orders)) {
            least = least.min(factor);
            if factor <= MOST_FACTOR {
                costs.push((*order, factor * order * shift * shift / (2.0 * variance)));
            }
        }
        if costs.is_empty() {
            return Err(PrivacyError::Coarse { ratio, factor: least });
        }
        Ok(SecureRelease { costs, ratio })
    }

    /// The noise of the honest clients against how far one row moves the sum.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// epsilon of so many rounds at this delta.
    pub fn epsilon(&self, releases: u64, delta: f64) -> Result<f64, PrivacyError> {
        PrivacyError::check_budget(1.0, delta)?;
        let of = |(order, cost): &(f64, f64)| releases as f64 * cost + conversion(*order, delta);
        let least = self.costs.iter().map(of).fold(f64::INFINITY, f64::min);
        Ok(if releases == 0 { 0.0 } else { least.max(0.0) })
    }

    /// How many rounds keep a budget, and no more than `limit`.
    pub fn most(&self, epsilon: f64, delta: f64, limit: u64) -> Result<u64, PrivacyError> {
        PrivacyError::check_budget(epsilon, delta)?;
        let of = |(order, cost): &(f64, f64)| {
            ((epsilon - conversion(*order, delta)) / cost).max(0.0).min(limit as f64) as u64
        };
        let mut most = self.costs.iter().map(of).max().unwrap_or(0);
        while most > 0 && self.epsilon(most, delta)? > epsilon {
            most -= 1; // by rounding
        }
        Ok(most)
    }
}

/// What a Renyi divergence of this order lacks to epsilon at this delta (Canonne, Kamath and
/// Steinke 2020, proposition 12).
fn conversion(order: f64, delta: f64) -> f64 {
    libm::log((order - 1.0) / order) - (libm::log(delta) + libm::log(order)) / (order - 1.0)
}

/// `c_alpha` at every order, with twice its excess over 1, for what lies between the points that
/// are tried.
fn factors(law: &[f64], variance: f64, shift: f64, orders: &[f64]) -> Vec<f64> {
    const FRACTIONS: usize = 8;
    const SHIFTS: usize = 8;
    let mass = |k: i64| law.get(k.unsigned_abs() as usize).copied().unwrap_or(0.0);
    // The law of a coordinate that is x levels: the two around it.
    let around = |x: f64, k: i64| {
        let (below, share) = (x.floor(), x - x.floor());
        let k = k - below as i64;
        (1.0 - share) * mass(k) + share * mass(k - 1)
    };
    let end = (20.0 * variance.sqrt() + shift + 20.0).min(law.len() as f64 - shift - 4.0) as i64;
    let mut worst = vec![1.0f64; orders.len()];
    for i in 0..SHIFTS {
        let s = shift * (-0.5 * i as f64).exp2();
        for j in 0..FRACTIONS {
            let f = j as f64 / FRACTIONS as f64;
            let laws: Vec<(f64, f64)> =
                (-end..=end).map(|k| (around(f, k), around(f + s, k))).collect();
            let losses: Vec<f64> = laws.iter().map(|(p, q)| libm::log(p / q)).collect();
            for (order, worst) in orders.iter().zip(&mut worst) {
                let (mut there, mut back) = (0.0, 0.0);
                for ((p, q), loss) in laws.iter().zip(&losses) {
                    there += p * libm::exp((order - 1.0) * loss);
                    back += q * libm::exp((1.0 - order) * loss);
                }
                let divergence = libm::log(there.max(back)) / (order - 1.0);
                *worst = worst.max(divergence * 2.0 * variance / (order * s * s));
            }
        }
    }
    worst.into_iter().map(|factor| 1.0 + 2.0 * (factor - 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::{Composition, Neighbour, Release, Sampling, gaussian_epsilon};
    use crate::rng::{ClientId, Purpose, Seed};

    #[test]
    fn bits_and_variances_are_those_that_were_worked_out() {
        // C sum N_i / G with a step of 1e-4 and C = 1, by hand: G = sqrt(2e4)/64 = 2.21.
        let sum = SecureSum::new(1.0, 4);
        for (rows, bits) in [(1_000, 11), (100_000, 17), (10_000_000, 24)] {
            assert_eq!(sum.bits(rows, 1e-4, 1.0), bits, "{rows}");
        }
        assert_eq!(SecureSum::new(1.0, 100).resolution, 64.0);
        assert_eq!(SecureSum::new(1.0, 2500).resolution, 100.0);
        for b in [2, 7, 100] {
            let all = b as f64 * (sum.variance(b) + 1.0 / 6.0);
            assert!((all - 4096.0).abs() < 1e-9);
        }
    }

    #[test]
    fn sums_wrap_to_the_nearest() {
        for (sum, found) in [(0.0, 0.0), (7.0, 7.0), (8.0, -8.0), (15.0, -1.0), (33.0, 1.0)] {
            assert_eq!(nearest(sum, 4), found);
        }
    }

    /// The law by another way: two Poisson laws, folded.
    #[test]
    fn the_law_is_that_of_two_poisson_numbers() {
        for variance in [1.0, 3.9, 40.0, 700.0] {
            let mean: f64 = variance / 2.0;
            let mut poisson = vec![libm::exp(-mean)];
            for k in 1..2000 {
                poisson.push(poisson[k - 1] * mean / k as f64);
            }
            let law = skellam(variance);
            let mut square = 0.0;
            for (k, mass) in law.iter().enumerate() {
                square += 2.0 * mass * (k * k) as f64;
                let folded: f64 = (k..2000).map(|n| poisson[n] * poisson[n - k]).sum();
                if folded > 1e-250 {
                    assert!((mass / folded - 1.0).abs() < 1e-10, "{variance}, {k}");
                }
            }
            assert!((square / variance - 1.0).abs() < 1e-12, "{variance}: {square}");
        }
    }

    /// A million numbers: each comparison fails by chance once in a million.
    #[test]
    fn noise_has_the_law() {
        let (variance, n) = (19.5, 1_000_000);
        let (noise, law) = (Skellam::new(variance), skellam(variance));
        let mut stream = Seed::new(4).stream(Purpose::Privacy, ClientId(1), 0);
        let mut counts = vec![0u64; 81];
        for _ in 0..n {
            let drawn = noise.draw(&mut stream);
            counts[(drawn.clamp(-40, 40) + 40) as usize] += 1;
        }
        let mut bins = 0.0;
        let mut chi = 0.0;
        for (k, count) in counts.iter().enumerate() {
            let expected = n as f64 * law[(k as i64 - 40).unsigned_abs() as usize];
            if expected > 20.0 {
                chi += (*count as f64 - expected).powi(2) / expected;
                bins += 1.0;
            }
        }
        // By Wilson and Hilferty.
        let cube = (chi / (bins - 1.0)).cbrt();
        let z = (cube - 1.0 + 2.0 / (9.0 * bins)) / (2.0 / (9.0 * bins)).sqrt();
        assert!(bins > 30.0 && z < 4.9, "{z} with {bins} bins");
    }

    #[test]
    fn levels_cost_hardly_more_than_normal_noise() {
        // At r = 64, order 64, distances up to 4.5: between whole levels it is 1.0033; a fraction
        // of 1/2 on one side adds 1/4 to its variance, which costs 4096/(4096 - 63/4). Twice the
        // excess is counted.
        let law = skellam(4096.0);
        let found = 1.0 + (factors(&law, 4096.0, 4.5, &[64.0])[0] - 1.0) / 2.0;
        assert!((1.0033..1.0040).contains(&found), "{found}");
        for (variance, shift, rounds) in
            [(4096.0, 4.5, 1), (4096.0, 4.5, 200), (2048.0, 0.9, 5_000), (64.0, 0.05, 100_000)]
        {
            let release = SecureRelease::new(variance, shift).unwrap();
            let epsilon = release.epsilon(rounds, 1e-6).unwrap();
            let mu = shift / variance.sqrt() * (rounds as f64).sqrt();
            let normal = gaussian_epsilon(mu, 1e-6);
            let as_normal = Release::new(Sampling::Full, Neighbour::AddRemove, release.ratio());
            let renyi = Composition::of(as_normal.unwrap(), rounds).renyi_epsilon(1e-6).unwrap();
            assert!(epsilon > normal, "{epsilon} is below that of normal noise, {normal}");
            assert!(epsilon < 1.02 * renyi, "{epsilon}, {renyi}");
            let most = release.most(epsilon, 1e-6, 1 << 30).unwrap();
            assert!(most.abs_diff(rounds) <= 1, "{most} for {rounds}");
            assert!(release.epsilon(most, 1e-6).unwrap() <= epsilon);
        }
    }

    /// The bound holds against the exact divergence of many coordinates at once, by convolution of
    /// nothing: coordinates are independent, so that theirs add up.
    #[test]
    fn rows_that_move_many_coordinates_cost_no_more() {
        let (variance, shift) = (200.0, 3.0);
        let law = skellam(variance);
        let release = SecureRelease::new(variance, shift).unwrap();
        let mass = |k: i64| law.get(k.unsigned_abs() as usize).copied().unwrap_or(0.0);
        let around = |x: f64, k: i64| {
            let (k, share) = (k - x.floor() as i64, x - x.floor());
            (1.0 - share) * mass(k) + share * mass(k - 1)
        };
        for (order, cost) in &release.costs {
            for moved in [vec![3.0], vec![2.1, 2.1], vec![0.3; 100], vec![-0.7, 0.1, 2.9]] {
                let squares: f64 = moved.iter().map(|s: &f64| s * s).sum();
                assert!(squares < 9.1);
                let all: f64 = moved
                    .iter()
                    .enumerate()
                    .map(|(i, s)| {
                        let f = 0.37 * i as f64;
                        let sum: f64 = (-250..=250)
                            .map(|k| {
                                let (p, q) = (around(f, k), around(f + s, k));
                                q * libm::pow(p / q, *order)
                            })
                            .sum();
                        libm::log(sum) / (order - 1.0)
                    })
                    .sum();
                assert!(all * 9.0 / squares.max(9.0) <= *cost, "{order}: {all} above {cost}");
            }
        }
    }

    #[test]
    fn levels_that_are_too_coarse_are_refused() {
        assert!(matches!(SecureRelease::new(1.0, 6.0), Err(PrivacyError::Coarse { .. })));
        assert!(matches!(SecureRelease::new(0.0, 1.0), Err(PrivacyError::Noise { .. })));
    }
}

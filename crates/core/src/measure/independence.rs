//! Predict the efficiency of an independence Metropolis chain from the weights of its proposals.
//!
//! With weights `w = pi/q` of draws from `q`, scaled to mean 1, and `A(w) = E min(1, w'/w)` the
//! chance to leave a point of weight `w`, the chain's transition operator has a known spectrum (Liu
//! 1996; Smith and Tierney 1996). For `f` of mean 0 under `p_i = w_i / sum w` its variance ratio is
//!
//! ```text
//! tau = 1 + (2/var f) [sum_i p_i f_i^2 (1 - A_i)/A_i + sum_ij p_i p_j f_i f_j S(max(w_i, w_j))]
//! S(w) = integral from w to the largest weight of dv / (A(v) v)^2
//! ```

use crate::simd::exp;

/// Sorted weights, and what follows from them for every function.
#[derive(Clone, Debug)]
pub struct Independence {
    /// The places of the weights in ascending order.
    order: Vec<usize>,
    /// `p_i`, `A_i` and `S_i` in that order.
    shares: Vec<f64>,
    leaving: Vec<f64>,
    tails: Vec<f64>,
}

impl Independence {
    /// From the logarithms of weights, up to a constant; `None` where there are none, or no weight
    /// is positive and finite.
    pub fn new(log_weights: &[f64]) -> Option<Self> {
        let n = log_weights.len();
        let largest = log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if n == 0 || !largest.is_finite() || log_weights.iter().any(|w| w.is_nan()) {
            return None;
        }
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|a, b| log_weights[*a].total_cmp(&log_weights[*b]));
        let weights: Vec<f64> = order.iter().map(|k| exp(log_weights[*k] - largest)).collect();
        let mean = weights.iter().sum::<f64>() / n as f64;
        let weights: Vec<f64> = weights.iter().map(|w| w / mean).collect();
        let mut below = Vec::with_capacity(n); // sums of the weights up to and with each
        let mut sum = 0.0;
        for w in &weights {
            sum += w;
            below.push(sum);
        }
        let above = |k: usize| (n - 1 - k) as f64;
        let leaving = (0..n)
            .map(|k| {
                let stays = if weights[k] > 0.0 { below[k] / weights[k] } else { (k + 1) as f64 };
                ((stays + above(k)) / n as f64).min(1.0)
            })
            .collect();
        // Between two weights A(v) v = (below + above v) / n is a line, so S is known in pieces.
        let mut tails = vec![0.0; n];
        for k in (0..n.saturating_sub(1)).rev() {
            let at = |v: f64| n as f64 / (below[k] + above(k) * v);
            let piece = n as f64 / above(k) * (at(weights[k]) - at(weights[k + 1]));
            tails[k] = tails[k + 1] + if piece.is_finite() { piece } else { 0.0 };
        }
        let shares = weights.iter().map(|w| w / n as f64).collect();
        Some(Independence { order, shares, leaving, tails })
    }

    /// How often proposals are accepted in the long run.
    pub fn acceptance(&self) -> f64 {
        self.shares.iter().zip(&self.leaving).map(|(p, a)| p * a).sum()
    }

    /// The variance ratio of a function that has nothing to do with the weights.
    pub fn unrelated(&self) -> f64 {
        self.shares.iter().zip(&self.leaving).map(|(p, a)| p * (2.0 / a - 1.0)).sum()
    }

    /// The variance ratio `tau` of the function with these values at the proposals: the chain is
    /// worth one independent draw of every `tau`. 1 where the function is constant.
    pub fn variance_ratio(&self, values: impl Fn(usize) -> f64) -> f64 {
        let f: Vec<f64> = self.order.iter().map(|k| values(*k)).collect();
        let mean: f64 = self.shares.iter().zip(&f).map(|(p, f)| p * f).sum();
        let (mut variance, mut staying, mut cross, mut before) = (0.0, 0.0, 0.0, 0.0);
        for (k, f) in f.iter().enumerate() {
            let (p, a, f) = (self.shares[k], self.leaving[k], f - mean);
            variance += p * f * f;
            staying += p * f * f * (1.0 - a) / a;
            cross += self.tails[k] * p * f * (2.0 * before + p * f);
            before += p * f;
        }
        if variance > 0.0 { 1.0 + 2.0 * (staying + cross) / variance } else { 1.0 }
    }

    /// The same for the worst of the tails of a coordinate: whether a draw is below its 5% and its
    /// 95% point.
    pub fn tail_variance_ratio(&self, values: impl Fn(usize) -> f64) -> f64 {
        let mut sorted: Vec<(f64, f64)> =
            self.order.iter().zip(&self.shares).map(|(k, p)| (values(*k), *p)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        let quantile = |level: f64| {
            let mut sum = 0.0;
            let found = sorted.iter().find(|(_, p)| {
                sum += p;
                sum >= level
            });
            found.or(sorted.last()).map_or(f64::NAN, |(value, _)| *value)
        };
        let ratio = |level: f64| {
            let point = quantile(level);
            self.variance_ratio(|k| f64::from(u8::from(values(k) <= point)))
        };
        ratio(0.05).max(ratio(0.95))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Chains, ess_mean};
    use crate::rng::{ClientId, Purpose, Seed};

    /// Draws of `Exp(rate)` and their log weights for the target `Exp(1)`.
    fn exponentials(rate: f64, n: usize, seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut stream = Seed::new(seed).stream(Purpose::Data, ClientId(0), 0);
        let x: Vec<f64> = (0..n).map(|_| -stream.uniform().max(1e-300).ln() / rate).collect();
        let weights = x.iter().map(|x| (rate - 1.0) * x).collect();
        (x, weights)
    }

    /// An independence chain through the proposals, as indices of them.
    fn chain(log_weights: &[f64], seed: u64) -> Vec<usize> {
        let mut stream = Seed::new(seed).stream(Purpose::Data, ClientId(1), 0);
        let mut at = 0;
        (0..log_weights.len())
            .map(|k| {
                if stream.uniform().max(1e-300).ln() < log_weights[k] - log_weights[at] {
                    at = k;
                }
                at
            })
            .collect()
    }

    /// For the target `Exp(1)` and proposals `Exp(1/2)` the weight of x is `2 exp(-x/2)`, and
    /// `A(x) = 1 - exp(-x/2) (1 - ...)`: the acceptance is 2/3 exactly.
    #[test]
    fn the_acceptance_is_the_exact_one() {
        // E_pi E_q min(1, w'/w) = 2 P(...) : integral of min(pi(x) q(y), pi(y) q(x)) = 2/3
        let (_, weights) = exponentials(0.5, 200_000, 1);
        let found = Independence::new(&weights).unwrap().acceptance();
        assert!((found - 2.0 / 3.0).abs() < 0.005, "{found}");
    }

    /// Chains of 400,000 draws: the estimate of an effective size is within some 3% at that
    /// length, and the weights of 20,000 foretell it within 10%.
    #[test]
    fn what_is_foretold_happens() {
        for rate in [0.5, 0.8] {
            let (x, weights) = exponentials(rate, 20_000, 2);
            let foretold = Independence::new(&weights).unwrap();
            let (long, long_weights) = exponentials(rate, 400_000, 3);
            let draws = chain(&long_weights, 4);
            for (name, f) in [
                ("the mean", (|x| x) as fn(f64) -> f64),
                ("a tail", |x| f64::from(u8::from(x > 3.0))),
                ("the middle", |x| f64::from(u8::from((x - 1.0).abs() < 0.5))),
            ] {
                let tau = foretold.variance_ratio(|k| f(x[k]));
                let values: Vec<f64> = draws.iter().map(|k| f(long[*k])).collect();
                let chains = [&values[..]];
                let actual = values.len() as f64 / ess_mean(&Chains::new(&chains).unwrap());
                assert!(
                    (tau / actual - 1.0).abs() < 0.1,
                    "rate {rate}, {name}: {tau} was foretold and {actual} happened"
                );
            }
        }
    }

    #[test]
    fn equal_weights_are_independent_draws() {
        let equal = Independence::new(&[3.0; 500]).unwrap();
        assert!((equal.acceptance() - 1.0).abs() < 1e-12);
        assert!((equal.variance_ratio(|k| k as f64) - 1.0).abs() < 1e-9);
        assert!((equal.unrelated() - 1.0).abs() < 1e-12);
        assert!((equal.tail_variance_ratio(|k| k as f64) - 1.0).abs() < 1e-9);
        assert_eq!(equal.variance_ratio(|_| 7.0), 1.0);
        assert!(Independence::new(&[]).is_none());
        assert!(Independence::new(&[f64::NAN, 0.0]).is_none());
        assert!(Independence::new(&[f64::NEG_INFINITY; 3]).is_none());
    }
}

//! Hold what the servers of family C have in common: who is asked, the prior, the coins.

use crate::model::Prior;
use crate::rng::{ClientId, Purpose, SERVER, Seed};
use crate::simd::exp;
use crate::target::{Placement, Target};

/// What every server of the family knows.
#[derive(Clone, Debug)]
pub(in crate::sampler) struct Shared {
    pub(in crate::sampler) everybody: Vec<ClientId>,
    /// The prior, where the server applies it.
    pub(in crate::sampler) prior: Prior,
    pub(in crate::sampler) temperature: f64,
    pub(in crate::sampler) public: Seed,
}

impl Shared {
    pub(in crate::sampler) fn new(target: &Target, public: Seed) -> Self {
        let placed_here = target.placement == Placement::Server;
        Shared {
            everybody: (0..target.clients.len() as u32).map(ClientId).collect(),
            prior: if placed_here { target.prior.clone() } else { Prior::Flat },
            temperature: target.temperature,
            public,
        }
    }

    /// `U/T` from the sum of the clients' answers at `x`.
    pub(in crate::sampler) fn potential(&self, sum: f64, x: &[f64]) -> f64 {
        (sum + self.prior.value(x)) / self.temperature
    }

    /// The probability to accept where the logarithm of the ratio is `log`, and whether the coin of
    /// this iteration falls that way. What is not a number is refused.
    pub(in crate::sampler) fn decide(&self, iteration: u64, log: f64) -> (f64, bool) {
        let probability = if log >= 0.0 { 1.0 } else { exp(log) };
        let probability = if probability.is_nan() { 0.0 } else { probability };
        let coin = self.public.stream(Purpose::Accept, SERVER, iteration).uniform();
        (probability, coin < probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coins of 40,000 iterations: how often two that follow each other both say yes is off by
    /// `sqrt(p^2 (1 - p^2) / n)`, and a little more since pairs overlap.
    #[test]
    fn every_iteration_has_a_coin_of_its_own() {
        let shared = Shared {
            everybody: Vec::new(),
            prior: Prior::Flat,
            temperature: 1.0,
            public: Seed::new(8),
        };
        let n = 40_000;
        let said: Vec<bool> = (0..n).map(|k| shared.decide(k, -0.7).1).collect();
        let p = (-0.7f64).exp();
        let share = |count: usize| count as f64 / n as f64;
        let alone = share(said.iter().filter(|yes| **yes).count());
        let both = share(said.windows(2).filter(|pair| pair[0] && pair[1]).count());
        assert!((alone - p).abs() < 4.9 * 0.0025, "{alone} is not {p}");
        assert!((both - p * p).abs() < 4.9 * 0.0035, "{both} is not {}", p * p);
        assert_eq!(shared.decide(3, f64::NAN), (0.0, false));
        assert_eq!(shared.decide(3, 0.5), (1.0, true));
    }
}

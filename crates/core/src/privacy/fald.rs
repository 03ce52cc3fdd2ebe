//! Compute what FA-LD's Theorem G.3 claims, for comparison only.
//!
//! The theorem (Deng et al. 2022, appendix G) does not hold: its amplification by the draw of
//! clients (62, 63) is none at the level of rows, since where clients differ the output shows who
//! took part; and its limit on the step lets a smaller `delta` through than is true. No bound of
//! this project uses it.

use super::PrivacyError;

/// How FA-LD draws the clients of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Scheme I: with replacement.
    WithReplacement,
    /// Scheme II: without.
    WithoutReplacement,
}

/// The letters of the theorem.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TheoremG3 {
    /// `N`: the clients.
    pub clients: u64,
    /// `S`: those who take part in a round.
    pub taking_part: u64,
    /// How they are drawn.
    pub scheme: Scheme,
    /// `gamma`: the share of rows in a minibatch.
    pub share: f64,
    /// `K`: local steps a round.
    pub local_steps: u64,
    /// `T`: steps in all.
    pub steps: u64,
    /// `eta`: the step.
    pub step: f64,
    /// `tau`: the temperature.
    pub temperature: f64,
    /// `rho`: the share of noise that all clients have in common.
    pub correlation: f64,
    /// `min_c p_c`: the least weight of a client.
    pub least_weight: f64,
    /// `Delta_l`: how far two rows' gradients can be apart.
    pub sensitivity: f64,
}

/// An advanced composition as in (58) and (64).
fn composed(epsilon: f64, times: f64, delta: f64) -> f64 {
    let advanced = if delta > 0.0 {
        (2.0 * times * -libm::log(delta)).sqrt() + times * libm::expm1(epsilon)
    } else {
        f64::INFINITY
    };
    epsilon * advanced.min(times)
}

impl TheoremG3 {
    /// What it claims: epsilon and delta, for these `delta_0`, `delta_1` and `delta_2`.
    pub fn claim(&self, delta0: f64, delta1: f64, delta2: f64) -> Result<(f64, f64), PrivacyError> {
        let ln = libm::log(1.25 / delta0);
        let private = self.temperature * (1.0 - self.correlation * self.correlation);
        let limit = private * self.share * self.share * self.least_weight
            / (self.sensitivity * self.sensitivity * ln); // (57)
        if self.step.is_nan() || self.step > limit {
            return Err(PrivacyError::OutsideTheorem { step: self.step, limit });
        }
        let (n, s) = (self.clients as f64, self.taking_part as f64);
        let (k, rounds) = (self.local_steps as f64, self.steps as f64 / self.local_steps as f64);
        let one = 2.0 * self.sensitivity * (self.step * ln / (private * self.least_weight)).sqrt();
        let walk = composed(one, k, delta1); // (58)
        let (drawn, delta) = match self.scheme {
            Scheme::WithoutReplacement => {
                (s / n, s / n * (k * self.share * delta0 + delta1)) // (59), (63)
            }
            Scheme::WithReplacement => {
                let mut delta = 0.0;
                let mut weight = libm::pow(1.0 - 1.0 / n, s);
                for times in 1..=self.taking_part {
                    let j = times as f64;
                    weight *= (s - j + 1.0) / j / (n - 1.0);
                    let inner =
                        1.25 * k * self.share * libm::pow(delta0 / 1.25, 1.0 / (j * j)) + delta1;
                    delta += weight * libm::expm1(walk) * inner / libm::expm1(walk / j);
                }
                (1.0 - libm::pow(1.0 - 1.0 / n, s), delta)
            }
        };
        let round = libm::log1p(drawn * libm::expm1(walk)); // (62)
        Ok((composed(round, rounds, delta2), rounds * delta + delta2)) // (64), (65)
    }

    /// The least epsilon that it claims at delta, over a grid of splits between the three deltas.
    pub fn best_claim(&self, delta: f64) -> Result<f64, PrivacyError> {
        let mut best: Result<f64, PrivacyError> =
            self.claim(delta, 0.0, 0.0).map(|_| f64::INFINITY);
        let shares = [0.0, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];
        for of_last in shares {
            for of_walk in shares {
                let delta2 = of_last * delta;
                // What is left is shared by rounds; delta_1 takes a part of it, delta_0 the rest.
                let rounds = self.steps as f64 / self.local_steps as f64;
                let drawn = self.taking_part as f64 / self.clients as f64;
                let left = (delta - delta2) / (rounds * drawn);
                let delta1 = of_walk * left;
                let delta0 = (left - delta1) / (self.local_steps as f64 * self.share);
                if delta0 > 0.0
                    && delta0 < 1.0
                    && let Ok((epsilon, total)) = self.claim(delta0, delta1, delta2)
                    && total <= delta * (1.0 + 1e-9)
                    && !matches!(&best, Ok(found) if *found <= epsilon)
                {
                    best = Ok(epsilon);
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::gaussian_delta;

    const BASE: TheoremG3 = TheoremG3 {
        clients: 100,
        taking_part: 20,
        scheme: Scheme::WithoutReplacement,
        share: 0.1,
        local_steps: 10,
        steps: 1000,
        step: 1e-8,
        temperature: 1.0,
        correlation: 0.0,
        least_weight: 0.01,
        sensitivity: 2.0,
    };

    #[test]
    fn the_published_formulas_come_out() {
        let at = |theorem: TheoremG3| theorem.claim(2.5e-7, 0.0, 5e-6).unwrap().0;
        for (theorem, epsilon) in [
            (BASE, 1.767),
            (TheoremG3 { correlation: 0.99, ..BASE }, 30.97),
            (TheoremG3 { taking_part: 1, ..BASE }, 0.0843),
            (TheoremG3 { taking_part: 100, ..BASE }, 10.43),
            (TheoremG3 { steps: 100, ..BASE }, 0.3346),
            (TheoremG3 { steps: 10_000, ..BASE }, 6.366),
        ] {
            let ours = at(theorem);
            assert!((ours / epsilon - 1.0).abs() < 1e-3, "{ours} is not {epsilon}");
        }
        for (step, epsilon) in [(1e-6, 54.73), (1e-8, 1.767), (1e-10, 0.1572)] {
            let ours = TheoremG3 { step, ..BASE }.best_claim(1e-5).unwrap();
            assert!(ours >= epsilon * 0.999 && ours < 1.15 * epsilon, "{ours} is not {epsilon}");
        }
        assert!(TheoremG3 { step: 1.0, ..BASE }.claim(1e-6, 0.0, 0.0).is_err());
    }

    #[test]
    fn it_claims_less_than_is_true() {
        // Scheme II, one round of one step of one of ten clients that are far apart: with
        // probability S/N the one concerned is drawn, and then all of its curve is seen.
        let (clients, sensitivity, weight) = (10, 2.0, 0.1);
        let step = weight / (sensitivity * sensitivity * (1.25f64 / 1e-6).ln()) * 0.999;
        let theorem = TheoremG3 {
            clients,
            taking_part: 1,
            share: 1.0,
            local_steps: 1,
            steps: 1,
            step,
            least_weight: weight,
            ..BASE
        };
        let (epsilon, delta) = theorem.claim(1e-6, 0.0, 0.0).unwrap();
        let mu = sensitivity * (step / (2.0 * weight)).sqrt();
        let truth = 0.1 * gaussian_delta(mu, epsilon);
        assert!((epsilon - 0.4936).abs() < 1e-4 && (delta - 1e-7).abs() < 1e-12, "{epsilon}");
        assert!((truth / 3.34e-5 - 1.0).abs() < 0.01, "{truth}");

        // Scheme I, one client of half the weight among 10^4.
        let clients = 10_000;
        let least = 0.5 / 9999.0;
        let step = least / (1.25f64 / 1e-3).ln() * 0.999;
        let theorem = TheoremG3 {
            clients,
            scheme: Scheme::WithReplacement,
            step,
            least_weight: least,
            sensitivity: 1.0,
            ..theorem
        };
        let (epsilon, delta) = theorem.claim(1e-3, 0.0, 0.0).unwrap();
        let truth = 0.5 * gaussian_delta((step / (2.0 * 0.5)).sqrt(), epsilon);
        assert!((epsilon / 6.38e-4 - 1.0).abs() < 1e-2 && (delta / 1e-7 - 1.0).abs() < 1e-2);
        assert!((truth / 3.84e-4 - 1.0).abs() < 1e-2, "{truth}");
    }
}

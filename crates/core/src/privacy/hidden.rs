//! Bound what draws tell somebody who sees no round: the hidden-state bound of noisy gradient
//! descent.
//!
//! Bok, Su and Altschuler (2024), theorem 3.1, for full batches: a step of size `gamma` on a
//! potential with curvatures in `[m, L]` contracts by `c = max(|1 - gamma m|, |1 - gamma L|)`, and
//! `s` steps from a known point are a Gaussian mechanism of
//!
//! ```text
//! mu_s = D sqrt(gamma / 2T) sqrt((1 - c^s)/(1 + c^s) (1 + c)/(1 - c)).
//! ```
//!
//! A draw is a known point for what follows: `mu^2 = mu_burn^2 + (R - 1) mu_thin^2`. **`m` must
//! hold for every data set: it is the precision of the prior**, never a curvature that was
//! measured.

use super::PrivacyError;

/// A chain of which only draws are seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HiddenState {
    /// `gamma`.
    pub step: f64,
    /// `T`.
    pub temperature: f64,
    /// `m`: the least curvature that any data set can have, which is the prior's.
    pub convexity: f64,
    /// `L`: the largest.
    pub smoothness: f64,
    /// `D`: how far one row can move the gradient.
    pub reach: f64,
}

impl HiddenState {
    /// `c`.
    fn contraction(&self) -> Result<f64, PrivacyError> {
        let factor = |curvature: f64| (1.0 - self.step * curvature).abs();
        let c = factor(self.convexity).max(factor(self.smoothness));
        if c < 1.0 && self.convexity > 0.0 && self.step > 0.0 {
            // Raised by what two roundings can have taken away.
            Ok((c + 2.0 * f64::EPSILON).min(1.0 - f64::EPSILON))
        } else {
            Err(PrivacyError::NoContraction {
                step: self.step,
                convexity: self.convexity,
                smoothness: self.smoothness,
            })
        }
    }

    /// `mu_s`: what the state after `rounds` tells to somebody who knows where they started.
    pub fn mu(&self, rounds: u64) -> Result<f64, PrivacyError> {
        let c = self.contraction()?;
        let power = libm::pow(c, rounds as f64);
        let once = self.reach * (self.step / (2.0 * self.temperature)).sqrt();
        let longer = ((1.0 - power) / (1.0 + power) * (1.0 + c) / (1.0 - c)).sqrt();
        Ok(once * longer * (1.0 + 1e-12))
    }

    /// What `draws` tell together, `burn_in` rounds before the first and `thin` between two.
    pub fn mu_of_draws(&self, burn_in: u64, draws: u64, thin: u64) -> Result<f64, PrivacyError> {
        if draws == 0 {
            return Ok(0.0);
        }
        let (first, next) = (self.mu(burn_in)?, self.mu(thin)?);
        Ok((first * first + (draws - 1) as f64 * next * next).sqrt() * (1.0 + 1e-12))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_on_a_quadratic() {
        for (step, m, rounds, temperature, reach) in
            [(0.01, 5.0, 7, 1.0, 2.0), (0.05, 0.16, 400, 1.0, 2.0), (0.1, 3.0, 1, 2.0, 1.0)]
        {
            let chain = HiddenState { step, temperature, convexity: m, smoothness: m, reach };
            // x <- c x - gamma D + sqrt(2 gamma T) Z: means gamma D (1 - c^s)/(1 - c) apart.
            let c: f64 = 1.0 - step * m;
            let apart = step * reach * (1.0 - c.powi(rounds)) / (1.0 - c);
            let variance = 2.0 * step * temperature * (1.0 - c.powi(2 * rounds)) / (1.0 - c * c);
            let exact = apart / variance.sqrt();
            let ours = chain.mu(rounds as u64).unwrap();
            assert!(ours >= exact * (1.0 - 1e-15) && ours < exact * (1.0 + 1e-9), "{ours} {exact}");
            let composed = reach * (step * f64::from(rounds) / (2.0 * temperature)).sqrt();
            assert!(ours <= composed * (1.0 + 1e-9), "{ours} {composed}");
            assert!(chain.mu(1_000_000).unwrap() <= reach / (m * temperature).sqrt() * 1.01);
        }
    }

    #[test]
    fn a_chain_that_does_not_contract_is_refused() {
        let chain = HiddenState {
            step: 0.1,
            temperature: 1.0,
            convexity: 0.0,
            smoothness: 3.0,
            reach: 1.0,
        };
        assert!(chain.mu(3).is_err());
        assert!(HiddenState { convexity: 1.0, smoothness: 21.0, ..chain }.mu(3).is_err());
        let draws = HiddenState { convexity: 1.0, ..chain }.mu_of_draws(10, 5, 2).unwrap();
        let parts = HiddenState { convexity: 1.0, ..chain };
        let by_hand = (parts.mu(10).unwrap().powi(2) + 4.0 * parts.mu(2).unwrap().powi(2)).sqrt();
        assert!((draws - by_hand).abs() < 1e-9);
    }
}

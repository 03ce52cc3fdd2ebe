//! Compute the Monte Carlo standard errors of estimates from dependent draws.

use super::beta::beta_quantile;
use super::ess::{effective, ess_mean, ess_quantile};
use super::summary::{mean, sd, sorted};
use super::{Chains, DrawsError};

/// Standard error of the mean of the draws.
pub fn mcse_mean(chains: &Chains) -> f64 {
    sd(chains.pooled()) / ess_mean(chains).sqrt()
}

/// Standard error of the standard deviation of the draws, by the delta method from that of the
/// variance; NaN for constant draws.
pub fn mcse_sd(chains: &Chains) -> f64 {
    let draws = chains.pooled();
    let centre = mean(draws);
    let square = |draw: f64| (draw - centre) * (draw - centre);
    let size = draws.len() as f64;
    let second = draws.iter().map(|&draw| square(draw)).sum::<f64>() / size;
    let fourth = draws.iter().map(|&draw| square(draw) * square(draw)).sum::<f64>() / size;
    let error_of_variance = (fourth - second * second) / effective(chains.halves_of(square));
    (error_of_variance / second / 4.0).sqrt()
}

/// Standard error of a quantile of the draws: half the distance of the order statistics between
/// which it lies with 68% probability.
pub fn mcse_quantile(chains: &Chains, probability: f64) -> Result<f64, DrawsError> {
    // to as many digits as in ArviZ, so that the same draws are chosen
    const ONE_SIGMA: [f64; 2] = [0.158_655_3, 0.841_344_7];
    let effective = ess_quantile(chains, probability)?;
    if effective.is_nan() {
        return Ok(f64::NAN);
    }
    let draws = sorted(chains.pooled());
    let size = draws.len() as f64;
    let place = |at: f64| {
        beta_quantile(at, effective * probability + 1.0, effective * (1.0 - probability) + 1.0)
            * size
            - 1.0
    };
    let low = draws[place(ONE_SIGMA[0]).max(0.0).floor() as usize];
    let high = draws[place(ONE_SIGMA[1]).min(size - 1.0).ceil() as usize];
    Ok((high - low) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One chain of +1 and -1 in random-looking order whose effective size is known from
    /// [`ess_mean`].
    fn coin() -> Vec<f64> {
        (0..64u32)
            .map(|k| if k.wrapping_mul(2_654_435_761) >> 31 == 0 { 1.0 } else { -1.0 })
            .collect()
    }

    #[test]
    fn the_mean_has_sd_over_root_effective_size() {
        let draws = coin();
        let chains = Chains::flat(&draws, 1).unwrap();
        let balance = mean(&draws);
        let sd = ((1.0 - balance * balance) * 64.0 / 63.0).sqrt();
        assert!((mcse_mean(&chains) - sd / ess_mean(&chains).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn the_sd_of_draws_of_fixed_size_is_certain() {
        // every square is 1
        let draws: Vec<f64> = (0..16).map(|k| if k % 4 < 2 { 1.0 } else { -1.0 }).collect();
        assert_eq!(mcse_sd(&Chains::flat(&draws, 2).unwrap()), 0.0);
        assert!(mcse_sd(&Chains::flat(&[2.5; 8], 2).unwrap()).is_nan());
    }

    #[test]
    fn a_quantile_lies_between_order_statistics() {
        // A constant counts in full; its quantiles are certain.
        assert_eq!(mcse_quantile(&Chains::flat(&[2.5; 8], 2).unwrap(), 0.3).unwrap(), 0.0);
        // 0..=100 in a scattered order
        let draws: Vec<f64> = (0..101).map(|k| f64::from(k * 45 % 101)).collect();
        let chains = Chains::flat(&draws, 1).unwrap();
        let n = ess_quantile(&chains, 0.5).unwrap();
        let (half, error) =
            ((101.0 * 0.5 / (n + 2.0).sqrt()).round(), mcse_quantile(&chains, 0.5).unwrap());
        assert!((error - half).abs() <= 1.0, "{error} is not about {half}");
        assert!(mcse_quantile(&chains, -0.1).is_err());
    }
}

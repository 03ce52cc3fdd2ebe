//! Compute the effective sample size of dependent draws.
//!
//! The estimator is that of Vehtari et al. (2021) in all of ArviZ's details: halved chains,
//! autocorrelations that include the disagreement between chains, Geyer's initial monotone
//! sequence, and at most `log10` of the draws times the draws for antithetic chains.

use super::autocovariance::Autocovariance;
use super::ranks::normal_scores;
use super::summary::{numpy_quantile_of_sorted, quantile_of_sorted, sorted};
use super::{Chains, DrawsError, Halves, closed_probability};
use crate::simd;

/// Effective draws for the centre of the distribution: of the normal scores of the ranks.
///
/// NaN where a draw is NaN, as for all effective sizes; constant draws count in full, as in ArviZ.
pub fn ess_bulk(chains: &Chains) -> f64 {
    let halves = chains.halves();
    effective(Halves { values: normal_scores(&halves.values), length: halves.length })
}

/// Effective draws for the tails: the smaller of those for the 5% and 95% quantiles.
pub fn ess_tail(chains: &Chains) -> f64 {
    let in_order = sorted(chains.pooled());
    least(
        below(chains, quantile_of_sorted(&in_order, 0.05)),
        below(chains, quantile_of_sorted(&in_order, 0.95)),
    )
}

/// The same for two other quantiles, which are taken as ArviZ 1.x takes them.
pub fn ess_tail_at(chains: &Chains, low: f64, high: f64) -> Result<f64, DrawsError> {
    let in_order = sorted(chains.pooled());
    let at = |probability| {
        Ok(below(chains, numpy_quantile_of_sorted(&in_order, closed_probability(probability)?)))
    };
    Ok(least(at(low)?, at(high)?))
}

fn least(low: f64, high: f64) -> f64 {
    if low.is_nan() || high.is_nan() { f64::NAN } else { low.min(high) }
}

/// Effective draws for the mean. NaN where a draw is infinite: then there is no mean.
pub fn ess_mean(chains: &Chains) -> f64 {
    effective(chains.halves())
}

/// Effective draws for a quantile: of the indicator of lying at or below it.
pub fn ess_quantile(chains: &Chains, probability: f64) -> Result<f64, DrawsError> {
    Ok(below(
        chains,
        quantile_of_sorted(&sorted(chains.pooled()), closed_probability(probability)?),
    ))
}

/// Effective draws of the indicator of lying at or below a number.
fn below(chains: &Chains, quantile: f64) -> f64 {
    if quantile.is_nan() {
        return f64::NAN;
    }
    effective(chains.halves_of(|draw| if draw <= quantile { 1.0 } else { 0.0 }))
}

/// Effective size of the halved chains of some function of the draws.
pub(super) fn effective(halves: Halves) -> f64 {
    let (size, count, length) = (halves.values.len() as f64, halves.count() as f64, halves.length);
    if halves.values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    let (least, most) = halves
        .values
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), &v| (a.min(v), b.max(v)));
    if most - least < 1e-15 {
        return size;
    }
    let means: Vec<f64> = halves.each().map(super::mean).collect();
    let mut autocovariance = Autocovariance::new(halves);
    let n = length as f64;
    let within = autocovariance.at(0) * n / (n - 1.0);
    let mut total = within * (n - 1.0) / n;
    if count > 1.0 {
        total += super::summary::variance(&means);
    }
    let mut autocorrelation = |lag| 1.0 - (within - autocovariance.at(lag)) / total;

    // Geyer's initial positive sequence: pairs of neighbouring lags are kept while their sum is
    // positive.
    let (mut even, mut odd) = (1.0, autocorrelation(1));
    let mut rho = vec![even, odd];
    while rho.len() + 2 < length && even + odd > 0.0 {
        (even, odd) = (autocorrelation(rho.len()), autocorrelation(rho.len() + 1));
        rho.extend(if even + odd >= 0.0 { [even, odd] } else { [0.0, 0.0] });
    }
    if rho.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    // Of the pair that ended the sequence only a positive even lag counts, and once instead of
    // twice.
    let last = rho.len() - 2;
    if even > 0.0 {
        rho[last] = even;
    }
    // Geyer's initial monotone sequence: no pair exceeds the one before.
    for pair in (2..last.saturating_sub(1)).step_by(2) {
        let before = rho[pair - 2] + rho[pair - 1];
        if rho[pair] + rho[pair + 1] > before {
            rho[pair] = before / 2.0;
            rho[pair + 1] = before / 2.0;
        }
    }
    let time = -1.0 + 2.0 * rho[..last].iter().sum::<f64>() + rho[last];
    let least_time = core::f64::consts::LN_10 / simd::ln(size); // 1 / log10(size)
    size / time.max(least_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand_for_a_positive_pair() {
        // Two identical halves 0 0 0 1 1 1: centred -+1/2, so acov = 1/4, 1/8, 0, -1/8, -1/6 x ..,
        // and the halves agree.
        let half = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0];
        let halves = Halves { values: [half, half].concat(), length: 6 };
        // within = 3/10, total = 1/4: rho_1 = 1 - (0.3 - 0.125) / 0.25 = 0.3, rho_2 = 1 - 0.3 /
        // 0.25 = -0.2, rho_3 = -0.7. The pair (2, 3) is negative and its even lag too: time = -1 +
        // 2 (1 + 0.3) + 0 = 1.6.
        assert!((effective(halves) - 12.0 / 1.6).abs() < 1e-13);
    }

    #[test]
    fn antithetic_draws_count_more_but_only_so_much() {
        let draws: Vec<f64> = (0..100).map(|k| if k % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let ess = ess_mean(&Chains::flat(&draws, 1).unwrap());
        assert!((ess - 200.0).abs() < 1e-12); // 100 log10(100)
    }

    #[test]
    fn a_draw_that_is_no_number_is_passed_on() {
        let mut draws: Vec<f64> = (0..40).map(|k| f64::from(k * 17 % 41)).collect();
        draws[7] = f64::INFINITY;
        let chains = Chains::flat(&draws, 2).unwrap();
        assert!(ess_mean(&chains).is_nan());
        assert!(ess_bulk(&chains).is_finite() && ess_tail(&chains).is_finite());
        draws[7] = f64::NAN;
        let chains = Chains::flat(&draws, 2).unwrap();
        assert!(
            ess_mean(&chains).is_nan() && ess_bulk(&chains).is_nan() && ess_tail(&chains).is_nan()
        );
        assert!(ess_quantile(&chains, 0.5).unwrap().is_nan());
        assert!(ess_quantile(&chains, 1.5).is_err());
    }
}

//! Compute the rank-normalised split R-hat: whether chains agree.

use super::ranks::normal_scores;
use super::summary::{mean, quantile_of_sorted, sorted, variance};
use super::{Chains, Halves};

/// The larger of bulk and folded R-hat (Vehtari et al. 2021), as ArviZ's `rhat(method="rank")`:
/// above 1.01 the chains disagree.
///
/// NaN for a single chain, for constant draws and where a draw is NaN. An infinite draw is only a
/// rank.
pub fn rhat(chains: &Chains) -> f64 {
    if chains.count() < 2 {
        return f64::NAN;
    }
    let halves = chains.halves();
    let length = halves.length;
    let bulk = plain_rhat(&Halves { values: normal_scores(&halves.values), length });
    let folded = plain_rhat(&Halves { values: normal_scores(&fold(&halves.values)), length });
    // Draws of two symmetric values fold to a constant: then the bulk alone can speak.
    if folded > bulk { folded } else { bulk }
}

/// Distances from the median: chains that agree on the place may differ in the spread.
fn fold(values: &[f64]) -> Vec<f64> {
    let median = quantile_of_sorted(&sorted(values), 0.5);
    values.iter().map(|value| (value - median).abs()).collect()
}

/// Root of the pooled variance over the variance within chains (Gelman and Rubin 1992).
fn plain_rhat(halves: &Halves) -> f64 {
    let length = halves.length as f64;
    let means: Vec<f64> = halves.each().map(mean).collect();
    let within = halves.each().map(variance).sum::<f64>() / halves.count() as f64;
    let between = length * variance(&means);
    ((between / within + length - 1.0) / length).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand_for_two_halves() {
        // Means 1 and 4, variances 1 and 1: between = 3 * 4.5, so R-hat^2 = (13.5 + 2) / 3.
        let halves = Halves { values: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0], length: 3 };
        assert!((plain_rhat(&halves) - (15.5f64 / 3.0).sqrt()).abs() < 1e-15);
    }

    #[test]
    fn a_chain_with_another_spread_is_seen_by_folding_alone() {
        let narrow: Vec<f64> = (0..100).map(|k| f64::from(k * 37 % 101) - 50.0).collect();
        let wide: Vec<f64> = narrow.iter().map(|draw| draw * 10.0).collect();
        assert!(rhat(&Chains::new(&[&narrow, &narrow]).unwrap()) < 1.02);
        assert!(rhat(&Chains::new(&[&narrow, &wide]).unwrap()) > 1.2);
        let halves = Chains::new(&[&narrow, &wide]).unwrap().halves();
        assert!(plain_rhat(&Halves { values: normal_scores(&halves.values), length: 50 }) < 1.02);
    }

    #[test]
    fn what_cannot_be_compared_is_nan() {
        let mut draws = [1.0, 2.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0];
        assert!(rhat(&Chains::flat(&draws, 1).unwrap()).is_nan());
        assert!(rhat(&Chains::flat(&[2.0; 8], 2).unwrap()).is_nan());
        draws[3] = f64::INFINITY;
        assert!(rhat(&Chains::flat(&draws, 2).unwrap()).is_finite());
        draws[3] = f64::NAN;
        assert!(rhat(&Chains::flat(&draws, 2).unwrap()).is_nan());
    }
}

//! Summarise the draws of a scalar: centre, spread, interval, and how far to trust them.

use super::{Chains, DrawsError, closed_probability, open_probability};
use super::{ess_bulk, ess_tail, ess_tail_at, mcse_mean, mcse_sd, rhat};

/// The mean; NaN of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The sample variance, with divisor `n - 1`.
pub(super) fn variance(values: &[f64]) -> f64 {
    let centre = mean(values);
    values.iter().map(|value| (value - centre) * (value - centre)).sum::<f64>()
        / (values.len() as f64 - 1.0)
}

/// The sample standard deviation, with divisor `n - 1`; NaN of fewer than two values.
pub fn sd(values: &[f64]) -> f64 {
    variance(values).sqrt()
}

/// A quantile by linear interpolation between order statistics, as numpy's default; NaN if a value
/// is.
pub fn quantile(values: &[f64], probability: f64) -> Result<f64, DrawsError> {
    if values.is_empty() {
        return Err(DrawsError::Empty);
    }
    Ok(quantile_of_sorted(&sorted(values), closed_probability(probability)?))
}

/// Ascending; a NaN of either sign comes last, so the last value tells whether there is one.
pub(super) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values: Vec<f64> =
        values.iter().map(|value| if value.is_nan() { f64::NAN } else { *value }).collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The quantile of ascending values.
///
/// The operations are scipy's `mquantiles` with `alphap = betap = 1`, one by one: ArviZ compares
/// draws with the result, so that a last bit decides on which side of a quantile a draw lies.
pub(super) fn quantile_of_sorted(ascending: &[f64], probability: f64) -> f64 {
    let Some(last) = ascending.last() else { return f64::NAN };
    if last.is_nan() || ascending.len() == 1 {
        return *last;
    }
    let n = ascending.len() as f64;
    let place = n * probability + (1.0 - probability);
    let above = place.clamp(1.0, n - 1.0).floor();
    let (low, high) = (ascending[above as usize - 1], ascending[above as usize]);
    match (place - above).clamp(0.0, 1.0) {
        0.0 => low, // so that an infinite neighbour does not make it NaN
        1.0 => high,
        weight => (1.0 - weight) * low + weight * high,
    }
}

/// The same by numpy's own operations, one by one: ArviZ 1.x takes its quantiles there, and a last
/// bit decides as well.
pub(super) fn numpy_quantile_of_sorted(ascending: &[f64], probability: f64) -> f64 {
    let Some(last) = ascending.last() else { return f64::NAN };
    let place = (ascending.len() as f64 - 1.0) * probability;
    let below = place.floor();
    if last.is_nan() || below as usize + 1 >= ascending.len() {
        return *last;
    }
    let (low, high) = (ascending[below as usize], ascending[below as usize + 1]);
    match place - below {
        0.0 => low, // so that an infinite neighbour does not make it NaN
        weight if weight >= 0.5 => high - (high - low) * (1.0 - weight),
        weight => low + (high - low) * weight,
    }
}

/// The interval with the given mass that leaves as much below as above.
pub fn equal_tailed(values: &[f64], mass: f64) -> Result<(f64, f64), DrawsError> {
    if values.is_empty() {
        return Err(DrawsError::Empty);
    }
    let tail = (1.0 - open_probability(mass)?) / 2.0;
    let ascending = sorted(values);
    Ok((
        numpy_quantile_of_sorted(&ascending, tail),
        numpy_quantile_of_sorted(&ascending, 1.0 - tail),
    ))
}

/// The shortest interval between draws with the given mass, as ArviZ's `hdi`; NaN if a value is.
pub fn hdi(values: &[f64], mass: f64) -> Result<(f64, f64), DrawsError> {
    let ascending = sorted(values);
    let last = ascending.last().ok_or(DrawsError::Empty)?;
    let inside = (open_probability(mass)? * values.len() as f64).floor() as usize;
    if last.is_nan() {
        return Ok((f64::NAN, f64::NAN));
    }
    let mut shortest = (ascending[0], ascending[inside]);
    for (&low, &high) in ascending.iter().zip(&ascending[inside..]) {
        if high - low < shortest.1 - shortest.0 {
            shortest = (low, high);
        }
    }
    Ok(shortest)
}

/// The mass of the intervals that are shown unless another is asked for: that of ArviZ 1.x.
pub const MASS: f64 = 0.89;

/// Which interval a summary shows, and the mass it holds. The definitions of its tail follow the
/// ArviZ that shows this interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Interval {
    /// As much mass below as above: ArviZ 1.x, with 0.89. Effective draws for the tails are those
    /// for the quantiles at the mass and at what it leaves (89% and 11%).
    EqualTailed(f64),
    /// The shortest: ArviZ 0.x, with 0.94. Effective draws for the tails are those for the 5% and
    /// 95% quantiles.
    HighestDensity(f64),
}

impl Default for Interval {
    fn default() -> Self {
        Interval::EqualTailed(MASS)
    }
}

impl Interval {
    /// The ends of the interval.
    pub fn of(self, values: &[f64]) -> Result<(f64, f64), DrawsError> {
        match self {
            Interval::EqualTailed(mass) => equal_tailed(values, mass),
            Interval::HighestDensity(mass) => hdi(values, mass),
        }
    }

    /// Effective draws for the tails.
    pub fn ess_tail(self, chains: &Chains) -> Result<f64, DrawsError> {
        match self {
            Interval::EqualTailed(mass) => ess_tail_at(chains, 1.0 - mass, mass),
            Interval::HighestDensity(_) => Ok(ess_tail(chains)),
        }
    }
}

/// What the draws of one scalar say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Mean of all draws.
    pub mean: f64,
    /// Standard deviation of all draws, with divisor `n - 1`.
    pub sd: f64,
    /// Lower end of the interval.
    pub lower: f64,
    /// Upper end of the interval.
    pub upper: f64,
    /// Rank-normalised split R-hat.
    pub rhat: f64,
    /// Effective draws for the centre.
    pub ess_bulk: f64,
    /// Effective draws for the tails, as [`Interval::ess_tail`] takes them.
    pub ess_tail: f64,
    /// Monte Carlo standard error of the mean.
    pub mcse_mean: f64,
    /// Monte Carlo standard error of the standard deviation.
    pub mcse_sd: f64,
}

/// The summary of the draws of one scalar.
pub fn summarise(chains: &Chains, interval: Interval) -> Result<Summary, DrawsError> {
    let draws = chains.pooled();
    let (lower, upper) = interval.of(draws)?;
    Ok(Summary {
        mean: mean(draws),
        sd: sd(draws),
        lower,
        upper,
        rhat: rhat(chains),
        ess_bulk: ess_bulk(chains),
        ess_tail: interval.ess_tail(chains)?,
        mcse_mean: mcse_mean(chains),
        mcse_sd: mcse_sd(chains),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let values = [4.0, 1.0, 2.0, 10.0, 3.0];
        assert_eq!(mean(&values), 4.0);
        assert_eq!(sd(&values), 12.5f64.sqrt());
        for (probability, exact) in
            [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.625, 3.5), (0.875, 7.0), (1.0, 10.0)]
        {
            assert_eq!(quantile(&values, probability).unwrap(), exact, "{probability}");
        }
        assert_eq!(equal_tailed(&values, 0.5).unwrap(), (2.0, 4.0));
        for (probability, exact) in
            [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.625, 3.5), (0.875, 7.0), (1.0, 10.0)]
        {
            assert_eq!(
                numpy_quantile_of_sorted(&sorted(&values), probability),
                exact,
                "{probability}"
            );
        }
        // three steps: 1..4 is shorter than 2..10
        assert_eq!(hdi(&values, 0.7).unwrap(), (1.0, 4.0));
        assert_eq!(hdi(&[7.0], 0.94).unwrap(), (7.0, 7.0));
    }

    #[test]
    fn infinite_values_stay_where_they_are_and_nan_is_passed_on() {
        let values = [1.0, 2.0, f64::INFINITY];
        assert_eq!(quantile(&values, 0.5).unwrap(), 2.0);
        assert_eq!(quantile(&values, 0.9).unwrap(), f64::INFINITY);
        assert_eq!(hdi(&values, 0.5).unwrap(), (1.0, 2.0));
        let values = [1.0, -f64::NAN, 2.0];
        assert!(quantile(&values, 1.0).unwrap().is_nan());
        assert!(hdi(&values, 0.5).unwrap().0.is_nan());
    }

    #[test]
    fn nothing_and_what_is_no_probability_are_refused() {
        assert_eq!(quantile(&[], 0.5), Err(DrawsError::Empty));
        assert_eq!(hdi(&[], 0.5), Err(DrawsError::Empty));
        assert_eq!(equal_tailed(&[], 0.5), Err(DrawsError::Empty));
        for wrong in [-0.1, 1.1, f64::NAN] {
            assert!(
                quantile(&[1.0], wrong).is_err()
                    && hdi(&[1.0], wrong).is_err()
                    && equal_tailed(&[1.0], wrong).is_err()
            );
        }
    }

    #[test]
    fn a_summary_holds_the_measures_it_names() {
        let draws: Vec<f64> = (0..80).map(|k| f64::from(k * 33 % 83)).collect();
        let chains = Chains::flat(&draws, 4).unwrap();
        let summary = summarise(&chains, Interval::EqualTailed(0.89)).unwrap();
        assert_eq!((summary.lower, summary.upper), equal_tailed(&draws, 0.89).unwrap());
        assert_eq!(
            (summary.mean, summary.sd, summary.rhat),
            (mean(&draws), sd(&draws), rhat(&chains))
        );
        assert_eq!(
            (summary.ess_bulk, summary.ess_tail),
            (ess_bulk(&chains), ess_tail_at(&chains, 1.0 - 0.89, 0.89).unwrap())
        );
        assert_eq!((summary.mcse_mean, summary.mcse_sd), (mcse_mean(&chains), mcse_sd(&chains)));
        assert_eq!(summary, summarise(&chains, Interval::default()).unwrap());
        let summary = summarise(&chains, Interval::HighestDensity(0.94)).unwrap();
        assert_eq!((summary.lower, summary.upper), hdi(&draws, 0.94).unwrap());
        assert_eq!(summary.ess_tail, ess_tail(&chains));
    }
}

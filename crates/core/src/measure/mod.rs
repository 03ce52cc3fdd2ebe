//! Measure draws: convergence, effective sample size, distances to the truth, predictive scores.
//!
//! Every measure is a pure function of numbers. Shapes that make no sense are refused with an
//! error; a NaN among the draws is data with a cause elsewhere, so it comes back as NaN.

mod autocovariance;
mod beta;
pub mod calibration;
pub mod efficiency;
pub mod ess;
pub mod gamma;
pub mod gaussian;
pub mod hpd;
pub mod independence;
pub mod loo;
pub mod mcse;
pub mod normal;
pub mod pareto;
pub mod predictive;
mod ranks;
pub mod rhat;
pub mod student;
pub mod summary;
pub mod tally;
pub mod transport;

pub use calibration::{AtLeast, Bin, CALIBRATION_BINS};
pub use efficiency::{MeanSquaredError, Traffic, mean_squared_error, relative_efficiency};
pub use ess::{ess_bulk, ess_mean, ess_quantile, ess_tail, ess_tail_at};
pub use gamma::{ln_gamma, rising};
pub use gaussian::{Gaussian, GaussianError, ScaledDistance, scaled_distance};
pub use hpd::{hpd_error, hpd_threshold};
pub use independence::Independence;
pub use loo::{Elpd, HeldBack, good_k};
pub use mcse::{mcse_mean, mcse_quantile, mcse_sd};
pub use normal::normal_quantile;
pub use pareto::{log_sum, pareto_k, smooth, unseen};
pub use predictive::{Predictive, PredictiveError, auc};
pub use rhat::rhat;
pub use student::student_quantile;
pub use summary::{Interval, MASS, Summary, equal_tailed, hdi, mean, quantile, sd, summarise};
pub use tally::{Count, Tally};
pub use transport::{TransportError, sliced_w2, w2_between_samples, w2_on_a_line};

use std::borrow::Cow;

use crate::simd;

/// Why draws cannot be measured.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum DrawsError {
    /// There is nothing to measure.
    #[error("there are no draws")]
    Empty,
    /// The chains are too short to be halved and compared.
    #[error("a chain has {draws} draws; at least {least} are needed")]
    TooFew {
        /// Draws a chain.
        draws: usize,
        /// Draws a chain that are needed.
        least: usize,
    },
    /// The chains are not equally long.
    #[error("chain {chain} has {draws} draws where chain 0 has {first}")]
    Unequal {
        /// The chain that differs.
        chain: usize,
        /// Its draws.
        draws: usize,
        /// The draws of the first chain.
        first: usize,
    },
    /// A flat slice cannot be cut into that many chains.
    #[error("{draws} draws cannot be cut into {chains} equally long chains")]
    Uneven {
        /// All draws.
        draws: usize,
        /// The chains asked for.
        chains: usize,
    },
    /// A probability lies outside its range.
    #[error("{value} is not a probability {range}")]
    Probability {
        /// What was given.
        value: f64,
        /// Where it should lie.
        range: &'static str,
    },
    /// A truth that draws are compared with is not a number they can be compared with.
    #[error("the reference value is {value}")]
    Reference {
        /// What was given.
        value: f64,
    },
}

/// The draws of one scalar: at least one chain, all equally long, with at least four draws each.
#[derive(Clone, Debug)]
pub struct Chains<'a> {
    /// Chain after chain.
    draws: Cow<'a, [f64]>,
    length: usize,
}

impl<'a> Chains<'a> {
    /// The fewest draws a chain may have: two in each half.
    pub const LEAST: usize = 4;

    /// Draws given chain by chain.
    pub fn new(chains: &[&'a [f64]]) -> Result<Self, DrawsError> {
        let length = chains.first().ok_or(DrawsError::Empty)?.len();
        if let Some(chain) = chains.iter().position(|chain| chain.len() != length) {
            return Err(DrawsError::Unequal { chain, draws: chains[chain].len(), first: length });
        }
        let draws =
            if let [only] = chains { Cow::Borrowed(*only) } else { Cow::Owned(chains.concat()) };
        Self::checked(draws, length)
    }

    /// Draws in one slice, chain after chain.
    pub fn flat(draws: &'a [f64], chains: usize) -> Result<Self, DrawsError> {
        if draws.is_empty() {
            return Err(DrawsError::Empty);
        }
        if chains == 0 || !draws.len().is_multiple_of(chains) {
            return Err(DrawsError::Uneven { draws: draws.len(), chains });
        }
        Self::checked(Cow::Borrowed(draws), draws.len() / chains)
    }

    fn checked(draws: Cow<'a, [f64]>, length: usize) -> Result<Self, DrawsError> {
        match length {
            0 => Err(DrawsError::Empty),
            few if few < Self::LEAST => Err(DrawsError::TooFew { draws: few, least: Self::LEAST }),
            _ => Ok(Chains { draws, length }),
        }
    }

    /// How many chains there are.
    pub fn count(&self) -> usize {
        self.draws.len() / self.length
    }

    /// How many draws each chain has.
    pub fn length(&self) -> usize {
        self.length
    }

    /// All draws, chain after chain.
    pub fn pooled(&self) -> &[f64] {
        &self.draws
    }

    /// The first and last half of every chain, as chains of their own.
    fn halves(&self) -> Halves {
        self.halves_of(|draw| draw)
    }

    /// The halved chains of a function of the draws.
    fn halves_of(&self, function: impl Fn(f64) -> f64) -> Halves {
        let length = self.length / 2;
        let mut values = Vec::with_capacity(2 * length * self.count());
        for chain in self.draws.chunks_exact(self.length) {
            values.extend(chain[..length].iter().copied().map(&function));
            // an odd chain loses its middle
            values.extend(chain[self.length - length..].iter().copied().map(&function));
        }
        Halves { values, length }
    }
}

/// Halved chains of some function of the draws, so that a chain that drifts disagrees with itself.
struct Halves {
    /// Half after half: an even number of them, each with at least two values.
    values: Vec<f64>,
    length: usize,
}

impl Halves {
    fn count(&self) -> usize {
        self.values.len() / self.length
    }

    fn each(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.length)
    }
}

/// Natural logarithm of a number in [0, infinity), with -infinity at 0.
fn log(x: f64) -> f64 {
    const TWO_TO_54: f64 = 18_014_398_509_481_984.0;
    if x == 0.0 {
        f64::NEG_INFINITY
    } else if x < f64::MIN_POSITIVE {
        simd::ln(x * TWO_TO_54) - 54.0 * core::f64::consts::LN_2
    } else {
        simd::ln(x)
    }
}

/// A probability strictly between 0 and 1, or an error.
fn open_probability(value: f64) -> Result<f64, DrawsError> {
    if value > 0.0 && value < 1.0 {
        Ok(value)
    } else {
        Err(DrawsError::Probability { value, range: "strictly between 0 and 1" })
    }
}

/// A probability between 0 and 1, ends included, or an error.
fn closed_probability(value: f64) -> Result<f64, DrawsError> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(DrawsError::Probability { value, range: "between 0 and 1" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_make_no_sense_are_refused_by_name() {
        let five = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(Chains::new(&[]).unwrap_err(), DrawsError::Empty);
        assert_eq!(Chains::new(&[&[]]).unwrap_err(), DrawsError::Empty);
        assert_eq!(
            Chains::new(&[&five[..3]]).unwrap_err(),
            DrawsError::TooFew { draws: 3, least: 4 }
        );
        assert_eq!(
            Chains::new(&[&five, &five[..4]]).unwrap_err(),
            DrawsError::Unequal { chain: 1, draws: 4, first: 5 }
        );
        assert_eq!(Chains::flat(&five, 2).unwrap_err(), DrawsError::Uneven { draws: 5, chains: 2 });
        assert_eq!(Chains::flat(&five, 0).unwrap_err(), DrawsError::Uneven { draws: 5, chains: 0 });
        assert_eq!(Chains::flat(&[], 1).unwrap_err(), DrawsError::Empty);
    }

    #[test]
    fn an_odd_chain_loses_its_middle_draw() {
        let draws = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
        let chains = Chains::flat(&draws, 2).unwrap();
        assert_eq!((chains.count(), chains.length()), (2, 5));
        let halves = chains.halves();
        assert_eq!(halves.values, [1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 9.0, 10.0]);
        assert_eq!(halves.count(), 4);
        assert_eq!(Chains::new(&[&draws[..5], &draws[5..]]).unwrap().pooled(), &draws);
    }

    #[test]
    fn log_reaches_down_to_zero() {
        assert_eq!(log(0.0), f64::NEG_INFINITY);
        assert_eq!(log(1.0), 0.0);
        assert!((log(5e-324) - 5e-324f64.ln()).abs() < 1e-12);
    }
}

//! Account for what leaves a site: what a run's releases tell of one row, at most.
//!
//! A site answers with sums over its rows plus noise of its own. How much such an answer can tell
//! of one row is a pair of laws ([`Release`]); what many tell together is their composition
//! ([`Composition`]), by privacy-loss distributions whose every error is on the safe side. All
//! functions are pure, and have the same bits on every machine.

mod accountant;
mod fald;
mod hidden;
mod loss;
mod normal;
mod once;
mod release;
mod secure;

pub use accountant::Composition;
pub use fald::{Scheme, TheoremG3};
pub use hidden::HiddenState;
pub(crate) use normal::phi;
pub use normal::{gaussian_delta, gaussian_epsilon, gaussian_mu};
pub use once::{Once, Released};
pub use release::{Neighbour, Release, Sampling};
pub(crate) use secure::Skellam;
pub use secure::{MOST_BITS, RESOLUTION, SecureRelease, SecureSum, nearest};

/// What cannot be accounted for, with the numbers that show it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PrivacyError {
    /// The budget is not one.
    #[error(
        "epsilon = {epsilon} and delta = {delta} are no budget: epsilon must be above 0 and delta \
         between 1e-30 and 1"
    )]
    Budget {
        /// What epsilon was.
        epsilon: f64,
        /// What delta was.
        delta: f64,
    },
    /// There is no noise, or its size is no number.
    #[error(
        "the noise is {ratio} times what one row contributes: without noise nothing is private; \
         it must be above 0 and finite"
    )]
    Noise {
        /// Its size.
        ratio: f64,
    },
    /// A share of rows that is none.
    #[error("{share} is no share of rows: it must be above 0 and at most 1")]
    Share {
        /// The share.
        share: f64,
    },
    /// Minibatches of a fixed size under add-remove neighbours.
    #[error(
        "minibatches of a fixed size have no bound where rows come and go, since their size tells \
         how many rows there are: use full batches, sampling = \"poisson\" or neighbour = \
         \"replace\""
    )]
    FixedAddRemove,
    /// Levels that are too coarse for the noise on them.
    #[error(
        "the noise is {ratio} times what one row moves the sum by, and rounding to levels would \
         cost {factor} times what normal noise does, above 1.05: use a smaller step or row_norm"
    )]
    Coarse {
        /// The noise.
        ratio: f64,
        /// The least factor.
        factor: f64,
    },
    /// A step at which the chain does not contract.
    #[error(
        "the chain does not contract at the step {step}: 1 - {step} times {convexity} or \
         {smoothness} is not within -1 and 1"
    )]
    NoContraction {
        /// The step.
        step: f64,
        /// The least curvature.
        convexity: f64,
        /// The largest curvature.
        smoothness: f64,
    },
    /// A step for which a theorem says nothing.
    #[error("the theorem needs a step of at most {limit:e}, and this one is {step:e}")]
    OutsideTheorem {
        /// The step.
        step: f64,
        /// The largest step that it allows.
        limit: f64,
    },
}

impl PrivacyError {
    /// Refuse a budget that is none.
    pub(crate) fn check_budget(epsilon: f64, delta: f64) -> Result<(), PrivacyError> {
        let good = epsilon > 0.0 && epsilon.is_finite() && (1e-30..1.0).contains(&delta);
        if good { Ok(()) } else { Err(PrivacyError::Budget { epsilon, delta }) }
    }
}

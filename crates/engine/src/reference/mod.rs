//! Make references from pooled rows by several methods, and keep them under the hash of the target.
//!
//! MALA is at hand everywhere ([`mala`]), a long run of LMC goes through the same machinery as any
//! sampler (`lmc`), and NUTS lives in a crate of its own, which makes the same [`Reference`].
//! [`Cache`] keeps them, [`agree`] tells how far two of them differ.

mod agree;
mod cache;
mod digest;

use std::fmt;

use consilience_core::protocol::Precision;
use consilience_core::sampler::registry::{self, Settings};
use consilience_core::step::Schedule;
use thiserror::Error;

use crate::config::{Config, ConfigError, FieldLocation, RunConfig, SamplerConfig, Start};
use crate::draws::{Draws, Sinks};
use crate::plan::Plan;
use crate::pooled;
use crate::problem::Problem;
use crate::run::{Progress, RunError, sample};

pub use agree::{Differences, MOST_STANDARD_ERRORS, agree};
pub use cache::{Cache, CacheError, FOLDER};
pub use digest::{digest, rows_digest};

/// The most parameters: every method needs the Hessian, which has as many numbers squared.
pub(crate) const MOST_PARAMETERS: usize = 2000;

/// The step of the long LMC run, in coordinates in which the Hessian is the identity: it widens
/// standard deviations by half a per cent.
pub const LMC_STEP: f64 = 0.02;

/// The long LMC run keeps every so many draws.
const LMC_THIN: u64 = 10;

/// How a reference is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The No-U-Turn sampler of nuts-rs.
    Nuts,
    /// The Metropolis-adjusted Langevin algorithm.
    Mala,
    /// A long run of unadjusted Langevin Monte Carlo: biased by its step.
    Lmc,
}

impl Method {
    /// All methods, the most trusted first.
    pub const ALL: [Method; 3] = [Method::Nuts, Method::Mala, Method::Lmc];

    /// The word that users write.
    pub fn word(self) -> &'static str {
        match self {
            Method::Nuts => "nuts",
            Method::Mala => "mala",
            Method::Lmc => "lmc",
        }
    }

    /// What it is.
    pub fn says(self) -> &'static str {
        match self {
            Method::Nuts => "NUTS",
            Method::Mala => "Metropolis-adjusted",
            Method::Lmc => "long LMC",
        }
    }

    /// How many posterior standard deviations of difference are its bias, and no error: none
    /// without bias.
    pub fn bias(self) -> f64 {
        if self == Method::Lmc { LMC_STEP } else { 0.0 }
    }

    /// How many draws a chain has unless one says otherwise: about equally many effective ones.
    pub fn usual_draws(self) -> usize {
        if self == Method::Nuts { 1000 } else { 4000 }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// How long a reference is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceSettings {
    /// How many chains.
    pub chains: usize,
    /// How many draws each keeps.
    pub draws: usize,
    /// The seed.
    pub seed: u64,
}

/// What the posterior is, by one method.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// How it was made.
    pub method: Method,
    /// How long it is.
    pub settings: ReferenceSettings,
    /// The draws.
    pub draws: Draws,
    /// The share of accepted proposals, where there are any.
    pub acceptance: Option<f64>,
}

impl Reference {
    /// How it was made, in a few words.
    pub fn describe(&self) -> String {
        let accepted = self
            .acceptance
            .map_or_else(String::new, |share| format!(", {:.0}% accepted", 100.0 * share));
        format!("{}{accepted}", self.method.says())
    }
}

/// Why there is no reference.
#[derive(Debug, Error)]
pub enum ReferenceError {
    /// The posterior has no finite covariance at its optimum.
    #[error(
        "the Hessian of the pooled posterior is not positive definite: give the target a Gaussian \
         prior"
    )]
    NotPositive,
    /// Too many parameters.
    #[error(
        "{found} parameters are too many for a reference, which needs their Hessian: use at most \
         {MOST_PARAMETERS}"
    )]
    TooLarge {
        /// How many there are.
        found: usize,
    },
    /// The target does not suit LMC.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The chains failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Refuse what no reference can be made of.
pub fn check(problem: &Problem) -> Result<(), ReferenceError> {
    let found = problem.target.dim();
    if found > MOST_PARAMETERS { Err(ReferenceError::TooLarge { found }) } else { Ok(()) }
}

/// The reference by MALA, from around the optimum.
pub fn mala(
    problem: &Problem,
    optimum: &[f64],
    settings: ReferenceSettings,
) -> Result<Reference, ReferenceError> {
    check(problem)?;
    let found =
        pooled::mala(&problem.target, optimum, settings.chains, settings.draws, settings.seed)
            .ok_or(ReferenceError::NotPositive)?;
    Ok(Reference {
        method: Method::Mala,
        settings,
        draws: found.draws,
        acceptance: Some(found.acceptance),
    })
}

/// The reference by a long run of LMC at a small step, through the samplers' own machinery; and the
/// optimum that its survey found.
#[derive(Debug)]
pub struct LongLmc {
    plan: Plan,
    settings: ReferenceSettings,
}

impl LongLmc {
    /// Survey the target of a config.
    pub fn new(
        config: &Config,
        problem: &Problem,
        settings: ReferenceSettings,
    ) -> Result<LongLmc, ReferenceError> {
        check(problem)?;
        let kept = settings.draws as u64 * LMC_THIN;
        let run = RunConfig {
            chains: Some(settings.chains),
            iterations: Some(kept + kept / 10),
            burn_in: Some(kept / 10),
            thin: Some(LMC_THIN),
            start: Some(Start::Optimum),
            ..config.run.clone()
        };
        let Some(row) = registry::REGISTRY.iter().find(|row| row.name == "lmc") else {
            unreachable!("the registry has lmc")
        };
        let sampler = SamplerConfig {
            row,
            step: Some(Schedule::Constant(LMC_STEP)),
            settings: Settings { precision: Some(Precision::F64), ..Settings::default() },
            weights_by_rows: false,
            participation_probability: None,
            round_deadline: None,
            precondition: Some(true),
            place: FieldLocation { line: config.sampler.place.line, field: "target".into() },
        };
        // Its rows are pooled already: there is nothing to keep.
        let config = Config { sampler, run, draws: None, privacy: None, ..config.clone() };
        Ok(LongLmc { plan: Plan::new(&config, problem)?, settings })
    }

    /// Where the posterior is highest.
    pub fn optimum(&self) -> &[f64] {
        self.plan.findings.as_ref().map_or(&self.plan.start, |found| &found.optimum)
    }

    /// How many iterations all chains take.
    pub fn iterations(&self) -> u64 {
        self.plan.length.total()
    }

    /// Run it.
    pub fn run(&self, progress: &Progress) -> Result<Reference, ReferenceError> {
        let draws =
            sample(&self.plan, &self.plan.length, self.settings.seed, Sinks::Memory, progress)?
                .draws;
        Ok(Reference { method: Method::Lmc, settings: self.settings, draws, acceptance: None })
    }
}

#[cfg(test)]
mod tests;

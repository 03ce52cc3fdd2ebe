//! Hold everything that a run leaves behind, as plain data: what a run directory stores and a report shows.

use crate::draws::Draws;

/// A finished (or interrupted) run.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The version of the program that made it.
    pub version: String,
    /// When it was made, in UTC, such as `2026-01-31T12:00:00Z`. The caller reads the clock.
    pub created: String,
    /// The config as it was resolved, in TOML.
    pub config: String,
    /// The sampler's name and what it does.
    pub sampler: (String, String),
    /// The master seed.
    pub seed: u64,
    /// The first (and largest) step.
    pub step: f64,
    /// Iterations of each chain, and how many of them were not kept.
    pub iterations: u64,
    /// Iterations that were not kept.
    pub burn_in: u64,
    /// Every how many draws one was kept.
    pub thin: u64,
    /// How long sampling took, in seconds.
    pub seconds: f64,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
    /// The parameters' names.
    pub parameters: Vec<String>,
    /// The kept draws.
    pub draws: Draws,
    /// What was recorded beside every draw.
    pub statistics: Vec<Statistic>,
    /// The sites.
    pub sites: Vec<SiteRecord>,
    /// What was sent, by direction and kind.
    pub sent: Vec<SentRecord>,
    /// What the same messages would have cost at 32 bits a coordinate, up and down, in bits.
    pub uncompressed: (u64, u64),
    /// What was sent before sampling (moments and surveys), up and down, in bits.
    pub before_sampling: (u64, u64),
    /// Row gradients that were evaluated.
    pub rows_evaluated: u64,
    /// How the data was encoded, in sentences.
    pub notes: Vec<String>,
    /// What the user should know first.
    pub warnings: Vec<String>,
    /// Draws from pooled data, where they were made.
    pub reference: Option<Draws>,
}

/// One number beside every draw: `values[chain][draw]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistic {
    /// Its name, such as `lp` (minus the potential over the temperature), `bits_up` or `participants`.
    pub name: String,
    /// Its values, chain by chain.
    pub values: Vec<Vec<f64>>,
}

/// One site's part.
#[derive(Clone, Debug, PartialEq)]
pub struct SiteRecord {
    /// Its name.
    pub name: String,
    /// How many rows it has.
    pub rows: u64,
    /// What it sent and received, in bits.
    pub bits: (u64, u64),
}

/// What was sent of one kind in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct SentRecord {
    /// `up` or `down`.
    pub direction: String,
    /// `gradient`, `parameter`, `reference`, `control`, `survey` or `header`.
    pub kind: String,
    /// How many bits.
    pub bits: u64,
    /// In how many vectors.
    pub vectors: u64,
}

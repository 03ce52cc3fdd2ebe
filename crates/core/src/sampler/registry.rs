//! Define the rows of samplers and families, and find them by name; `rows.rs` in each family's
//! folder has its own, and [`Recipe`] lists the families.

pub use super::recipe::{FAMILIES, REGISTRY};
pub use super::release::DP_RELEASE;

use super::{
    Anchor, Average, Batch, NoiseScale, NoiseSource, Participation, Recipe, Synchronise, Weighting,
    metropolis, uplink,
};
use crate::compress::{CodeChoice, Compressor, Precision};
use crate::privacy::Once;
use crate::step::Schedule;
use crate::survey::Trial;

/// One family of samplers: a way to share the work between the clients and the server. Its
/// [`super::Family`] says what a sampler of it does.
#[derive(Debug)]
pub struct FamilyRow {
    /// What it is called.
    pub name: &'static str,
    /// What goes where, in one line.
    pub says: &'static str,
    /// How one of its rows becomes a recipe.
    pub recipe: fn(&Row, &Ingredients<'_>) -> Recipe,
    /// Whether the server of one of its rows can apply a prior.
    pub server_applies_prior: fn(&Row) -> bool,
    /// Whether its samplers need coordinates in which the posterior is round.
    pub needs_shape: bool,
    /// Whether its clients answer twice, whatever the length of the chain, and need a budget.
    pub asks_twice: bool,
    /// By which pilot the step of one of its rows is found, where that takes one.
    pub tuned: fn(&Row) -> Option<Trial>,
    /// Why none of its samplers has a setting, where there is a reason to tell.
    pub why_not: fn(Axis) -> Option<&'static str>,
}

/// A setting that a sampler may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// How many rows a gradient estimate uses.
    Batch,
    /// Every how many rounds the reference point of the control variates moves.
    RefreshEvery,
    /// With which probability it moves in an iteration.
    RefreshProbability,
    /// How fast the memory follows.
    Memory,
    /// Who takes part in a round, and what an answer counts for.
    Participation,
    /// When the clients synchronise.
    Synchronise,
    /// The correlation of the clients' noise.
    Correlation,
    /// The clients' weights in the mean.
    Weights,
    /// Who is averaged, and what the private noise is scaled for.
    Average,
    /// How loosely clients are tied to the server's parameter.
    Tether,
    /// How clients compress what they send.
    Compress,
    /// How the server compresses what it sends.
    CompressDown,
    /// How often gradients are sent in full.
    Restart,
    /// How many proposals an exchange asks about.
    Block,
    /// How many leapfrog steps a proposal takes.
    Leapfrog,
    /// To which norm the server shortens longer gradients.
    Clip,
    /// How much noise clients add to differences of potentials.
    PotentialNoise,
}

/// What clients remember of what they sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feedback {
    /// Nothing.
    None,
    /// A memory from 0, if a rate is set.
    Optional,
    /// A memory from 0, at the largest rate that the compressor allows unless another is set:
    /// DIANA.
    Diana,
    /// A memory from the first gradient, at rate 1: EF21.
    ErrorFeedback,
    /// The last gradient: MARINA.
    Differences,
}

/// One sampler.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in configs.
    pub name: &'static str,
    /// Which family it belongs to.
    pub family: &'static FamilyRow,
    /// Where it is published.
    pub paper: &'static str,
    /// What it does, in one line.
    pub says: &'static str,
    /// Which settings it has beside the step.
    pub axes: &'static [Axis],
    /// Whether it needs `x*`, which is found by a survey before sampling.
    pub needs_optimum: bool,
    /// What clients remember (family A).
    pub feedback: Feedback,
    /// Where the noise comes from (family A).
    pub noise: NoiseSource,
    /// Whether it goes beyond the papers: a combination that they name or leave open.
    pub beyond: bool,
}

/// What most rows have in common; a family adds itself.
pub(super) const PLAIN: Row = Row {
    name: "",
    family: &uplink::FAMILY,
    paper: "",
    says: "",
    axes: &[],
    needs_optimum: false,
    feedback: Feedback::None,
    noise: NoiseSource::Server,
    beyond: false,
};

/// The sampler that is none yet: surveys choose one.
pub static AUTO: Row = Row {
    name: "auto",
    family: &metropolis::FAMILY,
    says: "whichever exact sampler is cheapest on this posterior, by a survey and a pilot",
    axes: &[Axis::Block],
    beyond: true,
    ..PLAIN
};

/// The row of a name.
pub fn find(name: &str) -> Option<&'static Row> {
    all().find(|row| row.name == name)
}

/// Every name that people may write. Two are not in [`REGISTRY`], since they do not run on any
/// target: one that is no sampler yet, one that needs the rows of a regression and a budget.
pub fn all() -> impl Iterator<Item = &'static Row> + Clone {
    [&AUTO].into_iter().chain(REGISTRY).chain([&DP_RELEASE])
}

/// What a user may set. `None` means the sampler's own default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// How many rows a gradient estimate uses; default all.
    pub batch: Option<Batch>,
    /// Every how many rounds the reference point moves (family A); default 100.
    pub refresh_every: Option<u64>,
    /// With which probability the reference point moves (family B); default that of
    /// synchronisation.
    pub refresh_probability: Option<f64>,
    /// The memory rate; default none.
    pub memory_rate: Option<f64>,
    /// Who takes part; default everybody.
    pub participation: Option<Participation>,
    /// What an answer counts for; default `1/p`.
    pub weighting: Option<Weighting>,
    /// When clients synchronise; default with probability 1/10, `fa-ld` and `dg-lmc`: every 10
    /// iterations.
    pub synchronise: Option<Synchronise>,
    /// The correlation `rho` of the clients' noise; default 0.
    pub correlation: Option<f64>,
    /// The clients' weights `p_c`; default equal.
    pub weights: Option<Vec<f64>>,
    /// Who is averaged; default all.
    pub average: Option<Average>,
    /// What the private noise is scaled for; default as published.
    pub noise: Option<NoiseScale>,
    /// How loosely clients are tied to the server's parameter, in units of their own step; default
    /// as many as they take between synchronisations.
    pub tether: Option<f64>,
    /// How vectors cross the wire; default 32 bits.
    pub precision: Option<Precision>,
    /// How clients compress, all alike or each in its own way; default `qsgd(16)`, with error
    /// feedback `scaled(qsgd(16))`, in family B not at all.
    pub compress: Option<Vec<Compressor>>,
    /// How the server compresses; default `scaled(qsgd(16))`.
    pub compress_down: Option<Compressor>,
    /// How compressed vectors are written; default the shortest code.
    pub code: Option<CodeChoice>,
    /// With which probability gradients are sent in full; default 1/10.
    pub restart: Option<f64>,
    /// How many proposals an exchange asks about; default 4096.
    pub block: Option<u64>,
    /// How many leapfrog steps a proposal takes; default what a pilot finds.
    pub leapfrog: Option<u32>,
    /// To which norm the server shortens longer gradients; default none.
    pub clip: Option<f64>,
    /// The standard deviation of a client's own noise on differences of potentials, for points that
    /// are 1 apart; default none.
    pub potential_noise: Option<f64>,
    /// The law of proposals ([`crate::proposal::Proposal::parts`]), which surveys find.
    pub proposal: Option<Vec<f64>>,
    /// What is released once, by the budget.
    pub once: Option<Once>,
    /// Whether draws are wanted where the noise of what is released prevails.
    pub weak: bool,
    /// By which share rounding may heat a private chain; `None`: by any.
    pub most_heat: Option<f64>,
}

impl Settings {
    /// The axes that are set, with the names of their settings.
    pub fn set(&self) -> Vec<(Axis, &'static str)> {
        let mut set = Vec::new();
        let mut note = |is_set: bool, axis, name| {
            if is_set {
                set.push((axis, name));
            }
        };
        note(self.batch.is_some(), Axis::Batch, "batch");
        note(self.refresh_every.is_some(), Axis::RefreshEvery, "refresh");
        note(self.refresh_probability.is_some(), Axis::RefreshProbability, "refresh");
        note(self.memory_rate.is_some(), Axis::Memory, "memory");
        note(self.participation.is_some(), Axis::Participation, "participation");
        note(self.weighting.is_some(), Axis::Participation, "weighting");
        note(self.synchronise.is_some(), Axis::Synchronise, "synchronise");
        note(self.correlation.is_some(), Axis::Correlation, "correlation");
        note(self.weights.is_some(), Axis::Weights, "weights");
        note(self.average.is_some(), Axis::Average, "average");
        note(self.noise.is_some(), Axis::Average, "noise");
        note(self.tether.is_some(), Axis::Tether, "tether");
        note(self.compress.is_some(), Axis::Compress, "compress");
        note(self.compress_down.is_some(), Axis::CompressDown, "compress_down");
        note(self.restart.is_some(), Axis::Restart, "restart");
        note(self.block.is_some(), Axis::Block, "block");
        note(self.leapfrog.is_some(), Axis::Leapfrog, "leapfrog");
        note(self.clip.is_some(), Axis::Clip, "clip");
        note(self.potential_noise.is_some(), Axis::PotentialNoise, "potential_noise");
        set
    }
}

impl Row {
    /// Whether it has a setting.
    pub fn has(&self, axis: Axis) -> bool {
        self.axes.contains(&axis)
    }

    /// Whether a sampler is still to be chosen.
    pub fn is_auto(&self) -> bool {
        self.name == AUTO.name
    }

    /// Whether it has a step.
    pub fn has_step(&self) -> bool {
        !self.has(Axis::Block) && !self.family.asks_twice
    }

    /// Whether its server can apply a prior; else the clients share it.
    pub fn server_applies_prior(&self) -> bool {
        (self.family.server_applies_prior)(self)
    }

    /// The recipe of this sampler with a step (on the scale of `U`) and settings. A sampler that
    /// needs the optimum gets it as `anchor`.
    pub fn recipe(
        &self,
        step: Schedule,
        settings: &Settings,
        clients: usize,
        dim: usize,
        anchor: Option<Anchor>,
    ) -> Recipe {
        (self.family.recipe)(self, &Ingredients { step, settings, clients, dim, anchor })
    }
}

/// What a row becomes a recipe with.
#[derive(Clone, Debug)]
pub struct Ingredients<'a> {
    /// The step, on the scale of `U`.
    pub step: Schedule,
    /// What the user has set.
    pub settings: &'a Settings,
    /// How many clients there are.
    pub clients: usize,
    /// How many parameters there are.
    pub dim: usize,
    /// The optimum, for samplers that need it.
    pub anchor: Option<Anchor>,
}

impl Ingredients<'_> {
    /// How many rows a gradient estimate uses.
    pub(super) fn batch(&self) -> Batch {
        self.settings.batch.clone().unwrap_or(Batch::Full)
    }

    /// How numbers cross the wire.
    pub(super) fn precision(&self) -> Precision {
        self.settings.precision.unwrap_or(Precision::F32)
    }

    /// How compressed vectors are written.
    pub(super) fn code(&self) -> CodeChoice {
        self.settings.code.unwrap_or(CodeChoice::Auto)
    }

    /// The largest rate at which a memory may follow what a compressor sends.
    pub(super) fn largest_rate(&self, compressor: &Compressor) -> f64 {
        1.0 / (1.0 + compressor.omega(self.dim).unwrap_or(0.0))
    }
}

//! List every sampler: one row a name.

use super::participation::{Participation, Weighting};
use super::recipe::{Anchor, Average, Batch, Local, NoiseScale, Oracle, Recipe, Synchronise, Uplink};
use crate::protocol::Precision;
use crate::step::Schedule;

/// The two ways to share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A: gradients go up, one step a round.
    Uplink,
    /// B: clients walk on their own, parameters go up.
    Local,
}

/// A setting that a sampler may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// How many rows a gradient estimate uses.
    Batch,
    /// How often the reference point of the control variates moves.
    Refresh,
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
}

/// One sampler.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in configs.
    pub name: &'static str,
    /// Which family it belongs to.
    pub family: Family,
    /// Where it is published.
    pub paper: &'static str,
    /// What it does, in one line.
    pub says: &'static str,
    /// Which settings it has beside the step.
    pub axes: &'static [Axis],
    /// Whether it needs `x*`, which is found by a survey before sampling.
    pub needs_optimum: bool,
}

/// Every sampler, in the order in which they are listed.
pub const REGISTRY: &[Row] = &[
    Row {
        name: "lmc",
        family: Family::Uplink,
        paper: "Karagulyan and Richtarik 2025, eq. 2",
        says: "Langevin Monte Carlo with full gradients",
        axes: &[Axis::Participation],
        needs_optimum: false,
    },
    Row {
        name: "sgld",
        family: Family::Uplink,
        paper: "Vono et al. 2022, eq. 3",
        says: "minibatch gradients, no control variates: biased when the rows differ",
        axes: &[Axis::Batch, Axis::Participation],
        needs_optimum: false,
    },
    Row {
        name: "lsd*",
        family: Family::Uplink,
        paper: "Vono et al. 2022, Alg. S2",
        says: "minibatch gradients with control variates at the optimum",
        axes: &[Axis::Batch, Axis::Participation],
        needs_optimum: true,
    },
    Row {
        name: "lsd++",
        family: Family::Uplink,
        paper: "Vono et al. 2022, Alg. S3",
        says: "minibatch gradients with control variates that are renewed every so many rounds, and a memory",
        axes: &[Axis::Batch, Axis::Refresh, Axis::Memory, Axis::Participation],
        needs_optimum: false,
    },
    Row {
        name: "fald",
        family: Family::Local,
        paper: "Plassier et al. 2023, Alg. 2",
        says: "local Langevin steps, averaged at random times",
        axes: &[Axis::Batch, Axis::Synchronise, Axis::Correlation],
        needs_optimum: false,
    },
    Row {
        name: "vr-fald*",
        family: Family::Local,
        paper: "Plassier et al. 2023, Alg. 3",
        says: "FALD with control variates: local drift corrected by the global gradient at a reference point",
        axes: &[Axis::Batch, Axis::Synchronise, Axis::Correlation, Axis::Refresh],
        needs_optimum: false,
    },
    Row {
        name: "fa-ld",
        family: Family::Local,
        paper: "Deng et al. 2021, Alg. 1",
        says: "local Langevin steps, averaged every K of them, with weights and partial participation",
        axes: &[Axis::Batch, Axis::Synchronise, Axis::Correlation, Axis::Weights, Axis::Average],
        needs_optimum: false,
    },
];

/// The row of a name.
pub fn find(name: &str) -> Option<&'static Row> {
    REGISTRY.iter().find(|row| row.name == name)
}

/// What a user may set. `None` means the sampler's own default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// How many rows a gradient estimate uses; default all.
    pub batch: Option<Batch>,
    /// Every how many rounds the reference point moves (family A); default 100.
    pub refresh_every: Option<u64>,
    /// With which probability the reference point moves (family B); default that of synchronisation.
    pub refresh_probability: Option<f64>,
    /// The memory rate; default none.
    pub memory_rate: Option<f64>,
    /// Who takes part; default everybody.
    pub participation: Option<Participation>,
    /// What an answer counts for; default `1/p`.
    pub weighting: Option<Weighting>,
    /// When clients synchronise; default with probability 1/10, `fa-ld`: every 10 iterations.
    pub synchronise: Option<Synchronise>,
    /// The correlation `rho` of the clients' noise; default 0.
    pub correlation: Option<f64>,
    /// The clients' weights `p_c`; default equal.
    pub weights: Option<Vec<f64>>,
    /// Who is averaged; default all.
    pub average: Option<Average>,
    /// What the private noise is scaled for; default as published.
    pub noise: Option<NoiseScale>,
    /// How vectors cross the wire; default 32 bits.
    pub precision: Option<Precision>,
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
        note(self.refresh_every.is_some(), Axis::Refresh, "refresh");
        note(self.refresh_probability.is_some(), Axis::Refresh, "refresh");
        note(self.memory_rate.is_some(), Axis::Memory, "memory");
        note(self.participation.is_some(), Axis::Participation, "participation");
        note(self.weighting.is_some(), Axis::Participation, "weighting");
        note(self.synchronise.is_some(), Axis::Synchronise, "synchronise");
        note(self.correlation.is_some(), Axis::Correlation, "correlation");
        note(self.weights.is_some(), Axis::Weights, "weights");
        note(self.average.is_some(), Axis::Average, "average");
        note(self.noise.is_some(), Axis::Average, "noise");
        set
    }
}

impl Row {
    /// The recipe of this sampler with a step (on the scale of `U`) and settings. A sampler that needs the optimum gets it as `anchor`.
    pub fn recipe(&self, step: Schedule, settings: &Settings, clients: usize, anchor: Option<Anchor>) -> Recipe {
        let has = |axis| self.axes.contains(&axis);
        let batch = settings.batch.clone().unwrap_or(Batch::Full);
        let precision = settings.precision.unwrap_or(Precision::F32);
        match self.family {
            Family::Uplink => {
                let oracle = match anchor {
                    Some(anchor) if self.needs_optimum => Oracle::FixedPoint(anchor),
                    _ if has(Axis::Refresh) => Oracle::Svrg { every: settings.refresh_every.unwrap_or(100) },
                    _ => Oracle::Plain,
                };
                Recipe::Uplink(Uplink {
                    step,
                    oracle,
                    batch,
                    memory_rate: settings.memory_rate,
                    participation: settings.participation.clone().unwrap_or(Participation::All),
                    weighting: settings.weighting.unwrap_or(Weighting::InverseProbability),
                    precision,
                })
            }
            Family::Local => {
                let default = if has(Axis::Average) { Synchronise::Every(10) } else { Synchronise::Randomly(0.1) };
                let synchronise = settings.synchronise.unwrap_or(default);
                let rate = match synchronise {
                    Synchronise::Every(every) => 1.0 / every as f64,
                    Synchronise::Randomly(p) => p,
                };
                Recipe::Local(Local {
                    step,
                    weights: settings.weights.clone().unwrap_or_else(|| vec![1.0 / clients as f64; clients]),
                    correlation: settings.correlation.unwrap_or(0.0),
                    synchronise,
                    average: settings.average.unwrap_or(Average::All),
                    noise: settings.noise.unwrap_or(NoiseScale::Everybody),
                    refresh: has(Axis::Refresh).then(|| settings.refresh_probability.unwrap_or(rate)),
                    batch,
                    precision,
                })
            }
        }
    }
}

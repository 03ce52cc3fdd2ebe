//! Describe a sampler by its axes; the papers' names are constructors.

use super::participation::{Participation, Weighting};
use crate::protocol::Precision;
use crate::step::Schedule;

/// A sampler of either family.
#[derive(Clone, Debug, PartialEq)]
pub enum Recipe {
    /// Gradients go up, one step a round.
    Uplink(Uplink),
    /// Clients walk on their own, parameters go up.
    Local(Local),
}

/// Family A.
#[derive(Clone, Debug, PartialEq)]
pub struct Uplink {
    /// The server's step `gamma`.
    pub step: Schedule,
    /// How a client estimates its gradient.
    pub oracle: Oracle,
    /// How many rows an estimate uses.
    pub batch: Batch,
    /// `alpha`: how fast the memory follows; `None`: no memory.
    pub memory_rate: Option<f64>,
    /// Who takes part.
    pub participation: Participation,
    /// What an answer counts for.
    pub weighting: Weighting,
    /// How vectors cross the wire.
    pub precision: Precision,
}

/// How a client of family A estimates its gradient.
#[derive(Clone, Debug, PartialEq)]
pub enum Oracle {
    /// `(N/n) sum_{j in S} grad U_ij(x)`; with all rows the full gradient.
    Plain,
    /// `(N/n) sum_{j in S} [grad U_ij(x) - grad U_ij(x*)]`.
    FixedPoint(Anchor),
    /// `(N/n) sum_{j in S} [grad U_ij(x) - grad U_ij(z)] + grad U_i(z)`, with `z` the parameter at the last multiple of `every`.
    Svrg {
        /// `l`: how many rounds a reference point lasts.
        every: u64,
    },
}

/// The fixed point of the control variates, and what the clients' gradients sum to there.
#[derive(Clone, Debug, PartialEq)]
pub struct Anchor {
    /// `x*`, as the wire carries it.
    pub point: Vec<f64>,
    /// `sum_i grad U_i(x*)`, with the clients' shares of the prior: zero, or minus the server's prior gradient, if `x*` were exact.
    pub residual: Vec<f64>,
}

/// How many of its rows a client uses at a time.
#[derive(Clone, Debug, PartialEq)]
pub enum Batch {
    /// All.
    Full,
    /// So many, or all where a client has fewer.
    Rows(usize),
    /// This fraction, rounded down, at least one.
    Fraction(f64),
}

impl Batch {
    /// The batch of a client with so many rows.
    pub fn of(&self, rows: usize) -> usize {
        match *self {
            Batch::Full => rows,
            Batch::Rows(n) => n.clamp(1, rows),
            Batch::Fraction(f) => ((f * rows as f64) as usize).clamp(1, rows),
        }
    }
}

/// Family B.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// The step `eta`, on the scale of `U`.
    pub step: Schedule,
    /// `p_c`: the clients' weights in the mean; they sum to 1.
    pub weights: Vec<f64>,
    /// `rho`: the correlation of the clients' noise.
    pub correlation: f64,
    /// When the clients synchronise.
    pub synchronise: Synchronise,
    /// Who is averaged.
    pub average: Average,
    /// What the private noise is scaled for.
    pub noise: NoiseScale,
    /// `q`: the probability that the reference point of the control variates moves; `None`: no control variates.
    pub refresh: Option<f64>,
    /// How many rows a local step uses.
    pub batch: Batch,
    /// How vectors cross the wire.
    pub precision: Precision,
}

/// When the clients of family B synchronise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Synchronise {
    /// After every so many iterations: FA-LD's `K`.
    Every(u64),
    /// After an iteration with this probability, one coin for all: FALD's `p_c`.
    Randomly(f64),
}

/// Who is averaged when the clients of family B synchronise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// All, with weights `p_c`.
    All,
    /// Scheme I: so many draws with replacement, client `c` with probability `p_c`; their mean.
    WithReplacement(usize),
    /// Scheme II: so many clients, uniformly without replacement; their mean. Only for equal weights.
    WithoutReplacement(usize),
}

/// What the private noise of family B is scaled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseScale {
    /// The mean of all clients, as published. The mean of `S` of `N` clients then carries about `N/S` times too much.
    Everybody,
    /// The mean of those who are averaged, which then carries noise of variance `2 eta T`.
    Participants,
}

impl NoiseScale {
    /// The factor on the private variance `(1 - rho^2) / p_c` that makes it so.
    ///
    /// The mean's private variance is `sum_c E[w_c^2] / p_c` with `w` the random weights: `N/S` in scheme II, and `(N + S - 1)/S` in scheme I, where
    /// a client drawn twice adds the same noise twice.
    pub fn factor(self, average: Average, clients: usize) -> f64 {
        let n = clients as f64;
        match (self, average) {
            (NoiseScale::Everybody, _) | (_, Average::All) => 1.0,
            (NoiseScale::Participants, Average::WithoutReplacement(s)) => s as f64 / n,
            (NoiseScale::Participants, Average::WithReplacement(s)) => s as f64 / (n + s as f64 - 1.0),
        }
    }
}

impl Uplink {
    /// LMC (ULA): full gradients. ELF eq. 2.
    pub fn lmc(step: Schedule) -> Self {
        Uplink {
            step,
            oracle: Oracle::Plain,
            batch: Batch::Full,
            memory_rate: None,
            participation: Participation::All,
            weighting: Weighting::InverseProbability,
            precision: Precision::F32,
        }
    }

    /// Federated SGLD: minibatch gradients. QLSD eq. 3.
    pub fn sgld(step: Schedule, batch: Batch) -> Self {
        Uplink { batch, ..Uplink::lmc(step) }
    }

    /// LSD*: control variates at the optimum. QLSD Alg. S2.
    pub fn lsd_star(step: Schedule, batch: Batch, anchor: Anchor) -> Self {
        Uplink { oracle: Oracle::FixedPoint(anchor), ..Uplink::sgld(step, batch) }
    }

    /// LSD++: control variates at a point that moves every `every` rounds, and memory. QLSD Alg. S3.
    pub fn lsd_plus_plus(step: Schedule, batch: Batch, every: u64, memory_rate: Option<f64>) -> Self {
        Uplink { oracle: Oracle::Svrg { every }, memory_rate, ..Uplink::sgld(step, batch) }
    }
}

impl Local {
    /// FA-LD: `every` local steps, weights `p_c`, correlation `rho`. Deng et al. 2021.
    pub fn fa_ld(eta: Schedule, weights: Vec<f64>, every: u64, rho: f64, batch: Batch) -> Self {
        Local {
            step: eta,
            weights,
            correlation: rho,
            synchronise: Synchronise::Every(every),
            average: Average::All,
            noise: NoiseScale::Everybody,
            refresh: None,
            batch,
            precision: Precision::F32,
        }
    }

    /// FALD in its own letters: `X^i - gamma grad U^i`, mean over `clients`, noise shared with weight `shared_fraction` (its tau), synchronised with
    /// probability `p`. In ours `eta = gamma / b` and `rho^2 = tau`. Plassier et al. 2023.
    pub fn fald(gamma: Schedule, clients: usize, shared_fraction: f64, p: f64, batch: Batch) -> Self {
        let b = clients as f64;
        Local {
            synchronise: Synchronise::Randomly(p),
            ..Local::fa_ld(gamma.scaled(1.0 / b), vec![1.0 / b; clients], 1, shared_fraction.sqrt(), batch)
        }
    }

    /// VR-FALD*: FALD with control variates at a reference point that moves with probability `q`.
    pub fn vr_fald_star(gamma: Schedule, clients: usize, shared_fraction: f64, p: f64, q: f64, batch: Batch) -> Self {
        Local { refresh: Some(q), ..Local::fald(gamma, clients, shared_fraction, p, batch) }
    }
}

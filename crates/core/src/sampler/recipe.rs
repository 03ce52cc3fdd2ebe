//! Describe a sampler by its axes; the papers' names are constructors.

use super::participation::{Participation, Weighting};
use crate::compress::{Channel, CodeChoice, Compressor, Precision};
use crate::error::DataError;
use crate::step::Schedule;
use crate::target::Target;

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
    /// How the memory starts and moves.
    pub memory_rule: MemoryRule,
    /// How clients compress what they send: not at all, all alike, or each in its own way.
    pub up: Vec<Compressor>,
    /// How the server compresses the increments of the parameter; `None`: it sends the parameter.
    pub down: Option<Compressor>,
    /// How compressed vectors are written.
    pub code: CodeChoice,
    /// Where the Langevin noise comes from.
    pub noise: NoiseSource,
    /// Who takes part.
    pub participation: Participation,
    /// What an answer counts for.
    pub weighting: Weighting,
    /// How vectors cross the wire.
    pub precision: Precision,
}

/// How a client's memory starts and moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MemoryRule {
    /// From 0: QLSD++ (QLSD Alg. 2), DIANA.
    FromZero,
    /// From the first gradient, sent in full: EF21 (ELF Alg. 1 and 3). Where nothing is lost and
    /// everybody takes part it changes nothing, and is left out.
    FromGradient,
    /// It is the last gradient; with this probability all start anew from a gradient sent in full:
    /// MARINA (Gorbunov et al. 2021).
    Marina {
        /// The probability.
        restart: f64,
    },
}

/// Where family A's Langevin noise comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseSource {
    /// The server draws it.
    Server,
    /// It is the error of the clients' compression, which is exactly Gaussian (Hegazy et al. 2024):
    /// the server draws none.
    Compression,
}

/// How a client of family A estimates its gradient.
#[derive(Clone, Debug, PartialEq)]
pub enum Oracle {
    /// `(N/n) sum_{j in S} grad U_ij(x)`; with all rows the full gradient.
    Plain,
    /// `(N/n) sum_{j in S} [grad U_ij(x) - grad U_ij(x*)]`.
    FixedPoint(Anchor),
    /// `(N/n) sum_{j in S} [grad U_ij(x) - grad U_ij(z)] + grad U_i(z)`, with `z` the parameter at
    /// the last multiple of `every`.
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
    /// `sum_i grad U_i(x*)`, with the clients' shares of the prior: zero, or minus the server's
    /// prior gradient, if `x*` were exact.
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
            // A few roundings more than was written: 0.29 times 100 is 28.999999999999996.
            Batch::Fraction(f) => {
                ((f * rows as f64 * (1.0 + 4.0 * f64::EPSILON)) as usize).clamp(1, rows)
            }
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
    /// `q`: the probability that the reference point of the control variates moves; `None`: no
    /// control variates.
    pub refresh: Option<f64>,
    /// `rho_c` in units of the client's own step `eta / p_c`: how loosely clients are tied to the
    /// server's parameter, which is drawn given theirs in place of their mean (DG-LMC); `None`:
    /// clients are averaged.
    pub tether: Option<f64>,
    /// How many rows a local step uses.
    pub batch: Batch,
    /// How clients compress the difference between their parameter and a memory of it, and how fast
    /// that memory follows; `None`: they send the parameter.
    pub up: Option<(Compressor, f64)>,
    /// How compressed vectors are written.
    pub code: CodeChoice,
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

impl Synchronise {
    /// How often an iteration, on average.
    pub fn rate(self) -> f64 {
        match self {
            Synchronise::Every(every) => 1.0 / every as f64,
            Synchronise::Randomly(p) => p,
        }
    }
}

/// Who is averaged when the clients of family B synchronise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// All, with weights `p_c`.
    All,
    /// Scheme I: so many draws with replacement, client `c` with probability `p_c`; their mean.
    WithReplacement(usize),
    /// Scheme II: so many clients, uniformly without replacement; their mean. Only for equal
    /// weights.
    WithoutReplacement(usize),
}

/// A channel, or why there is none.
pub(super) fn channel(
    compressor: Compressor,
    code: CodeChoice,
    dim: usize,
) -> Result<Channel, DataError> {
    Channel::new(compressor, code, dim).map_err(|e| DataError::Compressor {
        compressor: compressor.to_string(),
        problem: e.to_string(),
    })
}

/// What the private noise of family B is scaled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoiseScale {
    /// The mean of all clients, as published. The mean of `S` of `N` clients then carries about
    /// `N/S` times too much.
    Everybody,
    /// The mean of those who are averaged, which then carries noise of variance `2 eta T`.
    Participants,
}

impl NoiseScale {
    /// The factor on the private variance `(1 - rho^2) / p_c` that makes it so.
    ///
    /// The mean's private variance is `sum_c E[w_c^2] / p_c` with `w` the random weights: `N/S` in
    /// scheme II, and `(N + S - 1)/S` in scheme I, where a client drawn twice adds the same noise
    /// twice.
    pub fn factor(self, average: Average, clients: usize) -> f64 {
        let n = clients as f64;
        match (self, average) {
            (NoiseScale::Everybody, _) | (_, Average::All) => 1.0,
            (NoiseScale::Participants, Average::WithoutReplacement(s)) => s as f64 / n,
            (NoiseScale::Participants, Average::WithReplacement(s)) => {
                s as f64 / (n + s as f64 - 1.0)
            }
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
            memory_rule: MemoryRule::FromZero,
            up: Vec::new(),
            down: None,
            code: CodeChoice::Auto,
            noise: NoiseSource::Server,
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

    /// LSD++: control variates at a point that moves every `every` rounds, and memory. QLSD Alg.
    /// S3.
    pub fn lsd_plus_plus(
        step: Schedule,
        batch: Batch,
        every: u64,
        memory_rate: Option<f64>,
    ) -> Self {
        Uplink { oracle: Oracle::Svrg { every }, memory_rate, ..Uplink::sgld(step, batch) }
    }
}

impl Uplink {
    /// QLSD (and, with minibatches, QLSD#): compressed gradients. QLSD Alg. 1.
    pub fn qlsd(step: Schedule, batch: Batch, up: Compressor) -> Self {
        Uplink { up: vec![up], ..Uplink::sgld(step, batch) }
    }

    /// QLSD*: control variates at the optimum, compressed. QLSD Alg. S1.
    pub fn qlsd_star(step: Schedule, batch: Batch, anchor: Anchor, up: Compressor) -> Self {
        Uplink { up: vec![up], ..Uplink::lsd_star(step, batch, anchor) }
    }

    /// QLSD++: control variates that are renewed, and compressed differences to a memory. QLSD Alg.
    /// 2.
    pub fn qlsd_plus_plus(
        step: Schedule,
        batch: Batch,
        every: u64,
        memory_rate: Option<f64>,
        up: Compressor,
    ) -> Self {
        Uplink { up: vec![up], ..Uplink::lsd_plus_plus(step, batch, every, memory_rate) }
    }

    /// D-ELF: contractive compression of gradients with error feedback (EF21). ELF Alg. 1.
    pub fn d_elf(step: Schedule, up: Compressor) -> Self {
        Uplink {
            up: vec![up],
            memory_rate: Some(1.0),
            memory_rule: MemoryRule::FromGradient,
            ..Uplink::lmc(step)
        }
    }

    /// P-ELF: contractive compression of the parameter's increments (EF21-P). ELF Alg. 2.
    pub fn p_elf(step: Schedule, down: Compressor) -> Self {
        Uplink { down: Some(down), ..Uplink::lmc(step) }
    }

    /// B-ELF: both. ELF Alg. 3.
    pub fn b_elf(step: Schedule, up: Compressor, down: Compressor) -> Self {
        Uplink { down: Some(down), ..Uplink::d_elf(step, up) }
    }

    /// Langevin-MARINA: compressed differences of successive gradients, started anew with
    /// probability `restart`.
    pub fn marina(step: Schedule, restart: f64, up: Compressor) -> Self {
        Uplink {
            up: vec![up],
            memory_rate: Some(1.0),
            memory_rule: MemoryRule::Marina { restart },
            ..Uplink::lmc(step)
        }
    }

    /// QLSD* whose compression error is the Langevin noise: Hegazy et al. 2024.
    pub fn qlsd_star_exact_error(step: Schedule, batch: Batch, anchor: Anchor) -> Self {
        Uplink { noise: NoiseSource::Compression, ..Uplink::lsd_star(step, batch, anchor) }
    }

    /// The compressor of one client; `None`: it sends vectors as they are.
    pub fn compressor(
        &self,
        client: usize,
        clients: usize,
        temperature: f64,
    ) -> Option<Compressor> {
        if self.noise == NoiseSource::Compression {
            return Some(Compressor::layered(crate::step::error_for_noise(
                self.step.largest(),
                temperature,
                clients,
            )));
        }
        let given = if self.up.len() == 1 { self.up.first() } else { self.up.get(client) };
        given.copied().filter(|c| crate::protocol::plain_precision(*c).is_none())
    }

    /// How one client's answers are compressed and written.
    pub fn up_channel(&self, client: usize, target: &Target) -> Result<Option<Channel>, DataError> {
        self.compressor(client, target.clients.len(), target.temperature)
            .map(|c| channel(c, self.code, target.dim()))
            .transpose()
    }

    /// How the parameter's increments are compressed and written.
    pub fn down_channel(&self, dim: usize) -> Result<Option<Channel>, DataError> {
        let lossy = self.down.filter(|c| crate::protocol::plain_precision(*c).is_none());
        lossy.map(|c| channel(c, self.code, dim)).transpose()
    }

    /// The memory rate, unless the memory changes nothing: where it starts from the gradient,
    /// nothing is lost, and everybody takes part.
    pub fn effective_memory(&self) -> Option<f64> {
        let lossless = self.up.iter().all(|c| crate::protocol::plain_precision(*c).is_some());
        let idle = self.memory_rule != MemoryRule::FromZero
            && lossless
            && self.participation == Participation::All;
        self.memory_rate.filter(|_| !idle)
    }

    /// The precision of vectors that are sent as they are.
    pub fn plain(&self) -> Precision {
        self.up.first().and_then(|c| crate::protocol::plain_precision(*c)).unwrap_or(self.precision)
    }
}

impl Local {
    /// How fast the memory of the clients' parameters follows, where they are compressed.
    pub fn memory_rate(&self) -> Option<f64> {
        self.up
            .filter(|(c, _)| crate::protocol::plain_precision(*c).is_none())
            .map(|(_, rate)| rate)
    }

    /// How clients' parameters are compressed and written.
    pub fn up_channel(&self, dim: usize) -> Result<Option<Channel>, DataError> {
        let lossy = self.up.filter(|(c, _)| crate::protocol::plain_precision(*c).is_none());
        lossy.map(|(c, _)| channel(c, self.code, dim)).transpose()
    }

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
            tether: None,
            batch,
            up: None,
            code: CodeChoice::Auto,
            precision: Precision::F32,
        }
    }

    /// FALD in its own letters: `X^i - gamma grad U^i`, mean over `clients`, noise shared with
    /// weight `shared_fraction` (its tau), synchronised with probability `p`. In ours
    /// `eta = gamma / b` and `rho^2 = tau`. Plassier et al. 2023.
    pub fn fald(
        gamma: Schedule,
        clients: usize,
        shared_fraction: f64,
        p: f64,
        batch: Batch,
    ) -> Self {
        let b = clients as f64;
        Local {
            synchronise: Synchronise::Randomly(p),
            ..Local::fa_ld(
                gamma.scaled(1.0 / b),
                vec![1.0 / b; clients],
                1,
                shared_fraction.sqrt(),
                batch,
            )
        }
    }

    /// DG-LMC, with minibatches DG-SGLD: `every` local steps tied to the server's parameter, which
    /// is then drawn given the clients'. Plassier et al. 2021, Alg. 1. A client's step is
    /// `eta / p_c`, and `rho_c` is `tether` times that.
    pub fn dg_lmc(eta: Schedule, weights: Vec<f64>, every: u64, tether: f64, batch: Batch) -> Self {
        Local { tether: Some(tether), ..Local::fa_ld(eta, weights, every, 0.0, batch) }
    }

    /// `1 / rho_c`: how strongly a client is tied to the server's parameter.
    pub fn pull(&self, client: usize) -> Option<f64> {
        self.tether.map(|tether| self.weights[client] / (tether * self.step.largest()))
    }

    /// FSGLD: one chain that visits client `c` with probability `p_c` for `every` steps; its
    /// conducive gradients are those of [`Target::rebalanced`] at the same weights. El Mekkaoui et
    /// al. 2021, Alg. 1. It is FA-LD's scheme I with one client and one noise for all.
    pub fn fsgld(eta: Schedule, weights: Vec<f64>, every: u64, batch: Batch) -> Self {
        Local {
            average: Average::WithReplacement(1),
            ..Local::fa_ld(eta, weights, every, 1.0, batch)
        }
    }

    /// VR-FALD*: FALD with control variates at a reference point that moves with probability `q`.
    pub fn vr_fald_star(
        gamma: Schedule,
        clients: usize,
        shared_fraction: f64,
        p: f64,
        q: f64,
        batch: Batch,
    ) -> Self {
        Local { refresh: Some(q), ..Local::fald(gamma, clients, shared_fraction, p, batch) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In integers: a fraction that a person can write is a number of thousandths.
    #[test]
    fn a_fraction_of_the_rows_is_rounded_down_and_never_nothing() {
        for rows in 1..=400 {
            for thousandths in 1..=1000 {
                let found = Batch::Fraction(thousandths as f64 / 1000.0).of(rows);
                assert_eq!(
                    found,
                    (thousandths * rows / 1000).max(1),
                    "{thousandths}/1000 of {rows}"
                );
            }
        }
    }
}

//! Send gradients up and take one Langevin step a round: family A.
//!
//! ```text
//! server   v = Q_down(x - w);  w <- w + v;  send v             (uncompressed: w = x, send x)
//! clients  i in A, at w:  H_i = oracle_i(w);  g_i = C_i(H_i - eta_i);  send g_i;
//!          eta_i <- eta_i + alpha g_i
//! server   g = eta + sum_{i in A} omega_i g_i;   eta <- eta + alpha sum_{i in A} g_i
//!          x <- x - gamma (g + grad U_0(x)) + sqrt(2 gamma T) Z
//! ```
//!
//! It targets `exp(-U/T)` up to the bias of the step. Departures from the papers: the parameter
//! goes to active clients only (the others would not use it); a client that was away when the
//! reference point moved is sent that point when it comes back; with the fixed point oracle the
//! server adds the gradient at `x*` that is left, so that the drift is unbiased however well `x*`
//! was found, and wherever the prior is applied.

mod check;
mod client;
mod forecast;
mod law;
mod private;
mod rows;
mod server;
mod words;

pub(super) use rows::{FAMILY, SAMPLERS};

use nalgebra::DVector;

use super::exact::{self, NoClosedForm, StationaryLaw};
use super::family::{Curvatures, Family};
use super::forecast::{ForecastMoments, QuadraticModel};
use super::participation::{Participation, Weighting};
use super::recipe::{Batch, Recipe, channel};
use super::{Keys, Sampler};
use crate::compress::{Channel, CodeChoice, Compressor, Precision};
use crate::error::DataError;
use crate::privacy::SecureSum;
use crate::protocol::{Device, Growth, Kind, Ledger};
use crate::rng::ClientId;
use crate::step::Schedule;
use crate::target::Target;

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
    /// Whether clients draw the Langevin noise themselves, before anything leaves them.
    pub private: Option<PrivateNoise>,
    /// Whether nobody sees more of the answers than their sum, and how that is made so; all of the
    /// Langevin noise is in it then.
    pub secure: Option<SecureSum>,
    /// The norm to which the server shortens gradients that are longer, before it adds them up: no
    /// client moves the sum by more. Where that happens draws are biased: they follow the longer
    /// gradients less than the posterior does.
    pub clip: Option<f64>,
    /// The share by which rounding may heat the chain, on average over many rounds, where clients
    /// draw the noise and their answers are rounded with it: beyond, the chain gives no draws.
    /// `None`: any.
    pub most_heat: Option<f64>,
}

/// How many answers of a round were shortened: the number beside every draw, where answers are.
pub const CLIPPED: &str = "clipped";

/// By which share of the Langevin noise a round was too hot, since rounding added more than the
/// server had left to draw: the number beside every draw of a private chain whose answers are
/// rounded.
pub const HEAT: &str = "heat";

/// How the Langevin noise is shared where clients draw theirs before anything leaves them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateNoise {
    /// The share that is left to the server, at least 0 and below 1: room for what rounding adds.
    pub server_share: f64,
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
            private: None,
            secure: None,
            clip: None,
            most_heat: None,
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
        given.filter(|c| c.plain().is_none()).cloned()
    }

    /// How one client's answers are compressed and written.
    pub(crate) fn up_channel(
        &self,
        client: usize,
        target: &Target,
    ) -> Result<Option<Channel>, DataError> {
        self.compressor(client, target.clients.len(), target.temperature)
            .map(|c| channel(&c, self.code, target.dim()))
            .transpose()
    }

    /// How the parameter's increments are compressed and written.
    pub(crate) fn down_channel(&self, dim: usize) -> Result<Option<Channel>, DataError> {
        let lossy = self.down.as_ref().filter(|c| c.plain().is_none());
        lossy.map(|c| channel(c, self.code, dim)).transpose()
    }

    /// The memory rate, unless the memory changes nothing: where it starts from the gradient,
    /// nothing is lost, and everybody takes part.
    pub fn effective_memory(&self) -> Option<f64> {
        let lossless = self.up.iter().all(|c| c.plain().is_some());
        let idle = self.memory_rule != MemoryRule::FromZero
            && lossless
            && self.participation == Participation::All;
        self.memory_rate.filter(|_| !idle)
    }

    /// The precision of vectors that are sent as they are.
    pub fn plain(&self) -> Precision {
        self.up.first().and_then(Compressor::plain).unwrap_or(self.precision)
    }
}

impl Family for Uplink {
    fn check(&self, target: Target) -> Result<Target, DataError> {
        check::check(self, target)
    }

    fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        Ok(Box::new(server::Server::new(self, target, start, keys.public)?))
    }

    fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
        channel: Option<Channel>,
    ) -> Box<dyn Device> {
        Box::new(client::Client::new(self, target, id, keys, channel))
    }

    fn channels(&self, target: &Target) -> Result<Vec<Option<Channel>>, DataError> {
        let different = if self.up.len() > 1 { target.clients.len() } else { 1 };
        (0..different).map(|i| self.up_channel(i, target)).collect()
    }

    fn down_channel(&self, dim: usize) -> Result<Option<Channel>, DataError> {
        Uplink::down_channel(self, dim)
    }

    fn precision(&self) -> Precision {
        self.plain()
    }

    fn step(&self) -> Schedule {
        self.step
    }

    fn with_step(&self, step: Schedule) -> Recipe {
        Recipe::Uplink(Uplink { step, ..self.clone() })
    }

    fn draws_per_iteration(&self) -> f64 {
        1.0
    }

    fn own_noise(
        &self,
        clients: usize,
        dim: usize,
        temperature: f64,
    ) -> Result<Vec<f64>, DataError> {
        self.own_noise(clients, dim, temperature)
    }

    fn with_own_noise(&self, server_share: f64) -> Option<Recipe> {
        let private = Some(PrivateNoise { server_share });
        Some(Recipe::Uplink(Uplink { private, ..self.clone() }))
    }

    fn is_noisy_descent(&self) -> bool {
        self.private.is_some()
            && self.batch == Batch::Full
            && self.participation == Participation::All
            && self.precision == Precision::F64
            && self.down.is_none()
            && self.up.iter().all(|c| c.plain() == Some(Precision::F64))
    }

    fn with_secure_sum(&self, sum: SecureSum) -> Result<Recipe, DataError> {
        Ok(Recipe::Uplink(Uplink { secure: Some(sum), ..self.clone() }))
    }

    fn level_bits(&self, target: &Target) -> Option<u32> {
        self.levels(target).map(|(_, bits, _)| bits)
    }

    fn heat_of_rounding(&self, dim: usize) -> f64 {
        self.heat_of_rounding(dim)
    }

    fn noise_in_sum(&self, clients: usize, _client: usize, colluding: usize) -> f64 {
        let least = match self.participation {
            Participation::All => clients,
            Participation::Fixed(size) => size,
            Participation::Bernoulli(_) | Participation::Elastic(_) => 1,
        };
        (least.saturating_sub(colluding).max(1) as f64).sqrt()
    }

    /// A memory may be as far from the gradient as anything that was ever sent, and the gradient at
    /// a fixed point is not one at the place that was asked about.
    fn growth(&self, target: &Target, client: ClientId) -> Option<Growth> {
        let (d, b) = (target.dim(), target.clients.len());
        if self.effective_memory().is_some() || self.secure.is_some() {
            return None;
        }
        let oracle = match self.oracle {
            Oracle::Plain => match self.batch {
                Batch::Each(probability) => 1.0 / probability, // all rows may be in it
                _ => 1.0,
            },
            Oracle::Svrg { .. } => 3.0, // a difference, and one more
            Oracle::FixedPoint(_) => return None,
        };
        let compressor = self.compressor(client.index(), b, target.temperature);
        let longer = compressor.map_or(Some(1.0), |compressor| compressor.growth(d))?;
        // d normals are longer than this once in 10^14 times
        let noise = self.deviation(client, target).unwrap_or(0.0) * ((d as f64).sqrt() + 8.0);
        Some(Growth { factor: oracle * longer, addend: noise * longer })
    }

    fn cautious_step(&self, found: Curvatures<'_>) -> f64 {
        forecast::cautious_step(self, found)
    }

    fn law(&self, target: &Target) -> Result<StationaryLaw, NoClosedForm> {
        if let Batch::Each(_) = self.batch {
            return Err(NoClosedForm::Unknown {
                what: "minibatches whose rows are drawn one by one".into(),
                instead: "use minibatches of one size",
            });
        }
        if self.clip.is_some() {
            return Err(NoClosedForm::Unknown {
                what: "gradients that are shortened".into(),
                instead: "leave out clip",
            });
        }
        exact::centred(target, |clients, centre| law::second_moment(self, target, clients, centre))
    }

    fn forecast(&self, model: &QuadraticModel) -> Option<ForecastMoments> {
        let mean = DVector::zeros(model.curvature.len());
        let variance = model.uplink(self)?;
        Some(ForecastMoments { mean, variance, alone: vec![0.0; model.clients.len()] })
    }

    fn numbers(&self) -> &'static [&'static str] {
        match (self.clip, self.is_rounded_with_noise()) {
            (Some(_), _) => &[CLIPPED],
            (None, true) => &[HEAT],
            (None, false) => &[],
        }
    }

    fn cautions(&self) -> Vec<String> {
        words::cautions(self)
    }

    fn spares_answers(&self) -> bool {
        self.memory_rate.is_none() && self.down.is_none()
    }

    fn is_biased_by_design(&self, target: &Target) -> bool {
        words::is_biased_by_design(self, target)
    }

    fn remedy(&self, target: &Target) -> &'static str {
        words::remedy(self, target)
    }

    fn answers(&self) -> Kind {
        Kind::Gradient
    }

    fn published_bits(&self, dim: usize, ledger: &Ledger) -> Option<u64> {
        words::published_bits(self, dim, ledger)
    }
}

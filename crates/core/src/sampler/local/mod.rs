//! Walk on every client and average now and then: family B.
//!
//! ```text
//! every client, every iteration k
//!     x_c <- x_c - eta G_c + sqrt(2 eta T) ( rho Zs + sqrt((1 - rho^2)/p_c) Z_c )
//!     G_c = (1/p_c) H_c(x_c)                                 FALD, FA-LD
//!     G_c = (1/p_c) [H_c(x_c) - H_c(y)] + grad U(y)          VR-FALD*, one minibatch for both H_c
//! synchronise: x_c <- sum_c p_c x_c for all c; that is a draw
//! tied (DG-LMC): x_c stays where it is, G_c gains (1/p_c) (x_c - x) / rho_c,
//!     and x is drawn given all x_c: see `gibbs.rs`
//! with compression: x_c is sent as q_c = C(x_c - h_c),
//!     the mean is sum_c p_c (h_c + q_c), and h_c <- h_c + alpha q_c on both sides
//! with probability q: y <- sum_c p_c x_c, taken *before* this iteration's step
//!     and used from the next iteration on
//! ```
//!
//! It targets `exp(-U/T)` up to the bias of the step and of the walks. Departures from the papers:
//! the shared noise is the supplement's (FALD eq. 4 would flatten the law); clients that are not
//! averaged are not asked, since their walk would be thrown away; where a reference point moves
//! right after a synchronisation, nobody sends what all have already.

mod check;
mod client;
mod forecast;
mod gibbs;
mod law;
mod rows;
mod server;
mod words;

pub(super) use rows::{FAMILY, SAMPLERS};

use super::exact::{self, NoClosedForm, StationaryLaw};
use super::family::{Curvatures, Family, PublishedPrivacy};
use super::forecast::{ForecastMoments, QuadraticModel};
use super::recipe::{Batch, Recipe, channel};
use super::uplink::Uplink;
use super::{Keys, Sampler};
use crate::compress::{Channel, CodeChoice, Compressor, Precision};
use crate::error::DataError;
use crate::privacy::{Scheme, SecureSum, TheoremG3};
use crate::protocol::{Device, Kind};
use crate::rng::ClientId;
use crate::step::Schedule;
use crate::target::Target;

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
    /// Whether the clients' own noise keeps their rows private: then it is drawn and rounded as
    /// what is released is.
    pub private: bool,
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

impl Local {
    /// How fast the memory of the clients' parameters follows, where they are compressed.
    pub fn memory_rate(&self) -> Option<f64> {
        self.lossy().map(|(_, rate)| *rate)
    }

    fn lossy(&self) -> Option<&(Compressor, f64)> {
        self.up.as_ref().filter(|(c, _)| c.plain().is_none())
    }

    /// How clients' parameters are compressed and written.
    pub(crate) fn up_channel(&self, dim: usize) -> Result<Option<Channel>, DataError> {
        self.lossy().map(|(c, _)| channel(c, self.code, dim)).transpose()
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
            private: false,
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

impl Family for Local {
    fn check(&self, target: Target) -> Result<Target, DataError> {
        check::check(self, target)
    }

    fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        Ok(Box::new(server::Server::new(self, target, start, keys.public)))
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
        Ok(vec![self.up_channel(target.dim())?])
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn step(&self) -> Schedule {
        self.step
    }

    fn with_step(&self, step: Schedule) -> Recipe {
        Recipe::Local(Local { step, ..self.clone() })
    }

    fn draws_per_iteration(&self) -> f64 {
        self.synchronise.rate()
    }

    /// The mean has noise `sum_c p_c^2 / p_c` of the honest clients where a client's gradient moves
    /// it by `p_c / p_c`; after several local steps what others drew does not hide a path.
    fn noise_in_sum(&self, _clients: usize, client: usize, colluding: usize) -> f64 {
        if self.synchronise != Synchronise::Every(1)
            || self.average != Average::All
            || self.tether.is_some()
        {
            return 1.0;
        }
        let own = self.weights[client];
        let mut others: Vec<f64> = self.weights.clone();
        others.remove(client);
        others.sort_by(f64::total_cmp);
        let honest = others.len().saturating_sub(colluding);
        ((own + others[..honest].iter().sum::<f64>()) / own).sqrt()
    }

    fn own_noise(
        &self,
        _clients: usize,
        _dim: usize,
        temperature: f64,
    ) -> Result<Vec<f64>, DataError> {
        check::own_noise(self, temperature)
    }

    /// The noise of a walk is its client's in any case.
    fn with_own_noise(&self, _server_share: f64) -> Option<Recipe> {
        Some(Recipe::Local(Local { private: true, ..self.clone() }))
    }

    /// The theorem is of walks of one length, with all rows or minibatches, averaged by all or by
    /// either scheme.
    fn published_privacy(&self, of: PublishedPrivacy) -> Option<TheoremG3> {
        let (Schedule::Constant(step), Synchronise::Every(local_steps)) =
            (self.step, self.synchronise)
        else {
            return None;
        };
        if self.refresh.is_some() || self.tether.is_some() || self.up.is_some() {
            return None;
        }
        let clients = self.weights.len() as u64;
        let (scheme, taking_part) = match self.average {
            Average::All => (Scheme::WithoutReplacement, clients),
            Average::WithReplacement(size) => (Scheme::WithReplacement, size as u64),
            Average::WithoutReplacement(size) => (Scheme::WithoutReplacement, size as u64),
        };
        Some(TheoremG3 {
            clients,
            taking_part,
            scheme,
            share: of.share,
            local_steps,
            steps: of.steps,
            step,
            temperature: of.temperature,
            correlation: self.correlation,
            least_weight: self.weights.iter().copied().fold(f64::INFINITY, f64::min),
            sensitivity: of.sensitivity,
        })
    }

    fn is_noisy_descent(&self) -> bool {
        self.private
            && self.batch == Batch::Full
            && self.average == Average::All
            && self.synchronise == Synchronise::Every(1)
            && self.precision == Precision::F64
            && self.tether.is_none()
            && self.up.is_none()
    }

    /// With one step a round from where everybody stands, the mean of all is the step of family A,
    /// whatever the weights and the correlation are: `sum_c p_c G_c = sum_c H_c`, and the mean's
    /// noise has variance `2 eta T`.
    fn with_secure_sum(&self, sum: SecureSum) -> Result<Recipe, DataError> {
        check::check_sum(self)?;
        let Local { step, batch, precision, .. } = self.clone();
        let secure = Some(sum);
        Ok(Recipe::Uplink(Uplink { secure, batch, precision, ..Uplink::lmc(step) }))
    }

    fn cautious_step(&self, found: Curvatures<'_>) -> f64 {
        forecast::cautious_step(self, found)
    }

    fn law(&self, target: &Target) -> Result<StationaryLaw, NoClosedForm> {
        exact::centred(target, |clients, centre| law::second_moment(self, target, clients, centre))
    }

    fn forecast(&self, model: &QuadraticModel) -> Option<ForecastMoments> {
        let (mean, variance) = model.local(self)?;
        let alone = (0..model.clients.len()).map(|i| model.spread_alone(self, i)).collect();
        Some(ForecastMoments { mean, variance, alone })
    }

    /// The mean is of those who are asked.
    fn spares_answers(&self) -> bool {
        false
    }

    fn is_biased_by_design(&self, target: &Target) -> bool {
        words::is_biased_by_design(self, target)
    }

    fn cautions(&self) -> Vec<String> {
        words::cautions(self)
    }

    fn remedy(&self, _target: &Target) -> &'static str {
        words::remedy(self)
    }

    fn answers(&self) -> Kind {
        Kind::Parameter
    }
}

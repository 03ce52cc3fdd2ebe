//! Accept or reject proposals by the whole posterior: family C, potentials up.
//!
//! The log posterior is a sum over clients, so that a federation computes a Metropolis ratio
//! exactly, and draws have the law of the posterior itself: no step makes them biased. All samplers
//! here expect coordinates in which the posterior is round (`x = m + A u`, from a survey), and
//! differ in what they propose:
//!
//! ```text
//! imh    u' = T(z), z Student                     one number for a proposal, many in an exchange
//! pcn    u' = sqrt(1 - h^2) u + h z               one number up, one bit down
//! mala   u' = u - (h^2/2) g(u) + h z              hmc with one step
//! hmc    l leapfrog steps of length h from (u, z) a gradient up for every step
//! ```
//!
//! With `V = U/T` a proposal is accepted with probability `min(1, exp(-dE))`: for `imh` `E` is
//! `V + log q`, for `pcn` `V - |u|^2/2`, for `hmc` `V + |z|^2/2`. A chain's first proposal stands
//! for its start where the sampler proposes without one (`imh`, `pcn`).
//!
//! `mala` may compress gradients: the server keeps the message `g(u)` for as long as the chain
//! stays at `u`, which is a Metropolis chain on pairs of a point and the coins of its message, so
//! that points still have the law of the posterior. Memories and minibatches would not do.

mod autoregressive;
mod client;
mod hamiltonian;
mod independence;
mod rows;
mod server;

pub(super) use rows::{FAMILY, SAMPLERS};
pub(super) use server::Shared;

use super::exact::{NoClosedForm, StationaryLaw, posterior};
use super::family::{Curvatures, Family, HEADER, Traffic, vector_bytes};
use super::forecast::{ForecastMoments, QuadraticModel};
use super::recipe::channel;
use super::{Keys, Recipe, Sampler};
use crate::compress::{Channel, CodeChoice, Compressor, Precision};
use crate::error::DataError;
use crate::proposal::Proposal;
use crate::protocol::{Device, Growth, Kind};
use crate::rng::ClientId;
use crate::step::Schedule;
use crate::target::Target;

/// How many proposals of `imh` an exchange asks about; draws do not depend on it.
pub const BLOCK: usize = 4096;
/// By how much a step of `hmc` varies from draw to draw, relatively.
pub(crate) const JITTER: f64 = 0.2;

/// A sampler of family C.
#[derive(Clone, Debug, PartialEq)]
pub struct Metropolis {
    /// What is proposed.
    pub kernel: Kernel,
    /// The step `h`, which must be constant; `imh` has none.
    pub step: Schedule,
    /// How numbers cross the wire. Points are rounded to it before anybody uses them; with 32 bits
    /// the law of the draws is that of the rounded potentials.
    pub precision: Precision,
    /// How clients compress gradients (`mala`): in no way, all alike, or each in its own.
    pub up: Vec<Compressor>,
    /// How compressed gradients are written.
    pub code: CodeChoice,
}

/// What a sampler of family C proposes.
#[derive(Clone, Debug, PartialEq)]
pub enum Kernel {
    /// Points that do not depend on where the chain is: `imh`.
    Independence {
        /// Their law.
        proposal: Proposal,
        /// How many an exchange asks about.
        block: usize,
    },
    /// A step that leaves a standard normal as it is: `pcn`.
    Autoregressive,
    /// Leapfrog steps: `mala` with one, `hmc`.
    Hamiltonian {
        /// How many.
        steps: u32,
        /// By how much their length varies from draw to draw, relatively.
        jitter: f64,
    },
}

impl Metropolis {
    /// `imh`: independence Metropolis in blocks (Hastings 1970, section 2.5; Tierney 1994).
    pub fn imh(proposal: Proposal, block: usize) -> Self {
        Metropolis::with(Kernel::Independence { proposal, block }, 1.0)
    }

    /// `pcn`: the preconditioned Crank-Nicolson proposal (Cotter, Roberts, Stuart and White 2013,
    /// eq. 4.9), around the centre of the coordinates.
    pub fn pcn(step: f64) -> Self {
        Metropolis::with(Kernel::Autoregressive, step)
    }

    /// `mala`: the Metropolis-adjusted Langevin algorithm (Roberts and Tweedie 1996).
    pub fn mala(step: f64) -> Self {
        Metropolis::hmc(step, 1)
    }

    /// `hmc`: Hamiltonian Monte Carlo (Duane et al. 1987; Neal 2011).
    pub fn hmc(step: f64, steps: u32) -> Self {
        Metropolis::with(Kernel::Hamiltonian { steps, jitter: JITTER }, step)
    }

    fn with(kernel: Kernel, step: f64) -> Self {
        Metropolis {
            kernel,
            step: Schedule::Constant(step),
            precision: Precision::F64,
            up: Vec::new(),
            code: CodeChoice::Auto,
        }
    }

    /// The same with compressed gradients.
    pub fn compressed(self, compressor: Compressor) -> Self {
        Metropolis { up: vec![compressor], ..self }
    }
}

impl Family for Metropolis {
    fn check(&self, target: Target) -> Result<Target, DataError> {
        let Schedule::Constant(step) = self.step else {
            return Err(DataError::Unsupported {
                what: "a step that decreases".into(),
                why: "a Metropolis chain whose step changes has no stationary law, and needs none \
                      that does: its draws are exact at any step",
            });
        };
        if !(step > 0.0 && step.is_finite()) {
            return Err(DataError::NotPositive { what: "the step", value: step });
        }
        let refuse = |what: String, why| Err(DataError::Unsupported { what, why });
        match &self.kernel {
            Kernel::Independence { proposal, block } => {
                if proposal.dim() != target.dim() {
                    return Err(DataError::Dimension {
                        what: "the proposal".into(),
                        found: proposal.dim(),
                        expected: target.dim(),
                    });
                }
                if *block == 0 || *block as u64 > crate::protocol::MOST_POINTS {
                    return refuse(
                        format!("a block of {block} proposals"),
                        "an exchange asks about 1 to 65536 of them",
                    );
                }
            }
            Kernel::Autoregressive if step > 1.0 => {
                return refuse(
                    format!("a step of {step}"),
                    "that of pcn is at most 1, where proposals no longer depend on the chain",
                );
            }
            Kernel::Hamiltonian { steps: 0, .. } => {
                return refuse("no leapfrog step".into(), "there must be at least one");
            }
            _ => {}
        }
        let lossy = self.up.iter().any(|c| c.plain().is_none());
        if lossy && !matches!(self.kernel, Kernel::Hamiltonian { steps: 1, .. }) {
            return refuse(
                "compressed gradients".into(),
                "only mala stays exact with them: a proposal may use no more than one message",
            );
        }
        self.channels(&target)?;
        Ok(target)
    }

    fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        let step = self.step.largest();
        let shared = server::Shared::new(target, keys.public);
        Ok(match &self.kernel {
            Kernel::Independence { proposal, block } => {
                Box::new(independence::Server::new(shared, proposal.clone(), *block, start))
            }
            Kernel::Autoregressive => Box::new(autoregressive::Server::new(shared, step, start)),
            Kernel::Hamiltonian { steps, jitter } => {
                let length = (step, *steps, *jitter);
                Box::new(hamiltonian::Server::new(shared, length, self.plain(), start))
            }
        })
    }

    fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
        channel: Option<Channel>,
    ) -> Box<dyn Device> {
        let step = matches!(self.kernel, Kernel::Autoregressive).then(|| self.step.largest());
        Box::new(client::Client::new(target, id, keys, step, self.plain(), channel))
    }

    fn channels(&self, target: &Target) -> Result<Vec<Option<Channel>>, DataError> {
        let of = |compressor: &Compressor| match compressor.plain() {
            Some(_) => Ok(None),
            None => channel(compressor, self.code, target.dim()).map(Some),
        };
        match &self.up[..] {
            [] => Ok(vec![None]),
            all => all.iter().map(of).collect(),
        }
    }

    fn precision(&self) -> Precision {
        self.plain()
    }

    fn step(&self) -> Schedule {
        self.step
    }

    fn with_step(&self, step: Schedule) -> Recipe {
        Recipe::Metropolis(Metropolis { step, ..self.clone() })
    }

    fn draws_per_iteration(&self) -> f64 {
        1.0
    }

    fn traffic(&self, target: &Target) -> Traffic {
        let number = vector_bytes(None, self.plain(), 1);
        match &self.kernel {
            Kernel::Independence { proposal, block } => {
                let (block, told) = (*block as f64, 8.0 * proposal.parts().len() as f64);
                Traffic {
                    exchanges: 1.0 / block,
                    up: number + HEADER / block,
                    down: (told + 2.0 * HEADER) / block,
                }
            }
            Kernel::Autoregressive => Traffic { exchanges: 1.0, up: number + HEADER, down: HEADER },
            Kernel::Hamiltonian { steps, .. } => {
                let (dim, steps) = (target.dim(), f64::from(*steps));
                let channels = self.channels(target).unwrap_or_default();
                let channel = channels.first().and_then(Option::as_ref);
                let up = vector_bytes(channel, self.plain(), dim) + number + HEADER;
                let down = vector_bytes(None, self.plain(), dim) + HEADER;
                Traffic { exchanges: steps, up: steps * up, down: steps * down }
            }
        }
    }

    fn growth(&self, target: &Target, client: ClientId) -> Option<Growth> {
        let own = if self.up.len() == 1 { self.up.first() } else { self.up.get(client.index()) };
        let factor = own.map_or(Some(1.0), |compressor| compressor.growth(target.dim()))?;
        Some(Growth { factor, addend: 0.0 })
    }

    fn settling(&self) -> u64 {
        match self.kernel {
            Kernel::Independence { .. } => 0,
            Kernel::Autoregressive => 200,
            Kernel::Hamiltonian { .. } => 20,
        }
    }

    fn gains_by_chains(&self) -> bool {
        !matches!(self.kernel, Kernel::Independence { .. })
    }

    fn cautious_step(&self, found: Curvatures<'_>) -> f64 {
        let dim = (found.dim.max(1) as f64).powf(0.25);
        match self.kernel {
            Kernel::Independence { .. } => 1.0,
            Kernel::Autoregressive => (1.0 / (dim * dim)).min(0.5),
            Kernel::Hamiltonian { .. } => 1.0 / (dim * found.smoothness.max(1.0).sqrt()),
        }
    }

    fn law(&self, target: &Target) -> Result<StationaryLaw, NoClosedForm> {
        posterior(target)
    }

    fn forecast(&self, _model: &QuadraticModel) -> Option<ForecastMoments> {
        None
    }

    fn is_exact(&self) -> bool {
        true
    }

    fn spares_answers(&self) -> bool {
        false
    }

    fn is_biased_by_design(&self, _target: &Target) -> bool {
        false
    }

    fn remedy(&self, _target: &Target) -> &'static str {
        "Run more iterations: its draws have no bias, only error"
    }

    fn answers(&self) -> Kind {
        match self.kernel {
            Kernel::Hamiltonian { .. } => Kind::Gradient,
            Kernel::Independence { .. } | Kernel::Autoregressive => Kind::Potential,
        }
    }

    fn resolved(&self) -> Vec<(&'static str, u64)> {
        match self.kernel {
            Kernel::Independence { block, .. } => vec![("block", block as u64)],
            Kernel::Hamiltonian { steps, .. } if steps > 1 => vec![("leapfrog", steps.into())],
            _ => Vec::new(),
        }
    }

    fn numbers(&self) -> &'static [&'static str] {
        match self.kernel {
            Kernel::Hamiltonian { .. } => &["acceptance_rate", "energy", "step_size"],
            Kernel::Independence { .. } => &["acceptance_rate", "accepted", "log_weight"],
            Kernel::Autoregressive => &["acceptance_rate", "accepted", "energy"],
        }
    }
}

impl Metropolis {
    /// The precision of vectors that are sent as they are.
    fn plain(&self) -> Precision {
        self.up.first().and_then(Compressor::plain).unwrap_or(self.precision)
    }
}

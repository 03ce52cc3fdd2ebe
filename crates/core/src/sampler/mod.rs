//! Run any sampler of the papers through one contract.

mod attendance;
mod encoder;
pub mod exact;
pub mod forecast;
mod lazy;
mod local;
mod participation;
mod recipe;
pub mod registry;
mod uplink;

pub use attendance::{Attendance, Irregular};
pub use local::{Average, Local, NoiseScale, Synchronise};
pub use participation::{Participation, Roll, Weighting};
pub use recipe::{Batch, Recipe};
pub use uplink::{Anchor, MemoryRule, NoiseSource, Oracle, Uplink};

use crate::compress::{Channel, Compressor};
use crate::error::DataError;
use crate::model::Prior;
use crate::protocol::{Device, Exchange, Format};
use crate::rng::{ClientId, Seed};
use crate::step::Schedule;
use crate::target::{Placement, Target, check_probabilities};

/// A chain: the server's side of a sampler.
pub trait Sampler: Exchange {
    /// The newest draw (before the first [`crate::protocol::Event::Draw`] the start).
    fn position(&self) -> &[f64];

    /// How many Langevin iterations are done. In family B these are local steps.
    fn iteration(&self) -> u64;

    /// Who stayed away, where clients may.
    fn attendance(&self) -> Option<&Attendance> {
        None
    }
}

/// The random numbers' keys: what everybody may know, and what a client keeps to itself. In a
/// simulation one seed stands for all.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// Coins, participation, shared noise.
    pub public: Seed,
    /// A client's own noise and minibatches.
    pub private: Seed,
}

impl Keys {
    /// The keys of one chain of a simulation.
    pub fn simulation(master: Seed, chain: u32) -> Self {
        let seed = master.chain(chain);
        Keys { public: seed, private: seed }
    }
}

impl Recipe {
    /// Check the recipe against the target, and give the target as this family needs it (family B
    /// splits the prior by `p_c` unless told otherwise, or where the server draws).
    pub fn check(&self, target: Target) -> Result<Target, DataError> {
        let b = target.clients.len();
        let refuse = |what, problem: String| Err(DataError::Weights { what, problem });
        match self {
            Recipe::Uplink(recipe) => {
                if let Some(alpha) = recipe.memory_rate
                    && !(alpha > 0.0 && alpha <= 1.0)
                {
                    return refuse(
                        "the memory rate",
                        format!("it is {alpha}: it must be above 0 and at most 1"),
                    );
                }
                if let Oracle::Svrg { every: 0 } = recipe.oracle {
                    return refuse(
                        "the reference point",
                        "it cannot move every 0 rounds: use at least 1".into(),
                    );
                }
                let roll = Roll::new(recipe.participation.clone(), recipe.weighting, b)?;
                if roll.is_elastic() && recipe.memory_rate.is_some() {
                    return refuse(
                        "elastic participation",
                        "a client that answers too late has moved its memory, and the server's has \
                         not moved with it: use a sampler without memory".into(),
                    );
                }
                check_compression(recipe, &target)?;
                Ok(target)
            }
            Recipe::Local(recipe) => {
                check_probabilities("the clients' weights", &recipe.weights, b)?;
                if let Some(c) = recipe.weights.iter().position(|p| *p == 0.0) {
                    return refuse(
                        "the clients' weights",
                        format!("client {c} has weight 0: leave it out instead"),
                    );
                }
                if !(0.0..=1.0).contains(&recipe.correlation) {
                    return refuse(
                        "the noise correlation",
                        format!("it is {}: it must be between 0 and 1", recipe.correlation),
                    );
                }
                match recipe.synchronise {
                    Synchronise::Every(0) => {
                        return refuse(
                            "synchronisation",
                            "it cannot happen every 0 iterations: use at least 1".into(),
                        );
                    }
                    Synchronise::Randomly(p) if !(p > 0.0 && p <= 1.0) => {
                        return refuse(
                            "synchronisation",
                            format!("its probability is {p}: it must be above 0 and at most 1"),
                        );
                    }
                    _ => {}
                }
                if let Some(q) = recipe.refresh
                    && !(0.0..=1.0).contains(&q)
                {
                    return refuse(
                        "the reference point",
                        format!("it moves with probability {q}: it must be between 0 and 1"),
                    );
                }
                if let Average::WithReplacement(s) | Average::WithoutReplacement(s) = recipe.average
                {
                    if recipe.refresh.is_some() {
                        return refuse(
                            "partial participation",
                            "control variates need every client: use it without a reference point"
                                .into(),
                        );
                    }
                    if s == 0 {
                        return refuse(
                            "partial participation",
                            "0 clients cannot be averaged: use at least 1".into(),
                        );
                    }
                }
                if let Average::WithoutReplacement(s) = recipe.average {
                    if s > b {
                        return refuse(
                            "partial participation",
                            format!("{s} of {b} clients cannot take part: use at most {b}"),
                        );
                    }
                    if recipe.weights.iter().any(|p| (p - recipe.weights[0]).abs() > 1e-12) {
                        return refuse(
                            "partial participation",
                            "scheme II is biased unless all weights are equal: use scheme I".into(),
                        );
                    }
                }
                if let Some(tether) = recipe.tether {
                    if !(tether > 0.0 && tether.is_finite()) {
                        return refuse("the tether", format!("it is {tether}: it must be above 0"));
                    }
                    if recipe.refresh.is_some()
                        || recipe.correlation > 0.0
                        || recipe.average != Average::All
                        || recipe.up.is_some()
                    {
                        return refuse(
                            "the tether",
                            "clients that are tied have noise of their own, no reference point and \
                             no compression, and all take part: leave these settings out".into(),
                        );
                    }
                }
                if let Some((compressor, rate)) = recipe.up {
                    let refuse = |problem: String| {
                        Err(DataError::Compressor { compressor: compressor.to_string(), problem })
                    };
                    if recipe.average != Average::All {
                        return refuse(
                            "with partial participation the server would have to \
                            remember every client: average all"
                                .into(),
                        );
                    }
                    let Some(omega) = compressor.omega(target.dim()) else {
                        return refuse(
                            "it is biased: use an unbiased one, such as qsgd(16)".into(),
                        );
                    };
                    if !(rate > 0.0 && rate <= 1.0 / (1.0 + omega) + 1e-12) {
                        return refuse(format!(
                            "its memory rate is {rate}: it must be above 0 and at most 1/(1 + \
                             omega) = {}",
                            1.0 / (1.0 + omega)
                        ));
                    }
                    recipe.up_channel(target.dim())?;
                }
                let server_knows_the_prior =
                    recipe.tether.is_some() && !matches!(target.prior, Prior::Laplace { .. });
                Ok(match target.placement {
                    Placement::Server if server_knows_the_prior => target,
                    Placement::Server => target.split_by(&recipe.weights),
                    Placement::Split(_) => target,
                })
            }
        }
    }

    /// The server of a chain. The target must have passed [`Recipe::check`].
    pub fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError> {
        if start.len() != target.dim() {
            return Err(DataError::Dimension {
                what: "the starting point".into(),
                found: start.len(),
                expected: target.dim(),
            });
        }
        Ok(match self {
            Recipe::Uplink(recipe) => {
                Box::new(uplink::Server::new(recipe, target, start, keys.public)?)
            }
            Recipe::Local(recipe) => {
                Box::new(local::Server::new(recipe, target, start, keys.public))
            }
        })
    }

    /// One client of a chain.
    pub fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
    ) -> Result<Box<dyn Device>, DataError> {
        Ok(match self {
            Recipe::Uplink(recipe) => Box::new(uplink::Client::new(recipe, target, id, keys)?),
            Recipe::Local(recipe) => Box::new(local::Client::new(recipe, target, id, keys)?),
        })
    }

    /// How vectors look on the wire.
    pub fn format(&self, target: &Target, keys: Keys) -> Result<Format, DataError> {
        let (dim, b) = (target.dim(), target.clients.len());
        let (precision, up, down): (_, Vec<Option<Channel>>, _) = match self {
            Recipe::Uplink(recipe) => {
                let up = (0..b).map(|i| recipe.up_channel(i, target)).collect::<Result<_, _>>()?;
                (recipe.plain(), up, recipe.down_channel(dim)?)
            }
            Recipe::Local(recipe) => (recipe.precision, vec![recipe.up_channel(dim)?; b], None),
        };
        Ok(Format { dim, precision, up, down, public: keys.public })
    }
}

/// Check that a compressor does what the algorithm's theory asks of it.
fn check_compression(recipe: &Uplink, target: &Target) -> Result<(), DataError> {
    let (d, b) = (target.dim(), target.clients.len());
    let refuse = |compressor: Compressor, problem: String| {
        Err(DataError::Compressor { compressor: compressor.to_string(), problem })
    };
    if recipe.up.len() > 1 && recipe.up.len() != b {
        return refuse(
            recipe.up[0],
            format!(
                "there are {} compressors for {b} clients: give one, or one for each",
                recipe.up.len()
            ),
        );
    }
    let everybody = recipe.participation == Participation::All;
    for client in 0..recipe.up.len().max(1) {
        let Some(compressor) = recipe.compressor(client, b, target.temperature) else { continue };
        recipe.up_channel(client, target)?;
        if recipe.noise == NoiseSource::Compression {
            if !everybody
                || recipe.memory_rate.is_some()
                || !matches!(recipe.step, Schedule::Constant(_))
            {
                return refuse(
                    compressor,
                    "its error is the Langevin noise, so everybody must take part, without memory, \
                     at a constant step".into(),
                );
            }
            continue;
        }
        match (recipe.memory_rate, recipe.memory_rule) {
            (Some(_), MemoryRule::FromGradient) => {
                if compressor.alpha(d).is_none() {
                    return refuse(
                        compressor,
                        "error feedback needs a contractive one: use \
                        top_k(...), or wrap it as scaled(...)"
                            .into(),
                    );
                }
                if !everybody {
                    return refuse(
                        compressor,
                        "error feedback needs every client in every round".into(),
                    );
                }
            }
            (rate, rule) => {
                let Some(omega) = compressor.omega(d) else {
                    return refuse(
                        compressor,
                        "it is biased, which needs error feedback: use d-elf or b-elf, or an \
                         unbiased one such as qsgd(16)"
                            .into(),
                    );
                };
                let most = 1.0 / (1.0 + omega);
                if let (Some(alpha), MemoryRule::FromZero) = (rate, rule)
                    && alpha > most * (1.0 + 1e-9)
                {
                    return refuse(
                        compressor,
                        format!(
                            "the memory rate {alpha} is too large for it: it must be at most 1/(1 \
                             + omega) = {most:.6}"
                        ),
                    );
                }
                if let (Some(_), MemoryRule::Marina { restart }) = (rate, rule)
                    && !(everybody && restart > 0.0 && restart <= 1.0)
                {
                    return refuse(
                        compressor,
                        "differences of gradients need every client in every round, and a restart \
                         probability above 0"
                            .into(),
                    );
                }
            }
        }
    }
    if let Some(compressor) = recipe.down {
        if compressor.alpha(d).is_none() {
            return refuse(
                compressor,
                "the way down needs a contractive one: use top_k(...), or wrap it as scaled(...)"
                    .into(),
            );
        }
        if !everybody {
            return refuse(
                compressor,
                "a client that is away would miss increments of the parameter: compress the way \
                 down only where everybody takes part"
                    .into(),
            );
        }
        recipe.down_channel(d)?;
    }
    Ok(())
}

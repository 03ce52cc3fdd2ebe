//! Run any sampler through one contract.

mod attendance;
mod encoder;
pub mod exact;
mod family;
pub mod forecast;
mod lazy;
mod local;
mod metropolis;
mod participation;
mod penalty;
mod recipe;
pub mod registry;
mod release;
mod uplink;

pub use attendance::{Attendance, Irregular};
pub use family::{CAUTION, Curvatures, Family, PublishedPrivacy, Traffic};
pub use local::{Average, Local, NoiseScale, Synchronise};
pub use metropolis::{Kernel, Metropolis};
pub use participation::{Participation, Roll, Weighting};
pub use penalty::Penalty;
pub use recipe::{Batch, Recipe};
pub use release::{NOISE_RATIO, Release};
pub use uplink::{Anchor, CLIPPED, HEAT, MemoryRule, NoiseSource, Oracle, PrivateNoise, Uplink};

use crate::protocol::Exchange;
use crate::rng::Seed;

/// A chain: the server's side of a sampler.
pub trait Sampler: Exchange {
    /// The newest draw (before the first [`crate::protocol::Event::Draw`] the start).
    fn position(&self) -> &[f64];

    /// How many Langevin iterations are done. In family B these are local steps.
    fn iteration(&self) -> u64;

    /// What stands beside the newest draw, as [`Family::numbers`] names it.
    fn numbers(&self) -> &[f64] {
        &[]
    }

    /// Why it gives no draws, where it is not its step that is to blame.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// How many answers of each client were shortened, where answers are.
    fn shortened(&self) -> &[u64] {
        &[]
    }

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

    /// The keys of the chain with half the step, along the same path.
    pub fn halved(self) -> Self {
        Keys { public: self.public.halved(), private: self.private.halved() }
    }
}

//! Define what every family of samplers can do.
//!
//! A family is a folder: its axes, check, server, clients, law, forecast, words and rows. Whoever
//! needs one of these asks the trait; `recipe.rs` is the one place that knows which families there
//! are.

use super::exact::{NoClosedForm, StationaryLaw};
use super::forecast::{ForecastMoments, QuadraticModel};
use super::recipe::Recipe;
use super::{Keys, Sampler};
use crate::compress::{Channel, Message, Precision};
use crate::error::DataError;
use crate::privacy::{SecureSum, TheoremG3};
use crate::protocol::{Device, Format, Growth, Kind, Ledger};
use crate::rng::{ClientId, Purpose, Seed};
use crate::step::Schedule;
use crate::target::Target;

/// An automatic step is at most this fraction of the inverse curvature: in the stiffest direction
/// it widens the sampled standard deviation by an eightieth.
pub const CAUTION: f64 = 0.05;

/// What surveys found of a target's curvature.
#[derive(Clone, Copy, Debug)]
pub struct Curvatures<'a> {
    /// How many parameters there are.
    pub dim: usize,
    /// The largest curvature of the whole potential.
    pub smoothness: f64,
    /// The largest curvature of each client's own potential.
    pub local_smoothness: &'a [f64],
}

/// What a published theorem asks beside the sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PublishedPrivacy {
    /// The share of rows in a minibatch.
    pub share: f64,
    /// How many steps there are in all.
    pub steps: u64,
    /// The temperature.
    pub temperature: f64,
    /// How far two rows' gradients can be apart.
    pub sensitivity: f64,
}

/// How many bytes of an order or of an answer are not its contents, about.
pub(super) const HEADER: f64 = 4.0;

/// What one iteration of a chain takes, on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// How many exchanges.
    pub exchanges: f64,
    /// How many bytes a client sends.
    pub up: f64,
    /// How many bytes it is sent.
    pub down: f64,
}

/// How many bytes a vector of normal numbers takes: through a channel, or as it is.
pub(super) fn vector_bytes(channel: Option<&Channel>, precision: Precision, dim: usize) -> f64 {
    let plain = dim as f64 * if precision == Precision::F64 { 8.0 } else { 4.0 };
    let Some(channel) = channel else { return plain };
    let mut stream = Seed::new(0).stream(Purpose::Pilot, ClientId(0), 0);
    let mut vector = vec![0.0; dim];
    stream.normals(&mut vector);
    let mut message = Message::default();
    match channel.quantise(&vector, &mut stream, &mut message) {
        Ok(()) => (channel.length_bits(&message) as f64 / 8.0).ceil(),
        Err(_) => plain,
    }
}

/// A sampler with all its settings, as one of its family.
pub trait Family {
    /// Check the settings against the target, and give the target as this family needs it. All
    /// other methods expect a target that has passed.
    fn check(&self, target: Target) -> Result<Target, DataError>;

    /// The server of a chain.
    fn server(
        &self,
        target: &Target,
        start: &[f64],
        keys: Keys,
    ) -> Result<Box<dyn Sampler>, DataError>;

    /// One client of a chain, whose answers go through this channel.
    fn client(
        &self,
        target: &Target,
        id: ClientId,
        keys: Keys,
        channel: Option<Channel>,
    ) -> Box<dyn Device>;

    /// The channel of each client's answers, or one for all; `None` where vectors are sent as they
    /// are.
    fn channels(&self, target: &Target) -> Result<Vec<Option<Channel>>, DataError>;

    /// The channel of what the server sends, where it compresses.
    fn down_channel(&self, _dim: usize) -> Result<Option<Channel>, DataError> {
        Ok(None)
    }

    /// The precision of vectors that are sent as they are.
    fn precision(&self) -> Precision;

    /// How vectors look on the wire.
    fn format(&self, target: &Target, keys: Keys) -> Result<Format, DataError> {
        let (dim, up) = (target.dim(), self.channels(target)?);
        let (precision, down) = (self.precision(), self.down_channel(dim)?);
        let levels = self.level_bits(target);
        Ok(Format { dim, precision, up, down, public: keys.public, levels })
    }

    /// How many bits a level of a secure sum has, where clients answer with such levels.
    fn level_bits(&self, _target: &Target) -> Option<u32> {
        None
    }

    /// The step of one iteration.
    fn step(&self) -> Schedule;

    /// The same sampler with another step.
    fn with_step(&self, step: Schedule) -> Recipe;

    /// How many draws an iteration gives, on average.
    fn draws_per_iteration(&self) -> f64;

    /// What an iteration takes, on average; by default a vector each way.
    fn traffic(&self, target: &Target) -> Traffic {
        let (dim, precision) = (target.dim(), self.precision());
        let up = self.channels(target).ok().and_then(|all| all.into_iter().next().flatten());
        let down = self.down_channel(dim).ok().flatten();
        let exchanges = self.draws_per_iteration();
        let sent = match self.level_bits(target) {
            Some(bits) => (dim as f64 * f64::from(bits) / 8.0).ceil(),
            None => vector_bytes(up.as_ref(), precision, dim),
        };
        Traffic {
            exchanges,
            up: exchanges * (sent + HEADER),
            down: exchanges * (vector_bytes(down.as_ref(), precision, dim) + HEADER),
        }
    }

    /// How many iterations chains that start around the optimum take at least to forget that.
    fn settling(&self) -> u64 {
        0
    }

    /// Whether more chains, each of them shorter, take fewer exchanges.
    fn gains_by_chains(&self) -> bool {
        true
    }

    /// The standard deviation of the noise that nobody but the client can compute, one number a
    /// client, on the scale of its gradient, at every iteration; or why there is none.
    fn own_noise(
        &self,
        _clients: usize,
        _dim: usize,
        _temperature: f64,
    ) -> Result<Vec<f64>, DataError> {
        Err(DataError::NotPrivate {
            why: "its clients answer with exact functions of their rows".into(),
            instead: "use lmc, sgld, qlsd, qlsd#, p-elf, fald, fa-ld or dg-lmc",
        })
    }

    /// The same sampler, with clients that draw the Langevin noise themselves but for a share, from
    /// what nobody else knows; `None` where they do so in any case, or never.
    fn with_own_noise(&self, _server_share: f64) -> Option<Recipe> {
        None
    }

    /// The same sampler, of whose answers nobody sees more than their sum, with all of the noise in
    /// it; or why its server needs more than that.
    fn with_secure_sum(&self, _sum: SecureSum) -> Result<Recipe, DataError> {
        Err(DataError::NotPrivate {
            why: "its server needs more of the answers than their sum".into(),
            instead: "use lmc or p-elf, or fald or fa-ld with one local step a round",
        })
    }

    /// By how much the noise of all honest clients in what the server sends to everybody exceeds a
    /// client's own, at least, where `colluding` clients take theirs off: 1 where what is sent may
    /// show one client alone.
    fn noise_in_sum(&self, _clients: usize, _client: usize, _colluding: usize) -> f64 {
        1.0
    }

    /// FA-LD's Theorem G.3 for so many steps of this sampler, to compare with; `None` where the
    /// theorem is of another one.
    fn published_privacy(&self, _of: PublishedPrivacy) -> Option<TheoremG3> {
        None
    }

    /// By which share of the noise that clients draw rounding heats the chain, where the server
    /// does not take it off its own.
    fn heat_of_rounding(&self, _dim: usize) -> f64 {
        0.0
    }

    /// By how much an answer of a client can exceed its gradient at the place where it was asked;
    /// `None` where it is something else, or has no bound.
    fn growth(&self, _target: &Target, _client: ClientId) -> Option<Growth> {
        None
    }

    /// A step that theory takes for safe, where nothing is known of the clients' Hessians.
    fn cautious_step(&self, found: Curvatures<'_>) -> f64;

    /// The law of the draws on a Gaussian target.
    fn law(&self, target: &Target) -> Result<StationaryLaw, NoClosedForm>;

    /// Where the draws will be by the quadratic model of the target; `None` where the chain is not
    /// stable, or its step decreases.
    fn forecast(&self, model: &QuadraticModel) -> Option<ForecastMoments>;

    /// Whether the draws have no bias whatever the step.
    fn is_exact(&self) -> bool {
        false
    }

    /// Whether an iteration is one step of gradient descent of the whole potential with Gaussian
    /// noise of the clients' own, and nothing is rounded to fewer than 64 bits on the way.
    fn is_noisy_descent(&self) -> bool {
        false
    }

    /// The settings that were found where they were left open, for the config to run the same
    /// again.
    fn resolved(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The names of the numbers that its servers give beside every draw.
    fn numbers(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether a round can end without a client's answer.
    fn spares_answers(&self) -> bool;

    /// Whether the draws are biased at every step, however small.
    fn is_biased_by_design(&self, target: &Target) -> bool;

    /// What is known to be wrong before anything is known of the target, in words.
    fn cautions(&self) -> Vec<String> {
        Vec::new()
    }

    /// What helps against a bias where a smaller step does not, in words.
    fn remedy(&self, target: &Target) -> &'static str;

    /// What most of the clients' answers are.
    fn answers(&self) -> Kind;

    /// How many bits the answers would have by a formula that the sampler's paper counts with,
    /// where it has one.
    fn published_bits(&self, _dim: usize, _ledger: &Ledger) -> Option<u64> {
        None
    }
}

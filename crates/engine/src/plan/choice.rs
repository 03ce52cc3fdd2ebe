//! Choose a sampler by what it would cost, and say what the others would have.

use consilience_core::compress::Message;
use consilience_core::protocol::{Direction, Ledger};
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::sampler::forecast::QuadraticModel;
use consilience_core::sampler::registry::{self, Row};
use consilience_core::sampler::{CAUTION, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::Target;

use serde::{Deserialize, Serialize};

use super::bias;
use super::shaped::Foretold;

/// A pilot is taken to be this much too hopeful.
pub(super) const HOPE: f64 = 0.8;
/// The samplers of the papers that are shown for comparison.
const COMPARED: [&str; 2] = ["lmc", "qlsd++"];

/// What sampling by one sampler is foretold to cost, surveys and pilots not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The sampler.
    pub sampler: String,
    /// Effective draws for an iteration, of the worst parameter.
    pub efficiency: f64,
    /// How many iterations all chains together need.
    pub iterations: f64,
    /// How many exchanges a chain needs, all of them side by side.
    pub exchanges: f64,
    /// How many bytes go both ways, between the server and all sites.
    pub bytes: f64,
    /// By how much standard deviations are foretold to be off, relatively: nothing where the
    /// sampler is exact. (What means are off by takes a survey of its own.)
    pub bias: Option<f64>,
    /// Why it is not used, where it could not be.
    pub refused: Option<String>,
}

/// What was tried, and what was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// All that was looked at, the cheapest first.
    pub candidates: Vec<Candidate>,
    /// The one that is used.
    pub chosen: String,
    /// How often its proposals are foretold to be accepted; nothing where nothing was tried.
    pub acceptance: Option<f64>,
    /// The tail of the weights of `imh`, where it was tried.
    pub khat: Option<f64>,
    /// How many axes of its proposals are bent.
    pub bent: usize,
    /// How many exchanges surveys and pilots took.
    pub exchanges: u64,
}

/// How large a run is to be, and of what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) dim: usize,
    pub(super) clients: usize,
    pub(super) chains: usize,
    /// How many effective draws are wanted.
    pub(super) draws: f64,
    /// How many proposals an exchange of `imh` asks about, at the most.
    pub(super) block: f64,
}

impl Candidate {
    /// What a sampler that accepts or rejects would cost.
    pub(super) fn exact(row: &'static Row, foretold: &Foretold, size: Size) -> Self {
        let (d, sites) = (size.dim as f64, size.clients as f64);
        let iterations = (size.draws / (HOPE * foretold.efficiency)).ceil();
        let each = (iterations / size.chains as f64).ceil();
        let header = 4.0;
        let (exchanges, bytes) = match row.name {
            "imh" => {
                let exchanges = (each / size.block).ceil();
                let told = 8.0 * foretold.proposal.as_ref().map_or(1, |p| p.parts().len()) as f64;
                let headers = (told + 3.0 * header) * exchanges * size.chains as f64;
                (exchanges, sites * (8.0 * iterations + headers))
            }
            "pcn" => (each, sites * iterations * (8.0 + 2.0 * header)),
            _ => {
                let steps = f64::from(foretold.leapfrog);
                let one = 16.0 * d + 8.0 + 2.0 * header;
                (each * steps, sites * iterations * steps * one)
            }
        };
        Candidate {
            sampler: row.name.into(),
            efficiency: foretold.efficiency,
            iterations,
            exchanges,
            bytes,
            bias: None,
            refused: foretold.refusal(),
        }
    }

    /// Costs that are not known are nothing: a file has no NaN.
    pub(super) fn forget_unknown(&mut self) {
        for cost in
            [&mut self.efficiency, &mut self.iterations, &mut self.exchanges, &mut self.bytes]
        {
            if !cost.is_finite() {
                *cost = 0.0;
            }
        }
    }

    /// What the papers' samplers would cost, at the largest step whose bias is within the goals by
    /// the quadratic model of the target.
    pub(super) fn papers(model: &QuadraticModel, target: &Target, size: Size) -> Vec<Self> {
        let of = |name: &&'static str| {
            let row = registry::find(name)?;
            let draft = row.recipe(
                Schedule::Constant(1.0),
                &registry::Settings::default(),
                size.clients,
                size.dim,
                None,
            );
            let step = bias::step_within_goals(model, &draft, 1e-6, CAUTION)?;
            let recipe = draft.with_step(Schedule::Constant(step));
            let forecast = model.forecast(&recipe)?;
            let efficiency = (0.5 * step).min(1.0);
            let iterations = (size.draws / efficiency).ceil();
            let one = 4.0 * size.dim as f64 + answer_bytes(&recipe, target) + 6.0;
            Some(Candidate {
                sampler: row.name.into(),
                efficiency,
                iterations,
                exchanges: (iterations / size.chains as f64).ceil(),
                bytes: size.clients as f64 * iterations * one,
                bias: Some(forecast.worst().1),
                refused: None,
            })
        };
        COMPARED.iter().filter_map(of).collect()
    }
}

/// How many bytes a client's answer takes: those of a compressed vector of normal numbers.
fn answer_bytes(recipe: &Recipe, target: &Target) -> f64 {
    let dim = target.dim();
    let plain = 4.0 * dim as f64;
    let channels = recipe.family().channels(target).unwrap_or_default();
    let Some(channel) = channels.into_iter().next().flatten() else { return plain };
    let mut stream = Seed::new(0).stream(Purpose::Pilot, ClientId(0), 0);
    let mut vector = vec![0.0; dim];
    stream.normals(&mut vector);
    let mut message = Message::default();
    match channel.quantise(&vector, &mut stream, &mut message) {
        Ok(()) => (channel.length_bits(&message) as f64 / 8.0).ceil(),
        Err(_) => plain,
    }
}

/// How many exchanges a ledger of surveys has seen.
pub(super) fn exchanges(ledger: &Ledger, clients: usize) -> u64 {
    ledger.messages(Direction::Down) / clients.max(1) as u64
}

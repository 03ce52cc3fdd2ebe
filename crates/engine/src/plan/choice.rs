//! Choose a sampler by what it would cost, and say what the others would have.

use consilience_core::protocol::{Direction, Ledger};
use consilience_core::sampler::forecast::QuadraticModel;
use consilience_core::sampler::registry::{self, Row};
use consilience_core::sampler::{CAUTION, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::Target;

use serde::{Deserialize, Serialize};

use super::bias::{self, BiasGoal};
use super::length::MARGIN;
use crate::config::{Cost, RunConfig};

/// A pilot is taken to be this much too hopeful.
pub(super) const HOPE: f64 = 0.8;
/// Chains of the papers' samplers are longer than their efficiency asks for by a margin, and by
/// their burn-in.
const LENGTH: f64 = 0.9 / MARGIN;
/// The samplers of the papers that are shown for comparison.
const COMPARED: [&str; 2] = ["lmc", "qlsd++"];
/// How many chains there are, where that is left open and more of them gain nothing.
pub(super) const CHAINS: usize = 4;
/// Where chains are gained from: so many effective draws for each, and so many chains at most.
const DRAWS_OF_A_CHAIN: f64 = 200.0;
const MOST_CHAINS: f64 = 32.0;

/// What sampling by one sampler is foretold to cost, surveys and pilots not included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The sampler.
    pub sampler: String,
    /// Effective draws for an iteration, of the worst parameter.
    pub efficiency: f64,
    /// How many chains it would have.
    pub chains: usize,
    /// How many iterations all chains together need, burn-in included.
    pub iterations: f64,
    /// How many exchanges a chain needs, all of them side by side.
    pub exchanges: f64,
    /// How many bytes go both ways, between the server and all sites.
    pub bytes: f64,
    /// How many seconds the network takes, by the latency and the bandwidth of the config; what
    /// sites compute is not counted.
    pub seconds: f64,
    /// By how much standard deviations are foretold to be off, relatively: nothing where the
    /// sampler is exact.
    pub bias: Option<f64>,
    /// By how many posterior standard deviations means are foretold to be off; nothing where the
    /// sampler is exact.
    #[serde(default)]
    pub mean_bias: Option<f64>,
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
    /// The scale of effects along which its proposals have nodes, where they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// How many exchanges surveys and pilots took.
    pub exchanges: u64,
}

/// How large a run is to be, and what counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) clients: usize,
    /// How many chains, where the config says so.
    chains: Option<usize>,
    /// How many effective draws are wanted.
    draws: f64,
    cost: Cost,
    /// Seconds that an exchange takes whatever it carries, and bytes a second.
    latency: f64,
    bandwidth: f64,
}

impl Size {
    pub(super) fn new(run: &RunConfig, clients: usize) -> Self {
        Size {
            clients,
            chains: run.chains,
            draws: run.effective_draws as f64,
            cost: run.cost,
            latency: run.latency_ms / 1000.0,
            bandwidth: run.bandwidth_mbit * 1e6 / 8.0,
        }
    }

    /// How many chains a sampler has here.
    pub(super) fn chains(&self, recipe: &Recipe) -> usize {
        let many = (self.draws / DRAWS_OF_A_CHAIN).clamp(CHAINS as f64, MOST_CHAINS);
        let family = recipe.family();
        let gains = family.is_exact() && family.gains_by_chains();
        self.chains.unwrap_or(if gains { many as usize } else { CHAINS })
    }

    /// What is to be small.
    pub(super) fn cost(&self, candidate: &Candidate) -> f64 {
        match self.cost {
            Cost::Bytes => candidate.bytes,
            Cost::Exchanges => candidate.exchanges,
            Cost::Seconds => candidate.seconds,
        }
    }
}

impl Candidate {
    /// What a sampler would cost of whose efficiency so much can be hoped for; costs that are not
    /// known are 0, since a file has no NaN.
    pub(super) fn new(
        row: &'static Row,
        recipe: &Recipe,
        target: &Target,
        (efficiency, hope): (f64, f64),
        size: &Size,
    ) -> Self {
        let (family, chains) = (recipe.family(), size.chains(recipe));
        let traffic = family.traffic(target);
        let each =
            (size.draws / (hope * efficiency) / chains as f64).ceil() + family.settling() as f64;
        let iterations = each * chains as f64;
        let exchanges = (each * traffic.exchanges).ceil();
        let whole = (exchanges / traffic.exchanges / each).max(1.0);
        // A block that is not used up is sent all the same, but only what stands around it counts.
        let bytes = size.clients as f64 * iterations * (traffic.up + traffic.down * whole);
        let known = |cost: f64| if cost.is_finite() { cost } else { 0.0 };
        Candidate {
            sampler: row.name.into(),
            efficiency: known(efficiency),
            chains,
            iterations: known(iterations),
            exchanges: known(exchanges),
            bytes: known(bytes),
            seconds: known(exchanges * size.latency + bytes / size.bandwidth),
            bias: None,
            mean_bias: None,
            refused: None,
        }
    }

    /// What the papers' samplers would cost, at the largest step whose bias is within the goals by
    /// the quadratic model of the target.
    pub(super) fn papers(
        model: &QuadraticModel,
        target: &Target,
        size: &Size,
        goal: BiasGoal,
    ) -> Vec<Self> {
        let of = |name: &&'static str| {
            let row = registry::find(name)?;
            let draft = row.recipe(
                Schedule::Constant(1.0),
                &registry::Settings::default(),
                size.clients,
                target.dim(),
                None,
            );
            let step = bias::step_within_goals(model, &draft, goal, 1e-6, CAUTION)?;
            let recipe = draft.with_step(Schedule::Constant(step));
            let (mean, sd) = model.forecast(&recipe)?.worst();
            let one = Candidate::new(row, &recipe, target, ((0.5 * step).min(1.0), LENGTH), size);
            Some(Candidate { bias: Some(sd), mean_bias: Some(mean), ..one })
        };
        COMPARED.iter().filter_map(of).collect()
    }
}

/// How many exchanges a ledger of surveys has seen.
pub(super) fn exchanges(ledger: &Ledger, clients: usize) -> u64 {
    ledger.messages(Direction::Down) / clients.max(1) as u64
}

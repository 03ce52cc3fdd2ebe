//! Decide what the config left open: the step, the optimum, the start, by surveys that are counted.

use consilience_core::protocol::{Direction, Ledger};
use consilience_core::rng::Seed;
use consilience_core::sampler::registry::Family;
use consilience_core::sampler::{Anchor, Average, NoiseScale, Participation, Recipe, Synchronise};
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Curvature, Evaluate, LocalCurvature, Optimum, conduct};
use consilience_core::target::Target;

use crate::config::{Config, ConfigError, Start};
use crate::problem::Problem;

/// An automatic step is this fraction of the inverse curvature: in the stiffest direction it widens the sampled standard deviation by a fortieth.
const CAUTION: f64 = 0.1;
/// How small the gradient at the optimum must be, relative to the one at 0.
const OPTIMUM_TOLERANCE: f64 = 1e-9;
const MOST_EXCHANGES: u64 = 1000;

/// A sampler ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The sampler.
    pub recipe: Recipe,
    /// The target as this sampler needs it.
    pub target: Target,
    /// Where chains start.
    pub start: Vec<f64>,
    /// What the surveys found, if there were any.
    pub findings: Option<Findings>,
    /// What the surveys sent.
    pub survey: Ledger,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// What the surveys found out about the target.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The minimiser of `U`.
    pub optimum: Vec<f64>,
    /// The smallest curvature, at the optimum.
    pub convexity: f64,
    /// The largest curvature, at the optimum or at 0, whichever is more.
    pub smoothness: f64,
    /// The largest curvature of each client's own potential, likewise.
    pub local_smoothness: Vec<f64>,
}

impl Plan {
    /// Plan the run of a config.
    pub fn new(config: &Config, problem: &Problem) -> Result<Plan, ConfigError> {
        let target = &problem.target;
        let (d, b) = (target.dim(), target.clients.len());
        let place = &config.sampler.place;
        let complain = |problem: String, fix: &str| config.source.complain(place, problem, fix);
        let mut survey = Ledger::new(b);
        let row = config.sampler.row;
        let mut warnings = Vec::new();

        let mut settings = config.sampler.settings.clone();
        if let (Some(p), Some(Participation::Bernoulli(list))) = (config.sampler.participation_probability, &mut settings.participation) {
            *list = vec![p; b];
        }
        if config.sampler.weights_by_rows {
            let rows: Vec<f64> = target.clients.iter().map(|c| c.rows() as f64).collect();
            let all: f64 = rows.iter().sum();
            settings.weights = Some(rows.iter().map(|r| r / all).collect());
        }

        let needs_survey = config.sampler.step.is_none() || row.needs_optimum || config.run.start == Start::Optimum;
        let findings = if needs_survey { Some(Findings::survey(target, config.seed, &mut survey, &mut warnings)) } else { None };

        // A recipe with a step of 1 shows everything but the step, and is checked as far as it goes.
        let precision = settings.precision.unwrap_or(consilience_core::protocol::Precision::F32);
        let anchor = findings.as_ref().filter(|_| row.needs_optimum).map(|found| {
            let mut point = found.optimum.clone();
            precision.round(&mut point);
            let sum = conduct(Evaluate::new(target, &point), &mut Client::all(target), &mut survey);
            Anchor { residual: sum.gradient().to_vec(), point }
        });
        let draft = row.recipe(Schedule::Constant(1.0), &settings, b, anchor);
        let step = match (config.sampler.step, &findings) {
            (Some(step), _) => step,
            (None, Some(found)) => Schedule::Constant(found.step(&draft)),
            (None, None) => return Err(complain("no step could be found".into(), "set sampler.step to a number")),
        };
        let recipe = with_step(draft, step);
        let target = recipe.check(target.clone()).map_err(|e| complain(e.to_string(), "correct [sampler]"))?;

        let start = match &config.run.start {
            Start::Zero => vec![0.0; d],
            Start::Optimum => findings.as_ref().map_or_else(|| vec![0.0; d], |f| f.optimum.clone()),
            Start::Point(point) if point.len() != d => {
                let problem = format!("run.start has {} numbers, the model has {d} parameters", point.len());
                return Err(complain(problem, "give one number for each parameter"));
            }
            Start::Point(point) => point.clone(),
        };
        warn(&recipe, findings.as_ref(), &mut warnings);
        Ok(Plan { recipe, target, start, findings, survey, warnings })
    }

    /// The bits that the surveys sent up and down.
    pub fn survey_bits(&self) -> (u64, u64) {
        (self.survey.total(Direction::Up), self.survey.total(Direction::Down))
    }

    /// The first (and largest) step.
    pub fn step(&self) -> Schedule {
        match &self.recipe {
            Recipe::Uplink(recipe) => recipe.step,
            Recipe::Local(recipe) => recipe.step,
        }
    }
}

impl Findings {
    fn survey(target: &Target, seed: u64, ledger: &mut Ledger, warnings: &mut Vec<String>) -> Findings {
        let mut clients = Client::all(target);
        let zero = vec![0.0; target.dim()];
        let optimum = conduct(Optimum::new(target, &zero, OPTIMUM_TOLERANCE, MOST_EXCHANGES), &mut clients, ledger);
        if !optimum.converged() {
            warnings.push(format!(
                "the optimum was not reached in {} exchanges: the largest gradient left there is {:.2e}. Samplers stay right, control variates are less good.",
                optimum.exchanges(),
                optimum.gradient().iter().fold(0.0f64, |m, g| m.max(g.abs()))
            ));
        }
        let at_optimum = conduct(Curvature::new(target, optimum.point(), Seed::new(seed)), &mut clients, ledger).extremes();
        let at_zero = conduct(Curvature::new(target, &zero, Seed::new(seed)), &mut clients, ledger).extremes();
        let local_optimum = conduct(LocalCurvature::new(target, optimum.point()), &mut clients, ledger);
        let local_zero = conduct(LocalCurvature::new(target, &zero), &mut clients, ledger);
        Findings {
            convexity: at_optimum.0,
            smoothness: at_optimum.1.max(at_zero.1),
            local_smoothness: local_optimum.largest().iter().zip(local_zero.largest()).map(|(a, b)| a.max(*b)).collect(),
            optimum: optimum.point().to_vec(),
        }
    }

    /// The automatic step of a recipe.
    pub fn step(&self, recipe: &Recipe) -> f64 {
        match recipe {
            Recipe::Uplink(recipe) => {
                let rarest = match &recipe.participation {
                    Participation::All => 1.0,
                    Participation::Bernoulli(p) => p.iter().copied().fold(1.0, f64::min),
                    Participation::Fixed(size) => *size as f64 / self.local_smoothness.len() as f64,
                };
                CAUTION * rarest / self.smoothness
            }
            Recipe::Local(recipe) => {
                // A client that walks alone for 1/rate iterations is pulled by U_c / p_c.
                let rate = match recipe.synchronise {
                    Synchronise::Every(every) => 1.0 / every as f64,
                    Synchronise::Randomly(p) => p,
                };
                let alone = self.local_smoothness.iter().zip(&recipe.weights).map(|(l, p)| l / p).fold(0.0, f64::max);
                (CAUTION / self.smoothness).min(CAUTION.sqrt() * rate / alone.max(self.smoothness))
            }
        }
    }
}

fn with_step(recipe: Recipe, step: Schedule) -> Recipe {
    match recipe {
        Recipe::Uplink(mut recipe) => {
            recipe.step = step;
            Recipe::Uplink(recipe)
        }
        Recipe::Local(mut recipe) => {
            recipe.step = step;
            Recipe::Local(recipe)
        }
    }
}

fn warn(recipe: &Recipe, findings: Option<&Findings>, warnings: &mut Vec<String>) {
    if let Recipe::Local(local) = recipe
        && local.average != Average::All
        && local.noise == NoiseScale::Everybody
    {
        warnings.push(format!(
            "only some of {} clients are averaged, with the private noise as published: the mean carries too much noise, and the posterior comes out too wide. Set noise = \"participants\" to mend that.",
            local.weights.len()
        ));
    }
    let Some(found) = findings else { return };
    let (step, family) = match recipe {
        Recipe::Uplink(recipe) => (recipe.step.largest(), Family::Uplink),
        Recipe::Local(recipe) => (recipe.step.largest(), Family::Local),
    };
    let limit = 2.0 / found.smoothness;
    if step >= limit {
        warnings.push(format!(
            "the step {step:.3e} is beyond the stable limit 2/L = {limit:.3e}: the chain will diverge. Use step = \"auto\"."
        ));
    } else if family == Family::Uplink && step > 0.5 * limit {
        warnings.push(format!("the step {step:.3e} is more than half the stable limit 2/L = {limit:.3e}: expect a visible bias."));
    }
}

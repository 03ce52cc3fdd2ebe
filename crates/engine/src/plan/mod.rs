//! Decide what the config left open: the step, the optimum, the start, the length, by surveys that
//! are counted.

mod bias;
mod choice;
mod columns;
pub(crate) mod descent;
mod device;
mod exact;
mod length;
mod nets;
mod priors;
mod proper;
mod shaped;
mod survey;

use std::sync::Arc;

use consilience_core::measure::{Chains, Interval, ess_bulk, ess_tail};
use consilience_core::model::{Coordinates, Model};
use consilience_core::protocol::{Direction, Ledger};
use consilience_core::rng::{Purpose, SERVER};
use consilience_core::sampler::forecast::{Forecast, QuadraticModel};
use consilience_core::sampler::registry::{self, Row, Settings};
use consilience_core::sampler::{Anchor, Batch, CAUTION, Keys, Participation, Recipe};
use consilience_core::step::Schedule;
use consilience_core::survey::Evaluate;
use consilience_core::target::{Placement, Target};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::conductor::{Conductor, Here, Lost};
use crate::config::{Config, ConfigError, FieldLocation, Start};
use crate::models::ParameterGroup;
use crate::privacy;
use crate::problem::Problem;
use crate::run::{Length, Outcome};
use crate::warnings::draws::SHORT;
use crate::warnings::{Code, LOG_WEIGHT, Warning, WeightTail};
use bias::BiasGoal;
use choice::HOPE;
pub use choice::{Candidate, Choice};
use descent::Downhill;
pub use device::{DeviceError, on_gpu};
pub use survey::{Findings, MOST_WHITENED};

/// Fewer effective draws than this say nothing of a pilot.
const LEAST_EXPECTED: f64 = 400.0;
/// How often chains are made longer. How many effective draws come out scatters from run to run
/// where a posterior is skewed, and another sampler takes a thousand times the exchanges.
const MOST_LONGER: usize = 3;
/// Chains that start around the optimum start so many posterior standard deviations away from it:
/// far enough for R-hat to notice if they do not come together.
const DISPERSION: f64 = 1.5;

/// A sampler ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The sampler's name and what is known of it; where the config leaves it open, the one that
    /// was chosen.
    pub row: &'static Row,
    /// The sampler.
    pub recipe: Recipe,
    /// The target as this sampler needs it.
    pub target: Target,
    /// The coordinates in which chains move, if not those of the parameters.
    pub coordinates: Option<Arc<Coordinates>>,
    /// How long chains are.
    pub length: Length,
    /// Where chains start, in words.
    pub begins: Start,
    /// Where chains start, in those coordinates.
    pub start: Vec<f64>,
    /// How far from there each chain starts, at random, in the same coordinates.
    pub dispersion: f64,
    /// The same coordinate by coordinate, where the model says so.
    pub spread: Option<Vec<f64>>,
    /// The groups that parameters belong to, where they are too many to be shown.
    pub layers: Vec<ParameterGroup>,
    /// What the surveys found, if there were any.
    pub findings: Option<Findings>,
    /// How the draws are forecast to differ from the posterior, where the clients' Hessians are
    /// known and the step is constant.
    pub forecast: Option<Forecast>,
    /// What was tried and chosen, where the sampler is one that accepts or rejects.
    pub choice: Option<Choice>,
    /// What the surveys sent.
    pub survey: Ledger,
    /// What the user should know.
    pub warnings: Vec<Warning>,
    /// How every chain's start is taken downhill first, if so.
    pub(crate) downhill: Option<Arc<Downhill>>,
    /// The model of all clients on a GPU, if that computes: with the bits of their own.
    pub(crate) accelerator: Option<Arc<dyn Model>>,
    /// What clients must be told.
    pub decision: Decision,
    /// Whether its chains follow the paths of others, at half the step.
    pub(crate) halved: bool,
    /// What is known for another choice.
    pub(crate) so_far: Option<exact::SoFar>,
}

/// What is wrong with the draws of a sampler that was chosen automatically.
#[derive(Clone, Debug, PartialEq)]
pub struct Disappointment {
    /// What, in words.
    pub why: String,
    /// What an iteration was worth, where longer chains would do; else the draws are given up.
    pub efficiency: Option<f64>,
}

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// The config does not fit its data.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A survey came to no end.
    #[error(transparent)]
    Lost(#[from] Lost),
}

/// What a client must be told of a plan to take part in its chains: the rest is in the config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The sampler, where the config left it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<String>,
    /// The constant step, where the config left it open.
    pub step: Option<f64>,
    /// The clients' weights, where they are not equal.
    pub weights: Option<Vec<f64>>,
    /// How many chains there are, where the config left it open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains: Option<u64>,
    /// How many samplers were given up before.
    #[serde(default)]
    pub attempt: u32,
    /// Whether these are the chains of half the step.
    #[serde(default)]
    pub halved: bool,
}

impl Decision {
    /// How many chains there are.
    pub fn chains(&self, config: &Config) -> usize {
        if config.sampler.row.family.asks_twice {
            return 1; // whatever a server says: each would be two releases more
        }
        let told = self.chains.map(|chains| chains as usize);
        config.run.chains.or(told).unwrap_or(choice::CHAINS)
    }

    /// The sampler and the target of a client that was told so, in the coordinates that it was
    /// told.
    pub fn recipe(&self, config: &Config, target: Target) -> Result<(Recipe, Target), ConfigError> {
        let complain = |problem: String| {
            config.source.complain(&config.sampler.place, problem, "correct [sampler]")
        };
        let (d, b) = (target.dim(), target.clients.len());
        let row = match &self.sampler {
            None => config.sampler.row,
            Some(name) if config.sampler.row.is_auto() => registry::find(name)
                .filter(|row| !row.is_auto())
                .ok_or_else(|| complain(format!("the server chose \"{name}\", which is none")))?,
            Some(name) => {
                return Err(complain(format!("the server chose {name}, which is not agreed on")));
            }
        };
        let step = match (config.sampler.step, self.step) {
            (Some(step), _) => step,
            (None, Some(step)) => Schedule::Constant(step),
            (None, None) if !row.has_step() => Schedule::Constant(1.0),
            (None, None) => return Err(complain("the server told no step".into())),
        };
        let step = match step {
            Schedule::Constant(step) if self.halved => Schedule::Constant(0.5 * step),
            step => step,
        };
        let mut settings = settings(config, b);
        settings.weights = self.weights.clone().or(settings.weights);
        // Clients are sent the reference point itself.
        let anchor =
            row.needs_optimum.then(|| Anchor { residual: vec![0.0; d], point: vec![0.0; d] });
        let recipe = row.recipe(step, &settings, b, d, anchor);
        let recipe = privacy::applied(config, recipe, d)?;
        let target = recipe.check(target).map_err(|e| complain(e.to_string()))?;
        Ok((recipe, target))
    }
}

/// The sampler's settings for so many clients.
/// By which share rounding may heat a private chain, unless somebody says that it may.
const MOST_HEAT: f64 = 0.05;

pub(crate) fn settings(config: &Config, clients: usize) -> Settings {
    let mut settings = config.sampler.settings.clone();
    if let (Some(p), Some(Participation::Bernoulli(list) | Participation::Elastic(list))) =
        (config.sampler.participation_probability, &mut settings.participation)
    {
        *list = vec![p; clients];
    }
    settings.once = privacy::once(config).ok();
    if let Some(privacy) = &config.privacy {
        settings.weak = privacy.weak;
        settings.most_heat = (!privacy.hot).then_some(MOST_HEAT);
        if let (true, Some(Batch::Fraction(share))) = (privacy.poisson, &settings.batch) {
            settings.batch = Some(Batch::Each(*share));
        }
    }
    settings
}

/// Refuse a minibatch that is larger than the smallest site.
fn check_batch(config: &Config, problem: &Problem) -> Result<(), ConfigError> {
    let stated = &config.sampler.settings.batch;
    let model = config.target.model.of_rows();
    if let (Some(Batch::Rows(_) | Batch::Fraction(_)), Some(model)) = (stated, &model)
        && model.is_whole()
    {
        let place = FieldLocation { field: "sampler.batch".into(), ..config.sampler.place.clone() };
        let problem = format!(
            "{} compares every row with all others of its site, and has no minibatches",
            model.row().title
        );
        return Err(config.source.complain(
            &place,
            problem,
            "use batch = \"all\", or leave it out",
        ));
    }
    let Some(Batch::Rows(batch)) = config.sampler.settings.batch else { return Ok(()) };
    let sizes =
        problem.clients.iter().zip(problem.target.clients.iter().map(|client| client.rows()));
    let Some((site, rows)) = sizes.min_by_key(|(_, rows)| *rows).filter(|(_, rows)| *rows < batch)
    else {
        return Ok(());
    };
    let place = FieldLocation { field: "sampler.batch".into(), ..config.sampler.place.clone() };
    Err(config.source.complain(
        &place,
        format!("a batch of {batch} rows is larger than client \"{site}\", which has {rows}"),
        format!(
            "use batch = {rows} or less, a share of every client's rows such as batch = 0.2, or \
             batch = \"all\""
        ),
    ))
}

impl Plan {
    /// Plan the run of a config, all of whose data is in this process.
    pub fn new(config: &Config, problem: &Problem) -> Result<Plan, ConfigError> {
        if config.sampler.round_deadline.is_some() {
            let place = FieldLocation {
                field: "sampler.participation".into(),
                ..config.sampler.place.clone()
            };
            let problem =
                "it is elastic, and in one process nobody is ever late: everybody would count 1/p";
            return Err(config.source.complain(
                &place,
                problem,
                "use participation = 0.7, which draws who takes part; or `consilience serve`",
            ));
        }
        let planned = Plan::conducted(config, problem, &mut Here);
        let mut plan = planned.map_err(|error| match error {
            PlanError::Config(error) => error,
            PlanError::Lost(lost) => {
                let fix =
                    if problem.target.joint.is_some() { "correct the model" } else { "try again" };
                config.source.complain(&config.sampler.place, lost.to_string(), fix)
            }
        })?;
        if config.privacy.is_some() {
            plan.warnings.push(privacy::simulated(privacy::check_run(config, problem)?));
        }
        plan.accelerate(config)?;
        Ok(plan)
    }

    /// Plan the run of a config by surveys that somebody carries.
    pub fn conducted(
        config: &Config,
        problem: &Problem,
        conductor: &mut dyn Conductor,
    ) -> Result<Plan, PlanError> {
        let row = config.sampler.row;
        if row.family.needs_shape && !nets::is_unshaped(config, row) {
            privacy::refuse_surveys(config)?;
            nets::check(config, row)?;
            exact::plan(config, problem, conductor)
        } else if config.sampler.row.family.asks_twice {
            Ok(Plan::of_release(config, problem, config.sampler.row)?)
        } else {
            Plan::of_row(config, problem, conductor, config.sampler.row)
        }
    }

    /// Plan a sampler whose sites answer twice: there is nothing to survey, and nothing may be.
    fn of_release(
        config: &Config,
        problem: &Problem,
        row: &'static Row,
    ) -> Result<Plan, ConfigError> {
        privacy::check_run(config, problem)?;
        let (d, b) = (problem.target.dim(), problem.target.clients.len());
        let recipe = row.recipe(Schedule::Constant(1.0), &settings(config, b), b, d, None);
        let target = recipe.check(problem.target.clone()).map_err(|e| {
            let place = &config.target.prior_place;
            config.source.complain(place, e.to_string(), "correct [target] or [privacy]")
        })?;
        let run = &config.run;
        // A draw asks nobody, so that twice as many as are wanted cost little; the chain warms up
        // on its own.
        let iterations = run.iterations.unwrap_or(2 * run.effective_draws);
        let (burn_in, thin) = (run.burn_in.unwrap_or(0), run.thin.unwrap_or(1));
        Ok(Plan {
            row,
            recipe,
            target,
            coordinates: None,
            length: Length { chains: 1, iterations, burn_in, thin, threads: run.threads },
            begins: Start::Zero,
            start: vec![0.0; d],
            dispersion: 0.0,
            spread: None,
            layers: Vec::new(),
            findings: None,
            forecast: None,
            choice: None,
            survey: Ledger::new(b),
            warnings: Vec::new(),
            downhill: None,
            accelerator: None,
            decision: Decision {
                sampler: None,
                step: None,
                weights: None,
                chains: None,
                attempt: 0,
                halved: false,
            },
            halved: false,
            so_far: None,
        })
    }

    /// Plan a sampler whose bias depends on its step.
    fn of_row(
        config: &Config,
        problem: &Problem,
        conductor: &mut dyn Conductor,
        row: &'static Row,
    ) -> Result<Plan, PlanError> {
        let original = &problem.target;
        let (d, b) = (original.dim(), original.clients.len());
        let place = &config.sampler.place;
        let complain = |problem: String, fix: &str| config.source.complain(place, problem, fix);
        let mut survey = Ledger::new(b);
        let mut warnings = problem.warnings.clone();
        if config.privacy.is_some() {
            privacy::check_run(config, problem)?;
        }
        check_batch(config, problem)?;
        nets::check(config, row)?;

        let mut settings = settings(config, b);
        if config.sampler.weights_by_rows {
            let rows: Vec<f64> = original.clients.iter().map(|c| c.rows() as f64).collect();
            let all: f64 = rows.iter().sum();
            settings.weights = Some(rows.iter().map(|r| r / all).collect());
        }
        let weights = settings.weights.clone();

        // A step that is stated is meant for the parameters' own coordinates, and needs no survey.
        let open = config.sampler.step.is_none();
        let precondition =
            config.sampler.precondition.unwrap_or(open && d <= survey::MOST_WHITENED);
        if precondition && d > survey::MOST_WHITENED {
            let most = survey::MOST_WHITENED;
            let problem = format!(
                "preconditioning needs a {d} x {d} matrix, which is too much beyond {most} \
                 parameters"
            );
            return Err(complain(problem, "set precondition = false").into());
        }
        let surveyed = open || precondition || row.needs_optimum;
        let law = nets::start_law(config, problem)?;
        let usual = match (surveyed, &law) {
            (true, _) => Start::Optimum,
            (false, Some(_)) => Start::Drawn,
            (false, None) => Start::Zero,
        };
        let begins = config.run.start.clone().unwrap_or(usual);
        let law = law.filter(|_| begins == Start::Drawn);
        if begins == Start::Drawn && law.is_none() {
            let problem = "run.start is \"drawn\", and the model has no law of starts";
            return Err(complain(problem.into(), "use \"zero\", \"optimum\" or numbers").into());
        }
        let wanted = surveyed || begins == Start::Optimum;
        let dense = d <= survey::MOST_WHITENED;
        let values = original.joint.as_ref().is_none_or(|model| model.offers().values);
        let fits = wanted && dense && values;
        let fitted = if fits {
            Some(shaped::fit(config, problem, conductor, &mut survey, &mut warnings)?)
        } else {
            None
        };
        let optimum = match &fitted {
            Some(fitted) => Some(fitted.optimum.clone()),
            None if wanted => {
                Some(survey::find_optimum(problem, conductor, &mut survey, &mut warnings)?)
            }
            None => None,
        };
        let fitted = match &optimum {
            Some(optimum) if fitted.is_none() && dense => {
                Some(survey::curved(original, optimum, conductor, &mut survey)?)
            }
            _ => fitted,
        };
        if !fits && config.privacy.is_none() {
            let hessian = fitted.as_ref().map(|fitted| &fitted.hessian[..]);
            if columns::are_suspected(config, problem, hessian) {
                columns::ask_for_columns(config, problem, conductor, &mut survey, &mut warnings)?;
            }
        }
        let mut coordinates = None;
        if let (Some(fitted), true) = (&fitted, precondition) {
            coordinates = Coordinates::whitening(&fitted.mean, &fitted.precision).map(Arc::new);
            if coordinates.is_none() {
                let problem = "the Hessian at the optimum is not positive definite";
                if config.sampler.precondition == Some(true) {
                    let fix = "set precondition = false, or give the target a Gaussian prior";
                    return Err(complain(problem.into(), fix).into());
                }
                let says =
                    format!("{problem}, so that the chains are not preconditioned and may be slow");
                warnings.push(
                    Warning::new(Code::NotPreconditioned, says)
                        .remedy("Give the target a Gaussian prior"),
                );
            }
        }
        let equal = vec![1.0 / b as f64; b];
        let mut shares = match &original.placement {
            Placement::Split(shares) => shares.clone(),
            Placement::Server => settings.weights.clone().unwrap_or(equal),
        };
        let target = match &coordinates {
            Some(coordinates) => {
                survey::whiten(original, coordinates, &shares, conductor, &mut survey)?
            }
            None => original.clone(),
        };
        let inward = |x: &[f64]| coordinates.as_ref().map_or_else(|| x.to_vec(), |c| c.inward(x));
        // The step must be stable where chains start, too.
        let origin = match &begins {
            Start::Optimum => None,
            Start::Point(point) if point.len() == d => Some(inward(point)),
            Start::Zero | Start::Drawn | Start::Point(_) => Some(inward(&vec![0.0; d])),
        };
        let known = fitted.as_ref().filter(|fitted| fitted.parts.len() == b);
        let findings = match optimum {
            None => None,
            Some(optimum) => {
                let nobody = vec![0.0; b];
                let server = coordinates.is_none() && target.placement == Placement::Server;
                let shares = if server { &nobody } else { &shares };
                let found = known
                    .and_then(|fitted| Findings::of_parts(fitted, shares, coordinates.as_deref()));
                let found = match found {
                    Some(found) => found,
                    None => {
                        let there = inward(&optimum);
                        let (seed, sent) = (config.seed, &mut survey);
                        Findings::survey(&target, optimum, &there, seed, conductor, sent)?
                    }
                };
                Some(match &origin {
                    None => found,
                    Some(origin) => {
                        found.also_at(&target, origin, config.seed, conductor, &mut survey)?
                    }
                })
            }
        };

        // A recipe with a step of 1 shows everything but the step, and is checked as far as it
        // goes.
        let precision = settings.precision.unwrap_or(consilience_core::protocol::Precision::F32);
        let anchor = match findings.as_ref().filter(|_| row.needs_optimum) {
            None => None,
            Some(found) => {
                let mut point = inward(&found.optimum);
                precision.round(&mut point);
                let mut sum = Evaluate::new(&target, &point);
                conductor.survey(&target, &mut sum, &mut survey)?;
                Some(Anchor { residual: sum.gradient().to_vec(), point })
            }
        };
        let draft = row.recipe(Schedule::Constant(1.0), &settings, b, d, anchor);
        let draft = privacy::applied(config, draft, d)?;
        let target =
            draft.check(target).map_err(|e| complain(e.to_string(), "correct [sampler]"))?;
        if coordinates.is_none() {
            shares = match &target.placement {
                Placement::Split(shares) => shares.clone(),
                Placement::Server => vec![0.0; b],
            };
        }
        let model = known.and_then(|fitted| {
            QuadraticModel::new(
                &fitted.parts,
                &fitted.prior,
                &shares,
                coordinates.as_deref(),
                target.temperature,
            )
        });
        let goal = BiasGoal::new(config.run.most_bias);
        let automatic = findings.as_ref().map(|found| {
            let least = length::least_step(&config.run, found.convexity);
            let chosen = |model| {
                bias::step_within_goals(model, &draft, goal, least, CAUTION / found.smoothness)
            };
            model.as_ref().and_then(chosen).unwrap_or_else(|| found.step(&draft))
        });
        let step = match (config.sampler.step, automatic) {
            (Some(step), _) => step,
            (None, Some(step)) => Schedule::Constant(step),
            (None, None) => {
                return Err(complain(
                    "no step could be found".into(),
                    "set sampler.step to a number",
                )
                .into());
            }
        };
        if !(step.largest() > 0.0 && step.largest().is_finite()) {
            let largest = findings.as_ref().map_or(f64::NAN, |found| found.smoothness);
            let problem =
                format!("no step could be found: the largest curvature seems to be {largest}");
            return Err(complain(problem, "set sampler.step to a number").into());
        }
        let recipe = draft.with_step(step);
        let forecast = model.as_ref().and_then(|model| model.forecast(&recipe));

        let start = match &begins {
            Start::Zero => inward(&vec![0.0; d]),
            Start::Drawn => law.as_ref().map_or_else(|| vec![0.0; d], |law| law.mean.clone()),
            Start::Optimum => {
                findings.as_ref().map_or_else(|| vec![0.0; d], |f| inward(&f.optimum))
            }
            Start::Point(point) if point.len() != d => {
                let problem =
                    format!("run.start has {} numbers, the model has {d} parameters", point.len());
                return Err(complain(problem, "give one number for each parameter").into());
            }
            Start::Point(point) => inward(point),
        };
        let outlook = bias::Outlook {
            sampler: row.name,
            recipe: &recipe,
            target: &target,
            parameters: &problem.parameters,
            findings: findings.as_ref(),
            forecast: forecast.as_ref(),
            alarm: goal.alarm(),
            better: automatic.filter(|better| !open && *better < step.largest()),
        };
        warnings.extend(outlook.warnings());
        let dispersion =
            if coordinates.is_some() && begins == Start::Optimum { DISPERSION } else { 0.0 };
        let mut length = length::length(&config.run, &recipe, findings.as_ref(), &mut warnings);
        if nets::are_parameters_many(config) {
            nets::keep_few(config, &recipe, d, &mut length)?;
            if !recipe.family().is_exact() {
                warnings.extend(nets::learning_rate(problem, step.largest()));
            }
        }
        let model = config.target.model.of_rows();
        let downhill = match model.and_then(|m| m.descent()).filter(|_| begins == Start::Drawn) {
            None => None,
            Some(_) if !conductor.is_here() => {
                let place =
                    FieldLocation { field: "target.start".into(), ..config.sampler.place.clone() };
                let problem = "sites of a network take no descent before their chains";
                let fix = "use start = \"he\", or the file of parameters that a run has found";
                return Err(config.source.complain(&place, problem, fix).into());
            }
            Some(descent) => Some(Arc::new(Downhill::new(config, original, descent)?)),
        };
        let found = if let (None, Schedule::Constant(step)) = (config.sampler.step, step) {
            Some(step)
        } else {
            None
        };
        let chosen = config.sampler.row.is_auto().then(|| row.name.to_owned());
        let decision = Decision {
            sampler: chosen,
            step: found,
            weights,
            chains: None,
            attempt: 0,
            halved: false,
        };
        Ok(Plan {
            row,
            recipe,
            target,
            coordinates,
            length,
            begins,
            start,
            dispersion,
            spread: law.map(|law| law.sd),
            layers: config.target.model.of_rows().map_or_else(Vec::new, |model| model.groups()),
            findings,
            forecast,
            choice: None,
            survey,
            warnings,
            downhill,
            accelerator: None,
            decision,
            halved: false,
            so_far: None,
        })
    }

    /// Why the draws of a sampler that was chosen automatically are not those that were promised,
    /// if so: the tail of its weights is too heavy, or there are fewer effective draws than its
    /// pilot foretold, and its length was for (either happens without the other).
    pub fn disappointment(&self, outcome: &Outcome) -> Option<Disappointment> {
        let chosen = self.decision.sampler.as_deref()?;
        let whole = !outcome.interrupted && outcome.failure.is_none();
        if !self.recipe.family().is_exact() || !whole {
            return None;
        }
        let candidates = self.choice.iter().flat_map(|choice| &choice.candidates);
        let foretold = candidates.filter(|one| one.sampler == chosen).map(|one| one.efficiency);
        let draws = &outcome.draws;
        let kept = (draws.chains() * draws.length()) as f64;
        let thin = self.length.thin as f64;
        let expected = kept * (foretold.fold(0.0, f64::max) * thin).min(1.0);
        // The tails as forecasts take them, and as people are told of them.
        let ess = |k: usize| {
            let each = draws.parameter(k);
            let each: Vec<&[f64]> = each.iter().map(Vec::as_slice).collect();
            Chains::new(&each).map_or(f64::NAN, |c| {
                let told = Interval::default().ess_tail(&c).unwrap_or(f64::NAN);
                ess_bulk(&c).min(ess_tail(&c)).min(told)
            })
        };
        let least = (0..draws.dim()).map(ess).fold(f64::INFINITY, f64::min);
        let weights = outcome.statistics.iter().find(|s| s.name == LOG_WEIGHT);
        let tail = weights.map(|weights| WeightTail::of(&weights.values.concat()));
        if let Some(why) = tail.and_then(|tail| tail.trouble(least)) {
            return Some(Disappointment { why, efficiency: None });
        }
        // A length that is stated is what somebody wanted, and half of it is still too little.
        let fixed = self.so_far.as_ref().is_some_and(|so_far| so_far.fixed);
        let enough = if fixed { 0.5 } else { SHORT * HOPE };
        if expected < LEAST_EXPECTED || least >= enough * expected {
            return None;
        }
        // Chains that hardly move, or were made longer often, are not made longer.
        let longer = least >= LEAST_EXPECTED && !fixed && self.tries() < MOST_LONGER;
        (longer || chosen != exact::LAST).then(|| Disappointment {
            why: format!(
                "{least:.0} effective draws came out where its pilot foretold {expected:.0}"
            ),
            efficiency: longer.then_some(least / (kept * thin)),
        })
    }

    /// How often its sampler was run before.
    fn tries(&self) -> usize {
        self.so_far.as_ref().map_or(0, |so_far| so_far.tries(self.row))
    }

    /// The plan that goes on where draws disappointed, by surveys that somebody carries; `sent` is
    /// what they cost.
    pub fn after(
        &self,
        found: Disappointment,
        config: &Config,
        problem: &Problem,
        conductor: &mut dyn Conductor,
        sent: &Ledger,
    ) -> Result<Plan, PlanError> {
        let mut ledger = self.survey.clone();
        ledger.merge(sent);
        match &self.so_far {
            Some(so_far) => so_far.after((self.row, found), config, problem, conductor, ledger),
            None => Plan::conducted(config, problem, conductor),
        }
    }

    /// The chains that measure the bias of these, where the config asks for them: of half the step
    /// and twice the length, along the same paths. `None` where there is no bias to be measured.
    pub fn halves(&self, config: &Config) -> Option<Plan> {
        let Schedule::Constant(step) = self.step() else { return None };
        if !config.run.halve || self.recipe.family().is_exact() {
            return None;
        }
        let Length { chains, iterations, burn_in, thin, threads } = self.length;
        // So that every second draw is at the time of one of the others.
        let every = (1.0 / self.recipe.family().draws_per_iteration()).round().max(1.0) as u64;
        let burn_in = 2 * (burn_in - burn_in % every) + every;
        let (iterations, thin) = (2 * iterations, 2 * thin);
        let decision =
            Decision { halved: true, attempt: 1 + self.decision.attempt, ..self.decision.clone() };
        Some(Plan {
            recipe: self.recipe.with_step(Schedule::Constant(0.5 * step)),
            length: Length { chains, iterations, burn_in, thin, threads },
            halved: true,
            decision,
            ..self.clone()
        })
    }

    /// The keys of a chain, as those of the chain that it follows.
    pub(crate) fn keys(&self, keys: Keys) -> Keys {
        if self.halved { keys.halved() } else { keys }
    }

    /// Where one chain starts.
    pub(crate) fn start_of(&self, keys: Keys) -> Vec<f64> {
        let mut start = vec![0.0; self.start.len()];
        keys.public.stream(Purpose::Start, SERVER, 0).normals(&mut start);
        if let Some(spread) = &self.spread {
            start.iter_mut().zip(spread).for_each(|(z, sd)| *z *= sd);
            start.iter_mut().zip(&self.start).for_each(|(z, x)| *z += x);
            return start;
        }
        start.iter_mut().zip(&self.start).for_each(|(z, x)| *z = x + self.dispersion * *z);
        start
    }

    /// The bits that the surveys sent up and down.
    pub fn survey_bits(&self) -> (u64, u64) {
        (self.survey.total(Direction::Up), self.survey.total(Direction::Down))
    }

    /// How many bits the clients' answers would have by a formula that the sampler's paper counts
    /// with, where it has one.
    pub fn published_bits(&self, ledger: &Ledger) -> Option<u64> {
        self.recipe.family().published_bits(self.target.dim(), ledger)
    }

    /// The step of one iteration.
    pub fn step(&self) -> Schedule {
        self.recipe.step()
    }
}

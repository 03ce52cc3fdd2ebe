//! Decide what the config left open: the step, the optimum, the start, by surveys that are counted.

use std::sync::Arc;

use consilience_core::compress::Compressor;
use consilience_core::model::{Coordinates, Prior};
use consilience_core::protocol::{Direction, Kind, Ledger};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::registry::Family;
use consilience_core::sampler::registry::Settings;
use consilience_core::sampler::{Anchor, Average, Keys, NoiseScale, Participation, Recipe, Synchronise, Uplink};
use consilience_core::step::Schedule;
use consilience_core::survey::{Curvature, Evaluate, Hessian, LocalCurvature, Optimum};
use consilience_core::target::{Placement, Target};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::collinear::{dependences, describe};
use crate::conductor::{Conductor, Here, Lost};
use crate::config::{Config, ConfigError, ModelConfig, Place, RowsModel, Start};
use crate::problem::Problem;

/// An automatic step is this fraction of the inverse curvature: in the stiffest direction it widens the sampled standard deviation by a fortieth.
const CAUTION: f64 = 0.1;
/// How small the gradient at the optimum must be, relative to the one at 0.
const OPTIMUM_TOLERANCE: f64 = 1e-9;
/// Chains that start around the optimum start so many posterior standard deviations away from it: far enough for R-hat to notice if they do not come together.
const DISPERSION: f64 = 1.5;
const MOST_EXCHANGES: u64 = 1000;
/// The most parameters that are preconditioned: the map has as many numbers squared.
const MOST_WHITENED: usize = 500;
/// The most products of clients and parameters for which collinear columns are looked for where no survey is due otherwise.
const MOST_PRODUCTS: usize = 100_000;

/// A sampler ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The sampler.
    pub recipe: Recipe,
    /// The target as this sampler needs it.
    pub target: Target,
    /// The coordinates in which chains move, if not those of the parameters.
    pub coordinates: Option<Arc<Coordinates>>,
    /// Where chains start, in those coordinates.
    pub start: Vec<f64>,
    /// How far from there each chain starts, at random, in the same coordinates.
    pub dispersion: f64,
    /// What the surveys found, if there were any.
    pub findings: Option<Findings>,
    /// What the surveys sent.
    pub survey: Ledger,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// What clients must be told.
    pub decision: Decision,
}

/// What the surveys found out about the target.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The minimiser of `U`.
    pub optimum: Vec<f64>,
    /// The smallest curvature, at the optimum, in the coordinates in which chains move.
    pub convexity: f64,
    /// The largest curvature, at the optimum or where chains start, whichever is more.
    pub smoothness: f64,
    /// The largest curvature of each client's own potential, likewise.
    pub local_smoothness: Vec<f64>,
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
    /// The constant step, where the config left it open.
    pub step: Option<f64>,
    /// The clients' weights, where they are not equal.
    pub weights: Option<Vec<f64>>,
}

impl Decision {
    /// The sampler and the target of a client that was told so, in the coordinates that it was told.
    pub fn recipe(&self, config: &Config, target: Target) -> Result<(Recipe, Target), ConfigError> {
        let complain = |problem: String| config.source.complain(&config.sampler.place, problem, "correct [sampler]");
        let (d, b) = (target.dim(), target.clients.len());
        let step = match (config.sampler.step, self.step) {
            (Some(step), _) => step,
            (None, Some(step)) => Schedule::Constant(step),
            (None, None) => return Err(complain("the server told no step".into())),
        };
        let mut settings = settings(config, b);
        settings.weights = self.weights.clone().or(settings.weights);
        // Clients are sent the reference point itself.
        let anchor = config.sampler.row.needs_optimum.then(|| Anchor { residual: vec![0.0; d], point: vec![0.0; d] });
        let recipe = with_step(config.sampler.row.recipe(Schedule::Constant(1.0), &settings, b, d, anchor), step);
        let target = recipe.check(target).map_err(|e| complain(e.to_string()))?;
        Ok((recipe, target))
    }
}

/// The sampler's settings for so many clients.
fn settings(config: &Config, clients: usize) -> Settings {
    let mut settings = config.sampler.settings.clone();
    if let (Some(p), Some(Participation::Bernoulli(list) | Participation::Elastic(list))) =
        (config.sampler.participation_probability, &mut settings.participation)
    {
        *list = vec![p; clients];
    }
    settings
}

impl Plan {
    /// Plan the run of a config, all of whose data is in this process.
    pub fn new(config: &Config, problem: &Problem) -> Result<Plan, ConfigError> {
        if config.sampler.round_deadline.is_some() {
            let place = Place { field: "sampler.participation".into(), ..config.sampler.place.clone() };
            let problem = "it is elastic, and in one process nobody is ever late: everybody would count 1/p";
            return Err(config.source.complain(
                &place,
                problem,
                "use participation = 0.7, which draws who takes part; or `consilience serve`",
            ));
        }
        Plan::conducted(config, problem, &mut Here).map_err(|error| match error {
            PlanError::Config(error) => error,
            PlanError::Lost(lost) => {
                let fix = if problem.target.joint.is_some() { "correct the model" } else { "try again" };
                config.source.complain(&config.sampler.place, lost.to_string(), fix)
            }
        })
    }

    /// Plan the run of a config by surveys that somebody carries.
    pub fn conducted(config: &Config, problem: &Problem, conductor: &mut dyn Conductor) -> Result<Plan, PlanError> {
        let original = &problem.target;
        let (d, b) = (original.dim(), original.clients.len());
        let place = &config.sampler.place;
        let complain = |problem: String, fix: &str| config.source.complain(place, problem, fix);
        let mut survey = Ledger::new(b);
        let row = config.sampler.row;
        let mut warnings = Vec::new();

        let mut settings = settings(config, b);
        if config.sampler.weights_by_rows {
            let rows: Vec<f64> = original.clients.iter().map(|c| c.rows() as f64).collect();
            let all: f64 = rows.iter().sum();
            settings.weights = Some(rows.iter().map(|r| r / all).collect());
        }
        let weights = settings.weights.clone();

        let needs_optimum = row.needs_optimum || config.sampler.precondition || config.run.start == Start::Optimum;
        let optimum = if needs_optimum || config.sampler.step.is_none() {
            Some(find_optimum(original, conductor, &mut survey, &mut warnings)?)
        } else {
            None
        };
        let (target, coordinates) = match &optimum {
            Some(optimum) if config.sampler.precondition => {
                let refuse = |problem: String| complain(problem, "set precondition = false, or give the target a Gaussian prior");
                let hessian = hessian_at(original, optimum, conductor, &mut survey, &refuse)?;
                if columns_of(config, d).is_some_and(|columns| !dependences(&hessian, d, &original.prior, columns).is_empty()) {
                    check_columns(config, problem, conductor, &mut survey, &mut warnings)?;
                }
                let weights = settings.weights.as_deref();
                let (target, coordinates) = whiten(original, optimum, &hessian, weights, conductor, &mut survey, &refuse)?;
                (target, Some(coordinates))
            }
            _ => (original.clone(), None),
        };
        let inward = |x: &[f64]| coordinates.as_ref().map_or_else(|| x.to_vec(), |c| c.inward(x));
        // The step must be stable where chains start, too.
        let origin = match &config.run.start {
            Start::Optimum => None,
            Start::Point(point) if point.len() == d => Some(inward(point)),
            Start::Zero | Start::Point(_) => Some(inward(&vec![0.0; d])),
        };
        let findings = match optimum {
            None => None,
            Some(optimum) => {
                let there = inward(&optimum);
                Some(Findings::survey(&target, optimum, &there, origin.as_deref(), config.seed, conductor, &mut survey)?)
            }
        };

        let suspected = match &findings {
            Some(found) => coordinates.is_none() && found.are_flat_somewhere(&original.prior),
            None => {
                let ours = matches!(config.target.model, ModelConfig::Own(_));
                (original.prior == Prior::Flat || ours) && b.saturating_mul(d) <= MOST_PRODUCTS
            }
        };
        if suspected {
            check_columns(config, problem, conductor, &mut survey, &mut warnings)?;
        }

        // A recipe with a step of 1 shows everything but the step, and is checked as far as it goes.
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
        let step = match (config.sampler.step, &findings) {
            (Some(step), _) => step,
            (None, Some(found)) => Schedule::Constant(found.step(&draft)),
            (None, None) => return Err(complain("no step could be found".into(), "set sampler.step to a number").into()),
        };
        if !(step.largest() > 0.0 && step.largest().is_finite()) {
            let largest = findings.as_ref().map_or(f64::NAN, |found| found.smoothness);
            let problem = format!("no step could be found: the largest curvature seems to be {largest}");
            return Err(complain(problem, "set sampler.step to a number").into());
        }
        let recipe = with_step(draft, step);
        let target = recipe.check(target).map_err(|e| complain(e.to_string(), "correct [sampler]"))?;

        let start = match &config.run.start {
            Start::Zero => inward(&vec![0.0; d]),
            Start::Optimum => findings.as_ref().map_or_else(|| vec![0.0; d], |f| inward(&f.optimum)),
            Start::Point(point) if point.len() != d => {
                let problem = format!("run.start has {} numbers, the model has {d} parameters", point.len());
                return Err(complain(problem, "give one number for each parameter").into());
            }
            Start::Point(point) => inward(point),
        };
        warn(&recipe, findings.as_ref(), &mut warnings);
        let dispersion = if coordinates.is_some() && config.run.start == Start::Optimum { DISPERSION } else { 0.0 };
        let found = if let (None, Schedule::Constant(step)) = (config.sampler.step, step) { Some(step) } else { None };
        let decision = Decision { step: found, weights };
        Ok(Plan { recipe, target, coordinates, start, dispersion, findings, survey, warnings, decision })
    }

    /// Where one chain starts.
    pub fn start_of(&self, keys: Keys) -> Vec<f64> {
        let mut start = vec![0.0; self.start.len()];
        keys.public.stream(Purpose::Start, SERVER, 0).normals(&mut start);
        start.iter_mut().zip(&self.start).for_each(|(z, x)| *z = x + self.dispersion * *z);
        start
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

/// Find the minimiser of `U` by exchanging gradients.
fn find_optimum(target: &Target, conductor: &mut dyn Conductor, ledger: &mut Ledger, warnings: &mut Vec<String>) -> Result<Vec<f64>, Lost> {
    let zero = vec![0.0; target.dim()];
    let mut optimum = Optimum::new(target, &zero, OPTIMUM_TOLERANCE, MOST_EXCHANGES);
    conductor.survey(target, &mut optimum, ledger)?;
    if !optimum.converged() {
        warnings.push(format!(
            "the optimum was not reached in {} exchanges: the largest gradient left there is {:.2e}. Samplers stay right, control variates are less good.",
            optimum.exchanges(),
            optimum.gradient().iter().fold(0.0f64, |m, g| m.max(g.abs()))
        ));
    }
    Ok(optimum.point().to_vec())
}

/// How many columns the linear predictors of a model have, in the order of the first parameters; `None`: it has no columns.
fn columns_of(config: &Config, d: usize) -> Option<usize> {
    let kind = match &config.target.model {
        ModelConfig::Builtin(_) => RowsModel::Logistic,
        ModelConfig::Named(named) => named.kind,
        ModelConfig::Own(own) => own.kind,
        ModelConfig::Rows { kind, .. } => *kind,
        ModelConfig::Gaussian(_) | ModelConfig::Generated(_) | ModelConfig::External(_) => return None,
    };
    match kind {
        RowsModel::Isotropic => None,
        RowsModel::Softmax { classes, .. } => Some(d / classes.max(1)),
        RowsModel::Linear { .. } | RowsModel::Logistic => Some(d),
    }
}

/// Name columns that others determine: the Hessian at 0, where all rows count alike, shows them. With a proper prior that is a warning; without one there is no
/// posterior, and nothing to sample.
fn check_columns(
    config: &Config,
    problem: &Problem,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<String>,
) -> Result<(), PlanError> {
    let (target, d) = (&problem.target, problem.target.dim());
    let Some(columns) = columns_of(config, d).filter(|_| d <= MOST_WHITENED) else { return Ok(()) };
    let mut hessian = Hessian::new(target, &vec![0.0; d]);
    conductor.survey(target, &mut hessian, ledger)?;
    let found = dependences(&hessian.matrix(), d, &target.prior, columns);
    if found.is_empty() {
        return Ok(());
    }
    let plain = |name: &String| if columns < d { name.split('[').next().unwrap_or(name).to_owned() } else { name.clone() };
    let names: Vec<String> = problem.parameters.iter().take(columns).map(plain).collect();
    let said = describe(&found, &names);
    if target.prior == Prior::Flat {
        let problem =
            format!("{said} (perfect collinearity), and the prior is flat: the posterior is not proper, so there is nothing to sample");
        let fix = "leave these columns out, or give the target a prior, e.g. [target.prior] with law = \"gaussian\" and variance = 6.25";
        return Err(config.source.complain(&config.target.prior_place, problem, fix).into());
    }
    warnings.push(format!(
        "{said} (perfect collinearity): the rows cannot tell these columns apart, and the prior alone divides the effect among them. Leave them out, or read the columns together."
    ));
    Ok(())
}

/// The Hessian at the optimum.
fn hessian_at(
    target: &Target,
    optimum: &[f64],
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    refuse: &dyn Fn(String) -> ConfigError,
) -> Result<Vec<f64>, PlanError> {
    let d = target.dim();
    if d > MOST_WHITENED {
        let problem = format!("preconditioning needs a {d} x {d} matrix, which is too much beyond {MOST_WHITENED} parameters");
        return Err(refuse(problem).into());
    }
    let mut hessian = Hessian::new(target, optimum);
    conductor.survey(target, &mut hessian, ledger)?;
    Ok(hessian.matrix())
}

/// Change to the coordinates in which the Hessian at the optimum is the identity. Every client is told the map, and that is counted.
fn whiten(
    target: &Target,
    optimum: &[f64],
    hessian: &[f64],
    weights: Option<&[f64]>,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    refuse: &dyn Fn(String) -> ConfigError,
) -> Result<(Target, Arc<Coordinates>), PlanError> {
    let (d, b) = (target.dim(), target.clients.len());
    let found = Coordinates::whitening(optimum, hessian);
    let coordinates = found.ok_or_else(|| refuse("the Hessian at the optimum is not positive definite".into()))?;
    for client in 0..b as u32 {
        ledger.add(Direction::Down, ClientId(client), Kind::Survey, 64 * (d * (d + 1)) as u64);
    }
    let coordinates = Arc::new(coordinates);
    let equal = vec![1.0 / b as f64; b];
    let shares = match &target.placement {
        Placement::Split(shares) => shares,
        Placement::Server => weights.unwrap_or(&equal),
    };
    conductor.move_to(&coordinates, shares)?;
    Ok((target.whitened(&coordinates, shares), coordinates))
}

impl Findings {
    fn survey(
        target: &Target,
        optimum: Vec<f64>,
        there: &[f64],
        origin: Option<&[f64]>,
        seed: u64,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Findings, Lost> {
        let mut at = |point: &[f64]| -> Result<((f64, f64), Vec<f64>), Lost> {
            let mut whole = Curvature::new(target, point, Seed::new(seed));
            conductor.survey(target, &mut whole, ledger)?;
            let mut each = LocalCurvature::new(target, point);
            conductor.survey(target, &mut each, ledger)?;
            Ok((whole.extremes(), each.largest().to_vec()))
        };
        let ((convexity, mut smoothness), mut local_smoothness) = at(there)?;
        if let Some(origin) = origin {
            let ((_, largest), local) = at(origin)?;
            smoothness = smoothness.max(largest);
            local_smoothness.iter_mut().zip(&local).for_each(|(l, there)| *l = l.max(*there));
        }
        Ok(Findings { optimum, convexity, smoothness, local_smoothness })
    }

    /// Whether the rows seem to say nothing in some direction: the least curvature is no more than a prior alone has.
    fn are_flat_somewhere(&self, prior: &Prior) -> bool {
        let steepest = if let Prior::Gaussian(precisions) = prior { precisions.iter().copied().fold(0.0, f64::max) } else { 0.0 };
        self.convexity <= 1.001 * steepest + 1e-9 * self.smoothness
    }

    /// By how much compression asks for a smaller step: `1 + omega` for unbiased compressors (QLSD Theorem 1); for contractive ones `1 + sqrt(1 - alpha) / (1 - sqrt(1 - alpha))`,
    /// about `2 / alpha` (Richtarik et al. 2021, EF21, Theorem 1), on each way.
    fn loss(&self, recipe: &Uplink) -> f64 {
        let (d, b) = (self.optimum.len(), self.local_smoothness.len());
        let contraction = |alpha: f64| 1.0 + (1.0 - alpha).sqrt() / (1.0 - (1.0 - alpha).sqrt());
        let of = |c: Compressor| c.omega(d).map_or_else(|| c.alpha(d).map_or(1.0, contraction), |omega| 1.0 + omega);
        let up = (0..b).filter_map(|i| recipe.up.get(if recipe.up.len() == 1 { 0 } else { i })).map(|c| of(*c)).fold(1.0, f64::max);
        up * recipe.down.map_or(1.0, of)
    }

    /// The automatic step of a recipe.
    pub fn step(&self, recipe: &Recipe) -> f64 {
        match recipe {
            Recipe::Uplink(recipe) => {
                let rarest = match &recipe.participation {
                    Participation::All => 1.0,
                    Participation::Bernoulli(p) | Participation::Elastic(p) => p.iter().copied().fold(1.0, f64::min),
                    Participation::Fixed(size) => *size as f64 / self.local_smoothness.len() as f64,
                };
                CAUTION * rarest / (self.smoothness * self.loss(recipe))
            }
            Recipe::Local(recipe) => {
                // A client that walks alone for 1/rate iterations is pulled by U_c / p_c.
                let rate = match recipe.synchronise {
                    Synchronise::Every(every) => 1.0 / every as f64,
                    Synchronise::Randomly(p) => p,
                };
                let rate = recipe.tether.map_or(rate, |tether| rate.min(1.0 / tether)); // a tie is as long as so many steps
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

//! Plan a sampler whose draws have no bias, or choose one.

use std::sync::Arc;

use consilience_core::protocol::Ledger;
use consilience_core::sampler::Recipe;
use consilience_core::sampler::forecast::QuadraticModel;
use consilience_core::sampler::registry::{self, Axis, Row, Settings};
use consilience_core::step::Schedule;
use consilience_core::target::Placement;

use super::bias::BiasGoal;
use super::choice::{self, Candidate, Choice, HOPE, Size};
use super::shaped::{self, Foretold, Shaped};
use super::{Decision, Disappointment, Findings, Plan, PlanError, settings, survey};
use crate::conductor::Conductor;
use crate::config::{Config, RunConfig, Start};
use crate::problem::Problem;
use crate::run::Length;
use crate::warnings::{Code, Warning};

/// An optimistic guess of the effective draws for a leapfrog step: where `imh` is cheaper than
/// that, nothing else need be tried.
const HOPEFUL: f64 = 0.3;
/// The sampler that does not rely on how well the posterior was fitted: its draws are never given
/// up.
pub(super) const LAST: &str = "hmc";
/// How many proposals an exchange of `imh` asks about, unless the config says otherwise.
const BLOCK: u64 = 4096;
/// The fewest and the most iterations of a chain that are kept, where the length is left open.
const LEAST_KEPT: f64 = 250.0;
const MOST_KEPT: f64 = 1e6;
/// How many draws of all chains are kept in memory, about.
const KEPT_DRAWS: f64 = 40_000.0;

/// Plan the run of a config whose sampler accepts or rejects, or is to be chosen.
pub(super) fn plan(
    config: &Config,
    problem: &Problem,
    conductor: &mut dyn Conductor,
) -> Result<Plan, PlanError> {
    let original = &problem.target;
    let (b, row) = (original.clients.len(), config.sampler.row);
    let place = &config.sampler.place;
    let complain = |problem: String, fix: &str| config.source.complain(place, problem, fix);
    if let Some(why) = impossible(config, problem) {
        let Some(lmc) = registry::find("lmc").filter(|_| row.is_auto()) else {
            return Err(complain(why, "use name = \"hmc\", \"lmc\" or \"qlsd++\"").into());
        };
        let mut plan = Plan::of_row(config, problem, conductor, lmc)?;
        let says = format!("no exact sampler can be used here, and lmc is used: {why}");
        plan.warnings.insert(0, Warning::new(Code::NoExactSampler, says));
        return Ok(plan);
    }
    if config.sampler.precondition == Some(false) {
        let problem = format!(
            "the sampler \"{}\" needs coordinates in which the posterior is round",
            row.name
        );
        return Err(complain(problem, "remove precondition = false").into());
    }
    let stated = match config.sampler.step {
        None => None,
        Some(Schedule::Constant(step)) if row.has_step() => Some(step),
        Some(_) if !row.has_step() => {
            let problem = format!("the sampler \"{}\" has no step", row.name);
            return Err(complain(problem, "remove the step").into());
        }
        Some(_) => {
            let problem = "a Metropolis chain has a stationary law only at a constant step";
            return Err(complain(problem.into(), "use a number, or step = \"auto\"").into());
        }
    };

    let (mut ledger, mut warnings) = (Ledger::new(b), problem.warnings.clone());
    let equal = vec![1.0 / b as f64; b];
    let shares =
        if let Placement::Split(shares) = &original.placement { shares.clone() } else { equal };
    let large = original.dim() > survey::MOST_WHITENED;
    let learn = if large { shaped::learn_large } else { shaped::learn };
    let shaped = learn(config, problem, &shares, conductor, &mut ledger, &mut warnings)?;
    let so_far = SoFar {
        shaped: Arc::new(shaped),
        shares,
        stated,
        fixed: config.run.iterations.is_some(),
        warnings,
        all: Vec::new(),
        judged: Vec::new(),
    };
    so_far.decide(config, problem, conductor, ledger)
}

/// What surveys and pilots have found, and what runs have shown.
#[derive(Clone, Debug)]
pub(crate) struct SoFar {
    shaped: Arc<Shaped>,
    shares: Vec<f64>,
    /// The step that the config states.
    stated: Option<f64>,
    /// Whether the config states how long chains are.
    pub(super) fixed: bool,
    /// What the surveys gave reason to warn of.
    warnings: Vec<Warning>,
    /// What was tried.
    all: Vec<(&'static Row, Foretold)>,
    /// Which samplers were run before, and what was found of them.
    judged: Vec<(&'static Row, Disappointment)>,
}

impl SoFar {
    /// How often a sampler was run before.
    pub(super) fn tries(&self, row: &Row) -> usize {
        self.judged.iter().filter(|(known, _)| known.name == row.name).count()
    }

    /// The plan that follows where draws disappointed; `sent` is what they cost.
    pub(super) fn after(
        &self,
        (row, found): (&'static Row, Disappointment),
        config: &Config,
        problem: &Problem,
        conductor: &mut dyn Conductor,
        sent: Ledger,
    ) -> Result<Plan, PlanError> {
        let mut so_far = self.clone();
        // A run says more of its sampler than a pilot.
        for (_, foretold) in so_far.all.iter_mut().filter(|(known, _)| known.name == row.name) {
            foretold.efficiency = found.efficiency.unwrap_or(foretold.efficiency);
        }
        so_far.judged.push((row, found));
        so_far.decide(config, problem, conductor, sent)
    }

    fn decide(
        self,
        config: &Config,
        problem: &Problem,
        conductor: &mut dyn Conductor,
        mut ledger: Ledger,
    ) -> Result<Plan, PlanError> {
        let original = &problem.target;
        let (d, b, row) = (original.dim(), original.clients.len(), config.sampler.row);
        let place = &config.sampler.place;
        let complain = |problem: String, fix: &str| config.source.complain(place, problem, fix);
        let SoFar { shaped, shares, stated, fixed, warnings: found, all, judged } = self;
        let mut warnings = found.clone();
        let given_up = |name: &str| {
            judged
                .iter()
                .find(|(row, found)| row.name == name && found.efficiency.is_none())
                .map(|(_, found)| found.why.clone())
        };
        let settings = settings(config, b);
        let size = Size::new(&config.run, b);
        let mut tried = Tried { size, settings, shaped, conductor, ledger: &mut ledger, all };
        if let Some(step) = stated {
            let foretold = stated_step(step, tried.settings.leapfrog);
            tried.all.push((row, foretold));
        } else if judged.iter().any(|(_, found)| found.efficiency.is_none()) {
            tried.the_others()?;
        } else if row.is_auto() {
            tried.whatever_may_be_cheapest()?;
        } else {
            tried.one(row)?;
        }
        let mut candidates: Vec<Candidate> =
            tried.all.iter().map(|(row, foretold)| tried.candidate(row, foretold)).collect();
        for one in &mut candidates {
            one.refused = given_up(&one.sampler).or(one.refused.take());
        }
        let order = |at: &usize| (candidates[*at].refused.is_some(), size.cost(&candidates[*at]));
        let best = (0..candidates.len()).min_by(|a, b| {
            let (a, b) = (order(a), order(b));
            a.0.cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        let Some((chosen, foretold)) = best.map(|at| tried.all[at].clone()) else {
            return Err(complain("nothing could be tried".into(), "use name = \"lmc\"").into());
        };
        tried.move_to(&foretold)?;
        for (before, found) in &judged {
            let (code, says) = if before.name == chosen.name {
                (
                    Code::RunLengthened,
                    format!("the chains of {} are longer than planned", before.name),
                )
            } else {
                let says = format!("{} was tried first, and its draws were given up", before.name);
                (Code::SamplerReplaced, says)
            };
            let says = format!("{says}: {}. What every try sent is counted", found.why);
            warnings.push(Warning::new(code, says));
        }
        if let Some(why) = foretold.refusal() {
            let says = format!("{} is not to be relied on here: {why}", chosen.name);
            warnings.push(
                Warning::new(Code::ProposalUnfit, says)
                    .remedy("Use name = \"hmc\", or \"auto\", which chooses"),
            );
        }

        let draft = tried.recipe(chosen, &foretold);
        let (mut settings, shaped, all) = (tried.settings, tried.shaped, tried.all);
        let khat = all.iter().rev().find_map(|(_, foretold)| Some(foretold.tail?.khat));
        let chains = size.chains(&draft);
        let length =
            length(&config.run, chains, &draft, &foretold, stated.is_some(), chosen, &mut warnings);
        if chosen.has(Axis::Block) && settings.block.is_none() {
            let blocks = length.iterations.div_ceil(BLOCK);
            settings.block = Some(length.iterations.div_ceil(blocks.max(1)));
        }
        let recipe = recipe(chosen, &foretold, settings, b, d);
        let target = recipe
            .check(shaped.target.clone())
            .map_err(|e| complain(e.to_string(), "correct [sampler]"))?;
        let (parts, prior) = (&shaped.fitted.parts, &shaped.fitted.prior);
        let (coordinates, temperature) = (Some(&*shaped.coordinates), original.temperature);
        let model = (parts.len() == b)
            .then(|| QuadraticModel::new(parts, prior, &shares, coordinates, temperature))
            .flatten();
        if let Some(model) = &model {
            let goal = BiasGoal::new(config.run.most_bias);
            candidates.extend(Candidate::papers(model, &target, &size, goal));
        }
        candidates.sort_by(|a, b| size.cost(a).total_cmp(&size.cost(b)));
        let attempt = judged.len() as u32;
        let choice = Choice {
            candidates,
            chosen: chosen.name.into(),
            acceptance: Some(foretold.acceptance).filter(|a| a.is_finite()),
            khat,
            bent: foretold.proposal.as_ref().map_or(0, |proposal| proposal.bent()),
            nodes: shaped.noded().and_then(|scale| problem.parameters.get(scale).cloned()),
            exchanges: choice::exchanges(&ledger, b),
        };
        let (start, dispersion) = match &config.run.start {
            Some(Start::Point(point)) if point.len() != d => {
                let problem =
                    format!("run.start has {} numbers, the model has {d} parameters", point.len());
                return Err(complain(problem, "give one number for each parameter").into());
            }
            Some(Start::Point(point)) => (shaped.coordinates.inward(point), 0.0),
            Some(Start::Zero) => (shaped.coordinates.inward(&vec![0.0; d]), 0.0),
            Some(Start::Optimum | Start::Drawn) | None => (vec![0.0; d], 1.0),
        };
        let findings = Findings {
            optimum: shaped.fitted.optimum.clone(),
            convexity: 1.0,
            smoothness: 1.0,
            local_smoothness: vec![1.0; b],
        };
        Ok(Plan {
            row: chosen,
            recipe,
            target,
            coordinates: Some(Arc::clone(&shaped.coordinates)),
            length,
            begins: config.run.start.clone().unwrap_or(Start::Optimum),
            start,
            dispersion,
            spread: None,
            layers: Vec::new(),
            findings: Some(findings),
            forecast: None,
            choice: Some(choice),
            survey: ledger,
            warnings,
            downhill: None,
            accelerator: None,
            halved: false,
            so_far: Some(SoFar { shaped, shares, stated, fixed, warnings: found, all, judged }),
            decision: Decision {
                sampler: row.is_auto().then(|| chosen.name.to_owned()),
                step: stated.is_none().then_some(foretold.step),
                weights: None,
                chains: config.run.chains.is_none().then_some(chains as u64),
                attempt,
                halved: false,
            },
        })
    }
}

/// Why no sampler that accepts or rejects can be used, if so.
fn impossible(config: &Config, problem: &Problem) -> Option<String> {
    let (d, most) = (problem.target.dim(), survey::MOST_WHITENED);
    let model = problem.target.joint.as_ref();
    let row = config.sampler.row;
    if d > most && !row.is_auto() && (row.family.tuned)(row).is_none() {
        let what = "proposals that resemble the posterior take a matrix of";
        Some(format!("{what} {d} x {d} numbers, which is too much beyond {most} parameters"))
    } else if model.is_some_and(|model| !model.offers().values) {
        Some("it takes values of the potential, and the model gives gradients alone".into())
    } else if config.sampler.round_deadline.is_some() {
        Some("whether a proposal is accepted depends on every site".into())
    } else {
        None
    }
}

/// What is known where the step is stated, and nothing is tried.
fn stated_step(step: f64, leapfrog: Option<u32>) -> Foretold {
    Foretold {
        efficiency: f64::NAN,
        acceptance: f64::NAN,
        tail: None,
        proposal: None,
        step,
        leapfrog: leapfrog.unwrap_or((1.6 / step - 0.3).ceil().clamp(1.0, 64.0) as u32),
        shaped: None,
    }
}

/// A sampler with what was found for it.
fn recipe(
    row: &Row,
    foretold: &Foretold,
    mut settings: Settings,
    clients: usize,
    dim: usize,
) -> Recipe {
    settings.proposal = foretold.proposal.as_ref().map(|proposal| proposal.parts().to_vec());
    if row.has(Axis::Leapfrog) {
        settings.leapfrog = settings.leapfrog.or(Some(foretold.leapfrog));
    }
    row.recipe(Schedule::Constant(foretold.step), &settings, clients, dim, None)
}

/// Samplers as they are tried.
struct Tried<'a> {
    size: Size,
    settings: Settings,
    shaped: Arc<Shaped>,
    conductor: &'a mut dyn Conductor,
    ledger: &'a mut Ledger,
    all: Vec<(&'static Row, Foretold)>,
}

impl Tried<'_> {
    fn knows(&self, row: &Row) -> bool {
        self.all.iter().any(|(known, _)| known.name == row.name)
    }

    /// Try one sampler.
    fn one(&mut self, row: &'static Row) -> Result<(), PlanError> {
        let (conductor, ledger) = (&mut *self.conductor, &mut *self.ledger);
        let foretold = match (row.family.tuned)(row) {
            None => {
                let (shaped, foretold) = shaped::try_imh(&self.shaped, conductor, ledger)?;
                self.shaped = shaped;
                foretold
            }
            Some(trial) => {
                self.shaped = self.shaped.without_nodes(conductor, ledger)?;
                shaped::try_steps(&self.shaped, trial, conductor, ledger)?
            }
        };
        self.all.push((row, foretold));
        Ok(())
    }

    /// Go to the coordinates of what is chosen, and tell everybody.
    fn move_to(&mut self, chosen: &Foretold) -> Result<(), PlanError> {
        let (conductor, ledger) = (&mut *self.conductor, &mut *self.ledger);
        match &chosen.shaped {
            Some(own) if own.coordinates != self.shaped.coordinates => {
                self.shaped = own.told_again(conductor, ledger)?;
            }
            Some(_) => {}
            None => self.shaped = self.shaped.without_nodes(conductor, ledger)?,
        }
        Ok(())
    }

    fn recipe(&self, row: &Row, foretold: &Foretold) -> Recipe {
        let (clients, dim) = (self.size.clients, self.shaped.target.dim());
        recipe(row, foretold, self.settings.clone(), clients, dim)
    }

    fn candidate(&self, row: &'static Row, foretold: &Foretold) -> Candidate {
        let recipe = self.recipe(row, foretold);
        let hoped = (foretold.efficiency, HOPE);
        let one = Candidate::new(row, &recipe, &self.shaped.target, hoped, &self.size);
        Candidate { refused: foretold.refusal(), ..one }
    }

    /// Try what has not been tried.
    fn the_others(&mut self) -> Result<(), PlanError> {
        // Where little is known of the posterior `pcn` hardly moves.
        let others = if self.shaped.is_rough() { &[LAST][..] } else { &["pcn", LAST] };
        for row in others.iter().filter_map(|name| registry::find(name)) {
            if !self.knows(row) {
                self.one(row)?;
            }
        }
        Ok(())
    }

    /// Try `imh`, and the others where it is not to be relied on, or may be dearer.
    fn whatever_may_be_cheapest(&mut self) -> Result<(), PlanError> {
        let rows = ["imh", LAST].map(registry::find);
        let [Some(imh), Some(hmc)] = rows else { return Ok(()) };
        if self.shaped.is_rough() {
            return self.the_others();
        }
        if !self.knows(imh) {
            self.one(imh)?;
        }
        let hopeful = Foretold { efficiency: HOPEFUL, ..stated_step(1.0, Some(1)) };
        let bar = self.size.cost(&self.candidate(hmc, &hopeful));
        let cheap = self.all.iter().any(|(row, foretold)| {
            let candidate = self.candidate(row, foretold);
            candidate.refused.is_none() && self.size.cost(&candidate) <= bar
        });
        if cheap { Ok(()) } else { self.the_others() }
    }
}

/// How long chains are: as long as the pilot foretells.
fn length(
    run: &RunConfig,
    chains: usize,
    recipe: &Recipe,
    foretold: &Foretold,
    stated: bool,
    row: &Row,
    warnings: &mut Vec<Warning>,
) -> Length {
    let threads = run.threads;
    if let Some(iterations) = run.iterations {
        let burn_in = run.burn_in.unwrap_or(iterations / 10);
        return Length { chains, iterations, burn_in, thin: run.thin.unwrap_or(1), threads };
    }
    let wanted = run.effective_draws as f64 / (HOPE * foretold.efficiency) / chains as f64;
    let kept = if stated || wanted.is_nan() { 2000.0 } else { wanted };
    if stated {
        let says = format!(
            "nothing is known of how fast {} forgets at the step that is stated, so that {kept} \
             iterations are a guess",
            row.name
        );
        warnings.push(
            Warning::new(Code::LengthGuessed, says)
                .remedy("State run.iterations, or leave the step out")
                .number("iterations", kept),
        );
    } else if kept > MOST_KEPT {
        let says = format!(
            "{} effective draws would take about {wanted:.1e} iterations of each chain; they stop \
             after {MOST_KEPT:.0e}",
            run.effective_draws
        );
        warnings.push(
            Warning::new(Code::LengthCapped, says)
                .remedy("State run.iterations for more, or use name = \"auto\"")
                .number("wanted", wanted)
                .number("iterations", MOST_KEPT),
        );
    }
    let kept = kept.clamp(LEAST_KEPT, MOST_KEPT).ceil();
    let settling = recipe.family().settling().max((kept / 20.0).ceil() as u64);
    let burn_in = run.burn_in.unwrap_or(settling);
    let thin = run.thin.unwrap_or(((kept * chains as f64 / KEPT_DRAWS) as u64).max(1));
    Length { chains, iterations: burn_in + kept as u64, burn_in, thin, threads }
}

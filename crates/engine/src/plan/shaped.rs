//! Plan a sampler that accepts or rejects: learn the shape of the posterior, try what a sampler
//! would do on it, and say what it will take.

use std::sync::Arc;

use consilience_core::measure::{Chains, Independence, ess_bulk, ess_tail};
use consilience_core::model::{Coordinates, MOST_DIRECTIONS};
use consilience_core::proposal::{
    AxisMap, FAR, MOST_NODED, PROFILE, Proposal, axes, conditional_axes, scale_axes,
};
use consilience_core::protocol::Ledger;
use consilience_core::rng::Seed;
use consilience_core::sampler::forecast::Part;
use consilience_core::survey::{
    AlongScale, ClientAverage, Curvature, Fit, Minimum, Pilot, Profiles, Trial, Tuning,
};
use consilience_core::target::{Placement, Target};
use nalgebra::DMatrix;

use super::survey::Fitted;
use super::{PlanError, columns, priors, proper, survey};
use crate::conductor::Conductor;
use crate::config::Config;
use crate::models::scales;
use crate::problem::Problem;
use crate::warnings::{Code, Warning, WeightTail};

/// Newton's method ends when its step is shorter than a tenth of a posterior standard deviation: no
/// draw's law depends on it.
const NEWTON_TOLERANCE: f64 = 0.01;
const MOST_NEWTON: u64 = 60;
const MOST_AVERAGED: u64 = 10;
/// How many proposals a pilot of `imh` tries.
const PILOT_POINTS: usize = 2048;
/// Above this tail of the weights heavier tails of the proposals are tried.
const HEAVY: f64 = 0.5;
/// With these degrees of freedom.
const HEAVY_FREEDOM: u32 = 20;
/// Below this many effective draws for a proposal few large weights decide, and forecasts of runs
/// are too hopeful (on a8a 0.17 was foretold, and 0.04 came out): other axes are tried.
const POOR: f64 = 0.2;
/// What nodes take for a standard deviation of the logarithm of a scale, at the most.
const WIDEST_SCALE: f64 = 1.0;
/// A pilot that foretells fewer effective draws than this of its own points foretells nothing.
const LEAST_FORETOLD: f64 = 20.0;
/// The chains of a pilot that tunes a step, and their draws.
const PILOT_CHAINS: usize = 16;
/// The same where every point is very many numbers.
const FEWER_CHAINS: usize = 4;
const HMC_DRAWS: usize = 60;
const PCN_DRAWS: usize = 200;

/// A target in coordinates in which its posterior is round on average.
#[derive(Clone, Debug)]
pub(super) struct Shaped {
    pub(super) coordinates: Arc<Coordinates>,
    pub(super) target: Target,
    pub(super) fitted: Arc<Fitted>,
    /// How far from normal an axis must be to be bent.
    far: f64,
    /// A parameter that is the logarithm of a scale of effects, where there is one.
    scale: Option<usize>,
    /// What nodes along it say, where they are used, and the coordinates before these.
    nodes: Option<(Vec<f64>, Arc<Shaped>)>,
    /// The target in the parameters' own coordinates.
    original: Target,
    /// The clients' shares of the prior.
    shares: Vec<f64>,
}

impl Shaped {
    /// Whether too little is known of the posterior to propose independent points.
    pub(super) fn is_rough(&self) -> bool {
        self.fitted.precision.is_empty()
    }

    /// The same along other axes, which everybody is told: each parameter given narrower ones. All
    /// of them are bent.
    fn conditionally(
        &self,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Option<Shaped>, PlanError> {
        let columns = conditional_axes(&self.fitted.precision, self.target.dim());
        let found = coordinates(&self.fitted, columns, self.original.temperature);
        let Some(coordinates) = found else { return Ok(None) };
        let other = Shaped { coordinates, far: 0.0, ..self.clone() };
        other.tell(conductor, ledger).map(Some)
    }

    /// The same along other axes, which everybody is told: the first alone moves the logarithm of
    /// the scale, and along it the law of all others is learnt at nodes. `None`, and everybody
    /// where they were, if nodes cannot be had.
    fn along_scale(
        self: &Arc<Self>,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Option<Shaped>, PlanError> {
        let (d, fitted) = (self.target.dim(), &self.fitted);
        let Some(scale) = self.scale.filter(|_| (2..=MOST_NODED).contains(&d)) else {
            return Ok(None);
        };
        let columns = scale_axes(&fitted.precision, &fitted.hessian, d, scale, WIDEST_SCALE);
        let found = coordinates(fitted, columns, self.original.temperature);
        let Some(coordinates) = found else { return Ok(None) };
        let other = Shaped { coordinates, ..Shaped::clone(self) }.tell(conductor, ledger)?;
        let mut survey = AlongScale::new(&other.target);
        conductor.survey(&other.target, &mut survey, ledger)?;
        let Some(told) = survey.conditionals().told() else {
            Shaped::clone(self).tell(conductor, ledger)?;
            return Ok(None);
        };
        Ok(Some(Shaped { nodes: Some((told, Arc::clone(self))), ..other }))
    }

    /// The parameter along which there are nodes.
    pub(super) fn noded(&self) -> Option<usize> {
        self.scale.filter(|_| self.nodes.is_some())
    }

    /// The same without nodes, in the coordinates before them, which everybody is told.
    pub(super) fn without_nodes(
        self: &Arc<Self>,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Arc<Shaped>, PlanError> {
        match &self.nodes {
            Some((_, before)) => before.told_again(conductor, ledger),
            None => Ok(Arc::clone(self)),
        }
    }

    /// The same after everybody is told of its coordinates once more.
    pub(super) fn told_again(
        self: &Arc<Self>,
        conductor: &mut dyn Conductor,
        ledger: &mut Ledger,
    ) -> Result<Arc<Shaped>, PlanError> {
        Ok(Arc::new(Shaped::clone(self).tell(conductor, ledger)?))
    }

    /// The same after everybody is told of its coordinates.
    fn tell(self, conductor: &mut dyn Conductor, ledger: &mut Ledger) -> Result<Shaped, PlanError> {
        let (original, coordinates, shares) = (&self.original, &self.coordinates, &self.shares);
        let target = survey::whiten(original, coordinates, shares, conductor, ledger)?;
        Ok(Shaped { target, ..self })
    }
}

/// Learn the shape: the optimum by Newton's method, and the Gaussian that fits on average.
pub(super) fn learn(
    config: &Config,
    problem: &Problem,
    shares: &[f64],
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<Warning>,
) -> Result<Shaped, PlanError> {
    let original = &problem.target;
    let fitted = fit(config, problem, conductor, ledger, warnings)?;
    let columns = axes(&fitted.precision, &fitted.hessian, original.dim());
    let Some(coordinates) = coordinates(&fitted, columns, original.temperature) else {
        let problem = "the posterior has a direction without information: it is not proper";
        let fix = "give the target a Gaussian prior";
        return Err(config.source.complain(&config.sampler.place, problem, fix).into());
    };
    let target = survey::whiten(original, &coordinates, shares, conductor, ledger)?;
    Ok(Shaped {
        coordinates,
        target,
        scale: scale_of(config, &fitted),
        fitted: Arc::new(fitted),
        far: FAR,
        nodes: None,
        original: original.clone(),
        shares: shares.to_vec(),
    })
}

/// Which parameter is the logarithm of a standard deviation of effects, where any is: of several
/// the one that is known least.
fn scale_of(config: &Config, fitted: &Fitted) -> Option<usize> {
    let d = fitted.mean.len();
    let scales = scales(&*config.target.model.of_rows()?, d);
    let precision = DMatrix::from_column_slice(d, d, &fitted.precision);
    let covariance = precision.cholesky()?.inverse();
    let width = |k: &usize| covariance[(*k, *k)];
    scales.into_iter().max_by(|a, b| width(a).total_cmp(&width(b)))
}

/// Learn what can be learnt of a posterior of very many parameters: the optimum by gradients, and
/// the directions that stand out among its curvatures.
pub(super) fn learn_large(
    config: &Config,
    problem: &Problem,
    shares: &[f64],
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<Warning>,
) -> Result<Shaped, PlanError> {
    let original = &problem.target;
    let optimum = survey::find_optimum(problem, conductor, ledger, warnings)?;
    let mut curvature = Curvature::new(original, &optimum, Seed::new(config.seed));
    conductor.survey(original, &mut curvature, ledger)?;
    let (others, directions) = curvature.directions(MOST_DIRECTIONS);
    let cold = original.temperature.recip();
    let directions: Vec<_> = directions.into_iter().map(|(v, y)| (v * cold, y)).collect();
    let coordinates = Coordinates::of_low_rank(&optimum, others * cold, &directions);
    let Some(coordinates) = coordinates.map(Arc::new) else {
        let problem = "the curvatures of the posterior are not finite numbers";
        let fix = "scale the columns, or correct the model";
        return Err(config.source.complain(&config.sampler.place, problem, fix).into());
    };
    let target = survey::whiten(original, &coordinates, shares, conductor, ledger)?;
    let nothing = Vec::new;
    let prior = Part { hessian: nothing(), gradient: nothing(), skewness: nothing(), rows: 1 };
    let fitted = Fitted {
        mean: optimum.clone(),
        optimum,
        hessian: nothing(),
        precision: nothing(),
        parts: Vec::new(),
        prior,
    };
    Ok(Shaped {
        coordinates,
        target,
        fitted: Arc::new(fitted),
        far: FAR,
        scale: None,
        nodes: None,
        original: original.clone(),
        shares: shares.to_vec(),
    })
}

/// Coordinates around the mean, with these axes column by column.
fn coordinates(
    fitted: &Fitted,
    columns: Option<Vec<f64>>,
    temperature: f64,
) -> Option<Arc<Coordinates>> {
    let (d, columns) = (fitted.mean.len(), columns?);
    let matrix = (0..d * d).map(|k| temperature.sqrt() * columns[k % d * d + k / d]).collect();
    Coordinates::told(fitted.mean.clone(), matrix).map(Arc::new)
}

/// Find the optimum by Newton's method, and the Gaussian that fits on average.
pub(super) fn fit(
    config: &Config,
    problem: &Problem,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
    warnings: &mut Vec<Warning>,
) -> Result<Fitted, PlanError> {
    let original = &problem.target;
    let (d, b) = (original.dim(), original.clients.len());
    let mut minimum = Minimum::new(original, &problem.origin, NEWTON_TOLERANCE, MOST_NEWTON);
    conductor.survey(original, &mut minimum, ledger)?;
    let newton = minimum.newton();
    let (optimum, hessian) = (newton.optimum().to_vec(), newton.hessian().to_vec());
    if !hessian.iter().chain(&optimum).all(|x| x.is_finite()) {
        let problem = "the sites' potentials or their derivatives are not finite numbers";
        let fix = "scale the columns, or correct the model";
        return Err(config.source.complain(&config.sampler.place, problem, fix).into());
    }
    if !newton.converged() {
        let says = format!(
            "the optimum was not reached in {} exchanges: chains that start far away may never \
             come to where the posterior is, and R-hat need not show it",
            newton.exchanges()
        );
        warnings.push(
            Warning::new(Code::OptimumNotReached, says)
                .remedy("Scale the columns and offsets, or state a narrower prior")
                .number("exchanges", newton.exchanges() as f64),
        );
    }
    if columns::are_suspected(config, problem, Some(&hessian)) {
        // The search starts where all rows count alike.
        columns::check_columns(config, problem, minimum.first_hessian(), warnings)?;
    }
    proper::check_proper(problem, newton, conductor, ledger, warnings)?;
    priors::check_priors(config, problem, &optimum, warnings);
    let apart = b.saturating_mul(d * d) <= survey::MOST_NUMBERS;
    let mut fit = Fit::new(original, &optimum, &hessian, MOST_AVERAGED, apart);
    conductor.survey(original, &mut fit, ledger)?;
    let prior = survey::prior_part(&original.prior, fit.asked());
    // A client answers with its share of the prior.
    let part = |(i, average): (usize, ClientAverage)| {
        let share =
            if let Placement::Split(shares) = &original.placement { shares[i] } else { 0.0 };
        let without = |all: Vec<f64>, prior: &[f64]| -> Vec<f64> {
            all.iter().zip(prior).map(|(a, p)| a - share * p).collect()
        };
        Part {
            hessian: without(average.hessian, &prior.hessian),
            gradient: without(average.gradient, &prior.gradient),
            skewness: average.skewness, // shares of a Gaussian prior are affine, and cancel
            rows: original.clients[i].rows(),
        }
    };
    let parts = fit.parts().enumerate().map(part).collect();
    let fitted = fit.averaged();
    let (mean, precision) = (fitted.mean().to_vec(), fitted.precision().to_vec());
    Ok(Fitted { optimum, hessian, mean, precision, parts, prior })
}

/// What a pilot foretells of a sampler.
#[derive(Clone, Debug)]
pub(super) struct Foretold {
    /// Effective draws of the worst parameter, bulk and tail, for an iteration.
    pub(super) efficiency: f64,
    /// How often proposals are accepted.
    pub(super) acceptance: f64,
    /// The tail of the weights, for `imh`.
    pub(super) tail: Option<WeightTail>,
    /// What was found: the proposals of `imh`, else the step and how many of them a draw takes.
    pub(super) proposal: Option<Proposal>,
    pub(super) step: f64,
    pub(super) leapfrog: u32,
    /// In which coordinates that was found, where they are not those of all samplers.
    pub(super) shaped: Option<Arc<Shaped>>,
}

impl Foretold {
    /// Of proposals that cannot be made.
    fn nothing() -> Self {
        Foretold {
            efficiency: 0.0,
            acceptance: 0.0,
            tail: Some(WeightTail::none()),
            proposal: None,
            step: 1.0,
            leapfrog: 1,
            shaped: None,
        }
    }

    /// The more the better.
    fn rank(&self) -> (bool, f64) {
        (self.refusal().is_none(), self.efficiency)
    }

    /// Why the sampler is not to be relied on here, if so.
    pub(super) fn refusal(&self) -> Option<String> {
        let foretold = self.efficiency * PILOT_POINTS as f64;
        self.tail?.trouble(foretold).or_else(|| {
            (foretold < LEAST_FORETOLD).then(|| {
                format!(
                    "its {PILOT_POINTS} trial proposals were worth {foretold:.0} effective draws: \
                     too few to foretell how long it must run"
                )
            })
        })
    }
}

/// Try `imh`: along nodes where one scale decides how wide the posterior is, else along axes. Also
/// says in which coordinates, which everybody knows.
pub(super) fn try_imh(
    shaped: &Arc<Shaped>,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<(Arc<Shaped>, Foretold), PlanError> {
    let Some(noded) = shaped.along_scale(conductor, ledger)? else {
        return try_axes(shaped, conductor, ledger);
    };
    let noded = Arc::new(noded);
    let mut first = try_these(&noded, conductor, ledger)?;
    first.shaped = Some(Arc::clone(&noded));
    if first.refusal().is_none() && first.efficiency >= POOR {
        return Ok((noded, first));
    }
    let back = noded.without_nodes(conductor, ledger)?;
    let (back, second) = try_axes(&back, conductor, ledger)?;
    Ok((back, if second.rank() > first.rank() { second } else { first }))
}

/// Try `imh`: bend the axes that are far from normal, and weigh proposals; where these suit the
/// posterior badly also along other axes. Also says in which coordinates, which everybody knows.
fn try_axes(
    shaped: &Arc<Shaped>,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<(Arc<Shaped>, Foretold), PlanError> {
    let first = try_these(shaped, conductor, ledger)?;
    if first.efficiency >= POOR {
        return Ok((Arc::clone(shaped), first));
    }
    let Some(other) = shaped.conditionally(conductor, ledger)? else {
        return Ok((Arc::clone(shaped), first));
    };
    let second = try_these(&other, conductor, ledger)?;
    if second.rank() > first.rank() {
        return Ok((Arc::new(other), second));
    }
    let back = Shaped::clone(shaped).tell(conductor, ledger)?;
    Ok((Arc::new(back), first))
}

/// Try `imh` along the axes of the coordinates, or along their nodes.
fn try_these(
    shaped: &Shaped,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<Foretold, PlanError> {
    let target = &shaped.target;
    let d = target.dim();
    let nodes = shaped.nodes.as_ref().map_or(&[][..], |(told, _)| told);
    let mut bent: Vec<(usize, [f64; PROFILE.len()])> = Vec::new();
    if nodes.is_empty() {
        let mut profiles = Profiles::new(target);
        conductor.survey(target, &mut profiles, ledger)?;
        let is_far = |profile: &[f64; PROFILE.len()]| {
            AxisMap::new(profile).is_some_and(|(_, off)| off > shaped.far)
        };
        bent.extend(profiles.profiles().enumerate().filter(|(_, profile)| is_far(profile)));
    }
    // What suits most posteriors; heavier tails, and straight axes, where the weights ask for them.
    let freedom = Proposal::usual_freedom(d);
    let mut tried = vec![(freedom, &bent[..]), (HEAVY_FREEDOM, &bent[..])];
    if !bent.is_empty() {
        tried.extend([(freedom, &[][..]), (HEAVY_FREEDOM, &[][..])]);
    }
    let mut best: Option<Foretold> = None;
    for (freedom, bent) in tried {
        let proposal = Proposal::with_nodes(d, freedom, bent, nodes);
        let other = try_proposal(shaped, proposal, conductor, ledger)?;
        let light = other.tail.is_some_and(|tail| tail.khat <= HEAVY);
        if best.as_ref().is_none_or(|best| other.rank() > best.rank()) {
            best = Some(other);
        }
        if light {
            break;
        }
    }
    Ok(best.unwrap_or_else(Foretold::nothing))
}

fn try_proposal(
    shaped: &Shaped,
    proposal: Option<Proposal>,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<Foretold, PlanError> {
    let d = shaped.target.dim();
    let none = Foretold::nothing();
    let Some(proposal) = proposal else { return Ok(none) };
    let mut pilot = Pilot::new(&shaped.target, proposal.clone(), PILOT_POINTS);
    conductor.survey(&shaped.target, &mut pilot, ledger)?;
    let (points, weights) = pilot.weighed();
    let Some(chain) = Independence::new(&weights) else { return Ok(none) };
    let outward = outward(&shaped.coordinates, &points);
    let worst = (0..d)
        .map(|k| {
            let of = |j: usize| outward[j * d + k];
            chain.variance_ratio(of).max(chain.tail_variance_ratio(of))
        })
        .fold(1.0, f64::max);
    Ok(Foretold {
        efficiency: 1.0 / worst,
        acceptance: chain.acceptance(),
        tail: Some(WeightTail::of(&weights)),
        proposal: Some(proposal),
        ..none
    })
}

/// Try `pcn`, `mala` or `hmc`: tune the step by short chains.
pub(super) fn try_steps(
    shaped: &Shaped,
    trial: Trial,
    conductor: &mut dyn Conductor,
    ledger: &mut Ledger,
) -> Result<Foretold, PlanError> {
    let target = &shaped.target;
    let draws = if trial == Trial::Autoregressive { PCN_DRAWS } else { HMC_DRAWS };
    let chains = if shaped.is_rough() { FEWER_CHAINS } else { PILOT_CHAINS };
    let mut tuning = Tuning::new(target, trial, chains, draws);
    conductor.survey(target, &mut tuning, ledger)?;
    let d = target.dim();
    let chains: Vec<Vec<f64>> =
        tuning.draws().iter().map(|draws| outward(&shaped.coordinates, draws)).collect();
    let kept = chains.first().map_or(0, |chain| chain.len() / d);
    let efficiency = least_efficiency(&chains, d, kept);
    Ok(Foretold {
        efficiency,
        acceptance: tuning.acceptance(),
        tail: None,
        proposal: None,
        step: tuning.step(),
        leapfrog: tuning.leapfrog(),
        shaped: None,
    })
}

/// Effective draws for a draw of the worst parameter, from short chains: their estimates scatter,
/// and the least of many would be far too small. How much they scatter is what two halves of the
/// chains disagree by, and estimates are drawn towards their mean by that (on a logarithmic scale).
fn least_efficiency(chains: &[Vec<f64>], dim: usize, kept: usize) -> f64 {
    let estimate = |chains: &[Vec<f64>], k: usize| {
        let each: Vec<Vec<f64>> = chains
            .iter()
            .map(|chain| chain.iter().skip(k).step_by(dim).copied().collect())
            .collect();
        let each: Vec<&[f64]> = each.iter().map(Vec::as_slice).collect();
        // Antithetic draws are no more than draws here: their tails are not.
        let all = (kept * chains.len()) as f64;
        let ess = Chains::new(&each).map_or(f64::NAN, |c| ess_bulk(&c).min(ess_tail(&c)));
        (ess.min(all) / all).ln()
    };
    let (first, second) = chains.split_at(chains.len() / 2);
    let (mut all, mut noise) = (Vec::new(), 0.0);
    for k in 0..dim {
        all.push(estimate(chains, k));
        noise += (estimate(first, k) - estimate(second, k)).powi(2) / (4.0 * dim as f64);
    }
    let mean = all.iter().sum::<f64>() / dim as f64;
    let scatter = all.iter().map(|e| (e - mean).powi(2)).sum::<f64>() / dim as f64;
    let true_part = if scatter > 0.0 { (1.0 - noise / scatter).max(0.0).sqrt() } else { 0.0 };
    let least = all.iter().map(|e| mean + true_part * (e - mean)).fold(0.0, f64::min).exp();
    if least.is_nan() || all.iter().any(|e| e.is_nan()) { 0.0 } else { least }
}

/// Points in the parameters' own coordinates.
fn outward(coordinates: &Coordinates, points: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; points.len()];
    let d = coordinates.dim();
    for (u, x) in points.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
        coordinates.outward(u, x);
    }
    out
}

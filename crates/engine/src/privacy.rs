//! Plan what a run tells of one row before anything runs, and refuse what tells more than was
//! agreed on.

use std::sync::Arc;

use consilience_core::model::RowReach;
use consilience_core::privacy::{
    Composition, HiddenState, Neighbour, Once, PrivacyError, Release, Released, Sampling,
    SecureRelease, SecureSum,
};
use consilience_core::sampler::registry::Axis;
use consilience_core::sampler::{Batch, Curvatures, PublishedPrivacy, Recipe};
use consilience_core::step::Schedule;
use serde::Serialize;

use crate::config::{
    Config, ConfigError, FieldLocation, ModelConfig, PriorConfig, PrivacyConfig, Source, Start,
};
use crate::data::stated::{self, StatedCoding, StatedError};
use crate::data::{builtin, lay_out};
use crate::models::RowModel;
use crate::plan;
use crate::problem::Problem;
use crate::record::Record;
use crate::site::{self, StatedDesign};
use crate::warnings::{Code, Warning};

/// No budget is asked to allow more releases than this.
const MOST_RELEASES: u64 = 10_000_000;

/// How many of a site's rows were shortened: for the site alone, which could tell a row by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shortened {
    /// How many.
    pub rows: u64,
    /// Of how many.
    pub of: u64,
    /// How long the longest was.
    pub longest: f64,
    /// How many responses are clipped: in what is released once beyond the bound of responses,
    /// else beyond that of slopes where all parameters are 0.
    pub clipped: Option<u64>,
}

impl std::fmt::Display for Shortened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shortened { rows, of, longest, clipped } = self;
        write!(
            f,
            "{rows} of {of} rows are longer than privacy.row_norm, and are shortened to it; "
        )?;
        write!(f, "the longest has the length {longest:.4}")?;
        match clipped {
            None => Ok(()),
            Some(clipped) => write!(
                f,
                "; {clipped} of {of} responses are farther from 0 than privacy.response, or \
                 privacy.slope at parameters of 0, allows, and are clipped"
            ),
        }
    }
}

/// How many responses are clipped by what the config bounds; `None`: none can be.
pub(crate) fn clipped(config: &Config, kind: &dyn RowModel, responses: &[f64]) -> Option<u64> {
    let privacy = config.privacy.as_ref()?;
    let most = match config.sampler.row.family.asks_twice {
        true => privacy.response?,
        false => kind.response_reach(privacy.slope)?,
    };
    Some(responses.iter().filter(|y| y.abs() > most).count() as u64)
}

/// Shorten every row that is longer than `most` to that length.
pub(crate) fn shorten(cells: &mut [f64], columns: usize, most: f64) -> Shortened {
    let mut told = Shortened::default();
    for row in cells.chunks_exact_mut(columns) {
        told.of += 1;
        // The length without overflow; what is not finite is refused when the model is built.
        let largest = row.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        if largest == 0.0 || !largest.is_finite() {
            continue;
        }
        let length = largest * row.iter().map(|v| (v / largest).powi(2)).sum::<f64>().sqrt();
        told.longest = told.longest.max(length);
        if length > most {
            told.rows += 1;
            // A little shorter than asked for, so that rounding does not make it longer.
            let factor = most / length * (1.0 - 1e-14);
            row.iter_mut().for_each(|v| *v *= factor);
        }
    }
    told
}

/// The model of rows that every site codes alone, if there is one: numbers as they are, or columns
/// whose coding the config states.
fn rows_alone(config: &Config) -> Option<Arc<dyn RowModel>> {
    match &config.target.model {
        ModelConfig::Rows { kind, .. } => Some(Arc::clone(kind)),
        _ => StatedDesign::of(config).ok()?.map(|design| design.kind),
    }
}

/// Something that stands against a private run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrivacyRefusal {
    /// Which field.
    pub field: String,
    /// What is wrong with it.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

/// Who may be curious.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Threat {
    /// The server, which sees every answer.
    Server,
    /// Other sites, which see what the server sends to all.
    Sites,
    /// Whoever sees the draws and the report.
    Outsiders,
}

impl Threat {
    /// All, the strongest first.
    pub const ALL: [Threat; 3] = [Threat::Server, Threat::Sites, Threat::Outsiders];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Threat::Server => "the server",
            Threat::Sites => "other sites",
            Threat::Outsiders => "outsiders",
        }
    }
}

/// What one threat learns of one row of a site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exposure {
    /// Who.
    pub threat: Threat,
    /// `z`: the noise that counts against what one row contributes.
    pub ratio: f64,
    /// epsilon of the whole run at the delta of the budget.
    pub epsilon: f64,
    /// The same by Renyi divergences, as a cross-check.
    pub renyi: f64,
    /// epsilon after so many iterations of every chain.
    pub curve: Vec<(u64, f64)>,
    /// How many iterations of every chain keep the budget.
    pub allowed: u64,
}

/// What a site tells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SitePlan {
    /// Its name.
    pub site: String,
    /// `s_i`: the deviation of its own noise, on the scale of its gradient.
    pub noise: f64,
    /// `q`: the share of its rows in a minibatch.
    pub share: f64,
    /// What each threat learns.
    pub exposures: Vec<Exposure>,
}

/// What a run would tell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrivacyPlan {
    /// The sampler.
    pub sampler: &'static str,
    /// The budget.
    pub epsilon: f64,
    /// The budget's delta.
    pub delta: f64,
    /// `C`: the largest norm of one row's gradient.
    pub row_gradient: f64,
    /// How far one row, or all rows of one person, can move a sum, in units of that.
    pub reach: f64,
    /// How many rows of a site may be one person's.
    pub person: u64,
    /// What FA-LD's Theorem G.3 claims of the run, to compare with: it does not hold, and nothing
    /// rests on it.
    pub published: Option<Published>,
    /// What is released once, where sites answer twice and chains cost nothing.
    pub once: Option<OncePlan>,
    /// What nobody sees more than, where sites hide their answers in a sum.
    pub secure: Option<SecurePlan>,
    /// How many iterations of every chain would keep the budget with a secure sum, where there is
    /// none and could be one.
    pub allowed_by_secure_sum: Option<u64>,
    /// How many chains there are: all of them count.
    pub chains: u64,
    /// How many iterations each.
    pub iterations: u64,
    /// Langevin time, all chains together: releases times the step.
    pub time: f64,
    /// How many effective draws the run gives at most, where a curvature is expected.
    pub effective_draws: Option<f64>,
    /// The same for as many iterations as the budget allows against the server.
    pub effective_draws_allowed: Option<f64>,
    /// Where a release would be of more use than chains: how many times as wide its intervals would
    /// be as without privacy, at the least.
    pub release_width: Option<f64>,
    /// The sites.
    pub sites: Vec<SitePlan>,
}

/// What a published theorem says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Published {
    /// epsilon at the budget's delta.
    Epsilon(f64),
    /// Nothing: it needs a step of at most this.
    Step(f64),
}

/// A sum of which nobody sees the parts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SecurePlan {
    /// How far levels are apart, on the scale of gradients.
    pub grid: f64,
    /// How many levels the deviation of the noise in the sum has.
    pub resolution: f64,
    /// How many bits a level has, where the numbers of rows are known.
    pub bits: Option<u32>,
    /// How many sites are not among those who collude with the server.
    pub honest: usize,
}

/// What sites release, where they do so once.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OncePlan {
    /// `mu` of both releases together, of the first, and of the second.
    pub mu: [f64; 3],
    /// What each release has, and the deviation of a site's noise in it.
    pub noise: Vec<(&'static str, f64)>,
}

/// Fewer effective draws than this are no summary of a posterior: a release once is of more use.
const LEAST_DRAWS: f64 = 100.0;

/// What is released once by this config; or why nothing is.
pub(crate) fn once(config: &Config) -> Result<Once, String> {
    let (Some(privacy), Some(kind)) = (&config.privacy, rows_alone(config)) else {
        return Err("there is no budget, or there are no rows".into());
    };
    let released = kind.released(privacy.response)?;
    let budget = (privacy.epsilon, privacy.delta);
    let once = Once::new(released, privacy.row_norm, privacy.neighbour, budget);
    once.map(|once| once.for_persons_of(privacy.rows_per_person)).map_err(|e| e.to_string())
}

/// What a run that has ended told of one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PrivacyReport {
    /// Whether it ran in one process, where nothing is private.
    pub simulated: bool,
    /// Two data sets that differ in this are not told apart.
    pub neighbours: String,
    /// epsilon by site and threat, against iterations.
    pub plan: PrivacyPlan,
    /// What is not shown or computed, and why.
    pub left_out: [(&'static str, &'static str); 3],
    /// What is taken for granted.
    pub assumed: Vec<String>,
}

const EXACT: &str = "they are exact functions of rows";

impl PrivacyReport {
    /// What the run of a record told; `None` where it had no budget.
    pub fn of(record: &Record) -> Option<Self> {
        let text = record.config.clone();
        let source = Source { file: "the run's config".into(), folder: ".".into(), text };
        let config = Config::parse(source).ok()?;
        let privacy = config.privacy.as_ref()?;
        let clients: Vec<String> = record.sites.iter().map(|site| site.name.clone()).collect();
        let rows = Some(record.sites.iter().map(|site| site.rows).collect());
        let facts = Facts { clients: &clients, rows, dim: record.parameters.len() };
        Some(PrivacyReport {
            simulated: record.warnings.iter().any(|w| w.code == Code::PrivacySimulated),
            neighbours: match (privacy.neighbour, privacy.rows_per_person) {
                (Neighbour::Replace, 1) => "one row of one site is another row".into(),
                (Neighbour::AddRemove, 1) => "one row of one site is empty".into(),
                (Neighbour::Replace, k) => format!("{k} rows of one site are other rows"),
                (Neighbour::AddRemove, k) => format!("{k} rows of one site are empty"),
            },
            plan: planned(&config, &facts).ok()?,
            left_out: [
                ("surveys, control variates, coded columns", EXACT),
                ("potentials of draws (lp), calibration, influence of sites, model checks", EXACT),
                (
                    "how many rows were shortened",
                    "it is told at the site alone, which could tell a row by it",
                ),
            ],
            assumed: [
                "a site's private key is secret".to_owned(),
                if privacy.secure_sum {
                    "ChaCha's numbers are as good as random, and secrets made by X25519 and \
                     HKDF-SHA256 are known to those who share them alone"
                        .to_owned()
                } else {
                    "ChaCha's numbers are as good as random".to_owned()
                },
                if privacy.secure_sum {
                    "sites that do not collude do as they say: the noise of each hides the rows of \
                     all"
                    .to_owned()
                } else {
                    "half a sum of four normals of 32 bits is normal, on a grid of a thousandth of \
                     it"
                    .to_owned()
                },
                match privacy.rows_per_person {
                    1 => "a person is one row; nothing is claimed for several, or for whole sites"
                        .to_owned(),
                    k => format!(
                        "a person has at most {k} rows, all at one site; nothing is claimed for \
                         more, or for whole sites"
                    ),
                },
                match config.target.coding {
                    None => "numbers of rows, names of columns and who took part are public",
                    Some(_) => {
                        "numbers of rows, who took part and all that the config states of the \
                         columns are public"
                    }
                }
                .to_owned(),
            ]
            .to_vec(),
        })
    }
}

/// What is known of the sites beside the config.
struct Facts<'a> {
    clients: &'a [String],
    /// How many rows each has, where that is known.
    rows: Option<Vec<u64>>,
    /// How many parameters there are, where that is known.
    dim: usize,
}

/// All that stands against a private run of this config, as far as the config alone shows it.
pub fn refusals(config: &Config) -> Vec<PrivacyRefusal> {
    match site::names(config) {
        Ok(clients) => gathered(config, &Facts { clients: &clients, rows: None, dim: 1 }),
        Err(error) => {
            vec![PrivacyRefusal { field: error.field, problem: error.problem, fix: error.fix }]
        }
    }
}

/// Plan the run of a config without reading a row.
pub fn of_config(config: &Config) -> Result<PrivacyPlan, ConfigError> {
    let clients = site::names(config)?;
    planned(config, &Facts { clients: &clients, rows: None, dim: 1 })
}

/// Refuse a run that cannot keep its budget; else, the largest epsilon of a site against the
/// server.
pub(crate) fn check_run(config: &Config, problem: &Problem) -> Result<f64, ConfigError> {
    let rows = problem.target.clients.iter().map(|client| client.rows() as u64).collect();
    if let Some(most) = config.privacy.as_ref().and_then(|privacy| privacy.rows) {
        let all: u64 = problem.target.clients.iter().map(|client| client.rows() as u64).sum();
        if all > most {
            let problem = format!(
                "the sites have {all} rows together, and the config says at most {most}: a step by \
                 that bound may be too large"
            );
            return Err(complain(config, "privacy.rows", problem, "state a larger number"));
        }
    }
    let facts = Facts { clients: &problem.clients, rows: Some(rows), dim: problem.target.dim() };
    let plan = planned(config, &facts)?;
    let counted = if plan.once.is_none() { &plan.sites[..] } else { &[] };
    for site in counted {
        let Exposure { allowed, epsilon, .. } = site.exposures[0];
        suffices(config, &site.site, allowed, epsilon)?;
    }
    Ok(plan.sites.iter().map(|site| site.exposures[0].epsilon).fold(0.0, f64::max))
}

/// Refuse a run that is longer than a site's budget allows.
fn suffices(config: &Config, site: &str, allowed: u64, epsilon: f64) -> Result<(), ConfigError> {
    let (chains, asked) =
        (config.run.chains.unwrap_or(1), config.run.iterations.unwrap_or(u64::MAX));
    if allowed >= asked {
        return Ok(());
    }
    Err(complain(
        config,
        "privacy.epsilon",
        format!(
            "the budget of site \"{site}\" allows {allowed} iterations of {chains} chains, and the \
             run asks for {asked}: epsilon would be {epsilon:.3}"
        ),
        "ask for fewer iterations or chains, a smaller step, or a larger epsilon; `consilience \
         privacy` shows epsilon against iterations",
    ))
}

/// What is said of a run in one process.
pub(crate) fn simulated(epsilon: f64) -> Warning {
    Warning::new(
        Code::PrivacySimulated,
        format!(
            "the noise that would keep rows private comes from the config's seed here, and all \
             rows are in one process: this is the private sampler (epsilon {epsilon:.3} against \
             the server), and keeps nothing from anybody"
        ),
    )
}

/// How many releases of each chain a site's budget allows, by the sampler that its clients run; an
/// error where that is fewer than the run asks for.
pub fn allowance(
    config: &Config,
    recipe: &Recipe,
    site: usize,
    rows: u64,
    dim: usize,
) -> Result<u64, ConfigError> {
    let clients = site::names(config)?;
    let facts = Facts { clients: &clients, rows: Some(vec![rows; clients.len()]), dim };
    if let Some(PrivacyRefusal { field, problem, fix }) =
        gathered(config, &facts).into_iter().next()
    {
        return Err(complain(config, &field, problem, &fix));
    }
    let refuse = |problem: String| complain(config, "privacy", problem, "correct [privacy]");
    if config.sampler.row.family.asks_twice {
        return Ok(2); // two answers, each once and in its turn: the noise is for these
    }
    let (Some(privacy), Some(kind)) = (&config.privacy, rows_alone(config)) else {
        return Err(refuse("there is no budget, or there are no rows".into()));
    };
    if applied(config, recipe.clone(), dim)? != *recipe {
        return Err(refuse("the clients of this sampler draw no noise of their own".into()));
    }
    let noise = recipe
        .family()
        .own_noise(clients.len(), dim, config.target.temperature)
        .map_err(|e| refuse(e.to_string()))?;
    let bound =
        kind.row_gradient(privacy.row_norm, privacy.slope).map_err(|why| refuse(why.to_owned()))?;
    let drawn = sampling(config, Some(rows));
    let share = drawn.share();
    let ratio = share * noise[site] / (privacy.rows_per_person as f64 * bound);
    let (epsilon, delta) = (privacy.epsilon, privacy.delta);
    let chains = config.run.chains.unwrap_or(1) as u64;
    let releases = chains * config.run.iterations.unwrap_or(0);
    let counted = || -> Result<(u64, f64), PrivacyError> {
        if privacy.secure_sum {
            let summed = Summed::new(config, privacy, bound, clients.len());
            let release = summed.release(clients.len().saturating_sub(privacy.colluding))?;
            let most = release.most(epsilon, delta, MOST_RELEASES)?;
            return Ok((most / chains, release.epsilon(releases, delta)?));
        }
        let release = Release::new(drawn, privacy.neighbour, ratio)?;
        let most = Composition::most(release, epsilon, delta, MOST_RELEASES)?;
        Ok((most / chains, Composition::of(release, releases).epsilon(delta)?))
    };
    let (allowed, would) = counted().map_err(|e| refuse(e.to_string()))?;
    suffices(config, &clients[site], allowed, would)?;
    Ok(allowed)
}

/// How large one row of a private run can be, by its config; `None` where there is no budget.
pub fn row_reach(config: &Config) -> Option<RowReach> {
    let (Some(privacy), Some(kind)) = (&config.privacy, rows_alone(config)) else {
        return None;
    };
    let gradient = kind.row_gradient(privacy.row_norm, privacy.slope).ok()?;
    let loss = kind.classes().map_or(f64::INFINITY, |classes| (classes as f64).ln());
    Some(RowReach { gradient, loss })
}

/// Refuse samplers that need to know the posterior's shape.
pub(crate) fn refuse_surveys(config: &Config) -> Result<(), ConfigError> {
    if config.privacy.is_none() {
        return Ok(());
    }
    let (problem, fix) = exact_functions(config.sampler.row.name);
    Err(complain(config, "sampler.name", problem, &fix))
}

fn exact_functions(name: &str) -> (String, String) {
    (
        format!("{name} asks sites for exact functions of their rows"),
        "use dp-release, lmc, sgld, qlsd, qlsd#, p-elf, fald, fa-ld or dg-lmc".into(),
    )
}

/// The recipe with clients that draw noise of their own, where the config asks for privacy.
pub(crate) fn applied(config: &Config, recipe: Recipe, dim: usize) -> Result<Recipe, ConfigError> {
    let Some(privacy) = &config.privacy else { return Ok(recipe) };
    let family = recipe.family();
    if privacy.secure_sum {
        let Some(kind) = rows_alone(config) else { return Ok(recipe) };
        let fix = "correct [privacy]";
        let bound = kind
            .row_gradient(privacy.row_norm, privacy.slope)
            .map_err(|why| complain(config, "privacy", why, fix))?;
        let sum = SecureSum::new(bound, site::names(config)?.len());
        return family
            .with_secure_sum(sum)
            .map_err(|e| complain(config, "sampler", e.to_string(), "or remove secure_sum"));
    }
    Ok(family.with_own_noise(server_share(privacy, &recipe, dim)).unwrap_or(recipe.clone()))
}

/// The curvature of the prior, the least and the largest, where it has one.
fn prior_curvature(config: &Config) -> Option<(f64, f64)> {
    match &config.target.prior {
        PriorConfig::Flat => Some((0.0, 0.0)),
        PriorConfig::Gaussian(variances) => {
            let most = variances.iter().copied().fold(0.0, f64::max);
            let least = variances.iter().copied().fold(f64::INFINITY, f64::min);
            Some((1.0 / most, 1.0 / least))
        }
        PriorConfig::Groups { .. }
        | PriorConfig::Laplace(_)
        | PriorConfig::Usual
        | PriorConfig::Named { .. } => None,
    }
}

/// The largest curvature that the posterior of so many rows can have, whatever stands in them:
/// `l R^2 N` and the prior's.
fn largest_curvature(config: &Config, rows: u64) -> Option<f64> {
    let (Some(privacy), Some(kind)) = (&config.privacy, rows_alone(config)) else {
        return None;
    };
    let each = kind.row_curvature(privacy.row_norm)?;
    Some(each * rows as f64 + prior_curvature(config)?.1)
}

/// The step of a private run that leaves it open: the cautious one for the largest curvature that
/// as many rows as the config states can have. No row moves it.
pub(crate) fn public_step(config: &Config) -> Option<f64> {
    let rows = config.privacy.as_ref()?.rows?;
    let row = config.sampler.row;
    let (by_rows, compressed) =
        (config.sampler.weights_by_rows, config.sampler.settings.compress.is_some());
    if by_rows || compressed || !row.has_step() || row.needs_optimum || row.family.needs_shape {
        return None;
    }
    let b = site::names(config).ok()?.len();
    let smoothness = largest_curvature(config, rows)?;
    let recipe = row.recipe(Schedule::Constant(1.0), &plan::settings(config, b), b, 1, None);
    if recipe.family().is_exact() {
        return None; // its steps are no Langevin steps
    }
    // All rows may be at one site.
    let local_smoothness = vec![smoothness; b];
    let found = Curvatures { dim: 1, smoothness, local_smoothness: &local_smoothness };
    Some(recipe.family().cautious_step(found))
}

/// What those learn who see the draws alone: a chain that contracts forgets, and a draw tells of
/// the rounds before it less than they would tell themselves. `mu` of `n` iterations of every
/// chain, where that of a single one is `each`; `None` where no such bound is known.
///
/// How strongly the chain contracts must hold for every data set: by the prior from below, and by
/// as many rows as there can be from above.
fn hidden(config: &Config, facts: &Facts<'_>, recipe: &Recipe, each: f64, n: u64) -> Option<f64> {
    let known = facts.rows.as_ref().map(|rows| rows.iter().sum());
    let rows = config.privacy.as_ref()?.rows.or(known)?;
    let Schedule::Constant(step) = config.sampler.step? else { return None };
    if !recipe.family().is_noisy_descent() {
        return None;
    }
    let temperature = config.target.temperature;
    let chain = HiddenState {
        step,
        temperature,
        convexity: prior_curvature(config)?.0,
        smoothness: largest_curvature(config, rows)?,
        reach: each / (step / (2.0 * temperature)).sqrt(),
    };
    // As many rounds before a draw, and as many draws, as there can be at most.
    let thin = config.run.thin.unwrap_or(1);
    let before = config.run.burn_in.map_or(n, |burn_in| burn_in + thin);
    let draws = n.saturating_sub(config.run.burn_in.unwrap_or(0)) / thin + 1;
    let chains = config.run.chains.unwrap_or(1) as f64;
    Some(chains.sqrt() * chain.mu_of_draws(before, draws, thin).ok()?)
}

/// A secure sum of gradients by this config.
struct Summed {
    sum: SecureSum,
    grid: f64,
    clients: usize,
    /// How many levels a row moves the sum by, at most.
    shift: f64,
}

impl Summed {
    fn new(config: &Config, privacy: &PrivacyConfig, bound: f64, clients: usize) -> Summed {
        let step = config.sampler.step.map_or(1.0, |step| step.largest());
        let sum = SecureSum::new(bound, clients);
        let grid = sum.grid(step, config.target.temperature);
        let shift = privacy.rows_per_person as f64 * privacy.neighbour.reach() * bound / grid;
        Summed { sum, grid, clients, shift }
    }

    /// What one round tells those who know the noise of all but so many sites.
    fn release(&self, honest: usize) -> Result<SecureRelease, PrivacyError> {
        let variance = honest.max(1) as f64 * self.sum.variance(self.clients);
        SecureRelease::new(variance, self.shift)
    }
}

/// The share of the noise that the server draws: three times what rounding adds to noise alone, for
/// gradients are rounded with it.
fn server_share(privacy: &PrivacyConfig, recipe: &Recipe, dim: usize) -> f64 {
    let room = 3.0 * recipe.family().heat_of_rounding(dim);
    privacy.server_share.unwrap_or(room / (1.0 + room))
}

fn complain(config: &Config, field: &str, problem: impl Into<String>, fix: &str) -> ConfigError {
    let table = if field.starts_with("sampler") {
        &config.sampler.place
    } else {
        config.privacy.as_ref().map_or(&config.sampler.place, |privacy| &privacy.place)
    };
    let place = FieldLocation { field: field.into(), line: table.line };
    config.source.complain(&place, problem, fix)
}

/// The sampler as stated, private.
fn stated(config: &Config, facts: &Facts<'_>) -> Result<(Recipe, f64), PrivacyRefusal> {
    let refuse = |field: &str, problem: String, fix: &str| PrivacyRefusal {
        field: field.into(),
        problem,
        fix: fix.into(),
    };
    let row = config.sampler.row;
    if row.family.needs_shape {
        let (problem, fix) = exact_functions(row.name);
        return Err(PrivacyRefusal { field: "sampler.name".into(), problem, fix });
    }
    if row.needs_optimum {
        let problem = format!("{} needs the optimum, an exact function of rows", row.name);
        return Err(refuse("sampler.name", problem, "use lmc, sgld, qlsd or qlsd#"));
    }
    let Some(Schedule::Constant(step)) = config.sampler.step else {
        let problem = "a step that is left open is found by surveys, which are exact functions of \
                       rows; one that decreases changes the noise";
        let fix = "state a constant step; or leave it open without a compressor, and state a \
                   gaussian prior and the most rows that all sites have together, e.g. \
                   privacy.rows = 10000";
        return Err(refuse("sampler.step", problem.into(), fix));
    };
    let b = facts.clients.len();
    let mut settings = plan::settings(config, b);
    if config.sampler.weights_by_rows {
        match &facts.rows {
            Some(rows) => {
                let all = rows.iter().sum::<u64>() as f64;
                settings.weights = Some(rows.iter().map(|n| *n as f64 / all).collect());
            }
            None => {
                let problem = "weights by rows are known only with the rows";
                return Err(refuse("sampler.weights", problem.into(), "state the weights"));
            }
        }
    }
    let recipe = row.recipe(Schedule::Constant(step), &settings, b, facts.dim, None);
    let recipe =
        applied(config, recipe, facts.dim).map_err(|e| refuse("sampler", e.problem, &e.fix))?;
    recipe
        .family()
        .own_noise(b, facts.dim, config.target.temperature)
        .map_err(|e| refuse("sampler", e.to_string(), "correct [sampler]"))?;
    Ok((recipe, step))
}

/// Everything that stands against it.
fn gathered(config: &Config, facts: &Facts<'_>) -> Vec<PrivacyRefusal> {
    let mut all = Vec::new();
    let mut refuse = |field: &str, problem: String, fix: &str| {
        all.push(PrivacyRefusal { field: field.into(), problem, fix: fix.into() });
    };
    let Some(privacy) = &config.privacy else {
        refuse(
            "privacy",
            "the config states no budget".into(),
            "add [privacy] with epsilon = 3.0, delta = 1e-6 and row_norm = 3.0",
        );
        return all;
    };
    let twice = config.sampler.row.family.asks_twice;
    let coded = "columns are coded by moments, levels or extremes of all sites' rows, which are \
                 exact functions of them";
    match (rows_alone(config), &config.target.model) {
        (Some(kind), _) if twice => {
            if let Err(why) = kind.released(privacy.response) {
                refuse(
                    "target.model",
                    why.into(),
                    "use logistic regression without privacy.response, or linear regression with \
                     it, e.g. response = 5.0",
                );
            }
        }
        (Some(kind), _) => {
            if let Err(why) = kind.row_gradient(privacy.row_norm, privacy.slope) {
                refuse(
                    "target.model",
                    why.into(),
                    "use logistic or softmax regression without privacy.slope, or linear \
                     regression with it, e.g. slope = 2.0",
                );
            }
        }
        (None, ModelConfig::Gaussian(_)) => refuse(
            "target.model",
            "Gaussian clients have no rows".into(),
            "use logistic or softmax regression",
        ),
        (None, ModelConfig::External(_)) => refuse(
            "target.model",
            "no bound of a row's gradient is known for a model that a program brings".into(),
            "use logistic or softmax regression",
        ),
        (None, _) => match StatedDesign::of(config) {
            Err(error) => refuse(&error.field, error.problem, &error.fix),
            Ok(_) => refuse("data", coded.into(), &to_state(config)),
        },
    }
    if let Ok(Some(StatedDesign { plan, .. })) = StatedDesign::of(config)
        && (!plan.offsets.is_empty() || plan.weights.is_some())
    {
        refuse(
            "target.formula",
            "offsets and weights of rows have no bounds in a private run".into(),
            "leave offset( ) and weights( ) out",
        );
    }
    if !twice && let Err(refusal) = stated(config, facts) {
        all.push(refusal);
    }
    let mut refuse = |field: &str, problem: &str, fix: &str| {
        all.push(PrivacyRefusal { field: field.into(), problem: problem.into(), fix: fix.into() });
    };
    if twice {
        if config.run.chains.is_some_and(|chains| chains != 1) {
            refuse(
                "run.chains",
                "sites answer twice, and a second chain would ask them again: one chain draws from \
                 what was told, and is as long as you like",
                "use chains = 1, and more iterations",
            );
        }
        if config.sampler.step.is_some() {
            refuse("sampler.step", "dp-release finds its step where it samples", "remove it");
        }
        if config.run.start.as_ref().is_some_and(|start| *start != Start::Zero) {
            refuse("run.start", "dp-release starts where the first release says", "remove it");
        }
        if privacy.slope.is_some() {
            refuse(
                "privacy.slope",
                "dp-release bounds residuals by what the first release says",
                "remove it",
            );
        }
    } else if privacy.response.is_some() {
        refuse(
            "privacy.response",
            "only dp-release clips responses",
            "remove it, or use name = \"dp-release\"",
        );
    }
    if !twice && (config.run.iterations.is_none() || config.run.chains.is_none()) {
        refuse(
            "run",
            "a run that is as long as its draws need is as long as the rows say",
            "state chains and iterations",
        );
    }
    if config.sampler.precondition == Some(true) {
        refuse(
            "sampler.precondition",
            "the coordinates would be found by the Hessian, an exact function of rows",
            "remove it",
        );
    }
    if !twice && config.run.start == Some(Start::Optimum) {
        refuse(
            "run.start",
            "the optimum is an exact function of rows",
            "state a point, or \"zero\"",
        );
    }
    if config.lp == Some(true) {
        refuse(
            "output.lp",
            "the log-density of the draws is made of exact functions of rows",
            "remove it",
        );
    }
    if config.run.halve {
        refuse(
            "run.bias",
            "chains of half the step would be releases of another size",
            "remove it",
        );
    }
    let minibatch = match config.sampler.settings.batch {
        None | Some(Batch::Full) => false,
        Some(Batch::Rows(_)) if facts.rows.is_none() => {
            refuse(
                "sampler.batch",
                "the share of rows is known only with the rows",
                "state the batch as a share, e.g. batch = 0.1",
            );
            true
        }
        Some(Batch::Rows(_) | Batch::Fraction(_) | Batch::Each(_)) => true,
    };
    if minibatch && !privacy.poisson && privacy.neighbour == Neighbour::AddRemove {
        let error = PrivacyError::FixedAddRemove.to_string();
        refuse(
            "privacy.neighbour",
            &error,
            "use neighbour = \"replace\", sampling = \"poisson\", or batch = \"all\"",
        );
    }
    if minibatch && privacy.rows_per_person > 1 {
        refuse(
            "privacy.rows_per_person",
            "how many of a person's rows are in a minibatch is not bounded as one row's share is",
            "use batch = \"all\", which costs less than a minibatch",
        );
    }
    if privacy.poisson {
        match config.sampler.settings.batch {
            _ if twice => {
                refuse("privacy.sampling", "dp-release answers with all rows", "remove it")
            }
            Some(Batch::Fraction(_) | Batch::Each(_)) => {}
            _ => refuse(
                "privacy.sampling",
                "rows that are drawn one by one have a probability, and the config states none",
                "state it as the batch, e.g. batch = 0.1, or remove sampling",
            ),
        }
    }
    if privacy.server_share.is_some() && !twice && !draws_noise(config) {
        refuse(
            "privacy.server_share",
            "the noise of this sampler is its sites' alone, and the server draws none of it",
            "remove it",
        );
    }
    if privacy.hot && config.sampler.settings.compress.is_none() {
        refuse("privacy.hot", "nothing is rounded, and nothing heats the chain", "remove it");
    }
    if let Some(rows) = &facts.rows {
        for (site, n) in facts.clients.iter().zip(rows) {
            if privacy.delta * *n as f64 >= 1.0 {
                let problem = format!(
                    "delta = {} is not below 1/{n}, one over the rows of site \"{site}\": with it \
                     some row may be told in full",
                    privacy.delta
                );
                refuse("privacy.delta", &problem, "use a smaller delta");
            }
        }
    }
    if privacy.secure_sum {
        if twice {
            refuse(
                "privacy.secure_sum",
                "dp-release draws noise of its own size for each of its moments",
                "remove it, or use lmc",
            );
        }
        if privacy.server_share.is_some() {
            refuse(
                "privacy.server_share",
                "all of the noise is in a secure sum, and the server draws none",
                "remove it",
            );
        }
        if facts.clients.len() < privacy.colluding + 2 {
            let problem = format!(
                "of {} sites {} may collude: what is left of the sum is the answer of one site, or \
                 nothing",
                facts.clients.len(),
                privacy.colluding
            );
            refuse("privacy.secure_sum", &problem, "have two honest sites at least");
        }
    }
    if config.privacy.is_some() && privacy.colluding + 1 > facts.clients.len() {
        refuse("privacy.colluding", "there are not so many other sites", "use a smaller number");
    }
    all
}

/// How columns that sites would agree on can be stated instead.
fn to_state(config: &Config) -> String {
    const NUMBERS: &str =
        "give every site a table of numbers that needs no coding: [[client]] with file";
    let lines = match &config.target.model {
        ModelConfig::Own(own) => own.formula.as_deref().map(stated::lines_of).unwrap_or_default(),
        ModelConfig::Builtin(name) => builtin::study(name).map_or(Vec::new(), |study| {
            let nothing = StatedCoding::default();
            match lay_out(&nothing, &study.plan, &study.schema, &study.sites) {
                Err(StatedError::Lacks { lines, .. }) => lines,
                _ => Vec::new(),
            }
        }),
        _ => return NUMBERS.into(),
    };
    if lines.is_empty() {
        return format!("{NUMBERS}; or state [target.coding], with one [[client]] for each site");
    }
    let files = match config.target.model {
        ModelConfig::Own(_) => ", and one [[client]] for each site",
        _ => "",
    };
    format!(
        "state how, with numbers that are known without the rows{files}:\n    [target.coding]\n    \
         {}",
        lines.join("\n    ")
    )
}

/// Whether the sampler's server draws what its sites leave of the Langevin noise.
fn draws_noise(config: &Config) -> bool {
    let row = config.sampler.row;
    if row.needs_optimum || row.family.needs_shape {
        return true; // refused for that
    }
    let recipe =
        config.sampler.row.recipe(Schedule::Constant(1e-3), &plan::settings(config, 2), 2, 1, None);
    let family = recipe.family();
    family.with_own_noise(0.0) != family.with_own_noise(0.5)
}

/// The share of a site's rows in a minibatch, and how they are drawn.
fn sampling(config: &Config, rows: Option<u64>) -> Sampling {
    let batch = match &config.sampler.settings.batch {
        _ if !config.sampler.row.has(Axis::Batch) => &Batch::Full,
        None => &Batch::Full,
        Some(batch) => batch,
    };
    let share = match (batch, rows) {
        (Batch::Full, _) => 1.0,
        (batch, Some(rows)) => batch.of(rows as usize) as f64 / rows as f64,
        (Batch::Fraction(share) | Batch::Each(share), None) => *share,
        (Batch::Rows(_), None) => 1.0,
    };
    match (&config.privacy, batch) {
        (Some(privacy), Batch::Fraction(each)) if privacy.poisson && *each < 1.0 => {
            Sampling::Poisson { rate: *each }
        }
        _ if share >= 1.0 => Sampling::Full,
        _ => Sampling::Fixed { share },
    }
}

/// Numbers of iterations at which epsilon is shown.
fn shown(iterations: u64) -> Vec<u64> {
    let mut all: Vec<u64> = [1000, 300, 100, 30, 10, 3, 1].map(|n| iterations / n).to_vec();
    all.retain(|n| *n > 0);
    all.dedup();
    all
}

fn planned(config: &Config, facts: &Facts<'_>) -> Result<PrivacyPlan, ConfigError> {
    if let Some(PrivacyRefusal { field, problem, fix }) = gathered(config, facts).into_iter().next()
    {
        return Err(complain(config, &field, problem, &fix));
    }
    let missing = |what: &str| complain(config, "privacy", what, "state it");
    let Some(privacy) = &config.privacy else { return Err(missing("there is no budget")) };
    let Some(kind) = rows_alone(config) else { return Err(missing("there are no rows")) };
    if config.sampler.row.family.asks_twice {
        let once = once(config)
            .map_err(|problem| complain(config, "privacy", problem, "correct [privacy]"))?;
        return planned_once(config, privacy, &once, facts)
            .map_err(|e| complain(config, "privacy", e.to_string(), "correct [privacy]"));
    }
    let row_gradient = kind.row_gradient(privacy.row_norm, privacy.slope).map_err(&missing)?;
    let (recipe, step) = stated(config, facts)
        .map_err(|refusal| complain(config, &refusal.field, refusal.problem, &refusal.fix))?;
    let (Some(chains), Some(iterations)) = (config.run.chains, config.run.iterations) else {
        return Err(missing("the run has no stated length"));
    };
    let chains = chains as u64;
    let family = recipe.family();
    let b = facts.clients.len();
    let noise = family
        .own_noise(b, facts.dim, config.target.temperature)
        .map_err(|e| complain(config, "sampler", e.to_string(), "correct [sampler]"))?;
    let no_bound =
        |e: PrivacyError| complain(config, "privacy", e.to_string(), "correct [privacy]");
    let summed = Summed::new(config, privacy, row_gradient, b);
    let person = privacy.rows_per_person as f64;
    let mut sites: Vec<SitePlan> = Vec::new();
    for (i, site) in facts.clients.iter().enumerate() {
        let drawn = sampling(config, facts.rows.as_ref().map(|rows| rows[i]));
        let share = drawn.share();
        let alike = sites.iter().find(|known| known.noise == noise[i] && known.share == share);
        let exposures = match alike {
            Some(known) => known.exposures.clone(),
            None if privacy.secure_sum => Threat::ALL
                .iter()
                .map(|threat| {
                    let honest = match threat {
                        Threat::Server => b.saturating_sub(privacy.colluding),
                        Threat::Sites => b.saturating_sub(privacy.colluding.max(1)),
                        Threat::Outsiders => b,
                    };
                    let release = summed.release(honest)?;
                    let epsilon = |n: u64| release.epsilon(n * chains, privacy.delta);
                    let (budget, delta) = (privacy.epsilon, privacy.delta);
                    Ok(Exposure {
                        threat: *threat,
                        ratio: privacy.neighbour.reach() * release.ratio(),
                        epsilon: epsilon(iterations)?,
                        renyi: epsilon(iterations)?,
                        curve: shown(iterations)
                            .into_iter()
                            .map(|n| Ok((n, epsilon(n)?)))
                            .collect::<Result<_, PrivacyError>>()?,
                        allowed: release.most(budget, delta, MOST_RELEASES)? / chains,
                    })
                })
                .collect::<Result<Vec<_>, PrivacyError>>()
                .map_err(no_bound)?,
            None => Threat::ALL
                .iter()
                .map(|threat| {
                    let colluding = match threat {
                        Threat::Server => b,
                        Threat::Sites => privacy.colluding.max(1),
                        Threat::Outsiders => 0,
                    };
                    let more = match threat {
                        Threat::Server => 1.0,
                        _ => family.noise_in_sum(b, i, colluding),
                    };
                    let ratio = share * noise[i] * more / (person * row_gradient);
                    let release = Release::new(drawn, privacy.neighbour, ratio)?;
                    let reach = privacy.neighbour.reach();
                    let of = |n: u64| Composition::of(release, n * chains);
                    // One Gaussian mechanism, where draws alone are seen.
                    let seen = |n: u64| -> Result<Option<Composition>, PrivacyError> {
                        let mu = match threat {
                            Threat::Outsiders => hidden(config, facts, &recipe, reach / ratio, n),
                            Threat::Server | Threat::Sites => None,
                        };
                        let once = |mu: f64| {
                            let release =
                                Release::new(Sampling::Full, privacy.neighbour, reach / mu)?;
                            Ok(Composition::of(release, 1))
                        };
                        mu.map(once).transpose()
                    };
                    let (budget, delta) = (privacy.epsilon, privacy.delta);
                    let epsilon = |n: u64| {
                        let all = of(n).epsilon(delta)?;
                        let seen = seen(n)?.map(|seen| seen.epsilon(delta)).transpose()?;
                        Ok(seen.map_or(all, |seen| seen.min(all)))
                    };
                    let renyi = |n: u64| {
                        let all = of(n).renyi_epsilon(delta)?;
                        let seen = seen(n)?.map(|seen| seen.renyi_epsilon(delta)).transpose()?;
                        Ok::<_, PrivacyError>(seen.map_or(all, |seen| seen.min(all)))
                    };
                    Ok(Exposure {
                        threat: *threat,
                        ratio,
                        epsilon: epsilon(iterations)?,
                        renyi: renyi(iterations)?,
                        curve: shown(iterations)
                            .into_iter()
                            .map(|n| Ok((n, epsilon(n)?)))
                            .collect::<Result<_, PrivacyError>>()?,
                        allowed: Composition::most(release, budget, delta, MOST_RELEASES)? / chains,
                    })
                })
                .collect::<Result<Vec<_>, PrivacyError>>()
                .map_err(no_bound)?,
        };
        sites.push(SitePlan { site: site.clone(), noise: noise[i], share, exposures });
    }
    let honest = b.saturating_sub(privacy.colluding);
    let secure = privacy.secure_sum.then(|| SecurePlan {
        grid: summed.grid,
        resolution: summed.sum.resolution,
        bits: facts
            .rows
            .as_ref()
            .map(|rows| summed.sum.bits(rows.iter().sum(), step, config.target.temperature)),
        honest,
    });
    let could = !privacy.secure_sum
        && honest >= 2
        && family.with_secure_sum(summed.sum).is_ok_and(|secure| {
            let noise = secure.family().own_noise(b, facts.dim, config.target.temperature);
            noise.is_ok()
        });
    let allowed_by_secure_sum = if could {
        let most =
            |release: SecureRelease| release.most(privacy.epsilon, privacy.delta, MOST_RELEASES);
        summed.release(honest).and_then(most).ok().map(|most| most / chains)
    } else {
        None
    };
    // Random steps that are accepted or rejected take no Langevin time.
    let langevin = if family.is_exact() { 0.0 } else { step };
    let time = langevin * (chains * iterations) as f64;
    let allowed = sites.iter().map(|site| site.exposures[0].allowed).min().unwrap_or(0);
    // A chain forgets in 1/m of Langevin time, and two of these make an effective draw.
    let curvature = privacy.expect_curvature.filter(|_| langevin > 0.0);
    let buys = |time: f64| curvature.map(|m| 0.5 * m * time);
    let effective_draws_allowed = buys(langevin * (chains * allowed) as f64);
    // The mean of n draws has an excess variance of 1/n of the posterior's. The second release has
    // that of as many draws as its share of the budget buys, and the draws from it are free.
    let release_width = match (effective_draws_allowed, once_in_place(config)) {
        (Some(draws), Some(once)) if draws < LEAST_DRAWS => {
            Some((1.0 + 1.0 / ((1.0 - once.share()) * draws.max(1e-12))).sqrt())
        }
        _ => None,
    };
    let about = PublishedPrivacy {
        share: sites.first().map_or(1.0, |site| site.share),
        steps: chains * iterations,
        temperature: config.target.temperature,
        sensitivity: person * privacy.neighbour.reach() * row_gradient,
    };
    let published = family.published_privacy(about).and_then(|theorem| {
        match theorem.best_claim(privacy.delta) {
            Ok(epsilon) => Some(Published::Epsilon(epsilon)),
            Err(PrivacyError::OutsideTheorem { limit, .. }) => Some(Published::Step(limit)),
            Err(_) => None,
        }
    });
    Ok(PrivacyPlan {
        sampler: config.sampler.row.name,
        epsilon: privacy.epsilon,
        delta: privacy.delta,
        row_gradient,
        reach: person * privacy.neighbour.reach(),
        person: privacy.rows_per_person,
        published,
        once: None,
        secure,
        allowed_by_secure_sum,
        release_width,
        chains,
        iterations,
        time,
        effective_draws: buys(time),
        effective_draws_allowed,
        sites,
    })
}

/// What could be released once in place of the chains of this config: responses may be clipped to
/// within any bound.
fn once_in_place(config: &Config) -> Option<Once> {
    let (Some(privacy), Some(kind)) = (&config.privacy, rows_alone(config)) else {
        return None;
    };
    let released = kind.released(None).or_else(|_| kind.released(Some(1.0))).ok()?;
    let budget = (privacy.epsilon, privacy.delta);
    let once = Once::new(released, privacy.row_norm, privacy.neighbour, budget).ok()?;
    Some(once.for_persons_of(privacy.rows_per_person))
}

/// The plan of two releases.
fn planned_once(
    config: &Config,
    privacy: &PrivacyConfig,
    once: &Once,
    facts: &Facts<'_>,
) -> Result<PrivacyPlan, PrivacyError> {
    let (b, reach) = (facts.clients.len(), privacy.neighbour.reach());
    let exposed = |threat: &Threat| {
        let honest = match threat {
            Threat::Server => 1,
            Threat::Sites => b.saturating_sub(privacy.colluding.max(1)).max(1),
            Threat::Outsiders => b,
        } as f64;
        // One Gaussian mechanism each, beside which the noise of all honest sites stands.
        let of = |mu: f64| -> Result<Composition, PrivacyError> {
            let release = Release::new(Sampling::Full, privacy.neighbour, reach / mu)?;
            Ok(Composition::of(release, 1))
        };
        let all = once.mu / honest.sqrt();
        let epsilon = of(all)?.epsilon(privacy.delta)?;
        Ok(Exposure {
            threat: *threat,
            ratio: reach / all,
            epsilon,
            renyi: of(all)?.renyi_epsilon(privacy.delta)?,
            curve: vec![
                (1, of(once.first_mu() / honest.sqrt())?.epsilon(privacy.delta)?),
                (2, epsilon),
            ],
            allowed: 2,
        })
    };
    let exposures = Threat::ALL.iter().map(exposed).collect::<Result<Vec<_>, PrivacyError>>()?;
    let t = once.first_deviation();
    let noise = match once.regression {
        Released::Linear { response, .. } => vec![
            ("first: sum of squares of features", t),
            ("first: sum of features times responses", t / once.weight() / 2f64.sqrt()),
            ("first: sum of squares of responses", t / once.weight().powi(2)),
            ("second: pull of clipped residuals, at most", once.second_deviation(2.5 * response)),
        ],
        Released::Logistic => vec![
            ("first: sum of squares of features", t),
            ("first: sum of signs times features", t / once.weight()),
            ("second: gradient", once.second_deviation(1.0)),
            ("second: Hessian, on its diagonal", once.hessian_deviation()),
        ],
    };
    let second = once.second_deviation(1.0);
    let site = |name: &String| SitePlan {
        site: name.clone(),
        noise: second,
        share: 1.0,
        exposures: exposures.clone(),
    };
    Ok(PrivacyPlan {
        sampler: config.sampler.row.name,
        epsilon: privacy.epsilon,
        delta: privacy.delta,
        row_gradient: privacy.row_norm,
        reach: privacy.rows_per_person as f64 * reach,
        person: privacy.rows_per_person,
        published: None,
        secure: None,
        allowed_by_secure_sum: None,
        once: Some(OncePlan { mu: [once.mu, once.first_mu(), once.second_mu()], noise }),
        chains: 1,
        iterations: config.run.iterations.unwrap_or(2 * config.run.effective_draws),
        time: 0.0,
        effective_draws: None,
        effective_draws_allowed: None,
        // b sites, each with noise of its own.
        release_width: privacy
            .expect_curvature
            .map(|m| (1.0 + b as f64 * second * second / m).sqrt()),
        sites: facts.clients.iter().map(site).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_shortened_and_short_ones_left_alone() {
        let mut cells = vec![3.0, 4.0, 0.3, -0.4, 0.0, 0.0, 3e200, 4e200];
        let told = shorten(&mut cells, 2, 2.5);
        assert_eq!((told.rows, told.of), (2, 4));
        assert!((told.longest / 5e200 - 1.0).abs() < 1e-12, "{told:?}");
        for (found, expected) in cells.iter().zip([1.5, 2.0, 0.3, -0.4, 0.0, 0.0, 1.5, 2.0]) {
            assert!((found - expected).abs() < 1e-12, "{cells:?}");
        }
        assert!((cells[0] * cells[0] + cells[1] * cells[1]).sqrt() <= 2.5);
        assert_eq!(&cells[2..6], [0.3, -0.4, 0.0, 0.0]);
    }
}

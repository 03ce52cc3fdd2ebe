//! Hold responses that a model would draw against those that there are (posterior predictive
//! checks), and say how much of them it explains.
//!
//! Every site draws its rows' responses anew from some draws of the run, and sends counts and sums
//! over its rows: those of what it observed, and those of each replicate. No response leaves it,
//! the largest as little as any other: how many are far off is a count, too. It takes two answers,
//! since bins are set by the mean and the standard deviation of all responses.

use std::sync::Arc;

use consilience_core::measure::{MASS, equal_tailed, mean, sd};
use consilience_core::model::Design;
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::simd::{exp, ln};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::draws::Draws;
use crate::loo::{LooError, rows_of};
use crate::models::{Doubt, Effects, RowAt, RowModel, places};
use crate::prior_draws::{PriorError, prior_draws};
use crate::problem::{Problem, SiteRows};
use crate::random::Random;
use crate::record::Record;
use crate::warnings::{Code, Warning};

/// The most replicates.
const MOST: usize = 1000;
/// The fewest of which something is said.
const LEAST: usize = 100;
/// The most responses that are drawn after a run: seconds, not minutes.
const MOST_AFTER_A_RUN: usize = 30_000_000;
/// Below this a statistic is doubtful. Where the model is right, it is at most so often.
pub const DOUBTFUL: f64 = 0.005;
/// Into so many bins probabilities are counted, for the area under the ROC curve.
const AUC_BINS: usize = 200;

/// One number of the responses that there are, and of replicates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// What it is.
    pub name: String,
    /// Of the responses that there are.
    pub observed: f64,
    /// Its mean over replicates.
    pub replicated: f64,
    /// The lower end of the interval that most replicates lie in.
    pub lower: f64,
    /// Its upper end.
    pub upper: f64,
    /// How probable it is that a replicate is as far off as the responses that there are.
    pub p: f64,
}

/// How much a model explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fit {
    /// `Bayesian R^2` or `AUC`.
    pub measure: String,
    /// Its mean over draws; of an AUC the middle of its bounds.
    pub value: f64,
    /// The lower end of its interval; of an AUC its lower bound.
    pub lower: f64,
    /// The upper end, or bound.
    pub upper: f64,
}

/// What the sites told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Whether parameters were drawn from the prior instead of the posterior.
    pub prior: bool,
    /// What is counted: responses, or events.
    pub unit: String,
    /// How many rows there are.
    pub rows: u64,
    /// How many replicates.
    pub replicates: usize,
    /// The mass of intervals.
    pub mass: f64,
    /// Numbers of all sites together.
    pub statistics: Vec<Compared>,
    /// How many responses each bin has, by its name.
    pub bins: Vec<Compared>,
    /// The mean response of each site, or how many events it has, by its name.
    pub sites: Vec<Compared>,
    /// How much is explained, where that has a measure.
    pub fit: Option<Fit>,
    /// What all sites would send for this, in bytes.
    pub bytes: u64,
    /// What is doubtful, in words, and what to do about it.
    #[serde(default)]
    pub doubts: Vec<(String, String)>,
}

impl Check {
    /// The warning of a model that its rows do not look like, if they do not.
    pub fn warning(&self) -> Option<Warning> {
        if self.prior || self.doubts.is_empty() {
            return None;
        }
        let said: Vec<&str> = self.doubts.iter().map(|(says, _)| says.as_str()).collect();
        let mut remedies: Vec<&str> = Vec::new();
        for (_, remedy) in &self.doubts {
            if !remedies.contains(&remedy.as_str()) {
                remedies.push(remedy);
            }
        }
        let message = format!(
            "the model would not draw {} like those that there are: {}",
            self.unit,
            said.join("; ")
        );
        let all = self.statistics.iter().chain(&self.sites).map(|s| s.p);
        let remedy = remedies[..remedies.len().min(2)].join(". ");
        let found = Warning::new(Code::ModelMisfit, message).remedy(remedy);
        Some(found.number("p", all.fold(1.0, f64::min)))
    }
}

/// Check a run that was kept; its rows are read again.
pub fn check(record: &Record) -> Result<Check, LooError> {
    let (model, sites) = rows_of(record)?;
    Checked::new(&model, sites, &record.draws, record.seed, false)?.check()
}

/// What the prior of a config says of its rows, before it has seen any.
pub fn prior_check(config: &Config) -> Result<Check, LooError> {
    let problem = Problem::new(config)?;
    let (model, sites) = crate::loo::rows_of_config(config, &problem.parameters)?;
    let draws = prior_draws(&problem, MOST, config.seed)
        .map_err(|e: PriorError| LooError::NoPrior { why: e.to_string() })?;
    Checked::new(&model, sites, &draws, config.seed, true)?.check()
}

/// Check a run that has just ended; `Ok(None)` where there is nothing to check, and `Err` says why
/// it was left out.
pub(crate) fn after_a_run(config: &Config, record: &Record) -> Result<Option<Check>, String> {
    let model = config.target.model.of_rows();
    if model.as_ref().is_some_and(|model| model.is_whole()) {
        return Ok(None);
    }
    let all = record.draws.chains() * record.draws.length();
    if config.privacy.is_some() || config.target.temperature != 1.0 || all < LEAST {
        return Ok(None);
    }
    let rows: u64 = record.sites.iter().map(|site| site.rows).sum();
    if rows as usize * LEAST.max(record.draws.dim()) > MOST_AFTER_A_RUN
        || model.is_some_and(|model| model.net().is_some())
    {
        return Err("responses were not drawn anew, since that is much work. `consilience check \
                    RUN` does it"
            .into());
    }
    let (model, sites) = match crate::loo::rows_of_config(config, &record.parameters) {
        Ok(found) => found,
        Err(_) => return Ok(None),
    };
    let checked = Checked::new(&model, sites, &record.draws, record.seed, false);
    match checked.map(|checked| checked.at_most(MOST_AFTER_A_RUN)).and_then(|all| all.check()) {
        Ok(check) => Ok(Some(check)),
        Err(LooError::NoLaw { .. } | LooError::NoRows { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// One site: its rows, and the law of its groups' effects where there are such.
struct SiteView {
    name: String,
    design: Design,
    offset: Vec<f64>,
    response: Vec<f64>,
    groups: Vec<u32>,
    effects: Option<Effects>,
}

/// All that is needed to check.
struct Checked<'a> {
    model: &'a Arc<dyn RowModel>,
    sites: Vec<SiteView>,
    draws: Vec<&'a [f64]>,
    seed: Seed,
    prior: bool,
}

/// How responses are counted: bin `k` has those above edge `k - 1`, and not above edge `k`.
#[derive(Clone, Debug, PartialEq)]
struct Bins {
    kind: Kind,
    edges: Vec<f64>,
    /// What is subtracted before powers are taken, so that they lose no digits.
    centre: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Classes,
    Levels,
    Counts,
    Times,
    Numbers,
}

/// Sums over responses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sums {
    count: u64,
    /// Of the responses less the centre, their squares and their cubes.
    powers: [f64; 3],
    bins: Vec<u64>,
}

impl Sums {
    fn add(&mut self, y: f64, bins: &Bins) {
        let off = y - bins.centre;
        self.count += 1;
        self.powers[0] += off;
        self.powers[1] += off * off;
        self.powers[2] += off * off * off;
        self.bins.resize(bins.edges.len() + 1, 0);
        self.bins[bins.edges.partition_point(|edge| *edge < y)] += 1;
    }

    fn merge(&mut self, other: &Sums) {
        self.count += other.count;
        self.powers.iter_mut().zip(other.powers).for_each(|(sum, more)| *sum += more);
        self.bins.resize(self.bins.len().max(other.bins.len()), 0);
        self.bins.iter_mut().zip(&other.bins).for_each(|(sum, more)| *sum += more);
    }

    /// Mean (less the centre), variance and third central moment.
    fn moments(&self) -> [f64; 3] {
        let [a, b, c] = self.powers.map(|sum| sum / self.count as f64);
        [a, b - a * a, c - 3.0 * a * b + 2.0 * a * a * a]
    }

    fn bin(&self, k: usize) -> f64 {
        self.bins.get(k).map_or(0.0, |n| *n as f64)
    }

    fn share(&self, k: usize) -> f64 {
        self.bin(k) / self.count.max(1) as f64
    }
}

/// Sums over what one draw expects of rows: of the mean, and of the response less the mean.
#[derive(Clone, Copy, Debug, Default)]
struct Explained {
    rows: f64,
    mean: [f64; 2],
    left: [f64; 2],
}

impl Explained {
    fn merge(&mut self, other: &Explained) {
        self.rows += other.rows;
        for (sum, more) in [(&mut self.mean, other.mean), (&mut self.left, other.left)] {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }

    /// The variance of the means over that of means and errors (Gelman, Goodrich, Gabry and Vehtari
    /// 2019).
    fn r_squared(&self) -> f64 {
        let variance =
            |[sum, square]: [f64; 2]| square / self.rows - (sum / self.rows) * (sum / self.rows);
        let (fitted, left) = (variance(self.mean), variance(self.left));
        fitted / (fitted + left)
    }
}

impl<'a> Checked<'a> {
    fn new(
        model: &'a Arc<dyn RowModel>,
        sites: Vec<SiteRows>,
        draws: &'a Draws,
        seed: u64,
        prior: bool,
    ) -> Result<Self, LooError> {
        let all = draws.chains() * draws.length();
        if all < LEAST {
            return Err(LooError::TooFewToCheck { draws: all });
        }
        if sites.iter().any(|site| !site.rows.weights.is_empty()) {
            return Err(LooError::NoLaw {
                why: "rows have weights, and a row that counts twice has no law of its own",
            });
        }
        if model.is_whole() {
            return Err(LooError::NoLaw {
                why: "Cox regression leaves open when events come; model = \"weibull\" says it",
            });
        }
        if model.slope_by().is_some() {
            return Err(LooError::NoLaw {
                why: "responses of groups whose slopes differ are not drawn anew yet",
            });
        }
        if model.lacking_terms().is_some() {
            return Err(LooError::NoLaw {
                why: "responses of rows in which mi( ) lacks values are not drawn anew yet",
            });
        }
        let view = |site: SiteRows| -> Result<SiteView, LooError> {
            let effects = match model.group_by() {
                Some(_) => model.effects(site.design.clone(), site.rows.clone())?,
                None => None,
            };
            let groups = match site.rows.groups.is_empty() {
                true => vec![0; site.design.rows()],
                false => site.rows.groups,
            };
            let (offset, response) = (site.rows.offset, site.rows.response);
            Ok(SiteView { name: site.name, design: site.design, offset, response, groups, effects })
        };
        let sites = sites.into_iter().map(view).collect::<Result<Vec<_>, _>>()?;
        let draws = draws.rows().step_by(all.div_ceil(MOST)).collect();
        Ok(Checked { model, sites, draws, seed: Seed::new(seed), prior })
    }

    /// With fewer replicates, where so many responses are too many.
    fn at_most(mut self, responses: usize) -> Self {
        let rows: usize = self.sites.iter().map(|site| site.response.len()).sum();
        let keep = (responses / rows.max(1)).clamp(LEAST, MOST);
        let every = self.draws.len().div_ceil(keep);
        self.draws = self.draws.into_iter().step_by(every).collect();
        self
    }

    /// The model given the effects of groups.
    fn within(&self) -> &dyn RowModel {
        &**self.model.within().unwrap_or(self.model)
    }

    /// What there is of a response: itself, or where it is a time the event, if it was seen.
    fn seen(&self, y: f64) -> Option<f64> {
        (!self.model.censors() || y > 0.0).then_some(y)
    }

    /// Where responses are counted, by the sums that sites send first.
    fn bins(&self) -> Bins {
        let (model, mut sums) = (self.within(), Sums::default());
        let free = Bins { kind: Kind::Numbers, edges: Vec::new(), centre: 0.0 };
        let logs = model.censors();
        for y in self.sites.iter().flat_map(|site| &site.response) {
            if let Some(y) = self.seen(*y) {
                sums.add(if logs { ln(y) } else { y }, &free);
            }
        }
        let [centre, variance, _] = sums.moments();
        let spread = variance.max(0.0).sqrt();
        let steps = |all: &[f64]| all.iter().map(|z| centre + z * spread).collect::<Vec<f64>>();
        if let Some(classes) = model.classes() {
            let edges = (1..classes).map(|k| k as f64 - 0.5).collect();
            return Bins { kind: Kind::Classes, edges, centre: 0.0 };
        }
        if logs {
            let edges = steps(&[-1.5, -1.0, -0.5, 0.0, 0.5, 1.0]).into_iter().map(exp);
            return Bins { kind: Kind::Times, edges: edges.collect(), centre: exp(centre) };
        }
        if model.accepts(0.5) {
            let edges = steps(&[-3.0, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0]);
            return Bins { kind: Kind::Numbers, edges, centre };
        }
        if !model.accepts(0.0) {
            let levels = (1..=64).take_while(|level| model.accepts(f64::from(*level)));
            let edges = levels.skip(1).map(|level| f64::from(level) - 0.5).collect();
            return Bins { kind: Kind::Levels, edges, centre };
        }
        let (mut edges, most) = (vec![0.0, 1.0, 2.0], (centre + 3.0 * spread).max(3.0));
        while edges.len() < 40 && edges[edges.len() - 1] < most {
            let last = edges[edges.len() - 1];
            edges.push((1.5 * last).ceil());
        }
        Bins { kind: Kind::Counts, edges, centre }
    }

    /// What a site sends of what it observed.
    fn observed(&self, site: &SiteView, bins: &Bins) -> Sums {
        let mut sums = Sums::default();
        site.response.iter().filter_map(|y| self.seen(*y)).for_each(|y| sums.add(y, bins));
        sums
    }

    /// What a site sends of one replicate, and of what the draw explains.
    fn replicate(&self, place: usize, k: usize, bins: &Bins) -> Option<(Sums, Explained)> {
        let (site, draw, model) = (&self.sites[place], self.draws[k], self.within());
        let address = |purpose| self.seed.stream(purpose, ClientId(place as u32), k as u64);
        let mut random = Random::new(address(Purpose::Replicate));
        let mut predictors = self.model.adjusted_predictors(&site.design, &site.offset, draw);
        let beside = self.model.split(draw).1;
        if let Some(law) = &site.effects {
            let effects: Vec<f64> = if self.prior {
                // groups that nobody has seen
                let sd = beside.last().copied().unwrap_or(0.0);
                let groups = site.groups.iter().max().map_or(0, |last| *last as usize + 1);
                (0..groups).map(|_| sd * random.normal()).collect()
            } else {
                let mut x = draw.to_vec();
                self.model.transforms(x.len()).inward(&mut x);
                law.draw(&x, &mut address(Purpose::Effects))
            };
            for (t, group) in predictors.iter_mut().zip(&site.groups) {
                *t += effects.get(*group as usize).copied().unwrap_or(0.0);
            }
        }
        let beside = &beside[..places(&model.beside()).min(beside.len())];
        let (mut sums, mut explained, mut drawn) =
            (Sums::default(), Explained::default(), Vec::new());
        for (t, y) in predictors.chunks_exact_mut(model.predictors()).zip(&site.response) {
            drawn.clear();
            if !model.replicate(RowAt { predictors: t, beside, y: *y }, &mut random, &mut drawn) {
                return None;
            }
            drawn.iter().for_each(|y| sums.add(*y, bins));
            if model.predictors() == 1 {
                model.expect(t, beside);
                let (mean, left) = (t[0] - bins.centre, y - t[0]);
                explained.rows += 1.0;
                explained.mean = [explained.mean[0] + mean, explained.mean[1] + mean * mean];
                explained.left = [explained.left[0] + left, explained.left[1] + left * left];
            }
        }
        Some((sums, explained))
    }

    /// The area under the ROC curve, by counts of both classes in bins of the mean probability:
    /// within a bin nothing is known of the order.
    fn auc(&self) -> Option<Fit> {
        let model = self.within();
        if model.classes() != Some(2) || model.predictors() != 1 {
            return None;
        }
        let counted = |(place, site): (usize, &SiteView)| {
            let mut p = vec![0.0; site.response.len()];
            for (k, draw) in self.draws.iter().enumerate() {
                let mut predictors =
                    self.model.adjusted_predictors(&site.design, &site.offset, draw);
                if let Some(law) = &site.effects {
                    let mut x = draw.to_vec();
                    self.model.transforms(x.len()).inward(&mut x);
                    let client = ClientId(place as u32);
                    let mut stream = self.seed.stream(Purpose::Effects, client, k as u64);
                    let effects = law.draw(&x, &mut stream);
                    for (t, group) in predictors.iter_mut().zip(&site.groups) {
                        *t += effects[*group as usize];
                    }
                }
                for (sum, t) in p.iter_mut().zip(&mut predictors) {
                    model.expect(std::slice::from_mut(t), &[]);
                    *sum += *t / self.draws.len() as f64;
                }
            }
            let mut counts = vec![[0.0f64; 2]; AUC_BINS];
            for (p, y) in p.iter().zip(&site.response) {
                let bin = (p * AUC_BINS as f64) as usize;
                counts[bin.min(AUC_BINS - 1)][usize::from(*y == 1.0)] += 1.0;
            }
            counts
        };
        let sites: Vec<_> = self.sites.par_iter().enumerate().map(counted).collect();
        let mut counts = vec![[0.0f64; 2]; AUC_BINS];
        for site in sites {
            for (sum, more) in counts.iter_mut().zip(site) {
                *sum = [sum[0] + more[0], sum[1] + more[1]];
            }
        }
        let (mut below, mut sure, mut tied, mut ones) = (0.0, 0.0, 0.0, 0.0);
        for [no, yes] in counts {
            sure += yes * below;
            tied += yes * no;
            below += no;
            ones += yes;
        }
        let pairs = below * ones;
        (pairs > 0.0).then(|| Fit {
            measure: "AUC".into(),
            value: (sure + 0.5 * tied) / pairs,
            lower: sure / pairs,
            upper: (sure + tied) / pairs,
        })
    }

    fn check(self) -> Result<Check, LooError> {
        let bins = self.bins();
        let observed: Vec<Sums> =
            self.sites.iter().map(|site| self.observed(site, &bins)).collect();
        let one = |k: usize| -> Option<Vec<(Sums, Explained)>> {
            (0..self.sites.len()).map(|place| self.replicate(place, k, &bins)).collect()
        };
        let drawn: Option<Vec<Vec<(Sums, Explained)>>> =
            (0..self.draws.len()).into_par_iter().map(one).collect();
        let no_law = LooError::NoLaw { why: "its model has no law of single rows" };
        let drawn = drawn.ok_or(no_law)?;
        Ok(self.compare(&bins, &observed, &drawn))
    }

    /// What the server makes of the sums.
    fn compare(&self, bins: &Bins, observed: &[Sums], drawn: &[Vec<(Sums, Explained)>]) -> Check {
        let rows: usize = self.sites.iter().map(|site| site.response.len()).sum();
        let mut all = Sums::default();
        observed.iter().for_each(|site| all.merge(site));
        let totals: Vec<(Sums, Explained)> = drawn
            .iter()
            .map(|sites| {
                let mut total = (Sums::default(), Explained::default());
                for (sums, explained) in sites {
                    total.0.merge(sums);
                    total.1.merge(explained);
                }
                total
            })
            .collect();
        let mut statistics = Vec::new();
        let mut doubts = Vec::new();
        for (name, doubt, of) in statistics_of(bins) {
            let found =
                compared(name, of(&all, bins), totals.iter().map(|(sums, _)| of(sums, bins)));
            if let Some(found) = found.filter(|found| found.observed.is_finite()) {
                self.doubt(&found, doubt, None, &mut doubts);
                statistics.push(found);
            }
        }
        let count = bins.edges.len() + 1;
        let of_bin = |k: usize| {
            compared(label(bins, k), all.bin(k), totals.iter().map(|(sums, _)| sums.bin(k)))
        };
        let shown: Vec<Compared> = (0..count).filter_map(of_bin).collect();
        let expected: Vec<f64> = shown.iter().map(|bin| bin.replicated.max(0.5)).collect();
        let chi = |sums: &Sums| {
            let each = expected.iter().enumerate();
            each.map(|(k, expected)| (sums.bin(k) - expected).powi(2) / expected).sum::<f64>()
        };
        let shape = format!("chi-square of {count} bins");
        let fit = above(shape, chi(&all), totals.iter().map(|(sums, _)| chi(sums)));
        if let Some(found) = fit.filter(|_| shown.len() == count) {
            let most = shown.iter().max_by(|a, b| off(a).total_cmp(&off(b)));
            self.doubt(&found, Doubt::Shape, most, &mut doubts);
            statistics.push(found);
        }
        let is_event = bins.kind == Kind::Times;
        let of_site = |sums: &Sums| match bins.kind {
            Kind::Times => sums.count as f64,
            _ => sums.moments()[0] + bins.centre,
        };
        let mut sites = Vec::new();
        if bins.kind != Kind::Classes || count == 2 {
            for (place, site) in self.sites.iter().enumerate() {
                let again = drawn.iter().map(|all| of_site(&all[place].0));
                sites.extend(compared(site.name.clone(), of_site(&observed[place]), again));
            }
        }
        if sites.len() == self.sites.len() && sites.len() > 1 {
            let scale: Vec<(f64, f64)> = (0..sites.len())
                .map(|place| {
                    let again: Vec<f64> = drawn.iter().map(|all| of_site(&all[place].0)).collect();
                    (mean(&again), sd(&again))
                })
                .collect();
            let distance = |of: &dyn Fn(usize) -> f64| -> f64 {
                let each = scale.iter().enumerate().filter(|(_, (_, sd))| *sd > 0.0);
                each.map(|(place, (mean, sd))| ((of(place) - mean) / sd).powi(2)).sum()
            };
            let now = distance(&|place| of_site(&observed[place]));
            let again = drawn.iter().map(|all| distance(&|place| of_site(&all[place].0)));
            if let Some(found) = above("chi-square of the sites".into(), now, again) {
                let most = sites.iter().max_by(|a, b| off(a).total_cmp(&off(b)));
                self.doubt(&found, Doubt::Sites, most, &mut doubts);
                statistics.push(found);
            }
        }
        let explains = matches!(bins.kind, Kind::Numbers | Kind::Counts) && !self.prior;
        let fit = match explains {
            true => {
                let all: Vec<f64> = totals.iter().map(|(_, sums)| sums.r_squared()).collect();
                let known = all.iter().all(|r| r.is_finite());
                let ends = equal_tailed(&all, MASS).ok().filter(|_| known);
                ends.map(|(lower, upper)| Fit {
                    measure: "Bayesian R^2".into(),
                    value: mean(&all),
                    lower,
                    upper,
                })
            }
            false if self.prior => None,
            false => self.auc(),
        };
        // counts and sums of what is there, and of every replicate, in 64 bits each; before that
        // three sums
        let numbers = (4 + count + 5) * (drawn.len() + 1) + 3;
        Check {
            prior: self.prior,
            unit: if is_event { "events" } else { "responses" }.into(),
            rows: rows as u64,
            replicates: drawn.len(),
            mass: MASS,
            statistics,
            bins: shown,
            sites,
            fit,
            bytes: 8 * (numbers * self.sites.len()) as u64,
            doubts,
        }
    }

    /// Write down what is doubtful; `most` is what contributes most to it.
    fn doubt(
        &self,
        found: &Compared,
        doubt: Doubt,
        most: Option<&Compared>,
        into: &mut Vec<(String, String)>,
    ) {
        if found.p > DOUBTFUL || self.prior {
            return;
        }
        let shown = most.unwrap_or(found);
        let what = match doubt {
            Doubt::Sites => format!("that of site {}", shown.name),
            Doubt::Shape => format!("the count of \"{}\"", shown.name),
            _ => shown.name.clone(),
        };
        let says = format!(
            "{what} is {}, where {:.0}% of replicates are between {} and {} (p = {:.3})",
            short(shown.observed),
            100.0 * MASS,
            short(shown.lower),
            short(shown.upper),
            found.p
        );
        let more = found.observed > found.replicated;
        into.push((says, self.model.mend(doubt, more).to_owned()));
    }
}

type Read = fn(&Sums, &Bins) -> f64;

/// The numbers by which responses of a kind are compared.
fn statistics_of(bins: &Bins) -> Vec<(String, Doubt, Read)> {
    let mean: (String, Doubt, Read) =
        ("mean".into(), Doubt::Centre, |sums, bins| sums.moments()[0] + bins.centre);
    let spread: (String, Doubt, Read) =
        ("standard deviation".into(), Doubt::Spread, |sums, _| sums.moments()[1].max(0.0).sqrt());
    let largest = bins.edges.last().copied().unwrap_or(f64::NAN);
    match bins.kind {
        Kind::Classes => Vec::new(),
        Kind::Levels => vec![("mean level".into(), Doubt::Centre, mean.2)],
        Kind::Times => vec![
            ("events".into(), Doubt::Centre, |sums, _| sums.count as f64),
            ("mean time of events".into(), Doubt::Shape, mean.2),
        ],
        Kind::Counts => vec![
            mean,
            spread,
            ("share of zeros".into(), Doubt::Zeros, |sums, _| sums.share(0)),
            (format!("share above {largest}"), Doubt::Extremes, |sums, bins| {
                sums.share(bins.edges.len())
            }),
        ],
        Kind::Numbers => vec![
            mean,
            spread,
            ("skewness".into(), Doubt::Skew, |sums, _| {
                let [_, variance, third] = sums.moments();
                third / variance.max(f64::MIN_POSITIVE).powf(1.5)
            }),
            ("share beyond 3 sd".into(), Doubt::Extremes, |sums, bins| {
                sums.share(0) + sums.share(bins.edges.len())
            }),
        ],
    }
}

/// The name of a bin.
fn label(bins: &Bins, k: usize) -> String {
    let edge = |k: usize| bins.edges.get(k).copied();
    let below = k.checked_sub(1).and_then(edge);
    match (bins.kind, below, edge(k)) {
        (Kind::Classes, ..) => format!("class {k}"),
        (Kind::Levels, ..) => format!("level {}", k + 1),
        (Kind::Counts, None, _) => "0".into(),
        (Kind::Counts, Some(low), Some(high)) if low + 1.0 == high => format!("{high}"),
        (Kind::Counts, Some(low), Some(high)) => format!("{} to {high}", low + 1.0),
        (_, None, Some(high)) => format!("up to {}", short(high)),
        (_, Some(low), Some(high)) => format!("{} to {}", short(low), short(high)),
        (_, Some(low), None) => format!("above {}", short(low)),
        (_, None, None) => "all".into(),
    }
}

/// How far off a number is, for the choice of the one that is named.
fn off(of: &Compared) -> f64 {
    (of.observed - of.replicated).abs() / (of.upper - of.lower).abs().max(f64::MIN_POSITIVE)
}

/// A number of replicates beside that of what there is, by two tails; `None` where it is none.
fn compared(
    name: String,
    observed: f64,
    replicated: impl Iterator<Item = f64>,
) -> Option<Compared> {
    let all: Vec<f64> = replicated.collect();
    let n = all.len() as f64;
    let tail = |beyond: usize| (1.0 + beyond as f64) / (1.0 + n);
    let (above, below) = (
        all.iter().filter(|x| **x >= observed).count(),
        all.iter().filter(|x| **x <= observed).count(),
    );
    let p = (2.0 * tail(above).min(tail(below))).min(1.0);
    told(name, observed, &all, p)
}

/// The same by the upper tail alone.
fn above(name: String, observed: f64, replicated: impl Iterator<Item = f64>) -> Option<Compared> {
    let all: Vec<f64> = replicated.collect();
    let beyond = all.iter().filter(|x| **x >= observed).count();
    let p = (1.0 + beyond as f64) / (1.0 + all.len() as f64);
    told(name, observed, &all, p)
}

fn told(name: String, observed: f64, all: &[f64], p: f64) -> Option<Compared> {
    let (replicated, (lower, upper)) = (mean(all), equal_tailed(all, MASS).ok()?);
    let finite = [observed, replicated, lower, upper].iter().all(|x| x.is_finite());
    finite.then_some(Compared { name, observed, replicated, lower, upper, p })
}

/// A number with as many digits as people read.
pub fn short(x: f64) -> String {
    let digits = match x.abs() {
        x if x >= 1000.0 => 0,
        x if x >= 100.0 => 1,
        x if x >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{x:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

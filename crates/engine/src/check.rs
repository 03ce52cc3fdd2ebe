//! Hold responses that a model would draw against those that there are (posterior predictive
//! checks), and say how much of them it explains.
//!
//! Every site draws its rows' responses anew from some draws of the run, and sends counts and sums
//! over its rows: those of what it observed, and those of each replicate. No response leaves it,
//! the largest as little as any other: how many are far off is a count, too. It takes two answers,
//! since bins are set by the mean and the standard deviation of all responses.

mod apart;
mod counts;

use std::borrow::Cow;
use std::sync::Arc;

pub use apart::{CheckPart, FirstPart, check_at, first_at, merge};
use consilience_core::measure::{MASS, equal_tailed, mean, sd};
use consilience_core::model::Design;
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::simd::{exp, ln};
use counts::{Bins, Explained, Kind, Sums, above, compared, label, off, statistics_of};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::draws::Draws;
use crate::loo::{LooError, rows_of};
use crate::models::{Doubt, Effects, RowAt, RowModel};
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
    Question::new(&model, &record.draws, record.seed, false)?.ask(sites)
}

/// What the prior of a config says of its rows, before it has seen any.
pub fn prior_check(config: &Config) -> Result<Check, LooError> {
    let problem = Problem::new(config)?;
    let (model, sites) = crate::loo::rows_of_config(config, &problem.parameters)?;
    let draws = prior_draws(&problem, MOST, config.seed)
        .map_err(|e: PriorError| LooError::NoPrior { why: e.to_string() })?;
    Question::new(&model, &draws, config.seed, true)?.ask(sites)
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
    let most = MOST_AFTER_A_RUN / (rows as usize).max(1);
    let question = Question::new(&model, &record.draws, record.seed, false);
    match question.map(|question| question.at_most(most)).and_then(|all| all.ask(sites)) {
        Ok(check) => Ok(Some(check)),
        Err(LooError::NoLaw { .. } | LooError::NoRows { .. }) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// One site: its rows, and the law of its groups' effects where there are such.
struct SiteView {
    name: String,
    /// Its place among the sites.
    place: usize,
    design: Design,
    offset: Vec<f64>,
    response: Vec<f64>,
    groups: Vec<u32>,
    effects: Option<Effects>,
}

/// What a site sends.
#[derive(Clone, Debug)]
struct Told {
    name: String,
    rows: u64,
    /// Of the responses that there are.
    observed: Sums,
    /// Of each replicate, and of what its draw explains.
    drawn: Vec<(Sums, Explained)>,
    /// Of two classes, how many rows of each have a mean probability in a bin; else nothing.
    classes: Vec<[f64; 2]>,
}

/// What every site is asked.
struct Question<'a> {
    model: &'a Arc<dyn RowModel>,
    draws: Vec<&'a [f64]>,
    seed: Seed,
    prior: bool,
}

impl<'a> Question<'a> {
    fn new(
        model: &'a Arc<dyn RowModel>,
        draws: &'a Draws,
        seed: u64,
        prior: bool,
    ) -> Result<Self, LooError> {
        let all = draws.chains() * draws.length();
        if all < LEAST {
            return Err(LooError::TooFewToCheck { draws: all });
        }
        if model.is_whole() {
            return Err(LooError::NoLaw {
                why: "Cox regression leaves open when events come; model = \"weibull\" says it",
            });
        }
        let draws = draws.rows().step_by(all.div_ceil(MOST)).collect();
        Ok(Question { model, draws, seed: Seed::new(seed), prior })
    }

    /// With so many replicates at most, where more are too many.
    fn at_most(mut self, replicates: usize) -> Self {
        let every = self.draws.len().div_ceil(replicates.clamp(LEAST, MOST));
        self.draws = self.draws.into_iter().step_by(every).collect();
        self
    }

    /// Ask all sites, whose rows are here.
    fn ask(&self, sites: Vec<SiteRows>) -> Result<Check, LooError> {
        let views: Vec<SiteView> = sites
            .into_iter()
            .enumerate()
            .map(|(place, site)| self.view(place, site))
            .collect::<Result<_, _>>()?;
        let first: Vec<Sums> = views.iter().map(|site| self.first(site)).collect();
        let bins = self.bins(&first);
        let told: Vec<Told> =
            views.iter().map(|site| self.tell(site, &bins)).collect::<Result<_, _>>()?;
        Ok(self.compare(&bins, &told))
    }

    fn view(&self, place: usize, site: SiteRows) -> Result<SiteView, LooError> {
        if !site.rows.weights.is_empty() {
            return Err(LooError::NoLaw {
                why: "rows have weights, and a row that counts twice has no law of its own",
            });
        }
        let effects = match self.model.group_by() {
            Some(_) => self.model.effects(site.design.clone(), site.rows.clone())?,
            None => None,
        };
        let groups = match site.rows.groups.is_empty() {
            true => vec![0; site.design.rows()],
            false => site.rows.groups,
        };
        let (offset, response) = (site.rows.offset, site.rows.response);
        let (name, design) = (site.name, site.design);
        Ok(SiteView { name, place, design, offset, response, groups, effects })
    }

    /// The model given the effects of groups.
    fn within(&self) -> &dyn RowModel {
        &**self.model.within().unwrap_or(self.model)
    }

    /// What there is of a response: itself, or where it is a time the event, if it was seen.
    fn seen(&self, y: f64) -> Option<f64> {
        (!self.model.censors() || y > 0.0).then_some(y)
    }

    /// What a site sends first: the sums by which bins are set.
    fn first(&self, site: &SiteView) -> Sums {
        let (logs, mut sums) = (self.model.censors(), Sums::default());
        let free = Bins { kind: Kind::Numbers, edges: Vec::new(), centre: 0.0 };
        for y in site.response.iter().filter_map(|y| self.seen(*y)) {
            sums.add(if logs { ln(y) } else { y }, &free);
        }
        sums
    }

    /// Where responses are counted, by the sums that sites send first.
    fn bins(&self, first: &[Sums]) -> Bins {
        let (model, logs, mut sums) = (self.within(), self.model.censors(), Sums::default());
        first.iter().for_each(|site| sums.merge(site));
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

    /// What a site sends then.
    fn tell(&self, site: &SiteView, bins: &Bins) -> Result<Told, LooError> {
        let mut observed = Sums::default();
        let seen = site.response.iter().filter_map(|y| self.seen(*y));
        seen.for_each(|y| observed.add(y, bins));
        let replicate = |k: usize| self.replicate(site, k, bins);
        let drawn: Option<Vec<(Sums, Explained)>> =
            (0..self.draws.len()).into_par_iter().map(replicate).collect();
        let no_law = LooError::NoLaw { why: "its model has no law of single rows" };
        Ok(Told {
            name: site.name.clone(),
            rows: site.response.len() as u64,
            observed,
            drawn: drawn.ok_or(no_law)?,
            classes: self.classes(site),
        })
    }

    /// The predictors of a site's rows at a draw, with effects of groups: those of its own groups,
    /// or where parameters are of the prior, of groups that nobody has seen.
    fn predictors(&self, site: &SiteView, k: usize, random: &mut Random) -> Vec<f64> {
        let (draw, model) = (self.draws[k], self.model);
        let mut predictors = model.adjusted_predictors(&site.design, &site.offset, draw);
        let Some(law) = &site.effects else { return predictors };
        let each = law.effects();
        let effects: Vec<f64> = if self.prior {
            let groups = site.groups.iter().max().map_or(0, |last| *last as usize + 1);
            (0..groups).flat_map(|_| model.new_effects(draw, random)).collect()
        } else {
            let mut x = draw.to_vec();
            model.transforms(x.len()).inward(&mut x);
            let client = ClientId(site.place as u32);
            law.draw(&x, &mut self.seed.stream(Purpose::Effects, client, k as u64))
        };
        for (row, (t, group)) in predictors.iter_mut().zip(&site.groups).enumerate() {
            let first = *group as usize * each;
            *t += model.effect_at(&effects[first..first + each], &site.design, row);
        }
        predictors
    }

    /// What a draw says of the parameters beside the coefficients, as a row needs it.
    fn beside<'d>(&self, site: &SiteView, draw: &'d [f64], row: usize) -> Cow<'d, [f64]> {
        self.model.beside_within(draw, &site.design, row)
    }

    /// What a site sends of one replicate, and of what the draw explains.
    fn replicate(&self, site: &SiteView, k: usize, bins: &Bins) -> Option<(Sums, Explained)> {
        let (draw, model) = (self.draws[k], self.within());
        let client = ClientId(site.place as u32);
        let mut random = Random::new(self.seed.stream(Purpose::Replicate, client, k as u64));
        let mut predictors = self.predictors(site, k, &mut random);
        let (mut sums, mut explained, mut drawn) =
            (Sums::default(), Explained::default(), Vec::new());
        let rows = predictors.chunks_exact_mut(model.predictors()).zip(&site.response);
        for (row, (t, y)) in rows.enumerate() {
            drawn.clear();
            let beside = &self.beside(site, draw, row);
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

    /// How many rows of both classes have their mean probability in each bin; nothing where there
    /// are no two classes, or it is not asked.
    fn classes(&self, site: &SiteView) -> Vec<[f64; 2]> {
        let model = self.within();
        if self.prior || model.classes() != Some(2) || model.predictors() != 1 {
            return Vec::new();
        }
        let mut p = vec![0.0; site.response.len()];
        for (k, draw) in self.draws.iter().enumerate() {
            let client = ClientId(site.place as u32);
            let mut random = Random::new(self.seed.stream(Purpose::Replicate, client, k as u64));
            let mut predictors = self.predictors(site, k, &mut random);
            for (row, (sum, t)) in p.iter_mut().zip(&mut predictors).enumerate() {
                model.expect(std::slice::from_mut(t), &self.beside(site, draw, row));
                *sum += *t / self.draws.len() as f64;
            }
        }
        let mut counts = vec![[0.0f64; 2]; AUC_BINS];
        for (p, y) in p.iter().zip(&site.response) {
            let bin = (p * AUC_BINS as f64) as usize;
            counts[bin.min(AUC_BINS - 1)][usize::from(*y == 1.0)] += 1.0;
        }
        counts
    }

    /// What is made of the sums of all sites.
    fn compare(&self, bins: &Bins, told: &[Told]) -> Check {
        let rows: u64 = told.iter().map(|site| site.rows).sum();
        let mut all = Sums::default();
        told.iter().for_each(|site| all.merge(&site.observed));
        let replicates = told.first().map_or(0, |site| site.drawn.len());
        let total = |k: usize| {
            let mut total = (Sums::default(), Explained::default());
            for (sums, explained) in told.iter().map(|site| &site.drawn[k]) {
                total.0.merge(sums);
                total.1.merge(explained);
            }
            total
        };
        let totals: Vec<(Sums, Explained)> = (0..replicates).map(total).collect();
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
        let classes = self.model.class_names().filter(|_| bins.kind == Kind::Classes);
        let name = |k: usize| match classes.as_ref().and_then(|names| names.get(k)) {
            Some(class) => format!("class {class}"),
            None => label(bins, k),
        };
        let of_bin =
            |k: usize| compared(name(k), all.bin(k), totals.iter().map(|(sums, _)| sums.bin(k)));
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
            for site in told {
                let again = site.drawn.iter().map(|(sums, _)| of_site(sums));
                sites.extend(compared(site.name.clone(), of_site(&site.observed), again));
            }
        }
        if sites.len() == told.len() && sites.len() > 1 {
            let scale: Vec<(f64, f64)> = told
                .iter()
                .map(|site| {
                    let again: Vec<f64> =
                        site.drawn.iter().map(|(sums, _)| of_site(sums)).collect();
                    (mean(&again), sd(&again))
                })
                .collect();
            let distance = |of: &dyn Fn(usize) -> f64| -> f64 {
                let each = scale.iter().enumerate().filter(|(_, (_, sd))| *sd > 0.0);
                each.map(|(place, (mean, sd))| ((of(place) - mean) / sd).powi(2)).sum()
            };
            let now = distance(&|place| of_site(&told[place].observed));
            let again =
                (0..replicates).map(|k| distance(&|place| of_site(&told[place].drawn[k].0)));
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
            false => area(told),
        };
        // counts and sums of what is there, and of every replicate, in 64 bits each; before that
        // three sums
        let numbers = (4 + count + 5) * (replicates + 1) + 3;
        Check {
            prior: self.prior,
            unit: if is_event { "events" } else { "responses" }.into(),
            rows,
            replicates,
            mass: MASS,
            statistics,
            bins: shown,
            sites,
            fit,
            bytes: 8 * (numbers * told.len()) as u64,
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

/// The area under the ROC curve, by counts of both classes in bins of the mean probability: within
/// a bin nothing is known of the order.
fn area(told: &[Told]) -> Option<Fit> {
    let mut counts = vec![[0.0f64; 2]; AUC_BINS];
    for site in told {
        for (sum, more) in counts.iter_mut().zip(&site.classes) {
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

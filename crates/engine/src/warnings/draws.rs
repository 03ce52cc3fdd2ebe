//! Judge the draws of a run: what a reader must know before relying on them, by how much, and the
//! one thing to do.

use std::borrow::Cow;

use consilience_core::measure::{Chains, Interval, Summary, summarise};
use consilience_core::sampler::{CLIPPED, HEAT, NOISE_RATIO, registry};

use super::{Code, Warning, weights};
use crate::draws::Draws;
use crate::record::Record;

/// Above this R-hat chains are said to disagree (Vehtari et al. 2021).
pub const MOST_RHAT: f64 = 1.01;
/// Below so many effective draws a chain, quantiles are not to be trusted.
pub const LEAST_ESS: f64 = 100.0;
/// A pooled reference and the draws disagree beyond this: means by so many posterior standard
/// deviations, standard deviations by this part.
const MOST_SHIFT: f64 = 0.1;
const MOST_SPREAD: f64 = 0.05;
/// Fewer effective draws than this part of those that were asked for are too few; estimates of them
/// scatter by less.
pub(crate) const SHORT: f64 = 0.9;
/// So many standard errors are no accident.
const BEYOND_ERROR: f64 = 4.0;
/// Above this ratio of noise draws given a release are said to be rough.
const MOST_NOISE: f64 = 0.5;
/// Heat of rounding below this is less than what draws can show.
const LEAST_HEAT: f64 = 0.01;
/// How many sites are named whose gradients were shortened.
const MOST_NAMED: usize = 4;
/// More than so many times the iterations are no advice.
const MOST_LONGER: f64 = 30.0;

/// A summary of every parameter; `None` where there are too few draws.
pub fn summaries(draws: &Draws) -> Vec<Option<Summary>> {
    let one = |k: usize| {
        let chains = draws.parameter(k);
        let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
        summarise(&Chains::new(&slices).ok()?, Interval::default()).ok()
    };
    (0..draws.dim()).map(one).collect()
}

/// What the draws of a record give reason to warn of.
pub fn of_draws(record: &Record) -> Vec<Warning> {
    if let Some(streamed) = &record.streamed {
        let says = "the draws are too many to be held at once, and nothing here is computed from \
            them";
        let remedy =
            format!("`consilience summary {}` computes the table", streamed.file.display());
        return vec![Warning::new(Code::DrawsOnDisk, says).remedy(remedy)];
    }
    if record.draws.dim() == 0 || record.draws.length() == 0 {
        let none = Warning::new(Code::NoDraws, "there are no draws here to be summarised");
        return stopped(record).into_iter().chain([none]).collect();
    }
    let (names, draws) = record.shown();
    let judge =
        Judge { record, names, summaries: summaries(&draws), iterations: record.iterations };
    [
        stopped(record),
        judge.broken(),
        judge.few(),
        judge.alone(),
        judge.still(),
        judge.apart(),
        judge.reference(),
        weights::heavy(record, &judge.summaries),
        weights::stuck(record, &judge.summaries),
        noisy(record),
        heated(record),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What was released once, with much noise.
fn noisy(record: &Record) -> Option<Warning> {
    let ratios = record.statistics.iter().find(|s| s.name == NOISE_RATIO)?;
    let ratio = *ratios.values.first()?.first()?;
    let says = format!(
        "the noise of what sites released is {:.2} times what their rows say in the direction that \
         they say least of: the prior counts there, and intervals are rough",
        ratio.abs()
    );
    (!(0.0..=MOST_NOISE).contains(&ratio)).then(|| {
        Warning::new(Code::NoisyRelease, says)
            .remedy("Bring more rows, state a larger epsilon, or leave columns out")
            .number("noise_ratio", ratio)
    })
}

/// Gradients that were shortened: how many of each site.
pub fn clipped(record: &Record, shortened: &[u64]) -> Option<Warning> {
    let counts = record.statistics.iter().find(|s| s.name == CLIPPED)?;
    let all: usize = counts.values.iter().map(Vec::len).sum();
    let each = counts.values.iter().flatten().sum::<f64>() / all.max(1) as f64;
    let total: u64 = shortened.iter().sum();
    let mut sites: Vec<(&str, u64)> =
        record.sites.iter().map(|site| &*site.name).zip(shortened.iter().copied()).collect();
    sites.retain(|(_, count)| *count > 0);
    sites.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |(site, count): &(&str, u64)| {
        format!("\"{site}\" {:.0}%", 100.0 * *count as f64 / total as f64)
    };
    let shares: Vec<String> = sites.iter().take(MOST_NAMED).map(share).collect();
    let others = if sites.len() > MOST_NAMED { " and others" } else { "" };
    let says = format!(
        "gradients of {each:.2} of {} sites a round were shortened to sampler.clip ({}{others} of \
         them): the draws are not those of the posterior, but follow sites that pull harder less \
         than their rows say",
        record.sites.len(),
        shares.join(", "),
    );
    let (worst, _) = sites.first()?;
    let remedy = format!(
        "Find out why site \"{worst}\" pulls so hard, and whether its rows are right; then leave \
         it out, or clip, and compare"
    );
    let warning = Warning::new(Code::AnswersClipped, says).remedy(remedy);
    Some(warning.number("sites_a_round", each))
}

/// Rounding that added more noise than there should be.
fn heated(record: &Record) -> Option<Warning> {
    let rounds = record.statistics.iter().find(|s| s.name == HEAT)?;
    let all: usize = rounds.values.iter().map(Vec::len).sum();
    let heat = rounds.values.iter().flatten().sum::<f64>() / all.max(1) as f64;
    let says = format!(
        "rounding to levels added more than the noise that was left to the server: the chain was \
         hotter by {:.2}% on average, and its intervals are too wide by about half of that",
        100.0 * heat
    );
    (heat > LEAST_HEAT).then(|| {
        Warning::new(Code::RoundingHeats, says)
            .remedy("State more levels in sampler.compress, or a larger privacy.server_share")
            .number("heat", heat)
    })
}

fn stopped(record: &Record) -> Option<Warning> {
    let says = "the run was stopped before its end: what follows is what it had drawn until then";
    record.interrupted.then(|| Warning::new(Code::Interrupted, says))
}

struct Judge<'a> {
    record: &'a Record,
    names: Cow<'a, [String]>,
    summaries: Vec<Option<Summary>>,
    iterations: u64,
}

impl Judge<'_> {
    fn known(&self) -> impl Iterator<Item = (usize, &Summary)> {
        self.summaries.iter().enumerate().filter_map(|(k, summary)| Some((k, summary.as_ref()?)))
    }

    fn name(&self, k: usize) -> String {
        self.names.get(k).cloned().unwrap_or_else(|| format!("parameter {}", k + 1))
    }

    fn broken(&self) -> Option<Warning> {
        let broken =
            self.record.draws.rows().filter(|row| !row.iter().all(|x| x.is_finite())).count();
        let says = format!("{broken} draws are not finite: the chains left every reasonable place");
        (broken > 0).then(|| {
            Warning::new(Code::NotFinite, says)
                .remedy("Use step = \"auto\"")
                .number("draws", broken as f64)
        })
    }

    fn few(&self) -> Option<Warning> {
        let few = self.record.draws.length() < Chains::LEAST;
        few.then(|| {
            Warning::new(Code::TooFewDraws, "too few draws for a summary")
                .remedy("Run more iterations, or thin less")
                .number("draws", self.record.draws.length() as f64)
        })
    }

    fn alone(&self) -> Option<Warning> {
        let says = "one chain cannot show whether chains agree";
        // Sites that answer twice allow one chain, which is as long as anybody likes.
        let meant = registry::find(&self.record.sampler.0).is_some_and(|row| row.family.asks_twice);
        (self.record.draws.chains() < 2 && !meant)
            .then(|| Warning::new(Code::OneChain, says).remedy("Run at least 4"))
    }

    fn still(&self) -> Option<Warning> {
        if self.record.draws.chains() < 2 {
            return None; // one chain has no R-hat, and is a warning of its own
        }
        let still = self.known().filter(|(_, s)| s.rhat.is_nan()).count();
        let all = self.summaries.len();
        let says =
            format!("R-hat is not known for {still} of {all} parameters: their draws hardly vary");
        (still > 0).then(|| {
            Warning::new(Code::RhatUnknown, says)
                .remedy("Use step = \"auto\"")
                .number("parameters", still as f64)
        })
    }

    /// Chains that disagree, or have too few effective draws: one warning, since one thing helps
    /// against both.
    fn apart(&self) -> Option<Warning> {
        let finite = |value: f64| Some(value).filter(|v| !v.is_nan());
        let rhat = self
            .known()
            .filter_map(|(k, s)| Some((k, finite(s.rhat)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let effective = |s: &Summary| finite(s.ess_bulk.min(s.ess_tail));
        let ess = self
            .known()
            .filter_map(|(k, s)| Some((k, effective(s)?)))
            .min_by(|a, b| a.1.total_cmp(&b.1));
        let least = LEAST_ESS * self.record.draws.chains() as f64;
        // Where so many were asked for, fewer are a promise that was not kept.
        let asked = self.record.effective_draws.map_or(0.0, |asked| asked as f64);
        let wanted = least.max(asked);
        let short = |worst: f64| worst < least.max(SHORT * asked);
        let mut says = Vec::new();
        if let Some((k, worst)) = rhat.filter(|(_, worst)| *worst > MOST_RHAT) {
            says.push(format!(
                "the chains disagree: R-hat is up to {worst:.3} (`{}`), and should \
                be below {MOST_RHAT}",
                self.name(k)
            ));
        }
        if let Some((k, worst)) = ess.filter(|(_, worst)| short(*worst)) {
            says.push(format!(
                "only {worst:.0} effective draws (`{}`) where {wanted:.0} are wanted",
                self.name(k)
            ));
        }
        let apart = rhat.is_some_and(|(_, worst)| worst > MOST_RHAT);
        let longer = ess.map_or(2.0, |(_, ess)| 1.2 * wanted / ess.max(1.0));
        let longer = longer.max(if apart { 2.0 } else { 1.0 });
        let code = if apart { Code::ChainsDisagree } else { Code::FewEffectiveDraws };
        (!says.is_empty()).then(|| {
            Warning::new(code, says.join("; "))
                .remedy(self.advice(longer))
                .number("rhat", rhat.map_or(f64::NAN, |(_, worst)| worst))
                .number("effective_draws", ess.map_or(f64::NAN, |(_, worst)| worst))
                .number("wanted", wanted)
        })
    }

    /// What helps against chains that are so many times too short.
    fn advice(&self, longer: f64) -> String {
        let sampler = &self.record.sampler.0;
        let stated = |key: &str| {
            let config: toml::Table = self.record.config.parse().ok()?;
            config.get("sampler")?.as_table()?.get(key).cloned()
        };
        let preconditioned = stated("precondition").and_then(|value| value.as_bool());
        if self.record.interrupted {
            "Let the run come to its end".into()
        } else if preconditioned == Some(false) && self.summaries.len() <= 500 {
            "Set precondition = true, and leave the step out: chains then move alike in all \
             directions"
                .into()
        } else if longer <= MOST_LONGER {
            format!("Run {} iterations (--iterations)", rounded(longer * self.iterations as f64))
        } else if sampler == "lmc" || sampler == "qlsd++" {
            "More iterations alone would take too long: give the target a proper prior, or scale \
             its columns"
                .into()
        } else {
            format!(
                "More iterations alone would take too long: use another sampler than {sampler}, \
                 such as qlsd++ or lmc"
            )
        }
    }

    /// A pooled reference that disagrees.
    fn reference(&self) -> Option<Warning> {
        let reference = summaries(self.record.reference.as_ref()?);
        // How far a parameter is off, and how many standard errors that is.
        let mut mean = (0.0, 0.0, 0);
        let mut sd = (0.0, 0.0, 0);
        for (k, s) in self.known() {
            let Some(Some(r)) = reference.get(k) else { continue };
            let (shift, spread) = ((s.mean - r.mean).abs() / r.sd, (s.sd / r.sd - 1.0).abs());
            let shift_error = s.mcse_mean.hypot(r.mcse_mean) / r.sd;
            let spread_error = s.mcse_sd.hypot(r.mcse_sd) / r.sd;
            if shift > mean.0 {
                mean = (shift, shift / shift_error, k);
            }
            if spread > sd.0 {
                sd = (spread, spread / spread_error, k);
            }
        }
        let mut says = Vec::new();
        if mean.0 > MOST_SHIFT {
            says.push(format!(
                "means differ by up to {:.2} posterior standard deviations (`{}`)",
                mean.0,
                self.name(mean.2)
            ));
        }
        if sd.0 > MOST_SPREAD {
            says.push(format!(
                "standard deviations by up to {:.0}% (`{}`)",
                100.0 * sd.0,
                self.name(sd.2)
            ));
        }
        let errors = [mean, sd]
            .into_iter()
            .zip([MOST_SHIFT, MOST_SPREAD])
            .filter(|(off, most)| off.0 > *most)
            .map(|(off, _)| off.1);
        let biased = errors.fold(0.0, f64::max) > BEYOND_ERROR;
        let sampler = &self.record.sampler.0;
        let remedy = if biased {
            format!(
                "That is beyond Monte Carlo error, so that more iterations do not help: {sampler} \
                 is biased at step {:.1e}. Leave \
                 the step out, halve it, or use another sampler, such as qlsd++ or lmc",
                self.record.step
            )
        } else {
            format!("Monte Carlo error may explain it: {}", self.advice(4.0))
        };
        let says = (!says.is_empty()).then(|| {
            format!(
                "these draws and the same posterior from pooled rows disagree: {}",
                says.join(", ")
            )
        })?;
        Some(
            Warning::new(Code::ReferenceDisagrees, says)
                .remedy(remedy)
                .number("mean_shift_sd", mean.0)
                .number("sd_ratio_off", sd.0),
        )
    }
}

/// A number of iterations as one would write it: two digits.
fn rounded(number: f64) -> String {
    let unit = 10f64.powf((number.log10() - 1.0).floor()).max(1.0);
    format!("{}", (number / unit).ceil() * unit)
}

#[cfg(test)]
mod tests;

//! Choose a step by the bias that it causes, and warn where that is too much.

use consilience_core::sampler::Recipe;
use consilience_core::sampler::forecast::{Forecast, QuadraticModel};
use consilience_core::step::Schedule;
use consilience_core::target::Target;

use super::Findings;
use crate::warnings::{Code, Warning};

/// What an automatic step may do: shift a mean by so many posterior standard deviations, and widen
/// a standard deviation by this part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct BiasGoal {
    mean: f64,
    sd: f64,
}

impl BiasGoal {
    /// The goal of a config that allows this shift of a mean: half of it, relatively, for standard
    /// deviations. A reader who wants 0.1 and 5% has, by default, room for Monte Carlo error, and
    /// for a posterior that is not Gaussian.
    pub(super) fn new(most: f64) -> Self {
        BiasGoal { mean: most, sd: 0.5 * most }
    }

    /// Beyond which bias people are warned, however much the config allows.
    pub(super) fn alarm(self) -> Self {
        let of = |goal: f64| (ALARM * goal).min(MOST);
        BiasGoal { mean: of(self.mean), sd: of(self.sd) }
    }

    fn is_met(self, forecast: &Forecast) -> bool {
        let (mean, sd) = forecast.worst();
        mean <= self.mean && sd <= self.sd
    }
}

/// A forecast becomes a warning beyond this many times the goal: in trials it was right within a
/// factor of 1.5.
const ALARM: f64 = 2.0;
/// More is a warning always: so many posterior standard deviations of a mean, or this part of a
/// standard deviation.
const MOST: f64 = 0.1;

/// The largest step, up to `most`, whose bias is within the goals; `least` if there is none above
/// it.
pub(super) fn step_within_goals(
    model: &QuadraticModel,
    draft: &Recipe,
    goal: BiasGoal,
    least: f64,
    most: f64,
) -> Option<f64> {
    let at = |step: f64| model.forecast(&draft.with_step(Schedule::Constant(step)));
    let good = |step: f64| at(step).is_some_and(|forecast| goal.is_met(&forecast));
    if good(most) {
        return Some(most);
    }
    let mut low = least.min(most);
    if !good(low) {
        // The chains would be too long: as little bias as they can have, if they are stable.
        return (0..60).map(|k| low * 0.7f64.powi(k)).find(|step| at(*step).is_some());
    }
    let mut high = most;
    for _ in 0..12 {
        let middle = (low * high).sqrt();
        if good(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

/// What a user should know of a recipe before it runs.
pub(super) struct Outlook<'a> {
    /// The sampler's name.
    pub(super) sampler: &'a str,
    pub(super) recipe: &'a Recipe,
    pub(super) target: &'a Target,
    /// The parameters' names.
    pub(super) parameters: &'a [String],
    pub(super) findings: Option<&'a Findings>,
    pub(super) forecast: Option<&'a Forecast>,
    /// What is too much.
    pub(super) alarm: BiasGoal,
    /// A step whose bias is within the goals, where the config states another.
    pub(super) better: Option<f64>,
}

impl Outlook<'_> {
    /// The warnings.
    pub(super) fn warnings(&self) -> Vec<Warning> {
        let cautions = self.recipe.family().cautions().into_iter();
        let mut warnings: Vec<Warning> =
            cautions.map(|text| Warning::new(Code::SamplerCaution, text)).collect();
        let (schedule, step) = (self.recipe.step(), self.recipe.step().largest());
        // Whoever accepts or rejects is stable at any step.
        let found = self.findings.filter(|_| !self.recipe.family().is_exact());
        if let Some(limit) =
            found.map(|found| 2.0 / found.smoothness).filter(|limit| step >= *limit)
        {
            let says = format!(
                "the step {step:.3e} is beyond the stable limit 2/L = {limit:.3e}: the chain will \
                 diverge"
            );
            warnings.push(
                Warning::new(Code::StepUnstable, says)
                    .remedy("Use step = \"auto\"")
                    .number("step", step)
                    .number("limit", limit),
            );
        } else if let Some(forecast) = self.forecast {
            warnings.extend((!self.alarm.is_met(forecast)).then(|| self.biased(step, forecast)));
        } else if matches!(schedule, Schedule::Constant(_))
            && self.recipe.family().is_biased_by_design(self.target)
        {
            let says = format!(
                "the draws of {} are biased by its design, by an amount that is not known before \
                 sampling",
                self.sampler
            );
            warnings.push(Warning::new(Code::BiasByDesign, says).remedy(self.remedy()));
        }
        warnings
    }

    /// The warning of a bias that is forecast.
    fn biased(&self, step: f64, forecast: &Forecast) -> Warning {
        let name = |k: usize| {
            self.parameters.get(k).map_or_else(|| format!("parameter {}", k + 1), String::clone)
        };
        let largest = |of: &dyn Fn(usize) -> f64| {
            (0..forecast.sd.len()).max_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap_or(0)
        };
        let (mean, sd) = forecast.worst();
        let mut how = Vec::new();
        if sd > self.alarm.sd {
            let k = largest(&|k| (forecast.sd[k] - 1.0).abs());
            let word = if forecast.sd[k] > 1.0 { "large" } else { "small" };
            how.push(format!(
                "standard deviations up to {:.0}% too {word} (`{}`)",
                100.0 * sd,
                name(k)
            ));
        }
        if mean > self.alarm.mean {
            let k = largest(&|k| forecast.mean[k].abs());
            how.push(format!(
                "means up to {mean:.2} posterior standard deviations off (`{}`)",
                name(k)
            ));
        }
        let smaller = match self.better {
            Some(better) => format!("Use a step of at most {better:.1e}, or step = \"auto\""),
            None => self.remedy().into(),
        };
        // see what was tried in the chapter on choosing
        let remedy = format!(
            "{smaller}. Where the posterior is skewed means may be off by up to 2.4 times their \
             forecast: `bias = \"halve\"` in [run] measures the bias"
        );
        let says = format!(
            "the draws of {} at step {step:.1e} are biased: {} by forecast",
            self.sampler,
            how.join(", ")
        );
        Warning::new(Code::BiasForecast, says)
            .remedy(remedy)
            .number("step", step)
            .number("mean_shift_sd", mean)
            .number("sd_ratio_off", sd)
    }

    /// What helps, where a smaller step does not.
    fn remedy(&self) -> &'static str {
        self.recipe.family().remedy(self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_warned_of_a_tenth_however_much_is_allowed() {
        assert_eq!(BiasGoal::new(0.03).alarm(), BiasGoal { mean: 0.06, sd: 0.03 });
        assert_eq!(BiasGoal::new(0.5).alarm(), BiasGoal { mean: 0.1, sd: 0.1 });
    }
}

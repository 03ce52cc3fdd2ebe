//! FALD, Theorem 34: how far FALD stays from the posterior, on two clients whose law is known.

use std::sync::Arc;

use consilience_core::measure::mean;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::sampler::exact::{StationaryLaw, posterior, stationary};
use consilience_core::sampler::{Batch, Local, Recipe, Synchronise};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FALD, Theorem 34.
pub struct FaldLowerBound;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    /// The clients' means, and their variances.
    means: [f64; 2],
    variances: [f64; 2],
    /// A client's steps, descending.
    steps: Vec<f64>,
    /// Iterations of each run, of which a tenth is burn-in.
    iterations: u64,
    runs: u32,
}

impl Setting {
    /// Potentials `(x - mu)^2 / (2 sigma^2)`: the paper drops the factor 1/2, and goes on as if it
    /// were there.
    fn target(&self) -> Result<Target, Trouble> {
        let client = |i: usize| -> Result<Arc<dyn Model>, Trouble> {
            Ok(Arc::new(Gaussian::new(vec![self.means[i]], vec![1.0 / self.variances[i]])?))
        };
        Ok(Target::new(vec![client(0)?, client(1)?], Prior::Flat, Placement::Server, 1.0)?)
    }

    /// The right side of Theorem 34 as printed; divided by `sigma_1^2 + sigma_2^2` it is true.
    fn printed_bound(&self, step: f64) -> f64 {
        let [a, b] = self.variances;
        let s2 = 1.0 / (1.0 / a + 1.0 / b);
        step / 2.0 * (self.means[0] - self.means[1]).abs() * (s2 / a - s2 / b).abs()
    }
}

/// Two local steps with shared noise, then the mean.
fn recipe(step: f64) -> Recipe {
    Recipe::Local(Local {
        synchronise: Synchronise::Every(2),
        ..Local::fald(Schedule::Constant(step), 2, 1.0, 1.0, Batch::Full)
    })
}

fn law(step: f64, target: &Target) -> Result<StationaryLaw, Trouble> {
    let recipe = recipe(step);
    stationary(&recipe, &recipe.check(target.clone())?)
        .map_err(|error| Trouble::Other(error.to_string()))
}

impl Experiment for FaldLowerBound {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let cell = |step: &f64, run: u32| Cell::new(format!("{step}|{run}"), setting.iterations);
        Ok(setting
            .steps
            .iter()
            .flat_map(|step| (0..setting.runs).map(move |run| cell(step, run)))
            .collect())
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let target = setting.target()?;
        let parts = cell
            .split_once('|')
            .and_then(|(step, run)| Some((step.parse().ok()?, run.parse().ok()?)));
        let (step, index) = parts.ok_or_else(|| Trouble::Other(format!("no such cell: {cell}")))?;
        let centre = law(step, &target)?.mean;
        let chain = Chain {
            recipe: &recipe(step),
            target: &target,
            start: &centre,
            seed: study.seed,
            index,
        };
        let (mut draws, mut sum, mut squares) = (0.0, 0.0, 0.0);
        chain.walk(setting.iterations, progress, |iteration, x, _| {
            if iteration > setting.iterations / 10 {
                let apart = x[0] - centre[0];
                draws += 1.0;
                sum += apart;
                squares += apart * apart;
            }
        })?;
        Ok(Values::from([
            ("mean".into(), vec![centre[0] + sum / draws]),
            ("square".into(), vec![squares / draws]),
        ]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let target = setting.target()?;
        let truth = posterior(&target).map_err(|error| Trouble::Other(error.to_string()))?;
        let sum_of_variances: f64 = setting.variances.iter().sum();
        let mut numbers = Numbers::new();
        let mut curves: [Vec<Point>; 4] = Default::default();
        let mut previous: Option<(f64, f64)> = None;
        for step in &setting.steps {
            let exact = law(*step, &target)?;
            let w2 = (exact.mean[0] - truth.mean[0]).hypot(exact.sd(0) - truth.sd(0));
            let printed = setting.printed_bound(*step);
            numbers.push(Number::exact(format!("w2/exact/{step}"), w2));
            numbers.push(Number::exact(format!("bound/printed/{step}"), printed));
            numbers
                .push(Number::exact(format!("bound/corrected/{step}"), printed / sum_of_variances));
            let runs = |what: &str| -> Result<Vec<f64>, Trouble> {
                (0..setting.runs).map(|run| found.number(&format!("{step}|{run}"), what)).collect()
            };
            // Second moments about the exact mean, so that a run's own mean does not bias its
            // variance; the sd to first order about the exact one.
            let sds: Vec<f64> = runs("square")?
                .iter()
                .map(|square| (exact.sd(0) + square / exact.sd(0)) / 2.0)
                .collect();
            let centre = Number::mean(format!("mean/sampled/{step}"), &runs("mean")?);
            let spread = Number::mean(format!("sd/sampled/{step}"), &sds);
            let (shift, widening) = (centre.value - truth.mean[0], mean(&sds) - truth.sd(0));
            let sampled = shift.hypot(widening);
            let error = (shift * centre.error).hypot(widening * spread.error) / sampled;
            numbers.push(Number {
                name: format!("w2/sampled/{step}"),
                value: sampled,
                error,
                runs: setting.runs as usize,
            });
            numbers.push(Number::exact(format!("mean/exact/{step}"), exact.mean[0]));
            numbers.push(Number::exact(format!("sd/exact/{step}"), exact.sd(0)));
            let apart = |name: &str, sampled: &Number, exact: f64| Number {
                name: format!("{name}: sampled less exact/{step}"),
                value: sampled.value - exact,
                ..sampled.clone()
            };
            numbers.push(apart("mean", &centre, exact.mean[0]));
            numbers.push(apart("sd", &spread, exact.sd(0)));
            numbers.push(centre);
            numbers.push(spread);
            if let Some((larger, w2_at_larger)) = previous {
                numbers.push(Number::exact(
                    format!("order/{step}"),
                    (w2_at_larger / w2).ln() / (larger / step).ln(),
                ));
            }
            previous = Some((*step, w2));
            let bar = if error.is_finite() { error } else { 0.0 };
            for (curve, (y, error)) in curves.iter_mut().zip([
                (w2, 0.0),
                (sampled, bar),
                (printed, 0.0),
                (printed / sum_of_variances, 0.0),
            ]) {
                curve.push(Point { x: *step, y, error });
            }
        }
        let [exact, sampled, printed, corrected] = curves;
        let series =
            |name: &str, mark, colour, points| Series { name: name.into(), mark, colour, points };
        Ok(Findings {
            readings: vec![Reading::ours(numbers)],
            figures: vec![Figure {
                title: "Theorem 34: distance of FALD's law from the posterior".into(),
                caption: format!(
                    "Two clients, two local steps, shared noise. {} runs of each step; a bar is \
                     one standard error.",
                    setting.runs
                ),
                x: Axis::logarithmic("step gamma"),
                y: Axis::logarithmic("W2"),
                series: vec![
                    series("W2, computed", Mark::Line, 0, exact),
                    series("W2, sampled", Mark::Points, 0, sampled),
                    series("bound as printed", Mark::Dashes, 1, printed),
                    series("bound, corrected", Mark::Dashes, 2, corrected),
                ],
            }],
            notes: vec![format!(
                "The last equality of the proof needs sigma_1^2 + sigma_2^2 = 1. Here that sum is \
                 {sum_of_variances}, and the printed bound lies above the distance itself. Divided \
                 by \
                 sigma_1^2 + sigma_2^2 the bound holds; its message, a distance of order gamma \
                 that grows with the heterogeneity, stands."
            )],
        })
    }
}

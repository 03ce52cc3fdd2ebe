//! FALD, Table 1 and Figure 2: the error of the posterior variance with many Gaussian clients.

mod law;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use consilience_core::measure::mean_squared_error;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::rng::Seed;
use consilience_core::sampler::{Batch, Local, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::data::partition::toy_fald;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use nalgebra::{DMatrix, DVector};
use serde::Deserialize;

use self::law::{Clients, Walk};
use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// At so many points of each run the mean so far is noted, for the figure.
const NOTED: u64 = 12;

/// The table's rows: the name in numbers, the name in words, FALD's tau.
const SAMPLERS: [(&str, &str, f64); 3] = [
    ("fald", "FALD, tau = 0", 0.0),
    ("vr-fald*/0", "VR-FALD*, tau = 0", 0.0),
    ("vr-fald*/1", "VR-FALD*, tau = 1", 1.0),
];

/// FALD, Table 1 and Figure 2.
pub struct FaldGaussian;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    dim: usize,
    /// The probabilities that clients synchronise, and that the reference point moves.
    sync: Vec<f64>,
    /// The table's steps over `p` times `2 / (lambda_min + lambda_max)`.
    steps: Vec<f64>,
    /// The table's iterations, for the part of its errors that is Monte Carlo noise.
    table_iterations: f64,
    /// The figure's `p`, and its step over `2 / (lambda_min + lambda_max)`.
    figure_sync: f64,
    figure_step: f64,
    /// The figure's iterations, of which a tenth is burn-in.
    iterations: u64,
    runs: u32,
}

/// What stands for a client's step of gamma.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scale {
    /// Gamma, as in the paper.
    Printed,
    /// Gamma times the number of clients, as in the authors' program.
    TimesClients,
}

impl Scale {
    /// Those that a study looks at.
    fn all(study: &Study) -> &'static [Scale] {
        if study.published { &[Scale::Printed, Scale::TimesClients] } else { &[Scale::Printed] }
    }

    fn name(self) -> &'static str {
        if self == Scale::Printed { "printed" } else { "times b" }
    }
}

struct Toy {
    clients: Clients,
    target: Target,
    /// The posterior's mean and the eigenvalues and eigenvectors of its precision.
    centre: Vec<f64>,
    precision: DMatrix<f64>,
    /// `2 / (lambda_min + lambda_max)`.
    longest: f64,
}

impl Toy {
    fn new(setting: &Setting, seed: u64) -> Result<Self, Trouble> {
        let d = setting.dim;
        let data = toy_fald::make(setting.clients, d, Seed::new(seed));
        let singular = || Trouble::Other("a client's covariance is singular".into());
        let means: Vec<_> = data.iter().map(|(mean, _)| DVector::from_column_slice(mean)).collect();
        let invert = |(_, covariance): &(_, Vec<f64>)| {
            DMatrix::from_row_slice(d, d, covariance).cholesky().map(|c| c.inverse())
        };
        let precisions =
            data.iter().map(invert).collect::<Option<Vec<_>>>().ok_or_else(singular)?;
        let potentials = data.iter().map(|(mean, covariance)| {
            Ok(Arc::new(Gaussian::from_covariance(mean.clone(), covariance)?) as Arc<dyn Model>)
        });
        let target = Target::new(
            potentials.collect::<Result<_, Trouble>>()?,
            Prior::Flat,
            Placement::Server,
            1.0,
        )?;
        let weighted =
            precisions.iter().zip(&means).fold(DVector::zeros(d), |sum, (s, m)| sum + s * m);
        let clients = Clients::new(&means, precisions).ok_or_else(singular)?;
        let precision = clients.precision();
        let centre =
            precision.clone().cholesky().ok_or_else(singular)?.solve(&weighted).as_slice().to_vec();
        let spectrum = precision.symmetric_eigenvalues();
        Ok(Toy {
            clients,
            target,
            centre,
            longest: 2.0 / (spectrum.min() + spectrum.max()),
            precision,
        })
    }

    /// `E norm(x - x*)^2` under the posterior.
    fn truth(&self) -> f64 {
        self.precision.symmetric_eigenvalues().iter().map(|s| 1.0 / s).sum()
    }

    fn walk(&self, scale: Scale, step: f64, p: f64, shared: f64) -> Walk {
        let factor = if scale == Scale::Printed { 1.0 } else { self.target.clients.len() as f64 };
        Walk { step: step * self.longest * factor, p, shared }
    }

    /// The bias of `E norm(x - x*)^2`, and the variance of its estimate from so many iterations, in
    /// the limit of small steps: there x is an Ornstein-Uhlenbeck process with drift `L x` and mean
    /// `m`, over a time of `gamma / b` an iteration, and the sum of all autocovariances of
    /// `norm(x)^2` is `2 tr L^-3 + 8 m' L^-2 m`.
    fn errors(&self, sampler: &str, walk: Walk, iterations: f64) -> Result<(f64, f64), Trouble> {
        let law =
            if sampler == "fald" { self.clients.fald(walk) } else { self.clients.vr_fald(walk) };
        let unstable = || {
            Trouble::Other(format!(
                "{sampler} has no stationary law with step {} and p = {}: it diverges",
                walk.step, walk.p
            ))
        };
        let law = law.ok_or_else(unstable)?;
        let covariance = self.precision.clone().cholesky().ok_or_else(unstable)?.inverse();
        let squared = &covariance * &covariance;
        let time = walk.step / self.target.clients.len() as f64 * iterations;
        let variance = (2.0 * (&squared * &covariance).trace()
            + 8.0 * law.mean.dot(&(squared * &law.mean)))
            / time;
        Ok((law.second.trace() - covariance.trace(), variance))
    }

    fn recipe(&self, sampler: &str, walk: Walk) -> Recipe {
        let (gamma, b) = (Schedule::Constant(walk.step), self.target.clients.len());
        Recipe::Local(match sampler {
            "fald" => Local::fald(gamma, b, walk.shared, walk.p, Batch::Full),
            _ => Local::vr_fald_star(gamma, b, walk.shared, walk.p, walk.p, Batch::Full),
        })
    }
}

impl Setting {
    /// A law costs about as much as so many iterations.
    fn law_cost(&self) -> u64 {
        (self.clients * self.dim).pow(2) as u64 / 500
    }

    /// The table's columns.
    fn columns(&self) -> impl Iterator<Item = (f64, f64)> {
        self.sync.iter().flat_map(|p| self.steps.iter().map(|step| (*p, *step)))
    }
}

fn shared_by(sampler: &str) -> f64 {
    SAMPLERS.iter().find(|(name, ..)| *name == sampler).map_or(0.0, |(.., shared)| *shared)
}

impl Experiment for FaldGaussian {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let mut cells = Vec::new();
        for scale in Scale::all(study).iter().map(|s| s.name()) {
            for (sampler, ..) in SAMPLERS {
                let law = setting.law_cost();
                cells.extend(
                    setting.columns().map(|(p, step)| {
                        Cell::new(format!("law|{scale}|{sampler}|{p}|{step}"), law)
                    }),
                );
                cells.push(Cell::new(
                    format!("law|{scale}|{sampler}|{}|figure", setting.figure_sync),
                    law,
                ));
                cells.extend((0..setting.runs).map(|run| {
                    Cell::new(format!("run|{scale}|{sampler}|{run}"), setting.iterations)
                }));
            }
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let toy = Toy::new(&setting, study.seed)?;
        let unknown = || Trouble::Other(format!("no such cell: {cell}"));
        let number = |text: &str| text.parse::<f64>().map_err(|_| unknown());
        let scale = |name: &str| {
            if name == Scale::Printed.name() { Scale::Printed } else { Scale::TimesClients }
        };
        match cell.split('|').collect::<Vec<_>>()[..] {
            ["law", scale_name, sampler, p, step] => {
                let p = number(p)?;
                let step = if step == "figure" { setting.figure_step } else { p * number(step)? };
                let walk = toy.walk(scale(scale_name), step, p, shared_by(sampler));
                let (bias, variance) = toy.errors(sampler, walk, 0.9 * setting.table_iterations)?;
                progress.done.fetch_add(setting.law_cost(), Ordering::Relaxed);
                Ok(Values::from([("bias".into(), vec![bias]), ("variance".into(), vec![variance])]))
            }
            ["run", scale_name, sampler, run] => {
                let walk = toy.walk(
                    scale(scale_name),
                    setting.figure_step,
                    setting.figure_sync,
                    shared_by(sampler),
                );
                let recipe = toy.recipe(sampler, walk);
                let index = run.parse().map_err(|_| unknown())?;
                let chain = Chain {
                    recipe: &recipe,
                    target: &toy.target,
                    start: &toy.centre,
                    seed: study.seed,
                    index,
                };
                let burn_in = setting.iterations / 10;
                let kept = setting.iterations - burn_in;
                let (mut sum, mut draws, mut so_far) = (0.0, 0.0, Vec::new());
                chain.walk(setting.iterations, progress, |iteration, x, _| {
                    if iteration <= burn_in {
                        return;
                    }
                    let square: f64 =
                        x.iter().zip(&toy.centre).map(|(x, m)| (x - m) * (x - m)).sum();
                    sum += square;
                    draws += 1.0;
                    while (so_far.len() as u64) < (NOTED * (iteration - burn_in) / kept).min(NOTED)
                    {
                        so_far.push(sum / draws);
                    }
                })?;
                let last = sum / f64::max(draws, 1.0);
                so_far.resize(NOTED as usize, last); // the last draw may lie before the end
                Ok(Values::from([("square".into(), so_far), ("last".into(), vec![last])]))
            }
            _ => Err(unknown()),
        }
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let toy = Toy::new(&setting, study.seed)?;
        let truth = toy.truth();
        let mut findings = Findings::default();
        for scale in Scale::all(study) {
            let mut numbers = Numbers::new();
            let mut curves = Vec::new();
            for (at, (sampler, label, _)) in SAMPLERS.into_iter().enumerate() {
                let errors = |p: f64, step: &str| -> Result<(f64, f64), Trouble> {
                    let cell = format!("law|{}|{sampler}|{p}|{step}", scale.name());
                    Ok((found.number(&cell, "bias")?, found.number(&cell, "variance")?))
                };
                for (p, step) in setting.columns() {
                    let (bias, variance) = errors(p, &step.to_string())?;
                    let column = format!("{sampler}/{p}/{step}");
                    numbers.push(Number::exact(format!("mse/{column}"), bias * bias + variance));
                    numbers.push(Number::exact(format!("squared bias/{column}"), bias * bias));
                }
                let runs = |what: &str| -> Result<Vec<&[f64]>, Trouble> {
                    (0..setting.runs)
                        .map(|run| {
                            found.list(&format!("run|{}|{sampler}|{run}", scale.name()), what)
                        })
                        .collect()
                };
                let (bias, variance) = errors(setting.figure_sync, "figure")?;
                let variance = variance * setting.table_iterations / setting.iterations as f64;
                let squares = |runs: &[f64]| -> Vec<f64> {
                    runs.iter().map(|estimate| (estimate - truth).powi(2)).collect()
                };
                numbers.push(Number::exact(
                    format!("figure's last mse/computed/{sampler}"),
                    bias * bias + variance,
                ));
                numbers.push(Number::mean(
                    format!("figure's last mse/sampled/{sampler}"),
                    &squares(&runs("last")?.concat()),
                ));
                numbers.push(Number::exact(format!("second moment/exact/{sampler}"), truth + bias));
                numbers.push(Number::mean(
                    format!("second moment/sampled/{sampler}"),
                    &runs("last")?.concat(),
                ));
                let lists = runs("square")?;
                let burn_in = setting.iterations / 10;
                let point = |k: usize| -> Result<Point, Trouble> {
                    let estimates: Vec<f64> = lists.iter().map(|list| list[k]).collect();
                    let error = mean_squared_error(&estimates, truth)
                        .map_err(|e| Trouble::Other(e.to_string()))?;
                    let x = burn_in + (setting.iterations - burn_in) * (k as u64 + 1) / NOTED;
                    Ok(Point {
                        x: x as f64,
                        y: error.value,
                        error: if setting.runs > 1 { error.error_bar } else { 0.0 },
                    })
                };
                let points = (0..NOTED as usize).map(point).collect::<Result<_, _>>()?;
                curves.push(Series {
                    name: label.into(),
                    mark: Mark::LineAndPoints,
                    colour: at,
                    points,
                });
                let level = |x: u64| Point { x: x as f64, y: bias * bias, error: 0.0 };
                let points = vec![level(burn_in), level(setting.iterations)];
                curves.push(Series {
                    name: format!("{label}: without end"),
                    mark: Mark::Dashes,
                    colour: at,
                    points,
                });
            }
            numbers.push(Number::exact("second moment/posterior", truth));
            let with = if *scale == Scale::Printed { "" } else { ", with steps times b" };
            findings.figures.push(Figure {
                title: format!("Figure 2: mean squared error{with}, p = {}", setting.figure_sync),
                caption: format!(
                    "{} runs of each; a bar is one standard error. Broken lines: the \
                    squared bias, computed.",
                    setting.runs
                ),
                x: Axis::straight("iterations"),
                y: Axis::logarithmic("mean squared error of the mean of norm(x - x*)^2"),
                series: curves,
            });
            findings.readings.push(match scale {
                Scale::Printed => Reading::ours(numbers),
                Scale::TimesClients => Reading::published(
                    "steps times b",
                    "a client's step is b gamma, as in the authors' program: the mean of all \
                     clients then moves with steps of gamma",
                    numbers,
                ),
            });
        }
        findings.notes.push(format!(
            "The paper does not say how means and covariances were drawn: ours are N(0, I) and A \
             A'/d + I/10, so that sizes of errors cannot be compared, only their order. Here \
             E norm(x - x*)^2 = {truth:.4}. The bias is exact, for an endless run; the mean \
             squared error adds the variance of {:.0e} iterations in the limit of small steps \
             (an Ornstein-Uhlenbeck process), which is not exact.",
            setting.table_iterations
        ));
        Ok(findings)
    }
}

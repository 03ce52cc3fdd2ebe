//! QLSD, Figure S3: what the memory of QLSD++ does for the variance, on logistic regression with
//! heterogeneous clients.

use std::sync::Arc;

use consilience_core::compress::Compressor;
use consilience_core::model::{Glm, GlmFamily, Model, Prior};
use consilience_core::protocol::Ledger;
use consilience_core::rng::Seed;
use consilience_core::sampler::{Batch, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Curvature, Optimum, conduct};
use consilience_core::target::{Placement, Target};
use consilience_engine::data::partition::{natural, synthetic};
use consilience_engine::pooled::mala;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// At so many points of each run the error so far is noted, for the figure.
const NOTED: u64 = 20;
/// With and without memory.
const WAYS: [&str; 2] = ["with", "without"];

/// QLSD, Figure S3.
pub struct Memory;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    dim: usize,
    /// SYNTHETIC(alpha, beta).
    alpha: f64,
    beta: f64,
    prior_variance: f64,
    /// `l`: how many rounds a reference point lasts.
    every: u64,
    step: f64,
    /// Minibatches are this part of a client's rows.
    batch: f64,
    levels: Vec<u32>,
    iterations: u64,
    runs: u32,
    /// Draws of the reference.
    draws: usize,
}

fn target(setting: &Setting, seed: u64) -> Result<Target, Trouble> {
    let Setting { clients, dim, alpha, beta, .. } = *setting;
    let data = synthetic::make(
        synthetic::Settings { alpha, beta, clients, dim, classes: 2 },
        Seed::new(seed),
    );
    let dealt = natural::assign(&data, None, None).map_err(|e| Trouble::Other(e.to_string()))?;
    let client = |rows: &Vec<u32>| -> Result<Arc<dyn Model>, Trouble> {
        Ok(Arc::new(Glm::new(
            data.design(rows, false, &vec![1.0; dim])?,
            data.labels_of(rows),
            GlmFamily::Bernoulli,
        )?))
    };
    let all = dealt.rows.iter().map(client).collect::<Result<_, _>>()?;
    Ok(Target::new(all, Prior::gaussian(setting.prior_variance, dim)?, Placement::Server, 1.0)?)
}

fn optimum(target: &Target) -> Vec<f64> {
    let start = vec![0.0; target.dim()];
    conduct(
        Optimum::new(target, &start, 1e-10, 1000),
        &mut Client::all(target),
        &mut Ledger::new(target.clients.len()),
    )
    .point()
    .to_vec()
}

impl Experiment for Memory {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let mut cells = vec![Cell::new("reference", setting.draws as u64)];
        for way in WAYS {
            for levels in &setting.levels {
                cells.extend(
                    (0..setting.runs)
                        .map(|run| Cell::new(format!("{way}/{levels}/{run}"), setting.iterations)),
                );
            }
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let target = target(&setting, study.seed)?;
        let start = optimum(&target);
        let d = setting.dim;
        if cell == "reference" {
            let Some(reference) = mala(&target, &start, 4, setting.draws / 4, study.seed) else {
                return Err(Trouble::Other(
                    "the posterior's Hessian is not positive definite".into(),
                ));
            };
            let covariance = reference.draws.covariance();
            let curvature = conduct(
                Curvature::new(&target, &start, Seed::new(study.seed)),
                &mut Client::all(&target),
                &mut Ledger::new(setting.clients),
            );
            let rows: usize = target.clients.iter().map(|c| c.rows()).sum();
            return Ok(Values::from([
                ("variance".into(), (0..d).map(|k| covariance[k * (d + 1)]).collect()),
                ("largest curvature".into(), vec![curvature.extremes().1]),
                ("rows".into(), vec![rows as f64]),
            ]));
        }
        let parts: Vec<&str> = cell.split('/').collect();
        let number = |at: usize| {
            parts
                .get(at)
                .and_then(|n| n.parse::<u32>().ok())
                .ok_or_else(|| Trouble::Other(format!("no such cell: {cell}")))
        };
        let up = Compressor::qsgd(number(1)?);
        let rate = 1.0 / (1.0 + up.omega(d).unwrap_or(0.0));
        let memory = (parts[0] == "with").then_some(rate);
        let step = Schedule::Constant(setting.step);
        let recipe = Recipe::Uplink(Uplink::qlsd_plus_plus(
            step,
            Batch::Fraction(setting.batch),
            setting.every,
            memory,
            up,
        ));
        let chain = Chain {
            recipe: &recipe,
            target: &target,
            start: &start,
            seed: study.seed,
            index: number(2)?,
        };
        let (mut sums, mut squares, mut so_far) = (vec![0.0; d], vec![0.0; d], Vec::new());
        let all = setting.iterations;
        chain.walk(all, progress, |iteration, x, _| {
            for k in 0..d {
                // centred, so that the difference of squares keeps its digits
                let v = x[k] - start[k];
                sums[k] += v;
                squares[k] += v * v;
            }
            if iteration * NOTED / all > (iteration - 1) * NOTED / all {
                let n = iteration as f64;
                so_far.extend((0..d).map(|k| squares[k] / n - (sums[k] / n).powi(2)));
            }
        })?;
        Ok(Values::from([("variance".into(), so_far)]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let d = setting.dim;
        let truth = found.list("reference", "variance")?;
        let error = |variance: &[f64]| {
            variance.iter().zip(truth).map(|(v, t)| (v - t).powi(2)).sum::<f64>().sqrt()
        };
        let errors = |way: &str, levels: u32, at: usize| -> Result<Vec<f64>, Trouble> {
            (0..setting.runs)
                .map(|run| {
                    Ok(error(
                        &found.list(&format!("{way}/{levels}/{run}"), "variance")?
                            [at * d..(at + 1) * d],
                    ))
                })
                .collect()
        };
        let (mut numbers, mut figures) = (Numbers::new(), Vec::new());
        let truth_norm = truth.iter().map(|v| v * v).sum::<f64>().sqrt();
        numbers.push(Number::exact("variance", truth_norm));
        for levels in &setting.levels {
            let mut series = Vec::new();
            for (colour, way) in WAYS.into_iter().enumerate() {
                numbers.push(Number::mean(
                    format!("error/{way}/{levels}"),
                    &errors(way, *levels, NOTED as usize - 1)?,
                ));
                let point = |at: usize| -> Result<Point, Trouble> {
                    let n = Number::mean("", &errors(way, *levels, at)?);
                    Ok(Point {
                        x: (at as f64 + 1.0) * setting.iterations as f64 / NOTED as f64,
                        y: n.value,
                        error: n.error,
                    })
                };
                let points = (0..NOTED as usize).map(point).collect::<Result<_, _>>()?;
                series.push(Series {
                    name: format!("QLSD++ {way} memory"),
                    mark: Mark::LineAndPoints,
                    colour,
                    points,
                });
            }
            let (with, without) = (
                errors("with", *levels, NOTED as usize - 1)?,
                errors("without", *levels, NOTED as usize - 1)?,
            );
            numbers.push(Number::mean(
                format!("gap/{levels}"),
                &without.iter().zip(&with).map(|(a, b)| a - b).collect::<Vec<_>>(),
            ));
            figures.push(Figure {
                title: format!("Figure S3: error of the variance, s = {levels}"),
                caption: format!(
                    "{} runs of each; a bar is one standard error. The reference is a \
                     Metropolis-adjusted chain.",
                    setting.runs
                ),
                x: Axis::straight("communication rounds"),
                y: Axis::logarithmic("error of the variance"),
                series,
            });
        }
        let (rows, curvature) =
            (found.number("reference", "rows")?, found.number("reference", "largest curvature")?);
        Ok(Findings {
            readings: vec![Reading::ours(numbers)],
            figures,
            notes: vec![
                format!(
                    "SYNTHETIC({}, {}) with {} clients has {rows} rows here; the largest curvature \
                     times the step is {:.3}. d = 2 means two parameters, so labels are of two \
                     classes and there is no intercept.",
                    setting.alpha,
                    setting.beta,
                    setting.clients,
                    curvature * setting.step
                ),
                format!(
                    "The norm of the true variances is {truth_norm:.3e}. Chains start at the \
                     optimum, so that no burn-in is needed; the paper does not say where its \
                     chains start, nor how large its minibatches are (here {} of a client's rows).",
                    setting.batch
                ),
            ],
        })
    }
}

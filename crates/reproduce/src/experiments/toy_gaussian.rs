//! QLSD, Figure 1: mean squared error against bits on a Gaussian that every client sees
//! differently.

use std::sync::Arc;

use consilience_core::compress::{CodeChoice, Compressor, Precision, paper_bits};
use consilience_core::measure::{mean, mean_squared_error};
use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::protocol::{Direction, Kind};
use consilience_core::rng::Seed;
use consilience_core::sampler::{Anchor, Batch, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::data::partition::toy_qlsd;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// At so many points of each run the mean so far is noted, for the figure.
const NOTED: u64 = 12;

/// QLSD* whose clients compress their gradients with what is left of them at x*.
const KEPT: &str = "kept*";

/// QLSD, Figure 1.
pub struct ToyGaussian;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    dim: usize,
    /// The step times the number of rows of all clients.
    step_times_rows: f64,
    /// Minibatches are this part of a client's rows.
    batch: f64,
    /// "p bits" are 2^p levels.
    bits: Vec<u32>,
    iterations: u64,
    burn_in: u64,
    runs: u32,
}

impl Setting {
    /// The samplers, by the names that cells and numbers have.
    fn instances(&self) -> Vec<String> {
        let of = |name: &'static str| self.bits.iter().map(move |bits| format!("{name}/{bits}"));
        std::iter::once("lsd*".to_owned()).chain(of("qlsd*")).chain(of("qlsd#")).collect()
    }

    /// What the authors' notebook has in place of QLSD*.
    fn published(&self) -> Vec<String> {
        self.bits.iter().map(|bits| format!("{KEPT}/{bits}")).collect()
    }
}

/// The target, and where its mean is.
pub(super) struct Toy {
    pub(super) target: Target,
    pub(super) rows: f64,
    pub(super) optimum: Vec<f64>,
}

impl Toy {
    pub(super) fn new(clients: usize, d: usize, seed: u64) -> Result<Self, Trouble> {
        let data = toy_qlsd::make(clients, d, Seed::new(seed));
        let rows = data.iter().map(|cells| cells.len() / d).sum::<usize>() as f64;
        let mut optimum = vec![0.0; d];
        for row in data.iter().flat_map(|cells| cells.chunks_exact(d)) {
            optimum.iter_mut().zip(row).for_each(|(m, y)| *m += y / rows);
        }
        let clients =
            data.into_iter().map(|cells| Ok(Arc::new(Isotropic::new(cells, d)?) as Arc<dyn Model>));
        let target = Target::new(
            clients.collect::<Result<_, Trouble>>()?,
            Prior::Flat,
            Placement::Server,
            1.0,
        )?;
        Ok(Toy { target, rows, optimum })
    }

    /// The sampler of this name.
    fn recipe(&self, setting: &Setting, name: &str, code: CodeChoice) -> Recipe {
        let step = Schedule::Constant(setting.step_times_rows / self.rows);
        let batch = Batch::Fraction(setting.batch);
        let levels = name
            .split_once('/')
            .and_then(|(_, bits)| bits.parse().ok())
            .map_or(1, |bits: u32| 1 << bits);
        let anchor = self.anchor();
        let up = Compressor::qsgd(levels);
        let recipe = match name.split('/').next() {
            Some("qlsd*") => Uplink::qlsd_star(step, batch, anchor, up),
            Some("qlsd#") => Uplink::qlsd(step, batch, up),
            // the control variates leave no minibatch noise on this target
            Some(KEPT) => Uplink::qlsd(step, Batch::Full, up),
            _ => Uplink::lsd_star(step, batch, anchor),
        };
        Recipe::Uplink(Uplink { code, ..recipe })
    }

    /// The fixed point of the control variates: the mean, as it is sent; what is left of the
    /// gradient there is the server's to add.
    pub(super) fn anchor(&self) -> Anchor {
        let mut anchor =
            Anchor { point: self.optimum.clone(), residual: vec![0.0; self.optimum.len()] };
        Precision::F32.round(&mut anchor.point);
        self.target.gradient(&anchor.point, &mut anchor.residual);
        anchor
    }

    /// `E norm(x)` under the posterior N(m, I/N), by
    /// `E sqrt(Y) = (1/(2 sqrt(pi))) int (1 - E exp(-t Y)) t^(-3/2) dt`, with `t = e^u` and the
    /// trapezoidal rule.
    fn mean_norm(&self) -> f64 {
        let (d, variance) = (self.optimum.len() as f64, 1.0 / self.rows);
        let square: f64 = self.optimum.iter().map(|m| m * m).sum();
        let step = 1.0 / 64.0;
        let sum: f64 = (-64 * 60..64 * 60)
            .map(|k| f64::from(k) * step)
            .map(|u: f64| {
                let t = u.exp();
                let spread = 1.0 + 2.0 * t * variance;
                let exponent = -0.5 * d * (2.0 * t * variance).ln_1p() - t * square / spread;
                -exponent.exp_m1() * (-0.5 * u).exp()
            })
            .sum();
        sum * step / (2.0 * std::f64::consts::PI.sqrt())
    }
}

impl Experiment for ToyGaussian {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let runs = |name: String| {
            (0..setting.runs).map(move |run| Cell::new(format!("{name}|{run}"), setting.iterations))
        };
        let codes = setting
            .bits
            .iter()
            .map(|bits| Cell::new(format!("qlsd*/{bits}|elias"), setting.code_iterations()));
        let published = if study.published { setting.published() } else { Vec::new() };
        Ok(setting.instances().into_iter().chain(published).flat_map(runs).chain(codes).collect())
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let toy = Toy::new(setting.clients, setting.dim, study.seed)?;
        let Some((name, run)) = cell.split_once('|') else {
            return Err(Trouble::Other(format!("no such cell: {cell}")));
        };
        let start = vec![0.0; setting.dim];
        if run == "elias" {
            let recipe = toy.recipe(&setting, name, CodeChoice::Elias);
            let chain = Chain {
                recipe: &recipe,
                target: &toy.target,
                start: &toy.optimum,
                seed: study.seed,
                index: 0,
            };
            let ledger = chain.walk(setting.code_iterations(), progress, |_, _, _| {})?;
            let bits = ledger.bits(Direction::Up, Kind::Gradient) as f64
                / setting.code_iterations() as f64;
            return Ok(Values::from([("bits".into(), vec![bits])]));
        }
        let index = run.parse().map_err(|_| Trouble::Other(format!("no such run: {cell}")))?;
        let recipe = toy.recipe(&setting, name, CodeChoice::Auto);
        let chain =
            Chain { recipe: &recipe, target: &toy.target, start: &start, seed: study.seed, index };
        let kept = setting.iterations - setting.burn_in;
        let (mut sum, mut sums, mut before) = (0.0, vec![0.0; setting.dim], 0);
        let (mut so_far, mut bits) = (Vec::new(), Vec::new());
        let ledger = chain.walk(setting.iterations, progress, |iteration, x, ledger| {
            if iteration <= setting.burn_in {
                before = ledger.bits(Direction::Up, Kind::Gradient);
                return;
            }
            sum += x.iter().map(|v| v * v).sum::<f64>().sqrt();
            sums.iter_mut().zip(x).for_each(|(s, v)| *s += v);
            let done = iteration - setting.burn_in;
            if done * NOTED / kept > (done - 1) * NOTED / kept {
                so_far.push(sum / done as f64);
                bits.push((ledger.bits(Direction::Up, Kind::Gradient) - before) as f64);
            }
        })?;
        let square =
            sums.iter().zip(&toy.optimum).map(|(s, m)| (s / kept as f64 - m).powi(2)).sum::<f64>();
        let all = ledger.bits(Direction::Up, Kind::Gradient) as f64 / setting.iterations as f64;
        Ok(Values::from([
            ("norm".into(), so_far),
            ("bits so far".into(), bits),
            ("square".into(), vec![square]),
            ("bits".into(), vec![all]),
        ]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let toy = Toy::new(setting.clients, setting.dim, study.seed)?;
        let truth = toy.mean_norm();
        let (mut numbers, mut series) = (Numbers::new(), Vec::new());
        let mut counted = Numbers::new();
        for (at, name) in setting.instances().into_iter().enumerate() {
            let lists = |what: &str| -> Result<Vec<&[f64]>, Trouble> {
                (0..setting.runs).map(|run| found.list(&format!("{name}|{run}"), what)).collect()
            };
            let last = |list: &[f64]| list.last().copied().unwrap_or(f64::NAN);
            let squares: Vec<f64> =
                lists("norm")?.iter().map(|list| (last(list) - truth).powi(2)).collect();
            numbers.push(Number::mean(format!("mse/{name}"), &squares));
            numbers.push(Number::mean(
                format!("bias/{name}"),
                &lists("norm")?.iter().map(|list| last(list) - truth).collect::<Vec<_>>(),
            ));
            numbers.push(Number::mean(format!("square/{name}"), &lists("square")?.concat()));
            numbers.push(Number::mean(format!("bits/{name}"), &lists("bits")?.concat()));
            let bits = name.split_once('/').and_then(|(_, p)| p.parse::<u32>().ok());
            let message =
                bits.map_or(32.0 * setting.dim as f64, |p| paper_bits(1 << p, setting.dim));
            counted.push(Number::exact(format!("bits/{name}"), message * setting.clients as f64));
            let point = |k: usize| -> Result<Point, Trouble> {
                let estimates: Vec<f64> = lists("norm")?.iter().map(|list| list[k]).collect();
                let sent: Vec<f64> = lists("bits so far")?.iter().map(|list| list[k]).collect();
                let error = mean_squared_error(&estimates, truth)
                    .map_err(|e| Trouble::Other(e.to_string()))?;
                Ok(Point {
                    x: mean(&sent),
                    y: error.value,
                    error: if setting.runs > 1 { error.error_bar } else { 0.0 },
                })
            };
            let points = (0..NOTED as usize).map(point).collect::<Result<_, _>>()?;
            series.push(Series {
                name: label(&name),
                mark: Mark::LineAndPoints,
                colour: at,
                points,
            });
        }
        for bits in &setting.bits {
            numbers.push(Number::exact(
                format!("elias/qlsd*/{bits}"),
                found.number(&format!("qlsd*/{bits}|elias"), "bits")?,
            ));
        }
        // The same errors, with the bits as the paper's program counted them; and the error that
        // its figure shows.
        let of = |numbers: &Numbers, from: &str| -> Vec<Number> {
            numbers.iter().filter(|n| n.name.starts_with(from)).cloned().collect()
        };
        let by_bound = of(&numbers, "mse/").into_iter().chain(counted.iter().cloned()).collect();
        let of_x = of(&numbers, "square/")
            .into_iter()
            .map(|n| Number { name: n.name.replace("square/", "mse/"), ..n });
        let of_x = of_x.chain(of(&numbers, "bits/")).collect();
        // Its QLSD* in place of ours; the others stay.
        let mut kept: Numbers =
            numbers.iter().filter(|n| !n.name.starts_with("elias/")).cloned().collect();
        for bits in setting.bits.iter().filter(|_| study.published) {
            let of = |what: &str| -> Result<Vec<f64>, Trouble> {
                (0..setting.runs)
                    .map(|run| {
                        Ok(*found
                            .list(&format!("{KEPT}/{bits}|{run}"), what)?
                            .last()
                            .unwrap_or(&f64::NAN))
                    })
                    .collect()
            };
            let norms = of("norm")?;
            kept.push(Number::mean(
                format!("mse/qlsd*/{bits}"),
                &norms.iter().map(|norm| (norm - truth).powi(2)).collect::<Vec<_>>(),
            ));
            kept.push(Number::mean(
                format!("bias/qlsd*/{bits}"),
                &norms.iter().map(|norm| norm - truth).collect::<Vec<_>>(),
            ));
            kept.push(Number::mean(format!("square/qlsd*/{bits}"), &of("square")?));
            kept.push(Number::mean(format!("bits/qlsd*/{bits}"), &of("bits")?));
        }
        let rows = toy.rows;
        Ok(Findings {
            readings: vec![
                Reading::ours(numbers),
                Reading::published(
                    "natural-log bits",
                    "bits are an upper bound of a code, with natural logarithms, as in the \
                     authors' program",
                    by_bound,
                ),
                Reading::published(
                    "error of x",
                    "the squared error of the mean of x, which the authors' notebook plots, in \
                     place of that of norm(x)",
                    of_x,
                ),
                Reading::published(
                    "gradient at x* kept",
                    "QLSD* does not subtract a client's gradient at x* before it compresses, as in \
                     the authors' notebook: heterogeneity then makes its noise, as it makes that \
                     of QLSD#",
                    kept,
                ),
            ],
            figures: vec![Figure {
                title: "Figure 1, bottom: mean squared error of norm(x) against bits sent up"
                    .into(),
                caption: format!(
                    "{} runs of each; a bar is one standard error. Bits are those of encoded \
                     messages, counted after the burn-in, as in the paper.",
                    setting.runs
                ),
                x: Axis::logarithmic("bits sent up, all clients"),
                y: Axis::logarithmic("mean squared error"),
                series,
            }],
            notes: vec![format!(
                "The data is made as the authors' notebook makes it, with our random numbers: \
                 {rows} rows in all (the paper's have 2042), so the step 1/{rows} stands for the \
                 paper's 4.9e-4 = 1/2042. \
                 The truth E norm(x) = {truth:.9} is computed, not sampled."
            )],
        })
    }
}

impl Setting {
    /// How long the code lengths of the Elias code are observed: messages of one kind differ
    /// little.
    fn code_iterations(&self) -> u64 {
        (self.iterations / 20).clamp(100, 5000)
    }
}

fn label(name: &str) -> String {
    match name.split_once('/') {
        Some((sampler, bits)) => format!("{}, {bits} bits", sampler.to_uppercase()),
        None => name.to_uppercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_the_norm_is_right() {
        // One row: N(m, I) in one dimension has the folded normal's mean.
        let folded = |m: f64| {
            let toy = Toy {
                target: Target::new(
                    vec![Arc::new(Isotropic::new(vec![m], 1).unwrap())],
                    Prior::Flat,
                    Placement::Server,
                    1.0,
                )
                .unwrap(),
                rows: 1.0,
                optimum: vec![m],
            };
            toy.mean_norm()
        };
        assert!(
            (folded(0.0) - (2.0 / std::f64::consts::PI).sqrt()).abs() < 1e-9,
            "{}",
            folded(0.0)
        );
        assert!((folded(8.0) - 8.0).abs() < 1e-9);
        // sqrt(2/pi) e^(-1/2) + erf(1/sqrt 2)
        assert!((folded(1.0) - 1.166_630_941_175).abs() < 1e-9, "{}", folded(1.0));
    }
}

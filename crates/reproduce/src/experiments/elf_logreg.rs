//! ELF, Figure 1: logistic regression on LIBSVM data, accuracy against bits; and what the paper does not show, the distance to the posterior.
//!
//! The paper's potential is a mean over rows, `F = (1/N) sum_j loss_j + lambda/2 norm(x)^2`, and it samples `exp(-F)`. In our notation that is the temperature
//! `T = N` of `U = sum_j loss_j + N lambda/2 norm(x)^2`; the paper's step `gamma` is `gamma/N` on the scale of `U`. The other reading counts each row once, as
//! Bayes' rule does; its posterior is far from round, so the chains move in coordinates in which it is.

use std::sync::Arc;

use consilience_core::compress::Compressor;
use consilience_core::linalg::{add_scaled, dot};
use consilience_core::measure::Gaussian;
use consilience_core::model::{Coordinates, Design, Family, Glm, Potential, Prior, Rows};
use consilience_core::protocol::{Direction, Ledger};
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_core::sampler::{Recipe, Uplink};
use consilience_core::step::{Schedule, langevin};
use consilience_core::survey::{Client, Hessian, Optimum, conduct};
use consilience_core::target::{Placement, Target};
use consilience_engine::data::Dataset;
use consilience_engine::data::catalogue;
use consilience_engine::data::partition::subset;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;
use std::sync::atomic::Ordering;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// The estimator is the mean of so many last iterates (appendix D).
const AVERAGED: usize = 100;
/// A gradient of NUTS costs an iteration, and a draw about so many gradients.
const NUTS_COST: u64 = 12;

/// ELF, Figure 1.
pub struct ElfLogreg;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    /// The data sets.
    sets: Vec<String>,
    /// A built-in data set that stands in for all of them, where the machinery is tested without them.
    stand_in: Option<String>,
    /// At most so many rows of each are used.
    most_rows: usize,
    clients: usize,
    /// The share of the rows that are held out.
    test: f64,
    /// `lambda`, the precision of the prior.
    lambda: f64,
    /// `gamma`, on the scale of `F`.
    step: f64,
    /// The step where each row counts once, in coordinates in which the posterior is round.
    round_step: f64,
    /// Top-k keeps so many coordinates.
    kept: Vec<usize>,
    /// Accuracies are compared at the bits of so many rounds of LMC.
    rounds: u64,
    iterations: u64,
    burn_in: u64,
    runs: u32,
    /// Draws of NUTS, in each of four chains.
    nuts: usize,
    /// How many rounds the accumulating server of the authors' program is followed.
    accumulated: u64,
}

impl Setting {
    /// The samplers: LMC, and each ELF with each Top-k.
    fn instances(&self) -> Vec<String> {
        let elf = self.kept.iter().flat_map(|k| ["d-elf", "p-elf", "b-elf"].map(|name| format!("{name}/{k}")));
        std::iter::once("lmc".to_owned()).chain(elf).collect()
    }
}

/// The paper's potential, and Bayes' rule.
const READINGS: [&str; 2] = ["mean", "sum"];

/// One data set: the target, and the rows that are held out.
struct Problem {
    /// What is sampled, on pooled rows.
    pooled: Target,
    /// The same in the coordinates in which chains move.
    target: Target,
    coordinates: Option<Arc<Coordinates>>,
    /// Of the samplers, on the scale of `U`.
    step: f64,
    rows: usize,
    test: Design,
    labels: Vec<f64>,
}

impl Problem {
    fn new(setting: &Setting, study: &Study, set: &str, reading: &str) -> Result<Self, Trouble> {
        let data = catalogue::load(setting.stand_in.as_deref().unwrap_or(set), study.data.as_deref())?;
        let seed = Seed::new(study.seed);
        let used = subset(data.rows(), setting.most_rows.min(data.rows()), seed);
        let test = (used.len() as f64 * setting.test) as usize;
        let held: Vec<u32> = subset(used.len(), test, seed.chain(1)).iter().map(|at| used[*at as usize]).collect();
        let mut train: Vec<u32> = used.into_iter().filter(|row| held.binary_search(row).is_err()).collect();
        train.truncate(train.len() / setting.clients * setting.clients); // equal clients: then the mean of means is the mean
        let divisors = data.greatest();
        let design = |rows: &[u32]| data.design(rows, false, &divisors);
        let part = train.len() / setting.clients;
        let client = |rows: &[u32]| -> Result<Arc<dyn Potential>, Trouble> {
            Ok(Arc::new(Glm::new(design(rows)?, zero_or_one(&data, rows), Family::Bernoulli)?))
        };
        let clients = train.chunks_exact(part).map(client).collect::<Result<Vec<_>, _>>()?;
        let (n, d) = (train.len() as f64, data.columns.len());
        let mean = reading == "mean";
        let (variance, temperature) = if mean { (1.0 / (n * setting.lambda), n) } else { (1.0 / setting.lambda, 1.0) };
        let pooled = Target::new(clients, Prior::gaussian(variance, d)?, Placement::Server, temperature)?;
        let (target, coordinates) = if mean { (pooled.clone(), None) } else { round(&pooled)? };
        let step = if mean { setting.step / n } else { setting.round_step };
        let (test, labels) = (design(&held)?, zero_or_one(&data, &held));
        Ok(Problem { pooled, target, coordinates, step, rows: train.len(), test, labels })
    }

    fn recipe(&self, name: &str) -> Recipe {
        let step = Schedule::Constant(self.step);
        let (name, kept) = name.split_once('/').unwrap_or((name, "1"));
        let top = Compressor::top_k(kept.parse().unwrap_or(1).min(self.target.dim() as u32));
        Recipe::Uplink(match name {
            "d-elf" => Uplink::d_elf(step, top),
            "p-elf" => Uplink::p_elf(step, top),
            "b-elf" => Uplink::b_elf(step, top, top),
            _ => Uplink::lmc(step),
        })
    }

    /// The share of held-out rows that a parameter puts on the right side.
    fn accuracy(&self, x: &[f64]) -> f64 {
        let right = |row: usize| (self.test.row_dot(row, x) > 0.0) == (self.labels[row] > 0.5);
        (0..self.labels.len()).filter(|row| right(*row)).count() as f64 / self.labels.len() as f64
    }

    /// The moments of NUTS on pooled rows.
    fn nuts(&self, setting: &Setting, seed: u64, chain: u32) -> Result<Gaussian, Trouble> {
        let draws = consilience_truth::nuts(&self.pooled, &optimum(&self.pooled), 4, setting.nuts, seed + 1000 * u64::from(chain));
        let draws = draws.map_err(|error| Trouble::Other(error.to_string()))?;
        Gaussian::new(&draws.mean(), &draws.covariance()).map_err(|error| Trouble::Other(error.to_string()))
    }
}

/// The minimiser of the potential.
fn optimum(target: &Target) -> Vec<f64> {
    let (mut clients, mut ledger) = (Client::all(target), Ledger::new(target.clients.len()));
    conduct(Optimum::new(target, &vec![0.0; target.dim()], 1e-9, 1000), &mut clients, &mut ledger).point().to_vec()
}

/// The target in coordinates in which its Hessian at the optimum is the identity.
fn round(pooled: &Target) -> Result<(Target, Option<Arc<Coordinates>>), Trouble> {
    let (mut clients, mut ledger) = (Client::all(pooled), Ledger::new(pooled.clients.len()));
    let optimum = optimum(pooled);
    let hessian = conduct(Hessian::new(pooled, &optimum), &mut clients, &mut ledger).matrix();
    let Some(coordinates) = Coordinates::whitening(&optimum, &hessian) else {
        return Err(Trouble::Other("the Hessian of the posterior is not positive definite".into()));
    };
    let coordinates = Arc::new(coordinates);
    let share = 1.0 / pooled.clients.len() as f64;
    Ok((pooled.whitened(&coordinates, &vec![share; pooled.clients.len()]), Some(coordinates)))
}

/// W2 between Gaussians with these marginals and no correlation: its Monte Carlo error does not grow with the number of parameters.
fn marginal_w2(a: &Gaussian, b: &Gaussian) -> f64 {
    let means = a.mean().iter().zip(b.mean()).map(|(x, y)| (x - y) * (x - y));
    let spreads = a.sd().into_iter().zip(b.sd()).map(|(x, y)| (x - y) * (x - y));
    means.chain(spreads).sum::<f64>().sqrt()
}

/// The labels as 0 and 1, whatever the file calls them.
fn zero_or_one(data: &Dataset, rows: &[u32]) -> Vec<f64> {
    data.labels_of(rows).iter().map(|label| f64::from(u8::from(*label > 0.5))).collect()
}

/// Rounds at which the accuracy is noted: about ten to a factor of ten, and the one at which accuracies are compared.
fn noted(setting: &Setting) -> Vec<u64> {
    let mut rounds: Vec<u64> = (0..)
        .map(|k| (10.0 * 10f64.powf(f64::from(k) / 8.0)) as u64)
        .take_while(|round| *round < setting.iterations)
        .chain([setting.rounds.min(setting.iterations), setting.iterations])
        .collect();
    rounds.sort_unstable();
    rounds.dedup();
    rounds
}

/// The last iterates, whose mean is the estimator.
struct Last {
    ring: Vec<Vec<f64>>,
    next: usize,
}

impl Last {
    fn push(&mut self, x: &[f64]) {
        if self.ring.len() < AVERAGED {
            self.ring.push(x.to_vec());
        } else {
            self.ring[self.next].copy_from_slice(x);
            self.next = (self.next + 1) % AVERAGED;
        }
    }

    fn mean(&self) -> Vec<f64> {
        let mut mean = vec![0.0; self.ring.first().map_or(0, Vec::len)];
        self.ring.iter().for_each(|x| add_scaled(1.0 / self.ring.len() as f64, x, &mut mean));
        mean
    }
}

/// Sums for a mean and a covariance.
struct Moments {
    count: f64,
    sum: Vec<f64>,
    products: Vec<f64>,
}

impl Moments {
    fn new(d: usize) -> Self {
        Moments { count: 0.0, sum: vec![0.0; d], products: vec![0.0; d * d] }
    }

    fn push(&mut self, x: &[f64]) {
        self.count += 1.0;
        add_scaled(1.0, x, &mut self.sum);
        for (row, v) in self.products.chunks_exact_mut(x.len()).zip(x) {
            add_scaled(*v, x, row);
        }
    }

    fn mean(&self) -> Vec<f64> {
        self.sum.iter().map(|s| s / self.count).collect()
    }

    fn covariance(&self) -> Vec<f64> {
        let (mean, d) = (self.mean(), self.sum.len());
        let cell = |at: usize| (self.products[at] - self.count * mean[at / d] * mean[at % d]) / (self.count - 1.0);
        (0..d * d).map(|at| 0.5 * (cell(at) + cell(at % d * d + at / d))).collect()
    }
}

impl Experiment for ElfLogreg {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let mut cells = Vec::new();
        for (set, reading) in setting.sets.iter().flat_map(|set| READINGS.map(|reading| (set, reading))) {
            cells.extend((0..2).map(|half| Cell::new(format!("{set}|{reading}|nuts|{half}"), setting.nuts_cost())));
            for name in setting.instances() {
                cells.extend((0..setting.runs).map(|run| Cell::new(format!("{set}|{reading}|{name}|{run}"), setting.iterations)));
            }
        }
        if study.published {
            let both =
                |set: &String| ["lmc", "d-elf"].map(|name| Cell::new(format!("{set}|mean|accumulating {name}|0"), setting.accumulated));
            cells.extend(setting.sets.iter().flat_map(both));
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let [set, reading, name, run] = cell.split('|').collect::<Vec<_>>()[..] else {
            return Err(Trouble::Other(format!("no such cell: {cell}")));
        };
        let index: u32 = run.parse().map_err(|_| Trouble::Other(format!("no such run: {cell}")))?;
        let problem = Problem::new(&setting, study, set, reading)?;
        if name == "nuts" {
            let law = problem.nuts(&setting, study.seed, index)?;
            progress.done.fetch_add(setting.nuts_cost(), Ordering::Relaxed);
            return Ok(Values::from([("mean".into(), law.mean().to_vec()), ("covariance".into(), law.covariance().to_vec())]));
        }
        if let Some(name) = name.strip_prefix("accumulating ") {
            return Ok(accumulate(&setting, &problem, name == "d-elf", study.seed, progress));
        }
        let d = problem.target.dim();
        let recipe = problem.recipe(name);
        let start = problem.coordinates.as_ref().map_or_else(|| vec![0.0; d], |c| c.inward(&vec![0.0; d]));
        let chain = Chain { recipe: &recipe, target: &problem.target, start: &start, seed: study.seed, index };
        let (rounds, mut last, mut moments) = (noted(&setting), Last { ring: Vec::new(), next: 0 }, Moments::new(d));
        let (mut accuracy, mut bits, mut outward) = (Vec::new(), Vec::new(), vec![0.0; d]);
        chain.walk(setting.iterations, progress, |iteration, x, ledger| {
            match &problem.coordinates {
                Some(coordinates) => coordinates.outward(x, &mut outward),
                None => outward.copy_from_slice(x),
            }
            last.push(&outward);
            if iteration > setting.burn_in {
                moments.push(&outward);
            }
            if rounds.binary_search(&iteration).is_ok() {
                accuracy.push(problem.accuracy(&last.mean()));
                bits.push((ledger.total(Direction::Up) + ledger.total(Direction::Down)) as f64);
            }
        })?;
        Ok(Values::from([
            ("accuracy".into(), accuracy),
            ("bits".into(), bits),
            ("mean".into(), moments.mean()),
            ("covariance".into(), moments.covariance()),
        ]))
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let mut figures = Vec::new();
        let mut of = |reading: &str| -> Result<Numbers, Trouble> {
            let mut numbers = Numbers::new();
            for set in &setting.sets {
                figures.extend(compare(&setting, found, set, reading, &mut numbers)?);
            }
            Ok(numbers)
        };
        let mut readings = vec![
            Reading::ours(of("mean")?),
            Reading::other("each row counts once", "the potential is the sum over rows, as Bayes' rule has it, not their mean", of("sum")?),
        ];
        if study.published {
            let mut published = Numbers::new();
            for set in &setting.sets {
                let truth = found.list(&format!("{set}|mean|nuts|0"), "mean")?;
                published.push(Number::exact(format!("norm/posterior/{set}"), dot(truth, truth).sqrt()));
                for name in ["lmc", "d-elf"] {
                    let cell = format!("{set}|mean|accumulating {name}|0");
                    published.push(Number::exact(format!("accuracy/{name}/{set}"), found.number(&cell, "accuracy")?));
                    published.push(Number::exact(format!("norm/{name}/{set}"), found.number(&cell, "norm")?));
                }
            }
            let says = "the server adds the new mean gradient to the sum of all earlier ones, the prior is left out, and the step is twice the paper's, as in the authors' program";
            readings.push(Reading::published("accumulating server", says, published));
        }
        let mut notes = vec![
            "The paper's potential is a mean over rows, so exp(-F) is the posterior at a temperature equal to the number of rows: a law so wide that its draws classify held-out rows poorly, \
             for LMC as for ELF. The accuracies of the paper's figure, about 0.84, are those of another law: either each row counts once (the other reading), or the path runs away in the right direction \
             (the authors' program, --as-published). The paper does not say lambda; here it is 0.1."
                .to_owned(),
            "w2 is the distance between Gaussians with the moments of the chain and of NUTS, over the root of the trace of the posterior covariance; w2-marginal is the same without correlations, \
             and has far less Monte Carlo error. What is called nuts is the distance between two independent runs of NUTS: what Monte Carlo error alone makes."
                .to_owned(),
        ];
        if let Some(name) = &setting.stand_in {
            notes.push(format!("At this size {name} stands in for all data sets."));
        }
        Ok(Findings { readings, figures, notes })
    }
}

impl Setting {
    fn nuts_cost(&self) -> u64 {
        4 * NUTS_COST * (400 + self.nuts as u64)
    }
}

/// The samplers on one data set: their numbers, and two figures.
fn compare(setting: &Setting, found: &Found, set: &str, reading: &str, numbers: &mut Numbers) -> Result<[Figure; 2], Trouble> {
    let law = |name: &str| -> Result<Gaussian, Trouble> {
        let cell = format!("{set}|{reading}|{name}");
        let made = Gaussian::new(found.list(&cell, "mean")?, found.list(&cell, "covariance")?);
        made.map_err(|error| Trouble::Other(format!("{cell}: {error}")))
    };
    let w2 = |a: &Gaussian, b: &Gaussian| a.w2(b).map_err(|error| Trouble::Other(error.to_string()));
    let (truth, again) = (law("nuts|0")?, law("nuts|1")?);
    let size = truth.sd().iter().map(|sd| sd * sd).sum::<f64>().sqrt();
    numbers.push(Number::exact(format!("w2/nuts/{set}"), w2(&truth, &again)? / size));
    numbers.push(Number::exact(format!("w2-marginal/nuts/{set}"), marginal_w2(&truth, &again) / size));
    // Accuracies are compared at the bits that LMC has sent after so many rounds.
    let rounds = noted(setting);
    let at = rounds.iter().position(|round| *round == setting.rounds.min(setting.iterations)).unwrap_or(0);
    let budget = found.list(&format!("{set}|{reading}|lmc|0"), "bits")?[at];
    let (mut by_accuracy, mut by_distance) = (Vec::new(), Vec::new());
    for (colour, name) in setting.instances().into_iter().enumerate() {
        let (mut accuracies, mut distances, mut marginals) = (Vec::new(), Vec::new(), Vec::new());
        let mut curves: Vec<&[f64]> = Vec::new();
        for run in 0..setting.runs {
            let cell = format!("{set}|{reading}|{name}|{run}");
            let curve = found.list(&cell, "accuracy")?;
            accuracies.push(within(found.list(&cell, "bits")?, curve, budget));
            let law = law(&format!("{name}|{run}"))?;
            distances.push(w2(&law, &truth)? / size);
            marginals.push(marginal_w2(&law, &truth) / size);
            curves.push(curve);
        }
        let bits = found.list(&format!("{set}|{reading}|{name}|0"), "bits")?;
        let all = bits.last().copied().unwrap_or(0.0);
        numbers.push(Number::mean(format!("accuracy/{name}/{set}"), &accuracies));
        numbers.push(Number::mean(format!("w2/{name}/{set}"), &distances));
        numbers.push(Number::mean(format!("w2-marginal/{name}/{set}"), &marginals));
        numbers.push(Number::exact(format!("bits/{name}/{set}"), all / setting.iterations as f64));
        let point = |k: usize| Point { x: bits[k], y: curves.iter().map(|c| c[k]).sum::<f64>() / curves.len() as f64, error: 0.0 };
        by_accuracy.push(Series { name: label(&name), mark: Mark::Line, colour, points: (0..rounds.len()).map(point).collect() });
        let distance = Number::mean("", &marginals);
        let points = vec![Point { x: all, y: distance.value, error: if setting.runs > 1 { distance.error } else { 0.0 } }];
        by_distance.push(Series { name: label(&name), mark: Mark::Points, colour, points });
    }
    let x = || Axis::logarithmic("bits sent, both ways, all clients");
    let counted = if reading == "mean" { "mean over rows" } else { "each row counts once" };
    Ok([
        Figure {
            title: format!("Figure 1, {set} ({counted}): accuracy against bits"),
            caption: format!("The mean of the last {AVERAGED} iterates on held-out rows; mean of {} runs.", setting.runs),
            x: x(),
            y: Axis::straight("accuracy"),
            series: by_accuracy,
        },
        Figure {
            title: format!("{set} ({counted}): distance to the posterior against bits"),
            caption: "W2 of marginal moments to NUTS, over the posterior's size, after all iterations: what the paper does not show."
                .into(),
            x: x(),
            y: Axis::logarithmic("relative W2 of marginals"),
            series: by_distance,
        },
    ])
}

/// The last value on a curve that was reached within a number of bits.
fn within(bits: &[f64], values: &[f64], budget: f64) -> f64 {
    let reached = bits.iter().take_while(|b| **b <= budget).count().max(1);
    values[reached - 1]
}

/// What the authors' program does: `grad += mean(g_i)` every round, without a prior, at twice the step; with `g_i` the gradient or its EF21 memory (Top-k).
fn accumulate(setting: &Setting, problem: &Problem, compressed: bool, seed: u64, progress: &Progress) -> Values {
    let (d, n) = (problem.target.dim(), problem.rows as f64);
    let kept = setting.kept.first().copied().unwrap_or(1).min(d);
    let (mut x, mut sum, mut noise) = (vec![0.0; d], vec![0.0; d], vec![0.0; d]);
    let mut memories = vec![vec![0.0; d]; problem.target.clients.len()];
    let mut last = Last { ring: Vec::new(), next: 0 };
    for round in 0..setting.accumulated {
        for (client, memory) in problem.target.clients.iter().zip(&mut memories) {
            let mut gradient = vec![0.0; d];
            client.add_gradient(&x, Rows::All, 1.0 / n, &mut gradient, &mut vec![0.0; client.scratch()]);
            if compressed && round > 0 {
                let mut order: Vec<usize> = (0..d).collect();
                order.sort_by(|a, b| (gradient[*b] - memory[*b]).abs().total_cmp(&(gradient[*a] - memory[*a]).abs()));
                order[..kept].iter().for_each(|k| memory[*k] = gradient[*k]);
            } else {
                memory.copy_from_slice(&gradient);
            }
            add_scaled(1.0, memory, &mut sum);
        }
        Seed::new(seed).stream(Purpose::Noise, SERVER, round).normals(&mut noise);
        langevin(&mut x, 2.0 * setting.step, 1.0, &sum, &noise);
        last.push(&x);
        progress.done.fetch_add(1, Ordering::Relaxed);
    }
    Values::from([("accuracy".into(), vec![problem.accuracy(&last.mean())]), ("norm".into(), vec![dot(&x, &x).sqrt()])])
}

fn label(name: &str) -> String {
    match name.split_once('/') {
        Some((sampler, kept)) => format!("{}, top {kept}", sampler.to_uppercase()),
        None => name.to_uppercase(),
    }
}

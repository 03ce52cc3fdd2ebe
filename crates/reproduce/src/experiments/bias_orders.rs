//! QLSD, Table 2: on what the asymptotic bias depends, computed on linear and sampled on logistic
//! regression.
//!
//! The table bounds `W2^2 / gamma`. What noise adds to `W2^2` is of second order where it is small,
//! while the bounds are of first order, so dependencies are tested on what the bounds bound first:
//! the excess of the second moment, `(E norm(x - x*)^2 - E_pi norm(x - x*)^2) / gamma`; and the
//! order in `N` on `W2^2 / gamma`, too.

use std::sync::Arc;

use consilience_core::compress::{Compressor, Precision};
use consilience_core::measure::Gaussian;
use consilience_core::model::{Design, Glm, GlmFamily, Model, Prior};
use consilience_core::protocol::Ledger;
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::sampler::exact::{StationaryLaw, posterior, stationary};
use consilience_core::sampler::{Anchor, Batch, Participation, Recipe, Uplink};
use consilience_core::simd::exp;
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Optimum, conduct};
use consilience_core::target::{Placement, Target};
use consilience_engine::pooled::mala;
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::fit::exponent;
use crate::number::{Number, Numbers};
use crate::study::Study;

/// QLSD, Table 2.
pub struct BiasOrders;

const SAMPLERS: [&str; 3] = ["qlsd#", "qlsd*", "qlsd++"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    /// How far the clients' own parameters lie apart.
    spread: f64,
    /// Rows of a minibatch.
    batch: usize,
    /// `l`: how many rounds the reference point of QLSD++ lasts.
    every: u64,
    /// The growing number of rows of each client, with `gamma = c/N`.
    rows: Vec<usize>,
    /// `c`.
    step_times_rows: f64,
    /// Where the step is small.
    small: Small,
    logistic: Logistic,
}

/// Dependencies at a small step, on a target of fixed size.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Small {
    dim: usize,
    rows: usize,
    step_times_rows: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Logistic {
    dim: usize,
    rows: Vec<usize>,
    step_times_rows: f64,
    iterations: u64,
    runs: u32,
    /// Draws of the reference.
    draws: usize,
}

/// What differs between the targets and samplers.
#[derive(Clone, Debug)]
struct Case {
    dim: usize,
    rows: usize,
    spread: f64,
    step_times_rows: f64,
    keep: u32,
    probability: f64,
    /// Whether minibatches are all rows.
    all_rows: bool,
}

impl Setting {
    /// The values of omega at a small step.
    fn omegas(&self) -> Vec<(f64, u32)> {
        let d = self.small.dim as u32;
        let mut keeps = vec![d, d / 2, d / 4, 1];
        keeps.dedup();
        keeps.into_iter().map(|keep| (f64::from(d) / f64::from(keep) - 1.0, keep)).collect()
    }

    /// The numbers of parameters at a small step.
    fn dims(&self) -> Vec<usize> {
        [2, 4, 8].into_iter().filter(|dim| *dim <= self.small.dim).collect()
    }

    fn small(&self) -> Case {
        Case {
            dim: self.small.dim,
            rows: self.small.rows,
            spread: self.spread,
            step_times_rows: self.small.step_times_rows,
            keep: self.small.dim as u32 / 2,
            probability: 1.0,
            all_rows: false,
        }
    }

    /// The computed cases by name: one quantity varies in each group.
    fn cases(&self) -> Vec<(String, Case)> {
        let small = self.small();
        let mut cases = Vec::new();
        for rows in &self.rows {
            let case = Case {
                dim: 2,
                rows: *rows,
                step_times_rows: self.step_times_rows,
                keep: 1,
                ..small.clone()
            };
            cases.push((format!("rows {rows}"), case));
        }
        for (omega, keep) in self.omegas() {
            cases.push((format!("omega {omega}"), Case { keep, ..small.clone() }));
            cases.push((
                format!("twice {omega}"),
                Case { keep, step_times_rows: 2.0 * small.step_times_rows, ..small.clone() },
            ));
        }
        for odds in [0.0, 0.25, 1.0, 4.0] {
            cases.push((
                format!("odds {odds}"),
                Case { probability: 1.0 / (1.0 + odds), ..small.clone() },
            ));
        }
        for odds in [0.0, 4.0] {
            let step_times_rows = 2.0 * small.step_times_rows;
            cases.push((
                format!("twice odds {odds}"),
                Case { probability: 1.0 / (1.0 + odds), step_times_rows, ..small.clone() },
            ));
        }
        for times in [0.0, 4.0] {
            cases.push((
                format!("spread {times}"),
                Case { spread: times * self.spread, ..small.clone() },
            ));
        }
        for dim in self.dims() {
            cases.push((
                format!("dim {dim}"),
                Case { dim, keep: dim as u32 / 2, all_rows: true, ..small.clone() },
            ));
        }
        cases
    }

    fn case(&self, name: &str) -> Result<Case, Trouble> {
        let known = self.cases().into_iter().find(|(known, _)| known == name);
        known.map(|(_, case)| case).ok_or_else(|| Trouble::Other(format!("no such case: {name}")))
    }
}

/// Rows of linear or logistic regression: features N(0, I), parameters of client `i` at `spread`
/// times a normal vector.
fn regression(
    clients: usize,
    dim: usize,
    rows: usize,
    spread: f64,
    logistic: bool,
    seed: u64,
) -> Result<Target, Trouble> {
    let mut all: Vec<Arc<dyn Model>> = Vec::new();
    for i in 0..clients as u32 {
        let normals = |place: u64, n: usize| {
            let mut z = vec![0.0; n];
            Seed::new(seed).stream(Purpose::Data, ClientId(i), place).normals(&mut z);
            z
        };
        let (centre, cells, noise) = (normals(0, dim), normals(1, rows * dim), normals(2, rows));
        let predictor =
            |row: &[f64]| spread * row.iter().zip(&centre).map(|(a, c)| a * c).sum::<f64>();
        let mut coins = Seed::new(seed).stream(Purpose::Data, ClientId(i), 3);
        let response = cells.chunks_exact(dim).zip(&noise).map(|(row, z)| match logistic {
            true => f64::from(u8::from(coins.uniform() < 1.0 / (1.0 + exp(-predictor(row))))),
            false => predictor(row) + z,
        });
        let response = response.collect();
        let family =
            if logistic { GlmFamily::Bernoulli } else { GlmFamily::Gaussian { variance: 1.0 } };
        all.push(Arc::new(Glm::new(Design::dense(cells, dim)?, response, family)?));
    }
    let prior = if logistic { Prior::gaussian(1.0, dim)? } else { Prior::Flat };
    Ok(Target::new(all, prior, Placement::Server, 1.0)?)
}

fn optimum(target: &Target) -> Vec<f64> {
    let start = vec![0.0; target.dim()];
    let mut ledger = Ledger::new(target.clients.len());
    conduct(Optimum::new(target, &start, 1e-10, 1000), &mut Client::all(target), &mut ledger)
        .point()
        .to_vec()
}

fn sampler(setting: &Setting, name: &str, case: &Case, target: &Target, optimum: &[f64]) -> Recipe {
    let step = Schedule::Constant(case.step_times_rows / (setting.clients * case.rows) as f64);
    let batch = if case.all_rows { Batch::Full } else { Batch::Rows(setting.batch) };
    let up = Compressor::rand_k(case.keep);
    let rate = 1.0 / (1.0 + up.omega(target.dim()).unwrap_or(0.0));
    let recipe = match name {
        "qlsd*" => {
            let mut anchor = Anchor { point: optimum.to_vec(), residual: vec![0.0; optimum.len()] };
            Precision::F32.round(&mut anchor.point);
            let clients = Target { prior: Prior::Flat, ..target.clone() };
            clients.gradient(&anchor.point, &mut anchor.residual); // the server adds the prior's
            Uplink::qlsd_star(step, batch, anchor, up)
        }
        "qlsd++" => Uplink::qlsd_plus_plus(step, batch, setting.every, Some(rate), up),
        _ => Uplink::qlsd(step, batch, up),
    };
    let everybody = case.probability == 1.0;
    let participation = if everybody {
        Participation::All
    } else {
        Participation::Bernoulli(vec![case.probability; setting.clients])
    };
    Recipe::Uplink(Uplink { participation, ..recipe })
}

/// `E norm(x - centre)^2`.
fn second_moment(law: &StationaryLaw, centre: &[f64]) -> f64 {
    let d = centre.len();
    (0..d).map(|k| law.covariance[k * (d + 1)] + (law.mean[k] - centre[k]).powi(2)).sum()
}

impl Experiment for BiasOrders {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let mut cells = Vec::new();
        for name in SAMPLERS {
            for (case, Case { rows, dim, .. }) in setting.cases() {
                cells.push(Cell::new(format!("exact|{name}|{case}"), (rows * dim) as u64));
            }
            for rows in &setting.logistic.rows {
                let run = |run| {
                    Cell::new(format!("logistic|{name}|{rows}|{run}"), setting.logistic.iterations)
                };
                cells.extend((0..setting.logistic.runs).map(run));
            }
        }
        cells.extend(
            setting
                .logistic
                .rows
                .iter()
                .map(|rows| Cell::new(format!("reference|{rows}"), setting.logistic.draws as u64)),
        );
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let parts: Vec<&str> = cell.split('|').collect();
        let wrong = || Trouble::Other(format!("no such cell: {cell}"));
        let logistic = &setting.logistic;
        let logistic_case = |rows: &str| -> Result<Case, Trouble> {
            let rows = rows.parse().map_err(|_| wrong())?;
            let step_times_rows = logistic.step_times_rows;
            Ok(Case {
                dim: logistic.dim,
                rows,
                spread: setting.spread,
                step_times_rows,
                keep: 1,
                probability: 1.0,
                all_rows: false,
            })
        };
        match parts[..] {
            ["exact", name, case] => {
                let case = setting.case(case)?;
                let target = regression(
                    setting.clients,
                    case.dim,
                    case.rows,
                    case.spread,
                    false,
                    study.seed,
                )?;
                let truth = posterior(&target).map_err(|e| Trouble::Other(e.to_string()))?;
                let recipe = sampler(&setting, name, &case, &target, &truth.mean);
                let target = recipe.check(target)?;
                let law =
                    stationary(&recipe, &target).map_err(|e| Trouble::Other(e.to_string()))?;
                let gaussian = |law: &StationaryLaw| {
                    Gaussian::new(&law.mean, &law.covariance)
                        .map_err(|e| Trouble::Other(e.to_string()))
                };
                let distance = gaussian(&law)?
                    .w2(&gaussian(&truth)?)
                    .map_err(|e| Trouble::Other(e.to_string()))?;
                let step = case.step_times_rows / (setting.clients * case.rows) as f64;
                let excess = second_moment(&law, &truth.mean) - second_moment(&truth, &truth.mean);
                Ok(Values::from([
                    ("w2".into(), vec![distance * distance / step]),
                    ("excess".into(), vec![excess / step]),
                ]))
            }
            ["reference", rows] => {
                let case = logistic_case(rows)?;
                let target = regression(
                    setting.clients,
                    case.dim,
                    case.rows,
                    case.spread,
                    true,
                    study.seed,
                )?;
                let centre = optimum(&target);
                let Some(reference) = mala(&target, &centre, 4, logistic.draws / 4, study.seed)
                else {
                    return Err(Trouble::Other(
                        "the posterior's Hessian is not positive definite".into(),
                    ));
                };
                let moment =
                    |x: &[f64]| x.iter().zip(&centre).map(|(x, c)| (x - c).powi(2)).sum::<f64>();
                let count = (reference.draws.chains() * reference.draws.length()) as f64;
                Ok(Values::from([(
                    "moment".into(),
                    vec![reference.draws.rows().map(moment).sum::<f64>() / count],
                )]))
            }
            ["logistic", name, rows, run] => {
                let case = logistic_case(rows)?;
                let target = regression(
                    setting.clients,
                    case.dim,
                    case.rows,
                    case.spread,
                    true,
                    study.seed,
                )?;
                let centre = optimum(&target);
                let recipe = sampler(&setting, name, &case, &target, &centre);
                let index = run.parse().map_err(|_| wrong())?;
                let chain = Chain {
                    recipe: &recipe,
                    target: &target,
                    start: &centre,
                    seed: study.seed,
                    index,
                };
                let (mut sum, burn_in) = (0.0, logistic.iterations / 10);
                chain.walk(logistic.iterations, progress, |iteration, x, _| {
                    if iteration > burn_in {
                        sum += x.iter().zip(&centre).map(|(x, c)| (x - c).powi(2)).sum::<f64>();
                    }
                })?;
                Ok(Values::from([(
                    "moment".into(),
                    vec![sum / (logistic.iterations - burn_in) as f64],
                )]))
            }
            _ => Err(wrong()),
        }
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let (mut numbers, mut computed, mut sampled) = (Numbers::new(), Vec::new(), Vec::new());
        for (colour, name) in SAMPLERS.into_iter().enumerate() {
            let exact =
                |case: &str, what: &str| found.number(&format!("exact|{name}|{case}"), what);
            // Against N.
            let by_rows = |what: &str| -> Result<Vec<(f64, f64)>, Trouble> {
                setting
                    .rows
                    .iter()
                    .map(|n| Ok((*n as f64, exact(&format!("rows {n}"), what)?)))
                    .collect()
            };
            numbers.push(Number::exact(format!("rows/{name}"), exponent(&by_rows("excess")?)));
            numbers.push(Number::exact(format!("w2/{name}"), exponent(&by_rows("w2")?)));
            let points =
                by_rows("w2")?.iter().map(|(x, y)| Point { x: *x, y: *y, error: 0.0 }).collect();
            computed.push(Series {
                name: name.to_uppercase(),
                mark: Mark::LineAndPoints,
                colour,
                points,
            });
            // The excess against omega and (1 - p)/p, over what there is without.
            let beyond = |group: &str, values: &[f64]| -> Result<f64, Trouble> {
                let none = exact(&format!("{group} 0"), "excess")?;
                let more = |x: &f64| Ok((*x, exact(&format!("{group} {x}"), "excess")? - none));
                Ok(exponent(&values.iter().map(more).collect::<Result<Vec<_>, Trouble>>()?))
            };
            let omegas: Vec<f64> = setting
                .omegas()
                .iter()
                .map(|(omega, _)| *omega)
                .filter(|omega| *omega > 0.0)
                .collect();
            numbers.push(Number::exact(format!("omega/{name}"), beyond("omega", &omegas)?));
            let most = omegas.last().copied().unwrap_or(f64::NAN);
            let added = |group: &str| -> Result<f64, Trouble> {
                Ok(exact(&format!("{group} {most}"), "excess")?
                    - exact(&format!("{group} 0"), "excess")?)
            };
            let (once, twice) = (added("omega")?, added("twice")?);
            numbers
                .push(Number::exact(format!("added/{name}"), once / exact("omega 0", "excess")?));
            numbers.push(Number::exact(format!("step/{name}"), 1.0 + (twice / once).log2()));
            numbers.push(Number::exact(
                format!("participation/{name}"),
                beyond("odds", &[0.25, 1.0, 4.0])?,
            ));
            let added = |group: &str| -> Result<f64, Trouble> {
                Ok(exact(&format!("{group} 4"), "excess")?
                    - exact(&format!("{group} 0"), "excess")?)
            };
            numbers.push(Number::exact(
                format!("step participation/{name}"),
                1.0 + (added("twice odds")? / added("odds")?).log2(),
            ));
            numbers.push(Number::exact(
                format!("spread/{name}"),
                exact("spread 4", "excess")? / exact("spread 0", "excess")?,
            ));
            let dims = setting.dims().into_iter();
            let by_dim = dims
                .map(|d| Ok((d as f64, exact(&format!("dim {d}"), "excess")?)))
                .collect::<Result<Vec<_>, Trouble>>()?;
            numbers.push(Number::exact(format!("dim/{name}"), exponent(&by_dim)));
            // Logistic regression: the excess over gamma against N.
            let mut by_rows = Vec::new();
            for rows in &setting.logistic.rows {
                let step = setting.logistic.step_times_rows / (setting.clients * rows) as f64;
                let reference = found.number(&format!("reference|{rows}"), "moment")?;
                let excess = |run| {
                    Ok((found.number(&format!("logistic|{name}|{rows}|{run}"), "moment")?
                        - reference)
                        / step)
                };
                let excess: Vec<f64> =
                    (0..setting.logistic.runs).map(excess).collect::<Result<_, Trouble>>()?;
                by_rows
                    .push((*rows as f64, Number::mean(format!("logistic {rows}/{name}"), &excess)));
            }
            if let (Some((_, few)), Some((_, many))) = (by_rows.first(), by_rows.last()) {
                let value = many.value / few.value;
                let error = value.abs() * (many.error / many.value).hypot(few.error / few.value);
                numbers.push(Number {
                    name: format!("logistic/{name}"),
                    value,
                    error,
                    runs: many.runs,
                });
            }
            let points =
                by_rows.iter().map(|(x, n)| Point { x: *x, y: n.value, error: n.error }).collect();
            by_rows.into_iter().for_each(|(_, number)| numbers.push(number));
            sampled.push(Series {
                name: name.to_uppercase(),
                mark: Mark::LineAndPoints,
                colour,
                points,
            });
        }
        let label = "rows of each client";
        let (first, last) = (
            setting.logistic.rows.first().copied().unwrap_or(1),
            setting.logistic.rows.last().copied().unwrap_or(1),
        );
        Ok(Findings {
            readings: vec![Reading::ours(numbers)],
            figures: vec![
                Figure {
                    title: "Table 2, last column: squared distance over the step, linear \
                        regression"
                        .into(),
                    caption: "Computed, not sampled; step = c/N. Bounded as rows grow for QLSD* \
                        and QLSD++, in proportion to the rows for QLSD#."
                        .into(),
                    x: Axis::logarithmic(label),
                    y: Axis::logarithmic("W2^2 / step"),
                    series: computed,
                },
                Figure {
                    title:
                        "The same for logistic regression: excess of the second moment over the \
                        step"
                            .into(),
                    caption: format!(
                        "{} runs of each; a bar is one standard error. The reference \
                        is a Metropolis-adjusted chain.",
                        setting.logistic.runs
                    ),
                    x: Axis::logarithmic(label),
                    y: Axis::logarithmic("excess / step"),
                    series: sampled,
                },
            ],
            notes: vec![
                format!(
                    "`rows/..` and `w2/..` are exponents in N of the excess of the second moment \
                     over the step, and of W2^2 over the step. `omega/..`, `participation/..` and \
                     `dim/..` are exponents of that excess at a small step (what it grows by above \
                     omega = 0 or (1-p)/p = 0). \
                     `added/..` is what the largest omega, {}, adds to it, as a part of what is \
                     there without compression; `step/..` is the exponent in the step of what it \
                     adds to the second moment itself, and `step participation/..` that of what \
                     (1-p)/p = 4 adds. `spread/..` is its ratio between clients far apart and \
                     clients that agree; `logistic/..` its ratio between the most and the fewest \
                     rows. All but the logistic ones are computed from exact laws.",
                    setting.omegas().last().map_or(0.0, |(omega, _)| *omega)
                ),
                "The table bounds W2^2/step. At a small step the true W2^2/step vanishes with the \
                 step, since W2^2 is of second order in the excess variance: the bounds are right \
                 and not sharp there, so linear dependencies are judged on the second moment. \
                 W2^2/step of QLSD# grows a little faster than N here and as N in the end, since \
                 W2^2 = (a - c/sqrt(N))^2 for laws of widths a and c/sqrt(N)."
                    .into(),
                "QLSD++: what is compressed is a client's change since its memory last followed, \
                 and a memory of rate 1/(omega+1) lags by about (omega+1) times the change of one \
                 round. What compression adds is therefore more than linear in omega, \
                 but of second order in the step (`step/qlsd++`; `step participation/qlsd++` for \
                 devices that stay away) where the table's bound is of first, and small beside the \
                 bias of the step itself (`added/qlsd++`). As the step goes to zero, which is what \
                 the table speaks of, it falls below any multiple of the bound: that is right and \
                 not sharp."
                    .into(),
                "The order in d is taken with all rows in a minibatch: with fewer, the smoothness \
                 of single rows enters (the table's constants), and in linear regression that \
                 grows with d."
                    .into(),
                format!(
                    "Minibatches have {} rows whatever N is, as the table's N_i^2 supposes; \
                    logistic regression has {first} to {last} rows a client.",
                    setting.batch
                ),
            ],
        })
    }
}

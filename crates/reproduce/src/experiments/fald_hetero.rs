//! FA-LD, Figure 1(b) to (e): what heterogeneity and correlated noise do to convergence, and the
//! density that comes out.

use std::sync::atomic::Ordering;

use consilience_core::measure::Gaussian as Normal;
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use nalgebra::{Matrix2, Vector2};
use serde::Deserialize;

use super::fa_ld::{Law, Round, Toy};
use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FA-LD, Figure 1(b) to (e).
pub struct FaldHetero;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    /// Rows of each client, which the paper does not state: what fits its `gamma`.
    rows: usize,
    alphas: Vec<f64>,
    eta: f64,
    accuracy: f64,
    /// `K` of Figure 1(b) and (e).
    steps: u64,
    /// How long the chains are; the second half of it is taken as converged.
    rounds: u64,
    /// From how many runs the paper estimates a law,
    runs: usize,
    /// and how often we repeat that.
    repeats: u32,
    /// `K` of Figure 1(c).
    correlated_steps: u64,
    correlations: Vec<f64>,
    /// The speed at different correlations is the distance after so many rounds.
    early_round: u64,
    /// Chains of the sampler itself: how heterogeneous, how many.
    sampled: Vec<f64>,
    chains: u32,
}

/// Where chains start, and where under the second reading, seen from the posterior's mean.
const START: [f64; 2] = [0.0; 2];
const APART: [f64; 2] = [1.0, 1.0];

impl Setting {
    fn toy(&self, alpha: f64, seed: u64) -> Result<Toy, Trouble> {
        Toy::new(self.clients, self.rows, alpha, seed)
    }

    fn round(&self, toy: &Toy) -> Result<Round, Trouble> {
        Round::new(&toy.recipe(self.eta, self.steps, 0.0), &toy.target)
    }

    /// The rounds that the figures show: four in every doubling.
    fn noted(rounds: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..)
            .map(|k| 2f64.powf(f64::from(k) / 4.0) as u64)
            .take_while(|r| *r < rounds)
            .collect();
        all.push(rounds);
        all.dedup();
        all
    }
}

/// The distance of the law at these rounds, and how many rounds an accuracy takes.
fn path(
    toy: &Toy,
    round: &Round,
    start: [f64; 2],
    noted: &[u64],
    accuracy: f64,
) -> Result<(Vec<f64>, u64), Trouble> {
    let (mut law, mut distances, mut needed, mut done) = (Law::at(start), Vec::new(), None, 0);
    let last = noted.last().copied().unwrap_or(0);
    while done < last || (needed.is_none() && done < 100 * last) {
        law = round.apply(&law);
        done += 1;
        let is_noted = noted.contains(&done);
        if needed.is_none() || is_noted {
            let distance = toy.w2(&law)?;
            needed = needed.or((distance <= accuracy).then_some(done));
            distances.extend(is_noted.then_some(distance));
        }
    }
    Ok((distances, needed.unwrap_or(done)))
}

impl Experiment for FaldHetero {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let iterations = setting.rounds * setting.steps;
        let laws =
            setting.alphas.iter().map(|alpha| Cell::new(format!("law|{alpha}"), iterations / 10));
        let correlations =
            setting.correlations.iter().map(|rho| Cell::new(format!("rho|{rho}"), iterations / 10));
        let repeats = |alpha: &f64| {
            (0..setting.repeats).map(move |k| format!("estimate|{alpha}|{k}")).collect::<Vec<_>>()
        };
        let estimates =
            setting.alphas.iter().flat_map(repeats).map(|name| Cell::new(name, iterations));
        let chains = |alpha: &f64| {
            (0..setting.chains).map(move |k| format!("chain|{alpha}|{k}")).collect::<Vec<_>>()
        };
        let chains =
            setting.sampled.iter().flat_map(chains).map(|name| Cell::new(name, iterations));
        Ok(laws.chain(correlations).chain(estimates).chain(chains).collect())
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let unknown = || Trouble::Other(format!("no such cell: {cell}"));
        let number = |text: &str| text.parse::<f64>().map_err(|_| unknown());
        let iterations = setting.rounds * setting.steps;
        let noted = Setting::noted(setting.rounds);
        let parts: Vec<&str> = cell.split('|').collect();
        match parts[..] {
            ["law", alpha] => {
                let toy = setting.toy(number(alpha)?, study.seed)?;
                let round = setting.round(&toy)?;
                let (distances, needed) = path(&toy, &round, START, &noted, setting.accuracy)?;
                let centre = toy.posterior.mean();
                let apart = [centre[0] + APART[0], centre[1] + APART[1]];
                let (_, needed_apart) = path(&toy, &round, apart, &noted, setting.accuracy)?;
                let level = toy.w2(&round.stationary(&Law::at(START)))?;
                progress.done.fetch_add(iterations / 10, Ordering::Relaxed);
                Ok(Values::from([
                    ("path".into(), distances),
                    ("rounds".into(), vec![needed as f64]),
                    ("rounds, same start".into(), vec![needed_apart as f64]),
                    ("level".into(), vec![level]),
                ]))
            }
            ["rho", rho] => {
                let toy = setting.toy(0.0, study.seed)?;
                let round = Round::new(
                    &toy.recipe(setting.eta, setting.correlated_steps, number(rho)?),
                    &toy.target,
                )?;
                let rounds = (iterations / setting.correlated_steps).max(1);
                let (distances, needed) =
                    path(&toy, &round, START, &Setting::noted(rounds), setting.accuracy)?;
                let early =
                    (0..setting.early_round).fold(Law::at(START), |law, _| round.apply(&law));
                progress.done.fetch_add(iterations / 10, Ordering::Relaxed);
                Ok(Values::from([
                    ("path".into(), distances),
                    ("rounds".into(), vec![needed as f64]),
                    ("early".into(), vec![toy.w2(&early)?]),
                ]))
            }
            ["estimate", alpha, repeat] => {
                let toy = setting.toy(number(alpha)?, study.seed)?;
                let round = setting.round(&toy)?;
                let seed = Seed::new(study.seed).chain(repeat.parse().map_err(|_| unknown())?);
                let (mut draws, mut distances) = (vec![0.0; 2 * setting.runs], Vec::new());
                for done in 1..=setting.rounds {
                    round.draw(&mut draws, &mut seed.stream(Purpose::Noise, SERVER, done))?;
                    if noted.contains(&done) {
                        distances.push(toy.estimated_w2(&draws)?);
                    }
                }
                progress.done.fetch_add(iterations, Ordering::Relaxed);
                Ok(Values::from([("path".into(), distances)]))
            }
            ["chain", alpha, index] => {
                let toy = setting.toy(number(alpha)?, study.seed)?;
                chain(&setting, &toy, study.seed, index.parse().map_err(|_| unknown())?, progress)
            }
            _ => Err(unknown()),
        }
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let noted = Setting::noted(setting.rounds);
        let (mut numbers, mut same_start) = (Numbers::new(), Numbers::new());
        let (mut by_alpha, mut by_rho) = (Vec::new(), Vec::new());
        let points = |rounds: &[u64], values: &[f64]| -> Vec<Point> {
            rounds
                .iter()
                .zip(values)
                .map(|(r, y)| Point { x: *r as f64, y: *y, error: 0.0 })
                .collect()
        };
        for (colour, alpha) in setting.alphas.iter().enumerate() {
            let law = format!("law|{alpha}");
            let repeated: Vec<&[f64]> = (0..setting.repeats)
                .map(|k| found.list(&format!("estimate|{alpha}|{k}"), "path"))
                .collect::<Result<_, _>>()?;
            let last: Vec<f64> = repeated.iter().filter_map(|list| list.last().copied()).collect();
            numbers.push(Number::exact(format!("rounds/{alpha}"), found.number(&law, "rounds")?));
            numbers.push(Number::mean(format!("level/{alpha}"), &last));
            numbers.push(Number::exact(format!("law/{alpha}"), found.number(&law, "level")?));
            same_start.push(Number::exact(
                format!("rounds/{alpha}"),
                found.number(&law, "rounds, same start")?,
            ));
            by_alpha.push(Series {
                name: format!("alpha = {alpha}, the law"),
                mark: Mark::Line,
                colour,
                points: points(&noted, found.list(&law, "path")?),
            });
            if let Some(first) = repeated.first() {
                by_alpha.push(Series {
                    name: format!("alpha = {alpha}, {} runs", setting.runs),
                    mark: Mark::Points,
                    colour,
                    points: points(&noted, first),
                });
            }
        }
        let rounds =
            Setting::noted((setting.rounds * setting.steps / setting.correlated_steps).max(1));
        for (colour, rho) in setting.correlations.iter().enumerate() {
            let cell = format!("rho|{rho}");
            numbers.push(Number::exact(format!("early/{rho}"), found.number(&cell, "early")?));
            by_rho.push(Series {
                name: format!("rho = {rho}"),
                mark: if colour == 0 { Mark::Line } else { Mark::Points },
                colour,
                points: points(&rounds, found.list(&cell, "path")?),
            });
        }
        for alpha in &setting.sampled {
            let cells = || (0..setting.chains).map(|k| format!("chain|{alpha}|{k}"));
            for what in ["mean 0", "mean 1", "square", "inside 50", "inside 90"] {
                let list =
                    cells().map(|cell| found.number(&cell, what)).collect::<Result<Vec<_>, _>>()?;
                numbers.push(Number::mean(format!("{what}/{alpha}"), &list));
            }
        }
        let first = setting.sampled.first().copied().unwrap_or(0.0);
        let shown = (0..setting.chains)
            .map(|k| found.list(&format!("chain|{first}|{k}"), "draws"))
            .collect::<Result<Vec<_>, _>>()?
            .concat();
        let floor = numbers.get(&format!("level/{first}")).map_or(f64::NAN, |n| n.value);
        let law = numbers.get(&format!("law/{first}")).map_or(f64::NAN, |n| n.value);
        let toy = setting.toy(first, study.seed)?;
        Ok(Findings {
            readings: vec![
                Reading::ours(numbers),
                Reading::other(
                    "same start",
                    "every chain starts at the same distance from its posterior's mean, so that \
                     heterogeneity alone differs",
                    same_start,
                ),
            ],
            figures: vec![
                Figure {
                    title: format!("Figure 1(b): W2 against rounds, K = {}", setting.steps),
                    caption: format!(
                        "Lines: the law itself, computed. Points: the Gaussian fitted \
                        to {} runs, as in the paper.",
                        setting.runs
                    ),
                    x: Axis::logarithmic("rounds"),
                    y: Axis::logarithmic("W2"),
                    series: by_alpha,
                },
                Figure {
                    title: format!(
                        "Figure 1(c): W2 against rounds for different correlations, K = \
                        {}",
                        setting.correlated_steps
                    ),
                    caption: "The law itself, computed: all correlations coincide.".into(),
                    x: Axis::logarithmic("rounds"),
                    y: Axis::logarithmic("W2"),
                    series: by_rho,
                },
                density(&toy, &shown, first),
            ],
            notes: vec![
                format!(
                    "The level of about 1e-3 is not the sampler's: its law comes as near as \
                     {law:.1e}. It is what {} runs can resolve: a Gaussian fitted to {} perfect \
                     draws of the posterior is as far away ({floor:.1e} here).",
                    setting.runs, setting.runs
                ),
                "Heterogeneity slows convergence only in so far as it moves the posterior's mean \
                 away from 0, where chains start: all local potentials have the same Hessian, so \
                 the mean of the clients \
                 does not depend on how far apart their means are. Started at equal distances \
                 (second reading) all need the same number of rounds."
                    .into(),
                "For the same reason the correlation has no effect at all: the mean of the \
                 clients' noise has variance 2 eta for every rho, and with equal Hessians nothing \
                 else of it reaches the mean. \
                 That a larger correlation is slightly faster in the paper is then within the \
                 noise of its runs."
                    .into(),
            ],
        })
    }
}

/// A chain of the sampler itself: its second half in units of the stationary law, and how much of
/// it lies in regions of the posterior.
fn chain(
    setting: &Setting,
    toy: &Toy,
    seed: u64,
    index: u32,
    progress: &Progress,
) -> Result<Values, Trouble> {
    let law = setting.round(toy)?.stationary(&Law::at(START));
    let posterior = as_law(&toy.posterior);
    let recipe = Toy::sampler(toy.recipe(setting.eta, setting.steps, 0.0));
    let (half, thin) = (setting.rounds / 2, (setting.rounds / 8).max(1));
    let (mut sums, mut count, mut draws, mut trouble) = ([0.0; 5], 0.0, Vec::new(), None);
    let chain = Chain { recipe: &recipe, target: &toy.target, start: &START, seed, index };
    chain.walk(setting.rounds * setting.steps, progress, |iteration, x, _| {
        let round = iteration / setting.steps;
        if round <= half {
            return;
        }
        match (law.standardise(x), posterior.standardise(x)) {
            (Ok([a, b]), Ok([c, d])) => {
                let radius = c * c + d * d; // chi-squared with 2 degrees of freedom
                let inside = |mass: f64| f64::from(radius < -2.0 * (1.0 - mass).ln());
                let values = [a, b, 0.5 * (a * a + b * b), inside(0.5), inside(0.9)];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                count += 1.0;
            }
            (Err(error), _) | (_, Err(error)) => trouble = Some(error),
        }
        if round.is_multiple_of(thin) {
            draws.extend_from_slice(x);
        }
    })?;
    if let Some(error) = trouble {
        return Err(error);
    }
    let names = ["mean 0", "mean 1", "square", "inside 50", "inside 90"];
    let mut values: Values =
        names.iter().zip(sums).map(|(name, sum)| ((*name).to_owned(), vec![sum / count])).collect();
    values.insert("draws".into(), draws);
    Ok(values)
}

fn as_law(normal: &Normal) -> Law {
    Law {
        mean: Vector2::from_column_slice(normal.mean()),
        covariance: Matrix2::from_column_slice(normal.covariance()),
    }
}

/// Draws over the regions that hold a half and nine tenths of the posterior.
fn density(toy: &Toy, draws: &[f64], alpha: f64) -> Figure {
    let law = as_law(&toy.posterior);
    let root = law.covariance.cholesky().map_or_else(Matrix2::zeros, |root| root.l());
    let ellipse = |mass: f64, colour: usize| Series {
        name: format!("{:.0}% of the posterior", 100.0 * mass),
        mark: Mark::Line,
        colour,
        points: (0..=64)
            .map(|k| {
                let angle = f64::from(k) / 64.0 * std::f64::consts::TAU;
                let at = law.mean
                    + root
                        * Vector2::new(angle.cos(), angle.sin())
                        * (-2.0 * (1.0 - mass).ln()).sqrt();
                Point { x: at[0], y: at[1], error: 0.0 }
            })
            .collect(),
    };
    let dots =
        draws.chunks_exact(2).take(400).map(|x| Point { x: x[0], y: x[1], error: 0.0 }).collect();
    Figure {
        title: format!("Figure 1(d) and (e): draws over the posterior, alpha = {alpha}"),
        caption: "Draws of the sampler itself from the second half of its chains.".into(),
        x: Axis::straight("first coordinate"),
        y: Axis::straight("second coordinate"),
        series: vec![
            Series { name: "draws".into(), mark: Mark::Points, colour: 0, points: dots },
            ellipse(0.5, 1),
            ellipse(0.9, 2),
        ],
    }
}

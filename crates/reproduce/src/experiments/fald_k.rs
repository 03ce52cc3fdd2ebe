//! FA-LD, Figure 1(a): how many rounds of communication an accuracy takes, against the number of
//! local steps.

use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;
use std::sync::atomic::Ordering;

use super::fa_ld::{Law, Round, Toy};
use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FA-LD, Figure 1(a).
pub struct FaldK;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    /// Rows of each client, which the paper does not state: what fits its `gamma`.
    rows: usize,
    alphas: Vec<f64>,
    eta: f64,
    accuracy: f64,
    /// The numbers of local steps.
    steps: Vec<u64>,
    /// From how many runs the paper estimates a law,
    runs: usize,
    /// and how often we repeat that.
    repeats: u32,
    check: Check,
}

/// The sampler itself beside the computed law, where that is quick.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    alpha: f64,
    eta: f64,
    steps: u64,
    rounds: u64,
    chains: u32,
}

/// Nobody waits longer than this.
const MOST_ROUNDS: u64 = 100_000;

/// Chains of one cell of the check.
const BLOCK: u32 = 50;

impl Setting {
    fn toy(&self, alpha: f64, seed: u64) -> Result<Toy, Trouble> {
        Toy::new(self.clients, self.rows, alpha, seed)
    }

    fn round(&self, toy: &Toy, steps: u64) -> Result<Round, Trouble> {
        Round::new(&toy.recipe(self.eta, steps, 0.0), &toy.target)
    }

    fn blocks(&self) -> u32 {
        self.check.chains.div_ceil(BLOCK)
    }
}

/// The rounds that the law itself needs.
fn rounds_of_law(toy: &Toy, round: &Round, accuracy: f64) -> Result<u64, Trouble> {
    let (mut law, centre) = (Law::at([0.0; 2]), toy.posterior.mean());
    for done in 1..=MOST_ROUNDS {
        law = round.apply(&law);
        // the means alone are farther apart
        let far = (law.mean[0] - centre[0]).hypot(law.mean[1] - centre[1]) > accuracy;
        if !far && toy.w2(&law)? <= accuracy {
            return Ok(done);
        }
    }
    Ok(MOST_ROUNDS)
}

/// The rounds until the law that is fitted to so many runs is near: what the paper reports.
fn rounds_of_estimate(
    toy: &Toy,
    round: &Round,
    accuracy: f64,
    runs: usize,
    seed: Seed,
) -> Result<u64, Trouble> {
    let mut draws = vec![0.0; 2 * runs];
    for done in 1..=MOST_ROUNDS {
        round.draw(&mut draws, &mut seed.stream(Purpose::Noise, SERVER, done))?;
        if toy.estimated_w2(&draws)? <= accuracy {
            return Ok(done);
        }
    }
    Ok(MOST_ROUNDS)
}

impl Experiment for FaldK {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let laws = setting.alphas.iter().map(|alpha| Cell::new(format!("law|{alpha}"), 10));
        let repeats = |alpha: &f64| {
            (0..setting.repeats).map(move |k| format!("estimate|{alpha}|{k}")).collect::<Vec<_>>()
        };
        let estimates = setting.alphas.iter().flat_map(repeats).map(|name| Cell::new(name, 10));
        let checks = (0..setting.blocks()).map(|block| Cell::new(format!("check|{block}"), 10));
        Ok(laws.chain(estimates).chain(checks).collect())
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let unknown = || Trouble::Other(format!("no such cell: {cell}"));
        let parts: Vec<&str> = cell.split('|').collect();
        let values = match parts[..] {
            ["law", alpha] => {
                let toy = setting.toy(alpha.parse().map_err(|_| unknown())?, study.seed)?;
                let (mut rounds, mut levels) = (Vec::new(), Vec::new());
                for steps in &setting.steps {
                    let round = setting.round(&toy, *steps)?;
                    rounds.push(rounds_of_law(&toy, &round, setting.accuracy)? as f64);
                    levels.push(toy.w2(&round.stationary(&Law::at([0.0; 2])))?);
                }
                Values::from([
                    ("rounds".into(), rounds),
                    ("level".into(), levels),
                    ("gamma".into(), vec![toy.gamma]),
                ])
            }
            ["estimate", alpha, repeat] => {
                let toy = setting.toy(alpha.parse().map_err(|_| unknown())?, study.seed)?;
                let seed = Seed::new(study.seed).chain(repeat.parse().map_err(|_| unknown())?);
                let mut rounds = Vec::new();
                for steps in &setting.steps {
                    let round = setting.round(&toy, *steps)?;
                    rounds.push(rounds_of_estimate(
                        &toy,
                        &round,
                        setting.accuracy,
                        setting.runs,
                        seed,
                    )? as f64);
                }
                Values::from([("rounds".into(), rounds)])
            }
            ["check", block] => {
                let block: u32 = block.parse().map_err(|_| unknown())?;
                check(&setting, study.seed, block)?
            }
            _ => return Err(unknown()),
        };
        progress.done.fetch_add(10, Ordering::Relaxed);
        Ok(values)
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let (mut exact, mut estimated) = (Numbers::new(), Numbers::new());
        let mut series = Vec::new();
        for (colour, alpha) in setting.alphas.iter().enumerate() {
            let law = format!("law|{alpha}");
            exact.push(Number::exact(format!("gamma/{alpha}"), found.number(&law, "gamma")?));
            let rounds = found.list(&law, "rounds")?;
            let levels = found.list(&law, "level")?;
            let repeated: Vec<&[f64]> = (0..setting.repeats)
                .map(|k| found.list(&format!("estimate|{alpha}|{k}"), "rounds"))
                .collect::<Result<_, _>>()?;
            let mut means = Vec::new();
            for (at, steps) in setting.steps.iter().enumerate() {
                exact.push(Number::exact(format!("rounds/{alpha}/{steps}"), rounds[at]));
                if at == 0 || at + 1 == setting.steps.len() {
                    exact.push(Number::exact(format!("level/{alpha}/{steps}"), levels[at]));
                }
                let all: Vec<f64> = repeated.iter().map(|list| list[at]).collect();
                let mean = Number::mean(format!("rounds/{alpha}/{steps}"), &all);
                means.push(mean.value);
                estimated.push(mean);
            }
            push_best(&mut exact, &setting, *alpha, &[rounds]);
            push_best(&mut estimated, &setting, *alpha, &repeated);
            let points = |values: &[f64]| {
                setting
                    .steps
                    .iter()
                    .zip(values)
                    .map(|(k, y)| Point { x: *k as f64, y: *y, error: 0.0 })
                    .collect()
            };
            series.push(Series {
                name: format!("alpha = {alpha}"),
                mark: Mark::Line,
                colour,
                points: points(rounds),
            });
            series.push(Series {
                name: format!("alpha = {alpha}, {} runs", setting.runs),
                mark: Mark::Points,
                colour,
                points: points(&means),
            });
        }
        for what in ["mean 0", "mean 1", "square"] {
            let cells = (0..setting.blocks())
                .map(|block| found.list(&format!("check|{block}"), what))
                .collect::<Result<Vec<_>, _>>()?;
            exact.push(Number::mean(format!("check/{what}"), &cells.concat()));
        }
        let first = setting.alphas.first().copied().unwrap_or(0.0);
        let rounds = |steps: u64| {
            exact.get(&format!("rounds/{first}/{steps}")).map_or(f64::NAN, |n| n.value)
        };
        let [one, hundred, many] = [1, 100, 3000].map(rounds);
        Ok(Findings {
            readings: vec![
                Reading::ours(exact),
                Reading::other(
                    "estimated law",
                    format!(
                        "the distance is that of a Gaussian fitted to {} runs, as in the \
                        paper, in place of that of the law itself",
                        setting.runs
                    ),
                    estimated,
                ),
            ],
            figures: vec![Figure {
                title: "Figure 1(a): rounds until W2 is 1e-3, against local steps".into(),
                caption: format!(
                    "Lines: the law itself, computed. Points: the law fitted to {} runs, the mean \
                     of {} repetitions.",
                    setting.runs, setting.repeats
                ),
                x: Axis::logarithmic("local steps K"),
                y: Axis::logarithmic("rounds"),
                series,
            }],
            notes: vec![
                "All clients have the same covariance and the weights n_c/n, so every local \
                 potential f^c = l^c / p_c has the same Hessian, and the mean of the clients moves \
                 exactly as one chain of Langevin \
                 Monte Carlo with step eta: after r rounds of K local steps it has the law of that \
                 chain after rK steps, whatever K, the correlation and the heterogeneity are. \
                 Local steps bring no bias here. \
                 Rounds fall as 1/K until one round is enough, and never rise again."
                    .into(),
                format!(
                    "For alpha = {first} the law needs {one} rounds at K = 1, {hundred} at K = 100 \
                     and {many} at K = 3000, and one round is enough from K = {one} on. A factor \
                     of 30 is what K = 3000 saves against \
                     K = 100; against K = 1 it saves {:.0}.",
                    one / many
                ),
                "The paper does not say how many rows a client has, nor where chains start. With \
                 1000 rows its values of gamma come out (if they are squared norms); chains start \
                 at 0. The distance of the start from \
                 the posterior's mean is all that alpha changes."
                    .into(),
            ],
        })
    }
}

/// The number of local steps that needs the fewest rounds (the smallest of them), and what it
/// saves; one list of rounds for each repetition.
fn push_best(numbers: &mut Numbers, setting: &Setting, alpha: f64, repeated: &[&[f64]]) {
    let best = |list: &&[f64]| {
        let fewest = list.iter().copied().fold(f64::INFINITY, f64::min);
        let at = list.iter().position(|rounds| *rounds == fewest).unwrap_or(0);
        (setting.steps[at] as f64, list[0] / fewest)
    };
    let (steps, savings): (Vec<f64>, Vec<f64>) = repeated.iter().map(best).unzip();
    let number = |name: String, list: &[f64]| {
        if let [only] = list { Number::exact(name, *only) } else { Number::mean(name, list) }
    };
    numbers.push(number(format!("best/{alpha}"), &steps));
    numbers.push(number(format!("savings/{alpha}"), &savings));
}

/// Chains of the sampler itself, in units of the law that was computed for them.
fn check(setting: &Setting, seed: u64, block: u32) -> Result<Values, Trouble> {
    let check = &setting.check;
    let toy = setting.toy(check.alpha, seed)?;
    let recipe = toy.recipe(check.eta, check.steps, 0.0);
    let round = Round::new(&recipe, &toy.target)?;
    let law = (0..check.rounds).fold(Law::at([0.0; 2]), |law, _| round.apply(&law));
    let recipe = Toy::sampler(recipe);
    let mut values = Values::new();
    for index in block * BLOCK..((block + 1) * BLOCK).min(check.chains) {
        let mut last = [0.0; 2];
        let chain = Chain { recipe: &recipe, target: &toy.target, start: &[0.0; 2], seed, index };
        chain.walk(check.rounds * check.steps, &Progress::default(), |_, x, _| {
            last.copy_from_slice(x)
        })?;
        let [a, b] = law.standardise(&last)?;
        for (what, value) in [("mean 0", a), ("mean 1", b), ("square", 0.5 * (a * a + b * b))] {
            values.entry(what.into()).or_default().push(value);
        }
    }
    Ok(values)
}

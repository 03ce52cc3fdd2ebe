//! FA-LD, Figure 2: the bias that stays when only some of the clients are averaged.

use std::sync::atomic::Ordering;

use consilience_core::sampler::{Average, Local, NoiseScale};
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use super::fa_ld::{Law, Round, Toy};
use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FA-LD, Figure 2.
pub struct FaldPartial;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    clients: usize,
    /// Rows of each client, which the paper does not state: what fits its `gamma`.
    rows: usize,
    /// How heterogeneous the clients are, which the paper does not state here,
    alpha: f64,
    /// and under another reading.
    other_alpha: f64,
    steps: u64,
    etas: Vec<f64>,
    /// How many clients are averaged.
    devices: Vec<usize>,
    /// How fast a chain is: the rounds until its distance is this.
    accuracy: f64,
    /// Iterations that the figures show.
    iterations: u64,
    check: Check,
}

/// The sampler itself beside the computed law, at a step that is quick.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Check {
    eta: f64,
    devices: usize,
    burn_in: u64,
    rounds: u64,
    runs: u32,
}

/// The readings: what the clients' noise is scaled for, and how unlike they are.
const READINGS: [&str; 3] = ["published", "participants", "heterogeneous"];

impl Setting {
    /// Who is averaged, by the names that numbers have: `all`, `I-10`, `II-10`.
    fn averages(&self) -> Vec<(String, Average)> {
        let one = |s: &usize| {
            [
                (format!("I-{s}"), Average::WithReplacement(*s)),
                (format!("II-{s}"), Average::WithoutReplacement(*s)),
            ]
        };
        std::iter::once(("all".to_owned(), Average::All))
            .chain(self.devices.iter().flat_map(one))
            .collect()
    }

    fn toy(&self, reading: &str, seed: u64) -> Result<Toy, Trouble> {
        let alpha = if reading == "heterogeneous" { self.other_alpha } else { self.alpha };
        Toy::new(self.clients, self.rows, alpha, seed)
    }

    fn recipe(&self, toy: &Toy, reading: &str, average: Average, eta: f64) -> Local {
        let noise = if reading == "participants" {
            NoiseScale::Participants
        } else {
            NoiseScale::Everybody
        };
        Local { average, noise, ..toy.recipe(eta, self.steps, 0.0) }
    }

    /// The rounds that the figures show: four in every doubling.
    fn noted(&self) -> Vec<u64> {
        let last = (self.iterations / self.steps).max(1);
        let mut all: Vec<u64> =
            (0..).map(|k| 2f64.powf(f64::from(k) / 4.0) as u64).take_while(|r| *r < last).collect();
        all.push(last);
        all.dedup();
        all
    }

    /// The checked samplers: both schemes, with either noise.
    fn checked(&self) -> Vec<(String, Average, &'static str)> {
        let s = self.check.devices;
        let schemes = [("I", Average::WithReplacement(s)), ("II", Average::WithoutReplacement(s))];
        let with = |(name, average): (&str, Average)| {
            ["published", "participants"]
                .map(|reading| (format!("{name}/{reading}"), average, reading))
        };
        schemes.into_iter().flat_map(with).collect()
    }
}

impl Experiment for FaldPartial {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let averages = setting.averages();
        let laws = READINGS.iter().flat_map(|reading| {
            averages.iter().map(move |(name, _)| Cell::new(format!("law|{reading}|{name}"), 1000))
        });
        let cost = setting.steps * (setting.check.burn_in + setting.check.rounds);
        let checked = setting.checked();
        let runs = |(name, _, _): &(String, Average, &str)| {
            (0..setting.check.runs)
                .map(|run| Cell::new(format!("check|{name}|{run}"), cost))
                .collect::<Vec<_>>()
        };
        Ok(laws.chain(checked.iter().flat_map(runs)).collect())
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let unknown = || Trouble::Other(format!("no such cell: {cell}"));
        let parts: Vec<&str> = cell.split('|').collect();
        match parts[..] {
            ["law", reading, name] => {
                let toy = setting.toy(reading, study.seed)?;
                let average = setting
                    .averages()
                    .into_iter()
                    .find(|(known, _)| known == name)
                    .ok_or_else(unknown)?
                    .1;
                let noted = setting.noted();
                let (mut values, mut levels, mut needed) = (Values::new(), Vec::new(), Vec::new());
                for eta in &setting.etas {
                    let round =
                        Round::new(&setting.recipe(&toy, reading, average, *eta), &toy.target)?;
                    let (mut law, mut path, mut first) = (Law::at([0.0; 2]), Vec::new(), None);
                    let last = noted.last().copied().unwrap_or(1);
                    for done in 1..=last {
                        law = round.apply(&law);
                        let is_noted = noted.contains(&done);
                        if first.is_none() || is_noted {
                            let distance = toy.w2(&law)?;
                            first = first.or((distance <= setting.accuracy).then_some(done));
                            path.extend(is_noted.then_some(distance));
                        }
                    }
                    levels.push(toy.w2(&round.stationary(&law))?);
                    needed.push(first.unwrap_or(last) as f64);
                    values.insert(format!("path {eta:e}"), path);
                }
                values.insert("level".into(), levels);
                values.insert("rounds".into(), needed);
                progress.done.fetch_add(1000, Ordering::Relaxed);
                Ok(values)
            }
            ["check", name, run] => {
                let (_, average, reading) = setting
                    .checked()
                    .into_iter()
                    .find(|(known, _, _)| known == name)
                    .ok_or_else(unknown)?;
                check(
                    &setting,
                    average,
                    reading,
                    study.seed,
                    run.parse().map_err(|_| unknown())?,
                    progress,
                )
            }
            _ => Err(unknown()),
        }
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let averages = setting.averages();
        let numbers = |reading: &str| -> Result<Numbers, Trouble> {
            let mut numbers = Numbers::new();
            for (name, _) in &averages {
                let cell = format!("law|{reading}|{name}");
                let (levels, needed) = (found.list(&cell, "level")?, found.list(&cell, "rounds")?);
                for (at, eta) in setting.etas.iter().enumerate() {
                    numbers.push(Number::exact(format!("bias/{name}/{eta:e}"), levels[at]));
                    if name == "all" {
                        numbers.push(Number::exact(format!("rounds/{name}/{eta:e}"), needed[at]));
                    }
                }
            }
            Ok(numbers)
        };
        let [mut ours, participants, heterogeneous] =
            [numbers(READINGS[0])?, numbers(READINGS[1])?, numbers(READINGS[2])?];
        for (name, _, _) in setting.checked() {
            for what in ["mean 0", "mean 1", "square"] {
                let runs = (0..setting.check.runs)
                    .map(|run| found.number(&format!("check|{name}|{run}"), what));
                ours.push(Number::mean(
                    format!("check/{name}/{what}"),
                    &runs.collect::<Result<Vec<_>, _>>()?,
                ));
            }
        }
        let noted = setting.noted();
        let line = |reading: &str,
                    who: &str,
                    eta: f64,
                    name: String,
                    colour: usize,
                    mark: Mark|
         -> Result<Series, Trouble> {
            let path = found.list(&format!("law|{reading}|{who}"), &format!("path {eta:e}"))?;
            let points = noted
                .iter()
                .zip(path)
                .map(|(r, y)| Point { x: *r as f64, y: *y, error: 0.0 })
                .collect();
            Ok(Series { name, mark, colour, points })
        };
        let figure = |title: String, caption: &str, series: Vec<Series>| Figure {
            title,
            caption: caption.into(),
            x: Axis::logarithmic("rounds"),
            y: Axis::logarithmic("W2"),
            series,
        };
        let by_eta = |reading: &str, who: &str| -> Result<Vec<Series>, Trouble> {
            setting
                .etas
                .iter()
                .enumerate()
                .map(|(k, eta)| line(reading, who, *eta, format!("eta = {eta:e}"), k, Mark::Line))
                .collect()
        };
        // a middling step
        let middling = setting.etas.get(setting.etas.len() / 2).copied().unwrap_or(0.0);
        let by_devices = |scheme: &str| -> Result<Vec<Series>, Trouble> {
            let mut series =
                vec![line(READINGS[0], "all", middling, "all clients".into(), 0, Mark::Line)?];
            for (k, s) in setting.devices.iter().enumerate() {
                let who = format!("{scheme}-{s}");
                series.push(line(
                    READINGS[0],
                    &who,
                    middling,
                    format!("S = {s}"),
                    k + 1,
                    Mark::Line,
                )?);
                series.push(line(
                    READINGS[1],
                    &who,
                    middling,
                    format!("S = {s}, mended noise"),
                    k + 1,
                    Mark::Dashes,
                )?);
            }
            Ok(series)
        };
        let some = setting.devices.first().copied().unwrap_or(1);
        let steps = setting.steps;
        let figures = vec![
            figure(
                format!("Figure 2(a): all clients, K = {steps}"),
                "The law itself, computed.",
                by_eta(READINGS[0], "all")?,
            ),
            figure(
                format!("Figure 2(b): scheme I, S = {some}"),
                "The law itself, computed: smaller steps do not help.",
                by_eta(READINGS[0], &format!("I-{some}"))?,
            ),
            figure(
                format!("Figure 2(c): scheme II, S = {some}"),
                "The law itself, computed: smaller steps do not help.",
                by_eta(READINGS[0], &format!("II-{some}"))?,
            ),
            figure(
                format!("Figure 2(d): scheme I, eta = {middling:e}"),
                "Dashed: noise scaled for those who are averaged.",
                by_devices("I")?,
            ),
            figure(
                format!("Figure 2(e): scheme II, eta = {middling:e}"),
                "Dashed: noise scaled for those who are averaged.",
                by_devices("II")?,
            ),
        ];
        let n = setting.clients;
        let smallest = setting.etas.iter().copied().fold(f64::INFINITY, f64::min);
        let of = |numbers: &Numbers| {
            numbers.get(&format!("bias/II-{some}/{smallest:e}")).map_or(f64::NAN, |n| n.value)
        };
        let notes = vec![
            format!(
                "The bias that stays is the noise: every client's own noise has variance 2 eta N \
                 so that the mean of all N carries 2 eta, and the mean of S of them carries N/S \
                 times that. Scaled for those who are averaged \
                 (second reading) the bias at S = {some} of {n}, eta = {smallest:e}, scheme II, \
                 falls from {:.1e} to {:.1e}, and vanishes with the step.",
                of(&ours),
                of(&participants)
            ),
            format!(
                "The paper does not say how heterogeneous the clients are here: alpha = {} as in \
                 its Figure 1(c), and alpha = {} under the third reading, where the clients' means \
                 differ by much more than the posterior's spread, so that \
                 drawing them adds a variance of order eta K alpha: larger than that of the noise, \
                 and falling with the step.",
                setting.alpha, setting.other_alpha
            ),
        ];
        Ok(Findings {
            readings: vec![
                Reading::ours(ours),
                Reading::other(
                    "noise for participants",
                    "each client's own noise is scaled for the S clients that are averaged, not \
                     for all N",
                    participants,
                ),
                Reading::other(
                    "heterogeneous",
                    format!("the clients' means differ: alpha = {}", setting.other_alpha),
                    heterogeneous,
                ),
            ],
            figures,
            notes,
        })
    }
}

/// A long chain of the sampler itself, in units of the stationary law that was computed for it.
fn check(
    setting: &Setting,
    average: Average,
    reading: &str,
    seed: u64,
    index: u32,
    progress: &Progress,
) -> Result<Values, Trouble> {
    let check = &setting.check;
    let toy = setting.toy(reading, seed)?;
    let recipe = setting.recipe(&toy, reading, average, check.eta);
    let law = Round::new(&recipe, &toy.target)?.stationary(&Law::at([0.0; 2]));
    let recipe = Toy::sampler(recipe);
    let chain = Chain { recipe: &recipe, target: &toy.target, start: &[0.0; 2], seed, index };
    let (mut sums, mut trouble) = ([0.0; 3], None);
    chain.walk(setting.steps * (check.burn_in + check.rounds), progress, |iteration, x, _| {
        if iteration <= setting.steps * check.burn_in {
            return;
        }
        match law.standardise(x) {
            Ok([a, b]) => sums
                .iter_mut()
                .zip([a, b, 0.5 * (a * a + b * b)])
                .for_each(|(sum, value)| *sum += value),
            Err(error) => trouble = Some(error),
        }
    })?;
    match trouble {
        Some(error) => Err(error),
        None => Ok(["mean 0", "mean 1", "square"]
            .iter()
            .zip(sums)
            .map(|(what, sum)| ((*what).to_owned(), vec![sum / check.rounds as f64]))
            .collect()),
    }
}

//! FA-LD, Figures 3 and 4: softmax regression on images, scored against rounds of communication for
//! different numbers of local steps.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use consilience_core::linalg::dot;
use consilience_core::measure::{Predictive, mean};
use consilience_core::model::{Design, Model, Prior, Softmax};
use consilience_core::rng::Seed;
use consilience_core::sampler::{Batch, Local, Recipe};
use consilience_core::simd::{exp, vectorised};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::data::Dataset;
use consilience_engine::data::catalogue;
use consilience_engine::data::partition::{iid, subset};
use consilience_engine::run::Progress;
use consilience_report::figure::{Axis, Figure, Mark, Point, Series};
use serde::Deserialize;

use crate::chain::Chain;
use crate::experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
use crate::number::{Number, Numbers};
use crate::study::Study;

/// FA-LD, Figures 3 and 4.
pub struct FaldMnist {
    /// Data sets as they were read last: every cell needs one, and reading takes longer than a
    /// small cell.
    read: Mutex<BTreeMap<String, Arc<Images>>>,
}

/// The experiment.
pub static FALD_MNIST: FaldMnist = FaldMnist { read: Mutex::new(BTreeMap::new()) };

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    /// The paper's data sets, and what is read for each.
    sets: BTreeMap<String, String>,
    clients: usize,
    temperature: f64,
    batch: usize,
    /// The numbers of local steps.
    steps: Vec<u64>,
    /// For each data set and each number of local steps the steps `eta`, times the number of rows,
    /// among which the best is taken.
    rates: BTreeMap<String, Vec<Vec<f64>>>,
    rounds: u64,
    /// A draw is taken every so many rounds.
    every: u64,
    /// Figure 4 leaves out the draws of so many rounds.
    warm_up: u64,
    runs: u32,
    /// How many rows are learnt from and tested on, at most.
    rows: usize,
    test_rows: usize,
    /// Squares of so many pixels are averaged into one.
    pool: usize,
}

/// The scores, and whether more is better.
const SCORES: [(&str, bool); 3] = [("accuracy", true), ("brier", false), ("ece", false)];

/// The figures: without and with warm-up.
const FIGURES: [(&str, &str); 2] = [("cold", "Figure 3"), ("warm", "Figure 4")];

/// Bins of the calibration error.
const BINS: usize = 15;

/// Which K is best depends on the budget: the paper's warm-up alone is of so many rounds.
const LEAST_ROUNDS: u64 = 500;

impl Setting {
    /// Why the best number of local steps cannot be told at this size, if so.
    fn untold(&self) -> Option<String> {
        if self.rounds <= LEAST_ROUNDS {
            return Some(format!(
                "not tested at this size: {} rounds, where the paper has more than {LEAST_ROUNDS}",
                self.rounds
            ));
        }
        let untuned = self.rates.values().flatten().any(|rates| rates.len() < 2);
        untuned.then(|| {
            "not tested at this size: the step is not tuned for each K, as the paper's is".into()
        })
    }

    /// The numbers of local steps, each with its rates.
    fn rates(&self, set: &str) -> impl Iterator<Item = (u64, &[f64])> {
        let rates = self.rates.get(set).map_or(&[][..], Vec::as_slice);
        self.steps.iter().copied().zip(rates.iter().map(Vec::as_slice))
    }
}

/// A data set, split and pooled.
struct Images {
    train: Table,
    test: Table,
    classes: usize,
}

/// Features with a column of ones, row by row, and labels.
struct Table {
    cells: Vec<f64>,
    columns: usize,
    labels: Vec<u32>,
}

impl Images {
    fn read(setting: &Setting, name: &str, study: &Study) -> Result<Self, Trouble> {
        let folder = catalogue::folder(study.data.as_deref());
        let seed = Seed::new(study.seed);
        let train = catalogue::load(name, folder.as_deref())?;
        let classes = train.classes.as_ref().map_or(0, Vec::len);
        let (keep, test, tested) = if catalogue::find(name)?.test.is_some() {
            let test = catalogue::load_test(name, folder.as_deref())?;
            let tested = subset(test.rows(), setting.test_rows, seed);
            (subset(train.rows(), setting.rows, seed), Some(test), tested)
        } else {
            let mut parts =
                // a fifth is for tests
                iid::assign(train.rows(), 5, seed).map_err(|e| Trouble::Other(e.to_string()))?.rows;
            let tested = parts.pop().unwrap_or_default();
            (parts.concat(), None, tested)
        };
        let divisors = train.greatest();
        let of = |data: &Dataset, rows: &[u32]| Table::of(data, rows, setting.pool, &divisors);
        Ok(Images {
            test: of(test.as_ref().unwrap_or(&train), &tested)?,
            train: of(&train, &keep)?,
            classes,
        })
    }

    /// The clients' share of the rows, dealt at random.
    fn target(&self, setting: &Setting, seed: Seed) -> Result<Target, Trouble> {
        let dealt = iid::assign(self.train.labels.len(), setting.clients, seed)
            .map_err(|e| Trouble::Other(e.to_string()))?;
        let columns = self.train.columns;
        let client = |rows: &Vec<u32>| -> Result<Arc<dyn Model>, Trouble> {
            let row = |row: &u32| {
                self.train.cells[*row as usize * columns..(*row as usize + 1) * columns]
                    .iter()
                    .copied()
            };
            let design = Design::dense(rows.iter().flat_map(row).collect(), columns)?;
            let labels = rows.iter().map(|row| self.train.labels[*row as usize]).collect();
            Ok(Arc::new(Softmax::new(design, labels, self.classes)?))
        };
        let clients = dealt.rows.iter().map(client).collect::<Result<_, _>>()?;
        Ok(Target::new(clients, Prior::Flat, Placement::Server, setting.temperature)?)
    }
}

impl Table {
    fn of(data: &Dataset, rows: &[u32], pool: usize, divisors: &[f64]) -> Result<Self, Trouble> {
        let columns = data.columns.len();
        let side = columns.isqrt();
        if pool == 0 || (pool > 1 && (side * side != columns || !side.is_multiple_of(pool))) {
            return Err(Trouble::Other(format!(
                "{columns} columns are not a square image that can be pooled by {pool}"
            )));
        }
        let pooled = if pool == 1 { columns } else { (side / pool) * (side / pool) };
        let mut cells = Vec::with_capacity(rows.len() * (pooled + 1));
        let mut line = vec![0.0; pooled];
        for row in rows {
            line.fill(0.0);
            for (column, value) in data.entries(*row as usize) {
                let column = column as usize;
                let at = if pool == 1 {
                    column
                } else {
                    column / side / pool * (side / pool) + column % side / pool
                };
                line[at] += value / divisors[column] / (pool * pool) as f64;
            }
            cells.push(1.0);
            cells.extend_from_slice(&line);
        }
        let labels = data.class_labels().unwrap_or_default();
        let labels = rows.iter().filter_map(|row| labels.get(*row as usize).copied()).collect();
        Ok(Table { cells, columns: pooled + 1, labels })
    }
}

impl FaldMnist {
    fn images(&self, setting: &Setting, name: &str, study: &Study) -> Result<Arc<Images>, Trouble> {
        let key = format!(
            "{name} {} {} {} {} {:?}",
            setting.rows, setting.test_rows, setting.pool, study.seed, study.data
        );
        let mut read = self
            .read
            .lock()
            .map_err(|_| Trouble::Other("a cell that read data has failed".into()))?;
        if let Some(images) = read.get(&key) {
            return Ok(Arc::clone(images));
        }
        let images = Arc::new(Images::read(setting, name, study)?);
        read.insert(key, Arc::clone(&images));
        Ok(images)
    }
}

/// The running average of what draws predict, and its scores.
struct Average<'a> {
    images: &'a Images,
    labels: Vec<usize>,
    sums: Vec<f64>,
    draws: f64,
    scores: [Vec<f64>; 3],
}

impl<'a> Average<'a> {
    fn new(images: &'a Images) -> Self {
        let labels: Vec<usize> = images.test.labels.iter().map(|label| *label as usize).collect();
        Average {
            images,
            sums: vec![0.0; labels.len() * images.classes],
            labels,
            draws: 0.0,
            scores: Default::default(),
        }
    }

    fn add(&mut self, probabilities: &[f64]) -> Result<(), Trouble> {
        self.sums.iter_mut().zip(probabilities).for_each(|(sum, p)| *sum += p);
        self.draws += 1.0;
        let average: Vec<f64> = self.sums.iter().map(|sum| sum / self.draws).collect();
        let score = || -> Result<[f64; 3], consilience_core::measure::PredictiveError> {
            let predictive = Predictive::new(&average, self.images.classes)?;
            Ok([
                predictive.accuracy(&self.labels)?,
                predictive.brier(&self.labels)?,
                predictive.calibration_error(&self.labels, BINS)?,
            ])
        };
        let scores = score().map_err(|e| Trouble::Other(e.to_string()))?;
        self.scores.iter_mut().zip(scores).for_each(|(list, score)| list.push(score));
        Ok(())
    }
}

/// The class probabilities of all test rows.
fn predict(images: &Images, x: &[f64]) -> Vec<f64> {
    let d = images.test.columns;
    let mut all = Vec::with_capacity(images.test.labels.len() * images.classes);
    vectorised(|| {
        for row in images.test.cells.chunks_exact(d) {
            let logits: Vec<f64> = x.chunks_exact(d).map(|class| dot(row, class)).collect();
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = logits.iter().map(|t| exp(t - most)).collect();
            let sum: f64 = weights.iter().sum();
            all.extend(weights.iter().map(|w| w / sum));
        }
    });
    all
}

impl Experiment for FaldMnist {
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting: Setting = study.setting()?;
        let folder = catalogue::folder(study.data.as_deref());
        for name in setting.sets.values() {
            let entry = catalogue::find(name)?;
            if folder.is_none() && !entry.built_in {
                catalogue::load(name, None)?; // says which folder is missing
            }
        }
        let mut cells = Vec::new();
        for set in setting.sets.keys() {
            if setting.rates(set).filter(|(_, rates)| !rates.is_empty()).count()
                != setting.steps.len()
            {
                let problem = format!(
                    "{set} needs rates for each of {} numbers of local steps",
                    setting.steps.len()
                );
                return Err(Trouble::Setting {
                    paper: study.paper.clone(),
                    id: study.id.clone(),
                    problem,
                });
            }
            for (steps, rate) in setting
                .rates(set)
                .flat_map(|(steps, rates)| rates.iter().map(move |rate| (steps, rate)))
            {
                cells.extend((0..setting.runs).map(|run| {
                    Cell::new(format!("{set}|{steps}|{rate}|{run}"), steps * setting.rounds)
                }));
            }
        }
        Ok(cells)
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting: Setting = study.setting()?;
        let unknown = || Trouble::Other(format!("no such cell: {cell}"));
        let parts: Vec<&str> = cell.split('|').collect();
        let [set, steps, rate, run] = parts[..] else { return Err(unknown()) };
        let images = self.images(&setting, setting.sets.get(set).ok_or_else(unknown)?, study)?;
        let (steps, run): (u64, u32) =
            (steps.parse().map_err(|_| unknown())?, run.parse().map_err(|_| unknown())?);
        let rate: f64 = rate.parse().map_err(|_| unknown())?;
        // every run deals the rows anew
        let target = images.target(&setting, Seed::new(study.seed).chain(run))?;
        let eta = Schedule::Constant(rate / images.train.labels.len() as f64);
        let rows: Vec<f64> = target.clients.iter().map(|client| client.rows() as f64).collect();
        let all: f64 = rows.iter().sum();
        let weights = rows.iter().map(|rows| rows / all).collect();
        let recipe =
            Recipe::Local(Local::fa_ld(eta, weights, steps, 0.0, Batch::Rows(setting.batch)));
        let start = vec![0.0; target.dim()];
        let chain =
            Chain { recipe: &recipe, target: &target, start: &start, seed: study.seed, index: run };
        let (mut cold, mut warm, mut trouble) =
            (Average::new(&images), Average::new(&images), None);
        chain.walk(steps * setting.rounds, progress, |iteration, x, _| {
            let round = iteration / steps;
            if !round.is_multiple_of(setting.every) || trouble.is_some() {
                return;
            }
            let probabilities = predict(&images, x);
            trouble = cold.add(&probabilities).err();
            if round > setting.warm_up && trouble.is_none() {
                trouble = warm.add(&probabilities).err();
            }
        })?;
        if let Some(error) = trouble {
            return Err(error);
        }
        let mut values = Values::new();
        for ((figure, _), average) in FIGURES.iter().zip([cold, warm]) {
            for ((score, _), list) in SCORES.iter().zip(average.scores) {
                values.insert(format!("{figure} {score}"), list);
            }
        }
        Ok(values)
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        let setting: Setting = study.setting()?;
        let (mut numbers, mut figures, mut edges) = (Numbers::new(), Vec::new(), Vec::new());
        let untold = setting.untold();
        if let Some(why) = &untold {
            numbers.leave_out("best/", why);
        }
        for set in setting.sets.keys() {
            for (figure, place) in FIGURES {
                let tuned = tune(&setting, found, set, figure)?;
                for ((steps, rates), rate) in setting.rates(set).zip(&tuned) {
                    if rates.len() > 1 {
                        numbers.push(Number::exact(format!("rate/{set}/{figure}/{steps}"), *rate));
                        if rates.iter().all(|other| other >= rate)
                            || rates.iter().all(|other| other <= rate)
                        {
                            edges.push(format!("K = {steps} ({set}, {figure})"));
                        }
                    }
                }
                for (score, more) in SCORES {
                    let mut series = Vec::new();
                    let mut by_run: Vec<Vec<f64>> = vec![Vec::new(); setting.runs as usize];
                    for (colour, (steps, rate)) in setting.steps.iter().zip(&tuned).enumerate() {
                        let lists = lists(&setting, found, set, figure, score, *steps, *rate)?;
                        let last: Vec<f64> =
                            lists.iter().filter_map(|list| list.last().copied()).collect();
                        by_run.iter_mut().zip(&last).for_each(|(run, value)| run.push(*value));
                        numbers
                            .push(Number::mean(format!("{score}/{set}/{figure}/{steps}"), &last));
                        let first =
                            if figure == "warm" { setting.warm_up / setting.every + 1 } else { 1 };
                        let points = (0..lists[0].len()).map(|k| {
                            let at = Number::mean(
                                "",
                                &lists.iter().map(|list| list[k]).collect::<Vec<_>>(),
                            );
                            let error = if at.error.is_finite() { at.error } else { 0.0 };
                            Point {
                                x: ((first + k as u64) * setting.every) as f64,
                                y: at.value,
                                error,
                            }
                        });
                        series.push(Series {
                            name: format!("K = {steps}"),
                            mark: Mark::Line,
                            colour,
                            points: points.collect(),
                        });
                    }
                    let best = |run: &Vec<f64>| {
                        let better = |a: f64, b: f64| if more { a > b } else { a < b };
                        let at = (1..run.len())
                            .fold(0, |at, k| if better(run[k], run[at]) { k } else { at });
                        setting.steps[at] as f64
                    };
                    if untold.is_none() {
                        let name = format!("best/{score}/{set}/{figure}");
                        numbers
                            .push(Number::mean(name, &by_run.iter().map(best).collect::<Vec<_>>()));
                    }
                    figures.push(Figure {
                        title: format!("{place}: {set}, {score}"),
                        caption: format!(
                            "The average over all draws so far; the mean of {} runs.",
                            setting.runs
                        ),
                        x: Axis::straight("rounds"),
                        y: Axis::straight(score),
                        series,
                    });
                }
            }
        }
        let mut notes = vec![
            format!(
                "{} rounds, {} rows to learn from, batches of {}, images pooled by {}. A step is \
                 rate/n with n the number of rows; for each K the rate is the one with the best \
                 final Brier score. The prior is flat: the paper names none.",
                setting.rounds, setting.rows, setting.batch, setting.pool
            ),
            "Which K is best depends on the budget. The data is dealt at random, so local steps \
             hardly drift apart, and while chains are still on their way more local steps are \
             simply more steps: with few rounds the largest K is best in \
             every score that is not yet at its end."
                .into(),
        ];
        if !edges.is_empty() {
            notes.push(format!(
                "The best rate is the least or the largest that was tried for {}: a better one may \
                 lie beyond.",
                edges.join(", ")
            ));
        }
        let stands_in: Vec<String> = setting
            .sets
            .iter()
            .filter(|(set, name)| set != name)
            .map(|(set, name)| format!("{name} stands in for {set}"))
            .collect();
        if !stands_in.is_empty() {
            notes.push(format!(
                "{}: this size tests the program, not the paper.",
                stands_in.join(", ")
            ));
        }
        Ok(Findings { readings: vec![Reading::ours(numbers)], figures, notes })
    }
}

/// The scores of all runs of one sampler, draw by draw.
fn lists<'a>(
    setting: &Setting,
    found: &'a Found,
    set: &str,
    figure: &str,
    score: &str,
    steps: u64,
    rate: f64,
) -> Result<Vec<&'a [f64]>, Trouble> {
    (0..setting.runs)
        .map(|run| found.list(&format!("{set}|{steps}|{rate}|{run}"), &format!("{figure} {score}")))
        .collect()
}

/// For each number of local steps the rate with the best final Brier score, which rewards both
/// accuracy and calibration.
fn tune(setting: &Setting, found: &Found, set: &str, figure: &str) -> Result<Vec<f64>, Trouble> {
    let one = |(steps, rates): (u64, &[f64])| -> Result<f64, Trouble> {
        let mut best = (f64::INFINITY, f64::NAN);
        for rate in rates {
            let lists = lists(setting, found, set, figure, "brier", steps, *rate)?;
            let last: Vec<f64> = lists.iter().filter_map(|list| list.last().copied()).collect();
            if mean(&last) < best.0 {
                best = (mean(&last), *rate);
            }
        }
        Ok(best.1)
    };
    setting.rates(set).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use consilience_engine::data::Features;

    #[test]
    fn the_best_number_of_local_steps_needs_tuned_steps_and_the_papers_rounds() {
        let entry = crate::find("fald-mnist").unwrap();
        let setting =
            |size| entry.config().unwrap().study("fa-ld", size).setting::<Setting>().unwrap();
        use crate::Size::{Full, Hour, Quick};
        assert!(setting(Quick).untold().unwrap().contains("rounds"));
        assert_eq!((setting(Hour).untold(), setting(Full).untold()), (None, None));
        let mut one_rate = setting(Full);
        one_rate.rates.get_mut("mnist").unwrap()[4].truncate(1);
        assert!(one_rate.untold().unwrap().contains("not tuned for each K"));
    }

    #[test]
    fn pooling_averages_squares() {
        let cells: Vec<u8> = (0..16).collect();
        let data = Dataset {
            features: Features::Bytes { cells, scale: 0.5 },
            labels: vec![1.0],
            classes: Some(vec!["a".into(), "b".into()]),
            columns: (0..16).map(|k| k.to_string()).collect(),
            groups: None,
        };
        let table = Table::of(&data, &[0], 2, &[1.0; 16]).unwrap();
        // Squares of {0, 1, 4, 5}, {2, 3, 6, 7}, ... have means 2.5, 4.5, 10.5, 12.5.
        assert_eq!(
            (table.cells, table.columns, table.labels),
            (vec![1.0, 1.25, 2.25, 5.25, 6.25], 5, vec![1])
        );
        assert!(Table::of(&data, &[0], 3, &[1.0; 16]).is_err());
    }
}

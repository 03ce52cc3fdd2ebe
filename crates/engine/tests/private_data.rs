//! Private runs on real rows, by a formula whose coding is stated, against posteriors of pooled
//! rows that NumPy sampled.
//!
//! `data/private_reference.csv` has their means and deviations, which
//! `data/make_private_reference.py` writes. `REPETITIONS`, `EPSILON` and `ITERATIONS` ask for other
//! sizes, and each test prints what it found.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::sync::Arc;

use consilience_engine::config::{Config, Source};
use consilience_engine::data::Table;
use consilience_engine::data::formats::DataFile;
use consilience_engine::data::memory::Tables;
use consilience_engine::privacy::of_config;
use consilience_engine::record::Record;
use consilience_engine::session::{Control, Session};

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

/// The rows of one file at so many sites, in their order.
fn dealt(file: &str, sites: usize) -> Tables {
    let table: Table = DataFile::new(folder("../../data").join(file)).table(None).unwrap();
    let rows = table.rows();
    let part = |k: usize| {
        let of: Vec<u32> =
            (k * rows / sites..(k + 1) * rows / sites).map(|row| row as u32).collect();
        (format!("site {k}"), Arc::new(table.select(&of)))
    };
    (0..sites).map(part).collect()
}

struct Study {
    name: &'static str,
    target: &'static str,
    sites: Tables,
    row_norm: f64,
}

const VISITS: &str = "formula = \"mdvis > 0 ~ lncoins + lpi + fmde + disea + idp\"\n\
    prior = { law = \"gaussian\", variance = 4.0 }\n[target.coding]\n\
    lncoins = { centre = 2.5, scale = 2 }\nlpi = { centre = 4.5, scale = 2.5 }\n\
    fmde = { centre = 4, scale = 3.5 }\ndisea = { centre = 11, scale = 7 }\n\
    idp = { levels = [0, 1] }\n";
const VOTERS: &str = "formula = \"vote == 1 ~ selfLR + PID + age\"\n\
    prior = { law = \"gaussian\", variance = 4.0 }\n[target.coding]\n\
    selfLR = { centre = 4, scale = 1.5 }\nPID = { centre = 3, scale = 2 }\n\
    age = { centre = 45, scale = 16 }\n";

fn visits() -> Study {
    let sites = dealt("randhie/randhie.csv.xz", 10);
    Study { name: "visits", target: VISITS, sites, row_norm: 3.0 }
}

fn voters() -> Study {
    let sites = dealt("anes96/anes96.csv", 3);
    Study { name: "voters", target: VOTERS, sites, row_norm: 2.5 }
}

impl Study {
    /// A private run.
    fn config(&self, seed: u64, sampler: &str, budget: &str) -> Config {
        let clients: String =
            (0..self.sites.len()).map(|k| format!("[[client]]\nname = \"site {k}\"\n")).collect();
        let text = format!(
            "seed = {seed}\n[target]\n{}{clients}[sampler]\n{sampler}\n[privacy]\n{budget}\n\
             delta = 1e-6\nrow_norm = {}\n",
            self.target, self.row_norm
        );
        let (file, folder) = ("run.toml".into(), ".".into());
        Config::parse_with(Source { file, folder, text }, &self.sites).unwrap()
    }

    fn run(&self, config: Config) -> Record {
        let planned = Session::new(config).unwrap().plan().unwrap();
        let ended = planned.run(&Default::default(), Control::default()).unwrap();
        let names: Vec<String> = self.reference().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(ended.record.parameters, names);
        ended.record
    }

    /// The posterior of pooled rows: name, mean and deviation of every parameter, as this project
    /// orders them.
    fn reference(&self) -> Vec<(String, f64, f64)> {
        let text = std::fs::read_to_string(folder("tests/data/private_reference.csv")).unwrap();
        let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let own = lines.filter(|fields| fields[0] == self.name);
        let number = |field: &str| field.parse::<f64>().unwrap();
        own.map(|fields| (fields[1].into(), number(fields[2]), number(fields[3]))).collect()
    }
}

fn of_environment(name: &str, usual: f64) -> f64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// The standard normal law, to 1e-7 (Abramowitz and Stegun 7.1.26).
fn normal_cdf(x: f64) -> f64 {
    let z = x.abs() / 2f64.sqrt();
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let tail = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = tail.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    let below = 0.5 * sum * (-z * z).exp();
    if x > 0.0 { 1.0 - below } else { below }
}

/// The draws of one parameter, ascending.
fn sorted(record: &Record, k: usize) -> Vec<f64> {
    let mut all: Vec<f64> = record.draws.rows().map(|draw| draw[k]).collect();
    all.sort_by(f64::total_cmp);
    all
}

fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0)).sqrt())
}

/// A release knows how far its noise may have moved it: over many runs of the same rows, its means
/// lie about those of NumPy as far as its deviations say, and its 90% intervals hold 90% of NumPy's
/// draws.
#[test]
fn releases_of_real_rows_are_as_far_from_the_posterior_as_they_say() {
    let repetitions = of_environment("REPETITIONS", 24.0) as u64;
    for (study, epsilon, widths) in
        [(visits(), of_environment("EPSILON", 3.0), 1.0..2.5), (voters(), 8.0, 1.0..6.0)]
    {
        let reference = study.reference();
        let (mut squares, mut held, mut wide, mut naive) = (0.0, 0.0, Vec::new(), 0.0);
        for seed in 0..repetitions {
            let sampler = "name = \"dp-release\"\n[run]\niterations = 1500";
            let record = study.run(study.config(seed, sampler, &format!("epsilon = {epsilon}")));
            for (k, (_, mean, sd)) in reference.iter().enumerate() {
                let draws = sorted(&record, k);
                let (found, spread) = moments(&draws);
                let (low, high) = (draws[draws.len() / 20], draws[draws.len() * 19 / 20]);
                // what the noise has moved it by, against what it says of that
                squares += (found - mean).powi(2) / (spread * spread - sd * sd).max(1e-12);
                held += normal_cdf((high - mean) / sd) - normal_cdf((low - mean) / sd);
                let reach = 1.645 * sd;
                naive += normal_cdf((found + reach - mean) / sd)
                    - normal_cdf((found - reach - mean) / sd);
                wide.push(spread / sd);
            }
        }
        let all = (repetitions as usize * reference.len()) as f64;
        wide.sort_by(f64::total_cmp);
        let (squares, held, naive) = (squares / all, held / all, naive / all);
        let width = wide[wide.len() / 2];
        println!(
            "{}, epsilon {epsilon}: z has mean square {squares:.2}, intervals hold {held:.3} \
             (naive {naive:.3}), {width:.2} times as wide",
            study.name
        );
        // 24 runs of 4 to 6 parameters that move together
        assert!((0.4..=2.0).contains(&squares), "{}: {squares}", study.name);
        assert!((0.82..=0.97).contains(&held), "{}: {held}", study.name);
        assert!(widths.contains(&width), "{}: {width}", study.name);
    }
}

/// Private chains with a generous budget, and with a secure sum for a smaller one: their means are
/// those of NumPy within what so few effective draws allow.
#[test]
fn private_chains_on_real_rows_agree_with_the_posterior_of_pooled_rows() {
    let study = visits();
    let iterations = of_environment("ITERATIONS", 3000.0) as u64;
    for (more, most) in [("", 60.0), ("\nsecure_sum = true", 15.0)] {
        let sampler = format!(
            "name = \"lmc\"\nstep = 1e-5\n[run]\nchains = 2\niterations = {iterations}\n\
             burn_in = {}",
            iterations / 10
        );
        let config = study.config(1, &sampler, &format!("epsilon = 1000.0{more}"));
        let plan = of_config(&config).unwrap();
        let epsilon = plan.sites[0].exposures[0].epsilon;
        let record = study.run(config);
        let n = record.draws.length();
        let (mut worst, mut spreads) = (0.0f64, Vec::new());
        for (k, (name, mean, sd)) in study.reference().iter().enumerate() {
            let all: Vec<f64> = record.draws.rows().map(|draw| draw[k]).collect();
            let (found, spread) = moments(&all);
            // means of ten batches a chain say how well the mean is known
            let batches: Vec<f64> = all.chunks(n / 10).map(|part| moments(part).0).collect();
            let error = moments(&batches).1 / (batches.len() as f64).sqrt();
            let z = (found - mean) / error;
            println!(
                "{name}: {found:.4} (NumPy {mean:.4}), {:.2} sd off, error {:.2} sd, ratio {:.3}",
                (found - mean) / sd,
                error / sd,
                spread / sd
            );
            worst = worst.max(z.abs());
            spreads.push(spread / sd);
            assert!(error < 0.5 * sd, "{name}: the run says something: {error} of {sd}");
        }
        println!("epsilon {epsilon:.2}{more}: the worst mean is {worst:.2} errors off");
        // batches that are correlated understate the error by some; six parameters. The deviations
        // of so few effective draws are known to a fifth, and the step widens them by a twentieth.
        assert!(worst < 4.9, "{worst}");
        assert!(spreads.iter().all(|ratio| (0.7..1.4).contains(ratio)), "{spreads:?}");
        assert!(std::env::var("ITERATIONS").is_ok() || epsilon < most, "{epsilon}");
    }
}

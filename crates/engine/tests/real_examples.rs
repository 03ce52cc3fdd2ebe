//! The federations of `examples/real` come out as their pages in the book say, and as others found
//! on pooled rows: NUTS by PyMC, lifelines, statsmodels (`examples/real/references.py`).
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, mcse_mean, mcse_sd, sd};
use consilience_engine::config::Config;
use consilience_engine::run::Progress;
use consilience_engine::session::{Control, Session};

/// Means that others sampled are within so many posterior standard deviations, Monte Carlo error
/// of both sides aside. Maxima of a likelihood are that far from means where posteriors are skewed
/// and priors say a little.
const SAMPLED: f64 = 0.05;
const MAXIMA: f64 = 0.15;
/// Standard deviations are within this share; those of the book have three digits behind the point.
const SPREAD: f64 = 0.03;
const DIGIT: f64 = 0.0005;
/// Standard errors of a mean, and of a standard deviation, of 4,000 effective draws, times 4.9.
const THEIRS: (f64, f64) = (0.08, 0.055);

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// One line of a table: a parameter, our mean and standard deviation, and those of others.
struct Line {
    name: String,
    ours: [f64; 2],
    theirs: [Option<f64>; 2],
}

/// The tables of a page that compare, and whether others sampled.
fn tables(page: &str) -> Vec<(bool, Vec<Line>)> {
    let text = std::fs::read_to_string(repository("docs/src").join(page)).unwrap();
    let mut all: Vec<(bool, Vec<Line>)> = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let escaped = line.replace("\\|", "\u{1}");
        let cells: Vec<String> =
            escaped.split('|').map(|cell| cell.replace('\u{1}', "|").trim().to_owned()).collect();
        if cells[1] == "parameter" {
            all.push((cells[4].starts_with("NUTS"), Vec::new()));
            continue;
        }
        let number = |k: usize| cells[k].parse::<f64>().ok();
        let ours = [number(2).unwrap(), number(3).unwrap()];
        let line = Line { name: cells[1].clone(), ours, theirs: [number(4), number(5)] };
        all.last_mut().unwrap().1.push(line);
    }
    all
}

/// The parameter that a line is about: as it is called, or in words.
fn place(parameters: &[String], name: &str) -> usize {
    let bare = name.split(", per ").next().unwrap();
    let found = parameters.iter().position(|parameter| parameter == bare);
    let in_words = || parameters.iter().position(|parameter| parameter.starts_with("sex"));
    found.or_else(|| bare.starts_with("sex: ").then(in_words)?).unwrap_or_else(|| {
        panic!("{name} is none of {parameters:?}");
    })
}

fn agrees(example: &str, page: &str, table: usize, lines: usize) {
    let (sampled, told) = tables(page).swap_remove(table);
    assert_eq!(told.len(), lines, "{page}");
    let config = Config::load(&repository("examples/real").join(example)).unwrap();
    let planned = Session::new(config).unwrap().plan().unwrap();
    let control = Control { draws_alone: true, ..Control::default() };
    let record = planned.run(&Progress::default(), control).unwrap().record;
    for Line { name, ours, theirs } in told {
        let draws = record.draws.parameter(place(&record.parameters, &name));
        let flat = draws.concat();
        let chains = Chains::flat(&flat, draws.len()).unwrap();
        let found = [flat.iter().sum::<f64>() / flat.len() as f64, sd(&flat)];
        let errors = [4.9 * mcse_mean(&chains), 4.9 * mcse_sd(&chains)];
        for k in 0..2 {
            let off = (found[k] - ours[k]).abs();
            assert!(off < 1.5 * errors[k] + DIGIT, "{example}, {name}: {found:?}, page {ours:?}");
        }
        let near = if sampled { SAMPLED + THEIRS.0 } else { MAXIMA };
        let off = (found[0] - theirs[0].unwrap()).abs();
        assert!(off < near * found[1] + errors[0] + DIGIT, "{example}, {name}: {found:?}");
        let near = SPREAD + if sampled { THEIRS.1 } else { 0.0 };
        if let Some(spread) = theirs[1] {
            let off = (found[1] - spread).abs();
            assert!(off < near * spread + errors[1] + DIGIT, "{example}, {name}: sd {found:?}");
        }
    }
}

#[test]
fn lung_cancer_by_cox_agrees_with_lifelines() {
    agrees("lung-cox.toml", "example-lung.md", 0, 3);
}

#[test]
fn lung_cancer_by_weibull_agrees_with_nuts() {
    agrees("lung-weibull.toml", "example-lung.md", 1, 6);
}

#[test]
fn hospitals_agree_with_nuts() {
    agrees("heart-site.toml", "example-heart.md", 0, 7);
}

#[test]
fn missing_values_agree_with_nuts() {
    agrees("heart-missing.toml", "example-heart.md", 1, 12);
}

#[test]
fn party_identification_agrees_with_statsmodels() {
    agrees("party.toml", "example-party.md", 0, 11);
}

#[test]
fn visits_agree_with_statsmodels() {
    agrees("visits.toml", "example-visits.md", 0, 11);
}

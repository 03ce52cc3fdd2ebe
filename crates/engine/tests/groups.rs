//! Effects of groups: the posterior is that of NUTS with every effect as a parameter, a site's
//! groups are its own, and what cannot be is refused by name.
//!
//! `data/groups_reference.csv` has numbers of NumPyro, which `data/make_groups_reference.py` writes
//! with the rows.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, mcse_mean, mcse_sd, sd};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Three sites, whose wards have the same names.
fn text(model: &str, formula: &str) -> String {
    format!(
        "seed = 3\n[target]\nmodel = \"{model}\"\nformula = \"{formula}\"\nstandardise = false\n\
         prior = {{ law = \"normal(0, 2.5)\", of = {{ effects = \"half_normal(2)\"{} }} }}\n\
         [data]\nfile = \"groups.csv\"\nscheme = \"natural(site)\"\n\
         [run]\neffective_draws = 1500\n",
        if model == "linear" { ", sigma = \"half_normal(2)\"" } else { "" }
    )
}

fn config(text: String, folder: &Path) -> Result<Config, ConfigError> {
    Config::parse(Source { file: "run.toml".into(), folder: folder.into(), text })
}

fn sampled(text: String, folder: &Path) -> (Problem, Draws) {
    let config = config(text, folder).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let outcome =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default()).unwrap();
    (problem, outcome.draws)
}

/// Means and standard deviations within 4.9 standard errors of both sides: one false alarm in
/// 50,000 among ten parameters and their spreads.
#[test]
fn posteriors_are_those_of_all_effects_sampled() {
    let reference = std::fs::read_to_string(data().join("groups_reference.csv")).unwrap();
    let lines: Vec<Vec<&str>> =
        reference.lines().skip(1).map(|line| line.split(',').collect()).collect();
    for (model, response) in [("logistic", "ill"), ("linear", "pain"), ("poisson", "visits")] {
        let formula = format!("{response} ~ x + (1 | ward)");
        let (problem, draws) = sampled(text(model, &formula), &data());
        let rows: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0] == model).collect();
        assert_eq!(problem.parameters.len(), rows.len());
        for line in rows {
            let number = |k: usize| line[k].parse::<f64>().unwrap();
            let k = problem.parameters.iter().position(|name| name == line[2]).unwrap();
            let chains = draws.parameter(k);
            let flat = chains.concat();
            let of = Chains::flat(&flat, chains.len()).unwrap();
            let mean = flat.iter().sum::<f64>() / flat.len() as f64;
            let (error, spread) = (mcse_mean(&of).hypot(number(5)), mcse_sd(&of).hypot(number(6)));
            let z = ((mean - number(3)) / error, (sd(&flat) - number(4)) / spread);
            assert!(z.0.abs() < 4.9 && z.1.abs() < 4.9, "{model}, {}: {mean}, {z:?}", line[2]);
        }
    }
}

/// Wards of two sites are not one ward because they have one name; sites are groups of their own.
#[test]
fn groups_are_those_of_a_site() {
    let of = |formula: &str| Problem::new(&config(text("logistic", formula), &data()).unwrap());
    let wards = of("ill ~ x + (1 | ward)").unwrap();
    let groups: Vec<usize> = wards.target.clients.iter().map(|client| client.rows()).collect();
    assert_eq!(groups, [4, 6, 5]);
    assert_eq!(wards.parameters, ["intercept", "x", "sd(1 | ward)"]);
    let sites = of("ill ~ . - pain - visits - site + (1 | ward)").unwrap();
    assert_eq!(sites.parameters, ["intercept", "x", "sd(1 | ward)"], "a dot leaves groups out");
    assert!(wards.statement.text().contains("with an effect of every ward"));
}

#[test]
fn what_groups_cannot_be_is_refused() {
    for (model, formula, says) in [
        ("logistic", "ill ~ x + (x | ward)", "slopes that differ between groups"),
        ("logistic", "ill ~ x + (1 | ward) + (1 | site)", "several effects of groups"),
        ("logistic", "ill ~ x + (1 | ward:site)", "groups by more than one column"),
        ("logistic", "ill ~ x + (1 | wrd)", "`wrd` in the formula is not a column"),
        ("student_t", "pain ~ x + (1 | ward)", "has no effects of groups"),
    ] {
        let of = |config: Config| Problem::new(&config);
        let wrong = config(text(model, formula), &data()).and_then(of).unwrap_err();
        assert!(wrong.problem.contains(says), "{formula}: {wrong}");
    }
}

//! Posteriors that others sampled with Stan and checked (posteriordb) come out of federations: rows
//! dealt to three to five sites, `auto`, every mean and every standard deviation.
//!
//! `data/posteriordb` has the rows, the references, and what of them can be stated here.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, mcse_mean, mcse_sd, sd};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;
use consilience_engine::site_effects::effects;
use serde_json::Value as Json;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/posteriordb")
}

fn references() -> Json {
    let text = std::fs::read_to_string(folder().join("references.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn posteriors() -> Vec<toml::Table> {
    let text = std::fs::read_to_string(folder().join("posteriors.toml")).unwrap();
    let mut all: toml::Table = text.parse().unwrap();
    let Some(toml::Value::Array(list)) = all.remove("posterior") else { panic!("no list") };
    list.into_iter().map(|each| each.as_table().unwrap().clone()).collect()
}

/// The config of a posterior: what its entry says, its rows dealt evenly.
fn config(entry: &toml::Table, file: &str, effective: i64) -> Config {
    let mut target = toml::Table::new();
    target.insert("model".into(), "linear".into());
    target.insert("formula".into(), entry["formula"].clone());
    target.insert("standardise".into(), false.into());
    target.insert("prior".into(), entry["prior"].clone());
    if let Some(variance) = entry.get("noise_variance") {
        target.insert("noise_variance".into(), variance.clone());
    }
    let mut data = toml::Table::new();
    data.insert("file".into(), file.into());
    data.insert("clients".into(), entry["clients"].clone());
    let mut run = toml::Table::new();
    run.insert("effective_draws".into(), effective.into());
    let mut all = toml::Table::new();
    all.insert("seed".into(), 7.into());
    for (name, table) in [("target", target), ("data", data), ("run", run)] {
        all.insert(name.into(), table.into());
    }
    let text = toml::to_string(&all).unwrap();
    Config::parse(Source { file: "run.toml".into(), folder: folder(), text }).unwrap()
}

/// Means are then known to 0.01 posterior standard deviations, as those of the references are.
const EFFECTIVE: i64 = 10_000;

#[test]
fn every_posterior_agrees_with_stan() {
    let references = references();
    let mut wrong = Vec::new();
    for entry in &posteriors() {
        let name = entry["name"].as_str().unwrap();
        let stated = &references[name];
        let config = config(entry, stated["data"].as_str().unwrap(), EFFECTIVE);
        let problem = Problem::new(&config).unwrap_or_else(|e| panic!("{name}: {e}"));
        let plan = Plan::new(&config, &problem).unwrap_or_else(|e| panic!("{name}: {e}"));
        let progress = run::Progress::default();
        let outcome =
            run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &progress).unwrap();
        // in the file's order, which is that of the formula
        let expected = in_order(&stated["reference"]);
        assert_eq!(expected.len(), problem.parameters.len(), "{name}");
        let drawn = stated["draws"].as_f64().unwrap();
        for (k, (mean, spread)) in expected.into_iter().enumerate() {
            let draws = outcome.draws.parameter(k);
            let flat = draws.concat();
            let chains = Chains::flat(&flat, draws.len()).unwrap();
            let found = flat.iter().sum::<f64>() / flat.len() as f64;
            // ours and theirs, with an alarm in 10,000 among some 80 comparisons
            let error = 4.9 * mcse_mean(&chains).hypot(spread / drawn.sqrt());
            let off = (found - mean).abs();
            let parameter = &problem.parameters[k];
            if off > 0.05 * spread + error {
                wrong.push(format!("{name}, {parameter}: mean {found}, {mean} of Stan"));
            }
            let error = 4.9 * mcse_sd(&chains).hypot(spread / (2.0 * drawn).sqrt());
            if (sd(&flat) - spread).abs() > 0.03 * spread + error {
                wrong.push(format!("{name}, {parameter}: sd {}, {spread} of Stan", sd(&flat)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Means and standard deviations in the order in which the file has them: coefficients by their
/// numbers, or named, and sigma last.
fn in_order(reference: &Json) -> Vec<(f64, f64)> {
    let all = reference.as_object().unwrap();
    let number = |k: usize| all.get(&format!("beta[{k}]"));
    let numbered = (1..).map_while(number);
    let named =
        ["alpha", "beta", "sigma", "mu", "tau"].into_iter().filter_map(|name| all.get(name));
    let moments = |value: &Json| (value["mean"].as_f64().unwrap(), value["sd"].as_f64().unwrap());
    numbered.chain(named).map(moments).collect()
}

/// The effects of schools, which their sites draw: with the mean of all schools they have the law
/// that Stan sampled.
#[test]
fn effects_of_the_eight_schools_agree_with_stan() {
    let name = "eight_schools-eight_schools_noncentered";
    let references = references();
    let entry = posteriors().into_iter().find(|entry| entry["name"].as_str() == Some(name));
    let config = config(&entry.unwrap(), "eight_schools.csv", 2000);
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let progress = run::Progress::default();
    let outcome = run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &progress).unwrap();
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let record = Record::new(made, &config, &problem, &plan, outcome, None);
    let mu = record.draws.parameter(0).concat();
    let mut schools = Vec::new();
    for site in &problem.clients {
        let found = effects(&record, site, None).unwrap();
        for (k, school) in found.names.iter().enumerate() {
            schools.push(school.clone());
            let number = school.bytes().next().unwrap() - b'A' + 1;
            let stan = &references[name]["reference"][format!("theta[{number}]")];
            let (mean, spread) = (stan["mean"].as_f64().unwrap(), stan["sd"].as_f64().unwrap());
            let effect = found.draws.parameter(k).concat();
            let theta: Vec<f64> = mu.iter().zip(&effect).map(|(mu, effect)| mu + effect).collect();
            let chains = Chains::flat(&theta, found.draws.chains()).unwrap();
            let average = theta.iter().sum::<f64>() / theta.len() as f64;
            // ours and theirs, with an alarm in 60,000 among 16 comparisons
            let error = 4.9 * mcse_mean(&chains).hypot(spread / 100.0);
            let off = (average - mean).abs();
            assert!(off < 0.05 * spread + error, "{school}: {average}, {mean} of Stan");
            let error = 4.9 * mcse_sd(&chains).hypot(spread / 20_000f64.sqrt());
            let found = sd(&theta);
            assert!((found - spread).abs() < 0.03 * spread + error, "{school}: sd {found}");
        }
    }
    schools.sort();
    assert_eq!(schools.concat(), "ABCDEFGH");
}

/// The scale of the schools' effects has a long tail towards 0: proposals along nodes follow it, so
/// that 40,000 effective draws take a few dozen exchanges, and are kept.
#[test]
fn the_eight_schools_take_a_few_dozen_exchanges() {
    let name = "eight_schools-eight_schools_noncentered";
    let entry = posteriors().into_iter().find(|entry| entry["name"].as_str() == Some(name));
    let config = config(&entry.unwrap(), "eight_schools.csv", 40_000);
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let choice = plan.choice.as_ref().unwrap();
    assert_eq!((choice.chosen.as_str(), choice.nodes.is_some()), ("imh", true));
    let progress = run::Progress::default();
    let outcome = run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &progress).unwrap();
    assert_eq!(plan.disappointment(&outcome).map(|found| found.why), None);
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let record = Record::new(made, &config, &problem, &plan, outcome, None);
    let exchanges = record.exchanges.0 + record.exchanges.1;
    assert!(exchanges < 60, "{exchanges} exchanges");
}

#[test]
fn every_reference_is_stated() {
    let references = references();
    let mut stated: Vec<String> =
        posteriors().iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect();
    let mut known: Vec<String> = references.as_object().unwrap().keys().cloned().collect();
    stated.sort();
    known.sort();
    assert_eq!(stated, known);
}

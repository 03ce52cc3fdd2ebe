//! A formula explains one of several classes: the posterior is that of somebody else's sampler on
//! pooled rows, predictions are the mean over draws, and what cannot be is refused by name.
//!
//! `data/make_classes_reference.py` made the rows and the numbers.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, mcse_mean, mcse_sd, sd};
use consilience_engine::check;
use consilience_engine::config::{Config, Source};
use consilience_engine::data::Table;
use consilience_engine::data::memory::{Values, table};
use consilience_engine::draws::Sinks;
use consilience_engine::loo;
use consilience_engine::models::kept;
use consilience_engine::plan::Plan;
use consilience_engine::predict::Predictor;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;

const NAMES: [&str; 3] = ["home", "ward", "intensive"];
const NAMED: &str = "classes = [\"home\", \"ward\", \"intensive\"]";

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Sites of which the last has no row of the last class.
fn text(formula: &str, classes: &str, effective: usize) -> String {
    format!(
        "seed = 3\n[target]\nmodel = \"softmax\"\nformula = \"{formula}\"\n{classes}\n\
         standardise = false\nprior = {{ law = \"normal(0, 2.5)\" }}\n\
         [data]\nfile = \"{}\"\nscheme = \"natural(site)\"\n\
         [run]\neffective_draws = {effective}\n",
        data().join("classes.csv").display()
    )
}

fn problem(text: String) -> Result<(Config, Problem), String> {
    let config = Config::parse(Source { file: "run.toml".into(), folder: data(), text })
        .map_err(|e| format!("{}: {} {}", e.field, e.problem, e.fix))?;
    let problem = Problem::new(&config).map_err(|e| format!("{} {}", e.problem, e.fix))?;
    Ok((config, problem))
}

fn recorded(text: String) -> Record {
    let (config, problem) = problem(text).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let outcome =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default()).unwrap();
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    Record::new(made, &config, &problem, &plan, outcome, None)
}

/// Means and standard deviations within 4.9 standard errors of both sides: one false alarm in
/// 50,000 among nine parameters and their spreads. Words and numbers give the same bits.
#[test]
fn posteriors_of_classes_are_those_of_pooled_rows() {
    let reference = std::fs::read_to_string(data().join("classes_reference.csv")).unwrap();
    let formula = "goes ~ x + C(sex, ref = \\\"f\\\")";
    let record = recorded(text(formula, NAMED, 1500));
    let lines: Vec<Vec<&str>> =
        reference.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(record.parameters, lines.iter().map(|line| line[0]).collect::<Vec<_>>());
    for (k, line) in lines.iter().enumerate() {
        let number = |k: usize| line[k].parse::<f64>().unwrap();
        let chains = record.draws.parameter(k);
        let flat = chains.concat();
        let of = Chains::flat(&flat, chains.len()).unwrap();
        let mean = flat.iter().sum::<f64>() / flat.len() as f64;
        let (error, spread) = (mcse_mean(&of).hypot(number(3)), mcse_sd(&of).hypot(number(4)));
        let z = ((mean - number(1)) / error, (sd(&flat) - number(2)) / spread);
        assert!(z.0.abs() < 4.9 && z.1.abs() < 4.9, "{}: {mean}, {z:?}", line[0]);
    }
    let numbers = recorded(text(&formula.replace("goes", "code"), "classes = [1, 2, 3]", 1500));
    assert_eq!(numbers.draws, record.draws);
    assert_eq!(numbers.parameters[4], "x[2]");
}

/// The probability of every class is the mean over the draws, added up here; cross-validation and
/// checks know the classes.
#[test]
fn classes_are_predicted_scored_and_checked() {
    let record = recorded(text("goes ~ x", NAMED, 300));
    let predictor = Predictor::new(&record).unwrap();
    let words = |all: &[&str]| {
        Values::Words(all.iter().map(|word| Some((*word).to_owned())).collect::<Vec<_>>())
    };
    let new = |goes: &[&str]| -> Table {
        let columns = vec![
            ("x".into(), Values::Numbers(vec![-1.0, 0.5].into())),
            ("goes".into(), words(goes)),
        ];
        table("new rows", columns).unwrap()
    };
    let rows = predictor.rows(&new(&["intensive", "home"]), None).unwrap();
    let found = predictor.predict(&rows, 0.89);
    let mut score = 0.0;
    for (row, (x, class)) in [(-1.0, 2), (0.5, 0)].into_iter().enumerate() {
        let mut expected = [0.0; 3];
        for draw in record.draws.rows() {
            let t = [0, 1, 2].map(|k| (draw[2 * k] + draw[2 * k + 1] * x).exp());
            let whole: f64 = t.iter().sum();
            expected.iter_mut().zip(t).for_each(|(sum, t)| *sum += t / whole);
        }
        let draws = record.draws.rows().count() as f64;
        for (found, expected) in found[row].iter().zip(expected) {
            assert!((found.mean - expected / draws).abs() < 1e-12, "{row}: {}", found.mean);
        }
        score += (expected[class] / draws).ln() / 2.0;
    }
    let said = format!("{:?}", predictor.score(&rows).unwrap().unwrap());
    assert!(score.is_finite() && !said.is_empty(), "{said}");
    let wrong = predictor.rows(&new(&["home", "wards"]), None).unwrap_err().to_string();
    assert!(wrong.contains("did you mean `ward`?"), "{wrong}");
    // rows one by one: minus the mean of log-probabilities is what the model gives them
    let loo = loo::loo(&record).unwrap();
    assert!(loo.total.sum < 0.0 && loo.total.sum > -113.0 * 3f64.ln(), "{}", loo.total.sum);
    let checked = check::check(&record).unwrap();
    let counts: Vec<&str> = checked.bins.iter().map(|bin| bin.name.as_str()).collect();
    assert_eq!(counts, NAMES.map(|name| format!("class {name}")));
}

/// What is kept of the model makes it again; what cannot be is refused, with what to write.
#[test]
fn classes_that_cannot_be_are_refused() {
    let (config, _) = problem(text("goes ~ x + site", NAMED, 100)).unwrap();
    let model = config.target.model.of_rows().unwrap();
    let again = kept::read(&kept::write(&*model)).unwrap();
    assert!(*again == *model && again.class_names() == model.class_names());
    assert!(model.statement().contains("(home, ward, intensive)"), "{}", model.statement());
    for (formula, classes, says) in [
        ("goes ~ x", "classes = 3", "`home` is no class of the model"),
        ("goes ~ x", "classes = [\"home\", \"ward\"]", "`intensive` is no class of the model"),
        ("code ~ x", "classes = 3", "`3` is no class of the model"),
        ("goes ~ x", "classes = [\"home\"]", "1 classes: nothing is left to tell apart"),
        ("goes ~ x", "classes = [\"home\", \"home\"]", "stands there twice"),
        ("code ~ x", "classes = [1, \"1.0\", 2, 3]", "stands there twice"),
        ("goes ~ x", "", "classes = [\"low\", \"middle\", \"high\"]"),
        ("goes ~ x + (1 | site)", NAMED, "has no effects of groups"),
        ("goes == home ~ x", NAMED, "a comparison is for"),
    ] {
        let wrong = problem(text(formula, classes, 100)).unwrap_err();
        assert!(wrong.contains(says), "{formula}, {classes}: {wrong}");
    }
    let linear = text("goes ~ x", "", 100).replace("softmax", "linear");
    let wrong = problem(linear).unwrap_err();
    assert!(wrong.contains("model = \"softmax\""), "{wrong}");
    // laws by name reach a column of every class, and leave intercepts out
    let by_name = text("goes ~ x", NAMED, 100).replace(
        "law = \"normal(0, 2.5)\"",
        "law = \"normal(0, 2.5)\", of = { coefficients = \"laplace(0, 1)\", \
         \"intercept[ward]\" = \"normal(0, 1)\" }",
    );
    let notes = problem(by_name).unwrap().1.notes.join("\n");
    assert!(notes.contains("laplace(0, 1)"), "{notes}");
}

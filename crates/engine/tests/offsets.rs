//! Offsets and weights of rows: likelihoods, optimum and predictions are those that statsmodels and
//! scipy compute, and what cannot be is refused by name.
//!
//! `data/offsets.csv` and the numbers of others in `data/offsets_reference.csv` are written by
//! `data/make_offsets_reference.py`.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::sync::Arc;

use consilience_core::model::{Model, Single};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::plan::Plan;
use consilience_engine::predict::{PredictError, Predictor};
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn reference(what: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(data().join("offsets_reference.csv")).unwrap();
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let found: Vec<f64> =
        lines.filter(|line| line[0] == what).map(|line| line[2].parse().unwrap()).collect();
    assert!(!found.is_empty(), "{what}");
    found
}

fn config(target: &str, data: &str, folder: &Path) -> Result<Config, ConfigError> {
    let text = format!("[target]\nstandardise = false\n{target}\n{data}\n");
    Config::parse(Source { file: "run.toml".into(), folder: folder.into(), text })
}

/// One file, a site for each name in its first column.
fn dealt(target: &str) -> Result<Config, ConfigError> {
    config(target, "[data]\nfile = \"offsets.csv\"\nscheme = \"natural(site)\"", &data())
}

const ADJUSTED: &str = "x + offset(log(days / 100)) + weights(people)";

fn value(clients: &[Arc<dyn Model>], x: &[f64]) -> f64 {
    clients.iter().map(|client| Single::new(client).value(x)).sum()
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-10 * expected.abs().max(1.0)
}

#[test]
fn likelihoods_are_those_of_statsmodels_and_scipy() {
    let known_sds = "x + weights(1 / (days / 100)^2)";
    for (model, response, right, beside) in [
        ("poisson", "visits", ADJUSTED, None),
        ("logistic", "ill", ADJUSTED, None),
        ("negative_binomial", "visits", ADJUSTED, Some(2f64.ln())),
        ("student_t", "visits", ADJUSTED, Some(1.5f64.ln())),
        ("linear\"\nnoise_variance = 1.0 # \"", "visits", known_sds, None),
    ] {
        let target = format!("model = \"{model}\"\nformula = \"{response} ~ {right}\"");
        let problem = Problem::new(&dealt(&target).unwrap()).unwrap();
        assert_eq!(problem.parameters[..2], ["intercept", "x"], "{model}");
        let name = model.split('"').next().unwrap();
        let at = |x: &[f64]| [x, beside.as_slice()].concat();
        for k in 0..2 {
            let x = at(&reference(&format!("point {k}")));
            let clients = &problem.target.clients;
            let found = value(clients, &at(&[0.0, 0.0])) - value(clients, &x);
            let expected = reference(&format!("{name} value {k}"))[0];
            assert!(near(found, expected), "{name}: {found} is not {expected}");
            if beside.is_none() && name != "linear" {
                let mut gradient = vec![0.0; 2];
                let all = consilience_core::model::Rows::All;
                for client in clients {
                    Single::new(client).add_gradient(&x, all, 1.0, &mut gradient);
                }
                for (found, expected) in
                    gradient.iter().zip(reference(&format!("{name} score {k}")))
                {
                    assert!(near(-found, expected), "{name}: {found} is not {expected}");
                }
            }
        }
    }
}

/// The record of a run whose only draw is this one.
fn record_at(config: &Config, draw: Vec<f64>) -> Record {
    let problem = Problem::new(config).unwrap();
    let plan = Plan::new(config, &problem).unwrap();
    let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
    let mut outcome = run::sample(&plan, &length, 1, Sinks::Memory, &Default::default()).unwrap();
    let dim = draw.len();
    outcome.draws = Draws::from_chains(vec![draw], dim);
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    Record::new(made, config, &problem, &plan, outcome, None)
}

/// Under a flat prior the optimum is the maximum of the likelihood; a draw predicts new rows with
/// their own offsets, and rows without are refused.
#[test]
fn optimum_and_predictions_are_those_of_statsmodels() {
    let target = format!(
        "model = \"poisson\"\nformula = \"visits ~ {ADJUSTED}\"\nprior = {{ law = \"flat\" }}"
    );
    let config = config(
        &target,
        "[data]\nfile = \"offsets.csv\"\nscheme = \"natural(site)\"\n[sampler]\nname = \"lmc\"",
        &data(),
    )
    .unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let found = &plan.findings.as_ref().unwrap().optimum;
    for (x, expected) in found.iter().zip(reference("poisson maximum")) {
        assert!((x - expected).abs() < 1e-5, "{x} is not {expected}");
    }

    let record = record_at(&config, reference("point 0"));
    let predictor = Predictor::new(&record).unwrap();
    let rows = predictor.read(&data().join("offsets.csv"), None).unwrap();
    let said = predictor.predict(&rows, 0.89);
    for (row, expected) in said.iter().zip(reference("poisson mean")) {
        assert!(near(row[0].mean, expected), "{} is not {expected}", row[0].mean);
    }
    // the last rows are predicted with their own offsets, too
    let last = (rows.cells[2 * 89 + 1] * 0.6 + 0.3 + rows.offset[89]).exp();
    assert!(near(said[89][0].mean, last));

    // who predicts needs no weights, but offsets
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offsets-new");
    std::fs::create_dir_all(&folder).unwrap();
    let read = |text: &str| {
        std::fs::write(folder.join("new.csv"), text).unwrap();
        predictor.read(&folder.join("new.csv"), None)
    };
    let new = read("x,days\n0.5,100\n0.5,200\n").unwrap();
    let means: Vec<f64> = predictor.predict(&new, 0.89).iter().map(|row| row[0].mean).collect();
    assert!(near(means[0], 0.6f64.exp()) && near(means[1], 2.0 * 0.6f64.exp()), "{means:?}");
    let says = |found: Result<_, PredictError>| found.map(|_| ()).unwrap_err().to_string();
    assert!(says(read("x\n0.5\n")).contains("days"));
    let missing = says(read("x,days\n0.5,100\n0.5,\n"));
    assert!(missing.contains("line 3") && missing.contains("never imputed"), "{missing}");
}

/// Rows of groups have offsets and weights too; and a row that counts twice is two rows of its
/// group.
#[test]
fn groups_have_offsets_and_weights() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offsets-groups");
    std::fs::create_dir_all(&folder).unwrap();
    let text = std::fs::read_to_string(data().join("offsets.csv")).unwrap();
    let mut lines = text.lines();
    let mut copies = format!("{}\n", lines.next().unwrap());
    for line in lines {
        let people: usize = line.split(',').nth(3).unwrap().parse().unwrap();
        (0..people).for_each(|_| copies += &format!("{line}\n"));
    }
    std::fs::write(folder.join("offsets.csv"), copies).unwrap();
    let of = |right: &str, folder: &Path| {
        let target = format!("model = \"poisson\"\nformula = \"visits ~ {right} + (1 | site)\"");
        let data = "[data]\nfile = \"offsets.csv\"\nscheme = \"natural(site)\"";
        Problem::new(&config(&target, data, folder).unwrap()).unwrap().target.clients
    };
    let x = [0.3, 0.6, -0.5];
    let weighted = value(&of("x + offset(log(days)) + weights(people)", &data()), &x);
    let copied = value(&of("x + offset(log(days))", &folder), &x);
    assert!(near(weighted, copied), "{weighted} is not {copied}");
}

#[test]
fn a_dot_means_no_column_that_enters_otherwise() {
    for (right, columns) in [
        ("offset(days) + . - ill - site", vec!["intercept", "x", "people"]),
        (". - ill - site + weights(people)", vec!["intercept", "x", "days"]),
        // as in R: what an offset is computed of is a column still
        ("offset(log(days)) + weights(people) + . - ill - site", vec!["intercept", "x", "days"]),
        ("x + offset(x)", vec!["intercept", "x"]),
    ] {
        let target = format!("model = \"poisson\"\nformula = \"visits ~ {right}\"");
        let problem = Problem::new(&dealt(&target).unwrap()).unwrap();
        assert_eq!(problem.parameters, columns, "{right}");
        assert!(problem.statement.text().contains(right), "all agree on it");
    }
}

#[test]
fn what_offsets_and_weights_cannot_be_is_refused() {
    let csv = "site,x,days,n,town,y\na,1,10,1,bern,2\na,2,,1,chur,0\nb,3,10,-2,bern,1\n";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offsets-wrong");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("rows.csv"), csv).unwrap();
    for (model, right, says) in [
        ("poisson", "x + offset(log(dayss))", "did you mean `days`?"),
        ("poisson", "x + offset(days)", "rows.csv, line 3, column `days`: the value is missing"),
        ("poisson", "x + offset(log(x - 1))", "is no finite number"),
        ("poisson", "x + offset(town)", "`offset(town)` in the formula must be a number"),
        ("poisson", "x + offset(y)", "or is the response"),
        ("poisson", "x - offset(x)", "`- offset(x)` in the formula"),
        ("poisson", "x + offset()", "is not a column"),
        ("poisson", "x + weights(n)", "line 4, column `n`: the weight is -2: weights are 0 or"),
        ("poisson", "x + weights(x) + weights(n)", "several weights of a row"),
        ("poisson", "x + weight(n)", "a function that is not known"),
        ("cox", "x + offset(x)", "`offset(x)` in the formula: Cox regression takes no offsets"),
    ] {
        let response = if model == "cox" { "Surv(x, n)" } else { "y" };
        let target = format!("model = \"{model}\"\nformula = \"{response} ~ {right}\"");
        let data = "[data]\nfile = \"rows.csv\"\nscheme = \"natural(site)\"";
        let wrong = config(&target, data, &folder).and_then(|config| Problem::new(&config));
        let wrong = wrong.map(|_| ()).unwrap_err().to_string();
        assert!(wrong.contains(says), "{right}: {wrong}");
    }
}

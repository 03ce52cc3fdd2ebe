//! Poisson regression has the likelihood, the optimum and the posterior that others compute, and
//! refuses what is no count.
//!
//! `data/poisson.csv` has numbers of statsmodels and of a quadrature, which
//! `data/make_poisson_reference.py` writes.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::ask::Sum;
use consilience_core::model::{Rows, Single};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::plan::Plan;
use consilience_engine::predict::Predictor;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;
use consilience_engine::warnings::summaries;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// The reference's numbers of one name.
fn reference(what: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(data().join("poisson.csv")).unwrap();
    let found: Vec<f64> = text
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|fields| fields[0] == what)
        .map(|fields| fields[2].parse().unwrap())
        .collect();
    assert!(!found.is_empty(), "{what}");
    found
}

const VISITS: &str = r#"
seed = 4
[target]
model = "poisson"
[data]
file = "randhie.csv"
response = "mdvis"
clients = 4
scale = "none"
"#;

fn config(target: &str, folder: &Path) -> Result<Config, ConfigError> {
    let text = format!("{target}\n[sampler]\nname = \"lmc\"\n");
    Config::parse(Source { file: "run.toml".into(), folder: folder.into(), text })
}

#[test]
fn likelihood_score_and_hessian_are_those_of_statsmodels() {
    let problem = Problem::new(&config(VISITS, &data()).unwrap()).unwrap();
    assert_eq!(problem.parameters, ["intercept", "lncoins", "disea", "hlthg"]);
    let near =
        |found: f64, expected: f64| (found - expected).abs() < 1e-10 * expected.abs().max(1.0);
    for k in 0..2 {
        let x = reference(&format!("point {k}"));
        let d = x.len();
        let (mut value, mut gradient, mut hessian) = (0.0, vec![0.0; d], vec![0.0; d * d]);
        for client in &problem.target.clients {
            let mut single = Single::new(client);
            value += single.value(&x) - single.value(&vec![0.0; d]);
            single.add_gradient(&x, Rows::All, 1.0, &mut gradient);
            single.add(Sum::Hessian { x: &x }, Rows::All, 1.0, &mut hessian);
        }
        assert!(near(-value, reference(&format!("value {k}"))[0]));
        for (found, expected) in gradient.iter().zip(reference(&format!("score {k}"))) {
            assert!(near(-found, expected), "{found} is not {expected}");
        }
        for (found, expected) in hessian.iter().zip(reference(&format!("hessian {k}"))) {
            assert!(near(-found, expected), "{found} is not {expected}");
        }
    }
}

/// Without a prior the optimum is the maximum of the likelihood; with one, four chains have the
/// posterior's mean to 0.1 of its standard deviations, and its standard deviations to 6%: the
/// step's own bias, which the plan keeps below 0.03 and 1.5%, and five Monte Carlo errors of 4000
/// effective draws (0.016 and 1.1%).
#[test]
fn the_optimum_and_the_posterior_are_those_of_statsmodels_and_of_a_quadrature() {
    let flat = VISITS.replace("[data]", "prior = { law = \"flat\" }\n[data]");
    let flat = config(&flat, &data()).unwrap();
    let plan = Plan::new(&flat, &Problem::new(&flat).unwrap()).unwrap();
    let found = plan.findings.as_ref().unwrap();
    for ((x, expected), error) in
        found.optimum.iter().zip(reference("maximum")).zip(reference("standard errors"))
    {
        assert!((x - expected).abs() < 1e-3 * error, "{x} is not {expected}");
    }

    let config = config(VISITS, &data()).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let outcome =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default()).unwrap();
    let (mean, sd) = (reference("posterior mean"), reference("posterior sd"));
    for (k, summary) in summaries(&outcome.draws).into_iter().enumerate() {
        let summary = summary.unwrap();
        assert!(
            (summary.mean - mean[k]).abs() < 0.1 * sd[k],
            "{} is not {}",
            summary.mean,
            mean[k]
        );
        assert!((summary.sd / sd[k] - 1.0).abs() < 0.06, "{} is not {}", summary.sd, sd[k]);
    }
}

fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("poisson-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in files {
        std::fs::write(folder.join(file), text).unwrap();
    }
    folder
}

#[test]
fn what_is_no_count_is_refused_with_its_file_and_line() {
    let prior = "prior = { law = \"gaussian\", variance = 1.0 }";
    let ways = [
        // plain numbers, a formula, a file that is dealt
        format!("[target]\nmodel = \"poisson\"\n{prior}\n[[client]]\nfile = \"a.csv\""),
        format!(
            "[target]\nmodel = \"poisson\"\nformula = \"visits ~ age\"\n{prior}\n[[client]]\n\
             file = \"a.csv\""
        ),
        "[target]\nmodel = \"poisson\"\n[data]\nfile = \"a.csv\"\nclients = 2".to_owned(),
    ];
    for (cell, name) in [("-1", "negative"), ("2.5", "fractional")] {
        let table = format!("age,visits\n31,0\n44,3\n52,{cell}\n63,7\n39,1\n");
        let folder = folder(name, &[("a.csv", &table)]);
        for way in &ways {
            let said = config(way, &folder).and_then(|c| Problem::new(&c)).unwrap_err().to_string();
            for part in ["a.csv", "line 4", cell, "count"] {
                assert!(said.contains(part), "{part} is not in {said}");
            }
        }
    }
    let inline = format!("[target]\nmodel = \"poisson\"\n{prior}\n[[client]]\nrows = [[1, 0.5]]");
    let said = config(&inline, &data()).and_then(|c| Problem::new(&c)).unwrap_err().to_string();
    assert!(said.contains("row 1 has the response 0.5"), "{said}");
}

/// One draw predicts its rate, and the score is the mean of minus the log-probability that
/// statsmodels gives the counts at that draw.
#[test]
fn the_mean_rate_is_predicted_and_scored() {
    let visits = config(VISITS, &data()).unwrap();
    let problem = Problem::new(&visits).unwrap();
    let plan = Plan::new(&visits, &problem).unwrap();
    let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
    let mut outcome = run::sample(&plan, &length, 1, Sinks::Memory, &Default::default()).unwrap();
    let point = reference("point 0");
    outcome.draws = Draws::from_chains(vec![point.clone()], 4);
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let record = Record::new(made, &visits, &problem, &plan, outcome, None);
    let predictor = Predictor::new(&record).unwrap();
    assert_eq!(predictor.predicts().kind, "rate");
    let rows = predictor.read(&data().join("randhie.csv"), None).unwrap();
    let first = predictor.predict(&rows, 0.89)[0][0];
    let rate: f64 = rows.cells[..4].iter().zip(&point).map(|(a, x)| a * x).sum::<f64>().exp();
    assert!((first.mean - rate).abs() < 1e-12 && (first.lower - rate).abs() < 1e-12);
    let scores = predictor.score(&rows).unwrap().unwrap();
    let expected = -reference("log-density 0")[0] / rows.labels.len() as f64;
    let found = scores.negative_log_likelihood;
    assert!((found - expected).abs() < 1e-10, "{found} is not {expected}");
    assert!(scores.root_mean_square.is_some() && scores.accuracy.is_none());
    let wrong = consilience_engine::predict::Rows { labels: vec![(2, -1.0)], ..rows };
    assert!(predictor.score(&wrong).unwrap_err().contains("row 3 has the response -1"));
}

/// Counts of twenty thousand: Newton's first step from zero is two thousand times too long. The
/// intercept lies four prior standard deviations from zero, which is said with what to do.
#[test]
fn counts_of_thousands_are_sampled_and_the_prior_that_they_contradict_is_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("thousands");
    std::fs::create_dir_all(&folder).unwrap();
    let mut text = String::from("site,x,c\n");
    let (mut counted, mut rows) = (0.0, 0.0);
    for k in 0..60 {
        // Evenly spread, so that the slope is known to be 0.1 and the mean count to be 20000.
        let x = (k as f64 - 29.5) / 17.3;
        let c = (20_000.0 * (0.1 * x).exp()).round();
        text += &format!("{},{x:.6},{c}\n", if k % 2 == 0 { "a" } else { "b" });
        (counted, rows) = (counted + c, rows + 1.0);
    }
    std::fs::write(folder.join("counts.csv"), text).unwrap();
    let target = "[target]\nmodel = \"poisson\"\nformula = \"c ~ x\"\n[data]\nfile = \
        \"counts.csv\"\nscheme = \"natural(site)\"\n[run]\neffective_draws = 400\n";
    let source = Source { file: "run.toml".into(), folder, text: target.into() };
    let config = Config::parse(source).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let codes: Vec<&str> = plan.warnings.iter().map(|warning| warning.code.name()).collect();
    assert_eq!(codes, ["prior-disagrees"]);
    assert!(plan.warnings[0].message.contains("`intercept`"), "{}", plan.warnings[0].message);
    let sampled =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default()).unwrap();
    let mean = sampled.draws.mean();
    // Standard errors of the intercept are 0.001; of the slope, in standard deviations of x, too.
    assert!((mean[0] - (counted / rows).ln()).abs() < 0.008, "{mean:?}");
    assert!((mean[1] - 0.1).abs() < 0.005, "{mean:?}");
}

/// Usual priors are for standardised columns: where columns enter as they are it is said, unless
/// the config has a prior of its own.
#[test]
fn usual_priors_of_raw_columns_are_named() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("raw");
    std::fs::create_dir_all(&folder).unwrap();
    let rows = "site,x,c\na,1,2\na,3,4\na,2,3\nb,5,6\nb,4,3\nb,7,9\n";
    std::fs::write(folder.join("counts.csv"), rows).unwrap();
    let codes = |more: &str| -> Vec<&str> {
        let text = format!(
            "[target]\nmodel = \"poisson\"\nformula = \"c ~ x\"\n{more}\n[data]\n\
             file = \"counts.csv\"\nscheme = \"natural(site)\"\n[run]\n\
             effective_draws = 100\n"
        );
        let source = Source { file: "run.toml".into(), folder: folder.clone(), text };
        let config = Config::parse(source).unwrap();
        let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
        let codes = plan.warnings.iter().map(|warning| warning.code.name());
        codes.filter(|code| code.starts_with("prior-")).collect()
    };
    assert_eq!(codes("standardise = false"), ["prior-of-raw-columns"]);
    assert!(codes("standardise = true").is_empty());
    for own in [
        "law = \"normal(0, 3)\"",
        "of = { x = \"normal(0, 3)\" }",
        "of = { coefficients = \"normal(0, 3)\" }",
    ] {
        assert!(codes(&format!("standardise = false\nprior = {{ {own} }}")).is_empty(), "{own}");
    }
    let other = "standardise = false\nprior = { of = { intercept = \"normal(0, 3)\" } }";
    assert_eq!(codes(other), ["prior-of-raw-columns"]);
}

//! Columns that lack values: `mi(x)` has the posterior of NUTS with every missing value as a
//! parameter, in one process and kept; and what cannot be is refused by name.
//!
//! `data/missing_reference.csv` has numbers of PyMC and nutpie, which
//! `data/make_missing_reference.py` writes with the rows.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, mcse_mean, mcse_sd, sd};
use consilience_engine::check::check;
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::data::memory::{Values, table};
use consilience_engine::draws::Sinks;
use consilience_engine::loo::loo;
use consilience_engine::models::kept;
use consilience_engine::plan::Plan;
use consilience_engine::predict::Predictor;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;
use consilience_engine::site_effects::effects;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn text(model: &str, formula: &str, more: &str) -> String {
    let sigma = (model == "linear").then_some("sigma = \"half_normal(2)\"");
    let effects = formula.contains(" | ").then_some("effects = \"half_student_t(3, 2.5)\"");
    let of: Vec<&str> = sigma.into_iter().chain(effects).collect();
    let of = if of.is_empty() { "".into() } else { format!(", of = {{ {} }}", of.join(", ")) };
    format!(
        "seed = 3\n[target]\nmodel = \"{model}\"\nformula = \"{formula}\"\n{more}\
         prior = {{ law = \"normal(0, 2.5)\"{of} }}\n[data]\nfile = \"missing.csv\"\n\
         scheme = \"natural(site)\"\n[run]\neffective_draws = 800\n"
    )
}

fn config(text: String) -> Result<Config, ConfigError> {
    Config::parse(Source { file: "run.toml".into(), folder: data(), text })
}

fn recorded(text: String) -> Record {
    let config = config(text).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let outcome =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default()).unwrap();
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let mut record = Record::new(made, &config, &problem, &plan, outcome, None);
    let place = data().join("missing.csv").display().to_string();
    record.config = record.config.replace("\"missing.csv\"", &format!("{place:?}"));
    record
}

/// Means and standard deviations within 4.9 standard errors of both sides: one false alarm in
/// 5,000 among 77 parameters and their spreads. In the last two wards have effects.
#[test]
fn posteriors_are_those_of_all_missing_values_sampled() {
    let reference = std::fs::read_to_string(data().join("missing_reference.csv")).unwrap();
    let lines: Vec<Vec<&str>> =
        reference.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let mut wrong = Vec::new();
    for (model, response, groups) in [
        ("linear", "pain", ""),
        ("logistic", "ill", ""),
        ("poisson", "visits", ""),
        ("linear", "ache", " + (1 | ward)"),
        ("logistic", "sick", " + (1 | ward)"),
    ] {
        let formula = format!("{response} ~ age + mi(dose) + male + mi(weight){groups}");
        // integrals within integrals take longer
        let draws = if groups.is_empty() { "= 800" } else { "= 300" };
        let record = recorded(text(model, &formula, "").replace("= 800", draws));
        let model = if groups.is_empty() { model.into() } else { format!("{model}; wards") };
        let rows: Vec<&Vec<&str>> = lines.iter().filter(|line| line[0] == model).collect();
        let names: Vec<&str> = rows.iter().map(|line| line[1]).collect();
        assert_eq!(record.parameters, names, "{model}");
        for (k, line) in rows.into_iter().enumerate() {
            let number = |k: usize| line[k].parse::<f64>().unwrap();
            let chains = record.draws.parameter(k);
            let flat = chains.concat();
            let of = Chains::flat(&flat, chains.len()).unwrap();
            let mean = flat.iter().sum::<f64>() / flat.len() as f64;
            let (error, spread) = (mcse_mean(&of).hypot(number(4)), mcse_sd(&of).hypot(number(5)));
            let z = ((mean - number(2)) / error, (sd(&flat) - number(3)) / spread);
            if !(z.0.abs() < 4.9 && z.1.abs() < 4.9) {
                wrong.push(format!("{model}, {}: {mean}, {}, {z:?}", line[1], sd(&flat)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Rows whose values are missing are predicted by what their law says, for every draw: against the
/// same integral made here.
#[test]
fn what_is_missing_in_new_rows_is_integrated_over() {
    let walk = "[sampler]\nname = \"lmc\"\nstep = 1e-3\n[run]\nchains = 2\n";
    let walked = text("logistic", "ill ~ age + mi(dose) + male", "")
        .replace("[run]\n", walk)
        .replace("effective_draws = 800", "iterations = 150\nburn_in = 10");
    let record = recorded(walked);
    let encoding = record.encoding.as_ref().unwrap();
    let kept = serde_json::to_string(encoding).unwrap();
    assert_eq!(
        serde_json::from_str::<consilience_engine::encoding::Encoding>(&kept).unwrap(),
        *encoding
    );
    let model = kept::read(&kept::write(&**encoding.model())).unwrap();
    assert_eq!(*model, **encoding.model());
    let predictor = Predictor::new(&record).unwrap();
    let rows = table(
        "new rows",
        vec![
            ("age".into(), Values::Numbers((&[50.0, 50.0]).into())),
            ("male".into(), Values::Numbers((&[1.0, 1.0]).into())),
            ("dose".into(), Values::Numbers((&[f64::NAN, 3.0]).into())),
        ],
    )
    .unwrap();
    let rows = predictor.rows(&rows, None).unwrap();
    assert_eq!(rows.notes, ["dose: 1 of 2 values are missing, and integrated over."]);
    let found = predictor.predict(&rows, 0.89);
    // intercept, dose, age, male, dose ~ 1, dose ~ age, dose ~ male, sd(dose)
    let cells = encoding
        .encode(
            &table(
                "x",
                vec![
                    ("age".into(), Values::Numbers((&[50.0]).into())),
                    ("male".into(), Values::Numbers((&[1.0]).into())),
                    ("dose".into(), Values::Numbers((&[3.0]).into())),
                ],
            )
            .unwrap(),
            None,
        )
        .unwrap()
        .cells;
    let age = cells[2];
    let (mut mean, mut draws) = (0.0, 0.0);
    for draw in record.draws.rows() {
        let [b0, dose, of_age, of_male, a, a_age, a_male, s] = draw[..] else { panic!() };
        let centre = b0 + of_age * age + of_male + dose * (a + a_age * age + a_male);
        let (mut p, steps) = (0.0, 4000);
        for k in 0..steps {
            let u = -8.0 + 16.0 * (f64::from(k) + 0.5) / f64::from(steps);
            let density = (-0.5 * u * u).exp() / std::f64::consts::TAU.sqrt();
            p += 16.0 / f64::from(steps) * density / (1.0 + (-(centre + dose * s * u)).exp());
        }
        mean += p;
        draws += 1.0;
    }
    assert!((found[0][0].mean - mean / draws).abs() < 1e-6, "{}", found[0][0].mean);
    assert!((found[1][0].mean - found[0][0].mean).abs() > 0.01);
    assert_eq!(model.nuisance(8), 4);
    // cross-validation knows of it too: no row is worth more than a coin that is right
    let found = loo(&record).unwrap();
    let elpd = found.total.sum;
    assert!(found.unit == "rows" && elpd < 0.0 && elpd > 140.0 * 0.1f64.ln(), "{found:?}");
}

/// Effects of groups stand beside what is integrated over: a site draws its own, rows of its wards
/// are predicted by them, checks draw responses by both, and wards are left out one by one.
#[test]
fn effects_of_groups_go_with_values_that_are_missing() {
    let walk = "[sampler]\nname = \"lmc\"\nstep = 1e-2\n[run]\nchains = 2\n";
    let formula = "sick ~ age + mi(dose) + (1 | ward)";
    let walked = text("logistic", formula, "")
        .replace("[run]\n", walk)
        .replace("effective_draws = 800", "iterations = 60\nburn_in = 10");
    let record = recorded(walked);
    let names = ["intercept", "dose", "age", "sd(1 | ward)", "dose ~ 1", "dose ~ age", "sd(dose)"];
    assert_eq!(record.parameters, names);
    let encoding = record.encoding.as_ref().unwrap();
    let model = kept::read(&kept::write(&**encoding.model())).unwrap();
    assert_eq!(*model, **encoding.model());
    assert_eq!((model.nuisance(7), model.dim(3)), (3, 7));
    let own = effects(&record, "north", None).unwrap();
    assert_eq!((own.groups[0].as_str(), own.names.len()), ("w0", 6));
    let new = |ward: &str| {
        let number = |x: f64| Values::Numbers(vec![x].into());
        let words = Values::Words(vec![Some(ward.to_owned())]);
        let dose = number(f64::NAN);
        let columns = vec![("age".into(), number(60.0)), ("dose".into(), dose)];
        table("x", columns.into_iter().chain([("ward".into(), words)]).collect()).unwrap()
    };
    let predictor = Predictor::new(&record).unwrap();
    let unseen = predictor.predict(&predictor.rows(&new("w3"), None).unwrap(), 0.89);
    let known = predictor.of_site(&record, "north", None).unwrap();
    let rows = known.rows(&new("w3"), None).unwrap();
    let found = known.predict(&rows, 0.89);
    let cells = encoding.encode(&new("w3"), None).unwrap().cells;
    let age = cells[2];
    // over a grid: the effect is drawn, or as wide as its law
    let mean_over = |t: f64, sd: f64| {
        let (mut p, steps) = (0.0, 4000);
        for k in 0..steps {
            let u = -8.0 + 16.0 * (f64::from(k) + 0.5) / f64::from(steps);
            let density = (-0.5 * u * u).exp() / std::f64::consts::TAU.sqrt();
            p += 16.0 / f64::from(steps) * density / (1.0 + (-(t + sd * u)).exp());
        }
        p
    };
    let (mut given, mut new, mut draws) = (0.0, 0.0, 0.0);
    for (draw, effects) in record.draws.rows().zip(own.draws.rows()) {
        let [b0, dose, of_age, tau, a, a_age, s] = draw[..] else { panic!() };
        let t = b0 + of_age * age + dose * (a + a_age * age);
        given += mean_over(t + effects[3], dose * s);
        new += mean_over(t, (dose * s).hypot(tau));
        draws += 1.0;
    }
    assert!((found[0][0].mean - given / draws).abs() < 1e-6, "{}", found[0][0].mean);
    assert!((unseen[0][0].mean - new / draws).abs() < 1e-4, "{}", unseen[0][0].mean);
    assert!((given - new).abs() > 0.01 * draws);
    let left_out = loo(&record).unwrap();
    assert_eq!((left_out.unit, left_out.total.rows), ("groups", 6 + 10 + 5));
    let checked = check(&record).unwrap();
    assert!(checked.rows == 140 && !checked.statistics.is_empty());
}

/// The named ways: marked, imputed alone, refused.
#[test]
fn other_ways_have_names() {
    let names = |more: &str| {
        let config = config(text("linear", "pain ~ age + dose + weight", more)).unwrap();
        Problem::new(&config).map(|problem| problem.parameters)
    };
    let marked =
        ["intercept", "age", "dose", "dose: missing", "weight", "weight: missing", "sigma"];
    assert_eq!(names("").unwrap(), marked);
    assert_eq!(names("missing = \"mark\"\n").unwrap(), marked);
    let imputed = ["intercept", "age", "dose", "weight", "sigma"];
    assert_eq!(names("missing = \"impute\"\n").unwrap(), imputed);
    let refused = names("missing = \"refuse\"\n").unwrap_err().to_string();
    assert!(refused.contains("missing.csv, line ") && refused.contains("`dose`"), "{refused}");
    let wrong = config(text("linear", "pain ~ age", "missing = \"imput\"\n")).unwrap_err();
    assert!(wrong.to_string().contains("impute"), "{wrong}");
}

#[test]
fn what_cannot_be_integrated_is_refused_by_name() {
    for (model, formula, more, parts) in [
        (
            "linear",
            "pain ~ age + mi(dose) + (age | ward)",
            "",
            &["mi( ) goes with (1 | group)", "slopes that differ"][..],
        ),
        ("linear", "pain ~ mi(dose) + weights(age)", "", &["weights(age)", "imputed"]),
        ("linear", "pain ~ mi(dose)", "standardise = false\n", &["standardise = false"]),
        (
            "linear",
            "pain ~ mi(dose) + I(dose^2)",
            "",
            &["mi(dose)", "`dose` enters by `I(dose^2)`"],
        ),
        ("linear", "pain ~ mi(dose) + dose", "", &["twice"]),
        ("linear", "pain ~ mi(dos)", "", &["did you mean `dose`"]),
        ("linear", "pain ~ mi(male)", "", &["mi(male)", "write `male`"]),
        ("linear", "pain ~ mi(site)", "", &["mi(site)", "write `site`"]),
        ("linear", "pain ~ mi(ns(dose, 3))", "", &["ns(dose, 3)"]),
        ("cox", "Surv(age, male) ~ mi(dose)", "", &["Cox regression has no mi( )"]),
    ] {
        let error = match config(text(model, formula, more)) {
            Ok(config) => Problem::new(&config).map(|_| ()).unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        let missing: Vec<&&str> = parts.iter().filter(|part| !error.contains(**part)).collect();
        assert!(missing.is_empty(), "{model} {formula}: {missing:?} is not in\n{error}");
    }
}

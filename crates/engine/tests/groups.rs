//! Effects of groups: the posterior is that of NUTS with every effect as a parameter, a site's
//! groups are its own, and what cannot be is refused by name.
//!
//! `data/groups_reference.csv` has numbers of NumPyro, which `data/make_groups_reference.py` writes
//! with the rows; `data/slopes_reference.csv` and `data/make_slopes_reference.py` are the same
//! where slopes differ between groups, with NumPy alone, and `data/effects_reference.csv` and
//! `data/make_effects_reference.py` for models with a shape or cut points, with JAX.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows what it found

use std::path::{Path, PathBuf};

use consilience_core::measure::{Chains, mcse_mean, mcse_sd, sd};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::data::Table;
use consilience_engine::data::memory::{Values, table};
use consilience_engine::draws::{Draws, Sinks};
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

/// Three sites, whose wards have the same names.
fn text(model: &str, formula: &str) -> String {
    text_of("groups.csv", model, formula)
}

fn text_of(file: &str, model: &str, formula: &str) -> String {
    format!(
        "seed = 3\n[target]\nmodel = \"{model}\"\nformula = \"{formula}\"\nstandardise = false\n\
         prior = {{ law = \"normal(0, 2.5)\", of = {{ effects = \"half_normal(2)\"{} }} }}\n\
         [data]\nfile = \"{file}\"\nscheme = \"natural(site)\"\n\
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

/// By how much means and standard deviations are off, of what all sites share and of the effects
/// that one site draws of its own wards: what is more than 4.9 standard errors of both sides, and
/// how many parameters were compared.
fn off(record: &Record, lines: &[Vec<&str>]) -> (Vec<String>, usize) {
    let own = effects(record, "north", None).unwrap();
    assert_eq!(record.parameters.len() + own.names.len(), lines.len(), "{:?}", own.names);
    let mut wrong = Vec::new();
    for line in lines {
        let number = |k: usize| line[k].parse::<f64>().unwrap();
        let name = line[2].replace(';', ",");
        let chains = match name.strip_prefix("north ") {
            Some(name) => {
                own.draws.parameter(own.names.iter().position(|known| known == name).unwrap())
            }
            None => {
                let k = record.parameters.iter().position(|known| *known == name).unwrap();
                record.draws.parameter(k)
            }
        };
        let flat = chains.concat();
        let of = Chains::flat(&flat, chains.len()).unwrap();
        let mean = flat.iter().sum::<f64>() / flat.len() as f64;
        let (error, spread) = (mcse_mean(&of).hypot(number(5)), mcse_sd(&of).hypot(number(6)));
        let z = ((mean - number(3)) / error, (sd(&flat) - number(4)) / spread);
        if !(z.0.abs() < 4.9 && z.1.abs() < 4.9) {
            wrong.push(format!("{} {}, {name}: {mean}, {}, {z:?}", line[0], line[1], sd(&flat)));
        }
    }
    (wrong, lines.len())
}

/// The lines of a file of references that are about these two.
fn lines_of<'a>(reference: &'a str, first: &str, second: &str) -> Vec<Vec<&'a str>> {
    let lines = reference.lines().skip(1).map(|line| line.split(',').collect::<Vec<&str>>());
    lines.filter(|line| line[0] == first && line[1] == second).collect()
}

/// Intercepts and slopes of wards: one false alarm in 20,000 among 42 comparisons.
#[test]
fn slopes_are_those_of_all_effects_sampled() {
    compare_slopes(&[
        ("linear", "pain", "(x | ward)", 200),
        ("logistic", "ill", "(0 + x | ward)", 200),
    ]);
}

/// The same where effects are integrated out in a plane of hundreds of points, and fewer draws must
/// do: correlated with the intercept.
#[test]
fn slopes_of_binary_rows_are_those_of_all_effects_sampled() {
    compare_slopes(&[("logistic", "ill", "(1 + x | ward)", 60)]);
}

/// And independent of it, of counts.
#[test]
fn slopes_of_counts_are_those_of_all_effects_sampled() {
    compare_slopes(&[("poisson", "visits", "(1 + x || ward)", 60)]);
}

fn compare_slopes(all: &[(&str, &str, &str, usize)]) {
    let reference = std::fs::read_to_string(data().join("slopes_reference.csv")).unwrap();
    let mut wrong = Vec::new();
    for (model, response, part, draws) in all {
        let text = text_of("slopes.csv", model, &format!("{response} ~ x + {part}"));
        let (off, compared) = off(&recorded(text, *draws), &lines_of(&reference, model, part));
        assert!(compared > 5, "{model} {part}: {compared}");
        wrong.extend(off);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sites that walk by themselves between exchanges, with minibatches of groups: effects are
/// integrated out there as they are for the exact samplers. Means are within 0.1 standard
/// deviations of the reference, and standard deviations within 6%, beyond Monte Carlo error: the
/// bias that was forecast is less than half of that.
#[test]
fn local_steps_on_groups_have_the_posterior() {
    let reference = std::fs::read_to_string(data().join("groups_reference.csv")).unwrap();
    let sampler = "[sampler]\nname = \"vr-fald*\"\nbatch = 0.5\n[run]\n";
    let text = text("linear", "pain ~ x + (1 | ward)").replace("[run]\n", sampler);
    let record = recorded(text, 200);
    for line in lines_of(&reference, "linear", "pain") {
        let number = |k: usize| line[k].parse::<f64>().unwrap();
        let k = record.parameters.iter().position(|name| name == line[2]).unwrap();
        let chains = record.draws.parameter(k);
        let flat = chains.concat();
        let of = Chains::flat(&flat, chains.len()).unwrap();
        let mean = flat.iter().sum::<f64>() / flat.len() as f64;
        let (error, spread) = (mcse_mean(&of).hypot(number(5)), mcse_sd(&of).hypot(number(6)));
        let off = ((mean - number(3)).abs(), (sd(&flat) - number(4)).abs());
        let most = (0.1 * number(4) + 4.9 * error, 0.06 * number(4) + 4.9 * spread);
        println!("{}: {off:?} of {most:?}", line[2]);
        assert!(off.0 < most.0 && off.1 < most.1, "{}: {off:?}, {most:?}", line[2]);
    }
}

/// Intercepts of wards, drawn by their site, beside models with a shape and with cut points: one
/// false alarm in 16,000 among 64 comparisons.
#[test]
fn intercepts_are_those_of_all_effects_sampled() {
    let reference = std::fs::read_to_string(data().join("effects_reference.csv")).unwrap();
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for (model, response, more) in [
        ("logistic", "ill", ""),
        ("negative_binomial", "visits", ", shape = \"exponential(1)\""),
        ("ordinal", "level", ", cut = \"student_t(3, 0, 2.5)\""),
        ("student_t", "pain", ", sigma = \"half_normal(2)\""),
    ] {
        let text = text_of("effects.csv", model, &format!("{response} ~ x + (1 | ward)"));
        let text = text.replace("\"half_normal(2)\"", &format!("\"half_normal(2)\"{more}"));
        let levels = if model == "ordinal" { "levels = 4\n" } else { "" };
        let text = text.replace("standardise", &format!("{levels}standardise"));
        let (off, of) = off(&recorded(text, 600), &lines_of(&reference, model, response));
        wrong.extend(off);
        compared += of;
    }
    assert!(wrong.is_empty() && compared == 32, "{compared}\n{}", wrong.join("\n"));
}

/// Predictions of a row are those of a group that nobody has seen: the further out the row, the
/// more slopes matter. Against mixtures over the draws, integrated here.
#[test]
fn slopes_widen_predictions_along_their_column() {
    let walked = |model: &str, formula: &str| {
        // any draws will do
        let sampler = "[sampler]\nname = \"lmc\"\nstep = 1e-3\n[run]\nchains = 2\n";
        let text = text_of("slopes.csv", model, formula).replace("[run]\n", sampler);
        recorded(text.replace("effective_draws = 1500", "iterations = 150\nburn_in = 10"), 0)
    };
    let record = walked("linear", "pain ~ x + (x | ward)");
    let predictor = Predictor::new(&record).unwrap();
    let rows = predictor.rows(&table_of_x(&[0.0, 2.0, -3.0]), None).unwrap();
    let draws: Vec<&[f64]> = record.draws.rows().collect();
    let law = |draw: &[f64], x: f64| {
        let [a, b, sigma, first, second, rho] = draw[..] else { panic!("{:?}", record.parameters) };
        let both = 2.0 * rho * first * second * x;
        let variance = sigma * sigma + first * first + both + (second * x).powi(2);
        (a + b * x, variance.sqrt())
    };
    for (x, found) in [0.0, 2.0, -3.0].into_iter().zip(predictor.predict(&rows, 0.8)) {
        let below = |y: f64| {
            let of = |draw: &&[f64]| {
                let (mean, sd) = law(draw, x);
                normal_cdf((y - mean) / sd)
            };
            draws.iter().map(of).sum::<f64>() / draws.len() as f64
        };
        let (low, high) = (below(found[0].lower), below(found[0].upper));
        assert!((low - 0.1).abs() < 0.02 && (high - 0.9).abs() < 0.02, "{x}: {low}, {high}");
    }
    let record = walked("logistic", "ill ~ x + (0 + x | ward)");
    let predictor = Predictor::new(&record).unwrap();
    let rows = predictor.rows(&table_of_x(&[0.0, 2.0]), None).unwrap();
    for (x, found) in [0.0, 2.0].into_iter().zip(predictor.predict(&rows, 0.8)) {
        let mut mean = 0.0;
        for draw in record.draws.rows() {
            // by the midpoint rule
            for k in 0..200 {
                let z = -8.0 + 0.08 * (f64::from(k) + 0.5);
                let t = draw[0] + (draw[1] + draw[2] * z) * x;
                let density = (-0.5 * z * z).exp() / std::f64::consts::TAU.sqrt();
                mean += 0.08 * density / (1.0 + (-t).exp());
            }
        }
        mean /= record.draws.rows().count() as f64;
        assert!((found[0].mean - mean).abs() < 1e-4, "{x}: {} is not {mean}", found[0].mean);
    }
}

fn normal_cdf(z: f64) -> f64 {
    // Simpson's rule from far below
    let (n, from) = (400, -9.0);
    let h = (z.clamp(-9.0, 9.0) - from) / f64::from(n);
    let density = |k: i32| (-0.5 * (from + h * f64::from(k)).powi(2)).exp();
    let weight = |k: i32| if k == 0 || k == n { 1.0 } else { 2.0 + 2.0 * f64::from(k % 2) };
    (0..=n).map(|k| weight(k) * density(k)).sum::<f64>() * h / 3.0 / std::f64::consts::TAU.sqrt()
}

fn table_of_x(cells: &[f64]) -> Table {
    table("new rows", vec![("x".into(), Values::Numbers(cells.into()))]).unwrap()
}

fn recorded(text: String, effective: usize) -> Record {
    let text = text.replace("effective_draws = 1500", &format!("effective_draws = {effective}"));
    let config = config(text, &data()).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let outcome =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default()).unwrap();
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let mut record = Record::new(made, &config, &problem, &plan, outcome, None);
    // rows are read again from where the config is
    for file in ["slopes.csv", "groups.csv", "effects.csv"] {
        let place = data().join(file).display().to_string();
        record.config = record.config.replace(&format!("\"{file}\""), &format!("{place:?}"));
    }
    record
}

/// What is kept of a model makes it again, and the order of terms is no matter.
#[test]
fn models_with_slopes_are_kept_and_named() {
    for (formula, parameters) in [
        ("ill ~ x + (x | ward)", "intercept, x, sd(1 | ward), sd(x | ward), cor(1, x | ward)"),
        ("ill ~ pain + x + (1 + x || ward)", "intercept, x, pain, sd(1 | ward), sd(x | ward)"),
        ("ill ~ 0 + x + (x - 1 | site)", "x, sd(x | site)"),
        ("ill ~ pain*x + (0 + pain:x | ward)", "intercept, pain:x, pain, x, sd(pain:x | ward)"),
        ("ill ~ poly(x, 2) + (x || ward)", "intercept, x, I(x^2), sd(1 | ward), sd(x | ward)"),
        (
            "ill ~ . - site - visits + (x | ward)",
            "intercept, x, pain, sd(1 | ward), sd(x | ward), cor(1, x | ward)",
        ),
    ] {
        let config = config(text_of("slopes.csv", "logistic", formula), &data()).unwrap();
        let problem = Problem::new(&config).unwrap();
        assert_eq!(problem.parameters.join(", "), parameters, "{formula}");
        let model = config.target.model.of_rows().unwrap();
        let again = kept::read(&kept::write(&*model)).unwrap();
        assert!(*again == *model && again.statement() == model.statement(), "{formula}");
        assert_eq!(again.beside(), model.beside());
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
        ("logistic", "ill ~ pain + (x | ward)", "a slope without its mean over all groups"),
        ("logistic", "ill ~ x + pain + (x + pain | ward)", "several slopes that differ"),
        ("logistic", "ill ~ x + (0 | ward)", "groups without an effect"),
        ("logistic", "ill ~ x + (x - pain | ward)", "effects of this form"),
        ("logistic", "ill ~ x + C(visits) + (C(visits) | ward)", "slopes along levels"),
        ("logistic", "ill ~ x + site + (site | ward)", "the slope of `site` cannot differ"),
        ("logistic", "ill ~ x + (x | ward) + (0 + x | site)", "several effects of groups"),
        ("logistic", "ill ~ x + (1 | ward) + (1 | site)", "several effects of groups"),
        ("logistic", "ill ~ x + (1 | ward:site)", "groups by more than one column"),
        ("logistic", "ill ~ x + (1 | wrd)", "`wrd` in the formula is not a column"),
        ("cox", "Surv(x, ill) ~ pain + (1 | ward)", "has no effects of groups"),
    ] {
        let of = |config: Config| Problem::new(&config);
        let wrong = config(text(model, formula), &data()).and_then(of).unwrap_err();
        assert!(wrong.problem.contains(says), "{formula}: {wrong}");
    }
    for (of, says) in [
        ("correlation = \"normal(0, 1)\"", "correlation is a correlation, and normal(0, 1)"),
        ("correlation = \"half_normal(1)\"", "correlation is a correlation"),
        ("effects = \"lkj(2)\"", "effects is no correlation, and lkj(2) is a law of such"),
        ("corelation = \"lkj(2)\"", "no parameter or term is called \"corelation\""),
        ("correlation = \"lkj(-1)\"", "the shape of `lkj` is -1"),
    ] {
        let text = text("logistic", "ill ~ x + (x | ward)");
        let text = text.replace("effects = \"half_normal(2)\"", of);
        let of = |config: Config| Problem::new(&config);
        let wrong = config(text, &data()).and_then(of).unwrap_err();
        assert!(wrong.problem.contains(says), "{says}: {wrong}");
    }
    let coefficients = text("logistic", "ill ~ x").replace("normal(0, 2.5)", "lkj(2)");
    let coefficients = coefficients.replace(", of = { effects = \"half_normal(2)\" }", "");
    let wrong = config(coefficients, &data()).unwrap_err();
    assert!(wrong.problem.contains("is a law of correlations"), "{wrong}");
}

/// Rows of a site that took part are predicted by its own effect: against the mean over draws,
/// added up here, and narrower than those of a site that nobody has seen.
#[test]
fn a_site_that_took_part_is_predicted_by_its_own_effect() {
    let record = recorded(text("logistic", "ill ~ x + (1 | site)"), 400);
    let new =
        table("new rows", vec![("x".into(), Values::Numbers(vec![-1.0, 0.5].into()))]).unwrap();
    let anybody = Predictor::new(&record).unwrap();
    assert!(anybody.has_effects());
    let unseen = anybody.predict(&anybody.rows(&new, None).unwrap(), 0.89);
    let own = effects(&record, "south", None).unwrap();
    let predictor = Predictor::new(&record).unwrap().of_site(&record, "south", None).unwrap();
    let rows = predictor.rows(&new, None).unwrap();
    let found = predictor.predict(&rows, 0.89);
    for (row, x) in [-1.0, 0.5].into_iter().enumerate() {
        let all = record.draws.rows().zip(own.draws.rows());
        let p = all.map(|(draw, effect)| 1.0 / (1.0 + (-draw[0] - draw[1] * x - effect[0]).exp()));
        let p: Vec<f64> = p.collect();
        let mean = p.iter().sum::<f64>() / p.len() as f64;
        assert!((found[row][0].mean - mean).abs() < 1e-12, "{}, {mean}", found[row][0].mean);
        assert!(
            (unseen[row][0].mean - mean).abs() > 1e-4,
            "a site that nobody has seen is another"
        );
    }
    assert_eq!(predictor.score(&rows).unwrap(), None);
    let says = |record: &Record, site: &str| {
        let predictor = Predictor::new(record).unwrap();
        predictor.of_site(record, site, None).unwrap_err().to_string()
    };
    assert!(says(&record, "sout").contains("did you mean `south`?"), "{}", says(&record, "sout"));
    let bare = text("logistic", "ill ~ x").replace(", of = { effects = \"half_normal(2)\" }", "");
    let none = recorded(bare, 60);
    assert!(says(&none, "south").contains("the model has no effects of groups"));
}

/// Rows of wards that the site has are predicted by the effects of these, intercepts or slopes,
/// added up here; rows of another are those of a ward that nobody has seen.
#[test]
fn a_ward_of_a_site_is_predicted_by_its_own_effects() {
    for (part, along) in [("(1 | ward)", false), ("(0 + x | ward)", true)] {
        let record = recorded(text("logistic", &format!("ill ~ x + {part}")), 120);
        let own = effects(&record, "south", None).unwrap();
        assert_eq!(own.draws.dim(), own.groups.len());
        let wards = [own.groups[1].clone(), "elsewhere".into(), own.groups[0].clone()];
        let xs = vec![-1.0, 0.5, 0.25];
        let new = table(
            "new rows",
            vec![
                ("x".into(), Values::Numbers(xs.clone().into())),
                ("ward".into(), Values::Words(wards.map(Some).to_vec())),
            ],
        )
        .unwrap();
        let anybody = Predictor::new(&record).unwrap();
        let unseen = anybody.predict(&anybody.rows(&new, None).unwrap(), 0.89);
        let predictor = Predictor::new(&record).unwrap().of_site(&record, "south", None).unwrap();
        let rows = predictor.rows(&new, None).unwrap();
        assert_eq!(rows.groups, [Some(1), None, Some(0)]);
        assert!(rows.notes.iter().any(|note| note.contains("1 of 3 rows are of a `ward`")));
        let found = predictor.predict(&rows, 0.89);
        for (row, group) in [(0, 1), (2, 0)] {
            let x = xs[row];
            let all = record.draws.rows().zip(own.draws.rows());
            let p = all.map(|(draw, effects)| {
                let t = draw[0] + draw[1] * x + effects[group] * if along { x } else { 1.0 };
                1.0 / (1.0 + (-t).exp())
            });
            let p: Vec<f64> = p.collect();
            let mean = p.iter().sum::<f64>() / p.len() as f64;
            let found = found[row][0].mean;
            assert!((found - mean).abs() < 1e-12, "{part}: {found}, {mean}");
        }
        assert!((found[1][0].mean - unseen[1][0].mean).abs() < 1e-12, "{part}");
        let bare = table("bare", vec![("x".into(), Values::Numbers(xs.into()))]).unwrap();
        let says = predictor.rows(&bare, None).unwrap_err().to_string();
        assert!(says.contains("do not say their `ward`"), "{says}");
    }
}

//! Responses with parameters beside their coefficients have the likelihood that scipy computes, and
//! draws are kept on the natural scale, wherever they come from.
//!
//! `data/responses.csv` has numbers of scipy.stats, which `data/make_responses_reference.py`
//! writes.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::model::{Design, Law, Prior, Single};
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::models::{MODELS, from_settings};
use consilience_engine::plan::Plan;
use consilience_engine::predict::Predictor;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::{run, statistics};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// The reference's numbers of one model and name.
fn reference(model: &str, what: &str) -> Vec<f64> {
    let text = std::fs::read_to_string(data().join("responses.csv")).unwrap();
    let found: Vec<f64> = text
        .lines()
        .map(|line| line.split(',').collect::<Vec<_>>())
        .filter(|fields| fields[0] == model && fields[1] == what)
        .map(|fields| fields[3].parse().unwrap())
        .collect();
    assert!(!found.is_empty(), "{model} {what}");
    found
}

#[test]
fn likelihoods_are_those_of_scipy() {
    for (name, settings) in [
        ("linear", ""),
        ("student_t", "degrees_of_freedom = 7"),
        ("negative_binomial", ""),
        ("weibull", ""),
        ("ordinal", "levels = 4"),
    ] {
        let model = from_settings(&format!("model = \"{name}\"\n{settings}")).unwrap();
        let design = Design::dense(reference(name, "x"), 2).unwrap();
        let y = reference(name, "y");
        let potential = model.potential(design.clone(), y.clone()).unwrap();
        let (at, logs, d) = (reference(name, "at"), reference(name, "log"), potential.dim());
        let mut offsets = Vec::new();
        for (point, logs) in at.chunks_exact(d).zip(logs.chunks_exact(y.len())) {
            let (predictors, beside) = (model.predictors_of(&design, point), model.split(point).1);
            for ((t, y), expected) in predictors.iter().zip(&y).zip(logs) {
                let found = model.log_density(*t, beside, *y);
                let near = (found - expected).abs() < 1e-10 * (1.0 + expected.abs());
                assert!(near, "{name}, {y}: {found} is not {expected}");
            }
            // the potential is minus their sum, up to a constant of the responses
            let mut u = point.to_vec();
            model.transforms(d).inward(&mut u);
            offsets.push(Single::new(&potential).value(&u) + logs.iter().sum::<f64>());
        }
        let apart = (offsets[0] - offsets[1]).abs();
        assert!(apart < 1e-9 * (1.0 + offsets[0].abs()), "{name}: {offsets:?}");
    }
}

/// Twelve rows around a line, at two sites.
const ROWS: &str = "site,x,y\n\
    a,0.1,1.3\na,0.9,2.9\na,1.7,4.0\na,-0.6,0.4\na,-1.2,-1.8\na,0.4,1.6\n\
    b,1.1,3.1\nb,-0.2,0.2\nb,0.7,2.1\nb,2.0,5.3\nb,-1.6,-1.9\nb,0.0,1.1\n";

fn config(folder: &Path, target: &str, sampler: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "seed = 4\n[target]\nformula = \"y ~ x\"\nstandardise = false\n{target}\n\
         [data]\nfile = \"rows.csv\"\nscheme = \"natural(site)\"\n[sampler]\n{sampler}\n"
    );
    Config::parse(Source { file: "run.toml".into(), folder: folder.into(), text })
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("responses-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("rows.csv"), ROWS).unwrap();
    folder
}

fn drawn(config: &Config) -> (Problem, Draws) {
    let problem = Problem::new(config).unwrap();
    let plan = Plan::new(config, &problem).unwrap();
    let progress = run::Progress::default();
    let outcome = run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &progress).unwrap();
    (problem, outcome.draws)
}

fn moments(draws: &Draws, k: usize) -> (f64, f64) {
    let all: Vec<f64> = draws.parameter(k).concat();
    let n = all.len() as f64;
    let mean = all.iter().sum::<f64>() / n;
    (mean, (all.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / (n - 1.0)).sqrt())
}

/// With flat priors sigma squared is RSS over a chi-square of `n - p - 1` degrees of freedom: flat
/// on sigma, not on its logarithm, which would be one degree more. So E sigma is known exactly.
#[test]
fn sigma_has_its_exact_law_under_flat_priors() {
    let folder = folder("exact");
    let prior = "prior = { law = \"flat\", of = { sigma = \"flat\" } }";
    let (problem, draws) = drawn(&config(&folder, prior, "name = \"auto\"").unwrap());
    assert_eq!(problem.parameters, ["intercept", "x", "sigma"]);
    // least squares by hand
    let rows: Vec<(f64, f64)> = ROWS
        .lines()
        .skip(1)
        .map(|line| line.split(',').skip(1).map(|v| v.parse().unwrap()).collect::<Vec<f64>>())
        .map(|v| (v[0], v[1]))
        .collect();
    let n = rows.len() as f64;
    let (sx, sy) = (rows.iter().map(|r| r.0).sum::<f64>(), rows.iter().map(|r| r.1).sum::<f64>());
    let sxx = rows.iter().map(|r| r.0 * r.0).sum::<f64>() - sx * sx / n;
    let sxy = rows.iter().map(|r| r.0 * r.1).sum::<f64>() - sx * sy / n;
    let slope = sxy / sxx;
    let intercept = (sy - slope * sx) / n;
    let rss: f64 = rows.iter().map(|r| (r.1 - intercept - slope * r.0).powi(2)).sum();
    let df = n - 2.0 - 1.0;
    // E sigma = sqrt(RSS / 2) gamma((df - 1) / 2) / gamma(df / 2); E sigma^2 = RSS / (df - 2)
    let ln_gamma = consilience_core::measure::ln_gamma;
    let mean = (rss / 2.0).sqrt() * (ln_gamma(0.5 * (df - 1.0)) - ln_gamma(0.5 * df)).exp();
    let sd = (rss / (df - 2.0) - mean * mean).sqrt();
    let (found, spread) = moments(&draws, 2);
    // about 4,000 effective draws: 4.9 standard errors, those of an sd twice as wide for its tail
    assert!((found - mean).abs() < 4.9 * sd / 60.0, "{found} is not {mean}");
    assert!((spread / sd - 1.0).abs() < 0.12, "{spread} is not {sd}");
    assert!((moments(&draws, 1).0 - slope).abs() < 0.02, "{}", moments(&draws, 1).0);
    assert!(draws.parameter(2).concat().iter().all(|sigma| *sigma > 0.0));
    // and the log-density of a draw is that of the scale on which chains move
    let lp = statistics::log_density(&problem.target, &draws).unwrap();
    let first: Vec<f64> = draws.rows().next().unwrap().to_vec();
    let likelihood: f64 = rows
        .iter()
        .map(|r| -0.5 * ((r.1 - first[0] - first[1] * r.0) / first[2]).powi(2) - first[2].ln())
        .sum();
    assert!((lp.values[0][0] - (likelihood + first[2].ln())).abs() < 1e-9);
}

/// Every family keeps draws on the natural scale, and agrees on sigma.
#[test]
fn samplers_of_all_families_agree_on_sigma() {
    let folder = folder("families");
    let (_, exact) = drawn(&config(&folder, "", "name = \"imh\"").unwrap());
    let (mean, sd) = moments(&exact, 2);
    for sampler in ["name = \"hmc\"", "name = \"lmc\"", "name = \"fald\""] {
        let (_, draws) = drawn(&config(&folder, "", sampler).unwrap());
        let (found, _) = moments(&draws, 2);
        assert!((found - mean).abs() < 0.2 * sd, "{sampler}: {found} is not {mean} +- {sd}");
    }
}

#[test]
fn priors_are_refused_with_the_nearest_right_name() {
    let folder = folder("refused");
    let refused = |prior: &str| {
        let config = config(&folder, &format!("prior = {{ {prior} }}"), "name = \"auto\"");
        let error = config.and_then(|config| Problem::new(&config).map(|_| ())).unwrap_err();
        error.to_string()
    };
    for (prior, expected) in [
        ("law = \"norml(0, 1)\"", "did you mean `normal`?"),
        ("law = \"cuachy(0, 1)\"", "did you mean `cauchy`?"),
        ("law = \"normal(0)\"", "`normal` is given 1 numbers"),
        ("law = \"normal(0, -1)\"", "the sd of `normal` is -1"),
        ("law = \"normal(0, x)\"", "which is no number"),
        ("law = \"normal(0, 1\"", "has no `)`"),
        ("law = \"half_cauchy(1)\"", "is a law of numbers above 0"),
        ("of = { sigmma = \"half_cauchy(1)\" }", "did you mean `sigma`?"),
        ("of = { sigma = \"normal(0, 1)\" }", "sigma is above 0"),
        ("of = { x = \"exponential(1)\" }", "x may be below 0"),
        ("of = { z = \"normal(0, 1)\" }", "no parameter or term is called \"z\""),
        ("of = 3", "is no table of laws"),
    ] {
        let found = refused(prior);
        assert!(found.contains(expected), "{prior}: {found}");
    }
}

/// A response a thousand times as large has coefficients and a sigma a thousand times as large.
#[test]
fn usual_priors_are_in_units_of_the_response() {
    let prior = |by: f64, name: &str| {
        let folder = folder(name);
        let scaled = ROWS.lines().enumerate().map(|(k, line)| match k {
            0 => line.to_owned(),
            _ => {
                let (rest, y) = line.rsplit_once(',').unwrap();
                format!("{rest},{}", by * y.parse::<f64>().unwrap())
            }
        });
        std::fs::write(folder.join("rows.csv"), scaled.collect::<Vec<_>>().join("\n")).unwrap();
        let config = config(&folder, "", "name = \"auto\"").unwrap();
        let problem = Problem::new(&config).unwrap();
        let Prior::Laws(laws) = &problem.target.prior else { panic!("{:?}", problem.target.prior) };
        assert!(problem.notes.last().unwrap().starts_with("Prior: intercept normal("));
        (laws.laws().to_vec(), problem.origin)
    };
    let ((one, here), (thousand, there)) = (prior(1.0, "francs"), prior(1000.0, "thousands"));
    assert_eq!(one.len(), 3);
    for (one, thousand) in one.iter().zip(&thousand) {
        let (a, b) = (one.scaled(1000.0), thousand);
        for x in [0.3, 7.0, 900.0] {
            assert!((a.slope(x) / b.slope(x) - 1.0).abs() < 1e-9, "{a:?} is not {b:?}");
        }
    }
    assert!((there[0] / here[0] - 1000.0).abs() < 1e-6);
    assert!((there[2] - here[2] - 1000.0f64.ln()).abs() < 1e-9);
}

#[test]
fn laws_by_name_move_the_posterior_as_they_should() {
    let folder = folder("named");
    let mean = |prior: &str| {
        let target = format!("prior = {{ {prior} }}");
        let (_, draws) = drawn(&config(&folder, &target, "name = \"auto\"").unwrap());
        moments(&draws, 1).0
    };
    let flat = mean("law = \"flat\"");
    let narrow = mean("law = \"flat\", of = { x = \"normal(0, 0.1)\" }");
    let around = mean("law = \"flat\", of = { x = \"normal(5, 0.01)\" }");
    let heavy = mean("law = \"flat\", of = { coefficients = \"cauchy(0, 0.1)\" }");
    let sharp = mean("law = \"laplace(0, 0.02)\", of = { intercept = \"flat\" }");
    assert!(narrow < 0.5 * flat && (around - 5.0).abs() < 0.05, "{flat} {narrow} {around}");
    assert!(heavy > 0.8 * flat && heavy < flat, "{heavy} {flat}");
    assert!(sharp < 0.98 * flat, "{sharp} {flat}");
}

fn by(folder: &Path, target: &str, sampler: &str) -> Result<Config, ConfigError> {
    let text = format!(
        "[target]\n{target}\n[data]\nfile = \"rows.csv\"\nscheme = \"natural(site)\"\n\
         [sampler]\n{sampler}\n"
    );
    Config::parse(Source { file: "run.toml".into(), folder: folder.into(), text })
}

/// Columns that a formula computes are computed of new rows, too, with or without their response.
#[test]
fn computed_columns_are_those_of_new_rows_too() {
    let folder = folder("computed");
    let target = "formula = \"exp(y) ~ I(x^2) + x:site_b - 1\"\nstandardise = false";
    let rows = ROWS.replace("site,", "site,site_b,").replace("\na,", "\na,0,");
    let rows = rows.replace("\nb,", "\nb,1,");
    std::fs::write(folder.join("rows.csv"), rows).unwrap();
    let config = by(&folder, target, "name = \"auto\"").unwrap();
    let problem = Problem::new(&config).unwrap();
    assert_eq!(problem.parameters, ["I(x^2)", "x:site_b", "sigma"]);
    let plan = Plan::new(&config, &problem).unwrap();
    let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
    let progress = run::Progress::default();
    let mut outcome = run::sample(&plan, &length, 1, Sinks::Memory, &progress).unwrap();
    outcome.draws = Draws::from_chains(vec![vec![2.0, -3.0, 0.5]], 3);
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let record = Record::new(made, &config, &problem, &plan, outcome, None);
    let predictor = Predictor::new(&record).unwrap();
    let new = folder.join("new.csv");
    std::fs::write(&new, "site_b,x\n1,2\n0,3\n").unwrap();
    let found = predictor.read(&new, None).unwrap();
    assert!(found.labels.is_empty());
    let means: Vec<f64> = predictor.predict(&found, 0.89).iter().map(|p| p[0].mean).collect();
    assert_eq!(means, [2.0 * 4.0 - 3.0 * 2.0, 2.0 * 9.0]);
    std::fs::write(&new, "site_b,x,y\n1,2,0\n").unwrap();
    assert_eq!(predictor.read(&new, None).unwrap().labels, [(0, 1.0)]);
    std::fs::write(&new, "site_b\n1\n").unwrap();
    assert!(predictor.read(&new, None).unwrap_err().to_string().contains("`x`"));
}

/// Two sites with hazards of their own: rows are compared within a site alone, so that times of one
/// site may be in any unit. Minibatches are refused by name.
#[test]
fn sites_are_strata_of_cox_regression() {
    let rows = |unit: f64| {
        let of = |(k, (site, x)): (usize, (&str, f64))| {
            let time = (k * 7 % 11 + 1) as f64 * if site == "b" { unit } else { 1.0 };
            format!("{site},{x},{time},{}\n", u8::from(k % 4 != 1))
        };
        let all = (0..22).map(|k| (if k < 12 { "a" } else { "b" }, (k * 5 % 7) as f64));
        let lines: String = all.enumerate().map(of).collect();
        format!("site,x,time,status\n{lines}")
    };
    let value = |unit: f64| {
        let folder = folder("strata");
        std::fs::write(folder.join("rows.csv"), rows(unit)).unwrap();
        let target = "model = \"cox\"\nformula = \"Surv(time, status) ~ x\"";
        let problem = Problem::new(&by(&folder, target, "name = \"auto\"").unwrap()).unwrap();
        assert_eq!(problem.parameters, ["x"]);
        let config = by(&folder, target, "name = \"sgld\"\nbatch = 2").unwrap();
        let refused = Plan::new(&config, &problem).unwrap_err().to_string();
        assert!(refused.contains("Cox regression compares every row with all others"), "{refused}");
        problem.target.value(&[0.4])
    };
    assert_eq!(value(1.0), value(1000.0));
}

/// Times in days and in seconds: the intercept's usual prior lies around the mean of their
/// logarithms, and moves with them.
#[test]
fn units_of_time_make_no_difference() {
    let folder = std::env::temp_dir().join(format!("consilience-units-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let times = [3.0, 11.5, 7.25, 30.0, 2.0, 18.0, 9.0, 41.0];
    let laws = |unit: f64| {
        let row = |(k, time): (usize, &f64)| {
            let (site, seen) = (["a", "b"][k % 2], u8::from(k % 3 != 0));
            format!("{site},{},{seen},{}\n", time * unit, k % 5)
        };
        let rows: String = times.iter().enumerate().map(row).collect();
        std::fs::write(folder.join("rows.csv"), format!("site,time,status,x\n{rows}")).unwrap();
        let text = "[target]\nmodel = \"weibull\"\nformula = \"Surv(time, status) ~ x\"\n\
            [data]\nfile = \"rows.csv\"\nscheme = \"natural(site)\"\n";
        let (file, folder) = ("run.toml".into(), folder.clone());
        let config = Config::parse(Source { file, folder, text: text.into() }).unwrap();
        let problem = Problem::new(&config).unwrap();
        let Prior::Laws(laws) = &problem.target.prior else { panic!("{:?}", problem.notes) };
        let Law::Normal { mean, sd } = laws.laws()[0] else { panic!("{laws:?}") };
        assert_eq!((problem.parameters[0].as_str(), sd), ("intercept", 2.5));
        assert_eq!(laws.laws()[1], Law::Normal { mean: 0.0, sd: 2.5 });
        assert_eq!(problem.origin[0], mean, "and the search begins there");
        mean
    };
    let (days, seconds) = (laws(1.0), laws(86_400.0));
    let logs: f64 = times.iter().map(|time| time.ln()).sum::<f64>() / times.len() as f64;
    assert!((days - logs).abs() < 1e-12 && (seconds - days - 86_400f64.ln()).abs() < 1e-9);
    std::fs::remove_dir_all(folder).unwrap();
}

/// What predictions say of every level: differences of logistic functions, averaged over draws.
#[test]
fn levels_have_their_probabilities() {
    let folder = std::env::temp_dir().join(format!("consilience-levels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let rows = "site,x,y\na,0.1,1\na,0.9,2\na,-1.2,3\nb,1.1,1\nb,-0.2,2\nb,0.4,3\n";
    std::fs::write(folder.join("rows.csv"), rows).unwrap();
    let text = "[target]\nmodel = \"ordinal\"\nlevels = 3\nformula = \"y ~ x\"\n\
        standardise = false\n[data]\nfile = \"rows.csv\"\nscheme = \"natural(site)\"\n";
    let (file, source) = ("run.toml".into(), folder.clone());
    let config = Config::parse(Source { file, folder: source, text: text.into() }).unwrap();
    let problem = Problem::new(&config).unwrap();
    let all = [[0.7, -1.0, 0.5], [-0.2, 0.1, 0.4]];
    let draws = Draws::from_chains(vec![all.concat()], 3);
    let encoding = problem.encoding.as_ref();
    let predictor = Predictor::of(encoding, text, &problem.parameters, &draws).unwrap();
    let new = predictor.read(&folder.join("rows.csv"), None).unwrap();
    let (levels, means) = (predictor.levels(&new, 0.89), predictor.predict(&new, 0.89));
    assert_eq!((levels.len(), means.len()), (6, 6));
    for ((x, levels), mean) in [0.1, 0.9, -1.2, 1.1, -0.2, 0.4].iter().zip(&levels).zip(&means) {
        let mut expected = [0.0; 3];
        for [b, first, second] in all {
            let below = |cut: f64| 1.0 / (1.0 + (b * x - cut).exp());
            let (one, two) = (below(first), below(second));
            for (sum, p) in expected.iter_mut().zip([one, two - one, 1.0 - two]) {
                *sum += 0.5 * p;
            }
        }
        for (found, expected) in levels.iter().zip(expected) {
            assert!((found.mean - expected).abs() < 1e-12 && found.lower <= found.upper);
        }
        let level = levels.iter().zip(1..).map(|(p, k)| p.mean * f64::from(k)).sum::<f64>();
        assert!((level - mean[0].mean).abs() < 1e-12, "{level}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Wherever a proposal may lie, a row is possible or not: a loss is never without a value, nor
/// without a bound below, and a served run would wait for ever for one that is.
#[test]
fn losses_have_a_value_wherever_parameters_are() {
    let (mut asked, mut wrong) = (0, Vec::new());
    for row in MODELS.iter().filter(|row| row.by_formula) {
        let model = from_settings(&format!("model = \"{}\"\n{}", row.name, row.example)).unwrap();
        let Some(loss) = model.loss() else { continue };
        let (count, transforms) = loss.beside();
        for z in [-800.0, -60.0, -3.0, 0.0, 3.0, 6.8, 60.0, 800.0] {
            let mut beside = vec![z; count];
            transforms.outward(&mut beside);
            for t in [-1e8, -800.0, -40.0, -1.0, 0.0, 0.5, 40.0, 800.0, 1e8] {
                let all = [-3.5, -0.1, 0.0, 0.5, 1.0, 2.0, 3.0, 40.0];
                for y in all.into_iter().filter(|y| loss.accepts(*y)) {
                    let found = loss.loss(t, &beside, y);
                    asked += 1;
                    if found.is_nan() || found < -1e15 {
                        wrong.push(format!("{} at {t}, {z}, {y}: {found}", row.name));
                    }
                }
            }
        }
    }
    assert!(asked > 1500 && wrong.is_empty(), "{asked} {wrong:#?}");
}

//! Responses drawn anew at the sites look as NumPy's do on the same draws, R^2 is ArviZ's, the area
//! under the curve lies within its bounds, a model that does not fit is told with what helps, and
//! one that does is not.
//!
//! `data/check_reference.csv` is written by `data/make_check_reference.py`, of the rows of
//! `data/offsets.csv` and the draws of `data/loo_draws.csv`.
#![allow(clippy::unwrap_used)] // a test may panic

mod published;

use std::path::Path;

use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_engine::check::{
    Check, CheckPart, DOUBTFUL, FirstPart, check, check_at, first_at, merge, prior_check,
};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::loo::{LooError, read_part, text_of_part};
use consilience_engine::models::{MODELS, RowAt, from_settings};
use consilience_engine::plan::Plan;
use consilience_engine::prior_draws::prior_draws;
use consilience_engine::problem::Problem;
use consilience_engine::random::Random;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;
use consilience_engine::session::{Control, Session};
use published::{data, records};

/// The draws of one model, chain by chain.
fn draws(model: &str) -> Draws {
    let text = std::fs::read_to_string(data().join("loo_draws.csv")).unwrap();
    let (mut chains, mut dim) = (vec![Vec::new(); 4], 0);
    for line in text.lines().map(|line| line.split(',').collect::<Vec<_>>()) {
        if line[0] == model {
            let values: Vec<f64> = line[3].split(' ').map(|v| v.parse().unwrap()).collect();
            dim = values.len();
            chains[line[1].parse::<usize>().unwrap()].extend(values);
        }
    }
    Draws::from_chains(chains, dim)
}

fn config(target: &str, rows: &str) -> Config {
    let text = format!("[target]\n{target}\n{rows}\n[sampler]\nname=\"lmc\"");
    Config::parse(Source { file: "run.toml".into(), folder: data(), text }).unwrap()
}

/// The record of a run that has these draws.
fn record(target: &str, rows: &str, draws: Draws) -> Record {
    let config = config(&format!("standardise = false\n{target}"), rows);
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
    let mut outcome = run::sample(&plan, &length, 1, Sinks::Memory, &Default::default()).unwrap();
    outcome.draws = draws;
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    Record::new(made, &config, &problem, &plan, outcome, None)
}

const SITES: &str = "[data]\nfile = \"offsets.csv\"\nscheme = \"natural(site)\"";

fn target(model: &str) -> String {
    let formula = match model {
        "logistic" => "ill ~ x + offset(log(days / 100))",
        "linear" => "visits ~ x",
        _ => "visits ~ x + offset(log(days / 100))",
    };
    format!("model = \"{model}\"\nformula = \"{formula}\"")
}

/// Means over replicates within 4.9 standard errors (600 replicates here, 24,000 there), p
/// likewise.
#[test]
fn replicates_are_those_of_numpy() {
    let text = std::fs::read_to_string(data().join("check_reference.csv")).unwrap();
    let mut compared = 0;
    for model in ["poisson", "negative_binomial", "logistic", "linear"] {
        let found = check(&record(&target(model), SITES, draws(model))).unwrap();
        assert_eq!((found.replicates, found.prior), (600, false));
        for line in text.lines().map(|line| line.split(',').collect::<Vec<_>>()) {
            if line[0] != model {
                continue;
            }
            let [observed, replicated, sd, p]: [f64; 4] =
                std::array::from_fn(|k| line[2 + k].parse().unwrap());
            compared += 1;
            if line[1] == "R^2" {
                let fit = found.fit.as_ref().unwrap();
                assert_eq!(fit.measure, "Bayesian R^2");
                assert!((fit.value - observed).abs() < 1e-9, "{model}: {fit:?} is not {observed}");
                continue;
            }
            if line[1] == "AUC" {
                let fit = found.fit.as_ref().unwrap();
                assert!(fit.lower <= observed && observed <= fit.upper, "{fit:?}, {observed}");
                assert!(fit.measure == "AUC" && fit.upper - fit.lower < 0.03, "{fit:?}");
                continue;
            }
            let all = match line[1].strip_prefix("site ") {
                Some(site) => found.sites.iter().find(|of| of.name == site),
                None => found.statistics.iter().find(|of| of.name == line[1]),
            };
            let ours = all.unwrap_or_else(|| panic!("{model}: {}", line[1]));
            assert!((ours.observed - observed).abs() < 1e-9 * observed.abs().max(1.0), "{line:?}");
            let error = 4.9 * sd * (1.0f64 / 600.0 + 1.0 / 24_000.0).sqrt();
            assert!((ours.replicated - replicated).abs() < error, "{ours:?}: {line:?}");
            let error = 2.0 * 4.9 * (p.max(0.01) / 600.0).sqrt() + 2.0 / 601.0;
            assert!((ours.p - p).abs() < error, "{ours:?}: {line:?}");
        }
    }
    assert_eq!(compared, 7 + 7 + 4 + 7);
}

/// Counts are of rows, wherever these are.
#[test]
fn what_is_observed_does_not_depend_on_who_has_it() {
    let here = check(&record(&target("poisson"), SITES, draws("poisson"))).unwrap();
    let dealt = "[data]\nfile = \"offsets.csv\"\nclients = 7";
    let there = check(&record(&target("poisson"), dealt, draws("poisson"))).unwrap();
    assert_eq!((here.sites.len(), there.sites.len(), here.rows), (3, 7, there.rows));
    let seen = |all: &Check| -> Vec<(String, u64)> {
        all.bins.iter().map(|bin| (bin.name.clone(), bin.observed as u64)).collect()
    };
    assert_eq!(seen(&here), seen(&there));
    assert_eq!(seen(&here).iter().map(|bin| bin.1).sum::<u64>(), here.rows);
    let (a, b) = (here.fit.unwrap(), there.fit.unwrap());
    assert!((a.value - b.value).abs() < 1e-12, "{a:?} {b:?}");
}

fn normals(address: u64, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(11).stream(Purpose::Data, SERVER, address).normals(&mut z);
    z
}

/// Run a config on made-up rows to its record.
fn ran(name: &str, target: &str, rows: &str) -> Record {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(format!("{name}.csv")), rows).unwrap();
    let text = format!(
        "[target]\n{target}\n[data]\nfile = \"{name}.csv\"\nscheme = \"natural(site)\"\n[run]\n\
         effective_draws = 400\n"
    );
    let config = Config::parse(Source { file: "run.toml".into(), folder, text }).unwrap();
    let planned = Session::new(config).unwrap().plan().unwrap();
    planned.run(&Default::default(), Control::default()).unwrap().record
}

fn doubts(record: &Record) -> Vec<String> {
    let of = |warning: &consilience_engine::warnings::Warning| {
        (warning.code.name() == "model-misfit").then(|| warning.to_string())
    };
    record.warnings.iter().filter_map(of).collect()
}

/// So many rows of three sites: a covariate, and a response that this makes of it and of noise.
fn rows(n: usize, response: impl Fn(usize, f64, f64) -> f64) -> String {
    let (x, z) = (normals(1, n), normals(2, n));
    let site = |k: usize| ["bern", "chur", "visp"][k % 3];
    let row = |k: usize| format!("{},{},{}\n", site(k), x[k], response(k, x[k], z[k]));
    format!("site,x,y\n{}", (0..n).map(row).collect::<String>())
}

/// Every doubt has its remedy, and the right model has none.
#[test]
fn misfits_are_told_with_what_helps() {
    // geometric counts: negative binomial ones of shape 1
    let counts = rows(300, |_, x, z| {
        let mean = (1.2 + 0.3 * x).exp();
        (uniform(z).ln() / (mean / (1.0 + mean)).ln()).floor()
    });
    let poisson = "model = \"poisson\"\nformula = \"y ~ x\"";
    let record = ran("counts", poisson, &counts);
    let said = doubts(&record);
    assert_eq!(said.len(), 1, "{:?}", record.warnings);
    assert!(said[0].contains("standard deviation is"), "{said:?}");
    assert!(said[0].contains("Use model = \"negative_binomial\""), "{said:?}");
    let check = record.check.unwrap();
    let spread = check.statistics.iter().find(|of| of.name == "standard deviation").unwrap();
    assert!(spread.p < DOUBTFUL && spread.observed > spread.upper, "{spread:?}");
    let better = ran("counts", "model = \"negative_binomial\"\nformula = \"y ~ x\"", &counts);
    assert!(better.check.is_some() && doubts(&better).is_empty(), "{:?}", doubts(&better));

    let line = "formula = \"y ~ x\"";
    let right = ran("line", line, &rows(300, |_, x, z| 2.0 + x + z));
    assert!(right.check.is_some() && doubts(&right).is_empty(), "{:?}", doubts(&right));
    let outliers = rows(300, |k, x, z| 2.0 + x + if k % 30 == 7 { 9.0 * z } else { 0.5 * z });
    let said = doubts(&ran("outliers", line, &outliers));
    assert!(said[0].contains("student_t"), "{said:?}");

    let apart = rows(90, |k, x, z| 2.0 + x + z + [0.0, 2.0, -1.0][k % 3]);
    let said = doubts(&ran("apart", line, &apart));
    assert!(said[0].contains("site") && said[0].contains("(1 | site)"), "{said:?}");
    let mended = ran("apart", "formula = \"y ~ x + (1 | site)\"", &apart);
    assert!(mended.check.is_some() && doubts(&mended).is_empty(), "{:?}", doubts(&mended));
}

/// Events of times that are Weibull, a third of them censored, look as they should; hazards that
/// come in two waves do not.
#[test]
fn events_are_counted_where_times_are_censored() {
    let made = |peak: bool| {
        let (x, z, c) = (normals(1, 400), normals(2, 400), normals(3, 400));
        let row = |k: usize| {
            let time = match peak {
                true => (1.0 + 0.3 * x[k] + 1.2f64.copysign(z[k]) + 0.15 * z[k]).exp(),
                false => (1.0 + 0.3 * x[k]).exp() * (-uniform(z[k]).ln()).powf(1.0 / 1.5),
            };
            let seen = (1.5 + 0.8 * c[k]).exp();
            let site = ["bern", "chur"][k % 2];
            format!("{site},{},{},{}\n", x[k], time.min(seen), u8::from(time <= seen))
        };
        format!("site,x,time,status\n{}", (0..400).map(row).collect::<String>())
    };
    let weibull = "model = \"weibull\"\nformula = \"Surv(time, status) ~ x\"";
    let right = ran("weibull", weibull, &made(false));
    let check = right.check.as_ref().unwrap();
    assert_eq!((check.unit.as_str(), check.rows), ("events", 400));
    assert!(doubts(&right).is_empty(), "{:?}", doubts(&right));
    let said = doubts(&ran("peaked", weibull, &made(true)));
    assert!(said[0].contains("model = \"cox\""), "{said:?}");
}

/// A normal number as a uniform one: its distribution function, by the series of Abramowitz and
/// Stegun (7.1.26), to 1e-7.
fn uniform(z: f64) -> f64 {
    let x = z / 2f64.sqrt();
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let series = [0.254_829_592, -0.284_496_736, 1.421_413_741, -1.453_152_027, 1.061_405_429];
    let sum = series.iter().rev().fold(0.0, |sum, a| (sum + a) * t);
    0.5 * (1.0 + (1.0 - sum * (-x * x).exp()).copysign(x))
}

/// Parameters of the prior have the laws that are stated: means and sds within 4.9 standard errors.
#[test]
fn priors_are_drawn_as_they_are_stated() {
    let target = "model = \"ordinal\"\nlevels = 3\nformula = \"level ~ x\"\n[target.prior]\n\
        law = \"student_t(9, 1, 2)\"\nof = { cut = \"normal(0, 1)\" }";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("check");
    std::fs::create_dir_all(&folder).unwrap();
    let rows = "site,x,level\na,0.1,1\na,-1.2,2\na,0.7,3\nb,0.4,1\nb,1.9,3\nb,-0.8,2\n";
    std::fs::write(folder.join("levels.csv"), rows).unwrap();
    let text =
        format!("[target]\n{target}\n[data]\nfile = \"levels.csv\"\nscheme=\"natural(site)\"");
    let config = Config::parse(Source { file: "run.toml".into(), folder, text }).unwrap();
    let problem = Problem::new(&config).unwrap();
    let n = 20_000;
    let draws = prior_draws(&problem, n, 3).unwrap();
    let all: Vec<&[f64]> = draws.rows().collect();
    // the smaller and the larger of two normals: means -1/sqrt(pi) and 1/sqrt(pi), variance
    // 1 - 1/pi; a Student of 9 degrees has the variance 9/7
    let pi = std::f64::consts::PI;
    let least = pi.sqrt().recip();
    for (k, mean, variance) in
        [(0, 1.0, 4.0 * 9.0 / 7.0), (1, -least, 1.0 - 1.0 / pi), (2, least, 1.0 - 1.0 / pi)]
    {
        let found = all.iter().map(|draw| draw[k]).sum::<f64>() / n as f64;
        let spread = all.iter().map(|draw| (draw[k] - mean).powi(2)).sum::<f64>() / n as f64;
        let error = (variance / n as f64).sqrt();
        assert!((found - mean).abs() < 4.9 * error, "{k}: {found} is not {mean}");
        // the fourth moment of a Student of 9 degrees is (3 + 6/5) variances squared
        assert!((spread / variance - 1.0).abs() < 4.9 * (3.2 / n as f64).sqrt(), "{k}: {spread}");
    }
    assert!(all.iter().all(|draw| draw[1] < draw[2]));
    let before = prior_check(&config).unwrap();
    assert!(before.prior && before.replicates == 1000 && before.warning().is_none());
    assert_eq!(before.bins.len(), 3);
}

#[test]
fn what_cannot_be_drawn_anew_is_refused_with_what_can() {
    let says = |target: &str, draws: Draws| {
        check(&record(target, SITES, draws)).map(|_| ()).unwrap_err().to_string()
    };
    let cox = "model = \"cox\"\nformula = \"Surv(days, ill) ~ x\"";
    let said = says(cox, Draws::from_chains(vec![vec![0.1; 400]; 2], 1));
    assert!(said.contains("model = \"weibull\""), "{said}");
    let weighted = "model = \"linear\"\nformula = \"visits ~ x + weights(2 + 0 * x)\"";
    assert!(says(weighted, draws("linear")).contains("rows have weights"));
    // rows of a run with a budget are not read again
    let mut private = record(&target("poisson"), SITES, draws("poisson"));
    private.config = "[target]\nmodel = \"logistic\"\n[target.prior]\nlaw = \"gaussian\"\n\
        variance = 4.0\n[[client]]\nname = \"north\"\nrows = [[0.2, 1.0, 1], [-1.1, 0.3, 0]]\n\
        [[client]]\nname = \"south\"\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0]]\n[sampler]\n\
        name = \"lmc\"\nstep = 1e-4\n[run]\nchains = 1\niterations = 5\n[privacy]\n\
        epsilon = 3.0\ndelta = 1e-6\nrow_norm = 2.0\nexpect_curvature = 2.0\n"
        .into();
    let said = check(&private).map(|_| ()).unwrap_err().to_string();
    assert!(said.contains("the run has a privacy budget"), "{said}");
    let few = says(&target("poisson"), Draws::from_chains(vec![vec![0.1; 20]], 2));
    assert!(few.contains("10 draws") && few.contains("at least 100"), "{few}");
    let flat = format!("{}\nprior = {{ law = \"flat\" }}", target("poisson"));
    let said = prior_check(&config(&flat, SITES)).unwrap_err().to_string();
    assert!(said.contains("intercept is flat") && said.contains("[target.prior]"), "{said}");
}

/// Responses that are drawn anew have the law whose density is stated: counts in bins within
/// 4.9 standard errors, one false alarm in a million each. Of times the expected number of
/// events follows from the probability of none.
#[test]
fn responses_are_drawn_from_their_law() {
    let n = 20_000;
    let models = MODELS
        .iter()
        .filter(|row| row.reader().is_some())
        .map(|row| from_settings(&format!("model = \"{}\"\n{}", row.name, row.example)).unwrap());
    for (which, model) in models.enumerate() {
        if model.is_whole() {
            continue;
        }
        let count: usize = model.beside().iter().map(|group| group.names.len()).sum();
        let mut beside = normals(3, count).iter().map(|z| 0.3 * z + 0.4).collect::<Vec<f64>>();
        model.transforms(count).outward(&mut beside);
        for t in [0.7, 3.5] {
            let predictors: Vec<f64> =
                (0..model.predictors()).map(|k| t / (1.0 + k as f64)).collect();
            let seen = 9.0;
            let stream = Seed::new(8).stream(Purpose::Data, SERVER, which as u64);
            let (mut random, mut all) = (Random::new(stream), Vec::new());
            let at = RowAt { predictors: &predictors, beside: &beside, y: seen };
            let drawn = (0..n).all(|_| model.replicate(at, &mut random, &mut all));
            assert!(drawn, "{model:?}");
            assert!(all.iter().all(|y| model.accepts(*y)), "{model:?}");
            let density = |y: f64| model.log_probability(&predictors, &beside, y).exp();
            let cases: Vec<(f64, f64, f64)> = if let Some(classes) = model.classes() {
                let of = |k: usize| (k as f64 - 0.5, k as f64 + 0.5, density(k as f64));
                (0..classes).map(of).collect()
            } else if model.censors() {
                let hazard = |y: f64| -model.log_density(t, &beside, -y);
                let of = |k: i32| {
                    let (a, b) = (f64::from(k).max(1e-9), f64::from(k + 3));
                    (a, b, hazard(b) - hazard(a))
                };
                (0..3).map(|k| of(3 * k)).collect()
            } else if !model.accepts(0.5) {
                let of = |k: i32| (f64::from(k) - 0.5, f64::from(k) + 0.5);
                let mass = |(a, b): (f64, f64)| (a, b, density(0.5 * (a + b)));
                (0..60).filter(|k| model.accepts(f64::from(*k))).map(of).map(mass).collect()
            } else {
                let mass = |k: i32| {
                    let (a, step) = (f64::from(k) * 0.5, 0.005);
                    let points = (0..100).map(|j| density(a + step * (f64::from(j) + 0.5)));
                    (a, a + 0.5, points.sum::<f64>() * step)
                };
                (-6..16).map(mass).collect()
            };
            for (a, b, expected) in cases {
                let count = all.iter().filter(|y| **y > a && **y <= b).count() as f64;
                let share = count / f64::from(n);
                let error = ((expected + 1e-4) / f64::from(n)).sqrt();
                assert!(
                    (share - expected).abs() < 4.9 * error,
                    "{model:?} at {t}: {share} of {a} to {b}, where {expected} are expected"
                );
            }
        }
    }
}

/// Means and variances within 4.9 standard errors, fourth moments estimated.
#[test]
fn laws_have_their_means_and_variances() {
    type Draw = fn(&mut Random) -> f64;
    let cases: [(&str, Draw, f64, f64); 9] = [
        ("normal", |r| r.normal(), 0.0, 1.0),
        ("exponential", |r| r.exponential(), 1.0, 1.0),
        ("gamma below 1", |r| r.gamma(0.3), 0.3, 0.3),
        ("gamma", |r| r.gamma(4.5), 4.5, 4.5),
        ("student", |r| r.student_t(9.0), 0.0, 9.0 / 7.0),
        ("laplace", |r| r.laplace(), 0.0, 2.0),
        ("few", |r| r.poisson(0.4), 0.4, 0.4),
        ("some", |r| r.poisson(11.5), 11.5, 11.5),
        ("many", |r| r.poisson(3e4), 3e4, 3e4),
    ];
    let n = 40_000;
    for (k, (name, draw, mean, variance)) in cases.into_iter().enumerate() {
        let mut random = Random::new(Seed::new(7).stream(Purpose::Data, SERVER, k as u64));
        let all: Vec<f64> = (0..n).map(|_| draw(&mut random)).collect();
        let found = all.iter().sum::<f64>() / f64::from(n);
        let squares: Vec<f64> = all.iter().map(|x| (x - mean).powi(2)).collect();
        let spread = squares.iter().sum::<f64>() / f64::from(n);
        let fourth = squares.iter().map(|s| (s - spread).powi(2)).sum::<f64>() / f64::from(n);
        let (error, off) = ((variance / f64::from(n)).sqrt(), (fourth / f64::from(n)).sqrt());
        assert!((found - mean).abs() < 4.9 * error, "{name}: mean {found} is not {mean}");
        assert!((spread - variance).abs() < 4.9 * off, "{name}: {spread} is not {variance}");
    }
    let mut random = Random::new(Seed::new(7).stream(Purpose::Data, SERVER, 99));
    assert_eq!(random.poisson(1e300), f64::INFINITY);
    assert!(random.poisson(f64::NAN).is_nan());
}

/// A site needs the run and its own rows, and the numbers are those of one process, bit for bit.
#[test]
fn sites_check_by_themselves() {
    for (name, target) in [
        ("counts", target("poisson")),
        ("classes", target("logistic")),
        ("numbers", target("linear")),
        ("wards", "model = \"poisson\"\nformula = \"visits ~ x + (1 | ill)\"".into()),
        ("slopes", "model = \"linear\"\nformula = \"visits ~ x + (x | ill)\"".into()),
        ("lacking", "model = \"logistic\"\nformula = \"ill ~ mi(x) + days\"".into()),
    ] {
        let (folder, here, published) = records(name, &target, Draws::new(1));
        let expected = check(&here).unwrap();
        let file = |site: &str| folder.join(format!("{site}.csv"));
        let sites = ["west", "north", "south"];
        let first = |site: &&str| {
            let text = text_of_part(&first_at(&published, site, Some(&file(site))).unwrap());
            assert!(text.len() < 300, "three sums and what they are of: {text}");
            read_part::<FirstPart>(&text).unwrap()
        };
        let first: Vec<FirstPart> = sites.iter().map(first).collect();
        let part = |site: &&str| {
            let part = check_at(&published, site, Some(&file(site)), &first).unwrap();
            read_part::<CheckPart>(&text_of_part(&part)).unwrap()
        };
        let parts: Vec<CheckPart> = sites.iter().map(part).collect();
        assert_eq!(merge(&published, &parts).unwrap(), expected, "{name}");
        let says = |found: Result<Check, LooError>| found.map(|_| ()).unwrap_err().to_string();
        assert!(says(merge(&published, &parts[1..])).contains("are missing: west"));
        let few = check_at(&published, "north", Some(&file("north")), &first[..2]);
        let few = few.map(|_| ()).unwrap_err().to_string();
        assert!(few.contains("are missing: south"), "{few}");
        let mut other = published.clone();
        other.seed += 1;
        assert!(says(merge(&other, &parts)).contains("are of different runs"));
    }
}

/// Wards whose slopes differ: what they explain is explained by their effects, and the model's
/// responses look like those that there are.
#[test]
fn slopes_and_what_is_missing_are_drawn_anew() {
    let n = 240;
    let slope = |k: usize| [3.0, -2.5, 1.0, -3.5, 2.0, 0.5][k / 3 % 6];
    let text = rows(n, |k, x, z| slope(k) * x + 0.3 * z);
    let wards = |(k, line): (usize, &str)| match k {
        0 => format!("{line},ward\n"),
        k => format!("{line},w{}\n", (k - 1) / 3 % 6),
    };
    let text: String = text.lines().enumerate().map(wards).collect();
    let found = ran("slopes", "model = \"linear\"\nformula = \"y ~ x + (x | ward)\"", &text);
    let told = found.check.as_ref().unwrap();
    let fit = told.fit.as_ref().unwrap();
    assert!(fit.value > 0.97, "{fit:?}");
    assert_eq!(doubts(&found), Vec::<String>::new());
    // half of x is missing, and y is 3 x: without drawing it sds would be two thirds of this
    let text = rows(n, |_, x, z| 3.0 * x + 0.3 * z);
    let lacks = |(k, line): (usize, &str)| match k % 2 {
        0 => format!("{line}\n"),
        _ if k == 0 => format!("{line}\n"),
        _ => {
            let cells: Vec<&str> = line.split(',').collect();
            format!("{},,{}\n", cells[0], cells[2])
        }
    };
    let text: String = text.lines().enumerate().map(lacks).collect();
    let found = ran("lacking", "model = \"linear\"\nformula = \"y ~ mi(x)\"", &text);
    let spread = &found.check.as_ref().unwrap().statistics[1];
    assert_eq!(spread.name, "standard deviation");
    assert!((spread.replicated / spread.observed - 1.0).abs() < 0.1, "{spread:?}");
    assert_eq!(doubts(&found), Vec::<String>::new());
}

/// Effects of groups that nobody has seen have the law that the draw states: means, variances and
/// the covariance within 4.9 standard errors of 20,000 draws.
#[test]
fn effects_of_new_groups_have_their_law() {
    for (part, sds, correlation) in [
        ("(1 | site)", vec![0.7], 0.0),
        ("(0 + x | site)", vec![1.3], 0.0),
        ("(x || site)", vec![0.7, 1.3], 0.0),
        ("(x | site)", vec![0.7, 1.3], -0.6),
    ] {
        let stated = format!("model = \"poisson\"\nformula = \"visits ~ x + {part}\"");
        let model = config(&stated, SITES).target.model.of_rows().unwrap();
        let mut draw = vec![0.1, 0.2];
        draw.extend(&sds);
        draw.extend((part == "(x | site)").then_some(correlation));
        let mut random = Random::new(Seed::new(5).stream(Purpose::Replicate, SERVER, 1));
        let n = 20_000;
        let all: Vec<Vec<f64>> = (0..n).map(|_| model.new_effects(&draw, &mut random)).collect();
        for (k, sd) in sds.iter().enumerate() {
            let z = |of: &Vec<f64>| of[k] / sd;
            let mean = all.iter().map(z).sum::<f64>() / n as f64;
            let square = all.iter().map(|of| z(of) * z(of)).sum::<f64>() / n as f64;
            assert!(mean.abs() < 4.9 / (n as f64).sqrt(), "{part}: {mean}");
            assert!((square - 1.0).abs() < 4.9 * (2.0 / n as f64).sqrt(), "{part}: {square}");
        }
        if let [one, other] = sds[..] {
            let both = all.iter().map(|of| of[0] / one * (of[1] / other)).sum::<f64>() / n as f64;
            let error = ((1.0 + correlation * correlation) / n as f64).sqrt();
            assert!((both - correlation).abs() < 4.9 * error, "{part}: {both}");
        }
    }
}

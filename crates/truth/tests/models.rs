//! Every likelihood of the registry: what a federation samples is what NUTS samples of the pooled
//! rows, and ranks of true parameters among draws are uniform (simulation-based calibration).
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows what it measured

use consilience_core::measure::{Chains, mcse_mean, sd};
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Draws;
use consilience_engine::models::{MODELS, Reads};
use consilience_engine::session::{Control, Session};

/// A model with what stands in `[target]`, a prior that data could be drawn from, and how a
/// response is drawn at parameters: predictor, what stands beside, a normal and a uniform number.
struct Case {
    model: &'static str,
    target: &'static str,
    formula: &'static str,
    prior: &'static str,
    /// From the standard normals of the prior to parameters beside the two coefficients.
    beside: fn(&[f64]) -> Vec<f64>,
    count: usize,
    draw: fn(&[f64], &[f64], &mut Stream) -> f64,
}

/// Numbers for one response.
struct Stream(consilience_core::rng::Stream);

impl Stream {
    fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn uniform(&mut self) -> f64 {
        let mut words = [0u32; 2];
        self.0.words(&mut words);
        (f64::from(words[0]) + 0.5 + f64::from(words[1]) / 4294967296.0) / 4294967296.0
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Marsaglia and Tsang (2000), with a power for shapes below 1.
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let u = self.uniform();
            return self.gamma(shape + 1.0) * u.powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let z = self.normal();
            let v = (1.0 + c * z).powi(3);
            if v > 0.0 && self.uniform().ln() < 0.5 * z * z + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    fn poisson(&mut self, rate: f64) -> f64 {
        let (mut count, mut sum) = (0.0, self.exponential());
        while sum < rate {
            count += 1.0;
            sum += self.exponential();
        }
        count
    }
}

/// `P(y = 1)` and so on, of softmax regression with a coefficient vector for every class but the
/// first, or all: as the model's parameters say.
const COEFFICIENTS: &str = "prior = { law = \"gaussian\", variance = 0.25 }";

fn cases() -> Vec<Case> {
    vec![
        Case {
            model: "linear",
            target: "",
            formula: "y ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", intercept = \"normal(0, 0.5)\", \
                    sigma = \"half_normal(1)\" }",
            beside: |z| vec![z[0].abs()],
            count: 1,
            draw: |t, beside, r| t[0] + beside[0] * r.normal(),
        },
        Case {
            model: "student_t",
            target: "",
            formula: "y ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", intercept = \"normal(0, 0.5)\", \
                    sigma = \"half_normal(1)\" }",
            beside: |z| vec![z[0].abs()],
            count: 1,
            draw: |t, beside, r| {
                let z = r.normal();
                t[0] + beside[0] * z / (r.gamma(2.0) / 2.0).sqrt()
            },
        },
        Case {
            model: "logistic",
            target: "",
            formula: "y ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", intercept = \"normal(0, 0.5)\" }",
            beside: |_| Vec::new(),
            count: 0,
            draw: |t, _, r| f64::from(u8::from(r.uniform() < 1.0 / (1.0 + (-t[0]).exp()))),
        },
        Case {
            model: "poisson",
            target: "",
            formula: "y ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", intercept = \"normal(0, 0.5)\" }",
            beside: |_| Vec::new(),
            count: 0,
            draw: |t, _, r| r.poisson(t[0].exp()),
        },
        Case {
            model: "negative_binomial",
            target: "",
            formula: "y ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", intercept = \"normal(0, 0.5)\", \
                    shape = \"half_normal(1)\" }",
            beside: |z| vec![z[0].abs()],
            count: 1,
            draw: |t, beside, r| {
                let rate = t[0].exp() * r.gamma(beside[0]) / beside[0];
                r.poisson(rate)
            },
        },
        Case {
            model: "ordinal",
            target: "levels = 3",
            formula: "y ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", cut = \"normal(0, 1)\" }",
            // the prior of cut points is that of two normals given that they are in order
            beside: |z| vec![z[0].min(z[1]), z[0].max(z[1])],
            count: 2,
            draw: |t, cuts, r| {
                let logit = (1.0 / r.uniform() - 1.0).ln();
                let latent = t[0] - logit;
                1.0 + cuts.iter().filter(|cut| latent > **cut).count() as f64
            },
        },
        Case {
            model: "weibull",
            target: "",
            formula: "Surv(y, seen) ~ x",
            prior: "of = { coefficients = \"normal(0, 0.5)\", intercept = \"normal(0, 0.5)\", \
                    shape = \"half_normal(2)\" }",
            beside: |z| vec![2.0 * z[0].abs()],
            count: 1,
            draw: |t, beside, r| t[0].exp() * r.exponential().powf(1.0 / beside[0]),
        },
    ]
}

/// When nobody looks any more, where times are.
const END: f64 = 1.5;

fn parse(text: String) -> Config {
    Config::parse(Source { file: "test".into(), folder: ".".into(), text }).unwrap()
}

/// Rows of two sites, drawn at parameters from the prior; these, on their natural scale.
fn made(case: &Case, rows: usize, seed: u64) -> (Vec<f64>, String) {
    let seed = Seed::new(seed);
    let mut z = vec![0.0; 2 + case.count];
    seed.stream(Purpose::Data, ClientId(0), 0).normals(&mut z);
    // a model with cut points is its own intercept
    let ones = case.model != "ordinal";
    let (a, b) = (if ones { 0.5 * z[0] } else { 0.0 }, 0.5 * z[1]);
    let beside = (case.beside)(&z[2..]);
    let mut text = String::from("site,x,y,seen\n");
    for row in 0..rows {
        let mut random = Stream(seed.stream(Purpose::Data, ClientId(1), row as u64));
        let x = (2.0 * row as f64 + 1.0) / rows as f64 - 1.0;
        let y = (case.draw)(&[a + b * x], &beside, &mut random);
        let (y, seen) = match case.formula.starts_with("Surv") {
            true => (y.clamp(1e-300, END), u8::from(y <= END)),
            false => (y, 1),
        };
        text += &format!("{},{x},{y},{seen}\n", ["north", "south"][row % 2]);
    }
    let coefficients = if ones { vec![a, b] } else { vec![b] };
    ([coefficients, beside].concat(), text)
}

fn config(case: &Case, file: &std::path::Path, run: &str, seed: u64) -> Config {
    parse(format!(
        "seed = {seed}\n[target]\nmodel = \"{}\"\n{}\nformula = \"{}\"\nstandardise = false\n\
         prior = {{ {} }}\n[data]\nfile = \"{}\"\nscheme = \"natural(site)\"\n{run}",
        case.model,
        case.target,
        case.formula,
        case.prior,
        file.display()
    ))
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The draws that a federation has, and those of NUTS.
fn both(config: Config, seed: u64) -> (Draws, Draws) {
    let planned = Session::new(config).unwrap().plan().unwrap();
    let target = planned.problem.target.clone();
    let start = planned.plan.findings.as_ref().map(|found| found.optimum.clone());
    let optimum = start.unwrap_or_else(|| vec![0.0; target.dim()]);
    let control = Control { draws_alone: true, ..Control::default() };
    let ours = planned.run(&Default::default(), control).unwrap().record.draws;
    let nuts = consilience_truth::nuts(&target, &optimum, 4, 2000, seed).unwrap();
    (ours, nuts)
}

/// Means and standard deviations, with their Monte Carlo errors.
fn moments(draws: &Draws, k: usize) -> [(f64, f64); 2] {
    let chains = draws.parameter(k);
    let error = |chains: &[Vec<f64>]| {
        let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
        mcse_mean(&Chains::new(&slices).unwrap())
    };
    let all = chains.concat();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    let squares: Vec<Vec<f64>> =
        chains.iter().map(|c| c.iter().map(|x| (x - mean) * (x - mean)).collect()).collect();
    let spread = sd(&all);
    [(mean, error(&chains)), (spread, error(&squares) / (2.0 * spread))]
}

/// The largest difference in standard errors; how large it would be if one posterior were a quarter
/// wider.
fn furthest(a: &Draws, b: &Draws) -> (f64, f64) {
    let (mut worst, mut wider) = (0.0f64, f64::INFINITY);
    for k in 0..a.dim() {
        let (x, y) = (moments(a, k), moments(b, k));
        for (x, y) in x.iter().zip(&y) {
            worst = worst.max((x.0 - y.0).abs() / x.1.hypot(y.1));
        }
        wider = wider.min((1.25 * x[1].0 - y[1].0).abs() / x[1].1.hypot(y[1].1));
    }
    (worst, wider)
}

/// Every difference is below 4.9 standard errors: less than one false alarm in a million each.
#[test]
fn a_federation_samples_what_nuts_samples() {
    let folder = folder("nuts");
    let run = "[run]\nchains = 4\neffective_draws = 4000\n";
    for (k, case) in cases().iter().enumerate() {
        let (_, rows) = made(case, 60, 40 + k as u64);
        let file = folder.join(format!("{}.csv", case.model));
        std::fs::write(&file, rows).unwrap();
        let (ours, nuts) = both(config(case, &file, run, 1), 7);
        let (worst, wider) = furthest(&ours, &nuts);
        println!("{}: {worst:.2} standard errors; a quarter wider, {wider:.1}", case.model);
        assert!(worst < 4.9, "{}: {worst}", case.model);
        assert!(wider > 4.9, "{}: it would not notice a posterior a quarter wider", case.model);
    }
}

/// Cox regression has no law of rows to draw from, and softmax regression several coefficients a
/// column: rows of any kind will do.
#[test]
fn cox_and_softmax_are_those_of_nuts_too() {
    let folder = folder("nuts-more");
    let normal = cases().remove(0);
    let mut text = String::from("site,x,y,seen,kind\n");
    for line in made(&normal, 60, 90).1.lines().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let (x, y): (f64, f64) = (cells[1].parse().unwrap(), cells[2].parse().unwrap());
        // times in tenths, so that some are tied
        let time = ((10.0 * (0.4 * x + 0.3 * y).exp()).round() / 10.0).max(0.1);
        let seen = u8::from(y < 0.7);
        let kind = ((3.0 * (x + y)).floor() as i64).rem_euclid(3);
        text += &format!("{},{x},{time},{seen},{kind}\n", cells[0]);
    }
    let file = folder.join("rows.csv");
    std::fs::write(&file, text).unwrap();
    let data = format!("[data]\nfile = \"{}\"\nscheme = \"natural(site)\"\n", file.display());
    let run = "[run]\nchains = 4\neffective_draws = 4000\n";
    let cox = parse(format!(
        "[target]\nmodel = \"cox\"\nformula = \"Surv(y, seen) ~ x + I(x^2)\"\n{data}{run}"
    ));
    let softmax = parse(format!(
        "[target]\nmodel = \"softmax\"\nclasses = 3\n{COEFFICIENTS}\n{data}response = \"kind\"\n\
         {run}"
    ));
    for (name, config) in [("cox", cox), ("softmax", softmax)] {
        let (ours, nuts) = both(config, 11);
        let (worst, wider) = furthest(&ours, &nuts);
        println!("{name}: {worst:.2} standard errors; a quarter wider, {wider:.1}");
        assert!(worst < 4.9 && wider > 4.9, "{name}: {worst}, {wider}");
    }
}

/// Ranks among so many draws, in so many bins.
const DRAWS: usize = 63;
const BINS: usize = 8;
/// The chi-square of 7 degrees of freedom is above this once in a million.
const ALARM: f64 = 40.5;

/// Parameters from the prior, rows from the model, draws of the posterior by `imh` kept far apart:
/// the rank of a parameter among its draws is uniform if prior, likelihood, transformation and
/// sampler belong together.
#[test]
fn ranks_of_true_parameters_are_uniform() {
    let folder = folder("ranks");
    let replications: u64 =
        std::env::var("REPLICATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(160);
    let run = "[sampler]\nname = \"imh\"\n[run]\nchains = 1\nburn_in = 30\n\
               iterations = 408\nthin = 6\nthreads = 1\n";
    for (place, case) in cases().into_iter().enumerate() {
        let mut counts: Vec<[f64; BINS]> = Vec::new();
        for replication in 0..replications {
            // the same draws around every posterior would have ranks of their own
            let seed = 1_000_000 * (1 + place as u64) + replication;
            let (truth, rows) = made(&case, 8, seed);
            let file = folder.join(format!("{}.csv", case.model));
            std::fs::write(&file, rows).unwrap();
            let planned = match Session::new(config(&case, &file, run, seed)) {
                Ok(session) => session.plan().unwrap(),
                Err(error) => panic!("{}: {error}", case.model),
            };
            let control = Control { draws_alone: true, ..Control::default() };
            let draws = planned.run(&Default::default(), control).unwrap().record.draws;
            counts.resize(truth.len(), [0.0; BINS]);
            assert_eq!((draws.dim(), draws.length()), (truth.len(), DRAWS), "{}", case.model);
            for (k, (truth, counts)) in truth.iter().zip(&mut counts).enumerate() {
                let below = draws.parameter(k).concat().iter().filter(|x| *x < truth).count();
                counts[below * BINS / (DRAWS + 1)] += 1.0;
            }
        }
        let expected = replications as f64 / BINS as f64;
        let chi = |counts: &[f64; BINS]| {
            counts.iter().map(|n| (n - expected) * (n - expected) / expected).sum::<f64>()
        };
        let all: Vec<f64> = counts.iter().map(chi).collect();
        println!("{}: chi-squares {all:.1?} of {counts:?}", case.model);
        assert!(all.iter().all(|chi| *chi < ALARM), "{}: {counts:?}", case.model);
    }
}

/// A model that is added to the registry is one of those above.
#[test]
fn every_model_of_rows_is_there() {
    let mut there: Vec<&str> = cases().iter().map(|case| case.model).collect();
    there.extend(["cox", "softmax", "net"]); // a net's posterior has many modes
    for row in MODELS.iter().filter(|row| matches!(row.reads, Reads::Rows(_))) {
        let known = there.contains(&row.name) || row.name == "isotropic";
        assert!(known, "{} has no test against NUTS", row.name);
    }
}

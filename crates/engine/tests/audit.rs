//! What leaves a site tells no more of a row than is claimed, measured on the answers themselves.
//!
//! Two worlds differ in one row, which is as bad as a row can be and longer than rows may be. The
//! site answers the same order thousands of times in each, with fresh noise. Half of the answers
//! choose a test of one world against the other, the other half try it: at every epsilon the power
//! of the test less `exp(epsilon)` times its size is at most `delta(epsilon)`. Bounds of Clopper
//! and Pearson make this fail by chance once in a million. Planted bugs of `mutants.toml` (noise
//! halved or a fifth too small, rows not shortened, twice as many rows drawn) are beyond.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its numbers

use consilience_core::privacy::{Composition, Release, Sampling, gaussian_delta, nearest};
use consilience_core::protocol::{Order, Payload, ReferencePoint, Task};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::Keys;
use consilience_engine::config::{Config, Source};
use consilience_engine::plan::Plan;
use consilience_engine::privacy::of_config;
use consilience_engine::problem::Problem;

/// Answers of each world: noise of half the size is noticed, and with more noise a fifth too small.
const TRIALS: usize = 4000;
const MANY: usize = 20_000;
/// Where the curve is tried.
const EPSILONS: [f64; 5] = [0.0, 0.25, 0.5, 1.0, 2.0];
/// Of one bound: 10 tests with two bounds each fail once in a million.
const ALARM: f64 = 1e-6 / 20.0;

/// Six times as long as rows may be: rows that are not shortened break the claim. At an order far
/// out both have a slope of 1, and gradients that
/// are opposite but for a twentieth.
const CANARIES: [&str; 2] = ["[0.6, 12.0, 0]", "[0.6, -12.0, 0]"];
const FAR_OUT: [f64; 2] = [1000.0, 0.0];

fn config(sampler: &str, canary: &str) -> Config {
    let text = format!(
        "seed = 1\n[target]\nmodel = \"logistic\"\nintercept = false\n\
         [target.prior]\nlaw = \"gaussian\"\nvariance = 2.0\n\
         [[client]]\nname = \"north\"\nrows = [{canary}, [0.2, 0.1, 1], [-0.1, 0.3, 0], \
         [0.3, -0.4, 1], [0.1, 0.1, 0], [-0.2, 0.2, 1], [0.3, 0.3, 0], [0.1, -0.2, 1], \
         [0.2, 0.0, 0], [0.0, 0.3, 1]]\n\
         [[client]]\nname = \"south\"\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0]]\n\
         {sampler}[privacy]\nepsilon = 1000.0\ndelta = 1e-6\nrow_norm = 2.0\n"
    );
    Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text }).unwrap()
}

/// What a site answers to an order, in each of so many trials of one world.
fn answers(trials: usize, (config, world): (&Config, u64), task: Task, far: bool) -> Vec<Vec<f64>> {
    let problem = Problem::new(config).unwrap();
    let plan = Plan::new(config, &problem).unwrap();
    let format = plan.recipe.family().precision();
    (0..trials as u64)
        .map(|trial| {
            let keys = Keys::simulation(Seed::new(7 + world), trial as u32);
            let mut device = plan.recipe.client(&plan.target, ClientId(0), keys).unwrap();
            let order = Order {
                round: 0,
                task,
                position: far.then_some(Payload::Plain(&FAR_OUT, format)),
                reference: ReferencePoint::Keep,
                control: None,
                numbers: &[],
            };
            assert!(device.accepts(&order));
            device.answer(&order).payload.values().to_vec()
        })
        .collect()
}

/// Logarithms of factorials.
fn log_factorials(n: usize) -> Vec<f64> {
    let mut all = vec![0.0];
    (1..=n).for_each(|k| all.push(all[k - 1] + (k as f64).ln()));
    all
}

/// The probability that at least `k` of `n` fall where each does with probability `p`.
fn tail(k: usize, n: usize, p: f64, logs: &[f64]) -> f64 {
    (k..=n)
        .map(|j| {
            let ways = logs[n] - logs[j] - logs[n - j];
            (ways + j as f64 * p.ln() + (n - j) as f64 * (-p).ln_1p()).exp()
        })
        .sum()
}

/// Below which no probability makes `k` of `n` likely.
fn least(k: usize, n: usize, logs: &[f64]) -> f64 {
    if k == 0 {
        return 0.0;
    }
    let (mut low, mut high) = (0.0, k as f64 / n as f64);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if tail(k, n, middle, logs) < ALARM { low = middle } else { high = middle }
    }
    low
}

fn most(k: usize, n: usize, logs: &[f64]) -> f64 {
    1.0 - least(n - k, n, logs)
}

/// The largest excess of what is measured over what is claimed: above 0 the claim is broken. And
/// what is measured without the bounds' margins, which shows that the test sees the row at all.
fn audit(worlds: &[Vec<Vec<f64>>; 2], claimed: impl Fn(f64) -> f64) -> (f64, f64) {
    let trials = worlds[0].len();
    let half = trials / 2;
    let dim = worlds[0][0].len();
    // The direction in which the first halves differ most, coordinate by coordinate.
    let mean = |world: &[Vec<f64>], k: usize| {
        world[..half].iter().map(|answer| answer[k]).sum::<f64>() / half as f64
    };
    let direction: Vec<f64> = (0..dim)
        .map(|k| {
            let means = [mean(&worlds[0], k), mean(&worlds[1], k)];
            let square = |world: usize| {
                let away = worlds[world][..half].iter().map(|a| (a[k] - means[world]).powi(2));
                away.sum::<f64>() / half as f64
            };
            (means[1] - means[0]) / (square(0) + square(1)).max(1e-300)
        })
        .collect();
    let score = |answer: &Vec<f64>| answer.iter().zip(&direction).map(|(a, d)| a * d).sum::<f64>();
    let scores = [0, 1].map(|w: usize| worlds[w].iter().map(score).collect::<Vec<f64>>());
    let logs = log_factorials(half);
    let (mut excess, mut power): (f64, f64) = (f64::NEG_INFINITY, 0.0);
    for epsilon in EPSILONS {
        for (null, other, sign) in [(0, 1, 1.0), (1, 0, -1.0)] {
            // Of the thresholds in between the first halves, the one that looks best.
            let above = |world: usize, part: std::ops::Range<usize>, at: f64| {
                scores[world][part].iter().filter(|s| sign * **s > at).count()
            };
            let gain = |at: f64| {
                let rate = |world| above(world, 0..half, at) as f64 / half as f64;
                rate(other) - epsilon.exp() * rate(null)
            };
            let tried = scores[null][..half].iter().chain(&scores[other][..half]).step_by(20);
            let at = tried.map(|s| sign * s).max_by(|a, b| gain(*a).total_cmp(&gain(*b))).unwrap();
            let hits = above(other, half..trials, at);
            let alarms = above(null, half..trials, at);
            let sure = least(hits, half, &logs) - epsilon.exp() * most(alarms, half, &logs);
            excess = excess.max(sure - claimed(epsilon));
            power = power.max(gain(at));
        }
    }
    (excess, power)
}

/// The claim of one release of the first site, as the plan that people see has it.
fn claimed(config: &Config) -> impl Fn(f64) -> f64 + use<> {
    let plan = of_config(config).unwrap();
    let site = &plan.sites[0];
    let (share, ratio) = (site.share, site.exposures[0].ratio);
    let privacy = config.privacy.as_ref().unwrap();
    let drawn = match share {
        share if share >= 1.0 => Sampling::Full,
        rate if privacy.poisson => Sampling::Poisson { rate },
        share => Sampling::Fixed { share },
    };
    let release = Release::new(drawn, privacy.neighbour, ratio).unwrap();
    move |epsilon| Composition::of(release, 1).delta(epsilon).unwrap()
}

fn hold(name: &str, sampler: &str, task: Task) {
    hold_to(name, TRIALS, CANARIES.map(|canary| config(sampler, canary)), task);
}

fn hold_to(name: &str, trials: usize, configs: [Config; 2], task: Task) {
    let worlds = [0, 1].map(|w| answers(trials, (&configs[w], w as u64), task, true));
    let claim = claimed(&configs[0]);
    let (excess, power) = audit(&worlds, &claim);
    println!("{name}: {excess:.3} beyond the claim, {power:.3} of {:.3}", claim(0.0));
    assert!(excess <= 0.0, "{name}: the claim is broken by {excess}");
    // Nearly all of what is claimed is there to be seen: the test is not blind.
    assert!(power > 0.8 * claim(0.0), "{name}: {power} of {}", claim(0.0));
}

/// Family A: mu is 2 row_norm / s = 1, with s = sqrt(1/step) for two sites.
#[test]
fn gradients_tell_no_more_than_is_claimed() {
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler = format!("[sampler]\nname = \"lmc\"\nstep = 0.0625\n{run}");
    hold("full batches", &sampler, Task::Estimate);
}

/// The same with so many answers that noise which is a fifth too small would be noticed.
#[test]
fn gradients_have_all_of_the_noise_that_is_claimed() {
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler = format!("[sampler]\nname = \"lmc\"\nstep = 0.0625\n{run}");
    let configs = CANARIES.map(|canary| config(&sampler, canary));
    hold_to("full batches, often", MANY, configs, Task::Estimate);
}

/// A fifth of ten rows, whose sum is five times as large: the row is there once in five, and then
/// mu is 6.
#[test]
fn minibatches_tell_no_more_than_is_claimed() {
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler = format!("[sampler]\nname = \"sgld\"\nbatch = 0.2\nstep = 0.09\n{run}");
    hold("minibatches", &sampler, Task::Estimate);
}

/// Every row with probability a fifth, by a coin of its own: another row in the canary's place, and
/// none.
#[test]
fn rows_drawn_one_by_one_tell_no_more_than_is_claimed() {
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler = format!("[sampler]\nname = \"sgld\"\nbatch = 0.2\nstep = 0.09\n{run}");
    for (neighbour, canaries) in
        [("replace", CANARIES), ("add-remove", [CANARIES[0], "[0.0, 0.0, 0]"])]
    {
        let more = format!("sampling = \"poisson\"\nneighbour = \"{neighbour}\"\n");
        let configs = canaries.map(|canary| {
            let text = config(&sampler, canary).source.text + &more;
            Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text }).unwrap()
        });
        hold_to(&format!("one by one, {neighbour}"), TRIALS, configs, Task::Estimate);
    }
}

/// Family B: one step of a walk.
#[test]
fn walks_tell_no_more_than_is_claimed() {
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler = format!(
        "[sampler]\nname = \"fa-ld\"\nstep = 0.05\nwire = \"f64\"\n\
         synchronise = {{ every = 1 }}\n{run}"
    );
    hold("walks", &sampler, Task::Walk { steps: 1 });
}

/// The first of two releases: the matrix of features and the signed sum.
#[test]
fn a_release_tells_no_more_than_is_claimed() {
    let sampler = "[sampler]\nname = \"dp-release\"\n[run]\niterations = 10\n";
    let configs = ["[12.0, 0.0, 1]", "[-2.94, 11.634276, 1]"].map(|canary| {
        // mu of the first release is 2 at this budget.
        let text = config(sampler, canary).source.text.replace("1000.0", "26.6");
        Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text }).unwrap()
    });
    let plan = of_config(&configs[0]).unwrap();
    let mu = plan.once.unwrap().mu[1];
    assert!((1.5..2.5).contains(&mu), "{mu}");
    let task = Task::Release { numbers: 5 };
    let worlds = [0, 1].map(|w| answers(TRIALS, (&configs[w], w as u64), task, false));
    let claim = |epsilon: f64| gaussian_delta(mu, epsilon);
    let (excess, power) = audit(&worlds, claim);
    println!("a release: {excess:.3} beyond the claim, {power:.3} of {:.3}", claim(0.0));
    assert!(excess <= 0.0, "the claim is broken by {excess}");
    assert!(power > 0.8 * claim(0.0), "{power} of {}", claim(0.0));
}

/// A secure sum: what the server sees is the sum over both sites, with the noise of both.
#[test]
fn a_secure_sum_tells_no_more_than_is_claimed() {
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler = format!("[sampler]\nname = \"lmc\"\nstep = 0.125\n{run}");
    let configs = CANARIES.map(|canary| {
        let text = config(&sampler, canary).source.text + "secure_sum = true\n";
        Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text }).unwrap()
    });
    let worlds = [0, 1].map(|world: usize| {
        let problem = Problem::new(&configs[world]).unwrap();
        let plan = Plan::new(&configs[world], &problem).unwrap();
        let bits = plan.recipe.family().level_bits(&plan.target).unwrap();
        let precision = plan.recipe.family().precision();
        let sum = |trial: u32| {
            let keys = Keys::simulation(Seed::new(7 + world as u64), trial);
            let mut sum = [0.0; 2];
            for site in 0..2 {
                let mut device = plan.recipe.client(&plan.target, ClientId(site), keys).unwrap();
                let order = Order {
                    round: 0,
                    task: Task::Estimate,
                    position: Some(Payload::Plain(&FAR_OUT, precision)),
                    reference: ReferencePoint::Keep,
                    control: None,
                    numbers: &[],
                };
                let reply = device.answer(&order);
                sum.iter_mut().zip(reply.payload.values()).for_each(|(sum, level)| *sum += level);
            }
            sum.iter().map(|sum| nearest(*sum, bits)).collect::<Vec<f64>>()
        };
        (0..TRIALS as u32).map(sum).collect::<Vec<_>>()
    });
    let claim = claimed(&configs[0]);
    let (excess, power) = audit(&worlds, &claim);
    println!("a secure sum: {excess:.3} beyond the claim, {power:.3} of {:.3}", claim(0.0));
    assert!(excess <= 0.0, "the claim is broken by {excess}");
    assert!(power > 0.8 * claim(0.0), "{power} of {}", claim(0.0));
}

/// Family E: one difference of potentials. The proposal is known, and the rows lie along it and
/// against it: mu is 2 row_norm / s = 1.
#[test]
fn noisy_differences_tell_no_more_than_is_claimed() {
    let (public, step) = (Seed::new(5), 0.3);
    let mut z = [0.0; 2];
    public.stream(Purpose::Proposal, SERVER, 0).normals(&mut z);
    let length = z[0].hypot(z[1]);
    let along = [z[0] / length, z[1] / length];
    let across = [-along[1], along[0]];
    let start = across.map(|x| 1000.0 * x); // where both rows have a slope of 1
    let run = "[run]\nchains = 1\niterations = 1\n";
    let sampler =
        format!("[sampler]\nname = \"penalty\"\nstep = {step}\npotential_noise = 4.0\n{run}");
    let configs = [12.0, -12.0].map(|far: f64| {
        let row = [0, 1].map(|k: usize| 0.6 * across[k] + far * along[k]);
        config(&sampler, &format!("[{:?}, {:?}, 0]", row[0], row[1]))
    });
    let worlds = [0, 1].map(|world: usize| {
        let problem = Problem::new(&configs[world]).unwrap();
        let plan = Plan::new(&configs[world], &problem).unwrap();
        let said = |trial: u64| {
            let private = Seed::new(100_000 * (1 + world as u64) + trial);
            let keys = Keys { public, private };
            let mut device = plan.recipe.client(&plan.target, ClientId(0), keys).unwrap();
            let order = Order {
                round: 0,
                task: Task::Propose { accepted: false },
                position: Some(Payload::Plain(&start, plan.recipe.family().precision())),
                reference: ReferencePoint::Keep,
                control: None,
                numbers: &[],
            };
            assert!(device.accepts(&order));
            device.answer(&order).payload.values().to_vec()
        };
        (0..TRIALS as u64).map(said).collect::<Vec<_>>()
    });
    let claim = claimed(&configs[0]);
    let (excess, power) = audit(&worlds, &claim);
    println!("differences: {excess:.3} beyond the claim, {power:.3} of {:.3}", claim(0.0));
    assert!(excess <= 0.0, "the claim is broken by {excess}");
    assert!(power > 0.8 * claim(0.0), "{power} of {}", claim(0.0));
}

/// At its bounds what was seen is as rare as an alarm.
#[test]
fn bounds_of_a_probability_are_exact() {
    let logs = log_factorials(2000);
    let (low, high) = (least(40, 2000, &logs), most(40, 2000, &logs));
    assert!((tail(40, 2000, low, &logs) / ALARM - 1.0).abs() < 1e-6);
    assert!((tail(1960, 2000, 1.0 - high, &logs) / ALARM - 1.0).abs() < 1e-6);
    assert!(low < 0.02 && high > 0.02, "{low} {high}");
}

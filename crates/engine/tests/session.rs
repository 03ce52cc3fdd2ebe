//! One call takes a config to its record: the draws are those of its parts, and nothing that a
//! caller should know is lost on the way.
#![allow(clippy::unwrap_used)] // a test may panic

use std::cell::Cell;

use consilience_engine::checkpoint::{Checkpoint, Pace, fingerprint};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{self, Progress};
use consilience_engine::session::{Control, Session};
use consilience_engine::warnings::{Code, summaries};
use nalgebra::{DMatrix, DVector};

const TEXT: &str = r#"
seed = 5
[data]
builtin = "titanic"
[sampler]
name = "lmc"
[run]
chains = 2
iterations = 300
"#;

fn config(text: &str) -> Config {
    Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text: text.into() })
        .unwrap()
}

#[test]
fn a_session_draws_what_its_parts_draw_and_concludes() {
    let config = config(TEXT);
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let by_hand =
        run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Progress::default()).unwrap();
    let (progress, ticks) = (Progress::default(), Cell::new(0.0));
    let clock = || {
        ticks.set(ticks.get() + 2.0);
        ticks.get()
    };
    let control = Control {
        version: "7".into(),
        created: "2026-01-31T12:00:00Z".into(),
        clock: Some(&clock),
        ..Control::default()
    };
    let planned = Session::new(config).unwrap().plan().unwrap();
    let ended = planned.run(&progress, control).unwrap();
    let record = ended.record;
    assert_eq!(record.draws.digest(), by_hand.draws.digest());
    assert_eq!((ended.iterations, record.seconds), (600, 2.0));
    assert_eq!((record.version.as_str(), record.created.as_str()), ("7", "2026-01-31T12:00:00Z"));
    assert!(record.statistics.iter().any(|statistic| statistic.name == "lp"));
    assert!(record.calibration.is_some() && record.influence.is_some());
    let alone =
        planned.run(&progress, Control { draws_alone: true, ..Control::default() }).unwrap().record;
    assert_eq!(alone.draws.digest(), record.draws.digest());
    assert!(!alone.statistics.iter().any(|statistic| statistic.name == "lp"));
    assert!(alone.calibration.is_none() && alone.influence.is_none());
    // the config may ask for no log-density, too
    let quiet = format!("{TEXT}[output]\nlp = false\n");
    let quiet = Session::new(self::config(&quiet)).unwrap().plan().unwrap();
    let quiet = quiet.run(&progress, Control::default()).unwrap().record;
    assert!(!quiet.statistics.iter().any(|statistic| statistic.name == "lp"));
    assert!(quiet.influence.is_some());
}

#[test]
fn whoever_stops_a_session_is_told_so_by_a_code() {
    let planned = Session::new(config(TEXT)).unwrap().plan().unwrap();
    let progress = Progress::default();
    progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let record = planned.run(&progress, Control::default()).unwrap().record;
    let codes: Vec<Code> = record.warnings.iter().map(|warning| warning.code).collect();
    assert!(record.interrupted);
    assert!(codes.contains(&Code::Interrupted), "{codes:?}");
}

/// A batch that a site cannot have is refused where the plan is made, for everybody who plans.
#[test]
fn a_batch_larger_than_the_smallest_site_is_refused_by_its_name() {
    let stated = |batch: &str| {
        let text = TEXT.replace("name = \"lmc\"", &format!("name = \"sgld\"\nbatch = {batch}"));
        Session::new(config(&text)).unwrap().plan().map(|_| ())
    };
    let problem = Problem::new(&config(TEXT)).unwrap();
    let rows = problem.target.clients.iter().map(|client| client.rows());
    let (least, name) = rows.zip(&problem.clients).min().unwrap();
    let error = stated(&(least + 1).to_string()).unwrap_err();
    assert_eq!(error.field, "sampler.batch");
    assert!(error.problem.contains(&format!("client \"{name}\", which has {least}")), "{error}");
    stated(&least.to_string()).unwrap();
    stated("0.9").unwrap();
}

/// Twelve rows at two sites under a wide prior: a posterior so skewed that proposals which are
/// drawn beforehand do not suit it, while the pilot does not see that.
fn skewed(rows: [&str; 2]) -> Config {
    let [a, b] = rows;
    config(&format!(
        "[target]\nmodel = \"logistic\"\nprior = {{ law = \"gaussian\", variance = 100.0 }}\n\
         [[client]]\nrows = [{a}]\n[[client]]\nrows = [{b}]\n[run]\neffective_draws = 1000\n"
    ))
}

/// Whose effective draws are far below what the pilot foretold, at a k-hat that looks well.
const STUCK: [&str; 2] = [
    "[1, 0.2, 0.1, 0], [1, 0.7, -0.4, 1], [1, -0.6, 0, 1], [1, -0.5, -0.8, 0], [1, 0.9, 0.5, 1], \
     [1, -1.3, 1.1, 1]",
    "[1, 0, 0.6, 1], [1, -0.2, -0.6, 0], [1, -1.3, 0.1, 0], [1, -0.1, 0, 0], [1, 0.9, -0.7, 0], \
     [1, 0.4, 2.1, 1]",
];
/// The same at a k-hat above 0.7.
const HEAVY: [&str; 2] = [
    "[1, 0.9, -0.3, 1], [1, 0.2, -0.4, 0], [1, 0.6, -0.4, 1], [1, -0.6, 0.4, 0], \
     [1, 1.2, 0.5, 0], [1, -0.9, -1, 0]",
    "[1, -0.3, -0.2, 1], [1, -0.5, -0.2, 0], [1, -1.3, -0.3, 0], [1, -0.2, -0.4, 0], \
     [1, 0.2, 0.4, 1], [1, -1.3, -0.5, 0]",
];

#[test]
fn draws_that_disappoint_are_given_up_and_an_automatic_choice_goes_on() {
    let why = "effective draws came out where its pilot foretold";
    for rows in [STUCK, HEAVY] {
        let planned = Session::new(skewed(rows)).unwrap().plan().unwrap();
        assert_eq!(planned.plan.row.name, "imh");
        let progress = Progress::default();
        let record = planned.run(&progress, Control::default()).unwrap().record;
        assert_eq!(record.sampler.0, "hmc");
        let told: Vec<_> =
            record.warnings.iter().filter(|w| w.code == Code::SamplerReplaced).collect();
        assert!(told.iter().any(|w| w.message.contains(why)), "{:?}", record.warnings);
        let choice = record.choice.as_ref().unwrap();
        let given_up = choice.candidates.iter().find(|one| one.sampler == "imh").unwrap();
        assert!(given_up.refused.as_ref().unwrap().contains(why));
        // what the survey found is still said: a column of ones stands beside the intercept
        assert!(record.warnings.iter().any(|w| w.code == Code::CollinearColumns));
        // what was given up is counted
        assert!(record.before_sampling.0 > planned.plan.survey_bits().0 + 64 * 2000);
        let ess = summaries(&record.draws)
            .iter()
            .flatten()
            .map(|s| s.ess_bulk.min(s.ess_tail))
            .fold(f64::INFINITY, f64::min);
        assert!(ess > 500.0, "{ess}");
        // Whoever names the sampler keeps it, and is warned or has few effective draws.
        let text = planned.config.source.text.clone() + "[sampler]\nname = \"imh\"\n";
        let named = Session::new(config(&text)).unwrap().plan().unwrap();
        let named = named.run(&progress, Control::default()).unwrap().record;
        assert_eq!(named.sampler.0, "imh");
        let codes: Vec<Code> = named.warnings.iter().map(|warning| warning.code).collect();
        let warned = [Code::HeavyWeights, Code::FewEffectiveDraws, Code::ChainsDisagree];
        assert!(codes.iter().any(|code| warned.contains(code)), "{codes:?}");
    }
}

/// Whose effective draws are half of what the pilot foretold.
const SLOW: [&str; 2] = [
    "[1, -0.1, -1.8, 0], [1, -0.1, -2.3, 0], [1, -2.3, 0.5, 0], [1, 0.4, -0.3, 1], \
     [1, 0, 1.3, 1], [1, 0.7, 0.1, 1]",
    "[1, 1.5, -0.9, 1], [1, 0.2, -0.5, 0], [1, 0, 0, 0], [1, 0.2, 0.7, 0], [1, 0.6, -0.6, 0], \
     [1, -1.5, -0.4, 0]",
];

#[test]
fn chains_whose_pilot_was_too_hopeful_are_made_longer() {
    let planned = Session::new(skewed(SLOW)).unwrap().plan().unwrap();
    let first = run::sample(
        &planned.plan,
        &planned.plan.length,
        planned.config.seed,
        Sinks::Memory,
        &Progress::default(),
    );
    let first = first.unwrap();
    let ended = planned.run(&Progress::default(), Control::default()).unwrap();
    let record = ended.record;
    assert_eq!(record.sampler.0, "imh");
    let told = record.warnings.iter().find(|w| w.code == Code::RunLengthened).unwrap();
    assert!(told.message.contains("effective draws came out"), "{told}");
    assert!(record.iterations > planned.plan.length.iterations * 3 / 2);
    let least = |draws: &Draws| {
        let all = summaries(draws);
        all.iter().flatten().map(|s| s.ess_bulk.min(s.ess_tail)).fold(f64::INFINITY, f64::min)
    };
    assert!(least(&record.draws) > 1.3 * least(&first.draws));
    // it is the same chain, and longer
    let cut = (record.burn_in - planned.plan.length.burn_in) as usize;
    let (longer, shorter) = (&record.draws.parameter(1)[2], &first.draws.parameter(1)[2]);
    assert_eq!(longer[..100], shorter[cut..cut + 100]);
    assert!(record.before_sampling.0 > planned.plan.survey_bits().0 + 64 * 2000);
}

struct Always;

impl Pace for Always {
    fn due(&self, _: usize) -> bool {
        true
    }

    fn saved(&self, _: usize) {}
}

#[test]
fn a_run_that_is_stopped_while_it_goes_on_is_resumed_to_the_same_draws() {
    let planned = Session::new(skewed(STUCK)).unwrap().plan().unwrap();
    let whole = planned.run(&Progress::default(), Control::default()).unwrap().record;
    let dir = std::env::temp_dir().join(format!("consilience-goes-on-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let print = fingerprint(&planned.plan, &planned.plan.length, planned.config.seed);
    let (progress, mut stops) = (Progress::default(), 0);
    drop(Checkpoint::begin(&dir, &planned.config, &print, &Always).unwrap());
    // A sign to stop is seen at every look, so that each start gets a little further.
    progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let resumed = loop {
        let checkpoint = Checkpoint::resume(&dir, &print, &Always).unwrap();
        let control = Control { checkpoint: Some(&checkpoint), ..Control::default() };
        let record = planned.run(&progress, control).unwrap().record;
        if record.draws.digest() == whole.draws.digest() {
            break record;
        }
        stops += 1;
        if stops == 20 {
            progress.stop.store(false, std::sync::atomic::Ordering::Relaxed);
        }
        assert!(stops < 30, "it does not come to its end");
    };
    assert_eq!(resumed.sampler.0, "hmc");
    assert_eq!(resumed.sent, whole.sent);
    assert_eq!(resumed.before_sampling, whole.before_sampling);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Asks to stop as soon as the run says that it goes on.
#[test]
fn a_stop_while_a_better_way_is_looked_for_keeps_the_draws_that_there_are() {
    let planned = Session::new(skewed(STUCK)).unwrap().plan().unwrap();
    let progress = Progress::default();
    let seen = std::sync::Mutex::new(Vec::new());
    let ended = std::thread::scope(|scope| {
        let work = scope.spawn(|| planned.run(&progress, Control::default()).unwrap());
        while !work.is_finished() {
            let stage = progress.stage();
            let mut seen = seen.lock().unwrap();
            if !stage.is_empty() && seen.last() != Some(&stage) {
                seen.push(stage.clone());
            }
            if stage.contains("looking for a better way") {
                progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            drop(seen);
            std::hint::spin_loop();
        }
        work.join().unwrap()
    });
    let seen = seen.into_inner().unwrap();
    assert!(seen[0].starts_with("imh: ") && seen[0].contains("looking for"), "{seen:?}");
    let record = ended.record;
    assert!(record.interrupted, "{seen:?}");
    assert!(record.draws.length() > 0, "{seen:?}");
}

/// Six groups of six rows at two sites, one case in each, beside twenty rows that are in no group:
/// `logit p = a + b_group`. Every group's parameter is skewed, given all others.
const GROUPS: usize = 6;

fn groups() -> String {
    let mut rows = [String::new(), String::new()];
    for k in 0..GROUPS * 6 + 20 {
        let (group, case) = (k / 6, k.is_multiple_of(if k < GROUPS * 6 { 6 } else { 2 }));
        let cells: String = (0..GROUPS).map(|g| if g == group { " 1," } else { " 0," }).collect();
        rows[k % 3 / 2] += &format!("[{cells} {}], ", u8::from(case));
    }
    let [a, b] = rows;
    format!(
        "[target]\nmodel = \"logistic\"\nprior = {{ law = \"gaussian\", variance = 25.0 }}\n\
         [[client]]\nrows = [{a}]\n[[client]]\nrows = [{b}]\n[run]\neffective_draws = 2000\n"
    )
}

/// Proposals along the groups' own axes suit, and draws have the law that is known by quadrature:
/// given `a`, groups are independent, so that integrals of two variables are all that it takes.
#[test]
fn many_skewed_parameters_are_proposed_along_their_own_axes() {
    let planned = Session::new(config(&groups())).unwrap().plan().unwrap();
    let choice = planned.plan.choice.as_ref().unwrap();
    assert_eq!((choice.chosen.as_str(), choice.bent), ("imh", 1 + GROUPS), "{choice:?}");
    assert!(choice.acceptance.unwrap() > 0.8, "{choice:?}");
    let record = planned.run(&Progress::default(), Control::default()).unwrap().record;
    assert_eq!(record.sampler.0, "imh");

    let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
    let density = |cases: f64, rows: f64, x: f64| (cases * x - rows * softplus(x)).exp();
    let normal = |x: f64| (-0.5 * x * x / 25.0).exp();
    let (mut mass, mut sums) = (0.0, [0.0; 4]);
    for i in -400..=400 {
        let a = f64::from(i) * 0.02;
        let mut group = [0.0; 3];
        for j in -1500..=1000 {
            let b = f64::from(j) * 0.02;
            let p = normal(b) * density(1.0, 6.0, a + b);
            group = [group[0] + p, group[1] + p * b, group[2] + p * b * b];
        }
        let p = normal(a) * density(10.0, 20.0, a) * group[0].powi(GROUPS as i32);
        mass += p;
        let [whole, first, second] = group;
        let means = [a, a * a, first / whole, second / whole];
        sums.iter_mut().zip(means).for_each(|(sum, mean)| *sum += p * mean);
    }
    let [a, a2, b, b2] = sums.map(|sum| sum / mass);
    let all = summaries(&record.draws);
    for (k, summary) in all.iter().flatten().enumerate() {
        let (mean, square) = if k == 0 { (a, a2) } else { (b, b2) };
        let sd = (square - mean * mean).sqrt();
        let z = (summary.mean - mean) / summary.mcse_mean;
        assert!(z.abs() < 4.9, "parameter {k}: mean {} is not {mean}", summary.mean);
        let z = (summary.sd - sd) / summary.mcse_sd;
        assert!(z.abs() < 4.9, "parameter {k}: sd {} is not {sd}", summary.sd);
    }
    assert_eq!(all.iter().flatten().count(), 1 + GROUPS);
}

/// Beyond 500 parameters a matrix is too much, and directions that stand out are all that is
/// learnt: chains are exact all the same.
#[test]
fn a_posterior_of_very_many_parameters_is_sampled_without_bias() {
    let text = "[data]\ngenerate = \"fald-toy\"\nclients = 2\ncolumns = 510\n\
        [run]\nchains = 4\niterations = 500\nburn_in = 100\n";
    let planned = Session::new(config(text)).unwrap().plan().unwrap();
    assert_eq!(planned.plan.row.name, "hmc");
    let record = planned.run(&Progress::default(), Control::default()).unwrap().record;
    let d = 510;
    let (mut precision, mut shift) = (DMatrix::zeros(d, d), DVector::zeros(d));
    for client in &planned.problem.target.clients {
        let form = client.quadratic().unwrap();
        precision += DMatrix::from_row_slice(d, d, &form.precision);
        shift += DVector::from_column_slice(&form.shift);
    }
    let covariance = precision.try_inverse().unwrap();
    let mean = &covariance * shift;
    let (mut wider, mut worst) = (0.0, 0.0f64);
    for (k, summary) in summaries(&record.draws).iter().flatten().enumerate() {
        worst = worst.max(((summary.mean - mean[k]) / summary.mcse_mean).abs());
        wider += summary.sd.powi(2) / covariance[(k, k)] / d as f64;
    }
    // The largest of 510 normals is beyond 5 once in 3,400 times.
    assert!(worst > 0.0 && worst < 5.0, "{worst} standard errors");
    assert!((wider - 1.0).abs() < 0.05, "variances are {wider} times too large");
}

/// Two Gaussian sites whose sum has precisions 2 and 0.5: at step h draws have variance
/// `1 / (c (1 - h c / 2))`, as Langevin Monte Carlo must.
const ROUND: &str = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [1.0, 0.0]\n\
    precision = [[1.0, 0.0], [0.0, 0.25]]\n[[client]]\nmean = [-1.0, 4.0]\n\
    precision = [[1.0, 0.0], [0.0, 0.25]]\n[sampler]\nname = \"lmc\"\nstep = 0.2\n\
    [run]\niterations = 40000\n";

/// In whitened coordinates every precision is 1, and a step `h` makes standard deviations
/// `1 / sqrt(1 - h/2)` times too large. (A step above 0.05 is never found, whatever is allowed.)
#[test]
fn an_automatic_step_has_the_bias_that_the_config_allows() {
    let automatic = ROUND.replace("step = 0.2\n", "").replace("40000", "400000");
    for most in [0.005, 0.01, 0.02] {
        let text = format!("{automatic}most_bias = {most}\n");
        let planned = Session::new(config(&text)).unwrap().plan().unwrap();
        let wider = 1.0 + 0.5 * most;
        let (found, law) = (planned.plan.step().largest(), 2.0 * (1.0 - 1.0 / (wider * wider)));
        assert!((0.99 * law..=law).contains(&found), "{most}: {found}, by law {law}");
    }
}

#[test]
fn half_the_step_measures_the_bias_and_takes_it_away() {
    let text = format!("{ROUND}bias = \"halve\"\n");
    let planned = Session::new(config(&text)).unwrap().plan().unwrap();
    let record = planned.run(&Progress::default(), Control::default()).unwrap().record;
    let plain = Session::new(config(ROUND)).unwrap().plan().unwrap();
    let plain = plain.run(&Progress::default(), Control::default()).unwrap().record;
    assert_eq!(record.draws, plain.draws, "the draws themselves are those of the step");
    let halved = record.bias.as_ref().unwrap().measured.as_ref().unwrap();
    for (k, (precision, mean)) in [(2.0f64, 0.0), (0.5, 2.0)].into_iter().enumerate() {
        let variance = |step: f64| 1.0 / (precision * (1.0 - 0.5 * step * precision));
        let left = (2.0 * variance(0.1) - variance(0.2)).sqrt();
        let ratio = (1.0 + 2.0 * (variance(0.2) - variance(0.1)) / (left * left)).sqrt();
        let near = |what: &str, found: f64, law: f64, error: f64| {
            println!("{what} {k}: {found} +- {error}, by law {law}");
            assert!((found - law).abs() < 4.9 * error, "{what}: {found} +- {error}, by law {law}");
        };
        near("mean", halved.mean[k], mean, halved.mean_error[k]);
        near("sd", halved.sd[k], left, halved.sd_error[k]);
        near("bias of the mean", halved.mean_bias[k], 0.0, halved.mean_bias_error[k]);
        near("ratio of sds", halved.sd_ratio[k], ratio, halved.sd_ratio_error[k]);
        // one path for both: independent chains would have an error of sqrt(6) of the mean's
        assert!(halved.mean_bias_error[k] * halved.sd[k] < 0.3 * halved.mean_error[k]);
    }
    let told = record.warnings.iter().find(|w| w.code == Code::BiasMeasured).unwrap();
    assert!(told.message.contains("standard deviations up to 1"), "{told}");
    assert!(record.exchanges.1 == 3 * plain.exchanges.1, "what half the step sent is counted");
    // Nothing is measured where there is nothing to measure.
    let exact = "[data]\nbuiltin = \"titanic\"\n[run]\nbias = \"halve\"\neffective_draws = 400\n";
    let exact = Session::new(config(exact)).unwrap().plan().unwrap();
    let exact = exact.run(&Progress::default(), Control::default()).unwrap().record;
    assert!(exact.bias.as_ref().unwrap().measured.is_none());
}

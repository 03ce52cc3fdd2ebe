//! `imh`: what it proposes is what its pilot weighed, what stands beside its draws in the run's
//! folder is what decided on them, and a run that falls short of its forecast says so.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::model::Coordinates;
use consilience_core::protocol::{Exchange, Ledger, Task};
use consilience_core::rng::ClientId;
use consilience_core::sampler::{Kernel, Recipe};
use consilience_core::target::Target;
use consilience_engine::conductor::{Conductor, Here, Lost};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::foretold::foretold_and_actual;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::record::Record;
use consilience_engine::run::{Progress, sample};
use consilience_engine::rundir;
use consilience_engine::session::{Control, Session};
use consilience_engine::warnings::{Code, khat, longest_stay, summaries};

fn config(text: String) -> Config {
    Config::parse(Source { file: "imh.toml".into(), folder: ".".into(), text }).unwrap()
}

fn run(text: String) -> Record {
    let planned = Session::new(config(text)).unwrap().plan().unwrap();
    planned.run(&Progress::default(), Control::default()).unwrap().record
}

/// What sites are told: the coordinates, and the proposals that are weighed in them.
#[derive(Default)]
struct Overheard {
    coordinates: Option<Vec<f64>>,
    pilots: Vec<(Option<Vec<f64>>, Vec<f64>)>,
}

fn told(coordinates: &Coordinates) -> Vec<f64> {
    let (centre, matrix) = coordinates.parts();
    [centre, matrix].concat()
}

impl Conductor for Overheard {
    fn survey(
        &mut self,
        target: &Target,
        survey: &mut dyn Exchange,
        ledger: &mut Ledger,
    ) -> Result<(), Lost> {
        let order = survey.order(ClientId(0));
        if let Task::Pilot { points } = order.task {
            assert_eq!(points, 2048);
            self.pilots.push((self.coordinates.clone(), order.numbers.to_vec()));
        }
        Here.survey(target, survey, ledger)
    }

    fn move_to(&mut self, coordinates: &Coordinates, _shares: &[f64]) -> Result<(), Lost> {
        self.coordinates = Some(told(coordinates));
        Ok(())
    }
}

/// Nothing is fitted to the pilot's points: neither the proposals nor the coordinates change.
#[test]
fn imh_proposes_what_its_pilot_weighed() {
    for data in ["heart-disease", "breast-cancer"] {
        let text = format!(
            "[data]\nbuiltin = \"{data}\"\n[target.prior]\nlaw = \"gaussian\"\nvariance = 6.25\n\
             [sampler]\nname = \"imh\"\n"
        );
        let config = config(text);
        let problem = Problem::new(&config).unwrap();
        let mut overheard = Overheard::default();
        let plan = Plan::conducted(&config, &problem, &mut overheard).unwrap();
        let Recipe::Metropolis(recipe) = &plan.recipe else { panic!("{data}: not imh") };
        let Kernel::Independence { proposal, .. } = &recipe.kernel else { panic!("{data}") };
        let coordinates = plan.coordinates.as_deref().map(told);
        assert!(coordinates.is_some() && coordinates == overheard.coordinates, "{data}");
        let weighed = |(there, parts): &(Option<Vec<f64>>, Vec<f64>)| {
            *there == coordinates && parts == proposal.parts()
        };
        assert!(overheard.pilots.iter().any(weighed), "{data}: no pilot weighed these proposals");
    }
}

/// A standard normal in the plane, in two halves: `U` is known, and so are proposals, which are
/// Student with 50 degrees of freedom.
const PLANE: &str = "seed = 4\n[target]\nmodel = \"gaussian\"\n\
    [[client]]\nmean = [0.0, 0.0]\nprecision = [[0.5, 0.0], [0.0, 0.5]]\n\
    [[client]]\nname = \"b\"\nmean = [0.0, 0.0]\nprecision = [[0.5, 0.0], [0.0, 0.5]]\n\
    [sampler]\nname = \"imh\"\n[run]\nchains = 2\niterations = 800\nthin = 1\n";

#[test]
fn a_folder_has_the_weights_and_the_probabilities_that_decided() {
    let folder = std::env::temp_dir().join(format!("consilience-imh-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    rundir::write(&folder, &run(PLANE.into())).unwrap();
    for name in ["acceptance_rate", "accepted", "log_weight"] {
        assert!(folder.join("draws.zarr/sample_stats").join(name).join("zarr.json").is_file());
    }
    let record = rundir::read(&folder).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let of = |name: &str| &record.statistics.iter().find(|s| s.name == name).unwrap().values;
    let law = |x: &[f64]| {
        let square = x[0] * x[0] + x[1] * x[1];
        -0.5 * square + 26.0 * (1.0 + square / 50.0).ln()
    };
    let (length, mut accepted, mut shift) = (record.draws.length(), 0, None);
    let rows: Vec<&[f64]> = record.draws.rows().collect();
    for chain in 0..2 {
        let mut current = None;
        for k in 0..length {
            let at = |name: &str| of(name)[chain][k];
            let (weight, x) = (at("log_weight"), rows[chain * length + k]);
            if let Some(current) = current {
                let probability = f64::min(1.0, f64::exp(weight - current));
                assert!((at("acceptance_rate") - probability).abs() < 1e-12, "{chain} {k}");
            }
            if at("accepted") == 1.0 {
                // a weight is known up to a constant, which is the same for all
                let shift = *shift.get_or_insert(weight - law(x));
                assert!((weight - law(x) - shift).abs() < 1e-9, "{chain} {k}: {weight}");
                (current, accepted) = (Some(weight), accepted + 1);
            } else {
                assert_eq!(at("accepted"), 0.0);
                assert!(k == 0 || x == rows[chain * length + k - 1], "{chain} {k}");
            }
        }
    }
    assert!(accepted > 1400, "{accepted}");
    let stay = longest_stay(&record).unwrap();
    assert!((1..20).contains(&stay) && khat(&record).unwrap() < 0.5, "{stay}");
}

/// What is foretold of a Gaussian comes true, within what 1,520 draws can tell.
#[test]
fn a_run_stands_beside_its_forecast() {
    let record = run(PLANE.into());
    let (foretold, actual) = foretold_and_actual(&record, &summaries(&record.draws)).unwrap();
    assert!((0.7..1.4).contains(&(actual.draws / foretold.draws)), "{foretold:?} {actual:?}");
    assert_eq!((foretold.exchanges, actual.exchanges), (1.0, 1.0));
    assert!((0.9..1.1).contains(&(actual.bytes / foretold.bytes)), "{foretold:?} {actual:?}");
    assert!(record.warnings.is_empty(), "{:?}", record.warnings);
    let stopped = Record { interrupted: true, ..record };
    assert!(foretold_and_actual(&stopped, &summaries(&stopped.draws)).is_none());
}

/// What effective draws do not show: weights of a heavy tail are given up where they matter, and
/// the same tail beside weights that hardly differ is not.
#[test]
fn a_heavy_tail_is_given_up_where_its_weights_are_large() {
    let config = config(PLANE.replace("imh", "auto"));
    let plan = Session::new(config.clone()).unwrap().plan().unwrap().plan;
    let mut outcome =
        sample(&plan, &plan.length, config.seed, Sinks::Memory, &Progress::default()).unwrap();
    assert_eq!(plan.row.name, "imh");
    assert!(plan.disappointment(&outcome).is_none());
    for (scale, is_given_up) in [(0.0005, false), (4.0, true)] {
        let weights = outcome.statistics.iter_mut().find(|s| s.name == "log_weight").unwrap();
        let all: usize = weights.values.iter().map(Vec::len).sum();
        for (k, weight) in weights.values.iter_mut().flatten().enumerate() {
            *weight = (1.0 + scale * ((k as f64 + 0.5) / all as f64).powf(-0.9)).ln();
        }
        let found = plan.disappointment(&outcome);
        assert_eq!(found.is_some(), is_given_up, "{found:?}");
        assert!(found.is_none_or(|found| found.why.contains("k-hat")));
    }
}

/// Posteriors at two sites on whose proposals k-hat is 0.7 to 1.2, of runs and (the first) of the
/// pilot, and no weight is large.
const LIGHT: [(f64, [&str; 2]); 2] = [
    (
        25.0,
        [
            "[1, 1.3, 1], [1, 1.5, 0], [1, 0.3, 0], [1, -0.2, 0], [1, 0.9, 0], [1, 0.2, 0]",
            "[1, -0.1, 1], [1, -0.6, 1], [1, -2.3, 0], [1, -0.1, 0], [1, -1.2, 1], [1, 1.1, 1]",
        ],
    ),
    (
        100.0,
        [
            "[1, 0.5, -1.2, 1], [1, 0.8, -0.1, 1], [1, -0.1, -0.3, 0], [1, 0.5, -0.7, 0],\
             [1, 1.6, 0, 0], [1, 2.1, -0.1, 1]",
            "[1, -0.2, -0.6, 1], [1, -0.6, -0.3, 0], [1, 0.7, -0.6, 0], [1, 0.9, 0.8, 1],\
             [1, -0.3, 1.9, 0], [1, -0.3, -0.7, 1]",
        ],
    ),
];

/// k-hat is above 0.7 where few weights are larger than others, and none is large: such draws are
/// good, and `auto` keeps them. Against `hmc`, which has no weights: means within 4.9 standard
/// errors of both, one false alarm in 100,000 among ten.
#[test]
fn draws_are_kept_where_the_tail_is_heavy_and_no_weight_is_large() {
    for (variance, [a, b]) in LIGHT {
        let by = |sampler: &str, seed: u64| {
            run(format!(
                "seed = {seed}\n[target]\nmodel = \"logistic\"\n\
                 prior = {{ law = \"gaussian\", variance = {variance:?} }}\n\
                 [[client]]\nrows = [{a}]\n[[client]]\nname = \"b\"\nrows = [{b}]\n\
                 [sampler]\nname = \"{sampler}\"\n"
            ))
        };
        let reference = summaries(&by("hmc", 1).draws);
        for seed in 1..=2 {
            let record = by("auto", seed);
            assert_eq!(record.sampler.0, "imh", "{:?}", record.warnings);
            assert!(!record.warnings.iter().any(|w| w.code == Code::HeavyWeights));
            let (khat, stay) = (khat(&record).unwrap(), longest_stay(&record).unwrap());
            assert!(khat > 0.7 && stay < 20, "the case does not come up: {khat}, {stay}");
            for (ours, theirs) in summaries(&record.draws).iter().zip(&reference) {
                let (ours, theirs) = (ours.as_ref().unwrap(), theirs.as_ref().unwrap());
                let z = (ours.mean - theirs.mean) / ours.mcse_mean.hypot(theirs.mcse_mean);
                assert!(z.abs() < 4.9 && ours.ess_bulk.min(ours.ess_tail) > 3600.0, "{z}");
            }
        }
    }
}

/// Twelve rows under a wide prior: the pilot does not see where the chains get stuck, and the
/// weights' k-hat looks well.
#[test]
fn a_run_that_falls_far_short_of_its_pilot_is_not_to_be_relied_on() {
    let text = "[target]\nmodel = \"logistic\"\n\
        prior = { law = \"gaussian\", variance = 100.0 }\n\
        [[client]]\nrows = [[1, 0.2, 0.1, 0], [1, 0.7, -0.4, 1], [1, -0.6, 0, 1],\n\
        [1, -0.5, -0.8, 0], [1, 0.9, 0.5, 1], [1, -1.3, 1.1, 1]]\n\
        [[client]]\nname = \"b\"\nrows = [[1, 0, 0.6, 1], [1, -0.2, -0.6, 0],\n\
        [1, -1.3, 0.1, 0], [1, -0.1, 0, 0], [1, 0.9, -0.7, 0], [1, 0.4, 2.1, 1]]\n\
        [sampler]\nname = \"imh\"\n[run]\neffective_draws = 1000\n";
    let record = run(text.into());
    let found = record.warnings.iter().find(|w| w.code == Code::PilotTooHopeful);
    let found = found.unwrap_or_else(|| panic!("{:?}", record.warnings));
    assert!(found.numbers["effective_draws"] < 0.5 * found.numbers["foretold"], "{found:?}");
    assert!(found.numbers["longest_stay"] > 20.0 && found.remedy.contains("hmc"), "{found:?}");
}

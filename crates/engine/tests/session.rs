//! One call takes a config to its record: the draws are those of its parts, and nothing that a
//! caller should know is lost on the way.
#![allow(clippy::unwrap_used)] // a test may panic

use std::cell::Cell;

use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{self, Progress};
use consilience_engine::session::{Control, Session};
use consilience_engine::warnings::Code;

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

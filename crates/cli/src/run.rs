//! Run a config from its file to its answer.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::pooled::{self, Reference};
use consilience_engine::problem::Problem;
use consilience_engine::run::{Outcome, Progress, sample};

use crate::args::{RunCommand, RunOptions};
use crate::listing::MAIN_JOB;
use crate::output::{Failure, note, say};
use crate::progress::with_progress;
use crate::report::{self, Answer};

/// How many draws the pooled reference has, in each of as many chains.
const REFERENCE_DRAWS: usize = 4000;

/// `consilience` alone: four hospitals, one posterior.
pub fn main_job(options: &RunOptions) -> Result<(), Failure> {
    let source = Source { file: "the built-in config".into(), folder: ".".into(), text: MAIN_JOB.into() };
    perform(Config::parse(source)?, options, true)
}

/// `consilience run`.
pub fn run(command: &RunCommand) -> Result<(), Failure> {
    perform(Config::load(&command.config)?, &command.options, false)
}

fn perform(mut config: Config, options: &RunOptions, with_reference: bool) -> Result<(), Failure> {
    apply(&mut config, options)?;
    let problem = Problem::new(&config)?;
    if !options.json {
        say(&report::opening(&config, &problem))?;
    }
    let plan = Plan::new(&config, &problem)?;
    for warning in &plan.warnings {
        note(&format!("warning: {warning}\n"));
    }
    if !options.json {
        say(&report::plan(&plan))?;
    }
    let sinks = match &config.draws {
        None => Sinks::Memory,
        Some(path) => Sinks::File { path: path.clone(), parameters: problem.parameters.clone() },
    };
    let progress = Arc::new(Progress::default());
    let total = config.run.iterations.saturating_mul(config.run.chains as u64);
    let started = Instant::now();
    let outcome: Outcome = with_progress("sampling", total, &progress, || sample(&plan, &config.run, config.seed, sinks, &progress))?;
    let seconds = started.elapsed().as_secs_f64();
    let reference: Option<Reference> = match &plan.findings {
        Some(found) if with_reference => pooled::mala(&problem.target, &found.optimum, config.run.chains, REFERENCE_DRAWS, config.seed),
        _ => None,
    };
    let answer = Answer::new(&config, &problem, &plan, &outcome, reference.as_ref(), seconds);
    say(&if options.json { answer.json() } else { answer.text() })
}

fn apply(config: &mut Config, options: &RunOptions) -> Result<(), Failure> {
    if let Some(seed) = options.seed {
        config.seed = seed;
    }
    if let Some(threads) = options.threads {
        config.run.threads = threads;
    }
    if let Some(iterations) = options.iterations {
        if iterations == 0 {
            return Err(Failure::Other("--iterations 0 leaves nothing to do: give at least 1".into()));
        }
        let share = u128::from(config.run.burn_in) * u128::from(iterations) / u128::from(config.run.iterations);
        config.run.burn_in = share as u64; // below iterations, since burn_in is
        config.run.iterations = iterations;
    }
    if let Some(path) = &options.draws {
        let known = |path: &Path| path.extension().is_some_and(|e| e == "csv" || e == "npy");
        if !known(path) {
            return Err(Failure::Other(format!("--draws {}: use a name that ends in .csv or .npy", path.display())));
        }
        config.draws = Some(path.clone());
    }
    Ok(())
}

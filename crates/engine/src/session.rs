//! Take a config to its record in one place: problem, plan, chains, what is computed of the draws,
//! warnings.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use consilience_engine::config::Config;
//! use consilience_engine::session::{Control, Session};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Config::load(Path::new("run.toml"))?;
//! let run = Session::new(config)?.plan()?.run(&Default::default(), Control::default())?;
//! println!("{:?}", run.record.draws.mean());
//! # Ok(())
//! # }
//! ```

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use consilience_core::model::Model;

use crate::checkpoint::Checkpoint;
use crate::conductor::HereUntil;
use crate::config::{Config, ConfigError};
use crate::draws::{MOST_HELD, Sinks};
use crate::held_out::Scores;
use crate::plan::Plan;
use crate::problem::Problem;
use crate::record::{Circumstances, Record};
use crate::reference::Reference;
use crate::run::{Failure, Outcome, Progress, RunError, sample_kept};
use crate::statistics::log_density;
use crate::warnings::{Code, Warning};

/// A config with its data.
#[derive(Clone, Debug)]
pub struct Session {
    config: Config,
    problem: Problem,
}

impl Session {
    /// The problem of a config, all of whose data is here.
    pub fn new(config: Config) -> Result<Session, ConfigError> {
        let problem = Problem::new(&config)?;
        Ok(Session { config, problem })
    }

    /// The problem of a config whose model this program brings, with its clients.
    pub fn external(
        config: Config,
        model: Arc<dyn Model>,
        parameters: Vec<String>,
        sites: Vec<String>,
    ) -> Result<Session, ConfigError> {
        let problem = Problem::external(&config, model, parameters, sites)?;
        Ok(Session { config, problem })
    }

    /// The config.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it states, with its data.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// Find what the config left open.
    pub fn plan(self) -> Result<Planned, ConfigError> {
        let Session { config, problem } = self;
        let plan = Plan::new(&config, &problem)?;
        Ok(Planned { config, problem, plan })
    }
}

/// A run that can begin.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The config.
    pub config: Config,
    /// What it states, with its data.
    pub problem: Problem,
    /// What is done.
    pub plan: Plan,
}

/// How a reference is found for a run that has ended.
pub type FindReference<'a> = &'a dyn Fn(&Planned) -> Option<Reference>;

/// What only the caller knows or decides. By default nothing is kept on the way, everything is
/// computed of the draws, and no clock runs.
#[derive(Default)]
pub struct Control<'a> {
    /// The version of the program.
    pub version: String,
    /// When it was made, in UTC, such as `2026-01-31T12:00:00Z`.
    pub created: String,
    /// Seconds since any moment; none: the run takes no time.
    pub clock: Option<&'a dyn Fn() -> f64>,
    /// Where chains are saved as they go on.
    pub checkpoint: Option<&'a Checkpoint<'a>>,
    /// A reference from pooled rows to hold the draws against.
    pub reference: Option<FindReference<'a>>,
    /// Leave out what takes passes over all rows after sampling: the log-density of the draws,
    /// calibration, influence.
    pub draws_alone: bool,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Ended {
    /// What it leaves behind.
    pub record: Record,
    /// How many iterations all chains did.
    pub iterations: u64,
    /// The bits up by the published formula of the sampler, where there is one.
    pub published: Option<u64>,
    /// How well rows that were held out are predicted.
    pub held_out: Option<Scores>,
    /// Why it stopped before its end, if its model failed.
    pub failure: Option<Failure>,
}

impl Planned {
    fn sample(
        &self,
        plan: &Plan,
        progress: &Progress,
        checkpoint: Option<&Checkpoint<'_>>,
    ) -> Result<Outcome, RunError> {
        let file = self.config.draws.clone().map(|path| (path, self.problem.parameters.clone()));
        let sinks = match (checkpoint, file) {
            (Some(checkpoint), file) => {
                Sinks::Kept { folder: checkpoint.path().to_path_buf(), file }
            }
            (None, None) => Sinks::Memory,
            (None, Some((path, parameters))) => Sinks::File { path, parameters, hold: MOST_HELD },
        };
        sample_kept(plan, &plan.length, self.config.seed, sinks, progress, checkpoint)
    }

    /// Run the chains to their end, or until somebody asks to stop, and conclude.
    pub fn run(&self, progress: &Progress, control: Control<'_>) -> Result<Ended, RunError> {
        let Planned { config, problem, plan } = self;
        let now = || control.clock.map_or(0.0, |clock| clock());
        let started = now();
        let (mut plan, mut total) = (Cow::Borrowed(plan), plan.length.total());
        progress.total.store(total, Ordering::Relaxed);
        let mut outcome = self.sample(&plan, progress, control.checkpoint)?;
        let mut again = None;
        while let Some(found) = plan.disappointment(&outcome) {
            progress.enter(format!("{}: {}; looking for a better way", plan.row.name, found.why));
            let mut here = HereUntil(&progress.stop);
            let next = plan.after(found, config, problem, &mut here, &outcome.ledger);
            if progress.is_stopped() {
                // What is there is kept, and is less than the run would have given.
                outcome.interrupted = true;
                break;
            }
            let Ok(next) = next else { break };
            let more = next.length.total();
            progress.enter(format!("{more} more iterations by {}", next.row.name));
            total += more;
            progress.total.store(total, Ordering::Relaxed);
            let before = again.as_ref().or(control.checkpoint);
            again = before.map(Checkpoint::again).transpose()?;
            outcome = self.sample(&next, progress, again.as_ref())?;
            plan = Cow::Owned(next);
        }
        let checkpoint = again.as_ref().or(control.checkpoint);
        let plan = &*plan;
        let halved = match plan.halves(config).filter(|_| !outcome.interrupted) {
            None => None,
            Some(halves) => {
                progress.total.store(total + halves.length.total(), Ordering::Relaxed);
                progress.enter("chains of half the step, for the bias");
                let again = checkpoint.map(Checkpoint::again).transpose()?;
                let again = again.as_ref();
                // Its draws are for the bias alone, and go to no file.
                let sinks = again.map_or(Sinks::Memory, |again| Sinks::Kept {
                    folder: again.path().to_path_buf(),
                    file: None,
                });
                let (length, seed) = (&halves.length, config.seed);
                let halved = sample_kept(&halves, length, seed, sinks, progress, again)?;
                outcome.count(&halved);
                Some(halved)
            }
        };
        let seconds = now() - started;
        progress.enter("computing diagnostics");
        let mut warnings = checkpoint.map(Checkpoint::warnings).unwrap_or_default();
        if !control.draws_alone && config.lp != Some(false) {
            match log_density(&problem.target, &outcome.draws) {
                Ok(lp) => outcome.statistics.insert(0, lp),
                Err(why) => warnings.push(Warning::new(Code::LpLeftOut, why)),
            }
        }
        let scored = problem.held_out.as_ref().map(|rows| rows.score(&outcome.draws));
        let (iterations, failure) = (outcome.iterations, outcome.failure.take());
        let published = plan.published_bits(&outcome.ledger);
        let made = Circumstances { version: control.version, created: control.created, seconds };
        let reference = control.reference.and_then(|find| find(self));
        let mut record = Record::new(made, config, problem, plan, outcome, reference);
        if let Some(halved) = halved {
            record.halve(plan, &halved);
        }
        record.warnings.extend(warnings);
        if !control.draws_alone {
            record.judge(problem);
            record.check(config);
        }
        let held_out = scored.and_then(|scores| scores.ok().flatten());
        Ok(Ended { record, iterations, published, held_out, failure })
    }
}

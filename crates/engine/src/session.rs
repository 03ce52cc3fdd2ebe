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

use std::sync::Arc;
use std::sync::atomic::Ordering;

use consilience_core::model::Model;

use crate::checkpoint::Checkpoint;
use crate::conductor::HereUntil;
use crate::config::{Config, ConfigError};
use crate::drawn::{Drawn, Venue};
use crate::draws::{MOST_HELD, Sinks};
use crate::held_out::Scores;
use crate::plan::{Disappointment, Plan};
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

/// This process: the rows of all sites are here.
struct Here<'a> {
    planned: &'a Planned,
    progress: &'a Progress,
    /// Where the chains that run now are saved.
    checkpoint: Option<Kept<'a>>,
    /// What people should know of chains that ran before these.
    warnings: Vec<Warning>,
    begun: bool,
}

/// A checkpoint of the caller, or one within it.
enum Kept<'a> {
    First(&'a Checkpoint<'a>),
    Again(Checkpoint<'a>),
}

impl<'a> Kept<'a> {
    fn get(&self) -> &Checkpoint<'a> {
        match self {
            Kept::First(checkpoint) => checkpoint,
            Kept::Again(checkpoint) => checkpoint,
        }
    }
}

impl Here<'_> {
    /// Save the next chains within what those before were saved in.
    fn begin_again(&mut self) -> Result<(), RunError> {
        if let Some(kept) = &self.checkpoint {
            self.warnings.extend(kept.get().warnings());
            self.checkpoint = Some(Kept::Again(kept.get().again()?));
        }
        Ok(())
    }

    /// Where the draws of a plan go. Those at half the step are for the bias alone, and go to no
    /// file of the user's.
    fn sinks(&self, plan: &Plan) -> Sinks {
        let Planned { config, problem, .. } = self.planned;
        let file = config.draws.clone().filter(|_| !plan.decision.halved);
        let file = file.map(|path| (path, problem.parameters.clone()));
        match (&self.checkpoint, file) {
            (Some(kept), file) => Sinks::Kept { folder: kept.get().path().to_path_buf(), file },
            (None, None) => Sinks::Memory,
            (None, Some((path, parameters))) => Sinks::File { path, parameters, hold: MOST_HELD },
        }
    }
}

impl Venue for Here<'_> {
    type Error = RunError;

    fn sample(&mut self, plan: &Plan) -> Result<Outcome, RunError> {
        let more = plan.length.total();
        if self.begun {
            self.progress.enter(if plan.decision.halved {
                "chains of half the step, for the bias".to_owned()
            } else {
                format!("{more} more iterations by {}", plan.row.name)
            });
            self.begin_again()?;
        }
        self.begun = true;
        self.progress.total.fetch_add(more, Ordering::Relaxed);
        let checkpoint = self.checkpoint.as_ref().map(Kept::get);
        let (seed, sinks) = (self.planned.config.seed, self.sinks(plan));
        sample_kept(plan, &plan.length, seed, sinks, self.progress, checkpoint)
    }

    fn after(
        &mut self,
        plan: &Plan,
        found: Disappointment,
        outcome: &mut Outcome,
    ) -> Result<Option<Plan>, RunError> {
        let Planned { config, problem, .. } = self.planned;
        let (name, why) = (plan.row.name, &found.why);
        self.progress.enter(format!("{name}: {why}; looking for a better way"));
        let mut here = HereUntil(&self.progress.stop);
        let next = plan.after(found, config, problem, &mut here, &outcome.ledger);
        if self.progress.is_stopped() {
            // What is there is kept, and is less than the run would have given.
            outcome.interrupted = true;
            return Ok(None);
        }
        Ok(next.ok())
    }
}

impl Planned {
    /// Run the chains to their end, or until somebody asks to stop, and conclude.
    pub fn run(&self, progress: &Progress, control: Control<'_>) -> Result<Ended, RunError> {
        let Planned { config, problem, plan } = self;
        let now = || control.clock.map_or(0.0, |clock| clock());
        let started = now();
        progress.total.store(0, Ordering::Relaxed);
        let checkpoint = control.checkpoint.map(Kept::First);
        let warnings = Vec::new();
        let mut here = Here { planned: self, progress, checkpoint, warnings, begun: false };
        let mut drawn = Drawn::by(config, plan.clone(), &mut here)?;
        let seconds = now() - started;
        progress.enter("computing diagnostics");
        let Here { checkpoint, mut warnings, .. } = here;
        warnings.extend(checkpoint.iter().flat_map(|kept| kept.get().warnings()));
        let outcome = &mut drawn.outcome;
        // Exact functions of rows: a private run leaves them out, in one process as anywhere.
        let looks_at_rows = !control.draws_alone && config.privacy.is_none();
        if looks_at_rows && config.lp != Some(false) {
            match log_density(&problem.target, &outcome.draws) {
                Ok(lp) => outcome.statistics.insert(0, lp),
                Err(why) => warnings.push(Warning::new(Code::LpLeftOut, why)),
            }
        }
        let scored = problem.held_out.as_ref().map(|rows| rows.score(&outcome.draws));
        let (iterations, failure) = (outcome.iterations, outcome.failure.take());
        let published = drawn.plan.published_bits(&drawn.outcome.ledger);
        let made = Circumstances { version: control.version, created: control.created, seconds };
        let reference = control.reference.and_then(|find| find(self));
        let mut record = drawn.record(made, config, problem, reference, warnings);
        if looks_at_rows {
            record.mark_rows(config, problem);
            record.judge(problem);
            record.check(config);
            record.cross_validate(config);
        }
        let held_out = scored.and_then(|scores| scores.ok().flatten());
        Ok(Ended { record, iterations, published, held_out, failure })
    }
}

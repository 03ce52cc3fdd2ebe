//! Run chains on all cores. No number depends on how many cores there are: threads split chains, or
//! the clients of a chain, never one sum.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use consilience_core::model::{ClientModels, EvaluationError};
use consilience_core::protocol::{
    Device, Direction, Event, Exchange, Jointly, Ledger, Reply, Together, devices_of, exchange,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Sampler};
use rayon::prelude::*;
use thiserror::Error;

use crate::chain_log::{Moment, layer_that_left};
use crate::checkpoint::{Checkpoint, Part, Running};
use crate::draws::{DrawSink, Draws, Sinks, Streamed, open_at};
use crate::plan::Plan;
use crate::plan::descent::Downhill;
use crate::record::Statistic;

/// Below so many multiplications an exchange is not worth spreading over threads.
const WORTH_SPREADING: usize = 200_000;
/// From so many chains on a thread they go on side by side, where that is faster at all.
const WORTH_ABREAST: usize = 3;
/// How many exchanges pass between two looks at the clock and the stop sign, at the most; and how
/// many cells of features they read between two looks at the stop sign, about: a tenth of a second
/// where a row takes a microsecond.
const PATIENCE: u64 = 64;
const MOST_CELLS: usize = 200_000;
/// Chains that stream their draws to disk record what stands beside them for so many draws; with
/// more, nothing is recorded.
pub(crate) const MOST_NOTED: u64 = 4 << 20;

/// How long a run is: decided by its plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Length {
    /// How many chains.
    pub chains: usize,
    /// How many iterations each.
    pub iterations: u64,
    /// How many of them are not kept.
    pub burn_in: u64,
    /// Keep every so many draws.
    pub thin: u64,
    /// How many threads; 0: as many as there are cores.
    pub threads: usize,
}

impl Length {
    /// The iterations of all chains together.
    pub fn total(&self) -> u64 {
        self.iterations.saturating_mul(self.chains as u64)
    }
}

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// The kept draws, chain by chain; empty if they were streamed to disk and are too many to
    /// hold.
    pub draws: Draws,
    /// Where the draws are and how many, if they are on disk alone.
    pub streamed: Option<Streamed>,
    /// What was recorded beside every draw: `iteration`, the `bits_up` and `bits_down` that its
    /// chain had sent, the `gradients` of single rows that its clients had evaluated, the
    /// `participants` of the exchange that made it, and what the sampler says of it
    /// ([`consilience_core::sampler::Family::numbers`]). Nothing where the draws are not held.
    pub statistics: Vec<Statistic>,
    /// What all chains sent.
    pub ledger: Ledger,
    /// How many row gradients all chains evaluated.
    pub rows_evaluated: u64,
    /// How many iterations all chains did.
    pub iterations: u64,
    /// How many answers of each client were shortened in all chains, where answers are.
    pub shortened: Vec<u64>,
    /// Whether somebody asked to stop before the end.
    pub interrupted: bool,
    /// Why the run stopped before the end, if its model failed; what was drawn until then is kept.
    pub failure: Option<Failure>,
}

/// A model that failed.
#[derive(Debug, Error)]
#[error("chain {chain} stopped after iteration {iteration}: {error}")]
pub struct Failure {
    /// In which chain, from 1.
    pub chain: usize,
    /// After how many iterations.
    pub iteration: u64,
    /// Why.
    #[source]
    pub error: EvaluationError,
}

/// Why a run gave nothing.
#[derive(Debug, Error)]
pub enum RunError {
    /// A chain blew up.
    #[error(
        "chain {chain} diverged at iteration {iteration}: a parameter became infinite{}. The step \
         {step:.3e} is too large for this target: use {}a tenth of it",
        layer.as_ref().map_or_else(String::new, |layer| format!(" in layer {layer}")),
        if layer.is_none() { "step = \"auto\", or " } else { "" }
    )]
    Diverged {
        /// Which chain, from 1.
        chain: usize,
        /// When.
        iteration: u64,
        /// The step size.
        step: f64,
        /// The layer that it was in, where the model has layers.
        layer: Option<String>,
    },
    /// A chain has no draws to give, for another reason than its step.
    #[error("{why}")]
    NoDraws {
        /// Which.
        why: String,
    },
    /// A message could not be formed.
    #[error(transparent)]
    Data(#[from] consilience_core::error::DataError),
    /// Draws could not be written.
    #[error(
        "the draws cannot be written to {file}: {error}. Free some space or choose another place, \
         and run again"
    )]
    Write {
        /// Where to.
        file: String,
        /// Why not.
        error: std::io::Error,
    },
    /// The run could not be saved.
    #[error("the checkpoint cannot be written: {0}")]
    Checkpoint(#[from] crate::store::StoreError),
    /// No threads could be had.
    #[error("{threads} threads cannot be started: {why}")]
    Threads {
        /// How many.
        threads: usize,
        /// Why not.
        why: String,
    },
}

/// How far a run is, shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Iterations done, of all chains.
    pub done: AtomicU64,
    /// Iterations to be done, once that is known.
    pub total: AtomicU64,
    /// Set it to stop the run; what was drawn is kept.
    pub stop: AtomicBool,
    /// What is done, where it is not the chains that were planned first.
    stage: Mutex<String>,
}

impl Progress {
    /// Say what is done from now on.
    pub fn enter(&self, stage: impl Into<String>) {
        if let Ok(mut known) = self.stage.lock() {
            *known = stage.into();
        }
    }

    /// What is done; empty: the chains that were planned first.
    pub fn stage(&self) -> String {
        self.stage.lock().map(|stage| stage.clone()).unwrap_or_default()
    }

    /// Whether somebody asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Run all chains of a plan.
pub fn sample(
    plan: &Plan,
    run: &Length,
    seed: u64,
    sinks: Sinks,
    progress: &Progress,
) -> Result<Outcome, RunError> {
    sample_kept(plan, run, seed, sinks, progress, None)
}

impl Outcome {
    /// Count what another run cost that was made for this one.
    pub fn count(&mut self, other: &Outcome) {
        self.ledger.merge(&other.ledger);
        self.rows_evaluated += other.rows_evaluated;
        self.iterations += other.iterations;
    }
}

/// Run all chains of a plan from where a checkpoint has them, and save them there as they go. Its
/// draws go to [`Sinks::Kept`] in its folder.
pub fn sample_kept(
    plan: &Plan,
    run: &Length,
    seed: u64,
    sinks: Sinks,
    progress: &Progress,
    checkpoint: Option<&Checkpoint<'_>>,
) -> Result<Outcome, RunError> {
    let threads = if run.threads == 0 {
        std::thread::available_parallelism().map_or(1, usize::from)
    } else {
        run.threads
    };
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|why| RunError::Threads { threads, why: why.to_string() })?;
    let d = plan.target.dim();
    let work: usize = plan.target.clients.iter().map(|c| c.rows() * d).sum();
    let spread_clients = run.chains < threads && work >= WORTH_SPREADING;
    let failed: Mutex<Option<(usize, RunError)>> = Mutex::new(None);
    let share = run.chains.div_ceil(threads.max(1));
    let abreast = if share >= WORTH_ABREAST && goes_abreast(plan) { share } else { 1 };
    let finished: Vec<Vec<Chain>> = pool.install(|| {
        let group = |group: Vec<(usize, DrawSink)>| {
            let begun = |(index, sink)| Going::begin((plan, run), seed, index, sink, progress);
            let all = || -> Result<Vec<Chain>, (usize, RunError)> {
                let mut chains = Vec::with_capacity(group.len());
                for (index, sink) in group {
                    let begun = begun((index, sink))
                        .and_then(|going| going.restored(checkpoint))
                        .and_then(|going| going.gone_downhill(seed, spread_clients));
                    chains.push(begun.map_err(|error| (index, error))?);
                }
                follow(chains, spread_clients)
            };
            match hosted(plan, all) {
                Ok(chains) => chains,
                Err((index, error)) => {
                    progress.stop.store(true, Ordering::Relaxed);
                    if let Ok(mut slot) = failed.lock()
                        && slot.as_ref().is_none_or(|(first, _)| index < *first)
                    {
                        *slot = Some((index, error));
                    }
                    Vec::new()
                }
            }
        };
        let mut sinks = sinks.open(run.chains, d)?.into_iter().enumerate().peekable();
        let mut groups: Vec<Vec<(usize, DrawSink)>> = Vec::new();
        while sinks.peek().is_some() {
            groups.push(sinks.by_ref().take(abreast).collect());
        }
        Ok::<_, RunError>(groups.into_par_iter().map(group).collect())
    })?;
    if let Ok(Some((_, error))) = failed.into_inner() {
        sinks.discard(run.chains);
        return Err(error);
    }
    gather(
        plan,
        run,
        &sinks,
        finished.into_iter().flatten().collect(),
        progress.stop.load(Ordering::Relaxed),
    )
}

/// Whether chains on one thread go on side by side: their clients know their rows, and sum over
/// them faster for several chains at once.
fn goes_abreast(plan: &Plan) -> bool {
    let elsewhere = plan.target.joint.is_some() || plan.accelerator.is_some();
    !elsewhere && plan.target.clients.iter().all(|client| client.offers().together)
}

/// Run chains where their model is at home.
fn hosted(
    plan: &Plan,
    chains: impl FnOnce() -> Result<Vec<Chain>, (usize, RunError)> + Send,
) -> Result<Vec<Chain>, (usize, RunError)> {
    let Some(joint) = &plan.target.joint else { return chains() };
    let (mut chains, mut done) = (Some(chains), None);
    joint.host(&mut || done = chains.take().map(|chains| chains()));
    done.unwrap_or_else(|| {
        let why = "the model does not let its chain run".into();
        Err((0, RunError::Threads { threads: 1, why }))
    })
}

/// Put the chains of a run together, wherever they ran.
pub fn gather(
    plan: &Plan,
    run: &Length,
    sinks: &Sinks,
    chains: Vec<Chain>,
    interrupted: bool,
) -> Result<Outcome, RunError> {
    let d = plan.target.dim();
    let mut outcome = Outcome {
        draws: Draws::new(d),
        streamed: None,
        statistics: Vec::new(),
        ledger: Ledger::new(plan.target.clients.len()),
        rows_evaluated: 0,
        iterations: 0,
        shortened: Vec::new(),
        interrupted,
        failure: None,
    };
    let (mut sunk, mut noted) = (Vec::new(), Vec::new());
    let least =
        if interrupted { least_worth_keeping(chains.iter().map(|c| c.kept).collect()) } else { 0 };
    for chain in chains {
        outcome.ledger.merge(&chain.ledger);
        outcome.rows_evaluated += chain.rows_evaluated;
        outcome.iterations += chain.iterations;
        outcome.shortened.resize(chain.shortened.len().max(outcome.shortened.len()), 0);
        outcome.shortened.iter_mut().zip(&chain.shortened).for_each(|(all, own)| *all += own);
        outcome.failure = outcome.failure.or(chain.failure);
        if chain.kept >= least {
            sunk.push(chain.sink);
            noted.push(chain.numbers);
        }
    }
    (outcome.draws, outcome.streamed) = sinks.close(sunk, d)?;
    outcome.statistics = statistics(&names(plan), &noted, outcome.draws.length());
    sinks.discard(run.chains);
    Ok(outcome)
}

/// All chains are cut to the same length, and a chain that waited for a core when the run was
/// stopped has next to none: leave out those below this length, so that the most draws are left.
fn least_worth_keeping(mut kept: Vec<u64>) -> u64 {
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept.iter()
        .zip(1u64..)
        .max_by_key(|(length, chains)| (*length * chains, *chains))
        .map_or(0, |(length, _)| *length)
}

/// The names of the numbers beside every draw: those of the engine, then those of the sampler.
fn names(plan: &Plan) -> Vec<&'static str> {
    [&OWN[..], plan.recipe.family().numbers()].concat()
}

/// What the engine records beside every draw.
const OWN: [&str; 5] = ["iteration", "bits_up", "bits_down", "gradients", "participants"];

/// How many numbers stand beside every draw.
pub(crate) fn width(plan: &Plan) -> usize {
    OWN.len() + plan.recipe.family().numbers().len()
}

/// What the chains recorded beside their first `length` draws, by name. What a chain does not know
/// is NaN there, and left out.
fn statistics(names: &[&str], chains: &[Vec<f64>], length: usize) -> Vec<Statistic> {
    let width = names.len();
    if length == 0 || chains.iter().any(|numbers| numbers.len() < length * width) {
        return Vec::new();
    }
    let of = |(k, name): (usize, &&str)| Statistic {
        name: (*name).into(),
        values: chains
            .iter()
            .map(|numbers| numbers.iter().skip(k).step_by(width).take(length).copied().collect())
            .collect(),
    };
    let mut all: Vec<Statistic> = names.iter().enumerate().map(of).collect();
    all.retain(|s| s.values.iter().flatten().all(|v| !v.is_nan()));
    all
}

/// A chain that has ended.
#[derive(Debug)]
pub struct Chain {
    pub(crate) sink: DrawSink,
    /// What stands beside them, draw by draw.
    pub(crate) numbers: Vec<f64>,
    /// How many draws went there.
    pub(crate) kept: u64,
    pub(crate) ledger: Ledger,
    pub(crate) rows_evaluated: u64,
    pub(crate) iterations: u64,
    /// How many answers of each client were shortened, where answers are.
    pub(crate) shortened: Vec<u64>,
    /// Why it ended before its end, if its model failed.
    pub(crate) failure: Option<Failure>,
}

/// A chain that goes on.
struct Going<'a> {
    plan: &'a Plan,
    run: &'a Length,
    index: usize,
    progress: &'a Progress,
    checkpoint: Option<&'a Checkpoint<'a>>,
    sink: DrawSink,
    chain: Running,
    notes: Notes,
    /// Who answers all of its clients, where they do not do so themselves.
    joint: Option<Jointly>,
    outward: Vec<f64>,
    /// How many iterations were reported.
    reported: u64,
    /// How many row gradients were evaluated, and by whom some are in this exchange.
    gradients: u64,
    before: u64,
    cohort: Vec<ClientId>,
    /// How many exchanges pass between two looks at the clock, and at the stop sign.
    patience: u64,
    glance: u64,
    /// Whether somebody asked to stop, and why the model gave no answer.
    stopped: bool,
    failure: Option<Failure>,
}

impl<'a> Going<'a> {
    fn begin(
        (plan, run): (&'a Plan, &'a Length),
        seed: u64,
        index: usize,
        sink: DrawSink,
        progress: &'a Progress,
    ) -> Result<Self, RunError> {
        let keys = plan.keys(Keys::simulation(Seed::new(seed), index as u32));
        let start = plan.start_of(keys);
        let server = plan.recipe.server(&plan.target, &start, keys)?;
        let clients = plan.recipe.clients(&Arc::new(plan.target.clone()), keys)?;
        let joint = plan.target.joint.as_ref().or(plan.accelerator.as_ref());
        // Models that are called from here may take their time for one exchange.
        let patience = if joint.is_some() { 1 } else { PATIENCE };
        let cells: usize = plan.target.clients.iter().map(|c| c.rows() * plan.target.dim()).sum();
        Ok(Going {
            plan,
            run,
            index,
            progress,
            checkpoint: None,
            sink,
            chain: Running::new(index + 1, server, clients),
            notes: Notes { all: Vec::new(), file: None },
            joint: joint.map(|joint| Jointly::new(Arc::clone(joint))),
            outward: vec![0.0; plan.target.dim()],
            reported: 0,
            gradients: 0,
            before: 0,
            cohort: Vec::new(),
            patience,
            glance: ((MOST_CELLS / cells.max(1)) as u64).clamp(1, patience),
            stopped: false,
            failure: None,
        })
    }

    /// The same from where a checkpoint has it.
    fn restored(mut self, checkpoint: Option<&'a Checkpoint<'a>>) -> Result<Self, RunError> {
        if let Some(checkpoint) = checkpoint {
            checkpoint.restore(self.index + 1, &mut self.chain)?;
        }
        self.checkpoint = checkpoint;
        self.notes = Notes::open(checkpoint, &self.chain)?;
        self.sink.go_on(&self.chain.draws_file)?;
        self.gradients = rows_evaluated(&self.chain.clients);
        Ok(self)
    }

    /// The same from where descent leads, if the plan says so.
    fn gone_downhill(mut self, seed: u64, spread: bool) -> Result<Self, RunError> {
        let Some(downhill) = &self.plan.downhill else { return Ok(self) };
        // A chain that was saved has been downhill.
        if self.chain.ledger.messages(Direction::Down) > 0 {
            return Ok(self);
        }
        let number = |chain: u32| self.plan.keys(Keys::simulation(Seed::new(seed), chain));
        let keys = number(self.index as u32);
        let (start, other) = (self.plan.start_of(keys), number(DESCENTS | self.index as u32));
        match downhill.follow(&start, other, self.joint.as_mut(), spread, self.progress) {
            Ok(Some((there, ledger))) => {
                self.chain.server = self.plan.recipe.server(&self.plan.target, &there, keys)?;
                self.chain.ledger.merge(&ledger);
            }
            // Stopped on the way: nothing is saved, and a run that goes on begins here again.
            Ok(None) => (self.stopped, self.checkpoint) = (true, None),
            Err(Stumble::Diverged { iteration, x }) => {
                return Err(RunError::Diverged {
                    chain: self.index + 1,
                    iteration,
                    step: downhill.recipe.step().largest(),
                    layer: layer_that_left(&self.plan.layers, &x),
                });
            }
            Err(Stumble::Run(error)) => return Err(error),
        }
        Ok(self)
    }

    fn is_over(&self) -> bool {
        self.stopped
            || self.failure.is_some()
            || self.chain.server.iteration() >= self.run.iterations
    }

    /// Note how much the clients of the next exchange have done.
    fn prepare(&mut self) {
        self.cohort.clear();
        self.cohort.extend_from_slice(self.chain.server.cohort());
        self.before = rows_evaluated(devices_of(&self.cohort, &mut self.chain.clients));
    }

    /// One exchange of this chain alone.
    fn exchange(&mut self, spread: bool) -> Result<Event, EvaluationError> {
        let Running { server, clients, ledger, .. } = &mut self.chain;
        match &mut self.joint {
            Some(joint) => joint.exchange(&mut **server, clients, ledger),
            None if spread => Ok(exchange_spread(&mut **server, clients, ledger)),
            None => Ok(exchange(&mut **server, clients, ledger)),
        }
    }

    /// Stop, since the model gave no answer.
    fn fail(&mut self, error: EvaluationError) {
        self.progress.stop.store(true, Ordering::Relaxed);
        let iteration = self.chain.server.iteration();
        self.failure = Some(Failure { chain: self.index + 1, iteration, error });
    }

    /// Keep what an exchange led to.
    fn keep(&mut self, event: Event) -> Result<(), RunError> {
        let Going { plan, run, index, sink, notes, outward, progress, .. } = self;
        let Running { server, clients, ledger, draws, kept, draws_file, notes_file, .. } =
            &mut self.chain;
        // those of the others stand still
        self.gradients += rows_evaluated(devices_of(&self.cohort, clients)) - self.before;
        let moment = Moment {
            about: (plan, run, *index),
            event,
            server: &**server,
            participants: self.cohort.len(),
            ledger,
        };
        moment.follow(
            (draws, kept),
            sink.is_held(),
            outward,
            || Some(self.gradients),
            |numbers, draw| {
                notes.push(numbers, notes_file)?;
                sink.keep(draw, draws_file)
            },
        )?;
        let chain = &mut self.chain;
        chain.exchanges += 1;
        if chain.exchanges.is_multiple_of(self.glance) && progress.is_stopped() {
            self.stopped = true;
        } else if chain.exchanges.is_multiple_of(self.patience) {
            let now = chain.server.iteration().min(run.iterations);
            progress.done.fetch_add(now - self.reported, Ordering::Relaxed);
            self.reported = now;
            if let Some(checkpoint) = self.checkpoint.filter(|c| c.is_due(*index + 1)) {
                save(checkpoint, *index + 1, chain, sink, notes)?;
            }
        }
        Ok(())
    }

    fn end(mut self) -> Result<Chain, RunError> {
        let Going { mut sink, mut chain, mut notes, .. } = self;
        if self.failure.is_some() {
            // The clients stand in the middle of an exchange, which no snapshot describes: the last
            // one stays.
            sink.sync()?;
            notes.sync()?;
        } else if let Some(checkpoint) = self.checkpoint {
            save(checkpoint, self.index + 1, &mut chain, &mut sink, &mut notes)?;
        }
        let iterations = chain.server.iteration();
        let unreported = iterations.min(self.run.iterations).saturating_sub(self.reported);
        self.progress.done.fetch_add(unreported, Ordering::Relaxed);
        let downhill = self.plan.downhill.as_ref().map_or(0, |downhill| downhill.gradients);
        let rows_evaluated = rows_evaluated(&chain.clients) + downhill;
        Ok(Chain {
            sink,
            numbers: notes.all,
            kept: chain.kept,
            ledger: chain.ledger,
            rows_evaluated,
            iterations,
            shortened: chain.server.shortened().to_vec(),
            failure: self.failure.take(),
        })
    }
}

/// Let chains go on to their end: one, or several side by side.
fn follow(mut chains: Vec<Going<'_>>, spread: bool) -> Result<Vec<Chain>, (usize, RunError)> {
    let several = chains.len() > 1;
    let clients = chains.first().filter(|_| several).map(|one| one.plan.target.clients.clone());
    let mut together =
        clients.and_then(ClientModels::new).map(|models| Jointly::new(Arc::new(models)));
    let mut events = Vec::new();
    loop {
        let mut going: Vec<&mut Going<'_>> = chains.iter_mut().filter(|c| !c.is_over()).collect();
        going.iter_mut().for_each(|one| one.prepare());
        match (&mut together, &mut going[..]) {
            (_, []) => break,
            (Some(joint), [_, _, ..]) => {
                events.clear();
                let mut all: Vec<Together<'_>> =
                    going.iter_mut().map(|one| one.chain.side_by_side()).collect();
                let answered = joint.exchange_together(&mut all, &mut events);
                drop(all);
                if let Err(error) = answered {
                    going[0].fail(error);
                    going[1..].iter_mut().for_each(|one| one.stopped = true);
                }
            }
            (_, alone) => {
                for one in alone {
                    match one.exchange(spread) {
                        Ok(event) => one.keep(event).map_err(|error| (one.index, error))?,
                        Err(error) => one.fail(error),
                    }
                }
                continue;
            }
        }
        for (one, event) in going.into_iter().zip(events.drain(..)) {
            one.keep(event).map_err(|error| (one.index, error))?;
        }
    }
    let end = |one: Going<'_>| {
        let index = one.index;
        one.end().map_err(|error| (index, error))
    };
    chains.into_iter().map(end).collect()
}

/// Chains that descend have these numbers, and are no chains that sample.
const DESCENTS: u32 = 1 << 31;

/// Why a start led nowhere.
enum Stumble {
    Diverged { iteration: u64, x: Vec<f64> },
    Run(RunError),
}

impl<E: Into<RunError>> From<E> for Stumble {
    fn from(error: E) -> Self {
        Stumble::Run(error.into())
    }
}

impl Downhill {
    /// Where descent from `start` leads, and what it sends; `None`: somebody asked to stop.
    fn follow(
        &self,
        start: &[f64],
        keys: Keys,
        mut joint: Option<&mut Jointly>,
        spread: bool,
        progress: &Progress,
    ) -> Result<Option<(Vec<f64>, Ledger)>, Stumble> {
        let mut server = self.recipe.server(&self.target, start, keys)?;
        let mut clients = self.recipe.clients(&Arc::new(self.target.clone()), keys)?;
        let mut ledger = Ledger::new(self.target.clients.len());
        while server.iteration() < self.rounds {
            if progress.is_stopped() {
                return Ok(None);
            }
            let event = match &mut joint {
                Some(joint) => {
                    let done = joint.exchange(&mut *server, &mut clients, &mut ledger);
                    done.map_err(|error| RunError::NoDraws {
                        why: format!("the descent to a start: {error}"),
                    })?
                }
                None if spread => exchange_spread(&mut *server, &mut clients, &mut ledger),
                None => exchange(&mut *server, &mut clients, &mut ledger),
            };
            if event == Event::Diverged {
                let x = server.position().to_vec();
                return Err(Stumble::Diverged { iteration: server.iteration(), x });
            }
        }
        Ok(Some((server.position().to_vec(), ledger)))
    }
}

/// How many row gradients these clients evaluated.
fn rows_evaluated(
    clients: impl IntoIterator<Item = impl std::ops::Deref<Target = Box<dyn Device>>>,
) -> u64 {
    clients.into_iter().map(|client| client.rows_evaluated()).sum()
}

/// Save a chain: its draws and notes first, then the snapshot that counts on them.
fn save(
    checkpoint: &Checkpoint<'_>,
    index: usize,
    chain: &mut Running,
    sink: &mut DrawSink,
    notes: &mut Notes,
) -> Result<(), RunError> {
    sink.sync()?;
    notes.sync()?;
    Ok(checkpoint.save(index, chain)?)
}

/// The numbers beside a chain's draws, in memory and, where there is a checkpoint, in a file.
struct Notes {
    all: Vec<f64>,
    file: Option<(PathBuf, BufWriter<File>)>,
}

impl Notes {
    /// Go on behind what a checkpoint has.
    fn open(checkpoint: Option<&Checkpoint<'_>>, chain: &Running) -> Result<Self, RunError> {
        let Some(checkpoint) = checkpoint else { return Ok(Notes { all: Vec::new(), file: None }) };
        let path = chain.notes_file.path(checkpoint.path());
        let opened = || -> std::io::Result<(Vec<f64>, File)> {
            let file = open_at(&path, chain.notes_file.extent.length)?;
            let bytes = std::fs::read(&path)?;
            Ok((bytes.as_chunks::<8>().0.iter().map(|x| f64::from_le_bytes(*x)).collect(), file))
        };
        let (all, file) = opened()
            .map_err(|error| RunError::Write { file: path.display().to_string(), error })?;
        Ok(Notes { all, file: Some((path, BufWriter::new(file))) })
    }

    fn push(&mut self, numbers: &[f64], part: &mut Part) -> Result<(), RunError> {
        self.all.extend_from_slice(numbers);
        let Some((path, writer)) = &mut self.file else { return Ok(()) };
        for number in numbers {
            let bytes = number.to_le_bytes();
            part.extent.add(&bytes);
            writer
                .write_all(&bytes)
                .map_err(|error| RunError::Write { file: path.display().to_string(), error })?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), RunError> {
        let Some((path, writer)) = &mut self.file else { return Ok(()) };
        let synced = writer.flush().and_then(|()| writer.get_ref().sync_data());
        synced.map_err(|error| RunError::Write { file: path.display().to_string(), error })
    }
}

/// One exchange with the clients spread over the threads; their answers are folded in the order of
/// the cohort all the same.
pub fn exchange_spread(
    server: &mut dyn Sampler,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> Event {
    let (orders, asked): (Vec<_>, Vec<ClientId>) =
        (server.cohort().iter().map(|id| server.order(*id)).collect(), server.cohort().to_vec());
    for (id, order) in asked.iter().zip(&orders) {
        ledger.down(*id, order);
    }
    let active: Vec<&mut Box<dyn Device>> = devices_of(&asked, clients).collect();
    let replies: Vec<Reply<'_>> =
        active.into_par_iter().zip(&orders).map(|(client, order)| client.answer(order)).collect();
    for (id, reply) in asked.iter().zip(&replies) {
        ledger.up(*id, reply);
        Exchange::absorb(server, *id, reply);
    }
    server.advance()
}

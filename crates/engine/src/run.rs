//! Run chains on all cores. No number depends on how many cores there are: threads split chains, or the clients of a chain, never one sum.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use consilience_core::protocol::{Device, Event, Exchange, Ledger, Reply, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Sampler};
use rayon::prelude::*;
use thiserror::Error;

use crate::config::RunConfig;
use crate::draws::{DrawSink, Draws, Sinks};
use crate::plan::Plan;
use crate::record::Statistic;
use crate::trail::{Trail, statistics};

/// Below so many multiplications an exchange is not worth spreading over threads.
const WORTH_SPREADING: usize = 200_000;
/// How many exchanges pass between two looks at the clock and the stop sign.
const PATIENCE: u64 = 64;
/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// The kept draws, chain by chain; empty if they were streamed to disk and are too many to hold.
    pub draws: Draws,
    /// What was recorded beside every draw: `iteration`, the `bits_up` and `bits_down` that its chain had sent, and the `participants` of the exchange that made it.
    /// Nothing where the draws are not held.
    pub statistics: Vec<Statistic>,
    /// What all chains sent.
    pub ledger: Ledger,
    /// How many row gradients all chains evaluated.
    pub rows_evaluated: u64,
    /// How many iterations all chains did.
    pub iterations: u64,
    /// Whether somebody asked to stop before the end.
    pub interrupted: bool,
}

/// Why a run gave nothing.
#[derive(Debug, Error)]
pub enum RunError {
    /// A chain blew up.
    #[error(
        "chain {chain} diverged at iteration {iteration}: a parameter became infinite. The step {step:.3e} is too large for this target: use step = \"auto\", or a tenth of it"
    )]
    Diverged {
        /// Which chain, from 1.
        chain: usize,
        /// When.
        iteration: u64,
        /// The step size.
        step: f64,
    },
    /// A message could not be formed.
    #[error(transparent)]
    Data(#[from] consilience_core::error::DataError),
    /// Draws could not be written.
    #[error("the draws cannot be written to {file}: {error}. Free some space or choose another place, and run again")]
    Write {
        /// Where to.
        file: String,
        /// Why not.
        error: std::io::Error,
    },
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
    /// Set it to stop the run; what was drawn is kept.
    pub stop: AtomicBool,
}

/// Run all chains of a plan.
pub fn sample(plan: &Plan, run: &RunConfig, seed: u64, sinks: Sinks, progress: &Progress) -> Result<Outcome, RunError> {
    let threads = if run.threads == 0 { std::thread::available_parallelism().map_or(1, usize::from) } else { run.threads };
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().map_err(|why| RunError::Threads { threads, why: why.to_string() })?;
    let d = plan.target.dim();
    let work: usize = plan.target.clients.iter().map(|c| c.rows() * d).sum();
    let spread_clients = run.chains < threads && work >= WORTH_SPREADING;
    let failed: Mutex<Option<(usize, RunError)>> = Mutex::new(None);
    let finished: Vec<Option<Chain>> = pool.install(|| {
        let one = |(index, sink): (usize, DrawSink)| match Chain::run(plan, run, seed, index, sink, spread_clients, progress) {
            Ok(chain) => Some(chain),
            Err(error) => {
                progress.stop.store(true, Ordering::Relaxed);
                if let Ok(mut slot) = failed.lock()
                    && slot.as_ref().is_none_or(|(first, _)| index < *first)
                {
                    *slot = Some((index, error));
                }
                None
            }
        };
        sinks.open(run.chains, d)?.into_par_iter().enumerate().map(|item| Ok(one(item))).collect::<Result<Vec<_>, RunError>>()
    })?;
    if let Ok(Some((_, error))) = failed.into_inner() {
        sinks.discard(run.chains);
        return Err(error);
    }
    gather(plan, run, &sinks, finished.into_iter().flatten().collect(), progress.stop.load(Ordering::Relaxed))
}

/// Put the chains of a run together, wherever they ran.
pub fn gather(plan: &Plan, run: &RunConfig, sinks: &Sinks, chains: Vec<Chain>, interrupted: bool) -> Result<Outcome, RunError> {
    let d = plan.target.dim();
    let mut outcome = Outcome {
        draws: Draws::new(d),
        statistics: Vec::new(),
        ledger: Ledger::new(plan.target.clients.len()),
        rows_evaluated: 0,
        iterations: 0,
        interrupted,
    };
    let (mut sunk, mut noted) = (Vec::new(), Vec::new());
    let least = if interrupted { least_worth_keeping(chains.iter().map(|c| c.trail.kept).collect()) } else { 0 };
    for chain in chains {
        outcome.ledger.merge(&chain.ledger);
        outcome.rows_evaluated += chain.rows_evaluated;
        outcome.iterations += chain.iterations;
        if chain.trail.kept >= least {
            sunk.push(chain.trail.sink);
            noted.push(chain.trail.notes);
        }
    }
    outcome.draws = sinks.close(sunk, d)?;
    outcome.statistics = statistics(&noted, outcome.draws.length());
    sinks.discard(run.chains);
    Ok(outcome)
}

/// All chains are cut to the same length, and a chain that waited for a core when the run was stopped has next to none: leave out those below this length, so that the
/// most draws are left.
fn least_worth_keeping(mut kept: Vec<u64>) -> u64 {
    kept.sort_unstable_by(|a, b| b.cmp(a));
    kept.iter().zip(1u64..).max_by_key(|(length, chains)| (*length * chains, *chains)).map_or(0, |(length, _)| *length)
}

/// A chain that has ended.
#[derive(Debug)]
pub struct Chain {
    /// Its draws.
    pub trail: Trail,
    /// What it sent.
    pub ledger: Ledger,
    /// How many row gradients its clients evaluated.
    pub rows_evaluated: u64,
    /// How many iterations it did.
    pub iterations: u64,
}

impl Chain {
    fn run(
        plan: &Plan,
        run: &RunConfig,
        seed: u64,
        index: usize,
        sink: DrawSink,
        spread: bool,
        progress: &Progress,
    ) -> Result<Chain, RunError> {
        let keys = Keys::simulation(Seed::new(seed), index as u32);
        let b = plan.target.clients.len();
        let mut server = plan.recipe.server(&plan.target, &plan.start_of(keys), keys)?;
        let mut clients: Vec<Box<dyn Device>> =
            (0..b as u32).map(|i| plan.recipe.client(&plan.target, ClientId(i), keys)).collect::<Result<_, _>>()?;
        let mut ledger = Ledger::new(b);
        let mut trail = Trail::new(sink, plan.target.dim());
        let (mut exchanges, mut reported) = (0u64, 0u64);
        while server.iteration() < run.iterations {
            let participants = server.cohort().len();
            let event = if spread {
                exchange_spread(&mut *server, &mut clients, &mut ledger)
            } else {
                exchange(&mut *server, &mut clients, &mut ledger)
            };
            trail.follow((plan, run, index), event, &*server, participants, &ledger)?;
            exchanges += 1;
            if exchanges.is_multiple_of(PATIENCE) {
                let now = server.iteration().min(run.iterations);
                progress.done.fetch_add(now - reported, Ordering::Relaxed);
                reported = now;
                if progress.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        let iterations = server.iteration();
        progress.done.fetch_add(iterations.min(run.iterations).saturating_sub(reported), Ordering::Relaxed);
        Ok(Chain { trail, ledger, rows_evaluated: clients.iter().map(|c| c.rows_evaluated()).sum(), iterations })
    }
}

/// One exchange with the clients spread over the threads; their answers are folded in the order of the cohort all the same.
fn exchange_spread(server: &mut dyn Sampler, clients: &mut [Box<dyn Device>], ledger: &mut Ledger) -> Event {
    let (orders, asked): (Vec<_>, Vec<ClientId>) = (server.cohort().iter().map(|id| server.order(*id)).collect(), server.cohort().to_vec());
    for (id, order) in asked.iter().zip(&orders) {
        ledger.down(*id, order);
    }
    let mut active: Vec<&mut Box<dyn Device>> = Vec::with_capacity(asked.len());
    let mut wanted = asked.iter().peekable();
    for (i, client) in clients.iter_mut().enumerate() {
        if wanted.peek().is_some_and(|id| id.index() == i) {
            wanted.next();
            active.push(client);
        }
    }
    let replies: Vec<Reply<'_>> = active.into_par_iter().zip(&orders).map(|(client, order)| client.answer(order)).collect();
    for (id, reply) in asked.iter().zip(&replies) {
        ledger.up(*id, reply);
        Exchange::absorb(server, *id, reply);
    }
    server.advance()
}

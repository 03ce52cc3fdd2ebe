//! Run one chain at the server: its side of the protocol and the draws, written down before the next order leaves where a folder is given.

use std::path::Path;
use std::sync::atomic::Ordering;

use consilience_core::measure::{Chains, rhat};
use consilience_core::protocol::{Direction, Event, Output, Refusal, Server};
use consilience_core::rng::ClientId;
use consilience_core::sampler::{Keys, Sampler};
use consilience_core::snapshot::{SnapshotError, State, Visit};
use consilience_engine::config::RunConfig;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Chain, RunError};
use consilience_engine::store::{Folder, Journal, Replay, StoreError};
use consilience_engine::trail::Trail;

use crate::hub::{Complaint, Party};
use crate::status::Status;

/// R-hat is shown from so many draws on, and up to so many numbers: it is computed every second.
const LEAST_DRAWS: usize = 20;
const MOST_NUMBERS: usize = 200_000;

/// One chain and its memory.
pub struct HostedChain<'a> {
    host: Host<'a>,
    journal: Option<Journal<Folder>>,
    /// The answers of this round, as they will be written.
    round: Vec<u8>,
}

struct Host<'a> {
    plan: &'a Plan,
    run: &'a RunConfig,
    index: usize,
    server: Server<Box<dyn Sampler>>,
    trail: Trail,
}

impl<'a> HostedChain<'a> {
    /// Chain `index` of a plan, brought to where it was if the folder knows it.
    pub fn open(
        (problem, plan, run): (&Problem, &'a Plan, &'a RunConfig),
        keys: Keys,
        index: usize,
        trail: Trail,
        folder: Option<&Path>,
        largest_norm: f64,
    ) -> Result<HostedChain<'a>, Complaint> {
        let machine = plan.recipe.server(&plan.target, &plan.start_of(keys), keys)?;
        let format = plan.recipe.format(&plan.target, keys)?;
        let server = Server::new(machine, problem.statement.clone(), plan.target.clients.len(), format).limited(largest_norm);
        let mut host = Host { plan, run, index, server, trail };
        let mut journal = None;
        if let Some(folder) = folder {
            let disk = Folder::open(folder).map_err(|error| StoreError::Io { file: folder.display().to_string(), error })?;
            let (opened, warnings) = Journal::open(disk, "server", &mut host)?;
            for warning in warnings {
                tracing::warn!(chain = index + 1, %warning, "the state was damaged, and mended");
            }
            journal = Some(opened);
        }
        Ok(HostedChain { host, journal, round: Vec::new() })
    }

    /// How many iterations are done.
    pub fn iterations(&self) -> u64 {
        self.host.server.machine().iteration().min(self.host.run.iterations)
    }

    /// The draws so far, row by row.
    pub fn so_far(&self) -> &[f64] {
        self.host.trail.so_far()
    }

    /// What was sent.
    pub fn ledger(&self) -> &consilience_core::protocol::Ledger {
        self.host.server.ledger()
    }

    /// The chain as it ended.
    pub fn finish(self, rows_evaluated: u64) -> Chain {
        let iterations = self.host.server.machine().iteration();
        self.host.trail.end(self.host.server.ledger().clone(), rows_evaluated, iterations)
    }
}

impl Party for HostedChain<'_> {
    fn handle(&mut self, from: ClientId, bytes: &[u8]) -> Result<(), Refusal> {
        self.host.server.handle(from, bytes)?;
        if self.journal.is_some() {
            self.round.extend_from_slice(&from.0.to_le_bytes());
            self.round.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.round.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Output>, Complaint> {
        if let Some(journal) = &mut self.journal {
            // An order of the next round tells sites that they may forget the last.
            if !self.round.is_empty() && self.host.server.outstanding().next().is_none() {
                journal.commit(&self.round)?;
                self.round.clear();
            }
            if self.round.is_empty() && journal.is_long() {
                journal.checkpoint(&mut self.host)?;
            }
        }
        Ok(self.host.poll()?)
    }

    fn goes_on(&self) -> bool {
        self.host.goes_on()
    }

    fn welcome(&self, from: ClientId, answered: u64) -> Result<(), Refusal> {
        self.host.server.welcome(from, answered)
    }

    fn again(&self, to: ClientId) -> Option<Vec<u8>> {
        self.host.server.again(to)
    }

    fn measure(parties: &[Self], status: &Status) {
        let done = parties.iter().map(HostedChain::iterations).sum();
        status.progress.done.store(done, Ordering::Relaxed);
        let bits = |direction| parties.iter().map(|party| party.ledger().total(direction)).sum();
        status.measured((bits(Direction::Up), bits(Direction::Down)), worst_rhat(parties));
    }
}

/// The largest R-hat so far, where it is cheap.
fn worst_rhat(parties: &[HostedChain<'_>]) -> Option<f64> {
    let d = parties.first()?.host.plan.target.dim();
    let draws = parties.iter().map(|party| party.so_far().len() / d).min()?;
    if draws < LEAST_DRAWS || draws.saturating_mul(d * parties.len()) > MOST_NUMBERS {
        return None;
    }
    let column = |party: &HostedChain<'_>, k: usize| party.so_far().iter().skip(k).step_by(d).take(draws).copied().collect::<Vec<f64>>();
    let worst = |k: usize| {
        let all: Vec<f64> = parties.iter().flat_map(|party| column(party, k)).collect();
        Chains::flat(&all, parties.len()).ok().map(|chains| rhat(&chains))
    };
    (0..d).filter_map(worst).filter(|r| r.is_finite()).fold(None, |most: Option<f64>, r| Some(most.map_or(r, |m| m.max(r))))
}

impl Host<'_> {
    fn goes_on(&self) -> bool {
        self.server.machine().iteration() < self.run.iterations
    }

    fn poll(&mut self) -> Result<Option<Output>, RunError> {
        let participants = self.server.machine().cohort().len();
        let output = self.server.poll();
        if let Some(Output::Happened(event)) = output {
            let about = (self.plan, self.run, self.index);
            self.trail.follow(about, event, &**self.server.machine(), participants, self.server.ledger())?;
        }
        Ok(output)
    }

    /// Go on until answers are needed, or nothing more is wanted.
    fn drain(&mut self) -> Result<(), RunError> {
        while self.goes_on() {
            match self.poll()? {
                None | Some(Output::Happened(Event::Done)) => break,
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl State for Host<'_> {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        self.server.state(visit)?;
        self.trail.state(visit)
    }
}

impl Replay for Host<'_> {
    fn replay(&mut self, record: &[u8]) -> Result<(), String> {
        self.drain().map_err(|error| error.to_string())?;
        let mut rest = record;
        while let Some((from, more)) = rest.split_first_chunk::<4>() {
            let cut = || "it is too short".to_owned();
            let (length, more) = more.split_first_chunk::<4>().ok_or_else(cut)?;
            let (bytes, more) = more.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
            self.server.handle(ClientId(u32::from_le_bytes(*from)), bytes).map_err(|refusal| refusal.to_string())?;
            rest = more;
        }
        if !rest.is_empty() || self.server.outstanding().next().is_some() {
            return Err("it lacks an answer".into());
        }
        self.drain().map_err(|error| error.to_string())
    }
}

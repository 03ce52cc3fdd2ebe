//! Run one chain at the server: its side of the protocol and the draws, written down before the
//! next order leaves where a folder is given.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consilience_core::measure::{Chains, rhat};
use consilience_core::protocol::{Direction, Event, Output, Refusal, Server};
use consilience_core::rng::ClientId;
use consilience_core::sampler::{Irregular, Keys, Sampler};
use consilience_core::snapshot::{SnapshotError, State, Visit};
use consilience_engine::chain_log::ChainLog;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Chain, Length, RunError};
use consilience_engine::store::{Folder, Journal, Replay, RoundLog, StoreError};

use crate::party::{Complaint, Party};
use crate::status::Status;

/// A site that keeps its word is named once in a million looks.
const SURE: f64 = 4.9;
/// R-hat is shown from so many draws on, and up to so many numbers: it is computed every second.
const LEAST_DRAWS: usize = 20;
const MOST_NUMBERS: usize = 200_000;

/// One chain and its memory.
pub struct HostedChain<'a> {
    host: Host<'a>,
    journal: Option<Journal<Folder>>,
    round_log: RoundLog,
    /// How long a round may take, where it may end without everybody.
    patience: Option<Duration>,
}

struct Host<'a> {
    plan: &'a Plan,
    run: &'a Length,
    index: usize,
    server: Server<Box<dyn Sampler>>,
    chain_log: ChainLog,
    /// How many answers the open round has.
    present: u64,
    /// How many gradients of single rows each site has evaluated, as it says.
    rows: Vec<u64>,
}

impl<'a> HostedChain<'a> {
    /// Chain `index` of a plan, brought to where it was if the folder knows it.
    pub fn open(
        (problem, plan, run): (&Problem, &'a Plan, &'a Length),
        keys: Keys,
        index: usize,
        chain_log: ChainLog,
        folder: Option<&Path>,
        (largest_norm, patience): (f64, Option<Duration>),
    ) -> Result<HostedChain<'a>, Complaint> {
        let machine = plan.recipe.server(&plan.target, &plan.start_of(keys), keys)?;
        let format = plan.recipe.format(&plan.target, keys)?;
        let server =
            Server::new(machine, problem.statement.clone(), plan.target.clients.len(), format)
                .limited(largest_norm);
        let mut host = Host {
            plan,
            run,
            index,
            server,
            chain_log,
            present: 0,
            rows: vec![0; plan.target.clients.len()],
        };
        let mut journal = None;
        if let Some(folder) = folder {
            let disk = Folder::open(folder)
                .map_err(|error| StoreError::Io { file: folder.display().to_string(), error })?;
            let (opened, warnings) = Journal::open(disk, "server", &mut host)?;
            for warning in warnings {
                tracing::warn!(chain = index + 1, %warning, "the state was damaged, and mended");
            }
            journal = Some(opened);
        }
        Ok(HostedChain { host, journal, round_log: RoundLog::default(), patience })
    }

    /// How many iterations are done.
    pub fn iterations(&self) -> u64 {
        self.host.server.machine().iteration().min(self.host.run.iterations)
    }

    /// The draws so far, row by row.
    pub fn so_far(&self) -> &[f64] {
        self.host.chain_log.so_far()
    }

    /// What was sent.
    pub fn ledger(&self) -> &consilience_core::protocol::Ledger {
        self.host.server.ledger()
    }

    /// The chain as it ended.
    pub fn finish(self, rows_evaluated: u64) -> Chain {
        let iterations = self.host.server.machine().iteration();
        self.host.chain_log.end(self.host.server.ledger().clone(), rows_evaluated, iterations)
    }
}

impl Party for HostedChain<'_> {
    fn handle(&mut self, from: ClientId, bytes: &[u8], rows: u64) -> Result<(), Refusal> {
        self.round_log.handle(&mut self.host.server, from, bytes, rows)?;
        self.host.answered(from, rows);
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Output>, Complaint> {
        // An order of the next round tells sites that they may forget the last.
        if let Some(record) = self.round_log.record(&self.host.server) {
            if let Some(journal) = &mut self.journal {
                journal.commit(&record)?;
            }
            self.round_log.clear();
        }
        if let Some(journal) =
            self.journal.as_mut().filter(|journal| self.round_log.is_empty() && journal.is_long())
        {
            journal.checkpoint(&mut self.host)?;
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

    fn patience(&self) -> Option<Duration> {
        self.patience
    }

    fn close(&mut self) -> Option<Vec<ClientId>> {
        self.round_log.close(&mut self.host.server)
    }

    fn measure(parties: &[Self], status: &Status) {
        status.irregular(&irregular(parties, &status.sites()));
        let done = parties.iter().map(HostedChain::iterations).sum();
        status.progress.done.store(done, Ordering::Relaxed);
        let bits = |direction| parties.iter().map(|party| party.ledger().total(direction)).sum();
        status.measured((bits(Direction::Up), bits(Direction::Down)), worst_rhat(parties));
    }
}

/// Who is there more or less often than was stated, with what it does to the drift: one sentence
/// for each site.
fn irregular(parties: &[HostedChain<'_>], sites: &[String]) -> Vec<(usize, String)> {
    let found = parties
        .iter()
        .filter_map(|party| party.host.server.machine().attendance())
        .flat_map(|a| a.irregular(SURE));
    let mut worst: BTreeMap<usize, Irregular> = BTreeMap::new();
    for now in found {
        let known = worst.entry(now.client.index()).or_insert(now);
        if now.z.abs() > known.z.abs() {
            *known = now;
        }
    }
    let say = |(client, found): (usize, Irregular)| {
        let Irregular { stated, observed, z, pull, .. } = found;
        let text = format!(
            "site \"{}\" was there in {:.1}% of the rounds, where {:.1}% is stated ({:.0} standard \
             errors): the drift is off by {:.1}% of what the sites pull together. \
             If those who stay away differ from the rest the posterior is biased: state how often \
             each is there, or find out why it is not",
            sites[client],
            100.0 * observed,
            100.0 * stated,
            z.abs().min(999.0),
            100.0 * pull
        );
        (client, text)
    };
    worst.into_iter().map(say).collect()
}

/// The largest R-hat so far, where it is cheap.
fn worst_rhat(parties: &[HostedChain<'_>]) -> Option<f64> {
    let d = parties.first()?.host.plan.target.dim();
    let draws = parties.iter().map(|party| party.so_far().len() / d).min()?;
    if draws < LEAST_DRAWS || draws.saturating_mul(d * parties.len()) > MOST_NUMBERS {
        return None;
    }
    let column = |party: &HostedChain<'_>, k: usize| {
        party.so_far().iter().skip(k).step_by(d).take(draws).copied().collect::<Vec<f64>>()
    };
    let worst = |k: usize| {
        let all: Vec<f64> = parties.iter().flat_map(|party| column(party, k)).collect();
        Chains::flat(&all, parties.len()).ok().map(|chains| rhat(&chains))
    };
    (0..d)
        .filter_map(worst)
        .filter(|r| r.is_finite())
        .fold(None, |most: Option<f64>, r| Some(most.map_or(r, |m| m.max(r))))
}

impl Host<'_> {
    fn goes_on(&self) -> bool {
        self.server.machine().iteration() < self.run.iterations
    }

    fn answered(&mut self, from: ClientId, rows: u64) {
        self.present += 1;
        let known = &mut self.rows[from.index()];
        *known = rows.max(*known);
    }

    fn poll(&mut self) -> Result<Option<Output>, RunError> {
        let output = self.server.poll();
        if let Some(Output::Happened(event)) = output {
            let participants = std::mem::take(&mut self.present) as usize;
            let gradients = self.rows.iter().fold(0, |sum: u64, rows| sum.saturating_add(*rows));
            let about = (self.plan, self.run, self.index);
            self.chain_log.follow(
                about,
                event,
                &**self.server.machine(),
                (participants, Some(gradients)),
                self.server.ledger(),
            )?;
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
        visit.number("the answers of the open round", &mut self.present)?;
        visit.numbers("the rows that each site evaluated", &mut self.rows)?;
        self.chain_log.state(visit)
    }
}

impl Replay for Host<'_> {
    fn replay(&mut self, record: &[u8]) -> Result<(), String> {
        self.drain().map_err(|error| error.to_string())?;
        let mut answers = Vec::new();
        RoundLog::replay(&mut self.server, record, |from, rows| answers.push((from, rows)))?;
        answers.into_iter().for_each(|(from, rows)| self.answered(from, rows));
        self.drain().map_err(|error| error.to_string())
    }
}

//! Run one chain at the server: its side of the protocol and its draws, written down before the
//! next order leaves. `serve` runs it in a folder, the simulation on a disk that loses power.

use consilience_core::protocol::{Event, Ledger, Limits, Output, Refusal, Server, Statement};
use consilience_core::rng::ClientId;
use consilience_core::sampler::{Keys, Sampler};
use consilience_core::snapshot::{SnapshotError, State, Visit, save};
use thiserror::Error;

use super::journal::{Journal, Replay};
use super::round_log::RoundLog;
use super::{Disk, StoreError};
use crate::chain_log::ChainLog;
use crate::plan::Plan;
use crate::run::{Chain, Length, RunError};

/// Which chain is served: the same at every start.
#[derive(Clone, Debug)]
pub struct ServedChain<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// How long its chains are.
    pub run: &'a Length,
    /// Which of them this is, from 0.
    pub index: usize,
    /// The server's keys for it.
    pub keys: Keys,
    /// What all parties agreed on.
    pub statement: &'a Statement,
    /// The largest norm that an answer may have, where the rows of the plan's clients have no
    /// bound.
    pub largest_norm: f64,
    /// How many rounds may be written down without being durable: the sites keep as many answers,
    /// and give them again ([`consilience_core::protocol::Client::keeping`]). 0: none. Elastic
    /// chains have none: who answered is known here alone.
    pub ahead: u64,
}

/// Why a chain does not go on at the server.
#[derive(Debug, Error)]
pub enum ServerError {
    /// The chain went wrong.
    #[error(transparent)]
    Run(#[from] RunError),
    /// It cannot be written down, so nothing more is said.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A chain whose server writes down the answers of a round before it opens the next. A draw that
/// anybody was told of never changes. It is never lost either, or the sites give the answers again
/// that led to it.
pub struct DurableServer<'a, D> {
    host: Host<'a>,
    /// `None`: it keeps nothing, and ends with its process.
    journal: Option<Journal<D>>,
    round_log: RoundLog,
    /// Whether a snapshot is wanted.
    saves: bool,
}

/// The server as its journal sees it.
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

impl<'a, D: Disk> DurableServer<'a, D> {
    /// A chain, brought to where it was if the disk knows it. The texts say what was damaged and
    /// could be done without.
    pub fn open(
        served: ServedChain<'a>,
        chain_log: ChainLog,
        disk: Option<D>,
    ) -> Result<(Self, Vec<String>), ServerError> {
        let ServedChain { plan, run, index, keys, statement, largest_norm, ahead } = served;
        let clients = plan.target.clients.len();
        let made = || {
            Ok::<_, RunError>((
                plan.recipe.server(&plan.target, &plan.start_of(keys), keys)?,
                plan.recipe.format(&plan.target, keys)?,
            ))
        };
        let (machine, format) = made()?;
        let ahead = if machine.is_elastic() { 0 } else { ahead };
        let growth = |client| plan.recipe.family().growth(&plan.target, ClientId(client));
        let growths = (0..clients as u32).map(growth).collect();
        let server = Server::new(machine, statement.clone(), clients, format)
            .limited(Limits::new(largest_norm).with_rows_of(&plan.target, growths))
            .ahead(ahead)
            .watched();
        let rows = vec![0; clients];
        let mut host = Host { plan, run, index, server, chain_log, present: 0, rows };
        let (mut journal, mut warnings) = (None, Vec::new());
        if let Some(disk) = disk {
            let (opened, found) = Journal::open_ahead(disk, "server", &mut host, ahead)?;
            host.drain()?; // a snapshot may stand between the last answer and the draw
            host.server.repeat(); // whether the orders of the open round ever left is not known
            (journal, warnings) = (Some(opened), found);
        }
        let round_log = RoundLog::default();
        Ok((DurableServer { host, journal, round_log, saves: false }, warnings))
    }

    /// The same server that survives its own end, but not that of the machine
    /// ([`Journal::without_sync`]).
    pub fn without_sync(self) -> Self {
        DurableServer { journal: self.journal.map(Journal::without_sync), ..self }
    }

    /// Take in the answer of a site, which has evaluated so many gradients of single rows by now.
    pub fn handle(&mut self, from: ClientId, bytes: &[u8], rows: u64) -> Result<(), Refusal> {
        self.round_log.handle(&mut self.host.server, from, bytes, rows)?;
        self.host.answered(from, rows);
        Ok(())
    }

    /// The next thing to do; `None`: wait for answers.
    pub fn poll(&mut self) -> Result<Option<Output>, ServerError> {
        // An order of the next round tells sites that they may forget the last.
        if let Some(record) = self.round_log.record(&self.host.server) {
            if let Some(journal) = &mut self.journal {
                journal.commit(&record)?;
            }
            self.round_log.clear();
        }
        if let Some(journal) = &mut self.journal
            && self.round_log.is_empty()
            && (self.saves || journal.is_long())
        {
            journal.checkpoint(&mut self.host)?;
            self.saves = false;
        }
        Ok(self.host.poll()?)
    }

    /// Wait no longer in this round, and say who is absent ([`Server::close`]). Who answered is
    /// written down: the chain is a function of the seed and of that.
    pub fn close(&mut self) -> Option<Vec<ClientId>> {
        self.round_log.close(&mut self.host.server)
    }

    /// Have [`DurableServer::poll`] save the state and begin the log anew, as soon as no round has
    /// answers that are in no log: whoever falls back on the snapshot before needs them all.
    pub fn checkpoint(&mut self) {
        self.saves = true;
    }

    /// Make all rounds durable.
    pub fn rest(&mut self) -> Result<(), StoreError> {
        self.journal.as_mut().map_or(Ok(()), Journal::sync)
    }

    /// Whether more exchanges are wanted.
    pub fn goes_on(&self) -> bool {
        self.host.goes_on()
    }

    /// How many iterations are done.
    pub fn iterations(&self) -> u64 {
        self.host.server.machine().iteration().min(self.host.run.iterations)
    }

    /// The draws so far, row by row, where they are in memory.
    pub fn so_far(&self) -> &[f64] {
        self.host.chain_log.so_far()
    }

    /// What the sampler says of its last draws, on average, by name.
    pub fn recently(&self) -> Vec<(&'static str, f64)> {
        self.host.chain_log.recently(self.host.plan)
    }

    /// The server's side of the protocol.
    pub fn server(&self) -> &Server<Box<dyn Sampler>> {
        &self.host.server
    }

    /// What was sent.
    pub fn ledger(&self) -> &Ledger {
        self.host.server.ledger()
    }

    /// The chain as it ended, with the number of rows that all sites evaluated in it.
    pub fn finish(self, rows_evaluated: u64) -> Chain {
        let iterations = self.host.server.machine().iteration();
        let Host { chain_log, server, .. } = self.host;
        let shortened = server.machine().shortened();
        chain_log.end(server.ledger().clone(), rows_evaluated, iterations, shortened)
    }

    /// Its whole state, to compare with another's.
    pub(crate) fn state(&mut self) -> Vec<u8> {
        let Host { server, present, rows, chain_log, .. } = &mut self.host;
        let numbers = std::iter::once(&*present).chain(rows.iter()).flat_map(|x| x.to_le_bytes());
        let server = save(server).into_iter().chain(numbers);
        server.chain(chain_log.left_behind()).collect()
    }

    /// What it leaves behind besides its ledger: draws, and what stands beside them.
    pub(crate) fn left_behind(&self) -> Vec<u8> {
        self.host.chain_log.left_behind()
    }
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

    fn file(&mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        self.chain_log.file(disk)
    }

    fn recall(&mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        self.chain_log.recall(disk)
    }
}

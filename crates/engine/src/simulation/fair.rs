//! Sample the chain without faults, to compare with.

use std::collections::BTreeMap;

use consilience_core::protocol::{Device, Event, Exchange, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Sampler};

use crate::chain_log::ChainLog;
use crate::draws::DrawSink;
use crate::plan::Plan;

/// The chain without faults, by direct calls.
pub(super) struct FairDay<'a> {
    plan: &'a Plan,
    server: Box<dyn Sampler>,
    clients: Vec<Box<dyn Device>>,
    ledger: Ledger,
    chain_log: ChainLog,
    /// Who was absent when so many draws were there, in rounds that were closed without them.
    absent: BTreeMap<usize, Vec<ClientId>>,
}

impl<'a> FairDay<'a> {
    pub(super) fn new(plan: &'a Plan, public: Seed) -> Result<Self, String> {
        let b = plan.target.clients.len();
        let keys = |i: usize| Keys { public, private: Seed::from_bytes(secret(i)) };
        let text = |e: consilience_core::error::DataError| e.to_string();
        let clients = (0..b)
            .map(|i| plan.recipe.client(&plan.target, ClientId(i as u32), keys(i)).map_err(text))
            .collect::<Result<_, _>>()?;
        let server = plan.recipe.server(&plan.target, &plan.start, keys(0)).map_err(text)?;
        let chain_log = ChainLog::new(DrawSink::Memory(Vec::new()), plan.target.dim());
        let (ledger, absent) = (Ledger::new(b), BTreeMap::new());
        Ok(FairDay { plan, server, clients, ledger, chain_log, absent })
    }

    /// The round after so many draws was closed without these: on a fair day they stay away, too.
    pub(super) fn closed(&mut self, draws: usize, absent: Vec<ClientId>) {
        self.absent.insert(draws, absent);
    }

    /// The round after so many draws begins anew: who was absent is not known yet.
    pub(super) fn reopened(&mut self, draws: usize) {
        self.absent.split_off(&draws);
    }

    /// Compare all draws so far, from one on.
    pub(super) fn compare(&mut self, from: usize, draws: &[f64]) -> Result<(), String> {
        while self.chain_log.so_far().len() < draws.len() {
            self.go_on()?;
        }
        let d = self.plan.target.dim();
        let pairs = self.chain_log.so_far().chunks(d).zip(draws.chunks(d));
        match pairs.skip(from).position(|(fair, draw)| !same_bits(fair, draw)) {
            None => Ok(()),
            Some(at) => Err(format!("draw {} is not the one of a fair day", from + at)),
        }
    }

    /// Compare a chain that has ended: its draws, what stands beside them, and what was sent.
    pub(super) fn compare_end(&mut self, left: &[u8], ledger: &Ledger) -> Result<(), String> {
        while self.server.iteration() < self.plan.length.iterations {
            self.go_on()?;
        }
        if self.server.is_elastic() {
            return Ok(()); // sites that are late have evaluated rows and said what nobody heard
        }
        if self.chain_log.left_behind() != left {
            return Err("the chain has left behind something else than on a fair day".into());
        }
        let others = || "the ledger is not the one of a fair day".to_owned();
        if *ledger == self.ledger { Ok(()) } else { Err(others()) }
    }

    /// One exchange.
    fn go_on(&mut self) -> Result<(), String> {
        let draws = self.chain_log.so_far().len() / self.plan.target.dim();
        let cohort = self.server.cohort().len();
        let (event, participants) = match self.absent.get(&draws) {
            None => (exchange(&mut *self.server, &mut self.clients, &mut self.ledger), cohort),
            Some(absent) => {
                for at in 0..cohort {
                    let id = self.server.cohort()[at];
                    if !absent.contains(&id) {
                        let reply = self.clients[id.index()].answer(&self.server.order(id));
                        self.server.absorb(id, &reply);
                    }
                }
                (self.server.advance(), cohort - absent.len())
            }
        };
        if !matches!(event, Event::Nothing | Event::Draw) {
            return Err(format!("on a fair day the chain ended: {event:?}"));
        }
        let gradients = self.clients.iter().map(|client| client.rows_evaluated()).sum();
        let about = (self.plan, &self.plan.length, 0);
        let beside = (participants, Some(gradients));
        self.chain_log
            .follow(about, event, &*self.server, beside, &self.ledger)
            .map_err(|error| error.to_string())
    }
}

fn same_bits(a: &[f64], b: &[f64]) -> bool {
    a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
}

/// A client's own seed: in this world its entropy is known, so that there is a chain to compare
/// with.
pub(super) fn secret(client: usize) -> [u8; 32] {
    let mut bytes = [1; 32];
    bytes[..8].copy_from_slice(&(client as u64).to_le_bytes());
    bytes
}

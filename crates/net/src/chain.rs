//! Carry one chain's server ([`DurableServer`]) over the network, and say how all of them stand.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consilience_core::measure::{Chains, ess_bulk, rhat};
use consilience_core::protocol::{Direction, Output, Refusal};
use consilience_core::rng::ClientId;
use consilience_core::sampler::Irregular;
use consilience_engine::chain_log::ChainLog;
use consilience_engine::run::Chain;
use consilience_engine::store::{DurableServer, Folder, ServedChain, ServerError, StoreError};

use crate::alarm::{Alarm, Watch, alarms, influences};
use crate::party::{Complaint, Party};
use crate::status::Status;

/// A site that keeps its word is named once in a million looks.
const SURE: f64 = 4.9;
/// R-hat is shown from so many draws on, and up to so many numbers: it is computed every second.
const LEAST_DRAWS: usize = 20;
const MOST_NUMBERS: usize = 200_000;

/// One chain and its memory.
pub struct HostedChain<'a> {
    chain: DurableServer<'a, Folder>,
    /// How long a round may take, where it may end without everybody.
    patience: Option<Duration>,
    /// What the answers of each site are like, and after how many iterations the chain is warm.
    watch: Watch,
    burn_in: u64,
    /// How many rows each site says that it has.
    rows: Vec<u64>,
}

impl<'a> HostedChain<'a> {
    /// A chain of a plan, brought to where it was if the folder knows it.
    pub fn open(
        served: ServedChain<'a>,
        chain_log: ChainLog,
        folder: Option<&Path>,
        patience: Option<Duration>,
    ) -> Result<HostedChain<'a>, Complaint> {
        let (number, burn_in) = (served.index + 1, served.run.burn_in);
        let rows: Vec<u64> = served.plan.target.clients.iter().map(|c| c.rows() as u64).collect();
        let watch = Watch::new(rows.len());
        let open = |folder: &Path| Folder::open(folder).map_err(StoreError::opening(folder));
        let disk = folder.map(open).transpose()?;
        let (chain, warnings) = DurableServer::open(served, chain_log, disk).map_err(complaint)?;
        for warning in warnings {
            tracing::warn!(chain = number, %warning, "the state was damaged, and mended");
        }
        Ok(HostedChain { chain, patience, watch, burn_in, rows })
    }

    /// Make all rounds durable.
    pub fn rest(&mut self) -> Result<(), Complaint> {
        Ok(self.chain.rest()?)
    }

    /// The chain as it ended.
    pub fn finish(self, rows_evaluated: u64) -> Chain {
        self.chain.finish(rows_evaluated)
    }
}

/// What went wrong, as whoever looks for a failed chain knows it.
fn complaint(error: ServerError) -> Complaint {
    match error {
        ServerError::Run(error) => error.into(),
        ServerError::Store(error) => error.into(),
    }
}

impl Party for HostedChain<'_> {
    fn handle(&mut self, from: ClientId, bytes: &[u8], rows: u64) -> Result<(), Refusal> {
        self.chain.handle(from, bytes, rows)?;
        let warm = self.chain.iterations() >= self.burn_in;
        if let Some((kind, values)) = self.chain.server().last_answer() {
            self.watch.answer(from.index(), kind, values, warm);
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<Output>, Complaint> {
        let output = self.chain.poll().map_err(complaint)?;
        if let Some(Output::Happened(_)) = output {
            self.watch.end_round();
        }
        Ok(output)
    }

    fn goes_on(&self) -> bool {
        self.chain.goes_on()
    }

    fn welcome(&self, from: ClientId, answered: u64) -> Result<(), Refusal> {
        self.chain.server().welcome(from, answered)
    }

    fn again(&self, to: ClientId) -> Option<Vec<u8>> {
        self.chain.server().again(to)
    }

    fn patience(&self) -> Option<Duration> {
        self.patience
    }

    fn awaits(&self) -> usize {
        self.chain.server().awaits()
    }

    fn awaited(&self) -> Vec<ClientId> {
        self.chain.server().outstanding().collect()
    }

    fn close(&mut self) -> Option<Vec<ClientId>> {
        self.chain.close()
    }

    fn measure(parties: &[Self], status: &Status) {
        let sites = status.sites();
        status.irregular(&irregular(parties, &sites));
        let watches: Vec<Watch> = parties.iter().map(|party| party.watch.clone()).collect();
        if let Some(rows) = parties.first().map(|party| &party.rows) {
            let named = alarms(&watches, rows);
            let named: Vec<(usize, String)> =
                named.into_iter().map(|(site, alarm)| (site, words(&sites[site], alarm))).collect();
            status.dominated(&influences(&watches, rows).unwrap_or_default(), &named);
        }
        let done = parties.iter().map(|party| party.chain.iterations()).sum();
        status.progress.done.store(done, Ordering::Relaxed);
        let bits =
            |direction| parties.iter().map(|party| party.chain.ledger().total(direction)).sum();
        let bits = (bits(Direction::Up), bits(Direction::Down));
        status.measured(bits, convergence(parties), recently(parties));
    }
}

/// Who is there more or less often than was stated, with what it does to the drift: one sentence
/// for each site.
fn irregular(parties: &[HostedChain<'_>], sites: &[String]) -> Vec<(usize, String)> {
    let found = parties
        .iter()
        .filter_map(|party| party.chain.server().machine().attendance())
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

/// An alarm in words.
fn words(site: &str, alarm: Alarm) -> String {
    let (what, remedy) = match alarm {
        Alarm::Pulls(deviations) => (
            format!(
                "site \"{site}\" moves the mean by about {deviations:.0} posterior standard \
                 deviations, and all other sites pull against it"
            ),
            "its rows differ from theirs, or its answers do not come from rows",
        ),
        Alarm::Dominates(ratio) => (
            format!(
                "the answers of site \"{site}\" are {ratio:.0} times as large as those of nearly \
                 all other sites, for their rows"
            ),
            "its rows differ from theirs, or its answers do not come from rows",
        ),
        Alarm::Drifts(growth) => (
            format!(
                "the answers of site \"{site}\" grew {growth:.0} times more than those of the \
                 others since the burn-in"
            ),
            "its data or its program has changed, or the chains have not mixed",
        ),
    };
    format!(
        "{what}: {remedy}. The posterior follows this site: ask it what its columns hold, and \
         compare a run without it"
    )
}

/// What the sampler says of its last draws, on average over the chains.
fn recently(parties: &[HostedChain<'_>]) -> Vec<(&'static str, f64)> {
    let mut all: Vec<(&'static str, f64)> = Vec::new();
    for (k, found) in parties.iter().map(|party| party.chain.recently()).enumerate() {
        if found.is_empty() {
            return Vec::new(); // one has no draw yet
        }
        if k == 0 {
            all = found;
        } else {
            all.iter_mut().zip(found).for_each(|((_, sum), (_, own))| *sum += own);
        }
    }
    all.iter_mut().for_each(|(_, sum)| *sum /= parties.len() as f64);
    all
}

/// The largest R-hat and the smallest effective sample size so far, where they are cheap.
fn convergence(parties: &[HostedChain<'_>]) -> Option<(f64, f64)> {
    let d = parties.first()?.chain.server().machine().position().len();
    let draws = parties.iter().map(|party| party.chain.so_far().len() / d).min()?;
    if draws < LEAST_DRAWS || draws.saturating_mul(d * parties.len()) > MOST_NUMBERS {
        return None;
    }
    let column = |party: &HostedChain<'_>, k: usize| {
        party.chain.so_far().iter().skip(k).step_by(d).take(draws).copied().collect::<Vec<f64>>()
    };
    let worst = |k: usize| {
        let all: Vec<f64> = parties.iter().flat_map(|party| column(party, k)).collect();
        Chains::flat(&all, parties.len()).ok().map(|chains| (rhat(&chains), ess_bulk(&chains)))
    };
    (0..d)
        .filter_map(worst)
        .filter(|(r, ess)| r.is_finite() && ess.is_finite())
        .reduce(|(r, ess), (other, fewer)| (r.max(other), ess.min(fewer)))
}

//! Carry a whole run in questions and answers, for carriers that know nothing else: each time some sites get one message each, and each gives one back.
//!
//! [`serve`] asks, and has no rows; a [`Site`] answers, and has its own. The messages inside are the protocol's, so the chains are those of one process, bit for bit, where the clients' seeds are
//! those of a simulation.

mod site;
mod words;

pub use site::{NotAnswered, Site};

use std::sync::atomic::Ordering;

use consilience_core::model::Coordinates;
use consilience_core::protocol::{Event, Exchange, Format, Ledger, Output, Precision, Refusal, Server, Statement};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Sampler};
use consilience_core::target::Target;
use thiserror::Error;

use crate::conductor::{Conductor, Lost};
use crate::config::{Config, ConfigError};
use crate::draws::Sinks;
use crate::plan::{Plan, PlanError};
use crate::problem::Problem;
use crate::run::{Outcome, Progress, RunError, gather};
use crate::site::{agree, names};
use crate::trail::Trail;
use words::{Ask, CHAINS, Packet, Tell};

/// Why a run came to no end.
#[derive(Debug, Error)]
pub enum ParleyError {
    /// The config is wrong, or the sites do not fit together.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A chain failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// A site did not answer, or said something else.
    #[error("{0}")]
    Lost(#[from] Lost),
    /// A site's answer is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A sampler cannot be made.
    #[error(transparent)]
    Data(#[from] consilience_core::error::DataError),
}

impl From<PlanError> for ParleyError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Config(error) => error.into(),
            PlanError::Lost(lost) => lost.into(),
        }
    }
}

/// Whoever carries messages: some sites by their places, a message for each; as many answers, in any order.
pub type Carry<'a> = dyn FnMut(Vec<(usize, Vec<u8>)>) -> Result<Vec<(usize, Vec<u8>)>, Lost> + 'a;

/// A run that has ended.
#[derive(Debug)]
pub struct Served {
    /// The problem, as a server knows it.
    pub problem: Problem,
    /// The plan.
    pub plan: Plan,
    /// What was drawn.
    pub outcome: Outcome,
}

/// Run a config whose sites are wherever `carry` finds them.
pub fn serve(config: &Config, carry: &mut Carry<'_>, progress: &Progress) -> Result<Served, ParleyError> {
    let sites = names(config)?;
    let mut asker = Asker { carry, sites: &sites, surveys: 0 };
    let introductions = asker.each(&vec![Ask::Introduce; sites.len()])?;
    let introductions = introductions.into_iter().zip(&sites).map(|(told, site)| match told {
        Tell::Introduction(introduction) => Ok(introduction),
        _ => Err(Lost(format!("site \"{site}\" did not introduce itself"))),
    });
    let agreed = agree(config, &introductions.collect::<Result<Vec<_>, _>>()?)?;
    let agreement = agreed.agreement.clone();
    let problem = Problem::without_rows(config, agreed)?;
    let statement = problem.statement.text().to_owned();
    asker.each(&vec![Ask::Agree { agreement, statement }; sites.len()])?;
    let plan = Plan::conducted(config, &problem, &mut asker)?;
    asker.each(&vec![Ask::Decide(plan.decision.clone()); sites.len()])?;

    let sinks = Sinks::Memory;
    let mut chains = Vec::new();
    for (index, sink) in sinks.open(config.run.chains, problem.target.dim())?.into_iter().enumerate() {
        let keys = Keys::simulation(Seed::new(config.seed), index as u32);
        let machine = plan.recipe.server(&plan.target, &plan.start_of(keys), keys)?;
        let format = plan.recipe.format(&plan.target, keys)?;
        let server = Server::new(machine, problem.statement.clone(), sites.len(), format);
        chains.push(Hosted { server, trail: Trail::new(sink, problem.target.dim()), index, open: Vec::new() });
    }
    let interrupted = loop {
        let mut orders: Vec<Packet> = vec![Packet::new(CHAINS); sites.len()];
        for chain in &mut chains {
            chain.drain(&plan, config)?;
            chain.open.drain(..).for_each(|(to, bytes)| orders[to.index()].push(chain.index as u32, bytes));
        }
        progress.done.store(chains.iter().map(|c| c.server.machine().iteration().min(config.run.iterations)).sum(), Ordering::Relaxed);
        if orders.iter().all(Packet::is_empty) {
            break false;
        }
        if progress.stop.load(Ordering::Relaxed) {
            break true;
        }
        for (from, packet) in asker.carried(orders)? {
            for (chain, bytes) in packet.items {
                let chain =
                    chains.get_mut(chain as usize).ok_or_else(|| Lost(format!("site \"{}\" answered for no chain", sites[from])))?;
                chain.server.handle(ClientId(from as u32), &bytes)?;
            }
        }
    };
    let mut rows = vec![0u64; chains.len()];
    if !interrupted {
        for told in asker.each(&vec![Ask::Finish; sites.len()])? {
            if let Tell::Finished(counts) = told {
                rows.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.saturating_add(count));
            }
        }
    }
    let ended = chains.into_iter().zip(rows).map(|(chain, rows)| {
        let iterations = chain.server.machine().iteration();
        chain.trail.end(chain.server.ledger().clone(), rows, iterations)
    });
    let outcome = gather(&plan, &config.run, &sinks, ended.collect(), interrupted)?;
    Ok(Served { problem, plan, outcome })
}

/// One chain at the server.
struct Hosted {
    server: Server<Box<dyn Sampler>>,
    trail: Trail,
    index: usize,
    /// Orders that have not left.
    open: Vec<(ClientId, Vec<u8>)>,
}

impl Hosted {
    /// Go on until answers are needed, or nothing more is wanted.
    fn drain(&mut self, plan: &Plan, config: &Config) -> Result<(), RunError> {
        while self.server.machine().iteration() < config.run.iterations {
            let participants = self.server.machine().cohort().len();
            match self.server.poll() {
                None => break,
                Some(Output::Send { to, bytes }) => self.open.push((to, bytes)),
                Some(Output::Happened(event)) => {
                    let about = (plan, &config.run, self.index);
                    self.trail.follow(about, event, &**self.server.machine(), participants, self.server.ledger())?;
                    if event == Event::Done {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The server's end.
struct Asker<'a, 'b> {
    carry: &'a mut Carry<'b>,
    sites: &'a [String],
    surveys: u32,
}

impl Asker<'_, '_> {
    /// Ask every site something, and hear what each says.
    fn each(&mut self, asks: &[Ask]) -> Result<Vec<Tell>, Lost> {
        let answers = self.exchange(asks.iter().map(words::write).enumerate().collect())?;
        answers.into_iter().map(|(from, bytes)| words::read(&bytes).map_err(|why| self.nonsense(from, &why))).collect()
    }

    /// Carry orders to those who have any.
    fn carried(&mut self, orders: Vec<Packet>) -> Result<Vec<(usize, Packet)>, Lost> {
        let orders = orders.into_iter().enumerate().filter(|(_, packet)| !packet.is_empty());
        let answers = self.exchange(orders.map(|(to, packet)| (to, packet.bytes())).collect())?;
        answers.into_iter().map(|(from, bytes)| Ok((from, Packet::read(&bytes).map_err(|why| self.nonsense(from, &why))?))).collect()
    }

    /// Every site that was asked answers once; answers are put in the order of the sites.
    fn exchange(&mut self, asks: Vec<(usize, Vec<u8>)>) -> Result<Vec<(usize, Vec<u8>)>, Lost> {
        let asked: Vec<usize> = asks.iter().map(|(to, _)| *to).collect();
        let mut answers = (self.carry)(asks)?;
        answers.sort_by_key(|(from, _)| *from);
        if answers.iter().map(|(from, _)| *from).ne(asked.iter().copied()) {
            let missing = asked.iter().find(|to| !answers.iter().any(|(from, _)| from == *to));
            let why =
                missing.map_or("a site answered that was not asked".into(), |to| format!("site \"{}\" did not answer", self.sites[*to]));
            return Err(Lost(why));
        }
        Ok(answers)
    }

    fn nonsense(&self, from: usize, why: &str) -> Lost {
        Lost(format!("the answer of site \"{}\" makes no sense: {why}", self.sites[from]))
    }
}

impl Conductor for Asker<'_, '_> {
    fn survey(&mut self, target: &Target, survey: &mut dyn Exchange, ledger: &mut Ledger) -> Result<(), Lost> {
        self.surveys += 1;
        let format = Format::plain(target.dim(), Precision::F64);
        let mut server = Server::new(survey, Statement::new::<&str, &str>([]), target.clients.len(), format);
        loop {
            let mut orders: Vec<Packet> = vec![Packet::new(self.surveys); self.sites.len()];
            loop {
                match server.poll() {
                    None => break,
                    Some(Output::Send { to, bytes }) => orders[to.index()].push(0, bytes),
                    Some(Output::Happened(Event::Nothing | Event::Draw)) => {}
                    Some(Output::Happened(_)) => {
                        ledger.merge(server.ledger());
                        return Ok(());
                    }
                }
            }
            for (from, packet) in self.carried(orders)? {
                for (_, bytes) in packet.items {
                    server.handle(ClientId(from as u32), &bytes).map_err(|refusal| Lost(refusal.to_string()))?;
                }
            }
        }
    }

    fn move_to(&mut self, coordinates: &Coordinates, shares: &[f64]) -> Result<(), Lost> {
        let (centre, matrix) = coordinates.parts();
        let ask = |share: &f64| Ask::MoveTo { centre: centre.to_vec(), matrix: matrix.to_vec(), share: *share };
        self.each(&shares.iter().map(ask).collect::<Vec<_>>()).map(|_| ())
    }
}

//! Propose points that do not depend on where the chain is, many in an exchange: the server of
//! `imh`.
//!
//! Proposal `k` of a chain is a function of its number, which every party computes. An exchange
//! asks about a block of them; the iterations that use them up ask nobody.

use super::super::Sampler;
use super::server::Shared;
use crate::linalg::add_scaled;
use crate::proposal::Proposal;
use crate::protocol::{Event, Exchange, Order, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose};
use crate::snapshot::{SnapshotError, State, Visit};

#[derive(Debug)]
pub(super) struct Server {
    shared: Shared,
    proposal: Proposal,
    iteration: u64,
    /// The sum of the clients' answers for the block, whose first proposal has the number `first`.
    sums: Vec<f64>,
    first: u64,
    /// Whether the block is known.
    known: bool,
    x: Vec<f64>,
    /// The logarithm of the weight `exp(-U/T) / q` of `x`; there is none before the first proposal,
    /// which is accepted whatever its weight.
    weight: f64,
    proposed: Vec<f64>,
    numbers: [f64; 3],
}

impl Server {
    pub(super) fn new(shared: Shared, proposal: Proposal, block: usize, start: &[f64]) -> Self {
        Server {
            shared,
            iteration: 0,
            sums: vec![0.0; block],
            first: 0,
            known: false,
            x: start.to_vec(),
            weight: f64::NEG_INFINITY,
            proposed: vec![0.0; proposal.dim()],
            numbers: [0.0; 3],
            proposal,
        }
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        if self.known { &[] } else { &self.shared.everybody }
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: self.first,
            task: Task::Potentials { points: self.sums.len() as u64 },
            position: None,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: self.proposal.parts(),
        }
    }

    fn point(&self, k: usize, out: &mut [f64]) -> bool {
        self.proposal.draw(self.shared.public, Purpose::Proposal, self.first + k as u64, out);
        true
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        add_scaled(1.0, reply.payload.values(), &mut self.sums);
    }

    fn advance(&mut self) -> Event {
        self.known = true;
        let (seed, k) = (self.shared.public, self.iteration);
        let log_density = self.proposal.draw(seed, Purpose::Proposal, k, &mut self.proposed);
        let sum = self.sums[(k - self.first) as usize];
        let weight = -self.shared.potential(sum, &self.proposed) - log_density;
        if weight.is_nan() {
            return Event::Diverged;
        }
        let (probability, accepted) = self.shared.decide(k, weight - self.weight);
        if accepted {
            self.x.copy_from_slice(&self.proposed);
            self.weight = weight;
        }
        self.numbers = [probability, f64::from(u8::from(accepted)), weight];
        self.iteration += 1;
        if self.iteration - self.first == self.sums.len() as u64 {
            (self.first, self.known) = (self.iteration, false);
            self.sums.fill(0.0);
        }
        Event::Draw
    }
}

impl Sampler for Server {
    fn position(&self) -> &[f64] {
        &self.x
    }

    fn iteration(&self) -> u64 {
        self.iteration
    }

    fn numbers(&self) -> &[f64] {
        &self.numbers
    }
}

impl State for Server {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a server of imh")?;
        visit.number("the iteration", &mut self.iteration)?;
        visit.number("the first proposal of the block", &mut self.first)?;
        let beyond = self.first.saturating_add(self.sums.len() as u64);
        if !(self.first..beyond).contains(&self.iteration) {
            return Err(SnapshotError::Value { what: "the iteration", found: self.iteration });
        }
        visit.flag("whether the block is known", &mut self.known)?;
        visit.vector("the answers so far", &mut self.sums)?;
        visit.vector("the parameter", &mut self.x)?;
        visit.float("its weight", &mut self.weight)?;
        visit.vector("the numbers beside it", &mut self.numbers)
    }
}

//! Propose `sqrt(1 - h^2) u + h z`, which leaves a standard normal as it is: the server of `pcn`.
//!
//! Clients replay the chain: an order says in one bit whether the last proposal was accepted, and
//! the answer is the potential at the next.

use super::super::Sampler;
use super::server::Shared;
use crate::linalg::norm_squared;
use crate::protocol::{Event, Exchange, Order, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose, SERVER, Seed};
use crate::snapshot::{SnapshotError, State, Visit};

/// Where a chain of `pcn` is, and what it proposes: the same at the server and at every client.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    seed: Seed,
    /// `h`.
    step: f64,
    pub(super) x: Vec<f64>,
    pub(super) proposed: Vec<f64>,
    noise: Vec<f64>,
}

impl Replay {
    pub(super) fn new(seed: Seed, step: f64, dim: usize) -> Self {
        let zero = vec![0.0; dim];
        Replay { seed, step, x: zero.clone(), proposed: zero.clone(), noise: zero }
    }

    /// Make the proposal of an iteration, after the last one was accepted or not. The first is
    /// drawn from the standard normal.
    pub(super) fn propose(&mut self, iteration: u64, accepted: bool) {
        if accepted {
            self.x.copy_from_slice(&self.proposed);
        }
        self.seed.stream(Purpose::Proposal, SERVER, iteration).normals(&mut self.noise);
        let step = if iteration == 0 { 1.0 } else { self.step };
        let kept = (1.0 - step * step).sqrt();
        for ((next, x), z) in self.proposed.iter_mut().zip(&self.x).zip(&self.noise) {
            *next = kept * x + step * z;
        }
    }

    pub(super) fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.vector("the parameter", &mut self.x)?;
        visit.vector("the proposal", &mut self.proposed)
    }
}

#[derive(Debug)]
pub(super) struct Server {
    shared: Shared,
    replay: Replay,
    iteration: u64,
    /// Whether the last proposal was accepted: the clients are yet to be told.
    accepted: bool,
    sum: f64,
    /// `U/T - |x|^2/2`; none before the first proposal, which is accepted whatever its own.
    energy: f64,
    start: Vec<f64>,
    numbers: [f64; 3],
}

impl Server {
    pub(super) fn new(shared: Shared, step: f64, start: &[f64]) -> Self {
        let mut replay = Replay::new(shared.public, step, start.len());
        replay.propose(0, false);
        Server {
            shared,
            replay,
            iteration: 0,
            accepted: false,
            sum: 0.0,
            energy: f64::INFINITY,
            start: start.to_vec(),
            numbers: [0.0; 3],
        }
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        &self.shared.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: self.iteration,
            task: Task::Propose { accepted: self.accepted },
            position: None,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        }
    }

    fn point(&self, _k: usize, out: &mut [f64]) -> bool {
        out.copy_from_slice(&self.replay.proposed);
        true
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        self.sum += reply.payload.values()[0];
    }

    fn advance(&mut self) -> Event {
        let proposed = &self.replay.proposed;
        let energy = self.shared.potential(self.sum, proposed) - 0.5 * norm_squared(proposed);
        self.sum = 0.0;
        if energy.is_nan() {
            return Event::Diverged;
        }
        let (probability, accepted) = self.shared.decide(self.iteration, self.energy - energy);
        if accepted {
            self.energy = energy;
        }
        self.accepted = accepted;
        self.numbers = [probability, f64::from(u8::from(accepted)), self.energy];
        self.iteration += 1;
        self.replay.propose(self.iteration, accepted);
        Event::Draw
    }
}

impl Sampler for Server {
    fn position(&self) -> &[f64] {
        if self.iteration == 0 { &self.start } else { &self.replay.x }
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
        visit.subject("a server of pcn")?;
        visit.number("the iteration", &mut self.iteration)?;
        visit.flag("whether the last proposal was accepted", &mut self.accepted)?;
        self.replay.state(visit)?;
        visit.float("the answers so far", &mut self.sum)?;
        visit.float("the energy", &mut self.energy)?;
        visit.vector("the numbers beside it", &mut self.numbers)
    }
}

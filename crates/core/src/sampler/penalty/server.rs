//! Accept or reject by noisy differences, less half the variance of their noise: the server of
//! family E.

use super::super::Sampler;
use super::super::metropolis::Shared;
use super::walk::Walk;
use crate::compress::Precision;
use crate::protocol::{Event, Exchange, Order, Payload, ReferencePoint, Reply, Task};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};

#[derive(Debug)]
pub(super) struct Server {
    shared: Shared,
    walk: Walk,
    /// `s` of every client.
    noise: f64,
    iteration: u64,
    /// Whether the last proposal was accepted: the clients are yet to be told.
    accepted: bool,
    sum: f64,
    /// Where the chain is: the walk moves on when clients are asked again.
    x: Vec<f64>,
    numbers: [f64; 2],
}

impl Server {
    pub(super) fn new(shared: Shared, step: f64, noise: f64, start: &[f64]) -> Self {
        let mut walk = Walk::new(shared.public, step, start.to_vec());
        walk.propose(0, false);
        Server {
            shared,
            walk,
            noise,
            iteration: 0,
            accepted: false,
            sum: 0.0,
            x: start.to_vec(),
            numbers: [0.0; 2],
        }
    }

    /// `v`: the variance of the noise in the sum of all answers.
    fn variance(&self) -> f64 {
        let deviation = self.noise * self.walk.distance();
        self.shared.everybody.len() as f64 * deviation * deviation
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        &self.shared.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let start = || Payload::Plain(&self.walk.x, Precision::F64);
        Order {
            round: self.iteration,
            task: Task::Propose { accepted: self.accepted },
            position: (self.iteration == 0).then(start),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        self.sum += reply.payload.values()[0];
    }

    fn advance(&mut self) -> Event {
        let Walk { x, proposed, .. } = &self.walk;
        // the clients have divided theirs by the temperature
        let prior = self.shared.potential(0.0, x) - self.shared.potential(0.0, proposed);
        let log = std::mem::take(&mut self.sum) + prior - 0.5 * self.variance();
        if log.is_nan() {
            return Event::Diverged;
        }
        let (probability, accepted) = self.shared.decide(self.iteration, log);
        if accepted {
            self.x.copy_from_slice(proposed);
        }
        self.accepted = accepted;
        self.numbers = [probability, f64::from(u8::from(accepted))];
        self.iteration += 1;
        self.walk.propose(self.iteration, accepted);
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
        visit.subject("a server of penalty")?;
        visit.number("the iteration", &mut self.iteration)?;
        visit.flag("whether the last proposal was accepted", &mut self.accepted)?;
        self.walk.state(visit)?;
        visit.float("the answers so far", &mut self.sum)?;
        visit.vector("the parameter", &mut self.x)?;
        visit.vector("the numbers beside it", &mut self.numbers)
    }
}

//! Say by how much the potential changes, with noise: the clients of family E.

use super::super::Keys;
use super::super::encoder::add_noise;
use super::walk::Walk;
use crate::ask::{Extent, Question, Sum};
use crate::compress::Precision;
use crate::protocol::{Device, Kind, Order, Payload, Reply, Task};
use crate::rng::{ClientId, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

/// A difference beyond this is this: such a proposal is never accepted, or always.
const MOST: f64 = 1e30;

#[derive(Debug)]
pub(super) struct Client {
    site: Site,
    id: ClientId,
    /// The key of its own noise, and `s`.
    key: Seed,
    noise: f64,
    temperature: f64,
    walk: Walk,
    /// Whether it knows where the chain starts.
    started: bool,
    round: u64,
    /// The points that are asked about, and the potentials there: where the chain is, if that is
    /// not known yet, and the proposal.
    points: Vec<f64>,
    asked: Vec<f64>,
    /// `U_i(x)` and `U_i(x')`.
    values: [f64; 2],
    answer: [f64; 1],
    asks: bool,
}

impl Client {
    pub(super) fn new(target: &Target, id: ClientId, keys: Keys, step: f64, noise: f64) -> Self {
        Client {
            site: target.site(id, target.clients[id.index()].rows()),
            id,
            key: keys.private,
            noise,
            temperature: target.temperature,
            walk: Walk::new(keys.public, step, vec![0.0; target.dim()]),
            started: false,
            round: 0,
            points: Vec::new(),
            asked: Vec::new(),
            values: [0.0; 2],
            answer: [0.0],
            asks: false,
        }
    }
}

impl Device for Client {
    /// The first order says where the chain starts, and no other does.
    fn accepts(&self, order: &Order<'_>) -> bool {
        let placed = match order.position {
            None => self.started,
            Some(Payload::Plain(..)) => !self.started && order.round == 0,
            Some(_) => false,
        };
        placed && matches!(order.task, Task::Propose { .. })
    }

    fn begin(&mut self, order: &Order<'_>) {
        self.round = order.round;
        let accepted = matches!(order.task, Task::Propose { accepted: true });
        self.points.clear();
        if let Some(start) = &order.position {
            self.walk.x.copy_from_slice(start.values());
            self.points.extend_from_slice(&self.walk.x);
            self.started = true;
        } else if accepted {
            self.values[0] = self.values[1];
        }
        self.walk.propose(self.round, accepted);
        self.points.extend_from_slice(&self.walk.proposed);
        self.asked.clear();
        self.asked.resize(self.points.len() / self.walk.x.len(), 0.0);
        self.asks = true;
    }

    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        let sum = Sum::Value { x: &self.points };
        let question = Question { sum, extent: Extent::All, scale: 1.0, out: &mut self.asked };
        self.asks.then_some((&mut self.site, question))
    }

    fn proceed(&mut self) {
        self.asks = false;
        if let [here, there] = self.asked[..] {
            self.values = [here, there];
        } else if let [there] = self.asked[..] {
            self.values[1] = there;
        }
    }

    fn reply(&mut self) -> Reply<'_> {
        let [here, there] = self.values;
        // What is not a number stays that, and is refused by name.
        self.answer = [((here - there) / self.temperature).clamp(-MOST, MOST)];
        if self.noise > 0.0 {
            let deviation = [self.noise * self.walk.distance()];
            add_noise((self.key, self.id, self.round), &deviation, &mut self.answer);
        }
        Reply {
            round: self.round,
            kind: Kind::Potential,
            payload: Payload::Plain(&self.answer, Precision::F64),
            beside: &[],
        }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of penalty")?;
        self.site.state(visit)?;
        visit.flag("whether it knows the start", &mut self.started)?;
        self.walk.state(visit)?;
        let [here, there] = &mut self.values;
        visit.float("the potential where the chain is", here)?;
        visit.float("the potential at the proposal", there)
    }
}

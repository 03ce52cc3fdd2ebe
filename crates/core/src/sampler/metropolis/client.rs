//! Say the potential, or its gradient, where it is asked for: the clients of family C.

use super::super::Keys;
use super::super::encoder::Encoder;
use super::autoregressive::Replay;
use crate::ask::{Extent, Question, Sum};
use crate::compress::{Channel, Precision};
use crate::proposal::{Potentials, Proposal};
use crate::protocol::{Device, Kind, Order, Packed, Payload, Reply, Task};
use crate::rng::{ClientId, Purpose, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

#[derive(Debug)]
pub(super) struct Client {
    site: Site,
    public: Seed,
    precision: Precision,
    task: Task,
    round: u64,
    /// Values at points that have a number: proposals of `imh`, and of `pcn`.
    potentials: Potentials,
    proposal: Option<Proposal>,
    replay: Option<Replay>,
    /// The point of a gradient, and the gradient with the value behind it.
    point: Vec<f64>,
    slope: Vec<f64>,
    asks: bool,
    encoder: Encoder,
    packed: Packed,
}

impl Client {
    /// `step` is that of `pcn`, whose clients replay the chain.
    pub(super) fn new(
        target: &Target,
        id: ClientId,
        keys: Keys,
        step: Option<f64>,
        precision: Precision,
        channel: Option<Channel>,
    ) -> Self {
        let d = target.dim();
        Client {
            site: target.site(id, target.clients[id.index()].rows()),
            public: keys.public,
            precision,
            task: Task::Slope,
            round: 0,
            potentials: Potentials::new(d),
            proposal: None,
            replay: step.map(|step| Replay::new(keys.public, step, d)),
            point: vec![0.0; d],
            slope: vec![0.0; d + 1],
            asks: false,
            encoder: Encoder::new(id, precision, channel, keys),
            packed: Packed::default(),
        }
    }
}

/// The points that a task names by number.
fn name<'a>(
    proposal: Option<&'a Proposal>,
    replay: Option<&'a Replay>,
    (seed, round): (Seed, u64),
) -> impl FnMut(usize, &mut [f64]) + 'a {
    move |k, x| match (proposal, replay) {
        (Some(proposal), _) => {
            proposal.draw(seed, Purpose::Proposal, round + k as u64, x);
        }
        (None, Some(replay)) => x.copy_from_slice(&replay.proposed),
        (None, None) => {}
    }
}

impl Device for Client {
    fn accepts(&self, order: &Order<'_>) -> bool {
        match order.task {
            Task::Potentials { .. } => {
                let known = self.proposal.as_ref().is_some_and(|p| p.parts() == order.numbers);
                self.replay.is_none()
                    && (known || Proposal::told(self.point.len(), order.numbers).is_some())
            }
            Task::Propose { .. } => self.replay.is_some(),
            Task::Slope => {
                self.replay.is_none() && matches!(order.position, Some(Payload::Plain(..)))
            }
            _ => false,
        }
    }

    fn begin(&mut self, order: &Order<'_>) {
        (self.task, self.round) = (order.task, order.round);
        let address = (self.public, self.round);
        match self.task {
            Task::Potentials { points } => {
                // What is told again is known: bent axes have tables.
                if self.proposal.as_ref().is_none_or(|known| known.parts() != order.numbers) {
                    self.proposal = Proposal::told(self.point.len(), order.numbers);
                }
                let named = name(self.proposal.as_ref(), None, address);
                self.potentials.begin(points as usize, named);
            }
            Task::Propose { accepted } => {
                if let Some(replay) = &mut self.replay {
                    replay.propose(self.round, accepted);
                }
                self.potentials.begin(1, name(None, self.replay.as_ref(), address));
            }
            _ => {
                if let Some(point) = &order.position {
                    self.point.copy_from_slice(point.values());
                }
                self.slope.fill(0.0);
                self.asks = true;
            }
        }
    }

    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        if self.task != Task::Slope {
            return self.potentials.question(&mut self.site);
        }
        let sum = Sum::GradientAndValue { x: &self.point };
        self.asks.then_some((
            &mut self.site,
            Question { sum, extent: Extent::All, scale: 1.0, out: &mut self.slope },
        ))
    }

    fn proceed(&mut self) {
        self.asks = false;
        if self.task != Task::Slope {
            let (proposal, replay) = (self.proposal.as_ref(), self.replay.as_ref());
            self.potentials.proceed(name(proposal, replay, (self.public, self.round)));
        }
    }

    fn reply(&mut self) -> Reply<'_> {
        if self.task == Task::Slope {
            let (gradient, value) = self.slope.split_at_mut(self.point.len());
            let reply = self.encoder.send(Kind::Gradient, gradient, self.round, &mut self.packed);
            return Reply { beside: value, ..reply };
        }
        self.precision.round(self.potentials.values_mut());
        Reply {
            round: self.round,
            kind: Kind::Potential,
            payload: Payload::Plain(self.potentials.values(), self.precision),
            beside: &[],
        }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of family C")?;
        self.site.state(visit)?;
        if let Some(replay) = &mut self.replay {
            replay.state(visit)?;
        }
        Ok(())
    }
}

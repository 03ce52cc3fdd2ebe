//! Carry exchanges with a model that answers all clients of a process in one call.

use std::sync::Arc;

use super::{Device, Event, Exchange, Ledger, Order, devices_of};
use crate::ask::Ask;
use crate::model::{EvaluationError, Evaluator, Model};
use crate::rng::ClientId;
use crate::threads::{Threads, at_once};
use crate::walk::{Walk, WalkRoom, emptied};

/// Carries exchanges: all clients of the cohort take their orders, and as long as any of them walks
/// or has a question, what all of them want is done in one call. The chain is that of
/// [`super::exchange`], bit for bit; so are several chains that go on side by side.
///
/// What is kept here between exchanges is room, not state: snapshots are taken between exchanges,
/// when nobody has an open question.
#[derive(Debug)]
pub struct Jointly {
    evaluator: Box<dyn Evaluator>,
    asks: Vec<Ask<'static>>,
    walks: Vec<Walk<'static>>,
    room: WalkRoom,
}

impl Jointly {
    /// Exchanges with this model.
    pub fn new(model: Arc<dyn Model>) -> Self {
        let (asks, walks, room) = (Vec::new(), Vec::new(), WalkRoom::default());
        Jointly { evaluator: model.evaluator(), asks, walks, room }
    }

    /// Carry one exchange. If the model fails, clients are left in the middle of it: the server
    /// still has its last draw, but the chain can only go on from a snapshot that was taken before.
    pub fn exchange<S: Exchange + ?Sized>(
        &mut self,
        server: &mut S,
        clients: &mut [Box<dyn Device>],
        ledger: &mut Ledger,
    ) -> Result<Event, EvaluationError> {
        if let Some(spread) = self.evaluator.threads() {
            return self.spread(server, clients, ledger, spread);
        }
        for id in server.cohort() {
            let order = server.order(*id);
            ledger.down(*id, &order);
            clients[id.index()].begin(&order);
        }
        self.satisfy(&mut [(server.cohort(), clients)])?;
        for at in 0..server.cohort().len() {
            let id = server.cohort()[at];
            let reply = clients[id.index()].reply();
            ledger.up(id, &reply);
            server.absorb(id, &reply);
        }
        Ok(server.advance())
    }

    /// The same where what is asked is far away: several threads copy the clients' long vectors.
    fn spread<S: Exchange + ?Sized>(
        &mut self,
        server: &mut S,
        clients: &mut [Box<dyn Device>],
        ledger: &mut Ledger,
        spread: &dyn Threads,
    ) -> Result<Event, EvaluationError> {
        let asked = server.cohort().to_vec();
        let orders: Vec<Order<'_>> = asked.iter().map(|id| server.order(*id)).collect();
        for (id, order) in asked.iter().zip(&orders) {
            ledger.down(*id, order);
        }
        let begun = devices_of(&asked, clients).zip(&orders).collect();
        at_once(spread, begun, |(client, order)| client.begin(order));
        drop(orders);
        self.satisfy(&mut [(&asked, clients)])?;
        let replies = at_once(spread, devices_of(&asked, clients).collect(), |c| c.reply());
        for (id, reply) in asked.iter().zip(&replies) {
            ledger.up(*id, reply);
        }
        server.absorb_all(&asked, &replies, spread);
        Ok(server.advance())
    }

    /// Carry one exchange of each of several chains on the same target, which go on side by side:
    /// what all of their clients want is done in one call. No chain knows of the others. What came
    /// of each is added to `events`.
    pub fn exchange_together(
        &mut self,
        chains: &mut [Together<'_>],
        events: &mut Vec<Event>,
    ) -> Result<(), EvaluationError> {
        for Together { server, clients, ledger } in &mut *chains {
            for id in server.cohort() {
                let order = server.order(*id);
                ledger.down(*id, &order);
                clients[id.index()].begin(&order);
            }
        }
        let mut groups: Vec<Cohort<'_>> = Vec::new();
        for Together { server, clients, .. } in &mut *chains {
            groups.push(((**server).cohort(), &mut **clients));
        }
        self.satisfy(&mut groups)?;
        for Together { server, clients, ledger } in chains {
            for at in 0..server.cohort().len() {
                let id = server.cohort()[at];
                let reply = clients[id.index()].reply();
                ledger.up(id, &reply);
                server.absorb(id, &reply);
            }
            events.push(server.advance());
        }
        Ok(())
    }

    /// Take steps and answer questions as long as anybody has any. What the same client of several
    /// chains wants stands side by side.
    fn satisfy(&mut self, groups: &mut [Cohort<'_>]) -> Result<(), EvaluationError> {
        let several = groups.len() > 1;
        loop {
            let mut walks = without_walks(std::mem::take(&mut self.walks));
            for (cohort, clients) in &mut *groups {
                walks.extend(
                    devices_of(cohort, clients).filter_map(|client| Some(client.walk()?.0)),
                );
            }
            if !walks.is_empty() {
                if several {
                    walks.sort_by_key(|walk| walk.client);
                }
                let walked = self.evaluator.walk(&mut walks, &mut self.room);
                self.walks = without_walks(walks);
                walked?;
                for (cohort, clients) in &mut *groups {
                    let arrived = devices_of(cohort, clients);
                    match self.evaluator.threads() {
                        Some(spread) => drop(at_once(spread, arrived.collect(), |c| c.walked())),
                        None => arrived.for_each(|client| client.walked()),
                    }
                }
                continue;
            }
            self.walks = without_walks(walks);
            let mut asks = emptied(std::mem::take(&mut self.asks));
            for (cohort, clients) in &mut *groups {
                asks.extend(devices_of(cohort, clients).filter_map(|client| client.pending()));
            }
            if asks.is_empty() {
                self.asks = emptied(asks);
                return Ok(());
            }
            if several {
                asks.sort_by_key(|ask| ask.client);
            }
            let answered = self.evaluator.answer(&mut asks);
            self.asks = emptied(asks);
            answered?;
            for (cohort, clients) in &mut *groups {
                devices_of(cohort, clients).for_each(|client| client.resume());
            }
        }
    }
}

/// Who is asked, and all clients of the chain.
type Cohort<'a> = (&'a [ClientId], &'a mut [Box<dyn Device>]);

/// One chain of several that go on side by side.
pub struct Together<'a> {
    /// Its server.
    pub server: &'a mut dyn Exchange,
    /// All of its clients.
    pub clients: &'a mut [Box<dyn Device>],
    /// Where its bits are counted.
    pub ledger: &'a mut Ledger,
}

/// The same room for walks of another time: collecting in place allocates nothing.
#[allow(clippy::unnecessary_filter_map)] // a filter would keep the lifetime
fn without_walks<'a>(mut walks: Vec<Walk<'_>>) -> Vec<Walk<'a>> {
    walks.clear();
    walks.into_iter().filter_map(|_| None).collect()
}

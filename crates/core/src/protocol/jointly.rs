//! Carry exchanges with a model that answers all clients of a process in one call.

use std::sync::Arc;

use super::{Device, Event, Exchange, Ledger, Order, devices_of};
use crate::ask::{Ask, Tour};
use crate::model::{EvaluationError, Evaluator, Model};
use crate::rng::ClientId;
use crate::threads::{Threads, at_once};

/// Carries exchanges: all clients of the cohort take their orders, and as long as any of them has a
/// question, what all of them ask is answered in one call. Clients that walk do so in lock-step.
/// The chain is that of [`super::exchange`], bit for bit.
///
/// What is kept here between exchanges is room, not state: snapshots are taken between exchanges,
/// when nobody has an open question.
#[derive(Debug)]
pub struct Jointly {
    evaluator: Box<dyn Evaluator>,
    room: Vec<Ask<'static>>,
}

impl Jointly {
    /// Exchanges with this model.
    pub fn new(model: Arc<dyn Model>) -> Self {
        Jointly { evaluator: model.evaluator(), room: Vec::new() }
    }

    /// Carry one exchange. If the model fails, clients are left in the middle of it: the server
    /// still has its last draw, but the chain can only go on from a snapshot that was taken before.
    pub fn exchange<S: Exchange + ?Sized>(
        &mut self,
        server: &mut S,
        clients: &mut [Box<dyn Device>],
        ledger: &mut Ledger,
    ) -> Result<Event, EvaluationError> {
        if let Some(guide) = self.evaluator.guide() {
            let spread = guide.spread();
            return self.guided(server, clients, ledger, spread);
        }
        for id in server.cohort() {
            let order = server.order(*id);
            ledger.down(*id, &order);
            clients[id.index()].begin(&order);
        }
        self.ask(server.cohort(), clients)?;
        for at in 0..server.cohort().len() {
            let id = server.cohort()[at];
            let reply = clients[id.index()].reply();
            ledger.up(id, &reply);
            server.absorb(id, &reply);
        }
        Ok(server.advance())
    }

    /// The same where somebody takes the clients' steps: what is left to them is to copy long
    /// vectors, which several do at once.
    fn guided<S: Exchange + ?Sized>(
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
        while let Some(guide) = self.evaluator.guide() {
            let mut tours: Vec<Tour<'_>> =
                devices_of(&asked, clients).filter_map(|client| client.tour()).collect();
            if tours.is_empty() || !tours.iter().all(|tour| guide.takes(tour)) {
                break;
            }
            guide.tour(&mut tours)?;
            at_once(spread, devices_of(&asked, clients).collect(), |client| client.toured());
        }
        self.ask(&asked, clients)?;
        let replies = at_once(spread, devices_of(&asked, clients).collect(), |c| c.reply());
        for (id, reply) in asked.iter().zip(&replies) {
            ledger.up(*id, reply);
        }
        server.absorb_all(&asked, &replies, spread);
        Ok(server.advance())
    }

    /// Answer as long as anybody asks.
    fn ask(
        &mut self,
        cohort: &[ClientId],
        clients: &mut [Box<dyn Device>],
    ) -> Result<(), EvaluationError> {
        loop {
            let mut asks = empty(std::mem::take(&mut self.room));
            asks.extend(devices_of(cohort, clients).filter_map(|client| client.pending()));
            if asks.is_empty() {
                self.room = empty(asks);
                return Ok(());
            }
            let answered = self.evaluator.answer(&mut asks);
            self.room = empty(asks);
            answered?;
            for id in cohort {
                clients[id.index()].resume();
            }
        }
    }
}

/// The same room for asks of another time: collecting in place allocates nothing.
#[allow(clippy::unnecessary_filter_map)] // a filter would keep the lifetime
fn empty<'a>(mut asks: Vec<Ask<'_>>) -> Vec<Ask<'a>> {
    asks.clear();
    asks.into_iter().filter_map(|_| None).collect()
}

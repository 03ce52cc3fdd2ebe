//! Get to know the target before sampling it: its optimum and its curvature, by messages like any other, counted like any other.

mod curvature;
mod optimum;

pub use curvature::{Curvature, Hessian, Lanczos, LocalCurvature};
pub use optimum::{Evaluate, Optimum};

use crate::protocol::{Device, Event, Exchange, Kind, Ledger, Order, Payload, Precision, Reference, Reply, Task, exchange};
use crate::rng::{ClientId, Purpose, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

/// A client that answers the questions of a survey.
#[derive(Debug)]
pub struct Client {
    site: Site,
    reference: Vec<f64>,
    answer: Vec<f64>,
}

impl Client {
    /// Client `id` of the target.
    pub fn new(target: &Target, id: ClientId) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        Client { site: target.site(id, rows), reference: vec![0.0; d], answer: vec![0.0; d + 1] }
    }

    /// All clients of a target.
    pub fn all(target: &Target) -> Vec<Box<dyn Device>> {
        (0..target.clients.len() as u32).map(|i| Box::new(Client::new(target, ClientId(i))) as Box<dyn Device>).collect()
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of a survey")?;
        self.site.state(visit)?;
        visit.vector("the reference point", &mut self.reference)
    }
}

impl Device for Client {
    fn accepts(&self, order: &Order<'_>) -> bool {
        order.task.is_survey() && matches!(order.position, Some(Payload::Plain(..)))
    }

    fn answer(&mut self, order: &Order<'_>) -> Reply<'_> {
        let d = self.reference.len();
        let x = order.position.as_ref().map_or(&[][..], Payload::values);
        if let Reference::New(point) = &order.reference {
            self.reference.copy_from_slice(point.values());
        }
        let length = order.task.answer_len(d);
        match order.task {
            Task::Value => {
                let (gradient, value) = self.answer.split_at_mut(d);
                self.site.gradient(x, gradient);
                value[0] = self.site.value(x);
            }
            Task::Curvature => {
                let mut lanczos = Lanczos::new(d, &mut Seed::new(0).stream(Purpose::Curvature, self.site.id(), 0));
                let mut image = vec![0.0; d];
                while let Some(v) = lanczos.ask() {
                    self.site.hessian_vector(x, v, &mut image);
                    lanczos.tell(&image);
                }
                self.answer[0] = lanczos.extremes().1;
            }
            _ => self.site.hessian_vector(&self.reference, x, &mut self.answer[..d]),
        }
        Reply { round: order.round, kind: Kind::Survey, payload: Payload::Plain(&self.answer[..length], Precision::F64) }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }
}

/// Carry a survey to its end in this process.
pub fn conduct<S: Exchange>(mut survey: S, clients: &mut [Box<dyn Device>], ledger: &mut Ledger) -> S {
    while exchange(&mut survey, clients, ledger) == Event::Nothing {}
    survey
}

fn everybody(target: &Target) -> Vec<ClientId> {
    (0..target.clients.len() as u32).map(ClientId).collect()
}

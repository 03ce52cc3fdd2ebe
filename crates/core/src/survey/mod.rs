//! Get to know the target before sampling it: its optimum and its curvature, by messages like any
//! other, counted like any other.

mod curvature;
mod optimum;
mod skewness;

pub use curvature::{Curvature, Hessian, Lanczos, LocalCurvature};
pub use optimum::{Evaluate, Optimum};
pub use skewness::Skewness;

use crate::ask::{Extent, Question, Sum};
use crate::protocol::wire::UNKNOWN;
use crate::protocol::{
    Device, Event, Exchange, Kind, Ledger, Order, Payload, Precision, Reference, Reply, Task,
    exchange,
};
use crate::rng::{ClientId, Purpose, Seed};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

/// A client that answers the questions of a survey.
#[derive(Debug)]
pub struct Client {
    site: Site,
    reference: Vec<f64>,
    answer: Vec<f64>,
    /// The order that is being worked on: its task, round and point, and whether something is still
    /// to be asked.
    task: Task,
    round: u64,
    point: Vec<f64>,
    asks: bool,
    /// The search for the client's own largest curvature.
    lanczos: Option<Lanczos>,
}

impl Client {
    /// Client `id` of the target.
    pub fn new(target: &Target, id: ClientId) -> Self {
        let d = target.dim();
        let rows = target.clients[id.index()].rows();
        Client {
            site: target.site(id, rows),
            reference: vec![0.0; d],
            answer: vec![0.0; d + 1],
            task: Task::Value,
            round: 0,
            point: vec![0.0; d],
            asks: false,
            lanczos: None,
        }
    }

    /// All clients of a target.
    pub fn all(target: &Target) -> Vec<Box<dyn Device>> {
        (0..target.clients.len() as u32)
            .map(|i| Box::new(Client::new(target, ClientId(i))) as Box<dyn Device>)
            .collect()
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

    fn begin(&mut self, order: &Order<'_>) {
        (self.task, self.round, self.asks) = (order.task, order.round, true);
        if let Some(point) = &order.position {
            self.point.copy_from_slice(point.values());
        }
        if let Reference::New(point) = &order.reference {
            self.reference.copy_from_slice(point.values());
        }
        self.answer.fill(0.0);
        let start = || {
            Lanczos::new(
                self.point.len(),
                &mut Seed::new(0).stream(Purpose::Curvature, self.site.id(), 0),
            )
        };
        self.lanczos = (order.task == Task::Curvature).then(start);
    }

    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        if !self.asks {
            return None;
        }
        let (x, d) = (&self.point, self.point.len());
        let (sum, length) = match (self.task, &self.lanczos) {
            (Task::Value, _) => (Sum::GradientAndValue { x }, d + 1),
            (Task::Curvature, Some(lanczos)) => (Sum::HessianVector { x, v: lanczos.ask()? }, d),
            _ => (Sum::HessianVector { x: &self.reference, v: x }, d),
        };
        Some((
            &mut self.site,
            Question { sum, extent: Extent::All, scale: 1.0, out: &mut self.answer[..length] },
        ))
    }

    fn proceed(&mut self) {
        let d = self.point.len();
        if let Some(lanczos) = &mut self.lanczos {
            lanczos.tell(&self.answer[..d]);
            self.answer.fill(0.0);
            if lanczos.ask().is_some() {
                return;
            }
            self.answer[0] = lanczos.extremes().1;
        }
        if self.task == Task::Value && self.answer[d].is_nan() {
            self.answer[d] = UNKNOWN; // whichever NaN it is, there is one that is sent
        }
        self.asks = false;
    }

    fn reply(&mut self) -> Reply<'_> {
        let length = self.task.answer_len(self.point.len());
        Reply {
            round: self.round,
            kind: Kind::Survey,
            payload: Payload::Plain(&self.answer[..length], Precision::F64),
        }
    }

    fn rows_evaluated(&self) -> u64 {
        self.site.rows_evaluated()
    }
}

/// Carry a survey to its end in this process.
pub fn conduct<S: Exchange>(
    mut survey: S,
    clients: &mut [Box<dyn Device>],
    ledger: &mut Ledger,
) -> S {
    while exchange(&mut survey, clients, ledger) == Event::Nothing {}
    survey
}

fn everybody(target: &Target) -> Vec<ClientId> {
    (0..target.clients.len() as u32).map(ClientId).collect()
}

//! Make one model of the models of several clients.

use std::sync::Arc;

use super::{EvaluationError, Evaluator, Model, Offers};
use crate::ask::Ask;
use crate::rng::ClientId;
use crate::walk::{Walk, WalkRoom};

/// The models of several clients, which are asked together.
#[derive(Clone, Debug)]
pub struct ClientModels {
    clients: Vec<Arc<dyn Model>>,
}

impl ClientModels {
    /// Of one model a client; `None` if there is none, or if they differ in their parameters.
    pub fn new(clients: Vec<Arc<dyn Model>>) -> Option<Self> {
        let dim = clients.first()?.dim();
        clients.iter().all(|client| client.dim() == dim).then_some(ClientModels { clients })
    }
}

impl Model for ClientModels {
    fn dim(&self) -> usize {
        self.clients[0].dim()
    }

    fn clients(&self) -> usize {
        self.clients.len()
    }

    fn rows(&self) -> usize {
        self.clients.iter().map(|client| client.rows()).sum()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.clients[client.index()].rows()
    }

    /// What all of them offer.
    fn offers(&self) -> Offers {
        let all = |has: fn(&Offers) -> bool| self.clients.iter().all(|c| has(&c.offers()));
        Offers {
            values: all(|offers| offers.values),
            hessians: all(|offers| offers.hessians),
            resolution: self.clients.iter().map(|c| c.offers().resolution).fold(0.0, f64::max),
            differences_ignore_rows: all(|offers| offers.differences_ignore_rows),
            together: all(|offers| offers.together),
        }
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Box::new(Each(self.clients.iter().map(|client| Arc::clone(client).evaluator()).collect()))
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        let mut row = row;
        for client in &self.clients {
            if row < client.rows() {
                return client.row_smoothness(row);
            }
            row -= client.rows();
        }
        f64::NAN
    }
}

/// An evaluator for each client.
#[derive(Debug)]
struct Each(Vec<Box<dyn Evaluator>>);

impl Evaluator for Each {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        asks.chunk_by_mut(|a, b| a.client == b.client)
            .try_for_each(|asks| self.0[asks[0].client.index()].answer(asks))
    }

    fn walk(&mut self, walks: &mut [Walk<'_>], room: &mut WalkRoom) -> Result<(), EvaluationError> {
        walks
            .chunk_by_mut(|a, b| a.client == b.client)
            .try_for_each(|walks| self.0[walks[0].client.index()].walk(walks, room))
    }
}

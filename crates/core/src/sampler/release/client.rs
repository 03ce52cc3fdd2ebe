//! Answer twice, with noise, and never again: the clients of a release.

use std::sync::Arc;

use super::super::Keys;
use super::super::encoder::add_noise;
use super::Answer;
use crate::compress::Precision;
use crate::linalg::dot;
use crate::model::{Model, RegressionRows};
use crate::privacy::{Once, Released};
use crate::protocol::{Device, Kind, Order, Payload, Reply, Task};
use crate::rng::{ClientId, Seed};
use crate::simd::sigmoid;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

pub(super) struct Client {
    model: Arc<dyn Model>,
    id: ClientId,
    key: Seed,
    once: Once,
    /// How many of the two answers were given: each is given once, in its turn.
    answered: u64,
    answer: Vec<f64>,
    rows_evaluated: u64,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({:?}, {} answers, secret)", self.id, self.answered)
    }
}

impl Client {
    pub(super) fn new(target: &Target, id: ClientId, keys: Keys, once: Once) -> Self {
        Client {
            model: Arc::clone(&target.clients[id.index()]),
            id,
            key: keys.private,
            once,
            answered: 0,
            answer: Vec::new(),
            rows_evaluated: 0,
        }
    }

    /// The sums over rows, and the deviations of their noise.
    fn sums(&self, rows: &dyn RegressionRows, order: &Order<'_>) -> (Vec<f64>, Vec<f64>) {
        let d = rows.columns();
        let shape = Answer::new(&self.once, d, order.round);
        let (mut sums, mut row) = (vec![0.0; shape.len()], vec![0.0; d]);
        let at = order.position.as_ref().map_or(&[][..], |position| &position.values()[..d]);
        for j in 0..self.model.rows() {
            let y = rows.row(j, &mut row);
            match (order.round, self.once.regression) {
                (0, Released::Linear { response, .. }) => {
                    row.push(self.once.weight() * y.clamp(-response, response));
                    shape.add_square(1.0, &row, &mut sums);
                    row.pop();
                }
                (0, Released::Logistic) => {
                    shape.add_square(1.0, &row, &mut sums);
                    shape.add_pull(if y > 0.5 { 1.0 } else { -1.0 }, &row, &mut sums);
                }
                (_, Released::Linear { .. }) => {
                    let bound = order.numbers[0];
                    // Far out a predictor may be no number: such a row says nothing.
                    let pull = (y - dot(&row, at)).clamp(-bound, bound);
                    shape.add_pull(if pull.is_nan() { 0.0 } else { pull }, &row, &mut sums);
                }
                (_, Released::Logistic) => {
                    let p = sigmoid(dot(&row, at));
                    if !p.is_nan() {
                        shape.add_square(p * (1.0 - p), &row, &mut sums);
                        shape.add_pull(y - p, &row, &mut sums);
                    }
                }
            }
        }
        let bound = order.numbers.first().copied().unwrap_or(1.0);
        (sums, shape.deviations(&self.once, bound))
    }
}

impl Device for Client {
    fn accepts(&self, order: &Order<'_>) -> bool {
        let Some(rows) = self.model.observed() else { return false };
        let numbers = Answer::new(&self.once, rows.columns(), self.answered).len() as u64;
        let vectors = match self.answered {
            0 => order.position.is_none() && order.numbers.is_empty(),
            1 => {
                let bounded = match self.once.regression {
                    Released::Linear { response, .. } => {
                        order.numbers.len() == 1
                            && super::bounds(response).contains(&order.numbers[0])
                    }
                    Released::Logistic => order.numbers.is_empty(),
                };
                bounded && matches!(order.position, Some(Payload::Plain(..)))
            }
            _ => false,
        };
        vectors && order.round == self.answered && order.task == Task::Release { numbers }
    }

    fn begin(&mut self, order: &Order<'_>) {
        let model = Arc::clone(&self.model);
        let Some(rows) = model.observed() else { return };
        let (mut sums, deviations) = self.sums(rows, order);
        add_noise((self.key, self.id, order.round), &deviations, &mut sums);
        self.answer = sums;
        self.answered += 1;
        self.rows_evaluated += model.rows() as u64;
    }

    fn question(&mut self) -> Option<(&mut Site, crate::ask::Question<'_>)> {
        None // it has its rows at hand
    }

    fn proceed(&mut self) {}

    fn reply(&mut self) -> Reply<'_> {
        Reply {
            round: self.answered.saturating_sub(1),
            kind: Kind::Survey,
            payload: Payload::Plain(&self.answer, Precision::F64),
            beside: &[],
        }
    }

    fn rows_evaluated(&self) -> u64 {
        self.rows_evaluated
    }
}

impl State for Client {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a client of a release")?;
        visit.number("the releases given", &mut self.answered)?;
        visit.number("the row gradients evaluated", &mut self.rows_evaluated)
    }
}

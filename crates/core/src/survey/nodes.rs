//! Learn the law of all other coordinates given the first, at nodes along it.
//!
//! The search itself is [`Conditionals`]; here it asks by messages.

use super::shape::prior_of_server;
use super::{BEYOND, everybody};
use crate::model::Prior;
use crate::proposal::{Conditionals, NODES, NodeAnswer, from_triangle, upper_columns};
use crate::protocol::{Event, Exchange, Order, ReferencePoint, Reply, Task};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::Target;

const TASK: Task = Task::Nodes { points: NODES.len() as u64 };

/// The law of all other coordinates given the first, of a target in coordinates whose first alone
/// moves the logarithm of a scale.
#[derive(Clone, Debug)]
pub struct AlongScale {
    everybody: Vec<ClientId>,
    prior: Prior,
    temperature: f64,
    dim: usize,
    conditionals: Conditionals,
    /// What is asked about: the means and roots of all nodes.
    numbers: Vec<f64>,
    round: u64,
    sum: Vec<f64>,
}

impl AlongScale {
    /// Of a target in such coordinates.
    pub fn new(target: &Target) -> Self {
        let dim = target.dim();
        let conditionals = Conditionals::new(dim);
        AlongScale {
            everybody: everybody(target),
            prior: prior_of_server(target),
            temperature: target.temperature,
            dim,
            numbers: conditionals.asks().unwrap_or_default(),
            conditionals,
            round: 0,
            sum: vec![0.0; TASK.answer_len(dim)],
        }
    }

    /// The search.
    pub fn conditionals(&self) -> &Conditionals {
        &self.conditionals
    }
}

impl Exchange for AlongScale {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: self.round,
            task: TASK,
            position: None,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &self.numbers,
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        for (sum, value) in self.sum.iter_mut().zip(reply.payload.values()) {
            *sum += if value.abs() < BEYOND { *value } else { f64::NAN };
        }
    }

    fn advance(&mut self) -> Event {
        let d = self.dim;
        let triangle = d * (d + 1) / 2;
        let (laws, sums) =
            (self.numbers.chunks_exact(d + triangle), self.sum.chunks_exact(1 + d + triangle));
        let answer = |(law, sum): (&[f64], &[f64])| {
            let (mean, root) = law.split_at(d);
            let mut both = sum[1..=d].to_vec();
            both.extend(from_triangle(&sum[1 + d..], d));
            self.prior.add_average((mean, &upper_columns(root, d)), 1.0, &mut both);
            both.iter_mut().for_each(|x| *x /= self.temperature);
            let hessian = both.split_off(d);
            let value = (sum[0] + self.prior.value(mean)) / self.temperature;
            NodeAnswer { value, gradient: both, hessian }
        };
        let answers: Vec<NodeAnswer> = laws.zip(sums).map(answer).collect();
        self.conditionals.tell(&answers);
        self.sum.fill(0.0);
        self.round += 1;
        match self.conditionals.asks() {
            Some(numbers) => {
                self.numbers = numbers;
                Event::Nothing
            }
            None => Event::Done,
        }
    }
}

impl State for AlongScale {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a survey along a scale")?;
        visit.number("the round", &mut self.round)?;
        self.conditionals.state(visit)?;
        visit.vector("the answers so far", &mut self.sum)?;
        if visit.restores() {
            self.numbers = self.conditionals.asks().unwrap_or_default();
        }
        Ok(())
    }
}

//! Measure how far each client's mean gradient would move if draws were spread more widely: its
//! third derivatives, added up along the axes of the posterior.
//!
//! Around the optimum `E grad U_i(x* + u) = grad U_i(x*) + t_i / 2` with
//! `t_i = sum_k U_i'''(c_k, c_k, .)` for `u` of covariance `sum_k c_k c_k'`, up to fourth
//! derivatives. Gradients at `x* + c_k` and `x* - c_k` give it to the same order.

use super::everybody;
use crate::linalg::add_scaled;
use crate::protocol::{Event, Exchange, Order, Payload, Precision, ReferencePoint, Reply, Task};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::Target;

/// Gradients at both ends of every axis, added up client by client.
#[derive(Clone, Debug)]
pub struct Skewness {
    everybody: Vec<ClientId>,
    centre: Vec<f64>,
    axes: Vec<Vec<f64>>,
    point: Vec<f64>,
    round: u64,
    sums: Vec<Vec<f64>>,
}

impl Skewness {
    /// Ask at both ends of these axes through `centre`.
    pub fn new(target: &Target, centre: &[f64], axes: Vec<Vec<f64>>) -> Self {
        let sums = vec![vec![0.0; centre.len()]; target.clients.len()];
        let mut survey = Skewness {
            everybody: everybody(target),
            point: centre.to_vec(),
            centre: centre.to_vec(),
            axes,
            round: 0,
            sums,
        };
        survey.aim();
        survey
    }

    /// Move to the end that is asked about next.
    fn aim(&mut self) {
        self.point.copy_from_slice(&self.centre);
        if let Some(axis) = self.axes.get((self.round / 2) as usize) {
            add_scaled(
                if self.round.is_multiple_of(2) { 1.0 } else { -1.0 },
                axis,
                &mut self.point,
            );
        }
    }

    /// By how much each client's mean gradient moves if draws have the covariance of the axes;
    /// `gradients` are those at the centre.
    pub fn shifts<'a>(
        &'a self,
        gradients: impl Iterator<Item = &'a [f64]> + 'a,
    ) -> impl Iterator<Item = Vec<f64>> + 'a {
        let ends = 2.0 * self.axes.len() as f64;
        self.sums.iter().zip(gradients).map(move |(sum, centre)| {
            sum.iter().zip(centre).map(|(s, c)| 0.5 * (s - ends * c)).collect()
        })
    }
}

impl Exchange for Skewness {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let position = Some(Payload::Plain(&self.point, Precision::F64));
        Order {
            round: self.round,
            task: Task::Value,
            position,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        }
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        let sum = &mut self.sums[from.index()];
        add_scaled(1.0, &reply.payload.values()[..sum.len()], sum);
    }

    fn advance(&mut self) -> Event {
        self.round += 1;
        self.aim();
        if self.round == 2 * self.axes.len() as u64 { Event::Done } else { Event::Nothing }
    }
}

impl State for Skewness {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a survey of skewness")?;
        visit.number("the round", &mut self.round)?;
        for sum in &mut self.sums {
            visit.vector("the answers of a client so far", sum)?;
        }
        if visit.restores() {
            self.aim();
        }
        Ok(())
    }
}

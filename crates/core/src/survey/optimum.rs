//! Find the minimiser of `U` by exchanging gradients: limited-memory BFGS at the server (Nocedal
//! 1980), exact gradients from the clients.

use super::everybody;
use crate::linalg::{add_scaled, dot, norm_squared};
use crate::model::Prior;
use crate::protocol::{Event, Exchange, Order, Payload, Precision, ReferencePoint, Reply, Task};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Placement, Target};

const HISTORY: usize = 12;

/// The sum of all clients' values and gradients at one point.
#[derive(Clone, Debug)]
pub struct Evaluate {
    everybody: Vec<ClientId>,
    round: u64,
    point: Vec<f64>,
    /// The gradient, then the value.
    sum: Vec<f64>,
    /// The same of each client, where it is wanted.
    each: Vec<Vec<f64>>,
}

impl Evaluate {
    /// Ask for the sum at `point`.
    pub fn new(target: &Target, point: &[f64]) -> Self {
        let sum = vec![0.0; point.len() + 1];
        Evaluate {
            everybody: everybody(target),
            round: 0,
            point: point.to_vec(),
            sum,
            each: Vec::new(),
        }
    }

    /// Ask for the sum at `point`, and keep each client's part of it.
    pub fn of_each(target: &Target, point: &[f64]) -> Self {
        Evaluate {
            each: vec![vec![0.0; point.len() + 1]; target.clients.len()],
            ..Evaluate::new(target, point)
        }
    }

    /// The gradients of the clients, with their shares of the prior, where they were kept.
    pub fn gradients(&self) -> impl Iterator<Item = &[f64]> {
        self.each.iter().map(|own| &own[..self.point.len()])
    }

    /// `sum_i grad U_i`, with the clients' shares of the prior and without the server's.
    pub fn gradient(&self) -> &[f64] {
        &self.sum[..self.point.len()]
    }

    /// `sum_i U_i`, likewise; NaN where a client does not know its own.
    pub fn value(&self) -> f64 {
        self.sum[self.point.len()]
    }
}

impl Exchange for Evaluate {
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
        add_scaled(1.0, reply.payload.values(), &mut self.sum);
        if let Some(own) = self.each.get_mut(from.index()) {
            own.copy_from_slice(reply.payload.values());
        }
    }

    fn advance(&mut self) -> Event {
        Event::Done
    }
}

/// The search for the minimiser.
#[derive(Clone, Debug)]
pub struct Optimum {
    ask: Evaluate,
    prior: Prior,
    tolerance: f64,
    most_exchanges: u64,
    /// The best point so far, its value and gradient.
    point: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
    direction: Vec<f64>,
    stride: f64,
    /// Pairs (move, change of gradient), oldest first.
    history: Vec<(Vec<f64>, Vec<f64>)>,
    exchanges: u64,
    converged: bool,
}

impl Optimum {
    /// Start at `start`; stop when no coordinate of the gradient exceeds `tolerance` times the
    /// largest at the start (or 1, if that is more), or after so many exchanges.
    pub fn new(target: &Target, start: &[f64], tolerance: f64, most_exchanges: u64) -> Self {
        Optimum {
            ask: Evaluate::new(target, start),
            prior: if target.placement == Placement::Server {
                target.prior.clone()
            } else {
                Prior::Flat
            },
            tolerance,
            most_exchanges,
            point: start.to_vec(),
            value: f64::INFINITY,
            gradient: vec![0.0; start.len()],
            direction: vec![0.0; start.len()],
            stride: 1.0,
            history: Vec::new(),
            exchanges: 0,
            converged: false,
        }
    }

    /// The best point found.
    pub fn point(&self) -> &[f64] {
        &self.point
    }

    /// The gradient of `U` there.
    pub fn gradient(&self) -> &[f64] {
        &self.gradient
    }

    /// Whether the gradient is as small as asked for.
    pub fn converged(&self) -> bool {
        self.converged
    }

    /// How many exchanges it took.
    pub fn exchanges(&self) -> u64 {
        self.exchanges
    }

    /// The quasi-Newton direction at the current point.
    fn aim(&mut self) {
        let d = &mut self.direction;
        for (d, g) in d.iter_mut().zip(&self.gradient) {
            *d = -g;
        }
        let mut weights = vec![0.0; self.history.len()];
        for (k, (s, y)) in self.history.iter().enumerate().rev() {
            weights[k] = dot(s, d) / dot(s, y);
            add_scaled(-weights[k], y, d);
        }
        let scale = match self.history.last() {
            Some((s, y)) => dot(s, y) / norm_squared(y),
            None => 1.0 / norm_squared(&self.gradient).sqrt().max(1.0),
        };
        for v in d.iter_mut() {
            *v *= scale;
        }
        for (k, (s, y)) in self.history.iter().enumerate() {
            let weight = weights[k] - dot(y, d) / dot(s, y);
            add_scaled(weight, s, d);
        }
        self.stride = 1.0;
    }

    fn next_point(&mut self) {
        for ((next, x), d) in self.ask.point.iter_mut().zip(&self.point).zip(&self.direction) {
            *next = x + self.stride * d;
        }
        self.ask.sum.fill(0.0);
        self.ask.round += 1;
    }
}

fn largest(g: &[f64]) -> f64 {
    g.iter().fold(0.0, |m, g| if g.abs() > m || g.is_nan() { g.abs() } else { m })
}

impl Exchange for Optimum {
    fn cohort(&self) -> &[ClientId] {
        self.ask.cohort()
    }

    fn order(&self, to: ClientId) -> Order<'_> {
        self.ask.order(to)
    }

    fn absorb(&mut self, from: ClientId, reply: &Reply<'_>) {
        self.ask.absorb(from, reply);
    }

    fn advance(&mut self) -> Event {
        self.exchanges += 1;
        let mut gradient = self.ask.gradient().to_vec();
        self.prior.add_gradient(&self.ask.point, 1.0, &mut gradient);
        let slope = dot(&self.gradient, &self.direction);
        let first = self.exchanges == 1;
        let value = match self.ask.value() + self.prior.value(&self.ask.point) {
            // Nobody knows it: its change along the stride follows from the slopes at both ends.
            unknown if unknown.is_nan() && first => 0.0,
            unknown if unknown.is_nan() => {
                self.value + 0.5 * self.stride * (slope + dot(&gradient, &self.direction))
            }
            value => value,
        };
        if first {
            self.tolerance *= largest(&gradient).max(1.0);
        }
        // Armijo's rule; close to the optimum values no longer differ, and a smaller gradient
        // decides.
        let noise = 1e-13 * (1.0 + value.abs());
        let better = value <= self.value + 1e-4 * self.stride * slope
            || (value <= self.value + noise && largest(&gradient) < largest(&self.gradient));
        if first || better {
            let s: Vec<f64> = self.ask.point.iter().zip(&self.point).map(|(a, b)| a - b).collect();
            let y: Vec<f64> = gradient.iter().zip(&self.gradient).map(|(a, b)| a - b).collect();
            if !first && dot(&s, &y) > 1e-14 * norm_squared(&y).sqrt() * norm_squared(&s).sqrt() {
                if self.history.len() == HISTORY {
                    self.history.remove(0);
                }
                self.history.push((s, y));
            }
            self.point.copy_from_slice(&self.ask.point);
            self.value = value;
            self.gradient = gradient;
            self.aim();
        } else {
            self.stride *= 0.5;
        }
        self.converged = largest(&self.gradient) <= self.tolerance;
        if self.converged || self.exchanges >= self.most_exchanges || self.stride < 1e-12 {
            return Event::Done;
        }
        self.next_point();
        Event::Nothing
    }
}

impl State for Evaluate {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a sum of values and gradients")?;
        visit.number("the round", &mut self.round)?;
        visit.vector("the point", &mut self.point)?;
        visit.vector("the answers so far", &mut self.sum)?;
        for own in &mut self.each {
            visit.vector("the answer of a client", own)?;
        }
        Ok(())
    }
}

impl State for Optimum {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a search for the optimum")?;
        self.ask.state(visit)?;
        visit.float("the tolerance", &mut self.tolerance)?;
        visit.vector("the best point", &mut self.point)?;
        visit.float("its value", &mut self.value)?;
        visit.vector("its gradient", &mut self.gradient)?;
        visit.vector("the direction", &mut self.direction)?;
        visit.float("the stride", &mut self.stride)?;
        let mut pairs = self.history.len();
        visit.below("the history", &mut pairs, HISTORY)?;
        let d = self.point.len();
        self.history.resize_with(pairs, || (vec![0.0; d], vec![0.0; d]));
        for (moved, change) in &mut self.history {
            visit.vector("a move", moved)?;
            visit.vector("a change of the gradient", change)?;
        }
        visit.number("the exchanges", &mut self.exchanges)?;
        visit.flag("whether it has converged", &mut self.converged)
    }
}

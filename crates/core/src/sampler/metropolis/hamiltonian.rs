//! Propose where leapfrog steps lead: the server of `hmc` and, with one step, of `mala`.
//!
//! ```text
//! z ~ N(0, I);  p = z - (h/2) g(u)
//! l times:      u <- u + h p;  p <- p - h g(u)        the last time: p <- p - (h/2) g(u)
//! accept by     V(u) + |z|^2/2 - V(u') - |p|^2/2
//! ```
//!
//! Every step is an exchange: the point goes down, gradient and value come up. The gradient at the
//! chain's own point is kept for as long as it stays there, be it compressed or not.

use super::super::Sampler;
use super::server::Shared;
use crate::linalg::{add_scaled, norm_squared};
use crate::protocol::{Event, Exchange, Order, Payload, Precision, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose, SERVER};
use crate::snapshot::{SnapshotError, State, Visit};

#[derive(Debug)]
pub(super) struct Server {
    shared: Shared,
    /// `h`, `l`, and by how much `h` varies.
    length: (f64, u32, f64),
    precision: Precision,
    /// How many points were asked about, and how many draws there are.
    round: u64,
    iteration: u64,
    x: Vec<f64>,
    gradient: Vec<f64>,
    potential: f64,
    /// How many steps of the trajectory are done; before the first of all the start is asked about.
    done: u32,
    started: bool,
    /// Where the trajectory is, its momentum, the energy that it began with, and this draw's `h`.
    at: Vec<f64>,
    momentum: Vec<f64>,
    energy: f64,
    step: f64,
    /// The sums of the clients' gradients and values there.
    slope: Vec<f64>,
    value: f64,
    numbers: [f64; 3],
}

impl Server {
    pub(super) fn new(
        shared: Shared,
        length: (f64, u32, f64),
        precision: Precision,
        start: &[f64],
    ) -> Self {
        let zero = vec![0.0; start.len()];
        let mut at = start.to_vec();
        precision.round(&mut at);
        Server {
            shared,
            length,
            precision,
            round: 0,
            iteration: 0,
            x: at.clone(),
            gradient: zero.clone(),
            potential: f64::INFINITY,
            done: 0,
            started: false,
            at,
            momentum: zero.clone(),
            energy: 0.0,
            step: length.0,
            slope: zero,
            value: 0.0,
            numbers: [0.0; 3],
        }
    }

    /// Begin a trajectory: a fresh momentum, half a step of it, and the first point.
    fn launch(&mut self) {
        let (step, _, jitter) = self.length;
        let mut stream = self.shared.public.stream(Purpose::Noise, SERVER, self.iteration);
        stream.normals(&mut self.momentum);
        self.step = step * (1.0 + jitter * (2.0 * stream.uniform() - 1.0));
        self.energy = self.potential + 0.5 * norm_squared(&self.momentum);
        add_scaled(-0.5 * self.step, &self.gradient, &mut self.momentum);
        self.at.copy_from_slice(&self.x);
        self.done = 0;
        self.move_on();
    }

    fn move_on(&mut self) {
        add_scaled(self.step, &self.momentum, &mut self.at);
        self.precision.round(&mut self.at);
    }

    /// `V` and its gradient where the trajectory is, from the sums of the clients.
    fn complete(&mut self) -> f64 {
        self.shared.prior.add_gradient(&self.at, 1.0, &mut self.slope);
        let temperature = self.shared.temperature;
        self.slope.iter_mut().for_each(|g| *g /= temperature);
        self.shared.potential(std::mem::take(&mut self.value), &self.at)
    }
}

impl Exchange for Server {
    fn cohort(&self) -> &[ClientId] {
        &self.shared.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        Order {
            round: self.round,
            task: Task::Slope,
            position: Some(Payload::Plain(&self.at, self.precision)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        }
    }

    fn point(&self, _k: usize, out: &mut [f64]) -> bool {
        out.copy_from_slice(&self.at);
        true
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        reply.payload.add_to(1.0, &mut self.slope);
        self.value += reply.beside[0];
    }

    fn advance(&mut self) -> Event {
        let potential = self.complete();
        self.round += 1;
        if !self.started {
            if !potential.is_finite() {
                return Event::Diverged;
            }
            self.started = true;
            self.potential = potential;
            std::mem::swap(&mut self.gradient, &mut self.slope);
            self.slope.fill(0.0);
            self.launch();
            return Event::Nothing;
        }
        self.done += 1;
        let last = self.done == self.length.1;
        let share = if last { 0.5 } else { 1.0 };
        add_scaled(-share * self.step, &self.slope, &mut self.momentum);
        // A trajectory that leaves all numbers behind is refused, and may as well end here.
        let lost = !norm_squared(&self.momentum).is_finite() || !potential.is_finite();
        if !last && !lost {
            self.slope.fill(0.0);
            self.move_on();
            return Event::Nothing;
        }
        let energy = potential + 0.5 * norm_squared(&self.momentum);
        let log = if lost { f64::NEG_INFINITY } else { self.energy - energy };
        let (probability, accepted) = self.shared.decide(self.iteration, log);
        if accepted {
            self.x.copy_from_slice(&self.at);
            self.potential = potential;
            std::mem::swap(&mut self.gradient, &mut self.slope);
        }
        self.slope.fill(0.0);
        self.numbers = [probability, self.energy, self.step];
        self.iteration += 1;
        self.launch();
        Event::Draw
    }
}

impl Sampler for Server {
    fn position(&self) -> &[f64] {
        &self.x
    }

    fn iteration(&self) -> u64 {
        self.iteration
    }

    fn numbers(&self) -> &[f64] {
        &self.numbers
    }
}

impl State for Server {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a server of hmc")?;
        visit.number("the points asked about", &mut self.round)?;
        visit.number("the iteration", &mut self.iteration)?;
        visit.flag("whether the start is known", &mut self.started)?;
        let mut done = self.done as usize;
        visit.below("the steps done", &mut done, self.length.1 as usize)?;
        self.done = done as u32;
        for (what, vector) in [
            ("the parameter", &mut self.x),
            ("its gradient", &mut self.gradient),
            ("where the trajectory is", &mut self.at),
            ("its momentum", &mut self.momentum),
            ("the gradients so far", &mut self.slope),
        ] {
            visit.vector(what, vector)?;
        }
        for (what, number) in [
            ("the potential", &mut self.potential),
            ("the trajectory's energy", &mut self.energy),
            ("the trajectory's step", &mut self.step),
            ("the values so far", &mut self.value),
        ] {
            visit.float(what, number)?;
        }
        visit.vector("the numbers beside it", &mut self.numbers)
    }
}

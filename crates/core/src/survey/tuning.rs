//! Tune the samplers that accept or reject by short chains side by side, which are thrown away.
//!
//! In coordinates in which the posterior is round, chains start from the standard normal and move
//! together: an exchange asks about one point of each. The step moves towards the acceptance that
//! suits the sampler, the number of leapfrog steps follows it: `l h` is about 1.6, never near pi,
//! where draws are antithetic and say nothing of the tails.

use super::everybody;
use super::shape::{PILOT, prior_of_server};
use crate::linalg::{add_scaled, norm_squared};
use crate::model::Prior;
use crate::protocol::{Event, Exchange, Order, ReferencePoint, Reply, Task};
use crate::rng::{ClientId, Purpose, Seed};
use crate::simd::{exp, ln};
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::Target;

/// The longest step of `pcn`: at 1 proposals are independent, which is `imh` without its guards.
const LONGEST: f64 = 0.8;

/// What is tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// `pcn`: its step.
    Autoregressive,
    /// `hmc`: its step and how many of them a draw takes.
    Hamiltonian,
    /// `mala`: its step.
    Langevin,
}

impl Trial {
    /// The acceptance that is aimed at, how fast the step follows, and over how many draws that
    /// slows down.
    fn aim(self) -> (f64, f64, f64) {
        match self {
            Trial::Autoregressive => (0.3, 1.0, 30.0),
            Trial::Hamiltonian => (0.75, 0.5, 15.0),
            Trial::Langevin => (0.57, 0.5, 15.0),
        }
    }

    fn first_step(self, dim: usize) -> f64 {
        let dim = dim.max(1) as f64;
        match self {
            Trial::Autoregressive => (1.0 / dim.sqrt()).clamp(0.02, 0.7),
            Trial::Hamiltonian | Trial::Langevin => dim.powf(-0.25),
        }
    }

    fn leapfrog(self, step: f64) -> u32 {
        match self {
            Trial::Hamiltonian => (1.6 / step - 0.3).ceil().clamp(1.0, 64.0) as u32,
            Trial::Autoregressive | Trial::Langevin => 1,
        }
    }
}

/// The chains of a pilot.
#[derive(Clone, Debug)]
pub struct Tuning {
    everybody: Vec<ClientId>,
    prior: Prior,
    temperature: f64,
    trial: Trial,
    dim: usize,
    chains: usize,
    wanted: usize,
    round: u64,
    step: f64,
    /// How many leapfrog steps this draw takes, and how many are done.
    leapfrog: u32,
    done: u32,
    started: bool,
    /// Where the chains are, one behind the other: points, gradients, potentials.
    x: Vec<f64>,
    gradient: Vec<f64>,
    potential: Vec<f64>,
    /// Where they are asked about, with which momenta, and the energies that they began with.
    at: Vec<f64>,
    momentum: Vec<f64>,
    energy: Vec<f64>,
    sums: Vec<f64>,
    /// All draws: chains side by side, one draw behind the other.
    history: Vec<f64>,
    accepted: f64,
    gradients: u64,
}

impl Tuning {
    /// So many chains of so many draws, on a target in coordinates in which it is round.
    pub fn new(target: &Target, trial: Trial, chains: usize, wanted: usize) -> Self {
        let (dim, n) = (target.dim(), target.dim() * chains);
        let zero = vec![0.0; n];
        let mut x = zero.clone();
        for (c, x) in x.chunks_exact_mut(dim).enumerate() {
            stream(c, 0).normals(x);
        }
        let step = trial.first_step(dim);
        let width = if trial == Trial::Autoregressive { 1 } else { dim + 1 };
        Tuning {
            everybody: everybody(target),
            prior: prior_of_server(target),
            temperature: target.temperature,
            trial,
            dim,
            chains,
            wanted,
            round: 0,
            step,
            leapfrog: trial.leapfrog(step),
            done: 0,
            started: false,
            at: x.clone(),
            x,
            gradient: zero.clone(),
            potential: vec![0.0; chains],
            momentum: zero,
            energy: vec![0.0; chains],
            sums: vec![0.0; width * chains],
            history: Vec::new(),
            accepted: 0.0,
            gradients: 0,
        }
    }

    /// The step that was found.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// How many leapfrog steps suit it.
    pub fn leapfrog(&self) -> u32 {
        self.trial.leapfrog(self.step)
    }

    /// How often proposals of the second half were accepted.
    pub fn acceptance(&self) -> f64 {
        self.accepted / (self.wanted - self.wanted / 2).max(1) as f64
    }

    /// How many evaluations a draw took in the second half.
    pub fn evaluations_per_draw(&self) -> f64 {
        self.gradients as f64 / (self.wanted - self.wanted / 2).max(1) as f64
    }

    /// The draws of the second half: chain after chain, the points of each one behind the other.
    pub fn draws(&self) -> Vec<Vec<f64>> {
        let (d, half) = (self.dim, self.wanted / 2);
        let of = |c: usize| {
            let all = self.history.chunks_exact(d * self.chains).skip(half);
            all.flat_map(|draw| draw[c * d..(c + 1) * d].iter().copied()).collect()
        };
        (0..self.chains).map(of).collect()
    }

    fn drawn(&self) -> usize {
        self.history.len() / (self.dim * self.chains).max(1)
    }

    /// Begin the next draw of all chains.
    fn launch(&mut self) {
        let number = 1 + self.drawn() as u64;
        (self.done, self.leapfrog) = (0, self.trial.leapfrog(self.step));
        for c in 0..self.chains {
            let part = c * self.dim..(c + 1) * self.dim;
            let momentum = &mut self.momentum[part.clone()];
            stream(c, number).normals(momentum);
            let (x, at) = (&self.x[part.clone()], &mut self.at[part.clone()]);
            if self.trial == Trial::Autoregressive {
                let kept = (1.0 - self.step * self.step).sqrt();
                for ((at, x), z) in at.iter_mut().zip(x).zip(momentum.iter()) {
                    *at = kept * x + self.step * z;
                }
                self.energy[c] = self.potential[c] - 0.5 * norm_squared(x);
            } else {
                self.energy[c] = self.potential[c] + 0.5 * norm_squared(momentum);
                add_scaled(-0.5 * self.step, &self.gradient[part], momentum);
                at.copy_from_slice(x);
                add_scaled(self.step, momentum, at);
            }
        }
    }

    /// The potential of chain `c` where it is asked about, and its gradient into `sums`.
    fn potential_at(&mut self, c: usize) -> f64 {
        let at = &self.at[c * self.dim..(c + 1) * self.dim];
        if self.trial == Trial::Autoregressive {
            return (self.sums[c] + self.prior.value(at)) / self.temperature;
        }
        let width = self.dim + 1;
        let (gradient, value) = self.sums[c * width..(c + 1) * width].split_at_mut(self.dim);
        self.prior.add_gradient(at, 1.0, gradient);
        gradient.iter_mut().for_each(|g| *g /= self.temperature);
        (value[0] + self.prior.value(at)) / self.temperature
    }

    /// Decide on the proposal of chain `c`: how likely it was to be accepted.
    fn decide(&mut self, c: usize, potential: f64) -> f64 {
        let part = c * self.dim..(c + 1) * self.dim;
        let energy = if self.trial == Trial::Autoregressive {
            potential - 0.5 * norm_squared(&self.at[part.clone()])
        } else {
            potential + 0.5 * norm_squared(&self.momentum[part.clone()])
        };
        let log = self.energy[c] - energy;
        let probability = if log.is_nan() { 0.0 } else { exp(log.min(0.0)) };
        let number = (1 + self.drawn() as u64) | 1 << 32;
        if stream(c, number).uniform() < probability {
            self.x[part.clone()].copy_from_slice(&self.at[part.clone()]);
            self.keep(c, potential);
        }
        probability
    }

    /// Take over the potential and the gradient of where a chain is.
    fn keep(&mut self, c: usize, potential: f64) {
        self.potential[c] = potential;
        if self.trial != Trial::Autoregressive {
            let (d, width) = (self.dim, self.dim + 1);
            self.gradient[c * d..(c + 1) * d].copy_from_slice(&self.sums[c * width..c * width + d]);
        }
    }
}

fn stream(chain: usize, number: u64) -> crate::rng::Stream {
    Seed::new(PILOT).stream(Purpose::Pilot, ClientId(chain as u32), number)
}

impl Exchange for Tuning {
    fn cohort(&self) -> &[ClientId] {
        &self.everybody
    }

    fn order(&self, _to: ClientId) -> Order<'_> {
        let points = self.chains as u64;
        Order {
            round: self.round,
            task: if self.trial == Trial::Autoregressive {
                Task::Values { points }
            } else {
                Task::Slopes { points }
            },
            position: None,
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &self.at,
        }
    }

    fn absorb(&mut self, _from: ClientId, reply: &Reply<'_>) {
        add_scaled(1.0, reply.payload.values(), &mut self.sums);
    }

    fn advance(&mut self) -> Event {
        self.round += 1;
        let potentials: Vec<f64> = (0..self.chains).map(|c| self.potential_at(c)).collect();
        if !self.started {
            for (c, potential) in potentials.iter().enumerate() {
                self.keep(c, *potential);
            }
            self.started = true;
        } else {
            let half = self.wanted / 2;
            self.gradients += u64::from(self.drawn() >= half);
            self.done += 1;
            if self.done < self.leapfrog {
                let (d, width) = (self.dim, self.dim + 1);
                for c in 0..self.chains {
                    let momentum = &mut self.momentum[c * d..(c + 1) * d];
                    add_scaled(-self.step, &self.sums[c * width..c * width + d], momentum);
                    add_scaled(self.step, momentum, &mut self.at[c * d..(c + 1) * d]);
                }
                self.sums.fill(0.0);
                return self.sane();
            }
            let mut mean = 0.0;
            for (c, potential) in potentials.iter().enumerate() {
                if self.trial != Trial::Autoregressive {
                    let (d, width) = (self.dim, self.dim + 1);
                    let momentum = &mut self.momentum[c * d..(c + 1) * d];
                    let slope = &self.sums[c * width..c * width + d];
                    add_scaled(-0.5 * self.step, slope, momentum);
                }
                mean += self.decide(c, *potential) / self.chains as f64;
            }
            let (goal, rate, patience) = self.trial.aim();
            let k = self.drawn();
            self.history.extend_from_slice(&self.x);
            self.accepted += if k >= half { mean } else { 0.0 };
            if k < half {
                let moved = ln(self.step) + rate / (1.0 + k as f64 / patience) * (mean - goal);
                self.step = exp(moved);
                if self.trial == Trial::Autoregressive {
                    self.step = self.step.min(LONGEST);
                }
            }
        }
        self.sums.fill(0.0);
        if self.drawn() == self.wanted {
            return Event::Done;
        }
        self.launch();
        self.sane()
    }
}

impl Tuning {
    /// Points that left all numbers behind are asked about where their chain is: such a proposal
    /// is refused by its momentum.
    fn sane(&mut self) -> Event {
        let d = self.dim;
        for (at, x) in self.at.chunks_exact_mut(d).zip(self.x.chunks_exact(d)) {
            if !norm_squared(at).is_finite() {
                at.copy_from_slice(x);
            }
        }
        Event::Nothing
    }
}

impl State for Tuning {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a pilot of chains")?;
        visit.number("the round", &mut self.round)?;
        visit.float("the step", &mut self.step)?;
        for (what, number) in
            [("the leapfrog steps", &mut self.leapfrog), ("those done", &mut self.done)]
        {
            let mut count = *number as usize;
            visit.below(what, &mut count, 64)?;
            *number = count as u32;
        }
        visit.flag("whether the chains have started", &mut self.started)?;
        for (what, vector) in [
            ("where the chains are", &mut self.x),
            ("their gradients", &mut self.gradient),
            ("their potentials", &mut self.potential),
            ("where they are asked about", &mut self.at),
            ("their momenta", &mut self.momentum),
            ("their energies", &mut self.energy),
            ("the answers so far", &mut self.sums),
        ] {
            visit.vector(what, vector)?;
        }
        let mut drawn = self.drawn();
        visit.below("the draws", &mut drawn, self.wanted)?;
        self.history.resize(drawn * self.dim * self.chains, 0.0);
        visit.vector("the draws", &mut self.history)?;
        visit.float("what was accepted", &mut self.accepted)?;
        visit.number("the evaluations", &mut self.gradients)
    }
}

//! Walk at random, at the server and at every client alike.

use crate::linalg::norm_squared;
use crate::rng::{Purpose, SERVER, Seed};
use crate::snapshot::{SnapshotError, Visit};

/// Where a chain is, and what it proposes: the same for everybody.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    seed: Seed,
    /// `h`.
    step: f64,
    pub(super) x: Vec<f64>,
    pub(super) proposed: Vec<f64>,
    /// `z`.
    noise: Vec<f64>,
}

impl Walk {
    pub(super) fn new(seed: Seed, step: f64, start: Vec<f64>) -> Self {
        let zero = vec![0.0; start.len()];
        Walk { seed, step, x: start, proposed: zero.clone(), noise: zero }
    }

    /// Make the proposal of an iteration, after the last one was accepted or not.
    pub(super) fn propose(&mut self, iteration: u64, accepted: bool) {
        if accepted {
            self.x.copy_from_slice(&self.proposed);
        }
        self.seed.stream(Purpose::Proposal, SERVER, iteration).normals(&mut self.noise);
        for ((next, x), z) in self.proposed.iter_mut().zip(&self.x).zip(&self.noise) {
            *next = x + self.step * z;
        }
    }

    /// `h |z|`, how far the proposal is: the same for the way back.
    pub(super) fn distance(&self) -> f64 {
        self.step * norm_squared(&self.noise).sqrt()
    }

    pub(super) fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.vector("the parameter", &mut self.x)?;
        visit.vector("the proposal", &mut self.proposed)?;
        visit.vector("the step", &mut self.noise)
    }
}

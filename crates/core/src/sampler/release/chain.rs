//! Sample a density that is known here, by Hamiltonian Monte Carlo: nobody is asked any more.
//!
//! Momenta are scaled by a factor of a covariance, which a first stretch of the warm-up corrects;
//! the step is found by dual averaging (Hoffman and Gelman 2014) and kept from then on.

use nalgebra::{DMatrix, DVector};

use super::posterior::Posterior;
use crate::model::Prior;
use crate::rng::{Purpose, SERVER, Seed};
use crate::simd::{exp, ln};

/// Leapfrog steps of one draw.
const LEAPS: usize = 10;
/// Iterations of each of the two stretches of the warm-up.
const WARM: u64 = 250;
/// The part of proposals that the step is chosen to have accepted.
const ACCEPTED: f64 = 0.8;

/// A chain.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// The density, without the prior.
    pub(super) posterior: Posterior,
    pub(super) prior: Prior,
    pub(super) seed: Seed,
    /// `A`, in whose coordinates `x = A u` the density is about round.
    pub(super) root: DMatrix<f64>,
    pub(super) step: f64,
    pub(super) x: DVector<f64>,
    pub(super) acceptance: f64,
    tuning: Tuning,
}

/// What dual averaging remembers within a stretch of the warm-up.
#[derive(Clone, Debug)]
struct Tuning {
    centre: f64,
    error: f64,
    average: f64,
}

impl Tuning {
    fn new(step: f64) -> Self {
        Tuning { centre: ln(10.0 * step), error: 0.0, average: ln(step) }
    }
}

/// A point of the density.
struct Place {
    x: DVector<f64>,
    value: f64,
    slope: DVector<f64>,
}

impl Chain {
    /// A chain at a point, not yet warm.
    pub(super) fn new(
        posterior: Posterior,
        prior: Prior,
        seed: Seed,
        (start, root): (DVector<f64>, DMatrix<f64>),
    ) -> Self {
        let (step, acceptance) = (0.2, 1.0);
        let tuning = Tuning::new(step);
        Chain { posterior, prior, seed, root, step, x: start, acceptance, tuning }
    }

    fn place(&self, x: DVector<f64>) -> Place {
        let mut slope = DVector::zeros(x.len());
        let value = self.posterior.log_density(x.as_slice(), slope.as_mut_slice());
        self.prior.add_gradient(x.as_slice(), -1.0, slope.as_mut_slice());
        Place { value: value - self.prior.value(x.as_slice()), x, slope }
    }

    /// One iteration with the random numbers of this address.
    pub(super) fn advance(&mut self, address: u64) {
        let d = self.x.len();
        let mut normals = vec![0.0; d];
        let mut stream = self.seed.stream(Purpose::Proposal, SERVER, address);
        stream.normals(&mut normals);
        let step = self.step * (0.8 + 0.3 * stream.uniform());
        let mut momentum = DVector::from_vec(normals);
        let here = self.place(self.x.clone());
        let before = here.value - 0.5 * momentum.norm_squared();
        let mut there = Place { x: here.x, value: here.value, slope: here.slope };
        let turned = self.root.transpose();
        for _ in 0..LEAPS {
            momentum += &turned * &there.slope * (0.5 * step);
            there = self.place(&there.x + &self.root * &momentum * step);
            momentum += &turned * &there.slope * (0.5 * step);
            if !there.value.is_finite() {
                break; // it will not be accepted
            }
        }
        let log = there.value - 0.5 * momentum.norm_squared() - before;
        let log = if log.is_nan() { f64::NEG_INFINITY } else { log };
        self.acceptance = if log >= 0.0 { 1.0 } else { exp(log.max(-700.0)) };
        let coin = self.seed.stream(Purpose::Accept, SERVER, address).uniform();
        if coin < self.acceptance && there.value.is_finite() {
            self.x = there.x;
        }
    }

    /// Find the step, and correct the root by what the first stretch shows. The addresses of the
    /// draws that follow start behind those that are used here.
    pub(super) fn warm(&mut self) -> u64 {
        let d = self.x.len();
        let mut seen: Vec<DVector<f64>> = Vec::new();
        for k in 0..WARM {
            self.tune(k, k);
            if k >= WARM / 4 {
                seen.push(self.x.clone());
            }
        }
        let n = seen.len() as f64;
        let mean = seen.iter().sum::<DVector<f64>>() / n;
        let mut spread: DMatrix<f64> = DMatrix::zeros(d, d);
        for x in &seen {
            let away = x - &mean;
            spread += &away * away.transpose() / n;
        }
        // Few draws say little of many directions: what was expected counts as some of them.
        let expected = &self.root * self.root.transpose();
        let some = 2.0 * d as f64 + 5.0;
        let mixed = (spread * n + expected * some) / (n + some);
        if let Some(cholesky) = mixed.cholesky() {
            self.root = cholesky.unpack();
        }
        for k in 0..WARM {
            self.tune(WARM + k, k);
        }
        2 * WARM
    }

    /// Iteration `k` of a stretch, with dual averaging of the logarithm of the step.
    fn tune(&mut self, address: u64, k: u64) {
        if k == 0 {
            self.tuning = Tuning::new(self.step);
        }
        self.advance(address);
        let t = k as f64 + 1.0;
        let Tuning { centre, error, average } = &mut self.tuning;
        let weight = 1.0 / (t + 10.0);
        *error = (1.0 - weight) * *error + weight * (ACCEPTED - self.acceptance);
        let log = (*centre - t.sqrt() / 0.05 * *error).clamp(-9.0, 0.7);
        let forget = exp(-0.75 * ln(t));
        *average = forget * log + (1.0 - forget) * *average;
        self.step = exp(if k + 1 == WARM { *average } else { log });
    }
}

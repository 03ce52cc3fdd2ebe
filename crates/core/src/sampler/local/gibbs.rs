//! Draw the server's parameter given those of its clients: the Gibbs step of DG-LMC.
//!
//! ```text
//! pi(x, x_1, ..., x_b) ~ exp(-(U_0(x) + sum_c [U_c(x_c) + |x_c - x|^2 / (2 rho_c)]) / T)
//! clients  walk on U_c(x_c) + |x_c - x|^2 / (2 rho_c), from where they are  [plassier21] Alg. 1
//! server   x ~ N(Q^-1 sum_c x_c / rho_c, T Q^-1),  Q = hess U_0 + sum_c 1/rho_c [plassier21] eq. 6
//! ```
//!
//! The law of `x` is the posterior up to the bias of `rho` and of the step. A Gaussian prior at the
//! server is part of the draw, which is then exact; the paper's server has none.

use crate::model::Prior;
use crate::rng::{Noise, SERVER, Seed};
use crate::target::{Placement, Target};

/// The law of the server's parameter given its clients'.
#[derive(Clone, Debug)]
pub(super) struct Conditional {
    /// `Q`, a number for each coordinate.
    precision: Vec<f64>,
    temperature: f64,
    noise: Noise,
}

impl Conditional {
    /// Clients that are tied with `1 / rho_c` in all.
    pub(super) fn new(target: &Target, pulls: f64, seed: Seed) -> Self {
        let mut precision = vec![pulls; target.dim()];
        if let (Placement::Server, Prior::Gaussian(prior)) = (&target.placement, &target.prior) {
            precision.iter_mut().zip(prior.iter()).for_each(|(q, p)| *q += p);
        }
        Conditional {
            precision,
            temperature: target.temperature,
            noise: Noise::new(seed, SERVER, target.dim()),
        }
    }

    /// Turn `sum_c x_c / rho_c` into a draw of `x`.
    pub(super) fn draw(&mut self, iteration: u64, sum: &mut [f64]) {
        for stretch in self.noise.stretches() {
            let noise = self.noise.at(iteration, stretch.clone());
            for ((x, q), z) in
                sum[stretch.clone()].iter_mut().zip(&self.precision[stretch]).zip(noise)
            {
                *x = *x / q + (self.temperature / q).sqrt() * z;
            }
        }
    }
}

//! Sample the posterior from pooled rows by MALA, as a reference for federated answers.
//!
//! The Metropolis-adjusted Langevin algorithm, preconditioned by the Hessian at the optimum: it has
//! no bias, and on a nearly Gaussian posterior it mixes in a few steps.

use consilience_core::linalg::norm_squared;
use consilience_core::model::Single;
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::simd;
use consilience_core::target::Target;
use nalgebra::{Cholesky, DMatrix, DVector, Dyn};
use rayon::prelude::*;

use crate::draws::Draws;

/// Draws from pooled data, and how many proposals were accepted.
#[derive(Clone, Debug)]
pub struct PooledDraws {
    /// The draws.
    pub draws: Draws,
    /// The share of accepted proposals.
    pub acceptance: f64,
}

/// Run `chains` chains of `draws` kept draws from around the optimum.
pub fn mala(
    target: &Target,
    optimum: &[f64],
    chains: usize,
    draws: usize,
    seed: u64,
) -> Option<PooledDraws> {
    let cholesky = hessian(target, optimum).cholesky()?;
    let run = |chain: usize| {
        Walker::new(target, optimum, &cholesky)
            .run(draws, Seed::new(seed).chain(chain as u32 + 1_000_000))
    };
    let finished: Vec<(Vec<f64>, u64)> = (0..chains).into_par_iter().map(run).collect();
    let accepted: u64 = finished.iter().map(|(_, a)| a).sum();
    let proposals = (chains * (draws + draws / 10)) as f64;
    let draws = Draws::from_chains(finished.into_iter().map(|(d, _)| d).collect(), target.dim());
    Some(PooledDraws { draws, acceptance: accepted as f64 / proposals })
}

/// The Hessian of `U / T` on pooled data.
fn hessian(target: &Target, x: &[f64]) -> DMatrix<f64> {
    let d = target.dim();
    let mut hessian = DMatrix::zeros(d, d);
    let mut clients: Vec<Single> = target.clients.iter().map(Single::new).collect();
    for k in 0..d {
        let (mut unit, mut column) = (vec![0.0; d], vec![0.0; d]);
        unit[k] = 1.0;
        for client in &mut clients {
            client.add_hessian_vector(x, &unit, 1.0, &mut column);
        }
        target.prior.add_hessian_vector(x, &unit, 1.0, &mut column);
        hessian.set_column(k, &(DVector::from_vec(column) / target.temperature));
    }
    hessian
}

struct Walker<'a> {
    target: &'a Target,
    cholesky: &'a Cholesky<f64, Dyn>,
    /// The proposal's scale: 1.65 d^(-1/6) is optimal for many dimensions (Roberts and Rosenthal
    /// 1998).
    scale: f64,
    here: Point,
}

#[derive(Clone)]
struct Point {
    x: DVector<f64>,
    /// `U / T`.
    energy: f64,
    /// `grad U / T`.
    gradient: DVector<f64>,
}

impl<'a> Walker<'a> {
    fn new(target: &'a Target, start: &[f64], cholesky: &'a Cholesky<f64, Dyn>) -> Self {
        let scale = 1.65 * simd::exp(-simd::ln(target.dim() as f64) / 6.0);
        Walker {
            target,
            cholesky,
            scale,
            here: Walker::point(target, DVector::from_column_slice(start)),
        }
    }

    fn point(target: &Target, x: DVector<f64>) -> Point {
        let mut gradient = DVector::zeros(x.len());
        target.gradient(x.as_slice(), gradient.as_mut_slice());
        gradient /= target.temperature;
        Point { energy: target.value(x.as_slice()) / target.temperature, x, gradient }
    }

    fn run(mut self, draws: usize, seed: Seed) -> (Vec<f64>, u64) {
        let d = self.here.x.len();
        let (mut kept, mut accepted) = (Vec::with_capacity(draws * d), 0);
        let burn_in = draws / 10;
        for k in 0..burn_in + draws {
            let mut noise = DVector::zeros(d);
            seed.stream(Purpose::Noise, SERVER, k as u64).normals(noise.as_mut_slice());
            // H = L L': a normal with covariance H^-1 is L'^-1 z.
            let spread = self.cholesky.l().tr_solve_lower_triangular(&noise).unwrap_or(noise);
            let there =
                Walker::point(self.target, self.mean_from(&self.here) + spread * self.scale);
            let log_ratio = self.here.energy - there.energy + self.log_density(&there, &self.here)
                - self.log_density(&self.here, &there);
            let coin = seed
                .stream(Purpose::Participation, ClientId(0), k as u64)
                .uniform()
                .max(f64::MIN_POSITIVE);
            if simd::ln(coin) < log_ratio {
                self.here = there;
                accepted += 1;
            }
            if k >= burn_in {
                let from = kept.len();
                kept.extend_from_slice(self.here.x.as_slice());
                self.target.transforms.outward(&mut kept[from..]);
            }
        }
        (kept, accepted)
    }

    fn mean_from(&self, from: &Point) -> DVector<f64> {
        &from.x - self.cholesky.solve(&from.gradient) * (0.5 * self.scale * self.scale)
    }

    /// The log-density of proposing `to` from `from`, up to a constant.
    fn log_density(&self, from: &Point, to: &Point) -> f64 {
        let whitened = self.cholesky.l().tr_mul(&(&to.x - self.mean_from(from)));
        -norm_squared(whitened.as_slice()) / (2.0 * self.scale * self.scale)
    }
}

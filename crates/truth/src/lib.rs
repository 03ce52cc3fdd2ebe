//! Sample the posterior from pooled rows by NUTS: the reference that people trust most, in a crate
//! of its own since it is heavy to build.
//!
//! The chain moves in coordinates in which the posterior is round ([`Coordinates`]), so it needs no
//! mass matrix of its own.

use std::collections::HashMap;
use std::sync::Arc;

use consilience_core::model::{Coordinates, Single};
use consilience_core::target::Target;
use consilience_engine::draws::Draws;
use nuts_rs::rand::rngs::StdRng;
use nuts_rs::rand::{Rng, SeedableRng};
use nuts_rs::{
    Chain, CpuLogpFunc, CpuMath, CpuMathError, DiagNutsSettings, HasDims, LogpError, Settings,
};
use thiserror::Error;

/// Why there is no reference.
#[derive(Debug, Error)]
pub enum TruthError {
    /// The posterior has no finite covariance at its optimum.
    #[error(
        "the Hessian of the pooled posterior is not positive definite: give it a Gaussian prior"
    )]
    NotPositive,
    /// The sampler gave up.
    #[error("NUTS failed in chain {chain}: {why}")]
    Failed {
        /// Which chain, from 1.
        chain: usize,
        /// Why.
        why: String,
    },
}

/// Run `chains` chains of `draws` kept draws, after as much tuning as NUTS wants, started around
/// the optimum.
pub fn nuts(
    target: &Target,
    optimum: &[f64],
    chains: usize,
    draws: usize,
    seed: u64,
) -> Result<Draws, TruthError> {
    let coordinates = Arc::new(whiten(target, optimum).ok_or(TruthError::NotPositive)?);
    let d = target.dim();
    let mut kept = Vec::new();
    for chain in 0..chains {
        let failed = |why: String| TruthError::Failed { chain: chain + 1, why };
        let settings = DiagNutsSettings {
            num_tune: 400,
            num_draws: draws as u64,
            ..DiagNutsSettings::default()
        };
        let mut rng =
            StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(chain as u64));
        let math = CpuMath::new(Density {
            target: target.clone(),
            coordinates: Arc::clone(&coordinates),
            x: vec![0.0; d],
            gradient: vec![0.0; d],
        });
        let mut sampler = settings
            .new_chain(chain as u64, math, &mut rng)
            .map_err(|e| failed(format!("{e:?}")))?;
        let start: Vec<f64> =
            (0..d).map(|k| if (k + chain).is_multiple_of(2) { 0.5 } else { -0.5 }).collect();
        sampler.set_position(&start).map_err(|e| failed(e.to_string()))?;
        let (mut all, mut x) = (Vec::with_capacity(draws * d), vec![0.0; d]);
        for k in 0..settings.num_tune as usize + draws {
            let (u, _) = sampler.draw().map_err(|e| failed(e.to_string()))?;
            if k >= settings.num_tune as usize {
                coordinates.outward(&u, &mut x);
                target.transforms.outward(&mut x);
                all.extend_from_slice(&x);
            }
        }
        kept.push(all);
    }
    Ok(Draws::from_chains(kept, d))
}

/// The coordinates in which the Hessian of `U / T` at the optimum is the identity.
fn whiten(target: &Target, optimum: &[f64]) -> Option<Coordinates> {
    let d = target.dim();
    let mut hessian = vec![0.0; d * d];
    let mut clients: Vec<Single> = target.clients.iter().map(Single::new).collect();
    for k in 0..d {
        let mut unit = vec![0.0; d];
        unit[k] = 1.0 / target.temperature;
        let column = &mut hessian[k * d..(k + 1) * d];
        for client in &mut clients {
            client.add_hessian_vector(optimum, &unit, 1.0, column);
        }
        target.prior.add_hessian_vector(optimum, &unit, 1.0, column);
    }
    let symmetric: Vec<f64> =
        (0..d * d).map(|k| 0.5 * (hessian[k] + hessian[k % d * d + k / d])).collect();
    Coordinates::whitening(optimum, &symmetric)
}

/// `-U/T` as a function of the whitened coordinates.
struct Density {
    target: Target,
    coordinates: Arc<Coordinates>,
    x: Vec<f64>,
    gradient: Vec<f64>,
}

/// A density that is not a number: the trajectory is rejected, the chain goes on.
#[derive(Debug, Error)]
#[error("the density is not finite")]
struct NotFinite;

impl LogpError for NotFinite {
    fn is_recoverable(&self) -> bool {
        true
    }
}

impl HasDims for Density {
    fn dim_sizes(&self) -> HashMap<String, u64> {
        HashMap::from([("unconstrained_parameter".to_owned(), self.x.len() as u64)])
    }
}

impl CpuLogpFunc for Density {
    type LogpError = NotFinite;
    type ExpandedVector = Vec<f64>;
    type FlowParameters = ();

    fn dim(&self) -> usize {
        self.x.len()
    }

    fn logp(&mut self, u: &[f64], gradient: &mut [f64]) -> Result<f64, NotFinite> {
        self.coordinates.outward(u, &mut self.x);
        self.target.gradient(&self.x, &mut self.gradient);
        gradient.fill(0.0);
        self.coordinates.add_pulled_back(&self.gradient, -1.0 / self.target.temperature, gradient);
        let logp = -self.target.value(&self.x) / self.target.temperature;
        if logp.is_finite() { Ok(logp) } else { Err(NotFinite) }
    }

    fn expand_vector<R: Rng + ?Sized>(
        &mut self,
        _rng: &mut R,
        position: &[f64],
    ) -> Result<Vec<f64>, CpuMathError> {
        Ok(position.to_vec())
    }
}

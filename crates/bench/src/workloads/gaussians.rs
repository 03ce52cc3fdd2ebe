//! W2: FALD and VR-FALD* on Gaussian clients with full precisions,
//! `U_i(x) = (x - mu_i)' P_i (x - mu_i) / 2`.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::{Batch, Local, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use nalgebra::{DMatrix, DVector};

use super::fald_law::Fald;
use crate::How;
use crate::chains::{self, Moments};
use crate::files::{self, normals};
use crate::report::{self, Fields};

const CLIENTS: usize = 100;
const DIM: usize = 20;
/// Both `p` and `q`.
const PROBABILITY: f64 = 0.2;

/// What may be chosen.
#[derive(Debug, Args)]
pub struct Gaussians {
    /// With control variates or without.
    #[arg(long, value_enum, default_value = "vr")]
    algo: Algorithm,
    /// The share of the noise that all clients have in common.
    #[arg(long, default_value_t = 0.0)]
    tau: f64,
    #[command(flatten)]
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Algorithm {
    Fald,
    Vr,
}

impl Gaussians {
    pub fn run(&self) -> Result<String, String> {
        let (precisions, means) = self.data()?;
        let client = |(p, mu): (&[f64], &[f64])| -> Result<Arc<dyn Model>, String> {
            Ok(Arc::new(Gaussian::new(mu.to_vec(), symmetric(p)).map_err(|e| e.to_string())?))
        };
        let clients = precisions
            .chunks_exact(DIM * DIM)
            .zip(means.chunks_exact(DIM))
            .map(client)
            .collect::<Result<_, _>>()?;
        let target =
            Target::new(clients, Prior::Flat, Placement::Server, 1.0).map_err(|e| e.to_string())?;
        let law = posterior(&target).map_err(|e| e.to_string())?;

        let mut whole = DMatrix::zeros(DIM, DIM);
        precisions
            .chunks_exact(DIM * DIM)
            .for_each(|p| whole += DMatrix::from_row_slice(DIM, DIM, p));
        let eigenvalues = whole.symmetric_eigen().eigenvalues;
        let gamma = PROBABILITY / 5.0 * 2.0 / (eigenvalues.min() + eigenvalues.max());
        let step = Schedule::Constant(gamma);
        let recipe = Recipe::Local(match self.algo {
            Algorithm::Fald => Local::fald(step, CLIENTS, self.tau, PROBABILITY, Batch::Full),
            Algorithm::Vr => {
                Local::vr_fald_star(step, CLIENTS, self.tau, PROBABILITY, PROBABILITY, Batch::Full)
            }
        });
        let finished = chains::run(&self.how, &recipe, target.clone(), &law.mean, |_| {
            Moments::about(&law.mean)
        })?;

        let moments = Moments::merged(finished.watches);
        let second = moments.squares / moments.samples as f64;
        let trace: f64 = (0..DIM).map(|k| law.covariance[k * (DIM + 1)]).sum();
        // The autocorrelation of the linear chain from one communication to the next, for the
        // standard error.
        let slow = |l: &f64| (1.0 - gamma * l / CLIENTS as f64).powf(2.0 / PROBABILITY);
        let rho = eigenvalues.iter().map(slow).sum::<f64>() / DIM as f64;
        let effective = (moments.samples as f64 * (1.0 - rho) / (1.0 + rho)).max(1.0);
        let mut check = Fields::default()
            .with("samples", moments.samples)
            .rounded("second_moment", second)
            .rounded("posterior_trace", trace)
            .rounded("ratio_to_posterior", second / trace)
            .rounded("relative_standard_error", (2.0 / DIM as f64 / effective).sqrt());
        if self.algo == Algorithm::Fald {
            let offset = |mu: &[f64]| DVector::from_fn(DIM, |k, _| mu[k] - law.mean[k]);
            let precisions: Vec<_> = precisions
                .chunks_exact(DIM * DIM)
                .map(|p| DMatrix::from_row_slice(DIM, DIM, p))
                .collect();
            let means: Vec<_> = means.chunks_exact(DIM).map(offset).collect();
            let fald = Fald {
                precisions: &precisions,
                means: &means,
                gamma,
                p: PROBABILITY,
                tau: self.tau,
            };
            let exact = fald.second_moment().ok_or("FALD is unstable at this step")?;
            check =
                check.rounded("exact_stationary", exact).rounded("ratio_to_exact", second / exact);
        }
        let algo = if self.algo == Algorithm::Vr { "vr" } else { "fald" };
        report::line(
            "fald_gauss",
            &self.how,
            finished.timed,
            &Fields::default().with("algo", algo).with("tau", self.tau),
            &check,
        )
    }

    /// Precisions and means, client by client.
    fn data(&self) -> Result<(Vec<f64>, Vec<f64>), String> {
        if let Some(folder) = &self.how.data {
            let (precisions, means) =
                (files::doubles(folder, "w2_precision")?, files::doubles(folder, "w2_mean")?);
            if (precisions.len(), means.len()) != (CLIENTS * DIM * DIM, CLIENTS * DIM) {
                return Err(format!(
                    "w2_precision.bin and w2_mean.bin have {} and {} numbers: write both again",
                    precisions.len(),
                    means.len()
                ));
            }
            return Ok((precisions, means));
        }
        let precision = |i: usize| {
            let z = normals(2000 + i, DIM * DIM);
            (0..DIM * DIM).map(move |k| {
                (z[k] + z[k % DIM * DIM + k / DIM]) * 0.02
                    + if k % (DIM + 1) == 0 { 1.0 } else { 0.0 }
            })
        };
        let mean = |i: usize| normals(3000 + i, DIM).into_iter().map(|z| 3.0 * z);
        Ok(((0..CLIENTS).flat_map(precision).collect(), (0..CLIENTS).flat_map(mean).collect()))
    }
}

/// What rounding left unsymmetric, made symmetric.
fn symmetric(m: &[f64]) -> Vec<f64> {
    (0..DIM * DIM).map(|k| 0.5 * (m[k] + m[k % DIM * DIM + k / DIM])).collect()
}

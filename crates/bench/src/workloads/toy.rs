//! W1: QLSD* on the toy Gaussian, `U_i(x) = sum_j norm(x - y_ij)^2 / 2`.
//!
//! For this potential the difference of two gradients does not depend on the rows, and the
//! library's model knows it: that is `--oracle collapsed`. `--oracle generic` hides it, so that
//! minibatches are drawn and rows are gathered, as any other model must.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use consilience_core::compress::{CodeChoice, Compressor};
use consilience_core::linalg::norm_squared;
use consilience_core::model::{Isotropic, Likelihood, Prior, Rows};
use consilience_core::sampler::{Anchor, Batch, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

use crate::How;
use crate::chains::{self, Moments};
use crate::files::{self, normals};
use crate::report::{self, Fields};

const DIM: usize = 50;
const GAMMA: f64 = 4.9e-4;
const LEVELS: u32 = 16;

/// What may be chosen.
#[derive(Debug, Args)]
pub struct Toy {
    /// Whether the model knows that rows cancel.
    #[arg(long, value_enum, default_value = "generic")]
    oracle: Oracle,
    /// The code of the messages.
    #[arg(long, default_value = "auto")]
    code: CodeChoice,
    #[command(flatten)]
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Oracle {
    Generic,
    Collapsed,
}

impl Toy {
    pub fn run(&self) -> Result<String, String> {
        let clients = self.clients()?;
        let counts: Vec<f64> = clients.iter().map(|rows| (rows.len() / DIM) as f64).collect();
        let total: f64 = counts.iter().sum();
        let star: Vec<f64> = (0..DIM)
            .map(|k| {
                clients.iter().flat_map(|c| c.chunks_exact(DIM)).map(|row| row[k]).sum::<f64>()
                    / total
            })
            .collect();
        let potential =
            |rows: Vec<f64>| -> Result<Arc<dyn consilience_core::model::Model>, String> {
                let known = Isotropic::new(rows, DIM).map_err(|e| e.to_string())?;
                Ok(if self.oracle == Oracle::Collapsed {
                    Arc::new(known)
                } else {
                    Arc::new(RowByRow(known))
                })
            };
        let potentials = clients.into_iter().map(potential).collect::<Result<_, _>>()?;
        let target = Target::new(potentials, Prior::Flat, Placement::Server, 1.0)
            .map_err(|e| e.to_string())?;

        // as the wire carries it
        let point: Vec<f64> = star.iter().map(|x| f64::from(*x as f32)).collect();
        let mut residual = vec![0.0; DIM];
        target.gradient(&point, &mut residual);
        let anchor = Anchor { point, residual };
        let mut recipe = Uplink::qlsd_star(
            Schedule::Constant(GAMMA),
            Batch::Fraction(0.1),
            anchor,
            Compressor::qsgd(LEVELS),
        );
        recipe.code = self.code;
        let finished = chains::run(&self.how, &Recipe::Uplink(recipe), target, &star, |_| {
            Moments::about(&star)
        })?;

        let moments = Moments::merged(finished.watches);
        let n = moments.samples as f64;
        let (variance, predicted) =
            (moments.squares / n / DIM as f64, stationary_variance(&counts, total));
        let correlation = 1.0 - GAMMA * total;
        let error = (predicted / n * (1.0 + correlation) / (1.0 - correlation)).sqrt();
        let rms = (norm_squared(&moments.sum) / (n * n) / DIM as f64).sqrt();
        let check = Fields::default()
            .with("samples", moments.samples)
            .rounded("var_over_predicted", variance / predicted)
            .rounded("var_over_posterior", variance * total)
            .rounded("predicted_var_over_posterior", predicted * total)
            .rounded("mean_rms_in_standard_errors", rms / error)
            .rounded("bits_up_a_message", finished.bits_up);
        let oracle = if self.oracle == Oracle::Collapsed { "collapsed" } else { "generic" };
        let variant = Fields::default().with("oracle", oracle).with("code", self.code.to_string());
        report::line("qlsd_toy", &self.how, finished.timed, &variant, &check)
    }

    /// Every client's rows: 10 to 200 around a mean of its own.
    fn clients(&self) -> Result<Vec<Vec<f64>>, String> {
        if let Some(folder) = &self.how.data {
            let counts = files::integers(folder, "w1_count")?;
            let cells: Vec<f64> =
                files::singles(folder, "w1_y")?.into_iter().map(f64::from).collect();
            let mut rest = &cells[..];
            let mut take = |rows: &i32| rest.split_off(..*rows as usize * DIM).map(<[f64]>::to_vec);
            let clients: Option<Vec<_>> = counts.iter().map(&mut take).collect();
            return clients.filter(|_| rest.is_empty()).ok_or_else(|| {
                format!(
                    "w1_y.bin has {} numbers, and w1_count.bin speaks of {} rows of {DIM}: write \
                     both again",
                    cells.len(),
                    counts.iter().sum::<i32>()
                )
            });
        }
        const ROWS: [usize; 20] = [
            69, 190, 143, 78, 35, 159, 86, 122, 128, 66, 79, 186, 158, 176, 35, 79, 24, 195, 136,
            52,
        ];
        let client = |(i, rows): (usize, &usize)| {
            let mean = normals(i, DIM);
            normals(100 + i, DIM * rows)
                .iter()
                .enumerate()
                .map(|(k, z)| z + 2.0 * mean[k % DIM])
                .collect()
        };
        Ok(ROWS.iter().enumerate().map(client).collect())
    }
}

/// The stationary variance of a coordinate, with the noise of quantisation: exact but for a mean
/// over 20000 directions.
fn stationary_variance(counts: &[f64], total: f64) -> f64 {
    let s = f64::from(LEVELS);
    let spread = |v: &[f64]| {
        let norm = norm_squared(v).sqrt();
        v.iter().map(|x| (s * x.abs() / norm).fract()).map(|f| f * (1.0 - f)).sum::<f64>()
            / DIM as f64
    };
    let fraction =
        normals(1000, 20_000 * DIM).chunks_exact(DIM).map(spread).sum::<f64>() / 20_000.0;
    let quantisation = GAMMA * GAMMA * norm_squared(counts) * DIM as f64 / (s * s) * fraction;
    2.0 * GAMMA / (1.0 - (1.0 - GAMMA * total).powi(2) - quantisation)
}

/// The same potential by its rows alone.
#[derive(Debug)]
struct RowByRow(Isotropic);

impl Likelihood for RowByRow {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn scratch(&self) -> usize {
        self.0.scratch() + 2 * self.dim()
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        self.0.value(x, rows, scratch)
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.0.add_gradient(x, rows, scale, out, scratch);
    }

    /// Gathers the rows' sum `y`, then `scale ((n x - y) - (n z - y))`.
    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (origin, rest) = scratch.split_at_mut(self.dim());
        let (sum, rest) = rest.split_at_mut(self.dim());
        origin.fill(0.0);
        sum.fill(0.0);
        self.0.add_gradient(origin, rows, -1.0, sum, rest);
        let n = rows.count(self.rows()) as f64;
        for (((out, x), z), y) in out.iter_mut().zip(x).zip(z).zip(&*sum) {
            *out += scale * ((n * x - y) - (n * z - y));
        }
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.0.add_hessian_vector(x, v, rows, scale, out, scratch);
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        self.0.row_smoothness(row)
    }
}

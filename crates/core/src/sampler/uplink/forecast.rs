//! Forecast the variance of family A's draws, axis by axis of the quadratic model; know a safe step
//! where there is no model.

use nalgebra::DVector;

use super::{MemoryRule, NoiseSource, Oracle, Uplink};
use crate::compress::Compressor;
use crate::sampler::forecast::{QuadraticModel, lag, typical_error};
use crate::sampler::{CAUTION, Curvatures, Participation};
use crate::step::Schedule;

/// The least `step * curvature` for which recursions are followed; below, bias is proportional to
/// it.
const LEAST_RATE: f64 = 1e-3;

/// The step that theory takes for safe.
pub(super) fn cautious_step(recipe: &Uplink, found: Curvatures<'_>) -> f64 {
    let rarest = match &recipe.participation {
        Participation::All => 1.0,
        Participation::Bernoulli(p) | Participation::Elastic(p) => {
            p.iter().copied().fold(1.0, f64::min)
        }
        Participation::Fixed(size) => *size as f64 / found.local_smoothness.len() as f64,
    };
    CAUTION * rarest / (found.smoothness * loss(recipe, found))
}

/// By how much compression asks for a smaller step: `1 + omega` for unbiased compressors (QLSD
/// Theorem 1); for contractive ones `1 + sqrt(1 - alpha) / (1 - sqrt(1 - alpha))`, about
/// `2 / alpha` (Richtarik et al. 2021, EF21, Theorem 1), on each way.
fn loss(recipe: &Uplink, found: Curvatures<'_>) -> f64 {
    let (d, b) = (found.dim, found.local_smoothness.len());
    let contraction = |alpha: f64| 1.0 + (1.0 - alpha).sqrt() / (1.0 - (1.0 - alpha).sqrt());
    let of = |c: &Compressor| {
        c.omega(d).map_or_else(|| c.alpha(d).map_or(1.0, contraction), |omega| 1.0 + omega)
    };
    let up = (0..b)
        .filter_map(|i| recipe.up.get(if recipe.up.len() == 1 { 0 } else { i }))
        .map(of)
        .fold(1.0, f64::max);
    up * recipe.down.as_ref().map_or(1.0, of)
}

impl QuadraticModel {
    /// The variance of family A's draws along each axis.
    pub(super) fn uplink(&self, recipe: &Uplink) -> Option<DVector<f64>> {
        let Schedule::Constant(step) = recipe.step else { return None };
        let d = self.curvature.len();
        let lossy = |c: &Compressor| c.plain().is_none();
        // Rounding is part of the noise, too, where clients draw it.
        let exact_error = recipe.noise == NoiseSource::Compression || recipe.private.is_some();
        let up = |i: usize| {
            recipe
                .up
                .get(if recipe.up.len() == 1 { 0 } else { i })
                .filter(|c| lossy(c) && !exact_error)
        };
        let errors: Vec<f64> =
            (0..self.clients.len()).map(|i| up(i).map_or(0.0, |c| typical_error(c, d))).collect();
        let feedback =
            recipe.memory_rule == MemoryRule::FromGradient && errors.iter().any(|e| *e > 0.0);
        let kept_up = if feedback { 1.0 - errors.iter().copied().fold(0.0, f64::max) } else { 1.0 };
        let kept_down =
            recipe.down.as_ref().filter(|c| lossy(c)).map_or(1.0, |c| 1.0 - typical_error(c, d));
        if kept_up <= 0.0 || kept_down <= 0.0 {
            return None;
        }
        let mut variance = self.curvature.map(|c| self.temperature / c);
        // What estimates and messages add depends on how far chains move, and that on what they
        // add.
        for _ in 0..4 {
            let added = self.added_noise(recipe, step, &variance, &errors, feedback);
            for j in 0..d {
                let along = Along {
                    step,
                    curvature: self.curvature[j],
                    at_server: self.server[(j, j)],
                    temperature: self.temperature,
                    added: added[j],
                    kept: (kept_up, kept_down),
                    concentration: self
                        .clients
                        .iter()
                        .map(|c| (c.hessian[(j, j)] / self.curvature[j]).powi(2))
                        .sum(),
                };
                variance[j] = along.variance()?;
            }
        }
        Some(variance)
    }

    /// The variance, along each axis, of what minibatches, compression and absent clients add to
    /// the sum of the gradients. Error feedback is not noise: [`Along`] follows it.
    fn added_noise(
        &self,
        recipe: &Uplink,
        step: f64,
        variance: &DVector<f64>,
        errors: &[f64],
        feedback: bool,
    ) -> DVector<f64> {
        let d = self.curvature.len();
        let forgets = self.curvature.map(|c| (1.0 - step * c).clamp(-1.0, 1.0));
        // How far the point is from that of the control variates.
        let away = match recipe.oracle {
            Oracle::Plain | Oracle::FixedPoint(_) => variance.clone(),
            Oracle::Svrg { every } => {
                variance.zip_map(&forgets, |v, r| 2.0 * v * (1.0 - mean_power(r, every)))
            }
        };
        let memory = recipe.effective_memory().filter(|_| {
            errors.iter().any(|e| *e > 0.0) || recipe.participation != Participation::All
        });
        let mut sum = DVector::zeros(d);
        for (i, client) in self.clients.iter().enumerate() {
            let batch = client.batch_noise(
                recipe.batch.of(client.rows),
                recipe.oracle == Oracle::Plain,
                &away,
            );
            let moving = client.hessian.map(|h| h * h) * variance;
            let p = match &recipe.participation {
                Participation::All => 1.0,
                Participation::Bernoulli(list) | Participation::Elastic(list) => {
                    list.get(i).copied().unwrap_or(1.0)
                }
                Participation::Fixed(size) => *size as f64 / self.clients.len() as f64,
            };
            let error = if feedback { 0.0 } else { errors[i] };
            let (sent, error) = match (recipe.memory_rule, memory) {
                (MemoryRule::Marina { restart }, Some(_)) => {
                    // Errors add up until gradients are sent in full, and last as long.
                    let moved = client.hessian.map(|h| h * h)
                        * variance.zip_map(&forgets, |v, r| 2.0 * v * (1.0 - r));
                    (moved, error * (1.0 - restart) * (2.0 - restart) / restart.powi(2))
                }
                (_, Some(rate)) if !feedback => {
                    let lagging = moving.zip_map(&forgets, |m, r| m * lag(r, rate * p)) + &batch;
                    let own = rate * error / (2.0 - rate);
                    (lagging / (1.0 - own).max(0.1), error)
                }
                _ => {
                    let still = if matches!(recipe.oracle, Oracle::FixedPoint(_)) {
                        DVector::zeros(d)
                    } else {
                        client.gradient.map(|g| g * g)
                    };
                    (moving + still + &batch, error)
                }
            };
            let compression = sent.mean() * error;
            let absent = (1.0 - p) / p;
            for j in 0..d {
                sum[j] +=
                    batch[j] + compression / p + if feedback { 0.0 } else { absent * sent[j] };
            }
        }
        sum
    }
}

/// One axis of family A: `x' = x - step (m' + prior) + noise`, where the clients see `w`, which
/// follows `x`, and `m` follows their gradient at `w`.
struct Along {
    step: f64,
    curvature: f64,
    at_server: f64,
    temperature: f64,
    /// The variance of what is added to the gradient.
    added: f64,
    /// Which part of a change arrives at once, on the way up and down.
    kept: (f64, f64),
    /// How much of one client's compression error is left in the sum: the sum of the squares of the
    /// clients' parts.
    concentration: f64,
}

impl Along {
    fn variance(&self) -> Option<f64> {
        let rate = self.step * self.curvature;
        let noise = 2.0 * self.step * self.temperature + self.step * self.step * self.added;
        if rate >= 2.0 {
            return None;
        }
        let plain = noise / (rate * (2.0 - rate));
        if self.kept == (1.0, 1.0) {
            return Some(plain);
        }
        // In units in which the curvature is 1 and the noise 2 rate, what error feedback changes is
        // a function of the rate alone, and for small rates proportional to it.
        let followed = rate.max(LEAST_RATE);
        let excess =
            self.follow(followed)? / (2.0 * followed / (followed * (2.0 - followed))) - 1.0;
        Some(plain * (1.0 + excess * rate / followed))
    }

    /// The stationary variance at a rate, by following second moments of (x, w, m).
    fn follow(&self, rate: f64) -> Option<f64> {
        let (up, down) = self.kept;
        let prior = self.at_server / self.curvature;
        let mut moments = [[0.0; 3]; 3];
        moments[0][0] = 1.0;
        moments[0][1] = 1.0;
        moments[1][0] = 1.0;
        moments[1][1] = 1.0;
        let rounds = (40.0 / rate.min(down).min(up)) as usize;
        for _ in 0..rounds {
            let behind = quadratic(&moments, [1.0, -1.0, 0.0]);
            set(&mut moments, 1, [down, 1.0 - down, 0.0], down * (1.0 - down) * behind);
            let change = quadratic(&moments, [0.0, 1.0 - prior, -1.0]);
            set(
                &mut moments,
                2,
                [0.0, up * (1.0 - prior), 1.0 - up],
                up * (1.0 - up) * change * self.concentration,
            );
            set(&mut moments, 0, [1.0 - rate * prior, 0.0, -rate], 2.0 * rate);
            if moments[0][0].is_nan() || moments[0][0] > 1e3 {
                return None;
            }
        }
        Some(moments[0][0])
    }
}

fn quadratic(m: &[[f64; 3]; 3], by: [f64; 3]) -> f64 {
    (0..3).flat_map(|i| (0..3).map(move |j| (i, j))).map(|(i, j)| by[i] * m[i][j] * by[j]).sum()
}

/// Set one coordinate to a combination of all, with independent noise of this variance.
fn set(m: &mut [[f64; 3]; 3], at: usize, by: [f64; 3], noise: f64) {
    let row: [f64; 3] = std::array::from_fn(|j| (0..3).map(|i| by[i] * m[i][j]).sum());
    let corner = quadratic(m, by) + noise;
    for j in 0..3 {
        m[at][j] = row[j];
        m[j][at] = row[j];
    }
    m[at][at] = corner;
}

/// The mean of `r^k` over `k < n`.
fn mean_power(r: f64, n: u64) -> f64 {
    if (1.0 - r).abs() < 1e-12 { 1.0 } else { (1.0 - r.powi(n as i32)) / (n as f64 * (1.0 - r)) }
}

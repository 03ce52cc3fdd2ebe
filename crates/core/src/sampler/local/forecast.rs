//! Forecast the mean and the variance of family B's draws by the quadratic model; know a safe step
//! where there is none.

use nalgebra::{DMatrix, DVector};

use super::{Average, Local, Synchronise};
use crate::sampler::forecast::{QuadraticModel, lag, typical_error};
use crate::sampler::{CAUTION, Curvatures};
use crate::step::Schedule;

/// Beyond so many parameters the mean is forecast axis by axis, too.
const MOST_IN_FULL: usize = 150;

/// The step that theory takes for safe: a client that walks alone for `1/rate` iterations is pulled
/// by `U_c / p_c`.
pub(super) fn cautious_step(recipe: &Local, found: Curvatures<'_>) -> f64 {
    let rate = recipe.synchronise.rate();
    // a tie is as long as so many steps
    let rate = recipe.tether.map_or(rate, |tether| rate.min(1.0 / tether));
    let each = found.local_smoothness.iter().zip(&recipe.weights);
    let alone = each.map(|(l, p)| l / p).fold(0.0, f64::max);
    (CAUTION / found.smoothness).min(CAUTION.sqrt() * rate / alone.max(found.smoothness))
}

impl QuadraticModel {
    /// The mean of family B's draws, and their variance along each axis.
    pub(super) fn local(&self, recipe: &Local) -> Option<(DVector<f64>, DVector<f64>)> {
        let Schedule::Constant(step) = recipe.step else { return None };
        let rate = recipe.synchronise.rate();
        if let Some(tether) = recipe.tether {
            let ties: Vec<f64> = recipe.weights.iter().map(|p| tether * step / p).collect();
            let (mean, precision) = self.damped(&ties)?;
            // the clients' own steps widen what they draw
            let inner = 1.0 / (1.0 - 0.5 / tether).max(0.1);
            let own = 1.0 / ties.iter().map(|tie| 1.0 / tie).sum::<f64>();
            return Some((
                mean,
                precision.map(|h| self.temperature * (1.0 / h + own * (inner - 1.0))),
            ));
        }
        // Of K steps alone, a client's k-th counts the less the more it has drifted.
        let alone = steps_alone(recipe.synchronise);
        let mean = if recipe.refresh.is_some() {
            DVector::zeros(self.curvature.len())
        } else {
            let drifts: Vec<f64> = recipe.weights.iter().map(|p| alone * step / p).collect();
            self.damped(&drifts)?.0
        };
        let geometric = |r: f64| match recipe.synchronise {
            Synchronise::Every(every) => r.powi(every as i32),
            Synchronise::Randomly(p) => p * r / (1.0 - (1.0 - p) * r),
        };
        let total = |r: f64| match recipe.synchronise {
            Synchronise::Every(every) if (1.0 - r).abs() < 1e-9 => every as f64,
            Synchronise::Every(every) => (1.0 - r.powi(every as i32)) / (1.0 - r),
            Synchronise::Randomly(p) => 1.0 / (1.0 - (1.0 - p) * r),
        };
        let (b, rho2) = (self.clients.len(), recipe.correlation.powi(2));
        let squared = |p: f64| match recipe.average {
            Average::All => p * p,
            Average::WithReplacement(s) => p * p * (1.0 - 1.0 / s as f64) + p / s as f64,
            Average::WithoutReplacement(s) => 1.0 / (s as f64 * b as f64),
        };
        let private = (1.0 - rho2) * recipe.noise.factor(recipe.average, b);
        let error = recipe.up.as_ref().filter(|(c, _)| c.plain().is_none());
        let error = error.map(|(c, rate)| (typical_error(c, self.curvature.len()), *rate));
        let start = self.curvature.map(|c| self.temperature / c);
        let away = match recipe.refresh {
            None => start.clone(),
            Some(q) => {
                start.zip_map(&self.curvature, |v, c| 2.0 * v * (1.0 - 1.0 / (1.0 + step * c / q)))
            }
        };
        let batches: Vec<DVector<f64>> = self
            .clients
            .iter()
            .map(|c| c.batch_noise(recipe.batch.of(c.rows), recipe.refresh.is_none(), &away))
            .collect();
        let mut variance = start.clone();
        for j in 0..self.curvature.len() {
            let alone: Vec<f64> = self
                .clients
                .iter()
                .zip(&recipe.weights)
                .map(|(c, p)| 1.0 - step / p * c.hessian[(j, j)])
                .collect();
            let (mut noise, mut shared, mut carried) = (0.0, 0.0, 0.0);
            for (i, (a, p)) in alone.iter().zip(&recipe.weights).enumerate() {
                if a.abs() >= 1.0 + 1e-9 {
                    return None;
                }
                let own = 2.0 * step * self.temperature * private / p
                    + (step / p).powi(2) * batches[i][j];
                noise += squared(*p) * own * total(a * a);
                let drifted = if recipe.refresh.is_some() {
                    0.0
                } else {
                    (step / p * self.clients[i].gradient[j] / rate).powi(2)
                };
                noise += (squared(*p) - p * p) * drifted;
                if let Some((error, memory)) = error {
                    let moved = own / rate
                        + drifted
                        + lag((1.0 - step * self.curvature[j] / rate).clamp(0.0, 1.0), memory)
                            * start[j];
                    noise += squared(*p) * error * moved;
                }
                for (other, q) in alone.iter().zip(&recipe.weights) {
                    shared += p * q * total(a * other);
                    carried += p
                        * q
                        * match recipe.refresh {
                            None => geometric(a * other),
                            Some(_) => {
                                both(*a, *other, &geometric, rate)
                                    * (step * self.curvature[j]).powi(2)
                            }
                        };
                }
            }
            if recipe.refresh.is_some() {
                let steps: f64 =
                    alone.iter().zip(&recipe.weights).map(|(a, p)| p * total(*a)).sum();
                carried += 1.0 - 2.0 * step * self.curvature[j] * steps;
            }
            noise += 2.0 * step * self.temperature * rho2 * shared;
            if carried >= 1.0 {
                return None;
            }
            variance[j] = noise / (1.0 - carried);
        }
        Some((mean, variance))
    }

    /// How widely a client of family B is spread around the mean of all, while it walks alone, over
    /// the variance of the posterior.
    pub(super) fn spread_alone(&self, recipe: &Local, client: usize) -> f64 {
        let p = recipe.weights[client];
        let step = recipe.step.largest();
        let spread = match recipe.tether {
            Some(tether) => tether * step / p,
            None => {
                2.0 * step
                    * (1.0 - recipe.correlation.powi(2))
                    * steps_alone(recipe.synchronise)
                    * (1.0 / p - 1.0)
            }
        };
        spread * self.curvature.mean()
    }

    /// Where `sum_i (I + c_i H_i)^-1 (g_i + H_i x)` and the server's share vanish, and the sum's
    /// curvature along each axis.
    fn damped(&self, by: &[f64]) -> Option<(DVector<f64>, DVector<f64>)> {
        let d = self.curvature.len();
        let server_gradient =
            -self.clients.iter().fold(DVector::zeros(d), |sum, c| sum + &c.gradient);
        if d > MOST_IN_FULL {
            let (mut force, mut precision) = (server_gradient, self.server.diagonal());
            for (client, c) in self.clients.iter().zip(by) {
                for j in 0..d {
                    let share = 1.0 / (1.0 + c * client.hessian[(j, j)]);
                    force[j] += share * client.gradient[j];
                    precision[j] += share * client.hessian[(j, j)];
                }
            }
            return Some((-force.component_div(&precision), precision));
        }
        let (mut force, mut precision) = (server_gradient, self.server.clone());
        for (client, c) in self.clients.iter().zip(by) {
            let system = (DMatrix::identity(d, d) + &client.hessian * *c).lu();
            force += system.solve(&client.gradient)?;
            precision += system.solve(&client.hessian)?;
        }
        let mean = precision.clone().lu().solve(&-force)?;
        let inverse = precision.try_inverse()?;
        Some((mean, inverse.diagonal().map(|v| 1.0 / v)))
    }
}

/// How many steps a client of family B has walked alone, on average over its steps: the mean of
/// K(K-1)/2 over that of K.
fn steps_alone(synchronise: Synchronise) -> f64 {
    match synchronise {
        Synchronise::Every(every) => 0.5 * (every as f64 - 1.0),
        Synchronise::Randomly(p) => (1.0 - p) / p,
    }
}

/// `E[N(a) N(c)]` for `N(a) = 1 + a + ... + a^(K-1)`.
fn both(a: f64, c: f64, geometric: &dyn Fn(f64) -> f64, rate: f64) -> f64 {
    let (da, dc) = (1.0 - a, 1.0 - c);
    if da.min(dc) < 1e-6 {
        // E[K^2] of a geometric K: an upper bound of that of a fixed one
        return (2.0 - rate) / (rate * rate);
    }
    (1.0 - geometric(a) - geometric(c) + geometric(a * c)) / (da * dc)
}

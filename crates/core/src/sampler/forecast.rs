//! Forecast the bias of a sampler at its step, without sampling: its law on the quadratic model of
//! the target.
//!
//! Around its optimum a posterior is nearly Gaussian, and a client's potential nearly quadratic:
//! `U_i(x* + u) = g_i' u + u' H_i u / 2`, with the gradients `g_i` summing to 0. Along the axes of
//! the whole Hessian `H` the recursion of a sampler is then nearly scalar, and its stationary
//! variance is computed axis by axis. That is exact where the clients' Hessians have the axes of
//! `H` (as for `lmc`, always). A posterior that is skewed has another mean where draws are spread
//! more widely: that is added to the mean by the clients' third derivatives. Three things are
//! approximated:
//!
//! - clients' Hessians along other axes than those of `H` (but the mean of family B is solved in
//!   full);
//! - minibatches: the scatter of the rows' gradients is taken to be their Hessian (Fisher's
//!   information), and the rows' Hessians are taken to differ as those of a generalised linear
//!   model do;
//! - compressors: an error of the size that they have on Gaussian vectors, alike in all directions.
//!
//! [`super::exact`] has laws without approximations, for small Gaussian targets;
//! `crates/core/tests/forecast.rs` holds the forecast against it.

use nalgebra::{DMatrix, DVector};

use super::{Average, Local, MemoryRule, NoiseSource, Oracle, Recipe, Synchronise, Uplink};
use crate::compress::{Compressor, Message};
use crate::model::Coordinates;
use crate::protocol::plain_precision;
use crate::rng::{ClientId, Purpose, Seed};
use crate::sampler::Participation;
use crate::step::Schedule;

/// Beyond so many parameters the mean of family B is forecast axis by axis, too.
const MOST_IN_FULL: usize = 150;
/// The least `step * curvature` for which recursions are followed; below, bias is proportional to
/// it.
const LEAST_RATE: f64 = 1e-3;
/// On how many Gaussian numbers, about, a compressor's error is measured.
const TRIED: usize = 20_000;

/// What is known of one client's potential, or of the prior, at the optimum.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its Hessian, d x d.
    pub hessian: Vec<f64>,
    /// Its gradient.
    pub gradient: Vec<f64>,
    /// By how much its mean gradient is larger over the posterior than at the optimum, to the order
    /// of third derivatives; zeros where it is quadratic, or where that is not known.
    pub skewness: Vec<f64>,
    /// How many rows it is a sum over.
    pub rows: usize,
}

/// The quadratic model of a target around its optimum, along the axes of its Hessian.
#[derive(Clone, Debug)]
pub struct QuadraticModel {
    temperature: f64,
    /// The eigenvalues of the whole Hessian, axis by axis.
    curvature: DVector<f64>,
    /// A step along each axis as a step of the parameters.
    outward: DMatrix<f64>,
    clients: Vec<Client>,
    /// The prior's Hessian, where the server applies it.
    server: DMatrix<f64>,
}

#[derive(Clone, Debug)]
struct Client {
    /// With its share of the prior.
    hessian: DMatrix<f64>,
    gradient: DVector<f64>,
    /// Of its rows alone.
    own_hessian: DVector<f64>,
    own_gradient: DVector<f64>,
    skewness: DVector<f64>,
    rows: usize,
}

/// How the draws of a sampler are forecast to differ from the posterior, parameter by parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// How far the mean is off, in posterior standard deviations.
    pub mean: Vec<f64>,
    /// The standard deviation over that of the posterior.
    pub sd: Vec<f64>,
}

impl Forecast {
    /// The largest error of a mean, and that of a standard deviation, relatively.
    pub fn worst(&self) -> (f64, f64) {
        let mean = self.mean.iter().fold(0.0f64, |worst, m| worst.max(m.abs()));
        (mean, self.sd.iter().fold(0.0f64, |worst, ratio| worst.max((ratio - 1.0).abs())))
    }
}

impl QuadraticModel {
    /// The model of a target whose clients know `parts`, each with its share of the `prior`; what
    /// the shares leave of the prior is the server's. Parts are in the parameters' own coordinates,
    /// the model in `coordinates` if they are given. `None` if the Hessian is not positive
    /// definite.
    pub fn new(
        parts: &[Part],
        prior: &Part,
        shares: &[f64],
        coordinates: Option<&Coordinates>,
        temperature: f64,
    ) -> Option<Self> {
        let d = prior.gradient.len();
        let map = coordinates.map(|c| DMatrix::from_row_slice(d, d, c.parts().1));
        let inward = |part: &Part| {
            let (hessian, gradient) = (
                DMatrix::from_row_slice(d, d, &part.hessian),
                DVector::from_column_slice(&part.gradient),
            );
            match &map {
                None => (hessian, gradient),
                Some(map) => (map.tr_mul(&hessian) * map, map.tr_mul(&gradient)),
            }
        };
        let own: Vec<_> = parts.iter().map(inward).collect();
        let skew = |part: &Part| {
            let skewness = DVector::from_column_slice(&part.skewness);
            map.as_ref().map_or_else(|| skewness.clone(), |map| map.tr_mul(&skewness))
        };
        let (prior_hessian, prior_gradient) = inward(prior);
        let whole = own.iter().fold(prior_hessian.clone(), |sum, (hessian, _)| sum + hessian);
        let round = coordinates.is_some() && (&whole - DMatrix::identity(d, d)).amax() < 1e-6;
        let (curvature, axes) = if round {
            (DVector::from_element(d, 1.0), DMatrix::identity(d, d))
        } else {
            let eigen = ((&whole + whole.transpose()) * 0.5).symmetric_eigen();
            (eigen.eigenvalues, eigen.eigenvectors)
        };
        if !(curvature.min() > 0.0 && curvature.max().is_finite()) {
            return None;
        }
        let turn = |matrix: &DMatrix<f64>| {
            if round { matrix.clone() } else { axes.tr_mul(matrix) * &axes }
        };
        let turned =
            |vector: &DVector<f64>| if round { vector.clone() } else { axes.tr_mul(vector) };
        let (prior_hessian, prior_gradient) = (turn(&prior_hessian), turned(&prior_gradient));
        let clients =
            own.iter().zip(parts).zip(shares).map(|(((hessian, gradient), part), share)| {
                let (hessian, gradient) = (turn(hessian), turned(gradient));
                let own_hessian = hessian.diagonal();
                Client {
                    hessian: hessian + &prior_hessian * *share,
                    own_gradient: gradient.clone(),
                    gradient: gradient + &prior_gradient * *share,
                    own_hessian,
                    skewness: turned(&skew(part)),
                    rows: part.rows,
                }
            });
        let clients: Vec<Client> = clients.collect();
        let left = 1.0 - shares.iter().sum::<f64>();
        let server = prior_hessian * if left.abs() < 1e-9 { 0.0 } else { left };
        let outward = map.map_or_else(|| axes.clone(), |map| map * &axes);
        Some(QuadraticModel { temperature, curvature, outward, clients, server })
    }

    /// The law of a sampler with a constant step; `None` where it is not stable, or its step
    /// decreases.
    pub fn forecast(&self, recipe: &Recipe) -> Option<Forecast> {
        let (mut mean, variance) = match recipe {
            Recipe::Uplink(recipe) => (DVector::zeros(self.curvature.len()), self.uplink(recipe)?),
            Recipe::Local(recipe) => self.local(recipe)?,
        };
        // A gradient that is not affine has another mean where draws are spread more widely, and
        // the mean of the draws makes up for it.
        let wider = variance.component_mul(&self.curvature).mean() / self.temperature - 1.0;
        for (i, client) in self.clients.iter().enumerate() {
            let alone =
                if let Recipe::Local(recipe) = recipe { self.spread_alone(recipe, i) } else { 0.0 };
            mean -= client.skewness.component_div(&self.curvature) * (wider + alone);
        }
        let mean = &self.outward * mean;
        let squares = self.outward.map(|o| o * o);
        let posterior = (&squares * self.curvature.map(|c| self.temperature / c)).map(f64::sqrt);
        let sd = (squares * variance).map(f64::sqrt).component_div(&posterior);
        let mean = mean.component_div(&posterior);
        let known = sd.iter().chain(mean.iter()).all(|x| x.is_finite());
        known.then(|| Forecast { mean: mean.as_slice().to_vec(), sd: sd.as_slice().to_vec() })
    }

    /// The variance of family A's draws along each axis.
    fn uplink(&self, recipe: &Uplink) -> Option<DVector<f64>> {
        let Schedule::Constant(step) = recipe.step else { return None };
        let d = self.curvature.len();
        let lossy = |c: &Compressor| plain_precision(*c).is_none();
        let exact_error = recipe.noise == NoiseSource::Compression;
        let up = |i: usize| {
            recipe
                .up
                .get(if recipe.up.len() == 1 { 0 } else { i })
                .filter(|c| lossy(c) && !exact_error)
        };
        let errors: Vec<f64> =
            (0..self.clients.len()).map(|i| up(i).map_or(0.0, |c| typical_error(*c, d))).collect();
        let feedback =
            recipe.memory_rule == MemoryRule::FromGradient && errors.iter().any(|e| *e > 0.0);
        let kept_up = if feedback { 1.0 - errors.iter().copied().fold(0.0, f64::max) } else { 1.0 };
        let kept_down = recipe.down.filter(lossy).map_or(1.0, |c| 1.0 - typical_error(c, d));
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

    /// The mean of family B's draws, and their variance along each axis.
    fn local(&self, recipe: &Local) -> Option<(DVector<f64>, DVector<f64>)> {
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
        let error = recipe.up.filter(|(c, _)| plain_precision(*c).is_none());
        let error = error.map(|(c, rate)| (typical_error(c, self.curvature.len()), rate));
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
    fn spread_alone(&self, recipe: &Local, client: usize) -> f64 {
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

impl Client {
    /// The variance, along each axis, that a minibatch adds to this client's gradient; `plain`
    /// without control variates, else for points that are `away` from that of the control variates,
    /// in mean squares.
    fn batch_noise(&self, batch: usize, plain: bool, away: &DVector<f64>) -> DVector<f64> {
        let (d, all, n) = (away.len(), self.rows as f64, batch as f64);
        if batch >= self.rows {
            return DVector::zeros(d);
        }
        let factor = all * (all - n) / (n * (all - 1.0));
        let leverage = self.own_hessian.dot(away) / all * (1.0 + 2.0 / d as f64);
        let scatter = |j: usize| {
            if plain {
                (self.own_hessian[j] - self.own_gradient[j].powi(2) / all).max(0.0)
            } else {
                0.0
            }
        };
        DVector::from_fn(d, |j, _| factor * (scatter(j) + leverage * self.own_hessian[j]))
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

/// How many steps a client of family B has walked alone, on average over its steps: the mean of
/// K(K-1)/2 over that of K.
fn steps_alone(synchronise: Synchronise) -> f64 {
    match synchronise {
        Synchronise::Every(every) => 0.5 * (every as f64 - 1.0),
        Synchronise::Randomly(p) => (1.0 - p) / p,
    }
}

/// The mean of `r^k` over `k < n`.
fn mean_power(r: f64, n: u64) -> f64 {
    if (1.0 - r).abs() < 1e-12 { 1.0 } else { (1.0 - r.powi(n as i32)) / (n as f64 * (1.0 - r)) }
}

/// The mean square of `x - h`, where `x` has variance 1 and autocorrelation `r`, and `h` follows it
/// at a rate.
fn lag(r: f64, rate: f64) -> f64 {
    let keeps = (1.0 - rate) * r;
    let with = rate * r / (1.0 - keeps);
    let own = rate / (2.0 - rate) * (1.0 + keeps) / (1.0 - keeps);
    (1.0 - 2.0 * with + own).max(0.0)
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

/// The mean square error of a compressor on Gaussian vectors, relative to their mean square.
pub fn typical_error(compressor: Compressor, dim: usize) -> f64 {
    let (mut message, mut v, mut back) = (Message::new(), vec![0.0; dim], vec![0.0; dim]);
    let (mut error, mut size) = (0.0, 0.0);
    for trial in 0..(TRIED / dim.max(1)).max(8) as u64 {
        Seed::new(0).stream(Purpose::Noise, ClientId(0), trial).normals(&mut v);
        let stream = Seed::new(0).stream(Purpose::Compress, ClientId(0), trial);
        let sent = compressor.quantise(&v, &mut stream.clone(), &mut message);
        if sent.is_err() || message.dequantise(&mut stream.clone(), &mut back).is_err() {
            return f64::INFINITY;
        }
        error += v.iter().zip(&back).map(|(v, b)| (v - b).powi(2)).sum::<f64>();
        size += v.iter().map(|v| v * v).sum::<f64>();
    }
    error / size
}

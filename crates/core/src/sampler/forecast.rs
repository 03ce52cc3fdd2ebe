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

use super::Recipe;
use crate::compress::{Compressor, Message};
use crate::model::Coordinates;
use crate::rng::{ClientId, Purpose, Seed};

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
    pub(super) temperature: f64,
    /// The eigenvalues of the whole Hessian, axis by axis.
    pub(super) curvature: DVector<f64>,
    /// A step along each axis as a step of the parameters.
    outward: DMatrix<f64>,
    pub(super) clients: Vec<Client>,
    /// The prior's Hessian, where the server applies it.
    pub(super) server: DMatrix<f64>,
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    /// With its share of the prior.
    pub(super) hessian: DMatrix<f64>,
    pub(super) gradient: DVector<f64>,
    /// Of its rows alone.
    own_hessian: DVector<f64>,
    own_gradient: DVector<f64>,
    skewness: DVector<f64>,
    pub(super) rows: usize,
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

/// Where a sampler's draws are, along the axes of the model.
#[derive(Clone, Debug)]
pub struct ForecastMoments {
    /// How far the mean is from the optimum.
    pub(super) mean: DVector<f64>,
    /// The variance along each axis.
    pub(super) variance: DVector<f64>,
    /// How much more widely each client is spread than the draws, where clients move on their own,
    /// over the variance of the posterior.
    pub(super) alone: Vec<f64>,
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
        let map = coordinates.map(|c| DMatrix::from_row_slice(d, d, &c.matrix()));
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
        let ForecastMoments { mut mean, variance, alone } = recipe.family().forecast(self)?;
        // A gradient that is not affine has another mean where draws are spread more widely, and
        // the mean of the draws makes up for it.
        let wider = variance.component_mul(&self.curvature).mean() / self.temperature - 1.0;
        for (client, alone) in self.clients.iter().zip(&alone) {
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
}

impl Client {
    /// The variance, along each axis, that a minibatch adds to this client's gradient; `plain`
    /// without control variates, else for points that are `away` from that of the control variates,
    /// in mean squares.
    pub(super) fn batch_noise(
        &self,
        batch: usize,
        plain: bool,
        away: &DVector<f64>,
    ) -> DVector<f64> {
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

/// The mean square of `x - h`, where `x` has variance 1 and autocorrelation `r`, and `h` follows it
/// at a rate.
pub(super) fn lag(r: f64, rate: f64) -> f64 {
    let keeps = (1.0 - rate) * r;
    let with = rate * r / (1.0 - keeps);
    let own = rate / (2.0 - rate) * (1.0 + keeps) / (1.0 - keeps);
    (1.0 - 2.0 * with + own).max(0.0)
}

/// The mean square error of a compressor on Gaussian vectors, relative to their mean square.
pub(crate) fn typical_error(compressor: &Compressor, dim: usize) -> f64 {
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

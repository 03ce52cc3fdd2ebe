//! State the one prior of the whole federation.

use std::sync::Arc;

use super::{Law, Laws, Transforms};
use crate::error::DataError;
use crate::simd::wide;

/// `U_0`: the negative log-prior, without its normalising constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Prior {
    /// No prior: the posterior is the normalised likelihood.
    Flat,
    /// Independent normals with mean 0 and these precisions, one a coordinate. All clients read the
    /// same ones: so many copies would not stay in a cache.
    Gaussian(Arc<[f64]>),
    /// Independent Laplace laws with mean 0 and this scale: `U_0(x) = sum_k |x_k| / scale`.
    Laplace {
        /// The mean absolute value of a coordinate.
        scale: f64,
    },
    /// A law for each parameter, on its natural scale.
    Laws(Arc<Laws>),
}

impl Prior {
    /// Independent normals with mean 0 and one common variance.
    pub fn gaussian(variance: f64, dim: usize) -> Result<Self, DataError> {
        Prior::gaussian_per_coordinate(&vec![variance; dim])
    }

    /// Independent normals with mean 0 and a variance for each coordinate.
    pub fn gaussian_per_coordinate(variances: &[f64]) -> Result<Self, DataError> {
        match variances.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
            Some(value) => {
                Err(DataError::NotPositive { what: "the prior variance", value: *value })
            }
            None => Ok(Prior::Gaussian(variances.iter().map(|v| 1.0 / v).collect())),
        }
    }

    /// Independent Laplace laws with mean 0.
    pub fn laplace(scale: f64) -> Result<Self, DataError> {
        if scale > 0.0 && scale.is_finite() {
            Ok(Prior::Laplace { scale })
        } else {
            Err(DataError::NotPositive { what: "the prior scale", value: scale })
        }
    }

    /// A law for each parameter, on the natural scale of parameters that are transformed so. Where
    /// all are free, and normal around 0 or all flat, it is that prior.
    pub fn laws(laws: Vec<Law>, transforms: Transforms) -> Result<Self, DataError> {
        if transforms.is_empty() {
            if laws.iter().all(|law| *law == Law::Flat) {
                return Ok(Prior::Flat);
            }
            let variance = |law: &Law| match law {
                Law::Normal { mean, sd } if *mean == 0.0 => Some(sd * sd),
                _ => None,
            };
            if let Some(variances) = laws.iter().map(variance).collect::<Option<Vec<f64>>>() {
                return Prior::gaussian_per_coordinate(&variances);
            }
        }
        Ok(Prior::Laws(Arc::new(Laws::new(laws, transforms)?)))
    }

    /// How many parameters it is for, where that is stated.
    pub fn dim(&self) -> Option<usize> {
        match self {
            Prior::Flat | Prior::Laplace { .. } => None,
            Prior::Gaussian(precision) => Some(precision.len()),
            Prior::Laws(laws) => Some(laws.dim()),
        }
    }

    /// Whether it says nothing of some of the first `parameters`.
    pub fn is_flat(&self, parameters: usize) -> bool {
        match self {
            Prior::Flat => true,
            Prior::Gaussian(_) | Prior::Laplace { .. } => false,
            Prior::Laws(laws) => laws.laws().iter().take(parameters).any(|law| *law == Law::Flat),
        }
    }

    /// Whether its potential is a quadratic form around 0.
    pub fn is_quadratic(&self) -> bool {
        matches!(self, Prior::Flat | Prior::Gaussian(_))
    }

    /// `U_0(x)`.
    pub fn value(&self, x: &[f64]) -> f64 {
        match self {
            Prior::Flat => 0.0,
            Prior::Gaussian(precision) => {
                x.iter().zip(precision.iter()).map(|(x, p)| p * x * x).sum::<f64>() * 0.5
            }
            Prior::Laplace { scale } => x.iter().map(|x| x.abs()).sum::<f64>() / scale,
            Prior::Laws(laws) => laws.value(x),
        }
    }

    /// `out += weight * grad U_0(x)`; at a kink of the Laplace prior the subgradient 0.
    #[inline(always)]
    pub fn add_gradient(&self, x: &[f64], weight: f64, out: &mut [f64]) {
        match self {
            Prior::Flat => {}
            Prior::Gaussian(precision) => {
                for ((out, x), p) in out.iter_mut().zip(x).zip(precision.iter()) {
                    *out += weight * (p * x);
                }
            }
            Prior::Laplace { scale } => {
                for (out, x) in out.iter_mut().zip(x) {
                    *out += weight * (sign(*x) / scale);
                }
            }
            Prior::Laws(laws) => laws.add_gradient(x, weight, out),
        }
    }

    /// `out += weight * (grad U_0(x) - grad U_0(z))`; exactly nothing where `x` equals `z`.
    #[inline(always)]
    pub fn add_gradient_difference(&self, x: &[f64], z: &[f64], weight: f64, out: &mut [f64]) {
        match self {
            Prior::Flat => {}
            Prior::Gaussian(precision) => {
                for (((out, x), z), p) in out.iter_mut().zip(x).zip(z).zip(precision.iter()) {
                    *out += weight * (p * (x - z));
                }
            }
            Prior::Laplace { scale } => {
                for ((out, x), z) in out.iter_mut().zip(x).zip(z) {
                    *out += weight * ((sign(*x) - sign(*z)) / scale);
                }
            }
            Prior::Laws(laws) => laws.add_gradient_difference(x, z, weight, out),
        }
    }

    /// `out += weight * hess U_0(x) v`.
    pub fn add_hessian_vector(&self, x: &[f64], v: &[f64], weight: f64, out: &mut [f64]) {
        match self {
            Prior::Flat | Prior::Laplace { .. } => {}
            Prior::Gaussian(precision) => {
                for ((out, v), p) in out.iter_mut().zip(v).zip(precision.iter()) {
                    *out += weight * (p * v);
                }
            }
            Prior::Laws(laws) => laws.add_hessian_vector(x, v, weight, out),
        }
    }

    /// `out += weight * hess U_0(x)`, row by row.
    pub fn add_hessian(&self, x: &[f64], weight: f64, out: &mut [f64]) {
        match self {
            Prior::Flat | Prior::Laplace { .. } => {}
            Prior::Gaussian(precision) => {
                for (out, p) in out.iter_mut().step_by(precision.len() + 1).zip(precision.iter()) {
                    *out += weight * p;
                }
            }
            Prior::Laws(laws) => laws.add_hessian(x, weight, out),
        }
    }

    /// `out += weight` times the mean gradient, then the mean Hessian, under the normal law of this
    /// mean and spread: exact but for a Laplace prior, whose corner the average would round off.
    pub(crate) fn add_average(&self, law: (&[f64], &[f64]), weight: f64, out: &mut [f64]) {
        if let Prior::Laws(laws) = self {
            return laws.add_average(law, weight, out);
        }
        let (gradient, hessian) = out.split_at_mut(law.0.len());
        self.add_gradient(law.0, weight, gradient);
        self.add_hessian(law.0, weight, hessian);
    }

    /// The largest and smallest curvature it adds, where that is the same everywhere; else nothing.
    pub fn curvature(&self) -> (f64, f64) {
        match self {
            Prior::Flat | Prior::Laplace { .. } | Prior::Laws(_) => (0.0, 0.0),
            Prior::Gaussian(p) => (
                p.iter().copied().fold(0.0, f64::max),
                p.iter().copied().fold(f64::INFINITY, f64::min),
            ),
        }
    }
}

#[inline(always)]
fn sign(x: f64) -> f64 {
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        0.0
    }
}

wide! {
    /// [`Prior::add_gradient`], for callers that are not compiled for wide registers themselves.
    pub(crate) fn accumulate_gradient<'a>(prior: &'a Prior, x: &'a [f64], weight: f64,
        out: &'a mut [f64]) -> () {
        prior.add_gradient(x, weight, out);
    }
}

wide! {
    /// [`Prior::add_gradient_difference`], likewise.
    pub(crate) fn accumulate_difference<'a>(prior: &'a Prior, x: &'a [f64], z: &'a [f64],
        weight: f64, out: &'a mut [f64]) -> () {
        prior.add_gradient_difference(x, z, weight, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_are_the_finite_differences_of_values() {
        let x = [0.7, -1.3, 2.0];
        for prior in [
            Prior::Flat,
            Prior::gaussian_per_coordinate(&[0.5, 2.0, 4.0]).unwrap(),
            Prior::laplace(0.3).unwrap(),
        ] {
            let mut g = [0.0; 3];
            prior.add_gradient(&x, 2.0, &mut g);
            for k in 0..3 {
                let moved = |by: f64| {
                    let mut at = x;
                    at[k] += by;
                    prior.value(&at)
                };
                assert!(
                    ((moved(1e-4) - moved(-1e-4)) / 2e-4 - g[k] / 2.0).abs() < 1e-8,
                    "{prior:?}"
                );
            }
            let (z, mut difference, mut at_z) = ([1.0, -1.0, -0.5], [0.0; 3], [0.0; 3]);
            prior.add_gradient_difference(&x, &z, 2.0, &mut difference);
            prior.add_gradient(&z, 2.0, &mut at_z);
            for k in 0..3 {
                assert!((difference[k] - (g[k] - at_z[k])).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn impossible_priors_are_refused() {
        assert!(
            Prior::gaussian(0.0, 2).is_err()
                && Prior::gaussian(f64::NAN, 2).is_err()
                && Prior::laplace(-1.0).is_err()
        );
    }
}

//! Say how likely parameters are given two noisy releases: the noise is part of the model.
//!
//! What was released is compared with what the parameters would have given, row noise and privacy
//! noise together (privacy.md, section 10). No law of the features is assumed: the noisy second
//! moments stand where their own would.
//!
//! ```text
//! linear    (G - S theta, g - k S e, Q - N sigma^2) ~ N(0, K(theta, sigma))
//! logistic  g - H e                                 ~ N(0, P + t_g^2 I + J(e, e))
//! ```
//!
//! with `e = theta - theta0`, `J(a, b) = alpha h (a'b I + a b')`, `h = t^2/2`. A gradient of such a
//! log density is that of `-log|K|/2 - r'K^-1 r/2`: with `a = K^-1 r` and `W = (a a' - K^-1)/2` it
//! is `W : dK - a . dr`.

use nalgebra::{DMatrix, DVector};

use crate::privacy::phi;
use crate::simd::{exp, ln};

/// What the density of a release is computed from.
#[derive(Clone, Debug)]
pub(super) enum Posterior {
    Linear(Linear),
    Logistic(Logistic),
}

impl Posterior {
    /// How many parameters there are.
    pub(super) fn dim(&self) -> usize {
        match self {
            Posterior::Linear(of) => of.start.len() + usize::from(of.noise_variance.is_none()),
            Posterior::Logistic(of) => of.start.len(),
        }
    }

    /// The log density at `x`, up to a constant, and its gradient into `out`; minus infinity where
    /// there is none.
    pub(super) fn log_density(&self, x: &[f64], out: &mut [f64]) -> f64 {
        let found = match self {
            Posterior::Linear(of) => of.log_density(x, out),
            Posterior::Logistic(of) => of.log_density(x, out),
        };
        found.filter(|value| value.is_finite()).unwrap_or(f64::NEG_INFINITY)
    }
}

/// Two releases of linear regression, in units of the response.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    /// `S`, shrunk, and `P`: the same with a floor for its eigenvalues.
    pub(super) moments: DMatrix<f64>,
    pub(super) floored: DMatrix<f64>,
    /// `G` and `Y`.
    pub(super) pull: DVector<f64>,
    pub(super) square: f64,
    /// `N`.
    pub(super) rows: f64,
    /// `c`, `t` and `alpha`.
    pub(super) weight: f64,
    pub(super) deviation: f64,
    pub(super) alpha: f64,
    /// `theta0`, `B2`, `t_g` and `g`.
    pub(super) start: DVector<f64>,
    pub(super) bound: f64,
    pub(super) pull_deviation: f64,
    pub(super) second_pull: DVector<f64>,
    /// `sigma^2`, where it is known.
    pub(super) noise_variance: Option<f64>,
}

/// The density of a standard normal.
fn density(x: f64) -> f64 {
    exp(-0.5 * x * x) / std::f64::consts::TAU.sqrt()
}

impl Linear {
    fn log_density(&self, x: &[f64], out: &mut [f64]) -> Option<f64> {
        let d = self.start.len();
        let theta = DVector::from_column_slice(&x[..d]);
        let sigma = self.noise_variance.map_or_else(|| exp(x[d]), f64::sqrt);
        let (e, variance) = (&theta - &self.start, sigma * sigma);
        let (s, p) = (&self.moments, &self.floored);
        let (h, c2) = (0.5 * self.deviation * self.deviation, self.weight * self.weight);
        let ah = self.alpha * h;
        let b = self.bound / sigma;
        let (k, at_b) = (2.0 * phi(b) - 1.0, density(b));
        let psi = variance * (k - 2.0 * b * at_b + b * b * (1.0 - k));
        let (long, across, near) = (theta.norm_squared(), theta.dot(&e), e.norm_squared());

        let mut covariance = DMatrix::zeros(2 * d + 1, 2 * d + 1);
        let inner = h / c2 + self.alpha * h * long;
        for i in 0..d {
            for j in 0..d {
                let unit = f64::from(u8::from(i == j));
                covariance[(i, j)] = variance * p[(i, j)] + inner * unit + ah * theta[i] * theta[j];
                let beside = across * unit + theta[i] * e[j];
                covariance[(d + i, j)] = k * (variance * p[(i, j)] + ah * beside);
                covariance[(j, d + i)] = covariance[(d + i, j)];
                let own = self.pull_deviation * self.pull_deviation;
                covariance[(d + i, d + j)] =
                    psi * p[(i, j)] + own * unit + k * k * ah * (near * unit + e[i] * e[j]);
            }
            covariance[(2 * d, i)] = -2.0 * inner * theta[i];
            covariance[(2 * d, d + i)] = -2.0 * k * ah * across * theta[i];
            covariance[(i, 2 * d)] = covariance[(2 * d, i)];
            covariance[(d + i, 2 * d)] = covariance[(2 * d, d + i)];
        }
        covariance[(2 * d, 2 * d)] = 2.0 * h * (1.0 / (c2 * c2) + 2.0 * long / c2)
            + 2.0 * ah * long * long
            + 2.0 * self.rows * variance * variance;

        let (st, se) = (s * &theta, s * &e);
        let square = self.square - 2.0 * theta.dot(&self.pull) + theta.dot(&st);
        let mut residual = DVector::zeros(2 * d + 1);
        residual.rows_mut(0, d).copy_from(&(&self.pull - &st));
        residual.rows_mut(d, d).copy_from(&(&self.second_pull - &se * k));
        residual[2 * d] = square - self.rows * variance;
        let (value, a, w) = solved(covariance, &residual)?;

        let (a1, a2, a3) = (a.rows(0, d).into_owned(), a.rows(d, d).into_owned(), a[2 * d]);
        let block = |i: usize, j: usize| w.view((i, j), (d, d)).into_owned();
        let (w11, w21, w22) = (block(0, 0), block(d, 0), block(d, d));
        let row = |j: usize| w.view((2 * d, j), (1, d)).transpose();
        let (w31, w32, w33) = (row(0), row(d), w[(2 * d, 2 * d)]);
        let mut slope = (&theta * w11.trace() + &w11 * &theta) * (2.0 * ah);
        slope +=
            ((&theta + &e) * w21.trace() + &w21 * &e + w21.transpose() * &theta) * (2.0 * k * ah);
        slope += (&e * w22.trace() + &w22 * &e) * (2.0 * k * k * ah);
        slope += (&w31 * inner + &theta * (2.0 * ah * w31.dot(&theta))) * -4.0;
        slope += ((&theta + &e) * w32.dot(&theta) + &w32 * across) * (-4.0 * k * ah);
        slope += &theta * (w33 * (8.0 * h / c2 + 8.0 * ah * long));
        slope += s * &a1 + s * &a2 * k - (&st - &self.pull) * (2.0 * a3);
        out[..d].copy_from_slice(slope.as_slice());
        if self.noise_variance.is_none() {
            // In log sigma: k falls by 2 b phi(b), psi rises by 2 sigma^2 (k - 2 b phi(b)).
            let fall = -2.0 * b * at_b;
            let bent = 2.0 * variance * (k - 2.0 * b * at_b);
            let with_p = |w: &DMatrix<f64>| w.dot(p);
            let beside = w21.trace() * across + theta.dot(&(&w21 * &e));
            let mut slope = 2.0 * variance * with_p(&w11);
            slope += 2.0 * (fall + 2.0 * k) * variance * with_p(&w21) + 2.0 * fall * ah * beside;
            slope += bent * with_p(&w22);
            slope += 2.0 * k * fall * ah * (near * w22.trace() + e.dot(&(&w22 * &e)));
            slope += -4.0 * fall * ah * across * w32.dot(&theta);
            slope += 8.0 * self.rows * variance * variance * w33;
            slope += fall * a2.dot(&se) + 2.0 * self.rows * variance * a3;
            out[d] = slope;
        }
        Some(value)
    }
}

/// Two releases of logistic regression.
#[derive(Clone, Debug)]
pub(super) struct Logistic {
    /// `H`, shrunk, and `P`: the same with a floor for its eigenvalues.
    pub(super) hessian: DMatrix<f64>,
    pub(super) floored: DMatrix<f64>,
    /// `t` of the Hessian and `alpha`.
    pub(super) deviation: f64,
    pub(super) alpha: f64,
    /// `theta0`, `t_g` and `g`.
    pub(super) start: DVector<f64>,
    pub(super) pull_deviation: f64,
    pub(super) pull: DVector<f64>,
}

impl Logistic {
    fn log_density(&self, x: &[f64], out: &mut [f64]) -> Option<f64> {
        let d = self.start.len();
        let e = DVector::from_column_slice(x) - &self.start;
        let ah = 0.5 * self.alpha * self.deviation * self.deviation;
        let mut covariance = &self.floored + &e * e.transpose() * ah;
        let own = self.pull_deviation * self.pull_deviation + ah * e.norm_squared();
        for i in 0..d {
            covariance[(i, i)] += own;
        }
        let residual = &self.pull - &self.hessian * &e;
        let (value, a, w) = solved(covariance, &residual)?;
        let slope = (&e * w.trace() + &w * &e) * (2.0 * ah) + &self.hessian * &a;
        out.copy_from_slice(slope.as_slice());
        Some(value)
    }
}

/// The log density of a residual, `a` and `W`; `None` where the covariance is none.
fn solved(
    covariance: DMatrix<f64>,
    residual: &DVector<f64>,
) -> Option<(f64, DVector<f64>, DMatrix<f64>)> {
    let n = residual.len();
    let cholesky = covariance.cholesky()?;
    let a = cholesky.solve(residual);
    let lower = cholesky.l_dirty();
    let half: f64 = (0..n).map(|i| ln(lower[(i, i)])).sum();
    let value = -0.5 * residual.dot(&a) - half;
    let w = (&a * a.transpose() - cholesky.inverse()) * 0.5;
    Some((value, a, w))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linear(noise_variance: Option<f64>) -> Linear {
        let moments = DMatrix::from_row_slice(2, 2, &[100.0, 20.0, 20.0, 80.0]);
        Linear {
            floored: moments.clone(),
            moments,
            pull: DVector::from_vec(vec![40.0, -10.0]),
            square: 60.0,
            rows: 100.0,
            weight: 1.0,
            deviation: 5.0,
            alpha: 0.75,
            start: DVector::from_vec(vec![0.4, -0.2]),
            bound: 2.0,
            pull_deviation: 4.0,
            second_pull: DVector::from_vec(vec![6.0, -4.0]),
            noise_variance,
        }
    }

    fn logistic() -> Logistic {
        let hessian = DMatrix::from_row_slice(2, 2, &[20.0, 3.0, 3.0, 15.0]);
        Logistic {
            floored: hessian.clone(),
            hessian,
            deviation: 2.0,
            alpha: 1.0,
            start: DVector::from_vec(vec![0.5, -0.25]),
            pull_deviation: 3.0,
            pull: DVector::from_vec(vec![4.0, -2.0]),
        }
    }

    /// privacy.md, section 10, test 6, which another program computed.
    #[test]
    fn the_density_is_that_of_another_program() {
        let posterior = Posterior::Linear(linear(None));
        let mut slope = [0.0; 3];
        let here = posterior.log_density(&[0.5, -0.1, 0.7f64.ln()], &mut slope);
        let there = posterior.log_density(&[0.4, -0.2, 0.6f64.ln()], &mut slope);
        assert!((here - there + 2.218_835).abs() < 1e-6, "{}", here - there);
    }

    #[test]
    fn gradients_are_those_of_the_density() {
        let known = Posterior::Linear(linear(Some(0.5)));
        let of = [(Posterior::Linear(linear(None)), 3), (known, 2)];
        let all = of.into_iter().chain([(Posterior::Logistic(logistic()), 2)]);
        for (posterior, dim) in all {
            assert_eq!(posterior.dim(), dim);
            for x in [[0.7, -0.5, -0.4], [-1.3, 0.2, 0.9]] {
                let x = &x[..dim];
                let mut slope = vec![0.0; dim];
                posterior.log_density(x, &mut slope);
                for i in 0..dim {
                    let at = |sign: f64| {
                        let mut moved = x.to_vec();
                        moved[i] += sign * 1e-5;
                        posterior.log_density(&moved, &mut vec![0.0; dim])
                    };
                    let numeric = (at(1.0) - at(-1.0)) / 2e-5;
                    let error = (slope[i] - numeric).abs();
                    assert!(error < 1e-5 * (1.0 + numeric.abs()), "{i}: {} {numeric}", slope[i]);
                }
            }
        }
    }
}

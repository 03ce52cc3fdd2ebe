//! Compare Gaussians in closed form, and fit them to draws.
//!
//! Matrices are row-major slices; eigenvectors come from nalgebra, whose `hypot` is the platform's,
//! so a last digit may differ between systems.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn, SVD, SymmetricEigen};

use super::log;
use super::summary::mean;

/// Why Gaussians cannot be made or compared.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum GaussianError {
    /// There is nothing to fit.
    #[error("a Gaussian needs a dimension and, if fitted, at least two draws")]
    Empty,
    /// Sizes do not fit together.
    #[error("{given} numbers were given where {needed} are needed")]
    Size {
        /// Numbers given.
        given: usize,
        /// Numbers needed.
        needed: usize,
    },
    /// A number is NaN or infinite.
    #[error("a number of the mean or covariance is {value}")]
    NotFinite {
        /// What it is.
        value: f64,
    },
    /// The covariance differs from its transpose.
    #[error("the covariance at ({row}, {column}) is not that at ({column}, {row})")]
    Asymmetric {
        /// Row of the first entry that differs.
        row: usize,
        /// Its column.
        column: usize,
    },
    /// The covariance has a direction of negative, or where a density is needed zero, variance.
    #[error("the covariance is not positive")]
    NotPositive,
    /// A standard deviation to scale by is not positive.
    #[error("the standard deviation of coordinate {coordinate} is {value}")]
    Scale {
        /// The coordinate.
        coordinate: usize,
        /// Its standard deviation.
        value: f64,
    },
    /// The matrix iteration did not end.
    #[error("the singular value decomposition did not converge")]
    NoConvergence,
}

/// A Gaussian law, possibly degenerate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gaussian {
    mean: Vec<f64>,
    covariance: DMatrix<f64>,
}

impl Gaussian {
    /// The law with the given mean and row-major covariance.
    pub fn new(mean: &[f64], covariance: &[f64]) -> Result<Self, GaussianError> {
        let d = mean.len();
        if d == 0 {
            return Err(GaussianError::Empty);
        }
        if covariance.len() != d * d {
            return Err(GaussianError::Size { given: covariance.len(), needed: d * d });
        }
        if let Some(&value) = mean.iter().chain(covariance).find(|value| !value.is_finite()) {
            return Err(GaussianError::NotFinite { value });
        }
        for row in 0..d {
            for column in 0..row {
                let (a, b) = (covariance[row * d + column], covariance[column * d + row]);
                let scale =
                    (covariance[row * d + row] * covariance[column * d + column]).abs().sqrt();
                if (a - b).abs() > 1e-9 * scale {
                    return Err(GaussianError::Asymmetric { row, column });
                }
            }
        }
        let given = DMatrix::from_row_slice(d, d, covariance);
        let covariance = (&given + given.transpose()) * 0.5; // to the last bit
        Ok(Gaussian { mean: mean.to_vec(), covariance })
    }

    /// The empirical mean and covariance (divisor `n - 1`) of draws, each a row of `dimension`
    /// numbers.
    pub fn of_draws(draws: &[f64], dimension: usize) -> Result<Self, GaussianError> {
        let d = dimension;
        if d == 0 || draws.len() < 2 * d {
            return Err(GaussianError::Empty);
        }
        if !draws.len().is_multiple_of(d) {
            return Err(GaussianError::Size {
                given: draws.len(),
                needed: draws.len().next_multiple_of(d),
            });
        }
        let column = |k: usize| draws.iter().skip(k).step_by(d);
        let n = draws.len() / d;
        let centre: Vec<f64> = (0..d).map(|k| column(k).sum::<f64>() / n as f64).collect();
        let mut covariance = vec![0.0; d * d];
        for draw in draws.chunks_exact(d) {
            for i in 0..d {
                let apart = draw[i] - centre[i];
                for j in 0..=i {
                    covariance[i * d + j] += apart * (draw[j] - centre[j]);
                }
            }
        }
        for i in 0..d {
            for j in 0..=i {
                covariance[i * d + j] /= n as f64 - 1.0;
                covariance[j * d + i] = covariance[i * d + j];
            }
        }
        Self::new(&centre, &covariance)
    }

    /// The mean.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The covariance, row-major.
    pub fn covariance(&self) -> &[f64] {
        self.covariance.as_slice() // symmetric: its columns are its rows
    }

    /// The standard deviation of each coordinate.
    pub fn sd(&self) -> Vec<f64> {
        self.covariance.diagonal().iter().map(|variance| variance.sqrt()).collect()
    }

    /// The 2-Wasserstein distance.
    ///
    /// With roots A, B of the covariances and the rotation R that brings them closest,
    /// `W2^2 = |m - m'|^2 + |A - B R|^2`: the trace formula's value, but a difference before it is
    /// squared, so that near laws keep their digits.
    pub fn w2(&self, other: &Gaussian) -> Result<f64, GaussianError> {
        self.same_size(other)?;
        let (a, b) = (root(&self.covariance)?, root(&other.covariance)?);
        let d = self.mean.len();
        let decomposed = SVD::try_new(&a * &b, true, true, f64::EPSILON, 1000 * d)
            .ok_or(GaussianError::NoConvergence)?;
        let (Some(u), Some(v_t)) = (decomposed.u, decomposed.v_t) else {
            return Err(GaussianError::NoConvergence);
        };
        let apart = a - b * (u * v_t).transpose();
        Ok((self.difference(other).norm_squared() + apart.norm_squared()).sqrt())
    }

    /// The Kullback-Leibler divergence `KL(self || other)`; both covariances must be positive
    /// definite.
    pub fn kl_to(&self, other: &Gaussian) -> Result<f64, GaussianError> {
        self.same_size(other)?;
        let (ours, theirs) = (factor(&self.covariance)?, factor(&other.covariance)?);
        let mut whitened = ours.l();
        let mut apart = self.difference(other);
        let solved = theirs.l_dirty().solve_lower_triangular_mut(&mut whitened)
            && theirs.l_dirty().solve_lower_triangular_mut(&mut apart);
        if !solved {
            return Err(GaussianError::NotPositive);
        }
        // ln det: twice the logarithms of the factors' diagonals.
        let log_ratio: f64 = whitened.diagonal().iter().map(|ratio| log(*ratio)).sum();
        Ok(0.5 * (whitened.norm_squared() + apart.norm_squared() - self.mean.len() as f64)
            - log_ratio)
    }

    fn same_size(&self, other: &Gaussian) -> Result<(), GaussianError> {
        let (given, needed) = (other.mean.len(), self.mean.len());
        if given == needed { Ok(()) } else { Err(GaussianError::Size { given, needed }) }
    }

    fn difference(&self, other: &Gaussian) -> DVector<f64> {
        DVector::from_iterator(
            self.mean.len(),
            self.mean.iter().zip(&other.mean).map(|(a, b)| a - b),
        )
    }
}

/// The symmetric root; eigenvalues negative by no more than rounding count as zero.
fn root(covariance: &DMatrix<f64>) -> Result<DMatrix<f64>, GaussianError> {
    let d = covariance.nrows();
    let eigen = SymmetricEigen::try_new(covariance.clone(), f64::EPSILON, 1000 * d)
        .ok_or(GaussianError::NoConvergence)?;
    if eigen.eigenvalues.min() < -1e-12 * d as f64 * eigen.eigenvalues.amax() {
        return Err(GaussianError::NotPositive);
    }
    let mut scaled = eigen.eigenvectors.clone();
    for (mut column, value) in scaled.column_iter_mut().zip(&eigen.eigenvalues) {
        column *= value.max(0.0).sqrt();
    }
    Ok(scaled * eigen.eigenvectors.transpose())
}

fn factor(covariance: &DMatrix<f64>) -> Result<Cholesky<f64, Dyn>, GaussianError> {
    Cholesky::new(covariance.clone()).ok_or(GaussianError::NotPositive)
}

/// How far apart two means are, in standard deviations of the posterior.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledDistance {
    /// Root mean square over the coordinates.
    pub root_mean_square: f64,
    /// The largest over the coordinates.
    pub largest: f64,
}

/// The distance of two means coordinate by coordinate, in units of the posterior's standard
/// deviations; NaN if a mean is.
pub fn scaled_distance(
    left: &[f64],
    right: &[f64],
    posterior_sd: &[f64],
) -> Result<ScaledDistance, GaussianError> {
    if left.is_empty() {
        return Err(GaussianError::Empty);
    }
    for given in [right.len(), posterior_sd.len()] {
        if given != left.len() {
            return Err(GaussianError::Size { given, needed: left.len() });
        }
    }
    if let Some(coordinate) = posterior_sd.iter().position(|&sd| !(sd > 0.0 && sd.is_finite())) {
        return Err(GaussianError::Scale { coordinate, value: posterior_sd[coordinate] });
    }
    let scaled = |k: usize| (left[k] - right[k]).abs() / posterior_sd[k];
    let squares: Vec<f64> = (0..left.len()).map(|k| scaled(k) * scaled(k)).collect();
    let root_mean_square = mean(&squares).sqrt();
    let largest = if root_mean_square.is_nan() {
        f64::NAN
    } else {
        (0..left.len()).map(scaled).fold(0.0, f64::max)
    };
    Ok(ScaledDistance { root_mean_square, largest })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(mean: f64, sd: f64) -> Gaussian {
        Gaussian::new(&[mean], &[sd * sd]).unwrap()
    }

    #[test]
    fn on_a_line_by_hand() {
        // 3 and 4 make 5
        assert!((line(1.0, 2.0).w2(&line(4.0, 6.0)).unwrap() - 5.0).abs() < 1e-14);
        // KL(N(1, 4) || N(4, 36)) = ln 3 + (4 + 9) / 72 - 1/2.
        let exact = 3f64.ln() + 13.0 / 72.0 - 0.5;
        assert!((line(1.0, 2.0).kl_to(&line(4.0, 6.0)).unwrap() - exact).abs() < 1e-15);
    }

    #[test]
    fn commuting_covariances_by_hand() {
        // A common rotation by 3-4-5: roots diag(1, 2) and diag(3, 5), so W2^2 = 4 + 9 whatever the
        // rotation.
        let rotated = |a: f64, b: f64| {
            let (c, s) = (0.6, 0.8);
            let off = c * s * (a - b);
            [c * c * a + s * s * b, off, off, s * s * a + c * c * b]
        };
        let (p, q) = (
            Gaussian::new(&[0.0, 1.0], &rotated(1.0, 4.0)).unwrap(),
            Gaussian::new(&[0.0, 1.0], &rotated(9.0, 25.0)).unwrap(),
        );
        assert!((p.w2(&q).unwrap() - 13f64.sqrt()).abs() < 1e-14);
        let exact = 0.5 * (1.0 / 9.0 + 4.0 / 25.0 - 2.0) + (7.5f64).ln();
        assert!((p.kl_to(&q).unwrap() - exact).abs() < 1e-14);
    }

    #[test]
    fn near_laws_keep_their_digits() {
        let p = Gaussian::new(&[0.0, 0.0], &[2.0, 0.5, 0.5, 1.0]).unwrap();
        assert!(p.w2(&p).unwrap() < 1e-14);
        let step = 1e-10;
        let (near, far) = (line(0.0, 1.0), line(0.0, 1.0 + step));
        // the trace formula's square would be lost in rounding
        assert!((near.w2(&far).unwrap() / step - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_point_is_a_gaussian_too() {
        let point = Gaussian::new(&[1.0, 1.0], &[0.0; 4]).unwrap();
        let flat = Gaussian::new(&[0.0, 0.0], &[1.0, 1.0, 1.0, 1.0]).unwrap();
        // 1 + 1 for the means, 2 for the trace
        assert!((point.w2(&flat).unwrap() - 2.0).abs() < 1e-14);
        assert_eq!(point.kl_to(&flat), Err(GaussianError::NotPositive));
        // Draws on a line in four dimensions: rounding makes some eigenvalues negative, which must
        // not make the distance NaN.
        let line_of_draws: Vec<f64> = (0..30)
            .flat_map(|k| [0.1, 0.7, 0.3, 0.9].map(|slope| slope * f64::from(k * k % 31)))
            .collect();
        let fitted = Gaussian::of_draws(&line_of_draws, 4).unwrap();
        let trace: f64 = fitted.sd().iter().map(|sd| sd * sd).sum();
        let centre = Gaussian::new(fitted.mean(), &[0.0; 16]).unwrap();
        assert!((fitted.w2(&centre).unwrap() - trace.sqrt()).abs() < 1e-12 * trace.sqrt());
    }

    #[test]
    fn moments_of_draws_by_hand() {
        let fitted = Gaussian::of_draws(&[1.0, 2.0, 3.0, 2.0, 5.0, 8.0], 2).unwrap();
        assert_eq!(fitted.mean(), [3.0, 4.0]);
        assert_eq!(fitted.covariance(), [4.0, 6.0, 6.0, 12.0]);
        assert_eq!(fitted.sd(), [2.0, 12f64.sqrt()]);
    }

    #[test]
    fn distances_are_in_standard_deviations() {
        // 1 and 7
        let distance = scaled_distance(&[1.0, 2.0], &[4.0, -2.0], &[3.0, 4.0 / 7.0]).unwrap();
        assert!(
            (distance.root_mean_square - 5.0).abs() < 1e-15
                && (distance.largest - 7.0).abs() < 1e-15
        );
        assert!(
            scaled_distance(&[f64::NAN, 2.0], &[4.0, -2.0], &[3.0, 4.0]).unwrap().largest.is_nan()
        );
        assert_eq!(
            scaled_distance(&[1.0], &[1.0], &[0.0]),
            Err(GaussianError::Scale { coordinate: 0, value: 0.0 })
        );
        assert_eq!(
            scaled_distance(&[1.0], &[1.0, 2.0], &[1.0]),
            Err(GaussianError::Size { given: 2, needed: 1 })
        );
        assert_eq!(scaled_distance(&[], &[], &[]), Err(GaussianError::Empty));
    }

    #[test]
    fn what_is_no_gaussian_is_refused() {
        assert_eq!(Gaussian::new(&[], &[]), Err(GaussianError::Empty));
        assert_eq!(
            Gaussian::new(&[0.0], &[1.0, 2.0]),
            Err(GaussianError::Size { given: 2, needed: 1 })
        );
        assert!(matches!(Gaussian::new(&[f64::NAN], &[1.0]), Err(GaussianError::NotFinite { .. })));
        assert_eq!(
            Gaussian::new(&[0.0; 2], &[1.0, 0.5, 0.4, 1.0]),
            Err(GaussianError::Asymmetric { row: 1, column: 0 })
        );
        let saddle = Gaussian::new(&[0.0; 2], &[1.0, 2.0, 2.0, 1.0]).unwrap();
        assert_eq!(saddle.w2(&saddle), Err(GaussianError::NotPositive));
        assert_eq!(line(0.0, 1.0).w2(&saddle), Err(GaussianError::Size { given: 2, needed: 1 }));
        assert_eq!(Gaussian::of_draws(&[1.0, 2.0], 2), Err(GaussianError::Empty));
        assert_eq!(
            Gaussian::of_draws(&[1.0; 5], 2),
            Err(GaussianError::Size { given: 5, needed: 6 })
        );
    }
}

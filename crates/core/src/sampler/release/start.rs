//! Find where the second release is taken, from the first one; shrink noisy matrices.

use nalgebra::{DMatrix, DVector};

use crate::model::GAUSS_HERMITE;
use crate::simd::sigmoid;

/// A symmetric matrix from its upper triangle, row by row.
pub(super) fn symmetric(triangle: &[f64], dim: usize) -> DMatrix<f64> {
    let mut matrix = DMatrix::zeros(dim, dim);
    let mut next = triangle.iter();
    for i in 0..dim {
        for (j, value) in (i..dim).zip(&mut next) {
            matrix[(i, j)] = *value;
            matrix[(j, i)] = *value;
        }
    }
    matrix
}

/// A noisy matrix drawn towards the multiple of the identity that it is nearest to, by as much as
/// its noise says; and `alpha`, the part of what differs from that which is kept (its noise keeps a
/// variance of `alpha t^2`).
pub(super) fn shrink(matrix: &DMatrix<f64>, deviation: f64) -> (DMatrix<f64>, f64) {
    let d = matrix.nrows();
    if d < 2 {
        return (matrix.clone(), 1.0); // nothing differs from a multiple of the identity
    }
    let identity = DMatrix::identity(d, d) * (matrix.trace() / d as f64);
    let apart = matrix - &identity;
    let noise = deviation * deviation;
    let free = (d * (d + 1) / 2 - 1) as f64;
    let signal = (apart.norm_squared() / free - noise).max(0.02 * noise);
    let alpha = signal / (signal + noise);
    (identity + apart * alpha, alpha)
}

/// The matrix with no eigenvalue below `least`; and its own least eigenvalue.
pub(super) fn floored(matrix: &DMatrix<f64>, least: f64) -> (DMatrix<f64>, f64) {
    let eigen = matrix.clone().symmetric_eigen();
    let raised = DMatrix::from_diagonal(&eigen.eigenvalues.map(|value| value.max(least)));
    let vectors = &eigen.eigenvectors;
    (vectors * raised * vectors.transpose(), eigen.eigenvalues.min())
}

/// `2 E p (1 - p)` where log-odds are normal with mean 0 and variance `v`.
pub(super) fn attenuation(v: f64) -> f64 {
    let mean: f64 = GAUSS_HERMITE
        .iter()
        .map(|(z, weight)| {
            let p = sigmoid(v.sqrt() * z);
            2.0 * weight * p * (1.0 - p) // at z and at -z
        })
        .sum();
    2.0 * mean
}

/// The largest variance of log-odds at which a start is taken.
const MOST_VARIANCE: f64 = 9.0;

/// A start of logistic regression from `sum x x'` (positive definite) and `sum y x`, as if
/// predictors were normal; `None` where there is none.
pub(super) fn logistic_start(
    moments: &DMatrix<f64>,
    pull: &DVector<f64>,
    rows: f64,
) -> Option<DVector<f64>> {
    let u = moments.clone().cholesky()?.solve(pull);
    let spread = |x: &DVector<f64>| x.dot(&(moments * x)) / rows;
    let seen = spread(&u).min(MOST_VARIANCE * attenuation(MOST_VARIANCE).powi(2));
    let (mut low, mut high) = (0.0, MOST_VARIANCE);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if middle * attenuation(middle).powi(2) < seen {
            low = middle;
        } else {
            high = middle;
        }
    }
    let start = u / attenuation(0.5 * (low + high));
    let least = (MOST_VARIANCE / spread(&start).max(1e-12)).sqrt().min(1.0);
    Some(start * least)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// privacy.md, section 10, test 5.
    #[test]
    fn what_differs_is_kept_by_its_signal() {
        let matrix = DMatrix::from_row_slice(2, 2, &[20.0, 3.0, 3.0, 15.0]);
        let (shrunk, alpha) = shrink(&matrix, 2.0);
        assert!((alpha - 0.737_705).abs() < 1e-6, "{alpha}");
        assert!((shrunk[(0, 1)] - 3.0 * alpha).abs() < 1e-12);
        assert!((shrunk.trace() - 35.0).abs() < 1e-12);
        assert!((attenuation(1.0) - 0.413_242).abs() < 1e-6, "{}", attenuation(1.0));
        assert!((attenuation(0.0) - 0.5).abs() < 1e-12);
    }

    /// Without noise, and with normal predictors, the start is the truth.
    #[test]
    fn a_start_is_the_truth_where_predictors_are_normal() {
        let moments = DMatrix::from_row_slice(2, 2, &[900.0, 200.0, 200.0, 400.0]);
        let truth = DVector::from_vec(vec![0.8, -1.1]);
        let v = truth.dot(&(&moments * &truth)) / 1000.0;
        let pull = &moments * &truth * attenuation(v);
        let start = logistic_start(&moments, &pull, 1000.0).unwrap();
        assert!((start - truth).norm() < 1e-9);
    }

    #[test]
    fn eigenvalues_are_raised_and_others_left_alone() {
        let matrix = DMatrix::from_row_slice(2, 2, &[1.0, 2.0, 2.0, 1.0]); // 3 and -1
        let (raised, least) = floored(&matrix, 0.5);
        assert!((least + 1.0).abs() < 1e-12);
        assert!((raised.trace() - 3.5).abs() < 1e-12 && (raised[(0, 1)] - 1.25).abs() < 1e-12);
    }
}

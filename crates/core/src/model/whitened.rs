//! Look at a potential in coordinates in which the posterior is round.
//!
//! With `x = centre + C u` and `C C'` the inverse Hessian at the optimum, the posterior of `u` is
//! close to a standard normal whatever the scales and correlations of `x`: the step can be as large
//! in every direction, and chains mix in a few iterations. The map is affine, so draws of `u`
//! become draws of `x` by applying it: nothing is approximated.

use std::sync::Arc;

use nalgebra::{DMatrix, DVector};

use super::{Potential, Prior, Quadratic, Rows, Spread};
use crate::linalg::{add_scaled, dot};
use crate::simd::vectorised;

/// `x = centre + C u`.
#[derive(Clone, Debug, PartialEq)]
pub struct Coordinates {
    centre: Vec<f64>,
    /// `C`, row by row.
    matrix: Vec<f64>,
    /// `C'`, row by row.
    transposed: Vec<f64>,
    /// `L'` with `L L'` the Hessian: the inverse of `C`, row by row.
    inverse: Vec<f64>,
}

impl Coordinates {
    /// The coordinates in which the Hessian (row-major) is the identity; `None` if it is not
    /// positive definite.
    pub fn whitening(centre: &[f64], hessian: &[f64]) -> Option<Self> {
        let d = centre.len();
        let lower = DMatrix::from_row_slice(d, d, hessian).cholesky()?.unpack();
        let matrix = lower.transpose().solve_upper_triangular(&DMatrix::identity(d, d))?;
        // nalgebra is column-major: the slice of a matrix is its transpose row by row.
        let rows = |m: &DMatrix<f64>| m.transpose().as_slice().to_vec();
        Some(Coordinates {
            centre: centre.to_vec(),
            matrix: rows(&matrix),
            transposed: rows(&matrix.transpose()),
            inverse: rows(&lower.transpose()),
        })
    }

    /// The coordinates that another party found: the centre and `C` (row-major); `None` if `C` is
    /// not upper triangular with finite numbers and an inverse.
    pub fn told(centre: Vec<f64>, matrix: Vec<f64>) -> Option<Self> {
        let d = centre.len();
        let upper = |(at, c): (usize, &f64)| c.is_finite() && (at % d >= at / d || *c == 0.0);
        if d == 0
            || matrix.len() != d * d
            || !centre.iter().all(|x| x.is_finite())
            || !matrix.iter().enumerate().all(upper)
        {
            return None;
        }
        let c = DMatrix::from_row_slice(d, d, &matrix);
        let inverse = c.solve_upper_triangular(&DMatrix::identity(d, d))?;
        let transposed = c.as_slice().to_vec(); // nalgebra is column-major
        Some(Coordinates {
            centre,
            matrix,
            transposed,
            inverse: inverse.transpose().as_slice().to_vec(),
        })
    }

    /// The centre and `C` (row-major): what another party must be told.
    pub fn parts(&self) -> (&[f64], &[f64]) {
        (&self.centre, &self.matrix)
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.centre.len()
    }

    /// `x` from `u`, into `out`.
    pub fn outward(&self, u: &[f64], out: &mut [f64]) {
        out.copy_from_slice(&self.centre);
        add_product(&self.transposed, u, 1.0, out);
    }

    /// `out += C v`: a direction in `u` as a direction in `x`.
    pub fn add_direction(&self, v: &[f64], out: &mut [f64]) {
        add_product(&self.transposed, v, 1.0, out);
    }

    /// `out += scale * C' gradient`: a gradient in `x` as a gradient in `u`.
    pub fn add_pulled_back(&self, gradient: &[f64], scale: f64, out: &mut [f64]) {
        add_product(&self.matrix, gradient, scale, out);
    }

    /// The covariance of `x` from that of `u`, both row-major.
    pub fn outward_covariance(&self, covariance: &[f64]) -> Vec<f64> {
        let d = self.dim();
        let c = DMatrix::from_row_slice(d, d, &self.matrix);
        let moved = &c * DMatrix::from_row_slice(d, d, covariance) * c.transpose();
        ((&moved + moved.transpose()) * 0.5).as_slice().to_vec()
    }

    /// `u` from `x`.
    pub fn inward(&self, x: &[f64]) -> Vec<f64> {
        let moved: Vec<f64> = x.iter().zip(&self.centre).map(|(x, c)| x - c).collect();
        self.inverse.chunks_exact(self.dim()).map(|row| dot(row, &moved)).collect()
    }
}

/// `out += scale * M v`, where `columns` are the columns of `M` one after the other.
fn add_product(columns: &[f64], v: &[f64], scale: f64, out: &mut [f64]) {
    vectorised(|| {
        for (column, by) in columns.chunks_exact(out.len()).zip(v) {
            add_scaled(scale * by, column, out);
        }
    });
}

/// A client's potential with its share of the prior, as a function of `u`. The prior is spread
/// evenly over the rows, so that any minibatch, scaled up, carries it exactly.
#[derive(Clone, Debug)]
pub struct Whitened {
    inner: Arc<dyn Potential>,
    prior: Prior,
    prior_weight: f64,
    coordinates: Arc<Coordinates>,
}

impl Whitened {
    /// The potential `inner + prior_weight * prior` in other coordinates.
    pub fn new(
        inner: Arc<dyn Potential>,
        prior: Prior,
        prior_weight: f64,
        coordinates: Arc<Coordinates>,
    ) -> Self {
        Whitened { inner, prior, prior_weight, coordinates }
    }

    fn share(&self, rows: Rows<'_>) -> f64 {
        self.prior_weight * rows.count(self.inner.rows()) as f64 / self.inner.rows() as f64
    }
}

impl Potential for Whitened {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn scratch(&self) -> usize {
        3 * self.inner.dim() + self.inner.scratch()
    }

    fn value(&self, u: &[f64], scratch: &mut [f64]) -> f64 {
        let (x, rest) = scratch.split_at_mut(self.dim());
        self.coordinates.outward(u, x);
        self.inner.value(x, rest) + self.prior_weight * self.prior.value(x)
    }

    fn add_gradient(
        &self,
        u: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (x, rest) = scratch.split_at_mut(self.dim());
        let (gradient, rest) = rest.split_at_mut(self.dim());
        self.coordinates.outward(u, x);
        gradient.fill(0.0);
        self.inner.add_gradient(x, rows, 1.0, gradient, rest);
        self.prior.add_gradient(x, self.share(rows), gradient);
        self.coordinates.add_pulled_back(gradient, scale, out);
    }

    fn add_gradient_difference(
        &self,
        u: &[f64],
        w: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (x, rest) = scratch.split_at_mut(self.dim());
        let (z, rest) = rest.split_at_mut(self.dim());
        let (gradient, rest) = rest.split_at_mut(self.dim());
        self.coordinates.outward(u, x);
        self.coordinates.outward(w, z);
        gradient.fill(0.0);
        self.inner.add_gradient_difference(x, z, rows, 1.0, gradient, rest);
        self.prior.add_gradient_difference(x, z, self.share(rows), gradient);
        self.coordinates.add_pulled_back(gradient, scale, out);
    }

    fn add_hessian_vector(
        &self,
        u: &[f64],
        v: &[f64],
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (x, rest) = scratch.split_at_mut(self.dim());
        let (direction, rest) = rest.split_at_mut(self.dim());
        let (image, rest) = rest.split_at_mut(self.dim());
        self.coordinates.outward(u, x);
        direction.fill(0.0);
        self.coordinates.add_direction(v, direction);
        image.fill(0.0);
        self.inner.add_hessian_vector(x, direction, 1.0, image, rest);
        self.prior.add_hessian_vector(direction, self.prior_weight, image);
        self.coordinates.add_pulled_back(image, scale, out);
    }

    fn differences_ignore_rows(&self) -> bool {
        self.inner.differences_ignore_rows()
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        let stretch = DMatrix::from_row_slice(self.dim(), self.dim(), &self.coordinates.matrix)
            .singular_values()
            .max();
        let prior = self.prior_weight * self.prior.curvature().0 / self.rows() as f64;
        (self.inner.row_smoothness(row) + prior) * stretch * stretch
    }

    fn quadratic(&self) -> Option<Quadratic> {
        let d = self.dim();
        let prior = match &self.prior {
            Prior::Flat => DMatrix::zeros(d, d),
            Prior::Gaussian(precision) => {
                DMatrix::from_diagonal(&DVector::from_column_slice(precision)) * self.prior_weight
            }
            Prior::Laplace { .. } => return None,
        };
        let form = self.inner.quadratic()?;
        let c = DMatrix::from_row_slice(d, d, &self.coordinates.matrix);
        let centre = DVector::from_column_slice(&self.coordinates.centre);
        // With gradient H x - r in x it is C' H C u - C' (r - H centre) in u.
        let whiten = |h: &[f64], r: &[f64], share: f64| {
            let h = DMatrix::from_row_slice(d, d, h) + &prior * share;
            let r = DVector::from_column_slice(r) - &h * &centre;
            let precision = c.tr_mul(&h) * &c;
            (
                ((&precision + precision.transpose()) * 0.5).as_slice().to_vec(),
                c.tr_mul(&r).as_slice().to_vec(),
            )
        };
        let (precision, shift) = whiten(&form.precision, &form.shift, 1.0);
        let spread = match form.spread {
            Spread::None => Spread::None,
            Spread::Shifts(sum) => Spread::Shifts(
                (c.tr_mul(&DMatrix::from_row_slice(d, d, &sum)) * &c).as_slice().to_vec(),
            ),
            Spread::Rows(rows) => Spread::Rows(
                rows.iter().map(|(h, r)| whiten(h, r, 1.0 / self.rows() as f64)).collect(),
            ),
        };
        Some(Quadratic { precision, shift, spread })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inward_undoes_outward_and_the_hessian_becomes_the_identity() {
        let (centre, hessian) = ([1.0, -2.0], [4.0, 1.0, 1.0, 3.0]);
        let coordinates = Coordinates::whitening(&centre, &hessian).unwrap();
        let (u, mut x) = ([0.3, -0.7], [0.0; 2]);
        coordinates.outward(&u, &mut x);
        assert!(coordinates.inward(&x).iter().zip(u).all(|(a, b)| (a - b).abs() < 1e-14));
        let c = DMatrix::from_row_slice(2, 2, &coordinates.matrix);
        let white = c.transpose() * DMatrix::from_row_slice(2, 2, &hessian) * c;
        assert!((white - DMatrix::identity(2, 2)).amax() < 1e-14);
        let (centre_told, matrix) = coordinates.parts();
        let told = Coordinates::told(centre_told.to_vec(), matrix.to_vec()).unwrap();
        assert_eq!(
            (&told.matrix, &told.transposed),
            (&coordinates.matrix, &coordinates.transposed)
        );
        assert!(told.inverse.iter().zip(&coordinates.inverse).all(|(a, b)| (a - b).abs() < 1e-14));
        assert!(
            Coordinates::told(vec![0.0], vec![f64::NAN]).is_none()
                && Coordinates::told(vec![0.0], vec![0.0]).is_none()
        );
        assert!(Coordinates::whitening(&centre, &[1.0, 2.0, 2.0, 1.0]).is_none());
    }
}

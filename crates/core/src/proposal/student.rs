//! Propose points by their address: everybody who knows the map computes the same ones.

use nalgebra::DMatrix;

use super::{AxisMap, symmetric};
use crate::linalg::{add_scaled, norm_squared};
use crate::rng::{Purpose, SERVER, Seed};
use crate::simd::ln;

/// `x = m + A T(z)` with `A A' = C`, and `z` of a Student law: its tails are heavier than a
/// posterior's, so that weights stay bounded. `T` bends some of the axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    mean: Vec<f64>,
    /// The columns of `A`, one behind the other.
    columns: Vec<f64>,
    /// The axes that are bent.
    maps: Vec<(usize, AxisMap)>,
    freedom: u32,
}

impl Proposal {
    /// The proposal around `mean` whose covariance, but for the heavier tails, is the inverse of
    /// `precision` (row by row); `None` if that is not positive definite. `freedom` is the Student
    /// law's degrees of freedom; 0 stands for a Gaussian.
    pub fn new(mean: Vec<f64>, precision: &[f64], freedom: u32) -> Option<Self> {
        let d = mean.len();
        let lower = symmetric(precision, d).cholesky()?.unpack();
        // With P = L L' the matrix L'^-1 has L'^-1 L^-1 = P^-1.
        let root = lower.transpose().solve_upper_triangular(&DMatrix::identity(d, d))?;
        Some(Proposal::along(mean, root.as_slice().to_vec(), Vec::new(), freedom))
    }

    /// The proposal along these axes (the columns of `A`, one behind the other), of which some are
    /// bent.
    pub fn along(
        mean: Vec<f64>,
        columns: Vec<f64>,
        maps: Vec<(usize, AxisMap)>,
        freedom: u32,
    ) -> Self {
        Proposal { mean, columns, maps, freedom }
    }

    /// The degrees of freedom that fit a posterior of so many parameters, unless a pilot shows
    /// heavier tails.
    pub fn usual_freedom(dim: usize) -> u32 {
        (4 * dim).max(50) as u32
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.mean.len()
    }

    /// Where it is centred.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// Write proposal number `k` of a chain to `x`, and say the logarithm of the proposal's density
    /// there, up to a constant that is the same for all points.
    pub fn draw(&self, seed: Seed, k: u64, x: &mut [f64]) -> f64 {
        let mut stream = seed.stream(Purpose::Proposal, SERVER, k);
        let mut z = vec![0.0; self.dim()];
        stream.normals(&mut z);
        if self.freedom > 0 {
            let mut squares = vec![0.0; self.freedom as usize];
            stream.normals(&mut squares);
            let stretch = (norm_squared(&squares) / f64::from(self.freedom)).sqrt();
            z.iter_mut().for_each(|z| *z /= stretch);
        }
        let mut log = self.log_density(norm_squared(&z));
        for (axis, map) in &self.maps {
            let (bent, slope) = map.apply(z[*axis]);
            z[*axis] = bent;
            log -= ln(slope);
        }
        self.outward(&z, x);
        log
    }

    /// `m + A z`, into `x`.
    fn outward(&self, z: &[f64], x: &mut [f64]) {
        x.copy_from_slice(&self.mean);
        for (column, z) in self.columns.chunks_exact(self.dim().max(1)).zip(z) {
            add_scaled(*z, column, x);
        }
    }

    /// By the square of `z`.
    fn log_density(&self, square: f64) -> f64 {
        if self.freedom == 0 {
            return -0.5 * square;
        }
        let freedom = f64::from(self.freedom);
        -0.5 * (freedom + self.dim() as f64) * ln(1.0 + square / freedom)
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;

    use super::super::PROFILE;
    use super::*;

    const PRECISION: [f64; 4] = [2.0, 0.6, 0.6, 1.0];

    /// Moments of 40,000 draws against those of the law: the covariance of a Student law is
    /// `C nu / (nu - 2)`. A mean is off by 1/200 of a standard deviation, a second moment by about
    /// 1/100: bounds are 4.9 such errors.
    #[test]
    fn draws_have_the_moments_of_their_law() {
        for freedom in [0, 8, 50] {
            let proposal = Proposal::new(vec![1.0, -2.0], &PRECISION, freedom).unwrap();
            let n = 40_000;
            let (mut sum, mut squares) = ([0.0; 2], [0.0; 3]);
            for k in 0..n {
                let mut x = [0.0; 2];
                proposal.draw(Seed::new(3), k, &mut x);
                let (a, b) = (x[0] - 1.0, x[1] + 2.0);
                sum = [sum[0] + a, sum[1] + b];
                squares = [squares[0] + a * a, squares[1] + a * b, squares[2] + b * b];
            }
            let determinant = 2.0 - 0.36;
            let wider =
                if freedom == 0 { 1.0 } else { f64::from(freedom) / f64::from(freedom - 2) };
            let exact = [1.0, -0.6, 2.0].map(|c| wider * c / determinant);
            // The fourth moment of a Student law of 8 is (nu - 2)/(nu - 4) = 1.5 times as large.
            let error = 4.9 * 0.011 * if freedom == 8 { 1.5 } else { 1.0 };
            for (found, exact) in squares.map(|s| s / n as f64).iter().zip(exact) {
                assert!((found - exact).abs() < error * exact.abs().max(1.0), "{found} {exact}");
            }
            assert!(sum.iter().all(|s| (s / n as f64).abs() < 4.9 / 200.0 * 1.5), "{sum:?}");
        }
    }

    /// The density that is said is the density that is drawn from: the mean of `p/q` over draws of
    /// `q`, with both in full, is 1 for any `p`.
    #[test]
    fn the_density_that_is_said_is_the_one_that_is_drawn_from() {
        let proposal = Proposal::new(vec![0.5], &[4.0], 5).unwrap();
        // q(x) = q0 * exp(log density), with q0 = Gamma(3) / (Gamma(5/2) sqrt(5 pi)) / sigma
        let constant = 2.0 / (0.75 * PI.sqrt() * (5.0 * PI).sqrt()) / 0.5;
        let n = 200_000;
        let normal =
            |x: f64| (-0.5 * (x - 0.7) * (x - 0.7) / 0.09).exp() / (0.3 * (2.0 * PI).sqrt());
        let mean: f64 = (0..n)
            .map(|k| {
                let mut x = [0.0];
                let log = proposal.draw(Seed::new(4), k, &mut x);
                normal(x[0]) / (constant * log.exp())
            })
            .sum::<f64>()
            / n as f64;
        assert!((mean - 1.0).abs() < 4.9 * 1.2 / (n as f64).sqrt(), "{mean}");
    }

    /// The same along a bent axis, where the slope of the map stands in the density.
    #[test]
    fn the_density_of_a_bent_axis_is_the_one_that_is_drawn_from() {
        let profile = PROFILE.map(|r: f64| 4.0 * ((-0.6 * r).exp() - 1.0 + 0.6 * r));
        let (map, _) = AxisMap::new(&profile).unwrap();
        let proposal = Proposal::along(vec![0.5], vec![0.5], vec![(0, map)], 0);
        let constant = 1.0 / (0.5 * (2.0 * PI).sqrt());
        let n = 200_000;
        let normal = |x: f64| (-0.5 * ((x - 0.7) / 0.3).powi(2)).exp() / (0.3 * (2.0 * PI).sqrt());
        let mean: f64 = (0..n)
            .map(|k| {
                let mut x = [0.0];
                let log = proposal.draw(Seed::new(4), k, &mut x);
                normal(x[0]) / (constant * log.exp())
            })
            .sum::<f64>()
            / n as f64;
        assert!((mean - 1.0).abs() < 4.9 * 1.2 / (n as f64).sqrt(), "{mean}");
    }

    #[test]
    fn a_point_is_its_address() {
        let proposal =
            Proposal::new(vec![0.0; 3], &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], 50);
        let proposal = proposal.unwrap();
        let at = |k: u64| {
            let mut x = [0.0; 3];
            let log = proposal.draw(Seed::new(9), k, &mut x);
            (x, log)
        };
        assert_eq!(at(7), at(7));
        assert_ne!(at(7), at(8));
        assert!(Proposal::new(vec![0.0], &[-1.0], 0).is_none());
    }
}

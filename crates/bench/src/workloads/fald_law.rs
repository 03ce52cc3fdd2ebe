//! Compute FALD's stationary second moment on Gaussian clients, at a cost that does not grow with
//! the square of their number.
//!
//! At communications the chain is `x' = A_T x + c_T + noise_T` with `T` geometric and `A_T` the
//! clients' mean of `(I - gamma P_i)^T`; its first two moments solve linear systems of sizes `d`
//! and `d^2`.

use nalgebra::{DMatrix, DVector};

/// What is known of the chain.
pub struct Fald<'a> {
    /// The clients' precisions.
    pub precisions: &'a [DMatrix<f64>],
    /// Their means, from the posterior's.
    pub means: &'a [DVector<f64>],
    /// The step in FALD's own letters.
    pub gamma: f64,
    /// The probability of a communication.
    pub p: f64,
    /// The share of common noise.
    pub tau: f64,
}

impl Fald<'_> {
    /// `E norm(x - x*)^2` at communications; `None` where the chain is unstable.
    pub fn second_moment(&self) -> Option<f64> {
        let (b, d) = (self.precisions.len() as f64, self.means.first()?.len());
        let identity = DMatrix::<f64>::identity(d, d);
        let steps: Vec<DMatrix<f64>> =
            self.precisions.iter().map(|p| &identity - p * self.gamma).collect();
        let mut powers = vec![identity.clone(); steps.len()];
        let mean_of = |powers: &[DMatrix<f64>]| {
            powers.iter().fold(DMatrix::zeros(d, d), |sum, p| sum + p) / b
        };
        let (mut own, mut shared) = (DMatrix::zeros(d, d), DMatrix::zeros(d, d));
        let (mut map, mut shift) = (DMatrix::zeros(d, d), DVector::zeros(d));
        let (mut maps, mut shifts, mut noise) =
            (DMatrix::zeros(d * d, d * d), DMatrix::zeros(d, d), DMatrix::zeros(d, d));
        let mut waits = Vec::new();
        let (mut weight, mut total) = (self.p, 0.0);
        while weight > 1e-14 * self.p {
            own += powers.iter().fold(DMatrix::zeros(d, d), |sum, a| sum + a * a.transpose())
                / (b * b);
            let before = mean_of(&powers);
            shared += &before * before.transpose();
            powers.iter_mut().zip(&steps).for_each(|(power, step)| *power = &*power * step);
            let a = mean_of(&powers);
            let c = powers
                .iter()
                .zip(self.means)
                .fold(DVector::zeros(d), |sum, (power, m)| sum + m - power * m)
                / b;
            map += &a * weight;
            shift += &c * weight;
            maps += a.kronecker(&a) * weight;
            shifts += &c * c.transpose() * weight;
            noise +=
                (&own * (1.0 - self.tau) + &shared * (self.tau / b)) * (2.0 * self.gamma * weight);
            waits.push((weight, a, c));
            total += weight;
            weight *= 1.0 - self.p;
        }
        let mean = (&identity - map / total).lu().solve(&(shift / total))?;
        let cross = waits.iter().fold(DMatrix::zeros(d, d), |sum, (w, a, c)| {
            sum + a * &mean * c.transpose() * (w / total)
        });
        let right = (shifts + noise) / total + &cross + cross.transpose();
        let flat = DVector::from_column_slice(right.as_slice()); // symmetric: columns are rows
        let second = (DMatrix::identity(d * d, d * d) - maps / total).lu().solve(&flat)?;
        Some((0..d).map(|k| second[k * (d + 1)]).sum())
    }
}

//! Take parameters that are positive, ordered or correlations from the scale on which chains move,
//! where every number is allowed, to their natural one, and back.
//!
//! | transform | natural, from `u` | log of the Jacobian |
//! |---|---|---|
//! | positive | `exp(u_k)` | `sum_k u_k` |
//! | ordered | `c_1 = u_1`, `c_k = c_{k-1} + exp(u_k)` | `sum_{k > 1} u_k` |
//! | correlation | `tanh(u_k)` | `sum_k log(1 - tanh(u_k)^2)` |
//!
//! Potentials are functions of `u`; draws are shown on the natural scale, where they are kept. The
//! Jacobian belongs to the prior ([`super::Laws`]), which is stated on the natural scale.

use std::ops::Range;

use crate::simd::{exp, ln};

/// How some parameters are held in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// Each is above 0.
    Positive,
    /// They rise.
    Ordered,
    /// Each is between -1 and 1.
    Correlation,
}

/// `tanh(u)` and its derivative, `1 - tanh(u)^2`. It is 1 nowhere: a correlation of 1 has no law
/// beside it.
pub(super) fn correlation(u: f64) -> (f64, f64) {
    const MOST: f64 = 1.0 - 1e-14;
    let less = exp(-2.0 * u.abs());
    let rho = ((1.0 - less) / (1.0 + less)).min(MOST);
    (rho.copysign(u), 4.0 * less / ((1.0 + less) * (1.0 + less)))
}

/// The parameters that are not free, in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transforms(Vec<(Range<usize>, Transform)>);

impl Transforms {
    /// These groups, which do not overlap; empty ones are left out.
    pub fn new(groups: impl IntoIterator<Item = (Range<usize>, Transform)>) -> Self {
        Transforms(groups.into_iter().filter(|(range, _)| !range.is_empty()).collect())
    }

    /// Whether all parameters are free.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The groups.
    pub fn groups(&self) -> &[(Range<usize>, Transform)] {
        &self.0
    }

    /// From `u` to the natural scale, in place.
    pub fn outward(&self, x: &mut [f64]) {
        for (range, transform) in &self.0 {
            let x = &mut x[range.clone()];
            match transform {
                Transform::Positive => x.iter_mut().for_each(|x| *x = exp(*x)),
                Transform::Ordered => {
                    for k in 1..x.len() {
                        x[k] = x[k - 1] + exp(x[k]);
                    }
                }
                Transform::Correlation => x.iter_mut().for_each(|x| *x = correlation(*x).0),
            }
        }
    }

    /// From the natural scale to `u`, in place.
    pub fn inward(&self, x: &mut [f64]) {
        for (range, transform) in &self.0 {
            let x = &mut x[range.clone()];
            match transform {
                Transform::Positive => x.iter_mut().for_each(|x| *x = ln(*x)),
                Transform::Ordered => {
                    for k in (1..x.len()).rev() {
                        x[k] = ln(x[k] - x[k - 1]);
                    }
                }
                Transform::Correlation => {
                    x.iter_mut().for_each(|x| *x = 0.5 * ln((1.0 + *x) / (1.0 - *x)));
                }
            }
        }
    }

    /// The log of the Jacobian at `u`.
    pub fn log_jacobian(&self, u: &[f64]) -> f64 {
        let of = |(range, transform): &(Range<usize>, Transform)| -> f64 {
            match transform {
                Transform::Positive => u[range.clone()].iter().sum(),
                Transform::Ordered => u[range.start + 1..range.end].iter().sum(),
                Transform::Correlation => {
                    u[range.clone()].iter().map(|u| ln(correlation(*u).1)).sum()
                }
            }
        };
        self.0.iter().map(of).sum()
    }

    /// A gradient on the natural scale as one in `u`, in place.
    pub fn pull_back(&self, u: &[f64], gradient: &mut [f64]) {
        for (range, transform) in &self.0 {
            match transform {
                Transform::Positive => range.clone().for_each(|k| gradient[k] *= exp(u[k])),
                Transform::Ordered => {
                    let mut behind = 0.0;
                    for k in range.clone().rev() {
                        behind += gradient[k];
                        gradient[k] = if k == range.start { behind } else { behind * exp(u[k]) };
                    }
                }
                Transform::Correlation => {
                    range.clone().for_each(|k| gradient[k] *= correlation(u[k]).1);
                }
            }
        }
    }

    /// A direction in `u` as one on the natural scale, in place.
    pub fn push_forward(&self, u: &[f64], direction: &mut [f64]) {
        for (range, transform) in &self.0 {
            match transform {
                Transform::Positive => range.clone().for_each(|k| direction[k] *= exp(u[k])),
                Transform::Ordered => {
                    for k in range.start + 1..range.end {
                        direction[k] = direction[k - 1] + exp(u[k]) * direction[k];
                    }
                }
                Transform::Correlation => {
                    range.clone().for_each(|k| direction[k] *= correlation(u[k]).1);
                }
            }
        }
    }

    /// A Hessian on the natural scale as one in `u`, in place, given the gradient on the natural
    /// scale: of `d` parameters, the last of which are these.
    pub fn pull_back_hessian(&self, u: &[f64], gradient: &[f64], hessian: &mut [f64], d: usize) {
        let first = d - u.len();
        hessian.chunks_exact_mut(d).for_each(|row| self.pull_back(u, &mut row[first..]));
        let mut column = vec![0.0; u.len()];
        for k in 0..d {
            (0..u.len()).for_each(|i| column[i] = hessian[(first + i) * d + k]);
            self.pull_back(u, &mut column);
            (0..u.len()).for_each(|i| hessian[(first + i) * d + k] = column[i]);
        }
        self.bends(u, gradient, |k, bend| hessian[(first + k) * (d + 1)] += bend);
    }

    /// What the transform's own second derivatives add to the diagonal of a Hessian in `u`, where
    /// the gradient on the natural scale is this: given to `add` with the coordinate.
    pub fn bends(&self, u: &[f64], gradient: &[f64], mut add: impl FnMut(usize, f64)) {
        for (range, transform) in &self.0 {
            match transform {
                Transform::Positive => range.clone().for_each(|k| add(k, gradient[k] * exp(u[k]))),
                Transform::Ordered => {
                    let mut behind = 0.0;
                    for k in (range.start + 1..range.end).rev() {
                        behind += gradient[k];
                        add(k, behind * exp(u[k]));
                    }
                }
                Transform::Correlation => range.clone().for_each(|k| {
                    let (rho, stretch) = correlation(u[k]);
                    add(k, -2.0 * gradient[k] * rho * stretch);
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Transforms {
        let held = [Transform::Positive, Transform::Ordered, Transform::Correlation];
        Transforms::new([1..3, 4..8, 8..10].into_iter().zip(held))
    }

    const U: [f64; 10] = [0.3, -0.7, 1.1, 2.0, -1.5, 0.4, -0.2, 0.9, 0.6, -1.4];

    fn natural(u: &[f64]) -> Vec<f64> {
        let mut x = u.to_vec();
        some().outward(&mut x);
        x
    }

    #[test]
    fn natural_parameters_are_where_they_must_be_and_come_back() {
        let mut x = natural(&U);
        assert!(x[1] > 0.0 && x[2] > 0.0 && x[0] == U[0] && x[3] == U[3]);
        assert!(x[4] == U[4] && x[4..8].is_sorted_by(|a, b| a < b));
        assert!(x[8] > 0.0 && x[8] < 1.0 && x[9] < 0.0 && x[9] > -1.0);
        some().inward(&mut x);
        assert!(x.iter().zip(U).all(|(a, b)| (a - b).abs() < 1e-12), "{x:?}");
    }

    /// The matrix of derivatives by central differences: its determinant is triangular, directions
    /// are its products, gradients those of its transpose.
    #[test]
    fn derivatives_are_those_of_the_map() {
        let (d, h) = (U.len(), 1e-6);
        let column = |k: usize| -> Vec<f64> {
            let moved = |by: f64| {
                let mut u = U;
                u[k] += by;
                natural(&u)
            };
            moved(h).iter().zip(moved(-h)).map(|(a, b)| (a - b) / (2.0 * h)).collect()
        };
        let columns: Vec<Vec<f64>> = (0..d).map(column).collect();
        let log: f64 = (0..d).map(|k| columns[k][k].ln()).sum();
        assert!((some().log_jacobian(&U) - log).abs() < 1e-8);
        let v = [0.5, -1.0, 0.25, 2.0, 1.5, -0.5, 1.0, 0.75, -0.6, 1.2];
        let (mut forward, mut back) = (v, v);
        some().push_forward(&U, &mut forward);
        some().pull_back(&U, &mut back);
        for k in 0..d {
            let along: f64 = (0..d).map(|j| columns[j][k] * v[j]).sum();
            let against: f64 = (0..d).map(|j| columns[k][j] * v[j]).sum();
            assert!((forward[k] - along).abs() < 1e-7 && (back[k] - against).abs() < 1e-7);
        }
        // the second derivatives: those of the pulled-back gradient of a linear function
        let mut bends = [0.0; 10];
        some().bends(&U, &v, |k, bend| bends[k] += bend);
        for k in 0..d {
            let moved = |by: f64| {
                let (mut u, mut g) = (U, v);
                u[k] += by;
                some().pull_back(&u, &mut g);
                g[k]
            };
            let bend = (moved(h) - moved(-h)) / (2.0 * h);
            assert!((bends[k] - bend).abs() < 1e-7, "{k}: {} is not {bend}", bends[k]);
        }
    }
}

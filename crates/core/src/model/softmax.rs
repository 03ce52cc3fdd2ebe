//! Model a label among several classes by one linear predictor a class: softmax regression.

use super::{Classifier, Design, Potential, Rows};
use crate::error::DataError;
use crate::lanes::{exp, ln, vectorised};

/// `U_ij(x) = logsumexp_k(a_j . x_k) - a_j . x_{y_j}`, with the parameters of class `k` at `x[k * features..(k + 1) * features]`.
#[derive(Clone, Debug)]
pub struct Softmax {
    design: Design,
    labels: Vec<u32>,
    classes: usize,
}

impl Softmax {
    /// From features, one label a row in `0..classes`, and the number of classes.
    pub fn new(design: Design, labels: Vec<u32>, classes: usize) -> Result<Self, DataError> {
        if labels.len() != design.rows() {
            return Err(DataError::Responses { responses: labels.len(), rows: design.rows() });
        }
        if let Some(row) = labels.iter().position(|y| *y as usize >= classes) {
            return Err(DataError::Label {
                row,
                label: f64::from(labels[row]),
                allowed: format!("whole numbers from 0 to {}", classes.saturating_sub(1)),
            });
        }
        Ok(Softmax { design, labels, classes })
    }

    fn class<'a>(&self, x: &'a [f64], class: usize) -> &'a [f64] {
        &x[class * self.design.columns()..(class + 1) * self.design.columns()]
    }

    /// The class probabilities of one row.
    #[inline(always)]
    fn probabilities(&self, row: usize, x: &[f64], out: &mut [f64]) {
        let mut most = f64::NEG_INFINITY;
        for (k, t) in out.iter_mut().enumerate() {
            *t = self.design.row_dot(row, self.class(x, k));
            most = if *t > most { *t } else { most };
        }
        let mut sum = 0.0;
        for t in out.iter_mut() {
            *t = exp(*t - most);
            sum += *t;
        }
        for t in out.iter_mut() {
            *t /= sum;
        }
    }

    #[inline(always)]
    fn add_outer(&self, row: usize, scale: f64, weights: &[f64], out: &mut [f64]) {
        for (k, slot) in out.chunks_exact_mut(self.design.columns()).enumerate() {
            self.design.add_row(row, scale * weights[k], slot);
        }
    }
}

impl Classifier for Softmax {
    fn classes(&self) -> usize {
        self.classes
    }

    fn label(&self, row: usize) -> usize {
        self.labels[row] as usize
    }

    fn add_probabilities(&self, x: &[f64], scale: f64, out: &mut [f64]) {
        let mut each = vec![0.0; self.classes];
        for (row, slots) in out.chunks_exact_mut(self.classes).enumerate() {
            self.probabilities(row, x, &mut each);
            slots.iter_mut().zip(&each).for_each(|(slot, p)| *slot += scale * p);
        }
    }
}

impl Potential for Softmax {
    fn dim(&self) -> usize {
        self.design.columns() * self.classes
    }

    fn rows(&self) -> usize {
        self.design.rows()
    }

    fn scratch(&self) -> usize {
        2 * self.classes
    }

    fn classifier(&self) -> Option<&dyn Classifier> {
        Some(self)
    }

    fn value(&self, x: &[f64], scratch: &mut [f64]) -> f64 {
        let logits = &mut scratch[..self.classes];
        let mut total = 0.0;
        for row in 0..self.rows() {
            for (k, t) in logits.iter_mut().enumerate() {
                *t = self.design.row_dot(row, self.class(x, k));
            }
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|t| exp(t - most)).sum();
            total += most + ln(sum) - logits[self.labels[row] as usize];
        }
        total
    }

    fn add_gradient(&self, x: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64], scratch: &mut [f64]) {
        let p = &mut scratch[..self.classes];
        vectorised(|| {
            rows.in_blocks(self.rows(), |block| {
                for &row in block {
                    self.probabilities(row, x, p);
                    p[self.labels[row] as usize] -= 1.0;
                    self.add_outer(row, scale, p, out);
                }
            });
        });
    }

    fn add_gradient_difference(&self, x: &[f64], z: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64], scratch: &mut [f64]) {
        let (p, q) = scratch[..2 * self.classes].split_at_mut(self.classes);
        vectorised(|| {
            rows.in_blocks(self.rows(), |block| {
                for &row in block {
                    self.probabilities(row, x, p);
                    self.probabilities(row, z, q);
                    for (p, q) in p.iter_mut().zip(&*q) {
                        *p -= q; // the labels cancel
                    }
                    self.add_outer(row, scale, p, out);
                }
            });
        });
    }

    fn add_hessian_vector(&self, x: &[f64], v: &[f64], scale: f64, out: &mut [f64], scratch: &mut [f64]) {
        let (p, t) = scratch[..2 * self.classes].split_at_mut(self.classes);
        for row in 0..self.rows() {
            self.probabilities(row, x, p);
            for (k, t) in t.iter_mut().enumerate() {
                *t = self.design.row_dot(row, self.class(v, k));
            }
            let mean: f64 = p.iter().zip(&*t).map(|(p, t)| p * t).sum();
            for (p, t) in p.iter_mut().zip(&*t) {
                *p *= t - mean;
            }
            self.add_outer(row, scale, p, out);
        }
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        0.5 * self.design.row_norm_squared(row) // diag(p) - pp' has no eigenvalue above 1/2
    }
}

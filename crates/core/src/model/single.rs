//! Ask a model of one client's rows one thing at a time.

use std::sync::Arc;

use super::{Evaluator, Model, Rows};
use crate::ask::{Ask, Sum};
use crate::rng::ClientId;

/// An evaluator of one client's rows, for code that is not a client. What a model cannot answer is
/// NaN.
#[derive(Debug)]
pub struct Single {
    evaluator: Box<dyn Evaluator>,
    dim: usize,
}

impl Single {
    /// Ask this model.
    pub fn new(model: &Arc<dyn Model>) -> Self {
        Single { dim: model.dim(), evaluator: Arc::clone(model).evaluator() }
    }

    /// `U_i(x)`.
    pub fn value(&mut self, x: &[f64]) -> f64 {
        let mut value = [0.0];
        self.add(Sum::Value { x }, Rows::All, 1.0, &mut value);
        value[0]
    }

    /// `out += scale * sum_{j in rows} grad U_ij(x)`.
    pub fn add_gradient(&mut self, x: &[f64], rows: Rows<'_>, scale: f64, out: &mut [f64]) {
        self.add(Sum::Gradient { x }, rows, scale, out);
    }

    /// `grad U_i(x)`.
    pub fn gradient(&mut self, x: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.dim];
        self.add_gradient(x, Rows::All, 1.0, &mut out);
        out
    }

    /// `out += scale * hess U_i(x) v`.
    pub fn add_hessian_vector(&mut self, x: &[f64], v: &[f64], scale: f64, out: &mut [f64]) {
        self.add(Sum::HessianVector { x, v }, Rows::All, scale, out);
    }

    /// Add any sum over rows.
    pub fn add(&mut self, sum: Sum<'_>, rows: Rows<'_>, scale: f64, out: &mut [f64]) {
        let ask = Ask { client: ClientId(0), sum, rows, scale, out };
        let mut asks = [ask];
        if self.evaluator.answer(&mut asks).is_err() {
            asks[0].out.fill(f64::NAN);
        }
    }
}

//! Redistribute the potential between clients, so that their gradients agree: the conducive
//! gradient of FSGLD.
//!
//! ```text
//! drift of FSGLD at client c     (1/p_c) [H_c(x) - grad l_c(x)] + grad l(x),   l = sum_c l_c
//!                                [mekkaoui21] eq. 9
//! which is that of FA-LD         (1/p_c) H'_c(x)   for   U'_c = U_c - l_c + p_c l
//! ```
//!
//! `l_c` is minus the logarithm of a Gaussian surrogate `q_c` of the client's likelihood. The
//! `U'_c` sum to what the `U_c` do, whatever the surrogates, so the target stays; the better they
//! are, the less the `U'_c / p_c` differ. What is added is spread evenly over a client's rows, so
//! that any minibatch, scaled up, carries it exactly.

use std::sync::Arc;

use super::{EvaluationError, Evaluator, Model, Offers, Quadratic, Rows, Single, Spread};
use crate::ask::{Ask, Sum};

/// A Gaussian in place of a client's likelihood, its coordinates independent:
/// `grad l_c(x) = precision x - shift`.
#[derive(Clone, Debug, PartialEq)]
pub struct Surrogate {
    /// One number for each coordinate.
    pub precision: Vec<f64>,
    /// The precision times the mean.
    pub shift: Vec<f64>,
}

impl Surrogate {
    /// The surrogate of this precision that has the gradient of the client's potential at `point`.
    pub fn at(point: &[f64], precision: Vec<f64>, client: &Arc<dyn Model>) -> Self {
        let gradient = Single::new(client).gradient(point);
        let shift =
            precision.iter().zip(point).zip(&gradient).map(|((p, x), g)| p * x - g).collect();
        Surrogate { precision, shift }
    }
}

/// A client's potential `U_c - l_c + p_c l`.
#[derive(Clone, Debug)]
pub struct Rebalanced {
    inner: Arc<dyn Model>,
    /// Precision and shift of `p_c l - l_c`.
    added: Surrogate,
}

impl Rebalanced {
    /// The client of this surrogate and weight, where all surrogates sum to `whole`.
    pub fn new(inner: Arc<dyn Model>, own: &Surrogate, weight: f64, whole: &Surrogate) -> Self {
        let less = |whole: &[f64], own: &[f64]| {
            whole.iter().zip(own).map(|(whole, own)| weight * whole - own).collect()
        };
        Rebalanced {
            inner,
            added: Surrogate {
                precision: less(&whole.precision, &own.precision),
                shift: less(&whole.shift, &own.shift),
            },
        }
    }

    fn share(&self, rows: Rows<'_>) -> f64 {
        rows.count(self.inner.rows()) as f64 / self.inner.rows() as f64
    }

    /// Add what the surrogates change, at one point.
    fn add_change(&self, ask: &mut Ask<'_>) {
        let Surrogate { precision, shift } = &self.added;
        let scale = ask.scale * self.share(ask.rows);
        let value = |x: &[f64]| -> f64 {
            x.iter().zip(precision).zip(shift).map(|((x, p), s)| (0.5 * p * x - s) * x).sum()
        };
        match ask.sum {
            Sum::Value { x } => ask.out[0] += scale * value(x),
            Sum::Gradient { x } | Sum::GradientAndValue { x } => {
                for (((out, x), p), s) in ask.out.iter_mut().zip(x).zip(precision).zip(shift) {
                    *out += scale * (p * x - s);
                }
                if let Sum::GradientAndValue { .. } = ask.sum {
                    ask.out[x.len()] += scale * value(x);
                }
            }
            Sum::Difference { x, z } => {
                for (((out, x), z), p) in ask.out.iter_mut().zip(x).zip(z).zip(precision) {
                    *out += scale * (p * (x - z));
                }
            }
            Sum::HessianVector { v, .. } => {
                for ((out, v), p) in ask.out.iter_mut().zip(v).zip(precision) {
                    *out += scale * (p * v);
                }
            }
            Sum::Average { x, .. } => {
                for (((out, x), p), s) in ask.out.iter_mut().zip(x).zip(precision).zip(shift) {
                    *out += scale * (p * x - s);
                }
                let hessian = &mut ask.out[x.len()..];
                for (out, p) in hessian.iter_mut().step_by(x.len() + 1).zip(precision) {
                    *out += scale * p;
                }
            }
            Sum::Hessian { x } => {
                for (out, p) in ask.out.iter_mut().step_by(x.len() + 1).zip(precision) {
                    *out += scale * p;
                }
            }
        }
    }
}

/// Answers with the surrogates' change.
#[derive(Debug)]
struct RebalancedEvaluator {
    inner: Box<dyn Evaluator>,
    model: Arc<Rebalanced>,
}

impl Evaluator for RebalancedEvaluator {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        self.inner.answer(asks)?;
        for ask in asks {
            ask.each_point(self.model.dim(), |ask| self.model.add_change(ask));
        }
        Ok(())
    }
}

impl Model for Rebalanced {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn offers(&self) -> Offers {
        self.inner.offers()
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let inner = Arc::clone(&self.inner).evaluator();
        Box::new(RebalancedEvaluator { inner, model: self })
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        let most = self.added.precision.iter().fold(0.0f64, |most, p| most.max(p.abs()));
        self.inner.row_smoothness(row) + most / self.rows() as f64
    }

    fn quadratic(&self) -> Option<Quadratic> {
        let form = self.inner.quadratic()?;
        let d = self.dim();
        let add = |mut h: Vec<f64>, mut r: Vec<f64>, share: f64| {
            for k in 0..d {
                h[k * (d + 1)] += share * self.added.precision[k];
                r[k] += share * self.added.shift[k];
            }
            (h, r)
        };
        let (precision, shift) = add(form.precision, form.shift, 1.0);
        let spread = match form.spread {
            Spread::Rows(rows) => Spread::Rows(
                rows.into_iter().map(|(h, r)| add(h, r, 1.0 / self.rows() as f64)).collect(),
            ),
            alike => alike,
        };
        Some(Quadratic { precision, shift, spread })
    }
}

//! Evaluate the potentials of many clients in one call: the contract of models that are written
//! elsewhere, in Python say.

use std::sync::Arc;

use thiserror::Error;

use crate::ask::{Ask, Sum};
use crate::model::{Coordinates, Prior};
use crate::rng::ClientId;

/// A model of all clients of a process. Where a target has one, its clients' potentials are
/// placeholders.
///
/// Chains on several threads share it.
pub trait Joint: Send + Sync + std::fmt::Debug {
    /// How many parameters there are.
    fn dim(&self) -> usize;

    /// How many clients there are.
    fn clients(&self) -> usize;

    /// How many rows a client has.
    fn rows(&self, client: ClientId) -> usize;

    /// What it can be asked beside gradients and their differences.
    fn offers(&self) -> Offers {
        Offers::default()
    }

    /// Answer all of these, at most one a client: add the sums over rows, and nothing of the prior.
    /// What a client is told must not depend on who else asks.
    ///
    /// Only what [`Joint::offers`] says is asked for beside gradients and differences, by
    /// [`ByGradients`].
    fn evaluate(&self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError>;

    /// Do work that evaluates it many times on one thread: what it costs to be there, in another
    /// language's interpreter say, is paid once.
    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        work();
    }
}

/// What a model can be asked beside gradients and their differences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offers {
    /// Values of the potential, with its gradient.
    pub values: bool,
    /// Products of the Hessian with vectors.
    pub hessian_vectors: bool,
    /// The relative error of a coordinate of a gradient: some 1e-7 where a model computes with 32
    /// bits.
    pub resolution: f64,
}

impl Default for Offers {
    /// Gradients alone, to the last bit.
    fn default() -> Self {
        Offers { values: false, hessian_vectors: false, resolution: f64::EPSILON }
    }
}

/// Why a model gave no answer; the cause is the model's own, a Python exception say.
#[derive(Debug, Error)]
#[error("the model cannot be evaluated: {0}")]
pub struct EvaluationError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// A model asked for gradients and differences alone, whatever surveys want: values it does not
/// offer are NaN, Hessian products central differences of gradients.
#[derive(Debug)]
pub struct ByGradients<'j>(pub &'j dyn Joint);

impl Joint for ByGradients<'_> {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn clients(&self) -> usize {
        self.0.clients()
    }

    fn rows(&self, client: ClientId) -> usize {
        self.0.rows(client)
    }

    fn offers(&self) -> Offers {
        Offers { values: true, hessian_vectors: true, ..self.0.offers() }
    }

    fn evaluate(&self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let offers = self.0.offers();
        let apart: Vec<Option<Apart>> = asks
            .iter()
            .map(|ask| match ask.sum {
                Sum::HessianVector { x, v } if !offers.hessian_vectors => {
                    Some(Apart::new(x, v, offers.resolution))
                }
                _ => None,
            })
            .collect();
        let mut simpler: Vec<Ask<'_>> = Vec::with_capacity(asks.len());
        for (ask, apart) in asks.iter_mut().zip(&apart) {
            let (client, rows) = (ask.client, ask.rows);
            simpler.push(match (ask.sum, apart) {
                (_, Some(Apart { plus, minus, distance })) => {
                    let sum = Sum::Difference { x: plus, z: minus };
                    Ask { client, sum, rows, scale: ask.scale / distance, out: &mut *ask.out }
                }
                (Sum::GradientAndValue { x }, None) if !offers.values => {
                    let (gradient, value) = ask.out.split_at_mut(x.len());
                    value.fill(f64::NAN);
                    Ask { client, sum: Sum::Gradient { x }, rows, scale: ask.scale, out: gradient }
                }
                (sum, None) => Ask { client, sum, rows, scale: ask.scale, out: &mut *ask.out },
            });
        }
        self.0.evaluate(&mut simpler)
    }
}

/// Two points on a line through `x` along `v`, and how many `v` lie between them.
struct Apart {
    plus: Vec<f64>,
    minus: Vec<f64>,
    distance: f64,
}

impl Apart {
    /// The cube root of the resolution makes the error of rounding as small as that of a third
    /// derivative of order 1.
    fn new(x: &[f64], v: &[f64], resolution: f64) -> Self {
        let largest = |x: &[f64]| x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let (x_size, v_size) = (1.0 + largest(x), largest(v));
        let by = if v_size > 0.0 { resolution.cbrt() * x_size / v_size } else { 1.0 };
        let moved = |by: f64| x.iter().zip(v).map(|(x, v)| x + by * v).collect();
        Apart { plus: moved(by), minus: moved(-by), distance: 2.0 * by }
    }
}

/// A model in other coordinates, with the clients' shares of the prior: [`crate::model::Whitened`]
/// for all clients at once.
///
/// It allocates a few vectors a call, which a call into another language outweighs.
#[derive(Debug)]
pub(crate) struct WhitenedJoint {
    pub(crate) inner: Arc<dyn Joint>,
    pub(crate) prior: Prior,
    pub(crate) shares: Vec<f64>,
    pub(crate) coordinates: Arc<Coordinates>,
}

/// One ask in the coordinates of the model: up to two points, and the answer.
struct Outward {
    x: Vec<f64>,
    other: Vec<f64>,
    answer: Vec<f64>,
}

impl Outward {
    fn ask<'a>(&'a mut self, of: &Ask<'a>) -> Ask<'a> {
        let (x, other) = (&self.x, &self.other);
        let sum = match of.sum {
            Sum::Gradient { .. } => Sum::Gradient { x },
            Sum::Difference { .. } => Sum::Difference { x, z: other },
            Sum::GradientAndValue { .. } => Sum::GradientAndValue { x },
            Sum::HessianVector { .. } => Sum::HessianVector { x, v: other },
        };
        Ask { client: of.client, sum, rows: of.rows, scale: 1.0, out: &mut self.answer }
    }
}

impl WhitenedJoint {
    fn outward(&self, ask: &Ask<'_>) -> Outward {
        let d = self.dim();
        let point = |u: &[f64]| {
            let mut x = vec![0.0; d];
            self.coordinates.outward(u, &mut x);
            x
        };
        let (x, other) = match ask.sum {
            Sum::Gradient { x } | Sum::GradientAndValue { x } => (point(x), Vec::new()),
            Sum::Difference { x, z } => (point(x), point(z)),
            Sum::HessianVector { x, v } => {
                let mut direction = vec![0.0; d];
                self.coordinates.add_direction(v, &mut direction);
                (point(x), direction)
            }
        };
        Outward { x, other, answer: vec![0.0; ask.out.len()] }
    }

    fn pull_back(&self, outward: &mut Outward, ask: &mut Ask<'_>) {
        let d = self.dim();
        let (gradient, value) = outward.answer.split_at_mut(d);
        let (rows, weight) = (self.rows(ask.client), self.shares[ask.client.index()]);
        let share = weight * ask.rows.count(rows) as f64 / rows as f64;
        match ask.sum {
            Sum::Gradient { .. } | Sum::GradientAndValue { .. } => {
                self.prior.add_gradient(&outward.x, share, gradient)
            }
            Sum::Difference { .. } => {
                self.prior.add_gradient_difference(&outward.x, &outward.other, share, gradient)
            }
            Sum::HessianVector { .. } => {
                self.prior.add_hessian_vector(&outward.other, weight, gradient)
            }
        }
        self.coordinates.add_pulled_back(gradient, ask.scale, &mut ask.out[..d]);
        for (out, value) in ask.out[d..].iter_mut().zip(value) {
            *out += ask.scale * (*value + weight * self.prior.value(&outward.x));
        }
    }
}

impl Joint for WhitenedJoint {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn clients(&self) -> usize {
        self.inner.clients()
    }

    fn rows(&self, client: ClientId) -> usize {
        self.inner.rows(client)
    }

    fn offers(&self) -> Offers {
        self.inner.offers()
    }

    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        self.inner.host(work);
    }

    fn evaluate(&self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let mut outward: Vec<Outward> = asks.iter().map(|ask| self.outward(ask)).collect();
        let mut inner: Vec<Ask<'_>> =
            asks.iter().zip(&mut outward).map(|(ask, outward)| outward.ask(ask)).collect();
        self.inner.evaluate(&mut inner)?;
        for (ask, outward) in asks.iter_mut().zip(&mut outward) {
            self.pull_back(outward, ask);
        }
        Ok(())
    }
}

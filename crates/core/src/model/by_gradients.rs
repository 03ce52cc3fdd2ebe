//! Ask a model for gradients alone, whatever surveys want to know.

use std::sync::Arc;

use super::{EvaluationError, Evaluator, Model, Offers};
use crate::ask::{Ask, Sum};
use crate::rng::ClientId;
use crate::walk::{Walk, WalkRoom};

/// A model asked for gradients and differences alone: values it does not offer are NaN, Hessians
/// and their products central differences of gradients.
#[derive(Debug)]
pub struct ByGradients(pub Arc<dyn Model>);

impl Model for ByGradients {
    fn dim(&self) -> usize {
        self.0.dim()
    }

    fn clients(&self) -> usize {
        self.0.clients()
    }

    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.0.rows_of(client)
    }

    fn offers(&self) -> Offers {
        Offers { values: true, hessians: true, ..self.0.offers() }
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let offers = self.0.offers();
        Box::new(Simplified { inner: Arc::clone(&self.0).evaluator(), offers })
    }

    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        self.0.host(work);
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        self.0.row_smoothness(row)
    }
}

/// Asks in simpler words. It allocates a few vectors a call, which a call into another language
/// outweighs.
#[derive(Debug)]
struct Simplified {
    inner: Box<dyn Evaluator>,
    offers: Offers,
}

impl Evaluator for Simplified {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let offers = self.offers;
        let pairs: Vec<Vec<Pair>> = asks
            .iter()
            .map(|ask| match ask.sum {
                Sum::HessianVector { x, v } if !offers.hessians => {
                    vec![Pair::new(x, v, offers.resolution)]
                }
                Sum::Hessian { x } if !offers.hessians => {
                    let unit = |k: usize| -> Vec<f64> {
                        (0..x.len()).map(|j| f64::from(u8::from(j == k))).collect()
                    };
                    (0..x.len()).map(|k| Pair::new(x, &unit(k), offers.resolution)).collect()
                }
                _ => Vec::new(),
            })
            .collect();
        let mut simpler: Vec<Ask<'_>> = Vec::with_capacity(asks.len());
        for (ask, pairs) in asks.iter_mut().zip(&pairs) {
            let (client, rows, scale) = (ask.client, ask.rows, ask.scale);
            match ask.sum {
                Sum::HessianVector { x, .. } | Sum::Hessian { x } if !offers.hessians => {
                    for (pair, out) in pairs.iter().zip(ask.out.chunks_exact_mut(x.len())) {
                        let sum = Sum::Difference { x: &pair.plus, z: &pair.minus };
                        simpler.push(Ask { client, sum, rows, scale: scale / pair.distance, out });
                    }
                }
                Sum::Value { .. } if !offers.values => ask.out.fill(f64::NAN),
                Sum::Average { .. } if !offers.hessians => ask.out.fill(f64::NAN),
                Sum::GradientAndValue { x } if !offers.values => {
                    let (gradient, value) = ask.out.split_at_mut(x.len());
                    value.fill(f64::NAN);
                    simpler.push(Ask {
                        client,
                        sum: Sum::Gradient { x },
                        rows,
                        scale,
                        out: gradient,
                    });
                }
                sum => simpler.push(Ask { client, sum, rows, scale, out: &mut *ask.out }),
            }
        }
        self.inner.answer(&mut simpler)
    }

    fn walk(&mut self, walks: &mut [Walk<'_>], room: &mut WalkRoom) -> Result<(), EvaluationError> {
        self.inner.walk(walks, room)
    }
}

/// Two points on a line through `x` along `v`, and how many `v` lie between them.
struct Pair {
    plus: Vec<f64>,
    minus: Vec<f64>,
    distance: f64,
}

impl Pair {
    /// The cube root of the resolution makes the error of rounding as small as that of a third
    /// derivative of order 1.
    fn new(x: &[f64], v: &[f64], resolution: f64) -> Self {
        let largest = |x: &[f64]| x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let (x_size, v_size) = (1.0 + largest(x), largest(v));
        let by = if v_size > 0.0 { resolution.cbrt() * x_size / v_size } else { 1.0 };
        let moved = |by: f64| x.iter().zip(v).map(|(x, v)| x + by * v).collect();
        Pair { plus: moved(by), minus: moved(-by), distance: 2.0 * by }
    }
}

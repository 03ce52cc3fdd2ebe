//! Deal the potential anew, so that clients pull alike: the conducive gradient of FSGLD.
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

use super::{Potential, Quadratic, Rows, Spread};

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
    pub fn at(point: &[f64], precision: Vec<f64>, client: &dyn Potential) -> Self {
        let mut gradient = vec![0.0; point.len()];
        client.add_gradient(point, Rows::All, 1.0, &mut gradient, &mut vec![0.0; client.scratch()]);
        let shift =
            precision.iter().zip(point).zip(&gradient).map(|((p, x), g)| p * x - g).collect();
        Surrogate { precision, shift }
    }
}

/// A client's potential `U_c - l_c + p_c l`.
#[derive(Clone, Debug)]
pub struct Rebalanced {
    inner: Arc<dyn Potential>,
    /// Precision and shift of `p_c l - l_c`.
    added: Surrogate,
}

impl Rebalanced {
    /// The client of this surrogate and weight, where all surrogates sum to `whole`.
    pub fn new(inner: Arc<dyn Potential>, own: &Surrogate, weight: f64, whole: &Surrogate) -> Self {
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
}

impl Potential for Rebalanced {
    fn dim(&self) -> usize {
        self.inner.dim()
    }

    fn rows(&self) -> usize {
        self.inner.rows()
    }

    fn scratch(&self) -> usize {
        self.inner.scratch()
    }

    fn value(&self, x: &[f64], scratch: &mut [f64]) -> f64 {
        let Surrogate { precision, shift } = &self.added;
        let added = x.iter().zip(precision).zip(shift).map(|((x, p), s)| (0.5 * p * x - s) * x);
        self.inner.value(x, scratch) + added.sum::<f64>()
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.inner.add_gradient(x, rows, scale, out, scratch);
        let scale = scale * self.share(rows);
        for (((out, x), p), s) in
            out.iter_mut().zip(x).zip(&self.added.precision).zip(&self.added.shift)
        {
            *out += scale * (p * x - s);
        }
    }

    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.inner.add_gradient_difference(x, z, rows, scale, out, scratch);
        let scale = scale * self.share(rows);
        for (((out, x), z), p) in out.iter_mut().zip(x).zip(z).zip(&self.added.precision) {
            *out += scale * (p * (x - z));
        }
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        self.inner.add_hessian_vector(x, v, scale, out, scratch);
        for ((out, v), p) in out.iter_mut().zip(v).zip(&self.added.precision) {
            *out += scale * (p * v);
        }
    }

    fn differences_ignore_rows(&self) -> bool {
        self.inner.differences_ignore_rows()
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

//! Ask for what a client must know of its rows before it can go on.
//!
//! A client never evaluates a potential in the middle of its work: it stops with a [`Question`],
//! and goes on when somebody has answered it. So one program of each sampler serves both clients
//! that have their rows at hand, one after the other, and models that answer all clients of a
//! process in one call ([`crate::joint`]).

use crate::linalg::add_scaled;
use crate::model::{Potential, Rows};
use crate::rng::ClientId;

/// What is summed over rows.
#[derive(Clone, Copy, Debug)]
pub enum Sum<'a> {
    /// `grad U_ij(x)`.
    Gradient {
        /// Where.
        x: &'a [f64],
    },
    /// `grad U_ij(x) - grad U_ij(z)`; exactly nothing where `x` equals `z`.
    Difference {
        /// Where.
        x: &'a [f64],
        /// The reference point.
        z: &'a [f64],
    },
    /// `grad U_ij(x)`, and behind its last coordinate `U_ij(x)`.
    GradientAndValue {
        /// Where.
        x: &'a [f64],
    },
    /// `hess U_ij(x) v`.
    HessianVector {
        /// Where.
        x: &'a [f64],
        /// The vector.
        v: &'a [f64],
    },
}

/// Which of its rows a client asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    All,
    /// Its minibatch, scaled to stand for all of them.
    Minibatch,
}

/// What a client must know next, in its own words: with its share of the prior, and whatever its
/// minibatch is.
#[derive(Debug)]
pub struct Question<'a> {
    /// What is summed.
    pub sum: Sum<'a>,
    /// Over which rows.
    pub extent: Extent,
    /// What the sum is multiplied by.
    pub scale: f64,
    /// What it is added to.
    pub out: &'a mut [f64],
}

/// The same to whoever knows the rows: `out += scale * sum_{j in rows}`. The client adds its share
/// of the prior itself.
#[derive(Debug)]
pub struct Ask<'a> {
    /// Who asks.
    pub client: ClientId,
    /// What is summed.
    pub sum: Sum<'a>,
    /// Over which of the client's rows.
    pub rows: Rows<'a>,
    /// What the sum is multiplied by.
    pub scale: f64,
    /// What it is added to: a place for every parameter, and one more where the value is asked for.
    pub out: &'a mut [f64],
}

impl Ask<'_> {
    /// Answer with a sum over the rows that was found elsewhere.
    pub fn tell(&mut self, sum: &[f64]) {
        add_scaled(self.scale, sum, self.out);
    }

    /// Answer by a potential of the client's rows.
    #[inline(always)]
    pub fn evaluate(&mut self, potential: &dyn Potential, scratch: &mut [f64]) {
        let (rows, scale) = (self.rows, self.scale);
        match self.sum {
            Sum::Gradient { x } => potential.add_gradient(x, rows, scale, self.out, scratch),
            Sum::Difference { x, z } => {
                potential.add_gradient_difference(x, z, rows, scale, self.out, scratch)
            }
            Sum::GradientAndValue { x } => {
                let (gradient, value) = self.out.split_at_mut(x.len());
                potential.add_gradient(x, rows, scale, gradient, scratch);
                value[0] += scale * potential.value(x, scratch);
            }
            Sum::HessianVector { x, v } => {
                potential.add_hessian_vector(x, v, scale, self.out, scratch)
            }
        }
    }
}

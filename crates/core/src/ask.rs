//! Ask for what a client must know of its rows before it can go on.
//!
//! A client never evaluates a model in the middle of its work: it stops with a [`Question`], and
//! goes on when somebody has answered it. So one program of each sampler serves both clients that
//! have their rows at hand, one after the other, and models that answer all clients of a process
//! in one call.

use crate::linalg::add_scaled;
use crate::model::Rows;
use crate::rng::ClientId;

/// What is summed over rows. Where a sum is wanted at several points they lie one behind the other
/// in `x`, and so do the answers.
#[derive(Clone, Copy, Debug)]
pub enum Sum<'a> {
    /// `U_ij(x)`: one number a point.
    Value {
        /// Where.
        x: &'a [f64],
    },
    /// `grad U_ij(x)`.
    Gradient {
        /// Where.
        x: &'a [f64],
    },
    /// `grad U_ij(x) - grad U_ij(z)`; exactly nothing where `x` equals `z`.
    Difference {
        /// Where.
        x: &'a [f64],
        /// The reference points, as many.
        z: &'a [f64],
    },
    /// `grad U_ij(x)`, and behind its last coordinate `U_ij(x)`, at one point.
    GradientAndValue {
        /// Where.
        x: &'a [f64],
    },
    /// `hess U_ij(x) v`, at one point and for one vector.
    HessianVector {
        /// Where.
        x: &'a [f64],
        /// The vector.
        v: &'a [f64],
    },
    /// `hess U_ij(x)`, row by row, at one point.
    Hessian {
        /// Where.
        x: &'a [f64],
    },
    /// The means of `grad U_ij` and, behind it, of `hess U_ij` (row by row) under the Gaussian law
    /// of `x + A z` with `z` standard normal. They shape proposals, so a model may approximate
    /// them, as long as everybody would find the same numbers.
    Average {
        /// The law's mean.
        x: &'a [f64],
        /// The columns of `A`, one behind the other.
        spread: &'a [f64],
    },
}

impl<'a> Sum<'a> {
    /// Where the sum is wanted: one point, or several one behind the other.
    pub fn points(&self) -> &'a [f64] {
        match self {
            Sum::Value { x }
            | Sum::Gradient { x }
            | Sum::Difference { x, .. }
            | Sum::GradientAndValue { x }
            | Sum::HessianVector { x, .. }
            | Sum::Hessian { x }
            | Sum::Average { x, .. } => x,
        }
    }

    /// What it is called where somebody must be told what was asked.
    pub fn name(&self) -> &'static str {
        match self {
            Sum::Value { .. } => "the value",
            Sum::Gradient { .. } => "the gradient",
            Sum::Difference { .. } => "the difference of gradients",
            Sum::GradientAndValue { .. } => "the gradient and the value",
            Sum::HessianVector { .. } => "the product of the Hessian with a vector",
            Sum::Hessian { .. } => "the Hessian",
            Sum::Average { .. } => "the mean gradient and Hessian",
        }
    }

    /// How many numbers the answer has at each point, for so many parameters.
    pub fn width(&self, dim: usize) -> usize {
        match self {
            Sum::Value { .. } => 1,
            Sum::Gradient { .. } | Sum::Difference { .. } | Sum::HessianVector { .. } => dim,
            Sum::GradientAndValue { .. } => dim + 1,
            Sum::Hessian { .. } => dim * dim,
            Sum::Average { .. } => dim + dim * dim,
        }
    }

    /// The same at point `k` alone.
    pub fn at(&self, k: usize, dim: usize) -> Sum<'a> {
        let part = |points: &'a [f64]| &points[k * dim..(k + 1) * dim];
        match *self {
            Sum::Value { x } => Sum::Value { x: part(x) },
            Sum::Gradient { x } => Sum::Gradient { x: part(x) },
            Sum::Difference { x, z } => Sum::Difference { x: part(x), z: part(z) },
            Sum::GradientAndValue { x } => Sum::GradientAndValue { x: part(x) },
            Sum::HessianVector { x, v } => Sum::HessianVector { x: part(x), v: part(v) },
            Sum::Hessian { x } => Sum::Hessian { x: part(x) },
            Sum::Average { x, spread } => Sum::Average { x: part(x), spread },
        }
    }
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
    /// What it is added to: [`Sum::width`] numbers for each point.
    pub out: &'a mut [f64],
}

impl Ask<'_> {
    /// Answer with a sum over the rows that was found elsewhere.
    pub fn tell(&mut self, sum: &[f64]) {
        add_scaled(self.scale, sum, self.out);
    }

    /// The same as one ask for each point.
    pub fn split(&mut self, dim: usize) -> impl Iterator<Item = Ask<'_>> {
        let (client, sum, rows, scale) = (self.client, self.sum, self.rows, self.scale);
        let parts = self.out.chunks_exact_mut(sum.width(dim)).enumerate();
        parts.map(move |(k, out)| Ask { client, sum: sum.at(k, dim), rows, scale, out })
    }

    /// Answer point by point: for models that know one point at a time.
    #[inline(always)]
    pub fn each_point(&mut self, dim: usize, mut answer: impl FnMut(&mut Ask<'_>)) {
        if self.sum.points().len() == dim {
            return answer(self);
        }
        for mut ask in self.split(dim) {
            answer(&mut ask);
        }
    }
}

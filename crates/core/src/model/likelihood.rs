//! Write a model of one client's rows as sums over these rows.

use std::sync::Arc;

use super::{
    Abreast, Classifier, EvaluationError, Evaluator, Lanes, Model, Offers, Quadratic, Reach,
    RegressionRows, RowReach, Rows,
};
use crate::ask::{Ask, Sum};
use crate::linalg::add_scaled;
use crate::rng::{Purpose, SERVER, Seed};

/// How many points an average is taken over, where there is no better way.
pub const POINTS: u64 = 64;

/// `U_i(x) = sum_j U_ij(x)`: the negative log-likelihood of one client's rows. Every likelihood is
/// a [`Model`].
///
/// Nothing here allocates: `scratch` has [`Likelihood::scratch`] places, whose contents mean
/// nothing between calls. Sums over rows run in ascending order, or are exact, so all rows, and
/// the set of all rows, give the same bits.
pub trait Likelihood: Send + Sync + std::fmt::Debug {
    /// How many parameters there are.
    fn dim(&self) -> usize;

    /// How many rows the client has.
    fn rows(&self) -> usize;

    /// How many places of scratch the other calls need.
    fn scratch(&self) -> usize {
        2 * self.dim()
    }

    /// `sum_{j in rows} U_ij(x)`.
    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64;

    /// `out += scale * sum_{j in rows} grad U_ij(x)`.
    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    );

    /// `out += scale * sum_{j in rows} (grad U_ij(x) - grad U_ij(z))`; exactly nothing where `x`
    /// equals `z`.
    ///
    /// Unless a model has a better way it takes both gradients, which needs two vectors at the end
    /// of the scratch.
    fn add_gradient_difference(
        &self,
        x: &[f64],
        z: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let d = self.dim();
        let (scratch, both) = scratch.split_at_mut(scratch.len() - 2 * d);
        let (at_x, at_z) = both.split_at_mut(d);
        at_x.fill(0.0);
        at_z.fill(0.0);
        self.add_gradient(x, rows, 1.0, at_x, scratch);
        self.add_gradient(z, rows, 1.0, at_z, scratch);
        for ((out, x), z) in out.iter_mut().zip(at_x).zip(at_z) {
            *out += scale * (*x - *z);
        }
    }

    /// `out += scale * sum_{j in rows} hess U_ij(x) v`.
    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    );

    /// `out += scale * sum_{j in rows} hess U_ij(x)`, row by row. Unless a model has a better way
    /// it goes column by column.
    fn add_hessian(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let mut unit = vec![0.0; self.dim()];
        for (k, column) in out.chunks_exact_mut(self.dim()).enumerate() {
            unit[k] = 1.0;
            self.add_hessian_vector(x, &unit, rows, scale, column, scratch);
            unit[k] = 0.0;
        }
    }

    /// [`Sum::Average`]: `out += scale * sum_{j in rows}` of the mean gradient and the mean
    /// Hessian. Unless a model has a better way it takes the mean over `POINTS` points that
    /// everybody knows, in pairs on both sides of the mean; one point is enough where they are all
    /// the same.
    fn add_average(
        &self,
        law: (&[f64], &[f64]),
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let (d, (mean, spread)) = (self.dim(), law);
        let (gradient, hessian) = out.split_at_mut(d);
        if spread.iter().all(|a| *a == 0.0) {
            self.add_gradient(mean, rows, scale, gradient, scratch);
            return self.add_hessian(mean, rows, scale, hessian, scratch);
        }
        let (mut z, mut x) = (vec![0.0; d], vec![0.0; d]);
        for pair in 0..POINTS / 2 {
            Seed::new(0).stream(Purpose::Proposal, SERVER, pair).normals(&mut z);
            for side in [1.0, -1.0] {
                x.copy_from_slice(mean);
                for (column, z) in spread.chunks_exact(d).zip(&z) {
                    add_scaled(side * z, column, &mut x);
                }
                let share = scale / POINTS as f64;
                self.add_gradient(&x, rows, share, gradient, scratch);
                self.add_hessian(&x, rows, share, hessian, scratch);
            }
        }
    }

    /// Who sums at eight points at once, if the model can.
    fn abreast(&self) -> Option<&dyn Abreast> {
        None
    }

    /// A Lipschitz constant of `grad U_ij`, the same for every `x`.
    fn row_smoothness(&self, row: usize) -> f64;

    /// What may be known of the answers beforehand. A likelihood offers everything.
    fn offers(&self) -> Offers {
        let together = self.abreast().is_some();
        Offers { values: true, hessians: true, together, ..Offers::default() }
    }

    /// As [`Model::row_reach`].
    fn row_reach(&self) -> Option<RowReach> {
        None
    }

    /// As [`Model::reach`].
    fn reach(&self, _x: &[f64]) -> Option<Reach> {
        None
    }

    /// As [`Model::quadratic`].
    fn quadratic(&self) -> Option<Quadratic> {
        None
    }

    /// As [`Model::classifier`].
    fn classifier(&self) -> Option<&dyn Classifier> {
        None
    }

    /// As [`Model::observed`].
    fn observed(&self) -> Option<&dyn RegressionRows> {
        None
    }

    /// What answers: the calls above, unless a model remembers something between them.
    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator>
    where
        Self: Sized + 'static,
    {
        Box::new(Rowwise::new(self))
    }
}

impl<L: Likelihood + 'static> Model for L {
    fn dim(&self) -> usize {
        Likelihood::dim(self)
    }

    fn rows(&self) -> usize {
        Likelihood::rows(self)
    }

    fn offers(&self) -> Offers {
        Likelihood::offers(self)
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Likelihood::evaluator(self)
    }

    fn row_smoothness(&self, row: usize) -> f64 {
        Likelihood::row_smoothness(self, row)
    }

    fn row_reach(&self) -> Option<RowReach> {
        Likelihood::row_reach(self)
    }

    fn reach(&self, x: &[f64]) -> Option<Reach> {
        Likelihood::reach(self, x)
    }

    fn quadratic(&self) -> Option<Quadratic> {
        Likelihood::quadratic(self)
    }

    fn classifier(&self) -> Option<&dyn Classifier> {
        Likelihood::classifier(self)
    }

    fn observed(&self) -> Option<&dyn RegressionRows> {
        Likelihood::observed(self)
    }
}

/// Answers by a likelihood's own calls: eight points at once where it has such, else one ask after
/// the other and point by point.
#[derive(Debug)]
pub struct Rowwise<L> {
    /// The likelihood.
    pub model: Arc<L>,
    scratch: Vec<f64>,
    /// How much of it a call needs.
    needed: usize,
    lanes: Lanes,
}

/// Scratch memory of so many numbers is lent: it would push other things out of the near caches.
const LENT: usize = 4096;

impl<L: Likelihood> Rowwise<L> {
    /// An evaluator that remembers nothing.
    pub fn new(model: Arc<L>) -> Self {
        let needed = model.scratch();
        let scratch = if needed < LENT { vec![0.0; needed] } else { Vec::new() };
        Rowwise { scratch, needed, lanes: Lanes::default(), model }
    }

    /// The likelihood, and its scratch.
    #[inline(always)]
    pub fn parts(&mut self) -> (&L, &mut [f64]) {
        self.make_room();
        (&self.model, &mut self.scratch)
    }

    #[inline(always)]
    fn make_room(&mut self) {
        if self.scratch.len() < self.needed {
            self.scratch.resize(self.needed, 0.0);
        }
    }

    /// The scratch memory, if it is so large that others had better have it too.
    pub fn lent(&mut self) -> Option<&mut Vec<f64>> {
        if self.needed < LENT { None } else { Some(&mut self.scratch) }
    }

    /// Answer one ask.
    #[inline(always)]
    pub fn answer_one(&mut self, ask: &mut Ask<'_>) {
        let (model, scratch) = self.parts();
        let d = Likelihood::dim(model);
        match ask.sum {
            // What samplers ask over and over.
            Sum::Gradient { x } if x.len() == d => {
                model.add_gradient(x, ask.rows, ask.scale, ask.out, scratch)
            }
            Sum::Difference { x, z } if x.len() == d => {
                model.add_gradient_difference(x, z, ask.rows, ask.scale, ask.out, scratch)
            }
            _ => self.answer_many(std::slice::from_mut(ask)),
        }
    }

    /// Answer several asks, or one at several points.
    #[inline(never)]
    fn answer_many(&mut self, asks: &mut [Ask<'_>]) {
        self.make_room();
        let Rowwise { model, scratch, lanes, .. } = self;
        let (model, d) = (&**model, Likelihood::dim(&**model));
        let mut alone = |ask: &mut Ask<'_>| ask.each_point(d, |ask| evaluate(model, ask, scratch));
        match model.abreast() {
            Some(abreast) => lanes.answer(abreast, asks, alone),
            None => asks.iter_mut().for_each(&mut alone),
        }
    }
}

/// Answer an ask at one point.
#[inline(always)]
fn evaluate<L: Likelihood>(model: &L, ask: &mut Ask<'_>, scratch: &mut [f64]) {
    let (rows, scale) = (ask.rows, ask.scale);
    match ask.sum {
        Sum::Value { x } => ask.out[0] += scale * model.value(x, rows, scratch),
        Sum::Gradient { x } => model.add_gradient(x, rows, scale, ask.out, scratch),
        Sum::Difference { x, z } => {
            model.add_gradient_difference(x, z, rows, scale, ask.out, scratch)
        }
        Sum::GradientAndValue { x } => {
            let (gradient, value) = ask.out.split_at_mut(x.len());
            model.add_gradient(x, rows, scale, gradient, scratch);
            value[0] += scale * model.value(x, rows, scratch);
        }
        Sum::HessianVector { x, v } => {
            model.add_hessian_vector(x, v, rows, scale, ask.out, scratch)
        }
        Sum::Hessian { x } => model.add_hessian(x, rows, scale, ask.out, scratch),
        Sum::Average { x, spread } => model.add_average((x, spread), rows, scale, ask.out, scratch),
    }
}

impl<L: Likelihood> Evaluator for Rowwise<L> {
    #[inline]
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        match asks {
            [ask] => self.answer_one(ask),
            asks => self.answer_many(asks),
        }
        Ok(())
    }

    fn scratch(&mut self) -> Option<&mut Vec<f64>> {
        self.lent()
    }
}

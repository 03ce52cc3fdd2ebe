//! State the one posterior that every sampler must draw from.

use std::sync::Arc;

use crate::ask::{Ask, Extent, Question, Sum};
use crate::error::DataError;
use crate::linalg::norm_squared;
use crate::model::{
    Absent, Coordinates, Evaluator, Model, Prior, Reach, Rebalanced, Rows, Single, Surrogate,
    Transforms, Whitened, accumulate_difference, accumulate_gradient,
};
use crate::rng::{ClientId, Rounds, Subsets};
use crate::snapshot::{SnapshotError, State, Visit};

/// `pi(x) ~ exp(-U(x) / T)` with `U = U_0 + sum_i U_i`.
#[derive(Clone, Debug)]
pub struct Target {
    /// `U_i`, one a client.
    pub clients: Vec<Arc<dyn Model>>,
    /// `U_0`: one prior for the whole federation.
    pub prior: Prior,
    /// Who applies the prior.
    pub placement: Placement,
    /// `T`: 1 is Bayes.
    pub temperature: f64,
    /// The model of all clients, which is asked in one call, where their own are placeholders.
    pub joint: Option<Arc<dyn Model>>,
    /// From the scale on which potentials are stated and chains move to that on which draws are
    /// kept and shown.
    pub transforms: Transforms,
}

/// Who applies the prior. It is counted once in all either way.
#[derive(Clone, Debug, PartialEq)]
pub enum Placement {
    /// The server, in its own step.
    Server,
    /// Client `i` adds `v_i U_0`; the weights `v_i` sum to 1.
    Split(Vec<f64>),
}

impl Target {
    /// A checked target.
    pub fn new(
        clients: Vec<Arc<dyn Model>>,
        prior: Prior,
        placement: Placement,
        temperature: f64,
    ) -> Result<Self, DataError> {
        let Some(first) = clients.first() else { return Err(DataError::Empty) };
        let dim = first.dim();
        for (i, client) in clients.iter().enumerate() {
            if client.dim() != dim {
                return Err(DataError::Dimension {
                    what: format!("client {i}"),
                    found: client.dim(),
                    expected: dim,
                });
            }
        }
        if let Some(found) = prior.dim().filter(|found| *found != dim) {
            let what = "the prior".into();
            return Err(DataError::Dimension { what, found, expected: dim });
        }
        if let Placement::Split(weights) = &placement {
            check_probabilities("the prior's split", weights, clients.len())?;
        }
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(DataError::NotPositive { what: "the temperature", value: temperature });
        }
        let transforms = Transforms::default();
        Ok(Target { clients, prior, placement, temperature, joint: None, transforms })
    }

    /// A checked target whose potentials are evaluated in one call: see
    /// [`crate::protocol::Jointly`].
    pub fn of_joint(
        joint: Arc<dyn Model>,
        prior: Prior,
        placement: Placement,
        temperature: f64,
    ) -> Result<Self, DataError> {
        if joint.dim() == 0 {
            return Err(DataError::Empty);
        }
        let mut clients: Vec<Arc<dyn Model>> = Vec::with_capacity(joint.clients());
        for i in 0..joint.clients() {
            let rows = joint.rows_of(ClientId(i as u32));
            if rows == 0 || u32::try_from(rows).is_err() {
                return Err(DataError::Rows { client: i, rows });
            }
            clients.push(Arc::new(Absent::new(joint.dim(), rows)));
        }
        Ok(Target { joint: Some(joint), ..Target::new(clients, prior, placement, temperature)? })
    }

    /// The same target with some parameters that are positive or ordered.
    pub fn shown_by(self, transforms: Transforms) -> Self {
        Target { transforms, ..self }
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.clients[0].dim()
    }

    /// The same target with the prior split over the clients by `weights`, as family B needs it.
    pub(crate) fn split_by(mut self, weights: &[f64]) -> Self {
        self.placement = Placement::Split(weights.to_vec());
        self
    }

    /// The same target in other coordinates: `u` instead of `x`. The prior becomes part of the
    /// clients' potentials, by `shares` that sum to 1.
    pub fn whitened(&self, coordinates: &Arc<Coordinates>, shares: &[f64]) -> Target {
        let whiten = |model: &Arc<dyn Model>, shares: &[f64]| -> Arc<dyn Model> {
            let (inner, coordinates) = (Arc::clone(model), Arc::clone(coordinates));
            Arc::new(Whitened::new(inner, self.prior.clone(), shares.to_vec(), coordinates))
        };
        let alone = |(client, share): (&Arc<dyn Model>, &f64)| whiten(client, &[*share]);
        Target {
            clients: self.clients.iter().zip(shares).map(alone).collect(),
            prior: Prior::Flat,
            placement: Placement::Server,
            temperature: self.temperature,
            joint: self.joint.as_ref().map(|joint| whiten(joint, shares)),
            transforms: self.transforms.clone(),
        }
    }

    /// The same target, dealt anew to clients of these weights so that they pull more alike: the
    /// better the surrogates are, one for each client, the more so.
    pub fn rebalanced(
        &self,
        weights: &[f64],
        surrogates: &[Surrogate],
    ) -> Result<Target, DataError> {
        check_probabilities("the clients' weights", weights, self.clients.len())?;
        let (d, found) = (self.dim(), surrogates.len());
        if found != self.clients.len() {
            return Err(DataError::Dimension {
                what: "the list of surrogates".into(),
                found,
                expected: self.clients.len(),
            });
        }
        let mut whole = Surrogate { precision: vec![0.0; d], shift: vec![0.0; d] };
        for (i, surrogate) in surrogates.iter().enumerate() {
            for (part, sum) in
                [(&surrogate.precision, &mut whole.precision), (&surrogate.shift, &mut whole.shift)]
            {
                if part.len() != d {
                    return Err(DataError::Dimension {
                        what: format!("the surrogate of client {i}"),
                        found: part.len(),
                        expected: d,
                    });
                }
                crate::linalg::add_scaled(1.0, part, sum);
            }
        }
        let deal =
            |((client, own), weight): ((&Arc<dyn Model>, &Surrogate), &f64)| -> Arc<dyn Model> {
                Arc::new(Rebalanced::new(Arc::clone(client), own, *weight, &whole))
            };
        let clients = self.clients.iter().zip(surrogates).zip(weights).map(deal).collect();
        let (prior, placement) = (self.prior.clone(), self.placement.clone());
        let dealt = Target::new(clients, prior, placement, self.temperature)?;
        Ok(dealt.shown_by(self.transforms.clone()))
    }

    /// `U(x)`; NaN where potentials are placeholders.
    pub fn value(&self, x: &[f64]) -> f64 {
        let likelihood: f64 = self.clients.iter().map(|c| Single::new(c).value(x)).sum();
        likelihood + self.prior.value(x)
    }

    /// `grad U(x)`, into `out`; NaN where potentials are placeholders.
    pub fn gradient(&self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for client in &self.clients {
            Single::new(client).add_gradient(x, Rows::All, 1.0, out);
        }
        self.prior.add_gradient(x, 1.0, out);
    }

    /// How large what client `id` says of its potential can be at `x`, its share of the prior
    /// included, where its rows have a bound.
    pub fn reach(&self, id: ClientId, x: &[f64]) -> Option<Reach> {
        let mut reach = self.clients[id.index()].reach(x)?;
        if let Placement::Split(weights) = &self.placement {
            let mut gradient = vec![0.0; x.len()];
            self.prior.add_gradient(x, weights[id.index()], &mut gradient);
            reach.gradient += norm_squared(&gradient).sqrt();
            reach.value += weights[id.index()] * self.prior.value(x).abs();
        }
        Some(reach)
    }

    /// What client `id` works with, with minibatches of `batch` rows.
    pub fn site(&self, id: ClientId, batch: usize) -> Site {
        let model = &self.clients[id.index()];
        let prior_weight = match &self.placement {
            Placement::Server => 0.0,
            Placement::Split(weights) => weights[id.index()],
        };
        let (rows, offers) = (model.rows(), model.offers());
        assert!((1..=rows).contains(&batch), "a minibatch has between 1 and all rows");
        Site {
            id,
            evaluator: Arc::clone(model).evaluator(),
            subsets: Subsets::new(if batch < rows { rows } else { 0 }),
            chosen: vec![0; if batch < rows { batch } else { 0 }],
            dim: model.dim(),
            rows,
            differences_ignore_rows: offers.differences_ignore_rows,
            batch,
            inflation: rows as f64 / batch as f64,
            each: None,
            prior: self.prior.clone(),
            prior_weight,
            rows_evaluated: 0,
        }
    }

    /// The same with minibatches of which every row is with this probability, by itself.
    pub(crate) fn site_drawing_each(&self, id: ClientId, probability: f64) -> Site {
        let site = self.site(id, self.clients[id.index()].rows());
        let chosen = Vec::with_capacity(site.rows);
        let (each, inflation) = (Some(probability), 1.0 / probability);
        Site { each, inflation, chosen, ..site }
    }
}

/// Check that `weights` are `n` positive numbers that sum to 1.
pub(crate) fn check_probabilities(
    what: &'static str,
    weights: &[f64],
    n: usize,
) -> Result<(), DataError> {
    let refuse = |problem: String| Err(DataError::Weights { what, problem });
    if weights.len() != n {
        return refuse(format!(
            "{} weights for {n} clients: there must be one for each",
            weights.len()
        ));
    }
    if let Some((i, w)) = weights.iter().enumerate().find(|(_, w)| !(**w >= 0.0 && w.is_finite())) {
        return refuse(format!("the weight of client {i} is {w}: it must be at least 0"));
    }
    let sum: f64 = weights.iter().sum();
    if (sum - 1.0).abs() > 1e-9 {
        refuse(format!("the weights sum to {sum}: they must sum to 1"))
    } else {
        Ok(())
    }
}

/// A client's own data with its share of the prior: `U_i + v_i U_0`. The prior's gradient is exact
/// in every oracle, never subsampled.
#[derive(Debug)]
pub struct Site {
    id: ClientId,
    /// What saves work is in here and is no state: a site that is restored finds the same numbers.
    evaluator: Box<dyn Evaluator>,
    prior: Prior,
    prior_weight: f64,
    /// What the model says of itself, here so that nobody has to ask: its size, and whether their
    /// choice matters to a difference.
    dim: usize,
    rows: usize,
    differences_ignore_rows: bool,
    batch: usize,
    /// `N/n`: what makes a sum over a minibatch stand for the sum over all rows.
    inflation: f64,
    subsets: Subsets,
    chosen: Vec<u32>,
    /// With which probability a row is in a minibatch, where each is drawn by itself.
    each: Option<f64>,
    rows_evaluated: u64,
}

impl Site {
    /// Which client this is.
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// How many row gradients were evaluated so far: what a run costs in computation.
    pub fn rows_evaluated(&self) -> u64 {
        self.rows_evaluated
    }

    /// Draw the minibatch that is asked about next: a uniform subset, without replacement, or every
    /// row by itself.
    #[inline(always)]
    pub fn draw_rows(&mut self, batches: &mut Rounds, round: u64) {
        if let Some(probability) = self.each {
            let stream = batches.stream(round);
            self.chosen.clear();
            self.chosen.extend((0..self.rows as u32).filter(|_| stream.coin(probability)));
        } else if !self.chosen.is_empty() {
            self.subsets.draw(self.rows as u32, batches.stream(round), &mut self.chosen);
        }
    }

    /// Draw the minibatches of these rounds into `all`, one behind the other; one alone where their
    /// choice does not matter to the differences that are asked for.
    pub(crate) fn draw_all_rows(
        &mut self,
        batches: &mut Rounds,
        rounds: std::ops::Range<u64>,
        differences: bool,
        all: &mut Vec<u32>,
    ) {
        all.clear();
        if differences && self.differences_ignore_rows {
            // the rows of any draw before will do: a stream is an address, so leaving one out moves
            // no other
            all.extend_from_slice(&self.chosen);
            return;
        }
        for round in rounds {
            self.draw_rows(batches, round);
            all.extend_from_slice(&self.chosen);
        }
    }

    /// The same for one round.
    #[inline(always)]
    pub(crate) fn draw_rows_of_difference(&mut self, batches: &mut Rounds, round: u64) {
        if !self.differences_ignore_rows {
            self.draw_rows(batches, round);
        }
    }

    /// What a walk needs of the site: the prior, this client's share of it, how many rows a
    /// minibatch has, what makes their sum stand for all rows, and who takes steps.
    pub(crate) fn for_walks(&mut self) -> (&Prior, f64, usize, f64, &mut dyn Evaluator) {
        let Site { prior, prior_weight, batch, inflation, evaluator, .. } = self;
        (prior, *prior_weight, *batch, *inflation, &mut **evaluator)
    }

    /// A question to whoever knows the rows.
    #[inline(always)]
    pub fn ask<'a>(&'a mut self, question: Question<'a>) -> Ask<'a> {
        self.split(question).0
    }

    /// The question as asked of rows, and what answers it here.
    #[inline(always)]
    fn split<'a>(&'a mut self, question: Question<'a>) -> (Ask<'a>, &'a mut dyn Evaluator) {
        let Question { sum, extent, scale, out } = question;
        let (rows, scale) = match extent {
            Extent::Minibatch if self.chosen.is_empty() && self.each.is_none() => {
                (Rows::All, scale * self.inflation)
            }
            Extent::Minibatch => (Rows::Some(&self.chosen), scale * self.inflation),
            Extent::All => (Rows::All, scale),
        };
        (Ask { client: self.id, sum, rows, scale, out }, &mut *self.evaluator)
    }

    /// Add the prior's share to an answer, and count the rows that it took.
    #[inline(always)]
    pub fn complete(&mut self, question: Question<'_>) {
        let Question { sum, extent, scale, out } = question;
        let weight = scale * self.prior_weight;
        let rows = match (extent, self.each) {
            (Extent::All, _) => self.rows,
            (Extent::Minibatch, None) => self.batch,
            // which are told with every answer: how many the coins chose would tell of the rows
            (Extent::Minibatch, Some(each)) => (each * self.rows as f64).round() as usize,
        } as u64;
        let (d, prior) = (self.dim, &self.prior);
        let points = |x: &[f64]| if x.len() == d { 1 } else { (x.len() / d) as u64 };
        self.rows_evaluated += match sum {
            Sum::Gradient { x } | Sum::Value { x } => rows * points(x),
            Sum::Difference { x, .. } => 2 * rows * points(x),
            Sum::GradientAndValue { .. } => rows,
            Sum::HessianVector { .. } | Sum::Hessian { .. } | Sum::Average { .. } => 0,
        };
        if self.prior_weight == 0.0 {
            return;
        }
        match sum {
            Sum::Value { x } => {
                for (x, out) in x.chunks_exact(d).zip(out) {
                    *out += weight * prior.value(x);
                }
            }
            Sum::Gradient { x } => {
                for (x, out) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)) {
                    accumulate_gradient(prior, x, weight, out);
                }
            }
            Sum::Difference { x, z } => {
                let pairs = x.chunks_exact(d).zip(z.chunks_exact(d));
                for ((x, z), out) in pairs.zip(out.chunks_exact_mut(d)) {
                    accumulate_difference(prior, x, z, weight, out);
                }
            }
            Sum::GradientAndValue { x } => {
                let (gradient, value) = out.split_at_mut(d);
                prior.add_gradient(x, weight, gradient);
                value[0] += weight * prior.value(x);
            }
            Sum::HessianVector { x, v } => prior.add_hessian_vector(x, v, weight, out),
            Sum::Hessian { x } => prior.add_hessian(x, weight, out),
            Sum::Average { x, spread } => prior.add_average((x, spread), weight, out),
        }
    }

    /// Answer a question by the client's own model. What that cannot answer is NaN, which every
    /// receiver refuses.
    #[inline(always)]
    pub fn answer(&mut self, question: Question<'_>) {
        let Question { sum, extent, scale, out } = question;
        let (ask, evaluator) = self.split(Question { sum, extent, scale, out: &mut *out });
        let mut asks = [ask];
        if evaluator.answer(&mut asks).is_err() {
            asks[0].out.fill(f64::NAN);
        }
        self.complete(Question { sum, extent, scale, out });
    }

    /// Borrow scratch memory, or give it back: it changes places with the evaluator's own.
    #[inline(always)]
    pub(crate) fn swap_scratch(&mut self, other: &mut Vec<f64>) {
        if let Some(own) = self.evaluator.scratch() {
            std::mem::swap(own, other);
        }
    }

    /// Say by its number from which reference point the next differences are.
    #[inline(always)]
    pub(crate) fn refer_to(&mut self, number: u64) {
        self.evaluator.refer_to(number);
    }

    /// Count row gradients that somebody else evaluated.
    pub(crate) fn count_rows(&mut self, rows: u64) {
        self.rows_evaluated += rows;
    }

    /// The exact gradient with the prior's share, into `out`.
    pub fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        self.answer(Question { sum: Sum::Gradient { x }, extent: Extent::All, scale: 1.0, out });
    }
}

impl State for Site {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.number("the row gradients evaluated", &mut self.rows_evaluated)
    }
}

//! State the one posterior that every sampler must draw from.

use std::sync::Arc;

use crate::error::DataError;
use crate::model::{Coordinates, Potential, Prior, Rows, Whitened};
use crate::rng::{ClientId, Stream, Subsets};
use crate::snapshot::{SnapshotError, State, Visit};

/// `pi(x) ~ exp(-U(x) / T)` with `U = U_0 + sum_i U_i`.
#[derive(Clone, Debug)]
pub struct Target {
    /// `U_i`, one a client.
    pub clients: Vec<Arc<dyn Potential>>,
    /// `U_0`: one prior for the whole federation.
    pub prior: Prior,
    /// Who applies the prior.
    pub placement: Placement,
    /// `T`: 1 is Bayes.
    pub temperature: f64,
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
    pub fn new(clients: Vec<Arc<dyn Potential>>, prior: Prior, placement: Placement, temperature: f64) -> Result<Self, DataError> {
        let Some(first) = clients.first() else { return Err(DataError::Empty) };
        let dim = first.dim();
        for (i, client) in clients.iter().enumerate() {
            if client.dim() != dim {
                return Err(DataError::Dimension { what: format!("client {i}"), found: client.dim(), expected: dim });
            }
        }
        if let Prior::Gaussian(precision) = &prior
            && precision.len() != dim
        {
            return Err(DataError::Dimension { what: "the prior".into(), found: precision.len(), expected: dim });
        }
        if let Placement::Split(weights) = &placement {
            check_probabilities("the prior's split", weights, clients.len())?;
        }
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(DataError::NotPositive { what: "the temperature", value: temperature });
        }
        Ok(Target { clients, prior, placement, temperature })
    }

    /// How many parameters there are.
    pub fn dim(&self) -> usize {
        self.clients[0].dim()
    }

    /// The same target with the prior split over the clients by `weights`, as family B needs it.
    pub fn split_by(mut self, weights: &[f64]) -> Self {
        self.placement = Placement::Split(weights.to_vec());
        self
    }

    /// The same target in other coordinates: `u` instead of `x`. The prior becomes part of the clients' potentials, by `shares` that sum to 1.
    pub fn whitened(&self, coordinates: &Arc<Coordinates>, shares: &[f64]) -> Target {
        let whiten = |(client, share): (&Arc<dyn Potential>, &f64)| -> Arc<dyn Potential> {
            Arc::new(Whitened::new(Arc::clone(client), self.prior.clone(), *share, Arc::clone(coordinates)))
        };
        Target {
            clients: self.clients.iter().zip(shares).map(whiten).collect(),
            prior: Prior::Flat,
            placement: Placement::Server,
            temperature: self.temperature,
        }
    }

    /// `U(x)`.
    pub fn value(&self, x: &[f64]) -> f64 {
        let likelihood: f64 = self.clients.iter().map(|c| c.value(x, &mut vec![0.0; c.scratch()])).sum();
        likelihood + self.prior.value(x)
    }

    /// `grad U(x)`, into `out`.
    pub fn gradient(&self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        for client in &self.clients {
            client.add_gradient(x, Rows::All, 1.0, out, &mut vec![0.0; client.scratch()]);
        }
        self.prior.add_gradient(x, 1.0, out);
    }

    /// What client `id` works with, with minibatches of `batch` rows.
    pub fn site(&self, id: ClientId, batch: usize) -> Site {
        let potential = Arc::clone(&self.clients[id.index()]);
        let prior_weight = match &self.placement {
            Placement::Server => 0.0,
            Placement::Split(weights) => weights[id.index()],
        };
        let rows = potential.rows();
        assert!((1..=rows).contains(&batch), "a minibatch has between 1 and all rows");
        Site {
            id,
            subsets: Subsets::new(if batch < rows { rows } else { 0 }),
            chosen: vec![0; if batch < rows { batch } else { 0 }],
            scratch: vec![0.0; potential.scratch()],
            batch,
            prior: self.prior.clone(),
            prior_weight,
            rows_evaluated: 0,
            potential,
        }
    }
}

/// Check that `weights` are `n` positive numbers that sum to 1.
pub fn check_probabilities(what: &'static str, weights: &[f64], n: usize) -> Result<(), DataError> {
    let refuse = |problem: String| Err(DataError::Weights { what, problem });
    if weights.len() != n {
        return refuse(format!("{} weights for {n} clients: there must be one for each", weights.len()));
    }
    if let Some((i, w)) = weights.iter().enumerate().find(|(_, w)| !(**w >= 0.0 && w.is_finite())) {
        return refuse(format!("the weight of client {i} is {w}: it must be at least 0"));
    }
    let sum: f64 = weights.iter().sum();
    if (sum - 1.0).abs() > 1e-9 { refuse(format!("the weights sum to {sum}: they must sum to 1")) } else { Ok(()) }
}

/// A client's own data with its share of the prior: `U_i + v_i U_0`. The prior's gradient is exact in every oracle, never subsampled.
#[derive(Debug)]
pub struct Site {
    id: ClientId,
    potential: Arc<dyn Potential>,
    prior: Prior,
    prior_weight: f64,
    batch: usize,
    subsets: Subsets,
    chosen: Vec<u32>,
    scratch: Vec<f64>,
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

    /// `U_i(x) + v_i U_0(x)`.
    pub fn value(&mut self, x: &[f64]) -> f64 {
        self.potential.value(x, &mut self.scratch) + self.prior_weight * self.prior.value(x)
    }

    /// The exact gradient, into `out`.
    pub fn gradient(&mut self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        self.potential.add_gradient(x, Rows::All, 1.0, out, &mut self.scratch);
        self.add_prior(x, out);
        self.rows_evaluated += self.potential.rows() as u64;
    }

    /// The Hessian times `v`, into `out`.
    pub fn hessian_vector(&mut self, x: &[f64], v: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        self.potential.add_hessian_vector(x, v, 1.0, out, &mut self.scratch);
        self.prior.add_hessian_vector(v, self.prior_weight, out);
    }

    /// Draw the minibatch that [`Site::estimate`] and [`Site::add_difference`] use: a uniform subset, without replacement.
    pub fn draw_batch(&mut self, stream: impl FnOnce() -> Stream) {
        if !self.chosen.is_empty() {
            self.subsets.draw(self.potential.rows() as u32, &mut stream(), &mut self.chosen);
        }
    }

    /// `(N/n) sum_{j in S} grad U_ij(x)` and the prior's share, into `out`.
    pub fn estimate(&mut self, x: &[f64], out: &mut [f64]) {
        out.fill(0.0);
        let rows = if self.chosen.is_empty() { Rows::All } else { Rows::Some(&self.chosen) };
        self.potential.add_gradient(x, rows, self.inflation(), out, &mut self.scratch);
        self.add_prior(x, out);
        self.rows_evaluated += self.batch as u64;
    }

    /// `out += scale ((N/n) sum_{j in S} [grad U_ij(x) - grad U_ij(z)]` and the same of the prior's share`)`.
    pub fn add_difference(&mut self, x: &[f64], z: &[f64], scale: f64, out: &mut [f64]) {
        let rows = if self.chosen.is_empty() { Rows::All } else { Rows::Some(&self.chosen) };
        let scale_of_rows = scale * self.inflation();
        self.potential.add_gradient_difference(x, z, rows, scale_of_rows, out, &mut self.scratch);
        if self.prior_weight > 0.0 {
            self.prior.add_gradient_difference(x, z, scale * self.prior_weight, out);
        }
        self.rows_evaluated += 2 * self.batch as u64;
    }

    /// `N/n`: what makes a sum over a minibatch stand for the sum over all rows.
    fn inflation(&self) -> f64 {
        self.potential.rows() as f64 / self.batch as f64
    }

    fn add_prior(&self, x: &[f64], out: &mut [f64]) {
        if self.prior_weight > 0.0 {
            self.prior.add_gradient(x, self.prior_weight, out);
        }
    }
}

impl State for Site {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.number("the row gradients evaluated", &mut self.rows_evaluated)
    }
}

//! Deal rows to clients, and make the samplers of QLSD's Tables 3 and S1.

use std::sync::{Arc, Mutex};

use consilience_core::compress::Compressor;
use consilience_core::linalg::dot;
use consilience_core::model::{Glm, GlmFamily, Model, Prior, Single, Softmax, Surrogate};
use consilience_core::protocol::Ledger;
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::sampler::{Batch, Local, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Optimum, conduct};
use consilience_core::target::{Placement, Target};
use consilience_engine::data::catalogue;
use consilience_engine::data::partition::{Scheme, split, subset};
use serde::Deserialize;

use super::super::pooled::pooled;
use crate::experiment::Trouble;
use crate::study::Study;

/// In how many random directions a client's mean curvature is measured.
const DIRECTIONS: u64 = 8;

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// A data set of the catalogue.
    pub(super) data: String,
    /// How many of its rows, chosen at random.
    pub(super) rows: usize,
    /// Images become the means of squares of so many pixels by as many.
    pub(super) pool: usize,
    /// The class whose probability is modelled, where there are to be two.
    pub(super) positive: Option<u32>,
    pub(super) intercept: bool,
    pub(super) clients: usize,
    /// The concentration of the clients' labels and sizes.
    pub(super) concentration: f64,
    pub(super) prior_variance: f64,
    pub(super) every: u64,
    pub(super) step: f64,
    /// Minibatches are this part of a client's rows.
    pub(super) batch: f64,
    pub(super) bits: Vec<u32>,
    /// Which of DG-SGLD and FSGLD are compared.
    pub(super) competitors: Vec<String>,
    /// How many steps they take between messages.
    pub(super) local: u64,
    /// How loosely DG-SGLD ties its clients, in their own steps.
    pub(super) tether: f64,
    pub(super) iterations: u64,
    pub(super) burn_in: u64,
    /// Every so many iterations the potential is noted.
    pub(super) thinning: u64,
    pub(super) runs: u32,
    /// Draws of the Metropolis-adjusted reference.
    pub(super) draws: usize,
    /// The length of a message in the authors' count of bits.
    pub(super) published_length: usize,
}

/// The target, and what is known about it.
pub(super) struct Problem {
    pub(super) target: Target,
    /// The same target, dealt anew by surrogates: FSGLD's.
    pub(super) rebalanced: Target,
    /// The clients' parts of the rows.
    pub(super) weights: Vec<f64>,
    pub(super) optimum: Vec<f64>,
    /// How many coordinates a message has: one message for each class.
    pub(super) length: usize,
}

impl Setting {
    /// The samplers, by the names that cells and numbers have.
    pub(super) fn samplers(&self) -> Vec<String> {
        std::iter::once("lsd++".to_owned()).chain(self.compared()).collect()
    }

    /// The samplers whose errors the tables have.
    pub(super) fn compared(&self) -> impl Iterator<Item = String> {
        self.bits.iter().map(u32::to_string).chain(self.competitors.iter().cloned())
    }

    fn problem(&self, study: &Study) -> Result<Problem, Trouble> {
        let all = catalogue::load(&self.data, study.data.as_deref())?;
        let seed = Seed::new(study.seed);
        let mut data = all.select(&subset(all.rows(), self.rows.min(all.rows()), seed));
        if let Some(positive) = self.positive {
            data.labels
                .iter_mut()
                .for_each(|label| *label = f64::from(u8::from(*label == f64::from(positive))));
            data.classes = Some(vec!["others".into(), "this".into()]);
        }
        if self.pool > 1 {
            let side = data.columns.len().isqrt();
            data = pooled(data, self.pool, [1, side, side])?;
        }
        let other = |e: &dyn std::fmt::Display| Trouble::Other(e.to_string());
        let dealt =
            split(&data, &Scheme::Dirichlet(Some(self.concentration)), Some(self.clients), seed)
                .map_err(|e| other(&e))?;
        let classes = data.classes.as_ref().map_or(0, Vec::len);
        let greatest = data.greatest();
        let client = |rows: &Vec<u32>| -> Result<Arc<dyn Model>, Trouble> {
            let design = data.design(rows, self.intercept, &greatest)?;
            let labels = data.labels_of(rows);
            Ok(match classes {
                2 => Arc::new(Glm::new(design, labels, GlmFamily::Bernoulli)?),
                _ => Arc::new(Softmax::new(
                    design,
                    labels.iter().map(|label| *label as u32).collect(),
                    classes,
                )?),
            })
        };
        let clients: Vec<_> = dealt.rows.iter().map(client).collect::<Result<_, _>>()?;
        let dim = clients.first().map_or(0, |client| client.dim());
        let target = Target::new(
            clients,
            Prior::gaussian(self.prior_variance, dim)?,
            Placement::Server,
            1.0,
        )?;
        let search = Optimum::new(&target, &vec![0.0; dim], 1e-6, 1000);
        let optimum = conduct(search, &mut Client::all(&target), &mut Ledger::new(self.clients))
            .point()
            .to_vec();
        let rows = target.clients.iter().map(|client| client.rows() as f64);
        let all: f64 = rows.clone().sum();
        let weights: Vec<f64> = rows.map(|rows| rows / all).collect();
        let surrogates = (0..).zip(&target.clients).map(|(i, client)| {
            let curvature = mean_curvature(client, &optimum, seed, ClientId(i));
            Surrogate::at(&optimum, vec![curvature; dim], client)
        });
        let rebalanced = target.rebalanced(&weights, &surrogates.collect::<Vec<_>>())?;
        Ok(Problem {
            target,
            rebalanced,
            weights,
            optimum,
            length: data.columns.len() + usize::from(self.intercept),
        })
    }

    pub(super) fn recipe(&self, sampler: &str, problem: &Problem) -> Recipe {
        let (step, batch) = (Schedule::Constant(self.step), Batch::Fraction(self.batch));
        let weights = || problem.weights.clone();
        match sampler {
            "dg-sgld" => {
                return Recipe::Local(Local::dg_lmc(
                    step,
                    weights(),
                    self.local,
                    self.tether,
                    batch,
                ));
            }
            "fsgld" => return Recipe::Local(Local::fsgld(step, weights(), self.local, batch)),
            _ => {}
        }
        Recipe::Uplink(match sampler.parse::<u32>() {
            Ok(bits) => {
                let whole = Compressor::qsgd(1 << bits);
                let up = if problem.length < problem.target.dim() {
                    whole.block(problem.length)
                } else {
                    whole
                };
                let rate = 1.0 / (1.0 + up.omega(problem.target.dim()).unwrap_or(0.0));
                Uplink::qlsd_plus_plus(step, batch, self.every, Some(rate), up)
            }
            Err(_) => Uplink::lsd_plus_plus(step, batch, self.every, None),
        })
    }
}

/// The mean of the curvatures of a client's potential in random directions.
fn mean_curvature(client: &Arc<dyn Model>, at: &[f64], seed: Seed, id: ClientId) -> f64 {
    let (mut v, mut client) = (vec![0.0; at.len()], Single::new(client));
    let curvature = |k| {
        seed.stream(Purpose::Curvature, id, k).normals(&mut v);
        let mut image = vec![0.0; at.len()];
        client.add_hessian_vector(at, &v, 1.0, &mut image);
        dot(&v, &image) / dot(&v, &v)
    };
    (0..DIRECTIONS).map(curvature).sum::<f64>() / DIRECTIONS as f64
}

/// The problem that was read last: all cells of a study share it, and reading takes longer than
/// some cells do.
static READ: Mutex<Option<(Setting, u64, Arc<Problem>)>> = Mutex::new(None);

pub(super) fn shared(setting: &Setting, study: &Study) -> Result<Arc<Problem>, Trouble> {
    let Ok(mut read) = READ.lock() else { return Ok(Arc::new(setting.problem(study)?)) };
    match &*read {
        Some((known, seed, problem)) if known == setting && *seed == study.seed => {
            Ok(problem.clone())
        }
        _ => {
            let problem = Arc::new(setting.problem(study)?);
            *read = Some((setting.clone(), study.seed, problem.clone()));
            Ok(problem)
        }
    }
}

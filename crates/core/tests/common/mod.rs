//! Targets and drivers that the tests of samplers share.
#![allow(dead_code, clippy::unwrap_used)] // every test file uses its own part, and a test may panic

use std::sync::Arc;

use consilience_core::model::{Design, Gaussian, Glm, GlmFamily, Isotropic, Model, Prior};
use consilience_core::protocol::{Device, Event, Ledger, exchange};
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::sampler::{Anchor, Keys, Recipe, Sampler};
use consilience_core::target::{Placement, Target};

pub fn normals(address: u64, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(4711).stream(Purpose::Data, ClientId(0), address).normals(&mut z);
    z
}

/// Three clients in two dimensions with full, unequal precisions and means far apart: nothing about
/// it is symmetric.
pub fn gaussian(prior: Prior, placement: Placement, temperature: f64) -> Target {
    let clients: Vec<Arc<dyn Model>> = vec![
        Arc::new(Gaussian::new(vec![1.0, -2.0], vec![1.0, 0.4, 0.4, 0.6]).unwrap()),
        Arc::new(Gaussian::new(vec![-1.5, 0.5], vec![0.5, -0.3, -0.3, 1.4]).unwrap()),
        Arc::new(Gaussian::new(vec![3.0, 2.0], vec![1.2, 0.2, 0.2, 0.3]).unwrap()),
    ];
    Target::new(clients, prior, placement, temperature).unwrap()
}

/// Three clients with 5, 9 and 14 rows of linear regression: row gradients differ in slope and in
/// shift.
pub fn linear(prior: Prior, placement: Placement, temperature: f64) -> Target {
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for (i, rows) in [5usize, 9, 14].into_iter().enumerate() {
        let design = Design::dense(
            normals(i as u64, rows * 2)
                .iter()
                .enumerate()
                .map(|(k, z)| z + (k % 2) as f64 * 0.7)
                .collect(),
            2,
        )
        .unwrap();
        let response = normals(10 + i as u64, rows).iter().map(|z| 2.0 * z + i as f64).collect();
        clients.push(Arc::new(
            Glm::new(design, response, GlmFamily::Gaussian { variance: 1.5 }).unwrap(),
        ));
    }
    Target::new(clients, prior, placement, temperature).unwrap()
}

/// The toy Gaussian of QLSD: unequal numbers of rows around means far apart.
pub fn toy(prior: Prior, placement: Placement) -> Target {
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for (i, rows) in [4usize, 10, 25].into_iter().enumerate() {
        let centre = [3.0 * i as f64 - 2.0, 1.0 - i as f64];
        let cells = normals(20 + i as u64, rows * 2)
            .iter()
            .enumerate()
            .map(|(k, z)| z + centre[k % 2])
            .collect();
        clients.push(Arc::new(Isotropic::new(cells, 2).unwrap()));
    }
    Target::new(clients, prior, placement, 1.0).unwrap()
}

/// Where control variates are taken, with the gradient that is left there.
pub fn anchor(target: &Target, point: Vec<f64>) -> Anchor {
    let mut residual = vec![0.0; target.dim()];
    for i in 0..target.clients.len() {
        let rows = target.clients[i].rows();
        let mut g = vec![0.0; target.dim()];
        target.site(ClientId(i as u32), rows).gradient(&point, &mut g);
        consilience_core::linalg::add_scaled(1.0, &g, &mut residual);
    }
    Anchor { point, residual }
}

pub struct Chain {
    pub server: Box<dyn Sampler>,
    pub clients: Vec<Box<dyn Device>>,
    pub ledger: Ledger,
}

pub fn start(recipe: &Recipe, target: &Target, from: &[f64], seed: u64, chain: u32) -> Chain {
    let keys = Keys::simulation(Seed::new(seed), chain);
    let target = recipe.check(target.clone()).unwrap();
    let b = target.clients.len();
    Chain {
        server: recipe.server(&target, from, keys).unwrap(),
        clients: (0..b as u32)
            .map(|i| recipe.client(&target, ClientId(i), keys).unwrap())
            .collect(),
        ledger: Ledger::new(b),
    }
}

impl Chain {
    /// Go on to the next draw.
    pub fn draw(&mut self) -> &[f64] {
        loop {
            match exchange(&mut *self.server, &mut self.clients, &mut self.ledger) {
                Event::Draw => return self.server.position(),
                Event::Nothing => {}
                other => panic!("{other:?} at iteration {}", self.server.iteration()),
            }
        }
    }

    pub fn draws(&mut self, n: usize) -> Vec<Vec<f64>> {
        (0..n).map(|_| self.draw().to_vec()).collect()
    }
}

/// The first `n` draws.
pub fn run(recipe: &Recipe, target: &Target, n: usize) -> Vec<Vec<f64>> {
    start(recipe, target, &vec![0.3; target.dim()], 1, 0).draws(n)
}

pub fn largest_difference(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().flatten().zip(b.iter().flatten()).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
}

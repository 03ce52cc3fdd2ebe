//! Proposals with nodes along the logarithm of a scale have the law of the posterior, on a
//! regression with effects of groups whose law is known by quadrature.
//!
//! The means of 24 functions (coordinates, their products, and smooth steps at five places of each)
//! over 256 independent chains are compared with their standard errors: |z| < 4.9 for all of them
//! fails by chance once in 40,000 runs; seeds are fixed. The same numbers reject the Gaussian that
//! fits the posterior best.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its scores

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::measure::{Independence, pareto_k};
use consilience_core::model::{
    Coordinates, Design, GroupEffects, Model, PointLoss, Prior, Unextended,
};
use consilience_core::proposal::{Proposal, scale_axes};
use consilience_core::protocol::Ledger;
use consilience_core::sampler::{Metropolis, Recipe};
use consilience_core::simd::{exp, ln};
use consilience_core::survey::{AlongScale, Client, Fit, Minimum, Pilot, conduct};
use consilience_core::target::{Placement, Target};

const CHAINS: u32 = 256;
const BURN_IN: usize = 10;
const DRAWS: usize = 150;
const STEPS: [f64; 5] = [-1.6, -0.7, 0.0, 0.7, 1.6];
const FUNCTIONS: usize = 3 + 6 + 3 * STEPS.len();

/// All functions of a point; far out they are bounded, since the scale has long tails.
fn functions(u: &[f64]) -> [f64; FUNCTIONS] {
    let mut all = [0.0; FUNCTIONS];
    let mut next = all.iter_mut();
    let mut put = |value: f64| *next.next().unwrap() = value;
    let near = |x: f64| 4.0 * (0.25 * x).tanh();
    for i in 0..3 {
        put(near(u[i]));
        (i..3).for_each(|k| put(near(u[i]) * near(u[k])));
        STEPS.iter().for_each(|place| put((3.0 * (u[i] - place)).tanh()));
    }
    all
}

/// Logistic regression.
#[derive(Clone, Copy, Debug)]
struct Bernoulli;

impl PointLoss for Bernoulli {
    fn loss(&self, t: f64, y: f64) -> f64 {
        t.max(0.0) + ln(1.0 + exp(-t.abs())) - y * t
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        1.0 / (1.0 + exp(-t)) - y
    }

    fn bend(&self, t: f64, _y: f64) -> f64 {
        let p = 1.0 / (1.0 + exp(-t));
        p * (1.0 - p)
    }

    fn most_bend(&self) -> f64 {
        0.25
    }

    fn responses(&self) -> &'static str {
        "0 or 1"
    }
}

/// An intercept, a slope and the logarithm of the standard deviation of effects: two clients with
/// three and four groups, of which some hold mostly ones and others mostly zeros.
fn target(placement: Placement, temperature: f64) -> Target {
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for (i, groups) in [3usize, 4].into_iter().enumerate() {
        let rows = 8 * groups;
        let x = normals(60 + i as u64, rows);
        let cells = x.iter().flat_map(|x| [1.0, *x]).collect();
        let group: Vec<u32> = (0..rows as u32).map(|j| j / 8).collect();
        let said = |j: usize| f64::from(u8::from((j % 8) as u32 > 2 * (group[j] % 4)));
        let response = (0..rows).map(said).collect();
        let design = Design::dense(cells, 2).unwrap();
        let loss = Unextended(Bernoulli);
        clients.push(Arc::new(GroupEffects::new(design, response, loss, &group).unwrap()));
    }
    let prior = Prior::gaussian_per_coordinate(&[4.0, 2.5, 1.0]).unwrap();
    Target::new(clients, prior, placement, temperature).unwrap()
}

/// The target in coordinates whose first alone moves the logarithm of the scale.
fn shaped(original: &Target) -> Target {
    let mut clients = Client::all(original);
    let mut ledger = Ledger::new(2);
    let minimum = conduct(Minimum::new(original, &[0.0; 3], 0.01, 50), &mut clients, &mut ledger);
    let (optimum, hessian) = (minimum.newton().optimum(), minimum.newton().hessian());
    let fit = conduct(Fit::new(original, optimum, hessian, 20, false), &mut clients, &mut ledger);
    let columns = scale_axes(fit.averaged().precision(), hessian, 3, 2, 2.0).unwrap();
    let scale = original.temperature.sqrt();
    let matrix = (0..9).map(|k| scale * columns[k % 3 * 3 + k / 3]).collect();
    let coordinates = Arc::new(Coordinates::told(fit.averaged().mean().to_vec(), matrix).unwrap());
    original.whitened(&coordinates, &[0.3, 0.7])
}

/// The numbers that tell of the nodes.
fn nodes(target: &Target) -> Vec<f64> {
    let (mut clients, mut ledger) = (Client::all(target), Ledger::new(2));
    let survey = conduct(AlongScale::new(target), &mut clients, &mut ledger);
    assert!(survey.conditionals().exchanges() <= 7);
    survey.conditionals().told().unwrap()
}

/// The acceptance that a pilot foretells, and the tail of its weights.
fn pilot(target: &Target, proposal: &Proposal) -> (f64, f64) {
    let (mut clients, mut ledger) = (Client::all(target), Ledger::new(2));
    let pilot = Pilot::new(target, proposal.clone(), 2048);
    let (_, weights) = conduct(pilot, &mut clients, &mut ledger).weighed();
    (Independence::new(&weights).unwrap().acceptance(), pareto_k(&weights))
}

fn by_quadrature(f: impl Fn(&[f64]) -> f64) -> [f64; FUNCTIONS] {
    let (mut sums, mut whole) = ([0.0; FUNCTIONS], 0.0);
    let (bottom, step) = (f(&[0.0; 3]), 0.3);
    for a in -32..=22 {
        for b in -22..=22 {
            for c in -22..=22 {
                let u = [a, b, c].map(|k| f64::from(k) * step);
                let weight = (bottom - f(&u)).exp();
                whole += weight;
                sums.iter_mut().zip(functions(&u)).for_each(|(sum, v)| *sum += weight * v);
            }
        }
    }
    sums.map(|sum| sum / whole)
}

#[test]
fn draws_along_nodes_have_the_law_of_the_posterior() {
    let round = by_quadrature(|u| 0.5 * u.iter().map(|u| u * u).sum::<f64>());
    for (placement, temperature) in
        [(Placement::Server, 1.0), (Placement::Split(vec![0.4, 0.6]), 0.7)]
    {
        let target = shaped(&target(placement, temperature));
        let told = nodes(&target);
        let straight = pilot(&target, &Proposal::new(3, 50, &[]).unwrap());
        let proposal = Proposal::with_nodes(3, 50, &[], &told).unwrap();
        let along = pilot(&target, &proposal);
        println!("acceptance and k-hat along nodes {along:.2?}, without {straight:.2?}");
        assert!(along.0 > 0.9 && along.0 > straight.0 + 0.05 && along.1 < 0.5);
        let truth = by_quadrature(|u| target.value(u) / temperature);
        let recipe = Recipe::Metropolis(Metropolis::imh(proposal, 80));
        let mut per_chain = Vec::new();
        for c in 0..CHAINS {
            let mut chain = start(&recipe, &target, &[0.0; 3], 77, c);
            chain.draws(BURN_IN);
            let mut sums = [0.0; FUNCTIONS];
            for _ in 0..DRAWS {
                let values = functions(chain.draw());
                sums.iter_mut().zip(values).for_each(|(sum, v)| *sum += v / DRAWS as f64);
            }
            per_chain.push(sums);
        }
        let n = f64::from(CHAINS);
        let z = |truth: &[f64; FUNCTIONS], k: usize| {
            let mean = per_chain.iter().map(|c| c[k]).sum::<f64>() / n;
            let square = per_chain.iter().map(|c| (c[k] - mean).powi(2)).sum::<f64>();
            (mean - truth[k]).abs() / (square / (n - 1.0) / n).sqrt()
        };
        let largest = |truth| (0..FUNCTIONS).map(|k| z(truth, k)).fold(0.0, f64::max);
        let (off, power) = (largest(&truth), largest(&round));
        println!("z = {off:.2} against the posterior, {power:.1} against its fit");
        assert!(off < 4.9, "the draws are {off:.2} standard errors off");
        assert!(power > 4.9, "too few draws to tell the posterior from its fit");
    }
}

/// Whoever applies the prior, nodes are the same; and at another temperature they are others.
#[test]
fn nodes_know_the_prior_wherever_it_is_applied() {
    // the scale stands first here
    let first = |placement, temperature| {
        let original = target(placement, temperature);
        let columns = vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0];
        let matrix = (0..9).map(|k| columns[k % 3 * 3 + k / 3]).collect();
        let coordinates = Arc::new(Coordinates::told(vec![0.0; 3], matrix).unwrap());
        let target = original.whitened(&coordinates, &[0.0, 0.0]);
        // in coordinates that are those of the parameters in another order, so is the prior
        let prior = Prior::gaussian_per_coordinate(&[1.0, 4.0, 2.5]).unwrap();
        (coordinates, original, target, prior)
    };
    let (coordinates, original, bare, prior) = first(Placement::Server, 1.0);
    let with =
        |placement| Target::new(bare.clients.clone(), prior.clone(), placement, 1.0).unwrap();
    let server = nodes(&with(Placement::Server));
    let split = nodes(&original.whitened(&coordinates, &[0.2, 0.8]));
    let apart =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart(&server, &split) < 1e-9, "{}", apart(&server, &split));
    let none =
        nodes(&Target::new(bare.clients.clone(), Prior::Flat, Placement::Server, 1.0).unwrap());
    assert!(apart(&server, &none) > 0.1, "too weak a prior to be missed");
    let cold = with(Placement::Server);
    let cold = nodes(&Target { temperature: 0.5, ..cold });
    // at the middle node heights are nothing, roots narrower by less than a root of 2
    let root = 9 + 18 + 5 * 3;
    let narrower = cold[root] / server[root];
    assert!(narrower > 0.6 && narrower < 0.8, "{narrower}");
}

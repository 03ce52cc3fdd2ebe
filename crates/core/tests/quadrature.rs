//! The samplers that accept or reject have the law of the posterior, held against quadrature in one
//! to three dimensions: logistic and Poisson regression, and a linear one with Student's errors.
//!
//! Each check compares the means of the coordinates, of their products, and of smooth steps at five
//! places of each, over independent chains, with their standard errors: |z| < 4.9 for all of at
//! most 24 functions fails by chance once in 40,000 checks; seeds are fixed. Each check also shows
//! its power: the same draws reject the Gaussian that fits the posterior best.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its scores

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::{Compressor, Precision};
use consilience_core::model::Regression;
use consilience_core::model::{Coordinates, Design, Glm, GlmFamily, Model, PointLoss, Prior};
use consilience_core::proposal::{Proposal, axes};
use consilience_core::protocol::Ledger;
use consilience_core::sampler::{Metropolis, Recipe};
use consilience_core::simd::{exp, ln};
use consilience_core::survey::{Client, Fit, Minimum, conduct};
use consilience_core::target::{Placement, Target};

const CHAINS: u32 = 256;
const BURN_IN: usize = 40;
const DRAWS: usize = 250;
/// Where smooth steps are, in standard deviations.
const STEPS: [f64; 5] = [-1.6, -0.7, 0.0, 0.7, 1.6];
/// The grid: at this step the steps above are summed to far beyond what draws can tell.
const GRID: f64 = 0.2;
const REACH: i32 = 45;

/// All functions at a point whose coordinates are about standard normal.
fn functions(u: &[f64]) -> Vec<f64> {
    let mut all = u.to_vec();
    for (k, a) in u.iter().enumerate() {
        all.extend(u[k..].iter().map(|b| a * b));
        all.extend(STEPS.iter().map(|place| (3.0 * (a - place)).tanh()));
    }
    all
}

/// Their means under `exp(-f)`.
fn by_quadrature(dim: usize, f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let bottom = f(&vec![0.0; dim]);
    let (mut sums, mut whole) = (vec![0.0; functions(&vec![0.0; dim]).len()], 0.0);
    let side = (2 * REACH + 1) as usize;
    let mut u = vec![0.0; dim];
    for point in 0..side.pow(dim as u32) {
        for (k, u) in u.iter_mut().enumerate() {
            *u = GRID * ((point / side.pow(k as u32) % side) as f64 - f64::from(REACH));
        }
        let weight = (bottom - f(&u)).exp();
        if weight > 1e-14 {
            whole += weight;
            for (sum, value) in sums.iter_mut().zip(functions(&u)) {
                *sum += weight * value;
            }
        }
    }
    sums.into_iter().map(|sum| sum / whole).collect()
}

/// The largest z-score of a sampler's draws against each of these means.
fn largest_z(recipe: &Recipe, target: &Target, truths: [&[f64]; 2]) -> [f64; 2] {
    let mut per_chain: Vec<Vec<f64>> = Vec::new();
    for c in 0..CHAINS {
        let mut chain = start(recipe, target, &vec![0.3; target.dim()], 79, c);
        chain.draws(BURN_IN);
        let mut sums = vec![0.0; truths[0].len()];
        for _ in 0..DRAWS {
            let values = functions(chain.draw());
            sums.iter_mut().zip(values).for_each(|(sum, v)| *sum += v / DRAWS as f64);
        }
        per_chain.push(sums);
    }
    let n = f64::from(CHAINS);
    truths.map(|truth| {
        let z = |(k, truth): (usize, &f64)| {
            let mean = per_chain.iter().map(|c| c[k]).sum::<f64>() / n;
            let variance = per_chain.iter().map(|c| (c[k] - mean).powi(2)).sum::<f64>() / (n - 1.0);
            (mean - truth).abs() / (variance / n).sqrt()
        };
        truth.iter().enumerate().map(z).fold(0.0, f64::max)
    })
}

/// A target of three clients with 3, 5 and 7 rows; `response` says what the row of a number has.
fn three(
    dim: usize,
    shift: f64,
    variance: f64,
    response: impl Fn(usize) -> f64,
    model: impl Fn(Design, Vec<f64>) -> Arc<dyn Model>,
) -> Target {
    let mut first = 0;
    let of = |(i, rows): (usize, usize)| {
        let cells = normals(60 + i as u64, rows * dim);
        let cells = cells.iter().enumerate().map(|(k, z)| 0.7 * z + shift * (k % 2) as f64);
        let responses = (first..first + rows).map(&response).collect();
        first += rows;
        model(Design::dense(cells.collect(), dim).unwrap(), responses)
    };
    let clients = [3usize, 5, 7].into_iter().enumerate().map(of).collect();
    let prior = Prior::gaussian_per_coordinate(&vec![variance; dim]).unwrap();
    Target::new(clients, prior, Placement::Server, 1.0).unwrap()
}

fn logistic(dim: usize) -> Target {
    let model = |design, response| -> Arc<dyn Model> {
        Arc::new(Glm::new(design, response, GlmFamily::Bernoulli).unwrap())
    };
    three(dim, 0.9, 4.0, |j| f64::from(u8::from(j % 5 != 0)), model)
}

#[derive(Clone, Copy, Debug)]
struct Poisson;

impl PointLoss for Poisson {
    fn loss(&self, t: f64, y: f64) -> f64 {
        exp(t) - y * t
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        exp(t) - y
    }

    fn bend(&self, t: f64, _y: f64) -> f64 {
        exp(t)
    }
}

fn poisson() -> Target {
    let model = |design, response| -> Arc<dyn Model> {
        Arc::new(Regression::new(design, response, Poisson).unwrap())
    };
    three(2, 0.5, 2.0, |j| f64::from([0u8, 0, 1, 0, 2][j % 5]), model)
}

/// Errors of scale 1 with four degrees of freedom: the potential is not convex.
#[derive(Clone, Copy, Debug)]
struct Student;

impl PointLoss for Student {
    fn loss(&self, t: f64, y: f64) -> f64 {
        2.5 * ln(1.0 + (t - y).powi(2) / 4.0)
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        5.0 * (t - y) / (4.0 + (t - y).powi(2))
    }

    fn bend(&self, t: f64, y: f64) -> f64 {
        let square = (t - y).powi(2);
        5.0 * (4.0 - square) / (4.0 + square).powi(2)
    }
}

fn student() -> Target {
    let model = |design, response| -> Arc<dyn Model> {
        Arc::new(Regression::new(design, response, Student).unwrap())
    };
    // every third row is an outlier, on one side
    three(2, 0.6, 6.0, |j| [0.2, -0.4, 5.0][j % 3] + 0.1 * j as f64, model)
}

/// The target in coordinates in which it is round on average, as surveys find them.
fn shaped(original: &Target) -> Target {
    let d = original.dim();
    let mut clients = Client::all(original);
    let mut ledger = Ledger::new(clients.len());
    let minimum =
        conduct(Minimum::new(original, &vec![0.0; d], 0.01, 50), &mut clients, &mut ledger);
    assert!(minimum.newton().converged());
    let (optimum, hessian) = (minimum.newton().optimum(), minimum.newton().hessian());
    let fit = conduct(Fit::new(original, optimum, hessian, 20, false), &mut clients, &mut ledger);
    let columns = axes(fit.averaged().precision(), hessian, d).unwrap();
    let matrix = (0..d * d).map(|k| columns[k % d * d + k / d]).collect(); // row by row
    let coordinates = Coordinates::told(fit.averaged().mean().to_vec(), matrix).unwrap();
    original.whitened(&Arc::new(coordinates), &[0.5, 0.2, 0.3])
}

fn check(name: &str, original: &Target) {
    let (d, target) = (original.dim(), shaped(original));
    let truth = by_quadrature(d, |u| target.value(u));
    let fit = by_quadrature(d, |u| 0.5 * u.iter().map(|u| u * u).sum::<f64>());
    let coarse = "qsgd(1)".parse::<Compressor>().unwrap().at(Precision::F64);
    for recipe in [
        Metropolis::imh(Proposal::new(d, 20, &[]).unwrap(), 290),
        Metropolis::pcn(0.8),
        Metropolis::mala(1.2),
        Metropolis::mala(1.2).compressed(coarse),
        Metropolis::hmc(0.7, 3),
    ] {
        let sampler = format!("{:?}, {:?}", recipe.kernel, recipe.up);
        let [z, power] = largest_z(&Recipe::Metropolis(recipe), &target, [&truth, &fit]);
        println!("{name}, {sampler}: z = {z:.2} against the posterior, {power:.1} against its fit");
        assert!(z < 4.9, "{name}, {sampler}: the draws are {z:.2} standard errors off");
        assert!(power > 4.9, "{name}, {sampler}: too few draws to tell the posterior from its fit");
    }
}

#[test]
fn logistic_regression_with_one_parameter() {
    check("logistic", &logistic(1));
}

#[test]
fn logistic_regression_with_three_parameters() {
    check("logistic", &logistic(3));
}

#[test]
fn poisson_regression() {
    check("Poisson", &poisson());
}

#[test]
fn student_errors() {
    check("Student", &student());
}

//! What the surveys find is what pooled computation finds.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::model::{Design, Glm, GlmFamily, Model, Prior, Single};
use consilience_core::protocol::{Direction, Kind, Ledger};
use consilience_core::rng::Seed;
use consilience_core::sampler::exact::posterior;
use consilience_core::survey::{
    Client, Curvature, Evaluate, Hessian, LocalCurvature, Optimum, Skewness, conduct,
};
use consilience_core::target::{Placement, Target};
use nalgebra::DMatrix;

fn logistic(placement: Placement) -> Target {
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    for (i, rows) in [30usize, 80, 11].into_iter().enumerate() {
        let cells = normals(40 + i as u64, rows * 5);
        let response: Vec<f64> = cells
            .chunks(5)
            .map(|a| f64::from(u8::from(a[0] - 2.0 * a[1] + 0.5 * i as f64 > 0.0)))
            .collect();
        clients.push(Arc::new(
            Glm::new(Design::dense(cells, 5).unwrap(), response, GlmFamily::Bernoulli).unwrap(),
        ));
    }
    Target::new(clients, Prior::gaussian(4.0, 5).unwrap(), placement, 1.0).unwrap()
}

#[test]
fn the_optimum_of_a_gaussian_is_its_mean() {
    for placement in [Placement::Server, Placement::Split(vec![0.2, 0.2, 0.6])] {
        let target = linear(Prior::gaussian(2.0, 2).unwrap(), placement, 1.0);
        let mut ledger = Ledger::new(3);
        let optimum = conduct(
            Optimum::new(&target, &[0.0, 0.0], 1e-10, 200),
            &mut Client::all(&target),
            &mut ledger,
        );
        assert!(optimum.converged());
        let truth = posterior(&target).unwrap().mean;
        assert!(optimum.point().iter().zip(&truth).all(|(a, b)| (a - b).abs() < 1e-9));
        // Down: a point of two numbers; up: a gradient and a value; 64 bits each, to and from three
        // clients.
        assert_eq!(ledger.bits(Direction::Down, Kind::Survey), optimum.exchanges() * 3 * 2 * 64);
        assert_eq!(ledger.bits(Direction::Up, Kind::Survey), optimum.exchanges() * 3 * 3 * 64);
    }
}

#[test]
fn the_optimum_of_a_logistic_regression_has_no_gradient() {
    for placement in [Placement::Server, Placement::Split(vec![0.3, 0.3, 0.4])] {
        let target = logistic(placement);
        let optimum = conduct(
            Optimum::new(&target, &[0.0; 5], 1e-9, 300),
            &mut Client::all(&target),
            &mut Ledger::new(3),
        );
        assert!(
            optimum.converged() && optimum.exchanges() < 60,
            "{} exchanges",
            optimum.exchanges()
        );
        let mut gradient = vec![0.0; 5];
        target.gradient(optimum.point(), &mut gradient);
        assert!(gradient.iter().all(|g| g.abs() < 1e-7), "{gradient:?}");
    }
}

/// What each client's mean gradient gains over a spread of draws, against the mean over a fine grid
/// of such draws along each axis; and the clients' own Hessians and gradients add up to the whole.
#[test]
fn clients_are_surveyed_apart() {
    let target = logistic(Placement::Server);
    let centre = [0.1, -0.2, 0.3, 0.0, 0.05];
    let axes: Vec<Vec<f64>> = (0..5)
        .map(|k| (0..5).map(|j| if j == k { 0.1 } else { 0.02 * k as f64 }).collect())
        .collect();
    let carry = |_: ()| (Client::all(&target), Ledger::new(3));
    let (mut clients, mut ledger) = carry(());
    let gradients = conduct(Evaluate::of_each(&target, &centre), &mut clients, &mut ledger);
    let (mut clients, mut ledger) = carry(());
    let skewness =
        conduct(Skewness::new(&target, &centre, axes.clone()), &mut clients, &mut ledger);
    assert_eq!(
        ledger.vectors(Direction::Up, Kind::Survey),
        2 * 5 * 3,
        "both ends of every axis, from everybody"
    );
    let gradient = |client: usize, x: &[f64]| Single::new(&target.clients[client]).gradient(x);
    for (client, (found, own)) in
        skewness.shifts(gradients.gradients()).zip(gradients.gradients()).enumerate()
    {
        assert!(own.iter().zip(&gradient(client, &centre)).all(|(a, b)| (a - b).abs() < 1e-12));
        // The second derivative of the gradient along an axis, by differences that are ten times
        // closer.
        let mut wanted = vec![0.0; 5];
        for axis in &axes {
            let at = |t: f64| {
                gradient(
                    client,
                    &centre.iter().zip(axis).map(|(c, a)| c + t * a).collect::<Vec<_>>(),
                )
            };
            let (plus, minus) = (at(0.1), at(-0.1));
            (0..5).for_each(|j| wanted[j] += 0.5 * (plus[j] + minus[j] - 2.0 * own[j]) / 0.01);
        }
        let size = wanted.iter().map(|w| w.abs()).fold(0.0, f64::max);
        assert!(
            size > 1e-3 && found.iter().zip(&wanted).all(|(f, w)| (f - w).abs() < 0.1 * size),
            "{found:?} {wanted:?}"
        );
    }
    let (mut clients, mut ledger) = carry(());
    let apart = conduct(Hessian::of_each(&target, &centre), &mut clients, &mut ledger);
    let whole =
        conduct(Hessian::new(&target, &centre), &mut Client::all(&target), &mut Ledger::new(3))
            .matrix();
    assert_eq!(apart.matrix(), whole);
    let parts = apart.parts();
    for k in 0..25 {
        let prior = if k % 6 == 0 { 0.25 } else { 0.0 };
        assert!((parts.iter().map(|part| part[k]).sum::<f64>() + prior - whole[k]).abs() < 1e-9);
    }
}

/// Wherever the prior sits: a client's own curvature has its share of it, the whole all of it.
#[test]
fn curvature_is_that_of_the_pooled_hessian() {
    let shares = [0.1, 0.2, 0.7];
    curvature_is_that_of(logistic(Placement::Server), [0.0; 3]);
    curvature_is_that_of(logistic(Placement::Split(shares.to_vec())), shares);
}

fn curvature_is_that_of(target: Target, shares: [f64; 3]) {
    let point = [0.4, -0.8, 0.1, 0.0, 0.2];
    let mut hessian = DMatrix::<f64>::zeros(5, 5);
    let mut local = vec![DMatrix::<f64>::zeros(5, 5); 3];
    for (i, client) in target.clients.iter().enumerate() {
        for k in 0..5 {
            let (mut e, mut image) = (vec![0.0; 5], vec![0.0; 5]);
            e[k] = 1.0;
            Single::new(client).add_hessian_vector(&point, &e, 1.0, &mut image);
            local[i].set_column(k, &nalgebra::DVector::from_vec(image));
        }
        hessian += &local[i];
    }
    hessian += DMatrix::identity(5, 5) * 0.25;
    let whole =
        conduct(Hessian::new(&target, &point), &mut Client::all(&target), &mut Ledger::new(3));
    assert!((DMatrix::from_row_slice(5, 5, &whole.matrix()) - &hessian).amax() < 1e-12);
    let values = hessian.symmetric_eigen().eigenvalues;
    let mut ledger = Ledger::new(3);
    let found = conduct(
        Curvature::new(&target, &point, Seed::new(3)),
        &mut Client::all(&target),
        &mut ledger,
    );
    let (m, l) = found.extremes();
    assert!(
        (m / values.min() - 1.0).abs() < 1e-6 && (l / values.max() - 1.0).abs() < 1e-6,
        "{m} {l}"
    );
    assert!(ledger.total(Direction::Up) > 0);
    let each =
        conduct(LocalCurvature::new(&target, &point), &mut Client::all(&target), &mut ledger);
    for ((found, hessian), share) in each.largest().iter().zip(local).zip(shares) {
        let hessian = hessian + DMatrix::identity(5, 5) * (0.25 * share);
        assert!((found / hessian.symmetric_eigen().eigenvalues.max() - 1.0).abs() < 1e-6);
    }
}

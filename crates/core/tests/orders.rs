//! How the bias of compressed samplers grows: QLSD's Table 2, from exact laws, without sampling.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::Compressor;
use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::sampler::exact::{posterior, stationary};
use consilience_core::sampler::{Batch, Participation, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

/// Three clients with 20, 50 and 100 rows times `size`, whose means lie `apart` from each other, in
/// four dimensions.
fn toy_of(size: usize, apart: f64) -> Target {
    let client = |i: usize| -> Arc<dyn Model> {
        let rows = [20, 50, 100][i];
        let centre = [1.0, -0.5, 0.3, 0.8].map(|c| apart * c * (i as f64 - 1.0));
        // The same rows over and over: sizes differ in nothing but size.
        let z = normals(60 + i as u64, 4 * rows);
        let cells = (0..size * rows * 4).map(|k| z[k % z.len()] + centre[k % 4]).collect();
        Arc::new(Isotropic::new(cells, 4).unwrap())
    };
    Target::new((0..3).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap()
}

/// By how much the sampled second moment about the posterior mean exceeds the posterior's, in units
/// of the posterior's.
fn excess(target: &Target, recipe: Uplink) -> f64 {
    let truth = posterior(target).unwrap();
    let law = stationary(&Recipe::Uplink(recipe), target).unwrap();
    let d = truth.mean.len();
    let trace = |covariance: &[f64]| (0..d).map(|k| covariance[k * (d + 1)]).sum::<f64>();
    let shift: f64 = law.mean.iter().zip(&truth.mean).map(|(a, b)| (a - b) * (a - b)).sum();
    (trace(&law.covariance) + shift) / trace(&truth.covariance) - 1.0
}

/// QLSD#, QLSD* and QLSD++ with `keep` of 4 coordinates, at a step of 0.02 over the number of rows.
fn excesses(target: &Target, keep: u32) -> [f64; 3] {
    let rows: usize = target.clients.iter().map(|c| c.rows()).sum();
    let step = Schedule::Constant(0.02 / rows as f64);
    let compressor = Compressor::rand_k(keep);
    let omega = compressor.omega(4).unwrap();
    let batch = || Batch::Fraction(0.5);
    let optimum = anchor(target, posterior(target).unwrap().mean);
    [
        excess(target, Uplink::qlsd(step, batch(), compressor.clone())),
        excess(target, Uplink::qlsd_star(step, batch(), optimum, compressor.clone())),
        excess(
            target,
            Uplink::qlsd_plus_plus(step, batch(), 5, Some(1.0 / (1.0 + omega)), compressor),
        ),
    ]
}

#[test]
fn the_bias_of_qlsd_sharp_grows_with_the_data_and_that_of_the_others_does_not() {
    let found: Vec<[f64; 3]> =
        [1, 4, 16].into_iter().map(|size| excesses(&toy_of(size, 2.0), 2)).collect();
    for (small, large) in found.iter().zip(&found[1..]) {
        let grown = [0, 1, 2].map(|k| large[k] / small[k]);
        assert!(
            (3.5..4.5).contains(&grown[0]),
            "four times the rows make QLSD# {} times as biased",
            grown[0]
        );
        assert!(
            (0.9..1.1).contains(&grown[1]) && (0.9..1.1).contains(&grown[2]),
            "QLSD* {} and QLSD++ {}",
            grown[1],
            grown[2]
        );
    }
    assert!(found[2][0] > 20.0 * found[2][1].max(found[2][2]));
}

#[test]
fn heterogeneity_enters_qlsd_sharp_alone() {
    let (near, far) = (excesses(&toy_of(4, 1.0), 2), excesses(&toy_of(4, 10.0), 2));
    assert!(far[0] > 30.0 * near[0], "QLSD# {} {}", near[0], far[0]);
    for k in [1, 2] {
        assert!((far[k] / near[k] - 1.0).abs() < 1e-6, "{} {}", near[k], far[k]);
    }
}

#[test]
fn omega_and_participation_enter_linearly() {
    // rand_k(1) of 4 has omega 3, rand_k(2) 1; the rest of the bias (the step's own) is what omega
    // = 0 leaves.
    let target = toy_of(4, 2.0);
    let (none, one, three) = (excesses(&target, 4), excesses(&target, 2), excesses(&target, 1));
    let ratio = (three[1] - none[1]) / (one[1] - none[1]);
    assert!((2.9..3.1).contains(&ratio), "QLSD*: {ratio}");
    let rows: usize = target.clients.iter().map(|c| c.rows()).sum();
    let optimum = anchor(&target, posterior(&target).unwrap().mean);
    let with = |p: f64| {
        let recipe =
            Uplink::lsd_star(Schedule::Constant(0.02 / rows as f64), Batch::Full, optimum.clone());
        excess(&target, Uplink { participation: Participation::Bernoulli(vec![p; 3]), ..recipe })
    };
    let ratio = (with(0.25) - with(1.0)) / (with(0.5) - with(1.0)); // (1 - p)/p is 3 and 1
    assert!((2.9..3.1).contains(&ratio), "participation: {ratio}");
}

//! The exact laws agree with what is known by other means.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::model::{Gaussian, Prior};
use consilience_core::sampler::exact::{NoClosedForm, posterior, stationary};
use consilience_core::sampler::{
    Average, Batch, Local, NoiseScale, Participation, Recipe, Synchronise, Uplink,
};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use nalgebra::DMatrix;

fn matrix(m: &[f64]) -> DMatrix<f64> {
    let d = m.len().isqrt();
    DMatrix::from_row_slice(d, d, m)
}

fn near(a: &[f64], b: &[f64], tolerance: f64) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= tolerance * (1.0 + b.abs()))
}

/// ULA on N(m, S) has stationary covariance `S (I - gamma S^-1 / 2)^-1`, and mean m.
#[test]
fn lmc_has_the_textbook_covariance() {
    let target = gaussian(Prior::gaussian(1.5, 2).unwrap(), Placement::Server, 1.0);
    let truth = posterior(&target).unwrap();
    let law = stationary(&Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.2))), &target).unwrap();
    let s = matrix(&truth.covariance);
    let inverse = s.clone().try_inverse().unwrap();
    let expected = &s * (DMatrix::identity(2, 2) - inverse * 0.1).try_inverse().unwrap();
    assert!(
        near(&law.mean, &truth.mean, 1e-12) && near(&law.covariance, expected.as_slice(), 1e-12)
    );
}

/// LSD* on the toy Gaussian is exactly ULA: its minibatch noise cancels.
#[test]
fn lsd_star_on_the_toy_gaussian_has_the_law_of_lmc() {
    let target = toy(Prior::gaussian(3.0, 2).unwrap(), Placement::Server);
    let step = Schedule::Constant(0.02);
    let lmc = stationary(&Recipe::Uplink(Uplink::lmc(step)), &target).unwrap();
    let star = Uplink::lsd_star(step, Batch::Rows(1), anchor(&target, vec![0.4, 0.1]));
    let star = stationary(&Recipe::Uplink(star), &target).unwrap();
    assert!(near(&star.mean, &lmc.mean, 1e-11) && near(&star.covariance, &lmc.covariance, 1e-11));
    let sgld = stationary(&Recipe::Uplink(Uplink::sgld(step, Batch::Rows(1))), &target).unwrap();
    assert!(sgld.covariance[0] > 1.5 * lmc.covariance[0], "which plain minibatches do not have");
}

/// SGLD's extra noise on the toy Gaussian in closed form:
/// `gamma^2 sum_i N_i (N_i - n_i) / (n_i (N_i - 1)) S_i`.
#[test]
fn sgld_on_one_dimension_by_hand() {
    let rows = [0.5, -1.0, 2.5, 4.0];
    let client = consilience_core::model::Isotropic::new(rows.to_vec(), 1).unwrap();
    let target =
        Target::new(vec![std::sync::Arc::new(client)], Prior::Flat, Placement::Server, 1.0)
            .unwrap();
    let (gamma, mean) = (0.1, 1.5);
    let scatter: f64 = rows.iter().map(|y| (y - mean) * (y - mean)).sum();
    for (n, factor) in [(1.0, 4.0), (2.0, 4.0 / 3.0), (3.0, 4.0 / 9.0)] {
        let law = stationary(
            &Recipe::Uplink(Uplink::sgld(Schedule::Constant(gamma), Batch::Rows(n as usize))),
            &target,
        )
        .unwrap();
        let contraction = 1.0 - gamma * 4.0;
        let expected =
            (2.0 * gamma + gamma * gamma * factor * scatter) / (1.0 - contraction * contraction);
        assert!(
            (law.mean[0] - mean).abs() < 1e-12 && (law.covariance[0] - expected).abs() < 1e-12,
            "n = {n}"
        );
    }
}

/// FALD's two clients on R with two local steps and shared noise (FALD sec. 8, with its factor
/// 1/2): the mean of Lemma 33, the variance of its proof's last display, and the corrected Theorem
/// 34.
#[test]
fn falds_lower_bound_holds_and_is_linear_in_the_step() {
    let (mu, v) = ([1.0, -2.0], [0.5, 3.0]); // means and variances sigma_i^2
    let client = |i: usize| -> std::sync::Arc<dyn consilience_core::model::Model> {
        std::sync::Arc::new(Gaussian::new(vec![mu[i]], vec![1.0 / v[i]]).unwrap())
    };
    let target =
        Target::new(vec![client(0), client(1)], Prior::Flat, Placement::Server, 1.0).unwrap();
    let truth = posterior(&target).unwrap();
    let s2 = 1.0 / (1.0 / v[0] + 1.0 / v[1]);
    let mut previous: Option<(f64, f64)> = None;
    for gamma in [0.04f64, 0.02, 0.01, 0.005, 0.0025] {
        // Its clients step by gamma and their mean has noise variance gamma: eta = gamma / 2.
        let recipe = Local {
            synchronise: Synchronise::Every(2),
            ..Local::fald(Schedule::Constant(gamma), 2, 1.0, 1.0, Batch::Full)
        };
        let recipe = Recipe::Local(recipe);
        let law = stationary(&recipe, &recipe.check(target.clone()).unwrap()).unwrap();
        let a =
            1.0 - gamma / s2 + gamma * gamma / 2.0 * (1.0 / (v[0] * v[0]) + 1.0 / (v[1] * v[1]));
        let variance = gamma * ((1.0 - gamma / (2.0 * s2)).powi(2) + 1.0) / (1.0 - a * a);
        // Two affine local steps of each client, averaged: the fixed point of the mean.
        let shift: f64 = (0..2).map(|i| mu[i] * (1.0 - (1.0 - gamma / v[i]).powi(2)) / 2.0).sum();
        assert!((law.mean[0] - shift / (1.0 - a)).abs() < 1e-10, "mean at gamma {gamma}");
        assert!((law.covariance[0] - variance).abs() < 1e-10, "variance at gamma {gamma}");
        let w2 = ((law.mean[0] - truth.mean[0]).powi(2) + (law.sd(0) - truth.sd(0)).powi(2)).sqrt();
        // Theorem 34 with its right side divided by sigma_1^2 + sigma_2^2.
        let printed = gamma / 2.0 * (mu[0] - mu[1]).abs() * (s2 / v[0] - s2 / v[1]).abs();
        let bound = printed / (v[0] + v[1]);
        assert!(
            w2 >= bound && bound > 0.0,
            "W2 = {w2} is below the bound {bound} at gamma {gamma}"
        );
        assert!(w2 < printed, "as printed the bound is false here: {printed} against {w2}");
        if let Some((larger, w2_at_larger)) = previous {
            let order = (w2_at_larger / w2).log2() / (larger / gamma).log2();
            assert!(
                (order - 1.0).abs() < 0.12,
                "W2 has order {order} between {larger} and {gamma}"
            );
        }
        previous = Some((gamma, w2));
    }
}

/// DG-LMC with one client on R, by hand: after many local steps `x_1` given `x` has the variance of
/// ULA on its conditional, and `x` that of an autoregression; with a small local step that is the
/// posterior's variance plus `rho`.
#[test]
fn dg_lmc_of_one_client_has_the_law_by_hand() {
    let (variance, eta, tether) = (0.6, 0.01, 8.0);
    let target = Target::new(
        vec![std::sync::Arc::new(Gaussian::new(vec![1.5], vec![1.0 / variance]).unwrap())],
        Prior::Flat,
        Placement::Server,
        1.0,
    );
    let target = target.unwrap();
    let law = |eta, tether, every| {
        let recipe = Recipe::Local(Local::dg_lmc(
            Schedule::Constant(eta),
            vec![1.0],
            every,
            tether,
            Batch::Full,
        ));
        stationary(&recipe, &recipe.check(target.clone()).unwrap()).unwrap()
    };
    let rho: f64 = tether * eta;
    let precision = 1.0 / variance + 1.0 / rho;
    let keeps = 1.0 / (rho * precision);
    let ula = 1.0 / (precision * (1.0 - eta * precision / 2.0));
    let found = law(eta, tether, 400);
    assert!((found.mean[0] - 1.5).abs() < 1e-9);
    assert!((found.covariance[0] - (ula + rho) / (1.0 - keeps * keeps)).abs() < 1e-9);
    let exactly = law(eta / 1000.0, tether * 1000.0, 20_000).covariance[0];
    assert!((exactly - (variance + rho)).abs() < 1e-3 * exactly, "{exactly}");
}

/// Averaging S of N clients with the published noise is N/S too hot; with noise for the
/// participants it is not.
#[test]
fn noise_for_the_participants_restores_the_temperature() {
    let client = |_: usize| -> std::sync::Arc<dyn consilience_core::model::Model> {
        std::sync::Arc::new(Gaussian::new(vec![0.0], vec![1.0]).unwrap())
    };
    let target =
        Target::new((0..6).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    let truth = posterior(&target).unwrap().covariance[0];
    let variance = |average, noise| {
        let recipe = Local {
            average,
            noise,
            ..Local::fa_ld(Schedule::Constant(1e-4), vec![1.0 / 6.0; 6], 1, 0.0, Batch::Full)
        };
        let recipe = Recipe::Local(recipe);
        stationary(&recipe, &recipe.check(target.clone()).unwrap()).unwrap().covariance[0] / truth
    };
    assert!((variance(Average::WithoutReplacement(2), NoiseScale::Everybody) - 3.0).abs() < 0.01);
    assert!(
        (variance(Average::WithoutReplacement(2), NoiseScale::Participants) - 1.0).abs() < 0.01
    );
    assert!(
        (variance(Average::WithReplacement(2), NoiseScale::Everybody) - 3.5).abs() < 0.01,
        "(N + S - 1)/S"
    );
    assert!((variance(Average::WithReplacement(2), NoiseScale::Participants) - 1.0).abs() < 0.01);
}

#[test]
fn what_has_no_stationary_law_says_why() {
    let target = gaussian(Prior::Flat, Placement::Server, 1.0);
    let lmc = |step| stationary(&Recipe::Uplink(Uplink::lmc(step)), &target);
    assert!(matches!(lmc(Schedule::Constant(2.0)),
            Err(NoClosedForm::Unstable { growth, .. }) if growth > 1.0));
    assert_eq!(
        lmc(Schedule::Decreasing { smoothness: 5.0, convexity: 1.0 }),
        Err(NoClosedForm::NotStationary)
    );
    let laplace = gaussian(Prior::laplace(1.0).unwrap(), Placement::Server, 1.0);
    assert_eq!(posterior(&laplace), Err(NoClosedForm::NotGaussianPrior));
    let nothing = Gaussian::new(vec![0.0, 0.0], vec![1.0, 0.0, 0.0, 0.0]).unwrap();
    let improper =
        Target::new(vec![std::sync::Arc::new(nothing)], Prior::Flat, Placement::Server, 1.0)
            .unwrap();
    assert!(matches!(posterior(&improper), Err(NoClosedForm::Improper { .. })));
    let many =
        Target::new(vec![target.clients[0].clone(); 13], Prior::Flat, Placement::Server, 1.0)
            .unwrap();
    let fixed =
        Uplink { participation: Participation::Fixed(3), ..Uplink::lmc(Schedule::Constant(0.01)) };
    assert!(matches!(stationary(&Recipe::Uplink(fixed), &many), Err(NoClosedForm::Unknown { .. })));
}

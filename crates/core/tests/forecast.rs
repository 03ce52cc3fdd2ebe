//! The forecast of a sampler's bias agrees with its exact law on Gaussian targets, as far as it
//! claims to.
#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use consilience_core::compress::Compressor;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::sampler::exact::{posterior, stationary};
use consilience_core::sampler::forecast::{Part, QuadraticModel};
use consilience_core::sampler::{
    Average, Batch, Local, Participation, Recipe, Synchronise, Uplink,
};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

/// Three lopsided clients. With `turn` their Hessians have axes of their own, else those of the
/// coordinates.
fn clients(turn: f64) -> Vec<(Vec<f64>, Vec<f64>)> {
    vec![
        (vec![1.0, -0.5], vec![2.0, turn, turn, 0.6]),
        (vec![0.3, 0.8], vec![0.5, -turn, -turn, 0.9]),
        (vec![-0.7, 0.1], vec![0.8, 0.0, 0.0, 0.2]),
    ]
}

fn target(turn: f64) -> Target {
    let clients = clients(turn)
        .into_iter()
        .map(|(mean, precision)| {
            Arc::new(Gaussian::new(mean, precision).unwrap()) as Arc<dyn Model>
        })
        .collect();
    Target::new(clients, Prior::Gaussian(vec![0.3, 0.3].into()), Placement::Server, 1.0).unwrap()
}

/// The model of that target, with the prior's shares where `recipe` puts them.
fn model(target: &Target, turn: f64) -> QuadraticModel {
    let optimum = posterior(target).unwrap().mean;
    let part = |(mean, precision): (Vec<f64>, Vec<f64>)| {
        let away = [optimum[0] - mean[0], optimum[1] - mean[1]];
        let gradient =
            (0..2).map(|i| precision[2 * i] * away[0] + precision[2 * i + 1] * away[1]).collect();
        Part { hessian: precision, gradient, skewness: vec![0.0; 2], rows: 1 }
    };
    let parts: Vec<Part> = clients(turn).into_iter().map(part).collect();
    let prior = Part {
        hessian: vec![0.3, 0.0, 0.0, 0.3],
        gradient: optimum.iter().map(|x| 0.3 * x).collect(),
        skewness: vec![0.0; 2],
        rows: 1,
    };
    let shares = if let Placement::Split(shares) = &target.placement {
        shares.clone()
    } else {
        vec![0.0; 3]
    };
    QuadraticModel::new(&parts, &prior, &shares, None, 1.0).unwrap()
}

/// The forecast and the exact law: for each parameter the error of the mean in standard deviations,
/// and the ratio of standard deviations less 1.
fn both(recipe: &Recipe, turn: f64) -> Vec<([f64; 2], [f64; 2])> {
    let target = recipe.check(target(turn)).unwrap();
    let (truth, law) = (posterior(&target).unwrap(), stationary(recipe, &target).unwrap());
    let forecast = model(&target, turn).forecast(recipe).unwrap();
    let exact =
        |k: usize| [(law.mean[k] - truth.mean[k]) / truth.sd(k), law.sd(k) / truth.sd(k) - 1.0];
    (0..2).map(|k| ([forecast.mean[k], forecast.sd[k] - 1.0], exact(k))).collect()
}

fn lmc(step: f64) -> Uplink {
    Uplink::lmc(Schedule::Constant(step))
}

#[test]
fn langevin_monte_carlo_is_forecast_exactly() {
    for (forecast, exact) in both(&Recipe::Uplink(lmc(0.1)), 0.25) {
        assert!(
            (forecast[0] - exact[0]).abs() < 1e-9 && (forecast[1] - exact[1]).abs() < 1e-9,
            "{forecast:?} {exact:?}"
        );
        assert!(exact[1] > 0.02, "there is something to forecast: {exact:?}");
    }
}

/// Draws that are spread more widely than the posterior have another mean gradient where it is not
/// affine, and move until it is gone: `-(V - 1) t / H` in family A, and more where clients walk
/// alone.
#[test]
fn skewness_shifts_means_as_far_as_draws_are_too_wide() {
    let part = |skewness: f64| Part {
        hessian: vec![1.0],
        gradient: vec![0.0],
        skewness: vec![skewness],
        rows: 1,
    };
    let prior = Part { hessian: vec![0.0], gradient: vec![0.0], skewness: vec![0.0], rows: 1 };
    let model = QuadraticModel::new(&[part(0.5), part(0.2)], &prior, &[0.0; 2], None, 1.0).unwrap();
    let step = 0.1;
    let wider = 1.0 / (1.0 - step) - 1.0; // the curvature is 2
    let shift = model.forecast(&Recipe::Uplink(lmc(step))).unwrap().mean[0];
    assert!((shift + wider * 0.7 / 2.0 * 2f64.sqrt()).abs() < 1e-12, "{shift}");
    let every = |k: u64| {
        Recipe::Local(Local::fa_ld(Schedule::Constant(0.01), vec![0.5; 2], k, 0.0, Batch::Full))
    };
    let [together, alone] = [1, 9].map(|k| model.forecast(&every(k)).unwrap().mean[0]);
    // Four steps alone on average, of private variance 2 * 0.01 * (1/0.5 - 1) each, times the
    // curvature.
    let spread = 4.0 * 0.02 * 2.0 * 0.7 / 2.0 * 2f64.sqrt();
    assert!(
        alone < together && (alone - together + spread).abs() < 0.3 * spread,
        "{together} {alone} {spread}"
    );
}

/// Within a quarter of the bias, where clients have the axes of the whole; to a half where they do
/// not.
#[test]
fn every_kind_of_sampler_is_forecast_nearly() {
    let rand_k = Compressor::rand_k(1);
    let weights = vec![0.5, 0.3, 0.2];
    let eta = Schedule::Constant(0.02);
    let absent = Participation::Bernoulli(vec![0.5, 0.8, 0.7]);
    let kinds: Vec<(&str, Recipe)> = vec![
        ("absent", Recipe::Uplink(Uplink { participation: absent, ..lmc(0.03) })),
        (
            "qlsd",
            Recipe::Uplink(Uplink::qlsd(Schedule::Constant(0.03), Batch::Full, rand_k.clone())),
        ),
        (
            "qlsd++",
            Recipe::Uplink(Uplink::qlsd_plus_plus(
                Schedule::Constant(0.05),
                Batch::Full,
                10,
                Some(0.5),
                rand_k.clone(),
            )),
        ),
        ("marina", Recipe::Uplink(Uplink::marina(Schedule::Constant(0.02), 0.3, rand_k.clone()))),
        ("d-elf", Recipe::Uplink(Uplink::d_elf(Schedule::Constant(0.1), rand_k.clone().scaled()))),
        ("p-elf", Recipe::Uplink(Uplink::p_elf(Schedule::Constant(0.1), rand_k.clone().scaled()))),
        (
            "b-elf",
            Recipe::Uplink(Uplink::b_elf(
                Schedule::Constant(0.06),
                rand_k.clone().scaled(),
                rand_k.scaled(),
            )),
        ),
        ("fa-ld", Recipe::Local(Local::fa_ld(eta, weights.clone(), 5, 0.0, Batch::Full))),
        ("fa-ld shared", Recipe::Local(Local::fa_ld(eta, weights.clone(), 5, 0.8, Batch::Full))),
        ("fa-ld some", {
            Recipe::Local(Local {
                average: Average::WithReplacement(2),
                ..Local::fa_ld(eta, weights.clone(), 5, 0.0, Batch::Full)
            })
        }),
        ("fald", {
            let random = Synchronise::Randomly(0.25);
            Recipe::Local(Local {
                synchronise: random,
                ..Local::fa_ld(eta, vec![1.0 / 3.0; 3], 5, 0.0, Batch::Full)
            })
        }),
        (
            "vr-fald*",
            Recipe::Local(Local::vr_fald_star(
                Schedule::Constant(0.15),
                3,
                0.0,
                0.2,
                0.2,
                Batch::Full,
            )),
        ),
        (
            "dg-lmc",
            Recipe::Local(Local::dg_lmc(Schedule::Constant(0.02), weights, 5, 5.0, Batch::Full)),
        ),
    ];
    let mut wrong = Vec::new();
    for (turn, share) in [(0.0, 0.25), (0.25, 0.5)] {
        for (name, recipe) in &kinds {
            for (k, (forecast, exact)) in both(recipe, turn).into_iter().enumerate() {
                for (what, f, e) in [("mean", forecast[0], exact[0]), ("sd", forecast[1], exact[1])]
                {
                    if (f - e).abs() > share * e.abs() + 0.004 {
                        wrong.push(format!(
                            "{name} {what} of x{}, axes turned by {turn}: forecast \
                            {f:.4}, exact {e:.4}",
                            k + 1
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

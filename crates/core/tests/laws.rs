//! Every sampler has the law it must have: stationary means and covariances on asymmetric,
//! heterogeneous Gaussian targets, against the exact law of the discretised chain.
//!
//! Each check compares all means and covariances with their standard errors over independent chains
//! and fails by chance once in 100,000 runs or so (|z| < 4.9 for each of five numbers); seeds are
//! fixed, so it never fails by chance again. Each check also shows its power: the same numbers
//! reject the exact posterior, from which the law differs by the bias alone. What it catches beyond
//! that is in `mutants.toml`.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its scores

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::{Compressor, Precision};
use consilience_core::linalg::add_scaled;
use consilience_core::model::{
    Design, DrawEffects, GroupEffects, Likelihood, Model, PointLoss, Prior, Quadratic, Rows,
    Spread, Surrogate, Unextended,
};
use consilience_core::protocol::{Event, Task, exchange};
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_core::sampler::exact::{StationaryLaw, posterior, stationary};
use consilience_core::sampler::registry::{Axis, Feedback, REGISTRY, Settings};
use consilience_core::sampler::{
    Average, Batch, Local, NoiseScale, Participation, Recipe, Synchronise, Uplink, Weighting,
};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const CHAINS: u32 = 256;
const BURN_IN: usize = 100;
const DRAWS: usize = 300;

/// The largest z-score of the chains' means and second moments against a law.
struct Sampled {
    /// For each chain: means and second moments about `about`.
    per_chain: Vec<Vec<f64>>,
    about: Vec<f64>,
}

fn sample(recipe: &Recipe, target: &Target, about: &[f64], draws: usize) -> Sampled {
    sample_with(recipe, target, about, draws, |x, _| x.to_vec())
}

/// The same of what somebody makes of each draw, whose number no other has; the draw stands first.
fn sample_with(
    recipe: &Recipe,
    target: &Target,
    about: &[f64],
    draws: usize,
    make: impl Fn(&[f64], u64) -> Vec<f64>,
) -> Sampled {
    let d = about.len();
    let mut per_chain = Vec::new();
    for c in 0..CHAINS {
        let mut chain = start(recipe, target, &about[..target.dim()], 20, c);
        chain.draws(BURN_IN);
        let mut sums = vec![0.0; d + d * (d + 1) / 2];
        for k in 0..draws {
            let made = make(chain.draw(), u64::from(c) * draws as u64 + k as u64);
            let x: Vec<f64> = made.iter().zip(about).map(|(x, m)| x - m).collect();
            let mut slot = d;
            for i in 0..d {
                sums[i] += x[i] / draws as f64;
                for j in 0..=i {
                    sums[slot] += x[i] * x[j] / draws as f64;
                    slot += 1;
                }
            }
        }
        per_chain.push(sums);
    }
    Sampled { per_chain, about: about.to_vec() }
}

impl Sampled {
    fn largest_z(&self, law: &StationaryLaw) -> f64 {
        let d = self.about.len();
        let shift: Vec<f64> = law.mean.iter().zip(&self.about).map(|(m, a)| m - a).collect();
        let mut expected = shift.clone();
        for i in 0..d {
            for j in 0..=i {
                expected.push(law.covariance[i * d + j] + shift[i] * shift[j]);
            }
        }
        let n = self.per_chain.len() as f64;
        let mut largest = 0.0f64;
        for (k, expected) in expected.iter().enumerate() {
            let mean = self.per_chain.iter().map(|c| c[k]).sum::<f64>() / n;
            let variance =
                self.per_chain.iter().map(|c| (c[k] - mean).powi(2)).sum::<f64>() / (n - 1.0);
            largest = largest.max((mean - expected).abs() / (variance / n).sqrt());
        }
        largest
    }
}

/// The sampled law is the exact one, and not the posterior.
fn check(name: &str, recipe: Recipe, target: &Target) {
    let target = recipe.check(target.clone()).unwrap();
    let law = stationary(&recipe, &target).unwrap();
    let sampled = sample(&recipe, &target, &law.mean, DRAWS);
    let (z, z_posterior) =
        (sampled.largest_z(&law), sampled.largest_z(&posterior(&target).unwrap()));
    println!("{name}: z = {z:.2} against the exact law, {z_posterior:.1} against the posterior");
    assert!(z < 4.9, "{name}: the draws are {z:.2} standard errors off the exact law");
    assert!(
        z_posterior > 4.9,
        "{name}: {z_posterior:.2}: too few draws to tell the exact law from the posterior"
    );
}

fn prior() -> Prior {
    Prior::gaussian_per_coordinate(&[2.0, 0.8]).unwrap()
}

const STEP: Schedule = Schedule::Constant(0.25);
const SMALL: Schedule = Schedule::Constant(0.03);

#[test]
fn lmc() {
    check(
        "server prior, cold",
        Recipe::Uplink(Uplink::lmc(STEP)),
        &gaussian(prior(), Placement::Server, 0.7),
    );
    check(
        "split prior",
        Recipe::Uplink(Uplink::lmc(STEP)),
        &gaussian(prior(), Placement::Split(vec![0.1, 0.2, 0.7]), 1.0),
    );
}

/// A drift that is too strong leaves the mean alone, and near the step 1/L the covariance too: a
/// smaller step and more draws show it.
#[test]
fn lmc_with_exactly_this_drift() {
    let lmc = |factor: f64| Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.06 * factor)));
    let target = |temperature| gaussian(prior(), Placement::Server, temperature);
    let law = stationary(&lmc(1.0), &target(1.0)).unwrap();
    let sampled = sample(&lmc(1.0), &target(1.0), &law.mean, 10 * DRAWS);
    let z = sampled.largest_z(&law);
    assert!(z < 4.9, "the draws are {z:.2} standard errors off the exact law");
    // A drift 5% too strong is a step 5% larger with the noise that it had: a temperature 5% lower.
    let z_strong = sampled.largest_z(&stationary(&lmc(1.05), &target(1.0 / 1.05)).unwrap());
    println!(
        "z = {z:.2} against the exact law, {z_strong:.1} against that of a drift 5% too strong"
    );
    assert!(z_strong > 9.8, "{z_strong:.2}: too few draws to notice a drift that is 5% too strong");
}

#[test]
fn lmc_with_participation() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    let with = |participation, weighting| {
        Recipe::Uplink(Uplink { participation, weighting, ..Uplink::lmc(Schedule::Constant(0.1)) })
    };
    check(
        "unequal coins",
        with(Participation::Bernoulli(vec![0.4, 0.9, 0.6]), Weighting::InverseProbability),
        &target,
    );
    check(
        "equal coins, b/|A|",
        with(Participation::Bernoulli(vec![0.5; 3]), Weighting::Ratio),
        &target,
    );
    check("two of three", with(Participation::Fixed(2), Weighting::InverseProbability), &target);
}

#[test]
fn sgld() {
    check(
        "slopes differ",
        Recipe::Uplink(Uplink::sgld(SMALL, Batch::Rows(2))),
        &linear(prior(), Placement::Server, 1.0),
    );
    check(
        "shifts differ",
        Recipe::Uplink(Uplink::sgld(Schedule::Constant(0.02), Batch::Fraction(0.3))),
        &toy(prior(), Placement::Server),
    );
    let part = Participation::Bernoulli(vec![0.9, 0.5, 0.7]);
    let with_coins = Uplink { participation: part, ..Uplink::sgld(SMALL, Batch::Rows(3)) };
    check(
        "minibatches and coins",
        Recipe::Uplink(with_coins),
        &linear(prior(), Placement::Server, 1.0),
    );
}

#[test]
fn lsd_star() {
    let target = linear(prior(), Placement::Server, 1.0);
    let off = anchor(&target, vec![0.6, 1.1]);
    check(
        "a fixed point off the optimum",
        Recipe::Uplink(Uplink::lsd_star(SMALL, Batch::Rows(2), off)),
        &target,
    );
    let split = linear(prior(), Placement::Split(vec![0.5, 0.25, 0.25]), 1.0);
    let optimum = anchor(&split, posterior(&split).unwrap().mean);
    let star = Uplink {
        participation: Participation::Bernoulli(vec![0.6; 3]),
        ..Uplink::lsd_star(SMALL, Batch::Rows(2), optimum)
    };
    check("at the optimum, with coins", Recipe::Uplink(star), &split);
}

#[test]
fn lsd_plus_plus() {
    let target = linear(prior(), Placement::Server, 1.0);
    check(
        "renewed every 4 rounds",
        Recipe::Uplink(Uplink::lsd_plus_plus(SMALL, Batch::Rows(2), 4, None)),
        &target,
    );
    let memory = Uplink {
        participation: Participation::Bernoulli(vec![0.5, 0.8, 0.4]),
        ..Uplink::lsd_plus_plus(Schedule::Constant(0.012), Batch::Rows(3), 3, Some(0.4))
    };
    check("memory and coins", Recipe::Uplink(memory), &target);
    let fixed = Uplink {
        participation: Participation::Fixed(2),
        ..Uplink::lsd_plus_plus(Schedule::Constant(0.012), Batch::Rows(3), 3, Some(0.7))
    };
    check("memory, two of three", Recipe::Uplink(fixed), &target);
}

#[test]
fn fald() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    for shared in [0.0, 0.5, 1.0] {
        let recipe = Local::fald(Schedule::Constant(0.3), 3, shared, 0.3, Batch::Full);
        check(&format!("shared fraction {shared}"), Recipe::Local(recipe), &target);
    }
    let recipe = Local::fald(Schedule::Constant(0.05), 3, 0.5, 0.4, Batch::Rows(2));
    check("minibatches", Recipe::Local(recipe), &linear(prior(), Placement::Server, 1.0));
}

#[test]
fn fa_ld() {
    let target = gaussian(prior(), Placement::Server, 0.8);
    let recipe =
        || Local::fa_ld(Schedule::Constant(0.08), vec![0.5, 0.2, 0.3], 4, 0.6, Batch::Full);
    check("unequal weights", Recipe::Local(recipe()), &target);
    let first = Local { average: Average::WithReplacement(2), ..recipe() };
    check("scheme I", Recipe::Local(first.clone()), &target);
    check(
        "scheme I, noise for the participants",
        Recipe::Local(Local { noise: NoiseScale::Participants, ..first }),
        &target,
    );
    let equal = || Local::fa_ld(Schedule::Constant(0.08), vec![1.0 / 3.0; 3], 4, 0.3, Batch::Full);
    let second = Local { average: Average::WithoutReplacement(2), ..equal() };
    check("scheme II", Recipe::Local(second.clone()), &target);
    check(
        "scheme II, noise for the participants",
        Recipe::Local(Local { noise: NoiseScale::Participants, ..second }),
        &target,
    );
}

#[test]
fn vr_fald_star() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    for (shared, q) in [(0.0, 0.3), (1.0, 0.5), (0.4, 0.05)] {
        let recipe = Local::vr_fald_star(Schedule::Constant(0.35), 3, shared, 0.3, q, Batch::Full);
        check(&format!("shared {shared}, q {q}"), Recipe::Local(recipe), &target);
    }
    let every = Local {
        synchronise: Synchronise::Every(4),
        ..Local::vr_fald_star(Schedule::Constant(0.3), 3, 0.2, 1.0, 0.4, Batch::Full)
    };
    check(
        "fixed synchronisation, unequal weights",
        Recipe::Local(Local { weights: vec![0.5, 0.3, 0.2], ..every }),
        &target,
    );
    let recipe = Local::vr_fald_star(Schedule::Constant(0.06), 3, 0.5, 0.4, 0.3, Batch::Rows(2));
    check("minibatches", Recipe::Local(recipe), &linear(prior(), Placement::Server, 1.0));
}

/// Clients that are tied to the server's parameter: the prior at the server or with the clients,
/// unequal ties, random times, minibatches.
#[test]
fn dg_lmc() {
    let weights = || vec![0.5, 0.2, 0.3];
    let recipe = Local::dg_lmc(Schedule::Constant(0.06), weights(), 4, 3.0, Batch::Full);
    check(
        "server prior, cold",
        Recipe::Local(recipe.clone()),
        &gaussian(prior(), Placement::Server, 0.7),
    );
    check(
        "split prior",
        Recipe::Local(recipe.clone()),
        &gaussian(prior(), Placement::Split(vec![0.1, 0.2, 0.7]), 1.0),
    );
    check(
        "flat prior",
        Recipe::Local(recipe.clone()),
        &gaussian(Prior::Flat, Placement::Server, 1.0),
    );
    let random = Local { synchronise: Synchronise::Randomly(0.4), ..recipe };
    check("random times", Recipe::Local(random), &gaussian(prior(), Placement::Server, 1.0));
    let recipe = Local::dg_lmc(Schedule::Constant(0.01), weights(), 3, 2.0, Batch::Rows(2));
    check("minibatches", Recipe::Local(recipe), &linear(prior(), Placement::Server, 1.0));
}

/// One chain that visits the clients: with surrogates that are wrong in scale and place, so that
/// they move the clients' potentials but not their sum. Its own law is not that without them.
#[test]
fn fsgld() {
    let weights = vec![0.5, 0.2, 0.3];
    let surrogate = |precision: [f64; 2], shift: [f64; 2]| Surrogate {
        precision: precision.to_vec(),
        shift: shift.to_vec(),
    };
    let surrogates = [
        surrogate([0.8, 0.5], [0.4, -0.6]),
        surrogate([0.6, 0.9], [-0.9, 0.7]),
        surrogate([1.0, 0.4], [2.5, 0.8]),
    ];
    for (name, target, step, batch) in [
        ("all rows", gaussian(prior(), Placement::Server, 0.8), 0.05, Batch::Full),
        ("minibatches", linear(prior(), Placement::Server, 1.0), 0.004, Batch::Rows(2)),
    ] {
        let recipe =
            Recipe::Local(Local::fsgld(Schedule::Constant(step), weights.clone(), 3, batch));
        let rebalanced = target.rebalanced(&weights, &surrogates).unwrap();
        check(name, recipe.clone(), &rebalanced);
        let (without, with) = (recipe.check(target).unwrap(), recipe.check(rebalanced).unwrap());
        let z = sample(&recipe, &with, &stationary(&recipe, &with).unwrap().mean, DRAWS)
            .largest_z(&stationary(&recipe, &without).unwrap());
        println!("{name}: z = {z:.1} against the law without surrogates");
        assert!(z > 4.9, "{name}: {z:.2}: too few draws to see the surrogates");
    }
}

/// One coin an iteration decides whether to synchronise and another whether the reference point
/// moves: each has its rate and knows nothing of the other, nor of its own past. Eight z-scores, of
/// which one exceeds 4.9 by chance once in 100,000 runs or so.
#[test]
fn the_coins_of_vr_fald_star_are_independent() {
    let (p, q, iterations) = (0.3, 0.45, 40_000usize);
    let recipe =
        Recipe::Local(Local::vr_fald_star(Schedule::Constant(0.1), 3, 1.0, p, q, Batch::Full));
    let mut chain = start(&recipe, &gaussian(prior(), Placement::Server, 1.0), &[0.0, 0.0], 3, 0);
    let (mut synchronised, mut referred) = (vec![0.0; iterations], vec![0.0; iterations]);
    while (chain.server.iteration() as usize) < iterations {
        let order = chain.server.order(ClientId(0));
        if order.task == Task::Gradient {
            referred[order.round as usize] = 1.0; // before that iteration's step
        }
        let event = exchange(&mut *chain.server, &mut chain.clients, &mut chain.ledger);
        let done = chain.server.iteration() as usize;
        if event == Event::Draw && done <= iterations {
            synchronised[done - 1] = 1.0; // after that iteration's step
        }
    }
    // From iteration 1 on: the reference point of iteration 0 stands at the start.
    let (synchronised, referred) = (&synchronised[1..], &referred[1..]);
    let together = |a: &[f64], pa: f64, b: &[f64], pb: f64| {
        let sum: f64 = a.iter().zip(b).map(|(a, b)| (a - pa) * (b - pb)).sum();
        sum / (a.len().min(b.len()) as f64 * pa * (1.0 - pa) * pb * (1.0 - pb)).sqrt()
    };
    let rate = |a: &[f64], p: f64| {
        a.iter().map(|a| a - p).sum::<f64>() / (a.len() as f64 * p * (1.0 - p)).sqrt()
    };
    for (what, z) in [
        ("the rate of synchronisation", rate(synchronised, p)),
        ("the rate of the reference point", rate(referred, q)),
        ("both at once", together(synchronised, p, referred, q)),
        ("synchronisation, then the reference point", together(synchronised, p, &referred[1..], q)),
        (
            "synchronisation, two later the reference point",
            together(synchronised, p, &referred[2..], q),
        ),
        ("the reference point, then synchronisation", together(referred, q, &synchronised[1..], p)),
        ("synchronisation twice", together(synchronised, p, &synchronised[1..], p)),
        ("the reference point twice", together(referred, q, &referred[1..], q)),
    ] {
        println!("{what}: z = {z:.2}");
        assert!(z.abs() < 4.9, "{what}: {z:.2} standard errors off");
    }
}

/// No sampler is exempt: every row of the registry, with its defaults but for a compressor whose
/// law is known, has the law that `exact` says.
#[test]
fn every_row_of_the_registry() {
    let target = linear(prior(), Placement::Server, 1.0);
    for row in REGISTRY {
        let has = |axis| row.axes.contains(&axis);
        let step = Schedule::Constant(if has(Axis::Synchronise) {
            0.015
        } else if has(Axis::Compress) || has(Axis::CompressDown) {
            0.01
        } else {
            0.035
        });
        let unbiased = Compressor::rand_k(1);
        let compressor = if row.feedback == Feedback::ErrorFeedback {
            unbiased.clone().scaled()
        } else {
            unbiased.clone()
        };
        let settings = Settings {
            batch: has(Axis::Batch).then_some(Batch::Rows(4)),
            refresh_every: Some(5),
            compress: has(Axis::Compress).then(|| vec![compressor]),
            compress_down: has(Axis::CompressDown).then(|| unbiased.scaled()),
            precision: Some(Precision::F64),
            ..Settings::default()
        };
        let optimum = row.needs_optimum.then(|| anchor(&target, posterior(&target).unwrap().mean));
        let recipe = row.recipe(step, &settings, 3, 2, optimum);
        if !recipe.family().is_exact() {
            check(row.name, recipe, &target); // the others: tests/metropolis.rs
        }
    }
}

/// Compressed gradients: minibatches, coins with weights 1/p, control variates at the optimum,
/// clients that compress differently.
#[test]
fn qlsd() {
    let target = linear(prior(), Placement::Server, 1.0);
    let rand_1 = Compressor::rand_k(1).at(Precision::F64);
    let step = Schedule::Constant(0.012);
    check("full gradients", f64_wire(Uplink::qlsd(step, Batch::Full, rand_1.clone())), &target);
    let coins = Participation::Bernoulli(vec![0.7, 0.5, 0.9]);
    let sharp = Uplink {
        participation: coins.clone(),
        ..Uplink::qlsd(step, Batch::Rows(3), rand_1.clone())
    };
    check("QLSD# with coins", f64_wire(sharp), &target);
    let optimum = anchor(&target, posterior(&target).unwrap().mean);
    let star = Uplink {
        participation: coins,
        ..Uplink::qlsd_star(step, Batch::Rows(3), optimum, rand_1.clone())
    };
    check("QLSD* with coins", f64_wire(star), &target);
    let two_of_three = Compressor::rand_k(2).at(Precision::F64);
    check(
        "two of three coordinates",
        f64_wire(Uplink::qlsd(Schedule::Constant(0.1), Batch::Full, two_of_three)),
        &three_dimensions(),
    );
    let identity = Compressor::identity(Precision::F64);
    let mixed = Uplink {
        up: vec![rand_1.clone(), identity, rand_1.clone()],
        ..Uplink::qlsd(step, Batch::Full, rand_1)
    };
    check("client by client", f64_wire(mixed), &target);
}

#[test]
fn qlsd_plus_plus() {
    let target = linear(prior(), Placement::Server, 1.0);
    let rand_1 = Compressor::rand_k(1).at(Precision::F64);
    let step = Schedule::Constant(0.01);
    check(
        "memory",
        f64_wire(Uplink::qlsd_plus_plus(step, Batch::Rows(3), 3, Some(0.5), rand_1.clone())),
        &target,
    );
    let coins = Participation::Bernoulli(vec![0.8, 0.6, 0.9]);
    let with_coins = Uplink {
        participation: coins,
        ..Uplink::qlsd_plus_plus(
            Schedule::Constant(0.006),
            Batch::Rows(4),
            3,
            Some(0.3),
            rand_1.clone(),
        )
    };
    check("memory and coins", f64_wire(with_coins), &target);
    let down = Some(rand_1.clone().scaled());
    let both =
        Uplink { down, ..Uplink::qlsd_plus_plus(step, Batch::Rows(3), 3, Some(0.5), rand_1) };
    check("compressed both ways", f64_wire(both), &target);
}

#[test]
fn elf() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    let mask = Compressor::rand_k(1).at(Precision::F64).scaled();
    let step = Schedule::Constant(0.1);
    check("D-ELF", f64_wire(Uplink::d_elf(step, mask.clone())), &target);
    check("P-ELF", f64_wire(Uplink::p_elf(step, mask.clone())), &target);
    check("B-ELF", f64_wire(Uplink::b_elf(step, mask.clone(), mask.clone())), &target);
    let small = Uplink { batch: Batch::Rows(3), ..Uplink::d_elf(Schedule::Constant(0.01), mask) };
    check("D-ELF with minibatches", f64_wire(small), &linear(prior(), Placement::Server, 1.0));
}

#[test]
fn marina() {
    let rand_1 = Compressor::rand_k(1).at(Precision::F64);
    for restart in [0.1, 0.6] {
        let recipe = Uplink::marina(Schedule::Constant(0.08), restart, rand_1.clone());
        check(
            &format!("restart {restart}"),
            f64_wire(recipe),
            &gaussian(prior(), Placement::Server, 0.6),
        );
    }
}

/// The exact-error quantiser in place of the server's noise has the very law of LMC.
#[test]
fn compression_error_as_noise() {
    let target = toy(prior(), Placement::Server);
    let optimum = anchor(&target, posterior(&target).unwrap().mean);
    let step = Schedule::Constant(0.02);
    let recipe = f64_wire(Uplink::qlsd_star_exact_error(step, Batch::Rows(2), optimum));
    let law = stationary(&recipe, &target).unwrap();
    let lmc = stationary(&Recipe::Uplink(Uplink::lmc(step)), &target).unwrap();
    for (a, b) in law.covariance.iter().zip(&lmc.covariance) {
        assert!((a - b).abs() < 1e-12);
    }
    check("exact error", recipe, &target);
}

/// What a step adds to the drift is standard normal noise, new every round: where compression
/// errors are all the noise, chains that repeat them look like few draws rather than wrong ones.
/// Seven z-scores, of which one exceeds 4.9 by chance once in 100,000 runs or so.
#[test]
fn compression_error_is_new_noise_every_round() {
    let (step, rounds) = (0.02, 20_000);
    let target = toy(prior(), Placement::Server);
    let optimum = anchor(&target, posterior(&target).unwrap().mean);
    let recipe =
        f64_wire(Uplink::qlsd_star_exact_error(Schedule::Constant(step), Batch::Rows(2), optimum));
    let draws = start(&recipe, &target, &[0.3, 0.3], 5, 0).draws(rounds + 1);
    let noise: Vec<Vec<f64>> = draws
        .windows(2)
        .map(|pair| {
            let mut drift = anchor(&target, pair[0].clone()).residual;
            target.prior.add_gradient(&pair[0], 1.0, &mut drift);
            (0..2)
                .map(|j| (pair[1][j] - pair[0][j] + step * drift[j]) / (2.0 * step).sqrt())
                .collect()
        })
        .collect();
    let score = |term: &dyn Fn(usize) -> f64, variance: f64| {
        (1..rounds).map(term).sum::<f64>() / (variance * (rounds - 1) as f64).sqrt()
    };
    let mut scores = vec![("both coordinates", score(&|k| noise[k][0] * noise[k][1], 1.0))];
    for j in 0..2 {
        scores.push(("mean", score(&|k| noise[k][j], 1.0)));
        scores.push(("variance", score(&|k| noise[k][j].powi(2) - 1.0, 2.0)));
        scores.push(("this round and the last", score(&|k| noise[k][j] * noise[k - 1][j], 1.0)));
    }
    for (what, z) in scores {
        println!("{what}: z = {z:.2}");
        assert!(z.abs() < 4.9, "{what}: {z:.2} standard errors off");
    }
}

/// Local steps and compression together: compressed differences of parameters to a memory.
#[test]
fn compressed_parameters() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    let up = Some((Compressor::rand_k(1).at(Precision::F64), 0.5));
    let wire =
        |recipe| Recipe::Local(Local { up: up.clone(), precision: Precision::F64, ..recipe });
    check("FALD", wire(Local::fald(Schedule::Constant(0.3), 3, 0.5, 0.3, Batch::Full)), &target);
    check(
        "VR-FALD*",
        wire(Local::vr_fald_star(Schedule::Constant(0.3), 3, 0.2, 0.3, 0.3, Batch::Full)),
        &target,
    );
    check(
        "FA-LD",
        wire(Local::fa_ld(Schedule::Constant(0.08), vec![0.5, 0.2, 0.3], 4, 0.6, Batch::Full)),
        &target,
    );
}

/// Variance of the noise around the line, and of the effects of groups.
const NOISE: f64 = 0.8;
const EFFECTS: f64 = 0.9;

#[derive(Clone, Copy, Debug)]
struct Line;

impl PointLoss for Line {
    fn loss(&self, t: f64, y: f64) -> f64 {
        0.5 * (t - y) * (t - y) / NOISE
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        (t - y) / NOISE
    }

    fn bend(&self, _t: f64, _y: f64) -> f64 {
        1.0 / NOISE
    }
}

/// Rows in groups around a line, where both standard deviations are known: without the effects of
/// groups, which are integrated out, the law of the coefficients is Gaussian.
#[derive(Debug)]
struct KnownSpread {
    inner: GroupEffects<Unextended<Line>>,
    /// Group by group: how many rows, the sum of their features, and the sum of their responses.
    groups: Vec<(f64, [f64; 2], f64)>,
    /// The same potential by the covariance of a group's responses, `s^2 1 + tau^2 11'`.
    form: Quadratic,
}

impl KnownSpread {
    fn new(design: &[f64], response: &[f64], group_of: &[u32]) -> Self {
        let own = Design::dense(design.to_vec(), 2).unwrap();
        let inner = GroupEffects::new(own, response.to_vec(), Unextended(Line), group_of).unwrap();
        let (mut groups, mut rows) = (Vec::new(), Vec::new());
        let (mut precision, mut shift) = (vec![0.0; 4], vec![0.0; 2]);
        for group in 0..*group_of.iter().max().unwrap() + 1 {
            let members = (0..response.len()).filter(|row| group_of[*row] == group);
            let (mut n, mut a, mut y) = (0.0, [0.0; 2], 0.0);
            let (mut h, mut r) = (vec![0.0; 4], vec![0.0; 2]);
            for row in members {
                let x = &design[2 * row..2 * row + 2];
                n += 1.0;
                y += response[row];
                for i in 0..2 {
                    a[i] += x[i];
                    r[i] += x[i] * response[row] / NOISE;
                    (0..2).for_each(|k| h[2 * i + k] += x[i] * x[k] / NOISE);
                }
            }
            // Sherman and Morrison
            let share = EFFECTS / (NOISE + n * EFFECTS) / NOISE;
            for i in 0..2 {
                r[i] -= share * a[i] * y;
                (0..2).for_each(|k| h[2 * i + k] -= share * a[i] * a[k]);
            }
            add_scaled(1.0, &h, &mut precision);
            add_scaled(1.0, &r, &mut shift);
            groups.push((n, a, y));
            rows.push((h, r));
        }
        KnownSpread {
            inner,
            groups,
            form: Quadratic { precision, shift, spread: Spread::Rows(rows) },
        }
    }

    fn whole(x: &[f64]) -> [f64; 3] {
        [x[0], x[1], 0.5 * EFFECTS.ln()]
    }
}

impl Likelihood for KnownSpread {
    fn dim(&self) -> usize {
        2
    }

    fn rows(&self) -> usize {
        self.groups.len()
    }

    fn scratch(&self) -> usize {
        Likelihood::scratch(&self.inner) + 4
    }

    fn value(&self, x: &[f64], rows: Rows<'_>, scratch: &mut [f64]) -> f64 {
        Likelihood::value(&self.inner, &Self::whole(x), rows, scratch)
    }

    fn add_gradient(
        &self,
        x: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let mut whole = [0.0; 3];
        let inner: &dyn Likelihood = &self.inner;
        inner.add_gradient(&Self::whole(x), rows, scale, &mut whole, scratch);
        add_scaled(1.0, &whole[..2], out);
    }

    fn add_hessian_vector(
        &self,
        x: &[f64],
        v: &[f64],
        rows: Rows<'_>,
        scale: f64,
        out: &mut [f64],
        scratch: &mut [f64],
    ) {
        let mut whole = [0.0; 3];
        let (at, v) = (Self::whole(x), [v[0], v[1], 0.0]);
        let inner: &dyn Likelihood = &self.inner;
        inner.add_hessian_vector(&at, &v, rows, scale, &mut whole, scratch);
        add_scaled(1.0, &whole[..2], out);
    }

    fn row_smoothness(&self, _row: usize) -> f64 {
        f64::NAN
    }

    fn quadratic(&self) -> Option<Quadratic> {
        Some(self.form.clone())
    }
}

/// Three clients with 2, 3 and 4 groups of unequal sizes, and the middle one's own.
fn grouped() -> (Target, Arc<KnownSpread>) {
    let of = |(i, sizes): (usize, &[usize])| {
        let rows = sizes.iter().sum::<usize>();
        let cells: Vec<f64> = normals(60 + i as u64, rows * 2)
            .iter()
            .enumerate()
            .map(|(k, z)| z + (k % 2) as f64 * 0.7)
            .collect();
        let response: Vec<f64> =
            normals(70 + i as u64, rows).iter().map(|z| 2.0 * z + i as f64).collect();
        let groups = (0u32..).zip(sizes).flat_map(|(g, n)| std::iter::repeat_n(g, *n));
        Arc::new(KnownSpread::new(&cells, &response, &groups.collect::<Vec<u32>>()))
    };
    let sizes: [&[usize]; 3] = [&[2, 4], &[2, 3, 4], &[2, 3, 4, 5]];
    let models: Vec<Arc<KnownSpread>> = sizes.into_iter().enumerate().map(of).collect();
    let clients = models.iter().map(|model| Arc::clone(model) as Arc<dyn Model>).collect();
    (Target::new(clients, prior(), Placement::Server, 1.0).unwrap(), Arc::clone(&models[1]))
}

/// Effects of groups that are integrated out at their site leave a Gaussian target where both
/// standard deviations are known: on it samplers have the law that `exact` says, with minibatches
/// of groups too.
#[test]
fn groups_whose_effects_are_integrated_out() {
    let (target, _) = grouped();
    check("lmc", Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.02))), &target);
    let rand_1 = Compressor::rand_k(1).at(Precision::F64);
    let step = Schedule::Constant(0.008);
    check("qlsd", f64_wire(Uplink::qlsd(step, Batch::Rows(1), rand_1)), &target);
    let fald = Local::fald(Schedule::Constant(0.04), 3, 0.5, 0.4, Batch::Rows(1));
    check("fald", Recipe::Local(fald), &target);
}

/// A site draws the effects of its groups given each draw of what all share: coefficients and
/// effects together have the joint law, which is Gaussian, too. Twenty numbers, of which one is
/// more than 4.9 standard errors off by chance once in 50,000 runs. Effects that knew nothing of
/// the draw would be noticed.
#[test]
fn coefficients_and_effects_have_their_joint_law() {
    let (target, own) = grouped();
    let recipe = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.02)));
    let law = stationary(&recipe, &recipe.check(target.clone()).unwrap()).unwrap();
    let d = 2 + own.groups.len();
    let joint = |linked: f64| {
        let mut mean = law.mean.clone();
        // the mean of an effect moves so with both coefficients
        let mut slopes = vec![[0.0; 2]; own.groups.len()];
        let mut covariance = vec![0.0; d * d];
        for (g, (n, a, y)) in own.groups.iter().enumerate() {
            let weight = EFFECTS / (NOISE + n * EFFECTS);
            mean.push(weight * (y - a[0] * law.mean[0] - a[1] * law.mean[1]));
            slopes[g] = [-weight * a[0], -weight * a[1]];
            covariance[(2 + g) * (d + 1)] = weight * NOISE;
        }
        let s = |i: usize, k: usize| law.covariance[2 * i + k];
        for i in 0..2 {
            for k in 0..2 {
                covariance[i * d + k] = s(i, k);
            }
        }
        for g in 0..slopes.len() {
            for i in 0..2 {
                let both = linked * (slopes[g][0] * s(0, i) + slopes[g][1] * s(1, i));
                covariance[(2 + g) * d + i] = both;
                covariance[i * d + 2 + g] = both;
            }
            for h in 0..slopes.len() {
                for i in 0..2 {
                    let along = slopes[h][0] * s(0, i) + slopes[h][1] * s(1, i);
                    covariance[(2 + g) * d + 2 + h] += slopes[g][i] * along;
                }
            }
        }
        StationaryLaw { mean, covariance }
    };
    let exact = joint(1.0);
    let sampled = sample_with(&recipe, &target, &exact.mean, DRAWS / 3, |x, k| {
        let mut stream = Seed::new(5).stream(Purpose::Data, ClientId(1), k);
        let effects = own.inner.draw(&KnownSpread::whole(x), &mut stream);
        [x, &effects[..]].concat()
    });
    let (z, unlinked) = (sampled.largest_z(&exact), sampled.largest_z(&joint(0.0)));
    println!("z = {z:.2} against the joint law, {unlinked:.1} against effects of their own");
    assert!(z < 4.9, "coefficients and effects are {z:.2} standard errors off their joint law");
    assert!(unlinked > 4.9, "{unlinked:.2}: too few draws to notice effects of their own");
}

/// Two clients in three dimensions, so that two kept coordinates have a product.
fn three_dimensions() -> Target {
    let client = |mean: [f64; 3],
                  precision: [f64; 9]|
     -> std::sync::Arc<dyn consilience_core::model::Model> {
        std::sync::Arc::new(
            consilience_core::model::Gaussian::new(mean.to_vec(), precision.to_vec()).unwrap(),
        )
    };
    let clients = vec![
        client([1.0, -2.0, 0.5], [1.0, 0.5, 0.2, 0.5, 0.8, -0.1, 0.2, -0.1, 0.6]),
        client([-1.0, 1.5, 2.0], [0.7, -0.4, 0.1, -0.4, 1.1, 0.3, 0.1, 0.3, 0.9]),
    ];
    Target::new(clients, Prior::Flat, Placement::Server, 1.0).unwrap()
}

fn f64_wire(recipe: Uplink) -> Recipe {
    Recipe::Uplink(Uplink { precision: Precision::F64, ..recipe })
}

//! Samplers equal each other in the corners where they are the same algorithm: bit for bit where
//! the arithmetic is the same, else to 1e-12.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::compress::{Compressor, Precision};
use consilience_core::model::{Gaussian, Model, Prior, Single, Surrogate};
use consilience_core::rng::{ClientId, Noise, SERVER, Seed};
use consilience_core::sampler::registry::{Settings, find};
use consilience_core::sampler::{
    Batch, Keys, Local, Participation, Recipe, Synchronise, Uplink, Weighting,
};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const STEP: Schedule = Schedule::Constant(0.05);
const DRAWS: usize = 300;

fn uplink(recipe: Uplink) -> Recipe {
    Recipe::Uplink(Uplink { precision: Precision::F64, ..recipe })
}

fn local(recipe: Local) -> Recipe {
    Recipe::Local(Local { precision: Precision::F64, ..recipe })
}

fn prior() -> Prior {
    Prior::gaussian(2.0, 2).unwrap()
}

#[test]
fn lsd_plus_plus_renewed_every_round_is_lmc() {
    let target = linear(prior(), Placement::Server, 1.0);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    for batch in [Batch::Full, Batch::Rows(2)] {
        assert!(run(&uplink(Uplink::lsd_plus_plus(STEP, batch, 1, None)), &target, DRAWS) == lmc);
    }
}

#[test]
fn lsd_plus_plus_with_full_batches_is_lmc_whatever_the_memory() {
    let target = linear(prior(), Placement::Server, 1.0);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    for memory in [None, Some(0.1), Some(1.0)] {
        let same =
            run(&uplink(Uplink::lsd_plus_plus(STEP, Batch::Full, 7, memory)), &target, DRAWS);
        assert!(largest_difference(&same, &lmc) < 1e-12);
    }
}

#[test]
fn sgld_with_all_rows_is_lmc() {
    for target in [
        linear(prior(), Placement::Server, 1.0),
        toy(prior(), Placement::Split(vec![0.2, 0.3, 0.5])),
    ] {
        let lmc = run(&uplink(Uplink::lmc(Schedule::Constant(0.02))), &target, DRAWS);
        assert!(
            run(&uplink(Uplink::sgld(Schedule::Constant(0.02), Batch::Rows(1000))), &target, DRAWS)
                == lmc
        );
        assert!(
            run(
                &uplink(Uplink::sgld(Schedule::Constant(0.02), Batch::Fraction(1.0))),
                &target,
                DRAWS
            ) == lmc
        );
    }
}

#[test]
fn lsd_star_on_the_toy_gaussian_is_lmc() {
    for (prior, placement) in [
        (Prior::Flat, Placement::Server),
        (prior(), Placement::Server),
        (prior(), Placement::Split(vec![0.5, 0.3, 0.2])),
    ] {
        let target = toy(prior, placement);
        let step = Schedule::Constant(0.02);
        let lmc = run(&uplink(Uplink::lmc(step)), &target, DRAWS);
        for point in [vec![0.0, 0.0], vec![1.7, -0.4]] {
            let anchor = anchor(&target, point);
            let star = run(&uplink(Uplink::lsd_star(step, Batch::Rows(2), anchor)), &target, DRAWS);
            assert!(
                largest_difference(&star, &lmc) < 1e-12,
                "the minibatch noise cancels, wherever the fixed point is"
            );
        }
    }
}

#[test]
fn fald_that_always_synchronises_with_shared_noise_is_lmc_at_gamma_over_b() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    let gamma = 0.3;
    let lmc = run(&uplink(Uplink::lmc(Schedule::Constant(gamma / 3.0))), &target, DRAWS);
    let fald = run(
        &local(Local::fald(Schedule::Constant(gamma), 3, 1.0, 1.0, Batch::Full)),
        &target,
        DRAWS,
    );
    assert!(largest_difference(&fald, &lmc) < 1e-12);
    let fa_ld = run(
        &local(Local::fa_ld(
            Schedule::Constant(gamma / 3.0),
            vec![0.2, 0.5, 0.3],
            1,
            1.0,
            Batch::Full,
        )),
        &target,
        DRAWS,
    );
    assert!(largest_difference(&fa_ld, &lmc) < 1e-12, "whatever the weights");
}

#[test]
fn fa_ld_with_equal_weights_and_random_synchronisation_is_fald() {
    let target = linear(prior(), Placement::Server, 0.5);
    let (gamma, shared) = (0.06, 0.36);
    let fald = run(
        &local(Local::fald(Schedule::Constant(gamma), 3, shared, 0.2, Batch::Rows(3))),
        &target,
        DRAWS,
    );
    let fa_ld = Local {
        synchronise: Synchronise::Randomly(0.2),
        ..Local::fa_ld(
            Schedule::Constant(gamma / 3.0),
            vec![1.0 / 3.0; 3],
            99,
            shared.sqrt(),
            Batch::Rows(3),
        )
    };
    assert!(largest_difference(&run(&local(fa_ld), &target, DRAWS), &fald) < 1e-12);
}

/// Hardly tied at all, the server draws from the prior, whatever the clients do, and a client
/// samples its own potential as if it were the only one.
#[test]
fn dg_lmc_with_the_loosest_tether_is_the_prior_here_and_fa_ld_there() {
    let loose = |weights| local(Local::dg_lmc(STEP, weights, 1, 1e300, Batch::Full));
    let precision = [0.5, 1.25];
    let target = gaussian(
        Prior::gaussian_per_coordinate(&precision.map(|p| 1.0 / p)).unwrap(),
        Placement::Server,
        0.7,
    );
    let draws = run(&loose(vec![0.2, 0.5, 0.3]), &target, DRAWS);
    let seed = Keys::simulation(Seed::new(1), 0).public;
    let mut noise = Noise::new(seed, SERVER, 2);
    for (k, draw) in (1..).zip(&draws) {
        let z = noise.at(k, 0..2);
        let expected: Vec<f64> =
            z.iter().zip(precision).map(|(z, p)| (0.7f64 / p).sqrt() * z).collect();
        assert!(*draw == expected, "the prior's draw {k}");
    }

    let alone = consilience_core::target::Target::new(
        vec![target.clients[0].clone()],
        prior(),
        Placement::Server,
        0.7,
    )
    .unwrap();
    let tied = loose(vec![1.0]).check(alone.clone()).unwrap();
    let mut chain = start(&loose(vec![1.0]), &tied, &[0.3, 0.3], 1, 0);
    let mut walked = Vec::new();
    for _ in 0..DRAWS {
        let order = chain.server.order(ClientId(0));
        let reply = chain.clients[0].answer(&order);
        walked.push(reply.payload.values().to_vec());
        chain.server.absorb(ClientId(0), &reply);
        chain.server.advance();
    }
    let without_prior = consilience_core::target::Target { prior: Prior::Flat, ..alone };
    assert!(
        walked
            == run(
                &local(Local::fa_ld(STEP, vec![1.0], 1, 0.0, Batch::Full)),
                &without_prior,
                DRAWS
            ),
        "the client's own walk"
    );
}

/// The chain by its formulas, written out here in the paper's letters: `gamma_c = eta_k / p_c`
/// falls, and `rho_c = tether eta_0 / p_c` stays.
#[test]
fn dg_lmc_with_a_decreasing_step_by_hand() {
    let (weights, precision) = ([0.2, 0.5, 0.3], [0.5, 1.25]);
    let (temperature, tether, every) = (0.7, 3.0, 4);
    let prior = Prior::gaussian_per_coordinate(&precision.map(|p| 1.0 / p)).unwrap();
    let target = gaussian(prior, Placement::Server, temperature);
    let (first, delay) = (0.05, 20.0);
    let schedule = Schedule::Polynomial { first, delay, power: 1.0 };
    let recipe = Local::dg_lmc(schedule, weights.to_vec(), every, tether, Batch::Full);
    let draws = run(&local(recipe), &target, DRAWS);

    let keys = Keys::simulation(Seed::new(1), 0);
    let mut server = Noise::new(keys.public, SERVER, 2);
    let mut own: Vec<Noise> = (0..3).map(|c| Noise::new(keys.private, ClientId(c), 2)).collect();
    let rho = weights.map(|p| tether * first / p);
    let (mut theta, mut z) = ([0.3; 2], [[0.3; 2]; 3]);
    let mut expected = Vec::new();
    for k in 0..DRAWS as u64 * every {
        for c in 0..3 {
            let gamma = first / (1.0 + k as f64 / delay) / weights[c];
            let gradient = Single::new(&target.clients[c]).gradient(&z[c]);
            let xi = own[c].at(k, 0..2);
            for j in 0..2 {
                let drift = gradient[j] + (z[c][j] - theta[j]) / rho[c];
                z[c][j] += (2.0 * gamma * temperature).sqrt() * xi[j] - gamma * drift;
            }
        }
        if (k + 1) % every == 0 {
            let xi = server.at(k + 1, 0..2);
            for j in 0..2 {
                let q = precision[j] + rho.iter().map(|rho| 1.0 / rho).sum::<f64>();
                let mean = (0..3).map(|c| z[c][j] / rho[c]).sum::<f64>() / q;
                theta[j] = mean + (temperature / q).sqrt() * xi[j];
            }
            expected.push(theta.to_vec());
        }
    }
    assert!(largest_difference(&draws, &expected) < 1e-11);
}

/// With the true likelihoods as surrogates every client has the drift of all, so it does not matter
/// who is visited.
#[test]
fn fsgld_with_true_surrogates_is_lmc() {
    let client = |mean: [f64; 2], precision: [f64; 2]| -> std::sync::Arc<dyn Model> {
        std::sync::Arc::new(
            Gaussian::new(mean.to_vec(), vec![precision[0], 0.0, 0.0, precision[1]]).unwrap(),
        )
    };
    let clients = vec![
        client([1.0, -2.0], [1.0, 0.6]),
        client([-1.5, 0.5], [0.5, 1.4]),
        client([3.0, 2.0], [1.2, 0.3]),
    ];
    let target =
        consilience_core::target::Target::new(clients, prior(), Placement::Server, 0.7).unwrap();
    let weights = vec![0.2, 0.5, 0.3];
    let point = [0.4, -0.9];
    let precisions = [[1.0, 0.6], [0.5, 1.4], [1.2, 0.3]];
    let surrogates: Vec<Surrogate> = target
        .clients
        .iter()
        .zip(precisions)
        .map(|(c, p)| Surrogate::at(&point, p.to_vec(), c))
        .collect();
    let rebalanced = target.rebalanced(&weights, &surrogates).unwrap();
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    let fsgld = run(&local(Local::fsgld(STEP, weights, 1, Batch::Full)), &rebalanced, DRAWS);
    assert!(largest_difference(&fsgld, &lmc) < 1e-12);
}

#[test]
fn fsgld_without_surrogates_is_fa_ld_of_one_client_with_shared_noise() {
    let target = linear(prior(), Placement::Server, 1.0);
    let weights = vec![0.2, 0.5, 0.3];
    let none = vec![Surrogate { precision: vec![0.0; 2], shift: vec![0.0; 2] }; 3];
    let rebalanced = target.rebalanced(&weights, &none).unwrap();
    let step = Schedule::Constant(0.004);
    let fsgld =
        run(&local(Local::fsgld(step, weights.clone(), 3, Batch::Rows(2))), &rebalanced, DRAWS);
    let average = consilience_core::sampler::Average::WithReplacement(1);
    let fa_ld = Local { average, ..Local::fa_ld(step, weights, 3, 1.0, Batch::Rows(2)) };
    assert!(fsgld == run(&local(fa_ld), &target, DRAWS));
}

#[test]
fn dg_sgld_with_all_rows_is_dg_lmc() {
    let target = linear(prior(), Placement::Server, 1.0);
    let dg = |batch| {
        run(
            &local(Local::dg_lmc(Schedule::Constant(0.01), vec![0.2, 0.5, 0.3], 4, 3.0, batch)),
            &target,
            DRAWS,
        )
    };
    assert!(dg(Batch::Rows(1000)) == dg(Batch::Full));
}

#[test]
fn vr_fald_star_with_equal_clients_and_a_fixed_reference_is_fald() {
    let one = gaussian(Prior::Flat, Placement::Server, 1.0);
    let equal = consilience_core::target::Target::new(
        vec![one.clients[0].clone(); 3],
        prior(),
        Placement::Server,
        1.0,
    )
    .unwrap();
    let gamma = Schedule::Constant(0.2);
    let fald = run(&local(Local::fald(gamma, 3, 0.4, 0.25, Batch::Full)), &equal, DRAWS);
    let vr = run(&local(Local::vr_fald_star(gamma, 3, 0.4, 0.25, 0.0, Batch::Full)), &equal, DRAWS);
    assert!(largest_difference(&fald, &vr) < 1e-12);
}

#[test]
fn vr_fald_star_that_always_synchronises_and_refers_is_lmc_with_the_same_mean_noise() {
    // With p = 1 the local drift is averaged at once, and control variates cancel in the mean, so
    // only the shared noise matters.
    let target = gaussian(prior(), Placement::Server, 1.0);
    let lmc = run(&uplink(Uplink::lmc(Schedule::Constant(0.1))), &target, DRAWS);
    for q in [0.0, 0.3, 1.0] {
        let vr = run(
            &local(Local::vr_fald_star(Schedule::Constant(0.3), 3, 1.0, 1.0, q, Batch::Full)),
            &target,
            DRAWS,
        );
        assert!(largest_difference(&vr, &lmc) < 1e-12, "q = {q}");
    }
}

#[test]
fn partial_participation_of_everybody_is_participation_of_everybody() {
    let target = linear(prior(), Placement::Server, 1.0);
    let all = run(&uplink(Uplink::sgld(STEP, Batch::Rows(3))), &target, DRAWS);
    for (participation, weighting) in [
        (Participation::Fixed(3), Weighting::InverseProbability),
        (Participation::Fixed(3), Weighting::Ratio),
        (Participation::Bernoulli(vec![1.0; 3]), Weighting::InverseProbability),
    ] {
        let same = run(
            &uplink(Uplink { participation, weighting, ..Uplink::sgld(STEP, Batch::Rows(3)) }),
            &target,
            DRAWS,
        );
        assert!(same == all);
    }
    let fa_ld = || Local::fa_ld(STEP, vec![1.0 / 3.0; 3], 4, 0.5, Batch::Rows(3));
    let all = run(&local(fa_ld()), &target, DRAWS);
    let scheme_two =
        Local { average: consilience_core::sampler::Average::WithoutReplacement(3), ..fa_ld() };
    assert!(run(&local(scheme_two), &target, DRAWS) == all);
}

#[test]
fn the_prior_may_sit_anywhere() {
    let server = run(&uplink(Uplink::lmc(STEP)), &linear(prior(), Placement::Server, 1.0), DRAWS);
    for weights in [vec![1.0, 0.0, 0.0], vec![0.2, 0.3, 0.5]] {
        let split = run(
            &uplink(Uplink::lmc(STEP)),
            &linear(prior(), Placement::Split(weights), 1.0),
            DRAWS,
        );
        assert!(largest_difference(&split, &server) < 1e-12);
    }
}

#[test]
fn a_client_that_leaves_moves_nobody_elses_noise() {
    // Client 2 without data pull (zero precision) and no client 2 at all: the others' minibatches
    // and the noise stay what they were.
    let three = linear(prior(), Placement::Server, 1.0);
    let two = consilience_core::target::Target::new(
        three.clients[..2].to_vec(),
        prior(),
        Placement::Server,
        1.0,
    )
    .unwrap();
    let nothing = consilience_core::model::Gaussian::new(vec![0.0, 0.0], vec![0.0; 4]).unwrap();
    let mut clients = two.clients.clone();
    clients.push(std::sync::Arc::new(nothing));
    let with_idle =
        consilience_core::target::Target::new(clients, prior(), Placement::Server, 1.0).unwrap();
    let recipe = uplink(Uplink::sgld(STEP, Batch::Rows(2)));
    assert!(run(&recipe, &two, DRAWS) == run(&recipe, &with_idle, DRAWS));
}

#[test]
fn chains_that_start_apart_meet() {
    // With the same random numbers on a strongly convex target; whatever a sampler remembers must
    // be renewed in time.
    let target = gaussian(prior(), Placement::Server, 1.0);
    let coins = || Participation::Bernoulli(vec![0.5, 0.8, 0.6]);
    let mut recipes = vec![
        uplink(Uplink::lmc(STEP)),
        uplink(Uplink {
            participation: coins(),
            ..Uplink::lsd_plus_plus(STEP, Batch::Full, 3, Some(0.4))
        }),
        local(Local::fald(STEP, 3, 0.4, 0.3, Batch::Full)),
    ];
    recipes.extend(
        [0.1, 0.5, 1.0].map(|q| {
            local(Local::vr_fald_star(Schedule::Constant(0.2), 3, 0.4, 0.3, q, Batch::Full))
        }),
    );
    for recipe in recipes {
        let last = |from: [f64; 2]| {
            start(&recipe, &target, &from, 1, 0).draws(2 * DRAWS).split_off(2 * DRAWS - 1)
        };
        let apart = largest_difference(&last([0.3, 0.3]), &last([-40.0, 70.0]));
        assert!(apart < 1e-12, "{recipe:?}: still {apart} apart");
    }
}

const IDENTITY: Compressor = Compressor::identity(Precision::F64);

/// The chain by its formula, `x <- x - gamma_k grad U(x) + sqrt(2 gamma_k T) Z_k`, with the
/// schedules written out here: one that took its first step for ever would start the same way.
#[test]
fn a_decreasing_step_decreases_round_by_round() {
    const ROUNDS: usize = 60;
    let theorem = Schedule::Decreasing { smoothness: 6.0, convexity: 5.0 };
    let decay = Schedule::Polynomial { first: 0.06, delay: 4.0, power: 0.75 };
    type Formula = fn(f64) -> f64;
    let theorem: (Schedule, Formula) = (theorem, |k| 1.0 / (12.0 + 5.0 * k / 12.0));
    let decay: (Schedule, Formula) = (decay, |k| 0.06 * (1.0 + k / 4.0).powf(-0.75));
    let by_hand = |target: &Target, gamma: Formula| {
        let mut noise = Noise::new(Keys::simulation(Seed::new(1), 0).public, SERVER, 2);
        let (mut x, mut gradient) = (vec![0.3; 2], vec![0.0; 2]);
        let mut step = |k: usize| {
            target.gradient(&x, &mut gradient);
            let (gamma, z) = (gamma(k as f64), noise.at(k as u64, 0..2));
            for j in 0..2 {
                x[j] += (2.0 * gamma * target.temperature).sqrt() * z[j] - gamma * gradient[j];
            }
            x.clone()
        };
        (0..ROUNDS).map(&mut step).collect::<Vec<_>>()
    };
    for target in [gaussian, linear] {
        let target = target(prior(), Placement::Server, 0.7);
        for (schedule, gamma) in [theorem, decay] {
            let expected = by_hand(&target, gamma);
            let lmc = run(&uplink(Uplink::lmc(schedule)), &target, ROUNDS);
            assert!(largest_difference(&lmc, &expected) < 1e-12, "family A, {schedule:?}");
            // Shared noise and a synchronisation after every step: the same chain.
            let fa_ld = Local::fa_ld(schedule, vec![0.2, 0.5, 0.3], 1, 1.0, Batch::Full);
            let fa_ld = run(&local(fa_ld), &target, ROUNDS);
            assert!(largest_difference(&fa_ld, &expected) < 1e-12, "family B, {schedule:?}");
            // One client on its own, three steps to a draw.
            let client = vec![target.clients[0].clone()];
            let alone = Target::new(client, prior(), Placement::Server, 0.7).unwrap();
            let steps = by_hand(&alone, gamma);
            let thirds: Vec<Vec<f64>> = steps.into_iter().skip(2).step_by(3).collect();
            let walk = Local::fa_ld(schedule, vec![1.0], 3, 1.0, Batch::Full);
            let walk = run(&local(walk), &alone, ROUNDS / 3);
            assert!(largest_difference(&walk, &thirds) < 1e-12, "one client, {schedule:?}");
        }
    }
}

#[test]
fn qlsd_with_identity_is_sgld() {
    let target = linear(prior(), Placement::Server, 1.0);
    let sgld = run(&uplink(Uplink::sgld(STEP, Batch::Rows(3))), &target, DRAWS);
    assert!(run(&uplink(Uplink::qlsd(STEP, Batch::Rows(3), IDENTITY)), &target, DRAWS) == sgld);
    let at_32_bits = Recipe::Uplink(Uplink::sgld(STEP, Batch::Rows(3)));
    let identity =
        Recipe::Uplink(Uplink::qlsd(STEP, Batch::Rows(3), Compressor::identity(Precision::F32)));
    assert!(run(&identity, &target, DRAWS) == run(&at_32_bits, &target, DRAWS));
    let all_coordinates = Compressor::rand_k(2).at(Precision::F64);
    assert!(
        largest_difference(
            &run(&uplink(Uplink::qlsd(STEP, Batch::Rows(3), all_coordinates)), &target, DRAWS),
            &sgld
        ) < 1e-12
    );
}

#[test]
fn qlsd_star_with_identity_is_lsd_star() {
    let target = linear(prior(), Placement::Server, 1.0);
    let anchor = anchor(&target, vec![0.4, 0.2]);
    let star = run(&uplink(Uplink::lsd_star(STEP, Batch::Rows(3), anchor.clone())), &target, DRAWS);
    assert!(
        run(&uplink(Uplink::qlsd_star(STEP, Batch::Rows(3), anchor, IDENTITY)), &target, DRAWS)
            == star
    );
}

#[test]
fn qlsd_plus_plus_with_identity_and_full_batches_is_lmc_whatever_alpha() {
    let target = linear(prior(), Placement::Server, 1.0);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    for alpha in [None, Some(0.01), Some(0.5), Some(1.0)] {
        let same = run(
            &uplink(Uplink::qlsd_plus_plus(STEP, Batch::Full, 6, alpha, IDENTITY)),
            &target,
            DRAWS,
        );
        assert!(largest_difference(&same, &lmc) < 1e-12, "alpha = {alpha:?}");
    }
}

#[test]
fn elf_with_identity_is_lmc() {
    let target = linear(prior(), Placement::Server, 1.0);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    assert!(run(&uplink(Uplink::d_elf(STEP, IDENTITY)), &target, DRAWS) == lmc);
    assert!(run(&uplink(Uplink::p_elf(STEP, IDENTITY)), &target, DRAWS) == lmc);
    assert!(run(&uplink(Uplink::b_elf(STEP, IDENTITY, IDENTITY)), &target, DRAWS) == lmc);
    // Top-k of all coordinates loses nothing either, but takes the whole machinery.
    let all = Compressor::top_k(2).at(Precision::F64);
    let slowly = Uplink { memory_rate: Some(0.3), ..Uplink::d_elf(STEP, all.clone()) };
    for recipe in [
        Uplink::d_elf(STEP, all.clone()),
        slowly,
        Uplink::p_elf(STEP, all.clone()),
        Uplink::b_elf(STEP, all.clone(), all),
    ] {
        assert!(largest_difference(&run(&uplink(recipe), &target, DRAWS), &lmc) < 1e-12);
    }
}

#[test]
fn b_elf_has_d_elf_and_p_elf_in_its_corners() {
    let target = linear(prior(), Placement::Server, 1.0);
    let step = Schedule::Constant(0.01);
    let top = Compressor::top_k(1).at(Precision::F64);
    let d_elf = run(&uplink(Uplink::d_elf(step, top.clone())), &target, DRAWS);
    assert!(run(&uplink(Uplink::b_elf(step, top.clone(), IDENTITY)), &target, DRAWS) == d_elf);
    let p_elf = run(&uplink(Uplink::p_elf(step, top.clone())), &target, DRAWS);
    assert!(run(&uplink(Uplink::b_elf(step, IDENTITY, top)), &target, DRAWS) == p_elf);
    assert!(d_elf != p_elf);
}

#[test]
fn bi_qlsd_plus_plus_with_an_identity_downlink_is_qlsd_plus_plus() {
    let target = linear(prior(), Placement::Server, 1.0);
    let plus_plus = || {
        Uplink::qlsd_plus_plus(
            Schedule::Constant(0.01),
            Batch::Rows(3),
            4,
            Some(0.2),
            Compressor::qsgd(4),
        )
    };
    let one_way = run(&uplink(plus_plus()), &target, DRAWS);
    assert!(
        run(&uplink(Uplink { down: Some(IDENTITY), ..plus_plus() }), &target, DRAWS) == one_way
    );
}

#[test]
fn bi_qlsd_plus_plus_with_an_identity_uplink_and_full_batches_is_p_elf() {
    let target = linear(prior(), Placement::Server, 1.0);
    let step = Schedule::Constant(0.01); // five times that diverges with a compressed way down
    let top = Compressor::top_k(1).at(Precision::F64);
    let p_elf = run(&uplink(Uplink::p_elf(step, top.clone())), &target, DRAWS);
    let both = Uplink {
        down: Some(top),
        ..Uplink::qlsd_plus_plus(step, Batch::Full, 6, Some(0.5), IDENTITY)
    };
    assert!(largest_difference(&run(&uplink(both), &target, DRAWS), &p_elf) < 1e-12);
}

/// Without noise there is nothing for the compression error to stand for: at a vanishing
/// temperature the exact-error quantiser is lossless, and the chain is gradient descent.
#[test]
fn qlsd_star_with_exact_errors_is_lmc_at_temperature_zero() {
    let cold = gaussian(prior(), Placement::Server, 1e-16);
    let start = anchor(&cold, vec![0.4, 0.2]);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &cold, DRAWS);
    let exact = run(&uplink(Uplink::qlsd_star_exact_error(STEP, Batch::Full, start)), &cold, DRAWS);
    assert!(largest_difference(&exact, &lmc) < 1e-6); // the noise itself is 1e-8 a step
    assert!(lmc[0].iter().zip(&lmc[DRAWS - 1]).any(|(a, b)| (a - b).abs() > 0.1), "and it moves");
}

#[test]
fn marina_that_always_restarts_or_loses_nothing_is_lmc() {
    let target = linear(prior(), Placement::Server, 1.0);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    assert!(run(&uplink(Uplink::marina(STEP, 1.0, Compressor::qsgd(1))), &target, DRAWS) == lmc);
    assert!(run(&uplink(Uplink::marina(STEP, 0.2, IDENTITY)), &target, DRAWS) == lmc);
    let lossless = Compressor::rand_k(2).at(Precision::F64);
    assert!(
        largest_difference(
            &run(&uplink(Uplink::marina(STEP, 0.2, lossless)), &target, DRAWS),
            &lmc
        ) < 1e-12
    );
}

/// The row of DIANA: nothing is lost, or the memory never moves.
#[test]
fn diana_that_loses_nothing_is_lmc_and_that_forgets_is_qlsd() {
    let target = linear(prior(), Placement::Server, 1.0);
    let diana = |rate: Option<f64>, compressor: Compressor| {
        let settings = Settings {
            memory_rate: rate,
            compress: Some(vec![compressor]),
            precision: Some(Precision::F64),
            ..Settings::default()
        };
        let row = find("diana-ld").unwrap();
        run(&row.recipe(STEP, &settings, 3, 2, None), &target, DRAWS)
    };
    let rand_1 = Compressor::rand_k(1).at(Precision::F64);
    let lmc = run(&uplink(Uplink::lmc(STEP)), &target, DRAWS);
    assert!(largest_difference(&diana(Some(0.5), IDENTITY), &lmc) < 1e-12);
    let qlsd = run(&uplink(Uplink::qlsd(STEP, Batch::Full, rand_1.clone())), &target, DRAWS);
    let forgetful = diana(Some(1e-300), rand_1.clone());
    assert!(largest_difference(&forgetful, &qlsd) < 1e-12);
    assert!(largest_difference(&diana(Some(0.5), rand_1), &qlsd) > 0.01, "a memory matters");
}

#[test]
fn compressed_parameters_that_lose_nothing_are_parameters() {
    let target = gaussian(prior(), Placement::Server, 1.0);
    let gamma = Schedule::Constant(0.2);
    for recipe in [
        Local::fald(gamma, 3, 0.4, 0.25, Batch::Full),
        Local::vr_fald_star(gamma, 3, 0.4, 0.25, 0.3, Batch::Full),
    ] {
        let plain = run(&local(recipe.clone()), &target, DRAWS);
        assert!(
            run(&local(Local { up: Some((IDENTITY, 1.0)), ..recipe.clone() }), &target, DRAWS)
                == plain
        );
        let all = Some((Compressor::rand_k(2).at(Precision::F64), 0.7));
        assert!(
            largest_difference(&run(&local(Local { up: all, ..recipe }), &target, DRAWS), &plain)
                < 1e-12
        );
    }
}

//! Clients that draw the Langevin noise themselves leave the law of the chain as it is, and draw as
//! much as is accounted for.
//!
//! Each comparison fails by chance once in a million (|z| < 4.9); seeds are fixed.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its scores

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::{Compressor, Precision};
use consilience_core::error::DataError;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::protocol::{Event, Ledger, Order, Payload, ReferencePoint, Task, exchange};
use consilience_core::rng::{ClientId, Noise, Seed};
use consilience_core::sampler::exact::{StationaryLaw, stationary};
use consilience_core::sampler::registry::{Axis, REGISTRY, Settings};
use consilience_core::sampler::{
    Average, Batch, HEAT, Keys, Local, NoiseScale, Participation, PrivateNoise, Recipe,
    Synchronise, Uplink, Weighting,
};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const STEP: Schedule = Schedule::Constant(0.1);

fn prior(dim: usize) -> Prior {
    Prior::gaussian_per_coordinate(&vec![0.8; dim]).unwrap()
}

/// Three clients in 16 dimensions whose means and precisions differ.
fn wide() -> Target {
    let dim = 16;
    let client = |i: usize| -> Arc<dyn Model> {
        let mean = normals(70 + i as u64, dim).iter().map(|z| 0.3 * z).collect();
        let mut precision = vec![0.0; dim * dim];
        for k in 0..dim {
            precision[k * dim + k] = 0.3 + 0.1 * ((k + i) % 5) as f64;
        }
        Arc::new(Gaussian::new(mean, precision).unwrap())
    };
    Target::new((0..3).map(client).collect(), prior(dim), Placement::Server, 1.0).unwrap()
}

/// How many standard errors the draws are off a law: by their mean and by their squared distance
/// from it, each coordinate against its variance.
fn scores(recipe: &Recipe, target: &Target, law: &StationaryLaw, draws: usize) -> [f64; 2] {
    let (dim, chains) = (target.dim(), 200);
    let mut found: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    for c in 0..chains {
        let mut chain = start(recipe, target, &law.mean, 31, c);
        chain.draws(80);
        let (mut means, mut squares) = (0.0, 0.0);
        for _ in 0..draws {
            for (i, x) in chain.draw().iter().enumerate() {
                let away = (x - law.mean[i]) / law.covariance[i * dim + i].sqrt();
                means += away;
                squares += away * away - 1.0;
            }
        }
        for (found, sum) in found.iter_mut().zip([means, squares]) {
            found.push(sum / (draws * dim) as f64);
        }
    }
    found.map(|of_chains| {
        let n = of_chains.len() as f64;
        let mean = of_chains.iter().sum::<f64>() / n;
        let square = of_chains.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
        mean / (square / n).sqrt()
    })
}

/// The law is that of the same sampler without noise of the clients' own, and this would notice a
/// tenth more, or less.
fn check(name: &str, plain: Uplink, server_share: f64, target: &Target, draws: usize) {
    let private = Some(PrivateNoise { server_share });
    let law = stationary(&Recipe::Uplink(plain.clone()), target).unwrap();
    let recipe = Recipe::Uplink(Uplink { private, ..plain });
    assert_eq!(stationary(&recipe, target).unwrap().covariance, law.covariance);
    let found = scores(&recipe, target, &law, draws);
    println!("{name}: {found:.2?} standard errors");
    assert!(found.iter().all(|z| z.abs() < 4.9), "{name}: {found:.2?}");
    for factor in [0.9, 1.1] {
        let covariance = law.covariance.iter().map(|v| factor * v).collect();
        let other = StationaryLaw { covariance, ..law.clone() };
        let found = scores(&recipe, target, &other, draws);
        assert!(found[1].abs() > 4.9, "{name}: {found:.2?} standard errors from {factor}");
    }
}

#[test]
fn noise_of_the_clients_leaves_the_law_as_it_is() {
    let target = gaussian(prior(2), Placement::Server, 0.7);
    check("all of it", Uplink::lmc(STEP), 0.0, &target, 300);
    check("but for a third", Uplink::lmc(STEP), 0.33, &target, 300);
    let two = Uplink { participation: Participation::Fixed(2), ..Uplink::lmc(STEP) };
    check("two of three", two, 0.0, &target, 300);
    let coins = Participation::Bernoulli(vec![0.5, 0.9, 0.7]);
    check("coins", Uplink { participation: coins, ..Uplink::lmc(STEP) }, 0.1, &target, 300);
    let rows = linear(prior(2), Placement::Server, 1.0);
    check("minibatches", Uplink::sgld(Schedule::Constant(0.02), Batch::Rows(4)), 0.0, &rows, 900);
}

/// Walks whose noise is drawn and rounded as a release must be have the law of walks without, and
/// this would notice a tenth more, or less.
#[test]
fn private_walks_leave_the_law_as_it_is() {
    let target = gaussian(prior(2), Placement::Server, 0.7);
    let weights = vec![0.5, 0.3, 0.2];
    let step = Schedule::Constant(0.05);
    let walks = Local::fa_ld(step, weights.clone(), 3, 0.6, Batch::Full);
    let tied = Local::dg_lmc(step, weights, 2, 2.0, Batch::Full);
    for (name, plain) in [("fa-ld", walks), ("dg-lmc", tied)] {
        let plain = Recipe::Local(plain);
        let target = plain.check(target.clone()).unwrap();
        let law = stationary(&plain, &target).unwrap();
        let recipe = plain.family().with_own_noise(0.0).unwrap();
        assert_ne!(recipe, plain);
        assert_eq!(stationary(&recipe, &target).unwrap().covariance, law.covariance);
        let found = scores(&recipe, &target, &law, 300);
        println!("{name}: {found:.2?} standard errors");
        assert!(found.iter().all(|z| z.abs() < 4.9), "{name}: {found:.2?}");
        for factor in [0.9, 1.1] {
            let covariance = law.covariance.iter().map(|v| factor * v).collect();
            let other = StationaryLaw { covariance, ..law.clone() };
            let found = scores(&recipe, &target, &other, 300);
            assert!(found[1].abs() > 4.9, "{name}: {found:.2?} standard errors from {factor}");
        }
    }
}

/// Every step of a private walk ends on a grid of its noise's own, and the noise is half a sum of
/// four normals of the client's private key. Points so far out that a step would be rounded before
/// its noise comes to it are not walked from.
#[test]
fn walks_are_snapped_and_their_noise_is_private() {
    let target = gaussian(prior(2), Placement::Split(vec![0.5, 0.3, 0.2]), 0.7);
    let (eta, steps) = (0.05, 3);
    let local = Local {
        precision: Precision::F64,
        private: true,
        ..Local::fa_ld(Schedule::Constant(eta), vec![0.5, 0.3, 0.2], steps, 0.0, Batch::Full)
    };
    let recipe = Recipe::Local(local);
    let target = recipe.check(target).unwrap();
    let deviation = (2.0 * eta * 0.7 / 0.5f64).sqrt(); // (1 - rho^2) / p_c
    let grid = 2f64.powi(deviation.log2().floor() as i32 - 10);
    let order = |x: &'static [f64; 2]| Order {
        round: 6,
        task: Task::Walk { steps },
        position: Some(Payload::Plain(x, Precision::F64)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    let device = |keys: Keys| recipe.client(&target, ClientId(0), keys).unwrap();
    let answer = |keys: Keys| device(keys).answer(&order(&[0.25, 0.1])).payload.values().to_vec();
    let (public, private) = (Seed::new(1), Seed::new(2));
    let first = answer(Keys { public, private });
    for value in &first {
        assert_eq!((value / grid).fract(), 0.0, "{value} is not a multiple of {grid}");
    }
    assert_eq!(first, answer(Keys { public: Seed::new(9), private }));
    assert_ne!(first, answer(Keys { public, private: Seed::new(9) }));
    // By hand, step by step.
    let mut x = vec![0.25, 0.1];
    let rows = target.clients[0].rows();
    let mut noise = Noise::private(private, ClientId(0), 2);
    for k in 0..steps {
        let mut gradient = vec![0.0; 2];
        target.site(ClientId(0), rows).gradient(&x, &mut gradient);
        let z = noise.at(6 + k, 0..2);
        for ((x, g), z) in x.iter_mut().zip(&gradient).zip(z) {
            let moved = *x - eta / 0.5 * g + deviation * z;
            *x = (moved / grid).round() * grid;
        }
    }
    for (found, expected) in first.iter().zip(&x) {
        assert!((found - expected).abs() < 1.5 * grid, "{first:?}, {x:?}");
    }
    let device = device(Keys { public, private });
    assert!(device.accepts(&order(&[1e6, -1e6])));
    for far in [&[1e14, 0.0], &[0.0, -1e300]] {
        assert!(!device.accepts(&order(far)), "{far:?}");
    }
}

/// Rounding by 4 levels of 16 parameters adds a sixth to the noise.
#[test]
fn rounding_is_part_of_the_noise() {
    let target = wide();
    let recipe = Uplink {
        private: Some(PrivateNoise { server_share: 0.4 }),
        ..Uplink::qlsd(STEP, Batch::Full, Compressor::qsgd(4))
    };
    let without = Recipe::Uplink(Uplink::lmc(STEP));
    let law = stationary(&without, &target).unwrap();
    let recipe = Recipe::Uplink(recipe);
    assert_eq!(stationary(&recipe, &target).unwrap().covariance, law.covariance);
    assert!((recipe.family().heat_of_rounding(16) - 1.0 / 6.0).abs() < 1e-15);
    let found = scores(&recipe, &target, &law, 300);
    println!("qsgd(4): {found:.2?} standard errors");
    assert!(found.iter().all(|z| z.abs() < 4.9), "{found:.2?}");
    // A tenth of the noise is a tenth of the variance: this notices 2%.
    for factor in [0.98, 1.02] {
        let covariance = law.covariance.iter().map(|v| factor * v).collect();
        let found = scores(&recipe, &target, &StationaryLaw { covariance, ..law.clone() }, 300);
        assert!(found[1].abs() > 4.9, "{found:.2?} standard errors from {factor}");
    }
}

/// What a client answers at one point, round after round, less what it would answer without noise:
/// on the scale of its gradient.
fn errors(recipe: &Recipe, target: &Target, client: u32, rounds: u64, scale: f64) -> Vec<f64> {
    let target = recipe.check(target.clone()).unwrap();
    let keys = Keys::simulation(Seed::new(5), 0);
    let x = vec![0.25; target.dim()];
    let site = target.clients[client as usize].rows();
    let mut gradient = vec![0.0; target.dim()];
    target.site(ClientId(client), site).gradient(&x, &mut gradient);
    let walks = matches!(recipe, Recipe::Local(_));
    let mut device = recipe.client(&target, ClientId(client), keys).unwrap();
    let mut errors = Vec::new();
    for round in 0..rounds {
        let task = if walks { Task::Walk { steps: 1 } } else { Task::Estimate };
        let order = Order {
            round,
            task,
            position: Some(Payload::Plain(&x, Precision::F64)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        };
        let reply = device.answer(&order);
        for ((value, x), g) in reply.payload.values().iter().zip(&x).zip(&gradient) {
            errors.push(if walks { (value - x) * scale - g } else { value - g });
        }
    }
    errors
}

#[test]
fn noise_is_as_accounted_for() {
    let target = gaussian(prior(2), Placement::Server, 0.7);
    let split = gaussian(prior(2), Placement::Split(vec![0.5, 0.3, 0.2]), 0.7);
    let coins = Participation::Bernoulli(vec![0.5, 0.9, 0.7]);
    let private = Some(PrivateNoise { server_share: 0.25 });
    let weights = vec![0.5, 0.3, 0.2];
    let local = Local {
        precision: Precision::F64,
        private: true,
        ..Local::fa_ld(Schedule::Constant(0.05), weights.clone(), 1, 0.6, Batch::Full)
    };
    let few = Local {
        average: Average::WithReplacement(2),
        noise: NoiseScale::Participants,
        synchronise: Synchronise::Every(3),
        correlation: 0.0,
        ..local.clone()
    };
    let precision = Precision::F64;
    let lmc = Uplink { private, precision, ..Uplink::lmc(STEP) };
    for (name, recipe, shared) in [
        ("all", Recipe::Uplink(lmc.clone()), 0.0),
        ("coins", Recipe::Uplink(Uplink { participation: coins, ..lmc }), 0.0),
        ("local", Recipe::Local(local), 0.6),
        ("two of three, local", Recipe::Local(few), 0.0),
    ] {
        let of_walks = matches!(recipe, Recipe::Local(_));
        let target = if of_walks { &split } else { &target };
        let claimed = recipe.family().own_noise(3, 2, 0.7).unwrap();
        for client in 0..3u32 {
            let p = weights[client as usize];
            let found = errors(&recipe, target, client, 20_000, -p / 0.05);
            let mean = found.iter().map(|e| e * e).sum::<f64>() / found.len() as f64;
            // What all share is on top, and counts for nothing: 2 eta T rho^2 (p/eta)^2.
            let shared = 2.0 * 0.05 * 0.7 * shared * shared * (p / 0.05) * (p / 0.05);
            let expected = claimed[client as usize].powi(2) + shared;
            let z = (mean / expected - 1.0) * (found.len() as f64 / 2.0).sqrt();
            println!("{name}, client {client}: {z:.2} standard errors");
            assert!(z.abs() < 4.9, "{name}, client {client}: {mean} is not {expected}");
        }
    }
}

/// Every row by a coin of its own: answers are right on average, nobody answers for rows as often
/// as all coins fall so, and the variance is `(1 - q)/q` times one number, whatever `q` is.
#[test]
fn rows_that_are_drawn_one_by_one_stand_for_all() {
    let target = linear(prior(2), Placement::Server, 1.0);
    let (rows, rounds) = (target.clients[1].rows(), 40_000);
    let mut spreads = Vec::new();
    for q in [0.1, 0.4] {
        let each = Uplink::sgld(STEP, Batch::Each(q));
        let recipe = Recipe::Uplink(Uplink { precision: Precision::F64, ..each });
        let found = errors(&recipe, &target, 1, rounds, 1.0);
        let n = rounds as f64;
        let mut spread = 0.0;
        for k in 0..2 {
            let one = || found.iter().skip(k).step_by(2);
            let mean = one().sum::<f64>() / n;
            let variance = one().map(|e| (e - mean).powi(2)).sum::<f64>() / n;
            let z = mean / (variance / n).sqrt();
            assert!(z.abs() < 4.9, "{q}: {z:.2} standard errors");
            spread += variance * q / (1.0 - q);
        }
        spreads.push(spread);
        // answers of no rows are all off by the same: the gradient of all
        let gradient = {
            let mut gradient = vec![0.0; 2];
            target.site(ClientId(1), rows).gradient(&[0.25, 0.25], &mut gradient);
            gradient
        };
        let of_none = |e: &[f64]| e.iter().zip(&gradient).all(|(e, g)| *e == -g);
        let none = found.chunks(2).filter(|e| of_none(e)).count() as f64 / n;
        let expected = (1.0 - q).powi(rows as i32);
        let z = (none - expected) / (expected * (1.0 - expected) / n).sqrt();
        println!("{q}: {none:.4} of the answers are of no rows, {expected:.4} expected, {z:.2}");
        assert!(z.abs() < 4.9, "{q}: {none} for {expected}");
    }
    assert!((spreads[0] / spreads[1] - 1.0).abs() < 0.05, "{spreads:?}");
}

/// How many rows an answer took is sent with it: as many as are expected, whatever the coins chose,
/// which what is accounted for does not tell.
#[test]
fn how_many_rows_coins_choose_is_not_counted() {
    let target = linear(prior(2), Placement::Server, 1.0);
    let recipe = Recipe::Uplink(Uplink::sgld(STEP, Batch::Each(0.3)));
    let target = recipe.check(target).unwrap();
    let keys = Keys::simulation(Seed::new(5), 0);
    let mut device = recipe.client(&target, ClientId(1), keys).unwrap();
    for round in 0..50 {
        let order = Order {
            round,
            task: Task::Estimate,
            position: Some(Payload::Plain(&[0.25, 0.25], Precision::F32)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        };
        device.answer(&order);
        assert_eq!(device.rows_evaluated(), 3 * (round + 1), "0.3 of 9 rows, rounded");
    }
}

/// Control variates and walks are those of minibatches of one size.
#[test]
fn rows_are_drawn_one_by_one_for_plain_gradients_alone() {
    let target = linear(prior(2), Placement::Server, 1.0);
    for row in REGISTRY {
        let settings = Settings { batch: Some(Batch::Each(0.3)), ..Settings::default() };
        let optimum = row.needs_optimum.then(|| anchor(&target, vec![0.0; 2]));
        let takes = row.axes.contains(&Axis::Batch);
        let recipe = row.recipe(STEP, &settings, 3, 2, optimum);
        let checked = recipe.check(target.clone());
        let plain = ["sgld", "qlsd", "qlsd#"].contains(&row.name);
        if takes {
            assert_eq!(checked.is_ok(), plain, "{}: {:?}", row.name, checked.err());
        }
        if plain {
            assert!(recipe.family().law(&target).is_err(), "{}: no law is known", row.name);
        }
    }
}

/// Where rounding adds more than the server has left to draw, a chain says how much hotter it is;
/// where that goes on beyond a limit it gives no draws.
#[test]
fn heat_of_rounding_is_told_and_refused_beyond_its_limit() {
    let target = wide();
    let run = |most_heat: Option<f64>, server_share: f64| {
        let recipe = Recipe::Uplink(Uplink {
            private: Some(PrivateNoise { server_share }),
            most_heat,
            ..Uplink::qlsd(STEP, Batch::Full, Compressor::qsgd(4))
        });
        assert_eq!(recipe.family().numbers(), [HEAT]);
        let target = recipe.check(target.clone()).unwrap();
        let keys = Keys::simulation(Seed::new(8), 0);
        let mut server = recipe.server(&target, &[0.0; 16], keys).unwrap();
        let mut clients = recipe.clients(&Arc::new(target), keys).unwrap();
        let (mut ledger, mut heat) = (Ledger::new(3), 0.0);
        for round in 0..1000 {
            if exchange(&mut *server, &mut clients, &mut ledger) == Event::Diverged {
                return Err((round, server.refusal().unwrap()));
            }
            heat += server.numbers()[0] / 1000.0;
        }
        Ok(heat)
    };
    // d / (6 S^2) of the noise, and as much of the gradients, which are small beside it
    let heat = run(None, 0.0).unwrap();
    assert!((1.0 / 6.0..0.25).contains(&heat), "{heat}");
    assert_eq!(run(None, 0.4), Ok(0.0), "there is room for all of it");
    let (round, why) = run(Some(0.05), 0.0).unwrap_err();
    assert_eq!(round, 399, "the first block is not judged");
    assert!(why.contains("hotter by ") && why.contains("privacy.hot = true"), "{why}");
    assert_eq!(run(Some(0.5), 0.0), Ok(heat));
}

/// What leaves is on a grid of the noise's own, whatever the rows are, and comes from the client's
/// private key.
#[test]
fn answers_are_snapped_and_their_noise_is_private() {
    let target = gaussian(prior(2), Placement::Server, 0.7);
    let private = Some(PrivateNoise { server_share: 0.0 });
    let precision = Precision::F64;
    let recipe = Recipe::Uplink(Uplink { private, precision, ..Uplink::lmc(STEP) });
    let deviation = recipe.family().own_noise(3, 2, 0.7).unwrap()[0];
    let x = [0.25, 0.125];
    let answer = |keys: Keys| {
        let mut device = recipe.client(&target, ClientId(0), keys).unwrap();
        let order = Order {
            round: 3,
            task: Task::Estimate,
            position: Some(Payload::Plain(&x, precision)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        };
        device.answer(&order).payload.values().to_vec()
    };
    let (public, private) = (Seed::new(1), Seed::new(2));
    let first = answer(Keys { public, private });
    for value in &first {
        let grid = 2f64.powi(deviation.log2().floor() as i32 - 10);
        assert_eq!((value / grid).fract(), 0.0, "{value} is not a multiple of {grid}");
    }
    assert_eq!(first, answer(Keys { public: Seed::new(9), private }));
    assert_ne!(first, answer(Keys { public, private: Seed::new(9) }));
}

/// A sum that is so large that noise would fall below its last bits says that it is large, and no
/// more.
#[test]
fn a_sum_beyond_all_noise_is_cut_off() {
    let split = gaussian(prior(2), Placement::Split(vec![0.5, 0.3, 0.2]), 0.7);
    let private = Some(PrivateNoise { server_share: 0.0 });
    let precision = Precision::F64;
    let recipe = Recipe::Uplink(Uplink { private, precision, ..Uplink::lmc(STEP) });
    let deviation = recipe.family().own_noise(3, 2, 0.7).unwrap()[0];
    let most = deviation * 2f64.powi(45 - 10);
    let keys = Keys::simulation(Seed::new(5), 0);
    let mut device = recipe.client(&split, ClientId(0), keys).unwrap();
    let x = [1e30, -1e25];
    let order = Order {
        round: 3,
        task: Task::Estimate,
        position: Some(Payload::Plain(&x, precision)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    let answer = device.answer(&order).payload.values().to_vec();
    for value in answer {
        assert!((0.4 * most..1.01 * most).contains(&value.abs()), "{value} of {most}");
    }
}

#[test]
fn samplers_that_answer_with_exact_functions_of_rows_are_refused() {
    let target = linear(prior(2), Placement::Server, 1.0);
    let mut kept = Vec::new();
    for row in REGISTRY {
        let settings = Settings::default();
        let optimum = row.needs_optimum.then(|| anchor(&target, vec![0.0; 2]));
        let recipe = row.recipe(STEP, &settings, 3, 2, optimum);
        match recipe.family().own_noise(3, 2, 1.0) {
            Ok(noise) => {
                assert!(noise.iter().all(|s| *s > 0.0), "{}: {noise:?}", row.name);
                kept.push(row.name);
            }
            Err(DataError::NotPrivate { why, instead }) => {
                assert!(!why.is_empty() && !instead.is_empty());
            }
            Err(other) => panic!("{}: {other}", row.name),
        }
    }
    assert_eq!(kept, ["lmc", "sgld", "qlsd", "qlsd#", "p-elf", "fald", "fa-ld", "dg-lmc"]);

    let refused = |recipe: Uplink| {
        let private = Some(PrivateNoise { server_share: 0.1 });
        let recipe = Recipe::Uplink(Uplink { private, ..recipe });
        let error = recipe.check(target.clone()).unwrap_err();
        assert!(matches!(error, DataError::NotPrivate { .. }), "{error}");
        error.to_string()
    };
    let decreasing = Schedule::Decreasing { smoothness: 2.0, convexity: 1.0 };
    assert!(refused(Uplink::lmc(decreasing)).contains("constant step"));
    let rand_k = Uplink::qlsd(STEP, Batch::Full, Compressor::rand_k(1));
    assert!(refused(rand_k).contains("qsgd"));
    let coarse = Uplink::qlsd(STEP, Batch::Full, Compressor::qsgd(1));
    assert!(refused(coarse).contains("wider than the noise"));
    let elastic = Participation::Elastic(vec![0.5; 3]);
    assert!(refused(Uplink { participation: elastic, ..Uplink::lmc(STEP) }).contains("noise"));
    let ratio = Uplink {
        participation: Participation::Bernoulli(vec![0.5; 3]),
        weighting: Weighting::Ratio,
        ..Uplink::lmc(STEP)
    };
    assert!(refused(ratio).contains("fixed number"));
}

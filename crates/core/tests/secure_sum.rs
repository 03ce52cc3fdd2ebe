//! Secure sums: the chain has the law that it has without, the server sees the sum to the last bit
//! and nothing else, and what could be told from two answers of one client is nothing.
//!
//! Each comparison fails by chance once in a million (|z| < 4.9); seeds are fixed.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and shows its scores

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::Compressor;
use consilience_core::error::DataError;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::privacy::{SecureSum, nearest};
use consilience_core::protocol::{
    Answered, Client, Device, Direction, Event, Kind, Limits, Masks, Order, OrderRefusal, Output,
    Payload, Precision, ReferencePoint, Server, Statement, Task, encode_order, wire,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::exact::{StationaryLaw, stationary};
use consilience_core::sampler::{
    Average, Batch, Keys, Local, Participation, Recipe, Synchronise, Uplink,
};
use consilience_core::snapshot::{restore, save};
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

fn secure(resolution: f64) -> Recipe {
    let sum = SecureSum { row_gradient: 30.0, resolution };
    Recipe::Uplink(Uplink { secure: Some(sum), ..Uplink::lmc(STEP) })
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

/// With the coarsest levels that are allowed rounding is a 24th of the noise at most; here it is
/// 3%, and 2% would be noticed.
#[test]
fn the_law_of_the_chain_is_that_without() {
    let target = wide();
    let law = stationary(&Recipe::Uplink(Uplink::lmc(STEP)), &target).unwrap();
    let recipe = secure(4.0);
    assert_eq!(stationary(&recipe, &target).unwrap().covariance, law.covariance);
    let found = scores(&recipe, &target, &law, 300);
    println!("levels: {found:.2?} standard errors");
    assert!(found.iter().all(|z| z.abs() < 4.9), "{found:.2?}");
    for factor in [0.98, 1.02] {
        let covariance = law.covariance.iter().map(|v| factor * v).collect();
        let found = scores(&recipe, &target, &StationaryLaw { covariance, ..law.clone() }, 300);
        assert!(found[1].abs() > 4.9, "{found:.2?} standard errors from {factor}");
    }
}

#[test]
fn walks_of_one_step_are_the_same_sum() {
    let sum = SecureSum::new(30.0, 3);
    let target = gaussian(prior(2), Placement::Split(vec![0.5, 0.3, 0.2]), 0.7);
    let walk = Local::fa_ld(STEP, vec![0.5, 0.3, 0.2], 1, 0.6, Batch::Full);
    let law = stationary(&Recipe::Local(walk.clone()), &target).unwrap();
    let recipe = Recipe::Local(walk.clone()).family().with_secure_sum(sum).unwrap();
    let found = scores(&recipe, &target, &law, 300);
    println!("fa-ld of one step: {found:.2?} standard errors");
    assert!(found.iter().all(|z| z.abs() < 4.9), "{found:.2?}");
    let fald = Local { synchronise: Synchronise::Randomly(1.0), ..walk.clone() };
    assert_eq!(Recipe::Local(fald).family().with_secure_sum(sum).unwrap(), recipe);

    let refused = |local: Local| {
        let error = Recipe::Local(local).family().with_secure_sum(sum).unwrap_err();
        assert!(matches!(error, DataError::NotPrivate { .. }), "{error}");
        error.to_string()
    };
    let two = Local { synchronise: Synchronise::Every(2), ..walk.clone() };
    assert!(refused(two).contains("one local step a round"));
    assert!(
        refused(Local { average: Average::WithReplacement(2), ..walk.clone() }).contains("all")
    );
    assert!(refused(Local { tether: Some(1.0), ..walk.clone() }).contains("tied"));
    assert!(refused(Local { refresh: Some(0.5), ..walk }).contains("control variates"));
}

#[test]
fn what_needs_more_than_a_sum_is_refused() {
    let target = linear(prior(2), Placement::Server, 1.0);
    let sum = SecureSum::new(3.0, 3);
    let refused = |recipe: Uplink| {
        let recipe = Recipe::Uplink(Uplink { secure: Some(sum), ..recipe });
        let error = recipe.check(target.clone()).unwrap_err();
        assert!(matches!(error, DataError::NotPrivate { .. }), "{error}");
        error.to_string()
    };
    let memory = Uplink { memory_rate: Some(0.1), ..Uplink::lmc(STEP) };
    assert!(refused(memory).contains("memory"));
    assert!(refused(Uplink::sgld(STEP, Batch::Rows(3))).contains("minibatches"));
    let qlsd = Uplink::qlsd(STEP, Batch::Full, Compressor::qsgd(16));
    assert!(refused(qlsd).contains("levels of its own"));
    for participation in [
        Participation::Fixed(2),
        Participation::Bernoulli(vec![0.5; 3]),
        Participation::Elastic(vec![0.5; 3]),
    ] {
        let who = refused(Uplink { participation, ..Uplink::lmc(STEP) });
        assert!(who.contains("cohorts") || who.contains("known only when all"), "{who}");
    }
    let tiny = Recipe::Uplink(Uplink { secure: Some(SecureSum::new(1e9, 3)), ..Uplink::lmc(STEP) });
    assert!(tiny.check(target.clone()).unwrap_err().to_string().contains("bits"));
    let alone = Target { clients: target.clients[..1].to_vec(), ..target.clone() };
    let recipe = Recipe::Uplink(Uplink { secure: Some(sum), ..Uplink::lmc(STEP) });
    assert!(recipe.check(alone).unwrap_err().to_string().contains("one client"));
    // A prior that clients would share goes to the server: its gradient has no bound.
    let split = Target { placement: Placement::Split(vec![0.2, 0.3, 0.5]), ..target };
    assert_eq!(recipe.check(split).unwrap().placement, Placement::Server);
}

/// The secrets of a client with all others: in a network X25519 makes them.
fn masks(own: u32, clients: u32, run: &[u8], chain: u32) -> Masks {
    let secret = |with: u32| {
        let mut bytes = [5; 32];
        (bytes[0], bytes[1]) = (own.min(with) as u8, own.max(with) as u8);
        (ClientId(with), bytes)
    };
    let shared: Vec<_> = (0..clients).filter(|i| *i != own).map(secret).collect();
    Masks::new(ClientId(own), &shared, run, chain).unwrap()
}

fn party(recipe: &Recipe, target: &Target, id: u32) -> Client<Box<dyn Device>> {
    let keys = Keys::simulation(Seed::new(31), 0);
    let device = recipe.client(target, ClientId(id), keys).unwrap();
    let format = recipe.format(target, keys).unwrap();
    Client::new(device, format).masked(masks(id, target.clients.len() as u32, b"run", 0))
}

/// Over bytes and behind masks it is the chain of one process, bit for bit, and as many bytes are
/// sent as are counted.
#[test]
fn masked_chains_have_the_bits_of_one_process() {
    let (target, recipe) = (wide(), secure(64.0));
    let target = recipe.check(target).unwrap();
    let from = vec![0.1; 16];
    let mut chain = start(&recipe, &target, &from, 31, 0);
    let keys = Keys::simulation(Seed::new(31), 0);
    let format = recipe.format(&target, keys).unwrap();
    let bits = format.levels.unwrap();
    assert!((9..14).contains(&bits), "{bits}");
    let machine = recipe.server(&target, &from, keys).unwrap();
    let statement = Statement::new([("run", "secure".to_owned())]);
    let mut server = Server::new(machine, statement, 3, format).limited(Limits::new(1e-3));
    let mut parties: Vec<_> = (0..3).map(|i| party(&recipe, &target, i)).collect();
    let mut bytes_up = 0;
    for _ in 0..50 {
        loop {
            match server.poll().unwrap() {
                Output::Happened(Event::Draw) => break,
                Output::Happened(other) => panic!("{other:?}"),
                Output::Send { to, bytes } => {
                    let mut answer = Vec::new();
                    parties[to.index()].handle(&bytes, &mut answer).unwrap();
                    bytes_up += answer.len();
                    server.handle(to, &answer).unwrap();
                }
            }
        }
        assert_eq!(server.machine().position(), chain.draw());
    }
    let counted = server.ledger().total(Direction::Up);
    assert_eq!(counted, 8 * bytes_up as u64);
    assert_eq!(server.ledger(), &chain.ledger);
    let levels = server.ledger().bits(Direction::Up, Kind::Gradient);
    assert_eq!(levels, 50 * 3 * u64::from(16 * bits).div_ceil(8) * 8);
}

fn order(round: u64, x: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let order = Order {
        round,
        task: Task::Estimate,
        position: Some(Payload::Plain(x, Precision::F32)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    encode_order(&order, &mut bytes);
    bytes
}

/// What a party sends at one point in so many rounds, level by level.
fn sent(recipe: &Recipe, target: &Target, id: u32, rounds: u64) -> Vec<f64> {
    let mut party = party(recipe, target, id);
    let format = recipe.format(target, Keys::simulation(Seed::new(31), 0)).unwrap();
    let mut all = Vec::new();
    for round in 0..rounds {
        let mut answer = Vec::new();
        party.handle(&order(round, &[0.25; 16]), &mut answer).unwrap();
        let mut buffer = wire::ReplyBuffer::default();
        let reply = buffer.decode(&answer, Task::Estimate, &format, ClientId(id)).unwrap();
        all.extend_from_slice(reply.payload.values());
    }
    all
}

/// By how many standard errors numbers are not uniform below `2^bits`, by chi-square in 64 bins.
fn not_uniform(numbers: impl Iterator<Item = f64>, bits: u32) -> f64 {
    let mut counts = [0.0; 64];
    let mut n = 0.0;
    let modulus = f64::from(bits).exp2();
    for number in numbers {
        counts[(number.rem_euclid(modulus) / modulus * 64.0) as usize] += 1.0;
        n += 1.0;
    }
    let chi: f64 = counts.iter().map(|count| (count - n / 64.0f64).powi(2) / (n / 64.0)).sum();
    // By Wilson and Hilferty, with 63 degrees of freedom.
    ((chi / 63.0).cbrt() - 1.0 + 2.0 / 567.0) / (2.0f64 / 567.0).sqrt()
}

#[test]
fn the_server_sees_the_sum_and_nothing_else() {
    let recipe = secure(64.0);
    let target = recipe.check(wide()).unwrap();
    let keys = Keys::simulation(Seed::new(31), 0);
    let bits = recipe.format(&target, keys).unwrap().levels.unwrap();
    let (rounds, d) = (2000, 16);
    let all: Vec<Vec<f64>> = (0..3).map(|id| sent(&recipe, &target, id, rounds)).collect();
    // The sum is that of the levels, to the last bit.
    let mut devices: Vec<_> =
        (0..3).map(|i| recipe.client(&target, ClientId(i), keys).unwrap()).collect();
    for round in 0..rounds {
        let mut sum = vec![0.0; d];
        for device in &mut devices {
            let order = Order {
                round,
                task: Task::Estimate,
                position: Some(Payload::Plain(&[0.25; 16], Precision::F32)),
                reference: ReferencePoint::Keep,
                control: None,
                numbers: &[],
            };
            let reply = device.answer(&order);
            sum.iter_mut().zip(reply.payload.values()).for_each(|(s, v)| *s += v);
        }
        for k in 0..d {
            let at = round as usize * d + k;
            let masked: f64 = all.iter().map(|one| one[at]).sum();
            assert_eq!(nearest(masked, bits), nearest(sum[k], bits));
        }
    }
    // A single message, the difference of two of one client, and the sum of all but one are
    // uniform.
    for id in 0..3 {
        let one = &all[id];
        let next = one.iter().zip(&one[d..]).map(|(a, b)| b - a);
        let others = (0..one.len())
            .map(|at| all.iter().enumerate().filter(|(i, _)| *i != id).map(|(_, v)| v[at]).sum());
        for (what, z) in [
            ("a message", not_uniform(one.iter().copied(), bits)),
            ("the difference of two rounds", not_uniform(next, bits)),
            ("the sum of the others", not_uniform(others, bits)),
        ] {
            println!("client {id}, {what}: {z:.2}");
            assert!(z.abs() < 4.9, "client {id}, {what}: {z}");
        }
    }
    // The sum itself is not: the test can tell.
    let sums = (0..all[0].len()).map(|at| all.iter().map(|one| one[at]).sum());
    assert!(not_uniform(sums, bits) > 20.0);
}

/// Levels before they are masked: their noise comes from the client's private key.
#[test]
fn noise_of_levels_is_private() {
    let recipe = secure(64.0);
    let target = recipe.check(wide()).unwrap();
    let levels = |public: u64, private: u64| {
        let keys = Keys { public: Seed::new(public), private: Seed::new(private) };
        let mut device = recipe.client(&target, ClientId(0), keys).unwrap();
        let order = Order {
            round: 3,
            task: Task::Estimate,
            position: Some(Payload::Plain(&[0.25; 16], Precision::F32)),
            reference: ReferencePoint::Keep,
            control: None,
            numbers: &[],
        };
        device.answer(&order).payload.values().to_vec()
    };
    assert_eq!(levels(1, 2), levels(9, 2));
    assert_ne!(levels(1, 2), levels(1, 9));
}

/// A round without one client has no sum and does not end.
#[test]
fn a_round_waits_for_everybody() {
    let recipe = secure(64.0);
    let target = recipe.check(wide()).unwrap();
    let keys = Keys::simulation(Seed::new(31), 0);
    let machine = recipe.server(&target, &[0.1; 16], keys).unwrap();
    let statement = Statement::new([("run", "secure".to_owned())]);
    let mut server = Server::new(machine, statement, 3, recipe.format(&target, keys).unwrap());
    while let Some(Output::Send { to, bytes }) = server.poll() {
        if to != ClientId(1) {
            let mut answer = Vec::new();
            party(&recipe, &target, to.0).handle(&bytes, &mut answer).unwrap();
            server.handle(to, &answer).unwrap();
        }
    }
    assert_eq!(server.outstanding().collect::<Vec<_>>(), [ClientId(1)]);
    assert_eq!(server.close(), None, "it cannot be closed without it");
    assert_eq!(server.poll(), None);
    assert_eq!(server.machine().iteration(), 0);
}

/// Masks come with the round, and a client answers one order a round: also after it was restored.
#[test]
fn masks_are_never_used_twice() {
    let recipe = secure(64.0);
    let target = recipe.check(wide()).unwrap();
    let mut client = party(&recipe, &target, 0);
    let mut answers = Vec::new();
    for round in 0..20 {
        let mut answer = Vec::new();
        client.handle(&order(round, &[0.25; 16]), &mut answer).unwrap();
        let state = save(&mut client);
        client = party(&recipe, &target, 0);
        restore(&mut client, &state).unwrap();
        let mut again = Vec::new();
        assert_eq!(client.handle(&order(round, &[0.25; 16]), &mut again), Ok(Answered::Again));
        assert_eq!(again, answer);
        let other = client.handle(&order(round, &[0.5; 16]), &mut again);
        assert_eq!(other, Err(OrderRefusal::Changed { round }));
        answers.push(answer[2..].to_vec());
    }
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), 20);
    // A client that may have answered does not answer again.
    client.spend(40);
    let mut out = Vec::new();
    let used = client.handle(&order(30, &[0.25; 16]), &mut out);
    assert_eq!(used, Err(OrderRefusal::Used { found: 30, used: 40 }));
    // Nothing leaves without a mask.
    let keys = Keys::simulation(Seed::new(31), 0);
    let device = recipe.client(&target, ClientId(0), keys).unwrap();
    let mut bare = Client::new(device, recipe.format(&target, keys).unwrap());
    assert_eq!(bare.handle(&order(0, &[0.25; 16]), &mut out), Err(OrderRefusal::Unmasked));
    assert!(out.is_empty());
}

//! The penalty method: draws have the law of the posterior whatever the noise, without noise it is
//! the plain Metropolis algorithm, and its noise is the client's own.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::error::DataError;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::protocol::{
    Answered, Client, Format, Order, OrderRefusal, Payload, Precision, ReferencePoint, Task,
    encode_order,
};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::{Keys, Penalty, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

fn recipe(step: f64, noise: f64) -> Recipe {
    Recipe::Penalty(Penalty::new(step, noise))
}

/// Means and variances of long chains against the exact ones, in standard errors of batch means:
/// a score beyond 4.9 happens once in a million.
fn has_the_law(name: &str, recipe: &Recipe, target: &Target, draws: usize) {
    let law = posterior(target).unwrap();
    let d = target.dim();
    let mut chain = start(recipe, target, &law.mean, 7, 0);
    let batches = 100;
    let (mut sums, mut squares) = (vec![vec![0.0; batches]; d], vec![vec![0.0; batches]; d]);
    let length = draws / batches;
    for batch in 0..batches {
        for _ in 0..length {
            for (k, x) in chain.draw().iter().enumerate() {
                let off = x - law.mean[k];
                sums[k][batch] += off / length as f64;
                squares[k][batch] += off * off / length as f64;
            }
        }
    }
    let score = |means: &[f64], expected: f64| {
        let n = means.len() as f64;
        let mean = means.iter().sum::<f64>() / n;
        let spread = means.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / (n - 1.0);
        ((mean - expected) / (spread / n).sqrt(), mean)
    };
    for k in 0..d {
        let (z, _) = score(&sums[k], 0.0);
        assert!(z.abs() < 4.9, "{name}: the mean of {k} is off by {z:.1} standard errors");
        let (z, found) = score(&squares[k], law.covariance[k * d + k]);
        let right = law.covariance[k * d + k];
        assert!(z.abs() < 4.9, "{name}: variance {found} for {right}: {z:.1} standard errors");
        // power: the law without the penalty has a variance of twice as much in the example
        let (far, _) = score(&squares[k], 1.2 * right);
        assert!(far.abs() > 4.9, "{name}: a variance of 1.2 times as much would pass, {far:.1}");
    }
}

/// The example of Ceperley and Dewing's method: N(1.3, 2.25), with noise as large in all as the
/// proposal is far. Without the penalty the variance would be 4.80.
#[test]
fn draws_have_the_law_of_the_posterior_whatever_the_noise() {
    let site = |mean: f64, precision: f64| -> Arc<dyn Model> {
        Arc::new(Gaussian::new(vec![mean], vec![precision]).unwrap())
    };
    let third = 1.0 / (3.0 * 2.25);
    let sites = vec![site(1.0, third), site(1.3, third), site(1.6, third)];
    let target = Target::new(sites, Prior::Flat, Placement::Server, 1.0).unwrap();
    has_the_law("the example", &recipe(1.5, 1.0 / 3f64.sqrt()), &target, 400_000);
    // Lopsided sites in two parameters, at another temperature, with a prior that clients share.
    let prior = Prior::gaussian(2.0, 2).unwrap();
    let split = Placement::Split(vec![0.2, 0.3, 0.5]);
    for (name, placement) in [("server", Placement::Server), ("split", split)] {
        let target = gaussian(prior.clone(), placement, 0.7);
        has_the_law(name, &recipe(0.5, 0.9), &target, 300_000);
    }
}

/// The same chain by hand: one potential, one coin, no noise.
#[test]
fn without_noise_it_is_the_metropolis_algorithm() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.3);
    let (step, seed) = (0.2, Keys::simulation(Seed::new(1), 0).public);
    let (mut x, mut z, mut expected) = (vec![0.3, 0.3], vec![0.0; 2], Vec::new());
    let mut accepted = 0;
    for k in 0..2000 {
        seed.stream(Purpose::Proposal, SERVER, k).normals(&mut z);
        let next: Vec<f64> = x.iter().zip(&z).map(|(x, z)| x + step * z).collect();
        let log = (target.value(&x) - target.value(&next)) / target.temperature;
        if seed.stream(Purpose::Accept, SERVER, k).uniform() < log.exp() {
            x = next;
            accepted += 1;
        }
        expected.push(x.clone());
    }
    assert!(run(&recipe(step, 0.0), &target, 2000) == expected);
    assert!((200..1800).contains(&accepted), "{accepted}");
}

/// Whoever has the rows: three clients, or one with all of them.
#[test]
fn without_noise_it_does_not_matter_who_has_the_rows() {
    let prior = || Prior::gaussian(2.0, 2).unwrap();
    let target = gaussian(prior(), Placement::Server, 1.0);
    let whole = posterior(&gaussian(Prior::Flat, Placement::Server, 1.0)).unwrap();
    let pooled = Gaussian::from_covariance(whole.mean, &whole.covariance).unwrap();
    let pooled = Target::new(vec![Arc::new(pooled)], prior(), Placement::Server, 1.0).unwrap();
    assert!(run(&recipe(0.5, 0.0), &target, 3000) == run(&recipe(0.5, 0.0), &pooled, 3000));
}

fn order(round: u64, accepted: bool, start: Option<&[f64]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let position = start.map(|start| Payload::Plain(start, Precision::F64));
    let (task, reference) = (Task::Propose { accepted }, ReferencePoint::Keep);
    encode_order(
        &Order { round, task, position, reference, control: None, numbers: &[] },
        &mut bytes,
    );
    bytes
}

fn client(noise: f64, private: u64) -> Client<Box<dyn consilience_core::protocol::Device>> {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    let recipe = recipe(0.2, noise);
    let target = recipe.check(target).unwrap();
    let keys = Keys { public: Seed::new(1), private: Seed::new(private) };
    let format: Format = recipe.format(&target, keys).unwrap();
    Client::new(recipe.client(&target, ClientId(1), keys).unwrap(), format)
}

/// What a client says of proposals that are never accepted, as numbers.
fn said(client: &mut Client<Box<dyn consilience_core::protocol::Device>>, rounds: u64) -> Vec<f64> {
    let of = |round: u64| {
        let start = (round == 0).then_some(&[0.3, 0.3][..]);
        let mut answer = Vec::new();
        client.handle(&order(round, false, start), &mut answer).unwrap();
        f64::from_le_bytes(answer[answer.len() - 8..].try_into().unwrap())
    };
    (0..rounds).map(of).collect()
}

/// The noise is fresh, of the client's own key, and its deviation is `s` times the distance: the
/// sum of squares of 2000 normals is within 4.9 deviations of what it should be.
#[test]
fn a_client_adds_noise_of_its_own_as_large_as_the_proposal_is_far() {
    let (noise, rounds) = (0.8, 2000);
    let exact = said(&mut client(0.0, 2), rounds);
    let noisy = said(&mut client(noise, 2), rounds);
    let seed = Seed::new(1);
    let mut normals = Vec::new();
    for (round, (exact, noisy)) in exact.iter().zip(&noisy).enumerate() {
        let mut z = vec![0.0; 2];
        seed.stream(Purpose::Proposal, SERVER, round as u64).normals(&mut z);
        let distance = 0.2 * z.iter().map(|z| z * z).sum::<f64>().sqrt();
        normals.push((noisy - exact) / (noise * distance));
    }
    let n = rounds as f64;
    let (mean, square) =
        (normals.iter().sum::<f64>() / n, normals.iter().map(|x| x * x).sum::<f64>() / n);
    assert!(mean.abs() < 4.9 / n.sqrt(), "{mean}");
    assert!((square - 1.0).abs() < 4.9 * (2.0 / n).sqrt(), "{square}");
    let product: f64 = normals.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / n;
    assert!(product.abs() < 4.9 / n.sqrt(), "one after the other: {product}");
    assert_ne!(noisy, said(&mut client(noise, 3), rounds), "its own key");
    assert_eq!(exact, said(&mut client(0.0, 3), rounds), "and nothing else of it");
}

/// Clients answer at the points of the chain alone, as often as they may, and the same again.
#[test]
fn a_server_cannot_choose_where_it_asks_or_how_often() {
    let mut site = client(0.5, 2).allowed(3);
    let mut answer = Vec::new();
    let unfit = |refusal| matches!(refusal, OrderRefusal::Unfit { .. });
    assert!(unfit(site.handle(&order(0, false, None), &mut answer).unwrap_err()), "no start");
    site.handle(&order(0, false, Some(&[0.3, 0.3])), &mut answer).unwrap();
    let elsewhere = order(1, false, Some(&[9.0, 9.0]));
    assert!(unfit(site.handle(&elsewhere, &mut answer).unwrap_err()), "a second start");
    site.handle(&order(1, true, None), &mut answer).unwrap();
    assert_eq!(site.handle(&order(1, true, None), &mut answer), Ok(Answered::Again));
    assert_eq!(
        site.handle(&order(1, false, None), &mut answer),
        Err(OrderRefusal::Changed { round: 1 }),
        "both answers would tell the difference without noise"
    );
    site.handle(&order(2, false, None), &mut answer).unwrap();
    assert_eq!(
        site.handle(&order(3, false, None), &mut answer),
        Err(OrderRefusal::Spent { asked: 1, told: 3, most: 3 })
    );
    assert_eq!(site.told(), Some(3));
}

#[test]
fn what_it_cannot_do_is_refused() {
    let target = || linear(Prior::Flat, Placement::Server, 1.0);
    for (recipe, word) in [
        (recipe(0.0, 1.0), "the step"),
        (recipe(0.1, -1.0), "potential_noise"),
        (recipe(0.1, f64::NAN), "potential_noise"),
        (
            Recipe::Penalty(Penalty {
                step: Schedule::Decreasing { smoothness: 2.0, convexity: 1.0 },
                noise: 0.0,
            }),
            "decreases",
        ),
    ] {
        let refused = recipe.check(target()).unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
    let silent = recipe(0.1, 0.0).family().own_noise(3, 2, 1.0).unwrap_err();
    assert!(matches!(silent, DataError::NotPrivate { .. }), "{silent}");
    assert_eq!(recipe(0.1, 2.0).family().own_noise(3, 2, 1.5).unwrap(), [3.0; 3]);
}

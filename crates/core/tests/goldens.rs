//! Every sampler's chain, as a digest: the same on every run, build profile and machine, by direct
//! calls and over bytes. When a change of the numbers is meant, run with `BLESS=1` and say so in
//! the changelog.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::model::Prior;
use consilience_core::protocol::{Client, Event, Output, Server, Statement};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::registry::{Axis, REGISTRY, Settings};
use consilience_core::sampler::{Batch, Keys, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const DRAWS: usize = 100;

/// FNV-1a over the bits of the numbers.
fn digest(numbers: impl IntoIterator<Item = f64>) -> String {
    let bytes = numbers.into_iter().flat_map(|x| x.to_bits().to_le_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn over_bytes(recipe: &Recipe, target: &Target, from: &[f64]) -> Vec<Vec<f64>> {
    let keys = Keys::simulation(Seed::new(1), 0);
    let target = recipe.check(target.clone()).unwrap();
    let format = recipe.format(&target, keys).unwrap();
    let statement = Statement::new([("golden", "yes")]);
    let mut server = Server::new(
        recipe.server(&target, from, keys).unwrap(),
        statement,
        target.clients.len(),
        format.clone(),
    );
    let client =
        |i| Client::new(recipe.client(&target, ClientId(i), keys).unwrap(), format.clone());
    let mut clients: Vec<_> = (0..target.clients.len() as u32).map(client).collect();
    let mut draws = Vec::new();
    let mut inbox = Vec::new();
    while draws.len() < DRAWS {
        match server.poll() {
            Some(Output::Send { to, bytes }) => {
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                inbox.push((to, answer));
            }
            Some(Output::Happened(Event::Draw)) => draws.push(server.machine().position().to_vec()),
            Some(Output::Happened(event)) => assert_eq!(event, Event::Nothing),
            None => {
                // the last first: the order does not matter
                let (from, bytes) = inbox.pop().unwrap();
                server.handle(from, &bytes).unwrap();
            }
        }
    }
    draws
}

#[test]
fn chains_are_what_they_were() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    let mut z = vec![0.0; 1000];
    Seed::new(1).stream(Purpose::Noise, SERVER, 3).normals(&mut z);
    let mut lines = vec![format!("normals {}", digest(z))];
    for row in REGISTRY {
        let has = |axis| row.axes.contains(&axis);
        let settings =
            Settings { batch: has(Axis::Batch).then_some(Batch::Rows(3)), ..Settings::default() };
        let optimum = row.needs_optimum.then(|| {
            anchor(
                &target,
                posterior(&target).unwrap().mean.iter().map(|x| f64::from(*x as f32)).collect(),
            )
        });
        let recipe = row.recipe(Schedule::Constant(0.003), &settings, 3, 2, optimum);
        let direct = run(&recipe, &target, DRAWS);
        assert!(
            direct == over_bytes(&recipe, &target, &[0.3, 0.3]),
            "{}: bytes carry another chain",
            row.name
        );
        lines.push(format!("{} {}", row.name, digest(direct.into_iter().flatten())));
    }
    let found = lines.join("\n") + "\n";
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens.txt"), &found).unwrap();
    } else {
        assert_eq!(found, include_str!("goldens.txt"));
    }
}

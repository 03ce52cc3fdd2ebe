//! Let chains run in bad weather, with the server that `consilience serve` runs: `--rounds N` for
//! draws of long chains under a network that loses, doubles, reorders and cuts off; `--cuts N` for
//! power cuts that hit the server on top of it (and as many times the sites), torn writes and
//! flipped bits, over every sampler of the registry; `--restarts N` for one chain of N rounds in
//! which somebody starts again in about 6 rounds of 100; `--sites N` for a few rounds of `lmc` with
//! N sites, and what they take; `--seed S` to see one again.
//!
//! `cargo run --release -p consilience-engine --example simulation -- --cuts 100000`
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a program for people, which may panic

use std::sync::Arc;
use std::time::Instant;

use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::sampler::registry::{Axis, REGISTRY, Row, Settings};
use consilience_core::sampler::{Anchor, Batch, Participation, Recipe, Synchronise, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::simulation::{Chronicle, Setup, Until, Weather, run};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        arguments
            .iter()
            .position(|a| a == name)
            .and_then(|at| arguments.get(at + 1)?.parse::<u64>().ok())
    };
    let seed = value("--seed").unwrap_or(1);
    let samplers = REGISTRY.len() as u64;
    if let Some(rounds) = value("--rounds") {
        for row in REGISTRY {
            let setup = setup(row, u64::MAX);
            let told = run(&setup, Weather::ROUGH, seed, Until::Draws(rounds / samplers + 1));
            println!("{}: {:?}", row.name, told.unwrap());
        }
    }
    if let Some(rounds) = value("--restarts") {
        let row = REGISTRY.iter().find(|row| row.name == "qlsd++").unwrap();
        let until = Until::Draws(rounds);
        let (began, told) =
            (Instant::now(), run(&setup(row, u64::MAX), Weather::RESTARTS, seed, until).unwrap());
        let restarts = told.power_cuts as f64 / told.draws as f64;
        let seconds = began.elapsed().as_secs_f64();
        println!("{}: {restarts:.3} restarts a round, in {seconds:.0} s: {told:?}", row.name);
    }
    if let Some(sites) = value("--sites") {
        many(sites as usize, seed);
    }
    if let Some(cuts) = value("--cuts") {
        let (began, mut all) = (Instant::now(), Chronicle::default());
        for row in REGISTRY {
            let setup = setup(row, 300);
            let until = Until::ServerCuts(cuts / samplers + 1);
            let told = run(&setup, Weather::FOUL, seed, until).unwrap();
            println!(
                "{}: {} power cuts of the server, {} of sites, {} draws in {} chains",
                row.name,
                told.server_cuts,
                told.power_cuts - told.server_cuts,
                told.draws,
                told.chains
            );
            all.add(&told);
        }
        println!("all, in {:.0} s: {all:?}", began.elapsed().as_secs_f64());
    }
}

/// A few rounds with many sites: what a round and a site take.
fn many(sites: usize, seed: u64) {
    let (dim, rounds) = (20, 20);
    let client = |i: usize| -> Arc<dyn Model> {
        let row = (0..dim).map(|j| ((i + j) % 7) as f64).collect();
        Arc::new(Isotropic::new(row, dim).unwrap())
    };
    let clients = (0..sites).map(client).collect();
    let target = Target::new(clients, Prior::Flat, Placement::Server, 1.0).unwrap();
    let recipe = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.5 / sites as f64)));
    let target = recipe.check(target).unwrap();
    let setup = Setup { recipe, target, start: vec![0.3; dim], iterations: rounds };
    for (name, weather) in [("fair", Weather::FAIR), ("rough", Weather::ROUGH)] {
        let began = Instant::now();
        let told = run(&setup, weather, seed, Until::Draws(rounds)).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{sites} sites, {name}: {:.1} rounds a second, {:.1} microseconds a site and round, \
             {} messages, {:.1} kB a site at most",
            rounds as f64 / seconds,
            1e6 * seconds / (rounds * sites as u64) as f64,
            told.sent,
            peak() / sites as f64
        );
    }
}

/// The most memory that this process has had, in kB; 0 where the system does not say.
fn peak() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix("kB"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0.0)
}

/// A sampler with all that it can be told.
fn setup(row: &Row, iterations: u64) -> Setup {
    let has = |axis| row.axes.contains(&axis);
    let settings = Settings {
        batch: has(Axis::Batch).then_some(Batch::Rows(2)),
        refresh_every: Some(5),
        refresh_probability: Some(0.3),
        participation: has(Axis::Participation)
            .then(|| Participation::Bernoulli(vec![0.3, 0.6, 0.9])),
        synchronise: row.has(Axis::Synchronise).then_some(Synchronise::Randomly(0.3)),
        ..Settings::default()
    };
    let anchor =
        row.needs_optimum.then(|| Anchor { point: vec![0.25, 0.5], residual: vec![0.1, -0.2] });
    let recipe = row.recipe(Schedule::Constant(0.003), &settings, 3, 2, anchor);
    let target = recipe.check(target()).unwrap();
    Setup { recipe, target, start: vec![0.3, 0.3], iterations }
}

fn target() -> Target {
    let client = |i: usize| -> Arc<dyn Model> {
        let cells =
            (0..2 * (3 + 2 * i)).map(|k| ((k * 7 + i * 3) % 11) as f64 / 3.0 - 1.5).collect();
        Arc::new(Isotropic::new(cells, 2).unwrap())
    };
    Target::new(
        (0..3).map(client).collect(),
        Prior::gaussian(2.0, 2).unwrap(),
        Placement::Server,
        1.0,
    )
    .unwrap()
}

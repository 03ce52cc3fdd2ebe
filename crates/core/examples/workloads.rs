//! Print iterations a second of two workloads of the papers' size, one chain on one thread: a first look, not a benchmark.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // it is a program that prints and may panic

use std::sync::Arc;
use std::time::Instant;

use consilience_core::compress::Compressor;
use consilience_core::model::{Gaussian, Isotropic, Potential, Prior};
use consilience_core::protocol::{Device, Ledger, exchange};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::{Anchor, Batch, Keys, Local, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

fn normals(address: u64, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(1).stream(Purpose::Data, SERVER, address).normals(&mut z);
    z
}

fn rate(name: &str, recipe: &Recipe, target: &Target, iterations: u64) {
    let target = recipe.check(target.clone()).unwrap();
    let keys = Keys::simulation(Seed::new(1), 0);
    let mut best = 0.0f64;
    for _ in 0..5 {
        let mut server = recipe.server(&target, &vec![0.0; target.dim()], keys).unwrap();
        let b = target.clients.len();
        let mut clients: Vec<Box<dyn Device>> = (0..b as u32).map(|i| recipe.client(&target, ClientId(i), keys).unwrap()).collect();
        let mut ledger = Ledger::new(b);
        let start = Instant::now();
        while server.iteration() < iterations {
            exchange(&mut *server, &mut clients, &mut ledger);
        }
        best = best.max(server.iteration() as f64 / start.elapsed().as_secs_f64());
    }
    println!("{name:<40} {best:>12.0} iterations a second");
}

fn main() {
    // W1: QLSD*, 16 levels, toy Gaussian, 20 clients with 10 to 200 rows, d = 50.
    let rows = |i: u64| 10 + (i as usize * 37) % 191;
    let client = |i: u64| -> Arc<dyn Potential> { Arc::new(Isotropic::new(normals(i, 50 * rows(i)), 50).unwrap()) };
    let toy = Target::new((0..20).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    let anchor = Anchor { point: vec![0.0; 50], residual: vec![0.0; 50] };
    let star = Uplink::qlsd_star(Schedule::Constant(4.9e-4), Batch::Fraction(0.1), anchor.clone(), Compressor::qsgd(16));
    rate("W1 QLSD*, s = 16", &Recipe::Uplink(star), &toy, 20_000);
    rate("W1 LSD*", &Recipe::Uplink(Uplink::lsd_star(Schedule::Constant(4.9e-4), Batch::Fraction(0.1), anchor)), &toy, 20_000);

    // W2: FALD and VR-FALD*, 100 Gaussian clients with full precisions, d = 20.
    let d = 20;
    let client = |i: u64| -> Arc<dyn Potential> {
        let z = normals(100 + i, d * d);
        let precision = (0..d * d).map(|k| (z[k] + z[k % d * d + k / d]) * 0.02 + if k % (d + 1) == 0 { 1.0 } else { 0.0 }).collect();
        Arc::new(Gaussian::new(normals(300 + i, d), precision).unwrap())
    };
    let many = Target::new((0..100).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    for shared in [0.0, 1.0] {
        let gamma = Schedule::Constant(0.02);
        rate(&format!("W2 FALD, shared {shared}"), &Recipe::Local(Local::fald(gamma, 100, shared, 0.2, Batch::Full)), &many, 10_000);
        rate(
            &format!("W2 VR-FALD*, shared {shared}"),
            &Recipe::Local(Local::vr_fald_star(gamma, 100, shared, 0.2, 0.2, Batch::Full)),
            &many,
            10_000,
        );
    }
}

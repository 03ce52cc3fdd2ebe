//! Print how fast the basic pieces are, in millions a second: a first look, not a benchmark.
#![allow(clippy::print_stdout)] // it is a program that prints

use std::time::Instant;

use consilience_core::rng::{ClientId, Purpose, Seed};

fn rate(name: &str, per_call: usize, mut call: impl FnMut(u64)) {
    let calls = 2_000_000 / per_call.max(8);
    let mut best = f64::INFINITY;
    for repeat in 0..7 {
        let start = Instant::now();
        for k in 0..calls {
            call((repeat * calls + k) as u64);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{name:<40} {:>9.1} M/s  {:>9.1} ns a call",
        (calls * per_call) as f64 / best / 1e6,
        best / calls as f64 * 1e9
    );
}

fn main() {
    let seed = Seed::new(1);
    for n in [2, 16, 50, 128, 1024, 10_000] {
        let mut z = vec![0.0; n];
        rate(&format!("normals, {n} at a time"), n, |k| {
            seed.stream(Purpose::Noise, ClientId(1), k).normals(&mut z)
        });
        std::hint::black_box(&z);
    }
    for n in [10, 128, 10_000] {
        let mut w = vec![0u32; n];
        rate(&format!("words, {n} at a time"), n, |k| {
            seed.stream(Purpose::Compress, ClientId(1), k).words(&mut w)
        });
        std::hint::black_box(&w);
    }
    let mut subsets = consilience_core::rng::Subsets::new(200);
    let mut out = vec![0; 20];
    rate("subsets, 20 of 200", 20, |k| {
        subsets.draw(200, &mut seed.stream(Purpose::Batch, ClientId(1), k), &mut out)
    });
    std::hint::black_box(&out);
}

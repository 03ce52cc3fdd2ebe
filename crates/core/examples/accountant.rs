//! Time the accountant: `cargo run --release -p consilience-core --example accountant`.
#![allow(clippy::print_stdout)] // it prints a table

use std::time::Instant;

use consilience_core::privacy::{Composition, Neighbour, PrivacyError, Release, Sampling};

fn main() -> Result<(), PrivacyError> {
    let schemes = [
        ("full batches", Sampling::Full, Neighbour::Replace, 700.0),
        ("fixed size, a tenth", Sampling::Fixed { share: 0.1 }, Neighbour::Replace, 60.0),
        ("one by one, a tenth", Sampling::Poisson { rate: 0.1 }, Neighbour::AddRemove, 40.0),
        ("one by one, a tenth", Sampling::Poisson { rate: 0.1 }, Neighbour::Replace, 60.0),
        ("one by one, a hundredth", Sampling::Poisson { rate: 0.01 }, Neighbour::AddRemove, 4.0),
    ];
    println!(
        "{:<26}{:<12}{:>9}{:>10}{:>10}{:>9}",
        "rows", "neighbours", "rounds", "epsilon", "least ms", "median"
    );
    for (name, sampling, neighbour, noise) in schemes {
        for rounds in [1_000, 100_000, 1_000_000] {
            let release = Release::new(sampling, neighbour, noise)?;
            let mut times = Vec::new();
            let mut epsilon = 0.0;
            for _ in 0..9 {
                let since = Instant::now();
                epsilon = Composition::of(release, rounds).epsilon(1e-6)?;
                times.push(1e3 * since.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            let neighbours = format!("{neighbour:?}");
            let (least, median) = (times[0], times[4]);
            println!(
                "{name:<26}{neighbours:<12}{rounds:>9}{epsilon:>10.4}{least:>10.2}{median:>9.2}"
            );
        }
    }
    Ok(())
}

//! Let long chains run in bad weather: `--rounds N` under a network that loses, doubles, reorders
//! and cuts off; `--cuts N` power cuts on top of it; `--seed S` to see one again.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a program for people, which may panic

use std::sync::Arc;

use consilience_core::compress::Compressor;
use consilience_core::model::{Isotropic, Potential, Prior};
use consilience_core::sampler::{Batch, Local, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::simulation::{Setup, Until, Weather, run};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        arguments
            .iter()
            .position(|a| a == name)
            .and_then(|at| arguments.get(at + 1)?.parse::<u64>().ok())
    };
    let seed = value("--seed").unwrap_or(1);
    let step = Schedule::Constant(0.003);
    let recipes = [
        (
            "qlsd++",
            Recipe::Uplink(Uplink::qlsd_plus_plus(
                step,
                Batch::Rows(2),
                5,
                Some(0.1),
                Compressor::qsgd(4),
            )),
        ),
        ("b-elf", Recipe::Uplink(Uplink::b_elf(step, Compressor::top_k(1), Compressor::top_k(1)))),
        ("vr-fald*", Recipe::Local(Local::vr_fald_star(step, 3, 0.5, 0.3, 0.3, Batch::Rows(2)))),
    ];
    for (name, recipe) in recipes {
        let target = recipe.check(target()).unwrap();
        let setup = Setup { recipe, target, start: vec![0.3, 0.3] };
        if let Some(rounds) = value("--rounds") {
            // Only the first chain is as long as asked for.
            let rounds = if name == "qlsd++" { rounds } else { rounds / 10 };
            println!(
                "{name}, {rounds} draws: {:?}",
                run(&setup, Weather::ROUGH, seed, Until::Draws(rounds)).unwrap()
            );
        }
        if let Some(cuts) = value("--cuts") {
            println!(
                "{name}, {} power cuts: {:?}",
                cuts / 3 + 1,
                run(&setup, Weather::FOUL, seed, Until::PowerCuts(cuts / 3 + 1)).unwrap()
            );
        }
    }
}

fn target() -> Target {
    let client = |i: usize| -> Arc<dyn Potential> {
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

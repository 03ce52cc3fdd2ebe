//! Whatever the network loses and the power cuts, the chain is the one of a fair day. A failure
//! names the seed that shows it again.

#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic; numbers for people

use std::sync::Arc;

use consilience_core::compress::Compressor;
use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::sampler::registry::{Axis, REGISTRY, Settings};
use consilience_core::sampler::{Anchor, Batch, Participation, Recipe, Synchronise, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::simulation::{Chronicle, Setup, Until, Weather, run};

/// Long enough for several snapshots, short enough to come to its end under power cuts.
const ITERATIONS: u64 = 60;

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

/// Every row of the registry with all that it can be told.
fn setups() -> Vec<(&'static str, Setup)> {
    let busy = |row: &consilience_core::sampler::registry::Row| {
        let has = |axis| row.axes.contains(&axis);
        Settings {
            batch: has(Axis::Batch).then_some(Batch::Rows(2)),
            refresh_every: Some(5),
            refresh_probability: Some(0.3),
            participation: has(Axis::Participation)
                .then(|| Participation::Bernoulli(vec![0.3, 0.6, 0.9])),
            synchronise: row.has(Axis::Synchronise).then_some(Synchronise::Randomly(0.3)),
            ..Settings::default()
        }
    };
    let setup = |row: &consilience_core::sampler::registry::Row| {
        let anchor =
            row.needs_optimum.then(|| Anchor { point: vec![0.25, 0.5], residual: vec![0.1, -0.2] });
        let recipe = row.recipe(Schedule::Constant(0.003), &busy(row), 3, 2, anchor);
        let target = recipe.check(target()).unwrap();
        Setup { recipe, target, start: vec![0.3, 0.3], iterations: ITERATIONS }
    };
    REGISTRY.iter().map(|row| (row.name, setup(row))).collect()
}

#[test]
fn on_a_fair_day_nothing_is_lost() {
    for (name, setup) in setups() {
        let chronicle = run(&setup, Weather::FAIR, 1, Until::Draws(50))
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        let Chronicle { lost, doubled, power_cuts, server_cuts, .. } = chronicle;
        // the power fails once where a chain ends
        assert_eq!((lost, doubled, power_cuts - server_cuts), (0, 0, 0), "{name}");
    }
}

#[test]
fn a_bad_network_changes_nothing() {
    let mut all = Chronicle::default();
    for (name, setup) in setups() {
        for seed in 0..3 {
            all.add(
                &run(&setup, Weather::ROUGH, seed, Until::Draws(200))
                    .unwrap_or_else(|e| panic!("{name}: {e}")),
            );
        }
    }
    assert!(all.lost > 1000 && all.doubled > 1000 && all.refused > 1000, "{all:?}");
}

#[test]
fn power_cuts_anywhere_change_nothing() {
    let mut all = Chronicle::default();
    for (name, setup) in setups() {
        for seed in 0..4 {
            all.add(
                &run(&setup, Weather::FOUL, seed, Until::PowerCuts(25))
                    .unwrap_or_else(|e| panic!("{name}: {e}")),
            );
        }
    }
    assert!(all.power_cuts >= 1500 && all.server_cuts > 200 && all.draws > 1500, "{all:?}");
    assert!(all.chains > 10 && all.torn > 20, "{all:?}");
    assert!(all.flips_named > 5 && all.flips_harmless > 5, "{all:?}");
}

/// Hundreds of sites, whose answers arrive in any order: nobody's orders, answers or random numbers
/// are taken for another's.
#[test]
fn with_hundreds_of_sites_a_bad_network_changes_nothing() {
    let sites = 300;
    let client = |i: usize| -> Arc<dyn Model> {
        Arc::new(Isotropic::new(vec![(i % 7) as f64, (i % 11) as f64], 2).unwrap())
    };
    let target = Target::new(
        (0..sites).map(client).collect(),
        Prior::gaussian(2.0, 2).unwrap(),
        Placement::Server,
        1.0,
    )
    .unwrap();
    let step = Schedule::Constant(0.5 / sites as f64);
    let fald = REGISTRY.iter().find(|row| row.name == "fald").unwrap();
    let settings =
        Settings { synchronise: Some(Synchronise::Randomly(0.5)), ..Settings::default() };
    for recipe in [Recipe::Uplink(Uplink::lmc(step)), fald.recipe(step, &settings, sites, 2, None)]
    {
        let target = recipe.check(target.clone()).unwrap();
        let setup = Setup { recipe, target, start: vec![0.3, 0.3], iterations: 30 };
        let told = run(&setup, Weather::ROUGH, 4, Until::Draws(30)).unwrap();
        assert!(told.chains > 0 && told.lost > 500 && told.refused > 500, "{told:?}");
    }
}

/// A long run under loss, duplication and reordering, in which somebody starts again in more than
/// five rounds of a hundred, and what a server reads and writes does not grow with the rounds that
/// it has had. `RESTART_ROUNDS=1000000` makes it as long as that, and prints what happened.
#[test]
fn restarts_in_a_long_run_change_nothing() {
    let stated = std::env::var("RESTART_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = stated.unwrap_or(4000);
    let (_, setup) = setups().into_iter().find(|(name, _)| *name == "qlsd++").unwrap();
    let setup = Setup { iterations: rounds, ..setup };
    let told = run(&setup, Weather::RESTARTS, 1, Until::Draws(rounds)).unwrap();
    assert!(told.chains == 1 && told.draws == rounds, "{told:?}");
    assert!(told.power_cuts as f64 > 0.05 * rounds as f64, "{told:?}");
    assert!(told.lost > rounds / 10 && told.doubled > rounds / 10, "{told:?}");
    if stated.is_some() {
        println!("{told:?}");
    }
}

/// Rounds that end without some sites: the chain is that of the sites that answered, whatever is
/// lost and whoever loses power.
#[test]
fn elastic_rounds_survive_power_cuts() {
    let participation = Participation::Elastic(vec![0.7; 3]);
    let step = Schedule::Constant(0.003);
    let mut all = Chronicle::default();
    for recipe in [
        Uplink::lmc(step),
        Uplink::qlsd(step, Batch::Rows(2), Compressor::qsgd(2)),
        Uplink::lsd_plus_plus(step, Batch::Rows(2), 5, None),
    ] {
        let recipe = Recipe::Uplink(Uplink { participation: participation.clone(), ..recipe });
        let target = recipe.check(target()).unwrap();
        let setup = Setup { recipe, target, start: vec![0.3, 0.3], iterations: ITERATIONS };
        for seed in 0..12 {
            all.add(&run(&setup, Weather::FOUL, seed, Until::PowerCuts(25)).unwrap());
        }
    }
    assert!(all.closed > 100 && all.server_cuts > 100 && all.chains > 3, "{all:?}");
}

#[test]
fn one_seed_gives_one_simulation() {
    let (_, setup) = &setups()[3];
    let once = run(setup, Weather::FOUL, 9, Until::PowerCuts(20)).unwrap();
    assert_eq!(once, run(setup, Weather::FOUL, 9, Until::PowerCuts(20)).unwrap());
    assert_ne!(once, run(setup, Weather::FOUL, 10, Until::PowerCuts(20)).unwrap());
}

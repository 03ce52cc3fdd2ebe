//! The row gradients that a run counts are those that its algorithm takes, counted by hand.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::model::{Gaussian, Model, Prior};
use consilience_core::protocol::Ledger;
use consilience_core::sampler::{Batch, Local, Participation, Recipe, Synchronise, Uplink};
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Optimum, conduct};
use consilience_core::target::{Placement, Target};

const ROWS: [u64; 3] = [5, 9, 14];
const STEP: Schedule = Schedule::Constant(0.003);

fn target() -> Target {
    linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0)
}

fn counted(recipe: Recipe, target: &Target, draws: usize) -> Vec<u64> {
    let mut chain = start(&recipe, target, &vec![0.3; target.dim()], 1, 0);
    chain.draws(draws);
    chain.clients.iter().map(|client| client.rows_evaluated()).collect()
}

#[test]
fn gradients_of_family_a() {
    let rounds = 21;
    let count = |recipe| counted(Recipe::Uplink(recipe), &target(), rounds as usize);
    assert_eq!(count(Uplink::lmc(STEP)), ROWS.map(|all| rounds * all));
    assert_eq!(count(Uplink::sgld(STEP, Batch::Rows(3))), [3 * rounds; 3]);
    // A difference is taken at two points.
    let off = || anchor(&target(), vec![0.4, 0.1]);
    assert_eq!(count(Uplink::lsd_star(STEP, Batch::Rows(3), off())), [2 * 3 * rounds; 3]);
    assert_eq!(count(Uplink::lsd_star(STEP, Batch::Full, off())), ROWS.map(|all| 2 * all * rounds));
    // All rows at a new reference point, in rounds 0, 5, 10, 15 and 20.
    let renewed = ROWS.map(|all| 5 * all + 2 * 3 * rounds);
    assert_eq!(count(Uplink::lsd_plus_plus(STEP, Batch::Rows(3), 5, None)), renewed);
}

#[test]
fn whoever_is_away_evaluates_nothing() {
    let participation = Participation::Fixed(1);
    let recipe = Uplink { participation, ..Uplink::sgld(STEP, Batch::Rows(2)) };
    let rows = counted(Recipe::Uplink(recipe), &target(), 30);
    assert_eq!(rows.iter().sum::<u64>(), 2 * 30);
}

#[test]
fn gradients_of_family_b() {
    let (draws, every) = (20, 4);
    let count = |recipe| counted(Recipe::Local(recipe), &target(), draws);
    let weights = || vec![0.5, 0.2, 0.3];
    let steps = draws as u64 * every;
    assert_eq!(count(Local::fa_ld(STEP, weights(), every, 0.3, Batch::Rows(3))), [3 * steps; 3]);
    assert_eq!(count(Local::dg_lmc(STEP, weights(), every, 3.0, Batch::Rows(3))), [3 * steps; 3]);
    // With a reference point that stays: all rows there once, then two gradients a step.
    let still = |batch| {
        let recipe = Local::vr_fald_star(STEP, 3, 0.3, 1.0, 0.0, batch);
        Local { synchronise: Synchronise::Every(every), ..recipe }
    };
    assert_eq!(count(still(Batch::Rows(3))), ROWS.map(|all| all + 2 * 3 * steps));
    // With one that moves before every step but the first, where it stands already.
    let moving = Local { refresh: Some(1.0), ..still(Batch::Rows(3)) };
    assert_eq!(count(moving), ROWS.map(|all| steps * all + 2 * 3 * steps));
}

/// Clients with one row, whose potentials take several steps in one go.
#[test]
fn gradients_of_steps_in_one_go() {
    let (draws, every) = (20, 4);
    let steps = draws as u64 * every;
    let round =
        |d: usize| (0..d * d).map(|k| f64::from(u8::from(k.is_multiple_of(d + 1)))).collect();
    let client: Arc<dyn Model> = Arc::new(Gaussian::new(vec![0.5; 8], round(8)).unwrap());
    assert_eq!(client.rows(), 1);
    let target = Target::new(vec![client; 3], Prior::Flat, Placement::Server, 1.0).unwrap();
    let count = |recipe| counted(Recipe::Local(recipe), &target, draws);
    let weights = vec![0.5, 0.2, 0.3];
    assert_eq!(count(Local::fa_ld(STEP, weights, every, 0.0, Batch::Full)), [steps; 3]);
    let still = Local::vr_fald_star(STEP, 3, 0.0, 1.0, 0.0, Batch::Full);
    let still = Local { synchronise: Synchronise::Every(every), ..still };
    assert_eq!(count(still), [1 + 2 * steps; 3]);
}

/// A survey evaluates every row once an exchange.
#[test]
fn gradients_of_a_survey() {
    let mut clients = Client::all(&target());
    let search = Optimum::new(&target(), &[0.0, 0.0], 1e-9, 100);
    let optimum = conduct(search, &mut clients, &mut Ledger::new(3));
    let rows: Vec<u64> = clients.iter().map(|client| client.rows_evaluated()).collect();
    assert_eq!(rows, ROWS.map(|all| optimum.exchanges() * all));
}

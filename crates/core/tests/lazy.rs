//! Clients that are made when they are first needed give the chain of clients that were there from
//! the start, bit for bit.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::{anchor, linear, start};
use consilience_core::compress::Compressor;
use consilience_core::model::Prior;
use consilience_core::protocol::{Direction, devices_of};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Average, Batch, Keys, Local, Participation, Recipe, Uplink};
use consilience_core::snapshot;
use consilience_core::step::Schedule;
use consilience_core::target::Placement;

#[test]
fn late_clients_change_nothing() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    let (step, batch) = (Schedule::Constant(0.01), Batch::Rows(3));
    let mut fixed = Uplink::qlsd_star(
        step,
        batch.clone(),
        anchor(&target, vec![0.5, -0.5]),
        Compressor::qsgd(4),
    );
    fixed.participation = Participation::Fixed(1);
    let mut memory = Uplink::qlsd_plus_plus(step, batch.clone(), 5, Some(0.3), Compressor::qsgd(4));
    memory.participation = Participation::Bernoulli(vec![0.2, 0.3, 0.1]);
    let mut unlike = Uplink::qlsd(step, batch.clone(), Compressor::qsgd(4));
    unlike.up = vec![Compressor::qsgd(2), Compressor::qsgd(8), Compressor::natural()];
    let mut few = Local::fa_ld(step, vec![1.0 / 3.0; 3], 3, 0.0, batch);
    few.average = Average::WithoutReplacement(1);
    for recipe in
        [Recipe::Uplink(fixed), Recipe::Uplink(memory), Recipe::Uplink(unlike), Recipe::Local(few)]
    {
        let mut eager = start(&recipe, &target, &[0.1, 0.2], 7, 0);
        let mut lazy = start(&recipe, &target, &[0.1, 0.2], 7, 0);
        let checked = Arc::new(recipe.check(target.clone()).unwrap());
        lazy.clients = recipe.clients(&checked, Keys::simulation(Seed::new(7), 0)).unwrap();
        for _ in 0..60 {
            assert_eq!(eager.draw(), lazy.draw(), "{recipe:?}");
        }
        assert_eq!(eager.ledger, lazy.ledger);
        for (early, late) in eager.clients.iter_mut().zip(&mut lazy.clients) {
            assert_eq!(early.rows_evaluated(), late.rows_evaluated());
            assert_eq!(snapshot::save(&mut **early), snapshot::save(&mut **late));
        }
        assert!(eager.ledger.client(ClientId(2), Direction::Up) > 0, "all have taken part by then");
    }
}

#[test]
fn the_devices_of_a_cohort_are_those_of_its_numbers() {
    let target = linear(Prior::Flat, Placement::Server, 1.0);
    let recipe = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01)));
    let mut chain = start(&recipe, &target, &[0.0; 2], 1, 0);
    chain.draw();
    let rows: Vec<u64> = devices_of(&[ClientId(0), ClientId(2)], &mut chain.clients)
        .map(|device| device.rows_evaluated())
        .collect();
    assert_eq!(rows, [5, 14]);
    assert_eq!(devices_of(&[], &mut chain.clients).count(), 0);
}

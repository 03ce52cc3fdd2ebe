//! A model that remembers the last point gives the chain that it would give without, bit for bit,
//! and one that was restored in the middle goes on as if nothing had happened.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::compress::Compressor;
use consilience_core::model::{Design, Glm, GlmFamily, Model, Plain, Prior, Softmax};
use consilience_core::sampler::{Batch, Recipe, Uplink};
use consilience_core::snapshot::{restore, save};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

const LEVELS: [u32; 5] = [6, 2, 4, 13, 5];
const DIM: usize = 30;

/// Three clients whose rows have one level of each attribute.
fn one_hot(plain: bool) -> Target {
    let client = |i: u64| -> Arc<dyn Model> {
        let z = normals(300 + i, 900 * LEVELS.len());
        let row = |z: &[f64]| {
            let mut first = 0;
            let mut level = |(levels, z): (&u32, &f64)| {
                first += levels;
                (
                    first - levels + ((z.abs() * f64::from(*levels) * 0.4) as u32).min(levels - 1),
                    1.0,
                )
            };
            LEVELS.iter().zip(z).map(&mut level).collect()
        };
        let design = Design::sparse(z.chunks_exact(LEVELS.len()).map(row), DIM).unwrap();
        let response =
            z.chunks_exact(LEVELS.len()).map(|z| f64::from(u8::from(z[0] + z[3] > 0.4))).collect();
        let model = Glm::new(design, response, GlmFamily::Bernoulli).unwrap();
        if plain { Arc::new(Plain(model)) } else { Arc::new(model) }
    };
    Target::new(
        (0..3).map(client).collect(),
        Prior::gaussian(4.0, DIM).unwrap(),
        Placement::Server,
        1.0,
    )
    .unwrap()
}

/// Moves of one coordinate, of some, and of all.
fn recipes() -> Vec<Recipe> {
    let (step, top) = (Schedule::Constant(1e-3), Compressor::top_k);
    let recipes = [
        Uplink::b_elf(step, top(1), top(1)),
        Uplink::b_elf(step, top(3), top(10)),
        Uplink::b_elf(step, top(2), top(1)),
        Uplink::lmc(step),
    ];
    recipes.into_iter().map(Recipe::Uplink).collect()
}

#[test]
fn a_memo_changes_no_draw_and_no_bit_on_the_wire() {
    for recipe in recipes() {
        let [mut with, mut without] =
            [false, true].map(|plain| start(&recipe, &one_hot(plain), &[0.2; DIM], 5, 0));
        assert_eq!(with.draws(300), without.draws(300));
        assert_eq!(with.ledger, without.ledger);
    }
}

/// Probabilities at a reference point are remembered, and the point is not compared from one round
/// to the next: without memory the chain is the same.
#[test]
fn a_reference_point_that_moves_is_noticed() {
    let (rows, features, classes) = (40, 9, 4);
    let target = |plain: bool| {
        let client = |i: u64| -> Arc<dyn Model> {
            let design = Design::dense(normals(700 + i, rows * features), features).unwrap();
            let labels = (0..rows as u32).map(|j| (j * 7 + i as u32) % classes as u32).collect();
            let model = Softmax::new(design, labels, classes).unwrap();
            if plain { Arc::new(Plain(model)) } else { Arc::new(model) }
        };
        let prior = Prior::gaussian(4.0, features * classes).unwrap();
        Target::new((0..3).map(client).collect(), prior, Placement::Server, 1.0).unwrap()
    };
    let start_at = vec![0.2; features * classes];
    let step = Schedule::Constant(1e-3);
    for up in [Compressor::qsgd(16), Compressor::qsgd(1 << 16)] {
        let recipe = Uplink::qlsd_plus_plus(step, Batch::Fraction(0.5), 5, None, up);
        let recipe = Recipe::Uplink(recipe);
        let [mut with, mut without] =
            [false, true].map(|plain| start(&recipe, &target(plain), &start_at, 5, 0));
        assert_eq!(with.draws(60), without.draws(60));
        let mut resumed = start(&recipe, &target(false), &start_at, 5, 0);
        resumed.draws(3);
        restore(&mut resumed.server, &save(&mut with.server)).unwrap();
        for (to, from) in resumed.clients.iter_mut().zip(&mut with.clients) {
            restore(to, &save(from)).unwrap();
        }
        assert_eq!(resumed.draws(20), without.draws(20));
    }
}

#[test]
fn a_memo_is_no_state() {
    let target = one_hot(false);
    for recipe in recipes() {
        for before in [1, 2, 3, 50] {
            let mut whole = start(&recipe, &target, &[0.2; DIM], 5, 0);
            whole.draws(before);
            let mut resumed = start(&recipe, &target, &[7.0; DIM], 5, 0);
            restore(&mut resumed.server, &save(&mut whole.server)).unwrap();
            for (to, from) in resumed.clients.iter_mut().zip(&mut whole.clients) {
                restore(to, &save(from)).unwrap();
            }
            assert_eq!(resumed.draws(60), whole.draws(60));
        }
    }
}

#[test]
fn nothing_is_allocated_once_a_memo_is_there() {
    for recipe in recipes() {
        let mut chain = start(&recipe, &one_hot(false), &[0.2; DIM], 5, 0);
        let mut draw = |n: usize| {
            for _ in 0..n {
                chain.draw();
            }
        };
        draw(30);
        assert_eq!(allocation_counter::measure(|| draw(100)).count_total, 0);
    }
}

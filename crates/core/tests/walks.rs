//! A model that takes several Langevin steps at once gives the chain that its gradients give, bit
//! for bit.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::model::{Gaussian, Model, Plain, Prior};
use consilience_core::sampler::{Batch, Local, Recipe};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

/// Three Gaussian clients with full precisions in `d` dimensions.
fn gaussians(d: usize, stepwise: bool, prior: Prior) -> Target {
    let client = |i: u64| -> Arc<dyn Model> {
        let z = normals(500 + i, d * d + d);
        let entry = |k: usize| {
            0.1 * (z[k] + z[k % d * d + k / d]) + if k.is_multiple_of(d + 1) { 8.0 } else { 0.0 }
        };
        let model = Gaussian::new(z[d * d..].to_vec(), (0..d * d).map(entry).collect()).unwrap();
        if stepwise { Arc::new(Plain(model)) } else { Arc::new(model) }
    };
    Target::new((0..3).map(client).collect(), prior, Placement::Server, 1.0).unwrap()
}

/// Walks with private noise, with everybody's and with both, with control variates that change in
/// the middle of a walk and without, at one step and at shrinking ones, tied and free.
fn recipes() -> Vec<Recipe> {
    let (constant, shrinking) =
        (Schedule::Constant(1e-3), Schedule::Decreasing { smoothness: 300.0, convexity: 10.0 });
    let thirds = || vec![0.5, 0.25, 0.25];
    let mut recipes = vec![
        Local::fa_ld(constant, thirds(), 7, 0.0, Batch::Full),
        Local::fa_ld(constant, thirds(), 40, 1.0, Batch::Full),
        Local::dg_lmc(constant, thirds(), 3, 0.5, Batch::Full),
    ];
    for step in [constant, shrinking] {
        for shared in [0.0, 0.3, 1.0] {
            recipes.push(Local::fald(step, 3, shared, 0.2, Batch::Full));
            recipes.push(Local::vr_fald_star(step, 3, shared, 0.1, 0.3, Batch::Full));
        }
    }
    recipes.into_iter().map(Recipe::Local).collect()
}

#[test]
fn a_walk_changes_no_draw_and_no_bit_on_the_wire() {
    for d in [1, 7, 8, 9, 13, 16, 17, 20, 24, 25] {
        for recipe in recipes() {
            for prior in [Prior::Flat, Prior::gaussian(2.0, d).unwrap()] {
                let begin = |stepwise: bool| {
                    let target = recipe.check(gaussians(d, stepwise, prior.clone())).unwrap();
                    start(&recipe, &target, &vec![0.2; d], 5, 0)
                };
                let [mut walking, mut stepwise] = [false, true].map(begin);
                assert_eq!(walking.draws(60), stepwise.draws(60), "{d}: {recipe:?}");
                assert_eq!(walking.ledger, stepwise.ledger);
                let rows = |chain: &Chain| {
                    chain.clients.iter().map(|client| client.rows_evaluated()).sum::<u64>()
                };
                assert_eq!(rows(&walking), rows(&stepwise));
            }
        }
    }
}

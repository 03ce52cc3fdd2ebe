//! A client tells no more than its allowance, whatever a server asks, and never counts too few.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::compress::Precision;
use consilience_core::model::Prior;
use consilience_core::protocol::{
    Answered, Client, Device, Order, OrderRefusal, Payload, ReferencePoint, Task, encode_order,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Batch, Keys, Local, PrivateNoise, Recipe, Uplink};
use consilience_core::snapshot::{restore, save};
use consilience_core::step::Schedule;
use consilience_core::target::Placement;

const STEP: Schedule = Schedule::Constant(0.01);

fn recipes() -> [(Recipe, u64); 2] {
    let private = Some(PrivateNoise { server_share: 0.0 });
    let lmc = Recipe::Uplink(Uplink { private, ..Uplink::lmc(STEP) });
    let walk = Recipe::Local(Local::fa_ld(STEP, vec![1.0 / 3.0; 3], 2, 0.0, Batch::Full));
    [(lmc, 1), (walk.family().with_own_noise(0.0).unwrap(), 2)]
}

fn client(recipe: &Recipe, most: u64) -> Client<Box<dyn Device>> {
    let target = linear(Prior::Flat, Placement::Server, 1.0);
    let target = recipe.check(target).unwrap();
    let keys = Keys::simulation(Seed::new(1), 0);
    let device = recipe.client(&target, ClientId(0), keys).unwrap();
    Client::new(device, recipe.format(&target, keys).unwrap()).allowed(most)
}

fn order(task: Task, round: u64, x: f64) -> Vec<u8> {
    order_in(task, round, [x, 0.5], Precision::F32)
}

fn order_in(task: Task, round: u64, position: [f64; 2], precision: Precision) -> Vec<u8> {
    let mut bytes = Vec::new();
    let order = Order {
        round,
        task,
        position: Some(Payload::Plain(&position, precision)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    encode_order(&order, &mut bytes);
    bytes
}

fn task(steps: u64) -> Task {
    if steps == 1 { Task::Estimate } else { Task::Walk { steps } }
}

#[test]
fn what_is_allowed_is_told_and_nothing_more() {
    for (recipe, steps) in recipes() {
        let mut client = client(&recipe, 3 * steps);
        let mut out = Vec::new();
        for k in 0..3 {
            let bytes = order(task(steps), k * steps, 0.25);
            assert_eq!(client.handle(&bytes, &mut out), Ok(Answered::Anew));
            assert_eq!(client.told(), Some((k + 1) * steps));
            // Once more it is the same answer, and costs nothing.
            let (mut first, mut second) = (Vec::new(), Vec::new());
            assert_eq!(client.handle(&bytes, &mut first), Ok(Answered::Again));
            assert_eq!(client.handle(&bytes, &mut second), Ok(Answered::Again));
            assert_eq!(first, second);
            assert_eq!(client.told(), Some((k + 1) * steps));
            // Another order in its place is refused, and costs nothing either.
            let changed = client.handle(&order(task(steps), k * steps, 0.75), &mut out);
            assert!(matches!(changed, Err(OrderRefusal::Changed { .. })), "{changed:?}");
            assert_eq!(client.told(), Some((k + 1) * steps));
        }
        let (asked, most) = (steps, 3 * steps);
        let spent = client.handle(&order(task(steps), most, 0.25), &mut out);
        assert_eq!(spent, Err(OrderRefusal::Spent { asked, told: most, most }));
    }
}

#[test]
fn a_longer_walk_than_is_left_is_refused_as_a_whole() {
    let [_, (recipe, _)] = recipes();
    let mut client = client(&recipe, 5);
    let mut out = Vec::new();
    let walk = |round, steps| order(Task::Walk { steps }, round, 0.25);
    client.handle(&walk(0, 3), &mut out).unwrap();
    assert_eq!(
        client.handle(&walk(3, 3), &mut out),
        Err(OrderRefusal::Spent { asked: 3, told: 3, most: 5 })
    );
    client.handle(&walk(3, 2), &mut out).unwrap();
    assert_eq!(client.told(), Some(5));
    let endless = client.handle(&walk(5, 1 << 40), &mut out);
    assert!(matches!(endless, Err(OrderRefusal::Spent { .. })), "{endless:?}");
}

#[test]
fn a_restored_client_remembers_and_what_may_be_lost_counts() {
    for (recipe, steps) in recipes() {
        let mut first = client(&recipe, 4 * steps);
        let mut out = Vec::new();
        first.handle(&order(task(steps), 0, 0.25), &mut out).unwrap();
        let bytes = save(&mut first);
        let mut second = client(&recipe, 4 * steps);
        restore(&mut second, &bytes).unwrap();
        assert_eq!(second.told(), Some(steps));
        // Rounds that were reserved before a crash may have been told.
        second.spend(3 * steps);
        assert_eq!(second.told(), Some(3 * steps));
        second.handle(&order(task(steps), 3 * steps, 0.25), &mut out).unwrap();
        let spent = second.handle(&order(task(steps), 4 * steps, 0.25), &mut out);
        assert!(matches!(spent, Err(OrderRefusal::Spent { .. })), "{spent:?}");
    }
}

/// A sum over rows that overflows is no number for some rows and one for others, which noise does
/// not hide: far out there is no answer, and nothing is spent.
#[test]
fn points_where_sums_may_overflow_are_not_answered() {
    let private = Some(PrivateNoise { server_share: 0.0 });
    let precision = Precision::F64;
    let recipe = Recipe::Uplink(Uplink { private, precision, ..Uplink::lmc(STEP) });
    let mut client = client(&recipe, 10);
    let mut out = Vec::new();
    let ask = |x: [f64; 2]| order_in(Task::Estimate, 0, x, precision);
    for far in [[1e308, 1e308], [1e308, -1e308], [0.0, -1e39], [f64::MAX, 0.0]] {
        let refused = client.handle(&ask(far), &mut out);
        assert!(matches!(refused, Err(OrderRefusal::Far { .. })), "{far:?}: {refused:?}");
    }
    assert_eq!((client.told(), out.len()), (Some(0), 0));
    client.handle(&ask([1e38, -1e38]), &mut out).unwrap();
    assert_eq!(client.told(), Some(1));
}

#[test]
fn exact_functions_of_rows_are_no_releases() {
    let [(recipe, _), _] = recipes();
    let mut client = client(&recipe, 1000);
    let mut out = Vec::new();
    for task in [Task::Value, Task::Gradient, Task::Curvature, Task::Slope, Task::HessianVector] {
        let refused = client.handle(&order(task, 7, 0.25), &mut out);
        assert!(refused.is_err(), "{task:?}");
    }
    assert_eq!((client.told(), out.len()), (Some(0), 0));
}

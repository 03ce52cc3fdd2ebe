//! What a site counts as told is never below what left it, wherever the power fails.
#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::sync::Arc;

use consilience_core::model::{Design, Glm, GlmFamily, Model, Prior};
use consilience_core::privacy::{Neighbour, Once, Released};
use consilience_core::protocol::{
    Client, Device, Order, OrderRefusal, Payload, Precision, ReferencePoint, Task, encode_order,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, PrivateNoise, Recipe, Release, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::store::{DurableClient, Faults, Silence, Simulated, StoreError};

const MOST: u64 = 12;

#[derive(Clone, Copy, Debug)]
enum What {
    Chain,
    Once,
}

impl What {
    fn most(self) -> u64 {
        match self {
            What::Chain => MOST,
            What::Once => 2,
        }
    }
}

fn client(what: What) -> Client<Box<dyn Device>> {
    let rows = vec![0.3, -1.0, 0.8, 0.5, -0.4, 0.9];
    let design = Design::dense(rows, 2).unwrap();
    let glm: Arc<dyn Model> =
        Arc::new(Glm::new(design, vec![1.0, 0.0, 1.0], GlmFamily::Bernoulli).unwrap());
    let prior = Prior::gaussian(2.0, 2).unwrap();
    let target = Target::new(vec![glm], prior, Placement::Server, 1.0).unwrap();
    let recipe = match what {
        What::Chain => {
            let private = Some(PrivateNoise { server_share: 0.0 });
            Recipe::Uplink(Uplink { private, ..Uplink::lmc(Schedule::Constant(0.01)) })
        }
        What::Once => {
            let budget = (3.0, 1e-6);
            let once = Once::new(Released::Logistic, 2.0, Neighbour::Replace, budget).unwrap();
            Recipe::Release(Release { once: Some(once), weak: true })
        }
    };
    let target = recipe.check(target).unwrap();
    let keys = Keys { public: Seed::new(1), private: Seed::new(2) };
    let device = recipe.client(&target, ClientId(0), keys).unwrap();
    Client::new(device, recipe.format(&target, keys).unwrap()).allowed(what.most())
}

/// The order of a round; another `x` is another point.
fn order(what: What, round: u64, x: f64) -> Vec<u8> {
    let at = [x, 0.5];
    let (task, precision) = match what {
        What::Chain => (Task::Estimate, Precision::F32),
        What::Once => (Task::Release { numbers: 5 }, Precision::F64),
    };
    let first = matches!(what, What::Once) && round == 0;
    let mut bytes = Vec::new();
    let order = Order {
        round,
        task,
        position: (!first).then_some(Payload::Plain(&at, precision)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    encode_order(&order, &mut bytes);
    bytes
}

/// Everything that ever left: the answers, by order.
type Told = BTreeMap<Vec<u8>, Vec<u8>>;

/// A greedy server asks for one round after the other, the last one twice and from elsewhere, until
/// the power fails or nothing more is answered.
fn live(
    what: What,
    disk: &Simulated,
    ahead: Option<u64>,
    told: &mut Told,
) -> Result<(), StoreError> {
    let (mut site, _) = match ahead {
        None => DurableClient::open(disk.clone(), client(what))?,
        Some(ahead) => DurableClient::reserving(disk.clone(), client(what), ahead)?,
    };
    let counted = |site: &DurableClient<Simulated, Box<dyn Device>>| site.client().told().unwrap();
    assert!(counted(&site) >= told.len() as u64, "{} of {}", counted(&site), told.len());
    for round in 0..2 * MOST {
        for x in [0.25, 0.25, 0.75] {
            let (asked, mut out) = (order(what, round, x), Vec::new());
            match site.handle(&asked, &mut out) {
                Ok(_) => {
                    let before = told.entry(asked).or_insert_with(|| out.clone());
                    assert_eq!(*before, out, "one order, one answer");
                }
                Err(Silence::Refused(OrderRefusal::Spent { .. })) => return Ok(()),
                Err(Silence::Refused(_)) => {}
                Err(Silence::Store(error)) => return Err(error),
            }
            assert!(counted(&site) >= told.len() as u64);
            assert!(told.len() as u64 <= what.most(), "more than is allowed");
        }
    }
    Ok(())
}

#[test]
fn the_count_is_never_below_what_left_the_site() {
    for what in [What::Chain, What::Once] {
        for ahead in [None, Some(1), Some(5)] {
            let whole = Simulated::new(0, Faults::default());
            let mut all = Told::new();
            live(what, &whole, ahead, &mut all).unwrap();
            assert_eq!(all.len() as u64, what.most(), "{what:?} {ahead:?}: all of it is had");
            for step in 0..whole.steps() {
                let disk = Simulated::new(1000 + step, Faults::default());
                let mut told = Told::new();
                // Twice at the same step of the disk, the second time while it recovers, say.
                for _ in 0..2 {
                    disk.fail_after(step);
                    let _ = live(what, &disk, ahead, &mut told);
                    disk.power_cut();
                }
                live(what, &disk, ahead, &mut told).unwrap();
                assert!(told.len() as u64 <= what.most(), "{what:?} {ahead:?} {step}");
                if ahead.is_none() {
                    assert_eq!(told.len() as u64, what.most(), "and nothing is lost: {step}");
                }
            }
        }
    }
}

/// The process dies (kill -9) between the disk and the wire: what it wrote is sent again, and
/// counted once.
#[test]
fn a_site_that_is_killed_counts_what_it_may_have_sent() {
    for what in [What::Chain, What::Once] {
        let disk = Simulated::new(5, Faults::default());
        let mut told = Told::new();
        for round in 0..what.most() {
            let asked = order(what, round, 0.25);
            let mut lost = Vec::new();
            let (mut site, _) = DurableClient::open(disk.clone(), client(what)).unwrap();
            site.handle(&asked, &mut lost).unwrap(); // and then it is killed
            drop(site);
            let (mut site, _) = DurableClient::open(disk.clone(), client(what)).unwrap();
            assert_eq!(site.client().told(), Some(round + 1));
            let mut again = Vec::new();
            site.handle(&asked, &mut again).unwrap();
            assert_eq!(again, lost);
            assert_eq!(site.client().told(), Some(round + 1), "once");
            told.insert(asked, again);
        }
        live(what, &disk, None, &mut told).unwrap();
        assert_eq!(told.len() as u64, what.most());
    }
}

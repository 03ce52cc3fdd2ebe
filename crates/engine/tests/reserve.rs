//! A client that reserves rounds ahead never gives two answers with the same random numbers,
//! whatever fails: power cuts at every step of the disk, kills, and a server that asks otherwise
//! the second time.

#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::sync::Arc;

use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::protocol::{Client, Device, Exchange, OrderRefusal};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed, Stream};
use consilience_core::sampler::{Batch, Keys, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::store::{DurableClient, Faults, Silence, Simulated, StoreError};

type Site = DurableClient<Simulated, Box<dyn Device>>;

struct Setup {
    recipe: Recipe,
    target: Target,
    keys: Keys,
}

fn setup() -> Setup {
    let rows: Arc<dyn Model> = Arc::new(
        Isotropic::new((0..40).map(|k| f64::from(k * k % 17) / 3.0).collect(), 2).unwrap(),
    );
    let target = Target::new(vec![rows], Prior::Flat, Placement::Server, 1.0).unwrap();
    let recipe = Recipe::Uplink(Uplink::sgld(Schedule::Constant(0.001), Batch::Rows(2)));
    Setup {
        target: recipe.check(target).unwrap(),
        recipe,
        keys: Keys { public: Seed::new(1), private: Seed::new(2) },
    }
}

impl Setup {
    /// `None`: a client that reserves nothing, and syncs nothing.
    fn open(&self, disk: &Simulated, ahead: Option<u64>) -> Result<Site, StoreError> {
        let device = self.recipe.client(&self.target, ClientId(0), self.keys).unwrap();
        let client = Client::new(device, self.recipe.format(&self.target, self.keys).unwrap());
        match ahead {
            None => DurableClient::open(disk.clone(), client).map(|(site, _)| site.without_sync()),
            Some(ahead) => {
                DurableClient::reserving(disk.clone(), client, ahead).map(|(site, _)| site)
            }
        }
    }

    /// The order of a round at this point.
    fn order(&self, round: u64, point: f64) -> Vec<u8> {
        let server = self.recipe.server(&self.target, &[point, -point], self.keys).unwrap();
        let order = server.order(ClientId(0));
        let order = consilience_core::protocol::Order { round, ..order };
        let mut bytes = Vec::new();
        consilience_core::protocol::wire::encode_order(&order, &mut bytes);
        bytes
    }
}

/// What left a client, by round: the order and the answer.
#[derive(Default)]
struct Heard {
    answers: BTreeMap<u64, (Vec<u8>, Vec<u8>)>,
    /// Whether two answers left with the same random numbers, or one order was answered in two
    /// ways.
    twice: bool,
    refused: u64,
}

impl Heard {
    fn ask(&mut self, site: &mut Site, round: u64, order: &[u8]) -> Result<(), StoreError> {
        let mut answer = Vec::new();
        match site.handle(order, &mut answer) {
            Ok(_) => {
                let new = (order.to_vec(), answer);
                let known = self.answers.entry(round).or_insert_with(|| new.clone());
                self.twice |= *known != new;
                Ok(())
            }
            Err(Silence::Refused(
                OrderRefusal::Used { .. } | OrderRefusal::Old { .. } | OrderRefusal::Changed { .. },
            )) => {
                self.refused += 1;
                Ok(())
            }
            Err(Silence::Refused(other)) => panic!("{other}"),
            Err(Silence::Store(error)) => Err(error),
        }
    }
}

struct Life {
    heard: Heard,
    cuts: u64,
    kills: u64,
}

/// A hostile server that goes back some rounds, and asks elsewhere there, whenever the site was
/// away.
fn live(setup: &Setup, seed: u64, ahead: Option<u64>, asks: u64) -> Life {
    let disk = Simulated::new(seed, Faults::default());
    let mut dice = Seed::new(seed).stream(Purpose::Data, SERVER, 1);
    let mut life = Life { heard: Heard::default(), cuts: 0, kills: 0 };
    let (mut round, mut point) = (0, 0.5);
    let fuse = |disk: &Simulated, dice: &mut Stream| disk.fail_after(u64::from(dice.below(60)));
    fuse(&disk, &mut dice);
    let mut site = None;
    let mut asked = 0;
    while asked < asks {
        let Some(open) = &mut site else {
            match setup.open(&disk, ahead) {
                Ok(opened) => site = Some(opened),
                Err(error) => {
                    assert!(disk.is_dark(), "seed {seed}: {error}");
                    disk.power_cut();
                    life.cuts += 1;
                    fuse(&disk, &mut dice);
                }
            }
            round = u64::saturating_sub(round, u64::from(dice.below(6)));
            point += 0.25;
            continue;
        };
        asked += 1;
        let order = setup.order(round, point);
        let answered = match dice.below(40) {
            0 => open.checkpoint(),
            1 => open.rest(),
            _ => Ok(()),
        }
        .and_then(|()| life.heard.ask(open, round, &order));
        if answered.is_err() {
            assert!(disk.is_dark(), "seed {seed}");
            disk.power_cut();
            life.cuts += 1;
            fuse(&disk, &mut dice);
            site = None;
        } else if dice.below(15) == 0 {
            site = None; // killed: the machine goes on
            life.kills += 1;
        } else if dice.below(3) > 0 {
            round += 1 + u64::from(dice.below(2));
        }
    }
    life
}

#[test]
fn no_randomness_is_used_twice_whatever_fails() {
    let setup = setup();
    let (mut cuts, mut kills, mut answers, mut refused) = (0, 0, 0, 0);
    for seed in 0..60 {
        for ahead in [0, 1, 7, 1000] {
            let life = live(&setup, seed, Some(ahead), 150);
            assert!(
                !life.heard.twice,
                "seed {seed}, {ahead} ahead: two answers with the same random numbers have left"
            );
            (cuts, kills, answers) =
                (cuts + life.cuts, kills + life.kills, answers + life.heard.answers.len());
            refused += life.heard.refused;
        }
    }
    assert!(
        cuts > 1000 && kills > 500 && answers > 3000 && refused > 300,
        "{cuts} cuts, {kills} kills, {answers} answers, {refused} refused"
    );
    // The same world catches a client that reserves nothing.
    let caught = (0..60).filter(|seed| live(&setup, *seed, None, 150).heard.twice).count();
    assert!(caught > 20, "only {caught} of 60");
}

#[test]
fn a_kill_costs_nothing_and_a_power_cut_the_rounds_that_were_reserved() {
    let setup = setup();
    let disk = Simulated::new(4, Faults::default());
    let mut site = setup.open(&disk, Some(10)).unwrap();
    let mut heard = Heard::default();
    for round in 0..25 {
        heard.ask(&mut site, round, &setup.order(round, 0.5)).unwrap();
    }
    site = setup.open(&disk, Some(10)).unwrap(); // killed
    assert_eq!(site.client().answered(), 25);
    heard.ask(&mut site, 24, &setup.order(24, 0.5)).unwrap(); // the same bytes again
    heard.ask(&mut site, 25, &setup.order(25, 0.5)).unwrap();
    assert_eq!((heard.answers.len(), heard.refused, heard.twice), (26, 0, false));
    disk.power_cut();
    site = setup.open(&disk, Some(10)).unwrap();
    let left = site.client().answered();
    assert!(left <= 26);
    heard.ask(&mut site, 30, &setup.order(30, 9.0)).unwrap();
    assert_eq!(heard.refused, 1, "it was reserved, and may have been answered");
    heard.ask(&mut site, 40, &setup.order(40, 9.0)).unwrap();
    assert_eq!(
        (heard.answers.len(), heard.twice),
        (27, false),
        "beyond the reservation it goes on"
    );
    // Stopped in good order, it gives the rest back: what follows is answered even after a power
    // cut.
    site.rest().unwrap();
    drop(site);
    disk.power_cut();
    site = setup.open(&disk, Some(10)).unwrap();
    heard.ask(&mut site, 41, &setup.order(41, 9.0)).unwrap();
    assert_eq!((heard.answers.len(), heard.refused, heard.twice), (28, 1, false));
    // And what was refused before stays refused.
    heard.ask(&mut site, 31, &setup.order(31, 1.0)).unwrap();
    assert_eq!(heard.refused, 2);
    let steps = disk.steps();
    (42..142).for_each(|round| heard.ask(&mut site, round, &setup.order(round, 9.0)).unwrap());
    assert!(
        disk.steps() - steps < 2 * 100 + 12 * 10,
        "an answer is one append, and every eleventh a reservation"
    );
}

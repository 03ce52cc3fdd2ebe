//! A durable server that closes rounds without those who stay away goes on, after a power cut, with
//! the same chain: who answered is written down.

#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use consilience_core::model::{Isotropic, Potential, Prior};
use consilience_core::protocol::{Client, Device, Event, Output, Server, Statement};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::{Batch, Keys, Participation, Recipe, Sampler, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::store::{DurableServer, Faults, Simulated};

const ROUNDS: u64 = 120;

fn recipe() -> (Recipe, Target) {
    let client = |i: usize| -> Arc<dyn Potential> {
        Arc::new(Isotropic::new((0..6).map(|k| (k * i) as f64 / 3.0).collect(), 2).unwrap())
    };
    let target =
        Target::new((0..3).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    let participation = Participation::Elastic(vec![0.7; 3]);
    let recipe = Recipe::Uplink(Uplink {
        participation,
        ..Uplink::lsd_plus_plus(Schedule::Constant(0.01), Batch::Rows(2), 5, None)
    });
    let target = recipe.check(target).unwrap();
    (recipe, target)
}

fn open(disk: &Simulated, draws: &mut Vec<Vec<f64>>) -> DurableServer<Simulated, Box<dyn Sampler>> {
    let (recipe, target) = recipe();
    let keys = Keys::simulation(Seed::new(1), 0);
    let machine = recipe.server(&target, &[0.3, 0.3], keys).unwrap();
    let fresh = Server::new(
        machine,
        Statement::new([("a", "b")]),
        3,
        recipe.format(&target, keys).unwrap(),
    );
    let opened = DurableServer::open(disk.clone(), fresh, |number, machine| {
        let draw = machine.position().to_vec();
        if number < draws.len() as u64 {
            assert_eq!(draws[number as usize], draw)
        } else {
            draws.push(draw)
        }
    });
    opened.unwrap().0
}

/// Who answers is a function of the round, so that runs with and without power cuts have the same
/// log.
fn run(power_cuts: bool) -> (Vec<Vec<f64>>, u64) {
    let (recipe, target) = recipe();
    let keys = Keys::simulation(Seed::new(1), 0);
    let format = recipe.format(&target, keys).unwrap();
    let client =
        |i| Client::new(recipe.client(&target, ClientId(i), keys).unwrap(), format.clone());
    let mut clients: Vec<Client<Box<dyn Device>>> = (0..3).map(client).collect();
    let disk = Simulated::new(8, Faults::default());
    let mut dice = Seed::new(2).stream(Purpose::Data, SERVER, 0);
    let (mut draws, mut cuts) = (Vec::new(), 0);
    let mut server = open(&disk, &mut draws);
    while (draws.len() as u64) < ROUNDS {
        if power_cuts && dice.below(6) == 0 {
            disk.power_cut();
            server = open(&disk, &mut draws);
            cuts += 1;
        }
        if dice.below(20) == 0 {
            server.checkpoint().unwrap();
        }
        match server.poll().unwrap() {
            Some(Output::Send { to, bytes }) => {
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                let here =
                    Seed::new(3).stream(Purpose::Participation, to, server.draws()).coin(0.7);
                if here && server.server().outstanding().any(|id| id == to) {
                    server.handle(to, &answer).unwrap();
                }
            }
            Some(Output::Happened(event)) => {
                assert_eq!(event, Event::Draw);
                draws.truncate(server.draws() as usize - 1);
                draws.push(server.server().machine().position().to_vec());
            }
            None => drop(server.close().unwrap()),
        }
    }
    (draws, cuts)
}

#[test]
fn closed_rounds_are_written_down() {
    let ((draws, _), (with_cuts, cuts)) = (run(false), run(true));
    assert!(cuts > 50, "{cuts}");
    assert!(
        draws == with_cuts,
        "the draws differ first at {:?}",
        draws.iter().zip(&with_cuts).position(|(a, b)| a != b)
    );
}

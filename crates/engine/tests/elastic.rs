//! A durable server that closes rounds without those who stay away goes on, after a power cut, with
//! the same chain: who answered is written down.

#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::protocol::{Client, Device, Event, Output, Statement};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::{Batch, Keys, Participation, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::chain_log::ChainLog;
use consilience_engine::draws::DrawSink;
use consilience_engine::plan::Plan;
use consilience_engine::simulation::Setup;
use consilience_engine::store::{DurableServer, Faults, ServedChain, Simulated};

const ROUNDS: u64 = 120;

fn plan() -> Plan {
    let client = |i: usize| -> Arc<dyn Model> {
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
    Setup { recipe, target, start: vec![0.3, 0.3], iterations: ROUNDS }.plan()
}

fn open<'a>(
    disk: &Simulated,
    plan: &'a Plan,
    statement: &'a Statement,
) -> DurableServer<'a, Simulated> {
    let keys = Keys::simulation(Seed::new(1), 0);
    let served = ServedChain {
        plan,
        run: &plan.length,
        index: 0,
        keys,
        statement,
        largest_norm: f64::INFINITY,
        ahead: 9, // of no effect in elastic mode
    };
    let chain_log = ChainLog::new(DrawSink::Memory(Vec::new()), 2);
    DurableServer::open(served, chain_log, Some(disk.clone())).unwrap().0
}

/// Who answers is a function of the round, so that runs with and without power cuts have the same
/// log.
fn run(power_cuts: bool) -> (Vec<f64>, u64) {
    let (plan, statement) = (plan(), Statement::new([("a", "b")]));
    let keys = Keys::simulation(Seed::new(1), 0);
    let format = plan.recipe.format(&plan.target, keys).unwrap();
    let client = |i| {
        Client::new(plan.recipe.client(&plan.target, ClientId(i), keys).unwrap(), format.clone())
    };
    let mut clients: Vec<Client<Box<dyn Device>>> = (0..3).map(client).collect();
    let disk = Simulated::new(8, Faults::default());
    let mut dice = Seed::new(2).stream(Purpose::Data, SERVER, 0);
    let (mut told, mut cuts) = (Vec::new(), 0);
    let mut server = open(&disk, &plan, &statement);
    while server.goes_on() {
        if power_cuts && dice.below(6) == 0 {
            disk.power_cut();
            server = open(&disk, &plan, &statement);
            assert!(server.so_far().starts_with(&told), "what was told is found again");
            cuts += 1;
        }
        if dice.below(20) == 0 {
            server.checkpoint();
        }
        match server.poll().unwrap() {
            Some(Output::Send { to, bytes }) => {
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                let draws = server.so_far().len() as u64 / 2;
                let here = Seed::new(3).stream(Purpose::Participation, to, draws).coin(0.7);
                if here && server.server().outstanding().any(|id| id == to) {
                    server.handle(to, &answer, 0).unwrap();
                }
            }
            Some(Output::Happened(event)) => {
                assert_eq!(event, Event::Draw);
                told = server.so_far().to_vec();
            }
            None => drop(server.close().unwrap()),
        }
    }
    (told, cuts)
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

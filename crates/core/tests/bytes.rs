//! The protocol's bytes carry the same chain as direct calls, bit for bit, in any order of arrival;
//! and what they cost is what is counted.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::compress::{CodeChoice, Compressor};
use consilience_core::model::Prior;
use consilience_core::protocol::{
    Client, Direction, Event, Kind, Ledger, Output, Precision, Refusal, Server, Statement,
};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::{Batch, Keys, Local, Participation, Recipe, Sampler, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

fn statement() -> Statement {
    Statement::new([("model", "linear")])
}

fn recipes() -> Vec<Recipe> {
    let step = Schedule::Constant(0.01);
    let mut recipes = Vec::new();
    for precision in [Precision::F32, Precision::F64] {
        let coins = Participation::Bernoulli(vec![0.3, 0.5, 0.9]);
        let memory = Uplink {
            participation: coins,
            precision,
            ..Uplink::lsd_plus_plus(step, Batch::Rows(2), 5, Some(0.5))
        };
        recipes.push(Recipe::Uplink(memory));
        recipes.push(Recipe::Local(Local {
            precision,
            ..Local::vr_fald_star(step, 3, 0.5, 0.3, 0.3, Batch::Rows(2))
        }));
        recipes.push(Recipe::Local(Local {
            precision,
            ..Local::dg_lmc(step, vec![0.2, 0.3, 0.5], 3, 4.0, Batch::Rows(2))
        }));
        recipes.push(Recipe::Local(Local {
            precision,
            average: consilience_core::sampler::Average::WithReplacement(2),
            ..Local::fa_ld(step, vec![0.2, 0.3, 0.5], 3, 0.5, Batch::Full)
        }));
    }
    // Every kind of compressor and code, up and down.
    let small = Schedule::Constant(0.002);
    let scaled = Compressor::qsgd(3).scaled();
    for code in ["auto", "fixed", "elias", "entropy", "elias(gamma, dense)"] {
        let code: CodeChoice = code.parse().unwrap();
        let coins = Participation::Bernoulli(vec![0.3, 0.5, 0.9]);
        let each = vec![Compressor::qsgd(4), Compressor::natural(), Compressor::rand_k(1)];
        let memory = Uplink {
            up: each,
            code,
            participation: coins,
            ..Uplink::lsd_plus_plus(small, Batch::Rows(2), 5, Some(0.1))
        };
        recipes.push(Recipe::Uplink(memory));
        recipes.push(Recipe::Uplink(Uplink {
            code,
            ..Uplink::b_elf(small, Compressor::top_k(1), scaled.clone())
        }));
        recipes.push(Recipe::Uplink(Uplink {
            code,
            ..Uplink::marina(small, 0.3, Compressor::qsgd(2).block(1))
        }));
        recipes.push(Recipe::Local(Local {
            code,
            up: Some((Compressor::qsgd(8), 0.5)),
            ..Local::vr_fald_star(small, 3, 0.5, 0.3, 0.3, Batch::Rows(2))
        }));
    }
    let target = linear(Prior::Flat, Placement::Server, 1.0);
    recipes.push(Recipe::Uplink(Uplink::qlsd_star_exact_error(
        small,
        Batch::Rows(2),
        anchor(&target, vec![0.25, 0.5]),
    )));
    recipes
}

/// The first `n` draws over bytes that arrive in any order, and the bits that went up and down
/// until the last of them.
fn over_bytes(
    recipe: &Recipe,
    target: &Target,
    [server, clients]: [Keys; 2],
    n: usize,
) -> (Vec<Vec<f64>>, u64, u64) {
    let checked = recipe.check(target.clone()).unwrap();
    let machine = recipe.server(&checked, &[0.3, 0.3], server).unwrap();
    let mut server: Server<Box<dyn Sampler>> =
        Server::new(machine, statement(), 3, recipe.format(&checked, server).unwrap());
    let format = recipe.format(&checked, clients).unwrap();
    let client =
        |i| Client::new(recipe.client(&checked, ClientId(i), clients).unwrap(), format.clone());
    let mut clients: Vec<_> = (0..3).map(client).collect();
    server.greet(&statement(), "a client").unwrap();

    let mut shuffle = Seed::new(9).stream(Purpose::Data, SERVER, 0);
    let (mut up, mut down) = (0u64, 0u64);
    let mut draws = Vec::new();
    let mut inbox: Vec<(ClientId, Vec<u8>)> = Vec::new();
    // The bits are those right after the last draw, before the next orders are counted.
    let mut counted = (0, 0);
    while draws.len() < n {
        match server.poll() {
            Some(Output::Send { to, bytes }) => {
                down += bytes.len() as u64 * 8;
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                inbox.push((to, answer));
            }
            Some(Output::Happened(event)) => {
                if event == Event::Draw {
                    draws.push(server.machine().position().to_vec());
                    counted = (up, down);
                }
            }
            None => {
                let at = shuffle.below(inbox.len() as u32) as usize;
                let (from, bytes) = inbox.swap_remove(at);
                up += bytes.len() as u64 * 8;
                server.handle(from, &bytes).unwrap();
            }
        }
    }
    (draws, counted.0, counted.1)
}

fn same(draws: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert!(
        draws == expected,
        "the draws differ first at {:?}",
        draws.iter().zip(expected).position(|(a, b)| a != b)
    );
}

#[test]
fn bytes_in_any_order_give_the_same_chain_and_are_all_counted() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    for recipe in recipes() {
        let mut direct = start(&recipe, &target, &[0.3, 0.3], 1, 0);
        let expected = direct.draws(200);
        let (draws, up, down) =
            over_bytes(&recipe, &target, [Keys::simulation(Seed::new(1), 0); 2], 200);
        same(&draws, &expected);
        assert_eq!(
            (direct.ledger.total(Direction::Up), direct.ledger.total(Direction::Down)),
            (up, down)
        );
        let each: u64 = (0..3).map(|i| direct.ledger.client(ClientId(i), Direction::Up)).sum();
        assert_eq!(each, up);
    }
}

/// A direct chain whose server and clients share the public key alone.
fn with_private(recipe: &Recipe, target: &Target, private: u64) -> (Vec<Vec<f64>>, [Keys; 2]) {
    let keys =
        [7, private].map(|private| Keys { public: Seed::new(1), private: Seed::new(private) });
    let checked = recipe.check(target.clone()).unwrap();
    let mut chain = Chain {
        server: recipe.server(&checked, &[0.3, 0.3], keys[0]).unwrap(),
        clients: (0..3).map(|i| recipe.client(&checked, ClientId(i), keys[1]).unwrap()).collect(),
        ledger: Ledger::new(3),
    };
    (chain.draws(200), keys)
}

#[test]
fn a_server_needs_no_private_key_to_read_what_clients_send() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    for recipe in recipes() {
        let (expected, keys) = with_private(&recipe, &target, 8);
        same(&over_bytes(&recipe, &target, keys, 200).0, &expected);
    }
}

/// With all rows a client's only choice is its compressor's: its own, unless the server has to make
/// it too.
#[test]
fn compression_is_drawn_from_the_clients_own_key_unless_both_sides_need_it() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    let depends_on_private = |recipe: Uplink| {
        let recipe = Recipe::Uplink(recipe);
        with_private(&recipe, &target, 8).0 != with_private(&recipe, &target, 9).0
    };
    let small = Schedule::Constant(0.002);
    assert!(depends_on_private(Uplink::qlsd(small, Batch::Full, Compressor::qsgd(4))));
    assert!(!depends_on_private(Uplink::qlsd_star_exact_error(
        small,
        Batch::Full,
        anchor(&target, vec![0.25, 0.5])
    )));
}

#[test]
fn lmc_costs_32_bits_a_coordinate_each_way_and_a_header() {
    let target = linear(Prior::Flat, Placement::Server, 1.0);
    let mut chain =
        start(&Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01))), &target, &[0.0, 0.0], 1, 0);
    chain.draws(100);
    assert_eq!(chain.ledger.bits(Direction::Up, Kind::Gradient), 100 * 3 * 2 * 32);
    assert_eq!(chain.ledger.bits(Direction::Down, Kind::Parameter), 100 * 3 * 2 * 32);
    assert_eq!(chain.ledger.bits(Direction::Up, Kind::Header), 100 * 3 * 16);
    assert_eq!(chain.ledger.messages(Direction::Up), 300);
}

#[test]
fn every_client_is_charged_for_its_own_compressor() {
    let rand_1 = Compressor::rand_k(1);
    let up = vec![Compressor::identity(Precision::F32), rand_1.clone(), rand_1.at(Precision::F64)];
    let small = Schedule::Constant(0.002);
    let recipe =
        Recipe::Uplink(Uplink { up, code: "fixed".parse().unwrap(), ..Uplink::lmc(small) });
    let mut chain = start(&recipe, &linear(Prior::Flat, Placement::Server, 1.0), &[0.0, 0.0], 1, 0);
    chain.draws(100);
    // A header, then two numbers; or one number and one of two indices, to the end of the byte.
    assert_eq!(
        [0, 1, 2].map(|i| chain.ledger.client(ClientId(i), Direction::Up)),
        [16 + 64, 16 + 40, 16 + 72].map(|bits| 100 * bits)
    );
}

#[test]
fn refusals_are_named_and_change_nothing() {
    let target = linear(Prior::Flat, Placement::Server, 1.0);
    let recipe = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01)));
    let keys = Keys::simulation(Seed::new(1), 0);
    let new = || {
        Server::new(
            recipe.server(&target, &[0.0, 0.0], keys).unwrap(),
            statement(),
            3,
            recipe.format(&target, keys).unwrap(),
        )
    };
    let (mut server, mut honest) = (new(), new());
    let mut clients: Vec<_> = (0..3)
        .map(|i| {
            Client::new(
                recipe.client(&target, ClientId(i), keys).unwrap(),
                recipe.format(&target, keys).unwrap(),
            )
        })
        .collect();
    let mut answers = Vec::new();
    while let Some(Output::Send { to, bytes }) = server.poll() {
        let mut answer = Vec::new();
        clients[to.index()].handle(&bytes, &mut answer).unwrap();
        answers.push((to, answer));
    }
    assert!(matches!(server.handle(ClientId(7), &answers[0].1), Err(Refusal::NotAsked { .. })));
    assert!(matches!(
        server.handle(ClientId(0), &answers[0].1[1..]),
        Err(Refusal::Malformed { .. })
    ));
    let mut late = answers[0].1.clone();
    late[1] = 5;
    assert_eq!(
        server.handle(ClientId(0), &late),
        Err(Refusal::WrongRound { from: ClientId(0), found: 5, round: 0 })
    );
    server.handle(ClientId(2), &answers[2].1).unwrap();
    assert!(matches!(server.handle(ClientId(2), &answers[2].1), Err(Refusal::Twice { .. })));
    server.handle(ClientId(0), &answers[0].1).unwrap();
    assert!(matches!(server.handle(ClientId(0), &answers[0].1), Err(Refusal::Twice { .. })));
    server.handle(ClientId(1), &answers[1].1).unwrap();
    while honest.poll().is_some() {}
    for (from, bytes) in &answers {
        honest.handle(*from, bytes).unwrap();
    }
    for server in [&mut server, &mut honest] {
        assert_eq!(server.poll(), Some(Output::Happened(Event::Draw)));
    }
    assert_eq!(server.machine().position(), honest.machine().position());
    assert!(server.greet(&Statement::new([("model", "logistic")]), "client 1").is_err());
}

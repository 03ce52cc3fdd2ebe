//! Clients that drop out at random leave the law that the exact one says; who may not drop out is
//! refused by name; the chain is a function of the seed and of who answered.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::compress::Compressor;
use consilience_core::model::Prior;
use consilience_core::protocol::{Client, Device, Event, Output, Server, Statement};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::exact::{posterior, stationary};
use consilience_core::sampler::{Batch, Keys, Participation, Recipe, Sampler, Uplink, Weighting};
use consilience_core::snapshot::{restore, save};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

fn target() -> Target {
    linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0)
}

fn elastic(recipe: Uplink, p: &[f64]) -> Recipe {
    Recipe::Uplink(Uplink { participation: Participation::Elastic(p.to_vec()), ..recipe })
}

/// One exchange in which each client answers in time with its probability; one that is late has
/// done its work all the same.
fn exchange_elastic(chain: &mut Chain, p: &[f64], dice: &mut consilience_core::rng::Stream) {
    for id in chain.server.cohort().to_vec() {
        let (here, asked) = (dice.coin(p[id.index()]), dice.coin(0.5));
        let order = chain.server.order(id);
        if here || asked {
            let reply = chain.clients[id.index()].answer(&order);
            if here {
                chain.server.absorb(id, &reply);
            }
        }
    }
    assert_eq!(chain.server.advance(), Event::Draw);
}

/// Means and second moments of 256 chains against the exact law with coins of the same
/// probabilities: `|z| < 4.9` fails once in a million for each of five numbers, and the same
/// numbers reject the posterior, and the law without drop-outs.
#[test]
fn drop_outs_at_random_leave_the_exact_law() {
    let p = [0.7, 0.6, 0.8];
    let step = Schedule::Constant(0.02);
    let target = target();
    let optimum = || anchor(&target, posterior(&target).unwrap().mean);
    let f64_wire =
        |recipe: Uplink| Uplink { precision: consilience_core::protocol::Precision::F64, ..recipe };
    for (name, recipe) in [
        ("lmc", Uplink::lmc(step)),
        ("lsd++", Uplink::lsd_plus_plus(step, Batch::Rows(4), 5, None)),
        (
            "qlsd*",
            Uplink::qlsd_star(
                step,
                Batch::Rows(4),
                optimum(),
                Compressor::rand_k(1).at(consilience_core::protocol::Precision::F64),
            ),
        ),
    ] {
        let recipe = f64_wire(recipe);
        let law = stationary(&elastic(recipe.clone(), &p), &target).unwrap();
        let without = stationary(&Recipe::Uplink(recipe.clone()), &target).unwrap();
        let recipe = elastic(recipe, &p);
        let (chains, burn_in, draws) = (256, 100, 400);
        let mut moments = Vec::new();
        for c in 0..chains {
            let mut chain = start(&recipe, &target, &law.mean, 20, c);
            let mut dice = Seed::new(77).chain(c).stream(Purpose::Data, SERVER, 0);
            (0..burn_in).for_each(|_| exchange_elastic(&mut chain, &p, &mut dice));
            let mut sums = [0.0; 5];
            for _ in 0..draws {
                exchange_elastic(&mut chain, &p, &mut dice);
                let x: Vec<f64> =
                    chain.server.position().iter().zip(&law.mean).map(|(x, m)| x - m).collect();
                let now = [x[0], x[1], x[0] * x[0], x[1] * x[0], x[1] * x[1]];
                sums.iter_mut().zip(now).for_each(|(s, v)| *s += v / f64::from(draws));
            }
            moments.push(sums);
        }
        let z = |law: &consilience_core::sampler::exact::StationaryLaw, mean: &[f64]| {
            let shift = [law.mean[0] - mean[0], law.mean[1] - mean[1]];
            let c = &law.covariance;
            let expected = [
                shift[0],
                shift[1],
                c[0] + shift[0] * shift[0],
                c[2] + shift[0] * shift[1],
                c[3] + shift[1] * shift[1],
            ];
            (0..5).fold(0.0f64, |largest, k| {
                let n = moments.len() as f64;
                let mean = moments.iter().map(|m| m[k]).sum::<f64>() / n;
                let variance =
                    moments.iter().map(|m| (m[k] - mean).powi(2)).sum::<f64>() / (n - 1.0);
                largest.max((mean - expected[k]).abs() / (variance / n).sqrt())
            })
        };
        let exact = z(&law, &law.mean);
        assert!(exact < 4.9, "{name}: {exact:.2} standard errors off the exact law");
        assert!(
            z(&posterior(&target).unwrap(), &law.mean) > 4.9,
            "{name}: the posterior is not told from it"
        );
        if name == "lmc" {
            assert!(
                z(&without, &law.mean) > 4.9,
                "{name}: the law without drop-outs is not told from it"
            );
        }
    }
}

#[test]
fn attendance_names_whoever_does_not_keep_its_word() {
    let recipe = elastic(Uplink::lmc(Schedule::Constant(0.01)), &[0.7; 3]);
    let mut dice = Seed::new(3).stream(Purpose::Data, SERVER, 0);
    for (real, named) in [([0.7, 0.7, 0.7], vec![]), ([0.7, 0.4, 0.7], vec![ClientId(1)])] {
        let mut chain = start(&recipe, &target(), &[0.3, 0.3], 1, 0);
        (0..2000).for_each(|_| exchange_elastic(&mut chain, &real, &mut dice));
        let found: Vec<ClientId> =
            chain.server.attendance().unwrap().irregular(4.9).iter().map(|i| i.client).collect();
        assert_eq!(found, named, "{real:?}");
    }
}

/// What a server has noted of its clients survives a restart, and counts on from there: every
/// frequency and pull is that of a server that never stopped.
#[test]
fn a_restored_server_remembers_who_stayed_away() {
    let recipe = elastic(Uplink::lmc(Schedule::Constant(0.01)), &[0.7, 0.6, 0.9]);
    let real = [0.6, 0.7, 0.8];
    let everybody = |chain: &Chain| chain.server.attendance().unwrap().irregular(0.0);
    let mut dice = Seed::new(3).stream(Purpose::Data, SERVER, 0);
    let mut whole = start(&recipe, &target(), &[0.3, 0.3], 1, 0);
    (0..53).for_each(|_| exchange_elastic(&mut whole, &real, &mut dice));
    let mut resumed = start(&recipe, &target(), &[7.0, -7.0], 1, 0);
    restore(&mut resumed.server, &save(&mut whole.server)).unwrap();
    for (to, from) in resumed.clients.iter_mut().zip(&mut whole.clients) {
        restore(to, &save(from)).unwrap();
    }
    assert_eq!(
        everybody(&whole).len(),
        3,
        "in 53 rounds nobody can be there with exactly these frequencies"
    );
    assert_eq!(everybody(&resumed), everybody(&whole));
    let mut same_dice = dice.clone();
    (0..50).for_each(|_| exchange_elastic(&mut whole, &real, &mut dice));
    (0..50).for_each(|_| exchange_elastic(&mut resumed, &real, &mut same_dice));
    assert_eq!(everybody(&resumed), everybody(&whole));
    assert_eq!(resumed.server.position(), whole.server.position());
}

#[test]
fn what_is_unsound_is_refused() {
    let step = Schedule::Constant(0.002);
    let refused =
        |recipe: Uplink| elastic(recipe, &[0.7; 3]).check(target()).unwrap_err().to_string();
    let qsgd = Compressor::qsgd(4);
    assert!(
        refused(Uplink::qlsd_plus_plus(step, Batch::Full, 5, Some(0.1), qsgd)).contains("too late")
    );
    assert!(
        refused(Uplink { weighting: Weighting::Ratio, ..Uplink::lmc(step) }).contains("biased")
    );
    assert!(!refused(Uplink::b_elf(step, Compressor::top_k(1), Compressor::top_k(1))).is_empty());
    assert!(
        refused(Uplink::qlsd_star_exact_error(
            step,
            Batch::Full,
            anchor(&target(), vec![0.2, 0.5])
        ))
        .contains("everybody")
    );
}

struct Parties {
    server: Server<Box<dyn Sampler>>,
    clients: Vec<Client<Box<dyn Device>>>,
}

fn parties(recipe: &Recipe) -> Parties {
    let (target, keys) = (recipe.check(target()).unwrap(), Keys::simulation(Seed::new(1), 0));
    let format = || recipe.format(&target, keys).unwrap();
    Parties {
        server: Server::new(
            recipe.server(&target, &[0.3, 0.3], keys).unwrap(),
            Statement::new([("a", "b")]),
            3,
            format(),
        ),
        clients: (0..3)
            .map(|i| Client::new(recipe.client(&target, ClientId(i), keys).unwrap(), format()))
            .collect(),
    }
}

/// Answers come in any order or too late, rounds are closed; the same log of who answered gives the
/// same chain, over restarts too.
#[test]
fn a_chain_is_a_function_of_the_seed_and_of_who_answered() {
    let recipe = elastic(
        Uplink::lsd_plus_plus(Schedule::Constant(0.003), Batch::Rows(3), 5, None),
        &[0.7; 3],
    );
    let run = |backwards: bool, restarts: bool| {
        let mut all = parties(&recipe);
        let mut log = Seed::new(5).stream(Purpose::Data, SERVER, 0);
        let mut draws = Vec::new();
        for _ in 0..100 {
            let (mut answers, mut late) = (Vec::new(), Vec::new());
            while let Some(output) = all.server.poll() {
                if let Output::Send { to, bytes } = output {
                    let mut answer = Vec::new();
                    all.clients[to.index()].handle(&bytes, &mut answer).unwrap();
                    if log.coin(0.7) { answers.push((to, answer)) } else { late.push((to, answer)) }
                }
            }
            if backwards {
                answers.reverse();
            }
            for (from, answer) in &answers {
                all.server.handle(*from, answer).unwrap();
            }
            if restarts {
                let bytes = save(&mut all.server);
                all.server = parties(&recipe).server;
                restore(&mut all.server, &bytes).unwrap();
            }
            let absent: Vec<ClientId> = late.iter().map(|(from, _)| *from).collect();
            assert_eq!(all.server.close(), Some(absent));
            assert_eq!(all.server.poll(), Some(Output::Happened(Event::Draw)));
            draws.push(all.server.machine().position().to_vec());
            late.iter().for_each(|(from, answer)| {
                assert!(all.server.handle(*from, answer).is_err(), "it is too late")
            });
            all.clients
                .iter()
                .enumerate()
                .for_each(|(i, c)| all.server.welcome(ClientId(i as u32), c.answered()).unwrap());
        }
        draws
    };
    let draws = run(false, false);
    assert_eq!(draws, run(true, false));
    assert_eq!(draws, run(true, true));
    let mut strict = parties(&Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.003)))).server;
    while strict.poll().is_some() {}
    assert_eq!(strict.close(), None, "a strict round waits for everybody");
}

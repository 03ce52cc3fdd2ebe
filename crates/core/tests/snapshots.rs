//! What is saved and restored goes on as if nothing had happened, bit for bit, for every sampler
//! and survey, between exchanges and in the middle of one.

#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use common::*;
use consilience_core::model::Prior;
use consilience_core::protocol::{
    Answered, Client, Device, Event, Exchange, Ledger, Limits, OrderRefusal, Output, Refusal,
    Server, Statement, exchange,
};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::registry::{Axis, REGISTRY, Settings};
use consilience_core::sampler::{
    Average, Batch, Keys, Local, Participation, Recipe, Sampler, Synchronise, Uplink,
};
use consilience_core::snapshot::{SnapshotError, State, restore, save};
use consilience_core::step::Schedule;
use consilience_core::survey::{self, AlongScale, Curvature, Hessian, LocalCurvature, Optimum};
use consilience_core::target::{Placement, Target};

fn target() -> Target {
    linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0)
}

/// Every row of the registry, as it is and with all that it can be told.
fn recipes() -> Vec<(String, Recipe)> {
    let target = target();
    let mut recipes = Vec::new();
    for row in REGISTRY {
        let has = |axis| row.axes.contains(&axis);
        let mut rich = vec![Settings::default()];
        let busy = Settings {
            batch: has(Axis::Batch).then_some(Batch::Rows(3)),
            refresh_every: Some(5),
            refresh_probability: Some(0.3),
            memory_rate: has(Axis::Memory).then_some(0.1),
            participation: has(Axis::Participation)
                .then(|| Participation::Bernoulli(vec![0.3, 0.5, 0.9])),
            synchronise: row.has(Axis::Synchronise).then_some(Synchronise::Randomly(0.3)),
            correlation: has(Axis::Correlation).then_some(0.5),
            ..Settings::default()
        };
        if row.has(Axis::Synchronise) && has(Axis::Compress) {
            rich.push(Settings {
                compress: Some(vec!["qsgd(8)".parse().unwrap()]),
                ..busy.clone()
            });
        }
        if has(Axis::Average) {
            rich.push(Settings { average: Some(Average::WithReplacement(2)), ..busy.clone() });
            rich.push(Settings { average: Some(Average::WithoutReplacement(1)), ..busy.clone() });
        }
        if has(Axis::Participation) {
            rich.push(Settings { participation: Some(Participation::Fixed(2)), ..busy.clone() });
        }
        rich.push(busy);
        for (k, settings) in rich.into_iter().enumerate() {
            let optimum =
                row.needs_optimum.then(|| anchor(&target, posterior(&target).unwrap().mean));
            recipes.push((
                format!("{} ({k})", row.name),
                row.recipe(Schedule::Constant(0.003), &settings, 3, 2, optimum),
            ));
        }
    }
    recipes
}

fn bits(x: &[f64]) -> Vec<u64> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn a_restored_chain_goes_on_as_the_uninterrupted_one() {
    let target = target();
    for (name, recipe) in recipes() {
        for before in [0, 1, 2, 3, 4, 5, 9, 10, 33, 64] {
            let mut whole = start(&recipe, &target, &[0.3, 0.3], 1, 0);
            for _ in 0..before {
                exchange(&mut *whole.server, &mut whole.clients, &mut whole.ledger);
            }
            // nothing is left of where it starts
            let mut resumed = start(&recipe, &target, &[7.0, -7.0], 1, 0);
            restore(&mut resumed.server, &save(&mut whole.server)).unwrap();
            restore(&mut resumed.ledger, &save(&mut whole.ledger)).unwrap();
            for (to, from) in resumed.clients.iter_mut().zip(&mut whole.clients) {
                restore(to, &save(from)).unwrap();
            }
            for after in 0..12 {
                let at = format!("{name}, {before} exchanges and {after}");
                let events = [&mut whole, &mut resumed]
                    .map(|c| exchange(&mut *c.server, &mut c.clients, &mut c.ledger));
                assert_eq!(events[0], events[1], "{at}");
                assert_eq!(bits(whole.server.position()), bits(resumed.server.position()), "{at}");
                assert_eq!(whole.server.iteration(), resumed.server.iteration(), "{at}");
                assert_eq!(whole.ledger, resumed.ledger, "{at}");
                let rows = [&whole, &resumed]
                    .map(|c| c.clients.iter().map(|c| c.rows_evaluated()).collect::<Vec<_>>());
                assert_eq!(rows[0], rows[1], "{at}");
            }
        }
    }
}

struct Parties<'a> {
    recipe: &'a Recipe,
    target: Target,
    keys: Keys,
    server: Server<Box<dyn Sampler>>,
    clients: Vec<Client<Box<dyn Device>>>,
}

impl<'a> Parties<'a> {
    fn new(recipe: &'a Recipe) -> Self {
        let target = recipe.check(target()).unwrap();
        let keys = Keys::simulation(Seed::new(1), 0);
        let server = Self::server(recipe, &target, keys, [0.3, 0.3]);
        let clients = (0..3).map(|i| Self::client(recipe, &target, keys, i)).collect();
        Parties { recipe, target, keys, server, clients }
    }

    fn server(
        recipe: &Recipe,
        target: &Target,
        keys: Keys,
        from: [f64; 2],
    ) -> Server<Box<dyn Sampler>> {
        let machine = recipe.server(target, &from, keys).unwrap();
        Server::new(
            machine,
            Statement::new([("model", "linear")]),
            3,
            recipe.format(target, keys).unwrap(),
        )
    }

    fn client(recipe: &Recipe, target: &Target, keys: Keys, i: u32) -> Client<Box<dyn Device>> {
        Client::new(
            recipe.client(target, ClientId(i), keys).unwrap(),
            recipe.format(target, keys).unwrap(),
        )
    }

    /// Somebody stops and starts again from its snapshot.
    fn restart(&mut self, who: u32) {
        if who < 3 {
            let client = &mut self.clients[who as usize];
            let bytes = save(client);
            *client = Self::client(self.recipe, &self.target, self.keys, who);
            restore(client, &bytes).unwrap();
            assert_eq!(save(client), bytes);
        } else {
            let bytes = save(&mut self.server);
            self.server = Self::server(self.recipe, &self.target, self.keys, [7.0, -7.0]);
            restore(&mut self.server, &bytes).unwrap();
            assert_eq!(save(&mut self.server), bytes);
        }
    }
}

/// Messages come twice and out of order, orders are given again, and after every third step
/// somebody restarts from its snapshot.
#[test]
fn parties_that_restart_at_any_point_sample_the_same_chain() {
    const DRAWS: usize = 60;
    for (name, recipe) in recipes() {
        let mut direct = start(&recipe, &target(), &[0.3, 0.3], 1, 0);
        let expected = direct.draws(DRAWS);
        let mut dice = Seed::new(2).stream(Purpose::Data, SERVER, 0);
        let mut parties = Parties::new(&recipe);
        let (mut draws, mut replies, mut ledger) =
            (Vec::new(), Vec::<(ClientId, Vec<u8>)>::new(), None);
        while draws.len() < DRAWS {
            if dice.below(3) == 0 {
                parties.restart(dice.below(4));
                let all = parties.clients.iter().enumerate();
                all.for_each(|(i, c)| {
                    parties.server.welcome(ClientId(i as u32), c.answered()).unwrap()
                });
            }
            match parties.server.poll() {
                Some(Output::Send { to, bytes }) => {
                    let mut answer = Vec::new();
                    parties.clients[to.index()].handle(&bytes, &mut answer).unwrap();
                    if dice.below(5) > 0 {
                        replies.push((to, answer));
                    }
                }
                Some(Output::Happened(event)) => {
                    if event == Event::Draw {
                        draws.push(parties.server.machine().position().to_vec());
                        ledger = Some(parties.server.ledger().clone());
                    }
                    replies.clear(); // the last round's are of no use to anybody
                }
                None => {
                    if replies.is_empty() || dice.below(4) == 0 {
                        let to = parties.server.outstanding().next().unwrap();
                        let order = parties.server.again(to).unwrap();
                        let mut answer = Vec::new();
                        assert_eq!(
                            parties.clients[to.index()].handle(&order, &mut answer),
                            Ok(Answered::Again),
                            "{name}"
                        );
                        replies.push((to, answer));
                    }
                    let at = dice.below(replies.len() as u32) as usize;
                    let (from, bytes) = replies[at].clone();
                    match parties.server.handle(from, &bytes) {
                        Ok(()) => {}
                        Err(Refusal::Twice { .. }) => drop(replies.swap_remove(at)),
                        Err(other) => panic!("{name}: {other}"),
                    }
                }
            }
        }
        assert!(
            draws == expected,
            "{name}: the draws differ first at {:?}",
            draws.iter().zip(&expected).position(|(a, b)| a != b)
        );
        assert_eq!(ledger, Some(direct.ledger), "{name}");
    }
}

#[test]
fn a_snapshot_of_something_else_is_refused_and_changes_nothing() {
    let recipes = recipes();
    let chains: Vec<_> =
        recipes.iter().map(|(_, recipe)| start(recipe, &target(), &[0.3, 0.3], 1, 0)).collect();
    let toy = toy(Prior::Flat, Placement::Server);
    let uplink = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01)));
    let mut foreign = start(&uplink, &toy, &[0.0, 0.0], 1, 0);
    for mut chain in chains {
        let before = (save(&mut chain.server), save(&mut chain.clients[0]));
        let mut server_bytes = before.0.clone();
        server_bytes.push(0);
        assert_eq!(
            restore(&mut chain.server, &server_bytes),
            Err(SnapshotError::Overlong { surplus: 1 })
        );
        assert!(matches!(
            restore(&mut chain.server, &before.1),
            Err(SnapshotError::Subject { .. })
        ));
        assert!(matches!(
            restore(&mut chain.clients[0], &before.0),
            Err(SnapshotError::Subject { .. })
        ));
        for cut in [0, 3, 4, 20, before.0.len() / 2, before.0.len() - 1] {
            assert!(restore(&mut chain.server, &before.0[..cut]).is_err());
        }
        assert_eq!((save(&mut chain.server), save(&mut chain.clients[0])), before);
    }
    // Another dimension is named.
    let mut wide = start(&uplink, &three(), &[0.0; 3], 1, 0);
    assert_eq!(
        restore(&mut foreign.server, &save(&mut wide.server)),
        Err(SnapshotError::Length { what: "the parameter", found: 3, expected: 2 })
    );
}

fn three() -> Target {
    use consilience_core::model::Isotropic;
    Target::new(
        vec![std::sync::Arc::new(Isotropic::new(normals(1, 9), 3).unwrap())],
        Prior::Flat,
        Placement::Server,
        1.0,
    )
    .unwrap()
}

/// Run a survey whole, and with everything restored into `fresh` after every exchange: the
/// snapshots stay the same to the end.
fn survey_survives<S: Exchange + State>(mut whole: S, fresh: impl Fn() -> S) {
    let target = target();
    let (mut clients, mut ledger) = (survey::Client::all(&target), Ledger::new(3));
    let mut resumed = fresh();
    restore(&mut resumed, &save(&mut whole)).unwrap();
    let (mut their_clients, mut their_ledger) = (survey::Client::all(&target), Ledger::new(3));
    loop {
        let event = exchange(&mut whole, &mut clients, &mut ledger);
        assert_eq!(event, exchange(&mut resumed, &mut their_clients, &mut their_ledger));
        assert_eq!(save(&mut whole), save(&mut resumed));
        if event == Event::Done {
            break;
        }
        let bytes = save(&mut resumed);
        resumed = fresh();
        restore(&mut resumed, &bytes).unwrap();
        let mut others = survey::Client::all(&target);
        others
            .iter_mut()
            .zip(&mut their_clients)
            .for_each(|(to, from)| restore(to, &save(from)).unwrap());
        their_clients = others;
    }
    assert_eq!(ledger, their_ledger);
}

#[test]
fn surveys_survive_too() {
    let target = target();
    survey_survives(Optimum::new(&target, &[0.0, 0.0], 1e-9, 100), || {
        Optimum::new(&target, &[3.0, 1.0], 1e-9, 100)
    });
    let curvature = |point: [f64; 2], seed| Curvature::new(&target, &point, Seed::new(seed));
    survey_survives(curvature([0.1, 0.2], 1), || curvature([5.0, 5.0], 2));
    let (mut one, mut other) = (curvature([0.1, 0.2], 1), curvature([5.0, 5.0], 2));
    restore(&mut other, &save(&mut one)).unwrap();
    assert_eq!(save(&mut other), save(&mut one));
    survey_survives(Hessian::new(&target, &[0.1, 0.2]), || Hessian::new(&target, &[5.0, 5.0]));
    survey_survives(LocalCurvature::new(&target, &[0.1, 0.2]), || {
        LocalCurvature::new(&target, &[5.0, 5.0])
    });
    survey_survives(AlongScale::new(&target), || AlongScale::new(&target));
}

#[test]
fn a_client_answers_again_in_the_same_bytes_and_nothing_else_twice() {
    let walk = Recipe::Local(Local::fa_ld(
        Schedule::Constant(0.003),
        vec![1.0 / 3.0; 3],
        4,
        0.5,
        Batch::Rows(2),
    ));
    let mut parties = Parties::new(&walk);
    let mut orders = Vec::new();
    while orders.len() < 3 {
        if let Some(Output::Send { to, bytes }) = parties.server.poll() {
            let mut answer = Vec::new();
            assert_eq!(parties.clients[to.index()].handle(&bytes, &mut answer), Ok(Answered::Anew));
            if to == ClientId(0) {
                orders.push((bytes, answer.clone()));
            }
            parties.server.handle(to, &answer).unwrap();
        }
    }
    let client = &mut parties.clients[0];
    let before = save(client);
    let refused = |client: &mut Client<Box<dyn Device>>, bytes: &[u8]| {
        let mut out = Vec::new();
        let refusal = client.handle(bytes, &mut out).unwrap_err();
        assert!(out.is_empty() && save(client) == before, "{refusal}");
        refusal
    };
    let (order, answer) = &orders[2]; // iterations 8 to 11
    let mut again = Vec::new();
    assert_eq!(client.handle(order, &mut again), Ok(Answered::Again));
    assert_eq!(&again, answer);
    assert_eq!(refused(client, &orders[1].0), OrderRefusal::Old { found: 4, last: 8 });
    let mut elsewhere = order.clone();
    *elsewhere.last_mut().unwrap() ^= 1; // another point with the same noise
    assert_eq!(refused(client, &elsewhere), OrderRefusal::Changed { round: 8 });
    let mut overlapping = order.clone();
    overlapping[1] = 10; // the round
    assert_eq!(refused(client, &overlapping), OrderRefusal::Used { found: 10, used: 12 });
    let mut gradient = order.clone();
    (gradient[0], gradient[1]) = (gradient[0] & !7 | 2, 12);
    gradient.remove(2); // the steps
    assert_eq!(
        refused(client, &gradient),
        OrderRefusal::Unfit { task: consilience_core::protocol::Task::Gradient }
    );
    let mut endless = order[..2].to_vec();
    endless[1] = 12;
    endless.extend([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
    endless.extend(&order[3..]);
    assert_eq!(refused(client, &endless), OrderRefusal::Beyond { end: u64::MAX });
    assert!(matches!(refused(client, &order[..5]), OrderRefusal::Malformed(_)));
}

#[test]
fn a_server_refuses_vectors_beyond_its_limit() {
    let lmc = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01)));
    let mut parties = Parties::new(&lmc);
    parties.server =
        Parties::server(&lmc, &parties.target, parties.keys, [0.3, 0.3]).limited(Limits::new(1e-3));
    let Some(Output::Send { to, bytes }) = parties.server.poll() else { panic!("nobody is asked") };
    let mut answer = Vec::new();
    parties.clients[to.index()].handle(&bytes, &mut answer).unwrap();
    let before = save(&mut parties.server);
    assert!(matches!(parties.server.handle(to, &answer),
            Err(Refusal::TooLarge { norm, most: 1e-3, .. }) if norm > 1e-3));
    assert_eq!(save(&mut parties.server), before);
}

#[test]
fn whoever_lost_its_last_answers_is_noticed_when_it_comes_back() {
    let lmc = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01)));
    let mut parties = Parties::new(&lmc);
    let mut states = Vec::new();
    for _ in 0..3 {
        states.push((save(&mut parties.server), save(&mut parties.clients[0])));
        while let Some(output) = parties.server.poll() {
            let Output::Send { to, bytes } = output else { break };
            let mut answer = Vec::new();
            parties.clients[to.index()].handle(&bytes, &mut answer).unwrap();
            parties.server.handle(to, &answer).unwrap();
        }
    }
    let from = ClientId(0);
    assert_eq!(parties.server.welcome(from, 3), Ok(()));
    restore(&mut parties.clients[0], &states[2].1).unwrap();
    assert_eq!(parties.clients[0].answered(), 2);
    assert_eq!(
        parties.server.welcome(from, 2),
        Err(Refusal::ClientForgot { from, has: 2, needs: 3 })
    );
    restore(&mut parties.server, &states[2].0).unwrap(); // its last order may have been answered
    assert_eq!(
        (parties.server.welcome(from, 2), parties.server.welcome(from, 3)),
        (Ok(()), Ok(()))
    );
    restore(&mut parties.server, &states[1].0).unwrap();
    assert_eq!(
        parties.server.welcome(from, 3),
        Err(Refusal::ServerForgot { from, has: 3, most: 2 })
    );
}

//! A model that answers all clients in one call gives the chains of clients that answer for
//! themselves, bit for bit.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use consilience_core::ask::{Ask, Sum};
use consilience_core::model::{
    ByGradients, ClientModels, Coordinates, EvaluationError, Evaluator, Member, Model, Offers,
    Prior, Rows, Unusable,
};
use consilience_core::protocol::{
    Answered, Client as Party, Device, Event, Exchange, Format, Jointly, Ledger, OrderRefusal,
    Output, Precision, Server, Statement, exchange,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::registry::{Axis, REGISTRY, Row, Settings};
use consilience_core::sampler::{Average, Batch, Keys, Oracle, Participation, Recipe, Sampler};
use consilience_core::snapshot;
use consilience_core::step::Schedule;
use consilience_core::survey::{Client, Curvature, Evaluate, Hessian, LocalCurvature, Optimum};
use consilience_core::target::{Placement, Target};

/// The clients' models behind one call. It counts calls, and fails at one of them if told to.
#[derive(Debug)]
struct Pooled {
    models: Vec<Arc<dyn Model>>,
    offers: Offers,
    calls: AtomicUsize,
    fails_at: usize,
}

impl Pooled {
    fn of(target: &Target) -> Arc<Pooled> {
        let offers = Offers { values: true, hessians: true, ..Offers::default() };
        Arc::new(Pooled {
            models: target.clients.clone(),
            offers,
            calls: AtomicUsize::new(0),
            fails_at: usize::MAX,
        })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Model for Pooled {
    fn dim(&self) -> usize {
        self.models[0].dim()
    }

    fn clients(&self) -> usize {
        self.models.len()
    }

    fn rows(&self) -> usize {
        self.models.iter().map(|model| model.rows()).sum()
    }

    fn rows_of(&self, client: ClientId) -> usize {
        self.models[client.index()].rows()
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let federation = Arc::new(ClientModels::new(self.models.clone()).unwrap());
        Box::new(Counted(federation.evaluator(), self))
    }
}

#[derive(Debug)]
struct Counted(Box<dyn Evaluator>, Arc<Pooled>);

impl Evaluator for Counted {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        let Counted(inner, pooled) = self;
        if pooled.calls.fetch_add(1, Ordering::Relaxed) + 1 == pooled.fails_at {
            return Err(EvaluationError("the network has a hole".into()));
        }
        assert!(
            asks.windows(2).all(|pair| pair[0].client < pair[1].client),
            "one ask a client at the most, in their order"
        );
        for ask in &*asks {
            assert!(pooled.offers.values || !matches!(ask.sum, Sum::GradientAndValue { .. }));
            assert!(pooled.offers.hessians || !matches!(ask.sum, Sum::HessianVector { .. }));
        }
        inner.answer(asks)
    }
}

/// The same target with nothing but placeholders for the clients' rows.
fn jointly(target: &Target, joint: &Arc<Pooled>) -> Target {
    let joint: Arc<dyn Model> = Arc::<Pooled>::clone(joint);
    Target::of_joint(joint, target.prior.clone(), target.placement.clone(), target.temperature)
        .unwrap()
}

/// Every setting that changes who asks what, and when.
fn variants(row: &Row) -> Vec<Settings> {
    let has = |axis| row.axes.contains(&axis);
    let mut all = vec![Settings::default()];
    let plain = Settings {
        batch: has(Axis::Batch).then_some(Batch::Rows(3)),
        refresh_every: has(Axis::RefreshEvery).then_some(7),
        refresh_probability: has(Axis::RefreshProbability).then_some(0.3),
        ..Settings::default()
    };
    if has(Axis::Participation) {
        all.push(Settings {
            participation: Some(Participation::Bernoulli(vec![0.5; 3])),
            ..plain.clone()
        });
    }
    if has(Axis::Average) {
        all.push(Settings { average: Some(Average::WithReplacement(2)), ..plain.clone() });
    }
    all.push(plain);
    all
}

fn recipe(row: &Row, settings: &Settings, target: &Target) -> Recipe {
    let optimum = row.needs_optimum.then(|| {
        anchor(
            target,
            posterior(target).unwrap().mean.iter().map(|x| f64::from(*x as f32)).collect(),
        )
    });
    row.recipe(Schedule::Constant(0.003), settings, 3, 2, optimum)
}

/// Two chains side by side for so many exchanges; the calls of each exchange are told.
fn compare(
    name: &str,
    recipe: &Recipe,
    own: &Target,
    joined: &Target,
    exchanges: usize,
    mut told: impl FnMut(u64, u64, bool),
) {
    let (mut alone, mut together) =
        (start(recipe, own, &[0.3, 0.3], 1, 0), start(recipe, joined, &[0.3, 0.3], 1, 0));
    let mut carrier = Jointly::new(Arc::clone(joined.joint.as_ref().unwrap()));
    for at in 0..exchanges {
        let (before, nobody) = (alone.server.iteration(), alone.server.cohort().is_empty());
        let event = exchange(&mut *alone.server, &mut alone.clients, &mut alone.ledger);
        assert_eq!(
            carrier
                .exchange(&mut *together.server, &mut together.clients, &mut together.ledger)
                .unwrap(),
            event,
            "{name}"
        );
        assert_eq!(together.server.position(), alone.server.position(), "{name}, exchange {at}");
        assert_eq!(together.server.iteration(), alone.server.iteration());
        told(before, alone.server.iteration(), nobody);
    }
    assert!(alone.server.position().iter().all(|x| x.is_finite()));
    assert_eq!(together.ledger, alone.ledger, "{name}");
    let rows = [&alone, &together]
        .map(|c| c.clients.iter().map(|c| c.rows_evaluated()).collect::<Vec<_>>());
    assert_eq!(rows[0], rows[1], "{name}");
}

#[test]
fn every_sampler_walks_the_same_chain_with_one_call_an_iteration() {
    let mut exchanges = 0;
    for placement in [Placement::Server, Placement::Split(vec![0.2, 0.3, 0.5])] {
        for base in [linear, |prior, placement, _| toy(prior, placement)] {
            let target = base(Prior::gaussian(2.0, 2).unwrap(), placement.clone(), 1.0);
            for row in REGISTRY {
                for settings in variants(row) {
                    let recipe = recipe(row, &settings, &target);
                    let every = if let Recipe::Uplink(recipe) = &recipe
                        && let Oracle::Svrg { every } = recipe.oracle
                    {
                        Some((every, recipe.participation == Participation::All))
                    } else {
                        None
                    };
                    let joint = Pooled::of(&target);
                    let mut called = 0;
                    compare(
                        row.name,
                        &recipe,
                        &target,
                        &jointly(&target, &joint),
                        60,
                        |before, after, nobody| {
                            let calls =
                                joint.calls() - std::mem::replace(&mut called, joint.calls());
                            match (row.has(Axis::Synchronise), every) {
                                _ if nobody => assert_eq!(calls, 0),
                                // A walk calls once an iteration; gradients at a reference point
                                // are one call, and no iteration.
                                (true, _) => assert_eq!(
                                    calls as u64,
                                    (after - before).max(1),
                                    "{}",
                                    row.name
                                ),
                                (false, Some((every, true))) => {
                                    assert_eq!(calls, 1 + usize::from(before % every == 0))
                                }
                                // whoever was away learns of the move later
                                (false, Some(_)) => assert!(calls == 1 || calls == 2),
                                // a block is asked about in portions
                                (false, None) if row.has(Axis::Block) => assert_eq!(calls, 8),
                                (false, None) => assert_eq!(calls, 1, "{}", row.name),
                            }
                            exchanges += 1;
                        },
                    );
                }
            }
        }
    }
    assert!(exchanges > 60 * 4 * REGISTRY.len());
}

#[test]
fn other_coordinates_are_the_same_chain_too() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    let coordinates =
        Arc::new(Coordinates::whitening(&[0.4, -0.2], &[9.0, 1.0, 1.0, 4.0]).unwrap());
    let shares = [0.2, 0.3, 0.5];
    let joint = Pooled::of(&target);
    let (own, joined) = (
        target.whitened(&coordinates, &shares),
        jointly(&target, &joint).whitened(&coordinates, &shares),
    );
    for row in REGISTRY {
        for settings in variants(row) {
            compare(row.name, &recipe(row, &settings, &own), &own, &joined, 40, |_, _, _| ());
        }
    }
    surveys_agree(&own, &joined, &[0.3, 0.1]);
}

fn conduct<S: Exchange>(mut survey: S, target: &Target) -> (S, Ledger) {
    let mut clients: Vec<Box<dyn Device>> = Client::all(target);
    let mut ledger = Ledger::new(clients.len());
    match &target.joint {
        None => while exchange(&mut survey, &mut clients, &mut ledger) == Event::Nothing {},
        Some(joint) => {
            let mut carrier = Jointly::new(Arc::new(ByGradients(Arc::clone(joint))));
            while carrier.exchange(&mut survey, &mut clients, &mut ledger).unwrap()
                == Event::Nothing
            {}
        }
    }
    (survey, ledger)
}

fn surveys_agree(own: &Target, joined: &Target, at: &[f64]) {
    let [(a, paid), (b, paid_too)] =
        [own, joined].map(|t| conduct(Optimum::new(t, at, 1e-10, 200), t));
    assert!(a.converged() && paid == paid_too);
    assert_eq!((a.point(), a.gradient(), a.exchanges()), (b.point(), b.gradient(), b.exchanges()));
    let [(a, _), (b, _)] = [own, joined].map(|t| conduct(Evaluate::new(t, at), t));
    assert_eq!((a.gradient(), a.value()), (b.gradient(), b.value()));
    let [(a, _), (b, _)] = [own, joined].map(|t| conduct(Curvature::new(t, at, Seed::new(3)), t));
    assert_eq!(a.extremes(), b.extremes());
    let [(a, _), (b, _)] = [own, joined].map(|t| conduct(LocalCurvature::new(t, at), t));
    assert_eq!(a.largest(), b.largest());
    let [(a, _), (b, _)] = [own, joined].map(|t| conduct(Hessian::new(t, at), t));
    assert_eq!(a.matrix(), b.matrix());
}

#[test]
fn surveys_find_the_same() {
    for placement in [Placement::Server, Placement::Split(vec![0.2, 0.3, 0.5])] {
        let target = linear(Prior::gaussian(2.0, 2).unwrap(), placement, 1.0);
        surveys_agree(&target, &jointly(&target, &Pooled::of(&target)), &[0.5, -0.5]);
    }
}

#[test]
fn gradients_alone_are_enough_for_surveys() {
    let target =
        linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Split(vec![0.2, 0.3, 0.5]), 1.0);
    for resolution in [f64::EPSILON, 1e-7] {
        let joint = Pooled {
            offers: Offers { resolution, ..Offers::default() },
            ..Arc::try_unwrap(Pooled::of(&target)).unwrap()
        };
        let joined = jointly(&target, &Arc::new(joint));
        let (optimum, _) = conduct(Optimum::new(&joined, &[5.0, -5.0], 1e-9, 200), &joined);
        assert!(optimum.converged() && optimum.exchanges() < 20);
        let truth = posterior(&target).unwrap().mean;
        assert!(optimum.point().iter().zip(&truth).all(|(a, b)| (a - b).abs() < 1e-8));
        // The gradient is affine, so that only rounding is left.
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a / b - 1.0).abs() < 1e-9);
        let [(a, _), (b, _)] = [&target, &joined].map(|t| conduct(Hessian::new(t, &truth), t));
        assert!(close(&a.matrix(), &b.matrix()));
        let [(a, _), (b, _)] =
            [&target, &joined].map(|t| conduct(LocalCurvature::new(t, &truth), t));
        assert!(close(a.largest(), b.largest()));
    }
}

#[test]
fn a_failing_model_stops_the_chain_at_its_last_draw() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    for row in REGISTRY.iter().filter(|row| ["lmc", "vr-fald*"].contains(&row.name)) {
        let recipe = recipe(row, &Settings::default(), &target);
        let joint =
            Arc::new(Pooled { fails_at: 30, ..Arc::try_unwrap(Pooled::of(&target)).unwrap() });
        let mut chain = start(&recipe, &jointly(&target, &joint), &[0.3, 0.3], 1, 0);
        let (mut carrier, mut last) = (Jointly::new(Arc::<Pooled>::clone(&joint)), vec![0.3, 0.3]);
        let error = loop {
            match carrier.exchange(&mut *chain.server, &mut chain.clients, &mut chain.ledger) {
                Ok(_) => last = chain.server.position().to_vec(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.to_string(), "the model cannot be evaluated: the network has a hole");
        assert_eq!((chain.server.position(), joint.calls()), (&last[..], 30));
    }
}

/// The evaluator of one client of a target whose model is elsewhere, for a party that is that
/// client alone.
fn asked(target: &Target, pooled: &Arc<Pooled>, client: u32) -> Arc<dyn Model> {
    let model: Arc<dyn Model> = Arc::<Pooled>::clone(pooled);
    let member = Arc::new(Member::new(model, ClientId(client)).unwrap());
    assert_eq!(member.rows(), target.clients[client as usize].rows());
    member
}

type Parties = (Server<Box<dyn Sampler>>, Vec<Party<Box<dyn Device>>>);

/// Server and clients that speak bytes; with a model, clients ask it.
fn parties(recipe: &Recipe, target: &Target, model: Option<&Arc<Pooled>>) -> Parties {
    let keys = Keys::simulation(Seed::new(1), 0);
    let target = &recipe.check(target.clone()).unwrap();
    let machine = recipe.server(target, &[0.3, 0.3], keys).unwrap();
    let format = || recipe.format(target, keys).unwrap();
    let server = Server::new(machine, Statement::new([("model", "one")]), 3, format());
    let client = |i: u32| {
        let client = Party::new(recipe.client(target, ClientId(i), keys).unwrap(), format());
        match model {
            None => client,
            Some(pooled) => client.asking(asked(target, pooled, i).evaluator()),
        }
    };
    (server, (0..3).map(client).collect())
}

/// Every order and answer of so many exchanges, or what a client refused.
fn bytes_of(
    (server, clients): &mut Parties,
    exchanges: usize,
) -> Result<Vec<Vec<u8>>, OrderRefusal> {
    let (mut said, mut happened) = (Vec::new(), 0);
    while happened < exchanges {
        match server.poll() {
            Some(Output::Send { to, bytes }) => {
                let mut answer = Vec::new();
                assert_eq!(clients[to.index()].handle(&bytes, &mut answer)?, Answered::Anew);
                server.handle(to, &answer).unwrap();
                said.extend([bytes, answer]);
            }
            Some(Output::Happened(_)) => happened += 1,
            None => panic!("somebody owes an answer"),
        }
    }
    Ok(said)
}

#[test]
fn clients_that_speak_bytes_and_ask_a_model_say_the_same_bytes() {
    let target =
        linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Split(vec![0.2, 0.3, 0.5]), 1.0);
    for row in REGISTRY {
        for settings in variants(row) {
            let recipe = recipe(row, &settings, &target);
            let pooled = Pooled::of(&target);
            let joined = jointly(&target, &pooled);
            let mut own = parties(&recipe, &target, None);
            let mut asking = parties(&recipe, &joined, Some(&pooled));
            let said = bytes_of(&mut own, 30).unwrap();
            assert_eq!(bytes_of(&mut asking, 30).unwrap(), said, "{}", row.name);
            assert!(pooled.calls() > 0);
            for (a, b) in own.1.iter().zip(&asking.1) {
                assert_eq!(a.device().rows_evaluated(), b.device().rows_evaluated());
            }
        }
    }
}

/// A model of a site's own gives gradients alone, and surveys by bytes find what they find in one
/// process.
#[test]
fn surveys_by_bytes_ask_a_model_for_gradients_alone() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    let gradients = || {
        let pooled = Arc::try_unwrap(Pooled::of(&target)).unwrap();
        Arc::new(Pooled { offers: Offers::default(), ..pooled })
    };
    let (here, there) = (gradients(), gradients());
    let joined = jointly(&target, &here);
    let (expected, paid) = conduct(Optimum::new(&joined, &[5.0, -5.0], 1e-9, 200), &joined);
    let format = || Format::plain(2, Precision::F64);
    let client = |i: u32| {
        let model = Arc::new(ByGradients(asked(&target, &there, i)));
        Party::new(Client::new(&joined, ClientId(i)), format()).asking(model.evaluator())
    };
    let mut clients: Vec<_> = (0..3).map(client).collect();
    let survey = Optimum::new(&joined, &[5.0, -5.0], 1e-9, 200);
    let mut server = Server::new(survey, Statement::new([("model", "one")]), 3, format());
    loop {
        match server.poll().unwrap() {
            Output::Send { to, bytes } => {
                let mut answer = Vec::new();
                clients[to.index()].handle(&bytes, &mut answer).unwrap();
                server.handle(to, &answer).unwrap();
            }
            Output::Happened(Event::Done) => break,
            Output::Happened(_) => {}
        }
    }
    let found = server.machine();
    assert!(found.converged());
    assert_eq!((found.point(), found.gradient()), (expected.point(), expected.gradient()));
    assert_eq!(server.ledger(), &paid);
}

#[test]
fn a_client_whose_model_failed_goes_on_from_what_it_kept() {
    let target = linear(Prior::gaussian(2.0, 2).unwrap(), Placement::Server, 1.0);
    for row in REGISTRY.iter().filter(|row| ["lmc", "vr-fald*"].contains(&row.name)) {
        let recipe = recipe(row, &Settings::default(), &target);
        let pooled = Pooled::of(&target);
        let joined = jointly(&target, &pooled);
        let said = bytes_of(&mut parties(&recipe, &joined, Some(&pooled)), 12).unwrap();

        let failing =
            Arc::new(Pooled { fails_at: 7, ..Arc::try_unwrap(Pooled::of(&target)).unwrap() });
        let mut party = parties(&recipe, &joined, Some(&failing)).1.remove(0);
        let mut kept = snapshot::save(&mut party);
        // those of the first client
        let orders: Vec<_> = said.chunks_exact(6).map(|round| (&round[0], &round[1])).collect();
        let mut answer = Vec::new();
        let failed = orders.iter().position(|(order, expected)| {
            answer.clear();
            let answered = party.handle(order, &mut answer).is_ok();
            assert!(!answered || answer == **expected);
            if answered {
                kept = snapshot::save(&mut party);
            }
            !answered
        });
        let failed = failed.unwrap();
        let error = party.failure().unwrap().to_string();
        assert_eq!(error, "the model cannot be evaluated: the network has a hole");
        // Whatever comes, nobody knows where it stands.
        let refused = party.handle(orders[failed].0, &mut answer).unwrap_err();
        assert!(matches!(refused, OrderRefusal::Unanswered { .. }), "{refused}");
        assert!(party.handle(orders[failed - 1].0, &mut answer).is_err() && answer.is_empty());
        snapshot::restore(&mut party, &kept).unwrap();
        for (order, expected) in &orders[failed..] {
            answer.clear();
            party.handle(order, &mut answer).unwrap();
            assert_eq!(&answer, *expected, "{}", row.name);
        }
    }
}

#[test]
fn what_a_model_does_not_offer_or_is_no_number_goes_no_further() {
    #[derive(Debug)]
    struct Logarithm;
    impl Model for Logarithm {
        fn dim(&self) -> usize {
            2
        }
        fn clients(&self) -> usize {
            3
        }
        fn rows(&self) -> usize {
            12
        }
        fn rows_of(&self, client: ClientId) -> usize {
            3 + client.index()
        }
        fn offers(&self) -> Offers {
            Offers::default()
        }
        fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
            Box::new(Logarithm)
        }
    }
    impl Evaluator for Logarithm {
        fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
            for ask in asks {
                assert_eq!(ask.client, ClientId(1), "whoever it is elsewhere");
                ask.each_point(2, |ask| {
                    let x = ask.sum.points();
                    ask.tell(&[x[0], x[1].ln()]);
                });
            }
            Ok(())
        }
    }
    assert!(Member::new(Arc::new(Logarithm), ClientId(3)).is_none());
    let member = Arc::new(Member::new(Arc::new(Logarithm), ClientId(1)).unwrap());
    assert_eq!((member.rows(), member.clients()), (4, 1));
    let mut evaluator = Arc::clone(&member).evaluator();
    let mut answer = |sum: Sum<'_>, out: &mut [f64]| {
        let ask = Ask { client: ClientId(7), sum, rows: Rows::All, scale: 1.0, out };
        let error = evaluator.answer(&mut [ask]).err()?;
        error.0.downcast_ref::<Unusable>().cloned()
    };
    assert_eq!(answer(Sum::Gradient { x: &[1.0, 1.0] }, &mut [0.0; 2]), None);
    // of two points, the second
    let x = [1.0, 1.0, 5.0, -3.0];
    let told = answer(Sum::Gradient { x: &x }, &mut [0.0; 4]).unwrap();
    let Unusable::NotFinite { asked, value, coordinate, point } = told else { panic!() };
    assert!((asked, coordinate, &point[..]) == ("the gradient", 1, &x[2..]) && value.is_nan());
    let x = &[1.0, 1.0][..];
    for (sum, asked) in [
        (Sum::Value { x }, "the value"),
        (Sum::GradientAndValue { x }, "the gradient and the value"),
        (Sum::HessianVector { x, v: x }, "the product of the Hessian with a vector"),
        (Sum::Hessian { x }, "the Hessian"),
    ] {
        assert_eq!(answer(sum, &mut [0.0; 4]), Some(Unusable::NotOffered { asked }));
    }
}

#[test]
fn impossible_models_are_refused() {
    #[derive(Debug)]
    struct Sizes(usize, Vec<usize>);
    impl Model for Sizes {
        fn dim(&self) -> usize {
            self.0
        }
        fn clients(&self) -> usize {
            self.1.len()
        }
        fn rows(&self) -> usize {
            self.1.iter().sum()
        }
        fn rows_of(&self, client: ClientId) -> usize {
            self.1[client.index()]
        }
        fn offers(&self) -> Offers {
            Offers::default()
        }
        fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
            Box::new(Silent)
        }
    }
    #[derive(Debug)]
    struct Silent;
    impl Evaluator for Silent {
        fn answer(&mut self, _asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
            Ok(())
        }
    }
    let refusal = |dim, rows: &[usize]| {
        Target::of_joint(Arc::new(Sizes(dim, rows.to_vec())), Prior::Flat, Placement::Server, 1.0)
            .unwrap_err()
            .to_string()
    };
    assert!(refusal(2, &[3, 0]).contains("client 1 has 0 rows"));
    assert!(refusal(2, &[3, 1 << 32]).contains("4294967296 rows"));
    assert!(!refusal(2, &[]).is_empty() && !refusal(0, &[1]).is_empty());
}

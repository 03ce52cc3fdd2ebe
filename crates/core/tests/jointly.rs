//! A model that answers all clients in one call gives the chains of clients that answer for
//! themselves, bit for bit.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::*;
use consilience_core::ask::{Ask, Sum};
use consilience_core::model::{
    ByGradients, Coordinates, EvaluationError, Evaluator, Federation, Model, Offers, Prior,
};
use consilience_core::protocol::{Device, Event, Exchange, Jointly, Ledger, exchange};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::registry::{Axis, REGISTRY, Row, Settings};
use consilience_core::sampler::{Average, Batch, Oracle, Participation, Recipe};
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
        let federation = Arc::new(Federation::new(self.models.clone()).unwrap());
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

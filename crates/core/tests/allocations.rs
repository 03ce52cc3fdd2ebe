//! No sampler allocates anything per iteration, on work of the size that the papers and the
//! benchmarks have.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::*;
use consilience_core::ask::Ask;
use consilience_core::compress::Compressor;
use consilience_core::model::{
    EvaluationError, Evaluator, Gaussian, Isotropic, Model, Offers, Prior,
};
use consilience_core::protocol::Jointly;
use consilience_core::rng::ClientId;
use consilience_core::sampler::{Batch, Local, Participation, Recipe, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

/// Twenty clients with 10 to 200 rows in 50 dimensions: the toy Gaussian of QLSD.
fn many_rows() -> Target {
    let client = |i: u64| -> Arc<dyn Model> {
        Arc::new(Isotropic::new(normals(100 + i, 50 * (10 + 10 * i as usize)), 50).unwrap())
    };
    Target::new(
        (0..20).map(client).collect(),
        Prior::gaussian(10.0, 50).unwrap(),
        Placement::Server,
        1.0,
    )
    .unwrap()
}

/// A hundred Gaussian clients with full precisions in 20 dimensions: FALD's.
fn many_clients() -> Target {
    let d = 20;
    let client = |i: u64| -> Arc<dyn Model> {
        let z = normals(200 + i, d * d);
        let precision = (0..d * d)
            .map(|k| {
                (z[k] + z[k % d * d + k / d]) * 0.01 + if k % (d + 1) == 0 { 1.0 } else { 0.0 }
            })
            .collect();
        Arc::new(Gaussian::new(normals(400 + i, d), precision).unwrap())
    };
    Target::new((0..100).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap()
}

fn check(name: &str, recipe: Recipe, target: &Target) {
    let mut chain = start(&recipe, target, &vec![0.0; target.dim()], 1, 0);
    let mut draw = |n: usize| {
        for _ in 0..n {
            chain.draw();
        }
    };
    draw(300); // buffers that grow once have grown: every client has taken part
    let info = allocation_counter::measure(|| draw(200));
    assert_eq!(info.count_total, 0, "{name} allocated {} bytes", info.bytes_total);
}

#[test]
fn nothing_is_allocated_per_iteration() {
    let step = Schedule::Constant(1e-5);
    let rows = many_rows();
    let point = anchor(&rows, vec![0.1; 50]);
    check("lmc", Recipe::Uplink(Uplink::lmc(step)), &rows);
    check("sgld", Recipe::Uplink(Uplink::sgld(step, Batch::Fraction(0.1))), &rows);
    check("lsd*", Recipe::Uplink(Uplink::lsd_star(step, Batch::Fraction(0.1), point)), &rows);
    let coins = Participation::Bernoulli(vec![0.5; 20]);
    let memory = Uplink {
        participation: coins,
        ..Uplink::lsd_plus_plus(step, Batch::Fraction(0.1), 7, Some(0.5))
    };
    check("lsd++", Recipe::Uplink(memory), &rows);
    let qsgd = Compressor::qsgd(16);
    check(
        "qlsd*",
        Recipe::Uplink(Uplink::qlsd_star(
            step,
            Batch::Fraction(0.1),
            anchor(&rows, vec![0.1; 50]),
            qsgd.clone(),
        )),
        &rows,
    );
    check(
        "qlsd++",
        Recipe::Uplink(Uplink::qlsd_plus_plus(step, Batch::Fraction(0.1), 7, Some(0.5), qsgd)),
        &rows,
    );
    let (top, natural) = (Compressor::top_k(2), Compressor::natural().scaled());
    check("b-elf", Recipe::Uplink(Uplink::b_elf(step, top, natural)), &rows);
    check("marina-ld", Recipe::Uplink(Uplink::marina(step, 0.2, Compressor::rand_k(5))), &rows);
    check(
        "qlsd*-exact",
        Recipe::Uplink(Uplink::qlsd_star_exact_error(
            step,
            Batch::Full,
            anchor(&rows, vec![0.1; 50]),
        )),
        &rows,
    );
    let clients = many_clients();
    let gamma = Schedule::Constant(0.01);
    check("fald", Recipe::Local(Local::fald(gamma, 100, 0.5, 0.2, Batch::Full)), &clients);
    check(
        "vr-fald*",
        Recipe::Local(Local::vr_fald_star(gamma, 100, 0.5, 0.2, 0.2, Batch::Full)),
        &clients,
    );
    let fa_ld = Local::fa_ld(Schedule::Constant(1e-4), vec![0.01; 100], 5, 0.5, Batch::Full);
    let compressed = Local {
        up: Some((Compressor::qsgd(8), 0.5)),
        ..Local::fald(gamma, 100, 0.5, 0.2, Batch::Full)
    };
    check("fald, compressed", Recipe::Local(compressed), &clients);
    check(
        "dg-lmc",
        Recipe::Local(Local::dg_lmc(
            Schedule::Constant(1e-4),
            vec![0.01; 100],
            5,
            5.0,
            Batch::Full,
        )),
        &clients,
    );
    let average = consilience_core::sampler::Average::WithReplacement(10);
    check("fa-ld", Recipe::Local(Local { average, ..fa_ld }), &clients);
}

/// Clients that answer one after the other have one workspace between them, and it stays with the
/// first.
#[test]
fn a_workspace_goes_from_hand_to_hand() {
    let step = Schedule::Constant(1e-5);
    let some = Participation::Bernoulli(vec![0.5; 20]);
    let gradients = Uplink {
        participation: some,
        ..Uplink::qlsd(step, Batch::Fraction(0.1), Compressor::qsgd(16))
    };
    let walk = Local::fald(step, 20, 0.5, 0.2, Batch::Full);
    for recipe in [Recipe::Uplink(gradients), Recipe::Local(walk)] {
        let mut chain = start(&recipe, &many_rows(), &[0.0; 50], 1, 0);
        for _ in 0..20 {
            chain.draw();
        }
        let workspaces: Vec<bool> =
            chain.clients.iter_mut().map(|client| client.workspace().unwrap().is_some()).collect();
        assert!(
            workspaces[0] && workspaces[1..].iter().all(|workspace| !workspace),
            "{workspaces:?}"
        );
    }
}

/// A model that answers in one call and allocates nothing: every client's gradient at `x` is `x`
/// itself.
#[derive(Debug)]
struct Round;

impl Model for Round {
    fn dim(&self) -> usize {
        50
    }

    fn clients(&self) -> usize {
        20
    }

    fn rows(&self) -> usize {
        2000
    }

    fn rows_of(&self, _client: ClientId) -> usize {
        100
    }

    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        Box::new(Round)
    }
}

impl Evaluator for Round {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        for ask in asks {
            let x = ask.sum.points();
            ask.tell(x);
        }
        Ok(())
    }
}

#[test]
fn nothing_is_allocated_per_joint_exchange() {
    let target = Target::of_joint(
        Arc::new(Round),
        Prior::gaussian(10.0, 50).unwrap(),
        Placement::Server,
        1.0,
    )
    .unwrap();
    let step = Schedule::Constant(1e-5);
    let walk = Local::vr_fald_star(step, 20, 0.5, 0.2, 0.2, Batch::Rows(10));
    let some = Participation::Bernoulli(vec![0.5; 20]);
    let gradients = Uplink {
        participation: some,
        ..Uplink::lsd_plus_plus(step, Batch::Fraction(0.1), 7, Some(0.5))
    };
    for recipe in [Recipe::Local(walk), Recipe::Uplink(gradients)] {
        let mut chain = start(&recipe, &target, &[0.0; 50], 1, 0);
        let mut carrier = Jointly::new(Arc::new(Round));
        let mut exchanges = |n: usize| {
            for _ in 0..n {
                carrier
                    .exchange(&mut *chain.server, &mut chain.clients, &mut chain.ledger)
                    .unwrap();
            }
        };
        exchanges(50);
        let info = allocation_counter::measure(|| exchanges(200));
        assert_eq!(info.count_total, 0, "{} bytes were allocated", info.bytes_total);
    }
}

#[test]
fn the_counter_counts() {
    let info = allocation_counter::measure(|| drop(std::hint::black_box(vec![1u8; 100])));
    assert_eq!((info.count_total, info.bytes_total), (1, 100));
}

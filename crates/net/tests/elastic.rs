//! Elastic rounds over a network: closed without those who stay away, late answers refused by name,
//! who is away too often is named, the chain a function of the seed and of who answered.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::*;
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_engine::config::{Config, Source};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_net::frame::MESSAGE;
use consilience_net::serve::ServeOptions;
use consilience_net::worker::{Did, Worker};

const SITES: [&str; 3] = ["north", "east", "the south"];

fn elastic(sampler: &str, p: &str, deadline: f64, iterations: u64) -> String {
    gaussians(
        &format!("{sampler}\nparticipation = {{ elastic = {p}, deadline = {deadline} }}"),
        iterations,
    )
}

/// A site that keeps an answer back where `keeps` says so of the number of the order, and gives it
/// with the next one, too late.
async fn unreliable(
    address: std::net::SocketAddr,
    name: &str,
    keeps: impl Fn(u64) -> bool,
) -> (bool, u64) {
    let mut worker = Worker::new(brings(name));
    let (to, mut inward) = connected(address, worker.hello()).await;
    let (mut orders, mut kept) = (0, 0);
    while let Ok(Some(frame)) = inward.message().await {
        match worker.handle(&frame).unwrap() {
            Did::Over { finished } => {
                let _ = to.send(Worker::farewell()).await;
                while let Ok(Some(_)) = inward.message().await {}
                return (finished, kept);
            }
            Did::Said(None) => {}
            Did::Said(Some(answer)) => {
                if answer.kind == MESSAGE {
                    orders += 1;
                    if keeps(orders) {
                        kept += 1;
                        // the round is over by then
                        tokio::time::sleep(Duration::from_millis(80)).await;
                    }
                }
                to.send(answer).await.unwrap();
            }
        }
    }
    (false, kept)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Whether site `client` drops out at its `order`th order: a coin of probability `p`.
fn drops(p: f64, client: u32) -> impl Fn(u64) -> bool {
    move |order| Seed::new(9).stream(Purpose::Participation, ClientId(client), order).coin(p)
}

#[test]
fn with_thirty_percent_dropping_out_the_run_ends_and_late_answers_are_refused_by_name() {
    let text = elastic("name = \"lmc\"\nstep = 0.05", "0.7", 0.05, 100)
        .replace("chains = 2", "chains = 1");
    let config = config(&text);
    let serving = start(&config, options());
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let sites: Vec<_> = SITES
        .iter()
        .zip(0..)
        .map(|(name, client)| {
            std::thread::spawn(move || {
                runtime().block_on(unreliable(address, name, drops(0.3, client)))
            })
        })
        .collect();
    let served = serving.end().unwrap();
    let kept: Vec<u64> = sites
        .into_iter()
        .map(|site| {
            let (finished, kept) = site.join().unwrap();
            assert!(finished);
            kept
        })
        .collect();
    assert_eq!(served.outcome.iterations, 100);
    assert_eq!(
        served.outcome.draws.length(),
        48,
        "95 draws behind the burn-in, every second is kept"
    );
    assert!(served.outcome.draws.rows().flatten().all(|x| x.is_finite()));
    let view = status.view();
    for (site, kept) in view.sites.iter().zip(kept) {
        assert!(
            kept > 10 && site.late > 0 && site.absent >= site.late,
            "{site:?}: {kept} answers were kept back"
        );
        assert!(view.refusals.iter().any(|(why, n)| why.contains(&site.name)
            && why.contains("too late")
            && *n == site.late));
        assert_eq!(site.refusals, 0, "being late is no offence: {site:?}");
    }
    let participants = served.outcome.statistics.iter().find(|s| s.name == "participants").unwrap();
    let mean: f64 = participants.values[0].iter().sum::<f64>() / 48.0;
    assert!(mean < 2.9, "everybody was counted: {mean}");
}

/// A site that is never there in time is named, with what that does to the drift: in the status
/// (the live page shows it) and in what the run leaves behind.
#[test]
fn whoever_stays_away_more_often_than_stated_is_named() {
    let text = elastic("name = \"lmc\"\nstep = 0.05", "[0.95, 0.95, 0.5]", 0.01, 150)
        .replace("chains = 2", "chains = 1");
    let serving = start(
        &config(&text),
        ServeOptions { http: Some("127.0.0.1:0".parse().unwrap()), ..options() },
    );
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let honest: Vec<_> =
        SITES[..2].iter().map(|name| site(brings(name), joining(address))).collect();
    let absent =
        std::thread::spawn(move || runtime().block_on(unreliable(address, "the south", |_| true)));
    let served = serving.end().unwrap();
    honest.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    assert!(absent.join().unwrap().0);
    let texts = served.warnings.iter().map(ToString::to_string);
    let named: Vec<String> = texts.filter(|w| w.contains("standard errors")).collect();
    assert!(
        named.iter().any(|w| w.contains("\"the south\" was there in")
            && w.contains("50.0% is stated")
            && w.contains("biased")),
        "{named:?}"
    );
    assert_eq!(status.view().warnings.len(), named.len());
}

/// Who answers is everybody, since nobody is late: with `p = 1` the elastic chain is the strict
/// one, bit for bit, also for a site that comes and goes.
#[test]
fn an_elastic_run_in_which_nobody_is_late_is_the_strict_one() {
    let strict = gaussians("name = \"lmc\"\nstep = 0.05", 60);
    let served = over_the_network(
        &config(&elastic("name = \"lmc\"\nstep = 0.05", "1.0", 60.0, 60)),
        options(),
    );
    same("nobody is late", &served, &in_process(&config(&strict)));
}

#[test]
fn a_site_that_vanishes_is_done_without_and_may_come_back() {
    let text = elastic("name = \"lmc\"\nstep = 0.05", "0.9", 0.01, 300)
        .replace("chains = 2", "chains = 1");
    let serving = start(&config(&text), options());
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let others: Vec<_> =
        SITES[..2].iter().map(|name| site(brings(name), joining(address))).collect();
    let vanishing = std::thread::spawn(move || {
        runtime().block_on(async move {
            let mut worker = Worker::new(brings("the south"));
            let mut answers = 0;
            for most in [20, u64::MAX] {
                let (to, mut inward) = connected(address, worker.hello()).await;
                while let Ok(Some(frame)) = inward.message().await {
                    match worker.handle(&frame).unwrap() {
                        Did::Over { finished } => {
                            let _ = to.send(Worker::farewell()).await;
                            return (finished, answers);
                        }
                        Did::Said(None) => {}
                        Did::Said(Some(answer)) => {
                            answers += u64::from(answer.kind == MESSAGE);
                            to.send(answer).await.unwrap();
                        }
                    }
                    if answers >= most {
                        break;
                    }
                }
                tokio::time::sleep(Duration::from_millis(300)).await; // some thirty rounds
            }
            (false, answers)
        })
    });
    let served = serving.end().unwrap();
    others.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    let (finished, answers) = vanishing.join().unwrap();
    assert!(finished && answers > 40, "{answers} answers");
    let south = &status.view().sites[2];
    assert!(south.returns == 1 && south.absent > 5 && south.answers <= answers, "{south:?}");
    assert_eq!(served.outcome.iterations, 300);
}

#[test]
fn samplers_that_cannot_do_without_an_answer_are_refused_and_so_is_one_process() {
    let refused = |text: &str| {
        let source = Source { file: "run.toml".into(), folder: ".".into(), text: text.into() };
        Config::parse(source).unwrap_err().to_string()
    };
    for sampler in [
        "name = \"qlsd++\"\nmemory = 0.1",
        "name = \"d-elf\"",
        "name = \"b-elf\"",
        "name = \"marina-ld\"",
    ] {
        let error = refused(&elastic(sampler, "0.7", 1.0, 50));
        assert!(
            error.contains("cannot do without a client's answer")
                || error.contains("no such setting"),
            "{sampler}: {error}"
        );
    }
    let error = refused(&elastic("name = \"qlsd++\"\nmemory = 0.1", "0.7", 1.0, 50));
    assert!(error.contains("cannot do without a client's answer"), "{error}");
    assert!(refused(&elastic("name = \"fald\"", "0.7", 1.0, 50)).contains("no such setting"));
    assert!(
        refused(&elastic("name = \"lmc\"\nweighting = \"b/|A|\"", "0.7", 1.0, 50))
            .contains("biased")
    );
    assert!(
        refused(&gaussians("name = \"lmc\"\nparticipation = { elastic = 0.7 }", 50))
            .contains("deadline")
    );
    assert!(
        refused(&gaussians("name = \"lmc\"\nparticipation = { clients = 2, deadline = 1.0 }", 50))
            .contains("deadline")
    );
    assert!(
        refused(&elastic("name = \"lmc\"", "[0.7, 0.7]", 1.0, 50))
            .contains("2 probabilities for 3 clients")
    );
    assert!(
        refused(&elastic("name = \"lmc\"", "\"all\"", 1.0, 50))
            .contains("sampler.participation.elastic")
    );
    let config = config(&elastic("name = \"lmc\"\nstep = 0.05", "0.7", 1.0, 50));
    let error = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap_err().to_string();
    assert!(
        error.contains("in one process nobody is ever late")
            && error.contains("sampler.participation"),
        "{error}"
    );
}

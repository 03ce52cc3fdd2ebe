//! A run of many sites over loopback: all come at once, each answers every round, and one that is
//! slow costs the others what rounds may take, and no more.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use common::*;
use consilience_net::frame::{Frame, MESSAGE, PATH};
use consilience_net::join::{endpoint, persist};
use consilience_net::serve::ServeOptions;
use consilience_net::worker::{Did, Worker};
use tokio_stream::wrappers::ReceiverStream;
use tonic_prost::ProstCodec;

const SITES: usize = 200;
/// Which of them is slow, and by how much.
const SLOW: usize = 77;
const LATE: Duration = Duration::from_millis(400);

/// Many sites with a row of two numbers each.
fn sites(participation: &str, iterations: u64) -> String {
    let site = |k: usize| {
        let (x, y) = ((k % 7) as f64, (k % 11) as f64 / 2.0);
        format!("[[client]]\nname = \"s{k}\"\nrows = [[{x:.1}, {y:.1}]]\n")
    };
    let clients: String = (0..SITES).map(site).collect();
    format!(
        "seed = 5\nseeds = \"simulation\"\n[target]\nmodel = \"isotropic\"\n{clients}\
         [sampler]\nname = \"lmc\"\nstep = 0.002\n{participation}[run]\nchains = 2\n\
         iterations = {iterations}\n"
    )
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// All sites, as tasks of one runtime; one may answer late.
fn all_join(address: SocketAddr, slow: Option<usize>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let runtime = runtime();
        let site = |k: usize| {
            runtime.spawn(async move {
                let mut worker = Worker::new(brings(&format!("s{k}")));
                if slow == Some(k) {
                    return late(address, &mut worker).await;
                }
                let options = joining(address);
                let endpoint = endpoint(&options).unwrap();
                persist(&endpoint, &options, &mut worker, &AtomicBool::new(false)).await.unwrap()
            })
        };
        let tasks: Vec<_> = (0..SITES).map(site).collect();
        for task in tasks {
            assert!(runtime.block_on(task).unwrap(), "a site did not see the end");
        }
    })
}

/// A site that gives every answer late.
async fn late(address: SocketAddr, worker: &mut Worker) -> bool {
    let (to, mut inward) = connected(address, worker.hello()).await;
    while let Ok(Some(frame)) = inward.message().await {
        match worker.handle(&frame).unwrap() {
            Did::Over { finished } => {
                let _ = to.send(Worker::farewell()).await;
                while let Ok(Some(_)) = inward.message().await {}
                return finished;
            }
            Did::Said(None) => {}
            Did::Said(Some(answer)) => {
                if answer.kind == MESSAGE {
                    tokio::time::sleep(LATE).await;
                }
                if to.send(answer).await.is_err() {
                    return false;
                }
            }
        }
    }
    false
}

/// More sites of one address than may wait for admission at once: who is turned away comes again.
/// The chain is that of one process, bit for bit.
#[test]
fn hundreds_of_sites_of_one_address_come_at_once_and_give_the_same_bits() {
    let config = config(&sites("", 20));
    let serving = start(&config, options());
    let joined = all_join(serving.address, None);
    let status = Arc::clone(&serving.status);
    let served = serving.end().unwrap();
    joined.join().unwrap();
    same("many", &served, &in_process(&config));
    for (site, trips) in status.view().sites.iter().zip(status.round_trips()) {
        assert_eq!((site.answers, site.refusals), (40, 0), "{}", site.name);
        assert_eq!(trips.len(), 40, "{}", site.name);
    }
}

/// Every round is closed when its time is over: one slow site makes none longer, and takes no
/// answer from the others.
#[test]
fn one_slow_site_of_hundreds_costs_no_more_than_the_time_of_a_round() {
    let participation = "participation = { elastic = 0.999, deadline = 0.2 }\n";
    let config = config(&sites(participation, 12));
    let status = {
        // the slow site comes once alone
        let serving = start(&config, ServeOptions { at_once: SITES, ..options() });
        let joined = all_join(serving.address, Some(SLOW));
        let status = Arc::clone(&serving.status);
        let served = serving.end().unwrap();
        joined.join().unwrap();
        assert_eq!(served.outcome.iterations, 24, "of both chains");
        // twelve rounds of two chains side by side, and what machines under load need beside
        assert!(served.seconds < 60.0, "{} s", served.seconds);
        status
    };
    let view = status.view();
    let slow = &view.sites[SLOW];
    assert!(slow.absent >= 20 && slow.answers <= 4, "{slow:?}");
    let others = view.sites.iter().filter(|site| site.name != slow.name);
    let answered: u64 = others.map(|site| site.answers).sum();
    let most = 24 * (SITES as u64 - 1);
    assert!(answered * 10 > most * 9, "{answered} of {most} answers were in time");
}

/// A machine that is busy says its first words late, and must not be sent away for that.
#[test]
fn whoever_says_its_first_words_too_late_may_try_again() {
    let serving = start(&config(&gaussians("name = \"lmc\"\nstep = 0.05", 20)), options());
    let code = runtime().block_on(async {
        let channel = endpoint(&joining(serving.address)).unwrap().connect().await.unwrap();
        let mut grpc = tonic::client::Grpc::new(channel);
        grpc.ready().await.unwrap();
        let (_to, outward) = tokio::sync::mpsc::channel::<Frame>(1);
        let request = tonic::Request::new(ReceiverStream::new(outward));
        let path = http::uri::PathAndQuery::from_static(PATH);
        grpc.streaming(request, path, ProstCodec::<Frame, Frame>::default())
            .await
            .map(|_| ())
            .unwrap_err()
            .code()
    });
    assert_eq!(code, tonic::Code::Unavailable);
    let joined: Vec<_> = ["north", "east", "the south"]
        .map(|name| site(brings(name), joining(serving.address)))
        .into_iter()
        .collect();
    serving.end().unwrap();
    joined.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// As many of one address wait for admission at once as the server was told, and one more is turned
/// away.
#[test]
fn as_many_wait_for_admission_as_it_is_told() {
    let most = 40;
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let serving = start(&config, ServeOptions { at_once: most, ..options() });
    let knock = || {
        let stream = TcpStream::connect(serving.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        stream
    };
    let is_open = |mut stream: &TcpStream| match stream.read(&mut [0; 64]) {
        Ok(bytes) => bytes > 0,
        Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    };
    let waiting: Vec<TcpStream> = (0..most).map(|_| knock()).collect();
    assert!(!is_open(&knock()), "one more than may is let in");
    assert!(waiting.iter().skip(30).all(is_open), "fewer than may are let in");
    drop(waiting);
    let joined: Vec<_> = ["north", "east", "the south"]
        .map(|name| site(brings(name), joining(serving.address)))
        .into_iter()
        .collect();
    serving.end().unwrap();
    joined.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

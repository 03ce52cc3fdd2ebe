//! Hostile peers by the thousand: every kind is refused by name as often as it comes, nothing is
//! kept of it, and the chain is the one of a fair day.
//!
//! `SIEGE=10000 cargo test -p consilience-net --test siege -- --nocapture` sends ten thousand of
//! each kind, and prints what became of them.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic; the numbers are for people

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use common::*;
use consilience_net::certs::{self, Papers};
use consilience_net::frame::{ASIDE, Frame, MESSAGE, PATH, WORDS};
use consilience_net::join::{Credentials, JoinOptions, endpoint};
use consilience_net::serve::{Admission, ServeOptions};
use consilience_net::status::Status;
use consilience_net::talk::{PROTOCOL, Tell, VERSION};
use consilience_net::ticket::{METADATA, Ticket, Tickets};
use consilience_net::worker::{Did, Worker};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

/// How many of a kind one connection can send before it is cut off for sending more than it was
/// asked for.
const A_CONNECTION: u64 = 15;
/// More than the buffers between the two hold.
const FLOOD: u64 = 10_000;
const SITES: [&str; 3] = ["north", "east", "the south"];

fn number() -> u64 {
    std::env::var("SIEGE").ok().and_then(|text| text.parse().ok()).unwrap_or(45)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

type Lines = (mpsc::Sender<Frame>, Streaming<Frame>);

/// A stream on a channel, with first words and perhaps a ticket.
async fn stream(
    channel: &Channel,
    first: Frame,
    ticket: Option<&str>,
) -> Result<Lines, tonic::Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|e| tonic::Status::unavailable(e.to_string()))?;
    let (to, outward) = mpsc::channel(64);
    to.send(first).await.unwrap();
    let mut request = Request::new(ReceiverStream::new(outward));
    if let Some(ticket) = ticket {
        request.metadata_mut().insert(METADATA, ticket.parse().unwrap());
    }
    let path = http::uri::PathAndQuery::from_static(PATH);
    Ok((
        to,
        grpc.streaming(request, path, ProstCodec::<Frame, Frame>::default()).await?.into_inner(),
    ))
}

/// How often something was refused whose reason has these words.
fn refused(status: &Status, words: &str) -> u64 {
    status.view().refusals.iter().filter(|(why, _)| why.contains(words)).map(|(_, n)| n).sum()
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
}

/// A bad answer, made from the honest one and the one before; its words name it.
struct Bad {
    words: &'static str,
    make: fn(&Frame, &Frame) -> Frame,
}

fn edited(honest: &Frame, edit: impl FnOnce(&mut Vec<u8>)) -> Frame {
    let mut body = honest.body.to_vec();
    edit(&mut body);
    Frame { body: body.into(), ..honest.clone() }
}

fn ending(honest: &Frame, number: f32) -> Frame {
    edited(honest, |body| {
        let at = body.len() - 4;
        body[at..].copy_from_slice(&number.to_le_bytes());
    })
}

/// The body of an honest answer: its kind, the round in one byte, two numbers of four bytes.
const BAD: [Bad; 16] = [
    Bad { words: "coordinate 1 is not finite", make: |honest, _| ending(honest, f32::NAN) },
    Bad {
        words: "coordinate 0 is not finite",
        make: |honest, _| {
            edited(honest, |b| b[2..6].copy_from_slice(&f32::NEG_INFINITY.to_le_bytes()))
        },
    },
    Bad { words: "above the limit 1.000e12", make: |honest, _| ending(honest, 1e30) },
    Bad {
        words: "4 bytes follow the end",
        make: |honest, _| edited(honest, |b| b.extend_from_slice(&[0; 4])),
    },
    Bad { words: "cut short", make: |honest, _| edited(honest, |b| b.truncate(b.len() - 4)) },
    Bad { words: "1 bytes follow the end", make: |honest, _| edited(honest, |b| b.push(7)) },
    Bad {
        words: "not in its shortest form",
        make: |honest, _| {
            edited(honest, |b| {
                b[1] |= 0x80;
                b.insert(2, 0);
            })
        },
    },
    Bad {
        words: "answers round 4, where round 3 is open",
        make: |honest, _| edited(honest, |b| b[1] += 1),
    },
    Bad { words: "answers round 2, where round 3 is open", make: |_, before| before.clone() },
    Bad {
        words: "is a parameter, where a gradient was asked for",
        make: |honest, _| edited(honest, |b| b[0] = 1),
    },
    Bad { words: "names no kind", make: |honest, _| edited(honest, |b| b[0] = 99) },
    Bad { words: "chain 7", make: |honest, _| Frame { chain: 7, ..honest.clone() } },
    Bad { words: "an answer in phase 9", make: |honest, _| Frame { phase: 9, ..honest.clone() } },
    Bad {
        words: "words cannot be read",
        make: |_, _| Frame {
            kind: WORDS,
            phase: ASIDE,
            chain: 0,
            body: b"{\"Moan\":1}".to_vec().into(),
            rows: 0,
        },
    },
    Bad { words: "5000 bytes, where", make: |honest, _| edited(honest, |b| b.resize(5000, 0)) },
    Bad { words: "kind 9 with", make: |honest, _| Frame { kind: 9, ..honest.clone() } },
];

/// Work as a site on one connection until it is asked for the answer to round 3 of chain 0; that
/// answer is kept back.
async fn until_round_three(
    worker: &mut Worker,
    channel: &Channel,
    before: &mut Option<Frame>,
) -> (Lines, Frame) {
    let (to, mut inward) = stream(channel, worker.hello(), None).await.unwrap();
    loop {
        let frame = inward.message().await.unwrap().unwrap();
        let Did::Said(Some(answer)) = worker.handle(&frame).unwrap() else { continue };
        if answer.kind == MESSAGE && answer.chain == 0 {
            if answer.body[1] == 3 {
                return ((to, inward), answer);
            }
            *before = Some(answer.clone());
        }
        to.send(answer).await.unwrap();
    }
}

/// Send so many of each kind of bad answer, then go on as an honest site.
async fn villain(channel: Channel, n: u64, status: Arc<Status>) -> bool {
    let mut worker = Worker::new(brings("the south"));
    let mut before = None;
    let ((mut to, mut inward), honest) =
        until_round_three(&mut worker, &channel, &mut before).await;
    for bad in &BAD {
        let mut sent = 0;
        let since = Instant::now();
        while sent < n {
            let frame = (bad.make)(&honest, before.as_ref().unwrap());
            // what is too long, or of no kind, closes the connection
            let closes = bad.words.contains("5000 bytes") || bad.words.contains("kind 9");
            for _ in 0..if closes { 1 } else { A_CONNECTION.min(n - sent) } {
                to.send(frame.clone()).await.unwrap();
                sent += 1;
            }
            until(bad.words, || refused(&status, bad.words) >= sent).await;
            drop((to, inward));
            let again;
            ((to, inward), again) = until_round_three(&mut worker, &channel, &mut before).await;
            assert_eq!(again, honest, "the same order has the same answer");
        }
        assert_eq!(refused(&status, bad.words), n, "{}", bad.words);
        println!("{n:>6} refused: {:<48} {:>7.1} s", bad.words, since.elapsed().as_secs_f64());
    }
    // Somebody who says of the target what it did not say before.
    for k in 0..n {
        drop((to, inward));
        (to, inward) = stream(&channel, worker.hello(), None).await.unwrap();
        let mut steps = 0;
        while let Ok(Some(frame)) = inward.message().await {
            if let Ok(Did::Said(Some(answer))) = worker.handle(&frame) {
                steps += 1;
                let lie = Frame::words(1, &Tell::Stated("prior: Flat".into()));
                let _ = to.send(if steps == 2 { lie } else { answer }).await;
                if steps == 2 {
                    break;
                }
            }
        }
        until("another target", || refused(&status, "answers step 1 otherwise than before") > k)
            .await;
    }
    println!("{n:>6} refused: another target than it said before");
    drop((to, inward));
    ((to, inward), _) = until_round_three(&mut worker, &channel, &mut before).await;
    to.send(honest).await.unwrap();
    while let Ok(Some(frame)) = inward.message().await {
        match worker.handle(&frame).unwrap() {
            Did::Over { finished } => {
                let _ = to.send(Worker::farewell()).await;
                while let Ok(Some(_)) = inward.message().await {}
                return finished;
            }
            Did::Said(None) => {}
            Did::Said(Some(answer)) => to.send(answer).await.unwrap(),
        }
    }
    false
}

/// Memory that this process has now, in bytes.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmRSS"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// Nothing of what was refused is kept: so much may remain, for buffers and the allocator's own
/// pockets.
fn assert_small(before: Option<u64>) {
    if let (Some(before), Some(after)) = (before, memory()) {
        let more = after.saturating_sub(before) >> 20;
        println!("{more} MiB more memory than before");
        assert!(more < 64, "{more} MiB more");
    }
}

#[test]
fn bad_answers_by_the_thousand_change_nothing() {
    let n = number();
    let config =
        config(&gaussians("name = \"lmc\"\nstep = 0.05", 30).replace("chains = 2", "chains = 1"));
    let serving = start(&config, ServeOptions { deadline: None, ..options() });
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let honest: Vec<_> =
        SITES[..2].iter().map(|name| site(brings(name), joining(address))).collect();
    let before = memory();
    let finished = runtime().block_on(async {
        let channel = endpoint(&joining(address)).unwrap().connect().await.unwrap();
        villain(channel, n, status).await
    });
    assert!(finished);
    same("after a siege", &serving.end().unwrap(), &in_process(&config));
    honest.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    assert_small(before);
}

fn hello(version: &str, site: &str) -> Frame {
    let (version, site) = (version.into(), site.into());
    Frame::words(ASIDE, &Tell::Hello { version, site, protocol: PROTOCOL })
}

/// Knock so often with these first words, and be turned away by name each time.
async fn knock(n: u64, channel: &Channel, first: Frame, ticket: Option<&str>, words: &str) {
    for _ in 0..n {
        let why = stream(channel, first.clone(), ticket).await.map(|_| ()).unwrap_err();
        assert!(why.message().contains(words), "{why}");
    }
    println!("{n:>6} refused: {words}");
}

#[test]
fn strangers_and_floods_by_the_thousand_change_nothing() {
    let n = number();
    let config =
        config(&gaussians("name = \"lmc\"\nstep = 0.05", 30).replace("chains = 2", "chains = 1"));
    let serving = start(&config, ServeOptions { deadline: None, ..options() });
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let before = memory();
    runtime().block_on(async {
        let channel = endpoint(&joining(address)).unwrap().connect().await.unwrap();
        knock(n, &channel, hello(VERSION, "west"), None, "no site \"west\"").await;
        let old = serde_json::json!({ "Hello": { "version": "0.0.0", "site": "east" } });
        let old = Frame::words(ASIDE, &old);
        knock(n, &channel, old, None, "update the site's consilience").await;
        knock(n, &channel, Frame::message(0, 0, vec![1, 2, 3]), None, "where words were due").await;
        for k in 0..n {
            let (to, mut inward) = stream(&channel, hello(VERSION, "east"), None).await.unwrap();
            let junk = Frame {
                kind: WORDS,
                phase: 0,
                chain: 0,
                body: vec![b' '; 1 << 10].into(),
                rows: 0,
            };
            let mut sent = 0;
            while sent < FLOOD && to.send(junk.clone()).await.is_ok() {
                sent += 1;
            }
            assert!(sent < FLOOD, "nobody stopped the flood");
            until("a flood", || refused(&status, "a flood") > k).await;
            drop(to);
            while let Ok(Some(_)) = inward.message().await {}
        }
        println!("{n:>6} refused: a flood");
    });
    let all: Vec<_> = SITES.iter().map(|name| site(brings(name), joining(address))).collect();
    same("after a siege", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    assert_small(before);
}

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("consilience-siege-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn wrong_certificates_and_tickets_by_the_thousand_open_nothing() {
    let n = number();
    let (ours, others) = (folder("ours"), folder("others"));
    certs::make(&ours, &SITES.map(str::to_owned), &["localhost".into()], SystemTime::now())
        .unwrap();
    certs::make(&others, &["east".to_owned()], &["localhost".into()], SystemTime::now()).unwrap();
    let load = |folder: &Path, name: &str| Papers::load(&folder.join(name)).unwrap();
    let config =
        config(&gaussians("name = \"lmc\"\nstep = 0.05", 30).replace("chains = 2", "chains = 1"));
    let tickets =
        Tickets::issue(&SITES.map(str::to_owned), &["localhost".into()], SystemTime::now())
            .unwrap();
    let before = memory();
    for admission in
        [Admission::Certificates(load(&ours, "server")), Admission::Tickets(tickets.clone())]
    {
        let by_ticket = matches!(admission, Admission::Tickets(_));
        let serving = start(&config, ServeOptions { admission, deadline: None, ..options() });
        let server = format!("localhost:{}", serving.address.port());
        let with = |credentials: Credentials| JoinOptions {
            server: server.clone(),
            server_name: None,
            credentials,
            patience: Some(Duration::from_secs(20)),
        };
        let own = |site: &str| {
            if !by_ticket {
                return with(Credentials::Certificate(load(&ours, site)));
            }
            JoinOptions {
                patience: Some(Duration::from_secs(20)),
                ..JoinOptions::invited(&tickets.invitation(site, &server).unwrap()).unwrap()
            }
        };
        runtime().block_on(async {
            let channel = endpoint(&own("north")).unwrap().connect().await.unwrap();
            if by_ticket {
                let another = tickets.invitation("north", &server).unwrap().ticket;
                knock(n, &channel, hello(VERSION, "east"), Some(&another), "another site's").await;
                knock(
                    n,
                    &channel,
                    hello(VERSION, "east"),
                    Some(&Ticket::random().unwrap().text()),
                    "none of this run",
                )
                .await;
                knock(n, &channel, hello(VERSION, "east"), None, "shows no ticket").await;
            } else {
                knock(n, &channel, hello(VERSION, "east"), None, "not one of the site \"east\"")
                    .await;
                for _ in 0..n.div_ceil(100) {
                    let stranger =
                        endpoint(&with(Credentials::Certificate(load(&others, "east")))).unwrap();
                    // the server is not of that authority
                    let Ok(channel) = stranger.connect().await else { continue };
                    assert!(
                        stream(&channel, hello(VERSION, "east"), None).await.is_err(),
                        "nobody knows that authority"
                    );
                }
            }
        });
        let all: Vec<_> = SITES.iter().map(|name| site(brings(name), own(name))).collect();
        same("after a siege", &serving.end().unwrap(), &in_process(&config));
        all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    }
    assert_small(before);
    std::fs::remove_dir_all(&ours).unwrap();
    std::fs::remove_dir_all(&others).unwrap();
}

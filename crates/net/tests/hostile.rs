//! Hostile and broken peers are refused by name, change nothing, and take no memory.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::*;
use consilience_engine::site::Own;
use consilience_net::certs::{self, Papers};
use consilience_net::frame::{ASIDE, Frame, MESSAGE, PATH, WORDS};
use consilience_net::join::{Credentials, JoinError, JoinOptions, endpoint};
use consilience_net::serve::{Admission, ServeError, ServeOptions};
use consilience_net::talk::{Instruction, PROTOCOL, Tell, VERSION, Versions, Welcome};
use consilience_net::worker::{Brings, Did, SiteError, Worker};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

type Lines = (mpsc::Sender<Frame>, Streaming<Frame>);

/// Connect and say `first`.
async fn connect(options: &JoinOptions, first: Frame) -> Result<Lines, Status> {
    let channel = endpoint(options)
        .unwrap()
        .connect()
        .await
        .map_err(|e| Status::unavailable(format!("{e:?}")))?;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|e| Status::unavailable(format!("{e:?}")))?;
    let (to, outward) = mpsc::channel(64);
    to.send(first).await.unwrap();
    let path = http::uri::PathAndQuery::from_static(PATH);
    let codec = ProstCodec::<Frame, Frame>::default();
    Ok((
        to,
        grpc.streaming(Request::new(ReceiverStream::new(outward)), path, codec).await?.into_inner(),
    ))
}

fn hello(protocol: Versions, site: &str) -> Tell {
    Tell::Hello { version: VERSION.into(), site: site.into(), protocol }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Work as a site does, and say what `more` says before each honest answer.
async fn misbehave(
    address: SocketAddr,
    site: &str,
    mut more: impl FnMut(&Frame) -> Vec<Frame>,
) -> bool {
    let mut worker = Worker::new(brings(site));
    let (to, mut inward) = connect(&joining(address), worker.hello()).await.unwrap();
    while let Ok(Some(frame)) = inward.message().await {
        let did = match worker.handle(&frame) {
            Err(SiteError::Refused(_)) => continue, // an honest site would end
            did => did.unwrap(),
        };
        match did {
            Did::Over { finished } => {
                let _ = to.send(Worker::farewell()).await;
                while let Ok(Some(_)) = inward.message().await {}
                return finished;
            }
            Did::Said(None) => {}
            Did::Said(Some(honest)) => {
                for bad in more(&honest) {
                    to.send(bad).await.unwrap();
                }
                to.send(honest).await.unwrap();
            }
        }
    }
    false
}

fn with_last_number(honest: &Frame, number: f32) -> Frame {
    let mut body = honest.body.to_vec();
    let at = body.len() - 4;
    body[at..].copy_from_slice(&number.to_le_bytes());
    Frame { body: body.into(), ..honest.clone() }
}

fn edited(honest: &Frame, edit: impl FnOnce(&mut Vec<u8>)) -> Frame {
    let mut body = honest.body.to_vec();
    edit(&mut body);
    Frame { body: body.into(), ..honest.clone() }
}

#[test]
fn bad_messages_are_refused_by_name_and_the_chain_is_the_same() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 60));
    let serving = start(&config, options());
    let (address, status) = (serving.address, std::sync::Arc::clone(&serving.status));
    let honest: Vec<_> = ["north", "east"].map(|name| site(brings(name), joining(address))).into();
    let villain = std::thread::spawn(move || {
        let (mut answers, mut last) = (0, None::<Frame>);
        runtime().block_on(misbehave(address, "the south", move |honest| {
            if honest.kind != MESSAGE || honest.chain != 0 {
                return Vec::new();
            }
            answers += 1;
            let earlier = last.replace(honest.clone());
            match answers {
                // The body: the kind, the round in one byte, two numbers of four bytes.
                2 => vec![
                    with_last_number(honest, f32::NAN),
                    with_last_number(honest, f32::INFINITY),
                    with_last_number(honest, 1e30),
                    // three parameters
                    edited(honest, |body| body.extend_from_slice(&1f32.to_le_bytes())),
                    edited(honest, |body| {
                        body.pop();
                    }),
                    edited(honest, |body| body.push(7)),
                    edited(honest, |body| {
                        body[1] |= 0x80;
                        body.insert(2, 0);
                    }),
                ],
                3 => vec![
                    edited(honest, |body| body[1] += 1), // a round to come
                    earlier.unwrap(),                    // a round that is over, replayed
                    edited(honest, |body| body[0] = 1),  // a parameter
                    edited(honest, |body| body[0] = 99),
                    Frame { chain: 7, ..honest.clone() },
                    Frame { phase: honest.phase + 1, ..honest.clone() },
                    Frame {
                        kind: WORDS,
                        phase: ASIDE,
                        chain: 0,
                        body: b"{\"Moan\":1}".to_vec().into(),
                        rows: 0,
                    },
                ],
                _ => Vec::new(),
            }
        }))
    });
    same("hostile", &serving.end().unwrap(), &in_process(&config));
    assert!(villain.join().unwrap());
    honest.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    let view = status.view();
    let named: Vec<&str> = view.refusals.iter().map(|(why, _)| why.as_str()).collect();
    for part in [
        "coordinate 1 is not finite",
        "above the limit 1.000e12",
        "4 bytes follow the end",
        "1 bytes follow the end",
        "cut short",
        "not in its shortest form",
        "answers round 3, where round 2 is open",
        "answers round 1, where round 2 is open",
        "is a parameter, where a gradient was asked for",
        "names no kind",
        "chain 7",
        "an answer in phase",
        "words cannot be read",
    ] {
        assert!(named.iter().any(|why| why.contains(part)), "\"{part}\" is not among {named:#?}");
    }
    let refused: u64 =
        view.refusals.iter().filter(|(why, _)| why.contains("not finite")).map(|(_, n)| n).sum();
    assert_eq!(refused, 2, "NaN and infinity");
}

/// Take part, with words that are changed on their way.
fn tampered(
    address: SocketAddr,
    brings: Brings,
    change: impl Fn(&mut serde_json::Value) + Send + 'static,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        runtime().block_on(async {
            let mut worker = Worker::new(brings);
            let (to, mut inward) = connect(&joining(address), worker.hello()).await.unwrap();
            while let Ok(Some(frame)) = inward.message().await {
                let Ok(Did::Said(said)) = worker.handle(&frame) else { break };
                let Some(mut said) = said else { continue };
                if said.kind == WORDS {
                    let mut words = serde_json::from_slice(&said.body).unwrap();
                    change(&mut words);
                    said.body = serde_json::to_vec(&words).unwrap().into();
                }
                if to.send(said).await.is_err() {
                    break;
                }
            }
        })
    })
}

/// What sites say of raw columns, of their codes and sums, and of a model that they bring: whoever
/// lies is named, and nothing is sampled.
#[test]
fn introductions_that_are_none_are_refused_by_name() {
    let clients = "[[client]]\nname = \"north\"\n[[client]]\nname = \"east\"\n[sampler]\n\
        name = \"lmc\"\nstep = 0.01\n[run]\nchains = 1\niterations = 10\n";
    let head = "seeds = \"simulation\"\n[target]\n";
    let formula = "ill == yes ~ ns(age, 2) + sex";
    let coded = config(&format!("{head}formula = \"{formula}\"\n{clients}"));
    let rows = "age,sex,ill\n41,f,no\n63,m,yes\n57,m,no\n38,f,yes\n";
    let table = |site: &str| Brings { data: Own::Text(rows.into()), ..brings(site) };
    let summary = "/Introduction/Coded/summary";
    let facts = "/Introduction/Coded/facts";
    let numbers = r#"{"Introduction": {"Numbers": {"columns": ["age"], "rows": 4}}}"#;
    let nothing = r#"{"Introduction": {"Columns": {"columns": [], "suspects": []}}}"#;
    for (place, value, why) in [
        // the first words about columns
        ("/Introduction/Columns", numbers, "it did not say which columns it has"),
        ("/Introduction/Columns", nothing, "north"),
        // their codes and sums
        (facts, numbers, "it sent no sums of its rows"),
        (&format!("{facts}/columns/1/column"), "\"sex\"", "where ill, age, sex were asked about"),
        (&format!("{facts}/columns"), "[]", "where ill, age, sex were asked about"),
        (&format!("{summary}/site"), "\"north\"", "it calls itself `north`"),
        (&format!("{summary}/rows"), "0", "the summary of site `east` is refused"),
        (&format!("{summary}/rows"), "18446744073709551615", "of site `east` is refused"),
        (&format!("{summary}/terms"), "[]", "of site `east` is refused"),
        (&format!("{summary}/terms/1/Levels"), "[[\"f\", 9]]", "of site `east` is refused"),
        (&format!("{summary}/terms/0/Numbers/observed"), "99", "of site `east` is refused"),
        (&format!("{summary}/both_missing"), "[[7, 9, 4]]", "of site `east` is refused"),
        // counts for the knots of splines, and sums of their columns
        ("/Introduction/Knots", numbers, "its counts of values are none"),
        ("/Introduction/Knots/Counts/0/1/0", "99", "its counts of values are none"),
        ("/Introduction/Knots/Counts/0/0", "[]", "its counts of values are none"),
        ("/Introduction/Knots/Sums/0", "[]", "its sums of a spline are none"),
        ("/Introduction/Knots/Sums/0/0/1", "-1.0", "its sums of a spline are none"),
    ] {
        let options = ServeOptions { deadline: Some(Duration::from_secs(20)), ..options() };
        let serving = start(&coded, options);
        let honest = site(table("north"), joining(serving.address));
        let (place, value) = (place.to_owned(), value.to_owned());
        let shown = format!("{place}: {value}");
        let villain = tampered(serving.address, table("east"), move |words| {
            let Some(part) = words.pointer_mut(&place) else { return };
            let told: serde_json::Value = serde_json::from_str(&value).unwrap();
            if told.get("Introduction").is_some() { *words = told } else { *part = told }
        });
        let error = serving.end().unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("east"), "{shown}: {error}");
        villain.join().unwrap();
        drop(honest.join().unwrap());
    }
}

#[test]
fn a_slow_site_that_comes_back_while_the_others_go_on_is_told_too() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let serving =
        start(&config, ServeOptions { deadline: Some(Duration::from_secs(20)), ..options() });
    let address = serving.address;
    let slow = std::thread::spawn(move || {
        runtime().block_on(async {
            let mut worker = Worker::new(brings("north"));
            let (to, mut inward) = connect(&joining(address), worker.hello()).await.unwrap();
            for _ in 0..2 {
                // Welcome, and the question who it is.
                if let Did::Said(Some(frame)) =
                    worker.handle(&inward.message().await.unwrap().unwrap()).unwrap()
                {
                    to.send(frame).await.unwrap();
                }
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
            drop((to, inward));
            let (to, mut inward) = connect(&joining(address), worker.hello()).await.unwrap();
            let others: Vec<_> =
                ["east", "the south"].map(|name| site(brings(name), joining(address))).into();
            // all have introduced themselves by now
            tokio::time::sleep(Duration::from_millis(700)).await;
            while let Ok(Some(frame)) = inward.message().await {
                match worker.handle(&frame).unwrap() {
                    Did::Over { finished } => {
                        let _ = to.send(Worker::farewell()).await;
                        return (finished, others);
                    }
                    Did::Said(Some(frame)) => to.send(frame).await.unwrap(),
                    Did::Said(None) => {}
                }
            }
            (false, others)
        })
    });
    same("slow", &serving.end().unwrap(), &in_process(&config));
    let (finished, others) = slow.join().unwrap();
    assert!(finished);
    others.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// A site that speaks more versions than the server is welcomed in the newest that both know; and a
/// site that is welcomed in another takes no part.
#[test]
fn the_newest_version_that_both_speak_is_spoken() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let serving = start(&config, options());
    let address = serving.address;
    let welcome = runtime().block_on(async {
        let wide = hello(Versions { least: 1, most: 77 }, "east");
        let (_to, mut inward) =
            connect(&joining(address), Frame::words(ASIDE, &wide)).await.unwrap();
        inward.message().await.unwrap().unwrap()
    });
    let Ok(Instruction::Welcome(welcome)) = welcome.read() else { panic!() };
    assert_eq!(welcome.protocol, PROTOCOL.most);
    let newer = Instruction::Welcome(Box::new(Welcome { protocol: 77, ..*welcome }));
    let error = Worker::new(brings("east")).handle(&Frame::words(ASIDE, &newer)).unwrap_err();
    let most = PROTOCOL.most;
    let text =
        format!("this server speaks protocol 77, this site {most}: update the site's consilience");
    assert!(error.to_string().contains(&text), "{error}");
    let all: Vec<_> =
        ["north", "east", "the south"].map(|name| site(brings(name), joining(address))).into();
    same("after a polyglot", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// The most memory that this process ever had, in bytes.
fn most_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}

#[test]
fn a_flood_is_cut_off_and_takes_no_memory() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 40));
    let serving = start(&config, options());
    let (address, status) = (serving.address, std::sync::Arc::clone(&serving.status));
    let before = most_memory();
    runtime().block_on(async {
        let hello = Frame::words(ASIDE, &hello(PROTOCOL, "east"));
        let (to, mut inward) = connect(&joining(address), hello).await.unwrap();
        let junk =
            Frame { kind: WORDS, phase: 0, chain: 0, body: vec![b' '; 1 << 20].into(), rows: 0 };
        let mut sent = 0;
        while sent < 2000 && to.send(junk.clone()).await.is_ok() {
            sent += 1; // up to 2 GB
        }
        assert!(sent < 2000, "nobody stopped the flood");
        while let Ok(Some(_)) = inward.message().await {}
    });
    let all: Vec<_> =
        ["north", "east", "the south"].map(|name| site(brings(name), joining(address))).into();
    same("after a flood", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    assert!(
        status.view().refusals.iter().any(|(why, _)| why.contains("a flood")),
        "{:?}",
        status.view().refusals
    );
    if let (Some(before), Some(after)) = (before, most_memory()) {
        assert!(after - before < 200 << 20, "{} MB more", (after - before) >> 20);
    }
}

#[test]
fn strangers_and_other_versions_are_turned_away_at_the_door() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let serving = start(&config, options());
    let address = serving.address;
    let refusal = |first: Frame| {
        runtime().block_on(async {
            connect(&joining(address), first).await.map(|_| ()).unwrap_err().message().to_owned()
        })
    };
    let says = |protocol, site: &str| Frame::words(ASIDE, &hello(protocol, site));
    assert!(
        refusal(says(PROTOCOL, "west"))
            .contains("no site \"west\": its sites are north, east, the south")
    );
    let older = refusal(says(Versions { least: 0, most: PROTOCOL.least - 1 }, "east"));
    assert!(older.contains("this site 0 to 5: update the site's consilience"), "{older}");
    let newer = refusal(says(Versions { least: 90, most: 91 }, "east"));
    assert!(newer.contains("this server speaks protocol 6, this site 90 to 91"), "{newer}");
    assert!(newer.contains("update the server's consilience"), "{newer}");
    let unnamed = serde_json::json!({ "Hello": { "version": "0.0.0", "site": "east" } });
    let first = refusal(Frame::words(ASIDE, &unnamed));
    assert!(first.contains("version 0.0.0") && first.contains("this site 1:"), "{first}");
    assert!(refusal(Frame::message(0, 0, vec![1, 2, 3])).contains("where words were due"));
    assert!(refusal(Frame::words(ASIDE, &Tell::Done)).contains("no greeting"));
    let all: Vec<_> =
        ["north", "east", "the south"].map(|name| site(brings(name), joining(address))).into();
    same("after strangers", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// A site whose config differs in one setting refuses, and both sides name the field and both
/// values.
#[test]
fn a_site_whose_config_differs_in_one_setting_refuses_and_names_it() {
    let text = gaussians("name = \"qlsd\"\ncompress = \"qsgd(16)\"\nstep = 0.05", 20);
    let differences = [
        ("variance = 4.0", "variance = 9.0", "prior", ["variance 4 ", "variance 9 "]),
        ("step = 0.05", "step = 0.06", "step", [": 0.05", ": 0.06"]),
        ("qsgd(16)", "qsgd(8)", "compression by sites", ["qsgd(16)", "qsgd(8)"]),
    ];
    for (from, to, field, values) in differences {
        let (ours, theirs) = (config(&text), config(&text.replace(from, to)));
        let serving = start(&ours, options());
        let address = serving.address;
        let honest: Vec<_> =
            ["north", "east"].map(|name| site(brings(name), joining(address))).into();
        let stubborn = site(
            consilience_net::worker::Brings { expects: Some(theirs), ..brings("the south") },
            joining(address),
        );
        let JoinError::Site(SiteError::Disagree(shown)) = stubborn.join().unwrap().unwrap_err()
        else {
            panic!("it should disagree")
        };
        let ServeError::Lost(lost) = serving.end().unwrap_err() else {
            panic!("the server should stop")
        };
        for text in [shown, lost.to_string()] {
            assert!(text.contains(&format!("\n  {field}:\n")), "{text}");
            assert_eq!(text.matches("as stated first").count(), 1, "nothing else: {text}");
            assert!(values.iter().all(|value| text.contains(value)), "{text}");
        }
        honest.into_iter().for_each(|site| {
            assert!(!site.join().unwrap().unwrap(), "the run did not come to its end")
        });
    }
}

/// What all agreed on is kept by every party that keeps anything, in the same bytes.
#[test]
fn what_all_agreed_on_is_kept_and_shown() {
    let folder = folder("agreed");
    let config = config(&gaussians("name = \"lmc\"", 20));
    let serving = start(&config, ServeOptions { state: Some(folder.join("server")), ..options() });
    let keeps = |name: &str| consilience_net::worker::Brings {
        state: Some(folder.join("sites")),
        expects: (name == "east").then(|| config.clone()),
        ..brings(name)
    };
    let all: Vec<_> = ["north", "east", "the south"]
        .map(|name| site(keeps(name), joining(serving.address)))
        .into();
    let served = serving.end().unwrap();
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    let text = served.statement.text();
    assert!(text.contains("\nstep: found by surveys\n") && text.contains("\nfound, step: 0."));
    assert_eq!(std::fs::read_to_string(folder.join("server/statement.txt")).unwrap(), text);
    let run = std::fs::read_dir(folder.join("sites"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    let kept: Vec<String> = std::fs::read_dir(run)
        .unwrap()
        .map(|site| std::fs::read_to_string(site.unwrap().path().join("statement.txt")).unwrap())
        .collect();
    assert_eq!(kept, [text, text, text]);
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_site_does_not_give_its_noise_away_unasked() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let serving = start(&config, options());
    let careful = site(
        consilience_net::worker::Brings { allows_simulation: false, ..brings("east") },
        joining(serving.address),
    );
    let JoinError::Site(SiteError::Disagree(why)) = careful.join().unwrap().unwrap_err() else {
        panic!("it should disagree")
    };
    assert!(why.contains("could compute this site's noise"), "{why}");
    assert!(serving.end().unwrap_err().to_string().contains("does not take part"));
}

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("consilience-hostile-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn make(folder: &Path, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|s| (*s).to_owned()).collect();
    certs::make(folder, &names, &["localhost".into()], SystemTime::now()).unwrap();
}

#[test]
fn only_the_right_certificate_opens_the_door() {
    let (ours, others) = (folder("ours"), folder("others"));
    make(&ours, &["north", "east", "the south"]);
    make(&others, &["east"]);
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let papers = |folder: &Path, name: &str| Some(Papers::load(&folder.join(name)).unwrap());
    let serving = start(
        &config,
        ServeOptions {
            admission: Admission::Certificates(papers(&ours, "server").unwrap()),
            ..options()
        },
    );
    let server = format!("localhost:{}", serving.address.port());
    let with = |papers: Option<Papers>| {
        let credentials = papers.map_or(Credentials::Word, Credentials::Certificate);
        JoinOptions {
            server: server.clone(),
            server_name: None,
            credentials,
            patience: Some(Duration::from_secs(2)),
        }
    };
    let refused = |name: &str, papers: Option<Papers>| {
        site(brings(name), with(papers)).join().unwrap().unwrap_err().to_string()
    };
    let wrong = refused("east", papers(&ours, "north"));
    assert!(wrong.contains("not one of the site \"east\""), "{wrong}");
    refused("east", papers(&others, "east")); // nobody here knows that authority
    refused("east", papers(&ours, "server")); // a server's certificate is no client's
    refused("east", None); // no certificate at all
    let all: Vec<_> = ["north", "east", "the south"]
        .map(|name| site(brings(name), with(papers(&ours, name))))
        .into();
    same("with certificates", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    std::fs::remove_dir_all(&ours).unwrap();
    std::fs::remove_dir_all(&others).unwrap();
}

#[test]
fn without_certificates_only_this_machine_is_served() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let open = consilience_net::serve::bind("0.0.0.0:0".parse().unwrap()).unwrap();
    let status =
        std::sync::Arc::new(consilience_net::status::Status::new(&[], std::sync::Arc::default()));
    let error =
        consilience_net::serve::serve(open, &config, &options(), &status, |_| {}, |served| served)
            .unwrap_err()
            .to_string();
    assert!(error.contains("not an address of this machine alone"), "{error}");
    let far = JoinOptions {
        server: "10.1.2.3:7461".into(),
        server_name: None,
        credentials: Credentials::Word,
        patience: None,
    };
    assert!(endpoint(&far).unwrap_err().to_string().contains("not on this machine"));
}

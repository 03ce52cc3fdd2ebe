//! A site that cannot go on holds up the run and does not end it: everybody sees why, and when it
//! is mended the chain is the one of a fair day. An operator can hold a run, end it, or go on
//! without a site.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use common::*;
use consilience_engine::config::Config;
use consilience_engine::site::Own;
use consilience_net::certs::{self, Papers};
use consilience_net::control::{Command, order};
use consilience_net::frame::{Frame, MESSAGE, PATH, WORDS};
use consilience_net::join::{Credentials, JoinError, JoinOptions, attend, endpoint};
use consilience_net::revoked::fingerprint;
use consilience_net::serve::{Admission, ServeOptions};
use consilience_net::status::Status;
use consilience_net::talk::How;
use consilience_net::worker::{Brings, Did, SiteError, Worker};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic_prost::ProstCodec;

const SITES: [&str; 3] = ["north", "east", "the south"];

fn patient() -> ServeOptions {
    ServeOptions { quarantine: true, http: Some("127.0.0.1:0".parse().unwrap()), ..options() }
}

fn plain(iterations: u64) -> Config {
    config(&gaussians("name = \"lmc\"\nstep = 0.05", iterations))
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Wait until a site blocks the run, and see the reason on every screen.
fn blocked(serving: &Serving, site: &str, why: &str) {
    let status = Arc::clone(&serving.status);
    let says = move |view: &consilience_net::status::View| {
        let by = format!("blocked by {site} since ");
        view.blocked.iter().any(|text| text.starts_with(&by) && text.contains(why))
    };
    until(&format!("{site} blocks: {why}; {:?}", status.view().blocked), || says(&status.view()));
    let by = format!("blocked by {site} since ");
    assert!(status.view().line().contains(&by), "{}", status.view().line());
    let http = serving.http.unwrap();
    let text = get(http, "/status.json");
    let state: serde_json::Value =
        serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let shown = state["blocked"][0].as_str().unwrap();
    assert!(shown.starts_with(&by) && shown.contains(why), "{text}");
    let place = SITES.iter().position(|known| *known == site).unwrap_or(0);
    assert!(state["sites"][place]["blocked"]["why"].as_str().unwrap().contains(why), "{text}");
    let metrics = get(http, "/metrics");
    assert!(metrics.contains(&format!("consilience_site_blocked{{site=\"{site}\"}} 1")));
    assert!(text.contains("frame-ancestors 'none'"));
}

/// The others are there; the last comes broken first, and mended then.
fn mended(config: &Config, broken: Brings, good: Brings, why: &str) -> JoinError {
    let serving = start(config, patient());
    let address = serving.address;
    let others: Vec<_> = SITES[..2].iter().map(|n| site(brings(n), joining(address))).collect();
    let failed = site(broken, joining(address)).join().unwrap().unwrap_err();
    blocked(&serving, SITES[2], why);
    let mended = site(good, joining(address));
    let status = Arc::clone(&serving.status);
    same("mended", &serving.end().unwrap(), &in_process(config));
    others.into_iter().chain([mended]).for_each(|site| assert!(site.join().unwrap().unwrap()));
    assert!(status.view().blocked.is_empty(), "{:?}", status.view().blocked);
    failed
}

/// A refusal, a config that differs, a folder that is none: each holds up the run and no more.
#[test]
fn a_site_that_cannot_go_on_is_waited_for() {
    let config = plain(30);
    let last = SITES[2];
    let why = "could compute this site's noise";
    let broken = Brings { allows_simulation: false, ..brings(last) };
    mended(&config, broken, brings(last), why);
    let theirs = common::config(
        &gaussians("name = \"lmc\"\nstep = 0.06", 30), // another step
    );
    let broken = Brings { expects: Some(theirs), ..brings(last) };
    let error = mended(&config, broken, brings(last), "0.06");
    assert!(matches!(error, JoinError::Site(SiteError::Disagree(_))), "{error}");
    let file = folder("no-folder").join("file");
    std::fs::write(&file, "").unwrap();
    let broken = Brings { state: Some(file.clone()), ..brings(last) };
    let error = mended(&config, broken, brings(last), "Not a directory");
    assert!(matches!(error, JoinError::Site(SiteError::Store(_))), "{error}");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("consilience-quarantine-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Take part as a site does, but change what is said. What the server says in the end of this.
fn tampered(
    address: SocketAddr,
    brings: Brings,
    change: impl Fn(&mut Frame) + Send + 'static,
) -> std::thread::JoinHandle<Option<String>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut worker = Worker::new(brings);
            let channel = endpoint(&joining(address)).unwrap().connect().await.unwrap();
            let mut grpc = tonic::client::Grpc::new(channel);
            grpc.ready().await.unwrap();
            let (to, outward) = mpsc::channel(64);
            to.send(worker.hello()).await.unwrap();
            let path = http::uri::PathAndQuery::from_static(PATH);
            let codec = ProstCodec::<Frame, Frame>::default();
            let request = Request::new(ReceiverStream::new(outward));
            let mut inward = grpc.streaming(request, path, codec).await.unwrap().into_inner();
            while let Ok(Some(frame)) = inward.message().await {
                match worker.handle(&frame) {
                    Ok(Did::Said(Some(mut said))) => {
                        change(&mut said);
                        // who is turned away may still read why
                        let _ = to.send(said).await;
                    }
                    Ok(Did::Said(None)) => {}
                    Ok(Did::Over { .. }) => return None,
                    Err(error) => return Some(error.to_string()),
                }
            }
            None
        })
    })
}

/// Answers that are no numbers, too large, too long: the site is told, everybody sees it, nobody
/// tries for ever.
#[test]
fn poisoned_and_oversize_answers_are_named_to_their_site() {
    fn ending(frame: &mut Frame, number: f32) {
        let mut body = frame.body.to_vec();
        let at = body.len() - 4;
        body[at..].copy_from_slice(&number.to_le_bytes());
        frame.body = body.into();
    }
    type Change = fn(&mut Frame);
    let cases: [(Change, &str); 5] = [
        (|frame| ending(frame, f32::NAN), "is not finite"),
        (|frame| ending(frame, 1e30), "above the limit 1.000e12"),
        (|frame| frame.body = vec![0; 5000].into(), "with 5000 bytes, where"),
        (|frame| frame.body = vec![0; 9 << 20].into(), "its message is too long"),
        (|frame| frame.kind = 9, "a frame of kind 9 with"),
    ];
    for (change, why) in cases {
        let config = plain(30);
        let serving = start(&config, patient());
        let address = serving.address;
        let others: Vec<_> = SITES[..2].iter().map(|n| site(brings(n), joining(address))).collect();
        let villain = tampered(address, brings(SITES[2]), move |frame| {
            if frame.kind == MESSAGE {
                change(frame);
            }
        });
        blocked(&serving, SITES[2], why);
        let told = villain.join().unwrap().unwrap();
        assert!(told.starts_with("the server refuses this site: ") && told.contains(why), "{told}");
        let good = site(brings(SITES[2]), joining(address));
        same(why, &serving.end().unwrap(), &in_process(&config));
        others.into_iter().chain([good]).for_each(|site| assert!(site.join().unwrap().unwrap()));
    }
}

/// A gradient that rows as many and as long as the site has cannot give, though it is far below the
/// limit of all answers.
#[test]
fn an_answer_that_no_rows_can_give_is_refused_by_the_model() {
    let text = "seed = 3\nseeds = \"simulation\"\n[data]\nbuiltin = \"heart-disease\"\n[sampler]\n\
        name = \"lmc\"\nstep = 1e-3\n[run]\nchains = 1\niterations = 20\n";
    let config = config(text);
    let names = consilience_engine::site::names(&config).unwrap();
    let rows = |name: &str| Brings { data: hospital(name), ..brings(name) };
    let serving = start(&config, patient());
    let (address, last) = (serving.address, names[3].clone());
    let others: Vec<_> = names[..3].iter().map(|n| site(rows(n), joining(address))).collect();
    let villain = tampered(address, rows(&last), |frame| {
        if frame.kind == MESSAGE {
            let mut body = frame.body.to_vec();
            let at = body.len() - 4;
            body[at..].copy_from_slice(&1e5f32.to_le_bytes());
            frame.body = body.into();
        }
    });
    let why = "of all that its rows can give";
    let seen = || serving.status.view().blocked.iter().any(|text| text.contains(why));
    until(&format!("{:?}", serving.status.view().blocked), seen);
    assert!(villain.join().unwrap().unwrap().contains(why));
    let good = site(rows(&last), joining(address));
    same(why, &serving.end().unwrap(), &in_process(&config));
    others.into_iter().chain([good]).for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// Words that lie, about the site's columns and about what was agreed on: whoever lies is turned
/// away by name, the others need not do anything.
#[test]
fn words_that_do_not_do_are_asked_again() {
    let text = "seeds = \"simulation\"\n[target]\nformula = \"ill == yes ~ age + sex\"\n\
        [[client]]\nname = \"north\"\n[[client]]\nname = \"east\"\n[sampler]\nname = \"lmc\"\n\
        step = 0.01\n[run]\nchains = 1\niterations = 10\n";
    let config = config(text);
    let rows = "age,sex,ill\n41,f,no\n63,m,yes\n57,m,no\n38,f,yes\n";
    let table = |site: &str| Brings { data: Own::Text(rows.into()), ..brings(site) };
    let facts = "/Introduction/Coded/facts/columns";
    for (place, value, why) in [
        ("/Introduction/Columns/columns", "[]", "east"),
        (facts, "[]", "where ill, age, sex were asked about"),
        ("/Stated", "\"nothing\"", "east"),
        ("/Introduction", "null", "words cannot be read"),
    ] {
        let serving = start(&config, ServeOptions { http: None, ..patient() });
        let address = serving.address;
        let north = site(table("north"), joining(address));
        let villain = tampered(address, table("east"), move |frame| {
            let Ok(mut words) = serde_json::from_slice::<serde_json::Value>(&frame.body) else {
                return;
            };
            if frame.kind == WORDS
                && let Some(part) = words.pointer_mut(place)
            {
                *part = serde_json::from_str(value).unwrap();
                frame.body = serde_json::to_vec(&words).unwrap().into();
            }
        });
        let status = Arc::clone(&serving.status);
        let seen = |view: consilience_net::status::View| {
            view.blocked.iter().any(|text| text.contains(why))
                || view.refusals.iter().any(|(text, _)| text.contains(why))
        };
        until(&format!("{place}: {:?}", status.view()), || seen(status.view()));
        assert!(villain.join().unwrap().unwrap().contains("the server refuses this site"));
        let east = site(table("east"), joining(address));
        serving.end().unwrap();
        assert!(north.join().unwrap().unwrap() && east.join().unwrap().unwrap(), "{place}");
    }
}

/// A second process of the same site does not push out the first.
#[test]
fn a_second_process_waits_at_the_door() {
    let config = plain(400);
    let serving = start(&config, patient());
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let first = site(brings("east"), joining(address));
    until("the first is there", || status.view().sites[1].connected);
    let impatient = JoinOptions { patience: Some(Duration::from_secs(2)), ..joining(address) };
    let second = site(brings("east"), impatient).join().unwrap();
    let Err(JoinError::Away { why, .. }) = second else { panic!("{second:?}") };
    assert!(why.contains("is connected already: does a second process run"), "{why}");
    assert_eq!(status.view().sites[1].returns, 0, "the first was not disturbed");
    let rest: Vec<_> =
        ["north", "the south"].map(|name| site(brings(name), joining(address))).into();
    same("twins", &serving.end().unwrap(), &in_process(&config));
    rest.into_iter().chain([first]).for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// A stranger who claims to be a site does not push it out either, however often it knocks.
#[test]
fn a_stranger_cannot_have_a_site_turned_away() {
    let here = folder("stranger");
    let names: Vec<String> = SITES.map(str::to_owned).to_vec();
    certs::make(&here.join("certs"), &names, &["localhost".into()], SystemTime::now()).unwrap();
    let papers = |name: &str| Papers::load(&here.join("certs").join(name)).unwrap();
    let config = plain(30);
    let admission = Admission::Certificates(papers("server"));
    let serving = start(&config, ServeOptions { admission, http: None, ..patient() });
    let with = |name: &str| JoinOptions {
        server: format!("localhost:{}", serving.address.port()),
        server_name: None,
        credentials: Credentials::Certificate(papers(name)),
        patience: Some(Duration::from_secs(60)),
    };
    let status = Arc::clone(&serving.status);
    let east = site(brings("east"), with("east"));
    until("it is there", || status.view().sites[1].connected);
    for _ in 0..40 {
        let error = site(brings("east"), with("north")).join().unwrap().unwrap_err();
        assert!(error.to_string().contains("not one of the site \"east\""), "{error}");
    }
    let view = status.view();
    assert!(view.sites[1].connected && view.sites[1].returns == 0 && view.blocked.is_empty());
    // No site may control the run, and the operator is no site.
    let refused = |name: &str| order(&with(name), &Command::End).unwrap_err().to_string();
    assert!(refused("north").contains("not an operator's"), "{}", refused("north"));
    let error = site(brings("north"), with("operator")).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("not one of the site"), "{error}");
    let line = order(&with("operator"), &Command::Status).unwrap();
    assert!(line.contains("1 of 3 sites connected"), "{line}");
    let rest: Vec<_> = ["north", "the south"].map(|name| site(brings(name), with(name))).into();
    same("strangers", &serving.end().unwrap(), &in_process(&config));
    rest.into_iter().chain([east]).for_each(|site| assert!(site.join().unwrap().unwrap()));
    std::fs::remove_dir_all(&here).unwrap();
}

/// The list is read again while the server runs: a site that is there has to go, and nobody comes
/// in with its certificate; the others' run waits.
#[test]
fn a_certificate_that_is_revoked_opens_nothing_any_more() {
    let here = folder("revoked");
    let names: Vec<String> = SITES.map(str::to_owned).to_vec();
    certs::make(&here.join("certs"), &names, &["localhost".into()], SystemTime::now()).unwrap();
    let papers = |name: &str| Papers::load(&here.join("certs").join(name)).unwrap();
    let east = CertificateDer::from_pem_file(here.join("certs/east/cert.pem")).unwrap();
    let list = here.join("revoked.txt");
    let said = |text: &str, hours: u32| {
        std::fs::write(&list, text).unwrap();
        // whatever the clock of the disk is
        let later = SystemTime::now() + Duration::from_secs(3600) * hours;
        std::fs::File::options().write(true).open(&list).unwrap().set_modified(later).unwrap();
    };
    said("# nobody yet\n", 0);
    let config = plain(30);
    let (admission, revoked) = (Admission::Certificates(papers("server")), Some(list.clone()));
    let serving = start(&config, ServeOptions { admission, revoked, http: None, ..patient() });
    let with = |name: &str| JoinOptions {
        server: format!("localhost:{}", serving.address.port()),
        server_name: None,
        credentials: Credentials::Certificate(papers(name)),
        patience: Some(Duration::from_secs(60)),
    };
    let status = Arc::clone(&serving.status);
    let first = site(brings("east"), with("east"));
    until("it is there", || status.view().sites[1].connected);
    said(&fingerprint(&east), 1);
    let gone = first.join().unwrap().unwrap_err().to_string();
    assert!(gone.contains("revoked"), "{gone}");
    until("it has gone", || !status.view().sites[1].connected);
    let refused = site(brings("east"), with("east")).join().unwrap().unwrap_err().to_string();
    assert!(refused.contains("was revoked"), "{refused}");
    said("# it was found again\n", 2);
    let all: Vec<_> = SITES.map(|name| site(brings(name), with(name))).into();
    same("revoked", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    std::fs::remove_dir_all(&here).unwrap();
}

fn rounds(status: &Status) -> u64 {
    status.view().rounds
}

/// Pause and resume change nothing but the time; a strict run drops nobody; end keeps the draws.
#[test]
fn an_operator_holds_a_run_lets_it_go_on_and_ends_it() {
    let config = plain(3000);
    let serving = start(&config, patient());
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let all: Vec<_> = SITES.map(|name| site(brings(name), joining(address))).into();
    until("it samples", || rounds(&status) > 50);
    let line = order(&joining(address), &Command::Pause).unwrap();
    assert!(line.contains("paused since "), "{line}");
    until("all are let go", || status.view().sites.iter().all(|site| !site.connected));
    let held = rounds(&status);
    assert!(get(serving.http.unwrap(), "/status.json").contains("the operator paused the run"));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(rounds(&status), held, "nothing goes forward");
    let why = order(&joining(address), &Command::Drop { site: "east".into() }).unwrap_err();
    assert!(why.to_string().contains("this run is strict"), "{why}");
    order(&joining(address), &Command::Resume).unwrap();
    same("held", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));

    let serving = start(&plain(1_000_000), patient());
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let attending = |name: &str| {
        let (brings, options) = (brings(name), joining(address));
        std::thread::spawn(move || attend(brings, &options, &Arc::default()))
    };
    let all: Vec<_> = SITES.map(attending).into();
    until("it samples", || rounds(&status) > 50);
    order(&joining(address), &Command::End).unwrap();
    let served = serving.end().unwrap();
    assert!(served.outcome.interrupted && served.outcome.draws.length() > 5);
    for site in all {
        assert_eq!(site.join().unwrap().unwrap().how, How::Ended);
    }
}

/// An elastic run goes on while a site cannot, and at the operator's word without waiting for it.
#[test]
fn an_elastic_run_goes_on_without_a_site() {
    let sampler = "name = \"lmc\"\nstep = 0.05\nparticipation = { elastic = 0.9, deadline = 0.05 }";
    let config = config(&gaussians(sampler, 300));
    let serving = start(&config, patient());
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let others: Vec<_> = SITES[..2].iter().map(|n| site(brings(n), joining(address))).collect();
    let told = tampered(address, brings(SITES[2]), |frame| {
        if frame.kind == MESSAGE {
            frame.body = vec![0; 5000].into();
        }
    });
    assert!(told.join().unwrap().unwrap().contains("5000 bytes"));
    let before = rounds(&status);
    until("it goes on", || rounds(&status) > before + 3);
    order(&joining(address), &Command::Drop { site: SITES[2].into() }).unwrap();
    let error = site(brings(SITES[2]), joining(address)).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("the operator goes on without"), "{error}");
    let served = serving.end().unwrap();
    assert_eq!(served.outcome.iterations, 600, "of two chains");
    let view = status.view();
    assert!(view.sites[2].dropped && view.sites[2].absent > 500, "{:?}", view.sites[2]);
    others.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

/// A site whose gradients are off by a constant: the others hold it, and it is named on every
/// screen and beside the draws. Honest sites are not.
#[test]
fn a_site_that_pulls_against_all_others_is_named() {
    let sites = SITES.map(|name| format!("[[client]]\nname = \"{name}\"\n"));
    let rows = "rows = [[0.3, 1.0], [-0.7, 0.2], [0.4, -1.1], [0.1, 0.5], [-0.2, -0.4]]\n";
    let config = config(&format!(
        "seed = 5\nseeds = \"simulation\"\n[target]\nmodel = \"isotropic\"\n{}{rows}\
         [sampler]\nname = \"lmc\"\nstep = 0.02\n[run]\nchains = 2\niterations = 700\n\
         burn_in = 100\n",
        sites.join(rows)
    ));
    for pull in [0.0f32, 300.0] {
        let serving = start(&config, patient());
        let (address, status) = (serving.address, Arc::clone(&serving.status));
        let others: Vec<_> = SITES[..2].iter().map(|n| site(brings(n), joining(address))).collect();
        let villain = tampered(address, brings(SITES[2]), move |frame| {
            if frame.kind == MESSAGE {
                let mut body = frame.body.to_vec();
                let at = body.len() - 4;
                let last = f32::from_le_bytes(body[at..].try_into().unwrap());
                body[at..].copy_from_slice(&(last + pull).to_le_bytes());
                frame.body = body.into();
            }
        });
        let served = serving.end().unwrap();
        others.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
        assert_eq!(villain.join().unwrap(), None);
        let view = status.view();
        let named = |text: &String| text.contains("site \"the south\" moves the mean by about");
        let beside: Vec<String> =
            served.warnings.iter().map(|warning| warning.to_string()).collect();
        if pull == 0.0 {
            assert!(view.alarms.is_empty() && view.sites.iter().all(|s| s.influence < Some(0.5)));
            assert!(!beside.iter().any(named), "{beside:?}");
            continue;
        }
        assert_eq!(view.alarms, ["the south"], "{:?}", view.sites);
        assert!(view.warnings.iter().any(named) && beside.iter().any(named), "{beside:?}");
        assert!(view.line().contains("ALARM: the answers of the south"), "{}", view.line());
        let metrics = view.metrics();
        assert!(metrics.contains("consilience_site_alarm{site=\"the south\"} 1"), "{metrics}");
        assert!(metrics.contains("consilience_site_alarm{site=\"east\"} 0"), "{metrics}");
    }
}

/// A strict run that a site blocks for too long is paused by its name, until the operator lets it
/// go on; it is then the run of a fair day.
#[test]
fn a_run_that_is_blocked_for_too_long_is_paused_by_name() {
    let config = plain(30);
    let pause_after = Some(Duration::from_secs(1));
    let serving = start(&config, ServeOptions { pause_after, ..patient() });
    let (address, status) = (serving.address, Arc::clone(&serving.status));
    let others: Vec<_> = SITES[..2].iter().map(|n| site(brings(n), joining(address))).collect();
    let broken = Brings { allows_simulation: false, ..brings(SITES[2]) };
    site(broken, joining(address)).join().unwrap().unwrap_err();
    until("it is paused", || status.paused().is_some());
    let why = status.paused().unwrap().why;
    let said = "site \"the south\" has blocked the run for 1 seconds: ";
    assert!(why.starts_with(said) && why.contains("consilience control resume"), "{why}");
    assert!(get(serving.http.unwrap(), "/status.json").contains("has blocked the run for 1 sec"));
    order(&joining(address), &Command::Resume).unwrap();
    let mended = site(brings(SITES[2]), joining(address));
    same("paused by name", &serving.end().unwrap(), &in_process(&config));
    others.into_iter().chain([mended]).for_each(|site| assert!(site.join().unwrap().unwrap()));
}

//! A run with a privacy budget: sites count what they tell, pay for a run once, and refuse what
//! would tell more.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use common::*;
use consilience_core::privacy::nearest;
use consilience_core::protocol::{
    Direction, Kind, Order, Payload, Precision, ReferencePoint, Statement, Task, encode_order,
};
use consilience_engine::plan::Decision;
use consilience_engine::privacy::of_config;
use consilience_engine::site::{LocalSite, SecureSite, agree, names};
use consilience_engine::statement;
use consilience_engine::store::{Folder, Purse};
use consilience_net::certs::{self, Papers, name_of_site};
use consilience_net::frame::{ASIDE, Frame};
use consilience_net::join::{Credentials, JoinOptions, join};
use consilience_net::mailbox::Correspondent;
use consilience_net::serve::{Admission, ServeError, ServeOptions};
use consilience_net::talk::{Instruction, PROTOCOL, Tell, VERSION, Welcome};
use consilience_net::worker::{Brings, Did, SiteError, Worker};
use prost::Message;

const SITES: [&str; 2] = ["north", "south"];

fn text() -> String {
    "seed = 1\n[target]\nmodel = \"logistic\"\nintercept = false\n\
     prior = { law = \"gaussian\", variance = 2.0 }\n\
     [[client]]\nname = \"north\"\nrows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [30.0, -40.0, 1]]\n\
     [[client]]\nname = \"south\"\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1]]\n\
     [sampler]\nname = \"lmc\"\nstep = 1e-4\n[run]\nchains = 2\niterations = 30\nburn_in = 5\n\
     [privacy]\nepsilon = 3.0\ndelta = 1e-6\nrow_norm = 2.0\n"
        .to_owned()
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("consilience-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn bring(here: &Path, name: &str) -> Brings {
    Brings {
        state: Some(here.join(name)),
        budget: Some((6.0, 1e-5)),
        allows_simulation: false,
        ..brings(name)
    }
}

/// The run with these sites: what the server says, and what each site.
fn run(
    text: &str,
    bring: impl Fn(&str) -> Brings,
) -> (Result<(), ServeError>, Vec<Result<bool, String>>) {
    let config = config(text);
    let deadline = Some(std::time::Duration::from_secs(5));
    let serving = start(&config, ServeOptions { deadline, ..options() });
    let sites: Vec<_> =
        SITES.iter().map(|name| site(bring(name), joining(serving.address))).collect();
    let served = serving.end().map(|_| ());
    let told = sites.into_iter().map(|site| site.join().unwrap().map_err(|e| e.to_string()));
    (served, told.collect())
}

fn spent(here: &Path, name: &str) -> f64 {
    let path = here.join(name).join("purse").join(name_of_site(name));
    Purse::open(Folder::open(&path).unwrap()).unwrap().spent().0
}

#[test]
fn sites_pay_for_a_run_once_and_refuse_when_their_purse_is_empty() {
    let here = folder("purse");
    for paid in [3.0, 6.0] {
        let (served, sites) = run(&text(), |name| bring(&here, name));
        served.unwrap();
        assert_eq!(sites, [Ok(true), Ok(true)]);
        for name in SITES {
            assert_eq!(spent(&here, name), paid, "{name}");
        }
    }
    let (served, sites) = run(&text(), |name| bring(&here, name));
    assert!(served.is_err());
    let told: Vec<String> = sites.into_iter().filter_map(Result::err).collect();
    assert!(told.iter().any(|why| why.contains("2 runs have taken the rest")), "{told:?}");
    assert_eq!((spent(&here, "north"), spent(&here, "south")), (6.0, 6.0));
    std::fs::remove_dir_all(here).unwrap();
}

/// Noisy differences of potentials are counted and paid for as gradients are.
#[test]
fn noisy_differences_are_sent_counted_and_paid_for() {
    let here = folder("penalty");
    let sampler = "name = \"penalty\"\nstep = 0.05\npotential_noise = 200.0";
    let text = text().replace("name = \"lmc\"\nstep = 1e-4", sampler);
    let (served, sites) = run(&text, |name| bring(&here, name));
    served.unwrap();
    assert_eq!(sites, [Ok(true), Ok(true)]);
    assert_eq!((spent(&here, "north"), spent(&here, "south")), (3.0, 3.0));
    let (served, _) = run(&text.replace("= 200.0", "= 20.0"), |name| bring(&here, name));
    let why = served.unwrap_err().to_string();
    assert!(why.contains("allows") && why.contains("30: epsilon would be"), "{why}");
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn a_site_that_cannot_count_takes_no_part() {
    let here = folder("uncounted");
    let without_state = |name: &str| Brings { state: None, ..bring(&here, name) };
    let without_purse = |name: &str| Brings { budget: None, ..bring(&here, name) };
    for (word, (served, sites)) in
        [("--state", run(&text(), without_state)), ("--budget", run(&text(), without_purse))]
    {
        assert!(served.is_err());
        let told: Vec<String> = sites.into_iter().filter_map(Result::err).collect();
        assert!(told.iter().any(|why| why.contains(word)), "{told:?}");
    }
    let _ = std::fs::remove_dir_all(here);
}

/// Without `[privacy]` a server would be told exact functions of rows: a site that has a budget
/// does not even say how many rows it has, however it is asked.
#[test]
fn a_site_with_a_budget_takes_no_part_in_a_run_without_one() {
    let here = folder("unbudgeted");
    let open = text().split("[privacy]").next().unwrap().to_owned();
    let why = "the server's config has no [privacy]";
    let (served, sites) = run(&open, |name| bring(&here, name));
    let heard = served.unwrap_err().to_string();
    assert!(heard.contains(why), "{heard}");
    let told: Vec<String> = sites.into_iter().filter_map(Result::err).collect();
    assert!(told.iter().any(|told| told.contains(why)), "{told:?}");
    // by post
    let config = config(&open);
    let welcome = Welcome {
        version: VERSION.into(),
        protocol: PROTOCOL.most,
        run: "0123456789abcdef0123456789abcdef".into(),
        boot: 1,
        config: config.shown_to(0),
        index: 0,
        simulation: false,
    };
    let letter = [
        Frame::words(ASIDE, &Instruction::Welcome(Box::new(welcome))),
        Frame::words(1, &Instruction::Introduce),
    ];
    let bundle: Vec<u8> = letter.iter().flat_map(Message::encode_length_delimited_to_vec).collect();
    let mut site = Correspondent::new(bring(&here, "north")).unwrap();
    let answered = site.answer(&bundle).unwrap();
    assert!(answered.trouble.unwrap().to_string().contains(why));
    assert!(contains(&answered.bundle, why.as_bytes()), "the server is told");
    assert!(!contains(&answered.bundle, b"Introduction"), "and nothing else");
    assert!(!here.join("north").join("purse").exists(), "nothing is paid");
    // A site without a budget decides for itself.
    let (served, sites) = run(&open, |name| Brings { budget: None, ..bring(&here, name) });
    served.unwrap();
    assert_eq!(sites, [Ok(true), Ok(true)]);
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn a_server_that_would_know_the_noise_or_ask_for_more_is_not_opened() {
    for other in ["seeds = \"simulation\"\n", "output = { lp = true }\n"] {
        let config = config(&format!("{other}{}", text()));
        let listener = consilience_net::serve::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let names = consilience_engine::site::names(&config).unwrap();
        let status = consilience_net::status::Status::new(&names, Default::default());
        let refused = consilience_net::serve::serve(
            listener,
            &config,
            &options(),
            &std::sync::Arc::new(status),
            |_| {},
            |_| (),
        );
        let why = refused.unwrap_err().to_string();
        assert!(why.contains("[privacy]"), "{why}");
    }
}

/// A site that a test orders about in place of a server: it has agreed on a run.
fn ordered(here: &Path, run: &str, text: &str) -> Result<Worker, SiteError> {
    let config = config(text);
    let mut worker = Worker::new(bring(here, "north"));
    let welcome = Welcome {
        version: VERSION.into(),
        protocol: PROTOCOL.most,
        run: run.into(),
        boot: 1,
        config: config.shown_to(0),
        index: 0,
        simulation: false,
    };
    worker.handle(&Frame::words(ASIDE, &Instruction::Welcome(Box::new(welcome))))?;
    let introductions: Vec<_> = LocalSite::open_all(&config)
        .unwrap()
        .iter()
        .map(|site| site.introduce(&config).unwrap())
        .collect();
    let agreement = agree(&config, None, &introductions).unwrap().agreement;
    let sites = names(&config).unwrap();
    let stated = |decision: Option<&Decision>| {
        statement::of_run(&config, &agreement, &sites, decision).text().to_owned()
    };
    let statement = stated(None);
    worker.handle(&Frame::words(
        1,
        &Instruction::Agree { agreement: agreement.clone(), statement },
    ))?;
    let decision = Decision {
        sampler: None,
        step: None,
        weights: None,
        chains: None,
        attempt: 0,
        halved: false,
    };
    let statement = stated(Some(&decision));
    worker.handle(&Frame::words(2, &Instruction::Decide { decision, statement }))?;
    Ok(worker)
}

fn order(round: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let order = Order {
        round,
        task: Task::Estimate,
        position: Some(Payload::Plain(&[0.25, 0.5], Precision::F32)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    encode_order(&order, &mut bytes);
    bytes
}

#[test]
fn a_server_that_asks_for_more_than_was_agreed_is_refused() {
    let here = folder("more");
    let run = "0123456789abcdef0123456789abcdef";
    let mut worker = ordered(&here, run, &text()).unwrap();
    for ask in [
        Instruction::Where { phase: 3, survey: true },
        Instruction::Evaluate { draws: vec![0.0, 0.0] },
        Instruction::MoveTo { centre: vec![0.0; 2], matrix: vec![1.0, 0.0, 0.0, 1.0], share: 0.5 },
    ] {
        let refused = worker.handle(&Frame::words(3, &ask)).unwrap_err().to_string();
        assert!(refused.contains("without noise"), "{refused}");
    }
    for (of, draws) in [(1, vec![0.0; 3]), (0, vec![0.0; 2]), (1, vec![0.0; 4])] {
        let ask = Instruction::Draws { first: 0, of, length: 1, draws };
        let refused = worker.handle(&Frame::words(3, &ask)).unwrap_err().to_string();
        assert!(refused.contains("none of this run"), "{refused}");
    }
    let ask = Instruction::Draws { first: 0, of: 1, length: 1, draws: vec![0.0; 2] };
    let refused = worker.handle(&Frame::words(3, &ask)).unwrap_err().to_string();
    assert!(refused.contains("effects of groups, and there are none"), "{refused}");
    // Chain by chain as many answers as the budget allows, and not one more.
    let plan = of_config(&config(&text())).unwrap();
    let allowed = plan.sites[0].exposures[0].allowed;
    assert!((50..5000).contains(&allowed), "{allowed}");
    for chain in 0..2 {
        for round in 0..allowed {
            let answer = worker.handle(&Frame::message(2, chain, order(round))).unwrap();
            assert!(matches!(answer, Did::Said(Some(_))), "{round}");
        }
        let more = worker.handle(&Frame::message(2, chain, order(allowed))).unwrap_err();
        assert!(more.to_string().contains("are spent"), "{more}");
    }
    // The same run again: the count is where it was.
    drop(worker);
    let mut worker = ordered(&here, run, &text()).unwrap();
    let more = worker.handle(&Frame::message(2, 0, order(allowed))).unwrap_err();
    assert!(more.to_string().contains("are spent"), "{more}");
    drop(worker);
    // Another budget, step or batch under the same name is another run.
    for (find, other) in [
        ("epsilon = 3.0", "epsilon = 30.0"),
        ("step = 1e-4", "step = 1e-6"),
        ("name = \"lmc\"", "name = \"sgld\"\nbatch = 0.5"),
    ] {
        let changed = ordered(&here, run, &text().replace(find, other)).err().unwrap().to_string();
        assert!(changed.contains("another run under the same name"), "{changed}");
    }
    // A run that is paid for and has lost its count is not gone on with.
    std::fs::remove_dir_all(here.join("north").join(run)).unwrap();
    let lost = ordered(&here, run, &text()).err().unwrap().to_string();
    assert!(lost.contains("lost what it has told"), "{lost}");
    assert_eq!(spent(&here, "north"), 3.0);
    std::fs::remove_dir_all(here).unwrap();
}

/// The same rows, released once.
fn once() -> String {
    let chains = "name = \"lmc\"\nstep = 1e-4\n[run]\nchains = 2\niterations = 30\nburn_in = 5";
    let text = text().replace(chains, "name = \"dp-release\"\n[run]\niterations = 30");
    assert!(text.contains("dp-release"));
    format!("{text}weak = true\n")
}

#[test]
fn a_release_is_told_over_the_network_and_paid_for_once() {
    let here = folder("release");
    let (served, sites) = run(&once(), |name| bring(&here, name));
    served.unwrap();
    assert_eq!(sites, [Ok(true), Ok(true)]);
    assert_eq!((spent(&here, "north"), spent(&here, "south")), (3.0, 3.0));
    std::fs::remove_dir_all(here).unwrap();
}

/// An order for one of two releases: moments, then gradient and Hessian at a point.
fn release(round: u64, at: Option<[f64; 2]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let order = Order {
        round,
        task: Task::Release { numbers: 5 },
        position: at.as_ref().map(|at| Payload::Plain(at, Precision::F64)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    encode_order(&order, &mut bytes);
    bytes
}

/// Whatever a server asks, a site gives each release once: a second start, another point for the
/// second release and a third release are not answered, also after the site was killed.
#[test]
fn a_site_releases_once_whatever_it_is_asked() {
    let here = folder("once");
    let run = "fedcba9876543210fedcba9876543210";
    let mut worker = ordered(&here, run, &once()).unwrap();
    let said =
        |worker: &mut Worker, order: Vec<u8>| match worker.handle(&Frame::message(2, 0, order)) {
            Ok(Did::Said(Some(frame))) => Some(frame.body),
            Ok(_) | Err(_) => None,
        };
    assert!(said(&mut worker, release(1, Some([0.5, 0.1]))).is_none(), "the second one first");
    let first = said(&mut worker, release(0, None)).unwrap();
    assert_eq!(said(&mut worker, release(0, None)).unwrap(), first, "the same bytes again");
    drop(worker);
    let mut worker = ordered(&here, run, &once()).unwrap();
    assert_eq!(said(&mut worker, release(0, None)).unwrap(), first, "and after a restart");
    let second = said(&mut worker, release(1, Some([0.5, 0.1]))).unwrap();
    for at in [[0.5, 0.1000001], [-9.0, 3.0]] {
        assert!(said(&mut worker, release(1, Some(at))).is_none(), "another point");
        assert!(said(&mut worker, release(2, Some(at))).is_none(), "a third release");
    }
    assert_eq!(said(&mut worker, release(1, Some([0.5, 0.1]))).unwrap(), second);
    assert!(said(&mut worker, order(2)).is_none(), "a gradient");
    assert!(worker.handle(&Frame::message(2, 1, release(0, None))).is_err(), "a second chain");
    drop(worker);
    for (find, other, says) in [
        ("epsilon = 3.0", "epsilon = 30.0", "another run under the same name"),
        ("row_norm = 2.0", "row_norm = 9.0", "as the config codes them, are not those"),
    ] {
        let changed = ordered(&here, run, &once().replace(find, other)).err().unwrap().to_string();
        assert!(changed.contains(says), "{changed}");
    }
    std::fs::remove_dir_all(here).unwrap();
}

/// The same run with a secure sum and a third site.
fn summed() -> String {
    let third = "[[client]]\nname = \"east\"\nrows = [[0.3, 0.1, 1], [0.2, -0.3, 0]]\n[sampler]";
    format!("{}secure_sum = true\n", text().replace("[sampler]", third))
}

const THREE: [&str; 3] = ["north", "south", "east"];

fn make_certs(here: &Path) -> PathBuf {
    let folder = here.join("certs");
    let names = THREE.map(str::to_owned);
    let now = std::time::SystemTime::now();
    certs::make(&folder, &names, &["localhost".into()], now).unwrap();
    folder
}

fn papers(folder: &Path, name: &str) -> Papers {
    Papers::load(&folder.join(name)).unwrap()
}

#[test]
fn a_secure_sum_is_made_over_the_network() {
    let here = folder("summed");
    let certs = make_certs(&here);
    let config = config(&summed());
    let admission = Admission::Certificates(papers(&certs, "server"));
    let serving = start(&config, ServeOptions { admission, ..options() });
    let join = |name: &str| {
        let credentials = Credentials::Certificate(papers(&certs, name));
        let server_name = Some("localhost".to_owned());
        let options = JoinOptions { credentials, server_name, ..joining(serving.address) };
        site(bring(&here, name), options)
    };
    let sites = THREE.map(join);
    let served = serving.end().unwrap();
    for (site, name) in sites.into_iter().zip(THREE) {
        assert!(site.join().unwrap().unwrap(), "{name}");
        assert_eq!(spent(&here, name), 3.0);
    }
    // Masks that did not cancel would be steps of a hundred times the size: one of noise alone has
    // variance 2 step. 96 squares are off by 0.7 once in a million.
    let rows: Vec<Vec<f64>> = served.outcome.draws.rows().map(<[f64]>::to_vec).collect();
    assert_eq!(rows.len(), 50);
    let steps = rows.chunks(25).flat_map(|chain| chain.windows(2)).flat_map(|two| {
        two[0].iter().zip(&two[1]).map(|(a, b)| (b - a) * (b - a)).collect::<Vec<_>>()
    });
    let squares: Vec<f64> = steps.collect();
    let variance = squares.iter().sum::<f64>() / squares.len() as f64 / 2e-4;
    assert!((variance - 1.0).abs() < 0.7, "{variance} with {}", squares.len());
    // The statement has all keys, and levels of so many bits were sent.
    let keys = served.statement.text().lines().find(|line| line.contains("keys")).unwrap();
    assert_eq!(keys.split(", ").count(), 3, "{keys}");
    let ledger = &served.outcome.ledger;
    assert_eq!(ledger.bits(Direction::Up, Kind::Gradient), 2 * 30 * 3 * 24, "11 bits");
    std::fs::remove_dir_all(here).unwrap();
}

#[test]
fn a_site_without_a_certificate_takes_no_part_in_a_secure_sum() {
    let here = folder("uncertified");
    let two = format!("{}secure_sum = true\n", text());
    let (served, sites) = run(&two, |name| bring(&here, name));
    assert!(served.is_err());
    let told: Vec<String> = sites.into_iter().filter_map(Result::err).collect();
    assert!(told.iter().any(|why| why.contains("--certs")), "{told:?}");
    assert!(!here.join("north").join("purse").exists(), "nothing is paid");
    std::fs::remove_dir_all(here).unwrap();
}

/// Set when site "east" has agreed on the chains: it leaves then.
static LEAVES: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static SHOWN: AtomicU32 = AtomicU32::new(0);

fn leave_before_the_first_round(_: &Statement) {
    if SHOWN.fetch_add(1, Ordering::Relaxed) == 1 {
        LEAVES.get().unwrap().store(true, Ordering::Relaxed);
    }
}

/// A site that goes ends the run, by its name: a sum without it would be another.
#[test]
fn a_secure_sum_does_not_go_on_without_a_site() {
    let here = folder("dropped");
    let certs = make_certs(&here);
    let config = config(&summed());
    let admission = Admission::Certificates(papers(&certs, "server"));
    let deadline = Some(std::time::Duration::from_secs(3));
    let serving = start(&config, ServeOptions { admission, deadline, ..options() });
    let leaves = LEAVES.get_or_init(Arc::default);
    let sites = THREE.map(|name| {
        let credentials = Credentials::Certificate(papers(&certs, name));
        let server_name = Some("localhost".to_owned());
        let options = JoinOptions { credentials, server_name, ..joining(serving.address) };
        let goes = name == "east";
        let shows: Option<fn(&Statement)> = goes.then_some(leave_before_the_first_round);
        let brings = Brings { shows, ..bring(&here, name) };
        let stop = if goes { Arc::clone(leaves) } else { Arc::default() };
        std::thread::spawn(move || join(brings, &options, &stop).map_err(|e| e.to_string()))
    });
    let why = serving.end().err().unwrap().to_string();
    assert!(why.contains("Awaited: east (is not connected)"), "{why}");
    let told = sites.map(|site| site.join().unwrap());
    assert!(told[2].as_ref().unwrap_err().contains("stopped"), "{told:?}");
    assert!(told[..2].iter().all(|told| *told != Ok(true)), "{told:?}");
    std::fs::remove_dir_all(here).unwrap();
}

/// Three sites that a test orders about: their keys are passed on as a server would.
fn summing(
    here: &Path,
    certs: &Path,
    change: impl Fn(&mut Vec<SecureSite>),
) -> Result<Vec<Worker>, SiteError> {
    let config = config(&summed());
    let run = "00112233445566778899aabbccddeeff";
    let mut workers = Vec::new();
    let mut keys = Vec::new();
    for (index, name) in THREE.iter().enumerate() {
        let papers = Some(papers(certs, name));
        let mut worker = Worker::new(Brings { papers, ..bring(here, name) });
        let welcome = Welcome {
            version: VERSION.into(),
            protocol: PROTOCOL.most,
            run: run.into(),
            boot: 1,
            config: config.shown_to(index),
            index,
            simulation: false,
        };
        worker.handle(&Frame::words(ASIDE, &Instruction::Welcome(Box::new(welcome))))?;
        let Did::Said(Some(said)) = worker.handle(&Frame::words(1, &Instruction::SumKey))? else {
            panic!()
        };
        let Ok(Tell::SumKey(key)) = said.read() else { panic!("{said:?}") };
        keys.push(SecureSite { rows: if index == 2 { 2 } else { 3 }, key });
        workers.push(worker);
    }
    change(&mut keys);
    let introductions: Vec<_> = LocalSite::open_all(&config)
        .unwrap()
        .iter()
        .map(|site| site.introduce(&config).unwrap())
        .collect();
    let mut agreement = agree(&config, None, &introductions).unwrap().agreement;
    agreement.secure = Some(keys);
    let sites = names(&config).unwrap();
    let stated = |decision: Option<&Decision>| {
        statement::of_run(&config, &agreement, &sites, decision).text().to_owned()
    };
    for worker in &mut workers {
        let ask = Instruction::Agree { agreement: agreement.clone(), statement: stated(None) };
        worker.handle(&Frame::words(2, &ask))?;
        let decision = Decision {
            sampler: None,
            step: None,
            weights: None,
            chains: None,
            attempt: 0,
            halved: false,
        };
        let statement = stated(Some(&decision));
        worker.handle(&Frame::words(3, &Instruction::Decide { decision, statement }))?;
    }
    Ok(workers)
}

/// Keys and masks outlive the sites' processes, no answer is given twice with one mask, and a key
/// that the server exchanged is refused.
#[test]
fn masks_are_used_once_also_across_restarts() {
    let here = folder("masks");
    let certs = make_certs(&here);
    let asked = |workers: &mut [Worker], order: Vec<u8>| -> Vec<Option<Vec<u8>>> {
        let of = |worker: &mut Worker| {
            let said = worker.handle(&Frame::message(3, 0, order.clone())).unwrap();
            if let Did::Said(Some(frame)) = said { Some(frame.body.to_vec()) } else { None }
        };
        workers.iter_mut().map(of).collect()
    };
    let mut workers = summing(&here, &certs, |_| {}).unwrap();
    let mut all: Vec<Vec<u8>> = Vec::new();
    for round in 0..5 {
        let first = asked(&mut workers, order(round));
        drop(workers);
        workers = summing(&here, &certs, |_| {}).unwrap();
        assert_eq!(asked(&mut workers, order(round)), first, "the same bytes after a restart");
        let elsewhere = {
            let mut bytes = order(round);
            *bytes.last_mut().unwrap() ^= 1;
            bytes
        };
        assert_eq!(asked(&mut workers, elsewhere), [None, None, None], "another point");
        // The sum is within what rows and noise can be: masks have cancelled. Two levels of 11
        // bits, low bits first, in the last three bytes.
        let levels = |answer: &Option<Vec<u8>>| {
            let bytes = answer.as_ref().unwrap();
            let [a, b, c] = bytes[bytes.len() - 3..] else { panic!() };
            let all = u32::from(a) | u32::from(b) << 8 | u32::from(c) << 16;
            [f64::from(all & 2047), f64::from(all >> 11)]
        };
        for k in 0..2 {
            let sum: f64 = first.iter().map(|answer| levels(answer)[k]).sum();
            assert!(nearest(sum, 11).abs() < 7.0 * 64.0 + 8.0, "{sum}");
        }
        all.extend(first.into_iter().flatten().map(|bytes| bytes[2..].to_vec()));
    }
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 15);
    drop(workers);
    let why = summing(&here, &certs, |keys| keys[2].key = keys[1].key.clone()).err().unwrap();
    assert!(why.to_string().contains("the key of site \"east\" is refused"), "{why}");
    let why = summing(&here, &certs, |keys| keys[0].rows = 9).err().unwrap().to_string();
    assert!(why.contains("other rows"), "{why}");
    std::fs::remove_dir_all(here).unwrap();
}

/// Another key of the same site, signed by itself: with it the sites would be another cohort, whose
/// sum and that of the first differ by one answer.
#[test]
fn a_second_cohort_is_refused_by_name() {
    let (here, elsewhere) = (folder("cohort"), folder("cohort-elsewhere"));
    let certs = make_certs(&here);
    let other = std::cell::RefCell::new(None);
    let kept = |keys: &mut Vec<SecureSite>| *other.borrow_mut() = keys.pop();
    let few = summing(&elsewhere, &certs, kept).err().unwrap().to_string();
    assert!(few.contains("2 keys for 3 sites"), "a cohort of two is none: {few}");
    let other = other.into_inner().unwrap();
    let mut workers = summing(&here, &certs, |keys| assert!(keys[2] != other)).unwrap();
    // while the run goes on
    let config = config(&summed());
    let introduced = LocalSite::open_all(&config).unwrap();
    let introductions: Vec<_> =
        introduced.iter().map(|site| site.introduce(&config).unwrap()).collect();
    let mut agreement = agree(&config, None, &introductions).unwrap().agreement;
    agreement.secure = Some(vec![other.clone(); 3]);
    let statement = String::new();
    let ask = Instruction::Agree { agreement, statement };
    let why = workers[0].handle(&Frame::words(2, &ask)).unwrap_err().to_string();
    assert!(why.contains("agreed on something else before"), "{why}");
    drop(workers);
    // and after a restart
    let why = summing(&here, &certs, |keys| keys[2] = other.clone()).err().unwrap().to_string();
    assert!(why.contains("another run under the same name"), "{why}");
    std::fs::remove_dir_all(here).unwrap();
    std::fs::remove_dir_all(elsewhere).unwrap();
}

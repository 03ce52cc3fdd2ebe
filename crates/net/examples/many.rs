//! Measure a run of many sites on one machine: how long it takes until all have agreed, rounds a
//! second, round trips, memory, and what one slow site does to the others. The server is one
//! process and all sites are another, in which each has a connection of its own.
//!
//!     ulimit -n 8192
//!     cargo run --release -p consilience-net --example many -- --sites 1000 --rounds 200
//!
//! With `--tls` all have certificates.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a measurement may panic, and prints

use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc as channel};
use std::time::{Duration, Instant, SystemTime};

use consilience_engine::config::{Config, Source};
use consilience_engine::run::Progress;
use consilience_engine::site::{Own, names};
use consilience_net::certs::{self, Papers};
use consilience_net::frame::{Frame, MESSAGE, PATH};
use consilience_net::join::{Credentials, JoinOptions, endpoint, persist};
use consilience_net::serve::{Admission, ServeOptions, Served, Stage, bind, serve};
use consilience_net::status::Status;
use consilience_net::worker::{Brings, Did, Worker};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic_prost::ProstCodec;

/// How many parameters there are.
const DIM: usize = 20;
/// How slow the slow site is.
const SLOW: Duration = Duration::from_millis(100);
/// When elastic rounds end, in seconds.
const DEADLINE: f64 = 0.05;

/// What is measured: whether rounds end without those who are late, and whether a site is slow.
const SETTINGS: [(&str, bool, bool); 4] = [
    ("strict", false, false),
    ("strict, one site takes 100 ms more", false, true),
    ("elastic, rounds end after 50 ms at most", true, false),
    ("elastic, one site takes 100 ms more", true, true),
];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)?.parse::<usize>().ok()
    };
    let sites = value("--sites").unwrap_or(1000);
    let rounds = value("--rounds").unwrap_or(200);
    let folder = arguments.iter().position(|a| a == "--folder").map(|at| arguments[at + 1].clone());
    if let Some(port) = value("--join") {
        return join(sites, port as u16, folder.as_deref().map(Path::new), value("--slow"));
    }
    if let Some(setting) = value("--setting") {
        return measure(sites, rounds, folder.as_deref().map(Path::new), setting);
    }
    println!("{sites} sites of one process, {DIM} parameters, lmc, one chain of {rounds} rounds");
    let made = std::env::temp_dir().join(format!("consilience-many-{}", std::process::id()));
    let tls = arguments.iter().any(|argument| argument == "--tls");
    if tls {
        let all: Vec<String> = (0..sites).map(name).collect();
        certs::make(&made, &all, &["localhost".into()], SystemTime::now()).unwrap();
    }
    for (number, (setting, ..)) in SETTINGS.iter().enumerate() {
        println!("\n{setting}:");
        // a process of its own, whose memory is that of this run
        let mut child = again(sites, tls.then_some(made.as_path()));
        child.args(["--rounds", &rounds.to_string(), "--setting", &number.to_string()]);
        assert!(child.status().unwrap().success());
    }
    if tls {
        std::fs::remove_dir_all(&made).unwrap();
    }
}

fn name(site: usize) -> String {
    format!("s{site}")
}

/// This program in another process.
fn again(sites: usize, folder: Option<&Path>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--sites", &sites.to_string()]);
    folder.iter().for_each(|folder| {
        command.arg("--folder").arg(folder);
    });
    command
}

/// A number of `/proc/self/status`, in MB; 0 where there is no such file.
fn memory(field: &str) -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kilobytes.unwrap_or_default() / 1024.0
}

fn config(sites: usize, rounds: usize, elastic: bool) -> Config {
    let row = |k: usize| {
        (0..DIM).map(|j| format!("{:.1}", ((k + j) % 7) as f64)).collect::<Vec<_>>().join(", ")
    };
    let mut text = "seeds = \"simulation\"\n[target]\nmodel = \"isotropic\"\n".to_owned();
    for k in 0..sites {
        text.push_str(&format!("[[client]]\nname = \"{}\"\nrows = [[{}]]\n", name(k), row(k)));
    }
    let step = 0.5 / sites as f64;
    text.push_str(&format!("[sampler]\nname = \"lmc\"\nstep = {step:e}\n"));
    if elastic {
        let participation = format!("{{ elastic = 0.999, deadline = {DEADLINE} }}");
        text.push_str(&format!("participation = {participation}\n"));
    }
    text.push_str(&format!("[run]\nchains = 1\niterations = {rounds}\nthin = 100\n"));
    Config::parse(Source { file: "many.toml".into(), folder: ".".into(), text }).unwrap()
}

/// Serve one run to all sites, and print what it took.
fn measure(sites: usize, rounds: usize, folder: Option<&Path>, setting: usize) {
    let (_, elastic, slow) = SETTINGS[setting];
    let config = config(sites, rounds, elastic);
    let admission = folder.map_or(Admission::Word, |folder| {
        Admission::Certificates(Papers::load(&folder.join("server")).unwrap())
    });
    let options = ServeOptions {
        deadline: Some(Duration::from_secs(300)),
        at_once: sites.max(1),
        ..ServeOptions::new(admission)
    };
    let status = Arc::new(Status::new(&names(&config).unwrap(), Arc::new(Progress::default())));
    let (tell, told) = channel::channel();
    let before = memory("VmRSS");
    let (folder, shared) = (folder.map(Path::to_path_buf), Arc::clone(&status));
    let starter = std::thread::spawn(move || -> Child {
        let port: u16 = told.recv().unwrap();
        let mut command = again(sites, folder.as_deref());
        command.args(["--join", &port.to_string()]);
        if slow {
            command.args(["--slow", &(sites / 2).to_string()]);
        }
        command.spawn().unwrap()
    });
    let (mut listening, mut stated) = (Instant::now(), Instant::now());
    let tell = |stage: Stage<'_>| match stage {
        Stage::Listening(address) => {
            listening = Instant::now();
            tell.send(address.port()).unwrap();
        }
        Stage::Stated(_) => stated = Instant::now(),
        _ => {}
    };
    let keep = |served: Served| {
        let ended = Instant::now(); // all are still connected
        (served.outcome.iterations, ended, memory("VmRSS"), memory("VmHWM"))
    };
    let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (done, ended, now, most) = serve(listener, &config, &options, &status, tell, keep).unwrap();
    assert_eq!(done, rounds as u64);
    println!("  until all had agreed   {:>9.1} s", (stated - listening).as_secs_f64());
    let rate = done as f64 / (ended - stated).as_secs_f64();
    println!("  rounds a second        {rate:>9.1}   ({:.0} answers)", rate * sites as f64);
    let mut trips = shared.round_trips();
    let own = slow.then(|| trips.remove(sites / 2));
    let mut all = trips.concat();
    all.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| 1e3 * all[((share * all.len() as f64) as usize).min(all.len() - 1)];
    println!(
        "  round trips            {:>9.2} ms, and 99 of 100 within {:.2} ms",
        at(0.5),
        at(0.99)
    );
    if own.is_some() {
        let site = &shared.view().sites[sites / 2];
        println!(
            "  the slow site          {:>9} answers in time, {} late",
            site.answers, site.late
        );
    }
    let each = |megabytes: f64| 1024.0 * megabytes / sites as f64;
    println!(
        "  the server's memory    {:>9.1} kB a site, {:.1} at most ({before:.0} MB before)",
        each(now - before),
        each(most - before)
    );
    assert!(starter.join().unwrap().wait().unwrap().success());
}

/// All sites, in one process; one of them may be slow.
fn join(sites: usize, port: u16, folder: Option<&Path>, slow: Option<usize>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let before = memory("VmRSS");
    let tasks: Vec<_> = (0..sites)
        .map(|site| {
            let papers = folder.map(|folder| Papers::load(&folder.join(name(site))).unwrap());
            let credentials = papers.clone().map_or(Credentials::Word, Credentials::Certificate);
            let options = JoinOptions {
                server: format!("localhost:{port}"),
                server_name: None,
                credentials,
                patience: Some(Duration::from_secs(300)),
            };
            let own = Brings::new(&name(site), Own::Stated);
            let brings = Brings { allows_simulation: true, papers, ..own };
            runtime.spawn(async move {
                let mut worker = Worker::new(brings);
                if slow == Some(site) {
                    return late(&options, &mut worker).await;
                }
                let endpoint = endpoint(&options).unwrap();
                persist(&endpoint, &options, &mut worker, &AtomicBool::new(false)).await.unwrap()
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| assert!(runtime.block_on(task).unwrap()));
    let most = memory("VmHWM") - before;
    println!("  the sites' memory      {:>9.1} kB a site at most", 1024.0 * most / sites as f64);
}

/// A site that takes its time for every answer.
async fn late(options: &JoinOptions, worker: &mut Worker) -> bool {
    let channel = endpoint(options).unwrap().connect().await.unwrap();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.unwrap();
    let (to, outward) = mpsc::channel::<Frame>(64);
    to.send(worker.hello()).await.unwrap();
    let path = http::uri::PathAndQuery::from_static(PATH);
    let codec = ProstCodec::<Frame, Frame>::default();
    let request = Request::new(ReceiverStream::new(outward));
    let mut inward = grpc.streaming(request, path, codec).await.unwrap().into_inner();
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
                    tokio::time::sleep(SLOW).await;
                }
                if to.send(answer).await.is_err() {
                    return false;
                }
            }
        }
    }
    false
}

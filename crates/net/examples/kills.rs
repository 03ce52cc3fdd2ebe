//! Kill servers and sites at random moments, thousands of times, and hold every chain against the
//! one that nobody disturbed.
//!
//!     cargo run --release -p consilience-net --example kills -- 10000 4
//!
//! The numbers are how many kills, and how many runs at a time.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and prints

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consilience_core::rng::{Purpose, SERVER, Seed, Stream};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Progress, sample};
use consilience_engine::site::{Own, names};
use consilience_net::join::{Credentials, JoinOptions, join};
use consilience_net::serve::{Admission, ServeOptions, Served, bind, serve};
use consilience_net::status::Status;
use consilience_net::worker::Brings;

/// How often one run is disturbed.
const KILLS_A_RUN: u64 = 12;
/// How long a run may take in all.
const MOST: Duration = Duration::from_secs(120);

const SAMPLERS: [&str; 4] = [
    "name = \"lmc\"\nstep = 0.05",
    "name = \"qlsd++\"\nrefresh = 7\ncompress = \"qsgd(4)\"",
    "name = \"vr-fald*\"\nsynchronise = { every = 3 }",
    "name = \"d-elf\"\ncompress = \"top_k(1)\"",
];

fn config(seed: u64) -> Config {
    let sampler = SAMPLERS[seed as usize % SAMPLERS.len()];
    let text = format!(
        "seed = {seed}\nseeds = \"simulation\"\n[target]\nmodel = \"gaussian\"\n\
         prior = {{ law = \"gaussian\", variance = 4.0 }}\n\
         [[client]]\nname = \"a\"\nmean = [1.0, -2.0]\nprecision = [[2.0, 0.3], [0.3, 1.0]]\n\
         [[client]]\nname = \"b\"\nmean = [0.5, 0.25]\nprecision = [[1.0, -0.2], [-0.2, 3.0]]\n\
         [[client]]\nname = \"c\"\nmean = [-1.0, 4.0]\nprecision = [[0.5, 0.0], [0.0, 0.7]]\n\
         [sampler]\n{sampler}\n[run]\nchains = 2\niterations = 400\nburn_in = 5\n"
    );
    Config::parse(Source { file: "kills.toml".into(), folder: ".".into(), text }).unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("server") => {
            return server(arguments[2].parse().unwrap(), Path::new(&arguments[3]), &arguments[4]);
        }
        Some("site") => return site(Path::new(&arguments[2]), &arguments[3], &arguments[4]),
        _ => {}
    }
    let number =
        |at: usize, default: u64| arguments.get(at).map_or(default, |text| text.parse().unwrap());
    let (wanted, at_once, first) = (number(1, 100), number(2, 2), number(3, 1));
    let (kills, runs, next) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(first));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while kills.load(Ordering::Relaxed) < wanted {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    kills.fetch_add(disturbed(seed), Ordering::Relaxed);
                    if runs.fetch_add(1, Ordering::Relaxed) % 20 == 19 {
                        println!(
                            "{} kills in {} runs",
                            kills.load(Ordering::Relaxed),
                            runs.load(Ordering::Relaxed)
                        );
                    }
                }
            });
        }
    });
    let seconds = started.elapsed().as_secs();
    println!(
        "{} kills in {} runs in {seconds} s: every chain was the undisturbed one",
        kills.into_inner(),
        runs.into_inner()
    );
}

/// One run whose parties are killed; how often they were. Panics where the chain is not the
/// undisturbed one.
fn disturbed(seed: u64) -> u64 {
    let folder =
        std::env::temp_dir().join(format!("consilience-kills-{}-{seed}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut chance = Seed::new(seed).stream(Purpose::Data, SERVER, 0);
    let mut parties: Vec<Child> =
        (0..4).map(|party| start(seed, &folder, &address, party)).collect();
    let (mut kills, begun) = (0, Instant::now());
    while parties[0].try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < MOST, "run {seed} hangs; its files are in {}", folder.display());
        std::thread::sleep(pause(&mut chance));
        if kills < KILLS_A_RUN {
            let victim = (chance.word() % 4) as usize;
            if parties[0].try_wait().unwrap().is_none()
                && parties[victim].try_wait().unwrap().is_none()
            {
                parties[victim].kill().unwrap(); // SIGKILL
                parties[victim].wait().unwrap();
                parties[victim] = start(seed, &folder, &address, victim);
                kills += 1;
            }
        }
    }
    assert!(
        parties[0].wait().unwrap().success(),
        "the server of run {seed} failed; its files are in {}",
        folder.display()
    );
    for party in &mut parties[1..] {
        while party.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < MOST + Duration::from_secs(30), "a site of run {seed} hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let config = config(seed);
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let undisturbed =
        sample(&plan, &plan.length, config.seed, Sinks::Memory, &Progress::default()).unwrap();
    let expected: Vec<u8> =
        undisturbed.draws.rows().flatten().flat_map(|x| x.to_le_bytes()).collect();
    assert!(
        std::fs::read(folder.join("draws")).unwrap() == expected,
        "run {seed} has another chain; its files are in {}",
        folder.display()
    );
    std::fs::remove_dir_all(&folder).unwrap();
    kills
}

/// Up to a quarter of a second, more often short.
fn pause(chance: &mut Stream) -> Duration {
    let u = chance.uniform();
    Duration::from_micros((250_000.0 * u * u) as u64)
}

fn start(seed: u64, folder: &Path, address: &str, party: usize) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    match party {
        0 => command.arg("server").arg(seed.to_string()).arg(folder).arg(address),
        _ => command.arg("site").arg(folder).arg(address).arg(["a", "b", "c"][party - 1]),
    };
    command.spawn().unwrap()
}

fn server(seed: u64, folder: &Path, address: &str) {
    if folder.join("draws").exists() {
        return; // it was killed after all was done
    }
    let config = config(seed);
    let options = ServeOptions {
        state: Some(folder.join("server")),
        deadline: Some(Duration::from_secs(60)),
        ..ServeOptions::new(Admission::Word)
    };
    let status = Arc::new(Status::new(&names(&config).unwrap(), Arc::new(Progress::default())));
    let keep = |served: Served| {
        let draws: Vec<u8> =
            served.outcome.draws.rows().flatten().flat_map(|x| x.to_le_bytes()).collect();
        let part: PathBuf = folder.join("draws.tmp");
        std::fs::write(&part, draws).unwrap();
        std::fs::rename(&part, folder.join("draws")).unwrap();
    };
    serve(bind(address.parse().unwrap()).unwrap(), &config, &options, &status, |_| {}, keep)
        .unwrap();
}

fn site(folder: &Path, address: &str, name: &str) {
    let brings = Brings {
        state: Some(folder.join(name)),
        allows_simulation: true,
        ..Brings::new(name, Own::Stated)
    };
    let options = JoinOptions {
        server: address.into(),
        server_name: None,
        credentials: Credentials::Word,
        patience: Some(Duration::from_secs(10)),
    };
    // a server that ended while nobody looked is away for good
    let _ = join(brings, &options, &Arc::new(AtomicBool::new(false)));
}

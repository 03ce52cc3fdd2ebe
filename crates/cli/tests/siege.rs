//! A server and its sites are killed and interrupted at every phase of a run, again and again: with
//! the same commands alone every run comes to its end, with the draws that nobody disturbed.
//!
//! `cargo xtask siege 10000 8` sends so many signals to so many runs at a time, and prints what
//! became of them. `SIEGE_COMMAND` names another build of the command to besiege.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic; the numbers are for people

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consilience::core::rng::{Purpose, SERVER, Seed, Stream};
use consilience_engine::store::{Folder, private_seed};
use consilience_net::certs::name_of_site;

/// How many signals one run gets, unless `SIEGE_A_RUN` says otherwise.
const A_RUN: u64 = 12;
/// How long a run may take in all.
const MOST: Duration = Duration::from_secs(600);
/// After so many runs that fail nothing more is learnt.
const MOST_FAILURES: u64 = 5;
/// The samplers of the runs that are besieged where nobody asks for more: an exact one, local
/// steps, a release and a secure sum.
const FEW: [u64; 4] = [1, 2, 7, 10];
const PARTIES: [&str; 4] = ["server", "a", "b", "c"];
/// How many rounds a site reserves in every other run, instead of syncing every answer.
const RESERVE: &str = "40";
/// Ports from here on, which the system gives to nobody who connects: a server that is killed finds
/// its own free.
const PORTS: (u64, u64) = (12_000, 16_000);

/// Whose noise there is in a run, and so what its draws are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Noise {
    /// That of a simulation: the draws are those of `consilience run`.
    Simulated,
    /// The sites' own, from their private seeds, under a privacy budget: the draws are those of
    /// another network of sites with the same seeds, which is left in peace.
    Own,
    /// The same, hidden in secure sums between sites with certificates.
    Summed,
}

/// All families, most of them surveyed before they sample.
const SAMPLERS: [(Noise, &str); 11] = [
    (Noise::Simulated, "name = \"lmc\""),
    (Noise::Simulated, "name = \"imh\""),
    (Noise::Simulated, "name = \"vr-fald*\"\nsynchronise = { every = 3 }"),
    (Noise::Simulated, "name = \"qlsd++\"\nrefresh = 7\ncompress = \"qsgd(4)\""),
    (Noise::Simulated, "name = \"d-elf\"\ncompress = \"top_k(1)\"\nstep = 0.02"),
    (Noise::Simulated, "name = \"penalty\"\nstep = 0.5"),
    (Noise::Simulated, "name = \"hmc\""),
    (Noise::Own, "name = \"dp-release\""),
    (Noise::Own, "name = \"lmc\"\nstep = 1e-4"),
    (Noise::Own, "name = \"penalty\"\nstep = 0.05\npotential_noise = 200.0"),
    (Noise::Summed, "name = \"lmc\"\nstep = 1e-4"),
];

/// Three Gaussians.
const STATED: &str = "seeds = \"simulation\"\n[target]\nmodel = \"gaussian\"\n\
    prior = { law = \"gaussian\", variance = 4.0 }\n\
    [[client]]\nname = \"a\"\nmean = [1.0, -2.0]\nprecision = [[2.0, 0.3], [0.3, 1.0]]\n\
    [[client]]\nname = \"b\"\nmean = [0.5, 0.25]\nprecision = [[1.0, -0.2], [-0.2, 3.0]]\n\
    [[client]]\nname = \"c\"\nmean = [-1.0, 4.0]\nprecision = [[0.5, 0.0], [0.0, 0.7]]\n";

/// Rows of a regression.
const ROWS: &str = "[target]\nmodel = \"logistic\"\nintercept = false\n\
    prior = { law = \"gaussian\", variance = 2.0 }\n\
    [[client]]\nname = \"a\"\nrows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [0.8, -0.4, 1]]\n\
    [[client]]\nname = \"b\"\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1]]\n\
    [[client]]\nname = \"c\"\nrows = [[-0.7, 0.6, 0], [1.0, 1.1, 1], [0.1, -0.9, 0]]\n";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Start,
    Survey,
    Rounds,
    Publishing,
    End,
}

const PHASES: [Phase; 8] = [
    Phase::Start,
    Phase::Survey,
    Phase::Rounds,
    Phase::Publishing,
    Phase::Rounds,
    Phase::Survey,
    Phase::Publishing,
    Phase::End,
];

struct Siege {
    folder: PathBuf,
    port: u64,
    seed: u64,
    noise: Noise,
    /// Whether sites reserve rounds.
    reserves: bool,
}

/// A port that nobody listens at, and that nobody was given before.
fn port() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = u64::from(std::process::id()) * 97;
    loop {
        let next = first + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = PORTS.0 + next % PORTS.1;
        if TcpListener::bind(format!("127.0.0.1:{port}")).is_ok() {
            return port;
        }
    }
}

impl Siege {
    fn new(seed: u64) -> Siege {
        let folder =
            std::env::temp_dir().join(format!("consilience-siege-{}-{seed}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let (noise, sampler) = SAMPLERS[seed as usize % SAMPLERS.len()];
        let (target, budget) = match noise {
            Noise::Simulated => (STATED, ""),
            Noise::Own => (ROWS, "[privacy]\nepsilon = 90.0\ndelta = 1e-6\nrow_norm = 2.0\n"),
            Noise::Summed => (
                ROWS,
                "[privacy]\nepsilon = 90.0\ndelta = 1e-6\nrow_norm = 2.0\nsecure_sum = true\n",
            ),
        };
        let weak = if sampler.contains("dp-release") { "weak = true\n" } else { "" };
        // a release has one chain, which needs no burn-in of ours
        let length = if weak.is_empty() {
            "chains = 2\niterations = 150\nburn_in = 5\n"
        } else {
            "iterations = 150\n"
        };
        let text =
            format!("seed = {seed}\n{target}[sampler]\n{sampler}\n[run]\n{length}{budget}{weak}");
        std::fs::write(folder.join("run.toml"), text).unwrap();
        let reserves = (seed as usize / SAMPLERS.len()).is_multiple_of(2);
        let siege = Siege { folder, port: port(), seed, noise, reserves };
        match noise {
            Noise::Simulated => siege.finish(siege.command(&["run", "run.toml", "--out", "here"])),
            Noise::Own | Noise::Summed => siege.sample_in_peace(),
        }
        siege
    }

    /// Sample with the private seeds that the parties of the siege will have.
    fn sample_in_peace(&self) {
        if self.noise == Noise::Summed {
            let sites = PARTIES[1..].join(",");
            let certs = ["certs", "certs", "--sites", &sites, "--server-name", "localhost"];
            self.finish(self.command(&certs));
        }
        // A server that is killed as soon as the run has a name.
        let named = self.folder.join("peace-server/run.json");
        let mut server = self.start(0, "peace", "here");
        let begun = Instant::now();
        while !named.exists() {
            assert!(begun.elapsed() < MOST, "{}", self.shown("the server does not begin"));
            std::thread::sleep(Duration::from_millis(1));
        }
        send(&mut server, true);
        wait(self, &mut server, begun);
        let state = self.folder.join("state-server");
        Folder::make(&state).unwrap();
        std::fs::copy(&named, state.join("run.json")).unwrap();
        let text = std::fs::read_to_string(&named).unwrap();
        let known: serde_json::Value = serde_json::from_str(&text).unwrap();
        let run = known["run"].as_str().unwrap();
        for (party, site) in PARTIES.iter().enumerate().skip(1) {
            for states in ["peace", "state"] {
                let own = self.folder.join(format!("{states}-{site}")).join(run);
                let own = own.join(name_of_site(site));
                for (folder, salt) in [(own.join("seed"), 0), (own.join("sum/seed"), 50)] {
                    let byte = (self.seed as u8).wrapping_mul(3) ^ (party as u8 + salt);
                    let entropy = |seed: &mut [u8; 32]| {
                        seed.fill(byte);
                        Ok(())
                    };
                    private_seed(&mut Folder::open(&folder).unwrap(), entropy).unwrap();
                }
            }
        }
        let parties: Vec<Child> =
            (0..PARTIES.len()).map(|party| self.start(party, "peace", "here")).collect();
        for (mut party, name) in parties.into_iter().zip(PARTIES) {
            wait(self, &mut party, begun);
            let status = party.wait().unwrap();
            assert!(status.success(), "{}", self.shown(&format!("{name} ended in peace")));
        }
    }

    fn finish(&self, mut command: Command) {
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let built = env!("CARGO_BIN_EXE_consilience").to_owned();
        let mut command = Command::new(std::env::var("SIEGE_COMMAND").unwrap_or(built));
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Start a party: always with the same command.
    fn start(&self, party: usize, states: &str, out: &str) -> Child {
        let (address, state) =
            (format!("localhost:{}", self.port), format!("{states}-{}", PARTIES[party]));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{}.log", PARTIES[party])))
            .unwrap();
        let mut command = if party == 0 {
            let listen = format!("127.0.0.1:{}", self.port);
            self.command(&["serve", "run.toml", "--listen", &listen, "--out", out])
        } else {
            let mut join = self.command(&["join", "--server", &address, "--site", PARTIES[party]]);
            if self.reserves {
                join.args(["--reserve", RESERVE]);
            }
            match self.noise {
                Noise::Simulated => join.arg("--allow-simulation-seeds"),
                Noise::Own | Noise::Summed => join.args(["--budget", "90,1e-6"]),
            };
            join
        };
        match self.noise {
            Noise::Summed => command.args(["--certs", &format!("certs/{}", PARTIES[party])]),
            Noise::Simulated | Noise::Own => command.arg("--insecure-loopback"),
        };
        command.args(["--state", &state]).stdout(Stdio::null()).stderr(log).spawn().unwrap()
    }

    /// The same for a party of the siege.
    fn besieged(&self, party: usize) -> Child {
        self.start(party, "state", "there")
    }

    /// How far the run is, as its files tell.
    fn phase(&self) -> Phase {
        let exists = |path: &str| self.folder.join(path).exists();
        if exists("there") {
            return Phase::End;
        }
        let half = |name: String| name.starts_with(".there.");
        let names = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        if names.into_iter().any(|entry| half(entry.file_name().to_string_lossy().into_owned())) {
            Phase::Publishing
        } else if exists("state-server/chain-1") {
            Phase::Rounds
        } else if exists("state-server/run.json") {
            Phase::Survey
        } else {
            Phase::Start
        }
    }

    fn digest(&self, run: &str) -> String {
        let text = std::fs::read_to_string(self.folder.join(run).join("run.json")).unwrap();
        let line = text.lines().find(|line| line.contains("\"digest\"")).unwrap();
        line.trim().to_owned()
    }

    fn shown(&self, what: &str) -> String {
        let log = |party: &&str| {
            let text = std::fs::read_to_string(self.folder.join(format!("{party}.log")));
            let text = text.unwrap_or_default();
            let last = text.lines().rev().take(25).collect::<Vec<_>>();
            format!("{party}:\n{}\n", last.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        let logs: String = PARTIES.iter().map(log).collect();
        format!("{what}, run {}: its files are in {}\n{logs}", self.seed, self.folder.display())
    }
}

/// How many signals there were: by phase, party and kind; by sampler, with the runs.
#[derive(Default)]
struct Tally {
    moments: BTreeMap<(Phase, bool, bool), u64>,
    samplers: BTreeMap<usize, (u64, u64)>,
}

fn send(child: &mut Child, kills: bool) {
    if kills {
        let _ = child.kill();
    } else {
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).output();
    }
}

/// Processes that do not outlive a run that fails.
struct Parties(Vec<Child>);

impl Drop for Parties {
    fn drop(&mut self) {
        for party in &mut self.0 {
            let _ = party.kill();
            let _ = party.wait();
        }
    }
}

/// One run whose parties are killed and interrupted; how often they were.
fn besiege(seed: u64, a_run: u64, tally: &Mutex<Tally>) -> u64 {
    let siege = Siege::new(seed);
    let begun = Instant::now();
    let mut chance = Seed::new(seed).stream(Purpose::Data, SERVER, 0);
    let mut parties = Parties((0..PARTIES.len()).map(|party| siege.besieged(party)).collect());
    let parties = &mut parties.0;
    let mut done = [false; PARTIES.len()];
    let mut sent = 0;
    let mut plan: Vec<Phase> =
        (0..a_run).map(|_| PHASES[(chance.word() % PHASES.len() as u32) as usize]).collect();
    plan.sort_unstable();
    let mut plan = plan.into_iter().peekable();
    while let Some(wanted) = plan.peek().copied() {
        assert!(begun.elapsed() < MOST, "{}", siege.shown("it hangs"));
        let phase = siege.phase();
        if phase < wanted && !done.iter().all(|done| *done) {
            again(&siege, parties, &mut done, &[], phase);
            std::thread::sleep(Duration::from_micros(200));
            continue;
        }
        plan.next();
        std::thread::sleep(pause(&mut chance, wanted));
        // Publishing is the server's work.
        let party = match wanted {
            Phase::Publishing => 0,
            _ => (chance.word() % PARTIES.len() as u32) as usize,
        };
        let kills = chance.word().is_multiple_of(2);
        if done[party] {
            // After the end: the same command once more, disturbed like all others.
            (parties[party], done[party]) = (siege.besieged(party), false);
            std::thread::sleep(pause(&mut chance, wanted));
        }
        let phase = siege.phase();
        send(&mut parties[party], kills);
        *tally.lock().unwrap().moments.entry((phase, party == 0, kills)).or_insert(0) += 1;
        sent += 1;
        wait(&siege, &mut parties[party], begun);
        again(&siege, parties, &mut done, &[party], phase);
    }
    while !done.iter().all(|done| *done) {
        assert!(begun.elapsed() < MOST, "{}", siege.shown("it hangs"));
        again(&siege, parties, &mut done, &[], Phase::End);
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(siege.digest("there"), siege.digest("here"), "{}", siege.shown("another chain"));
    let left: Vec<String> = std::fs::read_dir(&siege.folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{}", siege.shown(&format!("{left:?} is left behind")));
    std::fs::remove_dir_all(&siege.folder).unwrap();
    let mut tally = tally.lock().unwrap();
    let of = tally.samplers.entry(seed as usize % SAMPLERS.len()).or_insert((0, 0));
    *of = (of.0 + sent, of.1 + 1);
    sent
}

fn wait(siege: &Siege, child: &mut Child, begun: Instant) {
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < MOST, "{}", siege.shown("a party does not end"));
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Do what a supervisor does: start whoever was killed or interrupted, with the same command.
/// Nobody ends otherwise than with the run.
fn again(
    siege: &Siege,
    parties: &mut [Child],
    done: &mut [bool],
    signalled: &[usize],
    phase: Phase,
) {
    for party in 0..parties.len() {
        if done[party] {
            continue;
        }
        let Some(status) = parties[party].try_wait().unwrap() else { continue };
        match status.code() {
            Some(0) => done[party] = true,
            // 130: a second signal, before the handler of the first had its say
            None | Some(6 | 130 | 143) if signalled.contains(&party) => {
                parties[party] = siege.besieged(party);
            }
            other => {
                let what = format!("{} ended with {other:?} at {phase:?}", PARTIES[party]);
                panic!("{}", siege.shown(&what));
            }
        }
    }
}

/// A moment, more often short: as long as the phase is, or so.
fn pause(chance: &mut Stream, phase: Phase) -> Duration {
    let most = match phase {
        Phase::Start => 20_000.0,
        Phase::Publishing => 4_000.0,
        Phase::Survey => 80_000.0,
        Phase::Rounds | Phase::End => 200_000.0,
    };
    let u = chance.uniform();
    Duration::from_micros((most * u * u) as u64)
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn every_run_ends_with_the_undisturbed_draws_whoever_is_killed_when() {
    let asked = std::env::var_os("SIEGE").is_some();
    let few = FEW.len() as u64;
    let wanted = number("SIEGE", A_RUN * few);
    let (at_once, a_run) = (number("SIEGE_AT_ONCE", few), number("SIEGE_A_RUN", A_RUN));
    let (sent, runs, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicU64::new(number("SIEGE_FROM", 0));
    let (tally, started) = (Mutex::new(Tally::default()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while sent.load(Ordering::Relaxed) < wanted
                    && failed.load(Ordering::Relaxed) < MOST_FAILURES
                {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let seed = if asked { Some(turn) } else { FEW.get(turn as usize).copied() };
                    let Some(seed) = seed else { return };
                    let besieged =
                        std::panic::catch_unwind(AssertUnwindSafe(|| besiege(seed, a_run, &tally)));
                    let Ok(signals) = besieged else {
                        failed.fetch_add(1, Ordering::Relaxed); // it has said why
                        continue;
                    };
                    let all = sent.fetch_add(signals, Ordering::Relaxed) + signals;
                    let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
                    if run.is_multiple_of(10) {
                        println!("{all} signals in {run} runs");
                    }
                }
            });
        }
    });
    println!(
        "{} signals in {} runs in {} s: these ended with the undisturbed draws, {} others did not",
        sent.into_inner(),
        runs.into_inner(),
        started.elapsed().as_secs(),
        failed.load(Ordering::Relaxed)
    );
    let Tally { moments, samplers } = tally.into_inner().unwrap();
    for (sampler, (signals, runs)) in samplers {
        let (noise, sampler) = SAMPLERS[sampler];
        let name = sampler.lines().next().unwrap();
        println!("{signals:>6} in {runs:>3} runs of {name}, {noise:?} noise");
    }
    for ((phase, server, kills), count) in moments {
        let (whom, what) = (
            if server { "the server" } else { "a site" },
            if kills { "kill -9" } else { "SIGTERM" },
        );
        println!("{count:>6} {what} of {whom} at {phase:?}");
    }
    assert_eq!(failed.into_inner(), 0);
}

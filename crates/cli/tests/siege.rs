//! A server and its sites are killed and interrupted at every phase of a run, again and again: with
//! the same commands alone every run comes to its end, with the draws that nobody disturbed.
//!
//! `cargo xtask siege 10000` sends so many signals, and prints what became of them.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic; the numbers are for people

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consilience::core::rng::{Purpose, SERVER, Seed, Stream};

/// How many signals one run gets.
const A_RUN: u64 = 12;
/// How long a run may take in all.
const MOST: Duration = Duration::from_secs(300);
const PARTIES: [&str; 4] = ["server", "a", "b", "c"];

/// All families, most of them surveyed before they sample.
const SAMPLERS: [&str; 7] = [
    "name = \"lmc\"",
    "name = \"imh\"",
    "name = \"vr-fald*\"\nsynchronise = { every = 3 }",
    "name = \"qlsd++\"\nrefresh = 7\ncompress = \"qsgd(4)\"",
    "name = \"d-elf\"\ncompress = \"top_k(1)\"\nstep = 0.02",
    "name = \"penalty\"\nstep = 0.5",
    "name = \"hmc\"",
];

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
    port: u16,
    seed: u64,
}

impl Siege {
    fn new(seed: u64) -> Siege {
        let folder =
            std::env::temp_dir().join(format!("consilience-siege-{}-{seed}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let sampler = SAMPLERS[seed as usize % SAMPLERS.len()];
        let text = format!(
            "seed = {seed}\nseeds = \"simulation\"\n[target]\nmodel = \"gaussian\"\n\
             prior = {{ law = \"gaussian\", variance = 4.0 }}\n\
             [[client]]\nname = \"a\"\nmean = [1.0, -2.0]\nprecision = [[2.0, 0.3], [0.3, 1.0]]\n\
             [[client]]\nname = \"b\"\nmean = [0.5, 0.25]\nprecision = [[1.0, -0.2], [-0.2, 3.0]]\n\
             [[client]]\nname = \"c\"\nmean = [-1.0, 4.0]\nprecision = [[0.5, 0.0], [0.0, 0.7]]\n\
             [sampler]\n{sampler}\n[run]\nchains = 2\niterations = 150\nburn_in = 5\n"
        );
        std::fs::write(folder.join("run.toml"), text).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let siege = Siege { folder, port, seed };
        let alone = siege.command(&["run", "run.toml", "--out", "here"]).output().unwrap();
        assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
        siege
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        command
    }

    /// Start a party: always with the same command.
    fn start(&self, party: usize) -> Child {
        let (address, state) =
            (format!("127.0.0.1:{}", self.port), format!("state-{}", PARTIES[party]));
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{}.log", PARTIES[party])))
            .unwrap();
        let mut command = if party == 0 {
            self.command(&["serve", "run.toml", "--listen", &address, "--out", "there"])
        } else {
            let mut join = self.command(&["join", "--server", &address, "--site", PARTIES[party]]);
            join.arg("--allow-simulation-seeds");
            join
        };
        command.args(["--state", &state, "--insecure-loopback"]);
        command.stdout(Stdio::null()).stderr(log).spawn().unwrap()
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

/// What became of signals: by phase, party and kind.
type Tally = Mutex<BTreeMap<(Phase, bool, bool), u64>>;

fn send(child: &mut Child, kills: bool) {
    if kills {
        let _ = child.kill();
    } else {
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).output();
    }
}

/// One run whose parties are killed and interrupted; how often they were.
fn besiege(seed: u64, tally: &Tally) -> u64 {
    let siege = Siege::new(seed);
    let begun = Instant::now();
    let mut chance = Seed::new(seed).stream(Purpose::Data, SERVER, 0);
    let mut parties: Vec<Child> = (0..PARTIES.len()).map(|party| siege.start(party)).collect();
    let mut done = [false; PARTIES.len()];
    let mut sent = 0;
    let mut plan: Vec<Phase> =
        (0..A_RUN).map(|_| PHASES[(chance.word() % PHASES.len() as u32) as usize]).collect();
    plan.sort_unstable();
    let mut plan = plan.into_iter().peekable();
    while let Some(wanted) = plan.peek().copied() {
        assert!(begun.elapsed() < MOST, "{}", siege.shown("it hangs"));
        let phase = siege.phase();
        if phase < wanted && !done.iter().all(|done| *done) {
            again(&siege, &mut parties, &mut done, &[], phase);
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
            (parties[party], done[party]) = (siege.start(party), false);
            std::thread::sleep(pause(&mut chance, wanted));
        }
        let phase = siege.phase();
        send(&mut parties[party], kills);
        *tally.lock().unwrap().entry((phase, party == 0, kills)).or_insert(0) += 1;
        sent += 1;
        wait(&siege, &mut parties[party], begun);
        again(&siege, &mut parties, &mut done, &[party], phase);
    }
    while !done.iter().all(|done| *done) {
        assert!(begun.elapsed() < MOST, "{}", siege.shown("it hangs"));
        again(&siege, &mut parties, &mut done, &[], Phase::End);
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
                parties[party] = siege.start(party);
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
        Phase::Start => 60_000.0,
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
    let (wanted, at_once) = (number("SIEGE", 1), number("SIEGE_AT_ONCE", 2));
    let (sent, runs) = (AtomicU64::new(0), AtomicU64::new(0));
    let next = AtomicU64::new(number("SIEGE_FROM", 1));
    let (tally, started) = (Tally::default(), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while sent.load(Ordering::Relaxed) < wanted {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let signals = besiege(seed, &tally);
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
        "{} signals in {} runs in {} s: every run ended with the undisturbed draws",
        sent.into_inner(),
        runs.into_inner(),
        started.elapsed().as_secs()
    );
    for ((phase, server, kills), count) in tally.into_inner().unwrap() {
        let (whom, what) = (
            if server { "the server" } else { "a site" },
            if kills { "kill -9" } else { "SIGTERM" },
        );
        println!("{count:>6} {what} of {whom} at {phase:?}");
    }
    assert!(Path::new(env!("CARGO_BIN_EXE_consilience")).exists());
}

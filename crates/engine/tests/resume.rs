//! A run that is stopped, killed at any moment or damaged on disk, and continued from its
//! checkpoint, gives the same draws, statistics and ledger as one that never stopped.

#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use consilience_engine::checkpoint::{self, Checkpoint, CheckpointError, Pace, fingerprint};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Outcome, Progress, sample, sample_kept};
use consilience_engine::warnings::Warning;

/// An empty folder that goes away in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("consilience-resume-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn config(sampler: &str, precondition: bool) -> Config {
    let rows = "[[client]]\nrows = [[0.3, 1.0, 1], [-1.0, 0.5, 0], [0.4, 0.1, 1]]\n[[client]]\n\
        rows = [[0.5, -1, 0], [-0.2, 0.7, 1]]\n";
    let target = "[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance = 1.0 }\n";
    let text = format!(
        "{target}{rows}[sampler]\nname = \"{sampler}\"\nstep = \"auto\"\n\
         precondition = {precondition}\n[run]\nchains = 3\nthreads = 2\niterations = 1500\n\
         burn_in = 200\nthin = 3\n"
    );
    Config::parse(Source { file: "test".into(), folder: ".".into(), text }).unwrap()
}

/// A small net whose chains begin where descent leads.
fn net() -> Config {
    let text = "[target]\nmodel = \"net\"\nlayers = \"mlp(3)\"\ninput = [2]\nclasses = 2\n\
        start = { sgd = { epochs = 9, step = 0.05, batch = 1 } }\n\
        prior = { law = \"gaussian\", variance = 1.0 }\n\
        [[client]]\nrows = [[0.3, 1.0, 1], [-1.0, 0.5, 0], [0.4, 0.1, 1]]\n\
        [[client]]\nrows = [[0.5, -1, 0], [-0.2, 0.7, 1]]\n\
        [sampler]\nname = \"vr-fald*\"\nstep = 0.01\nbatch = 1\n\
        [run]\nchains = 3\nthreads = 2\niterations = 1500\nburn_in = 200\nthin = 3\n";
    Config::parse(Source { file: "test".into(), folder: ".".into(), text: text.into() }).unwrap()
}

struct Never;

impl Pace for Never {
    fn due(&self, _: usize) -> bool {
        false
    }

    fn saved(&self, _: usize) {}
}

/// Saves at every chance, and copies the folder as it is at some of them, as if the machine had
/// been photographed.
struct Photographer<'a> {
    dir: &'a Path,
    album: &'a Path,
    taken: AtomicUsize,
    turn: Mutex<()>,
}

impl Pace for Photographer<'_> {
    fn due(&self, _: usize) -> bool {
        true
    }

    fn saved(&self, _: usize) {
        let _turn = self.turn.lock();
        let number = self.taken.fetch_add(1, Ordering::Relaxed);
        if number % 9 == 4 {
            copy(
                &self.dir.join(checkpoint::FOLDER),
                &self.album.join(number.to_string()).join(checkpoint::FOLDER),
            );
        }
    }
}

/// Copy what can be read: others write meanwhile.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let Ok(entry) = entry else { continue };
        if let Ok(bytes) = std::fs::read(entry.path()) {
            std::fs::write(to.join(entry.file_name()), bytes).unwrap();
        }
    }
}

struct Run {
    config: Config,
    plan: Plan,
    fingerprint: String,
}

impl Run {
    fn new(config: Config) -> Self {
        let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
        let fingerprint = fingerprint(&plan, &plan.length, config.seed);
        Run { config, plan, fingerprint }
    }

    fn on(&self, checkpoint: &Checkpoint<'_>, progress: &Progress) -> Outcome {
        let sinks = Sinks::Kept { folder: checkpoint.path().to_path_buf(), file: None };
        sample_kept(
            &self.plan,
            &self.plan.length,
            self.config.seed,
            sinks,
            progress,
            Some(checkpoint),
        )
        .unwrap()
    }

    fn whole(&self) -> Outcome {
        sample(&self.plan, &self.plan.length, self.config.seed, Sinks::Memory, &Progress::default())
            .unwrap()
    }

    fn resumed(&self, dir: &Path) -> (Outcome, Vec<Warning>) {
        let checkpoint = Checkpoint::resume(dir, &self.fingerprint, &Never).unwrap();
        let outcome = self.on(&checkpoint, &Progress::default());
        (outcome, checkpoint.warnings())
    }
}

fn same(a: &Outcome, b: &Outcome, what: &str) {
    assert!(a.draws == b.draws, "{what}: the draws differ");
    assert_eq!(a.statistics, b.statistics, "{what}");
    assert_eq!(a.ledger, b.ledger, "{what}");
    assert_eq!(
        (a.rows_evaluated, a.iterations, a.interrupted),
        (b.rows_evaluated, b.iterations, b.interrupted),
        "{what}"
    );
}

#[test]
fn a_killed_run_goes_on_to_the_same_outcome() {
    for (sampler, config) in [
        ("lmc", config("lmc", false)),
        ("qlsd++", config("qlsd++", false)),
        ("b-elf", config("b-elf", false)),
        ("vr-fald*", config("vr-fald*", true)),
        ("vr-fald* on a net", net()),
    ] {
        let scratch = Scratch::new(&sampler.replace('*', "s"));
        let (dir, album) = (scratch.0.join("run"), scratch.0.join("album"));
        let run = Run::new(config);
        let whole = run.whole();
        let photographer = Photographer {
            dir: &dir,
            album: &album,
            taken: AtomicUsize::new(0),
            turn: Mutex::new(()),
        };
        let checkpoint =
            Checkpoint::begin(&dir, &run.config, &run.fingerprint, &photographer).unwrap();
        same(&run.on(&checkpoint, &Progress::default()), &whole, sampler);
        drop(checkpoint);
        let mut photos = 0;
        for photo in std::fs::read_dir(&album).unwrap() {
            let photo = photo.unwrap().path();
            assert!(checkpoint::is_unfinished(&photo));
            let (outcome, warnings) = run.resumed(&photo);
            same(&outcome, &whole, &format!("{sampler}, {}: {warnings:?}", photo.display()));
            photos += 1;
        }
        assert!(photos > 0, "{sampler}: nothing was photographed");
        // A finished chain is not sampled again.
        same(&run.resumed(&dir).0, &whole, sampler);
    }
}

/// A descent has no snapshots: half of one is not taken for the whole.
#[test]
fn a_run_that_is_stopped_on_its_way_downhill_begins_anew() {
    let scratch = Scratch::new("downhill");
    let run = Run::new(net());
    let stopped = Progress::default();
    stopped.stop.store(true, Ordering::Relaxed);
    let checkpoint = Checkpoint::begin(&scratch.0, &run.config, &run.fingerprint, &Never).unwrap();
    let nothing = run.on(&checkpoint, &stopped);
    assert_eq!((nothing.iterations, nothing.draws.length(), nothing.interrupted), (0, 0, true));
    drop(checkpoint);
    same(&run.resumed(&scratch.0).0, &run.whole(), "after a stop on the way");
}

/// Proposals with nodes along a scale are those of the plan, which is made again.
#[test]
fn a_run_along_nodes_goes_on_to_the_same_outcome() {
    let scratch = Scratch::new("nodes");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let text = "seed = 3\n[target]\nmodel = \"logistic\"\nformula = \"ill ~ x + (1 | ward)\"\n\
        prior = { law = \"normal(0, 2.5)\", of = { effects = \"half_normal(2)\" } }\n\
        [data]\nfile = \"groups.csv\"\nscheme = \"natural(site)\"\n\
        [sampler]\nname = \"imh\"\nblock = 50\n[run]\neffective_draws = 300\n";
    let source = Source { file: "test".into(), folder, text: text.into() };
    let run = Run::new(Config::parse(source).unwrap());
    assert!(run.plan.choice.as_ref().unwrap().nodes.is_some());
    let whole = run.whole();
    let progress = Progress::default();
    progress.stop.store(true, Ordering::Relaxed);
    let checkpoint = Checkpoint::begin(&scratch.0, &run.config, &run.fingerprint, &Never).unwrap();
    let stopped = run.on(&checkpoint, &progress);
    assert!(stopped.interrupted && stopped.iterations < run.plan.length.total());
    drop(checkpoint);
    let again = Run::new(run.config.clone());
    assert_eq!(again.fingerprint, run.fingerprint);
    same(&again.resumed(&scratch.0).0, &whole, "along nodes");
}

#[test]
fn a_stopped_run_goes_on_and_on() {
    let scratch = Scratch::new("stop");
    let run = Run::new(config("fald", false));
    let whole = run.whole();
    let progress = Progress::default();
    progress.stop.store(true, Ordering::Relaxed);
    drop(Checkpoint::begin(&scratch.0, &run.config, &run.fingerprint, &Never).unwrap());
    let mut stops = 0;
    loop {
        let checkpoint = Checkpoint::resume(&scratch.0, &run.fingerprint, &Never).unwrap();
        let outcome = run.on(&checkpoint, &progress); // stops at its first look at the sign
        stops += 1;
        if outcome.iterations >= run.plan.length.total() {
            same(&Outcome { interrupted: false, ..outcome }, &whole, "stopped");
            break;
        }
        assert!(stops < 200, "it does not come to its end");
    }
    assert!(stops > 2, "it was stopped {stops} times");
}

/// Every kind of file of a checkpoint with flipped bits: the outcome is the same, since a chain
/// goes back to what is whole; or the damage is named before anything is sampled.
#[test]
fn flipped_bits_cost_time_and_nothing_else() {
    let scratch = Scratch::new("flips");
    let (dir, album) = (scratch.0.join("run"), scratch.0.join("album"));
    let mut config = config("lsd++", false);
    (config.run.chains, config.run.iterations) = (Some(1), Some(400));
    (config.run.burn_in, config.run.thin) = (Some(10), Some(1));
    let run = Run::new(config);
    let whole = run.whole();
    let photographer =
        Photographer { dir: &dir, album: &album, taken: AtomicUsize::new(0), turn: Mutex::new(()) };
    let checkpoint = Checkpoint::begin(&dir, &run.config, &run.fingerprint, &photographer).unwrap();
    same(&run.on(&checkpoint, &Progress::default()), &whole, "whole");
    drop(checkpoint);
    let photo = album.join("4").join(checkpoint::FOLDER);
    let names: Vec<String> = std::fs::read_dir(&photo)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().filter(|n| n.contains("state")).count() == 2, "{names:?}");
    let mut dice = 1u64;
    for name in names.iter().filter(|n| !n.starts_with('.') && !n.starts_with("config")) {
        let bytes = std::fs::read(photo.join(name)).unwrap();
        let (mut warned, mut refused) = (0, 0);
        for _ in 0..1000 / if name == "plan" { 1 } else { 25 } {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bit = (dice >> 33) as usize % (bytes.len() * 8);
            let damaged = scratch.0.join("damaged");
            let _ = std::fs::remove_dir_all(&damaged);
            copy(&photo, &damaged.join(checkpoint::FOLDER));
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(damaged.join(checkpoint::FOLDER).join(name), other).unwrap();
            if name == "plan" {
                let refusal = Checkpoint::resume(&damaged, &run.fingerprint, &Never).err();
                refused += usize::from(matches!(refusal, Some(CheckpointError::Changed { .. })));
                continue;
            }
            let (outcome, warnings) = run.resumed(&damaged);
            same(&outcome, &whole, &format!("{name}, bit {bit}: {warnings:?}"));
            warned += usize::from(!warnings.is_empty());
        }
        match name.as_str() {
            "plan" => assert_eq!(refused, 1000),
            "chain-1.draws" | "chain-1.notes" => {
                assert!(warned > 0, "{name}: no damage was noticed")
            }
            _ => {}
        }
    }
}

#[test]
fn another_target_or_sampler_is_refused() {
    let scratch = Scratch::new("changed");
    let run = Run::new(config("lmc", false));
    drop(Checkpoint::begin(&scratch.0, &run.config, &run.fingerprint, &Never).unwrap());
    let again = Config::parse(checkpoint::config_of(&scratch.0).unwrap()).unwrap();
    assert_eq!(
        Run::new(again).fingerprint,
        run.fingerprint,
        "the config that is kept states the same run"
    );
    let mut longer = config("lmc", false);
    longer.run.iterations = longer.run.iterations.map(|n| n + 1);
    let other_data = Source {
        text: config("lmc", false).source.text.replace("0.7", "0.8"),
        ..longer.source.clone()
    };
    for other in [config("lsd++", false), longer, Config::parse(other_data).unwrap()] {
        let refused = Checkpoint::resume(&scratch.0, &Run::new(other).fingerprint, &Never);
        assert!(matches!(refused, Err(CheckpointError::Changed { .. })));
    }
    assert!(matches!(
        Checkpoint::resume(&scratch.0.join("nowhere"), "", &Never),
        Err(CheckpointError::Nothing { .. })
    ));
}

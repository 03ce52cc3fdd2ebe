//! Measure what it costs to survive: checkpoints of a run with rounds of about a millisecond, the
//! state of a million parameters, and an answer that is durable before it leaves.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // a program for people, which may panic

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consilience_core::model::{Isotropic, Model, Prior};
use consilience_core::protocol::{Client, Device, Output, Server, Statement};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Batch, Keys, Recipe, Uplink};
use consilience_core::snapshot::{restore, save};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};
use consilience_engine::checkpoint::{Checkpoint, Pace, fingerprint};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Progress, sample_kept};
use consilience_engine::store::{DurableClient, Folder, Snapshots};

/// Saves at the pace of the command, and adds up what that takes.
struct Watch {
    began: Mutex<(Instant, Instant, Duration, u32)>,
}

impl Pace for Watch {
    fn due(&self, _: usize) -> bool {
        let mut watch = self.began.lock().unwrap();
        watch.0 = Instant::now();
        watch.0 > watch.1
    }

    fn saved(&self, _: usize) {
        let mut watch = self.began.lock().unwrap();
        let took = watch.0.elapsed();
        (watch.1, watch.2, watch.3) =
            (Instant::now() + Duration::from_secs(5).max(took * 100), watch.2 + took, watch.3 + 1);
    }
}

fn main() {
    let dir = std::env::temp_dir().join(format!("consilience-checkpoint-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    a_run(&dir.join("run"));
    a_million(&dir.join("million"));
    an_answer(&dir.join("answer"));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn a_run(dir: &std::path::Path) {
    let row = |k: usize| {
        format!("[{}, {}, {}]", (k % 17) as f64 / 8.0 - 1.0, (k % 29) as f64 / 14.0 - 1.0, k % 2)
    };
    let rows: Vec<String> = (0..20_000).map(row).collect();
    let client = format!("[[client]]\nrows = [{}]\n", rows.join(", "));
    let text = format!(
        "[target]\nmodel = \"logistic\"\nprior = {{ law = \"gaussian\", variance = 1.0 }}\n\
         {client}{client}[sampler]\nname = \"lmc\"\nstep = 1e-5\n[run]\nchains = 1\nthreads = 1\n\
         iterations = 20000\n"
    );
    let config =
        Config::parse(Source { file: "example".into(), folder: ".".into(), text }).unwrap();
    let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
    let watch = Watch {
        began: Mutex::new((
            Instant::now(),
            Instant::now() + Duration::from_secs(5),
            Duration::ZERO,
            0,
        )),
    };
    let checkpoint =
        Checkpoint::begin(dir, &config, &fingerprint(&plan, &plan.length, 1), &watch).unwrap();
    let sinks = Sinks::Kept { folder: checkpoint.path().to_path_buf(), file: None };
    let started = Instant::now();
    sample_kept(&plan, &plan.length, 1, sinks, &Progress::default(), Some(&checkpoint)).unwrap();
    let (all, (.., saving, times)) = (started.elapsed(), *watch.began.lock().unwrap());
    let share = 100.0 * saving.as_secs_f64() / all.as_secs_f64();
    println!(
        "a run of {:.3} ms rounds: {times} checkpoints in {:.1} s took {share:.3}% of it",
        all.as_secs_f64() / 20.0,
        all.as_secs_f64()
    );
}

fn target(dim: usize) -> Target {
    let client = || -> Arc<dyn Model> { Arc::new(Isotropic::new(vec![0.5; dim], dim).unwrap()) };
    Target::new(vec![client(), client(), client()], Prior::Flat, Placement::Server, 1.0).unwrap()
}

fn a_million(dir: &std::path::Path) {
    let recipe =
        Recipe::Uplink(Uplink::lsd_plus_plus(Schedule::Constant(0.01), Batch::Full, 10, Some(0.5)));
    let target = recipe.check(target(1_000_000)).unwrap();
    let keys = Keys::simulation(Seed::new(1), 0);
    let server = || recipe.server(&target, &vec![0.0; 1_000_000], keys).unwrap();
    let client = |i| recipe.client(&target, ClientId(i), keys).unwrap();
    let mut parties = (server(), client(0), client(1));
    let mut disk = Folder::open(dir).unwrap();
    let started = Instant::now();
    let mut bytes = 0;
    for (name, state) in [
        ("server", save(&mut parties.0)),
        ("client-0", save(&mut parties.1)),
        ("client-1", save(&mut parties.2)),
    ] {
        bytes += state.len();
        Snapshots::new(name).save(&mut disk, 1, &state).unwrap();
    }
    let saved = started.elapsed();
    let mut fresh = (server(), client(0), client(1));
    let started = Instant::now();
    let mut load = |name: &str| {
        let newest = Snapshots::new(name).newest(&mut disk, |_, found| Ok(found.payload));
        newest.unwrap().0.unwrap()
    };
    restore(&mut fresh.0, &load("server")).unwrap();
    restore(&mut fresh.1, &load("client-0")).unwrap();
    restore(&mut fresh.2, &load("client-1")).unwrap();
    let back = started.elapsed();
    println!(
        "a million parameters, a server and two clients, {:.0} MB: saved in {saved:.2?}, back in \
         {back:.2?}",
        bytes as f64 / 1e6
    );
}

fn an_answer(dir: &std::path::Path) {
    const ROUNDS: u32 = 300;
    let recipe = Recipe::Uplink(Uplink::lmc(Schedule::Constant(0.01)));
    let target = recipe.check(target(100)).unwrap();
    let keys = Keys::simulation(Seed::new(1), 0);
    let format = || recipe.format(&target, keys).unwrap();
    let mut server = Server::new(
        recipe.server(&target, &[0.0; 100], keys).unwrap(),
        Statement::new([("a", "b")]),
        3,
        format(),
    );
    let client = |i| Client::new(recipe.client(&target, ClientId(i), keys).unwrap(), format());
    let (mut durable, _) =
        DurableClient::open(Folder::open(&dir.join("synced")).unwrap(), client(0)).unwrap();
    let relaxed =
        DurableClient::open(Folder::open(&dir.join("relaxed")).unwrap(), client(1)).unwrap().0;
    let mut relaxed = relaxed.without_sync();
    let mut plain: Client<Box<dyn Device>> = client(2);
    let mut took = [Duration::ZERO; 3];
    let mut rounds = 0;
    while rounds < ROUNDS {
        match server.poll() {
            Some(Output::Send { to, bytes }) => {
                let (started, mut answer) = (Instant::now(), Vec::new());
                match to.index() {
                    0 => drop(durable.handle(&bytes, &mut answer).unwrap()),
                    1 => drop(relaxed.handle(&bytes, &mut answer).unwrap()),
                    _ => drop(plain.handle(&bytes, &mut answer).unwrap()),
                }
                took[to.index()] += started.elapsed();
                server.handle(to, &answer).unwrap();
            }
            _ => rounds += 1,
        }
    }
    let [synced, relaxed, plain] = took.map(|t| t / ROUNDS);
    println!(
        "an answer of 100 parameters: {synced:.1?} on disk, {relaxed:.1?} with the operating \
         system, {plain:.1?} nowhere"
    );
}

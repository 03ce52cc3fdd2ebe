//! The same bits for any number of threads, in memory and on disk, split by chains or by clients.
#![allow(clippy::unwrap_used)] // a test may panic

use consilience_engine::config::{Config, Source};
use consilience_engine::draws::{Draws, MOST_HELD, Sinks, Streamed};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Length, Progress, sample};

fn config(sampler: &str, chains: usize, rows: usize) -> Config {
    stated("noise_variance = 1.0", sampler, chains, rows)
}

fn stated(noise: &str, sampler: &str, chains: usize, rows: usize) -> Config {
    let mut text = format!(
        "seed = 5\n[target]\nmodel = \"linear\"\n{noise}\nintercept = false\n\
         [target.prior]\nlaw = \"gaussian\"\nvariance = 1.0\n",
    );
    let columns = 3;
    for client in 0..3 {
        let cell = |j: usize, k: usize| ((client * 31 + j * 7 + k * 3) % 11) as f64 / 5.0 - 1.0;
        let row = |j: usize| {
            format!(
                "[{}]",
                (0..=columns).map(|k| format!("{:?}", cell(j, k))).collect::<Vec<_>>().join(",")
            )
        };
        text.push_str(&format!(
            "[[client]]\nrows = [{}]\n",
            (0..rows).map(row).collect::<Vec<_>>().join(",")
        ));
    }
    text.push_str(&format!(
        "[sampler]\n{sampler}\n[run]\nchains = {chains}\niterations = 300\nburn_in = 100\n"
    ));
    Config::parse(Source { file: "test".into(), folder: ".".into(), text }).unwrap()
}

fn draws(config: &Config, threads: usize, sinks: Sinks) -> Draws {
    let problem = Problem::new(config).unwrap();
    let plan = Plan::new(config, &problem).unwrap();
    let run = Length { threads, ..plan.length.clone() };
    sample(&plan, &run, config.seed, sinks, &Progress::default()).unwrap().draws
}

const SAMPLERS: [&str; 4] = [
    "name = \"lsd++\"\nbatch = 0.3\nrefresh = 7\nmemory = 0.5\nparticipation = 0.6\nstep = 2e-6",
    "name = \"vr-fald*\"\nbatch = 0.3\ncorrelation = 0.5\nstep = 2e-6",
    "name = \"sgld\"\nbatch = 0.5\nprecondition = true",
    "name = \"imh\"\nblock = 70",
];

#[test]
fn chains_do_not_depend_on_threads() {
    for sampler in SAMPLERS {
        let config = config(sampler, 5, 8);
        let one = draws(&config, 1, Sinks::Memory);
        assert!(one.length() > 10);
        for threads in [2, 3, 7] {
            assert!(
                draws(&config, threads, Sinks::Memory) == one,
                "{sampler} with {threads} threads"
            );
        }
    }
}

#[test]
fn clients_spread_over_threads_give_the_same_chain() {
    // One chain and enough rows that an exchange is worth spreading.
    for sampler in SAMPLERS {
        let config = config(sampler, 1, 25_000);
        let one = draws(&config, 1, Sinks::Memory);
        for threads in [2, 3, 7] {
            assert!(
                draws(&config, threads, Sinks::Memory) == one,
                "{sampler} with {threads} threads"
            );
        }
    }
}

#[test]
fn draws_on_disk_are_the_draws_in_memory() {
    let folder = std::env::temp_dir().join(format!("consilience-draws-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = config(SAMPLERS[1], 3, 8);
    let memory = draws(&config, 2, Sinks::Memory);
    for name in ["draws.csv", "draws.npy"] {
        let path = folder.join(name);
        let parameters: Vec<String> = ["a", "b, quoted", "c"].map(String::from).to_vec();
        assert!(
            draws(&config, 2, Sinks::File { path: path.clone(), parameters, hold: MOST_HELD })
                == memory
        );
        let bytes = std::fs::read(&path).unwrap();
        let flat: Vec<f64> = memory.rows().flatten().copied().collect();
        if name.ends_with("csv") {
            let text = String::from_utf8(bytes).unwrap();
            let mut lines = text.lines();
            assert_eq!(lines.next(), Some("chain,draw,a,\"b, quoted\",c"));
            let numbers: Vec<f64> = lines
                .flat_map(|l| {
                    l.split(',').skip(2).map(|x| x.parse().unwrap()).collect::<Vec<f64>>()
                })
                .collect();
            assert!(numbers == flat, "every digit is there");
        } else {
            assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
            let header = 10 + u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
            assert_eq!(header % 64, 0);
            let text = std::str::from_utf8(&bytes[10..header]).unwrap();
            assert!(
                text.contains(&format!("'shape': (3, {}, 3)", memory.length()))
                    && text.ends_with('\n')
            );
            let numbers: Vec<f64> = bytes[header..]
                .chunks(8)
                .map(|x| f64::from_le_bytes(x.try_into().unwrap()))
                .collect();
            assert!(numbers == flat);
        }
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no part is left behind");
        std::fs::remove_file(path).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn draws_that_are_too_many_to_hold_are_counted() {
    let folder = std::env::temp_dir().join(format!("consilience-streamed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = config(SAMPLERS[1], 3, 8);
    let memory = draws(&config, 2, Sinks::Memory);
    let (problem, path) = (Problem::new(&config).unwrap(), folder.join("draws.npy"));
    let plan = Plan::new(&config, &problem).unwrap();
    let held = |hold: u64| {
        let sinks =
            Sinks::File { path: path.clone(), parameters: problem.parameters.clone(), hold };
        sample(&plan, &plan.length, config.seed, sinks, &Progress::default()).unwrap()
    };
    let all = (memory.chains() * memory.length() * memory.dim() * 8) as u64;
    assert_eq!(held(all).streamed, None);
    let outcome = held(all - 1);
    assert_eq!(outcome.draws.length(), 0);
    assert_eq!(
        outcome.streamed,
        Some(Streamed { file: path.clone(), chains: 3, length: memory.length() })
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_stop_keeps_what_was_drawn_and_a_divergence_says_what_to_do() {
    let config = config(SAMPLERS[1], 2, 8);
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let progress = Progress::default();
    progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let run = Length { iterations: 1_000_000_000, ..plan.length.clone() };
    let outcome = sample(&plan, &run, 1, Sinks::Memory, &progress).unwrap();
    assert!(outcome.interrupted && outcome.iterations < 10_000);

    // One core, three chains. Where these go on side by side, all are stopped on the way. Where one
    // follows the other, the first is, and the others have hardly begun: what the first drew is
    // kept.
    for (noise, kept) in [("noise_variance = 1.0", 3), ("", 1)] {
        stopped_on_the_way(&stated(noise, "name = \"lmc\"\nstep = 2e-6", 3, 8), kept);
    }

    let wild = self::config("name = \"lmc\"\nstep = 100.0", 2, 8);
    let plan = Plan::new(&wild, &Problem::new(&wild).unwrap()).unwrap();
    let error = sample(&plan, &plan.length, 1, Sinks::Memory, &Progress::default())
        .unwrap_err()
        .to_string();
    assert!(error.contains("chain 1 diverged") && error.contains("step = \"auto\""), "{error}");
}

/// Of chains that are stopped after some iterations of all together so many are kept.
fn stopped_on_the_way(waiting: &Config, kept: usize) {
    let plan = Plan::new(waiting, &Problem::new(waiting).unwrap()).unwrap();
    let run = Length { iterations: 1_000_000_000, threads: 1, ..plan.length.clone() };
    let progress = Progress::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while progress.done.load(std::sync::atomic::Ordering::Relaxed) < 5_000 {
                std::thread::yield_now();
            }
            progress.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        sample(&plan, &run, 1, Sinks::Memory, &progress).unwrap()
    });
    assert_eq!(outcome.draws.chains(), kept);
    assert!(
        outcome.interrupted && outcome.draws.length() * kept >= 4_000,
        "{} draws",
        outcome.draws.length()
    );
    for statistic in &outcome.statistics {
        assert_eq!(
            (statistic.values.len(), statistic.values[0].len()),
            (kept, outcome.draws.length()),
            "{}",
            statistic.name
        );
    }
    assert_eq!(outcome.statistics.len(), 5);
}

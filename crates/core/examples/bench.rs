//! Time the papers' workloads and hold each chain against its known law: one line of JSON a run.
//!
//! `cargo run --release -p consilience-core --example bench -- W1 --sampler qlsd* --levels 16 --iters 20000 --chains 30 --threads 2`
//!
//! | workload | what | flags |
//! |---|---|---|
//! | `W1`, `qlsd_toy` | toy Gaussian, 20 clients, d = 50 | `--sampler lsd*, sgld, qlsd, qlsd*, qlsd++, b-elf`, `--levels`, `--code` |
//! | `W2`, `fald_gauss` | 100 Gaussian clients, d = 20 | `--algo fald, vr`, `--tau 0, 1` |
//! | `W7`, `quantise_encode` | one vector of a million numbers | `--s`, `--codec elias, entropy` |
//!
//! `seconds` and `cpu_seconds` are the best of `--repeats` repeats of `--iters` iterations of every chain, after one that is not timed.
#![allow(clippy::print_stdout, clippy::unwrap_used)] // it is a program that prints and may panic

use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use consilience_core::compress::code::{Code, Integer, Layout};
use consilience_core::compress::{Channel, CodeChoice, Compressor, Message};
use consilience_core::linalg::{norm_squared, subtract};
use consilience_core::model::{Gaussian, Isotropic, Potential, Prior};
use consilience_core::protocol::{Device, Direction, Event, Ledger, exchange};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::sampler::exact::posterior;
use consilience_core::sampler::{Anchor, Batch, Keys, Local, Recipe, Sampler, Uplink};
use consilience_core::step::Schedule;
use consilience_core::target::{Placement, Target};

fn main() {
    let arguments = Arguments::read();
    match arguments.workload.as_str() {
        "W1" | "qlsd_toy" => toy_gaussian(&arguments),
        "W2" | "fald_gauss" => many_gaussians(&arguments),
        "W7" | "quantise_encode" => quantise_and_encode(&arguments),
        other => panic!("no workload is called {other}: W1, W2 and W7 are known"),
    }
}

struct Arguments {
    workload: String,
    flags: BTreeMap<String, String>,
}

impl Arguments {
    fn read() -> Self {
        let mut words = std::env::args().skip(1);
        let workload = words.next().unwrap_or_else(|| "W1".into());
        let mut flags = BTreeMap::new();
        while let (Some(name), Some(value)) = (words.next(), words.next()) {
            flags.insert(name.trim_start_matches('-').to_owned(), value);
        }
        Arguments { workload, flags }
    }

    fn get<T: FromStr>(&self, name: &str, otherwise: T) -> T {
        self.flags.get(name).map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("--{name} {value} is not understood")))
    }
}

/// Twenty clients with 10 to 200 rows: client means far apart, so that gradients at the optimum are large.
fn toy_gaussian(arguments: &Arguments) {
    const ROWS: [usize; 20] = [69, 190, 143, 78, 35, 159, 86, 122, 128, 66, 79, 186, 158, 176, 35, 79, 24, 195, 136, 52];
    let (d, gamma, total) = (50, 4.9e-4, ROWS.iter().sum::<usize>() as f64);
    let client = |i: usize| -> Arc<dyn Potential> {
        let mean = normals(i, d);
        let cells = normals(100 + i, d * ROWS[i]).iter().enumerate().map(|(k, z)| z + 2.0 * mean[k % d]).collect();
        Arc::new(Isotropic::new(cells, d).unwrap())
    };
    let target = Target::new((0..ROWS.len()).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    let star: Vec<f64> = posterior(&target).unwrap().mean.iter().map(|x| f64::from(*x as f32)).collect();
    let mut residual = vec![0.0; d];
    target.gradient(&star, &mut residual);
    let anchor = Anchor { point: star.clone(), residual };

    let (step, batch) = (Schedule::Constant(gamma), Batch::Fraction(0.1));
    let levels = arguments.get("levels", 16);
    let qsgd = Compressor::qsgd(levels);
    let name = arguments.get("sampler", "qlsd*".to_owned());
    let mut uplink = match name.as_str() {
        "lmc" => Uplink::lmc(step),
        "sgld" => Uplink::sgld(step, batch),
        "lsd*" => Uplink::lsd_star(step, batch, anchor),
        "qlsd" => Uplink::qlsd(step, batch, qsgd),
        "qlsd*" => Uplink::qlsd_star(step, batch, anchor, qsgd),
        "qlsd++" => Uplink::qlsd_plus_plus(step, batch, 100, None, qsgd),
        "b-elf" => Uplink::b_elf(step.scaled(0.02), Compressor::top_k(1), Compressor::top_k(1)), // what top-1 both ways bears
        other => panic!("no sampler of W1 is called {other}"),
    };
    uplink.code = arguments.get("code", CodeChoice::Auto);

    // E f(1 - f) of a level's fraction f, for the stationary variance with the noise of quantisation.
    let fraction = (0..2000).map(|k| fraction_variance(&normals(1000 + k, d), f64::from(levels))).sum::<f64>() / 2000.0;
    let squares = ROWS.iter().map(|n| (n * n) as f64).sum::<f64>();
    let quantisation = if name == "qlsd*" { gamma * gamma * squares * d as f64 / f64::from(levels).powi(2) * fraction } else { 0.0 };
    let predicted = 2.0 * gamma / (1.0 - (1.0 - gamma * total).powi(2) - quantisation);
    let timing = time_chains(arguments, &Recipe::Uplink(uplink), &target, &star, 20_000);
    let variance = timing.second_moment / d as f64;
    let known = if matches!(name.as_str(), "lmc" | "lsd*" | "qlsd*") { format!("{:.5}", variance / predicted) } else { "null".into() };
    let check = format!(
        "\"samples\": {}, \"var_over_predicted\": {known}, \"var_over_posterior\": {:.5}, \"bits_up_a_message\": {:.2}",
        timing.samples,
        variance * total,
        timing.bits_up,
    );
    timing.print(arguments, "qlsd_toy", &format!("\"sampler\": \"{name}\", \"levels\": {levels}"), &check);
}

fn fraction_variance(v: &[f64], levels: f64) -> f64 {
    let norm = norm_squared(v).sqrt();
    let variance = |x: &f64| {
        let f = (levels * x.abs() / norm).fract();
        f * (1.0 - f)
    };
    v.iter().map(variance).sum::<f64>() / v.len() as f64
}

/// A hundred clients with full precisions.
fn many_gaussians(arguments: &Arguments) {
    let (b, d) = (100, 20);
    let client = |i: usize| -> Arc<dyn Potential> {
        let z = normals(2000 + i, d * d);
        let precision = (0..d * d).map(|k| (z[k] + z[k % d * d + k / d]) * 0.02 + if k % (d + 1) == 0 { 1.0 } else { 0.0 }).collect();
        Arc::new(Gaussian::new(normals(3000 + i, d).iter().map(|z| 3.0 * z).collect(), precision).unwrap())
    };
    let target = Target::new((0..b).map(client).collect(), Prior::Flat, Placement::Server, 1.0).unwrap();
    let law = posterior(&target).unwrap();
    let (tau, algorithm) = (arguments.get("tau", 0.0), arguments.get("algo", "fald".to_owned()));
    let gamma = Schedule::Constant(0.2 / 5.0 / b as f64);
    let local = match algorithm.as_str() {
        "fald" => Local::fald(gamma, b, tau, 0.2, Batch::Full),
        "vr" => Local::vr_fald_star(gamma, b, tau, 0.2, 0.2, Batch::Full),
        other => panic!("no algorithm of W2 is called {other}"),
    };
    let timing = time_chains(arguments, &Recipe::Local(local), &target, &law.mean, 10_000);
    let trace: f64 = (0..d).map(|k| law.covariance[k * (d + 1)]).sum();
    let check = format!("\"samples\": {}, \"second_moment_over_posterior\": {:.5}", timing.samples, timing.second_moment / trace);
    timing.print(arguments, "fald_gauss", &format!("\"algo\": \"{algorithm}\", \"tau\": {tau}"), &check);
}

/// A million normals, quantised and written.
fn quantise_and_encode(arguments: &Arguments) {
    let (d, levels) = (1_000_000, arguments.get("s", 16));
    let code = match arguments.get("codec", "elias".to_owned()).as_str() {
        "elias" => Code::Elias(Integer::Gamma, if levels < 500 { Layout::Sparse } else { Layout::Dense }),
        other => other.parse().unwrap(),
    };
    let v = normals(5000, d);
    let channel = Channel::new(Compressor::qsgd(levels), CodeChoice::Exactly(code), d).unwrap();
    let (mut message, mut bytes, mut round) = (Message::new(), Vec::new(), 0);
    let iters: u64 = arguments.get("iters", 5);
    let (seconds, cpu) = best_of(arguments, || {
        for _ in 0..iters {
            bytes.clear();
            round += 1;
            channel.quantise(&v, &mut Seed::new(1).stream(Purpose::Compress, SERVER, round), &mut message).unwrap();
            channel.encode(&message, &mut bytes);
        }
    });
    let (mut read, mut values) = (Message::new(), vec![0.0; d]);
    channel.decode(&bytes, &mut read).unwrap();
    read.dequantise(&mut Seed::new(1).stream(Purpose::Compress, SERVER, round), &mut values).unwrap();
    let check = format!("\"round_trip\": {}, \"bits_a_coordinate\": {:.4}", read == message, bytes.len() as f64 * 8.0 / d as f64);
    let timing = Timing { seconds, cpu, iters, samples: 0, second_moment: 0.0, bits_up: 0.0 };
    timing.print(arguments, "quantise_encode", &format!("\"s\": {levels}, \"codec\": \"{code}\""), &check);
}

fn normals(address: usize, n: usize) -> Vec<f64> {
    let mut z = vec![0.0; n];
    Seed::new(1).stream(Purpose::Data, SERVER, address as u64).normals(&mut z);
    z
}

struct Timing {
    seconds: f64,
    cpu: f64,
    iters: u64,
    samples: u64,
    /// `E norm(x - centre)^2` over all draws that were timed.
    second_moment: f64,
    /// Mean bits of an answer, header apart.
    bits_up: f64,
}

impl Timing {
    fn print(&self, arguments: &Arguments, workload: &str, variant: &str, check: &str) {
        println!(
            "{{\"workload\": \"{workload}\", \"impl\": \"consilience\", \"threads\": {}, \"chains\": {}, \"iters\": {}, \"seconds\": {:.6}, \
             \"iters_per_second\": {:.6}, \"cpu_seconds\": {:.6}, \"compile_seconds\": 0.0, {variant}, \"check\": {{{check}}}}}",
            arguments.get("threads", 1),
            arguments.get("chains", 1),
            self.iters,
            self.seconds,
            self.iters as f64 / self.seconds,
            self.cpu,
        );
    }
}

/// One chain with its running sums.
struct Chain {
    server: Box<dyn Sampler>,
    clients: Vec<Box<dyn Device>>,
    ledger: Ledger,
    moved: Vec<f64>,
    samples: u64,
    squares: f64,
}

impl Chain {
    fn new(recipe: &Recipe, target: &Target, start: &[f64], chain: u32) -> Self {
        let keys = Keys::simulation(Seed::new(1), chain);
        let b = target.clients.len();
        Chain {
            server: recipe.server(target, start, keys).unwrap(),
            clients: (0..b as u32).map(|i| recipe.client(target, ClientId(i), keys).unwrap()).collect(),
            ledger: Ledger::new(b),
            moved: vec![0.0; start.len()],
            samples: 0,
            squares: 0.0,
        }
    }

    fn run(&mut self, iterations: u64, centre: &[f64]) {
        let end = self.server.iteration() + iterations;
        while self.server.iteration() < end {
            match exchange(&mut *self.server, &mut self.clients, &mut self.ledger) {
                Event::Draw => {
                    subtract(self.server.position(), centre, &mut self.moved);
                    self.squares += norm_squared(&self.moved);
                    self.samples += 1;
                }
                Event::Nothing => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

fn time_chains(arguments: &Arguments, recipe: &Recipe, target: &Target, centre: &[f64], iterations: u64) -> Timing {
    let (iters, threads): (u64, usize) = (arguments.get("iters", iterations), arguments.get("threads", 1));
    let target = recipe.check(target.clone()).unwrap();
    let mut chains: Vec<Chain> = (0..arguments.get("chains", 1)).map(|c| Chain::new(recipe, &target, centre, c)).collect();
    let share = chains.len().div_ceil(threads);
    let (seconds, cpu) = best_of(arguments, || {
        if threads == 1 {
            chains.iter_mut().for_each(|chain| chain.run(iters, centre));
            return;
        }
        std::thread::scope(|scope| {
            for part in chains.chunks_mut(share) {
                scope.spawn(|| part.iter_mut().for_each(|chain| chain.run(iters, centre)));
            }
        });
    });
    let samples = chains.iter().map(|c| c.samples).sum();
    let answers: u64 = chains.iter().map(|c| c.ledger.messages(Direction::Up)).sum();
    let kinds = consilience_core::protocol::Kind::ALL;
    let sent = |c: &Chain| kinds[..5].iter().map(|kind| c.ledger.bits(Direction::Up, *kind)).sum::<u64>();
    Timing {
        seconds,
        cpu,
        iters,
        samples,
        second_moment: chains.iter().map(|c| c.squares).sum::<f64>() / samples as f64,
        bits_up: chains.iter().map(sent).sum::<u64>() as f64 / answers as f64,
    }
}

/// The best wall time and the best CPU time of one call, after one that is not timed.
fn best_of(arguments: &Arguments, mut call: impl FnMut()) -> (f64, f64) {
    call();
    let (mut wall, mut cpu) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..arguments.get("repeats", 15) {
        let (start, before) = (Instant::now(), cpu_seconds());
        call();
        wall = wall.min(start.elapsed().as_secs_f64());
        cpu = cpu.min(cpu_seconds() - before);
    }
    (wall, cpu)
}

/// The CPU time of this thread, where the system says it (Linux); not a number elsewhere.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns * 1e-9)
}

//! Time the papers' workloads, one line of JSON a run:
//! `consilience-bench WORKLOAD --iters N --threads T --chains C`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // it is a program that prints

mod chains;
mod files;
mod growth;
mod report;
mod scale;
mod timing;
mod workloads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};

use workloads::Workload;

/// Time the papers' workloads as users run them: the library's samplers, models and compressors, on
/// the peers' data.
///
/// One line of JSON: the best of `--repeats` repeats of `--iters` iterations after one that is not
/// timed, and a statistic of the chain beside its known value.
#[derive(Debug, Parser)]
#[command(name = "consilience-bench", version)]
struct Command {
    #[command(subcommand)]
    workload: Workload,
}

/// What all workloads are told.
#[derive(Clone, Debug, Args)]
pub struct How {
    /// Iterations in a timed repeat, of every chain.
    #[arg(long, default_value_t = 100)]
    pub iters: u64,
    /// Threads: they split chains. One thread is pinned to one core.
    #[arg(long, default_value_t = 1)]
    pub threads: usize,
    /// Chains.
    #[arg(long, default_value_t = 1)]
    pub chains: u32,
    /// Timed repeats; the best is reported.
    #[arg(long, default_value_t = 15)]
    pub repeats: u32,
    /// The seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The folder with the peers' data as raw files; without it, made-up data of the same shape.
    #[arg(long)]
    pub data: Option<PathBuf>,
}

fn main() -> ExitCode {
    match Command::parse().workload.run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("consilience-bench: {problem}");
            ExitCode::FAILURE
        }
    }
}

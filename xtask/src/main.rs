//! Run the workspace's chores: `cargo xtask <command>`.
#![allow(clippy::print_stdout, clippy::print_stderr)] // its reader sits at a terminal

mod answers;
mod bench;
mod browser;
mod choices;
mod dependencies;
mod gpu;
mod mutants;
mod posteriordb;
mod python;
mod test;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Usage: cargo xtask <command>

Commands:
  test [--torch]          Check everything: format, lints, dependencies, tests, documentation,
                          tests in Python (with PyTorch), the report in a browser
  browser [--find]        Open a report in headless Chromium; or only find (or, as root,
                          install) one
  python [--torch]        Run the tests in Python on the package and the built command,
                          with ArviZ 0.23 and the current one (and PyTorch)
  wheel                   Build the Python package as a wheel
  answers [--built]       Run samplers with their defaults on real data, hold them against NUTS,
                          and write the chapter about it (by the release build that is there)
  posteriordb [--built]   Run posteriors that others sampled with Stan as federations, hold them
                          against theirs, and write the chapter about it
  choices [--built] [--again] [TARGET...]
                          Run `auto` and the samplers that it chooses from on real posteriors,
                          hold forecasts against what came out, and write the chapter about it;
                          what was run is kept in docs/choices, and not run again without
                          `--again` (`bias` runs the table of biases, `nothing` nothing;
                          `--built` takes the command as it was last built)
  bench [--check]         Run the micro-benchmarks; or count the workloads' instructions (by
                          valgrind) and compare with those on record
  siege [SIGNALS [RUNS]]  Kill and interrupt servers and sites so often (1000), in so many runs at
                          once (2): every run must end with the draws that nobody disturbed
  calibrate [REPLICATIONS]
                          Draw parameters and data so often (2000), and see whether the exact
                          samplers' posteriors have the ranks that they should
  gpu                     On a machine with an NVIDIA GPU: kernels and whole chains of nets have
                          the bits of the cores; milliseconds an iteration, PyTorch's beside them
  dependencies            Check licences, sources and bans of all dependencies by deny.toml
  mutants [--only NAMES]  Plant the bugs of mutants.toml one at a time, or those of these names
                          (with commas between them): the tests named there must catch each
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] | ["help" | "-h" | "--help"] => {
            print!("{HELP}");
            Ok(())
        }
        ["test"] => test::run(&root(), false),
        ["test", "--torch"] => test::run(&root(), true),
        ["browser"] => browser::run(&root()),
        ["browser", "--find"] => browser::find().map(|name| println!("{name}")),
        ["python"] => python(false),
        ["python", "--torch"] => python(true),
        ["wheel"] => python::wheel(&root()),
        ["answers"] => answers::run(&root(), false),
        ["answers", "--built"] => answers::run(&root(), true),
        ["posteriordb"] => posteriordb::run(&root(), false),
        ["posteriordb", "--built"] => posteriordb::run(&root(), true),
        ["choices", ref words @ ..] => choices::run(&root(), words),
        ["bench"] => bench::run(&root()),
        ["bench", "--check"] => bench::check(&root()),
        ["siege"] => siege("1000", "2"),
        ["siege", signals] => siege(signals, "2"),
        ["siege", signals, runs] => siege(signals, runs),
        ["calibrate"] => calibrate("2000"),
        ["calibrate", replications] => calibrate(replications),
        ["gpu"] => gpu::run(&root()),
        ["dependencies"] => dependencies::run(&root()),
        ["mutants"] => mutants::run(&root(), None),
        ["mutants", "--only", names] => mutants::run(&root(), Some(names)),
        _ => Err(format!("there is no command `{}`\n\n{HELP}", words.join(" "))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// How many signals a run of a siege gets: what it takes to begin one counts for little then.
const SIGNALS_A_RUN: &str = "36";

/// Besiege the command as it is built for tests.
fn siege(signals: &str, runs: &str) -> Result<(), String> {
    for text in [signals, runs] {
        text.parse::<u64>().map_err(|_| format!("`{text}` is no number"))?;
    }
    let status = cargo()
        .args(["test", "-p", "consilience", "--test", "siege", "--", "--nocapture"])
        .env("SIEGE", signals)
        .env("SIEGE_AT_ONCE", runs)
        .env("SIEGE_A_RUN", SIGNALS_A_RUN)
        .current_dir(root())
        .status()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { Err("a run did not end as it should".into()) }
}

/// Simulation-based calibration of the samplers that accept or reject, built for speed.
fn calibrate(replications: &str) -> Result<(), String> {
    replications.parse::<u64>().map_err(|_| format!("`{replications}` is no number"))?;
    let samplers = "ranks_of_the_truth_are_uniform";
    let models = "ranks_of_models_that_integrate_are_uniform";
    let test = ["--test", "metropolis", "--", "--exact", samplers, models];
    let status = cargo()
        .args(["test", "--release", "-p", "consilience-core"])
        .args(test)
        .arg("--nocapture")
        .env("REPLICATIONS", replications)
        .current_dir(root())
        .status()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if status.success() { Ok(()) } else { Err("the ranks are not uniform".into()) }
}

fn python(torch: bool) -> Result<(), String> {
    test::python(&root(), torch)
        .map(|(passed, skipped)| println!("{passed} passed, {} skipped", skipped.len()))
}

/// The workspace's folder: cargo says where this package lies.
fn root() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or(package.clone(), Path::to_path_buf)
}

/// The cargo that runs this. It is not told that it runs within a package: build scripts watch such
/// variables, and what was built from a shell would be built again.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let of_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(of_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}

//! Check everything, step by step, and stop at the first that fails.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cargo;
use crate::python::{self, Ended};

/// One step. All build with the same flags, so that none rebuilds what another has built.
struct Step {
    name: &'static str,
    /// How to run it: the first way that this machine has the tool for.
    ways: &'static [Way],
}

struct Way {
    /// A command that succeeds where the tool is there; empty where it always is.
    probe: &'static str,
    run: &'static str,
    with: &'static [(&'static str, &'static str)],
}

const STEPS: &[Step] = &[
    Step { name: "format", ways: &[Way { probe: "cargo fmt --version", run: "cargo fmt --all --check", with: &[] }] },
    // Covers the tests too: what warns there is an error here.
    Step {
        name: "lints",
        ways: &[Way { probe: "cargo clippy --version", run: "cargo clippy --workspace --all-targets --locked -- -D warnings", with: &[] }],
    },
    Step {
        name: "tests",
        ways: &[
            Way { probe: "cargo nextest --version", run: "cargo nextest run --workspace --locked", with: &[] },
            Way { probe: "", run: "cargo test --workspace --locked --tests --examples", with: &[] },
        ],
    },
    Step { name: "examples in the documentation", ways: &[Way { probe: "", run: "cargo test --workspace --doc --locked", with: &[] }] },
    Step {
        name: "documentation",
        ways: &[Way { probe: "", run: "cargo doc --workspace --no-deps --locked", with: &[("RUSTDOCFLAGS", "-D warnings")] }],
    },
    Step { name: "browser", ways: &[Way { probe: "cargo xtask browser --find", run: "cargo xtask browser", with: &[] }] },
];

/// Run every step that this machine can run; with PyTorch only if asked to.
pub fn run(root: &Path, torch: bool) -> Result<(), String> {
    let (mut passed, mut skipped) = (0, Vec::new());
    for Step { name, ways } in STEPS {
        let Some(way) = ways.iter().find(|way| can(root, way.probe)) else {
            println!("==> {name}: skipped, since `{}` fails on this machine", ways[0].probe);
            skipped.push(*name);
            continue;
        };
        println!("==> {name}: {}", way.run);
        let start = Instant::now();
        let status = command(root, way.run).envs(way.with.iter().copied()).status();
        if !status.map_err(|error| format!("the step `{name}` does not start: {error}"))?.success() {
            return Err(format!("the step `{name}` failed: {}", way.run));
        }
        println!("==> {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
        passed += 1;
    }
    let (passed_in_python, skipped_in_python) = python(root, torch)?;
    passed += passed_in_python;
    skipped.extend(skipped_in_python);
    let names = if skipped.is_empty() { String::new() } else { format!(" ({})", skipped.join(", ")) };
    println!("==> steps: {passed} passed, 0 failed, {} skipped{names}", skipped.len());
    Ok(())
}

/// Run the tests in Python, once for each ArviZ, and with PyTorch if asked to: how many runs passed, and which this machine cannot do.
pub fn python(root: &Path, torch: bool) -> Result<(usize, Vec<&'static str>), String> {
    let (mut passed, mut skipped) = (0, Vec::new());
    for against in python::ALL.iter().chain(torch.then_some(&python::TORCH)) {
        let name = against.name;
        println!("==> {name}: pytest {}", against.tests.join(" "));
        let start = Instant::now();
        match python::run(root, against).map_err(|problem| format!("the step `{name}` failed: {problem}"))? {
            Ended::Passed => {
                println!("==> {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
                passed += 1;
            }
            Ended::Skipped(why) => {
                println!("==> {name}: skipped, since {why}");
                skipped.push(name);
            }
        }
    }
    Ok((passed, skipped))
}

fn can(root: &Path, probe: &str) -> bool {
    probe.is_empty() || command(root, probe).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// A command line of plain words.
fn command(root: &Path, line: &str) -> Command {
    let mut words = line.split_whitespace();
    let mut command = match words.next() {
        Some("cargo") | None => cargo(),
        Some(program) => Command::new(program),
    };
    command.args(words).current_dir(root);
    command
}

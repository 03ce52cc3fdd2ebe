//! Check everything, step by step, and stop at the first that fails. Tests in Python wait for other
//! processes more than they compute, so some steps are done beside them.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::cargo;
use crate::python::{self, Against, Ended};

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

/// What comes first.
const STEPS: &[Step] = &[
    Step {
        name: "format",
        ways: &[Way { probe: "cargo fmt --version", run: "cargo fmt --all --check", with: &[] }],
    },
    // Covers the tests too: what warns there is an error here.
    Step {
        name: "lints",
        ways: &[Way {
            probe: "cargo clippy --version",
            run: "cargo clippy --workspace --all-targets --locked -- -D warnings",
            with: &[],
        }],
    },
    Step {
        name: "dependencies",
        ways: &[Way { probe: "", run: "cargo xtask dependencies", with: &[] }],
    },
    // The database of advisories must be fetched: this is skipped where there is no network.
    Step {
        name: "advisories",
        ways: &[Way {
            probe: "cargo deny fetch db",
            run: "cargo deny check advisories",
            with: &[],
        }],
    },
    Step {
        name: "tests",
        ways: &[
            Way {
                probe: "cargo nextest --version",
                run: "cargo nextest run --workspace --locked",
                with: &[],
            },
            Way { probe: "", run: "cargo test --workspace --locked --tests --examples", with: &[] },
        ],
    },
];

/// What is done beside the tests in Python; what it prints comes when it has ended.
const BESIDE: &[Step] = &[
    Step {
        name: "examples in the documentation",
        ways: &[Way { probe: "", run: "cargo test --workspace --doc --locked", with: &[] }],
    },
    Step {
        name: "documentation",
        ways: &[Way {
            probe: "",
            run: "cargo doc --workspace --no-deps --locked",
            with: &[("RUSTDOCFLAGS", "-D warnings")],
        }],
    },
    Step {
        name: "browser",
        ways: &[Way { probe: "cargo xtask browser --find", run: "cargo xtask browser", with: &[] }],
    },
];

/// Run every step that this machine can run; with PyTorch only if asked to.
pub fn run(root: &Path, torch: bool) -> Result<(), String> {
    let mut done = Done::default();
    thread::scope(|scope| {
        // To install what Python needs takes waiting for a network, too: it is done beside the
        // first steps.
        scope.spawn(|| wanted(torch).for_each(|against| python::prepare(root, against)));
        STEPS.iter().try_for_each(|step| step.perform(root, &mut done, Shown::AtOnce))
    })?;
    let (beside, in_python) = thread::scope(|scope| {
        let beside = scope.spawn(|| {
            let mut done = Done::default();
            BESIDE
                .iter()
                .try_for_each(|step| step.perform(root, &mut done, Shown::AtTheEnd))
                .map(|()| done)
        });
        let in_python = python(root, torch);
        (
            beside
                .join()
                .unwrap_or_else(|_| Err("a step beside the tests in Python panicked".into())),
            in_python,
        )
    });
    let (beside, (passed, skipped)) = (beside?, in_python?);
    done.passed += beside.passed + passed;
    done.skipped.extend(beside.skipped.into_iter().chain(skipped));
    let names = if done.skipped.is_empty() {
        String::new()
    } else {
        format!(" ({})", done.skipped.join(", "))
    };
    println!("==> steps: {} passed, 0 failed, {} skipped{names}", done.passed, done.skipped.len());
    Ok(())
}

/// How many steps passed, and which this machine cannot do.
#[derive(Default)]
struct Done {
    passed: usize,
    skipped: Vec<&'static str>,
}

/// When what a step prints is shown.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    AtOnce,
    AtTheEnd,
}

impl Step {
    fn perform(&self, root: &Path, done: &mut Done, shown: Shown) -> Result<(), String> {
        let Step { name, ways } = self;
        let Some(way) = ways.iter().find(|way| can(root, way.probe)) else {
            println!("==> {name}: skipped, since `{}` fails on this machine", ways[0].probe);
            done.skipped.push(name);
            return Ok(());
        };
        let title = format!("==> {name}: {}", way.run);
        let start = Instant::now();
        let mut command = command(root, way.run);
        command.envs(way.with.iter().copied());
        let mut printed = String::new();
        let status = if shown == Shown::AtOnce {
            println!("{title}");
            command.status()
        } else {
            command.output().map(|output| {
                let parts = [&output.stdout, &output.stderr]
                    .map(|part| String::from_utf8_lossy(part).into_owned());
                let _ = write!(printed, "{title}\n{}{}", parts[0], parts[1]);
                output.status
            })
        };
        let passed =
            status.map_err(|error| format!("the step `{name}` does not start: {error}"))?.success();
        if passed {
            println!("{printed}==> {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
            done.passed += 1;
            return Ok(());
        }
        print!("{printed}");
        Err(format!("the step `{name}` failed: {}", way.run))
    }
}

/// The environments of the tests in Python.
fn wanted(torch: bool) -> impl Iterator<Item = &'static Against> {
    python::ALL.iter().chain(torch.then_some(&python::TORCH))
}

/// Run the tests in Python, once for each ArviZ, and with PyTorch if asked to: how many runs
/// passed, and which this machine cannot do.
pub fn python(root: &Path, torch: bool) -> Result<(usize, Vec<&'static str>), String> {
    let (mut passed, mut skipped) = (0, Vec::new());
    for against in wanted(torch) {
        let name = against.name;
        println!("==> {name}: pytest {}", against.tests.join(", and "));
        let start = Instant::now();
        match python::run(root, against)
            .map_err(|problem| format!("the step `{name}` failed: {problem}"))?
        {
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
    probe.is_empty()
        || command(root, probe)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
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

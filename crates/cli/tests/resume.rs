//! A run that is terminated, killed and copied goes on to the bytes of one that never stopped.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const CONFIG: &str = "[target]\nmodel = \"logistic\"\n\
    prior = { law = \"gaussian\", variance = 1.0 }\n\
    [[client]]\nname = \"north\"\nrows = [[0.3, 1.0, 1], [-1.0, 0.5, 0], [0.4, 0.1, 1]]\n\
    [[client]]\nname = \"south\"\nfile = \"south.csv\"\n\
    [sampler]\nname = \"qlsd++\"\nstep = \"auto\"\n[run]\nchains = 2\niterations = 600000\n\
    thin = 200\n";

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("resume-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run.toml"), CONFIG).unwrap();
    std::fs::write(folder.join("south.csv"), "0.5,-1,0\n-0.2,0.7,1\n").unwrap();
    folder
}

fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn succeed(folder: &Path, arguments: &[&str]) -> Output {
    let output = command(folder, arguments).output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn refuse(folder: &Path, arguments: &[&str]) -> String {
    let output = command(folder, arguments).output().unwrap();
    assert_ne!(output.status.code(), Some(0), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Start a run and wait until it has drawn more than `bytes` of draws; then send a signal.
fn interrupt(folder: &Path, arguments: &[&str], dir: &Path, more: u64, signal: &str) -> Output {
    let file = dir.join("checkpoint/chain-1.draws");
    let size = || std::fs::metadata(&file).map_or(0, |f| f.len());
    let before = size();
    let mut child: Child = command(folder, arguments).spawn().unwrap();
    let patience = Instant::now();
    while size() < before + more {
        let early = child.try_wait().unwrap();
        if early.is_some() || patience.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            panic!(
                "it was not interrupted: {}",
                String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr)
            );
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
    child.wait_with_output().unwrap()
}

/// All files of a run directory, without times.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn collect(folder: &Path, root: &Path, all: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_path_buf();
            if path.is_dir() {
                collect(&path, root, all);
            } else if !["log.txt", "report.html"].contains(&name.to_str().unwrap()) {
                let mut bytes = std::fs::read(&path).unwrap();
                if name.extension().is_some_and(|e| e == "json") {
                    let timeless = |line: &&str| {
                        !["\"created", "\"seconds", "\"sampling_time"]
                            .iter()
                            .any(|key| line.contains(key))
                    };
                    bytes = String::from_utf8(bytes)
                        .unwrap()
                        .lines()
                        .filter(timeless)
                        .collect::<Vec<_>>()
                        .join("\n")
                        .into_bytes();
                }
                all.insert(name, bytes);
            }
        }
    }
    let mut all = BTreeMap::new();
    collect(dir, dir, &mut all);
    all
}

#[test]
fn terminated_killed_copied_and_continued() {
    let folder = folder("all");
    succeed(&folder, &["run", "run.toml", "--out", "whole"]);
    let whole = contents(&folder.join("whole"));
    assert!(
        whole.len() > 10 && !whole.keys().any(|name| name.starts_with("checkpoint")),
        "{:?}",
        whole.keys()
    );

    let dir = folder.join("cut");
    let stopped = interrupt(&folder, &["run", "run.toml", "--out", "cut"], &dir, 8192, "-TERM");
    let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
    assert_eq!(stopped.status.code(), Some(130), "{said}");
    assert!(said.contains("`consilience run --resume cut` continues it"), "{said}");
    assert!(
        succeed(&folder, &["summary", "cut"]).stdout.len() > 100,
        "what was drawn can be looked at meanwhile"
    );
    let refusal = refuse(&folder, &["run", "run.toml", "--out", "cut"]);
    assert!(
        refusal.contains("cut holds an unfinished run")
            && refusal.contains("consilience run --resume cut"),
        "{refusal}"
    );

    let killed = interrupt(&folder, &["run", "--resume", "cut"], &dir, 8192, "-KILL");
    assert_eq!(killed.status.code(), None);
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    assert!(
        Command::new("cp")
            .args(["-r", "cut", "elsewhere/copy"])
            .current_dir(&folder)
            .status()
            .unwrap()
            .success()
    );
    for place in ["cut", "elsewhere/copy"] {
        succeed(&folder, &["run", "--resume", place]);
        let found = contents(&folder.join(place));
        assert_eq!(found.keys().collect::<Vec<_>>(), whole.keys().collect::<Vec<_>>(), "{place}");
        for (name, bytes) in &whole {
            assert!(found[name] == *bytes, "{place}: {} differs", name.display());
        }
    }
    let refusal = refuse(&folder, &["run", "--resume", "cut"]);
    assert!(refusal.contains("cut is finished"), "{refusal}");
}

#[test]
fn mistakes_are_named() {
    let folder = folder("mistakes");
    assert!(
        refuse(&folder, &["run", "--resume", "nowhere"])
            .contains("nowhere holds no unfinished run")
    );
    assert!(refuse(&folder, &["run", "run.toml", "--resume", "x"]).contains("cannot be used with"));
    assert!(refuse(&folder, &["run"]).contains("<CONFIG>"));
    let dir = folder.join("mine");
    interrupt(&folder, &["run", "run.toml", "--out", "mine"], &dir, 8192, "-KILL");
    assert!(refuse(&folder, &["summary", "mine"]).contains("mine holds an unfinished run"));
    std::fs::write(folder.join("south.csv"), "0.5,-1,0\n-0.2,0.8,1\n").unwrap();
    let refusal = refuse(&folder, &["run", "--resume", "mine"]);
    assert!(refusal.contains("mine was begun with another target"), "{refusal}");
}

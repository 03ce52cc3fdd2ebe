//! What the README shows works: its configs run, its commands do what they say. (Its Rust runs as a documentation test of the library.)
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience::engine::config::{Config, Source};
use consilience::engine::{draws::Sinks, plan::Plan, problem::Problem, run};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let fenced = text.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(&format!("{language}\n"))).map(str::to_owned).collect()
}

#[test]
fn configs_run() {
    let configs = blocks("toml");
    assert!(!configs.is_empty());
    for text in configs {
        let mut config = Config::parse(Source { file: "README.md".into(), folder: root(), text }).unwrap();
        config.run.iterations = 200;
        config.run.burn_in = 20;
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let outcome = run::sample(&plan, &config.run, config.seed, Sinks::Memory, &Default::default()).unwrap();
        assert!(outcome.draws.length() > 0 && outcome.draws.mean().iter().all(|x| x.is_finite()));
    }
}

/// Every `consilience` command of every shell block, in order, in a folder that has the examples, and the configs under the names that their first lines give.
#[cfg(unix)]
#[test]
fn commands_run() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    let _ = std::fs::remove_dir_all(&folder);
    for part in ["examples", "data/heart-disease", "data/titanic"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
        for file in std::fs::read_dir(root().join(part)).unwrap() {
            let file = file.unwrap();
            std::fs::copy(file.path(), folder.join(part).join(file.file_name())).unwrap();
        }
    }
    for text in [blocks("toml"), blocks("csv")].concat() {
        let name = text.lines().next().unwrap().trim_start_matches("# ");
        assert!(name.ends_with(".toml") || name.ends_with(".csv"), "a file begins with its name: {name}");
        std::fs::write(folder.join(name), &text).unwrap();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_consilience")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let all = blocks("sh").join("\n");
    let commands: Vec<&str> = all.lines().filter(|line| line.starts_with("consilience ")).collect();
    assert!(commands.len() >= 5);
    for command in commands {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", command]).current_dir(&folder).env("PATH", &path).env("CONSILIENCE_CACHE", folder.join("cache"));
        let shell = shell.output().unwrap();
        assert!(shell.status.success(), "{command}: {}", String::from_utf8_lossy(&shell.stderr));
        if let Some((_, file)) = command.split_once("> ") {
            let text = std::fs::read_to_string(folder.join(file)).unwrap();
            assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap().is_object(), "{command}");
        }
    }
    assert!(folder.join("draws.npy").exists());
}

/// What `exact` is shown to print is what it prints.
#[test]
fn the_exact_law_is_the_printed_one() {
    let example = root().join("examples/gaussian.toml");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_consilience")).arg("exact").arg(example).output().unwrap();
    assert!(blocks("text").contains(&String::from_utf8(output.stdout).unwrap()));
}

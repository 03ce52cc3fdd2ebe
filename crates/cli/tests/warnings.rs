//! The book lists every warning, and the command gives them as values.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;
use std::process::Command;

use consilience::engine::warnings::Code;
use serde_json::Value;

#[test]
fn the_book_lists_every_code_with_its_severity_and_sentence() {
    let chapter = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/warnings.md");
    let text = std::fs::read_to_string(chapter).unwrap();
    let listed: Vec<&str> = text.lines().filter(|line| line.starts_with("| `")).collect();
    let row = |code: &Code| {
        format!("| `{}` | {} | {} |", code.name(), code.severity().name(), code.says())
    };
    let expected: Vec<String> = Code::ALL.iter().map(row).collect();
    assert_eq!(listed, expected);
}

/// A config of two Gaussian sites whose first chain is its only one.
const ALONE: &str = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [0.0]\n\
    precision = [[1.0]]\n[[client]]\nmean = [3.0]\nprecision = [[2.0]]\n[sampler]\n\
    name = \"lmc\"\nstep = 0.3\n[run]\nchains = 1\niterations = 4000\n";

fn run(name: &str, text: &str) -> std::process::Output {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("warnings");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
    let command = command.args(["run", name, "--json"]).current_dir(&folder);
    command.env("CONSILIENCE_CACHE", folder.join("cache")).output().unwrap()
}

#[test]
fn programs_are_given_codes_and_numbers() {
    let done = run("alone.toml", ALONE);
    let said: Value = serde_json::from_slice(&done.stdout).unwrap();
    let warning = &said["warnings"][0];
    assert_eq!(warning["code"], "one-chain", "{said}");
    assert_eq!(warning["severity"], "warning");
    assert_eq!(warning["message"], "one chain cannot show whether chains agree");
    assert_eq!(warning["remedy"], "Run at least 4");
    assert!(warning["numbers"].is_object());
    let many =
        ALONE.replace("chains = 1", "chains = 4").replace("iterations = 4000", "iterations = 60");
    let said: Value = serde_json::from_slice(&run("short.toml", &many).stdout).unwrap();
    let codes: Vec<&str> =
        said["warnings"].as_array().unwrap().iter().map(|w| w["code"].as_str().unwrap()).collect();
    let found =
        codes.iter().position(|code| ["few-effective-draws", "chains-disagree"].contains(code));
    let numbers = &said["warnings"][found.unwrap()]["numbers"];
    assert!(numbers["effective_draws"].as_f64().unwrap() < 400.0, "{said}");
    assert_eq!(numbers["wanted"], 400.0);
}

/// The command refuses what Python refuses: nobody's minibatch is cut short in silence.
#[test]
fn a_batch_larger_than_a_site_is_refused_by_its_name() {
    let text = "[target]\nmodel = \"isotropic\"\nprior = { law = \"gaussian\", variance = 1.0 }\n\
        [[client]]\nname = \"north\"\nrows = [[0.1], [0.2], [0.3], [0.4]]\n\
        [[client]]\nname = \"south\"\nrows = [[0.5], [0.7]]\n\
        [sampler]\nname = \"sgld\"\nstep = 0.01\nbatch = BATCH\n[run]\niterations = 40\n";
    let done = run("large.toml", &text.replace("BATCH", "3"));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success());
    assert!(
        said.contains(
            "sampler.batch: a batch of 3 rows is larger than client \"south\", which has 2"
        ) && said.contains("batch = 2 or less"),
        "{said}"
    );
    assert!(run("fits.toml", &text.replace("BATCH", "2")).status.success());
    assert!(run("share.toml", &text.replace("BATCH", "0.9")).status.success());
}

//! `consilience data` lists, describes, checks, splits and shows.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use consilience::engine::data::catalogue::ENTRIES;
use serde_json::Value;

/// The command with built-in data only.
fn data(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_consilience"))
        .arg("data")
        .args(arguments)
        .env_remove("CONSILIENCE_DATA")
        .output()
        .unwrap()
}

fn succeed(arguments: &[&str]) -> String {
    let output = data(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn refuse(code: i32, arguments: &[&str], part: &str) {
    let output = data(arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(code) && error.contains(part), "{arguments:?}: {error}");
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("data-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

#[test]
fn every_data_set_is_listed_and_described() {
    let text = succeed(&["list"]);
    let value: Value = serde_json::from_str(&succeed(&["list", "--json"])).unwrap();
    assert_eq!(value.as_array().unwrap().len(), ENTRIES.len());
    for entry in ENTRIES {
        assert!(text.lines().any(|line| line.starts_with(entry.name)), "{}", entry.name);
        assert!(succeed(&["describe", entry.name]).contains(entry.licence));
    }
    let heart = succeed(&["describe", "heart-disease"]);
    assert!(
        heart.contains("class    ill: 509")
            && heart.contains("Groups: cleveland, hungarian, switzerland, va"),
        "{heart}"
    );
}

#[test]
fn every_action_has_help_with_an_example() {
    for action in ["list", "describe", "check", "split", "show"] {
        let text = succeed(&[action, "--help"]);
        assert!(text.contains(&format!("Example:\n  consilience data {action}")), "{text}");
    }
}

#[test]
fn checks_pass_or_say_what_is_missing() {
    assert!(succeed(&["check", "titanic"]).contains("ok  2201 x 5, classes 1490 711"));
    let value: Value =
        serde_json::from_str(&succeed(&["check", "breast-cancer", "--json"])).unwrap();
    assert_eq!(value[0]["counts"], serde_json::json!([357, 212]));
    refuse(1, &["check", "a9a"], "--data DIR or CONSILIENCE_DATA");
    refuse(2, &["check", "titanik"], "did you mean `titanic`?");
    refuse(1, &["check", "all", "--data", "no such folder"], "cannot be read");
}

#[test]
fn a_split_has_every_row_once_and_overwrites_nothing() {
    let out = folder("split");
    let path = out.display().to_string();
    let split =
        ["split", "titanic", "--clients", "3", "--scheme", "dirichlet(0.5)", "--out", &path];
    succeed(&split);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let names: Vec<&str> =
        files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["001-client-1.csv", "002-client-2.csv", "003-client-3.csv"]);
    let (mut rows, mut survived) = (0, 0);
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.lines().next().unwrap().ends_with(",label"));
        rows += text.lines().count() - 1;
        survived += text.lines().filter(|line| line.ends_with(",1")).count();
    }
    assert_eq!((rows, survived), (2201, 711));
    refuse(2, &split, "is not empty");
}

#[test]
fn a_deal_is_shown_as_text_json_and_svg() {
    let text = succeed(&["show", "heart-disease", "--scheme", "natural"]);
    assert!(text.contains("cleveland        303  |▅▅▄▄| 164 139"), "{text}");
    let out = folder("svg");
    std::fs::create_dir_all(&out).unwrap();
    let svg = out.join("split.svg").display().to_string();
    let arguments = [
        "show",
        "titanic",
        "--clients",
        "5",
        "--scheme",
        "power-law(1)",
        "--seed",
        "3",
        "--json",
        "--svg",
        &svg,
    ];
    let value: Value = serde_json::from_str(&succeed(&arguments)).unwrap();
    let clients = value["clients"].as_array().unwrap();
    let sum: u64 = clients
        .iter()
        .flat_map(|client| client["counts"].as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!((clients.len(), sum, value["scheme"].as_str()), (5, 2201, Some("power-law(1)")));
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(
        drawn.starts_with("<svg")
            && drawn.trim_end().ends_with("</svg>")
            && drawn.contains("client 5")
    );
    refuse(2, &["show", "titanic", "--scheme", "iid"], "how many clients");
    refuse(
        2,
        &["show", "titanic", "--clients", "3", "--scheme", "fair"],
        "there is no scheme `fair`",
    );
}

#[test]
fn a_file_of_your_own_is_dealt_too() {
    let out = folder("own");
    std::fs::create_dir_all(&out).unwrap();
    let file = out.join("mine.csv").display().to_string();
    std::fs::write(&file, "ill,age,sex\nno,41,f\nyes,63,m\nno,57,m\nyes,39,f\n").unwrap();
    let text =
        succeed(&["show", &file, "--response", "ill", "--clients", "2", "--scheme", "contiguous"]);
    assert!(text.contains("client 1        2  |▄▄▄▄| 1 1"), "{text}");
    refuse(2, &["show", &file, "--response", "il", "--clients", "2"], "did you mean `ill`?");
    refuse(
        2,
        &["show", "titanic", "--response", "x", "--clients", "2"],
        "--response goes with a file",
    );
}

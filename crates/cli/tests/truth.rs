//! `consilience truth` makes references that agree, keeps them under the target's hash, and the
//! other commands use them.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const CONFIG: &str = "seed = 3\n[target]\nmodel = \"logistic\"\n\
    prior = { law = \"gaussian\", variance = 4.0 }\n\
    [[client]]\nrows = [[0.2, 1.0, 1], [-1.1, 0.3, 0], [0.7, -0.4, 1], [-0.5, 0.1, 0]]\n\
    [[client]]\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0], [-0.9, 0.8, 1], [0.1, -0.2, 0]]\n\
    [sampler]\nname = \"lmc\"\nprecondition = true\n[run]\niterations = 2000\n\
    start = \"optimum\"\n";

/// A folder of this test's own with a config in it.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("truth-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run.toml"), CONFIG).unwrap();
    folder
}

fn consilience(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
    command
        .args(arguments)
        .current_dir(folder)
        .env("CONSILIENCE_CACHE", folder.join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn json(folder: &Path, arguments: &[&str]) -> (Value, String) {
    let output = consilience(folder, arguments);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {error}");
    (serde_json::from_slice(&output.stdout).unwrap(), error)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

const TRUTH: [&str; 7] = ["truth", "run.toml", "--json", "--chains", "2", "--draws", "800"];

#[test]
fn references_agree_are_kept_and_are_used_by_the_other_commands() {
    let folder = folder("kept");
    let (first, _) = json(&folder, &TRUTH);
    let methods: Vec<&str> = first["references"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["method"].as_str().unwrap())
        .collect();
    assert_eq!(methods, ["nuts", "mala", "lmc"]);
    assert!(first["references"].as_array().unwrap().iter().all(|r| r["kept"] == false));
    let pairs = first["differences_in_standard_errors"].as_array().unwrap();
    // 18 scores below 5.3: a false alarm once in 400,000 seeds.
    assert!(pairs.len() == 3 && pairs.iter().all(|pair| pair["agree"] == true), "{pairs:#?}");
    let (again, _) = json(&folder, &TRUTH);
    for (a, b) in
        first["references"].as_array().unwrap().iter().zip(again["references"].as_array().unwrap())
    {
        assert!(b["kept"] == true && a["mean"] == b["mean"] && a["sd"] == b["sd"]);
    }
    let (fresh, _) = json(&folder, &[&TRUTH[..], &["--fresh", "--method", "mala"]].concat());
    assert_eq!(
        (&fresh["references"][0]["mean"], &fresh["references"][0]["kept"]),
        (&first["references"][1]["mean"], &Value::Bool(false))
    );

    let (run, _) = json(&folder, &["run", "run.toml", "--json"]);
    // The same draws, summed in another order.
    for (pooled, nuts) in
        numbers(&run["pooled"]["mean"]).iter().zip(numbers(&first["references"][0]["mean"]))
    {
        assert!(
            (pooled - nuts).abs() < 1e-12,
            "a run is held against the kept reference, NUTS first: {pooled} {nuts}"
        );
    }
    let text = String::from_utf8(consilience(&folder, &["run", "run.toml"]).stdout).unwrap();
    assert!(text.contains("all rows in one place (NUTS)"), "{text}");
    let (compared, _) = json(&folder, &["compare", "run.toml", "--json"]);
    assert_eq!(compared["reference"], "pooled rows (NUTS)");
    // Another target, though it has the same names, finds nothing.
    std::fs::write(folder.join("other.toml"), CONFIG.replace("4.0", "5.0")).unwrap();
    assert_eq!(json(&folder, &["run", "other.toml", "--json"]).0["pooled"], Value::Null);
    assert!(
        json(&folder, &["compare", "other.toml", "--json"]).0["reference"]
            .as_str()
            .unwrap()
            .contains("Metropolis-adjusted")
    );
}

#[test]
fn a_damaged_file_is_named_and_made_again() {
    let folder = folder("damaged");
    let arguments = [&TRUTH[..], &["--method", "mala"]].concat();
    let (first, _) = json(&folder, &arguments);
    let file = std::fs::read_dir(folder.join("cache")).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&file).unwrap();
    let mut wrong = good.clone();
    wrong[good.len() / 2] ^= 4;
    std::fs::write(&file, &wrong).unwrap();
    let (run, complaint) = json(&folder, &["run", "run.toml", "--json"]);
    assert!(
        run["pooled"].is_null() && complaint.contains("is damaged (its checksum"),
        "{complaint}"
    );
    let (second, complaint) = json(&folder, &arguments);
    assert!(
        complaint.contains(file.to_str().unwrap()) && complaint.contains("is damaged"),
        "{complaint}"
    );
    assert_eq!(
        (&second["references"][0]["kept"], &second["references"][0]["mean"]),
        (&Value::Bool(false), &first["references"][0]["mean"])
    );
    assert_eq!(std::fs::read(&file).unwrap(), good);
}

#[test]
fn mistakes_are_named() {
    let folder = folder("mistakes");
    for (arguments, part) in [
        (["truth", "run.toml", "--method", "hmc"], "--method hmc: there is no such method"),
        (["truth", "run.toml", "--draws", "0"], "give at least 1"),
    ] {
        let output = consilience(&folder, &arguments);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(part), "{error}");
    }
    // A folder that cannot be made is a pity, and no failure.
    std::fs::write(folder.join("file"), "").unwrap();
    let (value, complaint) = json(
        &folder,
        &[
            "truth",
            "run.toml",
            "--json",
            "--method",
            "mala",
            "--draws",
            "50",
            "--cache",
            "file/cache",
        ],
    );
    assert!(complaint.contains("cannot be kept") && value["references"][0]["draws"] == 50);
}

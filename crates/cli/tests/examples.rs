//! Every config of `examples/` runs, and has the sites and the parameters that it speaks of.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Config, sites, parameters, rows held out.
const EXAMPLES: &[(&str, usize, usize, Option<u64>)] = &[
    ("arrays.toml", 4, 4, Some(20)),
    ("catalogue.toml", 5, 6, None),
    ("dealt.toml", 10, 6, Some(440)),
    ("gaussian.toml", 3, 2, None),
    ("hospitals.toml", 4, 11, None),
    ("images.toml", 6, 51, None),
    ("libsvm.toml", 2, 7, None),
    ("natural.toml", 4, 6, None),
    ("parquet.toml", 3, 4, Some(30)),
    ("synthetic.toml", 5, 15, None),
    ("toy-fa-ld.toml", 50, 2, None),
    ("toy-fald.toml", 10, 4, None),
    ("toy-qlsd.toml", 10, 5, None),
];

fn run(config: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
    command.arg("run").arg(config).args(["--iterations", "300", "--json"]).stdin(Stdio::null());
    command
        .env("CONSILIENCE_CACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-cache"))
        .env_remove("CONSILIENCE_DATA");
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        config.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_example_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut found: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.retain(|name| name.ends_with(".toml"));
    found.sort();
    assert_eq!(
        found,
        EXAMPLES.iter().map(|(name, ..)| *name).collect::<Vec<_>>(),
        "every example is expected here"
    );
    for (name, sites, parameters, held_out) in EXAMPLES {
        let value = run(&folder.join(name));
        let count = |key: &str| value[key].as_array().unwrap().len();
        assert_eq!(
            (count("clients"), count("parameters")),
            (*sites, *parameters),
            "{name}: {}",
            value["parameters"]
        );
        assert!(
            value["mean"]
                .as_array()
                .unwrap()
                .iter()
                .all(|x| x.as_f64().is_some_and(f64::is_finite)),
            "{name}"
        );
        if let Some(rows) = held_out {
            assert_eq!(value["held_out"]["rows"].as_u64(), Some(*rows), "{name}");
            assert!(
                value["held_out"]["negative_log_likelihood"].as_f64().unwrap() < 1.5,
                "{name}: {}",
                value["held_out"]
            );
        }
    }
}

//! Every config of `examples/` runs, and has the sites and the parameters that it speaks of.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;
use std::process::{Command, Stdio};

use consilience::engine::config::Config;
use consilience::engine::problem::Problem;
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

/// Their data is not kept here; what they state is read.
#[test]
fn every_net_is_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/nets");
    let files = std::fs::read_dir(&folder).unwrap();
    let mut found: Vec<String> =
        files.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, ["digits-qlsd.toml", "digits-vr-fald.toml"]);
    for name in found {
        let config = Config::load(&folder.join(&name)).unwrap();
        let model = config.target.model.of_rows().unwrap();
        assert_eq!((model.dim(784), model.classes()), (61_706, Some(10)), "{name}");
    }
}

/// Real federations: config, sites, parameters.
const REAL: &[(&str, usize, usize)] = &[
    ("heart-missing.toml", 4, 32),
    ("heart-site.toml", 4, 7),
    ("lung-cox.toml", 18, 3),
    ("lung-weibull.toml", 18, 6),
    ("party.toml", 5, 11),
    ("visits.toml", 10, 11),
];

#[test]
fn every_real_federation_has_its_sites_and_parameters() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/real");
    let files = std::fs::read_dir(&folder).unwrap();
    let names = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = names.filter(|name| name.ends_with(".toml")).collect();
    found.sort();
    assert_eq!(found, REAL.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for (name, sites, parameters) in REAL {
        let problem = Problem::new(&Config::load(&folder.join(name)).unwrap()).unwrap();
        let counts = (problem.clients.len(), problem.parameters.len());
        assert_eq!(counts, (*sites, *parameters), "{name}: {:?}", problem.parameters);
    }
}

/// Cox regression with institutions as strata: the maximum of lifelines and its standard errors
/// (`examples/real/references.py`), from which means differ by the posterior's skewness alone.
#[test]
fn lung_cancer_has_the_answer_of_lifelines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/real");
    let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
    command.arg("run").arg(folder.join("lung-cox.toml")).arg("--json").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |key: &str, k: usize| value[key][k].as_f64().unwrap();
    let lifelines =
        [("age", 0.0870, 0.0937), ("sex: 2", -0.5474, 0.1818), ("ph_ecog", 0.4277, 0.0987)];
    for (k, (name, coefficient, error)) in lifelines.iter().enumerate() {
        assert_eq!(value["parameters"][k].as_str().unwrap(), *name);
        let apart = (number("mean", k) - coefficient) / error;
        assert!(apart.abs() < 0.1, "{name}: {apart}");
        assert!((number("sd", k) / error - 1.0).abs() < 0.05, "{name}: {}", number("sd", k));
    }
}

//! What is written is read again, and what is damaged is named.

use super::*;
use consilience_core::measure::{Count, Elpd, Tally};

use crate::calibration::{Calibration, Entropies, Judged, Point, UncertainImage};
use crate::check::{Check, Compared, Fit};
use crate::data::{ColumnSpec, Federation, Schema, Table, formula};
use crate::draws::Streamed;
use crate::influence::{Influence, SiteInfluence};
use crate::loo::Loo;
use crate::models::of_comparison;
use crate::record::{SentRecord, SiteRecord};
use crate::warnings::{Code, Warning};

fn compared(name: &str) -> Compared {
    let name = name.into();
    Compared { name, observed: 0.1, replicated: 0.25, lower: -0.5, upper: 1.0 / 3.0, p: 0.002 }
}

/// A record with something in every field.
pub(crate) fn record() -> Record {
    let parameters: Vec<String> =
        ["intercept", "sex: male", "a/b", "chain"].map(str::to_owned).to_vec();
    let cells = |shift: f64| (0..12).map(|k| shift + f64::from(k) / 3.0).collect::<Vec<f64>>();
    Record {
        version: "0.1.0".into(),
        created: "2026-01-31T12:00:00Z".into(),
        config: "seed = 7\n\n[run]\nchains = 2\n".into(),
        sampler: ("lmc".into(), "says \"what\" it does".into()),
        seed: u64::MAX,
        step: 0.1 + 0.2,
        effective_draws: Some(3),
        iterations: 100,
        burn_in: 10,
        thin: 30,
        seconds: 1.0 / 3.0,
        interrupted: true,
        draws: Draws::from_chains(vec![cells(0.0), cells(100.0)], 4),
        parameters,
        target: Some(crate::record::TargetWords {
            model: "linear regression".into(),
            prior: "normal, mean 0, variance 1".into(),
        }),
        streamed: None,
        choice: None,
        bias: Some(crate::record::Bias {
            exact: false,
            mean: vec![0.01; 4],
            sd: vec![1.02; 4],
            measured: Some(crate::halved::Halved {
                step: 0.25,
                mean: vec![1.5; 4],
                mean_error: vec![0.1; 4],
                sd: vec![2.0; 4],
                sd_error: vec![0.2; 4],
                mean_bias: vec![0.02; 4],
                mean_bias_error: vec![0.003; 4],
                sd_ratio: vec![1.05; 4],
                sd_ratio_error: vec![0.01; 4],
            }),
        }),
        exchanges: (7, 100),
        statistics: vec![
            Statistic {
                name: "lp".into(),
                values: vec![vec![-1.0, f64::NEG_INFINITY, -3.0], vec![0.1, 0.2, 0.3]],
            },
            Statistic {
                name: "bits_up".into(),
                values: vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]],
            },
        ],
        sites: vec![
            SiteRecord { name: "north".into(), rows: 12, bits: (5, 6) },
            SiteRecord { name: "süd".into(), rows: 1, bits: (7, 8) },
        ],
        row_hashes: vec!["ab".into(), "cd".into()],
        sent: vec![SentRecord {
            direction: "up".into(),
            kind: "gradient".into(),
            bits: (1 << 60) + 1,
            vectors: 3,
        }],
        uncompressed: (9, 10),
        before_sampling: (11, 12),
        rows_evaluated: 13,
        notes: vec!["age is standardised".into()],
        warnings: vec![
            Warning::new(Code::OneChain, "beware").remedy("Mend it").number("chains", 1.0),
            Warning::new(Code::Other, "twice"),
        ],
        reference: Some(Draws::from_chains(vec![vec![1.0, 2.0, 3.0, 4.0]; 3], 4)),
        reference_by: Some("NUTS".into()),
        encoding: Some(encoding()),
        calibration: Some(Calibration {
            judged: Judged::HeldOut,
            classes: 3,
            draws: 6,
            sites: vec![tally(2), tally(0)],
            points: vec![Point { name: "one draw".into(), tally: tally(1) }],
            elsewhere: Some(Entropies {
                name: "noise".into(),
                here: vec![3, 0],
                there: vec![1, 4],
                auc: 0.75,
            }),
            uncertain: vec![UncertainImage {
                row: 3,
                label: 1,
                size: (1, 2),
                pixels: vec![0, 255],
                said: vec![(2, 0.5), (1, 0.25)],
            }],
        }),
        loo: Some(Loo::new(
            vec![
                (
                    "north".into(),
                    Elpd { rows: 12, sum: -7.25, squares: 0.1, seen: -6.5, by_k: [10, 1, 1] },
                ),
                ("süd".into(), Elpd { rows: 1, sum: -0.5, ..Elpd::default() }),
            ],
            6,
            "rows",
        )),
        check: Some(Check {
            prior: false,
            unit: "responses".into(),
            rows: 5,
            replicates: 1000,
            mass: 0.89,
            statistics: vec![compared("mean")],
            bins: vec![compared("0"), compared("1 to 2")],
            sites: vec![compared("north")],
            fit: Some(Fit { measure: "AUC".into(), value: 0.7, lower: 0.69, upper: 0.71 }),
            bytes: 4096,
            doubts: vec![("the mean is 2".into(), "Add columns".into())],
        }),
        influence: Some(Influence {
            draws: 6,
            sites: vec![
                SiteInfluence {
                    shift: vec![0.1, -0.2, 1.0 / 3.0, f64::INFINITY],
                    most: 3,
                    error: 0.01,
                },
                SiteInfluence {
                    shift: vec![0.0, -0.0, 4.0, -1e-300],
                    most: 2,
                    error: f64::INFINITY,
                },
            ],
        }),
    }
}

/// How words and numbers with a header of their own became numbers.
fn encoding() -> Encoding {
    let schema = Schema::new(vec![
        ColumnSpec::number("age").within(0.0, 120.0),
        ColumnSpec::codes("sex", &[("0", "f"), ("1", "m")]),
        ColumnSpec::binary("ill"),
    ]);
    let plan = formula::parse("ill == 1 ~ age + sex + site", &schema).unwrap();
    let table = |text: &str| Table::parse(text, "t.csv", &schema).unwrap();
    let sites = [("a", "age,sex,ill\n30.1,0,0\n41,1,1\n"), ("b", "age,sex,ill\n50,1,0\n,0,1\n")]
        .map(|(site, text)| (site.to_owned(), table(text)));
    let federation = Federation::new("two", &sites, &plan).unwrap();
    Encoding::by_formula(
        &schema,
        Some(vec!["age".into(), "sex".into(), "ill".into()]),
        &plan,
        federation.moments(),
        of_comparison(),
    )
}

fn tally(n: u64) -> Tally {
    let count = Count { all: 3 * n, right: n };
    Tally {
        bins: vec![(Count::default(), 0.0), (count, 0.1 + 0.2)],
        at_least: vec![(0.0, count), (0.95, Count::default())],
        total: count,
        brier: n as f64 / 3.0,
        minus_log_likelihood: f64::INFINITY,
    }
}

/// A place of this test's own, with nothing there.
fn place(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("consilience-rundir-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_is_written_is_read_again() {
    let folder = place("again");
    let many: Vec<String> = (0..300).map(|k| format!("p{k}")).collect();
    let wide =
        |chains: usize| Draws::from_chains(vec![(0..600).map(f64::from).collect(); chains], 300);
    let mut large = record();
    (large.parameters, large.draws, large.statistics, large.reference) =
        (many, wide(2), Vec::new(), Some(wide(1)));
    let mut empty = record();
    (empty.draws, empty.statistics, empty.reference) = (Draws::new(4), Vec::new(), None);
    (empty.calibration, empty.influence) = (None, None);
    empty.streamed = Some(Streamed { file: "draws.npy".into(), chains: 3, length: 1_000_000 });
    for (name, record) in [("small", record()), ("deep/large", large), ("empty", empty)] {
        let path = folder.join(name);
        write(&path, &record).unwrap();
        assert_eq!(read(&path).unwrap(), record, "{name}");
    }
    assert_eq!(names(&folder), ["deep", "empty", "small"], "nothing else is left");
    assert_eq!(
        names(&folder.join("small")),
        [
            "config.toml",
            "draws.zarr",
            "encoding.json",
            "judged.json",
            "ledger.json",
            "log.txt",
            "reference.zarr",
            "run.json"
        ]
    );
    assert_eq!(
        names(&folder.join("small/draws.zarr/posterior")),
        ["a_b", "chain", "draw", "intercept", "parameter chain", "sex: male", "zarr.json"]
    );
    let log = std::fs::read_to_string(folder.join("empty/log.txt")).unwrap();
    assert!(log.contains("3 chains of 1000000 draws"), "{log}");
    let log = std::fs::read_to_string(folder.join("small/log.txt")).unwrap();
    assert!(
        log.contains("warning: beware")
            && log.contains("2 chains of 3 draws")
            && log.contains("stopped before the end"),
        "{log}"
    );
}

#[test]
fn the_root_repeats_all_metadata_by_depth_and_name() {
    let folder = place("root");
    write(&folder.join("run"), &record()).unwrap();
    let text = std::fs::read_to_string(folder.join("run/draws.zarr/zarr.json")).unwrap();
    let root: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(root["attributes"]["inference_library"], "consilience");
    assert_eq!(root["attributes"]["config"], "{\"run\":{\"chains\":2},\"seed\":7}");
    let block = root["consolidated_metadata"]["metadata"].as_object().unwrap();
    let mut order: Vec<&str> = block.keys().map(String::as_str).collect();
    order.sort_by_key(|key| text.find(&format!("\n\"{key}\": ")).unwrap());
    assert_eq!(order[..4], ["posterior", "sample_stats", "posterior/a_b", "posterior/chain"]);
    assert_eq!(order.len(), 2 + 6 + 4);
    for key in order {
        let own: Value = serde_json::from_str(
            &std::fs::read_to_string(folder.join("run/draws.zarr").join(key).join("zarr.json"))
                .unwrap(),
        )
        .unwrap();
        let mut repeated = block[key].clone();
        if repeated["node_type"] == "group" {
            let empty = repeated.as_object_mut().unwrap().remove("consolidated_metadata").unwrap();
            assert_eq!(empty["metadata"], json!({}));
        }
        assert_eq!(own, repeated, "{key}");
    }
}

#[test]
fn nothing_is_overwritten() {
    let folder = place("over");
    let (run, file, empty) = (folder.join("run"), folder.join("file"), folder.join("empty"));
    write(&run, &record()).unwrap();
    std::fs::write(&file, "mine").unwrap();
    std::fs::create_dir(&empty).unwrap();
    let other = Record { seed: 1, ..record() };
    for taken in [&run, &file] {
        let error = write(taken, &other).unwrap_err();
        assert!(matches!(&error, RunDirError::Exists { path } if path == taken), "{error}");
        assert!(error.to_string().contains("nothing was overwritten"));
    }
    assert_eq!(
        (read(&run).unwrap(), std::fs::read_to_string(&file).unwrap()),
        (record(), "mine".into())
    );
    write(&empty, &other).unwrap();
    assert_eq!(read(&empty).unwrap(), other);
}

#[test]
fn a_failure_leaves_nothing_behind() {
    let folder = place("fails");
    // There is a file of that name already where this statistic's folder should be.
    let broken = Statistic { name: "zarr.json".into(), values: vec![vec![1.0; 3]; 2] };
    let error =
        write(&folder.join("run"), &Record { statistics: vec![broken], ..record() }).unwrap_err();
    assert!(error.to_string().contains("zarr.json"), "{error}");
    assert_eq!(names(&folder), Vec::<String>::new());
}

/// Whoever publishes a run and is stopped begins again: with what the first left half done, or
/// after it was done. The run of another name is not touched.
#[test]
fn publishing_twice_is_publishing_once() {
    let folder = place("published");
    let path = folder.join("run");
    let publish =
        |name: &str, says: &str| publish(&path, &record(), &[("statement.txt", says.into())], name);
    let half = folder.join(".run.first.tmp");
    std::fs::create_dir_all(half.join("draws.zarr")).unwrap();
    std::fs::write(half.join("half"), "of it").unwrap();
    publish("first", "once").unwrap();
    let kept = || std::fs::read_to_string(path.join("statement.txt")).unwrap();
    assert!(read(&path).is_ok() && is_published(&path, "first") && !is_published(&path, "fir"));
    assert!(!path.join("half").exists(), "what was left half done is gone");
    assert_eq!(names(&folder), ["run"], "nothing lies beside it");
    publish("first", "twice").unwrap();
    assert_eq!(kept(), "once");
    let error = publish("second", "another").unwrap_err();
    assert!(matches!(error, RunDirError::Exists { .. }), "{error}");
    assert_eq!(kept(), "once");
}

#[test]
fn what_is_damaged_is_named() {
    let folder = place("damaged");
    assert!(matches!(read(&folder), Err(RunDirError::NotARun { .. })));
    type Damage = fn(&str) -> String;
    let cases: [(&str, Damage, [&str; 2]); 7] = [
        ("run.json", |t| t.replace("\"format\": 1", "\"format\": 2"), ["run.json", "layout 2"]),
        ("run.json", |t| t.replace("\"seed\"", "\"sead\""), ["run.json", "seed"]),
        ("ledger.json", |t| t[..t.len() / 2].to_owned(), ["ledger.json", "EOF"]),
        (
            "draws.zarr/posterior/intercept/zarr.json",
            |t| t.replace("float64", "float32"),
            ["intercept", "data_type"],
        ),
        (
            "draws.zarr/posterior/sex: male/zarr.json",
            |t| t.replace(" 3,", " 3,\n").replace("    3\n", "    4\n"),
            ["sex: male", "[2, 4]"],
        ),
        ("draws.zarr/sample_stats/lp/zarr.json", |t| t.replace("gzip", "zstd"), ["lp", "codecs"]),
        ("draws.zarr/posterior/a_b/c/0/0", |_| "no gzip at all".into(), ["a_b", "gzip"]),
    ];
    for (k, (file, damage, words)) in cases.into_iter().enumerate() {
        let path = folder.join(k.to_string());
        write(&path, &record()).unwrap();
        let target = path.join(file);
        let before = std::fs::read(&target).unwrap();
        let after = damage(&String::from_utf8_lossy(&before)).into_bytes();
        assert_ne!(before, after, "{file}");
        std::fs::write(&target, after).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{file}: {error}");
    }
}

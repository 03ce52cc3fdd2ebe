//! Data of one's own: every format states the same target, every way of dealing keeps every row,
//! every mistake is named with its place.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::reference::digest;

/// A folder of this test's own, removed when it goes out of scope.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("consilience-own-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn with(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self
    }

    fn config(&self, text: &str) -> Result<Config, ConfigError> {
        let text = format!("{text}\n[sampler]\nname = \"lmc\"\nstep = 0.001\n");
        Config::parse(Source { file: "run.toml".into(), folder: self.0.clone(), text })
    }

    fn problem(&self, text: &str) -> Result<Problem, ConfigError> {
        Problem::new(&self.config(text)?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const X: [[f64; 3]; 8] = [
    [1.0, 0.0, -2.0],
    [0.5, 3.0, 0.0],
    [0.0, -1.0, 4.0],
    [2.0, 0.25, 1.0],
    [-1.0, 2.0, 0.0],
    [0.0, 0.0, 3.0],
    [1.5, -2.0, 1.0],
    [-0.5, 1.0, -1.0],
];
const Y: [f64; 8] = [0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0];

fn npy(shape: &str, cells: impl Iterator<Item = f64>) -> Vec<u8> {
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n");
    let body: Vec<u8> = cells.flat_map(f64::to_le_bytes).collect();
    [b"\x93NUMPY\x01\0", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &body]
        .concat()
}

fn rows() -> impl Iterator<Item = ([f64; 3], f64)> {
    X.into_iter().zip(Y)
}

/// The same rows in several formats, each a file's name and its bytes.
fn formats() -> Vec<(&'static str, Vec<u8>)> {
    let csv: String = rows().map(|(x, y)| format!("{},{},{},{y}\n", x[0], x[1], x[2])).collect();
    let svm = |label: fn(f64) -> f64| -> String {
        let pairs = |x: [f64; 3]| {
            (0..3)
                .filter(|k| x[*k] != 0.0)
                .map(|k| format!(" {}:{}", k + 1, x[k]))
                .collect::<String>()
        };
        rows().map(|(x, y)| format!("{}{}\n", label(y), pairs(x))).collect()
    };
    let joined = npy("(8, 4)", rows().flat_map(|(x, y)| [x[0], x[1], x[2], y]));
    vec![
        ("a.csv", format!("x1,x2,x3,y\n{csv}").into_bytes()),
        ("b.txt", format!("x1;x2;x3;y\n{}", csv.replace(',', ";")).into_bytes()),
        ("c.npy", joined),
        ("d.svm", svm(|y| y).into_bytes()),
        ("e.svm", svm(|y| 2.0 * y - 1.0).into_bytes()),
    ]
}

#[test]
fn every_format_states_the_same_target() {
    let folder = formats()
        .into_iter()
        .fold(Folder::new("formats"), |folder, (name, bytes)| folder.with(name, bytes));
    let at = [0.3, -0.2, 0.5, 0.1];
    let mut first: Option<(String, f64)> = None;
    for (name, _) in formats() {
        let text = format!(
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{name}\"\nclients = 2\n\
             scheme = \"contiguous\"\nscale = \"none\""
        );
        let problem = folder.problem(&text).unwrap();
        assert_eq!(
            (problem.parameters.join(" "), problem.clients.len()),
            ("intercept x1 x2 x3".into(), 2),
            "{name}"
        );
        let (hash, value) = (digest(&problem.target), problem.target.value(&at));
        let (expected_hash, expected) = first.get_or_insert((hash.clone(), value));
        assert!((value - *expected).abs() < 1e-12, "{name}: {value} {expected}");
        if !name.ends_with(".svm") {
            assert_eq!(&hash, expected_hash, "{name}"); // sparse rows are summed in another order
        }
    }
    // -1 and 1 are found, or stated; stated the other way round they mean the opposite.
    let labelled = |labels: &str| {
        let text = format!(
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"e.svm\"\nlabels = {labels}\n\
             clients = 2\nscheme = \"contiguous\"\nscale = \"none\""
        );
        folder.problem(&text).unwrap().target.value(&at)
    };
    let (same, opposite) = (labelled("[-1, 1]"), labelled("[1, -1]"));
    let expected = first.unwrap().1;
    assert!((same - expected).abs() < 1e-12 && (opposite - expected).abs() > 0.1);
}

#[test]
fn one_file_for_each_site_is_the_whole_file_and_columns_are_scaled_together() {
    let csv = |rows: std::ops::Range<usize>| -> String {
        let line = |k: usize| format!("{},{},{},{}\n", X[k][0], X[k][1], X[k][2], Y[k]);
        format!("x1,x2,x3,y\n{}", rows.map(line).collect::<String>())
    };
    let folder = Folder::new("sites")
        .with("all.csv", csv(0..8))
        .with("north.csv", csv(0..4))
        .with("south.csv", csv(4..8));
    let one = folder
        .problem(
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"all.csv\"\n\
        clients = 2\nscheme = \"contiguous\"",
        )
        .unwrap();
    let two = folder
        .problem(
            "[target]\nmodel = \"logistic\"\n[data]\nscale = \"max\"\n[[client]]\n\
             file = \"north.csv\"\n[[client]]\nfile = \"south.csv\"",
        )
        .unwrap();
    assert_eq!(digest(&one.target), digest(&two.target));
    assert_eq!(
        (two.clients.join(" "), two.moments_bits),
        ("north south".into(), (2 * 3 * 64, 2 * 3 * 64))
    );
    // A formula over both has the same meaning as over one, and columns of zeros and ones at one
    // site alone are numbers.
    let formula = "[target]\nformula = \"y == 1 ~ x1 + x2\"";
    let dealt = folder
        .problem(&format!(
            "{formula}\n[data]\nfile = \"all.csv\"\nclients = 2\nscheme = \"contiguous\""
        ))
        .unwrap();
    let sites = folder
        .problem(&format!(
            "{formula}\n[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \"south.csv\""
        ))
        .unwrap();
    assert_eq!(digest(&dealt.target), digest(&sites.target));
    assert_eq!(sites.parameters, ["intercept", "x1", "x2"]);
    let folder = folder.with("west.csv", "x1,x2,x3,y\n0,1,1,0\n1,0,2,1\n");
    let three = folder
        .problem(&format!(
            "{formula}\n[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \"west.csv\""
        ))
        .unwrap();
    assert_eq!(three.parameters, ["intercept", "x1", "x2"]);
}

#[test]
fn binary_formats_are_read_with_their_labels() {
    let images =
        [vec![0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2], (0..8).map(|k| k * 30).collect()]
            .concat();
    let cifar: Vec<u8> = (0..4u8)
        .flat_map(|k| {
            std::iter::once(k % 2).chain((0..3072).map(move |j| (j as u8).wrapping_mul(k)))
        })
        .collect();
    let numbers: Vec<u8> =
        (0..10i16).flat_map(|c| (0..4).flat_map(move |r| (c * 7 + r).to_le_bytes())).collect();
    let covtype = [numbers, vec![1, 2, 3, 4], vec![1, 40, 3, 4], vec![1, 2, 1, 2]].concat();
    let folder = Folder::new("binary")
        .with("train-images-idx3-ubyte", images)
        .with("train-labels-idx1-ubyte", [0, 0, 8, 1, 0, 0, 0, 4, 0, 1, 1, 0])
        .with("batch.bin", cifar)
        .with("forest.cols", covtype);
    for (file, columns) in [
        ("file = \"train-images-idx3-ubyte\"\nlabel_file = \"train-labels-idx1-ubyte\"", 2),
        ("file = \"batch.bin\"", 3072),
        ("file = \"forest.cols\"", 54),
    ] {
        let problem = folder
            .problem(&format!(
                "[target]\nmodel = \"logistic\"\nintercept = false\n[data]\n{file}\nclients = 2"
            ))
            .unwrap();
        assert_eq!(problem.parameters.len(), columns, "{file}");
        assert_eq!(problem.target.clients.iter().map(|client| client.rows()).sum::<usize>(), 4);
        let softmax =
            format!("[target]\nmodel = \"softmax\"\nclasses = 2\n[data]\n{file}\nclients = 2");
        assert_eq!(folder.problem(&softmax).unwrap().parameters.len(), 2 * (columns + 1));
    }
    assert!(
        folder
            .problem(
                "[target]\nmodel = \"logistic\"\n[data]\nfile = \"train-images-idx3-ubyte\"\n\
                clients = 2"
            )
            .unwrap_err()
            .field
            .contains("label_file")
    );
}

#[test]
fn rows_held_out_are_learnt_from_nowhere() {
    let csv: String =
        (0..40).map(|k| format!("{}.5,{},{}\n", k, ["a", "b", "c"][k % 3], k % 2)).collect();
    let folder = Folder::new("held").with("all.csv", format!("x,site,y\n{csv}"));
    for (target, scheme, sites) in [
        ("model = \"logistic\"", "scheme = \"natural(site)\"", "a b c"),
        ("model = \"logistic\"", "clients = 2\nscheme = \"dirichlet(1)\"", "client 1 client 2"),
        ("formula = \"y == 1 ~ x\"", "scheme = \"natural(site)\"", "a b c"),
        (
            "model = \"linear\"\nnoise_variance = 0.3",
            "clients = 2\nscheme = \"power-law(1)\"",
            "client 1 client 2",
        ),
    ] {
        let text = |test: &str| {
            format!(
                "[target]\n{target}\n[data]\nfile = \"all.csv\"\nresponse = \"y\"\n{scheme}\n{test}"
            )
            .replace(if target.starts_with("formula") { "response = \"y\"\n" } else { "\u{0}" }, "")
        };
        let whole = folder.problem(&text("")).unwrap();
        let held = folder.problem(&text("test = 0.25")).unwrap();
        let count = |problem: &Problem| {
            problem.target.clients.iter().map(|client| client.rows()).sum::<usize>()
        };
        let test = held.held_out.as_ref().unwrap();
        assert_eq!(
            (count(&whole), count(&held) + test.labels.len()),
            (40, 40),
            "{target} {scheme}"
        );
        assert!((9..=11).contains(&test.labels.len()));
        assert_eq!((whole.clients.join(" "), whole.held_out.is_none()), (sites.into(), true));
        assert!(
            !whole
                .parameters
                .iter()
                .any(|name| scheme.contains("natural") && name.contains("site")),
            "a column that deals is no feature"
        );
        // The seed of the data may be fixed whatever the seed of the chains.
        let seeded = |seed: u64| {
            digest(
                &folder
                    .problem(&format!("seed = {seed}\n{}", text("test = 0.25\nseed = 9")))
                    .unwrap()
                    .target,
            )
        };
        assert_eq!(seeded(1), seeded(2));
    }
}

#[test]
fn generated_data_has_the_sizes_that_are_asked_for() {
    let folder = Folder::new("generated");
    for (data, clients, parameters) in [
        ("generate = \"synthetic(1, 1)\"", 30, 610),
        ("generate = \"qlsd-toy\"", 20, 50),
        ("generate = \"fald-toy\"", 100, 20),
        ("generate = \"fa-ld-toy(10)\"", 50, 2),
        ("generate = \"fald-toy\"\nclients = 3\ncolumns = 4", 3, 4),
    ] {
        let problem = folder.problem(&format!("[data]\n{data}")).unwrap();
        assert_eq!(
            (problem.clients.len(), problem.parameters.len()),
            (clients, parameters),
            "{data}"
        );
    }
    let config =
        folder.config("[data]\ngenerate = \"fald-toy\"\nclients = 3\ncolumns = 2").unwrap();
    let problem = Problem::new(&config).unwrap();
    assert!(
        consilience_core::sampler::exact::posterior(&problem.target).is_ok(),
        "the toys' laws are known exactly"
    );
    assert!(Plan::new(&config, &problem).is_ok());
}

/// What is written where, and a part of what must be said; `{}` in a config is the file.
#[test]
fn mistakes_are_named_with_file_and_place() {
    let logistic = "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"\nclients = 2";
    let softmax = "[target]\nmodel = \"softmax\"\nclasses = 3\n[data]\nfile = \"{}\"\nclients = 2";
    let formula = "[target]\nformula = \"y == 1 ~ x\"\n[data]\nfile = \"{}\"\nclients = 2";
    let cases: &[(&str, &[u8], &str, &[&str])] = &[
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,7\n4,1\n",
            logistic,
            &["a.csv", "row 3", "label 7 is out of range", "0, 1"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,5\n3,5\n4,0\n",
            softmax,
            &["2 labels for 3 classes", "data.labels"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n?,1\n3,1\n",
            logistic,
            &["a.csv", "line 3", "column `x`", "missing", "formula"],
        ),
        ("a.csv", b"x,y\n1,0\n2,\n3,1\n", formula, &["a.csv", "line 3", "column `y`", "missing"]),
        ("a.csv", b"x,y\n1,0\n2,1,5\n", logistic, &["line 3", "3 fields where 2"]),
        ("a.csv", b"x,y\n", logistic, &["a.csv", "no rows"]),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,1\n",
            "[target]\nformula = \"y == 1 ~ z\"\n[data]\nfile = \"{}\"\nclients = 2",
            &["`z`", "not a column", "x, y"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"\nresponse = \"yy\"\nclients = 2",
            &["a.csv", "no column `yy`", "did you mean `y`"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"\nscheme = \"natural(site)\"",
            &["a.csv", "no column `site`"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"\nclients = 9",
            &["3 rows cannot be dealt to 9 clients"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"\nclients = 2\ntest = 0.01",
            &["0.01 of every site's rows"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n3,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"",
            &["data.clients", "not set"],
        ),
        (
            "a.csv",
            b"x,y\n1,a\n2,b\n3,c\n",
            logistic,
            &["3 different labels (a, b, c) for 2 classes"],
        ),
        (
            "a.csv",
            b"x,y\n1,a\n2,b\n3,c\n",
            "[target]\nmodel = \"linear\"\nnoise_variance = 2.0\n[data]\nfile = \"{}\"\n\
             clients = 2",
            &["the response `a` is no number"],
        ),
        ("a.csv", b"x,y\n1,\xff\n", logistic, &["a.csv", "line 2", "UTF-8"]),
        ("a.svm", b"1 1:2\n0 2:x\n", logistic, &["a.svm", "line 2", "`2:x`"]),
        ("a.svm", b"1 1:2\n0 2:1\n", formula, &["data.file", "names", "CSV or Parquet"]),
        ("a.npy", b"\x93NUMPY\x01", logistic, &["a.npy", "bytes where"]),
        ("a.npz", b"PK\x03\x04", logistic, &["a.npz", "directory"]),
        ("a.parquet", b"PAR1PAR1PAR1", logistic, &["a.parquet", "footer is longer"]),
        ("a.csv.gz", b"\x1f\x8b\x08", logistic, &["a.csv.gz", "gz data is damaged"]),
        ("a.doc", b"x", logistic, &["data.file", "the ending .doc", ".parquet"]),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"none.csv\"\nclients = 2",
            &["none.csv", "cannot be read"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n",
            "[data]\ngenerate = \"syntetic(1, 1)\"",
            &["data.generate", "did you mean `synthetic`"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n",
            "[target]\nmodel = \"gaussian\"\n[data]\nfile = \"{}\"\nclients = 2",
            &["target.model", "logistic"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nfile = \"{}\"\nclients = 2\n[[client]]\n\
             file = \"{}\"",
            &["client", "remove either"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nscale = \"max\"\n[[client]]\nfile = \"{}\"\n\
             [[client]]\nname = \"empty\"\nfile = \"empty.csv\"",
            &["empty.csv", "no rows"],
        ),
        (
            "a.csv",
            b"x,y\n1,0\n2,1\n",
            "[target]\nmodel = \"logistic\"\n[data]\nscale = \"max\"\n[[client]]\nfile = \"{}\"\n\
             [[client]]\nname = \"other\"\nfile = \"other.csv\"",
            &["\"other\"", "columns are z, those of client \"a\" x"],
        ),
    ];
    for (name, bytes, config, parts) in cases {
        let folder = Folder::new("mistakes")
            .with(name, bytes)
            .with("empty.csv", "x,y\n")
            .with("other.csv", "z,y\n1,0\n");
        let error =
            folder.problem(&config.replace("{}", name)).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.starts_with("run.toml, line ") && parts.iter().all(|part| error.contains(part)),
            "{name}, {config}: {error}"
        );
    }
}

/// A config as resolved names its files in full.
#[test]
fn a_resolved_config_can_be_run_from_elsewhere() {
    let folder = Folder::new("resolved").with("a.csv", "x,y\n1,0\n2,1\n3,0\n");
    let config = folder
        .config("[target]\nmodel = \"logistic\"\n[data]\nfile = \"a.csv\"\nclients = 2")
        .unwrap();
    let problem = Problem::new(&config).unwrap();
    let text = config.resolved(&Plan::new(&config, &problem).unwrap());
    let again =
        Config::parse(Source { file: "again".into(), folder: Path::new("elsewhere").into(), text })
            .unwrap();
    assert_eq!(digest(&Problem::new(&again).unwrap().target), digest(&problem.target));
}

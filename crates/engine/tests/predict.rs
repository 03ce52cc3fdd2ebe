//! A kept run predicts raw rows as the model saw them: the coding is part of the run.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_engine::config::{Config, Source};
use consilience_engine::data::{ColumnSpec, Federation, Schema, Table, formula};
use consilience_engine::draws::Sinks;
use consilience_engine::encoding::Encoding;
use consilience_engine::models::of_comparison;
use consilience_engine::plan::Plan;
use consilience_engine::predict::{PredictError, Predictor, Rows};
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::{run, rundir};

/// A folder of this test's own, removed when it goes out of scope.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("consilience-predict-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }

    /// A short run of this target, kept and read again.
    fn kept(&self, target: &str) -> (Problem, Record) {
        let text = format!(
            "seed = 2\n{target}\n[sampler]\nname = \"lmc\"\nstep = \"auto\"\n[run]\n\
             iterations = 60\nchains = 2\n"
        );
        let config =
            Config::parse(Source { file: "run.toml".into(), folder: self.0.clone(), text })
                .unwrap();
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let outcome =
            run::sample(&plan, &plan.length, config.seed, Sinks::Memory, &Default::default())
                .unwrap();
        let made = Circumstances {
            version: "0".into(),
            created: "2026-01-31T12:00:00Z".into(),
            seconds: 0.0,
        };
        let record = Record::new(made, &config, &problem, &plan, outcome, None);
        let path = self.0.join("kept");
        let _ = std::fs::remove_dir_all(&path);
        rundir::write(&path, &record).unwrap();
        let again = rundir::read(&path).unwrap();
        assert_eq!(again.encoding, record.encoding);
        (problem, again)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn repository(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)
}

/// The mean over the draws of the probability of every label, row by row, from the rows that a
/// client learns from.
fn learnt(problem: &Problem, record: &Record, client: usize) -> Vec<f64> {
    let client = &problem.target.clients[client];
    let classifier = client.classifier().unwrap();
    let mut all = vec![0.0; client.rows() * classifier.classes()];
    let draws: Vec<&[f64]> = record.draws.rows().collect();
    draws
        .iter()
        .for_each(|draw| classifier.add_probabilities(draw, 1.0 / draws.len() as f64, &mut all));
    // Two labels are predicted by the probability of the second.
    if classifier.classes() == 2 { all.chunks(2).map(|pair| pair[1]).collect() } else { all }
}

/// The labels of all clients' rows.
fn labels(problem: &Problem) -> Vec<usize> {
    let of = |k: usize| {
        let client = &problem.target.clients[k];
        (0..client.rows()).map(|row| client.classifier().unwrap().label(row)).collect::<Vec<_>>()
    };
    (0..problem.target.clients.len()).flat_map(of).collect()
}

fn means(predictor: &Predictor<'_>, rows: &Rows) -> Vec<f64> {
    predictor.predict(rows, 0.89).iter().flatten().map(|prediction| prediction.mean).collect()
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let most = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(most < 1e-12, "{most}");
    let spread = expected.iter().copied().fold(f64::MIN, f64::max)
        - expected.iter().copied().fold(f64::MAX, f64::min);
    assert!(spread > 0.1, "rows must differ for this to mean something: {spread}");
}

#[track_caller]
fn refused(record: &Record, path: &Path, site: Option<&str>, part: &str) {
    let error = Predictor::new(record).unwrap().read(path, site).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

const HOSPITALS: [&str; 4] = ["cleveland", "hungarian", "switzerland", "va"];
const HEADER: &str = "age,sex,cp,trestbps,chol,fbs,restecg,thalach,exang,oldpeak,slope,ca,thal,num";

fn hospital(site: &str) -> PathBuf {
    repository(&format!("data/heart-disease/processed.{site}.data"))
}

/// Words, codes, blanks and zeros that mean "missing", site effects and the missing header line of
/// the built-in data.
#[test]
fn the_built_in_data_is_predicted_as_it_was_learnt() {
    let folder = Folder::new("heart");
    let (problem, record) = folder.kept("[data]\nbuiltin = \"heart-disease\"");
    let predictor = Predictor::new(&record).unwrap();
    let mut all = format!("site,{HEADER}\n");
    let mut expected = Vec::new();
    for (k, site) in HOSPITALS.iter().enumerate() {
        let rows = predictor.read(&hospital(site), Some(site)).unwrap();
        let learnt = learnt(&problem, &record, k);
        assert_close(&means(&predictor, &rows), &learnt);
        assert_eq!(rows.labels.len(), learnt.len());
        expected.extend(learnt);
        std::fs::read_to_string(hospital(site))
            .unwrap()
            .lines()
            .for_each(|line| all += &format!("{site},{line}\n"));
    }
    // The same rows in one file, with a header line and a column of sites.
    let rows = predictor.read(&folder.file("all.csv", &all), None).unwrap();
    assert_close(&means(&predictor, &rows), &expected);
    assert!(
        rows.notes
            .iter()
            .any(|note| note.starts_with("cholesterol: 202 of 920 values are missing")),
        "{:?}",
        rows.notes
    );
    let scores = predictor.score(&rows).unwrap().unwrap();
    assert!(scores.rows == 920 && scores.accuracy.unwrap() > 0.75, "{scores:?}");
    // Without the response, which is last, and without a header line.
    let cut = |text: String| {
        text.lines()
            .map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n")
            .collect::<String>()
    };
    let unlabelled = folder.file("cut.csv", &cut(std::fs::read_to_string(hospital("va")).unwrap()));
    let rows = predictor.read(&unlabelled, Some("va")).unwrap();
    assert_close(&means(&predictor, &rows), &learnt(&problem, &record, 3));
    assert_eq!((rows.labels.len(), predictor.score(&rows).unwrap()), (0, None));

    refused(&record, &unlabelled, None, "the rows do not say theirs: add a column `site`");
    refused(
        &record,
        &unlabelled,
        Some("vaa"),
        "there is no effect of a site `vaa`: did you mean `va`?",
    );
    let strange = folder.file("strange.csv", &all.replacen("\nhungarian,", "\nbudapest,", 1));
    refused(
        &record,
        &strange,
        None,
        "strange.csv, line 305: there is no effect of a site `budapest`",
    );
    refused(
        &record,
        &folder.file("code.csv", "63,1,9,145,233,1,2,150,0,2.3,3,0,6,0\n"),
        Some("va"),
        "line 1, column `cp`: `9` is not one of",
    );
    let short = folder.file("short.csv", "63,1,1,145\n");
    refused(&record, &short, Some("va"), "short.csv, line 1: 4 fields where 14 are expected");
    // Numbers on the model's scale, as older versions wanted them, have other columns.
    let coded = folder.file(
        "coded.csv",
        &format!("{}\n{}\n", record.parameters[1..].join(","), vec!["0.5"; 21].join(",")),
    );
    assert!(Predictor::new(&record).unwrap().read(&coded, Some("va")).is_err());
}

#[test]
fn a_formula_on_files_is_applied_to_new_rows() {
    let folder = Folder::new("formula");
    let names: Vec<String> = HEADER.split(',').map(|name| format!("\"{name}\"")).collect();
    let clients: Vec<String> = HOSPITALS
        .iter()
        .map(|site| {
            format!("[[client]]\nname = \"{site}\"\nfile = '{}'\n", hospital(site).display())
        })
        .collect();
    let target = format!(
        "[target]\nformula = \"num > 0 ~ age + C(sex) + C(cp) + trestbps + thalach + site\"\n\
         [data]\nheader = [{}]\n{}",
        names.join(","),
        clients.concat()
    );
    let (problem, record) = folder.kept(&target);
    let predictor = Predictor::new(&record).unwrap();
    for (k, site) in HOSPITALS.iter().enumerate() {
        let rows = predictor.read(&hospital(site), Some(site)).unwrap();
        assert_close(&means(&predictor, &rows), &learnt(&problem, &record, k));
    }
    // The same rows under a header line, in another order, with all the marks of what is missing.
    let with = |mark: &str| {
        let text = std::fs::read_to_string(hospital("va")).unwrap().replace('?', mark);
        let row = |line: &str| line.split(',').rev().skip(1).collect::<Vec<_>>().join(",") + "\n";
        std::iter::once(HEADER).chain(text.lines()).map(row).collect::<String>()
    };
    for mark in ["", "NA", "?"] {
        let rows = predictor.read(&folder.file("turned.csv", &with(mark)), Some("va")).unwrap();
        assert_close(&means(&predictor, &rows), &learnt(&problem, &record, 3));
    }
    refused(
        &record,
        &folder.file("none.csv", &with("").replace("thalach", "rate")),
        Some("va"),
        "line 1: there is no column `thalach`",
    );
    let level = with("").replacen(",4,1,6", ",7,1,6", 1);
    assert_ne!(level, with(""));
    refused(
        &record,
        &folder.file("level.csv", &level),
        Some("va"),
        "column `cp`: no site has the level `7`: the levels are 1, 2, 3, 4",
    );
}

/// One file that is dealt: words, zeros and ones, means of the rows that are learnt from, sites
/// from a column.
#[test]
fn dealt_files_are_predicted_by_the_levels_and_sites_of_the_run() {
    let folder = Folder::new("dealt");
    let titanic = repository("data/titanic/titanic.csv");
    let (problem, record) = folder.kept(&format!(
        "[target]\nformula = \"survived == Yes ~ age + sex + keel_age + site\"\n[data]\n\
         file = '{}'\nscheme = \"natural(class)\"",
        titanic.display()
    ));
    let predictor = Predictor::new(&record).unwrap();
    let found = means(&predictor, &predictor.read(&titanic, None).unwrap());
    // Rows are dealt by class, in their order.
    let text = std::fs::read_to_string(&titanic).unwrap();
    let classes: Vec<&str> =
        text.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    for (k, site) in problem.clients.iter().enumerate() {
        let of_site: Vec<f64> = classes
            .iter()
            .zip(&found)
            .filter(|(class, _)| *class == site)
            .map(|(_, p)| *p)
            .collect();
        let expected = learnt(&problem, &record, k);
        let most = of_site.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(of_site.len() == expected.len() && most < 1e-12, "{site}: {most}");
    }
    let level =
        folder.file("level.csv", "sex,age,class,keel_age\nMale,Adult,1st,0\nMale,Adlt,1st,0\n");
    refused(
        &record,
        &level,
        None,
        "level.csv, line 3, column `age`: no site has the level `Adlt`: did you mean `Adult`? the \
         levels are",
    );
    assert_eq!(predictor.encoding().unwrap().explained().unwrap(), "survived == Yes");
}

/// Columns without a formula are divided by their greatest value, and words are coded: both are
/// applied to new rows.
#[test]
fn scaled_columns_and_words_are_predicted_from_raw_rows() {
    let folder = Folder::new("scaled");
    let wdbc = repository("data/breast-cancer/wdbc.csv");
    let dealt = |file: &Path, response: &str| {
        let file = file.display();
        format!(
            "[target]\nmodel = \"logistic\"\n[data]\nfile = '{file}'\nresponse = \"{response}\"\n\
             clients = 2\nscheme = \"contiguous\""
        )
    };
    let both = |problem: &Problem, record: &Record| {
        [learnt(problem, record, 0), learnt(problem, record, 1)].concat()
    };
    for (file, response) in
        [(&wdbc, "benign"), (&repository("data/titanic/titanic.csv"), "survived")]
    {
        let (problem, record) = folder.kept(&dealt(file, response));
        let predictor = Predictor::new(&record).unwrap();
        let rows = predictor.read(file, None).unwrap();
        assert_close(&means(&predictor, &rows), &both(&problem, &record));
        assert_eq!(
            rows.labels.iter().map(|(_, label)| *label as usize).collect::<Vec<_>>(),
            labels(&problem)
        );
        assert_eq!(predictor.score(&rows).unwrap().unwrap().rows, rows.labels.len());
    }
    let (_, record) = folder.kept(&dealt(&wdbc, "benign"));
    let text = std::fs::read_to_string(&wdbc).unwrap();
    refused(
        &record,
        &folder.file("gap.csv", &text.replacen("17.99,", ",", 1)),
        None,
        "line 2, column `mean_radius`: the value is missing",
    );
    refused(&record, &wdbc, Some("part 1"), "no term for sites");
    // Data sets of the catalogue, encoded and divided.
    for (name, file) in
        [("breast-cancer", wdbc), ("titanic", repository("data/titanic/titanic.csv"))]
    {
        let (problem, record) = folder
            .kept(&format!("[data]\nname = \"{name}\"\nclients = 2\nscheme = \"contiguous\""));
        let predictor = Predictor::new(&record).unwrap();
        let rows = predictor.read(&file, None).unwrap();
        assert_close(&means(&predictor, &rows), &both(&problem, &record));
        assert_eq!(
            rows.labels.iter().map(|(_, label)| *label as usize).collect::<Vec<_>>(),
            labels(&problem)
        );
    }
    // Softmax on generated numbers of many columns, by their names.
    let (_, record) = folder.kept(
        "[data]\ngenerate = \"synthetic(1, 1)\"\nclients = 3\ncolumns = 4\n[target]\nclasses = 3",
    );
    let rows = folder.file("x.csv", "x4,x3,x2,x1\n1,0,-1,2\n0.5,3,0,0\n");
    let predictor = Predictor::new(&record).unwrap();
    let found = predictor.predict(&predictor.read(&rows, None).unwrap(), 0.89);
    assert!(
        found
            .iter()
            .all(|row| row.len() == 3
                && (row.iter().map(|p| p.mean).sum::<f64>() - 1.0).abs() < 1e-12)
    );
}

/// Files without names for their columns are predicted from files of the same format, or by the
/// names that it gives.
#[test]
fn sparse_rows_are_predicted_from_their_own_format() {
    let folder = Folder::new("sparse");
    let files = ["north", "south"].map(|site| repository(&format!("examples/{site}.svm")));
    let clients = files.clone().map(|file| format!("[[client]]\nfile = '{}'\n", file.display()));
    let (problem, record) = folder.kept(&format!(
        "[target]\nmodel = \"logistic\"\n[data]\nscale = \"max\"\n{}",
        clients.concat()
    ));
    let predictor = Predictor::new(&record).unwrap();
    for (k, file) in files.iter().enumerate() {
        let rows = predictor.read(file, None).unwrap();
        assert_close(&means(&predictor, &rows), &learnt(&problem, &record, k));
    }
    refused(&record, &folder.file("x.csv", "x1\n1\n"), None, "there is no column `x2`");
}

/// A Parquet file has kinds of its own: they give way to those of the run.
#[test]
fn a_parquet_file_is_predicted_as_the_text_file_of_its_rows() {
    let folder = Folder::new("parquet");
    let clinic = repository("examples/clinic.parquet");
    let target = "[target]\nmodel = \"logistic\"\n[data]\nresponse = \"ill\"\nclients = 2\n\
        scheme = \"contiguous\"";
    let (problem, record) = folder.kept(&format!("{target}\nfile = '{}'", clinic.display()));
    let predictor = Predictor::new(&record).unwrap();
    let rows = predictor.read(&clinic, None).unwrap();
    assert_close(
        &means(&predictor, &rows),
        &[learnt(&problem, &record, 0), learnt(&problem, &record, 1)].concat(),
    );
    assert!(!rows.labels.is_empty());
}

/// A level that a schema knows and no row has says nothing of a row that has it; one that means
/// "missing" elsewhere means itself.
#[test]
fn a_level_of_no_row_is_unknown() {
    let schema = Schema::new(vec![
        ColumnSpec::number("x"),
        ColumnSpec::codes("town", &[("1", "Ulm"), ("2", "Bonn"), ("3", "Jena")]),
        ColumnSpec::category("land"),
        ColumnSpec::binary("y"),
    ]);
    let plan = formula::parse("y == 1 ~ x + town + land", &schema).unwrap();
    let quiet = Schema { missing: vec!["?".into()], ..schema.clone() };
    let table =
        |text: &str| Table::parse(&format!("x,town,land,y\n{text}"), "t.csv", &quiet).unwrap();
    let sites = [
        ("a".to_owned(), table("1,1,NA,0\n2,2,EU,1\n")),
        ("b".to_owned(), table("3,1,EU,1\n5,2,NA,0\n")),
    ];
    let federation = Federation::new("two", &sites, &plan).unwrap();
    let encoding =
        Encoding::by_formula(&schema, None, &plan, federation.moments(), of_comparison());
    let error = encoding.encode(&table("1,2,EU,0\n1,3,EU,0\n"), None).unwrap_err().to_string();
    assert_eq!(
        error,
        "t.csv, line 3, column `town`: no site has the level `Jena`: the levels are Ulm, Bonn"
    );
    let at = federation.parameters.iter().position(|name| name == "land: NA").unwrap();
    let width = federation.dim();
    let found = encoding.encode(&table("1,2,NA,0\n1,2,EU,0\n"), None).unwrap();
    assert_eq!((found.cells[at], found.cells[width + at], found.notes.len()), (1.0, 0.0, 0));
}

#[test]
fn what_new_rows_lack_is_imputed_or_named() {
    let folder = Folder::new("unseen");
    folder.file("a.csv", "x,town,y\n1,Ulm,0\n2,Bonn,1\n3,Ulm,1\n4,Bonn,0\n");
    folder.file("b.csv", "x,town,y\n5,Ulm,0\n2.5,Bonn,1\n");
    let target = "[target]\nformula = \"y == 1 ~ x + town\"\n[[client]]\nfile = \"a.csv\"\n\
        [[client]]\nfile = \"b.csv\"";
    let (_, mut record) = folder.kept(target);
    refused(
        &record,
        &folder.file("new.csv", "x,town\n1,Ulm\n\n2,Jena\n"),
        None,
        "new.csv, line 4, column `town`: no site has the level `Jena`",
    );
    // A blank is imputed, and said; a column of words may come as anything.
    let rows = Predictor::new(&record)
        .unwrap()
        .read(&folder.file("new.csv", "x,town\n,Ulm\n2,\n"), None)
        .unwrap();
    assert_eq!(rows.notes.len(), 2);
    assert_eq!(rows.cells[1], 0.0);
    refused(
        &record,
        &folder.file("new.csv", "x,town\ntall,Ulm\n"),
        None,
        "new.csv, line 2, column `x`: `tall` is not a finite number",
    );
    // A run that does not say how it was coded is refused.
    record.encoding = None;
    assert!(matches!(Predictor::new(&record), Err(PredictError::NoEncoding { .. })));
    let error = Predictor::new(&record).unwrap_err().to_string();
    assert!(
        error.contains("does not say how its columns were coded") && error.contains("run it again"),
        "{error}"
    );
    let (_, mut heart) = folder.kept("[data]\nbuiltin = \"titanic\"");
    heart.encoding = None;
    assert!(matches!(Predictor::new(&heart), Err(PredictError::NoEncoding { .. })));
}

/// What is damaged is named, and an encoding of another run is refused.
#[test]
fn a_damaged_encoding_is_refused() {
    let folder = Folder::new("damaged");
    let (_, mut record) = folder.kept("[data]\nbuiltin = \"titanic\"");
    let path = folder.0.join("kept/encoding.json");
    let text = std::fs::read_to_string(&path).unwrap();
    for (from, to, part) in [
        ("\"format\":2", "\"format\":3", "it has layout 3; this program knows layouts up to 2"),
        ("\"term\":0", "\"term\":70", "its rules do not fit its terms"),
        ("\"divisors\":[1.0", "\"divisors\":[0.0", "its divisors do not fit its columns"),
        ("{", "[", "encoding.json"),
    ] {
        assert!(text.contains(from), "{from}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
        let error = rundir::read(&folder.0.join("kept")).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("encoding.json"), "{error}");
    }
    // layout 1 said what is predicted, where layout 2 names the model
    let old = text
        .replace("\"format\":2", "\"format\":1")
        .replace("\"model\":{\"model\":\"logistic\"}", "\"outcome\":\"Probability\"");
    assert!(old.contains("outcome"), "{old}");
    std::fs::write(&path, &old).unwrap();
    let again = rundir::read(&folder.0.join("kept")).unwrap();
    assert_eq!(Predictor::new(&again).unwrap().predicts().kind, "probability");
    record.parameters[1] = "another".into();
    assert!(matches!(Predictor::new(&record), Err(PredictError::OtherEncoding { .. })));
}

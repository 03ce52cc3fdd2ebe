//! Products of terms with levels have the columns of patsy, the same whoever holds the rows; new
//! rows are coded alike, and priors are named by the term.
//!
//! `data/products_reference.csv` has numbers of patsy, which `data/make_products_reference.py`
//! writes with the rows.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_engine::config::{Config, Source};
use consilience_engine::data::memory::{Values, table};
use consilience_engine::encoding::Encoding;
use consilience_engine::problem::{AllRows, Problem};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn parse(formula: &str, more: &str, data: &str, folder: &Path) -> Result<Config, String> {
    let formula = formula.replace('"', "'");
    let text =
        format!("[target]\nmodel = \"linear\"\nformula = \"pain ~ {formula}\"\n{more}{data}");
    let source = Source { file: "run.toml".into(), folder: folder.into(), text };
    Config::parse(source).map_err(|e| e.to_string())
}

const NATURAL: &str = "[data]\nfile = \"products.csv\"\nscheme = \"natural(site)\"\n";
const RAW: &str = "standardise = false\n";

fn encoding(formula: &str, more: &str, dealt: &str) -> Result<Encoding, String> {
    let problem = Problem::new(&parse(formula, more, dealt, &data())?);
    Ok(problem.map_err(|e| e.to_string())?.encoding.unwrap())
}

/// Some rows of the file, of which the reference has the columns.
fn probes(rows: &[usize]) -> consilience_engine::data::Table {
    let text = std::fs::read_to_string(data().join("products.csv")).unwrap();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    let column = |k: usize| rows.iter().map(|row| lines[row + 1][k].to_owned()).collect();
    let numbers = |k: usize| -> Vec<f64> {
        let column: Vec<String> = column(k);
        column.iter().map(|cell| cell.parse().unwrap()).collect()
    };
    let mut columns: Vec<(String, Values)> = Vec::new();
    for (k, name) in lines[0].iter().enumerate() {
        let values = match *name {
            "site" | "sex" | "town" => Values::Words(column(k).into_iter().map(Some).collect()),
            _ => Values::Numbers(numbers(k).into()),
        };
        columns.push(((*name).into(), values));
    }
    table("some rows", columns).unwrap()
}

struct Reference {
    formula: String,
    names: Vec<String>,
    rows: Vec<(usize, Vec<f64>)>,
}

fn references() -> Vec<Reference> {
    let mut reader = csv::Reader::from_path(data().join("products_reference.csv")).unwrap();
    let mut all: Vec<Reference> = Vec::new();
    for record in reader.records() {
        let record = record.unwrap();
        let (formula, values) = (record[0].to_owned(), &record[2]);
        if &record[1] == "names" {
            let names = values.split("; ").map(str::to_owned).collect();
            all.push(Reference { formula, names, rows: Vec::new() });
            continue;
        }
        let row = record[1].parse().unwrap();
        let values = values.split(' ').map(|n| n.parse().unwrap()).collect();
        all.last_mut().unwrap().rows.push((row, values));
    }
    all
}

/// Ours are in the order of the formula, patsy's words first: columns are compared by name.
#[test]
fn columns_are_those_of_patsy() {
    let (mut compared, all) = (0, references());
    assert_eq!(all.len(), 22);
    for Reference { formula, names, rows } in all {
        let found = encoding(&formula, RAW, NATURAL).unwrap();
        let columns = found.columns();
        let sorted = |names: &[String]| {
            let mut names = names.to_vec();
            names.sort();
            names
        };
        assert_eq!(sorted(&columns), sorted(&names), "{formula}");
        let places: Vec<usize> = rows.iter().map(|(row, _)| *row).collect();
        let cells = found.encode(&probes(&places), None).unwrap().cells;
        for ((row, expected), cells) in rows.iter().zip(cells.chunks_exact(columns.len())) {
            for (name, expected) in names.iter().zip(expected) {
                let cell = cells[columns.iter().position(|column| column == name).unwrap()];
                let scale = expected.abs().max(1.0);
                let said = format!("{formula}: {name} of row {row} is {cell}, not {expected}");
                assert!((cell - expected).abs() < 1e-10 * scale, "{said}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 15 * 127);
}

/// The design of every row, whoever holds it: towns that a site lacks make no difference, nor does
/// the order of the sites.
#[test]
fn columns_are_the_same_whoever_holds_the_rows() {
    let formula = "age*town + sex:town + ns(dose, 3):sex + C(ward, ref = '4')*smokes";
    let rows = |dealt: &str| {
        let config = parse(formula, "", dealt, &data()).unwrap();
        let AllRows { parameters, sites } = AllRows::new(&config).unwrap().unwrap();
        let mut all: Vec<Vec<f64>> = Vec::new();
        for site in &sites {
            for row in 0..site.design.rows() {
                let mut cells = vec![0.0; site.design.columns()];
                site.design.add_row(row, 1.0, &mut cells);
                cells.push(site.rows.response[row]);
                all.push(cells);
            }
        }
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        (parameters, all)
    };
    let (names, first) = rows(NATURAL);
    let standardised = names.iter().position(|name| name == "age:town: chur").unwrap();
    assert!(first.iter().any(|row| row[standardised] < -0.5), "a product of what is coded");
    for dealt in ["clients = 1", "clients = 7", "clients = 9\nscheme = \"contiguous\""] {
        let (other, rows) = rows(&format!("[data]\nfile = \"products.csv\"\n{dealt}\n"));
        assert_eq!(other, names, "{dealt}");
        for (a, b) in rows.iter().flatten().zip(first.iter().flatten()) {
            assert!((a - b).abs() < 1e-12, "{dealt}: {a}, {b}");
        }
    }
}

/// What is standardised is multiplied as it is, so that an interaction is one of the columns.
#[test]
fn products_are_of_standardised_columns() {
    let config = parse("age*sex", "", NATURAL, &data()).unwrap();
    let AllRows { parameters, sites } = AllRows::new(&config).unwrap().unwrap();
    assert_eq!(parameters, ["intercept", "age", "sex: m", "age:sex: m", "sigma"]);
    for site in &sites {
        for row in 0..site.design.rows() {
            let cell = |k: usize| site.design.cell(row, k);
            assert_eq!(cell(3), cell(1) * cell(2));
        }
    }
}

#[test]
fn new_rows_are_coded_by_what_is_kept_and_effects_are_beside_every_level() {
    let first = encoding("age*sex + ns(dose, 3)*sex", "", NATURAL).unwrap();
    let again: Encoding = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
    again.check().unwrap();
    assert_eq!(again, first);
    let rows = |sex: &str, age: f64| {
        let columns = vec![
            ("age".into(), Values::Numbers(vec![age].into())),
            ("dose".into(), Values::Numbers(vec![2.0].into())),
            ("sex".into(), Values::Words(vec![Some(sex.into())])),
        ];
        again.encode(&table("new rows", columns).unwrap(), None)
    };
    let place = again.columns().iter().position(|name| name == "age:sex: m").unwrap();
    assert_eq!(rows("f", 70.0).unwrap().cells[place], 0.0);
    assert!(rows("m", 70.0).unwrap().cells[place] > 0.5);
    assert_eq!(rows("m", f64::NAN).unwrap().cells[place], 0.0, "what is missing is at the mean");
    let unknown = rows("x", 70.0).unwrap_err().to_string();
    assert!(unknown.contains("the levels are f, m"), "{unknown}");
    let grids = again.grids().unwrap();
    let of = |column: &str| -> Vec<Option<(String, String)>> {
        grids.iter().filter(|grid| grid.column == column).map(|grid| grid.beside.clone()).collect()
    };
    assert_eq!(of("age"), [None, Some(("sex".into(), "m".into()))]);
    assert_eq!(of("dose"), of("age"));
    assert_eq!(of("sex"), [None]);
    let men = grids.iter().find(|grid| grid.column == "age" && grid.beside.is_some()).unwrap();
    let width = again.columns().len();
    assert!(men.cells.chunks_exact(width).any(|row| row[place] > 1.0));
}

/// A slope for each site, and combinations of levels that nobody has.
#[test]
fn sites_are_levels_and_what_no_row_has_is_left_out() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("products");
    std::fs::create_dir_all(&dir).unwrap();
    let mut more = String::new();
    for (site, rows) in [
        ("a", "pain,age,sex,town\n1,20,f,x\n2,30,m,x\n3,35,f,y\n2,41,f,x\n"),
        ("b", "pain,age,sex,town\n1.5,22,f,y\n2,33,,y\n3,37,f,x\n2.5,44,m,x\n"),
    ] {
        std::fs::write(dir.join(format!("{site}.csv")), rows).unwrap();
        more += &format!("[[client]]\nname = \"{site}\"\nfile = \"{site}.csv\"\n");
    }
    let problem = |formula: &str| {
        let config = parse(formula, "", &format!("\n{more}"), &dir).unwrap();
        Problem::new(&config)
    };
    let columns = |formula: &str| problem(formula).unwrap().encoding.unwrap().columns();
    assert_eq!(columns("age*site"), ["intercept", "age", "age:site: b", "site: b"]);
    let notes = problem("town*sex").unwrap();
    assert_eq!(
        notes.encoding.as_ref().unwrap().columns(),
        ["intercept", "town: y", "sex: m", "sex: missing"]
    );
    let said = format!("{:?}", notes.notes);
    assert!(said.contains("town:sex: one combination of levels (1) left out"), "{said}");
    // a row whose sex is missing counts as one of the most common level, at `y` too
    assert_eq!(
        columns("town + town:sex"),
        ["intercept", "town: y", "sex: missing", "town:sex: x:m"]
    );
}

#[test]
fn priors_are_named_by_the_term_or_the_column() {
    let prior = "[target.prior]\nof = { \"age:town\" = \"normal(0, 0.3)\", \"age:town: genf\" = \
                 \"student_t(4, 0, 1)\" }\n";
    let config = parse("age*town", prior, NATURAL, &data()).unwrap();
    let problem = Problem::new(&config).unwrap();
    let said = format!("{:?}", problem.notes);
    assert!(said.contains("age:town: chur normal(0, 0.3)"), "{said}");
    assert!(said.contains("age:town: genf student_t(4, 0, 1)"), "{said}");
}

#[test]
fn wrong_products_are_refused_by_name() {
    for (formula, told) in [
        ("age*sexx", "did you mean `sex`?"),
        ("age:sex + sex:age", "the term `sex:age` stands there twice"),
        ("sex:sex", "`sex` stands there twice: write each column once"),
        ("age*sex - town:sex", "there is no such term before it"),
        ("mi(age)*sex", "what is missing in mi(age) is integrated over"),
        ("mi(age) + age:sex", "write `age` in place of mi(age)"),
        ("2:sex", "`2` is a number, and products are of columns"),
        ("pain:sex", "or is the response"),
        (".:sex", "`.` cannot be a part of a product"),
        ("offset(age):sex", "`offset(age)` cannot be a part of a product"),
        ("sex*ns(age)", "ns(age, 4)"),
        ("sex*ns(town, 3)", "the column has words"),
        ("C(town, ref = 'chur') + C(town, ref = 'genf'):age", "is compared with another level"),
        ("tanh(age):sex", "`tanh(age)` in the formula is not supported yet"),
        ("age:", "a column or a number is expected"),
        ("town + (age:town | site)", "add the column to the formula"),
    ] {
        let refusal = encoding(formula, "", NATURAL).map(|found| found.columns()).unwrap_err();
        assert!(refusal.contains(told), "{formula}: {refusal}");
    }
    let kept = encoding("age*sex - age:sex", "", NATURAL).unwrap();
    assert_eq!(kept.columns(), ["intercept", "age", "sex: m"]);
}

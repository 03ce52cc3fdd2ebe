//! Splines of a formula have the columns of patsy and of R, with knots at the quantiles of all rows
//! whoever holds them; new rows are coded by the same knots.
//!
//! `data/splines_reference.csv` has numbers of patsy and SciPy, which
//! `data/make_splines_reference.py` writes with the rows.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_engine::config::{Config, Source};
use consilience_engine::data::disclosed::Disclosed;
use consilience_engine::data::knots::{CountAsk, KnotSearch, KnotsAsk, tell};
use consilience_engine::data::memory::{Values, table};
use consilience_engine::data::{
    CellRule, ColumnSpec, EncodeError, Schema, Table, formula, summarise,
};
use consilience_engine::encoding::Encoding;
use consilience_engine::problem::{AllRows, Problem};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn config(formula: &str, standardise: bool, data: &str, folder: &Path) -> Config {
    let text = format!(
        "[target]\nmodel = \"linear\"\nformula = \"{formula}\"\nstandardise = {standardise}\n{data}"
    );
    Config::parse(Source { file: "run.toml".into(), folder: folder.into(), text }).unwrap()
}

const NATURAL: &str = "[data]\nfile = \"splines.csv\"\nscheme = \"natural(site)\"\n";

fn encoding(formula: &str, standardise: bool, dealt: &str) -> Encoding {
    Problem::new(&config(formula, standardise, dealt, &data())).unwrap().encoding.unwrap()
}

fn ages(values: &[f64]) -> Table {
    table("new rows", vec![("age".into(), Values::Numbers(values.into()))]).unwrap()
}

/// The knots that an encoding keeps, outer ones included, of all its splines.
fn knots(encoding: &Encoding) -> Vec<Vec<f64>> {
    let kept = serde_json::to_value(encoding).unwrap();
    let columns = kept["columns"].as_array().unwrap().iter();
    let mut all: Vec<Vec<f64>> = Vec::new();
    for column in columns {
        let rule: CellRule = serde_json::from_value(column["rule"].clone()).unwrap();
        if let CellRule::Spline { knots, part: 0, .. } = rule {
            let (low, high) = knots.bounds;
            all.push([vec![low], knots.inner, vec![high]].concat());
        }
    }
    all
}

/// Ages are whole numbers, so that quantiles are exact here.
#[test]
fn columns_are_those_of_patsy_and_r() {
    let reference = std::fs::read_to_string(data().join("splines_reference.csv")).unwrap();
    let mut compared = 0;
    let mut last: Option<(String, Encoding)> = None;
    for line in reference.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let spline = fields[0].replace(';', ",");
        let numbers: Vec<f64> = fields[2].split(' ').map(|n| n.parse().unwrap()).collect();
        if fields[1] == "knots" {
            let encoding = encoding(&format!("pain ~ {spline}"), false, NATURAL);
            let found = knots(&encoding);
            assert_eq!(found.len(), 1, "{spline}");
            assert_eq!(found[0].len(), numbers.len(), "{spline}");
            for (a, b) in found[0].iter().zip(&numbers) {
                assert!((a - b).abs() < 1e-12, "{spline}: {found:?} {numbers:?}");
            }
            last = Some((spline, encoding));
            continue;
        }
        let (known, encoding) = last.as_ref().unwrap();
        assert_eq!(*known, spline);
        let cells = encoding.encode(&ages(&[fields[1].parse().unwrap()]), None).unwrap().cells;
        assert_eq!((cells.len(), cells[0]), (numbers.len() + 1, 1.0), "{spline}");
        for (a, b) in cells[1..].iter().zip(&numbers) {
            assert!((a - b).abs() < 1e-10, "{spline} at {}: {a}, {b}", fields[1]);
            compared += 1;
        }
    }
    assert_eq!(compared, 9 * (5 + 6 + 3 + 4 + 2 + 3 + 4 + 7));
}

/// Doses are no multiples of the grid: quantiles are rounded, and yet the same to the last bit.
#[test]
fn knots_are_the_same_whoever_holds_the_rows() {
    let formula = "pain ~ ns(age, 4) + bs(dose, 6, degree = 2)";
    let (first, rows) = (encoding(formula, true, NATURAL), doses());
    let expected = knots(&first);
    assert_eq!(expected.iter().map(Vec::len).collect::<Vec<_>>(), [5, 6]);
    for dealt in ["clients = 1", "clients = 7", "clients = 9\nscheme = \"contiguous\""] {
        let other = encoding(formula, true, &format!("[data]\nfile = \"splines.csv\"\n{dealt}\n"));
        assert_eq!(knots(&other), expected, "{dealt}");
    }
    // near the quantiles of the doses, and outside all of them, by what the search promises
    let (count, mean) = (rows.len() as f64, rows.iter().sum::<f64>() / rows.len() as f64);
    let sd = (rows.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
    for (k, knot) in expected[1][1..5].iter().enumerate() {
        let place = (count - 1.0) * (k as f64 + 1.0) / 5.0;
        let (at, rest) = (place as usize, place.fract());
        let quantile = rows[at] + rest * (rows[at + 1] - rows[at]);
        assert!((0.0..=sd / 1024.0).contains(&(knot - quantile)), "{knot}, {quantile}");
    }
    let (low, high) = (expected[1][0], expected[1][5]);
    assert!((0.0..=sd / 16.0).contains(&(rows[0] - low)), "{low}");
    assert!((0.0..=sd / 16.0).contains(&(high - rows[rows.len() - 1])), "{high}");
    let grid = |x: f64, parts: f64| x * parts == (x * parts).trunc();
    assert!(grid(low, 64.0) && grid(high, 64.0), "the least and greatest dose stay unknown: {low}");
}

fn doses() -> Vec<f64> {
    let text = std::fs::read_to_string(data().join("splines.csv")).unwrap();
    let dose = |line: &str| line.split(',').nth(2).unwrap().parse().unwrap();
    let mut all: Vec<f64> = text.lines().skip(1).map(dose).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[test]
fn columns_are_standardised_as_numbers_are() {
    let rows = AllRows::new(&config("pain ~ ns(age, 3)", true, NATURAL, &data())).unwrap().unwrap();
    let names = ["intercept", "ns(age, 3): 1", "ns(age, 3): 2", "ns(age, 3): 3", "sigma"];
    assert_eq!(rows.parameters, names);
    for column in 1..4 {
        let all: Vec<f64> = rows
            .sites
            .iter()
            .flat_map(|site| (0..site.design.rows()).map(|row| site.design.cell(row, column)))
            .collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let squares: f64 = all.iter().map(|x| (x - mean).powi(2)).sum();
        let sd = (squares / (all.len() - 1) as f64).sqrt();
        assert!(all.len() == 113 && mean.abs() < 1e-12 && (sd - 1.0).abs() < 1e-12, "{mean} {sd}");
    }
}

/// What a run keeps codes new rows, draws effects along the column, and knows what is missing.
#[test]
fn new_rows_are_coded_by_the_knots_that_are_kept() {
    let first = encoding("pain ~ ns(age, 4) + dose", true, NATURAL);
    let kept = serde_json::to_string(&first).unwrap();
    let again: Encoding = serde_json::from_str(&kept).unwrap();
    again.check().unwrap();
    assert_eq!(again, first);
    let rows = table(
        "new rows",
        vec![
            ("age".into(), Values::Numbers((&[35.0, f64::NAN]).into())),
            ("dose".into(), Values::Numbers((&[1.0, 2.0]).into())),
        ],
    )
    .unwrap();
    let coded = again.encode(&rows, None).unwrap();
    assert_eq!(coded.cells[7..11], [0.0; 4], "what is missing is what is usual");
    assert!(coded.cells[1..5].iter().any(|cell| cell.abs() > 0.1));
    let grids = again.grids().unwrap();
    let age = grids.iter().find(|grid| grid.column == "age").unwrap();
    let values: Vec<f64> = age.values.iter().map(|value| value.parse().unwrap()).collect();
    assert!(values.len() > 10 && values.is_sorted() && age.is_number);
    assert!(values[0] >= 21.0 && values[values.len() - 1] <= 80.0, "{values:?}");
    assert_eq!(age.cells.len(), values.len() * again.columns().len());
}

/// Beyond the outer knots predictions say so.
#[test]
fn values_outside_the_outer_knots_are_named() {
    let natural = encoding("pain ~ ns(age, 4)", true, NATURAL);
    let notes = natural.encode(&ages(&[20.0, 50.0, 95.0]), None).unwrap().notes;
    assert_eq!(
        notes,
        ["ns(age, 4): 2 of 3 values lie outside 21 to 80, where it was fitted: it goes on \
             straight."]
    );
    let cubic = encoding("pain ~ bs(age, 4)", true, NATURAL);
    let notes = cubic.encode(&ages(&[20.0]), None).unwrap().notes.concat();
    assert!(notes.contains("it goes on as a polynomial, which may be far off"), "{notes}");
    assert!(natural.encode(&ages(&[21.0, 80.0]), None).unwrap().notes.is_empty());
}

/// A whole search is admitted, again after a restart, and with other values a few times; values
/// cannot be bisected one by one, nor sums of splines of the server's own be asked for.
#[test]
fn a_search_is_admitted_and_nobody_bisects_every_value() {
    let schema = Schema::new(vec![ColumnSpec::number("x"), ColumnSpec::number("y")]);
    let plan = formula::parse("y ~ ns(x, 5)", &schema).unwrap();
    let values = |skew: i32| (0..500).map(move |k| f64::from(k * 7919 % 2003).powi(skew) / 1e3);
    let mut disclosed = Disclosed::default();
    let mut last = None;
    for skew in [3, 3, 2, 1] {
        let text: String = values(skew).map(|value| format!("{value},1\n")).collect();
        let table = Table::parse(&format!("x,y\n{text}"), "x.csv", &schema).unwrap();
        let summary = summarise("one", &table, &plan).unwrap();
        let mut search = KnotSearch::new(&[summary], &plan).unwrap();
        while let Some(ask) = search.ask() {
            disclosed.admit(&plan, &ask).unwrap();
            search.hear(&[tell(&table, &plan, &ask).unwrap()]).unwrap();
            last = Some(ask);
        }
    }
    let Some(KnotsAsk::Sum(mut splines)) = last else { panic!("sums are asked for last") };
    splines[0].1.inner[0] += 1e-3;
    let curious = |error| matches!(error, Err(EncodeError::TooCurious { .. }));
    assert!(curious(disclosed.admit(&plan, &KnotsAsk::Sum(splines))));
    let bisect = |from: u32| CountAsk {
        term: 0,
        below: Vec::new(),
        up_to: (0..600).map(|k| f64::from(from * 600 + k) / 7.0).collect(),
    };
    let told = (0..100)
        .take_while(|from| disclosed.admit(&plan, &KnotsAsk::Count(vec![bisect(*from)])).is_ok());
    assert!((1..30).contains(&told.count()), "it ends");
}

//! Ship three small data sets, so that everything can be tried without a download. `data/README.md` has their sources and licences.

use thiserror::Error;

use super::formula::{self, FormulaError};
use super::{ColumnSpec, EncodeError, Federation, Schema, Table, TableError};
use crate::suggest::did_you_mean;

/// Why built-in data cannot be had.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum BuiltinError {
    /// No such data.
    #[error("there is no built-in data `{name}`: {hint}there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The names that there are.
        known: String,
    },
    /// A file that cannot be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A formula that does not fit.
    #[error(transparent)]
    Formula(#[from] FormulaError),
    /// Tables that cannot become a design.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// The names of the built-in data.
pub fn names() -> &'static [&'static str] {
    &["heart-disease", "titanic", "breast-cancer"]
}

/// Built-in data by name. Hospitals differ, so `heart-disease` has site effects; the other two are parts of one table and have none.
pub fn load(name: &str) -> Result<Federation, BuiltinError> {
    load_with(name, name == "heart-disease")
}

/// Built-in data by name, with or without an effect of each site.
pub fn load_with(name: &str, site_effects: bool) -> Result<Federation, BuiltinError> {
    match name {
        "heart-disease" => heart_disease(site_effects),
        "titanic" => titanic(site_effects),
        "breast-cancer" => breast_cancer(site_effects),
        _ => {
            let hint = did_you_mean(name, names().iter().copied());
            Err(BuiltinError::Unknown { name: name.into(), hint, known: names().join(", ") })
        }
    }
}

/// Four hospitals, as they are.
const HOSPITALS: [(&str, &str, &str); 4] = [
    ("cleveland", "processed.cleveland.data", include_str!("../../../../data/heart-disease/processed.cleveland.data")),
    ("hungarian", "processed.hungarian.data", include_str!("../../../../data/heart-disease/processed.hungarian.data")),
    ("switzerland", "processed.switzerland.data", include_str!("../../../../data/heart-disease/processed.switzerland.data")),
    ("va", "processed.va.data", include_str!("../../../../data/heart-disease/processed.va.data")),
];

const TITANIC: &str = include_str!("../../../../data/titanic/titanic.csv");
const WDBC: &str = include_str!("../../../../data/breast-cancer/wdbc.csv");

/// The text of a file that comes with the program, by its path in a data folder.
pub fn file(path: &str) -> Option<&'static str> {
    let (folder, name) = path.split_once('/')?;
    match (folder, name) {
        ("titanic", "titanic.csv") => Some(TITANIC),
        ("breast-cancer", "wdbc.csv") => Some(WDBC),
        ("heart-disease", _) => HOSPITALS.iter().find(|(_, file, _)| *file == name).map(|(_, _, text)| *text),
        _ => None,
    }
}

/// The columns of the heart-disease files.
fn heart_schema() -> Schema {
    let pain = [("4", "asymptomatic"), ("1", "typical angina"), ("2", "atypical angina"), ("3", "non-anginal pain")];
    let ecg = [("0", "normal"), ("1", "ST-T abnormality"), ("2", "ventricular hypertrophy")];
    Schema::new(vec![
        ColumnSpec::number("age"),
        ColumnSpec::codes("sex", &[("0", "female"), ("1", "male")]),
        ColumnSpec::codes("cp", &pain).titled("chest pain"),
        ColumnSpec::number("trestbps").titled("resting blood pressure").missing_if(0.0),
        ColumnSpec::number("chol").titled("cholesterol").missing_if(0.0),
        ColumnSpec::codes("fbs", &[("0", "up to 120 mg/dl"), ("1", "above 120 mg/dl")]).titled("fasting blood sugar"),
        ColumnSpec::codes("restecg", &ecg).titled("resting ECG"),
        ColumnSpec::number("thalach").titled("maximum heart rate"),
        ColumnSpec::codes("exang", &[("0", "no"), ("1", "yes")]).titled("exercise angina"),
        ColumnSpec::number("oldpeak").titled("ST depression"),
        ColumnSpec::number("slope"),
        ColumnSpec::number("ca"),
        ColumnSpec::number("thal"),
        ColumnSpec::number("num").within(0.0, 4.0),
    ])
    .without_header()
}

fn heart_tables() -> Result<Vec<(String, Table)>, TableError> {
    HOSPITALS.iter().map(|(site, file, text)| Ok((site.to_string(), Table::parse(text, file, &heart_schema())?))).collect()
}

fn heart_disease(site_effects: bool) -> Result<Federation, BuiltinError> {
    let tables = heart_tables()?;
    let terms = "age + sex + cp + trestbps + chol + fbs + restecg + thalach + exang + oldpeak";
    let plan = formula::parse(&with_sites(&format!("num > 0 ~ {terms}"), site_effects), &heart_schema())?;
    let mut federation = Federation::new("heart-disease", &tables, &plan)?;
    let elsewhere = &tables[1..];
    let rows: usize = elsewhere.iter().map(|(_, table)| table.rows()).sum();
    let missing = |column: &str| {
        let count: usize = elsewhere.iter().filter_map(|(_, table)| table.column(column)).map(|(_, column)| column.missing()).sum();
        format!("{column} (missing in {count} of {rows} rows)")
    };
    let left_out = ["slope", "ca", "thal"].map(missing);
    federation.exchanged_bits_up += 64 * (left_out.len() * elsewhere.len()) as u64;
    federation.notes.push(format!("Left out, for most of their values outside Cleveland are missing: {}.", left_out.join(", ")));
    federation.notes.push("A resting blood pressure or cholesterol of 0 counts as missing.".into());
    federation.notes.push("Values are imputed once, so the posterior does not carry the uncertainty about what is missing.".into());
    let thanks =
        "Data: A. Janosi, W. Steinbrunn, M. Pfisterer and R. Detrano, whom publications should name (UCI Heart Disease, CC BY 4.0).";
    federation.notes.push(thanks.into());
    Ok(federation)
}

fn titanic(site_effects: bool) -> Result<Federation, BuiltinError> {
    let schema = Schema::new(["class", "age", "sex", "survived"].map(ColumnSpec::category).to_vec());
    let table = Table::parse(TITANIC, "titanic.csv", &schema)?;
    contiguous("titanic", &table, &with_sites("survived == Yes ~ class + age + sex", site_effects), &schema)
}

fn breast_cancer(site_effects: bool) -> Result<Federation, BuiltinError> {
    let header = WDBC.lines().next().unwrap_or_default();
    let measure = |name: &str| match name {
        "benign" => ColumnSpec::binary(name),
        _ => ColumnSpec::number(name).titled(&name.replace('_', " ")),
    };
    let schema = Schema::new(header.split(',').map(measure).collect());
    let table = Table::parse(WDBC, "wdbc.csv", &schema)?;
    let mut federation = contiguous("breast-cancer", &table, &with_sites("benign == 0 ~ .", site_effects), &schema)?;
    federation.notes.push("The response is 1 where the tumour is malignant.".into());
    Ok(federation)
}

/// Four sites of neighbouring rows.
fn contiguous(name: &str, table: &Table, formula: &str, schema: &Schema) -> Result<Federation, BuiltinError> {
    let plan = formula::parse(formula, schema)?;
    let sites: Vec<(String, Table)> = table.split(4)?.into_iter().enumerate().map(|(k, part)| (format!("part {}", k + 1), part)).collect();
    let mut federation = Federation::new(name, &sites, &plan)?;
    federation.notes.push("One table, cut into four sites of neighbouring rows.".into());
    Ok(federation)
}

fn with_sites(formula: &str, site_effects: bool) -> String {
    format!("{formula}{}", if site_effects { " + site" } else { "" })
}

#[cfg(test)]
mod tests;

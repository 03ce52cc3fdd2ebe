//! Ship three small data sets, so that everything can be tried without a download. `data/README.md`
//! has their sources and licences.

use thiserror::Error;

use super::formula::{self, FormulaError};
use super::{ColumnSpec, EncodeError, Federation, Schema, Study, Table, TableError};
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

/// Built-in data by name. Hospitals differ, so `heart-disease` has site effects; the other two are
/// parts of one table and have none.
pub fn load(name: &str) -> Result<Federation, BuiltinError> {
    load_with(name, name == "heart-disease")
}

/// Built-in data by name, with or without an effect of each site.
pub(crate) fn load_with(name: &str, site_effects: bool) -> Result<Federation, BuiltinError> {
    Ok(study_with(name, site_effects)?.federation(&tables(name)?)?)
}

/// How built-in data is written and encoded, without its rows.
pub fn study(name: &str) -> Result<Study, BuiltinError> {
    study_with(name, name == "heart-disease")
}

/// The tables of built-in data, one a site.
pub fn tables(name: &str) -> Result<Vec<Table>, BuiltinError> {
    Ok(match name {
        "heart-disease" => heart_tables()?,
        "titanic" => Table::parse(TITANIC, "titanic.csv", &titanic_schema())?.split(PARTS)?,
        "breast-cancer" => Table::parse(WDBC, "wdbc.csv", &wdbc_schema())?.split(PARTS)?,
        _ => return Err(unknown(name)),
    })
}

pub(super) fn study_with(name: &str, site_effects: bool) -> Result<Study, BuiltinError> {
    match name {
        "heart-disease" => heart_disease(site_effects),
        "titanic" => contiguous(
            name,
            "survived == Yes ~ class + age + sex",
            site_effects,
            titanic_schema(),
            &[],
        ),
        "breast-cancer" => contiguous(
            name,
            "benign == 0 ~ .",
            site_effects,
            wdbc_schema(),
            &["The response is 1 where the tumour is malignant."],
        ),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> BuiltinError {
    BuiltinError::Unknown {
        name: name.into(),
        hint: did_you_mean(name, names().iter().copied()),
        known: names().join(", "),
    }
}

/// Into how many sites a single table is cut.
const PARTS: usize = 4;

/// Four hospitals, as they are.
const HOSPITALS: [(&str, &str, &str); 4] = [
    (
        "cleveland",
        "processed.cleveland.data",
        include_str!("../../../../data/heart-disease/processed.cleveland.data"),
    ),
    (
        "hungarian",
        "processed.hungarian.data",
        include_str!("../../../../data/heart-disease/processed.hungarian.data"),
    ),
    (
        "switzerland",
        "processed.switzerland.data",
        include_str!("../../../../data/heart-disease/processed.switzerland.data"),
    ),
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
        ("heart-disease", _) => {
            HOSPITALS.iter().find(|(_, file, _)| *file == name).map(|(_, _, text)| *text)
        }
        _ => None,
    }
}

/// The columns of the heart-disease files.
fn heart_schema() -> Schema {
    let pain = [
        ("4", "asymptomatic"),
        ("1", "typical angina"),
        ("2", "atypical angina"),
        ("3", "non-anginal pain"),
    ];
    let ecg = [("0", "normal"), ("1", "ST-T abnormality"), ("2", "ventricular hypertrophy")];
    Schema::new(vec![
        ColumnSpec::number("age"),
        ColumnSpec::codes("sex", &[("0", "female"), ("1", "male")]),
        ColumnSpec::codes("cp", &pain).titled("chest pain"),
        ColumnSpec::number("trestbps").titled("resting blood pressure").missing_if(0.0),
        ColumnSpec::number("chol").titled("cholesterol").missing_if(0.0),
        ColumnSpec::codes("fbs", &[("0", "up to 120 mg/dl"), ("1", "above 120 mg/dl")])
            .titled("fasting blood sugar"),
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

fn heart_tables() -> Result<Vec<Table>, TableError> {
    HOSPITALS.iter().map(|(_, file, text)| Table::parse(text, file, &heart_schema())).collect()
}

fn heart_disease(site_effects: bool) -> Result<Study, BuiltinError> {
    let terms = "age + sex + cp + trestbps + chol + fbs + restecg + thalach + exang + oldpeak";
    let remarks = [
        "A resting blood pressure or cholesterol of 0 counts as missing.",
        "Values are imputed once, so the posterior does not carry the uncertainty about what is \
         missing.",
        "Data: A. Janosi, W. Steinbrunn, M. Pfisterer and R. Detrano, whom publications should \
         name (UCI Heart Disease, CC BY 4.0).",
    ];
    Ok(Study {
        name: "heart-disease".into(),
        plan: formula::parse(
            &with_sites(&format!("num > 0 ~ {terms}"), site_effects),
            &heart_schema(),
        )?,
        schema: heart_schema(),
        sites: HOSPITALS.iter().map(|(site, _, _)| (*site).to_owned()).collect(),
        left_out: vec!["slope", "ca", "thal"],
        remarks: remarks.map(str::to_owned).to_vec(),
    })
}

fn titanic_schema() -> Schema {
    Schema::new(["class", "age", "sex", "survived"].map(ColumnSpec::category).to_vec())
}

fn wdbc_schema() -> Schema {
    let header = WDBC.lines().next().unwrap_or_default();
    let measure = |name: &str| match name {
        "benign" => ColumnSpec::binary(name),
        _ => ColumnSpec::number(name).titled(&name.replace('_', " ")),
    };
    Schema::new(header.split(',').map(measure).collect())
}

/// Sites of neighbouring rows.
fn contiguous(
    name: &str,
    formula: &str,
    site_effects: bool,
    schema: Schema,
    remarks: &[&str],
) -> Result<Study, BuiltinError> {
    let remarks = ["One table, cut into four sites of neighbouring rows."]
        .iter()
        .chain(remarks)
        .map(|text| (*text).to_owned());
    Ok(Study {
        name: name.into(),
        plan: formula::parse(&with_sites(formula, site_effects), &schema)?,
        schema,
        sites: (1..=PARTS).map(|k| format!("part {k}")).collect(),
        left_out: Vec::new(),
        remarks: remarks.collect(),
    })
}

fn with_sites(formula: &str, site_effects: bool) -> String {
    format!("{formula}{}", if site_effects { " + site" } else { "" })
}

#[cfg(test)]
mod tests;

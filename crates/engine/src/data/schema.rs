//! Declare what a file's columns are, so that every site reads them alike.

use serde::{Deserialize, Serialize};

/// What the values of a column are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kind {
    /// Finite numbers.
    Number,
    /// 0 or 1.
    Binary,
    /// Words, or numbers that stand for words.
    Category {
        /// Pairs of a code in the file and the level that it means, the reference level first.
        /// Other codes are refused. Empty: any word is its own level.
        levels: Vec<(String, String)>,
    },
}

/// One column of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnSpec {
    /// Its name in the file and in formulas.
    pub name: String,
    /// Its name in results.
    pub title: String,
    /// What its values are.
    pub kind: Kind,
    /// Numbers that mean "missing" in this column.
    pub missing: Vec<f64>,
    /// The least and the greatest number allowed.
    pub range: Option<(f64, f64)>,
}

impl ColumnSpec {
    /// A column of numbers.
    pub fn number(name: &str) -> Self {
        ColumnSpec {
            name: name.into(),
            title: name.into(),
            kind: Kind::Number,
            missing: Vec::new(),
            range: None,
        }
    }

    /// A column of zeros and ones.
    pub fn binary(name: &str) -> Self {
        ColumnSpec { kind: Kind::Binary, ..Self::number(name) }
    }

    /// A column of words.
    pub fn category(name: &str) -> Self {
        ColumnSpec { kind: Kind::Category { levels: Vec::new() }, ..Self::number(name) }
    }

    /// A column of codes: pairs of a code and the level that it means, the reference level first.
    pub fn codes(name: &str, levels: &[(&str, &str)]) -> Self {
        let levels =
            levels.iter().map(|(code, level)| (code.to_string(), level.to_string())).collect();
        ColumnSpec { kind: Kind::Category { levels }, ..Self::number(name) }
    }

    /// The same column under another name in results.
    pub fn titled(self, title: &str) -> Self {
        ColumnSpec { title: title.into(), ..self }
    }

    /// The same column, where this number too means "missing".
    pub(crate) fn missing_if(mut self, value: f64) -> Self {
        self.missing.push(value);
        self
    }

    /// The same column, where numbers outside `low..=high` are refused.
    pub fn within(self, low: f64, high: f64) -> Self {
        ColumnSpec { range: Some((low, high)), ..self }
    }
}

/// What means "missing" in a text file: marks of R, Python, SQL, SAS and spreadsheets, and an empty
/// field.
pub const MISSING: [&str; 12] =
    ["?", "", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NAN", "NULL", "null", "."];

/// How a file is written: its columns, its separator and its marks for missing values.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The columns. Without a header they are in the file's order; with one, a file may hold them
    /// in any order, and more.
    pub columns: Vec<ColumnSpec>,
    /// Whether the first line names the columns.
    pub header: bool,
    /// What stands between two fields.
    pub separator: u8,
    /// Which words mean "missing".
    pub missing: Vec<String>,
}

impl Schema {
    /// Comma-separated columns under a header, where one of [`MISSING`] means "missing".
    pub fn new(columns: Vec<ColumnSpec>) -> Self {
        Schema {
            columns,
            header: true,
            separator: b',',
            missing: MISSING.map(String::from).to_vec(),
        }
    }

    /// The same columns in a file without a header.
    pub(crate) fn without_header(self) -> Self {
        Schema { header: false, ..self }
    }

    /// The same columns with another separator.
    pub(crate) fn separated_by(self, separator: u8) -> Self {
        Schema { separator, ..self }
    }

    /// What several files have together: a column is of numbers where any has other numbers than 0
    /// and 1 in it, and of words where any has words.
    pub fn union<'a>(all: impl Iterator<Item = &'a [ColumnSpec]>) -> Schema {
        let weight = |kind: &Kind| match kind {
            Kind::Binary => 0,
            Kind::Number => 1,
            Kind::Category { .. } => 2,
        };
        let mut columns: Vec<ColumnSpec> = Vec::new();
        for spec in all.flatten() {
            match columns.iter_mut().find(|known| known.name == spec.name) {
                Some(known) if weight(&spec.kind) > weight(&known.kind) => known.clone_from(spec),
                Some(_) => {}
                None => columns.push(spec.clone()),
            }
        }
        Schema::new(columns)
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&ColumnSpec> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The names of all columns, for a message.
    pub(crate) fn listed(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

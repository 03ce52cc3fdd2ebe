//! Know how columns are coded by what a config states: then no site says anything of its rows.
//!
//! Stated numbers are public, and no function of rows: a site codes its rows alone. What is made of
//! them are the columns that sums of all sites would give, if these were the same numbers.

use thiserror::Error;

use super::formula::{self, FormulaError};
use super::spline;
use super::{Coding, ColumnSpec, Kind, Schema, Term, derived};
use crate::suggest::did_you_mean;

/// How one column is coded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatedColumn {
    /// Its name, as the formula writes it.
    pub name: String,
    /// What is taken away: one number, or one for each column of a spline.
    pub centre: Vec<f64>,
    /// By what it is divided then.
    pub scale: Vec<f64>,
    /// Its levels, in the order of their columns.
    pub levels: Vec<String>,
    /// The level that others are compared with, unless it is the first or the formula names it.
    pub reference: Option<String>,
    /// What stands for a value that is missing: a level, or a number.
    pub impute: Option<String>,
    /// Of a spline: what its columns are where the value is missing.
    pub filled: Vec<f64>,
    /// The inner knots of a spline.
    pub knots: Vec<f64>,
    /// Its outer knots.
    pub bounds: Option<(f64, f64)>,
    /// Whether a further column marks what is missing.
    pub mark: bool,
}

impl StatedColumn {
    /// What its values are.
    fn kind(&self) -> Kind {
        if self.levels.is_empty() {
            return Kind::Number;
        }
        // as where sites say of what kind a column is
        if self.levels == ["0", "1"] {
            return Kind::Binary;
        }
        Kind::Category { levels: Vec::new() }
    }
}

/// How all columns are coded, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatedCoding {
    /// One entry a column.
    pub columns: Vec<StatedColumn>,
}

/// Why what is stated codes no columns.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum StatedError {
    /// Columns of which too little is stated.
    #[error(
        "how to code {} is not stated: add to [target.coding], with numbers that are known without \
         the rows:\n    {}", named(.columns), .lines.join("\n    ")
    )]
    Lacks {
        /// The columns.
        columns: Vec<String>,
        /// A line for each, with placeholders.
        lines: Vec<String>,
    },
    /// What is stated of a column does not go with the formula.
    #[error("target.coding states `{column}` otherwise than the formula uses it: {problem}")]
    Otherwise {
        /// The column.
        column: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A column that the formula does not use.
    #[error("target.coding states the column `{column}`, which the formula does not use: {hint}")]
    Unused {
        /// The column.
        column: String,
        /// A nearby name, or what to do.
        hint: String,
    },
    /// A formula that cannot be read.
    #[error(transparent)]
    Formula(#[from] FormulaError),
}

/// The names in a sentence.
fn named(columns: &[String]) -> String {
    columns.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl StatedCoding {
    /// What is stated of a column.
    pub fn column(&self, name: &str) -> Option<&StatedColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// What is stated of a term: under its column's name, or as a spline is written.
    pub(crate) fn of_term(&self, term: &Term) -> Option<&StatedColumn> {
        let spline = matches!(term.coding, Coding::Spline(_));
        let own = self.column(&term.title).filter(|_| spline);
        own.or_else(|| self.column(&term.column))
    }

    /// The columns that a formula uses, of the kinds that are stated; those of which nothing is
    /// stated are numbers.
    pub(crate) fn schema(&self, formula: &str) -> Schema {
        let mut specs: Vec<ColumnSpec> = Vec::new();
        let mut add = |name: &str, kind: Kind| {
            if specs.iter().all(|spec| spec.name != name) {
                specs.push(ColumnSpec { kind, ..ColumnSpec::number(name) });
            }
        };
        let left = formula::halves(formula).map_or("", |(left, _)| left);
        // a word that is compared is one of words, else a number
        let compared = left.split_once("==").map(|(_, value)| value.trim());
        let of_words = compared.is_some_and(|value| value.parse::<f64>().is_err());
        for (k, name) in formula::written(formula).into_iter().enumerate() {
            let stated = self.column(name);
            if ["", ".", "0", "1"].contains(&name) || (name == "site" && stated.is_none()) {
                continue;
            }
            // a product with words in it is none of the table's columns
            let whole = derived::parts(name).len() > 1 && stated.is_none();
            let of_levels = |part: &&str| {
                let part = formula::bare(part).0;
                let has = |stated: &StatedColumn| {
                    !stated.levels.is_empty() && stated.levels != ["0", "1"]
                };
                part == "site" || self.column(part).is_some_and(has)
            };
            if whole && derived::parts(name).iter().any(of_levels) {
                continue;
            }
            let unknown = name.contains('(') && !derived::is_computed(name);
            match stated {
                Some(stated) => add(name, stated.kind()),
                None if unknown => {} // the formula's reader says what is wrong
                None if k == 0 && of_words => add(name, Kind::Category { levels: Vec::new() }),
                None => add(name, Kind::Number),
            }
        }
        // a dot means all that is stated
        for stated in self.columns.iter().filter(|stated| !is_spline(&stated.name)) {
            add(&stated.name, stated.kind());
        }
        Schema::new(specs)
    }

    /// Whether the levels of a column are numbers, which may be written in several ways.
    pub(crate) fn has_numbers_for_levels(&self, name: &str) -> bool {
        let is_number =
            |level: &String| level.parse::<f64>().is_ok_and(|number| number.to_string() == *level);
        self.column(name).is_some_and(|stated| {
            matches!(stated.kind(), Kind::Category { .. }) && stated.levels.iter().all(is_number)
        })
    }

    /// Refuse columns that a formula does not use.
    pub(crate) fn check_used(&self, used: &[&str]) -> Result<(), StatedError> {
        match self.columns.iter().find(|stated| !used.contains(&stated.name.as_str())) {
            None => Ok(()),
            Some(stated) => {
                let hint = did_you_mean(&stated.name, used.iter().copied());
                let hint = if hint.is_empty() { "remove it".into() } else { hint };
                Err(StatedError::Unused { column: stated.name.clone(), hint })
            }
        }
    }
}

/// A name as a key of a config.
pub(crate) fn key(name: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

/// The line that would state a term, with placeholders.
pub(crate) fn line(term: &Term, spec: Option<&ColumnSpec>) -> String {
    let key = key(&term.column);
    let words = spec.is_some_and(|spec| matches!(spec.kind, Kind::Category { .. }));
    match term.coding {
        Coding::Spline(spline) => {
            let inner = vec!["0.0"; spline.inner_knots()].join(", ");
            format!("{key} = {{ knots = [{inner}], bounds = [-1.0, 1.0] }}")
        }
        Coding::Binary => format!("{key} = {{ levels = [0, 1] }}"),
        Coding::Dummy(_) => format!("{key} = {{ levels = [\"a\", \"b\"] }}"),
        Coding::Centred => format!("{key} = {{ centre = 0.0 }}"),
        Coding::Raw => format!("{key} = {{ }} # a number, as it is; or levels = [\"a\", \"b\"]"),
        Coding::Standardised if words => format!("{key} = {{ levels = [\"a\", \"b\"] }}"),
        Coding::Standardised => {
            format!("{key} = {{ centre = 0.0, scale = 1.0 }} # or levels = [\"a\", \"b\"]")
        }
    }
}

/// The lines that a formula's columns would need where nothing is stated at all, as far as the
/// formula alone shows which columns there are.
pub(crate) fn lines_of(formula: &str) -> Vec<String> {
    let formula = &*derived::write_out(formula);
    let schema = StatedCoding::default().schema(formula);
    match formula::parse(formula, &schema) {
        Ok(plan) => plan.terms.iter().map(|term| line(term, None)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Whether a term is a spline.
fn is_spline(term: &str) -> bool {
    spline::argument(term).is_some()
}

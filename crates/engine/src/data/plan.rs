//! Plan which columns enter the design, and how.

use std::fmt;

use super::spline::Spline;
use serde::{Deserialize, Serialize};

/// Which level a dummy-coded column is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReferenceLevel {
    /// The first declared level.
    First,
    /// The level that most rows of the federation have.
    MostCommon,
}

/// How a column becomes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coding {
    /// Less the federated mean, divided by the federated standard deviation.
    Standardised,
    /// As it is.
    Raw,
    /// Less the federated mean.
    Centred,
    /// 0 or 1, as it is.
    Binary,
    /// One column of zeros and ones for every level but the reference.
    Dummy(ReferenceLevel),
    /// The columns of a spline.
    Spline(Spline),
}

impl Coding {
    /// Whether it becomes one column.
    pub fn is_one_column(self) -> bool {
        matches!(self, Coding::Standardised | Coding::Raw | Coding::Centred | Coding::Binary)
    }

    /// Whether a column of numbers enters as such.
    pub fn is_number(self) -> bool {
        !matches!(self, Coding::Binary | Coding::Dummy(_))
    }
}

/// What happens where a value is missing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Missing {
    /// The plan is refused, with the line.
    Refuse,
    /// The federated mean of a number, or the most common level of the federation, takes its place.
    Impute,
    /// As `Impute`; and where more than this share of all rows is missing, a further column marks
    /// them.
    Indicate {
        /// The share, from 0 to 1.
        above: f64,
    },
    /// The column is left out, at every site, where one value of it is missing at any.
    DropColumn,
    /// The column has a law given the others, and what is missing is integrated over.
    Integrate,
}

/// One column of the tables, as it enters the design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// The column's name in the tables.
    pub column: String,
    /// Its name in results.
    pub title: String,
    /// How it becomes numbers.
    pub coding: Coding,
    /// What happens where a value is missing.
    pub missing: Missing,
    /// The level that the others are compared with, where the formula names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Whether it is a part of products alone, and has no columns of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
}

/// A product of terms of which one at least has levels or is a spline: `age:sex`. Its columns are
/// products of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// What is multiplied, in the order in which it is written.
    pub parts: Vec<Part>,
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A term of the plan.
    Term(usize),
    /// The sites.
    Site,
}

/// What the model explains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// The numbers of a column.
    Value {
        /// The column.
        column: String,
    },
    /// 1 where a number exceeds the threshold, else 0.
    Above {
        /// The column.
        column: String,
        /// The threshold.
        threshold: f64,
    },
    /// 1 where a column has this value, else 0.
    Equals {
        /// The column.
        column: String,
        /// The value: a level, or a number.
        value: String,
    },
    /// Which of these values a column has, numbered from 0.
    Class {
        /// The column.
        column: String,
        /// The values: levels, or numbers.
        classes: Vec<String>,
    },
}

impl Response {
    /// The column that it is made of.
    pub fn column(&self) -> &str {
        match self {
            Response::Value { column }
            | Response::Above { column, .. }
            | Response::Equals { column, .. }
            | Response::Class { column, .. } => column,
        }
    }

    /// The values that it may have, where they are named one by one.
    pub fn classes(&self) -> Option<&[String]> {
        match self {
            Response::Class { classes, .. } => Some(classes),
            _ => None,
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Response::Value { column } | Response::Class { column, .. } => write!(f, "{column}"),
            Response::Above { column, threshold } => write!(f, "{column} > {threshold}"),
            Response::Equals { column, value } => write!(f, "{column} == {value}"),
        }
    }
}

/// Which rows share an effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupBy {
    /// All rows of a site.
    Site,
    /// Rows of a site that have the same value in a column.
    Column(String),
}

impl GroupBy {
    /// By what is called this.
    pub fn of(name: &str) -> Self {
        if name == "site" { GroupBy::Site } else { GroupBy::Column(name.into()) }
    }
}

impl fmt::Display for GroupBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupBy::Site => write!(f, "site"),
            GroupBy::Column(column) => write!(f, "{column}"),
        }
    }
}

/// Effects of groups, as a formula states them: `(1 | ward)`, `(1 + x | ward)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTerm {
    /// Which rows share effects.
    pub by: GroupBy,
    /// The slope that differs between groups, where one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slope: Option<VaryingSlope>,
}

/// A slope that differs between groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VaryingSlope {
    /// The column along which it is.
    pub along: String,
    /// That column's place in the design: it is the first, but for a column of ones.
    pub place: usize,
    /// What else differs between groups.
    pub beside: BesideSlope,
}

/// What differs between groups beside a slope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BesideSlope {
    /// Nothing.
    Nothing,
    /// The intercept, independently.
    Intercept,
    /// The intercept, with a correlation.
    CorrelatedIntercept,
}

impl From<GroupBy> for GroupTerm {
    fn from(by: GroupBy) -> Self {
        GroupTerm { by, slope: None }
    }
}

/// Columns whose missing values are integrated over, as a formula states them: `mi(chol)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LackingTerms {
    /// Their names in results: these columns of the design are the first, but for a column of ones.
    pub columns: Vec<String>,
    /// Whether there is such a column.
    pub ones: bool,
}

/// How tables become a design: the same at every site.
#[derive(Clone, Debug, PartialEq)]
pub struct DesignPlan {
    /// What the model explains.
    pub response: Response,
    /// Whether the design opens with a column of ones. Without it, the first dummy-coded term (else
    /// the site effects) keeps every level.
    pub intercept: bool,
    /// Whether such a column is made at all: a model with cut points is its own intercept.
    pub ones: bool,
    /// Whether sites say how their responses spread: usual priors are in these units.
    pub spread: bool,
    /// Whether that is of their logarithms, whether or not they are censored.
    pub logs: bool,
    /// The columns that enter, in order.
    pub terms: Vec<Term>,
    /// Products of terms, those of fewer parts first.
    pub products: Vec<Product>,
    /// Whether every site but the first has a column of its own.
    pub site_effects: bool,
    /// Which rows share an effect, where any do.
    pub group: Option<GroupBy>,
    /// The slope that differs between groups, where one does: its column is that of the first
    /// term.
    pub slope: Option<VaryingSlope>,
    /// Columns that are added to the predictor as they are.
    pub offsets: Vec<String>,
    /// The column that says how often a row counts, where one does.
    pub weights: Option<String>,
}

//! Keep how raw rows became the numbers that a model saw, and encode new rows alike.
//!
//! The rules are those that the sites agreed on, and one function applies them: to the rows that a
//! model learns from ([`crate::data::encode`]) and to the rows that it predicts.

use std::path::Path;
use std::sync::Arc;

use consilience_core::model::ABSENT;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::data::derived::{self, DerivedError};
use crate::data::formats::{
    DataFile, Format, FormatError, RawColumn, RawTable, csv, parquet, read, read_text,
};
use crate::data::stated;
use crate::data::{
    self, CellRule, Coding, Column, ColumnSpec, DesignColumn, DesignPlan, EncodeError, Kind,
    Missing, Moments, ReferenceLevel, Response, Schema, Study, Table, TableError, Term,
};
use crate::models::RowModel;
use crate::models::kept::Kept;
use crate::suggest::did_you_mean;

/// The layout's number: a reader refuses one that it does not know. Layout 1 said what is predicted
/// instead of the model.
pub(crate) const FORMAT: u32 = 2;

/// The column that names a row's site, unless the rows were dealt by another one.
const SITE: &str = "site";

/// How raw rows become a design, and what is explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Encoding {
    format: u32,
    /// The raw columns that are read, with what their values are.
    inputs: Vec<ColumnSpec>,
    /// Words that mean "missing".
    missing: Vec<String>,
    /// The columns of files without a header line, in order.
    header: Option<Vec<String>>,
    /// How each column enters, and what happens where a value is missing.
    terms: Vec<Term>,
    /// Columns that are computed of others: terms, or the response.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    computed: Vec<String>,
    /// Whether the config states how columns are coded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stated: bool,
    /// Columns that are added to the predictor as they are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    offsets: Vec<String>,
    /// The levels of each term that some row had.
    levels: Vec<Vec<String>>,
    /// The columns of the design, with means, deviations and levels in their rules.
    columns: Vec<DesignColumn>,
    /// By what each column of the design is divided at last.
    divisors: Vec<f64>,
    /// The sites.
    sites: Vec<String>,
    /// The column that names a row's site, where sites have effects.
    site_column: Option<String>,
    /// What is explained, where it stands in a column.
    response: Option<Response>,
    /// The values of a response that has classes, in order.
    classes: Option<Vec<String>>,
    /// The model.
    #[serde(alias = "outcome")]
    model: Kept,
}

/// New rows as numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// The cells of the design, row by row.
    pub cells: Vec<f64>,
    /// What is added to the predictor of every row; empty where nothing is.
    pub offset: Vec<f64>,
    /// Rows whose response is known, and what it is.
    pub labels: Vec<(usize, f64)>,
    /// What was imputed, in sentences.
    pub notes: Vec<String>,
}

/// Rows in which one column varies, and the others are what is usual.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// The column.
    pub column: String,
    /// Its value in every row.
    pub values: Vec<String>,
    /// Whether these are numbers; else they are levels, first the one that is compared with.
    pub is_number: bool,
    /// Another column and its level, where that is not what is usual: the formula has a product of
    /// both.
    pub beside: Option<(String, String)>,
    /// The cells of the design, row by row.
    pub cells: Vec<f64>,
}

/// Why new rows cannot be encoded.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EncodingError {
    /// A file that cannot be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Rows that do not fit.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// Columns that cannot be computed.
    #[error(transparent)]
    Computed(#[from] DerivedError),
    /// Rows that do not say their site.
    #[error(
        "{file}: the model has an effect of each site, and the rows do not say theirs: add a \
         column `{column}`, or name one site for \
         all of them with --site (in Python, site=...); the sites are {known}"
    )]
    NoSite {
        /// The file.
        file: String,
        /// The column that would say it.
        column: String,
        /// The sites.
        known: String,
    },
    /// A site that took no part.
    #[error("{place}: there is no effect of a site `{site}`: {hint}the sites are {known}")]
    UnknownSite {
        /// The file and the line, or the argument.
        place: String,
        /// The site.
        site: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The sites.
        known: String,
    },
    /// A site that makes no difference.
    #[error("the model has no term for sites, so none can be named: leave the site `{site}` out")]
    NeedlessSite {
        /// The site.
        site: String,
    },
}

impl From<TableError> for EncodingError {
    fn from(error: TableError) -> Self {
        EncodingError::Format(error.into())
    }
}

impl Encoding {
    /// Of rows that a formula encodes by moments. `header` names the columns of files without a
    /// header line.
    pub fn by_formula(
        schema: &Schema,
        header: Option<Vec<String>>,
        plan: &DesignPlan,
        moments: &Moments,
        model: Arc<dyn RowModel>,
    ) -> Self {
        let columns = moments.columns.clone();
        let used = |name: &str| {
            let rules = columns.iter().flat_map(|column| column.rule.parts());
            rules.filter_map(CellRule::term).any(|term| plan.terms[term].column == name)
        };
        let inputs = schema
            .columns
            .iter()
            .filter(|spec| {
                used(&spec.name)
                    || spec.name == plan.response.column()
                    || plan.offsets.contains(&spec.name)
            })
            .cloned()
            .collect();
        // A word that some row has as a level means itself.
        let missing = schema
            .missing
            .iter()
            .filter(|mark| !moments.seen.iter().flatten().any(|level| level == *mark))
            .cloned()
            .collect();
        let has_sites = columns.iter().any(|column| column.rule.asks_for_site());
        Encoding {
            format: FORMAT,
            inputs,
            missing,
            header,
            terms: plan.terms.clone(),
            computed: Vec::new(),
            stated: false,
            offsets: plan.offsets.clone(),
            levels: moments.seen.clone(),
            divisors: vec![1.0; columns.len()],
            columns,
            sites: moments.sites.clone(),
            site_column: has_sites.then(|| SITE.into()),
            response: Some(plan.response.clone()),
            classes: plan.response.classes().map(<[String]>::to_vec),
            model: Kept(model),
        }
    }

    /// Of a study's rows: built-in data.
    pub(crate) fn of_study(study: &Study, moments: &Moments, model: Arc<dyn RowModel>) -> Self {
        let header = (!study.schema.header)
            .then(|| study.schema.columns.iter().map(|spec| spec.name.clone()).collect());
        Encoding::by_formula(&study.schema, header, &study.plan, moments, model)
    }

    /// Of columns as they are: numbers, and a column for every level of words but the first. `raw`
    /// is what a table had; without one there are only numbers, of these names.
    pub(crate) fn by_columns(
        names: &[String],
        raw: Option<&RawTable>,
        header: Option<Vec<String>>,
        model: Arc<dyn RowModel>,
    ) -> Self {
        let plain: Vec<RawColumn>;
        let raw_columns = match raw {
            Some(raw) => &raw.columns,
            None => {
                plain = names
                    .iter()
                    .map(|name| RawColumn { spec: ColumnSpec::number(name), levels: Vec::new() })
                    .collect();
                &plain
            }
        };
        let (mut terms, mut levels, mut columns) = (Vec::new(), Vec::new(), Vec::new());
        for (term, RawColumn { spec, levels: found }) in raw_columns.iter().enumerate() {
            let level =
                |level: &String| CellRule::Level { term, level: level.clone(), fill: false };
            let coding = match spec.kind {
                Kind::Number => {
                    columns.push(DesignColumn {
                        name: spec.name.clone(),
                        rule: CellRule::Value { term },
                    });
                    Coding::Standardised
                }
                Kind::Binary => {
                    columns
                        .push(DesignColumn { name: spec.name.clone(), rule: level(&"1".into()) });
                    Coding::Binary
                }
                // Words that are 0 and 1 are named as such numbers are.
                Kind::Category { .. } if names.contains(&spec.name) => {
                    columns
                        .push(DesignColumn { name: spec.name.clone(), rule: level(&"1".into()) });
                    Coding::Dummy(ReferenceLevel::First)
                }
                Kind::Category { .. } => {
                    let column = |k: &String| DesignColumn {
                        name: format!("{}: {k}", spec.name),
                        rule: level(k),
                    };
                    // Sites may begin with different levels; those that have columns are the same
                    // at all.
                    columns.extend(
                        found
                            .iter()
                            .filter(|k| names.contains(&format!("{}: {k}", spec.name)))
                            .map(column),
                    );
                    Coding::Dummy(ReferenceLevel::First)
                }
            };
            terms.push(Term {
                column: spec.name.clone(),
                title: spec.name.clone(),
                coding,
                missing: Missing::Refuse,
                reference: None,
                hidden: false,
            });
            levels.push(if spec.kind == Kind::Binary {
                vec!["0".into(), "1".into()]
            } else {
                found.clone()
            });
        }
        let response = raw.map(|raw| Response::Value { column: raw.response.name.clone() });
        Encoding {
            format: FORMAT,
            inputs: raw_columns
                .iter()
                .map(|column| column.spec.clone())
                .chain(raw.map(|raw| raw.response.clone()))
                .collect(),
            missing: Schema::new(Vec::new()).missing,
            header,
            terms,
            computed: Vec::new(),
            stated: false,
            offsets: Vec::new(),
            levels,
            divisors: vec![1.0; columns.len()],
            columns,
            sites: Vec::new(),
            site_column: None,
            response,
            classes: None,
            model: Kept(model),
        }
    }

    /// The same where some columns are computed of these.
    pub(crate) fn with_computed(mut self, raw: Vec<ColumnSpec>) -> Self {
        let names = self.inputs.iter().map(|spec| spec.name.clone());
        self.computed = names.filter(|name| derived::is_computed(name)).collect();
        self.inputs.retain(|spec| !self.computed.contains(&spec.name));
        for spec in raw {
            if self.inputs.iter().all(|known| known.name != spec.name) {
                self.inputs.push(spec);
            }
        }
        self
    }

    /// The same where the config states how columns are coded, or not.
    pub(crate) fn stated(self, stated: bool) -> Self {
        Encoding { stated, ..self }
    }

    /// The table with the columns that are computed; the response may be missing.
    fn compute(&self, table: &Table) -> Result<Table, EncodingError> {
        let terms: Vec<&str> = self.computed.iter().map(String::as_str).collect();
        let response = self.response.as_ref().map(Response::column);
        Ok(derived::extend(table, &terms, |term| Some(term) == response)?)
    }

    /// The same where rows say their site in this column.
    pub(crate) fn with_site_column(mut self, column: Option<&str>) -> Self {
        if let (Some(known), Some(column)) = (&mut self.site_column, column) {
            *known = column.into();
        }
        self
    }

    /// The same where a response that has classes has these values, in order.
    pub(crate) fn with_classes(self, classes: Option<Vec<String>>) -> Self {
        Encoding { classes, ..self }
    }

    /// The same where the response is the number of this column.
    pub(crate) fn with_response(mut self, spec: ColumnSpec) -> Self {
        self.response = Some(Response::Value { column: spec.name.clone() });
        self.inputs.push(spec);
        self
    }

    /// The same with columns divided, in their order and without an intercept, and with or without
    /// an intercept of its own.
    pub fn scaled(mut self, divisors: &[f64], intercept: bool) -> Self {
        self.columns.retain(|column| column.rule != CellRule::Intercept);
        self.divisors = divisors.to_vec();
        if intercept {
            self.columns
                .insert(0, DesignColumn { name: "intercept".into(), rule: CellRule::Intercept });
            self.divisors.insert(0, 1.0);
        }
        self
    }

    /// How the columns were coded, as lines of `[target.coding]`: who states them codes rows so
    /// without asking any site. They are exact functions of the rows that they were found by,
    /// unless they were stated then. Nothing, where columns entered as they were, without a
    /// formula.
    pub fn as_stated(&self) -> String {
        let rules = || self.columns.iter().flat_map(|column| column.rule.parts());
        if rules().any(|rule| matches!(rule, CellRule::Value { .. })) {
            return String::new();
        }
        let list = |values: Vec<f64>| {
            let each: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("[{}]", each.join(", "))
        };
        let word = |level: &String| match level.parse::<f64>() {
            Ok(number) if number.to_string() == *level => level.clone(),
            _ => toml::Value::String(level.clone()).to_string(),
        };
        let mut lines = Vec::new();
        for (at, term) in self.terms.iter().enumerate() {
            let of = |rule: &&CellRule| rule.term() == Some(at);
            let mut parts: Vec<String> = Vec::new();
            match term.coding {
                Coding::Standardised | Coding::Centred | Coding::Raw => {
                    match rules().filter(of).find(|rule| !matches!(rule, CellRule::Missing { .. }))
                    {
                        Some(CellRule::Standardised { mean, sd, .. }) => {
                            parts.push(format!("centre = {mean:?}"));
                            if term.coding == Coding::Standardised {
                                parts.push(format!("scale = {sd:?}"));
                            }
                        }
                        Some(CellRule::Raw { mean, .. }) if term.missing != Missing::Refuse => {
                            parts.push(format!("impute = {mean:?}"));
                        }
                        Some(_) => {}
                        None => continue, // left out
                    }
                }
                Coding::Spline(spline) => {
                    let mut columns: Vec<(usize, f64, f64, f64)> = Vec::new();
                    let mut found = None;
                    for rule in rules().filter(of) {
                        if let CellRule::Spline { part, knots, centre, scale, usual, .. } = rule
                            && columns.iter().all(|(known, ..)| known != part)
                        {
                            columns.push((*part, *centre, *scale, *usual));
                            found = Some(knots);
                        }
                    }
                    let Some(knots) = found else { continue };
                    columns.sort_by_key(|(part, ..)| *part);
                    parts.push(format!("knots = {}", list(knots.inner.clone())));
                    parts.push(format!("bounds = {}", list(vec![knots.bounds.0, knots.bounds.1])));
                    if spline.standardised {
                        let of = |value: fn(&(usize, f64, f64, f64)) -> f64| {
                            list(columns.iter().map(value).collect())
                        };
                        parts.push(format!("centre = {}", of(|column| column.1)));
                        parts.push(format!("scale = {}", of(|column| column.2)));
                    } else if term.missing != Missing::Refuse {
                        let usual = columns.iter().map(|column| column.3).collect();
                        parts.push(format!("impute = {}", list(usual)));
                    }
                }
                Coding::Binary | Coding::Dummy(_) => {
                    let own = |rule: &CellRule| match rule {
                        CellRule::Level { level, fill, .. } => Some((level.clone(), *fill)),
                        _ => None,
                    };
                    let columns: Vec<(String, bool)> = rules().filter(of).filter_map(own).collect();
                    if columns.is_empty() {
                        continue;
                    }
                    let levels = match term.coding {
                        Coding::Binary => vec!["0".to_owned(), "1".to_owned()],
                        _ => self.levels[at].clone(),
                    };
                    let written: Vec<String> = levels.iter().map(word).collect();
                    parts.push(format!("levels = [{}]", written.join(", ")));
                    let has = |level: &&String| columns.iter().any(|(known, _)| known == *level);
                    let reference = levels.iter().find(|level| !has(level));
                    let later = reference.filter(|level| **level != levels[0]);
                    if let Some(level) = later.filter(|_| term.reference.is_none()) {
                        parts.push(format!("reference = {}", word(level)));
                    }
                    let filled = columns.iter().find(|(_, fill)| *fill).map(|(level, _)| level);
                    if let Some(level) =
                        filled.or(reference).filter(|_| term.missing != Missing::Refuse)
                    {
                        parts.push(format!("impute = {}", word(level)));
                    }
                }
            }
            if rules().filter(of).any(|rule| matches!(rule, CellRule::Missing { .. })) {
                parts.push("mark = true".into());
            }
            // a spline of a column that enters otherwise, too, is called as it is written
            let twice = self.terms.iter().filter(|other| other.column == term.column).count() > 1;
            let name = match term.coding {
                Coding::Spline(_) if twice => &term.title,
                _ => &term.column,
            };
            let line = format!("{} = {{ {} }}\n", stated::key(name), parts.join(", "));
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.concat()
    }

    /// The layout of a file that this program can read, else why not.
    pub fn check(&self) -> Result<(), String> {
        let places = |rule: &CellRule| rule.term().is_none_or(|term| term < self.terms.len());
        let numbers = |rule: &CellRule| match rule {
            CellRule::Product { .. } => false, // no product is a part of another
            CellRule::Standardised { mean, sd, .. } => {
                mean.is_finite() && sd.is_finite() && *sd > 0.0
            }
            CellRule::Spline { part, knots, centre, scale, usual, .. } => {
                let finite = [*centre, *scale, *usual].iter().all(|number| number.is_finite());
                knots.check() && *part < knots.spline.df as usize && finite && *scale > 0.0
            }
            _ => true,
        };
        if !(1..=FORMAT).contains(&self.format) {
            return Err(format!(
                "it has layout {}; this program knows layouts up to {FORMAT}",
                self.format
            ));
        }
        if self.levels.len() != self.terms.len()
            || !self.columns.iter().flat_map(|c| c.rule.parts()).all(|r| places(r) && numbers(r))
        {
            return Err("its rules do not fit its terms".into());
        }
        if self.divisors.len() != self.columns.len()
            || !self.divisors.iter().all(|divisor| divisor.is_finite() && *divisor != 0.0)
        {
            return Err("its divisors do not fit its columns".into());
        }
        Ok(())
    }

    /// The names of the design's columns.
    pub fn columns(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// By what a column of the design was divided, where it is a number that was standardised.
    pub fn unit(&self, column: &str) -> Option<f64> {
        let found = self.columns.iter().find(|known| known.name == column)?;
        let sd = |rule: &CellRule| match rule {
            CellRule::Standardised { sd, .. } => Some(*sd),
            _ => None,
        };
        found.rule.parts().iter().filter_map(sd).reduce(|a, b| a * b)
    }

    /// The site of rows that are of no site in particular, where sites have effects.
    pub fn usual_site(&self) -> Option<&str> {
        self.site_column.as_ref().and(self.sites.first()).map(String::as_str)
    }

    /// The model.
    pub fn model(&self) -> &Arc<dyn RowModel> {
        &self.model.0
    }

    /// What is explained, in words, where that is known.
    pub fn explained(&self) -> Option<String> {
        let response = self.response.as_ref()?;
        match response {
            Response::Value { column } | Response::Class { column, .. } => {
                self.model.0.explained(column, self.classes.as_deref())
            }
            _ => Some(response.to_string()),
        }
    }

    /// The values of a response that has classes, in order.
    pub fn classes(&self) -> Option<&[String]> {
        self.classes.as_deref()
    }

    /// Rows in which one column after the other varies and the others stay what is usual: numbers
    /// at their federated mean, words at the level that others are compared with, an offset of 0.
    /// A column that is multiplied with one of words varies beside each of its levels. Else why
    /// there are none.
    pub fn grids(&self) -> Result<Vec<Grid>, String> {
        let mut usual: Vec<(String, String)> = Vec::new();
        let mut vary: Vec<(String, Vec<String>, bool)> = Vec::new();
        for spec in self.inputs.iter().filter(|spec| self.is_needed(&spec.name)) {
            let term = self.terms.iter().position(|term| term.column == spec.name);
            let rules: Vec<&CellRule> = self
                .columns
                .iter()
                .flat_map(|column| column.rule.parts())
                .filter(|rule| term.is_some() && rule.term() == term)
                .collect();
            let levels = term.map(|term| &self.levels[term]).filter(|levels| !levels.is_empty());
            let number = rules.iter().find_map(|rule| match rule {
                CellRule::Standardised { mean, sd, .. } => Some((*mean, *sd, None)),
                CellRule::Spline { knots, .. } => {
                    Some((knots.moments.0, knots.moments.1, Some(knots.bounds)))
                }
                _ => None,
            });
            let in_offset = |name: &String| {
                *name == spec.name || derived::columns_of(name).contains(&spec.name)
            };
            if let Some((mean, sd, bounds)) = number {
                let value = |k: i32| {
                    let value = mean + 0.2 * f64::from(k) * sd;
                    bounds.map_or(value, |(low, high)| value.clamp(low, high)).to_string()
                };
                let mut values: Vec<String> = (-10..=10).map(value).collect();
                values.dedup(); // those beyond a spline's outer knots
                vary.push((spec.name.clone(), values, true));
                usual.push((spec.name.clone(), mean.to_string()));
            } else if let Some(levels) = levels {
                let has_column = |level: &String| {
                    rules.iter().any(|rule| {
                        matches!(rule, CellRule::Level { level: known, .. } if known == level)
                    })
                };
                let reference = levels.iter().find(|level| !has_column(level));
                let reference = reference.unwrap_or(&levels[0]).clone();
                let rest = levels.iter().filter(|level| **level != reference).cloned();
                let all = std::iter::once(reference.clone()).chain(rest).collect();
                vary.push((spec.name.clone(), all, false));
                usual.push((spec.name.clone(), reference));
            } else if term.is_none() && self.offsets.iter().any(in_offset) {
                usual.push((spec.name.clone(), "1".into()));
            } else {
                return Err(format!(
                    "nobody said what is usual of the column {}, which enters as it is, or by a \
                     function alone",
                    spec.name
                ));
            }
        }
        let quoted = |text: &String| format!("\"{}\"", text.replace('"', "\"\""));
        let header: Vec<String> = usual.iter().map(|(name, _)| quoted(name)).collect();
        let site = self.usual_site();
        let mut grids = Vec::new();
        for (column, values, is_number) in &vary {
            let besides = vary.iter().filter(|(other, _, numbers)| {
                !numbers && other != column && self.are_multiplied(column, other)
            });
            let levels = besides.flat_map(|(other, levels, _)| {
                levels[1..].iter().map(|level| Some((other.clone(), level.clone())))
            });
            for beside in std::iter::once(None).chain(levels) {
                let mut text = header.join(",") + "\n";
                for value in values {
                    let cell = |(name, usual): &(String, String)| {
                        let other = beside.as_ref().filter(|(other, _)| other == name);
                        let usual = other.map_or(usual, |(_, level)| level);
                        quoted(if name == column { value } else { usual })
                    };
                    text += &(usual.iter().map(cell).collect::<Vec<_>>().join(",") + "\n");
                }
                let table = self.parse(&text, "the grid").map_err(|e| e.to_string())?;
                let encoded = self.apply(&table, site).map_err(|e| e.to_string())?;
                let Encoded { cells, .. } = encoded;
                let (column, values, is_number) = (column.clone(), values.clone(), *is_number);
                grids.push(Grid { column, values, is_number, beside, cells });
            }
        }
        Ok(grids)
    }

    /// Whether some column of the design is a product of both.
    fn are_multiplied(&self, a: &str, b: &str) -> bool {
        let reads = |rule: &CellRule, name: &str| {
            let terms = rule.parts().iter().filter_map(CellRule::term);
            terms.map(|term| &self.terms[term].column).any(|column| column == name)
        };
        self.columns.iter().any(|column| reads(&column.rule, a) && reads(&column.rule, b))
    }

    /// Read new rows and encode them. All of them are of this site, where one is named.
    pub fn read(&self, path: &Path, site: Option<&str>) -> Result<Encoded, EncodingError> {
        let file = path.display().to_string();
        let table = match DataFile::new(path).format() {
            Ok(Format::Parquet) => self.adopt(&parquet::parse(&read(path)?, &file)?)?,
            Ok(Format::Csv) | Err(_) => self.parse(&read_text(path)?, &file)?,
            Ok(_) => self.adopt(&self.without_names(path)?)?,
        };
        self.apply(&table, site)
    }

    /// Encode new rows of a table in memory.
    pub fn encode(&self, table: &Table, site: Option<&str>) -> Result<Encoded, EncodingError> {
        self.apply(&self.adopt(table)?, site)
    }

    /// The columns of a text. The response may be missing, as may the site.
    fn parse(&self, text: &str, file: &str) -> Result<Table, EncodingError> {
        let separator = csv::separator(text);
        let first = first_line(text, separator);
        let schema = |columns: Vec<ColumnSpec>| Schema {
            missing: self.missing.clone(),
            ..Schema::new(columns).separated_by(separator)
        };
        let Some(names) = self.header.as_ref().filter(|_| !self.is_header(&first)) else {
            let there =
                |spec: &&ColumnSpec| self.is_needed(&spec.name) || first.contains(&spec.name);
            let columns = self.specs().iter().filter(there).cloned().collect();
            return Ok(Table::parse(text, file, &schema(columns))?);
        };
        // Without a header line columns are known by their places, with or without the response.
        let response = self.response.as_ref().map(Response::column);
        let without = || names.iter().filter(|name| Some(name.as_str()) != response);
        let specs = self.specs();
        let spec = |name: &String| {
            specs
                .iter()
                .find(|spec| spec.name == *name)
                .cloned()
                .unwrap_or_else(|| ColumnSpec::category(name))
        };
        let columns = if first.len() + 1 == names.len() && without().count() == first.len() {
            without().map(spec).collect()
        } else {
            names.iter().map(spec).collect()
        };
        Ok(Table::parse(text, file, &schema(columns).without_header())?)
    }

    /// The features of a file whose format has no names, under those that it gives them. Labels are
    /// left aside.
    fn without_names(&self, path: &Path) -> Result<Table, EncodingError> {
        let data =
            DataFile { columns: Some(self.inputs.len()), ..DataFile::new(path) }.dataset(None)?;
        let raw = data.divisors(&vec![1.0; data.columns.len()]); // bytes, as they are in the file
        let values =
            |k: usize| (0..data.rows()).map(|row| Some(data.cell(row, k) * raw[k])).collect();
        let columns = (0..data.columns.len()).map(|k| Column::Number(values(k))).collect();
        let specs = data.columns.iter().map(|name| ColumnSpec::number(name)).collect();
        Ok(Table::from_columns(&path.display().to_string(), specs, columns)?)
    }

    /// The columns of a table of another kind.
    fn adopt(&self, table: &Table) -> Result<Table, EncodingError> {
        // A column that is not there is looked for among all of them, not only those that are read.
        for spec in self.inputs.iter().filter(|spec| self.is_needed(&spec.name)) {
            data::lookup(table, &spec.name)?;
        }
        Ok(table.reread(&self.specs(), &self.missing)?)
    }

    /// What is read: the inputs, and the site.
    fn specs(&self) -> Vec<ColumnSpec> {
        let site = self
            .site_column
            .iter()
            .filter(|site| self.inputs.iter().all(|spec| spec.name != **site));
        self.inputs.iter().cloned().chain(site.map(|site| ColumnSpec::category(site))).collect()
    }

    /// Whether the design reads this raw column.
    fn is_needed(&self, name: &str) -> bool {
        let rules = self.columns.iter().flat_map(|column| column.rule.parts());
        let of_terms = rules.filter_map(CellRule::term);
        of_terms.map(|term| &self.terms[term].column).chain(&self.offsets).any(|column| {
            column == name
                || (self.computed.contains(column)
                    && derived::columns_of(column).iter().any(|of| of == name))
        })
    }

    /// Whether a line names at least half of the columns that the design reads.
    fn is_header(&self, fields: &[String]) -> bool {
        let needed: Vec<&ColumnSpec> =
            self.inputs.iter().filter(|spec| self.is_needed(&spec.name)).collect();
        !needed.is_empty()
            && 2 * needed.iter().filter(|spec| fields.contains(&spec.name)).count() >= needed.len()
    }

    fn apply(&self, table: &Table, site: Option<&str>) -> Result<Encoded, EncodingError> {
        let table = &self.compute(table)?;
        let sites = self.sites(table, site)?;
        let of = |row: usize| sites.get(row).or_else(|| sites.first()).map_or("", String::as_str);
        let mut cells = data::design(table, &self.terms, &self.columns, &self.levels, &of)?;
        for row in cells.chunks_exact_mut(self.columns.len().max(1)) {
            // a cell that marks what is missing stays as it is
            let cells = row.iter_mut().zip(&self.divisors).filter(|(cell, _)| **cell != ABSENT);
            cells.for_each(|(cell, divisor)| *cell /= divisor);
        }
        let offset = data::offset(table, &self.offsets)?;
        Ok(Encoded { cells, offset, labels: self.labels(table)?, notes: self.imputed(table) })
    }

    /// The site of every row, or of all.
    fn sites(&self, table: &Table, given: Option<&str>) -> Result<Vec<String>, EncodingError> {
        let Some(column) = &self.site_column else {
            return given.map_or(Ok(Vec::new()), |site| {
                Err(EncodingError::NeedlessSite { site: site.into() })
            });
        };
        let known = || self.sites.join(", ");
        let unknown = |site: &str, place: String| EncodingError::UnknownSite {
            place,
            site: site.into(),
            hint: did_you_mean(site, self.sites.iter().map(String::as_str)),
            known: known(),
        };
        if let Some(site) = given {
            let is_known = self.sites.iter().any(|known| known == site);
            return if is_known {
                Ok(vec![site.into()])
            } else {
                Err(unknown(site, "the site that is named".into()))
            };
        }
        let Some((_, values)) = table.column(column) else {
            return Err(EncodingError::NoSite {
                file: table.file().into(),
                column: column.clone(),
                known: known(),
            });
        };
        let site = |row: usize| {
            let Some(site) = data::word(values, row) else {
                let (file, at, column) = (table.file().into(), table.place(row), column.clone());
                return Err(EncodeError::MissingValue {
                    file,
                    at,
                    column,
                    fix: "name the row's site",
                }
                .into());
            };
            let is_known = self.sites.contains(&site);
            if is_known {
                Ok(site)
            } else {
                Err(unknown(&site, format!("{}, {}", table.file(), table.place(row))))
            }
        };
        (0..table.rows()).map(site).collect()
    }

    /// The response of the rows that have one.
    fn labels(&self, table: &Table) -> Result<Vec<(usize, f64)>, EncodingError> {
        let Some(response) = &self.response else { return Ok(Vec::new()) };
        let Some((_, values)) = table.column(response.column()) else { return Ok(Vec::new()) };
        let rows: Vec<usize> = (0..table.rows()).filter(|row| !values.is_missing(*row)).collect();
        let Some(classes) = &self.classes else {
            let known = table.select(&rows.iter().map(|row| *row as u32).collect::<Vec<_>>());
            return Ok(rows.into_iter().zip(data::response(&known, response)?).collect());
        };
        let class = |row: usize| {
            let found = data::word(values, row).unwrap_or_default();
            let class =
                data::class_of(&found, classes).ok_or_else(|| EncodeError::UnknownLevel {
                    file: table.file().into(),
                    at: table.place(row),
                    column: response.column().into(),
                    known: data::known_levels(&found, classes),
                    level: found,
                })?;
            Ok((row, class as f64))
        };
        rows.into_iter().map(class).collect()
    }

    /// Values beyond the outer knots of splines.
    fn outside(&self, table: &Table) -> Vec<String> {
        let mut told: Vec<usize> = Vec::new();
        let note = |rule: &CellRule| {
            let CellRule::Spline { term, part: 0, knots, .. } = rule else { return None };
            if told.contains(term) {
                return None;
            }
            told.push(*term);
            let Term { column, title, .. } = &self.terms[*term];
            let (_, Column::Number(cells)) = table.column(column)? else { return None };
            let (low, high) = knots.bounds;
            let outside = cells.iter().flatten().filter(|x| !(low..=high).contains(*x)).count();
            let how = match knots.spline.natural {
                true => "straight",
                false => "as a polynomial, which may be far off",
            };
            (outside > 0).then(|| {
                format!(
                    "{title}: {outside} of {} values lie outside {low} to {high}, where it was \
                     fitted: it goes on {how}.",
                    table.rows()
                )
            })
        };
        self.columns.iter().flat_map(|column| column.rule.parts()).filter_map(note).collect()
    }

    /// What is missing and imputed.
    fn imputed(&self, table: &Table) -> Vec<String> {
        let note = |(at, term): (usize, &Term)| {
            let read = self.columns.iter().any(|column| column.rule.reads(at));
            let missing = table
                .column(&term.column)
                .filter(|_| read)
                .map_or(0, |(_, values)| values.missing());
            let by = if self.stated {
                "what the config states"
            } else if term.coding.is_number() {
                "the federated mean"
            } else {
                "the most common level of the federation"
            };
            if missing > 0 && term.missing == Missing::Integrate {
                return Some(format!(
                    "{}: {missing} of {} values are missing, and integrated over.",
                    term.title,
                    table.rows()
                ));
            }
            (missing > 0).then(|| {
                format!(
                    "{}: {missing} of {} values are missing, imputed by {by}.",
                    term.title,
                    table.rows()
                )
            })
        };
        let imputed = self.terms.iter().enumerate().filter_map(note);
        imputed.chain(self.outside(table)).collect()
    }
}

/// The fields of the first line.
fn first_line(text: &str, separator: u8) -> Vec<String> {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .trim(::csv::Trim::All)
        .delimiter(separator)
        .from_reader(text.as_bytes());
    let mut record = ::csv::StringRecord::new();
    match reader.read_record(&mut record) {
        Ok(true) => record.iter().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

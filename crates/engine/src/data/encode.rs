//! Encode one site's rows by the moments of the federation.

use std::borrow::Cow;

use consilience_core::model::ABSENT;
use thiserror::Error;

use super::formats::At;
use super::spline::Basis;
use super::{
    Category, CellRule, Coding, Column, ColumnSpec, DesignColumn, DesignPlan, GroupBy, Kind,
    Missing, Moments, Response, SiteData, Table, Term,
};
use crate::suggest::{column_hint, did_you_mean};

/// So many levels are listed in a complaint.
const MOST_LISTED: usize = 20;

/// Why tables cannot become a design.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EncodeError {
    /// No site at all.
    #[error("there are no sites: give at least one table")]
    NoSites,
    /// Two sites of one name.
    #[error("two sites are called `{site}`: give each its own name")]
    SameName {
        /// The name.
        site: String,
    },
    /// A site that the server has not heard of.
    #[error("the site `{site}` sent no summary: the moments know {known}")]
    UnknownSite {
        /// The site.
        site: String,
        /// The sites that did.
        known: String,
    },
    /// A column that the table does not have.
    #[error("{file}: there is no column `{column}`: {hint}the columns are {columns}")]
    NoColumn {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// A nearby name, or nothing.
        hint: String,
        /// The columns that there are.
        columns: String,
    },
    /// A column of the wrong kind.
    #[error("{file}: the column `{column}` cannot be {wanted}: {fix}")]
    WrongKind {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// What it was wanted for.
        wanted: &'static str,
        /// What to do.
        fix: &'static str,
    },
    /// A missing value where none is allowed.
    #[error("{file}, {at}, column `{column}`: the value is missing: {fix}")]
    MissingValue {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// The column.
        column: String,
        /// What to do.
        fix: &'static str,
    },
    /// A row that cannot count so often.
    #[error("{file}, {at}, column `{column}`: the weight is {found}: weights are 0 or more")]
    Weight {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// The column.
        column: String,
        /// What stands there.
        found: f64,
    },
    /// A level that no summary reported.
    #[error("{file}, {at}, column `{column}`: no site has the level `{level}`: {known}")]
    UnknownLevel {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// The column.
        column: String,
        /// The level.
        level: String,
        /// A nearby level, if there is one, and the levels that the sites have, in words.
        known: String,
    },
    /// A response that is none of the classes.
    #[error("{file}, {at}, column `{column}`: {problem}")]
    UnknownClass {
        /// The file.
        file: String,
        /// Where.
        at: At,
        /// The column.
        column: String,
        /// What stands there, and which classes there are.
        problem: String,
    },
    /// A level to compare with that no row has.
    #[error("C({column}, ref = \"{level}\"): no site has that level: {known}")]
    NoReference {
        /// The column.
        column: String,
        /// The level.
        level: String,
        /// A nearby level, if there is one, and the levels that the sites have, in words.
        known: String,
    },
    /// A response that is the same in every row of every site.
    #[error(
        "`{response}` holds in {positive} of {rows} rows: it must hold in some and fail in others, \
         so check its spelling (case counts)"
    )]
    OneClass {
        /// The response.
        response: String,
        /// In how many rows it holds.
        positive: u64,
        /// How many rows there are.
        rows: u64,
    },
    /// A slope that differs between groups along a column that is not there.
    #[error(
        "the slope of `{column}` cannot differ between groups: it is no column of numbers, or it \
         is the same in all rows, or others determine it; name another, or leave the slope out"
    )]
    NoSlope {
        /// The column.
        column: String,
    },
    /// A spline that the values do not carry.
    #[error("`{spline}` in the formula: {problem}")]
    Spline {
        /// The spline.
        spline: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A column whose missing values cannot be integrated over.
    #[error(
        "mi({column}) in the formula: `{column}` is the same in all rows, or known in none, or the \
         site effects determine it; leave it out"
    )]
    NoLaw {
        /// The column.
        column: String,
    },
    /// Nothing left to estimate.
    #[error("the design has no columns: keep the intercept or name a term that varies")]
    NoColumns,
    /// Moments that do not belong to the plan.
    #[error(
        "the moments were made for another plan than this one of {terms} terms: send the server \
         this plan's summary"
    )]
    OtherPlan {
        /// How many terms this plan has.
        terms: usize,
    },
    /// More is asked of a spline's column than its knots can need.
    #[error(
        "the server asks for more of `{column}` than the knots of splines can need ({most} counts \
         or sums in a run): with them it would learn the values. Nothing more is told"
    )]
    TooCurious {
        /// Which column.
        column: String,
        /// How many there are at the most.
        most: usize,
    },
    /// A summary that does not belong to the plan.
    #[error("the summary of site `{site}` is refused: {problem}")]
    Summary {
        /// The site.
        site: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Encode a site's rows: every number that is used, but for the rows themselves, is the
/// federation's.
pub fn encode(
    site: &str,
    table: &Table,
    plan: &DesignPlan,
    moments: &Moments,
) -> Result<SiteData, EncodeError> {
    if !moments.sites.iter().any(|known| known == site) {
        return Err(EncodeError::UnknownSite {
            site: site.into(),
            known: moments.sites.join(", "),
        });
    }
    let known = |rule: &CellRule| {
        rule.parts().iter().all(|part| part.term().is_none_or(|term| term < plan.terms.len()))
    };
    if moments.levels.len() != plan.terms.len()
        || !moments.columns.iter().all(|column| known(&column.rule))
    {
        return Err(EncodeError::OtherPlan { terms: plan.terms.len() });
    }
    let cells = design(table, &plan.terms, &moments.columns, &moments.levels, &|_| site)?;
    Ok(SiteData {
        name: site.into(),
        cells,
        columns: moments.columns.len(),
        response: response(table, &plan.response)?,
        groups: groups(table, plan.group.as_ref())?,
        group_names: group_names(site, table, plan.group.as_ref())?,
        offset: offset(table, &plan.offsets)?,
        weights: weights(table, plan.weights.as_deref())?,
    })
}

/// What is added to the predictor of every row: the sum of these columns; empty where there are
/// none.
pub(crate) fn offset(table: &Table, columns: &[String]) -> Result<Vec<f64>, EncodeError> {
    const FIX: &str = "an offset is never imputed, so fill it in, or leave the row out";
    let mut sum = Vec::new();
    for column in columns {
        let values = every_number(table, column, "an offset", FIX)?;
        match sum.is_empty() {
            true => sum = values,
            false => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
        }
    }
    Ok(sum)
}

/// How often every row counts; empty where no column says so.
pub(crate) fn weights(table: &Table, column: Option<&str>) -> Result<Vec<f64>, EncodeError> {
    const FIX: &str = "say how often the row counts, or leave it out";
    let Some(column) = column else { return Ok(Vec::new()) };
    let values = every_number(table, column, "a weight", FIX)?;
    match values.iter().position(|weight| !(weight.is_finite() && *weight >= 0.0)) {
        Some(row) => Err(EncodeError::Weight {
            file: table.file().into(),
            at: table.place(row),
            column: column.into(),
            found: values[row],
        }),
        None => Ok(values),
    }
}

/// The numbers of a column in which none is missing.
fn every_number(
    table: &Table,
    column: &str,
    wanted: &'static str,
    fix: &'static str,
) -> Result<Vec<f64>, EncodeError> {
    let (spec, cells) = lookup(table, column)?;
    if let Some(row) = (0..table.rows()).find(|row| cells.is_missing(*row)) {
        return Err(missing(table, row, column, fix));
    }
    match cells {
        Column::Number(cells) => Ok(cells.iter().flatten().copied().collect()),
        Column::Category(category) if spec.kind == Kind::Binary => {
            Ok(category.cells.iter().flatten().map(|level| *level as f64).collect())
        }
        Column::Category(_) => Err(EncodeError::WrongKind {
            file: table.file().into(),
            column: column.into(),
            wanted,
            fix: "it has words, so name a column of numbers",
        }),
    }
}

/// The group of every row, numbered from 0 as they come; empty where rows are in none.
pub(crate) fn groups(table: &Table, by: Option<&GroupBy>) -> Result<Vec<u32>, EncodeError> {
    let name = match by {
        None => return Ok(Vec::new()),
        Some(GroupBy::Site) => return Ok(vec![0; table.rows()]),
        Some(GroupBy::Column(name)) => name,
    };
    let category = match lookup(table, name)?.1 {
        Column::Category(category) => Cow::Borrowed(category),
        Column::Number(cells) => Cow::Owned(Category::of_numbers(cells)),
    };
    let mut known: Vec<Option<u32>> = vec![None; category.levels.len()];
    let mut next = 0;
    let number = |(row, cell): (usize, &Option<usize>)| {
        let fix = "say which group the row belongs to, or leave the row out";
        let level = cell.ok_or_else(|| missing(table, row, name, fix))?;
        Ok(*known[level].get_or_insert_with(|| {
            next += 1;
            next - 1
        }))
    };
    category.cells.iter().enumerate().map(number).collect()
}

/// What the groups are called, in the order of their numbers.
pub(crate) fn group_names(
    site: &str,
    table: &Table,
    by: Option<&GroupBy>,
) -> Result<Vec<String>, EncodeError> {
    let name = match by {
        None => return Ok(Vec::new()),
        Some(GroupBy::Site) => return Ok(vec![site.into()]),
        Some(GroupBy::Column(name)) => name,
    };
    let category = match lookup(table, name)?.1 {
        Column::Category(category) => Cow::Borrowed(category),
        Column::Number(cells) => Cow::Owned(Category::of_numbers(cells)),
    };
    let mut names: Vec<String> = Vec::new();
    for level in category.cells.iter().flatten().map(|level| &category.levels[*level]) {
        if !names.contains(level) {
            names.push(level.clone());
        }
    }
    Ok(names)
}

/// The cells of the design, row by row. `levels` has those that each term may have, and `site`
/// tells each row's site.
pub(crate) fn design<'a>(
    table: &Table,
    terms: &[Term],
    columns: &[DesignColumn],
    levels: &[Vec<String>],
    site: &dyn Fn(usize) -> &'a str,
) -> Result<Vec<f64>, EncodeError> {
    let width = columns.len();
    let mut cells = vec![0.0; table.rows() * width];
    let mut splined = None;
    for (at, column) in columns.iter().enumerate() {
        let parts = column.rule.parts();
        for (k, rule) in parts.iter().enumerate() {
            let mut fill = |value: &dyn Fn(usize) -> f64| {
                for row in 0..table.rows() {
                    let cell = &mut cells[row * width + at];
                    *cell = if k == 0 { value(row) } else { *cell * value(row) };
                }
            };
            fill_by(table, terms, rule, levels, site, &mut splined, &mut fill)?;
        }
    }
    Ok(cells)
}

/// The columns of the last spline, which stand side by side: its term, and one list a row.
type Splined = Option<(usize, Vec<Option<Vec<f64>>>)>;

/// What takes the value of every row.
type Fill<'f> = dyn FnMut(&dyn Fn(usize) -> f64) + 'f;

/// Fill the cells of one column by one rule.
fn fill_by<'a>(
    table: &Table,
    terms: &[Term],
    rule: &CellRule,
    levels: &[Vec<String>],
    site: &dyn Fn(usize) -> &'a str,
    splined: &mut Splined,
    fill: &mut Fill<'_>,
) -> Result<(), EncodeError> {
    match rule {
        CellRule::Intercept => fill(&|_| 1.0),
        CellRule::Site { site: named } => fill(&|row| f64::from(u8::from(named == site(row)))),
        CellRule::Standardised { term, mean, sd } => {
            let values = numbers(table, &terms[*term])?;
            let absent = if terms[*term].missing == Missing::Integrate { ABSENT } else { 0.0 };
            fill(&|row| values[row].map_or(absent, |value| (value - mean) / sd));
        }
        CellRule::Raw { term, mean } => {
            let values = numbers(table, &terms[*term])?;
            fill(&|row| values[row].unwrap_or(*mean));
        }
        CellRule::Value { term } => {
            let values = numbers(table, &terms[*term])?;
            fill(&|row| values[row].unwrap_or(0.0));
        }
        CellRule::Spline { term, part, knots, centre, scale, usual } => {
            let values = numbers(table, &terms[*term])?;
            if splined.as_ref().is_none_or(|(known, _)| known != term) {
                let basis = Basis::new(knots);
                let rows = values.iter().map(|value| value.map(|value| basis.at(value)));
                *splined = Some((*term, rows.collect()));
            }
            let rows: &[Option<Vec<f64>>] = splined.as_ref().map_or(&[], |(_, rows)| rows);
            let value = |row: usize| rows[row].as_ref().map_or(*usual, |parts| parts[*part]);
            fill(&|row| (value(row) - centre) / scale);
        }
        CellRule::Missing { term } => {
            let (_, values) = lookup(table, &terms[*term].column)?;
            fill(&|row| f64::from(u8::from(values.is_missing(row))));
        }
        CellRule::Level { term, level, fill: imputed } => {
            let category = self::levels(table, &terms[*term])?;
            check_levels(table, &terms[*term], &category, &levels[*term])?;
            let here = category.levels.iter().position(|known| known == level);
            fill(&|row| {
                f64::from(u8::from(category.cells[row].map_or(*imputed, |cell| Some(cell) == here)))
            });
        }
        CellRule::Product { parts: _ } => fill(&|_| f64::NAN), // no product is a part of another
    }
    Ok(())
}

/// Refuse a row whose level is none of those that are known.
fn check_levels(
    table: &Table,
    term: &Term,
    category: &Category,
    known: &[String],
) -> Result<(), EncodeError> {
    let strange: Vec<bool> = category.levels.iter().map(|level| !known.contains(level)).collect();
    let Some((row, level)) = category
        .cells
        .iter()
        .enumerate()
        .find_map(|(row, cell)| cell.filter(|k| strange[*k]).map(|k| (row, k)))
    else {
        return Ok(());
    };
    let level = &category.levels[level];
    Err(EncodeError::UnknownLevel {
        file: table.file().into(),
        at: table.place(row),
        column: term.column.clone(),
        level: level.clone(),
        known: known_levels(level, known),
    })
}

/// "did you mean `x`? the levels are ...". One number, or one letter, is as near to another as any.
pub(crate) fn known_levels(level: &str, known: &[String]) -> String {
    let tells = level.chars().count() > 2 && level.parse::<f64>().is_err();
    let hint =
        if tells { did_you_mean(level, known.iter().map(String::as_str)) } else { String::new() };
    let most = known.iter().take(MOST_LISTED).cloned().collect::<Vec<_>>().join(", ");
    let more = if known.len() > MOST_LISTED {
        format!(" and {} more", known.len() - MOST_LISTED)
    } else {
        String::new()
    };
    format!("{hint}the levels are {most}{more}")
}

/// The response of every row.
pub(crate) fn response(table: &Table, response: &Response) -> Result<Vec<f64>, EncodeError> {
    let (spec, column) = lookup(table, response.column())?;
    if let Some(row) = (0..table.rows()).find(|row| column.is_missing(*row)) {
        return Err(missing(
            table,
            row,
            &spec.name,
            "leave out the rows whose response is unknown",
        ));
    }
    let wrong = |wanted, fix| EncodeError::WrongKind {
        file: table.file().into(),
        column: spec.name.clone(),
        wanted,
        fix,
    };
    let holds = |truth: bool| f64::from(u8::from(truth));
    Ok(match (response, column) {
        (Response::Class { classes, .. }, _) => classified(table, column, spec, classes)?,
        (Response::Value { .. }, Column::Number(cells)) => {
            cells.iter().flatten().copied().collect()
        }
        (Response::Above { threshold, .. }, Column::Number(cells)) => {
            cells.iter().flatten().map(|v| holds(v > threshold)).collect()
        }
        (Response::Equals { value, .. }, Column::Number(cells)) => {
            let value: f64 = value
                .parse()
                .map_err(|_| wrong("compared with a word", "compare it with a number"))?;
            cells.iter().flatten().map(|v| holds(*v == value)).collect()
        }
        (Response::Value { .. }, Column::Category(category)) if spec.kind == Kind::Binary => {
            category.cells.iter().flatten().map(|level| *level as f64).collect()
        }
        (Response::Equals { value, .. }, Column::Category(category)) => {
            let level = category.levels.iter().position(|level| level == value);
            category.cells.iter().flatten().map(|cell| holds(Some(*cell) == level)).collect()
        }
        (_, Column::Category(_)) => {
            return Err(wrong("a number", "write `column == level` as the response"));
        }
    })
}

/// The class of every row, none of which is missing.
fn classified(
    table: &Table,
    column: &Column,
    spec: &ColumnSpec,
    classes: &[String],
) -> Result<Vec<f64>, EncodeError> {
    let class = |row: usize| {
        let found = word(column, row).unwrap_or_default();
        let class = class_of(&found, classes).ok_or_else(|| EncodeError::UnknownClass {
            file: table.file().into(),
            at: table.place(row),
            column: spec.name.clone(),
            problem: format!(
                "`{found}` is no class of the model: {}",
                known_levels(&found, classes)
            ),
        })?;
        Ok(class as f64)
    };
    (0..table.rows()).map(class).collect()
}

/// Which of these values is written so; numbers may be written in several ways.
pub(crate) fn class_of(found: &str, classes: &[String]) -> Option<usize> {
    let number = found.parse::<f64>().ok();
    let is = |class: &String| *class == found || (number.is_some() && class.parse().ok() == number);
    classes.iter().position(is)
}

/// A value as it would be written, if it is there.
pub(crate) fn word(values: &Column, row: usize) -> Option<String> {
    match values {
        Column::Number(cells) => cells[row].map(|value| value.to_string()),
        Column::Category(category) => {
            category.cells[row].map(|level| category.levels[level].clone())
        }
    }
}

/// The values of a term that is used as numbers.
pub(crate) fn numbers<'a>(table: &'a Table, term: &Term) -> Result<&'a [Option<f64>], EncodeError> {
    match present(table, term)? {
        Column::Number(cells) => Ok(cells),
        Column::Category(_) => Err(EncodeError::WrongKind {
            file: table.file().into(),
            column: term.column.clone(),
            wanted: "taken as numbers",
            fix: "declare it as a number or dummy-code it",
        }),
    }
}

/// The values of a term that is used as levels; numbers become levels by how they are written.
pub(crate) fn levels<'a>(table: &'a Table, term: &Term) -> Result<Cow<'a, Category>, EncodeError> {
    match present(table, term)? {
        Column::Category(category) => Ok(Cow::Borrowed(category)),
        Column::Number(_) if term.coding == Coding::Binary => Err(EncodeError::WrongKind {
            file: table.file().into(),
            column: term.column.clone(),
            wanted: "taken as 0 or 1",
            fix: "declare it as binary or standardise it",
        }),
        Column::Number(cells) => Ok(Cow::Owned(Category::of_numbers(cells))),
    }
}

/// A term's column, where its rule allows what is missing.
fn present<'a>(table: &'a Table, term: &Term) -> Result<&'a Column, EncodeError> {
    let (_, column) = lookup(table, &term.column)?;
    match (0..table.rows()).find(|row| term.missing == Missing::Refuse && column.is_missing(*row)) {
        Some(row) => {
            Err(missing(table, row, &term.column, "fill it in, or choose a rule that imputes it"))
        }
        None => Ok(column),
    }
}

/// A column by its name.
pub(crate) fn lookup<'a>(
    table: &'a Table,
    column: &str,
) -> Result<(&'a ColumnSpec, &'a Column), EncodeError> {
    let names = || table.specs().iter().map(|spec| spec.name.as_str());
    table.column(column).ok_or_else(|| EncodeError::NoColumn {
        file: table.file().into(),
        column: column.into(),
        hint: column_hint(column, names()),
        columns: names().collect::<Vec<_>>().join(", "),
    })
}

fn missing(table: &Table, row: usize, column: &str, fix: &'static str) -> EncodeError {
    EncodeError::MissingValue {
        file: table.file().into(),
        at: table.place(row),
        column: column.into(),
        fix,
    }
}

#[cfg(test)]
mod tests;

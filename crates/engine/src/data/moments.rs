//! Agree on means, deviations, levels and columns by exchanging sums, never rows.
//!
//! A site says how many values it has of each number, their sum, and their squared deviations from
//! its own mean; how many rows have each level; and in how many rows two columns are missing at
//! once. The server merges these exactly (Chan, Golub and LeVeque 1983:
//! `S = sum_i S_i + sum_i n_i (m_i - m)^2`), which stays accurate far from zero, and answers with
//! the layout of the design.

use std::collections::BTreeSet;

use consilience_core::simd::ln;
use serde::{Deserialize, Serialize};

use super::encode::{groups, known_levels, levels, lookup, numbers, response};
use super::knots::AgreedSpline;
use super::spline::Knots;
use super::{Coding, DesignPlan, EncodeError, Missing, Part, Response, Table, Term, VaryingSlope};

/// The most rows that a site may claim: sums over sites stay exact.
pub(crate) const MOST_ROWS: u64 = 1 << 40;

/// What one site tells the server about its rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SiteSummary {
    /// The site's name.
    pub site: String,
    /// How many rows it has.
    pub rows: u64,
    /// How many groups these are in, where the plan has groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u64>,
    /// The sum of its responses: for a comparison, in how many rows it holds.
    pub response_sum: f64,
    /// Their squared deviations from this site's own mean, added up, where the plan asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_squares: Option<f64>,
    /// One summary for every term of the plan, in order.
    pub terms: Vec<TermSummary>,
    /// Pairs of terms, of those that may be marked as missing, and in how many rows both are, where
    /// there are any.
    pub both_missing: Vec<(usize, usize, u64)>,
    /// For every product of several terms with levels which of these occur together; nothing
    /// stands for a level that is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub combinations: Vec<Vec<Combination>>,
}

/// Levels of several terms that a row has, in the order of a product.
pub type Combination = Vec<Option<String>>;

/// What one site tells the server about one term.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TermSummary {
    /// Of numbers.
    Numbers {
        /// How many are there.
        observed: u64,
        /// Their sum.
        sum: f64,
        /// Their squared deviations from this site's own mean, added up.
        squares: f64,
    },
    /// Of levels: each with the number of rows that have it.
    Levels(Vec<(String, u64)>),
}

impl TermSummary {
    /// How many values are there.
    pub fn observed(&self) -> u64 {
        match self {
            TermSummary::Numbers { observed, .. } => *observed,
            TermSummary::Levels(counts) => counts.iter().map(|(_, count)| count).sum(),
        }
    }
}

impl SiteSummary {
    /// The length of this message: 64 bits a number, 8 bits a letter.
    pub fn bits(&self) -> u64 {
        let term = |term: &TermSummary| match term {
            TermSummary::Numbers { .. } => 3 * 64,
            TermSummary::Levels(counts) => counts.iter().map(|(level, _)| 64 + text(level)).sum(),
        };
        let level = |level: &Option<String>| text(level.as_deref().unwrap_or_default());
        text(&self.site)
            + 2 * 64
            + 64 * u64::from(self.response_squares.is_some())
            + 64 * u64::from(self.groups.is_some())
            + self.terms.iter().map(term).sum::<u64>()
            + 3 * 64 * self.both_missing.len() as u64
            + self.combinations.iter().flatten().flatten().map(level).sum::<u64>()
    }
}

/// How one column of the design is filled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum CellRule {
    /// Ones.
    Intercept,
    /// A term's numbers, less the mean, divided by the deviation; 0 where they are missing.
    Standardised {
        /// The term's place in the plan.
        term: usize,
        /// The federated mean of the observed values.
        mean: f64,
        /// The federated standard deviation of the observed values, with `n - 1`.
        sd: f64,
    },
    /// 1 where a term has this level, else 0.
    Level {
        /// The term's place in the plan.
        term: usize,
        /// The level.
        level: String,
        /// Whether rows where it is missing count as having it: it is the most common one.
        fill: bool,
    },
    /// One column of a term's spline, less a number, divided by another.
    Spline {
        /// The term's place in the plan.
        term: usize,
        /// Which of the spline's columns.
        part: usize,
        /// The spline.
        knots: Knots,
        /// What is taken away: the federated mean of the column, where columns are standardised.
        centre: f64,
        /// By what it is divided: its federated standard deviation then.
        scale: f64,
        /// What stands for a value that is missing, before: the federated mean of the column.
        usual: f64,
    },
    /// 1 where a term is missing, else 0.
    Missing {
        /// The term's place in the plan.
        term: usize,
    },
    /// 1 at one site, else 0.
    Site {
        /// The site.
        site: String,
    },
    /// A term's numbers, as they are.
    Value {
        /// The term's place in the plan.
        term: usize,
    },
    /// A term's numbers, as they are; their mean where they are missing.
    Raw {
        /// The term's place in the plan.
        term: usize,
        /// The federated mean of the observed values.
        mean: f64,
    },
    /// The product of what these rules give.
    Product {
        /// The rules.
        parts: Vec<CellRule>,
    },
}

impl CellRule {
    /// The rules that are multiplied; the rule itself where none are.
    pub fn parts(&self) -> &[CellRule] {
        match self {
            CellRule::Product { parts } => parts,
            rule => std::slice::from_ref(rule),
        }
    }

    /// Whether it reads this term, alone or in a product.
    pub fn reads(&self, term: usize) -> bool {
        self.parts().iter().any(|part| part.term() == Some(term))
    }

    /// Whether it asks for a row's site.
    pub fn asks_for_site(&self) -> bool {
        self.parts().iter().any(|part| matches!(part, CellRule::Site { .. }))
    }

    /// The length of a message that states it: 64 bits a number, 8 bits a letter.
    fn bits(&self) -> u64 {
        match self {
            CellRule::Intercept => 64,
            CellRule::Standardised { .. } => 4 * 64,
            CellRule::Raw { .. } => 3 * 64,
            // knots are told before
            CellRule::Spline { .. } => 6 * 64,
            CellRule::Level { level, .. } => 3 * 64 + text(level),
            CellRule::Missing { .. } | CellRule::Value { .. } => 2 * 64,
            CellRule::Site { site } => 64 + text(site),
            CellRule::Product { parts } => 64 + parts.iter().map(CellRule::bits).sum::<u64>(),
        }
    }

    /// The term that it reads alone, if it reads one.
    pub fn term(&self) -> Option<usize> {
        match self {
            CellRule::Standardised { term, .. }
            | CellRule::Level { term, .. }
            | CellRule::Missing { term }
            | CellRule::Spline { term, .. }
            | CellRule::Raw { term, .. }
            | CellRule::Value { term } => Some(*term),
            CellRule::Intercept | CellRule::Site { .. } | CellRule::Product { .. } => None,
        }
    }
}

/// One column of the design.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DesignColumn {
    /// The parameter's name.
    pub name: String,
    /// How it is filled.
    pub rule: CellRule,
}

/// The mean and the standard deviation, with `n - 1`, of the responses of all sites.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseMoments {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub sd: f64,
}

impl ResponseMoments {
    /// From each site's number of responses, their sum and their squared deviations from its own
    /// mean; `None` where they do not vary.
    pub(crate) fn merge(parts: &[(f64, f64, f64)]) -> Option<Self> {
        let count: f64 = parts.iter().map(|(n, _, _)| n).sum();
        let mean = parts.iter().map(|(_, sum, _)| sum).sum::<f64>() / count;
        let squares: f64 = parts
            .iter()
            .map(|(n, sum, squares)| squares + n * (sum / n - mean) * (sum / n - mean))
            .sum();
        let sd = (squares / (count - 1.0).max(1.0)).sqrt();
        (mean.is_finite() && sd.is_finite() && sd > 0.0).then_some(ResponseMoments { mean, sd })
    }
}

/// The sum of some numbers, and their squared deviations from their mean, added up.
pub(crate) fn sums(values: &[f64]) -> (f64, f64) {
    let sum: f64 = values.iter().sum();
    let mean = sum / values.len().max(1) as f64;
    (sum, values.iter().map(|value| (value - mean) * (value - mean)).sum())
}

/// The mean of all sites' numbers and their standard deviation, with `n - 1`.
pub(super) fn merged<'s>(said: impl Iterator<Item = &'s TermSummary>) -> (f64, f64) {
    let parts: Vec<(f64, f64, f64)> = said.filter_map(layout::parts).collect();
    let count: f64 = parts.iter().map(|(n, _, _)| n).sum();
    let mean = parts.iter().map(|(_, sum, _)| sum).sum::<f64>() / count;
    let squares: f64 = parts
        .iter()
        .map(|(n, sum, squares)| squares + n * (sum / n - mean) * (sum / n - mean))
        .sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// What the server answers: the layout of the design, with the federation's moments in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// How many rows all sites have together.
    pub rows: u64,
    /// The sites, in order.
    pub sites: Vec<String>,
    /// The levels that any site declared or found, for each term of the plan; none for numbers.
    pub levels: Vec<Vec<String>>,
    /// The columns of the design, in order.
    pub columns: Vec<DesignColumn>,
    /// How the responses of all sites spread, where the plan asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<ResponseMoments>,
    /// What was done, in plain sentences with the numbers. These stay at the server.
    #[serde(skip)]
    pub notes: Vec<String>,
    /// Those of the levels that some row has: others say nothing of a row that has them. These stay
    /// at the server, too.
    #[serde(skip)]
    pub seen: Vec<Vec<String>>,
}

impl Moments {
    /// The length of this message to one site: 64 bits a number, 8 bits a letter.
    pub fn bits(&self) -> u64 {
        let column = |column: &DesignColumn| text(&column.name) + column.rule.bits();
        let names = self.sites.iter().chain(self.levels.iter().flatten());
        64 + 2 * 64 * u64::from(self.response.is_some())
            + names.map(|name| text(name)).sum::<u64>()
            + self.columns.iter().map(column).sum::<u64>()
    }
}

/// How many bits it took to agree on the design.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MomentLedger {
    /// From all sites to the server.
    pub up: u64,
    /// From the server to all sites.
    pub down: u64,
}

impl MomentLedger {
    /// Count one summary from each site and one answer to each.
    pub fn count(summaries: &[SiteSummary], moments: &Moments) -> Self {
        let up = summaries.iter().map(SiteSummary::bits).sum();
        MomentLedger { up, down: summaries.len() as u64 * moments.bits() }
    }
}

/// Letters, and how many there are of them.
fn text(word: &str) -> u64 {
    64 + 8 * word.len() as u64
}

/// Say what the server needs to know about a site's rows.
pub fn summarise(site: &str, table: &Table, plan: &DesignPlan) -> Result<SiteSummary, EncodeError> {
    let mut responses = response(table, &plan.response)?;
    if plan.logs {
        responses.iter_mut().for_each(|time| *time = ln(time.abs()));
    }
    let (response_sum, squares) = sums(&responses);
    Ok(SiteSummary {
        site: site.into(),
        rows: table.rows() as u64,
        groups: match &plan.group {
            Some(by) => {
                Some(groups(table, Some(by))?.iter().max().map_or(0, |last| u64::from(*last) + 1))
            }
            None => None,
        },
        response_sum,
        response_squares: plan.spread.then_some(squares),
        terms: plan
            .terms
            .iter()
            .map(|term| summarise_term(table, term))
            .collect::<Result<_, _>>()?,
        both_missing: both_missing(table, plan)?,
        combinations: combinations(site, table, plan)?,
    })
}

/// Whether a part of a product has levels.
fn has_levels(part: &Part, plan: &DesignPlan) -> bool {
    match part {
        Part::Site => true,
        Part::Term(term) => matches!(plan.terms[*term].coding, Coding::Dummy(_)),
    }
}

/// Which levels occur together, for every product of several terms that have any.
fn combinations(
    site: &str,
    table: &Table,
    plan: &DesignPlan,
) -> Result<Vec<Vec<Combination>>, EncodeError> {
    let mut all = Vec::new();
    for product in &plan.products {
        let parts: Vec<&Part> =
            product.parts.iter().filter(|part| has_levels(part, plan)).collect();
        let mut columns: Vec<Vec<Option<String>>> = Vec::new();
        for part in parts.iter().filter(|_| parts.len() > 1) {
            columns.push(match part {
                Part::Site => vec![Some(site.to_owned()); table.rows()],
                Part::Term(term) => {
                    let category = levels(table, &plan.terms[*term])?;
                    let word = |cell: &Option<usize>| cell.map(|k| category.levels[k].clone());
                    category.cells.iter().map(word).collect()
                }
            });
        }
        let rows = if columns.is_empty() { 0 } else { table.rows() };
        let row = |row: usize| columns.iter().map(|column| column[row].clone()).collect();
        let seen: BTreeSet<Combination> = (0..rows).map(row).collect();
        all.push(seen.into_iter().collect());
    }
    Ok(all)
}

fn both_missing(table: &Table, plan: &DesignPlan) -> Result<Vec<(usize, usize, u64)>, EncodeError> {
    let mut marked: Vec<(usize, BTreeSet<usize>)> = Vec::new();
    for (at, term) in plan
        .terms
        .iter()
        .enumerate()
        .filter(|(_, term)| matches!(term.missing, Missing::Indicate { .. }))
    {
        let (_, column) = lookup(table, &term.column)?;
        marked.push((at, (0..table.rows()).filter(|row| column.is_missing(*row)).collect()));
    }
    marked.retain(|(_, rows)| !rows.is_empty());
    let pairs =
        marked.iter().enumerate().flat_map(|(k, a)| marked[k + 1..].iter().map(move |b| (a, b)));
    let counted =
        pairs.map(|((a, of_a), (b, of_b))| (*a, *b, of_a.intersection(of_b).count() as u64));
    Ok(counted.filter(|(_, _, rows)| *rows > 0).collect())
}

fn summarise_term(table: &Table, term: &Term) -> Result<TermSummary, EncodeError> {
    if term.coding.is_number() {
        let values: Vec<f64> = numbers(table, term)?.iter().flatten().copied().collect();
        let (sum, squares) = sums(&values);
        return Ok(TermSummary::Numbers { observed: values.len() as u64, sum, squares });
    }
    let category = levels(table, term)?;
    let count =
        |level: usize| category.cells.iter().filter(|cell| **cell == Some(level)).count() as u64;
    Ok(TermSummary::Levels(
        category.levels.iter().enumerate().map(|(k, level)| (level.clone(), count(k))).collect(),
    ))
}

/// Merge what the sites said into the layout of the design, where they have agreed on splines if
/// there are any. Columns that others already determine are left out, and named.
pub fn combine(
    summaries: &[SiteSummary],
    plan: &DesignPlan,
    splines: &[AgreedSpline],
) -> Result<Moments, EncodeError> {
    check(summaries, plan)?;
    let rows: u64 = summaries.iter().map(|summary| summary.rows).sum();
    let positive: f64 = summaries.iter().map(|summary| summary.response_sum).sum();
    let mut layout = Layout {
        summaries,
        plan,
        splines,
        rows,
        stated: false,
        whole: !plan.intercept,
        levels: Vec::new(),
        seen: Vec::new(),
        coded: Vec::new(),
        columns: Vec::new(),
        notes: Vec::new(),
    };
    if let Response::Value { column } = &plan.response {
        // times that are censored have a minus: their mean says nothing
        let mean = match column.starts_with("Surv(") || plan.logs {
            true => String::new(),
            false => format!("; {column} is {} on average", show(positive / rows as f64)),
        };
        layout.notes.push(format!("{rows} rows at {}{mean}.", sites(summaries.len())));
    } else if let Response::Class { column, classes } = &plan.response {
        let (sites, classes) = (sites(summaries.len()), classes.join(", "));
        layout.notes.push(format!("{rows} rows at {sites}; {column} is one of {classes}."));
    } else {
        if positive == 0.0 || positive == rows as f64 {
            return Err(EncodeError::OneClass {
                response: plan.response.to_string(),
                positive: positive as u64,
                rows,
            });
        }
        let each: Vec<String> = summaries
            .iter()
            .map(|s| format!("{} {} of {}", s.site, s.response_sum, s.rows))
            .collect();
        layout.notes.push(format!(
            "{rows} rows at {}; {} holds in {positive} of them ({}).",
            sites(summaries.len()),
            plan.response,
            each.join(", ")
        ));
    }
    if plan.intercept && plan.ones {
        layout.columns.push(DesignColumn { name: "intercept".into(), rule: CellRule::Intercept });
    }
    for term in 0..plan.terms.len() {
        layout.add_term(term);
        let Term { column, reference, .. } = &plan.terms[term];
        if let Some(level) = reference.as_ref().filter(|level| !layout.seen[term].contains(level)) {
            let known = known_levels(level, &layout.seen[term]);
            let (column, level) = (column.clone(), level.clone());
            return Err(EncodeError::NoReference { column, level, known });
        }
    }
    layout.add_products();
    if plan.site_effects {
        layout.add_sites();
    }
    if layout.columns.is_empty() {
        return Err(EncodeError::NoColumns);
    }
    let ones = usize::from(plan.intercept && plan.ones);
    for (at, term) in plan.terms.iter().enumerate() {
        let is_there = layout.columns.get(ones + at).and_then(|column| column.rule.term());
        if term.missing == Missing::Integrate && is_there != Some(at) {
            return Err(EncodeError::NoLaw { column: term.column.clone() });
        }
    }
    if let Some(VaryingSlope { along, place, .. }) = &plan.slope {
        let is_it = |term: &Term| term.column == *along && term.coding.is_one_column();
        let there = layout.columns.get(*place).and_then(|column| column.rule.term()) == Some(0);
        if !(there && plan.terms.first().is_some_and(is_it)) {
            return Err(EncodeError::NoSlope { column: along.clone() });
        }
    }
    let sites = summaries.iter().map(|summary| summary.site.clone()).collect();
    let part = |s: &SiteSummary| Some((s.rows as f64, s.response_sum, s.response_squares?));
    let spread: Option<Vec<_>> = summaries.iter().map(part).collect();
    Ok(Moments {
        rows,
        sites,
        levels: layout.levels,
        columns: layout.columns,
        response: spread.as_deref().and_then(ResponseMoments::merge),
        notes: layout.notes,
        seen: layout.seen,
    })
}

/// Refuse summaries that do not belong to the plan.
pub(super) fn check(summaries: &[SiteSummary], plan: &DesignPlan) -> Result<(), EncodeError> {
    if summaries.is_empty() {
        return Err(EncodeError::NoSites);
    }
    let mut names = BTreeSet::new();
    for summary in summaries {
        let refuse =
            |problem: String| Err(EncodeError::Summary { site: summary.site.clone(), problem });
        if !names.insert(&summary.site) {
            return Err(EncodeError::SameName { site: summary.site.clone() });
        }
        if summary.rows == 0 {
            return refuse("it has no rows: leave the site out".into());
        }
        if summary.rows > MOST_ROWS {
            return refuse(format!(
                "it claims {} rows, where {MOST_ROWS} is the most",
                summary.rows
            ));
        }
        if summary.terms.len() != plan.terms.len() {
            return refuse(format!(
                "it has {} terms where the plan has {}",
                summary.terms.len(),
                plan.terms.len()
            ));
        }
        if !summary.response_sum.is_finite() {
            return refuse(format!(
                "its responses sum to {}: they are too large, so divide them by a power of ten",
                summary.response_sum
            ));
        }
        let squares = summary.response_squares;
        if squares.is_some() != plan.spread || squares.is_some_and(|s| !(s.is_finite() && s >= 0.0))
        {
            return refuse(format!(
                "the squared deviations of its responses add up to {squares:?}: divide them by a \
                 power of ten, or start every party with the same config"
            ));
        }
        if let Some(pair) = summary
            .both_missing
            .iter()
            .find(|(a, b, rows)| a >= b || *b >= plan.terms.len() || *rows > summary.rows)
        {
            return refuse(format!(
                "its count of values that are missing at once is not one: {pair:?}"
            ));
        }
        let counts = |product: &super::Product| match product
            .parts
            .iter()
            .filter(|part| has_levels(part, plan))
            .count()
        {
            0 | 1 => 0,
            several => several,
        };
        let wanted: Vec<usize> = plan.products.iter().map(counts).collect();
        let fits = |(said, parts): (&Vec<Combination>, &usize)| {
            said.len() as u64 <= summary.rows
                && said.iter().all(|levels| levels.len() == *parts && *parts > 0)
        };
        if summary.combinations.len() != wanted.len()
            || !summary.combinations.iter().zip(&wanted).all(fits)
        {
            return refuse("its levels that occur together are not those of the products".into());
        }
        for (term, said) in plan.terms.iter().zip(&summary.terms) {
            if let TermSummary::Levels(counts) = said {
                let distinct: BTreeSet<&String> = counts.iter().map(|(level, _)| level).collect();
                let total = counts.iter().try_fold(0u64, |sum, (_, count)| sum.checked_add(*count));
                if distinct.len() < counts.len() || total.is_none() {
                    return refuse(format!(
                        "its levels of `{}` are not counts of different levels",
                        term.column
                    ));
                }
            }
            let numbers = matches!(said, TermSummary::Numbers { .. });
            if let TermSummary::Numbers { sum, squares, .. } = said
                && (sum.is_infinite() || squares.is_infinite())
            {
                let fix = "its values are too large to be squared and added, so divide them by a \
                    power of ten at every site";
                return refuse(format!(
                    "the sums of `{}` are {sum} and {squares}: {fix}",
                    term.column
                ));
            }
            let real = !matches!(said, TermSummary::Numbers { sum, squares, .. }
                if sum.is_nan() || squares.is_nan() || *squares < 0.0);
            if numbers != term.coding.is_number() || !real || said.observed() > summary.rows {
                return refuse(format!("its summary of `{}` is not one: {said:?}", term.column));
            }
        }
    }
    Ok(())
}

/// The design as it grows.
struct Layout<'a> {
    summaries: &'a [SiteSummary],
    plan: &'a DesignPlan,
    splines: &'a [AgreedSpline],
    rows: u64,
    /// Whether the columns are stated, and no site has said anything.
    stated: bool,
    /// Whether no column of ones is there yet, nor a set of levels that add up to one.
    whole: bool,
    levels: Vec<Vec<String>>,
    seen: Vec<Vec<String>>,
    /// How each term is coded, where it varies.
    coded: Vec<Option<Coded>>,
    columns: Vec<DesignColumn>,
    notes: Vec<String>,
}

mod layout;
mod products;
mod stated;

use products::Coded;
pub(crate) use stated::lay_out;

/// So many sites, in words.
fn sites(count: usize) -> String {
    if count == 1 { "1 site".into() } else { format!("{count} sites") }
}

/// Four significant digits.
fn show(value: f64) -> String {
    let digits =
        if value == 0.0 { 0 } else { (3 - value.abs().log10().floor() as i32).clamp(0, 12) };
    format!("{value:.0$}", digits as usize)
}

//! Let a site do its part by itself, with the run and its own rows: sums leave it in a small file,
//! and somebody adds up those of all sites.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use consilience_core::measure::Elpd;
use consilience_core::model::Design;
use consilience_core::protocol::Statement;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    Config, Loo, LooError, ModelAndRows, ModelConfig, RowModel, are_the_same, config_of, rows_with,
};
use crate::config::{OwnData, OwnSource};
use crate::data::formats::DataFile;
use crate::data::memory::Tables;
use crate::data::{self, derived, formula};
use crate::models::Observed;
use crate::problem::{SiteRows, with_computed};
use crate::record::Record;
use crate::suggest::did_you_mean;

/// The layout's number.
pub(crate) const FORMAT: u32 = 1;

/// Why parts cannot be added up.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PartsError {
    /// There are none.
    #[error("there is nothing to add up: name the files that the sites wrote")]
    None,
    /// A layout that this program does not know.
    #[error("the part of site `{site}` has layout {found}; this program knows {FORMAT}: update it")]
    Layout {
        /// The site.
        site: String,
        /// Its layout.
        found: u32,
    },
    /// Parts of different runs.
    #[error(
        "the parts of the sites `{first}` and `{other}` are of different runs: let both use the \
         same run folder"
    )]
    OtherRun {
        /// A site.
        first: String,
        /// Another one.
        other: String,
    },
    /// Parts that were made after others were said first.
    #[error(
        "the parts of the sites `{first}` and `{other}` were made with other files after --first: \
         give every site the same files there"
    )]
    OtherFirst {
        /// A site.
        first: String,
        /// Another one.
        other: String,
    },
    /// A site that is there twice.
    #[error("site `{site}` is there twice: name each file once")]
    Twice {
        /// The site.
        site: String,
    },
    /// A site that is not there.
    #[error("the parts of these sites are missing: {sites}. Add their files")]
    Missing {
        /// Which.
        sites: String,
    },
}

/// What one site says of how well its rows are predicted: sums over rows, or groups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LooPart {
    format: u32,
    /// Which run it is of: a hash of its config and its draws.
    run: String,
    /// All sites of the run.
    sites: Vec<String>,
    /// The site.
    pub site: String,
    /// How many draws there are.
    draws: usize,
    /// What is left out: rows, or groups.
    unit: String,
    /// How many of these there are.
    rows: u64,
    /// The sum of their `elpd`; nothing where that is no number.
    elpd: Option<f64>,
    /// The squared deviations of these from their own mean, added up.
    squares: Option<f64>,
    /// The sum of what is predicted of rows that were seen.
    seen: Option<f64>,
    /// How many have a `k` that is good, one that is not, and one above 1.
    by_k: [u64; 3],
}

/// The same of two models, and of their difference.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedPart {
    /// Of the first.
    pub a: LooPart,
    /// Of the second.
    pub b: LooPart,
    /// The first less the second, row by row.
    pub difference: LooPart,
}

/// What is kept of a part in a file.
pub fn text_of_part<T: Serialize>(part: &T) -> String {
    format!("{}\n", serde_json::json!(part))
}

/// From what was kept in a file, else why not.
pub fn read_part<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

impl ComparedPart {
    /// What is kept in a file.
    pub fn text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }

    /// From what was kept in a file, else why not.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }
}

impl LooPart {
    /// What is kept in a file.
    pub fn text(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }

    /// From what was kept in a file, else why not.
    pub fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|e| e.to_string())
    }

    /// Of a site's own sums.
    pub(super) fn new((run, sites): (String, Vec<String>), found: &Loo) -> Self {
        let known = |number: f64| number.is_finite().then_some(number);
        let (site, Elpd { rows, sum, squares, seen, by_k }) = match found.sites.first() {
            Some((site, elpd)) => (site.clone(), *elpd),
            None => (String::new(), Elpd::default()),
        };
        LooPart {
            format: FORMAT,
            run,
            sites,
            site,
            draws: found.draws,
            unit: found.unit.into(),
            rows,
            elpd: known(sum),
            squares: known(squares),
            seen: known(seen),
            by_k,
        }
    }

    fn sums(&self) -> Elpd {
        let number = |known: Option<f64>| known.unwrap_or(f64::NAN);
        Elpd {
            rows: self.rows,
            sum: number(self.elpd),
            squares: number(self.squares),
            seen: number(self.seen),
            by_k: self.by_k,
        }
    }
}

/// A hash of a run's config and draws, and its sites.
pub(crate) fn mark(record: &Record) -> (String, Vec<String>) {
    let text = format!("{}\n{}\n{}", record.config, record.seed, record.draws.digest());
    let sites = record.sites.iter().map(|site| site.name.clone()).collect();
    (Statement::written(&text).hash(), sites)
}

/// What one site found by itself.
pub(crate) trait Part {
    /// The layout's number, a hash of the run, all its sites, and the site.
    fn about(&self) -> (u32, &str, &[String], &str);
}

impl Part for &LooPart {
    fn about(&self) -> (u32, &str, &[String], &str) {
        (self.format, &self.run, &self.sites, &self.site)
    }
}

/// The parts of all sites of one run, in the run's order; the run has this hash.
pub(crate) fn in_order<'p, P: Part>(parts: &'p [P], run: &str) -> Result<Vec<&'p P>, PartsError> {
    let (.., sites, first) = parts.first().ok_or(PartsError::None)?.about();
    let mut seen = BTreeSet::new();
    for part in parts {
        let (format, of, known, site) = part.about();
        let site = site.to_owned();
        if format != FORMAT {
            return Err(PartsError::Layout { site, found: format });
        }
        if (of, known) != (run, sites) {
            return Err(PartsError::OtherRun { first: first.into(), other: site });
        }
        if !seen.insert(site.clone()) {
            return Err(PartsError::Twice { site });
        }
    }
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for site in sites {
        match parts.iter().find(|part| part.about().3 == site) {
            Some(part) => found.push(part),
            None => missing.push(site.as_str()),
        }
    }
    match missing.is_empty() {
        true => Ok(found),
        false => Err(PartsError::Missing { sites: missing.join(", ") }),
    }
}

/// Add up the parts of all sites of one run, in the run's order.
pub(super) fn merge(parts: &[&LooPart]) -> Result<Loo, PartsError> {
    let first = *parts.first().ok_or(PartsError::None)?;
    let found = in_order(parts, &first.run)?;
    let sums = found.iter().map(|part| (part.site.clone(), part.sums())).collect();
    let unit = if first.unit == "groups" { "groups" } else { "rows" };
    Ok(Loo::new(sums, first.draws, unit))
}

/// The model of a run and the rows of one site, with its place; they must be those of the run.
/// Where sites have files of their own, those of others are not looked at.
pub(crate) fn rows_at(
    record: &Record,
    site: &str,
    file: Option<&Path>,
) -> Result<(Arc<dyn RowModel>, usize, SiteRows), LooError> {
    rows_among(record, site, file, &Tables::new())
}

/// The same where clients of these names have their rows in memory.
pub(crate) fn rows_among(
    record: &Record,
    site: &str,
    file: Option<&Path>,
    tables: &Tables,
) -> Result<(Arc<dyn RowModel>, usize, SiteRows), LooError> {
    let config = config_of(record, tables)?;
    let known: Vec<&str> = record.sites.iter().map(|site| site.name.as_str()).collect();
    let Some(place) = known.iter().position(|name| *name == site) else {
        let hint = did_you_mean(site, known.iter().copied());
        return Err(LooError::NoSite { site: site.into(), known: hint + &known.join(", ") });
    };
    let Some((own, formula, files)) = of_sites(&config) else {
        if file.is_some() {
            let why = "the config gives sites no files of their own".into();
            return Err(LooError::Coded { site: site.into(), why });
        }
        let (model, sites) = rows_with(record, tables)?;
        let rows = sites.into_iter().nth(place);
        let none = || LooError::NoRows { why: "its clients are given otherwise" };
        return Ok((model, place, rows.ok_or_else(none)?));
    };
    let stated = &files[place].1;
    let stated = match file {
        Some(path) => DataFile { path: path.to_owned(), memory: None, ..stated.clone() },
        None => stated.clone(),
    };
    let rows = coded(record, &config, (own, formula), (site, &stated))?;
    let model = Arc::clone(&own.kind);
    are_the_same(record, &model, std::slice::from_ref(&rows))?;
    Ok((model, place, rows))
}

/// The model of a run and the rows of all sites, where each has a file of its own and the run says
/// how columns are coded; those that one site changed do not change what others mean then.
pub(super) fn all_of_files(
    record: &Record,
    config: &Config,
) -> Option<Result<ModelAndRows, LooError>> {
    let (own, formula, files) = of_sites(config).filter(|_| record.encoding.is_some())?;
    let site =
        |(name, stated): &(String, DataFile)| coded(record, config, (own, formula), (name, stated));
    let sites: Result<Vec<SiteRows>, LooError> = files.iter().map(site).collect();
    Some(sites.map(|sites| (Arc::clone(&own.kind), sites)))
}

/// The rows of a site's file, as the run says that columns are coded.
fn coded(
    record: &Record,
    config: &Config,
    (own, formula): (&OwnData, &str),
    (site, stated): (&str, &DataFile),
) -> Result<SiteRows, LooError> {
    let wrong = |why: String| LooError::Coded { site: site.into(), why };
    if config.target.temperature != 1.0 {
        let why = "with a temperature other than 1 draws are not of a posterior";
        return Err(LooError::NoRows { why });
    }
    if stated.is_elsewhere() {
        return Err(wrong("its file is not stated, so name it: --data FILE".into()));
    }
    let Some(encoding) = &record.encoding else {
        return Err(wrong("the run does not say how its columns are coded".into()));
    };
    let formula = derived::write_out(formula);
    let said = |e: &dyn std::fmt::Display| wrong(e.to_string());
    let table = stated.table(None).map_err(|e| said(&e))?;
    let table = with_computed(&table, &formula).map_err(|e| wrong(e.problem().into()))?;
    let effect = encoding.usual_site().map(|_| site);
    let coded = encoding.encode(&table, effect).map_err(|e| said(&e))?;
    if coded.labels.len() != table.rows() {
        let lacking = table.rows() - coded.labels.len();
        return Err(wrong(format!("{lacking} rows have no response: leave them out")));
    }
    let by = own.kind.group_by();
    let rows = Observed {
        response: coded.labels.into_iter().map(|(_, y)| y).collect(),
        groups: data::groups(&table, by).map_err(|e| said(&e))?,
        offset: coded.offset,
        weights: data::weights(&table, formula::weights(&formula)).map_err(|e| said(&e))?,
    };
    let group_names = data::group_names(site, &table, by).map_err(|e| said(&e))?;
    let design = Design::dense(coded.cells, encoding.columns().len())?;
    Ok(SiteRows { name: site.into(), design, rows, group_names })
}

/// Data that a formula codes, the formula, and the files of all sites.
type SiteFiles<'a> = (&'a OwnData, &'a str, &'a [(String, DataFile)]);

/// The data of sites that have files of their own.
fn of_sites(config: &Config) -> Option<SiteFiles<'_>> {
    let ModelConfig::Own(own) = &config.target.model else { return None };
    match (&own.formula, &own.source, own.test) {
        (Some(formula), OwnSource::Sites(sites), None) => Some((own, formula, sites)),
        _ => None,
    }
}

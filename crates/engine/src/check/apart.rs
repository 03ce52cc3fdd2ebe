//! Let a site check a run by itself, with the run and its own rows: it says three sums, hears those
//! of all sites, and says counts and sums, in small files. Whoever has those of all adds them up.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::counts::{Explained, Sums};
use super::{Check, Question, Told};
use crate::loo::{FORMAT, LooError, Part, PartsError, config_of, in_order, mark, rows_at};
use crate::models::RowModel;
use crate::record::Record;

/// A count, powers (none where they are no numbers), counts by bin.
type KeptSums = (u64, [Option<f64>; 3], Vec<u64>);

/// What one site says first: how many responses it has, their sum, squares and cubes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstPart {
    format: u32,
    run: String,
    sites: Vec<String>,
    /// The site.
    pub site: String,
    sums: KeptSums,
}

/// What one site says then: counts and sums of what it observed and of every replicate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckPart {
    format: u32,
    run: String,
    sites: Vec<String>,
    /// The site.
    pub site: String,
    rows: u64,
    /// What all sites said first.
    first: KeptSums,
    observed: KeptSums,
    drawn: Vec<KeptSums>,
    /// Of each replicate the rows, and sums of what is expected and of what is left.
    explained: Vec<[Option<f64>; 5]>,
    classes: Vec<[f64; 2]>,
}

impl Part for FirstPart {
    fn about(&self) -> (u32, &str, &[String], &str) {
        (self.format, &self.run, &self.sites, &self.site)
    }
}

impl Part for CheckPart {
    fn about(&self) -> (u32, &str, &[String], &str) {
        (self.format, &self.run, &self.sites, &self.site)
    }
}

/// What a site says first, by its own rows alone: those of this file, or of the one that the config
/// names.
pub fn first_at(record: &Record, site: &str, file: Option<&Path>) -> Result<FirstPart, LooError> {
    let (model, place, rows) = rows_at(record, site, file)?;
    let question = Question::new(&model, &record.draws, record.seed, false)?;
    let sums = kept(&question.first(&question.view(place, rows)?));
    let (run, sites) = mark(record);
    Ok(FirstPart { format: FORMAT, run, sites, site: site.into(), sums })
}

/// What it says once it has heard what all said first.
pub fn check_at(
    record: &Record,
    site: &str,
    file: Option<&Path>,
    first: &[FirstPart],
) -> Result<CheckPart, LooError> {
    let all = in_order(first, &mark(record).0)?;
    let (model, place, rows) = rows_at(record, site, file)?;
    let question = Question::new(&model, &record.draws, record.seed, false)?;
    let mut sums = Sums::default();
    all.iter().for_each(|part| sums.merge(&read(&part.sums)));
    let bins = question.bins(std::slice::from_ref(&sums));
    let told = question.tell(&question.view(place, rows)?, &bins)?;
    let explained = |(_, of): &(Sums, Explained)| {
        [of.rows, of.mean[0], of.mean[1], of.left[0], of.left[1]].map(known)
    };
    let (run, sites) = mark(record);
    Ok(CheckPart {
        format: FORMAT,
        run,
        sites,
        site: site.into(),
        rows: told.rows,
        first: kept(&sums),
        observed: kept(&told.observed),
        drawn: told.drawn.iter().map(|(sums, _)| kept(sums)).collect(),
        explained: told.drawn.iter().map(explained).collect(),
        classes: told.classes,
    })
}

/// Add up what all sites said: the numbers are those of one process.
pub fn merge(record: &Record, parts: &[CheckPart]) -> Result<Check, LooError> {
    let all = in_order(parts, &mark(record).0)?;
    let config = config_of(record, &Default::default())?;
    let none = || LooError::NoRows { why: "its clients are given otherwise" };
    let model: Arc<dyn RowModel> = config.target.model.of_rows().ok_or_else(none)?;
    let question = Question::new(&model, &record.draws, record.seed, false)?;
    let first = &all[0].first;
    let odd = |part: &&&CheckPart| {
        part.first != *first
            || part.drawn.len() != question.draws.len()
            || part.explained.len() != part.drawn.len()
    };
    if let Some(other) = all.iter().find(odd) {
        let (first, other) = (all[0].site.clone(), other.site.clone());
        return Err(PartsError::OtherFirst { first, other }.into());
    }
    let bins = question.bins(&[read(first)]);
    let number = |x: &Option<f64>| x.unwrap_or(f64::NAN);
    let told = |part: &&CheckPart| {
        let explained = part.explained.iter().map(|of| {
            let [rows, mean, means, left, lefts] = of.each_ref().map(number);
            Explained { rows, mean: [mean, means], left: [left, lefts] }
        });
        Told {
            name: part.site.clone(),
            rows: part.rows,
            observed: read(&part.observed),
            drawn: part.drawn.iter().map(read).zip(explained).collect(),
            classes: part.classes.clone(),
        }
    };
    let told: Vec<Told> = all.iter().map(told).collect();
    Ok(question.compare(&bins, &told))
}

fn known(number: f64) -> Option<f64> {
    number.is_finite().then_some(number)
}

fn kept(sums: &Sums) -> KeptSums {
    (sums.count, sums.powers.map(known), sums.bins.clone())
}

fn read((count, powers, bins): &KeptSums) -> Sums {
    let powers = powers.map(|power| power.unwrap_or(f64::NAN));
    Sums { count: *count, powers, bins: bins.clone() }
}

//! Ask the sites of a run about their rows again: cross-validate it, and compare two models of the
//! same rows. What is of single rows stays there; sums leave. A site can do its part alone, with
//! the run's folder and its own rows.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use consilience_core::ask::Sum;
use consilience_core::error::DataError;
use consilience_core::measure::{Chains, Elpd, HeldBack, ess_mean, good_k};
use consilience_core::model::{Design, Model, Rows, Single};
use rayon::prelude::*;
use thiserror::Error;

use crate::config::{Config, ConfigError, ModelConfig, Source};
use crate::data::memory::Tables;
use crate::draws::Draws;
use crate::models::RowModel;
use crate::problem::{AllRows, SiteRows};
use crate::record::Record;
use crate::reference::rows_digest;

mod apart;

pub use apart::{ComparedPart, LooPart, PartsError};
pub(crate) use apart::{FORMAT, Part, in_order, mark, rows_among, rows_at};
pub use apart::{read_part, text_of_part};

/// Why a run cannot be cross-validated.
#[derive(Debug, Error)]
pub enum LooError {
    /// The rows cannot be read again.
    #[error("the rows of the run cannot be read again: {0}")]
    Config(#[from] ConfigError),
    /// What rows say exactly is no release.
    #[error(
        "the run has a privacy budget, and this would tell exact functions of its rows: leave it, \
         or do it with a run without [privacy]"
    )]
    Private,
    /// There is nothing to leave out.
    #[error("the run's model has no rows with a density of their own: {why}")]
    NoRows {
        /// Why not.
        why: &'static str,
    },
    /// There are no draws in memory.
    #[error("the run has {draws} draws, and cross-validation needs at least {LEAST}")]
    TooFew {
        /// How many there are.
        draws: usize,
    },
    /// There are too few draws to check.
    #[error("the run has {draws} draws, and a check needs at least 100: run more iterations")]
    TooFewToCheck {
        /// How many there are.
        draws: usize,
    },
    /// Nothing can be drawn anew.
    #[error("responses cannot be drawn anew: {why}")]
    NoLaw {
        /// Why not.
        why: &'static str,
    },
    /// Nothing can be drawn from the prior.
    #[error("{why}")]
    NoPrior {
        /// Why not.
        why: String,
    },
    /// The rows are not those of the run.
    #[error(
        "the files give the parameters {found}, where the run has {expected}: give back the files \
         that the run was made from"
    )]
    OtherRows {
        /// What the files give.
        found: String,
        /// What the run has.
        expected: String,
    },
    /// A site has more or fewer rows than in the run.
    #[error(
        "site `{site}` had {expected} {what} in the run, and has {found} now: give back the rows \
         that the run was made from"
    )]
    OtherCount {
        /// The site.
        site: String,
        /// What is counted: rows, or groups.
        what: &'static str,
        /// How many there are now.
        found: u64,
        /// How many the run had.
        expected: u64,
    },
    /// Sites whose rows are others.
    #[error(
        "the rows of {sites}, coded as those of the run were, are not the ones that it was made \
         from: a value differs, or their order. Give back the rows that the run was made from"
    )]
    ChangedRows {
        /// Which.
        sites: String,
    },
    /// Two runs whose rows differ.
    #[error("the two runs are not of the same rows: {how}. Compare models that explain the same")]
    NotComparable {
        /// How they differ.
        how: String,
    },
    /// A site that took no part.
    #[error("there is no site `{site}`: {known} took part")]
    NoSite {
        /// The site.
        site: String,
        /// Those that there are, perhaps with a hint.
        known: String,
    },
    /// A model without effects of groups.
    #[error("the model has no effects of groups: write (1 | column) or (1 | site) in the formula")]
    NoGroups,
    /// Effects that cannot be kept.
    #[error("{}: the effects cannot be written: {error}", file.display())]
    Unwritten {
        /// Where they should be.
        file: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// Rows that the model does not take.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A site's rows, which cannot be coded as those of the run were.
    #[error("the rows of site `{site}` cannot be coded as those of the run were: {why}")]
    Coded {
        /// The site.
        site: String,
        /// Why not.
        why: String,
    },
    /// Sums that do not belong together.
    #[error("{0}")]
    Parts(#[from] PartsError),
}

/// The fewest draws by which rows are left out.
const LEAST: usize = 25;

/// The most densities that are computed after a run: a moment, not minutes.
const MOST_AFTER_A_RUN: usize = 12_000_000;
/// A row in a group takes as many as these.
const IN_A_GROUP: usize = 40;

/// So many rows are judged at a time.
const ROWS_AT_ONCE: usize = 32;

/// What sites told of how well their rows are predicted.
#[derive(Clone, Debug, PartialEq)]
pub struct Loo {
    /// The sites, each with its sums.
    pub sites: Vec<(String, Elpd)>,
    /// The sums of all.
    pub total: Elpd,
    /// How many draws there are.
    pub draws: usize,
    /// The largest `k` that is good for so many.
    pub good_k: f64,
    /// What is left out: rows, or groups.
    pub unit: &'static str,
}

impl Loo {
    pub(crate) fn new(sites: Vec<(String, Elpd)>, draws: usize, unit: &'static str) -> Self {
        let parts: Vec<Elpd> = sites.iter().map(|(_, elpd)| *elpd).collect();
        Loo { sites, total: Elpd::merge(&parts), draws, good_k: good_k(draws), unit }
    }

    /// How many rows are not to be relied on.
    pub fn doubtful(&self) -> u64 {
        self.total.by_k[1] + self.total.by_k[2]
    }
}

/// Cross-validate a run.
pub fn loo(record: &Record) -> Result<Loo, LooError> {
    loo_with(record, &Tables::new())
}

/// Cross-validate a run that has just ended; nothing where it cannot be, or is much work.
pub(crate) fn after_a_run(config: &Config, record: &Record) -> Option<Loo> {
    let model = config.target.model.of_rows().filter(|model| !model.is_whole())?;
    let rows: u64 = record.sites.iter().map(|site| site.rows).sum();
    let each = if model.group_by().is_some() { IN_A_GROUP } else { 1 };
    let densities = (rows as usize).saturating_mul(draws_of(&record.draws)).saturating_mul(each);
    if config.privacy.is_some() || model.net().is_some() || densities > MOST_AFTER_A_RUN {
        return None;
    }
    let (model, sites) = rows_of_config(config, &record.parameters).ok()?;
    Some(summed(record, Judged::new(record, &model, sites).ok()?))
}

/// The same where clients of these names have their rows in memory.
pub fn loo_with(record: &Record, tables: &Tables) -> Result<Loo, LooError> {
    let (model, sites) = rows_with(record, tables)?;
    Ok(summed(record, Judged::new(record, &model, sites)?))
}

/// One site's part of it, by its own rows alone: those of this file, or of the one that the config
/// names.
pub fn loo_at(record: &Record, site: &str, file: Option<&Path>) -> Result<LooPart, LooError> {
    let (model, _, rows) = apart::rows_at(record, site, file)?;
    let found = summed(record, Judged::new(record, &model, vec![rows])?);
    Ok(LooPart::new(apart::mark(record), &found))
}

/// Add up what all sites found by themselves.
pub fn merge(parts: &[LooPart]) -> Result<Loo, LooError> {
    let parts: Vec<&LooPart> = parts.iter().collect();
    Ok(apart::merge(&parts)?)
}

fn summed(record: &Record, judged: Judged) -> Loo {
    let good = good_k(draws_of(&record.draws));
    let of = |(name, rows): (String, Vec<HeldBack>)| (name, Elpd::new(&rows, good));
    let sites = judged.sites.into_iter().map(of).collect();
    Loo::new(sites, draws_of(&record.draws), judged.unit)
}

/// How much better the first of two models predicts the same rows: each by itself, and the
/// difference.
pub fn compare(a: &Record, b: &Record) -> Result<[Loo; 3], LooError> {
    compare_with([a, b], [&Tables::new(), &Tables::new()])
}

/// The same where clients of these names have their rows in memory, for either model.
pub fn compare_with(records: [&Record; 2], tables: [&Tables; 2]) -> Result<[Loo; 3], LooError> {
    let [a, b] = records;
    let judge = |record: &Record, tables: &Tables| -> Result<Judged, LooError> {
        let (model, sites) = rows_with(record, tables)?;
        Judged::new(record, &model, sites)
    };
    compared(records, [judge(a, tables[0])?, judge(b, tables[1])?])
}

/// One site's part of it, by its own rows alone.
pub fn compare_at(
    records: [&Record; 2],
    site: &str,
    file: Option<&Path>,
) -> Result<ComparedPart, LooError> {
    let judge = |record: &Record| -> Result<Judged, LooError> {
        let (model, _, rows) = apart::rows_at(record, site, file)?;
        Judged::new(record, &model, vec![rows])
    };
    let found = compared(records, [judge(records[0])?, judge(records[1])?])?;
    let [a, b] = records.map(apart::mark);
    let both = (format!("{}{}", a.0, b.0), a.1.clone());
    Ok(ComparedPart {
        a: LooPart::new(a, &found[0]),
        b: LooPart::new(b, &found[1]),
        difference: LooPart::new(both, &found[2]),
    })
}

/// Add up what all sites found of two models by themselves.
pub fn merge_compared(parts: &[ComparedPart]) -> Result<[Loo; 3], LooError> {
    let merged =
        |of: fn(&ComparedPart) -> &LooPart| apart::merge(&parts.iter().map(of).collect::<Vec<_>>());
    Ok([merged(|part| &part.a)?, merged(|part| &part.b)?, merged(|part| &part.difference)?])
}

fn compared([a, b]: [&Record; 2], each: [Judged; 2]) -> Result<[Loo; 3], LooError> {
    let differ = |how: String| Err(LooError::NotComparable { how });
    let names =
        each.each_ref().map(|one| one.sites.iter().map(|(name, _)| name).collect::<Vec<_>>());
    if names[0] != names[1] {
        return differ(format!("the sites are {:?} and {:?}", names[0], names[1]));
    }
    if each[0].unit != each[1].unit {
        return differ(format!("one leaves out {}, the other {}", each[0].unit, each[1].unit));
    }
    for ((name, a), b) in names[0].iter().zip(&each[0].responses).zip(&each[1].responses) {
        if a.len() != b.len() {
            return differ(format!("site `{name}` has {} rows and {}", a.len(), b.len()));
        }
        // responses stay here: only where they differ is told
        if let Some(row) = a.iter().zip(b).position(|(a, b)| a != b) {
            return differ(format!("row {} of site `{name}` has two responses", row + 1));
        }
    }
    let draws = draws_of(&a.draws).min(draws_of(&b.draws));
    let mut differences = Vec::new();
    for ((name, a), (_, b)) in each[0].sites.iter().zip(&each[1].sites) {
        let Some(elpd) = Elpd::difference(a, b, good_k(draws)) else {
            return differ(format!("site `{name}` has {} groups and {}", a.len(), b.len()));
        };
        differences.push((name.clone(), elpd));
    }
    let alone = |one: &Judged, record: &Record| {
        let (n, good) = (draws_of(&record.draws), good_k(draws_of(&record.draws)));
        let sites = one.sites.iter().map(|(name, rows)| (name.clone(), Elpd::new(rows, good)));
        Loo::new(sites.collect(), n, one.unit)
    };
    let unit = each[0].unit;
    Ok([alone(&each[0], a), alone(&each[1], b), Loo::new(differences, draws, unit)])
}

/// The model of a run, and the rows of its sites, read again. They must be those of the run.
pub(crate) fn rows_of(record: &Record) -> Result<ModelAndRows, LooError> {
    rows_with(record, &Tables::new())
}

pub(crate) fn rows_with(record: &Record, tables: &Tables) -> Result<ModelAndRows, LooError> {
    let config = config_of(record, tables)?;
    let (model, sites) = match apart::all_of_files(record, &config) {
        Some(found) => found?,
        None => rows_of_config(&config, &record.parameters)?,
    };
    are_the_same(record, &model, &sites)?;
    Ok((model, sites))
}

/// Refuse rows that are not those of the run: other counts are told first, then other hashes.
fn are_the_same(
    record: &Record,
    model: &Arc<dyn RowModel>,
    sites: &[SiteRows],
) -> Result<(), LooError> {
    let mut changed = Vec::new();
    for site in sites {
        let Some(place) = record.sites.iter().position(|known| known.name == site.name) else {
            continue;
        };
        let groups = site.rows.groups.iter().max().map_or(0, |last| u64::from(*last) + 1);
        let found = match model.group_by() {
            Some(_) => groups.max(1),
            None if model.is_whole() => continue,
            None => site.rows.response.len() as u64,
        };
        let expected = record.sites[place].rows;
        if found != expected {
            let what = if model.group_by().is_some() { "groups" } else { "rows" };
            let site = site.name.clone();
            return Err(LooError::OtherCount { site, what, found, expected });
        }
        if let Some(then) = record.row_hashes.get(place) {
            let client = model.potential_of(site.design.clone(), site.rows.clone())?;
            if *then != rows_digest(&client)? {
                changed.push(format!("`{}`", site.name));
            }
        }
    }
    match changed.len() {
        0 => Ok(()),
        1 => Err(LooError::ChangedRows { sites: format!("site {}", changed[0]) }),
        _ => Err(LooError::ChangedRows { sites: format!("the sites {}", changed.join(", ")) }),
    }
}

/// The config of a run that may be asked about its rows.
pub(crate) fn config_of(record: &Record, tables: &Tables) -> Result<Config, LooError> {
    let source =
        Source { file: "config.toml".into(), folder: ".".into(), text: record.config.clone() };
    let config = Config::parse_with(source, tables)?;
    match config.privacy.is_some() {
        true => Err(LooError::Private),
        false => Ok(config),
    }
}

/// A model, and the rows of all sites.
pub(crate) type ModelAndRows = (Arc<dyn RowModel>, Vec<SiteRows>);

/// The model of a config, and the rows of its sites, which must have these parameters.
pub(crate) fn rows_of_config(
    config: &Config,
    expected: &[String],
) -> Result<ModelAndRows, LooError> {
    let no_rows = |why| LooError::NoRows { why };
    let model = match &config.target.model {
        ModelConfig::Builtin(_) => crate::models::of_comparison(),
        other => other.of_rows().ok_or(no_rows("its clients are given otherwise"))?,
    };
    if config.target.temperature != 1.0 {
        return Err(no_rows("with a temperature other than 1 draws are not of a posterior"));
    }
    let none = no_rows("its response is explained by images, or there is none");
    let AllRows { parameters, sites } = AllRows::new(config)?.ok_or(none)?;
    if parameters != expected {
        let (found, expected) = (parameters.join(", "), expected.join(", "));
        return Err(LooError::OtherRows { found, expected });
    }
    Ok((model, sites))
}

fn draws_of(draws: &Draws) -> usize {
    draws.chains() * draws.length()
}

/// What each site knows of its own rows, before anything leaves it.
struct Judged {
    sites: Vec<(String, Vec<HeldBack>)>,
    responses: Vec<Vec<f64>>,
    unit: &'static str,
}

impl Judged {
    fn new(
        record: &Record,
        model: &Arc<dyn RowModel>,
        sites: Vec<SiteRows>,
    ) -> Result<Judged, LooError> {
        let n = draws_of(&record.draws);
        if n < LEAST {
            return Err(LooError::TooFew { draws: n });
        }
        if model.is_whole() {
            let why = "a partial likelihood is one of a whole site";
            return Err(LooError::NoRows { why });
        }
        let efficiency = efficiency(&record.draws);
        let draws: Vec<&[f64]> = record.draws.rows().collect();
        let mut judged = Judged {
            sites: Vec::new(),
            responses: Vec::new(),
            unit: if model.group_by().is_some() { "groups" } else { "rows" },
        };
        for site in sites {
            let name = site.name.clone();
            judged.responses.push(site.rows.response.clone());
            let rows = match model.group_by() {
                Some(_) => by_group(model, site, &draws, efficiency)?,
                None => by_row(&**model, &site, &draws, efficiency)?,
            };
            judged.sites.push((name, rows));
        }
        Ok(judged)
    }
}

/// Effective draws over draws, on average over all parameters; 1 for a single chain.
fn efficiency(draws: &Draws) -> f64 {
    if draws.chains() < 2 {
        return 1.0;
    }
    let of = |k: usize| {
        let chains = draws.parameter(k).concat();
        let known = Chains::flat(&chains, draws.chains()).ok();
        known.map_or(f64::NAN, |chains| ess_mean(&chains))
    };
    let mean = (0..draws.dim()).map(of).sum::<f64>() / draws.dim() as f64 / draws_of(draws) as f64;
    if mean.is_finite() && mean > 0.0 { mean } else { 1.0 }
}

/// Rows one by one.
fn by_row(
    model: &dyn RowModel,
    site: &SiteRows,
    draws: &[&[f64]],
    efficiency: f64,
) -> Result<Vec<HeldBack>, LooError> {
    let (rows, width, predictors) = (site.design.rows(), site.design.columns(), model.predictors());
    let judge = |first: usize| -> Result<Vec<HeldBack>, LooError> {
        let count = ROWS_AT_ONCE.min(rows - first);
        let mut cells = vec![0.0; count * width];
        for (k, row) in cells.chunks_exact_mut(width).enumerate() {
            site.design.add_row(first + k, 1.0, row);
        }
        let some = Design::dense(cells, width)?;
        let offset = site.rows.offset.get(first..first + count).unwrap_or_default();
        let mut logs = vec![0.0; count * draws.len()];
        for (s, draw) in draws.iter().enumerate() {
            let said = model.adjusted_predictors(&some, offset, draw);
            for (k, t) in said.chunks_exact(predictors).enumerate() {
                let weight = site.rows.weights.get(first + k).unwrap_or(&1.0);
                let beside = model.beside_at(draw, &some, k);
                let log = model.log_probability(t, &beside, site.rows.response[first + k]);
                logs[k * draws.len() + s] = weight * log;
            }
        }
        Ok(logs.chunks_exact(draws.len()).map(|row| HeldBack::new(row, efficiency)).collect())
    };
    let starts: Vec<usize> = (0..rows).step_by(ROWS_AT_ONCE).collect();
    let parts: Vec<Vec<HeldBack>> = starts.into_par_iter().map(judge).collect::<Result<_, _>>()?;
    Ok(parts.concat())
}

/// Groups one by one: a group is left out with its effect.
fn by_group(
    model: &Arc<dyn RowModel>,
    site: SiteRows,
    draws: &[&[f64]],
    efficiency: f64,
) -> Result<Vec<HeldBack>, LooError> {
    let observed = site.rows.clone();
    let potential: Arc<dyn Model> = model.potential_of(site.design, site.rows)?;
    let transforms = model.transforms(potential.dim());
    let groups = potential.rows();
    let of_draw = |draw: &&[f64]| -> Vec<f64> {
        let (mut x, beside) = (draw.to_vec(), model.split(draw).1);
        transforms.inward(&mut x);
        let mut constants = vec![0.0; groups];
        for (row, y) in observed.response.iter().enumerate() {
            let group = observed.groups.get(row).map_or(0, |group| *group as usize);
            let weight = observed.weights.get(row).unwrap_or(&1.0);
            constants[group] += weight * model.constant(beside, *y);
        }
        let mut single = Single::new(&potential);
        let log = |(group, constant): (usize, &f64)| {
            let mut value = [0.0];
            single.add(Sum::Value { x: &x }, Rows::Some(&[group as u32]), 1.0, &mut value);
            constant - value[0]
        };
        constants.iter().enumerate().map(log).collect()
    };
    let logs: Vec<Vec<f64>> = draws.par_iter().map(of_draw).collect();
    let judge = |group: usize| {
        let row: Vec<f64> = logs.iter().map(|draw| draw[group]).collect();
        HeldBack::new(&row, efficiency)
    };
    Ok((0..groups).map(judge).collect())
}

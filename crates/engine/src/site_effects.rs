//! Draw the effects of a site's own groups given the draws of what all sites share, and keep them
//! where the site has its folder.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::Transforms;
use consilience_core::rng::{ClientId, Purpose, Seed};
use rayon::prelude::*;

use crate::data::memory::Tables;
use crate::draws::Draws;
use crate::loo::{LooError, rows_among, rows_at, rows_with};
use crate::models::{Effects, RowModel};
use crate::problem::SiteRows;
use crate::record::Record;

/// The file that has the draws of a site's effects, in the site's folder.
pub const EFFECTS_FILE: &str = "effects.csv";
/// The folder of a run in one process that has the folders of sites.
pub const SITES_FOLDER: &str = "sites";
/// How many pairs of a row and a draw are gone through without being asked: beyond, whoever wants
/// the effects says so.
const MOST_PAIRS: usize = 100_000_000;
/// How many numbers are kept without being asked.
const MOST_NUMBERS: usize = 20_000_000;

/// The effects of one site's groups.
#[derive(Clone, Debug)]
pub struct SiteEffects {
    /// The groups' names; where a group has two effects, an intercept and a slope, its name stands
    /// there twice, with the column behind it for the slope.
    pub names: Vec<String>,
    /// Their effects on the scale of the linear predictor, for every draw of the run.
    pub draws: Draws,
    /// The groups, each once.
    pub groups: Vec<String>,
}

impl SiteEffects {
    /// The draws as a table: chain, draw, and a column for each effect.
    pub fn csv(&self) -> String {
        let quoted = |name: &String| format!("\"{}\"", name.replace('"', "\"\""));
        let names: Vec<String> = self.names.iter().map(quoted).collect();
        let mut text = format!("chain,draw,{}\n", names.join(","));
        let length = self.draws.length().max(1);
        for (k, row) in self.draws.rows().enumerate() {
            let _ = write!(text, "{},{}", k / length, k % length);
            row.iter().for_each(|value| {
                let _ = write!(text, ",{value}");
            });
            text.push('\n');
        }
        text
    }
}

/// The law of the effects of one site's groups, by its rows.
pub struct EffectsLaw {
    law: Effects,
    transforms: Transforms,
    seed: Seed,
    site: ClientId,
    rows: usize,
    names: Vec<String>,
    groups: Vec<String>,
}

impl EffectsLaw {
    /// That of a site with these rows, whose place in the list of sites this is; `None` where the
    /// model has no groups.
    pub(crate) fn new(
        model: &dyn RowModel,
        rows: SiteRows,
        (seed, place, dim): (u64, usize, usize),
    ) -> Result<Option<EffectsLaw>, DataError> {
        let SiteRows { design, rows, group_names: groups, .. } = rows;
        let count = design.rows();
        let Some(law) = model.effects(design, rows)? else { return Ok(None) };
        let names = match model.slope_by() {
            Some(slope) => {
                let along = |name: &String| format!("{name}: {}", slope.along);
                let both = law.effects() > 1;
                let of =
                    |name: &String| both.then(|| name.clone()).into_iter().chain([along(name)]);
                groups.iter().flat_map(of).collect()
            }
            None => groups.clone(),
        };
        let (transforms, seed) = (model.transforms(dim), Seed::new(seed));
        let site = ClientId(place as u32);
        Ok(Some(EffectsLaw { law, transforms, seed, site, rows: count, names, groups }))
    }

    /// Whether so many draws are too many to be gone through without being asked.
    pub fn is_costly(&self, draws: usize) -> bool {
        draws.saturating_mul(self.rows) > MOST_PAIRS
            || draws.saturating_mul(self.names.len()) > MOST_NUMBERS
    }

    /// The effects given each of these draws, on the natural scale; the first is the `first` of the
    /// run. Whenever a draw comes, and with which others, its effects are the same numbers.
    pub fn draw(&self, first: usize, draws: &[&[f64]]) -> Vec<Vec<f64>> {
        let draw = |(k, draw): (usize, &&[f64])| {
            let mut x = draw.to_vec();
            self.transforms.inward(&mut x);
            self.law
                .draw(&x, &mut self.seed.stream(Purpose::Effects, self.site, (first + k) as u64))
        };
        draws.par_iter().enumerate().map(draw).collect()
    }

    /// All of them, chain after chain of this length.
    pub fn gathered(&self, drawn: &[Vec<f64>], length: usize) -> SiteEffects {
        let chains = drawn.chunks(length.max(1)).map(<[Vec<f64>]>::concat).collect();
        let draws = Draws::from_chains(chains, self.names.len());
        SiteEffects { names: self.names.clone(), draws, groups: self.groups.clone() }
    }

    fn of_run(&self, record: &Record) -> SiteEffects {
        let all: Vec<&[f64]> = record.draws.rows().collect();
        self.gathered(&self.draw(0, &all), record.draws.length())
    }
}

/// Draw the effects of a site's groups from their law given each draw of a run, with the site's
/// rows: together with the run's draws these have the law of the whole model. They are the site's
/// own, and nobody else can draw them. Its rows are those of this file, or of the one that the
/// config names; nobody else's are looked at where sites have files of their own.
pub fn effects(record: &Record, site: &str, file: Option<&Path>) -> Result<SiteEffects, LooError> {
    drawn(record, rows_at(record, site, file)?)
}

/// The same where clients of these names have their rows in memory.
pub fn effects_with(record: &Record, site: &str, tables: &Tables) -> Result<SiteEffects, LooError> {
    drawn(record, rows_among(record, site, None, tables)?)
}

fn drawn(
    record: &Record,
    (model, place, rows): (Arc<dyn RowModel>, usize, SiteRows),
) -> Result<SiteEffects, LooError> {
    let law = EffectsLaw::new(&*model, rows, (record.seed, place, record.draws.dim()))?;
    Ok(law.ok_or(LooError::NoGroups)?.of_run(record))
}

/// What became of the effects of all sites of a run in one process.
#[derive(Debug)]
pub enum KeptEffects {
    /// The model has none.
    None,
    /// Each site has its own in a file of its own.
    Files(Vec<PathBuf>),
    /// They would take long, or much room: whoever wants them says so.
    Costly,
}

/// Keep the effects of every site's groups in the site's own folder within that of a run in one
/// process: `sites/NAME/effects.csv`.
pub fn keep_effects(
    record: &Record,
    tables: &Tables,
    folder: &Path,
) -> Result<KeptEffects, LooError> {
    if !has_groups(record, tables) {
        return Ok(KeptEffects::None);
    }
    let (model, sites) = rows_with(record, tables)?;
    let mut laws = Vec::new();
    for rows in sites {
        let Some(place) = record.sites.iter().position(|known| known.name == rows.name) else {
            continue;
        };
        let law = EffectsLaw::new(&*model, rows, (record.seed, place, record.draws.dim()))?;
        laws.extend(law.map(|law| (place, law)));
    }
    let draws = record.draws.rows().count();
    if laws.iter().any(|(_, law)| law.is_costly(draws)) {
        return Ok(KeptEffects::Costly);
    }
    let mut files = Vec::new();
    for (place, law) in laws {
        let own = folder.join(SITES_FOLDER).join(folder_of(record, place));
        let file = own.join(EFFECTS_FILE);
        let written = std::fs::create_dir_all(&own)
            .and_then(|()| std::fs::write(&file, law.of_run(record).csv()));
        written.map_err(|error| LooError::Unwritten { file: file.clone(), error })?;
        files.push(file);
    }
    Ok(KeptEffects::Files(files))
}

/// Whether the model of a run has effects of groups that may be drawn.
fn has_groups(record: &Record, tables: &Tables) -> bool {
    let config = crate::loo::config_of(record, tables).ok();
    config.is_some_and(|config| {
        config.target.model.of_rows().is_some_and(|model| model.group_by().is_some())
    })
}

/// What the folder of a site is called: as the site is, where that is a plain name that no other
/// site's folder can be taken for.
fn folder_of(record: &Record, place: usize) -> String {
    let name = &record.sites[place].name;
    let plain = name.chars().all(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        && name.trim() == name
        && (1..=100).contains(&name.len())
        && !name.starts_with("site-");
    let same = |other: &str| other.to_lowercase() == name.to_lowercase();
    let alone = record.sites.iter().filter(|site| same(&site.name)).count() == 1;
    if plain && alone { name.clone() } else { format!("site-{}", place + 1) }
}

#[cfg(test)]
mod tests {
    use consilience_core::model::Design;

    use super::*;
    use crate::data::GroupBy;
    use crate::models::{Observed, of_comparison, with_groups};

    fn law(place: usize) -> EffectsLaw {
        let model = with_groups(&of_comparison(), GroupBy::Column("ward".into()).into()).unwrap();
        let cells: Vec<f64> = (0..12).flat_map(|k| [1.0, f64::from(k % 5) - 2.0]).collect();
        let rows = Observed {
            response: (0..12).map(|k| f64::from(k % 3 / 2)).collect(),
            groups: (0..12).map(|k| k / 4).collect(),
            ..Observed::default()
        };
        let group_names = vec!["u".into(), "v \"new\"".into(), "w".into()];
        let design = Design::dense(cells, 2).unwrap();
        let rows = SiteRows { name: "north".into(), design, rows, group_names };
        EffectsLaw::new(&*model, rows, (5, place, 3)).unwrap().unwrap()
    }

    /// All at once, or some now and the others later; those of another site are others.
    #[test]
    fn effects_are_the_same_however_draws_come() {
        let draws: Vec<[f64; 3]> =
            (0..40).map(|k| [0.1 * f64::from(k % 7), 0.3, 0.5 + 0.02 * f64::from(k)]).collect();
        let all: Vec<&[f64]> = draws.iter().map(|draw| &draw[..]).collect();
        let (north, other) = (law(0), law(1));
        let whole = north.draw(0, &all);
        let parts = [north.draw(0, &all[..13]), north.draw(13, &all[13..])].concat();
        assert_eq!(whole, parts);
        assert_ne!(whole, other.draw(0, &all));
        let found = north.gathered(&whole, 20);
        assert_eq!((found.draws.chains(), found.draws.length(), found.draws.dim()), (2, 20, 3));
        let text = found.csv();
        assert!(text.starts_with("chain,draw,\"u\",\"v \"\"new\"\"\",\"w\"\n0,0,"), "{text}");
        assert!(text.lines().nth(21).unwrap().starts_with("1,0,"));
    }

    #[test]
    fn many_rows_and_draws_are_not_gone_through_unasked() {
        let law = law(0);
        assert!(!law.is_costly(4_000));
        assert!(law.is_costly(MOST_PAIRS / 12 + 1) && law.is_costly(usize::MAX));
    }
}

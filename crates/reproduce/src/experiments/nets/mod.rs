//! The tables and figures of the papers with neural nets: methods on one net, scored on rows that
//! were held out, seed by seed.
//!
//! All of them are this one experiment. `papers/nets/` has the rows of the tables, and the papers'
//! configs say which of them they need: a run of a method is made once for all tables that have it.

mod baselines;
mod conclude;
mod images;
mod methods;
mod scores;
mod setting;

use consilience_engine::data::catalogue;
use consilience_engine::run::Progress;

use self::images::Images;
use self::methods::Work;
use self::setting::Setting;
use crate::experiment::{Cell, Experiment, Findings, Found, Trouble, Values};
use crate::study::Study;

/// A table of methods on a neural net.
pub struct Nets;

/// What the rows of a study depend on, and what one of its methods does: the rest of the setting
/// says which methods are run and compared.
fn stated(study: &Study, method: Option<&str>) -> String {
    let mut setting = study.setting.clone();
    for key in ["methods", "pairs", "seeds", "untold"] {
        setting.remove(key);
    }
    let rows = setting.remove("row");
    let row = method.and_then(|name| rows.as_ref()?.get(name).cloned());
    setting.extend(row.map(|row| ("row".to_owned(), row)));
    format!("nets {}\n{setting}", study.seed)
}

/// The name of a cell.
fn cell(method: &str, run: u32) -> String {
    format!("{method}|{run}")
}

impl Experiment for Nets {
    fn shelf(&self) -> Option<&'static str> {
        Some("nets")
    }

    fn depends(&self, study: &Study, cell: &str) -> String {
        stated(study, cell.split('|').next())
    }

    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble> {
        let setting = Setting::of(study)?;
        let folder = catalogue::folder(study.data.as_deref());
        for name in setting.elsewhere.values().chain([&setting.data]) {
            if let Ok(entry) = catalogue::find(name)
                && folder.is_none()
                && !entry.built_in
            {
                catalogue::load(name, None)?; // says which folder is missing
            }
        }
        let cell = |(name, run): (&str, u32)| {
            let steps = setting.method(name)?.iterations;
            Ok(Cell::new(cell(name, run), steps))
        };
        setting.cells().map(cell).collect()
    }

    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
        let setting = Setting::of(study)?;
        let wrong = || Trouble::Other(format!("no such cell: {cell}"));
        let (name, run) = cell.split_once('|').ok_or_else(wrong)?;
        let run = run.parse().map_err(|_| wrong())?;
        let images = Images::of(&setting, study)?;
        let images = &*images;
        let work = Work { study, setting: &setting, images, name, run, progress };
        work.values()
    }

    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble> {
        conclude::conclude(study, &Setting::of(study)?, found)
    }
}

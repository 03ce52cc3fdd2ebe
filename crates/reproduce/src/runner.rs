//! Compute the cells of a study on all cores, keeping each as soon as it is there.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use consilience_engine::run::Progress;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::experiment::{Cell, Experiment, Found, Trouble, Values};
use crate::study::Study;

/// Raised when an experiment's numbers change for the same setting and seed, so that cells kept
/// before are not used.
const REVISION: u32 = 2;

/// The cells of a study, and where they are kept.
pub struct Work<'a> {
    study: &'a Study,
    experiment: &'a dyn Experiment,
    folder: PathBuf,
    cells: Vec<Cell>,
    found: BTreeMap<String, Values>,
}

/// A cell as it lies on the disk.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    cell: String,
    values: Values,
}

impl<'a> Work<'a> {
    /// The work of a study, less what lies finished in `folder`; all of it if `fresh`.
    pub fn new(
        study: &'a Study,
        experiment: &'a dyn Experiment,
        folder: &Path,
        fresh: bool,
    ) -> Result<Self, Trouble> {
        let cells = experiment.cells(study)?;
        let mut work =
            Work { study, experiment, folder: folder.to_path_buf(), cells, found: BTreeMap::new() };
        if !fresh {
            let known = work
                .cells
                .iter()
                .filter_map(|cell| Some((cell.name.clone(), work.kept(&cell.name)?)))
                .collect();
            work.found = known;
        }
        Ok(work)
    }

    /// How much is still to be done, in the experiment's units.
    pub fn left(&self) -> u64 {
        self.cells
            .iter()
            .filter(|cell| !self.found.contains_key(&cell.name))
            .map(|cell| cell.cost)
            .sum()
    }

    /// Do it, on so many threads (0: one for each core).
    pub fn finish(mut self, threads: usize, progress: &Progress) -> Result<Found, Trouble> {
        std::fs::create_dir_all(&self.folder).map_err(|error| self.trouble(&self.folder, error))?;
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .map_err(|error| Trouble::Other(error.to_string()))?;
        let mut todo: Vec<&Cell> =
            self.cells.iter().filter(|cell| !self.found.contains_key(&cell.name)).collect();
        // the longest first, so that no core idles at the end
        todo.sort_by_key(|cell| std::cmp::Reverse(cell.cost));
        let trouble: Mutex<Option<Trouble>> = Mutex::new(None);
        let done: Vec<(String, Values)> = pool.install(|| {
            let one = |cell: &&Cell| {
                if progress.stop.load(Ordering::Relaxed) {
                    return None;
                }
                let result = self
                    .experiment
                    .run(self.study, &cell.name, progress)
                    .and_then(|values| self.keep(&cell.name, values));
                match result {
                    Ok(values) => Some((cell.name.clone(), values)),
                    Err(error) => {
                        progress.stop.store(true, Ordering::Relaxed);
                        if let Ok(mut slot) = trouble.lock()
                            && !matches!(*slot,
                                Some(ref known) if !matches!(known, Trouble::Stopped))
                        {
                            *slot = Some(error);
                        }
                        None
                    }
                }
            };
            // one after the other in this order, whoever is free: a split list would leave the
            // longest to one core
            todo.iter().par_bridge().filter_map(one).collect()
        });
        if let Ok(Some(error)) = trouble.into_inner() {
            return Err(error);
        }
        if done.len() < todo.len() {
            return Err(Trouble::Stopped);
        }
        self.found.extend(done);
        Ok(Found(self.found))
    }

    /// What a cell depends on.
    fn key(&self, cell: &str) -> String {
        let text = format!("{REVISION}\n{}\n{cell}\n", self.experiment.depends(self.study, cell));
        Sha256::digest(text).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    fn file(&self, cell: &str) -> PathBuf {
        self.folder.join(format!("{}.json", &self.key(cell)[..24]))
    }

    /// A finished cell; one that is damaged or of another setting is done again.
    fn kept(&self, cell: &str) -> Option<Values> {
        let kept: Kept = serde_json::from_slice(&std::fs::read(self.file(cell)).ok()?).ok()?;
        (kept.key == self.key(cell)).then_some(kept.values)
    }

    /// Keep a cell, and give it as it will be read back: a number that JSON cannot hold is a
    /// mistake that shows at once, not on the next run.
    fn keep(&self, cell: &str, values: Values) -> Result<Values, Trouble> {
        if let Some((name, _)) = values.iter().find(|(_, list)| list.iter().any(|v| !v.is_finite()))
        {
            return Err(Trouble::Other(format!("cell `{cell}`: `{name}` is not finite")));
        }
        let kept = Kept { key: self.key(cell), cell: cell.into(), values };
        let file = self.file(cell);
        let text = serde_json::to_vec(&kept).map_err(|error| Trouble::Other(error.to_string()))?;
        let partial = file.with_extension("partial");
        std::fs::write(&partial, text).map_err(|error| self.trouble(&partial, error))?;
        std::fs::rename(&partial, &file).map_err(|error| self.trouble(&file, error))?;
        Ok(kept.values)
    }

    fn trouble(&self, file: &Path, error: std::io::Error) -> Trouble {
        Trouble::File { file: file.display().to_string(), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Findings;
    use crate::study::{Config, Size};
    use std::sync::atomic::AtomicUsize;

    /// Squares; counts how often it is asked, and fails at 3 if told to.
    struct Squares {
        asked: AtomicUsize,
        fails: bool,
    }

    impl Experiment for Squares {
        fn cells(&self, _: &Study) -> Result<Vec<Cell>, Trouble> {
            Ok((0..5).map(|k| Cell::new(k.to_string(), 10)).collect())
        }

        fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let k: f64 = cell.parse().unwrap();
            if self.fails && k == 3.0 {
                return Err(Trouble::Stopped);
            }
            progress.done.fetch_add(10, Ordering::Relaxed);
            let scale = study.setting["scale"].as_float().unwrap();
            Ok(Values::from([("square".into(), vec![scale * k * k])]))
        }

        fn conclude(&self, _: &Study, _: &Found) -> Result<Findings, Trouble> {
            Ok(Findings::default())
        }
    }

    #[test]
    fn what_was_finished_is_kept_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("consilience-cells-{}", std::process::id()));
        let config = |scale: f64| {
            Config::read(&format!(
                "id = \"t\"\nplace = \"p\"\nsays = \"s\"\n[setting]\nscale = {scale:?}\n"
            ))
            .unwrap()
            .study("x", Size::Full)
        };
        let (study, other) = (config(0.1), config(0.2));
        let first = Squares { asked: AtomicUsize::new(0), fails: true };
        let stopped =
            Work::new(&study, &first, &folder, false).unwrap().finish(1, &Progress::default());
        assert!(matches!(stopped, Err(Trouble::Stopped)));
        let before = first.asked.load(Ordering::Relaxed) - 1;
        let second = Squares { asked: AtomicUsize::new(0), fails: false };
        let work = Work::new(&study, &second, &folder, false).unwrap();
        assert_eq!(work.left(), 50 - 10 * before as u64);
        let found = work.finish(2, &Progress::default()).unwrap();
        assert_eq!(second.asked.load(Ordering::Relaxed), 5 - before);
        assert_eq!(found.number("3", "square").unwrap(), 0.1 * 3.0 * 3.0);
        assert!(matches!(found.number("3", "cube"), Err(Trouble::Missing { .. })));
        // All is there, bit for bit; another setting finds nothing; a damaged cell is done again.
        let work = Work::new(&study, &second, &folder, false).unwrap();
        assert_eq!((work.left(), work.found.clone()), (0, found.0));
        let file = work.file("2");
        assert_eq!(Work::new(&other, &second, &folder, false).unwrap().left(), 50);
        assert_eq!(Work::new(&study, &second, &folder, true).unwrap().left(), 50);
        std::fs::write(file, "{").unwrap();
        assert_eq!(Work::new(&study, &second, &folder, false).unwrap().left(), 10);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

//! The contract of all experiments: cells of work, and what follows from them.

use std::collections::BTreeMap;

use consilience_engine::data::catalogue::CatalogueError;
use consilience_engine::run::Progress;
use consilience_report::figure::Figure;
use thiserror::Error;

use crate::number::Numbers;
use crate::study::Study;

/// One table or figure of a paper.
pub trait Experiment: Sync {
    /// The work, cut into pieces that know nothing of each other.
    fn cells(&self, study: &Study) -> Result<Vec<Cell>, Trouble>;

    /// Do one piece. It is a pure function of the study and the cell's name; it adds up to the
    /// cell's cost to `progress.done`, and gives up when told to stop.
    fn run(&self, study: &Study, cell: &str, progress: &Progress) -> Result<Values, Trouble>;

    /// All that a piece depends on beside its name: pieces that depend on the same are the same.
    fn depends(&self, study: &Study, _cell: &str) -> String {
        format!("{}\n{}\n{}", study.id, study.seed, study.setting)
    }

    /// Where finished pieces lie, if experiments share them.
    fn shelf(&self) -> Option<&'static str> {
        None
    }

    /// What follows from all pieces.
    fn conclude(&self, study: &Study, found: &Found) -> Result<Findings, Trouble>;
}

/// A piece of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its name, which says all about it: `qlsd*/16/run 3`.
    pub name: String,
    /// What it costs, in units of its own experiment.
    pub cost: u64,
}

impl Cell {
    /// A piece of work.
    pub fn new(name: impl Into<String>, cost: u64) -> Self {
        Cell { name: name.into(), cost }
    }
}

/// What a cell gave: lists of numbers by name.
pub type Values = BTreeMap<String, Vec<f64>>;

/// What all cells gave.
#[derive(Clone, Debug, Default)]
pub struct Found(pub BTreeMap<String, Values>);

impl Found {
    /// A list that a cell gave.
    pub fn list(&self, cell: &str, name: &str) -> Result<&[f64], Trouble> {
        let values = self.0.get(cell).and_then(|values| values.get(name));
        values
            .map(Vec::as_slice)
            .ok_or_else(|| Trouble::Missing { cell: cell.into(), name: name.into() })
    }

    /// A number that a cell gave.
    pub fn number(&self, cell: &str, name: &str) -> Result<f64, Trouble> {
        self.list(cell, name)?
            .first()
            .copied()
            .ok_or_else(|| Trouble::Missing { cell: cell.into(), name: name.into() })
    }
}

/// What an experiment found.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The numbers under each reading of the paper; the first is the one that we stand by.
    pub readings: Vec<Reading>,
    /// The paper's figures, redrawn.
    pub figures: Vec<Figure>,
    /// What a reader should know, one paragraph each.
    pub notes: Vec<String>,
}

/// One way to read the paper, or to repeat what its program did.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Its name; empty for the one that we stand by.
    pub name: String,
    /// What it changes.
    pub says: String,
    /// Whether it repeats what the authors' program did, which is shown on request only.
    pub published: bool,
    /// The numbers.
    pub numbers: Numbers,
}

impl Reading {
    /// The reading that we stand by.
    pub fn ours(numbers: Numbers) -> Self {
        Reading { name: String::new(), says: String::new(), published: false, numbers }
    }

    /// Another reading of the paper.
    pub fn other(name: impl Into<String>, says: impl Into<String>, numbers: Numbers) -> Self {
        Reading { name: name.into(), says: says.into(), published: false, numbers }
    }

    /// What the authors' program did.
    pub fn published(name: impl Into<String>, says: impl Into<String>, numbers: Numbers) -> Self {
        Reading { published: true, ..Reading::other(name, says, numbers) }
    }
}

/// Why an experiment gave nothing.
#[derive(Debug, Error)]
pub enum Trouble {
    /// Somebody asked to stop; finished cells are kept.
    #[error("stopped: what was finished is kept, and the same command goes on from there")]
    Stopped,
    /// The data cannot be had.
    #[error("{0}")]
    Data(#[from] CatalogueError),
    /// The setting does not fit the experiment.
    #[error("papers/{paper}/{id}.toml: {problem}")]
    Setting {
        /// The paper's key.
        paper: String,
        /// The experiment.
        id: String,
        /// What is wrong.
        problem: String,
    },
    /// A cell lacks a number: it was kept by another version.
    #[error(
        "cell `{cell}` has no `{name}`: it was kept by another version, so run again with --fresh"
    )]
    Missing {
        /// The cell.
        cell: String,
        /// The number.
        name: String,
    },
    /// A chain blew up.
    #[error("cell `{cell}` diverged at iteration {iteration}")]
    Diverged {
        /// The cell or sampler.
        cell: String,
        /// When.
        iteration: u64,
    },
    /// A file cannot be read or written.
    #[error("{file}: {error}")]
    File {
        /// Which.
        file: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Anything else, said by whoever knows.
    #[error("{0}")]
    Other(String),
}

impl From<consilience_core::error::DataError> for Trouble {
    fn from(error: consilience_core::error::DataError) -> Self {
        Trouble::Other(error.to_string())
    }
}

//! Run again what the papers measured: every table and figure by name, its claims judged with error
//! bars.
//!
//! An experiment is cut into cells, each a pure function of the setting, the seed and its name.
//! Cells are computed in any order, on any number of threads, and kept on disk, so a run can be
//! stopped and continued; numbers, figures and verdicts follow from the cells alone.

pub mod catalogue;
pub mod chain;
pub mod claim;
pub mod experiment;
mod experiments;
pub mod fit;
pub mod number;
pub mod output;
pub mod record;
pub mod runner;
pub mod scorecard;
pub mod study;

pub use catalogue::{CATALOGUE, Entry, find};
pub use claim::{Claim, Judged, Kind, Verdict};
pub use experiment::{Cell, Experiment, Findings, Found, Reading, Trouble, Values};
pub use number::{Number, Numbers};
pub use study::{Size, Study};

//! Give the engine to Python: glue only. The package's front is `python/consilience/`, which
//! documents what users call.

mod command;
mod compressor;
mod errors;
mod formula;
mod judged;
mod listing;
mod measures;
mod model;
mod network;
mod run;
mod stated;
mod tables;
mod warnings;
mod watch;

use pyo3::prelude::*;

/// The config of the main job.
const HEART: &str = include_str!("../../cli/templates/heart.toml");

/// The compiled half of the package `consilience`.
#[pymodule]
mod _consilience {
    #[pymodule_export]
    use crate::command::command;
    #[pymodule_export]
    use crate::compressor::Compressor;
    #[pymodule_export]
    use crate::formula::needed;
    #[pymodule_export]
    use crate::judged::{compare, exact, reproduce, reproductions};
    #[pymodule_export]
    use crate::listing::{fields, models, samplers};
    #[pymodule_export]
    use crate::measures::{distance, measured, summarise};
    #[pymodule_export]
    use crate::network::{Correspondent, Serving, join_run, serve_run};
    #[pymodule_export]
    use crate::run::{Run, compare_models, load, sample, unpack};

    use super::{Bound, HEART, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("HEART", HEART)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

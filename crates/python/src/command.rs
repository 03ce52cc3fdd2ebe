//! Run the command `consilience`, which is part of the wheel.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Do what a command line asks, without the name of the command; its exit code.
#[pyfunction]
pub fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| consilience::command(arguments))
}

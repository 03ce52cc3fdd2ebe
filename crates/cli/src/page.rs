//! Write the report of a run that was kept: one HTML page, and its first plot as a picture.

use std::path::{Path, PathBuf};

use consilience_engine::record::Record;
use consilience_engine::rundir;

use crate::args::ReportCommand;
use crate::output::{Failure, say};

/// `consilience report`.
pub fn report(command: &ReportCommand) -> Result<(), Failure> {
    let record = rundir::read(&command.dir)?;
    let file = command.html.clone().unwrap_or_else(|| inside(&command.dir));
    write(&file, &record)?;
    say(&format!("The report is {}.\n", file.display()))?;
    let Some(file) = &command.svg else { return Ok(()) };
    std::fs::write(file, consilience_report::picture(&record)).map_err(|error| {
        Failure::Other(format!("the picture cannot be written to {}: {error}", file.display()))
    })?;
    say(&format!("The picture is {}.\n", file.display()))
}

/// The name of a report in its run directory.
pub const NAME: &str = "report.html";

/// Where a run directory has its report.
pub fn inside(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// Write the page of a run.
pub fn write(file: &Path, record: &Record) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::Other(format!(
            "the report cannot be written to {}: {error}\n  choose another place with --html FILE",
            file.display()
        ))
    };
    std::fs::write(file, consilience_report::html(record)).map_err(failed)
}

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
    if let Some(file) = &command.svg {
        keep(file, &consilience_report::picture(&record))?;
    }
    let Some(file) = &command.uncertain else { return Ok(()) };
    let images = consilience_report::uncertain_images(&record).ok_or_else(|| {
        Failure::Argument(format!(
            "{} has no images that were held out\n  run a net on images, with data.test",
            command.dir.display()
        ))
    })?;
    keep(file, &images)
}

/// Write a picture, and say so.
fn keep(file: &Path, picture: &str) -> Result<(), Failure> {
    std::fs::write(file, picture).map_err(|error| {
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

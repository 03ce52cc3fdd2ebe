//! Show a run that was kept.

use consilience_engine::rundir;

use crate::args::SummaryCommand;
use crate::output::{Failure, say};
use crate::report::Answer;

/// `consilience summary`.
pub fn summary(command: &SummaryCommand) -> Result<(), Failure> {
    let record = rundir::read(&command.dir)?;
    let answer = Answer::new(&record, None);
    if command.json {
        return say(&answer.json());
    }
    say(&format!("Sampler: {} ({}), seed {}, {}.\n{}", record.sampler.0, record.sampler.1, record.seed, record.created, answer.text()))
}

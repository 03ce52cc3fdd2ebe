//! Summarise a run that was kept, or draws in a file.

use std::path::Path;

use consilience_core::measure::{Interval, MASS, Summary};
use consilience_engine::ratios::Ratios;
use consilience_engine::rundir;
use consilience_engine::streamed::DrawsFile;
use serde_json::{Value, json};

use crate::args::SummaryCommand;
use crate::output::{Failure, say};
use crate::ratios;
use crate::report::{self, Answer, number};

/// `consilience summary`.
pub fn summary(command: &SummaryCommand) -> Result<(), Failure> {
    if command.dir.is_file() {
        if command.ratios {
            let wrong = "a file of draws does not say its model: give the run directory";
            return Err(Failure::Argument(format!("{}: {wrong}", command.dir.display())));
        }
        return file(&command.dir, command.json);
    }
    let record = rundir::read(&command.dir)?;
    if command.ratios {
        let found = Ratios::new(&record).map_err(|why| {
            Failure::Argument(format!("{}: there are no ratios: {why}", command.dir.display()))
        })?;
        return say(&if command.json { ratios::json(&found) } else { ratios::text(&found) });
    }
    let answer = Answer::new(&record, None);
    if command.json {
        return say(&answer.json());
    }
    say(&format!(
        "Sampler: {} ({}), seed {}, {}.\n{}",
        record.sampler.0,
        record.sampler.1,
        record.seed,
        record.created,
        answer.text()
    ))
}

/// The summary of a file of draws, which may be larger than memory.
fn file(path: &Path, as_json: bool) -> Result<(), Failure> {
    let draws = DrawsFile::open(path).map_err(Failure::Argument)?;
    let summaries = draws.summaries(Interval::default()).map_err(Failure::Other)?;
    if as_json {
        let of = |read: fn(&Summary) -> f64| -> Vec<Value> {
            summaries.iter().map(|s| s.as_ref().map_or(Value::Null, |s| number(read(s)))).collect()
        };
        let value = json!({
            "parameters": draws.parameters, "chains": draws.chains, "draws": draws.length,
            "interval_mass": MASS,
            "mean": of(|s| s.mean), "sd": of(|s| s.sd), "lower": of(|s| s.lower),
            "upper": of(|s| s.upper),
            "rhat": of(|s| s.rhat), "ess_bulk": of(|s| s.ess_bulk), "ess_tail": of(|s| s.ess_tail),
            "mcse_mean": of(|s| s.mcse_mean),
        });
        return say(&format!("{value:#}\n"));
    }
    let table = report::table(&draws.parameters, &summaries, None);
    say(&format!("{} draws of each of {} chains.\n\n{table}", draws.length, draws.chains))
}

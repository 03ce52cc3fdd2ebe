//! Draw the effects of one site's groups from a run that was kept.

use std::fmt::Write;

use consilience_core::measure::{MASS, Summary};
use consilience_engine::rundir;
use consilience_engine::site_effects::effects as draw;
use consilience_engine::warnings::summaries;
use serde_json::{Value, json};

use crate::args::EffectsCommand;
use crate::loo::refused;
use crate::output::{Failure, say};
use crate::report::{self, number};

/// `consilience effects`.
pub fn effects(command: &EffectsCommand) -> Result<(), Failure> {
    let record = rundir::read(&command.dir)?;
    let found = draw(&record, &command.site, command.data.as_deref())
        .map_err(|e| refused(&[&command.dir], e))?;
    if let Some(file) = &command.out {
        std::fs::write(file, found.csv()).map_err(|e| {
            Failure::Argument(format!("{}: the effects cannot be written: {e}", file.display()))
        })?;
    }
    let all = summaries(&found.draws);
    if command.json {
        let of = |read: fn(&Summary) -> f64| -> Vec<Value> {
            all.iter().map(|s| s.as_ref().map_or(Value::Null, |s| number(read(s)))).collect()
        };
        let value = json!({
            "site": command.site, "groups": found.names, "interval_mass": MASS,
            "mean": of(|s| s.mean), "sd": of(|s| s.sd), "lower": of(|s| s.lower),
            "upper": of(|s| s.upper),
        });
        return say(&format!("{value:#}\n"));
    }
    let mut text = format!(
        "Effects of the groups of site {}, on the scale of the linear predictor. They are the \
         site's own: nobody else can draw them.\n\n{}",
        command.site,
        report::table(&found.names, &all, None)
    );
    if let Some(file) = &command.out {
        let _ = writeln!(text, "\nThe draws are in {}.", file.display());
    }
    say(&text)
}

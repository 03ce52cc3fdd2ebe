//! Check a model: responses that it would draw, against those that there are.

use std::fmt::Write;

use consilience_engine::check::{self, Check, Compared, DOUBTFUL, Fit, short};
use consilience_engine::rundir;
use serde_json::json;

use crate::args::CheckCommand;
use crate::loo::refused;
use crate::output::{Failure, say};
use crate::predict::config_of;
use crate::report::bytes;

/// `consilience check`.
pub fn check(command: &CheckCommand) -> Result<(), Failure> {
    let found = match command.prior {
        true => check::prior_check(&config_of(&command.path)?),
        false => check::check(&rundir::read(&command.path)?),
    };
    let found = found.map_err(|e| refused(&[&command.path], e))?;
    if command.json {
        let mut value = json!(found);
        value["warnings"] = json!(found.warning().map(|warning| warning.value()).as_slice());
        return say(&format!("{value:#}\n"));
    }
    say(&text(&found))
}

fn text(found: &Check) -> String {
    let mut text = String::new();
    if let Some(warning) = found.warning() {
        let _ = writeln!(text, "WARNING: {warning}\n");
    }
    let by = if found.prior { "the prior alone" } else { "the posterior" };
    let _ = writeln!(
        text,
        "Drawn anew by {by} {} times, for {} rows: what was observed, the mean of replicates, the \
         interval that {:.0}% of them lie in, and how probable it is to be as far off.\n",
        found.replicates,
        found.rows,
        100.0 * found.mass
    );
    let counts = format!("{} by bin", found.unit);
    let of_sites = if found.unit == "events" { "events by site" } else { "mean by site" };
    for (title, rows) in
        [("", &found.statistics), (counts.as_str(), &found.bins), (of_sites, &found.sites)]
    {
        if !rows.is_empty() {
            text.push_str(&table(title, rows));
            text.push('\n');
        }
    }
    if let Some(Fit { measure, value, lower, upper }) = &found.fit {
        let is = if measure == "AUC" { "between" } else { "89% between" };
        let _ = writeln!(text, "{measure}: {value:.3} ({is} {lower:.3} and {upper:.3}).");
    }
    let _ = writeln!(
        text,
        "A p below {DOUBTFUL} is doubtful. Sites would send {} in all, counts and sums over their \
         rows.",
        bytes(8 * found.bytes)
    );
    text
}

fn table(title: &str, rows: &[Compared]) -> String {
    let names = rows.iter().map(|row| row.name.chars().count());
    let wide = names.chain([title.chars().count()]).max().unwrap_or(0);
    let mut text = format!(
        "{title:<wide$} {:>10} {:>10} {:>10} {:>10} {:>7}\n",
        "observed", "replicated", "5.5%", "94.5%", "p"
    );
    for Compared { name, observed, replicated, lower, upper, p } in rows {
        let _ = writeln!(
            text,
            "{name:<wide$} {:>10} {:>10} {:>10} {:>10} {p:>7.3}",
            short(*observed),
            short(*replicated),
            short(*lower),
            short(*upper)
        );
    }
    text
}

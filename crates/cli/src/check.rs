//! Check a model: responses that it would draw, against those that there are.

use std::fmt::Write;

use consilience_engine::check::{
    self, Check, CheckPart, Compared, DOUBTFUL, FirstPart, Fit, short,
};
use consilience_engine::loo::{read_part, text_of_part};
use consilience_engine::rundir;
use serde_json::json;

use crate::args::{ApartArguments, CheckCommand};
use crate::loo::{parts, refused, write, write_for};
use crate::output::{Failure, say};
use crate::predict::config_of;
use crate::report::bytes;

/// `consilience check`.
pub fn check(command: &CheckCommand) -> Result<(), Failure> {
    let ApartArguments { site, data, out, merge } = &command.apart;
    let wrong = |e| refused(&[&command.path], e);
    let record = || rundir::read(&command.path);
    let found = match (site, out) {
        (Some(site), Some(out)) if command.first.is_empty() => {
            let part = check::first_at(&record()?, site, data.as_deref()).map_err(wrong)?;
            let next = "Every site needs those of all sites for its counts: --first FILE...";
            return write_for(out, &text_of_part(&part), site, next);
        }
        (Some(site), Some(out)) => {
            let first: Vec<FirstPart> = parts(&command.first, read_part)?;
            let part = check::check_at(&record()?, site, data.as_deref(), &first);
            return write(out, &text_of_part(&part.map_err(wrong)?), site);
        }
        _ if command.prior => check::prior_check(&config_of(&command.path)?),
        _ if !merge.is_empty() => check::merge(&record()?, &parts::<CheckPart>(merge, read_part)?),
        _ => check::check(&record()?),
    };
    let found = found.map_err(wrong)?;
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

//! Cross-validate a run at its sites, and compare two models of the same rows.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use consilience_core::measure::Elpd;
use consilience_engine::loo::{self, ComparedPart, Loo, LooError, LooPart};
use consilience_engine::record::Record;
use consilience_engine::rundir;
use serde_json::{Value, json};

use crate::args::{ApartArguments, CompareModelsCommand, LooCommand};
use crate::output::{Failure, note, say};
use crate::report::number;

/// `consilience loo`.
pub fn loo(command: &LooCommand) -> Result<(), Failure> {
    let LooCommand { dir, apart: ApartArguments { site, data, out, merge }, .. } = command;
    let dir = dir.as_deref().unwrap_or(Path::new(""));
    let found = match (site, out) {
        (Some(site), Some(out)) => {
            let part = loo::loo_at(&rundir::read(dir)?, site, data.as_deref())
                .map_err(|e| refused(&[dir], e))?;
            return write(out, &part.text(), site);
        }
        _ if !merge.is_empty() => {
            loo::merge(&parts(merge, LooPart::read)?).map_err(|e| of_files(merge, e))?
        }
        _ => {
            let mut record = rundir::read(dir)?;
            let found = loo::loo(&record).map_err(|e| refused(&[dir], e))?;
            record.loo = Some(found.clone());
            // a folder that others own is looked at all the same
            if let Err(error) = rundir::keep_judged(dir, &record) {
                note(&format!("warning: it was not kept for the report: {error}\n"));
            }
            found
        }
    };
    if command.json {
        return say(&format!("{:#}\n", value(&found)));
    }
    let title = "Leave-one-out cross-validation, by each site of its own rows:";
    say(&format!("{title}\n\n{}{}", table(&found, "p_loo"), doubts(&found)))
}

/// `consilience compare-models`.
pub fn compare(command: &CompareModelsCommand) -> Result<(), Failure> {
    let ApartArguments { site, data, out, merge } = &command.apart;
    let named = |path: &Option<PathBuf>, else_called: &str| {
        path.clone().unwrap_or_else(|| PathBuf::from(else_called))
    };
    let paths = [&named(&command.a, "the first"), &named(&command.b, "the second")];
    let read = || -> Result<[Record; 2], Failure> {
        Ok([rundir::read(paths[0])?, rundir::read(paths[1])?])
    };
    let wrong = |e| refused(&[paths[0], paths[1]], e);
    let [a, b, difference] = match (site, out) {
        (Some(site), Some(out)) => {
            let [a, b] = read()?;
            let part = loo::compare_at([&a, &b], site, data.as_deref()).map_err(wrong)?;
            return write(out, &part.text(), site);
        }
        _ if !merge.is_empty() => loo::merge_compared(&parts(merge, ComparedPart::read)?)
            .map_err(|e| of_files(merge, e))?,
        _ => {
            let [a, b] = read()?;
            loo::compare(&a, &b).map_err(wrong)?
        }
    };
    if command.json {
        let all = json!({ "a": value(&a), "b": value(&b), "difference": value(&difference) });
        return say(&format!("{all:#}\n"));
    }
    let Elpd { sum, .. } = difference.total;
    let mut text = String::from("How well rows are predicted that were left out:\n\n");
    for (path, one) in paths.iter().zip([&a, &b]) {
        let (elpd, error) = (one.total.sum, one.total.error());
        let _ = writeln!(text, "{}: elpd {elpd:.1}, standard error {error:.1}", path.display());
    }
    let better = if sum >= 0.0 { paths[0] } else { paths[1] };
    let _ = write!(
        text,
        "\n{} predicts better, by {:.1}, standard error {:.1}. {}\n\nThe first less the \
         second:\n\n{}{}",
        better.display(),
        sum.abs(),
        difference.total.error(),
        judgement(&difference.total),
        table(&difference, ""),
        doubts(&difference)
    );
    say(&text)
}

/// Write what a site found by itself.
pub fn write(out: &Path, text: &str, site: &str) -> Result<(), Failure> {
    write_for(out, text, site, "Whoever has those of all sites adds them up: --merge FILE...")
}

/// The same, and what they are for.
pub fn write_for(out: &Path, text: &str, site: &str, next: &str) -> Result<(), Failure> {
    std::fs::write(out, text).map_err(|e| {
        Failure::Argument(format!("{}: the sums cannot be written: {e}", out.display()))
    })?;
    say(&format!("The sums of site {site} are in {}. {next}\n", out.display()))
}

/// Read what sites wrote.
pub fn parts<T>(files: &[PathBuf], read: fn(&str) -> Result<T, String>) -> Result<Vec<T>, Failure> {
    let one = |path: &PathBuf| {
        let wrong = |e: String| Failure::Argument(format!("{}: {e}", path.display()));
        let text =
            std::fs::read_to_string(path).map_err(|e| wrong(format!("it cannot be read: {e}")))?;
        read(&text).map_err(|e| {
            wrong(format!("it is no file that this command wrote with --site and --out: {e}"))
        })
    };
    files.iter().map(one).collect()
}

fn of_files(files: &[PathBuf], error: LooError) -> Failure {
    refused(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>(), error)
}

/// What a difference says (Sivula, Magnusson and Vehtari 2020).
fn judgement(difference: &Elpd) -> &'static str {
    if difference.sum.abs() < 4.0 {
        "A difference below 4 is small."
    } else if difference.sum.abs() < 2.0 * difference.error() {
        "That is less than two standard errors."
    } else {
        "That is more than two standard errors."
    }
}

pub fn refused(paths: &[&Path], error: LooError) -> Failure {
    match error {
        LooError::Config(error) => Failure::Config(error),
        error => {
            let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
            Failure::Argument(format!("{}: {error}", paths.join(", ")))
        }
    }
}

/// One line a site, and one for all; a column of effective parameters where it has a name.
fn table(found: &Loo, parameters: &str) -> String {
    let wide = found.sites.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(5);
    let bad = format!("k > {:.2}", found.good_k);
    let mut text = format!(
        "{:<wide$} {:>8} {:>10} {:>8} {parameters:>8} {bad:>9}\n",
        "", found.unit, "elpd", "se"
    );
    let all = [("all".to_owned(), found.total)];
    for (name, elpd) in found.sites.iter().chain(&all) {
        let own = match parameters {
            "" => String::new(),
            _ => format!("{:.1}", elpd.parameters()),
        };
        let _ = writeln!(
            text,
            "{name:<wide$} {:>8} {:>10.1} {:>8.1} {own:>8} {:>9}",
            elpd.rows,
            elpd.sum,
            elpd.error(),
            elpd.by_k[1] + elpd.by_k[2]
        );
    }
    text
}

/// What is not to be relied on.
fn doubts(found: &Loo) -> String {
    match found.doubtful() {
        0 => String::new(),
        some => format!(
            "\nThe draws say little of what would be without {some} of {} {}: elpd is not to be \
             relied on. A model with heavier tails, or one in which single {} count for less, \
             mends that.\n",
            found.total.rows, found.unit, found.unit
        ),
    }
}

fn value(found: &Loo) -> Value {
    let sums = |elpd: &Elpd| {
        json!({
            "rows": elpd.rows, "elpd": number(elpd.sum), "se": number(elpd.error()),
            "p_loo": number(elpd.parameters()), "squares": number(elpd.squares),
            "rows_by_k": elpd.by_k,
        })
    };
    let sites: serde_json::Map<String, Value> =
        found.sites.iter().map(|(name, elpd)| (name.clone(), sums(elpd))).collect();
    json!({
        "unit": found.unit, "draws": found.draws, "good_k": number(found.good_k),
        "total": sums(&found.total), "sites": sites,
    })
}

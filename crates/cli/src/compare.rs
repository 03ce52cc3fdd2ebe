//! Compare several samplers on one target: their errors, and what they cost.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use consilience_core::protocol::Statement;
use consilience_engine::config::Config;
use consilience_engine::draws::Sinks;
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::run::{Progress, sample};
use consilience_report::{Comparison, Contender, Truth, comparison};
use serde_json::{Value, json};

use crate::args::CompareCommand;
use crate::output::{Failure, note, say};
use crate::progress::with_progress;
use crate::report::bytes;
use crate::truth;

/// `consilience compare`.
pub fn compare(command: &CompareCommand) -> Result<(), Failure> {
    let mut first: Option<(Statement, Truth)> = None;
    let mut size = (0, 0);
    let mut rows = Vec::new();
    // one for all runs: Ctrl-C stops whichever is under way
    let progress = Arc::new(Progress::default());
    for path in &command.configs {
        let mut config = Config::load(path)?;
        if let Some(seed) = command.seed {
            config.seed = seed;
        }
        let problem = Problem::new(&config)?;
        size = (problem.parameters.len(), problem.clients.len());
        let plan = Plan::new(&config, &problem)?;
        for warning in &plan.warnings {
            note(&format!("warning: {}: {warning}\n", path.display()));
        }
        match &first {
            None => {
                first = Some((problem.statement.clone(), {
                    let kept = truth::kept(&problem, command.cache.as_deref());
                    Truth::find(&config, &problem, &plan, kept).map_err(Failure::Other)?
                }))
            }
            Some((statement, _)) => {
                let mismatch = |e: consilience_core::protocol::Mismatch| {
                    Failure::Other(format!("{e}\n  compare configs that state the same target"))
                };
                statement
                    .check(&problem.statement, &path.display().to_string())
                    .map_err(mismatch)?;
            }
        }
        let Some((_, truth)) = &first else { continue };
        progress.done.store(0, Ordering::Relaxed);
        let total = plan.length.total();
        let started = Instant::now();
        let title = format!("{} ({})", path.display(), config.sampler.row.name);
        let outcome = with_progress(&title, total, &progress, || {
            sample(&plan, &plan.length, config.seed, Sinks::Memory, &progress)
        })?;
        if outcome.interrupted {
            return Err(Failure::Interrupted(Some(
                "stopped: a comparison needs every run to its end".into(),
            )));
        }
        let seconds = started.elapsed().as_secs_f64();
        rows.push(truth.judge(&path.display().to_string(), &config, &plan, &outcome, seconds));
    }
    let Some((_, truth)) = first else { return Ok(()) };
    let all = Comparison { reference: truth.how, reference_error: truth.error, size, runs: rows };
    if let Some(file) = &command.html {
        let failed = |error: std::io::Error| {
            Failure::Other(format!("the page cannot be written to {}: {error}", file.display()))
        };
        std::fs::write(file, comparison(&all)).map_err(failed)?;
    }
    if command.json {
        return say(&to_json(&all.runs, &all.reference));
    }
    let page = command
        .html
        .as_ref()
        .map_or_else(String::new, |file| format!("\nThe page is {}.\n", file.display()));
    say(&(to_text(&all.runs, &all.reference) + &page))
}

fn to_text(rows: &[Contender], reference: &str) -> String {
    let width = rows.iter().map(|r| r.config.chars().count()).max().unwrap_or(6).max(6);
    let mut text = format!(
        "{:<width$} {:<12} {:>9} {:>8} {:>7} {:>9} {:>9} {:>9} {:>9} {:>11} {:>11} {:>8} {:>9} \
         {:>9}\n",
        "config",
        "sampler",
        "step",
        "mean/sd",
        "sd",
        "W2",
        "ESS",
        "up",
        "down",
        "exchanges",
        "gradients",
        "seconds",
        "ESS/MB",
        "ESS/s"
    );
    for row in rows {
        let [mean, sd, w2] = row.errors;
        let megabytes = (row.bits.0 + row.bits.1) as f64 / 8e6;
        let _ = writeln!(
            text,
            "{:<width$} {:<12} {:>9} {mean:>8.3} {:>6.1}% {w2:>9.4} {:>9.0} {:>9} {:>9} {:>11} \
             {:>11} {:>8.2} {:>9.1} {:>9.0}",
            row.config,
            row.sampler,
            row.step.map_or_else(|| "-".into(), |step| format!("{step:.2e}")),
            100.0 * sd,
            row.ess,
            bytes(row.bits.0),
            bytes(row.bits.1),
            format!("{} + {}", row.exchanges.0, row.exchanges.1),
            row.gradients,
            row.seconds,
            row.ess / megabytes,
            row.ess / row.seconds
        );
    }
    let _ = writeln!(
        text,
        "\nErrors are against {reference}: the largest of a mean in posterior standard deviations, \
         the largest of a standard deviation, and the 2-Wasserstein distance\n\
         between Gaussians with these means and covariances. ESS is the smallest effective sample \
         size, bulk or tail; gradients are those of single rows.\nBytes and exchanges have \
         surveys and pilots in them: exchanges of these, and of all chains."
    );
    text
}

fn to_json(rows: &[Contender], reference: &str) -> String {
    let row = |r: &Contender| -> Value {
        json!({
            "config": r.config, "sampler": r.sampler, "step": r.step,
            "mean_error_sd": r.errors[0], "sd_error": r.errors[1], "w2": r.errors[2],
            "ess": r.ess, "bits_up": r.bits.0, "bits_down": r.bits.1, "survey_bits": r.surveys,
            "exchanges": { "before_sampling": r.exchanges.0, "sampling": r.exchanges.1 },
            "rows_evaluated": r.gradients, "seconds": r.seconds,
            "ess_per_megabyte": r.ess / ((r.bits.0 + r.bits.1) as f64 / 8e6),
            "ess_per_second": r.ess / r.seconds,
        })
    };
    format!(
        "{:#}\n",
        json!({ "reference": reference, "runs": rows.iter().map(row).collect::<Vec<_>>() })
    )
}

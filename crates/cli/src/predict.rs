//! Predict new rows from a run that was kept.

use std::fmt::Write;
use std::path::Path;

use consilience_core::measure::MASS;
use consilience_engine::config::{Config, Source};
use consilience_engine::predict::{Prediction, Predictor};
use consilience_engine::prior_draws::prior_draws;
use consilience_engine::problem::Problem;
use consilience_engine::rundir;
use serde_json::{Value, json};

use crate::args::PredictCommand;
use crate::loo::refused;
use crate::output::{Failure, say};
use crate::report::{score_words, scores_value};

/// How many draws of a prior predict.
const PRIOR_DRAWS: usize = 4000;

/// The config of a path: itself, or that of a run directory.
pub fn config_of(path: &Path) -> Result<Config, Failure> {
    if !path.is_dir() {
        return Ok(Config::load(path)?);
    }
    let text = rundir::read(path)?.config;
    Ok(Config::parse(Source { file: "config.toml".into(), folder: ".".into(), text })?)
}

/// `consilience predict`.
pub fn predict(command: &PredictCommand) -> Result<(), Failure> {
    let wrong = |e: String| Failure::Argument(format!("{}: {e}", command.dir.display()));
    let (record, encoding, config, parameters, draws);
    let mut known = None; // a site whose effect is drawn
    let predictor = match command.prior {
        false => {
            record = rundir::read(&command.dir)?;
            let predictor = Predictor::new(&record).map_err(|e| wrong(e.to_string()))?;
            Ok(match &command.site {
                Some(site) if predictor.has_effects() => {
                    known = Some(site);
                    let file = command.site_data.as_deref();
                    let drawn = predictor.of_site(&record, site, file);
                    drawn.map_err(|e| refused(&[&command.dir], e))?
                }
                _ => predictor,
            })
        }
        true => {
            let stated = config_of(&command.dir)?;
            let problem = Problem::new(&stated)?;
            draws = prior_draws(&problem, PRIOR_DRAWS, stated.seed)
                .map_err(|e| wrong(e.to_string()))?;
            (encoding, config) = (problem.encoding, stated.source.text.clone());
            parameters = problem.parameters;
            Predictor::of(encoding.as_ref(), &config, &parameters, &draws)
        }
    };
    let predictor = predictor.map_err(|e| wrong(e.to_string()))?;
    let says_site = known.is_none() || predictor.has_site_terms();
    let new = predictor
        .read(&command.data, command.site.as_deref().filter(|_| says_site))
        .map_err(|e| Failure::Argument(e.to_string()))?;
    let rows = predictor.predict(&new, MASS);
    let scores = predictor.score(&new).map_err(Failure::Argument)?;
    let levels = predictor.levels(&new, MASS);

    let explained = predictor.encoding().and_then(|encoding| encoding.explained());
    let predicts = predictor.predicts();
    let what = match (predicts.of, &explained) {
        (Some(of), Some(name)) => format!("{of} {name}; {}", predicts.interval),
        _ => format!("{}; {}", predicts.what, predicts.interval),
    };
    let outputs = predictor.outputs();
    let names = predictor.encoding().and_then(|encoding| encoding.classes());
    if command.json {
        let of = |read: fn(&Prediction) -> f64| -> Vec<Value> {
            let numbers = |row: &Vec<_>| row.iter().map(read).collect::<Vec<f64>>();
            let each = |row: &Vec<_>| {
                if outputs > 1 { json!(numbers(row)) } else { json!(numbers(row)[0]) }
            };
            rows.iter().map(each).collect()
        };
        let value = json!({
            "predicts": predicts.kind, "prior": command.prior, "explained": explained,
            "classes": names, "rows": rows.len(),
            "mean": of(|p| p.mean), "interval_mass": MASS, "lower": of(|p| p.lower),
            "upper": of(|p| p.upper),
            "notes": new.notes, "scores": scores.map(scores_value),
        });
        let mut value = value;
        if !levels.is_empty() {
            let of = |read: fn(&Prediction) -> f64| -> Vec<Vec<f64>> {
                levels.iter().map(|row| row.iter().map(read).collect()).collect()
            };
            let (mean, lower, upper) = (of(|p| p.mean), of(|p| p.lower), of(|p| p.upper));
            value["levels"] = json!({ "mean": mean, "lower": lower, "upper": upper });
        }
        return say(&format!("{value:#}\n"));
    }
    let by = if command.prior { "By the prior alone" } else { "Predicted" };
    let mut text = format!("{by}: {what}.\n");
    if let Some(site) = known {
        let _ = writeln!(
            text,
            "The rows are of site {site}: the effects of its groups are known from its own."
        );
    }
    new.notes.iter().for_each(|note| text.extend([note.as_str(), "\n"]));
    text.push('\n');
    let scored = scores.map_or_else(String::new, |scores| {
        format!("\nWhere the response is known: {}.\n", score_words(&scores))
    });
    if outputs > 1 {
        let label = |class: usize| {
            names
                .and_then(|names| names.get(class))
                .map_or_else(|| format!("class {class}"), String::clone)
        };
        let wide = (0..outputs).map(|class| label(class).chars().count()).max().unwrap_or(0).max(5);
        let _ = write!(text, "{:>6} {:>wide$}", "row", "best");
        for class in 0..outputs {
            let _ = write!(text, " {:>20}", label(class));
        }
        text.push('\n');
        for (k, row) in rows.iter().enumerate() {
            let best = (0..row.len())
                .fold(0, |best, class| if row[class].mean > row[best].mean { class } else { best });
            let _ = write!(text, "{:>6} {:>wide$}", k + 1, label(best));
            for p in row {
                let _ = write!(
                    text,
                    " {:>20}",
                    format!("{:.3} [{:.3}, {:.3}]", p.mean, p.lower, p.upper)
                );
            }
            text.push('\n');
        }
        text.push_str(&scored);
        return say(&text);
    }
    let _ = writeln!(text, "{:>6} {:>10} {:>10} {:>10}", "row", "mean", "5.5%", "94.5%");
    for (k, row) in rows.iter().enumerate() {
        let _ = writeln!(
            text,
            "{:>6} {:>10.4} {:>10.4} {:>10.4}",
            k + 1,
            row[0].mean,
            row[0].lower,
            row[0].upper
        );
    }
    text.push_str(&by_level(&levels));
    text.push_str(&scored);
    say(&text)
}

/// The probability of every level, a line a row.
fn by_level(rows: &[Vec<Prediction>]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = format!("\nThe probability of every level:\n\n{:>6}", "row");
    (1..=first.len()).for_each(|level| text += &format!(" {level:>20}"));
    text.push('\n');
    for (k, row) in rows.iter().enumerate() {
        let _ = write!(text, "{:>6}", k + 1);
        for p in row {
            let said = format!("{:.3} [{:.3}, {:.3}]", p.mean, p.lower, p.upper);
            let _ = write!(text, " {said:>20}");
        }
        text.push('\n');
    }
    text
}

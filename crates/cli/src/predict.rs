//! Predict new rows from a run that was kept.

use std::fmt::Write;

use consilience_core::measure::MASS;
use consilience_engine::config::{Config, Source};
use consilience_engine::predict::{Predictor, Response};
use consilience_engine::{numbers, rundir};
use serde_json::{Value, json};

use crate::args::PredictCommand;
use crate::output::{Failure, say};

/// `consilience predict`.
pub fn predict(command: &PredictCommand) -> Result<(), Failure> {
    let record = rundir::read(&command.dir)?;
    let file = command.dir.join("config.toml").display().to_string();
    let config = Config::parse(Source { file, folder: command.dir.clone(), text: record.config.clone() })?;
    let predictor = Predictor::new(&config, &record).map_err(|e| Failure::Other(format!("{}: {e}", command.dir.display())))?;
    let table = numbers::read(&command.data).map_err(Failure::Argument)?;
    let design = predictor.design(&table).map_err(|e| Failure::Argument(format!("{}: {e}", command.data.display())))?;
    let rows = predictor.predict(&design, MASS);

    let (what, kind) = match predictor.response() {
        Response::Probability => ("the probability of the label 1; the interval is of the probability", "probability"),
        Response::Number { .. } => ("a new response; the interval is of the response, noise included", "response"),
        Response::Classes(_) => ("the probability of every class; the intervals are of the probabilities", "class probabilities"),
    };
    if command.json {
        let of = |read: fn(&consilience_engine::predict::Prediction) -> f64| -> Vec<Value> {
            let numbers = |row: &Vec<_>| row.iter().map(read).collect::<Vec<f64>>();
            let each = |row: &Vec<_>| if kind == "class probabilities" { json!(numbers(row)) } else { json!(numbers(row)[0]) };
            rows.iter().map(each).collect()
        };
        let value = json!({ "predicts": kind, "rows": rows.len(), "mean": of(|p| p.mean), "interval_mass": MASS, "lower": of(|p| p.lower), "upper": of(|p| p.upper) });
        return say(&format!("{value:#}\n"));
    }
    let mut text = format!("Predicted: {what}.\n\n");
    if let Response::Classes(classes) = predictor.response() {
        let _ = write!(text, "{:>6} {:>5}", "row", "best");
        for class in 0..classes {
            let _ = write!(text, " {:>20}", format!("class {class}"));
        }
        text.push('\n');
        for (k, row) in rows.iter().enumerate() {
            let best = (0..row.len()).fold(0, |best, class| if row[class].mean > row[best].mean { class } else { best });
            let _ = write!(text, "{:>6} {best:>5}", k + 1);
            for p in row {
                let _ = write!(text, " {:>20}", format!("{:.3} [{:.3}, {:.3}]", p.mean, p.lower, p.upper));
            }
            text.push('\n');
        }
        return say(&text);
    }
    let _ = writeln!(text, "{:>6} {:>10} {:>10} {:>10}", "row", "mean", "5.5%", "94.5%");
    for (k, row) in rows.iter().enumerate() {
        let _ = writeln!(text, "{:>6} {:>10.4} {:>10.4} {:>10.4}", k + 1, row[0].mean, row[0].lower, row[0].upper);
    }
    say(&text)
}

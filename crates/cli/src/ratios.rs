//! Show coefficients as odds, rate, hazard or time ratios.

use std::fmt::Write;
use std::sync::Arc;

use consilience_core::measure::{MASS, equal_tailed, quantile};
use consilience_engine::config::{Config, Source};
use consilience_engine::models::RowModel;
use consilience_engine::record::Record;
use serde_json::json;

use crate::report::number;

/// One coefficient.
struct Ratio {
    name: String,
    /// By what the column was divided, where it was standardised.
    unit: Option<f64>,
    median: f64,
    ends: (f64, f64),
    /// How probable it is that the ratio is above 1.
    above: f64,
}

/// The ratios of a run.
pub struct Ratios {
    what: &'static str,
    rows: Vec<Ratio>,
}

impl Ratios {
    /// Of a run that was kept, or why it has none.
    pub fn new(record: &Record) -> Result<Ratios, String> {
        let model = model(record)?;
        let Some(what) = model.ratio() else {
            return Err(format!(
                "exp of a coefficient of {} is none (logistic, ordinal, Poisson, negative \
                 binomial, Cox and Weibull regression have them)",
                model.row().title
            ));
        };
        if record.draws.length() == 0 {
            return Err("the run directory has no draws".into());
        }
        let count = model.split(&vec![0.0; record.parameters.len()]).0.len();
        let names = record.parameters[..count].iter().enumerate();
        let is_slope = |(_, name): &(usize, &String)| *name != "intercept";
        let row = |(k, name): (usize, &String)| {
            let mut draws = record.draws.parameter(k).concat();
            let above = draws.iter().filter(|b| **b > 0.0).count() as f64 / draws.len() as f64;
            draws.iter_mut().for_each(|b| *b = b.exp());
            Ratio {
                name: name.clone(),
                unit: record.encoding.as_ref().and_then(|encoding| encoding.unit(name)),
                median: quantile(&draws, 0.5).unwrap_or(f64::NAN),
                ends: equal_tailed(&draws, MASS).unwrap_or((f64::NAN, f64::NAN)),
                above,
            }
        };
        Ok(Ratios { what, rows: names.filter(is_slope).map(row).collect() })
    }

    /// For people.
    pub fn text(&self) -> String {
        let width = self.rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0).max(9);
        let mut text = format!(
            "{:<width$} {:>12} {:>8} {:>8} {:>7}  per\n",
            "parameter", self.what, "5.5%", "94.5%", "P(> 1)"
        );
        for Ratio { name, unit, median, ends, above } in &self.rows {
            let per = unit.map_or("1".into(), |sd| format!("{sd:.4} (one sd)"));
            let _ = writeln!(
                text,
                "{name:<width$} {median:>12.3} {:>8.3} {:>8.3} {above:>7.3}  {per}",
                ends.0, ends.1
            );
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> String {
        let of = |read: fn(&Ratio) -> f64| -> Vec<_> {
            self.rows.iter().map(|row| number(read(row))).collect()
        };
        let value = json!({
            "ratios": self.what,
            "parameters": self.rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
            "median": of(|r| r.median), "interval_mass": MASS, "lower": of(|r| r.ends.0),
            "upper": of(|r| r.ends.1), "above_one": of(|r| r.above),
            "per": of(|r| r.unit.unwrap_or(1.0)),
        });
        format!("{value:#}\n")
    }
}

/// The model of a run.
fn model(record: &Record) -> Result<Arc<dyn RowModel>, String> {
    if let Some(encoding) = &record.encoding {
        return Ok(Arc::clone(encoding.model()));
    }
    let (file, text) = ("config.toml".to_owned(), record.config.clone());
    let config = Config::parse(Source { file, folder: ".".into(), text });
    let config = config.map_err(|e| e.to_string())?;
    config.target.model.of_rows().ok_or_else(|| "its model has no response".into())
}

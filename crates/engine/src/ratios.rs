//! Take coefficients to odds, rate, hazard and time ratios.

use std::sync::Arc;

use consilience_core::measure::{MASS, equal_tailed, quantile};

use crate::config::{Config, Source};
use crate::models::RowModel;
use crate::record::Record;

/// One coefficient.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Its name.
    pub name: String,
    /// By what the column was divided, where it was standardised.
    pub unit: Option<f64>,
    /// The median of its draws.
    pub median: f64,
    /// The interval that most of them lie in.
    pub ends: (f64, f64),
    /// How probable it is that the ratio is above 1.
    pub above: f64,
}

/// The ratios of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratios {
    /// What they are.
    pub what: &'static str,
    /// One entry a coefficient, without the intercept.
    pub rows: Vec<Ratio>,
}

impl Ratios {
    /// Of a run, or why it has none.
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

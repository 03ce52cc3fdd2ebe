//! Cox regression: hazards that are proportional, whatever the hazard of each site is.
//!
//! A response is a time above 0 where the event was seen, and minus the time where it was not seen
//! until then: `Surv(time, status)` in a formula makes it of two columns.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Cox, Design, Model};
use consilience_core::simd::exp;

use super::{Explains, ModelRow, Predicts, Reads, RowModel};

/// Cox regression.
pub const ROW: ModelRow = ModelRow {
    name: "cox",
    title: "Cox regression",
    says: "a time to an event, perhaps censored: hazards are proportional within each site",
    reads: Reads::Rows(|_| Ok(Arc::new(Proportional))),
    explains: Explains::Numbers,
    by_formula: true,
    fields: &[],
    example: "",
};

#[derive(Clone, Copy, Debug)]
struct Proportional;

impl RowModel for Proportional {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn statement(&self) -> String {
        "Cox regression, sites as strata, ties by Efron".into()
    }

    fn censors(&self) -> bool {
        true
    }

    fn is_whole(&self) -> bool {
        true
    }

    fn takes_intercept(&self) -> bool {
        false
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Cox::new(design, &response)?))
    }

    fn accepts(&self, y: f64) -> bool {
        y.is_finite() && y != 0.0
    }

    fn responses(&self) -> String {
        "times above 0, with a minus where the event was not seen until then".into()
    }

    fn remedy(&self, _column: &str, _found: f64, right: Option<&str>) -> String {
        format!(
            "say which column has the time and which says 1 where the event was seen, e.g. \
             Surv(time, status) ~ {}",
            right.unwrap_or(".")
        )
    }

    fn ratio(&self) -> Option<&'static str> {
        Some("hazard ratio")
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "hazard ratio",
            what: "the hazard over that of a row whose columns are all 0",
            of: None,
            interval: "the interval is of the ratio",
        })
    }

    fn expect(&self, predictors: &mut [f64], _beside: &[f64]) {
        predictors[0] = exp(predictors[0]);
    }
}

//! Weibull regression: the time to an event, some of them censored at the right.
//!
//! A response is a time above 0 where the event was seen, and minus the time where it was not seen
//! until then: `Surv(time, status)` in a formula makes it of two columns.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::ln_gamma;
use consilience_core::model::{
    Design, Extended, ExtendedLoss, Law, Model, Transform, Transforms, settled,
};
use consilience_core::simd::{exp, ln};

use super::{
    BY_SITE, Beside, Doubt, Explains, MORE_COLUMNS, ModelRow, Predicts, Reads, RowAt, RowModel,
};
use crate::random::Random;

/// Weibull regression.
pub const ROW: ModelRow = ModelRow {
    name: "weibull",
    title: "Weibull regression",
    says: "a time to an event, perhaps censored: the logarithm of its scale is linear",
    reads: Reads::Rows(|_| Ok(Arc::new(Weibull))),
    explains: Explains::Numbers,
    by_formula: true,
    fields: &[],
    example: "",
};

/// With `z = k (ln time - t)` the survival function is `exp(-exp(z))`, so that minus the
/// log-likelihood is `exp(z) - [event] (z + ln k)`, up to a constant.
#[derive(Clone, Copy, Debug)]
struct Weibull;

/// The most events that are drawn for one row: draws of a prior may expect any number.
const MOST_EVENTS: usize = 10_000;

/// Whether the event was seen, as a number.
fn seen(y: f64) -> f64 {
    f64::from(u8::from(y > 0.0))
}

/// The logarithm of a hazard that no event survives: `exp` of it is barely a number.
const TOO_LATE: f64 = 700.0;

impl ExtendedLoss for Weibull {
    fn beside(&self) -> (usize, Transforms) {
        (1, Transforms::new([(0..1, Transform::Positive)]))
    }

    #[inline(always)]
    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
        let k = beside[0];
        let z = k * (ln(y.abs()) - t);
        let loss = exp(z) - if seen(y) > 0.0 { z + ln(k) } else { 0.0 };
        settled(if z < TOO_LATE { loss } else { f64::INFINITY })
    }

    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        let (k, event) = (beside[0], seen(y));
        let a = ln(y.abs()) - t;
        let hazard = exp(k * a);
        slopes.copy_from_slice(&[-k * (hazard - event), a * (hazard - event) - event / k]);
        let across = event - hazard - k * a * hazard;
        bends.copy_from_slice(&[k * k * hazard, across, across, a * a * hazard + event / (k * k)]);
    }

    fn reach(&self, beside: &[f64]) -> f64 {
        0.25 / beside[0]
    }

    fn accepts(&self, y: f64) -> bool {
        y.is_finite() && y != 0.0
    }

    fn responses(&self) -> &'static str {
        "times above 0, with a minus where the event was not seen until then"
    }
}

impl RowModel for Weibull {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn beside(&self) -> Vec<Beside> {
        vec![Beside::positive("shape", Law::Normal { mean: 0.0, sd: 2.0 }, false)]
    }

    fn censors(&self) -> bool {
        true
    }

    fn is_in_logs(&self) -> bool {
        true
    }

    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        Some(Arc::new(*self))
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Extended::new(design, response, *self)?))
    }

    fn accepts(&self, y: f64) -> bool {
        ExtendedLoss::accepts(self, y)
    }

    fn responses(&self) -> String {
        ExtendedLoss::responses(self).into()
    }

    fn remedy(&self, _column: &str, _found: f64, right: Option<&str>) -> String {
        format!(
            "say which column has the time and which says 1 where the event was seen, e.g. \
             Surv(time, status) ~ {}",
            right.unwrap_or(".")
        )
    }

    fn ratio(&self) -> Option<&'static str> {
        Some("time ratio")
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "time",
            what: "the mean time to the event",
            of: Some("the mean time to the event of"),
            interval: "the interval is of the mean",
        })
    }

    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        // the hazard accumulates as (time / scale)^shape, and events come at a rate of 1 in it
        let (scale, power) = (exp(at.predictors[0]), 1.0 / at.beside[0]);
        let (mut hazard, most) = (random.exponential(), into.len() + MOST_EVENTS);
        while scale * hazard.powf(power) <= at.y.abs() && into.len() < most {
            into.push(scale * hazard.powf(power));
            hazard += random.exponential();
        }
        true
    }

    fn mend(&self, doubt: Doubt, _more: bool) -> &'static str {
        match doubt {
            Doubt::Shape => {
                "Hazards may rise and fall: use model = \"cox\", which leaves them open"
            }
            Doubt::Sites => BY_SITE,
            _ => MORE_COLUMNS,
        }
    }

    fn expect(&self, predictors: &mut [f64], beside: &[f64]) {
        predictors[0] = exp(predictors[0] + ln_gamma(1.0 + 1.0 / beside[0]));
    }

    fn log_density(&self, predictor: f64, beside: &[f64], y: f64) -> f64 {
        if y == 0.0 {
            return f64::NEG_INFINITY;
        }
        -ExtendedLoss::loss(self, predictor, beside, y) - seen(y) * ln(y.abs())
    }
}

//! Poisson regression: counts whose rate is the exponential of a linear predictor.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, ExtendedLoss, Model, PointLoss, Regression, Unextended};
use consilience_core::simd::{exp, ln};

use super::{BY_SITE, Doubt, Explains, MORE_COLUMNS, ModelRow, Predicts, Reads, RowAt, RowModel};
use crate::random::Random;

/// Poisson regression.
pub const ROW: ModelRow = ModelRow {
    name: "poisson",
    title: "Poisson regression",
    says: "a count: the logarithm of its rate is linear",
    reads: Reads::Rows(|_| Ok(Arc::new(Poisson))),
    explains: Explains::Numbers,
    by_formula: true,
    fields: &[],
    example: "",
};

#[derive(Clone, Copy, Debug)]
struct Poisson;

/// Minus the log-likelihood of a count `y` at rate `exp(t)` is `exp(t) - y t`, up to `ln y!`.
impl PointLoss for Poisson {
    #[inline(always)]
    fn loss(&self, t: f64, y: f64) -> f64 {
        exp(t) - y * t
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        exp(t) - y
    }

    fn bend(&self, t: f64, _y: f64) -> f64 {
        exp(t)
    }

    fn accepts(&self, y: f64) -> bool {
        y >= 0.0 && y.fract() == 0.0 && y.is_finite()
    }

    fn responses(&self) -> &'static str {
        "whole numbers from 0"
    }
}

impl RowModel for Poisson {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        Some(Arc::new(Unextended(*self)))
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Regression::new(design, response, *self)?))
    }

    fn accepts(&self, y: f64) -> bool {
        PointLoss::accepts(self, y)
    }

    fn responses(&self) -> String {
        format!("counts, {}", PointLoss::responses(self))
    }

    fn remedy(&self, _column: &str, _found: f64, _right: Option<&str>) -> String {
        "correct the count; for measurements, use model = \"linear\"".into()
    }

    fn ratio(&self) -> Option<&'static str> {
        Some("rate ratio")
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "rate",
            what: "the mean of a new count",
            of: Some("the mean of"),
            interval: "the interval is of the mean",
        })
    }

    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        into.push(random.poisson(exp(at.predictors[0])));
        true
    }

    fn mend(&self, doubt: Doubt, more: bool) -> &'static str {
        match doubt {
            Doubt::Spread | Doubt::Zeros | Doubt::Extremes | Doubt::Shape if more => {
                "Use model = \"negative_binomial\", whose counts vary more than those of a Poisson \
                 law"
            }
            Doubt::Sites => BY_SITE,
            _ => MORE_COLUMNS,
        }
    }

    fn expect(&self, predictors: &mut [f64], _beside: &[f64]) {
        predictors[0] = exp(predictors[0]);
    }

    fn log_density(&self, predictor: f64, _beside: &[f64], y: f64) -> f64 {
        y * predictor - exp(predictor) - log_factorial(y)
    }
}

/// `ln y!`, by the series of Stirling where it has twelve digits.
fn log_factorial(y: f64) -> f64 {
    if y < 50.0 {
        return (2..=y as u32).map(|k| ln(f64::from(k))).sum();
    }
    let correction = 1.0 / (12.0 * y) - 1.0 / (360.0 * y * y * y);
    y * ln(y) - y + 0.5 * ln(std::f64::consts::TAU * y) + correction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factorials_by_hand() {
        for (y, factorial) in [(0.0, 1.0f64), (1.0, 1.0), (5.0, 120.0), (12.0, 479_001_600.0)] {
            assert!((log_factorial(y) - factorial.ln()).abs() < 1e-12);
        }
        let (below, above) = (log_factorial(49.0) + 50f64.ln(), log_factorial(50.0));
        assert!((below - above).abs() < 1e-11, "{below} is not {above}");
    }
}

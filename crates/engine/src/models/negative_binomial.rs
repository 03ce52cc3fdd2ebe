//! Negative binomial regression: counts that vary more than Poisson counts of the same mean.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::{ln_gamma, rising};
use consilience_core::model::{
    Design, Extended, ExtendedLoss, Law, Model, Transform, Transforms, settled,
};
use consilience_core::simd::{exp, ln, vectorised};

use super::{Beside, Explains, ModelRow, Predicts, Reads, RowAt, RowModel};
use crate::random::Random;

/// Negative binomial regression.
pub const ROW: ModelRow = ModelRow {
    name: "negative_binomial",
    title: "negative binomial regression",
    says: "a count: the logarithm of its mean is linear, its variance mean + mean^2 / shape",
    reads: Reads::Rows(|_| Ok(Arc::new(NegativeBinomial))),
    explains: Explains::Numbers,
    by_formula: true,
    fields: &[],
    example: "",
};

/// Minus the log-likelihood of a count `y` of mean `m = exp(t)` and shape `k` is
/// `(k + y) ln(k + m) - k ln k - y t - ln (k (k + 1) .. (k + y - 1))`, up to `ln y!`.
#[derive(Clone, Copy, Debug)]
struct NegativeBinomial;

#[inline(always)]
fn loss(t: f64, k: f64, y: f64, rising: f64) -> f64 {
    let mean = exp(t);
    settled(k * ln(1.0 + mean / k) + y * ln(k + mean) - y * t - rising)
}

impl ExtendedLoss for NegativeBinomial {
    fn beside(&self) -> (usize, Transforms) {
        (1, Transforms::new([(0..1, Transform::Positive)]))
    }

    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
        loss(t, beside[0], y, rising(beside[0], y)[0])
    }

    /// What does not depend on the predictor is a sum of as many terms as are counted: taken once.
    fn losses(&self, t: &mut [f64], beside: &[f64], y: f64) {
        let (k, rising) = (beside[0], rising(beside[0], y)[0]);
        vectorised(|| t.iter_mut().for_each(|t| *t = loss(*t, k, y, rising)));
    }

    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        let (k, mean) = (beside[0], exp(t));
        let (both, [_, first, second]) = (k + mean, rising(k, y));
        let across = mean * (mean - y) / (both * both);
        slopes.copy_from_slice(&[
            k * (mean - y) / both,
            ln(1.0 + mean / k) - (mean - y) / both - first,
        ]);
        bends.copy_from_slice(&[
            mean * k * (k + y) / (both * both),
            across,
            across,
            (mean - y) / (both * both) - mean / (k * both) - second,
        ]);
    }

    fn accepts(&self, y: f64) -> bool {
        y >= 0.0 && y.fract() == 0.0 && y.is_finite()
    }

    fn responses(&self) -> &'static str {
        "whole numbers from 0"
    }
}

impl RowModel for NegativeBinomial {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn beside(&self) -> Vec<Beside> {
        vec![Beside::positive("shape", Law::Exponential { rate: 1.0 }, false)]
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
        format!("counts, {}", ExtendedLoss::responses(self))
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
        let shape = at.beside[0];
        let rate = exp(at.predictors[0]) * random.gamma(shape) / shape;
        into.push(random.poisson(rate));
        true
    }

    fn expect(&self, predictors: &mut [f64], _beside: &[f64]) {
        predictors[0] = exp(predictors[0]);
    }

    fn log_density(&self, predictor: f64, beside: &[f64], y: f64) -> f64 {
        -ExtendedLoss::loss(self, predictor, beside, y) - ln_gamma(y + 1.0)
    }
}

//! Logistic regression: one of two classes.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, ExtendedLoss, Glm, GlmFamily, Model, PointLoss, Unextended};
use consilience_core::privacy::Released;
use consilience_core::simd::{sigmoid, softplus};

use super::{Explains, ModelRow, Predicts, Reads, RowModel};

/// Logistic regression.
pub const ROW: ModelRow = ModelRow {
    name: "logistic",
    title: "logistic regression",
    says: "0 or 1: the log-odds of 1 are linear",
    reads: Reads::Rows(|_| Ok(Arc::new(Logistic))),
    explains: Explains::TwoClasses,
    by_formula: true,
    fields: &[],
    example: "",
};

#[derive(Debug)]
pub(super) struct Logistic;

/// Minus the log-likelihood of 0 or 1, whose log-odds are `t`.
impl PointLoss for Logistic {
    #[inline(always)]
    fn loss(&self, t: f64, y: f64) -> f64 {
        softplus(t) - y * t
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        sigmoid(t) - y
    }

    fn bend(&self, t: f64, _y: f64) -> f64 {
        let p = sigmoid(t);
        p * (1.0 - p)
    }

    fn most_bend(&self) -> f64 {
        0.25
    }

    fn accepts(&self, y: f64) -> bool {
        y == 0.0 || y == 1.0
    }

    fn responses(&self) -> &'static str {
        "0 or 1"
    }
}

impl RowModel for Logistic {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn classes(&self) -> Option<usize> {
        Some(2)
    }

    /// `|p - y| <= 1`.
    fn row_gradient(&self, row_norm: f64, slope: Option<f64>) -> Result<f64, &'static str> {
        if slope.is_some() {
            return Err("its slopes are bounded by themselves, and privacy.slope is not used");
        }
        Ok(row_norm)
    }

    /// `p (1 - p)` is at most a quarter.
    fn row_curvature(&self, row_norm: f64) -> Option<f64> {
        Some(0.25 * row_norm * row_norm)
    }

    fn released(&self, response: Option<f64>) -> Result<Released, &'static str> {
        if response.is_some() {
            return Err("its responses are 0 or 1, and privacy.response is not used");
        }
        Ok(Released::Logistic)
    }

    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        Some(Arc::new(Unextended(Logistic)))
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Glm::new(design, response, GlmFamily::Bernoulli)?))
    }

    fn responses(&self) -> String {
        "0 and 1".into()
    }

    fn remedy(&self, column: &str, found: f64, right: Option<&str>) -> String {
        match right {
            Some(right) => format!("say what counts as 1, e.g. {column} == {found} ~ {right}"),
            None => format!(
                "labels must be 0 or 1: recode them, or say what counts as 1 in a formula, e.g. \
                 {column} == {found} ~ ."
            ),
        }
    }

    fn explained(&self, column: &str, classes: Option<&[String]>) -> Option<String> {
        let one = classes.map_or(Some("1"), |classes| classes.get(1).map(String::as_str))?;
        Some(format!("{column} == {one}"))
    }

    fn ratio(&self) -> Option<&'static str> {
        Some("odds ratio")
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "probability",
            what: "the probability of the label 1",
            of: Some("the probability that"),
            interval: "the interval is of the probability",
        })
    }

    fn expect(&self, predictors: &mut [f64], _beside: &[f64]) {
        predictors[0] = sigmoid(predictors[0]);
    }

    fn log_probability(&self, predictors: &[f64], _beside: &[f64], y: f64) -> f64 {
        -PointLoss::loss(self, predictors[0], y)
    }

    fn log_density(&self, predictor: f64, _beside: &[f64], y: f64) -> f64 {
        -PointLoss::loss(self, predictor, y)
    }
}

//! Logistic regression: one of two classes.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, Family, Glm, Model};
use consilience_core::simd::sigmoid;

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

impl RowModel for Logistic {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn classes(&self) -> Option<usize> {
        Some(2)
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Glm::new(design, response, Family::Bernoulli)?))
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

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "probability",
            what: "the probability of the label 1",
            of: Some("the probability that"),
            interval: "the interval is of the probability",
        })
    }

    fn expect(&self, predictors: &mut [f64]) {
        predictors[0] = sigmoid(predictors[0]);
    }
}

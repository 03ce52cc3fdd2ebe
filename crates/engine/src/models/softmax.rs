//! Softmax regression: one of several classes, each with a predictor of its own.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::log_sum;
use consilience_core::model::{Arithmetic, Design, Model, Softmax};
use consilience_core::simd::exp;
use serde_json::{Value, json};

use super::{Explains, ModelRow, Predicts, Reads, RowModel, Stated};
use crate::config::ConfigError;
use crate::config::fields::{Field, field};

/// Softmax regression.
pub const ROW: ModelRow = ModelRow {
    name: "softmax",
    title: "softmax regression",
    says: "one of several labels: the log-probability of each is linear, up to a constant",
    reads: Reads::Rows(read),
    explains: Explains::Classes,
    by_formula: false,
    fields: FIELDS,
    example: "classes = 4",
};

const FIELDS: &[Field] = &[
    field(
        "target",
        "classes",
        "whole number",
        "",
        "softmax, net: how many labels there are, 0 to classes - 1",
    ),
    field(
        "target",
        "arithmetic",
        "\"f64\", \"f32\"",
        "f64; nets f32",
        "softmax, net: with how many bits sums over rows are computed; f32 is faster, and \
         gradients are right to some 1e-6 of their size",
    ),
];

const ARITHMETIC: [(&str, Arithmetic); 2] = [("f64", Arithmetic::F64), ("f32", Arithmetic::F32)];

#[derive(Debug)]
struct Classes {
    classes: usize,
    arithmetic: Arithmetic,
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let classes = match stated.classes() {
        Some(classes) => classes,
        None => stated
            .need("classes", "softmax needs the number of labels, e.g. classes = 10")?
            .whole(2)? as usize,
    };
    let arithmetic = stated.get("arithmetic").map(|v| v.choice(&ARITHMETIC)).transpose()?;
    Ok(Arc::new(Classes { classes, arithmetic: arithmetic.unwrap_or_default() }))
}

impl RowModel for Classes {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let known = ARITHMETIC.iter().find(|(_, arithmetic)| *arithmetic == self.arithmetic);
        let word = known.map_or("f64", |(word, _)| word);
        vec![("classes", json!(self.classes)), ("arithmetic", json!(word))]
    }

    fn statement(&self) -> String {
        let bits = match self.arithmetic {
            Arithmetic::F64 => 64,
            Arithmetic::F32 => 32,
        };
        format!("softmax regression with {} classes in {bits}-bit sums", self.classes)
    }

    fn classes(&self) -> Option<usize> {
        Some(self.classes)
    }

    fn predictors(&self) -> usize {
        self.classes
    }

    /// Probabilities less a unit vector: at most `sqrt 2` long.
    fn row_gradient(&self, row_norm: f64, slope: Option<f64>) -> Result<f64, &'static str> {
        if slope.is_some() {
            return Err("clipped gradients of several classes are those of no potential");
        }
        Ok(std::f64::consts::SQRT_2 * row_norm)
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        if let Some(row) = response.iter().position(|y| !self.accepts(*y)) {
            let allowed = self.responses();
            return Err(DataError::Label { row, label: response[row], allowed });
        }
        let labels = response.iter().map(|y| *y as u32).collect();
        let model = Softmax::new(design, labels, self.classes)?;
        Ok(Arc::new(model.with_arithmetic(self.arithmetic)))
    }

    fn remedy(&self, _column: &str, _found: f64, _right: Option<&str>) -> String {
        format!("labels must be {}", self.responses())
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "class probabilities",
            what: "the probability of every class",
            of: None,
            interval: "the intervals are of the probabilities",
        })
    }

    fn expect(&self, predictors: &mut [f64], _beside: &[f64]) {
        let most = predictors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        predictors.iter_mut().for_each(|t| *t = exp(*t - most));
        let sum: f64 = predictors.iter().sum();
        predictors.iter_mut().for_each(|t| *t /= sum);
    }

    fn log_probability(&self, predictors: &[f64], _beside: &[f64], y: f64) -> f64 {
        predictors[y as usize] - log_sum(predictors)
    }
}

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
use crate::config::reader::Value as ConfigValue;
use crate::data::class_of;

/// Softmax regression.
pub const ROW: ModelRow = ModelRow {
    name: "softmax",
    title: "softmax regression",
    says: "one of several labels: the log-probability of each is linear, up to a constant",
    reads: Reads::Rows(read),
    explains: Explains::Classes,
    by_formula: true,
    fields: FIELDS,
    example: "classes = 4",
};

const FIELDS: &[Field] = &[
    field(
        "target",
        "classes",
        "whole number; softmax with a formula also list of names",
        "",
        "softmax, net: how many labels there are, 0 to classes - 1, or what stands in the column",
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
    /// What the response is in each, where that is stated.
    names: Option<Vec<String>>,
    arithmetic: Arithmetic,
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let (classes, names) = match stated.classes() {
        Some(classes) => (classes, None),
        None => {
            let fix = "softmax needs the number of labels, e.g. classes = 10, or with a formula \
                their names, classes = [\"low\", \"middle\", \"high\"]";
            let value = stated.need("classes", fix)?;
            match value.is_list().then(|| read_names(&value)).transpose()? {
                Some(names) => (names.len(), Some(names)),
                None => (value.whole(2)? as usize, None),
            }
        }
    };
    let arithmetic = stated.get("arithmetic").map(|v| v.choice(&ARITHMETIC)).transpose()?;
    Ok(Arc::new(Classes { classes, names, arithmetic: arithmetic.unwrap_or_default() }))
}

/// The names of classes: words, or numbers as they stand in the column.
fn read_names(stated: &ConfigValue<'_>) -> Result<Vec<String>, ConfigError> {
    let wanted = "a list of names, such as [\"low\", \"middle\", \"high\"]";
    let mut names: Vec<String> = Vec::new();
    for value in stated.list(wanted)? {
        let name = match value.as_number() {
            Some(number) => number.to_string(),
            None => value.text("the name of a class")?.to_owned(),
        };
        if class_of(&name, &names).is_some() {
            let problem = format!("the class \"{name}\" stands there twice");
            return Err(value.error(problem, "name every class once"));
        }
        names.push(name);
    }
    if names.len() < 2 {
        let problem = format!("{} classes: nothing is left to tell apart", names.len());
        return Err(stated.error(problem, "name every value that the response has"));
    }
    Ok(names)
}

impl RowModel for Classes {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let known = ARITHMETIC.iter().find(|(_, arithmetic)| *arithmetic == self.arithmetic);
        let word = known.map_or("f64", |(word, _)| word);
        let classes = self.names.as_ref().map_or(json!(self.classes), |names| json!(names));
        vec![("classes", classes), ("arithmetic", json!(word))]
    }

    fn statement(&self) -> String {
        let bits = match self.arithmetic {
            Arithmetic::F64 => 64,
            Arithmetic::F32 => 32,
        };
        let named = self.names.iter().map(|names| format!(" ({})", names.join(", ")));
        let named: String = named.collect();
        format!("softmax regression with {} classes{named} in {bits}-bit sums", self.classes)
    }

    fn classes(&self) -> Option<usize> {
        Some(self.classes)
    }

    fn class_names(&self) -> Option<Vec<String>> {
        let numbers = || (0..self.classes).map(|k| k.to_string()).collect();
        Some(self.names.clone().unwrap_or_else(numbers))
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

    /// `diag(p) - p p'` has no eigenvalue above a half.
    fn row_curvature(&self, row_norm: f64) -> Option<f64> {
        Some(0.5 * row_norm * row_norm)
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

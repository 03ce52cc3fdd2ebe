//! Linear regression: a number, normal around its predictor with a known variance.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::normal_quantile;
use consilience_core::model::{Design, Family, Glm, Model};
use consilience_core::protocol::Exactly;
use consilience_core::simd::ln;
use serde_json::{Value, json};

use super::{Explains, ModelRow, Predicts, Reads, RowModel, Stated};
use crate::config::ConfigError;
use crate::config::fields::{Field, field};

/// Linear regression.
pub const ROW: ModelRow = ModelRow {
    name: "linear",
    title: "linear regression",
    says: "a number, normal around a linear predictor with a known variance",
    reads: Reads::Rows(read),
    explains: Explains::Numbers,
    by_formula: true,
    fields: FIELDS,
    example: "noise_variance = 2.5",
};

const FIELDS: &[Field] = &[field(
    "target",
    "noise_variance",
    "positive number",
    "",
    "linear: the variance of the noise around the line; the residual variance of a least-squares \
     fit at one site is an estimate, the variance of the response an upper bound",
)];

/// What is said where the variance is missing.
const NOISE: &str = "linear regression needs the variance of the noise around the line, e.g. \
    noise_variance = 2.5: take the residual variance of a \
                     least-squares fit at one site; the variance of the response is an upper \
                     bound. For two classes use logistic regression: \
                     model = \"logistic\", or a formula that compares, e.g. ill == 1 ~ age";

#[derive(Debug)]
struct Linear {
    noise_variance: f64,
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let noise_variance = stated.need("noise_variance", NOISE)?.positive()?;
    Ok(Arc::new(Linear { noise_variance }))
}

impl RowModel for Linear {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![("noise_variance", json!(self.noise_variance))]
    }

    fn statement(&self) -> String {
        format!("linear regression with noise of variance {}", Exactly(self.noise_variance))
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        let family = Family::Gaussian { variance: self.noise_variance };
        Ok(Arc::new(Glm::new(design, response, family)?))
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "response",
            what: "a new response",
            of: Some("a new response, that is,"),
            interval: "the interval is of the response, noise included",
        })
    }

    fn expect(&self, _predictors: &mut [f64]) {}

    /// Add normal noise whose quantiles are spread evenly over the draws, by multiples of the
    /// golden ratio: no random number is needed, and nothing depends on a seed.
    fn scatter(&self, expected: &mut [f64]) {
        const GOLDEN: f64 = 0.618_033_988_749_894_9;
        let sd = self.noise_variance.sqrt();
        for (k, value) in expected.iter_mut().enumerate() {
            *value += sd * normal_quantile(((k as f64 + 0.5) * GOLDEN).fract());
        }
    }

    fn log_density(&self, predictor: f64, y: f64) -> f64 {
        let variance = self.noise_variance;
        let error = y - predictor;
        -error * error / (2.0 * variance) - 0.5 * ln(std::f64::consts::TAU * variance)
    }
}

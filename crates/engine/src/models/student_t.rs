//! Robust regression: a number with Student's t around its predictor, so that single rows far from
//! the line count for little.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::ln_gamma;
use consilience_core::model::{
    Design, Extended, ExtendedLoss, Law, Model, Transform, Transforms, settled,
};
use consilience_core::protocol::Exactly;
use consilience_core::simd::ln;
use serde_json::{Value, json};

use super::{Beside, Explains, ModelRow, Predicts, Reads, RowAt, RowModel, Stated};
use crate::config::ConfigError;
use crate::config::fields::{Field, field};
use crate::random::Random;

/// Robust regression.
pub const ROW: ModelRow = ModelRow {
    name: "student_t",
    title: "robust regression",
    says: "a number with Student's t around a linear predictor; its scale, sigma, is a parameter",
    reads: Reads::Rows(read),
    explains: Explains::Numbers,
    by_formula: true,
    fields: FIELDS,
    example: "degrees_of_freedom = 7",
};

const FIELDS: &[Field] = &[field(
    "target",
    "degrees_of_freedom",
    "number above 1",
    "4",
    "student_t: how heavy the tails of the noise are; the fewer, the less a far row counts",
)];

/// The usual degrees of freedom.
const USUAL: f64 = 4.0;

/// Minus the log-likelihood of a number `y` around `t` is, with `z = (y - t) / sigma`,
/// `(df + 1) / 2 ln(1 + z^2 / df) + ln sigma`, up to a constant.
#[derive(Clone, Copy, Debug)]
struct StudentT {
    df: f64,
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let Some(value) = stated.get("degrees_of_freedom") else {
        return Ok(Arc::new(StudentT { df: USUAL }));
    };
    let df = value.positive()?;
    if df <= 1.0 {
        let problem = format!("with {df} degrees of freedom a response has no mean to predict");
        return Err(value.error(problem, "use a number above 1, such as 4"));
    }
    Ok(Arc::new(StudentT { df }))
}

impl ExtendedLoss for StudentT {
    fn beside(&self) -> (usize, Transforms) {
        (1, Transforms::new([(0..1, Transform::Positive)]))
    }

    #[inline(always)]
    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
        let z = (y - t) / beside[0];
        settled(0.5 * (self.df + 1.0) * ln(1.0 + z * z / self.df) + ln(beside[0]))
    }

    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        let (df, s) = (self.df, beside[0]);
        let (z, w) = ((y - t) / s, 1.0 / (s * s));
        let below = df + z * z;
        let slope = (df + 1.0) * z / below;
        let bend = (df + 1.0) * (df - z * z) / (below * below);
        slopes.copy_from_slice(&[-slope / s, (1.0 - slope * z) / s]);
        let across = (bend * z + slope) * w;
        bends.copy_from_slice(&[
            bend * w,
            across,
            across,
            (bend * z * z + 2.0 * slope * z - 1.0) * w,
        ]);
    }

    /// It is analytic but where `z^2` is minus the degrees of freedom.
    fn reach(&self, beside: &[f64]) -> f64 {
        self.df.sqrt() * beside[0] / 6.0
    }
}

impl RowModel for StudentT {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![("degrees_of_freedom", json!(self.df))]
    }

    fn statement(&self) -> String {
        format!("robust regression with Student's t of {} degrees of freedom", Exactly(self.df))
    }

    fn beside(&self) -> Vec<Beside> {
        vec![Beside::positive("sigma", Law::Exponential { rate: 1.0 }, true)]
    }

    fn is_in_units(&self) -> bool {
        true
    }

    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        Some(Arc::new(*self))
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Extended::new(design, response, *self)?))
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "mean",
            what: "the mean of a new response",
            of: Some("the mean of"),
            interval: "the interval is of the mean",
        })
    }

    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        into.push(at.predictors[0] + at.beside[0] * random.student_t(self.df));
        true
    }

    fn expect(&self, _predictors: &mut [f64], _beside: &[f64]) {}

    fn log_density(&self, predictor: f64, beside: &[f64], y: f64) -> f64 {
        let df = self.df;
        let constant =
            ln_gamma(0.5 * (df + 1.0)) - ln_gamma(0.5 * df) - 0.5 * ln(std::f64::consts::PI * df);
        constant - ExtendedLoss::loss(self, predictor, beside, y)
    }
}

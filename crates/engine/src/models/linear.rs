//! Linear regression: a number, normal around its predictor. The noise's standard deviation `sigma`
//! is a parameter, unless its variance is stated.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::normal_quantile;
use consilience_core::model::{
    Design, Extended, ExtendedLoss, Glm, GlmFamily, Law, Model, PointLoss, Regression, Transform,
    Transforms, Unextended, settled,
};
use consilience_core::privacy::Released;
use consilience_core::protocol::Exactly;
use consilience_core::simd::ln;
use serde_json::{Value, json};

use super::{
    BY_SITE, Beside, Doubt, Explains, MORE_COLUMNS, ModelRow, Predicts, Reads, RowAt, RowModel,
    Stated, spread_levels,
};
use crate::config::ConfigError;
use crate::config::fields::{Field, field};
use crate::random::Random;

/// Linear regression.
pub const ROW: ModelRow = ModelRow {
    name: "linear",
    title: "linear regression",
    says: "a number, normal around a linear predictor; the noise's sd, sigma, is a parameter",
    reads: Reads::Rows(read),
    explains: Explains::Numbers,
    by_formula: true,
    fields: FIELDS,
    example: "",
};

const FIELDS: &[Field] = &[field(
    "target",
    "noise_variance",
    "positive number",
    "a parameter, sigma squared",
    "linear: the variance of the noise around the line, where it is known",
)];

#[derive(Debug)]
struct Linear {
    /// The variance of the noise, where it is known.
    noise_variance: Option<f64>,
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let noise_variance = stated.get("noise_variance").map(|value| value.positive()).transpose()?;
    Ok(Arc::new(Linear { noise_variance }))
}

/// Huber's loss (1964): that of linear regression, with its derivative held within `slope`. The
/// gradient of a row is then clipped, and still the gradient of a convex potential.
#[derive(Clone, Copy, Debug)]
struct Robust {
    variance: f64,
    slope: f64,
}

impl PointLoss for Robust {
    #[inline(always)]
    fn loss(&self, t: f64, y: f64) -> f64 {
        let (error, reach) = ((t - y).abs(), self.slope * self.variance);
        if error <= reach {
            error * error / (2.0 * self.variance)
        } else {
            self.slope * (error - 0.5 * reach)
        }
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        ((t - y) / self.variance).clamp(-self.slope, self.slope)
    }

    fn bend(&self, t: f64, y: f64) -> f64 {
        if (t - y).abs() <= self.slope * self.variance { 1.0 / self.variance } else { 0.0 }
    }

    fn most_bend(&self) -> f64 {
        1.0 / self.variance
    }
}

/// Minus the log-likelihood of a number `y` around `t` is `(y - t)^2 / (2 sigma^2) + ln sigma`, up
/// to a constant.
#[derive(Clone, Copy, Debug)]
struct Normal;

impl ExtendedLoss for Normal {
    fn beside(&self) -> (usize, Transforms) {
        (1, Transforms::new([(0..1, Transform::Positive)]))
    }

    #[inline(always)]
    fn loss(&self, t: f64, beside: &[f64], y: f64) -> f64 {
        let (s, r) = (beside[0], y - t);
        settled(0.5 * (r / s) * (r / s) + ln(s))
    }

    fn derive(&self, t: f64, beside: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        let s = beside[0];
        let (z, w) = ((y - t) / s, 1.0 / (s * s));
        slopes.copy_from_slice(&[-z / s, (1.0 - z * z) / s]);
        bends.copy_from_slice(&[w, 2.0 * z * w, 2.0 * z * w, (3.0 * z * z - 1.0) * w]);
    }

    fn reach(&self, _beside: &[f64]) -> f64 {
        f64::INFINITY // it has no poles
    }
}

/// The same where the variance is known.
#[derive(Clone, Copy, Debug)]
struct Known {
    variance: f64,
}

impl PointLoss for Known {
    #[inline(always)]
    fn loss(&self, t: f64, y: f64) -> f64 {
        0.5 * (y - t) * (y - t) / self.variance
    }

    fn slope(&self, t: f64, y: f64) -> f64 {
        (t - y) / self.variance
    }

    fn bend(&self, _t: f64, _y: f64) -> f64 {
        1.0 / self.variance
    }
}

impl Linear {
    fn variance(&self, beside: &[f64]) -> f64 {
        self.noise_variance.unwrap_or_else(|| beside.first().map_or(f64::NAN, |s| s * s))
    }
}

impl RowModel for Linear {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        self.noise_variance.iter().map(|variance| ("noise_variance", json!(variance))).collect()
    }

    fn statement(&self) -> String {
        match self.noise_variance {
            Some(variance) => {
                format!("linear regression with noise of variance {}", Exactly(variance))
            }
            None => "linear regression".into(),
        }
    }

    fn beside(&self) -> Vec<Beside> {
        if self.noise_variance.is_some() {
            return Vec::new();
        }
        vec![Beside::positive("sigma", Law::Exponential { rate: 1.0 }, true)]
    }

    fn is_in_units(&self) -> bool {
        self.noise_variance.is_none()
    }

    fn row_gradient(&self, row_norm: f64, slope: Option<f64>) -> Result<f64, &'static str> {
        if self.noise_variance.is_none() {
            return Err(
                "sigma is a parameter, and the gradient of a row in it has no bound: state \
                 target.noise_variance",
            );
        }
        let slope =
            slope.ok_or("a residual has no bound, and so the gradient of a row has none")?;
        Ok(slope * row_norm)
    }

    fn response_reach(&self, slope: Option<f64>) -> Option<f64> {
        Some(slope? * self.noise_variance?)
    }

    fn row_curvature(&self, row_norm: f64) -> Option<f64> {
        self.noise_variance.map(|variance| row_norm * row_norm / variance)
    }

    fn released(&self, response: Option<f64>) -> Result<Released, &'static str> {
        let response = response.ok_or(
            "a response has no bound, and so the sum of their squares has none: state \
             privacy.response",
        )?;
        Ok(Released::Linear { response, noise_variance: self.noise_variance })
    }

    fn bounded(
        &self,
        slope: Option<f64>,
        design: Design,
        response: Vec<f64>,
    ) -> Result<Arc<dyn Model>, DataError> {
        let (Some(slope), Some(variance)) = (slope, self.noise_variance) else {
            return self.potential(design, response);
        };
        let loss = Robust { variance, slope };
        Ok(Arc::new(Regression::new(design, response, loss)?))
    }

    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        Some(match self.noise_variance {
            Some(variance) => Arc::new(Unextended(Known { variance })),
            None => Arc::new(Normal),
        })
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(match self.noise_variance {
            Some(variance) => {
                Arc::new(Glm::new(design, response, GlmFamily::Gaussian { variance })?)
            }
            None => Arc::new(Extended::new(design, response, Normal)?),
        })
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "response",
            what: "a new response",
            of: Some("a new response, that is,"),
            interval: "the interval is of the response, noise included",
        })
    }

    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        into.push(at.predictors[0] + self.variance(at.beside).sqrt() * random.normal());
        true
    }

    fn mend(&self, doubt: Doubt, more: bool) -> &'static str {
        match doubt {
            Doubt::Extremes if more => {
                "Use model = \"student_t\", which expects some responses to be far off"
            }
            Doubt::Skew | Doubt::Shape => {
                "Explain a function of the response, such as log(y) ~ ...; for a few that are far \
                 off use model = \"student_t\""
            }
            Doubt::Sites => BY_SITE,
            _ => MORE_COLUMNS,
        }
    }

    fn expect(&self, _predictors: &mut [f64], _beside: &[f64]) {}

    fn scatter(&self, expected: &mut [f64], beside: &[&[f64]]) {
        let levels = spread_levels(expected.len());
        for ((value, beside), level) in expected.iter_mut().zip(beside).zip(levels) {
            *value += self.variance(beside).sqrt() * normal_quantile(level);
        }
    }

    fn log_density(&self, predictor: f64, beside: &[f64], y: f64) -> f64 {
        let variance = self.variance(beside);
        let error = y - predictor;
        -error * error / (2.0 * variance) - 0.5 * ln(std::f64::consts::TAU * variance)
    }
}

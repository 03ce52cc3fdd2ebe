//! Give the rows of a group an effect of their own: `(1 | ward)` beside another model.
//!
//! Effects are normal around 0, and their standard deviation is a parameter. They are integrated
//! out where the rows are, so that what all sites share is sampled, and nothing else is sent.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::normal_quantile;
use consilience_core::model::{
    Design, ExtendedLoss, GAUSS_HERMITE, GroupEffects, Law, Model, Transform,
};
use consilience_core::simd::{exp, ln};
use serde_json::{Value, json};

use super::{Beside, Effects, ModelRow, Observed, Predicts, RowModel, kept};
use crate::data::GroupBy;

/// A model with effects of groups.
#[derive(Debug)]
pub struct Grouped {
    inner: Arc<dyn RowModel>,
    by: GroupBy,
}

/// What priors call the standard deviation of effects.
const EFFECTS: &str = "effects";

impl Grouped {
    /// This model with an effect for every group; `None` if it cannot have such.
    pub fn new(inner: &Arc<dyn RowModel>, by: GroupBy) -> Option<Self> {
        inner.loss().map(|_| Grouped { inner: Arc::clone(inner), by })
    }

    /// What the draw says of the inner model's parameters, and the effects' standard deviation.
    fn split_beside<'b>(&self, beside: &'b [f64]) -> (&'b [f64], f64) {
        beside.split_last().map_or((beside, f64::NAN), |(tau, own)| (own, *tau))
    }
}

impl RowModel for Grouped {
    fn row(&self) -> &'static ModelRow {
        self.inner.row()
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let mut settings = self.inner.settings();
        settings.push((kept::GROUPS, json!(self.by.to_string())));
        settings
    }

    fn statement(&self) -> String {
        format!("{} with an effect of every {}", self.inner.statement(), self.by)
    }

    fn group_by(&self) -> Option<&GroupBy> {
        Some(&self.by)
    }

    fn classes(&self) -> Option<usize> {
        self.inner.classes()
    }

    fn beside(&self) -> Vec<Beside> {
        let mut beside = self.inner.beside();
        beside.push(Beside {
            group: EFFECTS,
            names: vec![format!("sd(1 | {})", self.by)],
            transform: Transform::Positive,
            law: Law::StudentT { df: 3.0, location: 0.0, scale: 2.5 },
            in_units: self.inner.is_in_units(),
        });
        beside
    }

    fn is_in_units(&self) -> bool {
        self.inner.is_in_units()
    }

    fn censors(&self) -> bool {
        self.inner.censors()
    }

    fn takes_intercept(&self) -> bool {
        self.inner.takes_intercept()
    }

    /// Rows without a group are one.
    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        let groups = vec![0; response.len()];
        self.potential_of(design, Observed { response, groups, ..Observed::default() })
    }

    fn potential_of(&self, design: Design, rows: Observed) -> Result<Arc<dyn Model>, DataError> {
        match self.effects(design.clone(), rows.clone())? {
            Some(model) => Ok(Arc::new(model)),
            None => self.inner.potential_of(design, rows), // never made so
        }
    }

    fn effects(&self, design: Design, rows: Observed) -> Result<Option<Effects>, DataError> {
        let Some(loss) = self.inner.loss() else { return Ok(None) };
        let (response, mut groups, adjustment) = rows.into_parts()?;
        if groups.is_empty() {
            groups = vec![0; response.len()];
        }
        let model = GroupEffects::new(design, response, loss, &groups)?;
        Ok(Some(model.adjusted(adjustment)?))
    }

    fn ratio(&self) -> Option<&'static str> {
        self.inner.ratio()
    }

    fn row_loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        self.inner.row_loss()
    }

    fn accepts(&self, y: f64) -> bool {
        self.inner.accepts(y)
    }

    fn responses(&self) -> String {
        self.inner.responses()
    }

    fn remedy(&self, column: &str, found: f64, right: Option<&str>) -> String {
        self.inner.remedy(column, found, right)
    }

    fn explained(&self, column: &str, classes: Option<&[String]>) -> Option<String> {
        self.inner.explained(column, classes)
    }

    fn predicts(&self) -> Option<Predicts> {
        self.inner.predicts()
    }

    /// A row of a group that nobody has seen: the mean over the law of its effect.
    fn expect(&self, predictors: &mut [f64], beside: &[f64]) {
        let (own, tau) = self.split_beside(beside);
        let mut mean = 0.0;
        for (z, weight) in GAUSS_HERMITE {
            for effect in [tau * z, -tau * z] {
                let mut one = [predictors[0] + effect];
                self.inner.expect(&mut one, own);
                mean += weight * one[0];
            }
        }
        predictors[0] = mean;
    }

    /// Where intervals are of a new response they are of a new group's.
    fn scatter(&self, expected: &mut [f64], beside: &[&[f64]]) {
        // another irrational number than that of the inner model's noise
        const PLASTIC: f64 = 0.754_877_666_246_692_8;
        let own: Vec<&[f64]> = beside.iter().map(|beside| self.split_beside(beside).0).collect();
        let before = expected.to_vec();
        self.inner.scatter(expected, &own);
        if before == expected {
            return; // intervals are of the mean
        }
        for (k, (value, beside)) in expected.iter_mut().zip(beside).enumerate() {
            let level = ((k as f64 + 0.5) * PLASTIC).fract();
            *value += self.split_beside(beside).1 * normal_quantile(level);
        }
    }

    fn constant(&self, beside: &[f64], y: f64) -> f64 {
        self.inner.constant(self.split_beside(beside).0, y)
    }

    fn log_density(&self, predictor: f64, beside: &[f64], y: f64) -> f64 {
        let (own, tau) = self.split_beside(beside);
        let logs = GAUSS_HERMITE.iter().flat_map(|(z, weight)| {
            [tau * z, -tau * z]
                .map(|effect| ln(*weight) + self.inner.log_density(predictor + effect, own, y))
        });
        let logs: Vec<f64> = logs.collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + ln(logs.iter().map(|log| exp(log - most)).sum())
    }
}

//! Give the rows of a group effects of their own beside a model: `(1 | ward)`, `(x | ward)`.
//!
//! Effects are normal around 0, and their standard deviations are parameters, as is the correlation
//! of an intercept with a slope. They are integrated
//! out where the rows are, so that what all sites share is sampled, and nothing else is sent.

use std::borrow::Cow;
use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::normal_quantile;
use consilience_core::model::{
    Design, ExtendedLoss, GAUSS_HERMITE, GroupEffects, Law, Model, Transform, Varying,
};
use consilience_core::simd::{exp, ln};
use serde_json::{Value, json};

use super::{
    BY_COLUMNS, Beside, Doubt, Effects, ModelRow, Observed, Predicts, RowModel, averaged, kept,
    places,
};
use crate::data::{BesideSlope, GroupBy, GroupTerm, VaryingSlope};
use crate::random::Random;

/// A model with effects of groups.
#[derive(Debug)]
pub struct Grouped {
    inner: Arc<dyn RowModel>,
    term: GroupTerm,
}

/// What priors call the standard deviations of effects.
pub(super) const EFFECTS: &str = "effects";
/// What priors call the correlation of effects.
const CORRELATION: &str = "correlation";

impl Grouped {
    /// This model with an effect for every group; `None` if it cannot have such.
    pub fn new(inner: &Arc<dyn RowModel>, mut term: GroupTerm) -> Option<Self> {
        if let Some(slope) = &mut term.slope
            && !inner.takes_intercept()
        {
            slope.place = 0; // cut points are its intercepts
        }
        inner.loss().map(|_| Grouped { inner: Arc::clone(inner), term })
    }

    /// What differs between groups.
    fn varying(&self) -> Varying {
        match self.term.slope.as_ref().map(|slope| slope.beside) {
            None => Varying::Intercept,
            Some(BesideSlope::Nothing) => Varying::Slope,
            Some(BesideSlope::Intercept) => Varying::Independent,
            Some(BesideSlope::CorrelatedIntercept) => Varying::Correlated,
        }
    }

    /// What stands beside the coefficients, as a row needs it: the inner model's parameters, and
    /// the standard deviation of what effects add to the row. Where that depends on the row it
    /// stands behind all parameters ([`RowModel::beside_at`]).
    fn split_beside<'b>(&self, beside: &'b [f64]) -> (&'b [f64], f64) {
        let own = places(&self.inner.beside()).min(beside.len());
        let place = match self.varying() {
            Varying::Intercept => own,
            other => own + other.parameters(),
        };
        (&beside[..own], beside.get(place).copied().unwrap_or(f64::NAN))
    }
}

impl Grouped {
    /// Rows with the effects of their groups integrated out.
    fn in_groups(
        &self,
        design: Design,
        rows: Observed,
    ) -> Result<Option<GroupEffects<Arc<dyn ExtendedLoss>>>, DataError> {
        let Some(loss) = self.inner.loss() else { return Ok(None) };
        let (response, mut groups, adjustment) = rows.into_parts()?;
        if groups.is_empty() {
            groups = vec![0; response.len()];
        }
        let along = self.term.slope.as_ref().map(|slope| {
            (0..design.rows()).map(|row| design.cell(row, slope.place)).collect::<Vec<f64>>()
        });
        let model = GroupEffects::new(design, response, loss, &groups)?;
        let model = match along {
            Some(along) => model.varying(self.varying(), along)?,
            None => model,
        };
        Ok(Some(model.adjusted(adjustment)?))
    }
}

impl RowModel for Grouped {
    fn row(&self) -> &'static ModelRow {
        self.inner.row()
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let mut settings = self.inner.settings();
        let term = match &self.term.slope {
            None => json!(self.term.by.to_string()),
            Some(_) => json!(self.term),
        };
        settings.push((kept::GROUPS, term));
        settings
    }

    fn statement(&self) -> String {
        let (inner, by) = (self.inner.statement(), &self.term.by);
        let Some(VaryingSlope { along, beside, .. }) = &self.term.slope else {
            return format!("{inner} with an effect of every {by}");
        };
        let what = match beside {
            BesideSlope::Nothing => "a slope",
            BesideSlope::Intercept => "an intercept and, independent of it, a slope",
            BesideSlope::CorrelatedIntercept => "an intercept and a slope",
        };
        format!("{inner} with {what} along {along} of every {by}")
    }

    fn group_by(&self) -> Option<&GroupBy> {
        Some(&self.term.by)
    }

    fn slope_by(&self) -> Option<&VaryingSlope> {
        self.term.slope.as_ref()
    }

    fn beside_at<'d>(&self, draw: &'d [f64], design: &Design, row: usize) -> Cow<'d, [f64]> {
        let beside = self.split(draw).1;
        let Some(slope) = &self.term.slope else { return Cow::Borrowed(beside) };
        let effects = &beside[places(&self.inner.beside()).min(beside.len())..];
        let variance = self.varying().variance_at(effects, design.cell(row, slope.place));
        Cow::Owned([beside, &[variance.sqrt()]].concat())
    }

    fn classes(&self) -> Option<usize> {
        self.inner.classes()
    }

    fn beside(&self) -> Vec<Beside> {
        let mut beside = self.inner.beside();
        let (varying, by) = (self.varying(), &self.term.by);
        let along = self.term.slope.as_ref().map(|slope| slope.along.as_str());
        let intercept = (varying != Varying::Slope).then_some("1");
        let named = |what: &str| format!("sd({what} | {by})");
        beside.push(Beside {
            group: EFFECTS,
            names: intercept.into_iter().chain(along).map(named).collect(),
            transform: Some(Transform::Positive),
            law: Law::StudentT { df: 3.0, location: 0.0, scale: 2.5 },
            in_units: self.inner.is_in_units(),
        });
        if let (Varying::Correlated, Some(along)) = (varying, along) {
            beside.push(Beside {
                group: CORRELATION,
                names: vec![format!("cor(1, {along} | {by})")],
                transform: Some(Transform::Correlation),
                law: Law::Lkj { shape: 2.0 },
                in_units: false,
            });
        }
        beside
    }

    fn is_in_units(&self) -> bool {
        self.inner.is_in_units()
    }

    fn censors(&self) -> bool {
        self.inner.censors()
    }

    fn is_in_logs(&self) -> bool {
        self.inner.is_in_logs()
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
        match self.in_groups(design.clone(), rows.clone())? {
            Some(model) => Ok(Arc::new(model)),
            None => self.inner.potential_of(design, rows), // never made so
        }
    }

    fn effects(&self, design: Design, rows: Observed) -> Result<Option<Effects>, DataError> {
        let boxed = |model| Box::new(model) as Effects;
        Ok(self.in_groups(design, rows)?.map(boxed))
    }

    fn effect_at(&self, effects: &[f64], design: &Design, row: usize) -> f64 {
        let along = self.term.slope.as_ref().map(|slope| design.cell(row, slope.place));
        match (along, effects) {
            (None, [intercept, ..]) => *intercept,
            (Some(x), [slope]) => slope * x,
            (Some(x), [intercept, slope, ..]) => intercept + slope * x,
            (_, []) => 0.0,
        }
    }

    fn new_effects(&self, draw: &[f64], random: &mut Random) -> Vec<f64> {
        let beside = self.split(draw).1;
        let own = places(&self.inner.beside()).min(beside.len());
        match (self.varying(), &beside[own..]) {
            (Varying::Intercept | Varying::Slope, [sd, ..]) => vec![sd * random.normal()],
            (Varying::Independent, [one, other, ..]) => {
                vec![one * random.normal(), other * random.normal()]
            }
            (Varying::Correlated, [one, other, correlation, ..]) => {
                let (u, v) = (random.normal(), random.normal());
                let rest = (1.0 - correlation * correlation).sqrt();
                vec![one * u, other * (correlation * u + rest * v)]
            }
            _ => Vec::new(),
        }
    }

    fn within(&self) -> Option<&Arc<dyn RowModel>> {
        Some(&self.inner)
    }

    fn mend(&self, doubt: Doubt, more: bool) -> &'static str {
        match doubt {
            Doubt::Sites => BY_COLUMNS,
            _ => self.inner.mend(doubt, more),
        }
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

    fn levels(&self, predictor: f64, beside: &[f64]) -> Vec<f64> {
        let (own, sd) = self.split_beside(beside);
        averaged(predictor, sd, |t| self.inner.levels(t, own))
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

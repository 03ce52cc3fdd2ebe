//! Give columns that lack values a law, and integrate what is missing out: `mi(chol)`.
//!
//! Given the columns that are complete they are jointly normal: each is given those before it. What
//! their laws have for parameters is sampled with those of the model, so that the posterior knows
//! how little is known of a value that is missing; the value itself is nobody's parameter. Effects
//! of groups may stand beside: `mi(chol) + (1 | site)`.

use std::borrow::Cow;
use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::normal_quantile;
use consilience_core::model::{
    ABSENT, Design, ExtendedLoss, GAUSS_HERMITE, Incomplete, Lacking, Law, Model, Transform,
};
use consilience_core::simd::{exp, ln};
use serde_json::{Value, json};

use super::{
    Beside, Doubt, Effects, ModelRow, Observed, Predicts, RowAt, RowModel, averaged, kept, places,
};
use crate::data::{GroupBy, LackingTerms};
use crate::random::Random;

/// A model some of whose columns lack values.
#[derive(Debug)]
pub struct Integrated {
    inner: Arc<dyn RowModel>,
    terms: LackingTerms,
    /// The same given the effects of groups, where there are such.
    within: Option<Arc<dyn RowModel>>,
}

/// What priors call the coefficients of the laws of columns.
const LAWS: &str = "columns";
/// What priors call their standard deviations.
const DEVIATIONS: &str = "sds of columns";

impl Integrated {
    /// This model with a law of these columns; what is wrong where it cannot have such.
    pub fn new(inner: &Arc<dyn RowModel>, mut terms: LackingTerms) -> Result<Self, String> {
        let title = inner.row().title;
        if inner.slope_by().is_some() {
            return Err(
                "mi( ) goes with (1 | group), not with slopes that differ between groups".into()
            );
        }
        let base = inner.within().unwrap_or(inner);
        if base.loss().is_none() || base.predictors() != 1 {
            return Err(format!("{title} has no mi( )"));
        }
        let (found, most) = (terms.columns.len(), Lacking::MOST);
        if found > most {
            return Err(format!("mi( ) of {found} columns, and at most {most} can be had"));
        }
        terms.ones &= inner.takes_intercept(); // cut points are its intercepts
        let within = match inner.within() {
            Some(base) => {
                Some(Arc::new(Integrated::new(base, terms.clone())?) as Arc<dyn RowModel>)
            }
            None => None,
        };
        Ok(Integrated { inner: Arc::clone(inner), terms, within })
    }

    /// The model without effects of groups.
    fn base(&self) -> &Arc<dyn RowModel> {
        self.inner.within().unwrap_or(&self.inner)
    }

    /// Rows with what they lack integrated out, and the effects of their groups.
    fn incomplete(
        &self,
        design: &Design,
        rows: Observed,
    ) -> Result<Incomplete<Arc<dyn ExtendedLoss>>, DataError> {
        let Some(loss) = self.base().loss().filter(|_| rows.weights.is_empty()) else {
            return Err(DataError::Adjusted { model: self.row().title });
        };
        let count = rows.response.len();
        let model = Incomplete::new(design, rows.response, loss, self.lacking())?;
        let model = model.offset(rows.offset)?;
        match self.group_by() {
            None => Ok(model),
            Some(_) if rows.groups.is_empty() => model.grouped(&vec![0; count]),
            Some(_) => model.grouped(&rows.groups),
        }
    }

    fn lacking(&self) -> Lacking {
        Lacking { first: usize::from(self.terms.ones), count: self.terms.columns.len() }
    }

    /// How many parameters the model has beside its coefficients.
    fn own(&self) -> usize {
        places(&self.inner.beside())
    }

    /// What a draw says: coefficients, the model's own parameters, those of laws.
    fn parts<'d>(&self, draw: &'d [f64]) -> (&'d [f64], &'d [f64], &'d [f64]) {
        let columns = self.lacking().columns(draw.len(), self.own());
        let (coefficients, beside) = draw.split_at(columns.min(draw.len()));
        let (own, laws) = beside.split_at(self.own().min(beside.len()));
        (coefficients, own, laws)
    }

    /// The model's own parameters, and the standard deviation of what is missing in a row, which
    /// stands behind them ([`RowModel::beside_at`]).
    fn split_beside<'b>(&self, beside: &'b [f64]) -> (&'b [f64], f64) {
        let own = self.own().min(beside.len());
        match beside.len() == own + 1 {
            true => (&beside[..own], beside[own]),
            false => (&beside[..own], 0.0),
        }
    }

    /// The mean over what is missing of a function of the predictor.
    fn average(&self, t: f64, tau: f64, mut of: impl FnMut(f64) -> f64) -> f64 {
        if tau == 0.0 {
            return of(t);
        }
        let mut mean = 0.0;
        for (z, weight) in GAUSS_HERMITE {
            mean += weight * (of(t + tau * z) + of(t - tau * z));
        }
        mean
    }

    /// The log of the mean over what is missing of `exp` of a function of the predictor.
    fn log_average(&self, t: f64, tau: f64, of: impl Fn(f64) -> f64) -> f64 {
        if tau == 0.0 {
            return of(t);
        }
        let most = GAUSS_HERMITE
            .iter()
            .flat_map(|(z, _)| [of(t + tau * z), of(t - tau * z)])
            .fold(f64::NEG_INFINITY, f64::max);
        most + ln(self.average(t, tau, |t| exp(of(t) - most)))
    }
}

impl RowModel for Integrated {
    fn row(&self) -> &'static ModelRow {
        self.inner.row()
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        let mut settings = self.inner.settings();
        settings.push((kept::LACKING, json!(self.terms)));
        settings
    }

    fn statement(&self) -> String {
        format!(
            "{}; given the other columns, {} jointly normal, also where missing",
            self.inner.statement(),
            self.terms.columns.join(", ")
        )
    }

    fn lacking_terms(&self) -> Option<&LackingTerms> {
        Some(&self.terms)
    }

    fn classes(&self) -> Option<usize> {
        self.inner.classes()
    }

    /// Without names: how many there are depends on the columns.
    fn beside(&self) -> Vec<Beside> {
        let mut beside = self.inner.beside();
        beside.push(Beside {
            group: LAWS,
            names: Vec::new(),
            transform: None,
            law: Law::Normal { mean: 0.0, sd: 2.5 },
            in_units: false,
        });
        beside.push(Beside {
            group: DEVIATIONS,
            names: Vec::new(),
            transform: Some(Transform::Positive),
            law: Law::Exponential { rate: 1.0 },
            in_units: false,
        });
        beside
    }

    fn beside_of(&self, dim: usize) -> Vec<Beside> {
        let columns = self.lacking().columns(dim, self.own());
        let names: Vec<String> = (0..columns).map(|k| format!("column {k}")).collect();
        let count = self.terms.columns.len();
        let (laws, deviations) = self.law_names(&names);
        let mut beside = self.beside();
        let last = beside.len();
        beside[last - 2].names = laws;
        beside[last - 1].names = deviations;
        debug_assert_eq!(beside[last - 1].names.len(), count);
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

    fn dim(&self, columns: usize) -> usize {
        columns + self.own() + self.lacking().parameters(columns)
    }

    fn split<'d>(&self, draw: &'d [f64]) -> (&'d [f64], &'d [f64]) {
        draw.split_at(self.lacking().columns(draw.len(), self.own()).min(draw.len()))
    }

    fn nuisance(&self, dim: usize) -> usize {
        self.lacking().parameters(self.lacking().columns(dim, self.own()))
    }

    fn predictors_of(&self, design: &Design, draw: &[f64]) -> Vec<f64> {
        let (coefficients, _, laws) = self.parts(draw);
        let lacking = self.lacking();
        let known = |row: usize| {
            let cell = |(k, x): (usize, &f64)| match design.cell(row, k) {
                ABSENT => 0.0,
                cell => x * cell,
            };
            let known: f64 = coefficients.iter().enumerate().map(cell).sum();
            known + lacking.adds(design, row, coefficients, laws)[0]
        };
        (0..design.rows()).map(known).collect()
    }

    fn beside_at<'d>(&self, draw: &'d [f64], design: &Design, row: usize) -> Cow<'d, [f64]> {
        let (coefficients, own, laws) = self.parts(draw);
        let [_, sd] = self.lacking().adds(design, row, coefficients, laws);
        Cow::Owned([own, &[sd]].concat())
    }

    fn beside_within<'d>(&self, draw: &'d [f64], design: &Design, row: usize) -> Cow<'d, [f64]> {
        let (coefficients, own, laws) = self.parts(draw);
        let [_, sd] = self.lacking().adds(design, row, coefficients, laws);
        let own = &own[..places(&self.base().beside()).min(own.len())];
        Cow::Owned([own, &[sd]].concat())
    }

    fn group_by(&self) -> Option<&GroupBy> {
        self.inner.group_by()
    }

    fn within(&self) -> Option<&Arc<dyn RowModel>> {
        self.within.as_ref()
    }

    fn effects(&self, design: Design, rows: Observed) -> Result<Option<Effects>, DataError> {
        if self.group_by().is_none() {
            return Ok(None);
        }
        Ok(Some(Box::new(self.incomplete(&design, rows)?)))
    }

    fn effect_at(&self, effects: &[f64], design: &Design, row: usize) -> f64 {
        self.inner.effect_at(effects, design, row)
    }

    fn new_effects(&self, draw: &[f64], random: &mut Random) -> Vec<f64> {
        let laws = self.nuisance(draw.len()).min(draw.len());
        self.inner.new_effects(&draw[..draw.len() - laws], random)
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        self.potential_of(design, Observed { response, ..Observed::default() })
    }

    fn potential_of(&self, design: Design, rows: Observed) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(self.incomplete(&design, rows)?))
    }

    fn parameters(&self, columns: &[String], classes: Option<&[String]>) -> Vec<String> {
        let (laws, deviations) = self.law_names(columns);
        let mut all = self.inner.parameters(columns, classes);
        all.extend(laws);
        all.extend(deviations);
        all
    }

    /// What is missing is drawn with the response.
    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        let (beside, sd) = self.split_beside(at.beside);
        let mut predictor = at.predictors[0];
        if sd > 0.0 {
            predictor += sd * random.normal();
        }
        self.inner.replicate(RowAt { predictors: &[predictor], beside, y: at.y }, random, into)
    }

    fn mend(&self, doubt: Doubt, more: bool) -> &'static str {
        self.inner.mend(doubt, more)
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

    fn expect(&self, predictors: &mut [f64], beside: &[f64]) {
        let (own, tau) = self.split_beside(beside);
        predictors[0] = self.average(predictors[0], tau, |t| {
            let mut one = [t];
            self.inner.expect(&mut one, own);
            one[0]
        });
    }

    /// Where intervals are of a new response, what is missing scatters it too.
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

    fn log_probability(&self, predictors: &[f64], beside: &[f64], y: f64) -> f64 {
        let (own, tau) = self.split_beside(beside);
        self.log_average(predictors[0], tau, |t| self.inner.log_probability(&[t], own, y))
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
        self.log_average(predictor, tau, |t| self.inner.log_density(t, own, y))
    }
}

impl Integrated {
    /// The names of the laws' coefficients, and of their deviations.
    fn law_names(&self, columns: &[String]) -> (Vec<String>, Vec<String>) {
        let Lacking { first, count } = self.lacking();
        let given = columns.get(first + count..).unwrap_or_default();
        let names = &self.terms.columns;
        let law = |(k, name): (usize, &String)| {
            let one = std::iter::once(format!("{name} ~ 1"));
            let others = given.iter().chain(&names[..k]);
            one.chain(others.map(move |z| format!("{name} ~ {z}"))).collect::<Vec<_>>()
        };
        let deviation = |name: &String| format!("sd({name})");
        let laws = names.iter().enumerate().flat_map(law).collect();
        (laws, names.iter().map(deviation).collect())
    }
}

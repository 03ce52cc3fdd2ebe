//! Ordinal regression: levels in an order, by the logit of not exceeding each (cumulative logit).

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{
    Design, Extended, ExtendedLoss, Law, MOST_BESIDE, Model, Transform, Transforms, settled,
};
use consilience_core::simd::{exp, ln, sigmoid, softplus};
use serde_json::{Value, json};

use super::{
    BY_SITE, Beside, Doubt, Explains, MORE_COLUMNS, ModelRow, Predicts, Reads, RowAt, RowModel,
    Stated,
};
use crate::config::ConfigError;
use crate::config::fields::{Field, field};
use crate::random::Random;

/// Ordinal regression.
pub const ROW: ModelRow = ModelRow {
    name: "ordinal",
    title: "ordinal regression",
    says: "a level from 1: the logit of not exceeding it is a cut point less a linear predictor",
    reads: Reads::Rows(read),
    explains: Explains::Numbers,
    by_formula: true,
    fields: FIELDS,
    example: "levels = 4",
};

const FIELDS: &[Field] = &[field(
    "target",
    "levels",
    "whole number from 2",
    "",
    "ordinal: how many levels the response has; they are numbered from 1",
)];

/// `P(y <= k) = sigmoid(c_k - t)` with rising cut points `c`.
#[derive(Clone, Copy, Debug)]
struct Ordinal {
    levels: usize,
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let fix = "say how many levels the response has, e.g. levels = 5; they are numbered from 1";
    let value = stated.need("levels", fix)?;
    let levels = value.whole(2)? as usize;
    if levels > MOST_BESIDE {
        let problem = format!("{levels} levels are more than {MOST_BESIDE}");
        return Err(value.error(problem, "use model = \"linear\" for so many"));
    }
    Ok(Arc::new(Ordinal { levels }))
}

/// Cut points that are so far apart might be at any distance: `ln(1 - exp(-gap))` is 0 then.
const MOST_GAP: f64 = 40.0;

/// `exp(x) - 1` for `x` above 0.
fn exp_less_one(x: f64) -> f64 {
    if x < 1e-5 { x * (1.0 + 0.5 * x) } else { exp(x) - 1.0 }
}

/// With `a = c_k - t` and `b = c_{k-1} - t` the probability is `sigmoid(a) - sigmoid(b)`, that is
/// `sigmoid(a) sigmoid(-b) (1 - exp(b - a))`; at the ends a factor is 1.
impl ExtendedLoss for Ordinal {
    fn beside(&self) -> (usize, Transforms) {
        let cuts = self.levels - 1;
        (cuts, Transforms::new([(0..cuts, Transform::Ordered)]))
    }

    #[inline(always)]
    fn loss(&self, t: f64, cuts: &[f64], y: f64) -> f64 {
        let level = y as usize;
        let (below, above) = (level.checked_sub(2), level - 1);
        let mut loss = 0.0;
        if above < cuts.len() {
            loss += softplus(t - cuts[above]);
        }
        if let Some(below) = below {
            loss += softplus(cuts[below] - t);
            if above < cuts.len() {
                let gap = cuts[above] - cuts[below];
                loss += if gap < MOST_GAP { gap - ln(exp_less_one(gap)) } else { 0.0 };
            }
        }
        settled(loss)
    }

    fn derive(&self, t: f64, cuts: &[f64], y: f64, slopes: &mut [f64], bends: &mut [f64]) {
        let (level, side) = (y as usize, 1 + cuts.len());
        let (below, above) = (level.checked_sub(2), level - 1);
        slopes.fill(0.0);
        bends.fill(0.0);
        let mut at = |row: usize, column: usize, value: f64| {
            bends[row * side + column] += value;
            if row != column {
                bends[column * side + row] += value;
            }
        };
        if above < cuts.len() {
            let p = sigmoid(t - cuts[above]);
            slopes[0] += p;
            slopes[1 + above] -= p;
            let bend = p * (1.0 - p);
            at(0, 0, bend);
            at(0, 1 + above, -bend);
            at(1 + above, 1 + above, bend);
        }
        if let Some(below) = below {
            let p = sigmoid(cuts[below] - t);
            slopes[0] -= p;
            slopes[1 + below] += p;
            let bend = p * (1.0 - p);
            at(0, 0, bend);
            at(0, 1 + below, -bend);
            at(1 + below, 1 + below, bend);
            if above < cuts.len() {
                let more = exp_less_one(cuts[above] - cuts[below]);
                slopes[1 + above] -= 1.0 / more;
                slopes[1 + below] += 1.0 / more;
                let bend = (1.0 + more) / (more * more);
                at(1 + above, 1 + above, bend);
                at(1 + below, 1 + below, bend);
                at(1 + above, 1 + below, -bend);
            }
        }
    }

    fn accepts(&self, y: f64) -> bool {
        y >= 1.0 && y.fract() == 0.0 && y <= self.levels as f64
    }

    fn responses(&self) -> &'static str {
        "whole numbers from 1 to the number of levels"
    }
}

impl Ordinal {
    /// The probability of every level.
    fn probabilities(&self, t: f64, cuts: &[f64]) -> impl Iterator<Item = f64> {
        (1..=self.levels).map(move |level| exp(-ExtendedLoss::loss(self, t, cuts, level as f64)))
    }
}

impl RowModel for Ordinal {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Value)> {
        vec![("levels", json!(self.levels))]
    }

    fn statement(&self) -> String {
        format!("ordinal regression (cumulative logit) with {} levels", self.levels)
    }

    fn beside(&self) -> Vec<Beside> {
        let names = (1..self.levels).map(|k| format!("cut[{k}|{}]", k + 1)).collect();
        let law = Law::StudentT { df: 3.0, location: 0.0, scale: 2.5 };
        let transform = Some(Transform::Ordered);
        vec![Beside { group: "cut", names, transform, law, in_units: false }]
    }

    fn takes_intercept(&self) -> bool {
        false
    }

    fn loss(&self) -> Option<Arc<dyn ExtendedLoss>> {
        Some(Arc::new(*self))
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Extended::new(design, response, *self)?))
    }

    fn accepts(&self, y: f64) -> bool {
        ExtendedLoss::accepts(self, y)
    }

    fn responses(&self) -> String {
        format!("whole numbers from 1 to {}", self.levels)
    }

    fn remedy(&self, _column: &str, _found: f64, _right: Option<&str>) -> String {
        "number the levels from 1, or correct target.levels".into()
    }

    fn ratio(&self) -> Option<&'static str> {
        Some("odds ratio")
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(Predicts {
            kind: "level",
            what: "the mean level",
            of: Some("the mean level of"),
            interval: "the interval is of the mean",
        })
    }

    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        let level = random.choice(self.probabilities(at.predictors[0], at.beside));
        into.push(1.0 + level as f64);
        true
    }

    fn mend(&self, doubt: Doubt, _more: bool) -> &'static str {
        match doubt {
            Doubt::Shape => {
                "Odds may not be proportional: use model = \"softmax\", with a class for each level"
            }
            Doubt::Sites => BY_SITE,
            _ => MORE_COLUMNS,
        }
    }

    fn expect(&self, predictors: &mut [f64], beside: &[f64]) {
        let levels = self.probabilities(predictors[0], beside).zip(1u32..);
        predictors[0] = levels.map(|(p, level)| p * f64::from(level)).sum();
    }

    fn levels(&self, predictor: f64, beside: &[f64]) -> Vec<f64> {
        self.probabilities(predictor, beside).collect()
    }

    fn log_density(&self, predictor: f64, beside: &[f64], y: f64) -> f64 {
        if !ExtendedLoss::accepts(self, y) {
            return f64::NEG_INFINITY;
        }
        -ExtendedLoss::loss(self, predictor, beside, y)
    }
}

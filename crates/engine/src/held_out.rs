//! Score the posterior predictive on rows that were held out.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::measure::{Predictive, PredictiveError};
use consilience_core::model::{Design, Model};
use consilience_core::simd::{exp, ln};

use crate::calibration::{affordable, averaged};
use crate::draws::Draws;
use crate::models::{Observed, RowModel};

/// At most so many draws are averaged: more change a score by less than its rows do.
const MOST_DRAWS: usize = 500;

/// Rows that no client learns from.
#[derive(Clone, Debug)]
pub struct HeldOut {
    /// Their features, encoded as the clients' own.
    pub design: Design,
    /// What is added to the predictor of every row; empty where nothing is.
    pub offset: Vec<f64>,
    /// Their labels.
    pub labels: Vec<f64>,
    /// What they are a test of.
    pub kind: Arc<dyn RowModel>,
}

/// How well held-out rows are predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// How many rows there are.
    pub rows: usize,
    /// The mean of minus the log of the predictive probability, or density, of what was observed.
    pub negative_log_likelihood: f64,
    /// The share of rows whose most probable class is theirs; none in regression.
    pub accuracy: Option<f64>,
    /// The mean squared distance of the predicted probabilities to what was observed; none in
    /// regression.
    pub brier: Option<f64>,
    /// The root of the mean squared error of the predicted mean; none with classes.
    pub root_mean_square: Option<f64>,
}

impl HeldOut {
    /// The rows as a model of their own, as the clients' rows are.
    pub fn potential(&self) -> Result<Arc<dyn Model>, DataError> {
        let rows = Observed {
            response: self.labels.clone(),
            offset: self.offset.clone(),
            ..Observed::default()
        };
        self.kind.potential_of(self.design.clone(), rows)
    }

    /// The first rows, at most so many, and their labels.
    pub(crate) fn first(&self, most: usize) -> Option<(Design, &[f64])> {
        let count = most.min(self.labels.len());
        let d = self.design.columns();
        let mut cells = vec![0.0; count * d];
        for (row, cells) in cells.chunks_exact_mut(d).enumerate() {
            self.design.add_row(row, 1.0, cells);
        }
        Some((Design::dense(cells, d).ok()?, &self.labels[..count]))
    }

    /// Average over the draws what each of them says of every row, and score the average.
    pub fn score(&self, draws: &Draws) -> Result<Option<Scores>, PredictiveError> {
        let total = draws.chains() * draws.length();
        if total == 0 {
            return Ok(None);
        }
        let every = total.div_ceil(MOST_DRAWS);
        if self.kind.is_whole() {
            return Ok(None); // a single row has no density
        }
        let used = || -> Vec<&[f64]> { draws.rows().step_by(every).collect() };
        let Some(classes) = self.kind.classes() else {
            return Ok(Some(self.score_numbers(&used())));
        };
        let rows = self.labels.len();
        let probabilities = match self.potential().ok().filter(|rows| rows.net().is_some()) {
            None => self.probabilities(&used(), classes),
            Some(net) => {
                let most = affordable(&*net, rows).clamp(1, MOST_DRAWS);
                let used: Vec<&[f64]> = draws.rows().step_by(total.div_ceil(most)).collect();
                net.classifier().map(|c| averaged(c, rows, &used)).unwrap_or_default()
            }
        };
        let labels: Vec<usize> = self.labels.iter().map(|label| *label as usize).collect();
        let predictive = Predictive::new(&probabilities, classes)?;
        Ok(Some(Scores {
            rows,
            negative_log_likelihood: predictive.negative_log_likelihood(&labels)?,
            accuracy: Some(predictive.accuracy(&labels)?),
            brier: Some(predictive.brier(&labels)?),
            root_mean_square: None,
        }))
    }

    /// What draws say of every row, averaged.
    fn probabilities(&self, draws: &[&[f64]], classes: usize) -> Vec<f64> {
        let share = 1.0 / draws.len() as f64;
        let mut probabilities = vec![0.0; self.labels.len() * classes];
        for draw in draws {
            let predicted = self.kind.predicted(&self.design, &self.offset, draw);
            let each = predicted.chunks_exact(self.kind.predictors());
            for (mean, each) in probabilities.chunks_exact_mut(classes).zip(each) {
                if let [p] = each[..] {
                    mean[0] += share * (1.0 - p);
                    mean[1] += share * p;
                } else {
                    mean.iter_mut().zip(each).for_each(|(mean, p)| *mean += share * *p);
                }
            }
        }
        probabilities
    }

    /// The predictive law of a number is a mixture of laws, one for each draw.
    fn score_numbers(&self, draws: &[&[f64]]) -> Scores {
        let n = draws.len() as f64;
        let (mut loss, mut squares) = (0.0, 0.0);
        let every: Vec<Vec<f64>> = draws
            .iter()
            .map(|draw| self.kind.adjusted_predictors(&self.design, &self.offset, draw))
            .collect();
        for (row, y) in self.labels.iter().enumerate() {
            let at = |draw: &&[f64]| self.kind.beside_at(draw, &self.design, row).into_owned();
            let beside: Vec<Vec<f64>> = draws.iter().map(at).collect();
            let predictors: Vec<f64> = every.iter().map(|rows| rows[row]).collect();
            let log = |(t, beside): (&f64, &Vec<f64>)| self.kind.log_density(*t, beside, *y);
            let logs: Vec<f64> = predictors.iter().zip(&beside).map(log).collect();
            let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logs.iter().map(|log| exp(log - most)).sum();
            loss -= most + ln(sum / n);
            let mean = |(t, beside): (&f64, &Vec<f64>)| {
                let mut expected = [*t];
                self.kind.expect(&mut expected, beside);
                expected[0]
            };
            let error = y - predictors.iter().zip(&beside).map(mean).sum::<f64>() / n;
            squares += error * error;
        }
        let rows = self.labels.len();
        Scores {
            rows,
            negative_log_likelihood: loss / rows as f64,
            accuracy: None,
            brier: None,
            root_mean_square: Some((squares / rows as f64).sqrt()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::from_settings;

    fn held(model: &str, labels: Vec<f64>) -> HeldOut {
        HeldOut {
            design: Design::dense(vec![1.0, 0.0, 1.0, 2.0, 1.0, -1.0], 2).unwrap(),
            offset: Vec::new(),
            labels,
            kind: from_settings(model).unwrap(),
        }
    }

    #[test]
    fn scores_are_those_of_the_averaged_prediction() {
        let draws = Draws::from_chains(vec![vec![0.0, 1.0, 0.0, 1.0], vec![0.0, 0.0, 0.0, 0.0]], 2);
        let p = |z: f64| 0.5 * (1.0 / (1.0 + (-z).exp()) + 0.5);
        let scores =
            held("model = \"logistic\"", vec![1.0, 1.0, 1.0]).score(&draws).unwrap().unwrap();
        let expected = -(0.5f64.ln() + p(2.0).ln() + p(-1.0).ln()) / 3.0;
        assert!((scores.negative_log_likelihood - expected).abs() < 1e-12 && scores.rows == 3);
        // Two classes of a softmax model with opposite halves of the parameters say the same.
        let halves = Draws::from_chains(vec![vec![0.0, -0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0]], 4);
        let same = held("model = \"softmax\"\nclasses = 2", vec![1.0, 1.0, 1.0])
            .score(&halves)
            .unwrap()
            .unwrap();
        assert!((same.negative_log_likelihood - expected).abs() < 1e-12 && same.brier.is_some());
        let scores = held("model = \"linear\"\nnoise_variance = 4", vec![0.5, 1.0, 0.0])
            .score(&draws)
            .unwrap()
            .unwrap();
        assert!(
            (scores.root_mean_square.unwrap() - ((0.25f64 + 0.0 + 0.25) / 3.0).sqrt()).abs()
                < 1e-12
        );
        let density = |y: f64, m: f64| {
            (-(y - m) * (y - m) / 8.0).exp() / (std::f64::consts::TAU * 4.0).sqrt()
        };
        let mixture = |y: f64, m: f64| (0.5 * (density(y, m) + density(y, 0.0))).ln();
        let expected = -(mixture(0.5, 0.0) + mixture(1.0, 2.0) + mixture(0.0, -1.0)) / 3.0;
        assert!((scores.negative_log_likelihood - expected).abs() < 1e-12);
        assert_eq!(held("model = \"logistic\"", vec![1.0; 3]).score(&Draws::new(2)).unwrap(), None);
    }
}

//! Average what draws predict, and score the average, the mean of the parameters and one draw.

use consilience_core::measure::{Predictive, PredictiveError, auc};
use consilience_core::model::Model;

use super::images::Images;
use super::setting::CREDIBILITIES;
use crate::experiment::{Trouble, Values};

/// Bins of confidences, and of entropies.
pub(super) const BINS: usize = 15;
pub(super) const HEAPS: usize = 24;
/// No label is thought less probable: one draw may say 0 in 32 bits.
const LEAST: f64 = 1e-12;

/// What is scored: the average over draws, the net whose parameters are the mean of all draws', and
/// the last draw.
pub(super) const VIEWS: [&str; 3] = ["", " of the mean", " of one draw"];
/// The scores, and whether more is better.
pub(super) const SCORES: [(&str, bool); 4] =
    [("accuracy", true), ("ece", false), ("brier", false), ("nnll", false)];

/// What the draws of a chain say.
pub(super) struct Average<'a> {
    images: &'a Images,
    test: Vec<f64>,
    elsewhere: Vec<Vec<f64>>,
    mean: Vec<f64>,
    last: Vec<f64>,
    draws: f64,
    /// Draw by draw the probabilities of the labels, where they are wanted.
    traces: Option<Vec<f64>>,
}

impl<'a> Average<'a> {
    pub(super) fn new(images: &'a Images, traced: bool) -> Self {
        let room = |model: &dyn Model| vec![0.0; model.rows() * images.classes];
        Average {
            test: room(&*images.test),
            elsewhere: images.elsewhere.iter().map(|(_, model)| room(&**model)).collect(),
            mean: vec![0.0; images.test.dim()],
            last: Vec::new(),
            draws: 0.0,
            traces: traced.then(Vec::new),
            images,
        }
    }

    /// One more draw.
    pub(super) fn add(&mut self, x: &[f64]) {
        let said = probabilities(&*self.images.test, self.images.classes, x);
        if let Some(traces) = &mut self.traces {
            let rows = said.chunks_exact(self.images.classes).zip(&self.images.labels);
            traces.extend(rows.map(|(row, label)| short(row[*label])));
        }
        add(&said, &mut self.test);
        for ((_, model), sums) in self.images.elsewhere.iter().zip(&mut self.elsewhere) {
            add(&probabilities(&**model, self.images.classes, x), sums);
        }
        add(x, &mut self.mean);
        self.last = x.to_vec();
        self.draws += 1.0;
    }

    /// All scores; with the probabilities themselves, if these are to be compared.
    pub(super) fn values(mut self, keep: bool) -> Result<Values, Trouble> {
        let Images { classes, labels, .. } = self.images;
        let share = |sums: &mut Vec<f64>| sums.iter_mut().for_each(|p| *p /= self.draws);
        [&mut self.test, &mut self.mean].into_iter().for_each(share);
        self.elsewhere.iter_mut().for_each(share);
        let tables = [
            self.test.clone(),
            probabilities(&*self.images.test, *classes, &self.mean),
            probabilities(&*self.images.test, *classes, &self.last),
        ];
        let mut values = Values::new();
        for (view, table) in VIEWS.iter().zip(&tables) {
            let scores = scores(table, *classes, labels).map_err(trouble)?;
            for ((score, _), value) in SCORES.iter().zip(scores) {
                values.insert(format!("{score}{view}"), vec![value]);
            }
        }
        let said = Predictive::new(&self.test, *classes).map_err(trouble)?;
        let curve = said.reliability(labels, BINS).map_err(trouble)?;
        let counts = curve.iter().map(|bin| bin.count as f64).collect();
        let held = |v: f64| if v.is_nan() { 0.0 } else { v }; // an empty bin
        values.insert("bins".into(), counts);
        values.insert("confident".into(), curve.iter().map(|b| held(b.confidence)).collect());
        values.insert("right".into(), curve.iter().map(|b| held(b.accuracy)).collect());
        let above = said.accuracy_above(labels, &CREDIBILITIES).map_err(trouble)?;
        values.insert("above".into(), above.iter().map(|at| at.count as f64).collect());
        values.insert("right above".into(), above.iter().map(|at| held(at.accuracy)).collect());
        let known = said.entropies();
        values.insert("entropies".into(), heaps(&known, *classes));
        for ((name, _), table) in self.images.elsewhere.iter().zip(&self.elsewhere) {
            let strange = Predictive::new(table, *classes).map_err(trouble)?.entropies();
            let area = auc(&known, &strange).map_err(trouble)?;
            values.insert(format!("auroc {name}"), vec![area]);
            let (ours, theirs) = (heaps(&known, *classes), heaps(&strange, *classes));
            values.insert(format!("told {name}"), vec![told_apart(&ours, &theirs)]);
            values.insert(format!("entropies {name}"), theirs);
        }
        if keep {
            values.insert("probabilities".into(), self.test.iter().map(|p| short(*p)).collect());
        }
        if let Some(traces) = self.traces {
            values.insert("traces".into(), traces);
        }
        Ok(values)
    }
}

fn add(some: &[f64], sums: &mut [f64]) {
    sums.iter_mut().zip(some).for_each(|(sum, v)| *sum += v);
}

/// As many digits as are of use.
fn short(p: f64) -> f64 {
    (p * 1e6).round() / 1e6
}

fn trouble(error: PredictiveError) -> Trouble {
    Trouble::Other(error.to_string())
}

fn probabilities(model: &dyn Model, classes: usize, x: &[f64]) -> Vec<f64> {
    let mut all = vec![0.0; model.rows() * classes];
    if let Some(classifier) = model.classifier() {
        classifier.add_probabilities(x, 1.0, &mut all);
    }
    all
}

/// Accuracy in percent, calibration error, Brier score and nNLL.
fn scores(table: &[f64], classes: usize, labels: &[usize]) -> Result<[f64; 4], PredictiveError> {
    let table: Vec<f64> = table.iter().map(|p| p.max(LEAST)).collect();
    let said = Predictive::new(&table, classes)?;
    Ok([
        100.0 * said.accuracy(labels)?,
        said.calibration_error(labels, BINS)?,
        said.brier(labels)?,
        said.negative_log_likelihood(labels)?,
    ])
}

/// The shares of entropies by size.
fn heaps(entropies: &[f64], classes: usize) -> Vec<f64> {
    let most = (classes as f64).ln();
    let mut heaps = vec![0.0; HEAPS];
    for entropy in entropies {
        let at = (entropy / most * HEAPS as f64) as usize;
        heaps[at.min(HEAPS - 1)] += 1.0 / entropies.len() as f64;
    }
    heaps
}

/// The share of rows that the rule "of this kind where entropies like this are more frequent among
/// its rows" tells right, were there as many of one kind as of the other.
fn told_apart(ours: &[f64], theirs: &[f64]) -> f64 {
    ours.iter().zip(theirs).map(|(p, q)| p.max(*q)).sum::<f64>() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_by_the_more_frequent_entropy() {
        let most = 2f64.ln();
        let ours = heaps(&[0.0, 0.01 * most, 0.99 * most, most], 2);
        assert_eq!((ours[0], ours[HEAPS - 1]), (0.5, 0.5));
        let theirs = heaps(&[most, 0.99 * most, most, 0.0], 2);
        // (1/2 + 3/4) / 2
        assert_eq!(told_apart(&ours, &theirs), 0.625);
        assert_eq!(told_apart(&ours, &ours), 0.5);
    }

    #[test]
    fn what_is_thought_impossible_costs_much_but_not_everything() {
        let [accuracy, _, brier, nnll] = scores(&[1.0, 0.0, 0.25, 0.75], 2, &[1, 1]).unwrap();
        assert_eq!(accuracy, 50.0);
        assert!((brier - (2.0 + 0.125) / 2.0).abs() < 1e-11);
        assert!((nnll + (LEAST.ln() + 0.75f64.ln()) / 2.0).abs() < 1e-9);
    }
}

//! Count how often predictions are right, in counts that sites add up without sending rows.

use super::calibration::{AtLeast, Bin};
use super::log;
use super::predictive::{Predictive, PredictiveError, top};

/// How many predictions there are of some kind, and how many of them are right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// All of them.
    pub all: u64,
    /// Those whose class is the label.
    pub right: u64,
}

impl Count {
    fn add(&mut self, right: bool) {
        self.all += 1;
        self.right += u64::from(right);
    }

    fn merge(&mut self, other: Count) {
        self.all += other.all;
        self.right += other.right;
    }

    fn share(self) -> f64 {
        self.right as f64 / self.all as f64
    }
}

/// Everything that calibration, Brier score, log-likelihood and accuracy are computed from: a
/// site's own, or the sum of many.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// The predictions by their confidence: bin m of M over ((m - 1)/M, m/M], with the sum of
    /// confidences.
    pub bins: Vec<(Count, f64)>,
    /// The predictions at least as confident as a threshold.
    pub at_least: Vec<(f64, Count)>,
    /// All predictions.
    pub total: Count,
    /// The sum of Brier scores.
    pub brier: f64,
    /// The sum of `-log p(label)`.
    pub minus_log_likelihood: f64,
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(bins: usize, thresholds: &[f64]) -> Self {
        let at_least = thresholds.iter().map(|threshold| (*threshold, Count::default())).collect();
        Tally {
            bins: vec![(Count::default(), 0.0); bins],
            at_least,
            total: Count::default(),
            brier: 0.0,
            minus_log_likelihood: 0.0,
        }
    }

    /// Count predictions with their labels.
    pub fn count(
        &mut self,
        predictive: &Predictive,
        labels: &[usize],
    ) -> Result<(), PredictiveError> {
        predictive.check(labels)?;
        if self.bins.is_empty() {
            return Err(PredictiveError::Empty);
        }
        let places = self.bins.len();
        for (row, &label) in predictive.rows().zip(labels) {
            let (class, confidence) = top(row);
            let right = class == label;
            let place = ((confidence * places as f64).ceil() as usize).clamp(1, places) - 1;
            self.bins[place].0.add(right);
            self.bins[place].1 += confidence;
            self.at_least
                .iter_mut()
                .filter(|(threshold, _)| confidence >= *threshold)
                .for_each(|(_, count)| count.add(right));
            self.total.add(right);
            let error = |(class, p): (usize, &f64)| {
                if class == label { (p - 1.0) * (p - 1.0) } else { p * p }
            };
            self.brier += row.iter().enumerate().map(error).sum::<f64>();
            self.minus_log_likelihood -= log(row[label]);
        }
        Ok(())
    }

    /// Add what another site counted, with the same bins and thresholds; whether they are the same.
    pub fn merge(&mut self, other: &Tally) -> bool {
        let thresholds = |tally: &Tally| {
            tally.at_least.iter().map(|(threshold, _)| threshold.to_bits()).collect::<Vec<_>>()
        };
        if self.bins.len() != other.bins.len() || thresholds(self) != thresholds(other) {
            return false;
        }
        for (own, theirs) in self.bins.iter_mut().zip(&other.bins) {
            own.0.merge(theirs.0);
            own.1 += theirs.1;
        }
        self.at_least
            .iter_mut()
            .zip(&other.at_least)
            .for_each(|(own, theirs)| own.1.merge(theirs.1));
        self.total.merge(other.total);
        self.brier += other.brier;
        self.minus_log_likelihood += other.minus_log_likelihood;
        true
    }

    /// How many numbers a site sends for this.
    pub fn numbers(&self) -> usize {
        3 * self.bins.len() + 2 * self.at_least.len() + 4
    }

    /// The reliability curve.
    pub fn curve(&self) -> Vec<Bin> {
        let width = 1.0 / self.bins.len() as f64;
        let bin = |(m, (count, confidence)): (usize, &(Count, f64))| Bin {
            centre: (m as f64 + 0.5) * width,
            confidence: confidence / count.all as f64,
            accuracy: count.share(),
            count: count.all as usize,
        };
        self.bins.iter().enumerate().map(bin).collect()
    }

    /// Expected calibration error; NaN if nothing was counted.
    pub fn calibration_error(&self) -> f64 {
        let apart = |(count, confidence): &(Count, f64)| (count.right as f64 - confidence).abs();
        self.bins.iter().map(apart).sum::<f64>() / self.total.all as f64
    }

    /// Accuracy among the predictions of at least each threshold.
    pub fn above(&self) -> Vec<AtLeast> {
        let at_least = |(threshold, count): &(f64, Count)| AtLeast {
            threshold: *threshold,
            accuracy: count.share(),
            count: count.all as usize,
        };
        self.at_least.iter().map(at_least).collect()
    }

    /// Share of the predictions that are right; NaN if nothing was counted.
    pub fn accuracy(&self) -> f64 {
        self.total.share()
    }

    /// Mean Brier score.
    pub fn mean_brier(&self) -> f64 {
        self.brier / self.total.all as f64
    }

    /// Normalised negative log-likelihood.
    pub fn mean_minus_log_likelihood(&self) -> f64 {
        self.minus_log_likelihood / self.total.all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [f64; 12] = [0.7, 0.2, 0.1, 0.3, 0.6, 0.1, 0.25, 0.25, 0.5, 0.4, 0.4, 0.2];
    const LABELS: [usize; 4] = [0, 0, 2, 1];

    #[test]
    fn the_counts_of_sites_add_up_to_the_scores_of_all_rows() {
        let thresholds = [0.0, 0.5, 0.65];
        let whole = Predictive::new(&TABLE, 3).unwrap();
        let mut sum = Tally::new(4, &thresholds);
        for (rows, labels) in [(&TABLE[..3], &LABELS[..1]), (&TABLE[3..], &LABELS[1..])] {
            let mut site = Tally::new(4, &thresholds);
            site.count(&Predictive::new(rows, 3).unwrap(), labels).unwrap();
            assert!(sum.merge(&site));
        }
        let close = |a: f64, b: f64| (a - b).abs() < 1e-15;
        assert_eq!(sum.accuracy(), whole.accuracy(&LABELS).unwrap());
        assert!(close(sum.mean_brier(), whole.brier(&LABELS).unwrap()));
        assert!(close(
            sum.mean_minus_log_likelihood(),
            whole.negative_log_likelihood(&LABELS).unwrap()
        ));
        assert!(close(sum.calibration_error(), whole.calibration_error(&LABELS, 4).unwrap()));
        assert_eq!(sum.above(), whole.accuracy_above(&LABELS, &thresholds).unwrap());
        assert_eq!(sum.curve().iter().map(|bin| bin.count).collect::<Vec<_>>(), [0, 2, 2, 0]);
        assert_eq!(sum.numbers(), 3 * 4 + 2 * 3 + 4);
    }

    #[test]
    fn tables_of_another_shape_are_not_added() {
        let mut tally = Tally::new(4, &[0.5]);
        for other in [Tally::new(5, &[0.5]), Tally::new(4, &[0.6]), Tally::new(4, &[])] {
            assert!(!tally.merge(&other));
        }
        assert_eq!(tally, Tally::new(4, &[0.5]));
        assert!(tally.accuracy().is_nan() && tally.calibration_error().is_nan());
    }
}

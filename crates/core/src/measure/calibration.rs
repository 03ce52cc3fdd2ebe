//! Compare how often predictions are right with how sure they are.
//!
//! Definitions: QLSD S5.3 and Figure S6, FALD sec. 10.2. Confidence is the probability of the class
//! predicted.

use super::predictive::{Predictive, PredictiveError};
use super::tally::Tally;

/// The bins of the expected calibration error unless another number is asked for.
pub const CALIBRATION_BINS: usize = 15;

/// The predictions whose confidence falls into one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    /// Middle of the bin.
    pub centre: f64,
    /// Mean confidence of its predictions; NaN if it has none.
    pub confidence: f64,
    /// Share of its predictions that are right; NaN if it has none.
    pub accuracy: f64,
    /// How many predictions it has.
    pub count: usize,
}

/// The predictions at least as confident as a threshold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtLeast {
    /// The threshold.
    pub threshold: f64,
    /// Share of them that are right; NaN if there are none.
    pub accuracy: f64,
    /// How many there are.
    pub count: usize,
}

impl Predictive<'_> {
    /// Expected calibration error: how far accuracy and confidence are apart, on average over
    /// equally wide bins weighted by their predictions.
    pub fn calibration_error(&self, labels: &[usize], bins: usize) -> Result<f64, PredictiveError> {
        Ok(self.counted(labels, bins, &[])?.calibration_error())
    }

    /// The reliability curve: accuracy against confidence in equally wide bins, bin m over ((m -
    /// 1)/M, m/M].
    pub fn reliability(&self, labels: &[usize], bins: usize) -> Result<Vec<Bin>, PredictiveError> {
        Ok(self.counted(labels, bins, &[])?.curve())
    }

    /// Accuracy among the predictions of at least each credibility, for each of the thresholds.
    pub fn accuracy_above(
        &self,
        labels: &[usize],
        thresholds: &[f64],
    ) -> Result<Vec<AtLeast>, PredictiveError> {
        Ok(self.counted(labels, 1, thresholds)?.above())
    }

    fn counted(
        &self,
        labels: &[usize],
        bins: usize,
        thresholds: &[f64],
    ) -> Result<Tally, PredictiveError> {
        let mut tally = Tally::new(bins, thresholds);
        tally.count(self, labels)?;
        Ok(tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [f64; 12] = [0.7, 0.2, 0.1, 0.3, 0.6, 0.1, 0.25, 0.25, 0.5, 0.4, 0.4, 0.2];
    const LABELS: [usize; 4] = [0, 0, 2, 1];

    fn table() -> Predictive<'static> {
        Predictive::new(&TABLE, 3).unwrap()
    }

    #[test]
    fn calibration_by_hand() {
        // Confidences 0.7 right, 0.6 wrong, 0.5 right, 0.4 wrong. In two bins: (0, 0.5] has 0.5 and
        // 0.4, (0.5, 1] has 0.7 and 0.6.
        let curve = table().reliability(&LABELS, 2).unwrap();
        assert_eq!((curve[0].centre, curve[0].accuracy, curve[0].count), (0.25, 0.5, 2));
        assert_eq!((curve[1].centre, curve[1].accuracy, curve[1].count), (0.75, 0.5, 2));
        assert!(
            (curve[0].confidence - 0.45).abs() < 1e-15
                && (curve[1].confidence - 0.65).abs() < 1e-15
        );
        assert!(
            (table().calibration_error(&LABELS, 2).unwrap() - (0.05 + 0.15) / 2.0).abs() < 1e-15
        );
        // In fifteen each is alone in its bin, and empty bins count nothing.
        assert!(
            (table().calibration_error(&LABELS, CALIBRATION_BINS).unwrap()
                - (0.3 + 0.6 + 0.5 + 0.4) / 4.0)
                .abs()
                < 1e-15
        );
        assert!(table().reliability(&LABELS, CALIBRATION_BINS).unwrap()[0].accuracy.is_nan());
        let sure = Predictive::new(&[0.0, 1.0], 2).unwrap();
        assert_eq!(sure.reliability(&[1], 4).unwrap()[3].count, 1);
    }

    #[test]
    fn accuracy_rises_with_the_credibility_asked_for() {
        let curve = table().accuracy_above(&LABELS, &[0.0, 0.5, 0.65, 0.9]).unwrap();
        assert_eq!(curve.iter().map(|at| at.count).collect::<Vec<_>>(), [4, 3, 1, 0]);
        assert_eq!(curve[0].accuracy, 0.5);
        assert!((curve[1].accuracy - 2.0 / 3.0).abs() < 1e-15);
        assert_eq!(curve[2].accuracy, 1.0);
        assert!(curve[3].accuracy.is_nan());
    }

    #[test]
    fn labels_and_bins_are_checked() {
        assert_eq!(table().reliability(&LABELS, 0), Err(PredictiveError::Empty));
        assert_eq!(
            table().calibration_error(&[0], 2),
            Err(PredictiveError::Size { given: 1, needed: 4 })
        );
        assert_eq!(
            table().accuracy_above(&[0, 0, 2, 3], &[0.5]),
            Err(PredictiveError::Label { row: 3, label: 3, classes: 3 })
        );
    }
}

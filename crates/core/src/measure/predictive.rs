//! Score predictive distributions over classes: accuracy, probability of the truth, uncertainty on
//! inputs unlike any seen before.
//!
//! Definitions: QLSD S5.3, FALD sec. 10.2; the predictive entropy has the minus sign that QLSD
//! lost. The class predicted is the most probable, the first of several equal ones.

use super::{log, ranks::average_ranks, summary::mean};

/// Why predictions cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PredictiveError {
    /// There is nothing to judge.
    #[error("there are no predictions, classes, bins or scores")]
    Empty,
    /// The numbers do not make up whole rows.
    #[error("{numbers} probabilities are no whole number of rows of {classes} classes")]
    Ragged {
        /// Probabilities given.
        numbers: usize,
        /// Classes a row.
        classes: usize,
    },
    /// An entry is no probability.
    #[error("row {row} gives class {class} the probability {value}")]
    NotAProbability {
        /// The row.
        row: usize,
        /// The class.
        class: usize,
        /// The entry.
        value: f64,
    },
    /// A row is no distribution.
    #[error("the probabilities of row {row} sum to {sum}")]
    Sum {
        /// The row.
        row: usize,
        /// Its sum.
        sum: f64,
    },
    /// The labels or the other table do not match the rows.
    #[error("{given} were given where {needed} are needed")]
    Size {
        /// Labels, rows or classes given.
        given: usize,
        /// Labels, rows or classes needed.
        needed: usize,
    },
    /// A label is no class.
    #[error("the label of row {row} is {label}, of {classes} classes")]
    Label {
        /// The row.
        row: usize,
        /// Its label.
        label: usize,
        /// How many classes there are.
        classes: usize,
    },
}

/// A table of predictive probabilities: one row a data point, one column a class.
#[derive(Clone, Copy, Debug)]
pub struct Predictive<'a> {
    probabilities: &'a [f64],
    classes: usize,
}

impl<'a> Predictive<'a> {
    /// Probabilities row by row. Rows must sum to 1 within 1e-4, which leaves room for tables made
    /// in single precision.
    pub fn new(probabilities: &'a [f64], classes: usize) -> Result<Self, PredictiveError> {
        if probabilities.is_empty() || classes == 0 {
            return Err(PredictiveError::Empty);
        }
        if !probabilities.len().is_multiple_of(classes) {
            return Err(PredictiveError::Ragged { numbers: probabilities.len(), classes });
        }
        for (row, entries) in probabilities.chunks_exact(classes).enumerate() {
            if let Some(class) =
                entries.iter().position(|entry| !(0.0..=1.0 + 1e-6).contains(entry))
            {
                return Err(PredictiveError::NotAProbability { row, class, value: entries[class] });
            }
            let sum: f64 = entries.iter().sum();
            if (sum - 1.0).abs() > 1e-4 {
                return Err(PredictiveError::Sum { row, sum });
            }
        }
        Ok(Predictive { probabilities, classes })
    }

    /// The probabilities of each data point in turn.
    pub fn rows(&self) -> std::slice::ChunksExact<'a, f64> {
        self.probabilities.chunks_exact(self.classes)
    }

    /// The most probable class of each data point.
    pub fn predictions(&self) -> Vec<usize> {
        self.rows().map(|row| top(row).0).collect()
    }

    /// Share of the predictions that are right.
    pub fn accuracy(&self, labels: &[usize]) -> Result<f64, PredictiveError> {
        self.average(labels, |row, label| if top(row).0 == label { 1.0 } else { 0.0 })
    }

    /// Share of the data points on which both tables predict the same class.
    pub fn agreement(&self, other: &Predictive) -> Result<f64, PredictiveError> {
        self.same_shape(other)?;
        let same = self
            .rows()
            .zip(other.rows())
            .filter(|(ours, theirs)| top(ours).0 == top(theirs).0)
            .count();
        Ok(same as f64 / self.rows().len() as f64)
    }

    /// Mean over the data points of the total variation distance between both tables'
    /// distributions.
    pub fn total_variation(&self, other: &Predictive) -> Result<f64, PredictiveError> {
        self.same_shape(other)?;
        let apart: f64 =
            self.probabilities.iter().zip(other.probabilities).map(|(p, q)| (p - q).abs()).sum();
        Ok(0.5 * apart / self.rows().len() as f64)
    }

    /// Brier score: squared error of the probabilities, summed over classes, averaged over data
    /// points; from 0 to 2.
    pub fn brier(&self, labels: &[usize]) -> Result<f64, PredictiveError> {
        self.average(labels, |row, label| {
            let error = |(class, p): (usize, &f64)| {
                if class == label { (p - 1.0) * (p - 1.0) } else { p * p }
            };
            row.iter().enumerate().map(error).sum()
        })
    }

    /// Normalised negative log-likelihood: the mean of `-log p(label)`; infinite where a label was
    /// thought impossible.
    pub fn negative_log_likelihood(&self, labels: &[usize]) -> Result<f64, PredictiveError> {
        self.average(labels, |row, label| -log(row[label]))
    }

    /// Predictive entropy of each data point, in nats.
    pub fn entropies(&self) -> Vec<f64> {
        let term = |&p: &f64| if p > 0.0 { -p * log(p) } else { 0.0 };
        self.rows().map(|row| row.iter().map(term).sum()).collect()
    }

    /// How well predictive entropy tells data of another kind from this kind: the area under the
    /// ROC curve, 1/2 for a blind guess.
    pub fn out_of_distribution_auc(&self, elsewhere: &Predictive) -> f64 {
        auc(&self.entropies(), &elsewhere.entropies()).unwrap_or(f64::NAN)
    }

    fn average(
        &self,
        labels: &[usize],
        score: impl Fn(&[f64], usize) -> f64,
    ) -> Result<f64, PredictiveError> {
        self.check(labels)?;
        let scores: Vec<f64> =
            self.rows().zip(labels).map(|(row, &label)| score(row, label)).collect();
        Ok(mean(&scores))
    }

    pub(super) fn check(&self, labels: &[usize]) -> Result<(), PredictiveError> {
        if labels.len() != self.rows().len() {
            return Err(PredictiveError::Size { given: labels.len(), needed: self.rows().len() });
        }
        match labels.iter().position(|&label| label >= self.classes) {
            Some(row) => {
                Err(PredictiveError::Label { row, label: labels[row], classes: self.classes })
            }
            None => Ok(()),
        }
    }

    fn same_shape(&self, other: &Predictive) -> Result<(), PredictiveError> {
        for (given, needed) in
            [(other.classes, self.classes), (other.rows().len(), self.rows().len())]
        {
            if given != needed {
                return Err(PredictiveError::Size { given, needed });
            }
        }
        Ok(())
    }
}

/// The first most probable class and its probability.
pub(super) fn top(row: &[f64]) -> (usize, f64) {
    let better =
        |best: (usize, f64), (class, &p): (usize, &f64)| if p > best.1 { (class, p) } else { best };
    row.iter().enumerate().fold((0, row[0]), better)
}

/// Area under the ROC curve: the chance that a score of `positives` exceeds one of `negatives`,
/// ties counting half; NaN if a score is.
pub fn auc(negatives: &[f64], positives: &[f64]) -> Result<f64, PredictiveError> {
    if negatives.is_empty() || positives.is_empty() {
        return Err(PredictiveError::Empty);
    }
    if negatives.iter().chain(positives).any(|score| score.is_nan()) {
        return Ok(f64::NAN);
    }
    let ranks = average_ranks(&[negatives, positives].concat());
    let (n, p) = (negatives.len() as f64, positives.len() as f64);
    let rank_sum: f64 = ranks[negatives.len()..].iter().sum();
    Ok((rank_sum - p * (p + 1.0) / 2.0) / (n * p)) // Mann and Whitney's U
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
    fn accuracy_counts_the_first_of_equal_classes() {
        assert_eq!(table().predictions(), [0, 1, 2, 0]);
        assert_eq!(table().accuracy(&LABELS).unwrap(), 0.5);
    }

    #[test]
    fn two_tables_are_compared_row_by_row() {
        let other = [0.5, 0.4, 0.1, 0.6, 0.3, 0.1, 0.25, 0.25, 0.5, 0.1, 0.4, 0.5];
        let other = Predictive::new(&other, 3).unwrap();
        assert_eq!(table().agreement(&other).unwrap(), 0.5);
        assert!(
            (table().total_variation(&other).unwrap() - (0.2 + 0.3 + 0.0 + 0.3) / 4.0).abs()
                < 1e-15
        );
        assert_eq!(table().total_variation(&table()).unwrap(), 0.0);
    }

    #[test]
    fn proper_scores_by_hand() {
        let brier = (0.09 + 0.04 + 0.01)
            + (0.49 + 0.36 + 0.01)
            + (0.0625 + 0.0625 + 0.25)
            + (0.16 + 0.36 + 0.04);
        assert!((table().brier(&LABELS).unwrap() - brier / 4.0).abs() < 1e-15);
        let likelihood: f64 = 0.7 * 0.3 * 0.5 * 0.4;
        assert!(
            (table().negative_log_likelihood(&LABELS).unwrap() + likelihood.ln() / 4.0).abs()
                < 1e-15
        );
        assert_eq!(
            Predictive::new(&[0.0, 1.0], 2).unwrap().negative_log_likelihood(&[0]).unwrap(),
            f64::INFINITY
        );
    }

    #[test]
    fn entropy_is_positive_and_largest_when_nothing_is_known() {
        let entropies = Predictive::new(&[0.5, 0.5, 1.0, 0.0, 0.25, 0.75], 2).unwrap().entropies();
        assert!((entropies[0] - 2f64.ln()).abs() < 1e-15);
        assert_eq!(entropies[1], 0.0);
        assert!((entropies[2] - (0.25 * 4f64.ln() + 0.75 * (4.0f64 / 3.0).ln())).abs() < 1e-15);
    }

    #[test]
    fn what_was_never_seen_should_be_uncertain() {
        // Pairs (negative, positive): 1 < 2, 1 < 3, 2 = 2 counts half, 2 < 3.
        assert_eq!(auc(&[1.0, 2.0], &[2.0, 3.0]).unwrap(), 3.5 / 4.0);
        assert_eq!(auc(&[5.0], &[5.0, 5.0]).unwrap(), 0.5);
        assert_eq!(auc(&[], &[1.0]), Err(PredictiveError::Empty));
        assert!(auc(&[1.0], &[f64::NAN]).unwrap().is_nan());
        let (known, unknown) = (
            Predictive::new(&[0.9, 0.1, 0.2, 0.8], 2).unwrap(),
            Predictive::new(&[0.5, 0.5, 0.15, 0.85], 2).unwrap(),
        );
        // 0.15 is surer than 0.2, less sure than 0.1
        assert_eq!(known.out_of_distribution_auc(&unknown), 0.75);
    }

    #[test]
    fn what_is_no_table_of_distributions_is_refused() {
        assert_eq!(Predictive::new(&[], 2).unwrap_err(), PredictiveError::Empty);
        assert_eq!(Predictive::new(&[1.0], 0).unwrap_err(), PredictiveError::Empty);
        assert_eq!(
            Predictive::new(&[1.0; 3], 2).unwrap_err(),
            PredictiveError::Ragged { numbers: 3, classes: 2 }
        );
        assert_eq!(
            Predictive::new(&[1.0, 0.0, 0.5, 0.4], 2).unwrap_err(),
            PredictiveError::Sum { row: 1, sum: 0.9 }
        );
        assert!(matches!(
            Predictive::new(&[f64::NAN, 1.0], 2),
            Err(PredictiveError::NotAProbability { row: 0, class: 0, .. })
        ));
        assert!(matches!(
            Predictive::new(&[1.2, -0.2], 2),
            Err(PredictiveError::NotAProbability { row: 0, class: 0, .. })
        ));
        assert_eq!(table().accuracy(&[0, 1]), Err(PredictiveError::Size { given: 2, needed: 4 }));
        assert_eq!(
            table().brier(&[0, 1, 3, 0]),
            Err(PredictiveError::Label { row: 2, label: 3, classes: 3 })
        );
        let narrow = Predictive::new(&[1.0; 4], 1).unwrap();
        assert_eq!(table().agreement(&narrow), Err(PredictiveError::Size { given: 1, needed: 3 }));
    }
}

//! Ask how often the posterior's predictions are right: every site counts on its own rows, and the
//! counts are added.

use std::sync::Arc;

use consilience_core::measure::{CALIBRATION_BINS, Predictive, Tally};
use consilience_core::model::{Classifier, Model};
use rayon::prelude::*;

use crate::draws::Draws;

/// The most draws that predictions are averaged over: more would not change a digit that is shown.
const MOST_DRAWS: usize = 1000;
/// With fewer draws an average is not worth showing.
const LEAST_DRAWS: usize = 100;
/// The most multiplications that this may cost: seconds, not minutes.
const MOST_WORK: u64 = 5_000_000_000;

/// Which rows were predicted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Judged {
    /// Those that the posterior was fitted to.
    Fitted,
    /// Rows that it never saw.
    HeldOut,
}

/// How predictions compare with labels, site by site.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// Which rows.
    pub judged: Judged,
    /// How many classes there are.
    pub classes: usize,
    /// How many draws the predictions are averages over.
    pub draws: usize,
    /// What each site would send: counts and sums, no row.
    pub sites: Vec<Tally>,
}

impl Calibration {
    /// Judge the predictions of held-out rows where there are any, else of the fitted ones. `None`
    /// where the model has no labels; `Err` says why it was left out.
    pub fn new(
        fitted: &[Arc<dyn Model>],
        held_out: Option<&[Arc<dyn Model>]>,
        draws: &Draws,
    ) -> Result<Option<Self>, String> {
        let (judged, sites) =
            held_out.map_or((Judged::Fitted, fitted), |rows| (Judged::HeldOut, rows));
        let Some(classifiers) =
            sites.iter().map(|site| site.classifier()).collect::<Option<Vec<_>>>()
        else {
            return Ok(None);
        };
        let all = draws.chains() * draws.length();
        let Some(classes) = classifiers.first().map(|c| c.classes()).filter(|_| all > 0) else {
            return Ok(None);
        };
        let rows: usize = sites.iter().map(|site| site.rows()).sum();
        let affordable = MOST_WORK / (rows.max(1) * draws.dim().max(1)) as u64;
        if affordable < LEAST_DRAWS.min(all) as u64 {
            return Err(format!(
                "calibration was not computed: predictions of {rows} rows by {LEAST_DRAWS} draws \
                 are too much work"
            ));
        }
        let every = all.div_ceil(MOST_DRAWS.min(affordable as usize));
        let used: Vec<&[f64]> = draws.rows().step_by(every).collect();
        let counted = |(classifier, site): (&&dyn Classifier, &Arc<dyn Model>)| {
            count(*classifier, site.rows(), &used)
        };
        let sites = classifiers
            .par_iter()
            .zip(sites)
            .map(counted)
            .collect::<Result<Vec<Tally>, String>>()?;
        Ok(Some(Calibration { judged, classes, draws: used.len(), sites }))
    }

    /// All sites together.
    pub fn total(&self) -> Tally {
        let mut total = empty();
        for site in &self.sites {
            total.merge(site);
        }
        total
    }
}

/// Nothing counted yet: fifteen bins, and the credibilities 0, 0.05, ..., 0.95.
fn empty() -> Tally {
    let thresholds: Vec<f64> = (0..20).map(|k| f64::from(k) / 20.0).collect();
    Tally::new(CALIBRATION_BINS, &thresholds)
}

fn count(classifier: &dyn Classifier, rows: usize, draws: &[&[f64]]) -> Result<Tally, String> {
    let mut tally = empty();
    if rows == 0 {
        return Ok(tally);
    }
    let mut probabilities = vec![0.0; rows * classifier.classes()];
    for draw in draws {
        classifier.add_probabilities(draw, 1.0 / draws.len() as f64, &mut probabilities);
    }
    let labels: Vec<usize> = (0..rows).map(|row| classifier.label(row)).collect();
    let wrong = |e: consilience_core::measure::PredictiveError| {
        format!("calibration was not computed: {e}")
    };
    tally
        .count(&Predictive::new(&probabilities, classifier.classes()).map_err(wrong)?, &labels)
        .map_err(wrong)?;
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use consilience_core::model::{Design, Family, Gaussian, Glm, Softmax};

    use super::*;

    fn logistic(features: &[f64], labels: &[f64]) -> Arc<dyn Model> {
        Arc::new(
            Glm::new(
                Design::dense(features.to_vec(), 1).unwrap(),
                labels.to_vec(),
                Family::Bernoulli,
            )
            .unwrap(),
        )
    }

    #[test]
    fn averages_over_draws_are_counted_by_hand() {
        let sigmoid = |t: f64| 1.0 / (1.0 + (-t).exp());
        let sites = [logistic(&[1.0, -1.0], &[1.0, 1.0]), logistic(&[2.0], &[1.0])];
        let draws = Draws::from_chains(vec![vec![1.0], vec![3.0]], 1);
        let found = Calibration::new(&sites, None, &draws).unwrap().unwrap();
        assert_eq!(
            (found.judged, found.classes, found.draws, found.sites.len()),
            (Judged::Fitted, 2, 2, 2)
        );
        // Rows 1 and 3 are right; row 2 is as confident as row 1, and wrong.
        let (first, third) =
            (0.5 * (sigmoid(1.0) + sigmoid(3.0)), 0.5 * (sigmoid(2.0) + sigmoid(6.0)));
        let total = found.total();
        assert_eq!((total.total.all, total.total.right), (3, 2));
        assert_eq!((found.sites[0].total.all, found.sites[0].total.right), (2, 1));
        let nll = -(first.ln() + (1.0 - first).ln() + third.ln()) / 3.0;
        assert!((total.mean_minus_log_likelihood() - nll).abs() < 1e-12);
        let brier = 2.0 * ((1.0 - first).powi(2) + first.powi(2) + (1.0 - third).powi(2)) / 3.0;
        assert!((total.mean_brier() - brier).abs() < 1e-12);
        let held_out = [logistic(&[0.5], &[0.0])];
        let found = Calibration::new(&sites, Some(&held_out), &draws).unwrap().unwrap();
        assert_eq!(
            (found.judged, found.total().total.all, found.total().total.right),
            (Judged::HeldOut, 1, 0)
        );
    }

    #[test]
    fn models_without_labels_and_runs_without_draws_have_none() {
        let gaussian: [Arc<dyn Model>; 1] =
            [Arc::new(Gaussian::new(vec![0.0], vec![1.0]).unwrap())];
        let draws = Draws::from_chains(vec![vec![1.0]], 1);
        assert_eq!(Calibration::new(&gaussian, None, &draws), Ok(None));
        let site = [logistic(&[1.0], &[1.0])];
        assert_eq!(Calibration::new(&site, None, &Draws::new(1)), Ok(None));
        let wrong = Draws::from_chains(vec![vec![f64::NAN]], 1);
        assert!(Calibration::new(&site, None, &wrong).unwrap_err().contains("probability NaN"));
        let softmax: [Arc<dyn Model>; 1] =
            [Arc::new(Softmax::new(Design::dense(vec![1.0], 1).unwrap(), vec![2], 3).unwrap())];
        let found =
            Calibration::new(&softmax, None, &Draws::from_chains(vec![vec![0.0, 0.0, 1.0]], 3))
                .unwrap()
                .unwrap();
        assert_eq!((found.classes, found.total().accuracy()), (3, 1.0));
    }
}

//! Ask how often the posterior's predictions are right: every site counts on its own rows, and the
//! counts are added.

use std::sync::Arc;

use consilience_core::measure::{CALIBRATION_BINS, Predictive, PredictiveError, Tally, auc};
use consilience_core::model::{Classifier, Model};
use consilience_core::simd::ln;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::draws::Draws;

/// The most draws that predictions are averaged over: more would not change a digit that is shown.
const MOST_DRAWS: usize = 1000;
/// With fewer draws an average is not worth showing.
const LEAST_DRAWS: usize = 100;
/// The most multiplications that this may cost: seconds, not minutes.
const MOST_WORK: u64 = 5_000_000_000;
/// The same for nets, whose rows go through registers eight at a time.
const MOST_NET_WORK: u64 = 1_000_000_000_000;
/// How many draws predict at once, before they are added in their order.
const AT_ONCE: usize = 16;
/// How many images are kept, and how many classes are said of each.
const MOST_IMAGES: usize = 12;
const MOST_SAID: usize = 3;
/// In how many bins entropies are counted.
const ENTROPY_BINS: usize = 30;

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
    /// The same of single parameters, all sites together: what averaging over draws is worth.
    pub points: Vec<Point>,
    /// How sure predictions are of rows of another kind, where the config names such.
    pub elsewhere: Option<Entropies>,
    /// Held-out images of which predictions are the least sure, where rows are images.
    pub uncertain: Vec<UncertainImage>,
}

/// An image of whose class little is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UncertainImage {
    /// Which of the rows held out.
    pub row: usize,
    /// Its class.
    pub label: usize,
    /// Height and width.
    pub size: (usize, usize),
    /// Pixel by pixel, from 0 to 255, the mean of the channels.
    pub pixels: Vec<u8>,
    /// The most probable classes, with their probabilities.
    pub said: Vec<(usize, f64)>,
}

/// Predictions by one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which.
    pub name: String,
    /// How they compare with labels.
    pub tally: Tally,
}

/// How uncertain predictions are of rows like those that were fitted, and of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Entropies {
    /// What the other rows are.
    pub name: String,
    /// How many rows have an entropy in each of as many equal parts of 0 to log(classes).
    pub here: Vec<u64>,
    /// The same of the other rows.
    pub there: Vec<u64>,
    /// The chance that a row of the other kind has the larger entropy.
    pub auc: f64,
}

/// How many multiplications the predictions of one row cost, and how many are affordable.
fn work(site: &dyn Model) -> (u64, u64) {
    match site.net() {
        Some(net) => (net.plan().flops() as u64 / 2, MOST_NET_WORK),
        None => (site.dim() as u64, MOST_WORK),
    }
}

/// How many draws can be afforded on so many rows.
pub(crate) fn affordable(site: &dyn Model, rows: usize) -> usize {
    let (each, most) = work(site);
    (most / (rows.max(1) as u64 * each.max(1))) as usize
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
        let rows_of: Vec<usize> = sites.iter().map(|site| site.rows()).collect();
        let Some(classes) = classifiers.first().map(|c| c.classes()).filter(|_| all > 0) else {
            return Ok(None);
        };
        let rows: usize = sites.iter().map(|site| site.rows()).sum();
        let affordable = sites.first().map_or(0, |site| affordable(&**site, rows));
        if affordable < LEAST_DRAWS.min(all) {
            return Err(format!(
                "calibration was not computed: predictions of {rows} rows by {LEAST_DRAWS} draws \
                 are too much work"
            ));
        }
        let every = all.div_ceil(MOST_DRAWS.min(affordable));
        let used: Vec<&[f64]> = draws.rows().step_by(every).collect();
        let counted = |(classifier, site): (&&dyn Classifier, &Arc<dyn Model>)| {
            count(*classifier, site.rows(), &used)
        };
        let counts = classifiers
            .par_iter()
            .zip(sites)
            .map(counted)
            .collect::<Result<Vec<(Tally, Vec<f64>)>, String>>()?;
        let uncertain = match (judged, sites, &counts[..]) {
            (Judged::HeldOut, [site], [(_, said)]) => uncertain(&**site, said, classes),
            _ => Vec::new(),
        };
        Ok(Some(Calibration {
            judged,
            classes,
            draws: used.len(),
            sites: counts.into_iter().map(|(tally, _)| tally).collect(),
            points: points(&classifiers, &rows_of, draws)?,
            elsewhere: None,
            uncertain,
        }))
    }

    /// Add how uncertain the same draws are of these rows of another kind, and of those held out.
    pub fn look_elsewhere(
        &mut self,
        held_out: &Arc<dyn Model>,
        (name, others): (&str, &Arc<dyn Model>),
        draws: &Draws,
    ) -> Result<(), String> {
        let all = draws.chains() * draws.length();
        let used: Vec<&[f64]> = draws.rows().step_by(all.div_ceil(self.draws.max(1))).collect();
        let entropies = |site: &Arc<dyn Model>| -> Result<Vec<f64>, String> {
            let classifier = site.classifier().ok_or("the model has no classes")?;
            let said = averaged(classifier, site.rows(), &used);
            Ok(Predictive::new(&said, classifier.classes()).map_err(wrong)?.entropies())
        };
        let (here, there) = (entropies(held_out)?, entropies(others)?);
        let auc = auc(&here, &there).map_err(wrong)?;
        let (here, there) = (binned(&here, self.classes), binned(&there, self.classes));
        self.elsewhere = Some(Entropies { name: name.into(), here, there, auc });
        Ok(())
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

/// How many of these lie in each part of 0 to log(classes).
fn binned(entropies: &[f64], classes: usize) -> Vec<u64> {
    let most = ln(classes as f64);
    let mut counts = vec![0; ENTROPY_BINS];
    for entropy in entropies {
        let bin = (entropy / most * ENTROPY_BINS as f64) as usize;
        counts[bin.min(ENTROPY_BINS - 1)] += 1;
    }
    counts
}

/// The mean of a chain's draws, and its last draw, as point estimates.
fn points(
    classifiers: &[&dyn Classifier],
    rows: &[usize],
    draws: &Draws,
) -> Result<Vec<Point>, String> {
    let chain: Vec<&[f64]> = draws.rows().take(draws.length()).collect();
    let Some(last) = chain.last() else { return Ok(Vec::new()) };
    let mut mean = vec![0.0; draws.dim()];
    for draw in &chain {
        mean.iter_mut().zip(*draw).for_each(|(mean, x)| *mean += x / chain.len() as f64);
    }
    let named = [("the mean of the parameters of one chain", &mean[..]), ("one draw", last)];
    let point = |(name, x): (&str, &[f64])| {
        let mut tally = empty();
        for (classifier, rows) in classifiers.iter().zip(rows) {
            tally.merge(&count(*classifier, *rows, &[x])?.0);
        }
        Ok(Point { name: name.into(), tally })
    };
    named.into_iter().map(point).collect()
}

fn wrong(error: PredictiveError) -> String {
    format!("calibration was not computed: {error}")
}

/// Probabilities of every row and class, averaged over draws. Draws are evaluated on all threads
/// and added in their order.
pub(crate) fn averaged(classifier: &dyn Classifier, rows: usize, draws: &[&[f64]]) -> Vec<f64> {
    let size = rows * classifier.classes();
    let mut mean = vec![0.0; size];
    for some in draws.chunks(AT_ONCE) {
        let said = |draw: &&[f64]| {
            let mut out = vec![0.0; size];
            classifier.add_probabilities(draw, 1.0 / draws.len() as f64, &mut out);
            out
        };
        let each: Vec<Vec<f64>> = some.par_iter().map(said).collect();
        for one in each {
            mean.iter_mut().zip(one).for_each(|(mean, p)| *mean += p);
        }
    }
    mean
}

/// Counts, and the probabilities that they are of.
fn count(
    classifier: &dyn Classifier,
    rows: usize,
    draws: &[&[f64]],
) -> Result<(Tally, Vec<f64>), String> {
    let mut tally = empty();
    if rows == 0 {
        return Ok((tally, Vec::new()));
    }
    let probabilities = averaged(classifier, rows, draws);
    let labels: Vec<usize> = (0..rows).map(|row| classifier.label(row)).collect();
    let said = Predictive::new(&probabilities, classifier.classes()).map_err(wrong)?;
    tally.count(&said, &labels).map_err(wrong)?;
    Ok((tally, probabilities))
}

/// The images with the largest entropies, where rows are images.
fn uncertain(site: &dyn Model, said: &[f64], classes: usize) -> Vec<UncertainImage> {
    let (Some(net), Some(classifier)) = (site.net(), site.classifier()) else { return Vec::new() };
    let shape = net.plan().input();
    let (Ok(table), true) = (Predictive::new(said, classes), shape.height > 1) else {
        return Vec::new();
    };
    let entropies = table.entropies();
    let mut order: Vec<usize> = (0..entropies.len()).collect();
    order.sort_by(|a, b| entropies[*b].total_cmp(&entropies[*a]).then(a.cmp(b)));
    let image = |row: usize| {
        let mut input = vec![0.0f32; shape.len()];
        net.input(row, &mut input);
        let area = shape.area();
        let mean = |k: usize| input.iter().skip(k).step_by(area).sum::<f32>();
        let grey: Vec<f32> = (0..area).map(mean).collect();
        let least = grey.iter().copied().fold(f32::INFINITY, f32::min);
        let most = grey.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let level = |x: &f32| (255.0 * (x - least) / (most - least).max(1e-12)).round() as u8;
        let each = &said[row * classes..(row + 1) * classes];
        let mut named: Vec<(usize, f64)> = each.iter().copied().enumerate().collect();
        named.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        named.truncate(MOST_SAID);
        UncertainImage {
            row,
            label: classifier.label(row),
            size: (shape.height, shape.width),
            pixels: grey.iter().map(level).collect(),
            said: named,
        }
    };
    order.into_iter().take(MOST_IMAGES).map(image).collect()
}

#[cfg(test)]
mod tests {
    use consilience_core::model::{Design, Gaussian, Glm, GlmFamily, Softmax};

    use super::*;

    fn logistic(features: &[f64], labels: &[f64]) -> Arc<dyn Model> {
        Arc::new(
            Glm::new(
                Design::dense(features.to_vec(), 1).unwrap(),
                labels.to_vec(),
                GlmFamily::Bernoulli,
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
        // The parameters of the first chain: their mean, and the last.
        let at = |t: f64| (1.0 - sigmoid(t)).ln();
        let named: Vec<&str> = found.points.iter().map(|point| &point.name[..]).collect();
        assert_eq!(named, ["the mean of the parameters of one chain", "one draw"]);
        let longer = Draws::from_chains(vec![vec![1.0, 3.0], vec![9.0, 9.0]], 1);
        let found = Calibration::new(&sites, Some(&held_out), &longer).unwrap().unwrap();
        for (point, t) in found.points.iter().zip([1.0, 1.5]) {
            assert!((point.tally.mean_minus_log_likelihood() + at(t)).abs() < 1e-12);
        }
    }

    #[test]
    fn rows_of_another_kind_are_told_by_their_entropy() {
        let held_out = logistic(&[3.0, -2.0, 0.1], &[1.0, 0.0, 1.0]);
        let others = logistic(&[0.0, 0.2, 5.0, -0.05], &[0.0; 4]);
        let draws = Draws::from_chains(vec![vec![1.0, 1.0]], 1);
        let sites = [logistic(&[1.0], &[1.0])];
        let mut found =
            Calibration::new(&sites, Some(&[Arc::clone(&held_out)]), &draws).unwrap().unwrap();
        found.look_elsewhere(&held_out, ("noise", &others), &draws).unwrap();
        let seen = found.elsewhere.unwrap();
        // The smaller a row, the less is known of its class: 8 of 12 pairs, by hand.
        assert!((seen.auc - 8.0 / 12.0).abs() < 1e-12, "{}", seen.auc);
        assert_eq!((seen.here.iter().sum::<u64>(), seen.there.iter().sum::<u64>()), (3, 4));
        assert_eq!((seen.here[29], seen.there[29]), (1, 3));
        assert_eq!((seen.name.as_str(), seen.here.len()), ("noise", 30));
    }

    #[test]
    fn images_of_which_least_is_known_come_first() {
        let net = crate::models::from_settings(
            "model = \"net\"\nlayers = [\"flatten\", \"linear(2)\"]\ninput = [1, 2, 2]\n\
             classes = 2",
        )
        .unwrap();
        let rows = Design::dense([[9.0; 4], [0.0, 0.0, 0.0, 0.5], [3.0; 4]].concat(), 4).unwrap();
        let held_out = [net.potential(rows, vec![0.0, 1.0, 0.0]).unwrap()];
        // one weight a pixel for the first class, none for the second, no biases
        let draw = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let draws = Draws::from_chains(vec![draw.to_vec()], 10);
        let found = Calibration::new(&held_out, Some(&held_out), &draws).unwrap().unwrap();
        let order: Vec<usize> = found.uncertain.iter().map(|image| image.row).collect();
        assert_eq!(order, [1, 2, 0]);
        let first = &found.uncertain[0];
        assert_eq!((first.label, first.size, &first.pixels[..]), (1, (2, 2), &[0, 0, 0, 255][..]));
        assert_eq!(first.said[0].0, 0);
        assert!((first.said[0].1 - 1.0 / (1.0 + (-0.5f64).exp())).abs() < 1e-6);
        let fitted = Calibration::new(&held_out, None, &draws).unwrap().unwrap();
        assert!(fitted.uncertain.is_empty(), "rows that were fitted are not shown");
    }

    /// LeNet5 on as many rows as the book's example holds out.
    #[test]
    fn nets_are_judged_by_what_they_cost() {
        let net = crate::models::from_settings(
            "model = \"net\"\nlayers = \"lenet5\"\ninput = [1, 28, 28]\nclasses = 10",
        )
        .unwrap();
        let rows = Design::dense(vec![0.5; 784], 784).unwrap();
        let site = net.potential(rows, vec![3.0]).unwrap();
        assert!(affordable(&*site, 1000) >= MOST_DRAWS, "{}", affordable(&*site, 1000));
        assert!(affordable(&*site, 10_000) >= 2 * LEAST_DRAWS);
        assert!(affordable(&*site, 100_000) < LEAST_DRAWS);
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

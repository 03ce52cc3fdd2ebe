//! Judge a model by what it says of each row without having seen it: leave-one-out
//! cross-validation by smoothed importance sampling (Vehtari, Gelman and Gabry 2017).
//!
//! A site computes this of its own rows; what leaves it is [`Elpd`], sums over rows.

use super::pareto::{log_sum, smooth};
use crate::simd::ln;

/// What the draws say of one row that they had not seen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldBack {
    /// The log of its predictive density where it is left out: `log p(y_i | y_-i)`.
    pub elpd: f64,
    /// The same where it is not.
    pub lpd: f64,
    /// The shape of the tail of importance weights: above [`good_k`] the first is not to be relied
    /// on.
    pub k: f64,
}

impl HeldBack {
    /// From the log-likelihood of a row at every draw; `efficiency` is the number of effective
    /// draws over that of draws.
    pub fn new(log_likelihood: &[f64], efficiency: f64) -> Self {
        let ratios: Vec<f64> = log_likelihood.iter().map(|log| -log).collect();
        let (mut weights, k) = smooth(&ratios, efficiency);
        weights.iter_mut().zip(log_likelihood).for_each(|(weight, log)| *weight += log);
        let lpd = log_sum(log_likelihood) - ln(log_likelihood.len() as f64);
        HeldBack { elpd: log_sum(&weights), lpd, k }
    }
}

/// The largest `k` with which so many draws can be relied on.
pub fn good_k(draws: usize) -> f64 {
    (1.0 - 1.0 / (draws as f64).log10()).min(0.7)
}

/// Sums over rows: all that a site tells of how well its rows are predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Elpd {
    /// How many rows there are.
    pub rows: u64,
    /// The sum of their `elpd`, or of its differences between two models.
    pub sum: f64,
    /// The squared deviations of these from their own mean, added up.
    pub squares: f64,
    /// The sum of what is predicted of rows that were seen; likewise.
    pub seen: f64,
    /// How many rows have a `k` that is good, one that is not, and one above 1.
    pub by_k: [u64; 3],
}

impl Elpd {
    /// Of some rows.
    pub fn new(rows: &[HeldBack], good: f64) -> Self {
        let sum: f64 = rows.iter().map(|row| row.elpd).sum();
        let mean = sum / rows.len().max(1) as f64;
        let mut by_k = [0; 3];
        for HeldBack { k, .. } in rows {
            // what is no number is not good
            by_k[if *k <= good {
                0
            } else if *k <= 1.0 {
                1
            } else {
                2
            }] += 1;
        }
        Elpd {
            rows: rows.len() as u64,
            sum,
            squares: rows.iter().map(|row| (row.elpd - mean) * (row.elpd - mean)).sum(),
            seen: rows.iter().map(|row| row.lpd).sum(),
            by_k,
        }
    }

    /// Of the same rows under two models: the first less the second, and for each row the larger
    /// `k`. `None` where they are not as many.
    pub fn difference(a: &[HeldBack], b: &[HeldBack], good: f64) -> Option<Self> {
        let less = |(a, b): (&HeldBack, &HeldBack)| HeldBack {
            elpd: a.elpd - b.elpd,
            lpd: a.lpd - b.lpd,
            k: if a.k.is_nan() || b.k.is_nan() { f64::NAN } else { a.k.max(b.k) },
        };
        (a.len() == b.len())
            .then(|| Elpd::new(&a.iter().zip(b).map(less).collect::<Vec<_>>(), good))
    }

    /// The sums of several sites together.
    pub fn merge(parts: &[Elpd]) -> Self {
        let (rows, sum) = (parts.iter().map(|p| p.rows).sum::<u64>(), parts.iter().map(|p| p.sum));
        let sum: f64 = sum.sum();
        let mean = sum / rows.max(1) as f64;
        let squares = |p: &Elpd| {
            let n = p.rows.max(1) as f64;
            p.squares + n * (p.sum / n - mean) * (p.sum / n - mean)
        };
        Elpd {
            rows,
            sum,
            squares: parts.iter().filter(|p| p.rows > 0).map(squares).sum(),
            seen: parts.iter().map(|p| p.seen).sum(),
            by_k: std::array::from_fn(|k| parts.iter().map(|p| p.by_k[k]).sum()),
        }
    }

    /// The standard error of the sum, over rows such as these.
    pub fn error(&self) -> f64 {
        self.squares.sqrt()
    }

    /// The effective number of parameters.
    pub fn parameters(&self) -> f64 {
        self.seen - self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(n: usize) -> Vec<HeldBack> {
        let row = |i: usize| {
            let x = i as f64;
            let logs: Vec<f64> =
                (0..400).map(|s| -1.0 - (0.3 * x + (s as f64 * 0.77).sin()).powi(2)).collect();
            HeldBack::new(&logs, 0.8)
        };
        (0..n).map(row).collect()
    }

    /// Whatever rows are where: sums are those of all.
    #[test]
    fn sums_of_sites_are_those_of_all_rows() {
        let all = rows(9);
        let whole = Elpd::new(&all, 0.6);
        let parts = [Elpd::new(&all[..2], 0.6), Elpd::new(&[], 0.6), Elpd::new(&all[2..], 0.6)];
        let merged = Elpd::merge(&parts);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12 * a.abs().max(1.0);
        assert!(near(whole.sum, merged.sum) && near(whole.squares, merged.squares));
        assert!(near(whole.seen, merged.seen) && whole.by_k == merged.by_k && merged.rows == 9);
        // population variance times rows, as ArviZ has it
        let mean = whole.sum / 9.0;
        let variance = all.iter().map(|row| (row.elpd - mean).powi(2)).sum::<f64>() / 9.0;
        assert!(near(whole.error(), (9.0 * variance).sqrt()));
    }

    #[test]
    fn a_model_differs_from_itself_by_nothing() {
        let all = rows(5);
        let none = Elpd::difference(&all, &all, 0.6).unwrap();
        assert_eq!((none.sum, none.squares, none.rows), (0.0, 0.0, 5));
        assert_eq!(Elpd::difference(&all, &all[1..], 0.6), None);
    }

    #[test]
    fn what_is_no_number_is_not_good() {
        let row = HeldBack::new(&[f64::NAN; 50], 1.0);
        assert!(row.k.is_nan());
        assert_eq!(Elpd::new(&[row], 0.7).by_k, [0, 0, 1]);
    }
}

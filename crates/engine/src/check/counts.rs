//! Count responses in bins, and compare counts and moments of replicates with those observed.

use consilience_core::measure::{MASS, equal_tailed, mean};

use super::{Compared, short};
use crate::models::Doubt;

/// How responses are counted: bin `k` has those above edge `k - 1`, and not above edge `k`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Bins {
    pub(super) kind: Kind,
    pub(super) edges: Vec<f64>,
    /// What is subtracted before powers are taken, so that they lose no digits.
    pub(super) centre: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Classes,
    Levels,
    Counts,
    Times,
    Numbers,
}

/// Sums over responses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) count: u64,
    /// Of the responses less the centre, their squares and their cubes.
    pub(super) powers: [f64; 3],
    pub(super) bins: Vec<u64>,
}

impl Sums {
    pub(super) fn add(&mut self, y: f64, bins: &Bins) {
        let off = y - bins.centre;
        self.count += 1;
        self.powers[0] += off;
        self.powers[1] += off * off;
        self.powers[2] += off * off * off;
        self.bins.resize(bins.edges.len() + 1, 0);
        self.bins[bins.edges.partition_point(|edge| *edge < y)] += 1;
    }

    pub(super) fn merge(&mut self, other: &Sums) {
        self.count += other.count;
        self.powers.iter_mut().zip(other.powers).for_each(|(sum, more)| *sum += more);
        self.bins.resize(self.bins.len().max(other.bins.len()), 0);
        self.bins.iter_mut().zip(&other.bins).for_each(|(sum, more)| *sum += more);
    }

    /// Mean (less the centre), variance and third central moment.
    pub(super) fn moments(&self) -> [f64; 3] {
        let [a, b, c] = self.powers.map(|sum| sum / self.count as f64);
        [a, b - a * a, c - 3.0 * a * b + 2.0 * a * a * a]
    }

    pub(super) fn bin(&self, k: usize) -> f64 {
        self.bins.get(k).map_or(0.0, |n| *n as f64)
    }

    fn share(&self, k: usize) -> f64 {
        self.bin(k) / self.count.max(1) as f64
    }
}

/// Sums over what one draw expects of rows: of the mean, and of the response less the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Explained {
    pub(super) rows: f64,
    pub(super) mean: [f64; 2],
    pub(super) left: [f64; 2],
}

impl Explained {
    pub(super) fn merge(&mut self, other: &Explained) {
        self.rows += other.rows;
        for (sum, more) in [(&mut self.mean, other.mean), (&mut self.left, other.left)] {
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }

    /// The variance of the means over that of means and errors (Gelman, Goodrich, Gabry and Vehtari
    /// 2019).
    pub(super) fn r_squared(&self) -> f64 {
        let variance =
            |[sum, square]: [f64; 2]| square / self.rows - (sum / self.rows) * (sum / self.rows);
        let (fitted, left) = (variance(self.mean), variance(self.left));
        fitted / (fitted + left)
    }
}

pub(super) type Read = fn(&Sums, &Bins) -> f64;

/// The numbers by which responses of a kind are compared.
pub(super) fn statistics_of(bins: &Bins) -> Vec<(String, Doubt, Read)> {
    let mean: (String, Doubt, Read) =
        ("mean".into(), Doubt::Centre, |sums, bins| sums.moments()[0] + bins.centre);
    let spread: (String, Doubt, Read) =
        ("standard deviation".into(), Doubt::Spread, |sums, _| sums.moments()[1].max(0.0).sqrt());
    let largest = bins.edges.last().copied().unwrap_or(f64::NAN);
    match bins.kind {
        Kind::Classes => Vec::new(),
        Kind::Levels => vec![("mean level".into(), Doubt::Centre, mean.2)],
        Kind::Times => vec![
            ("events".into(), Doubt::Centre, |sums, _| sums.count as f64),
            ("mean time of events".into(), Doubt::Shape, mean.2),
        ],
        Kind::Counts => vec![
            mean,
            spread,
            ("share of zeros".into(), Doubt::Zeros, |sums, _| sums.share(0)),
            (format!("share above {largest}"), Doubt::Extremes, |sums, bins| {
                sums.share(bins.edges.len())
            }),
        ],
        Kind::Numbers => vec![
            mean,
            spread,
            ("skewness".into(), Doubt::Skew, |sums, _| {
                let [_, variance, third] = sums.moments();
                third / variance.max(f64::MIN_POSITIVE).powf(1.5)
            }),
            ("share beyond 3 sd".into(), Doubt::Extremes, |sums, bins| {
                sums.share(0) + sums.share(bins.edges.len())
            }),
        ],
    }
}

/// The name of a bin.
pub(super) fn label(bins: &Bins, k: usize) -> String {
    let edge = |k: usize| bins.edges.get(k).copied();
    let below = k.checked_sub(1).and_then(edge);
    match (bins.kind, below, edge(k)) {
        (Kind::Classes, ..) => format!("class {k}"),
        (Kind::Levels, ..) => format!("level {}", k + 1),
        (Kind::Counts, None, _) => "0".into(),
        (Kind::Counts, Some(low), Some(high)) if low + 1.0 == high => format!("{high}"),
        (Kind::Counts, Some(low), Some(high)) => format!("{} to {high}", low + 1.0),
        (_, None, Some(high)) => format!("up to {}", short(high)),
        (_, Some(low), Some(high)) => format!("{} to {}", short(low), short(high)),
        (_, Some(low), None) => format!("above {}", short(low)),
        (_, None, None) => "all".into(),
    }
}

/// How far off a number is, for the choice of the one that is named.
pub(super) fn off(of: &Compared) -> f64 {
    (of.observed - of.replicated).abs() / (of.upper - of.lower).abs().max(f64::MIN_POSITIVE)
}

/// A number of replicates beside that of what there is, by two tails; `None` where it is none.
pub(super) fn compared(
    name: String,
    observed: f64,
    replicated: impl Iterator<Item = f64>,
) -> Option<Compared> {
    let all: Vec<f64> = replicated.collect();
    let n = all.len() as f64;
    let tail = |beyond: usize| (1.0 + beyond as f64) / (1.0 + n);
    let (above, below) = (
        all.iter().filter(|x| **x >= observed).count(),
        all.iter().filter(|x| **x <= observed).count(),
    );
    let p = (2.0 * tail(above).min(tail(below))).min(1.0);
    told(name, observed, &all, p)
}

/// The same by the upper tail alone.
pub(super) fn above(
    name: String,
    observed: f64,
    replicated: impl Iterator<Item = f64>,
) -> Option<Compared> {
    let all: Vec<f64> = replicated.collect();
    let beyond = all.iter().filter(|x| **x >= observed).count();
    let p = (1.0 + beyond as f64) / (1.0 + all.len() as f64);
    told(name, observed, &all, p)
}

fn told(name: String, observed: f64, all: &[f64], p: f64) -> Option<Compared> {
    let (replicated, (lower, upper)) = (mean(all), equal_tailed(all, MASS).ok()?);
    let finite = [observed, replicated, lower, upper].iter().all(|x| x.is_finite());
    finite.then_some(Compared { name, observed, replicated, lower, upper, p })
}

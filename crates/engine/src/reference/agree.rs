//! Measure how far two references differ, in standard errors.

use consilience_core::measure::{Chains, DrawsError, mcse_mean, sd};

use super::Reference;
use crate::draws::Draws;

/// Two references agree where no difference exceeds so many standard errors: a hundred comparisons
/// raise a false alarm once in 100,000 seeds.
pub const MOST_STANDARD_ERRORS: f64 = 5.3;

/// How far two references differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Differences {
    /// The largest difference of means, in standard errors, after the methods' known bias is
    /// granted.
    pub means: f64,
    /// The largest difference of standard deviations, likewise.
    pub deviations: f64,
    /// The parameter with the largest of all these differences.
    pub parameter: usize,
}

impl Differences {
    /// The larger of the two.
    pub fn largest(&self) -> f64 {
        self.means.max(self.deviations)
    }

    /// Whether the difference is what Monte Carlo error makes.
    pub fn holds(&self) -> bool {
        self.largest() < MOST_STANDARD_ERRORS
    }
}

/// Compare two references of one target, parameter by parameter.
pub fn agree(a: &Reference, b: &Reference) -> Result<Differences, DrawsError> {
    let granted = a.method.bias() + b.method.bias();
    let (of_a, of_b) = (moments(&a.draws)?, moments(&b.draws)?);
    let mut found = Differences { means: 0.0, deviations: 0.0, parameter: 0 };
    for (k, (x, y)) in of_a.iter().zip(&of_b).enumerate() {
        let unit = x.deviation.0;
        let score = |x: (f64, f64), y: (f64, f64)| {
            ((x.0 - y.0).abs() - granted * unit).max(0.0) / x.1.hypot(y.1)
        };
        let (mean, deviation) = (score(x.mean, y.mean), score(x.deviation, y.deviation));
        if mean.max(deviation) > found.largest() {
            found.parameter = k;
        }
        found.means = found.means.max(mean);
        found.deviations = found.deviations.max(deviation);
    }
    Ok(found)
}

/// A parameter's mean and standard deviation, each with its Monte Carlo error.
struct Moments {
    mean: (f64, f64),
    deviation: (f64, f64),
}

fn moments(draws: &Draws) -> Result<Vec<Moments>, DrawsError> {
    let of = |k: usize| {
        let chains = draws.parameter(k);
        let all: Vec<f64> = chains.concat();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let squares: Vec<Vec<f64>> =
            chains.iter().map(|c| c.iter().map(|x| (x - mean) * (x - mean)).collect()).collect();
        let error = |chains: &[Vec<f64>]| {
            let slices: Vec<&[f64]> = chains.iter().map(Vec::as_slice).collect();
            Chains::new(&slices).map(|chains| mcse_mean(&chains))
        };
        let spread = sd(&all);
        // The error of a standard deviation is that of the mean of squares, by the slope of the
        // root.
        Ok(Moments {
            mean: (mean, error(&chains)?),
            deviation: (spread, error(&squares)? / (2.0 * spread)),
        })
    };
    (0..draws.dim()).map(of).collect()
}

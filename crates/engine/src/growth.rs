//! Compute the error of a chain's mean as the chain grows, and what it has cost until then.

use consilience_core::measure::{mean, sd};

use crate::draws::Draws;
use crate::record::Statistic;

/// About so many stops, evenly apart on a logarithmic axis.
const STOPS: usize = 40;

/// Where chains stand after so many draws: averages over the chains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    /// How many draws each chain has kept.
    pub draws: usize,
    /// The iterations that this took, burn-in included.
    pub iteration: f64,
    /// Bits up and down.
    pub bits: f64,
    /// Gradients of single rows.
    pub gradients: f64,
    /// The root of the mean squared error of a chain's mean: over parameters, in posterior standard
    /// deviations, and over chains.
    pub error: f64,
    /// A standard error below and above it; NaN for a single chain.
    pub bar: (f64, f64),
}

/// The stops of chains that should have this mean and these standard deviations. Nothing where
/// draws or what was recorded beside them are missing.
pub fn growth(draws: &Draws, statistics: &[Statistic], truth: &[f64], unit: &[f64]) -> Vec<Stop> {
    let (chains, length, d) = (draws.chains(), draws.length(), draws.dim());
    let beside =
        |name: &str| statistics.iter().find(|s| s.name == name && s.values.len() == chains);
    let (Some(iteration), Some(up), Some(down), Some(gradients)) =
        (beside("iteration"), beside("bits_up"), beside("bits_down"), beside("gradients"))
    else {
        return Vec::new();
    };
    if chains == 0 || length == 0 {
        return Vec::new();
    }
    let rows: Vec<&[f64]> = draws.rows().collect();
    let mut sums = vec![vec![0.0; d]; chains];
    let (mut done, mut found) = (0, Vec::new());
    for stop in stops(length) {
        for (chain, sum) in sums.iter_mut().enumerate() {
            for row in &rows[chain * length + done..chain * length + stop] {
                sum.iter_mut().zip(*row).for_each(|(s, x)| *s += x);
            }
        }
        done = stop;
        let square = |sum: &Vec<f64>| {
            let each = sum
                .iter()
                .zip(truth)
                .zip(unit)
                .map(|((s, truth), unit)| ((s / stop as f64 - truth) / unit).powi(2));
            each.sum::<f64>() / d as f64
        };
        let squares: Vec<f64> = sums.iter().map(square).collect();
        let (middle, error) = (mean(&squares), sd(&squares) / (chains as f64).sqrt());
        let at = |statistic: &Statistic| {
            mean(&statistic.values.iter().map(|values| values[stop - 1]).collect::<Vec<f64>>())
        };
        found.push(Stop {
            draws: stop,
            iteration: at(iteration),
            bits: at(up) + at(down),
            gradients: at(gradients),
            error: middle.sqrt(),
            bar: ((middle - error).max(0.0).sqrt(), (middle + error).sqrt()),
        });
    }
    found
}

/// From the first draw to the last, each a little further than the one before.
fn stops(length: usize) -> Vec<usize> {
    let ratio = (length as f64).powf(1.0 / STOPS as f64);
    let mut stops: Vec<usize> =
        (0..=STOPS as i32).map(|k| (ratio.powi(k).round() as usize).clamp(1, length)).collect();
    stops.push(length);
    stops.dedup();
    stops
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_and_costs_by_hand() {
        let draws = Draws::from_chains(vec![vec![1.0, 4.0, 3.0, 0.0], vec![3.0, 0.0, 1.0, 0.0]], 2);
        let statistic = |name: &str, values: [[f64; 2]; 2]| Statistic {
            name: name.into(),
            values: values.map(|v| v.to_vec()).into(),
        };
        let statistics = [
            statistic("iteration", [[11.0, 12.0]; 2]),
            statistic("bits_up", [[10.0, 20.0], [30.0, 40.0]]),
            statistic("bits_down", [[1.0, 2.0], [1.0, 2.0]]),
            statistic("gradients", [[5.0, 10.0], [5.0, 10.0]]),
        ];
        let found = growth(&draws, &statistics, &[1.0, 0.0], &[1.0, 2.0]);
        assert_eq!(found.iter().map(|s| s.draws).collect::<Vec<_>>(), [1, 2]);
        // After one draw: chain 1 has errors 0 and 2 units, chain 2 has 2 and 0: both 2 on average
        // of squares.
        assert_eq!((found[0].error, found[0].bar), (2f64.sqrt(), (2f64.sqrt(), 2f64.sqrt())));
        assert_eq!((found[0].bits, found[0].gradients, found[0].iteration), (21.0, 5.0, 11.0));
        // After two: chain 1 has means 2 and 2, so (1 + 1) / 2; chain 2 has 2 and 0, so (1 + 0) /
        // 2: 0.75 with a standard error of 0.25.
        assert!((found[1].error - 0.75f64.sqrt()).abs() < 1e-15);
        assert!(
            (found[1].bar.0 - 0.5f64.sqrt()).abs() < 1e-15 && (found[1].bar.1 - 1.0).abs() < 1e-15
        );
        assert_eq!((found[1].bits, found[1].gradients), (32.0, 10.0));
        assert_eq!(growth(&draws, &statistics[1..], &[1.0, 0.0], &[1.0, 2.0]), []);
    }

    #[test]
    fn stops_rise_to_the_last_draw() {
        for length in [1, 2, 7, 100, 12_345] {
            let stops = stops(length);
            assert!(
                stops.windows(2).all(|w| w[0] < w[1])
                    && stops.first() == Some(&1)
                    && stops.last() == Some(&length),
                "{stops:?}"
            );
        }
    }
}

//! Compute autocovariances lag by lag while few are asked for, and all at once by Fourier transform
//! when many are.

use super::Halves;
use super::summary::mean;
use crate::fourier::Turns;

/// From this lag on, one Fourier transform is cheaper than the sums still to come.
const DIRECT_LAGS: usize = 64;

/// Autocovariances averaged over the halved chains.
///
/// A lag costs one pass over the draws; past [`DIRECT_LAGS`] all lags together cost one transform
/// of twice the draws, so the whole is at worst `O(n log n)` however slow the chain.
pub(super) struct Autocovariance {
    centred: Halves,
    known: Vec<f64>,
}

impl Autocovariance {
    pub(super) fn new(mut halves: Halves) -> Self {
        for half in halves.values.chunks_exact_mut(halves.length) {
            let centre = mean(half);
            for value in half {
                *value -= centre;
            }
        }
        Autocovariance { centred: halves, known: Vec::new() }
    }

    /// The autocovariance at a lag below the length of a half, with divisor `n` at every lag.
    pub(super) fn at(&mut self, lag: usize) -> f64 {
        if lag >= self.known.len() && lag >= DIRECT_LAGS {
            self.known = by_transform(&self.centred);
        }
        while lag >= self.known.len() {
            self.known.push(directly(&self.centred, self.known.len()));
        }
        self.known[lag]
    }
}

fn directly(centred: &Halves, lag: usize) -> f64 {
    let sum: f64 = centred.each().map(|half| dot(&half[..half.len() - lag], &half[lag..])).sum();
    sum / centred.values.len() as f64
}

/// The sum of products in eight interleaved sums, which fill a vector register.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_eights, a_rest) = a.as_chunks::<8>();
    let (b_eights, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (x, y) in a_eights.iter().zip(b_eights) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f64>() + rest
}

/// All lags by the Wiener-Khinchin theorem: the power spectra of the halves are summed before the
/// one way back.
///
/// Two halves x and y travel as x + iy: the real part of that number's autocovariance is the sum of
/// theirs.
fn by_transform(centred: &Halves) -> Vec<f64> {
    let length = centred.length;
    let size = (2 * length).next_power_of_two();
    let turns = Turns::new(size);
    let mut power = vec![[0.0; 2]; size];
    let mut signal = vec![[0.0; 2]; size];
    for pair in centred.values.chunks_exact(2 * length) {
        signal.fill([0.0; 2]);
        for k in 0..length {
            signal[k] = [pair[k], pair[length + k]];
        }
        turns.forward(&mut signal, 0, length);
        for (sum, [real, imaginary]) in power.iter_mut().zip(&signal) {
            sum[0] += real * real + imaginary * imaginary;
        }
    }
    // Lag t comes back as lag -t, which of a real spectrum changes the imaginary part alone.
    turns.back(&mut power);
    let scale = 1.0 / (size as f64 * centred.values.len() as f64);
    power[..length].iter().map(|[real, _]| real * scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand_for_short_halves() {
        let mut acov =
            Autocovariance::new(Halves { values: vec![1.0, 2.0, 3.0, 5.0, 5.0, 8.0], length: 3 });
        // Centred: -1 0 1 and -1 -1 2.
        for (lag, sum) in [(0, 8.0), (1, -1.0), (2, -3.0)] {
            assert!((acov.at(lag) - sum / 6.0).abs() < 1e-15, "lag {lag}");
        }
    }

    #[test]
    fn the_transform_gives_the_direct_sums() {
        for length in [2, 3, 64, 100, 129, 500] {
            let values: Vec<f64> =
                (0..4 * length as u64).map(|k| (k * k * 31 % 97) as f64 - 40.0).collect();
            let centred = Autocovariance::new(Halves { values, length }).centred;
            let all = by_transform(&centred);
            assert_eq!(all.len(), length);
            for lag in 0..length {
                assert!(
                    (all[lag] - directly(&centred, lag)).abs() < 1e-13 * all[0],
                    "length {length}, lag {lag}"
                );
            }
        }
    }

    #[test]
    fn a_lag_does_not_depend_on_what_was_asked_before() {
        let halves =
            || Halves { values: (0..800).map(|k| f64::from(k * k % 89)).collect(), length: 400 };
        let mut ascending = Autocovariance::new(halves());
        let mut jumping = Autocovariance::new(halves());
        jumping.at(300);
        for lag in 0..400 {
            assert!((ascending.at(lag) - jumping.at(lag)).abs() < 1e-10);
        }
    }
}

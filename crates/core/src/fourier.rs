//! Transform sequences whose length is a power of two, with the same bits on every machine.

use crate::simd::cos_sin_turns;

/// The roots of unity of one transform size, a power of two.
pub(crate) struct Turns(Vec<[f64; 2]>);

impl Turns {
    /// Those for sequences of this length.
    pub(crate) fn new(size: usize) -> Self {
        let step = (1u64 << 32) / size as u64;
        let turn = |k: usize| {
            let (cos, sin) = cos_sin_turns((k as u64 * step) as u32);
            [cos, -sin]
        };
        Turns((0..size / 2).map(turn).collect())
    }

    /// Radix 2, decimation in frequency: natural order in, bit-reversed order out.
    pub(crate) fn forward(&self, signal: &mut [[f64; 2]]) {
        let mut block = signal.len();
        while block > 1 {
            let stride = 2 * self.0.len() / block;
            for part in signal.chunks_exact_mut(block) {
                let (low, high) = part.split_at_mut(block / 2);
                for k in 0..block / 2 {
                    let (u, v) = (low[k], high[k]);
                    low[k] = [u[0] + v[0], u[1] + v[1]];
                    high[k] = times([u[0] - v[0], u[1] - v[1]], self.0[k * stride]);
                }
            }
            block /= 2;
        }
    }

    /// Radix 2, decimation in time: bit-reversed order in, natural order out, so nothing is ever
    /// reordered.
    ///
    /// It turns the same way as [`Turns::forward`], so place t of the sequence comes back at place
    /// -t, modulo its length, and times its length.
    pub(crate) fn back(&self, spectrum: &mut [[f64; 2]]) {
        let mut block = 2;
        while block <= spectrum.len() {
            let stride = 2 * self.0.len() / block;
            for part in spectrum.chunks_exact_mut(block) {
                let (low, high) = part.split_at_mut(block / 2);
                for k in 0..block / 2 {
                    let (u, v) = (low[k], times(high[k], self.0[k * stride]));
                    low[k] = [u[0] + v[0], u[1] + v[1]];
                    high[k] = [u[0] - v[0], u[1] - v[1]];
                }
            }
            block *= 2;
        }
    }
}

/// The product of two complex numbers.
#[inline(always)]
pub(crate) fn times(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// A complex number times itself `power` times, by squaring.
pub(crate) fn raised(base: [f64; 2], power: u64) -> [f64; 2] {
    let (mut square, mut product, mut left) = (base, [1.0, 0.0], power);
    while left > 0 {
        if left & 1 == 1 {
            product = times(product, square);
        }
        left >>= 1;
        if left > 0 {
            square = times(square, square);
        }
    }
    product
}

/// Replace every number of the spectrum of a *real* sequence, in the order that
/// [`Turns::forward`] leaves it in, by what `change` makes of its place and of it: half of them are
/// conjugates of the other half, and are not computed again.
pub(crate) fn change_spectrum(
    spectrum: &mut [[f64; 2]],
    change: impl Fn(usize, [f64; 2]) -> [f64; 2],
) {
    spectrum[0] = change(0, spectrum[0]);
    // Of the places 2^j .. 2^(j+1), the first holds the conjugate of the last, and so on: k and -k
    // have the same lowest bit set, above which the bits of one are those of the other inverted.
    let mut start = 1;
    while start < spectrum.len() {
        let last = 2 * start - 1;
        for place in start..start + start.div_ceil(2) {
            let changed = change(place, spectrum[place]);
            spectrum[place] = changed;
            let conjugate = start + last - place;
            if conjugate != place {
                spectrum[conjugate] = [changed[0], -changed[1]];
            }
        }
        start *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_a_spectrum_are_convolutions() {
        for size in [1, 2, 4, 64, 256] {
            let signal: Vec<f64> = (0..size).map(|k: u64| (k * k * 31 % 17) as f64 - 5.0).collect();
            let turns = Turns::new(size as usize);
            let mut spectrum: Vec<[f64; 2]> = signal.iter().map(|&value| [value, 0.0]).collect();
            turns.forward(&mut spectrum);
            let same = spectrum.clone();
            change_spectrum(&mut spectrum, |place, a| times(raised(a, 2), same[place]));
            turns.back(&mut spectrum);
            let n = size as usize;
            let convolved = |a: &[f64], b: &[f64]| -> Vec<f64> {
                (0..n).map(|t| (0..n).map(|k| a[k] * b[(n + t - k) % n]).sum()).collect()
            };
            let cube = convolved(&convolved(&signal, &signal), &signal);
            let largest = cube.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
            for t in 0..n {
                let back = spectrum[(n - t) % n];
                assert!((back[0] / n as f64 - cube[t]).abs() < 1e-13 * largest, "{size} {t}");
                assert!(back[1].abs() / (n as f64) < 1e-13 * largest, "{size} {t}");
            }
        }
    }
}

//! Transform sequences whose length is a power of two, with the same bits on every machine.

use crate::simd::cos_sin_turns;

/// The roots of unity of one transform size, a power of two. Those of a stage whose blocks have
/// `half` butterflies stand side by side, from place `half` on.
pub(crate) struct Turns(Vec<[f64; 2]>);

impl Turns {
    /// Those for sequences of this length, or shorter.
    pub(crate) fn new(size: usize) -> Self {
        let size = size.max(2);
        let step = (1u64 << 32) / size as u64;
        let turn = |k: usize| {
            let (cos, sin) = cos_sin_turns((k as u64 * step) as u32);
            [cos, -sin]
        };
        let mut roots = vec![[0.0; 2]; size];
        (0..size / 2).for_each(|k| roots[size / 2 + k] = turn(k));
        for place in (1..size / 2).rev() {
            roots[place] = roots[2 * place]; // every second one
        }
        Turns(roots)
    }

    /// Radix 2, decimation in frequency: natural order in, bit-reversed order out.
    ///
    /// Only `count` numbers from place `first` on, over the end to the beginning, are other than 0:
    /// what is known to be 0 is left alone.
    pub(crate) fn forward(&self, signal: &mut [[f64; 2]], first: usize, count: usize) {
        let mut half = signal.len() / 2;
        while half > 0 {
            let roots = &self.0[half..2 * half];
            // In every block the same places are other than 0, once or twice.
            let start = if count < half { first % half } else { 0 };
            let end = half.min(start + count);
            let wrapped = (start + count.min(half)).saturating_sub(half);
            for part in signal.chunks_exact_mut(2 * half) {
                let (low, high) = part.split_at_mut(half);
                butterflies(&mut low[start..end], &mut high[start..end], &roots[start..end]);
                if wrapped > 0 {
                    let rest = 0..wrapped;
                    butterflies(&mut low[rest.clone()], &mut high[rest.clone()], &roots[rest]);
                }
            }
            half /= 2;
        }
    }

    /// Radix 2, decimation in time: bit-reversed order in, natural order out, so nothing is ever
    /// reordered. Blocks in which all is 0 are left alone.
    ///
    /// It turns the same way as [`Turns::forward`], so place t of the sequence comes back at place
    /// -t, modulo its length, and times its length.
    pub(crate) fn back(&self, spectrum: &mut [[f64; 2]]) {
        let mut live: Vec<bool> = spectrum.iter().map(|one| *one != [0.0; 2]).collect();
        let mut half = 1;
        while half < spectrum.len() {
            let roots = &self.0[half..2 * half];
            for (block, part) in spectrum.chunks_exact_mut(2 * half).enumerate() {
                live[block] = live[2 * block] || live[2 * block + 1];
                if !live[block] {
                    continue;
                }
                let (low, high) = part.split_at_mut(half);
                for ((low, high), root) in low.iter_mut().zip(high).zip(roots) {
                    let (u, v) = (*low, times(*high, *root));
                    *low = [u[0] + v[0], u[1] + v[1]];
                    *high = [u[0] - v[0], u[1] - v[1]];
                }
            }
            half *= 2;
        }
    }
}

/// Sums, and differences turned.
#[inline(always)]
fn butterflies(low: &mut [[f64; 2]], high: &mut [[f64; 2]], roots: &[[f64; 2]]) {
    for ((low, high), root) in low.iter_mut().zip(high).zip(roots) {
        let (u, v) = (*low, *high);
        *low = [u[0] + v[0], u[1] + v[1]];
        *high = times([u[0] - v[0], u[1] - v[1]], *root);
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
            let (turns, n) = (Turns::new(size as usize), size as usize);
            let mut spectrum: Vec<[f64; 2]> = signal.iter().map(|&value| [value, 0.0]).collect();
            turns.forward(&mut spectrum, 0, n);
            let same = spectrum.clone();
            change_spectrum(&mut spectrum, |place, a| times(raised(a, 2), same[place]));
            turns.back(&mut spectrum);
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
    /// What is left alone since it is 0 would have become what it is.
    #[test]
    fn zeros_need_no_work() {
        for (size, first, count) in [
            (64, 0, 64),
            (64, 5, 9),
            (64, 60, 9),
            (64, 63, 40),
            (256, 250, 20),
            (8, 3, 1),
            (2, 1, 1),
        ] {
            let turns = Turns::new(size);
            let mut few = vec![[0.0; 2]; size];
            for k in 0..count {
                few[(first + k) % size] = [(k * k % 13) as f64 - 4.5, (k % 7) as f64 - 2.5];
            }
            let mut all = few.clone();
            turns.forward(&mut few, first, count);
            turns.forward(&mut all, 0, size);
            assert_eq!(few, all, "{size} {first} {count}");
            // every frequency by its sum, turned back to one place
            let mut spectrum = vec![[0.0; 2]; size];
            spectrum[size / 2] = [1.5, -0.5]; // frequency 1, in bit-reversed order
            turns.back(&mut spectrum);
            for (t, found) in spectrum.iter().enumerate() {
                let (sin, cos) = (std::f64::consts::TAU * t as f64 / size as f64).sin_cos();
                let expected = times([1.5, -0.5], [cos, -sin]);
                for part in 0..2 {
                    assert!((found[part] - expected[part]).abs() < 1e-14, "{size} {t}: {found:?}");
                }
            }
        }
    }
}

//! Round every coordinate to one of `s` levels of the norm at random, with mean exact ([vono22] eq. 4, after [alistarh17]).
//!
//! `C(v)_j = norm sign(v_j) l_j / s`, where `l_j` is one of the two integers around `s |v_j| / norm` and has it as its mean. The norm
//! travels as 32 bits, so it is rounded *up* to 32 bits first and everything is divided by what is sent: levels stay in `0..=s`, the mean
//! is exact, and the variance bound holds as long as the norm is a normal `f32`.

use super::message::{Message, Rest, take};
use super::{CompressError, coin, largest};
use crate::lanes::{LANES, exact_f64, vectorised};
use crate::rng::Stream;

/// `min(d/s^2, sqrt(d)/s)`.
pub(super) fn omega(levels: u32, d: f64) -> f64 {
    let s = f64::from(levels);
    (d / (s * s)).min(d.sqrt() / s)
}

/// Coordinates for which random words are drawn at once.
const CHUNK: usize = 512;

pub(super) fn quantise(levels: u32, v: &[f64], first: usize, stream: &mut Stream, message: &mut Message) -> Result<(), CompressError> {
    let norm = rounded_norm(v, first)?;
    message.scales.push(norm);
    if norm == 0.0 {
        return Ok(());
    }
    let s = f64::from(levels);
    let grid = Grid { per_unit: s / f64::from(norm), top: s };
    let start = message.levels.len();
    message.levels.resize(start + v.len(), 0);
    let mut words = [0; CHUNK];
    for (values, out) in v.chunks(CHUNK).zip(message.levels[start..].chunks_mut(CHUNK)) {
        let words = &mut words[..values.len()];
        stream.words(words);
        let decided = vectorised(|| grid.round(values, words, out));
        if !decided {
            grid.settle(values, words, out, stream);
        }
    }
    Ok(())
}

pub(super) fn dequantise(levels: u32, rest: &mut Rest<'_>, out: &mut [f64]) {
    let norm = take(&mut rest.scales, 1)[0];
    if norm == 0.0 {
        return out.fill(0.0);
    }
    let step = f64::from(norm) / f64::from(levels);
    let sent = take(&mut rest.levels, out.len());
    for (x, level) in out.iter_mut().zip(sent) {
        *x = f64::from(*level) * step;
    }
}

#[derive(Clone, Copy)]
struct Grid {
    per_unit: f64,
    top: f64,
}

impl Grid {
    /// The level below, the cell of the random word that separates it from the level above, and how that cell is split.
    #[inline(always)]
    fn locate(self, x: f64) -> (f64, f64, f64) {
        let scaled = x.abs() * self.per_unit;
        let scaled = if scaled > self.top { self.top } else { scaled }; // by rounding alone: |x| <= norm
        let below = scaled.floor();
        let cut = (scaled - below) * coin::WORD;
        (below, cut.floor(), cut - cut.floor())
    }

    /// Round by one random word each; false if some word fell into the cell that its coordinate splits.
    #[inline(always)]
    fn round(self, v: &[f64], words: &[u32], out: &mut [i32]) -> bool {
        const INTEGER: f64 = 6_755_399_441_055_744.0; // 1.5 * 2^52: adding it leaves an integer in the low bits
        let mut tied = false;
        for ((x, word), level) in v.iter().zip(words).zip(out) {
            let (below, cell, _) = self.locate(*x);
            let word = exact_f64(u64::from(*word));
            let up = if word < cell { 1.0 } else { 0.0 };
            tied |= word == cell;
            *level = ((below + up).copysign(*x) + INTEGER).to_bits() as i32;
        }
        !tied
    }

    /// Decide the coordinates whose word fell into the cell that they split (one in 2^32).
    #[cold]
    fn settle(self, v: &[f64], words: &[u32], out: &mut [i32], stream: &mut Stream) {
        for ((x, word), level) in v.iter().zip(words).zip(out) {
            let (_, cell, split) = self.locate(*x);
            if f64::from(*word) == cell && coin::exact(split, stream) {
                *level += if *x < 0.0 { -1 } else { 1 };
            }
        }
    }
}

/// The Euclidean norm, rounded up to 32 bits. Nothing overflows or is lost on the way.
fn rounded_norm(v: &[f64], first: usize) -> Result<f32, CompressError> {
    const HUGE: f64 = 1e100;
    let (up, down) = (2f64.powi(600), 2f64.powi(-600));
    let top = largest(v, first)?;
    let (scale, back) = match top {
        _ if top > HUGE => (down, up),
        _ if top < 1.0 / HUGE => (up, down),
        _ => (1.0, 1.0),
    };
    let squares = vectorised(|| {
        let mut sums = [0.0; LANES];
        let whole = v.chunks_exact(LANES);
        for (lane, x) in whole.remainder().iter().enumerate() {
            sums[lane] = (x * scale) * (x * scale);
        }
        for eight in whole {
            for lane in 0..LANES {
                let x = eight[lane] * scale;
                sums[lane] += x * x;
            }
        }
        sums.into_iter().sum::<f64>()
    });
    let norm = squares.sqrt() * back;
    let near = norm as f32;
    let rounded = if f64::from(near) < norm { near.next_up() } else { near };
    if rounded.is_infinite() {
        return Err(CompressError::NormTooLarge { coordinate: first, norm });
    }
    // A vector of denormals can have a norm that rounds to 0 above; it is not 0.
    Ok(if rounded == 0.0 && top > 0.0 { f32::from_bits(1) } else { rounded })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    #[test]
    fn the_norm_is_rounded_up_and_never_lost() {
        let norm = |v: &[f64]| rounded_norm(v, 0).unwrap();
        assert_eq!(norm(&[3.0, -4.0]), 5.0);
        assert_eq!(norm(&[]), 0.0);
        assert_eq!(norm(&[0.0, -0.0]), 0.0);
        assert_eq!(norm(&[5e-324; 3]), f32::from_bits(1));
        assert_eq!(norm(&[1e-170, 0.0]), f32::from_bits(1));
        assert_eq!(norm(&[0.1]), 0.1f32.max(0.1f32.next_down())); // the nearest to 0.1 lies above it
        assert_eq!(norm(&[0.3]), 0.3f32); // here too
        assert_eq!(norm(&[0.7]), 0.7f32.next_up()); // here it lies below
        assert!(f64::from(norm(&[3e30; 9])) >= 9e30);
        assert_eq!(rounded_norm(&[1e300, 1e300], 8), Err(CompressError::NormTooLarge { coordinate: 8, norm: 1e300 * 2f64.sqrt() }));
        assert!(rounded_norm(&[f64::from(f32::MAX) * 1.000_000_01], 0).is_err());
        assert_eq!(norm(&[f64::from(f32::MAX)]), f32::MAX);
    }

    #[test]
    fn a_word_in_the_split_cell_is_settled_by_the_next() {
        // s |x| / norm is 5/2^34: cell 1 of the word is split at a quarter.
        let grid = Grid { per_unit: 1.0, top: 4.0 };
        let x = -1.25 / coin::WORD;
        let mut ups = 0;
        for round in 0..4000 {
            let mut level = [7];
            assert!(grid.round(&[x], &[0], &mut level) && level == [-1]);
            assert!(grid.round(&[x], &[2], &mut level) && level == [0]);
            assert!(!grid.round(&[x], &[1], &mut level) && level == [0]);
            grid.settle(&[x], &[1], &mut level, &mut Seed::new(1).stream(Purpose::Compress, SERVER, round));
            ups -= level[0];
        }
        let score = (f64::from(ups) - 1000.0) / (4000.0f64 * 0.25 * 0.75).sqrt();
        assert!(score.abs() < 4.9, "{score}"); // 1e-6
    }
}

//! Toss coins whose probability is a floating-point number, exactly.
//!
//! Comparing one 32-bit word with a probability would round the probability to 32 bits, and a coordinate 1e-12 of the norm would never be
//! sent. Here the word decides unless it falls into the one cell that holds the probability; then the next word decides, about what is left.

use super::CompressError;
use crate::rng::Stream;

/// 2^32.
pub(super) const WORD: f64 = 4_294_967_296.0;

/// True with exactly the given probability in [0, 1].
pub(super) fn exact(probability: f64, stream: &mut Stream) -> bool {
    let mut left = probability;
    while left > 0.0 {
        let (cell, word) = ((left * WORD).floor(), f64::from(stream.word()));
        if word != cell {
            return word < cell;
        }
        left = left * WORD - cell; // exact: a product by a power of two and a difference of neighbours
    }
    false
}

/// One of the two 32-bit numbers around `x`, with mean exactly `x`.
pub(super) fn round_to_f32(x: f64, coordinate: usize, stream: &mut Stream) -> Result<f64, CompressError> {
    let near = nearest_f32(x, coordinate)?;
    if near == x {
        return Ok(near);
    }
    let narrow = near as f32;
    let (low, high) = if near < x { (narrow, narrow.next_up()) } else { (narrow.next_down(), narrow) };
    if low.is_infinite() || high.is_infinite() {
        return Err(CompressError::TooLarge { coordinate, value: x, limit: f64::from(f32::MAX) });
    }
    let (low, high) = (f64::from(low), f64::from(high));
    Ok(if exact((x - low) / (high - low), stream) { high } else { low })
}

/// The nearest 32-bit number.
pub(super) fn nearest_f32(x: f64, coordinate: usize) -> Result<f64, CompressError> {
    let near = f64::from(x as f32);
    if near.is_infinite() {
        return Err(CompressError::TooLarge { coordinate, value: x, limit: f64::from(f32::MAX) });
    }
    Ok(near)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Purpose, SERVER, Seed};

    /// 200,000 tosses each; z-scores fail by chance once in a million.
    #[test]
    fn coins_are_fair() {
        let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, 0);
        let n = 200_000;
        for p in [0.5, 1.0 / 3.0, 0.999, 1e-3] {
            let heads = (0..n).filter(|_| exact(p, &mut stream)).count() as f64;
            let score = (heads - f64::from(n) * p) / (f64::from(n) * p * (1.0 - p)).sqrt();
            assert!(score.abs() < 4.9, "{p}: {score}");
        }
        assert!((0..n).all(|_| exact(1.0, &mut stream) && !exact(0.0, &mut stream)));
    }

    /// Where the first word falls into the cell that holds the probability, the second decides.
    #[test]
    fn the_cell_that_holds_the_probability_is_split() {
        let seed = Seed::new(2);
        let (first, second) = {
            let mut stream = seed.stream(Purpose::Compress, SERVER, 0);
            (f64::from(stream.word()), f64::from(stream.word()))
        };
        let toss = |p: f64| exact(p, &mut seed.stream(Purpose::Compress, SERVER, 0));
        // 53 bits: the first word, and the upper 21 of the second.
        let cut = first + (second / 2048.0).floor() / 2_097_152.0;
        assert!(!toss(cut / WORD) && toss((cut + 1.0 / 2_097_152.0) / WORD));
    }

    #[test]
    fn rounding_to_32_bits_has_the_right_neighbours() {
        let mut stream = Seed::new(3).stream(Purpose::Compress, SERVER, 0);
        for x in [0.1, -0.1, 1e-42, 1e-300, -5e-324, 3.0, 16_777_217.0, 0.0, -0.0] {
            for _ in 0..20 {
                let y = round_to_f32(x, 0, &mut stream).unwrap();
                let ulp = f64::from((x as f32).abs().next_up()) - f64::from((x as f32).abs());
                assert!(f64::from(y as f32) == y && (y - x).abs() < ulp, "{x} {y}");
            }
        }
        assert!(matches!(round_to_f32(1e39, 4, &mut stream), Err(CompressError::TooLarge { coordinate: 4, .. })));
        let nearly = f64::from(f32::MAX) * (1.0 + 1e-9); // nearest is finite, the other neighbour is not
        assert!(matches!(round_to_f32(nearly, 4, &mut stream), Err(CompressError::TooLarge { coordinate: 4, .. })));
    }
}

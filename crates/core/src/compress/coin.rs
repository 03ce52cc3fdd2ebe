//! Toss coins whose probability is a floating-point number, exactly.
//!
//! Comparing 16 or 32 random bits with a probability would round the probability to as many bits, and a coordinate 1e-12 of the norm would never be sent. Here 16 bits decide
//! unless they fall into the one cell that holds the probability; then the next word decides, about what is left.

use super::CompressError;
use crate::lanes::{Kernel, LANES, MAGIC, run_vectorised};
use crate::rng::Stream;

/// 2^32.
const WORD: f64 = 4_294_967_296.0;
/// 2^16: the cells that 16 random bits tell apart.
pub(super) const CELLS: f64 = 65_536.0;

/// Coordinates that are decided by as many words at a time.
const BLOCK: usize = 2 * LANES;
/// Coordinates for which random words are drawn at once.
const CHUNK: usize = 512;
/// Coordinates that a stream has words for at once: a vector no longer than that is rounded by words where they stand.
const AT_ONCE: usize = 128;

/// Levels to round to: integers, on a line that is divided into 2^16 cells from each to the next.
pub(super) trait Grid: Copy {
    /// Whether all cells have numbers of 32 bits.
    const NARROW: bool;

    /// The number of the cell that `x` lies in, counted from 0 up and from -1 down. Mark it `#[inline(always)]`.
    fn cell(self, x: f64) -> i64;

    /// How far into its cell, counted from 0 on either side, `|x|` lies: in [0, 1).
    fn fraction(self, size: f64) -> f64;
}

/// How many words decide so many coordinates: each word two of them, those `LANES` apart.
fn words_for(coordinates: usize) -> usize {
    coordinates / BLOCK * LANES + (coordinates % BLOCK).min(LANES)
}

/// Round every coordinate at random to one of its two neighbouring levels, with its sign.
pub(super) fn round_to_levels<G: Grid>(v: &[f64], stream: &mut Stream, levels: &mut [i32], grid: G) {
    if v.len() <= AT_ONCE {
        let needed = words_for(v.len());
        let ready = stream.at_most(needed);
        // Words are copied only where more of them are needed.
        if ready.len() == needed && !run_vectorised(Rounding { values: v, words: ready, out: levels, grid }) {
            return;
        }
        let (made, mut words) = (ready.len(), [0; AT_ONCE]);
        words[..made].copy_from_slice(ready);
        stream.words(&mut words[made..needed]);
        return round_by(v, &words[..needed], levels, grid, stream);
    }
    let mut words = [0; CHUNK / 2];
    for (values, out) in v.chunks(CHUNK).zip(levels.chunks_mut(CHUNK)) {
        let words = &mut words[..words_for(values.len())];
        stream.words(words);
        round_by(values, words, out, grid, stream);
    }
}

/// Round by these words, and by more of them where they do not decide.
fn round_by<G: Grid>(values: &[f64], words: &[u32], out: &mut [i32], grid: G, stream: &mut Stream) {
    if run_vectorised(Rounding { values, words, out, grid }) {
        settle(values, words, out, grid, stream);
    }
}

struct Rounding<'a, G> {
    values: &'a [f64],
    words: &'a [u32],
    out: &'a mut [i32],
    grid: G,
}

/// Rounds by 16 random bits each; true if some fell into the cell that its chance splits.
impl<G: Grid> Kernel for Rounding<'_, G> {
    type Output = bool;
    #[inline(always)]
    fn run(self) -> bool {
        let Rounding { values, words, out, grid } = self;
        let mut most = [0; LANES];
        let (blocks, rest) = values.as_chunks::<BLOCK>();
        let (eights, words_left) = words.split_at(blocks.len() * LANES);
        let (out, out_left) = out.as_chunks_mut::<BLOCK>();
        for ((values, words), out) in blocks.iter().zip(eights.as_chunks::<LANES>().0).zip(out) {
            round_block(values, words, out, grid, &mut most);
        }
        // One by one: to fill a block up would take copies of a length that is not known, which are calls.
        for (place, (value, out)) in rest.iter().zip(out_left).enumerate() {
            let word = words_left[place % LANES];
            let (level, half) = round_one(*value, if place < LANES { word & 0xFFFF } else { word >> 16 }, grid);
            *out = level;
            most[0] = most[0].max(half);
        }
        most.into_iter().any(|most| most == 0xFFFF)
    }
}

#[inline(always)]
fn round_block<G: Grid>(values: &[f64; BLOCK], words: &[u32; LANES], out: &mut [i32; BLOCK], grid: G, most: &mut [u32; LANES]) {
    for lane in 0..LANES {
        let (low, high) = (words[lane] & 0xFFFF, words[lane] >> 16);
        let (first, second) = (values[lane], values[LANES + lane]);
        let (level, half) = round_one(first, low, grid);
        let (other, other_half) = round_one(second, high, grid);
        out[lane] = level;
        out[LANES + lane] = other;
        most[lane] = most[lane].max(half).max(other_half);
    }
}

/// The level, and the lower half: all ones where the bits do not decide.
#[inline(always)]
fn round_one<G: Grid>(value: f64, bits: u32, grid: G) -> (i32, u32) {
    // The lower half overflows into the level if the bits are below the chance of the level above.
    if G::NARROW {
        let sum = (grid.cell(value) as i32).wrapping_add((0xFFFF - bits) as i32);
        (sum >> 16, sum as u32 & 0xFFFF)
    } else {
        let sum = grid.cell(value) + i64::from(0xFFFF - bits);
        ((sum >> 16) as i32, sum as u32 & 0xFFFF)
    }
}

/// Decide the coordinates whose bits fell into the cell that they lie in (one in 2^16).
#[cold]
fn settle(v: &[f64], words: &[u32], out: &mut [i32], grid: impl Grid, stream: &mut Stream) {
    for (place, (x, level)) in v.iter().zip(out).enumerate() {
        let word = words[place / BLOCK * LANES + place % LANES];
        let bits = if place % BLOCK < LANES { word as u16 } else { (word >> 16) as u16 };
        if bits == grid.cell(*x) as u16 {
            let fraction = grid.fraction(x.abs());
            let up = if *x < 0.0 { fraction > 0.0 && !exact(fraction, stream) } else { exact(fraction, stream) };
            *level += i32::from(up);
        }
    }
}

/// The integer below `x`, for |x| < 2^51: as `f64::floor`, in operations that every vector unit has.
#[inline(always)]
pub(super) fn floor(x: f64) -> i64 {
    const MIDDLE: f64 = 1.5 * MAGIC; // adding it rounds to an integer, which is left in the low bits
    let near = x + MIDDLE;
    (near.to_bits().wrapping_sub(MIDDLE.to_bits()) as i64) - i64::from(near - MIDDLE > x)
}

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
    fn bits_in_the_split_cell_are_settled_by_the_next_word() {
        // The chance of a size is 5/4 of 2^-16 above 3, so cell 1 is split at a quarter; below 0 it is the other way round.
        #[derive(Clone, Copy)]
        struct Split;
        impl Grid for Split {
            const NARROW: bool = false;

            fn cell(self, x: f64) -> i64 {
                let place = 3 * 65_536 + 1;
                if x < 0.0 { -place - 1 } else { place }
            }

            fn fraction(self, _: f64) -> f64 {
                0.25
            }
        }
        let tied = |x: f64, word: u32, out: &mut [i32]| Rounding { values: &[x], words: &[word], out, grid: Split }.run();
        for (x, cell, below, chance) in [(1.0, 1, 3, 0.25), (-1.0, 65_534, -4, 0.75)] {
            let mut ups = 0;
            for round in 0..4000 {
                let mut level = [7];
                assert!(!tied(x, cell - 1, &mut level) && level == [below + 1]);
                assert!(!tied(x, cell + 1, &mut level) && level == [below]);
                assert!(tied(x, cell, &mut level) && level == [below]);
                settle(&[x], &[cell], &mut level, Split, &mut Seed::new(1).stream(Purpose::Compress, SERVER, round));
                ups += level[0] - below;
            }
            let score = (f64::from(ups) - 4000.0 * chance) / (4000.0f64 * 0.25 * 0.75).sqrt();
            assert!(score.abs() < 4.9, "{x}: {score}"); // 1e-6
        }
    }

    /// Coordinates of one vector have coins of their own: no pair of 50 goes together. 1225 z-scores, each beyond 5.9 once in 2.7e8.
    #[test]
    fn coordinates_are_rounded_independently() {
        #[derive(Clone, Copy)]
        struct Half;
        impl Grid for Half {
            const NARROW: bool = true;

            fn cell(self, _: f64) -> i64 {
                1 << 15
            }

            fn fraction(self, _: f64) -> f64 {
                0.0
            }
        }
        let (n, rounds) = (50, 20_000);
        let mut together = vec![0i32; n * n];
        for round in 0..rounds {
            let mut levels = vec![0; n];
            round_to_levels(&vec![1.0; n], &mut Seed::new(4).stream(Purpose::Compress, SERVER, round), &mut levels, Half);
            for (k, pair) in together.iter_mut().enumerate() {
                *pair += (2 * levels[k / n] - 1) * (2 * levels[k % n] - 1);
            }
        }
        for (k, pair) in together.iter().enumerate().filter(|(k, _)| k / n < k % n) {
            assert!(f64::from(*pair).abs() / (rounds as f64).sqrt() < 5.9, "{} and {}: {pair}", k / n, k % n);
        }
    }

    #[test]
    fn floor_is_the_standard_librarys() {
        for x in [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 3.999, 1e-300, 4_294_967_295.5, 4_294_967_295.0, 1e15, 0.999_999_999_999_999_9] {
            for x in [x, -x] {
                assert_eq!(floor(x), f64::floor(x) as i64);
            }
        }
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

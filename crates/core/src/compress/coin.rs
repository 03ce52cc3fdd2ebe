//! Toss coins whose probability is a floating-point number, exactly.
//!
//! Comparing 16 or 32 random bits with a probability would round the probability to as many bits,
//! and a coordinate 1e-12 of the norm would never be sent. Here 16 bits decide unless they fall
//! into the one cell that holds the probability; then the next word decides, about what is left.

use super::CompressError;
use super::words::Words;
use crate::rng::Stream;
use crate::simd::{Kernel, LANES, MAGIC, run_vectorised};

/// 2^32.
const WORD: f64 = 4_294_967_296.0;
/// 2^16: the cells that 16 random bits tell apart.
pub(super) const CELLS: f64 = 65_536.0;

/// Coordinates that are decided by as many words at a time.
const BLOCK: usize = 2 * LANES;
/// Coordinates that are rounded at once: where some of their bits do not decide, the words that do
/// come before those of the next.
const CHUNK: usize = 512;
/// Coordinates that a stream has words for at once: a vector no longer than that is rounded by
/// words where they stand.
pub(super) const AT_ONCE: usize = 128;

/// Levels to round to: integers, on a line that is divided into 2^16 cells from each to the next.
pub(super) trait Grid: Copy {
    /// Whether all cells have numbers of 32 bits.
    const NARROW: bool;

    /// The number of the cell that `x` lies in, counted from 0 up and from -1 down. Mark it
    /// `#[inline(always)]`.
    fn cell(self, x: f64) -> i64;

    /// The cell one level above that of `x`, or the next cell after that, whichever is found
    /// sooner: its low 32 bits.
    #[inline(always)]
    fn above(self, x: f64) -> u32 {
        (self.cell(x) as u32).wrapping_add(0x1_0000)
    }

    /// How far into its cell, counted from 0 on either side, `|x|` lies: in [0, 1).
    fn fraction(self, size: f64) -> f64;
}

/// How many words decide so many coordinates: each word two of them, those `LANES` apart.
pub(super) fn words_for(coordinates: usize) -> usize {
    coordinates / BLOCK * LANES + (coordinates % BLOCK).min(LANES)
}

/// Round every coordinate at random to one of its two neighbouring levels, with its sign.
pub(super) fn round_to_levels<G: Grid>(
    v: &[f64],
    stream: &mut Stream,
    levels: &mut [i32],
    grid: G,
) {
    // Words are copied only where more of them are needed.
    if v.len() <= AT_ONCE {
        let needed = words_for(v.len());
        let ready = stream.at_most(needed);
        if ready.len() == needed
            && run_vectorised(Rounding { values: v, words: ready, out: levels, grid }).is_none()
        {
            return;
        }
        let (made, mut words) = (ready.len(), [0; AT_ONCE]);
        words[..made].copy_from_slice(ready);
        stream.words(&mut words[made..needed]);
        return round_by(v, &words[..needed], levels, grid, || stream.word());
    }
    if v.len() <= CHUNK {
        let mut words = [0; CHUNK / 2];
        let words = &mut words[..words_for(v.len())];
        stream.words(words);
        return round_by(v, words, levels, grid, || stream.word());
    }
    let mut words = Words::new(stream, words_for(v.len()));
    for (values, out) in v.chunks(CHUNK).zip(levels.chunks_mut(CHUNK)) {
        let ready = words.take(words_for(values.len()));
        if run_vectorised(Rounding { values, words: ready, out, grid }).is_some() {
            let (mut kept, needed) = ([0; CHUNK / 2], ready.len());
            kept[..needed].copy_from_slice(ready);
            round_by(values, &kept[..needed], out, grid, || words.next());
        }
    }
}

/// Round by these words, and by the next ones where they do not decide.
fn round_by<G: Grid>(
    values: &[f64],
    words: &[u32],
    out: &mut [i32],
    grid: G,
    mut next: impl FnMut() -> u32,
) {
    let (mut values, mut words, mut out) = (values, words, out);
    while let Some(rounded) = run_vectorised(Rounding { values, words, out, grid }) {
        let done = values.len().min(rounded + BLOCK);
        settle(
            &values[rounded..done],
            &words[words_for(rounded)..],
            &mut out[rounded..done],
            grid,
            &mut next,
        );
        (values, words, out) = (&values[done..], &words[words_for(done)..], &mut out[done..]);
    }
}

pub(super) struct Rounding<'a, G> {
    pub(super) values: &'a [f64],
    pub(super) words: &'a [u32],
    pub(super) out: &'a mut [i32],
    pub(super) grid: G,
}

/// Rounds by 16 random bits each, up to the block where they may not decide; where that begins.
impl<G: Grid> Kernel for Rounding<'_, G> {
    type Output = Option<usize>;
    #[inline(always)]
    fn run(self) -> Option<usize> {
        let Rounding { values, words, out, grid } = self;
        let (blocks, rest) = values.as_chunks::<BLOCK>();
        let (eights, words_left) = words.split_at(blocks.len() * LANES);
        let (out, out_left) = out.as_chunks_mut::<BLOCK>();
        for (number, ((values, words), out)) in
            blocks.iter().zip(eights.as_chunks::<LANES>().0).zip(out).enumerate()
        {
            if round_block(values, words, out, grid) {
                return Some(number * BLOCK);
            }
        }
        // One by one: to fill a block up would take copies of a length that is not known, which are
        // calls.
        let mut doubt = false;
        for (place, (value, out)) in rest.iter().zip(out_left).enumerate() {
            let word = words_left[place % LANES];
            let (level, margin) =
                round_one(*value, if place < LANES { word & 0xFFFF } else { word >> 16 }, grid);
            *out = level;
            doubt |= margin == 0;
        }
        doubt.then_some(values.len() - rest.len())
    }
}

/// True where bits may not decide: the levels of this block may then be wrong.
#[inline(always)]
fn round_block<G: Grid>(
    values: &[f64; BLOCK],
    words: &[u32; LANES],
    out: &mut [i32; BLOCK],
    grid: G,
) -> bool {
    let mut bits = [0; BLOCK];
    for lane in 0..LANES {
        (bits[lane], bits[LANES + lane]) = (words[lane] & 0xFFFF, words[lane] >> 16);
    }
    let mut doubt = false;
    for place in 0..BLOCK {
        let (level, margin) = round_one(values[place], bits[place], grid);
        out[place] = level;
        doubt |= margin == 0;
    }
    doubt
}

/// The level, and 0 where the bits may not decide.
#[inline(always)]
pub(super) fn round_one<G: Grid>(value: f64, bits: u32, grid: G) -> (i32, u32) {
    // The lower half borrows from the level above unless the bits are below its chance. Where they
    // are at it, or one cell off, the lower half becomes 0 or 1.
    let (difference, level) = if G::NARROW {
        let difference = grid.above(value).wrapping_sub(bits);
        (difference, difference as i32 >> 16)
    } else {
        let difference = grid.cell(value) + 0x1_0000 - i64::from(bits);
        (difference as u32, (difference >> 16) as i32)
    };
    (level, difference & 0xFFFE)
}

/// Round the coordinates of one block once more, and by the next words those whose bits fell into
/// the cell that they lie in (one in 2^16).
fn settle(
    v: &[f64],
    words: &[u32],
    out: &mut [i32],
    grid: impl Grid,
    next: &mut impl FnMut() -> u32,
) {
    for (place, (x, level)) in v.iter().zip(out).enumerate() {
        let (word, cell) = (words[place % LANES], grid.cell(*x));
        let bits = if place < LANES { word as u16 } else { (word >> 16) as u16 };
        *level = ((cell + i64::from(0xFFFF - bits)) >> 16) as i32;
        if bits == cell as u16 {
            let fraction = grid.fraction(x.abs());
            let up = if *x < 0.0 {
                fraction > 0.0 && !exact(fraction, next)
            } else {
                exact(fraction, next)
            };
            *level += i32::from(up);
        }
    }
}

/// Adding it to `x` rounds to an integer, for |x| < 2^51, which is left in the low bits.
pub(super) const MIDDLE: f64 = 1.5 * MAGIC;

/// The integer below `x`, for |x| < 2^51: as `f64::floor`, in operations that every vector unit
/// has.
#[inline(always)]
pub(super) fn floor(x: f64) -> i64 {
    let near = x + MIDDLE;
    (near.to_bits().wrapping_sub(MIDDLE.to_bits()) as i64) - i64::from(near - MIDDLE > x)
}

/// True with exactly the given probability in [0, 1].
fn exact(probability: f64, next: &mut impl FnMut() -> u32) -> bool {
    let mut left = probability;
    while left > 0.0 {
        let (cell, word) = ((left * WORD).floor(), f64::from(next()));
        if word != cell {
            return word < cell;
        }
        // exact: a product by a power of two and a difference of neighbours
        left = left * WORD - cell;
    }
    false
}

/// One of the two 32-bit numbers around `x`, with mean exactly `x`.
pub(super) fn round_to_f32(
    x: f64,
    coordinate: usize,
    stream: &mut Stream,
) -> Result<f64, CompressError> {
    let near = nearest_f32(x, coordinate)?;
    if near == x {
        return Ok(near);
    }
    let narrow = near as f32;
    let (low, high) =
        if near < x { (narrow, narrow.next_up()) } else { (narrow.next_down(), narrow) };
    if low.is_infinite() || high.is_infinite() {
        return Err(CompressError::TooLarge { coordinate, value: x, limit: f64::from(f32::MAX) });
    }
    let (low, high) = (f64::from(low), f64::from(high));
    Ok(if exact((x - low) / (high - low), &mut || stream.word()) { high } else { low })
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
            let heads = (0..n).filter(|_| exact(p, &mut || stream.word())).count() as f64;
            let score = (heads - f64::from(n) * p) / (f64::from(n) * p * (1.0 - p)).sqrt();
            assert!(score.abs() < 4.9, "{p}: {score}");
        }
        assert!(
            (0..n).all(|_| exact(1.0, &mut || stream.word()) && !exact(0.0, &mut || stream.word()))
        );
    }

    /// Where the first word falls into the cell that holds the probability, the second decides.
    #[test]
    fn the_cell_that_holds_the_probability_is_split() {
        let seed = Seed::new(2);
        let (first, second) = {
            let mut stream = seed.stream(Purpose::Compress, SERVER, 0);
            (f64::from(stream.word()), f64::from(stream.word()))
        };
        let toss = |p: f64| {
            let mut stream = seed.stream(Purpose::Compress, SERVER, 0);
            exact(p, &mut || stream.word())
        };
        // 53 bits: the first word, and the upper 21 of the second.
        let cut = first + (second / 2048.0).floor() / 2_097_152.0;
        assert!(!toss(cut / WORD) && toss((cut + 1.0 / 2_097_152.0) / WORD));
    }

    #[test]
    fn bits_in_the_split_cell_are_settled_by_the_next_word() {
        // The chance of a size is 5/4 of 2^-16 above 3, so cell 1 is split at a quarter; below 0 it
        // is the other way round.
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
        let rounded = |x: f64, word: u32, next: &mut dyn FnMut() -> u32| {
            let mut level = [7];
            round_by(&[x], &[word], &mut level, Split, next);
            level[0]
        };
        for (x, cell, below, chance) in [(1.0, 1, 3, 0.25), (-1.0, 65_534, -4, 0.75)] {
            let mut ups = 0;
            for round in 0..4000 {
                let mut stream = Seed::new(1).stream(Purpose::Compress, SERVER, round);
                assert_eq!(rounded(x, cell - 1, &mut || unreachable!()), below + 1);
                assert_eq!(rounded(x, cell + 1, &mut || unreachable!()), below);
                ups += rounded(x, cell, &mut || stream.word()) - below;
            }
            let score = (f64::from(ups) - 4000.0 * chance) / (4000.0f64 * 0.25 * 0.75).sqrt();
            assert!(score.abs() < 4.9, "{x}: {score}"); // 1e-6
        }
    }

    /// Whatever is drawn at once, and wherever in it bits do not decide: each coordinate has its
    /// place among the words.
    #[test]
    fn words_of_a_long_vector_are_taken_in_order() {
        /// Every number is the chance of 1 in units of 2^-16, and a quarter of one more.
        #[derive(Clone, Copy)]
        struct Chances;
        impl Grid for Chances {
            const NARROW: bool = true;

            fn cell(self, x: f64) -> i64 {
                x as i64
            }

            fn fraction(self, _: f64) -> f64 {
                0.25
            }
        }
        for (number, length) in
            [129, 511, 512, 513, 2047, 2048, 2049, 2561, 60_000].into_iter().enumerate()
        {
            let stream = || Seed::new(7).stream(Purpose::Compress, SERVER, number as u64);
            // As the words are defined: those of a chunk, then one for each coordinate of it whose
            // bits do not decide. Every 97th coordinate takes its chance from them.
            let (mut one_by_one, mut values, mut expected) = (stream(), Vec::new(), Vec::new());
            while values.len() < length {
                let coordinates = (length - values.len()).min(CHUNK);
                let words: Vec<u32> =
                    (0..words_for(coordinates)).map(|_| one_by_one.word()).collect();
                for place in 0..coordinates {
                    let word = words[place / BLOCK * LANES + place % LANES];
                    let bits = if place % BLOCK < LANES { word & 0xFFFF } else { word >> 16 };
                    let tied = (values.len() % 97 == 0).then(|| one_by_one.word());
                    let chance =
                        if tied.is_some() { bits } else { 32_768 + u32::from(bits == 32_768) };
                    expected.push(i32::from(tied.map_or(bits < chance, |word| word < 1 << 30)));
                    values.push(f64::from(chance));
                }
            }
            let (mut levels, mut at_once) = (vec![7; length], stream());
            round_to_levels(&values, &mut at_once, &mut levels, Chances);
            assert!(levels == expected, "{length}");
            assert_eq!(at_once.word(), one_by_one.word(), "{length}");
        }
    }

    /// Coordinates of one vector have coins of their own: no pair of 50 goes together. 1225
    /// z-scores, each beyond 5.9 once in 2.7e8.
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
            round_to_levels(
                &vec![1.0; n],
                &mut Seed::new(4).stream(Purpose::Compress, SERVER, round),
                &mut levels,
                Half,
            );
            for (k, pair) in together.iter_mut().enumerate() {
                *pair += (2 * levels[k / n] - 1) * (2 * levels[k % n] - 1);
            }
        }
        for (k, pair) in together.iter().enumerate().filter(|(k, _)| k / n < k % n) {
            assert!(
                f64::from(*pair).abs() / (rounds as f64).sqrt() < 5.9,
                "{} and {}: {pair}",
                k / n,
                k % n
            );
        }
    }

    #[test]
    fn floor_is_the_standard_librarys() {
        for x in [
            0.0,
            0.25,
            0.5,
            0.75,
            1.0,
            1.5,
            2.5,
            3.999,
            1e-300,
            4_294_967_295.5,
            4_294_967_295.0,
            1e15,
            0.999_999_999_999_999_9,
        ] {
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
        assert!(matches!(
            round_to_f32(1e39, 4, &mut stream),
            Err(CompressError::TooLarge { coordinate: 4, .. })
        ));
        // nearest is finite, the other neighbour is not
        let nearly = f64::from(f32::MAX) * (1.0 + 1e-9);
        assert!(matches!(
            round_to_f32(nearly, 4, &mut stream),
            Err(CompressError::TooLarge { coordinate: 4, .. })
        ));
    }
}
